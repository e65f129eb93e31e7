//! Fair sharing among under stores and buckets, so that none takes everything: slots for fetches, and slots for
//! uploads.
//!
//! The limit of one tenant depends on how much is free, following dynamic queue length thresholds (Choudhury and Hahne,
//! IEEE/ACM Transactions on Networking 6(2), 1998). An under store may have twice what is free: two thirds of
//! everything when it is alone, so that a third is left for newcomers. A bucket may have four times what its under
//! store could still get, and one requester three times what its bucket could. Slots that are returned go to the tenant
//! with the fewest. A tenant that holds its slots for long, because it is slow or does not answer, therefore leaves
//! room for the others, and busy tenants share evenly.

use std::collections::BTreeMap;

use forebay_env::{FairPermit, FairPermits, Requester, Shares};
use forebay_types::BucketName;

/// The user of slots.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tenant {
    /// The bucket of a mount, which has its own under store. `None` for the under store of all other buckets.
    pub(crate) mount: Option<BucketName>,
    pub(crate) bucket: BucketName,
    /// Forebay itself may use as much as the bucket may.
    pub(crate) requester: Requester,
}

impl Tenant {
    fn all_of_bucket(&self) -> Self {
        Self { requester: Requester::NOBODY, ..self.clone() }
    }
}

/// How much each tenant has.
pub(crate) struct TenantShares {
    /// The most that one bucket may have.
    alone: u64,
    total: u64,
    used: u64,
    stores: BTreeMap<Option<BucketName>, u64>,
    /// The tenants of one bucket together, as [`Requester::NOBODY`].
    buckets: BTreeMap<Tenant, u64>,
    requesters: BTreeMap<Tenant, u64>,
}

/// Shares with a queue of waiting tenants.
pub(crate) type TenantPermits = FairPermits<TenantShares>;

pub(crate) type TenantPermit = FairPermit<TenantShares>;

impl TenantShares {
    /// A bucket that is alone may have `alone`. All together may have a little less than twice as much.
    pub(crate) fn new(alone: u64) -> Self {
        // Alone, `has` of `total` meets both conditions of `may_take` while 3 * has < 4 * (2 * (total - has) - has).
        Self {
            alone,
            total: alone * 15 / 8,
            used: 0,
            stores: BTreeMap::new(),
            buckets: BTreeMap::new(),
            requesters: BTreeMap::new(),
        }
    }
}

impl Shares for TenantShares {
    type Tenant = Tenant;
    /// How much the under store, the bucket and the requester have.
    type Has = (u64, u64, u64);

    fn has(&self, tenant: &Tenant) -> (u64, u64, u64) {
        let of_store = self.stores.get(&tenant.mount).copied().unwrap_or(0);
        let of_bucket = self.buckets.get(&tenant.all_of_bucket()).copied().unwrap_or(0);
        (of_store, of_bucket, self.requesters.get(tenant).copied().unwrap_or(0))
    }

    /// The last amount that a tenant takes may exceed its share.
    fn may_take(&self, tenant: &Tenant) -> bool {
        let (store, bucket, requester) = self.has(tenant);
        let room = (2 * self.total.saturating_sub(self.used)).saturating_sub(store);
        let room_of_bucket = self.alone.min(4 * room / 3).saturating_sub(bucket);
        let is_alone_in_it = tenant.requester == Requester::NOBODY || requester == 0;
        let is_fair_to_others = is_alone_in_it || requester < 3 * room_of_bucket;
        // An under store never has to wait only for others.
        store == 0 || (bucket < self.alone && room > 0 && 3 * bucket < 4 * room && is_fair_to_others)
    }

    fn take(&mut self, tenant: &Tenant, amount: u64) {
        self.used += amount;
        *self.stores.entry(tenant.mount.clone()).or_default() += amount;
        *self.buckets.entry(tenant.all_of_bucket()).or_default() += amount;
        *self.requesters.entry(tenant.clone()).or_default() += amount;
    }

    fn give_back(&mut self, tenant: &Tenant, amount: u64) {
        self.used -= amount;
        let less = |has: Option<&mut u64>| {
            let has = has.expect("what is given back was taken");
            *has -= amount;
            *has == 0
        };
        if less(self.stores.get_mut(&tenant.mount)) {
            self.stores.remove(&tenant.mount);
        }
        let bucket = tenant.all_of_bucket();
        if less(self.buckets.get_mut(&bucket)) {
            self.buckets.remove(&bucket);
        }
        if less(self.requesters.get_mut(tenant)) {
            self.requesters.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;

    use super::*;

    fn name(name: &str) -> BucketName {
        BucketName::new(name).unwrap()
    }

    fn mount(of: &str) -> Tenant {
        Tenant { mount: Some(name(of)), bucket: name(of), requester: Requester::NOBODY }
    }

    fn bucket(of: &str) -> Tenant {
        Tenant { mount: None, bucket: name(of), requester: Requester::NOBODY }
    }

    fn take_all(shares: &mut TenantShares, tenant: &Tenant) -> u64 {
        while shares.may_take(tenant) {
            shares.take(tenant, 1);
        }
        shares.has(tenant).1
    }

    #[test]
    fn whoever_holds_its_places_leaves_room_for_others() {
        for alone in [1, 2, 3, 16, 64, 256, 1000] {
            let mut shares = TenantShares::new(alone);
            assert_eq!(take_all(&mut shares, &mount("first")), alone, "alone it has what it may have");
            for more in ["second", "third", "fourth", "fifth", "sixth"] {
                assert!(take_all(&mut shares, &mount(more)) > 0, "{alone}: {more}");
            }
            assert!(shares.used <= 2 * alone + 5);
        }
        let mut shares = TenantShares::new(64);
        take_all(&mut shares, &mount("first"));
        assert!(take_all(&mut shares, &mount("second")) > 20);
        assert!(take_all(&mut shares, &mount("third")) > 5);
    }

    #[test]
    fn a_requester_that_is_alone_leaves_room_in_its_bucket() {
        let by = |key: &str| Tenant { requester: Requester::named(key), ..bucket("bucket") };
        let mut shares = TenantShares::new(64);
        let has_taken = |shares: &mut TenantShares, key: &str| {
            take_all(shares, &by(key));
            shares.has(&by(key)).2
        };
        assert_eq!(has_taken(&mut shares, "first"), 48);
        assert_eq!(has_taken(&mut shares, "second"), 12);
        assert_eq!(has_taken(&mut shares, "third"), 3);
        for (key, has) in [("first", 48), ("second", 12), ("third", 3)] {
            (0..has).for_each(|_| shares.give_back(&by(key), 1));
        }
        // Also where others leave less to the bucket than it could have.
        let busy = take_all(&mut shares, &mount("busy"));
        let first = has_taken(&mut shares, "first");
        let second = has_taken(&mut shares, "second");
        assert!(first > 20 && second >= 2, "{busy}, {first} and {second}");
        (0..busy).for_each(|_| shares.give_back(&mount("busy"), 1));
        for (key, has) in [("first", first), ("second", second)] {
            (0..has).for_each(|_| shares.give_back(&by(key), 1));
        }
        assert!(shares.used == 0 && shares.buckets.is_empty() && shares.requesters.is_empty());
    }

    #[test]
    fn many_buckets_of_one_under_store_leave_room_for_another() {
        let mut shares = TenantShares::new(64);
        let many: Vec<_> = (0..100).map(|number| bucket(&format!("bucket{number}"))).collect();
        let got: u64 = many.iter().map(|tenant| take_all(&mut shares, tenant)).sum();
        assert!((64..=81).contains(&got), "{got}");
        assert!(take_all(&mut shares, &mount("other")) > 20);
    }

    /// Two tenants that take all they can, in turn, and return it after the same time.
    #[test]
    fn those_that_are_busy_share_evenly() {
        for [first, second] in [[mount("first"), mount("second")], [bucket("first"), bucket("second")]] {
            let mut shares = TenantShares::new(64);
            take_all(&mut shares, &first);
            for _ in 0..200 {
                for tenant in [&first, &second] {
                    let (_, has, _) = shares.has(tenant);
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

    /// There are more buckets than slots, and each has several waiters. A bucket without a slot gets its turn, whatever
    /// its name.
    #[tokio::test]
    async fn buckets_take_turns_when_there_are_more_of_them_than_places() {
        let permits = FairPermits::new(TenantShares::new(1));
        let tenants = ["aaa", "bbb", "ccc"].map(bucket);
        let mut held = permits.take(&tenants[0], 1).await;
        let waits = |tenant: &Tenant| {
            let (permits, tenant) = (Arc::clone(&permits), tenant.clone());
            let mut waiting = async move { permits.take(&tenant, 1).await }.boxed();
            assert!((&mut waiting).now_or_never().is_none());
            waiting
        };
        let mut waiting: Vec<_> = (0..12).map(|number| waits(&tenants[number % 3])).collect();
        let mut got = Vec::new();
        while !waiting.is_empty() {
            drop(held);
            let next = waiting.iter_mut().enumerate().find_map(|(at, one)| Some((at, one.now_or_never()?)));
            let (at, permit) = next.expect("the permit is given on");
            drop(waiting.remove(at));
            got.push(permit.tenant().bucket.to_string());
            held = permit;
        }
        let turns: Vec<_> = ["aaa", "bbb", "ccc"].into_iter().cycle().take(12).collect();
        assert_eq!(got, turns);
    }

    #[tokio::test]
    async fn a_place_goes_to_the_one_that_has_least_and_past_those_that_have_gone_away() {
        let permits = FairPermits::new(TenantShares::new(8));
        let [first, second] = [bucket("first"), bucket("second")];
        let mut held: Vec<TenantPermit> = Vec::new();
        while let Some(permit) = permits.take(&first, 1).now_or_never() {
            held.push(permit);
        }
        assert_eq!(held.len(), 8);
        let waits = |tenant: &Tenant| {
            let (permits, tenant) = (Arc::clone(&permits), tenant.clone());
            let mut waiting = async move { permits.take(&tenant, 1).await }.boxed();
            assert!((&mut waiting).now_or_never().is_none());
            waiting
        };
        let mut of_first = waits(&first);
        let mut rest: Vec<TenantPermit> = Vec::new();
        while let Some(permit) = permits.take(&second, 1).now_or_never() {
            rest.push(permit);
        }
        assert_eq!(rest.len(), 2);
        // All have gone away but the last, far more than a stack of drops would bear.
        let gone: Vec<_> = (0..100_000).map(|_| waits(&second)).collect();
        let mut of_second = waits(&second);
        drop(gone);
        drop(rest);
        let permit = (&mut of_second).now_or_never().expect("second has least");
        assert!((&mut of_first).now_or_never().is_none(), "first has eight");
        drop((permit, held));
        (&mut of_first).now_or_never().expect("now there is room");
        permits.look(|shares, nobody_waits| assert!(shares.used <= 1 && nobody_waits));
    }
}
