//! Who may use the admin API.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use forebay_auth::{Action, User, Users, equal_in_constant_time};
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use crate::audit::AuditNote;
use crate::problem::Problem;
use crate::{Admin, Running};

/// A request whose sender has proven to be a user; what the user may do is asked for with [`Caller::may`].
pub(crate) struct Caller {
    admin: Admin,
    user: Arc<User>,
}

impl Caller {
    /// # Errors
    /// 403 when the user has no `admin` grant for `path`.
    pub(crate) fn may_administer(&self, path: &str) -> Result<&Running, Problem> {
        if self.user.may(Action::Admin, path) {
            return self.admin.running().ok_or_else(Problem::starting);
        }
        Err(Problem::new(StatusCode::FORBIDDEN, format!("this needs an admin grant for {path}")))
    }
}

impl FromRequestParts<Admin> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Self, Problem> {
        let running = admin.running().ok_or_else(Problem::starting)?;
        // One answer for all: it must not tell which access keys exist.
        let refused =
            || Problem::new(StatusCode::UNAUTHORIZED, "access key and secret key of an administrator are wanted");
        let user = authenticate(&running.users, &parts.headers).ok_or_else(refused)?;
        if let Some(note) = parts.extensions.get::<AuditNote>() {
            note.user(&user);
        }
        Ok(Self { admin: admin.clone(), user })
    }
}

/// Access key and secret key, as they were given.
fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (access_key, secret) = decoded.split_once(':')?;
    Some((access_key.to_owned(), secret.to_owned()))
}

/// Whom the request says it comes from, proven or not.
pub(crate) fn claimed_access_key(headers: &HeaderMap) -> Option<String> {
    credentials(headers).map(|(access_key, _)| access_key)
}

fn authenticate(users: &Users, headers: &HeaderMap) -> Option<Arc<User>> {
    let (access_key, secret) = credentials(headers)?;
    let user = users.find(&access_key).filter(|user| !user.access_key.is_empty());
    // An unknown user costs a comparison too.
    let expected = user.as_ref().map_or(secret.len().to_string(), |user| user.secret.expose().to_owned());
    let equal = equal_in_constant_time(&expected, &secret);
    user.filter(|user| equal && !user.secret.expose().is_empty())
}
