//! A multipart upload.

use bytes::Bytes;
use forebay_types::{Algorithm, ChecksumKind, Checksums, ETag, SystemHeaders, Tags, UserMetadata};
use serde::{Deserialize, Serialize};

use super::{VERSION_CHECKSUMS_OF_2026, decode, encode, version_for};
use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadRecord {
    pub created_ms: u64,
    /// Owner id of the user who began it.
    pub owner: String,
    pub headers: SystemHeaders,
    pub user: UserMetadata,
    pub tags: Tags,
    pub checksum_algorithm: Option<Algorithm>,
    pub checksum_kind: Option<ChecksumKind>,
    /// Set by the completion, and kept for a while so that a repeated completion gets the same answer.
    pub completed: Option<CompletedUpload>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedUpload {
    pub etag: ETag,
    pub size: u64,
    pub checksums: Checksums,
    pub completed_ms: u64,
}

impl UploadRecord {
    pub fn encode(&self) -> Bytes {
        let completed = self.completed.iter().flat_map(|completed| &completed.checksums.values);
        let algorithms = completed.map(|checksum| checksum.algorithm).chain(self.checksum_algorithm);
        encode(version_for(algorithms), self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode("upload", VERSION_CHECKSUMS_OF_2026, bytes)
    }
}
