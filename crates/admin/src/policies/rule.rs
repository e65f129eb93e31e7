//! One rule at a time.

use axum::response::{IntoResponse, Response};
use forebay_cache::Cache;
use forebay_types::{EvictionOrder, PolicyRule};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::{IfMatch, check, expected_version, set, stale, with_version};
use crate::access::Caller;
use crate::input::{JsonBody, Parameters};
use crate::problem::{Answer, Problem};
use crate::responses::{Absent, BodyProblems, Problems, Stale};

/// How often an edit of one rule is retried because another edit was faster. Edits are rare: more conflicts mean a loop
/// somewhere.
const EDIT_TRIES: usize = 5;

/// The most rules below the paths of a user who does not administer everything: each change rewrites all rules.
const RULES_MAX: usize = 100;
/// Bytes of the paths of these rules. Each version in the history has all rules, and a cluster keeps 1 MiB of them.
const PATHS_BYTES_MAX: usize = 16 << 10;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfRule {
    /// The path of the rule: `/`, `/bucket` or `/bucket/prefix`.
    #[param(example = "/logs/", pattern = "^/")]
    path: String,
}

/// [`PolicyRule`] without its path, which the query names.
pub(crate) struct RuleSettings;

impl PartialSchema for RuleSettings {
    fn schema() -> RefOr<Schema> {
        let mut schema = PolicyRule::schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.properties.remove("path");
            object.required.retain(|name| name != "path");
        }
        schema
    }
}

impl ToSchema for RuleSettings {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        PolicyRule::schemas(schemas);
    }
}

/// The rule of a path.
#[utoipa::path(get, path = "/api/v1/policies/rule", tag = "policies", params(OfRule),
    responses((status = 200, body = PolicyRule, headers(("etag" = String))), Problems, Absent))]
pub(crate) async fn show_rule(caller: Caller, Parameters(OfRule { path }): Parameters<OfRule>) -> Answer<Response> {
    check_path(&path)?;
    let (rules, version) = caller.may_administer_under(&path)?.cache.policies();
    let rule = rules.rules().iter().find(|rule| rule.path == path).ok_or_else(|| no_rule(&path))?;
    Ok(with_version(rule, version))
}

/// Adds a rule, or replaces the one of the same path.
#[utoipa::path(put, path = "/api/v1/policies/rule", tag = "policies", params(OfRule, IfMatch), request_body = RuleSettings,
    responses((status = 200, body = PolicyRule, headers(("etag" = String))), Problems, BodyProblems, Stale))]
pub(crate) async fn put_rule(
    caller: Caller,
    Parameters(OfRule { path }): Parameters<OfRule>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Map<String, Value>>,
) -> Answer<Response> {
    check_path(&path)?;
    let cache = &caller.may_administer_rule(&path)?.cache;
    let rule = rule_of(&path, body)?;
    check(std::slice::from_ref(&rule))?;
    let version = edit(cache, &caller, expected_version(&headers)?, |rules| {
        let before = rules.iter().position(|other| other.path == path).map(|at| rules.remove(at));
        if !caller.covers("/") {
            check_share(&caller, rules, before.as_ref(), &rule)?;
        }
        rules.push(rule.clone());
        Ok(())
    });
    Ok(with_version(&rule, version.await?))
}

/// What an administrator of a part may take of what all share.
fn check_share(caller: &Caller, others: &[PolicyRule], before: Option<&PolicyRule>, rule: &PolicyRule) -> Answer<()> {
    if rule.memory_quota.is_some() && before.is_none_or(|before| before.memory_quota != rule.memory_quota) {
        let problem = "memoryQuota reserves memory in addition to cache.memory_size: only a user with an admin grant for \"/\" may set it";
        return Err(Problem::new(StatusCode::FORBIDDEN, problem));
    }
    check_cache_share(others, before, rule)?;
    let own: Vec<_> = others.iter().filter(|other| caller.may_administer_rule(&other.path).is_ok()).collect();
    if before.is_none() && own.len() >= RULES_MAX {
        let problem = format!("there are {} rules under what you administer, and {RULES_MAX} are the most", own.len());
        return Err(Problem::bad(problem));
    }
    let bytes = own.iter().map(|other| other.path.len()).sum::<usize>() + rule.path.len();
    if before.is_none() && bytes > PATHS_BYTES_MAX {
        let problem = format!(
            "the paths of the rules under what you administer would have {bytes} bytes, and {PATHS_BYTES_MAX} are the most"
        );
        return Err(Problem::bad(problem));
    }
    Ok(())
}

/// Who administers a part may limit what it takes of the cache, but does not get more of it. `before` is the rule of
/// the same path, and `others` are those of all other paths. A rule that is removed is one without settings.
fn check_cache_share(others: &[PolicyRule], before: Option<&PolicyRule>, rule: &PolicyRule) -> Answer<()> {
    let shorter = move || others.iter().filter(move |other| rule.path.starts_with(&other.path));
    let own = before.and_then(|before| before.cache_quota);
    let largest = own.or_else(|| shorter().filter_map(|other| other.cache_quota).min());
    let is_within = match (largest, rule.cache_quota) {
        (Some(largest), Some(quota)) => quota <= largest,
        (Some(_), None) => own.is_none(),
        (None, _) => true,
    };
    if !is_within {
        let problem = "only a user with an admin grant for \"/\" may remove or raise a cacheQuota, or set one above that of a shorter path";
        return Err(Problem::new(StatusCode::FORBIDDEN, problem));
    }
    let inherited = shorter().filter(|other| other.eviction.is_some()).max_by_key(|other| other.path.len());
    let is_last = |rule: Option<&PolicyRule>| {
        let order = rule.and_then(|rule| rule.eviction).or_else(|| inherited?.eviction);
        order == Some(EvictionOrder::Last)
    };
    if is_last(Some(rule)) && !is_last(before) {
        let problem = "eviction = LAST keeps data of this path before that of all others: only a user with an admin grant for \"/\" may set it";
        return Err(Problem::new(StatusCode::FORBIDDEN, problem));
    }
    Ok(())
}

/// Removes the rule of a path.
#[utoipa::path(delete, path = "/api/v1/policies/rule", tag = "policies", params(OfRule, IfMatch),
    responses((status = 204, description = "It is gone.", headers(("etag" = String))), Problems, Absent, Stale))]
pub(crate) async fn delete_rule(
    caller: Caller,
    Parameters(OfRule { path }): Parameters<OfRule>,
    headers: HeaderMap,
) -> Answer<Response> {
    check_path(&path)?;
    let cache = &caller.may_administer_rule(&path)?.cache;
    let version = edit(cache, &caller, expected_version(&headers)?, |rules| {
        let at = rules.iter().position(|rule| rule.path == path).ok_or_else(|| no_rule(&path))?;
        let before = rules.remove(at);
        let after = PolicyRule::for_path(&path);
        if caller.covers("/") { Ok(()) } else { check_cache_share(rules, Some(&before), &after) }
    });
    let tag = format!("\"{}\"", version.await?);
    Ok((StatusCode::NO_CONTENT, [(header::ETAG, tag)]).into_response())
}

fn check_path(path: &str) -> Answer<()> {
    if path.starts_with('/') { Ok(()) } else { Err(Problem::bad(format!("path={path:?} must begin with \"/\""))) }
}

fn no_rule(path: &str) -> Problem {
    Problem::absent(format!("no rule has the path {path:?}"))
}

/// The rule of a body, whose path is left out or the one of the query.
fn rule_of(path: &str, mut body: Map<String, Value>) -> Answer<PolicyRule> {
    let before = body.insert("path".to_owned(), path.into());
    if before.is_some_and(|before| before != path) {
        return Err(Problem::bad(format!("the body names another path than path={path:?}")));
    }
    serde_json::from_value(Value::Object(body)).map_err(|wrong| Problem::bad(format!("the body: {wrong}")))
}

/// Changes the rules as they are, once more when somebody else was faster and the caller named no version.
async fn edit(
    cache: &Cache,
    caller: &Caller,
    expected: Option<u64>,
    change: impl Fn(&mut Vec<PolicyRule>) -> Answer<()>,
) -> Answer<u64> {
    for _ in 0..EDIT_TRIES {
        let (present, version) = cache.policies();
        if expected.is_some_and(|expected| expected != version) {
            return Err(stale());
        }
        let mut rules = present.rules().to_vec();
        change(&mut rules)?;
        match set(cache, rules, Some(version), caller.name(), "edit").await {
            Err(problem) if problem.status == StatusCode::PRECONDITION_FAILED => {}
            done => return done,
        }
    }
    Err(stale())
}
