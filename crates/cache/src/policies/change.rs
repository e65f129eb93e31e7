//! Changes of the rules at run time, and what follows from them.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_catalog::records::{self, PolicyRecord, PolicyVersionRecord};
use forebay_env::sync::atomic::Ordering;
use forebay_types::{Durability, Generation, ObjectPath, PathPolicy, PolicyRule, PolicySet};

use super::groups::group_of;
use super::{TRIES_MAX, check, check_new, store};
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};

impl Worker {
    pub(crate) fn check_policies(&self, rules: Vec<PolicyRule>) -> Result<PolicySet> {
        check_new(rules, self.others.is_some())
    }

    pub(crate) async fn set_policies(
        &self,
        rules: Vec<PolicyRule>,
        version: Option<u64>,
        by: &str,
        reason: &str,
    ) -> Result<u64> {
        let set = self.check_policies(rules)?;
        let _changing = self.policies.changing.lock().await;
        let mut tries = 0;
        loop {
            let (record, expected) = self.stored_policies().await?;
            if version.is_some_and(|version| version != record.revision) {
                let context = format!(
                    "the path policies were changed meanwhile and have version {}: read them again",
                    record.revision
                );
                return Err(Error::new(ErrorKind::Conflict, context));
            }
            let changes = check(record.rules)?.changes_to(&set);
            if changes.is_empty() {
                return Ok(record.revision);
            }
            let revision = record.revision + 1;
            let (rules, time_ms) = (set.rules().to_vec(), self.env.clock.unix_ms());
            let (by, reason) = (by.to_owned(), reason.to_owned());
            let entry = PolicyVersionRecord { revision, time_ms, by, reason, rules: rules.clone(), changes };
            let record = PolicyRecord { rules, configured: record.configured, revision };
            tries += 1;
            match store(self.catalog.as_ref(), record, Some(entry), Some(expected)).await {
                Ok(()) => {
                    self.put_in_force(set, revision);
                    self.regroup().await;
                    return Ok(revision);
                }
                // Another worker was quicker, and the catalog shows its rules by now.
                Err(error) if error.kind == ErrorKind::Conflict && tries < TRIES_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Brings the catalog's rules into force, which another worker may have changed.
    pub(crate) async fn follow_policies(&self) -> Result<()> {
        let _changing = self.policies.changing.lock().await;
        self.stored_policies().await.map(drop)
    }

    /// The catalog's rules and the version of their record. They are in force then: an earlier change may have got no
    /// answer from the catalog and was made, or another worker has made one.
    async fn stored_policies(&self) -> Result<(PolicyRecord, u64)> {
        let Some(found) = self.catalog.get(&records::policy_key()).await? else {
            return Err(Error::new(ErrorKind::Internal, "the catalog holds no path policies"));
        };
        let record = PolicyRecord::decode(&found.value)?;
        if self.policies.present().1 != record.revision {
            self.put_in_force(check(record.rules.clone())?, record.revision);
        }
        self.regroup().await;
        Ok((record, found.version))
    }

    /// [`Worker::regroup`] is to follow.
    fn put_in_force(&self, set: PolicySet, revision: u64) {
        let set = Arc::new(set);
        let (before, _) = self.policies.present();
        let had_os = before.rules().iter().any(|rule| rule.durability == Some(Durability::Os));
        if had_os && before.changes_to(&set).iter().any(|change| change.setting == "durability") {
            self.policies.replaced_os.store(true, Ordering::SeqCst);
        }
        *self.policies.present.write() = (Arc::clone(&set), revision);
        self.memory.configure(&set);
        self.home.sent.changed();
        self.metrics.keep_reads_of(&set);
        let quotas = |set: &PolicySet| -> BTreeSet<String> {
            set.rules().iter().filter(|rule| rule.cache_quota.is_some()).map(|rule| rule.path.clone()).collect()
        };
        if quotas(&before) != quotas(&set) {
            self.policies.ungrouped.store(true, Ordering::SeqCst);
        }
    }

    /// Adjusts the memory tier, the copies and the accounting of quotas to the rules of a start.
    pub(crate) async fn apply_policies(&self) {
        self.memory.configure(&self.policies.present().0);
        self.home.sent.changed();
        self.regroup().await;
    }

    /// Called when a new object is shown. Until then, a change of the rules does not find it. `policy` is what it was
    /// written with, and the rules may have changed since.
    pub(crate) fn adjust_group(&self, path: &ObjectPath, policy: &PathPolicy, generation: Generation) {
        let mut counted = group_of(policy);
        // Checked again after each step: the rules change before all objects are assigned to groups again.
        loop {
            let group = group_of(&self.policies.resolve(path));
            if group == counted {
                return;
            }
            self.store.set_group(&Self::store_key(path), generation, group);
            counted = group;
        }
    }

    /// Handles all objects if the quotas have changed. Called by one at a time. If that one does not wait for the end,
    /// the next one begins again.
    async fn regroup(&self) {
        if !self.policies.ungrouped.load(Ordering::SeqCst) {
            return;
        }
        let (set, _) = self.policies.present();
        let has_quotas = set.rules().iter().any(|rule| rule.cache_quota.is_some());
        let path_of = |key: &[u8]| has_quotas.then(|| records::parse_object_key(key)).flatten();
        self.store.regroup(&|key| path_of(key).map_or(0, |path| group_of(&set.resolve(&path)))).await;
        self.policies.ungrouped.store(false, Ordering::SeqCst);
    }
}
