//! A server that keeps nothing: hyper with one answer from memory. Real servers are compared with it, and it can stand
//! behind them as a distant S3 that accepts only a limited number of requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Env;
use futures::stream;
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderValue, LAST_MODIFIED, RANGE};
use hyper::http::response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use crate::cli::BareServerOptions;
use crate::failure::Failure;

/// Most bytes of one answer, since it is in memory.
const SIZE_MAX: u64 = 1 << 30;

/// What S3 answers to a client that sends too many requests.
const SLOW_DOWN: &[u8] = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>";

/// The only multipart upload. Nothing of it is kept, either.
const UPLOAD: &[u8] = b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>";
const UPLOADED: &[u8] = b"<CompleteMultipartUploadResult><ETag>&quot;5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a&quot;</ETag></CompleteMultipartUploadResult>";

/// The ETag of every object: nothing is kept, so nothing changes.
const TAG: &str = "\"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a\"";

/// Serves until the process is ended. GET returns the same bytes for every key; bodies of PUT are received and dropped.
///
/// # Errors
/// When the address can't be listened on, or an option is wrong.
pub(crate) fn run(options: &BareServerOptions) -> Result<(), Failure> {
    let cores = available_parallelism().map_or(1, usize::from);
    if !(1..=cores).contains(&options.threads) {
        let problem = format!("--threads {}: this machine has {cores} cores, give 1 to {cores}", options.threads);
        return Err(Failure::Refused(problem));
    }
    if options.size.0 > SIZE_MAX {
        return Err(Failure::Refused(format!("--obj.size {}: it is kept in memory, give at most 1 GiB", options.size)));
    }
    let bare = BareServer {
        delay: options.delay.0,
        stream_bandwidth: options.stream_bandwidth.0,
        interval: Duration::from_secs(1).checked_div(options.rate).unwrap_or_default(),
        ..BareServer::new(Bytes::from(vec![0x5a; options.size.0 as usize]))
    };
    let runtime = Builder::new_multi_thread().worker_threads(options.threads).enable_all().build();
    runtime.map_err(|error| Failure::of("runtime", &error))?.block_on(async {
        let failed = |error| Failure::of(options.listen, &error);
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address: SocketAddr = listener.local_addr().map_err(failed)?;
        println!("serving {} from memory on http://{address}", options.size);
        Arc::new(bare).serve(listener).await
    })
}

/// The error of a body that may be one of two kinds.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What each request is answered with, and when.
struct BareServer {
    env: Env,
    body: Bytes,
    delay: Duration,
    /// Bytes per second of one body. 0 is no limit.
    stream_bandwidth: u64,
    /// Time between two requests that are served. Zero is no limit.
    interval: Duration,
    /// When the next request may be served. Unused time is not saved up for longer than [`BURST`].
    next: Mutex<Duration>,
}

impl BareServer {
    /// A server without any limits.
    fn new(body: Bytes) -> Self {
        let (delay, interval) = (Duration::ZERO, Duration::ZERO);
        Self { env: Env::real(), body, delay, stream_bandwidth: 0, interval, next: Mutex::default() }
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) -> Result<(), Failure> {
        loop {
            let (stream, _) = listener.accept().await.map_err(|error| Failure::of("accepting a connection", &error))?;
            stream.set_nodelay(true).map_err(|error| Failure::of("accepting a connection", &error))?;
            let bare = Arc::clone(&self);
            forebay_env::spawn(async move {
                let service = service_fn(move |request| {
                    let bare = Arc::clone(&bare);
                    async move { bare.answer(request).await }
                });
                // A client that disconnects is not worth reporting.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }

    /// Signatures are not checked.
    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<impl Body<Data = Bytes, Error = BoxError> + use<>>, Infallible> {
        let query = request.uri().query().unwrap_or_default();
        let asks = |parameter: &str| query.split('&').any(|one| one.split('=').next() == Some(parameter));
        let (is_list, begins_upload, ends_upload) = (asks("list-type"), asks("uploads"), asks("uploadId"));
        let range = request.headers().get(RANGE).and_then(|range| parse_range(range.to_str().ok()?));
        let method = request.method().clone();
        let mut sent = request.into_body();
        while let Some(Ok(_)) = sent.frame().await {}
        if !self.delay.is_zero() {
            self.env.clock.sleep(self.delay).await;
        }
        let response = Response::builder();
        let response = match method {
            _ if !self.may_serve() => {
                response.status(StatusCode::SERVICE_UNAVAILABLE).body(Full::new(Bytes::from_static(SLOW_DOWN)))
            }
            // Nothing is kept, so there is nothing to list.
            Method::GET if is_list => {
                response.body(Full::new(Bytes::from_static(b"<ListBucketResult></ListBucketResult>")))
            }
            Method::GET | Method::HEAD => self.object(response, range),
            Method::POST if begins_upload => response.body(Full::new(Bytes::from_static(UPLOAD))),
            Method::POST if ends_upload => response.body(Full::new(Bytes::from_static(UPLOADED))),
            _ => response.header(ETAG, TAG).body(Full::default()),
        };
        let response = response.expect("all headers are valid");
        if self.stream_bandwidth == 0 {
            return Ok(response.map(Either::Left));
        }
        let (mut parts, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        Ok(Response::from_parts(parts, Either::Right(self.paced(bytes))))
    }

    fn object(
        &self,
        response: response::Builder,
        range: Option<(usize, usize)>,
    ) -> hyper::http::Result<Response<Full<Bytes>>> {
        let size = self.body.len();
        let response = response
            .header(ETAG, TAG)
            .header(ACCEPT_RANGES, "bytes")
            .header(LAST_MODIFIED, "Thu, 01 Jan 2026 00:00:00 GMT");
        match range.filter(|(start, _)| *start < size) {
            None => response.body(Full::new(self.body.clone())),
            Some((start, last)) => {
                let end = last.saturating_add(1).min(size);
                let response = response.status(StatusCode::PARTIAL_CONTENT);
                let response = response.header(CONTENT_RANGE, format!("bytes {start}-{}/{size}", end - 1));
                response.body(Full::new(self.body.slice(start..end)))
            }
        }
    }

    /// A body that arrives no faster than one stream may.
    fn paced(&self, body: Bytes) -> impl Body<Data = Bytes, Error = Infallible> + use<> {
        let (clock, bandwidth) = (Arc::clone(&self.env.clock), self.stream_bandwidth);
        let begin = clock.monotonic();
        StreamBody::new(Box::pin(stream::unfold((body, 0_u64), move |(mut body, sent)| {
            let clock = Arc::clone(&clock);
            async move {
                let piece = body.split_to(PIECE_BYTES.min(body.len()));
                let due = begin + Duration::from_secs_f64(sent as f64 / bandwidth as f64);
                clock.sleep(due.saturating_sub(clock.monotonic())).await;
                let sent = sent + piece.len() as u64;
                (!piece.is_empty()).then(|| (Ok(Frame::data(piece)), (body, sent)))
            }
        })))
    }

    /// Takes a request's turn. `false` when there are too many.
    fn may_serve(&self) -> bool {
        if self.interval.is_zero() {
            return true;
        }
        let now = self.env.clock.monotonic();
        let mut next = self.next.lock();
        if *next > now {
            return false;
        }
        *next = now.saturating_sub(BURST).max(*next) + self.interval;
        true
    }
}

/// Bytes of one piece of a paced body: a few milliseconds of it.
const PIECE_BYTES: usize = 256 << 10;

/// Unused time up to this much may be used later, because requests do not come evenly.
const BURST: Duration = Duration::from_millis(100);

/// `bytes=START-LAST` and `bytes=START-`, which is all that clients of a cache send.
fn parse_range(text: &str) -> Option<(usize, usize)> {
    let (start, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let last = if last.is_empty() { usize::MAX } else { last.parse().ok()? };
    let start = start.parse().ok()?;
    (start <= last).then_some((start, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Connection, Endpoint};

    #[tokio::test]
    async fn it_gives_the_same_bytes_and_takes_any() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let bare = BareServer::new(Bytes::from_static(b"hello"));
        let server = forebay_env::spawn(Arc::new(bare).serve(listener));
        let mut connection = Connection::new(Endpoint::parse(&address).unwrap(), Env::real().clock);
        let put = b"PUT /b/k HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\n";
        let answer = connection.exchange(put, std::iter::once(&b"body"[..]), None).await.unwrap();
        assert_eq!((answer.status, answer.body_bytes), (200, 0));
        let get = b"GET /b/k HTTP/1.1\r\nhost: h\r\n\r\n";
        assert_eq!(connection.exchange(get, std::iter::empty(), None).await.unwrap().text, b"hello");
        let list = b"GET /b?list-type=2 HTTP/1.1\r\nhost: h\r\n\r\n";
        let listed = connection.exchange(list, std::iter::empty(), None).await.unwrap().text;
        assert!(listed.starts_with(b"<ListBucketResult>"));
        for (query, root) in
            [("uploads", "<InitiateMultipartUploadResult>"), ("uploadId=1", "<CompleteMultipartUploadResult>")]
        {
            let post = format!("POST /b/k?{query} HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n");
            let answer = connection.exchange(post.as_bytes(), std::iter::empty(), None).await.unwrap();
            assert!(answer.text.starts_with(root.as_bytes()), "{query}");
        }
        for (range, status, bytes) in
            [("1-2", 206, &b"el"[..]), ("3-", 206, b"lo"), ("0-99", 206, b"hello"), ("9-", 200, b"hello")]
        {
            let get = format!("GET /b/k HTTP/1.1\r\nhost: h\r\nrange: bytes={range}\r\n\r\n");
            let answer = connection.exchange(get.as_bytes(), std::iter::empty(), None).await.unwrap();
            assert_eq!((answer.status, &answer.text[..]), (status, bytes), "{range}");
        }
        server.abort();
    }

    #[test]
    fn it_bears_so_many_requests_in_a_second_and_no_more() {
        let (env, clock) = Env::simulated(1);
        let bare = BareServer { env, interval: Duration::from_millis(10), ..BareServer::new(Bytes::new()) };
        let served = |milliseconds: u64| {
            (0..milliseconds).filter(|_| {
                clock.advance(Duration::from_millis(1));
                bare.may_serve()
            })
        };
        let count = served(1000).count();
        assert!((100..=101).contains(&count), "{count}");
        clock.advance(Duration::from_secs(60));
        let at_once = (0..1000).filter(|_| bare.may_serve()).count();
        assert!((10..=12).contains(&at_once), "only what a tenth of a second brings is saved up: {at_once}");
    }
}
