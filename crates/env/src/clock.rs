//! Time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tokio::sync::oneshot;

use crate::sync::Mutex;

/// Wall-clock time for what people see (Last-Modified, signatures), monotonic time for everything else. No order and no
/// timeout may depend on the wall clock, which can jump either way.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch.
    fn unix_ms(&self) -> u64;
    /// Time since some fixed instant in the life of the process. Never goes back. Counts the time in which the machine
    /// is suspended: meanwhile other workers count on, and take what a lease was for.
    fn monotonic(&self) -> Duration;
    /// The same without the time in which the machine is suspended. For waits until the machine itself has done
    /// something, such as sent what is in its sockets. At most as much as [`Clock::monotonic`] passes.
    fn awake(&self) -> Duration {
        self.monotonic()
    }
    /// The machine has to be awake for all of `period`. So at least as much passes by both other clocks.
    async fn sleep(&self, period: Duration);
}

/// The operating system's clocks. `Instant` is `CLOCK_MONOTONIC` on Linux, as are all timers: it stands still while the
/// machine is suspended.
pub struct SystemClock {
    start_since_boot: Duration,
    start: Instant,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the replacement that the lint names")]
    pub(crate) fn new() -> Self {
        Self { start_since_boot: since_boot(), start: Instant::now() }
    }
}

/// `CLOCK_BOOTTIME`, which counts the time in which the machine is suspended. No clock of a virtual machine has to show
/// that its host has paused it.
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the replacement that the lint names")]
    fn unix_ms(&self) -> u64 {
        // A clock that is set to before 1970 reads as 1970.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
    }

    fn monotonic(&self) -> Duration {
        since_boot().saturating_sub(self.start_since_boot)
    }

    fn awake(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the replacement that the lint names")]
    async fn sleep(&self, period: Duration) {
        tokio::time::sleep(period).await;
    }
}

/// A clock that stands still until [`ManualClock::advance`] is called. It starts at 2020-01-01T00:00:00Z.
pub struct ManualClock {
    state: Mutex<ManualState>,
}

struct ManualState {
    unix_ms: u64,
    monotonic: Duration,
    awake: Duration,
    /// By wake-up time, in awake time, with a number that tells equal times apart.
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
    next_sleeper: u64,
}

impl ManualClock {
    pub(crate) fn new() -> Self {
        let state = ManualState {
            unix_ms: 1_577_836_800_000,
            monotonic: Duration::ZERO,
            awake: Duration::ZERO,
            sleepers: BTreeMap::new(),
            next_sleeper: 0,
        };
        Self { state: Mutex::new(state) }
    }

    /// Advances all clocks, and wakes the sleepers whose time has come.
    pub fn advance(&self, period: Duration) {
        let mut state = self.state.lock();
        state.pass(period);
        state.awake += period;
        let now = state.awake;
        let still_asleep = state.sleepers.split_off(&(now, u64::MAX));
        for (_, sleeper) in std::mem::replace(&mut state.sleepers, still_asleep) {
            let _ = sleeper.send(());
        }
    }

    /// As when the machine is suspended for this period, and has just continued: sleepers sleep as long as before.
    pub fn suspend(&self, period: Duration) {
        self.state.lock().pass(period);
    }

    /// Sets the wall clock, forward or back, and leaves the monotonic clock alone.
    pub fn set_unix_ms(&self, unix_ms: u64) {
        self.state.lock().unix_ms = unix_ms;
    }
}

impl ManualState {
    fn pass(&mut self, period: Duration) {
        self.monotonic += period;
        self.unix_ms += period.as_millis() as u64;
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn unix_ms(&self) -> u64 {
        self.state.lock().unix_ms
    }

    fn monotonic(&self) -> Duration {
        self.state.lock().monotonic
    }

    fn awake(&self) -> Duration {
        self.state.lock().awake
    }

    async fn sleep(&self, period: Duration) {
        let awake = {
            let mut state = self.state.lock();
            let (sender, receiver) = oneshot::channel();
            let key = (state.awake + period, state.next_sleeper);
            state.next_sleeper += 1;
            if period.is_zero() {
                return;
            }
            state.sleepers.insert(key, sender);
            receiver
        };
        // The sender is dropped only with the clock.
        let _ = awake.await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_sleeper_wakes_when_its_time_has_come_and_not_before() {
        let clock = Arc::new(ManualClock::new());
        let other = Arc::clone(&clock);
        let sleeper = crate::spawn(async move { other.sleep(Duration::from_secs(10)).await });
        while clock.state.lock().sleepers.is_empty() {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(9));
        assert_eq!(clock.state.lock().sleepers.len(), 1);
        clock.advance(Duration::from_secs(1));
        sleeper.join().await;
        assert_eq!(clock.monotonic(), Duration::from_secs(10));
    }

    /// The kernel notes when each process was started, by the clock that counts all time.
    #[test]
    fn the_time_since_boot_counts_when_the_machine_is_suspended() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        // The 22nd field of proc(5), of which the second, a name, may contain anything.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks: u64 = fields.split_whitespace().nth(19).unwrap().parse().unwrap();
        let started = Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second());
        let now = since_boot();
        assert!(started <= now && now < started + Duration::from_secs(3600), "{started:?} {now:?}");
    }

    #[test]
    fn the_clocks_of_the_system_never_go_back_and_all_that_is_awake_time_counts() {
        let clock = SystemClock::new();
        let mut before = Duration::ZERO;
        for _ in 0..1000 {
            let awake = clock.awake();
            let all = clock.monotonic();
            assert!(before <= all && awake <= all, "{before:?} {awake:?} {all:?}");
            before = all;
        }
    }
}
