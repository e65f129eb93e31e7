//! The two tables in memory.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::HashState;
use forebay_env::sync::RwLock;
use forebay_env::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use forebay_types::Generation;

use crate::record::object::Extent;
use crate::segment::SegmentKey;

/// Shards of the table of objects.
const SHARDS: usize = 64;

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Location {
    pub(crate) segment: SegmentKey,
    pub(crate) offset: u32,
    pub(crate) head_bytes: u32,
    pub(crate) payload_bytes: u32,
}

/// A published object: about 250 bytes beside its key and annex, with its place in the table, and 32 more for each extent of a large one.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) generation: Generation,
    pub(crate) record: Location,
    pub(crate) size: u64,
    pub(crate) annex: Bytes,
    pub(crate) pinned: bool,
    pub(crate) group: u32,
    /// Whether the record holds the bytes itself.
    pub(crate) is_inline: bool,
    /// In order, without overlaps; may have gaps when the object is clean.
    pub(crate) extents: Vec<Extent>,
    pub(crate) reads: AtomicU8,
    pub(crate) carried: bool,
    /// [`Objects::tick`] at the last read; 0 before the first since the start.
    pub(crate) last_read: AtomicU32,
}

impl Clone for Entry {
    fn clone(&self) -> Self {
        Self {
            annex: self.annex.clone(),
            extents: self.extents.clone(),
            reads: AtomicU8::new(self.reads.load(Ordering::Relaxed)),
            last_read: AtomicU32::new(self.last_read.load(Ordering::Relaxed)),
            ..*self
        }
    }
}

impl Entry {
    /// Bytes of the object that are here.
    pub(crate) fn cached_bytes(&self) -> u64 {
        if self.is_inline { self.size } else { self.extents.iter().map(|extent| u64::from(extent.bytes)).sum() }
    }

    /// The segments that it needs, with the bytes in each.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (SegmentKey, u64)> + '_ {
        let record = (self.record.segment, u64::from(self.record.head_bytes + self.record.payload_bytes));
        std::iter::once(record).chain(self.extents.iter().map(|extent| (extent.segment, u64::from(extent.bytes))))
    }

    /// Bytes that it needs of one segment.
    pub(crate) fn bytes_in(&self, segment: SegmentKey) -> u64 {
        self.uses().filter(|(used, _)| *used == segment).map(|(_, bytes)| bytes).sum()
    }

    /// From now on only new reads speak for keeping it.
    pub(crate) fn count_as_carried(&mut self) {
        self.carried = true;
        self.reads.store(0, Ordering::Relaxed);
    }

    /// Adds an extent where there is a gap. `false` when there is none.
    pub(crate) fn add_extent(&mut self, extent: Extent) -> bool {
        let at = self.extents.partition_point(|other| other.start < extent.start);
        let clear_before = at == 0 || self.extents[at - 1].end() <= extent.start;
        let clear_behind = self.extents.get(at).is_none_or(|next| extent.end() <= next.start);
        let fits = clear_before && clear_behind && extent.end() <= self.size && !self.is_inline;
        if fits {
            self.extents.insert(at, extent);
        }
        fits
    }
}

type Shard = HashMap<Bytes, Arc<Entry>>;

/// Key → object.
pub(crate) struct Objects {
    shards: Vec<RwLock<Shard>>,
    hasher: HashState,
    ticks: AtomicU32,
    pub(crate) count: AtomicU64,
}

impl Objects {
    pub(crate) fn new(hasher: HashState) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher,
            ticks: AtomicU32::new(1),
            count: AtomicU64::new(0),
        }
    }

    pub(crate) fn shard(&self, key: &[u8]) -> &RwLock<Shard> {
        &self.shards[self.hash(key) as usize % SHARDS]
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = &RwLock<Shard>> {
        self.shards.iter()
    }

    /// A number that grows with every read, to tell older reads from newer ones.
    pub(crate) fn tick(&self) -> u32 {
        self.ticks.fetch_add(1, Ordering::Relaxed)
    }
}

/// A value, its version, and where it was last written.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub(crate) value: Bytes,
    pub(crate) version: u64,
    pub(crate) segment: SegmentKey,
}

/// Key → value, in order.
#[derive(Default)]
pub(crate) struct Values {
    table: RwLock<BTreeMap<Bytes, Value>>,
}

impl Values {
    pub(crate) fn get(&self, key: &[u8]) -> Option<Value> {
        self.table.read().get(key).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.read().len()
    }

    pub(crate) fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Value)> {
        if from >= to {
            return Vec::new();
        }
        let table = self.table.read();
        let range = table.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
        range.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// The first `limit` values behind `after`.
    pub(crate) fn after(&self, after: Option<&Bytes>, limit: usize) -> Vec<(Bytes, Value)> {
        let table = self.table.read();
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_ref()));
        let range = table.range::<[u8], _>((from, Bound::Unbounded));
        range.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Writes and, where the value is `None`, removes in one step: a scan sees all of it or nothing. Returns what was
    /// there before.
    pub(crate) fn apply(&self, writes: impl Iterator<Item = (Bytes, Option<Value>)>) -> Vec<Value> {
        let mut table = self.table.write();
        let before = writes.map(|(key, value)| match value {
            Some(value) => table.insert(key, value),
            None => table.remove(&key),
        });
        before.flatten().collect()
    }

    /// Fills the empty table.
    pub(crate) fn load(&self, values: BTreeMap<Bytes, Value>) {
        *self.table.write() = values;
    }

    /// Changes where a value was last written, if it still has this version.
    pub(crate) fn moved(&self, key: &[u8], version: u64, segment: SegmentKey) -> bool {
        match self.table.write().get_mut(key) {
            Some(value) if value.version == version => {
                value.segment = segment;
                true
            }
            Some(_) | None => false,
        }
    }
}
