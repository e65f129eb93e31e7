//! Clients do not wait for a disk that does not answer.

use std::sync::Arc;
use std::time::Duration;

use forebay_store::{PATIENCE, Stalled};

use crate::worker::Worker;
use crate::{Error, ErrorKind, Result, to_the_end};

/// How often disks are looked at while changes wait. One task does it for all: a timer for each change would cost a
/// tenth of a small PUT.
const INTERVAL: Duration = Duration::from_secs(PATIENCE.as_secs() / 5);

impl Worker {
    /// Whether a change can be begun. Before its body is asked for, and again before what it has become.
    ///
    /// # Errors
    /// `SlowDown` when no disk answers.
    pub(crate) fn check_disks(&self) -> Result<()> {
        if self.store.stalled() != Stalled::Everywhere {
            return Ok(());
        }
        self.metrics.rejected_disk_stalled.inc();
        Err(Error::new(ErrorKind::SlowDown, "the cache's disks do not answer"))
    }

    /// As [`to_the_end`], for a change that a client waits for. With several disks it is not known which of them a
    /// change needs: one that waits for the under store as long as this while some disk does not answer gets no answer
    /// either.
    ///
    /// # Errors
    /// `SlowDown` when no disk answers in the beginning, `Unavailable` when the change has waited for one: it may yet
    /// be done.
    pub(crate) fn unless_stalled<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> {
        let begun = self.check_disks().map(|()| to_the_end(work));
        self.answer_of(begun)
    }

    async fn answer_of<T>(self: &Arc<Self>, begun: Result<impl Future<Output = Result<T>>>) -> Result<T> {
        let mut done = std::pin::pin!(begun?);
        let impatient = self.env.clock.monotonic() + PATIENCE;
        loop {
            tokio::select! { biased; done = &mut done => return done, () = self.disk_stalled.notified() => {} }
            if self.env.clock.monotonic() >= impatient {
                self.metrics.rejected_disk_stalled.inc();
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "a disk of the cache does not answer: the change may be done when it does",
                ));
            }
        }
    }

    /// Tells changes that wait when a disk does not answer.
    pub(crate) async fn stall_loop(self: Arc<Self>) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.env.clock.sleep(INTERVAL) => {}
            }
            if self.store.stalled() != Stalled::Nowhere {
                self.disk_stalled.notify_waiters();
            }
        }
    }
}
