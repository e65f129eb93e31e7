//! Sessions of the console.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Answer, READER, ROOT, Server};

const HOUR: Duration = Duration::from_secs(3600);

async fn log_in(server: &Server, access_key: &str, secret_key: &str) -> Answer {
    let login = json!({ "accessKey": access_key, "secretKey": secret_key }).to_string();
    server.send("POST", "/api/v1/session", None, "Content-Type: application/json\r\n", &login).await
}

/// The cookie and the session.
async fn begin(server: &Server, access_key: &str, secret_key: &str) -> (String, Value) {
    let answer = log_in(server, access_key, secret_key).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    (format!("Cookie: other=1; {cookie}\r\n"), answer.json())
}

async fn root(server: &Server) -> (String, Value) {
    begin(server, "ROOT", "hunter2hunter2").await
}

async fn status_with(server: &Server, headers: &str) -> u16 {
    server.send("GET", "/api/v1/status", None, headers, "").await.status
}

#[tokio::test]
async fn a_session_begins_with_keys_and_ends_when_it_is_told() {
    let server = Server::ready().await;
    let answer = log_in(&server, "ROOT", "hunter2hunter2").await;
    let cookie = answer.header("set-cookie").unwrap();
    let (id, flags) = cookie.strip_prefix("forebay_session=").unwrap().split_once("; ").unwrap();
    assert_eq!((id.len(), flags), (64, "Path=/; HttpOnly; SameSite=Strict"));
    assert!(!answer.body.contains(id) && !answer.body.contains("hunter2"));

    let (cookie, session) = root(&server).await;
    assert_eq!(session["user"], "root");
    assert_eq!(session["csrf"].as_str().unwrap().len(), 64);
    assert_eq!(status_with(&server, &cookie).await, 200);
    assert_eq!(server.send("GET", "/api/v1/session", None, &cookie, "").await.json(), session);

    let csrf = format!("{cookie}x-forebay-csrf: {}\r\n", session["csrf"].as_str().unwrap());
    let ended = server.send("DELETE", "/api/v1/session", None, &csrf, "").await;
    assert_eq!(ended.status, 204);
    assert!(ended.header("set-cookie").unwrap().ends_with("; Max-Age=0"));
    assert_eq!(status_with(&server, &cookie).await, 401);
    assert_eq!(server.send("GET", "/api/v1/session", None, &cookie, "").await.status, 401);
}

#[tokio::test]
async fn only_administrators_log_in() {
    let server = Server::ready().await;
    for (access_key, secret_key, status) in [
        ("ROOT", "wrong", 401),
        ("NOBODY", "hunter2hunter2", 401),
        ("", "", 401),
        ("READER", "reader-secret", 403),
        ("TEAM", "team-secret", 200),
    ] {
        let answer = log_in(&server, access_key, secret_key).await;
        assert_eq!(answer.status, status, "{access_key}");
        assert_eq!(answer.header("set-cookie").is_some(), status == 200);
    }
    let forms = "Content-Type: application/x-www-form-urlencoded\r\n";
    assert_eq!(server.send("POST", "/api/v1/session", None, forms, "accessKey=ROOT").await.status, 415);
    for body in ["", "{}", "{\"accessKey\":\"ROOT\",\"secretKey\":\"hunter2hunter2\",\"more\":1}"] {
        assert_eq!(server.send("POST", "/api/v1/session", None, "", body).await.status, 400, "{body}");
    }
    assert_eq!(server.get("/api/v1/session", ROOT).await.status, 401, "keys are no session");
    assert_eq!(server.get("/api/v1/session", READER).await.status, 401);
}

#[tokio::test]
async fn a_session_changes_something_only_with_its_token() {
    let server = Server::ready().await;
    let (cookie, session) = root(&server).await;
    let (_, other) = root(&server).await;
    let put = async |headers: String| server.send("PUT", "/api/v1/policies", None, &headers, "[]").await.status;
    let token = |session: &Value| format!("{cookie}x-forebay-csrf: {}\r\n", session["csrf"].as_str().unwrap());
    assert_eq!(put(cookie.clone()).await, 403);
    assert_eq!(put(format!("{cookie}x-forebay-csrf: \r\n")).await, 403);
    assert_eq!(put(token(&other)).await, 403, "the token of another session");
    assert_eq!(put(token(&session)).await, 200);
    assert_eq!(server.send("DELETE", "/api/v1/session", None, &cookie, "").await.status, 403);
}

#[tokio::test]
async fn pages_of_other_origins_change_nothing_even_with_cookie_and_token() {
    let server = Server::ready().await;
    let (cookie, session) = root(&server).await;
    let good = format!("{cookie}x-forebay-csrf: {}\r\n", session["csrf"].as_str().unwrap());
    for (headers, status) in [
        ("Sec-Fetch-Site: same-origin\r\n", 200),
        ("Sec-Fetch-Site: none\r\n", 200),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-origin\r\nOrigin: https://proxy.example\r\n", 200),
        ("Origin: http://admin\r\n", 200),
        ("Origin: http://admin:8080\r\n", 403),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
    ] {
        let answer = server.send("PUT", "/api/v1/policies", None, &format!("{good}{headers}"), "[]").await;
        assert_eq!(answer.status, status, "{headers}");
    }
    let login = "{\"accessKey\":\"ROOT\",\"secretKey\":\"hunter2hunter2\"}";
    for header in ["Sec-Fetch-Site: cross-site\r\n", "Origin: http://evil.example\r\n"] {
        assert_eq!(server.send("POST", "/api/v1/session", None, header, login).await.status, 403, "{header}");
    }
    assert_eq!(status_with(&server, &format!("{cookie}Sec-Fetch-Site: cross-site\r\n")).await, 403);
}

#[tokio::test]
async fn a_session_ends_after_an_hour_of_rest_and_after_twelve_hours() {
    let server = Server::ready().await;
    let (idle, _) = root(&server).await;
    let (busy, session) = root(&server).await;
    let expires = session["expiresMs"].as_u64().unwrap();
    for half_hours in 1..24 {
        server.clock.advance(HOUR / 2);
        let answer = server.send("GET", "/api/v1/session", None, &busy, "").await;
        assert_eq!(answer.status, 200, "after {half_hours} half hours");
        let now_expires = answer.json()["expiresMs"].as_u64().unwrap();
        assert!(now_expires > expires && now_expires <= expires + 11 * 3_600_000);
        if half_hours == 2 {
            assert_eq!(status_with(&server, &idle).await, 401, "not used for an hour");
        }
    }
    server.clock.advance(HOUR / 2);
    assert_eq!(status_with(&server, &busy).await, 401, "used all the time, for twelve hours");
}

#[tokio::test]
async fn a_session_ends_with_its_user_and_the_user_s_keys() {
    let server = Server::ready().await;
    let user = |secret: &str, path: &str| {
        let grants = format!("grants = [{{ path = \"{path}\", allow = [\"admin\"] }}]");
        format!("[[user]]\nname = \"ops\"\naccess_key = \"OPS\"\nsecret_key = \"{secret}\"\n{grants}\n")
    };
    server.set_users(&user("first-secret", "/"));
    let (cookie, _) = begin(&server, "OPS", "first-secret").await;
    assert_eq!(status_with(&server, &cookie).await, 200);
    server.set_users(&user("first-secret", "/other"));
    assert_eq!(status_with(&server, &cookie).await, 403, "grants are those of now");
    server.set_users(&user("second-secret", "/"));
    assert_eq!(status_with(&server, &cookie).await, 401);
    server.set_users(&user("first-secret", "/"));
    assert_eq!(status_with(&server, &cookie).await, 401, "an ended session does not come back");
    let (cookie, _) = begin(&server, "OPS", "first-secret").await;
    server.set_users("");
    assert_eq!(status_with(&server, &cookie).await, 401);
}

#[tokio::test]
async fn of_too_many_sessions_of_a_user_the_oldest_end() {
    let server = Server::ready().await;
    let grants = "grants = [{ path = \"/\", allow = [\"admin\"] }]";
    server
        .set_users(&format!("[[user]]\nname = \"ops\"\naccess_key = \"OPS\"\nsecret_key = \"ops-secret\"\n{grants}\n"));
    let (of_other, _) = begin(&server, "OPS", "ops-secret").await;
    let (first, _) = root(&server).await;
    let (second, _) = root(&server).await;
    for _ in 0..19 {
        root(&server).await;
    }
    assert_eq!((status_with(&server, &first).await, status_with(&server, &second).await), (401, 200));
    assert_eq!(status_with(&server, &of_other).await, 200);
}
