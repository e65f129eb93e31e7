//! `forebay-sim`: runs of the simulation, many or one. See `docs/simulation.md`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use clap::Parser;
use forebay_env::{Clock, Env};
use forebay_sim::{BrokenPromise, Plan, Report, run, shrink};
use parking_lot::Mutex;

/// Lines of the trace of a failed run that are shown.
const LINES_SHOWN: usize = 400;
/// Real time after which a run is taken for one that never ends; runs take some hundredths of a second.
const RUN_MAX: Duration = Duration::from_secs(120);

/// Simulates a worker, its clients, its disks and its under store from seeds, and checks what clients see.
#[derive(Parser)]
#[command(name = "forebay-sim")]
struct Options {
    /// Runs this seed alone and shows what happens.
    #[arg(long, conflicts_with_all = ["seeds", "runs", "minutes"])]
    seed: Option<u64>,
    /// Runs these seeds: FROM..TO, without TO.
    #[arg(long, value_name = "FROM..TO", value_parser = parse_seeds, conflicts_with_all = ["runs", "minutes"])]
    seeds: Option<(u64, u64)>,
    /// Runs this many fresh seeds.
    #[arg(long, conflicts_with = "minutes")]
    runs: Option<u64>,
    /// Runs fresh seeds for this many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Runs every seed twice and compares their traces.
    #[arg(long)]
    twice: bool,
    /// Tells of a failure without looking for the smallest plan that fails.
    #[arg(long)]
    no_shrink: bool,
}

fn parse_seeds(text: &str) -> Result<(u64, u64), String> {
    let parsed = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    parsed.filter(|(from, to)| from < to).ok_or_else(|| format!("{text:?} is not FROM..TO, such as 1..1000"))
}

/// Which seeds are run, and until when.
struct Task {
    next: AtomicU64,
    end: u64,
    until: Option<Duration>,
    failed: AtomicBool,
    runs: AtomicU64,
    undecided: AtomicU64,
    /// Runs in which reclaim gave segments back.
    full: AtomicU64,
    clock: Arc<dyn Clock>,
    /// What each thread runs, and since when.
    running: Mutex<Vec<Option<(u64, Duration)>>>,
    twice: bool,
    no_shrink: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        return run_one(seed, &options);
    }
    let env = Env::real();
    // Short enough to type again.
    let base = options.seeds.map_or_else(|| env.random.next_u64() >> 24, |(from, _)| from);
    let end = match (options.seeds, options.runs) {
        (Some((_, to)), _) => to,
        (None, Some(runs)) => base + runs,
        (None, None) => u64::MAX,
    };
    let minutes = options.minutes.or_else(|| (end == u64::MAX).then_some(1.0));
    let until = minutes.map(|minutes| env.clock.monotonic() + Duration::from_secs_f64(minutes * 60.0));
    println!("seeds from {base}");
    let task = Task {
        next: AtomicU64::new(base),
        end,
        until,
        failed: AtomicBool::new(false),
        runs: AtomicU64::new(0),
        undecided: AtomicU64::new(0),
        full: AtomicU64::new(0),
        clock: env.clock,
        running: Mutex::new(vec![None; options.jobs.max(1)]),
        twice: options.twice,
        no_shrink: options.no_shrink,
    };
    let started = task.clock.monotonic();
    std::thread::scope(|scope| {
        let (working, all_ended) = channel::<()>();
        for number in 0..options.jobs.max(1) {
            let (task, working) = (&task, working.clone());
            scope.spawn(move || {
                work(task, number);
                drop(working);
            });
        }
        drop(working);
        watch(&task, &all_ended);
    });
    let (runs, elapsed) = (task.runs.load(Ordering::SeqCst), task.clock.monotonic() - started);
    let undecided = task.undecided.load(Ordering::SeqCst);
    println!(
        "{runs} runs in {:.1} s, {:.0} a second; reclaim made room in {:.0} % of them; {undecided} keys undecided",
        elapsed.as_secs_f64(),
        runs as f64 / elapsed.as_secs_f64(),
        task.full.load(Ordering::SeqCst) as f64 / runs.max(1) as f64 * 100.0
    );
    if task.failed.load(Ordering::SeqCst) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Takes seeds until they end, the time is over, or one fails.
fn work(task: &Task, number: usize) {
    while !task.failed.load(Ordering::SeqCst) && task.until.is_none_or(|until| task.clock.monotonic() < until) {
        let seed = task.next.fetch_add(1, Ordering::SeqCst);
        if seed >= task.end {
            return;
        }
        task.running.lock()[number] = Some((seed, task.clock.monotonic()));
        let report = run_seed(seed, task.twice, false);
        task.running.lock()[number] = None;
        task.runs.fetch_add(1, Ordering::SeqCst);
        task.undecided.fetch_add(u64::from(report.undecided), Ordering::SeqCst);
        task.full.fetch_add(u64::from(report.has_reclaimed), Ordering::SeqCst);
        if let Some(failure) = report.failure
            && !task.failed.swap(true, Ordering::SeqCst)
        {
            explain(seed, &failure, task.no_shrink);
        }
    }
}

/// Until all threads have ended. A run that does not end can't be stopped: it is named, and all ends.
fn watch(task: &Task, all_ended: &Receiver<()>) {
    while let Err(RecvTimeoutError::Timeout) = all_ended.recv_timeout(Duration::from_secs(1)) {
        let now = task.clock.monotonic();
        // One may have begun since.
        let is_endless = |(_, since): &&(u64, Duration)| now.saturating_sub(*since) > RUN_MAX;
        let endless = task.running.lock().iter().flatten().find(is_endless).copied();
        if let Some((seed, _)) = endless {
            println!("seed {seed} does not end");
            std::process::exit(1);
        }
    }
}

fn run_seed(seed: u64, twice: bool, keeps_lines: bool) -> Report {
    let plan = Plan::new(seed);
    let mut report = run(&plan, keeps_lines);
    if twice && run(&plan, false).hash != report.hash {
        report.failure = Some(BrokenPromise { what: "the same seed makes two different traces".to_owned() });
    }
    report
}

fn run_one(seed: u64, options: &Options) -> ExitCode {
    let report = run_seed(seed, options.twice, true);
    report.lines.iter().for_each(|line| println!("{line}"));
    println!("trace {:016x}", report.hash);
    match report.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            explain(seed, &failure, options.no_shrink);
            ExitCode::FAILURE
        }
    }
}

/// Shows a failure and, unless that is not wanted, the smallest plan that fails as well.
fn explain(seed: u64, failure: &BrokenPromise, no_shrink: bool) {
    let what = format!("seed {seed} failed: {}", failure.what);
    println!("{what}");
    if no_shrink {
        return;
    }
    println!("looking for the smallest plan that fails");
    let plan = shrink(&Plan::new(seed));
    let report = run(&plan, true);
    let from = report.lines.len().saturating_sub(LINES_SHOWN);
    println!("{plan}");
    report.lines[from..].iter().for_each(|line| println!("{line}"));
    println!(
        "the smallest plan fails so: {}",
        report.failure.map_or("not any more".to_owned(), |failure| failure.what)
    );
    // Again at the end: of a long output only that may be kept.
    println!("{what}\nagain: forebay-sim --seed {seed}");
}
