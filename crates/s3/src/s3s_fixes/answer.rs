//! The last touch to an answer.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION};
use http::{HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use s3s::{Body, HttpResponse, S3Error, StdError};

use crate::context::RequestContext;
use crate::error::s3_error;

/// Where an operation leaves the URL of the object that a form has made.
pub(crate) const FORM_LOCATION: HeaderName = HeaderName::from_static("x-forebay-location");

/// Puts the request's id on every answer, takes the body from a 304, and gives a HEAD of a part its status.
pub(crate) fn finish(mut response: HttpResponse, context: &RequestContext) -> HttpResponse {
    if context.operation() == "HeadObject" && response.headers().contains_key(CONTENT_RANGE) {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    escape_returns(&mut response);
    if response.status() == StatusCode::NOT_MODIFIED {
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(CONTENT_TYPE);
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    let headers = response.headers_mut();
    headers.insert("x-amz-request-id", HeaderValue::from_str(&context.id).expect("a request id is hex"));
    headers.insert("server", HeaderValue::from_static("Forebay"));
    // A browser must not make a page of what somebody stored as text.
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// A carriage return in a key: what reads XML takes a plain one for a line feed, and so for another key.
/// Objects are streams; only documents have all their bytes here.
fn escape_returns(response: &mut HttpResponse) {
    let is_document = response.headers().get(CONTENT_TYPE).is_some_and(|value| value == "application/xml");
    let Some(document) = response.body().bytes().filter(|document| is_document && document.contains(&b'\r')) else {
        return;
    };
    let escaped = document.iter().flat_map(|byte| match byte {
        b'\r' => b"&#13;".as_slice(),
        byte => std::slice::from_ref(byte),
    });
    *response.body_mut() = Body::from(escaped.copied().collect::<Vec<u8>>());
    response.headers_mut().remove(CONTENT_LENGTH);
}

/// The answer to a form. One that breaks its policy is AccessDenied in S3; `s3s` calls the policy's document invalid. The
/// document of a 201 says where the object is, as the header does; `s3s` leaves out the host.
pub(crate) async fn form(mut response: HttpResponse, request_id: &str) -> Result<HttpResponse, StdError> {
    if let Some(location) = response.headers_mut().remove(FORM_LOCATION)
        && response.status().is_success()
    {
        response.headers_mut().insert(LOCATION, location);
    }
    match response.status() {
        StatusCode::CREATED => locate_form(response).await,
        StatusCode::BAD_REQUEST => refuse_form(response, request_id).await,
        _ => Ok(response),
    }
}

async fn locate_form(response: HttpResponse) -> Result<HttpResponse, StdError> {
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    let location = parts.headers.get(LOCATION).and_then(|location| location.to_str().ok());
    let located = match (location, text.split_once("<Location>"), text.split_once("</Location>")) {
        // A URL is percent-encoded: nothing in it needs escaping but the ampersand, which no path here holds.
        (Some(location), Some((before, _)), Some((_, after))) => {
            format!("{before}<Location>{location}</Location>{after}")
        }
        _ => text.into_owned(),
    };
    parts.headers.remove(CONTENT_LENGTH);
    Ok(HttpResponse::from_parts(parts, Body::from(located)))
}

async fn refuse_form(response: HttpResponse, request_id: &str) -> Result<HttpResponse, StdError> {
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
