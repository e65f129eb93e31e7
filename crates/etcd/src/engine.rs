//! An engine over etcd: a version is a key's `mod_revision`, and a commit is one transaction.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_catalog::{Check, Engine, Error, ErrorKind, Result, Versioned};
use forebay_env::{Clock, Env};
use forebay_store::ValueWrite;

use crate::failure::{CallError, What};
use crate::history::History;
use crate::members::Members;
use crate::messages::{Answer, KeyValue, Range, number};
use crate::transaction::{self, prefixed};
use crate::{EtcdSettings, InvalidSetting};

/// Values that are asked for at once. Fewer when an answer would be too long.
const PAGE_MAX: usize = 1000;

/// Tries of a scan whose revision was compacted away meanwhile.
const SCAN_TRIES: usize = 3;

/// A [`forebay_catalog::Engine`] over etcd.
pub struct EtcdEngine {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) members: Members,
    pub(crate) history: History,
    prefix: Bytes,
}

impl EtcdEngine {
    /// Reads the files that the settings name, and connects to nobody: the first call does.
    ///
    /// # Errors
    /// When a setting can't be used.
    pub fn new(env: &Env, settings: &EtcdSettings) -> Result<Self, InvalidSetting> {
        let members = Members::new(env, settings)?;
        let prefix = settings.key_prefix()?;
        Ok(Self { clock: Arc::clone(&env.clock), members, history: History::default(), prefix })
    }

    async fn find(&self, key: &[u8]) -> Result<Option<Versioned>, CallError> {
        let range = Range { key: prefixed(&self.prefix, key), ..Range::default() };
        Ok(self.members.ask(&range).await?.kvs.into_iter().next().map(versioned))
    }

    /// All pages are of one revision. `None` when that is compacted away before the last page.
    async fn scan_once(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Option<Vec<(Bytes, Versioned)>>> {
        let (mut key, range_end) = (prefixed(&self.prefix, from), prefixed(&self.prefix, to));
        let (mut all, mut page, mut revision) = (Vec::new(), PAGE_MAX, 0);
        loop {
            let asked = page.min(limit - all.len());
            let (key_asked, range_end) = (key.clone(), range_end.clone());
            let range = Range { key: key_asked, range_end, limit: asked as i64, revision, keys_only: false };
            let found = match self.members.ask(&range).await {
                Ok(found) => found,
                Err(failure) if failure.what == What::Compacted => return Ok(None),
                Err(failure) if failure.what == What::LongAnswer && asked > 1 => {
                    page = asked / 2;
                    continue;
                }
                Err(failure) => return Err(failure.of_read("a scan of etcd")),
            };
            if revision == 0 {
                // Later answers name a later one, and show this one.
                revision = found.revision() as i64;
            }
            if let Some(last) = found.kvs.last() {
                key = prefixed(&last.key, b"\0");
            }
            let is_last = !found.more || found.kvs.is_empty();
            all.extend(found.kvs.into_iter().map(|found| (found.key.slice(self.prefix.len()..), versioned(found))));
            if is_last || all.len() >= limit {
                return Ok(Some(all));
            }
        }
    }

    /// Whether a transaction that etcd has answered has surely written nothing: reads a key that it would have written.
    /// `before` is a revision from before it was sent.
    async fn is_undone(&self, checks: &[Check], writes: &[ValueWrite], before: u64) -> Result<bool, CallError> {
        let version = |write: &ValueWrite| checks.iter().find(|check| check.key == write.key)?.version;
        let puts = || writes.iter().filter(|write| write.value.is_some());
        let Some(put) = puts().find(|put| version(put).is_some()).or_else(|| puts().next()) else { return Ok(false) };
        let range = Range { key: prefixed(&self.prefix, &put.key), ..Range::default() };
        let found = self.members.ask(&range).await?;
        let now = found.kvs.first().map(|found| number(found.mod_revision));
        Ok(proves_undone(found.revision(), now, version(put), before))
    }
}

/// A transaction that puts a key gives it a version above `before`, and above the one that it checked. So nothing was
/// done when etcd as a whole, or the key, is at no later one. A key that is gone proves nothing: it may have been
/// written and deleted.
fn proves_undone(revision: u64, version: Option<u64>, checked: Option<u64>, before: u64) -> bool {
    revision <= before || version.is_some_and(|version| version <= before.max(checked.unwrap_or_default()))
}

fn versioned(found: KeyValue) -> Versioned {
    Versioned { value: found.value, version: number(found.mod_revision) }
}

#[async_trait]
impl Engine for EtcdEngine {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        self.find(key).await.map_err(|failure| failure.of_read("a read from etcd"))
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        if from >= to || limit == 0 {
            return Ok(Vec::new());
        }
        for _ in 0..SCAN_TRIES {
            if let Some(found) = self.scan_once(from, to, limit).await? {
                return Ok(found);
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "etcd is compacted faster than it can be scanned"))
    }

    async fn commit(&self, checks: &[Check], writes: &[ValueWrite]) -> Result<u64> {
        const CONTEXT: &str = "a commit on etcd";
        let request = transaction::request(&self.prefix, checks, writes)?;
        let before = self.members.revision();
        let answer = match writes.is_empty() {
            true => self.members.ask(&request).await.map_err(|failure| failure.of_read(CONTEXT)),
            false => match self.members.send_once(&request).await {
                Err(failure) if failure.what == What::NoSpace => {
                    let kind = match self.is_undone(checks, writes, before).await {
                        Ok(true) => ErrorKind::Busy,
                        Ok(false) | Err(_) => ErrorKind::Unknown,
                    };
                    Err(failure.into_error(kind, CONTEXT))
                }
                result => result.map_err(|failure| failure.of_commit(CONTEXT)),
            },
        }?;
        match answer.succeeded {
            true => Ok(answer.revision()),
            false => Err(Error::new(ErrorKind::Conflict, "a check of a commit on etcd does not hold")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_from_before_proves_that_nothing_was_done() {
        assert!(proves_undone(7, None, None, 7), "nobody has written anything");
        assert!(proves_undone(9, Some(7), None, 7));
        assert!(proves_undone(9, Some(8), Some(8), 7), "another process has read what was checked");
        assert!(!proves_undone(9, Some(8), None, 7), "by this transaction, or by another one");
        assert!(!proves_undone(9, Some(9), Some(8), 7));
        assert!(!proves_undone(9, None, None, 7), "written, and deleted by another one");
    }
}
