//! The overview and its hour of samples.

use std::time::Duration;

use serde_json::Value;

use crate::support::{ROOT, Server};

/// Moves the clock until there are so many samples.
async fn history_of(server: &Server, least: usize) -> Vec<Value> {
    for _ in 0..10_000 {
        let history = server.get("/api/v1/overview/history", ROOT).await.json();
        let history = history.as_array().unwrap().clone();
        if history.len() >= least {
            return history;
        }
        server.clock.advance(Duration::from_secs(5));
    }
    panic!("there are never {least} samples");
}

#[tokio::test]
async fn samples_come_with_time_and_the_overview_shows_the_newest() {
    let server = Server::ready().await;
    let overview = server.get("/api/v1/overview", ROOT).await.json();
    assert_eq!((&overview["sample"], &overview["drainSeconds"]), (&Value::Null, &Value::Null));
    assert_eq!(overview["version"], env!("CARGO_PKG_VERSION"));
    assert!(overview["status"]["capacityBytes"].as_u64().unwrap() > 0);

    let history = history_of(&server, 3).await;
    let times: Vec<_> = history.iter().map(|sample| sample["timeMs"].as_u64().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    assert!(history.iter().all(|sample| sample["intervalMs"].as_u64().unwrap() >= 5000));
    let newest = server.get("/api/v1/overview", ROOT).await.json()["sample"].clone();
    assert!(newest["timeMs"].as_u64().unwrap() >= times[2]);
    let later = server.get(&format!("/api/v1/overview/history?sinceMs={}", times[1]), ROOT).await.json();
    assert!(later.as_array().unwrap().iter().all(|sample| sample["timeMs"].as_u64().unwrap() > times[1]));
    assert_eq!(later[0]["timeMs"], times[2]);
}
