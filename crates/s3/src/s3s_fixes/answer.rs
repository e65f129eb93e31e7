//! The last touch to an answer.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use s3s::{Body, HttpResponse, S3Error};

/// Puts the request's id on every answer, and takes the body from a 304.
pub(crate) fn finish(mut response: HttpResponse, request_id: &str) -> HttpResponse {
    if response.status() == StatusCode::NOT_MODIFIED {
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(CONTENT_TYPE);
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    let headers = response.headers_mut();
    headers.insert("x-amz-request-id", HeaderValue::from_str(request_id).expect("a request id is hex"));
    headers.insert("server", HeaderValue::from_static("Forebay"));
    // A browser must not make a page of what somebody stored as text.
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// The answer for an error that did not come from `s3s`.
pub(crate) fn refuse(mut error: S3Error, request_id: &str) -> HttpResponse {
    error.set_request_id(request_id);
    error.to_http_response().unwrap_or_else(|_| {
        let mut response = HttpResponse::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}
