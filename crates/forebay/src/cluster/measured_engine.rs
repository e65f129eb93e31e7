//! How long the engine takes, and how often it fails: every write of a client waits for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_catalog::{Check, Engine, ErrorKind, Result, Versioned};
use forebay_env::Clock;
use forebay_store::ValueWrite;
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

/// Upper bounds from 125 µs to 33 s by factors of 2: from an engine on the same machine to calls that have asked all
/// its members in vain.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_125, 2.0, 19))
}

/// An engine whose calls are counted.
pub(super) struct MeasuredEngine {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    durations: Family<OperationLabels, Histogram, fn() -> Histogram>,
    errors: Family<ErrorLabels, Counter>,
}

impl MeasuredEngine {
    #[rustfmt::skip]
    pub(super) fn register(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>, registry: &mut Registry) -> Self {
        let measured = Self { engine, clock, durations: Family::new_with_constructor(buckets), errors: Family::default() };
        registry.register_with_unit("forebay_cluster_engine_call_duration", "Time until the engine of the cluster answered, by operation; each write waits for a commit", Unit::Seconds, measured.durations.clone());
        registry.register("forebay_cluster_engine_errors", "Calls to the engine of the cluster that failed, by operation and kind of error", measured.errors.clone());
        measured
    }

    fn count<T>(&self, operation: &'static str, began: Duration, result: &Result<T>) {
        let took = self.clock.monotonic().saturating_sub(began);
        self.durations.get_or_create(&OperationLabels { operation }).observe(took.as_secs_f64());
        // That a check does not hold is an answer.
        if let Some(error) = result.as_ref().err().filter(|error| error.kind != ErrorKind::Conflict) {
            self.errors.get_or_create(&ErrorLabels { operation, kind: format!("{:?}", error.kind) }).inc();
        }
    }
}

#[async_trait]
impl Engine for MeasuredEngine {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        let began = self.clock.monotonic();
        let result = self.engine.get(key).await;
        self.count("get", began, &result);
        result
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        let began = self.clock.monotonic();
        let result = self.engine.scan(from, to, limit).await;
        self.count("scan", began, &result);
        result
    }

    async fn commit(&self, checks: &[Check], writes: &[ValueWrite]) -> Result<u64> {
        let began = self.clock.monotonic();
        let result = self.engine.commit(checks, writes).await;
        self.count("commit", began, &result);
        result
    }
}
