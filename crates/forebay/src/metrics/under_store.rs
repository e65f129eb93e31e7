//! What under stores were asked, how they answered, and how they are.

use std::fmt;
use std::time::Duration;

use forebay_admin::api::{CircuitState, UnderStoreStatus};
use forebay_ufs::ErrorKind;
use forebay_ufs::governor::{CallObserver, RequestClass};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType::{self, Gauge};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::under_stores::OpenUnderStores;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    operation: &'static str,
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    class: &'static str,
}

/// Counts calls, errors and times.
pub(crate) struct UnderStoreObserver {
    calls: Family<OperationLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    duration: Family<OperationLabels, Histogram, fn() -> Histogram>,
    requests: Family<ClassLabels, Counter>,
}

impl UnderStoreObserver {
    #[rustfmt::skip]
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let observer = Self {
            calls: Family::default(),
            errors: Family::default(),
            requests: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16))),
        };
        registry.register("forebay_under_store_calls", "Calls to under stores, by operation", observer.calls.clone());
        registry.register("forebay_under_store_errors", "Calls that failed, by operation and kind of error", observer.errors.clone());
        registry.register("forebay_under_store_requests", "HTTP requests sent to S3 under stores, as providers price them", observer.requests.clone());
        registry.register_with_unit("forebay_under_store_call_duration", "Time until an under store answered, by operation", Unit::Seconds, observer.duration.clone());
        observer
    }
}

impl CallObserver for UnderStoreObserver {
    fn called(&self, operation: &'static str, error: Option<ErrorKind>, elapsed: Duration) {
        let labels = OperationLabels { operation };
        self.calls.get_or_create(&labels).inc();
        self.duration.get_or_create(&labels).observe(elapsed.as_secs_f64());
        if let Some(kind) = error {
            self.errors.get_or_create(&ErrorLabels { operation, kind: format!("{kind:?}") }).inc();
        }
    }

    fn sent(&self, request: RequestClass) {
        self.requests.get_or_create(&ClassLabels { class: request.name() }).inc();
    }
}

/// The states of the under stores, read when a scrape asks for them.
pub(crate) struct UnderStoreMetrics {
    under_stores: OpenUnderStores,
}

impl UnderStoreMetrics {
    pub(crate) fn register(registry: &mut Registry, under_stores: &OpenUnderStores) {
        registry.register_collector(Box::new(Self { under_stores: under_stores.clone() }));
    }
}

impl fmt::Debug for UnderStoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnderStoreMetrics")
    }
}

impl Collector for UnderStoreMetrics {
    #[rustfmt::skip]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        type Number = (&'static str, &'static str, MetricType, fn(&UnderStoreStatus) -> u64);
        let numbers: [Number; 5] = [
            ("forebay_under_store_circuit_open", "1 while requests are refused without being sent, by under store", Gauge, |state| u64::from(state.circuit != CircuitState::Closed)),
            ("forebay_under_store_unusable", "1 when the last probe failed: no answer, keys that are not taken, no such bucket, no permission; by under store", Gauge, |state| u64::from(state.problem.is_some())),
            ("forebay_under_store_concurrency_limit", "Background requests that may run at once, by under store", Gauge, |state| u64::from(state.concurrency_limit)),
            ("forebay_under_store_running", "Background requests in flight, by under store", Gauge, |state| u64::from(state.running)),
            ("forebay_under_store_throttled", "Answers that asked for fewer requests, by under store", MetricType::Counter, |state| state.throttled),
        ];
        let states: Vec<_> = self.under_stores.labelled().collect();
        for (name, help, kind, value) in numbers {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (under_store, state) in &states {
                let labels = [("under_store", *under_store)];
                match kind {
                    MetricType::Counter => ConstCounter::new(value(state)).encode(family.encode_family(&labels)?)?,
                    _ => ConstGauge::new(value(state)).encode(family.encode_family(&labels)?)?,
                }
            }
        }
        Ok(())
    }
}
