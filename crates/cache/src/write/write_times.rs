//! The times of writes. A write never gets an earlier time than a previous one, even when the clock jumps or the
//! process restarts. Otherwise a client that compares times would take a newer object for an older one.

use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::records::LAST_WRITE_KEY;
use forebay_catalog::{Catalog, Transaction};
use forebay_env::Env;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_store::ValueWrite;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use crate::{Error, ErrorKind, Result};

/// How far the recorded time is ahead of the write that records it. The time is recorded once per interval of this
/// length, and right after a crash the times of writes may be late by as much.
const AHEAD_MS: u64 = 1000;

/// A recorded time that is further ahead of the clock at a start came from a wrong clock. It is better to go back once
/// than to give all writes the same time for years.
const BELIEVED_MS: u64 = 24 * 60 * 60 * 1000;

pub(crate) struct WriteTimes {
    env: Env,
    catalog: Arc<dyn Catalog>,
    /// The last time that was assigned.
    last_ms: AtomicU64,
    /// The time that is recorded in the catalog. No later time may become visible before it is recorded.
    noted_ms: AtomicU64,
    noting: AsyncMutex<()>,
}

impl WriteTimes {
    /// # Errors
    /// Whatever the catalog answers.
    pub(crate) async fn load(env: &Env, catalog: &Arc<dyn Catalog>) -> Result<Self> {
        let noted_ms = match catalog.last_write().await? {
            Some(found) => decode(&found)?,
            None => 0,
        };
        let now = env.clock.unix_ms();
        let is_believed = noted_ms <= now.saturating_add(BELIEVED_MS);
        if !is_believed {
            tracing::warn!(
                noted_ms,
                now_ms = now,
                "the time of the last write is more than a day in the future, and is ignored: check the clock of this machine (NTP)"
            );
        }
        Ok(Self {
            env: env.clone(),
            catalog: Arc::clone(catalog),
            last_ms: AtomicU64::new(if is_believed { noted_ms } else { 0 }),
            noted_ms: AtomicU64::new(if is_believed { noted_ms } else { 0 }),
            noting: AsyncMutex::default(),
        })
    }

    /// Another worker may have noted a later time.
    ///
    /// # Errors
    /// Whatever the catalog answers.
    pub(crate) async fn reload(&self) -> Result<()> {
        let Some(found) = self.catalog.last_write().await? else { return Ok(()) };
        let noted_ms = decode(&found)?;
        if noted_ms <= self.env.clock.unix_ms().saturating_add(BELIEVED_MS) {
            self.seen(noted_ms);
        }
        Ok(())
    }

    /// Learns of a write with this time.
    pub(crate) fn seen(&self, time_ms: u64) {
        self.last_ms.fetch_max(time_ms, Ordering::SeqCst);
    }

    /// The time of a write that is made now. Pass it to [`WriteTimes::note`] before the write becomes visible.
    pub(crate) fn next(&self) -> u64 {
        let now = self.env.clock.unix_ms();
        self.last_ms.fetch_max(now, Ordering::SeqCst).max(now)
    }

    /// Makes sure that the next start knows of this time.
    ///
    /// # Errors
    /// `Unavailable`, whatever the reason: the write itself may be done.
    pub(crate) async fn note(&self, time_ms: u64) -> Result<()> {
        let Some(note) = self.begin_note(time_ms).await else { return Ok(()) };
        let committed = self.catalog.commit(Transaction { writes: vec![note.write()], ..Transaction::default() }).await;
        committed.map_err(|error| Error {
            source: Some(error.into()),
            ..Error::new(ErrorKind::Unavailable, "the time of a write could not be noted")
        })?;
        note.end();
        Ok(())
    }

    /// What to commit so that the next start knows of this time; `None` if it knows already.
    pub(crate) async fn begin_note(&self, time_ms: u64) -> Option<Note<'_>> {
        let is_noted = || time_ms <= self.noted_ms.load(Ordering::SeqCst);
        if is_noted() {
            return None;
        }
        let noting = self.noting.lock().await;
        (!is_noted()).then_some(Note { times: self, ahead_ms: time_ms + AHEAD_MS, _noting: noting })
    }
}

/// A time that is about to be recorded. There is only one at a time, so that an earlier time is never committed after a
/// later one.
pub(crate) struct Note<'a> {
    times: &'a WriteTimes,
    ahead_ms: u64,
    _noting: MutexGuard<'a, ()>,
}

impl Note<'_> {
    pub(crate) fn write(&self) -> ValueWrite {
        let value = Some(Bytes::copy_from_slice(&self.ahead_ms.to_be_bytes()));
        ValueWrite { key: Bytes::from_static(LAST_WRITE_KEY), value }
    }

    /// Call this after the commit.
    pub(crate) fn end(self) {
        self.times.noted_ms.store(self.ahead_ms, Ordering::SeqCst);
    }
}

fn decode(value: &[u8]) -> Result<u64> {
    let bytes =
        value.try_into().map_err(|_| Error::new(ErrorKind::Internal, "the catalog's time of writes is damaged"))?;
    Ok(u64::from_be_bytes(bytes))
}
