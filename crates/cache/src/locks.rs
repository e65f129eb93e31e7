//! Per-key locks for writers, and the fence that keeps late readers from undoing a write.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use forebay_env::HashState;
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_types::ObjectPath;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Shards of the table of locks; more than the number of cores is enough.
const SHARDS: usize = 64;

/// Slots of the fence: two keys that share one only cost a needless second look.
const FENCE_SLOTS: usize = 16_384;

type Slot = Arc<AsyncMutex<()>>;

/// One asynchronous lock for each key that somebody holds or waits for.
pub(crate) struct KeyLocks {
    shards: Vec<Mutex<HashMap<ObjectPath, Slot>>>,
    hasher: HashState,
}

/// Holds the lock of a key.
pub(crate) struct KeyGuard {
    locks: Arc<KeyLocks>,
    path: ObjectPath,
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyLocks {
    pub(crate) fn new(hasher: HashState) -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Arc::new(Self { shards, hasher })
    }

    fn shard(&self, path: &ObjectPath) -> &Mutex<HashMap<ObjectPath, Slot>> {
        &self.shards[self.hasher.hash_one(path) as usize % SHARDS]
    }

    /// Waits for the lock of `path`, first come first served.
    pub(crate) async fn lock(self: &Arc<Self>, path: &ObjectPath) -> KeyGuard {
        let slot = Arc::clone(self.shard(path).lock().entry(path.clone()).or_default());
        let mut guard = KeyGuard { locks: Arc::clone(self), path: path.clone(), guard: None };
        guard.guard = Some(slot.lock_owned().await);
        guard
    }

    /// Whether nobody holds a lock or waits for one.
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// The lock of `path`, if nobody holds it.
    pub(crate) fn try_lock(self: &Arc<Self>, path: &ObjectPath) -> Option<KeyGuard> {
        let slot = Arc::clone(self.shard(path).lock().entry(path.clone()).or_default());
        let guard = slot.try_lock_owned().ok();
        let found = guard.is_some();
        let key_guard = KeyGuard { locks: Arc::clone(self), path: path.clone(), guard };
        found.then_some(key_guard)
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        let mut shard = self.locks.shard(&self.path).lock();
        self.guard.take();
        // The table's own reference is the last one: nobody holds the lock or waits for it.
        if shard.get(&self.path).is_some_and(|slot| Arc::strong_count(slot) == 1) {
            shard.remove(&self.path);
        }
    }
}

/// Counts writes by key. Who has asked the under store about a key may remember the answer only if no write of that
/// key ended in between.
pub(crate) struct WriteFence {
    slots: Vec<AtomicU64>,
    hasher: HashState,
}

impl WriteFence {
    pub(crate) fn new(hasher: HashState) -> Self {
        Self { slots: (0..FENCE_SLOTS).map(|_| AtomicU64::new(0)).collect(), hasher }
    }

    fn slot(&self, path: &ObjectPath) -> &AtomicU64 {
        &self.slots[self.hasher.hash_one(path) as usize % FENCE_SLOTS]
    }

    pub(crate) fn read(&self, path: &ObjectPath) -> u64 {
        self.slot(path).load(Ordering::SeqCst)
    }

    /// Called before a write of `path` becomes visible anywhere, and again after.
    pub(crate) fn advance(&self, path: &ObjectPath) {
        self.slot(path).fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::random::SystemRandom;

    use super::*;

    #[tokio::test]
    async fn one_holder_at_a_time_and_nothing_left_behind() {
        let locks = KeyLocks::new(HashState::new(&SystemRandom));
        let path = ObjectPath::parse("bucket", "key").unwrap();
        let other = ObjectPath::parse("bucket", "other").unwrap();
        let guard = locks.lock(&path).await;
        assert!(locks.try_lock(&path).is_none());
        assert!(locks.try_lock(&other).is_some());
        let waiter = {
            let (locks, path) = (Arc::clone(&locks), path.clone());
            forebay_env::spawn(async move { drop(locks.lock(&path).await) })
        };
        drop(guard);
        waiter.join().await;
        assert!(locks.is_empty());
    }
}
