//! Persist requests: what they wait for may take hours.

use std::pin::pin;
use std::time::Duration;

use forebay_ufs::ErrorKind;
use forebay_ufs::memory::Mood;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::json;
use tokio::time::timeout;

use crate::support::{Answer, ROOT, Server};

/// Longer than a refusal takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time passes meanwhile: no client waits for what a job commits, so it shares a later sync.
async fn persist(server: &Server) -> Answer {
    let mut answer = pin!(server.send("POST", "/api/v1/persist?prefix=/bucket", ROOT, "", ""));
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            () = tokio::task::yield_now() => server.clock.advance(Duration::from_millis(1)),
        }
    }
}

/// Each write is acknowledged before the under store has it.
async fn write_back(server: &Server) {
    let rules = json!([{ "path": "/", "writeMode": "WRITE_BACK" }]).to_string();
    assert_eq!(server.send("PUT", "/api/v1/policies", ROOT, "", &rules).await.status, 200);
}

async fn put(server: &Server, body: &str) {
    let written = server.send("PUT", "/api/v1/objects/content?path=/bucket/key", ROOT, "", body).await;
    assert_eq!(written.status, 201, "{}", written.body);
}

#[tokio::test]
async fn what_another_writer_has_changed_is_no_success() {
    let server = Server::ready().await;
    write_back(&server).await;
    put(&server, "first").await;
    assert_eq!(persist(&server).await.status, 204);
    server.under.set_mood(Mood::Refuse(ErrorKind::Denied));
    put(&server, "second").await;
    let refused = persist(&server).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.detail().contains("forebay jobs show"), "{}", refused.body);
    server.under.put_outside("key", "theirs".into());
    server.under.set_mood(Mood::Well);
    // The conflict is found by the first request, and is there already for the second one.
    for _ in 0..2 {
        let answer = persist(&server).await;
        assert_eq!(answer.status, 409, "{}", answer.body);
        let jobs = server.get("/api/v1/jobs", ROOT).await.json();
        let id = jobs[0]["id"].as_str().expect("the newest job");
        assert!(answer.detail().contains(&format!("forebay jobs show {id}")), "{}", answer.body);
        let findings = server.get(&format!("/api/v1/jobs/{id}/findings"), ROOT).await.json();
        assert_eq!((&findings[0]["path"], &findings[0]["kind"]), (&json!("/bucket/key"), &json!("conflict")));
    }
    assert_eq!(server.under.contents()["key"], "theirs");
}

#[tokio::test]
async fn one_request_of_a_user_is_at_work_even_when_its_client_has_gone() {
    let server = Server::ready().await;
    write_back(&server).await;
    put(&server, "value").await;
    server.under.set_mood(Mood::Hang);
    let mut requests: FuturesUnordered<_> = (0..3).map(|_| persist(&server)).collect();
    for _ in 0..2 {
        let refused = timeout(PATIENCE, requests.next()).await.expect("it is refused at once").unwrap();
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.body);
        assert!(refused.detail().contains("root"), "{}", refused.body);
    }
    drop(requests);
    let refused = timeout(PATIENCE, persist(&server)).await.expect("it is refused at once");
    assert_eq!(refused.status, 503, "{}", refused.body);
    server.under.set_mood(Mood::Well);
    let mut status = 503;
    for _ in 0..10_000 {
        status = persist(&server).await.status;
        if status != 503 {
            break;
        }
    }
    assert_eq!(status, 204, "its turn comes");
}
