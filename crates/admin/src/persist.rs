//! Pushing dirty data to the under store now.

use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::input::{self, Parameters};
use crate::problem::Answer;
use crate::responses::{Absent, Problems, StorageProblems};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Prefix {
    /// `/`, `/bucket`, or `/bucket/prefix`.
    #[param(example = "/logs/2026/", format = "place")]
    prefix: String,
}

/// Brings what is dirty under the prefix to the under store now, and answers when the under store has it.
#[utoipa::path(post, path = "/api/v1/persist", tag = "objects", params(Prefix),
    responses((status = 204, description = "The under store has everything."), Problems, Absent, StorageProblems))]
pub(crate) async fn persist_now(
    caller: Caller,
    Parameters(Prefix { prefix }): Parameters<Prefix>,
) -> Answer<StatusCode> {
    input::check_place("prefix", &prefix)?;
    caller.may_administer_under(&prefix)?.cache.persist(&prefix).await?;
    Ok(StatusCode::NO_CONTENT)
}
