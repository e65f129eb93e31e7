//! Versions that wait, and whose clients have set conditions. Later versions of these keys have the same base, and what
//! others have written there stays, even where nothing will tell it from an upload without a stamp.

use std::collections::BTreeSet;

use forebay_catalog::records::ObjectRecord;
use forebay_env::sync::Mutex;
use forebay_types::Generation;

/// Generations that are remembered.
const GENERATIONS_MAX: usize = 10_000;

pub(crate) struct ConditionalWrites(Mutex<Known>);

struct Known {
    /// Keys that are dirty since an earlier generation may all have one.
    from: Generation,
    generations: BTreeSet<Generation>,
}

impl ConditionalWrites {
    /// Nothing is known of what was written before `start`.
    pub(crate) fn new(start: Generation) -> Self {
        Self(Mutex::new(Known { from: start, generations: BTreeSet::new() }))
    }

    /// A client has set a condition for this version. A key may be dirty since that version later.
    pub(crate) fn note(&self, record: &ObjectRecord) {
        let mut known = self.0.lock();
        known.generations.extend([record.dirty_since, record.generation]);
        while known.generations.len() > GENERATIONS_MAX {
            let Some(first) = known.generations.pop_first() else { return };
            known.from = known.from.max(Generation(first.0 + 1));
        }
    }

    /// Whether there may be one among the versions of a key since it is dirty.
    pub(crate) fn may_have(&self, record: &ObjectRecord) -> bool {
        let known = self.0.lock();
        record.dirty_since < known.from || known.generations.contains(&record.dirty_since)
    }

    /// Other workers have written keys that were gained, all of them before this generation.
    pub(crate) fn gained(&self, before: Generation) {
        let mut known = self.0.lock();
        known.from = known.from.max(before);
        known.generations = known.generations.split_off(&before);
    }
}

#[cfg(test)]
mod tests {
    use forebay_catalog::records::{Base, Holders, State};
    use forebay_types::ETag;

    use super::*;

    fn record(dirty_since: u64, generation: u64) -> ObjectRecord {
        ObjectRecord {
            state: State::Dirty,
            generation: Generation(generation),
            dirty_since_ms: 0,
            dirty_since: Generation(dirty_since),
            size: 1,
            etag: ETag::new("e"),
            last_modified_ms: 0,
            storage_class: None,
            base: Base::Absent,
            holders: Holders::default(),
        }
    }

    #[test]
    fn what_is_not_known_may_have_a_condition() {
        let writes = ConditionalWrites::new(Generation(10));
        let may_have = |numbers: [u64; 3]| numbers.map(|number| writes.may_have(&record(number, 99_999)));
        writes.note(&record(12, 14));
        assert_eq!(may_have([9, 10, 11]), [true, false, false]);
        assert_eq!(may_have([12, 13, 14]), [true, false, true]);
        writes.gained(Generation(14));
        assert_eq!(may_have([13, 14, 15]), [true, true, false]);
        for number in 0..GENERATIONS_MAX as u64 {
            writes.note(&record(20 + number, 20 + number));
        }
        assert_eq!(may_have([14, 15, 20]), [true, false, true], "one is forgotten, and all before it");
    }
}
