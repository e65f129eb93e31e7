//! Settings of the cache.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_types::{BucketName, ByteSize, Period};
use forebay_ufs::{BucketRoot, UnderStore};
use serde::{Deserialize, Serialize};

/// The under stores of buckets. A mount hides a bucket of the same name in `root`.
#[derive(Clone)]
pub struct Mounts {
    pub mounts: BTreeMap<BucketName, Mount>,
    pub root: Option<Arc<dyn BucketRoot>>,
    /// The same under stores for background work, so that uploads never queue before reads.
    pub background_root: Option<Arc<dyn BucketRoot>>,
}

/// The under store of one bucket, for requests and for background work.
#[derive(Clone)]
pub struct Mount {
    pub foreground: Arc<dyn UnderStore>,
    pub background: Arc<dyn UnderStore>,
}

/// The settings that operators can change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Size of a page of the read cache.
    pub page_size: ByteSize,
    /// Pages that are prefetched for a sequential reader.
    pub read_ahead_pages: u32,
    /// Size of the memory tier, without the memory quotas of policies.
    pub memory_size: ByteSize,
    /// Largest object or page that the memory tier takes.
    pub memory_object_max: ByteSize,
    /// Share of the cache that data without a persisted copy may take, from 0 to 1.
    pub pinned_ratio: f64,
    /// Concurrent uploads to the under stores. There are fewer for large objects.
    pub persist_concurrency: u32,
    /// First backoff after a failed upload. It doubles with every failure.
    pub persist_backoff_min: Period,
    /// Longest backoff between uploads of one object.
    pub persist_backoff_max: Period,
    /// While nothing is pending, how long a new write waits for others before its upload. Uploads that begin together
    /// share their way through the runtime and the sync of their records. Zero in tests whose clock stands still.
    #[serde(skip)]
    pub persist_delay: Period,
    /// How long nothing else is sent for an object after a request whose answer was lost. After a crash, this applies
    /// to everything that is dirty.
    pub settle_time: Period,
    /// Multipart uploads and other leftovers are removed after this time without activity.
    pub leftover_timeout: Period,
    /// How often the sweep looks for leftovers.
    pub leftover_interval: Period,
    /// Minimum size of a part of a multipart upload, except its last. S3 requires 5 MiB.
    pub part_size_min: ByteSize,
    /// On shutdown, how long requests in flight may take, and uploads after them.
    pub drain_timeout: Period,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            page_size: ByteSize(1 << 20),
            read_ahead_pages: 16,
            memory_size: ByteSize(256 << 20),
            memory_object_max: ByteSize(1 << 20),
            pinned_ratio: 0.3,
            persist_concurrency: 256,
            persist_backoff_min: Period::from_secs(1),
            persist_backoff_max: Period::from_secs(3600),
            persist_delay: Period(Duration::from_millis(5)),
            settle_time: Period::from_secs(30),
            leftover_timeout: Period::from_secs(3600),
            leftover_interval: Period::from_secs(600),
            part_size_min: ByteSize(forebay_types::limits::PART_BYTES_MIN),
            drain_timeout: Period::from_secs(30),
        }
    }
}
