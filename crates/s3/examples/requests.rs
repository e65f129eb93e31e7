//! `requests put|get COUNT` serves that many requests of 1 KiB from memory and ends: for counting instructions, see
//! `scripts/check-instructions`.

#[path = "../tests/s3/support/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod support;

use support::sign::Request;
use support::{BUCKET, Endpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const BODY_BYTES: usize = 1024;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, operation, count] = words.as_slice() else { panic!("usage: requests put|get COUNT") };
    let endpoint = support::start().await;
    // Signed once: the same request over and over.
    let put = request("PUT", &endpoint, vec![b'a'; BODY_BYTES]);
    let get = request("GET", &endpoint, Vec::new());
    let (measured, answer_bytes) = match operation.as_str() {
        "put" => (&put, 0),
        "get" => (&get, BODY_BYTES),
        other => panic!("{other:?} is neither put nor get"),
    };
    let mut stream = TcpStream::connect(endpoint.address).await.expect("connection");
    exchange(&mut stream, &put, |answer| length_of(answer, 0)).await;
    // All answers are as long as the first. To look for their ends would take more than a tenth of what is counted.
    let length = exchange(&mut stream, measured, |answer| length_of(answer, answer_bytes)).await;
    for _ in 1..count.parse().expect("a number of requests") {
        exchange(&mut stream, measured, |_| Some(length)).await;
    }
}

fn request(method: &str, endpoint: &Endpoint, body: Vec<u8>) -> Vec<u8> {
    let request = Request::new(method, &format!("/{BUCKET}/key")).body(body);
    request.unsigned_header("connection", "keep-alive").sign(endpoint.address).bytes
}

/// How long an answer is whose body has so many bytes, once its head is here.
fn length_of(answer: &[u8], body_bytes: usize) -> Option<usize> {
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(head + 4 + body_bytes)
}

/// Sends a request and reads its answer, whose length it returns.
async fn exchange(stream: &mut TcpStream, request: &[u8], length: impl Fn(&[u8]) -> Option<usize>) -> usize {
    stream.write_all(request).await.expect("sent");
    let mut answer = Vec::new();
    loop {
        assert!(stream.read_buf(&mut answer).await.expect("an answer") > 0, "the connection was closed");
        if let Some(length) = length(&answer).filter(|length| answer.len() >= *length) {
            assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
            return length;
        }
    }
}
