//! How far a job is, on standard error: a bar on a terminal, a line every few seconds elsewhere.

use std::io::{self, IsTerminal};
use std::time::Duration;

use forebay_cache::{Job, JobState};
use indicatif::{ProgressBar, ProgressStyle};

use super::jobs;
use super::units::{count, escaped, rate, seconds, size};
use crate::client::CallError;

/// Between two lines of a log.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Steps of the bar: finer than any terminal is wide.
const BAR_STEPS: u64 = 1000;

pub(super) struct Progress {
    bar: Option<ProgressBar>,
    began: Duration,
    last_line: Duration,
}

impl Progress {
    pub(super) fn new(now: Duration) -> Self {
        let bar = io::stderr().is_terminal().then(ProgressBar::no_length);
        if let Some(bar) = &bar {
            bar.set_style(style("{spinner} {msg}"));
        }
        Self { bar, began: now, last_line: now }
    }

    pub(super) fn show(&mut self, job: &Job, now: Duration) {
        let line = line(job, now.saturating_sub(self.began));
        let Some(bar) = &self.bar else {
            return self.log(&line, now);
        };
        if let Some(share) = share_done(job) {
            bar.set_style(style("{spinner} {msg} [{wide_bar}] {percent} %"));
            bar.set_length(BAR_STEPS);
            bar.set_position((share * BAR_STEPS as f64) as u64);
        }
        bar.set_message(line);
        bar.tick();
    }

    /// The server does not answer for now.
    pub(super) fn trouble(&mut self, error: &CallError) {
        match &self.bar {
            Some(bar) => bar.set_message(format!("waiting for the server: {error}")),
            None => eprintln!("waiting for the server: {error}"),
        }
    }

    /// Makes way for what is printed next.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn log(&mut self, line: &str, now: Duration) {
        if now >= self.last_line + LINE_INTERVAL {
            self.last_line = now;
            eprintln!("{line}");
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are tested")
}

/// What of a job is done, 0 to 1, where totals are known.
fn share_done(job: &Job) -> Option<f64> {
    let progress = &job.progress;
    let of = |done: u64, total: Option<u64>| total.filter(|total| *total > 0).map(|total| done as f64 / total as f64);
    of(progress.bytes_done, progress.bytes_total)
        .or_else(|| of(progress.objects_seen, progress.objects_total))
        .map(|share| share.clamp(0.0, 1.0))
}

fn line(job: &Job, elapsed: Duration) -> String {
    let progress = &job.progress;
    let name = format!("{} {}", jobs::kind(job.request.kind), escaped(&job.request.path));
    if job.state == JobState::Queued {
        return format!("{name}: {}", escaped(job.error.as_deref().unwrap_or("waits for its turn")));
    }
    let of = |total: Option<String>| total.map(|total| format!(" of {total}")).unwrap_or_default();
    let mut line = format!(
        "{name}: {}{} objects, {}{}",
        count(progress.objects_seen),
        of(progress.objects_total.map(count)),
        size(progress.bytes_done),
        of(progress.bytes_total.map(size)),
    );
    let passed = elapsed.as_secs_f64();
    if passed > 0.0 {
        line = format!("{line}, {}", rate(progress.bytes_done as f64 / passed));
    }
    if let Some(waits) = &job.error {
        return format!("{line}; {}", escaped(waits));
    }
    if let Some(share) = share_done(job).filter(|share| *share > 0.0) {
        line = format!("{line}, {} left", seconds((passed * (1.0 - share) / share).ceil() as u64));
    }
    line
}

#[cfg(test)]
mod tests {
    use forebay_cache::{JobKind, JobProgress, JobRequest};

    use super::*;

    fn job(state: JobState, progress: JobProgress) -> Job {
        Job {
            id: "1".into(),
            request: JobRequest {
                kind: JobKind::Load,
                path: "/b/\n".into(),
                rate_limit: None,
                concurrency: None,
                dry_run: false,
            },
            state,
            created_by: "root".into(),
            created_ms: 0,
            started_ms: None,
            ended_ms: None,
            progress,
            findings: 0,
            error: None,
        }
    }

    #[test]
    fn a_line_says_what_is_known() {
        let seen = JobProgress { objects_seen: 1500, bytes_done: 10 << 20, ..JobProgress::default() };
        let second = Duration::from_secs(2);
        assert_eq!(line(&job(JobState::Queued, seen.clone()), second), r"load /b/\n: waits for its turn");
        let unknown = line(&job(JobState::Running, seen.clone()), second);
        assert_eq!(unknown, r"load /b/\n: 1,500 objects, 10.0 MiB, 5.0 MiB/s");
        let waits = Job { error: Some("waits: the under store".into()), ..job(JobState::Running, seen.clone()) };
        assert_eq!(line(&waits, second), r"load /b/\n: 1,500 objects, 10.0 MiB, 5.0 MiB/s; waits: the under store");
        let known = JobProgress { objects_total: Some(3000), bytes_total: Some(40 << 20), ..seen };
        let known = line(&job(JobState::Running, known), second);
        assert_eq!(known, r"load /b/\n: 1,500 of 3,000 objects, 10.0 MiB of 40.0 MiB, 5.0 MiB/s, 6 s left");
    }

    #[test]
    fn nothing_of_nothing_is_no_share() {
        let totals = |objects, bytes| {
            let progress = JobProgress { objects_total: objects, bytes_total: bytes, ..JobProgress::default() };
            share_done(&job(JobState::Running, progress))
        };
        assert_eq!((totals(None, None), totals(Some(0), Some(0)), totals(Some(9), None)), (None, None, Some(0.0)));
    }

    #[test]
    fn the_templates_are_valid() {
        for template in ["{spinner} {msg}", "{spinner} {msg} [{wide_bar}] {percent} %"] {
            style(template);
        }
    }
}
