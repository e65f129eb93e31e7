//! Path policies: what holds for the objects under a path prefix.

mod explain;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::{BucketName, ByteSize, ObjectPath, Period};

pub use explain::{ExplainedSetting, PolicyChange};

/// What happens to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WriteMode {
    /// Acknowledged when the under store has it and the cache keeps a copy.
    #[default]
    WriteThrough,
    /// Acknowledged when it is durable here; goes to the under store in the background.
    WriteBack,
    /// Durable here, never goes to the under store.
    Transient,
    /// Writes are refused, reads are cached.
    ReadOnly,
    /// Reads and writes go to the under store; nothing is kept.
    NoCache,
}

/// The order in which clean data leaves the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default, utoipa::ToSchema)]
pub enum EvictionOrder {
    #[default]
    #[serde(rename = "LRU")]
    Lru,
    #[serde(rename = "FIFO")]
    Fifo,
    #[serde(rename = "S3-FIFO")]
    S3Fifo,
    /// After the data of all paths with another order.
    #[serde(rename = "LAST")]
    Last,
}

/// What happens to a write when pinned data fills its share of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PinnedFull {
    /// 503 SlowDown, which SDKs retry.
    #[default]
    Reject,
    /// The write is done as WRITE_THROUGH.
    WriteThrough,
}

/// What happens to a write when fewer workers can take a copy than `writeReplicas` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicasMissing {
    /// 503 SlowDown, which SDKs retry.
    #[default]
    Reject,
    /// The write is done as WRITE_THROUGH.
    WriteThrough,
}

/// The largest `writeReplicas`.
pub const WRITE_REPLICAS_MAX: u32 = 8;

/// When a write counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// After `fdatasync`: survives a power cut.
    #[default]
    Fsync,
    /// After the operating system has the bytes: survives a crash of the process, not of the machine.
    Os,
}

/// One rule as an operator writes it: settings left out come from the next shorter prefix that gives them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyRule {
    /// `/`, `/bucket`, or `/bucket/key/prefix`; matched byte by byte against `/bucket/key`.
    /// A prefix without a trailing `/` also matches longer names: `/b/log` holds for `/b/logs/1`.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_mode: Option<WriteMode>,
    /// The largest object that WRITE_BACK writes back. A larger one is written as under WRITE_THROUGH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub write_back_max_size: Option<ByteSize>,
    /// The workers that have a write on stable storage before it is acknowledged, and until the under store has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_replicas: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_replicas_missing: Option<ReplicasMissing>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<EvictionOrder>,
    /// Most bytes of the cache that objects under this path may take, those under longer paths with a quota included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub cache_quota: Option<ByteSize>,
    /// Memory tier set aside for this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub memory_quota: Option<ByteSize>,
    /// How long cached metadata counts as fresh; after that, a read revalidates it with the under store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub metadata_ttl: Option<Period>,
    /// How long a page of the under store's listing, or its answer that an object does not exist, is used again.
    /// Without it, `metadataTtl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub list_ttl: Option<Period>,
    /// Whether data read from the under store is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_reads: Option<bool>,
    /// Whether other workers than the home of an object keep it in memory when it is read often, and answer its reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_reads: Option<bool>,
    /// The largest object that is kept when it is read from the under store. A larger one is passed through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub read_cache_max_size: Option<ByteSize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_full: Option<PinnedFull>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
}

impl PolicyRule {
    pub fn for_path(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            write_mode: None,
            write_back_max_size: None,
            write_replicas: None,
            when_replicas_missing: None,
            eviction: None,
            cache_quota: None,
            memory_quota: None,
            metadata_ttl: None,
            list_ttl: None,
            cache_reads: None,
            spread_reads: None,
            read_cache_max_size: None,
            pinned_full: None,
            durability: None,
        }
    }
}

/// The effective settings of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPolicy {
    /// The path of the longest rule that holds, `/` when none does: what reads are counted by.
    pub rule: Arc<str>,
    /// Of objects that are small enough for it: see [`PathPolicy::write_mode_of`].
    pub write_mode: WriteMode,
    /// As in [`PolicyRule`]; `None`: no limit.
    pub write_back_max_size: Option<ByteSize>,
    pub write_replicas: u32,
    pub when_replicas_missing: ReplicasMissing,
    pub eviction: EvictionOrder,
    /// The quota of the longest path and the rule path that sets it. The quotas of shorter paths hold too: see
    /// [`PolicySet::cache_quotas`].
    pub cache_quota: Option<(String, ByteSize)>,
    /// Quota and the rule path that sets it: all objects under that path share it.
    pub memory_quota: Option<(String, ByteSize)>,
    pub metadata_ttl: Period,
    /// Of listings of this path alone: see [`PolicySet::list_ttl`].
    pub list_ttl: Period,
    pub cache_reads: bool,
    pub spread_reads: bool,
    /// As in [`PolicyRule`]; `None`: no limit.
    pub read_cache_max_size: Option<ByteSize>,
    pub pinned_full: PinnedFull,
    pub durability: Durability,
}

/// Default of `metadataTtl`: how stale a clean object may be when somebody writes past the cache.
pub const METADATA_TTL_DEFAULT: Period = Period::from_secs(60);

/// The path of what holds where no rule does. Shared, since every read resolves a policy.
static ROOT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("/"));

impl Default for PathPolicy {
    fn default() -> Self {
        Self {
            rule: Arc::clone(&ROOT),
            write_mode: WriteMode::default(),
            write_back_max_size: None,
            write_replicas: 1,
            when_replicas_missing: ReplicasMissing::default(),
            eviction: EvictionOrder::default(),
            cache_quota: None,
            memory_quota: None,
            metadata_ttl: METADATA_TTL_DEFAULT,
            list_ttl: METADATA_TTL_DEFAULT,
            cache_reads: true,
            spread_reads: true,
            read_cache_max_size: None,
            pinned_full: PinnedFull::default(),
            durability: Durability::default(),
        }
    }
}

impl PathPolicy {
    /// How an object of `size` bytes is written. Large objects under WRITE_BACK are written as under WRITE_THROUGH.
    pub fn write_mode_of(&self, size: u64) -> WriteMode {
        match (self.write_mode, self.write_back_max_size) {
            (WriteMode::WriteBack, Some(max)) if size > max.0 => WriteMode::WriteThrough,
            (mode, _) => mode,
        }
    }

    /// Whether an object of `size` bytes is too large to be kept when it is read from the under store.
    pub fn is_too_large_to_keep(&self, size: u64) -> bool {
        self.read_cache_max_size.is_some_and(|max| size > max.0)
    }
}

/// A rule that can't hold, in one line that names the path and the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path policy {path:?}: {problem}")]
pub struct InvalidPolicy {
    pub path: String,
    pub problem: String,
}

/// All rules, checked, longest path first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PolicySet {
    rules: Vec<PolicyRule>,
    /// The paths of `rules`, to be shared by what is resolved.
    #[serde(skip)]
    paths: Vec<Arc<str>>,
}

impl PolicySet {
    /// Checks the rules. Errors name the first rule that can't hold.
    pub fn new(mut rules: Vec<PolicyRule>) -> Result<Self, InvalidPolicy> {
        rules.iter().try_for_each(check_rule)?;
        rules.sort_by(|a, b| b.path.len().cmp(&a.path.len()).then_with(|| a.path.cmp(&b.path)));
        if let Some(pair) = rules.windows(2).find(|pair| pair[0].path == pair[1].path) {
            return Err(invalid(&pair[0], "is given twice"));
        }
        let paths = rules.iter().map(|rule| Arc::from(rule.path.as_str())).collect();
        Ok(Self { rules, paths })
    }

    pub fn rules(&self) -> &[PolicyRule] {
        &self.rules
    }

    /// # Errors
    /// The first rule that a worker can't follow that is in no cluster.
    pub fn check_alone(&self) -> Result<(), InvalidPolicy> {
        match self.rules.iter().find_map(|rule| Some((rule, rule.write_replicas.filter(|count| *count > 1)?))) {
            None => Ok(()),
            Some((rule, n)) => {
                Err(invalid(rule, &format!("writeReplicas = {n} needs {n} workers, and this is a single worker")))
            }
        }
    }

    /// The effective settings of an object: each setting comes from the longest rule that gives it.
    pub fn resolve(&self, path: &ObjectPath) -> PathPolicy {
        self.resolve_text(path.bucket.as_str(), path.key.as_str())
    }

    /// All quotas that an object counts for, with the paths of their rules.
    pub fn cache_quotas(&self, path: &ObjectPath) -> impl Iterator<Item = (&str, ByteSize)> {
        let (bucket, key) = (path.bucket.as_str(), path.key.as_str());
        let matching = self.rules.iter().filter(move |rule| rule_matches(&rule.path, bucket, key));
        matching.filter_map(|rule| Some((rule.path.as_str(), rule.cache_quota?)))
    }

    /// How long a page of a listing is used again: the shortest time that holds for anything that it may show.
    pub fn list_ttl(&self, bucket: &BucketName, prefix: &str) -> Period {
        let ttl = |mode: Option<WriteMode>, ttl: Option<Period>| match mode {
            Some(WriteMode::NoCache) => Some(Period::from_secs(0)),
            _ => ttl,
        };
        let below = |rule: &&PolicyRule| {
            let key =
                rule.path.strip_prefix('/').and_then(|path| path.strip_prefix(bucket.as_str())?.strip_prefix('/'));
            key.is_some_and(|key| key.starts_with(prefix))
        };
        let own = self.resolve_text(bucket.as_str(), prefix);
        let own = ttl(Some(own.write_mode), Some(own.list_ttl));
        let below = self.rules.iter().filter(below);
        let below = below.filter_map(|rule| ttl(rule.write_mode, rule.list_ttl.or(rule.metadata_ttl)));
        below.chain(own).min().unwrap_or(Period::from_secs(0))
    }

    fn resolve_text(&self, bucket: &str, key: &str) -> PathPolicy {
        let (mut longest, mut found) = (None, PolicyRule::for_path(""));
        let (mut cache_quota, mut memory_quota) = (None, None);
        // One pass: every request resolves a policy, and there may be many rules.
        for (rule, shared) in self.rules.iter().zip(&self.paths) {
            if !rule_matches(&rule.path, bucket, key) {
                continue;
            }
            longest = longest.or(Some(shared));
            found.write_mode = found.write_mode.or(rule.write_mode);
            found.write_back_max_size = found.write_back_max_size.or(rule.write_back_max_size);
            found.write_replicas = found.write_replicas.or(rule.write_replicas);
            found.when_replicas_missing = found.when_replicas_missing.or(rule.when_replicas_missing);
            found.eviction = found.eviction.or(rule.eviction);
            found.metadata_ttl = found.metadata_ttl.or(rule.metadata_ttl);
            found.list_ttl = found.list_ttl.or(rule.list_ttl);
            found.cache_reads = found.cache_reads.or(rule.cache_reads);
            found.spread_reads = found.spread_reads.or(rule.spread_reads);
            found.read_cache_max_size = found.read_cache_max_size.or(rule.read_cache_max_size);
            found.pinned_full = found.pinned_full.or(rule.pinned_full);
            found.durability = found.durability.or(rule.durability);
            let quota = |size: Option<ByteSize>| size.map(|size| (rule.path.clone(), size));
            cache_quota = cache_quota.or_else(|| quota(rule.cache_quota));
            memory_quota = memory_quota.or_else(|| quota(rule.memory_quota));
        }
        let base = PathPolicy::default();
        PathPolicy {
            rule: longest.map_or(base.rule, Arc::clone),
            write_mode: found.write_mode.unwrap_or(base.write_mode),
            write_back_max_size: found.write_back_max_size,
            write_replicas: found.write_replicas.unwrap_or(base.write_replicas),
            when_replicas_missing: found.when_replicas_missing.unwrap_or(base.when_replicas_missing),
            eviction: found.eviction.unwrap_or(base.eviction),
            cache_quota,
            memory_quota,
            metadata_ttl: found.metadata_ttl.unwrap_or(base.metadata_ttl),
            list_ttl: found.list_ttl.or(found.metadata_ttl).unwrap_or(base.list_ttl),
            cache_reads: found.cache_reads.unwrap_or(base.cache_reads),
            spread_reads: found.spread_reads.unwrap_or(base.spread_reads),
            read_cache_max_size: found.read_cache_max_size,
            pinned_full: found.pinned_full.unwrap_or(base.pinned_full),
            durability: found.durability.unwrap_or(base.durability),
        }
    }
}

/// Whether `/bucket/key` begins with `rule`, without building that string.
fn rule_matches(rule: &str, bucket: &str, key: &str) -> bool {
    let Some(rest) = rule.strip_prefix('/') else { return false };
    if rest.len() <= bucket.len() {
        return bucket.starts_with(rest);
    }
    rest.strip_prefix(bucket).and_then(|r| r.strip_prefix('/')).is_some_and(|prefix| key.starts_with(prefix))
}

fn invalid(rule: &PolicyRule, problem: &str) -> InvalidPolicy {
    InvalidPolicy { path: rule.path.clone(), problem: problem.to_owned() }
}

fn check_rule(rule: &PolicyRule) -> Result<(), InvalidPolicy> {
    if !rule.path.starts_with('/') {
        return Err(invalid(rule, "must begin with '/'"));
    }
    // Not against the modes of other rules: a rule may give the limit for longer paths that set WRITE_BACK.
    if let (Some(_), Some(mode)) = (rule.write_back_max_size, rule.write_mode)
        && mode != WriteMode::WriteBack
    {
        let problem =
            format!("writeBackMaxSize needs writeMode = WRITE_BACK, and the rule sets {mode}: unset one of them");
        return Err(invalid(rule, &problem));
    }
    match rule.write_replicas {
        None | Some(1..=WRITE_REPLICAS_MAX) => Ok(()),
        Some(n) => Err(invalid(rule, &format!("writeReplicas = {n} is not in 1..{WRITE_REPLICAS_MAX}"))),
    }
}

impl FromStr for WriteMode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::WriteThrough, Self::WriteBack, Self::Transient, Self::ReadOnly, Self::NoCache];
        let names = all.map(Self::as_str).join(", ");
        all.into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or(format!("{text:?} is not a write mode: one of {names}"))
    }
}

impl WriteMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WriteThrough => "WRITE_THROUGH",
            Self::WriteBack => "WRITE_BACK",
            Self::Transient => "TRANSIENT",
            Self::ReadOnly => "READ_ONLY",
            Self::NoCache => "NO_CACHE",
        }
    }
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: &str, mode: Option<WriteMode>) -> PolicyRule {
        PolicyRule { write_mode: mode, ..PolicyRule::for_path(path) }
    }

    fn mode_of(set: &PolicySet, bucket: &str, key: &str) -> WriteMode {
        set.resolve(&ObjectPath::parse(bucket, key).expect("a valid path")).write_mode
    }

    /// With a limit of ten bytes for what is written back.
    fn limited(path: &str, mode: Option<WriteMode>) -> PolicyRule {
        PolicyRule { write_back_max_size: Some(ByteSize(10)), ..rule(path, mode) }
    }

    #[test]
    fn only_large_objects_under_write_back_are_written_through() {
        let rules = vec![
            limited("/", None),
            rule("/back/", Some(WriteMode::WriteBack)),
            PolicyRule { write_back_max_size: Some(ByteSize(20)), ..PolicyRule::for_path("/back/twenty/") },
            rule("/transient/", Some(WriteMode::Transient)),
            rule("/none/", Some(WriteMode::NoCache)),
        ];
        let set = PolicySet::new(rules).expect("a limit may be for longer paths");
        for (bucket, key, size, mode) in [
            ("back", "x", 0, WriteMode::WriteBack),
            ("back", "x", 10, WriteMode::WriteBack),
            ("back", "x", 11, WriteMode::WriteThrough),
            ("back", "twenty/x", 20, WriteMode::WriteBack),
            ("back", "twenty/x", 21, WriteMode::WriteThrough),
            ("transient", "x", 11, WriteMode::Transient),
            ("none", "x", 11, WriteMode::NoCache),
            ("other", "x", 11, WriteMode::WriteThrough),
        ] {
            let policy = set.resolve(&ObjectPath::parse(bucket, key).expect("a valid path"));
            assert_eq!(policy.write_mode_of(size), mode, "{bucket}/{key}, {size} bytes");
        }
        let zero = PolicyRule { write_back_max_size: Some(ByteSize(0)), ..rule("/", Some(WriteMode::WriteBack)) };
        let policy = PolicySet::new(vec![zero]).expect("valid").resolve(&ObjectPath::parse("abc", "x").expect("valid"));
        assert_eq!((policy.write_mode_of(0), policy.write_mode_of(1)), (WriteMode::WriteBack, WriteMode::WriteThrough));
        assert_eq!(
            PathPolicy { write_mode: WriteMode::WriteBack, ..PathPolicy::default() }.write_mode_of(u64::MAX),
            WriteMode::WriteBack
        );
    }

    #[test]
    fn reads_keep_objects_up_to_the_limit() {
        let policy = PathPolicy { read_cache_max_size: Some(ByteSize(10)), ..PathPolicy::default() };
        assert!(!policy.is_too_large_to_keep(10) && policy.is_too_large_to_keep(11));
        assert!(!PathPolicy::default().is_too_large_to_keep(u64::MAX));
    }

    #[test]
    fn the_longest_prefix_that_gives_a_setting_wins() {
        let quota = PolicyRule { cache_quota: Some(ByteSize(7)), ..PolicyRule::for_path("/data/in/hot/") };
        let set = PolicySet::new(vec![
            rule("/", Some(WriteMode::NoCache)),
            rule("/data/in/", Some(WriteMode::WriteBack)),
            quota,
            rule("/data", Some(WriteMode::Transient)),
        ])
        .expect("valid rules");
        for (bucket, key, mode) in [
            ("other", "x", WriteMode::NoCache),
            ("data", "x", WriteMode::Transient),
            ("data2", "x", WriteMode::Transient),
            ("data", "in", WriteMode::Transient),
            ("data", "in/x", WriteMode::WriteBack),
            ("data", "in/hot/x", WriteMode::WriteBack),
            ("data", "/in/x", WriteMode::Transient),
        ] {
            assert_eq!(mode_of(&set, bucket, key), mode, "{bucket}/{key}");
        }
        let hot = set.resolve(&ObjectPath::parse("data", "in/hot/x").expect("a valid path"));
        assert_eq!(hot.cache_quota, Some(("/data/in/hot/".to_owned(), ByteSize(7))));
        assert_eq!(hot.rule.as_ref(), "/data/in/hot/");
        let none = PolicySet::new(vec![rule("/data", None)]).expect("valid rules");
        assert_eq!(none.resolve(&ObjectPath::parse("other", "x").expect("a valid path")).rule.as_ref(), "/");
    }

    #[test]
    fn a_listing_is_as_cautious_as_the_most_cautious_rule_below_it() {
        let ttl = |path: &str, metadata: Option<u64>, list: Option<u64>| PolicyRule {
            metadata_ttl: metadata.map(Period::from_secs),
            list_ttl: list.map(Period::from_secs),
            ..PolicyRule::for_path(path)
        };
        let check = |rules: &[PolicyRule], prefix: &str, seconds: u64| {
            let set = PolicySet::new(rules.to_vec()).expect("valid rules");
            let bucket = BucketName::new("data").expect("a bucket");
            assert_eq!(set.list_ttl(&bucket, prefix), Period::from_secs(seconds), "{prefix:?}");
        };
        check(&[], "", 60);
        check(&[ttl("/", Some(5), None)], "x", 5);
        check(&[ttl("/", Some(5), Some(600))], "x", 600);
        let rules = [ttl("/", None, Some(600)), ttl("/data/hot/", Some(0), None), ttl("/data/hot/a/", None, Some(7))];
        check(&rules, "", 0);
        check(&rules, "h", 0);
        check(&rules, "hot/", 0);
        check(&rules, "hot/a/", 7);
        check(&rules, "cold/", 600);
        let none = rule("/data/none/", Some(WriteMode::NoCache));
        check(std::slice::from_ref(&none), "none/x", 0);
        check(std::slice::from_ref(&none), "", 0);
        check(&[none, ttl("/other/", Some(0), None)], "some/", 60);
    }

    #[test]
    fn rules_that_cannot_hold_are_refused_by_name() {
        for (rules, word) in [
            (vec![rule("data", None)], "begin with '/'"),
            (vec![rule("/a", None), rule("/a", None)], "twice"),
            (vec![PolicyRule { write_replicas: Some(0), ..rule("/a", None) }], "writeReplicas"),
            (vec![PolicyRule { write_replicas: Some(9), ..rule("/a", None) }], "1..8"),
            (vec![limited("/a", Some(WriteMode::WriteThrough))], "writeBackMaxSize"),
            (vec![limited("/a", Some(WriteMode::Transient))], "TRANSIENT"),
            (vec![limited("/a", Some(WriteMode::ReadOnly))], "READ_ONLY"),
            (vec![limited("/a", Some(WriteMode::NoCache))], "NO_CACHE"),
        ] {
            let error = PolicySet::new(rules).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_single_worker_keeps_one_copy() {
        let with = |count| PolicyRule { write_replicas: Some(count), ..rule("/a", None) };
        let set = |count| PolicySet::new(vec![rule("/", None), with(count)]).expect("valid rules");
        assert_eq!(set(1).check_alone(), Ok(()));
        let problem = set(8).check_alone().expect_err("eight workers").to_string();
        assert!(problem.contains("\"/a\"") && problem.contains("single worker"), "{problem}");
    }

    #[test]
    fn a_write_mode_is_read_as_it_is_shown() {
        assert_eq!("WRITE_BACK".parse(), Ok(WriteMode::WriteBack));
        let error = "WRITEBACK".parse::<WriteMode>().expect_err("not a mode");
        assert!(error.contains("WRITEBACK") && error.contains("WRITE_BACK"), "{error}");
    }
}
