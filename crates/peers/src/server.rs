//! The end that answers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::{Addresses, Env, Linger, Lingering, Requester, rest};
use forebay_types::error_chain;
use http::header::CONNECTION;
use http::{Request, Response};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::OwnSettings;
use crate::answer::{self, Answers};
use crate::connect;
use crate::forward;
use crate::frames::server::{Answerer, Unfetched};
use crate::identity::{Identity, Protocol};
use crate::message::{ASK, FETCH, FORWARD, FROM, HEADERS_MAX, KIND, PeerBody, REQUESTER, TO, refused, text};
use crate::requests::ClientRequests;

/// Connections that have not proved the key yet. Others wait to be accepted.
const STRANGERS_MAX: usize = 1024;

/// Of these, those of one address. Others of that address are closed at once: if they waited, they would be in front of
/// those of other addresses. A worker makes fewer at once, see [`connect::CONNECTING_MAX`].
const STRANGERS_PER_ADDRESS_MAX: usize = 256;

/// They must have done so by then.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// For the head of a request, and between two of them.
const IDLE_MAX: Duration = Duration::from_secs(180);

/// After a failed accept, which may come from a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    /// Connections with frames.
    frames: TaskTracker,
    /// Answers to requests that have come in frames.
    unfetched: Unfetched,
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
        let (frames, unfetched) = (TaskTracker::new(), Unfetched::default());
        Self { env, identity, own: own.into(), answers, requests, settings, frames, unfetched }
    }

    /// Answers until `stop` is cancelled, and then to the end of all answers that have begun; `cut` ends those, too.
    /// While some of these may still have to be fetched, connections are taken.
    pub async fn run(self, listener: TcpListener, stop: CancellationToken, cut: CancellationToken) {
        let (connections, strangers) = (TaskTracker::new(), Arc::new(Semaphore::new(STRANGERS_MAX)));
        let addresses = Addresses::exact(STRANGERS_PER_ADDRESS_MAX);
        let mut is_over = std::pin::pin!(async {
            stop.cancelled().await;
            self.frames.close();
            self.frames.wait().await;
            self.unfetched.until_none().await;
        });
        loop {
            let next = async {
                let stranger = Arc::clone(&strangers).acquire_owned().await;
                (stranger, listener.accept().await)
            };
            let (stranger, accepted) = tokio::select! {
                biased;
                () = &mut is_over => break,
                () = cut.cancelled() => break,
                next = next => next,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let Some(address) = addresses.enter(peer.ip()) else {
                        tracing::debug!(%peer, "too many connections of this address have not proved the cluster key");
                        continue;
                    };
                    let (server, stop, cut) = (self.clone(), stop.clone(), cut.clone());
                    // Ends with its connection, at the latest when `cut` is cancelled.
                    forebay_env::spawn(connections.track_future(async move {
                        cut.run_until_cancelled(server.connection(stream, (stranger, address), &stop)).await;
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
        self.unfetched.clear();
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
            Ok(stream) => stream,
            Err(error) if is_cut(&error) => return tracing::debug!(peer, %error, "a handshake was cut off"),
            Err(error) => {
                return tracing::warn!(peer, %error, "a connection to the port for other workers was refused: it has another cluster key or name, or is no worker");
            }
        };
        let ended = match Protocol::of(stream.get_ref().1.alpn_protocol()) {
            Some(Protocol::Http) => self.messages(stream, linger, stop).await,
            Some(Protocol::Frames) => {
                if let Err(error) = connect::limit_silence(stream.get_ref().0.get_ref()) {
                    return tracing::debug!(peer, %error, "connection of another worker not set up");
                }
                // The other worker may have sent requests that it does not know to be refused.
                linger.at_the_end(rest::WAIT);
                let answerer = self.answerer();
                self.frames.track_future(answerer.serve(stream, stop)).await.map_err(|error| error_chain(&error))
            }
            None => {
                return tracing::warn!(
                    peer,
                    "a worker that speaks another protocol was refused: run the same release on all workers"
                );
            }
        };
        if let Err(error) = ended {
            tracing::debug!(peer, error, "connection of another worker ended early");
        }
    }

    fn answerer(&self) -> Answerer {
        let (requests, unfetched) = (Arc::clone(&self.requests), self.unfetched.clone());
        Answerer::new(Arc::clone(&self.own), requests, unfetched, self.env.clone())
    }

    async fn messages(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        linger: Linger,
        stop: &CancellationToken,
    ) -> std::result::Result<(), String> {
        let (is_late, stopping) = (stop.is_cancelled(), stop.clone());
        let service = service_fn(move |request| {
            let (server, linger, stopping) = (self.clone(), linger.clone(), stopping.clone());
            async move {
                let answer = server.answer(request, stopping.is_cancelled()).await;
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
            .max_headers(HEADERS_MAX)
            .keep_alive(!is_late)
            .header_read_timeout(if is_late { HANDSHAKE_MAX } else { IDLE_MAX })
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        if is_late {
            return connection.await.map_err(|error| error_chain(&error));
        }
        let ended = match stop.run_until_cancelled(connection.as_mut()).await {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        ended.map_err(|error| error_chain(&error))
    }

    async fn answer(&self, mut request: Request<Incoming>, is_stopping: bool) -> io::Result<Response<PeerBody>> {
        let headers = request.headers();
        let is_fetch = text(headers, &KIND) == Some(FETCH);
        if text(headers, &TO) != Some(&self.own) || is_stopping && !is_fetch {
            return Ok(refused());
        }
        match text(headers, &KIND) {
            Some(FORWARD) => {
                let origin = forward::unpack(&mut request);
                self.requests.answer(request.map(Either::Left), origin).await
            }
            Some(FETCH) => {
                let ticket = request.uri().path().trim_start_matches('/');
                Ok(self.unfetched.take(ticket).unwrap_or_else(refused))
            }
            Some(ASK) => {
                let from = text(headers, &FROM).unwrap_or_default().to_owned();
                let requester = text(headers, &REQUESTER).and_then(|number| number.parse::<u64>().ok());
                let requester = requester.map_or(Requester::NOBODY, Requester::numbered);
                let (answers, settings) = (self.answers.as_ref(), &self.settings);
                let answer = answer::answer(answers, settings, &self.env.clock, &from, request.into_body());
                Ok(requester.gets(answer).await.unwrap_or_else(refused))
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
