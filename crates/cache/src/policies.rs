//! Path policies: the rules in force, and their life in the catalog.

use std::sync::Arc;

use forebay_catalog::records::{self, PolicyRecord};
use forebay_catalog::{Check, Engine, LocalChange, Transaction};
use forebay_store::ValueWrite;
use forebay_types::{Durability, ObjectPath, PathPolicy, PolicyChange, PolicyRule, PolicySet};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::worker::Worker;
use crate::{Cache, Error, ErrorKind, Result};

/// The rules in force and the catalog's version of them.
pub(crate) struct Policies {
    present: RwLock<(Arc<PolicySet>, u64)>,
}

fn check(rules: Vec<PolicyRule>) -> Result<PolicySet> {
    PolicySet::new(rules).map_err(|error| Error::new(ErrorKind::InvalidArgument, error.to_string()))
}

async fn store(engine: &dyn Engine, record: &PolicyRecord, version: Option<Option<u64>>) -> Result<u64> {
    let key = records::policy_key();
    let transaction = Transaction {
        checks: version.into_iter().map(|version| Check { key: key.clone(), version }).collect(),
        writes: vec![ValueWrite { key, value: Some(record.encode()) }],
        local: LocalChange::default(),
        durability: Durability::Fsync,
    };
    Ok(engine.commit(transaction).await?)
}

impl Policies {
    /// Takes the catalog's rules. The configuration's rules replace them when there are none yet, or when the configuration is
    /// another than at the last start: so an edit of the file counts, and a change at run time survives a restart.
    pub(crate) async fn load(engine: &dyn Engine, configured: Vec<PolicyRule>) -> Result<Self> {
        let configured = check(configured)?;
        let found = engine.get(&records::policy_key()).await?;
        let kept = match found {
            Some(versioned) => {
                let record = PolicyRecord::decode(&versioned.value)?;
                (record.configured == configured.rules()).then_some((record.rules, versioned.version))
            }
            None => None,
        };
        let (set, version) = match kept {
            Some((rules, version)) => (check(rules)?, version),
            None => {
                let rules = configured.rules().to_vec();
                let record = PolicyRecord { rules: rules.clone(), configured: rules };
                let version = store(engine, &record, None).await?;
                (configured, version)
            }
        };
        Ok(Self { present: RwLock::new((Arc::new(set), version)) })
    }

    pub(crate) fn present(&self) -> (Arc<PolicySet>, u64) {
        self.present.read().clone()
    }

    pub(crate) fn resolve(&self, path: &ObjectPath) -> PathPolicy {
        let set = Arc::clone(&self.present.read().0);
        set.resolve(path)
    }
}

impl Worker {
    pub(crate) async fn set_policies(&self, rules: Vec<PolicyRule>, version: Option<u64>) -> Result<u64> {
        let set = Arc::new(check(rules)?);
        let found = self.engine.get(&records::policy_key()).await?;
        let Some(found) = found else {
            return Err(Error::new(ErrorKind::Internal, "the catalog holds no path policies"));
        };
        let configured = PolicyRecord::decode(&found.value)?.configured;
        let record = PolicyRecord { rules: set.rules().to_vec(), configured };
        let expected = version.unwrap_or(found.version);
        let new_version = store(self.engine.as_ref(), &record, Some(Some(expected))).await?;
        *self.policies.present.write() = (Arc::clone(&set), new_version);
        self.apply_policies(&set);
        Ok(new_version)
    }

    /// Brings the memory tier and the accounting of quotas in line with the rules.
    pub(crate) fn apply_policies(&self, set: &PolicySet) {
        self.memory.configure(set);
        self.store.regroup(&|key| records::parse_object_key(key).map_or(0, |path| group_of(&set.resolve(&path))));
    }
}

/// The accounting group of the rule whose quota holds for a path: a hash of the rule's path (FNV-1a, 32 bits), 0 for none. Two
/// rules in one group would share their quotas; with a handful of quotas the chance is one in a billion.
pub(crate) fn group_of(policy: &PathPolicy) -> u32 {
    policy.cache_quota.as_ref().map_or(0, |(path, _)| group_of_rule(path))
}

pub(crate) fn group_of_rule(path: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = path.bytes().fold(0x811c_9dc5, step);
    hash.max(1)
}

/// A version of the path policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyVersion {
    pub version: u64,
    pub time_ms: u64,
    /// The user, or `configuration`.
    pub by: String,
    /// `edit`, `configuration` or `rollback to N`.
    pub reason: String,
    /// What it changed.
    pub changes: Vec<PolicyChange>,
}

impl Cache {
    /// The versions that are kept, the newest first: a hundred.
    pub async fn policy_history(&self) -> Result<Vec<PolicyVersion>> {
        todo!("package A")
    }

    /// The rules of a version that is kept.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn policies_at(&self, _version: u64) -> Result<Vec<PolicyRule>> {
        todo!("package A")
    }
}
