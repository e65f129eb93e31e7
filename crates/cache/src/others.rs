//! The other workers of a cluster, as the cache of one knows them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_types::{Generation, ObjectPath, Tags};

use crate::worker::Worker;
use crate::{
    ByteStream, Conditions, GetObject, HomeRecords, ObjectBody, ObjectHead, PutObject, RecordRange, Result, Written,
};

/// The bytes of one generation, as a worker's store has them.
pub struct HeldBytes {
    pub size: u64,
    /// As the store keeps it with the bytes.
    pub metadata: Bytes,
    /// As the store keeps it in memory.
    pub annex: Bytes,
    pub stream: ByteStream,
}

/// What a worker asks the others. Each question goes to one of them, whose [`Cache`](crate::Cache) answers it.
#[async_trait]
pub trait OtherWorkers: Send + Sync + 'static {
    /// Asks for the bytes of one generation: see [`Cache::held`](crate::Cache::held).
    ///
    /// # Errors
    /// `Unavailable` when the worker does not answer.
    async fn open(&self, worker: &str, key: &Bytes, generation: Generation) -> Result<Option<HeldBytes>>;

    /// Asks for catalog records of the worker's keys: see [`Cache::home_records`](crate::Cache::home_records).
    ///
    /// # Errors
    /// `Unavailable` when the worker does not answer, or is not sure of its slots.
    async fn records(&self, worker: &str, range: &RecordRange) -> Result<HomeRecords>;

    /// Has the home of an object do it: see [`Cache::put`](crate::Cache::put).
    ///
    /// # Errors
    /// Those of the home; `Unavailable` when it does not answer, and it may be done then.
    async fn put(&self, worker: &str, request: PutObject) -> Result<Written>;

    /// See [`Cache::delete`](crate::Cache::delete).
    ///
    /// # Errors
    /// As [`OtherWorkers::put`].
    async fn delete(&self, worker: &str, path: &ObjectPath, conditions: &Conditions) -> Result<()>;

    /// See [`Cache::get`](crate::Cache::get).
    ///
    /// # Errors
    /// As [`OtherWorkers::put`].
    async fn get(&self, worker: &str, request: GetObject) -> Result<ObjectBody>;

    /// See [`Cache::head`](crate::Cache::head).
    ///
    /// # Errors
    /// As [`OtherWorkers::put`].
    async fn head(&self, worker: &str, request: GetObject) -> Result<ObjectHead>;

    /// See [`Cache::tags`](crate::Cache::tags).
    ///
    /// # Errors
    /// As [`OtherWorkers::put`].
    async fn tags(&self, worker: &str, path: &ObjectPath) -> Result<Tags>;

    /// The worker that is the home of a path, as far as this one knows. `None`: nobody else.
    fn home(&self, path: &ObjectPath) -> Option<String>;

    /// The other workers that live.
    fn workers(&self) -> Vec<String>;
}

/// The worker that is the home of a path.
pub(crate) struct OtherHome {
    pub(crate) others: Arc<dyn OtherWorkers>,
    pub(crate) worker: String,
}

impl Worker {
    /// Whether this worker is the home of a path.
    pub(crate) fn is_at_home(&self, path: &ObjectPath) -> bool {
        self.others.is_none() || self.catalog.slots().is_none_or(|slots| slots.has_path(path))
    }

    /// `None` when the home is this worker, or nobody: it refuses requests for the path then.
    pub(crate) fn other_home(&self, path: &ObjectPath) -> Option<OtherHome> {
        let others = self.others.as_ref().filter(|_| !self.is_at_home(path))?;
        Some(OtherHome { worker: others.home(path)?, others: Arc::clone(others) })
    }

    /// Reads an object wherever its home is.
    pub(crate) async fn get_anywhere(self: &Arc<Self>, request: GetObject) -> Result<ObjectBody> {
        match self.other_home(&request.path) {
            Some(OtherHome { others, worker }) => others.get(&worker, request).await,
            None => self.get(request).await,
        }
    }

    pub(crate) async fn head_anywhere(self: &Arc<Self>, request: GetObject) -> Result<ObjectHead> {
        match self.other_home(&request.path) {
            Some(OtherHome { others, worker }) => others.head(&worker, request).await,
            None => self.head(request).await,
        }
    }

    pub(crate) async fn tags_anywhere(&self, path: &ObjectPath) -> Result<Tags> {
        match self.other_home(path) {
            Some(OtherHome { others, worker }) => others.tags(&worker, path).await,
            None => self.tags(path).await,
        }
    }
}
