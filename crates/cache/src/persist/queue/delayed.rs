//! The objects that wait for the time of their next attempt.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use forebay_types::{BucketName, ObjectPath};

use super::blame::Blame;

/// Sorted by time.
type Attempts = BTreeSet<(Duration, ObjectPath)>;

#[derive(Default)]
pub(super) struct Delayed {
    all: Attempts,
    /// Those that wait only because the under store was out of reach, by bucket. A success releases them, and does not
    /// walk all the others for that.
    out_of_reach: HashMap<BucketName, Attempts>,
}

impl Delayed {
    pub(super) fn insert(&mut self, at: Duration, path: ObjectPath, blame: Blame) {
        if blame == Blame::UnderStore {
            self.out_of_reach.entry(path.bucket.clone()).or_default().insert((at, path.clone()));
        }
        self.all.insert((at, path));
    }

    pub(super) fn remove(&mut self, at: Duration, path: &ObjectPath) {
        let attempt = (at, path.clone());
        self.all.remove(&attempt);
        let Some(attempts) = self.out_of_reach.get_mut(&path.bucket) else { return };
        attempts.remove(&attempt);
        if attempts.is_empty() {
            self.out_of_reach.remove(&path.bucket);
        }
    }

    /// Takes an object whose time has come.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<ObjectPath> {
        let (at, path) = self.all.first().filter(|(at, _)| *at <= now)?.clone();
        self.remove(at, &path);
        Some(path)
    }

    /// Takes the objects of a bucket that wait only because the under store was out of reach.
    pub(super) fn take_out_of_reach(&mut self, bucket: &BucketName) -> Vec<ObjectPath> {
        let attempts = self.out_of_reach.remove(bucket).unwrap_or_default();
        for attempt in &attempts {
            self.all.remove(attempt);
        }
        attempts.into_iter().map(|(_, path)| path).collect()
    }

    /// Takes all these objects. Looks at each one that waits.
    pub(super) fn take_all(&mut self, wanted: impl Fn(&ObjectPath) -> bool) -> Vec<ObjectPath> {
        let taken: Vec<_> = self.all.iter().filter(|(_, path)| wanted(path)).cloned().collect();
        taken.iter().for_each(|(at, path)| self.remove(*at, path));
        taken.into_iter().map(|(_, path)| path).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(Duration, ObjectPath)> {
        self.all.iter()
    }

    /// The time of the next attempt.
    pub(super) fn next_at(&self) -> Option<Duration> {
        self.all.first().map(|(at, _)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}
