//! A part of a multipart upload.

use bytes::Bytes;
use forebay_types::{Checksums, ETag, Generation};
use serde::{Deserialize, Serialize};

use super::holders::{Holders, decode_held, encode_held};
use super::{VERSION_CHECKSUMS_OF_2026, version_for};
use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// Of the bytes in the local store.
    pub generation: Generation,
    pub size: u64,
    pub etag: ETag,
    pub checksums: Checksums,
    pub last_modified_ms: u64,
    #[serde(skip)]
    pub holders: Holders,
}

impl PartRecord {
    pub fn encode(&self) -> Bytes {
        let version = version_for(self.checksums.values.iter().map(|checksum| checksum.algorithm));
        encode_held(version, self, &self.holders)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (record, holders) = decode_held::<Self>("part", VERSION_CHECKSUMS_OF_2026, bytes)?;
        Ok(Self { holders, ..record })
    }
}
