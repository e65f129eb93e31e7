//! What the cache tells Prometheus. Names are documented in `docs/metrics-reference.md`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use forebay_env::sync::Mutex;
use forebay_types::{BucketName, PolicySet};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Where the bytes of a read came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Tier {
    #[expect(non_camel_case_types, reason = "the label's value")]
    memory,
    #[expect(non_camel_case_types, reason = "the label's value")]
    disk,
    #[expect(non_camel_case_types, reason = "the label's value")]
    under_store,
    /// The former home of the object's slot.
    #[expect(non_camel_case_types, reason = "the label's value")]
    worker,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReadLabels {
    pub(crate) tier: Tier,
    pub(crate) bucket: String,
    /// Of the longest policy rule that holds.
    pub(crate) path: Arc<str>,
}

/// Where a page of an under store's listing came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum PageSource {
    #[expect(non_camel_case_types, reason = "the label's value")]
    cache,
    #[expect(non_camel_case_types, reason = "the label's value")]
    under_store,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PageLabels {
    pub(crate) source: PageSource,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OperationLabels {
    pub(crate) operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ErrorLabels {
    pub(crate) kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct JobLabels {
    pub(crate) kind: &'static str,
    pub(crate) state: &'static str,
}

#[derive(Clone)]
pub(crate) struct Metrics {
    reads: Family<ReadLabels, Counter>,
    read_bytes: Family<ReadLabels, Counter>,
    /// The labels of both families, which are made and removed while this is locked.
    read_labels: Arc<Mutex<HashSet<ReadLabels>>>,
    avoided: Family<OperationLabels, Counter>,
    /// These of them, so that a read looks nothing up.
    pub(crate) avoided_gets: Counter,
    pub(crate) avoided_heads: Counter,
    pub(crate) avoided_lists: Counter,
    pub(crate) list_pages: Family<PageLabels, Counter>,
    pub(crate) list_cache_bytes: Gauge,
    pub(crate) dirty_objects: Gauge,
    pub(crate) dirty_bytes: Gauge,
    pub(crate) tombstones: Gauge,
    pub(crate) transient_objects: Gauge,
    pub(crate) conflicts: Gauge,
    pub(crate) undeliverable: Gauge,
    pub(crate) oldest_dirty_age: Gauge<f64, AtomicU64>,
    pub(crate) persisted: Counter,
    pub(crate) persisted_bytes: Counter,
    pub(crate) persist_failures: Family<ErrorLabels, Counter>,
    pub(crate) abandoned_deletes: Counter,
    pub(crate) persist_running: Gauge,
    pub(crate) persist_delayed: Gauge,
    pub(crate) persist_duration: Histogram,
    pub(crate) memory_bytes: Gauge,
    pub(crate) evicted_bytes: Counter,
    pub(crate) fill_failures: Counter,
    pub(crate) stale_served: Counter,
    pub(crate) external_changes: Counter,
    pub(crate) leftovers_removed: Counter,
    pub(crate) rejected_pinned_full: Counter,
    pub(crate) rejected_disk_stalled: Counter,
    pub(crate) replicas_missing: Counter,
    pub(crate) read_leases_granted: Counter,
    pub(crate) read_leases_ended: Counter,
    pub(crate) leased_reads: Counter,
    pub(crate) warm_up_objects: Counter,
    pub(crate) warm_up_bytes: Counter,
    pub(crate) jobs_running: Gauge,
    pub(crate) jobs_queued: Gauge,
    pub(crate) jobs_ended: Family<JobLabels, Counter>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::unregistered();
        metrics.register_reads(registry);
        metrics.register_backlog(registry);
        metrics.register_space(registry);
        metrics.register_jobs(registry);
        metrics
    }

    fn unregistered() -> Self {
        let avoided = Family::<OperationLabels, Counter>::default();
        let of = |operation| avoided.get_or_create(&OperationLabels { operation }).clone();
        let (avoided_gets, avoided_heads, avoided_lists) = (of("get"), of("head"), of("list"));
        Self {
            reads: Family::default(),
            read_bytes: Family::default(),
            read_labels: Arc::default(),
            avoided,
            avoided_gets,
            avoided_heads,
            avoided_lists,
            list_pages: Family::default(),
            list_cache_bytes: Gauge::default(),
            dirty_objects: Gauge::default(),
            dirty_bytes: Gauge::default(),
            tombstones: Gauge::default(),
            transient_objects: Gauge::default(),
            conflicts: Gauge::default(),
            undeliverable: Gauge::default(),
            oldest_dirty_age: Gauge::default(),
            persisted: Counter::default(),
            persisted_bytes: Counter::default(),
            persist_failures: Family::default(),
            abandoned_deletes: Counter::default(),
            persist_running: Gauge::default(),
            persist_delayed: Gauge::default(),
            persist_duration: Histogram::new(exponential_buckets(0.001, 2.0, 18)),
            memory_bytes: Gauge::default(),
            evicted_bytes: Counter::default(),
            fill_failures: Counter::default(),
            stale_served: Counter::default(),
            external_changes: Counter::default(),
            leftovers_removed: Counter::default(),
            rejected_pinned_full: Counter::default(),
            rejected_disk_stalled: Counter::default(),
            replicas_missing: Counter::default(),
            read_leases_granted: Counter::default(),
            read_leases_ended: Counter::default(),
            leased_reads: Counter::default(),
            warm_up_objects: Counter::default(),
            warm_up_bytes: Counter::default(),
            jobs_running: Gauge::default(),
            jobs_queued: Gauge::default(),
            jobs_ended: Family::default(),
        }
    }

    fn register_reads(&self, r: &mut Registry) {
        r.register("forebay_reads", "Reads by the tier that answered, bucket and policy path", self.reads.clone());
        r.register("forebay_read_bytes", "Bytes read by tier, bucket and policy path", self.read_bytes.clone());
        r.register(
            "forebay_requests_avoided",
            "Reads and listing pages answered without a request to the under store, by the request that was saved",
            self.avoided.clone(),
        );
        r.register(
            "forebay_list_pages",
            "Pages of the under store that listings needed, by where they came from: kept ones, or the under store",
            self.list_pages.clone(),
        );
        r.register(
            "forebay_list_cache_bytes",
            "Bytes of the listing pages that are kept in memory",
            self.list_cache_bytes.clone(),
        );
        r.register(
            "forebay_stale_served",
            "Stale reads: past the metadata TTL, while the under store was out of reach",
            self.stale_served.clone(),
        );
        r.register(
            "forebay_external_changes",
            "Clean objects found changed or deleted in the under store",
            self.external_changes.clone(),
        );
        r.register(
            "forebay_fill_failures",
            "Read-cache fills that failed; the reads did not",
            self.fill_failures.clone(),
        );
        r.register(
            "forebay_leased_reads",
            "Reads of objects at home at other workers, answered from memory under a read lease",
            self.leased_reads.clone(),
        );
        r.register(
            "forebay_read_leases_granted",
            "Read leases granted to other workers, first ones and renewals",
            self.read_leases_granted.clone(),
        );
        r.register(
            "forebay_read_leases_revoked",
            "Read leases that other workers gave back before a change of the object",
            self.read_leases_ended.clone(),
        );
        r.register(
            "forebay_warm_up_objects",
            "Clean copies taken over from the worker that was the home of their slot before",
            self.warm_up_objects.clone(),
        );
        r.register("forebay_warm_up_bytes", "Bytes of clean copies taken over", self.warm_up_bytes.clone());
    }

    fn register_backlog(&self, r: &mut Registry) {
        r.register(
            "forebay_dirty_objects",
            "Objects that the under store does not have yet",
            self.dirty_objects.clone(),
        );
        r.register(
            "forebay_dirty_bytes",
            "Bytes of objects that the under store does not have yet",
            self.dirty_bytes.clone(),
        );
        r.register("forebay_tombstones", "Deletes that the under store does not have yet", self.tombstones.clone());
        r.register(
            "forebay_transient_objects",
            "Objects that never go to the under store",
            self.transient_objects.clone(),
        );
        r.register(
            "forebay_conflict_objects",
            "Dirty objects that another writer has changed in the under store",
            self.conflicts.clone(),
        );
        r.register(
            "forebay_undeliverable_objects",
            "Objects and deletes that the under store has refused three times or more",
            self.undeliverable.clone(),
        );
        r.register_with_unit(
            "forebay_oldest_dirty_age",
            "Age of the oldest write that the under store does not have",
            Unit::Seconds,
            self.oldest_dirty_age.clone(),
        );
        r.register(
            "forebay_persisted_objects",
            "Objects and deletes brought to the under store",
            self.persisted.clone(),
        );
        r.register("forebay_persisted_bytes", "Bytes brought to the under store", self.persisted_bytes.clone());
        r.register(
            "forebay_abandoned_deletes",
            "Deletes abandoned because another writer had changed the object in the under store",
            self.abandoned_deletes.clone(),
        );
        r.register(
            "forebay_persist_failures",
            "Failed attempts to persist, by kind of error",
            self.persist_failures.clone(),
        );
        r.register("forebay_persist_running", "Uploads and deletes in flight", self.persist_running.clone());
        r.register(
            "forebay_persist_delayed",
            "Objects that wait for a retry after a failure",
            self.persist_delayed.clone(),
        );
        r.register_with_unit(
            "forebay_persist_duration",
            "Time of one upload or delete",
            Unit::Seconds,
            self.persist_duration.clone(),
        );
    }

    fn register_space(&self, r: &mut Registry) {
        r.register("forebay_memory_tier_bytes", "Bytes in the memory tier", self.memory_bytes.clone());
        r.register("forebay_evicted_bytes", "Clean bytes that left the cache", self.evicted_bytes.clone());
        r.register(
            "forebay_leftovers_removed",
            "Stale multipart uploads and other leftovers removed",
            self.leftovers_removed.clone(),
        );
        r.register(
            "forebay_rejected_pinned_full",
            "Writes refused because pinned data fills its share",
            self.rejected_pinned_full.clone(),
        );
        r.register(
            "forebay_rejected_disk_stalled",
            "Changes answered with 503 because a disk did not answer",
            self.rejected_disk_stalled.clone(),
        );
        r.register(
            "forebay_replicas_missing",
            "Writes for which fewer workers were available than writeReplicas asks for: refused or written through",
            self.replicas_missing.clone(),
        );
    }

    fn register_jobs(&self, r: &mut Registry) {
        r.register("forebay_jobs_running", "Jobs of operators that are running", self.jobs_running.clone());
        r.register("forebay_jobs_queued", "Jobs of operators that wait for their turn", self.jobs_queued.clone());
        r.register(
            "forebay_jobs_ended",
            "Jobs of operators that have ended, by kind and state",
            self.jobs_ended.clone(),
        );
    }

    /// `rule` is the path of the longest policy rule that holds.
    pub(crate) fn read(&self, tier: Tier, bucket: &BucketName, rule: &Arc<str>, bytes: u64) {
        let labels = ReadLabels { tier, bucket: bucket.as_str().to_owned(), path: Arc::clone(rule) };
        if self.count_read(&labels, bytes).is_none() {
            let mut known = self.read_labels.lock();
            self.reads.get_or_create(&labels).inc();
            self.read_bytes.get_or_create(&labels).inc_by(bytes);
            known.insert(labels);
        }
    }

    /// `None` when there are no counters with these labels.
    fn count_read(&self, labels: &ReadLabels, bytes: u64) -> Option<()> {
        self.reads.get(labels)?.inc();
        self.read_bytes.get(labels)?.inc_by(bytes);
        Some(())
    }

    /// Removes the counters of rules that are gone: a user can make and delete rules for ever. Reads that began under
    /// such a rule may bring them back, until the next change of the rules.
    pub(crate) fn keep_reads_of(&self, rules: &PolicySet) {
        // Where no rule holds, reads count for `/`.
        let paths: HashSet<&str> = rules.rules().iter().map(|rule| rule.path.as_str()).chain(["/"]).collect();
        self.read_labels.lock().retain(|labels| {
            let stays = paths.contains(&*labels.path);
            if !stays {
                self.reads.remove(labels);
                self.read_bytes.remove(labels);
            }
            stays
        });
    }

    pub(crate) fn persist_failed(&self, kind: &str) {
        self.persist_failures.get_or_create(&ErrorLabels { kind: kind.to_owned() }).inc();
    }

    pub(crate) fn persist_done(&self, bytes: u64, elapsed: Duration) {
        self.persisted.inc();
        self.persisted_bytes.inc_by(bytes);
        self.persist_duration.observe(elapsed.as_secs_f64());
    }
}
