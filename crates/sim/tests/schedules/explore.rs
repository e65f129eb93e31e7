//! Many schedules of one test.

use std::path::PathBuf;

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Debug builds of async code need more than shuttle gives a thread.
const STACK_BYTES: usize = 1 << 20;

/// A run that takes more steps turns in circles.
const STEPS_MAX: usize = 2_000_000;

/// Times that one thread is overtaken where the scheduler chooses, in schedules that otherwise let the same one go
/// first (Burckhardt et al.: "A randomized scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010): most
/// races need fewer.
const OVERTAKINGS: usize = 4;

/// Where schedules that fail are written, for `FOREBAY_TEST_SCHEDULE`.
fn failures() -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("schedules");
    std::fs::create_dir_all(&directory).expect("a directory in target");
    directory
}

fn run<F: Future<Output = ()> + 'static>(scheduler: impl Scheduler + 'static, test: fn() -> F) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.failure_persistence = FailurePersistence::File(Some(failures()));
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || shuttle::future::block_on(test()));
}

/// Runs a test under so many schedules, half of them random, half with few changes between threads; times
/// `FOREBAY_SCHEDULES`. Or under the one in the file that `FOREBAY_TEST_SCHEDULE` names.
pub(crate) fn explore<F: Future<Output = ()> + 'static>(schedules: usize, test: fn() -> F) {
    if let Ok(file) = std::env::var("FOREBAY_TEST_SCHEDULE") {
        return run(ReplayScheduler::new_from_file(file).expect("FOREBAY_TEST_SCHEDULE is a schedule"), test);
    }
    let times = std::env::var("FOREBAY_SCHEDULES").map_or(1, |times| times.parse().expect("a number"));
    let half = (schedules * times).div_ceil(2);
    run(RandomScheduler::new(half), test);
    run(PctScheduler::new(OVERTAKINGS, half), test);
}
