//! `[[policy]]` tables and `--mode`.

use forebay_types::{BucketName, PolicyRule, PolicySet, WriteMode};

use super::problem::{Problem, Problems, closest, in_one_line};
use super::sources::Sourced;

/// A setting of a policy, for the reference and for suggestions.
pub(crate) struct PolicyKey {
    pub(crate) name: &'static str,
    pub(crate) values: &'static str,
    pub(crate) about: &'static str,
}

const fn key(name: &'static str, values: &'static str, about: &'static str) -> PolicyKey {
    PolicyKey { name, values, about }
}

#[rustfmt::skip]
pub(crate) const POLICY_KEYS: [PolicyKey; 15] = [
    key("path", "`/`, `/bucket`, `/bucket/prefix`", "The path that the policy holds for. A longer path wins over a shorter one."),
    key("writeMode", "`WRITE_THROUGH`, `WRITE_BACK`, `TRANSIENT`, `READ_ONLY`, `NO_CACHE`", "What happens to a write. Default `WRITE_THROUGH`."),
    key("writeBackMaxSize", "size", "Under `WRITE_BACK`: a larger object is acknowledged when the under store has it. Without it, no limit."),
    key("writeReplicas", "number", "Workers of a cluster that hold a write before it is acknowledged, and until the under store has it: 1 to 8. Default 1."),
    key("whenReplicasMissing", "`reject`, `write-through`", "What happens to a write when fewer workers can hold it: 503 SlowDown, or a write to the under store. Default `reject`."),
    key(
        "eviction",
        "`LRU`, `FIFO`, `S3-FIFO`, `LAST`",
        "The order in which clean data leaves the cache. `LAST`: after the data of all other paths. Default `LRU`.",
    ),
    key("cacheQuota", "size", "Most bytes of the cache that objects under the path may take."),
    key("memoryQuota", "size", "Memory tier set aside for the path."),
    key("metadataTtl", "period", "How long cached metadata counts as fresh; after that, a read revalidates it with the under store. Default `1 min`."),
    key("listTtl", "period", "How long a page of the under store's listing, or its answer that an object does not exist, is used again; `0 s`: never. Without it, `metadataTtl`."),
    key("cacheReads", "`true`, `false`", "Whether data read from the under store is kept. Default `true`."),
    key("spreadReads", "`true`, `false`", "Whether other workers of a cluster than the home of an object keep it in memory when it is read often, and answer its reads. Default `true`."),
    key("readCacheMaxSize", "size", "A larger object that is read from the under store is passed through and not kept. Without it, no limit."),
    key("pinnedFull", "`reject`, `write-through`", "What happens to a write when pinned data fills its share: 503 SlowDown, or a write to both. Default `reject`."),
    key("durability", "`fsync`, `os`", "When a write counts as durable: after `fdatasync`, or when the operating system has it. Default `fsync`."),
];

/// # Errors
/// All that is wrong with single tables.
pub(crate) fn read(tables: &[Sourced]) -> Result<Vec<PolicyRule>, Problem> {
    let mut problems = Problems::default();
    let rules = tables.iter().filter_map(|table| problems.take(rule(table))).collect();
    problems.result().map(|()| rules)
}

/// Checks the rules of `tables` together. `mode` overrides the write mode of the rule for `/`. `has_others`: the worker
/// is one of a cluster.
pub(crate) fn in_force(
    mut rules: Vec<PolicyRule>,
    tables: &[Sourced],
    mode: Option<WriteMode>,
    has_others: bool,
) -> Result<Vec<PolicyRule>, Problem> {
    if let Some(mode) = mode {
        match rules.iter_mut().find(|rule| rule.path == "/") {
            Some(rule) => rule.write_mode = Some(mode),
            None => rules.push(PolicyRule { write_mode: Some(mode), ..PolicyRule::for_path("/") }),
        }
    }
    let checked = PolicySet::new(rules.clone());
    if let Err(invalid) = checked.and_then(|set| if has_others { Ok(()) } else { set.check_alone() }) {
        let at = tables.iter().rev().find(|table| path_of(table) == Some(invalid.path.as_str()));
        return Err(Problem(format!("{}{invalid}", at.map(|table| table.origin.to_string()).unwrap_or_default())));
    }
    Ok(rules)
}

/// Rules of the file under which no object can be. `buckets`: the mounts, if there is no other bucket.
pub(crate) fn warnings(tables: &[Sourced], buckets: Option<&[&str]>) -> Vec<String> {
    let warning = |table: &Sourced| {
        let path = path_of(table)?;
        let why = why_unmatched(path).or_else(|| {
            // Without a slash behind it, it is the beginning of a name.
            let (name, is_whole) = path[1..].split_once('/').map_or((&path[1..], false), |(name, _)| (name, true));
            let may_be = |bucket: &&str| if is_whole { *bucket == name } else { bucket.starts_with(name) };
            let wrong = "no mount has this name, and without under_store.url there are no other buckets";
            (!buckets?.iter().any(may_be)).then(|| wrong.to_owned())
        });
        Some(Problem::value(&table.origin, "policy.path", &format!("{path:?}"), &why?).to_string())
    };
    tables.iter().filter_map(warning).collect()
}

/// Why no object is, or is meant to be, under the path of a rule.
pub(crate) fn why_unmatched(path: &str) -> Option<String> {
    if let Some((_, rest)) = path.split_once("://").filter(|(scheme, _)| !scheme[1..].contains('/')) {
        return Some(format!("no object is under it: a path has no scheme; did you mean \"/{rest}\"?"));
    }
    let bucket = path.trim_start_matches('/').split_once('/').map(|(bucket, _)| bucket);
    if bucket.is_some_and(|bucket| BucketName::new(bucket).is_err()) {
        return Some("no object is under it: no bucket can have this name".to_owned());
    }
    let prefix = path.strip_suffix('*')?;
    Some(format!("the * stands for itself: a path is a prefix; did you mean {prefix:?}?"))
}

fn path_of(table: &Sourced) -> Option<&str> {
    table.value.get("path").and_then(toml::Value::as_str)
}

fn rule(table: &Sourced) -> Result<PolicyRule, Problem> {
    let origin = &table.origin;
    let names = || POLICY_KEYS.iter().map(|key| key.name);
    let Some(content) = table.value.as_table() else {
        return Err(Problem(format!("{origin}[[policy]] must be a table")));
    };
    let mut problems = Problems::default();
    // One key at a time, so that the message can name it.
    for (name, value) in content {
        if names().all(|known| known != name) {
            problems.take(Err::<(), _>(Problem::unknown(origin, name, names())));
            continue;
        }
        let alone = toml::Table::from_iter([("path".to_owned(), "/".into()), (name.clone(), value.clone())]);
        problems.take(alone.try_into::<PolicyRule>().map_err(|error| wrong(table, name, value, &error)));
    }
    problems.result()?;
    content.clone().try_into().map_err(|_| Problem(format!("{origin}[[policy]] has no path")))
}

fn wrong(table: &Sourced, name: &str, value: &toml::Value, error: &toml::de::Error) -> Problem {
    let message = error.message().lines().next().unwrap_or_default();
    let choices = POLICY_KEYS.iter().filter(|key| key.name == name).flat_map(|key| key.values.split(", "));
    let choices = choices.filter_map(|choice| choice.strip_prefix('`')?.strip_suffix('`'));
    let hint = value.as_str().and_then(|text| closest(text, choices));
    let hint = hint.map(|choice| format!("; did you mean {choice:?}?")).unwrap_or_default();
    let value = in_one_line(&value.to_string());
    Problem(format!("{}policy.{name} = {value}: {message}{hint}", table.origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_no_object_is_under_are_told_with_what_was_meant() {
        for (path, told) in [
            ("/", None),
            ("/lake", None),
            ("/lake/raw/", None),
            ("/lake/a*b", None),
            ("/lake/https://example.com/", None),
            ("/lake/raw/*", Some("\"/lake/raw/\"")),
            ("/*", Some("\"/\"")),
            ("/s3://lake/raw/", Some("\"/lake/raw/\"")),
            ("/Lake House/raw/", Some("no bucket can have this name")),
        ] {
            let why = why_unmatched(path);
            match told {
                None => assert_eq!(why, None, "{path}"),
                Some(told) => assert!(why.as_ref().is_some_and(|why| why.contains(told)), "{path}: {why:?}"),
            }
        }
    }
}
