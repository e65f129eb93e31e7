//! The other workers of a cluster, as the cache of one knows them.

pub(crate) mod home_records;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_types::{Generation, ObjectPath, Tags};

use crate::{ByteStream, Conditions, GetObject, ObjectBody, ObjectHead, PutObject, Result, Written};
use home_records::{HomeRecords, RecordRange};

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
