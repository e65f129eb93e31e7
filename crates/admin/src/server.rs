//! The listener.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::response::Response;
use forebay_env::rest::{self, Rest};
use forebay_env::{Addresses, TimedIo, is_plain_http, refuse_plain_http};
use http::{HeaderValue, header};
use hyper::body::{Body as _, Incoming};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access::Peer;
use crate::reserve::Reserve;
use crate::{Admin, sampler};

/// Probes, scrapers and a few humans; more is a mistake or an attack. An address has at most a quarter of them. Who
/// comes beyond that is asked for its health alone: see [`Reserve`].
const CONNECTIONS_MAX: usize = 256;
const CONNECTIONS_PER_ADDRESS_MAX: usize = 64;
/// How long such a connection lasts.
const RESERVED_TIME: Duration = Duration::from_secs(5);
/// How long a client may take to send the head of a request, and for the handshake of TLS before it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// In each window of this length, at least [`PROGRESS_BYTES`] of a request body must arrive.
pub(crate) const PROGRESS_WINDOW: Duration = Duration::from_secs(30);
/// The same for what is taken of an answer, as on the S3 port.
const ANSWER_WINDOW: Duration = Duration::from_secs(120);
pub(crate) const PROGRESS_BYTES: usize = 30 << 10;
/// How long to wait after a failed accept: with no descriptor left, trying at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a client of plain HTTP hears on a port of TLS.
const PLAIN_REFUSED: &str = r#"{"title":"Bad Request","status":400,"detail":"this port speaks TLS: use https:// instead of http:// in the endpoint"}"#;

/// Serves, and takes samples, until `stop` is cancelled. Requests in flight end with it.
pub async fn run(listener: TcpListener, admin: Admin, stop: CancellationToken) {
    tokio::select! {
        () = accept_all(&listener, &admin, &stop) => {}
        () = sampler::run(&admin) => {}
        () = stop.cancelled() => {}
    }
}

async fn accept_all(listener: &TcpListener, admin: &Admin, stop: &CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (addresses, reserve) = (Addresses::new(CONNECTIONS_PER_ADDRESS_MAX), Reserve::default());
    let (router, probes) = (admin.router(), admin.probes());
    loop {
        let Some((stream, peer)) = accept(listener, admin).await else { continue };
        let place = addresses.enter(peer.ip()).zip(Arc::clone(&places).try_acquire_owned().ok());
        let (admin, stop) = (admin.clone(), stop.clone());
        if let Some(place) = place {
            let router = router.clone();
            forebay_env::spawn(async move {
                stop.run_until_cancelled(connection(stream, peer, &admin, router, true)).await;
                drop(place);
            });
            continue;
        }
        let (probes, reserved) = (probes.clone(), reserve.enter());
        forebay_env::spawn(async move {
            tokio::select! {
                () = connection(stream, peer, &admin, probes, false) => {}
                () = admin.env().clock.sleep(RESERVED_TIME) => {}
                () = reserved.end.cancelled() => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

async fn accept(listener: &TcpListener, admin: &Admin) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            tracing::warn!(%error, "admin connection not accepted");
            admin.env().clock.sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Answers the requests of a connection: one, or as many as it likes.
async fn connection(stream: TcpStream, peer: SocketAddr, admin: &Admin, router: Router, keep_alive: bool) {
    let timed = |stream| TimedIo::new(stream, Arc::clone(&admin.env().clock), ANSWER_WINDOW, PROGRESS_BYTES as u64);
    let Some(tls) = &admin.shared.tls else { return requests(timed(stream), peer, admin, router, keep_alive).await };
    let handshake = async {
        if is_plain_http(&stream).await? {
            refuse_plain_http(stream, "application/problem+json", PLAIN_REFUSED).await?;
            return Err(io::Error::other("a request of plain HTTP"));
        }
        tls.accept(timed(stream)).await
    };
    tokio::select! {
        accepted = handshake => match accepted {
            Ok(stream) => requests(stream, peer, admin, router, keep_alive).await,
            Err(error) => tracing::debug!(%error, "TLS handshake of an admin connection failed"),
        },
        () = admin.env().clock.sleep(HEADER_TIMEOUT) => tracing::debug!("TLS handshake of an admin connection took too long"),
    }
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    admin: &Admin,
    router: Router,
    keep_alive: bool,
) {
    let router = TowerToHyperService::new(router);
    let clock = Arc::clone(&admin.env().clock);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer.ip()));
        let waits = request.headers().contains_key(header::EXPECT);
        let (request, rest) = split(request);
        let (answer, clock) = (router.call(request), Arc::clone(&clock));
        async move {
            let mut response: Response = answer.await?;
            if let Some(rest) = rest
                && !rest.discard(waits, &*clock, rest::WAIT).await
            {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response.headers_mut().entry(header::DATE).or_insert_with(|| date(clock.unix_ms()));
            Ok::<_, Infallible>(response)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .keep_alive(keep_alive)
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "admin connection ended");
    }
}

/// The request for the router, and what that will have left of its body.
fn split(request: Request<Incoming>) -> (Request<Body>, Option<Rest<BodyDataStream>>) {
    if request.body().is_end_stream() {
        return (request.map(|_| Body::empty()), None);
    }
    let (parts, body) = request.into_parts();
    let length = body.size_hint().exact();
    let (body, rest) = rest::share(Body::new(body).into_data_stream(), length);
    (Request::from_parts(parts, Body::from_stream(body)), Some(rest))
}

/// The `Date` of an answer. hyper's own is renewed forward only: after the clock was set back it would stay in the
/// future.
fn date(unix_ms: u64) -> HeaderValue {
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(unix_ms));
    HeaderValue::try_from(text).expect("a date is ASCII")
}
