//! The processes that have had a store, one after the other: each has a random number, its life.

use bytes::Bytes;
use forebay_env::Env;
use forebay_store::{Commit, Store, ValueWrite};
use forebay_types::Durability;

/// The last ones: eight bytes each, big-endian. In the store alone, behind the keys of the catalog.
const LIVES_KEY: &[u8] = b"\xfflives";

/// Of those the last but one is on the engine, unless starts have failed since.
const LIVES_MAX: usize = 100;

/// The processes that had this store: they have ended, for the store has one at a time.
pub(crate) struct Incarnations {
    pub(crate) own: u64,
    before: Vec<u64>,
}

/// All that are noted in the store, the oldest first.
pub(crate) fn incarnations_of(store: &Store) -> Vec<u64> {
    let noted = store.value(LIVES_KEY).map(|found| found.value).unwrap_or_default();
    let (lives, _) = noted.as_chunks::<8>();
    lives.iter().map(|life| u64::from_be_bytes(*life)).collect()
}

impl Incarnations {
    /// Notes a new one before the engine hears of it. Without the note, the next start must wait for the end of a
    /// lease.
    pub(crate) async fn begin(env: &Env, store: &Store) -> Self {
        let (before, own) = (incarnations_of(store), env.random.next_u64());
        let kept = before.iter().skip((before.len() + 1).saturating_sub(LIVES_MAX)).chain([&own]);
        let value: Vec<u8> = kept.flat_map(|life| life.to_be_bytes()).collect();
        let write = ValueWrite { key: Bytes::from_static(LIVES_KEY), value: Some(value.into()) };
        if let Err(error) = store.commit(Commit { writes: vec![write], ..Commit::default() }, Durability::Fsync).await {
            tracing::warn!(%error, "the identity of this process could not be recorded: after a crash, the next start waits until the lease expires (cluster.lease)");
        }
        Self { own, before }
    }

    pub(crate) fn had(&self, life: u64) -> bool {
        self.before.contains(&life)
    }
}
