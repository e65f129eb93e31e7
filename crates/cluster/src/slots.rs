//! Slots: the shards of the paths. A slot has one home, the worker that may change its records.

use std::fmt;

use bytes::Bytes;
use forebay_catalog::{Error, ErrorKind, Result, records};
use serde::{Deserialize, Serialize};

use crate::layout::WorkerId;

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

    /// The slot of a path, by [`forebay_catalog::records::path_hash`].
    pub fn slot_of(self, hash: u64) -> Slot {
        Slot((hash % u64::from(self.0)) as u16)
    }

    pub(crate) fn all(self) -> impl Iterator<Item = Slot> {
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

/// The home of a slot, as the engine has it. Whoever changes it checks the version that it was read at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlotRecord {
    pub(crate) home: String,
    /// Grows with every change of the home.
    pub(crate) epoch: u64,
    /// The home before: it may still have bytes of the slot.
    pub(crate) previous: Option<String>,
}

impl SlotRecord {
    /// The first home, or the one behind `former`.
    pub(crate) fn next(former: Option<&Self>, home: &WorkerId) -> Self {
        Self {
            home: home.as_str().to_owned(),
            epoch: former.map_or(1, |former| former.epoch + 1),
            previous: former.map(|former| former.home.clone()),
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        records::encode(self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        records::decode("slot", bytes)
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
            let path = forebay_types::ObjectPath::parse("bucket", &format!("data/part-{number:07}")).unwrap();
            of_slot[usize::from(slots.slot_of(forebay_catalog::records::path_hash(&path)).0)] += 1;
        }
        // Six standard deviations of a uniform draw.
        assert!(of_slot.iter().all(|count| (115..285).contains(count)), "{of_slot:?}");
    }

    #[test]
    fn each_home_has_a_higher_epoch_and_names_the_one_before() {
        let worker = |name| WorkerId::new(name).unwrap();
        let first = SlotRecord::next(None, &worker("w1"));
        let second = SlotRecord::next(Some(&first), &worker("w2"));
        assert_eq!((first.epoch, first.previous.as_deref()), (1, None));
        assert_eq!((second.home.as_str(), second.epoch, second.previous.as_deref()), ("w2", 2, Some("w1")));
        assert_eq!(SlotRecord::decode(&second.encode()).unwrap(), second);
    }

    #[test]
    fn a_cluster_has_slots() {
        assert!(SlotCount::new(0).is_err());
        let one = SlotCount::new(1).unwrap();
        assert_eq!(one.slot_of(u64::MAX), Slot(0));
    }
}
