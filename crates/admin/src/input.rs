//! What comes with a request: parameters, path segments and JSON bodies, refused in one sentence where they are wrong.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use forebay_types::limits::KEY_BYTES_MAX;
use forebay_types::{BucketName, ObjectKey, ObjectPath};
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::Admin;
use crate::problem::{Answer, Problem};

/// The parameters of the query. Unknown ones are refused by the types, which say `deny_unknown_fields`.
pub(crate) struct Parameters<T>(pub(crate) T);

/// For operations that take none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// For operations about one object.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfObject {
    /// `/bucket/key`
    #[param(example = "/logs/2026/today", format = "object-path")]
    pub(crate) path: String,
}

impl<T: DeserializeOwned> FromRequestParts<Admin> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _admin: &Admin) -> Answer<Self> {
        // The decoder below would substitute replacement characters for such bytes, and so name another object.
        if percent_decode_str(parts.uri.query().unwrap_or_default()).decode_utf8().is_err() {
            return Err(Problem::bad("the query must be UTF-8, percent-encoded"));
        }
        let parsed = Query::<T>::try_from_uri(&parts.uri);
        parsed.map(|Query(parameters)| Self(parameters)).map_err(|rejection| {
            let text = rejection.body_text();
            let detail = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            Problem::bad(format!("the query: {detail}"))
        })
    }
}

/// The one variable segment of the path. What can't be its value names nothing.
pub(crate) struct Segment<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Admin> for Segment<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Answer<Self> {
        let parsed = Path::<T>::from_request_parts(parts, admin).await;
        let absent = |_| Problem::absent("no such resource: a name in the path is not valid");
        parsed.map(|Path(segment)| Self(segment)).map_err(absent)
    }
}

/// A body of JSON.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Admin> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, admin: &Admin) -> Answer<Self> {
        check_json_type(request.headers())?;
        let body = Bytes::from_request(request, admin).await;
        let body = body.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is above {} bytes", crate::BODY_BYTES_MAX),
            ),
            _ => Problem::bad(rejection.body_text()),
        })?;
        serde_json::from_slice(&body).map(Self).map_err(|wrong| Problem::bad(format!("the body: {wrong}")))
    }
}

/// A body without a type is taken for JSON.
fn check_json_type(headers: &HeaderMap) -> Answer<()> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let name = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if name.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json"))
}

/// `/bucket/key`
pub(crate) fn object_path(path: &str) -> Answer<ObjectPath> {
    let parts = path.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    let (bucket, key) = parts.ok_or_else(|| Problem::bad(format!("path={path:?} must be /bucket/key")))?;
    let bucket = BucketName::new(bucket).map_err(|invalid| Problem::bad(format!("path={path:?}: {invalid}")))?;
    let key = ObjectKey::new(key).map_err(|invalid| Problem::bad(format!("path={path:?}: {invalid}")))?;
    Ok(ObjectPath { bucket, key })
}

/// `/bucket` or `/bucket/prefix`
pub(crate) fn bucket_and_prefix<'a>(name: &str, path: &'a str) -> Answer<(BucketName, &'a str)> {
    let wrong = |wrong: &str| Problem::bad(format!("{name}={path:?}: {wrong}"));
    let rest = path.strip_prefix('/').ok_or_else(|| wrong("must be /bucket or /bucket/prefix"))?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let bucket = BucketName::new(bucket).map_err(|invalid| wrong(&invalid.to_string()))?;
    if prefix.len() > KEY_BYTES_MAX || prefix.contains('\0') {
        return Err(wrong(&format!("the prefix must have at most {KEY_BYTES_MAX} bytes, and no NUL")));
    }
    Ok((bucket, prefix))
}

/// `/`, `/bucket` or `/bucket/prefix`
pub(crate) fn check_place(name: &str, path: &str) -> Answer<()> {
    if path == "/" { Ok(()) } else { bucket_and_prefix(name, path).map(|_| ()) }
}

/// A limit of an answer, `most` when none is given.
pub(crate) fn limit(given: Option<usize>, most: usize) -> Answer<usize> {
    match given.unwrap_or(most) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        limit => Err(Problem::bad(format!("limit={limit} must be from 1 to {most}"))),
    }
}
