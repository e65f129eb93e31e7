//! All jobs: in memory with their present state, and in the catalog as a restart needs them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use forebay_catalog::{Catalog, SlotSet, records};
use forebay_env::sync::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio_util::sync::CancellationToken;

use super::cluster_job::{ClusterJob, Share, ShareReport};
use super::{Job, JobFinding, JobProgress, JobState};
use crate::metrics::Metrics;
use crate::{Error, ErrorKind, Result};

/// The most running jobs. Clients hardly notice this many.
pub(crate) const JOBS_RUNNING_MAX: usize = 3;

/// The most running jobs of one user. A long job of a user does not delay a short one, and a stuck job of one user does
/// not delay other users.
const JOBS_RUNNING_OF_ONE_MAX: usize = 2;

/// Ended jobs that are still listed.
pub(super) const JOBS_ENDED_MAX: usize = 100;

/// Findings of a job that are kept. Further findings are only counted, because a longer list helps nobody.
pub(super) const FINDINGS_MAX: u64 = 10_000;

/// The same, for each worker of a cluster: all that workers keep is in the memory of the engine.
pub(super) const FINDINGS_OF_SHARE_MAX: u64 = 1_000;

/// A job in this process, or this worker's share of one.
pub(super) struct Entry {
    pub(super) state: Mutex<EntryState>,
    pub(super) cancel: CancellationToken,
    /// Set when no more work is done for the job.
    pub(super) over: CancellationToken,
}

pub(super) struct EntryState {
    pub(super) job: Job,
    /// The job as a restart would find it once saved: with all objects up to `progress.after`, and none after it.
    pub(super) checkpoint: Job,
    /// Findings that are not in the catalog yet, by number.
    pub(super) unsaved: BTreeMap<u64, JobFinding>,
    /// Of a share.
    pub(super) pass: Option<Pass>,
}

/// One pass of this worker's share of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pass {
    /// The slots that it covers. They have been at home here since it began.
    pub(super) slots: SlotSet,
    /// The share when it began.
    pub(super) before: Share,
}

impl Pass {
    /// The share with this pass, whose progress and findings `job` has.
    pub(super) fn ended(&self, job: &Job) -> Share {
        Share { passes: self.before.passes + 1, ..share_of(job) }
    }
}

fn share_of(job: &Job) -> Share {
    let progress = JobProgress { after: None, ..job.progress.clone() };
    Share { passes: 0, started_ms: job.started_ms, progress, findings: job.findings }
}

/// What the catalog keeps of a job in this process.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredJob {
    #[serde(flatten)]
    pub(super) job: Job,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pass: Option<Pass>,
}

impl Entry {
    pub(super) fn new(job: Job) -> Arc<Self> {
        Self::with(job, None)
    }

    pub(super) fn of_share(job: Job, pass: Pass) -> Arc<Self> {
        Self::with(job, Some(pass))
    }

    fn with(job: Job, pass: Option<Pass>) -> Arc<Self> {
        let over = CancellationToken::new();
        if job.state.has_ended() {
            over.cancel();
        }
        let state = EntryState { checkpoint: job.clone(), job, unsaved: BTreeMap::new(), pass };
        Arc::new(Self { state: Mutex::new(state), cancel: CancellationToken::new(), over })
    }

    pub(super) fn job(&self) -> Job {
        self.state.lock().job.clone()
    }

    fn report(&self) -> Option<ShareReport> {
        let state = self.state.lock();
        let pass = state.pass.as_ref().filter(|_| !self.over.is_cancelled())?;
        let share = Share { passes: pass.before.passes, ..share_of(&state.job) };
        Some(ShareReport { id: state.job.id.clone(), state: state.job.state, error: state.job.error.clone(), share })
    }
}

pub(crate) struct Jobs {
    /// By ID. Those of one worker grow, so this is the order in which it has created them.
    pub(super) entries: Mutex<BTreeMap<String, Arc<Entry>>>,
    /// Held while a job is added, so that the limit of queued jobs holds.
    pub(super) creating: AsyncMutex<()>,
    pub(super) wake: Notify,
    /// Held while passes begin and end, so that a job has one at a time.
    pub(super) looking: AsyncMutex<()>,
    /// Slots that this worker has got from others, and that jobs do not know of yet.
    gained: Mutex<Option<SlotSet>>,
    /// Notified when jobs of the cluster may have changed.
    pub(super) shared: Notify,
}

/// Whether a pass that an earlier process began is still to be done: the job may have ended since, and the end of the
/// pass may be noted there and nowhere else.
async fn is_open(catalog: &dyn Catalog, id: &str, pass: Option<&Pass>) -> Result<bool> {
    let (Some(pass), Some(worker)) = (pass, catalog.worker()) else { return Ok(false) };
    let Some(found) = catalog.get(&records::cluster_job_key(id)).await? else { return Ok(false) };
    let Ok(job) = records::decode_json::<ClusterJob>("job", &found.value) else { return Ok(false) };
    let noted = job.shares.get(worker).map_or(0, |share| share.passes);
    Ok(!job.state.has_ended() && noted <= pass.before.passes)
}

impl Jobs {
    /// Loads the jobs of earlier processes. Those that had not ended are queued again.
    pub(crate) async fn load(catalog: &dyn Catalog) -> Result<Self> {
        let (from, to) = records::all_jobs_range();
        let slots = catalog.slots();
        let mut entries = BTreeMap::new();
        for (key, found) in catalog.scan(&from, &to, usize::MAX).await? {
            let StoredJob { mut job, mut pass } = match records::decode_json("job", &found.value) {
                Ok(stored) => stored,
                Err(error) => {
                    // This is no reason not to serve the data.
                    tracing::error!(key = %String::from_utf8_lossy(&key), %error, "a job is left out");
                    continue;
                }
            };
            if !job.state.has_ended() {
                job.state = JobState::Queued;
            }
            if let Some(slots) = &slots {
                if let Some(pass) = &mut pass {
                    // The others were at home elsewhere meanwhile.
                    pass.slots.take_off(&slots.others());
                }
                if !is_open(catalog, &job.id, pass.as_ref()).await? {
                    job.state = JobState::Cancelled;
                }
            }
            entries.insert(job.id.clone(), Entry::with(job, pass));
        }
        Ok(Self {
            entries: Mutex::new(entries),
            creating: AsyncMutex::default(),
            wake: Notify::new(),
            looking: AsyncMutex::default(),
            gained: Mutex::default(),
            shared: Notify::new(),
        })
    }

    /// Slots that move are covered by their next homes. Called before and after the locks of their keys are closed.
    pub(crate) fn lose(&self, slots: &SlotSet) {
        for entry in self.entries.lock().values() {
            if let Some(pass) = &mut entry.state.lock().pass {
                pass.slots.take_off(slots);
            }
        }
    }

    /// Slots that were taken up.
    pub(crate) fn gain(&self, slots: &SlotSet) {
        self.gained.lock().get_or_insert_with(|| slots.clone()).add(slots);
        self.look();
    }

    pub(super) fn take_gained(&self) -> Option<SlotSet> {
        self.gained.lock().take()
    }

    /// Jobs of the cluster, or the slots that are at home here, may have changed.
    pub(crate) fn look(&self) {
        self.shared.notify_one();
    }

    /// Shares that run or wait.
    pub(super) fn open_shares(&self) -> Vec<Arc<Entry>> {
        let is_open = |entry: &&Arc<Entry>| !entry.over.is_cancelled() && entry.state.lock().pass.is_some();
        self.entries.lock().values().filter(is_open).cloned().collect()
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.entries.lock().keys().cloned().collect()
    }

    /// Of shares that have not ended.
    pub(super) fn reports(&self) -> Vec<ShareReport> {
        self.entries.lock().values().filter_map(|entry| entry.report()).collect()
    }

    /// Whether the job was queued. Nobody runs it then.
    pub(super) fn take_off_queue(&self, entry: &Entry) -> bool {
        let mut state = entry.state.lock();
        let was_queued = state.job.state == JobState::Queued;
        if was_queued {
            state.job.state = JobState::Cancelled;
        }
        was_queued
    }

    pub(super) fn all(&self) -> Vec<Job> {
        self.entries.lock().values().rev().map(|entry| entry.job()).collect()
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<Entry>> {
        let found = self.entries.lock().get(id).cloned();
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no job {id:?}")))
    }

    pub(super) fn count(&self, state: JobState) -> usize {
        self.entries.lock().values().filter(|entry| entry.state.lock().job.state == state).count()
    }

    /// Number of a user's jobs in this state.
    pub(super) fn count_of(&self, created_by: &str, state: JobState) -> usize {
        let entries = self.entries.lock();
        let is_one = |entry: &&Arc<Entry>| {
            let job = &entry.state.lock().job;
            job.state == state && job.created_by == created_by
        };
        entries.values().filter(is_one).count()
    }

    pub(super) fn observe(&self, metrics: &Metrics) {
        metrics.jobs_running.set(self.count(JobState::Running) as i64);
        metrics.jobs_queued.set(self.count(JobState::Queued) as i64);
    }

    /// Waits for the next job, and marks it as running.
    pub(super) async fn next(&self, now_ms: impl Fn() -> u64) -> Arc<Entry> {
        loop {
            let woken = self.wake.notified();
            let found = {
                let entries = self.entries.lock();
                let mut running = HashMap::<_, usize>::new();
                for entry in entries.values() {
                    let job = &entry.state.lock().job;
                    if job.state == JobState::Running {
                        *running.entry(job.created_by.clone()).or_default() += 1;
                    }
                }
                let of_one = |entry: &&Arc<Entry>| {
                    let state = entry.state.lock();
                    running.get(&state.job.created_by).copied().unwrap_or(0)
                };
                let queued = entries.values().filter(|entry| entry.state.lock().job.state == JobState::Queued);
                // The oldest job of the user with the fewest running jobs.
                let next = queued.filter(|entry| of_one(entry) < JOBS_RUNNING_OF_ONE_MAX).min_by_key(of_one).cloned();
                if let Some(entry) = &next {
                    let mut state = entry.state.lock();
                    state.job.state = JobState::Running;
                    state.job.started_ms.get_or_insert_with(&now_ms);
                }
                next
            };
            if let Some(entry) = found {
                // Another task may sleep although more jobs are queued.
                self.wake.notify_one();
                return entry;
            }
            woken.await;
        }
    }

    /// The ended jobs beyond those that are kept, the oldest first.
    pub(super) fn surplus(&self) -> Vec<String> {
        let entries = self.entries.lock();
        let ended = entries.iter().filter(|(_, entry)| entry.over.is_cancelled()).map(|(id, _)| id.clone());
        let ended: Vec<_> = ended.collect();
        let surplus = ended.len().saturating_sub(JOBS_ENDED_MAX);
        ended.into_iter().take(surplus).collect()
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::ByteSize;

    use super::*;
    use crate::JobKind;
    use crate::jobs::{JobProgress, JobRequest};

    /// What version 1 wrote. Every later version must still read it.
    const JOB: &str = concat!(
        r#"{"id":"016f5e67e8000002","request":{"kind":"load","path":"/data/","rateLimit":"1 MiB","dryRun":false},"#,
        r#""state":"running","createdBy":"anna","createdMs":1,"startedMs":2,"progress":{"objectsSeen":5,"objectsDone":3,"#,
        r#""bytesDone":4,"objectsSkipped":2,"objectsFailed":0,"after":"/data/x"},"findings":1}"#
    );

    #[test]
    fn a_job_reads_as_version_1_wrote_it() {
        let progress = JobProgress {
            objects_seen: 5,
            objects_done: 3,
            bytes_done: 4,
            objects_skipped: 2,
            after: Some("/data/x".to_owned()),
            ..JobProgress::default()
        };
        let rate_limit = Some(ByteSize(1 << 20));
        let (kind, path) = (JobKind::Load, "/data/".to_owned());
        let job = Job {
            id: "016f5e67e8000002".to_owned(),
            request: JobRequest { kind, path, rate_limit, concurrency: None, dry_run: false },
            state: JobState::Running,
            created_by: "anna".to_owned(),
            created_ms: 1,
            started_ms: Some(2),
            ended_ms: None,
            progress,
            findings: 1,
            error: None,
        };
        let golden = [&[1], JOB.as_bytes()].concat();
        let stored = StoredJob { job: job.clone(), pass: None };
        assert_eq!(String::from_utf8_lossy(&records::encode_json(&stored)[1..]), JOB);
        let read: StoredJob = records::decode_json("job", &golden).unwrap();
        assert_eq!((read.job, read.pass), (job, None));
    }

    /// Otherwise a cancellation would wait for it forever.
    #[test]
    fn an_entry_that_has_ended_is_over() {
        for (state, is_over) in [(JobState::Queued, false), (JobState::Running, false), (JobState::Failed, true)] {
            let mut job: Job = records::decode_json("job", &[&[1], JOB.as_bytes()].concat()).unwrap();
            job.state = state;
            assert_eq!(Entry::new(job).over.is_cancelled(), is_over, "{state:?}");
        }
    }
}
