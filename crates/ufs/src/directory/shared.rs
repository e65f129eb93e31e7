//! What the stores of one bucket share. A bucket has several: one for the requests of clients, one for the background,
//! and one for each check whether it exists.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use forebay_types::BucketName;
use parking_lot::Mutex;

use super::paths::Durable;
use super::tree::Seen;

#[derive(Default)]
pub(crate) struct Shared {
    /// Held while names change: checking a condition and putting a file into place is one step.
    pub(crate) names: Mutex<()>,
    pub(crate) durable: Durable,
    pub(crate) seen: Arc<Seen>,
    /// Called just before a file is put into place.
    #[cfg(test)]
    pub(crate) on_place: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// Called just before the file of an object is removed.
    #[cfg(test)]
    pub(crate) on_remove: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// By bucket, as long as a bucket has a store.
#[derive(Default)]
pub(crate) struct SharedByBucket(Mutex<HashMap<BucketName, Weak<Shared>>>);

impl SharedByBucket {
    /// Of a bucket that has a store.
    pub(crate) fn present(&self, bucket: &BucketName) -> Option<Arc<Shared>> {
        self.0.lock().get(bucket).and_then(Weak::upgrade)
    }

    pub(crate) fn of(&self, bucket: &BucketName) -> Arc<Shared> {
        let mut known = self.0.lock();
        if let Some(shared) = known.get(bucket).and_then(Weak::upgrade) {
            return shared;
        }
        // Clients may ask for any number of buckets that do not exist.
        known.retain(|_, shared| shared.strong_count() > 0);
        let shared = Arc::default();
        known.insert(bucket.clone(), Arc::downgrade(&shared));
        shared
    }
}
