//! Connections to other workers.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay_env::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use crate::identity::{Identity, Protocol};

/// For TCP and TLS together, and for the wait before them. A worker in the same network needs a millisecond.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// Connections to one worker that one connector makes at once; others wait. The other end closes those of an address
/// that has too many without a proof of the key. It may see that proof later than this end, so there is much room.
pub(crate) const CONNECTING_MAX: usize = 64;

/// When nothing is confirmed for so long, the other machine or the network is gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// On an idle connection, the other end is asked after half of [`SILENCE_MAX`], and so often in the rest of it.
const PROBES: u32 = 3;

/// Any name does: the key says who it is.
const NAME: &str = "forebay-peer";

#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    protocol: Protocol,
    clock: Arc<dyn Clock>,
    /// By address: what is left of [`CONNECTING_MAX`]. Addresses to which no connection is being made are dropped.
    connecting: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

impl Connector {
    pub(crate) fn new(identity: &Identity, protocol: Protocol, clock: &Arc<dyn Clock>) -> Self {
        Self { tls: identity.connector(protocol), protocol, clock: Arc::clone(clock), connecting: Arc::default() }
    }

    /// Waits until a connection to this address may be made.
    async fn turn(&self, address: &str) -> OwnedSemaphorePermit {
        let places = {
            let mut connecting = self.connecting.lock();
            // Each permit, and all who wait for one, hold another reference.
            connecting.retain(|_, places| Arc::strong_count(places) > 1);
            let places = connecting.entry(address.to_owned());
            Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(CONNECTING_MAX))))
        };
        places.acquire_owned().await.expect("it is never closed")
    }

    /// # Errors
    /// When the other end does not take the connection, or is no worker of this cluster.
    pub(crate) async fn connect(&self, address: &str) -> io::Result<TlsStream<TcpStream>> {
        let connect = async {
            let _turn = self.turn(address).await;
            let stream = TcpStream::connect(address).await?;
            set_up(&stream)?;
            if self.protocol == Protocol::Frames {
                limit_silence(&stream)?;
            }
            let name = ServerName::try_from(NAME).expect("this is a name");
            self.tls.connect(name, stream).await
        };
        let stream = tokio::select! {
            biased;
            connected = connect => connected?,
            () = self.clock.sleep(CONNECT_MAX) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not take the connection"));
            }
        };
        if Protocol::of(stream.get_ref().1.alpn_protocol()) != Some(self.protocol) {
            return Err(io::Error::other("it speaks another protocol"));
        }
        Ok(stream)
    }
}

/// An end that has nothing to send notices when the other one is gone without a word.
pub(crate) fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let probes = TcpKeepalive::new().with_time(SILENCE_MAX / 2).with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&probes.with_interval(SILENCE_MAX / 2 / PROBES))
}

/// An end that sends notices it, too. Only for connections on which both ends always read: Linux also cuts off another
/// end that lives and has no room for more.
pub(crate) fn limit_silence(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_tcp_user_timeout(Some(SILENCE_MAX))
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<Link>>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        async move {
            let address = uri.authority().map_or("", |authority| authority.as_str());
            connector.connect(address).await.map(|stream| TokioIo::new(Link(stream)))
        }
        .boxed()
    }
}

pub(crate) struct Link(TlsStream<TcpStream>);

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Link {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;
    use futures::StreamExt;
    use futures::stream::FuturesUnordered;
    use tokio::net::TcpListener;

    use super::*;
    use crate::identity::ClusterKey;

    /// The other end never answers a handshake, and no time passes.
    #[tokio::test]
    async fn only_some_connections_to_one_worker_are_made_at_once() {
        let (env, clock) = Env::simulated(1);
        let key = ClusterKey::parse("a-key-that-only-workers-have,-123").expect("a key");
        let connector = Connector::new(&Identity::new(&key, "lake"), Protocol::Http, &env.clock);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let mut connecting: FuturesUnordered<_> = (0..=CONNECTING_MAX).map(|_| connector.connect(&address)).collect();
        // All of them begin. The kernel makes connections within one machine at once.
        assert!(tokio::task::unconstrained(connecting.next()).now_or_never().is_none());
        let mut accepted = Vec::new();
        for _ in 0..CONNECTING_MAX {
            accepted.push(listener.accept().await.expect("a connection").0);
        }
        let next = tokio::task::unconstrained(listener.accept()).now_or_never();
        assert!(next.is_none(), "one waits");
        // Another worker has its own number.
        let other = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address_of_other = other.local_addr().expect("an address").to_string();
        let mut to_other = connector.connect(&address_of_other).boxed();
        assert!(tokio::task::unconstrained(&mut to_other).now_or_never().is_none());
        other.accept().await.expect("a connection");
        drop(accepted.pop());
        let all_end = connecting.by_ref().for_each(|_| std::future::ready(()));
        tokio::select! {
            biased;
            () = all_end => panic!("nobody answers a handshake"),
            next = listener.accept() => accepted.push(next.expect("a connection").0),
        }
        clock.advance(CONNECT_MAX);
        let failed: Vec<_> = connecting.collect().await;
        assert_eq!(failed.len(), CONNECTING_MAX);
        assert!(to_other.await.is_err());
        let _turn = connector.turn("a third one").await;
        assert_eq!(connector.connecting.lock().len(), 1, "the others are forgotten");
    }
}
