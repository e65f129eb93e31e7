//! Generations of a worker alone: the base of the catalog plus the store's next sequence number.
//!
//! The store counts from 1 in a new directory. The base is the time at which the catalog began: see
//! [`first_generation`]. Each start takes 2^32 sequence numbers, a million writes a second take 2^45 a year. 64 bits do
//! for a billion starts and for a thousand years.

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::{Store, ValueWrite};
use forebay_types::Generation;

use crate::generations::{Generations, first_generation};
use crate::records::{self, ObjectRecord, PartRecord};
use crate::{Catalog, Error, ErrorKind, Result, Transaction};

/// Fewer numbers than this above the next generation mean a damaged counter. Each start takes 2^32.
const ROOM_MIN: u64 = 1 << 40;

/// How far above the highest generation found a repaired counter continues: more writes than a crash could have hidden.
const REPAIR_GAP: u64 = 1 << 32;

/// Records of the catalog that are looked through at a time.
const SCAN_RECORDS: usize = 1000;

pub(super) struct StoreGenerations {
    store: Store,
    base: u64,
}

#[async_trait]
impl Generations for StoreGenerations {
    fn next(&self) -> Generation {
        let number = self.base.checked_add(self.store.next_generation().0);
        Generation(number.expect("64 bits do for all writes of a catalog"))
    }

    /// Nobody else gives any.
    async fn renew(&self) -> Result<()> {
        Ok(())
    }
}

impl StoreGenerations {
    /// Reads the base, or chooses one for a new catalog. If an old release has used up the numbers, counting continues
    /// above the highest that is in use.
    ///
    /// # Errors
    /// `Corrupt` when the base is damaged; whatever the catalog answers.
    pub(super) async fn load(catalog: &dyn Catalog, store: Store, now_ms: u64) -> Result<Self> {
        let Some(found) = catalog.get(records::GENERATION_BASE_KEY).await? else {
            return Self { store, base: first_generation(now_ms) }.note(catalog).await;
        };
        let bytes: [u8; 8] = found
            .value
            .as_ref()
            .try_into()
            .map_err(|_| Error::new(ErrorKind::Corrupt, "the base of generations is damaged"))?;
        let found = Self { store, base: u64::from_be_bytes(bytes) };
        if found.has_room() { Ok(found) } else { found.repaired(catalog).await }
    }

    fn has_room(&self) -> bool {
        let next = self.base.checked_add(self.store.next_generation().0);
        next.is_some_and(|next| next < u64::MAX - ROOM_MIN)
    }

    /// Up to version 0.1.0 each unclean start raised the store's sequence to a generation, so that each added the base
    /// once more: after some 156 of them the sum did not fit into 64 bits. The sequence is then above all generations
    /// in the log, and continues without the old base.
    async fn repaired(self, catalog: &dyn Catalog) -> Result<Self> {
        let highest = highest_in_use(catalog, &self.store).await?;
        let sequence = self.store.next_generation().0;
        let base = highest.max(sequence).saturating_add(REPAIR_GAP) - sequence;
        if base >= self.base {
            tracing::error!(
                highest,
                sequence,
                "hardly any generations are left: copy the objects to a new data directory"
            );
            return Ok(self);
        }
        tracing::warn!(
            highest,
            sequence,
            "unclean starts of an older release had used up the generations: the counter is repaired"
        );
        Self { base, ..self }.note(catalog).await
    }

    async fn note(self, catalog: &dyn Catalog) -> Result<Self> {
        let key = Bytes::from_static(records::GENERATION_BASE_KEY);
        let value = Some(Bytes::copy_from_slice(&self.base.to_be_bytes()));
        let writes = vec![ValueWrite { key, value }];
        catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
        Ok(self)
    }
}

/// The highest generation of an object in the store, of a record or of a part of an upload.
async fn highest_in_use(catalog: &dyn Catalog, store: &Store) -> Result<u64> {
    let mut highest = 0;
    store.for_each_object(&mut |_, generation, _| highest = highest.max(generation.0));
    for (mut from, to) in [records::all_objects_range(), records::all_parts_range()] {
        loop {
            let found = catalog.scan(&from, &to, SCAN_RECORDS).await?;
            let Some((last, _)) = found.last() else { break };
            from = records::successor(last);
            for (key, versioned) in &found {
                let generation = if records::parse_object_key(key).is_some() {
                    ObjectRecord::decode(&versioned.value)?.generation
                } else {
                    PartRecord::decode(&versioned.value)?.generation
                };
                highest = highest.max(generation.0);
            }
        }
    }
    Ok(highest)
}
