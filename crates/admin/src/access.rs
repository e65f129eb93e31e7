//! Who may use the admin API.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use forebay_auth::{Action, User, Users, equal_in_constant_time};
use forebay_env::Requester;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::audit::note::AuditNote;
use crate::origin;
use crate::problem::{Answer, Problem};
use crate::session::cookie;
use crate::session::table::ValidSession;
use crate::{Admin, Running};

/// The header that goes with a session's requests that change something.
const CSRF_HEADER: &str = "x-forebay-csrf";

/// The address that a request came from.
#[derive(Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// A request whose sender has proven to be a user; what the user may do is asked for with the methods.
pub(crate) struct Caller {
    admin: Admin,
    user: Arc<User>,
    /// The session that proved it, when it was not a key.
    session: Option<ValidSession>,
}

impl Caller {
    /// # Errors
    /// 403 when the user has no `admin` grant for `path`.
    pub(crate) fn may_administer(&self, path: &str) -> Answer<&Running> {
        self.running_if(self.user.may(Action::Admin, path), path)
    }

    /// As [`Caller::may_administer`], for all objects under `/`, `/bucket` or `/bucket/prefix`. The prefix is of bytes:
    /// `/b/log` is about `/b/logs` too, which a grant for `/b/log` does not cover.
    pub(crate) fn may_administer_under(&self, path: &str) -> Answer<&Running> {
        let is_bucket = path.matches('/').count() == 1;
        self.running_if(self.covers_all_that_begins_with(path) || is_bucket && self.user.may(Action::Admin, path), path)
    }

    /// As [`Caller::may_administer_under`], for the rule of a path: a rule of `/team` holds for the bucket `team2` too.
    pub(crate) fn may_administer_rule(&self, path: &str) -> Answer<&Running> {
        self.running_if(self.covers_all_that_begins_with(path), path)
    }

    /// # Errors
    /// 403 when the user administers nothing at all.
    pub(crate) fn is_administrator(&self) -> Answer<&Running> {
        self.running_if(is_administrator(&self.user), "something")
    }

    /// Whether the user may administer all objects under a path.
    pub(crate) fn covers(&self, path: &str) -> bool {
        self.may_administer_under(path).is_ok()
    }

    /// For whom the cache works.
    pub(crate) fn requester(&self) -> Requester {
        self.user.requester()
    }

    /// The user's name, for histories.
    pub(crate) fn name(&self) -> &str {
        &self.user.name
    }

    pub(crate) fn session(&self) -> Option<&ValidSession> {
        self.session.as_ref()
    }

    fn covers_all_that_begins_with(&self, path: &str) -> bool {
        self.user.may_for_all_that_begins_with(Action::Admin, path)
    }

    fn running_if(&self, may: bool, path: &str) -> Answer<&Running> {
        if may {
            return self.admin.running().ok_or_else(Problem::starting);
        }
        Err(Problem::new(StatusCode::FORBIDDEN, format!("this needs an admin grant for {path}")))
    }
}

/// Whether the user administers anything.
pub(crate) fn is_administrator(user: &User) -> bool {
    user.grants.iter().any(|grant| grant.allow.contains(&Action::Admin))
}

impl FromRequestParts<Admin> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Answer<Self> {
        let running = admin.running().ok_or_else(Problem::starting)?;
        if parts.headers.contains_key(header::AUTHORIZATION) {
            origin::refuse_other_sites(parts)?;
            // A browser that has once asked for keys sends them along with whatever a page asks.
            if !parts.method.is_safe() {
                origin::refuse_other_origins(parts)?;
            }
            let user = by_keys(admin, &running.users, parts)?;
            note(parts, &user);
            return Ok(Self { admin: admin.clone(), user, session: None });
        }
        let found = cookie::of(&parts.headers).and_then(|id| admin.sessions().find(admin.env(), &running.users, id));
        let found = found.ok_or_else(refused)?;
        note(parts, &found.user);
        if !parts.method.is_safe() {
            origin::refuse_other_origins(parts)?;
            check_csrf(&parts.headers, &found)?;
        }
        origin::refuse_other_sites(parts)?;
        Ok(Self { admin: admin.clone(), user: Arc::clone(&found.user), session: Some(found) })
    }
}

/// Tells the audit log whom the request has proven to come from.
fn note(parts: &Parts, user: &Arc<User>) {
    if let Some(note) = parts.extensions.get::<AuditNote>() {
        note.user(user);
    }
}

/// One answer for all: it must not tell which access keys exist.
pub(crate) fn refused() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "give the access key and secret key of a user with an admin grant")
}

fn check_csrf(headers: &HeaderMap, found: &ValidSession) -> Answer<()> {
    let given = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if equal_in_constant_time(&found.session.csrf, given) {
        return Ok(());
    }
    let problem =
        format!("a change with a session cookie needs the CSRF token of the session in the header {CSRF_HEADER}");
    Err(Problem::new(StatusCode::FORBIDDEN, problem))
}

fn by_keys(admin: &Admin, users: &Users, parts: &Parts) -> Answer<Arc<User>> {
    let (access_key, secret) = basic(parts.headers.get(header::AUTHORIZATION)).ok_or_else(refused)?;
    authenticate(admin, users, peer(parts), &access_key, &secret)
}

/// Who sent a request. Only requests of tests come from nowhere.
pub(crate) fn peer(parts: &Parts) -> IpAddr {
    parts.extensions.get().map_or(IpAddr::from([0, 0, 0, 0]), |Peer(address)| *address)
}

/// The access key and the secret of a header of HTTP Basic.
fn basic(value: Option<&HeaderValue>) -> Option<(String, String)> {
    let (scheme, encoded) = value?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    decoded.split_once(':').map(|(access_key, secret)| (access_key.to_owned(), secret.to_owned()))
}

/// Whom the request says it comes from, proven or not.
pub(crate) fn claimed_access_key(headers: &HeaderMap) -> Option<String> {
    basic(headers.get(header::AUTHORIZATION)).map(|(access_key, _)| access_key)
}

/// The user whose keys these are.
///
/// # Errors
/// 401, and 429 after too many failures.
pub(crate) fn authenticate(
    admin: &Admin,
    users: &Users,
    peer: IpAddr,
    access_key: &str,
    secret: &str,
) -> Answer<Arc<User>> {
    let attempt = admin.throttle().attempt(admin.env(), peer, access_key)?;
    let user = users.find(access_key).filter(|user| !user.access_key.is_empty());
    // An unknown user costs a comparison too.
    let expected = user.as_ref().map_or(secret.len().to_string(), |user| user.secret.expose().to_owned());
    let equal = equal_in_constant_time(&expected, secret);
    let user = user.filter(|user| equal && !user.secret.expose().is_empty());
    user.ok_or_else(|| {
        admin.throttle().failed(admin.env(), attempt);
        tracing::warn!(%peer, "admin login refused: wrong access key or secret key");
        refused()
    })
}
