//! What commands ask of a cluster.

use forebay_admin::api::ClusterStatus;

use crate::client::{Call, CallError, Client};
use crate::failure::Failure;

pub(super) fn look(client: &Client) -> Result<ClusterStatus, CallError> {
    client.read(Call::get("cluster"))
}

/// The page of a worker.
pub(super) fn page(worker: &str) -> Result<String, Failure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if worker.is_empty() || !worker.bytes().all(is_plain) {
        return Err(Failure::Refused(format!("{worker:?} is no name of a worker")));
    }
    Ok(format!("cluster/workers/{worker}"))
}

/// Objects and parts that workers other than this one still have to fetch.
pub(super) fn wanted_elsewhere(cluster: &ClusterStatus, worker: &str) -> u64 {
    let others = cluster.workers.iter().filter(|other| other.id != worker);
    others.filter_map(|other| other.status.as_ref()).map(|status| status.copies_wanted).sum()
}
