//! The object cache: path policies, puts and gets, listing, multipart uploads, the memory tier, the read cache,
//! persistence and eviction. It knows nothing of S3's protocol and nothing of disks.

mod anywhere;
mod buckets;
mod conditions;
mod copies;
mod error;
mod fair_share;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod home;
mod inspect;
mod jobs;
mod list;
mod locks;
mod metadata;
mod metrics;
mod missing;
mod multipart;
mod open;
mod others;
mod persist;
mod policies;
mod read;
mod read_leases;
mod request;
mod salvage;
mod scope;
mod settings;
mod space;
mod warm_up;
mod worker;
mod write;

use std::sync::Arc;

use forebay_env::SPANS;
use forebay_env::sync::atomic::Ordering;
use forebay_types::{BucketName, Generation, ObjectPath, PathPolicy, PolicyRule, PolicySet, Tags};
use forebay_ufs::S3Target;
use futures::future::BoxFuture;
use tracing::Instrument;

pub use anywhere::Access;
pub use copies::CopyId;
pub use error::{Detail, Error, ErrorKind, LostPart, Result};
pub use forebay_catalog::{SlotCount, SlotSet};
pub use forebay_ufs::STAMP_HEADER;
pub use forebay_ufs::s3::is_about_credentials;
pub use inspect::*;
pub use jobs::*;
pub use open::Parts;
pub use others::home_changes::{ChangesWanted, HomeChanges};
pub use others::home_records::{HomeRecords, RecordRange};
pub use others::{DeletionStep, Fate, HeldBytes, Needs, NewCopy, OtherWorkers, Taker};

pub use policies::{PolicyVersion, ReplacedRules};

pub use persist::undeliverable_page::{Undeliverable, UndeliverableChange, UndeliverableEnd, UndeliverablePage};
pub use read::read_ahead::PassedOn;
pub use read_leases::{LeaseRequest, LeaseTerms, ReadLease, Reader};
pub use request::*;
pub use salvage::{Salvaged, salvage};
pub use settings::{Mount, Mounts, Settings};
pub use warm_up::{CleanCopy, CleanRange, CleanTerms, HotObject};
pub use write::passing::PassingChange;
pub use write::receive::BodyDigests;

use anywhere::OtherHome;
use worker::Worker;

/// Runs work that must not stay half done when the caller goes away: a client that disconnects drops the future of its
/// request at any await. The work begins at once, because a future of this function would have to hold the work first,
/// which is large.
fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> impl Future<Output = Result<T>> + Send {
    forebay_env::spawn(work.in_current_span()).join()
}

/// The cache, shared by clones.
#[derive(Clone)]
pub struct Cache {
    worker: Arc<Worker>,
    tasks: Arc<open::Tasks>,
}

impl Cache {
    /// Stores a whole object, at the worker that is its home. A body with trailers is stored here.
    pub fn put(&self, request: PutObject) -> BoxFuture<'_, Result<Written>> {
        Box::pin(async move {
            match self.worker.other_home(&request.path).filter(|_| request.body.trailers.is_none()) {
                Some(OtherHome { others, worker }) => others.put(&worker, request).await,
                None => self.put_here(request).await,
            }
        })
    }

    /// Stores an object whose home is this worker.
    ///
    /// # Errors
    /// As [`Cache::put`], and `Moved` when the home is another one.
    pub fn put_here(&self, request: PutObject) -> BoxFuture<'_, Result<Written>> {
        Box::pin(
            async move { self.worker.put(request).instrument(tracing::info_span!(target: SPANS, "cache.put")).await },
        )
    }

    /// Begins to read an object, wherever its home is. When this returns, the conditions and the range have been
    /// checked, and the first bytes are available.
    pub fn get(&self, request: GetObject) -> BoxFuture<'_, Result<ObjectBody>> {
        Box::pin(async move {
            match self.worker.other_home(&request.path) {
                // Boxed: it would make the future of every read larger.
                Some(home) => Box::pin(self.worker.get_elsewhere(request, home)).await,
                None => self.read(request).await,
            }
        })
    }

    /// Begins to read an object whose home is this worker.
    ///
    /// # Errors
    /// As [`Cache::get`], and `Moved` when the home is another one.
    pub fn get_here(&self, request: GetObject) -> BoxFuture<'_, Result<ObjectBody>> {
        Box::pin(async move {
            self.worker.check_home(&request.path)?;
            self.read(request).await
        })
    }

    async fn read(&self, request: GetObject) -> Result<ObjectBody> {
        self.worker.get(request).instrument(tracing::info_span!(target: SPANS, "cache.get")).await
    }

    /// Describes an object, wherever its home is.
    pub fn head(&self, request: GetObject) -> BoxFuture<'_, Result<ObjectHead>> {
        Box::pin(async move {
            match self.worker.other_home(&request.path) {
                Some(home) => Box::pin(self.worker.head_elsewhere(request, home)).await,
                None => self.worker.head(request).await,
            }
        })
    }

    /// Describes an object whose home is this worker.
    ///
    /// # Errors
    /// As [`Cache::head`], and `Moved` when the home is another one.
    pub fn head_here(&self, request: GetObject) -> BoxFuture<'_, Result<ObjectHead>> {
        Box::pin(async move {
            self.worker.check_home(&request.path)?;
            self.worker.head(request).await
        })
    }

    /// Whether this worker answers reads of an object although its home is another one. If it is read often, this asks
    /// the home for a lease.
    pub fn reads_here<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.worker.reads_here(path).await })
    }

    /// Notes that the home of an object, another worker, has answered a read of it.
    pub fn was_read(&self, path: &ObjectPath) {
        self.worker.was_read(path);
    }

    /// The same as [`Cache::reads_here`], and asks for a lease however seldom the object is read.
    pub fn obtain_lease<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            match self.worker.other_home(path) {
                Some(home) => self.worker.obtain_lease(path, home).await,
                None => false,
            }
        })
    }

    /// Grants another worker a lease on an object whose home is this one. `None`: it has to be read here.
    ///
    /// # Errors
    /// `Unavailable` when the home is another one; whatever keeps the current version from being told.
    pub fn read_lease(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Option<ReadLease>>> {
        Box::pin(async move { self.worker.grant_lease(request).await })
    }

    /// Drops leases of this worker, because their home ends them. `false`: another process had them.
    pub fn end_leases(&self, process: u64, paths: &[ObjectPath]) -> bool {
        self.worker.held_leases.drop_leases(process, paths)
    }

    /// Deletes an object, at the worker that is its home. Deleting a missing object is not an error. With `if_match` in
    /// the conditions, returns `PreconditionFailed` when the object is another version.
    pub fn delete<'a>(&'a self, path: &'a ObjectPath, conditions: &'a Conditions) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.worker.delete_anywhere(path, conditions).await })
    }

    /// Deletes an object whose home is this worker.
    ///
    /// # Errors
    /// As [`Cache::delete`], and `Moved` when the home is another one.
    pub fn delete_here<'a>(&'a self, path: &'a ObjectPath, conditions: &'a Conditions) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.worker.delete_to_the_end(path, conditions).await })
    }

    /// Copies an object of up to 5 GiB.
    pub fn copy(&self, request: CopyObject) -> BoxFuture<'_, Result<Written>> {
        Box::pin(async move { self.worker.copy(request).await })
    }

    /// Whether this worker is the home of a path.
    pub fn is_at_home(&self, path: &ObjectPath) -> bool {
        self.worker.is_at_home(path)
    }

    /// Whether this worker is the home of the paths with this hash
    /// ([`path_hash`](forebay_catalog::records::path_hash)).
    pub fn is_home_of(&self, hash: u64) -> bool {
        self.worker.is_home_of(hash)
    }

    /// Whether this worker would serve such a request now: it is the home of the path, has taken it up, and has not yet
    /// begun to refuse such requests, as it does before it gives the path up.
    pub fn answers_for(&self, path: &ObjectPath, access: Access) -> bool {
        self.worker.answers_for(path, access)
    }

    /// Bytes of one generation, for another worker: `key` is that of the record which names them. `None`: this worker
    /// does not have all of them.
    pub fn held<'a>(&'a self, key: &'a [u8], generation: Generation) -> BoxFuture<'a, Result<Option<HeldBytes>>> {
        Box::pin(async move { self.worker.held(key, generation).await })
    }

    /// The clean copy of an object whose slot is at home elsewhere by now, for its new home. With the bytes of a whole
    /// copy that has no more than `bytes_max`.
    ///
    /// # Errors
    /// Those of the store.
    pub fn clean_copy<'a>(&'a self, path: &'a ObjectPath, bytes_max: u64) -> BoxFuture<'a, Result<Option<CleanCopy>>> {
        Box::pin(async move { self.worker.clean_copy(path, bytes_max).await })
    }

    /// Bytes of such a copy. `None`: they are not here, or are of another version.
    pub fn clean_bytes(&self, wanted: &CleanRange) -> Option<ByteStream> {
        self.worker.clean_bytes(wanted)
    }

    /// The clean objects in these slots that were read here since they were written or last kept from eviction, those
    /// with most reads first. For their new home, while this worker leaves.
    pub fn hot_objects<'a>(&'a self, slots: &'a SlotSet) -> BoxFuture<'a, Vec<HotObject>> {
        Box::pin(async move { self.worker.hot_objects(slots).await })
    }

    /// Whether there is room for a copy of `bytes` bytes now. The room is not reserved.
    ///
    /// # Errors
    /// `SlowDown` and `InsufficientStorage` when there is none.
    pub fn room_for_copy(&self, path: &ObjectPath, bytes: u64) -> Result<()> {
        self.worker.room_for_copy(path, bytes).map(drop)
    }

    /// Takes a copy of a generation that another worker is about to commit. When this returns, the copy is on stable
    /// storage here, and stays until no record names it any more. `false`: this worker lacks a piece.
    ///
    /// # Errors
    /// `SlowDown` and `InsufficientStorage` when there is no room for it, `Unavailable` when its key is at home here;
    /// whatever the store answers.
    pub fn take_copy(&self, copy: NewCopy) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { self.worker.take_copy(copy).await })
    }

    /// The fates of generations that other workers have copies of. `Undecided` where this worker is not the home of the
    /// key.
    pub fn fates<'a>(&'a self, copies: &'a [CopyId]) -> BoxFuture<'a, Vec<Fate>> {
        Box::pin(async move { self.worker.fates(copies).await })
    }

    /// Which of these copies this worker keeps until no record names them any more.
    pub fn has_copies(&self, copies: &[CopyId]) -> Vec<bool> {
        self.worker.has_copies(copies)
    }

    /// Catalog records of the keys that are at home here, for a listing at another worker.
    ///
    /// # Errors
    /// `Unavailable` when this worker's lease is over, or its slots change; whatever else the catalog answers.
    pub fn home_records<'a>(&'a self, range: &'a RecordRange) -> BoxFuture<'a, Result<HomeRecords>> {
        Box::pin(async move { self.worker.home_records(range).await })
    }

    /// What this worker has changed in the under store, of the keys that are at home here, for a page of a listing that
    /// another worker keeps.
    ///
    /// # Errors
    /// `Unavailable` when this worker's lease is over, or its slots change.
    pub fn home_changes(&self, wanted: &ChangesWanted) -> Result<HomeChanges> {
        self.worker.home_changes(wanted)
    }

    /// What this worker lacks of the keys that are at home here.
    ///
    /// # Errors
    /// `Unavailable` when slots change meanwhile, or this worker is in no cluster.
    pub fn needs(&self) -> Result<Needs> {
        self.worker.needs()
    }

    /// Does a step of the deletion of a bucket, which another worker deletes: returns the slots that are at home here.
    ///
    /// # Errors
    /// `BucketNotEmpty`, `BucketBusy`; `Unavailable` when slots change meanwhile, or the deletion has ended; what the
    /// catalog or the under store answers.
    pub fn deletion_step<'a>(&'a self, bucket: &'a BucketName, step: DeletionStep) -> BoxFuture<'a, Result<SlotSet>> {
        Box::pin(async move {
            let (worker, bucket) = (Arc::clone(&self.worker), bucket.clone());
            self.worker.unless_stalled(async move { worker.deletion_step(&bucket, step).await }).await
        })
    }

    /// Lists keys and common prefixes in byte order.
    pub fn list<'a>(&'a self, bucket: &'a BucketName, request: &'a ListObjects) -> BoxFuture<'a, Result<ObjectPage>> {
        Box::pin(async move { self.worker.list(bucket, request).await })
    }

    /// The tags of an object whose home is this worker.
    ///
    /// # Errors
    /// `Moved` when the home is another one; `NotFound`.
    pub fn tags<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, Result<Tags>> {
        Box::pin(async move {
            self.worker.check_home(path)?;
            self.worker.tags(path).await
        })
    }

    /// Replaces the tags; an empty set deletes them.
    pub fn set_tags<'a>(&'a self, path: &'a ObjectPath, tags: Tags) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (worker, path) = (Arc::clone(&self.worker), path.clone());
            self.worker.unless_stalled(async move { worker.set_tags(&path, tags).await }).await
        })
    }

    /// Returns the upload ID.
    pub fn create_upload(&self, request: CreateUpload) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            let worker = Arc::clone(&self.worker);
            self.worker.unless_stalled(async move { worker.create_upload(request).await }).await
        })
    }

    /// Stores a part, and replaces a part with the same number.
    pub fn put_part<'a>(
        &'a self,
        upload: &'a UploadRef,
        number: u32,
        body: Incoming,
    ) -> BoxFuture<'a, Result<Written>> {
        Box::pin(async move { self.worker.put_part(upload, number, body).await })
    }

    /// Stores a part with bytes of another object.
    pub fn copy_part(&self, request: CopyPart) -> BoxFuture<'_, Result<Written>> {
        Box::pin(async move { self.worker.copy_part(request).await })
    }

    /// Completes the upload. A repeated call with the same ID returns the same answer.
    pub fn complete_upload(&self, request: CompleteUpload) -> BoxFuture<'_, Result<Written>> {
        Box::pin(async move {
            let worker = Arc::clone(&self.worker);
            self.worker.unless_stalled(async move { worker.complete_upload(request).await }).await
        })
    }

    /// Drops an upload and its parts.
    pub fn abort_upload<'a>(&'a self, upload: &'a UploadRef) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (worker, upload) = (Arc::clone(&self.worker), upload.clone());
            self.worker.unless_stalled(async move { worker.abort_upload(&upload).await }).await
        })
    }

    /// Parts with numbers above `after`.
    pub fn list_parts<'a>(
        &'a self,
        upload: &'a UploadRef,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'a, Result<PartPage>> {
        Box::pin(async move { self.worker.list_parts(upload, after, limit).await })
    }

    /// Uploads that are neither completed nor aborted.
    pub fn list_uploads<'a>(
        &'a self,
        bucket: &'a BucketName,
        request: &'a ListUploads,
    ) -> BoxFuture<'a, Result<UploadPage>> {
        Box::pin(async move { self.worker.list_uploads(bucket, request).await })
    }

    /// All buckets in order of their names.
    pub fn buckets(&self) -> BoxFuture<'_, Result<Vec<BucketSummary>>> {
        Box::pin(async move { self.worker.list_buckets().await })
    }

    /// Whether a bucket exists.
    pub fn bucket_exists<'a>(&'a self, bucket: &'a BucketName) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.worker.bucket_exists(bucket).await })
    }

    /// Creates a bucket in the under store.
    pub fn create_bucket<'a>(&'a self, bucket: &'a BucketName) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (worker, bucket) = (Arc::clone(&self.worker), bucket.clone());
            self.worker.unless_stalled(async move { worker.create_bucket(&bucket).await }).await
        })
    }

    /// Deletes an empty bucket.
    pub fn delete_bucket<'a>(&'a self, bucket: &'a BucketName) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (worker, bucket) = (Arc::clone(&self.worker), bucket.clone());
            self.worker.unless_stalled(async move { worker.delete_bucket(&bucket).await }).await
        })
    }

    /// Checks whether the under store can have an object with this key.
    ///
    /// # Errors
    /// `InvalidArgument` when not, `NoSuchBucket`.
    pub fn check_key<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.worker.buckets.mount_for_write(path).await.map(drop) })
    }

    /// Where requests that the cache does not handle pass through to, if the bucket is on S3.
    pub fn pass_through<'a>(&'a self, bucket: &'a BucketName) -> BoxFuture<'a, Result<Option<S3Target>>> {
        Box::pin(async move { self.worker.pass_through(bucket).await })
    }

    /// Counts a body of `length` bytes that passes through to a client, for the requester that this task works for.
    pub fn passed_on(&self, length: u64) -> PassedOn {
        self.worker.read_ahead.passed_on(length)
    }

    /// Call this before a request passes through that changes anything of this object.
    ///
    /// # Errors
    /// `AccessDenied` on a READ_ONLY path.
    pub fn check_passing_change(&self, path: &ObjectPath) -> Result<()> {
        self.worker.check_passing_change(path)
    }

    /// Whether a change of this object waits for the under store. A request that passes through would not see it.
    pub fn is_dirty<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.worker.is_here(path).await })
    }

    /// Call this before a request passes through that changes what clients get of this object. Until the
    /// [`PassingChange`] ends, nothing of the object is cached, and no other change of it runs. `None` while a change
    /// of the object waits for the under store.
    ///
    /// # Errors
    /// As [`Cache::check_passing_change`]. `SlowDown` while an earlier request for the object may still be carried out
    /// there.
    pub fn begin_passing_change<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, Result<Option<PassingChange>>> {
        Box::pin(async move {
            let (worker, path) = (Arc::clone(&self.worker), path.clone());
            self.worker.unless_stalled(worker.begin_passing_change(path)).await
        })
    }

    /// Checks rules as [`Cache::set_policies`] does.
    ///
    /// # Errors
    /// `InvalidArgument` for rules that can't hold.
    pub fn check_policies(&self, rules: Vec<PolicyRule>) -> Result<PolicySet> {
        self.worker.check_policies(rules)
    }

    /// All rules, and the version that [`Cache::set_policies`] expects.
    pub fn policies(&self) -> (Arc<PolicySet>, u64) {
        self.worker.policies.present()
    }

    /// Replaces all rules, if they still have this version. Otherwise it returns `Conflict`; `None` skips the check.
    /// `by` and `reason` go to the history. Returns the new version, or the present one if nothing changes.
    pub fn set_policies<'a>(
        &'a self,
        rules: Vec<PolicyRule>,
        version: Option<u64>,
        by: &'a str,
        reason: &'a str,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let (worker, by, reason) = (Arc::clone(&self.worker), by.to_owned(), reason.to_owned());
            self.worker.unless_stalled(async move { worker.set_policies(rules, version, &by, &reason).await }).await
        })
    }

    /// The effective settings of an object.
    pub fn resolve(&self, path: &ObjectPath) -> PathPolicy {
        self.worker.policies.resolve(path)
    }

    /// Counts and states, for the admin API and for readiness.
    pub fn status(&self) -> Status {
        self.worker.status()
    }

    /// Tries once to persist what waits at this worker under a path prefix (`/`, `/bucket`, `/bucket/prefix`), and
    /// waits until all of it was tried. It says nothing of other workers and of conflicts: a job does
    /// ([`JobKind::Persist`]).
    pub fn persist<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (worker, prefix) = (Arc::clone(&self.worker), prefix.to_owned());
            to_the_end(async move { worker.persist(&prefix).await }).await
        })
    }

    /// Removes stale leftovers, as happens every [`Settings::leftover_interval`].
    pub fn sweep(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let worker = Arc::clone(&self.worker);
            to_the_end(async move { worker.sweep().await }).await
        })
    }

    /// Ends all work on the keys of these slots, before they are given up. The caller must not drop this before it has
    /// ended.
    ///
    /// # Errors
    /// Whatever the catalog answers. Nothing is done with the keys any more, and another try is safe.
    pub fn lose<'a>(&'a self, slots: &'a SlotSet) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.worker.lose(slots).await })
    }

    /// Those of the slots for whose keys nothing is in flight: [`Cache::lose`] does not have to wait for them. Work may
    /// begin at any moment.
    pub fn idle(&self, slots: &SlotSet) -> SlotSet {
        self.worker.idle(slots)
    }

    /// Must be called before slots are taken. Until now this worker may have noted for how long it has waited for
    /// requests of earlier processes; it has not waited for those of the slots' former homes.
    ///
    /// # Errors
    /// Whatever the catalog answers. The slots must not be taken then, and another try is safe.
    pub fn begin_gain(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.worker.forget_settled().await })
    }

    /// Begins to work on the keys of slots for which this worker has become the home: after [`Cache::lose`], or after a
    /// start without them, and after [`Cache::begin_gain`].
    ///
    /// # Errors
    /// Whatever the catalog answers. The keys take no writes then, and another try is safe.
    pub fn gain<'a>(&'a self, slots: &'a SlotSet) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.worker.gain(slots).await })
    }

    /// Whether this worker can't answer for any key, because the engine of its cluster does not answer. Never for a
    /// worker that is alone.
    pub fn is_cut_off(&self) -> bool {
        self.worker.is_cut_off()
    }

    /// Says whether the database behind the catalog is nearly full. While it is, nothing that adds a record begins: new
    /// uploads, their parts, WRITE_BACK and TRANSIENT writes, and deletes of keys without a record. All that ends a
    /// record continues, so that the database can empty.
    pub fn set_catalog_nearly_full(&self, is_nearly_full: bool) {
        self.worker.is_catalog_nearly_full.store(is_nearly_full, Ordering::SeqCst);
    }

    /// Takes over policies and buckets that other workers have changed, as far as the catalog has heard: call it after
    /// each `HomeCatalog::follow_shared`. When there is nothing new, this costs nothing.
    ///
    /// # Errors
    /// Whatever the catalog answers. A retry is safe.
    pub fn follow_shared(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.worker.follow_shared().await })
    }

    /// Whether background work has ended although the cache is open. This is a bug, and the process should end, too.
    /// Call it before [`Cache::close`].
    pub fn has_failed(&self) -> bool {
        self.tasks.has_failed()
    }

    /// Stops the background work, waits up to [`Settings::drain_timeout`] for requests in flight, and closes the store.
    /// Dirty data stays durable for the next start.
    pub fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.worker.stop.cancel();
            let ended = async {
                self.tasks.join().await;
                if let Err(error) = self.worker.note_answered().await {
                    tracing::warn!(%error, "could not record that no request is in flight: after the next start, uploads wait for cache.settle_time");
                }
                let (home, catalog) = (&self.worker.home, self.worker.catalog.as_ref());
                if let Err(error) = home.validity.note(catalog).await {
                    tracing::debug!(%error, "could not note what is known of the under stores");
                }
            };
            tokio::select! {
                biased;
                () = ended => {}
                // To the next start, requests without an outcome look like those that a crash has interrupted.
                () = self.worker.env.clock.sleep(self.worker.settings.drain_timeout.0) => {
                    tracing::warn!("stopping with requests to an under store in flight, after cache.drain_timeout: after the next start, uploads wait for cache.settle_time");
                }
            }
            self.worker.end_all_leases().await;
            self.worker.store.close().await?;
            Ok(())
        })
    }
}

/// An object, or a part of an open upload, whose bytes no worker gives.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnavailableBytes {
    /// Of the object.
    #[schema(example = "/bucket/key")]
    pub path: String,
    pub since_ms: u64,
    /// Which worker is missing, or what it answers.
    pub problem: String,
}

/// A bucket for which the under store refuses what waits, although it answers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedBucket {
    pub bucket: String,
    /// What it answered to the last upload or delete.
    pub error: String,
}

/// The result of [`Cache::status`].
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub dirty_objects: u64,
    pub dirty_bytes: u64,
    pub tombstones: u64,
    /// Age of the oldest write that the under store does not have, in milliseconds.
    pub oldest_dirty_age_ms: u64,
    pub conflicts: u64,
    /// Objects and deletes that the under store refuses, see [`Cache::undeliverable`].
    #[serde(default)]
    pub undeliverable: u64,
    /// Buckets that are missing in the under store, or that its keys may not write, at least for some of the objects
    /// that wait for them: ten at most.
    #[serde(default)]
    pub refused_buckets: Vec<RefusedBucket>,
    /// Objects and parts of keys at home here whose bytes are still to be fetched from other workers.
    #[serde(default)]
    pub copies_wanted: u64,
    /// Objects and parts at home here whose bytes no worker gave at the last try: requests for them get 503.
    #[serde(default)]
    pub copies_unavailable: u64,
    /// Some of those, ten at most.
    #[serde(default)]
    pub unavailable: Vec<UnavailableBytes>,
    /// Objects and parts at home here with fewer copies than `writeReplicas` asks for, or whose copies are still to be
    /// counted. At 0, the loss of a machine loses none of them.
    #[serde(default)]
    pub under_replicated: u64,
    /// Acknowledged objects whose bytes the start found missing, because a directory was forgotten or a file is gone.
    #[serde(default)]
    pub missing_objects: u64,
    /// Parts of open multipart uploads whose bytes are missing for the same reasons.
    #[serde(default)]
    pub missing_parts: u64,
    pub pinned_bytes: u64,
    /// The most that may be pinned: `cache.pinned_ratio` of the capacity.
    #[serde(default)]
    pub pinned_bytes_max: u64,
    /// What of the keys at home here does not go to the under store: transient objects, conflicts, and parts of open
    /// uploads. It is pinned, as are copies for other workers.
    #[serde(default)]
    pub kept_bytes: u64,
    pub evictable_bytes: u64,
    /// Bytes that can be written now.
    pub free_bytes: u64,
    /// The part of the capacity that other programs on the file systems have taken.
    #[serde(default)]
    pub unavailable_bytes: u64,
    /// The rest of the capacity: headers, records of deletes, and data that was overwritten or evicted and waits for
    /// reclaim.
    #[serde(default)]
    pub overhead_bytes: u64,
    /// Writes that were refused since the start because pinned data fills its share, and because the disks are full.
    #[serde(default)]
    pub rejected_pinned_full: u64,
    #[serde(default)]
    pub rejected_disk_full: u64,
    /// The most bytes that objects may take: the size of the store without its index.
    pub capacity_bytes: u64,
    /// Directories that accept no more writes, and the reasons.
    pub failed_directories: Vec<String>,
}
