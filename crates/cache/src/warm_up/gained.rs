//! Which slots are warmed up, and from which workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::SlotSet;
use forebay_env::Clock;
use forebay_env::sync::Mutex;
use forebay_types::ObjectPath;

use crate::scope::Scope;

/// For so long after the last gain of slots former homes are asked. By then the hot objects are here.
const WARM_UP_MAX: Duration = Duration::from_secs(3600);

/// For so long a worker that does not answer is not asked again.
const SILENCE: Duration = Duration::from_secs(5);

/// Freed scopes that are remembered: each read of an object that is not here looks through them. More of them end the
/// warm-up.
const FREED_MAX: usize = 1000;

/// The slots that this process has gained of late.
pub(crate) struct GainedSlots {
    clock: Arc<dyn Clock>,
    gained: Mutex<Gained>,
}

#[derive(Default)]
struct Gained {
    slots: Option<SlotSet>,
    until: Duration,
    /// Since the warm-up began, an operator has freed what is under these.
    freed: Vec<Scope>,
    /// Workers that did not answer, and when they are asked again.
    silent: HashMap<String, Duration>,
}

impl GainedSlots {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, gained: Mutex::default() }
    }

    /// Returns whether no others are warmed up: what was heard of objects before is of no interest then.
    pub(super) fn add(&self, slots: &SlotSet) -> bool {
        let mut gained = self.gained.lock();
        let now = self.clock.monotonic();
        let before = gained.slots.take().filter(|_| now < gained.until);
        let is_first = before.is_none();
        if is_first {
            gained.freed.clear();
        }
        let mut all = before.unwrap_or_else(|| SlotSet::none(slots.count()));
        all.add(slots);
        (gained.slots, gained.until) = (Some(all), now + WARM_UP_MAX);
        is_first
    }

    /// From now on, nothing of the scope is warmed up.
    pub(super) fn free(&self, scope: &Scope) {
        let mut gained = self.gained.lock();
        if gained.slots.is_none() || gained.freed.contains(scope) {
            return;
        }
        if scope.bucket.is_none() || gained.freed.len() >= FREED_MAX {
            gained.slots = None;
        } else {
            gained.freed.push(scope.clone());
        }
    }

    pub(super) fn is_freed(&self, path: &ObjectPath) -> bool {
        self.gained.lock().freed.iter().any(|scope| scope.contains(path))
    }

    pub(super) fn take_off(&self, slots: &SlotSet) {
        if let Some(gained) = &mut self.gained.lock().slots {
            gained.take_off(slots);
        }
    }

    /// Whether the slot of the paths with this hash is warmed up.
    pub(super) fn has(&self, hash: u64) -> bool {
        let gained = self.gained.lock();
        let Some(slots) = &gained.slots else { return false };
        slots.has_hash(hash) && self.clock.monotonic() < gained.until
    }

    pub(super) fn is_silent(&self, worker: &str) {
        self.gained.lock().silent.insert(worker.to_owned(), self.clock.monotonic() + SILENCE);
    }

    pub(super) fn may_ask(&self, worker: &str) -> bool {
        self.gained.lock().silent.get(worker).is_none_or(|until| *until <= self.clock.monotonic())
    }
}
