//! The admin listener over a real worker in memory, spoken to over a socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as the tests do")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use forebay_admin::{Admin, Running};
use forebay_auth::{RootUser, Secret, Users};
use forebay_cache::{Cache, Mounts, Parts};
use forebay_catalog::EmbeddedEngine;
use forebay_env::Env;
use forebay_env::disk::memory::MemoryDisk;
use forebay_store::Store;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
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
grants = [{ path = \"/team\", allow = [\"admin\"] }]
";

const ROOT: Option<(&str, &str)> = Some(("ROOT", "hunter2hunter2"));

struct Server {
    address: SocketAddr,
    admin: Admin,
    stop: CancellationToken,
    _users: tempfile::NamedTempFile,
}

struct NoUnderStores;

impl forebay_admin::UnderStores for NoUnderStores {
    fn states(&self) -> Vec<forebay_admin::api::UnderStoreStatus> {
        Vec::new()
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Server {
    /// A listener without a worker behind it.
    async fn starting() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (admin, stop) = (Admin::new(Env::real(), None), CancellationToken::new());
        forebay_env::spawn(forebay_admin::run(listener, admin.clone(), stop.clone()));
        let users = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(users.path(), USERS).unwrap();
        Self { address, admin, stop, _users: users }
    }

    async fn ready() -> Self {
        let server = Self::starting().await;
        let (env, _clock) = Env::simulated(1);
        let settings = forebay_store::Settings::new(vec![64 << 20]);
        let store = Store::open(env.clone(), vec![Arc::new(MemoryDisk::new(1 << 30))], settings, None).await.unwrap();
        let engine = Arc::new(EmbeddedEngine::new(store.clone()));
        let mounts = Mounts { mounts: BTreeMap::new(), root: None, background_root: None };
        let parts =
            Parts { env, store, engine, mounts, settings: forebay_cache::Settings::default(), policies: vec![] };
        let mut registry = Registry::default();
        let cache = Cache::open(parts, &mut registry).await.unwrap();
        let (access_key, secret) = ROOT.unwrap();
        let root = RootUser { access_key: access_key.into(), secret_key: Secret::new(secret) };
        let users = Users::open(root, Some(server._users.path().to_owned())).unwrap();
        server.admin.ready(Running {
            cache,
            users,
            registry,
            notices: forebay_admin::Notices::default(),
            configuration: Vec::new(),
            under_stores: std::sync::Arc::new(NoUnderStores),
        });
        server
    }

    async fn send(&self, method: &str, path: &str, keys: Option<(&str, &str)>, headers: &str, body: &str) -> Answer {
        let authorization = keys.map(|(access, secret)| {
            format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(format!("{access}:{secret}")))
        });
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Length: {}\r\n{}{headers}\r\n{body}",
            body.len(),
            authorization.unwrap_or_default()
        );
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    async fn get(&self, path: &str, keys: Option<(&str, &str)>) -> Answer {
        self.send("GET", path, keys, "", "").await
    }

    async fn put_policies(&self, headers: &str, body: &str) -> Answer {
        self.send("PUT", "/api/v1/policies", ROOT, headers, body).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test]
async fn probes_are_answered_before_the_store_is_open() {
    let server = Server::starting().await;
    let answer = server.get("/readyz", None).await;
    assert_eq!((answer.status, answer.body.as_str()), (503, "starting\n"));
    assert_eq!(server.get("/healthz", None).await.status, 200);
    assert_eq!(server.get("/metrics", None).await.status, 503);
    assert_eq!(server.get("/api/v1/status", ROOT).await.status, 503);
}

#[tokio::test]
async fn readiness_ends_when_the_worker_stops() {
    let server = Server::ready().await;
    assert_eq!(server.get("/readyz", None).await.status, 200);
    server.admin.stopping();
    let answer = server.get("/readyz", None).await;
    assert_eq!((answer.status, answer.body.as_str()), (503, "stopping\n"));
    assert_eq!(server.get("/healthz", None).await.status, 200);
}

#[tokio::test]
async fn every_page_of_the_api_wants_an_administrator() {
    let server = Server::ready().await;
    let pages = [
        ("GET", "/api/v1/status"),
        ("GET", "/api/v1/policies"),
        ("PUT", "/api/v1/policies"),
        ("GET", "/api/v1/policies/resolve?path=/a-bucket/key"),
        ("POST", "/api/v1/persist?prefix=/a-bucket"),
    ];
    let strangers =
        [None, Some(("ROOT", "wrong")), Some(("NOBODY", "hunter2hunter2")), Some(("", "")), Some(("ROOT", ""))];
    for (method, page) in pages {
        for keys in strangers {
            let answer = server.send(method, page, keys, "", "[]").await;
            assert_eq!(answer.status, 401, "{method} {page} {keys:?}");
            assert!(answer.header("www-authenticate").is_some());
        }
        let reader = server.send(method, page, Some(("READER", "reader-secret")), "", "[]").await;
        assert_eq!(reader.status, 403, "{method} {page}");
        assert_eq!(reader.header("content-type"), Some("application/problem+json"));
        let team = server.send(method, page, Some(("TEAM", "team-secret")), "", "[]").await;
        assert_eq!(team.status, 403, "{method} {page}");
    }
    assert_eq!(server.get("/api/v1/policies", ROOT).await.json(), json!([]), "a refused PUT changes nothing");
}

#[tokio::test]
async fn an_administrator_of_a_path_may_ask_about_it() {
    let server = Server::ready().await;
    let team = Some(("TEAM", "team-secret"));
    assert_eq!(server.get("/api/v1/policies/resolve?path=/team/key", team).await.status, 200);
    assert_eq!(server.send("POST", "/api/v1/persist?prefix=/team", team, "", "").await.status, 204);
}

#[tokio::test]
async fn policies_are_replaced_as_a_whole_if_nobody_was_faster() {
    let server = Server::ready().await;
    let before = server.get("/api/v1/policies", ROOT).await;
    let version = before.header("etag").unwrap().to_owned();
    let rules = json!([{ "path": "/logs/", "writeMode": "WRITE_BACK", "metadataTtl": "5 s" }]);

    let answer = server.put_policies(&format!("If-Match: {version}\r\n"), &rules.to_string()).await;
    assert_eq!((answer.status, answer.json()), (200, rules.clone()), "{}", answer.body);
    let late = server.put_policies(&format!("If-Match: {version}\r\n"), "[]").await;
    assert_eq!(late.status, 412, "{}", late.body);
    let after = server.get("/api/v1/policies", ROOT).await;
    assert_eq!((after.json(), after.header("etag")), (rules, answer.header("etag")));

    let resolved = server.get("/api/v1/policies/resolve?path=/logs/today", ROOT).await.json();
    assert_eq!((&resolved["writeMode"], &resolved["metadataTtl"]), (&json!("WRITE_BACK"), &json!("5 s")));
    let resolved = server.get("/api/v1/policies/resolve?path=/other/today", ROOT).await.json();
    assert_eq!(resolved["writeMode"], json!("WRITE_THROUGH"));
}

#[tokio::test]
async fn rules_that_cannot_hold_are_refused_by_name() {
    let server = Server::ready().await;
    for (body, named) in [
        ("[{\"path\":\"logs\"}]", "logs"),
        ("[{\"path\":\"/a\"},{\"path\":\"/a\"}]", "/a"),
        ("[{\"path\":\"/a\",\"writeReplicas\":3}]", "writeReplicas"),
        ("[{\"path\":\"/a\",\"writeMod\":\"WRITE_BACK\"}]", "writeMod"),
        ("[{\"path\":\"/a\",\"writeMode\":\"WRITE_BAK\"}]", "WRITE_BAK"),
        ("{}", "list of rules"),
        ("", "list of rules"),
    ] {
        let answer = server.put_policies("", body).await;
        assert_eq!(answer.status, 400, "{body}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(named) && !detail.contains('\n'), "{detail:?} lacks {named:?}");
    }
    assert_eq!(server.put_policies("If-Match: \"x\"\r\n", "[]").await.status, 400);
    assert_eq!(server.get("/api/v1/policies", ROOT).await.json(), json!([]));
}

#[tokio::test]
async fn bad_requests_get_problems_not_pages() {
    let server = Server::ready().await;
    for (method, page, status) in [
        ("GET", "/", 404),
        ("GET", "/api/v1/nothing", 404),
        ("DELETE", "/api/v1/policies", 405),
        ("GET", "/api/v1/policies/resolve", 400),
        ("GET", "/api/v1/policies/resolve?path=/Bucket/key", 400),
        ("GET", "/api/v1/policies/resolve?path=/a-bucket", 400),
        ("POST", "/api/v1/persist", 400),
        ("POST", "/api/v1/persist?prefix=team", 400),
    ] {
        let answer = server.send(method, page, ROOT, "", "").await;
        assert_eq!(answer.status, status, "{method} {page}: {}", answer.body);
        assert_eq!(answer.json()["status"], json!(status));
    }
    let large = format!("[{}]", " ".repeat(2 << 20));
    assert_eq!(server.put_policies("", &large).await.status, 413);
}

#[tokio::test]
async fn metrics_and_status_count_and_hold_no_secrets() {
    let server = Server::ready().await;
    let metrics = server.get("/metrics", None).await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(metrics.body.contains("\nforebay_dirty_objects 0\n") && metrics.body.ends_with("# EOF\n"));
    let status = server.get("/api/v1/status", ROOT).await;
    assert_eq!(status.json()["dirtyObjects"], json!(0));
    assert!(status.json()["capacityBytes"].as_u64().unwrap() > 0);
    for answer in [metrics, status] {
        assert!(!answer.body.contains("hunter2") && !answer.body.contains("reader-secret"));
    }
}
