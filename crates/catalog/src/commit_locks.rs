//! One lock for each key of a commit in flight.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::sync::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

type Slot = Arc<AsyncMutex<()>>;

#[derive(Default)]
pub struct CommitLocks {
    slots: Mutex<HashMap<Bytes, Slot>>,
}

/// Holds the lock of a key, or waits for it.
pub struct CommitGuard {
    locks: Arc<CommitLocks>,
    key: Bytes,
    guard: Option<OwnedMutexGuard<()>>,
}

impl CommitLocks {
    /// Waits for the locks of all keys. They are taken in order, so that no two callers wait for each other.
    pub async fn lock(self: &Arc<Self>, keys: BTreeSet<Bytes>) -> Vec<CommitGuard> {
        let mut guards = Vec::with_capacity(keys.len());
        for key in keys {
            let slot = Arc::clone(self.slots.lock().entry(key.clone()).or_default());
            // Made before the wait, so that a caller who gives up leaves nothing in the table.
            let mut guard = CommitGuard { locks: Arc::clone(self), key, guard: None };
            guard.guard = Some(slot.lock_owned().await);
            guards.push(guard);
        }
        guards
    }
}

impl Drop for CommitGuard {
    fn drop(&mut self) {
        let mut slots = self.locks.slots.lock();
        self.guard.take();
        // The table's own reference is the last one: nobody holds the lock or waits for it.
        if slots.get(&self.key).is_some_and(|slot| Arc::strong_count(slot) == 1) {
            slots.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&'static str]) -> BTreeSet<Bytes> {
        names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect()
    }

    #[tokio::test]
    async fn a_key_has_one_holder_and_nothing_stays_behind() {
        let locks = Arc::new(CommitLocks::default());
        let held = locks.lock(keys(&["a", "b"])).await;
        drop(locks.lock(keys(&["c"])).await);
        let waiter = {
            let locks = Arc::clone(&locks);
            forebay_env::spawn(async move { drop(locks.lock(keys(&["b", "c"])).await) })
        };
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!waiter.is_finished());
        drop(held);
        waiter.join().await;
        assert!(locks.slots.lock().is_empty());
    }
}
