//! Acknowledged objects, and parts of open uploads, whose bytes are lost: a directory was forgotten, or a file was
//! removed.

use std::collections::{BTreeSet, HashMap, HashSet};

use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicUsize, Ordering};
use forebay_types::ObjectPath;

/// Objects and parts that the start found, and that nobody has written or deleted since.
#[derive(Default)]
pub(crate) struct Missing {
    paths: Mutex<HashSet<ObjectPath>>,
    count: AtomicUsize,
    /// Numbers of parts, by upload id.
    parts: Mutex<HashMap<String, BTreeSet<u32>>>,
    parts_count: AtomicUsize,
}

impl Missing {
    /// Returns whether it was not known to be missing.
    pub(crate) fn add(&self, path: ObjectPath) -> bool {
        let mut paths = self.paths.lock();
        let is_new = paths.insert(path);
        self.count.store(paths.len(), Ordering::Relaxed);
        is_new
    }

    /// Called after each change of a record. Usually nothing is missing.
    pub(crate) fn remove(&self, path: &ObjectPath) {
        if self.count() == 0 {
            return;
        }
        let mut paths = self.paths.lock();
        paths.remove(path);
        self.count.store(paths.len(), Ordering::Relaxed);
    }

    pub(crate) fn has(&self, path: &ObjectPath) -> bool {
        self.count() > 0 && self.paths.lock().contains(path)
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn add_parts(&self, upload_id: String, numbers: BTreeSet<u32>) {
        self.change_parts(|parts| drop(parts.insert(upload_id, numbers)));
    }

    /// Returns whether it was not known to be missing.
    pub(crate) fn add_part(&self, upload_id: &str, number: u32) -> bool {
        let mut is_new = false;
        self.change_parts(|parts| is_new = parts.entry(upload_id.to_owned()).or_default().insert(number));
        is_new
    }

    pub(crate) fn has_part(&self, upload_id: &str, number: u32) -> bool {
        self.parts_count() > 0 && self.parts.lock().get(upload_id).is_some_and(|numbers| numbers.contains(&number))
    }

    /// The part was uploaded again, or another worker may have it.
    pub(crate) fn remove_part(&self, upload_id: &str, number: u32) {
        if self.parts_count() > 0 {
            self.change_parts(|parts| {
                parts.get_mut(upload_id).map(|numbers| numbers.remove(&number));
            });
        }
    }

    /// The upload has ended.
    pub(crate) fn remove_upload(&self, upload_id: &str) {
        if self.parts_count() > 0 {
            self.change_parts(|parts| drop(parts.remove(upload_id)));
        }
    }

    pub(crate) fn parts_count(&self) -> usize {
        self.parts_count.load(Ordering::Relaxed)
    }

    fn change_parts(&self, change: impl FnOnce(&mut HashMap<String, BTreeSet<u32>>)) {
        let mut parts = self.parts.lock();
        change(&mut parts);
        self.parts_count.store(parts.values().map(BTreeSet::len).sum(), Ordering::Relaxed);
    }
}
