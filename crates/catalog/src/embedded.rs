//! The catalog of one machine: the store's table of values, so that data and catalog share one log and one `fdatasync`.

mod generations;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::{Commit, Store};
use tracing::Instrument;

use crate::catalog::{Catalog, Check, TRANSACTION_MAX, Transaction, Versioned, Watch};
use crate::commit_locks::CommitLocks;
use crate::watchers::Watchers;
use crate::{Error, ErrorKind, Generations, Result};
use generations::StoreGenerations;

pub struct EmbeddedCatalog {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    /// Commits on one key go one after the other: a check must still hold when the commit is applied.
    locks: Arc<CommitLocks>,
    watchers: Watchers,
}

impl EmbeddedCatalog {
    /// The catalog in `store`. There must be one catalog for a store.
    pub fn new(store: Store) -> Self {
        // This catalog prepares nothing: they are of commits that a crash has cut off.
        drop(store.take_prepared());
        Self { inner: Arc::new(Inner { store, locks: Arc::default(), watchers: Watchers::default() }) }
    }
}

/// Every key that a transaction reads or changes, here or among the store's objects.
pub fn keys_of(transaction: &Transaction) -> BTreeSet<Bytes> {
    let local = &transaction.local;
    let checks = transaction.checks.iter().map(|check| &check.key);
    let writes = transaction.writes.iter().map(|write| &write.key);
    let published = local.publish.iter().map(|staged| staged.key());
    let annotated = local.annotate.iter().map(|annotation| &annotation.key);
    checks.chain(writes).chain(published).chain(annotated).chain(&local.forget).cloned().collect()
}

impl Inner {
    async fn commit(&self, transaction: Transaction) -> Result<u64> {
        let _guards = self.locks.lock(keys_of(&transaction)).await;
        for check in &transaction.checks {
            verify(check, self.store.value(&check.key).as_ref())?;
        }
        debug_assert!(transaction.writes.len() <= TRANSACTION_MAX, "no engine takes so large a transaction");
        let written: Vec<Bytes> = transaction.writes.iter().map(|write| write.key.clone()).collect();
        let local = transaction.local;
        let commit = Commit {
            publish: local.publish,
            forget: local.forget,
            annotate: local.annotate,
            writes: transaction.writes,
            may_wait: transaction.may_wait,
        };
        let version = self.store.commit(commit, transaction.durability).await?;
        for key in &written {
            self.watchers.changed(key, || self.store.value(key));
        }
        Ok(version)
    }
}

/// # Errors
/// `Conflict` when `found` is not what the check asks for.
pub fn verify(check: &Check, found: Option<&Versioned>) -> Result<()> {
    let version = found.map(|found| found.version);
    if version == check.version {
        return Ok(());
    }
    let key = check.key.escape_ascii();
    let problem = format!("{key} has version {version:?}, not {:?}", check.version);
    Err(Error::new(ErrorKind::Conflict, problem))
}

#[async_trait]
impl Catalog for EmbeddedCatalog {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        Ok(self.inner.store.value(key))
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        Ok(self.inner.store.scan(from, to, limit))
    }

    /// Runs to completion even if the caller gives up waiting: what is in the log must also be in the tables, and the
    /// keys stay locked until it is.
    async fn commit(&self, transaction: Transaction) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        forebay_env::spawn(async move { inner.commit(transaction).await }.in_current_span()).join().await
    }

    async fn watch(&self, key: &[u8]) -> Result<Watch> {
        Ok(self.inner.watchers.watch(key, || self.inner.store.value(key)))
    }

    async fn generations(&self, now_ms: u64) -> Result<Arc<dyn Generations>> {
        Ok(Arc::new(StoreGenerations::load(self, self.inner.store.clone(), now_ms).await?))
    }
}

#[cfg(test)]
mod tests;
