//! When operations begin.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_env::Clock;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::unix::AsyncFd;

/// How operations follow one another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// Each connection begins an operation when its previous one has ended.
    Closed,
    /// Operations are due at a fixed rate, in operations per second of all connections together, whatever the server
    /// does. Latency counts from when an operation was due, so a stall shows in all operations that it has delayed
    /// (Tene: "How NOT to measure latency").
    Open(f64),
}

/// What ends a load: the limit that is reached first.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) duration: Option<Duration>,
    pub(crate) operations: Option<u64>,
    pub(crate) bytes: Option<u64>,
}

/// Tells each connection of a load when its next operation begins. Times are of the monotonic clock.
pub(crate) struct Schedule {
    clock: Arc<dyn Clock>,
    pace: Pace,
    start: Duration,
    limits: Limits,
    begun: AtomicU64,
    bytes: AtomicU64,
}

impl Schedule {
    /// Starts now.
    pub(crate) fn new(clock: Arc<dyn Clock>, pace: Pace, limits: Limits) -> Self {
        let start = clock.monotonic();
        Self { clock, pace, start, limits, begun: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    pub(crate) fn start(&self) -> Duration {
        self.start
    }

    fn is_over(&self, time: Duration) -> bool {
        self.limits.duration.is_some_and(|duration| time >= self.start + duration)
            || self.limits.bytes.is_some_and(|bytes| self.bytes.load(Ordering::Relaxed) >= bytes)
    }

    /// When the next operation counts as begun, which is never in the future. `None` when the load is over.
    pub(crate) async fn next(&self, timer: Option<&Timer>) -> Option<Duration> {
        let now = self.clock.monotonic();
        if self.is_over(now) {
            return None;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        if self.limits.operations.is_some_and(|operations| number >= operations) {
            return None;
        }
        let (Pace::Open(rate), Some(timer)) = (self.pace, timer) else { return Some(now) };
        let due = self.start + Duration::from_secs_f64(number as f64 / rate);
        if self.is_over(due) {
            return None;
        }
        timer.wait(due.saturating_sub(now)).await;
        Some(due)
    }

    /// Counts the bytes that an operation has moved.
    pub(crate) fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Operations that were due within the duration but have not begun, when `begun` have: they waited until the end
    /// for a free connection.
    pub(crate) fn missed(&self, begun: u64) -> u64 {
        match (self.pace, self.limits.duration) {
            (Pace::Open(rate), Some(duration)) => {
                let due = (rate * duration.as_secs_f64()).ceil() as u64;
                due.min(self.limits.operations.unwrap_or(u64::MAX)).saturating_sub(begun)
            }
            _ => 0,
        }
    }
}

/// The kernel's timer, exact to a few microseconds. The runtime's own timer counts in milliseconds, which is longer
/// than many operations take.
pub(crate) struct Timer {
    descriptor: AsyncFd<OwnedFd>,
}

impl Timer {
    /// Needs a runtime.
    ///
    /// # Errors
    /// When there are no more descriptors.
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe, for types that may lose their descriptor: this one owns it"
    )]
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { descriptor: AsyncFd::new(descriptor)? })
    }

    async fn wait(&self, period: Duration) {
        if period.is_zero() {
            return;
        }
        let once = Timespec { tv_sec: period.as_secs() as i64, tv_nsec: i64::from(period.subsec_nanos()) };
        let setting = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: once };
        rustix::time::timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::empty(), &setting)
            .expect("a period of less than the age of the universe can be set");
        loop {
            let mut ready = self.descriptor.readable().await.expect("the runtime outlives its tasks");
            let read = |inner: &AsyncFd<OwnedFd>| Ok(rustix::io::read(inner.get_ref(), &mut [0_u8; 8])?);
            if ready.try_io(read).is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use super::*;

    fn limits(milliseconds: u64) -> Limits {
        Limits { duration: Some(Duration::from_millis(milliseconds)), ..Limits::default() }
    }

    #[tokio::test]
    async fn an_open_loop_begins_when_it_is_due_and_never_before() {
        let clock = Env::real().clock;
        let schedule = Schedule::new(Arc::clone(&clock), Pace::Open(2000.0), limits(50));
        let timer = Timer::new().unwrap();
        let mut due = Vec::new();
        while let Some(begin) = schedule.next(Some(&timer)).await {
            assert!(clock.monotonic() >= begin);
            due.push(begin - schedule.start());
        }
        let steps = due.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(steps.clone().all(|step| step.as_micros().abs_diff(500) <= 1), "{:?}", steps.collect::<Vec<_>>());
        assert_eq!(due.len() as u64 + schedule.missed(due.len() as u64), 100);
        assert_eq!(schedule.missed(60), 40);
    }

    #[tokio::test]
    async fn operations_and_bytes_end_a_load() {
        let (env, _clock) = Env::simulated(1);
        let operations = Limits { operations: Some(3), ..Limits::default() };
        let schedule = Schedule::new(Arc::clone(&env.clock), Pace::Closed, operations);
        let mut begun = 0;
        while schedule.next(None).await.is_some() {
            begun += 1;
        }
        assert_eq!(begun, 3);
        let schedule = Schedule::new(env.clock, Pace::Closed, Limits { bytes: Some(10), ..Limits::default() });
        schedule.moved(9);
        assert!(schedule.next(None).await.is_some());
        schedule.moved(1);
        assert!(schedule.next(None).await.is_none());
    }

    #[tokio::test]
    async fn a_closed_loop_ends_with_its_duration() {
        let (env, clock) = Env::simulated(1);
        let schedule = Schedule::new(env.clock, Pace::Closed, limits(50));
        assert_eq!(schedule.next(None).await, Some(schedule.start()));
        clock.advance(Duration::from_millis(50));
        assert_eq!(schedule.next(None).await, None);
        assert_eq!(schedule.missed(1), 0);
    }
}
