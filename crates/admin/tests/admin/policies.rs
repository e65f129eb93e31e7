//! Path policies.

use serde_json::{Value, json};

use crate::support::{Answer, ROOT, Server, TEAM};

async fn put(server: &Server, headers: &str, body: &str) -> Answer {
    server.send("PUT", "/api/v1/policies", ROOT, headers, body).await
}

fn if_match(tag: &str) -> String {
    format!("If-Match: {tag}\r\n")
}

fn tag_of(answer: &Answer) -> String {
    answer.header("etag").unwrap().to_owned()
}

#[tokio::test]
async fn policies_are_replaced_as_a_whole_if_nobody_was_faster() {
    let server = Server::ready().await;
    let version = tag_of(&server.get("/api/v1/policies", ROOT).await);
    let rules = json!([{ "path": "/logs/", "writeMode": "WRITE_BACK", "metadataTtl": "5 s" }]);

    let answer = put(&server, &if_match(&version), &rules.to_string()).await;
    assert_eq!((answer.status, answer.json()), (200, rules.clone()), "{}", answer.body);
    let late = put(&server, &if_match(&version), "[]").await;
    assert_eq!(late.status, 412, "{}", late.body);
    let after = server.get("/api/v1/policies", ROOT).await;
    assert_eq!((after.json(), after.header("etag")), (rules, answer.header("etag")));
}

#[tokio::test]
async fn rules_that_cannot_hold_are_refused_by_name() {
    let server = Server::ready().await;
    for (body, named) in [
        ("[{\"path\":\"logs\"}]", "logs"),
        ("[{\"path\":\"/a\"},{\"path\":\"/a\"}]", "/a"),
        ("[{\"path\":\"/a\",\"writeReplicas\":3}]", "writeReplicas"),
        ("[{\"path\":\"/a\",\"writeMod\":\"WRITE_BACK\"}]", "writeMod"),
        ("[{\"path\":\"/a\",\"writeMode\":\"NO_CACHE\",\"writeBackMaxSize\":\"1 MiB\"}]", "writeBackMaxSize"),
        ("[{\"path\":\"/a\",\"readCacheMaxSize\":\"big\"}]", "big"),
        ("[{\"path\":\"/a\",\"writeMode\":\"WRITE_BAK\"}]", "WRITE_BAK"),
        ("{}", "the body"),
        ("", "the body"),
    ] {
        for (method, page) in [("PUT", "/api/v1/policies"), ("POST", "/api/v1/policies/check")] {
            let answer = server.send(method, page, ROOT, "", body).await;
            assert_eq!(answer.status, 400, "{body}");
            assert!(answer.detail().contains(named), "{} lacks {named:?}", answer.detail());
        }
    }
    for tag in ["\"x\"", "\"\"", "\"1\", \"2\"", "W/\"1\""] {
        assert_eq!(put(&server, &if_match(tag), "[]").await.status, 400, "{tag}");
    }
    assert_eq!(server.get("/api/v1/policies", ROOT).await.json(), json!([]));
}

#[tokio::test]
async fn one_rule_is_put_shown_and_deleted() {
    let server = Server::ready().await;
    let page = "/api/v1/policies/rule?path=/logs/";
    assert_eq!(server.get(page, ROOT).await.status, 404);
    let rule = json!({ "path": "/logs/", "writeMode": "WRITE_BACK" });
    let added = server.send("PUT", page, ROOT, "", "{\"writeMode\":\"WRITE_BACK\"}").await;
    assert_eq!((added.status, added.json()), (200, rule.clone()), "{}", added.body);
    let shown = server.get(page, ROOT).await;
    assert_eq!((shown.json(), tag_of(&shown)), (rule.clone(), tag_of(&added)));

    let replaced = json!({ "path": "/logs/", "cacheReads": false });
    let answer = server.send("PUT", page, ROOT, &if_match(&tag_of(&added)), &replaced.to_string()).await;
    assert_eq!((answer.status, answer.json()), (200, replaced.clone()), "{}", answer.body);
    let late = server.send("PUT", page, ROOT, &if_match(&tag_of(&added)), "{}").await;
    assert_eq!(late.status, 412);
    assert_eq!(server.get("/api/v1/policies", ROOT).await.json(), json!([replaced]));

    assert_eq!(server.send("DELETE", page, ROOT, &if_match(&tag_of(&added)), "").await.status, 412);
    let deleted = server.send("DELETE", page, ROOT, &if_match(&tag_of(&answer)), "").await;
    assert_eq!((deleted.status, deleted.body.as_str()), (204, ""));
    let all = server.get("/api/v1/policies", ROOT).await;
    assert_eq!((all.json(), tag_of(&all)), (json!([]), tag_of(&deleted)));
    assert_eq!(server.send("DELETE", page, ROOT, "", "").await.status, 404);
}

/// Who administers a part gives no memory of all, and makes no more rules than all can bear.
#[tokio::test]
async fn an_administrator_of_a_part_takes_a_share_of_what_all_have() {
    let server = Server::ready().await;
    let page = |number: usize| format!("/api/v1/policies/rule?path=/team/{number}/");
    let memory = "{\"memoryQuota\":\"100 TiB\"}";
    let refused = server.send("PUT", &page(0), TEAM, "", memory).await;
    assert_eq!(refused.status, 403);
    assert!(refused.detail().contains("memoryQuota"), "{}", refused.body);
    let small = "{\"memoryQuota\":\"1 MiB\"}";
    assert_eq!(server.send("PUT", &page(0), ROOT, "", small).await.status, 200);
    let kept = "{\"memoryQuota\":\"1 MiB\",\"cacheReads\":false}";
    assert_eq!(server.send("PUT", &page(0), TEAM, "", kept).await.status, 200, "what it was given it keeps");
    for number in 1..100 {
        assert_eq!(server.send("PUT", &page(number), TEAM, "", "{\"cacheReads\":false}").await.status, 200, "{number}");
    }
    let refused = server.send("PUT", &page(100), TEAM, "", "{\"cacheReads\":false}").await;
    assert_eq!(refused.status, 400);
    assert!(refused.detail().contains("100"), "{}", refused.body);
    assert_eq!(
        server.send("PUT", &page(7), TEAM, "", "{\"cacheReads\":true}").await.status,
        200,
        "there is one already"
    );
    assert_eq!(server.send("PUT", &page(100), ROOT, "", "{\"cacheReads\":false}").await.status, 200);
}

/// Who administers a part may limit it further, but neither leave the limits that it was given, nor go before others.
#[tokio::test]
async fn an_administrator_of_a_part_does_not_widen_its_share_of_the_cache() {
    let server = Server::ready().await;
    let page = |path: &str| format!("/api/v1/policies/rule?path={path}");
    let check = async |method: &str, path: &str, body: &str, status: u16, named: &str| {
        let answer = server.send(method, &page(path), TEAM, "", body).await;
        assert_eq!(answer.status, status, "{method} {path} {body}: {}", answer.body);
        assert!(answer.body.contains(named), "{method} {path} {body}: {}", answer.body);
    };
    let rules = json!([
        { "path": "/team/a/", "cacheQuota": "100 GiB" },
        { "path": "/team/last/", "eviction": "LAST" },
        { "path": "/team/last/not/", "eviction": "FIFO" },
    ]);
    assert_eq!(put(&server, "", &rules.to_string()).await.status, 200);

    for (method, path, body) in [
        ("PUT", "/team/a/", "{}"),
        ("PUT", "/team/a/", r#"{"cacheQuota":null,"cacheReads":false}"#),
        ("PUT", "/team/a/", r#"{"cacheQuota":"101 GiB"}"#),
        ("DELETE", "/team/a/", ""),
        ("PUT", "/team/a/x/", r#"{"cacheQuota":"1024 TiB","eviction":"LAST"}"#),
        ("PUT", "/team/a/x/", r#"{"cacheQuota":"101 GiB"}"#),
    ] {
        check(method, path, body, 403, "cacheQuota").await;
    }
    for (method, path, body) in [
        ("PUT", "/team/a/x/", r#"{"eviction":"LAST"}"#),
        ("PUT", "/team/b/", r#"{"eviction":"LAST"}"#),
        ("PUT", "/team/last/not/", "{}"),
        ("DELETE", "/team/last/not/", ""),
    ] {
        check(method, path, body, 403, "LAST").await;
    }
    let after = server.get("/api/v1/policies", ROOT).await.json();
    assert_eq!(after.as_array().map(Vec::len), Some(3), "{after}");

    for (method, path, body, status) in [
        ("PUT", "/team/a/", r#"{"cacheQuota":"100 GiB","cacheReads":false}"#, 200),
        ("PUT", "/team/a/", r#"{"cacheQuota":"50 GiB"}"#, 200),
        ("PUT", "/team/a/", r#"{"cacheQuota":"51 GiB"}"#, 403),
        ("PUT", "/team/a/x/", r#"{"cacheQuota":"50 GiB","eviction":"S3-FIFO"}"#, 200),
        ("PUT", "/team/a/y/", "{}", 200),
        ("DELETE", "/team/a/y/", "", 204),
        ("PUT", "/team/b/", r#"{"cacheQuota":"1024 TiB"}"#, 200),
        ("PUT", "/team/last/", r#"{"eviction":"LAST","cacheReads":false}"#, 200),
        ("PUT", "/team/last/too/", r#"{"eviction":"LAST"}"#, 200),
        ("DELETE", "/team/last/", "", 204),
        ("PUT", "/team/last/", r#"{"eviction":"LAST"}"#, 403),
    ] {
        check(method, path, body, status, "").await;
    }
    for body in [r#"{"cacheQuota":"200 GiB","eviction":"LAST"}"#, "{}"] {
        assert_eq!(server.send("PUT", &page("/team/a/"), ROOT, "", body).await.status, 200, "{body}");
    }
    assert_eq!(server.send("DELETE", &page("/team/a/x/"), ROOT, "", "").await.status, 204);
}

#[tokio::test]
async fn a_rule_s_body_and_its_address_must_agree() {
    let server = Server::ready().await;
    let page = "/api/v1/policies/rule?path=/logs/";
    for (body, named) in [
        ("{\"path\":\"/other/\"}", "another path"),
        ("{\"path\":1}", "another path"),
        ("{\"writeMod\":\"WRITE_BACK\"}", "writeMod"),
        ("{\"writeReplicas\":0}", "writeReplicas"),
        ("[]", "the body"),
    ] {
        let answer = server.send("PUT", page, ROOT, "", body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.detail().contains(named), "{} lacks {named:?}", answer.detail());
    }
    assert_eq!(server.get("/api/v1/policies", ROOT).await.json(), json!([]));
}

#[tokio::test]
async fn every_setting_of_an_object_says_which_rule_gives_it() {
    let server = Server::ready().await;
    let rules = "[{\"path\":\"/\",\"writeMode\":\"NO_CACHE\"},{\"path\":\"/logs/\",\"metadataTtl\":\"5 s\"}]";
    assert_eq!(put(&server, "", rules).await.status, 200);
    let resolved = server.get("/api/v1/policies/resolve?path=/logs/today", ROOT).await.json();
    assert_eq!((&resolved["path"], &resolved["rule"]), (&json!("/logs/today"), &json!("/logs/")));
    let setting = |name: &str| {
        let settings = resolved["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["setting"] == name).unwrap_or(&Value::Null)
    };
    assert_eq!((&setting("writeMode")["value"], &setting("writeMode")["from"]), (&json!("NO_CACHE"), &json!("/")));
    assert_eq!((&setting("metadataTtl")["value"], &setting("metadataTtl")["from"]), (&json!("5 s"), &json!("/logs/")));
    assert_eq!((&setting("cacheReads")["value"], setting("cacheReads").get("from")), (&json!("true"), None));
    let none = Server::ready().await.get("/api/v1/policies/resolve?path=/logs/today", ROOT).await.json();
    assert_eq!(none["rule"], Value::Null);
}

#[tokio::test]
async fn a_check_tells_what_would_change_and_changes_nothing() {
    let server = Server::ready().await;
    put(&server, "", "[{\"path\":\"/logs/\",\"writeMode\":\"WRITE_BACK\"}]").await;
    let version = tag_of(&server.get("/api/v1/policies", ROOT).await);
    let rules = "[{\"path\":\"/logs/\",\"writeMode\":\"TRANSIENT\"}]";
    let check = server.send("POST", "/api/v1/policies/check", ROOT, "", rules).await;
    assert_eq!(check.status, 200, "{}", check.body);
    let check = check.json();
    assert_eq!(format!("\"{}\"", check["version"]), version);
    let changes = check["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!((&changes[0]["path"], &changes[0]["setting"]), (&json!("/logs/"), &json!("writeMode")));
    assert_eq!(tag_of(&server.get("/api/v1/policies", ROOT).await), version);
}

#[tokio::test]
async fn versions_are_kept_and_can_be_gone_back_to() {
    let server = Server::ready().await;
    let first = put(&server, "", "[{\"path\":\"/logs/\",\"writeMode\":\"WRITE_BACK\"}]").await;
    let second = put(&server, "", "[]").await;
    let number = |answer: &Answer| tag_of(answer).trim_matches('"').parse::<u64>().unwrap();
    let history = server.get("/api/v1/policies/history", ROOT).await.json();
    assert_eq!((&history[0]["version"], &history[0]["by"]), (&json!(number(&second)), &json!("root")));
    assert_eq!((&history[1]["version"], &history[1]["reason"]), (&json!(number(&first)), &json!("edit")));
    let old = server.get(&format!("/api/v1/policies/history/{}", number(&first)), ROOT).await;
    assert_eq!(old.json()["rules"], first.json());
    assert_eq!(server.get("/api/v1/policies/history/7", ROOT).await.status, 404);

    let back = |version: u64| json!({ "version": version }).to_string();
    let page = "/api/v1/policies/rollback";
    let late = server.send("POST", page, ROOT, &if_match(&tag_of(&first)), &back(number(&first))).await;
    assert_eq!(late.status, 412);
    let done = server.send("POST", page, ROOT, &if_match(&tag_of(&second)), &back(number(&first))).await;
    assert_eq!((done.status, done.json()), (200, first.json()), "{}", done.body);
    let history = server.get("/api/v1/policies/history", ROOT).await.json();
    assert_eq!(history[0]["reason"], json!(format!("rollback to {}", number(&first))));
    assert_eq!(server.send("POST", page, ROOT, "", &back(7)).await.status, 404);
}
