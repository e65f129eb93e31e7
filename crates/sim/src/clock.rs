//! A clock that jumps to the next sleeper whenever nothing else is left to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use forebay_env::Clock;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// 2020-01-01T00:00:00Z.
const START_UNIX_MS: i64 = 1_577_836_800_000;

/// What happens at some time: somebody wakes, or the world outside of all processes does something.
enum Due {
    Wake(oneshot::Sender<()>),
    Event(Box<dyn FnOnce() + Send>),
}

/// Simulated time. It outlives the processes that run in it, and so do events.
pub(crate) struct SimClock {
    state: Mutex<State>,
}

struct State {
    now: Duration,
    wall_ahead_ms: i64,
    /// By time and a number that keeps equal times apart.
    due: BTreeMap<(Duration, u64), Due>,
    next: u64,
    /// Of all jumps so far.
    hash: u64,
    /// Of the run, which outlives all processes.
    run: Option<Waker>,
}

impl SimClock {
    pub(crate) fn new() -> Self {
        let state = State { now: Duration::ZERO, wall_ahead_ms: 0, due: BTreeMap::new(), next: 0, hash: 0, run: None };
        Self { state: Mutex::new(state) }
    }

    pub(crate) fn now(&self) -> Duration {
        self.state.lock().now
    }

    /// Sets the wall clock forward or back. The monotonic clock knows nothing of it.
    pub(crate) fn jump_wall(&self, by_ms: i64) {
        self.state.lock().wall_ahead_ms += by_ms;
    }

    /// Does something after a pause, whatever processes run then.
    pub(crate) fn after(&self, pause: Duration, event: impl FnOnce() + Send + 'static) {
        self.state.lock().add(pause, Due::Event(Box::new(event)));
    }

    /// Advances to the next time at which anything happens. The runtime calls it before it would sleep: no task can run
    /// before that.
    pub(crate) fn advance(&self) {
        let due = self.state.lock().next_due();
        match due {
            // A sleeper that has given up meanwhile does not matter.
            Some(Due::Wake(sleeper)) => drop(sleeper.send(())),
            Some(Due::Event(event)) => event(),
            None => {}
        }
        // What has woken may be a future that nobody polls any more.
        let run = self.state.lock().run.take();
        if let Some(run) = run {
            run.wake();
        }
    }

    /// Never ends. A run waits for it beside all else, so that the clock advances as long as the run lasts.
    pub(crate) async fn run(&self) {
        std::future::poll_fn(|context| {
            self.state.lock().run = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Of all times that the clock has jumped to.
    pub(crate) fn hash(&self) -> u64 {
        self.state.lock().hash
    }
}

impl State {
    fn add(&mut self, pause: Duration, due: Due) {
        let at = self.now + pause;
        self.due.insert((at, self.next), due);
        self.next += 1;
    }

    fn next_due(&mut self) -> Option<Due> {
        loop {
            let ((at, _), due) = self.due.pop_first()?;
            // A sleeper that has given up waiting does not move the clock.
            if matches!(&due, Due::Wake(sleeper) if sleeper.is_closed()) {
                continue;
            }
            self.now = at;
            self.hash = self.hash.rotate_left(5).wrapping_mul(0x517c_c1b7_2722_0a95) ^ at.as_nanos() as u64;
            return Some(due);
        }
    }
}

#[async_trait]
impl Clock for SimClock {
    fn unix_ms(&self) -> u64 {
        let state = self.state.lock();
        (START_UNIX_MS + state.wall_ahead_ms + state.now.as_millis() as i64).max(0) as u64
    }

    fn monotonic(&self) -> Duration {
        self.now()
    }

    async fn sleep(&self, period: Duration) {
        let (sender, receiver) = oneshot::channel();
        self.state.lock().add(period, Due::Wake(sender));
        // The clock outlives everybody who sleeps on it.
        let _ = receiver.await;
    }
}

/// Parts of [`Drifting::ahead`] in one.
const PARTS: i128 = 1_000_000;

/// The clock of one machine, which is a little faster or slower than time.
pub(crate) struct Drifting {
    pub(crate) time: Arc<SimClock>,
    /// Parts of a million by which it is too fast; too slow when negative.
    pub(crate) ahead: i64,
}

impl Drifting {
    fn shown(&self, time: Duration) -> Duration {
        Duration::from_nanos((time.as_nanos() as i128 * (PARTS + i128::from(self.ahead)) / PARTS) as u64)
    }
}

#[async_trait]
impl Clock for Drifting {
    fn unix_ms(&self) -> u64 {
        self.time.unix_ms()
    }

    fn monotonic(&self) -> Duration {
        self.shown(self.time.now())
    }

    async fn sleep(&self, period: Duration) {
        // The first moment at which this clock has advanced by as much.
        let until = self.monotonic() + period;
        let scaled = period.as_nanos() as i128 * PARTS / (PARTS + i128::from(self.ahead));
        let mut lasts = Duration::from_nanos(scaled as u64);
        while self.shown(self.time.now() + lasts) < until {
            lasts += Duration::from_nanos(1);
        }
        self.time.sleep(lasts).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(clock: &Arc<SimClock>, work: impl Future<Output = T>) -> T {
        let jumping = Arc::clone(clock);
        let runtime = tokio::runtime::Builder::new_current_thread().on_thread_park(move || jumping.advance()).build();
        runtime.expect("a runtime").block_on(async {
            tokio::select! { biased; result = work => result, () = clock.run() => unreachable!() }
        })
    }

    #[test]
    fn an_idle_runtime_jumps_to_the_next_sleeper() {
        let clock = Arc::new(SimClock::new());
        let order = run(&clock, async {
            let order = Arc::new(Mutex::new(Vec::new()));
            let sleepers: Vec<_> = [3, 1, 2]
                .map(|hours: u64| {
                    let (clock, order) = (Arc::clone(&clock), Arc::clone(&order));
                    forebay_env::spawn(async move {
                        clock.sleep(Duration::from_secs(hours * 3600)).await;
                        order.lock().push((hours, clock.now()));
                    })
                })
                .into();
            for sleeper in sleepers {
                sleeper.join().await;
            }
            order.lock().clone()
        });
        assert_eq!(order, [1, 2, 3].map(|hours| (hours, Duration::from_secs(hours * 3600))));
    }

    #[test]
    fn a_clock_that_drifts_sleeps_for_what_it_takes_for_the_time() {
        for ahead in [-450, 0, 333, 450] {
            let time = Arc::new(SimClock::new());
            let clock = Drifting { time: Arc::clone(&time), ahead };
            run(&time, async {
                for nanos in [1, 999_983, 7_000_000_001] {
                    let (before, shown) = (time.now(), clock.monotonic());
                    clock.sleep(Duration::from_nanos(nanos)).await;
                    let (took, took_shown) = (time.now() - before, clock.monotonic() - shown);
                    let late = took_shown.checked_sub(Duration::from_nanos(nanos)).expect("it does not wake too soon");
                    assert!(late <= Duration::from_nanos(2), "{late:?} late");
                    let difference = took.as_nanos() as i128 - i128::from(nanos);
                    assert!(difference.abs() <= i128::from(nanos) / 2000 + 2, "{took:?} for {nanos} ns");
                }
            });
        }
    }

    #[test]
    fn events_happen_by_themselves_and_lost_sleepers_move_nothing() {
        let clock = Arc::new(SimClock::new());
        let (happened, at) = (Arc::new(Mutex::new(None)), Arc::clone(&clock));
        let note = Arc::clone(&happened);
        clock.after(Duration::from_secs(5), move || *note.lock() = Some(at.now()));
        assert_eq!(futures::FutureExt::now_or_never(clock.sleep(Duration::from_secs(1))), None);
        clock.jump_wall(-10_000);
        run(&clock, clock.sleep(Duration::from_secs(60)));
        assert_eq!(*happened.lock(), Some(Duration::from_secs(5)));
        assert_eq!((clock.now(), clock.unix_ms()), (Duration::from_secs(60), START_UNIX_MS as u64 + 50_000));
    }
}
