//! Buckets, and objects with what the cache holds of them.

use axum::Json;
use forebay_cache::{CachedPage, ListObjects, ObjectDetail};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::api::Bucket;
use crate::input::{self, Nothing, OfObject, Parameters};
use crate::problem::Answer;
use crate::responses::{Absent, Problems};

/// Names in one answer, at most and when nothing is said: as many as S3 lists.
const NAMES_MAX: usize = 1000;

/// All buckets, in order of their names.
#[utoipa::path(get, path = "/api/v1/buckets", tag = "objects", responses((status = 200, body = Vec<Bucket>), Problems))]
pub(crate) async fn list_buckets(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<Vec<Bucket>>> {
    let buckets = caller.may_administer("/")?.cache.buckets().await?;
    let show = |bucket: forebay_cache::BucketSummary| Bucket {
        name: bucket.name.to_string(),
        // Nobody says when a mount came about.
        created_ms: Some(bucket.created_ms).filter(|created_ms| *created_ms > 0),
    };
    Ok(Json(buckets.into_iter().map(show).collect()))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Listing {
    /// `/bucket`, or `/bucket/prefix`: what the keys begin with.
    #[param(example = "/logs/2026/", format = "bucket-path")]
    path: String,
    /// Keys that have it behind the prefix are rolled up to common prefixes. None or empty: nothing is.
    #[serde(default)]
    #[param(example = "/")]
    delimiter: String,
    /// `next` of the page before.
    #[serde(default)]
    after: String,
    /// Most objects and prefixes in the answer; 1,000 when it is not given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Objects and common prefixes, with what the cache holds of each. Reads no bytes and changes nothing.
#[utoipa::path(get, path = "/api/v1/objects", tag = "objects", params(Listing),
    responses((status = 200, body = CachedPage), Problems, Absent))]
pub(crate) async fn list_objects(caller: Caller, Parameters(listing): Parameters<Listing>) -> Answer<Json<CachedPage>> {
    let limit = input::limit(listing.limit, NAMES_MAX)?;
    let (bucket, prefix) = input::bucket_and_prefix("path", &listing.path)?;
    let cache = &caller.may_administer_under(&listing.path)?.cache;
    let request = ListObjects {
        prefix: prefix.to_owned(),
        delimiter: Some(listing.delimiter).filter(|text| !text.is_empty()),
        start_after: Some(listing.after).filter(|text| !text.is_empty()),
        limit,
        // Operators look for what is there now.
        revalidates: true,
    };
    Ok(Json(caller.requester().gets(cache.list_cached(&bucket, &request)).await?))
}

/// All that is known of an object.
#[utoipa::path(get, path = "/api/v1/objects/detail", tag = "objects", params(OfObject),
    responses((status = 200, body = ObjectDetail), Problems, Absent))]
pub(crate) async fn show_object(
    caller: Caller,
    Parameters(OfObject { path }): Parameters<OfObject>,
) -> Answer<Json<ObjectDetail>> {
    let object = input::object_path(&path)?;
    let cache = &caller.may_administer(&path)?.cache;
    Ok(Json(caller.requester().gets(cache.object_detail(&object)).await?))
}
