//! The interface to an under store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_types::{ByteRange, ChecksumNames, ETag, Generation, ObjectInfo, ObjectKey, Tags};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::passed::{Outcome, observed};
use crate::{Error, ErrorKind, Result, Stamp};

/// Whether the caller is the only one that writes a key.
pub type IsOurs<'a> = &'a (dyn Fn(&ObjectKey) -> bool + Send + Sync);

/// Bytes of an object as they arrive.
pub type ByteStream = BoxStream<'static, Result<Bytes>>;

/// What must hold for a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Always,
    /// `If-None-Match: *`.
    Absent,
    /// `If-Match`, with the under store's own ETag.
    Matches(ETag),
}

/// An object as the under store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteObject {
    /// What clients see. When the object carries a stamp that fits, ETag, checksums, parts and times are as Forebay
    /// acknowledged them, otherwise as the under store reports them. Tags are not included: see [`UnderStore::tags`].
    pub info: ObjectInfo,
    /// The under store's own ETag, which conditions compare. It changes with every change of the bytes.
    pub remote_etag: ETag,
    /// Present when Forebay wrote the object.
    pub stamp: Option<Stamp>,
}

impl RemoteObject {
    /// Checks that a GET returned what an earlier HEAD reported. Its `If-Match` should ensure that. But servers that
    /// keep objects as files compare the ETag of one version, and open another one when an overwrite comes in between.
    /// The stamp travels with the bytes.
    ///
    /// # Errors
    /// `Precondition`.
    pub fn must_be(&self, size: u64, etag: &ETag, remote_etag: &ETag) -> Result<()> {
        let known = self.info.etag == *etag || self.info.etag == *remote_etag;
        if known && self.info.size == size {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Precondition, "the object changed between two requests"))
    }
}

/// An object, and the bytes that were requested.
pub struct RemoteBody {
    pub object: RemoteObject,
    /// The range that `stream` yields. Inside `0..object.info.size`.
    pub range: ByteRange,
    pub stream: ByteStream,
}

/// Where an upload's bytes come from. Each try reads them again.
pub trait UploadSource: Send + Sync + 'static {
    fn stream(&self, range: ByteRange) -> ByteStream;

    /// Returns when the next bytes, this many, may be sent. `None`: at once.
    fn turn(&self, _bytes: u64) -> Option<BoxFuture<'_, ()>> {
        None
    }
}

/// An object to be written whole.
#[derive(Clone)]
pub struct Upload {
    pub generation: Generation,
    pub info: Arc<ObjectInfo>,
    pub source: Arc<dyn UploadSource>,
    pub condition: Condition,
}

impl Upload {
    /// An under store calls this before it sends a part of an object, or all of it.
    pub(crate) async fn turn(&self, bytes: u64) {
        if let Some(turn) = self.source.turn(bytes) {
            turn.await;
        }
    }
}

/// The under store's answer to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub remote_etag: ETag,
}

#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    pub prefix: String,
    /// Groups keys by what is between the prefix and the next delimiter.
    pub delimiter: Option<String>,
    /// Only keys and common prefixes after this one, in byte order. A value that ends with the delimiter also skips all
    /// keys below it.
    pub start_after: Option<String>,
    /// [`ListPage::token`] of an earlier page of the same prefix and delimiter, which begins at or before
    /// `start_after`. The under store continues there, and names up to `start_after` are left out. Without a token, it
    /// looks for `start_after` itself.
    pub token: Option<String>,
    /// Most keys and common prefixes together.
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    pub key: String,
    pub size: u64,
    /// What clients see: the same as HEAD shows, where the listing has it (a directory reads its metadata). Otherwise
    /// the under store's own ETag (S3 listings do not show the stamp).
    pub etag: ETag,
    /// The under store's own ETag.
    pub remote_etag: ETag,
    pub last_modified_ms: u64,
    pub storage_class: Option<String>,
    /// `None` when there are none, or when the under store's listing does not tell.
    pub checksums: Option<ChecksumNames>,
}

/// Keys and common prefixes, each in byte order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    pub objects: Vec<ListedObject>,
    pub prefixes: Vec<String>,
    /// The `start_after` of the next page, when there is one.
    pub next: Option<String>,
    /// The under store's own token for `next`, where it has one.
    pub token: Option<String>,
}

/// What tells the place of a bucket from another one that is found under the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// The place cannot be mistaken for another one.
    NotNeeded,
    /// The place has none yet, or it is another place.
    None,
    /// A random id.
    Id(String),
}

/// A bucket of an S3 endpoint, for requests that pass through.
#[derive(Clone)]
pub struct S3Target {
    pub client: aws_sdk_s3::Client,
    pub bucket: String,
    /// In front of every key. Empty, or ends with `/`.
    pub prefix: String,
    /// The limits on reads, if there are any.
    pub(crate) reads: Option<Arc<dyn PassedReads>>,
}

/// Limits reads that pass through.
#[async_trait]
pub(crate) trait PassedReads: Send + Sync {
    /// Sends a request, and learns from its error.
    async fn pass(&self, call: BoxFuture<'_, Result<()>>) -> Result<()>;
}

impl S3Target {
    /// Without limits on reads.
    pub fn new(client: aws_sdk_s3::Client, bucket: String, prefix: String) -> Self {
        Self { client, bucket, prefix, reads: None }
    }

    /// Sends a read of an object that passes through, with [`Self::client`] and in the task of the call.
    ///
    /// # Errors
    /// `Unavailable`, at once, while no requests are sent.
    pub async fn read<T: Send>(&self, call: impl Future<Output = T> + Send) -> Result<T> {
        match &self.reads {
            None => Ok(call.await),
            Some(reads) => pass_read(&**reads, call).await,
        }
    }
}

pub(crate) async fn pass_read<T: Send>(reads: &dyn PassedReads, call: impl Future<Output = T> + Send) -> Result<T> {
    let mut answer = None;
    let told = async {
        let (output, outcome) = observed(call).await;
        answer = Some(output);
        trouble_of(outcome).map_or(Ok(()), Err)
    };
    let told = reads.pass(told.boxed()).await;
    match (answer, told) {
        (None, Err(refused)) => Err(refused),
        (answer, _) => Ok(answer.expect("a request that was sent has an answer")),
    }
}

/// What the outcome of a request that passed through says about the under store's health.
fn trouble_of(outcome: Outcome) -> Option<Error> {
    let (kind, problem) = match outcome {
        Outcome::NotSent => return None,
        Outcome::Unanswered => (ErrorKind::Unavailable, "did not answer".to_owned()),
        // It answers, and does not know the request.
        Outcome::Answered(501) => return None,
        Outcome::Answered(status @ (429 | 503)) => (ErrorKind::Throttled, format!("answered {status} to")),
        Outcome::Answered(status @ 500..) => (ErrorKind::Unavailable, format!("answered {status} to")),
        Outcome::Answered(_) => return None,
    };
    Some(Error::new(kind, format!("the under store {problem} a request that passed through")))
}

/// One bucket's place in an under store. Implementations do no retries beyond what one call needs. The
/// [`crate::governor::Governed`] wrapper limits requests, retries reads and breaks circuits.
///
/// Errors say what to do: `NotFound`, `Precondition`, `Throttled`, `Unavailable` (certainly not applied), `Ambiguous`
/// (a write that may have been applied, or may be applied later). See [`crate::ErrorKind`].
#[async_trait]
pub trait UnderStore: Send + Sync + 'static {
    /// Whether an object can be here under this key at all. Checked before a write is acknowledged that comes here
    /// later.
    ///
    /// # Errors
    /// `Invalid`.
    fn check_key(&self, _key: &ObjectKey) -> Result<()> {
        Ok(())
    }
    /// Whether an upload of such an object carries a stamp.
    fn has_room_for_stamp(&self, _key: &ObjectKey, _generation: Generation, _info: &ObjectInfo) -> bool {
        true
    }
    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject>;
    /// Returns when the present state of a key is on stable storage. An interrupted `put` or `delete` may have done
    /// everything but that. Called where somebody relies on what [`Self::head`] reports.
    async fn make_durable(&self, _key: &ObjectKey) -> Result<()> {
        Ok(())
    }
    /// Streams `range`, cut to the object's end, or all of it when `None`. With `if_match`, fails with `Precondition`
    /// when the object has another ETag. One call returns bytes of one version only.
    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody>;
    /// Writes a whole object, with its metadata, tags and stamp. It becomes visible in one step.
    async fn put(&self, key: &ObjectKey, upload: Upload) -> Result<Stored>;
    /// Deletes an object. A key that is absent already is no error.
    async fn delete(&self, key: &ObjectKey, condition: Condition) -> Result<()>;
    async fn list(&self, request: &ListRequest) -> Result<ListPage>;
    /// Whether listings under a prefix get an answer at all. Takes no longer where there are many objects.
    async fn probe(&self, prefix: &str) -> Result<()> {
        let request = ListRequest { prefix: prefix.to_owned(), limit: 1, ..ListRequest::default() };
        self.list(&request).await.map(drop)
    }
    /// Whether a listing continues better by [`ListPage::token`] than by name.
    fn lists_by_token(&self) -> bool {
        false
    }
    async fn tags(&self, key: &ObjectKey) -> Result<Tags>;
    async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()>;
    /// Removes what interrupted uploads of Forebay left more than `age` ago. Returns how many. Of keys that are not the
    /// caller's, uploads may be in flight at other workers of a cluster.
    async fn sweep(&self, age: Duration, is_ours: IsOurs<'_>) -> Result<u64>;
    /// The mark of the place, if this process has seen it there and has not noticed another place since. Sends no
    /// request.
    fn known_mark(&self) -> Option<Mark> {
        Some(Mark::NotNeeded)
    }
    /// Looks which mark the place has.
    async fn mark(&self) -> Result<Mark> {
        Ok(Mark::NotNeeded)
    }
    /// Gives the place a mark, durably, unless it has one. Of workers that do this at the same time, all get the same.
    async fn make_mark(&self) -> Result<Mark> {
        Ok(Mark::NotNeeded)
    }
    /// Where requests pass through to, when this is S3.
    fn s3(&self) -> Option<S3Target> {
        None
    }
    /// A name for logs and metrics, without secrets.
    fn label(&self) -> String;
}
