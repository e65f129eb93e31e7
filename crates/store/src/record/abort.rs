//! The record that aborts others: commits that a directory took just before it failed, and that were not acknowledged.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Draft, Kind, decode_body, encode_body};
use crate::Result;
use crate::ids::SegmentKey;

/// A range of records of one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AbortBody {
    pub(crate) segment: SegmentKey,
    /// The first and the last sequence.
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl AbortBody {
    pub(crate) fn draft(&self) -> Draft {
        Draft { kind: Kind::Abort, body: encode_body(self), payload: Bytes::new() }
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self> {
        decode_body(body)
    }

    pub(crate) fn covers(&self, segment: SegmentKey, sequence: u64) -> bool {
        self.segment == segment && (self.first..=self.last).contains(&sequence)
    }
}
