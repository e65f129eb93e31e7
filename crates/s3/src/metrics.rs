//! Metrics of the S3 endpoint.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    operation: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    operation: &'static str,
    /// `first_byte`: until the answer begins. `total`: until its last byte has been handed to the connection.
    until: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

/// Upper bounds in seconds, 62.5 µs to 65 s by factors of 2: quantiles from p25 to p99 are interpolated inside one, so
/// that they are off by less than half.
fn buckets() -> impl Iterator<Item = f64> {
    exponential_buckets(0.000_062_5, 2.0, 21)
}

pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    bytes_in: Counter,
    bytes_out: Counter,
    pub(crate) connections: Gauge<u64, AtomicU64>,
    pub(crate) connections_refused: Counter,
    pub(crate) requests_over_share: Counter,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let bytes = Family::<DirectionLabels, Counter>::default();
        let direction = |direction| bytes.get_or_create(&DirectionLabels { direction }).clone();
        let metrics = Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(buckets())),
            bytes_in: direction("in"),
            bytes_out: direction("out"),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            requests_over_share: Counter::default(),
        };
        registry.register("forebay_requests", "S3 requests answered", metrics.requests.clone());
        registry.register("forebay_request_duration_seconds", "Time that S3 requests took", metrics.durations.clone());
        registry.register("forebay_request_bytes", "Bytes of bodies of S3 requests and answers", bytes);
        registry.register("forebay_connections", "Open connections of S3 clients", metrics.connections.clone());
        registry.register(
            "forebay_connections_refused",
            "Connections closed because their address had too many",
            metrics.connections_refused.clone(),
        );
        registry.register(
            "forebay_requests_over_share",
            "S3 requests refused because their access key had more than its share of the connections",
            metrics.requests_over_share.clone(),
        );
        metrics
    }

    pub(crate) fn answered(&self, operation: &'static str, code: u16, took: Duration) {
        self.requests.get_or_create(&RequestLabels { operation, code }).inc();
        self.durations.get_or_create(&DurationLabels { operation, until: "first_byte" }).observe(took.as_secs_f64());
    }

    pub(crate) fn finished(&self, operation: &'static str, took: Duration, bytes_out: u64) {
        self.durations.get_or_create(&DurationLabels { operation, until: "total" }).observe(took.as_secs_f64());
        self.bytes_out.inc_by(bytes_out);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_in.inc_by(bytes as u64);
    }
}

/// Counts what an answer sends, and tells when it has ended, however it ends.
pub(crate) struct Sending {
    metrics: Arc<Metrics>,
    operation: &'static str,
    clock: Arc<dyn forebay_env::Clock>,
    began: Duration,
    bytes: u64,
}

impl Sending {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        operation: &'static str,
        clock: Arc<dyn forebay_env::Clock>,
        began: Duration,
    ) -> Self {
        Self { metrics, operation, clock, began, bytes: 0 }
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let took = self.clock.monotonic().saturating_sub(self.began);
        self.metrics.finished(self.operation, took, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_reach_from_a_memory_hit_to_a_request_that_has_timed_out() {
        let bounds: Vec<f64> = buckets().collect();
        assert_eq!(bounds.first(), Some(&0.000_062_5));
        assert_eq!(bounds.last(), Some(&65.536));
        assert!(bounds.is_sorted_by(|a, b| a < b));
    }
}
