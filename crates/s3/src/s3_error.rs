//! Makes errors of S3.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
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

/// The error with more elements in its document, behind those that it has.
pub(crate) fn with_details<T: AsRef<str>>(mut error: S3Error, details: &[(&str, T)]) -> S3Error {
    if details.is_empty() {
        return error;
    }
    let mut headers = error.headers().cloned().unwrap_or_default();
    // `s3s` replaces all headers by these, its own Content-Type among them.
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    add_details(&mut headers, details);
    error.set_headers(headers);
    error
}

/// Writes elements for [`read_details`].
pub(crate) fn add_details<T: AsRef<str>>(headers: &mut HeaderMap, details: &[(&str, T)]) {
    let encoded =
        |(name, value): &(&str, T)| format!("{name}={}", utf8_percent_encode(value.as_ref(), NON_ALPHANUMERIC));
    let before = headers.get(DETAILS).and_then(|details| details.to_str().ok()).map(str::to_owned);
    let all: Vec<_> = before.into_iter().chain(details.iter().map(encoded)).collect();
    headers.insert(DETAILS, HeaderValue::try_from(all.join("&")).expect("what is percent-encoded makes a header"));
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

/// `resource` is `SERVICE`, `BUCKET` or `OBJECT`.
pub(crate) fn method_not_allowed(method: &Method, resource: &str) -> S3Error {
    let message = "The specified method is not allowed against this resource.";
    let error = error_with_status("MethodNotAllowed", StatusCode::METHOD_NOT_ALLOWED, message);
    with_details(error, &[("Method", method.as_str()), ("ResourceType", resource)])
}

pub(crate) fn too_large(size: u64, limit: u64) -> S3Error {
    let message = "Your proposed upload exceeds the maximum allowed size";
    let error = error_with_status("EntityTooLarge", StatusCode::BAD_REQUEST, message);
    with_details(error, &[("ProposedSize", size.to_string()), ("MaxSizeAllowed", limit.to_string())])
}

/// The error for a name or attributes of `bytes` bytes.
pub(crate) fn above_limit(code: &str, message: &'static str, bytes: usize, limit: usize) -> S3Error {
    let error = error_with_status(code, StatusCode::BAD_REQUEST, message);
    with_details(error, &[("Size", bytes.to_string()), ("MaxSizeAllowed", limit.to_string())])
}

pub(crate) fn invalid_bucket_name(name: &str) -> S3Error {
    let error = error_with_status("InvalidBucketName", StatusCode::BAD_REQUEST, "The specified bucket is not valid.");
    with_details(error, &[("BucketName", name)])
}

pub(crate) fn invalid_digest(given: &str) -> S3Error {
    let message = "The Content-MD5 you specified was invalid.";
    let error = error_with_status("InvalidDigest", StatusCode::BAD_REQUEST, message);
    with_details(error, &[("Content-MD5", given)])
}

/// A streaming payload of a request that is no PutObject and no UploadPart: versity/versitygw,
/// `UnsignedStreamingPayloadTrailer_not_allowed`.
pub(crate) fn no_streaming() -> S3Error {
    invalid_request("The value of x-amz-content-sha256 header is invalid.")
}

pub(crate) fn missing_length() -> S3Error {
    let message = "You must provide the Content-Length HTTP header.";
    error_with_status("MissingContentLength", StatusCode::LENGTH_REQUIRED, message)
}

pub(crate) fn header_not_implemented(header: &str) -> S3Error {
    let message = "A header you provided implies functionality that is not implemented";
    let error = error_with_status("NotImplemented", StatusCode::NOT_IMPLEMENTED, message);
    with_details(error, &[("Header", header)])
}

pub(crate) fn denied(message: impl Into<Cow<'static, str>>) -> S3Error {
    error_with_status("AccessDenied", StatusCode::FORBIDDEN, message)
}

/// All keys here are for long: none comes with a token.
pub(crate) fn invalid_token() -> S3Error {
    let message = "The provided token is malformed or otherwise invalid.";
    error_with_status("InvalidToken", StatusCode::BAD_REQUEST, message)
}

pub(crate) fn unknown_access_key(access_key: &str) -> S3Error {
    let message = "The AWS Access Key Id you provided does not exist in our records.";
    let error = error_with_status("InvalidAccessKeyId", StatusCode::FORBIDDEN, message);
    with_details(error, &[("AWSAccessKeyId", access_key)])
}

pub(crate) fn invalid_request(message: impl Into<Cow<'static, str>>) -> S3Error {
    error_with_status("InvalidRequest", StatusCode::BAD_REQUEST, message)
}

/// Longest text that is repeated, in bytes: in S3, the headers of a request have 8 KB. It is written twice, once with
/// three characters for each byte.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 10;

/// The elements for a text that was to be signed: the policy of a form, for one.
pub(crate) fn signed_text(access_key: &str, text: &str, signature: &str) -> Vec<(&'static str, String)> {
    let mut elements = vec![
        ("AWSAccessKeyId", access_key.to_owned()),
        ("StringToSign", text.to_owned()),
        ("SignatureProvided", signature.to_owned()),
        ("StringToSignBytes", in_bytes(text)),
    ];
    if text.len() > TEXT_BYTES_MAX {
        elements.retain(|(name, _)| !name.starts_with("StringToSign"));
    }
    elements
}

/// The bytes of a text as S3 writes them.
pub(crate) fn in_bytes(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// Keeps a cause for the log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HideSource(pub(crate) s3s::StdError);
