//! Connections that fail when the client does not read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Clock;

/// A connection on which a write fails if the client takes fewer than a least number of bytes in a window. So a client
/// that reads nothing, or a byte now and then, cannot hold resources for ever. Only time in which a write waits counts.
/// The servers limit reads themselves, for headers and for bodies.
pub struct TimedIo<S> {
    stream: S,
    clock: Arc<dyn Clock>,
    window: Duration,
    bytes_min: u64,
    /// Bytes taken since the window began, and how long writes have waited in it.
    taken: u64,
    waited: Duration,
    waiting: Option<Waiting>,
}

/// A write that waits.
struct Waiting {
    since: Duration,
    timer: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<S> TimedIo<S> {
    pub fn new(stream: S, clock: Arc<dyn Clock>, window: Duration, bytes_min: u64) -> Self {
        Self { stream, clock, window, bytes_min, taken: 0, waited: Duration::ZERO, waiting: None }
    }

    /// Passes on the result of a write that took some bytes. A pending write waits at most until the window is over.
    fn limit<T>(
        &mut self,
        result: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = &result {
            if let Some(waiting) = self.waiting.take() {
                self.waited += self.clock.monotonic().saturating_sub(waiting.since);
            }
            self.taken += done.as_ref().map_or(0, bytes) as u64;
            if self.taken >= self.bytes_min {
                (self.taken, self.waited) = (0, Duration::ZERO);
            }
            return result;
        }
        let (clock, left) = (Arc::clone(&self.clock), self.window.saturating_sub(self.waited));
        let waiting = self.waiting.get_or_insert_with(|| Waiting {
            since: clock.monotonic(),
            timer: Box::pin(async move { clock.sleep(left).await }),
        });
        match waiting.timer.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                // Polling again gives the same answer.
                (self.waiting, self.waited) = (None, self.window);
                let problem = "the client reads nothing, or too slowly";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit(result, |taken| *taken, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.limit(result, |taken| *taken, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.limit(result, |()| 0, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limit(result, |()| 0, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::Env;

    /// Writes to a client that takes this many bytes every ten seconds, until everything is taken or the write fails.
    async fn write_to(taken: usize) -> io::Result<()> {
        let (env, clock) = Env::simulated(1);
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut stream = TimedIo::new(ours, env.clock, Duration::from_secs(30), 30);
        let task = crate::spawn(async move { stream.write_all(&[0; 500]).await });
        let mut buffer = vec![0; taken.max(1)];
        while !task.is_finished() {
            // Until the write waits.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            clock.advance(Duration::from_secs(10));
            if taken > 0 {
                let _all_is_taken = theirs.read(&mut buffer).await;
            }
        }
        task.join().await
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_or_a_byte_now_and_then_is_let_go() {
        for taken in [0, 1, 9] {
            assert_eq!(write_to(taken).await.unwrap_err().kind(), io::ErrorKind::TimedOut, "{taken}");
        }
        write_to(12).await.unwrap();
    }

    /// Time in which nothing is written does not count against the client.
    #[tokio::test]
    async fn a_pause_between_answers_does_not_count() {
        let (env, clock) = Env::simulated(1);
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut stream = TimedIo::new(ours, env.clock, Duration::from_secs(30), 1000);
        for _ in 0..20 {
            let answer = async {
                stream.write_all(&[0; 20]).await.unwrap();
                stream.flush().await.unwrap();
            };
            let ((), read) = tokio::join!(answer, async { theirs.read_exact(&mut [0; 20]).await });
            read.unwrap();
            clock.advance(Duration::from_secs(100));
        }
    }
}
