//! URLs of objects, as S3 writes them.

use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::S3Request;

use crate::context::RequestContext;

/// What is percent-encoded in the path of a URL and in a list with `encoding-type=url`: all but what stands for itself.
pub(crate) const PATH_ENCODE_SET: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// The URL of an object: the one that the request was sent to, with `key` behind it when that is the bucket's.
pub(crate) fn location<T>(request: &S3Request<T>, key: Option<&str>) -> Option<String> {
    let scheme = request.extensions.get::<Arc<RequestContext>>()?.scheme;
    let host = request.headers.get("host")?.to_str().ok()?;
    let path = request.uri.path();
    match key {
        None => Some(format!("{scheme}://{host}{path}")),
        Some(key) => {
            let key = utf8_percent_encode(key, PATH_ENCODE_SET);
            Some(format!("{scheme}://{host}{}/{key}", path.trim_end_matches('/')))
        }
    }
}
