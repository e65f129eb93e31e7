//! Which worker should be the home of which slot.
//!
//! Rendezvous hashing (Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998) with a cap:
//! each pair of a worker and a slot has a score, and the pair with the highest score that is possible comes first. No
//! worker gets more than its share, rounded up. The result depends on the set of workers alone, so no coordinator is
//! needed: workers that see the same set agree.

use std::cmp::Reverse;

use forebay_catalog::{Slot, SlotCount, records};

use crate::layout::WorkerId;

/// The home that each slot should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    homes: Vec<WorkerId>,
}

impl Placement {
    /// Spreads the slots over these workers, each named once.
    pub fn of(slots: SlotCount, workers: &[WorkerId]) -> Self {
        let score = |slot: Slot, worker: &WorkerId| records::stable_hash(format!("{worker}/{slot}").as_bytes());
        let mut pairs: Vec<(u64, Slot, &WorkerId)> = slots
            .all()
            .flat_map(|slot| workers.iter().map(move |worker| (score(slot, worker), slot, worker)))
            .collect();
        pairs.sort_unstable_by_key(|(score, slot, worker)| (Reverse(*score), *slot, *worker));
        let share = slots.all().count().div_ceil(workers.len().max(1));
        let mut homes: Vec<Option<&WorkerId>> = vec![None; slots.all().count()];
        let mut loads = std::collections::HashMap::<&WorkerId, usize>::new();
        for (_, slot, worker) in pairs {
            let load = loads.entry(worker).or_default();
            let home = &mut homes[usize::from(slot.0)];
            if home.is_none() && *load < share {
                (*home, *load) = (Some(worker), *load + 1);
            }
        }
        Self { homes: homes.into_iter().flatten().cloned().collect() }
    }

    /// `None` when there are no workers.
    pub fn home(&self, slot: Slot) -> Option<&WorkerId> {
        self.homes.get(usize::from(slot.0))
    }
}

/// The homes of all slots, in order.
impl FromIterator<WorkerId> for Placement {
    fn from_iter<I: IntoIterator<Item = WorkerId>>(homes: I) -> Self {
        Self { homes: homes.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(count: usize) -> Vec<WorkerId> {
        (0..count).map(|number| WorkerId::new(format!("worker-{number}")).unwrap()).collect()
    }

    fn loads(placement: &Placement, workers: &[WorkerId]) -> Vec<usize> {
        let load = |worker| SlotCount::DEFAULT.all().filter(|slot| placement.home(*slot) == Some(worker)).count();
        workers.iter().map(load).collect()
    }

    fn moved(before: &Placement, after: &Placement) -> usize {
        SlotCount::DEFAULT.all().filter(|slot| before.home(*slot) != after.home(*slot)).count()
    }

    #[test]
    fn every_slot_has_a_home_and_no_worker_more_than_its_share() {
        for count in 1..=20 {
            let workers = workers(count);
            let loads = loads(&Placement::of(SlotCount::DEFAULT, &workers), &workers);
            assert_eq!(loads.iter().sum::<usize>(), 1024);
            assert!(loads.iter().all(|load| *load <= 1024_usize.div_ceil(count)), "{loads:?}");
        }
        assert_eq!(Placement::of(SlotCount::DEFAULT, &[]).home(Slot(0)), None);
    }

    #[test]
    fn the_order_in_which_workers_are_seen_does_not_matter() {
        let mut seen = workers(7);
        let placement = Placement::of(SlotCount::DEFAULT, &seen);
        seen.reverse();
        assert_eq!(Placement::of(SlotCount::DEFAULT, &seen), placement);
    }

    /// The slots of one that is gone must move. Few others do: when the shares become larger, some return to workers
    /// that they score higher at.
    #[test]
    fn few_slots_move_when_a_worker_joins_or_is_gone() {
        for count in 2..=20 {
            let some = workers(count);
            let (few, many) = (Placement::of(SlotCount::DEFAULT, &some[1..]), Placement::of(SlotCount::DEFAULT, &some));
            let share = 1024_usize.div_ceil(count);
            assert!(moved(&few, &many) <= 2 * share, "{count}: {} of {share}", moved(&few, &many));
        }
    }
}
