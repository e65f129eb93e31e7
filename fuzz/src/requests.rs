//! Whole requests, sent to an S3 endpoint over a cache, all of it in memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use forebay_auth::{RootUser, Secret, Users};
use forebay_cache::{Cache, Mount, Mounts, Parts};
use forebay_catalog::EmbeddedCatalog;
use forebay_env::Env;
use forebay_env::disk::memory::MemoryDisk;
use forebay_logs::Logs;
use forebay_s3::{S3Service, S3Settings};
use forebay_store::{Settings, Store};
use forebay_types::{BucketName, PolicyRule, WriteMode};
use forebay_ufs::memory::MemoryUnderStore;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

/// Between the requests of one input, on a line of its own.
const BETWEEN: &str = "\n====\n";

/// Most requests of one input.
const REQUESTS_MAX: usize = 4;

/// Bytes that each directory of the store may take: the size of its tables does not matter here.
const CAPACITY_BYTES: u64 = 64 << 20;

/// Headers that frame the request: these are added as they must be.
const FRAMING: [&str; 5] = ["connection", "content-length", "expect", "transfer-encoding", "upgrade"];

/// Users who need no signature may do everything, as far as that goes.
const USERS: &str = "[[anonymous]]\npath = \"/\"\nallow = [\"admin\"]\n";

fn users_file() -> &'static PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("users-{}.toml", std::process::id()));
        std::fs::write(&path, USERS).expect("a directory for temporary files");
        path
    })
}

/// Whatever is asked for, the answer is one, and never that something went wrong here.
pub(crate) fn requests(data: &[u8]) {
    let requests: Vec<_> = split(data, BETWEEN.as_bytes()).take(REQUESTS_MAX).filter_map(request).collect();
    if requests.is_empty() {
        return;
    }
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("a port");
        let service = service().await;
        let server = forebay_env::spawn(service.run(listener, None, CancellationToken::new()));
        for request in requests {
            let mut connection = TcpStream::connect(address).await.expect("a connection");
            // Refused before all of it was read, it may be cut off.
            let _ = connection.write_all(&request).await;
            let mut answer = Vec::new();
            let read = connection.read_to_end(&mut answer).await;
            let text = String::from_utf8_lossy(&answer);
            let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse::<u16>().ok());
            let shown = String::from_utf8_lossy(&request);
            match status {
                Some(status) => assert_ne!(status, 500, "{shown}\n\n{text}"),
                None => assert!(read.is_err(), "no answer to: {shown}"),
            }
        }
        drop(server);
    });
}

async fn service() -> S3Service {
    // Random numbers that repeat; time that passes, since some commits wait a moment for others.
    let env = Env { clock: Env::real().clock, ..Env::simulated(1).0 };
    let mut registry = Registry::default();
    let disk = Arc::new(MemoryDisk::new(CAPACITY_BYTES));
    let store = Store::open(env.clone(), vec![disk], Settings::new(vec![CAPACITY_BYTES]), None).await.expect("a disk");
    let catalog = Arc::new(EmbeddedCatalog::new(store.clone()));
    let under_store = MemoryUnderStore::default();
    under_store.put_outside("seed", Bytes::from_static(b"bytes of the under store"));
    let lane = Arc::new(under_store);
    let mount = Mount { foreground: lane.clone(), background: lane };
    let bucket = BucketName::new("bucket").expect("a valid name");
    let mounts = Mounts { mounts: BTreeMap::from([(bucket, mount)]), root: None, background_root: None };
    let rule = |path, mode| PolicyRule { write_mode: Some(mode), ..PolicyRule::for_path(path) };
    let policies = vec![rule("/bucket/t", WriteMode::Transient), rule("/bucket/b", WriteMode::WriteBack)];
    let parts =
        Parts { env: env.clone(), store, catalog, mounts, settings: Default::default(), policies, others: None };
    let cache = Cache::open(parts, &mut registry).await.expect("a new store");
    let root = RootUser { access_key: "root".to_owned(), secret_key: Secret::new("root secret") };
    let users = Users::open(root, Some(users_file().clone())).expect("a valid file");
    let settings = S3Settings { domain: Some("s3.example.com".to_owned()), ..S3Settings::new(Secret::new("tokens")) };
    S3Service::new(cache, users, settings, env, &mut registry, Logs::default(), None)
}

fn split<'a>(data: &'a [u8], between: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let data = rest?;
        let at = data.windows(between.len()).position(|window| window == between);
        rest = at.map(|at| &data[at + between.len()..]);
        Some(&data[..at.unwrap_or(data.len())])
    })
}

/// A method and a target, lines of headers, an empty line and a body as a request that an HTTP server takes as a whole.
fn request(data: &[u8]) -> Option<Vec<u8>> {
    let mut parts = split(data, b"\n\n");
    let head = std::str::from_utf8(parts.next()?).ok()?;
    let body = data.get(head.len() + 2..).unwrap_or_default();
    let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
    let (method, target) = line.split_once(' ')?;
    http::Method::from_bytes(method.as_bytes()).ok().filter(|method| *method != http::Method::CONNECT)?;
    target.parse::<http::Uri>().ok().filter(|_| target.starts_with('/'))?;
    let mut request = format!("{method} {target} HTTP/1.1\r\n");
    let mut has_host = false;
    for header in headers.lines() {
        let Some((name, value)) = header.split_once(':') else { continue };
        let (name, value) = (http::HeaderName::try_from(name).ok(), http::HeaderValue::try_from(value).ok());
        let (Some(name), Some(_)) = (name, value) else { continue };
        if !FRAMING.contains(&name.as_str()) {
            has_host |= name == http::header::HOST;
            request += &format!("{header}\r\n");
        }
    }
    if !has_host {
        request += "host: localhost\r\n";
    }
    request += &format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    Some([request.as_bytes(), body].concat())
}
