//! The conformance suite of under stores, on a real S3 server.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Env;
use forebay_types::{
    Algorithm, ByteRange, ByteSize, Checksum, ChecksumKind, Checksums, ETag, Generation, ObjectInfo, ObjectKey,
    PartInfo,
};
use forebay_ufs::s3::{S3Client, S3Credentials, S3EndpointRoot, S3PrefixRoot, S3Settings, S3Store, connect};
use forebay_ufs::{
    BucketRoot, ByteStream, Condition, ErrorKind, OpenOptions, UnderStore, Upload, UploadSource, conformance,
    open_mount,
};
use futures::{StreamExt, TryStreamExt};
use md5::{Digest, Md5};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

const KEY: &str = "forebay";

struct Server {
    process: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Server {
    async fn start() -> Self {
        let binary = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin/versitygw");
        assert!(binary.exists(), "{} is missing: run make setup", binary.display());
        let directory = tempfile::tempdir().expect("a temporary directory");
        for _ in 0..10 {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
                .and_then(|listener| listener.local_addr())
                .expect("a free port")
                .port();
            let mut process = Command::new(&binary)
                .args(["--access", KEY, "--secret", KEY, "--quiet", "--port", &format!("127.0.0.1:{port}"), "posix"])
                .arg(directory.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the S3 server starts");
            if listens(&mut process, port).await {
                return Self { process, port, _directory: directory };
            }
        }
        panic!("the S3 server ends at once");
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn client(&self, options: &OpenOptions) -> S3Client {
        connect(Some(&self.endpoint()), None, options).await.expect("a client")
    }

    async fn bucket(&self, name: &str, prefix: &str, settings: S3Settings) -> S3Store {
        let client = self.client(&options()).await;
        client.sdk.create_bucket().bucket(name).send().await.expect("a bucket");
        S3Store::new(Env::real(), client, name, prefix, settings)
    }
}

/// Whether the server listens. `false`: it has ended, because another process was quicker to take the port.
async fn listens(process: &mut Child, port: u16) -> bool {
    let env = Env::real();
    for _ in 0..1000 {
        // A connection to a port that nobody listens on may meet itself.
        let other = |stream: &TcpStream| stream.local_addr().is_ok_and(|local| local.port() != port);
        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok_and(|stream| other(&stream));
        if process.try_wait().expect("a child").is_some() {
            return false;
        }
        if connected {
            return true;
        }
        env.clock.sleep(Duration::from_millis(20)).await;
    }
    panic!("the S3 server does not listen");
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn options() -> OpenOptions {
    let keys = S3Credentials { access_key: KEY.into(), secret_key: KEY.into(), session_token: None };
    OpenOptions { credentials: Some(keys), ..OpenOptions::default() }
}

fn key(text: &str) -> ObjectKey {
    ObjectKey::new(text).expect("a key")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_and_a_prefix_keep_the_promises_of_an_under_store() {
    let server = Server::start().await;
    // This server keeps objects as files: it can't have `a` next to `a/b`, it has no `//`, and nothing can be in `a/`.
    let keys: Vec<&str> =
        conformance::ODD_KEYS.into_iter().filter(|key| !matches!(*key, "a" | "a/b" | "dir/" | "dir//file")).collect();
    conformance::run_with_keys(&server.bucket("whole", "", S3Settings::default()).await, &keys).await;
    conformance::run_with_keys(&server.bucket("part", "deep/down", S3Settings::default()).await, &keys).await;
    let sdk = server.bucket("sdk", "deep/down", S3Settings::default()).await.through_sdk();
    conformance::run_with_keys(&sdk, &keys).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_and_a_prefix_keep_the_promises_of_a_root() {
    let server = Server::start().await;
    let client = server.client(&options()).await;
    conformance::run_root(&S3EndpointRoot::new(Env::real(), client, S3Settings::default())).await;
    let place = server.bucket("place", "buckets", S3Settings::default()).await;
    let root = S3PrefixRoot::new(place);
    conformance::run_root(&root).await;
    assert!(root.list().await.expect("a list").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_object_goes_in_the_parts_of_the_client_and_keeps_its_tag() {
    let server = Server::start().await;
    let settings = S3Settings { multipart_threshold: forebay_types::ByteSize(1 << 20), ..S3Settings::default() };
    let store = server.bucket("large", "", settings).await;
    let data: Bytes = (0..11 << 20).map(|index: u32| (index / 7) as u8).collect::<Vec<_>>().into();
    let sizes = [5 << 20, 5 << 20, 1 << 20];
    let (mut start, mut digests, mut parts) = (0, Vec::new(), Vec::new());
    for (size, number) in sizes.into_iter().zip(1..) {
        digests.extend_from_slice(&Md5::digest(&data[start..start + size]));
        parts.push(PartInfo { number, size: size as u64, checksums: Checksums::none() });
        start += size;
    }
    let etag = ETag::from_parts(Md5::digest(&digests).into(), sizes.len());
    let info = ObjectInfo { parts, ..ObjectInfo::new(data.len() as u64, etag.clone(), 1_700_000_000_000) };
    let source = conformance::source(data.clone());
    let upload =
        Upload { generation: Generation(9), info: Arc::new(info.clone()), source, condition: Condition::Absent };
    let stored = store.put(&key("large"), upload.clone()).await.expect("an upload in parts");
    assert_eq!(stored.remote_etag, etag);
    let body = store.get(&key("large"), None, Some(&etag)).await.expect("the object");
    assert_eq!(body.object.info.parts, info.parts);
    let read = body.stream.try_fold(Vec::new(), |mut all, piece| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    });
    assert!(read.await.expect("the body") == data);
    let again = store.put(&key("large"), upload).await.expect_err("it is there");
    assert_eq!(again.kind, ErrorKind::Precondition);
    let uploads = store.s3().expect("S3").client.list_multipart_uploads().bucket("large").send().await.expect("a list");
    assert!(uploads.uploads().is_empty(), "a refused upload is aborted");
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_uploads_are_swept_where_that_is_wanted() {
    let server = Server::start().await;
    let settings = S3Settings { sweep_uploads: true, ..S3Settings::default() };
    let store = server.bucket("swept", "mine", settings).await;
    let client = store.s3().expect("S3").client;
    for key in ["mine/a", "mine/b", "other"] {
        client.create_multipart_upload().bucket("swept").key(key).send().await.expect("an upload begins");
    }
    assert_eq!(store.sweep(Duration::from_secs(3600), &|_| true).await.expect("a sweep"), 0, "they are young");
    let is_ours = |key: &ObjectKey| key.as_str() == "b";
    assert_eq!(store.sweep(Duration::ZERO, &|_| false).await.expect("a sweep"), 0, "another worker writes them");
    assert_eq!(store.sweep(Duration::ZERO, &is_ours).await.expect("a sweep"), 1);
    assert_eq!(store.sweep(Duration::ZERO, &|_| true).await.expect("a sweep"), 1);
    let left = client.list_multipart_uploads().bucket("swept").send().await.expect("a list");
    assert_eq!(left.uploads().len(), 1, "what is outside of the prefix stays");
}

/// Yields its first bytes immediately, and the others when it may.
struct Slow {
    data: Bytes,
    begun: Arc<Semaphore>,
    may: Arc<Semaphore>,
}

impl UploadSource for Slow {
    fn stream(&self, range: ByteRange) -> ByteStream {
        self.begun.add_permits(1);
        let (data, may) = (self.data.slice(range.start as usize..range.end as usize), Arc::clone(&self.may));
        let wait = async move {
            let _permit = may.acquire().await.expect("it is open");
            Ok(data)
        };
        if range.start == 0 {
            conformance::source(self.data.clone()).stream(range)
        } else {
            futures::stream::once(wait).boxed()
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_under_way_in_one_lane_is_not_swept_by_the_other() {
    let server = Server::start().await;
    let settings = S3Settings { sweep_uploads: true, multipart_threshold: ByteSize(5 << 20), ..S3Settings::default() };
    let client = server.bucket("slow", "", settings.clone()).await.s3().expect("S3").client;
    let url = format!("s3://slow?endpoint={}", server.endpoint()).parse().expect("a URL");
    let lanes = open_mount(&Env::real(), &url, &OpenOptions { s3: settings, ..options() }).await.expect("a bucket");
    let data = Bytes::from(vec![7; 6 << 20]);
    let info = Arc::new(ObjectInfo::new(data.len() as u64, ETag::new("of nobody"), 1_700_000_000_000));
    let (begun, may) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let source = Arc::new(Slow { data, begun: Arc::clone(&begun), may: Arc::clone(&may) });
    let upload = Upload { generation: Generation(1), info, source, condition: Condition::Always };
    let foreground = Arc::clone(&lanes.foreground);
    let put = forebay_env::spawn(async move { foreground.put(&key("slow"), upload).await });
    let _first = begun.acquire().await.expect("it is open");
    let uploads = client.list_multipart_uploads().bucket("slow").send().await.expect("a list");
    assert_eq!(uploads.uploads().len(), 1);
    assert_eq!(lanes.background.sweep(Duration::ZERO, &|_| true).await.expect("a sweep"), 0);
    may.add_permits(10);
    put.join().await.expect("the upload");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_what_to_do() {
    let server = Server::start().await;
    let store = server.bucket("errors", "", S3Settings::default()).await;
    let data = Bytes::from_static(b"data");
    let wrong = Checksum { algorithm: Algorithm::Crc32C, value: vec![1, 2, 3, 4] };
    let mut info = ObjectInfo::new(4, ETag::from_md5(Md5::digest(&data).into()), 0);
    info.checksums = Checksums { kind: ChecksumKind::FullObject, values: vec![wrong] };
    let upload = |info: &ObjectInfo, data: &Bytes| {
        let (info, source) = (Arc::new(info.clone()), conformance::source(data.clone()));
        Upload { generation: Generation(1), info, source, condition: Condition::Always }
    };
    let kind = |result: forebay_ufs::Result<forebay_ufs::Stored>| result.expect_err("it must fail").kind;
    assert_eq!(
        kind(store.put(&key("a"), upload(&info, &data)).await),
        ErrorKind::Corrupt,
        "a checksum that does not fit"
    );
    info.checksums = Checksums::none();
    info.size = 5;
    assert_eq!(kind(store.put(&key("a"), upload(&info, &data)).await), ErrorKind::Corrupt, "a source that ends early");
    assert_eq!(store.head(&key("a")).await.expect_err("nothing was written").kind, ErrorKind::NotFound);
    let nowhere = S3Store::new(Env::real(), server.client(&options()).await, "nowhere", "", S3Settings::default());
    assert_eq!(nowhere.get(&key("a"), None, None).await.err().expect("no bucket").kind, ErrorKind::NoBucket);
    let mut strange = options();
    strange.credentials =
        Some(S3Credentials { access_key: "who".into(), secret_key: "what".into(), session_token: None });
    let denied = S3Store::new(Env::real(), server.client(&strange).await, "errors", "", S3Settings::default());
    let refused = denied.tags(&key("a")).await.expect_err("wrong keys");
    // Amazon answers 403. This server answers 404 with a code of its own. Neither means "no such object".
    assert!(matches!(refused.kind, ErrorKind::Denied | ErrorKind::Invalid), "{refused}");
    info.size = 4;
    drop(server);
    assert_eq!(kind(store.put(&key("a"), upload(&info, &data)).await), ErrorKind::Unavailable, "nobody listens");
}

#[tokio::test]
async fn keys_that_s3_would_never_take_are_refused_before_anything_is_sent() {
    let server = Server::start().await;
    let store = server.bucket("keys", "a/prefix", S3Settings::default()).await;
    let key = |text: &str| ObjectKey::new(text).expect("a key");
    store.check_key(&key(&"x".repeat(1024 - "a/prefix/".len()))).expect("1,024 bytes");
    let long = store.check_key(&key(&"x".repeat(1024))).expect_err("longer with the prefix");
    assert_eq!(long.kind, ErrorKind::Invalid, "{long}");
    store.check_key(&key(" ")).expect("not alone");
    let whole = server.bucket("whole", "", S3Settings::default()).await;
    for out in ["..", "../x", "a/../../x", "./../x", "a/b/../../..", "//../x"] {
        assert_eq!(whole.check_key(&key(out)).expect_err("outside of the bucket").kind, ErrorKind::Invalid, "{out}");
        store.check_key(&key(out)).expect_err("outside of the prefix");
    }
    for plain in ["...", "..a", "a..", "./a"] {
        whole.check_key(&key(plain)).expect("it names nothing else");
    }
    // Amazon S3 takes them as they are. Nothing is sent.
    let client = connect(Some("https://s3.eu-west-3.amazonaws.com"), None, &options()).await.expect("a client");
    let amazon = S3Store::new(Env::real(), client, "bucket", "", S3Settings::default());
    for inside in ["a/..", "a/../b", "a/b/../../c"] {
        amazon.check_key(&key(inside)).expect("inside");
        assert_eq!(whole.check_key(&key(inside)).expect_err("a gateway may resolve it").kind, ErrorKind::Invalid);
    }
    amazon.check_key(&key("a/../../x")).expect_err("outside of the bucket");
    assert_eq!(whole.check_key(&key(" \t")).expect_err("white space alone").kind, ErrorKind::Invalid);
}

/// Answers like Amazon S3 to a client that expects an object: If-Match on a key without one is NoSuchKey.
async fn amazon(listener: tokio::net::TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        forebay_env::spawn(async move {
            let mut seen = Vec::new();
            loop {
                let Some(request) = read_request(&mut stream, &mut seen).await else { return };
                let initiated =
                    "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>";
                let missing = "<Error><Code>NoSuchKey</Code></Error>";
                let (status, document) = match request.as_str() {
                    line if line.starts_with("POST") && line.contains("?uploads") => (200, initiated),
                    line if line.contains("partNumber=") => (200, ""),
                    line if line.starts_with("DELETE") => (204, ""),
                    _ => (404, missing),
                };
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nETag: \"e\"\r\nContent-Length: {}\r\n\r\n{document}",
                    document.len()
                );
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// The first line of a request, which is read to its end. `None` at the end of the connection.
async fn read_request(stream: &mut tokio::net::TcpStream, seen: &mut Vec<u8>) -> Option<String> {
    let end = loop {
        if let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        (stream.read_buf(seen).await.ok()? > 0).then_some(())?;
    };
    let head = String::from_utf8_lossy(&seen[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let first = String::from_utf8_lossy(&seen[..end]).lines().next()?.to_owned();
    while seen.len() < end + length {
        (stream.read_buf(seen).await.ok()? > 0).then_some(())?;
    }
    seen.drain(..end + length);
    Some(first)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_gone_is_a_condition_that_does_not_hold() {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    forebay_env::spawn(amazon(listener));
    let client = connect(Some(&endpoint), None, &options()).await.unwrap();
    for multipart in [false, true] {
        let mut settings = S3Settings::default();
        if multipart {
            settings.multipart_threshold = forebay_types::ByteSize(1000);
        }
        let store = S3Store::new(Env::real(), client.clone(), "bucket", "", settings);
        let body = Bytes::from(vec![7; 10_000]);
        let info = ObjectInfo::new(body.len() as u64, ETag::from_md5(Md5::digest(&body).into()), 0);
        let condition = Condition::Matches(ETag::new("e"));
        let source = conformance::source(body);
        let upload = Upload { generation: Generation(1), info: Arc::new(info), source, condition };
        let error = store.put(&key("gone"), upload).await.expect_err("there is no such object");
        assert_eq!(error.kind, ErrorKind::Precondition, "{multipart}: {error}");
    }
}
