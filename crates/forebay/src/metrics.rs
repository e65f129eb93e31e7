//! Metrics of the store, the under stores and the process; those of requests and of the cache come from their crates.

mod process;
mod reference;
mod store;
mod under_store;

pub(crate) use process::ProcessMetrics;
pub(crate) use reference::reference;
pub(crate) use store::{DirectoryLabels, StoreMetrics, StoreObserver, SyncTotal};
pub(crate) use under_store::{UnderStoreMetrics, UnderStoreObserver};

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// One number without labels, read when a scrape asks for it.
pub(crate) fn encode_number(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    value: f64,
) -> std::fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, kind)?;
    match kind {
        MetricType::Counter => ConstCounter::new(value).encode(metric),
        MetricType::Gauge => ConstGauge::new(value).encode(metric),
        MetricType::Histogram | MetricType::Info | MetricType::Unknown => Err(std::fmt::Error),
    }
}
