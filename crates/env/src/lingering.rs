//! Connections that are closed while the client still sends.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Clock;

/// How much of what the client sends is read and discarded at a time, in bytes.
const PIECE_BYTES: usize = 16 << 10;

/// Whether, and for how long, a [`Lingering`] connection waits for the client when it is shut down. Shared by clones.
#[derive(Clone, Default)]
pub struct Linger {
    longest_ms: Arc<AtomicU64>,
}

impl Linger {
    /// The server has answered, and will not read what the client still sends.
    pub fn at_the_end(&self, longest: Duration) {
        let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        self.longest_ms.store(longest_ms, Ordering::Relaxed);
    }
}

/// A connection that can be shut down while the client still sends. If it were closed, the kernel would reset it, and
/// the client might never see the answer. So what the client sends is discarded until it has seen the end of the
/// connection, or for a limited time (nginx: `lingering_close`).
pub struct Lingering<S> {
    stream: S,
    clock: Arc<dyn Clock>,
    linger: Linger,
    /// Over when the client gets no more time. `None` before the shutdown.
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    is_over: bool,
}

impl<S> Lingering<S> {
    pub fn new(stream: S, clock: Arc<dyn Clock>, linger: Linger) -> Self {
        Self { stream, clock, linger, timer: None, is_over: false }
    }

    pub fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let longest_ms = this.linger.longest_ms.load(Ordering::Relaxed);
        if this.is_over {
            return Poll::Ready(Ok(()));
        }
        if longest_ms == 0 {
            return Pin::new(&mut this.stream).poll_shutdown(context);
        }
        if this.timer.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
        }
        let clock = Arc::clone(&this.clock);
        let timer = this
            .timer
            .get_or_insert_with(|| Box::pin(async move { clock.sleep(Duration::from_millis(longest_ms)).await }));
        let mut piece = [MaybeUninit::uninit(); PIECE_BYTES];
        loop {
            // First, as a client that sends without end would always be ready.
            if timer.as_mut().poll(context).is_ready() {
                this.is_over = true;
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::uninit(&mut piece);
            match ready!(Pin::new(&mut this.stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                // The client has seen the end, or is gone.
                Ok(()) | Err(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::Env;

    const LONGEST: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn what_the_client_still_sends_is_taken_until_it_has_seen_the_end() {
        let (env, _) = Env::simulated(1);
        let (ours, mut theirs) = tokio::io::duplex(16);
        let linger = Linger::default();
        let mut stream = Lingering::new(ours, env.clock, linger.clone());
        stream.write_all(b"refused").await.unwrap();
        linger.at_the_end(LONGEST);
        let server = crate::spawn(async move { stream.shutdown().await });
        theirs.write_all(&[0; 1000]).await.unwrap();
        let mut answer = Vec::new();
        theirs.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"refused");
        drop(theirs);
        server.join().await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_sends_without_end_is_cut_off() {
        let (env, clock) = Env::simulated(1);
        let (ours, mut theirs) = tokio::io::duplex(16);
        let linger = Linger::default();
        linger.at_the_end(LONGEST);
        let mut stream = Lingering::new(ours, env.clock, linger);
        let server = crate::spawn(async move { stream.shutdown().await });
        for _ in 0..100 {
            theirs.write_all(&[0; 16]).await.unwrap();
        }
        assert!(!server.is_finished());
        clock.advance(LONGEST);
        server.join().await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_without_a_rest_is_closed_at_once() {
        let (env, _) = Env::simulated(1);
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut stream = Lingering::new(ours, env.clock, Linger::default());
        stream.shutdown().await.unwrap();
    }
}
