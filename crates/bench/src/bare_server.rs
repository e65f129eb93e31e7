//! A server that keeps nothing: hyper with one answer from memory, to compare real servers with.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::thread::available_parallelism;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use crate::cli::BareServerOptions;
use crate::failure::Failure;

/// What one answer holds at most, since it's in memory.
const SIZE_MAX: u64 = 1 << 30;

/// Serves until the process is ended: GET gives the same bytes for every key, bodies of PUT are received and dropped.
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
    let body = Bytes::from(vec![0x5a; options.size.0 as usize]);
    let runtime = Builder::new_multi_thread().worker_threads(options.threads).enable_all().build();
    runtime.map_err(|error| Failure::of("runtime", &error))?.block_on(async {
        let failed = |error| Failure::of(options.listen, &error);
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address: SocketAddr = listener.local_addr().map_err(failed)?;
        println!("serving {} from memory on http://{address}", options.size);
        serve(listener, body).await
    })
}

async fn serve(listener: TcpListener, body: Bytes) -> Result<(), Failure> {
    loop {
        let (stream, _) = listener.accept().await.map_err(|error| Failure::of("accepting a connection", &error))?;
        stream.set_nodelay(true).map_err(|error| Failure::of("accepting a connection", &error))?;
        let body = body.clone();
        forebay_env::spawn(async move {
            let service = service_fn(move |request| answer(request, body.clone()));
            // A client that goes away is not worth a word.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Signatures are not looked at.
async fn answer(request: Request<Incoming>, body: Bytes) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_list = request.uri().query().is_some_and(|query| query.contains("list-type="));
    let method = request.method().clone();
    let mut sent = request.into_body();
    while let Some(Ok(_)) = sent.frame().await {}
    let empty = Full::new(Bytes::new());
    Ok(match method {
        // Nothing is kept, so there is nothing to list.
        Method::GET if is_list => {
            Response::new(Full::new(Bytes::from_static(b"<ListBucketResult></ListBucketResult>")))
        }
        Method::GET | Method::HEAD => Response::new(Full::new(body)),
        _ => Response::new(empty),
    })
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use super::*;
    use crate::http::{Connection, Endpoint};

    #[tokio::test]
    async fn it_gives_the_same_bytes_and_takes_any() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = forebay_env::spawn(serve(listener, Bytes::from_static(b"hello")));
        let mut connection = Connection::new(Endpoint::parse(&address).unwrap(), Env::real().clock);
        let put = b"PUT /b/k HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\n";
        let answer = connection.exchange(put, std::iter::once(&b"body"[..]), None).await.unwrap();
        assert_eq!((answer.status, answer.body_bytes), (200, 0));
        let get = b"GET /b/k HTTP/1.1\r\nhost: h\r\n\r\n";
        assert_eq!(connection.exchange(get, std::iter::empty(), None).await.unwrap().text, b"hello");
        let list = b"GET /b?list-type=2 HTTP/1.1\r\nhost: h\r\n\r\n";
        let listed = connection.exchange(list, std::iter::empty(), None).await.unwrap().text;
        assert!(listed.starts_with(b"<ListBucketResult>"));
        server.abort();
    }
}
