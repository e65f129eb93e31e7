//! Bytes that no well-behaved client sends, and those that a server must get right all the same.

use std::time::Duration;

use crate::support::raw::{count, exchange, status};
use crate::support::sign::Request;
use crate::support::{BUCKET, Endpoint, start, start_with};
use base64::Engine as _;
use sha2::Digest as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Whether an object is there.
async fn exists(endpoint: &Endpoint, key: &str) -> bool {
    endpoint.root().head_object().bucket(BUCKET).key(key).send().await.is_ok()
}

#[tokio::test]
async fn ambiguous_framing_is_refused_and_the_connection_ends() {
    let endpoint = start().await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n";
    for (name, head) in [
        ("two lengths", "content-length: 5\r\ncontent-length: 6\r\n\r\nhello"),
        ("a length list", "content-length: 5, 6\r\n\r\nhello"),
        ("a plus sign", "content-length: +5\r\n\r\nhello"),
        ("hexadecimal", "content-length: 0x5\r\n\r\nhello"),
        ("negative", "content-length: -5\r\n\r\nhello"),
        ("a folded line", "x-a: b\r\n c\r\n\r\n"),
        ("a space before the colon", "content-length : 5\r\n\r\nhello"),
        ("another transfer coding", "transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
        ("an unknown transfer coding", "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
        ("no host", "connection: close\r\n\r\n"),
    ] {
        let host = if name == "no host" { "" } else { "host: h\r\n" };
        let answer = exchange(endpoint.address, format!("PUT /bucket/a HTTP/1.1\r\n{host}{head}{smuggled}")).await;
        assert_eq!((status(&answer), count(&answer)), (400, 1), "{name}: {answer}");
    }
    // hyper reads the body as chunked, hides the length from us, and ends the connection, as RFC 9112 section 6.1 asks.
    for head in ["content-length: 5\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 5"] {
        let bytes = format!("PUT /bucket/a HTTP/1.1\r\nhost: h\r\n{head}\r\n\r\n0\r\n\r\n{smuggled}");
        let answer = exchange(endpoint.address, bytes).await;
        assert_eq!((status(&answer), count(&answer)), (501, 1), "{head}: {answer}");
    }
    let answer = exchange(endpoint.address, "GARBAGE\r\n\r\n").await;
    assert_eq!((status(&answer), count(&answer)), (400, 1), "{answer}");
}

#[tokio::test]
async fn a_pipelined_request_gets_its_own_answer() {
    let endpoint = start().await;
    let first =
        Request::new("PUT", "/bucket/first").header("connection", "keep-alive").body("1").sign(endpoint.address).bytes;
    let second = Request::new("GET", "/bucket/absent").sign(endpoint.address).bytes;
    let answer = exchange(endpoint.address, [first, second].concat()).await;
    assert_eq!((status(&answer), count(&answer)), (200, 2), "{answer}");
    assert!(answer.rsplit("HTTP/1.1 ").next().unwrap().starts_with("404"), "{answer}");
}

#[tokio::test]
async fn signed_chunks_are_verified_one_by_one() {
    let endpoint = start().await;
    let address = endpoint.address;
    let data = vec![b'x'; 10_000];
    let request = Request::new("PUT", "/bucket/s")
        .payload("STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
        .header("x-amz-decoded-content-length", "20000")
        .header("content-encoding", "aws-chunked");
    let send = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        // The length of the transfer is not signed: whoever changes the body can change it too.
        let signed = request.clone().sign(address);
        let mut chunks = signed.chunks(&[&data, &data]);
        change(&mut chunks);
        let body = chunks.concat();
        let head = String::from_utf8(signed.bytes)
            .unwrap()
            .replace("content-length: 0", &format!("content-length: {}", body.len()));
        let head = head.replace("x-amz-decoded-content-length: 0", "x-amz-decoded-content-length: 20000");
        exchange(address, [head.into_bytes(), body].concat())
    };
    type Spoil<'a> = &'a dyn Fn(&mut Vec<Vec<u8>>);
    let cases: [(&str, Spoil<'_>, u16); 7] = [
        ("a changed byte", &|chunks| chunks[1][5000] ^= 1, 403),
        ("a chunk twice", &|chunks| chunks.insert(1, chunks[0].clone()), 403),
        ("a chunk too few", &|chunks| drop(chunks.remove(0)), 403),
        ("swapped chunks", &|chunks| chunks.swap(0, 1), 403),
        ("no final chunk", &|chunks| drop(chunks.pop()), 400),
        ("cut in the final chunk's line", &|chunks| chunks[2].truncate(40), 400),
        ("a changed signature", &|chunks| chunks[0][30] = if chunks[0][30] == b'0' { b'1' } else { b'0' }, 403),
    ];
    for (name, change, expected) in cases {
        let answer = send(change).await;
        assert_eq!(status(&answer), expected, "{name}: {answer}");
        assert!(!exists(&endpoint, "s").await, "{name}");
    }
    assert_eq!(status(&send(&|_| {}).await), 200);
    let head = endpoint.root().head_object().bucket(BUCKET).key("s").send().await.expect("head");
    assert_eq!((head.content_length(), head.content_encoding()), (Some(20_000), None));
}

#[tokio::test]
async fn unsigned_chunks_need_the_trailer_that_was_announced() {
    let endpoint = start().await;
    let address = endpoint.address;
    // CRC32 of "123456789" is cbf43926.
    let good = "9\r\n123456789\r\n0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n";
    let put = |body: &str, length: &str| {
        let request = Request::new("PUT", "/bucket/u")
            .payload("STREAMING-UNSIGNED-PAYLOAD-TRAILER")
            .header("x-amz-decoded-content-length", length)
            .header("x-amz-trailer", "x-amz-checksum-crc32")
            .body(body);
        exchange(address, request.sign(address).bytes)
    };
    for (name, body, length) in [
        ("a wrong checksum", good.replace("y/Q5Jg==", "AAAAAA=="), "9"),
        ("no trailer", "9\r\n123456789\r\n0\r\n\r\n".to_owned(), "9"),
        ("another trailer", good.replace("crc32:y/Q5Jg==", "crc32c:4waSgw=="), "9"),
        ("two trailers", good.replace("==\r\n", "==\r\nx-amz-checksum-crc32:AAAAAA==\r\n"), "9"),
        ("one more", good.replace("==\r\n", "==\r\nx-amz-meta-a:b\r\n"), "9"),
        ("a changed byte", good.replace("123", "124"), "9"),
        ("no final chunk", "9\r\n123456789\r\n".to_owned(), "9"),
        ("too short", good.to_owned(), "10"),
        ("too long", good.to_owned(), "8"),
        ("a chunk size with a sign", good.replacen('9', "+9", 1), "9"),
    ] {
        let answer = put(&body, length).await;
        assert_eq!(status(&answer), 400, "{name}: {answer}");
        assert!(!exists(&endpoint, "u").await, "{name}");
    }
    let answer = put(good, "9").await;
    assert_eq!(status(&answer), 200, "{answer}");
}

#[tokio::test]
async fn the_payload_is_what_was_signed_or_it_is_nothing() {
    let endpoint = start().await;
    let address = endpoint.address;
    let signed = Request::new("PUT", "/bucket/p").body("good content").sign(address).bytes;
    let changed = String::from_utf8(signed).unwrap().replace("good content", "evil content");
    let answer = exchange(address, changed).await;
    assert!(status(&answer) == 400 && answer.contains("XAmzContentSHA256Mismatch"), "{answer}");
    let unknown = Request::new("PUT", "/bucket/p").body("x").payload("STREAMING-SOMETHING").sign(address).bytes;
    assert_eq!(status(&exchange(address, unknown).await), 400);
    let chunked = Request::new("PUT", "/bucket/p").header("transfer-encoding", "chunked").payload("UNSIGNED-PAYLOAD");
    let answer = exchange(address, chunked.body("1\r\nx\r\n0\r\n\r\n").sign(address).bytes).await;
    assert!(status(&answer) == 501 && answer.contains("<Header>Transfer-Encoding</Header>"), "{answer}");
    let mut short = Request::new("PUT", "/bucket/p").payload("UNSIGNED-PAYLOAD").body("0123456789").sign(address).bytes;
    short.truncate(short.len() - 3);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&short).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest).await;
    assert_ne!(status(&rest), 200, "{rest}");
    assert!(!exists(&endpoint, "p").await);
}

#[tokio::test]
async fn documents_are_bounded_and_entities_are_not_expanded() {
    let endpoint = start().await;
    let post = |body: String| {
        let sha256 = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(&body));
        let request =
            Request::new("POST", "/bucket").query("delete", "").header("x-amz-checksum-sha256", &sha256).body(body);
        exchange(endpoint.address, request.sign(endpoint.address).bytes)
    };
    let bomb = "<!DOCTYPE l [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>\
                <Delete><Object><Key>&b;</Key></Object></Delete>";
    for (name, body) in [
        ("entities", bomb.to_owned()),
        ("nesting", "<Delete>".repeat(100_000)),
        ("not XML", "{\"Delete\": 1}".to_owned()),
        ("empty", String::new()),
        ("no keys", "<Delete></Delete>".to_owned()),
        ("too many keys", format!("<Delete>{}</Delete>", "<Object><Key>k</Key></Object>".repeat(1001))),
        ("too long", format!("<Delete><Object><Key>{}</Key></Object></Delete>", "k".repeat(10 << 20))),
    ] {
        let answer = post(body).await;
        // A server that stops reading early may close before its answer is read.
        assert!(matches!(status(&answer), 0 | 400 | 413), "{name}: {answer}");
        assert!(!answer.contains("<Deleted>"), "{name}: {answer}");
    }
    let good = post("<Delete><Object><Key>k</Key></Object></Delete>".to_owned()).await;
    assert!(status(&good) == 200 && good.contains("<Deleted><Key>k</Key>"), "{good}");
}

#[tokio::test]
async fn names_and_metadata_have_their_limits() {
    let endpoint = start().await;
    let address = endpoint.address;
    for (length, expected) in [(1024, 200), (1025, 400)] {
        let put = Request::new("PUT", &format!("/bucket/{}", "k".repeat(length))).body("x");
        assert_eq!(status(&exchange(address, put.sign(address).bytes).await), expected, "{length}");
    }
    let nul = Request::new("PUT", "/bucket/a%00b").body("x").sign(address).bytes;
    assert_eq!(status(&exchange(address, nul).await), 400);
    let overlong = Request::new("PUT", "/bucket/%C0%AE").body("x").sign(address).bytes;
    assert_eq!(status(&exchange(address, overlong).await), 400);
    let large =
        Request::new("PUT", "/bucket/m").header("x-amz-meta-a", &"v".repeat(2048)).body("x").sign(address).bytes;
    assert!(exchange(address, large).await.contains("MetadataTooLarge"));
    // "=?UTF-8?B?YQ0KYg==?=" is "a\r\nb".
    let split =
        Request::new("PUT", "/bucket/m").header("x-amz-meta-a", "=?UTF-8?B?YQ0KYg==?=").body("x").sign(address).bytes;
    assert_eq!(status(&exchange(address, split).await), 400);
    assert!(!exists(&endpoint, "m").await);
}

#[tokio::test]
async fn a_client_that_waits_for_continue_gets_it_only_when_it_may_go_on() {
    let endpoint = start().await;
    let put = Request::new("PUT", "/bucket/e").unsigned_header("expect", "100-continue").body("12345");
    let good = put.sign(endpoint.address).bytes;
    let (head, body) = good.split_at(good.len() - 5);
    let mut stream = TcpStream::connect(endpoint.address).await.unwrap();
    stream.write_all(head).await.unwrap();
    let mut first = [0; 25];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body).await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(status(&rest), 200, "{rest}");

    let bad = Request { secret: "wrong".to_owned(), ..put }.sign(endpoint.address).bytes;
    let mut stream = TcpStream::connect(endpoint.address).await.unwrap();
    stream.write_all(&bad[..bad.len() - 5]).await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(status(&rest), 403, "{rest}");
}

#[tokio::test]
async fn slow_headers_and_slow_bodies_end() {
    let endpoint = start_with(|settings| {
        settings.header_timeout = Duration::from_millis(100);
        settings.body_window = Duration::from_millis(100);
    })
    .await;
    let mut idle = TcpStream::connect(endpoint.address).await.unwrap();
    idle.write_all(b"GET /bucket HTTP/1.1\r\nhost:").await.unwrap();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    let put = Request::new("PUT", "/bucket/slow")
        .payload("UNSIGNED-PAYLOAD")
        .body(vec![0; 100_000])
        .sign(endpoint.address)
        .bytes;
    let mut slow = TcpStream::connect(endpoint.address).await.unwrap();
    slow.write_all(&put[..put.len() - 90_000]).await.unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(status(&answer) == 400 && answer.contains("RequestTimeout"), "{answer}");
}

#[tokio::test]
async fn shutdown_lets_a_request_in_flight_end() {
    let endpoint = start().await;
    let put =
        Request::new("PUT", "/bucket/last").payload("UNSIGNED-PAYLOAD").body("0123456789").sign(endpoint.address).bytes;
    let (first, second) = put.split_at(put.len() - 5);
    let mut stream = TcpStream::connect(endpoint.address).await.unwrap();
    stream.write_all(first).await.unwrap();
    let mut encoded = String::new();
    while !encoded.contains("forebay_request_bytes_total{direction=\"in\"} 5") {
        tokio::task::yield_now().await;
        encoded.clear();
        prometheus_client::encoding::text::encode(&mut encoded, &endpoint.registry).unwrap();
    }
    endpoint.shutdown.cancel();
    while TcpStream::connect(endpoint.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.write_all(second).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(status(&answer), 200, "{answer}");
    endpoint.server.join().await;
}

#[tokio::test]
async fn every_answer_has_an_id_and_is_counted() {
    let endpoint = start().await;
    let get = Request::new("GET", "/bucket/absent").sign(endpoint.address).bytes;
    let answer = exchange(endpoint.address, get).await;
    let id = answer.split("x-amz-request-id: ").nth(1).unwrap().split("\r\n").next().unwrap();
    assert!(id.len() == 32 && answer.contains(&format!("<RequestId>{id}</RequestId>")), "{answer}");
    let put = Request::new("PUT", "/bucket/k").body("12345").sign(endpoint.address).bytes;
    assert_eq!(status(&exchange(endpoint.address, put).await), 200);
    let head = Request::new("HEAD", "/bucket/k").sign(endpoint.address).bytes;
    let answer = exchange(endpoint.address, head).await;
    assert!(answer.contains("x-forebay-state: transient; cached=5/5"), "{answer}");
    let mut encoded = String::new();
    prometheus_client::encoding::text::encode(&mut encoded, &endpoint.registry).unwrap();
    for line in [
        "forebay_requests_total{operation=\"GetObject\",code=\"404\"} 1",
        "forebay_requests_total{operation=\"PutObject\",code=\"200\"} 1",
        "forebay_request_bytes_total{direction=\"in\"} 5",
        "forebay_request_duration_seconds_count{operation=\"HeadObject\",until=\"first_byte\"} 1",
        "forebay_connections",
    ] {
        assert!(encoded.contains(line), "{line} is not in\n{encoded}");
    }
}
