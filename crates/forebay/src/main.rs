//! The `forebay` command: command line, configuration, and the wiring of all parts.

mod certificate;
mod cli;
mod client;
mod cluster;
mod commands;
mod config;
mod credentials;
mod doctor;
mod failure;
mod first_start;
#[cfg(test)]
mod fuzz_corpus;
mod limits;
mod locations;
mod logs;
mod lost_changes;
mod made_directories;
mod metrics;
mod preflight;
mod salvage;
mod serve;
mod signals;
mod store_settings;
mod tls;
mod top;
mod under_store_gone;
mod under_store_marks;
mod under_store_moved;
mod under_stores;
mod watch;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use mimalloc::MiMalloc;

use cli::{Cli, CliCommand, Command, ConfigCommand, MetricsCommand, ServeOptions, UsersCommand};
use commands::{Format, Table, escaped, generate, print};
use config::{Config, Overrides, Problem};
use failure::Failure;
use forebay_auth::FileCounts;

/// A small GET takes a quarter less processor time with it than with that of the GNU C library: `docs/performance.md`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if is_help(error.kind()) => error.exit(),
        Err(error) => return refuse(&cli::one_line(&error)),
    };
    match dispatch(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Refused(problem)) => refuse(&problem),
        Err(Failure::Failed(reason)) => {
            tell(&reason);
            ExitCode::FAILURE
        }
        Err(Failure::Interrupted(reason)) => {
            tell(&reason);
            ExitCode::from(INTERRUPTED)
        }
        Err(Failure::NobodyReads) => ExitCode::SUCCESS,
    }
}

/// The exit code after Ctrl-C: 128 and the number of SIGINT, as shells count.
const INTERRUPTED: u8 = 130;

/// Whether the parser's "error" is a page that the user asked for, or for which no single line can stand.
fn is_help(kind: ErrorKind) -> bool {
    kind == ErrorKind::DisplayHelp
        || kind == ErrorKind::DisplayVersion
        || kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// The exit code of bad input, as the C library's `getopt` made customary.
fn refuse(problem: &str) -> ExitCode {
    // A configuration may have several mistakes, each on its own line.
    problem.lines().for_each(tell);
    ExitCode::from(2)
}

/// Says why the process ends. Where nobody reads it, the exit code still counts.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "forebay: {line}");
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(options) => {
            let config = load_for_serve(&options)?;
            preflight::check(&config)?;
            preflight::check_under_store(&config)?;
            serve::serve(config)
        }
        Command::Salvage(options) => {
            let config = load(options.config.as_deref(), &options.overrides())?;
            salvage::run(&config, &options.to)
        }
        Command::Doctor(options) => {
            let config = load_for_serve(&options.settings)?;
            preflight::check(&config)?;
            doctor::run(&config, &options)
        }
        Command::Config(ConfigCommand::Check { config, output }) => check(config.as_deref(), output.output),
        Command::Config(ConfigCommand::Show { config, all, output }) => show(config.as_deref(), all, output.output),
        Command::Users(UsersCommand::Check { file }) => print(&describe(preflight::check_users(&file, None)?)),
        Command::Config(ConfigCommand::Reference) => print(&config::reference()),
        Command::Metrics(MetricsCommand::Reference) => print(&metrics::reference()?),
        Command::Client(command) => commands::dispatch(command),
        Command::Completions { shell } => generate::completions(Cli::command(), shell),
        Command::Man { directory } => generate::manual(Cli::command(), directory.as_deref()),
        Command::Cli(CliCommand::Reference) => print(&generate::reference(Cli::command())),
    }
}

/// A file that was emptied is valid, and rarely meant.
fn describe(FileCounts { users, anonymous_grants }: FileCounts) -> String {
    let counted = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    match (users, anonymous_grants) {
        (0, 0) => "the users file is valid, and empty: only the root user could do anything".to_owned(),
        (_, 0) => format!("the users file is valid: {}", counted(users, "user")),
        (_, _) => {
            let [users, grants] = [counted(users, "user"), counted(anonymous_grants, "grant")];
            format!("the users file is valid: {users}, and {grants} to requests without a signature")
        }
    }
}

/// As JSON, the verdict is a document, and what is wrong is in it too.
fn check(file: Option<&Path>, format: Format) -> Result<(), Failure> {
    let checked = load(file, &Overrides::default()).map_err(Failure::from).and_then(|loaded| {
        preflight::check(&loaded)?;
        let exposures = doctor::exposures(&loaded);
        let memory = doctor::missing_memory(&loaded);
        Ok(loaded.warnings.into_iter().chain(exposures).chain(memory).collect::<Vec<_>>())
    });
    if format == Format::Text {
        checked?.iter().for_each(|warning| eprintln!("forebay: {warning}"));
        return print("the configuration is valid");
    }
    let problem = match &checked {
        Err(Failure::Refused(problem)) => Some(problem),
        _ => None,
    };
    let warnings = checked.as_ref().map(Vec::as_slice).unwrap_or_default();
    let verdict = serde_json::json!({"valid": checked.is_ok(), "problem": problem, "warnings": warnings});
    let printed = print(&verdict.to_string());
    checked.map(drop).and(printed)
}

/// What is in force, secrets hidden.
fn show(file: Option<&Path>, all: bool, format: Format) -> Result<(), Failure> {
    let config = load(file, &Overrides::default())?;
    let entries: Vec<_> = config.effective.iter().filter(|entry| all || entry.source != "default").collect();
    if format == Format::Json {
        return print(&serde_json::to_string(&entries).expect("entries have text keys only"));
    }
    if entries.is_empty() {
        return print("all settings have their defaults; --all shows them");
    }
    let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
    for entry in entries {
        table.row([escaped(&entry.name), escaped(&entry.value), escaped(&entry.source)]);
    }
    print(&table.text())
}

fn load_for_serve(options: &ServeOptions) -> Result<Config, Problem> {
    load(options.config.as_deref(), &options.overrides())
}

fn load(file: Option<&Path>, overrides: &Overrides) -> Result<Config, Problem> {
    // Variables that are not Unicode can't be ours.
    let variables: BTreeMap<_, _> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let name = file.map(|path| path.display().to_string());
    let text = file.map(std::fs::read_to_string).transpose();
    let text = text.map_err(|error| Problem(format!("--config {:?}: {error}", name.clone().unwrap_or_default())))?;
    let mut config = Config::load(name.as_deref().zip(text.as_deref()), &variables, overrides)?;
    config.read_key_files()?;
    Ok(config)
}
