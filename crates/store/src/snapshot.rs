//! Snapshots: both tables in one file, so that a restart replays only what came behind.
//!
//! A snapshot is fuzzy: positions are taken first, then the tables are copied piece by piece while commits go on. What
//! a replay from the positions finds twice does no harm, since every change carries its generation or its version.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_env::sync::atomic::Ordering;
use forebay_env::{DiskFile, HashState};
use forebay_types::Generation;
use serde::{Deserialize, Serialize};

use crate::directory::Directory;
use crate::log::Position;
use crate::record::object::Extent;
use crate::record::{crc32c, decode_body, encode_body};
use crate::recovery::{Tables, in_file};
use crate::segment::{SegmentKey, SegmentKind};
use crate::store::{Inner, Place};
use crate::table::{Content, Entry, Location, Row, Values};
use crate::{Error, ErrorKind, Result};

const NAME: &str = "snapshot";
const NAME_NEW: &str = "snapshot.new";

/// So many directories get a snapshot, where there are as many: one that is lost does not take along what is known of the others.
const COPIES: usize = 2;

/// After this long there is a new snapshot of what changed, where several directories are: what one of them alone knows of the others is
/// lost with it.
const PERIOD: Duration = Duration::from_secs(10 * 60);

/// Bytes a second, on average, that snapshots after a time alone may write.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// "FBSN" and the version of the format.
const MAGIC: &[u8; 4] = b"FBSN";
const VERSION: u32 = 1;

/// Bytes before the first chunk.
const START_BYTES: usize = 12;

/// What a row takes of the file, about: an object with a key of some 60 bytes and its annex.
const ROW_BYTES: u64 = 200;

/// Entries in one chunk of the file.
const CHUNK_ENTRIES: usize = 4096;

/// A snapshot as it is read.
pub(crate) struct Snapshot {
    pub(crate) next_sequence: u64,
    /// Where the replay of each directory's log begins.
    pub(crate) positions: HashMap<u16, Position>,
    /// Segments of fills of which the snapshot shows all.
    pub(crate) complete_fills: HashSet<SegmentKey>,
    /// Fills before this sequence are in the snapshot, or were dropped before it,
    pub(crate) fills_before: u64,
    /// except these.
    pub(crate) unapplied_fills: HashSet<u64>,
    pub(crate) min_versions: HashMap<SegmentKey, u64>,
    pub(crate) tables: Tables,
    /// The directories that have it.
    pub(crate) held_in: Vec<u16>,
    /// Of each copy.
    pub(crate) bytes: u64,
    /// Of both tables.
    pub(crate) rows: u64,
}

#[derive(Serialize, Deserialize)]
enum Chunk<'a> {
    Start {
        store: u64,
        next_sequence: u64,
        positions: Vec<(u16, Position)>,
        complete_fills: Vec<SegmentKey>,
        fills_before: u64,
        unapplied_fills: Vec<u64>,
        min_versions: Vec<(SegmentKey, u64)>,
    },
    #[serde(borrow)]
    Objects(Vec<ObjectRow<'a>>),
    #[serde(borrow)]
    Values(Vec<ValueRow<'a>>),
    End,
}

#[derive(Serialize, Deserialize)]
struct ObjectRow<'a> {
    key: &'a [u8],
    generation: Generation,
    record: Location,
    size: u64,
    annex: &'a [u8],
    pinned: bool,
    group: u32,
    is_inline: bool,
    extents: Vec<Extent>,
    reads: u8,
    carried: bool,
}

#[derive(Serialize, Deserialize)]
struct ValueRow<'a> {
    key: &'a [u8],
    value: &'a [u8],
    version: u64,
    segment: SegmentKey,
}

impl<'a> ObjectRow<'a> {
    fn new(entry: &'a Entry) -> Self {
        Self {
            key: entry.key(),
            generation: entry.generation,
            record: entry.record,
            size: entry.size(),
            annex: entry.annex(),
            pinned: entry.pinned,
            group: entry.group,
            is_inline: entry.is_inline(),
            extents: entry.extents().to_vec(),
            reads: entry.reads.load(Ordering::Relaxed),
            carried: entry.carried,
        }
    }

    /// `None` when it contradicts itself.
    fn into_entry(self) -> Option<Entry> {
        let is_whole = self.extents.is_empty() && self.size == u64::from(self.record.payload_bytes);
        let content = match self.is_inline {
            true if is_whole => Content::Inline,
            true => return None,
            false => Content::apart(self.size, self.extents),
        };
        Some(Entry {
            pinned: self.pinned,
            group: self.group,
            reads: self.reads.into(),
            carried: self.carried,
            ..Entry::new(self.key, self.annex, self.generation, self.record, content)
        })
    }
}

impl<'a> ValueRow<'a> {
    fn new(row: &'a Row) -> Self {
        Self { key: row.key(), value: row.value(), version: row.version, segment: row.segment }
    }
}

/// Magic, version, and the CRC32C of both.
fn start_of_file() -> Bytes {
    let mut bytes = [MAGIC.as_slice(), &VERSION.to_le_bytes()].concat();
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    bytes.into()
}

/// A chunk on disk: length, CRC32C, bytes.
fn frame(chunk: &Chunk<'_>) -> Bytes {
    let body = encode_body(chunk);
    let mut bytes = BytesMut::with_capacity(body.len() + 8);
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32c(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes.freeze()
}

/// When the last one was begun, or the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LastSnapshot {
    at: Duration,
    /// What had been appended by then in this life.
    appended_bytes: u64,
    /// Log that the start had to replay, for lack of a newer snapshot.
    replayed_bytes: u64,
}

impl Inner {
    /// Writes a snapshot. The one before stays until the new one is in its place.
    pub(crate) async fn snapshot(&self) -> Result<()> {
        let _only_one = self.snapshot_lock.lock().await;
        let healthy = self.places.iter().filter(|place| place.directory.failed().is_none());
        let directories: Vec<_> = healthy.map(|place| Arc::clone(&place.directory)).collect();
        if directories.is_empty() {
            return Err(Error::new(ErrorKind::Failed, "no directory takes writes"));
        }
        let failed_directories = self.failed_directories();
        let at = self.env.clock.monotonic();
        let appended_bytes = self.counters.lock().appended_bytes;
        let (start, positions) = self.snapshot_start();
        let mut copies = Copies::begin(directories).await;
        copies.put(start).await;
        let mut shown_rows = 0;
        for shard in self.objects.shards() {
            let mut entries: Vec<Arc<Entry>> = shard.read().iter().cloned().collect();
            // One seed makes one file.
            entries.sort_unstable_by(|a, b| a.key().cmp(b.key()));
            shown_rows += entries.len() as u64;
            for entries in entries.chunks(CHUNK_ENTRIES) {
                copies.put(Chunk::Objects(entries.iter().map(|entry| ObjectRow::new(entry)).collect())).await;
            }
        }
        let mut last: Option<Row> = None;
        loop {
            let rows = self.values.after(last.as_ref().map(Row::key), CHUNK_ENTRIES);
            if rows.is_empty() {
                break;
            }
            copies.put(Chunk::Values(rows.iter().map(ValueRow::new).collect())).await;
            shown_rows += rows.len() as u64;
            last = rows.into_iter().next_back();
        }
        copies.put(Chunk::End).await;
        copies.sync().await;
        copies.check()?;
        let bytes = copies.offset;
        self.settle().await?;
        if self.failed_directories() > failed_directories {
            return Err(Error::new(
                ErrorKind::Failed,
                "a directory failed, and what the snapshot shows of it may be lost",
            ));
        }
        let held_in = copies.replace().await?;
        let all: Vec<_> = self.places.iter().map(|place| Arc::clone(&place.directory)).collect();
        drop_older_snapshots(&all, &held_in).await;
        count_snapshots(&all, &held_in, bytes);
        self.shown_rows.store(shown_rows, Ordering::SeqCst);
        self.expect_snapshots();
        *self.shown_positions.lock() = positions;
        *self.last_snapshot.lock() = LastSnapshot { at, appended_bytes, replayed_bytes: 0 };
        self.settle_logs().await;
        let mut counters = self.counters.lock();
        counters.snapshots += 1;
        self.snapshot_at_bytes.store(counters.appended_bytes + self.log_bytes_for_snapshot(), Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn is_snapshot_due(&self) -> bool {
        let appended = self.counters.lock().appended_bytes;
        appended >= self.snapshot_at_bytes.load(Ordering::Relaxed) || self.is_snapshot_overdue(appended)
    }

    fn is_snapshot_overdue(&self, appended_bytes: u64) -> bool {
        let last = *self.last_snapshot.lock();
        let is_news = appended_bytes + last.replayed_bytes > last.appended_bytes;
        let period = PERIOD.max(Duration::from_secs(self.bytes_of_copies() / BYTES_PER_SECOND));
        self.places.len() > 1 && is_news && self.env.clock.monotonic() >= last.at + period
    }

    fn bytes_of_copies(&self) -> u64 {
        self.places.iter().map(|place| place.directory.snapshot_bytes.load(Ordering::SeqCst)).sum()
    }

    /// After so much log there is a new snapshot. As much as its copies take, at least: else a large table would be written for ever.
    fn log_bytes_for_snapshot(&self) -> u64 {
        self.bytes_of_copies().max(self.settings.snapshot_log_bytes)
    }

    /// Estimates how long the next snapshot will be, from the last one and the rows that came or went since.
    pub(crate) fn expect_snapshots(&self) {
        let rows = self.objects.count.load(Ordering::Relaxed) + self.values.len() as u64;
        let shown = self.shown_rows.load(Ordering::SeqCst);
        for place in &self.places {
            let last = place.directory.snapshot_bytes.load(Ordering::SeqCst);
            let next = match last {
                0 => 0,
                _ if rows < shown => (last as f64 * (rows as f64 / shown as f64)) as u64,
                _ => last + (rows - shown) * ROW_BYTES,
            };
            place.directory.next_snapshot_bytes.store(next, Ordering::SeqCst);
        }
    }

    /// Whether the next snapshot would be much shorter than the last one, and give room that matters.
    pub(crate) fn has_shrunk(&self, directory: &Directory) -> bool {
        self.expect_snapshots();
        let [last, next] =
            [&directory.snapshot_bytes, &directory.next_snapshot_bytes].map(|bytes| bytes.load(Ordering::SeqCst));
        last > 2 * next && last > directory.capacity_bytes / 64
    }

    /// The log that the start replayed counts for the next snapshot: lives may be short.
    pub(crate) fn count_replayed_log(&self) {
        let shown = self.shown_positions.lock();
        let of_place = |place: &Place| {
            let from = shown.get(&place.directory.identity.number).copied();
            let from = from.unwrap_or(Position { segment: 0, offset: 0 });
            let segments = place.directory.segments.read();
            let logs = segments.range(from.segment..).filter(|(_, segment)| segment.header.kind == SegmentKind::Log);
            let behind = |number: u32| if number == from.segment { from.offset } else { 0 };
            logs.map(|(number, log)| log.length().saturating_sub(behind(*number))).sum::<u64>()
        };
        let replayed: u64 = self.places.iter().map(of_place).sum();
        self.snapshot_at_bytes.store(self.log_bytes_for_snapshot().saturating_sub(replayed), Ordering::Relaxed);
        let at = self.env.clock.monotonic();
        *self.last_snapshot.lock() = LastSnapshot { at, appended_bytes: 0, replayed_bytes: replayed };
    }

    /// Makes durable what commits left to the operating system: a snapshot must show no object whose bytes a power cut takes.
    async fn settle(&self) -> Result<()> {
        for place in self.places.iter().filter(|place| place.directory.failed().is_none()) {
            let segments: Vec<_> = place.directory.segments.read().values().cloned().collect();
            for segment in segments.iter().filter(|segment| segment.header.kind == SegmentKind::Bulk) {
                place.directory.sync_extents(segment).await?;
            }
            place.log.barrier().await?;
        }
        Ok(())
    }

    /// Lets the logs go that the snapshot shows. They are struck off the lists first: a start must not miss them.
    pub(crate) async fn settle_logs(&self) {
        let shown = self.shown_positions.lock().clone();
        for place in self.places.iter().filter(|place| place.directory.failed().is_none()) {
            let (directory, number) = (&place.directory, place.directory.identity.number);
            let Some(position) = shown.get(&number) else { continue };
            if self.settled_positions.lock().get(&number) == Some(position) {
                continue;
            }
            match directory.log_list.settle(directory.disk.as_ref(), position.segment).await {
                Ok(()) => drop(self.settled_positions.lock().insert(number, *position)),
                // On a full disk, say. It is tried again when room is looked for.
                Err(error) => {
                    tracing::warn!(directory = directory.disk.label(), %error, "the list of logs could not be written: none goes")
                }
            }
        }
    }

    pub(crate) fn failed_directories(&self) -> usize {
        self.places.iter().filter(|place| place.directory.failed().is_some()).count()
    }

    /// Positions must not lie before void records and behind what says that they are void.
    fn snapshot_start(&self) -> (Chunk<'static>, HashMap<u16, Position>) {
        loop {
            let voids = self.voids.count();
            let start = self.try_snapshot_start();
            if self.voids.count() == voids {
                return start;
            }
        }
    }

    fn try_snapshot_start(&self) -> (Chunk<'static>, HashMap<u16, Position>) {
        let mut positions = Vec::new();
        let (mut complete_fills, mut min_versions) = (Vec::new(), Vec::new());
        for place in &self.places {
            let number = place.directory.identity.number;
            let segments = place.directory.segments.read();
            positions.push((number, place.log.replay_from()));
            for segment in segments.values() {
                let is_complete = segment.is_sealed() && !segment.is_pinned();
                if segment.header.kind == SegmentKind::Fill && is_complete {
                    complete_fills.push(segment.key());
                }
                min_versions.push((segment.key(), segment.min_version.load(Ordering::SeqCst)));
            }
        }
        let next_sequence = self.sequence.load(Ordering::SeqCst);
        let store = self.places[0].directory.identity.store;
        let known = positions.iter().copied().collect();
        // Behind the positions: a fill that was dropped by a commit before them must not count as unapplied.
        let (fills_before, unapplied_fills) = self.fills.unapplied(&self.sequence);
        let start = Chunk::Start {
            store,
            next_sequence,
            positions,
            complete_fills,
            fills_before,
            unapplied_fills,
            min_versions,
        };
        (start, known)
    }
}

/// The files of a snapshot that is being written. A directory that refuses it does without.
struct Copies {
    files: Vec<(Arc<Directory>, Arc<dyn DiskFile>)>,
    offset: u64,
    refused: Option<Error>,
}

impl Copies {
    async fn begin(directories: Vec<Arc<Directory>>) -> Self {
        let mut copies = Self { files: Vec::new(), offset: START_BYTES as u64, refused: None };
        for directory in directories {
            if copies.files.len() == COPIES {
                break;
            }
            let begun = async {
                let disk = &directory.disk;
                if disk.list().await?.iter().any(|name| name == NAME_NEW) {
                    disk.remove(NAME_NEW).await?;
                }
                let file = disk.create(NAME_NEW).await?;
                file.write_at(0, vec![start_of_file()], false).await?;
                Ok(file)
            };
            match begun.await {
                Ok(file) => copies.files.push((directory, file)),
                Err(error) => copies.give_up(&directory, error).await,
            }
        }
        copies
    }

    async fn put(&mut self, chunk: Chunk<'_>) {
        let (bytes, offset) = (frame(&chunk), self.offset);
        self.offset += bytes.len() as u64;
        for (directory, file) in std::mem::take(&mut self.files) {
            let written = file.write_at(offset, vec![bytes.clone()], false).await;
            self.keep(directory, file, written).await;
        }
    }

    async fn sync(&mut self) {
        for (directory, file) in std::mem::take(&mut self.files) {
            let synced = file.sync_data().await;
            self.keep(directory, file, synced).await;
        }
    }

    async fn keep(&mut self, directory: Arc<Directory>, file: Arc<dyn DiskFile>, result: std::io::Result<()>) {
        match result {
            Ok(()) => self.files.push((directory, file)),
            Err(error) => self.give_up(&directory, error).await,
        }
    }

    async fn give_up(&mut self, directory: &Directory, error: std::io::Error) {
        // On a full disk it would hold the room that commits need.
        let _ = directory.disk.remove(NAME_NEW).await;
        let context = format!("could not write a snapshot to {}", directory.disk.label());
        self.refused = Some(Error::io(context, error));
    }

    /// # Errors
    /// When no directory has taken it.
    fn check(&mut self) -> Result<()> {
        match self.refused.take() {
            Some(error) if self.files.is_empty() => Err(error),
            Some(error) => {
                tracing::warn!(%error, "a snapshot has fewer copies than it should");
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Puts the snapshot in the place of the one before. Returns the numbers of the directories that have it.
    async fn replace(mut self) -> Result<Vec<u16>> {
        let mut held_in = Vec::new();
        for (directory, _) in std::mem::take(&mut self.files) {
            let replaced = async {
                directory.disk.rename(NAME_NEW, NAME).await?;
                directory.disk.sync_directory().await
            };
            match replaced.await {
                Ok(()) => held_in.push(directory.identity.number),
                Err(error) => self.give_up(&directory, error).await,
            }
        }
        match self.refused {
            Some(error) if held_in.is_empty() => Err(error),
            Some(_) | None => Ok(held_in),
        }
    }
}

/// Counts what a snapshot takes of the directories that have it.
pub(crate) fn count_snapshots(directories: &[Arc<Directory>], held_in: &[u16], bytes: u64) {
    for directory in directories {
        let is_here = held_in.contains(&directory.identity.number);
        directory.snapshot_bytes.store(if is_here { bytes } else { 0 }, Ordering::SeqCst);
    }
}

/// A snapshot in another directory is older, and not to be used when the newest is lost: logs have been let go since.
pub(crate) async fn drop_older_snapshots(directories: &[Arc<Directory>], held_in: &[u16]) {
    for directory in directories.iter().filter(|directory| !held_in.contains(&directory.identity.number)) {
        // Absent most of the time. It must not be back after a power cut, either.
        if directory.disk.remove(NAME).await.is_ok() {
            let _ = directory.disk.sync_directory().await;
        }
    }
}

/// The newest snapshot of the directories, if there is one that is sound, and whether one is damaged.
///
/// # Errors
/// `Invalid` when its format is newer than this code.
pub(crate) async fn load_snapshot(
    directories: &[Arc<Directory>],
    hasher: &HashState,
) -> Result<(Option<Snapshot>, bool)> {
    let mut is_damaged = false;
    let mut unusable = |error: Error| match error.kind {
        ErrorKind::Invalid => Err(error),
        _ => {
            tracing::warn!(%error, "a snapshot can't be used");
            is_damaged = true;
            Ok(())
        }
    };
    let mut begun = Vec::new();
    for directory in directories {
        match Reading::begin(directory, hasher).await.map_err(|error| in_file(directory, NAME, error)) {
            Ok(reading) => begun.extend(reading.map(|reading| (directory, reading))),
            Err(error) => unusable(error)?,
        }
    }
    // Older ones count for nothing: logs that they need may be gone.
    let newest = begun.iter().map(|(_, reading)| reading.snapshot.next_sequence).max();
    begun.retain(|(_, reading)| Some(reading.snapshot.next_sequence) == newest);
    let held_in: Vec<u16> = begun.iter().map(|(directory, _)| directory.identity.number).collect();
    for (directory, reading) in begun {
        match reading.finish().await.map_err(|error| in_file(directory, NAME, error)) {
            Ok(snapshot) => return Ok((Some(Snapshot { held_in, ..snapshot }), is_damaged)),
            Err(error) => unusable(error)?,
        }
    }
    Ok((None, is_damaged))
}

/// A snapshot of which the first chunk is read.
struct Reading {
    file: Arc<dyn DiskFile>,
    file_bytes: u64,
    offset: u64,
    snapshot: Snapshot,
}

fn damaged() -> Error {
    Error::new(ErrorKind::Corrupt, "the snapshot is damaged")
}

fn unreadable(error: std::io::Error) -> Error {
    Error::io("could not read the snapshot", error)
}

impl Reading {
    /// `None` when the directory has no snapshot.
    async fn begin(directory: &Directory, hasher: &HashState) -> Result<Option<Self>> {
        if !directory.disk.list().await.map_err(unreadable)?.iter().any(|name| name == NAME) {
            return Ok(None);
        }
        let file = directory.disk.open(NAME).await.map_err(unreadable)?;
        let file_bytes = file.len().await.map_err(unreadable)?;
        let first = file.read_at(0, START_BYTES).await.map_err(unreadable)?;
        let word = |at: usize| u32::from_le_bytes(first[at..at + 4].try_into().expect("four bytes"));
        if first.len() < START_BYTES || &first[..4] != MAGIC || crc32c(&first[..8]) != word(8) {
            return Err(damaged());
        }
        let version = word(4);
        if version > VERSION {
            let problem = format!("the snapshot has the format version {version}, and this code knows up to {VERSION}");
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        let (body, offset) = chunk_at(file.as_ref(), START_BYTES as u64, file_bytes).await?;
        let Chunk::Start {
            store,
            next_sequence,
            positions,
            complete_fills,
            fills_before,
            unapplied_fills,
            min_versions,
        } = decode_body::<Chunk<'_>>(&body)?
        else {
            return Err(damaged());
        };
        if store != directory.identity.store {
            return Err(damaged());
        }
        let snapshot = Snapshot {
            next_sequence,
            positions: positions.into_iter().collect(),
            complete_fills: complete_fills.into_iter().collect(),
            fills_before,
            unapplied_fills: unapplied_fills.into_iter().collect(),
            min_versions: min_versions.into_iter().collect(),
            tables: Tables::new(hasher),
            held_in: Vec::new(),
            bytes: file_bytes,
            rows: 0,
        };
        Ok(Some(Self { file, file_bytes, offset, snapshot }))
    }

    /// Reads the tables.
    async fn finish(mut self) -> Result<Snapshot> {
        let mut rows_of_values = Vec::new();
        loop {
            let (body, offset) = chunk_at(self.file.as_ref(), self.offset, self.file_bytes).await?;
            self.offset = offset;
            match decode_body::<Chunk<'_>>(&body)? {
                Chunk::Objects(rows) => {
                    self.snapshot.rows += rows.len() as u64;
                    for row in rows {
                        let entry = Arc::new(row.into_entry().ok_or_else(damaged)?);
                        self.snapshot.tables.objects.place(entry.key()).put(Arc::clone(&entry));
                    }
                }
                Chunk::Values(rows) => {
                    let row = |row: &ValueRow<'_>| Row::new(row.key, row.value, row.version, row.segment);
                    rows_of_values.extend(rows.iter().map(row));
                }
                Chunk::End => {
                    self.snapshot.rows += rows_of_values.len() as u64;
                    // They come in order.
                    self.snapshot.tables.values = Values::new(rows_of_values);
                    return Ok(self.snapshot);
                }
                Chunk::Start { .. } => return Err(damaged()),
            }
        }
    }
}

/// The body of the chunk that begins there, and where the next one begins.
async fn chunk_at(file: &dyn DiskFile, offset: u64, file_bytes: u64) -> Result<(Bytes, u64)> {
    let frame = file.read_at(offset, 8).await.map_err(unreadable)?;
    if frame.len() < 8 {
        return Err(damaged());
    }
    let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().expect("four bytes"));
    let (length, crc) = (word(0) as usize, word(4));
    let next = offset + 8 + length as u64;
    if next > file_bytes {
        return Err(damaged());
    }
    let body = file.read_at(offset + 8, length).await.map_err(unreadable)?;
    if body.len() != length || crc32c(&body) != crc {
        return Err(damaged());
    }
    Ok((body, next))
}

#[cfg(test)]
mod tests;
