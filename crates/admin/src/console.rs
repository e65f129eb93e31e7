//! The console: a few files that are part of the binary. They hold nothing that is not public, so no credentials are
//! wanted; what they show they ask the API for.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderName, StatusCode, header};
use sha2::{Digest, Sha256};

use crate::problem::{Problem, no_such_page};

/// Only what comes from here runs, and nothing may frame it: what a key of an object or an error message holds stays
/// text.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                                       connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

struct File {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

/// What the build of the console makes.
static FILES: [File; 4] = [
    File {
        name: "index.html",
        content_type: "text/html; charset=utf-8",
        bytes: include_bytes!("../../../console/dist/index.html"),
    },
    File {
        name: "app.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../../../console/dist/app.js"),
    },
    File {
        name: "app.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../../../console/dist/app.css"),
    },
    File { name: "icon.svg", content_type: "image/svg+xml", bytes: include_bytes!("../../../console/dist/icon.svg") },
];

/// The tag of each file.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |file: &File| format!("\"{}\"", hex::encode(&Sha256::digest(file.bytes)[..16]));
    FILES.iter().map(tag).collect()
});

pub(crate) async fn to_console() -> Redirect {
    Redirect::to("/console/")
}

pub(crate) async fn index(headers: HeaderMap) -> Result<Response, Problem> {
    answer("index.html", &headers).await
}

pub(crate) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    answer(&name, &headers).await
}

async fn answer(name: &str, request: &HeaderMap) -> Result<Response, Problem> {
    let Some(at) = FILES.iter().position(|file| file.name == name) else { return Err(no_such_page().await) };
    let (file, tag) = (&FILES[at], &TAGS[at]);
    let headers = [
        (header::CONTENT_TYPE, file.content_type),
        (header::ETAG, tag.as_str()),
        // Browsers revalidate it by its tag each time: a page of the previous version must not talk to this one.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    if has_already(request, tag) {
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    Ok((headers, file.bytes).into_response())
}

fn has_already(request: &HeaderMap, tag: &str) -> bool {
    let known = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag)
}
