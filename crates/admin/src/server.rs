//! The listener.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use forebay_env::Env;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::Admin;
use crate::audit::Peer;

/// Probes, scrapers and a few humans; more is a mistake or an attack.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait after a failed accept: with no descriptor left, trying at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` is cancelled. Requests under way end with it.
pub async fn run(listener: TcpListener, admin: Admin, env: Env, stop: CancellationToken) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let router = admin.router();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &connections, &env) => accepted,
            () = stop.cancelled() => return,
        };
        if let Some((stream, peer, permit)) = accepted {
            forebay_env::spawn(serve(stream, peer, permit, router.clone(), stop.clone()));
        }
    }
}

async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
    env: &Env,
) -> Option<(TcpStream, Peer, OwnedSemaphorePermit)> {
    let permit = Arc::clone(connections).acquire_owned().await.expect("the semaphore is never closed");
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, Peer(peer.ip()), permit)),
        Err(error) => {
            tracing::warn!(%error, "admin connection not accepted");
            env.clock.sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn serve(stream: TcpStream, peer: Peer, permit: OwnedSemaphorePermit, router: Router, stop: CancellationToken) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        ended = connection => if let Err(error) = ended {
            tracing::debug!(%error, "admin connection ended");
        },
        () = stop.cancelled() => {}
    }
    drop(permit);
}
