//! All jobs: in memory with their present state, and in the catalog as a restart needs them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use forebay_catalog::{Catalog, SlotSet, records};
use forebay_env::sync::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio_util::sync::CancellationToken;

use super::cluster_job::{ClusterJob, Share, ShareReport};
use super::{Job, JobFinding, JobKind, JobProgress, JobState};
use crate::metrics::Metrics;
use crate::{Error, ErrorKind, Result};

/// The most running jobs. Clients hardly notice this many.
const JOBS_RUNNING_MAX: usize = 3;

/// The most running jobs of one user. A long job of a user does not delay a short one, and a stuck job of one user does
/// not delay other users.
const JOBS_RUNNING_OF_ONE_MAX: usize = 2;

/// Ended jobs that are still listed.
pub(super) const JOBS_ENDED_MAX: u64 = 100;

/// Findings of a job that are kept. Further findings are only counted, because a longer list helps nobody.
pub(super) const FINDINGS_MAX: u64 = 10_000;

/// The same, for each worker of a cluster: all that workers keep is in the memory of the engine.
pub(super) const FINDINGS_OF_SHARE_MAX: u64 = 1_000;

/// All ended jobs together keep as many findings as this many jobs may have.
const JOBS_WITH_ALL_FINDINGS: u64 = 10;

/// A job in this process, or this worker's share of one.
pub(super) struct Entry {
    pub(super) state: Mutex<EntryState>,
    pub(super) cancel: CancellationToken,
    /// Set when no more work is done for the job.
    pub(super) over: CancellationToken,
    /// Notified when the job gets its turn back.
    pub(super) turn: Notify,
}

pub(super) struct EntryState {
    pub(super) job: Job,
    /// The job as a restart would find it once saved: with all objects up to `progress.after`, and none after it.
    pub(super) checkpoint: Job,
    /// Findings that are not in the catalog yet, by number.
    pub(super) unsaved: BTreeMap<u64, JobFinding>,
    /// Whether the findings were dropped for those of other jobs. Further ones are only counted.
    pub(super) findings_dropped: bool,
    /// Of a share.
    pub(super) pass: Option<Pass>,
    /// While the job runs: whether it counts towards the limits of running jobs. Jobs that wait for an under store
    /// leave their turn to other jobs, and get it back by [`Jobs::next`].
    pub(super) has_turn: bool,
    /// Tasks of the run that wait for something outside. Each of them has left the turn.
    pub(super) away: usize,
    /// Tasks of the run that wait at all. `job.error` says what for.
    pub(super) waiting: usize,
}

impl EntryState {
    /// Whether the job could begin, or continue.
    fn wants_turn(&self) -> bool {
        match self.job.state {
            JobState::Queued => true,
            JobState::Running => !self.has_turn && self.away == 0,
            JobState::Done | JobState::Failed | JobState::Cancelled => false,
        }
    }

    fn is_at_work(&self) -> bool {
        self.job.state == JobState::Running && self.has_turn
    }

    /// Whether the job is one of those that wait, of which there is a limit.
    fn is_idle(&self) -> bool {
        !self.job.state.has_ended() && !self.is_at_work()
    }
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) findings_dropped: bool,
}

/// An ended job, as far as it decides what is kept.
pub(super) struct Ended {
    pub(super) id: String,
    pub(super) created_by: String,
    pub(super) ended_ms: u64,
    /// How much of the limit it takes.
    pub(super) weight: u64,
}

/// The IDs of those to drop so that the others weigh `max` at most: the oldest ones of the user whose jobs weigh most.
/// So the jobs of one user take nothing away from others.
pub(super) fn superfluous(mut ended: Vec<Ended>, max: u64) -> Vec<String> {
    ended.sort_by(|one, other| (one.ended_ms, &one.id).cmp(&(other.ended_ms, &other.id)));
    let mut gone = Vec::new();
    while ended.iter().map(|job| job.weight).sum::<u64>() > max {
        let weight = |of: &str| ended.iter().filter(|job| job.created_by == of).map(|job| job.weight).sum::<u64>();
        let most = ended.iter().map(|job| weight(&job.created_by)).max().unwrap_or(0);
        let Some(oldest) = ended.iter().position(|job| weight(&job.created_by) == most) else { break };
        gone.push(ended.remove(oldest).id);
    }
    gone
}

impl Entry {
    pub(super) fn new(job: Job) -> Arc<Self> {
        Self::with(job, None, false)
    }

    pub(super) fn of_share(job: Job, pass: Pass, findings_dropped: bool) -> Arc<Self> {
        Self::with(job, Some(pass), findings_dropped)
    }

    fn with(job: Job, pass: Option<Pass>, findings_dropped: bool) -> Arc<Self> {
        let over = CancellationToken::new();
        if job.state.has_ended() {
            over.cancel();
        }
        let state = EntryState {
            checkpoint: job.clone(),
            job,
            unsaved: BTreeMap::new(),
            findings_dropped,
            pass,
            has_turn: false,
            away: 0,
            waiting: 0,
        };
        Arc::new(Self { state: Mutex::new(state), cancel: CancellationToken::new(), over, turn: Notify::new() })
    }

    pub(super) fn job(&self) -> Job {
        self.state.lock().job.clone()
    }

    /// How many findings are kept, when `max` of a job are.
    pub(super) fn kept_findings(&self, max: u64) -> u64 {
        let state = self.state.lock();
        if state.findings_dropped { 0 } else { state.job.findings.min(max) }
    }

    /// `busy`: the jobs that are at work.
    fn show(&self, busy: &[Job]) -> Job {
        let state = self.state.lock();
        let mut job = state.job.clone();
        if state.wants_turn() && job.error.is_none() {
            job.error = waits_for_turn(&job, busy);
        }
        job
    }

    fn report(&self, busy: &[Job]) -> Option<ShareReport> {
        let Job { id, state, error, .. } = self.show(busy);
        let now = self.state.lock();
        let pass = now.pass.as_ref().filter(|_| !self.over.is_cancelled())?;
        let share = Share { passes: pass.before.passes, ..share_of(&now.job) };
        Some(ShareReport { id, state, error, share })
    }
}

pub(crate) struct Jobs {
    /// By ID. Those of one worker grow, so this is the order in which it has created them.
    pub(super) entries: Mutex<BTreeMap<String, Arc<Entry>>>,
    /// Held while a job is added, so that the limit of queued jobs holds.
    pub(super) creating: AsyncMutex<()>,
    pub(super) wake: Notify,
    /// Held while passes begin, end and are uncovered, so that a job has one at a time.
    pub(super) looking: AsyncMutex<()>,
    /// Slots that this worker has got from others, and that jobs do not know of yet.
    gained: Mutex<Option<SlotSet>>,
    /// Notified when jobs of the cluster may have changed.
    pub(super) shared: Notify,
}

/// How many jobs may be at work, of all users and of one. What is dirty does not wait for a scrub of hours: a persist
/// job may be one more.
fn limits(kind: JobKind) -> (usize, usize) {
    let more = usize::from(kind == JobKind::Persist);
    (JOBS_RUNNING_MAX + more, JOBS_RUNNING_OF_ONE_MAX + more)
}

fn at_work(entries: &BTreeMap<String, Arc<Entry>>) -> Vec<Job> {
    let job = |entry: &Arc<Entry>| {
        let state = entry.state.lock();
        state.is_at_work().then(|| state.job.clone())
    };
    entries.values().filter_map(job).collect()
}

const WAITS_FOR_TURN: &str = "waits for its turn";

/// What names of other jobs follow in the error of a job that waits for its turn.
const NAMES: &str = ", now ";

/// Between two of the names.
const AND: &str = " and ";

impl Job {
    /// Takes the names of other jobs out of what the job waits for, unless they are all `visible`. A reader of a job
    /// need not be allowed to see the other jobs of its user.
    pub fn hide_names(&mut self, visible: impl Fn(&str) -> bool) {
        let waits = self.error.as_deref().filter(|error| error.contains(WAITS_FOR_TURN));
        let Some((limit, names)) = waits.and_then(|error| error.rsplit_once(NAMES)) else { return };
        if !names.split(AND).all(visible) {
            self.error = Some(limit.to_owned());
        }
    }
}

/// What a job waits for that could be at work. `None`: it is about to begin.
fn waits_for_turn(job: &Job, busy: &[Job]) -> Option<String> {
    let own: Vec<_> = busy.iter().filter(|other| other.created_by == job.created_by).collect();
    let (limit_of_all, limit) = limits(job.request.kind);
    if own.len() >= limit {
        let names: Vec<_> = own.iter().map(|other| other.id.as_str()).collect();
        let of = &job.created_by;
        return Some(format!("{WAITS_FOR_TURN}: {limit} jobs of {of} run at once{NAMES}{}", names.join(AND)));
    }
    // Not by name: whose job waits need not be allowed to see them.
    (busy.len() >= limit_of_all).then(|| format!("{WAITS_FOR_TURN}: {limit_of_all} jobs run at once"))
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
            let StoredJob { mut job, mut pass, findings_dropped } = match records::decode_json("job", &found.value) {
                Ok(stored) => stored,
                Err(error) => {
                    // This is no reason not to serve the data.
                    tracing::error!(key = %String::from_utf8_lossy(&key), %error, "the record of a job can't be read, so the job is not resumed: start it again");
                    continue;
                }
            };
            if !job.state.has_ended() {
                (job.state, job.error) = (JobState::Queued, None);
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
            entries.insert(job.id.clone(), Entry::with(job, pass, findings_dropped));
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
        let entries = self.entries.lock();
        let busy = at_work(&entries);
        entries.values().filter_map(|entry| entry.report(&busy)).collect()
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

    /// The newest first. Those that wait for their turn name the jobs that they wait for: see [`Job::hide_names`].
    pub(super) fn show_all(&self) -> Vec<Job> {
        let entries = self.entries.lock();
        let busy = at_work(&entries);
        entries.values().rev().map(|entry| entry.show(&busy)).collect()
    }

    /// # Errors
    /// `NotFound`.
    pub(super) fn show(&self, id: &str) -> Result<Job> {
        let entry = self.find(id)?;
        let busy = at_work(&self.entries.lock());
        Ok(entry.show(&busy))
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<Entry>> {
        let found = self.entries.lock().get(id).cloned();
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no job {id:?}")))
    }

    /// Number of jobs that wait: for their turn, or for an under store. Of all users, and of this one.
    pub(super) fn count_waiting(&self, created_by: &str) -> (usize, usize) {
        let (mut of_all, mut of_one) = (0, 0);
        for entry in self.entries.lock().values() {
            let state = entry.state.lock();
            if state.is_idle() {
                of_all += 1;
                of_one += usize::from(state.job.created_by == created_by);
            }
        }
        (of_all, of_one)
    }

    pub(super) fn observe(&self, metrics: &Metrics) {
        let count = |is: fn(&EntryState) -> bool| {
            self.entries.lock().values().filter(|entry| is(&entry.state.lock())).count() as i64
        };
        metrics.jobs_running.set(count(EntryState::is_at_work));
        metrics.jobs_queued.set(count(EntryState::is_idle));
    }

    /// Waits for the next job, and marks it as running. Gives running jobs that have waited their turn back.
    pub(super) async fn next(&self, now_ms: impl Fn() -> u64) -> Arc<Entry> {
        loop {
            let woken = self.wake.notified();
            while let Some(entry) = self.next_turn() {
                let mut state = entry.state.lock();
                if !state.wants_turn() {
                    // It has ended, or waits again, since it was found.
                    continue;
                }
                state.has_turn = true;
                if state.job.state == JobState::Queued {
                    state.job.state = JobState::Running;
                    state.job.started_ms.get_or_insert_with(&now_ms);
                    drop(state);
                    return entry;
                }
                entry.turn.notify_waiters();
            }
            woken.await;
        }
    }

    /// The oldest job of the user with the fewest jobs at work, if one more may be at work.
    fn next_turn(&self) -> Option<Arc<Entry>> {
        let entries = self.entries.lock();
        let mut busy = HashMap::<_, usize>::new();
        for job in at_work(&entries) {
            *busy.entry(job.created_by).or_default() += 1;
        }
        let of_all = busy.values().sum::<usize>();
        let of_one = |entry: &&Arc<Entry>| busy.get(&entry.state.lock().job.created_by).copied().unwrap_or(0);
        let wanting = entries.values().filter(|entry| entry.state.lock().wants_turn());
        let may_begin = |entry: &&Arc<Entry>| {
            let (limit_of_all, limit) = limits(entry.state.lock().job.request.kind);
            of_all < limit_of_all && of_one(entry) < limit
        };
        wanting.filter(may_begin).min_by_key(of_one).cloned()
    }

    /// The ended jobs beyond those that are kept.
    pub(super) fn surplus(&self) -> Vec<String> {
        superfluous(self.ended(|_| 1), JOBS_ENDED_MAX)
    }

    /// The ended jobs whose findings are not kept any more. `of_one_max`: the findings of a job that are kept at all.
    pub(super) fn surplus_findings(&self, of_one_max: u64) -> Vec<String> {
        let ended = self.ended(|entry| entry.kept_findings(of_one_max));
        superfluous(ended, JOBS_WITH_ALL_FINDINGS * of_one_max)
    }

    /// The ended jobs that weigh anything.
    fn ended(&self, weight: impl Fn(&Entry) -> u64) -> Vec<Ended> {
        let ended = |entry: &Arc<Entry>| {
            let weight = weight(entry);
            let Job { id, created_by, ended_ms, .. } = entry.job();
            Ended { id, created_by, ended_ms: ended_ms.unwrap_or(0), weight }
        };
        let entries = self.entries.lock();
        let ended = entries.values().filter(|entry| entry.over.is_cancelled()).map(ended);
        ended.filter(|ended| ended.weight > 0).collect()
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
        let stored = StoredJob { job: job.clone(), pass: None, findings_dropped: false };
        assert_eq!(String::from_utf8_lossy(&records::encode_json(&stored)[1..]), JOB);
        let read: StoredJob = records::decode_json("job", &golden).unwrap();
        assert_eq!((read.job, read.pass, read.findings_dropped), (job, None, false));
    }

    #[test]
    fn the_oldest_of_the_user_with_the_most_is_dropped_first() {
        let ended = |number: u64, by: &str, weight| Ended {
            id: number.to_string(),
            created_by: by.to_owned(),
            ended_ms: 100 - number,
            weight,
        };
        let all = || vec![ended(1, "anna", 1), ended(2, "anna", 5), ended(3, "anna", 2), ended(9, "berta", 3)];
        assert!(superfluous(all(), 11).is_empty());
        assert_eq!(superfluous(all(), 10), ["3"]);
        assert_eq!(superfluous(all(), 4), ["3", "2"]);
        assert_eq!(superfluous(all(), 3), ["3", "2", "9"]);
        assert_eq!(superfluous(all(), 0), ["3", "2", "9", "1"]);
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
