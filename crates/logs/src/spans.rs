//! The spans of traces.
//!
//! All have the target [`forebay_env::SPANS`], by which the exporter selects them. Without an exporter, nobody is
//! interested in that target, and creating a span only reads one flag.

use http::HeaderMap;
use opentelemetry::trace::TraceContextExt;
use opentelemetry_http::HeaderExtractor;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Names of spans that begin a trace. All others are created only inside one.
pub const ROOTS: [&str; 2] = ["request", "persist"];

/// Renames a span. Fields can't do that once something has happened inside the span.
pub fn rename(span: &Span, name: String) {
    if !span.is_disabled() {
        span.context().span().update_name(name);
    }
}

/// Makes the span a child of the one that the request names in `traceparent` (W3C Trace Context), if it names one.
pub fn adopt(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() || !headers.contains_key("traceparent") {
        return;
    }
    let parent =
        opentelemetry::global::get_text_map_propagator(|propagator| propagator.extract(&HeaderExtractor(headers)));
    // This fails only without an exporter, and then there is nothing to report.
    let _ = span.set_parent(parent);
}
