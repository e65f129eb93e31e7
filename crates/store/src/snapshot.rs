//! Snapshots: both tables in one file, so that a restart replays only what came behind.
//!
//! A snapshot is fuzzy: positions are taken first, then the tables are copied piece by piece while commits go on. What
//! a replay from the positions finds twice does no harm, since every change carries its generation or its version.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_env::HashState;
use forebay_env::sync::atomic::Ordering;
use forebay_types::Generation;
use serde::{Deserialize, Serialize};

use crate::directory::Directory;
use crate::log::Position;
use crate::record::object::Extent;
use crate::record::{crc32c, decode_body, encode_body};
use crate::recovery::{Tables, in_file};
use crate::segment::{SegmentKey, SegmentKind};
use crate::store::Inner;
use crate::table::{Content, Entry, Location, Row, Values};
use crate::{Error, ErrorKind, Result};

const NAME: &str = "snapshot";
const NAME_NEW: &str = "snapshot.new";

/// "FBSN" and the version of the format.
const MAGIC: &[u8; 4] = b"FBSN";
const VERSION: u32 = 1;

/// Bytes before the first chunk.
const START_BYTES: usize = 12;

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

impl Inner {
    /// Writes a snapshot. The one before stays until the new one is in its place.
    pub(crate) async fn snapshot(&self) -> Result<()> {
        let Some(place) = self.places.iter().find(|place| place.directory.failed().is_none()) else {
            return Err(Error::new(ErrorKind::Failed, "no directory takes writes"));
        };
        let failed_directories = self.failed_directories();
        let (start, positions) = self.snapshot_start();
        let disk = &place.directory.disk;
        let write = async {
            if disk.list().await?.iter().any(|name| name == NAME_NEW) {
                disk.remove(NAME_NEW).await?;
            }
            let file = disk.create(NAME_NEW).await?;
            let mut offset = START_BYTES as u64;
            file.write_at(0, vec![start_of_file()], false).await?;
            let mut put = async |chunk: Chunk<'_>| {
                let bytes = frame(&chunk);
                let length = bytes.len() as u64;
                file.write_at(offset, vec![bytes], false).await?;
                offset += length;
                Ok::<(), std::io::Error>(())
            };
            put(start).await?;
            for shard in self.objects.shards() {
                let mut entries: Vec<Arc<Entry>> = shard.read().iter().cloned().collect();
                // One seed makes one file.
                entries.sort_unstable_by(|a, b| a.key().cmp(b.key()));
                for entries in entries.chunks(CHUNK_ENTRIES) {
                    put(Chunk::Objects(entries.iter().map(|entry| ObjectRow::new(entry)).collect())).await?;
                }
            }
            let mut last: Option<Row> = None;
            loop {
                let rows = self.values.after(last.as_ref().map(Row::key), CHUNK_ENTRIES);
                if rows.is_empty() {
                    break;
                }
                put(Chunk::Values(rows.iter().map(ValueRow::new).collect())).await?;
                last = rows.into_iter().next_back();
            }
            put(Chunk::End).await?;
            file.sync_data().await
        };
        let failed = |error| Error::io("could not write a snapshot", error);
        if let Err(error) = write.await {
            // On a full disk it would hold the room that commits need.
            let _ = disk.remove(NAME_NEW).await;
            return Err(failed(error));
        }
        self.settle().await?;
        if self.failed_directories() > failed_directories {
            return Err(Error::new(
                ErrorKind::Failed,
                "a directory failed, and what the snapshot shows of it may be lost",
            ));
        }
        let replace = async {
            disk.rename(NAME_NEW, NAME).await?;
            disk.sync_directory().await
        };
        replace.await.map_err(failed)?;
        self.drop_other_snapshots(place.directory.identity.number).await;
        *self.snapshot_positions.lock() = positions;
        let mut counters = self.counters.lock();
        counters.snapshots += 1;
        self.snapshot_at_bytes.store(counters.appended_bytes + self.settings.snapshot_log_bytes, Ordering::Relaxed);
        Ok(())
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

    fn failed_directories(&self) -> usize {
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

    /// A snapshot in another directory is older.
    async fn drop_other_snapshots(&self, newest: u16) {
        for place in self.places.iter().filter(|place| place.directory.identity.number != newest) {
            // Absent most of the time.
            let _ = place.directory.disk.remove(NAME).await;
        }
    }
}

/// The newest sound snapshot of the directories, if there is one.
///
/// # Errors
/// `Invalid` when its format is newer than this code.
pub(crate) async fn load_snapshot(directories: &[Arc<Directory>], hasher: &HashState) -> Result<Option<Snapshot>> {
    let mut newest: Option<Snapshot> = None;
    for directory in directories {
        match read_snapshot(directory, hasher).await.map_err(|error| in_file(directory, NAME, error)) {
            Ok(Some(found)) => {
                if newest.as_ref().is_none_or(|newest| newest.next_sequence < found.next_sequence) {
                    newest = Some(found);
                }
            }
            Ok(None) => {}
            Err(error) if error.kind == ErrorKind::Invalid => return Err(error),
            Err(error) => tracing::warn!(%error, "a snapshot can't be used: the tables are built from the segments"),
        }
    }
    Ok(newest)
}

async fn read_snapshot(directory: &Directory, hasher: &HashState) -> Result<Option<Snapshot>> {
    let failed = |error| Error::io("could not read the snapshot", error);
    if !directory.disk.list().await.map_err(failed)?.iter().any(|name| name == NAME) {
        return Ok(None);
    }
    let file = directory.disk.open(NAME).await.map_err(failed)?;
    let corrupt = || Error::new(ErrorKind::Corrupt, "the snapshot is damaged");
    let file_length = file.len().await.map_err(failed)?;
    let first = file.read_at(0, START_BYTES).await.map_err(failed)?;
    let word = |at: usize| u32::from_le_bytes(first[at..at + 4].try_into().expect("four bytes"));
    if first.len() < START_BYTES || &first[..4] != MAGIC || crc32c(&first[..8]) != word(8) {
        return Err(corrupt());
    }
    let version = word(4);
    if version > VERSION {
        let problem = format!("the snapshot has the format version {version}, and this code knows up to {VERSION}");
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    let mut offset = START_BYTES as u64;
    let mut snapshot: Option<Snapshot> = None;
    let mut rows_of_values = Vec::new();
    loop {
        let frame = file.read_at(offset, 8).await.map_err(failed)?;
        if frame.len() < 8 {
            return Err(corrupt());
        }
        let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().expect("four bytes"));
        let (length, crc) = (word(0) as usize, word(4));
        if offset + 8 + length as u64 > file_length {
            return Err(corrupt());
        }
        let body = file.read_at(offset + 8, length).await.map_err(failed)?;
        if body.len() != length || crc32c(&body) != crc {
            return Err(corrupt());
        }
        offset += 8 + length as u64;
        match (decode_body::<Chunk<'_>>(&body)?, &mut snapshot) {
            (
                Chunk::Start {
                    store,
                    next_sequence,
                    positions,
                    complete_fills,
                    fills_before,
                    unapplied_fills,
                    min_versions,
                },
                None,
            ) => {
                if store != directory.identity.store {
                    return Err(corrupt());
                }
                snapshot = Some(Snapshot {
                    next_sequence,
                    positions: positions.into_iter().collect(),
                    complete_fills: complete_fills.into_iter().collect(),
                    fills_before,
                    unapplied_fills: unapplied_fills.into_iter().collect(),
                    min_versions: min_versions.into_iter().collect(),
                    tables: Tables::new(hasher),
                });
            }
            (Chunk::Objects(rows), Some(snapshot)) => {
                for row in rows {
                    let entry = Arc::new(row.into_entry().ok_or_else(corrupt)?);
                    snapshot.tables.objects.place(entry.key()).put(Arc::clone(&entry));
                }
            }
            (Chunk::Values(rows), Some(_)) => {
                rows_of_values.extend(rows.iter().map(|row| Row::new(row.key, row.value, row.version, row.segment)));
            }
            (Chunk::End, Some(found)) => {
                // They come in order.
                found.tables.values = Values::new(rows_of_values);
                return Ok(snapshot);
            }
            (Chunk::Start { .. }, Some(_)) | (_, None) => return Err(corrupt()),
        }
    }
}

#[cfg(test)]
mod tests;
