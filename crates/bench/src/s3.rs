//! S3 operations, each of them measured.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use forebay_env::Clock;
use md5::{Digest, Md5};
use parking_lot::Mutex;
use serde::Serialize;
use sha2::Sha256;

use crate::http::{Answer, Connection, Endpoint, Sink, Trouble};
use crate::payload::{Content, Hashes, Payload};
use crate::signature::{EMPTY_SHA256, Signer, UNSIGNED_PAYLOAD, encoded};

/// One version of an object: the versions that the generator writes of one key differ.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) bucket: Arc<str>,
    pub(crate) key: String,
    pub(crate) version: u64,
}

/// Operations on the server. Sizes are in bytes.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Put {
        target: Target,
        size: u64,
    },
    /// Without a size, the size in the answer is used.
    Get {
        target: Target,
        size: Option<u64>,
        /// Start and length of the range to read. For an empty range the object is read whole, since no range of an
        /// empty object exists.
        range: Option<(u64, u64)>,
    },
    Stat {
        target: Target,
    },
    Delete {
        target: Target,
    },
    DeleteMany {
        bucket: Arc<str>,
        keys: Vec<String>,
    },
    /// One page of a list.
    List {
        bucket: Arc<str>,
        prefix: String,
        keys_max: u32,
        token: Option<String>,
    },
    /// Creates the upload, uploads the parts in sequence, and completes it.
    Multipart {
        target: Target,
        size: u64,
        part_bytes: u64,
    },
    /// Writes, then reads and compares.
    ReadAfterWrite {
        target: Target,
        size: u64,
    },
    /// A bucket that exists already is fine.
    CreateBucket {
        bucket: String,
    },
    /// A bucket that does not exist is fine.
    DeleteBucket {
        bucket: String,
    },
}

impl Operation {
    /// The object that it is about, if it is one.
    pub(crate) fn target(&self) -> Option<&Target> {
        match self {
            Self::Put { target, .. }
            | Self::Get { target, .. }
            | Self::Stat { target }
            | Self::Delete { target }
            | Self::Multipart { target, .. }
            | Self::ReadAfterWrite { target, .. } => Some(target),
            Self::DeleteMany { .. } | Self::List { .. } | Self::CreateBucket { .. } | Self::DeleteBucket { .. } => None,
        }
    }
}

/// The name under which samples are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Kind {
    Put,
    Get,
    Stat,
    Delete,
    List,
    Multipart,
    Part,
    Bucket,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Get => "GET",
            Self::Stat => "STAT",
            Self::Delete => "DELETE",
            Self::List => "LIST",
            Self::Multipart => "MULTIPART",
            Self::Part => "PART",
            Self::Bucket => "BUCKET",
        }
    }
}

/// One measured operation. Times are of the monotonic clock.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) kind: Kind,
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
    pub(crate) first_byte: Option<Duration>,
    pub(crate) bytes: u64,
    /// Number of objects: the keys of a list, those that were deleted at once, otherwise 1.
    pub(crate) objects: u64,
    pub(crate) error: Option<String>,
}

/// The outcome of an operation.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) succeeded: bool,
    /// For a list: where the next page starts.
    pub(crate) next: Option<String>,
    /// For a list.
    pub(crate) keys: Vec<String>,
}

/// Why an operation failed: the error code of S3, or what replaces it.
type Failed = String;

/// What all connections of a thread share.
pub(crate) struct Shared {
    pub(crate) payload: Arc<Payload>,
    pub(crate) hashes: Mutex<Hashes>,
    pub(crate) signer: Mutex<Signer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sign_payload: bool,
    pub(crate) verify: bool,
    pub(crate) timeout: Duration,
}

/// The body of a request.
#[derive(Clone, Copy)]
enum Body<'a> {
    Nothing,
    Text(&'a str),
    /// A piece of an object: content, offset and length.
    Piece(Content, u64, u64),
}

/// Compares a body with what it should be.
struct Check<'a> {
    payload: &'a Payload,
    target: &'a Target,
    /// Size of the whole object.
    size: Option<u64>,
    /// Start and length of the range, if not everything was requested.
    range: Option<(u64, u64)>,
    content: Option<Content>,
    offset: u64,
    right: bool,
}

impl Sink for Check<'_> {
    fn begin(&mut self, length: Option<u64>) {
        let Some(size) = self.size.or(length) else {
            self.right = false;
            return;
        };
        let expected = self.range.map_or(size, |(_, length)| length);
        self.right = length.is_none_or(|length| length == expected);
        self.content = Some(Payload::content(&self.target.key, self.target.version, size));
    }

    fn take(&mut self, bytes: &[u8]) {
        let matches = self.content.is_some_and(|content| self.payload.matches(content, self.offset, bytes));
        self.right &= matches;
        self.offset += bytes.len() as u64;
    }
}

impl Check<'_> {
    fn is_right(&self) -> bool {
        let end = self.range.map(|(start, length)| start + length).or(self.content.map(|content| content.size));
        self.right && self.content.is_some() && end == Some(self.offset)
    }
}

/// Takes bytes and forgets them.
struct Discard;

impl Sink for Discard {
    fn begin(&mut self, _: Option<u64>) {}
    fn take(&mut self, _: &[u8]) {}
    fn looks(&self) -> bool {
        false
    }
}

/// Speaks S3 over one connection.
pub(crate) struct Client {
    connection: Connection,
    shared: Arc<Shared>,
    head: String,
}

impl Client {
    pub(crate) fn new(endpoint: Endpoint, shared: Arc<Shared>) -> Self {
        let connection = Connection::new(endpoint, Arc::clone(&shared.clock));
        Self { connection, shared, head: String::new() }
    }

    /// Does an operation whose latency counts from `begin`, and passes its samples to `record`.
    pub(crate) async fn perform(
        &mut self,
        operation: &Operation,
        begin: Duration,
        record: &(dyn Fn(Sample) + Send + Sync),
    ) -> Outcome {
        match operation {
            Operation::Put { target, size } => self.put(target, *size, begin, record).await,
            Operation::Get { target, size, range } => {
                self.get(target, *size, *range, self.shared.verify, begin, record).await
            }
            Operation::Stat { target } => {
                let result = self.send("HEAD", &path(target), "", Body::Nothing).await;
                self.simple(Kind::Stat, begin, 1, result, record)
            }
            Operation::Delete { target } => {
                let result = self.send("DELETE", &path(target), "", Body::Nothing).await;
                self.simple(Kind::Delete, begin, 1, gone_is_good(result), record)
            }
            Operation::DeleteMany { bucket, keys } => {
                let text = deletion(keys);
                let result = self.send("POST", &format!("/{bucket}"), "delete=", Body::Text(&text)).await;
                self.simple(Kind::Delete, begin, keys.len() as u64, result, record)
            }
            Operation::List { bucket, prefix, keys_max, token } => {
                self.list(bucket, prefix, *keys_max, token.as_deref(), begin, record).await
            }
            Operation::Multipart { target, size, part_bytes } => {
                let result = self.multipart(target, *size, *part_bytes, record).await;
                let sample = self.sample(Kind::Multipart, begin, result.as_ref().err().cloned());
                let bytes = if result.is_ok() { *size } else { 0 };
                record(Sample { bytes, ..sample });
                Outcome { succeeded: result.is_ok(), ..Outcome::default() }
            }
            Operation::ReadAfterWrite { target, size } => {
                let written = self.put(target, *size, begin, record).await;
                if !written.succeeded {
                    return written;
                }
                let begin = self.shared.clock.monotonic();
                self.get(target, Some(*size), None, true, begin, record).await
            }
            Operation::CreateBucket { bucket } => {
                let result = self.send("PUT", &format!("/{bucket}"), "", Body::Nothing).await;
                self.simple(Kind::Bucket, begin, 1, there_is_good(result), record)
            }
            Operation::DeleteBucket { bucket } => {
                let result = self.send("DELETE", &format!("/{bucket}"), "", Body::Nothing).await;
                self.simple(Kind::Bucket, begin, 1, gone_is_good(result), record)
            }
        }
    }

    async fn put(
        &mut self,
        target: &Target,
        size: u64,
        begin: Duration,
        record: &(dyn Fn(Sample) + Send + Sync),
    ) -> Outcome {
        let content = Payload::content(&target.key, target.version, size);
        let result = self.send("PUT", &path(target), "", Body::Piece(content, 0, size)).await;
        let sample = self.sample(Kind::Put, begin, result.as_ref().err().cloned());
        let succeeded = result.is_ok();
        record(Sample { bytes: if succeeded { size } else { 0 }, ..sample });
        Outcome { succeeded, ..Outcome::default() }
    }

    async fn get(
        &mut self,
        target: &Target,
        size: Option<u64>,
        range: Option<(u64, u64)>,
        verify: bool,
        begin: Duration,
        record: &(dyn Fn(Sample) + Send + Sync),
    ) -> Outcome {
        let payload = Arc::clone(&self.shared.payload);
        let range = range.filter(|(_, length)| *length > 0);
        let offset = range.map_or(0, |(start, _)| start);
        let mut check = Check { payload: &payload, target, size, range, content: None, offset, right: true };
        let sink: &mut dyn Sink = if verify { &mut check } else { &mut Discard };
        let mut result = self.exchange("GET", &path(target), "", Body::Nothing, range, Some(sink)).await;
        let is_whole = |answer: &Answer| range.is_none_or(|(_, length)| answer.body_bytes == length);
        if result.as_ref().is_ok_and(|answer| !is_whole(answer) || verify && !check.is_right()) {
            result = Err("WrongContent".to_owned());
        }
        let mut sample = self.sample(Kind::Get, begin, result.as_ref().err().cloned());
        if let Ok(answer) = &result {
            sample.bytes = answer.body_bytes;
            sample.first_byte = Some(answer.first_byte);
        }
        record(sample);
        Outcome { succeeded: result.is_ok(), ..Outcome::default() }
    }

    async fn list(
        &mut self,
        bucket: &str,
        prefix: &str,
        keys_max: u32,
        token: Option<&str>,
        begin: Duration,
        record: &(dyn Fn(Sample) + Send + Sync),
    ) -> Outcome {
        let token = token.map(|token| format!("continuation-token={}&", encoded(token, false))).unwrap_or_default();
        let query = format!("{token}list-type=2&max-keys={keys_max}&prefix={}", encoded(prefix, false));
        let result = self.send("GET", &format!("/{bucket}"), &query, Body::Nothing).await;
        let mut sample = self.sample(Kind::List, begin, result.as_ref().err().cloned());
        let Ok(answer) = result else {
            record(sample);
            return Outcome::default();
        };
        let text = String::from_utf8_lossy(&answer.text);
        let keys: Vec<_> = elements(&text, "Key").map(unescaped).collect();
        sample.first_byte = Some(answer.first_byte);
        (sample.objects, sample.bytes) = (keys.len() as u64, answer.body_bytes);
        record(sample);
        Outcome { succeeded: true, next: elements(&text, "NextContinuationToken").next().map(unescaped), keys }
    }

    async fn multipart(
        &mut self,
        target: &Target,
        size: u64,
        part_bytes: u64,
        record: &(dyn Fn(Sample) + Send + Sync),
    ) -> Result<(), Failed> {
        let path = path(target);
        let created = self.send("POST", &path, "uploads=", Body::Nothing).await?;
        let created = String::from_utf8_lossy(&created.text).into_owned();
        let id = elements(&created, "UploadId").next().map(unescaped).ok_or("NoUploadId")?;
        let upload = format!("uploadId={}", encoded(&id, false));
        let done = self.parts(target, &upload, size, part_bytes, record).await;
        let done = match done {
            Ok(manifest) => self.send("POST", &path, &upload, Body::Text(&manifest)).await.map(drop),
            Err(code) => Err(code),
        };
        if done.is_err() {
            // The upload counts as failed, whatever this returns. It only keeps the bucket clean.
            let _ = self.send("DELETE", &path, &upload, Body::Nothing).await;
        }
        done
    }

    /// Uploads the parts, and returns the document that completes the upload.
    async fn parts(
        &mut self,
        target: &Target,
        upload: &str,
        size: u64,
        part_bytes: u64,
        record: &(dyn Fn(Sample) + Send + Sync),
    ) -> Result<String, Failed> {
        let content = Payload::content(&target.key, target.version, size);
        let mut manifest = "<CompleteMultipartUpload>".to_owned();
        for number in 1..=size.div_ceil(part_bytes).max(1) {
            let offset = (number - 1) * part_bytes;
            let length = part_bytes.min(size - offset);
            let query = format!("partNumber={number}&{upload}");
            let begin = self.shared.clock.monotonic();
            let result = self.send("PUT", &path(target), &query, Body::Piece(content, offset, length)).await;
            let sample = self.sample(Kind::Part, begin, result.as_ref().err().cloned());
            record(Sample { bytes: if result.is_ok() { length } else { 0 }, ..sample });
            let etag = result?.etag.ok_or("NoETag")?;
            write!(manifest, "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
                .expect("a string takes all");
        }
        Ok(manifest + "</CompleteMultipartUpload>")
    }

    fn simple(
        &self,
        kind: Kind,
        begin: Duration,
        objects: u64,
        result: Result<Answer, Failed>,
        record: &(dyn Fn(Sample) + Send + Sync),
    ) -> Outcome {
        let succeeded = result.is_ok();
        record(Sample { objects, ..self.sample(kind, begin, result.err()) });
        Outcome { succeeded, ..Outcome::default() }
    }

    /// A sample that ends now.
    fn sample(&self, kind: Kind, begin: Duration, error: Option<String>) -> Sample {
        Sample { kind, begin, end: self.shared.clock.monotonic(), first_byte: None, bytes: 0, objects: 1, error }
    }

    async fn send(&mut self, method: &str, path: &str, query: &str, body: Body<'_>) -> Result<Answer, Failed> {
        self.exchange(method, path, query, body, None, None).await
    }

    async fn exchange(
        &mut self,
        method: &str,
        path: &str,
        query: &str,
        body: Body<'_>,
        range: Option<(u64, u64)>,
        sink: Option<&mut dyn Sink>,
    ) -> Result<Answer, Failed> {
        self.write_head(method, path, query, body, range);
        let payload = Arc::clone(&self.shared.payload);
        let (text, piece) = match body {
            Body::Nothing => (None, None),
            Body::Text(text) => (Some(text.as_bytes()), None),
            Body::Piece(content, offset, length) => (None, Some(payload.slices(content, offset, length))),
        };
        let body = text.into_iter().chain(piece.into_iter().flatten());
        let exchange = self.connection.exchange(self.head.as_bytes(), body, sink);
        let result = tokio::time::timeout(self.shared.timeout, exchange).await.unwrap_or(Err(Trouble::Timeout));
        if result.is_err() {
            self.connection.reset();
        }
        let answer = result.map_err(|trouble| format!("{trouble:?}"))?;
        match error_code(&answer) {
            Some(code) => Err(code),
            None => Ok(answer),
        }
    }

    fn write_head(&mut self, method: &str, path: &str, query: &str, body: Body<'_>, range: Option<(u64, u64)>) {
        let length = match body {
            Body::Nothing => 0,
            Body::Text(text) => text.len() as u64,
            Body::Piece(_, _, length) => length,
        };
        let sha256 = self.body_sha256(body);
        let host = self.connection.authority();
        let signed = self.shared.signer.lock().sign(host, method, path, query, &sha256);
        self.head.clear();
        let question = if query.is_empty() { "" } else { "?" };
        let (date, authorization) = (&signed.date, &signed.authorization);
        write!(
            self.head,
            "{method} {path}{question}{query} HTTP/1.1\r\nhost: {host}\r\nx-amz-date: {date}\r\n\
             x-amz-content-sha256: {sha256}\r\nauthorization: {authorization}\r\n"
        )
        .expect("a string takes all");
        if let Some((start, length)) = range {
            write!(self.head, "range: bytes={start}-{}\r\n", start + length - 1).expect("a string takes all");
        }
        if let Body::Text(text) = body {
            // Required for multi-object deletes.
            let md5 = BASE64_STANDARD.encode(Md5::digest(text));
            write!(self.head, "content-md5: {md5}\r\n").expect("a string takes all");
        }
        if length > 0 || matches!(method, "PUT" | "POST") {
            write!(self.head, "content-length: {length}\r\n").expect("a string takes all");
        }
        self.head.push_str("\r\n");
    }

    fn body_sha256(&self, body: Body<'_>) -> String {
        match body {
            Body::Nothing => EMPTY_SHA256.to_owned(),
            Body::Text(text) => hex::encode(Sha256::digest(text)),
            Body::Piece(..) if !self.shared.sign_payload => UNSIGNED_PAYLOAD.to_owned(),
            Body::Piece(content, offset, length) => {
                self.shared.hashes.lock().of(&self.shared.payload, content, offset, length)
            }
        }
    }
}

fn path(target: &Target) -> String {
    format!("/{}/{}", target.bucket, encoded(&target.key, true))
}

/// The code of an answer that reports an error, possibly with status 200.
fn error_code(answer: &Answer) -> Option<String> {
    let text = String::from_utf8_lossy(&answer.text);
    let failed = answer.status >= 300 || text.contains("<Error>");
    failed.then(|| elements(&text, "Code").next().map_or_else(|| format!("HTTP {}", answer.status), str::to_owned))
}

fn gone_is_good(result: Result<Answer, Failed>) -> Result<Answer, Failed> {
    match result {
        Err(code) if code == "NoSuchKey" || code == "NoSuchBucket" => Ok(Answer::default()),
        result => result,
    }
}

fn there_is_good(result: Result<Answer, Failed>) -> Result<Answer, Failed> {
    match result {
        Err(code) if code == "BucketAlreadyOwnedByYou" || code == "BucketAlreadyExists" => Ok(Answer::default()),
        result => result,
    }
}

fn deletion(keys: &[String]) -> String {
    let objects = keys.iter().map(|key| format!("<Object><Key>{}</Key></Object>", quick_xml::escape::escape(key)));
    format!("<Delete>{}<Quiet>true</Quiet></Delete>", objects.collect::<String>())
}

/// The text between the tags of a name without attributes. Servers write the few elements that are read here like this.
fn elements<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(open.as_str())?;
        let (inside, after) = after.split_once(close.as_str())?;
        rest = after;
        Some(inside)
    })
}

fn unescaped(text: &str) -> String {
    quick_xml::escape::unescape(text).map_or_else(|_| text.to_owned(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found_by_their_codes() {
        let answer = |status, text: &str| Answer { status, text: text.into(), ..Answer::default() };
        assert_eq!(error_code(&answer(200, "<ListBucketResult><Key>a</Key></ListBucketResult>")), None);
        let slow = answer(503, "<Error><Code>SlowDown</Code></Error>");
        assert_eq!(error_code(&slow).as_deref(), Some("SlowDown"));
        let late = answer(200, "<Error><Code>InternalError</Code></Error>");
        assert_eq!(error_code(&late).as_deref(), Some("InternalError"));
        assert_eq!(error_code(&answer(404, "")).as_deref(), Some("HTTP 404"));
    }

    #[test]
    fn elements_are_found_and_unescaped() {
        let text = "<a><Key>x&amp;y</Key><Key></Key><Key>z</Key></a>";
        assert_eq!(elements(text, "Key").map(unescaped).collect::<Vec<_>>(), ["x&y", "", "z"]);
        assert_eq!(elements("<Key>unfinished", "Key").count(), 0);
        assert!(deletion(&["<&>".to_owned()]).contains("<Key>&lt;&amp;&gt;</Key>"));
    }

    #[test]
    fn a_body_is_right_only_as_a_whole() {
        let payload = Payload::new(1);
        let target = Target { bucket: "b".into(), key: "k".to_owned(), version: 1 };
        let bytes: Vec<u8> = payload.slices(Payload::content("k", 1, 100), 0, 100).flatten().copied().collect();
        let old: Vec<u8> = payload.slices(Payload::content("k", 0, 100), 0, 100).flatten().copied().collect();
        let part_is_right = |body: &[u8], size, range: Option<(u64, u64)>, announced| {
            let offset = range.map_or(0, |(start, _)| start);
            let (target, content) = (&target, None);
            let mut check = Check { payload: &payload, target, size, range, content, offset, right: true };
            check.begin(announced);
            body.chunks(7).for_each(|piece| check.take(piece));
            check.is_right()
        };
        let is_right = |body: &[u8], size, announced| part_is_right(body, size, None, announced);
        let middle = Some((30, 20));
        assert!(part_is_right(&bytes[30..50], Some(100), middle, Some(20)));
        assert!(!part_is_right(&bytes[31..51], Some(100), middle, Some(20)), "another range");
        assert!(!part_is_right(&bytes[30..49], Some(100), middle, Some(19)), "a shorter one");
        assert!(!part_is_right(&bytes, Some(100), middle, Some(100)), "all of it");
        assert!(
            is_right(&bytes, Some(100), Some(100))
                && is_right(&bytes, None, Some(100))
                && is_right(&bytes, Some(100), None)
        );
        assert!(!is_right(&bytes[..99], Some(100), Some(100)), "cut short");
        assert!(!is_right(&bytes[..99], Some(100), Some(99)), "shorter than what was written");
        assert!(!is_right(&old, Some(100), Some(100)), "an older version");
        assert!(!is_right(&[], Some(100), Some(0)));
    }
}
