//! The commands that talk to a running worker, one file for each family, and those that write what shells and `man`
//! read.

mod cached;
mod cluster;
mod edit;
pub(crate) mod generate;
mod jobs;
mod mounts;
mod objects;
mod output;
mod policy;
mod progress;
mod run;
mod status;
mod table;
mod target;
mod undeliverable;
mod units;
mod waiting;

use clap::Subcommand;
use forebay_cache::JobKind;

use crate::failure::Failure;
use crate::top::{self, TopOptions};

pub(crate) use cluster::{unavailable_of, worker_state};
pub(crate) use jobs::{kind as job_kind, state as job_state};
pub(crate) use output::{Format, OutputOptions, is_colourful, print};
pub(crate) use status::severity;
pub(crate) use table::{Table, fitted};
pub(crate) use target::Target;
pub(crate) use units::{age, count, escaped, moment, rate, seconds, share, size};
pub(crate) use waiting::{Interruptible, Pause};

#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Shows the state of a worker: backlog, space, notices
    Status {
        #[command(flatten)]
        target: Target,
    },
    /// Shows the notices; exits with 1 when one of them is critical
    Health {
        #[command(flatten)]
        target: Target,
    },
    /// Lists the mounts and the under store of all other buckets, and whether each works; exits with 1 if one does not
    Mounts {
        #[command(flatten)]
        target: Target,
    },
    /// Shows all that is known of one object
    Stat {
        /// s3://bucket/key or /bucket/key
        #[arg(value_name = "OBJECT")]
        path: String,
        #[command(flatten)]
        target: Target,
    },
    /// Lists buckets, or objects with what the cache holds of each
    #[command(alias = "list")]
    Ls(objects::ListOptions),
    /// Shows how much of each object under a path is cached, in which tier, dirty or clean, and the totals
    CheckCached(cached::CheckOptions),
    /// Shows and changes path policies
    Policy {
        #[command(subcommand)]
        command: policy::PolicyCommand,
        #[command(flatten)]
        target: Target,
    },
    /// As `policy resolve`
    #[command(hide = true)]
    Explain {
        /// s3://bucket/key or /bucket/key
        #[arg(value_name = "OBJECT")]
        path: String,
        #[command(flatten)]
        target: Target,
    },
    /// Reads into the cache what it does not hold yet
    Load(run::RunOptions),
    /// Drops clean copies from the cache
    Free(run::RunOptions),
    /// Brings dirty objects and deletes to the under store now
    Persist(run::RunOptions),
    /// Shows what the under store refuses, and keeps, renames or discards it
    Undeliverable {
        #[command(subcommand)]
        command: undeliverable::UndeliverableCommand,
        #[command(flatten)]
        target: Target,
    },
    /// Compares cache, catalog and under store, and changes nothing
    Verify(run::RunOptions),
    /// Reads all bytes that are in the cache and compares their checksums
    Scrub(run::RunOptions),
    /// Shows and cancels jobs
    Jobs {
        #[command(subcommand)]
        command: jobs::JobsCommand,
        #[command(flatten)]
        target: Target,
    },
    /// Shows the cluster that a worker belongs to
    Cluster {
        #[command(subcommand)]
        command: cluster::ClusterCommand,
        #[command(flatten)]
        target: Target,
    },
    /// Watches a worker live
    Top(TopOptions),
}

pub(crate) fn dispatch(command: ClientCommand) -> Result<(), Failure> {
    match command {
        ClientCommand::Status { target } => status::status(&target),
        ClientCommand::Health { target } => mounts::health(&target),
        ClientCommand::Mounts { target } => mounts::mounts(&target),
        ClientCommand::Stat { path, target } => objects::stat(&path, &target),
        ClientCommand::Ls(options) => objects::list(&options),
        ClientCommand::CheckCached(options) => cached::check_cached(&options),
        ClientCommand::Policy { command, target } => policy::policy(command, &target),
        ClientCommand::Explain { path, target } => policy::policy(policy::PolicyCommand::Resolve { path }, &target),
        ClientCommand::Load(options) => run::run(JobKind::Load, &options),
        ClientCommand::Free(options) => run::run(JobKind::Free, &options),
        ClientCommand::Persist(options) => run::run(JobKind::Persist, &options),
        ClientCommand::Undeliverable { command, target } => undeliverable::undeliverable(&command, &target),
        ClientCommand::Verify(options) => run::run(JobKind::Verify, &options),
        ClientCommand::Scrub(options) => run::run(JobKind::Scrub, &options),
        ClientCommand::Jobs { command, target } => jobs::jobs(&command, &target),
        ClientCommand::Cluster { command, target } => cluster::cluster(&command, &target),
        ClientCommand::Top(options) => top::top(&options),
    }
}
