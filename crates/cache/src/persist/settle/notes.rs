//! Records in the catalog how long this process has waited, so that the next start does not wait from the beginning.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::records::{self, SETTLED_KEY};
use forebay_catalog::{TRANSACTION_MAX, Transaction};
use forebay_env::sync::atomic::Ordering;
use forebay_store::ValueWrite;
use forebay_types::Durability;

use super::earlier::Step;
use crate::worker::Worker;
use crate::write::change::end_intent;
use crate::{Error, ErrorKind, Result, to_the_end};

/// A note that takes longer is retried, because one disk may have stalled and another may accept it.
const NOTE_MAX: Duration = Duration::from_secs(10);

impl Worker {
    /// Records how long this process has waited, and releases keys whose requests can no longer land.
    pub(crate) async fn settle_loop(self: Arc<Self>) {
        while let Some(step) = self.home.settle.step() {
            let pause = step.pause;
            Arc::clone(&self).take_step(step).await;
            if self.home.settle.step().is_none() {
                break;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.env.clock.sleep(pause) => {}
            }
        }
        if let Err(error) = self.home.stale_records.note(self.catalog.as_ref()).await {
            tracing::warn!(%error, "could not record that the wait after a loss of records is over: the next start waits, and checks for stale records, again");
        }
        self.stop.cancelled().await;
    }

    async fn take_step(self: Arc<Self>, mut step: Step) {
        if !step.is_noted {
            let durability = if step.takes_back { Durability::Fsync } else { Durability::Os };
            let (worker, note) = (Arc::clone(&self), step.note.clone());
            let noted = to_the_end(async move { worker.note_settled(note, durability).await });
            let noted = tokio::select! {
                biased;
                noted = noted => noted,
                () = self.env.clock.sleep(NOTE_MAX) => Err(Error::new(ErrorKind::Unavailable, "the disk does not answer")),
            };
            if let Err(error) = noted {
                tracing::warn!(%error, "could not record how much of cache.settle_time has passed: after a restart, uploads wait for it again");
                // If a failed disk cannot record the note, its data should go where it is safe while it can be read. A
                // full disk has changed nothing.
                let now = self.env.clock.awake();
                if error.kind == ErrorKind::SlowDown || !self.home.settle.earlier.lock().is_waited_out(now) {
                    return;
                }
            } else {
                step.is_noted = true;
            }
        }
        self.home.settle.earlier.lock().done(step);
    }

    /// Removes the note, and writes no more. The next start waits for everything that it finds.
    pub(crate) async fn forget_settled(&self) -> Result<()> {
        let mut has_gained = self.home.settle.has_gained.lock().await;
        if *has_gained {
            return Ok(());
        }
        let writes = vec![ValueWrite { key: Bytes::from_static(SETTLED_KEY), value: None }];
        self.catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
        // Only now: as long as there is a note, it must be withdrawn before something is sent that it covers.
        *has_gained = true;
        Ok(())
    }

    async fn note_settled(&self, note: Option<Bytes>, durability: Durability) -> Result<()> {
        let has_gained = self.home.settle.has_gained.lock().await;
        if *has_gained {
            return Ok(());
        }
        let writes = vec![ValueWrite { key: Bytes::from_static(SETTLED_KEY), value: note }];
        self.catalog.commit(Transaction { writes, durability, ..Transaction::default() }).await?;
        Ok(())
    }

    /// Called at a stop. When the under store has answered all requests, the next start does not have to wait.
    pub(crate) async fn note_answered(&self) -> Result<()> {
        // Must come first: from here on, a task that gets a key's lock sends nothing.
        self.home.settle.is_closed.store(true, Ordering::SeqCst);
        let now = self.env.clock.awake();
        let is_answered =
            self.home.upload_locks.is_empty() && self.home.settle.unsettled.lock().values().all(|until| *until <= now);
        if !is_answered || !self.end_requests(now).await? {
            return Ok(());
        }
        let quiet = self.next_generation();
        let note = self.home.settle.earlier.lock().note(now, Some(quiet));
        self.note_settled(note, Durability::Fsync).await
    }

    /// Ends all recorded write intents, unless one of the requests may still land. Every request in flight has an
    /// intent.
    async fn end_requests(&self, now: Duration) -> Result<bool> {
        let mut range = records::all_requests_range();
        while let Some(found) = self.next_records(&mut range).await? {
            let paths: Vec<_> = found.iter().filter_map(|(key, _)| records::parse_request_key(key)).collect();
            if paths.iter().any(|path| self.home.settle.is_open(path, now)) {
                return Ok(false);
            }
            let mut writes = Vec::with_capacity(paths.len());
            for path in &paths {
                if !self.is_still_told_by(path).await? {
                    writes.push(end_intent(path));
                }
            }
            for writes in writes.chunks(TRANSACTION_MAX) {
                let (writes, durability) = (writes.to_vec(), Durability::Os);
                self.catalog.commit(Transaction { writes, durability, ..Transaction::default() }).await?;
            }
        }
        Ok(true)
    }
}
