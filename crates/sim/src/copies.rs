//! The network between the workers of a run: slow, losing requests, gone with the process at its other end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_cache::{
    ByteStream, Cache, CachedObject, ChangesWanted, CleanCopy, CleanRange, Conditions, CopyId, DeletionStep, Error,
    ErrorKind, Fate, GetObject, HeldBytes, HomeChanges, HomeRecords, HotObject, LeaseRequest, Needs, NewCopy,
    ObjectBody, ObjectDetail, ObjectHead, OtherWorkers, PutObject, ReadLease, Reader, RecordRange, Result,
    ShareFindings, ShareReport, SlotSet, Taker, UndeliverableEnd, UndeliverablePage, Written,
};
use forebay_env::{Clock, Process};
use forebay_types::{BucketName, Generation, ObjectPath, Tags};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// After so long a worker gives up waiting for another one.
const TIMEOUT: Duration = Duration::from_secs(5);

/// One request in this many gets no answer, and one answer in this many is cut off.
const LOSS_RUNS: u64 = 10;

/// Of those that are about copies of writes: after one, a worker takes no copies for a while.
const COPY_LOSS_RUNS: u64 = 40;

/// One request in this many is the last that arrives for a while, or the last whose answer does.
const CUT_RUNS: u64 = 300;

/// For how long nothing arrives in one direction at most, in milliseconds.
const CUT_MAX_MS: u64 = 30_000;

/// One read lease in this many comes late.
const LATE_LEASES: u64 = 4;

/// A worker that runs, as the others see it.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) cache: Cache,
    /// What others ask of the worker is work of its process.
    pub(crate) process: Process,
    pub(crate) ended: CancellationToken,
    /// Another one after each start.
    pub(crate) life: u64,
}

/// Shared by clones; the machines of a run share the workers.
#[derive(Clone)]
pub(crate) struct SimCopies {
    world: Arc<World>,
    /// By machine, with the name of each.
    peers: Arc<Mutex<BTreeMap<usize, (String, Peer)>>>,
    machine: usize,
    /// Of the run.
    machines: usize,
    /// Until when nothing arrives that the first machine sends to the second one.
    cuts: Arc<Mutex<BTreeMap<(usize, usize), Duration>>>,
}

impl SimCopies {
    /// The network between `machines` machines, for the first one.
    pub(crate) fn new(world: Arc<World>, machines: usize) -> Self {
        Self { world, peers: Arc::default(), machine: 0, machines, cuts: Arc::default() }
    }

    /// The same network, for another machine.
    pub(crate) fn beside(&self, machine: usize) -> Self {
        Self { machine, ..self.clone() }
    }

    pub(crate) fn join(&self, name: String, peer: Peer) {
        self.peers.lock().insert(self.machine, (name, peer));
    }

    /// The process has ended.
    pub(crate) fn leave(&self) {
        if let Some((_, peer)) = self.peers.lock().remove(&self.machine) {
            peer.ended.cancel();
        }
    }

    /// Whether nothing arrives that one machine sends to another one.
    fn is_cut(&self, from: usize, to: usize) -> bool {
        let until = self.cuts.lock().get(&(from, to)).copied();
        !self.world.is_calm() && until.is_some_and(|until| self.world.clock.now() < until)
    }

    /// Now and then cuts the connection to another machine, in one direction.
    fn may_cut(&self, other: usize) {
        if self.world.is_calm() || !self.world.once_in(CUT_RUNS) {
            return;
        }
        let (from, to) = if self.world.once_in(2) { (self.machine, other) } else { (other, self.machine) };
        let lasts = Duration::from_millis(self.world.below(CUT_MAX_MS));
        self.world.note(format_args!("machine {to} gets nothing from {from} for {lasts:?}"));
        self.cuts.lock().insert((from, to), self.world.clock.now() + lasts);
    }

    /// Whether a message is lost: one in `runs` is.
    fn is_lost(&self, runs: u64) -> bool {
        !self.world.is_calm() && self.world.once_in(runs)
    }

    /// A body that arrives slowly. One in `loss_runs` is cut off.
    fn sent(&self, loss_runs: u64, stream: ByteStream, size: u64, peer: &Peer) -> ByteStream {
        let (world, ended) = (Arc::clone(&self.world), peer.ended.clone());
        let read = futures::stream::unfold((stream, peer.process.clone()), |(mut stream, process)| async move {
            let data = process.run(stream.next()).await?;
            Some((data, (stream, process)))
        });
        let slow = move |data| {
            let world = Arc::clone(&world);
            async move {
                world.clock.sleep(Duration::from_micros(world.below(5_000))).await;
                data
            }
        };
        let pieces = if self.is_lost(loss_runs) { self.world.below(2) as usize } else { usize::MAX };
        let stream = read.then(slow).take(pieces).take_until(ended.cancelled_owned());
        // HTTP tells a body that is cut from a whole one.
        let whole = futures::stream::try_unfold((stream.boxed(), size), |(mut stream, left)| async move {
            match stream.next().await {
                Some(data) => {
                    let data = data?;
                    let left = left.saturating_sub(data.len() as u64);
                    Ok(Some((data, (stream, left))))
                }
                None if left == 0 => Ok(None),
                None => Err(unavailable("the body was cut")),
            }
        });
        whole.boxed()
    }

    /// The answer of a worker, and the worker.
    async fn ask<T, F: Future<Output = Result<T>>>(
        &self,
        worker: &str,
        question: impl FnOnce(Cache) -> F,
    ) -> Result<(Peer, T)> {
        self.ask_over(LOSS_RUNS, worker, question).await
    }

    /// One request in `loss_runs` is lost.
    async fn ask_over<T, F: Future<Output = Result<T>>>(
        &self,
        loss_runs: u64,
        worker: &str,
        question: impl FnOnce(Cache) -> F,
    ) -> Result<(Peer, T)> {
        self.world.clock.sleep(Duration::from_micros(200 + self.world.below(2_000))).await;
        let Some((machine, peer)) = self.peer(worker) else { return Err(unavailable("there is no such worker")) };
        self.may_cut(machine);
        if self.is_lost(loss_runs) || self.is_cut(self.machine, machine) {
            self.world.clock.sleep(TIMEOUT).await;
            return Err(unavailable("the simulated network has lost it"));
        }
        let answer = peer.process.run(question(peer.cache.clone()));
        let answer = tokio::select! {
            biased;
            () = peer.ended.cancelled() => Err(unavailable("the worker has ended")),
            answer = answer => answer,
            () = self.world.clock.sleep(TIMEOUT) => Err(unavailable("the worker does not answer")),
        };
        if self.is_cut(machine, self.machine) {
            self.world.clock.sleep(TIMEOUT).await;
            return Err(unavailable("the simulated network is cut in one direction"));
        }
        Ok((peer, answer?))
    }

    /// Whether all disks of this machine may be lost now: the others that run have a copy of each byte that is only
    /// here. `None` when no worker runs here.
    pub(crate) fn is_spare(&self) -> Option<bool> {
        let peers = self.peers.lock().clone();
        peers.get(&self.machine)?;
        let names: Vec<&String> = peers.values().map(|(name, _)| name).collect();
        let has_copies = |needs: &Needs, own: &String| {
            let complete_at = needs.complete_at.as_ref();
            complete_at.is_some_and(|at| names.iter().all(|name| *name == own || at.contains(*name)))
        };
        let mut at_home: Option<SlotSet> = None;
        for (name, peer) in peers.values() {
            // Bytes that could not be read at their only holder may be there: reads can fail for a moment.
            let is_missing = peer.cache.status().missing_objects > 0;
            match peer.cache.needs() {
                Ok(needs) if needs.copies_wanted == 0 && !is_missing && has_copies(&needs, name) => {
                    at_home.get_or_insert_with(|| SlotSet::none(needs.slots.count())).add(&needs.slots);
                }
                Ok(_) | Err(_) => return Some(false),
            }
        }
        Some(at_home.is_some_and(|slots| slots.others().is_empty()))
    }

    /// At the end of a run all machines are there, and the operator has removed the names that none of them has.
    fn is_removed(&self, name: &str) -> bool {
        let is_complete = self.peers.lock().len() == self.machines;
        self.world.is_calm() && is_complete && self.peer(name).is_none()
    }

    /// A worker that runs, and its machine.
    fn peer(&self, name: &str) -> Option<(usize, Peer)> {
        let peers = self.peers.lock();
        peers.iter().find(|(_, (other, _))| other == name).map(|(machine, (_, peer))| (*machine, peer.clone()))
    }
}

fn unavailable(problem: &str) -> Error {
    Error::new(ErrorKind::Unavailable, problem)
}

#[async_trait]
impl OtherWorkers for SimCopies {
    async fn open(&self, worker: &str, key: &Bytes, generation: Generation) -> Result<Option<HeldBytes>> {
        if self.is_removed(worker) {
            return Ok(None);
        }
        let (peer, answer) = self.ask(worker, |cache| async move { cache.held(key, generation).await }).await?;
        let bytes = answer.as_ref().map(|held| held.size);
        self.world.note(format_args!("worker {worker} has {generation} of {}: {bytes:?}", key.escape_ascii()));
        Ok(answer.map(|HeldBytes { size, metadata, annex, stream }| {
            let stream = self.sent(LOSS_RUNS, stream, size, &peer);
            HeldBytes { size, metadata, annex, stream }
        }))
    }

    async fn records(&self, worker: &str, range: &RecordRange) -> Result<HomeRecords> {
        let (_, records) = self.ask(worker, |cache| async move { cache.home_records(range).await }).await?;
        // It may have been stopped with the answer in its hands.
        self.world.clock.sleep(Duration::from_micros(self.world.below(5_000))).await;
        Ok(records)
    }

    async fn changes(&self, worker: &str, wanted: &ChangesWanted) -> Result<HomeChanges> {
        let (_, changes) = self.ask(worker, |cache| async move { cache.home_changes(wanted) }).await?;
        // It may have been stopped with the answer in its hands.
        self.world.clock.sleep(Duration::from_micros(self.world.below(5_000))).await;
        Ok(changes)
    }

    async fn put(&self, worker: &str, request: PutObject) -> Result<Written> {
        Ok(self.ask(worker, |cache| async move { cache.put_here(request).await }).await?.1)
    }

    async fn delete(&self, worker: &str, path: &ObjectPath, conditions: &Conditions) -> Result<()> {
        self.ask(worker, |cache| async move { cache.delete_here(path, conditions).await }).await.map(|_| ())
    }

    async fn get(&self, worker: &str, request: GetObject) -> Result<ObjectBody> {
        let (peer, ObjectBody { head, stream }) =
            self.ask(worker, |cache| async move { cache.get_here(request).await }).await?;
        let stream = self.sent(LOSS_RUNS, stream, head.range.len(), &peer);
        Ok(ObjectBody { head, stream })
    }

    async fn head(&self, worker: &str, request: GetObject) -> Result<ObjectHead> {
        Ok(self.ask(worker, |cache| async move { cache.head_here(request).await }).await?.1)
    }

    async fn tags(&self, worker: &str, path: &ObjectPath) -> Result<Tags> {
        Ok(self.ask(worker, |cache| async move { cache.tags(path).await }).await?.1)
    }

    async fn detail(&self, worker: &str, path: &ObjectPath) -> Result<ObjectDetail> {
        Ok(self.ask(worker, |cache| async move { cache.object_detail_here(path).await }).await?.1)
    }

    async fn cached(&self, worker: &str, bucket: &BucketName, objects: Vec<CachedObject>) -> Result<Vec<CachedObject>> {
        Ok(self.ask(worker, |cache| async move { cache.cached_here(bucket, objects).await }).await?.1)
    }

    async fn job_shares(&self, worker: &str) -> Result<Vec<ShareReport>> {
        Ok(self.ask(worker, |cache| async move { cache.job_shares().await }).await?.1)
    }

    async fn job_findings(&self, worker: &str, id: &str, after: u64, limit: usize) -> Result<ShareFindings> {
        Ok(self.ask(worker, |cache| async move { cache.share_findings(id, after, limit).await }).await?.1)
    }

    async fn undeliverable(
        &self,
        worker: &str,
        prefix: &str,
        after: Option<&ObjectPath>,
        limit: usize,
    ) -> Result<UndeliverablePage> {
        let ask = self.ask(worker, |cache| async move { cache.undeliverable_here(prefix, after, limit).await });
        Ok(ask.await?.1)
    }

    async fn end_undeliverable(
        &self,
        worker: &str,
        path: &ObjectPath,
        generation: u64,
        end: &UndeliverableEnd,
    ) -> Result<()> {
        let ask = self.ask(worker, |cache| async move { cache.end_undeliverable_here(path, generation, end).await });
        ask.await.map(drop)
    }

    async fn deletion_step(&self, worker: &str, bucket: &BucketName, step: DeletionStep) -> Result<SlotSet> {
        let (_, slots) = self.ask(worker, |cache| async move { cache.deletion_step(bucket, step).await }).await?;
        // It may have been stopped with the answer in its hands.
        self.world.clock.sleep(Duration::from_micros(self.world.below(5_000))).await;
        Ok(slots)
    }

    async fn room_for_copy(&self, worker: &str, path: &ObjectPath, bytes: u64) -> Result<()> {
        self.ask(worker, |cache| async move { cache.room_for_copy(path, bytes) }).await.map(drop)
    }

    async fn take_copy(&self, worker: &str, copy: NewCopy) -> Result<bool> {
        let own = self.peers.lock().get(&self.machine).map(|(_, peer)| peer.clone());
        let Some(own) = own else { return Err(unavailable("this worker has ended")) };
        let NewCopy { id, path, pieces, bytes: HeldBytes { size, metadata, annex, stream } } = copy;
        let name = format!("{} of {}", id.generation, id.key.escape_ascii());
        let size_sent = if pieces.is_empty() { size } else { 0 };
        let stream = self.sent(COPY_LOSS_RUNS, stream, size_sent, &own);
        let copy = NewCopy { id, path, pieces, bytes: HeldBytes { size, metadata, annex, stream } };
        let taken = self.ask_over(COPY_LOSS_RUNS, worker, |cache| async move { cache.take_copy(copy).await }).await;
        let taken = taken.map(|(_, taken)| taken);
        self.world.note(format_args!("worker {worker} takes {name}: {:?}", taken.as_ref().map_err(|error| error.kind)));
        if self.is_lost(COPY_LOSS_RUNS) {
            self.world.clock.sleep(TIMEOUT).await;
            return Err(unavailable("the simulated network has lost the answer"));
        }
        taken
    }

    async fn fates(&self, worker: &str, copies: &[CopyId]) -> Result<Vec<Fate>> {
        let (_, fates) = self.ask(worker, |cache| async move { Ok(cache.fates(copies).await) }).await?;
        // It may have been stopped with the answer in its hands.
        self.world.clock.sleep(Duration::from_micros(self.world.below(5_000))).await;
        Ok(fates)
    }

    async fn has_copies(&self, worker: &str, copies: &[CopyId]) -> Result<Vec<bool>> {
        let (_, has) = self.ask(worker, |cache| async move { Ok(cache.has_copies(copies)) }).await?;
        // It may have been stopped with the answer in its hands.
        self.world.clock.sleep(Duration::from_micros(self.world.below(5_000))).await;
        Ok(has)
    }

    async fn read_lease(&self, worker: &str, request: LeaseRequest) -> Result<Option<ReadLease>> {
        let path = request.path.clone();
        let (peer, lease) = self.ask(worker, |cache| async move { cache.read_lease(request).await }).await?;
        // Other messages overtake the answer.
        let late = if self.is_lost(LATE_LEASES) { self.world.below(2_000_000) } else { self.world.below(20_000) };
        self.world.clock.sleep(Duration::from_micros(late)).await;
        let lasts = lease.as_ref().map(|lease| lease.terms.lasts);
        self.world.note(format_args!("worker {worker} grants a lease on {path}: {lasts:?}"));
        Ok(lease.map(|ReadLease { terms, body }| {
            let body = body.map(|stream| self.sent(LOSS_RUNS, stream, terms.head.range.len(), &peer));
            ReadLease { terms, body }
        }))
    }

    async fn end_leases(&self, reader: &Reader, paths: &[ObjectPath]) -> Result<bool> {
        if self.is_lost(LOSS_RUNS / 2) {
            return Err(unavailable("the simulated network takes no connection"));
        }
        let ended = self.ask(&reader.worker, |cache| async move { Ok(cache.end_leases(reader.process, paths)) }).await;
        let ended = ended.map(|(_, ended)| ended);
        self.world.note(format_args!("worker {} ends leases on {}: {ended:?}", reader.worker, paths.len()));
        if self.is_lost(LOSS_RUNS) {
            return Err(unavailable("the simulated network has lost the answer"));
        }
        ended
    }

    async fn clean_copy(&self, worker: &str, path: &ObjectPath, bytes_max: u64) -> Result<Option<CleanCopy>> {
        let (peer, copy) = self.ask(worker, |cache| async move { cache.clean_copy(path, bytes_max).await }).await?;
        // Meanwhile the object may be written, or change in the under store.
        self.world.clock.sleep(Duration::from_micros(self.world.below(20_000))).await;
        let terms = copy.as_ref().map(|copy| (&copy.terms.validated, copy.body.is_some()));
        self.world.note(format_args!("worker {worker} has a clean copy of {path}: {terms:?}"));
        Ok(copy.map(|CleanCopy { terms, body }| {
            let body = body.map(|stream| self.sent(LOSS_RUNS, stream, terms.size, &peer));
            CleanCopy { terms, body }
        }))
    }

    async fn clean_bytes(&self, worker: &str, wanted: &CleanRange) -> Result<Option<ByteStream>> {
        let (peer, stream) = self.ask(worker, |cache| async move { Ok(cache.clean_bytes(wanted)) }).await?;
        Ok(stream.map(|stream| self.sent(LOSS_RUNS, stream, wanted.range.len(), &peer)))
    }

    async fn hot_objects(&self, worker: &str, slots: &SlotSet) -> Result<Vec<HotObject>> {
        let (_, hot) = self.ask(worker, |cache| async move { Ok(cache.hot_objects(slots).await) }).await?;
        self.world.note(format_args!("worker {worker} has {} hot objects", hot.len()));
        Ok(hot)
    }

    /// Some that give slots away do so as if they were drained.
    fn is_leaving(&self, worker: &str) -> bool {
        self.workers().iter().any(|other| other == worker) && self.world.once_in(2)
    }

    fn home(&self, hash: u64) -> Option<String> {
        let peers = self.peers.lock();
        let mut others = peers.iter().filter(|(machine, _)| **machine != self.machine);
        let home = others.find(|(_, (_, peer))| peer.cache.is_home_of(hash));
        home.map(|(_, (name, _))| name.clone())
    }

    fn workers(&self) -> Vec<String> {
        self.takers().into_iter().map(|taker| taker.worker).collect()
    }

    fn takers(&self) -> Vec<Taker> {
        let peers = self.peers.lock();
        let others = peers.iter().filter(|(machine, _)| **machine != self.machine);
        others.map(|(_, (worker, peer))| Taker { worker: worker.clone(), life: peer.life }).collect()
    }
}
