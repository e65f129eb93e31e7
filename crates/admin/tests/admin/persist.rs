//! Persist requests: what they wait for may take hours.

use std::time::Duration;

use forebay_ufs::memory::Mood;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::json;
use tokio::time::timeout;

use crate::support::{Answer, ROOT, Server};

/// Longer than a refusal takes.
const PATIENCE: Duration = Duration::from_secs(30);

async fn persist(server: &Server) -> Answer {
    server.send("POST", "/api/v1/persist?prefix=/bucket", ROOT, "", "").await
}

#[tokio::test]
async fn one_request_of_a_user_is_at_work_even_when_its_client_has_gone() {
    let server = Server::ready().await;
    let rules = json!([{ "path": "/", "writeMode": "WRITE_BACK" }]).to_string();
    assert_eq!(server.send("PUT", "/api/v1/policies", ROOT, "", &rules).await.status, 200);
    let written = server.send("PUT", "/api/v1/objects/content?path=/bucket/key", ROOT, "", "value").await;
    assert_eq!(written.status, 201, "{}", written.body);
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
