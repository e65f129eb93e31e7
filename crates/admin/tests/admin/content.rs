//! Bytes of objects.

use crate::support::{Answer, BUCKET, LARGE_BYTES, ROOT, Server};

fn page(key: &str) -> String {
    format!("/api/v1/objects/content?path=/{BUCKET}/{key}")
}

async fn put(server: &Server, key: &str, headers: &str, body: &str) -> Answer {
    server.send("PUT", &page(key), ROOT, headers, body).await
}

async fn get(server: &Server, key: &str, headers: &str) -> Answer {
    server.send("GET", &page(key), ROOT, headers, "").await
}

#[tokio::test]
async fn objects_come_back_as_they_went_in_and_are_never_shown() {
    let server = Server::ready().await;
    let written = put(&server, "dir/%C3%A9%20%22.html", "Content-Type: text/html\r\n", "<script>").await;
    assert_eq!(written.status, 201, "{}", written.body);
    let read = get(&server, "dir/%C3%A9%20%22.html", "").await;
    assert_eq!((read.status, read.body.as_str()), (200, "<script>"));
    assert_eq!(read.header("etag").unwrap(), written.json()["etag"]);
    assert_eq!(read.header("content-type"), Some("text/html"));
    assert_eq!(read.header("content-disposition"), Some("attachment; filename*=UTF-8''%C3%A9%20%22.html"));
    assert_eq!(read.header("content-security-policy"), Some("sandbox"));
    assert_eq!(read.header("x-content-type-options"), Some("nosniff"));
    let head = server.send("HEAD", &page("dir/%C3%A9%20%22.html"), ROOT, "", "").await;
    assert_eq!((head.status, head.header("content-length"), head.body.as_str()), (200, Some("8"), ""));

    let deleted = server.send("DELETE", &page("dir/%C3%A9%20%22.html"), ROOT, "", "").await;
    assert_eq!(deleted.status, 204);
    let gone = get(&server, "dir/%C3%A9%20%22.html", "").await;
    assert_eq!(gone.status, 404);
    gone.detail();
    assert_eq!(server.send("DELETE", &page("dir/x"), ROOT, "", "").await.status, 204);
}

#[tokio::test]
async fn objects_larger_than_bodies_of_requests_stream_both_ways() {
    let server = Server::ready().await;
    let body: String = (0..LARGE_BYTES).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
    assert_eq!(put(&server, "large", "", &body).await.status, 201);
    let read = get(&server, "large", "").await;
    assert!(read.body == body, "{} bytes came back", read.body.len());
}

#[tokio::test]
async fn ranges_are_served_or_refused() {
    let server = Server::ready().await;
    put(&server, "digits", "", "0123456789").await;
    for (range, body, content_range) in [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=8-", "89", "bytes 8-9/10"),
        ("bytes=8-100", "89", "bytes 8-9/10"),
        ("bytes=-1", "9", "bytes 9-9/10"),
    ] {
        let answer = get(&server, "digits", &format!("Range: {range}\r\n")).await;
        assert_eq!((answer.status, answer.body.as_str()), (206, body), "{range}");
        assert_eq!(answer.header("content-range"), Some(content_range));
    }
    for (range, status) in [("bytes=10-", 416), ("bytes=5-2", 400), ("bytes=0-1,3-4", 400), ("pages=1-2", 400)] {
        let answer = get(&server, "digits", &format!("Range: {range}\r\n")).await;
        assert_eq!(answer.status, status, "{range}");
        answer.detail();
    }
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused_in_words() {
    let server = Server::ready().await;
    let read_only = "[{\"path\":\"/bucket/fixed/\",\"writeMode\":\"READ_ONLY\"}]";
    assert_eq!(server.send("PUT", "/api/v1/policies", ROOT, "", read_only).await.status, 200);
    let refused = put(&server, "fixed/x", "", "new").await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    refused.detail();
    assert_eq!(server.send("DELETE", &page("fixed/x"), ROOT, "", "").await.status, 403);
    let nowhere = server.send("PUT", "/api/v1/objects/content?path=/no-such-bucket/x", ROOT, "", "x").await;
    assert_eq!(nowhere.status, 404, "{}", nowhere.body);
    let long = format!("Content-Type: {}\r\n", "x".repeat(257));
    assert_eq!(put(&server, "x", &long, "x").await.status, 400);
}

#[tokio::test]
async fn a_body_must_say_its_length_and_have_it() {
    let server = Server::ready().await;
    let keys = "Authorization: Basic Uk9PVDpodW50ZXIyaHVudGVyMg==\r\nConnection: close\r\nHost: admin\r\n";
    let request = |rest: &str| format!("PUT {} HTTP/1.1\r\n{keys}{rest}", page("x"));
    let chunked = server.send_raw(&request("Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")).await;
    assert_eq!(chunked.status, 411);
    chunked.detail();
    let huge = server.send_raw(&request("Content-Length: 5368709121\r\n\r\n")).await;
    assert_eq!(huge.status, 413);
    huge.detail();
    assert_eq!(get(&server, "x", "").await.status, 404);
}

/// A client that goes on with a download gets the rest of the version that it has, or all of the new one.
#[tokio::test]
async fn a_range_is_of_the_version_that_it_is_asked_for() {
    let server = Server::ready().await;
    let old = put(&server, "resumed", "", "0123456789").await.json()["etag"].as_str().unwrap().to_owned();
    let wanted = |condition: &str| format!("Range: bytes=5-\r\nIf-Range: {condition}\r\n");
    let rest = get(&server, "resumed", &wanted(&old)).await;
    assert_eq!((rest.status, rest.body.as_str()), (206, "56789"));
    put(&server, "resumed", "", "abcdefghij").await;
    for condition in [old.as_str(), "Sat, 01 Jan 2000 00:00:00 GMT", "neither"] {
        let whole = get(&server, "resumed", &wanted(condition)).await;
        assert_eq!((whole.status, whole.body.as_str()), (200, "abcdefghij"), "{condition}");
    }
}

/// There are few connections, and probes need one. The body of a login is read before anybody is known.
#[tokio::test]
async fn a_body_that_stops_coming_is_given_up() {
    let server = Server::ready().await;
    let head =
        "POST /api/v1/session HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Type: application/json\r\n";
    let request = format!("{head}Content-Length: 100\r\n\r\n{{");
    let passing = async {
        loop {
            server.clock.advance(std::time::Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = server.send_raw(&request) => assert_eq!(answer.status, 400, "{}", answer.body),
        () = passing => {}
    }
}
