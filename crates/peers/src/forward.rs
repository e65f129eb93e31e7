//! Both ends of a client's request that is answered at another worker.
//!
//! It is passed on as the client has sent it, so the other worker checks its signature itself.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_types::error_chain;
use futures::TryStreamExt;
use http::header::{CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};

use crate::client::Peers;
use crate::frames::{Answer, BODY_BYTES_MAX, whole_body};
use crate::message::{FETCH, FORWARD, KIND, PeerBody, has_no_body, is_refused, strip, text, value};
use crate::question::timed;
use crate::requests::Origin;
use crate::{Error, Result};

const CLIENT_IP: HeaderName = HeaderName::from_static("forebay-peer-client-ip");
const CLIENT_SCHEME: HeaderName = HeaderName::from_static("forebay-peer-client-scheme");
const CLIENT_TLS: HeaderName = HeaderName::from_static("forebay-peer-client-tls");
const CLIENT_CIPHER_SUITE: HeaderName = HeaderName::from_static("forebay-peer-client-cipher-suite");
/// The client has said nothing of a length, where HTTP between workers must.
const NO_LENGTH: HeaderName = HeaderName::from_static("forebay-peer-no-length");

/// Headers that belong to one connection (RFC 9110, section 7.6.1), and how they pass to the next one: a client may
/// have signed them.
const OF_CONNECTION: [(HeaderName, HeaderName); 7] = [
    (CONNECTION, HeaderName::from_static("forebay-peer-connection")),
    (HeaderName::from_static("keep-alive"), HeaderName::from_static("forebay-peer-keep-alive")),
    (HeaderName::from_static("proxy-connection"), HeaderName::from_static("forebay-peer-proxy-connection")),
    (TE, HeaderName::from_static("forebay-peer-te")),
    (TRAILER, HeaderName::from_static("forebay-peer-trailer")),
    (TRANSFER_ENCODING, HeaderName::from_static("forebay-peer-transfer-encoding")),
    (UPGRADE, HeaderName::from_static("forebay-peer-upgrade")),
];

/// Between two pieces of an answer: the home may wait for a slow under store.
const PIECE_MAX: Duration = Duration::from_secs(120);

impl Peers {
    /// Passes a client's request on to a worker. The answer has no headers of the connection between the workers, and
    /// its body ends with an error when it comes too slowly.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn forward(
        &self,
        worker: &str,
        request: Request<PeerBody>,
        origin: &Origin,
    ) -> Result<Response<PeerBody>> {
        let mut answer = match has_short_body(&request) {
            true => self.share(worker, request, origin).await?,
            false => self.stream(worker, request, origin).await?,
        };
        let headers = answer.headers_mut();
        strip(headers);
        for (name, _) in &OF_CONNECTION {
            headers.remove(name);
        }
        Ok(answer)
    }

    /// Sends a request with a short body on a shared connection.
    async fn share(&self, worker: &str, request: Request<PeerBody>, origin: &Origin) -> Result<Response<PeerBody>> {
        let no_answer = |problem| Error::NoAnswer { worker: worker.to_owned(), problem };
        let (mut parts, body) = request.into_parts();
        let body = match body.is_end_stream() {
            true => Bytes::new(),
            false => body.collect().await.map_err(|error| Error::Body(error_chain(&error)))?.to_bytes(),
        };
        strip(&mut parts.headers);
        let address = self.address(worker)?;
        let is_head = parts.method == Method::HEAD;
        match self.pool.ask(worker, &address, (&parts, &body), origin).await? {
            Some(Answer::Whole(answer)) if has_its_length(&answer, is_head) => Ok(answer.map(whole_body)),
            Some(Answer::Waits(ticket)) => {
                let fetched = match self.fetch(worker, &ticket).await {
                    // A worker that stops closes connections that seem to be idle.
                    Err(Error::NoAnswer { .. }) => self.fetch(worker, &ticket).await,
                    fetched => fetched,
                };
                // What was asked for is done.
                fetched.map_err(|error| no_answer(error_chain(&error)))
            }
            Some(Answer::Refused) => Err(refused_by(worker)),
            Some(Answer::Whole(_) | Answer::Broken | Answer::Closing) => {
                Err(no_answer("its answer broke off".to_owned()))
            }
            None => self.stream(worker, Request::from_parts(parts, whole_body(body)), origin).await,
        }
    }

    async fn fetch(&self, worker: &str, ticket: &str) -> Result<Response<PeerBody>> {
        let fetch = Request::get(format!("/{ticket}")).header(KIND, FETCH).body(whole_body(Bytes::new()));
        self.answer_of(worker, fetch.expect("a ticket is printable")).await
    }

    /// Sends a request on a connection of its own.
    async fn stream(
        &self,
        worker: &str,
        mut request: Request<PeerBody>,
        origin: &Origin,
    ) -> Result<Response<PeerBody>> {
        pack(&mut request, origin);
        self.answer_of(worker, request).await
    }

    async fn answer_of(&self, worker: &str, request: Request<PeerBody>) -> Result<Response<PeerBody>> {
        let answer = self.send(worker, request).await?;
        if is_refused(&answer) {
            return Err(refused_by(worker));
        }
        let (parts, body) = answer.into_parts();
        let pieces = timed(Arc::clone(&self.clock), worker, body, PIECE_MAX);
        let body = StreamBody::new(pieces.map_err(io::Error::other).map_ok(Frame::data));
        Ok(Response::from_parts(parts, BodyExt::boxed_unsync(body)))
    }
}

fn refused_by(worker: &str) -> Error {
    let problem = "it is stopping, or another worker answers at its address".to_owned();
    Error::Unreachable { worker: worker.to_owned(), problem }
}

/// Whether an answer has the body that its head announces. Otherwise a client would take what follows for more of it.
fn has_its_length(answer: &Response<Bytes>, is_head: bool) -> bool {
    has_no_body(answer.status(), is_head)
        || content_length(answer.headers()).is_none_or(|length| length == answer.body().len())
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Whether the body of a request is known to fit in a frame.
fn has_short_body(request: &Request<PeerBody>) -> bool {
    let headers = request.headers();
    if headers.contains_key(TRANSFER_ENCODING) {
        return false;
    }
    match headers.contains_key(CONTENT_LENGTH) {
        true => content_length(headers).is_some_and(|length| length <= BODY_BYTES_MAX),
        false => request.body().is_end_stream(),
    }
}

fn pack<B>(request: &mut Request<B>, origin: &Origin) {
    let is_upload = matches!(*request.method(), Method::PUT | Method::POST);
    let headers = request.headers_mut();
    strip(headers);
    if is_upload && !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING) {
        headers.insert(NO_LENGTH, value("1"));
    }
    for (name, packed) in OF_CONNECTION {
        rename(headers, &name, &packed);
    }
    headers.insert(KIND, value(FORWARD));
    if let Some(ip) = origin.ip {
        headers.insert(CLIENT_IP, value(&ip.to_string()));
    }
    headers.insert(CLIENT_SCHEME, value(if origin.is_encrypted { "https" } else { "http" }));
    if let Some((version, cipher_suite)) = &origin.tls {
        headers.insert(CLIENT_TLS, value(version));
        headers.insert(CLIENT_CIPHER_SUITE, value(cipher_suite));
    }
}

/// Makes a request what it was when the client sent it.
pub(crate) fn unpack<B>(request: &mut Request<B>) -> Origin {
    let headers = request.headers_mut();
    let tls = text(headers, &CLIENT_TLS).zip(text(headers, &CLIENT_CIPHER_SUITE));
    let origin = Origin {
        ip: text(headers, &CLIENT_IP).and_then(|ip| ip.parse().ok()),
        is_encrypted: text(headers, &CLIENT_SCHEME) == Some("https"),
        tls: tls.map(|(version, cipher_suite)| (version.to_owned(), cipher_suite.to_owned())),
    };
    if headers.contains_key(NO_LENGTH) {
        headers.remove(CONTENT_LENGTH);
    }
    // That of the connection between the workers, if there is one.
    for (name, packed) in OF_CONNECTION {
        headers.remove(&name);
        rename(headers, &packed, &name);
    }
    strip(headers);
    origin
}

fn rename(headers: &mut HeaderMap, from: &HeaderName, to: &HeaderName) {
    let values: Vec<_> = headers.get_all(from).iter().cloned().collect();
    headers.remove(from);
    for value in values {
        headers.append(to, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        let tls = Some(("TLSv1.3".to_owned(), "TLS_AES_128_GCM_SHA256".to_owned()));
        Origin { ip: Some("2001:db8::1".parse().expect("an address")), is_encrypted: true, tls }
    }

    #[test]
    fn a_request_arrives_as_the_client_has_sent_it() {
        let send = || {
            let request = Request::builder().method(Method::PUT).uri("/bucket/a%2Fb//c?x-id=PutObject");
            let request = request.header("host", "s3.example.com").header("connection", "close, x-odd");
            let request = request.header("transfer-encoding", "chunked").header("expect", "100-continue");
            request.header("x-amz-meta-a", "1").header("x-amz-meta-a", "2").body(()).expect("a request")
        };
        let mut request = send();
        pack(&mut request, &origin());
        assert!(!request.headers().contains_key(CONNECTION) && !request.headers().contains_key(TRANSFER_ENCODING));
        // What HTTP between the workers adds.
        request.headers_mut().insert(TRANSFER_ENCODING, value("chunked"));
        assert_eq!(unpack(&mut request), origin());
        assert_eq!((request.uri(), request.headers()), (send().uri(), send().headers()));
    }

    #[test]
    fn a_length_that_the_client_has_not_named_is_not_there() {
        let mut request = Request::put("/bucket/key").body(()).expect("a request");
        pack(&mut request, &origin());
        request.headers_mut().insert(CONTENT_LENGTH, value("0"));
        unpack(&mut request);
        assert!(request.headers().is_empty());
    }

    #[test]
    fn a_client_cannot_say_where_it_comes_from() {
        let plain = Origin { ip: None, is_encrypted: false, tls: None };
        let request = Request::get("/").header(CLIENT_IP, "10.0.0.1").header(CLIENT_SCHEME, "https");
        let request = request.header(CLIENT_TLS, "TLSv1.3").header(CLIENT_CIPHER_SUITE, "x").header(KIND, "copy");
        let mut request = request.header("forebay-peer-connection", "upgrade").body(()).expect("a request");
        pack(&mut request, &plain);
        assert_eq!(request.headers()[KIND], FORWARD);
        assert_eq!(unpack(&mut request), plain);
        assert!(request.headers().is_empty());
    }
}
