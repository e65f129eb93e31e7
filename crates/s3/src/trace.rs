//! The span of a request, in the words of OpenTelemetry's semantic conventions for HTTP servers and for S3.

use forebay_env::SPANS;
use http::Request;
use http::header::{CONTENT_LENGTH, HOST, USER_AGENT};
use s3s::HttpResponse;
use tracing::Span;
use tracing::field::Empty;

use crate::connection::Connection;
use crate::context::RequestContext;

/// Made, and its fields looked up, only where traces are exported.
pub(crate) fn begin<B>(request: &Request<B>, context: &RequestContext, connection: &Connection) -> Span {
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let span = tracing::info_span!(
        target: SPANS,
        "request",
        otel.name = %request.method(),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = %request.method(),
        http.request.body.size = text(CONTENT_LENGTH).and_then(|length| length.parse::<i64>().ok()),
        http.response.status_code = Empty,
        url.path = request.uri().path(),
        url.scheme = connection.scheme,
        server.address = text(HOST),
        client.address = connection.peer.map(display),
        user_agent.original = text(USER_AGENT),
        network.protocol.name = "http",
        network.protocol.version = "1.1",
        error.type = Empty,
        rpc.system = "aws-api",
        rpc.service = "S3",
        rpc.method = Empty,
        aws.request_id = context.id,
        aws.s3.bucket = Empty,
        aws.s3.key = Empty,
    );
    forebay_logs::spans::adopt(&span, request.headers());
    span
}

/// What the routing has found out.
pub(crate) fn routed(operation: &'static str, bucket: Option<&str>, key: Option<&str>) {
    let span = Span::current();
    if span.is_disabled() || span.metadata().is_none_or(|metadata| metadata.target() != SPANS) {
        return;
    }
    forebay_logs::spans::rename(&span, format!("S3.{operation}"));
    span.record("rpc.method", operation);
    if let Some(bucket) = bucket {
        span.record("aws.s3.bucket", bucket);
    }
    if let Some(key) = key {
        span.record("aws.s3.key", key);
    }
}

pub(crate) fn answered(span: &Span, response: &HttpResponse) {
    if span.is_disabled() {
        return;
    }
    let status = response.status();
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_client_error() || status.is_server_error() {
        span.record("error.type", status.as_str());
    }
    // What the client did wrong is no error of the server's span.
    if status.is_server_error() {
        span.record("otel.status_code", "error");
    }
}
