//! The bytes of objects, for the console and the command line: as S3 has them, through the same cache and the same
//! policies.

mod range;

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use forebay_cache::{Attributes, Conditions, Error, GetObject, Incoming, ObjectHead, PutObject};
use forebay_types::SystemHeaders;
use forebay_types::limits::PUT_BYTES_MAX;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use utoipa::IntoParams;

use crate::access::Caller;
use crate::api::ContentWritten;
use crate::input::{self, OfObject, Parameters};
use crate::problem::{Answer, Problem};
use crate::responses::{Absent, Problems, StorageProblems};

/// Longest `Content-Type` that is kept: longer than any that means something.
const CONTENT_TYPE_BYTES_MAX: usize = 256;
/// What an object is that came without a type.
const DEFAULT_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// What RFC 8187 leaves as it is in `filename*`.
const EXTENDED_VALUE: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `Range` as the description shows it.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
struct Range {
    /// One range of bytes.
    #[expect(dead_code, reason = "read from the headers, where its absence shows")]
    #[param(
        rename = "Range",
        nullable = false,
        pattern = r"^bytes=([0-9]{1,15}-|-[0-9]{1,15})$",
        example = "bytes=0-"
    )]
    range: Option<String>,
}

/// The bytes of an object.
#[utoipa::path(get, path = "/api/v1/objects/content", tag = "objects", params(OfObject, Range),
    responses(
        (status = 200, body = [u8], description = "The object, under its own content type.", content_type = "*/*",
            headers(("etag" = String), ("accept-ranges" = String))),
        (status = 206, body = [u8], description = "The range.", content_type = "*/*",
            headers(("etag" = String), ("content-range" = String))),
        (status = 416, body = crate::api::ProblemBody, content_type = "application/problem+json",
            description = "The object ends before the range."),
        Problems, Absent, StorageProblems))]
pub(crate) async fn read_content(
    caller: Caller,
    method: Method,
    Parameters(OfObject { path }): Parameters<OfObject>,
    headers: HeaderMap,
) -> Answer<Response> {
    let object = input::object_path(&path)?;
    let cache = &caller.may_administer(&path)?.cache;
    let file_name = object.key.as_str().rsplit('/').next().unwrap_or_default().to_owned();
    let range = range::requested(&headers)?;
    let conditions = Conditions { if_range: range::condition(&headers), ..Conditions::default() };
    let get = GetObject { range, conditions, ..GetObject::whole(object) };
    if method == Method::HEAD {
        let head = caller.requester().gets(cache.head(get)).await?;
        let length = [(header::CONTENT_LENGTH, head.range.len())];
        return Ok((
            status_of(&head),
            length.map(|(name, value)| (name, value.to_string())),
            describe(&head, &file_name),
        )
            .into_response());
    }
    let body = caller.requester().gets(cache.get(get)).await?;
    let length = body.head.range.len();
    let described = describe(&body.head, &file_name);
    let stream = caller.requester().gets_stream(body.stream).inspect(move |bytes| {
        if let Err(error) = bytes {
            // The status has been sent: all that is left is to break off, and to say why in the log.
            tracing::warn!(path, %error, "content broken off");
        }
    });
    let length = [(header::CONTENT_LENGTH, length.to_string())];
    Ok((status_of(&body.head), length, described, Body::from_stream(stream)).into_response())
}

fn status_of(head: &ObjectHead) -> StatusCode {
    if head.is_partial { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK }
}

/// Objects are strangers' bytes on the origin of the console: saved, never shown, and if shown without any rights.
fn describe(head: &ObjectHead, file_name: &str) -> HeaderMap {
    let info = &head.info;
    let mut headers = HeaderMap::new();
    let content_type = info.headers.content_type.as_ref().and_then(|text| HeaderValue::try_from(text).ok());
    headers.insert(header::CONTENT_TYPE, content_type.unwrap_or(DEFAULT_CONTENT_TYPE));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_millis(info.last_modified_ms);
    let text = [
        (header::CONTENT_DISPOSITION, disposition(file_name)),
        (header::ETAG, info.etag.quoted()),
        (header::LAST_MODIFIED, httpdate::fmt_http_date(modified)),
    ];
    let range = head.is_partial.then(|| {
        let (first, last) = (head.range.start, head.range.end.saturating_sub(1));
        (header::CONTENT_RANGE, format!("bytes {first}-{last}/{}", info.size))
    });
    let encoding = info.headers.content_encoding.clone().map(|text| (header::CONTENT_ENCODING, text));
    for (name, value) in text.into_iter().chain(range).chain(encoding) {
        insert(&mut headers, name, value);
    }
    headers
}

/// Tags and encodings of under stores may hold what no header can carry: they are left out.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

fn disposition(file_name: &str) -> String {
    format!("attachment; filename*=UTF-8''{}", utf8_percent_encode(file_name, &EXTENDED_VALUE))
}

/// Stores an object. Its size must be known: `Content-Length`.
#[utoipa::path(put, path = "/api/v1/objects/content", tag = "objects", params(OfObject),
    request_body(content = [u8], content_type = "*/*", description = "The bytes, at most 5 GiB."),
    responses(
        (status = 201, body = ContentWritten),
        (status = 411, body = crate::api::ProblemBody, content_type = "application/problem+json",
            description = "The request has no `Content-Length`."),
        (status = 413, body = crate::api::ProblemBody, content_type = "application/problem+json",
            description = "The body is above 5 GiB."),
        Problems, Absent, StorageProblems))]
pub(crate) async fn write_content(
    caller: Caller,
    Parameters(OfObject { path }): Parameters<OfObject>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let object = input::object_path(&path)?;
    let cache = &caller.may_administer(&path)?.cache;
    let content_type = content_type(&headers)?;
    let attributes =
        Attributes { headers: SystemHeaders { content_type, ..SystemHeaders::default() }, ..Attributes::default() };
    let body = incoming(&headers, body)?;
    let put = PutObject { path: object, body, attributes, conditions: Conditions::default() };
    let written = caller.requester().gets(cache.put(put)).await?;
    Ok((StatusCode::CREATED, Json(ContentWritten { etag: written.etag.quoted() })).into_response())
}

fn content_type(headers: &HeaderMap) -> Answer<Option<String>> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(None) };
    match value.to_str() {
        Ok(text) if text.len() <= CONTENT_TYPE_BYTES_MAX => Ok(Some(text.to_owned())),
        Ok(_) | Err(_) => {
            Err(Problem::bad(format!("Content-Type must be ASCII text of at most {CONTENT_TYPE_BYTES_MAX} bytes")))
        }
    }
}

fn incoming(headers: &HeaderMap, body: Body) -> Answer<Incoming> {
    let size = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let size =
        size.ok_or_else(|| Problem::new(StatusCode::LENGTH_REQUIRED, "the header Content-Length is required"))?;
    if size > PUT_BYTES_MAX {
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is above 5 GiB: upload it by S3, in parts"));
    }
    let stream = body.into_data_stream().map(|bytes| bytes.map_err(Error::body)).boxed();
    Ok(Incoming { stream, size, md5: None, sha256: None, checksums: Vec::new(), compute: Vec::new(), trailers: None })
}

/// Deletes an object. That it is not there is no error.
#[utoipa::path(delete, path = "/api/v1/objects/content", tag = "objects", params(OfObject),
    responses((status = 204, description = "It is not there any more."), Problems, Absent, StorageProblems))]
pub(crate) async fn delete_content(
    caller: Caller,
    Parameters(OfObject { path }): Parameters<OfObject>,
) -> Answer<StatusCode> {
    let object = input::object_path(&path)?;
    let cache = &caller.may_administer(&path)?.cache;
    caller.requester().gets(cache.delete(&object, &Conditions::default())).await?;
    Ok(StatusCode::NO_CONTENT)
}
