//! Reading and replacing path policies.

use axum::Json;
use axum::body::Bytes;
use axum::extract::Query;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use forebay_types::{BucketName, ObjectKey, ObjectPath, PathPolicy, PolicyRule, PolicySet};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::access::Caller;
use crate::problem::Problem;

/// All rules; the `ETag` is the version that `If-Match` of [`replace`] wants.
pub(crate) async fn list(caller: Caller) -> Result<Response, Problem> {
    let (rules, version) = caller.may_administer("/")?.cache.policies();
    Ok(answer(&rules, version))
}

/// Replaces all rules, from now on and for the starts to come. Answers what [`list`] answers.
pub(crate) async fn replace(
    caller: Caller,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let running = caller.may_administer("/")?;
    let body = body.map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))?;
    let rules: Vec<PolicyRule> =
        serde_json::from_slice(&body).map_err(|e| bad(format!("a list of rules is wanted: {e}")))?;
    PolicySet::new(rules.clone()).map_err(|invalid| bad(invalid.to_string()))?;
    let version = expected_version(&headers)?;
    running.cache.set_policies(rules, version, "admin", "edit").await?;
    let (rules, version) = running.cache.policies();
    Ok(answer(&rules, version))
}

fn answer(rules: &PolicySet, version: u64) -> Response {
    ([(header::ETAG, format!("\"{version}\""))], Json(rules)).into_response()
}

/// The version in `If-Match`; `None` without the header, and for `*`.
fn expected_version(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let wrong = || bad("If-Match must be the ETag of an earlier answer".to_owned());
    match value.to_str().map_err(|_| wrong())? {
        "*" => Ok(None),
        quoted => quoted.trim_matches('"').parse().map(Some).map_err(|_| wrong()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveParameters {
    path: String,
}

/// The settings that hold for one object, each given.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resolved {
    path: String,
    write_mode: forebay_types::WriteMode,
    write_replicas: u32,
    eviction: forebay_types::EvictionOrder,
    cache_quota: Option<Quota>,
    memory_quota: Option<Quota>,
    metadata_ttl: forebay_types::Period,
    cache_reads: bool,
    pinned_full: forebay_types::PinnedFull,
    durability: forebay_types::Durability,
}

/// A quota, and the path whose objects share it.
#[derive(Serialize)]
struct Quota {
    path: String,
    size: forebay_types::ByteSize,
}

pub(crate) async fn resolve(
    caller: Caller,
    parameters: Result<Query<ResolveParameters>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(ResolveParameters { path }) =
        parameters.map_err(|_| bad("give one parameter: path=/bucket/key".to_owned()))?;
    let object = object_path(&path)?;
    let policy = caller.may_administer(&path)?.cache.resolve(&object);
    Ok(Json(resolved(path, policy)).into_response())
}

fn resolved(path: String, policy: PathPolicy) -> Resolved {
    let quota = |(path, size)| Quota { path, size };
    Resolved {
        path,
        write_mode: policy.write_mode,
        write_replicas: policy.write_replicas,
        eviction: policy.eviction,
        cache_quota: policy.cache_quota.map(quota),
        memory_quota: policy.memory_quota.map(quota),
        metadata_ttl: policy.metadata_ttl,
        cache_reads: policy.cache_reads,
        pinned_full: policy.pinned_full,
        durability: policy.durability,
    }
}

fn object_path(path: &str) -> Result<ObjectPath, Problem> {
    let parts = path.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    let (bucket, key) = parts.ok_or_else(|| bad(format!("path={path:?} must be /bucket/key")))?;
    let bucket = BucketName::new(bucket).map_err(|invalid| bad(format!("path={path:?}: {invalid}")))?;
    let key = ObjectKey::new(key).map_err(|invalid| bad(format!("path={path:?}: {invalid}")))?;
    Ok(ObjectPath { bucket, key })
}

fn bad(detail: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}
