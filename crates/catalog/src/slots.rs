//! Slots: the shards of the paths. A slot has one home, the worker that may change its records.

use std::fmt;

use forebay_types::ObjectPath;
use serde::{Deserialize, Serialize};

use crate::records::path_hash;
use crate::{Error, ErrorKind, Result};

/// A shard of the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl fmt::Display for Slot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:05}", self.0)
    }
}

/// How many slots a cluster has: fixed when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct SlotCount(u16);

impl SlotCount {
    pub const DEFAULT: Self = Self(1024);

    /// # Errors
    /// `Unavailable` for none.
    pub fn new(count: u16) -> Result<Self> {
        if count == 0 {
            return Err(Error::new(ErrorKind::Unavailable, "a cluster has at least one slot"));
        }
        Ok(Self(count))
    }

    /// The slot of a path, by [`path_hash`].
    pub fn slot_of(self, hash: u64) -> Slot {
        Slot((hash % u64::from(self.0)) as u16)
    }

    pub fn all(self) -> impl Iterator<Item = Slot> {
        (0..self.0).map(Slot)
    }
}

impl TryFrom<u16> for SlotCount {
    type Error = Error;

    fn try_from(count: u16) -> Result<Self> {
        Self::new(count)
    }
}

impl From<SlotCount> for u16 {
    fn from(count: SlotCount) -> Self {
        count.0
    }
}

/// Some of the slots of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotSet {
    count: SlotCount,
    has: Vec<bool>,
}

impl SlotSet {
    pub fn none(count: SlotCount) -> Self {
        Self { count, has: vec![false; usize::from(count.0)] }
    }

    pub fn insert(&mut self, slot: Slot) {
        self.has[usize::from(slot.0)] = true;
    }

    pub fn add(&mut self, others: &Self) {
        self.has.iter_mut().zip(&others.has).for_each(|(has, other)| *has |= *other);
    }

    pub fn take_off(&mut self, others: &Self) {
        self.has.iter_mut().zip(&others.has).for_each(|(has, other)| *has &= !*other);
    }

    /// All slots that are not in it.
    pub fn others(&self) -> Self {
        let mut others = Self::none(self.count);
        self.count.all().filter(|slot| !self.contains(*slot)).for_each(|slot| others.insert(slot));
        others
    }

    pub fn contains(&self, slot: Slot) -> bool {
        self.has[usize::from(slot.0)]
    }

    pub fn has_hash(&self, hash: u64) -> bool {
        self.contains(self.count.slot_of(hash))
    }

    pub fn has_path(&self, path: &ObjectPath) -> bool {
        self.has_hash(path_hash(path))
    }

    pub fn iter(&self) -> impl Iterator<Item = Slot> {
        self.count.all().filter(|slot| self.contains(*slot))
    }

    pub fn is_empty(&self) -> bool {
        !self.has.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_share_the_paths_evenly() {
        let slots = SlotCount::DEFAULT;
        let mut of_slot = vec![0; 1024];
        for number in 0..204_800 {
            let path = ObjectPath::parse("bucket", &format!("data/part-{number:07}")).unwrap();
            of_slot[usize::from(slots.slot_of(path_hash(&path)).0)] += 1;
        }
        // Six standard deviations of a uniform draw.
        assert!(of_slot.iter().all(|count| (115..285).contains(count)), "{of_slot:?}");
    }

    #[test]
    fn a_cluster_has_slots() {
        assert!(SlotCount::new(0).is_err());
        let one = SlotCount::new(1).unwrap();
        assert_eq!(one.slot_of(u64::MAX), Slot(0));
    }

    #[test]
    fn sets_of_slots_add_up() {
        let count = SlotCount::new(5).unwrap();
        let set = |slots: &[u16]| {
            let mut set = SlotSet::none(count);
            slots.iter().for_each(|slot| set.insert(Slot(*slot)));
            set
        };
        let mut some = set(&[0, 3]);
        some.add(&set(&[3, 4]));
        assert_eq!(some, set(&[0, 3, 4]));
        some.take_off(&set(&[1, 3]));
        assert_eq!(some.iter().collect::<Vec<_>>(), [Slot(0), Slot(4)]);
        assert!(some.has_hash(9) && !some.has_hash(8) && !some.is_empty() && set(&[]).is_empty());
    }
}
