//! Jobs, over HTTP; what they do is the cache's business.

use forebay_ufs::memory::Mood;
use serde_json::{Value, json};

use crate::support::{Answer, Keys, READER, ROOT, Server, TEAM};

async fn create(server: &Server, keys: Keys, path: &str) -> Answer {
    create_of("free", server, keys, path).await
}

async fn create_of(kind: &str, server: &Server, keys: Keys, path: &str) -> Answer {
    let request = json!({ "kind": kind, "path": path, "dryRun": true }).to_string();
    server.send("POST", "/api/v1/jobs", keys, "Content-Type: application/json\r\n", &request).await
}

/// What a job waits for, as a user reads it: from the list of jobs, and alone.
async fn waits_for(server: &Server, id: &str, keys: Keys) -> [Value; 2] {
    let listed = server.get("/api/v1/jobs", keys).await.json();
    let listed = listed.as_array().unwrap().iter().find(|job| job["id"] == id).unwrap()["error"].clone();
    [listed, server.get(&format!("/api/v1/jobs/{id}"), keys).await.json()["error"].clone()]
}

/// Waits until a job has ended, and returns it.
async fn ended(server: &Server, id: &str) -> Value {
    for _ in 0..10_000 {
        let job = server.get(&format!("/api/v1/jobs/{id}"), ROOT).await.json();
        if job["state"] != "queued" && job["state"] != "running" {
            return job;
        }
    }
    panic!("job {id} never ends");
}

#[tokio::test]
async fn a_job_is_begun_looked_at_and_cancelled() {
    let server = Server::ready().await;
    let created = create(&server, ROOT, "/bucket").await;
    assert_eq!(created.status, 201, "{}", created.body);
    let id = created.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(created.header("location"), Some(format!("/api/v1/jobs/{id}").as_str()));
    assert_eq!((&created.json()["createdBy"], &created.json()["request"]["dryRun"]), (&json!("root"), &json!(true)));
    let job = ended(&server, &id).await;
    assert_eq!((&job["state"], &job["progress"]["objectsSeen"]), (&json!("done"), &json!(0)));
    let findings = server.get(&format!("/api/v1/jobs/{id}/findings?after=0&limit=10"), ROOT).await;
    assert_eq!((findings.status, findings.json()), (200, json!([])));
    let cancelled = server.send("POST", &format!("/api/v1/jobs/{id}/cancel"), ROOT, "", "").await;
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (200, &json!("done")), "an ended job stays as it is");
    assert_eq!(server.get("/api/v1/jobs", ROOT).await.json(), json!([job]));
    assert_eq!(server.get("/api/v1/jobs/none", ROOT).await.status, 404);
}

#[tokio::test]
async fn jobs_are_shown_to_those_who_administer_their_paths() {
    let server = Server::ready().await;
    let all = create(&server, ROOT, "/").await.json();
    let own = create(&server, TEAM, "/bucket/team/").await;
    assert_eq!(own.status, 201, "{}", own.body);
    for path in ["/", "/bucket", "/bucket/team", "/bucket/teams/"] {
        assert_eq!(create(&server, TEAM, path).await.status, 403, "{path}");
    }
    let listed = server.get("/api/v1/jobs", TEAM).await.json();
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|job| &job["id"]).collect();
    assert_eq!(ids, [&own.json()["id"]]);
    let other = all["id"].as_str().unwrap();
    for (method, page) in [("GET", ""), ("GET", "/findings"), ("POST", "/cancel")] {
        let page = format!("/api/v1/jobs/{other}{page}");
        assert_eq!(server.send(method, &page, TEAM, "", "").await.status, 404, "{page}");
        assert_eq!(server.send(method, &page, READER, "", "").await.status, 403, "{page}");
    }
    assert_eq!(server.get("/api/v1/jobs", ROOT).await.json().as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_waiting_job_names_others_to_those_who_may_see_them_all() {
    let server = Server::ready().await;
    server.under.set_mood(Mood::Hang);
    let mut ids = Vec::new();
    for path in ["/bucket/secret/", "/bucket/team/1/", "/bucket/team/2/"] {
        let created = create_of("load", &server, ROOT, path).await;
        assert_eq!(created.status, 201, "{}", created.body);
        ids.push(created.json()["id"].as_str().unwrap().to_owned());
    }
    let mut read = [Value::Null, Value::Null];
    for _ in 0..10_000 {
        read = waits_for(&server, &ids[2], ROOT).await;
        if read.iter().all(|error| !error.is_null()) {
            break;
        }
    }
    let limit = "waits for its turn: 2 jobs of root run at once";
    let names = format!("{limit}, now {} and {}", ids[0], ids[1]);
    assert_eq!(read, [json!(names), json!(names)]);
    assert_eq!(waits_for(&server, &ids[2], TEAM).await, [json!(limit), json!(limit)]);
    server.under.set_mood(Mood::Well);
    for id in &ids {
        assert_eq!(ended(&server, id).await["state"], "done");
    }
}
