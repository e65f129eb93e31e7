//! A part of a multipart upload.

use bytes::Bytes;
use forebay_types::{Checksums, ETag, Generation};
use serde::{Deserialize, Serialize};

use super::{VERSION_CHECKSUMS_OF_2026, decode, encode, version_for};
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
        encode(version_for(self.checksums.values.iter().map(|checksum| checksum.algorithm)), self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode("part", VERSION_CHECKSUMS_OF_2026, bytes)
    }
}
