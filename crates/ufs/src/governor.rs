//! Limits the traffic to an under store: request rate, bandwidth, concurrency, and no requests at all while it is out
//! of reach.
//!
//! One governor stands in front of one under store or endpoint, and two lanes share it. The background lane (uploads)
//! obeys the rate limits and an adaptive limit on concurrent requests. That limit is halved when the under store asks
//! for fewer requests, and grows by one after as many successes as the limit (AIMD, as in TCP: Jacobson, "Congestion
//! avoidance and control", 1988). The foreground lane is limited only by the circuit breaker, so reads never queue
//! behind uploads.

mod limits;
mod root;
mod state;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_env::Env;
use forebay_types::{ByteRange, ByteSize, ETag, Generation, ObjectInfo, ObjectKey, Period, Tags};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::under_store::PassedReads;
use crate::{
    ByteStream, Condition, Error, ErrorKind, IsOurs, ListPage, ListRequest, Mark, RemoteBody, RemoteObject, Result,
    S3Target, Stored, UnderStore, Upload, UploadSource,
};
pub use limits::Governor;
pub use root::GovernedRoot;
pub use state::{Circuit, DeniedWrites, GovernorState, LastError, RefusedWrites};

/// Limits that operators may change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GovernorSettings {
    /// Most concurrent background requests. The adaptive limit never exceeds this.
    pub concurrency_max: u32,
    /// Most background requests per second. 0 is no limit.
    pub requests_per_second: u32,
    /// Most uploaded bytes per second. 0 is no limit.
    pub upload_bandwidth: ByteSize,
    /// Consecutive failures that open the circuit.
    pub circuit_failures: u32,
    /// First pause of an open circuit. It doubles with every failed probe.
    pub circuit_pause_min: Period,
    /// Longest pause of an open circuit.
    pub circuit_pause_max: Period,
    /// Tries of a read that fails for a transient reason.
    pub read_tries: u32,
}

impl Default for GovernorSettings {
    fn default() -> Self {
        Self {
            concurrency_max: 256,
            requests_per_second: 0,
            upload_bandwidth: ByteSize(0),
            circuit_failures: 10,
            circuit_pause_min: Period::from_secs(1),
            circuit_pause_max: Period::from_secs(15),
            read_tries: 3,
        }
    }
}

/// Who waits for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// A client.
    Foreground,
    /// Nobody.
    Background,
}

/// Who sends a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    lane: Lane,
    bucket: &'a str,
}

/// The kind of a request. Each kind has circuit breakers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Read,
    Write,
}

/// Classes of requests, as S3 providers price them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestClass {
    /// GET and HEAD of objects.
    Read,
    /// Listings, which cost as much as writes.
    List,
    /// PUT and POST.
    Write,
    /// DELETE, which is usually free.
    Delete,
}

impl RequestClass {
    /// The name of the class in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::List => "list",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

/// Called for every request, from async code: must not block.
pub trait CallObserver: Send + Sync + 'static {
    fn called(&self, operation: &'static str, error: Option<ErrorKind>, elapsed: Duration);
    /// Called when an HTTP request was sent to an S3 under store. One call takes several when it uploads in parts, or
    /// has to check something first.
    fn sent(&self, request: RequestClass);
}

/// An under store behind a governor, as one lane sees it.
pub struct Governed {
    inner: Arc<dyn UnderStore>,
    governor: Arc<Governor>,
    lane: Lane,
    /// The bucket's name among those behind the governor. Empty when it is the only one.
    bucket: String,
}

impl Governed {
    pub fn new(inner: Arc<dyn UnderStore>, governor: Arc<Governor>, lane: Lane) -> Self {
        Self { inner, governor, lane, bucket: String::new() }
    }

    /// Names the bucket, when the governor has several.
    pub fn bucket(self, bucket: &str) -> Self {
        Self { bucket: bucket.to_owned(), ..self }
    }

    fn caller(&self) -> Caller<'_> {
        Caller { lane: self.lane, bucket: &self.bucket }
    }

    fn paced(&self, upload: Upload) -> Upload {
        let source = PacedSource { source: Arc::clone(&upload.source), governor: Arc::clone(&self.governor) };
        Upload { source: Arc::new(source), ..upload }
    }

    /// Sends a change. `upload_bytes`: the size of an upload. That any other change succeeds says nothing about room.
    async fn write<T>(
        &self,
        operation: &'static str,
        upload_bytes: Option<u64>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let result = self.governor.run(self.caller(), Work::Write, operation, call).await;
        self.governor.learn_room(&self.bucket, upload_bytes, result.as_ref().err());
        result
    }

    /// If a failed read is worth a retry, waits for it. Returns whether to retry.
    async fn try_again(&self, failed: Option<ErrorKind>, tries: &mut u32) -> bool {
        let again = failed.is_some_and(ErrorKind::is_transient) && *tries < self.governor.settings().read_tries;
        if again {
            self.governor.pause_before_retry(*tries).await;
            *tries += 1;
        }
        again
    }
}

/// Obeys the limit on uploaded bytes. Each part of a large object waits for its own turn, so others are sent between
/// its parts.
struct PacedSource {
    source: Arc<dyn UploadSource>,
    governor: Arc<Governor>,
}

impl UploadSource for PacedSource {
    fn stream(&self, range: ByteRange) -> ByteStream {
        self.source.stream(range)
    }

    fn turn(&self, bytes: u64) -> Option<BoxFuture<'_, ()>> {
        Some(self.governor.wait_for_bytes(bytes).boxed())
    }
}

/// The governor, for reads that pass through.
struct Passing {
    governor: Arc<Governor>,
    lane: Lane,
    bucket: String,
}

#[async_trait]
impl PassedReads for Passing {
    async fn pass(&self, call: BoxFuture<'_, Result<()>>) -> Result<()> {
        let caller = Caller { lane: self.lane, bucket: &self.bucket };
        self.governor.run(caller, Work::Read, "get", call).await
    }
}

/// A governed read. It is retried when it fails for a transient reason.
macro_rules! read {
    ($self:ident, $operation:literal, $call:expr) => {{
        let mut tries = 1;
        loop {
            let result = $self.governor.run($self.caller(), Work::Read, $operation, $call).await;
            let failed = result.as_ref().err().map(|error| error.kind);
            if !$self.try_again(failed, &mut tries).await {
                return result;
            }
        }
    }};
}

#[async_trait]
impl UnderStore for Governed {
    fn check_key(&self, key: &ObjectKey) -> Result<()> {
        self.inner.check_key(key)
    }

    fn has_room_for_stamp(&self, key: &ObjectKey, generation: Generation, info: &ObjectInfo) -> bool {
        self.inner.has_room_for_stamp(key, generation, info)
    }

    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject> {
        read!(self, "head", self.inner.head(key))
    }

    async fn make_durable(&self, key: &ObjectKey) -> Result<()> {
        self.write("make_durable", None, self.inner.make_durable(key)).await
    }

    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody> {
        read!(self, "get", self.inner.get(key, range, if_match))
    }

    async fn put(&self, key: &ObjectKey, upload: Upload) -> Result<Stored> {
        let bytes = upload.info.size;
        let upload = match self.lane {
            Lane::Foreground => upload,
            Lane::Background if self.governor.settings().upload_bandwidth.0 > 0 => self.paced(upload),
            Lane::Background => upload,
        };
        self.write("put", Some(bytes), self.inner.put(key, upload)).await
    }

    async fn delete(&self, key: &ObjectKey, condition: Condition) -> Result<()> {
        self.write("delete", None, self.inner.delete(key, condition)).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        read!(self, "list", self.inner.list(request))
    }

    async fn probe(&self, prefix: &str) -> Result<()> {
        read!(self, "probe", self.inner.probe(prefix))
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        read!(self, "tags", self.inner.tags(key))
    }

    async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()> {
        self.write("set_tags", None, self.inner.set_tags(key, tags)).await
    }

    async fn sweep(&self, age: Duration, is_ours: IsOurs<'_>) -> Result<u64> {
        self.governor.run(self.caller(), Work::Write, "sweep", self.inner.sweep(age, is_ours)).await
    }

    fn lists_by_token(&self) -> bool {
        self.inner.lists_by_token()
    }

    fn known_mark(&self) -> Option<Mark> {
        self.inner.known_mark()
    }

    async fn mark(&self) -> Result<Mark> {
        read!(self, "mark", self.inner.mark())
    }

    async fn make_mark(&self) -> Result<Mark> {
        self.write("make_mark", None, self.inner.make_mark()).await
    }

    fn s3(&self) -> Option<S3Target> {
        let reads = || Passing { governor: Arc::clone(&self.governor), lane: self.lane, bucket: self.bucket.clone() };
        self.inner.s3().map(|target| S3Target { reads: Some(Arc::new(reads())), ..target })
    }

    fn label(&self) -> String {
        self.inner.label()
    }
}

/// Whether an error says something about the under store's health.
fn is_trouble(error: &Error) -> bool {
    match error.kind {
        ErrorKind::Throttled | ErrorKind::Unavailable | ErrorKind::Ambiguous => true,
        ErrorKind::NotFound
        | ErrorKind::NoBucket
        | ErrorKind::AlreadyExists
        | ErrorKind::NotEmpty
        | ErrorKind::Precondition
        | ErrorKind::Conflict
        // The under store answers. Reads, and writes that need less room, may succeed.
        | ErrorKind::NoSpace
        | ErrorKind::ReadOnly
        | ErrorKind::Denied
        | ErrorKind::Credentials
        | ErrorKind::Unsupported
        | ErrorKind::Invalid
        | ErrorKind::InvalidName
        | ErrorKind::InvalidStorageClass
        | ErrorKind::Corrupt => false,
    }
}

/// Whether nothing may have answered.
fn is_silence(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Ambiguous)
}

/// Whether an error is a regular answer, as common as success: a cache asks for objects that may not exist.
fn is_an_answer(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::NotEmpty | ErrorKind::Precondition => true,
        ErrorKind::NoBucket
        | ErrorKind::Conflict
        | ErrorKind::Throttled
        | ErrorKind::Unavailable
        | ErrorKind::Ambiguous
        | ErrorKind::NoSpace
        | ErrorKind::ReadOnly
        | ErrorKind::Denied
        | ErrorKind::Credentials
        | ErrorKind::Unsupported
        | ErrorKind::Invalid
        | ErrorKind::InvalidName
        | ErrorKind::InvalidStorageClass
        | ErrorKind::Corrupt => false,
    }
}

/// Makes the governor of one under store.
pub fn govern(env: &Env, settings: &GovernorSettings, observer: Option<Arc<dyn CallObserver>>) -> Arc<Governor> {
    Arc::new(Governor::new(env.clone(), settings.clone(), observer))
}

#[cfg(test)]
mod tests;
