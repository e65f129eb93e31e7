//! The end of a shared connection that asks.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{Either, select};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

use super::codec::{self, Answer};

/// Frames that wait to be written. Those who send more wait.
const FRAMES_MAX: usize = 256;

/// A connection to another worker. It takes requests until the other end, or the network, has gone, or the other worker
/// stops.
pub(super) struct Connection {
    frames: mpsc::Sender<Bytes>,
    unanswered: Arc<Mutex<Unanswered>>,
    last: AtomicU64,
}

/// Requests without an answer yet, by the numbers of their frames.
#[derive(Default)]
struct Unanswered {
    requests: HashMap<u64, oneshot::Sender<Answer>>,
    is_closed: bool,
}

/// A request that has a number and no answer yet.
pub(super) struct Asked<'a> {
    pub(super) number: u64,
    answer: oneshot::Receiver<Answer>,
    connection: &'a Connection,
    is_sent: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let is_unanswered = self.connection.unanswered.lock().requests.remove(&self.number).is_some();
        if is_unanswered && self.is_sent {
            // When there is no room for it, the other worker comes to the end of the request.
            let _ = self.connection.frames.try_send(codec::cancel(self.number));
        }
    }
}

/// Ends the requests that are still without an answer when the connection ends.
struct Closes(Arc<Mutex<Unanswered>>);

impl Drop for Closes {
    fn drop(&mut self) {
        let mut unanswered = self.0.lock();
        unanswered.is_closed = true;
        unanswered.requests.clear();
    }
}

impl Connection {
    pub(super) fn start(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (frames, queue) = mpsc::channel(FRAMES_MAX);
        let unanswered: Arc<Mutex<Unanswered>> = Arc::default();
        // Ends with the connection, or with this.
        forebay_env::spawn(run(stream, queue, Closes(Arc::clone(&unanswered))));
        Self { frames, unanswered, last: AtomicU64::new(0) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.unanswered.lock().is_closed
    }

    /// A number for a request. `None`: the connection takes no more.
    pub(super) fn begin(&self) -> Option<Asked<'_>> {
        let (done, answer) = oneshot::channel();
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let mut unanswered = self.unanswered.lock();
        if unanswered.is_closed {
            return None;
        }
        unanswered.requests.insert(number, done);
        drop(unanswered);
        Some(Asked { number, answer, connection: self, is_sent: false })
    }
}

impl Asked<'_> {
    /// Sends the frame of the request. `None`: the connection ended before the answer came.
    pub(super) async fn send(mut self, frame: Bytes) -> Option<Answer> {
        self.connection.frames.send(frame).await.ok()?;
        self.is_sent = true;
        (&mut self.answer).await.ok()
    }
}

async fn run(stream: impl AsyncRead + AsyncWrite, queue: mpsc::Receiver<Bytes>, closes: Closes) {
    let (reader, writer) = tokio::io::split(stream);
    let mut write = pin!(codec::write_all(queue, writer));
    let mut read = pin!(read_all(reader, &closes.0));
    // Both at once: two ends that only write would wait for each other.
    let ended = match select(&mut write, &mut read).await {
        Either::Left((Ok(()), _)) => Ok(()),
        // Answers may have come before that.
        Either::Left((Err(error), _)) => {
            closes.0.lock().is_closed = true;
            read.await.and(Err(error))
        }
        Either::Right((ended, _)) => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a shared connection to another worker ended");
    }
}

/// Reads answers until the other end closes the connection, or has said that it takes no more requests and has answered
/// all.
async fn read_all(reader: impl AsyncRead + Unpin, unanswered: &Mutex<Unanswered>) -> io::Result<()> {
    let mut answers = codec::read(reader);
    while let Some(frame) = answers.next().await {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "an answer makes no sense");
        let (number, answer) = codec::read_answer(frame?).ok_or_else(invalid)?;
        let (asked, is_over) = {
            let mut unanswered = unanswered.lock();
            unanswered.is_closed |= matches!(answer, Answer::Closing);
            (unanswered.requests.remove(&number), unanswered.is_closed && unanswered.requests.is_empty())
        };
        if let Some(asked) = asked {
            // The caller may have gone.
            let _ = asked.send(answer);
        }
        if is_over {
            break;
        }
    }
    Ok(())
}
