//! Pushing dirty data to the under store now.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use http::StatusCode;
use serde::Deserialize;

use crate::access::Caller;
use crate::problem::Problem;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameters {
    prefix: String,
}

/// Answers 204 when the under store has everything under the prefix.
pub(crate) async fn persist(
    caller: Caller,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Result<StatusCode, Problem> {
    let Query(Parameters { prefix }) =
        parameters.map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "give one parameter: prefix=/bucket/prefix"))?;
    if !prefix.starts_with('/') {
        return Err(Problem::new(StatusCode::BAD_REQUEST, format!("prefix={prefix:?} must begin with \"/\"")));
    }
    caller.may_administer(&prefix)?.cache.persist(&prefix).await?;
    Ok(StatusCode::NO_CONTENT)
}
