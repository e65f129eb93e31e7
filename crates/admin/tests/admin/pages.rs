//! Health, metrics, the console, and answers to what there is not.

use std::pin::{Pin, pin};
use std::time::Duration;

use forebay_admin::api::{CircuitState, UnderStoreStatus};
use forebay_ufs::memory::Mood;
use serde_json::json;

use crate::support::{BUCKET, ROOT, Server};

#[tokio::test]
async fn probes_are_answered_before_the_store_is_open() {
    let server = Server::starting().await;
    let answer = server.get("/readyz", None).await;
    assert_eq!((answer.status, answer.body.as_str()), (503, "starting\n"));
    assert_eq!(server.get("/healthz", None).await.status, 200);
    assert_eq!(server.get("/metrics", None).await.status, 503);
    assert_eq!(server.get("/api/v1/status", ROOT).await.status, 503);
    assert_eq!(
        server.send("POST", "/api/v1/session", None, "", "{\"accessKey\":\"\",\"secretKey\":\"\"}").await.status,
        503
    );
    assert_eq!(server.get("/api/v1/openapi.json", None).await.status, 200);
    assert_eq!(server.get("/console/", None).await.status, 200);
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
async fn bad_requests_get_problems_not_pages() {
    let server = Server::ready().await;
    for (method, page, status) in [
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/console/nothing", 404),
        ("DELETE", "/api/v1/policies", 405),
        ("PATCH", "/api/v1/jobs/1", 405),
        ("POST", "/", 405),
        ("GET", "/api/v1/status?x=1", 400),
        ("GET", "/api/v1/jobs?state=done", 400),
        ("GET", "/api/v1/policies/resolve", 400),
        ("GET", "/api/v1/policies/resolve?path=/Bucket/key", 400),
        ("GET", "/api/v1/policies/resolve?path=/a-bucket", 400),
        ("GET", "/api/v1/policies/resolve?path=/bucket/%FF", 400),
        ("GET", "/api/v1/policies/resolve?path=/bucket/a&path=/bucket/b", 400),
        ("GET", "/api/v1/policies/rule?path=bucket", 400),
        ("GET", "/api/v1/policies/history/-1", 404),
        ("GET", "/api/v1/policies/history/x", 404),
        ("GET", "/api/v1/policies/history/%FF", 404),
        ("GET", "/api/v1/overview/history?sinceMs=-1", 400),
        ("GET", "/api/v1/jobs/1/findings?limit=0", 400),
        ("GET", "/api/v1/jobs/1/findings?limit=1001", 400),
        ("GET", "/api/v1/objects", 400),
        ("GET", "/api/v1/objects?path=bucket", 400),
        ("GET", "/api/v1/objects?path=/", 400),
        ("GET", "/api/v1/objects?path=/bucket&limit=many", 400),
        ("GET", "/api/v1/objects?path=/bucket/%00", 400),
        ("GET", "/api/v1/objects/detail?path=/bucket/", 400),
        ("POST", "/api/v1/persist", 400),
        ("POST", "/api/v1/persist?prefix=team", 400),
        ("POST", "/api/v1/persist?prefix=/B", 400),
        ("GET", "/api/v1/undeliverable", 400),
        ("GET", "/api/v1/undeliverable?prefix=bucket", 400),
        ("GET", "/api/v1/undeliverable?prefix=/&after=/bucket", 400),
        ("GET", "/api/v1/undeliverable?prefix=/&limit=0", 400),
        ("POST", "/api/v1/undeliverable/keep?path=/bucket/key", 400),
        ("POST", "/api/v1/undeliverable/keep?path=/bucket&generation=1", 400),
        ("POST", "/api/v1/undeliverable/discard?path=/bucket/key&generation=-1", 400),
        ("POST", "/api/v1/undeliverable/rename?path=/bucket/key&generation=1", 400),
        ("POST", "/api/v1/undeliverable/rename?path=/bucket/key&generation=1&to=key", 400),
        ("POST", "/api/v1/jobs", 400),
    ] {
        let answer = server.send(method, page, ROOT, "", "").await;
        assert_eq!(answer.status, status, "{method} {page}: {}", answer.body);
        answer.detail();
        assert_eq!(answer.header("allow").is_some(), status == 405, "{}", answer.head);
    }
}

#[tokio::test]
async fn bodies_that_are_not_right_are_refused() {
    let server = Server::ready().await;
    let post = async |headers: &str, body: &str| server.send("POST", "/api/v1/jobs", ROOT, headers, body).await;
    for (body, named) in [
        ("{\"kind\":\"free\"}", "path"),
        ("{\"kind\":\"fre\",\"path\":\"/\"}", "fre"),
        ("{\"kind\":\"free\",\"path\":\"/\",\"speed\":1}", "speed"),
        ("{\"kind\":\"free\",\"path\":\"a\"}", "path"),
        ("{\"kind\":\"load\",\"path\":\"/\",\"rateLimit\":\"fast\"}", "fast"),
        ("[", "body"),
    ] {
        let answer = post("Content-Type: application/json; charset=utf-8\r\n", body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.detail().contains(named), "{} lacks {named}", answer.detail());
    }
    let answer = post("Content-Type: text/plain\r\n", "{\"kind\":\"free\",\"path\":\"/\"}").await;
    assert_eq!(answer.status, 415);
    answer.detail();
    let large = format!("[{}]", " ".repeat(2 << 20));
    let answer = server.send("PUT", "/api/v1/policies", ROOT, "", &large).await;
    assert_eq!(answer.status, 413);
    answer.detail();
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

#[tokio::test]
async fn the_console_is_served_to_anybody_and_runs_nothing_of_others() {
    let server = Server::ready().await;
    for page in ["/", "/console"] {
        let answer = server.get(page, None).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/console/")));
    }
    for (page, content_type) in [
        ("/console/", "text/html; charset=utf-8"),
        ("/console/index.html", "text/html; charset=utf-8"),
        ("/console/app.js", "text/javascript; charset=utf-8"),
        ("/console/app.css", "text/css; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
    ] {
        let answer = server.get(page, None).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(content_type)), "{page}");
        assert!(!answer.body.is_empty());
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"));
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cache-control", "no-cache"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{page}");
        }
        let tag = answer.header("etag").unwrap();
        let again = server.send("GET", page, None, &format!("If-None-Match: \"x\", {tag}\r\n"), "").await;
        assert_eq!((again.status, again.body.as_str()), (304, ""));
        let head = server.send("HEAD", page, None, "", "").await;
        assert_eq!((head.status, head.body.as_str()), (200, ""));
        assert_eq!(head.header("content-length").unwrap().parse(), Ok(answer.body.len()));
    }
}

#[tokio::test]
async fn the_overview_says_whether_the_first_checks_are_complete() {
    let server = Server::ready().await;
    let is_checking = async || server.get("/api/v1/overview", ROOT).await.json()["checking"].clone();
    assert_eq!(is_checking().await, json!(false));
    for round in [server.notices.first_round(), server.notices.first_round()] {
        assert_eq!(is_checking().await, json!(true), "until the last of them is over");
        drop(round);
    }
    assert_eq!(is_checking().await, json!(false));
}

/// An under store whose last probe has failed.
fn unusable(problem_id: &str, silent_ms: u64) -> UnderStoreStatus {
    UnderStoreStatus {
        url: "s3://bucket".into(),
        buckets: vec![BUCKET.to_owned()],
        circuit: CircuitState::Closed,
        probe_in_ms: None,
        failures_in_a_row: 0,
        concurrency_limit: 64,
        concurrency_max: 64,
        running: 0,
        silent_ms: Some(silent_ms),
        calls: 0,
        errors: 0,
        throttled: 0,
        last_error: None,
        last_error_ms: None,
        problem: Some("out of reach: no answer within 10 s".into()),
        problem_id: Some(problem_id.to_owned()),
        checking: false,
        requests_per_second_max: 0,
        upload_bandwidth_max: 0,
    }
}

/// What it brings, if it is there when all tasks have had their turn.
async fn polled<F: Future>(work: Pin<&mut F>) -> Option<F::Output> {
    let others = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = others => None,
    }
}

#[tokio::test]
async fn a_listing_does_not_wait_for_an_under_store_that_answers_nothing() {
    let server = Server::ready().await;
    server.under.set_mood(Mood::Hang);
    let before = server.under.requests();
    let mut answer = pin!(server.get("/api/v1/objects?path=/bucket/", ROOT));
    while server.under.requests() == before {
        assert!(polled(answer.as_mut()).await.is_none());
    }
    // It has answered others a moment ago, or answers its probes: it is only slow.
    for (problem_id, silent_ms) in [("under-store-unreachable", 100), ("under-store-full", 60_000)] {
        server.under_stores.set(vec![unusable(problem_id, silent_ms)]);
        for _ in 0..60 {
            server.clock.advance(Duration::from_secs(1));
            assert!(polled(answer.as_mut()).await.is_none());
        }
    }
    server.under_stores.set(vec![unusable("under-store-unreachable", 60_000)]);
    let answer = loop {
        server.clock.advance(Duration::from_secs(1));
        if let Some(answer) = polled(answer.as_mut()).await {
            break answer;
        }
    };
    assert_eq!(answer.status, 503);
    let detail = answer.detail();
    assert!(detail.contains("does not answer") && detail.contains("no answer within 10 s"), "{detail}");
}
