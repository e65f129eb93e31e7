//! Notes in the store how far the engine was. An engine that was brought back from an older backup has lost what was
//! acknowledged since, and knows nothing of its bytes. A start must notice that before it removes these bytes.

use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::{Engine, Result};
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_env::{Env, Task};
use forebay_store::{Commit, Store, ValueWrite};
use forebay_types::Durability;

use crate::layout::{WorkerId, worker_key};

/// The version of the worker's record, which each renewal of its lease raises: eight bytes, big-endian. Then the name
/// of the worker. In the store alone, behind the keys of the catalog.
const ENGINE_KEY: &[u8] = b"\xffengine";

/// How often the version is noted at most. A backup is hardly ever more recent.
const INTERVAL: Duration = Duration::from_secs(2);

/// An engine that does not have what it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OlderEngine {
    /// The version of the worker's record that was seen last.
    pub seen: u64,
    /// The one that the engine has now; 0 for none.
    pub found: u64,
}

/// Compares the engine with what this store has last seen of it. For a worker that has not begun yet.
///
/// # Errors
/// Whatever the engine answers.
pub async fn older_engine(engine: &dyn Engine, store: &Store, worker: &WorkerId) -> Result<Option<OlderEngine>> {
    let noted = store.value(ENGINE_KEY).map(|noted| noted.value).unwrap_or_default();
    let Some((version, name)) = noted.split_first_chunk::<8>() else { return Ok(None) };
    if name != worker.as_str().as_bytes() {
        return Ok(None);
    }
    let seen = u64::from_be_bytes(*version);
    let found = engine.get(&worker_key(worker)).await?.map_or(0, |found| found.version);
    Ok((found < seen).then_some(OlderEngine { seen, found }))
}

/// What this process has noted.
#[derive(Default)]
pub(crate) struct EngineNotes {
    /// How many commits the engine has done for this process.
    commits: AtomicU64,
    last: Mutex<Option<Note>>,
}

struct Note {
    commits: u64,
    at: Duration,
    task: Task<()>,
}

impl EngineNotes {
    /// The engine has done a commit.
    pub(crate) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::SeqCst);
    }

    /// What [`EngineNotes::note`] needs, from before the version was read.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Notes the version of the worker's record in the background, unless that was done a moment ago. After the first
    /// time only when there were commits since: a worker that only renews its lease writes nothing to its disks.
    pub(crate) fn note(&self, env: &Env, store: &Store, worker: &WorkerId, commits: u64, version: u64) {
        let (mut last, now) = (self.last.lock(), env.clock.monotonic());
        let is_due = |last: &Note| last.commits != commits && now >= last.at + INTERVAL && last.task.is_finished();
        if !last.as_ref().is_none_or(is_due) {
            return;
        }
        let value = [&version.to_be_bytes(), worker.as_str().as_bytes()].concat();
        let write = ValueWrite { key: Bytes::from_static(ENGINE_KEY), value: Some(value.into()) };
        let (store, commit) = (store.clone(), Commit { writes: vec![write], ..Commit::default() });
        let task = forebay_env::spawn(async move {
            if let Err(error) = store.commit(commit, Durability::Os).await {
                tracing::debug!(%error, "how far the engine was could not be noted");
            }
        });
        *last = Some(Note { commits, at: now, task });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_catalog::MemoryEngine;
    use forebay_env::disk::memory::MemoryDisk;
    use forebay_store::Settings;

    use super::*;

    #[tokio::test]
    async fn an_engine_that_was_brought_back_from_a_backup_is_older_than_what_was_seen() {
        let ((env, clock), disk) = (Env::simulated(1), MemoryDisk::default());
        let store = Store::open(env.clone(), vec![Arc::new(disk)], Settings::new(vec![64 << 20]), None).await.unwrap();
        let [worker, other] = ["a", "b"].map(|name| WorkerId::new(name).unwrap());
        let write = [ValueWrite { key: worker_key(&worker), value: Some(Bytes::from_static(b"record")) }];
        let engine = MemoryEngine::default();
        let backup = engine.commit(&[], &write).await.unwrap();
        let seen = engine.commit(&[], &write).await.unwrap();
        assert!(backup < seen);
        assert_eq!(older_engine(&engine, &store, &worker).await.unwrap(), None, "nothing is noted");
        let notes = EngineNotes::default();
        let note = async |version| {
            notes.note(&env, &store, &worker, notes.commits(), version);
            while !notes.last.lock().as_ref().unwrap().task.is_finished() {
                tokio::task::yield_now().await;
            }
            clock.advance(INTERVAL);
        };
        note(backup).await;
        note(seen).await;
        let noted = store.value(ENGINE_KEY).unwrap().value;
        assert!(noted.starts_with(&backup.to_be_bytes()), "without a commit, a renewal of the lease is not noted");
        notes.committed();
        note(seen).await;
        assert_eq!(older_engine(&engine, &store, &worker).await.unwrap(), None);
        let restored = MemoryEngine::default();
        let lost = Some(OlderEngine { seen, found: 0 });
        assert_eq!(older_engine(&restored, &store, &worker).await.unwrap(), lost);
        assert_eq!(restored.commit(&[], &write).await.unwrap(), backup);
        let older = Some(OlderEngine { seen, found: backup });
        assert_eq!(older_engine(&restored, &store, &worker).await.unwrap(), older);
        assert_eq!(older_engine(&restored, &store, &other).await.unwrap(), None, "the note is of another worker");
    }
}
