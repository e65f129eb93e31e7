//! Jobs: what an operator asks the cache to do to all objects under a path, in the background and across restarts.

mod free;
mod lifecycle;
mod load;
mod parts;
mod persist;
mod run;
mod runner;
mod scrub;
mod store_keys;
mod table;
mod verify;

use std::sync::Arc;

use forebay_types::ByteSize;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub(crate) use table::{JOBS_RUNNING_MAX, Jobs};

use crate::scope::Scope;
use crate::{Cache, Error, ErrorKind, Result, to_the_end};

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Reads from the under store what the cache does not hold yet.
    Load,
    /// Drops clean copies.
    Free,
    /// Brings dirty objects and deletes to the under store now.
    Persist,
    /// Compares cache, catalog and under store; changes nothing.
    Verify,
    /// Reads all bytes that are here and compares their checksums.
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

/// A job as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobRequest {
    pub kind: JobKind,
    /// `/`, `/bucket`, or `/bucket/key/prefix`.
    pub path: String,
    /// Most bytes a second; none is no limit. For `load` and `scrub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "100 MiB")]
    pub rate_limit: Option<ByteSize>,
    /// Objects at once; none is the default of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 256)]
    pub concurrency: Option<u32>,
    /// Count what would be done, and do nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// How far a job has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobProgress {
    /// Objects that were looked at.
    pub objects_seen: u64,
    /// Objects that something was done to (with `dry_run`: would have been).
    pub objects_done: u64,
    /// Bytes read, dropped, uploaded or compared.
    pub bytes_done: u64,
    /// Objects left as they are, with the reason among the findings when it is not that nothing was to do.
    pub objects_skipped: u64,
    pub objects_failed: u64,
    /// Known only where counting costs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects_total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<u64>,
    /// The last path behind which a restart goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    pub id: String,
    pub request: JobRequest,
    pub state: JobState,
    /// The user who asked for it.
    pub created_by: String,
    pub created_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    pub progress: JobProgress,
    /// All findings there were; [`Cache::job_findings`] has the first ten thousand.
    pub findings: u64,
    /// Why it failed, or what it waits for, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a job has found out about one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobFinding {
    pub path: String,
    /// A word for programs: `pinned`, `failed`, `missing-bytes`, `stale-copy`, `corrupt`, …
    pub kind: String,
    /// A line for people.
    pub detail: String,
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

/// Objects at once that a request may ask for.
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
    /// Puts a job into the queue; it is durable when this returns.
    ///
    /// # Errors
    /// `InvalidArgument`, `NoSuchBucket`, `SlowDown` when too many jobs wait.
    pub async fn create_job(&self, request: JobRequest, created_by: &str) -> Result<Job> {
        let scope = check(&request)?;
        if let Some(bucket) = &scope.bucket {
            self.worker.buckets.mount(bucket).await?;
        }
        let (worker, created_by) = (Arc::clone(&self.worker), created_by.to_owned());
        to_the_end(async move { worker.create_job(request, created_by).await }).await
    }

    /// The newest first: all that have not ended, and the last hundred that have.
    pub fn jobs(&self) -> Vec<Job> {
        self.worker.jobs.all()
    }

    /// # Errors
    /// `NotFound`.
    pub fn job(&self, id: &str) -> Result<Job> {
        Ok(self.worker.jobs.find(id)?.job())
    }

    /// Findings in the order in which they were made, from the number `after` on (0 at first).
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn job_findings(&self, id: &str, after: u64, limit: usize) -> Result<Vec<JobFinding>> {
        self.worker.job_findings(id, after, limit).await
    }

    /// Ends a job that has not ended; returns when nothing more is done for it. Ended jobs stay as they are.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn cancel_job(&self, id: &str) -> Result<Job> {
        let (worker, id) = (Arc::clone(&self.worker), id.to_owned());
        to_the_end(async move { worker.cancel_job(&id).await }).await
    }
}
