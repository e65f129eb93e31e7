//! The rest of a request body that a client still sends after its request was answered.
//!
//! A short rest is read and discarded, and the connection can take the next request. With a longer one, the answer says
//! that the connection closes. Endpoints of S3 then close it as [`crate::Lingering`] does.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};

use crate::clock::Clock;
use crate::sync::Mutex;

/// Longest rest that is read, in bytes.
const REST_BYTES_MAX: usize = 1 << 20;
/// Longest wait for it.
pub const WAIT: Duration = Duration::from_secs(5);
/// The same while other connections wait for this one's place.
pub const WAIT_WHEN_WANTED: Duration = Duration::from_millis(100);

/// Splits a body: one handle for the operation, and one to discard the rest. `length` is what the client announced, in
/// bytes.
pub fn share<S: Stream + Unpin>(body: S, length: Option<u64>) -> (Shared<S>, Rest<S>) {
    let (began, ended, failed) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let is_long = length.is_some_and(|length| length > REST_BYTES_MAX as u64);
    let body = Mutex::new(Body { stream: body, is_taken: false });
    let state = Arc::new(State { body, is_long, began, ended, failed });
    (Shared(Arc::clone(&state)), Rest(state))
}

struct State<S> {
    body: Mutex<Body<S>>,
    /// The whole body is longer than any rest that is read.
    is_long: bool,
    began: AtomicBool,
    ended: AtomicBool,
    /// Nothing more may be read.
    failed: AtomicBool,
}

struct Body<S> {
    stream: S,
    /// The rest is discarded: the operation gets nothing more.
    is_taken: bool,
}

/// The body, for the operation. A [`Rest`] is the other handle. A task that still reads it while the rest is discarded
/// waits forever.
pub struct Shared<S>(Arc<State<S>>);

impl<S, E> Stream for Shared<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.began.store(true, Ordering::Relaxed);
        let mut body = self.0.body.lock();
        if body.is_taken {
            return Poll::Pending;
        }
        let next = body.stream.poll_next_unpin(context);
        drop(body);
        match &next {
            Poll::Ready(None) => self.0.ended.store(true, Ordering::Relaxed),
            Poll::Ready(Some(Err(_))) => self.0.failed.store(true, Ordering::Relaxed),
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        next
    }
}

/// What the operation leaves of a body.
pub struct Rest<S>(Arc<State<S>>);

impl<S, E> Rest<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    /// Discards the rest. Returns whether the connection can take another request. A client that waits for `100
    /// Continue` (`waits`) and never got it may or may not send the body: only closing the connection is clear to both
    /// sides.
    pub async fn discard(self, waits: bool, clock: &dyn Clock, longest: Duration) -> bool {
        if self.0.ended.load(Ordering::Relaxed) {
            return true;
        }
        // Only one of two readers would be woken.
        self.0.body.lock().is_taken = true;
        let is_whole = !self.0.began.load(Ordering::Relaxed);
        if self.0.failed.load(Ordering::Relaxed) || is_whole && (waits || self.0.is_long) {
            return false;
        }
        let mut body = stream::poll_fn(|context| self.0.body.lock().stream.poll_next_unpin(context));
        let read_all = async {
            let mut length = 0;
            while let Some(bytes) = body.next().await {
                match bytes {
                    Ok(bytes) if length + bytes.len() <= REST_BYTES_MAX => length += bytes.len(),
                    Ok(_) | Err(_) => return false,
                }
            }
            true
        };
        tokio::select! {
            ended = read_all => ended,
            () = clock.sleep(longest) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Env;

    fn body(pieces: usize) -> impl Stream<Item = Result<Bytes, ()>> + Unpin {
        stream::iter((0..pieces).map(|_| Ok(Bytes::from(vec![0; 64 << 10]))))
    }

    #[tokio::test]
    async fn a_short_rest_is_read_and_a_long_one_is_not() {
        let clock = Env::real().clock;
        for (pieces, waits, reusable) in [(0, false, true), (3, false, true), (3, true, false), (20, false, false)] {
            let (shared, rest) = share(body(pieces), None);
            drop(shared);
            assert_eq!(rest.discard(waits, &*clock, WAIT).await, reusable, "{pieces} {waits}");
        }
    }

    #[tokio::test]
    async fn a_client_that_was_told_to_continue_sends_everything() {
        let (mut shared, rest) = share(body(3), None);
        shared.next().await;
        drop(shared);
        assert!(rest.discard(true, &*Env::real().clock, WAIT).await);
    }

    #[tokio::test]
    async fn a_rest_that_never_comes_is_not_waited_for() {
        let (env, clock) = Env::simulated(1);
        let (_, rest) = share(stream::pending::<Result<Bytes, ()>>(), None);
        let discarded = rest.discard(false, &*env.clock, WAIT);
        futures::pin_mut!(discarded);
        assert!(futures::poll!(&mut discarded).is_pending());
        clock.advance(WAIT);
        assert!(!discarded.await);
    }

    /// A request that is passed on is still being sent when the answer comes.
    #[tokio::test]
    async fn only_one_reads_the_rest() {
        let (mut shared, rest) = share(body(3), None);
        shared.next().await;
        let discarded = rest.discard(false, &*Env::real().clock, WAIT).await;
        assert!(discarded && futures::poll!(shared.next()).is_pending());
    }

    #[tokio::test]
    async fn a_rest_that_is_announced_as_long_is_not_waited_for() {
        let (env, _) = Env::simulated(1);
        let (_, rest) = share(stream::pending::<Result<Bytes, ()>>(), Some(REST_BYTES_MAX as u64 + 1));
        assert!(!rest.discard(false, &*env.clock, WAIT).await);
    }
}
