//! Spans on their way to an OpenTelemetry collector, by OTLP over HTTP.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanLimits};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;
use ureq::tls::TlsConfig;

use crate::config::{Config, Trace};
use crate::failure::Failure;
use crate::tls;

/// Spans that wait for the collector, at about 1 KiB each; what comes on top while it is away is dropped.
const WAITING_SPANS_MAX: usize = 8192;
/// Spans of one request to the collector.
const BATCH_SPANS_MAX: usize = 1024;
/// How long spans wait to be sent with others.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// How long the collector may take to answer.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a stop waits for the last spans to go.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest answer of a collector that is read, in bytes: what it refused, in words.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// More attributes than any span here has.
const ATTRIBUTES_MAX: u32 = 64;

/// The variables of OpenTelemetry's specification that turn traces on, the more special first.
const ENDPOINT_VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The exporter.
pub(crate) struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// None when no collector is named.
    pub(crate) fn start(config: &Config) -> Result<Option<Self>, Failure> {
        let trace = &config.trace;
        let named = |name: &&str| std::env::var(name).is_ok_and(|value| !value.is_empty());
        if trace.otlp_endpoint.is_none() && !ENDPOINT_VARIABLES.iter().any(named) {
            return Ok(None);
        }
        let exporter = exporter(trace).map_err(|wrong| {
            Failure::from(config.problem("trace", "otlp_endpoint", &wrong.to_string().replace('\n', " ")))
        })?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(WAITING_SPANS_MAX)
            .with_max_export_batch_size(BATCH_SPANS_MAX)
            .with_scheduled_delay(BATCH_DELAY);
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches.build()).build();
        let limits = SpanLimits { max_attributes_per_span: ATTRIBUTES_MAX, ..SpanLimits::default() };
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            // Parents decide for their children, a client's `traceparent` for its request.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(trace.sample_ratio))))
            .with_span_limits(limits)
            .with_resource(resource(trace))
            .build();
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        Ok(Some(Self { provider }))
    }

    /// Gives spans to the exporter, and nothing else.
    pub(crate) fn layer<S>(&self) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let tracer = self.provider.tracer("forebay");
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(OnlySpans)
    }

    /// Sends what waits, for as long as that may take. Blocks.
    pub(crate) fn finish(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(FLUSH_TIMEOUT) {
            tracing::warn!(%error, "the last spans did not reach the collector");
        }
    }
}

fn resource(trace: &Trace) -> Resource {
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    Resource::builder().with_service_name(trace.service_name.clone()).with_attribute(version).build()
}

fn exporter(trace: &Trace) -> Result<opentelemetry_otlp::SpanExporter, Box<dyn std::error::Error>> {
    let mut builder = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Client::new())
        .with_timeout(COLLECTOR_TIMEOUT);
    if let Some(endpoint) = &trace.otlp_endpoint {
        // As the general variable has it: the path of the signal is added.
        builder = builder.with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')));
    }
    if let Some(headers) = &trace.headers {
        builder = builder.with_headers(parse_headers(&headers.0));
    }
    Ok(builder.build()?)
}

/// `name=value,name=value` with percent-encoded values, as `OTEL_EXPORTER_OTLP_HEADERS` has it.
fn parse_headers(text: &str) -> HashMap<String, String> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let decoded = |value: &str| percent_encoding::percent_decode_str(value.trim()).decode_utf8_lossy().into_owned();
    pairs.map(|(name, value)| (name.trim().to_owned(), decoded(value))).collect()
}

/// Spans of requests and of persistence, and what happens inside of them. Without a trace around it, no other span is
/// worth making: it would be a trace of its own that tells nothing.
struct OnlySpans;

impl OnlySpans {
    fn is_ours(metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == forebay_env::SPANS
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Filter<S> for OnlySpans {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        let is_root = || forebay_logs::spans::ROOTS.contains(&metadata.name());
        Self::is_ours(metadata) && (is_root() || context.lookup_current().is_some())
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::is_ours(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }
}

/// Speaks to the collector. The exporter has a thread of its own, in which this may block: nothing of it runs among the
/// requests.
#[derive(Debug)]
struct Client {
    agent: ureq::Agent,
    /// The last request failed, and the log has said so.
    failing: AtomicBool,
}

impl Client {
    fn new() -> Self {
        let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(tls::cryptography()).build();
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(COLLECTOR_TIMEOUT))
            .http_status_as_error(false)
            .tls_config(tls);
        Self { agent: config.build().into(), failing: AtomicBool::new(false) }
    }

    fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ureq::Error> {
        let (parts, body) = request.into_parts();
        let answer = self.agent.run(http::Request::from_parts(parts, body.to_vec()))?;
        let (parts, mut body) = answer.into_parts();
        let read = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(http::Response::from_parts(parts, read.into()))
    }

    /// Says once that spans are lost, and once that they arrive again.
    fn note(&self, problem: Option<&str>) {
        let failing = problem.is_some();
        match (self.failing.swap(failing, Ordering::Relaxed), problem) {
            (false, Some(problem)) => tracing::warn!(problem, "spans do not reach the collector"),
            (true, None) => tracing::info!("spans reach the collector again"),
            (true, Some(_)) | (false, None) => {}
        }
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let sent = self.send(request);
        match &sent {
            Ok(answer) if answer.status().is_success() => self.note(None),
            Ok(answer) => self.note(Some(answer.status().as_str())),
            Err(error) => self.note(Some(&error.to_string())),
        }
        Ok(sent?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_the_specification_writes_them() {
        let headers = parse_headers("authorization=Basic%20abc%3D, x-tenant = one,junk");
        assert_eq!(headers.len(), 2);
        assert_eq!(headers["authorization"], "Basic abc=");
        assert_eq!(headers["x-tenant"], "one");
    }
}
