//! The steps of a job's life. Each of them is recorded in the catalog: created, running, ended, removed.

use std::collections::BTreeMap;

use forebay_catalog::{TRANSACTION_MAX, Transaction, records};
use forebay_store::ValueWrite;
use forebay_types::shares::is_fair;

use super::table::{Entry, FINDINGS_MAX, FINDINGS_OF_SHARE_MAX, StoredJob};
use super::{Job, JobFinding, JobProgress, JobRequest, JobState};
use crate::metrics::JobLabels;
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};

/// The most jobs that wait for their turn or for an under store. This is more than an operator needs. A script that
/// loops gets `SlowDown`, and leaves some for others.
const JOBS_WAITING_MAX: usize = 100;

/// Findings that one transaction stores.
const FINDINGS_BATCH: usize = TRANSACTION_MAX - 1;

/// Records that one transaction removes.
const REMOVE_BATCH: usize = TRANSACTION_MAX;

fn job_write(stored: &StoredJob) -> ValueWrite {
    ValueWrite { key: records::job_key(&stored.job.id), value: Some(records::encode_json(stored)) }
}

/// Whether one more job may wait when `waiting` jobs already do, `of_one` of them requested by the same user.
///
/// # Errors
/// `SlowDown`.
pub(super) fn may_wait(waiting: usize, of_one: usize, created_by: &str) -> Result<()> {
    let left = JOBS_WAITING_MAX.saturating_sub(waiting) as u64;
    if left == 0 || !is_fair(of_one as u64, left - 1) {
        let problem = format!(
            "{waiting} jobs are queued, {of_one} of them by {created_by}: wait, or cancel some (`forebay jobs cancel`)"
        );
        return Err(Error::new(ErrorKind::SlowDown, problem));
    }
    Ok(())
}

/// The error of a wait for a job.
pub(super) fn stops_first(id: &str) -> Error {
    let problem =
        format!("this worker stops, and the job {id} has not ended: it continues, after a start at the latest");
    Error::new(ErrorKind::Unavailable, problem)
}

impl Worker {
    pub(super) async fn create_job(&self, request: JobRequest, created_by: String) -> Result<Job> {
        if let Some(sharing) = self.sharing() {
            return self.create_cluster_job(sharing, request, created_by).await;
        }
        let _creating = self.jobs.creating.lock().await;
        let (waiting, of_one) = self.jobs.count_waiting(&created_by);
        may_wait(waiting, of_one, &created_by)?;
        let job = Job {
            id: format!("{:016x}", self.next_generation().0),
            request,
            state: JobState::Queued,
            created_by,
            created_ms: self.env.clock.unix_ms(),
            started_ms: None,
            ended_ms: None,
            progress: JobProgress::default(),
            findings: 0,
            error: None,
        };
        let writes = vec![job_write(&StoredJob { job: job.clone(), pass: None, findings_dropped: false })];
        self.catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
        self.jobs.entries.lock().insert(job.id.clone(), Entry::new(job.clone()));
        self.jobs.observe(&self.metrics);
        self.jobs.wake.notify_one();
        Ok(job)
    }

    /// Makes the job's progress durable, with its findings until then. Findings go first: the next run overwrites those
    /// beyond the number in the job's record.
    pub(super) async fn save_job(&self, entry: &Entry) -> Result<()> {
        loop {
            let (stored, found) = {
                let state = entry.state.lock();
                let found = state.unsaved.range(..state.checkpoint.findings).take(FINDINGS_BATCH);
                let found: Vec<_> = found.map(|(number, finding)| (*number, finding.clone())).collect();
                let (job, pass, findings_dropped) = (&state.checkpoint, &state.pass, state.findings_dropped);
                (StoredJob { job: job.clone(), pass: pass.clone(), findings_dropped }, found)
            };
            let is_last = found.len() < FINDINGS_BATCH;
            let finding_write = |(number, finding): &(u64, JobFinding)| ValueWrite {
                key: records::job_finding_key(&stored.job.id, *number),
                value: Some(records::encode_json(finding)),
            };
            let writes = found.iter().map(finding_write).chain(is_last.then(|| job_write(&stored))).collect();
            self.catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
            let mut state = entry.state.lock();
            for (number, _) in found {
                state.unsaved.remove(&number);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// After slots were lost: if they come back, a restart must not take them for covered.
    pub(crate) async fn save_shares(&self) {
        for entry in self.jobs.open_shares() {
            if let Err(error) = self.save_job(&entry).await {
                tracing::debug!(%error, "the progress of a job could not be stored");
            }
        }
    }

    /// Ends a job. The end is visible even if it cannot be made durable; the next start then repeats it.
    pub(super) async fn end_job(&self, entry: &Entry, ended: JobState, error: Option<String>) {
        let kind = {
            let mut state = entry.state.lock();
            state.job.state = ended;
            state.job.ended_ms = Some(self.env.clock.unix_ms());
            state.job.error = error;
            state.checkpoint = state.job.clone();
            state.job.request.kind
        };
        // Another job of the same user may run now, even if what follows fails.
        self.jobs.wake.notify_one();
        if let Err(error) = self.save_job(entry).await {
            tracing::warn!(%error, "the end of a job could not be recorded: it runs again after a restart");
        }
        self.metrics.jobs_ended.get_or_create(&JobLabels { kind: kind.as_str(), state: ended.as_str() }).inc();
        entry.over.cancel();
        self.jobs.look();
        self.jobs.observe(&self.metrics);
        // Shares go when their jobs do.
        let surplus = if self.sharing().is_none() { self.jobs.surplus() } else { Vec::new() };
        for id in surplus {
            if let Err(error) = self.remove_job(&id).await {
                tracing::warn!(%error, id, "an old job could not be removed");
            }
        }
        for id in self.jobs.surplus_findings(self.findings_max()) {
            if let Err(error) = self.drop_findings(&id).await {
                tracing::warn!(%error, id, "the findings of an old job could not be removed");
            }
        }
    }

    /// Drops what an ended job has found, which it still counts. The job is noted last, so that after a crash this is
    /// repeated.
    async fn drop_findings(&self, id: &str) -> Result<()> {
        let Ok(entry) = self.jobs.find(id) else { return Ok(()) };
        {
            let mut state = entry.state.lock();
            state.findings_dropped = true;
            state.unsaved.clear();
        }
        self.remove_findings(id).await?;
        self.save_job(&entry).await
    }

    /// The job itself goes last, so that after a crash the removal is repeated.
    pub(super) async fn remove_job(&self, id: &str) -> Result<()> {
        self.remove_findings(id).await?;
        let writes = vec![ValueWrite { key: records::job_key(id), value: None }];
        self.catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
        self.jobs.entries.lock().remove(id);
        Ok(())
    }

    async fn remove_findings(&self, id: &str) -> Result<()> {
        let (from, to) = records::job_findings_range(id);
        loop {
            let found = self.catalog.scan(&from, &to, REMOVE_BATCH).await?;
            if found.is_empty() {
                return Ok(());
            }
            let writes = found.into_iter().map(|(key, _)| ValueWrite { key, value: None }).collect();
            self.catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
        }
    }

    pub(super) async fn cancel_job(&self, id: &str) -> Result<Job> {
        if self.sharing().is_some() {
            return self.cancel_cluster_job(id).await;
        }
        let entry = self.jobs.find(id)?;
        if self.jobs.take_off_queue(&entry) {
            self.end_job(&entry, JobState::Cancelled, None).await;
            return Ok(entry.job());
        }
        entry.cancel.cancel();
        tokio::select! {
            biased;
            () = entry.over.cancelled() => {}
            () = self.stop.cancelled() => {}
        }
        Ok(entry.job())
    }

    /// # Errors
    /// `NotFound`.
    pub(super) async fn show_job(&self, id: &str) -> Result<Job> {
        match self.sharing() {
            Some(sharing) => self.show_cluster_job(&sharing, id).await,
            None => self.jobs.show(id),
        }
    }

    /// # Errors
    /// As [`crate::Cache::wait_for_job`].
    pub(super) async fn wait_for_job(&self, id: &str) -> Result<Job> {
        if self.sharing().is_some() {
            return self.wait_for_cluster_job(id).await;
        }
        let entry = self.jobs.find(id)?;
        tokio::select! {
            biased;
            () = entry.over.cancelled() => Ok(entry.job()),
            () = self.stop.cancelled() => Err(stops_first(id)),
        }
    }

    pub(super) async fn show_jobs(&self) -> Result<Vec<Job>> {
        match self.sharing() {
            Some(sharing) => self.show_cluster_jobs(&sharing).await,
            None => Ok(self.jobs.show_all()),
        }
    }

    /// How many findings of a job this worker keeps.
    pub(super) fn findings_max(&self) -> u64 {
        if self.sharing().is_some() { FINDINGS_OF_SHARE_MAX } else { FINDINGS_MAX }
    }

    pub(super) async fn job_findings(&self, id: &str, after: u64, limit: usize) -> Result<Vec<JobFinding>> {
        match self.sharing() {
            Some(sharing) => self.cluster_findings(&sharing, id, after, limit).await,
            None => self.own_findings(id, after, limit).await,
        }
    }

    pub(super) async fn own_findings(&self, id: &str, after: u64, limit: usize) -> Result<Vec<JobFinding>> {
        let entry = self.jobs.find(id)?;
        // Read before the catalog: findings that are saved in between are then in both.
        let mut found: BTreeMap<u64, JobFinding> = {
            let state = entry.state.lock();
            if state.findings_dropped {
                return Ok(Vec::new());
            }
            state.unsaved.clone()
        };
        let (_, to) = records::job_findings_range(id);
        for (key, value) in self.catalog.scan(&records::job_finding_key(id, after), &to, limit).await? {
            let Some(number) = records::parse_job_finding_key(&key) else { continue };
            found.insert(number, records::decode_json("finding", &value.value)?);
        }
        Ok(found.into_iter().filter(|(number, _)| *number >= after).take(limit).map(|(_, finding)| finding).collect())
    }
}
