//! `forebay cluster`.

mod drain;
mod remove;
mod seen;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use forebay_admin::api::{ClusterStatus, ClusterWorker, WorkerState};
use forebay_cache::UnavailableBytes;
use forebay_types::Period;

use super::output::print;
use super::status::pairs;
use super::units::{age, count, counted, escaped, moment, size};
use super::{Table, Target};
use crate::cli::ServeOptions;
use crate::client::Call;
use crate::cluster::replace_cluster_key;
use crate::failure::Failure;

/// Older is what is shown while the engine does not answer: a worker looks twice a second.
const CURRENT_MS: u64 = 5000;

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Shows the workers, the slots, and the health of the engine (etcd)
    Status,
    /// Takes a worker out: it gives its slots and bytes to the others, and stops when nobody needs it
    Drain {
        /// The name of the worker, as 'forebay cluster status' shows it
        #[arg(value_name = "ID")]
        worker: String,
        /// Shows progress, and waits until the worker has stopped. Ctrl-C ends the wait, not the drain
        #[arg(long)]
        wait: bool,
        /// Waits no longer than this, such as 10min, and ends with 1; the drain continues
        #[arg(long, value_name = "PERIOD", requires = "wait")]
        timeout: Option<Period>,
    },
    /// Forgets a worker that does not run and will never come back: what only it had is missing from then on
    Remove {
        /// The name of the worker, as 'forebay cluster status' shows it
        #[arg(value_name = "ID")]
        worker: String,
        /// Removes it even if others still look for bytes that it may have
        #[arg(long, short)]
        yes: bool,
    },
    /// Replaces the cluster key by the one in --cluster-key-file, while no worker of the cluster runs
    Rekey(Box<RekeyOptions>),
}

/// The settings are those of `forebay serve`, of which only those of the cluster count.
#[derive(Debug, Args)]
pub(crate) struct RekeyOptions {
    #[command(flatten)]
    settings: ServeOptions,
    /// File with the key until now [default: the key that etcd keeps]
    #[arg(long, value_name = "FILE")]
    old_key_file: Option<PathBuf>,
}

pub(super) fn cluster(command: &ClusterCommand, target: &Target) -> Result<(), Failure> {
    match command {
        ClusterCommand::Status => {
            let answer = target.client()?.call(Call::get("cluster"))?;
            if target.is_json() { print(&answer.text) } else { print(&text(&answer.read()?)) }
        }
        ClusterCommand::Drain { worker, wait, timeout } => drain::drain(target, worker, *wait, *timeout),
        ClusterCommand::Remove { worker, yes } => remove::remove(target, worker, *yes),
        ClusterCommand::Rekey(options) => {
            let config = crate::load_for_serve(&options.settings)?;
            let had_another = replace_cluster_key(&config.cluster, options.old_key_file.as_deref())?;
            print(if had_another {
                "the key is replaced: start the workers with the new one"
            } else {
                "the cluster has the key of --cluster-key-file already: start the workers with it"
            })
        }
    }
}

fn text(cluster: &ClusterStatus) -> String {
    let ClusterStatus { name, worker, age_ms, slots, slots_without_home, workers, engine } = cluster;
    let slots = format!("{}, {} without a home", count(u64::from(*slots)), count(u64::from(*slots_without_home)));
    let facts = pairs(&[("cluster", escaped(name)), ("seen by", seen_by(worker, *age_ms)), ("slots", slots)]);
    let mut table = Table::new(&[
        "WORKER",
        "STATE",
        ">SLOTS",
        ">DIRTY",
        ">FREE",
        ">BYTES ELSEWHERE",
        ">UNAVAILABLE",
        "S3",
        "VERSION",
        "PROBLEM",
    ]);
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
    let mut unavailable = Table::new(&["UNAVAILABLE", "HOME", "SINCE (UTC)", "BECAUSE"]);
    for (home, found) in unavailable_of(cluster) {
        unavailable.row([escaped(&found.path), escaped(home), moment(found.since_ms), escaped(&found.problem)]);
    }
    let unavailable = Some(unavailable.text()).filter(|text| !text.is_empty());
    let tables = [facts, table.text(), members.text()].into_iter().chain(unavailable);
    tables.collect::<Vec<_>>().join("\n")
}

/// Without the engine, what was seen may not be so any more.
fn seen_by(worker: &str, age_ms: u64) -> String {
    let worker = escaped(worker);
    match age_ms <= CURRENT_MS {
        true => worker,
        false => format!("{worker}, {} ago: the engine has not answered it since", age(age_ms)),
    }
}

/// What the workers name of the bytes that no worker gives, with the home of each.
pub(crate) fn unavailable_of(cluster: &ClusterStatus) -> impl Iterator<Item = (&str, &UnavailableBytes)> {
    let told = cluster.workers.iter().filter_map(|worker| Some((worker.id.as_str(), worker.status.as_ref()?)));
    told.flat_map(|(id, status)| status.unavailable.iter().map(move |found| (id, found)))
}

pub(crate) fn worker_state(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Live => "live",
        WorkerState::Draining => "draining",
        WorkerState::Drained => "drained",
        WorkerState::Left => "left",
        WorkerState::Lost => "lost",
    }
}

fn row(worker: &ClusterWorker) -> [String; 10] {
    let of_status = |show: fn(&forebay_cache::Status) -> String| worker.status.as_ref().map_or("-".to_owned(), show);
    [
        escaped(&worker.id),
        worker_state(worker.state).to_owned(),
        count(u64::from(worker.slots)),
        of_status(|status| size(status.dirty_bytes)),
        of_status(|status| size(status.free_bytes)),
        of_status(|status| count(status.copies_wanted)),
        of_status(|status| count(status.copies_unavailable)),
        text_or_dash(worker.s3_address.as_deref()),
        text_or_dash(worker.version.as_deref()),
        problem(worker),
    ]
}

fn problem(worker: &ClusterWorker) -> String {
    let missing = worker.status.as_ref().map_or(0, |status| status.missing_objects);
    match &worker.problem {
        Some(problem) => escaped(problem),
        None if missing > 0 => format!("the bytes of {} are missing since its start", counted(missing, "object")),
        None => "-".to_owned(),
    }
}

fn text_or_dash(text: Option<&str>) -> String {
    text.map_or("-".to_owned(), escaped)
}
