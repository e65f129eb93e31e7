//! A multipart upload.

use bytes::Bytes;
use forebay_types::{Algorithm, ChecksumKind, Checksums, ETag, Generation, SystemHeaders, Tags, UserMetadata};
use serde::{Deserialize, Serialize};

use super::{VERSION_SENT, decode, encode, version_for};
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
    /// The generation that a conditional completion sends to the under store, whose answer may be lost.
    #[serde(skip)]
    pub sent: Option<Generation>,
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
        if let Some(sent) = self.sent {
            return encode(VERSION_SENT, &(self, sent));
        }
        let completed = self.completed.iter().flat_map(|completed| &completed.checksums.values);
        let algorithms = completed.map(|checksum| checksum.algorithm).chain(self.checksum_algorithm);
        encode(version_for(algorithms), self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.first() != Some(&VERSION_SENT) {
            return decode("upload", VERSION_SENT, bytes);
        }
        let (record, sent): (Self, Generation) = decode("upload", VERSION_SENT, bytes)?;
        Ok(Self { sent: Some(sent), ..record })
    }
}
