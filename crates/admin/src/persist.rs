//! Pushing dirty data to the under store now.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use forebay_cache::{Job, JobKind, JobRequest, JobState};
use http::StatusCode;
use parking_lot::Mutex;
use serde::Deserialize;
use tracing::Instrument;
use utoipa::IntoParams;

use crate::Admin;
use crate::access::Caller;
use crate::input::{self, Parameters};
use crate::problem::{Answer, Problem};
use crate::responses::{Absent, NotAllPersisted, Problems};

/// Requests at work. The job of each of them sends as many uploads as all background uploads of a bucket, and beside
/// those.
const REQUESTS_MAX: usize = 2;

/// When a refused request is tried again: small backlogs are uploaded by then.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The users whose requests are at work.
#[derive(Clone, Default)]
pub(crate) struct Persisting(Arc<Mutex<Vec<String>>>);

/// A request at work, until it is dropped.
struct Place {
    all: Persisting,
    user: String,
}

impl Persisting {
    /// # Errors
    /// 503 when a request of the same user is at work, or as many as may be.
    fn begin(&self, user: &str) -> Answer<Place> {
        let mut users = self.0.lock();
        let problem = if users.iter().any(|other| other == user) {
            format!("an earlier persist request of {user} is still at work")
        } else if users.len() >= REQUESTS_MAX {
            format!("{REQUESTS_MAX} persist requests are still at work")
        } else {
            users.push(user.to_owned());
            return Ok(Place { all: self.clone(), user: user.to_owned() });
        };
        let problem = format!("{problem}: try again later, or start a persist job");
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, problem);
        Err(Problem { retry_after: Some(RETRY_AFTER), ..problem })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.0.lock().retain(|user| *user != self.user);
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Prefix {
    /// `/`, `/bucket`, or `/bucket/prefix`.
    #[param(example = "/logs/2026/", format = "place")]
    prefix: String,
}

/// Brings what is dirty under the prefix to the under store now, and answers when the under store has it. This begins a
/// `persist` job, which all workers of a cluster share, and waits for its end. When the client leaves before, the job
/// continues, and is shown among the jobs. A worker handles one such request of a user at a time, and two of all users.
#[utoipa::path(post, path = "/api/v1/persist", tag = "objects", params(Prefix),
    responses((status = 204, description = "The under store has everything that was dirty."), Problems, Absent,
        NotAllPersisted))]
pub(crate) async fn persist_now(
    State(admin): State<Admin>,
    caller: Caller,
    Parameters(Prefix { prefix }): Parameters<Prefix>,
) -> Answer<StatusCode> {
    input::check_place("prefix", &prefix)?;
    let cache = caller.may_administer_under(&prefix)?.cache.clone();
    let place = admin.persisting().begin(caller.name())?;
    let (kind, created_by) = (JobKind::Persist, caller.name().to_owned());
    let request = JobRequest { kind, path: prefix, rate_limit: None, concurrency: None, dry_run: false };
    // The job continues when the client has gone, and the request keeps its place.
    let work = async move {
        let _place = place;
        let job = cache.create_job(request, &created_by).await?;
        cache.wait_for_job(&job.id).await
    };
    let job = forebay_env::spawn(work.in_current_span()).join().await?;
    check_all_persisted(&job)?;
    Ok(StatusCode::NO_CONTENT)
}

/// # Errors
/// Why the under store does not have everything, after a job that has ended.
fn check_all_persisted(job: &Job) -> Answer<()> {
    let Job { id, state, findings, progress, error, .. } = job;
    let failed = progress.objects_failed;
    let why = match state {
        JobState::Done if *findings == 0 && failed == 0 => return Ok(()),
        JobState::Done if failed == 0 => {
            let problem = format!(
                "the under store does not have everything: another writer has changed what `forebay jobs show {id}` names. Write or delete it again through Forebay"
            );
            return Err(Problem::new(StatusCode::CONFLICT, problem));
        }
        JobState::Cancelled => "it was cancelled".to_owned(),
        JobState::Queued | JobState::Running | JobState::Done | JobState::Failed => {
            error.clone().unwrap_or_else(|| format!("{failed} objects failed"))
        }
    };
    let problem = format!("the job {id} has not persisted everything: {why}. See `forebay jobs show {id}`");
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_of_a_user_and_two_of_all_are_at_work() {
        let all = Persisting::default();
        let first = all.begin("anna").unwrap();
        let refused = |user: &str| all.begin(user).err().map(|problem| (problem.status.as_u16(), problem.retry_after));
        assert_eq!(refused("anna"), Some((503, Some(RETRY_AFTER))));
        let second = all.begin("berta").unwrap();
        assert_eq!(refused("clara"), Some((503, Some(RETRY_AFTER))));
        drop(first);
        assert_eq!(refused("berta"), Some((503, Some(RETRY_AFTER))));
        assert_eq!(refused("clara"), None);
        drop(second);
        assert!(all.0.lock().is_empty());
    }
}
