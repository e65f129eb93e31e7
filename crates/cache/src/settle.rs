//! Requests whose answer was lost may still be carried out. Until that can no longer happen, nothing else is sent for
//! the same key: conditions alone don't suffice, since equal content has equal tags (A, B, then A again).

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::time::Duration;

use forebay_env::sync::Mutex;
use forebay_env::{Env, HashState};
use forebay_types::{Generation, ObjectPath};

/// Keys with a request that may land late.
pub(crate) struct Settle {
    env: Env,
    period: Duration,
    unsettled: Mutex<HashMap<ObjectPath, Duration>>,
    earlier: Mutex<Earlier>,
    hasher: HashState,
    /// Generations that the under store has, and whose record may be gone after a restart or not: a disk has failed.
    left: Mutex<HashMap<ObjectPath, Generation>>,
}

/// Keys of which an earlier process may have sent something.
#[derive(Default)]
struct Earlier {
    /// Hashes: there may be millions of keys. Two that share one only wait longer than they must.
    hashes: HashSet<u64>,
    /// It may have been any key: what would tell is lost.
    all: bool,
    until: Duration,
}

impl Settle {
    pub(crate) fn new(env: Env, period: Duration) -> Self {
        let hasher = HashState::new(env.random.as_ref());
        Self { env, period, unsettled: Mutex::default(), earlier: Mutex::default(), hasher, left: Mutex::default() }
    }

    /// An earlier process may have sent a request for this key.
    pub(crate) fn mark_earlier(&self, path: &ObjectPath) {
        let (hash, until) = (self.hasher.hash_one(path), self.env.clock.monotonic() + self.period);
        let mut earlier = self.earlier.lock();
        earlier.hashes.insert(hash);
        earlier.until = until;
    }

    /// An earlier process may have sent a request for any key.
    pub(crate) fn mark_all_earlier(&self) {
        let mut earlier = self.earlier.lock();
        (earlier.all, earlier.until) = (true, self.env.clock.monotonic() + self.period);
    }

    /// Whether what an earlier process has sent can land no more.
    pub(crate) fn is_earlier_over(&self) -> bool {
        self.earlier.lock().until <= self.env.clock.monotonic()
    }

    /// A request for this key has got no answer.
    pub(crate) fn mark(&self, path: &ObjectPath) {
        let until = self.env.clock.monotonic() + self.period;
        self.unsettled.lock().insert(path.clone(), until);
    }

    /// How long to wait before anything may be sent for this key; zero when nothing is on its way. This holds for the same
    /// version too: once it has succeeded its record is gone, and after a crash nobody would know of the first request.
    pub(crate) fn wait(&self, path: &ObjectPath) -> Duration {
        let now = self.env.clock.monotonic();
        let until = self.unsettled.lock().get(path).copied().unwrap_or_default();
        until.max(self.earlier_until(path, now)).saturating_sub(now)
    }

    fn earlier_until(&self, path: &ObjectPath, now: Duration) -> Duration {
        let earlier = self.earlier.lock();
        let is_marked = || earlier.all || earlier.hashes.contains(&self.hasher.hash_one(path));
        let counts = earlier.until > now && is_marked();
        if counts { earlier.until } else { Duration::ZERO }
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
        let mut earlier = self.earlier.lock();
        if earlier.until <= now {
            *earlier = Earlier { until: earlier.until, ..Earlier::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_an_earlier_process_wait_as_well() {
        let (env, clock) = Env::simulated(1);
        let settle = Settle::new(env, Duration::from_secs(30));
        let path = |key| ObjectPath::parse("bucket", key).unwrap();
        settle.mark_earlier(&path("first"));
        clock.advance(Duration::from_secs(1));
        settle.mark_earlier(&path("last"));
        settle.mark(&path("now"));
        clock.advance(Duration::from_secs(10));
        settle.mark(&path("last"));
        assert_eq!(settle.wait(&path("first")), Duration::from_secs(20));
        assert_eq!(settle.wait(&path("last")), Duration::from_secs(30), "the later of the two");
        assert_eq!(settle.wait(&path("other")), Duration::ZERO);
        clock.advance(Duration::from_secs(20));
        settle.sweep();
        assert_eq!(settle.wait(&path("first")), Duration::ZERO);
        assert_eq!(settle.wait(&path("last")), Duration::from_secs(10));
        assert!(settle.earlier.lock().hashes.is_empty());
    }

    #[test]
    fn where_nobody_knows_what_was_sent_every_key_waits() {
        let (env, clock) = Env::simulated(1);
        let settle = Settle::new(env, Duration::from_secs(30));
        let path = ObjectPath::parse("bucket", "key").unwrap();
        assert!(settle.is_earlier_over());
        settle.mark_all_earlier();
        assert_eq!(settle.wait(&path), Duration::from_secs(30));
        assert!(!settle.is_earlier_over());
        clock.advance(Duration::from_secs(30));
        settle.sweep();
        assert!(settle.is_earlier_over());
        assert_eq!(settle.wait(&path), Duration::ZERO);
    }

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
