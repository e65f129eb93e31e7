//! How many of the connections each access key has. When they run out, who has the most of them is refused first.
//!
//! A connection counts for who has sent the last request on it, from the moment that its signature has been checked: so
//! nobody takes permits in the name of somebody else.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_auth::User;
use forebay_cache::{Error, ErrorKind};
use forebay_env::{Linger, rest};
use forebay_types::shares::is_fair;
use parking_lot::Mutex;
use s3s::S3Result;

use crate::context::RequestContext;
use crate::error::from_cache;
use crate::metrics::Metrics;

/// The holder of connections whose requests only another worker can verify. It is no access key.
const UNVERIFIED: &str = "\0";

/// All permits for connections.
pub(crate) struct Shares {
    most: u64,
    taken: AtomicU64,
    /// By access key, which is empty for nobody's. Keys without a connection are not in it.
    holders: Mutex<HashMap<String, Arc<Holder>>>,
    metrics: Arc<Metrics>,
}

struct Holder {
    access_key: String,
    connections: AtomicU64,
}

/// A permit for one connection, until it is dropped.
pub(crate) struct ConnectionPermit {
    shares: Arc<Shares>,
    holder: Mutex<Option<Arc<Holder>>>,
    linger: Linger,
}

impl Shares {
    pub(crate) fn new(most: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { most: most as u64, taken: AtomicU64::new(0), holders: Mutex::default(), metrics })
    }

    pub(crate) fn enter(self: &Arc<Self>) -> Arc<ConnectionPermit> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Arc::new(ConnectionPermit { shares: Arc::clone(self), holder: Mutex::default(), linger: Linger::default() })
    }

    fn join(&self, access_key: &str) -> Arc<Holder> {
        let mut holders = self.holders.lock();
        let new = || Arc::new(Holder { access_key: access_key.to_owned(), connections: AtomicU64::new(0) });
        let holder = holders.entry(access_key.to_owned()).or_insert_with(new);
        holder.connections.fetch_add(1, Ordering::Relaxed);
        Arc::clone(holder)
    }

    fn leave(&self, holder: &Holder) {
        let mut holders = self.holders.lock();
        if holder.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            holders.remove(&holder.access_key);
        }
    }
}

impl ConnectionPermit {
    /// A request of `user` has come on this connection.
    ///
    /// # Errors
    /// `SlowDown` when there are few permits left and many connections of this user.
    pub(crate) fn admit(&self, user: &User, context: &RequestContext) -> S3Result<()> {
        self.belongs_to(&user.access_key);
        self.check(context)
    }

    /// A request has come on this connection whose signature only another worker can verify. Until it has, the
    /// connection counts for who has sent the request before, or else for all such requests together.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub(crate) fn admit_unverified(&self, context: &RequestContext) -> S3Result<()> {
        let is_nobodys = self.holder.lock().is_none();
        if is_nobodys {
            self.belongs_to(UNVERIFIED);
        }
        self.check(context)
    }

    fn check(&self, context: &RequestContext) -> S3Result<()> {
        if self.is_fair() {
            return Ok(());
        }
        self.shares.metrics.requests_over_share.inc();
        let error = Error::new(ErrorKind::SlowDown, "the access key has more than its share of the connections");
        Err(from_cache(error, &context.id, context.operation()))
    }

    /// Whether the connection may keep its permit. `false`: the permit is wanted for others.
    pub(crate) fn is_fair(&self) -> bool {
        let Some(held) = self.holder.lock().as_ref().map(|holder| holder.connections.load(Ordering::Relaxed)) else {
            return true;
        };
        let left = self.shares.most.saturating_sub(self.shares.taken.load(Ordering::Relaxed));
        // One may always be: there may be no more than one permit.
        held <= 1 || is_fair(held, left)
    }

    /// Of the connection.
    pub(crate) fn linger(&self) -> &Linger {
        &self.linger
    }

    /// How long the connection may wait for a client that sends what nobody reads.
    pub(crate) fn rest_wait(&self) -> Duration {
        if self.is_fair() { rest::WAIT } else { rest::WAIT_WHEN_WANTED }
    }

    /// Whose connection it is, if anybody's.
    pub(crate) fn access_key(&self) -> Option<String> {
        self.holder.lock().as_ref().map(|holder| holder.access_key.clone())
    }

    fn belongs_to(&self, access_key: &str) {
        let mut holder = self.holder.lock();
        if holder.as_ref().is_some_and(|holder| holder.access_key == access_key) {
            return;
        }
        if let Some(before) = holder.replace(self.shares.join(access_key)) {
            self.shares.leave(&before);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.get_mut() {
            self.shares.leave(holder);
        }
        self.shares.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use forebay_auth::Secret;
    use prometheus_client::registry::Registry;

    use super::*;

    fn user(access_key: &str) -> User {
        let (name, owner_id, secret) = (access_key.to_owned(), String::new(), Secret::new("secret"));
        User { name, owner_id, access_key: access_key.to_owned(), secret, grants: Vec::new() }
    }

    fn shares(most: usize) -> Arc<Shares> {
        Shares::new(most, Arc::new(Metrics::register(&mut Registry::default())))
    }

    /// Permits of as many connections as are admitted, until the first is refused.
    fn fill(shares: &Arc<Shares>, user: &User) -> Vec<Arc<ConnectionPermit>> {
        let context = RequestContext::new("id".to_owned(), "http");
        let admitted =
            std::iter::repeat_with(|| shares.enter()).take_while(|permit| permit.admit(user, &context).is_ok());
        admitted.take(1000).collect()
    }

    #[test]
    fn one_key_leaves_places_to_others_and_gives_some_back() {
        let (shares, greedy, modest) = (shares(64), user("greedy"), user("modest"));
        let taken = fill(&shares, &greedy);
        assert_eq!(taken.len(), 60);
        let others = fill(&shares, &modest);
        assert!(!others.is_empty());
        assert!(taken.iter().all(|permit| !permit.is_fair()), "who has most has too many now");
        assert!(others.iter().all(|permit| permit.is_fair()));
        drop((taken, others));
        assert!(shares.holders.lock().is_empty(), "who has gone is forgotten");
        assert_eq!(fill(&shares, &modest).len(), 60);
    }

    #[test]
    fn a_connection_counts_for_who_asked_last() {
        let (shares, first, second) = (shares(64), user("first"), user("second"));
        let taken = fill(&shares, &first);
        let context = RequestContext::new("id".to_owned(), "http");
        for permit in &taken[..30] {
            assert!(permit.admit(&second, &context).is_ok());
        }
        assert!(taken[40].admit(&first, &context).is_ok(), "it has only half of them now");
        assert_eq!(shares.holders.lock().len(), 2);
    }

    #[test]
    fn where_there_is_one_place_it_can_be_used() {
        let shares = shares(1);
        assert!(shares.enter().admit(&user("key"), &RequestContext::new("id".to_owned(), "http")).is_ok());
    }
}
