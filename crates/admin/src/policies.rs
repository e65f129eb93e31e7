//! Reading, checking and replacing path policies.

pub(crate) mod history;
pub(crate) mod rule;

use axum::Json;
use axum::response::{IntoResponse, Response};
use forebay_cache::{Cache, ErrorKind};
use forebay_types::{ObjectPath, PolicyRule, PolicySet};
use http::{HeaderMap, StatusCode, header};
use serde::Serialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::api::{PolicyCheck, ResolvedPolicy};
use crate::input::{self, JsonBody, Nothing, OfObject, Parameters};
use crate::problem::{Answer, Problem};
use crate::responses::{BodyProblems, Problems, Stale};

/// `If-Match` as the description shows it; [`expected_version`] reads it.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
struct IfMatch {
    /// The ETag of an earlier answer: the request is refused if the policies have changed since. `*` and none: it is
    /// not.
    #[expect(dead_code, reason = "read from the headers, where its absence shows")]
    #[param(rename = "If-Match", nullable = false, pattern = r#"^(\*|[0-9]{1,15}|"[0-9]{1,15}")$"#)]
    if_match: Option<String>,
}

/// All rules, the longest path first; the `ETag` is the version that `If-Match` takes.
#[utoipa::path(get, path = "/api/v1/policies", tag = "policies",
    responses((status = 200, body = Vec<PolicyRule>, headers(("etag" = String))), Problems))]
pub(crate) async fn list_policies(caller: Caller, Parameters(Nothing {}): Parameters<Nothing>) -> Answer<Response> {
    let (rules, version) = caller.may_administer("/")?.cache.policies();
    Ok(with_version(&*rules, version))
}

/// Replaces all rules, from now on and for the starts to come.
#[utoipa::path(put, path = "/api/v1/policies", tag = "policies", params(IfMatch), request_body = Vec<PolicyRule>,
    responses((status = 200, body = Vec<PolicyRule>, headers(("etag" = String))), Problems, BodyProblems, Stale))]
pub(crate) async fn replace_policies(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
    headers: HeaderMap,
    JsonBody(rules): JsonBody<Vec<PolicyRule>>,
) -> Answer<Response> {
    let cache = &caller.may_administer("/")?.cache;
    check(&rules)?;
    set(cache, rules, expected_version(&headers)?, caller.name(), "edit").await?;
    let (rules, version) = cache.policies();
    Ok(with_version(&*rules, version))
}

/// What replacing all rules by these would change. Changes nothing.
#[utoipa::path(post, path = "/api/v1/policies/check", tag = "policies", request_body = Vec<PolicyRule>,
    responses((status = 200, body = PolicyCheck), Problems, BodyProblems))]
pub(crate) async fn check_policies(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
    JsonBody(rules): JsonBody<Vec<PolicyRule>>,
) -> Answer<Json<PolicyCheck>> {
    let cache = &caller.may_administer("/")?.cache;
    let (present, version) = cache.policies();
    let checked = cache.check_policies(rules).map_err(|error| Problem::bad(error.to_string()))?;
    let changes = present.changes_to(&checked);
    Ok(Json(PolicyCheck { version, changes }))
}

/// The settings that hold for an object, each with the rule that gives it.
#[utoipa::path(get, path = "/api/v1/policies/resolve", tag = "policies", params(OfObject),
    responses((status = 200, body = ResolvedPolicy), Problems))]
pub(crate) async fn resolve_policy(
    caller: Caller,
    Parameters(OfObject { path }): Parameters<OfObject>,
) -> Answer<Json<ResolvedPolicy>> {
    let object = input::object_path(&path)?;
    let (rules, version) = caller.may_administer(&path)?.cache.policies();
    Ok(Json(resolved(&rules, version, path, &object)))
}

fn resolved(rules: &PolicySet, version: u64, path: String, object: &ObjectPath) -> ResolvedPolicy {
    // The rules are in order of the lengths of their paths.
    let rule = rules.rules().iter().find(|rule| path.starts_with(&rule.path)).map(|rule| rule.path.clone());
    ResolvedPolicy { rule, settings: rules.explain(object), version, path }
}

fn check(rules: &[PolicyRule]) -> Answer<PolicySet> {
    PolicySet::new(rules.to_vec()).map_err(|invalid| Problem::bad(invalid.to_string()))
}

/// Replaces the rules, if they have the version still.
///
/// # Errors
/// 412 when they have not.
async fn set(cache: &Cache, rules: Vec<PolicyRule>, version: Option<u64>, by: &str, reason: &str) -> Answer<u64> {
    cache.set_policies(rules, version, by, reason).await.map_err(|error| match error.kind {
        ErrorKind::Conflict => stale(),
        _ => error.into(),
    })
}

fn stale() -> Problem {
    Problem::new(StatusCode::PRECONDITION_FAILED, "the policies have been changed since: read them again")
}

/// An answer with the version as its tag.
fn with_version(body: &impl Serialize, version: u64) -> Response {
    ([(header::ETAG, format!("\"{version}\""))], Json(body)).into_response()
}

/// The version in `If-Match`; `None` without the header, and for `*`.
fn expected_version(headers: &HeaderMap) -> Answer<Option<u64>> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let wrong = || Problem::bad("If-Match must be the ETag of an earlier answer, in quotes");
    match value.to_str().map_err(|_| wrong())? {
        "*" => Ok(None),
        text => {
            let digits = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { digits.parse().map(Some).map_err(|_| wrong()) } else { Err(wrong()) }
        }
    }
}
