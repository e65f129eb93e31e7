//! Path policies: the rules in force, and their life in the catalog.

mod change;
pub(crate) mod groups;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::records::{self, ConfiguredPolicies, PolicyRecord, PolicyVersionRecord};
use forebay_catalog::{Catalog, Check, TRANSACTION_BYTES_MAX, Transaction};
use forebay_env::Env;
use forebay_env::sync::RwLock;
use forebay_env::sync::atomic::{AtomicBool, Ordering};
use forebay_store::ValueWrite;
use forebay_types::limits::KEY_BYTES_MAX;
use forebay_types::policy::InvalidPolicy;
use forebay_types::{Durability, ObjectPath, PathPolicy, PolicyChange, PolicyRule, PolicySet};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex as AsyncMutex;
use utoipa::ToSchema;

use crate::{Cache, Error, ErrorKind, Result};

/// Versions in the history: enough to see what changed and when, and small compared with the rest of a catalog,
/// whatever the size of the rules.
const HISTORY_VERSIONS: usize = 100;

/// Of the path of a rule: a bucket of 63 bytes and a key of 1024, each with a `/` in front.
const PATH_BYTES_MAX: usize = 1 + 63 + 1 + KEY_BYTES_MAX;

/// How often a change of the rules is tried when other workers change them at the same time. Operators do not do so
/// this often.
const TRIES_MAX: usize = 10;

/// The author of a change that the configuration makes.
const CONFIGURATION: &str = "configuration";

/// The rules in force and the number of their version.
pub(crate) struct Policies {
    present: RwLock<(Arc<PolicySet>, u64)>,
    /// Serialises changes, so that the last one stored is in force.
    changing: AsyncMutex<()>,
    /// Whether rules of this process asked for less than `fsync` and were replaced: see
    /// [`Policies::may_hold_unsynced`].
    replaced_os: AtomicBool,
    /// Whether the quotas were changed, and objects may still be in the groups of earlier ones.
    ungrouped: AtomicBool,
    /// What the configuration has replaced at this start, and the resulting version.
    replaced: Option<(ReplacedRules, u64)>,
}

/// Rules that were changed at run time, and that an edit of the configuration has replaced at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplacedRules {
    pub rules: u64,
    /// The version of the path policies that has them.
    pub version: u64,
}

fn check(rules: Vec<PolicyRule>) -> Result<PolicySet> {
    PolicySet::new(rules).map_err(invalid)
}

fn invalid(error: InvalidPolicy) -> Error {
    Error::new(ErrorKind::InvalidArgument, error.to_string())
}

/// Of new rules. `has_others`: this worker is one of a cluster.
fn check_new(rules: Vec<PolicyRule>, has_others: bool) -> Result<PolicySet> {
    if let Some(rule) = rules.iter().find(|rule| rule.path.len() > PATH_BYTES_MAX) {
        let start: String = rule.path.chars().take(64).collect();
        let problem = format!("the path {start}… of a rule is longer than any object's, {PATH_BYTES_MAX} bytes");
        return Err(Error::new(ErrorKind::InvalidArgument, problem));
    }
    let set = check(rules)?;
    if has_others { Ok(set) } else { set.check_alone().map(|()| set).map_err(invalid) }
}

/// Commits rules, if the catalog's version of the rules is still `expected`. If they form a new version, their entry in
/// the history is part of the commit.
async fn store(
    catalog: &dyn Catalog,
    record: PolicyRecord,
    entry: Option<PolicyVersionRecord>,
    expected: Option<u64>,
) -> Result<()> {
    let key = records::policy_key();
    let mut writes = vec![ValueWrite { key: key.clone(), value: Some(record.encode()) }];
    if let Some(entry) = entry {
        let (first, last) = records::all_policy_versions_range();
        let kept = catalog.scan(&first, &last, usize::MAX).await?;
        if kept.len() >= HISTORY_VERSIONS {
            let author = |(key, found): (_, forebay_catalog::Versioned)| {
                Ok((key, PolicyVersionRecord::decode(&found.value)?.by))
            };
            let kept = kept.into_iter().map(author).collect::<Result<Vec<_>>>()?;
            writes.extend(superfluous(kept, &entry.by).into_iter().map(|key| ValueWrite { key, value: None }));
        }
        let key = records::policy_version_key(entry.revision);
        writes.push(ValueWrite { key, value: Some(entry.encode()) });
    }
    let bytes = |write: &ValueWrite| write.key.len() + write.value.as_ref().map_or(0, Bytes::len);
    let bytes: usize = writes.iter().map(bytes).sum();
    if bytes > TRANSACTION_BYTES_MAX && catalog.slots().is_some() {
        let problem = format!(
            "these rules, with their history, take {bytes} bytes, and a cluster keeps {TRANSACTION_BYTES_MAX} at most: use fewer rules, of longer prefixes"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, problem));
    }
    let checks = vec![Check { key, version: expected }];
    catalog.commit(Transaction { checks, writes, ..Transaction::default() }).await?;
    Ok(())
}

/// The versions to remove when one more is added: the oldest of the author with the most versions. So a user who may
/// change little cannot remove the versions that others can roll back to.
fn superfluous<K>(mut kept: Vec<(K, String)>, by: &str) -> Vec<K> {
    let mut gone = Vec::new();
    while kept.len() >= HISTORY_VERSIONS {
        let count = |of: &str| kept.iter().filter(|(_, author)| author == of).count() + usize::from(of == by);
        let most = kept.iter().map(|(_, author)| count(author)).max().unwrap_or(0);
        let Some(oldest) = kept.iter().position(|(_, author)| count(author) == most) else { break };
        gone.push(kept.remove(oldest).0);
    }
    gone
}

/// The rules that were changed at run time, and that the new configuration replaces with different ones.
fn replaced_rules(record: &PolicyRecord, configured: &PolicySet) -> Option<ReplacedRules> {
    let find = |rules: &[PolicyRule], path: &str| rules.iter().find(|rule| rule.path == path).cloned();
    let paths: BTreeSet<&str> = record.rules.iter().chain(&record.configured).map(|rule| rule.path.as_str()).collect();
    let is_lost = |path: &&str| {
        let present = find(&record.rules, path);
        present != find(&record.configured, path) && present != find(configured.rules(), path)
    };
    let rules = paths.into_iter().filter(is_lost).count() as u64;
    let is_edited = record.configured != configured.rules();
    (rules > 0 && is_edited).then_some(ReplacedRules { rules, version: record.revision })
}

/// The rules of the configuration at the last start of this worker.
async fn configured_before(catalog: &dyn Catalog) -> Result<Option<Vec<PolicyRule>>> {
    let found = catalog.get(records::CONFIGURED_POLICIES_KEY).await?;
    Ok(found.map(|found| ConfiguredPolicies::decode(&found.value)).transpose()?.map(|before| before.rules))
}

/// The highest number in the history, or 0 without one. Rules that a release without a history has stored carry no
/// number.
async fn last_revision(catalog: &dyn Catalog) -> Result<u64> {
    let (from, to) = records::all_policy_versions_range();
    let found = catalog.scan(&from, &to, usize::MAX).await?;
    match found.last() {
        Some((_, last)) => Ok(PolicyVersionRecord::decode(&last.value)?.revision),
        None => Ok(0),
    }
}

impl Policies {
    /// Loads the catalog's rules. The configuration's rules replace them when there are none yet, or when the
    /// configuration differs from that of the last start. So an edit of the file takes effect, and a change at run time
    /// survives a restart. Of several workers with the same configuration, the first one stores it.
    ///
    /// Workers of a cluster may have different configurations for a while, by mistake or because they are changed one
    /// after the other. So only a configuration that has changed since the last start of the same worker replaces
    /// rules.
    pub(crate) async fn load(
        env: &Env,
        catalog: &dyn Catalog,
        configured: Vec<PolicyRule>,
        has_others: bool,
    ) -> Result<Self> {
        let configured = check_new(configured, has_others)?;
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::try_to_load(env, catalog, &configured, has_others).await {
                // Another worker has started at the same time, and the catalog shows its rules by now.
                Err(error) if error.kind == ErrorKind::Conflict && tries < TRIES_MAX => {}
                loaded => return loaded,
            }
        }
    }

    async fn try_to_load(env: &Env, catalog: &dyn Catalog, configured: &PolicySet, has_others: bool) -> Result<Self> {
        let found = catalog.get(&records::policy_key()).await?;
        let expected = found.as_ref().map(|found| found.version);
        let record = found.map(|found| PolicyRecord::decode(&found.value)).transpose()?;
        let before = if has_others { configured_before(catalog).await? } else { None };
        let has_changed = !has_others || before.as_ref().is_some_and(|before| before != configured.rules());
        let mut replaced = None;
        let (set, revision) = match record {
            Some(record) if record.revision > 0 && record.configured == configured.rules() => {
                (check(record.rules)?, record.revision)
            }
            Some(record) if record.revision > 0 && !has_changed => {
                tracing::warn!(
                    "the path policies of this worker's configuration are not those of the cluster, and are not in force: give all workers the same [[policy]] tables, or set the rules with `forebay policy`"
                );
                (check(record.rules)?, record.revision)
            }
            record => {
                let lost = record.as_ref().and_then(|record| replaced_rules(record, configured));
                let (set, revision) = Self::replace(env, catalog, record, configured, expected).await?;
                if let Some(ReplacedRules { rules, version }) = lost {
                    tracing::warn!(
                        rules,
                        version,
                        "the path policies of the configuration have changed, and replace rules that were set at run time: `forebay policy history` shows them, and `forebay policy rollback {version}` brings them back"
                    );
                }
                replaced = lost.map(|lost| (lost, revision));
                (set, revision)
            }
        };
        if has_others && before.as_deref() != Some(configured.rules()) {
            let value = ConfiguredPolicies { rules: configured.rules().to_vec() }.encode();
            let writes =
                vec![ValueWrite { key: Bytes::from_static(records::CONFIGURED_POLICIES_KEY), value: Some(value) }];
            catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
        }
        Ok(Self {
            present: RwLock::new((Arc::new(set), revision)),
            changing: AsyncMutex::default(),
            replaced_os: AtomicBool::new(false),
            ungrouped: AtomicBool::new(true),
            replaced,
        })
    }

    /// Until the rules change again.
    pub(crate) fn replaced(&self) -> Option<ReplacedRules> {
        let revision = self.present.read().1;
        self.replaced.filter(|(_, made)| *made == revision).map(|(replaced, _)| replaced)
    }

    /// Stores the rules in force at a start, if the catalog has different ones.
    async fn replace(
        env: &Env,
        catalog: &dyn Catalog,
        record: Option<PolicyRecord>,
        configured: &PolicySet,
        expected: Option<u64>,
    ) -> Result<(PolicySet, u64)> {
        let is_counted = record.as_ref().is_some_and(|record| record.revision > 0);
        let before = record.as_ref().map_or(Ok(PolicySet::default()), |record| check(record.rules.clone()))?;
        let was_configured = record.as_ref().is_some_and(|record| record.configured == configured.rules());
        let set = if was_configured { before.clone() } else { configured.clone() };
        let changes = before.changes_to(&set);
        let last = record.map_or(0, |record| record.revision).max(last_revision(catalog).await?);
        // An operator has copied the run-time settings into the configuration.
        let is_new = !is_counted || !changes.is_empty();
        let revision = if is_new { last + 1 } else { last };
        let rules = set.rules().to_vec();
        let entry = is_new.then(|| PolicyVersionRecord {
            revision,
            time_ms: env.clock.unix_ms(),
            by: CONFIGURATION.to_owned(),
            reason: CONFIGURATION.to_owned(),
            rules: rules.clone(),
            changes,
        });
        let record = PolicyRecord { rules, configured: configured.rules().to_vec(), revision };
        store(catalog, record, entry, expected).await?;
        Ok((set, revision))
    }

    pub(crate) fn present(&self) -> (Arc<PolicySet>, u64) {
        self.present.read().clone()
    }

    pub(crate) fn resolve(&self, path: &ObjectPath) -> PathPolicy {
        let set = Arc::clone(&self.present.read().0);
        set.resolve(path)
    }

    /// Whether a record of this path may be only in the operating system's memory, by the rules in force or by earlier
    /// rules. What a start finds is synced before it is read.
    pub(crate) fn may_hold_unsynced(&self, path: &ObjectPath) -> bool {
        self.replaced_os.load(Ordering::SeqCst) || self.resolve(path).durability == Durability::Os
    }
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
    /// The changes.
    pub changes: Vec<PolicyChange>,
}

impl From<PolicyVersionRecord> for PolicyVersion {
    fn from(record: PolicyVersionRecord) -> Self {
        let PolicyVersionRecord { revision, time_ms, by, reason, rules: _, changes } = record;
        Self { version: revision, time_ms, by, reason, changes }
    }
}

impl Cache {
    /// Rules of run time that this start has replaced by those of the configuration, until somebody changes the rules.
    pub fn replaced_rules(&self) -> Option<ReplacedRules> {
        self.worker.policies.replaced()
    }

    /// The versions in the history, the newest first: at most a hundred.
    pub fn policy_history(&self) -> BoxFuture<'_, Result<Vec<PolicyVersion>>> {
        Box::pin(async move {
            let (from, to) = records::all_policy_versions_range();
            let found = self.worker.catalog.scan(&from, &to, usize::MAX).await?;
            let versions = found.iter().rev().map(|(_, found)| Ok(PolicyVersionRecord::decode(&found.value)?.into()));
            versions.collect()
        })
    }

    /// The rules of a version in the history.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn policies_at(&self, version: u64) -> BoxFuture<'_, Result<Vec<PolicyRule>>> {
        Box::pin(async move {
            match self.worker.catalog.get(&records::policy_version_key(version)).await? {
                Some(found) => Ok(PolicyVersionRecord::decode(&found.value)?.rules),
                None => {
                    let context = format!("version {version} of the path policies is not in the history");
                    Err(Error::new(ErrorKind::NotFound, context))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_makes_many_versions_takes_away_none_of_others() {
        let mut kept: Vec<(usize, String)> = (0..10).map(|number| (number, "operator".to_owned())).collect();
        for number in 10..1000 {
            let gone = superfluous(kept.clone(), "tenant");
            kept.retain(|(number, _)| !gone.contains(number));
            kept.push((number, "tenant".to_owned()));
        }
        assert_eq!(kept.len(), HISTORY_VERSIONS);
        assert!((0..10).all(|number| kept[number].0 == number));
        assert_eq!(kept[10].0, 1000 - (HISTORY_VERSIONS - 10));
        // A single author keeps the newest versions.
        let kept = (0..HISTORY_VERSIONS + 3).map(|number| (number, "operator".to_owned())).collect();
        assert_eq!(superfluous(kept, "operator"), [0, 1, 2, 3]);
    }
}
