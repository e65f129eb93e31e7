//! Connections whose reader must keep reading.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Clock;

/// A connection on which a write that makes no progress for the limit fails, so that a client that does not read holds nothing
/// for ever. Reads have limits of their own in the servers, for headers and for bodies.
pub struct TimedIo<S> {
    stream: S,
    clock: Arc<dyn Clock>,
    limit: Duration,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S> TimedIo<S> {
    pub fn new(stream: S, clock: Arc<dyn Clock>, limit: Duration) -> Self {
        Self { stream, clock, limit, waiting: None }
    }

    /// Passes progress on; without any, waits until the limit at most.
    fn limit<T>(&mut self, result: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = None;
            return result;
        }
        let (clock, limit) = (Arc::clone(&self.clock), self.limit);
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(async move { clock.sleep(limit).await }));
        match waiting.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"))),
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
        self.limit(result, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.limit(result, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.limit(result, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limit(result, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::Env;

    #[tokio::test]
    async fn a_write_that_nobody_reads_fails_in_the_end() {
        let (env, clock) = Env::simulated(1);
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut stream = TimedIo::new(ours, env.clock, Duration::from_secs(30));
        let task = crate::spawn(async move { stream.write_all(&[0; 64]).await });
        while !task.is_finished() {
            clock.advance(Duration::from_secs(10));
            tokio::task::yield_now().await;
        }
        assert_eq!(task.join().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
