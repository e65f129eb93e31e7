//! Which revision of etcd is how old.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

/// How old a state must be: nobody scans for that long, and no watch is that late.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// Revisions of etcd, and when they were seen: the oldest first.
#[derive(Default)]
pub(crate) struct History {
    seen: Mutex<VecDeque<(Duration, u64)>>,
}

impl History {
    /// Notes the present revision. Returns the newest one that is old enough to be forgotten, once.
    pub(crate) fn note(&self, now: Duration, revision: u64) -> Option<u64> {
        let mut seen = self.seen.lock();
        seen.push_back((now, revision));
        let mut old = None;
        while let Some((_, revision)) = seen.pop_front_if(|(since, _)| *since + KEPT <= now) {
            old = Some(revision);
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_forgotten_when_it_is_old_enough() {
        let history = History::default();
        let note = |minute: u64, revision| history.note(Duration::from_secs(60 * minute), revision);
        assert_eq!([note(0, 10), note(1, 20), note(4, 30)], [None; 3]);
        assert_eq!([note(5, 40), note(6, 50), note(7, 60)], [Some(10), Some(20), None]);
        assert_eq!(note(60, 70), Some(60));
    }
}
