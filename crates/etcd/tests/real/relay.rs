//! Stands between an engine and a member, and loses what goes through it.

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    /// What the member says is lost.
    NoAnswers,
    /// What the engine says is lost.
    NoRequests,
    /// All connections end, and new ones, too.
    Cut,
}

pub(crate) struct Relay {
    port: u16,
    mode: watch::Sender<Mode>,
}

impl Relay {
    pub(crate) async fn start(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (mode, watched) = watch::channel(Mode::Open);
        forebay_env::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                forebay_env::spawn(relay(client, target, watched.clone()));
            }
        });
        Self { port, mode }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn relay(client: TcpStream, target: u16, mut mode: watch::Receiver<Mode>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let modes = mode.clone();
    tokio::select! {
        // In this order: a thread that lost its turn must not pass on an answer after the cut.
        biased;
        _ = mode.wait_for(|mode| *mode == Mode::Cut) => {}
        () = pass(from_client, to_server, &modes, Mode::NoRequests) => {}
        () = pass(from_server, to_client, &modes, Mode::NoAnswers) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mode: &watch::Receiver<Mode>, loses: Mode) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        if *mode.borrow() != loses && to.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
    }
}
