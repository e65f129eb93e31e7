//! Sessions of the console: a cookie in the place of keys, so that no page has to keep secrets.

mod table;
mod throttle;

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::Admin;
use crate::access::{self, Caller};
use crate::api::{Login, Session};
use crate::input::{JsonBody, Nothing, Parameters};
use crate::openapi::{BodyProblems, Problems};
use crate::origin;
use crate::problem::{Answer, Problem};
pub(crate) use table::{Found, Sessions};
pub(crate) use throttle::Throttle;

const COOKIE: &str = "forebay_session";

/// Begins a session with the keys of an administrator.
#[utoipa::path(post, path = "/api/v1/session", tag = "session", request_body = Login, security(()),
    responses((status = 200, body = Session, description = "The session; its id is in the cookie.",
        headers(("set-cookie" = String, description = "`forebay_session`, HttpOnly, SameSite=Strict, and Secure under TLS."))),
        Problems, BodyProblems))]
pub(crate) async fn begin_session(
    State(admin): State<Admin>,
    parts: Parts,
    Parameters(Nothing {}): Parameters<Nothing>,
    JsonBody(login): JsonBody<Login>,
) -> Answer<Response> {
    let running = admin.running().ok_or_else(Problem::starting)?;
    origin::refuse_other_sites(&parts)?;
    origin::refuse_other_origins(&parts)?;
    let peer = access::peer(&parts);
    let user = access::authenticate(&admin, &running.users, peer, &login.access_key, &login.secret_key)?;
    if !access::is_administrator(&user) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "this needs an admin grant"));
    }
    tracing::info!(user = user.name, %peer, "console session begun");
    let (id, session) = admin.sessions().begin(admin.env(), user);
    Ok(([(header::SET_COOKIE, cookie(&admin, &id))], Json(session)).into_response())
}

/// The session of the cookie.
#[utoipa::path(get, path = "/api/v1/session", tag = "session",
    responses((status = 200, body = Session), Problems))]
pub(crate) async fn show_session(caller: Caller, Parameters(Nothing {}): Parameters<Nothing>) -> Answer<Json<Session>> {
    let found = caller.session().ok_or_else(no_session)?;
    Ok(Json(found.session.clone()))
}

/// Ends the session of the cookie.
#[utoipa::path(delete, path = "/api/v1/session", tag = "session",
    responses((status = 204, description = "It has ended."), Problems))]
pub(crate) async fn end_session(
    State(admin): State<Admin>,
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Response> {
    let found = caller.session().ok_or_else(no_session)?;
    admin.sessions().end(found);
    let forget = format!("{}; Max-Age=0", cookie(&admin, ""));
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, forget)]).into_response())
}

fn no_session() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "there is no session: keys came with the request")
}

fn cookie(admin: &Admin, id: &str) -> String {
    let secure = if admin.is_encrypted() { "; Secure" } else { "" };
    format!("{COOKIE}={id}; Path=/; HttpOnly; SameSite=Strict{secure}")
}

/// The id in the cookie, when there is one.
pub(crate) fn of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, id)| id)
}

/// The challenge for scripts of the console: to one that it does not know a browser shows no dialog for keys, which it would then keep.
pub(crate) const CHALLENGE: HeaderValue = HeaderValue::from_static("Session realm=\"forebay\"");
