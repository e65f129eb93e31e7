//! Makes errors of S3.

use std::borrow::Cow;

use http::StatusCode;
use s3s::{S3Error, S3ErrorCode};

/// What S3 says of headers that are not signed. Their names stand behind it until the answer has them in an element.
pub(crate) const NOT_SIGNED: &str = "There were headers present in the request which were not signed";

/// An S3 error with its status, whether `s3s` knows the code or not.
pub(crate) fn error_with_status(code: &str, status: StatusCode, message: impl Into<Cow<'static, str>>) -> S3Error {
    let code = S3ErrorCode::from_bytes(code.as_bytes()).unwrap_or(S3ErrorCode::InternalError);
    let mut error = S3Error::with_message(code, message);
    error.set_status_code(status);
    error
}

pub(crate) const MALFORMED_XML: &str =
    "The XML you provided was not well-formed or did not validate against our published schema";

pub(crate) fn denied(message: impl Into<Cow<'static, str>>) -> S3Error {
    error_with_status("AccessDenied", StatusCode::FORBIDDEN, message)
}

pub(crate) fn unknown_access_key() -> S3Error {
    let message = "The AWS Access Key Id you provided does not exist in our records.";
    error_with_status("InvalidAccessKeyId", StatusCode::FORBIDDEN, message)
}

pub(crate) fn invalid_request(message: impl Into<Cow<'static, str>>) -> S3Error {
    error_with_status("InvalidRequest", StatusCode::BAD_REQUEST, message)
}

/// Keeps a cause for the log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HideSource(pub(crate) s3s::StdError);
