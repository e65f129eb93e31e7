//! Writes and syncs that a disk has not answered yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::Clock;
use forebay_env::sync::Mutex;

/// A disk counts as stalled when one request takes this long. Then writes go to other disks, and where there are none,
/// clients are asked to retry. This is several times what a busy disk takes, and less than the 30 s or more after which
/// clients give up by themselves.
pub const STALLED_AFTER: Duration = Duration::from_secs(15);

pub(crate) struct Unanswered {
    clock: Arc<dyn Clock>,
    requests: Mutex<Requests>,
}

#[derive(Default)]
struct Requests {
    /// When each request began, with a number that tells requests of the same time apart.
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
        // A suspended machine has no disk that could answer.
        let now = self.clock.awake();
        let mut requests = self.requests.lock();
        let begun = (now, requests.count);
        requests.count += 1;
        requests.begun.insert(begun);
        Request { unanswered: self, begun }
    }

    /// Whether the oldest request is older than [`STALLED_AFTER`].
    pub(crate) fn is_stalled(&self) -> bool {
        let oldest = self.requests.lock().begun.first().map(|(begun, _)| *begun);
        oldest.is_some_and(|begun| self.clock.awake().saturating_sub(begun) >= STALLED_AFTER)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.unanswered.requests.lock().begun.remove(&self.begun);
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
        clock.advance(STALLED_AFTER / 2);
        let (second, third) = (unanswered.begin(), unanswered.begin());
        assert!(!unanswered.is_stalled());
        clock.advance(STALLED_AFTER / 2);
        assert!(unanswered.is_stalled());
        drop(first);
        assert!(!unanswered.is_stalled(), "the others are younger");
        clock.advance(STALLED_AFTER / 2);
        drop(second);
        assert!(unanswered.is_stalled(), "of two that began together, one is left");
        drop(third);
        assert!(!unanswered.is_stalled());
    }
}
