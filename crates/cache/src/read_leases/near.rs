//! A worker that is not the home of an object answers reads of it under a lease.

use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::records::path_hash;
use forebay_types::{ObjectPath, PathPolicy, WriteMode};

use super::held::{Asking, Held};
use super::{DRIFT, LeaseRequest, LeaseTerms, ReadLease, Reader};
use crate::anywhere::OtherHome;
use crate::read::get::head_of;
use crate::read::lookup::{BytesAt, Lookup};
use crate::read::memory_tier::MemoryObject;
use crate::read::open::collect;
use crate::worker::Worker;
use crate::{Error, ErrorKind, GetObject, ObjectBody, ObjectHead, OtherWorkers, Result};

impl Worker {
    /// The version of an object whose home is another worker, if this one has a lease on it and its bytes.
    pub(crate) fn lookup_leased(&self, path: &ObjectPath, policy: &PathPolicy) -> Option<Lookup> {
        let held = self.held_leases.find(path)?;
        let data = self.bytes_of(policy, &held)?;
        let Held { info, state, generation, remote_etag, .. } = held;
        Some(Lookup { info, asked: false, bytes: BytesAt::Leased { generation, state, remote_etag, data } })
    }

    fn bytes_of(&self, policy: &PathPolicy, held: &Held) -> Option<Bytes> {
        match held.info.size {
            0 => Some(Bytes::new()),
            _ => self.memory.get(policy, held.generation)?.data,
        }
    }

    /// Reads an object whose home is another worker.
    pub(crate) async fn get_elsewhere(self: &Arc<Self>, request: GetObject, home: OtherHome) -> Result<ObjectBody> {
        let OtherHome { others, worker } = home;
        let policy = self.policies.resolve(&request.path);
        let Some(found) = self.lookup_leased(&request.path, &policy).filter(|_| !request.no_cache) else {
            return others.get(&worker, request).await;
        };
        self.metrics.leased_reads.inc();
        request.conditions.check_read(&found.info, found.remote_etag())?;
        let head = head_of(&found, &request)?;
        let range = head.range;
        let stream = self.open(&request.path, &policy, found, range).await?;
        self.metrics.avoided_gets.inc();
        Ok(ObjectBody { head, stream })
    }

    pub(crate) async fn head_elsewhere(&self, request: GetObject, home: OtherHome) -> Result<ObjectHead> {
        let OtherHome { others, worker } = home;
        let policy = self.policies.resolve(&request.path);
        let Some(found) = self.lookup_leased(&request.path, &policy).filter(|_| !request.no_cache) else {
            return others.head(&worker, request).await;
        };
        self.metrics.leased_reads.inc();
        self.metrics.avoided_heads.inc();
        request.conditions.check_read(&found.info, found.remote_etag())?;
        head_of(&found, &request)
    }

    /// Whether this worker answers reads of an object whose home is another one. If the object is read often, this asks
    /// for a lease.
    pub(crate) async fn reads_here(&self, path: &ObjectPath) -> bool {
        let Some(home) = self.other_home(path) else { return false };
        let policy = self.policies.resolve(path);
        if self.lookup_leased(path, &policy).is_some() {
            return true;
        }
        let hash = path_hash(path);
        let is_read_often = self.held_leases.reads.has(hash);
        is_read_often && !self.held_leases.refused.has(hash) && self.obtain_lease(path, home).await
    }

    /// Notes that the home of an object has answered a read of it: of somebody who may read it.
    pub(crate) fn was_read(&self, path: &ObjectPath) {
        self.held_leases.reads.note(path_hash(path));
    }

    /// Asks for a lease on an object whose home is another worker, however seldom it is read. Returns whether this
    /// worker answers reads of it now.
    pub(crate) async fn obtain_lease(&self, path: &ObjectPath, home: OtherHome) -> bool {
        let policy = self.policies.resolve(path);
        if !policy.spread_reads || policy.write_mode == WriteMode::NoCache {
            return false;
        }
        let OtherHome { others, worker } = home;
        let Some(asking) = self.held_leases.begin_to_ask(path) else { return false };
        let has_lease = self.ask_for_lease(asking, others.as_ref(), &worker, &policy).await.unwrap_or(false);
        let noted = if has_lease { &self.held_leases.reads } else { &self.held_leases.refused };
        noted.note(path_hash(path));
        has_lease
    }

    async fn ask_for_lease(
        &self,
        asking: Asking<'_>,
        others: &dyn OtherWorkers,
        home: &str,
        policy: &PathPolicy,
    ) -> Result<bool> {
        let Some(own) = self.catalog.worker() else { return Ok(false) };
        let path = asking.path;
        let before = self.held_leases.last(path);
        let known = before.filter(|held| self.bytes_of(policy, held).is_some()).map(|held| held.generation);
        let reader = Reader { worker: own.to_owned(), process: self.held_leases.process };
        let bytes_max = self.memory.largest();
        // The lease counts from here: its home counts from when it is asked.
        let sent = self.env.clock.monotonic();
        let request = LeaseRequest { path: path.clone(), reader, known, bytes_max };
        let Some(ReadLease { terms, body }) = others.read_lease(home, request).await? else { return Ok(false) };
        let LeaseTerms { lasts, head, remote_etag } = terms;
        let Some(generation) = head.generation else { return Ok(false) };
        if let Some(body) = body {
            let size = head.info.size;
            let data = collect(body, size as usize).await?;
            if data.len() as u64 != size {
                return Err(Error::new(ErrorKind::Unavailable, "a leased object came without all of its bytes"));
            }
            self.memory.insert(policy, generation, MemoryObject::new(Arc::clone(&head.info), Some(data)));
        }
        let until = sent + lasts - lasts / DRIFT;
        let held = Held { info: head.info, state: head.state, generation, remote_etag, until };
        // The memory tier may be too busy to keep it.
        let has_bytes = self.bytes_of(policy, &held).is_some();
        Ok(asking.end(Some(held).filter(|_| has_bytes)))
    }
}
