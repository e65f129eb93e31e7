//! The cluster that the worker belongs to.

use axum::Json;

use crate::access::Caller;
use crate::api::ClusterStatus;
use crate::input::{Nothing, Parameters};
use crate::problem::{Answer, Problem};
use crate::responses::{Absent, Problems};

/// The workers of the cluster, where the slots are, and how the engine does. A worker that is alone has none.
#[utoipa::path(get, path = "/api/v1/cluster", tag = "worker",
    responses((status = 200, body = ClusterStatus), Absent, Problems))]
pub(crate) async fn show_cluster(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<ClusterStatus>> {
    match &caller.may_administer("/")?.cluster {
        Some(cluster) => Ok(Json(cluster.status().await)),
        None => Err(Problem::absent("this worker is alone: it belongs to no cluster")),
    }
}
