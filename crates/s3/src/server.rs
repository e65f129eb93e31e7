//! The HTTP/1.1 server: connections, their limits, and their end.

pub(crate) mod date;
mod timed_body;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use forebay_env::{Addresses, Lingering, TimedIo, is_plain_http, refuse_plain_http};
use futures::future::{Either, select};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::Connection;
use crate::homes::RequestBody;
use crate::service::{ACCEPT_PAUSE, S3Service};
use crate::shares::{ConnectionPermit, Shares};
pub(crate) use timed_body::TimedBody;

/// What a connection holds of a request that it reads and of an answer that it writes, beside the piece that it works
/// on. hyper's own limit is 408 KiB, which slow readers and half-sent heads fill, and a buffer that grows takes twice
/// its bytes: thousands would hold gigabytes. Heads of requests must fit: those of Amazon S3 have 8 KiB, and a URL that
/// is signed with a long session token a few more.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// An answer may take this many windows of a request body for the same bytes. Linux buffers up to 4 MiB and reports
/// room again when a third is free, so a client that takes 10 KiB a second seems to stand still for two minutes.
const ANSWER_WINDOWS: u32 = 4;

/// What a client of plain HTTP hears on a port of TLS.
const PLAIN_REFUSED: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>InvalidRequest</Code>\
    <Message>This port speaks TLS: use https:// instead of http:// in the endpoint.</Message></Error>";

impl S3Service {
    /// Serves the listener until `shutdown` is cancelled; then takes no more connections, lets requests in flight end
    /// within the deadline of the settings, and returns.
    pub async fn run(self, listener: TcpListener, tls: Option<TlsAcceptor>, shutdown: CancellationToken) {
        let connections = TaskTracker::new();
        // Cancelled when the deadline is over: what is still open then is cut.
        let cut = CancellationToken::new();
        let server = Server { service: self, tls, shutdown, cut: cut.clone() };
        server.accept(&listener, &connections).await;
        drop(listener);
        connections.close();
        let deadline = server.service.inner.settings.shutdown_deadline;
        let wait = std::pin::pin!(connections.wait());
        if let Either::Right(_) = select(wait, server.service.inner.env.clock.sleep(deadline)).await {
            tracing::warn!(connections = connections.len(), "connections cut at the shutdown deadline");
            cut.cancel();
            connections.wait().await;
        }
    }
}

#[derive(Clone)]
struct Server {
    service: S3Service,
    tls: Option<TlsAcceptor>,
    shutdown: CancellationToken,
    cut: CancellationToken,
}

impl Server {
    async fn accept(&self, listener: &TcpListener, connections: &TaskTracker) {
        let settings = &self.service.inner.settings;
        let places = Arc::new(Semaphore::new(settings.connections_max));
        let addresses = Addresses::new(settings.connections_per_address_max);
        let shares = Shares::new(settings.connections_max, Arc::clone(&self.service.inner.metrics));
        loop {
            let next = async {
                let permit = Arc::clone(&places).acquire_owned().await;
                (permit, listener.accept().await)
            };
            let Some((permit, accepted)) = self.shutdown.run_until_cancelled(next).await else { return };
            match accepted {
                Ok((stream, peer)) => {
                    let Some(place_of_address) = addresses.enter(peer.ip()) else {
                        tracing::debug!(%peer, "connection closed: its address has too many");
                        self.service.inner.metrics.connections_refused.inc();
                        continue;
                    };
                    let (server, place_of_key) = (self.clone(), shares.enter());
                    // Ends with its connection, at the latest when `cut` is cancelled.
                    forebay_env::spawn(connections.track_future(async move {
                        server.service.inner.metrics.connections.inc();
                        server
                            .cut
                            .clone()
                            .run_until_cancelled(server.connection(stream, peer.ip(), place_of_key))
                            .await;
                        server.service.inner.metrics.connections.dec();
                        drop((permit, place_of_address));
                    }));
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    // Out of descriptors, most likely: connections that end give some back.
                    tracing::error!(%error, "connection not accepted");
                    self.service.inner.env.clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn connection(&self, stream: TcpStream, peer: IpAddr, permit: Arc<ConnectionPermit>) {
        // Answers are written whole; waiting to fill packets would only delay them.
        let _ = stream.set_nodelay(true);
        let settings = &self.service.inner.settings;
        let (window, bytes_min) = (settings.body_window * ANSWER_WINDOWS, settings.body_bytes_per_window_min);
        let timed = |stream| {
            let clock = &self.service.inner.env.clock;
            let stream = Lingering::new(stream, Arc::clone(clock), permit.linger().clone());
            TimedIo::new(stream, Arc::clone(clock), window, bytes_min)
        };
        match &self.tls {
            None => self.requests(timed(stream), Connection::plain(Some(peer)), Arc::clone(&permit)).await,
            Some(tls) => {
                let handshake = std::pin::pin!(async {
                    if is_plain_http(&stream).await? {
                        refuse_plain_http(stream, "application/xml", PLAIN_REFUSED).await?;
                        return Err(io::Error::other("a request of plain HTTP"));
                    }
                    tls.accept(timed(stream)).await
                });
                match select(handshake, self.service.inner.env.clock.sleep(settings.header_timeout)).await {
                    Either::Left((Ok(stream), _)) => {
                        let connection = Connection::encrypted(Some(peer), stream.get_ref().1);
                        self.requests(stream, connection, Arc::clone(&permit)).await;
                    }
                    Either::Left((Err(error), _)) => tracing::debug!(%error, "TLS handshake failed"),
                    Either::Right(_) => tracing::debug!("TLS handshake took too long"),
                }
            }
        }
    }

    async fn requests<S>(&self, stream: S, connection: Connection, permit: Arc<ConnectionPermit>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (service, connection) = (self.service.clone(), Arc::new(connection));
        let answer = service_fn(move |request| {
            let (service, connection, permit) = (service.clone(), Arc::clone(&connection), Arc::clone(&permit));
            async move { service.answer(request.map(RequestBody::Left), &connection, &permit, true).await }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .max_buf_size(BUFFER_BYTES_MAX)
            .header_read_timeout(self.service.inner.settings.header_timeout)
            .serve_connection(TokioIo::new(stream), answer);
        let mut connection = std::pin::pin!(connection);
        let ended = match self.shutdown.run_until_cancelled(connection.as_mut()).await {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, cause = ?std::error::Error::source(&error).map(ToString::to_string), "connection ended early");
        }
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}
