//! Which leases of others are over, as seen from here.

use std::collections::HashMap;
use std::time::Duration;

use forebay_env::sync::Mutex;

use crate::layout::WorkerId;

/// For how long a start asks an engine that does not answer, or waits for the end of a lease.
pub(crate) const START_MAX: Duration = Duration::from_secs(60);

/// One transaction of a process that has ended may land late. A process that writes more often is alive.
const LATE_MAX: u32 = 1;

/// Of a lease: the longest time between two looks that counts as silence in between. The engine may have been away, and
/// then nobody could renew a lease. Workers that come back from that a moment later must not be taken for dead.
const UNSEEN_MAX: u32 = 4;

/// At least this counts, for leases of a few seconds and machines that are busy.
const UNSEEN_MIN: Duration = Duration::from_secs(1);

/// What is seen of a worker that may have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It renews its lease.
    Lives,
    /// Nobody knows.
    None,
    /// Its lease is over.
    Over,
}

/// Remembers for how long the record of each worker has been seen not to change. A worker that lives renews its lease
/// by a change: see `lease.rs`.
pub(crate) struct FailureDetector {
    lease: Duration,
    seen: HashMap<WorkerId, Seen>,
}

struct Seen {
    version: u64,
    /// When somebody looked last.
    looked: Duration,
    /// For how long it has not changed, at least.
    silent: Duration,
    changes: u32,
}

/// [`FailureDetector`], shared by all who look.
pub(crate) struct SharedDetector(Mutex<FailureDetector>);

impl SharedDetector {
    pub(crate) fn new(lease: Duration) -> Self {
        Self(Mutex::new(FailureDetector::new(lease)))
    }

    /// See [`FailureDetector::sign`].
    pub(crate) fn sign(&self, worker: &WorkerId, version: u64, written_for: Duration, now: Duration) -> Sign {
        self.0.lock().sign(worker, version, written_for, now)
    }
}

impl FailureDetector {
    pub(crate) fn new(lease: Duration) -> Self {
        Self { lease, seen: HashMap::new() }
    }

    /// Its record has this version. `now` is a time after it was read. The worker that looks has been able to write for
    /// `written_for`: an engine that is full answers reads, and then nobody can renew a lease.
    pub(crate) fn sign(&mut self, worker: &WorkerId, version: u64, written_for: Duration, now: Duration) -> Sign {
        let first = || Seen { version, looked: now, silent: Duration::ZERO, changes: 0 };
        let seen = self.seen.entry(worker.clone()).or_insert_with(first);
        match seen.version == version {
            true => {
                let unseen = now.saturating_sub(seen.looked);
                seen.silent += unseen.min((self.lease / UNSEEN_MAX).max(UNSEEN_MIN));
                seen.looked = seen.looked.max(now);
            }
            false => *seen = Seen { version, looked: now, silent: Duration::ZERO, changes: seen.changes + 1 },
        }
        match seen.silent >= self.lease {
            true if written_for >= self.lease => Sign::Over,
            true => Sign::None,
            false if seen.changes > LATE_MAX => Sign::Lives,
            false => Sign::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_begins_a_lease_and_many_are_a_sign_of_life() {
        let (worker, other) = (WorkerId::new("w1").unwrap(), WorkerId::new("w2").unwrap());
        let mut detector = FailureDetector::new(Duration::from_secs(10));
        let mut sign =
            |worker, version, seconds| detector.sign(worker, version, Duration::MAX, Duration::from_secs(seconds));
        for second in 100..110 {
            assert_eq!(sign(&worker, 1, second), Sign::None);
        }
        assert_eq!(sign(&other, 1, 109), Sign::None);
        assert_eq!(sign(&worker, 1, 110), Sign::Over);
        for second in 111..121 {
            assert_eq!(sign(&worker, 2, second), Sign::None);
        }
        assert_eq!(sign(&worker, 2, 121), Sign::Over);
        assert_eq!(sign(&worker, 3, 122), Sign::Lives);
        for second in 123..132 {
            assert_eq!(sign(&worker, 3, second), Sign::Lives);
        }
        assert_eq!(sign(&worker, 3, 132), Sign::Over);
    }

    /// The engine was away for long: nobody could see a sign of life.
    #[test]
    fn what_nobody_saw_is_no_silence() {
        let worker = WorkerId::new("w1").unwrap();
        let mut detector = FailureDetector::new(Duration::from_secs(10));
        let mut sign = |version, seconds| detector.sign(&worker, version, Duration::MAX, Duration::from_secs(seconds));
        assert_eq!(sign(1, 100), Sign::None);
        assert_eq!(sign(1, 101), Sign::None);
        for second in 200..207 {
            assert_eq!(sign(1, second), Sign::None, "{second}");
        }
        assert_eq!(sign(1, 207), Sign::Over);
    }

    #[test]
    fn who_cannot_write_takes_nobody_for_dead() {
        let worker = WorkerId::new("w1").unwrap();
        let mut detector = FailureDetector::new(Duration::from_secs(10));
        let mut sign = |written_for, seconds| {
            detector.sign(&worker, 1, Duration::from_secs(written_for), Duration::from_secs(seconds))
        };
        for second in 100..130 {
            assert_eq!(sign(0, second), Sign::None, "{second}");
        }
        assert_eq!(sign(9, 139), Sign::None);
        assert_eq!(sign(10, 140), Sign::Over);
    }
}
