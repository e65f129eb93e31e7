//! The record of an extent: a piece of an object, as its payload.

use bytes::Bytes;
use forebay_types::Generation;
use serde::{Deserialize, Serialize};

use super::{Draft, Kind, decode_body, encode_body};
use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExtentBody {
    /// Offset in the object.
    pub(crate) start: u64,
    /// The object that the extent is added to. `None` when the object's own record names the extent.
    pub(crate) attach: Option<(Vec<u8>, Generation)>,
}

impl ExtentBody {
    pub(crate) fn draft(&self, payload: Bytes) -> Draft {
        Draft { kind: Kind::Extent, body: encode_body(self), payload }
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self> {
        decode_body(body)
    }
}
