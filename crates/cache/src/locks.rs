//! Per-key locks for writers, and the fence that prevents late readers from undoing a write.
//!
//! A key changes only under its lock, and there is no lock for a key that is not at home here. A slot is therefore
//! given up when its locks are closed and the last held one is released.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use forebay_catalog::SlotSet;
use forebay_env::HashState;
use forebay_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use forebay_env::sync::{Mutex, RwLock};
use forebay_types::{BucketName, ObjectPath};
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};

use crate::warm_up::touched::{Heard, Touched};
use crate::{Error, Result};

/// Shards of the table of locks; more than the number of cores is enough.
const SHARDS: usize = 64;

/// Slots of the fence. Two keys in one slot only cost an unnecessary second lookup.
const FENCE_SLOTS: usize = 16_384;

type Lock = Arc<AsyncMutex<()>>;

/// One asynchronous lock for each key that is locked or waited for.
pub(crate) struct KeyLocks {
    shards: Vec<Mutex<HashMap<ObjectPath, Lock>>>,
    hasher: HashState,
    /// Maps a key to its slot.
    slot_hash: fn(&ObjectPath) -> u64,
    /// Slots whose keys are not at home here. `None` if all are.
    closed: RwLock<Option<SlotSet>>,
    has_closed: AtomicBool,
    /// Notified when a lock is released, while some slots are closed.
    released: Notify,
}

/// Holds the lock of a key.
pub(crate) struct KeyGuard {
    locks: Arc<KeyLocks>,
    path: ObjectPath,
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyLocks {
    pub(crate) fn new(hasher: HashState, slot_hash: fn(&ObjectPath) -> u64) -> Arc<Self> {
        Arc::new(Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher,
            slot_hash,
            closed: RwLock::default(),
            has_closed: AtomicBool::new(false),
            released: Notify::new(),
        })
    }

    fn shard(&self, path: &ObjectPath) -> &Mutex<HashMap<ObjectPath, Lock>> {
        &self.shards[self.hasher.hash_one(path) as usize % SHARDS]
    }

    /// Waits for the lock of `path`, in order of arrival.
    ///
    /// # Errors
    /// `Moved` when the path is not at home here.
    pub(crate) async fn lock(self: &Arc<Self>, path: &ObjectPath) -> Result<KeyGuard> {
        // Created first, so that it is dropped last: only then can it tell whether another task uses the lock.
        let mut guard = KeyGuard { locks: Arc::clone(self), path: path.clone(), guard: None };
        // The lock counts as held from here on, and closing its slot waits for it.
        let lock = Arc::clone(self.shard(path).lock().entry(path.clone()).or_default());
        self.check(path)?;
        guard.guard = Some(lock.lock_owned().await);
        self.check(path)?;
        Ok(guard)
    }

    fn check(&self, path: &ObjectPath) -> Result<()> {
        if self.has(path) { Ok(()) } else { Err(Error::moved(path)) }
    }

    fn is_closed(&self, hash: u64) -> bool {
        self.closed.read().as_ref().is_some_and(|closed| closed.has_hash(hash))
    }

    /// Whether all keys are at home here.
    pub(crate) fn has_all(&self) -> bool {
        !self.has_closed.load(Ordering::SeqCst)
    }

    /// Whether the key is at home here.
    pub(crate) fn has(&self, path: &ObjectPath) -> bool {
        self.has_all() || !self.is_closed((self.slot_hash)(path))
    }

    /// Whether the keys of a slot are at home here, by the hash of one of their paths.
    pub(crate) fn has_hash(&self, hash: u64) -> bool {
        self.has_all() || !self.is_closed(hash)
    }

    /// Those of the slots whose keys are at home here.
    pub(crate) fn open_of(&self, slots: &SlotSet) -> SlotSet {
        let mut open = slots.clone();
        if let Some(closed) = self.closed.read().as_ref() {
            open.take_off(closed);
        }
        open
    }

    /// Those of the slots in which a lock is held or waited for.
    pub(crate) fn held_of(&self, slots: &SlotSet) -> SlotSet {
        let mut held = SlotSet::none(slots.count());
        for shard in &self.shards {
            let shard = shard.lock();
            let hashes = shard.keys().map(self.slot_hash).filter(|hash| slots.has_hash(*hash));
            hashes.for_each(|hash| held.insert(slots.count().slot_of(hash)));
        }
        held
    }

    /// Issues no more locks in these slots, and waits until none is held.
    pub(crate) async fn close(&self, slots: &SlotSet) {
        if slots.is_empty() {
            return;
        }
        self.closed.write().get_or_insert_with(|| slots.clone()).add(slots);
        self.has_closed.store(true, Ordering::SeqCst);
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            let is_held = |path: &ObjectPath| slots.has_hash((self.slot_hash)(path));
            if !self.shards.iter().any(|shard| shard.lock().keys().any(is_held)) {
                return;
            }
            released.await;
        }
    }

    /// Reverses [`KeyLocks::close`].
    pub(crate) fn open(&self, slots: &SlotSet) {
        let mut closed = self.closed.write();
        if let Some(closed) = closed.as_mut() {
            closed.take_off(slots);
        }
        self.has_closed.store(closed.as_ref().is_some_and(|closed| !closed.is_empty()), Ordering::SeqCst);
    }

    /// Paths of a bucket whose lock is held or waited for.
    pub(crate) fn held_in(&self, bucket: &BucketName) -> Vec<ObjectPath> {
        let held = |shard: &Mutex<HashMap<ObjectPath, Lock>>| -> Vec<ObjectPath> {
            shard.lock().keys().filter(|path| path.bucket == *bucket).cloned().collect()
        };
        self.shards.iter().flat_map(held).collect()
    }

    /// Whether the lock of `path` is held or waited for.
    pub(crate) fn is_held(&self, path: &ObjectPath) -> bool {
        self.shard(path).lock().contains_key(path)
    }

    /// Whether no lock is held or waited for.
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// The lock of `path`, if nobody holds it and the path is at home here.
    pub(crate) fn try_lock(self: &Arc<Self>, path: &ObjectPath) -> Option<KeyGuard> {
        let lock = Arc::clone(self.shard(path).lock().entry(path.clone()).or_default());
        let guard = lock.try_lock_owned().ok();
        let found = guard.is_some() && self.check(path).is_ok();
        let key_guard = KeyGuard { locks: Arc::clone(self), path: path.clone(), guard };
        found.then_some(key_guard)
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        let mut shard = self.locks.shard(&self.path).lock();
        self.guard.take();
        // Only the table refers to the lock: it is neither held nor waited for.
        if shard.get(&self.path).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            shard.remove(&self.path);
        }
        drop(shard);
        if !self.locks.has_all() {
            self.locks.released.notify_waiters();
        }
    }
}

/// Counts writes by key. An answer of the under store about a key may be cached only if no write of that key ended
/// since the request was sent.
pub(crate) struct WriteFence {
    slots: Vec<AtomicU64>,
    touched: Touched,
    hasher: HashState,
}

impl WriteFence {
    pub(crate) fn new(hasher: HashState) -> Self {
        let slots = (0..FENCE_SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { slots, touched: Touched::default(), hasher }
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.slots[hash as usize % FENCE_SLOTS]
    }

    pub(crate) fn read(&self, path: &ObjectPath) -> u64 {
        self.slot(self.hasher.hash_one(path)).load(Ordering::SeqCst)
    }

    /// Any key may have been written.
    pub(crate) fn advance_all(&self) {
        for slot in &self.slots {
            slot.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Called before a write of `path` becomes visible anywhere, and again after.
    pub(crate) fn advance(&self, path: &ObjectPath) {
        let hash = self.hasher.hash_one(path);
        self.touched.add(hash);
        self.slot(hash).fetch_add(1, Ordering::SeqCst);
    }

    /// The under store has told something of a key.
    pub(crate) fn touch(&self, path: &ObjectPath) {
        self.touched.add(self.hasher.hash_one(path));
    }

    /// What [`WriteFence::is_touched`] compares with.
    pub(crate) fn heard(&self) -> Heard {
        self.touched.heard()
    }

    /// Whether a key may have been written, or the under store asked for it, since [`WriteFence::restart_touched`].
    /// It may also when that was called again in the meantime.
    pub(crate) fn is_touched(&self, path: &ObjectPath, heard: Heard) -> bool {
        self.touched.may_have(self.hasher.hash_one(path)) || self.touched.heard() != heard
    }

    pub(crate) fn restart_touched(&self) {
        self.touched.restart();
    }
}

#[cfg(test)]
mod tests {
    use forebay_catalog::records::path_hash;
    use forebay_catalog::{SlotCount, SlotSet};
    use forebay_env::random::SystemRandom;

    use super::*;

    fn path(key: &str) -> ObjectPath {
        ObjectPath::parse("bucket", key).unwrap()
    }

    #[tokio::test]
    async fn one_holder_at_a_time_and_nothing_left_behind() {
        let locks = KeyLocks::new(HashState::new(&SystemRandom), path_hash);
        let guard = locks.lock(&path("key")).await.unwrap();
        assert!(locks.try_lock(&path("key")).is_none());
        assert!(locks.try_lock(&path("other")).is_some());
        let waiter = {
            let locks = Arc::clone(&locks);
            forebay_env::spawn(async move { drop(locks.lock(&path("key")).await) })
        };
        drop(guard);
        waiter.join().await;
        assert!(locks.is_empty());
    }

    /// Who waits for a lock of a slot that is closed meanwhile does not get it.
    #[tokio::test]
    async fn a_slot_is_closed_once_its_last_lock_is_free() {
        let locks = KeyLocks::new(HashState::new(&SystemRandom), path_hash);
        let count = SlotCount::new(2).unwrap();
        let mut slots = SlotSet::none(count);
        slots.insert(count.slot_of(path_hash(&path("key"))));
        let other = (0..).map(|number| path(&format!("{number}"))).find(|path| !slots.has_path(path)).unwrap();
        let guard = locks.lock(&path("key")).await.unwrap();
        let waiter = {
            let locks = Arc::clone(&locks);
            forebay_env::spawn(async move { locks.lock(&path("key")).await.is_ok() })
        };
        let closing = {
            let (locks, slots) = (Arc::clone(&locks), slots.clone());
            forebay_env::spawn(async move { locks.close(&slots).await })
        };
        while locks.has_all() {
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!closing.is_finished());
        assert!(locks.lock(&path("key")).await.is_err() && locks.try_lock(&path("key")).is_none());
        let other_guard = locks.lock(&other).await.unwrap();
        drop(guard);
        assert!(!waiter.join().await);
        closing.join().await;
        drop(other_guard);
        locks.open(&slots);
        assert!(locks.lock(&path("key")).await.is_ok() && locks.has_all());
    }
}
