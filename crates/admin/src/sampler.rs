//! What the worker does, as the console draws it: from the metrics that it has for Prometheus anyway, so that both tell
//! the same.
//!
//! Every [`PERIOD`] the metrics are written out and read back; a [`Sample`] is what changed since the last time.
//! `prometheus-client` offers no other way to read a registry, and a second set of handles would have to be kept in
//! step with it.

mod exposition;
mod histogram;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use forebay_env::Env;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;

use crate::Admin;
use crate::api::{DiskSample, OperationSample, ReadSample, Sample};
use exposition::Exposition;
use histogram::Latencies;

/// Often enough to watch by eye, rarely enough to cost nothing.
const PERIOD: Duration = Duration::from_secs(5);
/// An hour.
const SAMPLES_MAX: usize = 720;
/// Samples of a minute, over which the rate of draining is taken.
const DRAIN_SAMPLES: usize = 12;
/// Paths and buckets in one sample: those with the most bytes. With thousands of rules, an hour of all would fill the
/// memory.
const READS_MAX: usize = 100;

#[derive(Default)]
pub(crate) struct Sampler {
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// The oldest first.
    samples: VecDeque<Sample>,
    /// What the metrics were, and when by the monotonic clock.
    last: Option<(Duration, Exposition)>,
}

/// Takes samples for ever.
pub(crate) async fn run(admin: &Admin) {
    loop {
        if let Some(running) = admin.running() {
            admin.sampler().take(admin.env(), &running.registry);
        }
        admin.env().clock.sleep(PERIOD).await;
    }
}

impl Sampler {
    fn take(&self, env: &Env, registry: &Registry) {
        let mut text = String::new();
        if prometheus_client::encoding::text::encode(&mut text, registry).is_err() {
            tracing::warn!("the metrics can't be written, a sample is missing");
            return;
        }
        self.push(env.clock.monotonic(), env.clock.unix_ms(), Exposition::parse(&text));
    }

    fn push(&self, now: Duration, time_ms: u64, metrics: Exposition) {
        let mut taken = self.taken.lock();
        if let Some((before, old)) = &taken.last {
            let interval = now.saturating_sub(*before);
            if interval.is_zero() {
                return;
            }
            let sample = Interval { old, new: &metrics, seconds: interval.as_secs_f64() }.sample();
            let sample = Sample { time_ms, interval_ms: interval.as_millis() as u64, ..sample };
            if taken.samples.len() >= SAMPLES_MAX {
                taken.samples.pop_front();
            }
            taken.samples.push_back(sample);
        }
        taken.last = Some((now, metrics));
    }

    pub(crate) fn newest(&self) -> Option<Sample> {
        self.taken.lock().samples.back().cloned()
    }

    /// Samples that end after a time, the oldest first.
    pub(crate) fn since(&self, time_ms: u64) -> Vec<Sample> {
        self.taken.lock().samples.iter().filter(|sample| sample.time_ms > time_ms).cloned().collect()
    }

    /// Seconds until the backlog is empty at the rate of the last minute. Deletes have no bytes: they are counted when
    /// nothing else waits.
    pub(crate) fn drain_seconds(&self) -> Option<f64> {
        let taken = self.taken.lock();
        let newest = taken.samples.back()?;
        let oldest = taken.samples.get(taken.samples.len().saturating_sub(DRAIN_SAMPLES))?;
        let seconds = newest.time_ms.checked_sub(oldest.time_ms)? as f64 / 1000.0;
        let waiting = |sample: &Sample| if newest.dirty_bytes > 0 { sample.dirty_bytes } else { sample.dirty_objects };
        let (before, left) = (waiting(oldest) as f64, waiting(newest) as f64);
        (left > 0.0 && left < before && seconds > 0.0).then(|| left / ((before - left) / seconds))
    }
}

/// Metrics at both ends of an interval.
struct Interval<'a> {
    old: &'a Exposition,
    new: &'a Exposition,
    seconds: f64,
}

impl Interval<'_> {
    fn sample(&self) -> Sample {
        Sample {
            time_ms: 0,
            interval_ms: 0,
            operations: self.operations(),
            bytes_in: self.rate("forebay_request_bytes_total", &[("direction", "in")]),
            bytes_out: self.rate("forebay_request_bytes_total", &[("direction", "out")]),
            reads: self.reads(),
            dirty_objects: self.gauge("forebay_dirty_objects"),
            dirty_bytes: self.gauge("forebay_dirty_bytes"),
            oldest_dirty_age_ms: (self.new.sum("forebay_oldest_dirty_age_seconds", &[]) * 1000.0) as u64,
            persisted: self.rate("forebay_persisted_objects_total", &[]),
            persisted_bytes: self.rate("forebay_persisted_bytes_total", &[]),
            persist_failures: self.rate("forebay_persist_failures_total", &[]),
            pinned_bytes: self.gauge("forebay_store_pinned_bytes"),
            evictable_bytes: self.gauge("forebay_store_evictable_bytes"),
            free_bytes: self.gauge("forebay_store_free_bytes"),
            capacity_bytes: self.gauge("forebay_store_capacity_bytes"),
            memory_tier_bytes: self.gauge("forebay_memory_tier_bytes"),
            disks: self.disks(),
            under_store_calls: self.rate("forebay_under_store_calls_total", &[]),
            under_store_errors: self.rate("forebay_under_store_errors_total", &[]),
            cpu: self.rate("process_cpu_seconds_total", &[]),
            resident_bytes: self.gauge("process_resident_memory_bytes"),
            connections: self.gauge("forebay_connections"),
        }
    }

    fn gauge(&self, name: &str) -> u64 {
        self.new.sum(name, &[]) as u64
    }

    /// How much a counter grew per second, over all series that have these labels.
    fn rate(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.growth(name, labels) / self.seconds
    }

    fn growth(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        (self.new.sum(name, labels) - self.old.sum(name, labels)).max(0.0)
    }

    /// Operations that were asked for in the interval.
    fn operations(&self) -> Vec<OperationSample> {
        let operations = self.new.values("forebay_requests_total", "operation");
        let all = operations.into_iter().map(|operation| self.operation(operation));
        all.filter(|operation| operation.rate > 0.0).collect()
    }

    fn operation(&self, operation: &str) -> OperationSample {
        let rate = |code: &str| self.rate("forebay_requests_total", &[("operation", operation), ("code", code)]);
        let codes = self.new.values("forebay_requests_total", "code");
        let errors = codes.into_iter().filter(|code| code.starts_with('5') && *code != "503");
        // The sum of nothing would be -0.
        let errors = errors.fold(0.0, |sum, code| sum + rate(code));
        let labels = [("operation", operation), ("until", "first_byte")];
        let latencies = Latencies::between(self.old, self.new, "forebay_request_duration_seconds_bucket", &labels);
        let percentile = |share| latencies.quantile(share).map(|seconds| seconds * 1000.0);
        OperationSample {
            operation: operation.to_owned(),
            rate: self.rate("forebay_requests_total", &[("operation", operation)]),
            errors,
            throttled: rate("503"),
            p25_ms: percentile(0.25),
            p50_ms: percentile(0.5),
            p75_ms: percentile(0.75),
            p90_ms: percentile(0.9),
            p99_ms: percentile(0.99),
        }
    }

    /// Reads by path, bucket and tier, those with the most bytes first.
    fn reads(&self) -> Vec<ReadSample> {
        let mut reads: BTreeMap<[&str; 3], ReadSample> = BTreeMap::new();
        let mut add = |name: &str, field: fn(&mut ReadSample) -> &mut f64| {
            for series in self.new.series(name) {
                let labels = ["path", "bucket", "tier"].map(|label| series.label(label));
                let growth = (series.value - self.old.value(name, series)).max(0.0);
                if growth > 0.0 {
                    *field(reads.entry(labels).or_default()) += growth / self.seconds;
                }
            }
        };
        add("forebay_reads_total", |sample| &mut sample.rate);
        add("forebay_read_bytes_total", |sample| &mut sample.bytes);
        let name = |([path, bucket, tier], sample): ([&str; 3], ReadSample)| ReadSample {
            path: path.to_owned(),
            bucket: bucket.to_owned(),
            tier: tier.to_owned(),
            ..sample
        };
        let mut reads: Vec<_> = reads.into_iter().map(name).collect();
        reads.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
        reads.truncate(READS_MAX);
        reads
    }

    fn disks(&self) -> Vec<DiskSample> {
        let directories = self.new.values("forebay_store_directory_failed", "directory");
        directories.into_iter().map(|directory| self.disk(directory)).collect()
    }

    fn disk(&self, directory: &str) -> DiskSample {
        let labels = [("directory", directory)];
        let syncs = self.growth("forebay_group_commit_sync_seconds_count", &labels);
        let seconds = self.growth("forebay_group_commit_sync_seconds_sum", &labels);
        DiskSample {
            directory: directory.to_owned(),
            busy: self
                .new
                .has("forebay_disk_busy_ratio", &labels)
                .then(|| self.new.sum("forebay_disk_busy_ratio", &labels)),
            sync_ms: (syncs > 0.0).then(|| seconds / syncs * 1000.0),
            written_bytes: self.rate("forebay_group_commit_bytes_sum", &labels),
            failed: self.new.sum("forebay_store_directory_failed", &labels) > 0.0,
        }
    }
}

#[cfg(test)]
mod tests;
