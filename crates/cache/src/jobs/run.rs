//! A run of a job: its progress, its findings, and when it must stop.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::records;
use forebay_env::Env;
use forebay_env::sync::Mutex;
use forebay_types::{BucketName, ObjectPath};

use super::table::Entry;
use super::{Job, JobFinding, JobKind, JobProgress, JobRequest, JobState, check};
use crate::scope::Scope;
use crate::worker::Worker;
use crate::{Error, ErrorKind, OtherWorkers, Result};

/// How often progress is made durable. A restart repeats the work since then.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// Objects between two points at which a restart may continue. There is little to repeat, and few objects delay the
/// next batch.
pub(super) const BATCH_OBJECTS: usize = 256;

/// Scrubs read at this speed by default. It is a fraction of what an NVMe drive delivers, so clients hardly notice.
const SCRUB_BYTES_PER_SECOND: u64 = 100 << 20;

/// Pauses of a job whose under store is out of reach. They start short, because a circuit breaker closes again within
/// seconds.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// An under store usually answers within this. After it, the job says what it waits for.
pub(super) const ANSWER_USUAL: Duration = Duration::from_secs(15);

/// The most bytes of a finding's detail: errors of under stores may have any length.
const DETAIL_BYTES_MAX: usize = 1024;

/// Whether a retry may succeed: something does not answer, or slots have moved.
fn may_pass(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Moved | ErrorKind::SlowDown)
}

/// The context of a run.
pub(super) struct Run {
    pub(super) worker: Arc<Worker>,
    pub(super) request: JobRequest,
    pub(super) scope: Scope,
    pub(super) rate: Rate,
    pub(super) entry: Arc<Entry>,
    saved_at: Mutex<Duration>,
    findings_max: u64,
}

impl Run {
    pub(super) fn new(worker: &Arc<Worker>, entry: &Arc<Entry>) -> Result<Self> {
        let request = entry.job().request;
        let scope = check(&request)?;
        let default = match request.kind {
            JobKind::Scrub => Some(SCRUB_BYTES_PER_SECOND),
            JobKind::Load | JobKind::Free | JobKind::Persist | JobKind::Verify => None,
        };
        // What the user asks for is shared by all workers.
        let others = worker.others.clone().filter(|_| request.rate_limit.is_some());
        let rate = Rate::new(worker.env.clone(), request.rate_limit.map(|limit| limit.0).or(default), others);
        let saved_at = Mutex::new(worker.env.clock.monotonic());
        let findings_max = worker.findings_max();
        Ok(Self { worker: Arc::clone(worker), request, scope, rate, entry: Arc::clone(entry), saved_at, findings_max })
    }

    pub(super) fn must_stop(&self) -> bool {
        self.entry.cancel.is_cancelled() || self.worker.stop.is_cancelled()
    }

    /// Waits until the job is cancelled or the process stops.
    pub(super) async fn stopped(&self) {
        tokio::select! {
            biased;
            () = self.entry.cancel.cancelled() => {}
            () = self.worker.stop.cancelled() => {}
        }
    }

    pub(super) fn concurrency(&self, default: usize) -> usize {
        self.request.concurrency.map_or(default, |objects| objects as usize)
    }

    /// Whether the job's pass is about this path: always, when this worker is alone.
    pub(super) fn is_about(&self, path: &ObjectPath) -> bool {
        self.entry.state.lock().pass.as_ref().is_none_or(|pass| pass.slots.has_path(path))
    }

    pub(super) fn is_share(&self) -> bool {
        self.entry.state.lock().pass.is_some()
    }

    /// Whether all slots of the pass were lost.
    pub(super) fn has_nothing_left(&self) -> bool {
        let is_about_keys = self.request.kind.is_about_keys();
        is_about_keys && self.entry.state.lock().pass.as_ref().is_some_and(|pass| pass.slots.is_empty())
    }

    /// Of the passes before this one.
    pub(super) fn progress_before(&self) -> JobProgress {
        let state = self.entry.state.lock();
        state.pass.as_ref().map(|pass| pass.before.progress.clone()).unwrap_or_default()
    }

    /// The path after which an earlier run stopped.
    pub(super) fn after_path(&self) -> Result<Option<ObjectPath>> {
        let Some(after) = self.entry.state.lock().job.progress.after.clone() else { return Ok(None) };
        let damaged = || Error::new(ErrorKind::Internal, format!("{after:?} is not a path to continue after"));
        let (bucket, key) = after.strip_prefix('/').and_then(|path| path.split_once('/')).ok_or_else(damaged)?;
        ObjectPath::parse(bucket, key).map(Some).map_err(|_| damaged())
    }

    /// The buckets of the scope, in order.
    pub(super) async fn buckets(&self) -> Result<Vec<BucketName>> {
        if let Some(bucket) = &self.scope.bucket {
            return Ok(vec![bucket.clone()]);
        }
        let listed = self.with_retries(|| self.worker.list_buckets()).await?;
        let mut buckets: Vec<_> = listed.into_iter().map(|bucket| bucket.name).collect();
        buckets.sort_unstable();
        Ok(buckets)
    }

    /// Those as well that the under store has lost, and that objects wait for.
    pub(super) async fn buckets_and_lost_ones(&self) -> Result<BTreeSet<BucketName>> {
        let mut buckets: BTreeSet<_> = self.buckets().await?.into_iter().collect();
        if self.scope.bucket.is_some() {
            return Ok(buckets);
        }
        let (mut from, to) = records::all_objects_range();
        while let Some((key, _)) = self.worker.catalog.scan(&from, &to, 1).await?.pop() {
            from = match records::parse_object_key(&key) {
                Some(path) => {
                    let behind = records::object_prefix_range(&path.bucket, "").1;
                    buckets.insert(path.bucket);
                    behind
                }
                None => records::successor(&key),
            };
        }
        Ok(buckets)
    }

    /// Retries a request until the under store answers. In the meantime, the job says what it waits for.
    pub(super) async fn with_retries<T, F: Future<Output = Result<T>>>(
        &self,
        mut request: impl FnMut() -> F,
    ) -> Result<T> {
        let (mut pause, mut waiting) = (RETRY_PAUSE_MIN, None);
        loop {
            let result = self.answered(ANSWER_USUAL, request()).await;
            let why = match &result {
                Err(error) if may_pass(error) => error.to_string(),
                Ok(_) | Err(_) if waiting.is_none() => return result,
                Ok(_) | Err(_) => {
                    // It may be a while until the job's turn comes, and then the answer is old.
                    (pause, waiting) = (RETRY_PAUSE_MIN, None);
                    self.turn().await;
                    continue;
                }
            };
            waiting.get_or_insert_with(|| self.wait_away()).tell(&why);
            self.worker.env.clock.sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    /// Waits until the job has its turn. Tasks of a run ask for it after a wait, and before each object: as long as one
    /// of them waits for something outside, the others begin nothing.
    pub(super) async fn turn(&self) {
        loop {
            let turn = self.entry.turn.notified();
            if self.entry.state.lock().has_turn {
                return;
            }
            turn.await;
        }
    }

    /// Begins a wait that may be long: the job leaves its turn to others.
    fn wait_away(&self) -> Waiting<'_> {
        {
            let mut state = self.entry.state.lock();
            state.waiting += 1;
            state.away += 1;
            state.has_turn = false;
        }
        self.worker.jobs.wake.notify_one();
        self.worker.jobs.observe(&self.worker.metrics);
        Waiting { run: self, is_away: true }
    }

    /// Begins a wait that is short: the job keeps its turn.
    pub(super) fn wait(&self, why: &str) -> Waiting<'_> {
        self.entry.state.lock().waiting += 1;
        let waiting = Waiting { run: self, is_away: false };
        waiting.tell(why);
        waiting
    }

    /// Waits for an answer of an under store. If that takes longer than usual, the job says so in the meantime.
    pub(super) async fn answered<T>(&self, usual: Duration, request: impl Future<Output = T>) -> T {
        let slow = async {
            self.worker.env.clock.sleep(usual).await;
            let _waiting = self.wait(&format!("no answer from the under store for {} s", usual.as_secs()));
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            biased;
            result = request => result,
            never = slow => match never {},
        }
    }

    /// Waits until the under store of a bucket answers again. In the meantime, the job says what it waits for.
    pub(super) async fn until_answered(&self, bucket: &BucketName) -> Result<()> {
        self.until_engine_answers().await;
        let mount = self.worker.buckets.mount(bucket).await?;
        self.with_retries(|| async { Ok(mount.background.probe(&self.scope.prefix).await?) }).await
    }

    /// Waits until this worker has a lease again.
    async fn until_engine_answers(&self) {
        let mut waiting = None;
        while self.worker.is_cut_off() {
            waiting.get_or_insert_with(|| self.wait_away()).tell("the engine of the cluster does not answer");
            self.worker.env.clock.sleep(RETRY_PAUSE_MIN).await;
        }
        drop(waiting);
    }

    /// Whether it is an error of a share that another try may not meet: the engine did not answer, or slots have moved.
    fn is_passing(&self, error: &Error) -> bool {
        self.is_share() && may_pass(error)
    }

    /// Begins a pass again behind its last checkpoint, after a pause, if that may help. Returns whether it does.
    pub(super) async fn may_run_again(&self, error: &Error) -> bool {
        // Persist ends with the error of an object when it has tried them all.
        let is_tried = self.request.kind == JobKind::Persist && !self.worker.is_cut_off();
        if !self.is_passing(error) || is_tried || self.must_stop() {
            return false;
        }
        {
            let mut state = self.entry.state.lock();
            state.job = Job { state: JobState::Running, error: None, ..state.checkpoint.clone() };
            let counted = state.job.findings;
            state.unsaved.retain(|number, _| *number < counted);
        }
        let wait = async {
            let waiting = self.wait_away();
            waiting.tell(&error.to_string());
            self.worker.env.clock.sleep(RETRY_PAUSE_MIN).await;
            self.until_engine_answers().await;
            drop(waiting);
            self.turn().await;
        };
        tokio::select! {
            biased;
            () = self.stopped() => false,
            () = wait => true,
        }
    }

    /// Reports a bucket that fails. If the job has several buckets, the others continue.
    pub(super) fn bucket_ended(&self, bucket: &BucketName, result: Result<()>) -> Result<()> {
        match result {
            Err(error) if self.scope.bucket.is_none() && !self.is_passing(&error) => {
                self.count(|progress| progress.objects_failed += 1);
                self.find(format!("/{bucket}"), "failed", error.to_string());
                Ok(())
            }
            result => result,
        }
    }

    /// Changes the reported progress.
    pub(super) fn count(&self, change: impl FnOnce(&mut JobProgress)) {
        change(&mut self.entry.state.lock().job.progress);
    }

    pub(super) fn find(&self, path: impl Into<String>, kind: &str, detail: impl Into<String>) {
        let mut state = self.entry.state.lock();
        let number = state.job.findings;
        state.job.findings += 1;
        if number < self.findings_max && !state.findings_dropped {
            let mut detail: String = detail.into();
            detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
            let finding = JobFinding { path: path.into(), kind: kind.to_owned(), detail, worker: None };
            state.unsaved.insert(number, finding);
        }
    }

    /// All objects up to `after` are done, and none after it. A restart continues from here.
    pub(super) async fn checkpoint(&self, after: &str) -> Result<()> {
        {
            let mut state = self.entry.state.lock();
            state.job.progress.after = Some(after.to_owned());
            state.checkpoint = state.job.clone();
        }
        let now = self.worker.env.clock.monotonic();
        let is_due = now.saturating_sub(*self.saved_at.lock()) >= SAVE_INTERVAL;
        if is_due {
            match self.worker.save_job(&self.entry).await {
                // Less is saved if the process ends now.
                Err(error) if self.is_share() => {
                    tracing::debug!(%error, "the progress of a job could not be stored");
                }
                result => result?,
            }
            *self.saved_at.lock() = now;
        }
        Ok(())
    }
}

/// A task of a run that waits. The job says what for until the last of them has ended.
pub(super) struct Waiting<'a> {
    run: &'a Run,
    is_away: bool,
}

impl Waiting<'_> {
    fn tell(&self, why: &str) {
        self.run.entry.state.lock().job.error = Some(format!("waits: {why}"));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.run.entry.state.lock();
            state.waiting -= 1;
            state.away -= usize::from(self.is_away);
            if state.waiting == 0 && !state.job.state.has_ended() {
                state.job.error = None;
            }
        }
        // It may be this job's turn again.
        self.run.worker.jobs.wake.notify_one();
    }
}

/// Limits the bytes per second of all the job's tasks together.
pub(super) struct Rate {
    env: Env,
    bytes_per_second: Option<u64>,
    /// Who have an equal part of it.
    others: Option<Arc<dyn OtherWorkers>>,
    /// The time at which the bytes taken so far are used up.
    free_at: Mutex<Duration>,
}

impl Rate {
    fn new(env: Env, bytes_per_second: Option<u64>, others: Option<Arc<dyn OtherWorkers>>) -> Self {
        Self { env, bytes_per_second, others, free_at: Mutex::default() }
    }

    /// Waits until this many more bytes may be read.
    pub(super) async fn take(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        let workers = 1 + self.others.as_ref().map_or(0, |others| others.workers().len());
        let rate = rate as f64 / workers as f64;
        let now = self.env.clock.monotonic();
        let pause = {
            let mut free_at = self.free_at.lock();
            let start = (*free_at).max(now);
            *free_at = start + Duration::from_secs_f64(bytes as f64 / rate);
            start.saturating_sub(now)
        };
        self.env.clock.sleep(pause).await;
    }
}
