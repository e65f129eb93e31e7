//! Pinned space: how much of the cache may hold what the under store does not have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_store::Store;

/// The limit on pinned bytes, and what writers under way have reserved of it.
pub(crate) struct Space {
    pinned_ratio: f64,
    reserved: Arc<AtomicU64>,
}

/// Bytes set aside for one write, given back when dropped: by then the store counts them itself, or they are garbage.
pub(crate) struct Reservation {
    reserved: Arc<AtomicU64>,
    bytes: u64,
}

impl Space {
    pub(crate) fn new(pinned_ratio: f64) -> Self {
        Self { pinned_ratio, reserved: Arc::default() }
    }

    pub(crate) fn pinned_limit(&self, capacity_bytes: u64) -> u64 {
        (capacity_bytes as f64 * self.pinned_ratio) as u64
    }

    /// `None` when the bytes would exceed the share of pinned data.
    pub(crate) fn reserve(&self, store: &Store, bytes: u64) -> Option<Reservation> {
        let usage = store.usage();
        let before = self.reserved.fetch_add(bytes, Ordering::SeqCst);
        let reservation = Reservation { reserved: Arc::clone(&self.reserved), bytes };
        let wanted = usage.pinned_bytes.saturating_add(before).saturating_add(bytes);
        (wanted <= self.pinned_limit(usage.capacity_bytes)).then_some(reservation)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.reserved.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}
