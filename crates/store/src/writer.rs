//! Objects on their way in.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_types::Generation;

use crate::object::{Object, Unwritten};
use crate::record::extent::ExtentBody;
use crate::record::object::{Extent, ObjectBody};
use crate::segment::{Segment, SegmentKey, SegmentKind, SegmentPin};
use crate::store::Inner;
use crate::table::{Content, Entry, Location};
use crate::{Class, NewObject, Result};

/// Appends the bytes of one object.
pub struct Writer {
    inner: Arc<Inner>,
    directory: usize,
    kind: SegmentKind,
    /// Bytes that no extent holds yet.
    buffer: BytesMut,
    bytes: u64,
    extents: Vec<Extent>,
    kept: Kept,
}

/// The segments that an object to be refers to.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) pins: Vec<SegmentPin>,
}

impl Kept {
    pub(crate) fn keep(&mut self, segment: Arc<Segment>, pin: SegmentPin) {
        if self.segments.iter().all(|kept| kept.key() != segment.key()) {
            self.segments.push(segment);
            self.pins.push(pin);
        }
    }
}

/// An object whose bytes are on their way and that nobody sees before a [`crate::Commit`] publishes it. Dropped, it
/// becomes garbage.
pub struct Staged {
    pub(crate) body: ObjectBody,
    pub(crate) key: Bytes,
    /// The bytes, when the object's record is to hold them.
    pub(crate) payload: Bytes,
    pub(crate) is_inline: bool,
    pub(crate) directory: usize,
    pub(crate) kept: Kept,
    pub(crate) inner: Arc<Inner>,
}

impl Writer {
    pub(crate) fn new(inner: Arc<Inner>, directory: usize, class: Class) -> Self {
        let kind = match class {
            Class::Durable => SegmentKind::Bulk,
            Class::Fill => SegmentKind::Fill,
        };
        let (buffer, kept) = (BytesMut::new(), Kept::default());
        Self { inner, directory, kind, buffer, bytes: 0, extents: Vec::new(), kept }
    }

    /// Appends the next bytes; waits while too many bytes wait for the disks.
    ///
    /// # Errors
    /// `Full` and `Failed`.
    pub async fn append(&mut self, data: Bytes) -> Result<()> {
        self.bytes += data.len() as u64;
        self.buffer.extend_from_slice(&data);
        let extent_bytes = self.inner.settings.extent_bytes_max as usize;
        while self.bytes > self.inner.settings.inline_bytes_max && self.buffer.len() >= extent_bytes {
            let piece = self.buffer.split_to(extent_bytes).freeze();
            self.write_extent(piece).await?;
        }
        Ok(())
    }

    async fn write_extent(&mut self, piece: Bytes) -> Result<()> {
        let start = self.extents.last().map_or(0, Extent::end);
        let bytes = piece.len() as u32;
        let _permit = self.inner.write_permit(piece.len()).await;
        let draft = ExtentBody { start, attach: None }.draft(piece);
        let written = self.inner.stream(self.directory, self.kind).append(draft).await?;
        self.extents.push(extent_at(start, bytes, written.location));
        self.kept.keep(written.segment, written.pin);
        Ok(())
    }

    /// Ends the object. Its bytes are durable when the commit that publishes it is.
    ///
    /// # Errors
    /// `Full` and `Failed`.
    ///
    /// # Panics
    /// When more bytes were appended than the object has.
    pub async fn finish(mut self, object: NewObject) -> Result<Staged> {
        assert!(self.bytes <= object.size, "an object of {} bytes got {}", object.size, self.bytes);
        let is_inline =
            self.extents.is_empty() && self.bytes == object.size && self.bytes <= self.inner.settings.inline_bytes_max;
        let rest = std::mem::take(&mut self.buffer).freeze();
        if !is_inline && !rest.is_empty() {
            self.write_extent(rest.clone()).await?;
        }
        let payload = if is_inline { rest } else { Bytes::new() };
        Ok(Staged::new(self.inner, self.directory, object, self.extents, payload, is_inline, self.kept))
    }
}

pub(crate) fn extent_at(start: u64, bytes: u32, location: Location) -> Extent {
    let Location { segment, offset, head_bytes, .. } = location;
    Extent { start, bytes, segment, offset, head_bytes, skip: 0 }
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
        Self { body, key, payload, is_inline, directory, kept, inner }
    }

    /// With another annex: what became known of the object since its end.
    #[must_use]
    pub fn with_annex(mut self, annex: &[u8]) -> Self {
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

    /// The object, readable before anybody else sees it: WRITE_THROUGH uploads from here.
    pub fn object(&self) -> Object {
        let nowhere = SegmentKey { directory: 0, number: 0 };
        let payload_bytes = self.payload.len() as u32;
        let location = Location { segment: nowhere, offset: 0, head_bytes: 0, payload_bytes };
        let entry = Arc::new(self.entry(location));
        let metadata = Bytes::copy_from_slice(&self.body.metadata);
        let unwritten = Unwritten { metadata, payload: self.payload.clone() };
        Object::new(Arc::clone(&self.inner), entry, self.kept.segments.clone(), Some(unwritten))
    }

    pub(crate) fn entry(&self, record: Location) -> Entry {
        entry_of(&self.body, record, self.is_inline)
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
