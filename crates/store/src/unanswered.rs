//! What a disk was asked to write or sync and has not answered yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::Clock;
use forebay_env::sync::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::record::Draft;
use crate::segment::SegmentKind;
use crate::store::Inner;
use crate::stream::Streamed;
use crate::{Error, ErrorKind, Result};

/// How long a disk may take for one request until it counts as stalled: then writes go to other disks, and clients are told to come back.
/// Several times what a busy disk takes, and shorter than the 30 s and more after which clients give up by themselves.
pub const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) struct Unanswered {
    clock: Arc<dyn Clock>,
    requests: Mutex<Requests>,
}

#[derive(Default)]
struct Requests {
    /// When each was begun, and its number, which keeps equal times apart.
    begun: BTreeSet<(Duration, u64)>,
    count: u64,
}

/// A request, until the disk has answered it.
pub(crate) struct Request<'a> {
    unanswered: &'a Unanswered,
    begun: (Duration, u64),
}

impl Unanswered {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, requests: Mutex::default() }
    }

    pub(crate) fn begin(&self) -> Request<'_> {
        let now = self.clock.monotonic();
        let mut requests = self.requests.lock();
        let begun = (now, requests.count);
        requests.count += 1;
        requests.begun.insert(begun);
        Request { unanswered: self, begun }
    }

    /// Whether the oldest is older than [`PATIENCE`].
    pub(crate) fn is_stalled(&self) -> bool {
        let oldest = self.requests.lock().begun.first().map(|(begun, _)| *begun);
        oldest.is_some_and(|begun| self.clock.monotonic().saturating_sub(begun) >= PATIENCE)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.unanswered.requests.lock().begun.remove(&self.begun);
    }
}

impl Inner {
    pub(crate) fn is_stalled(&self, directory: usize) -> bool {
        self.places[directory].directory.unanswered.is_stalled()
    }

    /// Appends a record to a stream. A disk that does not answer in time still gets to the end of it, and `permit` is kept until then:
    /// what it has begun can't be taken back, it counts as unanswered, and its errors count.
    ///
    /// # Errors
    /// `Busy` when the disk does not answer: the record is garbage when it does. `Full` and `Failed`.
    pub(crate) async fn append_in_time(
        self: &Arc<Self>,
        directory: usize,
        kind: SegmentKind,
        draft: Draft,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Streamed> {
        let inner = Arc::clone(self);
        let appended = async move {
            let _permit = permit;
            inner.stream(directory, kind).append(draft).await
        };
        self.in_time(directory, async { forebay_env::spawn(appended).join().await }).await?
    }

    /// Waits until so many more bytes may be in memory for a disk.
    ///
    /// # Errors
    /// `Busy` when the disk does not answer.
    pub(crate) async fn permit_in_time(&self, directory: usize, bytes: usize) -> Result<OwnedSemaphorePermit> {
        self.in_time(directory, self.places[directory].permits.take(bytes)).await
    }

    async fn in_time<T>(&self, directory: usize, work: impl Future<Output = T>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        // A disk that is only busy is waited for: it answers, if others first.
        let mut pause = PATIENCE;
        while !self.is_stalled(directory) {
            tokio::select! { biased; done = &mut work => return Ok(done), () = self.env.clock.sleep(pause) => {} }
            pause = PATIENCE / 5;
        }
        let disk = self.places[directory].directory.disk.label();
        Err(Error::new(ErrorKind::Busy, format!("{disk} does not answer")))
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use super::*;

    #[test]
    fn a_disk_is_stalled_while_its_oldest_request_is() {
        let (env, clock) = Env::simulated(1);
        let unanswered = Unanswered::new(env.clock);
        let first = unanswered.begin();
        clock.advance(PATIENCE / 2);
        let (second, third) = (unanswered.begin(), unanswered.begin());
        assert!(!unanswered.is_stalled());
        clock.advance(PATIENCE / 2);
        assert!(unanswered.is_stalled());
        drop(first);
        assert!(!unanswered.is_stalled(), "the others are younger");
        clock.advance(PATIENCE / 2);
        drop(second);
        assert!(unanswered.is_stalled(), "of two that began together, one is left");
        drop(third);
        assert!(!unanswered.is_stalled());
    }
}
