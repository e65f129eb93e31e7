//! The configuration in force, and what an operator should know.

use axum::Json;

use crate::access::Caller;
use crate::api::{ConfigurationEntry, Notice};
use crate::input::{Nothing, Parameters};
use crate::problem::Answer;
use crate::responses::Problems;

/// Every setting with its value, its default, and where the value came from.
#[utoipa::path(get, path = "/api/v1/configuration", tag = "worker",
    responses((status = 200, body = Vec<ConfigurationEntry>), Problems))]
pub(crate) async fn list_configuration(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<Vec<ConfigurationEntry>>> {
    Ok(Json(caller.may_administer("/")?.configuration.clone()))
}

/// What an operator should know or do, the most severe first.
#[utoipa::path(get, path = "/api/v1/notices", tag = "worker", responses((status = 200, body = Vec<Notice>), Problems))]
pub(crate) async fn list_notices(
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<Vec<Notice>>> {
    Ok(Json(caller.may_administer("/")?.notices.all()))
}
