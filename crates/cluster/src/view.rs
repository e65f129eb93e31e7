//! The cluster as a worker has last seen it: what a router looks up in memory.

use std::collections::{BTreeMap, BTreeSet};

use forebay_catalog::records::path_hash;
use forebay_catalog::{Slot, SlotCount, SlotSet};
use forebay_types::ObjectPath;

use crate::layout::WorkerId;
use crate::member_record::Addresses;

/// What a look at the engine has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// What this worker should do about its slots.
    pub moves: Moves,
    pub homes: Homes,
    /// All workers that the cluster has ever had and that were not removed, by their names.
    pub members: BTreeMap<WorkerId, Member>,
    /// Workers that will never come back: nobody waits for their bytes.
    pub removed: BTreeSet<WorkerId>,
}

impl View {
    /// How many slots are at home at no worker that lives: nobody answers for their keys.
    pub fn slots_without_home(&self, slots: SlotCount) -> u32 {
        let lives = |home: &WorkerId| self.members.get(home).is_some_and(|member| member.state.lives());
        slots.all().filter(|slot| !self.homes.home(*slot).is_some_and(lives)).count() as u32
    }
}

/// What a worker should do about its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moves {
    /// They belong to another worker that lives.
    pub release: SlotSet,
    /// They belong here, and nobody is their home who lives.
    pub take: SlotSet,
}

/// The home of each slot. It may have changed since, so the worker that gets a request checks whether it is the home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Homes {
    slots: SlotCount,
    /// By slot.
    homes: Vec<Option<WorkerId>>,
}

impl Homes {
    pub(crate) fn new(slots: SlotCount, mut homes: BTreeMap<Slot, WorkerId>) -> Self {
        let homes = slots.all().map(|slot| homes.remove(&slot)).collect();
        Self { slots, homes }
    }

    /// `None` when the slot is at home nowhere.
    pub fn home(&self, slot: Slot) -> Option<&WorkerId> {
        self.homes.get(usize::from(slot.0))?.as_ref()
    }

    pub fn home_of(&self, path: &ObjectPath) -> Option<&WorkerId> {
        self.home_of_hash(path_hash(path))
    }

    /// Of the paths with this hash.
    pub fn home_of_hash(&self, hash: u64) -> Option<&WorkerId> {
        self.home(self.slots.slot_of(hash))
    }
}

/// A worker of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub state: MemberState,
    /// Another one after each start of the worker.
    pub life: u64,
    /// `None` for a worker that has told no addresses.
    pub addresses: Option<Addresses>,
    /// Of its build, told with the addresses.
    pub version: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    Live,
    /// It lives, and gets no slots: it stops when nobody needs its bytes.
    Draining,
    /// The same, when nobody does: it is about to stop.
    Drained,
    /// It has stopped.
    Left,
    /// Its lease is over.
    Lost,
}

impl MemberState {
    /// Whether it answers others.
    pub fn lives(self) -> bool {
        match self {
            Self::Live | Self::Draining | Self::Drained => true,
            Self::Left | Self::Lost => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_workers_that_do_not_live_have_no_home() {
        let slots = SlotCount::new(6).expect("a number of slots");
        let worker = |name: &str| WorkerId::new(name).expect("a name");
        let member = |state| Member { state, life: 1, addresses: None, version: None };
        let states = [
            ("live", MemberState::Live),
            ("draining", MemberState::Draining),
            ("left", MemberState::Left),
            ("lost", MemberState::Lost),
        ];
        let homes = ["live", "draining", "left", "lost", "removed"].into_iter().map(worker);
        let view = View {
            moves: Moves { release: SlotSet::none(slots), take: SlotSet::none(slots) },
            homes: Homes::new(slots, slots.all().zip(homes).collect()),
            members: states.map(|(name, state)| (worker(name), member(state))).into(),
            removed: BTreeSet::new(),
        };
        assert_eq!(view.slots_without_home(slots), 4, "one is at home nowhere");
    }
}
