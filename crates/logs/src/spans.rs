//! The spans of traces.
//!
//! All have the target [`forebay_env::SPANS`], by which the exporter picks them; without an exporter nothing asks for that target, and
//! making a span comes down to reading one flag.

use http::HeaderMap;
use opentelemetry::trace::TraceContextExt;
use opentelemetry_http::HeaderExtractor;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The names of spans that begin a trace; all others are made only inside of one.
pub const ROOTS: [&str; 2] = ["request", "persist"];

/// Gives a span another name than the one that it began with: fields cannot once something has happened inside of it.
pub fn rename(span: &Span, name: String) {
    if !span.is_disabled() {
        span.context().span().update_name(name);
    }
}

/// Makes the span a child of the one that the request names in `traceparent` (W3C Trace Context), if it does.
pub fn adopt(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() || !headers.contains_key("traceparent") {
        return;
    }
    let parent =
        opentelemetry::global::get_text_map_propagator(|propagator| propagator.extract(&HeaderExtractor(headers)));
    // It fails only where no exporter is, and then there is nothing to tell.
    let _ = span.set_parent(parent);
}
