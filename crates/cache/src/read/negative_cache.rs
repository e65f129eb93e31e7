//! Keys that the under store was asked for and does not have, kept as long as pages of listings.
//!
//! Only the under store's own answer about a key counts. A page of a listing that does not show a key is weaker: some
//! servers list an object later than they return it. But a listing may show what was absent before, so absences below
//! its prefix are dropped when the under store is asked for it.
//!
//! A write that follows an absence is in conflict with what others write. For that, our own delete counts, too, but not
//! the answer to a HEAD.

use std::time::Duration;

use std::hash::BuildHasher;

use forebay_env::HashState;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_types::ObjectPath;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::scope::Scope;

/// Bytes of all absences that are kept: some fifty thousand keys.
const BYTES_MAX: u64 = 8 << 20;

/// Bytes that an absence takes beside the key.
const ENTRY_BYTES: u64 = 128;

/// Counters of answers that show a key. Two keys with one counter only cost an unnecessary question.
const SEEN_COUNTERS: usize = 4096;

/// What held when the under store was asked for a key that it does not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Absence {
    /// The key's [`WriteFence`](crate::locks::WriteFence).
    pub(super) fence: u64,
    pub(super) asked: Duration,
    before: Before,
    /// Our own delete made the key absent. It counts for writes only: reads ask the under store.
    pub(super) is_deleted: bool,
    /// It counts for writes, too. A 404 to a HEAD has no body, and may be that of a proxy.
    pub(super) is_proven: bool,
}

impl Absence {
    /// After a delete, before which this was asked. `fence` is that after the delete was recorded.
    pub(super) fn of_delete(self, fence: u64) -> Self {
        Self { fence, is_deleted: true, is_proven: true, ..self }
    }

    /// For a request for bytes: its 404 names what does not exist.
    pub(super) fn of_get(self) -> Self {
        Self { is_proven: true, ..self }
    }
}

/// What is compared with the same at a later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Before {
    /// How often the under store has shown the key, or one with the same counter.
    seen: u64,
    /// How often absences were dropped.
    drops: u64,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<ObjectPath, Absence> for ByBytes {
    fn weight(&self, path: &ObjectPath, _: &Absence) -> u64 {
        ENTRY_BYTES + (path.bucket.as_str().len() + path.key.as_str().len()) as u64
    }
}

pub(crate) struct NegativeCache {
    kept: Cache<ObjectPath, Absence, ByBytes, HashState>,
    hasher: HashState,
    seen: Vec<AtomicU64>,
    drops: AtomicU64,
}

impl NegativeCache {
    pub(crate) fn new(hasher: HashState) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((BYTES_MAX / ENTRY_BYTES) as usize)
            .weight_capacity(BYTES_MAX)
            .build()
            .expect("both capacities are given");
        Self {
            kept: Cache::with_options(options, ByBytes, hasher.clone(), DefaultLifecycle::default()),
            hasher,
            seen: (0..SEEN_COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            drops: AtomicU64::new(0),
        }
    }

    fn seen_of(&self, path: &ObjectPath) -> &AtomicU64 {
        &self.seen[self.hasher.hash_one(path) as usize % SEEN_COUNTERS]
    }

    fn before(&self, path: &ObjectPath) -> Before {
        let seen = self.seen_of(path).load(Ordering::SeqCst);
        Before { seen, drops: self.drops.load(Ordering::SeqCst) }
    }

    /// What to keep if the under store does not have the key. To be called before it is asked.
    pub(super) fn question(&self, path: &ObjectPath, fence: u64, asked: Duration) -> Absence {
        Absence { fence, asked, before: self.before(path), is_deleted: false, is_proven: false }
    }

    /// The under store does not have the key. The answer may come late: after a newer one, or after a drop.
    pub(super) fn keep(&self, path: &ObjectPath, absence: Absence) {
        self.kept.insert(path.clone(), absence);
        if self.before(path) != absence.before {
            self.kept.remove(path);
        }
    }

    /// The under store has the key.
    pub(crate) fn end(&self, path: &ObjectPath) {
        self.seen_of(path).fetch_add(1, Ordering::SeqCst);
        if !self.kept.is_empty() {
            self.kept.remove(path);
        }
    }

    pub(super) fn find(&self, path: &ObjectPath) -> Option<Absence> {
        self.kept.get(path)
    }

    pub(crate) fn drop_in(&self, scope: &Scope) {
        // First: see `keep`.
        self.drops.fetch_add(1, Ordering::SeqCst);
        if !self.kept.is_empty() {
            self.kept.retain(|path, _| !scope.contains(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use super::*;

    fn path(number: usize) -> ObjectPath {
        ObjectPath::parse("bucket", &format!("{}/{number}", number % 2)).expect("a path")
    }

    fn absences() -> NegativeCache {
        let (env, _) = Env::simulated(1);
        NegativeCache::new(HashState::new(env.random.as_ref()))
    }

    fn keep(absences: &NegativeCache, numbers: std::ops::Range<usize>) {
        for path in numbers.map(path) {
            absences.keep(&path, absences.question(&path, 1, Duration::ZERO));
        }
    }

    #[test]
    fn absences_are_dropped_with_what_is_freed() {
        let absences = absences();
        keep(&absences, 0..4);
        absences.drop_in(&Scope::parse("/bucket/1/").expect("a path"));
        assert_eq!([0, 1, 2, 3].map(|number| absences.find(&path(number)).is_some()), [true, false, true, false]);
    }

    #[test]
    fn an_answer_that_comes_after_a_newer_one_or_after_a_drop_is_not_kept() {
        let absences = absences();
        let question = || absences.question(&path(1), 1, Duration::ZERO);
        let late = [question(), question()];
        absences.end(&path(1));
        absences.keep(&path(1), late[0]);
        assert!(absences.find(&path(1)).is_none());
        let question = question();
        absences.drop_in(&Scope::parse("/bucket/").expect("a path"));
        absences.keep(&path(1), question);
        assert!(absences.find(&path(1)).is_none());
        keep(&absences, 1..2);
        assert!(absences.find(&path(1)).is_some());
    }

    #[test]
    fn absences_are_bounded_in_bytes() {
        let absences = absences();
        keep(&absences, 0..100_000);
        assert!(absences.kept.weight() <= BYTES_MAX && absences.kept.weight() > BYTES_MAX / 2);
    }
}
