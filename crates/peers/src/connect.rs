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

use crate::identity;

/// For TCP and TLS together. A worker in the same network needs a millisecond.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// When nothing is confirmed for so long, the other machine or the network is gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Any name does: the key says who it is.
const NAME: &str = "forebay-peer";

#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) tls: TlsConnector,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Connector {
    async fn connect(self, uri: Uri) -> io::Result<TokioIo<Link>> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or_default();
        let connect = async {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            set_up(&stream)?;
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
        if !identity::is_peer(stream.get_ref().1.alpn_protocol()) {
            return Err(io::Error::other("it speaks another protocol"));
        }
        Ok(TokioIo::new(Link(stream)))
    }
}

/// Both ends notice when the other one is gone without a word.
pub(crate) fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new().with_time(SILENCE_MAX / 2).with_interval(SILENCE_MAX / 5);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(SILENCE_MAX))
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<Link>>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        self.clone().connect(uri).boxed()
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
