//! What is known of an object besides its bytes.

use serde::{Deserialize, Serialize};

use crate::{Checksums, ETag};

/// `x-amz-meta-*` without the prefix, names in lower case, sorted by name.
pub type UserMetadata = std::collections::BTreeMap<String, String>;

/// Object tags, sorted by key.
pub type Tags = std::collections::BTreeMap<String, String>;

/// Everything that HEAD tells of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// In bytes.
    pub size: u64,
    /// What clients see.
    pub etag: ETag,
    /// Milliseconds since the Unix epoch; S3 shows whole seconds.
    pub last_modified_ms: u64,
    pub headers: SystemHeaders,
    pub user: UserMetadata,
    pub tags: Tags,
    pub checksums: Checksums,
    /// The parts of a multipart upload in order, empty for an object put in one piece.
    pub parts: Vec<PartInfo>,
}

/// The standard headers that S3 stores with an object and sends back as they came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemHeaders {
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub content_language: Option<String>,
    pub content_disposition: Option<String>,
    pub cache_control: Option<String>,
    pub expires: Option<String>,
    pub website_redirect_location: Option<String>,
    /// `None` is STANDARD.
    pub storage_class: Option<String>,
}

/// Bytes of a text in a header: what a header can't carry as it is goes in base64, as RFC 2047 has it.
pub fn sent_bytes(text: &str) -> usize {
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && text.trim() == text;
    if is_plain { text.len() } else { "=?UTF-8?B?".len() + text.len().div_ceil(3) * 4 + "?=".len() }
}

/// Bytes that attributes take in the headers of a request to S3.
pub fn header_bytes(headers: &SystemHeaders, user: &UserMetadata, tags: &Tags) -> usize {
    let SystemHeaders { content_type, content_encoding, content_language, content_disposition, .. } = headers;
    let SystemHeaders { cache_control, expires, website_redirect_location, storage_class, .. } = headers;
    let first = [content_type, content_encoding, content_language, content_disposition];
    let second = [cache_control, expires, website_redirect_location, storage_class];
    let system = first.into_iter().chain(second).flatten().map(|value| NAME_BYTES + sent_bytes(value));
    let user = user.iter().map(|(name, value)| NAME_BYTES + name.len() + sent_bytes(value));
    let encoded = |text: &str| -> usize {
        let bytes =
            text.bytes().map(|byte| if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) { 1 } else { 3 });
        bytes.sum()
    };
    let tags = tags.iter().map(|(key, value)| 2 + encoded(key) + encoded(value));
    system.chain(user).chain(tags).sum()
}

/// A header's name, `: ` and the end of its line: `x-amz-website-redirect-location` is the longest.
const NAME_BYTES: usize = 35;

/// One part of a completed multipart upload, as GetObjectAttributes and `?partNumber=` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartInfo {
    pub number: u32,
    /// In bytes.
    pub size: u64,
    pub checksums: Checksums,
}

/// Where an object stands, for the `x-forebay-state` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageState {
    /// Not in the under store yet.
    Dirty,
    /// The under store has it.
    Clean,
    /// Never goes to the under store.
    Transient,
}

impl ObjectInfo {
    /// An object with these essentials and nothing else.
    pub fn new(size: u64, etag: ETag, last_modified_ms: u64) -> Self {
        Self {
            size,
            etag,
            last_modified_ms,
            headers: SystemHeaders::default(),
            user: UserMetadata::new(),
            tags: Tags::new(),
            checksums: Checksums::none(),
            parts: Vec::new(),
        }
    }
}

impl StorageState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dirty => "dirty",
            Self::Clean => "clean",
            Self::Transient => "transient",
        }
    }
}
