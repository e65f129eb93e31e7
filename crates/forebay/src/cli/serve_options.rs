//! The settings as flags.

use std::path::PathBuf;

use clap::Args;

use crate::config::Overrides;

/// Flags win over environment variables, and those over the file. `forebay config reference` lists all settings.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// TOML file of settings
    #[arg(long, value_name = "FILE", env = "FOREBAY_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the store; give it once for each disk [default: ./forebay-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Vec<String>,
    /// Starts without a directory that is gone for good, and gives up what only it held. The refused start names its id
    #[arg(long, value_name = "ID")]
    forget_directory: Vec<String>,
    /// Most bytes in each directory: a size, or a percentage of the disk [default: 80%]
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// Address of S3 [default: 127.0.0.1:9700]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Address of health, metrics and the admin API [default: 127.0.0.1:9701]
    #[arg(long, value_name = "ADDR")]
    admin_listen: Option<String>,
    /// Where objects are stored permanently: file:///dir, hdfs://namenode:port/dir,
    /// s3://bucket/prefix?endpoint=…&region=…, or s3://?endpoint=… for all buckets of an endpoint [default: the
    /// directory ./forebay-under-store, and nothing where buckets are mounted]
    #[arg(long, value_name = "URL")]
    under_store: Option<String>,
    /// Maps one bucket to its own under store
    #[arg(long, value_name = "BUCKET=URL")]
    mount: Vec<String>,
    /// Write mode of "/": WRITE_THROUGH, WRITE_BACK, TRANSIENT, READ_ONLY or NO_CACHE [default: WRITE_THROUGH]
    #[arg(long, value_name = "WRITE_MODE")]
    mode: Option<String>,
    /// Domain of virtual-host style requests
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// TOML file of users, access keys and grants
    #[arg(long, value_name = "FILE")]
    users: Option<String>,
    /// PEM file of the certificate chain
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// PEM file of the private key
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Members of the etcd that all workers of a cluster share: etcd://HOST:PORT,HOST:PORT…, or etcds://… for TLS.
    /// Without it, this worker is alone
    #[arg(long, value_name = "URL")]
    cluster_engine: Option<String>,
    /// Name of the cluster [default: forebay]
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,
    /// Address where other workers reach this one [default: 127.0.0.1:9702]
    #[arg(long, value_name = "ADDR")]
    cluster_listen: Option<String>,
    /// The address that other workers use, as HOST:PORT [default: the address where it listens]
    #[arg(long, value_name = "ADDR")]
    cluster_advertise: Option<String>,
    /// File with a secret that all workers have [default: etcd keeps one]
    #[arg(long, value_name = "FILE")]
    cluster_key_file: Option<String>,
    /// Name of this worker in the cluster [default: the name of the machine]
    #[arg(long, value_name = "ID")]
    worker_id: Option<String>,
    /// error, warn, info, debug, trace, off, or a filter such as info,forebay_s3=debug
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl ServeOptions {
    /// What the flags say, as settings.
    pub(crate) fn overrides(&self) -> Overrides {
        let data_dirs = Some(self.data_dir.join(",")).filter(|list| !list.is_empty());
        let forget = Some(self.forget_directory.join(",")).filter(|list| !list.is_empty());
        let flags = [
            ("--data-dir", "store", "data_dirs", &data_dirs),
            ("--forget-directory", "store", "forget_directories", &forget),
            ("--size", "store", "size", &self.size),
            ("--listen", "server", "listen", &self.listen),
            ("--admin-listen", "server", "admin_listen", &self.admin_listen),
            ("--under-store", "under_store", "url", &self.under_store),
            ("--domain", "server", "domain", &self.domain),
            ("--users", "server", "users_file", &self.users),
            ("--tls-cert", "server", "tls_cert", &self.tls_cert),
            ("--tls-key", "server", "tls_key", &self.tls_key),
            ("--cluster-engine", "cluster", "engine", &self.cluster_engine),
            ("--cluster-name", "cluster", "name", &self.cluster_name),
            ("--cluster-listen", "cluster", "listen", &self.cluster_listen),
            ("--cluster-advertise", "cluster", "advertise", &self.cluster_advertise),
            ("--cluster-key-file", "cluster", "key_file", &self.cluster_key_file),
            ("--worker-id", "cluster", "worker_id", &self.worker_id),
            ("--log-level", "log", "level", &self.log_level),
            ("--log-format", "log", "format", &self.log_format),
        ];
        let given =
            flags.into_iter().filter_map(|(flag, section, key, text)| Some((flag, section, key, text.clone()?)));
        Overrides { settings: given.collect(), mounts: self.mount.clone(), mode: self.mode.clone() }
    }
}
