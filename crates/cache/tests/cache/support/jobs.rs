//! Jobs as an operator starts and watches them.

use forebay_cache::{Job, JobFinding, JobKind, JobRequest};
use futures::FutureExt;

use super::Bench;

pub(crate) fn request(kind: JobKind, path: &str) -> JobRequest {
    JobRequest { kind, path: path.to_owned(), rate_limit: None, concurrency: None, dry_run: false }
}

pub(crate) async fn start(bench: &Bench, request: JobRequest) -> String {
    bench.cache.create_job(request, "anna").await.expect("a job").id
}

/// Nothing is waited for.
pub(crate) fn job(bench: &Bench, id: &str) -> Job {
    bench.cache.job(id).now_or_never().expect("at once").expect("a job")
}

pub(crate) fn jobs(bench: &Bench) -> Vec<Job> {
    bench.cache.jobs().now_or_never().expect("at once").expect("jobs")
}

pub(crate) fn has_ended(bench: &Bench, id: &str) -> bool {
    job(bench, id).ended_ms.is_some()
}

/// Runs a job to its end, while the clock runs.
pub(crate) async fn run(bench: &Bench, request: JobRequest) -> (Job, Vec<JobFinding>) {
    let id = start(bench, request).await;
    bench.advancing("the job ends", || has_ended(bench, &id)).await;
    (job(bench, &id), findings(bench, &id).await)
}

pub(crate) async fn findings(bench: &Bench, id: &str) -> Vec<JobFinding> {
    bench.cache.job_findings(id, 0, 20_000).await.expect("findings")
}

/// Path and kind of each finding, in order of the paths.
pub(crate) fn told(findings: &[JobFinding]) -> Vec<(&str, &str)> {
    let mut told: Vec<_> = findings.iter().map(|finding| (finding.path.as_str(), finding.kind.as_str())).collect();
    told.sort_unstable();
    told
}
