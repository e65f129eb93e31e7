//! Reads a snapshot back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::{DiskFile, HashState};

use super::format::{Chunk, MAGIC, NAME, START_BYTES, VERSION, ValueRow};
use crate::directory::{Directory, in_file};
use crate::ids::SegmentKey;
use crate::record::location::Position;
use crate::record::{crc32c, decode_body};
use crate::table::{Entry, Row, Tables, Values};
use crate::{Error, ErrorKind, Result};

/// A snapshot that was read.
pub(crate) struct Snapshot {
    pub(crate) next_sequence: u64,
    /// Where the replay of each directory's log begins.
    pub(crate) positions: HashMap<u16, Position>,
    /// Segments of fills that the snapshot covers completely.
    pub(crate) complete_fills: HashSet<SegmentKey>,
    /// Fills before this sequence are in the snapshot, or were dropped before it,
    pub(crate) fills_before: u64,
    /// except these.
    pub(crate) unapplied_fills: HashSet<u64>,
    pub(crate) min_versions: HashMap<SegmentKey, u64>,
    pub(crate) tables: Tables,
    pub(crate) prepared: Vec<Entry>,
    /// The directories that have it.
    pub(crate) held_in: Vec<u16>,
    /// Bytes of each copy.
    pub(crate) bytes: u64,
    /// Rows of both tables.
    pub(crate) rows: u64,
}

/// The newest snapshot of the directories, if it is sound, and whether any is damaged or only an older one is left:
/// `released_by` is the next sequence of the last one for which logs were released.
///
/// # Errors
/// `Invalid` when its format is newer than this code.
pub(crate) async fn load_snapshot(
    directories: &[Arc<Directory>],
    hasher: &HashState,
    released_by: u64,
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
    // Older ones are not used: logs that they need may be gone.
    let newest = begun.iter().map(|(_, reading)| reading.snapshot.next_sequence).max();
    begun.retain(|(_, reading)| Some(reading.snapshot.next_sequence) == newest);
    if newest.is_some_and(|newest| newest < released_by) {
        begun.clear();
        unusable(Error::new(ErrorKind::Corrupt, "only an older snapshot is left, and logs that it needs may be gone"))?;
    }
    let held_in: Vec<u16> = begun.iter().map(|(directory, _)| directory.identity.number).collect();
    for (directory, reading) in begun {
        match reading.finish().await.map_err(|error| in_file(directory, NAME, error)) {
            Ok(snapshot) => return Ok((Some(Snapshot { held_in, ..snapshot }), is_damaged)),
            Err(error) => unusable(error)?,
        }
    }
    Ok((None, is_damaged))
}

/// A snapshot of which only the first chunk is read.
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
            let problem = format!(
                "the snapshot has the format version {version}, and this release reads up to {VERSION}: start the newer release that wrote it"
            );
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
            prepared: Vec::new(),
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
                        self.snapshot.tables.objects.lock(entry.key()).put(Arc::clone(&entry));
                    }
                }
                Chunk::Prepared(rows) => {
                    for row in rows {
                        self.snapshot.prepared.push(row.into_entry().ok_or_else(damaged)?);
                    }
                }
                Chunk::Values(rows) => {
                    let row = |row: &ValueRow<'_>| Row::new(row.key, row.value, row.version, row.segment);
                    rows_of_values.extend(rows.iter().map(row));
                }
                Chunk::End => {
                    self.snapshot.rows += rows_of_values.len() as u64;
                    // They are sorted.
                    self.snapshot.tables.values = Values::new(rows_of_values);
                    return Ok(self.snapshot);
                }
                Chunk::Start { .. } => return Err(damaged()),
            }
        }
    }
}

/// The body of the chunk that begins at `offset`, and where the next chunk begins.
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
