//! Requests to the cache and its answers.

use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::records::ObjectRecord;
use forebay_types::{
    Algorithm, BucketName, ByteRange, Checksum, ChecksumKind, ChecksumNames, Checksums, ETag, Generation, ObjectInfo,
    ObjectPath, PartInfo, StorageState, SystemHeaders, Tags, UserMetadata,
};
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::Result;

/// Incoming or outgoing bytes. An error ends the stream, and a caller that passes them on must not make it look
/// complete.
pub type ByteStream = BoxStream<'static, Result<Bytes>>;

/// Called after the last byte of a body. Returns the checksums from its trailers.
pub type Trailers = Box<dyn FnOnce() -> Result<Vec<Checksum>> + Send>;

/// An incoming body, and what it must match. Nothing becomes visible before all of it matches.
pub struct Incoming {
    pub stream: ByteStream,
    /// Exact number of bytes, after aws-chunked decoding.
    pub size: u64,
    pub md5: Option<[u8; 16]>,
    /// From `x-amz-content-sha256`, when it is a hash.
    pub sha256: Option<[u8; 32]>,
    /// From `x-amz-checksum-*` headers.
    pub checksums: Vec<Checksum>,
    /// Algorithms to compute although no header has a value: those announced in `x-amz-trailer`.
    pub compute: Vec<Algorithm>,
    pub trailers: Option<Trailers>,
}

/// What a client says about an object that it writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    pub headers: SystemHeaders,
    pub user: UserMetadata,
    pub tags: Tags,
}

/// Conditional headers. Only the first two apply to writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    pub if_match: Option<TagCondition>,
    pub if_none_match: Option<TagCondition>,
    /// Milliseconds since the Unix epoch, whole seconds.
    pub if_modified_since_ms: Option<u64>,
    pub if_unmodified_since_ms: Option<u64>,
    /// `If-Range`: the range applies only to this version. For any other version, the whole object is returned.
    pub if_range: Option<IfRange>,
}

/// The value of `If-Match` or `If-None-Match`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TagCondition {
    /// `*`
    Any,
    OneOf(Vec<ETag>),
}

pub struct PutObject {
    pub path: ObjectPath,
    pub body: Incoming,
    pub attributes: Attributes,
    pub conditions: Conditions,
}

/// The answer to a write of an object or a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    pub etag: ETag,
    pub last_modified_ms: u64,
    pub size: u64,
    pub checksums: Checksums,
}

/// The version of which a client has a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum IfRange {
    Tag(ETag),
    /// The time of its last change, in milliseconds since the Unix epoch, to the second.
    UnchangedSince(u64),
}

/// The range of a request, before the size is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RangeRequest {
    /// `bytes=first-` or `bytes=first-last`, both inclusive as in the header.
    From { first: u64, last: Option<u64> },
    /// `bytes=-length`: the last bytes.
    Suffix { length: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetObject {
    pub path: ObjectPath,
    pub range: Option<RangeRequest>,
    /// One part of a multipart object. It excludes a range.
    pub part_number: Option<u32>,
    pub conditions: Conditions,
    /// Whether the under store must be asked first, whatever `metadataTtl` and `listTtl` of the policy say: about a
    /// clean copy, or an object that it did not have a moment ago. What it does not have yet is answered from here.
    pub no_cache: bool,
}

impl GetObject {
    /// Reads all of an object.
    pub fn whole(path: ObjectPath) -> Self {
        Self { path, range: None, part_number: None, conditions: Conditions::default(), no_cache: false }
    }
}

/// The answer to HEAD.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObjectHead {
    pub info: Arc<ObjectInfo>,
    pub state: StorageState,
    /// Bytes of the object that are in the cache.
    pub cached_bytes: u64,
    /// The requested range, or the whole object.
    pub range: ByteRange,
    /// Whether a range or a part was requested, and `If-Range` allowed it.
    pub is_partial: bool,
    /// The generation of the local version, or of the write from which the under store has it. `None` if Forebay has
    /// not written the object. If it is equal twice, Forebay has not written the object in between.
    pub generation: Option<Generation>,
}

/// The answer to GET.
pub struct ObjectBody {
    pub head: ObjectHead,
    /// Exactly the bytes of `head.range`, all of one version.
    pub stream: ByteStream,
}

pub struct CopyObject {
    pub source: ObjectPath,
    pub source_conditions: Conditions,
    pub target: ObjectPath,
    /// `None` copies the source's headers and user metadata.
    pub replace_metadata: Option<(SystemHeaders, UserMetadata)>,
    /// Of the copy. It never inherits the source's.
    pub storage_class: Option<String>,
    /// Of the copy. It never inherits the source's.
    pub website_redirect_location: Option<String>,
    /// `None` copies the source's tags.
    pub replace_tags: Option<Tags>,
    /// A checksum algorithm other than the source's.
    pub checksum_algorithm: Option<Algorithm>,
    pub conditions: Conditions,
}

#[derive(Debug, Clone, Default)]
pub struct ListObjects {
    pub prefix: String,
    pub delimiter: Option<String>,
    /// Only keys and common prefixes after this one. If it is a common prefix, keys below it are skipped, too.
    pub start_after: Option<String>,
    /// The most keys and common prefixes together, 0 to 1,000.
    pub limit: usize,
    /// Whether the under store must be asked, whatever the policy's `listTtl`.
    pub revalidates: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedObject {
    pub key: String,
    pub size: u64,
    pub etag: ETag,
    pub last_modified_ms: u64,
    pub storage_class: Option<String>,
    pub checksums: Option<ChecksumNames>,
}

impl ListedObject {
    pub(crate) fn described(path: &ObjectPath, info: &ObjectInfo) -> Self {
        Self {
            key: path.key.as_str().to_owned(),
            size: info.size,
            etag: info.etag.clone(),
            last_modified_ms: info.last_modified_ms,
            storage_class: info.headers.storage_class.clone(),
            checksums: info.checksums.names(),
        }
    }

    /// How `record`, which is not a tombstone, appears in a listing.
    pub(crate) fn of(path: &ObjectPath, record: &ObjectRecord, checksums: Option<ChecksumNames>) -> Self {
        Self {
            key: path.key.as_str().to_owned(),
            size: record.size,
            etag: record.etag.clone(),
            last_modified_ms: record.last_modified_ms,
            storage_class: record.storage_class.clone(),
            checksums,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectPage {
    pub objects: Vec<ListedObject>,
    pub prefixes: Vec<String>,
    /// The `start_after` of the next page, if there is one.
    pub next: Option<String>,
}

pub struct CreateUpload {
    pub path: ObjectPath,
    pub attributes: Attributes,
    pub checksum_algorithm: Option<Algorithm>,
    pub checksum_kind: Option<ChecksumKind>,
    /// Owner id of the user.
    pub owner: String,
}

/// Identifies one multipart upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRef {
    pub path: ObjectPath,
    pub upload_id: String,
}

pub struct CopyPart {
    pub upload: UploadRef,
    pub number: u32,
    pub source: ObjectPath,
    pub source_conditions: Conditions,
    /// Inclusive as in the header; must lie inside the source.
    pub range: Option<(u64, u64)>,
}

pub struct CompleteUpload {
    pub upload: UploadRef,
    pub parts: Vec<CompletePart>,
    /// The whole object's checksum from the client.
    pub checksums: Vec<Checksum>,
    /// The checksum type with which the client says that it created the upload.
    pub checksum_kind: Option<ChecksumKind>,
    /// `x-amz-mp-object-size`.
    pub size: Option<u64>,
    pub conditions: Conditions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletePart {
    pub number: u32,
    pub etag: ETag,
    pub checksums: Vec<Checksum>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPart {
    pub part: PartInfo,
    pub etag: ETag,
    pub last_modified_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartPage {
    pub parts: Vec<ListedPart>,
    pub is_truncated: bool,
    pub checksum_algorithm: Option<Algorithm>,
    pub checksum_kind: Option<ChecksumKind>,
    pub owner: String,
    pub storage_class: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct ListUploads {
    pub prefix: String,
    pub delimiter: Option<String>,
    pub key_marker: Option<String>,
    pub upload_id_marker: Option<String>,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedUpload {
    pub key: String,
    pub upload_id: String,
    pub created_ms: u64,
    pub owner: String,
    pub storage_class: Option<String>,
    pub checksum_algorithm: Option<Algorithm>,
    pub checksum_kind: Option<ChecksumKind>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadPage {
    pub uploads: Vec<ListedUpload>,
    pub prefixes: Vec<String>,
    pub is_truncated: bool,
    pub next_key_marker: Option<String>,
    pub next_upload_id_marker: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSummary {
    pub name: BucketName,
    pub created_ms: u64,
}
