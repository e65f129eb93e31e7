//! The command line.

mod serve_options;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::{ClientCommand, OutputOptions};
use crate::config::Overrides;
use crate::doctor::DoctorOptions;
pub(crate) use serve_options::ServeOptions;

/// An S3 cache that takes writes at the speed of local disks and lets S3 stay the system of record.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serves S3 and the admin API until it gets SIGTERM or SIGINT
    Serve(Box<ServeOptions>),
    /// Writes objects that no under store is known to have from data directories into a directory: the last resort
    Salvage(Box<SalvageOptions>),
    /// Measures disks, memory, network and under store, and says what will be the bottleneck
    Doctor(Box<DoctorOptions>),
    /// Checks or shows a configuration, or prints the reference of all settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Checks a users file
    #[command(subcommand)]
    Users(UsersCommand),
    /// Prints the reference of all metrics
    #[command(subcommand)]
    Metrics(MetricsCommand),
    #[command(flatten)]
    Client(ClientCommand),
    /// Prints what a shell completes commands and flags with
    Completions { shell: Shell },
    /// Writes the manual pages of all commands, or prints the first
    Man {
        /// Directory for the pages; without it, forebay(1) goes to standard output
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Prints the reference of the command line
    #[command(subcommand, hide = true)]
    Cli(CliCommand),
}

/// No server may run on these data directories meanwhile.
#[derive(Debug, Args)]
pub(crate) struct SalvageOptions {
    /// TOML file of settings, of which only those of the store count
    #[arg(long, value_name = "FILE", env = "FOREBAY_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the store; give it once for each disk [default: those of the configuration]
    #[arg(long, value_name = "DIR")]
    data_dir: Vec<String>,
    /// The directory to write to: BUCKET/KEY, with ETag and metadata in extended attributes
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
}

impl SalvageOptions {
    /// What the flags say, as settings.
    pub(crate) fn overrides(&self) -> Overrides {
        let data_dirs = (!self.data_dir.is_empty()).then(|| self.data_dir.join(","));
        let settings = data_dirs.map(|dirs| ("--data-dir", "store", "data_dirs", dirs));
        Overrides { settings: settings.into_iter().collect(), ..Overrides::default() }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Prints every command with its arguments, as Markdown
    Reference,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Checks file and environment without starting anything
    Check {
        /// TOML file of settings
        #[arg(long, value_name = "FILE", env = "FOREBAY_CONFIG")]
        config: Option<PathBuf>,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Shows the effective configuration, and where each value comes from
    Show {
        /// TOML file of settings
        #[arg(long, value_name = "FILE", env = "FOREBAY_CONFIG")]
        config: Option<PathBuf>,
        /// Those that have their defaults, too
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Prints every setting with its type, default and environment variable, as Markdown
    Reference,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UsersCommand {
    /// Checks a users file without starting anything
    Check {
        /// TOML file of users, access keys and grants
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum MetricsCommand {
    /// Prints every metric with its type and meaning, as Markdown
    Reference,
}

/// What is wrong with a command line, in one line: the parser's own words without its layout.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    lines.join("; ").replace(":; ", ": ").replacen("error: ", "", 1)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_does_not_contradict_itself() {
        Cli::command().debug_assert();
    }
}
