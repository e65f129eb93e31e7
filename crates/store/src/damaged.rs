//! Places on the disks whose bytes were found damaged. Each is counted and told once, however often it is read.

use std::collections::HashSet;

use forebay_env::sync::Mutex;

use crate::ids::SegmentKey;

/// The most places that are remembered. A disk that has more is beyond counting: each read of another one counts again.
const PLACES_MAX: usize = 10_000;

/// Where a record begins that was found damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedPlace {
    pub directory: String,
    pub file: String,
    pub offset: u64,
}

#[derive(Default)]
pub(crate) struct Damaged {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    places: HashSet<(SegmentKey, u64)>,
    last: Option<DamagedPlace>,
}

impl Damaged {
    /// Whether nobody has seen it before.
    pub(crate) fn note(&self, key: SegmentKey, place: &DamagedPlace) -> bool {
        let mut seen = self.seen.lock();
        let is_full = seen.places.len() >= PLACES_MAX;
        let is_new =
            if is_full { !seen.places.contains(&(key, place.offset)) } else { seen.places.insert((key, place.offset)) };
        if is_new {
            seen.last = Some(place.clone());
        }
        is_new
    }

    pub(crate) fn last(&self) -> Option<DamagedPlace> {
        self.seen.lock().last.clone()
    }
}
