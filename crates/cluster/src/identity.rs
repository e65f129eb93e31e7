//! Which cluster this is: noted in its engine when the first worker starts, and in the store of each worker.
//!
//! A store keeps what its catalog named. With another catalog, all of that would look like leftovers and be dropped. So
//! a store stays with the catalog that it began with.

use std::fmt;

use bytes::Bytes;
use forebay_catalog::{Check, Engine, Error, ErrorKind, Result, records};
use forebay_env::Random;
use forebay_store::{Commit, Store, ValueWrite};
use forebay_types::Durability;
use serde::{Deserialize, Serialize};

use crate::engine_note::has_engine_note;
use crate::incarnations::incarnations_of;
use crate::layout::{BEHIND_ALL, IDENTITY_KEY};

/// The cluster that a store belongs to. In the store alone, behind the keys of the catalog. A worker with the embedded
/// catalog has none.
const STORE_OWNER_KEY: &[u8] = b"\xffcluster";

/// How the engine tells its cluster from others.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentity {
    /// Made up when the first worker has started.
    id: String,
    /// Of the key that its workers prove to one another.
    pub key_fingerprint: String,
    /// The key itself, if no worker was given one. A client that can read the engine could read and change everything
    /// anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Without the key.
impl fmt::Debug for ClusterIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, key_fingerprint, key: _ } = self;
        formatter
            .debug_struct("ClusterIdentity")
            .field("id", id)
            .field("key_fingerprint", key_fingerprint)
            .finish_non_exhaustive()
    }
}

impl ClusterIdentity {
    /// Of a new cluster.
    pub fn new(random: &dyn Random, key_fingerprint: &str, key: Option<&str>) -> Self {
        let (key_fingerprint, key) = (key_fingerprint.to_owned(), key.map(str::to_owned));
        Self { id: random.hex_id(), key_fingerprint, key }
    }

    /// The same cluster with another key, which the engine does not keep.
    pub(crate) fn with_key(self, key_fingerprint: &str) -> Self {
        Self { key_fingerprint: key_fingerprint.to_owned(), key: None, ..self }
    }

    /// What the engine has; `None` before the first worker has started.
    ///
    /// # Errors
    /// `Corrupt` when the record is damaged or of a newer version; whatever the engine answers.
    pub async fn load(engine: &dyn Engine) -> Result<Option<Self>> {
        let found = engine.get(IDENTITY_KEY).await?;
        found.map(|found| records::decode_json("cluster identity", &found.value)).transpose()
    }

    /// Creates the cluster, unless another worker was first: then the cluster is what that one has made of it.
    ///
    /// # Errors
    /// As [`ClusterIdentity::load`]. Another try is safe.
    pub async fn create(self, engine: &dyn Engine) -> Result<Self> {
        let key = Bytes::from_static(IDENTITY_KEY);
        let checks = [Check { key: key.clone(), version: None }];
        let writes = [ValueWrite { key, value: Some(records::encode_json(&self)) }];
        match engine.commit(&checks, &writes).await {
            Ok(_) => Ok(self),
            Err(error) if matches!(error.kind, ErrorKind::Conflict | ErrorKind::Unknown) => {
                Self::load(engine).await?.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a store one of this cluster.
    ///
    /// # Errors
    /// `Unavailable` when the store has another catalog; whatever the store answers.
    pub async fn claim(&self, store: &Store) -> Result<()> {
        match store.value(STORE_OWNER_KEY) {
            Some(owner) if owner.value == self.id.as_bytes() => return Ok(()),
            Some(_) => {
                return Err(refused(
                    "they belong to another cluster: give its name and engine, or other directories. If name and engine are right, etcd has lost its data: restore its last backup, because the objects in these directories can't be found without it. If there is none, forebay salvage brings them out".to_owned(),
                ));
            }
            None if store.scan(b"", BEHIND_ALL, 1).is_empty() || has_lost_its_owner(store) => {}
            None => {
                return Err(refused("a worker without a cluster has used them, and its catalog is there: let it bring everything to the under store, and give a worker of a cluster empty directories".to_owned()));
            }
        }
        let value = Some(Bytes::copy_from_slice(self.id.as_bytes()));
        let writes = vec![ValueWrite { key: Bytes::from_static(STORE_OWNER_KEY), value }];
        store.commit(Commit { writes, ..Commit::default() }, Durability::Fsync).await?;
        Ok(())
    }
}

/// Whether a worker of a cluster has used the store. The note of its cluster may have gone with a directory that was
/// given up for good.
fn has_lost_its_owner(store: &Store) -> bool {
    let has_own_catalog = store.value(records::UNDER_STORES_KEY).is_some();
    !has_own_catalog && (has_engine_note(store) || !incarnations_of(store).is_empty())
}

/// Whether the store belongs to a worker of a cluster.
pub fn has_joined(store: &Store) -> bool {
    store.value(STORE_OWNER_KEY).is_some()
}

/// For a worker with the embedded catalog.
///
/// # Errors
/// `Unavailable` when the store belongs to a worker of a cluster.
pub fn check_alone(store: &Store) -> Result<()> {
    match has_joined(store) {
        false => Ok(()),
        true => Err(refused("they belong to a worker of a cluster: start with its cluster settings (cluster.engine and cluster.name), or with other directories".to_owned())),
    }
}

fn refused(problem: String) -> Error {
    Error::new(ErrorKind::Unavailable, problem)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_catalog::MemoryEngine;
    use forebay_env::disk::memory::MemoryDisk;
    use forebay_env::{Disk, Env};
    use forebay_store::Settings;

    use super::*;
    use crate::incarnations::Incarnations;

    async fn open_store(disk: &MemoryDisk) -> Store {
        let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(disk.for_one_life())];
        Store::open(Env::real(), disks, Settings::new(vec![1 << 30]), None).await.unwrap()
    }

    fn new(key: Option<&str>) -> ClusterIdentity {
        ClusterIdentity::new(Env::real().random.as_ref(), "print", key)
    }

    #[tokio::test]
    async fn the_first_worker_decides_what_the_cluster_is() {
        let engine = MemoryEngine::default();
        assert_eq!(ClusterIdentity::load(&engine).await.unwrap(), None);
        let first = new(Some("secret")).create(&engine).await.unwrap();
        assert!(!format!("{first:?}").contains("secret"));
        assert_eq!(new(None).create(&engine).await.unwrap(), first);
        assert_eq!(ClusterIdentity::load(&engine).await.unwrap(), Some(first));
    }

    #[tokio::test]
    async fn a_store_stays_with_its_cluster() {
        let disk = MemoryDisk::new(1 << 30);
        let (own, other) = (new(None), new(None));
        own.claim(&open_store(&disk).await).await.unwrap();
        let store = open_store(&disk).await;
        assert!(has_joined(&store));
        own.claim(&store).await.unwrap();
        let problem = other.claim(&store).await.unwrap_err().to_string();
        assert!(problem.contains("another cluster"), "{problem}");
        let problem = check_alone(&store).unwrap_err().to_string();
        assert!(problem.contains("a worker of a cluster"), "{problem}");
    }

    async fn write(store: &Store, key: Bytes) {
        let writes = vec![ValueWrite { key, value: Some(Bytes::from_static(b"x")) }];
        store.commit(Commit { writes, ..Commit::default() }, Durability::Fsync).await.expect("a disk in memory");
    }

    #[tokio::test]
    async fn a_store_with_a_catalog_of_its_own_joins_no_cluster() {
        let disk = MemoryDisk::new(1 << 30);
        let store = open_store(&disk).await;
        write(&store, records::policy_key()).await;
        check_alone(&store).unwrap();
        let problem = new(None).claim(&store).await.unwrap_err().to_string();
        assert!(problem.contains("without a cluster"), "{problem}");
        check_alone(&store).unwrap();
        assert!(!has_joined(&store));
        // A worker of a cluster had the store before, or after.
        Incarnations::begin(&Env::real(), &store).await;
        write(&store, Bytes::from_static(records::UNDER_STORES_KEY)).await;
        let problem = new(None).claim(&store).await.unwrap_err().to_string();
        assert!(problem.contains("without a cluster"), "{problem}");
    }

    /// The note has gone with a directory.
    #[tokio::test]
    async fn a_store_that_a_worker_of_a_cluster_has_used_joins_without_its_note() {
        let disk = MemoryDisk::new(1 << 30);
        let store = open_store(&disk).await;
        write(&store, records::policy_key()).await;
        Incarnations::begin(&Env::real(), &store).await;
        new(None).claim(&store).await.unwrap();
        assert!(has_joined(&store));
    }
}
