//! The audit log of the admin API: one layer around all of it, so that no handler can forget.

pub(crate) mod note;

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use forebay_auth::User;
use forebay_logs::{AuditEntry, Source};
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Map, Value};

use crate::Admin;
use crate::access::{Peer, claimed_access_key};
use note::AuditNote;

/// Largest answer that is looked into for what was wrong, in bytes: problems are one line of text.
const PROBLEM_BYTES_MAX: u64 = 64 << 10;
/// Largest login, in bytes: two keys.
const LOGIN_BYTES_MAX: usize = 64 << 10;
/// For requests below this path, the audit log names the version of the policies.
const POLICIES: &str = "/api/v1/policies";

/// Runs the request and logs its outcome. A request that may change something runs to completion even if the client
/// disconnects, so it always has an entry that says how it ended.
pub(crate) async fn record(State(admin): State<Admin>, mut request: Request, next: Next) -> Response {
    if !admin.audit().is_on() || !request.uri().path().starts_with("/api/") {
        return next.run(request).await;
    }
    let note = AuditNote::default();
    request.extensions_mut().insert(note.clone());
    let mut about = About::of(&request, &admin);
    if about.is_login {
        (request, about.access_key) = login(request).await;
    }
    if !about.changes {
        let response = next.run(request).await;
        return about.write(&admin, &note, response).await;
    }
    forebay_env::spawn(async move {
        let response = next.run(request).await;
        about.write(&admin, &note, response).await
    })
    .join()
    .await
}

/// What the layer itself sees of a request.
struct About {
    operation: String,
    changes: bool,
    address: Option<IpAddr>,
    access_key: Option<String>,
    user_agent: Option<String>,
    /// The parameters: what the request is about.
    query: Option<String>,
    is_login: bool,
    is_policies: bool,
    version: Option<u64>,
}

impl About {
    fn of(request: &Request, admin: &Admin) -> Self {
        let (path, headers) = (request.uri().path(), request.headers());
        let is_policies = path.starts_with(POLICIES);
        Self {
            operation: format!("{} {path}", request.method()),
            changes: !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS),
            address: request.extensions().get::<Peer>().map(|peer| peer.0),
            access_key: claimed_access_key(headers),
            user_agent: text(headers, header::USER_AGENT),
            query: request.uri().query().map(str::to_owned),
            is_login: is_login(request),
            is_policies,
            version: is_policies.then(|| version(admin)).flatten(),
        }
    }

    /// A login proves who somebody is.
    fn logged_in(&self, admin: &Admin, status: StatusCode) -> Option<Arc<User>> {
        let access_key = self.access_key.as_deref().filter(|_| self.is_login && status.is_success())?;
        admin.running()?.users.find(access_key)
    }

    async fn write(self, admin: &Admin, note: &AuditNote, response: Response) -> Response {
        let status = response.status();
        if !admin.audit().wants(self.changes, status.as_u16()) {
            return response;
        }
        let (response, error) = problem(response).await;
        let user = note.proven().or_else(|| self.logged_in(admin, status));
        let mut details = Map::new();
        if let Some(query) = self.query {
            details.insert("parameters".to_owned(), query.into());
        }
        if self.is_policies && self.changes {
            details.insert("versionBefore".to_owned(), self.version.into());
            details.insert("versionAfter".to_owned(), version(admin).into());
        }
        // Where what was made is: `/api/v1/jobs/ID`.
        if status == StatusCode::CREATED
            && let Some(location) = text(response.headers(), header::LOCATION)
        {
            details.insert("made".to_owned(), location.into());
        }
        admin.audit().write(&AuditEntry {
            source: Source::Admin,
            operation: &self.operation,
            user: user.as_ref().map(|user| user.name.as_str()),
            access_key: user.as_ref().map(|user| user.access_key.as_str()).or(self.access_key.as_deref()),
            address: self.address,
            user_agent: self.user_agent.as_deref(),
            status: Some(status.as_u16()),
            error: error.as_deref(),
            details,
            ..AuditEntry::default()
        });
        response
    }
}

fn is_login(request: &Request) -> bool {
    request.uri().path() == "/api/v1/session" && request.method() == Method::POST
}

/// The request again, and the access key in its body. A body that is too long is left to the handler to refuse, without
/// its bytes.
async fn login(request: Request) -> (Request, Option<String>) {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, LOGIN_BYTES_MAX).await.unwrap_or_default();
    let access_key = serde_json::from_slice::<Value>(&bytes)
        .ok()
        .and_then(|login| Some(login.get("accessKey")?.as_str()?.to_owned()));
    (Request::from_parts(parts, Body::from(bytes)), access_key)
}

fn version(admin: &Admin) -> Option<u64> {
    admin.running().map(|running| running.cache.policies().1)
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// What a problem says is wrong; the answer stays as it is.
async fn problem(response: Response) -> (Response, Option<String>) {
    let is_problem = response.status().is_client_error() || response.status().is_server_error();
    let length = response.body().size_hint().exact();
    if !is_problem || length.is_none_or(|length| length > PROBLEM_BYTES_MAX) {
        return (response, None);
    }
    let (parts, body) = response.into_parts();
    // A body of known, small size is in memory already.
    let Ok(bytes) = axum::body::to_bytes(body, PROBLEM_BYTES_MAX as usize).await else {
        return (Response::from_parts(parts, Body::empty()), None);
    };
    let detail = serde_json::from_slice::<Value>(&bytes)
        .ok()
        .and_then(|problem| Some(problem.get("detail")?.as_str()?.to_owned()));
    (Response::from_parts(parts, Body::from(bytes)), detail)
}
