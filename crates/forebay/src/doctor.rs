//! `forebay doctor`: measures what the cache stands on, and says what will be the bottleneck.
//!
//! It reads the configuration as `serve` does and may run beside a server on the same directories: it takes no lock,
//! its files have no names, and its objects are below a key that no one else uses.

mod bottleneck;
mod clock;
mod disk;
mod exposure;
mod filesystem;
pub(crate) mod findings;
mod network;
mod process;
mod processor;
mod report;
mod under_store;

use std::path::Path;

use clap::{Args, ValueEnum};
use forebay_admin::{Notice, Severity};
use forebay_env::Env;
use tokio_util::sync::CancellationToken;

use crate::cli::ServeOptions;
use crate::config::Config;
use crate::failure::Failure;
use crate::signals::Signals;
use findings::Finding;
use report::Report;

/// The settings are those of `forebay serve`: file, environment variables and flags.
#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    pub(crate) settings: ServeOptions,
    /// How the report is printed
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// Looks only at limits, memory, file systems and free space: no measurements and no requests
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Examines and prints.
///
/// # Errors
/// `Failed` when there is a critical finding, or when a signal came.
pub(crate) fn run(config: &Config, options: &DoctorOptions) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::of("runtime", &e))?;
    let (report, is_interrupted) = runtime.block_on(examine(config, options.quick))?;
    // Reads and writes that hang on a dead disk are nothing to wait for.
    runtime.shutdown_background();
    match options.output {
        Output::Text => print!("{}", report.text()),
        Output::Json => println!("{}", report.json()),
    }
    if is_interrupted {
        return Err(Failure::Failed("interrupted".into()));
    }
    match report.count(Severity::Critical) {
        0 => Ok(()),
        1 => Err(Failure::Failed("1 critical finding".into())),
        count => Err(Failure::Failed(format!("{count} critical findings"))),
    }
}

/// The report, and whether a signal has ended it early.
async fn examine(config: &Config, is_quick: bool) -> Result<(Report, bool), Failure> {
    let mut report = Report::default();
    quick(config, 0, &mut report);
    if is_quick {
        return Ok((report, false));
    }
    let mut signals = Signals::install()?;
    let (env, stop) = (Env::real(), CancellationToken::new());
    let mut checks = std::pin::pin!(measure(config, &env, &stop, report));
    tokio::select! {
        mut report = &mut checks => {
            bottleneck::judge(&mut report);
            Ok((report, false))
        }
        () = signals.next() => {
            // Checks in flight end by themselves, and remove their objects. A second signal ends these too.
            stop.cancel();
            forebay_env::spawn(signals.exit_at_next());
            Ok((checks.await, true))
        }
    }
}

/// What others on the machine or the network may see or change, a line each.
pub(crate) fn exposures(config: &Config) -> Vec<String> {
    let mut report = Report::default();
    exposure::examine(config, &mut report);
    report.findings.into_iter().map(Finding::line).collect()
}

/// Whether the settings need more memory than there is, in a line.
pub(crate) fn missing_memory(config: &Config) -> Option<String> {
    let mut report = Report::default();
    process::memory(config, filesystem::capacity_bytes(config), 0, &mut report);
    report.findings.into_iter().find(|finding| finding.id == "memory-missing").map(Finding::line)
}

/// What takes no time: the server does it at every start. `own`: bytes that the server has taken already.
fn quick(config: &Config, own: u64, report: &mut Report) {
    filesystem::examine(config, report);
    process::examine(config, own, report);
    exposure::examine(config, report);
    processor::count(report);
    clock::examine_synchronisation(Path::new("/"), report);
}

async fn measure(config: &Config, env: &Env, stop: &CancellationToken, mut report: Report) -> Report {
    processor::measure(env, &mut report).await;
    for directory in &config.store.data_dirs {
        disk::measure(directory, env, stop, &mut report).await;
    }
    for (name, setting) in under_store::configured(config) {
        if !stop.is_cancelled() {
            under_store::examine(config, &name, setting, env, stop, &mut report).await;
        }
    }
    report
}

/// The notices of a start: findings of the quick part, to the server that runs with these settings.
pub(crate) fn notices(config: &Config, now_ms: u64) -> Vec<Notice> {
    let mut report = Report::default();
    quick(config, process::own_bytes(Path::new("/")), &mut report);
    report.findings.into_iter().map(|finding| finding.notice(now_ms)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::findings::{Finding, Kind};
    use super::*;
    use crate::config::Overrides;

    fn config(directory: &Path, more: &str) -> Config {
        let text = format!(
            "[store]\ndata_dirs = [\"{0}/data\"]\nsize = \"64 MiB\"\n{more}[under_store]\nurl = \"file://{0}/under\"\n",
            directory.display()
        );
        Config::load(Some(("test.toml", &text)), &BTreeMap::new(), &Overrides::default()).unwrap()
    }

    #[tokio::test]
    async fn a_whole_examination_measures_everything_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("under")).unwrap();
        let (report, _) = examine(&config(directory.path(), ""), false).await.unwrap();
        let names: Vec<_> = report.measurements.iter().map(|measurement| measurement.name).collect();
        for name in ["disk-write", "disk-read", "disk-sync-p99", "md5", "under-store-put", "under-store-upload"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        assert!(report.measurements.iter().all(|measurement| measurement.value > 0.0), "{:?}", report.measurements);
        let is_empty = |name| std::fs::read_dir(directory.path().join(name)).map_or(0, Iterator::count) == 0;
        assert!(is_empty("data") && is_empty("under"));
        assert!(!directory.path().join("data").exists(), "what serve makes, the doctor does not");
        assert_eq!(report.bottlenecks.len(), 2, "one for writes, one for reads");
    }

    #[tokio::test]
    async fn the_quick_part_is_quick_enough_for_a_start() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path(), "");
        let env = Env::real();
        // The best of some: the machine may be busy.
        let took = (0..5).map(|_| {
            let began = env.clock.monotonic();
            notices(&config, 0);
            env.clock.monotonic() - began
        });
        let best = took.min().unwrap();
        assert!(best < std::time::Duration::from_millis(200), "{best:?}");
    }

    #[test]
    fn findings_become_notices_of_the_same_words() {
        let finding = Finding::of(&Kind::named("memory-missing"), "", "1 GiB".into());
        let notice = finding.notice(7);
        assert_eq!((notice.id.as_str(), notice.severity, notice.since_ms), ("memory-missing", Severity::Critical, 7));
        assert!(notice.title.contains("1 GiB") && !notice.cure.is_empty());
    }
}
