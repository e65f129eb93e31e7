//! Counts of what the under store does not have yet, kept in step with the catalog.

use forebay_catalog::records::{ObjectRecord, State};
use forebay_env::sync::Mutex;

use crate::metrics::Metrics;

/// Objects and bytes by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) dirty_objects: u64,
    pub(crate) dirty_bytes: u64,
    pub(crate) tombstones: u64,
    pub(crate) transient_objects: u64,
    pub(crate) conflicts: u64,
    /// Of transient objects and conflicts, which do not go to the under store.
    pub(crate) kept_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Backlog {
    counts: Mutex<Counts>,
}

impl Counts {
    fn change(&mut self, record: &ObjectRecord, by: i64) {
        let add = |count: &mut u64, by: i64| {
            *count = count.checked_add_signed(by).expect("what is taken off the backlog was added before");
        };
        match record.state {
            State::Dirty => {
                add(&mut self.dirty_objects, by);
                add(&mut self.dirty_bytes, by * record.size as i64);
            }
            State::Tombstone => add(&mut self.tombstones, by),
            State::Transient => add(&mut self.transient_objects, by),
            State::Conflict => add(&mut self.conflicts, by),
        }
        if matches!(record.state, State::Transient | State::Conflict) {
            add(&mut self.kept_bytes, by * record.size as i64);
        }
    }
}

impl Backlog {
    /// Called after each commit that changes the record of a key, while its lock is held.
    pub(crate) fn replace(&self, before: Option<&ObjectRecord>, after: Option<&ObjectRecord>, metrics: &Metrics) {
        let mut counts = self.counts.lock();
        if let Some(record) = before {
            counts.change(record, -1);
        }
        if let Some(record) = after {
            counts.change(record, 1);
        }
        metrics.dirty_objects.set(counts.dirty_objects as i64);
        metrics.dirty_bytes.set(counts.dirty_bytes as i64);
        metrics.tombstones.set(counts.tombstones as i64);
        metrics.transient_objects.set(counts.transient_objects as i64);
        metrics.conflicts.set(counts.conflicts as i64);
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock()
    }
}
