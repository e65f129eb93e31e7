//! The file of a snapshot: rows of both tables, in chunks.

use bytes::{Bytes, BytesMut};
use forebay_env::sync::atomic::Ordering;
use forebay_types::Generation;
use serde::{Deserialize, Serialize};

use crate::ids::SegmentKey;
use crate::record::location::{Location, Position};
use crate::record::object::Extent;
use crate::record::{crc32c, encode_body};
use crate::table::{Content, Entry, Row};

pub(super) const NAME: &str = "snapshot";

/// "FBSN" and the version of the format.
pub(super) const MAGIC: &[u8; 4] = b"FBSN";
pub(super) const VERSION: u32 = 2;

/// The version of a snapshot without prepared objects, which older releases read.
const VERSION_WITHOUT_PREPARED: u32 = 1;

/// Bytes before the first chunk.
pub(super) const START_BYTES: usize = 12;

#[derive(Serialize, Deserialize)]
pub(super) enum Chunk<'a> {
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
    /// Objects that no commit has published yet. Since version 2.
    #[serde(borrow)]
    Prepared(Vec<ObjectRow<'a>>),
}

#[derive(Serialize, Deserialize)]
pub(super) struct ObjectRow<'a> {
    pub(super) key: &'a [u8],
    pub(super) generation: Generation,
    pub(super) record: Location,
    pub(super) size: u64,
    pub(super) annex: &'a [u8],
    pub(super) pinned: bool,
    pub(super) group: u32,
    pub(super) is_inline: bool,
    pub(super) extents: Vec<Extent>,
    pub(super) reads: u8,
    pub(super) carried: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ValueRow<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) version: u64,
    pub(super) segment: SegmentKey,
}

impl<'a> ObjectRow<'a> {
    pub(super) fn new(entry: &'a Entry) -> Self {
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

    /// `None` when the row contradicts itself.
    pub(super) fn into_entry(self) -> Option<Entry> {
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
    pub(super) fn new(row: &'a Row) -> Self {
        Self { key: row.key(), value: row.value(), version: row.version, segment: row.segment }
    }
}

/// Magic, version, and the CRC32C of both.
pub(super) fn start_of_file(has_prepared: bool) -> Bytes {
    let version = if has_prepared { VERSION } else { VERSION_WITHOUT_PREPARED };
    let mut bytes = [MAGIC.as_slice(), &version.to_le_bytes()].concat();
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    bytes.into()
}

/// A chunk on disk: length, CRC32C, bytes.
pub(super) fn frame(chunk: &Chunk<'_>) -> Bytes {
    let body = encode_body(chunk);
    let mut bytes = BytesMut::with_capacity(body.len() + 8);
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32c(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes.freeze()
}
