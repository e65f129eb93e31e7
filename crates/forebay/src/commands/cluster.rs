//! `forebay cluster`.

use clap::Subcommand;
use forebay_admin::api::{ClusterStatus, ClusterWorker, WorkerState};

use super::output::print;
use super::status::pairs;
use super::units::{count, escaped, size};
use super::{Table, Target};
use crate::client::Call;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Shows the workers, where the slots are, and how the engine does
    Status,
}

pub(super) fn cluster(command: &ClusterCommand, target: &Target) -> Result<(), Failure> {
    let ClusterCommand::Status = command;
    let answer = target.client()?.call(Call::get("cluster"))?;
    if target.is_json() {
        return print(&answer.text);
    }
    print(&text(&answer.read()?))
}

fn text(cluster: &ClusterStatus) -> String {
    let ClusterStatus { name, worker, slots, slots_without_home, workers, engine } = cluster;
    let slots = format!("{}, {} without a home", count(u64::from(*slots)), count(u64::from(*slots_without_home)));
    let facts = pairs(&[("cluster", escaped(name)), ("seen by", escaped(worker)), ("slots", slots)]);
    let mut table =
        Table::new(&["WORKER", "STATE", ">SLOTS", ">DIRTY", ">FREE", ">BYTES ELSEWHERE", "S3", "VERSION", "PROBLEM"]);
    for worker in workers {
        table.row(row(worker));
    }
    let mut members = Table::new(&["ENGINE", "VERSION", ">SIZE", ">QUOTA", "PROBLEM"]);
    for member in engine {
        let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), size);
        members.row([
            escaped(&member.endpoint),
            text_or_dash(member.version.as_deref()),
            bytes(member.database_bytes),
            bytes(member.quota_bytes),
            text_or_dash(member.problem.as_deref()),
        ]);
    }
    format!("{facts}\n{}\n{}", table.text(), members.text())
}

fn row(worker: &ClusterWorker) -> [String; 9] {
    let of_status = |show: fn(&forebay_cache::Status) -> String| worker.status.as_ref().map_or("-".to_owned(), show);
    let state = match worker.state {
        WorkerState::Live => "live",
        WorkerState::Left => "left",
        WorkerState::Lost => "lost",
    };
    [
        escaped(&worker.id),
        state.to_owned(),
        count(u64::from(worker.slots)),
        of_status(|status| size(status.dirty_bytes)),
        of_status(|status| size(status.free_bytes)),
        of_status(|status| count(status.copies_wanted)),
        text_or_dash(worker.s3_address.as_deref()),
        text_or_dash(worker.version.as_deref()),
        text_or_dash(worker.problem.as_deref()),
    ]
}

fn text_or_dash(text: Option<&str>) -> String {
    text.map_or("-".to_owned(), escaped)
}
