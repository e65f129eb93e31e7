//! What both ends must agree on.

use std::io;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either, Empty, Full};
use hyper::body::Incoming;

/// A body that is sent to another worker, or back.
pub type PeerBody = UnsyncBoxBody<Bytes, io::Error>;

/// The body of a client's request that has come from another worker: piece by piece, or whole.
pub type RequestBody = Either<Incoming, Full<Bytes>>;

/// What a message is. All its other headers follow from that.
pub(crate) const KIND: HeaderName = HeaderName::from_static("forebay-peer-message");
/// The worker that the message is for: an address may have a new owner.
pub(crate) const TO: HeaderName = HeaderName::from_static("forebay-peer-to");
/// The worker that sends it, for logs.
pub(crate) const FROM: HeaderName = HeaderName::from_static("forebay-peer-from");

/// On whose behalf a question is asked: see [`forebay_env::Requester::number`]. Without it, the worker itself asks.
pub(crate) const REQUESTER: HeaderName = HeaderName::from_static("forebay-peer-requester");

/// The message was not for this worker, or is not understood. Nothing was done.
const REFUSED: HeaderName = HeaderName::from_static("forebay-peer-refused");

/// Headers of a message. It has those of a client's request, of which there may be 100, and some of its own.
pub(crate) const HEADERS_MAX: usize = 256;

/// All headers of messages begin with it. Headers of clients that do are not passed on.
const PREFIX: &str = "forebay-peer-";

/// Kinds of messages.
pub(crate) const ASK: &str = "ask";
pub(crate) const FORWARD: &str = "forward";
/// The path has the number of an answer that waits: see [`crate::frames`].
pub(crate) const FETCH: &str = "fetch";

fn empty() -> PeerBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Removes the headers that belong to messages, no matter who set them.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with(PREFIX)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// # Panics
/// When `text` has other characters than printable ASCII.
pub(crate) fn value(text: &str) -> HeaderValue {
    HeaderValue::try_from(text).expect("names of workers and numbers are printable")
}

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whether an answer has no body, whatever length its head names (RFC 9110, section 6.4.1).
pub(crate) fn has_no_body(status: StatusCode, is_head: bool) -> bool {
    is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

pub(crate) fn refused() -> Response<PeerBody> {
    let answer = Response::builder().status(StatusCode::MISDIRECTED_REQUEST).header(REFUSED, value("1"));
    // Its body is not read.
    answer.header(CONNECTION, value("close")).body(empty()).expect("a status is an answer")
}

pub(crate) fn is_refused<B>(answer: &Response<B>) -> bool {
    answer.headers().contains_key(REFUSED)
}
