//! All jobs: in memory with their present state, and in the catalog as a restart needs them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use forebay_catalog::{Catalog, records};
use forebay_env::sync::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio_util::sync::CancellationToken;

use super::{Job, JobFinding, JobState};
use crate::metrics::Metrics;
use crate::{Error, ErrorKind, Result};

/// The most running jobs. Clients hardly notice this many.
pub(crate) const JOBS_RUNNING_MAX: usize = 3;

/// The most running jobs of one user. A long job of a user does not delay a short one, and a stuck job of one user does
/// not delay other users.
const JOBS_RUNNING_OF_ONE_MAX: usize = 2;

/// Ended jobs that are still listed.
const JOBS_ENDED_MAX: usize = 100;

/// Findings of a job that are kept. Further findings are only counted, because a longer list helps nobody.
pub(super) const FINDINGS_MAX: u64 = 10_000;

/// A job in this process.
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
}

impl Entry {
    pub(super) fn new(job: Job) -> Arc<Self> {
        let over = CancellationToken::new();
        if job.state.has_ended() {
            over.cancel();
        }
        let state = EntryState { checkpoint: job.clone(), job, unsaved: BTreeMap::new() };
        Arc::new(Self { state: Mutex::new(state), cancel: CancellationToken::new(), over })
    }

    pub(super) fn job(&self) -> Job {
        self.state.lock().job.clone()
    }
}

pub(crate) struct Jobs {
    /// By ID. IDs grow, so this is the order in which the jobs were created.
    pub(super) entries: Mutex<BTreeMap<String, Arc<Entry>>>,
    /// Held while a job is added, so that the limit of queued jobs holds.
    pub(super) creating: AsyncMutex<()>,
    pub(super) wake: Notify,
}

impl Jobs {
    /// Loads the jobs of earlier processes. Those that had not ended are queued again.
    pub(crate) async fn load(catalog: &dyn Catalog) -> Result<Self> {
        let (from, to) = records::all_jobs_range();
        let mut entries = BTreeMap::new();
        for (key, found) in catalog.scan(&from, &to, usize::MAX).await? {
            let mut job: Job = match records::decode_json("job", &found.value) {
                Ok(job) => job,
                Err(error) => {
                    // This is no reason not to serve the data.
                    tracing::error!(key = %String::from_utf8_lossy(&key), %error, "a job is left out");
                    continue;
                }
            };
            if !job.state.has_ended() {
                job.state = JobState::Queued;
            }
            entries.insert(job.id.clone(), Entry::new(job));
        }
        Ok(Self { entries: Mutex::new(entries), creating: AsyncMutex::default(), wake: Notify::new() })
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
        assert_eq!(String::from_utf8_lossy(&records::encode_json(&job)[1..]), JOB);
        assert_eq!(records::decode_json::<Job>("job", &golden).unwrap(), job);
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
