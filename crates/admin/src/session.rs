//! Sessions of the console: a cookie instead of keys, so that no page has to keep secrets.

pub(crate) mod cookie;
pub(crate) mod table;
pub(crate) mod throttle;

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

use crate::Admin;
use crate::access::{self, Caller};
use crate::api::{Login, Session};
use crate::input::{JsonBody, Nothing, Parameters};
use crate::origin;
use crate::problem::{Answer, Problem};
use crate::responses::{BodyProblems, Problems};
use cookie::cookie;

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
    Ok(([(header::SET_COOKIE, cookie(&id, admin.is_encrypted()))], Json(session)).into_response())
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
    let forget = format!("{}; Max-Age=0", cookie("", admin.is_encrypted()));
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, forget)]).into_response())
}

fn no_session() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "there is no session: keys came with the request")
}
