//! What one worker asks another, and how that looks on the wire.
//!
//! A message is a frame and bytes behind it. A frame is its length, four bytes in network order, and a value in the
//! format of `postcard`. HTTP names the length of all of it, so what is cut off is noticed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_cache::{
    Attributes, ByteStream, CachedObject, ChangesWanted, CleanCopy, CleanRange, CleanTerms, Conditions, CopyId,
    DeletionStep, Error, ErrorKind, GetObject, HeldBytes, Incoming as Upload, LeaseRequest, LeaseTerms, NewCopy,
    PutObject, ReadLease, RecordRange, Result, SlotSet, UndeliverableEnd,
};
use forebay_env::{Clock, Requester};
use forebay_types::{Algorithm, BucketName, Checksum, Generation, ObjectInfo, ObjectPath, error_chain};
use futures::{StreamExt, TryStreamExt};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::message::PeerBody;

/// Of a frame: a thousand records of long keys have some megabytes.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// New ones come last, with a new version of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Answer: [`Held`], and the bytes; or nothing.
    Held {
        key: Vec<u8>,
        generation: Generation,
    },
    /// Answer: [`forebay_cache::HomeRecords`].
    Records(RecordRange),
    /// The body follows. Answer: [`forebay_cache::Written`].
    Put(Box<Put>),
    Delete {
        path: ObjectPath,
        conditions: Conditions,
    },
    /// Answer: [`forebay_cache::ObjectHead`], and the body.
    Get(GetObject),
    /// Answer: [`forebay_cache::ObjectHead`].
    Head(GetObject),
    /// Answer: [`forebay_types::Tags`].
    Tags(ObjectPath),
    /// Answer: [`forebay_cache::Status`].
    Status,
    /// Answer: [`forebay_cache::SlotSet`].
    Deletion {
        bucket: BucketName,
        step: DeletionStep,
    },
    /// Answer: [`forebay_cache::Needs`].
    Needs,
    /// The bytes follow, unless there are pieces. Answer: whether the copy is taken.
    TakeCopy(Box<Copy>),
    /// Answer: a [`forebay_cache::Fate`] for each.
    Fates(Vec<(Vec<u8>, Generation)>),
    /// Answer: whether the worker has the copy, for each.
    HasCopies(Vec<(Vec<u8>, Generation)>),
    /// Answer: [`forebay_cache::ObjectDetail`] as JSON. It leaves fields out, which `postcard` can't.
    Detail(ObjectPath),
    /// Answer: the same objects, as the home knows them.
    Cached {
        bucket: BucketName,
        objects: Vec<CachedObject>,
    },
    /// Answer: [`Leased`], and the bytes of the object unless the reader has them; or nothing.
    ReadLease(LeaseRequest),
    /// Answer: whether the process that had these leases has dropped them.
    EndLeases {
        process: u64,
        paths: Vec<ObjectPath>,
    },
    /// Answer: nothing, or why there is no room.
    RoomForCopy {
        path: ObjectPath,
        bytes: u64,
    },
    /// Answer: [`Clean`], and all bytes of a whole copy that has no more than `bytes_max`; or nothing.
    CleanCopy {
        path: ObjectPath,
        bytes_max: u64,
    },
    /// Answer: whether the worker has these bytes, which follow.
    CleanBytes(CleanRange),
    /// Answer: a list of [`forebay_cache::ShareReport`] as JSON.
    JobShares,
    /// Answer: [`forebay_cache::ShareFindings`] as JSON.
    JobFindings {
        id: String,
        after: u64,
        limit: u32,
    },
    /// Answer: [`crate::WorkerSettings`].
    Settings,
    /// Answer: a list of [`forebay_cache::HotObject`].
    HotObjects(SlotSet),
    /// Answer: [`forebay_cache::HomeChanges`].
    Changes(ChangesWanted),
    /// Answer: [`forebay_cache::UndeliverablePage`] as JSON.
    Undeliverable {
        prefix: String,
        after: Option<ObjectPath>,
        limit: u32,
    },
    /// Answer: nothing, or why it is as before.
    EndUndeliverable {
        path: ObjectPath,
        generation: u64,
        end: UndeliverableEnd,
    },
}

/// A clean copy without its bytes: see [`CleanCopy`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Clean {
    terms: CleanTerms,
    /// Whether the bytes follow.
    has_body: bool,
}

impl Clean {
    pub(crate) fn of(copy: CleanCopy) -> (Self, Option<(ByteStream, u64)>) {
        let CleanCopy { terms, body } = copy;
        let body = body.map(|stream| (stream, terms.size));
        (Self { terms, has_body: body.is_some() }, body)
    }

    pub(crate) fn with(self, stream: ByteStream) -> CleanCopy {
        CleanCopy { terms: self.terms, body: self.has_body.then_some(stream) }
    }
}

/// A read lease without its bytes: see [`ReadLease`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Leased {
    terms: LeaseTerms,
    /// Whether the bytes follow.
    has_body: bool,
}

impl Leased {
    pub(crate) fn of(lease: ReadLease) -> (Self, Option<(ByteStream, u64)>) {
        let ReadLease { terms, body } = lease;
        let body = body.map(|stream| (stream, terms.head.range.len()));
        (Self { terms, has_body: body.is_some() }, body)
    }

    pub(crate) fn with(self, stream: ByteStream) -> ReadLease {
        ReadLease { terms: self.terms, body: self.has_body.then_some(stream) }
    }
}

/// A copy without its bytes: see [`NewCopy`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Copy {
    id: (Vec<u8>, Generation),
    path: ObjectPath,
    pieces: Vec<(Vec<u8>, Generation)>,
    bytes: Held,
}

/// Bytes that a worker has: see [`HeldBytes`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    size: u64,
    metadata: Vec<u8>,
    annex: Vec<u8>,
}

/// A write without its body: see [`PutObject`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Put {
    path: ObjectPath,
    attributes: Attributes,
    conditions: Conditions,
    size: u64,
    md5: Option<[u8; 16]>,
    sha256: Option<[u8; 32]>,
    checksums: Vec<Checksum>,
    compute: Vec<Algorithm>,
}

/// An error as the home has given it: see [`Error`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    kind: ErrorKind,
    context: String,
    object: Option<Box<ObjectInfo>>,
    retry_after: Option<Duration>,
}

impl Held {
    pub(crate) fn of(held: HeldBytes) -> (Self, ByteStream, u64) {
        let HeldBytes { size, metadata, annex, stream } = held;
        (Self { size, metadata: metadata.to_vec(), annex: annex.to_vec() }, stream, size)
    }

    pub(crate) fn with(self, stream: ByteStream) -> HeldBytes {
        HeldBytes { size: self.size, metadata: self.metadata.into(), annex: self.annex.into(), stream }
    }
}

impl Copy {
    /// And the bytes that follow.
    pub(crate) fn of(copy: NewCopy) -> (Self, Option<(ByteStream, u64)>) {
        let NewCopy { id, path, pieces, bytes } = copy;
        let follow = pieces.is_empty();
        let (bytes, stream, size) = Held::of(bytes);
        let copy = Self { id: of_copy(&id), path, pieces: pieces.iter().map(of_copy).collect(), bytes };
        (copy, follow.then_some((stream, size)))
    }

    pub(crate) fn with(self, stream: ByteStream) -> NewCopy {
        let Self { id, path, pieces, bytes } = self;
        let pieces = pieces.into_iter().map(copy_id).collect();
        NewCopy { id: copy_id(id), path, pieces, bytes: bytes.with(stream) }
    }

    /// Of the bytes that follow.
    pub(crate) fn size(&self) -> u64 {
        if self.pieces.is_empty() { self.bytes.size } else { 0 }
    }
}

pub(crate) fn of_copy(id: &CopyId) -> (Vec<u8>, Generation) {
    (id.key.to_vec(), id.generation)
}

pub(crate) fn copy_id((key, generation): (Vec<u8>, Generation)) -> CopyId {
    CopyId { key: key.into(), generation }
}

impl Put {
    /// # Errors
    /// `Unavailable` when the body has trailers: only who reads it knows them.
    pub(crate) fn of(request: PutObject) -> Result<(Self, ByteStream, u64)> {
        let PutObject { path, body, attributes, conditions } = request;
        let Upload { stream, size, md5, sha256, checksums, compute, trailers } = body;
        if trailers.is_some() {
            return Err(unavailable("a body with trailers is not passed on".to_owned()));
        }
        Ok((Self { path, attributes, conditions, size, md5, sha256, checksums, compute }, stream, size))
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn with(self, stream: ByteStream) -> PutObject {
        let Self { path, attributes, conditions, size, md5, sha256, checksums, compute } = self;
        let body = Upload { stream, size, md5, sha256, checksums, compute, trailers: None };
        PutObject { path, body, attributes, conditions }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let context = error_chain(&error);
        let Error { kind, object, retry_after, .. } = error;
        Self { kind, context, object, retry_after }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let Refusal { kind, context, object, retry_after } = refusal;
        Self { object, retry_after, ..Self::new(kind, context) }
    }
}

/// # Errors
/// `Internal` when the value can't be written.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))
}

/// # Errors
/// `Unavailable` when it makes no sense.
pub(crate) fn from_json<T: DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| unavailable(format!("an answer can't be read: {error}")))
}

/// A message: a frame, and what follows with its length. Returns the length of all of it.
///
/// What follows is read on behalf of the present requester.
///
/// # Errors
/// `Internal` when the value can't be encoded.
pub(crate) fn message<T: Serialize>(value: &T, body: Option<(ByteStream, u64)>) -> Result<(PeerBody, u64)> {
    let not_encoded = |error| Error::new(ErrorKind::Internal, format!("a message can't be written: {error}"));
    let mut frame = postcard::to_extend(value, vec![0; 4]).map_err(not_encoded)?;
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    let (stream, size) = body.unwrap_or_else(|| (futures::stream::empty().boxed(), 0));
    let length = frame.len() as u64 + size;
    let stream = Requester::present().gets_stream(stream);
    let pieces = futures::stream::iter([Ok(Bytes::from(frame))]).chain(stream.map_err(io::Error::other));
    Ok((StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync(), length))
}

/// The value of a message, and what follows. Its next piece always comes within `longest`.
///
/// # Errors
/// `Unavailable` when the message is cut off, comes too slowly or makes no sense.
pub(crate) async fn read<T: DeserializeOwned>(
    clock: &Arc<dyn Clock>,
    from: &str,
    body: Incoming,
    longest: Duration,
) -> Result<(T, ByteStream)> {
    let mut pieces = timed(Arc::clone(clock), from, body, longest);
    let mut read = BytesMut::new();
    let mut need = async |bytes: usize, read: &mut BytesMut| {
        while read.len() < bytes {
            let Some(piece) = pieces.next().await else {
                return Err(unavailable(format!("a message of worker {from} is too short")));
            };
            read.extend_from_slice(&piece?);
        }
        Ok(())
    };
    need(4, &mut read).await?;
    let length = read.split_to(4).iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    if length > FRAME_BYTES_MAX {
        return Err(unavailable(format!("a message of worker {from} is too long")));
    }
    need(length, &mut read).await?;
    let value = postcard::from_bytes(&read.split_to(length));
    let value = value.map_err(|error| unavailable(format!("a message of worker {from} can't be read: {error}")))?;
    let first = (!read.is_empty()).then(|| Ok(read.freeze()));
    Ok((value, futures::stream::iter(first).chain(pieces).boxed()))
}

/// A body whose next piece always comes within `longest`.
pub(crate) fn timed(clock: Arc<dyn Clock>, from: &str, body: Incoming, longest: Duration) -> ByteStream {
    let from = from.to_owned();
    let pieces = futures::stream::try_unfold(BodyStream::new(body), move |mut body| {
        let (clock, from) = (Arc::clone(&clock), from.clone());
        async move {
            loop {
                let next = tokio::select! {
                    biased;
                    next = body.next() => next,
                    () = clock.sleep(longest) => return Err(unavailable(format!("worker {from} sends no more"))),
                };
                match next.map(|frame| frame.map(Frame::into_data)) {
                    None => return Ok(None),
                    Some(Ok(Ok(data))) => return Ok(Some((data, body))),
                    Some(Ok(Err(_trailers))) => {}
                    Some(Err(error)) => {
                        return Err(unavailable(format!("worker {from} has stopped sending: {}", error_chain(&error))));
                    }
                }
            }
        }
    });
    pieces.boxed()
}

pub(crate) fn unavailable(problem: String) -> Error {
    Error::new(ErrorKind::Unavailable, problem)
}
