//! How workers are taken out of the cluster.
//!
//! A record says that a worker is draining, or removed. It names the life of the worker's process, so it says nothing
//! of a later start. The worker's own record stays when it is removed: transactions of the worker that are still in
//! flight check its version, and the latest write time of all workers is found by it. What the worker has noted of jobs
//! goes: nobody else would ever delete it.

use std::fmt;
use std::time::Duration;

use forebay_catalog::{Check, Error, ErrorKind, TRANSACTION_MAX};
use forebay_store::ValueWrite;

use crate::layout::{self, WorkerId, leaving_key, scan_all, worker_key};
use crate::leaving_record::{Leaving, LeavingRecord};
use crate::ownership::{Members, Ownership, Seen, end};
use crate::view::MemberState;
use crate::worker_record::{WorkerRecord, WorkerState};

/// Tries, when the workers that are looked at change meanwhile.
const TRIES: usize = 10;

/// A worker that stops deletes its notes for no longer than this, so that there is time to say that it has stopped.
/// Another worker deletes the rest when an operator removes this one.
const FORGET_MAX: Duration = Duration::from_secs(3);

/// Why a worker is not taken out.
#[derive(Debug)]
pub enum LeavingError {
    NoSuchWorker(WorkerId),
    /// It was removed, or has gone when it was drained.
    Gone(WorkerId),
    /// It can't be drained: it has stopped, or its lease is over.
    IsDead(WorkerId),
    /// It can't be drained: no other worker would get its slots.
    IsLast(WorkerId),
    /// It can't be removed: it lives.
    Lives(WorkerId),
    Engine(Error),
}

pub type LeavingResult = Result<(), LeavingError>;

impl fmt::Display for LeavingError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchWorker(worker) => write!(formatter, "the cluster has no worker {worker}"),
            Self::Gone(worker) => write!(formatter, "worker {worker} is gone already: it was drained or removed"),
            Self::IsDead(worker) => write!(
                formatter,
                "worker {worker} does not run: start it to drain it, or remove it if it will never come back"
            ),
            Self::IsLast(worker) => {
                write!(
                    formatter,
                    "no other worker would take over from {worker}: all others are draining or do not run"
                )
            }
            Self::Lives(worker) => write!(formatter, "worker {worker} runs: drain it instead"),
            Self::Engine(error) => write!(formatter, "the engine of the cluster: {error}"),
        }
    }
}

impl std::error::Error for LeavingError {}

impl From<Error> for LeavingError {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl Ownership<'_> {
    /// See [`crate::HomeCatalog::drain`].
    pub(crate) async fn drain(&self, worker: &WorkerId) -> LeavingResult {
        for _ in 1..TRIES {
            match self.try_to_drain(worker).await {
                Err(LeavingError::Engine(error)) if error.kind == ErrorKind::Conflict => {}
                result => return result,
            }
        }
        self.try_to_drain(worker).await
    }

    /// See [`crate::HomeCatalog::remove`].
    pub(crate) async fn remove(&self, worker: &WorkerId) -> LeavingResult {
        for _ in 1..TRIES {
            match self.try_to_remove(worker).await {
                Err(LeavingError::Engine(error)) if error.kind == ErrorKind::Conflict => {}
                result => return result,
            }
        }
        self.try_to_remove(worker).await
    }

    /// See [`crate::HomeCatalog::retire`].
    pub(crate) async fn retire(&self) -> LeavingResult {
        let seen = Seen::read(self.engine).await?;
        let record = self.record(&seen, self.worker)?.0;
        Ok(self.stream.commit(vec![mark(self.worker, record, Leaving::Removed)]).await?)
    }

    /// See [`crate::HomeCatalog::leave`].
    pub(crate) async fn leave(&self) -> forebay_catalog::Result<()> {
        let forgotten = tokio::select! {
            biased;
            forgotten = self.forget_jobs_if_retired() => forgotten,
            () = self.env.clock.sleep(FORGET_MAX) => Err(Error::new(ErrorKind::Unavailable, "it takes too long")),
        };
        if let Err(error) = forgotten {
            tracing::debug!(%error, "what this worker has noted of jobs stays in the engine");
        }
        self.stream.leave().await
    }

    async fn forget_jobs_if_retired(&self) -> forebay_catalog::Result<()> {
        let Some(found) = self.engine.get(&leaving_key(self.worker)).await? else { return Ok(()) };
        let retired = LeavingRecord { life: self.stream.position().life, state: Leaving::Removed };
        match LeavingRecord::decode(self.worker, &found.value)? == retired {
            true => self.forget_jobs(self.worker, &[]).await,
            false => Ok(()),
        }
    }

    /// Deletes what a worker has noted of jobs, while the checks hold.
    async fn forget_jobs(&self, worker: &WorkerId, checks: &[Check]) -> forebay_catalog::Result<()> {
        for prefix in layout::job_prefixes(worker) {
            for found in scan_all(self.engine, &prefix).await?.chunks(TRANSACTION_MAX) {
                let writes = found.iter().map(|(key, _)| ValueWrite { key: key.clone(), value: None }).collect();
                self.stream.commit_checked(checks.to_vec(), writes).await?;
            }
        }
        Ok(())
    }

    /// Removes what is left of an earlier life.
    ///
    /// # Errors
    /// Whatever the engine answers.
    pub(crate) async fn forget_earlier_life(&self, life: u64) -> forebay_catalog::Result<()> {
        let key = leaving_key(self.worker);
        let Some(found) = self.engine.get(&key).await? else { return Ok(()) };
        if LeavingRecord::decode(self.worker, &found.value)?.life == life {
            return Ok(());
        }
        let check = Check { key: key.clone(), version: Some(found.version) };
        match self.stream.commit_checked(vec![check], vec![ValueWrite { key, value: None }]).await {
            // Somebody drains this life by now.
            Err(error) if error.kind == ErrorKind::Conflict => Ok(()),
            other => other.map(drop),
        }
    }

    async fn try_to_drain(&self, worker: &WorkerId) -> LeavingResult {
        let seen = Seen::read(self.engine).await?;
        let record = self.record(&seen, worker)?.0;
        let Members { members, removed } = self.members(&seen).await?;
        if removed.contains(worker) {
            return Err(LeavingError::Gone(worker.clone()));
        }
        match members[worker].state {
            MemberState::Live => {}
            MemberState::Draining | MemberState::Drained => return Ok(()),
            MemberState::Left | MemberState::Lost => return Err(LeavingError::IsDead(worker.clone())),
        }
        let mut others = members.iter().filter(|(other, _)| *other != worker);
        let staying = others.find(|(_, member)| member.state == MemberState::Live);
        let Some((staying, _)) = staying else { return Err(LeavingError::IsLast(worker.clone())) };
        // It is not drained at the same time.
        let check = Check { key: leaving_key(staying), version: seen.leaving_versions.get(staying).copied() };
        self.stream.commit_checked(vec![check], vec![mark(worker, record, Leaving::Draining)]).await?;
        tracing::info!(%worker, "a worker is draining");
        Ok(())
    }

    async fn try_to_remove(&self, worker: &WorkerId) -> LeavingResult {
        let seen = Seen::read(self.engine).await?;
        let (record, version) = self.record(&seen, worker)?;
        let Members { members, removed } = self.members(&seen).await?;
        if removed.contains(worker) {
            // One that was drained may have been killed, or had too little time.
            self.forget_jobs(worker, &[Check { key: worker_key(worker), version: Some(version) }]).await?;
            return Err(LeavingError::Gone(worker.clone()));
        }
        if members[worker].state.lives() {
            return Err(LeavingError::Lives(worker.clone()));
        }
        let version = match record.state {
            WorkerState::Live => end(self.stream, worker, record, version).await?,
            WorkerState::Left | WorkerState::Lost => version,
        };
        // A new start of the worker would write its record.
        let check = Check { key: worker_key(worker), version: Some(version) };
        self.forget_jobs(worker, std::slice::from_ref(&check)).await?;
        let no_address = ValueWrite { key: layout::member_key(worker), value: None };
        let writes = vec![mark(worker, record, Leaving::Removed), no_address];
        self.stream.commit_checked(vec![check], writes).await?;
        tracing::warn!(%worker, "a worker was removed: what only it had is missing");
        Ok(())
    }

    fn record(&self, seen: &Seen, worker: &WorkerId) -> Result<(WorkerRecord, u64), LeavingError> {
        seen.workers.get(worker).copied().ok_or_else(|| LeavingError::NoSuchWorker(worker.clone()))
    }
}

fn mark(worker: &WorkerId, record: WorkerRecord, state: Leaving) -> ValueWrite {
    let record = LeavingRecord { life: record.life, state };
    ValueWrite { key: leaving_key(worker), value: Some(record.encode()) }
}

#[cfg(test)]
mod tests;
