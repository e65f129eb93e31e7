//! The configuration: defaults, then a TOML file, then environment variables, then flags.

mod check;
mod effective;
mod endpoint_loop;
mod filter;
mod kind;
mod names;
mod policy;
mod problem;
mod reference;
mod sections;
mod sources;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use forebay_types::{BucketName, InvalidName, PolicyRule, WriteMode};
use forebay_ufs::UnderStoreUrl;
use serde::Deserialize;

pub(crate) use check::etcd_endpoints;
use check::{both, without};
pub(crate) use kind::Capacity;
pub(crate) use policy::{POLICY_KEYS, why_unmatched};
pub(crate) use problem::{Origin, Problem, Problems};
pub(crate) use reference::reference;
use sections::MovedBuckets;
pub(crate) use sections::{Cluster, Config, Include, Keys, LogFormat, Store, Trace, UnderStoreConfig};
use sources::{Sourced, Sources};
use table::Setting;

/// Where the under store is if nobody names one, and mounts none.
pub(crate) const UNDER_STORE_DEFAULT: &str = "forebay-under-store";

/// What flags say; they win over everything else.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    /// Flag, section, key and text.
    pub(crate) settings: Vec<(&'static str, &'static str, &'static str, String)>,
    /// `BUCKET=URL`
    pub(crate) mounts: Vec<String>,
    pub(crate) mode: Option<String>,
}

impl Config {
    /// `file` is a name for messages and the text. `variables` are those of the process.
    ///
    /// # Errors
    /// All problems of single settings, mounts and rules, each on its own line with the place, the setting and the
    /// value. Where there are none, those of settings that contradict each other.
    pub(crate) fn load(
        file: Option<(&str, &str)>,
        variables: &BTreeMap<String, String>,
        overrides: &Overrides,
    ) -> Result<Self, Problem> {
        let (mut sources, mut problems) = (Sources::defaults(), Problems::default());
        if let Some((name, text)) = file {
            problems.take(sources.file(name, text));
        }
        problems.take(sources.environment(variables));
        for (flag, section, key, text) in &overrides.settings {
            let setting = table::find(section, key).expect("flags name settings of the table");
            problems.take(sources.set_text(setting, text, Origin::Flag { name: flag }));
        }
        for mount in &overrides.mounts {
            problems.take(sources.add_mount(mount));
        }
        let mode = problems.take(overrides.mode.as_deref().map(parse_mode).transpose()).flatten();
        let mounts = problems.take(sources.mounts()).unwrap_or_default();
        let rules = problems.take(policy::read(&sources.policies)).unwrap_or_default();
        problems.result()?;
        let mut config = Self::build(sources, mounts, rules, mode)?;
        config.file = file.map(|(name, _)| name.to_owned());
        config.check_endpoints(variables)?;
        config.inherited_hadoop_conf_dir = variables.get("HADOOP_CONF_DIR").cloned();
        Ok(config)
    }

    /// From settings that are sound, each by itself.
    fn build(
        sources: Sources,
        mounts: BTreeMap<BucketName, UnderStoreConfig>,
        rules: Vec<PolicyRule>,
        mode: Option<WriteMode>,
    ) -> Result<Self, Problem> {
        let mut problems = Problems::default();
        let rules = policy::in_force(rules, &sources.policies, mode, sources.has_cluster());
        let mut config = Self {
            file: None,
            server: sources.section("server")?,
            store: sources.section("store")?,
            cache: sources.section("cache")?,
            log: sources.section("log")?,
            access_log: sources.section("access_log")?,
            audit_log: sources.section("audit_log")?,
            trace: sources.section("trace")?,
            root: problems.take(sources.root()).flatten(),
            moved_buckets: problems.take(sources.moved_buckets()).unwrap_or_default(),
            mounts,
            limits: sources.section("under_store_limits")?,
            s3: sources.section("under_store_s3")?,
            cluster: sources.section("cluster")?,
            policies: problems.take(rules).unwrap_or_default(),
            warnings: sources.warnings.clone(),
            effective: effective::entries(&sources, mode),
            inherited_endpoint: None,
            inherited_hadoop_conf_dir: None,
            origins: sources.settings.iter().map(|(name, sourced)| (*name, sourced.origin.clone())).collect(),
        };
        problems.take(config.check(&sources));
        problems.result()?;
        let mounts: Vec<_> = config.mounts.keys().map(BucketName::as_str).collect();
        let warnings = policy::warnings(&sources.policies, config.root.is_none().then_some(&mounts[..]));
        config.warnings.extend(warnings);
        Ok(config)
    }

    /// Takes the keys that stand in files of their own.
    ///
    /// # Errors
    /// All mounts with a file that can't be read or holds no key.
    pub(crate) fn read_key_files(&mut self) -> Result<(), Problem> {
        let mut problems = Problems::default();
        for (bucket, mount) in &mut self.mounts {
            let read = mount.keys.read_files();
            problems.take(read.map_err(|wrong| mount.origin.problem(&format!("mounts.{bucket}"), &wrong)));
        }
        problems.result()
    }

    /// All files that hold secrets: this one, when it does, and those that it names.
    pub(crate) fn secret_files(&self) -> BTreeSet<PathBuf> {
        let of_origin = |origin: &Origin| match origin {
            Origin::File { name, .. } => Some(PathBuf::from(name)),
            Origin::Default | Origin::Environment { .. } | Origin::Flag { .. } => None,
        };
        let is_secret = |(section, key): &(&str, &str)| table::find(section, key).is_some_and(Setting::is_secret);
        let settings =
            self.origins.iter().filter(|(name, _)| is_secret(name)).filter_map(|(_, origin)| of_origin(origin));
        let mounts =
            self.mounts.values().filter(|mount| mount.keys.are_secret()).filter_map(|mount| of_origin(&mount.origin));
        let named = self.mounts.values().flat_map(|mount| mount.keys.secret_files().cloned());
        let cluster = [&self.cluster.key_file, &self.cluster.etcd_key_file];
        let server = [&self.server.users_file, &self.server.tls_key].into_iter().chain(cluster).flatten().cloned();
        settings.chain(mounts).chain(named).chain(server).collect()
    }

    /// What turned out to be wrong with a setting after the configuration was loaded.
    pub(crate) fn problem(&self, section: &'static str, key: &'static str, wrong: &str) -> Problem {
        let origin = self.origins.get(&(section, key)).expect("every setting of the table has a default");
        origin.problem(&format!("{section}.{key}"), wrong)
    }
}

fn parse_mode(text: &str) -> Result<WriteMode, Problem> {
    text.parse().map_err(|wrong| Problem(format!("--mode {wrong}")))
}

impl Sources {
    /// Whether the worker is one of a cluster.
    fn has_cluster(&self) -> bool {
        self.get("cluster", "engine").value.as_str().is_some_and(|engine| !engine.is_empty())
    }

    fn section<'de, T: Deserialize<'de>>(&self, section: &str) -> Result<T, Problem> {
        let values = self.settings.iter().filter(|((of, _), _)| *of == section);
        let values = values.map(|((_, key), sourced)| ((*key).to_owned(), sourced.value.clone()));
        let table = toml::Table::from_iter(values);
        table.try_into().map_err(|error| Problem(format!("section [{section}]: {}", error.message())))
    }

    fn root(&self) -> Result<Option<UnderStoreConfig>, Problem> {
        let text = |key| self.get("under_store", key).value.as_str().unwrap_or_default().to_owned();
        let Sourced { origin, .. } = self.get("under_store", "url");
        let keys = Keys::given(text("access_key"), text("secret_key"), text("session_token"));
        both(
            self,
            "under_store",
            ("access_key", !keys.access_key.is_empty()),
            ("secret_key", !keys.secret_key.0.is_empty()),
        )?;
        if keys.access_key.is_empty() && !keys.session_token.0.is_empty() {
            return Err(without(self, "under_store", "session_token", "access_key"));
        }
        let url = match text("url").as_str() {
            // Who mounts buckets and names no under store means no other: a bucket with a slip in its name must not
            // come about anywhere.
            "" if !self.mounts.is_empty() => return Ok(None),
            "" => {
                let here = std::path::absolute(UNDER_STORE_DEFAULT);
                UnderStoreUrl::Directory(here.map_err(|e| Problem(format!("the working directory: {e}")))?)
            }
            url => parse_url(origin, "under_store.url", url)?,
        };
        Ok(Some(UnderStoreConfig { url, keys, origin: origin.clone() }))
    }

    fn moved_buckets(&self) -> Result<MovedBuckets, Problem> {
        let Sourced { value, origin } = self.get("under_store", "moved_buckets");
        let text = value.as_str().unwrap_or_default();
        if text == "*" {
            return Ok(MovedBuckets { are_all: true, ..MovedBuckets::default() });
        }
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let wrong = |invalid: InvalidName| origin.problem("under_store.moved_buckets", &invalid.to_string());
        let names = names.map(|name| BucketName::new(name).map_err(wrong)).collect::<Result<_, _>>()?;
        Ok(MovedBuckets { are_all: false, names })
    }

    fn mounts(&self) -> Result<BTreeMap<BucketName, UnderStoreConfig>, Problem> {
        let mut problems = Problems::default();
        let mounts = self.mounts.iter().filter_map(|(bucket, sourced)| problems.take(mount(bucket, sourced))).collect();
        problems.result().map(|()| mounts)
    }

    fn add_mount(&mut self, text: &str) -> Result<(), Problem> {
        let origin = Origin::Flag { name: "--mount" };
        let Some((bucket, url)) = text.split_once('=') else {
            return Err(Problem(format!("{origin} {text:?}: must be BUCKET=URL")));
        };
        let before = self.mounts.insert(bucket.to_owned(), Sourced { value: url.into(), origin: origin.clone() });
        if before.is_some_and(|before| before.origin == origin) {
            return Err(Problem::value(
                &origin,
                "",
                &format!("{text:?}"),
                &format!("a flag before it mounts {bucket:?}"),
            ));
        }
        Ok(())
    }
}

fn mount(bucket: &str, Sourced { value, origin }: &Sourced) -> Result<(BucketName, UnderStoreConfig), Problem> {
    let setting = format!("mounts.{bucket}");
    let wrong = |wrong: &str| origin.problem(&setting, wrong);
    let name = BucketName::new(bucket).map_err(|invalid| wrong(&invalid.to_string()))?;
    let (url, keys) = match value {
        toml::Value::String(url) => (url.clone(), Keys::default()),
        toml::Value::Table(table) => {
            let mut table = table.clone();
            let url = table.remove("url").and_then(|url| url.as_str().map(str::to_owned));
            let names = [
                "url",
                "access_key",
                "secret_key",
                "session_token",
                "access_key_file",
                "secret_key_file",
                "session_token_file",
            ];
            if let Some(unknown) = table.keys().find(|key| !names.contains(&key.as_str())) {
                return Err(Problem::unknown(origin, unknown, names.into_iter()));
            }
            let keys: Keys = table.try_into().map_err(|_| wrong("its keys must be text in quotes"))?;
            (url.ok_or_else(|| wrong("has no url"))?, keys)
        }
        toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_)
        | toml::Value::Array(_) => return Err(wrong("must be a URL in quotes, or a table with a url")),
    };
    if let Some(twice) = keys.given_twice() {
        return Err(wrong(&format!("{twice} and {twice}_file are both given")));
    }
    if keys.has_access_key() != keys.has_secret_key() {
        return Err(wrong("access_key and secret_key belong together"));
    }
    if !keys.has_access_key() && keys.has_session_token() {
        return Err(wrong("session_token is given without access_key"));
    }
    let url = parse_url(origin, &setting, &url)?;
    if matches!(url, UnderStoreUrl::S3 { bucket: None, .. }) {
        return Err(wrong("the URL names no bucket: write s3://bucket?endpoint=…"));
    }
    Ok((name, UnderStoreConfig { url, keys, origin: origin.clone() }))
}

fn parse_url(origin: &Origin, setting: &str, text: &str) -> Result<UnderStoreUrl, Problem> {
    let wrong = |wrong: &str| origin.problem(setting, wrong);
    let url = text.parse().map_err(|invalid: forebay_ufs::InvalidUrl| wrong(&invalid.to_string()))?;
    match &url {
        UnderStoreUrl::S3 { endpoint: Some(endpoint), .. } if !names_host(endpoint) => {
            Err(wrong("not an under-store URL: the endpoint names no host"))
        }
        UnderStoreUrl::S3 { .. } | UnderStoreUrl::Directory(_) | UnderStoreUrl::Hdfs(_) => Ok(url),
    }
}

fn names_host(endpoint: &str) -> bool {
    let (_, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    let host = rest.split(['/', ':']).next().unwrap_or_default();
    !host.is_empty() && !rest.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests;
