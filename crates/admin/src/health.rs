//! Health, readiness, metrics and status.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use forebay_cache::Status;
use http::{StatusCode, header};

use crate::Admin;
use crate::access::Caller;
use crate::input::{Nothing, Parameters};
use crate::problem::{Answer, Problem};
use crate::responses::Problems;

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// 200 while the process does its work; 503 when a directory takes no more writes, which needs a human.
pub(crate) async fn healthz(State(admin): State<Admin>) -> Response {
    let failed = match admin.running() {
        Some(running) => running.cache.status().failed_directories,
        None => Vec::new(),
    };
    if failed.is_empty() {
        return "healthy\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("directories that take no more writes: {}\n", failed.join("; ")))
        .into_response()
}

/// 200 from the end of recovery to the beginning of shutdown.
pub(crate) async fn readyz(State(admin): State<Admin>) -> Response {
    let unavailable = |why: &'static str| (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    if admin.is_stopping() {
        return unavailable("stopping\n");
    }
    match admin.running() {
        Some(running) if running.cache.is_cut_off() => {
            unavailable("the engine of the cluster (etcd) does not answer: all keys of this worker get 503\n")
        }
        Some(_) => "ready\n".into_response(),
        None => unavailable("starting\n"),
    }
}

pub(crate) async fn metrics(State(admin): State<Admin>) -> Result<Response, Problem> {
    let running = admin.running().ok_or_else(Problem::starting)?;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &running.registry)
        .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the metrics can't be written"))?;
    Ok(([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response())
}

/// What waits for the under store, and how full the store is.
#[utoipa::path(get, path = "/api/v1/status", tag = "worker", responses((status = 200, body = Status), Problems))]
pub(crate) async fn show_status(caller: Caller, Parameters(Nothing {}): Parameters<Nothing>) -> Answer<Json<Status>> {
    Ok(Json(caller.may_administer("/")?.cache.status()))
}
