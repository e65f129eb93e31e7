//! The answer to a GetObject as `s3s` writes it.

use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use s3s::dto::{GetObjectOutput, TimestampFormat};
use s3s::{Body, HttpResponse, S3Response};

/// `None` where a header is more than plain text: `s3s` encodes that.
pub(super) fn of(answered: S3Response<GetObjectOutput>) -> Option<HttpResponse> {
    let S3Response { output, headers, .. } = answered;
    let status = if output.content_range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let all = describe(&output, headers)?;
    let mut response = HttpResponse::new(output.body.map(Body::from).unwrap_or_default());
    *response.status_mut() = status;
    *response.headers_mut() = all;
    Some(response)
}

/// All that an object of the cache can have.
fn describe(output: &GetObjectOutput, mut headers: HeaderMap) -> Option<HeaderMap> {
    headers.reserve(16);
    let length = output.content_length.map(HeaderValue::from);
    let numbers = [
        (CONTENT_LENGTH, length),
        (HeaderName::from_static("x-amz-mp-parts-count"), output.parts_count.map(HeaderValue::from)),
        (HeaderName::from_static("x-amz-tagging-count"), output.tag_count.map(HeaderValue::from)),
    ];
    for (name, value) in numbers {
        headers.extend(value.map(|value| (name, value)));
    }
    if let Some(etag) = &output.e_tag {
        headers.insert(ETAG, etag.to_http_header().ok()?);
    }
    if let Some(time) = &output.last_modified {
        let mut date = Vec::with_capacity(32);
        time.format(TimestampFormat::HttpDate, &mut date).ok()?;
        headers.insert(LAST_MODIFIED, HeaderValue::try_from(date).ok()?);
    }
    let texts = [
        (ACCEPT_RANGES, output.accept_ranges.as_deref()),
        (CONTENT_RANGE, output.content_range.as_deref()),
        (CONTENT_TYPE, output.content_type.as_deref()),
        (CACHE_CONTROL, output.cache_control.as_deref()),
        (CONTENT_DISPOSITION, output.content_disposition.as_deref()),
        (CONTENT_ENCODING, output.content_encoding.as_deref()),
        (CONTENT_LANGUAGE, output.content_language.as_deref()),
        (HeaderName::from_static("x-amz-storage-class"), output.storage_class.as_ref().map(|class| class.as_str())),
        (HeaderName::from_static("x-amz-website-redirect-location"), output.website_redirect_location.as_deref()),
    ];
    for (name, text) in texts {
        let Some(text) = text else { continue };
        headers.insert(name, plain(text)?);
    }
    for (name, value) in output.metadata.iter().flatten() {
        headers.insert(HeaderName::try_from(format!("x-amz-meta-{name}")).ok()?, plain(value)?);
    }
    Some(headers)
}

fn plain(text: &str) -> Option<HeaderValue> {
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_plain { HeaderValue::try_from(text).ok() } else { None }
}
