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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(SlotCount, Vec<u8>)", into = "(SlotCount, Vec<u8>)")]
pub struct SlotSet {
    count: SlotCount,
    has: Vec<bool>,
}

impl SlotSet {
    pub fn none(count: SlotCount) -> Self {
        Self { count, has: vec![false; usize::from(count.0)] }
    }

    /// How many slots the cluster has.
    pub fn count(&self) -> SlotCount {
        self.count
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

/// As workers tell each other: one bit for each slot, the first in the lowest.
impl From<SlotSet> for (SlotCount, Vec<u8>) {
    fn from(set: SlotSet) -> Self {
        let byte = |slots: &[bool]| slots.iter().rev().fold(0, |byte, has| byte << 1 | u8::from(*has));
        (set.count, set.has.chunks(8).map(byte).collect())
    }
}

impl TryFrom<(SlotCount, Vec<u8>)> for SlotSet {
    type Error = Error;

    fn try_from((count, bits): (SlotCount, Vec<u8>)) -> Result<Self> {
        if bits.len() != usize::from(count.0).div_ceil(8) {
            return Err(Error::new(ErrorKind::Corrupt, "a set of slots has too few or too many bits"));
        }
        let mut set = Self::none(count);
        let has = |slot: &Slot| bits[usize::from(slot.0) / 8] >> (slot.0 % 8) & 1 == 1;
        count.all().filter(has).for_each(|slot| set.insert(slot));
        Ok(set)
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
    fn sets_of_slots_are_sent_as_bits() {
        for slots in [1, 7, 8, 9, 1024] {
            let count = SlotCount::new(slots).unwrap();
            let mut set = SlotSet::none(count);
            count.all().filter(|slot| slot.0 % 3 == 0).for_each(|slot| set.insert(slot));
            let (sent, mut bits): (SlotCount, Vec<u8>) = set.clone().into();
            assert_eq!(bits.len(), usize::from(slots).div_ceil(8));
            assert_eq!(SlotSet::try_from((sent, bits.clone())).unwrap(), set);
            bits.push(0);
            assert!(SlotSet::try_from((sent, bits)).is_err());
        }
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
