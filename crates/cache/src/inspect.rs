//! What the cache knows of objects, for operators.

use forebay_types::{BucketName, ObjectPath};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Cache, ListObjects, Result};

/// Where an object stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheState {
    /// The under store has it.
    Clean,
    /// Goes to the under store.
    Dirty,
    /// Stays here and never goes to the under store.
    Transient,
    /// Somebody else has changed the under store's object while ours was dirty.
    Conflict,
}

/// Where the bytes of an object are that are read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheTier {
    Memory,
    Disk,
    UnderStore,
}

/// An object in a listing, with what the cache holds of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CachedObject {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub last_modified_ms: u64,
    pub state: CacheState,
    /// The nearest tier that holds the whole object.
    pub tier: CacheTier,
    /// Bytes of it on the local disks.
    pub cached_bytes: u64,
}

/// Objects and common prefixes, each in byte order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CachedPage {
    pub objects: Vec<CachedObject>,
    pub prefixes: Vec<String>,
    /// Where the next page starts after, when there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A stretch of an object's bytes on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CachedRange {
    pub start: u64,
    /// The first byte behind it.
    pub end: u64,
}

/// A try to bring an object to the under store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistEvent {
    pub time_ms: u64,
    /// `stored`, `deleted`, `conflict` or `failed`.
    pub outcome: String,
    /// The generation that was sent.
    pub generation: u64,
    pub bytes: u64,
    pub duration_ms: u64,
    /// Why it failed, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// All that is known of one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDetail {
    pub path: String,
    pub size: u64,
    pub etag: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    pub last_modified_ms: u64,
    pub state: CacheState,
    pub tier: CacheTier,
    pub cached_bytes: u64,
    /// What is on disk, in order; neighbours are joined. At most a thousand.
    pub cached_ranges: Vec<CachedRange>,
    /// Size of a page of the read cache, in bytes.
    pub page_size: u64,
    /// Copies on workers, this one included.
    pub replicas: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The under store's own tag, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_since_ms: Option<u64>,
    /// In how many milliseconds a try follows that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_in_ms: Option<u64>,
    pub user_metadata: std::collections::BTreeMap<String, String>,
    pub tags: std::collections::BTreeMap<String, String>,
    /// The newest first, as far as it is remembered: the last ten thousand tries of all objects since the start.
    pub persist_events: Vec<PersistEvent>,
}

impl Cache {
    /// Lists objects with what the cache holds of each. Reads no bytes and changes nothing, the order of eviction included.
    ///
    /// # Errors
    /// As [`Cache::list`].
    pub async fn list_cached(&self, _bucket: &BucketName, _request: &ListObjects) -> Result<CachedPage> {
        todo!("package A")
    }

    /// # Errors
    /// As [`Cache::head`].
    pub async fn object_detail(&self, _path: &ObjectPath) -> Result<ObjectDetail> {
        todo!("package A")
    }
}
