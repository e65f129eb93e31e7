//! What commands ask of a cluster.

use std::collections::BTreeMap;

use forebay_admin::api::ClusterStatus;
use forebay_cache::Status;

use super::super::Target;
use super::super::objects::json;
use super::super::output::print;
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

/// Prints what has been done to a worker.
pub(super) fn told(target: &Target, done: &str, worker: &str) -> Result<(), Failure> {
    match target.is_json() {
        true => print(&json(&BTreeMap::from([("worker", worker), ("state", done)]))),
        false => print(&format!("{done}: {worker}")),
    }
}

/// Objects and parts that workers other than this one still have to fetch.
pub(super) fn wanted_elsewhere(cluster: &ClusterStatus, worker: &str) -> u64 {
    of_others(cluster, worker).map(|status| status.copies_wanted).sum()
}

/// Objects and parts at home at workers other than this one that have too few copies.
pub(super) fn under_replicated_elsewhere(cluster: &ClusterStatus, worker: &str) -> u64 {
    of_others(cluster, worker).map(|status| status.under_replicated).sum()
}

fn of_others<'a>(cluster: &'a ClusterStatus, worker: &'a str) -> impl Iterator<Item = &'a Status> {
    let others = cluster.workers.iter().filter(move |other| other.id != worker);
    others.filter_map(|other| other.status.as_ref())
}
