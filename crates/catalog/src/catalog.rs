//! The catalog as the cache uses it: an ordered table of records with atomic batches, which change the local store too.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::{Annotation, Staged, ValueWrite};
use forebay_types::Durability;

use crate::{Generations, Result, SlotSet, records};

/// A value, and the version that its last write got. Versions grow with every commit.
pub use forebay_store::Versioned;

/// What must hold for a commit to be done.
#[derive(Debug, Clone)]
pub struct Check {
    pub key: Bytes,
    /// The version that the key must have; `None`: the key must not exist.
    pub version: Option<u64>,
}

/// Writes that a transaction may have, and checks. Engines take few more: etcd 128 by default, with what a worker adds.
/// Changes of more records are several transactions.
pub const TRANSACTION_MAX: usize = 100;

/// Bytes of the keys and values of a transaction: engines take few more (etcd 1.5 MiB by default).
pub const TRANSACTION_BYTES_MAX: usize = 1 << 20;

/// A batch: all of it happens, or nothing. It has at most [`TRANSACTION_MAX`] writes.
#[derive(Default)]
pub struct Transaction {
    pub checks: Vec<Check>,
    pub writes: Vec<ValueWrite>,
    /// What changes in the local store together with it.
    pub local: LocalChange,
    /// When the commit counts as done.
    pub durability: Durability,
    /// See [`forebay_store::Commit::may_wait`].
    pub may_wait: bool,
    /// It is refused as a `Conflict` when [`Catalog::shared_changes`] is another number, or when other workers have
    /// changed something that this worker has not heard of.
    pub shared_changes: Option<u64>,
}

/// Changes to the objects of the local store that become visible with the commit. The embedded catalog appends them to
/// the same log, so that data and commit share one `fdatasync`; one on a remote engine commits there once the staged
/// bytes are durable, and applies the rest then.
#[derive(Default)]
pub struct LocalChange {
    pub publish: Vec<Staged>,
    pub forget: Vec<Bytes>,
    pub annotate: Vec<Annotation>,
}

/// Tells of changes to a key. Changes may coalesce; the last one is always told.
pub type Watch = tokio::sync::watch::Receiver<Option<Versioned>>;

/// Promises of every catalog, checked by [`crate::conformance`]:
///
/// - commits are serializable; a reader sees all of a commit or nothing of it;
/// - what `commit` returned `Ok` for is seen by every later `get` and `scan`, and survives a crash as
///   the transaction's durability says;
/// - `Conflict` means that a check failed and nothing changed.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>>;
    /// Values with `from <= key < to` in order, at most `limit`.
    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>>;
    /// Returns the version of the commit.
    async fn commit(&self, transaction: Transaction) -> Result<u64>;
    /// Watches one key, beginning with its present value.
    async fn watch(&self, key: &[u8]) -> Result<Watch>;
    /// The generations of a start, above those of all starts before. A new catalog begins to count at `now_ms`, the
    /// time since 1970.
    async fn generations(&self, now_ms: u64) -> Result<Arc<dyn Generations>>;
    /// The latest time of a write that any worker has noted ([`records::LAST_WRITE_KEY`]), as it was encoded.
    async fn last_write(&self) -> Result<Option<Bytes>> {
        Ok(self.get(records::LAST_WRITE_KEY).await?.map(|found| found.value))
    }
    /// Counts what other workers have changed of the records that all of them share, as far as this worker has heard:
    /// once the count is higher, readers see the changes.
    fn shared_changes(&self) -> u64 {
        0
    }
    /// Takes over what other workers have changed of these records until now.
    async fn follow_shared(&self) -> Result<()> {
        Ok(())
    }
    /// Objects that earlier processes have prepared, of keys that are at home elsewhere, which no record named at the
    /// start. One may be a copy of a write that its home has not committed yet. Returned once.
    fn take_unnamed(&self) -> Vec<Staged> {
        Vec::new()
    }
    /// The name of this worker among those that hold bytes ([`records::Holders`]); `None` when there are no others.
    fn worker(&self) -> Option<&str> {
        None
    }
    /// The slots that are at home here; `None` when there are no others.
    fn slots(&self) -> Option<SlotSet> {
        None
    }
    /// Whether the slot of the paths with this hash ([`records::path_hash`]) is at home here.
    fn has_slot_of(&self, hash: u64) -> bool {
        self.slots().is_none_or(|slots| slots.has_hash(hash))
    }
    /// The worker that was the home of the slot of the paths with this hash until this one took it. `None`: none was.
    fn former_home(&self, _hash: u64) -> Option<String> {
        None
    }
    /// Whether the last process of this worker did not end by itself: others may still rely on what it has promised.
    fn follows_crash(&self) -> bool {
        false
    }
    /// For how long this worker is still the home of its keys if nothing renews its lease. Zero: the lease has ended.
    /// `None`: there are no other workers.
    fn lease(&self) -> Option<Duration> {
        None
    }
}
