//! Settings of the cache.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_types::{BucketName, ByteSize, Period};
use forebay_ufs::{BucketRoot, UnderStore};
use serde::{Deserialize, Serialize};

/// Where buckets are. A mount hides a bucket of the same name in `root`.
#[derive(Clone)]
pub struct Mounts {
    pub mounts: BTreeMap<BucketName, Mount>,
    pub root: Option<Arc<dyn BucketRoot>>,
    /// The same under stores for background work: uploads never queue before reads.
    pub background_root: Option<Arc<dyn BucketRoot>>,
}

/// One bucket's place, for requests and for background work.
#[derive(Clone)]
pub struct Mount {
    pub foreground: Arc<dyn UnderStore>,
    pub background: Arc<dyn UnderStore>,
}

/// Numbers that operators may change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Size of a page of the read cache.
    pub page_size: ByteSize,
    /// Pages fetched ahead of a sequential reader.
    pub read_ahead_pages: u32,
    /// Size of the memory tier, without the memory quotas of policies.
    pub memory_size: ByteSize,
    /// Largest object or page that the memory tier takes.
    pub memory_object_max: ByteSize,
    /// Share of the cache that data without a persisted copy may take, from 0 to 1.
    pub pinned_ratio: f64,
    /// Uploads to the under stores at once; of large objects fewer.
    pub persist_concurrency: u32,
    /// First pause after a failed upload; doubles with every failure.
    pub persist_backoff_min: Period,
    /// Longest pause between uploads of one object.
    pub persist_backoff_max: Period,
    /// While nothing waits for the under store, how long the next write waits for more: uploads that begin together
    /// share their way through the runtime and the sync of what they note. Nothing for tests whose clock stands still.
    #[serde(skip)]
    pub persist_delay: Period,
    /// After a request whose answer was lost, how long nothing else is sent for the same object; and for all that is
    /// dirty after a crash.
    pub settle_time: Period,
    /// Multipart uploads and other leftovers without activity for this long are removed.
    pub leftover_timeout: Period,
    /// How often leftovers are looked for.
    pub leftover_interval: Period,
    /// Smallest part of a multipart upload other than its last. S3 wants 5 MiB.
    pub part_size_min: ByteSize,
    /// On shutdown, how long requests under way may take, and uploads after them.
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
