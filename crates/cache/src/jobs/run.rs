//! A run of a job: its progress, its findings, and when it must stop.

use std::sync::Arc;
use std::time::Duration;

use forebay_env::Env;
use forebay_env::sync::Mutex;
use forebay_types::{BucketName, ObjectPath};

use super::table::{Entry, FINDINGS_MAX};
use super::{JobFinding, JobKind, JobProgress, JobRequest, check};
use crate::scope::Scope;
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};

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

/// The context of a run.
pub(super) struct Run {
    pub(super) worker: Arc<Worker>,
    pub(super) request: JobRequest,
    pub(super) scope: Scope,
    pub(super) rate: Rate,
    pub(super) entry: Arc<Entry>,
    saved_at: Mutex<Duration>,
}

impl Run {
    pub(super) fn new(worker: &Arc<Worker>, entry: &Arc<Entry>) -> Result<Self> {
        let request = entry.job().request;
        let scope = check(&request)?;
        let default = match request.kind {
            JobKind::Scrub => Some(SCRUB_BYTES_PER_SECOND),
            JobKind::Load | JobKind::Free | JobKind::Persist | JobKind::Verify => None,
        };
        let rate = Rate::new(worker.env.clone(), request.rate_limit.map(|limit| limit.0).or(default));
        let saved_at = Mutex::new(worker.env.clock.monotonic());
        Ok(Self { worker: Arc::clone(worker), request, scope, rate, entry: Arc::clone(entry), saved_at })
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

    /// The path after which an earlier run stopped.
    pub(super) fn after_path(&self) -> Result<Option<ObjectPath>> {
        let Some(after) = self.entry.state.lock().job.progress.after.clone() else { return Ok(None) };
        let damaged = || Error::new(ErrorKind::Internal, format!("{after:?} is not a path to go on behind"));
        let (bucket, key) = after.strip_prefix('/').and_then(|path| path.split_once('/')).ok_or_else(damaged)?;
        ObjectPath::parse(bucket, key).map(Some).map_err(|_| damaged())
    }

    /// The buckets of the scope, in order.
    pub(super) async fn buckets(&self) -> Result<Vec<BucketName>> {
        if let Some(bucket) = &self.scope.bucket {
            return Ok(vec![bucket.clone()]);
        }
        let listed = self.patiently(|| self.worker.list_buckets()).await?;
        let mut buckets: Vec<_> = listed.into_iter().map(|bucket| bucket.name).collect();
        buckets.sort_unstable();
        Ok(buckets)
    }

    /// Retries a request until the under store answers. In the meantime, the job says what it waits for.
    pub(super) async fn patiently<T, F: Future<Output = Result<T>>>(
        &self,
        mut request: impl FnMut() -> F,
    ) -> Result<T> {
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let result = request().await;
            let waits_for = match &result {
                Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::SlowDown) => {
                    Some(format!("waits: {error}"))
                }
                Ok(_) | Err(_) => None,
            };
            let is_over = waits_for.is_none();
            self.entry.state.lock().job.error = waits_for;
            if is_over {
                return result;
            }
            self.worker.env.clock.sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    /// Waits until the under store of a bucket answers again. In the meantime, the job says what it waits for.
    pub(super) async fn until_answered(&self, bucket: &BucketName) -> Result<()> {
        let mount = self.worker.buckets.mount(bucket).await?;
        self.patiently(|| async { Ok(mount.background.probe(&self.scope.prefix).await?) }).await
    }

    /// Reports a bucket that fails. If the job has several buckets, the others continue.
    pub(super) fn bucket_ended(&self, bucket: &BucketName, result: Result<()>) -> Result<()> {
        match result {
            Err(error) if self.scope.bucket.is_none() => {
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
        if number < FINDINGS_MAX {
            let finding = JobFinding { path: path.into(), kind: kind.to_owned(), detail: detail.into() };
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
            self.worker.save_job(&self.entry).await?;
            *self.saved_at.lock() = now;
        }
        Ok(())
    }
}

/// Limits the bytes per second of all the job's tasks together.
pub(super) struct Rate {
    env: Env,
    bytes_per_second: Option<u64>,
    /// The time at which the bytes taken so far are used up.
    free_at: Mutex<Duration>,
}

impl Rate {
    fn new(env: Env, bytes_per_second: Option<u64>) -> Self {
        Self { env, bytes_per_second, free_at: Mutex::default() }
    }

    /// Waits until this many more bytes may be read.
    pub(super) async fn take(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        let now = self.env.clock.monotonic();
        let pause = {
            let mut free_at = self.free_at.lock();
            let start = (*free_at).max(now);
            *free_at = start + Duration::from_secs_f64(bytes as f64 / rate as f64);
            start.saturating_sub(now)
        };
        self.env.clock.sleep(pause).await;
    }
}
