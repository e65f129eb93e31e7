//! Runs jobs in a few tasks, each of which runs one job at a time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;

use super::run::Run;
use super::table::Entry;
use super::{JobKind, JobState, free, load, persist, scrub, verify};
use crate::Error;
use crate::worker::Worker;

/// The end of a run.
enum Ended {
    Done,
    Failed(Error),
    /// Cancelled, or the process stops.
    Stopped,
}

impl Worker {
    /// One of the tasks that run jobs; ends when the worker stops.
    pub(crate) async fn job_loop(self: Arc<Self>) {
        loop {
            let entry = tokio::select! {
                biased;
                // Checked first: a worker that stops begins no job.
                () = self.stop.cancelled() => return,
                entry = self.jobs.next(|| self.env.clock.unix_ms()) => entry,
            };
            self.jobs.observe(&self.metrics);
            self.run_job(entry).await;
        }
    }

    async fn run_job(self: &Arc<Self>, entry: Arc<Entry>) {
        let run = match Run::new(self, &entry) {
            Ok(run) => run,
            Err(error) => return self.end_job(&entry, JobState::Failed, Some(error.to_string())).await,
        };
        // A panic must not end the process: the job is in the catalog, and would end each following process as well.
        let ended = match AssertUnwindSafe(to_its_end(&run)).catch_unwind().await {
            Ok(ended) => ended,
            Err(_) => {
                tracing::error!(job = run.entry.job().id, "a job has panicked");
                let error = Some("a fault of Forebay's own; the log on standard error has more".to_owned());
                return self.end_job(&entry, JobState::Failed, error).await;
            }
        };
        match ended {
            Ended::Done => self.end_job(&entry, JobState::Done, None).await,
            Ended::Stopped if entry.cancel.is_cancelled() => self.end_job(&entry, JobState::Cancelled, None).await,
            Ended::Failed(_) if entry.cancel.is_cancelled() => self.end_job(&entry, JobState::Cancelled, None).await,
            // The next start continues the job.
            Ended::Failed(_) | Ended::Stopped if self.stop.is_cancelled() => {
                if let Err(error) = self.save_job(&entry).await {
                    tracing::warn!(%error, "the progress of a job could not be stored");
                }
            }
            Ended::Failed(error) => self.end_job(&entry, JobState::Failed, Some(error.to_string())).await,
            Ended::Stopped => unreachable!("a run stops only when it is told to"),
        }
    }
}

async fn to_its_end(run: &Run) -> Ended {
    let work = match run.request.kind {
        JobKind::Load => load::run(run).boxed(),
        JobKind::Free => free::run(run).boxed(),
        JobKind::Persist => persist::run(run).boxed(),
        JobKind::Verify => verify::run(run).boxed(),
        JobKind::Scrub => scrub::run(run).boxed(),
    };
    // A request to the under store must not be dropped while it is in flight, so persist itself checks whether to stop.
    let result = if run.request.kind == JobKind::Persist {
        let result = work.await;
        if run.must_stop() {
            return Ended::Stopped;
        }
        result
    } else {
        tokio::select! {
            biased;
            // Checked first: work that has ended is not stopped any more.
            result = work => result,
            () = run.stopped() => return Ended::Stopped,
        }
    };
    match result {
        Ok(()) => Ended::Done,
        Err(error) => Ended::Failed(error),
    }
}
