//! Objects that are prepared and not published yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::sync::Mutex;
use forebay_types::Generation;

use crate::kept::Kept;
use crate::record::location::Location;
use crate::segment::Segment;
use crate::table::Entry;

type Id = (Bytes, Generation);

/// The prepared objects. Snapshots include them.
#[derive(Default)]
pub(crate) struct Prepared {
    objects: Mutex<BTreeMap<Id, Arc<Entry>>>,
    /// Found at the start, with the pins that keep reclaim away from their segments.
    found: Mutex<Vec<(Arc<Entry>, Kept)>>,
}

/// Keeps a prepared object among those that snapshots include.
pub(crate) struct PreparedEntry {
    prepared: Arc<Prepared>,
    entry: Arc<Entry>,
}

impl PreparedEntry {
    pub(crate) fn location(&self) -> Location {
        self.entry.record
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl Drop for PreparedEntry {
    fn drop(&mut self) {
        let (mut objects, id) = (self.prepared.objects.lock(), id_of(&self.entry));
        // The same may have been prepared again.
        if objects.get(&id).is_some_and(|present| Arc::ptr_eq(present, &self.entry)) {
            objects.remove(&id);
        }
    }
}

fn id_of(entry: &Entry) -> Id {
    (Bytes::copy_from_slice(entry.key()), entry.generation)
}

impl Prepared {
    /// All of them, sorted.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.objects.lock().values().cloned().collect()
    }

    pub(crate) fn add(self: &Arc<Self>, entry: Arc<Entry>) -> PreparedEntry {
        self.objects.lock().insert(id_of(&entry), Arc::clone(&entry));
        PreparedEntry { prepared: Arc::clone(self), entry }
    }

    /// Adds, at a start, what an earlier process prepared.
    pub(crate) fn found(&self, entry: Arc<Entry>, kept: Kept) {
        self.objects.lock().insert(id_of(&entry), Arc::clone(&entry));
        self.found.lock().push((entry, kept));
    }

    /// What was found at the start and not taken, with the segments where its bytes are.
    pub(crate) fn seen(&self) -> Vec<(Arc<Entry>, Vec<Arc<Segment>>)> {
        self.found.lock().iter().map(|(entry, kept)| (Arc::clone(entry), kept.segments.clone())).collect()
    }

    /// Everything that was found at the start. Returned once.
    pub(crate) fn take_found(&self) -> Vec<(Arc<Entry>, Kept)> {
        std::mem::take(&mut *self.found.lock())
    }
}
