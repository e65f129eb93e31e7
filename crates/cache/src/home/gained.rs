//! Gaining keys: builds the home's state of the keys from their records in the catalog.

use forebay_catalog::SlotSet;
use forebay_catalog::records::{self, Base, ObjectRecord, State};
use forebay_types::{Generation, ObjectPath};

use crate::Result;
use crate::persist::Entry;
use crate::space::tombstone_bytes;
use crate::worker::Worker;
use crate::write::change::Intent;

/// Which keys are gained.
#[derive(Clone, Copy)]
enum Gain<'a> {
    /// All keys, at a start. An earlier process may have sent requests for them.
    All,
    /// The keys of some slots, while the worker runs. Another worker may have sent requests for them until now.
    Slots(&'a SlotSet),
}

impl Gain<'_> {
    fn has(self, path: &ObjectPath) -> bool {
        match self {
            Self::All => true,
            Self::Slots(slots) => slots.has_path(path),
        }
    }
}

impl Worker {
    /// Builds the home's state of the keys that are here. Called at a start, before the first request.
    ///
    /// # Errors
    /// Whatever the catalog answers.
    pub(crate) async fn gain_all(&self) -> Result<()> {
        self.read_records(Gain::All, |path, record| {
            self.take_up(Gain::All, &path, &record);
            self.put_back(path, &record);
        })
        .await?;
        self.read_requests(Gain::All, |path, start| self.home.settle.mark_earlier_request(path, start)).await?;
        if self.home.stale_records.is_new() {
            self.home.settle.mark_all_earlier();
        }
        // This worker may have the only bytes of keys that are at home elsewhere.
        let slots = self.catalog.slots();
        self.sweep_orphans(|hash| slots.as_ref().is_none_or(|slots| slots.has_hash(hash))).await
    }

    /// The same for more slots, while the worker runs. The catalog already shows these slots.
    ///
    /// # Errors
    /// Those of the catalog. The keys then accept no writes, and a retry is safe.
    pub(crate) async fn gain(&self, slots: &SlotSet) -> Result<()> {
        let gain = Gain::Slots(slots);
        self.begin_warm_up(slots);
        // Their copies are counted when all is here.
        self.home.sent.changed();
        self.follow_shared().await?;
        // Requests that asked the under store earlier must not cache the answer.
        self.home.fence.advance_all();
        self.forget_listings();
        self.home.write_times.reload().await?;
        self.generations.renew().await?;
        self.forget_settled().await?;
        self.show_copies(slots).await?;
        self.forget_parts(slots).await?;
        self.sweep_orphans(|hash| slots.has_hash(hash)).await?;
        self.home.conditional_writes.gained(self.next_generation());
        let (mut records, mut requests) = (Vec::new(), Vec::new());
        self.read_records(gain, |path, record| records.push((path, record))).await?;
        self.read_requests(gain, |path, _| requests.push(path)).await?;
        // Nothing fails from here on.
        requests.iter().for_each(|path| self.home.settle.mark(path));
        records.iter().for_each(|(path, record)| self.take_up(gain, path, record));
        for locks in self.home.all_locks() {
            locks.open(slots);
        }
        // Only now: a task that finds the lock of a key closed takes the key for one of another home, and drops it.
        records.into_iter().for_each(|(path, record)| self.put_back(path, &record));
        self.home.sent.recount();
        self.jobs.gain(slots);
        Ok(())
    }

    async fn read_records(&self, gain: Gain<'_>, mut each: impl FnMut(ObjectPath, ObjectRecord)) -> Result<()> {
        let mut range = records::all_objects_range();
        while let Some(found) = self.next_records(&mut range).await? {
            for (key, versioned) in &found {
                if let Some(path) = records::parse_object_key(key).filter(|path| gain.has(path)) {
                    each(path, ObjectRecord::decode(&versioned.value)?);
                }
            }
        }
        Ok(())
    }

    /// Clients' requests that were in flight, or without an answer, when the last home ended: the paths, and the start
    /// of that home.
    async fn read_requests(&self, gain: Gain<'_>, mut each: impl FnMut(ObjectPath, Option<Generation>)) -> Result<()> {
        let mut range = records::all_requests_range();
        while let Some(found) = self.next_records(&mut range).await? {
            for (key, versioned) in &found {
                if let Some(path) = records::parse_request_key(key).filter(|path| gain.has(path)) {
                    each(path, Intent::decode(&versioned.value).start);
                }
            }
        }
        Ok(())
    }

    /// Counts a change that the under store does not have. A request that was in flight when the last home ended may
    /// still land, so nothing follows it until it no longer can.
    fn take_up(&self, gain: Gain<'_>, path: &ObjectPath, record: &ObjectRecord) {
        self.home.backlog.replace(None, Some(record), &self.metrics);
        self.space.replace(path, None, Some(record));
        self.count_tombstone(path, record);
        self.home.write_times.seen(record.last_modified_ms);
        self.look_for_bytes(path, record);
        // Transient and conflicting records, too: they may have replaced a dirty one.
        match gain {
            Gain::All => self.home.settle.mark_earlier(path, Some(record.dirty_since)),
            Gain::Slots(_) => self.home.settle.mark(path),
        }
    }

    /// A tombstone that replaced no version that waited may be of a key that never existed, and then it counted at the
    /// home before. Where there is no room, it does not count: it may be of an object that was known there.
    fn count_tombstone(&self, path: &ObjectPath, record: &ObjectRecord) {
        let is_first = record.dirty_since == record.generation && !matches!(record.base, Base::Present(_));
        if record.state != State::Tombstone || !is_first {
            return;
        }
        if let Some(room) = self.space.reserve_record(&self.store, &path.bucket, tombstone_bytes(path)) {
            self.space.add_delete(path, room);
        }
    }

    /// Puts such a change back into the queue.
    fn put_back(&self, path: ObjectPath, record: &ObjectRecord) {
        if matches!(record.state, State::Dirty | State::Tombstone) {
            self.home.queue.push(path, Entry::of(record));
        }
    }

    /// Looks for the bytes of an acknowledged object. If another worker may have them, this one fetches them. If nobody
    /// has them, reads fail until the object is written again.
    fn look_for_bytes(&self, path: &ObjectPath, record: &ObjectRecord) {
        if record.state == State::Tombstone {
            return;
        }
        let object = self.store.peek(&Self::store_key(path)).filter(|object| object.generation() == record.generation);
        if object.is_some_and(|object| object.is_whole()) {
            return;
        }
        if self.may_be_elsewhere(&record.holders) {
            return self.home.copies.add(Self::store_key(path), path);
        }
        tracing::error!(%path, generation = record.generation.0, size = record.size, "the bytes of an acknowledged object are missing");
        self.home.missing.add(path.clone());
    }
}
