//! Where records are.

use serde::{Deserialize, Serialize};

use super::Draft;
use crate::ids::SegmentKey;

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    pub(crate) segment: SegmentKey,
    pub(crate) offset: u32,
    pub(crate) head_bytes: u32,
    pub(crate) payload_bytes: u32,
}

/// A place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Position {
    pub(crate) segment: u32,
    pub(crate) offset: u64,
}

pub(crate) fn location(segment: SegmentKey, offset: u64, draft: &Draft) -> Location {
    Location {
        segment,
        offset: u32::try_from(offset).expect("segments are smaller than 4 GiB"),
        head_bytes: draft.head_bytes() as u32,
        payload_bytes: draft.payload.len() as u32,
    }
}
