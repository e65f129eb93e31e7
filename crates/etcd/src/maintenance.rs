//! What keeps the database of etcd small, and what tells how large it is.

use std::time::Duration;

use forebay_catalog::Result;
use futures::future::join_all;

use crate::EtcdEngine;
use crate::failure::What;
use crate::member::Member;
use crate::messages::{Compaction, Status, StatusAnswer, number};

/// How often older states of keys are dropped. They count against the quota.
const COMPACTION_PERIOD: Duration = Duration::from_secs(60);

/// Older ones return stale reads after some restarts.
const VERSION_MIN: [u64; 3] = [3, 6, 9];

/// Above this part of the quota, in percent, a database is nearly full.
const NEARLY_FULL: u64 = 80;

/// A member, and what it says.
#[derive(Debug)]
pub struct MemberHealth {
    pub endpoint: String,
    /// `Unavailable` when it does not answer.
    pub status: Result<MemberStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// As `3.7.3`.
    pub version: String,
    /// Of the file. It becomes smaller only by `etcdctl defrag`.
    pub database_bytes: u64,
    /// Of these, bytes that are not free.
    pub used_bytes: u64,
    /// How large the database may become; 0 when etcd is too old to tell.
    pub quota_bytes: u64,
    /// etcd has found its database full. Until an operator ends that alarm, every commit that writes a value is
    /// refused.
    pub is_full: bool,
}

impl MemberStatus {
    /// Whether it may return stale reads.
    pub fn is_old(&self) -> bool {
        is_old(&self.version)
    }
}

impl From<StatusAnswer> for MemberStatus {
    fn from(answer: StatusAnswer) -> Self {
        Self {
            is_full: answer.errors.iter().any(|error| error.contains("NOSPACE")),
            version: answer.version,
            database_bytes: number(answer.db_size),
            used_bytes: number(answer.db_size_in_use),
            quota_bytes: number(answer.db_size_quota),
        }
    }
}

impl MemberStatus {
    /// Whether the database may soon take no more writes. What is free in its file is used again.
    pub fn is_nearly_full(&self) -> bool {
        let used = if self.used_bytes == 0 { self.database_bytes } else { self.used_bytes };
        self.is_full || (self.quota_bytes > 0 && used > self.quota_bytes / 100 * NEARLY_FULL)
    }
}

impl EtcdEngine {
    /// Compacts etcd once a minute. Never returns; several workers may do it.
    pub async fn maintain(&self) {
        self.warn_of_old_members().await;
        loop {
            if let Err(error) = self.compact().await {
                tracing::warn!(%error, "etcd was not compacted");
            }
            self.clock.sleep(COMPACTION_PERIOD).await;
        }
    }

    /// Drops what was replaced or deleted more than five minutes ago, as far as this process has seen it. Returns the
    /// revision up to which it did. `None` when there is nothing to drop yet, or somebody else has.
    ///
    /// # Errors
    /// `Unavailable` or `Busy`; the next call makes up for it.
    pub async fn compact(&self) -> Result<Option<u64>> {
        const CONTEXT: &str = "a compaction of etcd";
        let revision = self.members.probe().await.map_err(|failure| failure.of_read(CONTEXT))?;
        let Some(old) = self.history.note(self.clock.monotonic(), revision) else { return Ok(None) };
        match self.members.ask(&Compaction { revision: old as i64 }).await {
            Ok(_) => Ok(Some(old)),
            Err(failure) if failure.what == What::Compacted => Ok(None),
            Err(failure) => Err(failure.of_read(CONTEXT)),
        }
    }

    /// What each member says about itself, in the order of the settings.
    pub async fn status(&self) -> Vec<MemberHealth> {
        join_all(self.members.all().iter().map(|member| self.status_of(member))).await
    }

    async fn status_of(&self, member: &Member) -> MemberHealth {
        let status = self.members.call(member, &Status {}).await;
        let status =
            status.map(MemberStatus::from).map_err(|failure| failure.of_read("the status of a member of etcd"));
        MemberHealth { endpoint: member.name(), status }
    }

    async fn warn_of_old_members(&self) {
        for MemberHealth { endpoint, status } in self.status().await {
            if let Ok(status) = status
                && status.is_old()
            {
                let version = status.version;
                tracing::warn!(endpoint, version, "this etcd may return stale reads: use 3.6.9 or newer");
            }
        }
    }
}

fn is_old(version: &str) -> bool {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<u64> = plain.split('.').map_while(|number| number.parse().ok()).collect();
    numbers.as_slice() < VERSION_MIN.as_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_nearly_full_by_what_is_used_of_it() {
        let status = |database_bytes, used_bytes, quota_bytes, is_full| MemberStatus {
            version: "3.7.0".to_owned(),
            database_bytes,
            used_bytes,
            quota_bytes,
            is_full,
        };
        for (status, expected) in [
            (status(990, 700, 1000, false), false),
            (status(990, 810, 1000, false), true),
            (status(990, 0, 1000, false), true),
            (status(990, 810, 0, false), false),
            (status(990, 10, 1000, true), true),
        ] {
            assert_eq!(status.is_nearly_full(), expected, "{status:?}");
        }
    }

    #[test]
    fn versions_compare_as_numbers() {
        for (version, expected) in [("3.5.21", true), ("3.6.8", true), ("3.6.10", false), ("3.7.0-rc.1", false)] {
            assert_eq!(is_old(version), expected, "{version}");
        }
    }
}
