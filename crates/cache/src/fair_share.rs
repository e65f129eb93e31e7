//! What under stores and buckets share, so that none takes all of it: places among the fetches, and among the uploads.
//!
//! How much one may have depends on how much is free, after dynamic queue length thresholds (Choudhury and Hahne, IEEE/ACM Transactions on
//! Networking 6(2), 1998). An under store may have twice what is free: alone two thirds of all, so that a third stays for whoever comes. A
//! bucket may have four times what its under store could still get. What is given back goes to the one that has least. So one that holds its
//! places for long, since it is slow or does not answer, leaves room for the others, and those that are busy share evenly.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use forebay_env::sync::Mutex;
use forebay_types::BucketName;
use tokio::sync::oneshot;

/// Who uses places.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tenant {
    /// The bucket of a mount, which is an under store of its own; `None` for the under store of all other buckets.
    pub(crate) mount: Option<BucketName>,
    pub(crate) bucket: BucketName,
}

/// Who has how much. What is counted is up to the user: requests, bytes.
pub(crate) struct Shares {
    /// The most that one bucket may have.
    alone: u64,
    total: u64,
    used: u64,
    stores: BTreeMap<Option<BucketName>, u64>,
    buckets: BTreeMap<Tenant, u64>,
}

impl Shares {
    /// A bucket that is alone may have `alone`; all together may have little less than twice as much.
    pub(crate) fn new(alone: u64) -> Self {
        // Alone, `has` of `total` fulfils both conditions of `may_take` while 3 * has < 4 * (2 * (total - has) - has).
        Self { alone, total: alone * 15 / 8, used: 0, stores: BTreeMap::new(), buckets: BTreeMap::new() }
    }

    /// What its under store and its bucket have. Who has least is the next.
    pub(crate) fn has(&self, tenant: &Tenant) -> (u64, u64) {
        let of_store = self.stores.get(&tenant.mount).copied().unwrap_or(0);
        (of_store, self.buckets.get(tenant).copied().unwrap_or(0))
    }

    /// Whether a tenant may have more. The last one to get something may exceed its share by that.
    pub(crate) fn may_take(&self, tenant: &Tenant) -> bool {
        let (store, bucket) = self.has(tenant);
        let room = (2 * self.total.saturating_sub(self.used)).saturating_sub(store);
        // No under store ever waits for others alone.
        store == 0 || (bucket < self.alone && room > 0 && 3 * bucket < 4 * room)
    }

    pub(crate) fn take(&mut self, tenant: &Tenant, amount: u64) {
        self.used += amount;
        *self.stores.entry(tenant.mount.clone()).or_default() += amount;
        *self.buckets.entry(tenant.clone()).or_default() += amount;
    }

    pub(crate) fn give_back(&mut self, tenant: &Tenant, amount: u64) {
        self.used -= amount;
        let less = |has: Option<&mut u64>| {
            let has = has.expect("what is given back was taken");
            *has -= amount;
            *has == 0
        };
        if less(self.stores.get_mut(&tenant.mount)) {
            self.stores.remove(&tenant.mount);
        }
        if less(self.buckets.get_mut(tenant)) {
            self.buckets.remove(tenant);
        }
    }
}

/// Shares that are waited for.
pub(crate) struct Places {
    state: Mutex<State>,
}

struct State {
    shares: Shares,
    waiting: BTreeMap<Tenant, VecDeque<Waiter>>,
    /// Those that have come to wait.
    came: u64,
}

struct Waiter {
    /// How many have come before.
    number: u64,
    amount: u64,
    place: oneshot::Sender<Place>,
}

/// What a tenant has. It is given back in the end.
pub(crate) struct Place {
    places: Arc<Places>,
    tenant: Tenant,
    amount: u64,
}

impl Places {
    /// As [`Shares::new`].
    pub(crate) fn new(alone: u64) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { shares: Shares::new(alone), waiting: BTreeMap::new(), came: 0 }) })
    }

    /// Waits for a place. Those of one tenant get theirs in the order in which they come.
    pub(crate) async fn take(self: &Arc<Self>, tenant: &Tenant, amount: u64) -> Place {
        let place = {
            let mut state = self.state.lock();
            if !state.waiting.contains_key(tenant) && state.shares.may_take(tenant) {
                return self.place(&mut state, tenant.clone(), amount);
            }
            let (sender, place) = oneshot::channel();
            let number = state.came;
            state.came += 1;
            state.waiting.entry(tenant.clone()).or_default().push_back(Waiter { number, amount, place: sender });
            place
        };
        // It waits because somebody of its under store has a place.
        place.await.expect("whoever gives a place back gives it on")
    }

    fn place(self: &Arc<Self>, state: &mut State, tenant: Tenant, amount: u64) -> Place {
        state.shares.take(&tenant, amount);
        Place { places: Arc::clone(self), tenant, amount }
    }

    /// Gives one place on.
    fn give_on(self: &Arc<Self>) -> Option<(oneshot::Sender<Place>, Place)> {
        let mut state = self.state.lock();
        loop {
            let State { shares, waiting, .. } = &*state;
            let next = waiting.iter().filter(|(tenant, _)| shares.may_take(tenant));
            // Of those that have as little, the one that has waited longest.
            let next = next.min_by_key(|(tenant, queue)| (shares.has(tenant), queue.front().map(|first| first.number)));
            let tenant = next?.0.clone();
            let queue = state.waiting.get_mut(&tenant)?;
            let first = queue.pop_front();
            if queue.is_empty() {
                state.waiting.remove(&tenant);
            }
            // Some have gone away meanwhile.
            if let Some(Waiter { amount, place, .. }) = first.filter(|first| !first.place.is_closed()) {
                return Some((place, self.place(&mut state, tenant, amount)));
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.state.lock().shares.give_back(&self.tenant, self.amount);
        while let Some((waiter, place)) = self.places.give_on() {
            // Dropped where the waiter has gone away in this moment, which gives it on as well.
            drop(waiter.send(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn name(name: &str) -> BucketName {
        BucketName::new(name).unwrap()
    }

    fn mount(of: &str) -> Tenant {
        Tenant { mount: Some(name(of)), bucket: name(of) }
    }

    fn bucket(of: &str) -> Tenant {
        Tenant { mount: None, bucket: name(of) }
    }

    fn take_all(shares: &mut Shares, tenant: &Tenant) -> u64 {
        while shares.may_take(tenant) {
            shares.take(tenant, 1);
        }
        shares.has(tenant).1
    }

    #[test]
    fn whoever_holds_its_places_leaves_room_for_others() {
        for alone in [1, 2, 3, 16, 64, 256, 1000] {
            let mut shares = Shares::new(alone);
            assert_eq!(take_all(&mut shares, &mount("first")), alone, "alone it has what it may have");
            for more in ["second", "third", "fourth", "fifth", "sixth"] {
                assert!(take_all(&mut shares, &mount(more)) > 0, "{alone}: {more}");
            }
            assert!(shares.used <= 2 * alone + 5);
        }
        let mut shares = Shares::new(64);
        take_all(&mut shares, &mount("first"));
        assert!(take_all(&mut shares, &mount("second")) > 20);
        assert!(take_all(&mut shares, &mount("third")) > 5);
    }

    #[test]
    fn many_buckets_of_one_under_store_leave_room_for_another() {
        let mut shares = Shares::new(64);
        let many: Vec<_> = (0..100).map(|number| bucket(&format!("bucket{number}"))).collect();
        let got: u64 = many.iter().map(|tenant| take_all(&mut shares, tenant)).sum();
        assert!((64..=81).contains(&got), "{got}");
        assert!(take_all(&mut shares, &mount("other")) > 20);
    }

    /// Two that take all they can, one after the other, and each gives back what it has had for as long.
    #[test]
    fn those_that_are_busy_share_evenly() {
        for [first, second] in [[mount("first"), mount("second")], [bucket("first"), bucket("second")]] {
            let mut shares = Shares::new(64);
            take_all(&mut shares, &first);
            for _ in 0..200 {
                for tenant in [&first, &second] {
                    let (_, has) = shares.has(tenant);
                    (0..has.min(4)).for_each(|_| shares.give_back(tenant, 1));
                }
                let mut taken = true;
                while taken {
                    let next = [&first, &second].into_iter().filter(|tenant| shares.may_take(tenant));
                    let next = next.min_by_key(|tenant| shares.has(tenant).1);
                    taken = next.is_some();
                    next.into_iter().for_each(|tenant| shares.take(tenant, 1));
                }
            }
            let (first, second) = (shares.has(&first).1, shares.has(&second).1);
            assert!(first.abs_diff(second) <= 1 && first > 30, "{first} and {second}");
        }
    }

    /// More buckets than places, each with more waiters than one: whoever has nothing waits its turn, whatever its name.
    #[tokio::test]
    async fn buckets_take_turns_when_there_are_more_of_them_than_places() {
        let places = Places::new(1);
        let tenants = ["aaa", "bbb", "ccc"].map(bucket);
        let mut held = places.take(&tenants[0], 1).await;
        let waits = |tenant: &Tenant| {
            let (places, tenant) = (Arc::clone(&places), tenant.clone());
            let mut waiting = async move { places.take(&tenant, 1).await }.boxed();
            assert!((&mut waiting).now_or_never().is_none());
            waiting
        };
        let mut waiting: Vec<_> = (0..12).map(|number| waits(&tenants[number % 3])).collect();
        let mut got = Vec::new();
        while !waiting.is_empty() {
            drop(held);
            let next = waiting.iter_mut().enumerate().find_map(|(at, one)| Some((at, one.now_or_never()?)));
            let (at, place) = next.expect("the place is given on");
            drop(waiting.remove(at));
            got.push(place.tenant.bucket.to_string());
            held = place;
        }
        let turns: Vec<_> = ["aaa", "bbb", "ccc"].into_iter().cycle().take(12).collect();
        assert_eq!(got, turns);
    }

    #[tokio::test]
    async fn a_place_goes_to_the_one_that_has_least_and_past_those_that_have_gone_away() {
        let places = Places::new(8);
        let [first, second] = [bucket("first"), bucket("second")];
        let mut held: Vec<Place> = Vec::new();
        while let Some(place) = places.take(&first, 1).now_or_never() {
            held.push(place);
        }
        assert_eq!(held.len(), 8);
        let waits = |tenant: &Tenant| {
            let (places, tenant) = (Arc::clone(&places), tenant.clone());
            let mut waiting = async move { places.take(&tenant, 1).await }.boxed();
            assert!((&mut waiting).now_or_never().is_none());
            waiting
        };
        let mut of_first = waits(&first);
        let mut rest: Vec<Place> = Vec::new();
        while let Some(place) = places.take(&second, 1).now_or_never() {
            rest.push(place);
        }
        assert_eq!(rest.len(), 2);
        // All have gone away but the last, far more than a stack of drops would bear.
        let gone: Vec<_> = (0..100_000).map(|_| waits(&second)).collect();
        let mut of_second = waits(&second);
        drop(gone);
        drop(rest);
        let place = (&mut of_second).now_or_never().expect("second has least");
        assert!((&mut of_first).now_or_never().is_none(), "first has eight");
        drop((place, held));
        (&mut of_first).now_or_never().expect("now there is room");
        let state = places.state.lock();
        assert!(state.shares.used <= 1 && state.waiting.is_empty());
    }
}
