//! From which generation on the clean copies of a slot are believed. A copy that was evicted is gone from memory alone,
//! so a crash can bring it back. If its slot was away meanwhile, other workers may have replaced the version that it
//! shows, and nothing here tells. But all copies from before a slot came have lower generations than those that are
//! kept afterwards. What was dirty when the slot came, and was persisted since, is dropped with them: a read fetches it
//! again.

use bytes::Bytes;
use forebay_catalog::{Slot, SlotSet};
use forebay_store::{Store, ValueWrite};
use forebay_types::Generation;

/// The floors, by the numbers of the slots: eight bytes each, big-endian. They are about the copies in this store, so
/// they are in the store alone, behind the keys of the catalog.
pub(crate) const FLOORS_KEY: &[u8] = b"\xfffloors";

/// Without one, a slot has the floor 0.
pub(crate) struct CopyFloors(Vec<u64>);

impl CopyFloors {
    /// As they are noted in the store.
    pub(crate) fn of(store: &Store) -> Self {
        let noted = store.value(FLOORS_KEY).map(|found| found.value).unwrap_or_default();
        let (floors, _) = noted.as_chunks::<8>();
        Self(floors.iter().map(|floor| u64::from_be_bytes(*floor)).collect())
    }

    /// Whether all copies are believed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a copy is not believed.
    pub(crate) fn is_below(&self, slot: Slot, generation: Generation) -> bool {
        self.0.get(usize::from(slot.0)).is_some_and(|floor| generation.0 < *floor)
    }

    /// The note with the floors of these slots raised. `None` when they are as high already.
    pub(crate) fn raised(mut self, slots: &SlotSet, floor: Generation) -> Option<ValueWrite> {
        let mut is_raised = false;
        for slot in slots.iter().map(|slot| usize::from(slot.0)) {
            if self.0.len() <= slot {
                self.0.resize(slot + 1, 0);
            }
            is_raised |= self.0[slot] < floor.0;
            self.0[slot] = self.0[slot].max(floor.0);
        }
        let value: Vec<u8> = self.0.iter().flat_map(|floor| floor.to_be_bytes()).collect();
        is_raised.then(|| ValueWrite { key: Bytes::from_static(FLOORS_KEY), value: Some(value.into()) })
    }
}
