//! An engine in memory: what others must do, without a network.

use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_env::sync::RwLock;
use forebay_store::ValueWrite;

use crate::embedded::verify;
use crate::{Check, Engine, Error, ErrorKind, Result, Versioned};

/// Checks, and writes, of one transaction, and its bytes, as etcd has it by default.
const OPERATIONS_MAX: usize = 128;
const BYTES_MAX: usize = 3 << 19;

#[derive(Default)]
pub struct MemoryEngine {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    values: BTreeMap<Bytes, Versioned>,
    /// Of the last commit.
    version: u64,
}

#[async_trait]
impl Engine for MemoryEngine {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        Ok(self.state.read().values.get(key).cloned())
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        if from >= to {
            return Ok(Vec::new());
        }
        let state = self.state.read();
        let range = state.values.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
        Ok(range.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    async fn commit(&self, checks: &[Check], writes: &[ValueWrite]) -> Result<u64> {
        if checks.len() > OPERATIONS_MAX || writes.len() > OPERATIONS_MAX {
            let problem = format!("a transaction of {} checks and {} writes is too large", checks.len(), writes.len());
            return Err(Error::new(ErrorKind::Busy, problem));
        }
        let bytes = |write: &ValueWrite| write.key.len() + write.value.as_ref().map_or(0, Bytes::len);
        let bytes: usize = writes.iter().map(bytes).sum();
        if bytes > BYTES_MAX {
            return Err(Error::new(ErrorKind::Busy, format!("a transaction of {bytes} bytes is too large")));
        }
        let mut state = self.state.write();
        for check in checks {
            verify(check, state.values.get(&check.key))?;
        }
        state.version += 1;
        let version = state.version;
        for ValueWrite { key, value } in writes {
            match value {
                Some(value) => drop(state.values.insert(key.clone(), Versioned { value: value.clone(), version })),
                None => drop(state.values.remove(key)),
            }
        }
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn keeps_the_promises_of_an_engine() {
        crate::conformance::run_engine(&MemoryEngine::default()).await;
    }
}
