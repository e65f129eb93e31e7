//! A crowd of one access key, and somebody else beside it.

use std::time::Duration;

use forebay_env::Requester;

use crate::support::sign::Request;
use crate::support::under_store::{THEIRS, THEIRS_BYTES};
use crate::support::{BUCKET, Endpoint, GUEST_KEY, GUEST_SECRET, ROOT_KEY, start, start_with};
use aws_sdk_s3::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PLACES: usize = 32;
/// What somebody else may have to wait: far less than it takes until a body that does not move is given up.
const PATIENCE: Duration = Duration::from_secs(10);

async fn endpoint() -> Endpoint {
    let endpoint = start_with(|settings| {
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
        let endpoint = endpoint().await;
        let bytes = request.unsigned_header("connection", "keep-alive").sign(endpoint.address).bytes;
        let mut held = Vec::new();
        for _ in 0..2 * PLACES {
            held.push(hold(&endpoint, &bytes).await);
        }
        let refused = timeout(PATIENCE, answer(held.last_mut().expect("many"))).await.expect("in time");
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
        for part in ["<Code>SlowDown</Code>", "retry-after: 1\r\n", "connection: close\r\n"] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
        reads(&endpoint.guest()).await;
        let guest =
            Request { key: GUEST_KEY.into(), secret: GUEST_SECRET.into(), ..Request::new("PUT", "/bucket/own") };
        let mut write =
            hold(&endpoint, &guest.body("own").header("connection", "close").sign(endpoint.address).bytes).await;
        assert!(timeout(PATIENCE, answer(&mut write)).await.expect("in time").starts_with("HTTP/1.1 200 "));
    }
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
