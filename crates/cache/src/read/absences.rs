//! Keys that the under store was asked for and does not have, kept as long as pages of listings.
//!
//! Only the under store's own answer about a key counts. A kept page that does not show a key is weaker: some servers
//! list an object later than they return it. But a page that shows the key, and is newer, ends the absence.

use std::time::Duration;

use forebay_env::HashState;
use forebay_types::ObjectPath;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::scope::Scope;

/// Bytes of all absences that are kept: some fifty thousand keys.
const BYTES_MAX: u64 = 8 << 20;

/// Bytes that an absence takes beside the key.
const ENTRY_BYTES: u64 = 128;

/// When the under store was asked for a key that it does not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Absence {
    /// The key's [`WriteFence`](crate::locks::WriteFence) at that time.
    pub(super) fence: u64,
    pub(super) asked: Duration,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<ObjectPath, Absence> for ByBytes {
    fn weight(&self, path: &ObjectPath, _: &Absence) -> u64 {
        ENTRY_BYTES + (path.bucket.as_str().len() + path.key.as_str().len()) as u64
    }
}

pub(crate) struct Absences {
    kept: Cache<ObjectPath, Absence, ByBytes, HashState>,
}

impl Absences {
    pub(crate) fn new(hasher: HashState) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((BYTES_MAX / ENTRY_BYTES) as usize)
            .weight_capacity(BYTES_MAX)
            .build()
            .expect("both capacities are given");
        Self { kept: Cache::with_options(options, ByBytes, hasher, DefaultLifecycle::default()) }
    }

    pub(super) fn get(&self, path: &ObjectPath) -> Option<Absence> {
        self.kept.get(path)
    }

    pub(super) fn insert(&self, path: ObjectPath, absence: Absence) {
        self.kept.insert(path, absence);
    }

    pub(super) fn remove(&self, path: &ObjectPath) {
        self.kept.remove(path);
    }

    pub(crate) fn drop_in(&self, scope: &Scope) {
        self.kept.retain(|path, _| !scope.contains(path));
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use super::*;

    fn path(number: usize) -> ObjectPath {
        ObjectPath::parse("bucket", &format!("{}/{number}", number % 2)).expect("a path")
    }

    fn absences() -> Absences {
        let (env, _) = Env::simulated(1);
        Absences::new(HashState::new(env.random.as_ref()))
    }

    fn keep(absences: &Absences, numbers: std::ops::Range<usize>) {
        numbers.for_each(|number| absences.insert(path(number), Absence { fence: 1, asked: Duration::ZERO }));
    }

    #[test]
    fn absences_are_dropped_with_what_is_freed() {
        let absences = absences();
        keep(&absences, 0..4);
        absences.drop_in(&Scope::parse("/bucket/1/").expect("a path"));
        assert_eq!([0, 1, 2, 3].map(|number| absences.get(&path(number)).is_some()), [true, false, true, false]);
    }

    #[test]
    fn absences_are_bounded_in_bytes() {
        let absences = absences();
        keep(&absences, 0..100_000);
        assert!(absences.kept.weight() <= BYTES_MAX && absences.kept.weight() > BYTES_MAX / 2);
    }
}
