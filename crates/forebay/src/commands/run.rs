//! `forebay load`, `free`, `persist`, `verify` and `scrub`: make a job, and wait for its end.

use std::time::Duration;

use clap::Args;
use forebay_cache::{Job, JobKind, JobRequest, JobState, Status};
use forebay_types::{ByteSize, Period};
use ureq::http::Method;

use super::Target;
use super::jobs::{self, Findings};
use super::output::print;
use super::progress::Progress;
use super::units::{count, counted, escaped, size};
use super::waiting::{Interruptible, Pause};
use crate::client::{Answer, Call, CallError, Client, prefix_path};
use crate::failure::Failure;

/// Between two looks at a job at first: small jobs end at once.
const LOOK_FIRST: Duration = Duration::from_millis(50);

/// Between two looks at a job that takes its time.
const LOOK_LATER: Duration = Duration::from_secs(1);

/// How long a server may be gone while a client waits for a job. After a restart, the server replays the tail of the
/// store and then resumes its jobs.
const SERVER_GONE_MAX: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// s3://bucket/prefix, /bucket/prefix, or / for everything
    #[arg(value_name = "PATH")]
    path: String,
    /// Most bytes in a second, such as 100MiB
    #[arg(long, value_name = "SIZE")]
    rate_limit: Option<ByteSize>,
    /// Objects at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    concurrency: Option<u32>,
    /// Counts what would be done, and does nothing
    #[arg(long)]
    dry_run: bool,
    /// Prints the id of the job instead of waiting for its end
    #[arg(long)]
    detach: bool,
    /// Waits no longer than this, such as 10min, and ends with 1; the job continues
    #[arg(long, value_name = "PERIOD", conflicts_with = "detach")]
    timeout: Option<Period>,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(kind: JobKind, options: &RunOptions) -> Result<(), Failure> {
    let RunOptions { path, rate_limit, concurrency, dry_run, detach, timeout, target } = options;
    let path = prefix_path(path)?;
    let request = JobRequest { kind, path, rate_limit: *rate_limit, concurrency: *concurrency, dry_run: *dry_run };
    let client = target.client()?;
    // Ctrl-C is heard from here on, so that no job is made without a word about it.
    let waiting = Interruptible::new()?;
    let answer = client.call(Call::new(Method::POST, "jobs").json(&request))?;
    let job: Job = answer.read()?;
    if *detach {
        return detached(&job, &answer, target);
    }
    let answer = wait(&client, job, waiting, *timeout)?;
    let job: Job = answer.read()?;
    let findings = jobs::findings(&client, &job)?;
    let shown = if target.is_json() { answer.text } else { format!("{}{}", findings.text(&job), summary(&job)) };
    if let Err(unprinted) = print(&shown) {
        // A bad end counts even when nobody reads what was found.
        return verdict(&job, &findings).and(Err(unprinted));
    }
    if job.progress.objects_seen == 0 && job.state == JobState::Done && kind != JobKind::Persist {
        eprintln!("forebay: {}", nothing_seen(kind, &job.request.path));
    }
    if kind == JobKind::Persist && job.request.path == "/" && job.state == JobState::Done && !dry_run {
        tell_what_stays(&client);
    }
    verdict(&job, &findings)
}

/// Jobs that look only at what is here do not know what the under store has.
fn nothing_seen(kind: JobKind, path: &str) -> String {
    let path = escaped(path);
    match kind {
        JobKind::Free | JobKind::Scrub => format!("the cache holds nothing under {path}"),
        JobKind::Load | JobKind::Persist | JobKind::Verify => {
            format!("nothing is under {path}: is the path right?")
        }
    }
}

/// A user who persists everything before a machine goes away does not expect that some data stays only here.
fn tell_what_stays(client: &Client) {
    let Ok(status) = client.read::<Status>(Call::get("status")) else { return };
    if status.kept_bytes > 0 {
        eprintln!(
            "forebay: {} remain only in this cache: transient objects, parts of open uploads or conflicts, which do not go to the under store",
            size(status.kept_bytes)
        );
    }
}

fn detached(job: &Job, answer: &Answer, target: &Target) -> Result<(), Failure> {
    eprintln!("the job runs at the server; {}", how_to_go_on(&job.id));
    print(if target.is_json() { &answer.text } else { &job.id })
}

fn how_to_go_on(id: &str) -> String {
    let id = escaped(id);
    format!("look at it with 'forebay jobs show {id}', end it with 'forebay jobs cancel {id}'")
}

/// Shows progress until a job has ended; answers its last state.
fn wait(client: &Client, mut job: Job, mut waiting: Interruptible, timeout: Option<Period>) -> Result<Answer, Failure> {
    let mut progress = Progress::new(waiting.now());
    let page = format!("jobs/{}", job.id);
    let mut look = LOOK_FIRST;
    let mut seen = waiting.now();
    let deadline = timeout.map(|timeout| seen + timeout.0);
    loop {
        match client.call(Call::get(&page)) {
            Ok(answer) => {
                job = answer.read()?;
                if has_ended(job.state) {
                    progress.end();
                    return Ok(answer);
                }
                seen = waiting.now();
                progress.show(&job, seen);
            }
            Err(error) if error.may_pass() && waiting.now() < seen + SERVER_GONE_MAX => progress.trouble(&error),
            Err(error) => return Err(lost(&job, error)),
        }
        let left = deadline.map_or(look, |deadline| deadline.saturating_sub(waiting.now()));
        if left.is_zero() {
            progress.end();
            return Err(Failure::Failed(timed_out(&job)));
        }
        if waiting.pause(look.min(left)) == Pause::Interrupted {
            progress.end();
            let line = format!("job {} continues at the server; {}", escaped(&job.id), how_to_go_on(&job.id));
            return Err(Failure::Interrupted(line));
        }
        look = (look * 2).min(LOOK_LATER);
    }
}

fn timed_out(job: &Job) -> String {
    let why = job.error.as_deref().map(|why| format!(" ({})", escaped(why))).unwrap_or_default();
    format!(
        "job {} has not ended within --timeout{why} and continues at the server; {}",
        escaped(&job.id),
        how_to_go_on(&job.id)
    )
}

fn lost(job: &Job, error: CallError) -> Failure {
    let more = format!("; job {} may still run: {}", escaped(&job.id), how_to_go_on(&job.id));
    match Failure::from(error) {
        Failure::Refused(line) => Failure::Refused(line + &more),
        Failure::Failed(line) => Failure::Failed(line + &more),
        other @ (Failure::Interrupted(_) | Failure::NobodyReads) => other,
    }
}

fn has_ended(state: JobState) -> bool {
    match state {
        JobState::Queued | JobState::Running => false,
        JobState::Done | JobState::Failed | JobState::Cancelled => true,
    }
}

/// What was done, in one line.
fn summary(job: &Job) -> String {
    let progress = &job.progress;
    let would = if job.request.dry_run { "would be " } else { "" };
    let done = match job.request.kind {
        JobKind::Load => "loaded",
        JobKind::Free => "freed",
        JobKind::Persist => "persisted",
        JobKind::Verify => "compared",
        JobKind::Scrub => "read",
    };
    format!(
        "{} seen; {would}{done}: {}, {}; {} skipped, {} failed",
        counted(progress.objects_seen, "object"),
        counted(progress.objects_done, "object"),
        size(progress.bytes_done),
        count(progress.objects_skipped),
        count(progress.objects_failed),
    )
}

/// Whether all is well.
fn verdict(job: &Job, findings: &Findings) -> Result<(), Failure> {
    let name = format!("{} of {}", jobs::kind(job.request.kind), escaped(&job.request.path));
    let failed = |why: String| Err(Failure::Failed(format!("{name}: {why}")));
    match job.state {
        JobState::Failed => return failed(job.error.as_deref().map_or("failed".to_owned(), escaped)),
        JobState::Cancelled => return failed("was cancelled".to_owned()),
        JobState::Queued | JobState::Running | JobState::Done => {}
    }
    match job.request.kind {
        // What these find is what differs or is damaged; other jobs find reasons to leave an object alone too.
        JobKind::Verify | JobKind::Scrub if job.findings > 0 => failed(counted(job.findings, "finding")),
        // Both kinds of its findings, conflicts and failures, say that something is not there. They are counted even
        // where the worker that keeps them does not answer.
        JobKind::Persist if job.findings > 0 => {
            failed("not everything is in the under store: see the findings".to_owned())
        }
        // Of a dry run it is what was asked for.
        JobKind::Load if !job.request.dry_run && findings.has(&["exceeds-cache", "exceeds-quota", "too-large"]) => {
            failed("not all of it fits: see the findings".to_owned())
        }
        _ if job.progress.objects_failed > 0 => {
            failed(format!("{} failed", counted(job.progress.objects_failed, "object")))
        }
        JobKind::Load if !job.request.dry_run && findings.unlisted(job) > 0 => {
            failed("not all findings are listed: some of it may not fit".to_owned())
        }
        JobKind::Load | JobKind::Free | JobKind::Persist | JobKind::Verify | JobKind::Scrub => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use forebay_cache::{JobFinding, JobProgress};

    use super::*;

    fn job(kind: JobKind, state: JobState, failed: u64, findings: u64) -> Job {
        let request = JobRequest { kind, path: "/b".into(), rate_limit: None, concurrency: None, dry_run: false };
        Job {
            id: "7".into(),
            request,
            state,
            created_by: "root".into(),
            created_ms: 0,
            started_ms: None,
            ended_ms: None,
            progress: JobProgress { objects_failed: failed, ..JobProgress::default() },
            findings,
            error: (state == JobState::Failed).then(|| "disk\ngone".into()),
        }
    }

    #[test]
    fn only_differences_and_failures_are_bad_ends() {
        let end =
            |kind, state, failed, findings| verdict(&job(kind, state, failed, findings), &Findings::default()).is_ok();
        assert!(end(JobKind::Free, JobState::Done, 0, 3), "it says what it left alone");
        for kind in [JobKind::Persist, JobKind::Verify, JobKind::Scrub] {
            assert!(end(kind, JobState::Done, 0, 0) && !end(kind, JobState::Done, 0, 1), "{kind:?}");
        }
        for kind in [JobKind::Load, JobKind::Free, JobKind::Persist, JobKind::Verify, JobKind::Scrub] {
            assert!(!end(kind, JobState::Done, 1, 0) && !end(kind, JobState::Cancelled, 0, 0), "{kind:?}");
        }
        let failed = verdict(&job(JobKind::Load, JobState::Failed, 0, 0), &Findings::default());
        let Err(Failure::Failed(line)) = failed else { panic!("{failed:?}") };
        assert_eq!(line, r"load of /b: disk\ngone");
    }

    #[test]
    fn what_is_not_cached_may_be_in_the_under_store() {
        assert_eq!(nothing_seen(JobKind::Free, "/b/"), "the cache holds nothing under /b/");
        assert_eq!(nothing_seen(JobKind::Load, "/b/"), "nothing is under /b/: is the path right?");
    }

    #[test]
    fn a_load_is_good_when_all_of_its_findings_are_known_and_harmless() {
        let found = |count: usize, kind: &str| {
            let finding = || JobFinding { path: "/b/".into(), kind: kind.into(), detail: String::new(), worker: None };
            Findings(std::iter::repeat_with(finding).take(count).collect())
        };
        let load = job(JobKind::Load, JobState::Done, 0, 3);
        assert!(verdict(&load, &found(3, "not-cached")).is_ok());
        assert!(verdict(&load, &found(3, "too-large")).is_err());
        assert!(verdict(&load, &found(2, "not-cached")).is_err(), "one is at a worker that does not answer");
        let mut tried = load;
        tried.request.dry_run = true;
        assert!(verdict(&tried, &found(2, "too-large")).is_ok());
    }
}
