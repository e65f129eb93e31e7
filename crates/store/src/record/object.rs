//! The record of an object: its description, and its bytes or where they are.

use bytes::Bytes;
use forebay_types::Generation;
use serde::{Deserialize, Serialize};

use super::location::Location;
use super::{Draft, Kind, decode_body, encode_body};
use crate::Result;
use crate::ids::SegmentKey;

/// The body. The payload holds the bytes of a small object, and is empty when `extents` names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectBody {
    pub(crate) key: Vec<u8>,
    pub(crate) generation: Generation,
    pub(crate) metadata: Vec<u8>,
    pub(crate) annex: Vec<u8>,
    pub(crate) pinned: bool,
    pub(crate) group: u32,
    pub(crate) size: u64,
    pub(crate) extents: Vec<Extent>,
    /// The record counts by itself: it is a fill, or a copy that reclaim made. Other records count when a commit
    /// publishes them.
    pub(crate) stands_alone: bool,
    /// A copy that reclaim made.
    pub(crate) carried: bool,
}

/// A piece of an object in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    /// Offset in the object.
    pub(crate) start: u64,
    pub(crate) bytes: u32,
    pub(crate) segment: SegmentKey,
    /// Where the record begins in the segment.
    pub(crate) offset: u32,
    pub(crate) head_bytes: u32,
    /// Where the piece begins in the record's payload.
    pub(crate) skip: u32,
}

impl Extent {
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.bytes)
    }
}

impl ObjectBody {
    pub(crate) fn draft(&self, payload: Bytes) -> Draft {
        Draft { kind: Kind::Object, body: encode_body(self), payload }
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self> {
        decode_body(body)
    }

    /// Decodes only the key and the generation, which come first.
    pub(crate) fn decode_owner(body: &[u8]) -> Result<(&[u8], Generation)> {
        decode_body(body)
    }
}

pub(crate) fn extent_at(start: u64, bytes: u32, location: Location) -> Extent {
    let Location { segment, offset, head_bytes, .. } = location;
    Extent { start, bytes, segment, offset, head_bytes, skip: 0 }
}
