//! Processors, and how fast one hashes.

use std::thread::available_parallelism;

use forebay_env::Env;
use md5::{Digest, Md5};

use super::report::{Report, Unit};

/// Hashed to see how fast that goes: some tenths of a second on a slow processor.
const HASHED_BYTES: usize = 64 << 20;
/// Below this a processor is older, or shared by more, than those that serve 10 GbE.
const HASHING_MIN: f64 = 300e6;

pub(super) fn count(report: &mut Report) {
    // Where the system does not tell, one is the safe answer.
    let cores = available_parallelism().map_or(1, usize::from);
    report.measured("processors", "", cores as f64, Unit::Count);
    if cores < 2 {
        report.find("cores-few", "", format!("{cores}"));
    }
}

/// MD5, the slowest of what every write passes through.
pub(super) async fn measure(env: &Env, report: &mut Report) {
    let clock = env.clock.clone();
    let hash = move || {
        let data = vec![0x5a; HASHED_BYTES];
        let began = clock.monotonic();
        std::hint::black_box(Md5::digest(&data));
        clock.monotonic().saturating_sub(began)
    };
    let Ok(took) = tokio::task::spawn_blocking(hash).await else { return };
    let speed = HASHED_BYTES as f64 / took.as_secs_f64().max(f64::EPSILON);
    report.measured("md5", "one processor", speed, Unit::BytesPerSecond);
    if speed < HASHING_MIN {
        report.find("hashing-slow", "", Unit::BytesPerSecond.show(speed));
    }
}
