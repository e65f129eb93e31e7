//! How much room waiting writers want.

use std::collections::BTreeMap;

use forebay_env::sync::Mutex;

/// The number of waiting writers, by the bytes that they want.
#[derive(Default)]
pub(crate) struct Demand(Mutex<BTreeMap<u64, usize>>);

/// The wish of one writer, held as long as it waits.
pub(super) struct Wish<'a> {
    demand: &'a Demand,
    bytes: u64,
}

impl Demand {
    pub(super) fn add(&self, bytes: u64) -> Wish<'_> {
        *self.0.lock().entry(bytes).or_default() += 1;
        Wish { demand: self, bytes }
    }

    pub(crate) fn are_some(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// The largest wish that is no larger than `most`.
    pub(super) fn largest(&self, most: u64) -> Option<u64> {
        self.0.lock().range(..=most).next_back().map(|(bytes, _)| *bytes)
    }
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        let mut demand = self.demand.0.lock();
        let count = demand.get_mut(&self.bytes).expect("a wish is there until it is dropped");
        *count -= 1;
        if *count == 0 {
            demand.remove(&self.bytes);
        }
    }
}
