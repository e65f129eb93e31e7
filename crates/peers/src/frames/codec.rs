//! What is in a frame: a number, a head in the format of `postcard`, and a body.
//!
//! The number tells to which request an answer belongs. A number alone cancels a request. `LengthDelimitedCodec` puts
//! the length of a frame before it.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::SinkExt;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

use super::BODY_BYTES_MAX;
use crate::message::RequestBody;
use crate::requests::Origin;

/// A body and a head. Heads that clients send, and those of answers, have some kilobytes.
const FRAME_BYTES_MAX: usize = BODY_BYTES_MAX + (192 << 10);

/// Of frames that wait, what is put into one buffer before it is written.
const BATCH_BYTES: usize = 64 << 10;

/// Of a head, where it does not have to grow.
const HEAD_BYTES: usize = 1 << 10;

type Headers<'a> = Vec<(&'a str, Value<'a>)>;

/// The value of a header. A slice would be written byte by byte.
struct Value<'a>(&'a [u8]);

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&[u8]>::deserialize(deserializer).map(Self)
    }
}

#[derive(Serialize, Deserialize)]
struct Question<'a> {
    /// The worker that it is for: an address may have a new owner.
    to: &'a str,
    method: &'a str,
    target: &'a str,
    #[serde(borrow)]
    headers: Headers<'a>,
    origin: Origin,
}

#[derive(Serialize, Deserialize)]
enum AnswerHead<'a> {
    /// Nothing was done: the request was not for this worker, or makes no sense, or the worker is stopping.
    Refused,
    /// The answer broke off.
    Broken,
    /// The answer waits until it is fetched with this ticket.
    Waits(&'a str),
    Whole {
        status: u16,
        #[serde(borrow)]
        headers: Headers<'a>,
    },
    /// The worker is stopping, and refuses what comes. The number means nothing.
    Closing,
}

/// What comes to the end that answers: with the number of the request.
pub(super) enum Asked {
    /// A frame for [`read_question`].
    Request(u64, Bytes),
    Cancel(u64),
}

/// What comes back for a request.
pub(crate) enum Answer {
    Refused,
    Broken,
    Waits(String),
    Whole(Response<Bytes>),
    Closing,
}

fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(FRAME_BYTES_MAX).new_codec()
}

pub(super) fn read<R: AsyncRead>(stream: R) -> FramedRead<R, LengthDelimitedCodec> {
    FramedRead::new(stream, codec())
}

/// Writes frames as they come. Those that wait at the same moment are written together.
pub(super) async fn write_all(mut queue: mpsc::Receiver<Bytes>, stream: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut frames = FramedWrite::new(stream, codec());
    frames.set_backpressure_boundary(BATCH_BYTES);
    while let Some(frame) = queue.recv().await {
        frames.feed(frame).await?;
        while let Ok(frame) = queue.try_recv() {
            frames.feed(frame).await?;
        }
        SinkExt::<Bytes>::flush(&mut frames).await?;
    }
    SinkExt::<Bytes>::close(&mut frames).await
}

fn pack<T: Serialize>(number: u64, head: &T, body: &[u8]) -> Option<Bytes> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + body.len());
    frame.put_u64(number);
    let mut frame = postcard::to_extend(head, frame).ok()?;
    frame.extend_from_slice(body);
    (frame.len() <= FRAME_BYTES_MAX).then(|| frame.into())
}

/// The number of a frame, and the rest of it.
pub(super) fn number(mut frame: BytesMut) -> Option<(u64, Bytes)> {
    let number = frame.try_get_u64().ok()?;
    Some((number, frame.freeze()))
}

fn listed(headers: &HeaderMap) -> Headers<'_> {
    headers.iter().map(|(name, value)| (name.as_str(), Value(value.as_bytes()))).collect()
}

fn header_map(listed: &Headers<'_>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(listed.len());
    for (name, value) in listed {
        headers.append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value.0).ok()?);
    }
    Some(headers)
}

/// `None`: it is too long for a frame.
pub(super) fn question(number: u64, to: &str, parts: &Parts, body: &[u8], origin: &Origin) -> Option<Bytes> {
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let (method, headers) = (parts.method.as_str(), listed(&parts.headers));
    pack(number, &Question { to, method, target, headers, origin: origin.clone() }, body)
}

/// Nobody waits for the answer any more.
pub(super) fn cancel(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// `None`: it has no number.
pub(super) fn read_asked(frame: BytesMut) -> Option<Asked> {
    let (number, frame) = self::number(frame)?;
    Some(if frame.is_empty() { Asked::Cancel(number) } else { Asked::Request(number, frame) })
}

/// `None`: it is not for the worker `own`, or makes no sense.
pub(super) fn read_question(own: &str, frame: &Bytes) -> Option<(Request<RequestBody>, Origin)> {
    let (question, body) = postcard::take_from_bytes::<Question<'_>>(frame).ok()?;
    if question.to != own {
        return None;
    }
    let mut request = Request::new(Either::Right(Full::new(frame.slice_ref(body))));
    *request.method_mut() = Method::from_bytes(question.method.as_bytes()).ok()?;
    *request.uri_mut() = Uri::try_from(question.target).ok()?;
    *request.headers_mut() = header_map(&question.headers)?;
    Some((request, question.origin))
}

/// `None`: it is too long for a frame.
pub(super) fn whole(number: u64, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<Bytes> {
    pack(number, &AnswerHead::Whole { status: status.as_u16(), headers: listed(headers) }, body)
}

pub(super) fn waits(number: u64, ticket: &str) -> Bytes {
    short(number, &AnswerHead::Waits(ticket))
}

pub(super) fn broken(number: u64) -> Bytes {
    short(number, &AnswerHead::Broken)
}

pub(super) fn refused(number: u64) -> Bytes {
    short(number, &AnswerHead::Refused)
}

pub(super) fn closing() -> Bytes {
    short(u64::MAX, &AnswerHead::Closing)
}

fn short(number: u64, head: &impl Serialize) -> Bytes {
    pack(number, head, &[]).expect("it has some bytes")
}

/// An answer with the number of its request. `None`: it makes no sense.
pub(super) fn read_answer(frame: BytesMut) -> Option<(u64, Answer)> {
    let (number, frame) = self::number(frame)?;
    let (head, body) = postcard::take_from_bytes::<AnswerHead<'_>>(&frame).ok()?;
    let answer = match head {
        AnswerHead::Refused => Answer::Refused,
        AnswerHead::Broken => Answer::Broken,
        AnswerHead::Waits(ticket) => Answer::Waits(ticket.to_owned()),
        AnswerHead::Closing => Answer::Closing,
        AnswerHead::Whole { status, headers } => {
            let mut answer = Response::new(frame.slice_ref(body));
            *answer.status_mut() = StatusCode::from_u16(status).ok()?;
            *answer.headers_mut() = header_map(&headers)?;
            Answer::Whole(answer)
        }
    };
    Some((number, answer))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-a", HeaderValue::from_static("1"));
        headers.append("x-amz-meta-a", HeaderValue::from_static(""));
        headers.append("x-amz-meta-b", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        headers
    }

    #[tokio::test]
    async fn a_request_comes_out_as_it_went_in() {
        let tls = Some(("TLSv1.3".to_owned(), "TLS_AES_128_GCM_SHA256".to_owned()));
        let with_tls = Origin { ip: Some("2001:db8::1".parse().unwrap()), is_encrypted: true, tls };
        let plain = Origin { ip: None, is_encrypted: false, tls: None };
        for (method, target, body, origin) in [
            (Method::GET, "/", &b""[..], plain.clone()),
            (Method::PUT, "//a%2Fb/../c?x-id=PutObject&y", b"body\0\xff", with_tls),
            (Method::from_bytes(b"ODD").unwrap(), "/bucket/key", &[7; BODY_BYTES_MAX], plain),
        ] {
            let mut request = Request::new(());
            *request.method_mut() = method.clone();
            *request.uri_mut() = target.parse().unwrap();
            *request.headers_mut() = headers();
            let (parts, ()) = request.into_parts();
            let frame = question(7, "b", &parts, body, &origin).unwrap();
            let Some(Asked::Request(7, frame)) = read_asked(frame.into()) else { panic!("a request") };
            assert!(read_question("c", &frame).is_none());
            let (read, read_origin) = read_question("b", &frame).unwrap();
            assert_eq!((read.method(), read.uri(), read.headers()), (&method, &parts.uri, &headers()));
            assert_eq!(read_origin, origin);
            assert_eq!(read.into_body().collect().await.unwrap().to_bytes(), body);
        }
        assert!(matches!(read_asked(cancel(7).into()), Some(Asked::Cancel(7))));
        assert!(read_asked(BytesMut::from(&b"\0\0\0"[..])).is_none());
    }

    #[test]
    fn an_answer_comes_out_as_it_went_in() {
        let frame = whole(9, StatusCode::IM_A_TEAPOT, &headers(), b"body").unwrap();
        let Some((9, Answer::Whole(answer))) = read_answer(frame.into()) else { panic!("an answer") };
        assert_eq!((answer.status(), answer.headers()), (StatusCode::IM_A_TEAPOT, &headers()));
        assert_eq!(answer.body(), &b"body"[..]);
        assert!(matches!(read_answer(waits(9, "x").into()), Some((9, Answer::Waits(ticket))) if ticket == "x"));
        assert!(matches!(read_answer(refused(9).into()), Some((9, Answer::Refused))));
        assert!(matches!(read_answer(broken(9).into()), Some((9, Answer::Broken))));
        assert!(matches!(read_answer(closing().into()), Some((u64::MAX, Answer::Closing))));
        assert!(read_answer(BytesMut::from(&b"\0\0\0\0\0\0\0\x09what"[..])).is_none());
    }

    #[test]
    fn what_is_too_long_for_a_frame_is_not_made_one() {
        let mut headers = HeaderMap::new();
        headers.append("x-long", HeaderValue::from_bytes(&[b'x'; FRAME_BYTES_MAX]).unwrap());
        assert!(whole(1, StatusCode::OK, &headers, b"").is_none());
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.headers = headers;
        let origin = Origin { ip: None, is_encrypted: false, tls: None };
        assert!(question(1, "b", &parts, b"", &origin).is_none());
    }
}
