//! A brake on guessing secrets.
//!
//! Failures are counted per pair of address and access key: a client that guesses at one key does not slow down others,
//! not even behind the same proxy. Access keys that do not exist count too, so that the brake does not reveal which
//! exist.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use forebay_env::Env;
use http::StatusCode;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::problem::{Answer, Problem};

/// Failures that may come at once: a human's slips, and a program with old keys that tries again.
const FAILURES_MAX: u32 = 10;
/// One failure is forgiven after this time. A thousand guesses take an hour and a half.
const FORGIVE_PERIOD: Duration = Duration::from_secs(5);
/// Pairs that are remembered, about 100 bytes each; beyond it the one that failed longest ago is forgotten, which takes
/// an attacker as many failures elsewhere.
const PAIRS_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct Throttle {
    failures: Mutex<HashMap<Pair, Failures>>,
}

/// Hash of an address and an access key.
type Pair = [u8; 32];

struct Failures {
    count: u32,
    /// When the last one was forgiven or, if none has been, made.
    since: Duration,
}

impl Failures {
    /// Those that are not forgiven yet.
    fn settle(&mut self, now: Duration) -> u32 {
        let forgiven = now.saturating_sub(self.since).as_secs() / FORGIVE_PERIOD.as_secs();
        let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
        self.count = self.count.saturating_sub(forgiven);
        self.since += FORGIVE_PERIOD.saturating_mul(forgiven);
        self.count
    }
}

/// A try whose outcome is open.
pub(crate) struct Attempt(Pair);

impl Throttle {
    /// # Errors
    /// 429 when too many tries have failed; nothing was compared.
    pub(crate) fn attempt(&self, env: &Env, peer: IpAddr, access_key: &str) -> Answer<Attempt> {
        let pair = pair(peer, access_key);
        let now = env.clock.monotonic();
        let mut failures = self.failures.lock();
        let count = failures.get_mut(&pair).map_or(0, |failures| failures.settle(now));
        if count == 0 {
            failures.remove(&pair);
        }
        if count < FAILURES_MAX {
            return Ok(Attempt(pair));
        }
        let mut problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many logins have failed; try again later");
        problem.retry_after = Some(FORGIVE_PERIOD);
        Err(problem)
    }

    pub(crate) fn failed(&self, env: &Env, Attempt(pair): Attempt) {
        let now = env.clock.monotonic();
        let mut failures = self.failures.lock();
        if failures.len() >= PAIRS_MAX && !failures.contains_key(&pair) {
            let oldest = failures.iter().min_by_key(|(_, failures)| failures.since).map(|(pair, _)| *pair);
            oldest.map(|pair| failures.remove(&pair));
        }
        let entry = failures.entry(pair).or_insert(Failures { count: 0, since: now });
        entry.settle(now);
        entry.count = entry.count.saturating_add(1);
    }
}

fn pair(peer: IpAddr, access_key: &str) -> Pair {
    let mut hash = Sha256::new();
    match peer.to_canonical() {
        IpAddr::V4(address) => hash.update(address.octets()),
        // One subscriber has a whole /64.
        IpAddr::V6(address) => hash.update(&address.octets()[..8]),
    }
    hash.update(access_key);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn fail(throttle: &Throttle, env: &Env, peer: IpAddr, access_key: &str) -> bool {
        let attempt = throttle.attempt(env, peer, access_key).map_err(|problem| assert_eq!(problem.status, 429));
        attempt.map(|attempt| throttle.failed(env, attempt)).is_ok()
    }

    #[test]
    fn guessing_is_slowed_down_for_its_address_and_key_alone() {
        let (env, clock) = Env::simulated(1);
        let throttle = Throttle::default();
        let let_through = (0..100).filter(|_| fail(&throttle, &env, HERE, "KEY")).count();
        assert_eq!(let_through, FAILURES_MAX as usize);
        assert!(throttle.attempt(&env, HERE, "OTHER").is_ok());
        assert!(throttle.attempt(&env, IpAddr::from([10, 0, 0, 1]), "KEY").is_ok());
        clock.advance(FORGIVE_PERIOD);
        assert_eq!((0..100).filter(|_| fail(&throttle, &env, HERE, "KEY")).count(), 1);
        clock.advance(FORGIVE_PERIOD * FAILURES_MAX);
        assert!(throttle.attempt(&env, HERE, "KEY").is_ok());
        assert!(throttle.failures.lock().is_empty(), "what is forgiven is forgotten");
    }

    #[test]
    fn many_pairs_do_not_fill_the_memory() {
        let (env, clock) = Env::simulated(1);
        let throttle = Throttle::default();
        for number in 0..2 * PAIRS_MAX {
            clock.advance(Duration::from_millis(1));
            assert!(fail(&throttle, &env, HERE, &number.to_string()));
        }
        assert_eq!(throttle.failures.lock().len(), PAIRS_MAX);
    }

    #[test]
    fn one_network_of_ipv6_is_one_address() {
        let (one, other) = ("2001:db8::1".parse().unwrap(), "2001:db8::ffff:2".parse().unwrap());
        assert_eq!(pair(one, "KEY"), pair(other, "KEY"));
        assert_eq!(pair("::ffff:127.0.0.1".parse().unwrap(), "KEY"), pair(HERE, "KEY"));
        assert_ne!(pair("2001:db8:0:1::1".parse().unwrap(), "KEY"), pair(one, "KEY"));
    }
}
