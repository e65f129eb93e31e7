//! The state of the worker at a glance, and its last hour.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::Admin;
use crate::access::Caller;
use crate::api::{Overview, Sample};
use crate::input::{Nothing, Parameters};
use crate::problem::Answer;
use crate::responses::Problems;

/// The current state of the worker.
#[utoipa::path(get, path = "/api/v1/overview", tag = "worker", responses((status = 200, body = Overview), Problems))]
pub(crate) async fn show_overview(
    State(admin): State<Admin>,
    caller: Caller,
    Parameters(Nothing {}): Parameters<Nothing>,
) -> Answer<Json<Overview>> {
    let running = caller.may_administer("/")?;
    // Before the notices: what the last check finds belongs to them.
    let checking = running.notices.is_checking();
    Ok(Json(Overview {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_ms: admin.started_ms(),
        now_ms: admin.env().clock.unix_ms(),
        status: running.cache.status(),
        notices: running.notices.all(),
        checking,
        sample: admin.sampler().newest(),
        drain_seconds: admin.sampler().drain_seconds(),
    }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct Since {
    /// Only samples that end after this time.
    #[serde(default)]
    #[param(maximum = 18446744073709551615u64)]
    since_ms: u64,
}

/// The samples of the last hour, the oldest first: one for every five seconds.
#[utoipa::path(get, path = "/api/v1/overview/history", tag = "worker", params(Since),
    responses((status = 200, body = Vec<Sample>), Problems))]
pub(crate) async fn show_overview_history(
    State(admin): State<Admin>,
    caller: Caller,
    Parameters(Since { since_ms }): Parameters<Since>,
) -> Answer<Json<Vec<Sample>>> {
    caller.may_administer("/")?;
    Ok(Json(admin.sampler().since(since_ms)))
}
