//! A real endpoint over a real cache, on a port of its own.

pub(crate) mod raw;
pub(crate) mod sign;
pub(crate) mod under_store;

use std::net::SocketAddr;
use std::sync::Arc;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use forebay_auth::{RootUser, Secret, Users};
use forebay_cache::{Cache, Mounts, Parts};
use forebay_catalog::EmbeddedCatalog;
use forebay_env::disk::memory::MemoryDisk;
use forebay_env::{Disk, Env, Task};
use forebay_s3::{Homes, S3Service, S3Settings};
use forebay_store::Store;
use forebay_types::{PolicyRule, WriteMode};
use forebay_ufs::S3Target;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) const ROOT_KEY: &str = "rootkey";
pub(crate) const ROOT_SECRET: &str = "rootsecret0123456789";
/// May read and list `/bucket/shared`, and write `/bucket/own`.
pub(crate) const GUEST_KEY: &str = "guestkey";
pub(crate) const GUEST_SECRET: &str = "guestsecret0123456789";
pub(crate) const BUCKET: &str = "bucket";

const USERS: &str = r#"
[[user]]
name = "guest"
access_key = "guestkey"
secret_key = "guestsecret0123456789"
grants = [
    { path = "/bucket/shared", allow = ["read", "list"] },
    { path = "/bucket/own", allow = ["write"] },
]

[[anonymous]]
path = "/bucket/public"
allow = ["read"]

[[anonymous]]
path = "/bucket/open"
allow = ["read", "write"]
"#;

pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) service: S3Service,
    pub(crate) registry: Registry,
    pub(crate) shutdown: CancellationToken,
    pub(crate) server: Task<()>,
    /// For whom the under store was asked.
    pub(crate) asked: under_store::Asked,
    _users_file: tempfile::TempDir,
}

/// Starts an endpoint with the bucket [`BUCKET`] in it.
pub(crate) async fn start() -> Endpoint {
    start_with(|_| {}).await
}

pub(crate) async fn start_with(change: impl FnOnce(&mut S3Settings)) -> Endpoint {
    start_among(None, change).await
}

/// Starts a worker of a cluster, if there are other homes.
pub(crate) async fn start_among(homes: Option<Arc<dyn Homes>>, change: impl FnOnce(&mut S3Settings)) -> Endpoint {
    start_as(homes, None, vec![rule("/", WriteMode::Transient)], change).await
}

/// Starts an endpoint with these rules, before a bucket of an S3 endpoint.
pub(crate) async fn start_before(behind: S3Target, policies: Vec<PolicyRule>) -> Endpoint {
    start_as(None, Some(behind), policies, |_| {}).await
}

pub(crate) fn rule(path: &str, mode: WriteMode) -> PolicyRule {
    PolicyRule { write_mode: Some(mode), ..PolicyRule::for_path(path) }
}

async fn start_as(
    homes: Option<Arc<dyn Homes>>,
    behind: Option<S3Target>,
    policies: Vec<PolicyRule>,
    change: impl FnOnce(&mut S3Settings),
) -> Endpoint {
    let env = Env::real();
    let mut registry = Registry::default();
    let capacity = 256 << 20;
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(capacity));
    let store =
        Store::open(env.clone(), vec![disk], forebay_store::Settings::new(vec![capacity]), None).await.expect("store");
    let catalog = Arc::new(EmbeddedCatalog::new(store.clone()));
    let asked = under_store::Asked::default();
    let root = under_store::root(BUCKET, Arc::clone(&asked), behind);
    let mounts = Mounts { mounts: Default::default(), root: Some(Arc::clone(&root)), background_root: Some(root) };
    let parts =
        Parts { env: env.clone(), store, catalog, mounts, settings: Default::default(), policies, others: None };
    let cache = Cache::open(parts, &mut registry).await.expect("cache");
    let users_file = tempfile::tempdir().expect("directory");
    let path = users_file.path().join("users.toml");
    std::fs::write(&path, USERS).expect("users");
    let root = RootUser { access_key: ROOT_KEY.to_owned(), secret_key: Secret::new(ROOT_SECRET) };
    let users = Users::open(root, Some(path)).expect("users");
    let mut settings = S3Settings::new(Secret::new(ROOT_SECRET));
    change(&mut settings);
    let service = S3Service::new(cache, users, settings, env, &mut registry, forebay_logs::Logs::default(), homes);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let address = listener.local_addr().expect("address");
    let shutdown = CancellationToken::new();
    let server = forebay_env::spawn(service.clone().run(listener, None, shutdown.clone()));
    Endpoint { address, service, registry, shutdown, server, asked, _users_file: users_file }
}

impl Endpoint {
    pub(crate) fn root(&self) -> Client {
        self.client(ROOT_KEY, ROOT_SECRET)
    }

    pub(crate) fn guest(&self) -> Client {
        self.client(GUEST_KEY, GUEST_SECRET)
    }

    pub(crate) fn client(&self, key: &str, secret: &str) -> Client {
        client_of(self.address, key, secret)
    }
}

pub(crate) fn client_of(address: SocketAddr, key: &str, secret: &str) -> Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(format!("http://{address}"))
        .credentials_provider(Credentials::new(key, secret, None, None, "test"))
        .force_path_style(true)
        .build();
    Client::from_conf(config)
}

/// The status of a call of the SDK, whether it went well or not.
pub(crate) fn status<T, E>(result: &Result<T, aws_sdk_s3::error::SdkError<E>>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(error) => error.raw_response().map_or(0, |response| response.status().as_u16()),
    }
}

/// The S3 error code of a call that failed.
pub(crate) fn code<T, E>(result: &Result<T, aws_sdk_s3::error::SdkError<E>>) -> String
where
    E: aws_sdk_s3::error::ProvideErrorMetadata,
{
    use aws_sdk_s3::error::ProvideErrorMetadata as _;
    match result {
        Ok(_) => String::new(),
        Err(error) => error.code().unwrap_or_default().to_owned(),
    }
}
