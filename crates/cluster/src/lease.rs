//! For how long a worker may take it that it is the home of its slots.
//!
//! Each transaction of a worker renews its lease, from the moment before it was sent. Others take its slots no earlier
//! than a whole lease after they have seen the last change of its record, each by its own monotonic clock. So the
//! worker ends its lease early by what clocks may differ. Nothing is lost with a lease: if nobody has taken the slots,
//! the next transaction renews it.

use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::{Error, ErrorKind, Result};
use forebay_env::Clock;
use forebay_env::sync::Mutex;

/// The clock rates of two machines differ by less than one part in this number: ten times what crystals do.
const DRIFT: u32 = 1000;

/// Of a lease: the longest time between two transactions that counts as no interruption. Idle workers send one in each
/// quarter of a lease. When all of them can write again after an interruption, each does within such a quarter. So
/// without an interruption here, no other worker was without a transaction for a whole lease for the same reason.
const GAP_MAX: u32 = 2;

/// What a worker needs to notice that its lease is over, and to end what it was doing.
const MARGIN_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Lease {
    clock: Arc<dyn Clock>,
    length: Duration,
    state: Mutex<State>,
}

struct State {
    until: Duration,
    /// The last transactions that are done.
    run: Option<Run>,
    /// Why the worker is the home of nothing any more, until it starts again.
    lost: Option<String>,
}

/// Transactions without an interruption: when the first was sent, and when the last was.
#[derive(Clone, Copy)]
struct Run {
    first: Duration,
    last: Duration,
}

impl Lease {
    /// One that is over.
    pub(crate) fn new(clock: Arc<dyn Clock>, length: Duration) -> Self {
        Self { clock, length, state: Mutex::new(State { until: Duration::ZERO, run: None, lost: None }) }
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// How long after its last transaction a worker sends the next one, whether it has anything to write or not.
    pub(crate) fn renewal(&self) -> Duration {
        self.length / 4
    }

    /// A transaction that was sent at this time is done.
    pub(crate) fn renew(&self, sent: Duration) {
        let margin = MARGIN_MAX.min(self.length / 4) + self.length / DRIFT;
        let mut state = self.state.lock();
        state.until = state.until.max(sent + self.length - margin);
        state.run = match state.run {
            Some(run) if self.follows(run, sent) => Some(Run { last: run.last.max(sent), ..run }),
            Some(_) | None => Some(Run { first: sent, last: sent }),
        };
    }

    fn follows(&self, run: Run, time: Duration) -> bool {
        time <= run.last + self.length / GAP_MAX
    }

    /// For how long this worker has been able to write, without an interruption: others could, too.
    pub(crate) fn written_for(&self) -> Duration {
        let (run, now) = (self.state.lock().run, self.now());
        run.filter(|run| self.follows(*run, now)).map_or(Duration::ZERO, |run| now.saturating_sub(run.first))
    }

    /// The first reason counts.
    pub(crate) fn lose(&self, reason: &str) {
        self.state.lock().lost.get_or_insert_with(|| reason.to_owned());
    }

    /// The reason for which the slots are lost.
    pub(crate) fn lost(&self) -> Option<String> {
        self.state.lock().lost.clone()
    }

    /// What is left of it, if nothing renews it.
    pub(crate) fn left(&self) -> Duration {
        let state = self.state.lock();
        match state.lost {
            Some(_) => Duration::ZERO,
            None => state.until.saturating_sub(self.now()),
        }
    }

    /// # Errors
    /// `Unavailable` when the lease is over, and for good when the slots are lost.
    pub(crate) fn check(&self) -> Result<()> {
        let unavailable = |problem: String| Err(Error::new(ErrorKind::Unavailable, problem));
        let state = self.state.lock();
        match &state.lost {
            Some(reason) => unavailable(format!("this worker has lost its slots: {reason}")),
            None if self.now() >= state.until => {
                unavailable("the engine does not renew this worker's lease".to_owned())
            }
            None => Ok(()),
        }
    }

    /// # Errors
    /// `Unavailable` when the slots are lost.
    pub(crate) fn check_not_lost(&self) -> Result<()> {
        match &self.state.lock().lost {
            Some(reason) => {
                Err(Error::new(ErrorKind::Unavailable, format!("this worker has lost its slots: {reason}")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use super::*;

    /// Others count on, and take the slots.
    #[test]
    fn a_lease_ends_while_the_machine_is_suspended() {
        let (env, clock) = Env::simulated(1);
        let length = Duration::from_secs(10);
        let lease = Lease::new(env.clock, length);
        lease.renew(lease.now());
        clock.suspend(length / 2);
        assert!(lease.check().is_ok());
        clock.suspend(length / 2);
        assert_eq!((lease.check().is_ok(), lease.left()), (false, Duration::ZERO));
        lease.renew(Duration::ZERO);
        assert!(lease.check().is_err(), "the answer to what was sent before");
    }
}
