//! Rules told to people: what a change of them changes, and where each setting that holds comes from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{PathPolicy, PolicyRule, PolicySet, rule_matches};
use crate::ObjectPath;

/// The settings of a rule, as rules name them, in the order in which they are shown.
const SETTINGS: [&str; 14] = [
    "writeMode",
    "writeBackMaxSize",
    "writeReplicas",
    "whenReplicasMissing",
    "eviction",
    "cacheQuota",
    "memoryQuota",
    "metadataTtl",
    "listTtl",
    "cacheReads",
    "spreadReads",
    "readCacheMaxSize",
    "pinnedFull",
    "durability",
];

/// One setting of one rule that another set of rules has otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyChange {
    /// The path of the rule.
    pub path: String,
    /// The setting, as rules name it; empty when a rule without settings comes or goes, which is `{}` before or after.
    pub setting: String,
    /// As JSON text; `None`: not set.
    pub before: Option<String>,
    pub after: Option<String>,
}

/// A setting that holds for an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedSetting {
    pub setting: String,
    /// As rules write it, without quotes: `WRITE_BACK`, `1`, `true`, `64 MiB`; `null` for a quota or a limit that
    /// no rule sets.
    #[schema(value_type = Option<String>)]
    pub value: Option<String>,
    /// The path of the rule that gives it; none for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// The settings that a rule gives.
fn settings_of(rule: &PolicyRule) -> Map<String, Value> {
    match serde_json::to_value(rule).expect("a rule has only names for keys") {
        Value::Object(mut settings) => {
            settings.remove("path");
            settings
        }
        _ => unreachable!("a rule is written as an object"),
    }
}

/// What holds where no rule says otherwise.
fn defaults() -> PolicyRule {
    let base = PathPolicy::default();
    PolicyRule {
        write_mode: Some(base.write_mode),
        write_replicas: Some(base.write_replicas),
        when_replicas_missing: Some(base.when_replicas_missing),
        eviction: Some(base.eviction),
        metadata_ttl: Some(base.metadata_ttl),
        list_ttl: Some(base.list_ttl),
        cache_reads: Some(base.cache_reads),
        spread_reads: Some(base.spread_reads),
        pinned_full: Some(base.pinned_full),
        durability: Some(base.durability),
        ..PolicyRule::for_path("/")
    }
}

/// A value as rules write it, without the quotes of JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn changes_of(
    path: &str,
    before: Option<&Map<String, Value>>,
    after: Option<&Map<String, Value>>,
) -> Vec<PolicyChange> {
    let text = |settings: Option<&Map<String, Value>>, name: &str| Some(settings?.get(name)?.to_string());
    let change = |setting: &str, before, after| PolicyChange {
        path: path.to_owned(),
        setting: setting.to_owned(),
        before,
        after,
    };
    let differing = SETTINGS.iter().filter_map(|name| {
        let (before, after) = (text(before, name), text(after, name));
        (before != after).then(|| change(name, before, after))
    });
    let changes: Vec<_> = differing.collect();
    let comes_or_goes = before.is_some() != after.is_some();
    if changes.is_empty() && comes_or_goes {
        let empty = |settings: Option<&Map<String, Value>>| settings.map(|_| "{}".to_owned());
        return vec![change("", empty(before), empty(after))];
    }
    changes
}

impl PolicySet {
    /// What changes from this set to `after`, by path and setting.
    pub fn changes_to(&self, after: &Self) -> Vec<PolicyChange> {
        let by_path = |set: &Self| -> BTreeMap<String, Map<String, Value>> {
            set.rules.iter().map(|rule| (rule.path.clone(), settings_of(rule))).collect()
        };
        let (before, after) = (by_path(self), by_path(after));
        let gone_or_there = before.keys();
        let new = after.keys().filter(|path| !before.contains_key(*path));
        let mut paths: Vec<_> = gone_or_there.chain(new).collect();
        paths.sort();
        paths.into_iter().flat_map(|path| changes_of(path, before.get(path), after.get(path))).collect()
    }

    /// Each setting that holds for an object, with the path of the rule that gives it (`None`: the default).
    pub fn explain(&self, path: &ObjectPath) -> Vec<ExplainedSetting> {
        let matching =
            self.rules.iter().filter(|rule| rule_matches(&rule.path, path.bucket.as_str(), path.key.as_str()));
        let matching: Vec<_> = matching.map(|rule| (rule.path.as_str(), settings_of(rule))).collect();
        let defaults = settings_of(&defaults());
        let given = |setting: &str| matching.iter().find_map(|(path, settings)| Some((*path, settings.get(setting)?)));
        let explained = SETTINGS.map(|setting| {
            let given = match setting {
                "listTtl" => given(setting).or_else(|| given("metadataTtl")),
                _ => given(setting),
            };
            let value = given.map(|(_, value)| value).or_else(|| defaults.get(setting)).map(plain);
            ExplainedSetting { setting: setting.to_owned(), value, from: given.map(|(path, _)| path.to_owned()) }
        });
        explained.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ByteSize, Durability, EvictionOrder, Period, PinnedFull, ReplicasMissing, WriteMode};

    fn full() -> PolicyRule {
        PolicyRule {
            path: "/full/".to_owned(),
            write_mode: Some(WriteMode::WriteBack),
            write_back_max_size: Some(ByteSize(8 << 20)),
            write_replicas: Some(1),
            when_replicas_missing: Some(ReplicasMissing::WriteThrough),
            eviction: Some(EvictionOrder::Fifo),
            cache_quota: Some(ByteSize(64 << 20)),
            memory_quota: Some(ByteSize(1 << 20)),
            metadata_ttl: Some(Period::from_secs(5)),
            list_ttl: Some(Period::from_secs(9)),
            cache_reads: Some(false),
            spread_reads: Some(false),
            read_cache_max_size: Some(ByteSize(1 << 30)),
            pinned_full: Some(PinnedFull::WriteThrough),
            durability: Some(Durability::Os),
        }
    }

    fn mode(path: &str, mode: WriteMode) -> PolicyRule {
        PolicyRule { write_mode: Some(mode), ..PolicyRule::for_path(path) }
    }

    fn set(rules: Vec<PolicyRule>) -> PolicySet {
        PolicySet::new(rules).expect("valid rules")
    }

    fn line(change: PolicyChange) -> String {
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        format!("{} {} {} {}", change.path, change.setting, text(change.before), text(change.after))
    }

    /// A setting that is missing in the list would change unseen.
    #[test]
    fn every_setting_of_a_rule_is_told() {
        let mut names: Vec<_> = settings_of(&full()).into_iter().map(|(name, _)| name).collect();
        let mut told = SETTINGS.map(str::to_owned).to_vec();
        names.sort();
        told.sort();
        assert_eq!(names, told);
        let object = ObjectPath::parse("full", "key").expect("a valid path");
        let explained = set(vec![full()]).explain(&object);
        assert!(explained.iter().all(|setting| setting.from.as_deref() == Some("/full/")), "{explained:?}");
        assert_eq!(set(vec![]).changes_to(&set(vec![full()])).len(), SETTINGS.len());
    }

    #[test]
    fn changes_name_path_setting_and_both_values() {
        let before = set(vec![mode("/a", WriteMode::WriteBack), full(), PolicyRule::for_path("/bare")]);
        let quota = PolicyRule { cache_quota: Some(ByteSize(1 << 30)), cache_reads: None, ..full() };
        let after = set(vec![quota, mode("/b", WriteMode::NoCache), PolicyRule::for_path("/new")]);
        let changes: Vec<_> = before.changes_to(&after).into_iter().map(line).collect();
        assert_eq!(
            changes,
            [
                r#"/a writeMode "WRITE_BACK" -"#,
                r#"/b writeMode - "NO_CACHE""#,
                r"/bare  {} -",
                r#"/full/ cacheQuota "64 MiB" "1 GiB""#,
                r"/full/ cacheReads false -",
                r"/new  - {}",
            ]
        );
        assert!(after.changes_to(&after).is_empty());
    }

    #[test]
    fn each_setting_names_the_rule_that_gives_it() {
        let inner = PolicyRule { cache_reads: Some(false), ..PolicyRule::for_path("/data/in/") };
        let outer = PolicyRule { write_back_max_size: Some(ByteSize(8 << 20)), ..mode("/", WriteMode::WriteBack) };
        let rules = set(vec![outer, mode("/data", WriteMode::Transient), inner]);
        let object = ObjectPath::parse("data", "in/x").expect("a valid path");
        let explained = rules.explain(&object);
        let find = |name: &str| {
            let found = explained.iter().find(|setting| setting.setting == name).expect("a setting");
            (found.value.as_deref(), found.from.as_deref())
        };
        assert_eq!(find("writeMode"), (Some("TRANSIENT"), Some("/data")));
        assert_eq!(find("cacheReads"), (Some("false"), Some("/data/in/")));
        assert_eq!(find("metadataTtl"), (Some("1 min"), None));
        assert_eq!(find("listTtl"), (Some("1 min"), None));
        assert_eq!(find("writeReplicas"), (Some("1"), None));
        assert_eq!(find("cacheQuota"), (None, None));
        assert_eq!(find("writeBackMaxSize"), (Some("8 MiB"), Some("/")));
        assert_eq!(find("readCacheMaxSize"), (None, None));
        let names: Vec<_> = explained.iter().map(|setting| setting.setting.as_str()).collect();
        assert_eq!(names, SETTINGS);
        let cautious = PolicyRule { metadata_ttl: Some(Period::from_secs(5)), ..PolicyRule::for_path("/data/") };
        let explained = set(vec![cautious]).explain(&object);
        let list = explained.iter().find(|setting| setting.setting == "listTtl").expect("a setting");
        assert_eq!((list.value.as_deref(), list.from.as_deref()), (Some("5 s"), Some("/data/")));
    }
}
