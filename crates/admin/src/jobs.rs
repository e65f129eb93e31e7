//! Jobs: load, free, persist, verify, scrub.

use std::collections::BTreeSet;

use axum::Json;
use axum::response::{IntoResponse, Response};
use forebay_cache::{ErrorKind, Job, JobFinding, JobRequest};
use http::{StatusCode, header};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::Running;
use crate::access::Caller;
use crate::input::{self, JsonBody, Nothing, Parameters, Segment};
use crate::problem::{Answer, Problem};
use crate::responses::{Absent, BodyProblems, Problems, StorageProblems};

/// Findings in one answer, at most and when nothing is said: some hundred kilobytes.
const FINDINGS_MAX: usize = 1000;

/// Begins a job.
#[utoipa::path(post, path = "/api/v1/jobs", tag = "jobs", request_body = JobRequest,
    responses((status = 201, body = Job, headers(("location" = String))), Problems, Absent, BodyProblems, StorageProblems))]
pub(crate) async fn create_job(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
    JsonBody(request): JsonBody<JobRequest>,
) -> Answer<Response> {
    input::check_place("path", &request.path)?;
    let running = caller.may_administer_under(&request.path)?;
    let job = running.cache.create_job(request, caller.name()).await?;
    let location = format!("/api/v1/jobs/{}", job.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(job)).into_response())
}

/// The jobs whose paths the caller administers, the newest first.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", responses((status = 200, body = Vec<Job>), Problems))]
pub(crate) async fn list_jobs(caller: Caller, Parameters(Nothing {}): Parameters<Nothing>) -> Answer<Json<Vec<Job>>> {
    let mut jobs = caller.is_administrator()?.cache.jobs().await?;
    jobs.retain(|job| caller.covers(&job.request.path));
    let visible = ids(&jobs);
    jobs.iter_mut().for_each(|job| job.hide_names(|id| visible.contains(id)));
    Ok(Json(jobs))
}

/// One job.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path, description = "The job's id.")),
    responses((status = 200, body = Job), Problems, Absent))]
pub(crate) async fn show_job(
    caller: Caller,
    Segment(id): Segment<String>,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<Job>> {
    let (running, mut job) = job_of(&caller, &id).await?;
    if job.error.is_some() && job.ended_ms.is_none() {
        let mut jobs = running.cache.jobs().await?;
        jobs.retain(|job| caller.covers(&job.request.path));
        let visible = ids(&jobs);
        job.hide_names(|id| visible.contains(id));
    }
    Ok(Json(job))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Findings {
    /// How many findings to pass over.
    #[serde(default)]
    #[param(maximum = 4294967295u64)]
    after: u32,
    /// Most findings in the answer; 1,000 when it is not given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// What a job has found, in the order in which it was found.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/findings", tag = "jobs",
    params(("id" = String, Path, description = "The job's id."), Findings),
    responses((status = 200, body = Vec<JobFinding>), Problems, Absent))]
pub(crate) async fn list_job_findings(
    caller: Caller,
    Segment(id): Segment<String>,
    Parameters(Findings { after, limit }): Parameters<Findings>,
) -> Answer<Json<Vec<JobFinding>>> {
    let limit = input::limit(limit, FINDINGS_MAX)?;
    let (running, _) = job_of(&caller, &id).await?;
    Ok(Json(running.cache.job_findings(&id, u64::from(after), limit).await?))
}

/// Ends a job, and answers when nothing more is done for it. A job that has ended stays as it is.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = String, Path, description = "The job's id.")),
    responses((status = 200, body = Job), Problems, Absent, StorageProblems))]
pub(crate) async fn cancel_job(
    caller: Caller,
    Segment(id): Segment<String>,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<Job>> {
    let (running, _) = job_of(&caller, &id).await?;
    Ok(Json(running.cache.cancel_job(&id).await?))
}

fn ids(jobs: &[Job]) -> BTreeSet<String> {
    jobs.iter().map(|job| job.id.clone()).collect()
}

/// A job that the caller may know of. To others it isn't there.
async fn job_of<'a>(caller: &'a Caller, id: &str) -> Answer<(&'a Running, Job)> {
    let running = caller.is_administrator()?;
    let absent = || Problem::absent(format!("there is no job {id:?}"));
    let job = match running.cache.job(id).await {
        Err(error) if error.kind == ErrorKind::NotFound => return Err(absent()),
        job => job?,
    };
    if caller.covers(&job.request.path) { Ok((running, job)) } else { Err(absent()) }
}
