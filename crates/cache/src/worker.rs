//! The worker's parts, and what all flows share: the state of an object, and its description.

use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::records::{self, ObjectRecord, State};
use forebay_catalog::{Catalog, Generations, Versioned};
use forebay_env::Env;
use forebay_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use forebay_store::{ErrorKind as StoreErrorKind, Object, Store};
use forebay_types::{ETag, Generation, ObjectInfo, ObjectPath, PathPolicy, StorageState};
use futures::FutureExt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::buckets::Buckets;
use crate::copies::HeldCopies;
use crate::home::Home;
use crate::jobs::Jobs;
use crate::metadata::{Annex, decode_info};
use crate::metrics::Metrics;
use crate::others::OtherWorkers;
use crate::policies::Policies;
use crate::read::fetches::Fetches;
use crate::read::memory_tier::{MemoryObject, MemoryTier};
use crate::read::read_ahead::ReadAhead;
use crate::read_leases::HeldLeases;
use crate::space::Space;
use crate::{Error, ErrorKind, Result, Settings};

/// A lookup in the catalog and then in the store can hit a commit between the two, and the retry can hit the next
/// commit. It does not do so this often.
const LOCATE_TRIES: usize = 100;

/// Records of the catalog that are read at once.
const SCAN_RECORDS: usize = 1000;

/// One process: its disks, its memory, its under stores, and the keys that are at home here.
pub(crate) struct Worker {
    pub(crate) env: Env,
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) catalog: Arc<dyn Catalog>,
    /// `None` when this worker is alone.
    pub(crate) others: Option<Arc<dyn OtherWorkers>>,
    pub(crate) buckets: Buckets,
    pub(crate) policies: Policies,
    pub(crate) memory: MemoryTier,
    pub(crate) metrics: Metrics,
    pub(crate) space: Space,
    pub(crate) jobs: Jobs,
    pub(crate) fetches: Fetches,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) generations: Arc<dyn Generations>,
    /// Wakes waiting changes when some disk does not answer.
    pub(crate) disk_stalled: Notify,
    pub(crate) home: Home,
    /// Copies of keys that are at home elsewhere.
    pub(crate) held: HeldCopies,
    /// What may be read of such keys without asking.
    pub(crate) held_leases: HeldLeases,
    /// Of [`Catalog::shared_changes`], those that policies and buckets know.
    pub(crate) known_changes: AtomicU64,
    /// See [`crate::Cache::set_catalog_nearly_full`].
    pub(crate) is_catalog_nearly_full: AtomicBool,
    pub(crate) stop: CancellationToken,
}

/// The state of an object.
pub(crate) enum Located {
    /// The catalog has a record: the object is dirty, transient or in conflict, and its bytes are here.
    Here { record: ObjectRecord, object: Object },
    /// Deleted here. The under store may not know yet.
    Deleted,
    /// The catalog has no record, so the under store decides. A clean copy may be here.
    Elsewhere { copy: Option<Object> },
}

/// A catalog record and its version when it was read.
pub(crate) struct Current {
    pub(crate) record: Option<ObjectRecord>,
    pub(crate) version: Option<u64>,
}

impl Current {
    /// Whether a change of the key waits for the under store.
    pub(crate) fn waits(&self) -> bool {
        self.record.as_ref().is_some_and(|record| matches!(record.state, State::Dirty | State::Tombstone))
    }

    /// Since when the under store lacks a version, after a write of `now`: its generation and its time.
    pub(crate) fn dirty_since(&self, now: (Generation, u64)) -> (Generation, u64) {
        let waiting = self.record.as_ref().filter(|_| self.waits());
        waiting.map_or(now, |record| (record.dirty_since, record.dirty_since_ms))
    }
}

impl Worker {
    /// See [`forebay_catalog::Generations::next`].
    pub(crate) fn next_generation(&self) -> Generation {
        self.generations.next()
    }

    /// Takes over the policies and buckets that other workers have changed until now.
    pub(crate) async fn follow_shared(&self) -> Result<()> {
        self.catalog.follow_shared().await?;
        let changes = self.catalog.shared_changes();
        if self.known_changes.load(Ordering::SeqCst) != changes {
            self.follow_policies().await?;
            self.buckets.follow().await?;
            self.forget_gone().await;
            self.jobs.look();
            // Only now: what has failed is done again.
            self.known_changes.store(changes, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The next records of a range of the catalog. The range then begins after them. `None` at its end.
    pub(crate) async fn next_records(&self, range: &mut (Bytes, Bytes)) -> Result<Option<Vec<(Bytes, Versioned)>>> {
        let found = self.catalog.scan(&range.0, &range.1, SCAN_RECORDS).await?;
        let Some((last, _)) = found.last() else { return Ok(None) };
        range.0 = records::successor(last);
        Ok(Some(found))
    }

    pub(crate) async fn current(&self, path: &ObjectPath) -> Result<Current> {
        match self.catalog.get(&records::object_key(path)).await? {
            Some(versioned) => {
                let record = ObjectRecord::decode(&versioned.value)?;
                Ok(Current { record: Some(record), version: Some(versioned.version) })
            }
            None => Ok(Current { record: None, version: None }),
        }
    }

    /// Whether the catalog has a record of the key. If so, an answer that the under store gave in the meantime must not
    /// be used: it may show a write that was never recorded, and the local version would reappear after it.
    pub(crate) async fn is_here(&self, path: &ObjectPath) -> Result<bool> {
        Ok(self.current(path).await?.record.is_some())
    }

    /// # Errors
    /// `Unavailable` when the catalog names a version whose bytes are not here: never an older one, never "not found".
    pub(crate) async fn locate(&self, path: &ObjectPath) -> Result<Located> {
        self.locate_by(path, |key| self.store.get(key)).await
    }

    /// Like [`Worker::locate`], but does not count as a read.
    pub(crate) async fn look_at(&self, path: &ObjectPath) -> Result<Located> {
        self.locate_by(path, |key| self.store.peek(key)).await
    }

    async fn locate_by(&self, path: &ObjectPath, find: impl Fn(&[u8]) -> Option<Object>) -> Result<Located> {
        let key = records::object_key(path);
        let mut version = None;
        for _ in 0..LOCATE_TRIES {
            let current = self.current(path).await?;
            let object = find(&key);
            match (current.record, object) {
                (None, Some(object)) if object.is_pinned() => {}
                (None, copy) => return Ok(Located::Elsewhere { copy }),
                (Some(record), object) => match record.state {
                    State::Tombstone => return Ok(Located::Deleted),
                    State::Dirty | State::Transient | State::Conflict => match object {
                        Some(object) if object.generation() == record.generation => {
                            return Ok(Located::Here { record, object });
                        }
                        _ if version != current.version => version = current.version,
                        _ if self.may_be_elsewhere(&record.holders) => {
                            self.await_bytes(key.clone(), path).boxed().await?
                        }
                        _ => return Err(lost(path, &record)),
                    },
                },
            }
            self.store.await_shown();
        }
        Err(Error::new(ErrorKind::Unavailable, format!("{path} changes faster than it can be looked up")))
    }

    /// The description of an object in the store, from memory or from disk.
    pub(crate) async fn info_of(&self, policy: &PathPolicy, object: &Object) -> Result<Arc<ObjectInfo>> {
        if let Some(found) = self.memory.get(policy, object.generation()) {
            return Ok(found.info);
        }
        let metadata = match object.metadata().await {
            Err(error) if error.kind == StoreErrorKind::Corrupt => self.metadata_of_copy(object, error).boxed().await?,
            metadata => metadata?,
        };
        let info = Arc::new(decode_info(&metadata)?);
        self.memory.insert(policy, object.generation(), MemoryObject::new(Arc::clone(&info), None));
        Ok(info)
    }

    /// Reads a damaged description in the copy of another worker, which takes the place of the damaged object.
    async fn metadata_of_copy(&self, damaged: &Object, error: forebay_store::Error) -> Result<Bytes> {
        let Some(path) = records::parse_object_key(damaged.key()) else { return Err(error.into()) };
        match self.repaired(&path, damaged).await? {
            Some(object) => Ok(object.metadata().await?),
            None => Err(error.into()),
        }
    }

    pub(crate) fn annex_of(object: &Object) -> Annex {
        Annex::decode(object.annex())
    }

    /// The under store's ETag of a clean copy.
    pub(crate) fn remote_etag_of(object: &Object) -> Option<ETag> {
        Self::annex_of(object).remote_etag
    }

    pub(crate) fn store_key(path: &ObjectPath) -> Bytes {
        records::object_key(path)
    }
}

fn lost(path: &ObjectPath, record: &ObjectRecord) -> Error {
    tracing::error!(%path, generation = record.generation.0, "the bytes of an acknowledged object are missing");
    Error::new(ErrorKind::Unavailable, format!("the bytes of generation {} of {path} are missing", record.generation))
}

pub(crate) fn storage_state(state: State) -> StorageState {
    match state {
        State::Transient => StorageState::Transient,
        State::Dirty | State::Conflict | State::Tombstone => StorageState::Dirty,
    }
}
