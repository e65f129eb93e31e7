//! Requests that bypass the cache on their way to an S3 under store, and the changes that they make there.

use std::sync::Arc;

use forebay_types::{BucketName, ObjectPath, WriteMode};
use forebay_ufs::S3Target;
use tracing::Instrument;

use crate::list::positions::Change;
use crate::locks::KeyGuard;
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};

/// Locks a key while a request that bypasses the cache changes its object in the under store. If it is dropped without
/// [`PassingChange::end`], the result of the request is unknown: it may land at any time.
#[must_use]
pub struct PassingChange {
    worker: Arc<Worker>,
    path: ObjectPath,
    has_ended: bool,
    _locks: (KeyGuard, KeyGuard),
}

impl Worker {
    pub(crate) async fn pass_through(&self, bucket: &BucketName) -> Result<Option<S3Target>> {
        Ok(self.buckets.mount(bucket).await?.foreground.s3())
    }

    /// # Errors
    /// `AccessDenied` on a READ_ONLY path.
    pub(crate) fn check_passing_change(&self, path: &ObjectPath) -> Result<()> {
        let is_read_only = self.policies.resolve(path).write_mode == WriteMode::ReadOnly;
        if is_read_only { Err(Error::read_only(path)) } else { Ok(()) }
    }

    /// `None` while the under store has another state of the object than clients see.
    pub(crate) async fn begin_passing_change(self: Arc<Self>, path: ObjectPath) -> Result<Option<PassingChange>> {
        self.check_passing_change(&path)?;
        // Such a request does not wait for pending uploads of the key.
        if self.is_here(&path).await? {
            return Ok(None);
        }
        let upload = self.home.upload_locks.lock(&path).await?;
        let lock = self.lock_key(&path).await?;
        let current = self.current(&path).await?;
        if current.record.is_some() {
            return Ok(None);
        }
        self.check_settled(&path)?;
        self.announce(&path, &current, None).await?;
        Ok(Some(PassingChange { worker: self, path, has_ended: false, _locks: (lock, upload) }))
    }
}

impl PassingChange {
    /// Sends the request.
    ///
    /// # Errors
    /// `Unavailable` when this worker's lease ends before the answer comes.
    pub async fn send<T>(&self, request: impl Future<Output = T>) -> Result<T> {
        let ended = |_| Error::new(ErrorKind::Unavailable, "this worker's lease has ended");
        self.worker.while_leased(request).await.map_err(ended)
    }

    /// The under store has answered, so the request is either done or refused. This is noted even if the caller goes
    /// away.
    pub async fn end(self) {
        forebay_env::spawn(self.note_end().in_current_span()).join().await;
    }

    async fn note_end(mut self) {
        self.worker.end_request(&self.path).await;
        self.has_ended = true;
    }
}

impl Drop for PassingChange {
    fn drop(&mut self) {
        if !self.has_ended {
            self.worker.home.settle.mark(&self.path);
        }
        self.worker.home.positions.changed(&self.path, || Change::Unknown);
        // After the mark, so that every reader of the new fence sees the mark. Before the locks are released, so that
        // no reader caches an older answer.
        self.worker.home.fence.advance(&self.path);
    }
}
