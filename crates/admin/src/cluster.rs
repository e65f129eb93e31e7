//! The cluster that the worker belongs to.

use std::sync::Arc;

use axum::Json;
use http::StatusCode;

use crate::access::Caller;
use crate::api::{Cluster, ClusterHomes, ClusterStatus, LeavingRefused};
use crate::input::{Nothing, Parameters, Segment};
use crate::problem::{Answer, Problem};
use crate::responses::{Absent, LeavingProblems, Problems};

/// The workers of the cluster, where the slots are, and how the engine does. A worker that is alone has none.
#[utoipa::path(get, path = "/api/v1/cluster", tag = "worker",
    responses((status = 200, body = ClusterStatus), Absent, Problems))]
pub(crate) async fn show_cluster(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<ClusterStatus>> {
    Ok(Json(cluster_of(&caller)?.status().await))
}

/// Which worker is the home of each slot.
#[utoipa::path(get, path = "/api/v1/cluster/homes", tag = "worker",
    responses((status = 200, body = ClusterHomes), Absent, Problems))]
pub(crate) async fn show_homes(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<ClusterHomes>> {
    Ok(Json(cluster_of(&caller)?.homes()))
}

/// Drains a worker: it gives its slots to others, stays until they have its bytes, and then stops. A new start of the
/// worker ends that.
#[utoipa::path(post, path = "/api/v1/cluster/workers/{id}/drain", tag = "worker",
    params(("id" = String, Path, description = "The name of the worker.", example = "worker-1")),
    responses((status = 204, description = "It is draining."), Absent, Problems, LeavingProblems))]
pub(crate) async fn drain_worker(
    caller: Caller,
    Segment(id): Segment<String>,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<StatusCode> {
    cluster_of(&caller)?.drain(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a worker that does not run and will never come back. Objects that only it had are missing from then on.
#[utoipa::path(delete, path = "/api/v1/cluster/workers/{id}", tag = "worker",
    params(("id" = String, Path, description = "The name of the worker.", example = "worker-1")),
    responses((status = 204, description = "It is gone."), Absent, Problems, LeavingProblems))]
pub(crate) async fn remove_worker(
    caller: Caller,
    Segment(id): Segment<String>,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<StatusCode> {
    cluster_of(&caller)?.remove(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn cluster_of(caller: &Caller) -> Answer<&Arc<dyn Cluster>> {
    let cluster = caller.may_administer("/")?.cluster.as_ref();
    cluster.ok_or_else(|| Problem::absent("this worker is alone: it belongs to no cluster"))
}

impl From<LeavingRefused> for Problem {
    fn from(refused: LeavingRefused) -> Self {
        match refused {
            LeavingRefused::Absent(why) => Self::absent(why),
            LeavingRefused::Conflict(why) => Self::new(StatusCode::CONFLICT, why),
            LeavingRefused::Unavailable(why) => Self::new(StatusCode::SERVICE_UNAVAILABLE, why),
        }
    }
}
