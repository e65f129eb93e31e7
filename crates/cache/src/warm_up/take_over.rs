//! The new home's side.

use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::SlotSet;
use forebay_catalog::records::path_hash;
use forebay_store::Object;
use forebay_types::{ByteRange, ObjectPath, PathPolicy};
use forebay_ufs::RemoteObject;

use super::{CleanCopy, CleanRange};
use crate::metadata::{Annex, decode_info};
use crate::read::fill::Answered;
use crate::read::open::collect;
use crate::read::remote::{Purpose, RemoteState, Version, keeps_reads, keeps_reads_of};
use crate::read::validity::Moment;
use crate::scope::Scope;
use crate::worker::Worker;
use crate::{Error, ErrorKind, OtherWorkers, Result};

impl Worker {
    /// Slots were gained. Called before anything else is done with their keys.
    pub(crate) fn begin_warm_up(&self, slots: &SlotSet) {
        if self.others.is_some() && self.home.gained.add(slots) {
            self.home.fence.restart_touched();
        }
    }

    pub(crate) fn end_warm_up(&self, slots: &SlotSet) {
        self.home.gained.take_off(slots);
        self.home.hand_overs.forget(slots);
    }

    /// Nothing more of the scope is taken over: an operator wants what the under store has.
    pub(crate) fn stop_warm_up(&self, scope: &Scope) {
        self.home.gained.free(scope);
    }

    /// Takes the clean copy of an object without one over from the former home of its slot, and its bytes if it is
    /// small and `is_whole_wanted`.
    pub(crate) async fn take_over_copy(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        is_whole_wanted: bool,
        purpose: Purpose,
    ) -> Option<Object> {
        // First: a job that frees copies makes the former home unknown before it counts.
        let frees = self.frees();
        let (others, former) = self.former_home(path)?;
        // As in `revalidate`.
        if !keeps_reads(policy) || !self.home.settle.wait(path).is_zero() {
            return None;
        }
        let (fence, heard) = (self.home.fence.read(path), self.home.fence.heard());
        // After that: what ends a write touches the object first.
        if self.home.fence.is_touched(path, heard) {
            return None;
        }
        // As in `revalidate_whole`. What does not fit comes page by page.
        let page_size = self.settings.page_size.0;
        let permit = match is_whole_wanted {
            true => Some(self.fetches.permit(&self.buckets.tenant(&path.bucket), page_size).await),
            false => None,
        };
        let room = permit.as_ref().and_then(|_| self.read_ahead.room(page_size));
        let (bytes_max, _permit) = match &room {
            Some(_) => (page_size, permit),
            None => {
                drop(permit);
                (0, None)
            }
        };
        let asked = Moment::of(self.env.clock.monotonic());
        let copy = match others.clean_copy(&former, path, bytes_max).await {
            Ok(copy) => copy?,
            Err(error) => {
                self.not_given(&former, path, &error);
                return None;
            }
        };
        // It has not been validated later than that.
        let answered = Answered { fence, frees, as_of: asked.minus(copy.terms.validated), heard: Some(heard) };
        let kept = self.keep_clean_copy(path, policy, answered, copy, purpose).await;
        kept.unwrap_or_else(|error| not_sent(&former, path, &error))
    }

    async fn keep_clean_copy(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        answered: Answered,
        copy: CleanCopy,
        purpose: Purpose,
    ) -> Result<Option<Object>> {
        let CleanCopy { terms, body } = copy;
        let info = decode_info(&terms.metadata)?;
        let Some(remote_etag) = Annex::decode(&terms.annex).remote_etag else { return Ok(None) };
        if info.size != terms.size || !keeps_reads_of(policy, info.size) {
            return Ok(None);
        }
        let data = match body {
            Some(body) => Some(self.collect_exactly(path, body, info.size).await?),
            None => None,
        };
        let bytes = data.as_ref().map_or(0, |data| data.len() as u64);
        let remote = Box::new(RemoteObject { info, remote_etag, stamp: None });
        let RemoteState::Cached(object) = self.begin_copy(path, policy, remote, answered, purpose, data).await else {
            return Ok(None);
        };
        self.metrics.warm_up_objects.inc();
        self.metrics.warm_up_bytes.inc_by(bytes);
        Ok(Some(object))
    }

    /// A page of a version, from the former home of the slot.
    pub(crate) async fn page_of_former_home(&self, version: &Version, window: ByteRange) -> Option<Bytes> {
        let (others, former) = self.former_home(&version.path)?;
        let (path, remote_etag) = (version.path.clone(), version.remote_etag.clone());
        let wanted = CleanRange { path, remote_etag, size: version.size, range: window };
        let body = match others.clean_bytes(&former, &wanted).await {
            Ok(body) => body?,
            Err(error) => {
                self.not_given(&former, &version.path, &error);
                return None;
            }
        };
        match self.collect_exactly(&version.path, body, window.len()).await {
            Ok(page) => {
                self.metrics.warm_up_bytes.inc_by(window.len());
                Some(page)
            }
            Err(error) => not_sent(&former, &version.path, &error),
        }
    }

    async fn collect_exactly(&self, path: &ObjectPath, body: crate::ByteStream, size: u64) -> Result<Bytes> {
        let data = collect(body, size as usize).await?;
        if data.len() as u64 == size {
            return Ok(data);
        }
        let context = format!("another worker sent {} of {size} bytes of {path}", data.len());
        Err(Error::new(ErrorKind::Unavailable, context))
    }

    /// The worker that may have clean copies of the paths of this slot, if it lives.
    pub(super) fn former_home(&self, path: &ObjectPath) -> Option<(&Arc<dyn OtherWorkers>, String)> {
        let others = self.others.as_ref()?;
        let former = self.former_home_of(path_hash(path))?;
        let gained = &self.home.gained;
        let is_asked = !gained.is_freed(path) && gained.may_ask(&former) && others.workers().contains(&former);
        is_asked.then_some((others, former))
    }

    /// The worker that was the home of the paths with this hash, if their slot is warmed up.
    pub(super) fn former_home_of(&self, hash: u64) -> Option<String> {
        if self.home.gained.has(hash) { self.catalog.former_home(hash) } else { None }
    }

    fn not_given(&self, former: &str, path: &ObjectPath, error: &Error) {
        tracing::debug!(%path, former, %error, "the former home of a slot gives no copy");
        if error.kind == ErrorKind::Unavailable {
            self.home.gained.is_silent(former);
        }
    }
}

/// What it began to send has not come: that is the trouble of one object, such as damage on a disk.
fn not_sent<T>(former: &str, path: &ObjectPath, error: &Error) -> Option<T> {
    tracing::debug!(%path, former, %error, "the former home of a slot has sent only some of a copy");
    None
}
