//! Jobs of a cluster: this worker's shares of them, and what it asks the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::{Check, SlotSet, Transaction, records};
use forebay_store::ValueWrite;
use futures::future::join_all;
use serde::{Deserialize, Serialize};

use super::cluster_job::{ClusterJob, Share, ShareReport};
use super::lifecycle::{may_wait, stops_first};
use super::table::{Ended, Entry, JOBS_ENDED_MAX, Pass, superfluous};
use super::{Job, JobFinding, JobKind, JobRequest, JobState};
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};

/// How often a worker looks for something to do. Changes of jobs wake it earlier; this is for workers that have died.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How often a change of a job is tried when other workers change it at the same time.
const TRIES_MAX: usize = 100;

/// Pause before the engine is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How often somebody who waits for the end of a job looks at it. A look asks nobody.
const WAIT_PAUSE: Duration = Duration::from_millis(100);

/// How long a cancellation waits for the shares of others, and how often it asks.
const CANCEL_MAX: Duration = Duration::from_secs(10);
const CANCEL_PAUSE: Duration = Duration::from_millis(100);

/// Findings of one worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareFindings {
    /// How many the worker keeps.
    pub(super) kept: u64,
    pub(super) findings: Vec<JobFinding>,
}

/// This worker among those that share jobs.
pub(super) struct Sharing<'a> {
    worker: &'a str,
    /// The slots that are at home here, or will be.
    slots: SlotSet,
}

impl Worker {
    /// `None` when this worker is alone: its jobs are its own.
    pub(super) fn sharing(&self) -> Option<Sharing<'_>> {
        let (worker, slots) = (self.catalog.worker()?, self.catalog.slots()?);
        Some(Sharing { worker, slots })
    }

    /// `None` as long as the others are not known, after a start.
    fn living(&self, own: &str) -> Option<BTreeSet<String>> {
        let others = match &self.others {
            Some(others) if !others.are_known() => return None,
            Some(others) => others.workers(),
            None => Vec::new(),
        };
        Some(others.into_iter().chain([own.to_owned()]).collect())
    }

    pub(super) async fn cluster_jobs(&self) -> Result<BTreeMap<String, ClusterJob>> {
        let (from, to) = records::all_cluster_jobs_range();
        let mut jobs = BTreeMap::new();
        for (key, found) in self.catalog.scan(&from, &to, usize::MAX).await? {
            let Some(id) = records::parse_cluster_job_key(&key) else { continue };
            match records::decode_json("job", &found.value) {
                Ok(job) => drop(jobs.insert(id.to_owned(), job)),
                // Another release may know what to do with it. This is looked at again and again.
                Err(error) => tracing::debug!(id, %error, "the record of a job can't be read"),
            }
        }
        Ok(jobs)
    }

    /// A job, and the version of its record. Another worker may have created it a moment ago.
    ///
    /// # Errors
    /// `NotFound`; whatever the catalog answers.
    async fn cluster_job(&self, id: &str) -> Result<(ClusterJob, u64)> {
        let key = records::cluster_job_key(id);
        let mut found = self.catalog.get(&key).await?;
        if found.is_none() {
            self.follow_shared().await?;
            found = self.catalog.get(&key).await?;
        }
        let found = found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no job {id:?}")))?;
        Ok((records::decode_json("job", &found.value)?, found.version))
    }

    pub(super) async fn create_cluster_job(
        &self,
        sharing: Sharing<'_>,
        request: JobRequest,
        created_by: String,
    ) -> Result<Job> {
        let _creating = self.jobs.creating.lock().await;
        let id = format!("{:016x}", self.next_generation().0);
        let job = ClusterJob::new(request, created_by, self.env.clock.unix_ms(), SlotSet::none(sharing.slots.count()));
        for _ in 0..TRIES_MAX {
            // What is counted below is what the engine has.
            let shared_changes = Some(self.catalog.shared_changes());
            let jobs = self.cluster_jobs().await?;
            let waiting: Vec<_> = jobs.values().filter(|job| !job.state.has_ended()).collect();
            let of_one = waiting.iter().filter(|other| other.created_by == job.created_by).count();
            may_wait(waiting.len(), of_one, &job.created_by)?;
            let key = records::cluster_job_key(&id);
            let checks = vec![Check { key: key.clone(), version: None }];
            let writes = vec![ValueWrite { key, value: Some(records::encode_json(&job)) }];
            match self.catalog.commit(Transaction { checks, writes, shared_changes, ..Transaction::default() }).await {
                Ok(_) => {
                    self.jobs.look();
                    return Ok(job.show(&id, &BTreeMap::new()));
                }
                // Another worker has changed something, and the catalog shows it by now.
                Err(error) if error.kind == forebay_catalog::ErrorKind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(too_fast(&id))
    }

    /// Changes a job unless it has ended. Returns how it is then.
    async fn change_cluster_job(&self, id: &str, change: impl Fn(&mut ClusterJob)) -> Result<ClusterJob> {
        self.change_any_cluster_job(id, |job| {
            let is_open = !job.state.has_ended();
            if is_open {
                change(job);
            }
            is_open
        })
        .await
    }

    /// Changes a job, unless `change` says that there is nothing to change. Returns how it is then.
    async fn change_any_cluster_job(&self, id: &str, change: impl Fn(&mut ClusterJob) -> bool) -> Result<ClusterJob> {
        let key = records::cluster_job_key(id);
        for _ in 0..TRIES_MAX {
            let (mut job, version) = self.cluster_job(id).await?;
            if !change(&mut job) {
                return Ok(job);
            }
            let checks = vec![Check { key: key.clone(), version: Some(version) }];
            let writes = vec![ValueWrite { key: key.clone(), value: Some(records::encode_json(&job)) }];
            match self.catalog.commit(Transaction { checks, writes, ..Transaction::default() }).await {
                Ok(_) => {
                    self.jobs.look();
                    return Ok(job);
                }
                // Another worker was quicker, and the catalog shows its change by now.
                Err(error) if error.kind == forebay_catalog::ErrorKind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(too_fast(id))
    }

    /// One of the tasks of a worker that shares jobs; ends when the worker stops.
    pub(crate) async fn shares_loop(self: Arc<Self>) {
        let mut is_idle = false;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.jobs.shared.notified() => {}
                () = self.env.clock.sleep(LOOK_INTERVAL), if !is_idle => {}
            }
            is_idle = match self.look_at_shares().await {
                Ok(has_work) => !has_work,
                Err(error) => {
                    tracing::debug!(%error, "the jobs of the cluster could not be looked at");
                    false
                }
            };
        }
    }

    /// Begins passes that are needed, and ends shares of jobs that have ended. Returns whether some job has not ended.
    pub(super) async fn look_at_shares(&self) -> Result<bool> {
        let Some(sharing) = self.sharing() else { return Ok(false) };
        if self.is_cut_off() {
            return Ok(true);
        }
        let _looking = self.jobs.looking.lock().await;
        self.uncover_gained(&sharing).await?;
        let jobs = self.cluster_jobs().await?;
        let living = self.living(sharing.worker);
        for (id, job) in &jobs {
            if job.state.has_ended() {
                self.stop_share(id).await;
            } else if job.is_complete(living.as_ref()) {
                self.note_complete(id, living.as_ref()).await?;
            } else {
                self.begin_pass(id, &sharing).await?;
            }
        }
        for id in self.jobs.ids().into_iter().filter(|id| !jobs.contains_key(id)) {
            self.stop_share(&id).await;
            if self.jobs.find(&id).is_ok_and(|entry| entry.over.is_cancelled()) {
                self.remove_job(&id).await?;
            }
        }
        Ok(jobs.values().any(|job| !job.state.has_ended()))
    }

    /// See [`ClusterJob::uncover`].
    async fn uncover_gained(&self, sharing: &Sharing<'_>) -> Result<()> {
        let Some(gained) = self.jobs.take_gained() else { return Ok(()) };
        let result = async {
            for (id, job) in self.cluster_jobs().await? {
                if !job.state.has_ended() && matches!(job.request.kind, JobKind::Load | JobKind::Free) {
                    self.change_any_cluster_job(&id, |job| job.uncover(sharing.worker, &gained)).await?;
                }
            }
            Ok(())
        };
        let result = result.await;
        if result.is_err() {
            self.jobs.gain(&gained);
        }
        result
    }

    async fn begin_pass(&self, id: &str, sharing: &Sharing<'_>) -> Result<()> {
        if self.jobs.find(id).is_ok_and(|entry| !entry.over.is_cancelled()) {
            return Ok(());
        }
        // Only now: it says what the passes have done that have ended until here.
        let (job, _) = self.cluster_job(id).await?;
        let before = job.shares.get(sharing.worker).cloned().unwrap_or_default();
        let share = Job {
            id: id.to_owned(),
            request: job.request.clone(),
            state: JobState::Queued,
            created_by: job.created_by.clone(),
            created_ms: job.created_ms,
            started_ms: before.started_ms,
            ended_ms: None,
            progress: before.progress.clone(),
            findings: before.findings,
            error: None,
        };
        {
            let mut entries = self.jobs.entries.lock();
            // Under this lock: slots whose locks are closed later are taken off by `Jobs::lose`.
            let at_home = self.home.locks.open_of(&sharing.slots);
            let Some(slots) = job.left_for(sharing.worker, &at_home) else { return Ok(()) };
            let findings_dropped = entries.get(id).is_some_and(|entry| entry.state.lock().findings_dropped);
            entries.insert(id.to_owned(), Entry::of_share(share, Pass { slots, before }, findings_dropped));
        }
        self.jobs.observe(&self.metrics);
        self.jobs.wake.notify_one();
        Ok(())
    }

    /// Ends this worker's share, if there is one, without waiting for work in flight.
    async fn stop_share(&self, id: &str) {
        let Ok(entry) = self.jobs.find(id) else { return };
        if self.jobs.take_off_queue(&entry) {
            self.end_job(&entry, JobState::Cancelled, None).await;
        } else {
            entry.cancel.cancel();
        }
    }

    async fn note_complete(&self, id: &str, living: Option<&BTreeSet<String>>) -> Result<()> {
        let now = self.env.clock.unix_ms();
        self.change_cluster_job(id, |job| job.end_if_complete(living, now)).await?;
        self.remove_surplus().await
    }

    /// Removes the ended jobs beyond those that are kept.
    async fn remove_surplus(&self) -> Result<()> {
        let jobs = self.cluster_jobs().await?.into_iter().filter(|(_, job)| job.state.has_ended());
        let ended = jobs.map(|(id, job)| Ended {
            id,
            created_by: job.created_by,
            ended_ms: job.ended_ms.unwrap_or(0),
            weight: 1,
        });
        for id in superfluous(ended.collect(), JOBS_ENDED_MAX) {
            let writes = vec![ValueWrite { key: records::cluster_job_key(&id), value: None }];
            self.catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
        }
        Ok(())
    }

    /// Notes the end of a pass in the job, when the engine takes it. Before that, the pass is not done. `error`: the
    /// job fails when all have done their shares. Returns whether the pass need not be done again.
    pub(super) async fn end_pass(&self, entry: &Entry, error: Option<String>) -> bool {
        let now = self.env.clock.unix_ms();
        loop {
            // Slots that are gained from here on are uncovered when the pass is noted.
            let looking = self.jobs.looking.lock().await;
            let Some(sharing) = self.sharing() else { return true };
            let mut gained = self.home.locks.open_of(&sharing.slots);
            let (id, slots, share) = {
                let state = entry.state.lock();
                let Some(pass) = &state.pass else { return true };
                let mut share = pass.ended(&state.job);
                gained.take_off(&pass.slots);
                // See `ClusterJob::uncover`: a pass that began before a gain does not count, either.
                if state.job.request.kind == JobKind::Free && !gained.is_empty() {
                    share.passes = pass.before.passes;
                }
                (state.job.id.clone(), pass.slots.clone(), share)
            };
            let living = self.living(sharing.worker);
            let end = |job: &mut ClusterJob| {
                job.covered.add(&slots);
                job.shares.insert(sharing.worker.to_owned(), share.clone());
                if let (None, Some(error)) = (&job.error, &error) {
                    job.error = Some(format!("worker {}: {error}", sharing.worker));
                }
                job.end_if_complete(living.as_ref(), now);
            };
            let result = match self.change_cluster_job(&id, end).await {
                Ok(job) if job.state.has_ended() => self.remove_surplus().await,
                result => result.map(drop),
            };
            drop(looking);
            match result {
                Err(error) if error.kind != ErrorKind::NotFound => {
                    tracing::warn!(id, %error, "the end of this worker's share of a job could not be recorded: retrying");
                }
                Ok(()) | Err(_) => return true,
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                () = entry.cancel.cancelled() => return true,
                () = self.env.clock.sleep(RETRY_PAUSE) => {}
            }
        }
    }

    /// Fails the job: the others do no more for it, either.
    pub(super) async fn fail_cluster_job(&self, entry: &Entry, why: &str) {
        let Some(sharing) = self.sharing() else { return };
        let (id, share) = {
            let state = entry.state.lock();
            let share = state.pass.as_ref().map(|pass| Share { passes: pass.before.passes, ..pass.ended(&state.job) });
            (state.job.id.clone(), share.unwrap_or_default())
        };
        let now = self.env.clock.unix_ms();
        let fail = |job: &mut ClusterJob| {
            job.shares.insert(sharing.worker.to_owned(), share.clone());
            job.end(JobState::Failed, now, Some(format!("worker {}: {why}", sharing.worker)));
        };
        if let Err(error) = self.change_cluster_job(&id, fail).await {
            // The share begins again.
            tracing::warn!(id, %error, "the end of a job could not be recorded: this worker's share of it begins again");
        }
    }

    /// Notes in a job that has ended what this worker had done for it until then.
    pub(super) async fn note_stopped_share(&self, entry: &Entry) {
        let Some(sharing) = self.sharing() else { return };
        let (id, share) = {
            let state = entry.state.lock();
            let Some(pass) = &state.pass else { return };
            (state.job.id.clone(), Share { passes: pass.before.passes, ..pass.ended(&state.job) })
        };
        let note = |job: &mut ClusterJob| {
            let is_newer = job.shares.get(sharing.worker).is_none_or(|noted| noted.passes <= share.passes);
            if is_newer {
                job.shares.insert(sharing.worker.to_owned(), share.clone());
            }
            is_newer
        };
        if let Err(error) = self.change_any_cluster_job(&id, note).await
            && error.kind != ErrorKind::NotFound
        {
            tracing::warn!(id, %error, "what was done for a job that has ended could not be noted");
        }
    }

    pub(super) async fn cancel_cluster_job(&self, id: &str) -> Result<Job> {
        let now = self.env.clock.unix_ms();
        {
            // No pass begins in between.
            let _looking = self.jobs.looking.lock().await;
            self.change_cluster_job(id, |job| job.end(JobState::Cancelled, now, None)).await?;
            self.stop_share(id).await;
        }
        if let Ok(entry) = self.jobs.find(id) {
            tokio::select! {
                biased;
                () = entry.over.cancelled() => {}
                () = self.stop.cancelled() => {}
            }
        }
        let until = self.env.clock.monotonic() + CANCEL_MAX;
        while self.env.clock.monotonic() < until && !self.stop.is_cancelled() {
            let reports = self.reports_of_others().await;
            let has_ended =
                |of: &Option<Vec<ShareReport>>| of.as_ref().is_some_and(|of| of.iter().all(|one| one.id != id));
            if reports.values().all(has_ended) {
                break;
            }
            self.env.clock.sleep(CANCEL_PAUSE).await;
        }
        Ok(self.cluster_job(id).await?.0.show(id, &BTreeMap::new()))
    }

    /// Shares that have begun here and not ended, by the jobs as they are now.
    pub(crate) async fn share_reports(&self) -> Result<Vec<ShareReport>> {
        self.follow_shared().await?;
        self.look_at_shares().await?;
        Ok(self.jobs.reports())
    }

    /// By worker. `None` for those that do not answer.
    async fn reports_of_others(&self) -> BTreeMap<String, Option<Vec<ShareReport>>> {
        let Some(others) = &self.others else { return BTreeMap::new() };
        let ask = |worker: String| async move {
            let reports = others.job_shares(&worker).await.ok();
            (worker, reports)
        };
        join_all(others.workers().into_iter().map(ask)).await.into_iter().collect()
    }

    /// The newest first. All workers are asked, unless all jobs have ended.
    pub(super) async fn show_cluster_jobs(&self, sharing: &Sharing<'_>) -> Result<Vec<Job>> {
        if let Err(error) = self.follow_shared().await {
            tracing::debug!(%error, "the jobs are shown as they were last heard of");
        }
        let mut jobs = self.cluster_jobs().await?;
        let mut reports: BTreeMap<String, BTreeMap<String, ShareReport>> = BTreeMap::new();
        if jobs.values().any(|job| !job.state.has_ended()) {
            let mut told = self.reports_of_others().await;
            told.insert(sharing.worker.to_owned(), Some(self.jobs.reports()));
            for (worker, of) in told {
                for report in of.into_iter().flatten() {
                    reports.entry(report.id.clone()).or_default().insert(worker.clone(), report);
                }
            }
            // A share may have ended meanwhile: then the job says what it did.
            self.follow_shared().await?;
            jobs = self.cluster_jobs().await?;
        }
        let none = BTreeMap::new();
        let mut shown: Vec<_> = jobs.iter().map(|(id, job)| job.show(id, reports.get(id).unwrap_or(&none))).collect();
        shown.sort_by(|one, other| (other.created_ms, &other.id).cmp(&(one.created_ms, &one.id)));
        Ok(shown)
    }

    /// # Errors
    /// `NotFound`.
    pub(super) async fn show_cluster_job(&self, sharing: &Sharing<'_>, id: &str) -> Result<Job> {
        let (job, _) = self.cluster_job(id).await?;
        if job.state.has_ended() {
            return Ok(job.show(id, &BTreeMap::new()));
        }
        let found = self.show_cluster_jobs(sharing).await?.into_iter().find(|job| job.id == id);
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no job {id:?}")))
    }

    /// # Errors
    /// As [`crate::Cache::wait_for_job`].
    pub(super) async fn wait_for_cluster_job(&self, id: &str) -> Result<Job> {
        loop {
            let (job, _) = self.cluster_job(id).await?;
            if job.state.has_ended() {
                return Ok(job.show(id, &BTreeMap::new()));
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(stops_first(id)),
                () = self.env.clock.sleep(WAIT_PAUSE) => {}
            }
        }
    }

    /// What this worker has found: `after` and `limit` count its own findings.
    pub(crate) async fn share_findings(&self, id: &str, after: u64, limit: usize) -> Result<ShareFindings> {
        let Ok(entry) = self.jobs.find(id) else { return Ok(ShareFindings::default()) };
        let kept = entry.kept_findings(self.findings_max());
        Ok(ShareFindings { kept, findings: self.own_findings(id, after, limit).await? })
    }

    /// The findings of one worker after those of another. A worker that does not answer has none. While the job runs,
    /// they may move to later numbers.
    pub(super) async fn cluster_findings(
        &self,
        sharing: &Sharing<'_>,
        id: &str,
        mut after: u64,
        limit: usize,
    ) -> Result<Vec<JobFinding>> {
        self.cluster_job(id).await?;
        let mut all = Vec::new();
        for worker in self.living(sharing.worker).unwrap_or_default() {
            let left = limit - all.len();
            if left == 0 {
                break;
            }
            let found = match &self.others {
                _ if worker == sharing.worker => self.share_findings(id, after, left).await?,
                Some(others) => others.job_findings(&worker, id, after, left).await.unwrap_or_default(),
                None => ShareFindings::default(),
            };
            after = after.saturating_sub(found.kept);
            let of_worker = |finding| JobFinding { worker: Some(worker.clone()), ..finding };
            all.extend(found.findings.into_iter().take(left).map(of_worker));
        }
        Ok(all)
    }
}

fn too_fast(id: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("other workers changed the job {id} at each try: try again"))
}
