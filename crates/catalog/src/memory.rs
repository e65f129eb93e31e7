//! An engine in memory, which stands for a remote one: its values are not in the store, and it makes no local changes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_env::sync::RwLock;
use tokio::sync::Mutex as AsyncMutex;

use crate::Result;
use crate::embedded::verify;
use crate::engine::{Engine, Transaction, Versioned, Watch};
use crate::watchers::Watchers;

#[derive(Default)]
pub struct MemoryEngine {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Commits are done one after the other.
    committing: AsyncMutex<()>,
    state: RwLock<State>,
    watchers: Watchers,
}

#[derive(Default)]
struct State {
    values: BTreeMap<Bytes, Versioned>,
    /// Of the last commit.
    version: u64,
}

impl Inner {
    fn value(&self, key: &[u8]) -> Option<Versioned> {
        self.state.read().values.get(key).cloned()
    }

    async fn commit(&self, transaction: Transaction) -> Result<u64> {
        let _turn = self.committing.lock().await;
        for check in &transaction.checks {
            verify(check, self.value(&check.key).as_ref())?;
        }
        let local = &transaction.local;
        let changes_nothing = local.publish.is_empty() && local.forget.is_empty() && local.annotate.is_empty();
        assert!(changes_nothing, "there is no store to change");
        let written: Vec<Bytes> = transaction.writes.iter().map(|write| write.key.clone()).collect();
        let version = {
            let mut state = self.state.write();
            state.version += 1;
            let version = state.version;
            for write in transaction.writes {
                match write.value {
                    Some(value) => state.values.insert(write.key, Versioned { value, version }),
                    None => state.values.remove(&write.key),
                };
            }
            version
        };
        for key in &written {
            self.watchers.changed(key, || self.value(key));
        }
        Ok(version)
    }
}

#[async_trait]
impl Engine for MemoryEngine {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        Ok(self.inner.value(key))
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        if from >= to {
            return Ok(Vec::new());
        }
        let state = self.inner.state.read();
        let range = state.values.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
        Ok(range.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// Goes on to its end when the caller gives up waiting: watchers hear of all that has changed.
    async fn commit(&self, transaction: Transaction) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        forebay_env::spawn(async move { inner.commit(transaction).await }).join().await
    }

    async fn watch(&self, key: &[u8]) -> Result<Watch> {
        Ok(self.inner.watchers.watch(key, || self.inner.value(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn keeps_the_promises_of_an_engine() {
        crate::conformance::run(async || Arc::<MemoryEngine>::default() as Arc<dyn Engine>).await;
    }
}
