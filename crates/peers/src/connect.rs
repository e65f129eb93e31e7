//! Connections to other workers.

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
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use crate::identity::{Identity, Protocol};

/// For TCP and TLS together. A worker in the same network needs a millisecond.
const CONNECT_MAX: Duration = Duration::from_secs(3);

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
}

impl Connector {
    pub(crate) fn new(identity: &Identity, protocol: Protocol, clock: &Arc<dyn Clock>) -> Self {
        Self { tls: identity.connector(protocol), protocol, clock: Arc::clone(clock) }
    }

    /// # Errors
    /// When the other end does not take the connection, or is no worker of this cluster.
    pub(crate) async fn connect(&self, address: &str) -> io::Result<TlsStream<TcpStream>> {
        let connect = async {
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
