//! On whose behalf a task works, and how requesters share permits.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use futures::{Stream, StreamExt};

use crate::fair_permits::{FairPermit, FairPermits, Shares};

/// A requester that has permits may have up to this many times what is free. Alone, it gets three quarters of all, so
/// that some stay free for others. See Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
/// switches", IEEE/ACM Transactions on Networking 6(2), 1998.
const SHARE: usize = 3;

tokio::task_local! {
    static PRESENT: Requester;
}

/// On whose behalf a request runs: the work of disks and directories for the request counts as this requester's. It is
/// a hash of the name. Two names with the same hash are likely only among some 2^32 of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requester(u64);

impl Requester {
    /// Forebay itself.
    pub const NOBODY: Self = Self(0);

    /// The log, which all writers wait for. It never queues behind other work of Forebay.
    pub const LOG: Self = Self(1);

    /// The requester that an access key names.
    pub fn named(access_key: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        access_key.hash(&mut hasher);
        Self(hasher.finish().max(2))
    }

    /// For another worker, which makes the same requester of it with [`Self::numbered`].
    pub fn number(self) -> u64 {
        self.0
    }

    /// The requester that has this number at another worker. It is never the log. Where other releases hash names
    /// differently, one access key is two requesters.
    pub fn numbered(number: u64) -> Self {
        if number == Self::LOG.0 { Self::NOBODY } else { Self(number) }
    }

    /// The requester that this task works for.
    pub fn present() -> Self {
        // All tasks of shuttle run on one thread, and change places within a step: one would see another's requester.
        if cfg!(feature = "schedules") {
            return Self::NOBODY;
        }
        PRESENT.try_with(|requester| *requester).unwrap_or(Self::NOBODY)
    }

    /// Makes `work`, and the tasks that it starts with [`crate::spawn`], work for this requester.
    pub fn gets<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        PRESENT.scope(self, work)
    }

    /// As [`Self::gets`], for everything that `stream` does when it is polled.
    pub fn gets_stream<S: Stream + Unpin>(self, mut stream: S) -> impl Stream<Item = S::Item> {
        futures::stream::poll_fn(move |context| self.gets_step(|| stream.poll_next_unpin(context)))
    }

    /// As [`Self::gets`], for a single step of something else.
    pub fn gets_step<T>(self, step: impl FnOnce() -> T) -> T {
        PRESENT.sync_scope(self, step)
    }
}

/// Permits that requesters share. Clones share them, too.
#[derive(Clone)]
pub struct RequesterPermits(Arc<FairPermits<Requesters>>);

/// A permit of one requester, until it is dropped.
pub struct RequesterPermit(FairPermit<Requesters>);

struct Requesters {
    free: usize,
    has: BTreeMap<Requester, usize>,
}

impl Shares for Requesters {
    type Tenant = Requester;
    type Has = usize;

    fn has(&self, requester: &Requester) -> usize {
        self.has.get(requester).copied().unwrap_or(0)
    }

    fn may_take(&self, requester: &Requester) -> bool {
        let has = self.has(requester);
        self.free > 0 && (has == 0 || has < SHARE * self.free)
    }

    fn take(&mut self, requester: &Requester, amount: u64) {
        self.free -= amount as usize;
        *self.has.entry(*requester).or_default() += amount as usize;
    }

    fn give_back(&mut self, requester: &Requester, amount: u64) {
        self.free += amount as usize;
        let has = self.has.get_mut(requester).expect("what is given back was taken");
        *has -= amount as usize;
        if *has == 0 {
            self.has.remove(requester);
        }
    }
}

impl RequesterPermit {
    /// How many permits the requester has by now, this one included.
    pub fn count(&self) -> usize {
        self.0.has()
    }
}

impl RequesterPermits {
    /// `max` permits in all.
    pub fn new(max: usize) -> Self {
        Self(FairPermits::new(Requesters { free: max, has: BTreeMap::new() }))
    }

    /// Waits for a permit for the requester that this task works for.
    pub async fn take(&self) -> RequesterPermit {
        RequesterPermit(self.0.take(&Requester::present(), 1).await)
    }
}
