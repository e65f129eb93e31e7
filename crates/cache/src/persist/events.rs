//! The outcomes of the last attempts to persist, for operators. In memory only: no decision depends on them.

use std::collections::VecDeque;

use forebay_env::sync::Mutex;
use forebay_types::ObjectPath;

use crate::PersistEvent;

/// Attempts that are remembered for all objects. With keys and errors of usual length they take about 3 MiB.
const EVENTS_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct PersistEvents {
    /// The oldest first.
    ring: Mutex<VecDeque<(ObjectPath, PersistEvent)>>,
}

impl PersistEvents {
    pub(crate) fn add(&self, path: &ObjectPath, event: PersistEvent) {
        let mut ring = self.ring.lock();
        if ring.len() == EVENTS_MAX {
            ring.pop_front();
        }
        ring.push_back((path.clone(), event));
    }

    /// The attempts of one object, the newest first.
    pub(crate) fn of(&self, path: &ObjectPath) -> Vec<PersistEvent> {
        let ring = self.ring.lock();
        ring.iter().rev().filter(|(other, _)| other == path).map(|(_, event)| event.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_come_first() {
        let events = PersistEvents::default();
        let path = |n: u64| ObjectPath::parse("bucket", if n.is_multiple_of(2) { "even" } else { "odd" }).unwrap();
        for n in 0..EVENTS_MAX as u64 + 10 {
            let (outcome, error) = ("stored".to_owned(), None);
            let event = PersistEvent { time_ms: n, outcome, generation: n, bytes: 0, duration_ms: 0, error };
            events.add(&path(n), event);
        }
        let times: Vec<_> = events.of(&path(1)).iter().map(|event| event.time_ms).collect();
        assert_eq!((times.len(), times[0], times.last()), (EVENTS_MAX / 2, EVENTS_MAX as u64 + 9, Some(&11)));
    }
}
