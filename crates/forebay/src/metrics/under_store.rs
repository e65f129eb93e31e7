//! What under stores were asked and how they answered.

use std::time::Duration;

use forebay_ufs::ErrorKind;
use forebay_ufs::governor::CallObserver;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    operation: &'static str,
    kind: String,
}

/// Counts calls, errors and times.
pub(crate) struct UnderStoreObserver {
    calls: Family<OperationLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    duration: Family<OperationLabels, Histogram, fn() -> Histogram>,
}

impl UnderStoreObserver {
    #[rustfmt::skip]
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let observer = Self {
            calls: Family::default(),
            errors: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16))),
        };
        registry.register("forebay_under_store_calls", "Calls to under stores, by operation", observer.calls.clone());
        registry.register("forebay_under_store_errors", "Calls that failed, by operation and kind of error", observer.errors.clone());
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
}
