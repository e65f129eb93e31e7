//! The last touch to an answer.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use s3s::{Body, HttpResponse, S3Error, StdError};

use crate::error::s3_error;

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

/// A form that breaks its policy is AccessDenied in S3; `s3s` calls the policy's document invalid.
pub(crate) async fn refuse_form(response: HttpResponse, request_id: &str) -> Result<HttpResponse, StdError> {
    if response.status() != StatusCode::BAD_REQUEST {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    let breaks_policy = text.contains("<Code>InvalidPolicyDocument<") && text.contains(" failed: ");
    if breaks_policy {
        let message = "Invalid according to Policy: a condition of the policy failed.";
        return Ok(refuse(s3_error("AccessDenied", StatusCode::FORBIDDEN, message), request_id));
    }
    Ok(HttpResponse::from_parts(parts, Body::from(body)))
}

/// In this one document, S3 writes the tag without quotes.
pub(crate) async fn bare_etag(response: HttpResponse) -> Result<HttpResponse, StdError> {
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body).replace("<ETag>&quot;", "<ETag>").replace("&quot;</ETag>", "</ETag>");
    let text = text.replace("<ETag>\"", "<ETag>").replace("\"</ETag>", "</ETag>");
    parts.headers.remove(CONTENT_LENGTH);
    Ok(HttpResponse::from_parts(parts, Body::from(text)))
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
