//! Acknowledged objects whose bytes are gone: a directory was forgotten, or a file was removed.

use std::collections::HashSet;

use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicUsize, Ordering};
use forebay_types::ObjectPath;

/// Those that the start has found, and nobody has written or deleted since.
#[derive(Default)]
pub(crate) struct Missing {
    paths: Mutex<HashSet<ObjectPath>>,
    count: AtomicUsize,
}

impl Missing {
    pub(crate) fn add(&self, path: ObjectPath) {
        let mut paths = self.paths.lock();
        paths.insert(path);
        self.count.store(paths.len(), Ordering::Relaxed);
    }

    /// Called after each change of a record. Most of the time nothing is missing.
    pub(crate) fn remove(&self, path: &ObjectPath) {
        if self.count() == 0 {
            return;
        }
        let mut paths = self.paths.lock();
        paths.remove(path);
        self.count.store(paths.len(), Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
