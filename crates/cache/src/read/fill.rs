//! Fills the read cache: creates clean copies of objects of the under store, and adds pages to them.

use std::sync::Arc;

use bytes::Bytes;
use forebay_env::sync::atomic::Ordering;
use forebay_store::{Class, Object, Piece};
use forebay_types::{ByteRange, ObjectPath, PathPolicy};
use forebay_ufs::RemoteObject;

use crate::Result;
use crate::metadata::{Annex, new_object};
use crate::read::memory_tier::MemoryObject;
use crate::read::remote::{Purpose, RemoteState, Version, keeps_reads_of};
use crate::read::validity::Moment;
use crate::warm_up::touched::Heard;
use crate::worker::Worker;

/// What the under store or another worker has answered about an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    /// As it was before the question.
    pub(crate) fence: u64,
    /// How often copies had been freed before the question.
    pub(crate) frees: u64,
    /// When the under store was asked: it had this version then or later.
    pub(crate) as_of: Moment,
    /// Set when another worker has told it, which may be wrong once this one has heard of the object.
    pub(crate) heard: Option<Heard>,
}

impl Worker {
    /// Creates a copy, with all of its bytes or with none. Does so only if no write of the key has ended since the
    /// question, because the answer may be older than such a write. Nor if the under store has told something else of a
    /// later time.
    pub(crate) async fn begin_copy(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        remote: Box<RemoteObject>,
        answered: Answered,
        purpose: Purpose,
        data: Option<Bytes>,
    ) -> RemoteState {
        if !keeps_reads_of(policy, remote.info.size) {
            return RemoteState::NotCached(remote);
        }
        let Some(_lock) = self.home.locks.try_lock(path) else { return RemoteState::NotCached(remote) };
        let is_outdated = || {
            self.home.fence.read(path) != answered.fence
                || match answered.heard {
                    Some(heard) => self.home.fence.is_touched(path, heard),
                    None => self.home.last_answers.is_overtaken(path, answered.as_of, &remote),
                }
        };
        if is_outdated() || !matches!(self.current(path).await, Ok(current) if current.record.is_none()) {
            return RemoteState::NotCached(remote);
        }
        if let Some(copy) = self.store.peek(&Self::store_key(path)) {
            // Another lookup has created a copy in the meantime. Fetches of its pages may be in flight.
            if is_copy_of(&copy, &remote) {
                if answered.heard.is_none() {
                    self.home.validity.mark_valid_at(copy.generation(), answered.as_of);
                    self.confirm(&copy);
                }
                return RemoteState::Cached(copy);
            }
            // The under store had the other version later.
            if self.home.validity.at(copy.generation()) > Some(answered.as_of) {
                return RemoteState::NotCached(remote);
            }
        }
        // Others may still answer with an older version. No lease is granted before the copy is here.
        self.end_outdated_leases(path).await;
        match self.publish_copy(path, policy, &remote, purpose, data).await {
            // Nobody has believed it yet. The bucket may have been deleted meanwhile, without the key's lock.
            Ok(object) if is_outdated() || self.frees() != answered.frees => {
                self.store.evict(&Self::store_key(path), object.generation());
                RemoteState::NotCached(remote)
            }
            Ok(object) => {
                self.home.validity.mark_valid_at(object.generation(), answered.as_of);
                if answered.heard.is_none() {
                    self.confirm(&object);
                }
                RemoteState::Cached(object)
            }
            Err(error) => {
                self.metrics.fill_failures.inc();
                tracing::debug!(%path, %error, "not kept in the cache");
                RemoteState::NotCached(remote)
            }
        }
    }

    /// How often an operator has freed copies: reads are fresh from then on.
    pub(crate) fn frees(&self) -> u64 {
        self.home.frees.load(Ordering::SeqCst)
    }

    async fn publish_copy(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        remote: &RemoteObject,
        purpose: Purpose,
        data: Option<Bytes>,
    ) -> Result<Object> {
        let generation = self.next_generation();
        let annex = Annex::clean(remote.remote_etag.clone(), &remote.info.etag, remote.info.checksums.names()).encode();
        let object = forebay_store::NewObject { annex, ..new_object(path, policy, generation, &remote.info, false) };
        let mut writer = self.store.writer(Class::Fill, data.as_ref().map_or(0, |data| data.len() as u64)).await?;
        if let Some(data) = &data {
            writer.append(data.clone()).await?;
        }
        let staged = writer.finish(object).await?;
        let object = staged.object();
        self.store.publish_fill(staged).await?;
        self.adjust_group(path, policy, generation);
        if purpose == Purpose::Read {
            let info = Arc::new(remote.info.clone());
            self.memory.insert(policy, generation, MemoryObject::new(info, data));
        }
        Ok(object)
    }

    /// Adds a page to a copy. A page that cannot be stored, or that the policy does not keep, is fetched again by the
    /// next read. Such a policy has replaced the one under which the copy was made.
    pub(crate) async fn fill(&self, version: &Version, window: ByteRange, page: &Bytes) {
        if !version.is_kept {
            return;
        }
        if let Err(error) = self.fill_gaps(version, window, page).await {
            self.metrics.fill_failures.inc();
            tracing::debug!(path = %version.path, %error, "a page was not kept in the cache");
        }
    }

    /// Stores the missing parts of a page.
    async fn fill_gaps(&self, version: &Version, window: ByteRange, page: &Bytes) -> Result<()> {
        let key = Self::store_key(&version.path);
        let Some(object) = self.store.peek(&key) else { return Ok(()) };
        if object.generation() != version.generation {
            return Ok(());
        }
        for piece in object.pieces(window) {
            let Piece::Missing(gap) = piece else { continue };
            let start = (gap.start - window.start) as usize;
            let data = page.slice(start..start + gap.len() as usize);
            self.store.fill(&key, version.generation, gap.start, data).await?;
        }
        Ok(())
    }
}

/// Whether a copy is of the under store's version. A copy of another size is not, whatever its ETag, because a proxy
/// may have truncated the answer that filled it.
pub(super) fn is_copy_of(copy: &Object, remote: &RemoteObject) -> bool {
    Worker::remote_etag_of(copy).as_ref() == Some(&remote.remote_etag) && copy.size() == remote.info.size
}
