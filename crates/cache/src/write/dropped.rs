//! Clean copies that are dropped before a request to the under store that changes the object. If the request was
//! certainly not sent, the copy is what it was.

use bytes::Bytes;
use forebay_store::{NewObject, Object};
use forebay_types::{Generation, ObjectPath};

use crate::Result;
use crate::policies::groups::group_of;
use crate::read::last_answers::OpenQuestion;
use crate::read::validity::Moment;
use crate::worker::Worker;

pub(crate) struct DroppedCopy<'a> {
    worker: &'a Worker,
    path: &'a ObjectPath,
    copy: Object,
    fence: u64,
    frees: u64,
    dropped: Moment,
    /// So that answers to readers are remembered.
    _open: OpenQuestion<'a>,
}

impl Worker {
    /// The copy that the caller, who holds the key's lock, is about to drop.
    pub(super) fn copy_to_drop<'a>(&'a self, path: &'a ObjectPath) -> Option<DroppedCopy<'a>> {
        let copy = self.store.peek(&Self::store_key(path)).filter(|copy| !copy.is_pinned())?;
        let dropped = Moment::of(self.env.clock.monotonic());
        let (fence, frees) = (self.home.fence.read(path), self.frees());
        Some(DroppedCopy { worker: self, path, copy, fence, frees, dropped, _open: self.home.last_answers.begin(path) })
    }
}

impl DroppedCopy<'_> {
    /// Keeps the copy after all. The caller still holds the key's lock. The store has recorded that the old copy is
    /// gone, so this is another one. It is stale: reads ask the under store first, as long as it answers.
    pub(super) async fn keep(self) {
        if self.is_outdated() {
            return;
        }
        match self.publish().await {
            // Nobody has believed it yet.
            Ok(generation) if self.is_outdated() => {
                self.worker.store.evict(&Worker::store_key(self.path), generation);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(path = %self.path, %error, "the copy here could not be kept"),
        }
    }

    /// Whether something has changed, or a reader has been shown something else since the copy was dropped.
    fn is_outdated(&self) -> bool {
        let Self { worker, path, fence, frees, .. } = self;
        let shown = Worker::remote_etag_of(&self.copy).map(|etag| (etag, self.copy.size()));
        worker.home.fence.read(path) != *fence
            || worker.frees() != *frees
            || worker.home.last_answers.is_another(path, self.dropped, shown)
    }

    async fn publish(&self) -> Result<Generation> {
        let Self { worker, path, copy, .. } = self;
        let policy = worker.policies.resolve(path);
        let generation = worker.next_generation();
        let object = NewObject {
            key: Worker::store_key(path),
            generation,
            metadata: copy.metadata().await?,
            annex: Bytes::copy_from_slice(copy.annex()),
            pinned: false,
            group: group_of(&policy),
            size: copy.size(),
        };
        let staged = worker.store.concatenate(std::slice::from_ref(copy), object).await?;
        worker.store.publish_fill(staged).await?;
        worker.adjust_group(path, &policy, generation);
        Ok(generation)
    }
}
