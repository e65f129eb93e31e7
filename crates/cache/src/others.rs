//! The other workers of a cluster, as the cache of one knows them.

pub(crate) mod home_records;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_catalog::SlotSet;
use forebay_types::{BucketName, Generation, ObjectPath, Tags};
use serde::{Deserialize, Serialize};

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

/// What a worker lacks of the keys that are at home there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// All slots that are at home there, without those that it is still taking.
    pub slots: SlotSet,
    /// Objects and parts in these slots whose bytes it still has to fetch from other workers.
    pub copies_wanted: u64,
}

/// A step of the deletion of a bucket. All workers do it, each for the keys that are at home there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionStep {
    /// Brings the pending deletes in the bucket to the under store.
    PersistDeletes,
    /// The same, when all writes to the bucket have ended: others are refused until this deletion ends.
    Quiesce(u64),
    /// The bucket is deleted. Aborts the multipart uploads to it.
    AbortUploads(u64),
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

    /// Asks for a step of a deletion: see [`Cache::deletion_step`](crate::Cache::deletion_step).
    ///
    /// # Errors
    /// Those of the worker; `Unavailable` when it does not answer.
    async fn deletion_step(&self, worker: &str, bucket: &BucketName, step: DeletionStep) -> Result<SlotSet>;

    /// The worker that is the home of a path, as far as this one knows. `None`: nobody else.
    fn home(&self, path: &ObjectPath) -> Option<String>;

    /// The other workers that live.
    fn workers(&self) -> Vec<String>;

    /// Why not everybody can be asked who may have bytes: a worker that does not live, and may come back with them.
    fn away(&self) -> Option<String> {
        None
    }
}
