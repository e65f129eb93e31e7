//! Replays records in the order of their sequences.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::HashState;
use forebay_types::Generation;

use crate::Result;
use crate::ids::SegmentKey;
use crate::record::Kind;
use crate::record::abort::AbortBody;
use crate::record::commit::CommitBody;
use crate::record::extent::ExtentBody;
use crate::record::location::Location;
use crate::record::object::{Extent, ObjectBody, extent_at};
use crate::record::scan::Scanned;
use crate::segment::{Segment, SegmentKind};
use crate::snapshot::load::Snapshot;
use crate::table::{Entry, Row, Tables, Write, entry_of};

/// The effect of a record on the tables.
enum Step {
    Object { entry: Entry, stands_alone: bool },
    Attach { key: Bytes, generation: Generation, extent: Extent },
    Commit { body: CommitBody, segment: SegmentKey },
}

/// A step, and the record that it comes from.
struct Placed {
    /// The position in the order of all steps.
    order: u64,
    segment: SegmentKey,
    sequence: u64,
    step: Step,
}

/// The result of a replay.
pub(crate) struct Replayed {
    pub(crate) tables: Tables,
    /// Objects that no commit has published.
    pub(crate) prepared: Vec<Entry>,
    pub(crate) next_sequence: u64,
    /// As [`Segment::min_version`].
    pub(crate) min_versions: HashMap<SegmentKey, u64>,
    /// As [`Segment::change_bytes`], for the logs that were read.
    pub(crate) change_bytes: HashMap<SegmentKey, u64>,
    /// The highest segment number that something refers to, by directory. Files that are gone count, too: their numbers
    /// must not be reused.
    pub(crate) last_numbers: HashMap<u16, u32>,
    /// Whether the logs had other records than those of aborts.
    pub(crate) has_changes: bool,
}

/// Collects records, and applies them in order.
pub(crate) struct Replay {
    steps: Vec<Placed>,
    /// The highest segment of each directory that records name.
    mentioned: BTreeMap<u16, SegmentKey>,
    aborted: Vec<AbortBody>,
    next_sequence: u64,
    min_versions: HashMap<SegmentKey, u64>,
    change_bytes: HashMap<SegmentKey, u64>,
    has_changes: bool,
    has_snapshot: bool,
}

impl Replay {
    pub(crate) fn new(snapshot: Option<&Snapshot>) -> Self {
        let next_sequence = snapshot.map_or(0, |snapshot| snapshot.next_sequence);
        let min_versions = snapshot.map(|snapshot| snapshot.min_versions.clone()).unwrap_or_default();
        let mentioned = BTreeMap::new();
        Self {
            steps: Vec::new(),
            mentioned,
            aborted: Vec::new(),
            next_sequence,
            min_versions,
            change_bytes: HashMap::new(),
            has_changes: false,
            has_snapshot: snapshot.is_some(),
        }
    }

    pub(crate) fn take(&mut self, segment: &Arc<Segment>, record: &Scanned) -> Result<()> {
        let header = &record.head.header;
        let location = Location {
            segment: segment.key(),
            offset: u32::try_from(record.offset).expect("segments are smaller than 4 GiB"),
            head_bytes: header.head_bytes as u32,
            payload_bytes: header.payload_bytes as u32,
        };
        self.next_sequence = self.next_sequence.max(header.sequence + 1);
        self.has_changes |= segment.header.kind == SegmentKind::Log && header.kind != Kind::Abort;
        let step = match header.kind {
            Kind::Object => {
                let body = ObjectBody::decode(&record.head.body)?;
                body.extents.iter().for_each(|extent| self.mention(extent.segment));
                let is_inline = body.extents.is_empty() && body.size == u64::from(location.payload_bytes);
                let entry = entry_of(&body, location, is_inline);
                Step::Object { entry, stands_alone: body.stands_alone }
            }
            Kind::Extent => {
                let body = ExtentBody::decode(&record.head.body)?;
                let Some((key, generation)) = body.attach else { return Ok(()) };
                let extent = extent_at(body.start, location.payload_bytes, location);
                Step::Attach { key: key.into(), generation, extent }
            }
            Kind::Commit => {
                let body = CommitBody::decode(&record.head.body)?;
                self.take_commit(header.sequence, body, segment.key());
                return Ok(());
            }
            Kind::Abort => {
                let abort = AbortBody::decode(&record.head.body)?;
                self.mention(abort.segment);
                // All logs record it, and each snapshot does so again.
                if !self.aborted.contains(&abort) {
                    self.aborted.push(abort);
                }
                return Ok(());
            }
        };
        let (order, sequence) = (header.sequence, header.sequence);
        self.steps.push(Placed { order, segment: segment.key(), sequence, step });
        Ok(())
    }

    fn mention(&mut self, segment: SegmentKey) {
        let last = self.mentioned.entry(segment.directory).or_insert(segment);
        *last = segment.max(*last);
    }

    /// What reclaim carried changes objects at its old position in the order. If there is a snapshot, it shows these
    /// changes already.
    fn take_commit(&mut self, sequence: u64, mut body: CommitBody, segment: SegmentKey) {
        *self.change_bytes.entry(segment).or_default() += body.change_bytes();
        if let Some(as_of) = body.as_of {
            let (publish, forget) = (std::mem::take(&mut body.publish), std::mem::take(&mut body.forget));
            let annotate = std::mem::take(&mut body.annotate);
            if !self.has_snapshot {
                let body = CommitBody { publish, forget, annotate, ..CommitBody::default() };
                self.steps.push(Placed { order: as_of, segment, sequence, step: Step::Commit { body, segment } });
            }
        }
        self.steps.push(Placed { order: sequence, segment, sequence, step: Step::Commit { body, segment } });
    }

    /// The aborts that the replay has found so far.
    pub(crate) fn aborted(&self) -> &[AbortBody] {
        &self.aborted
    }

    /// Whether a record is aborted. Known once all logs were read.
    pub(crate) fn is_aborted(&self, segment: SegmentKey, sequence: u64) -> bool {
        is_aborted(&self.aborted, segment, sequence)
    }

    pub(crate) fn finish(
        mut self,
        snapshot: Option<Snapshot>,
        hasher: &HashState,
        known: &HashMap<SegmentKey, u64>,
    ) -> Replayed {
        let positions = snapshot.as_ref().map(|snapshot| snapshot.positions.clone()).unwrap_or_default();
        let (tables, prepared) =
            snapshot.map_or_else(|| (Tables::new(hasher), Vec::new()), |snapshot| (snapshot.tables, snapshot.prepared));
        // Extents in segments that are gone: reclaim has moved or evicted them, or a directory was removed.
        let is_gone = |extent: &Extent| !known.contains_key(&extent.segment);
        for shard in tables.objects.shards() {
            let lacks = |entry: &&Arc<Entry>| entry.extents().iter().any(is_gone);
            let lacking: Vec<_> = shard.read().iter().filter(lacks).map(|entry| entry.key().to_vec()).collect();
            for key in lacking {
                tables.objects.lock(&key).edit(|entry| entry.retain_extents(|extent| !is_gone(extent)));
            }
        }
        self.steps.retain(|placed| !is_aborted(&self.aborted, placed.segment, placed.sequence));
        self.steps.sort_by_key(|placed| placed.order);
        let min_versions = &mut self.min_versions;
        let staged = prepared.into_iter().map(|entry| (id_of(&entry), entry)).collect();
        let mut applying = Applying { tables: &tables, known, min_versions, staged, deleted: HashMap::new() };
        self.steps.into_iter().for_each(|placed| applying.apply(placed.order, placed.step));
        let mut prepared: Vec<Entry> = applying.staged.into_values().collect();
        prepared.sort_unstable_by(|a, b| (a.key(), a.generation).cmp(&(b.key(), b.generation)));
        for shard in tables.objects.shards() {
            shard.write().retain(|entry| known.contains_key(&entry.record.segment));
        }
        let mut last_numbers: HashMap<u16, u32> =
            positions.iter().map(|(directory, position)| (*directory, position.segment)).collect();
        let mut mention = |segment: SegmentKey| {
            let last = last_numbers.entry(segment.directory).or_default();
            *last = segment.number.max(*last);
        };
        self.min_versions.keys().for_each(|segment| mention(*segment));
        tables.values.for_each(|row| mention(row.segment));
        self.mentioned.into_values().for_each(mention);
        let Self { next_sequence, min_versions, change_bytes, has_changes, .. } = self;
        Replayed { tables, prepared, next_sequence, min_versions, change_bytes, last_numbers, has_changes }
    }
}

fn id_of(entry: &Entry) -> (Bytes, Generation) {
    (Bytes::copy_from_slice(entry.key()), entry.generation)
}

fn is_aborted(aborted: &[AbortBody], segment: SegmentKey, sequence: u64) -> bool {
    aborted.iter().any(|abort| abort.covers(segment, sequence))
}

struct Applying<'a> {
    tables: &'a Tables,
    /// The existing segments, with the sequence in each header.
    known: &'a HashMap<SegmentKey, u64>,
    min_versions: &'a mut HashMap<SegmentKey, u64>,
    /// Objects that no commit has published yet.
    staged: HashMap<(Bytes, Generation), Entry>,
    /// Versions of deletes, because a value that reclaim carried forward may be older.
    deleted: HashMap<Bytes, u64>,
}

impl Applying<'_> {
    fn apply(&mut self, sequence: u64, step: Step) {
        match step {
            Step::Object { entry, stands_alone: true } => {
                let is_fill = !entry.pinned;
                self.publish(entry, is_fill);
            }
            Step::Object { entry, stands_alone: false } => {
                self.staged.insert(id_of(&entry), entry);
            }
            Step::Attach { key, generation, extent } => self.attach(&key, generation, extent),
            Step::Commit { body, segment } => self.commit(sequence, body, segment),
        }
    }

    /// There may be several records of one generation: the first, and copies that reclaim made. All that still exist
    /// are equivalent, so any will do, and extents are taken from all of them.
    fn publish(&mut self, mut entry: Entry, is_fill: bool) {
        entry.retain_extents(|extent| self.known.contains_key(&extent.segment));
        let entry = Arc::new(entry);
        let mut locked = self.tables.objects.lock(entry.key());
        match locked.get() {
            Some(present) if present.generation > entry.generation => {}
            // The commit of the pinned object was not acknowledged, so a read filled the key again. In this replay the
            // pinned object counts.
            Some(present) if is_fill && present.pinned => {}
            Some(present) if present.generation == entry.generation => {
                locked.edit(|present| {
                    if !self.known.contains_key(&present.record.segment) {
                        present.record = entry.record;
                    }
                    entry.extents().iter().for_each(|extent| {
                        present.add_extent(*extent);
                    });
                });
            }
            Some(_) | None => {
                locked.put(Arc::clone(&entry));
            }
        }
    }

    fn attach(&mut self, key: &Bytes, generation: Generation, extent: Extent) {
        self.edit(key, generation, |entry| {
            entry.add_extent(extent);
        });
    }

    /// Changes an object if it has this generation.
    fn edit(&self, key: &[u8], generation: Generation, change: impl FnOnce(&mut Entry)) {
        let mut locked = self.tables.objects.lock(key);
        if locked.get().is_some_and(|entry| entry.generation == generation) {
            locked.edit(change);
        }
    }

    /// As [`Segment::holds_stale`].
    fn holds_stale(&mut self, segment: SegmentKey, version: u64) {
        let lowest = self.min_versions.entry(segment).or_insert(version);
        *lowest = version.min(*lowest);
    }

    fn commit(&mut self, sequence: u64, body: CommitBody, segment: SegmentKey) {
        for (key, generation) in body.publish {
            if let Some(entry) = self.staged.remove(&(key.into(), generation)) {
                self.publish(entry, false);
            }
        }
        for key in body.forget {
            self.tables.objects.lock(&key).remove();
        }
        for annotation in body.annotate {
            self.edit(&annotation.key, annotation.generation, |entry| {
                entry.set_annex(&annotation.annex);
                entry.pinned = annotation.pinned;
            });
        }
        for write in body.writes {
            let key: Bytes = write.key.into();
            let version = body.as_of.unwrap_or(sequence);
            let present = self.tables.values.get(&key, |row| (row.version, row.segment));
            let newest = present.map(|(version, _)| version).max(self.deleted.get(&key).copied());
            if newest.is_some_and(|newest| newest > version) {
                if write.value.is_some() {
                    self.holds_stale(segment, version);
                }
                continue;
            }
            if let Some((older, holder)) = present
                && older < version
                && self.known.get(&holder).is_some_and(|begun| *begun > version)
            {
                self.holds_stale(holder, older);
            }
            let write = match write.value {
                Some(value) => {
                    self.deleted.remove(&key);
                    Write::Put(Row::new(&key, &value, version, segment))
                }
                None => {
                    self.deleted.insert(key.clone(), version);
                    Write::Delete(key)
                }
            };
            self.tables.values.apply(vec![write]);
        }
    }
}
