//! The settings of a rule as flags.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use forebay_types::{ByteSize, Durability, EvictionOrder, Period, PinnedFull, PolicyRule, ReplicasMissing, WriteMode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::commands::escaped;
use crate::failure::Failure;

/// The settings as flags name them, without the dashes in front, and as rules do.
const SETTINGS: [(&str, &str); 14] = [
    ("write-mode", "writeMode"),
    ("write-back-max-size", "writeBackMaxSize"),
    ("write-replicas", "writeReplicas"),
    ("when-replicas-missing", "whenReplicasMissing"),
    ("eviction", "eviction"),
    ("cache-quota", "cacheQuota"),
    ("memory-quota", "memoryQuota"),
    ("metadata-ttl", "metadataTtl"),
    ("list-ttl", "listTtl"),
    ("cache-reads", "cacheReads"),
    ("spread-reads", "spreadReads"),
    ("read-cache-max-size", "readCacheMaxSize"),
    ("pinned-full", "pinnedFull"),
    ("durability", "durability"),
];

const WRITE_MODES: [&str; 5] = ["WRITE_THROUGH", "WRITE_BACK", "TRANSIENT", "READ_ONLY", "NO_CACHE"];
const EVICTION_ORDERS: [&str; 4] = ["LRU", "FIFO", "S3-FIFO", "LAST"];
const PINNED_FULL: [&str; 2] = ["reject", "write-through"];
const REPLICAS_MISSING: [&str; 2] = ["reject", "write-through"];
const DURABILITIES: [&str; 2] = ["fsync", "os"];

#[derive(Debug, Args)]
pub(crate) struct SetOptions {
    /// Path of the rule: /, s3://bucket, /bucket/prefix, …
    pub(super) path: String,
    #[command(flatten)]
    given: Given,
    /// Setting that the rule no longer gives
    #[arg(long, value_name = "SETTING", value_parser = PossibleValuesParser::new(setting_names()))]
    unset: Vec<String>,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    /// What happens to a write
    #[arg(long, value_name = "MODE", value_parser = words::<WriteMode>(&WRITE_MODES))]
    #[serde(skip_serializing_if = "Option::is_none")]
    write_mode: Option<WriteMode>,
    /// Largest object that WRITE_BACK writes back, such as 8MiB; a larger one is written through
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    write_back_max_size: Option<ByteSize>,
    /// Workers that hold what the under store does not have yet
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    write_replicas: Option<u32>,
    /// What happens to a write when too few workers can take a replica
    #[arg(long, value_name = "ANSWER", value_parser = words::<ReplicasMissing>(&REPLICAS_MISSING))]
    #[serde(skip_serializing_if = "Option::is_none")]
    when_replicas_missing: Option<ReplicasMissing>,
    /// Order in which clean data leaves the cache
    #[arg(long, value_name = "ORDER", value_parser = words::<EvictionOrder>(&EVICTION_ORDERS))]
    #[serde(skip_serializing_if = "Option::is_none")]
    eviction: Option<EvictionOrder>,
    /// Most bytes of the cache under this path, such as 100GiB
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_quota: Option<ByteSize>,
    /// Memory tier set aside for this path, such as 512MiB
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_quota: Option<ByteSize>,
    /// How long cached metadata counts as fresh, such as 60s
    #[arg(long, value_name = "PERIOD")]
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_ttl: Option<Period>,
    /// How long pages of listings, and answers that an object does not exist, are reused, such as 60s; 0s: never
    #[arg(long, value_name = "PERIOD")]
    #[serde(skip_serializing_if = "Option::is_none")]
    list_ttl: Option<Period>,
    /// Whether data read from the under store is kept
    #[arg(long, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_reads: Option<bool>,
    /// Whether other workers than the home of an object answer reads of it when it is read often
    #[arg(long, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    spread_reads: Option<bool>,
    /// Largest object that is kept when it is read from the under store, such as 1GiB
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    read_cache_max_size: Option<ByteSize>,
    /// What happens to a write when pinned data fills its share
    #[arg(long, value_name = "ANSWER", value_parser = words::<PinnedFull>(&PINNED_FULL))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_full: Option<PinnedFull>,
    /// When a write counts as durable
    #[arg(long, value_name = "WHEN", value_parser = words::<Durability>(&DURABILITIES))]
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<Durability>,
}

/// Reads one of the words that rules take for a setting; help and completions list them.
fn words<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    known: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(known).try_map(|text| serde_json::from_value::<T>(Value::String(text)))
}

fn setting_names() -> impl Iterator<Item = PossibleValue> {
    SETTINGS.into_iter().map(|(flag, in_rules)| PossibleValue::new(flag).alias(in_rules))
}

/// The name in rules of a setting that is named in either way.
fn in_rules(name: &str) -> &str {
    SETTINGS.iter().find(|(flag, _)| *flag == name).map_or(name, |(_, in_rules)| in_rules)
}

impl SetOptions {
    /// # Errors
    /// When nothing would change, or one setting is given and taken away.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let given = self.given();
        if given.is_empty() && self.unset.is_empty() {
            return Err(Failure::Refused("policy set: name a setting, such as --write-mode WRITE_BACK".to_owned()));
        }
        match self.unset.iter().find(|name| given.contains_key(in_rules(name))) {
            Some(name) => Err(Failure::Refused(format!("--unset {name}: is set as well"))),
            None => Ok(()),
        }
    }

    pub(super) fn write_replicas(&self) -> Option<u32> {
        self.given.write_replicas
    }

    pub(super) fn apply(&self, rule: &mut Map<String, Value>) {
        rule.extend(self.given());
        for name in &self.unset {
            rule.remove(in_rules(name));
        }
    }

    fn given(&self) -> Map<String, Value> {
        match serde_json::to_value(&self.given) {
            Ok(Value::Object(given)) => given,
            other => unreachable!("a struct is an object in JSON, and this is {other:?}"),
        }
    }
}

/// The settings that a rule gives, with their values as people read them.
pub(super) fn of_rule(rule: &PolicyRule) -> Vec<(String, String)> {
    let Ok(Value::Object(mut settings)) = serde_json::to_value(rule) else {
        unreachable!("a rule is an object in JSON");
    };
    settings.remove("path");
    let shown = |value: Value| value.as_str().map_or_else(|| value.to_string(), escaped);
    settings.into_iter().map(|(name, value)| (name, shown(value))).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        options: SetOptions,
    }

    fn parse(arguments: &[&str]) -> Result<SetOptions, clap::Error> {
        let arguments = ["set", "/b/"].iter().chain(arguments);
        Ok(Command::try_parse_from(arguments)?.options)
    }

    /// A rule that gives every setting.
    fn full() -> Map<String, Value> {
        let arguments: Vec<_> =
            SETTINGS.iter().zip(VALUES).map(|((name, _), value)| format!("--{name}={value}")).collect();
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let mut rule = Map::from_iter([("path".to_owned(), "/b/".into())]);
        parse(&arguments).expect("all flags are known").apply(&mut rule);
        rule
    }

    const VALUES: [&str; 14] = [
        "WRITE_BACK",
        "8MiB",
        "2",
        "write-through",
        "S3-FIFO",
        "1GiB",
        "1MiB",
        "10s",
        "20s",
        "false",
        "false",
        "2GiB",
        "write-through",
        "os",
    ];

    #[test]
    fn every_setting_of_a_rule_has_a_flag_and_can_be_unset() {
        let mut rule = full();
        let read: PolicyRule = serde_json::from_value(Value::Object(rule.clone())).expect("a rule");
        let PolicyRule {
            path: _,
            write_mode: Some(WriteMode::WriteBack),
            write_back_max_size: Some(ByteSize(0x80_0000)),
            write_replicas: Some(2),
            when_replicas_missing: Some(ReplicasMissing::WriteThrough),
            eviction: Some(EvictionOrder::S3Fifo),
            cache_quota: Some(ByteSize(0x4000_0000)),
            memory_quota: Some(ByteSize(0x10_0000)),
            metadata_ttl: Some(_),
            list_ttl: Some(_),
            cache_reads: Some(false),
            spread_reads: Some(false),
            read_cache_max_size: Some(ByteSize(0x8000_0000)),
            pinned_full: Some(PinnedFull::WriteThrough),
            durability: Some(Durability::Os),
        } = read
        else {
            panic!("{read:?} lacks a setting");
        };
        let unset: Vec<_> = SETTINGS.iter().map(|(name, _)| format!("--unset={name}")).collect();
        let unset: Vec<_> = unset.iter().map(String::as_str).collect();
        parse(&unset).expect("all settings are known").apply(&mut rule);
        assert_eq!(Value::Object(rule), serde_json::json!({"path": "/b/"}));
    }

    #[test]
    fn settings_that_are_not_named_stay() {
        let mut rule = full();
        rule.insert("ofTheFuture".into(), 1.into());
        parse(&["--write-mode", "NO_CACHE", "--unset", "cacheQuota"]).expect("settings").apply(&mut rule);
        assert_eq!(
            (&rule["writeMode"], &rule["durability"], &rule["ofTheFuture"]),
            (&"NO_CACHE".into(), &"os".into(), &1.into())
        );
        assert!(!rule.contains_key("cacheQuota"));
    }

    #[test]
    fn what_changes_nothing_or_contradicts_itself_is_refused() {
        parse(&[]).expect("flags are optional").check().expect_err("nothing to set");
        let both = parse(&["--cache-reads", "true", "--unset", "cache-reads"]).expect("flags").check();
        let Err(Failure::Refused(line)) = both else { panic!("{both:?}") };
        assert!(line.contains("cache-reads"), "{line}");
        for wrong in
            ["--write-mode=WRITEBACK", "--eviction=lifo", "--cache-quota=much", "--metadata-ttl=5", "--unset=x"]
        {
            parse(&[wrong]).expect_err(wrong);
        }
    }

    #[test]
    fn every_word_of_a_flag_is_one_of_rules() {
        fn check<T: DeserializeOwned + Serialize>(words: &[&str]) {
            for word in words {
                let value: T = serde_json::from_value((*word).into()).expect("a known word");
                assert_eq!(serde_json::to_value(value).expect("it was read"), *word);
            }
        }
        check::<WriteMode>(&WRITE_MODES);
        check::<EvictionOrder>(&EVICTION_ORDERS);
        check::<PinnedFull>(&PINNED_FULL);
        check::<ReplicasMissing>(&REPLICAS_MISSING);
        check::<Durability>(&DURABILITIES);
    }
}
