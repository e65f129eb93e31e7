//! What the store did and what it holds.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use forebay_store::{Observer, Store};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType::{Counter, Gauge};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::encode_number;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DirectoryLabels {
    pub(crate) directory: String,
}

/// Syncs of a directory since the start, and the time that they took with their writes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SyncTotal {
    pub(crate) syncs: u64,
    pub(crate) seconds: f64,
}

type Histograms = Family<DirectoryLabels, Histogram, fn() -> Histogram>;

/// Histograms of the group commits.
pub(crate) struct StoreObserver {
    commits: Histograms,
    bytes: Histograms,
    sync: Histograms,
    /// The sums of `sync`, which a histogram only tells to a scrape.
    totals: Mutex<HashMap<String, SyncTotal>>,
}

impl StoreObserver {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let observer = Self {
            commits: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1.0, 2.0, 11))),
            bytes: Family::new_with_constructor(|| Histogram::new(exponential_buckets(512.0, 4.0, 10))),
            totals: Mutex::default(),
            sync: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_05, 2.0, 16))),
        };
        registry.register(
            "forebay_group_commit_commits",
            "Commits that shared one sync, by directory",
            observer.commits.clone(),
        );
        registry.register_with_unit(
            "forebay_group_commit",
            "Bytes written by one group commit, by directory",
            Unit::Bytes,
            observer.bytes.clone(),
        );
        registry.register_with_unit(
            "forebay_group_commit_sync",
            "Time of the write and the fdatasync of one group commit, by directory",
            Unit::Seconds,
            observer.sync.clone(),
        );
        observer
    }

    /// By directory.
    pub(crate) fn totals(&self) -> HashMap<String, SyncTotal> {
        self.totals.lock().clone()
    }
}

impl Observer for StoreObserver {
    fn group_commit(&self, directory: &str, commits: usize, bytes: u64, sync: Duration) {
        let labels = DirectoryLabels { directory: directory.to_owned() };
        self.commits.get_or_create(&labels).observe(commits as f64);
        self.bytes.get_or_create(&labels).observe(bytes as f64);
        self.sync.get_or_create(&labels).observe(sync.as_secs_f64());
        let mut totals = self.totals.lock();
        let total = totals.entry(labels.directory).or_default();
        total.syncs += 1;
        total.seconds += sync.as_secs_f64();
    }
}

/// Sizes and counters that the store keeps itself.
pub(crate) struct StoreMetrics {
    store: Store,
}

impl StoreMetrics {
    pub(crate) fn register(registry: &mut Registry, store: &Store) {
        registry.register_collector(Box::new(Self { store: store.clone() }));
    }
}

impl fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreMetrics")
    }
}

impl Collector for StoreMetrics {
    #[rustfmt::skip]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let usage = self.store.usage();
        let counters = self.store.counters();
        let numbers = [
            ("forebay_store_capacity_bytes", "Most bytes that objects may take: the size of the store but for its index", Gauge, usage.capacity_bytes),
            ("forebay_store_pinned_bytes", "Bytes of objects that may not be evicted", Gauge, usage.pinned_bytes),
            ("forebay_store_evictable_bytes", "Bytes of objects that may be evicted", Gauge, usage.evictable_bytes),
            ("forebay_store_free_bytes", "Bytes of segments not yet written", Gauge, usage.free_bytes),
            ("forebay_store_held_bytes", "Bytes of segments that reclaim has deleted and that requests still read", Gauge, usage.held_bytes),
            ("forebay_store_objects", "Objects in the store", Gauge, usage.objects),
            ("forebay_store_values", "Entries of the embedded catalog", Gauge, usage.values),
            ("forebay_store_appended_bytes", "Bytes appended by writes", Counter, counters.appended_bytes),
            ("forebay_store_filled_bytes", "Bytes appended by read-cache fills", Counter, counters.filled_bytes),
            ("forebay_store_commits", "Commits", Counter, counters.commits),
            ("forebay_store_group_commits", "Group commits: syncs that commits shared", Counter, counters.group_commits),
            ("forebay_store_corrupt_records", "Records that failed their checksum, each counted once", Counter, counters.corrupt_records),
            ("forebay_store_reclaimed_segments", "Segments that were reclaimed", Counter, counters.reclaimed_segments),
            ("forebay_store_reclaimed_bytes", "Bytes of segments that were reclaimed", Counter, counters.reclaimed_bytes),
            ("forebay_store_carried_bytes", "Bytes that reclaim carried forward", Counter, counters.carried_bytes),
            ("forebay_store_snapshots", "Snapshots of the index", Counter, counters.snapshots),
        ];
        for (name, help, kind, value) in numbers {
            encode_number(&mut encoder, name, help, kind, value as f64)?;
        }
        let help = "1 when a directory takes no more writes, by directory";
        let mut family = encoder.encode_descriptor("forebay_store_directory_failed", help, None, Gauge)?;
        for directory in self.store.health() {
            let labels = DirectoryLabels { directory: directory.label };
            ConstGauge::new(u32::from(directory.failed.is_some())).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
