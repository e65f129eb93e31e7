//! `forebay jobs`.

use clap::Subcommand;
use forebay_cache::{Job, JobFinding, JobKind, JobState};
use ureq::http::Method;

use super::output::print;
use super::status::pairs;
use super::units::{count, escaped, moment, size};
use super::{Table, Target};
use crate::client::{Answer, Call, Client};
use crate::failure::Failure;

/// Findings in one request: the most that the API gives at once.
const FINDINGS_PAGE: usize = 1000;

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// Lists all jobs that have not ended, and the last hundred that have
    List,
    /// Shows a job and what it has found
    Show {
        /// As `jobs list` shows it
        id: String,
    },
    /// Lists what a job has found
    Findings {
        /// As `jobs list` shows it
        id: String,
    },
    /// Ends a job; what it has done stays done
    Cancel {
        /// As `jobs list` shows it
        id: String,
    },
}

pub(super) fn jobs(command: &JobsCommand, target: &Target) -> Result<(), Failure> {
    let client = target.client()?;
    match command {
        JobsCommand::List => {
            let answer = client.call(Call::get("jobs"))?;
            if target.is_json() {
                return print(&answer.text);
            }
            let jobs: Vec<Job> = answer.read()?;
            print(&if jobs.is_empty() { "there are no jobs".to_owned() } else { table(&jobs) })
        }
        JobsCommand::Show { id } => show(&client, &client.call(Call::get(page(id)?))?, target),
        JobsCommand::Findings { id } => list_findings(&client, id, target),
        JobsCommand::Cancel { id } => {
            let answer = client.call(Call::new(Method::POST, page(id)? + "/cancel"))?;
            if target.is_json() { print(&answer.text) } else { print(&detail(&answer.read()?)) }
        }
    }
}

/// The page of a job. An id that could lead to another page is none.
fn page(id: &str) -> Result<String, Failure> {
    let fits = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if fits { Ok(format!("jobs/{id}")) } else { Err(Failure::Refused(format!("{id:?} is no id of a job"))) }
}

fn show(client: &Client, answer: &Answer, target: &Target) -> Result<(), Failure> {
    if target.is_json() {
        return print(&answer.text);
    }
    let job: Job = answer.read()?;
    let findings = findings(client, &job)?.text(&job);
    let gap = if findings.is_empty() { "" } else { "\n" };
    print(&format!("{}{gap}{findings}", detail(&job)))
}

fn list_findings(client: &Client, id: &str, target: &Target) -> Result<(), Failure> {
    let job: Job = client.read(Call::get(page(id)?))?;
    let findings = findings(client, &job)?;
    if target.is_json() {
        return print(&serde_json::to_string(&findings.0).expect("findings have text keys only"));
    }
    print(&findings.text(&job))
}

/// What a job has found, as far as the server keeps it.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<JobFinding>);

pub(super) fn findings(client: &Client, job: &Job) -> Result<Findings, Failure> {
    let mut all: Vec<JobFinding> = Vec::new();
    while (all.len() as u64) < job.findings {
        let call =
            Call::get(format!("jobs/{}/findings", job.id)).query("after", all.len()).query("limit", FINDINGS_PAGE);
        let page: Vec<JobFinding> = client.read(call)?;
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    Ok(Findings(all))
}

impl Findings {
    /// Whether there is one of these kinds.
    pub(super) fn has(&self, kinds: &[&str]) -> bool {
        self.0.iter().any(|finding| kinds.contains(&finding.kind.as_str()))
    }

    pub(super) fn text(&self, job: &Job) -> String {
        let is_of_cluster = self.0.iter().any(|finding| finding.worker.is_some());
        let columns =
            if is_of_cluster { &["KIND", "WORKER", "PATH", "FINDING"][..] } else { &["KIND", "PATH", "FINDING"] };
        let mut table = Table::new(columns);
        for JobFinding { path, kind, detail, worker } in &self.0 {
            let worker = is_of_cluster.then(|| worker.as_deref().unwrap_or_default());
            table.row([Some(kind.as_str()), worker, Some(path), Some(detail)].into_iter().flatten().map(escaped));
        }
        match self.unlisted(job) {
            0 => table.text(),
            more if is_of_cluster => {
                let why = "which are not kept, or are at a worker that does not answer";
                format!("{}and {} more, {why}\n", table.text(), count(more))
            }
            more => format!("{}and {} more, which the server has not kept\n", table.text(), count(more)),
        }
    }

    /// Findings that are counted, and not among these.
    pub(super) fn unlisted(&self, job: &Job) -> u64 {
        job.findings.saturating_sub(self.0.len() as u64)
    }
}

fn table(jobs: &[Job]) -> String {
    let mut table = Table::new(&[
        "ID",
        "KIND",
        "STATE",
        ">SEEN",
        ">DONE",
        ">BYTES",
        ">FAILED",
        ">FINDINGS",
        "CREATED",
        "BY",
        "PATH",
    ]);
    for job in jobs {
        let progress = &job.progress;
        table.row([
            escaped(&job.id),
            kind(job.request.kind).to_owned() + if job.request.dry_run { " (dry run)" } else { "" },
            if waits(job) { "waiting" } else { state(job.state) }.to_owned(),
            count(progress.objects_seen),
            count(progress.objects_done),
            size(progress.bytes_done),
            count(progress.objects_failed),
            count(job.findings),
            moment(job.created_ms),
            escaped(&job.created_by),
            escaped(&job.request.path),
        ]);
    }
    table.text()
}

fn detail(job: &Job) -> String {
    let Job { request, progress, .. } = job;
    let of = |total: Option<String>| total.map(|total| format!(" of {total}")).unwrap_or_default();
    let mut lines = vec![
        ("id", escaped(&job.id)),
        ("kind", kind(request.kind).to_owned()),
        ("path", escaped(&request.path)),
        ("state", state(job.state).to_owned()),
        ("created", format!("{} by {}", moment(job.created_ms), escaped(&job.created_by))),
    ];
    let optional = [
        ("started", job.started_ms.map(moment)),
        ("ended", job.ended_ms.map(moment)),
        ("rate limit", request.rate_limit.map(|limit| format!("{}/s", size(limit.0)))),
        ("concurrency", request.concurrency.map(|objects| objects.to_string())),
        ("dry run", request.dry_run.then(|| "yes".to_owned())),
        (if waits(job) { "waiting" } else { "error" }, job.error.as_deref().map(escaped)),
    ];
    lines.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    lines.extend([
        ("objects seen", count(progress.objects_seen) + &of(progress.objects_total.map(count))),
        ("objects done", count(progress.objects_done)),
        ("objects skipped", count(progress.objects_skipped)),
        ("objects failed", count(progress.objects_failed)),
        ("bytes", size(progress.bytes_done) + &of(progress.bytes_total.map(size))),
        ("findings", count(job.findings)),
    ]);
    pairs(&lines)
}

/// Whether a job has begun and says what it waits for. In a cluster, that is one of the workers.
fn waits(job: &Job) -> bool {
    job.state == JobState::Running && job.error.as_ref().is_some_and(|error| error.contains("waits"))
}

pub(crate) fn kind(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Load => "load",
        JobKind::Free => "free",
        JobKind::Persist => "persist",
        JobKind::Verify => "verify",
        JobKind::Scrub => "scrub",
    }
}

pub(crate) fn state(state: JobState) -> &'static str {
    match state {
        JobState::Queued => "queued",
        JobState::Running => "running",
        JobState::Done => "done",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_never_leads_to_another_page() {
        assert_eq!(page("0193-ab_C").expect("an id"), "jobs/0193-ab_C");
        for id in ["", "../policies", "1/cancel", "1?x", "a b", "é"] {
            assert!(matches!(page(id), Err(Failure::Refused(_))), "{id}");
        }
    }
}
