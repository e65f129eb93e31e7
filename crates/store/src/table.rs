//! The two tables in memory. The memory that each object takes bounds how many a machine can hold, so rows are packed:
//! a key and its data are one allocation, and the table finds it by the key in it.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::HashState;
use forebay_env::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use forebay_env::sync::{RwLock, RwLockWriteGuard};
use forebay_types::Generation;
use hashbrown::{HashTable, hash_table};

use crate::ids::SegmentKey;
use crate::record::commit;
use crate::record::location::Location;
use crate::record::object::{Extent, ObjectBody};

/// Number of shards of the table of objects.
const SHARDS: usize = 64;

/// When the tick reaches this, all ticks are halved, long before they overflow.
const TICKS_MAX: u32 = 1 << 31;

/// A key, followed by the bytes that belong to it.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    bytes: Box<[u8]>,
    key_bytes: u32,
}

impl Pair {
    pub(crate) fn new(key: &[u8], value: &[u8]) -> Self {
        let key_bytes = u32::try_from(key.len()).expect("keys are shorter than 4 GiB");
        Self { bytes: [key, value].concat().into(), key_bytes }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[..self.key_bytes as usize]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.bytes[self.key_bytes as usize..]
    }
}

/// A published object. It takes some 110 bytes in addition to its key and annex, including its place in the table. A
/// large one takes 56 more, and 32 for each of its extents.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) generation: Generation,
    pub(crate) record: Location,
    pub(crate) content: Content,
    /// The key, and the annex.
    pub(crate) pair: Pair,
    pub(crate) group: u32,
    /// [`Objects::tick`] at the last read. 0 before the first read since the start.
    pub(crate) last_read: AtomicU32,
    pub(crate) reads: AtomicU8,
    pub(crate) pinned: bool,
    pub(crate) carried: bool,
}

/// Where the bytes of an object are.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// They are the payload of its record.
    Inline,
    Apart(Box<Apart>),
}

#[derive(Debug, Clone)]
pub(crate) struct Apart {
    size: u64,
    /// Sorted, without overlaps. There may be gaps when the object is clean.
    extents: Vec<Extent>,
}

impl Content {
    pub(crate) fn apart(size: u64, extents: Vec<Extent>) -> Self {
        Self::Apart(Box::new(Apart { size, extents }))
    }
}

impl Clone for Entry {
    fn clone(&self) -> Self {
        Self {
            content: self.content.clone(),
            pair: self.pair.clone(),
            reads: AtomicU8::new(self.reads.load(Ordering::Relaxed)),
            last_read: AtomicU32::new(self.last_read.load(Ordering::Relaxed)),
            ..*self
        }
    }
}

impl Entry {
    /// Clean, in no group, and never read.
    pub(crate) fn new(key: &[u8], annex: &[u8], generation: Generation, record: Location, content: Content) -> Self {
        Self {
            generation,
            record,
            content,
            pair: Pair::new(key, annex),
            group: 0,
            last_read: AtomicU32::new(0),
            reads: AtomicU8::new(0),
            pinned: false,
            carried: false,
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.pair.key()
    }

    pub(crate) fn annex(&self) -> &[u8] {
        self.pair.value()
    }

    pub(crate) fn set_annex(&mut self, annex: &[u8]) {
        self.pair = Pair::new(self.pair.key(), annex);
    }

    /// The whole size, in bytes.
    pub(crate) fn size(&self) -> u64 {
        match &self.content {
            Content::Inline => self.record.payload_bytes.into(),
            Content::Apart(apart) => apart.size,
        }
    }

    pub(crate) fn is_inline(&self) -> bool {
        matches!(self.content, Content::Inline)
    }

    pub(crate) fn extents(&self) -> &[Extent] {
        match &self.content {
            Content::Inline => &[],
            Content::Apart(apart) => &apart.extents,
        }
    }

    pub(crate) fn retain_extents(&mut self, kept: impl FnMut(&Extent) -> bool) {
        if let Content::Apart(apart) = &mut self.content {
            apart.extents.retain(kept);
        }
    }

    /// Replaces its extents with equivalent ones elsewhere.
    pub(crate) fn move_extents(&mut self, moved: Vec<Extent>) {
        match &mut self.content {
            Content::Inline => assert!(moved.is_empty(), "what is inline has no extents"),
            Content::Apart(apart) => apart.extents = moved,
        }
    }

    /// Bytes of the object that are here.
    pub(crate) fn cached_bytes(&self) -> u64 {
        match &self.content {
            Content::Inline => self.record.payload_bytes.into(),
            Content::Apart(apart) => apart.extents.iter().map(|extent| u64::from(extent.bytes)).sum(),
        }
    }

    /// The segments that it needs, with the bytes in each.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (SegmentKey, u64)> + '_ {
        let record = (self.record.segment, u64::from(self.record.head_bytes + self.record.payload_bytes));
        std::iter::once(record).chain(self.extents().iter().map(|extent| (extent.segment, u64::from(extent.bytes))))
    }

    /// Bytes that it needs in one segment.
    pub(crate) fn bytes_in(&self, segment: SegmentKey) -> u64 {
        self.uses().filter(|(used, _)| *used == segment).map(|(_, bytes)| bytes).sum()
    }

    /// From now on, only new reads count towards keeping it.
    pub(crate) fn count_as_carried(&mut self) {
        self.carried = true;
        self.reads.store(0, Ordering::Relaxed);
    }

    /// Whether there is a gap where an extent fits.
    pub(crate) fn has_gap_for(&self, extent: &Extent) -> bool {
        let Content::Apart(apart) = &self.content else { return false };
        let extents = &apart.extents;
        let at = extents.partition_point(|other| other.start < extent.start);
        let clear_before = at == 0 || extents[at - 1].end() <= extent.start;
        let clear_behind = extents.get(at).is_none_or(|next| extent.end() <= next.start);
        clear_before && clear_behind && extent.end() <= apart.size
    }

    /// Adds an extent where there is a gap. `false` when it does not fit.
    pub(crate) fn add_extent(&mut self, extent: Extent) -> bool {
        let fits = self.has_gap_for(&extent);
        if let (true, Content::Apart(apart)) = (fits, &mut self.content) {
            let at = apart.extents.partition_point(|other| other.start < extent.start);
            apart.extents.insert(at, extent);
        }
        fits
    }
}

/// The table's entry for an object record.
pub(crate) fn entry_of(body: &ObjectBody, record: Location, is_inline: bool) -> Entry {
    let content = if is_inline { Content::Inline } else { Content::apart(body.size, body.extents.clone()) };
    Entry {
        pinned: body.pinned,
        group: body.group,
        carried: body.carried,
        ..Entry::new(&body.key, &body.annex, body.generation, record, content)
    }
}

/// One part of the table of objects.
#[derive(Default)]
pub(crate) struct Shard {
    entries: HashTable<Arc<Entry>>,
}

impl Shard {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter()
    }

    pub(crate) fn retain(&mut self, mut kept: impl FnMut(&Entry) -> bool) {
        self.entries.retain(|entry| kept(entry));
    }
}

/// One key in its shard, which stays locked meanwhile.
pub(crate) struct LockedKey<'a> {
    shard: RwLockWriteGuard<'a, Shard>,
    hasher: &'a HashState,
    hash: u64,
    key: &'a [u8],
}

impl LockedKey<'_> {
    pub(crate) fn get(&self) -> Option<&Arc<Entry>> {
        self.shard.entries.find(self.hash, |entry| entry.key() == self.key)
    }

    /// Returns the entry that was there before.
    pub(crate) fn put(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let (hasher, key) = (self.hasher, self.key);
        let found =
            self.shard.entries.entry(self.hash, |entry| entry.key() == key, |entry| hasher.hash_one(entry.key()));
        match found {
            hash_table::Entry::Occupied(mut present) => Some(std::mem::replace(present.get_mut(), entry)),
            hash_table::Entry::Vacant(vacant) => {
                vacant.insert(entry);
                None
            }
        }
    }

    /// Changes the entry. If somebody holds it, a copy is changed and replaces it.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.shard.entries.find_mut(self.hash, |entry| entry.key() == self.key) {
            change(Arc::make_mut(entry));
        }
    }

    pub(crate) fn remove(&mut self) -> Option<Arc<Entry>> {
        let found = self.shard.entries.find_entry(self.hash, |entry| entry.key() == self.key).ok()?;
        Some(found.remove().0)
    }
}

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
            shards: (0..SHARDS).map(|_| RwLock::new(Shard::default())).collect(),
            ticks: AtomicU32::new(1),
            count: AtomicU64::new(0),
            hasher,
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<Entry>> {
        let hash = self.hash(key);
        self.shard(hash).read().entries.find(hash, |entry| entry.key() == key).cloned()
    }

    pub(crate) fn lock<'a>(&'a self, key: &'a [u8]) -> LockedKey<'a> {
        let hash = self.hash(key);
        LockedKey { shard: self.shard(hash).write(), hasher: &self.hasher, hash, key }
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        // Neither the lowest bits nor the highest: a shard finds its entries by those, and they would be alike in all
        // of them.
        &self.shards[(hash >> 32) as usize % SHARDS]
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

    /// Halves the ticks of all objects when they have grown large. Their order stays, though neighbours may become
    /// equal. What is read meanwhile may count as read earlier or later than it was.
    pub(crate) fn halve_ticks(&self) {
        let ticks = self.ticks.load(Ordering::Relaxed);
        if ticks < TICKS_MAX {
            return;
        }
        self.ticks.fetch_sub(ticks / 2, Ordering::Relaxed);
        for shard in &self.shards {
            for entry in shard.read().iter() {
                entry.last_read.store(entry.last_read.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn set_tick(&self, tick: u32) {
        self.ticks.store(tick, Ordering::Relaxed);
    }
}

/// A key, its value, its version, and where it was last written. It takes some 65 bytes in addition to key and value,
/// including its place in the table.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pair: Pair,
    pub(crate) version: u64,
    pub(crate) segment: SegmentKey,
}

impl Row {
    pub(crate) fn new(key: &[u8], value: &[u8], version: u64, segment: SegmentKey) -> Self {
        Self { pair: Pair::new(key, value), version, segment }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.pair.key()
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.pair.value()
    }

    /// Most bytes that a record of this value alone takes in a log.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.pair.bytes.len() as u64 + commit::RECORD_BYTES
    }
}

// Compared by key only, because the set looks rows up by key.
impl Borrow<[u8]> for Row {
    fn borrow(&self) -> &[u8] {
        self.key()
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Row {}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Row {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(other.key())
    }
}

/// A change of one key.
pub(crate) enum Write {
    Put(Row),
    Delete(Bytes),
}

/// Key → value, in order.
#[derive(Default)]
pub(crate) struct Values {
    table: RwLock<BTreeSet<Row>>,
}

impl Values {
    /// Fast when the rows are sorted.
    pub(crate) fn new(rows: Vec<Row>) -> Self {
        Self { table: RwLock::new(rows.into_iter().collect()) }
    }

    /// Applies `look` to the row of a key.
    pub(crate) fn get<T>(&self, key: &[u8], look: impl FnOnce(&Row) -> T) -> Option<T> {
        self.table.read().get(key).map(look)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.read().len()
    }

    /// Applies `look` to the first `limit` rows with `from <= key < to`.
    pub(crate) fn scan<T>(&self, from: &[u8], to: &[u8], limit: usize, look: impl FnMut(&Row) -> T) -> Vec<T> {
        if from >= to {
            return Vec::new();
        }
        let table = self.table.read();
        table.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))).take(limit).map(look).collect()
    }

    /// The first `limit` rows after the key `after`.
    pub(crate) fn after(&self, after: Option<&[u8]>, limit: usize) -> Vec<Row> {
        let table = self.table.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        table.range::<[u8], _>((from, Bound::Unbounded)).take(limit).cloned().collect()
    }

    pub(crate) fn for_each(&self, visit: impl FnMut(&Row)) {
        self.table.read().iter().for_each(visit);
    }

    /// Makes all changes in one step: a scan sees all of them or none. Returns the rows that were there before.
    pub(crate) fn apply(&self, writes: Vec<Write>) -> Vec<Row> {
        let mut table = self.table.write();
        let before = writes.into_iter().map(|write| match write {
            Write::Put(row) => table.replace(row),
            Write::Delete(key) => table.take(key.as_ref()),
        });
        before.flatten().collect()
    }

    /// Changes where a value was last written, if it still has this version. `counted` gets the row before anybody can
    /// find it there.
    pub(crate) fn moved(&self, key: &[u8], version: u64, segment: SegmentKey, counted: impl FnOnce(&Row)) -> bool {
        let mut table = self.table.write();
        match table.get(key) {
            Some(row) if row.version == version => {}
            Some(_) | None => return false,
        }
        let row = table.take(key).expect("it was there");
        counted(&row);
        table.insert(Row { segment, ..row });
        true
    }
}

/// Both tables. Their contents are not accounted for yet.
pub(crate) struct Tables {
    pub(crate) objects: Objects,
    pub(crate) values: Values,
}

impl Tables {
    pub(crate) fn new(hasher: &HashState) -> Self {
        Self { objects: Objects::new(hasher.clone()), values: Values::default() }
    }
}
