//! Errors as `application/problem+json` (RFC 9457).

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use forebay_cache::ErrorKind;
use http::{HeaderValue, StatusCode, header};

use crate::api::ProblemBody;

/// What an operation answers, or why it does not.
pub(crate) type Answer<T> = Result<T, Problem>;

/// An answer that is not the one that was asked for.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
    /// When to try again, where that is known.
    pub(crate) retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), retry_after: None }
    }

    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn absent(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(crate) fn starting() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the worker is starting: wait until /readyz answers 200")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Error").to_owned();
        let body = ProblemBody { title, status: self.status.as_u16(), detail: self.detail };
        let mut response = (self.status, Json(&body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(period) = self.retry_after {
            // In whole seconds, not before the end of the period.
            let seconds = period.as_millis().div_ceil(1000).max(1) as u64;
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Basic realm=\"forebay\", charset=\"UTF-8\""),
            );
        }
        response
    }
}

impl From<forebay_cache::Error> for Problem {
    fn from(error: forebay_cache::Error) -> Self {
        let status = status_of(error.kind);
        if status.is_server_error() {
            tracing::warn!(%error, "admin request failed");
        }
        Self { retry_after: error.retry_after, ..Self::new(status, error.context) }
    }
}

fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::NotFound | ErrorKind::NoSuchBucket | ErrorKind::NoSuchUpload => StatusCode::NOT_FOUND,
        ErrorKind::BucketAlreadyExists | ErrorKind::BucketNotEmpty | ErrorKind::BucketBusy | ErrorKind::Conflict => {
            StatusCode::CONFLICT
        }
        ErrorKind::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
        ErrorKind::NotModified => StatusCode::NOT_MODIFIED,
        ErrorKind::InvalidArgument
        | ErrorKind::InvalidKey
        | ErrorKind::InvalidRequest
        | ErrorKind::BadDigest
        | ErrorKind::PayloadHashMismatch
        | ErrorKind::ChecksumMismatch
        | ErrorKind::IncompleteBody
        | ErrorKind::Body
        | ErrorKind::EntityTooSmall
        | ErrorKind::InvalidPart
        | ErrorKind::InvalidPartOrder => StatusCode::BAD_REQUEST,
        ErrorKind::EntityTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::InvalidRange | ErrorKind::InvalidPartNumber => StatusCode::RANGE_NOT_SATISFIABLE,
        ErrorKind::AccessDenied => StatusCode::FORBIDDEN,
        ErrorKind::SlowDown | ErrorKind::Unavailable | ErrorKind::Moved => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::InsufficientStorage => StatusCode::INSUFFICIENT_STORAGE,
        ErrorKind::NotImplemented => StatusCode::NOT_IMPLEMENTED,
        ErrorKind::Corrupt | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

pub(crate) async fn no_such_page() -> Problem {
    Problem::absent("there is no such path in the admin API; S3 is served on another port (server.listen)")
}

/// For connections beyond those that the port has.
pub(crate) async fn too_many_connections() -> Problem {
    let problem = "there are too many connections; health, readiness and metrics alone are answered";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, problem)
}

pub(crate) async fn no_such_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not support this method")
}
