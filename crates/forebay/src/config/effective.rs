//! The configuration in force, with where each value comes from, as the admin API shows it.

use forebay_admin::ConfigurationEntry;
use forebay_types::WriteMode;
use forebay_ufs::UnderStoreUrl;
use toml::Value;

use super::kind::Kind;
use super::problem::{Origin, in_one_line};
use super::sources::{Sourced, Sources};
use super::table::{SETTINGS, Setting};

/// What stands for a secret.
const HIDDEN: &str = "…";
/// The keys of a mount's table whose values are secrets.
const MOUNT_SECRETS: [&str; 2] = ["secret_key", "session_token"];

/// Every setting, every mount and every policy. `mode` is what the flag gives for the path `/`.
pub(super) fn entries(sources: &Sources, mode: Option<WriteMode>) -> Vec<ConfigurationEntry> {
    let settings = SETTINGS.iter().map(|setting| setting_entry(setting, sources.get(setting.section, setting.key)));
    let mounts = sources.mounts.iter().map(|(bucket, sourced)| mount_entry(bucket, sourced));
    let policies = sources.policies.iter().map(policy_entry);
    let mode = mode.map(|mode| ConfigurationEntry {
        name: "policy./".to_owned(),
        value: format!("writeMode = \"{mode}\""),
        default: String::new(),
        source: "--mode".to_owned(),
        about: "The write mode of the path `/` at the start; it replaces that of the file.".to_owned(),
    });
    settings.chain(mounts).chain(policies).chain(mode).collect()
}

fn setting_entry(setting: &Setting, Sourced { value, origin }: &Sourced) -> ConfigurationEntry {
    ConfigurationEntry {
        name: setting.name(),
        value: shown(setting.kind, value),
        default: setting.default.to_owned(),
        source: source(origin),
        about: setting.about.to_owned(),
    }
}

/// As an environment variable would give it, which is how the defaults are written.
fn shown(kind: Kind, value: &Value) -> String {
    match value {
        Value::String(text) if kind == Kind::Secret && !text.is_empty() => HIDDEN.to_owned(),
        Value::String(text) => without_user(text),
        Value::Array(values) => values.iter().map(|value| shown(kind, value)).collect::<Vec<_>>().join(", "),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => {
            value.to_string()
        }
    }
}

fn mount_entry(bucket: &str, Sourced { value, origin }: &Sourced) -> ConfigurationEntry {
    ConfigurationEntry {
        name: format!("mounts.{bucket}"),
        value: match value {
            Value::Table(table) => shown_table(table, &MOUNT_SECRETS),
            other => shown(Kind::Text, other),
        },
        default: String::new(),
        source: source(origin),
        about: "The place of a bucket in an under store.".to_owned(),
    }
}

fn policy_entry(Sourced { value, origin }: &Sourced) -> ConfigurationEntry {
    let mut settings = value.as_table().cloned().unwrap_or_default();
    let path = settings.remove("path");
    ConfigurationEntry {
        name: format!("policy.{}", path.as_ref().and_then(Value::as_str).unwrap_or_default()),
        value: shown_table(&settings, &[]),
        default: String::new(),
        source: source(origin),
        about: "What holds for the objects under a path at the start; the rules in force may have been changed since."
            .to_owned(),
    }
}

/// A URL without what stands before the `@`: somebody's name and password.
fn without_user(text: &str) -> String {
    if !text.contains('@') {
        return text.to_owned();
    }
    if let Ok(url) = text.parse::<UnderStoreUrl>() {
        return url.to_string();
    }
    match text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://{rest}"),
        None => text.to_owned(),
    }
}

/// In one line, without secrets.
fn shown_table(table: &toml::Table, secrets: &[&str]) -> String {
    let pair = |(key, value): (&String, &Value)| {
        let value = match value {
            _ if secrets.contains(&key.as_str()) => Value::from(HIDDEN),
            Value::String(text) => Value::from(without_user(text)),
            other => other.clone(),
        };
        format!("{key} = {}", in_one_line(&value.to_string()))
    };
    table.iter().map(pair).collect::<Vec<_>>().join(", ")
}

fn source(origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".to_owned(),
        Origin::File { name, line } => format!("{name}:{line}"),
        Origin::Environment { .. } | Origin::Flag { .. } => origin.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Config, Overrides};
    use super::*;

    const FILE: &str = "[server]
root_access_key = \"root\"
root_secret_key = \"hunter2hunter2\"
[under_store]
url = \"s3://?endpoint=http://127.0.0.1:1\"
access_key = \"AK\"
secret_key = \"hunter2\"
session_token = \"hunter2\"
[mounts]
logs = { url = \"s3://logs?endpoint=http://127.0.0.1:1\", access_key = \"AK\", secret_key = \"hunter2\", session_token = \"hunter2\" }
models = \"file:///models\"
[[policy]]
path = \"/logs/\"
writeMode = \"WRITE_BACK\"
metadataTtl = \"5 s\"
";

    fn entries() -> BTreeMap<String, ConfigurationEntry> {
        let variables = [("FOREBAY_STORE_DATA_DIRS", "/a, /b"), ("FOREBAY_CACHE_PINNED_RATIO", "0.5")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let overrides = Overrides {
            settings: vec![("--region", "server", "region", "eu-1".to_owned())],
            mode: Some("READ_ONLY".to_owned()),
            ..Overrides::default()
        };
        let config = Config::load(Some(("forebay.toml", FILE)), &variables, &overrides).unwrap();
        config.effective.into_iter().map(|entry| (entry.name.clone(), entry)).collect()
    }

    fn check(name: &str, value: &str, source: &str) {
        let entries = entries();
        let entry = entries.get(name).unwrap_or_else(|| panic!("{name} is not among {:?}", entries.keys()));
        assert_eq!((entry.value.as_str(), entry.source.as_str()), (value, source), "{name}");
    }

    #[test]
    fn every_value_says_where_it_comes_from() {
        check("server.region", "eu-1", "--region");
        check("store.data_dirs", "/a, /b", "FOREBAY_STORE_DATA_DIRS");
        check("cache.pinned_ratio", "0.5", "FOREBAY_CACHE_PINNED_RATIO");
        check("under_store.access_key", "AK", "forebay.toml:6");
        check("server.admin_tls", "false", "default");
        check("mounts.models", "file:///models", "forebay.toml:11");
        check("policy./logs/", "metadataTtl = \"5 s\", writeMode = \"WRITE_BACK\"", "forebay.toml:12");
        check("policy./", "writeMode = \"READ_ONLY\"", "--mode");
        assert!(SETTINGS.iter().all(|setting| entries().contains_key(&setting.name())));
    }

    #[test]
    fn no_entry_shows_a_secret() {
        check("server.root_secret_key", HIDDEN, "forebay.toml:3");
        let all = format!("{:?}", entries());
        assert!(!all.contains("hunter2"), "{all}");
        assert!(all.contains("access_key = \\\"AK\\\""), "{all}");
    }

    #[test]
    fn what_is_not_set_is_shown_as_its_default() {
        let config = Config::load(None, &BTreeMap::new(), &Overrides::default()).unwrap();
        for entry in config.effective {
            assert_eq!((entry.value, entry.source.as_str()), (entry.default, "default"), "{}", entry.name);
        }
    }

    #[test]
    fn users_in_urls_are_not_shown() {
        for (given, shown) in [
            ("s3://b/a@b?endpoint=http://me:hunter2@host:1/x&region=r", "s3://b/a@b?endpoint=http://host:1/x&region=r"),
            ("https://me:hunter2@collector:4318/v1", "https://collector:4318/v1"),
            ("file:///data/a@b", "file:///data/a@b"),
            ("https://collector:4318", "https://collector:4318"),
        ] {
            assert_eq!(without_user(given), shown);
        }
    }
}
