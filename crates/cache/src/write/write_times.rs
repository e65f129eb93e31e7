//! The times of writes. None is before that of an earlier write, however the clock jumps, and whether the process was
//! restarted in between: who compares times must not take a newer object for an older one.

use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::records::LAST_WRITE_KEY;
use forebay_catalog::{Catalog, Transaction};
use forebay_env::Env;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_store::ValueWrite;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use crate::{Error, ErrorKind, Result};

/// How far the time that is noted is ahead of the write that notes it: so often it is written, and so much too late may
/// be what is written right after a crash.
const AHEAD_MS: u64 = 1000;

/// A time that is so far ahead of the clock at a start was taken from a clock that was wrong then: better to go back
/// once than to give all writes the same time for years.
const BELIEVED_MS: u64 = 24 * 60 * 60 * 1000;

pub(crate) struct WriteTimes {
    env: Env,
    catalog: Arc<dyn Catalog>,
    /// The last time that was given.
    last_ms: AtomicU64,
    /// What is noted in the catalog: no time beyond it may be shown before that is.
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
            tracing::warn!(noted_ms, now_ms = now, "the clock was more than a day ahead when it was last written");
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

    /// There is a write of this time.
    pub(crate) fn seen(&self, time_ms: u64) {
        self.last_ms.fetch_max(time_ms, Ordering::SeqCst);
    }

    /// The time of a write that is made now. It is to be given to [`WriteTimes::note`] before anybody sees it.
    pub(crate) fn next(&self) -> u64 {
        let now = self.env.clock.unix_ms();
        self.last_ms.fetch_max(now, Ordering::SeqCst).max(now)
    }

    /// Sees to it that the next start knows of this time.
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

    /// What is to be committed so that the next start knows of this time; `None` if it does.
    pub(crate) async fn begin_note(&self, time_ms: u64) -> Option<Note<'_>> {
        let is_noted = || time_ms <= self.noted_ms.load(Ordering::SeqCst);
        if is_noted() {
            return None;
        }
        let noting = self.noting.lock().await;
        (!is_noted()).then_some(Note { times: self, ahead_ms: time_ms + AHEAD_MS, _noting: noting })
    }
}

/// A time that is about to be noted. There is one at a time: an earlier one must not be committed behind a later one.
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

    /// After its commit.
    pub(crate) fn end(self) {
        self.times.noted_ms.store(self.ahead_ms, Ordering::SeqCst);
    }
}

fn decode(value: &[u8]) -> Result<u64> {
    let bytes =
        value.try_into().map_err(|_| Error::new(ErrorKind::Internal, "the catalog's time of writes is damaged"))?;
    Ok(u64::from_be_bytes(bytes))
}
