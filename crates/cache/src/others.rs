//! The other workers of a cluster, as the cache of one knows them.

pub(crate) mod home_changes;
pub(crate) mod home_records;

use std::collections::BTreeSet;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_catalog::SlotSet;
use forebay_types::{BucketName, Generation, ObjectPath, Tags};
use serde::{Deserialize, Serialize};

use crate::copies::CopyId;
use crate::read_leases::{LeaseRequest, ReadLease, Reader};
use crate::{
    ByteStream, CachedObject, CleanCopy, CleanRange, Conditions, GetObject, HotObject, ObjectBody, ObjectDetail,
    ObjectHead, PutObject, Result, ShareFindings, ShareReport, UndeliverableEnd, UndeliverablePage, Written,
};
use home_changes::{ChangesWanted, HomeChanges};
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

/// A copy of a generation that its home is about to commit.
pub struct NewCopy {
    pub id: CopyId,
    pub path: ObjectPath,
    /// Copies at the same worker, whose bytes in this order are those of the new one. Empty: the bytes are given.
    pub pieces: Vec<CopyId>,
    pub bytes: HeldBytes,
}

/// The fate of a generation that other workers have copies of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// Nobody knows yet.
    Undecided,
    /// The record of its key names it.
    Named,
    /// No record names it, and none will.
    Gone,
}

/// Another worker that lives, stays, and may take copies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taker {
    pub worker: String,
    /// Another one after each start of the worker: its disks may be new ones.
    pub life: u64,
}

/// What a worker lacks of the keys that are at home there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// All slots that are at home there, without those that it is still taking.
    pub slots: SlotSet,
    /// Objects and parts in these slots whose bytes it still has to fetch from other workers.
    pub copies_wanted: u64,
    /// Set when each object and part has the copies that its policy asks for at this worker and these others, and what
    /// is written from now on will, too.
    pub complete_at: Option<BTreeSet<String>>,
    /// Workers that are leaving, and from which it still takes over what is read often.
    pub takes_over_from: BTreeSet<String>,
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

    /// Asks for what the worker has changed of its keys: see [`Cache::home_changes`](crate::Cache::home_changes).
    ///
    /// # Errors
    /// As [`OtherWorkers::records`].
    async fn changes(&self, worker: &str, wanted: &ChangesWanted) -> Result<HomeChanges>;

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

    /// See [`Cache::object_detail_here`](crate::Cache::object_detail_here).
    ///
    /// # Errors
    /// As [`OtherWorkers::put`].
    async fn detail(&self, worker: &str, path: &ObjectPath) -> Result<ObjectDetail>;

    /// See [`Cache::cached_here`](crate::Cache::cached_here).
    ///
    /// # Errors
    /// As [`OtherWorkers::put`].
    async fn cached(&self, worker: &str, bucket: &BucketName, objects: Vec<CachedObject>) -> Result<Vec<CachedObject>>;

    /// Asks for a step of a deletion: see [`Cache::deletion_step`](crate::Cache::deletion_step).
    ///
    /// # Errors
    /// Those of the worker; `Unavailable` when it does not answer.
    async fn deletion_step(&self, worker: &str, bucket: &BucketName, step: DeletionStep) -> Result<SlotSet>;

    /// Asks a worker whether it has room: see [`Cache::room_for_copy`](crate::Cache::room_for_copy).
    ///
    /// # Errors
    /// Those of the worker; `Unavailable` when it does not answer.
    async fn room_for_copy(&self, worker: &str, path: &ObjectPath, bytes: u64) -> Result<()>;

    /// Has a worker take a copy: see [`Cache::take_copy`](crate::Cache::take_copy).
    ///
    /// # Errors
    /// Those of the worker; `Unavailable` when it does not answer, and it may have the copy then.
    async fn take_copy(&self, worker: &str, copy: NewCopy) -> Result<bool>;

    /// Asks the home of keys for the fates of copies: see [`Cache::fates`](crate::Cache::fates).
    ///
    /// # Errors
    /// `Unavailable` when the worker does not answer.
    async fn fates(&self, worker: &str, copies: &[CopyId]) -> Result<Vec<Fate>>;

    /// Asks a worker which copies it has: see [`Cache::has_copies`](crate::Cache::has_copies).
    ///
    /// # Errors
    /// `Unavailable` when the worker does not answer.
    async fn has_copies(&self, worker: &str, copies: &[CopyId]) -> Result<Vec<bool>>;

    /// Asks the home of an object for a read lease: see [`Cache::read_lease`](crate::Cache::read_lease).
    ///
    /// # Errors
    /// Those of the home; `Unavailable` when it does not answer.
    async fn read_lease(&self, worker: &str, request: LeaseRequest) -> Result<Option<ReadLease>>;

    /// Has a worker drop leases: see [`Cache::end_leases`](crate::Cache::end_leases).
    ///
    /// # Errors
    /// `Unavailable` when the worker does not answer. It may have the leases then.
    async fn end_leases(&self, reader: &Reader, paths: &[ObjectPath]) -> Result<bool>;

    /// Asks the former home of a slot for a clean copy: see [`Cache::clean_copy`](crate::Cache::clean_copy).
    ///
    /// # Errors
    /// Those of the worker; `Unavailable` when it does not answer.
    async fn clean_copy(&self, worker: &str, path: &ObjectPath, bytes_max: u64) -> Result<Option<CleanCopy>>;

    /// Asks it for bytes: see [`Cache::clean_bytes`](crate::Cache::clean_bytes).
    ///
    /// # Errors
    /// As [`OtherWorkers::clean_copy`].
    async fn clean_bytes(&self, worker: &str, wanted: &CleanRange) -> Result<Option<ByteStream>>;

    /// Asks a worker that is leaving what is read often: see [`Cache::hot_objects`](crate::Cache::hot_objects).
    ///
    /// # Errors
    /// As [`OtherWorkers::clean_copy`].
    async fn hot_objects(&self, worker: &str, slots: &SlotSet) -> Result<Vec<HotObject>>;

    /// Asks what a worker has begun for jobs: see [`Cache::job_shares`](crate::Cache::job_shares).
    ///
    /// # Errors
    /// Those of the worker; `Unavailable` when it does not answer.
    async fn job_shares(&self, worker: &str) -> Result<Vec<ShareReport>>;

    /// Asks what it has found: see [`Cache::share_findings`](crate::Cache::share_findings).
    ///
    /// # Errors
    /// As [`OtherWorkers::job_shares`].
    async fn job_findings(&self, worker: &str, id: &str, after: u64, limit: usize) -> Result<ShareFindings>;

    /// Asks what the under store refuses of what is at home there: see
    /// [`Cache::undeliverable_here`](crate::Cache::undeliverable_here).
    ///
    /// # Errors
    /// Those of the worker; `Unavailable` when it does not answer.
    async fn undeliverable(
        &self,
        worker: &str,
        prefix: &str,
        after: Option<&ObjectPath>,
        limit: usize,
    ) -> Result<UndeliverablePage>;

    /// See [`Cache::end_undeliverable_here`](crate::Cache::end_undeliverable_here).
    ///
    /// # Errors
    /// As [`OtherWorkers::put`].
    async fn end_undeliverable(
        &self,
        worker: &str,
        path: &ObjectPath,
        generation: u64,
        end: &UndeliverableEnd,
    ) -> Result<()>;

    /// The worker that is the home of the paths with this hash ([`path_hash`](forebay_catalog::records::path_hash)), as
    /// far as this one knows. `None`: nobody else.
    fn home(&self, hash: u64) -> Option<String>;

    /// The other workers that live.
    fn workers(&self) -> Vec<String>;

    /// Whether they are known: not at first, after a start.
    fn are_known(&self) -> bool {
        true
    }

    /// Those of them that stay, and may take copies.
    fn takers(&self) -> Vec<Taker> {
        self.workers().into_iter().map(|worker| Taker { worker, life: 0 }).collect()
    }

    /// Whether a worker lives and is being drained.
    fn is_leaving(&self, worker: &str) -> bool {
        self.workers().iter().any(|other| other == worker) && !self.takers().iter().any(|taker| taker.worker == worker)
    }

    /// Why not everybody can be asked who may have bytes: a worker that does not live, and may come back with them.
    fn away(&self) -> Option<String> {
        None
    }
}
