//! What was acknowledged of the path policies, which all machines share.

use std::collections::BTreeMap;

use forebay_types::PolicyRule;

#[derive(Default)]
pub(crate) struct Rules {
    acknowledged: BTreeMap<u64, Vec<PolicyRule>>,
}

impl Rules {
    /// Notes that a client got this version for these rules.
    ///
    /// # Errors
    /// When another client got the same version for other rules.
    pub(crate) fn acknowledged(&mut self, version: u64, rules: Vec<PolicyRule>) -> Result<(), String> {
        let before = self.acknowledged.entry(version).or_insert_with(|| rules.clone());
        if *before == rules {
            return Ok(());
        }
        Err(format!("version {version} of the path policies was acknowledged twice: {before:?} and {rules:?}"))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&u64, &Vec<PolicyRule>)> {
        self.acknowledged.iter()
    }

    pub(crate) fn last(&self) -> Option<(u64, Vec<PolicyRule>)> {
        self.acknowledged.last_key_value().map(|(version, rules)| (*version, rules.clone()))
    }
}
