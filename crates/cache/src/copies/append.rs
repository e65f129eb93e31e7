//! Bytes of another worker that become an object of the store.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_env::Clock;
use forebay_store::Writer;
use futures::StreamExt;

use crate::{ByteStream, Error, ErrorKind, Result};

/// In each window of this length, another worker must send at least [`BYTES_MIN`], or all that is left.
const WINDOW: Duration = Duration::from_secs(10);
const BYTES_MIN: u64 = 64 << 10;

/// How long a stream that has failed had kept its reader waiting. Empty while it has not failed.
pub(super) type FailedAfter = Arc<OnceLock<Duration>>;

/// A stream that fails when it is too slow. Without this, one that sends a byte now and then could be read forever.
/// Only the time in which its next piece is waited for counts.
pub(super) fn in_time(clock: Arc<dyn Clock>, stream: ByteStream, failed_after: FailedAfter) -> ByteStream {
    let (waited, bytes) = (Duration::ZERO, 0_u64);
    let pieces = futures::stream::try_unfold((stream, waited, bytes), move |(mut stream, waited, bytes)| {
        let (clock, failed_after) = (Arc::clone(&clock), Arc::clone(&failed_after));
        async move {
            let began = clock.monotonic();
            let next = tokio::select! {
                biased;
                next = stream.next() => next.transpose(),
                () = clock.sleep(WINDOW.saturating_sub(waited)) => {
                    Err(Error::new(ErrorKind::Unavailable, "it sends nothing, or too slowly"))
                }
            };
            let waited = waited + clock.monotonic().saturating_sub(began);
            // Nothing is read after the first error.
            if next.is_err() {
                let _ = failed_after.set(waited);
            }
            let Some(data) = next? else { return Ok(None) };
            let bytes = bytes + data.len() as u64;
            let (waited, bytes) = if bytes < BYTES_MIN { (waited, bytes) } else { (Duration::ZERO, 0) };
            Ok(Some((data, (stream, waited, bytes))))
        }
    });
    pieces.boxed()
}

/// Appends the whole stream, which must have `size` bytes.
///
/// # Errors
/// `Unavailable` when it has another number of bytes; those of the stream and of the store.
pub(super) async fn append_all(writer: &mut Writer, mut stream: ByteStream, size: u64) -> Result<()> {
    let mut bytes = 0;
    while let Some(data) = stream.next().await {
        let data = data?;
        bytes += data.len() as u64;
        if bytes > size {
            break;
        }
        writer.append(data).await?;
    }
    if bytes != size {
        return Err(Error::new(ErrorKind::Unavailable, format!("it has {bytes} bytes, not {size}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use forebay_env::Env;
    use futures::TryStreamExt;

    use super::*;

    const PIECES: usize = 20;

    fn timed(env: Env, pieces: ByteStream) -> ByteStream {
        in_time(env.clock, pieces, FailedAfter::default())
    }

    /// Reads a stream that sends a piece of this size every four seconds, all of it or until it is given up.
    async fn read(piece: usize) -> Result<usize> {
        let (env, clock) = Env::simulated(1);
        let sender = Arc::clone(&env.clock);
        let pieces = futures::stream::iter(0..PIECES).then(move |_| {
            let sender = Arc::clone(&sender);
            async move {
                sender.sleep(Duration::from_secs(4)).await;
                Ok(Bytes::from(vec![7; piece]))
            }
        });
        let pieces = timed(env, pieces.boxed());
        let task = forebay_env::spawn(pieces.try_fold(0, |all, data| async move { Ok(all + data.len()) }));
        while !task.is_finished() {
            // Until it waits.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            clock.advance(Duration::from_secs(1));
        }
        task.join().await
    }

    #[tokio::test]
    async fn a_stream_that_brings_a_byte_now_and_then_is_given_up() {
        for piece in [0, 1, 30_000] {
            assert_eq!(read(piece).await.unwrap_err().kind, ErrorKind::Unavailable, "{piece}");
        }
        assert_eq!(read(33_000).await.unwrap(), PIECES * 33_000);
    }

    /// The time in which nobody reads is not that of the sender.
    #[tokio::test]
    async fn a_pause_of_the_reader_does_not_count() {
        let (env, clock) = Env::simulated(1);
        let pieces = futures::stream::iter((0..PIECES).map(|_| Ok(Bytes::from_static(b"some"))));
        let mut pieces = timed(env, pieces.boxed());
        let mut count = 0;
        while let Some(piece) = pieces.next().await {
            piece.unwrap();
            count += 1;
            clock.advance(WINDOW);
        }
        assert_eq!(count, PIECES);
    }

    /// What the reader does in between does not count.
    #[tokio::test]
    async fn a_failure_shows_how_long_it_was_waited_for() {
        let (env, clock) = Env::simulated(1);
        let failed_after = FailedAfter::default();
        let breaks = Error::new(ErrorKind::Unavailable, "it breaks off");
        let pieces = futures::stream::iter([Ok(Bytes::from_static(b"some")), Err(breaks)]);
        let mut pieces = in_time(Arc::clone(&env.clock), pieces.boxed(), Arc::clone(&failed_after));
        pieces.next().await.unwrap().unwrap();
        clock.advance(WINDOW);
        assert_eq!(failed_after.get(), None);
        pieces.next().await.unwrap().unwrap_err();
        assert_eq!(failed_after.get(), Some(&Duration::ZERO));
        let silent = FailedAfter::default();
        let mut pieces = in_time(env.clock, futures::stream::pending().boxed(), Arc::clone(&silent));
        let (failed, ()) = futures::future::join(pieces.next(), async { clock.advance(WINDOW) }).await;
        failed.unwrap().unwrap_err();
        assert_eq!(silent.get(), Some(&WINDOW));
    }
}
