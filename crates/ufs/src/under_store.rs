//! The seam to an under store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_types::{ByteRange, ETag, Generation, ObjectInfo, ObjectKey, Tags};
use futures::stream::BoxStream;

use crate::{Error, ErrorKind, Result, Stamp};

/// Bytes of an object as they arrive.
pub type ByteStream = BoxStream<'static, Result<Bytes>>;

/// What must hold for a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Always,
    /// `If-None-Match: *`.
    Absent,
    /// `If-Match`, with the under store's own tag.
    Matches(ETag),
}

/// An object as the under store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteObject {
    /// What clients see: tag, checksums, parts and times as Forebay acknowledged them when the object carries a stamp
    /// that fits, else as the under store says. Tags are not included, see [`UnderStore::tags`].
    pub info: ObjectInfo,
    /// The under store's own tag: what conditions compare. Changes with every change of the bytes.
    pub remote_etag: ETag,
    /// Present when Forebay wrote the object.
    pub stamp: Option<Stamp>,
}

impl RemoteObject {
    /// Checks that a GET brought what a HEAD before it told of. Its `If-Match` should see to that, but servers that keep
    /// objects as files look at the tag of one version and open another when an overwrite comes between; the stamp
    /// travels with the bytes.
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

/// An object and the bytes that were asked for.
pub struct RemoteBody {
    pub object: RemoteObject,
    /// What `stream` yields; inside `0..object.info.size`.
    pub range: ByteRange,
    pub stream: ByteStream,
}

/// Where an upload's bytes come from; read as often as tries need it.
pub trait UploadSource: Send + Sync + 'static {
    fn stream(&self, range: ByteRange) -> ByteStream;
}

/// An object to be written whole.
#[derive(Clone)]
pub struct Upload {
    pub generation: Generation,
    pub info: Arc<ObjectInfo>,
    pub source: Arc<dyn UploadSource>,
    pub condition: Condition,
}

/// The under store's answer to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub remote_etag: ETag,
}

#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    pub prefix: String,
    /// Groups keys by what stands between the prefix and the next delimiter.
    pub delimiter: Option<String>,
    /// Only keys and common prefixes behind this one, in byte order. A value that ends with the delimiter also skips all keys below it.
    pub start_after: Option<String>,
    /// [`ListPage::token`] of an earlier page of the same prefix and delimiter, which begins at or before `start_after`: the under store
    /// goes on there, and names up to `start_after` are left out. Without one it looks for `start_after` itself.
    pub token: Option<String>,
    /// Most keys and common prefixes together.
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    pub key: String,
    pub size: u64,
    /// What clients see: the same as HEAD shows where the listing tells it (a directory reads its metadata), else the under
    /// store's own tag (S3 lists do not show the stamp).
    pub etag: ETag,
    /// The under store's own tag.
    pub remote_etag: ETag,
    pub last_modified_ms: u64,
    pub storage_class: Option<String>,
}

/// Keys and common prefixes, each in byte order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    pub objects: Vec<ListedObject>,
    pub prefixes: Vec<String>,
    /// Where the next page starts after, when there is one.
    pub next: Option<String>,
    /// The under store's own word for `next`, where it has one.
    pub token: Option<String>,
}

/// A bucket of an S3 endpoint, for requests that pass through.
#[derive(Clone)]
pub struct S3Target {
    pub client: aws_sdk_s3::Client,
    pub bucket: String,
    /// Stands before every key; empty or ending with `/`.
    pub prefix: String,
}

/// One bucket's place in an under store. Implementations do no retries of their own beyond what one call needs; the
/// [`crate::governor::Governed`] wrapper limits, retries reads and breaks circuits.
///
/// Errors say what to do: `NotFound`, `Precondition`, `Throttled`, `Unavailable` (surely not applied), `Ambiguous` (a write that may
/// have been applied, or may yet be), see [`crate::ErrorKind`].
#[async_trait]
pub trait UnderStore: Send + Sync + 'static {
    /// Whether an object can be here under this key at all: asked before a write is acknowledged that comes here later.
    ///
    /// # Errors
    /// `Invalid`.
    fn check_key(&self, _key: &ObjectKey) -> Result<()> {
        Ok(())
    }
    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject>;
    /// Returns when what a key has now is on stable storage: a `put` or `delete` that was cut off may have done its work all but for that. Asked
    /// where somebody relies on what [`Self::head`] tells.
    async fn make_durable(&self, _key: &ObjectKey) -> Result<()> {
        Ok(())
    }
    /// Streams `range` (cut to the object's end; all of it when `None`). With `if_match`, `Precondition` when the object has another
    /// tag. One call returns bytes of one version only.
    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody>;
    /// Writes an object whole, with its metadata, tags and stamp; visible in one step.
    async fn put(&self, key: &ObjectKey, upload: Upload) -> Result<Stored>;
    /// Deletes; a key that is absent already is no error.
    async fn delete(&self, key: &ObjectKey, condition: Condition) -> Result<()>;
    async fn list(&self, request: &ListRequest) -> Result<ListPage>;
    /// Whether a listing goes on by [`ListPage::token`] better than by name.
    fn lists_by_token(&self) -> bool {
        false
    }
    async fn tags(&self, key: &ObjectKey) -> Result<Tags>;
    async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()>;
    /// Removes what interrupted uploads of Forebay left longer ago than `age`. Returns how many.
    async fn sweep(&self, age: Duration) -> Result<u64>;
    /// Where requests pass through to, when this is S3.
    fn s3(&self) -> Option<S3Target> {
        None
    }
    /// A name for logs and metrics, without secrets.
    fn label(&self) -> String;
}
