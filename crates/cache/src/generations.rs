//! The numbers of writes.
//!
//! A generation is the base of the catalog plus the store's next sequence number. The store counts from 1 in a new directory. The base is
//! the time at which the catalog began, in milliseconds since 1970, times 2^16. Generations so grow without another look at a clock, and
//! those of a directory that begins anew are above those that its predecessor left as stamps in the under store, unless that made
//! more than 65 million writes a second.
//!
//! In the year 2100 the base is below 2^58. Each start takes 2^32 numbers, a million writes a second take 2^45 a year. 64 bits do for a
//! billion starts and for a thousand years.

use bytes::Bytes;
use forebay_catalog::records::{self, ObjectRecord, PartRecord};
use forebay_catalog::{Catalog, Transaction};
use forebay_env::Env;
use forebay_store::{Store, ValueWrite};
use forebay_types::Generation;

use crate::{Error, ErrorKind, Result};

/// Fewer numbers than this above the next generation mean a damaged counter. Each start takes 2^32.
const ROOM_MIN: u64 = 1 << 40;

/// How far above the highest generation found a repaired counter goes on: more writes than a crash could have hidden.
const REPAIR_GAP: u64 = 1 << 32;

/// Records of the catalog that are looked through at a time.
const SCAN_RECORDS: usize = 1000;

/// Gives each write its generation.
pub(crate) struct Generations {
    base: u64,
}

impl Generations {
    /// Reads the base, or chooses one for a new catalog. Where an old release has used up the numbers, goes on above the highest that is in
    /// use.
    ///
    /// # Errors
    /// `Internal` when the base is damaged; whatever the catalog answers.
    pub(crate) async fn load(env: &Env, catalog: &dyn Catalog, store: &Store) -> Result<Self> {
        let key = Bytes::from_static(records::GENERATION_BASE_KEY);
        let Some(found) = catalog.get(&key).await? else {
            return Self { base: env.clock.unix_ms() << 16 }.note(catalog).await;
        };
        let bytes: [u8; 8] = found
            .value
            .as_ref()
            .try_into()
            .map_err(|_| Error::new(ErrorKind::Internal, "the catalog's base of generations is damaged"))?;
        let found = Self { base: u64::from_be_bytes(bytes) };
        if found.has_room(store) { Ok(found) } else { found.repaired(catalog, store).await }
    }

    /// A generation above all that this data directory has given before.
    ///
    /// # Panics
    /// When 64 bits are used up.
    pub(crate) fn next(&self, store: &Store) -> Generation {
        let number = self.base.checked_add(store.next_generation().0).expect("64 bits do for all writes of a catalog");
        Generation(number)
    }

    fn has_room(&self, store: &Store) -> bool {
        let next = self.base.checked_add(store.next_generation().0);
        next.is_some_and(|next| next < u64::MAX - ROOM_MIN)
    }

    /// Up to version 0.1.0 each unclean start raised the store's sequence to a generation, so that each added the base once more: after some
    /// 156 of them the sum did not fit into 64 bits. The sequence is above all generations in the log then, and goes on without a base.
    async fn repaired(self, catalog: &dyn Catalog, store: &Store) -> Result<Self> {
        let highest = highest_in_use(catalog, store).await?;
        let sequence = store.next_generation().0;
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
        Self { base }.note(catalog).await
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
