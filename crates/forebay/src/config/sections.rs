//! The sections of a configuration, and all of them together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use forebay_admin::ConfigurationEntry;
use forebay_s3::Redirect;
use forebay_store::DirectoryId;
use forebay_types::{BucketName, ByteSize, Period, PolicyRule};
use forebay_ufs::UnderStoreUrl;
use forebay_ufs::governor::GovernorSettings;
use forebay_ufs::s3::S3Settings;
use serde::{Deserialize, Deserializer};

use super::kind::{self, Capacity};
use super::problem::Origin;

/// A configuration that has been checked as far as that goes without touching a disk or the network.
#[derive(Debug)]
pub(crate) struct Config {
    /// The file that it comes from, as it was given.
    pub(crate) file: Option<String>,
    pub(crate) server: Server,
    pub(crate) store: Store,
    pub(crate) cache: forebay_cache::Settings,
    pub(crate) log: Log,
    pub(crate) access_log: LogFile,
    pub(crate) audit_log: AuditLogFile,
    pub(crate) trace: Trace,
    /// `None` where there are mounts and nothing else: then no bucket is made or found elsewhere.
    pub(crate) root: Option<UnderStoreConfig>,
    pub(crate) mounts: BTreeMap<BucketName, UnderStoreConfig>,
    /// What waits for these goes to their new under stores.
    pub(crate) moved_buckets: MovedBuckets,
    /// Where S3 under stores without an endpoint are, when the environment says that.
    pub(crate) inherited_endpoint: Option<String>,
    /// The Hadoop configuration of under stores in HDFS that name none, when the environment has one.
    pub(crate) inherited_hadoop_conf_dir: Option<String>,
    pub(crate) limits: GovernorSettings,
    pub(crate) s3: S3Settings,
    pub(crate) cluster: Cluster,
    pub(crate) policies: Vec<PolicyRule>,
    pub(crate) warnings: Vec<String>,
    /// All of it, as the admin API shows it.
    pub(crate) effective: Vec<ConfigurationEntry>,
    pub(super) origins: BTreeMap<(&'static str, &'static str), Origin>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) listen: SocketAddr,
    pub(crate) admin_listen: SocketAddr,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) domain: Option<String>,
    pub(crate) region: String,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) account_id: Option<String>,
    pub(crate) connections_max: usize,
    pub(crate) connections_per_address_max: usize,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) users_file: Option<PathBuf>,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) root_access_key: Option<String>,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) root_secret_key: Option<Secret>,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) tls_cert: Option<PathBuf>,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) admin_tls: bool,
    pub(crate) core_dumps: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    pub(crate) data_dirs: Vec<PathBuf>,
    #[serde(deserialize_with = "directory_ids")]
    pub(crate) forget_directories: Vec<DirectoryId>,
    #[serde(deserialize_with = "from_text")]
    pub(crate) size: Capacity,
    /// `None` is `auto`.
    #[serde(deserialize_with = "auto_as_none")]
    pub(crate) segment_size: Option<ByteSize>,
    pub(crate) inline_object_max: ByteSize,
    pub(crate) extent_size_max: ByteSize,
    pub(crate) snapshot_log_size: ByteSize,
    pub(crate) free_ratio: f64,
    pub(crate) write_buffer: ByteSize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cluster {
    /// `None`: this worker is alone.
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) engine: Option<String>,
    pub(crate) name: String,
    pub(crate) listen: SocketAddr,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) advertise: Option<String>,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) key_file: Option<PathBuf>,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) worker_id: Option<String>,
    pub(crate) lease: Period,
    pub(crate) compare_endpoints: bool,
    /// See [`forebay_cluster::OlderEngine::seen`]; 0 for none.
    pub(crate) accept_older_engine: u64,
    pub(crate) redirect: Redirect,
    pub(crate) drain_on_stop: bool,
    pub(crate) drain_deadline: Period,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) etcd_user: Option<String>,
    pub(crate) etcd_password: Secret,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) etcd_ca_file: Option<PathBuf>,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) etcd_certificate_file: Option<PathBuf>,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) etcd_key_file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogFile {
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) file: Option<PathBuf>,
    pub(crate) max_size: ByteSize,
    pub(crate) max_files: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditLogFile {
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) file: Option<PathBuf>,
    pub(crate) max_size: ByteSize,
    pub(crate) max_files: u32,
    pub(crate) include: Include,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Include {
    Writes,
    All,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trace {
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) sample_ratio: f64,
    pub(crate) service_name: String,
    #[serde(deserialize_with = "empty_as_none")]
    pub(crate) headers: Option<Secret>,
}

/// Buckets whose under store was replaced by one that may get what waited for the earlier one.
#[derive(Debug, Default)]
pub(crate) struct MovedBuckets {
    pub(super) are_all: bool,
    pub(super) names: BTreeSet<BucketName>,
}

impl MovedBuckets {
    pub(crate) fn contain(&self, bucket: &BucketName) -> bool {
        self.are_all || self.names.contains(bucket)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.are_all && self.names.is_empty()
    }
}

/// An under store and the keys to it.
#[derive(Debug)]
pub(crate) struct UnderStoreConfig {
    pub(crate) url: UnderStoreUrl,
    pub(crate) keys: Keys,
    pub(crate) origin: Origin,
}

impl UnderStoreConfig {
    pub(crate) fn directory(&self) -> Option<&Path> {
        match &self.url {
            UnderStoreUrl::Directory(directory) => Some(directory),
            UnderStoreUrl::S3 { .. } | UnderStoreUrl::Hdfs(_) => None,
        }
    }
}

/// Keys of an under store, as a mount's table or `[under_store]` gives them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Keys {
    pub(crate) access_key: String,
    pub(crate) secret_key: Secret,
    pub(crate) session_token: Secret,
    /// Files that hold one of them each.
    access_key_file: Option<PathBuf>,
    secret_key_file: Option<PathBuf>,
    session_token_file: Option<PathBuf>,
}

impl Keys {
    /// Of the under store of all buckets.
    pub(super) fn given(access_key: String, secret_key: String, session_token: String) -> Self {
        Self { access_key, secret_key: secret_key.into(), session_token: session_token.into(), ..Self::default() }
    }

    pub(super) fn has_access_key(&self) -> bool {
        !self.access_key.is_empty() || self.access_key_file.is_some()
    }

    pub(super) fn has_secret_key(&self) -> bool {
        !self.secret_key.0.is_empty() || self.secret_key_file.is_some()
    }

    pub(super) fn has_session_token(&self) -> bool {
        !self.session_token.0.is_empty() || self.session_token_file.is_some()
    }

    /// The name of a key that is given as itself and as a file.
    pub(super) fn given_twice(&self) -> Option<&'static str> {
        let given = [
            ("access_key", !self.access_key.is_empty(), &self.access_key_file),
            ("secret_key", !self.secret_key.0.is_empty(), &self.secret_key_file),
            ("session_token", !self.session_token.0.is_empty(), &self.session_token_file),
        ];
        given.into_iter().find(|(_, is_given, file)| *is_given && file.is_some()).map(|(name, ..)| name)
    }

    /// Whether the configuration itself holds a secret.
    pub(crate) fn are_secret(&self) -> bool {
        let is_own = |secret: &Secret, file: &Option<PathBuf>| !secret.0.is_empty() && file.is_none();
        is_own(&self.secret_key, &self.secret_key_file) || is_own(&self.session_token, &self.session_token_file)
    }

    /// The files with secrets that it names.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.secret_key_file, &self.session_token_file].into_iter().flatten()
    }

    /// Takes what stands in the files.
    ///
    /// # Errors
    /// In one line, with the name of the file.
    pub(super) fn read_files(&mut self) -> Result<(), String> {
        if let Some(file) = &self.access_key_file {
            self.access_key = read_key("access_key_file", file)?;
        }
        if let Some(file) = &self.secret_key_file {
            self.secret_key = read_key("secret_key_file", file)?.into();
        }
        if let Some(file) = &self.session_token_file {
            self.session_token = read_key("session_token_file", file)?.into();
        }
        Ok(())
    }
}

fn read_key(name: &str, file: &Path) -> Result<String, String> {
    let wrong = |wrong: &str| format!("{name} = {:?}: {wrong}", file.display().to_string());
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
    let key = text.trim();
    if key.is_empty() || key.contains(char::is_whitespace) {
        return Err(wrong("must hold one key and nothing else"));
    }
    Ok(key.to_owned())
}

/// Text that `Debug` does not show.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(pub(crate) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "…" })
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

fn empty_as_none<'de, T: From<String>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(Some(text).filter(|text| !text.is_empty()).map(T::from))
}

fn directory_ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<DirectoryId>, D::Error> {
    kind::parse_directory_ids(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn auto_as_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ByteSize>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "auto" { Ok(None) } else { text.parse().map(Some).map_err(serde::de::Error::custom) }
}

fn from_text<'de, T: std::str::FromStr<Err = String>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}
