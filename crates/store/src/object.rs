//! Reads published objects.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::SPANS;
use forebay_env::sync::atomic::Ordering;
use forebay_types::{ByteRange, Generation};

use crate::damaged::DamagedPlace;
use crate::ids::SegmentKey;
use crate::inner::Inner;
use crate::record::location::Location;
use crate::record::object::{Extent, ObjectBody};
use crate::record::{BLOCK_BYTES, Head, Kind};
use crate::segment::{ReadSegment, Segment};
use crate::table::Entry;
use crate::{Access, Error, ErrorKind, Result};

/// A published object as it was when it was looked up. It stays readable through overwrites, eviction and reclaim, as
/// long as its room is not needed: see [`ErrorKind::Gone`].
#[derive(Clone)]
pub struct Object {
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    segments: Arc<[ReadSegment]>,
    unwritten: Option<Unwritten>,
}

/// What the record of a staged object will hold.
#[derive(Clone)]
pub(crate) struct Unwritten {
    pub(crate) metadata: Bytes,
    pub(crate) payload: Bytes,
}

/// A piece of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// Here, and inside one extent: a single [`Object::read`] returns it.
    Cached(ByteRange),
    /// Not here.
    Missing(ByteRange),
}

impl Piece {
    pub fn range(&self) -> ByteRange {
        match self {
            Self::Cached(range) | Self::Missing(range) => *range,
        }
    }
}

/// A part of the payload of a record.
struct PayloadPart {
    segment: SegmentKey,
    offset: u64,
    head_bytes: usize,
    /// Whether it is the object's own record. Several objects may share an extent.
    is_own_record: bool,
    /// Range of the payload.
    from: usize,
    to: usize,
}

impl Object {
    pub(crate) fn new(
        inner: Arc<Inner>,
        entry: Arc<Entry>,
        segments: Vec<ReadSegment>,
        unwritten: Option<Unwritten>,
    ) -> Self {
        Self { inner, entry, segments: segments.into(), unwritten }
    }

    pub fn key(&self) -> &[u8] {
        self.entry.key()
    }

    pub fn generation(&self) -> Generation {
        self.entry.generation
    }

    /// The whole size, in bytes.
    pub fn size(&self) -> u64 {
        self.entry.size()
    }

    pub fn access(&self) -> Access {
        Access { reads: self.entry.reads.load(Ordering::Relaxed), carried: self.entry.carried }
    }

    /// A number that is greater the later it was read. It says nothing of objects that were never read.
    pub fn last_read(&self) -> u32 {
        self.entry.last_read.load(Ordering::Relaxed)
    }

    pub fn is_pinned(&self) -> bool {
        self.entry.pinned
    }

    pub fn annex(&self) -> &[u8] {
        self.entry.annex()
    }

    /// Bytes of the object that are here.
    pub fn cached_bytes(&self) -> u64 {
        self.entry.cached_bytes()
    }

    /// Bytes of the object's record on disk: its description, and the bytes of a small object.
    pub fn record_bytes(&self) -> u64 {
        let Location { head_bytes, payload_bytes, .. } = self.entry.record;
        u64::from(head_bytes) + u64::from(payload_bytes)
    }

    /// Whether all bytes of the object are here, judged by the lengths of the files: bytes beyond the end of a
    /// truncated file are missing.
    pub fn is_whole(&self) -> bool {
        let ends_inside = |key: SegmentKey, end: u64| self.segment(key).is_ok_and(|segment| end <= segment.length());
        let Location { segment, offset, head_bytes, payload_bytes } = self.entry.record;
        let record = u64::from(offset) + u64::from(head_bytes) + u64::from(payload_bytes);
        let has_extent = |extent: &Extent| {
            let start = u64::from(extent.offset) + u64::from(extent.head_bytes) + u64::from(extent.skip);
            ends_inside(extent.segment, start + u64::from(extent.bytes))
        };
        self.cached_bytes() == self.size()
            && ends_inside(segment, record)
            && self.entry.extents().iter().all(has_extent)
    }

    /// Whether another object of this key is the same version, with its bytes at the same places on the disks.
    pub fn is_same(&self, other: &Self) -> bool {
        let (one, other) = (&self.entry, &other.entry);
        one.generation == other.generation && one.record == other.record && one.extents() == other.extents()
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.segments.iter().map(Deref::deref)
    }

    pub(crate) fn unwritten_payload(&self) -> Option<&Bytes> {
        self.unwritten.as_ref().map(|unwritten| &unwritten.payload)
    }

    /// The opaque metadata, read from disk and verified.
    ///
    /// # Errors
    /// `Corrupt` when the checksum does not match, `Gone` when its room was needed.
    pub async fn metadata(&self) -> Result<Bytes> {
        let mut metadata = self.metadata_here().await;
        while is_gone(&metadata)
            && let Some(present) = self.present()
        {
            metadata = present.metadata_here().await;
        }
        metadata
    }

    /// The same version of the object, where it is now: reclaim may have moved it since it was looked up.
    fn present(&self) -> Option<Self> {
        self.inner.object(self.key()).filter(|present| present.generation() == self.generation())
    }

    async fn metadata_here(&self) -> Result<Bytes> {
        if let Some(unwritten) = &self.unwritten {
            return Ok(unwritten.metadata.clone());
        }
        let record = self.entry.record;
        let read = self.head(record.segment, u64::from(record.offset), record.head_bytes as usize).await;
        let metadata = read.and_then(|(head, _)| {
            self.check_owner(&head)?;
            ObjectBody::decode(&head.body).map(|body| body.metadata.into())
        });
        match metadata {
            Ok(metadata) => Ok(metadata),
            Err(error) => Err(self.damaged(None, error)),
        }
    }

    /// Splits `range` into pieces that are here and pieces that are missing, in order.
    ///
    /// # Panics
    /// When the range ends beyond the object.
    pub fn pieces(&self, range: ByteRange) -> Vec<Piece> {
        assert!(range.end <= self.size(), "a range must end inside the object");
        if self.entry.is_inline() || range.is_empty() {
            return vec![Piece::Cached(range)];
        }
        let extents = self.entry.extents();
        let mut pieces = Vec::new();
        let mut at = range.start;
        for extent in &extents[extents.partition_point(|extent| extent.end() <= range.start)..] {
            let Some(here) = ByteRange::new(extent.start, extent.end()).intersect(range) else { break };
            if at < here.start {
                pieces.push(Piece::Missing(ByteRange::new(at, here.start)));
            }
            pieces.push(Piece::Cached(here));
            at = here.end;
        }
        if at < range.end {
            pieces.push(Piece::Missing(ByteRange::new(at, range.end)));
        }
        pieces
    }

    /// Reads a [`Piece::Cached`] or a part of one, verified.
    ///
    /// # Errors
    /// `Corrupt` when the checksum does not match. The extent of a clean object is then dropped; a pinned one is kept
    /// for examination and stays unreadable. `Gone` when the object is no longer in the store and its room was needed.
    ///
    /// # Panics
    /// When the range is not inside one piece.
    pub async fn read(&self, range: ByteRange) -> Result<Bytes> {
        let mut read = self.read_here(range).await;
        while is_gone(&read)
            && let Some(present) = self.present().filter(|present| present.pieces(range) == [Piece::Cached(range)])
        {
            read = present.read_here(range).await;
        }
        read
    }

    async fn read_here(&self, range: ByteRange) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if self.entry.is_inline() {
            let (from, to) = (range.start as usize, range.end as usize);
            if let Some(payload) = self.unwritten_payload() {
                return Ok(payload.slice(from..to));
            }
            let record = self.entry.record;
            let (offset, head_bytes) = (u64::from(record.offset), record.head_bytes as usize);
            let part = PayloadPart { segment: record.segment, offset, head_bytes, is_own_record: true, from, to };
            return self.read_part(part).await.map_err(|error| self.damaged(None, error));
        }
        let extents = self.entry.extents();
        let extent = extents[extents.partition_point(|extent| extent.end() <= range.start)];
        assert!(extent.start <= range.start && range.end <= extent.end(), "a read must stay inside one piece");
        let from = (range.start - extent.start) as usize + extent.skip as usize;
        let to = from + range.len() as usize;
        let (offset, head_bytes) = (u64::from(extent.offset), extent.head_bytes as usize);
        let part = PayloadPart { segment: extent.segment, offset, head_bytes, is_own_record: false, from, to };
        self.read_part(part).await.map_err(|error| self.damaged(Some(extent), error))
    }

    fn segment(&self, key: SegmentKey) -> Result<&Arc<Segment>> {
        let found = self.segments().find(|segment| segment.key() == key);
        found.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the segment of an extent is gone"))
    }

    /// Reads `bytes` that begin with a head. Returns the verified head, and what follows it.
    async fn head(&self, key: SegmentKey, offset: u64, bytes: usize) -> Result<(Head, Bytes)> {
        let segment = self.segment(key)?;
        let data = segment.read_at(offset, bytes).await?;
        let head = Head::decode(&data)?;
        let rest = data.slice(head.header.head_bytes..);
        let fits = head.header.segment == segment.binding() && !matches!(head.header.kind, Kind::Commit | Kind::Abort);
        if fits { Ok((head, rest)) } else { Err(Error::new(ErrorKind::Corrupt, "another record stands here")) }
    }

    /// # Errors
    /// `Corrupt` when a record is not that of this version of this object.
    fn check_owner(&self, head: &Head) -> Result<()> {
        let is_own = head.header.kind == Kind::Object
            && ObjectBody::decode_owner(&head.body)? == (self.key(), self.generation());
        if is_own { Ok(()) } else { Err(Error::new(ErrorKind::Corrupt, "the record of another object stands here")) }
    }

    #[tracing::instrument(target = SPANS, name = "store.read", skip_all, fields(bytes = (part.to - part.from) as i64))]
    async fn read_part(&self, part: PayloadPart) -> Result<Bytes> {
        let first = part.from / BLOCK_BYTES;
        let start = first * BLOCK_BYTES;
        let (head, data) = if first == 0 {
            // The head and the first blocks are adjacent, so one read gets both.
            let end = part.to.next_multiple_of(BLOCK_BYTES);
            let (head, mut data) = self.head(part.segment, part.offset, part.head_bytes + end).await?;
            data.truncate(end.min(head.header.payload_bytes));
            (head, data)
        } else {
            let (head, _) = self.head(part.segment, part.offset, part.head_bytes).await?;
            let end = part.to.next_multiple_of(BLOCK_BYTES).min(head.header.payload_bytes);
            let segment = self.segment(part.segment)?;
            let at = part.offset + (part.head_bytes + start) as u64;
            (head, segment.read_at(at, end.saturating_sub(start)).await?)
        };
        if part.is_own_record {
            self.check_owner(&head)?;
        }
        if data.len() < part.to - start {
            return Err(Error::new(ErrorKind::Corrupt, "the payload of a record is cut off"));
        }
        head.verify(first, &data)?;
        Ok(data.slice(part.from - start..part.to - start))
    }

    /// Handles damaged bytes: counts and logs them, and drops those of a clean object.
    fn damaged(&self, extent: Option<Extent>, error: Error) -> Error {
        if error.kind == ErrorKind::Gone {
            return error;
        }
        let record = self.entry.record;
        let (segment, offset) =
            extent.map_or((record.segment, record.offset), |extent| (extent.segment, extent.offset));
        let place = self.place_of(segment, u64::from(offset));
        let key = String::from_utf8_lossy(self.key()).into_owned();
        let (pinned, generation) = (self.entry.pinned, self.entry.generation.0);
        let DamagedPlace { directory, file, offset } = &place;
        if self.inner.damaged.note(segment, &place) {
            self.inner.counters.lock().corrupt_records += 1;
            tracing::error!(directory, file, offset, key, generation, pinned, %error, "stored bytes are damaged");
        } else {
            tracing::debug!(directory, file, offset, key, generation, pinned, %error, "stored bytes are damaged");
        }
        if !pinned && self.unwritten.is_none() {
            self.inner.drop_damaged(self.key(), &self.entry, extent);
        }
        Error { kind: ErrorKind::Corrupt, ..error }
    }

    fn place_of(&self, segment: SegmentKey, offset: u64) -> DamagedPlace {
        let volume = self.inner.by_number.get(&segment.directory).map(|index| &self.inner.volumes[*index]);
        let directory = volume.map_or_else(String::new, |volume| volume.directory.disk.label());
        let file = self.segment(segment).map_or_else(|_| segment.number.to_string(), |segment| segment.header.name());
        DamagedPlace { directory, file, offset }
    }

    pub(crate) fn note_read(&self) {
        let reads = &self.entry.reads;
        let _ = reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reads| reads.checked_add(1));
        self.entry.last_read.store(self.inner.objects.tick(), Ordering::Relaxed);
    }
}

impl Inner {
    /// The object, with everything that it needs to stay readable.
    pub(crate) fn object(self: &Arc<Self>, key: &[u8]) -> Option<Object> {
        loop {
            let entry = self.objects.get(key)?;
            match self.segments_of(&entry) {
                Some(segments) => return Some(Object::new(Arc::clone(self), entry, segments, None)),
                // Reclaim has moved the object since the table was read. Only a broken table makes this loop endless.
                None => forebay_env::sync::spin_loop(),
            }
        }
    }

    fn segments_of(&self, entry: &Entry) -> Option<Vec<ReadSegment>> {
        let mut segments: Vec<ReadSegment> = Vec::with_capacity(2);
        for (key, _) in entry.uses() {
            let known = |segment: &ReadSegment| segment.key() == key;
            if !segments.last().is_some_and(known) && !segments.iter().any(known) {
                let volume = &self.volumes[*self.by_number.get(&key.directory)?];
                segments.push(volume.directory.segment_to_read(key.number)?);
            }
        }
        Some(segments)
    }
}

fn is_gone(read: &Result<Bytes>) -> bool {
    read.as_ref().is_err_and(|error| error.kind == ErrorKind::Gone)
}
