//! The records of all slots. Workers look at them twice a second, and they change rarely: so each transaction that
//! changes some also writes one more record, and its version tells whether there is anything to read.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::{Engine, Result, Slot};
use forebay_env::sync::Mutex;
use forebay_store::ValueWrite;

use crate::layout::{self, WorkerId, scan_all};
use crate::slot_record::SlotRecord;

/// The record of each slot, with its version.
pub(crate) type Slots = BTreeMap<Slot, (SlotRecord, u64)>;

/// Slots are read again after this many looks anyway. A worker of a build that writes no such record may have changed
/// some.
const LOOKS_MAX: u32 = 20;

/// What was read last.
#[derive(Default)]
pub(crate) struct SlotsSeen(Mutex<Option<LastRead>>);

struct LastRead {
    /// Of the record that each change writes.
    version: u64,
    slots: Arc<Slots>,
    looks: u32,
}

impl SlotsSeen {
    /// All changes that were done before this call by workers that write the record, and perhaps later ones.
    ///
    /// # Errors
    /// `Corrupt` for records that can't be decoded; whatever the engine answers.
    pub(crate) async fn read(&self, engine: &dyn Engine) -> Result<Arc<Slots>> {
        // Read before the slots: what changes meanwhile is read by the next call.
        let Some(change) = engine.get(layout::SLOT_CHANGES_KEY).await? else { return read_slots(engine).await };
        if let Some(seen) = &mut *self.0.lock()
            && seen.version == change.version
            && seen.looks < LOOKS_MAX
        {
            seen.looks += 1;
            return Ok(Arc::clone(&seen.slots));
        }
        let slots = read_slots(engine).await?;
        *self.0.lock() = Some(LastRead { version: change.version, slots: Arc::clone(&slots), looks: 0 });
        Ok(slots)
    }
}

/// # Errors
/// As [`SlotsSeen::read`].
pub(crate) async fn read_slots(engine: &dyn Engine) -> Result<Arc<Slots>> {
    let slots = scan_all(engine, layout::SLOTS_PREFIX).await?.into_iter().filter_map(|(key, found)| {
        let record = SlotRecord::decode(&found.value);
        layout::parse_slot_key(&key).map(|slot| record.map(|record| (slot, (record, found.version))))
    });
    slots.collect::<Result<_>>().map(Arc::new)
}

/// Goes with each change of slots by this worker.
pub(crate) fn note_change(worker: &WorkerId) -> ValueWrite {
    let value = Some(Bytes::copy_from_slice(worker.as_str().as_bytes()));
    ValueWrite { key: Bytes::from_static(layout::SLOT_CHANGES_KEY), value }
}

#[cfg(test)]
mod tests {
    use forebay_env::sync::atomic::Ordering;

    use super::*;
    use crate::layout::slot_key;
    use crate::test_engine::TestEngine;

    fn change(slot: u16, worker: &str) -> [ValueWrite; 2] {
        let worker = WorkerId::new(worker).expect("a name");
        let value = Some(SlotRecord::next(None, &worker).encode());
        [ValueWrite { key: slot_key(Slot(slot)), value }, note_change(&worker)]
    }

    #[tokio::test]
    async fn slots_are_read_again_after_a_change() {
        let (engine, seen) = (TestEngine::new(&[]), SlotsSeen::default());
        assert!(seen.read(&engine).await.unwrap().is_empty());
        engine.commit(&[], &change(7, "w1")).await.unwrap();
        let first = seen.read(&engine).await.unwrap();
        assert_eq!(first.keys().collect::<Vec<_>>(), [&Slot(7)]);
        let scans = engine.scans.load(Ordering::SeqCst);
        assert!(Arc::ptr_eq(&first, &seen.read(&engine).await.unwrap()));
        assert_eq!(engine.scans.load(Ordering::SeqCst), scans);
        // By the same worker: the record of the change has the same value.
        engine.commit(&[], &change(8, "w1")).await.unwrap();
        assert_eq!(seen.read(&engine).await.unwrap().len(), 2);
        // By a worker that does not write the record.
        engine.commit(&[], &change(9, "w2")[..1]).await.unwrap();
        for _ in 0..LOOKS_MAX {
            assert_eq!(seen.read(&engine).await.unwrap().len(), 2);
        }
        assert_eq!(seen.read(&engine).await.unwrap().len(), 3);
    }
}
