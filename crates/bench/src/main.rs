//! The `forebay-bench` command: puts load on any server that speaks S3, and reports how it did.

mod bare_server;
mod cli;
mod cosbench;
mod failure;
mod homes;
mod http;
mod keys;
mod limits;
mod load;
mod pace;
mod payload;
mod process;
mod record;
mod report;
mod run;
mod s3;
mod signature;
mod sizes;
mod workload;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use cli::{Cli, Command};
use failure::Failure;
use workload::{Kind, Mix};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if is_help(error.kind()) => error.exit(),
        Err(error) => return end(&Failure::Refused(cli::one_line(&error))),
    };
    match dispatch(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end(&failure),
    }
}

/// Whether the parser's "error" is a page that the user asked for.
fn is_help(kind: ErrorKind) -> bool {
    kind == ErrorKind::DisplayHelp
        || kind == ErrorKind::DisplayVersion
        || kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

fn end(failure: &Failure) -> ExitCode {
    eprintln!("forebay-bench: {}", failure.text());
    match failure {
        Failure::Refused(_) => ExitCode::from(2),
        Failure::Failed(_) => ExitCode::FAILURE,
    }
}

fn dispatch(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Put(options) => run::run("put", Kind::Put { overwrite: options.overwrite }, &options.run),
        Command::Get(options) => {
            run::run("get", Kind::Get { range_bytes: options.range.map(|range| range.0) }, &options.run)
        }
        Command::Stat(options) => run::run("stat", Kind::Stat, options),
        Command::Mixed(options) => {
            let mix = Mix { get: options.get, stat: options.stat, put: options.put, delete: options.delete };
            run::run("mixed", Kind::Mixed(mix), &options.run)
        }
        Command::ReadAfterWrite(options) => run::run("read-after-write", Kind::ReadAfterWrite, options),
        Command::List(options) => run::run("list", Kind::List { keys_max: options.max_keys }, &options.run),
        Command::Delete(options) => run::run("delete", Kind::Delete { batch: options.batch }, &options.run),
        Command::Multipart(options) => {
            run::run("multipart", Kind::Multipart { part_bytes: options.part_size.0 }, &options.run)
        }
        Command::Cosbench(options) => cosbench::run(options),
        Command::Limits(options) => limits::run(options),
        Command::BareServer(options) => bare_server::run(options),
    }
}
