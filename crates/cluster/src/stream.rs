//! The transactions of one worker, one after the other: a group commit on the engine.
//!
//! Each transaction checks the version of the worker's record, and writes it with the next number. So a transaction
//! whose answer was lost can be distinguished from one that was not done. Each transaction is done once however often
//! it is sent, and can't be done after a later one. Any other writer of the record takes the stream over: what the
//! worker has sent and is not done by then is never done. That makes a check of each slot needless: a slot changes its
//! home by a transaction of the home, or after the home's record was written by somebody else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::{Check, Engine, Error, ErrorKind, Result, Versioned};
use forebay_env::sync::Mutex;
use forebay_env::{Clock, Env};
use forebay_store::ValueWrite;
use tokio::sync::{mpsc, oneshot};

use crate::failure_detector::{FailureDetector, START_MAX, Sign};
use crate::layout::{WorkerId, stale_copies_key, worker_key};
use crate::lease::Lease;
use crate::worker_record::{WorkerRecord, WorkerState};

/// Writes in one transaction, with that of the worker's record: etcd takes 128 by default.
pub(crate) const WRITES_MAX: usize = 120;

/// Bytes of keys and values in one transaction: etcd takes 1.5 MiB by default.
const BYTES_MAX: usize = 1 << 20;

/// Requests that may wait; beyond it, committers wait to get in.
const QUEUE_MAX: usize = 4096;

/// How long writes that no client waits for wait to share a transaction with others. They hold the locks of their keys,
/// so a client that writes one of them waits, too.
const SHARE_MAX: Duration = Duration::from_millis(2);

/// After the last write that a client waits for, more of them are expected for this long.
const EXPECTED: Duration = Duration::from_millis(50);

/// Pause before a transaction without an answer is sent again, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

struct Request {
    /// Of records that others change, too.
    checks: Vec<Check>,
    writes: Vec<ValueWrite>,
    state: WorkerState,
    /// No client waits for it.
    may_wait: bool,
    done: oneshot::Sender<Result<u64>>,
}

/// The handle.
pub(crate) struct Stream {
    sender: mpsc::Sender<Request>,
    lease: Arc<Lease>,
    position: Arc<Mutex<Position>>,
}

/// The last transaction that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) life: u64,
    /// See [`WorkerRecord`].
    pub(crate) number: u64,
    /// Of the worker's record.
    pub(crate) version: u64,
}

struct Committer {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    lease: Arc<Lease>,
    key: Bytes,
    /// As the last transaction that is done has left it, and the version that it got.
    record: WorkerRecord,
    version: u64,
    position: Arc<Mutex<Position>>,
    /// When the last transaction was sent.
    sent: Duration,
    /// Until when writes are expected that a client waits for.
    expected_until: Duration,
}

/// The outcome of a transaction.
enum Outcome {
    /// With this record, and at this version. Nobody has seen the version earlier than at this time.
    Done { record: WorkerRecord, version: u64, since: Duration },
    /// It was not done. When it is in doubt, it may still be.
    Refused { error: Error, is_in_doubt: bool },
    /// Somebody else has written the worker's record.
    TakenOver { is_in_doubt: bool },
}

impl Stream {
    /// Makes this process the worker, when no other process is.
    ///
    /// `is_own` tells whether the process of a life has ended: the process that holds the worker's data directories
    /// knows that. The process of any other life must have been silent for a lease.
    ///
    /// # Errors
    /// `Unavailable` when another process is this worker; whatever the engine answers after [`START_MAX`].
    pub(crate) async fn begin(
        env: &Env,
        engine: Arc<dyn Engine>,
        worker: &WorkerId,
        life: u64,
        length: Duration,
        is_own: impl Fn(u64) -> bool,
    ) -> Result<(Self, Former)> {
        let clock = Arc::clone(&env.clock);
        let lease = Arc::new(Lease::new(Arc::clone(&clock), length));
        let record = WorkerRecord { life, number: 0, state: WorkerState::Live };
        let key = worker_key(worker);
        let until = clock.monotonic() + START_MAX;
        let mut detector = FailureDetector::new(length);
        let mut is_alive = false;
        let (version, former) = loop {
            let is_over = |version| {
                // It has written nothing yet that could have failed.
                let sign = detector.sign(worker, version, Duration::MAX, clock.monotonic());
                is_alive = sign == Sign::Lives;
                sign == Sign::Over
            };
            let begun = begin(engine.as_ref(), worker, record, &is_own, is_over).await;
            let error = match begun {
                Ok(Some(begun)) => break begun,
                Ok(None) => {
                    let problem = format!(
                        "another process is worker {worker} of this cluster: stop it, or give this one another cluster.worker_id"
                    );
                    Error::new(ErrorKind::Unavailable, problem)
                }
                Err(error) => error,
            };
            if is_alive || clock.monotonic() >= until {
                return Err(error);
            }
            clock.sleep(length / 20).await;
        };
        let stream = Self::run(engine, clock, lease, key, record, version);
        // The first renewal of the lease.
        stream.commit(Vec::new()).await?;
        Ok((stream, former))
    }

    fn run(
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        lease: Arc<Lease>,
        key: Bytes,
        record: WorkerRecord,
        version: u64,
    ) -> Self {
        let position = Arc::new(Mutex::new(Position { life: record.life, number: record.number, version }));
        let sent = clock.monotonic();
        let committer = Committer {
            engine,
            clock,
            lease: Arc::clone(&lease),
            key,
            record,
            version,
            position: Arc::clone(&position),
            sent,
            expected_until: Duration::ZERO,
        };
        let (sender, requests) = mpsc::channel(QUEUE_MAX);
        forebay_env::spawn(committer.run(requests));
        Self { sender, lease, position }
    }

    /// # Errors
    /// `Unavailable` when the lease is over.
    pub(crate) fn check(&self) -> Result<()> {
        self.lease.check()
    }

    /// Why the slots are lost for good.
    pub(crate) fn lost(&self) -> Option<String> {
        self.lease.lost()
    }

    /// How far the engine is: at least as far as all commits that have returned.
    pub(crate) fn position(&self) -> Position {
        *self.position.lock()
    }

    /// See [`Lease::written_for`].
    pub(crate) fn written_for(&self) -> Duration {
        self.lease.written_for()
    }

    /// What is left of the lease, if nothing renews it.
    pub(crate) fn lease_left(&self) -> Duration {
        self.lease.left()
    }

    /// Returns when the engine has these writes: however long that takes, unless the slots are lost.
    ///
    /// # Errors
    /// `Unavailable` when they are not done, `Unknown` when they may be or not: the worker has lost its slots then.
    /// `Busy` when the engine refuses them.
    pub(crate) async fn commit(&self, writes: Vec<ValueWrite>) -> Result<()> {
        self.send(Vec::new(), writes, WorkerState::Live, false).await.map(drop)
    }

    /// The same for writes that no client waits for. While clients write, these share their transactions.
    ///
    /// # Errors
    /// As [`Stream::commit`].
    pub(crate) async fn commit_soon(&self, writes: Vec<ValueWrite>) -> Result<()> {
        self.send(Vec::new(), writes, WorkerState::Live, true).await.map(drop)
    }

    /// As [`Stream::commit`], when all checks hold, which are of records that others change, too. Returns the version
    /// of the keys that were written.
    ///
    /// # Errors
    /// `Conflict` when one does not hold.
    pub(crate) async fn commit_checked(&self, checks: Vec<Check>, writes: Vec<ValueWrite>) -> Result<u64> {
        self.send(checks, writes, WorkerState::Live, false).await
    }

    /// Ends the stream: others need not wait for the end of the lease.
    ///
    /// # Errors
    /// As [`Stream::commit`].
    pub(crate) async fn leave(&self) -> Result<()> {
        self.send(Vec::new(), Vec::new(), WorkerState::Left, false).await.map(drop)
    }

    async fn send(
        &self,
        checks: Vec<Check>,
        writes: Vec<ValueWrite>,
        state: WorkerState,
        may_wait: bool,
    ) -> Result<u64> {
        self.lease.check_not_lost()?;
        let (done, answer) = oneshot::channel();
        let ended = |_| Error::new(ErrorKind::Unavailable, "the catalog is closed");
        self.sender.send(Request { checks, writes, state, may_wait, done }).await.map_err(|_| ended(()))?;
        answer.await.map_err(|_| Error::new(ErrorKind::Unknown, "the catalog was closed meanwhile"))?
    }
}

/// The last process of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Former {
    /// It has ended by itself, or its lease is over, or there was none.
    Over,
    /// It was killed, perhaps just now.
    Killed,
}

/// Tries to become a worker. Returns the version of its record; `None` when another process may be the worker.
///
/// When the last process of the worker had other disks, clean copies on these ones are from another time, also those of
/// slots that stay at home at the worker. The same transaction notes that: after it, nobody could find it out.
async fn begin(
    engine: &dyn Engine,
    worker: &WorkerId,
    record: WorkerRecord,
    is_own: impl Fn(u64) -> bool,
    is_over: impl FnOnce(u64) -> bool,
) -> Result<Option<(u64, Former)>> {
    let key = worker_key(worker);
    let found = engine.get(&key).await?;
    let (mut of, mut writes) = (Former::Over, vec![write(&key, record)]);
    if let Some(found) = &found {
        if found.value == record.encode() {
            // The answer to an earlier try was lost, and what it has replaced is not known.
            return Ok(Some((found.version, Former::Killed)));
        }
        let former = WorkerRecord::decode(&found.value)?;
        let had_these_disks = is_own(former.life);
        let is_killed = former.state == WorkerState::Live && had_these_disks;
        let has_ended = former.state != WorkerState::Live || is_killed;
        if is_killed {
            of = Former::Killed;
        }
        if !has_ended && !is_over(found.version) {
            return Ok(None);
        }
        if !had_these_disks {
            writes.push(ValueWrite { key: stale_copies_key(worker), value: Some(Bytes::new()) });
        }
    }
    let checks = [Check { key, version: found.map(|found| found.version) }];
    engine.commit(&checks, &writes).await.map(|version| Some((version, of)))
}

fn write(key: &Bytes, record: WorkerRecord) -> ValueWrite {
    ValueWrite { key: key.clone(), value: Some(record.encode()) }
}

impl Committer {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut next: Option<Request> = None;
        loop {
            let first = match next.take() {
                Some(request) => Some(request),
                None => tokio::select! {
                    biased;
                    request = requests.recv() => match request {
                        Some(request) => Some(request),
                        None => return,
                    },
                    () = self.clock.sleep(self.until_renewal()) => None,
                },
            };
            let mut batch = Batch::default();
            next = first.and_then(|first| batch.add(first));
            next = next.or_else(|| batch.fill(&mut requests));
            if next.is_none() {
                next = batch.gather(&mut requests).await;
            }
            if next.is_none() {
                next = self.wait_for_others(&mut batch, &mut requests).await;
            }
            let is_of_clients = batch.requests.iter().any(|request| !request.may_wait);
            self.commit(batch.requests).await;
            if is_of_clients {
                self.expected_until = self.clock.monotonic() + EXPECTED;
            }
        }
    }

    /// Counts from when the last transaction was sent, as leases do: its answer may have taken long.
    fn until_renewal(&self) -> Duration {
        (self.sent + self.lease.renewal()).saturating_sub(self.clock.monotonic()).max(RETRY_MIN)
    }

    /// Waits a moment for writes that a client waits for, while there are none in the batch. Returns a request that
    /// does not fit.
    async fn wait_for_others(&self, batch: &mut Batch, requests: &mut mpsc::Receiver<Request>) -> Option<Request> {
        let begun = self.clock.monotonic();
        let until = self.expected_until.min(begun + SHARE_MAX);
        let mut next = None;
        while batch.may_wait() && next.is_none() {
            let left = until.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                break;
            }
            tokio::select! {
                biased;
                request = requests.recv() => next = batch.add(request?).or_else(|| batch.fill(requests)),
                () = self.clock.sleep(left) => {}
            }
        }
        next
    }

    /// One transaction; without requests it renews the lease.
    async fn commit(&mut self, batch: Vec<Request>) {
        if let Err(error) = self.lease.check_not_lost() {
            batch.into_iter().for_each(|request| answer(request, Err(copy(&error))));
            return;
        }
        let state = batch.last().map_or(WorkerState::Live, |request| request.state);
        let record = WorkerRecord { number: self.record.number + 1, state, ..self.record };
        let checks: Vec<_> = batch.iter().flat_map(|request| &request.checks).cloned().collect();
        let writes: Vec<_> = batch.iter().flat_map(|request| &request.writes).cloned().collect();
        self.sent = self.clock.monotonic();
        let mut result = self.transact(&checks, &writes, record, None).await;
        if let Outcome::Refused { is_in_doubt: true, error } = result {
            // Once another transaction is done in its place, it can't be any more.
            let instead = WorkerRecord { number: record.number + 1, ..self.record };
            result = match self.transact(&[], &[], instead, Some(record)).await {
                Outcome::Done { record: done, version, since } if done == instead => {
                    self.done(done, version, since);
                    Outcome::Refused { error, is_in_doubt: false }
                }
                other => other,
            };
        }
        let result = match result {
            Outcome::Done { record, version, since } => {
                self.done(record, version, since);
                Ok(version)
            }
            Outcome::Refused { error, .. } => Err(error),
            Outcome::TakenOver { is_in_doubt } => {
                let kind = if is_in_doubt { ErrorKind::Unknown } else { ErrorKind::Unavailable };
                let error = Error::new(kind, "another worker or process has taken over its record in the engine");
                tracing::error!(%error, "this worker has lost its slots until it starts again");
                self.lease.lose(&error.to_string());
                Err(error)
            }
        };
        batch.into_iter().for_each(|request| answer(request, result.as_ref().copied().map_err(copy)));
    }

    fn done(&mut self, record: WorkerRecord, version: u64, since: Duration) {
        (self.record, self.version) = (record, version);
        *self.position.lock() = Position { life: record.life, number: record.number, version };
        match record.state {
            WorkerState::Live => self.lease.renew(since),
            WorkerState::Left | WorkerState::Lost => self.lease.lose("it has left the cluster"),
        }
    }

    /// Retries until the outcome is known. `before` is another transaction in the same place, whose outcome is not
    /// known.
    async fn transact(
        &self,
        checks: &[Check],
        writes: &[ValueWrite],
        record: WorkerRecord,
        before: Option<WorkerRecord>,
    ) -> Outcome {
        let of_worker = Check { key: self.key.clone(), version: Some(self.version) };
        let checks: Vec<_> = [of_worker].into_iter().chain(checks.iter().cloned()).collect();
        let writes: Vec<_> = writes.iter().cloned().chain([write(&self.key, record)]).collect();
        let (begun, mut pause, mut is_in_doubt) = (self.lease.now(), RETRY_MIN, before.is_some());
        loop {
            let sent = self.lease.now();
            match self.engine.commit(&checks, &writes).await {
                Ok(version) => return Outcome::Done { record, version, since: sent },
                Err(error) if error.kind == ErrorKind::Conflict => match self.engine.get(&self.key).await {
                    Ok(Some(found)) if found.value == record.encode() => {
                        return Outcome::Done { record, version: found.version, since: begun };
                    }
                    Ok(Some(Versioned { value, version }))
                        if let Some(record) = before.filter(|before| value == before.encode()) =>
                    {
                        // It was sent before this one, and nobody knows when.
                        return Outcome::Done { record, version, since: Duration::ZERO };
                    }
                    Ok(Some(found)) if found.version == self.version => return Outcome::Refused { error, is_in_doubt },
                    Ok(_) => return Outcome::TakenOver { is_in_doubt },
                    Err(error) => tracing::debug!(%error, "the engine does not say whether a transaction was done"),
                },
                Err(error) if error.kind == ErrorKind::Busy && !is_in_doubt => {
                    return Outcome::Refused { error, is_in_doubt };
                }
                Err(error) => {
                    is_in_doubt |= error.kind == ErrorKind::Unknown;
                    tracing::debug!(%error, "a transaction is tried again");
                }
            }
            self.clock.sleep(pause).await;
            pause = (2 * pause).min(RETRY_MAX);
        }
    }
}

/// What is sent in one transaction.
#[derive(Default)]
struct Batch {
    requests: Vec<Request>,
    writes: usize,
    bytes: usize,
}

impl Batch {
    /// Returns a request that must wait for the next transaction.
    #[must_use]
    fn add(&mut self, request: Request) -> Option<Request> {
        let writes = request.writes.len();
        let bytes = request.writes.iter().map(|write| write.key.len() + write.value.as_ref().map_or(0, Bytes::len));
        let bytes: usize = bytes.sum();
        let fits = self.writes + writes < WRITES_MAX && self.bytes + bytes <= BYTES_MAX;
        if let Some(last) = self.requests.last()
            && (!fits || last.is_alone() || request.is_alone())
        {
            return Some(request);
        }
        (self.writes, self.bytes) = (self.writes + writes, self.bytes + bytes);
        self.requests.push(request);
        None
    }

    /// Adds what waits already. Returns a request that must wait for the next transaction.
    #[must_use]
    fn fill(&mut self, requests: &mut mpsc::Receiver<Request>) -> Option<Request> {
        while self.requests.last().is_some_and(|last| !last.is_alone())
            && let Ok(request) = requests.try_recv()
        {
            if let Some(next) = self.add(request) {
                return Some(next);
            }
        }
        None
    }

    /// Adds what is about to come: one sync of a log ends the first half of many commits, and these come here one after
    /// the other. Returns a request that must wait for the next transaction.
    #[must_use]
    async fn gather(&mut self, requests: &mut mpsc::Receiver<Request>) -> Option<Request> {
        while !self.requests.is_empty() {
            let before = self.requests.len();
            tokio::task::yield_now().await;
            let next = self.fill(requests);
            if next.is_some() || self.requests.len() == before {
                return next;
            }
        }
        None
    }

    /// Whether no client waits for any of it.
    fn may_wait(&self) -> bool {
        !self.requests.is_empty() && self.requests.iter().all(|request| request.may_wait)
    }
}

impl Request {
    /// One with checks fails alone, and nothing follows the last.
    fn is_alone(&self) -> bool {
        !self.checks.is_empty() || self.state != WorkerState::Live
    }
}

fn answer(request: Request, result: Result<u64>) {
    // A committer that has gone away leaves its writes done.
    let _ = request.done.send(result);
}

/// For each who waits.
fn copy(error: &Error) -> Error {
    Error::new(error.kind, error.context.clone())
}

#[cfg(test)]
mod tests;
