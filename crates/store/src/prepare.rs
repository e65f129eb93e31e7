//! Prepared objects are durable, but nobody sees them before a commit publishes them, in this process or a later one.
//! They are for a catalog that is kept elsewhere: it names an object only when the bytes are safe here.

use std::sync::Arc;

use bytes::Bytes;

use crate::commit::body_of;
use crate::inner::Inner;
use crate::kept::Kept;
use crate::log::Until;
use crate::record::object::ObjectBody;
use crate::segment::ReadSegment;
use crate::table::Entry;
use crate::writer::Staged;
use crate::{Commit, Error, ErrorKind, Object, Result, Store};

impl Inner {
    /// Registers, at a start, what earlier processes prepared. An object that has lost bytes was never acknowledged,
    /// and is left out.
    pub(crate) fn find_prepared(&self, entries: Vec<Entry>) {
        for entry in entries {
            let (entry, mut kept) = (Arc::new(entry), Kept::default());
            let is_kept = entry.uses().all(|(key, _)| {
                let segment = self.segment(key);
                let pin = segment.as_ref().and_then(|segment| segment.pin());
                let is_there = pin.is_some();
                segment.zip(pin).into_iter().for_each(|(segment, pin)| kept.keep(segment, pin));
                is_there
            });
            if is_kept && entry.cached_bytes() == entry.size() {
                self.prepared.found(entry, kept);
            }
        }
    }
}

impl Store {
    /// Puts a staged object on stable storage without showing it. A commit publishes it later. If it is dropped before
    /// that, it becomes garbage; after a crash, [`Store::take_prepared`] returns it. An evictable object under the same
    /// key is dropped for good: whatever happens to the commit, no start shows that object again. Nor does it show an
    /// older object, if a power cut has taken away what replaced that one. So prepared objects are only for catalogs
    /// that are kept elsewhere: in the values of this store, an older value may be back without its object.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub async fn prepare(&self, mut staged: Staged) -> Result<Staged> {
        self.inner.check_open()?;
        if staged.prepared.is_some() {
            return Ok(staged);
        }
        self.inner.sync_extents(std::slice::from_ref(&staged)).await?;
        let volume = &self.inner.volumes[staged.directory];
        // Also when there is no object: an evicted one may still be in a segment.
        let is_pinned = self.inner.object(&staged.key).is_some_and(|object| object.is_pinned());
        let forget = if is_pinned { Vec::new() } else { vec![staged.key.clone()] };
        let before = Commit { forget, ..Commit::default() };
        let _uncarried = self.inner.uncarried(&before).await;
        let body = body_of(&before);
        let drafts = vec![staged.body.draft(staged.payload.clone()), body.draft()];
        let appended = volume.log.append(drafts, Until::Synced).await?;
        let location = appended.locations[0];
        let segment = volume.directory.segment(location.segment.number);
        // Reclaim keeps a log while its records are not applied.
        let Some((segment, pin)) = segment.and_then(|segment| segment.pin().map(|pin| (segment, pin))) else {
            let problem = "the log of a prepared object was reclaimed meanwhile: try again";
            return Err(Error::new(ErrorKind::Busy, problem));
        };
        staged.kept.keep(segment, pin);
        staged.prepared = Some(self.inner.prepared.add(Arc::new(staged.entry(location))));
        staged.payload = Bytes::new();
        let version = *appended.sequences.last().expect("there are two records");
        self.inner.apply(before, &[], version, location.segment);
        self.inner.count_changes(location.segment, body.change_bytes());
        drop(appended.applying);
        self.inner.note_log();
        Ok(staged)
    }

    /// What earlier processes prepared and did not publish. Returned once: the code that opens the catalog publishes
    /// what the catalog names, and drops the rest.
    pub fn take_prepared(&self) -> Vec<Staged> {
        let found = self.inner.prepared.take_found();
        found.into_iter().filter_map(|(entry, kept)| self.staged_again(entry, kept)).collect()
    }

    /// What [`Store::take_prepared`] would return, to be read. It stays what it is.
    pub fn prepared(&self) -> Vec<Object> {
        let object = |(entry, segments): (_, Vec<_>)| {
            let segments = segments.into_iter().map(ReadSegment::new).collect();
            Object::new(Arc::clone(&self.inner), entry, segments, None)
        };
        self.inner.prepared.seen().into_iter().map(object).collect()
    }

    fn staged_again(&self, entry: Arc<Entry>, kept: Kept) -> Option<Staged> {
        let directory = *self.inner.by_number.get(&entry.record.segment.directory)?;
        let body = ObjectBody {
            key: entry.key().to_vec(),
            generation: entry.generation,
            metadata: Vec::new(),
            annex: entry.annex().to_vec(),
            pinned: entry.pinned,
            group: entry.group,
            size: entry.size(),
            extents: entry.extents().to_vec(),
            stands_alone: false,
            carried: false,
        };
        let (key, is_inline) = (Bytes::copy_from_slice(entry.key()), entry.is_inline());
        let (inner, payload) = (Arc::clone(&self.inner), Bytes::new());
        let prepared = Some(self.inner.prepared.add(entry));
        Some(Staged { body, key, payload, is_inline, directory, kept, prepared, inner })
    }
}
