//! Runs jobs, each in a task of its own, as they get their turns.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::Requester;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::run::Run;
use super::table::Entry;
use super::{JobKind, JobState, free, load, persist, scrub, verify};
use crate::Error;
use crate::worker::Worker;

/// After a start, how often a worker of a cluster checks whether it knows the others.
const OTHERS_PAUSE: Duration = Duration::from_millis(100);

/// The end of a run.
enum Ended {
    Done,
    Failed(Error),
    /// Cancelled, or the process stops.
    Stopped,
}

impl Worker {
    /// Begins jobs when it is their turn. Ends when the worker stops and all jobs have stopped.
    pub(crate) async fn job_loop(self: Arc<Self>) {
        // Workers share the limits of jobs.
        while self.others.as_ref().is_some_and(|others| !others.are_known()) {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.env.clock.sleep(OTHERS_PAUSE) => {}
            }
        }
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                // Checked first: a worker that stops begins no job.
                () = self.stop.cancelled() => break,
                Some(()) = running.next() => {}
                entry = self.jobs.next(|| self.env.clock.unix_ms()) => {
                    self.jobs.observe(&self.metrics);
                    running.push(forebay_env::spawn(Arc::clone(&self).run_job(entry)).join());
                }
            }
        }
        while running.next().await.is_some() {}
    }

    async fn run_job(self: Arc<Self>, entry: Arc<Entry>) {
        let run = match Run::new(&self, &entry) {
            Ok(run) => run,
            Err(error) => return self.fail_job(&entry, error.to_string()).await,
        };
        // The jobs of a user leave as much to others as the requests of one access key do.
        let requester = Requester::named(&entry.job().created_by);
        // A panic must not end the process: the job is in the catalog, and would end each following process as well.
        let ended = loop {
            match AssertUnwindSafe(requester.gets(to_its_end(&run))).catch_unwind().await {
                Ok(Ended::Failed(error)) if run.may_run_again(&error).await => {}
                Ok(ended) => break ended,
                Err(_) => {
                    tracing::error!(job = run.entry.job().id, "a job has panicked");
                    let error = "internal error: the job has panicked. Report the panic message from standard error";
                    return self.fail_job(&entry, error.to_owned()).await;
                }
            }
        };
        match ended {
            Ended::Done => {
                if self.end_pass(&entry, None).await {
                    self.end_job(&entry, JobState::Done, None).await;
                } else {
                    self.save_for_next_start(&entry).await;
                }
            }
            Ended::Failed(_) | Ended::Stopped if entry.cancel.is_cancelled() => {
                self.note_stopped_share(&entry).await;
                self.end_job(&entry, JobState::Cancelled, None).await;
            }
            // The next start continues the job.
            Ended::Failed(_) | Ended::Stopped if self.stop.is_cancelled() => self.save_for_next_start(&entry).await,
            // It has tried all objects of its share, and so shall the others.
            Ended::Failed(error) if run.request.kind == JobKind::Persist && run.is_share() => {
                let error = error.to_string();
                if self.end_pass(&entry, Some(error.clone())).await {
                    self.end_job(&entry, JobState::Failed, Some(error)).await;
                } else {
                    self.save_for_next_start(&entry).await;
                }
            }
            Ended::Failed(error) => self.fail_job(&entry, error.to_string()).await,
            Ended::Stopped => unreachable!("a run stops only on request"),
        }
    }

    async fn save_for_next_start(&self, entry: &Entry) {
        if let Err(error) = self.save_job(entry).await {
            tracing::warn!(%error, "the progress of a job could not be stored");
        }
    }

    async fn fail_job(&self, entry: &Entry, why: String) {
        self.fail_cluster_job(entry, &why).await;
        self.end_job(entry, JobState::Failed, Some(why)).await;
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
