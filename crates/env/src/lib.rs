//! Clock, randomness, task spawning and disks: everything that a run takes from the outside world, behind traits, so
//! that a whole worker can run from one seed. Next to each trait are its real implementation and one for tests and
//! simulation.
//!
//! Nothing else in Forebay asks the operating system for the time, a random number or a thread. `clippy.toml` refuses
//! such calls, and names the replacement here.

mod addresses;
mod calls;
pub mod clock;
pub mod disk;
mod fair_permits;
mod lingering;
mod plain;
#[cfg_attr(feature = "schedules", expect(dead_code, reason = "runs of shuttle start tasks in their own way"))]
mod process;
pub mod random;
mod requester;
pub mod rest;
pub mod sync;
mod tasks;
mod timed_io;

use std::sync::Arc;

pub use addresses::{AddressPermit, Addresses};
pub use calls::Calls;
pub use clock::Clock;
pub use disk::{Disk, DiskFile, DiskSpace};
pub use fair_permits::{FairPermit, FairPermits, Shares};
pub use lingering::{Linger, Lingering};
pub use plain::{is_plain_http, refuse_plain_http};
pub use process::Process;
pub use random::{HashState, Random};
pub use requester::{Requester, RequesterPermit, RequesterPermits};
pub use tasks::{Background, Task, spawn};
pub use timed_io::TimedIo;

/// The target of all spans that are parts of traces. They are created only while somebody collects traces: see
/// `forebay_logs::spans`.
pub const SPANS: &str = "forebay::spans";

/// What a component gets instead of the operating system.
#[derive(Clone)]
pub struct Env {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub background: Background,
}

impl Env {
    /// The operating system's clock and random numbers.
    pub fn real() -> Self {
        Self {
            clock: Arc::new(clock::SystemClock::new()),
            random: Arc::new(random::SystemRandom),
            background: Background::default(),
        }
    }

    /// A clock that moves only when it is advanced, and random numbers from `seed`.
    pub fn simulated(seed: u64) -> (Self, Arc<clock::ManualClock>) {
        let clock = Arc::new(clock::ManualClock::new());
        (
            Self {
                clock: Arc::<clock::ManualClock>::clone(&clock),
                random: Arc::new(random::SeededRandom::new(seed)),
                background: Background::default(),
            },
            clock,
        )
    }
}
