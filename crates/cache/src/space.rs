//! Pinned space: how much of the cache may hold data that the under store does not have, in total and per bucket. And
//! the memory for records of the catalog that hold no data.

pub(crate) mod evict;
pub(crate) mod sweep;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::records::{ObjectRecord, State};
use forebay_env::Requester;
use forebay_env::sync::Mutex;
use forebay_store::Store;
use forebay_types::shares::{is_fair, largest_share, room};
use forebay_types::{BucketName, ObjectPath};

/// One refused write per interval is logged, because there may be thousands per second.
const REJECTIONS_TOLD: Duration = Duration::from_secs(10);

/// Approximate overhead of an object or a part, in addition to its bytes.
const OBJECT_BYTES: u64 = 256;

/// Approximate memory of a record and of what is known with it, in addition to its key and its value.
const RECORD_BYTES: u64 = 900;

/// The memory for records of open uploads, and of deletes of keys that had no record: a quarter of what the memory tier
/// has, and at least this much.
const RECORDS_MIN: u64 = 256 << 20;

/// The records are on the disks, too: all of them take at most this part of a small store.
const RECORDS_PART: u64 = 64;

/// Even the smallest store has room for this many bytes of them.
const RECORDS_OF_SMALL_STORE: u64 = 1 << 20;

/// The limits on pinned bytes and on records, and the buckets' use of them.
pub(crate) struct Space {
    pinned_ratio: f64,
    /// Of a large store: the most bytes of `records`.
    records_max: u64,
    held: Arc<Mutex<Held>>,
    /// Bodies on their way to the under store that will not be pinned. Their room is taken when they are announced.
    passing: Arc<Mutex<Held>>,
    /// Memory of records that a client can make without sending any data.
    records: Arc<Mutex<Held>>,
    /// What the records of open uploads take of it, by upload ID.
    upload_records: Mutex<HashMap<String, Reservation>>,
    /// What tombstones take of it.
    delete_records: Mutex<HashMap<ObjectPath, Reservation>>,
    /// When the next refused write is logged.
    next_told: Mutex<Duration>,
}

#[derive(Default)]
struct Held {
    /// Bytes of writes in flight, which the store does not count yet.
    reserved: u64,
    /// The same bytes by requester. Most are only announced, and may never arrive.
    requesters: BTreeMap<Requester, u64>,
    /// Approximate bytes that are pinned or reserved. Buckets without any have no entry.
    buckets: HashMap<BucketName, u64>,
    /// The parts of open uploads, by upload ID. They count for the bucket, too.
    uploads: HashMap<String, (BucketName, u64)>,
}

/// Bytes reserved for one write. The reservation ends when it is dropped. By then the store counts the bytes, or they
/// are garbage.
pub(crate) struct Reservation {
    held: Arc<Mutex<Held>>,
    bucket: BucketName,
    requester: Requester,
    bytes: u64,
}

impl Space {
    pub(crate) fn new(pinned_ratio: f64, memory_size: u64) -> Self {
        Self {
            pinned_ratio,
            records_max: (memory_size / 4).max(RECORDS_MIN),
            held: Arc::default(),
            passing: Arc::default(),
            records: Arc::default(),
            upload_records: Mutex::default(),
            delete_records: Mutex::default(),
            next_told: Mutex::default(),
        }
    }

    /// Whether a write that is refused now is logged.
    pub(crate) fn is_rejection_told(&self, now: Duration) -> bool {
        let mut next_told = self.next_told.lock();
        let is_told = *next_told <= now;
        if is_told {
            *next_told = now + REJECTIONS_TOLD;
        }
        is_told
    }

    /// The most bytes that may be pinned.
    pub(crate) fn pinned_limit(&self, capacity_bytes: u64) -> u64 {
        (capacity_bytes as f64 * self.pinned_ratio) as u64
    }

    /// The most of `limit` bytes that one write may take. The rest is for other buckets, and for others in this bucket.
    pub(crate) fn largest(limit: u64) -> u64 {
        let of_bucket = largest_share(limit);
        if Requester::present() == Requester::NOBODY { of_bucket } else { largest_share(of_bucket) }
    }

    /// `None` if the bytes would exceed the share of pinned data, the bucket's share of that, or what one requester may
    /// have in flight.
    pub(crate) fn reserve(&self, store: &Store, bucket: &BucketName, bytes: u64) -> Option<Reservation> {
        let mut held = self.held.lock();
        // After the lock: a write that ends in between then counts as pinned, if it no longer counts as reserved.
        let usage = store.usage();
        let wanted = usage.pinned_bytes.saturating_add(held.reserved).saturating_add(bytes);
        let left = self.pinned_limit(usage.capacity_bytes).checked_sub(wanted)?;
        let requester = held.reserve(bucket, bytes, left)?;
        Some(Reservation { held: Arc::clone(&self.held), bucket: bucket.clone(), requester, bytes })
    }

    /// The same for a body that passes through to the under store: of all that is not pinned.
    pub(crate) fn reserve_passing(&self, store: &Store, bucket: &BucketName, bytes: u64) -> Option<Reservation> {
        let mut passing = self.passing.lock();
        let reserved = self.held.lock().reserved;
        let usage = store.usage();
        let wanted = [usage.pinned_bytes, reserved, passing.reserved, bytes].into_iter().fold(0, u64::saturating_add);
        let left = usage.capacity_bytes.checked_sub(wanted)?;
        let requester = passing.reserve(bucket, bytes, left)?;
        Some(Reservation { held: Arc::clone(&self.passing), bucket: bucket.clone(), requester, bytes })
    }

    fn records_limit(&self, capacity_bytes: u64) -> u64 {
        (capacity_bytes / RECORDS_PART).max(RECORDS_OF_SMALL_STORE).min(self.records_max)
    }

    /// Memory for a record that holds no data. `None` if it would exceed all that there is, the bucket's share of that,
    /// or the requester's.
    pub(crate) fn reserve_record(&self, store: &Store, bucket: &BucketName, bytes: u64) -> Option<Reservation> {
        let limit = self.records_limit(store.usage().capacity_bytes);
        let mut records = self.records.lock();
        let left = limit.checked_sub(records.reserved.saturating_add(bytes))?;
        let requester = records.reserve(bucket, bytes, left)?;
        Some(Reservation { held: Arc::clone(&self.records), bucket: bucket.clone(), requester, bytes })
    }

    /// Counts the record of an upload that is about to be committed, until [`Space::drop_upload`].
    pub(crate) fn add_upload(&self, upload_id: &str, record: Reservation) {
        self.upload_records.lock().insert(upload_id.to_owned(), record);
    }

    /// Counts the record of an open upload that was there before its slot was gained. Who began it is not known.
    pub(crate) fn restore_upload(&self, upload_id: &str, bucket: &BucketName, bytes: u64) {
        let requester = Requester::NOBODY;
        self.records.lock().charge(bucket, requester, bytes);
        let held = Arc::clone(&self.records);
        self.add_upload(upload_id, Reservation { held, bucket: bucket.clone(), requester, bytes });
    }

    /// Counts a tombstone that is about to be committed, until another record or none replaces it.
    pub(crate) fn add_delete(&self, path: &ObjectPath, record: Reservation) {
        self.delete_records.lock().insert(path.clone(), record);
    }

    /// The tombstone is gone, or was not committed. Many were never counted.
    pub(crate) fn drop_delete(&self, path: &ObjectPath) {
        self.delete_records.lock().remove(path);
    }

    /// The record of a key has changed.
    pub(crate) fn replace(&self, path: &ObjectPath, before: Option<&ObjectRecord>, after: Option<&ObjectRecord>) {
        let is_tombstone = |record: &ObjectRecord| record.state == State::Tombstone;
        if before.is_some_and(is_tombstone) && !after.is_some_and(is_tombstone) {
            self.drop_delete(path);
        }
        let mut held = self.held.lock();
        held.add(&path.bucket, after.map_or(0, pinned_bytes));
        held.take(&path.bucket, before.map_or(0, pinned_bytes));
    }

    /// Counts a part that is about to be committed. [`Space::drop_part`] reverses this when the commit fails, or when
    /// another part replaces it.
    pub(crate) fn add_part(&self, upload_id: &str, bucket: &BucketName, bytes: u64) {
        let mut held = self.held.lock();
        held.add(bucket, bytes + OBJECT_BYTES);
        held.uploads.entry(upload_id.to_owned()).or_insert((bucket.clone(), 0)).1 += bytes + OBJECT_BYTES;
    }

    /// A part that has gone with its upload is not subtracted a second time.
    pub(crate) fn drop_part(&self, upload_id: &str, bytes: u64) {
        let mut held = self.held.lock();
        let Some((bucket, of_upload)) = held.uploads.get_mut(upload_id) else { return };
        let taken = (bytes + OBJECT_BYTES).min(*of_upload);
        *of_upload -= taken;
        let (bucket, is_empty) = (bucket.clone(), *of_upload == 0);
        if is_empty {
            held.uploads.remove(upload_id);
        }
        held.take(&bucket, taken);
    }

    /// The parts of all open uploads at home here, with what each takes besides its bytes.
    pub(crate) fn parts_bytes(&self) -> u64 {
        self.held.lock().uploads.values().map(|(_, bytes)| *bytes).sum()
    }

    /// The upload has ended, and accepts no more parts.
    pub(crate) fn drop_upload(&self, upload_id: &str) {
        self.upload_records.lock().remove(upload_id);
        let mut held = self.held.lock();
        if let Some((bucket, bytes)) = held.uploads.remove(upload_id) {
            held.take(&bucket, bytes);
        }
    }
}

impl Held {
    /// `left` is what nobody has after this. `None` if that would be unfair to other buckets, or to others in this one.
    fn reserve(&mut self, bucket: &BucketName, bytes: u64, left: u64) -> Option<Requester> {
        let of_bucket = self.buckets.get(bucket).copied().unwrap_or(0).saturating_add(bytes);
        let requester = Requester::present();
        let of_requester = self.requesters.get(&requester).copied().unwrap_or(0).saturating_add(bytes);
        let is_fair_to_others = requester == Requester::NOBODY || is_fair(of_requester, room(of_bucket, left));
        if !is_fair(of_bucket, left) || !is_fair_to_others {
            return None;
        }
        self.charge(bucket, requester, bytes);
        Some(requester)
    }

    /// Counts bytes, also those that are more than fair.
    fn charge(&mut self, bucket: &BucketName, requester: Requester, bytes: u64) {
        self.reserved += bytes;
        *self.requesters.entry(requester).or_default() += bytes;
        self.add(bucket, bytes);
    }

    fn add(&mut self, bucket: &BucketName, bytes: u64) {
        match self.buckets.get_mut(bucket) {
            Some(held) => *held += bytes,
            None if bytes > 0 => drop(self.buckets.insert(bucket.clone(), bytes)),
            None => {}
        }
    }

    fn take(&mut self, bucket: &BucketName, bytes: u64) {
        let before = self.buckets.get(bucket).copied().unwrap_or(0);
        // A share that is wrong by some bytes is no reason to fail a write.
        debug_assert!(bytes <= before, "what is taken off a bucket was added before");
        let Some(held) = self.buckets.get_mut(bucket) else { return };
        *held = held.saturating_sub(bytes);
        if *held == 0 {
            self.buckets.remove(bucket);
        }
    }
}

fn pinned_bytes(record: &ObjectRecord) -> u64 {
    match record.state {
        State::Dirty | State::Transient | State::Conflict => record.size + OBJECT_BYTES,
        // A bucket could otherwise write and delete one object after the other, without end.
        State::Tombstone => OBJECT_BYTES,
    }
}

/// Approximate memory of the record of an open upload.
pub(crate) fn upload_record_bytes(key: &[u8], value: &[u8]) -> u64 {
    RECORD_BYTES + (key.len() + value.len()) as u64
}

/// Approximate memory of a tombstone.
pub(crate) fn tombstone_bytes(path: &ObjectPath) -> u64 {
    RECORD_BYTES + (path.bucket.as_str().len() + path.key.as_str().len()) as u64
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        held.reserved -= self.bytes;
        if let Some(bytes) = held.requesters.get_mut(&self.requester) {
            *bytes -= self.bytes;
            if *bytes == 0 {
                held.requesters.remove(&self.requester);
            }
        }
        held.take(&self.bucket, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_take_a_bounded_part_of_memory_and_of_small_disks() {
        const MIB: u64 = 1 << 20;
        let limit = |memory_size, capacity| Space::new(0.3, memory_size).records_limit(capacity);
        assert_eq!(limit(0, 1 << 50), 256 * MIB);
        assert_eq!(limit(16 << 30, 1 << 50), 4 << 30);
        assert_eq!(limit(16 << 30, 6400 * MIB), 100 * MIB);
        assert_eq!(limit(16 << 30, MIB), MIB);
    }
}
