//! Who may do what.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::{Keys, READER, ROOT, Server, TEAM};

/// Every operation, as it may be asked for.
const OPERATIONS: [(&str, &str, &str, &str); 36] = [
    ("GET", "/api/v1/status", "", ""),
    ("GET", "/api/v1/overview", "", ""),
    ("GET", "/api/v1/overview/history", "", ""),
    ("GET", "/api/v1/policies", "", ""),
    ("PUT", "/api/v1/policies", "", "[]"),
    ("POST", "/api/v1/policies/check", "", "[]"),
    ("GET", "/api/v1/policies/rule", "?path=/a-bucket/", ""),
    ("PUT", "/api/v1/policies/rule", "?path=/a-bucket/", "{}"),
    ("DELETE", "/api/v1/policies/rule", "?path=/a-bucket/", ""),
    ("GET", "/api/v1/policies/resolve", "?path=/a-bucket/key", ""),
    ("GET", "/api/v1/policies/history", "", ""),
    ("GET", "/api/v1/policies/history/{version}", "", ""),
    ("POST", "/api/v1/policies/rollback", "", "{\"version\":1}"),
    ("POST", "/api/v1/persist", "?prefix=/a-bucket", ""),
    ("GET", "/api/v1/undeliverable", "?prefix=/a-bucket", ""),
    ("POST", "/api/v1/undeliverable/keep", "?path=/a-bucket/key&generation=1", ""),
    ("POST", "/api/v1/undeliverable/discard", "?path=/a-bucket/key&generation=1", ""),
    ("POST", "/api/v1/undeliverable/rename", "?path=/a-bucket/key&generation=1&to=/a-bucket/new", ""),
    ("GET", "/api/v1/jobs", "", ""),
    ("POST", "/api/v1/jobs", "", "{\"kind\":\"free\",\"path\":\"/a-bucket\"}"),
    ("GET", "/api/v1/jobs/{id}", "", ""),
    ("GET", "/api/v1/jobs/{id}/findings", "", ""),
    ("POST", "/api/v1/jobs/{id}/cancel", "", ""),
    ("GET", "/api/v1/buckets", "", ""),
    ("GET", "/api/v1/objects", "?path=/a-bucket", ""),
    ("GET", "/api/v1/objects/detail", "?path=/a-bucket/key", ""),
    ("GET", "/api/v1/objects/content", "?path=/a-bucket/key", ""),
    ("PUT", "/api/v1/objects/content", "?path=/a-bucket/key", ""),
    ("DELETE", "/api/v1/objects/content", "?path=/a-bucket/key", ""),
    ("GET", "/api/v1/under-stores", "", ""),
    ("GET", "/api/v1/cluster", "", ""),
    ("GET", "/api/v1/cluster/homes", "", ""),
    ("POST", "/api/v1/cluster/workers/{id}/drain", "", ""),
    ("DELETE", "/api/v1/cluster/workers/{id}", "", ""),
    ("GET", "/api/v1/configuration", "", ""),
    ("GET", "/api/v1/notices", "", ""),
];

/// What needs no keys, or takes none.
const OTHERS: [(&str, &str); 4] = [
    ("GET", "/api/v1/openapi.json"),
    ("GET", "/api/v1/session"),
    ("POST", "/api/v1/session"),
    ("DELETE", "/api/v1/session"),
];

#[tokio::test]
async fn every_operation_wants_an_administrator() {
    let server = Server::ready().await;
    let strangers: [Keys; 5] =
        [None, Some(("ROOT", "wrong")), Some(("NOBODY", "hunter2hunter2")), Some(("", "")), Some(("ROOT", ""))];
    // A brake on guessing would hide what this asks for: each operation has a worker of its own.
    for (method, path, query, body) in OPERATIONS {
        let fresh = Server::ready().await;
        let page = path.replace("{version}", "1").replace("{id}", "1") + query;
        for keys in strangers {
            let answer = fresh.send(method, &page, keys, "", body).await;
            assert_eq!(answer.status, 401, "{method} {page} {keys:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Basic realm=\"forebay\", charset=\"UTF-8\""));
        }
        let reader = server.send(method, &page, READER, "", body).await;
        assert_eq!(reader.status, 403, "{method} {page}: {}", reader.body);
        reader.detail();
        // Jobs are listed as far as the caller administers them: none here.
        let expected = match (method, path) {
            ("GET", "/api/v1/jobs") => 200,
            (_, path) if path.starts_with("/api/v1/jobs/") => 404,
            _ => 403,
        };
        let team = server.send(method, &page, TEAM, "", body).await;
        assert_eq!(team.status, expected, "{method} {page}: {}", team.body);
    }
    assert_eq!(server.get("/api/v1/policies", ROOT).await.json(), json!([]), "what is refused changes nothing");
}

#[tokio::test]
async fn the_description_needs_no_keys_and_names_what_there_is() {
    let server = Server::ready().await;
    let answer = server.get("/api/v1/openapi.json", None).await;
    assert_eq!((answer.status, &answer.json()["openapi"]), (200, &json!("3.1.0")));
    let described = answer.json();
    let paths = described["paths"].as_object().unwrap().iter();
    let described: BTreeSet<_> = paths
        .flat_map(|(path, item)| item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())))
        .collect();
    let known = OPERATIONS.iter().map(|(method, path, _, _)| (*method, *path)).chain(OTHERS);
    let known: BTreeSet<_> = known.map(|(method, path)| (method.to_owned(), path.to_owned())).collect();
    assert_eq!(described, known);
}

#[tokio::test]
async fn an_administrator_of_a_path_may_ask_about_it_and_nothing_else() {
    let server = Server::ready().await;
    for (method, page, status) in [
        ("POST", "/api/v1/persist?prefix=/team", 404),
        ("POST", "/api/v1/persist?prefix=/bucket/team/", 204),
        ("POST", "/api/v1/persist?prefix=/bucket/team", 403),
        ("POST", "/api/v1/persist?prefix=/bucket/te", 403),
        ("POST", "/api/v1/persist?prefix=/bucket", 403),
        ("GET", "/api/v1/undeliverable?prefix=/bucket/team/", 200),
        ("GET", "/api/v1/undeliverable?prefix=/bucket/team", 403),
        ("GET", "/api/v1/undeliverable?prefix=/", 403),
        ("POST", "/api/v1/undeliverable/keep?path=/bucket/team/x&generation=1", 404),
        ("POST", "/api/v1/undeliverable/discard?path=/bucket/teams&generation=1", 403),
        ("POST", "/api/v1/undeliverable/rename?path=/bucket/team/x&generation=1&to=/bucket/team/y", 404),
        ("POST", "/api/v1/undeliverable/rename?path=/bucket/team/x&generation=1&to=/bucket/y", 403),
        ("POST", "/api/v1/undeliverable/rename?path=/bucket/x&generation=1&to=/bucket/team/y", 403),
        ("GET", "/api/v1/objects/content?path=/bucket/team", 404),
        ("GET", "/api/v1/objects/content?path=/bucket/team/x", 404),
        ("GET", "/api/v1/objects/content?path=/bucket/teams", 403),
        ("GET", "/api/v1/objects/content?path=/bucket/team/../x", 404),
        ("GET", "/api/v1/policies/rule?path=/team", 404),
        ("GET", "/api/v1/policies/rule?path=/team/", 404),
        ("GET", "/api/v1/policies/rule?path=/teams/", 403),
    ] {
        let answer = server.send(method, page, TEAM, "", "").await;
        assert_eq!(answer.status, status, "{method} {page}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_rule_holds_for_longer_names_too_and_needs_a_grant_for_them() {
    let server = Server::ready().await;
    let put = async |path: &str| {
        let page = format!("/api/v1/policies/rule?path={path}");
        server.send("PUT", &page, TEAM, "", "{\"writeMode\":\"READ_ONLY\"}").await.status
    };
    assert_eq!(put("/team").await, 403, "it would hold for the bucket team2");
    assert_eq!(put("/team/").await, 200);
    assert_eq!(put("/bucket/team").await, 403, "it would hold for the key teams");
    assert_eq!(put("/bucket/team/x").await, 200);
}

#[tokio::test]
async fn pages_of_other_sites_are_refused_even_with_keys() {
    let server = Server::ready().await;
    for (relation, status) in [("cross-site", 403), ("same-site", 200), ("same-origin", 200), ("none", 200)] {
        let header = format!("Sec-Fetch-Site: {relation}\r\n");
        let answer = server.send("GET", "/api/v1/status", ROOT, &header, "").await;
        assert_eq!(answer.status, status, "{relation}");
    }
    // What changes something must come from no page but ours, since browsers send keys along that they were once given.
    for (header, status) in [
        ("Sec-Fetch-Site: same-site\r\n", 403),
        ("Sec-Fetch-Site: same-origin\r\n", 204),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Origin: http://admin\r\n", 204),
        ("", 204),
    ] {
        let answer = server.send("POST", "/api/v1/persist?prefix=/", ROOT, header, "").await;
        assert_eq!(answer.status, status, "{header:?}");
    }
}

#[tokio::test]
async fn a_browser_gets_no_dialog_for_keys() {
    let server = Server::ready().await;
    for header in ["Sec-Fetch-Site: same-origin\r\n", "Cookie: forebay_session=old\r\n"] {
        let answer = server.send("GET", "/api/v1/status", None, header, "").await;
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Session realm=\"forebay\"")));
    }
}

#[tokio::test]
async fn guessing_at_a_key_is_slowed_down_and_does_not_lock_others_out() {
    let server = Server::ready().await;
    let guess = async || server.get("/api/v1/status", Some(("ROOT", "guess"))).await;
    let mut failures = 0;
    let refused = loop {
        let answer = guess().await;
        if answer.status != 401 {
            break answer;
        }
        failures += 1;
        assert!(failures < 100, "guessing goes on for ever");
    };
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("5")));
    assert_eq!(server.get("/api/v1/status", ROOT).await.status, 429, "the right guess is not told from others");
    assert_eq!(server.get("/api/v1/objects?path=/team", TEAM).await.status, 404, "other keys are not concerned");
    server.clock.advance(std::time::Duration::from_secs(5));
    assert_eq!(server.get("/api/v1/status", ROOT).await.status, 200);
}
