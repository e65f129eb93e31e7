//! Metrics of the S3 endpoint.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
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

/// Upper bounds in seconds: 250 µs to 65 s by factors of 4, about the precision that an alert needs.
const BUCKETS: [f64; 10] = [0.000_25, 0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384, 65.536];

/// Shared by clones.
#[derive(Clone)]
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    bytes_in: Counter,
    bytes_out: Counter,
    pub(crate) connections: Gauge<u64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let bytes = Family::<DirectionLabels, Counter>::default();
        let direction = |direction| bytes.get_or_create(&DirectionLabels { direction }).clone();
        let metrics = Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            bytes_in: direction("in"),
            bytes_out: direction("out"),
            connections: Gauge::default(),
        };
        registry.register("forebay_requests", "S3 requests answered", metrics.requests.clone());
        registry.register("forebay_request_duration_seconds", "Time that S3 requests took", metrics.durations.clone());
        registry.register("forebay_request_bytes", "Bytes of bodies of S3 requests and answers", bytes);
        registry.register("forebay_connections", "Open connections of S3 clients", metrics.connections.clone());
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
    metrics: Metrics,
    operation: &'static str,
    clock: Arc<dyn forebay_env::Clock>,
    began: Duration,
    bytes: u64,
}

impl Sending {
    pub(crate) fn new(
        metrics: Metrics,
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
