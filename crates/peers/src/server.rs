//! The end that answers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_env::{Env, Linger, Lingering, rest};
use http::header::CONNECTION;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::OwnSettings;
use crate::answer::{self, Answers};
use crate::connect;
use crate::error::chain;
use crate::forward::{self, Origin};
use crate::identity::{self, Identity};
use crate::message::{ASK, FORWARD, FROM, KIND, PeerBody, TO, refused, text};

/// Connections that have not proved the key yet. Others wait to be accepted.
const STRANGERS_MAX: usize = 64;

/// They must have done so by then.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// For the head of a request, and between two of them.
const IDLE_MAX: Duration = Duration::from_secs(180);

/// After a failed accept, which may come from a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What answers requests of clients.
#[async_trait]
pub trait ClientRequests: Send + Sync + 'static {
    /// Answers a client's request that has come to another worker. It is not passed on again.
    ///
    /// # Errors
    /// The connection ends.
    async fn answer(&self, request: Request<Incoming>, origin: Origin) -> io::Result<Response<PeerBody>>;
}

/// Answers the messages of other workers.
#[derive(Clone)]
pub struct PeerServer {
    env: Env,
    identity: Identity,
    /// The name of this worker.
    own: Arc<str>,
    answers: Arc<dyn Answers>,
    requests: Arc<dyn ClientRequests>,
    settings: OwnSettings,
}

impl PeerServer {
    /// `own` is the name of this worker.
    pub fn new(
        env: Env,
        identity: Identity,
        own: &str,
        answers: Arc<dyn Answers>,
        requests: Arc<dyn ClientRequests>,
        settings: OwnSettings,
    ) -> Self {
        Self { env, identity, own: own.into(), answers, requests, settings }
    }

    /// Answers until `stop` is cancelled, and then to the end of all answers that have begun; `cut` ends those, too.
    pub async fn run(self, listener: TcpListener, stop: CancellationToken, cut: CancellationToken) {
        let (connections, strangers) = (TaskTracker::new(), Arc::new(Semaphore::new(STRANGERS_MAX)));
        loop {
            let next = async {
                let stranger = Arc::clone(&strangers).acquire_owned().await;
                (stranger, listener.accept().await)
            };
            let Some((stranger, accepted)) = stop.run_until_cancelled(next).await else { break };
            match accepted {
                Ok((stream, _)) => {
                    let (server, stop, cut) = (self.clone(), stop.clone(), cut.clone());
                    // Ends with its connection, at the latest when `cut` is cancelled.
                    forebay_env::spawn(connections.track_future(async move {
                        cut.run_until_cancelled(server.connection(stream, stranger, &stop)).await;
                    }));
                }
                Err(error) => {
                    tracing::warn!(%error, "connection of another worker not accepted");
                    self.env.clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        connections.close();
        connections.wait().await;
    }

    async fn connection<S>(self, stream: TcpStream, stranger: S, stop: &CancellationToken) {
        let peer = stream.peer_addr().map(|address| address.to_string()).unwrap_or_default();
        if let Err(error) = connect::set_up(&stream) {
            return tracing::debug!(peer, %error, "connection of another worker not set up");
        }
        let linger = Linger::default();
        let stream = Lingering::new(stream, Arc::clone(&self.env.clock), linger.clone());
        let accepted = tokio::select! {
            biased;
            accepted = self.identity.acceptor.accept(stream) => accepted,
            () = self.env.clock.sleep(HANDSHAKE_MAX) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        };
        drop(stranger);
        let stream = match accepted {
            Ok(stream) if identity::is_peer(stream.get_ref().1.alpn_protocol()) => stream,
            Ok(_) => return tracing::warn!(peer, "a worker of another release was refused"),
            Err(error) if is_cut(&error) => return tracing::debug!(peer, %error, "a handshake was cut off"),
            Err(error) => {
                return tracing::warn!(peer, %error, "a connection to the port for other workers was refused: it has another cluster key or name, or is no worker");
            }
        };
        let service = service_fn(move |request| {
            let (server, linger) = (self.clone(), linger.clone());
            async move {
                let answer = server.answer(request).await;
                // A request that is refused early: the other worker may still be sending its body.
                if answer.as_ref().is_ok_and(|answer| answer.headers().contains_key(CONNECTION)) {
                    linger.at_the_end(rest::WAIT);
                }
                answer
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .header_read_timeout(IDLE_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = match stop.run_until_cancelled(connection.as_mut()).await {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(peer, error = chain(&error), "connection of another worker ended early");
        }
    }

    async fn answer(&self, mut request: Request<Incoming>) -> io::Result<Response<PeerBody>> {
        let headers = request.headers();
        if text(headers, &TO) != Some(&self.own) {
            return Ok(refused());
        }
        match text(headers, &KIND) {
            Some(FORWARD) => {
                let origin = forward::unpack(&mut request);
                self.requests.answer(request, origin).await
            }
            Some(ASK) => {
                let from = text(headers, &FROM).unwrap_or_default().to_owned();
                let (answers, settings) = (self.answers.as_ref(), &self.settings);
                let answer = answer::answer(answers, settings, &self.env.clock, &from, request.into_body()).await;
                Ok(answer.unwrap_or_else(refused))
            }
            Some(_) | None => Ok(refused()),
        }
    }
}

/// Whether the other end, or the network, has gone away: that says nothing of a key.
fn is_cut(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | TimedOut | UnexpectedEof)
}
