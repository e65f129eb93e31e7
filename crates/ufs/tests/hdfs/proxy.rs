//! Stands between the store and the NameNode: counts calls, holds them back, and loses requests or answers.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Follows the name of the method in the header of a call: field 2, and its length.
const INTERFACE: &[u8] = b"\x12\x2eorg.apache.hadoop.hdfs.protocol.ClientProtocol";

/// `hrpc`, and three bytes.
const PREAMBLE_BYTES: usize = 7;

/// What is lost of the next call of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Request,
    Answer,
}

/// A call that is to be held back, and all that follow on its connection.
struct Hold {
    method: &'static str,
    /// How many calls of the method pass before.
    passes: usize,
    arrived: oneshot::Sender<()>,
    release: oneshot::Receiver<()>,
}

/// The other side of a [`Hold`].
pub(crate) struct Held {
    arrived: oneshot::Receiver<()>,
    release: oneshot::Sender<()>,
}

impl Held {
    /// Waits until the call has come.
    pub(crate) async fn arrived(&mut self) {
        (&mut self.arrived).await.expect("a proxy that runs");
    }

    pub(crate) fn release(self) {
        self.release.send(()).expect("a connection that is open");
    }
}

#[derive(Default)]
struct State {
    calls: Mutex<BTreeMap<String, usize>>,
    /// One after the other.
    loses: Mutex<VecDeque<(&'static str, Lost)>>,
    holds: Mutex<Option<Hold>>,
}

impl State {
    /// How this call is to be held back.
    fn hold(&self, method: &str) -> Option<Hold> {
        let mut holds = self.holds.lock();
        let hold = holds.as_mut().filter(|hold| hold.method == method)?;
        if hold.passes == 0 {
            return holds.take();
        }
        hold.passes -= 1;
        None
    }
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

impl Proxy {
    pub(crate) async fn start(name_node: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        forebay_env::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, name_node)).await else { continue };
                connect(client, server, Arc::clone(&shared));
            }
        });
        Self { port, state }
    }

    /// Once, of the next call of this method after all that is lost before.
    pub(crate) fn lose(&self, method: &'static str, lost: Lost) {
        self.state.loses.lock().push_back((method, lost));
    }

    /// Once, the next call of this method after `passes` others.
    pub(crate) fn hold(&self, method: &'static str, passes: usize) -> Held {
        let ((arrived, is_arrived), (release, is_released)) = (oneshot::channel(), oneshot::channel());
        *self.state.holds.lock() = Some(Hold { method, passes, arrived, release: is_released });
        Held { arrived: is_arrived, release }
    }

    /// The calls since the last time this was asked.
    pub(crate) fn calls(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut *self.state.calls.lock())
    }
}

fn connect(client: TcpStream, server: TcpStream, state: Arc<State>) {
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let muted = Arc::new(AtomicBool::new(false));
    let is_muted = Arc::clone(&muted);
    forebay_env::spawn(async move {
        // The connection ends with either side.
        tokio::select! {
            _ = requests(from_client, to_server, &state, &muted) => {}
            _ = answers(from_server, to_client, &is_muted) => {}
        }
    });
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &State,
    muted: &AtomicBool,
) -> std::io::Result<()> {
    let mut preamble = [0; PREAMBLE_BYTES];
    from.read_exact(&mut preamble).await?;
    to.write_all(&preamble).await?;
    loop {
        let mut frame = vec![0; from.read_u32().await? as usize];
        from.read_exact(&mut frame).await?;
        if let Some(method) = method(&frame) {
            let lost = {
                let mut loses = state.loses.lock();
                let is_hit = loses.front().is_some_and(|(hit, _)| *hit == method);
                if is_hit { loses.pop_front() } else { None }
            };
            if let Some(hold) = state.hold(&method) {
                // A test that does not wait for it lets it pass.
                let _ = hold.arrived.send(());
                let _ = hold.release.await;
            }
            *state.calls.lock().entry(method).or_default() += 1;
            match lost {
                Some((_, Lost::Request)) => return Ok(()),
                Some((_, Lost::Answer)) => muted.store(true, Ordering::SeqCst),
                None => {}
            }
        }
        to.write_u32(frame.len() as u32).await?;
        to.write_all(&frame).await?;
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, muted: &AtomicBool) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 || muted.load(Ordering::SeqCst) {
            return Ok(());
        }
        to.write_all(&buffer[..length]).await?;
    }
}

fn method(frame: &[u8]) -> Option<String> {
    let end = frame.windows(INTERFACE.len()).position(|window| window == INTERFACE)?;
    let begin = frame[..end].iter().rposition(|byte| !byte.is_ascii_alphanumeric())? + 1;
    Some(String::from_utf8_lossy(&frame[begin..end]).into_owned())
}
