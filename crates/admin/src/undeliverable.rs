//! What the under store refuses, and what to do about it.

use axum::Json;
use forebay_cache::UndeliverablePage;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::input::{self, Parameters};
use crate::problem::Answer;
use crate::responses::{Absent, Problems, StorageProblems};

/// Objects in one answer, at most and when nothing is said.
const OBJECTS_MAX: usize = 1000;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Listing {
    /// `/`, `/bucket`, or `/bucket/prefix`.
    #[param(example = "/logs/2026/", format = "place")]
    prefix: String,
    /// `next` of the page before.
    #[param(example = "/logs/2026/today", format = "object-path")]
    after: Option<String>,
    /// Most objects in the answer; 1,000 when it is not given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Objects and deletes that the under store has refused three times or more, in order of their paths. In a cluster, any
/// worker answers for all, and names those that do not answer it.
#[utoipa::path(get, path = "/api/v1/undeliverable", tag = "objects", params(Listing),
    responses((status = 200, body = UndeliverablePage), Problems))]
pub(crate) async fn list_undeliverable(
    caller: Caller,
    Parameters(Listing { prefix, after, limit }): Parameters<Listing>,
) -> Answer<Json<UndeliverablePage>> {
    input::check_place("prefix", &prefix)?;
    let limit = input::limit(limit, OBJECTS_MAX)?;
    let after = after.as_deref().map(input::object_path).transpose()?;
    let cache = &caller.may_administer_under(&prefix)?.cache;
    Ok(Json(cache.undeliverable(&prefix, after.as_ref(), limit).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Version {
    /// `/bucket/key`
    #[param(example = "/logs/2026/today", format = "object-path")]
    path: String,
    /// Of the version that is meant, as the list shows it. Another one that has been written since stays as it is.
    generation: u64,
}

/// Keeps an undeliverable object here and nowhere else, as a transient one. It is not evicted, and lost with this
/// worker's disks.
#[utoipa::path(post, path = "/api/v1/undeliverable/keep", tag = "objects", params(Version),
    responses((status = 204, description = "It is transient."), Problems, Absent, StorageProblems))]
pub(crate) async fn keep_undeliverable(
    caller: Caller,
    Parameters(Version { path, generation }): Parameters<Version>,
) -> Answer<StatusCode> {
    let object = input::object_path(&path)?;
    caller.may_administer(&path)?.cache.keep_undeliverable(&object, generation).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Drops an object that is undeliverable, for good, or undoes a delete that is. Readers see what the under store has.
#[utoipa::path(post, path = "/api/v1/undeliverable/discard", tag = "objects", params(Version),
    responses((status = 204, description = "It is gone."), Problems, Absent, StorageProblems))]
pub(crate) async fn discard_undeliverable(
    caller: Caller,
    Parameters(Version { path, generation }): Parameters<Version>,
) -> Answer<StatusCode> {
    let object = input::object_path(&path)?;
    caller.may_administer(&path)?.cache.discard_undeliverable(&object, generation).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Renaming {
    /// `/bucket/key`
    #[param(example = "/logs/2026/today", format = "object-path")]
    path: String,
    /// Of the version that is meant, as the list shows it.
    generation: u64,
    /// `/bucket/key` that has no object.
    #[param(example = "/logs/2026/tomorrow", format = "object-path")]
    to: String,
}

/// Writes an undeliverable object under another name, which must be free, and drops it under the old one.
#[utoipa::path(post, path = "/api/v1/undeliverable/rename", tag = "objects", params(Renaming),
    responses((status = 204, description = "It has the new name."), Problems, Absent, StorageProblems))]
pub(crate) async fn rename_undeliverable(
    caller: Caller,
    Parameters(Renaming { path, generation, to }): Parameters<Renaming>,
) -> Answer<StatusCode> {
    let (object, target) = (input::object_path(&path)?, input::object_path(&to)?);
    caller.may_administer(&to)?;
    caller.may_administer(&path)?.cache.rename_undeliverable(&object, generation, &target).await?;
    Ok(StatusCode::NO_CONTENT)
}
