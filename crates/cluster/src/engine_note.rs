//! Notes in the store how far the engine was. An engine that was brought back from an older backup has lost what was
//! acknowledged since, and knows nothing of its bytes. A start must notice that before it removes these bytes.

use bytes::Bytes;
use forebay_catalog::{Engine, ErrorKind, Result, records};
use forebay_store::{Store, ValueWrite};

use crate::generations::raise_generations;
use crate::incarnations::incarnations_of;
use crate::layout::{SHARED_PREFIX, WORKERS_PREFIX, WorkerId};
use crate::shared_revision::Revision;
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

/// Whether a worker of a cluster has written to this store.
pub(crate) fn has_engine_note(store: &Store) -> bool {
    store.value(ENGINE_KEY).is_some()
}

/// Compares the engine with what this store has last seen of it. For a worker that has not begun yet. What counts is
/// the record of the worker that the store had then: it may have another name now, for example that of a new machine.
///
/// # Errors
/// `Corrupt` for a record that can't be decoded; whatever the engine answers.
pub async fn older_engine(engine: &dyn Engine, store: &Store) -> Result<Option<OlderEngine>> {
    let noted = store.value(ENGINE_KEY).map(|noted| noted.value).unwrap_or_default();
    let Some((numbers, name)) = noted.split_first_chunk::<24>() else { return Ok(None) };
    let numbers = numbers.as_chunks::<8>().0;
    let [life, number, seen] = [0, 1, 2].map(|index| u64::from_be_bytes(numbers[index]));
    let key = [WORKERS_PREFIX, name].concat();
    let Some(found) = engine.get(&key).await? else { return Ok(Some(OlderEngine { seen, found: 0 })) };
    let record = WorkerRecord::decode(&found.value)?;
    let lives = incarnations_of(store);
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

/// Prepares an engine that was restored from a backup, before this worker begins on it. New writes get generations that
/// no write since the backup had, and all workers learn at their next start which records may be stale.
///
/// # Errors
/// `Corrupt` for a record that can't be decoded; whatever the engine answers. Another try is safe.
pub async fn accept_older_engine(engine: &dyn Engine, store: &Store, now_ms: u64) -> Result<()> {
    let restored = raise_generations(engine, store, now_ms).await?;
    let key: Bytes = [SHARED_PREFIX, records::RESTORED_KEY].concat().into();
    loop {
        let revision = Revision::read(engine).await?;
        let value = Some(Bytes::copy_from_slice(&restored.0.to_be_bytes()));
        let writes = [ValueWrite { key: key.clone(), value }, revision.write_next()];
        match engine.commit(&[revision.check()], &writes).await {
            Ok(_) => return Ok(()),
            // Another worker has changed shared records.
            Err(error) if error.kind == ErrorKind::Conflict => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_catalog::{Generations, MemoryEngine, SlotCount};
    use forebay_env::Env;
    use forebay_env::disk::memory::MemoryDisk;
    use forebay_store::{Commit, Settings};
    use forebay_types::Durability;

    use super::*;
    use crate::generations::Blocks;
    use crate::incarnations::Incarnations;
    use crate::layout::{record_key, worker_key};
    use crate::worker_record::WorkerState;

    #[tokio::test]
    async fn an_engine_that_was_brought_back_from_a_backup_is_older_than_what_was_seen() {
        let ((env, _), disk) = (Env::simulated(1), MemoryDisk::default());
        let store = Store::open(env.clone(), vec![Arc::new(disk)], Settings::new(vec![64 << 20]), None).await.unwrap();
        let [worker, other] = ["a", "b"].map(|name| WorkerId::new(name).unwrap());
        let mut lives = Vec::new();
        for _ in 0..3 {
            lives.push(Incarnations::begin(&env, &store).await.own);
        }
        let note = async |life, number, version| {
            let writes = vec![engine_note(&worker, Position { life, number, version })];
            store.commit(Commit { writes, ..Commit::default() }, Durability::Fsync).await.unwrap();
        };
        // An engine in which the record of the worker has this version. That of the other one, whose name this process
        // may have by now, tells of a later life.
        let engine = async |life, number, state, writes: u64| {
            let engine = MemoryEngine::default();
            let later = WorkerRecord { life: lives[2], number: 90, state: WorkerState::Live };
            let records = [(&worker, WorkerRecord { life, number, state }), (&other, later)];
            let records =
                records.map(|(name, record)| ValueWrite { key: worker_key(name), value: Some(record.encode()) });
            for _ in 0..writes {
                engine.commit(&[], &records).await.unwrap();
            }
            engine
        };
        let older = async |engine: &MemoryEngine| older_engine(engine, &store).await.unwrap();
        let (live, lost) = (WorkerState::Live, WorkerState::Lost);
        assert_eq!(older(&MemoryEngine::default()).await, None, "nothing is noted");
        note(lives[1], 40, 7).await;
        assert_eq!(older(&MemoryEngine::default()).await, Some(OlderEngine { seen: 7, found: 0 }));
        let check = async |life, number, state, version, is_older: bool| {
            let found = older(&engine(life, number, state, version).await).await;
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

    #[tokio::test]
    async fn all_workers_learn_that_an_older_engine_was_accepted() {
        let ((env, _), disk) = (Env::simulated(1), MemoryDisk::default());
        let store = Store::open(env.clone(), vec![Arc::new(disk)], Settings::new(vec![64 << 20]), None).await.unwrap();
        let engine: Arc<dyn Engine> = Arc::<MemoryEngine>::default();
        let before = Blocks::take(&env, &engine, 1000).await.unwrap().next();
        let shown = Revision::read(engine.as_ref()).await.unwrap();
        for _ in 0..2 {
            accept_older_engine(engine.as_ref(), &store, 1000).await.unwrap();
        }
        let (worker, slots) = (WorkerId::new("new").unwrap(), SlotCount::new(1024).unwrap());
        let found = engine.get(&record_key(records::RESTORED_KEY, &worker, slots)).await.unwrap().unwrap();
        let restored = u64::from_be_bytes(found.value.as_ref().try_into().unwrap());
        let after = Blocks::take(&env, &engine, 1000).await.unwrap().next();
        assert!(before.0 < restored && restored < after.0, "{before:?}, {restored}, {after:?}");
        assert_ne!(Revision::read(engine.as_ref()).await.unwrap(), shown, "those that run take it over");
    }
}
