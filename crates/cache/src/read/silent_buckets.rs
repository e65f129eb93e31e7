//! Reads of stale copies while the under store accepts requests and does not answer: no reader waits for it long.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use forebay_env::sync::Mutex;
use forebay_types::{BucketName, ObjectPath};

/// How long a read waits for the validation of its copy.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Validations of a bucket that run at once without a reader that waits.
const VALIDATIONS_MAX: usize = 64;

/// Buckets whose under stores are silent: a reader has waited in vain, its validation or a later one is still in
/// flight, and there was no answer since.
#[derive(Default)]
pub(crate) struct SilentBuckets {
    /// Those with validations that a reader waits for, or none any more.
    buckets: Mutex<HashMap<BucketName, Bucket>>,
}

#[derive(Default)]
struct Bucket {
    is_silent: bool,
    /// Counted while somebody waits.
    answers: u64,
    readers: usize,
    /// Keys that are validated without a reader that waits.
    alone: HashSet<ObjectPath>,
}

/// A reader that waits for an answer.
pub(super) struct Waiting<'a> {
    buckets: &'a SilentBuckets,
    path: &'a ObjectPath,
    answers: u64,
}

/// What to do with a validation whose reader does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Validation {
    /// It has to run: [`SilentBuckets::ended`] follows.
    Runs,
    /// The key is being validated already, or too many others are.
    IsLeftOut,
    /// There is no room for it, and the under store answers others.
    IsWaitedFor,
}

impl SilentBuckets {
    /// A reader waits for an answer, unless the bucket is silent.
    pub(super) fn wait<'a>(&'a self, path: &'a ObjectPath) -> Option<Waiting<'a>> {
        let mut buckets = self.buckets.lock();
        let bucket = buckets.entry(path.bucket.clone()).or_default();
        if bucket.is_silent {
            return None;
        }
        bucket.readers += 1;
        Some(Waiting { buckets: self, path, answers: bucket.answers })
    }

    /// The under store has answered a request for an object of this bucket.
    pub(super) fn heard(&self, bucket: &BucketName) {
        if let Some(bucket) = self.buckets.lock().get_mut(bucket) {
            bucket.is_silent = false;
            bucket.answers += 1;
        }
    }

    /// A reader does not wait for the validation of this key.
    pub(super) fn leave(&self, path: &ObjectPath) -> Validation {
        let mut buckets = self.buckets.lock();
        let bucket = buckets.entry(path.bucket.clone()).or_default();
        if bucket.alone.contains(path) {
            Validation::IsLeftOut
        } else if bucket.alone.len() < VALIDATIONS_MAX {
            bucket.alone.insert(path.clone());
            Validation::Runs
        } else if bucket.is_silent {
            Validation::IsLeftOut
        } else {
            Validation::IsWaitedFor
        }
    }

    /// The next reader waits again when nothing is left that could be answered.
    pub(super) fn ended(&self, path: &ObjectPath) {
        self.change(path, |bucket| {
            bucket.alone.remove(path);
            bucket.is_silent &= !bucket.alone.is_empty();
        });
    }

    fn change(&self, path: &ObjectPath, change: impl FnOnce(&mut Bucket)) {
        let mut buckets = self.buckets.lock();
        let Some(bucket) = buckets.get_mut(&path.bucket) else { return };
        change(bucket);
        if bucket.readers == 0 && bucket.alone.is_empty() {
            buckets.remove(&path.bucket);
        }
    }
}

impl Waiting<'_> {
    /// It has waited long enough. Unless others were answered meanwhile, the bucket is silent.
    pub(super) fn gives_up(&self) {
        if let Some(bucket) = self.buckets.buckets.lock().get_mut(&self.path.bucket) {
            bucket.is_silent |= bucket.answers == self.answers;
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.buckets.change(self.path, |bucket| bucket.readers -= 1);
    }
}
