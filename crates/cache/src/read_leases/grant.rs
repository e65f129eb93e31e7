//! The home grants leases, and ends them before it changes a key.

use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::SlotSet;
use forebay_types::{ByteRange, ObjectPath, PathPolicy};
use futures::future::join_all;

use super::granted::{ByReader, Granted};
use super::{DRIFT, LEASE_MAX, LeaseRequest, LeaseTerms, ReadLease, Reader};
use crate::locks::KeyGuard;
use crate::read::get::head_of;
use crate::read::lookup::{BytesAt, Lookup};
use crate::scope::Scope;
use crate::worker::Worker;
use crate::{GetObject, OtherWorkers, Result};

/// Before a worker that gave no answer is asked again to end leases.
const RETRY: Duration = Duration::from_millis(200);

impl Worker {
    /// Grants a lease on the current version of an object. `None` when the object has to be read here: it does not
    /// exist, is large, is not all here, changes at the moment, or the under store has to be asked.
    ///
    /// # Errors
    /// `Unavailable` when this worker is not the home of the object; whatever keeps its version from being told.
    pub(crate) async fn grant_lease(self: &Arc<Self>, request: LeaseRequest) -> Result<Option<ReadLease>> {
        let LeaseRequest { path, reader, known, bytes_max } = request;
        let policy = self.policies.resolve(&path);
        let longest = self.catalog.lease().unwrap_or(Duration::ZERO).min(LEASE_MAX);
        if !policy.spread_reads || longest.is_zero() {
            return Ok(None);
        }
        // A write waits for what is noted: only what looks like an object that can be leased is.
        if self.leasable(&path, &policy, bytes_max).await?.is_none() {
            return Ok(None);
        }
        {
            // The holder of the lock may have ended all leases already.
            let Some(_no_change) = self.home.locks.try_lock(&path) else { return Ok(None) };
            let until = self.env.clock.monotonic() + longest + longest / DRIFT;
            if !self.home.granted.note(&path, Granted { reader, until }) {
                return Ok(None);
            }
        }
        // Only now: a change that this does not see ends the lease first.
        let Some((found, left)) = self.leasable(&path, &policy, bytes_max).await? else { return Ok(None) };
        let (lasts, generation) = (longest.min(left), found.generation());
        let whole = GetObject::whole(path);
        let head = head_of(&found, &whole)?;
        let terms = LeaseTerms { lasts, remote_etag: found.remote_etag().cloned(), head };
        let range = ByteRange::of_size(found.info.size);
        let body = match known == generation {
            true => None,
            false => Some(self.open(&whole.path, &policy, found, range).await?),
        };
        self.metrics.read_leases_granted.inc();
        Ok(Some(ReadLease { terms, body }))
    }

    /// The current version of an object, if another worker may read it under a lease, and how long it is believed.
    async fn leasable(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        bytes_max: u64,
    ) -> Result<Option<(Lookup, Duration)>> {
        let Some(found) = self.lookup_here(path, policy).await? else { return Ok(None) };
        let left = match &found.bytes {
            BytesAt::Cached { version, .. } => self.home.validity.left(version.generation, policy.metadata_ttl.0),
            BytesAt::Local { .. } | BytesAt::Remote { .. } | BytesAt::Leased { .. } => LEASE_MAX,
        };
        let is_leasable = found.info.size <= bytes_max && !left.is_zero() && found.generation().is_some();
        Ok(is_leasable.then_some((found, left)))
    }

    /// Waits for the lock of a key, and ends the leases of other workers on it: what readers see of it may change.
    ///
    /// # Errors
    /// `Moved` when the key is not at home here.
    pub(crate) async fn lock_key(&self, path: &ObjectPath) -> Result<KeyGuard> {
        let guard = self.home.locks.lock(path).await?;
        if let Some(others) = &self.others
            && self.home.granted.may_have_any()
        {
            // Boxed: this is rare, and would make the future of every write larger.
            Box::pin(self.end_leases_on(others.as_ref(), path)).await;
        }
        Ok(guard)
    }

    /// Ends the leases on a key whose version in the under store may be another one than that which was leased: what
    /// others have changed there is about to be told.
    pub(crate) async fn end_outdated_leases(&self, path: &ObjectPath) {
        if let Some(others) = &self.others
            && self.home.granted.may_have_any()
        {
            Box::pin(self.end_leases_on(others.as_ref(), path)).await;
        }
    }

    async fn end_leases_on(&self, others: &dyn OtherWorkers, path: &ObjectPath) {
        self.earlier_leases_ended().await;
        let granted = self.home.granted.of_path(path);
        self.end_granted(others, granted).await;
    }

    async fn earlier_leases_ended(&self) {
        let left = self.home.granted.earlier_left();
        if !left.is_zero() {
            self.env.clock.sleep(left).await;
        }
    }

    /// Ends all leases on the keys of these slots, whose locks are closed.
    pub(crate) async fn end_leases_of(&self, slots: &SlotSet) {
        let Some(others) = &self.others else { return };
        self.earlier_leases_ended().await;
        let granted = self.home.granted.of(|path| slots.has_path(path));
        self.end_granted(others.as_ref(), granted).await;
    }

    /// Ends all leases on keys of a scope whose copies an operator has freed: the next reads at other workers are fresh
    /// as well.
    pub(crate) async fn end_leases_in(&self, scope: &Scope) {
        let Some(others) = &self.others else { return };
        self.earlier_leases_ended().await;
        let granted = self.home.granted.of(|path| scope.contains(path));
        self.end_granted(others.as_ref(), granted).await;
    }

    /// Grants no more leases, and ends all: the next home of these keys knows nothing of them.
    pub(crate) async fn end_all_leases(&self) {
        let Some(others) = &self.others else { return };
        self.home.granted.close();
        self.earlier_leases_ended().await;
        let granted = self.home.granted.of(|_| true);
        self.end_granted(others.as_ref(), granted).await;
    }

    async fn end_granted(&self, others: &dyn OtherWorkers, granted: ByReader) {
        join_all(granted.into_iter().map(|(reader, leases)| async move {
            self.end_leases_at(others, &reader, &leases.paths, leases.until).await;
            self.home.granted.ended(&reader, &leases);
        }))
        .await;
    }

    /// Returns when the reader has confirmed that it has these leases no more, or when they are over.
    async fn end_leases_at(&self, others: &dyn OtherWorkers, reader: &Reader, paths: &[ObjectPath], until: Duration) {
        let clock = &self.env.clock;
        loop {
            let left = until.saturating_sub(clock.monotonic());
            if left.is_zero() {
                return;
            }
            let ended = tokio::select! {
                biased;
                ended = others.end_leases(reader, paths) => ended,
                () = clock.sleep(left) => return,
            };
            match ended {
                Ok(true) => {
                    self.metrics.read_leases_ended.inc_by(paths.len() as u64);
                    return;
                }
                // Another process has the worker's name by now. Nobody knows whether the reader still runs.
                Ok(false) => return clock.sleep(left).await,
                Err(_) => clock.sleep(RETRY.min(left)).await,
            }
        }
    }
}
