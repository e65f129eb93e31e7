//! A part of a multipart upload.

use bytes::Bytes;
use forebay_types::{Checksums, ETag, Generation};
use serde::{Deserialize, Serialize};

use super::{decode, encode};
use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// Of the bytes in the local store.
    pub generation: Generation,
    pub size: u64,
    pub etag: ETag,
    pub checksums: Checksums,
    pub last_modified_ms: u64,
}

impl PartRecord {
    pub fn encode(&self) -> Bytes {
        encode(self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode("part", bytes)
    }
}
