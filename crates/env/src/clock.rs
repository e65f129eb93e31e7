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
    /// Time since some fixed instant in the life of the process. Never goes back.
    fn monotonic(&self) -> Duration;
    async fn sleep(&self, period: Duration);
}

/// The operating system's clocks.
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the replacement that the lint names")]
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }
}

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the replacement that the lint names")]
    fn unix_ms(&self) -> u64 {
        // A clock that is set to before 1970 reads as 1970.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
    }

    fn monotonic(&self) -> Duration {
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
    /// By wake-up time, with a number that tells equal times apart.
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
    next_sleeper: u64,
}

impl ManualClock {
    pub(crate) fn new() -> Self {
        let state = ManualState {
            unix_ms: 1_577_836_800_000,
            monotonic: Duration::ZERO,
            sleepers: BTreeMap::new(),
            next_sleeper: 0,
        };
        Self { state: Mutex::new(state) }
    }

    /// Advances both clocks, and wakes the sleepers whose time has come.
    pub fn advance(&self, period: Duration) {
        let mut state = self.state.lock();
        state.monotonic += period;
        state.unix_ms += period.as_millis() as u64;
        let now = state.monotonic;
        let still_asleep = state.sleepers.split_off(&(now, u64::MAX));
        for (_, sleeper) in std::mem::replace(&mut state.sleepers, still_asleep) {
            let _ = sleeper.send(());
        }
    }

    /// Sets the wall clock, forward or back, and leaves the monotonic clock alone.
    pub fn set_unix_ms(&self, unix_ms: u64) {
        self.state.lock().unix_ms = unix_ms;
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

    async fn sleep(&self, period: Duration) {
        let awake = {
            let mut state = self.state.lock();
            let (sender, receiver) = oneshot::channel();
            let key = (state.monotonic + period, state.next_sleeper);
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
}
