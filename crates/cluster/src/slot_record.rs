//! The home of a slot, as the engine has it.

use bytes::Bytes;
use forebay_catalog::{Result, records};
use serde::{Deserialize, Serialize};

use crate::layout::WorkerId;

/// Every change checks the version at which the record was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlotRecord {
    /// `None` once the home has released it.
    pub(crate) home: Option<String>,
    /// Grows with every new home.
    pub(crate) epoch: u64,
    /// The home before: it may still have bytes of the slot.
    pub(crate) previous: Option<String>,
}

impl SlotRecord {
    /// Of the first home, or the one behind `former`.
    pub(crate) fn next(former: Option<&Self>, home: &WorkerId) -> Self {
        let previous = former.and_then(|former| former.home.clone().or_else(|| former.previous.clone()));
        let epoch = former.map_or(1, |former| former.epoch + 1);
        Self { home: Some(home.as_str().to_owned()), epoch, previous }
    }

    pub(crate) fn released(&self) -> Self {
        Self { home: None, epoch: self.epoch, previous: self.home.clone() }
    }

    pub(crate) fn encode(&self) -> Bytes {
        records::encode(records::VERSION, self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        records::decode("slot", records::VERSION, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_home_has_a_higher_epoch_and_names_the_one_before() {
        let worker = |name| WorkerId::new(name).unwrap();
        let first = SlotRecord::next(None, &worker("w1"));
        let second = SlotRecord::next(Some(&first), &worker("w2"));
        let third = SlotRecord::next(Some(&second.released()), &worker("w3"));
        assert_eq!((first.epoch, first.previous.as_deref()), (1, None));
        assert_eq!((second.home.as_deref(), second.epoch, second.previous.as_deref()), (Some("w2"), 2, Some("w1")));
        assert_eq!((third.epoch, third.previous.as_deref()), (3, Some("w2")));
        assert_eq!(SlotRecord::decode(&second.encode()).unwrap(), second);
    }
}
