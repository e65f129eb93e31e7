//! Requests of clients that share connections to another worker.
//!
//! With HTTP/1.1, a connection carries one request at a time, and each end writes and reads each message on its own.
//! That takes more processor time than a small object is worth. So requests and answers of at most [`BODY_BYTES_MAX`]
//! are frames on a few shared connections: all that wait at the same moment are written at once. An answer that is
//! longer, or whose length is not known, waits at the other worker until it is fetched with HTTP.
//!
//! Neither end stops reading because an answer is slow or large, so no request waits for another one.

mod codec;
mod connection;
mod pool;
pub(crate) mod server;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};

use crate::message::PeerBody;
pub(crate) use codec::Answer;
pub(crate) use pool::Pool;

/// Longest body in a frame.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;

/// A body that is here.
pub(crate) fn whole_body(body: Bytes) -> PeerBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}
