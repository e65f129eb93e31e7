//! Notes in the store how far the engine was. An engine that was brought back from an older backup has lost what was
//! acknowledged since, and knows nothing of its bytes. A start must notice that before it removes these bytes.

use bytes::Bytes;
use forebay_catalog::{Engine, Result};
use forebay_store::{Store, ValueWrite};

use crate::layout::{WorkerId, worker_key};
use crate::lives::lives_of;
use crate::stream::Position;
use crate::worker_record::WorkerRecord;

/// The worker's last transaction that is shown here: life, number and version, eight bytes each, big-endian. Then the
/// name of the worker. In the store alone, behind the keys of the catalog.
const ENGINE_KEY: &[u8] = b"\xffengine";

/// An engine that does not have what it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OlderEngine {
    /// The version of the worker's record that was seen last.
    pub seen: u64,
    /// The one that the engine has now; 0 for none.
    pub found: u64,
}

/// Goes into the store with each change that the engine has, so no acknowledged change is newer than this note.
pub(crate) fn engine_note(worker: &WorkerId, position: Position) -> ValueWrite {
    let Position { life, number, version } = position;
    let numbers = [life, number, version].map(u64::to_be_bytes);
    let value = [numbers.as_flattened(), worker.as_str().as_bytes()].concat();
    ValueWrite { key: Bytes::from_static(ENGINE_KEY), value: Some(value.into()) }
}

/// Compares the engine with what this store has last seen of it. For a worker that has not begun yet.
///
/// # Errors
/// `Corrupt` for a record that can't be decoded; whatever the engine answers.
pub async fn older_engine(engine: &dyn Engine, store: &Store, worker: &WorkerId) -> Result<Option<OlderEngine>> {
    let noted = store.value(ENGINE_KEY).map(|noted| noted.value).unwrap_or_default();
    let Some((numbers, name)) = noted.split_first_chunk::<24>() else { return Ok(None) };
    if name != worker.as_str().as_bytes() {
        return Ok(None);
    }
    let numbers = numbers.as_chunks::<8>().0;
    let [life, number, seen] = [0, 1, 2].map(|index| u64::from_be_bytes(numbers[index]));
    let Some(found) = engine.get(&worker_key(worker)).await? else { return Ok(Some(OlderEngine { seen, found: 0 })) };
    let record = WorkerRecord::decode(&found.value)?;
    let lives = lives_of(store);
    let place = |life: u64| lives.iter().position(|known| *known == life);
    let is_older = match (place(record.life), place(life)) {
        // Others may have written the record since, to end its lease: that raises the version alone.
        _ if record.life == life => record.number < number,
        (Some(record), Some(noted)) => record < noted,
        // The note is of a life before all that are known.
        (Some(_), None) => false,
        // Of a process of this name with other disks.
        (None, _) => found.version < seen,
    };
    Ok(is_older.then_some(OlderEngine { seen, found: found.version }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_catalog::MemoryEngine;
    use forebay_env::Env;
    use forebay_env::disk::memory::MemoryDisk;
    use forebay_store::{Commit, Settings};
    use forebay_types::Durability;

    use super::*;
    use crate::lives::Lives;
    use crate::worker_record::WorkerState;

    #[tokio::test]
    async fn an_engine_that_was_brought_back_from_a_backup_is_older_than_what_was_seen() {
        let ((env, _), disk) = (Env::simulated(1), MemoryDisk::default());
        let store = Store::open(env.clone(), vec![Arc::new(disk)], Settings::new(vec![64 << 20]), None).await.unwrap();
        let [worker, other] = ["a", "b"].map(|name| WorkerId::new(name).unwrap());
        let mut lives = Vec::new();
        for _ in 0..3 {
            lives.push(Lives::begin(&env, &store).await.own);
        }
        let note = async |life, number, version| {
            let writes = vec![engine_note(&worker, Position { life, number, version })];
            store.commit(Commit { writes, ..Commit::default() }, Durability::Fsync).await.unwrap();
        };
        // An engine in which the record of the worker has this version.
        let engine = async |life, number, state, writes: u64| {
            let engine = MemoryEngine::default();
            let value = Some(WorkerRecord { life, number, state }.encode());
            for _ in 0..writes {
                engine.commit(&[], &[ValueWrite { key: worker_key(&worker), value: value.clone() }]).await.unwrap();
            }
            engine
        };
        let older = async |engine: &MemoryEngine, worker| older_engine(engine, &store, worker).await.unwrap();
        let (live, lost) = (WorkerState::Live, WorkerState::Lost);
        assert_eq!(older(&MemoryEngine::default(), &worker).await, None, "nothing is noted");
        note(lives[1], 40, 7).await;
        assert_eq!(older(&MemoryEngine::default(), &worker).await, Some(OlderEngine { seen: 7, found: 0 }));
        assert_eq!(older(&MemoryEngine::default(), &other).await, None, "the note is of another worker");
        let check = async |life, number, state, version, is_older: bool| {
            let found = older(&engine(life, number, state, version).await, &worker).await;
            let expected = is_older.then_some(OlderEngine { seen: 7, found: version });
            assert_eq!(found, expected, "{number} {state:?} {version}");
        };
        check(lives[1], 40, live, 7, false).await;
        check(lives[1], 41, live, 8, false).await;
        check(lives[1], 39, live, 6, true).await;
        // Another worker that started on the restored engine has ended this one, which raised the version.
        check(lives[1], 39, lost, 9, true).await;
        check(lives[0], 90, lost, 9, true).await;
        check(lives[2], 1, live, 3, false).await;
        let unknown = lives[0] ^ lives[1];
        check(unknown, 1, live, 6, true).await;
        check(unknown, 1, live, 7, false).await;
    }
}
