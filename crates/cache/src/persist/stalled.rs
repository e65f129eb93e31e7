//! Clients do not wait for a disk, or for the engine of a cluster, that does not answer.

use std::sync::Arc;
use std::time::Duration;

use forebay_store::{STALLED_AFTER, Stalled};

use crate::worker::Worker;
use crate::{Error, ErrorKind, Result, to_the_end};

/// How often disks are checked while changes wait. One task does this for all changes, because a timer for each change
/// would cost a tenth of a small PUT.
const INTERVAL: Duration = Duration::from_secs(STALLED_AFTER.as_secs() / 5);

impl Worker {
    /// Whether this worker is the home of nothing at the moment, because the engine of its cluster does not answer.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.catalog.lease() == Some(Duration::ZERO)
    }

    /// Whether a change can begin. Called before its body is requested, and again before the change is made.
    ///
    /// # Errors
    /// `SlowDown` when no disk answers; `Unavailable` without the engine.
    pub(crate) fn check_disks(&self) -> Result<()> {
        if self.is_cut_off() {
            return Err(Error::new(ErrorKind::Unavailable, "the engine of the cluster does not answer"));
        }
        if self.store.stalled() != Stalled::Everywhere {
            return Ok(());
        }
        self.metrics.rejected_disk_stalled.inc();
        Err(Error::new(ErrorKind::SlowDown, "the cache's disks do not answer"))
    }

    /// Like [`to_the_end`], for a change that a client waits for. With several disks, it is not known which of them a
    /// change needs. If some disk does not answer, a change that waits as long as this for the under store gets no
    /// answer either.
    ///
    /// # Errors
    /// As [`Worker::check_disks`] at the start. `Unavailable` when the change has waited too long for a disk or the
    /// engine: it may still be done later.
    pub(crate) fn unless_stalled<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> {
        let begun = self.check_disks().map(|()| to_the_end(work));
        self.answer_of(begun)
    }

    async fn answer_of<T>(self: &Arc<Self>, begun: Result<impl Future<Output = Result<T>>>) -> Result<T> {
        let mut done = std::pin::pin!(begun?);
        let give_up_at = self.env.clock.monotonic() + STALLED_AFTER;
        loop {
            tokio::select! { biased; done = &mut done => return done, () = self.disk_stalled.notified() => {} }
            if self.env.clock.monotonic() < give_up_at {
                continue;
            }
            if self.is_cut_off() {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "the engine of the cluster does not answer: the change may still be carried out, so check before you retry",
                ));
            }
            if self.store.stalled() != Stalled::Nowhere {
                self.metrics.rejected_disk_stalled.inc();
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "a disk of the cache does not answer: the change may be done when it does",
                ));
            }
        }
    }

    /// Wakes waiting changes when a disk or the engine does not answer.
    pub(crate) async fn stall_loop(self: Arc<Self>) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.env.clock.sleep(INTERVAL) => {}
            }
            if self.store.stalled() != Stalled::Nowhere || self.is_cut_off() {
                self.disk_stalled.notify_waiters();
            }
        }
    }
}
