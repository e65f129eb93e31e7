//! Objects that are being written.

mod waiting;

use std::sync::Arc;

use bytes::Bytes;
use forebay_types::Generation;

use crate::ids::SegmentKey;
use crate::inner::Inner;
use crate::kept::Kept;
use crate::object::{Object, Unwritten};
use crate::prepared::PreparedEntry;
use crate::record::extent::ExtentBody;
use crate::record::location::Location;
use crate::record::object::{Extent, ObjectBody, extent_at};
use crate::record::{HEAD_BYTES_MAX, encode_body};
use crate::room::Room;
use crate::segment::{ReadSegment, SegmentKind};
use crate::table::{Entry, entry_of};
use crate::{Class, Error, ErrorKind, NewObject, Result};
use waiting::Waiting;

/// An object with fewer extents always fits into a record: each takes at most 38 bytes of it.
const EXTENTS_UNCHECKED: usize = 1 << 20;

/// Bytes of a record's head that are left free for an annex that is set later.
const ANNEX_ROOM: usize = 64 << 10;

/// Appends the bytes of one object.
pub struct Writer {
    room: Room,
    kind: SegmentKind,
    /// The expected size. No memory is reserved before bytes arrive.
    size_hint: u64,
    /// Bytes that no extent holds yet.
    waiting: Waiting,
    bytes: u64,
    extents: Vec<Extent>,
    /// The bytes of the extents, when the caller wants all of them at the end.
    whole: Option<Vec<Bytes>>,
    kept: Kept,
}

/// An object that nobody sees before a [`crate::Commit`] publishes it; its bytes may still be on their way to the disk.
/// If it is dropped, it becomes garbage.
pub struct Staged {
    pub(crate) body: ObjectBody,
    pub(crate) key: Bytes,
    /// The bytes, when the object's record holds them.
    pub(crate) payload: Bytes,
    pub(crate) is_inline: bool,
    pub(crate) directory: usize,
    pub(crate) kept: Kept,
    /// Set once the object's record is in a log.
    pub(crate) prepared: Option<PreparedEntry>,
    pub(crate) inner: Arc<Inner>,
}

impl Writer {
    pub(crate) fn new(room: Room, class: Class, size_hint: u64) -> Self {
        let kind = match class {
            Class::Durable => SegmentKind::Bulk,
            Class::Fill => SegmentKind::Fill,
        };
        let (waiting, extents, kept) = (Waiting::default(), Vec::new(), Kept::default());
        Self { room, kind, size_hint, waiting, bytes: 0, extents, whole: None, kept }
    }

    /// Keeps all bytes in memory for [`Writer::whole`], also those that are already written. Must be called before the
    /// first bytes come.
    pub fn keep_whole(&mut self) {
        assert_eq!(self.bytes, 0, "the first bytes would be missing");
        self.whole = Some(Vec::new());
    }

    /// All bytes so far in one piece. Those that are not written yet are shared with the store. `None` unless
    /// [`Writer::keep_whole`] was called. Bytes that come later are not kept.
    pub fn whole(&mut self) -> Option<Bytes> {
        let mut pieces = self.whole.take()?;
        let rest = self.waiting.join();
        if !rest.is_empty() {
            pieces.push(rest);
        }
        Some(if pieces.len() > 1 { Bytes::from(pieces.concat::<u8>()) } else { pieces.pop().unwrap_or_default() })
    }

    /// Appends the next bytes. Waits while too many bytes wait for the disks. Bytes that do not fill an extent yet are
    /// held without a permit, and take about as much memory as has come.
    ///
    /// # Errors
    /// `Full`, `Busy` and `Failed`.
    pub async fn append(&mut self, mut data: Bytes) -> Result<()> {
        let mut expected = self.size_hint.saturating_sub(self.bytes);
        self.bytes += data.len() as u64;
        let extent_bytes = self.room.inner.settings.extent_bytes_max as usize;
        while self.bytes > self.room.inner.settings.inline_bytes_max && self.waiting.len() + data.len() >= extent_bytes
        {
            let missing = extent_bytes.saturating_sub(self.waiting.len());
            let last = data.split_to(missing);
            expected = expected.saturating_sub(missing as u64);
            // Boxed, so that small objects do not move the state of this future about.
            Box::pin(self.write_extent(last, extent_bytes)).await?;
        }
        self.waiting.push(&data, expected);
        Ok(())
    }

    /// Writes the next extent: the bytes that wait, followed by `last`.
    async fn write_extent(&mut self, last: Bytes, bytes: usize) -> Result<()> {
        let start = self.extents.last().map_or(0, Extent::end);
        // Taken before the bytes are joined into one piece, which takes as much memory again.
        let permit = self.room.inner.permit_in_time(self.room.directory, bytes).await?;
        self.room.begin_write(bytes as u64);
        let piece = if self.waiting.is_empty() {
            last
        } else {
            self.waiting.push(&last, last.len() as u64);
            self.waiting.take(bytes)
        };
        assert_eq!(piece.len(), bytes, "an extent has the bytes that it was given");
        if let Some(whole) = &mut self.whole {
            whole.push(piece.clone());
        }
        let bytes = bytes as u32;
        let draft = ExtentBody { start, attach: None }.draft(piece);
        let written = self.room.inner.append_in_time(self.room.directory, self.kind, draft, Some(permit)).await?;
        self.extents.push(extent_at(start, bytes, written.location));
        self.kept.keep(written.segment, written.pin);
        Ok(())
    }

    /// Ends the object. Its bytes become durable with the commit that publishes it.
    ///
    /// # Errors
    /// `Full`, `Busy` and `Failed`; `TooLarge` when it has more extents than a record can name.
    ///
    /// # Panics
    /// When more bytes were appended than the object has.
    pub async fn finish(mut self, object: NewObject) -> Result<Staged> {
        assert!(self.bytes <= object.size, "an object of {} bytes got {}", object.size, self.bytes);
        let is_inline = self.extents.is_empty()
            && self.bytes == object.size
            && self.bytes <= self.room.inner.settings.inline_bytes_max;
        let rest = self.waiting.len();
        if !is_inline && rest > 0 {
            Box::pin(self.write_extent(Bytes::new(), rest)).await?;
        }
        let payload = if is_inline { self.waiting.take(rest) } else { Bytes::new() };
        let inner = Arc::clone(&self.room.inner);
        // Nothing of it is on the disk yet, so it need not wait for a disk that has stalled meanwhile.
        let is_free = is_inline && inner.is_stalled(self.room.directory);
        let directory = if is_free { inner.roomiest()? } else { self.room.directory };
        Staged::new(inner, directory, object, self.extents, payload, is_inline, self.kept).checked()
    }
}

impl Staged {
    pub(crate) fn new(
        inner: Arc<Inner>,
        directory: usize,
        object: NewObject,
        extents: Vec<Extent>,
        payload: Bytes,
        is_inline: bool,
        kept: Kept,
    ) -> Self {
        let NewObject { key, generation, metadata, annex, pinned, group, size } = object;
        let body = ObjectBody {
            key: key.to_vec(),
            generation,
            metadata: metadata.to_vec(),
            annex: annex.to_vec(),
            pinned,
            group,
            size,
            extents,
            stands_alone: false,
            carried: false,
        };
        Self { body, key, payload, is_inline, directory, kept, prepared: None, inner }
    }

    /// # Errors
    /// `TooLarge` when readers would refuse its record.
    pub(crate) fn checked(self) -> Result<Self> {
        let is_large = self.body.extents.len() >= EXTENTS_UNCHECKED;
        if is_large && encode_body(&self.body).len() > HEAD_BYTES_MAX - ANNEX_ROOM {
            let (bytes, pieces) = (self.body.size, self.body.extents.len());
            let problem = format!("an object of {bytes} bytes in {pieces} pieces is more than one record can name");
            return Err(Error::new(ErrorKind::TooLarge, problem));
        }
        Ok(self)
    }

    /// Replaces the annex, with what became known after the object was finished. Not for a prepared object, whose
    /// record already holds the annex.
    #[must_use]
    pub fn with_annex(mut self, annex: &[u8]) -> Self {
        assert!(self.prepared.is_none(), "the record of the object is written");
        self.body.annex = annex.to_vec();
        self
    }

    /// The key that it will be published under.
    pub fn key(&self) -> &Bytes {
        &self.key
    }

    /// Its generation.
    pub fn generation(&self) -> Generation {
        self.body.generation
    }

    /// The object, readable before anybody else sees it. WRITE_THROUGH uploads from here.
    pub fn object(&self) -> Object {
        let segments = self.kept.segments.iter().cloned().map(ReadSegment::new).collect();
        if let Some(prepared) = &self.prepared {
            return Object::new(Arc::clone(&self.inner), Arc::clone(prepared.entry()), segments, None);
        }
        let nowhere = SegmentKey { directory: 0, number: 0 };
        let payload_bytes = self.payload.len() as u32;
        let location = Location { segment: nowhere, offset: 0, head_bytes: 0, payload_bytes };
        let entry = Arc::new(self.entry(location));
        let metadata = Bytes::copy_from_slice(&self.body.metadata);
        let unwritten = Unwritten { metadata, payload: self.payload.clone() };
        Object::new(Arc::clone(&self.inner), entry, segments, Some(unwritten))
    }

    pub(crate) fn entry(&self, record: Location) -> Entry {
        entry_of(&self.body, record, self.is_inline)
    }
}
