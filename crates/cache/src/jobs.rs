//! Jobs: work that an operator requests for all objects under a path, in the background and across restarts.

mod cluster_job;
mod free;
mod lifecycle;
mod load;
mod parts;
mod persist;
mod run;
mod runner;
mod scrub;
mod shares;
mod store_keys;
mod table;
mod verify;

use std::sync::Arc;

use forebay_types::ByteSize;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use cluster_job::ShareReport;
pub use shares::ShareFindings;
pub(crate) use table::Jobs;

use crate::scope::Scope;
use crate::{Cache, Error, ErrorKind, Result, to_the_end};

/// The kinds of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Reads data from the under store that the cache does not hold yet.
    Load,
    /// Drops clean copies.
    Free,
    /// Uploads dirty objects and deletes to the under store now.
    Persist,
    /// Compares cache, catalog and under store. Changes nothing.
    Verify,
    /// Reads all local bytes and verifies their checksums.
    Scrub,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    Queued,
    Running,
    Done,
    Failed,
    Cancelled,
}

/// A job as it was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobRequest {
    pub kind: JobKind,
    /// `/`, `/bucket`, or `/bucket/key/prefix`.
    pub path: String,
    /// The most bytes per second, of all workers together; absent means no limit. For `load` and `scrub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "100 MiB")]
    pub rate_limit: Option<ByteSize>,
    /// Concurrent objects; absent means the default of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 256)]
    pub concurrency: Option<u32>,
    /// Counts what would be done, and does nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// The progress of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobProgress {
    /// Objects that were examined.
    pub objects_seen: u64,
    /// Objects that were processed (with `dry_run`: that would have been).
    pub objects_done: u64,
    /// Bytes read, dropped, uploaded or compared.
    pub bytes_done: u64,
    /// Objects that were left unchanged. The findings give the reason, unless there was nothing to do.
    pub objects_skipped: u64,
    pub objects_failed: u64,
    /// Known only if counting costs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects_total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<u64>,
    /// The last path after which a restart continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    pub id: String,
    pub request: JobRequest,
    pub state: JobState,
    /// The user who requested it.
    pub created_by: String,
    pub created_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    pub progress: JobProgress,
    /// Number of all findings. [`Cache::job_findings`] has the first ten thousand; in a cluster, the first thousand of
    /// each worker. When ended jobs together have more than ten times as many, the oldest lose theirs.
    pub findings: u64,
    /// Why it failed, or what it waits for, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A finding of a job about one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobFinding {
    pub path: String,
    /// A word for programs: `pinned`, `failed`, `missing-bytes`, `stale-copy`, `corrupt`, …
    pub kind: String,
    /// A line for people.
    pub detail: String,
    /// The worker of a cluster that has found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

impl JobKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Free => "free",
            Self::Persist => "persist",
            Self::Verify => "verify",
            Self::Scrub => "scrub",
        }
    }
}

impl JobState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn has_ended(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Done | Self::Failed | Self::Cancelled => true,
        }
    }
}

/// The most concurrent objects that a request may ask for.
const CONCURRENCY_MAX: u32 = 256;

/// # Errors
/// `InvalidArgument`, in a line that names what can't be.
fn check(request: &JobRequest) -> Result<Scope> {
    let invalid = |problem: &str| Err(Error::new(ErrorKind::InvalidArgument, problem.to_owned()));
    if request.concurrency.is_some_and(|objects| !(1..=CONCURRENCY_MAX).contains(&objects)) {
        return invalid("concurrency is from 1 to 256");
    }
    if request.rate_limit == Some(ByteSize(0)) {
        return invalid("a rateLimit of 0 would never end; leave it out for no limit");
    }
    if request.rate_limit.is_some() && !matches!(request.kind, JobKind::Load | JobKind::Scrub) {
        return invalid("rateLimit is for load and scrub");
    }
    Scope::parse(&request.path)
}

impl Cache {
    /// Adds a job to the queue. The job is durable when this returns.
    ///
    /// # Errors
    /// `InvalidArgument`, `NoSuchBucket`, `SlowDown` when too many jobs wait.
    pub fn create_job<'a>(&'a self, request: JobRequest, created_by: &'a str) -> BoxFuture<'a, Result<Job>> {
        Box::pin(async move {
            let scope = check(&request)?;
            if let Some(bucket) = &scope.bucket {
                self.worker.buckets.mount(bucket).await?;
            }
            let (worker, created_by) = (Arc::clone(&self.worker), created_by.to_owned());
            self.worker.unless_stalled(async move { worker.create_job(request, created_by).await }).await
        })
    }

    /// The newest first: all that have not ended, and a hundred that have. In a cluster, those of all workers.
    ///
    /// # Errors
    /// Whatever the catalog answers.
    pub fn jobs(&self) -> BoxFuture<'_, Result<Vec<Job>>> {
        Box::pin(async move { self.worker.show_jobs().await })
    }

    /// # Errors
    /// `NotFound`; whatever the catalog answers.
    pub fn job<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Job>> {
        Box::pin(async move { self.worker.show_job(id).await })
    }

    /// Waits until a job has ended, and returns it. The job does not depend on the wait: when a caller gives up, it
    /// continues.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable` when this worker stops before; whatever the catalog answers.
    pub fn wait_for_job<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Job>> {
        Box::pin(async move { self.worker.wait_for_job(id).await })
    }

    /// What this worker has begun for jobs of its cluster and not ended.
    ///
    /// # Errors
    /// Whatever the catalog answers.
    pub fn job_shares(&self) -> BoxFuture<'_, Result<Vec<ShareReport>>> {
        Box::pin(async move {
            let worker = Arc::clone(&self.worker);
            to_the_end(async move { worker.share_reports().await }).await
        })
    }

    /// What this worker has found for a job of its cluster: those of its findings after the first `after`.
    ///
    /// # Errors
    /// Whatever the catalog answers.
    pub fn share_findings<'a>(&'a self, id: &'a str, after: u64, limit: usize) -> BoxFuture<'a, Result<ShareFindings>> {
        Box::pin(async move { self.worker.share_findings(id, after, limit).await })
    }

    /// Findings in the order in which they were made, starting at the number `after` (0 at first). In a cluster, those
    /// of one worker after those of another.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn job_findings<'a>(&'a self, id: &'a str, after: u64, limit: usize) -> BoxFuture<'a, Result<Vec<JobFinding>>> {
        Box::pin(async move { self.worker.job_findings(id, after, limit).await })
    }

    /// Cancels a job that has not ended, and returns when no more work is done for it. Ended jobs stay unchanged. In a
    /// cluster, it waits up to ten seconds for workers that do not answer.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn cancel_job<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Job>> {
        Box::pin(async move {
            let (worker, id) = (Arc::clone(&self.worker), id.to_owned());
            self.worker.unless_stalled(async move { worker.cancel_job(&id).await }).await
        })
    }
}
