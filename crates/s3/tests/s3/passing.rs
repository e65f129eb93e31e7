//! Requests that pass through to an S3 endpoint: when they are sent, and when they are refused here.

use std::net::SocketAddr;
use std::sync::Arc;

use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use forebay_types::WriteMode;
use forebay_ufs::S3Target;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::sign::Request;
use crate::support::{BUCKET, Endpoint, ROOT_KEY, ROOT_SECRET, client_of, raw, rule, start_before};

/// What each version contains.
const VERSION: &str = "version";

/// An S3 endpoint where everything is, and that does everything.
struct Behind {
    address: SocketAddr,
    /// The first line of each request.
    came: Arc<Mutex<Vec<String>>>,
}

impl Behind {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
        let address = listener.local_addr().expect("address");
        let came = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&came);
        forebay_env::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                forebay_env::spawn(answer(stream, Arc::clone(&noted)));
            }
        });
        Self { address, came }
    }

    fn target(&self) -> S3Target {
        let client = client_of(self.address, "keybehind", "secretbehind");
        S3Target::new(client, "behind".to_owned(), String::new())
    }

    fn came(&self) -> Vec<String> {
        self.came.lock().clone()
    }
}

/// Answers the one request of a connection.
async fn answer(mut stream: TcpStream, came: Arc<Mutex<Vec<String>>>) {
    let mut bytes: Vec<u8> = Vec::new();
    let body = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..body]).into_owned();
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    while bytes.len() - body < length.unwrap_or(0) {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let first = head.lines().next().unwrap_or_default().to_owned();
    let (length, content) = match first.split(' ').next() {
        Some("GET") => (VERSION.len(), VERSION),
        Some("HEAD") => (VERSION.len(), ""),
        _ => (0, ""),
    };
    came.lock().push(first);
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{content}");
    // The client may have gone.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// Sends a request of the root user, and returns the whole answer.
async fn send(endpoint: &Endpoint, request: Request) -> String {
    let request = Request { key: ROOT_KEY.to_owned(), secret: ROOT_SECRET.to_owned(), ..request };
    raw::exchange(endpoint.address, request.sign(endpoint.address).bytes).await
}

/// Those of the under store are what they are, whatever waits here.
#[tokio::test]
async fn a_version_is_read_while_its_object_waits_to_be_persisted() {
    let behind = Behind::start().await;
    let endpoint = start_before(behind.target(), vec![rule("/", WriteMode::Transient)]).await;
    let put = endpoint.root().put_object().bucket(BUCKET).key("key").body(b"waits".to_vec().into());
    put.send().await.expect("put");
    let request = |method| Request::new(method, "/bucket/key");
    let read = send(&endpoint, request("GET").query("versionId", "7")).await;
    assert!(raw::status(&read) == 200 && read.contains(VERSION), "{read}");
    let read = send(&endpoint, request("HEAD").query("versionId", "7")).await;
    assert_eq!(raw::status(&read), 200, "{read}");
    assert_eq!(behind.came().len(), 2);
    for depends in [request("DELETE").query("versionId", "7"), request("GET").query("legal-hold", "")] {
        let refused = send(&endpoint, depends).await;
        assert_eq!(raw::status(&refused), 503, "{refused}");
    }
    assert_eq!(behind.came().len(), 2);
}

#[tokio::test]
async fn what_passes_through_changes_nothing_on_a_read_only_path() {
    let behind = Behind::start().await;
    let policies = vec![rule("/", WriteMode::Transient), rule("/bucket/fixed/", WriteMode::ReadOnly)];
    let endpoint = start_before(behind.target(), policies).await;
    let (legal_hold, tags) = ("<LegalHold><Status>ON</Status></LegalHold>", "<Tagging><TagSet></TagSet></Tagging>");
    let changes = |key: &str| {
        let request = |method| Request::new(method, &format!("/bucket/{key}"));
        [
            request("DELETE").query("versionId", "7"),
            request("DELETE").query("tagging", "").query("versionId", "7"),
            request("PUT").query("acl", "").query("versionId", "7").header("x-amz-acl", "private"),
            request("PUT").query("legal-hold", "").body(legal_hold),
            request("PUT").query("retention", ""),
            request("PUT").query("tagging", "").query("versionId", "7").body(tags),
            request("POST").query("restore", ""),
        ]
    };
    let plain = send(&endpoint, Request::new("PUT", "/bucket/fixed/key")).await;
    let changes_fixed = changes("fixed/key").map(|change| send(&endpoint, change));
    for refused in futures::future::join_all(changes_fixed).await.iter().chain([&plain]) {
        assert_eq!(raw::status(refused), 403, "{refused}");
        assert!(refused.contains("<Code>AccessDenied</Code>"), "{refused}");
    }
    let version = ObjectIdentifier::builder().key("fixed/key").version_id("7").build().expect("key");
    let delete = Delete::builder().objects(version).build().expect("delete");
    let outcome = endpoint.root().delete_objects().bucket(BUCKET).delete(delete).send().await.expect("an answer");
    assert_eq!(outcome.errors()[0].code(), Some("AccessDenied"));
    assert!(behind.came().is_empty(), "{:?}", behind.came());
    for change in changes("free/key") {
        let answer = send(&endpoint, change).await;
        assert_ne!(raw::status(&answer), 403, "{answer}");
    }
    let came = behind.came();
    assert!(came.iter().any(|line| line.starts_with("DELETE ")), "{came:?}");
    for read in ["GET", "HEAD"] {
        let answer = send(&endpoint, Request::new(read, "/bucket/fixed/key").query("versionId", "7")).await;
        assert_eq!(raw::status(&answer), 200, "{answer}");
    }
}
