//! Finds out what the under store has: from the copy here while it is believed, or by asking.

use forebay_store::Object;
use forebay_types::{ETag, ObjectPath, PathPolicy, WriteMode};
use forebay_ufs::{ErrorKind as UfsKind, RemoteBody};

use crate::read::fill::is_copy_of;
use crate::read::pages::Pages;
use crate::read::remote::{Purpose, RemoteState, WholeBody, keeps_reads};
use crate::worker::Worker;
use crate::{Mount, Result};

impl Worker {
    /// The under store's tag of a key's clean copy, while it is believed.
    pub(crate) fn fresh_remote_etag(&self, path: &ObjectPath, policy: &PathPolicy) -> Option<ETag> {
        let object = self.store.peek(&Self::store_key(path))?;
        let fresh = self.home.validity.is_valid(object.generation(), policy.metadata_ttl.0);
        if fresh { Self::remote_etag_of(&object) } else { None }
    }

    /// Finds out what the under store has, asking it only when the copy's time is over. A copy that begins is counted
    /// as read or not.
    pub(crate) async fn remote_state(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        copy: Option<Object>,
        purpose: Purpose,
    ) -> Result<RemoteState> {
        match copy {
            Some(object) if self.is_believed(policy, &object) => Ok(RemoteState::Cached(object)),
            copy => self.revalidate(path, policy, mount, copy, purpose).await,
        }
    }

    /// Whether a clean copy needs no look at the under store.
    pub(crate) fn is_believed(&self, policy: &PathPolicy, object: &Object) -> bool {
        self.home.validity.is_valid(object.generation(), policy.metadata_ttl.0)
            && policy.write_mode != WriteMode::NoCache
    }

    /// Finds out what the under store has by asking it.
    pub(crate) async fn revalidate(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        copy: Option<Object>,
        purpose: Purpose,
    ) -> Result<RemoteState> {
        let fence = self.home.fence.read(path);
        // A request that may still land would make the answer old at any time, and nobody would notice.
        let is_settled = self.home.settle.wait(path).is_zero();
        match (mount.foreground.head(&path.key).await, copy) {
            (Ok(remote), Some(object)) if is_copy_of(&object, &remote) => {
                if is_settled && self.home.fence.read(path) == fence {
                    self.home.validity.mark_valid(object.generation());
                }
                Ok(RemoteState::Cached(object))
            }
            (Ok(remote), copy) => {
                self.outdated(path, copy);
                match is_settled {
                    true => Ok(self.begin_copy(path, policy, Box::new(remote), fence, purpose, None).await),
                    false => Ok(RemoteState::NotCached(Box::new(remote))),
                }
            }
            (Err(error), copy) if error.kind == UfsKind::NotFound => {
                self.outdated(path, copy);
                Ok(RemoteState::Absent)
            }
            // Nobody can be asked. Our credentials may be over, as during an outage.
            (Err(error), Some(object))
                if (error.kind.is_transient() || error.kind == UfsKind::Credentials)
                    && Self::remote_etag_of(&object).is_some() =>
            {
                self.metrics.stale_served.inc();
                Ok(RemoteState::Cached(object))
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Finds out what the under store has by asking for all of it: for a reader of the whole object, one round trip
    /// where [`Worker::revalidate`] and the first page would be two. For a key without a copy. An object of one page at
    /// most is kept together with its description, in one write.
    pub(crate) async fn revalidate_whole(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
    ) -> Result<(RemoteState, Option<WholeBody>)> {
        let fence = self.home.fence.read(path);
        // As in `revalidate`.
        let is_settled = self.home.settle.wait(path).is_zero();
        let RemoteBody { object, stream, .. } = match mount.foreground.get(&path.key, None, None).await {
            Ok(body) => body,
            Err(error) if error.kind == UfsKind::NotFound => return Ok((RemoteState::Absent, None)),
            Err(error) => return Err(error.into()),
        };
        let (size, remote) = (object.info.size, Box::new(object));
        if !is_settled || !keeps_reads(policy) {
            return Ok((RemoteState::NotCached(remote), Some(WholeBody::OnItsWay(stream))));
        }
        let room = if size <= self.settings.page_size.0 { self.read_ahead.room(size) } else { None };
        let Some(room) = room else {
            let known = self.begin_copy(path, policy, remote, fence, Purpose::Read, None).await;
            return Ok((known, Some(WholeBody::OnItsWay(stream))));
        };
        let data = {
            let _place = self.fetches.place(&self.buckets.tenant(&path.bucket), size).await;
            let mut pages = Pages::of(stream);
            let data = pages.next(path, size).await?;
            pages.end(path).await?;
            data
        };
        let known = self.begin_copy(path, policy, remote, fence, Purpose::Read, Some(data.clone())).await;
        Ok((known, Some(WholeBody::Here(room.hold(data)))))
    }

    fn outdated(&self, path: &ObjectPath, copy: Option<Object>) {
        if let Some(object) = copy
            && self.store.evict(&Self::store_key(path), object.generation())
        {
            self.metrics.external_changes.inc();
        }
    }
}
