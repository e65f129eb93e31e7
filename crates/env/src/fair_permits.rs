//! A semaphore that is fair to tenants. The next permit goes to the tenant that has least, and among equals to the one
//! that has waited longest.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::sync::Mutex;

/// How much of something each tenant has, and which tenants may have more. The user decides what is counted: calls,
/// requests, bytes.
pub trait Shares: Send + 'static {
    type Tenant: Clone + Ord + Send + 'static;
    /// The tenant that has least is next.
    type Has: Ord;

    fn has(&self, tenant: &Self::Tenant) -> Self::Has;
    /// Where this says no, some tenant must have something: when that is given back, others continue.
    fn may_take(&self, tenant: &Self::Tenant) -> bool;
    /// Whether this amount is free. Until it is, the tenant that is next waits for it, and nobody overtakes that
    /// tenant: otherwise small amounts would keep a large one waiting. Where this says no, some tenant must have
    /// something.
    fn fits(&self, _amount: u64) -> bool {
        true
    }
    fn take(&mut self, tenant: &Self::Tenant, amount: u64);
    fn give_back(&mut self, tenant: &Self::Tenant, amount: u64);
}

/// Shares that can be waited for.
pub struct FairPermits<S: Shares> {
    state: Mutex<State<S>>,
}

struct State<S: Shares> {
    shares: S,
    waiting: BTreeMap<S::Tenant, VecDeque<Waiter<S>>>,
    /// The tenant that waits for its amount to become free. It keeps its turn, whatever others have by then.
    turn: Option<S::Tenant>,
    /// Number of waiters that have come so far.
    came: u64,
}

struct Waiter<S: Shares> {
    /// How many waiters came before.
    number: u64,
    amount: u64,
    permit: oneshot::Sender<FairPermit<S>>,
}

/// A waiter, until it gets its permit or gives up. It leaves the queue itself: while nothing is given back, nobody else
/// would notice that it has gone.
struct Waiting<'a, S: Shares> {
    permits: &'a Arc<FairPermits<S>>,
    tenant: &'a S::Tenant,
    number: u64,
}

/// What a tenant has taken. It is given back when this is dropped.
pub struct FairPermit<S: Shares> {
    permits: Arc<FairPermits<S>>,
    tenant: S::Tenant,
    amount: u64,
}

impl<S: Shares> FairPermits<S> {
    pub fn new(shares: S) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { shares, waiting: BTreeMap::new(), turn: None, came: 0 }) })
    }

    /// Waits for a permit. Waiters of one tenant get theirs in the order in which they come.
    pub async fn take(self: &Arc<Self>, tenant: &S::Tenant, amount: u64) -> FairPermit<S> {
        let (permit, _waiting) = {
            let mut state = self.state.lock();
            if state.waiting.is_empty() && state.shares.may_take(tenant) && state.shares.fits(amount) {
                return self.permit(&mut state, tenant.clone(), amount);
            }
            let (sender, permit) = oneshot::channel();
            let number = state.came;
            state.came += 1;
            state.waiting.entry(tenant.clone()).or_default().push_back(Waiter { number, amount, permit: sender });
            (permit, Waiting { permits: self, tenant, number })
        };
        // It may come before all others that wait.
        self.serve();
        permit.await.expect("a permit that is given back goes to the next waiter")
    }

    fn permit(self: &Arc<Self>, state: &mut State<S>, tenant: S::Tenant, amount: u64) -> FairPermit<S> {
        state.shares.take(&tenant, amount);
        FairPermit { permits: Arc::clone(self), tenant, amount }
    }

    /// Passes one permit on to the next waiter.
    fn give_on(self: &Arc<Self>) -> Option<(oneshot::Sender<FairPermit<S>>, FairPermit<S>)> {
        let mut state = self.state.lock();
        loop {
            let State { shares, waiting, turn, .. } = &*state;
            let may_take = |(tenant, _): &(&S::Tenant, &VecDeque<Waiter<S>>)| shares.may_take(tenant);
            let next = turn.as_ref().and_then(|tenant| waiting.get_key_value(tenant)).filter(may_take);
            let (tenant, queue) = next.or_else(|| {
                let others = waiting.iter().filter(may_take);
                others.min_by_key(|(tenant, queue)| (shares.has(tenant), queue.front().map(|first| first.number)))
            })?;
            // If this waiter has gone, the next one is served when it leaves the queue.
            let fits = queue.front().is_some_and(|first| shares.fits(first.amount));
            let tenant = tenant.clone();
            state.turn = (!fits).then(|| tenant.clone());
            if !fits {
                return None;
            }
            let queue = state.waiting.get_mut(&tenant)?;
            let first = queue.pop_front();
            if queue.is_empty() {
                state.waiting.remove(&tenant);
            }
            // Some waiters have gone meanwhile.
            if let Some(Waiter { amount, permit, .. }) = first.filter(|first| !first.permit.is_closed()) {
                return Some((permit, self.permit(&mut state, tenant, amount)));
            }
        }
    }

    /// Gives permits to waiters as long as one may have one.
    fn serve(self: &Arc<Self>) {
        while let Some((waiter, permit)) = self.give_on() {
            // If the waiter has gone in this moment, the permit is dropped here, which passes it on as well.
            drop(waiter.send(permit));
        }
    }

    /// For tests: the shares, and whether nobody waits.
    pub fn look<T>(&self, look: impl FnOnce(&S, bool) -> T) -> T {
        let state = self.state.lock();
        look(&state.shares, state.waiting.is_empty())
    }
}

impl<S: Shares> Drop for Waiting<'_, S> {
    fn drop(&mut self) {
        let mut state = self.permits.state.lock();
        let Some(queue) = state.waiting.get_mut(self.tenant) else { return };
        // The queue is sorted by number. A waiter that has got its permit is no longer in it.
        let Ok(at) = queue.binary_search_by_key(&self.number, |waiter| waiter.number) else { return };
        queue.remove(at);
        if queue.is_empty() {
            state.waiting.remove(self.tenant);
            if state.turn.as_ref() == Some(self.tenant) {
                state.turn = None;
            }
        }
        drop(state);
        // Others may have waited behind it.
        self.permits.serve();
    }
}

impl<S: Shares> FairPermit<S> {
    /// What the tenant has by now, this permit included.
    pub fn has(&self) -> S::Has {
        self.permits.state.lock().shares.has(&self.tenant)
    }

    pub fn tenant(&self) -> &S::Tenant {
        &self.tenant
    }
}

impl<S: Shares> Drop for FairPermit<S> {
    fn drop(&mut self) {
        self.permits.state.lock().shares.give_back(&self.tenant, self.amount);
        self.permits.serve();
    }
}
