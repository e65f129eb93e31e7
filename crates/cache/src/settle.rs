//! Requests whose answer was lost may still be carried out. Until that can no longer happen, no other version of
//! the same key is sent: conditions alone don't suffice, since equal content has equal tags (A, B, then A again).

use std::collections::HashMap;
use std::time::Duration;

use forebay_env::Env;
use forebay_types::{Generation, ObjectPath};
use parking_lot::Mutex;

/// Keys with a request that may land late.
pub(crate) struct Settle {
    env: Env,
    period: Duration,
    unsettled: Mutex<HashMap<ObjectPath, (Generation, Duration)>>,
}

impl Settle {
    pub(crate) fn new(env: Env, period: Duration) -> Self {
        Self { env, period, unsettled: Mutex::default() }
    }

    /// A request for this generation has got no answer, or may have been cut off by a crash.
    pub(crate) fn mark(&self, path: &ObjectPath, generation: Generation) {
        let until = self.env.clock.monotonic() + self.period;
        self.unsettled.lock().insert(path.clone(), (generation, until));
    }

    /// How long to wait before `generation` may be sent; zero when nothing else is on its way. Sending the same generation again is
    /// always allowed: late or twice, it is the same object.
    pub(crate) fn wait(&self, path: &ObjectPath, generation: Generation) -> Duration {
        let now = self.env.clock.monotonic();
        let mut unsettled = self.unsettled.lock();
        match unsettled.get(path).copied() {
            Some((_, until)) if until <= now => {
                unsettled.remove(path);
                Duration::ZERO
            }
            Some((sent, until)) if sent != generation => until - now,
            Some(_) | None => Duration::ZERO,
        }
    }

    /// Drops what is settled by now.
    pub(crate) fn sweep(&self) {
        let now = self.env.clock.monotonic();
        self.unsettled.lock().retain(|_, (_, until)| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_generation_waits_and_the_same_one_does_not() {
        let (env, clock) = Env::simulated(1);
        let settle = Settle::new(env, Duration::from_secs(30));
        let path = ObjectPath::parse("bucket", "key").unwrap();
        assert_eq!(settle.wait(&path, Generation(2)), Duration::ZERO);
        settle.mark(&path, Generation(1));
        assert_eq!(settle.wait(&path, Generation(1)), Duration::ZERO);
        clock.advance(Duration::from_secs(10));
        assert_eq!(settle.wait(&path, Generation(2)), Duration::from_secs(20));
        clock.advance(Duration::from_secs(20));
        assert_eq!(settle.wait(&path, Generation(2)), Duration::ZERO);
    }
}
