//! Versions that were, and the way back to them.

use axum::Json;
use axum::response::Response;
use forebay_cache::PolicyVersion;
use forebay_types::PolicyRule;
use http::HeaderMap;

use super::{IfMatch, expected_version, set, with_version};
use crate::access::Caller;
use crate::api::{PolicyRules, Rollback};
use crate::input::{JsonBody, Nothing, Parameters, Segment};
use crate::problem::Answer;
use crate::responses::{Absent, BodyProblems, Problems, Stale};

/// The versions that are kept, the newest first.
#[utoipa::path(get, path = "/api/v1/policies/history", tag = "policies",
    responses((status = 200, body = Vec<PolicyVersion>), Problems))]
pub(crate) async fn list_policy_versions(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<Vec<PolicyVersion>>> {
    Ok(Json(caller.may_administer("/")?.cache.policy_history().await?))
}

/// The rules of a version that is kept.
#[utoipa::path(get, path = "/api/v1/policies/history/{version}", tag = "policies",
    params(("version" = u64, Path, description = "A version of the history.")),
    responses((status = 200, body = PolicyRules), Problems, Absent))]
pub(crate) async fn show_policy_version(
    caller: Caller,
    Segment(version): Segment<u64>,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<PolicyRules>> {
    let rules = caller.may_administer("/")?.cache.policies_at(version).await?;
    Ok(Json(PolicyRules { version, rules }))
}

/// Makes the rules of an earlier version those of a new one.
#[utoipa::path(post, path = "/api/v1/policies/rollback", tag = "policies", params(IfMatch), request_body = Rollback,
    responses((status = 200, body = Vec<PolicyRule>, headers(("etag" = String))), Problems, Absent, BodyProblems, Stale))]
pub(crate) async fn roll_back_policies(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
    headers: HeaderMap,
    JsonBody(Rollback { version }): JsonBody<Rollback>,
) -> Answer<Response> {
    let cache = &caller.may_administer("/")?.cache;
    let expected = expected_version(&headers)?;
    let rules = cache.policies_at(version).await?;
    set(cache, rules, expected, caller.name(), &format!("rollback to {version}")).await?;
    let (rules, version) = cache.policies();
    Ok(with_version(&*rules, version))
}
