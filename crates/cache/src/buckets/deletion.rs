//! Deletion of a bucket.
//!
//! In a cluster, any worker may accept a write to the bucket. So the worker that deletes it marks its record first
//! ([`BucketRecord::Deleting`]), and then asks all workers to see the mark: from there on they refuse writes to the
//! bucket ([`Buckets::begin_write`]). Their answers name the slots that are at home there, and must cover all slots. A
//! worker that gets a slot later sees the mark before it takes a write.
//!
//! The mark goes when the under store has answered. If the worker ends before, or gets no answer, another one takes the
//! mark away, [`super::DELETION_MAX`] after it has seen it, or later when the settle time is long. What was sent to the
//! under store has landed by then, or will not. A worker that is alone sets such a mark, too, and takes it away itself
//! after the settle time.

use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::SlotSet;
use forebay_catalog::records::{self, BucketRecord, ObjectRecord, State};
use forebay_env::sync::atomic::Ordering;
use forebay_types::BucketName;
use forebay_ufs::BucketRoot;
use futures::future::join_all;

use super::{Buckets, Deletion, SENT_MAX, STEP_MAX, change_record, no_such_bucket, warn_of_mark};
use crate::home::lost::not_all_at_home;
use crate::list::homes::check_covered;
use crate::others::{DeletionStep, OtherWorkers};
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};

impl Worker {
    /// Deletes an empty bucket. Pending deletes in it are persisted first.
    pub(crate) async fn delete_bucket(&self, bucket: &BucketName) -> Result<()> {
        if self.buckets.mounts.mounts.contains_key(bucket) {
            return Err(Error::new(
                ErrorKind::AccessDenied,
                format!("the bucket {bucket} is a mount of the configuration"),
            ));
        }
        let Some(root) = &self.buckets.mounts.root else { return Err(no_such_bucket(bucket)) };
        match &self.others {
            Some(others) => self.delete_everywhere(root, others.as_ref(), bucket).await,
            None => self.delete_alone(root, bucket).await,
        }
    }

    async fn delete_alone(&self, root: &Arc<dyn BucketRoot>, bucket: &BucketName) -> Result<()> {
        let moves = self.all_at_home()?;
        if !self.bucket_exists(bucket).await? {
            return Err(no_such_bucket(bucket));
        }
        if self.buckets.deletion_of(bucket).is_some() {
            return Err(deleted_already(bucket));
        }
        // Most pending deletes are persisted here, before any write has to wait for them.
        self.persist_deletes(bucket).await?;
        let gate = self.buckets.gate(bucket);
        let Ok(nobody_writes) = gate.try_write() else { return Err(written_to(bucket)) };
        self.persist_deletes(bucket).await?;
        let uploads = self.uploads_of(bucket).await?;
        if self.all_at_home()? != moves {
            return Err(not_all_at_home());
        }
        // First: a deletion that fails halfway may leave the bucket without its mark.
        self.buckets.forget_mark(bucket).await?;
        self.buckets.delete(root, bucket).await?;
        self.forget_contents(bucket).await;
        drop(nobody_writes);
        if let Err(error) = self.abort_all(uploads).await {
            tracing::warn!(%bucket, %error, "the bucket is deleted, and parts of its uploads stay until they are swept");
        }
        Ok(())
    }

    async fn delete_everywhere(
        &self,
        root: &Arc<dyn BucketRoot>,
        others: &dyn OtherWorkers,
        bucket: &BucketName,
    ) -> Result<()> {
        if !self.bucket_exists(bucket).await? {
            return Err(no_such_bucket(bucket));
        }
        // Most pending deletes are persisted here, before any write is refused.
        self.at_all_homes(others, bucket, DeletionStep::PersistDeletes).await?;
        let (number, begun) = (self.env.random.next_u64(), self.env.clock.monotonic());
        self.mark_deletion(bucket, number).await?;
        let quiet = self.at_all_homes(others, bucket, DeletionStep::Quiesce(number)).await;
        let ready = match quiet {
            // A deletion that fails halfway may leave the bucket without its mark.
            Ok(()) => self.buckets.forget_mark(bucket).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ready {
            self.unmark_deletion(bucket, number, Some(BucketRecord::Open)).await;
            return Err(error);
        }
        // This process may have stood still for any time.
        let left = (begun + SENT_MAX).saturating_sub(self.env.clock.monotonic());
        if left.is_zero() {
            self.unmark_deletion(bucket, number, Some(BucketRecord::Open)).await;
            return Err(late(bucket, "this worker"));
        }
        let deleted = tokio::select! {
            biased;
            deleted = root.delete(bucket) => deleted,
            () = self.env.clock.sleep(left) => return Err(late(bucket, "the under store")),
        };
        use forebay_ufs::ErrorKind::{Ambiguous, NoBucket, NotFound};
        let after = match deleted.as_ref().map_err(|error| error.kind) {
            Ok(()) | Err(NotFound | NoBucket) => None,
            // It may still land, so the mark stays.
            Err(Ambiguous) => return Ok(deleted?),
            Err(_) => Some(BucketRecord::Open),
        };
        if after.is_none() {
            let aborted = self.ask_for(others, bucket, DeletionStep::AbortUploads(number)).await;
            if let Some(error) = aborted.into_iter().find_map(|(_, answer)| answer.err()) {
                tracing::warn!(%bucket, %error, "the bucket is deleted, and parts of its uploads stay until they are swept");
            }
        }
        self.unmark_deletion(bucket, number, after).await;
        Ok(deleted?)
    }

    /// Does a step of a deletion for the keys that are at home here: their slots.
    ///
    /// # Errors
    /// `BucketNotEmpty`; `BucketBusy` while objects are written; `Unavailable` when the slots change meanwhile, or the
    /// deletion has ended; what the catalog or the under store answers.
    pub(crate) async fn deletion_step(&self, bucket: &BucketName, step: DeletionStep) -> Result<SlotSet> {
        if let DeletionStep::AbortUploads(_) = step {
            // Before anything can fail: the under store has deleted the bucket.
            self.forget_contents(bucket).await;
        }
        if let DeletionStep::Quiesce(number) | DeletionStep::AbortUploads(number) = step {
            self.follow_shared().await?;
            if self.buckets.deletion_of(bucket).is_none_or(|deletion| deletion.number != number) {
                return Err(Error::new(ErrorKind::Unavailable, format!("this deletion of {bucket} has ended")));
            }
        }
        let losses = self.losses();
        let Some(slots) = self.catalog.slots() else {
            return Err(Error::new(ErrorKind::Unavailable, "this worker is in no cluster"));
        };
        // Nothing is known yet of what waits in slots that are being taken. In those that are being given up, no
        // deletes are persisted.
        let slots = self.home.persist_locks.open_of(&self.home.locks.open_of(&slots));
        match step {
            DeletionStep::PersistDeletes => self.persist_deletes(bucket).await?,
            DeletionStep::Quiesce(_) => {
                // Writes that have not seen the mark hold the gate.
                if self.buckets.gate(bucket).try_write().is_err() {
                    return Err(written_to(bucket));
                }
                self.persist_deletes(bucket).await?;
            }
            DeletionStep::AbortUploads(_) => {
                let mut uploads = self.uploads_of(bucket).await?;
                uploads.retain(|upload| slots.has_path(&upload.path));
                self.abort_all(uploads).await?;
            }
        }
        if self.losses() == losses { Ok(slots) } else { Err(not_all_at_home()) }
    }

    /// # Errors
    /// `Unavailable` unless the step is done for all keys of the cluster; those of [`Worker::deletion_step`].
    async fn at_all_homes(&self, others: &dyn OtherWorkers, bucket: &BucketName, step: DeletionStep) -> Result<()> {
        let answers = tokio::select! {
            biased;
            answers = self.ask_for(others, bucket, step) => answers,
            () = self.env.clock.sleep(STEP_MAX) => return Err(late(bucket, "some worker")),
        };
        let (mut slots, mut problem) = (Vec::new(), None);
        for (worker, answer) in answers {
            match answer {
                Ok(done) => slots.push(done),
                Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Moved) => {
                    problem = Some(Error::new(error.kind, format!("worker {worker}: {error}")));
                }
                Err(error) => return Err(error),
            }
        }
        // The worker with the problem may have the slots that are lacking.
        check_covered(&slots).map_err(|error| problem.unwrap_or(error))
    }

    /// The answers of all workers, and of this one.
    async fn ask_for(
        &self,
        others: &dyn OtherWorkers,
        bucket: &BucketName,
        step: DeletionStep,
    ) -> Vec<(String, Result<SlotSet>)> {
        let workers = others.workers();
        let asked = join_all(workers.iter().map(|worker| others.deletion_step(worker, bucket, step)));
        let (own, answers) = futures::join!(self.deletion_step(bucket, step), asked);
        let this = self.catalog.worker().unwrap_or("here").to_owned();
        workers.into_iter().zip(answers).chain([(this, own)]).collect()
    }

    async fn mark_deletion(&self, bucket: &BucketName, number: u64) -> Result<()> {
        let deleting = Some(BucketRecord::Deleting(number));
        if change_record(self.catalog.as_ref(), bucket, BucketRecord::Open, deleting).await? {
            return self.buckets.follow().await;
        }
        self.follow_shared().await?;
        match self.bucket_exists(bucket).await? {
            true => Err(deleted_already(bucket)),
            false => Err(no_such_bucket(bucket)),
        }
    }

    async fn unmark_deletion(&self, bucket: &BucketName, number: u64, record: Option<BucketRecord>) {
        if let Err(error) = self.buckets.end_deletion(bucket, number, record).await {
            warn_of_mark(bucket, &error);
        }
        self.forget_gone().await;
    }

    /// Forgets what is cached of buckets that are found to be gone: another worker has deleted them, or their deletion
    /// has got no answer.
    pub(crate) async fn forget_gone(&self) {
        while let Some(bucket) = self.buckets.first_gone() {
            self.forget_if_gone(&bucket).await;
        }
    }

    /// The same for one bucket, before a request uses what is cached of it. Returns whether the bucket was gone.
    pub(crate) async fn forget_if_gone(&self, bucket: &BucketName) -> bool {
        if self.buckets.times_gone(bucket).is_none() {
            return false;
        }
        // Boxed: this is rare, and would make the future of every read larger.
        Box::pin(self.forget_contents_once(bucket)).await;
        true
    }

    /// Of all requests that find a bucket gone, one forgets its contents, and the others wait for that.
    async fn forget_contents_once(&self, bucket: &BucketName) {
        let _one_at_a_time = self.buckets.forgetting.lock().await;
        while let Some(times) = self.buckets.times_gone(bucket) {
            self.forget_contents(bucket).await;
            // Only now: the caller may go away, and other requests look, too.
            self.buckets.forgotten(bucket, times);
        }
    }

    /// Drops what is known and cached of a bucket that is deleted. The next bucket of this name has other objects.
    async fn forget_contents(&self, bucket: &BucketName) {
        self.forget_listings_of(bucket);
        // Reads that asked the under store earlier must not cache the answer.
        self.home.fence.advance_all();
        let (from, to) = records::object_prefix_range(bucket, "");
        for shard in 0..self.store.shards() {
            let mut copies = Vec::new();
            self.store.for_each_object_in(shard, &mut |key, generation, is_pinned| {
                if !is_pinned && key >= from && key < to {
                    copies.push((Bytes::copy_from_slice(key), generation));
                }
            });
            for (key, generation) in copies {
                self.store.evict(&key, generation);
                // Requests in flight may have found it already.
                self.home.validity.invalidate(generation);
            }
            // Requests can run between two shards.
            tokio::task::yield_now().await;
        }
    }

    /// Persists the pending deletes in a bucket without objects. Those of slots that have just been gained may not be
    /// in the queue yet, so the records say which there are.
    ///
    /// # Errors
    /// `BucketNotEmpty`, before anything is sent.
    async fn persist_deletes(&self, bucket: &BucketName) -> Result<()> {
        let mut deleted = Vec::new();
        let mut range = records::object_prefix_range(bucket, "");
        while let Some(found) = self.next_records(&mut range).await? {
            for (key, versioned) in &found {
                if ObjectRecord::decode(&versioned.value)?.state != State::Tombstone {
                    return Err(Error::new(ErrorKind::BucketNotEmpty, format!("the bucket {bucket} is not empty")));
                }
                deleted.extend(records::parse_object_key(key));
            }
        }
        self.persist_all(deleted).await
    }
}

impl Buckets {
    /// The deletion in progress, as far as this worker knows.
    pub(super) fn deletion_of(&self, bucket: &BucketName) -> Option<Deletion> {
        self.known.lock().get(bucket).and_then(|known| known.deletion)
    }

    fn first_gone(&self) -> Option<BucketName> {
        self.gone.lock().keys().next().cloned()
    }

    /// How often a bucket was deleted whose contents are still cached here. `None`: nothing of it is to be forgotten.
    fn times_gone(&self, bucket: &BucketName) -> Option<u64> {
        self.gone.lock().get(bucket).copied()
    }

    /// What was cached of a bucket is forgotten, if it was not deleted again meanwhile.
    fn forgotten(&self, bucket: &BucketName, times: u64) {
        let mut gone = self.gone.lock();
        if gone.get(bucket) == Some(&times) {
            gone.remove(bucket);
        }
    }

    /// Checks whether a deletion has ended, and ends it when its worker must have given up.
    pub(super) async fn look_at_deletion(&self, bucket: &BucketName) -> Result<()> {
        let Some(deletion) = self.deletion_of(bucket) else { return Ok(()) };
        if let Err(error) = self.catalog.follow_shared().await {
            tracing::debug!(%bucket, %error, "it is not known whether the bucket is deleted");
            return Ok(());
        }
        self.follow().await?;
        if self.env.clock.monotonic().saturating_sub(deletion.heard) > self.deletion_max {
            tracing::warn!(%bucket, "a bucket deletion has not ended in time, and its mark is removed: if the bucket still exists, delete it again");
            self.end_deletion(bucket, deletion.number, None).await?;
        }
        Ok(())
    }

    /// Replaces the mark of a deletion. Without a record, the under store is asked whether the bucket exists.
    async fn end_deletion(&self, bucket: &BucketName, number: u64, record: Option<BucketRecord>) -> Result<()> {
        {
            let _nothing_is_noted = self.noting.write().await;
            change_record(self.catalog.as_ref(), bucket, BucketRecord::Deleting(number), record).await?;
            // Requests that have found the bucket so far wait to record it, and now check again.
            self.deletions.fetch_add(1, Ordering::SeqCst);
        }
        self.follow().await
    }
}

fn deleted_already(bucket: &BucketName) -> Error {
    Error::new(ErrorKind::BucketBusy, format!("the bucket {bucket} is being deleted already"))
}

fn written_to(bucket: &BucketName) -> Error {
    let problem =
        format!("the bucket {bucket} is not deleted: writes to it are in flight. Try again when they have ended");
    Error::new(ErrorKind::BucketBusy, problem)
}

fn late(bucket: &BucketName, who: &str) -> Error {
    let problem = format!("the bucket {bucket} may still exist: {who} did not answer in time. Try again");
    Error::new(ErrorKind::Unavailable, problem)
}
