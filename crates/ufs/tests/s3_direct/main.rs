//! The two ways of sending a request to S3, with the SDK and around it, send the same and understand the same.

mod gateways;
mod listings;
mod passing;
mod wrong_bodies;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Env;
use forebay_types::{
    Algorithm, BucketName, ByteRange, ByteSize, Checksum, ChecksumKind, Checksums, ETag, Generation, ObjectInfo,
    ObjectKey, Period, SystemHeaders,
};
use forebay_ufs::s3::{S3Client, S3Credentials, S3EndpointRoot, S3Settings, S3Store, connect};
use forebay_ufs::{
    BucketRoot, ByteStream, Condition, ErrorKind, ListRequest, OpenOptions, UnderStore, Upload, UploadSource,
    conformance, open_mount, open_root,
};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What a server sees of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// What a server answers to a request.
type Answer = Arc<dyn Fn(&Seen) -> Vec<u8> + Send + Sync>;

/// A server that records its requests.
struct Recorder {
    endpoint: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
}

impl Recorder {
    async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::by(move |_| answer.clone()).await
    }

    /// One answer per method.
    async fn by_method(answers: &[(&str, &str)]) -> Self {
        let answers: BTreeMap<_, _> =
            answers.iter().map(|(method, answer)| ((*method).to_owned(), (*answer).as_bytes().to_vec())).collect();
        Self::by(move |seen| answers[&seen.method].clone()).await
    }

    async fn by<A: Into<Vec<u8>>>(answer: impl Fn(&Seen) -> A + Send + Sync + 'static) -> Self {
        let answer: Answer = Arc::new(move |seen| answer(seen).into());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("what the test expects");
        let endpoint = format!("http://{}", listener.local_addr().expect("what the test expects"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (requests, connections) = (Arc::clone(&seen), Arc::<AtomicUsize>::default());
        let accepted = Arc::clone(&connections);
        forebay_env::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                forebay_env::spawn(serve(stream, Arc::clone(&requests), Arc::clone(&answer)));
            }
        });
        Self { endpoint, seen, connections }
    }

    fn options(settings: S3Settings) -> OpenOptions {
        let keys = S3Credentials {
            access_key: "key".into(),
            secret_key: "secret".into(),
            session_token: Some("a token".into()),
        };
        OpenOptions { credentials: Some(keys), s3: settings, ..OpenOptions::default() }
    }

    /// The same place, reached around the SDK and with the SDK.
    async fn both(&self, settings: S3Settings) -> [S3Store; 2] {
        let options = Self::options(settings.clone());
        let client = connect(Some(&self.endpoint), Some("eu-west-3"), &options).await.expect("what the test expects");
        let store = S3Store::new(Env::real(), client, "bucket", "a prefix", settings);
        [store.clone(), store.through_sdk()]
    }

    fn take(&self) -> Seen {
        let mut seen = std::mem::take(&mut *self.seen.lock());
        assert_eq!(seen.len(), 1, "one request for each call");
        seen.remove(0)
    }
}

async fn serve(mut stream: TcpStream, seen: Arc<Mutex<Vec<Seen>>>, answer: Answer) {
    let mut bytes = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut bytes).await {
        let answer = answer(&request);
        seen.lock().push(request);
        if answer.is_empty() || stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

async fn read_request(stream: &mut TcpStream, seen: &mut Vec<u8>) -> Option<Seen> {
    let end = loop {
        if let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        (stream.read_buf(seen).await.ok()? > 0).then_some(())?;
    };
    let head = String::from_utf8(seen[..end].to_vec()).expect("text");
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let mut headers = BTreeMap::<_, String>::new();
    for (name, value) in lines.filter_map(header) {
        headers.entry(name).and_modify(|all| *all = format!("{all},{value}")).or_insert(value);
    }
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().expect("a number"));
    while seen.len() < end + length {
        (stream.read_buf(seen).await.ok()? > 0).then_some(())?;
    }
    let body = seen[end..end + length].to_vec();
    seen.drain(..end + length);
    Some(Seen { method, path, headers, body })
}

/// The part of a request that means something to S3, without the parts of the signature and what the SDK reports about
/// itself.
fn meaning(mut seen: Seen) -> Seen {
    let authorization = seen.headers.remove("authorization").expect("a signature");
    let scope = authorization.split_once('/').expect("a scope").1;
    assert_eq!(
        scope.split(',').next().expect("what the test expects").split_once('/').expect("what the test expects").1,
        "eu-west-3/s3/aws4_request"
    );
    let signed = authorization
        .split("SignedHeaders=")
        .nth(1)
        .expect("what the test expects")
        .split(',')
        .next()
        .expect("what the test expects")
        .to_owned();
    for name in seen.headers.keys().filter(|name| name.starts_with("x-amz-") || *name == "host") {
        assert!(signed.split(';').any(|other| other == name), "{name} is not signed: {signed}");
    }
    for name in [
        "x-amz-date",
        "x-amz-content-sha256",
        "user-agent",
        "x-amz-user-agent",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "x-amz-sdk-checksum-algorithm",
        "accept-encoding",
        "accept",
    ] {
        seen.headers.remove(name);
    }
    let query = seen.path.split_once('?').map(|(path, query)| (path.to_owned(), query.to_owned()));
    if let Some((path, query)) = query {
        assert!(query.starts_with("x-id="), "{query}");
        seen.path = path;
    }
    seen
}

fn key(text: &str) -> ObjectKey {
    ObjectKey::new(text).expect("a key")
}

const CREATED: &str = "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\nx-amz-request-id: 1\r\n\r\n";
const DELETED: &str = "HTTP/1.1 204 X\r\nx-amz-request-id: 1\r\n\r\n";
const FOUND: &str = concat!(
    "HTTP/1.1 206 X\r\nETag: \"remote\"\r\nContent-Length: 4\r\nContent-Range: bytes 3-6/10\r\n",
    "Content-Type: text/a\r\nContent-Encoding: aws-chunked,gzip\r\nContent-Language: de\r\n",
    "Content-Disposition: inline\r\nCache-Control: no-store\r\nExpires: some day\r\n",
    "Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\nx-amz-website-redirect-location: /elsewhere\r\n",
    "x-amz-storage-class: GLACIER\r\nX-Amz-Meta-Some: thing\r\nx-amz-meta-coded: =?UTF-8?B?w7w=?=\r\n",
    "x-amz-meta-forebay-stamp: 1;g=7;s=10;t=1700000000123;e=mine;c=F:CRC32=AAAAAA==\r\n",
    "x-amz-checksum-crc32c: ksgKMQ==\r\nx-amz-checksum-type: FULL_OBJECT\r\n",
    "x-amz-request-id: 1\r\n\r\nabcd",
);

/// The same bytes as those of a whole object.
fn whole() -> String {
    FOUND.replace("206 X", "200 X").replace("Content-Range: bytes 3-6/10\r\n", "")
}

/// The first byte, which a GET asks for after a HEAD that says too little.
fn first_byte() -> String {
    let head = FOUND.replace("Content-Length: 4", "Content-Length: 1").replace("bytes 3-6/10", "bytes 0-0/10");
    head.replace("\r\n\r\nabcd", "\r\n\r\na")
}

/// The bytes of a range to who asks for one, else the whole.
fn ranged(seen: &Seen) -> String {
    if seen.headers.contains_key("range") { FOUND.to_owned() } else { whole() }
}

fn described(size: u64) -> ObjectInfo {
    let headers = SystemHeaders {
        content_type: Some("text/plain".into()),
        content_encoding: Some("gzip".into()),
        content_language: Some("de, en".into()),
        content_disposition: Some("attachment; filename=\"\u{fc}.txt\"".into()),
        cache_control: Some("max-age=5".into()),
        expires: Some("not even a date".into()),
        website_redirect_location: Some("/other".into()),
        storage_class: Some("STANDARD_IA".into()),
    };
    let user = [("plain".to_owned(), "value".to_owned()), ("other".to_owned(), "gr\u{fc}n".to_owned())].into();
    let tags = [("a b".to_owned(), "1&2".to_owned())].into();
    ObjectInfo { headers, user, tags, ..ObjectInfo::new(size, ETag::new("e"), 1_700_000_000_123) }
}

fn upload(info: ObjectInfo, body: &Bytes, condition: Condition) -> Upload {
    Upload { generation: Generation(7), info: Arc::new(info), source: conformance::source(body.clone()), condition }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_and_deletes_ask_for_the_same() {
    let (found, deleted) = (Recorder::by(ranged).await, Recorder::answering(DELETED).await);
    let (reads, deletes) = (found.both(S3Settings::default()).await, deleted.both(S3Settings::default()).await);
    let etag = ETag::new("remote");
    for name in conformance::ODD_KEYS {
        for (range, if_match) in [
            (None, None),
            (Some(ByteRange::new(3, 7)), None),
            (None, Some(&etag)),
            (Some(ByteRange::new(3, 7)), Some(&etag)),
        ] {
            let mut asked = Vec::new();
            for store in &reads {
                let answer = store.get(&key(name), range, if_match).await.unwrap();
                asked.push(meaning(found.take()));
                let body: Vec<u8> = answer.stream.map_ok(|piece| piece.to_vec()).try_concat().await.unwrap();
                assert_eq!(body, b"abcd");
            }
            assert_eq!(asked[0], asked[1], "{name:?} {range:?} {if_match:?}");
        }
        let mut asked = Vec::new();
        for store in &deletes {
            store.delete(&key(name), Condition::Always).await.unwrap();
            asked.push(meaning(deleted.take()));
        }
        assert_eq!(asked[0], asked[1], "{name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_told_of_in_the_same_way() {
    let found = Recorder::answering(FOUND).await;
    let [direct, sdk] = found.both(S3Settings::default()).await;
    let range = Some(ByteRange::new(3, 7));
    let (one, other) =
        (direct.get(&key("a"), range, None).await.unwrap(), sdk.get(&key("a"), range, None).await.unwrap());
    assert_eq!(one.object, other.object);
    assert_eq!((one.range, other.range), (ByteRange::new(3, 7), ByteRange::new(3, 7)));
    assert_eq!((one.object.info.etag.to_string(), one.object.info.size), ("mine".to_owned(), 10));
    let head = Recorder::answering(FOUND.strip_suffix("abcd").unwrap()).await;
    let [direct, sdk] = head.both(S3Settings::default()).await;
    let one = direct.head(&key("a")).await.unwrap();
    let asked = meaning(head.take());
    assert_eq!(one, sdk.head(&key("a")).await.unwrap());
    assert_eq!(asked, meaning(head.take()));
}

/// A server whose objects all have four bytes, this ETag, and the stamp that was written last.
async fn stamped(etag: &str) -> Recorder {
    let (etag, stamp) = (etag.to_owned(), Mutex::new(String::new()));
    Recorder::by(move |seen| {
        let mut stamp = stamp.lock();
        if let Some(written) = seen.headers.get("x-amz-meta-forebay-stamp") {
            stamp.clone_from(written);
        }
        let (length, body) = match seen.method.as_str() {
            "PUT" => (0, ""),
            "HEAD" => (4, ""),
            _ => (4, "body"),
        };
        let headers = format!("ETag: \"{etag}\"\r\nx-amz-meta-forebay-stamp: {stamp}\r\nx-amz-request-id: 1\r\n");
        format!("HTTP/1.1 200 X\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
    })
    .await
}

/// As `aws s3 cp` and `aws s3 mv` copy it within the under store.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_somebody_copied_to_another_key_is_theirs() {
    let server = stamped("remote-1").await;
    for store in server.both(S3Settings::default()).await {
        let upload = upload(described(4), &Bytes::from_static(b"body"), Condition::Always);
        store.put(&key("a"), upload).await.unwrap();
        for (name, generation, etag) in [("a", Some(Generation(7)), "e"), ("b", None, "remote-1")] {
            let head = store.head(&key(name)).await.unwrap();
            let read = store.get(&key(name), None, None).await.unwrap().object;
            for found in [head, read] {
                assert_eq!(found.stamp.map(|stamp| stamp.generation), generation, "{name}");
                assert_eq!(found.info.etag.as_str(), etag, "{name}");
            }
        }
    }
}

/// Some stores have ETags that only look like MD5s. Which bucket does is known to both lanes once one of them has
/// uploaded something.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_upload_shows_of_etags_is_known_to_both_lanes() {
    let server = stamped(&"d1".repeat(16)).await;
    let options = Recorder::options(S3Settings::default());
    let client = connect(Some(&server.endpoint), Some("eu-west-3"), &options).await.expect("a client");
    let store = |client: &S3Client, bucket: &'static str| {
        S3Store::new(Env::real(), client.clone(), bucket, "", S3Settings::default())
    };
    let (foreground, background) = (store(&client, "bucket"), store(&client.apart(), "bucket"));
    let info = ObjectInfo::new(4, ETag::new(&"0a".repeat(16)), 1_700_000_000_123);
    let upload = upload(info, &Bytes::from_static(b"body"), Condition::Always);
    foreground.put(&key("a"), upload).await.unwrap();
    let stamp = background.head(&key("a")).await.unwrap().stamp;
    assert_eq!(stamp.map(|stamp| stamp.generation), Some(Generation(7)));
    // Other buckets of the endpoint may have MD5s.
    assert_eq!(store(&client, "other").head(&key("a")).await.unwrap().stamp, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_uploads_have_shown_of_etags_is_known_after_a_restart() {
    let server = stamped(&"d1".repeat(16)).await;
    let [before, _] = server.both(S3Settings::default()).await;
    let info = ObjectInfo::new(4, ETag::new(&"0a".repeat(16)), 1_700_000_000_123);
    for name in ["a", "b"] {
        let upload = upload(info.clone(), &Bytes::from_static(b"body"), Condition::Always);
        before.put(&key(name), upload).await.unwrap();
    }
    let [after, _] = server.both(S3Settings::default()).await;
    let stamp = after.head(&key("b")).await.unwrap().stamp;
    assert_eq!(stamp.map(|stamp| stamp.generation), Some(Generation(7)));
}

/// Only for a whole object: the checksum says nothing about a part of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_body_is_noticed_at_its_end() {
    let damaged = Recorder::by(|seen| ranged(seen).replace("abcd", "abxd")).await;
    for store in damaged.both(S3Settings::default()).await {
        let whole = store.get(&key("a"), None, None).await.unwrap().stream.try_collect::<Vec<_>>().await;
        assert_eq!(whole.unwrap_err().kind, ErrorKind::Unavailable);
        let piece = store.get(&key("a"), Some(ByteRange::new(3, 7)), None).await.unwrap();
        assert_eq!(piece.stream.try_collect::<Vec<_>>().await.unwrap().concat(), b"abxd");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checksums_of_2026_that_the_store_has_are_told_and_compared() {
    let whole = whole();
    let lines: Vec<&str> = whole.split_inclusive("\r\n").filter(|line| !line.contains("forebay-stamp")).collect();
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.is_of_2026()) {
        let mut hasher = forebay_ufs::Hasher::new(algorithm);
        hasher.update(b"abcd");
        let checksum = hasher.finish();
        let told = format!("{}: {}", algorithm.header(), checksum.base64());
        let answer = lines.concat().replace("x-amz-checksum-crc32c: ksgKMQ==", &told);
        let found = Recorder::answering(answer.clone()).await;
        for store in found.both(S3Settings::default()).await {
            let body = store.get(&key("a"), None, None).await.unwrap();
            assert_eq!(body.object.info.checksums.values, std::slice::from_ref(&checksum));
            assert_eq!(body.stream.try_collect::<Vec<_>>().await.unwrap().concat(), b"abcd");
        }
        let damaged = Recorder::answering(answer.replace("abcd", "abxd")).await;
        let [direct, _] = damaged.both(S3Settings::default()).await;
        let whole = direct.get(&key("a"), None, None).await.unwrap().stream.try_collect::<Vec<_>>().await;
        assert_eq!(whole.unwrap_err().kind, ErrorKind::Unavailable, "{algorithm:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_ask_for_the_same() {
    let server = Recorder::answering(CREATED).await;
    let stores = server.both(S3Settings::default()).await;
    let etag = ETag::new("before");
    for size in [0, 1, 10_000, 200_000, 1 << 20] {
        let body: Bytes = (0..size).map(|index: u32| (index / 7) as u8).collect::<Vec<_>>().into();
        let known = [Algorithm::Crc32, Algorithm::Crc64Nvme, Algorithm::Sha256, Algorithm::Xxhash3].map(Some);
        for algorithm in known.into_iter().chain([None]) {
            for condition in [Condition::Always, Condition::Absent, Condition::Matches(etag.clone())] {
                let mut info = described(u64::from(size));
                if let Some(algorithm) = algorithm {
                    let checksum = Checksum { algorithm, value: vec![1; algorithm.bytes()] };
                    info.checksums = Checksums { kind: ChecksumKind::FullObject, values: vec![checksum] };
                }
                let mut asked = Vec::new();
                for store in &stores {
                    let stored = store.put(&key("k/\u{fc} x"), upload(info.clone(), &body, condition.clone())).await;
                    assert_eq!(stored.unwrap().remote_etag, ETag::new("e"));
                    asked.push(meaning(server.take()));
                }
                let [direct, mut sdk] = <[Seen; 2]>::try_from(asked).unwrap();
                assert_eq!(direct.body, body);
                // Of an algorithm that a store may not know it is told nothing but in the stamp.
                if algorithm.is_none_or(Algorithm::is_of_2026) {
                    unframe(&mut sdk);
                    assert!(direct.headers.contains_key("x-amz-checksum-crc32"));
                    assert!(!direct.headers.keys().any(|name| name.starts_with("x-amz-checksum-xxhash")));
                }
                assert_eq!(direct, sdk, "{size} bytes, {algorithm:?}, {condition:?}");
            }
        }
    }
}

/// Replaces a body in chunks, with its checksum at the end, with the body that it encodes.
fn unframe(seen: &mut Seen) {
    let trailer = seen.headers.remove("x-amz-trailer").expect("a checksum comes behind the body");
    let text = seen
        .body
        .windows(trailer.len())
        .rposition(|window| window == trailer.as_bytes())
        .expect("what the test expects");
    let value = String::from_utf8(seen.body[text + trailer.len() + 1..].to_vec()).expect("what the test expects");
    seen.headers.insert(trailer, value.lines().next().expect("what the test expects").to_owned());
    let length = seen.headers.remove("x-amz-decoded-content-length").expect("what the test expects");
    let mut body = Vec::new();
    let mut rest = seen.body.as_slice();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n").expect("what the test expects");
        let size = usize::from_str_radix(
            std::str::from_utf8(&rest[..end])
                .expect("what the test expects")
                .split(';')
                .next()
                .expect("what the test expects"),
            16,
        )
        .expect("what the test expects");
        if size == 0 {
            break;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
    seen.body = body;
    seen.headers.insert("content-length".to_owned(), length);
    let encoding = seen.headers.remove("content-encoding").expect("what the test expects");
    let kept: Vec<_> = encoding.split(',').map(str::trim).filter(|name| *name != "aws-chunked").collect();
    seen.headers.insert("content-encoding".to_owned(), kept.join(","));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_mean_the_same() {
    let document = |code: &str| {
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>why &quot;not&quot;</Message></Error>")
    };
    let answers = [
        (403, document("AccessDenied")),
        (404, document("NoSuchKey")),
        (404, document("NoSuchBucket")),
        (404, String::new()),
        (409, document("ConditionalRequestConflict")),
        (412, document("PreconditionFailed")),
        (416, document("InvalidRange")),
        (429, "busy".to_owned()),
        (400, document("XAmzContentSHA256Mismatch")),
        (400, document("RequestTimeout")),
        (500, document("InternalError")),
        (501, document("NotImplemented")),
        (503, document("SlowDown")),
        (404, "<html>no such page</html>".to_owned()),
        (503, "<html>no server</html>".to_owned()),
        (301, document("PermanentRedirect")),
        (200, "not counted".to_owned()),
    ];
    let body = Bytes::from_static(b"body");
    for (status, document) in answers {
        // The last answer breaks off in the head.
        let answer = match status {
            200 => Vec::new(),
            _ => format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{document}", document.len()).into_bytes(),
        };
        let server = Recorder::answering(answer).await;
        let mut kinds = Vec::new();
        for store in server.both(S3Settings::default()).await {
            let put = store.put(&key("a"), upload(described(4), &body, Condition::Always)).await.unwrap_err();
            let get = store.get(&key("a"), None, None).await.err().unwrap();
            let delete = store.delete(&key("a"), Condition::Always).await.err();
            if status == 403 {
                assert!(put.context.contains("AccessDenied why \"not\""), "{put}");
            }
            kinds.push((put.kind, get.kind, delete.map(|error| error.kind)));
        }
        assert_eq!(kinds[0], kinds[1], "{status} {document}");
    }
}

/// A gateway answers what S3 would not: nothing is believed that S3 has not said.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_gone_only_when_s3_says_so() {
    let page = "<html>nobody is here</html>";
    let no_page = "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n";
    for gateway in [format!("HTTP/1.1 404 X\r\nContent-Length: {}\r\n\r\n{page}", page.len()), no_page.to_owned()] {
        // A HEAD has no body, whatever the length says.
        let head = gateway.trim_end_matches(page).to_owned();
        let server = Recorder::by_method(&[("HEAD", &head), ("GET", &gateway)]).await;
        for store in server.both(S3Settings::default()).await {
            let error = store.head(&key("a")).await.expect_err("S3 has not answered");
            assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        }
    }
    let missing = "<Error><Code>NoSuchKey</Code></Error>";
    let gone = format!("HTTP/1.1 404 X\r\nContent-Length: {}\r\n\r\n{missing}", missing.len());
    let head = gone.trim_end_matches(missing);
    let first = first_byte();
    for (get, kind) in [
        (gone.as_str(), ErrorKind::NotFound),
        (first.as_str(), ErrorKind::Unavailable),
        ("HTTP/1.1 416 X\r\nContent-Length: 0\r\n\r\n", ErrorKind::Unavailable),
    ] {
        let server = Recorder::by_method(&[("HEAD", head), ("GET", get)]).await;
        for store in server.both(S3Settings::default()).await {
            let error = store.head(&key("a")).await.expect_err("HEAD finds nothing");
            assert_eq!(error.kind, kind, "{get}: {error}");
        }
    }
    // The object is written between the two.
    let (absent, present) = (head.to_owned(), FOUND.strip_suffix("abcd").expect("a body"));
    let asked = AtomicUsize::new(0);
    let server = Recorder::by(move |seen| match seen.method.as_str() {
        "HEAD" if asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => absent.clone(),
        "HEAD" => present.to_owned(),
        _ => first.clone(),
    })
    .await;
    for store in server.both(S3Settings::default()).await {
        assert_eq!(store.head(&key("a")).await.expect("it is there").info.size, 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_is_done_only_when_s3_says_so() {
    let [page, empty] = ["<html>signed out</html>", ""]
        .map(|body| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nx-amz-request-id: 1\r\n\r\n{body}", body.len()));
    for (answer, is_done) in [(page.as_str(), false), (empty.as_str(), true), (DELETED, true)] {
        let server = Recorder::answering(answer).await;
        let [direct, _] = server.both(S3Settings::default()).await;
        let deleted = direct.delete(&key("a"), Condition::Always).await;
        assert_eq!(deleted.map_err(|error| error.kind), if is_done { Ok(()) } else { Err(ErrorKind::Ambiguous) });
    }
}

/// All requests get a page, as from a gateway whose server is under repair.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_looks_like_a_success_is_none() {
    let page = |headers: &str, length: usize| {
        format!("HTTP/1.1 200 OK\r\nETag: \"page\"\r\nContent-Length: {length}\r\n{headers}\r\n<html>down</html>")
    };
    let html = "Content-Type: text/html; charset=utf-8\r\n";
    for answer in [page(html, 17), page(html, 4000), page("", 17), page("Content-Type: application/xml\r\n", 4000)] {
        let server = Recorder::answering(answer.clone()).await;
        let [direct, _] = server.both(S3Settings::default()).await;
        let put = upload(described(4), &Bytes::from_static(b"body"), Condition::Always);
        let error = direct.put(&key("a"), put).await.expect_err("S3 sends no body");
        assert_eq!(error.kind, ErrorKind::Ambiguous, "{answer}");
    }
    let answer = move |seen: &Seen, headers: &str| match seen.method.as_str() {
        "HEAD" => page(headers, 17).replace("<html>down</html>", ""),
        _ => page(headers, 17),
    };
    let server = Recorder::by(move |seen| answer(seen, html)).await;
    let [direct, _] = server.both(S3Settings::default()).await;
    assert_eq!(direct.head(&key("a")).await.expect_err("a page").kind, ErrorKind::Unavailable);
    assert_eq!(direct.get(&key("a"), None, None).await.err().expect("a page").kind, ErrorKind::Unavailable);
    let server = Recorder::by(move |seen| answer(seen, &format!("{html}x-amz-request-id: 1\r\n"))).await;
    let [direct, _] = server.both(S3Settings::default()).await;
    assert_eq!(direct.head(&key("a")).await.expect("an object that is a page").info.size, 17);
}

/// S3 wants the checksums of the parts again when an upload is completed, and a proxy may have hidden them from us.
#[tokio::test(flavor = "multi_thread")]
async fn checksums_of_parts_are_our_own_where_nobody_tells_them() {
    let answer = |status: &str, headers: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nx-amz-request-id: 1\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
    };
    let part = Bytes::from(vec![b'p'; 5 << 20]);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &part) as u32;
    let sum = Checksum { algorithm: Algorithm::Crc32, value: sum.to_be_bytes().to_vec() }.base64();
    let expected = format!("<ChecksumCRC32>{sum}</ChecksumCRC32>");
    let is_stripped = Arc::new(AtomicBool::new(false));
    let stripped = Arc::clone(&is_stripped);
    let server = Recorder::by(move |seen| {
        let answer = match seen.method.as_str() {
            "POST" if seen.path.contains("uploads") => answer(
                "200 X",
                "",
                "<InitiateMultipartUploadResult><UploadId>one</UploadId></InitiateMultipartUploadResult>",
            ),
            "POST"
                if String::from_utf8_lossy(&seen.body).matches(&expected).count() == 2
                    && !String::from_utf8_lossy(&seen.body).contains("W/&quot;") =>
            {
                answer(
                    "200 X",
                    "",
                    "<CompleteMultipartUploadResult><ETag>\"two\"</ETag></CompleteMultipartUploadResult>",
                )
            }
            "POST" => answer("400 X", "", "<Error><Code>InvalidPart</Code></Error>"),
            "HEAD" => concat!(
                "HTTP/1.1 200 X\r\nx-amz-request-id: 1\r\nContent-Length: 10485760\r\nETag: \"two\"\r\n",
                "x-amz-meta-forebay-stamp: 1;g=7;s=10485760;t=1;e=e;c=F:\r\n\r\n"
            )
            .to_owned(),
            _ => answer("200 X", "ETag: W/\"part\"\r\n", ""),
        };
        if stripped.load(Ordering::SeqCst) { answer.replace("x-amz-request-id: 1\r\n", "") } else { answer }
    })
    .await;
    let settings =
        S3Settings { multipart_threshold: ByteSize(1), part_size: ByteSize(5 << 20), ..S3Settings::default() };
    let [store, _] = server.both(settings).await;
    let body = Bytes::from([part.as_ref(), part.as_ref()].concat());
    let put = async || {
        let upload = upload(described(body.len() as u64), &body, Condition::Always);
        store.put(&key("a"), upload).await.map(|stored| stored.remote_etag).map_err(|error| error.to_string())
    };
    assert_eq!(put().await, Ok(ETag::new("two")));
    // It does not matter either when that proxy also begins to remove the ids of requests.
    is_stripped.store(true, Ordering::SeqCst);
    assert_eq!(put().await, Ok(ETag::new("two")));
}

/// As when the network drops the connection while S3 puts the parts together.
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_completion_is_not_awaited_once_the_object_is_there() {
    let stamp = Mutex::new(String::new());
    let server = Recorder::by(move |seen| {
        let mut stamp = stamp.lock();
        if let Some(written) = seen.headers.get("x-amz-meta-forebay-stamp") {
            stamp.clone_from(written);
        }
        let begun = "<InitiateMultipartUploadResult><UploadId>one</UploadId></InitiateMultipartUploadResult>";
        let (length, headers, body) = match seen.method.as_str() {
            "POST" if seen.path.contains("uploads") => (begun.len(), String::new(), begun),
            // The beginning of an answer, and no more.
            "POST" => return "HTTP/1.1 200 X\r\n".to_owned(),
            "HEAD" => (4, format!("ETag: \"e-1\"\r\nx-amz-meta-forebay-stamp: {stamp}\r\n"), ""),
            _ => (0, "ETag: \"part\"\r\n".to_owned(), ""),
        };
        format!("HTTP/1.1 200 X\r\nx-amz-request-id: 1\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
    })
    .await;
    let settings = S3Settings { multipart_threshold: ByteSize(1), ..S3Settings::default() };
    let options = Recorder::options(settings.clone());
    let client = connect(Some(&server.endpoint), Some("eu-west-3"), &options).await.expect("a client");
    let (env, clock) = Env::simulated(7);
    // The time limits of the SDK go by another clock.
    let store = S3Store::new(env, client, "bucket", "", settings).through_sdk();
    let name = key("a");
    let mut put = store.put(&name, upload(described(4), &Bytes::from_static(b"body"), Condition::Always));
    let stored = loop {
        tokio::select! {
            biased;
            stored = &mut put => break stored,
            () = tokio::task::yield_now() => clock.advance(Duration::from_secs(3600)),
        }
    };
    assert_eq!(stored.expect("it is there").remote_etag, ETag::new("e-1"));
}

/// Yields nothing, and tells when it is asked.
struct Silent(Arc<Notify>);

impl UploadSource for Silent {
    fn stream(&self, _range: ByteRange) -> ByteStream {
        self.0.notify_one();
        futures::stream::pending().boxed()
    }
}

/// As at the end of a worker's lease.
#[tokio::test(flavor = "multi_thread")]
async fn parts_of_an_upload_that_was_given_up_are_swept() {
    let server = Recorder::by(|seen| {
        let document = match seen.method.as_str() {
            "DELETE" => return DELETED.to_owned(),
            "POST" => "<InitiateMultipartUploadResult><UploadId>one</UploadId></InitiateMultipartUploadResult>",
            _ => concat!(
                "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><Upload><Key>a prefix/a</Key>",
                "<UploadId>one</UploadId><Initiated>2015-10-21T07:28:00.000Z</Initiated></Upload>",
                "</ListMultipartUploadsResult>"
            ),
        };
        format!("HTTP/1.1 200 X\r\nx-amz-request-id: 1\r\nContent-Length: {}\r\n\r\n{document}", document.len())
    })
    .await;
    let settings = S3Settings { multipart_threshold: ByteSize(1), sweep_uploads: true, ..S3Settings::default() };
    let [store, _] = server.both(settings).await;
    let (name, asked) = (key("a"), Arc::new(Notify::new()));
    let put = upload(described(4), &Bytes::new(), Condition::Always);
    let put = Upload { source: Arc::new(Silent(Arc::clone(&asked))), ..put };
    tokio::select! {
        _ = store.put(&name, put) => panic!("its source yields nothing"),
        () = asked.notified() => {}
    }
    assert_eq!(store.sweep(Duration::ZERO, &|_| true).await.expect("a sweep"), 1);
}

/// A gateway to a file system would resolve the key, and reach what the prefix and the grants of a key do not cover.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_climbs_is_never_sent() {
    let server = Recorder::answering(FOUND).await;
    for store in server.both(S3Settings::default()).await {
        for name in ["n/../a", "n/b/../../a", "n/..", "../a", ".."] {
            let name = key(name);
            assert_eq!(store.check_key(&name).unwrap_err().kind, ErrorKind::Invalid, "{name}");
            let refused = [
                store.head(&name).await.map(drop),
                store.get(&name, None, None).await.map(drop),
                store.put(&name, upload(described(4), &Bytes::from_static(b"body"), Condition::Always)).await.map(drop),
                store.delete(&name, Condition::Always).await,
                store.tags(&name).await.map(drop),
                store.set_tags(&name, &[].into()).await,
            ];
            assert!(refused.into_iter().all(|one| one.unwrap_err().kind == ErrorKind::InvalidName), "{name}");
        }
        assert!(server.seen.lock().is_empty());
        assert!(store.check_key(&key("n/..a/b..")).is_ok());
    }
}

/// Something between us and S3 has mixed up the answers.
#[tokio::test(flavor = "multi_thread")]
async fn the_checksum_of_other_bytes_is_the_answer_to_another_upload() {
    let told = |checksum: &str| {
        format!("HTTP/1.1 200 X\r\nETag: \"e\"\r\nContent-Length: 0\r\nx-amz-request-id: 1\r\n{checksum}\r\n\r\n")
    };
    for (checksum, is_ours) in [
        ("x-amz-checksum-crc32: 26gLsg==", true),
        ("x-amz-checksum-crc32: AAAAAA==", false),
        ("x-amz-checksum-crc64nvme: AAAAAAAAAAA=", false),
        ("x-amz-checksum-sha256: AAAA", false),
    ] {
        let server = Recorder::answering(told(checksum)).await;
        let [direct, _] = server.both(S3Settings::default()).await;
        let put = upload(described(4), &Bytes::from_static(b"body"), Condition::Always);
        let put = direct.put(&key("a"), put).await.map(drop).map_err(|error| error.kind);
        assert_eq!(put, if is_ours { Ok(()) } else { Err(ErrorKind::Ambiguous) }, "{checksum}");
    }
}

/// No page of a gateway says anything about a condition that nobody set.
#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_was_not_set_cannot_fail() {
    for status in [405, 412, 413, 416] {
        let server = Recorder::answering(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")).await;
        for store in server.both(S3Settings::default()).await {
            let listed = store.list(&ListRequest { limit: 10, ..ListRequest::default() }).await;
            assert_eq!(listed.map(drop).map_err(|error| error.kind), Err(ErrorKind::Unavailable), "{status}");
            let read = store.get(&key("a"), None, None).await.map(drop).map_err(|error| error.kind);
            assert_eq!(read, Err(ErrorKind::Unavailable), "{status}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_fails_only_when_s3_says_so() {
    for (status, said) in [(412, ErrorKind::Precondition), (409, ErrorKind::Conflict), (501, ErrorKind::Unsupported)] {
        for (body, kind) in [("<html>no</html>", ErrorKind::Ambiguous), ("<Error><Code>Any</Code></Error>", said)] {
            let length = body.len();
            let server =
                Recorder::answering(format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}")).await;
            for store in server.both(S3Settings::default()).await {
                let upload = upload(described(4), &Bytes::from_static(b"body"), Condition::Always);
                assert_eq!(store.put(&key("a"), upload).await.expect_err("a refusal").kind, kind, "{status} {body}");
            }
        }
    }
    let server = Recorder::answering("HTTP/1.1 304 X\r\n\r\n").await;
    for store in server.both(S3Settings::default()).await {
        assert_eq!(store.get(&key("a"), None, None).await.err().expect("no answer").kind, ErrorKind::Unavailable);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_tells_why_a_head_was_refused() {
    let server = Recorder::by(|seen| {
        let document = match seen.method.as_str() {
            "HEAD" => "",
            _ => "<Error><Code>InvalidAccessKeyId</Code></Error>",
        };
        format!("HTTP/1.1 403 X\r\nContent-Length: {}\r\n\r\n{document}", document.len())
    })
    .await;
    let settings = S3Settings::default();
    for store in server.both(settings.clone()).await {
        assert_eq!(store.head(&key("a")).await.expect_err("a refusal").kind, ErrorKind::Credentials);
    }
    let options = Recorder::options(settings.clone());
    let client = connect(Some(&server.endpoint), None, &options).await.expect("what the test expects");
    let root = S3EndpointRoot::new(Env::real(), client, settings);
    let bucket = BucketName::new("bucket").expect("a name");
    assert_eq!(root.open(&bucket).await.err().expect("a refusal").kind, ErrorKind::Credentials);
}

/// versitygw shows files like this that others have put into its directory. It says nothing about the server's health.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_without_a_tag_is_told_as_such() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nx-amz-request-id: 1\r\n\r\n";
    let server =
        Recorder::by(move |seen| if seen.method == "HEAD" { answer.to_owned() } else { format!("{answer}body") }).await;
    let [direct, _] = server.both(S3Settings::default()).await;
    assert_eq!(direct.head(&key("a")).await.expect_err("no tag").kind, ErrorKind::Unsupported);
    assert_eq!(direct.get(&key("a"), None, None).await.err().expect("no tag").kind, ErrorKind::Unsupported);
}

/// Something in front of the server may refuse a single request.
#[tokio::test(flavor = "multi_thread")]
async fn conditions_are_given_up_only_where_the_same_write_succeeds_without_and_not_for_ever() {
    let refused = "HTTP/1.1 501 X\r\nContent-Length: 0\r\n\r\n";
    let head = FOUND.strip_suffix("abcd").expect("a body");
    let matching = || upload(described(4), &Bytes::from_static(b"body"), Condition::Matches(ETag::new("remote")));
    let conditional = |seen: &Seen| seen.method == "PUT" && seen.headers.contains_key("if-match");
    for (plain, kind) in [(refused, Some(ErrorKind::Unsupported)), (CREATED, None)] {
        let server = Recorder::by(move |seen| match seen.method.as_str() {
            "HEAD" => head.to_owned(),
            _ if conditional(seen) => refused.to_owned(),
            _ => plain.to_owned(),
        })
        .await;
        let (env, clock) = Env::simulated(1);
        let options = Recorder::options(S3Settings::default());
        let client = connect(Some(&server.endpoint), Some("eu-west-3"), &options).await.expect("what the test expects");
        let store = S3Store::new(env, client, "bucket", "", S3Settings::default());
        let tried = || server.seen.lock().iter().filter(|seen| conditional(seen)).count();
        for _ in 0..2 {
            let error = store.put(&key("a"), matching()).await.err();
            assert_eq!(error.map(|error| error.kind), kind);
        }
        let before = if kind.is_some() { 2 } else { 1 };
        assert_eq!(tried(), before);
        clock.advance(Duration::from_secs(3600));
        let _ = store.put(&key("a"), matching()).await;
        assert_eq!(tried(), before + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_of_another_size_is_not_sent() {
    let server = Recorder::answering(CREATED).await;
    let [direct, _] = server.both(S3Settings::default()).await;
    let longer = upload(described(5), &Bytes::from_static(b"body"), Condition::Always);
    assert_eq!(direct.put(&key("a"), longer).await.unwrap_err().kind, ErrorKind::Corrupt);
    assert!(server.seen.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let silent = Recorder { endpoint, seen: Arc::default(), connections: Arc::default() };
    let request_timeout = Period(Duration::from_millis(100));
    let settings = S3Settings { request_timeout, upload_rate_min: ByteSize(1 << 20), ..S3Settings::default() };
    let [direct, _] = silent.both(settings).await;
    let body = Bytes::from_static(b"body");
    let put = direct.put(&key("a"), upload(described(4), &body, Condition::Always)).await.unwrap_err();
    assert_eq!(put.kind, ErrorKind::Ambiguous, "{put}");
    assert_eq!(direct.head(&key("a")).await.unwrap_err().kind, ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_behind_an_answer_is_not_waited_for() {
    let answer = "HTTP/1.1 200 OK\r\nETag: \"tag\"\r\nContent-Length: 1000\r\n\r\nnothing follows";
    let server = Recorder::answering(answer).await;
    let [direct, _] = server.both(S3Settings::default()).await;
    let clock = Env::real().clock;
    let requests = async {
        let body = Bytes::from_static(b"body");
        let put = direct.put(&key("a"), upload(described(4), &body, Condition::Always)).await;
        // S3 sends no body after a write or a delete, so this answer is not from S3.
        assert_eq!(put.expect_err("an answer of somebody else").kind, ErrorKind::Ambiguous);
        let delete = direct.delete(&key("a"), Condition::Always).await;
        assert_eq!(delete.expect_err("an answer of somebody else").kind, ErrorKind::Ambiguous);
    };
    tokio::select! {
        () = requests => {}
        () = clock.sleep(Duration::from_secs(30)) => panic!("the rest of an answer is waited for"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_for_its_time_is_sent_again_in_the_time_of_the_server() {
    let refusal = "HTTP/1.1 403 Forbidden\r\nDate: Thu, 01 Jan 2037 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n";
    let (key, body) = (key("object"), Bytes::from_static(b"body"));
    for (number, way) in (0..5).flat_map(|number| [(number, 0), (number, 1)]) {
        let recorder = Recorder::answering(refusal).await;
        let store = &recorder.both(S3Settings::default()).await[way];
        for expected in [vec![false, true], vec![true]] {
            let refused = match number {
                0 => store.head(&key).await.map(drop),
                1 => store.get(&key, None, None).await.map(drop),
                2 => store.put(&key, upload(described(4), &body, Condition::Always)).await.map(drop),
                3 => store.delete(&key, Condition::Always).await,
                _ => store.list(&ListRequest { limit: 1, ..ListRequest::default() }).await.map(drop),
            };
            assert_eq!(refused.expect_err("a refusal").kind, ErrorKind::Denied);
            let seen = std::mem::take(&mut *recorder.seen.lock());
            let theirs: Vec<_> =
                seen.iter().map(|seen| seen.headers["x-amz-date"].starts_with("20370101T000")).collect();
            // When a HEAD is refused, a GET follows to find out why.
            let expected = if number == 0 { [expected, vec![true]].concat() } else { expected };
            assert_eq!(theirs, expected, "request {number}");
        }
    }
}

#[tokio::test]
async fn what_is_urgent_shares_no_connection_with_what_is_not() {
    let missing = "<Error><Code>NoSuchKey</Code></Error>";
    let head = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n", missing.len());
    let server = Recorder::by_method(&[("HEAD", &head), ("GET", &format!("{head}{missing}"))]).await;
    for place in ["s3://bucket", "s3://"] {
        server.connections.store(0, Ordering::SeqCst);
        let url = format!("{place}?endpoint={}&region=eu-west-3", server.endpoint).parse().expect("a URL");
        let options = Recorder::options(S3Settings::default());
        let lanes: [Arc<dyn UnderStore>; 2] = if place == "s3://" {
            let lanes = open_root(&Env::real(), &url, &options).await.expect("an endpoint");
            let bucket = BucketName::new("bucket").expect("a name");
            [lanes.foreground, lanes.background].map(|root| root.assume(&bucket))
        } else {
            let lanes = open_mount(&Env::real(), &url, &options).await.expect("a bucket");
            [lanes.foreground, lanes.background]
        };
        for _ in 0..2 {
            for lane in &lanes {
                let error = lane.head(&key("missing")).await.expect_err("it is missing");
                assert_eq!(error.kind, ErrorKind::NotFound);
            }
        }
        assert_eq!(server.connections.load(Ordering::SeqCst), 2, "{place}");
    }
}
