//! The under stores.

use axum::Json;

use crate::access::Caller;
use crate::api::UnderStoreStatus;
use crate::input::{Nothing, Parameters};
use crate::problem::Answer;
use crate::responses::Problems;

/// The under stores, and how each does.
#[utoipa::path(get, path = "/api/v1/under-stores", tag = "worker",
    responses((status = 200, body = Vec<UnderStoreStatus>), Problems))]
pub(crate) async fn list_under_stores(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<Vec<UnderStoreStatus>>> {
    Ok(Json(caller.may_administer("/")?.under_stores.states()))
}
