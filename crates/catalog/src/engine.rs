//! The seam under the catalog of a cluster: an ordered key-value store that all workers share, as etcd and FoundationDB
//! are.

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::ValueWrite;

use crate::{Check, Result, Versioned};

/// Promises of every engine, checked by [`crate::conformance::run_engine`]:
///
/// - transactions are serializable, reads linearizable: what `commit` returned `Ok` for is seen by every later `get`
///   and `scan`, on any worker, and survives crashes;
/// - `Conflict` means that a check did not hold and nothing changed; `Busy` and `Unavailable` that nothing changed;
/// - after `Unknown` the transaction may have been done, or may yet be, at any later time, as long as its checks hold
///   then.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>>;
    /// Values with `from <= key < to` in order, at most `limit`.
    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>>;
    /// Does all writes if all checks hold. No key is written twice. Returns the version of the keys that were written.
    async fn commit(&self, checks: &[Check], writes: &[ValueWrite]) -> Result<u64>;
}
