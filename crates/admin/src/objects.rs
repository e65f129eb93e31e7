//! Buckets, and objects with what the cache holds of them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use forebay_cache::{CachedPage, ListObjects, ObjectDetail};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::api::{Bucket, UnderStoreStatus};
use crate::input::{self, Nothing, OfObject, Parameters};
use crate::problem::{Answer, Problem};
use crate::responses::{Absent, Problems};
use crate::{Admin, UnderStores};

/// Names in one answer, at most and when nothing is said: as many as S3 lists.
const NAMES_MAX: usize = 1000;

/// An answer may take this long before anybody asks whether the under store answers at all.
const UNANSWERED_MAX: Duration = Duration::from_secs(20);

/// Between two looks at an under store after that.
const LOOK: Duration = Duration::from_secs(2);

/// Without an answer to any request for this long, an under store that could not be used in a probe either is not just
/// slow.
const SILENT_MAX_MS: u64 = 10_000;

/// Does what may need an answer of an under store, and gives up when that under store answers nothing.
///
/// `bucket`: what is asked for; empty for the under store that has all buckets without a mount.
async fn if_it_answers<T>(
    admin: &Admin,
    under_stores: &dyn UnderStores,
    bucket: &str,
    work: impl Future<Output = forebay_cache::Result<T>>,
) -> Answer<T> {
    let clock = &admin.env().clock;
    let silent = async {
        clock.sleep(UNANSWERED_MAX).await;
        loop {
            if let Some(problem) = silence(under_stores.states(), bucket) {
                return problem;
            }
            clock.sleep(LOOK).await;
        }
    };
    tokio::select! {
        biased;
        result = work => Ok(result?),
        problem = silent => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the under store does not answer: {problem}. `forebay mounts` shows its state"),
        )),
    }
}

/// Why the under store of a bucket can't be used, if it answers nothing.
fn silence(states: Vec<UnderStoreStatus>, bucket: &str) -> Option<String> {
    let mounted = states.iter().position(|state| state.buckets.iter().any(|name| name == bucket));
    let position = mounted.or_else(|| states.iter().position(|state| state.buckets.is_empty()))?;
    let state = states.into_iter().nth(position)?;
    // Of other problems, a probe says nothing: it may be answered.
    let is_unreachable = state.problem_id.as_deref() == Some("under-store-unreachable");
    state.problem.filter(|_| is_unreachable && state.silent_ms.is_some_and(|silent| silent >= SILENT_MAX_MS))
}

/// All buckets, in order of their names.
#[utoipa::path(get, path = "/api/v1/buckets", tag = "objects", responses((status = 200, body = Vec<Bucket>), Problems))]
pub(crate) async fn list_buckets(
    State(admin): State<Admin>,
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<Vec<Bucket>>> {
    let running = caller.may_administer("/")?;
    let buckets = if_it_answers(&admin, &*running.under_stores, "", running.cache.buckets()).await?;
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
pub(crate) async fn list_objects(
    State(admin): State<Admin>,
    caller: Caller,
    Parameters(listing): Parameters<Listing>,
) -> Answer<Json<CachedPage>> {
    let limit = input::limit(listing.limit, NAMES_MAX)?;
    let (bucket, prefix) = input::bucket_and_prefix("path", &listing.path)?;
    let running = caller.may_administer_under(&listing.path)?;
    let request = ListObjects {
        prefix: prefix.to_owned(),
        delimiter: Some(listing.delimiter).filter(|text| !text.is_empty()),
        start_after: Some(listing.after).filter(|text| !text.is_empty()),
        limit,
        // Operators look for what is there now.
        revalidates: true,
    };
    let listed = caller.requester().gets(running.cache.list_cached(&bucket, &request));
    Ok(Json(if_it_answers(&admin, &*running.under_stores, bucket.as_str(), listed).await?))
}

/// All that is known of an object.
#[utoipa::path(get, path = "/api/v1/objects/detail", tag = "objects", params(OfObject),
    responses((status = 200, body = ObjectDetail), Problems, Absent))]
pub(crate) async fn show_object(
    State(admin): State<Admin>,
    caller: Caller,
    Parameters(OfObject { path }): Parameters<OfObject>,
) -> Answer<Json<ObjectDetail>> {
    let object = input::object_path(&path)?;
    let running = caller.may_administer(&path)?;
    let detail = caller.requester().gets(running.cache.object_detail(&object));
    Ok(Json(if_it_answers(&admin, &*running.under_stores, object.bucket.as_str(), detail).await?))
}
