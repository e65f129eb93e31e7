//! Makes errors of S3.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
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

/// Holds the elements of an error's document that `s3s` cannot write, until the answer has them.
pub(crate) const DETAILS: HeaderName = HeaderName::from_static("x-forebay-error-details");

/// The error with more elements in its document.
pub(crate) fn with_details(mut error: S3Error, details: &[(&str, &str)]) -> S3Error {
    let encoded = |(name, value): &(&str, &str)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
    let details = details.iter().map(encoded).collect::<Vec<_>>().join("&");
    let mut headers = error.headers().cloned().unwrap_or_default();
    // `s3s` replaces all headers by these, its own Content-Type among them.
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    headers.insert(DETAILS, HeaderValue::try_from(details).expect("what is percent-encoded makes a header"));
    error.set_headers(headers);
    error
}

/// What [`with_details`] has written.
pub(crate) fn read_details(details: &HeaderValue) -> Vec<(String, String)> {
    let pairs = details.to_str().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), percent_decode_str(value).decode_utf8_lossy().into_owned())).collect()
}

/// `InvalidArgument` that names the argument.
pub(crate) fn wrong_argument(name: &str, value: &str, message: impl Into<Cow<'static, str>>) -> S3Error {
    let error = error_with_status("InvalidArgument", StatusCode::BAD_REQUEST, message);
    with_details(error, &[("ArgumentName", name), ("ArgumentValue", value)])
}

pub(crate) fn method_not_allowed() -> S3Error {
    let message = "The specified method is not allowed against this resource.";
    error_with_status("MethodNotAllowed", StatusCode::METHOD_NOT_ALLOWED, message)
}

pub(crate) fn missing_length() -> S3Error {
    let message = "You must provide the Content-Length HTTP header.";
    error_with_status("MissingContentLength", StatusCode::LENGTH_REQUIRED, message)
}

pub(crate) fn denied(message: impl Into<Cow<'static, str>>) -> S3Error {
    error_with_status("AccessDenied", StatusCode::FORBIDDEN, message)
}

/// All keys here are for long: none comes with a token.
pub(crate) fn invalid_token() -> S3Error {
    let message = "The provided token is malformed or otherwise invalid.";
    error_with_status("InvalidToken", StatusCode::BAD_REQUEST, message)
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
