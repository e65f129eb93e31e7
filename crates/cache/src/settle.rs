//! Requests whose answer was lost may still be carried out. Until that can no longer happen, nothing else is sent for
//! the same key: conditions alone don't suffice, since equal content has equal tags (A, B, then A again).

use std::collections::HashMap;
use std::time::Duration;

use forebay_env::Env;
use forebay_types::{Generation, ObjectPath};
use parking_lot::Mutex;

/// Keys with a request that may land late.
pub(crate) struct Settle {
    env: Env,
    period: Duration,
    unsettled: Mutex<HashMap<ObjectPath, Duration>>,
    /// Generations that the under store has, and whose record may be gone after a restart or not: a disk has failed.
    left: Mutex<HashMap<ObjectPath, Generation>>,
}

impl Settle {
    pub(crate) fn new(env: Env, period: Duration) -> Self {
        Self { env, period, unsettled: Mutex::default(), left: Mutex::default() }
    }

    /// A request for this key has got no answer, or may have been cut off by a crash.
    pub(crate) fn mark(&self, path: &ObjectPath) {
        let until = self.env.clock.monotonic() + self.period;
        self.unsettled.lock().insert(path.clone(), until);
    }

    /// How long to wait before anything may be sent for this key; zero when nothing is on its way. This holds for the same
    /// version too: once it has succeeded its record is gone, and after a crash nobody would know of the first request.
    pub(crate) fn wait(&self, path: &ObjectPath) -> Duration {
        let now = self.env.clock.monotonic();
        let mut unsettled = self.unsettled.lock();
        match unsettled.get(path).copied() {
            Some(until) if until <= now => {
                unsettled.remove(path);
                Duration::ZERO
            }
            Some(until) => until - now,
            None => Duration::ZERO,
        }
    }

    /// The under store has this generation, and the commit that says so got no answer. Nothing more is sent for it in this life: the next
    /// one may find no record, and would know of no request that may still land.
    pub(crate) fn leave(&self, path: &ObjectPath, generation: Generation) {
        self.left.lock().insert(path.clone(), generation);
    }

    pub(crate) fn is_left(&self, path: &ObjectPath, generation: Generation) -> bool {
        self.left.lock().get(path) == Some(&generation)
    }

    /// Drops what is settled by now.
    pub(crate) fn sweep(&self) {
        let now = self.env.clock.monotonic();
        self.unsettled.lock().retain(|_, until| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_waits_until_its_request_is_settled() {
        let (env, clock) = Env::simulated(1);
        let settle = Settle::new(env, Duration::from_secs(30));
        let path = ObjectPath::parse("bucket", "key").unwrap();
        assert_eq!(settle.wait(&path), Duration::ZERO);
        settle.mark(&path);
        clock.advance(Duration::from_secs(10));
        assert_eq!(settle.wait(&path), Duration::from_secs(20));
        assert_eq!(settle.wait(&ObjectPath::parse("bucket", "other").unwrap()), Duration::ZERO);
        clock.advance(Duration::from_secs(20));
        assert_eq!(settle.wait(&path), Duration::ZERO);
    }
}
