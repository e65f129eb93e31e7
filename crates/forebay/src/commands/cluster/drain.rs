//! `forebay cluster drain`.

use std::io::{self, IsTerminal};
use std::time::Duration;

use forebay_admin::api::{ClusterStatus, WorkerState};
use forebay_types::Period;
use indicatif::ProgressBar;
use ureq::http::Method;

use super::super::Target;
use super::super::units::{count, escaped};
use super::super::waiting::{Interruptible, Pause};
use super::seen::{look, page, told, under_replicated_elsewhere, wanted_elsewhere};
use crate::client::{Call, CallError, Client};
use crate::failure::Failure;

/// Between two looks: a worker that is drained shows that for two seconds.
const LOOK: Duration = Duration::from_millis(500);

/// Between two lines of a log.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// How long the worker that is asked may be gone. It may have stopped because it is the one that is drained.
const SERVER_GONE_MAX: Duration = Duration::from_secs(20);

pub(super) fn drain(target: &Target, worker: &str, wait: bool, timeout: Option<Period>) -> Result<(), Failure> {
    let client = &target.client()?;
    let page = page(worker)?;
    // Ctrl-C is heard from here on, so that nothing begins without a word about it.
    let waiting = if wait { Some(Interruptible::new()?) } else { None };
    client.call(Call::new(Method::POST, format!("{page}/drain")))?;
    match waiting {
        None => told(target, "draining", worker),
        Some(waiting) => {
            self::wait(client, worker, waiting, timeout)?;
            told(target, "drained", worker)
        }
    }
}

/// What a look at the cluster says of a drain.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// With what is left to do.
    GoesOn(String),
    /// Nobody needs the worker, which is about to stop.
    Stops,
    /// It has stopped.
    Drained,
    /// Why it will not end.
    Failed(String),
}

fn step(cluster: &ClusterStatus, worker: &str) -> Step {
    let Some(found) = cluster.workers.iter().find(|found| found.id == worker) else { return Step::Drained };
    match found.state {
        WorkerState::Draining => {
            let (slots, wanted) = (count(u64::from(found.slots)), count(wanted_elsewhere(cluster, worker)));
            let lacking = match under_replicated_elsewhere(cluster, worker) {
                0 => String::new(),
                lacking => format!("; {} have fewer copies than writeReplicas asks for", count(lacking)),
            };
            Step::GoesOn(format!(
                "{worker}: {slots} slots left; others still fetch {wanted} objects and parts{lacking}"
            ))
        }
        WorkerState::Drained => Step::Stops,
        WorkerState::Live => Step::Failed("has started again, which ends the drain".to_owned()),
        WorkerState::Left | WorkerState::Lost => {
            Step::Failed("does not run, and was not drained: start it, and drain it again".to_owned())
        }
    }
}

/// Shows progress until the worker is drained.
fn wait(client: &Client, worker: &str, mut waiting: Interruptible, timeout: Option<Period>) -> Result<(), Failure> {
    let continues = "the drain continues; see 'forebay cluster status'";
    let began = waiting.now();
    let mut progress = Progress::new(began);
    let deadline = timeout.map(|timeout| began + timeout.0);
    // The worker that is asked sees the mark at its next look.
    let (mut seen, mut is_marked, mut stops) = (began, false, false);
    loop {
        let now = waiting.now();
        match look(client) {
            Ok(cluster) => {
                seen = now;
                match step(&cluster, worker) {
                    Step::Drained => return Ok(()),
                    Step::Failed(why) if is_marked || now > began + SERVER_GONE_MAX => {
                        return Err(Failure::Failed(format!("worker {worker} {why}")));
                    }
                    Step::Failed(_) => {}
                    Step::Stops => stops = true,
                    Step::GoesOn(line) => {
                        is_marked = true;
                        progress.show(&line, now);
                    }
                }
            }
            // This worker was asked, and has stopped.
            Err(CallError::Unreachable(_)) if stops => return Ok(()),
            Err(error) if error.may_pass() && now < seen + SERVER_GONE_MAX => progress.show(&trouble(&error), now),
            Err(error) => {
                let why = format!("{error}; whether worker {worker} is drained is not known: ask another worker");
                return Err(Failure::Failed(why));
            }
        }
        let left = deadline.map_or(LOOK, |deadline| deadline.saturating_sub(now));
        if left.is_zero() {
            return Err(Failure::Failed(format!("worker {worker} is not drained within --timeout; {continues}")));
        }
        if waiting.pause(LOOK.min(left)) == Pause::Interrupted {
            return Err(Failure::Interrupted(continues.to_owned()));
        }
    }
}

fn trouble(error: &CallError) -> String {
    format!("waiting for the server: {}", escaped(&error.to_string()))
}

/// On standard error: one line that changes on a terminal, a line every few seconds elsewhere.
struct Progress {
    bar: Option<ProgressBar>,
    last_line: Duration,
}

impl Progress {
    fn new(now: Duration) -> Self {
        Self { bar: io::stderr().is_terminal().then(ProgressBar::new_spinner), last_line: now }
    }

    fn show(&mut self, line: &str, now: Duration) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(line.to_owned());
                bar.tick();
            }
            None if now >= self.last_line + LINE_INTERVAL => {
                self.last_line = now;
                eprintln!("{line}");
            }
            None => {}
        }
    }
}

/// Makes way for what is printed next.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_admin::api::ClusterWorker;
    use forebay_cache::Status;

    use super::*;

    fn worker(id: &str, state: WorkerState, slots: u32, copies_wanted: u64, under_replicated: u64) -> ClusterWorker {
        ClusterWorker {
            id: id.to_owned(),
            state,
            slots,
            peer_address: None,
            s3_address: None,
            admin_address: None,
            version: None,
            status: Some(Status { copies_wanted, under_replicated, ..Status::default() }),
            problem: None,
        }
    }

    #[test]
    fn a_drain_ends_when_the_worker_says_so_or_is_gone() {
        let seen = |state, lacking| ClusterStatus {
            name: "lake".to_owned(),
            worker: "w2".to_owned(),
            slots: 1024,
            age_ms: 0,
            slots_without_home: 0,
            workers: vec![worker("w1", state, 5, 3, 0), worker("w2", WorkerState::Live, 9, 2, lacking)],
            engine: Vec::new(),
        };
        let line = "w1: 5 slots left; others still fetch 2 objects and parts";
        assert_eq!(step(&seen(WorkerState::Draining, 0), "w1"), Step::GoesOn(line.to_owned()));
        let lacking = format!("{line}; 4 have fewer copies than writeReplicas asks for");
        assert_eq!(step(&seen(WorkerState::Draining, 4), "w1"), Step::GoesOn(lacking));
        assert_eq!(step(&seen(WorkerState::Drained, 0), "w1"), Step::Stops);
        assert_eq!(step(&seen(WorkerState::Live, 0), "w3"), Step::Drained);
        for state in [WorkerState::Live, WorkerState::Left, WorkerState::Lost] {
            assert!(matches!(step(&seen(state, 0), "w1"), Step::Failed(_)), "{state:?}");
        }
    }
}
