//! A worker in memory and its admin listener, on a clock that the test moves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use forebay_admin::api::UnderStoreStatus;
use forebay_admin::{Admin, Notices, Running, UnderStores};
use forebay_auth::{RootUser, Secret, Users};
use forebay_cache::{Cache, Mount, Mounts, Parts};
use forebay_catalog::EmbeddedCatalog;
use forebay_env::Env;
use forebay_env::clock::ManualClock;
use forebay_env::disk::memory::MemoryDisk;
use forebay_logs::AuditLog;
use forebay_store::Store;
use forebay_types::BucketName;
use forebay_ufs::memory::MemoryUnderStore;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const USERS: &str = "
[[user]]
name = \"reader\"
access_key = \"READER\"
secret_key = \"reader-secret\"
grants = [{ path = \"/\", allow = [\"read\", \"write\", \"list\"] }]

[[user]]
name = \"team\"
access_key = \"TEAM\"
secret_key = \"team-secret\"
grants = [{ path = \"/team\", allow = [\"admin\"] }, { path = \"/bucket/team\", allow = [\"admin\"] }]
";

pub(crate) type Keys = Option<(&'static str, &'static str)>;

pub(crate) const ROOT: Keys = Some(("ROOT", "hunter2hunter2"));
pub(crate) const READER: Keys = Some(("READER", "reader-secret"));
pub(crate) const TEAM: Keys = Some(("TEAM", "team-secret"));
/// The one bucket.
pub(crate) const BUCKET: &str = "bucket";
/// Larger than a body that is JSON may be.
pub(crate) const LARGE_BYTES: usize = 3 << 20;

pub(crate) struct Server {
    address: SocketAddr,
    pub(crate) admin: Admin,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) users: Option<Users>,
    /// Of the one bucket.
    pub(crate) under: MemoryUnderStore,
    pub(crate) under_stores: GivenUnderStores,
    pub(crate) notices: Notices,
    users_file: tempfile::NamedTempFile,
    env: Env,
    stop: CancellationToken,
}

/// The states of under stores, as the test gives them.
#[derive(Clone, Default)]
pub(crate) struct GivenUnderStores(Arc<Mutex<Vec<UnderStoreStatus>>>);

impl GivenUnderStores {
    pub(crate) fn set(&self, states: Vec<UnderStoreStatus>) {
        *self.0.lock() = states;
    }
}

impl UnderStores for GivenUnderStores {
    fn states(&self) -> Vec<UnderStoreStatus> {
        self.0.lock().clone()
    }
}

/// One answer, whole.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// What a problem says, which must be one line.
    #[track_caller]
    pub(crate) fn detail(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.head);
        let body = self.json();
        assert_eq!(body["status"], self.status);
        let detail = body["detail"].as_str().unwrap().to_owned();
        assert!(!detail.is_empty() && !detail.contains('\n'), "{detail:?}");
        detail
    }
}

impl Server {
    /// A listener without a worker behind it.
    pub(crate) async fn starting() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (env, clock) = Env::simulated(1);
        let (admin, stop) = (Admin::new(env.clone(), None, AuditLog::default()), CancellationToken::new());
        forebay_env::spawn(forebay_admin::run(listener, admin.clone(), stop.clone()));
        let users_file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(users_file.path(), USERS).unwrap();
        let under = MemoryUnderStore::default();
        let (under_stores, notices) = (GivenUnderStores::default(), Notices::default());
        Self { address, admin, clock, users: None, under, under_stores, notices, users_file, env, stop }
    }

    pub(crate) async fn ready() -> Self {
        let mut server = Self::starting().await;
        let (access_key, secret) = ROOT.unwrap();
        let root = RootUser { access_key: access_key.into(), secret_key: Secret::new(secret) };
        let users = Users::open(root, Some(server.users_file.path().to_owned())).unwrap();
        let mut registry = Registry::default();
        server.admin.ready(Running {
            cache: open_cache(&server.env, &server.under, &mut registry).await,
            users: users.clone(),
            registry,
            notices: server.notices.clone(),
            configuration: Vec::new(),
            under_stores: Arc::new(server.under_stores.clone()),
            cluster: None,
        });
        server.users = Some(users);
        server
    }

    /// Replaces the users other than root.
    pub(crate) fn set_users(&self, text: &str) {
        std::fs::write(self.users_file.path(), text).unwrap();
        assert!(self.users.as_ref().unwrap().reload().unwrap());
    }

    pub(crate) async fn send(&self, method: &str, path: &str, keys: Keys, headers: &str, body: &str) -> Answer {
        let authorization = keys.map(|(access, secret)| {
            format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(format!("{access}:{secret}")))
        });
        let length = format!("Content-Length: {}\r\n", body.len());
        let head = format!("{}{length}{headers}", authorization.unwrap_or_default());
        self.send_raw(&format!("{method} {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n{head}\r\n{body}"))
            .await
    }

    /// Sends exactly this, and reads until the end.
    pub(crate) async fn send_raw(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) async fn get(&self, path: &str, keys: Keys) -> Answer {
        self.send("GET", path, keys, "", "").await
    }
}

async fn open_cache(env: &Env, under: &MemoryUnderStore, registry: &mut Registry) -> Cache {
    let settings = forebay_store::Settings::new(vec![64 << 20]);
    let store = Store::open(env.clone(), vec![Arc::new(MemoryDisk::new(1 << 30))], settings, None).await.unwrap();
    let catalog = Arc::new(EmbeddedCatalog::new(store.clone()));
    let under = Arc::new(under.clone());
    let mount = Mount { foreground: Arc::<MemoryUnderStore>::clone(&under), background: under };
    let mounts = BTreeMap::from([(BucketName::new(BUCKET).unwrap(), mount)]);
    let mounts = Mounts { mounts, root: None, background_root: None };
    let settings = forebay_cache::Settings::default();
    let parts = Parts { env: env.clone(), store, catalog, mounts, settings, policies: vec![], others: None };
    Cache::open(parts, registry).await.unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
