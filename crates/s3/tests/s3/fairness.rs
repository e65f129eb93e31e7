//! A crowd of one access key, and somebody else beside it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_cache::Access;
use forebay_env::Requester;
use forebay_s3::{ForwardBody, Home, Homes, RequestBody};
use forebay_types::ObjectPath;
use http_body_util::{BodyExt, Full};

use crate::support::sign::Request;
use crate::support::under_store::{SILENT, THEIRS, THEIRS_BYTES};
use crate::support::{BUCKET, Endpoint, GUEST_KEY, GUEST_SECRET, ROOT_KEY, start, start_among, start_with};
use aws_sdk_s3::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PLACES: usize = 32;
/// What somebody else may have to wait: far less than it takes until a body that does not move is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Another worker is the home of the keys that begin with `away/`, and does not answer.
struct Silent;

#[async_trait]
impl Homes for Silent {
    fn home(&self, path: &ObjectPath) -> Home {
        if path.key.as_str().starts_with("away/") { Home::At("other".into()) } else { Home::Here }
    }

    fn s3_address(&self, _worker: &str) -> Option<String> {
        None
    }

    async fn reads_here(&self, _path: &ObjectPath) -> bool {
        false
    }

    fn was_read(&self, _path: &ObjectPath) {}

    async fn settled(&self, _path: &ObjectPath, _access: Access, _is_passed_on: bool) {}

    async fn forward(
        &self,
        _worker: &str,
        _path: &ObjectPath,
        _request: http::Request<ForwardBody>,
        _client: &forebay_s3::Client,
    ) -> io::Result<http::Response<ForwardBody>> {
        std::future::pending().await
    }
}

async fn endpoint(homes: Option<Arc<dyn Homes>>) -> Endpoint {
    let endpoint = start_among(homes, |settings| {
        // All clients here come from one address, as behind a proxy.
        (settings.connections_max, settings.connections_per_address_max) = (PLACES, 10 * PLACES);
    })
    .await;
    let put = |key: &str, size: usize| endpoint.root().put_object().bucket(BUCKET).key(key).body(vec![7; size].into());
    put("shared/small", 100).send().await.expect("put");
    put("large", 64 << 20).send().await.expect("put");
    endpoint
}

/// A connection that holds on to its request as long as it is let.
async fn hold(endpoint: &Endpoint, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(endpoint.address).await.expect("connection");
    stream.write_all(request).await.expect("sent");
    stream
}

/// Requests that hold on to their connections, of which the last ones are refused.
async fn crowd(endpoint: &Endpoint, request: &[u8]) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..2 * PLACES {
        held.push(hold(endpoint, request).await);
    }
    let refused = timeout(PATIENCE, answer(held.last_mut().expect("many"))).await.expect("in time");
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    for part in ["<Code>SlowDown</Code>", "retry-after: 1\r\n", "connection: close\r\n"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    held
}

async fn answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn reads(client: &Client) {
    let read = client.get_object().bucket(BUCKET).key("shared/small").send();
    let read = timeout(PATIENCE, read).await.expect("in time").expect("read");
    assert_eq!(read.body.collect().await.expect("body").into_bytes().len(), 100);
}

/// Uploads whose bodies do not come, and downloads that nobody reads.
#[tokio::test]
async fn one_key_that_holds_on_to_connections_leaves_some_to_others() {
    let upload = Request::new("PUT", "/bucket/upload").header("content-length", "1000000");
    for request in [upload, Request::new("GET", "/bucket/large")] {
        let endpoint = endpoint(None).await;
        let bytes = request.unsigned_header("connection", "keep-alive").sign(endpoint.address).bytes;
        let _held = crowd(&endpoint, &bytes).await;
        reads(&endpoint.guest()).await;
        let guest =
            Request { key: GUEST_KEY.into(), secret: GUEST_SECRET.into(), ..Request::new("PUT", "/bucket/own") };
        let mut write =
            hold(&endpoint, &guest.body("own").header("connection", "close").sign(endpoint.address).bytes).await;
        assert!(timeout(PATIENCE, answer(&mut write)).await.expect("in time").starts_with("HTTP/1.1 200 "));
    }
}

/// The home of their key would verify who has sent them, and answers after their bodies.
#[tokio::test]
async fn uploads_that_only_another_worker_can_verify_leave_connections_to_others() {
    let upload = Request::new("PUT", "/bucket/away/upload").header("content-length", "1000000");
    let upload = upload.unsigned_header("connection", "keep-alive");
    for is_presigned in [true, false] {
        let endpoint = endpoint(Some(Arc::new(Silent))).await;
        let bytes = match is_presigned {
            true => upload.presign(endpoint.address, "600"),
            false => upload.anonymous(endpoint.address),
        };
        let _held = crowd(&endpoint, &bytes).await;
        reads(&endpoint.guest()).await;
    }
}

/// The request as another worker passes it on.
fn passed_on(request: &Request, endpoint: &Endpoint) -> http::Request<RequestBody> {
    let bytes = request.sign(endpoint.address).bytes;
    let text = String::from_utf8(bytes).expect("it has no body");
    let mut lines = text.lines();
    let mut first = lines.next().expect("a line").split(' ');
    let (method, target) = (first.next().expect("a method"), first.next().expect("a target"));
    let request = http::Request::builder().method(method).uri(target);
    let headers = lines.filter_map(|line| line.split_once(": "));
    let request = headers.fold(request, |request, (name, value)| request.header(name, value));
    request.body(RequestBody::Right(Full::default())).expect("a request")
}

async fn forwarded(endpoint: &Endpoint, request: &Request) -> http::Response<ForwardBody> {
    let client = forebay_s3::Client { ip: None, is_encrypted: false, tls: None };
    endpoint.service.forwarded(passed_on(request, endpoint), client).await.expect("an answer")
}

/// What they began must not stay half done, so they continue.
#[tokio::test]
async fn copies_that_other_workers_have_passed_on_count_when_their_clients_have_gone() {
    let endpoint = start_with(|settings| settings.connections_max = PLACES).await;
    let mut begun = 0;
    let refused = loop {
        assert!(begun < PLACES, "no copy is refused");
        let (target, source) = (format!("/bucket/copy-{begun}"), format!("/bucket/{SILENT}{begun}"));
        let copy = Request::new("PUT", &target).header("x-amz-copy-source", &source);
        let asked = endpoint.asked.lock().len();
        let is_asked = async {
            while endpoint.asked.lock().len() == asked {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            refused = forwarded(&endpoint, &copy) => break refused,
            () = is_asked => begun += 1,
        }
    };
    assert_eq!((refused.status().as_u16(), begun), (503, PLACES - 2));
    let refused = refused.into_body().collect().await.expect("a body").to_bytes();
    assert!(refused.windows(8).any(|text| text == b"SlowDown"), "{refused:?}");
    let read = Request::new("GET", "/bucket/shared/absent");
    let guest = Request { key: GUEST_KEY.into(), secret: GUEST_SECRET.into(), ..read };
    assert_eq!(forwarded(&endpoint, &guest).await.status(), 404);
}

/// Places at a directory under store are shared by them.
#[tokio::test]
async fn what_a_request_asks_of_the_under_store_is_asked_for_whom_it_is() {
    let endpoint = start().await;
    for (client, access_key) in [(endpoint.root(), ROOT_KEY), (endpoint.guest(), GUEST_KEY)] {
        let check = |operation: &str| {
            let asked = std::mem::take(&mut *endpoint.asked.lock());
            assert!(!asked.is_empty(), "{operation}");
            assert!(asked.iter().all(|requester| *requester == Requester::named(access_key)), "{operation}: {asked:?}");
        };
        // Each of its own: what another one has asked for is kept.
        let absent = |operation: &str| format!("shared/{access_key}/{operation}");
        client.list_objects_v2().bucket(BUCKET).prefix(absent("list")).send().await.expect("a listing");
        check("a listing");
        // The first goes the short way.
        client.get_object().bucket(BUCKET).key(absent("get")).send().await.expect_err("absent");
        check("GET");
        client.head_object().bucket(BUCKET).key(absent("head")).send().await.expect_err("absent");
        check("HEAD");
        let version = client.get_object().bucket(BUCKET).key(absent("version")).version_id("other").send().await;
        version.expect_err("there are no versions");
        check("a request that passes through");
        let body = client
            .get_object()
            .bucket(BUCKET)
            .key(format!("{THEIRS}{access_key}"))
            .send()
            .await
            .expect("a large object")
            .body;
        check("a large object");
        assert_eq!(body.collect().await.expect("its bytes").into_bytes().len() as u64, THEIRS_BYTES);
        check("a large object, while it is sent");
    }
}
