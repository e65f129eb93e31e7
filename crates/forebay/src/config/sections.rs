//! The sections of a configuration, and all of them together.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use forebay_admin::ConfigurationEntry;
use forebay_store::DirectoryId;
use forebay_types::{BucketName, ByteSize, PolicyRule};
use forebay_ufs::UnderStoreUrl;
use forebay_ufs::governor::GovernorSettings;
use forebay_ufs::s3::S3Settings;
use serde::{Deserialize, Deserializer};

use super::kind::{self, Capacity};
use super::problem::Origin;

/// A configuration that has been checked as far as that goes without touching a disk or the network.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) store: Store,
    pub(crate) cache: forebay_cache::Settings,
    pub(crate) log: Log,
    pub(crate) access_log: LogFile,
    pub(crate) audit_log: AuditLogFile,
    pub(crate) trace: Trace,
    pub(crate) root: Place,
    pub(crate) mounts: BTreeMap<BucketName, Place>,
    pub(crate) limits: GovernorSettings,
    pub(crate) s3: S3Settings,
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

/// An under store and the keys to it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) url: UnderStoreUrl,
    pub(crate) keys: Keys,
    pub(crate) origin: Origin,
}

impl Place {
    pub(crate) fn directory(&self) -> Option<&Path> {
        match &self.url {
            UnderStoreUrl::Directory(directory) => Some(directory),
            UnderStoreUrl::S3 { .. } => None,
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
