//! Objects and parts whose bytes here are damaged. Those of another worker take their place.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_catalog::records::{self, ObjectRecord};
use forebay_env::sync::Mutex;
use forebay_types::{Generation, ObjectPath};

use super::CopyId;

/// The most that are noted, so that memory is bounded. Damage that is forgotten is found again.
const NOTED_MAX: usize = 10_000;

/// The damaged generations, by the keys of their records.
#[derive(Default)]
pub(crate) struct DamagedCopies(Mutex<BTreeMap<Bytes, Generation>>);

impl DamagedCopies {
    /// Returns whether that is new.
    pub(super) fn add(&self, id: &CopyId) -> bool {
        let mut noted = self.0.lock();
        if noted.len() >= NOTED_MAX && !noted.contains_key(&id.key) {
            noted.clear();
        }
        noted.insert(id.key.clone(), id.generation) != Some(id.generation)
    }

    pub(super) fn has(&self, id: &CopyId) -> bool {
        self.0.lock().get(&id.key) == Some(&id.generation)
    }

    /// Intact bytes have taken their place.
    pub(super) fn remove(&self, id: &CopyId) {
        let mut noted = self.0.lock();
        if noted.get(&id.key) == Some(&id.generation) {
            noted.remove(&id.key);
        }
    }

    /// Called after each change of a record. Usually nothing is damaged.
    pub(crate) fn changed(&self, path: &ObjectPath, after: Option<&ObjectRecord>) {
        let mut noted = self.0.lock();
        if noted.is_empty() {
            return;
        }
        let key = records::object_key(path);
        if noted.get(&key).copied() != after.map(|record| record.generation) {
            noted.remove(&key);
        }
    }

    /// The keys are not at home here any more.
    pub(crate) fn drop_all(&self, is_lost: impl Fn(&[u8]) -> bool) {
        self.0.lock().retain(|key, _| !is_lost(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(number: usize, generation: u64) -> CopyId {
        CopyId { key: format!("key {number}").into(), generation: Generation(generation) }
    }

    #[test]
    fn what_is_noted_is_one_generation_of_a_key_and_bounded() {
        let damaged = DamagedCopies::default();
        assert!(damaged.add(&id_of(0, 1)) && !damaged.add(&id_of(0, 1)));
        assert!(damaged.has(&id_of(0, 1)) && !damaged.has(&id_of(0, 2)));
        damaged.remove(&id_of(0, 2));
        assert!(damaged.has(&id_of(0, 1)));
        damaged.remove(&id_of(0, 1));
        assert!(!damaged.has(&id_of(0, 1)));
        for number in 0..=NOTED_MAX {
            damaged.add(&id_of(number, 1));
        }
        assert!(damaged.has(&id_of(NOTED_MAX, 1)) && !damaged.has(&id_of(0, 1)));
        damaged.drop_all(|key| key.starts_with(b"key"));
        assert!(!damaged.has(&id_of(NOTED_MAX, 1)));
    }
}
