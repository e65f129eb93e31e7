//! What a worker knows of its copies of keys that are at home elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use forebay_catalog::SlotSet;
use forebay_env::Env;
use forebay_env::sync::Mutex;
use forebay_store::{Object, Staged};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, Notify};

use super::{CopyId, DamagedCopies};
use crate::space::Reservation;

/// The pause before the first question about a copy, and before each later one: doubled, so a copy is kept at most as
/// long again as it is wanted. What is wanted for longer is asked for with every sweep.
pub(super) const PAUSES: [Duration; 10] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
    Duration::from_secs(32),
    Duration::from_secs(64),
    Duration::from_secs(128),
    Duration::from_secs(256),
    Duration::from_secs(512),
];

/// The longest of these pauses, by its number, for a copy of which no home has said yet whether it is wanted.
pub(super) const UNDECIDED_PAUSE_MAX: usize = 6;

/// When this worker has no room for a copy, it looks for copies that nobody wants, but not more often than this.
const HURRIED: Duration = Duration::from_secs(30);

pub(crate) struct HeldCopies {
    env: Env,
    state: Mutex<State>,
    changed: Notify,
    /// Shown copies whose bytes are damaged. They count as no copies.
    pub(super) damaged: DamagedCopies,
    /// There was no room for a copy.
    pub(super) hurried: Notify,
    /// Held while copies are shown or dropped.
    pub(super) showing: AsyncMutex<()>,
    /// One for all keys with the same hash modulo [`KEY_LOCKS`]: held while a copy is prepared, and while one is shown.
    key_locks: Vec<AsyncMutex<()>>,
}

/// Two keys with one lock only cost a wait for a sync.
const KEY_LOCKS: usize = 1024;

#[derive(Default)]
struct State {
    prepared: BTreeMap<CopyId, Prepared>,
    /// Copies to ask for, with the times, for each of the pauses: in the order of these times.
    due: [VecDeque<(Duration, CopyId)>; PAUSES.len()],
    /// When all copies were asked for in a hurry.
    hurried_at: Option<Duration>,
}

/// A copy that nobody sees.
enum Prepared {
    Staged {
        staged: Box<Staged>,
        reservation: Option<Reservation>,
    },
    /// It is being shown.
    Shown(Object),
}

impl Prepared {
    fn object(&self) -> Object {
        match self {
            Self::Staged { staged, .. } => staged.object(),
            Self::Shown(object) => object.clone(),
        }
    }
}

impl HeldCopies {
    pub(crate) fn new(env: Env) -> Self {
        let (changed, hurried) = (Notify::new(), Notify::new());
        let key_locks = (0..KEY_LOCKS).map(|_| AsyncMutex::default()).collect();
        let (damaged, showing) = (DamagedCopies::default(), AsyncMutex::default());
        Self { env, state: Mutex::default(), changed, damaged, hurried, showing, key_locks }
    }

    /// To prepare a copy drops what is shown under its key, unless that is pinned. So it does not overlap with showing
    /// an earlier copy of the same key, which would be pinned a moment later.
    pub(super) async fn lock_key(&self, id: &CopyId) -> MutexGuard<'_, ()> {
        self.key_locks[id.hash().unwrap_or(0) as usize % KEY_LOCKS].lock().await
    }

    /// `staged` is prepared.
    pub(crate) fn add(&self, staged: Staged, reservation: Option<Reservation>) {
        let id = CopyId { key: staged.key().clone(), generation: staged.generation() };
        let prepared = Prepared::Staged { staged: Box::new(staged), reservation };
        self.state.lock().prepared.insert(id.clone(), prepared);
        self.ask_later(id, 0);
    }

    pub(super) fn ask_later(&self, id: CopyId, pause: usize) {
        let at = self.env.clock.monotonic() + PAUSES[pause];
        self.state.lock().due[pause].push_back((at, id));
        self.changed.notify_one();
    }

    pub(super) fn object(&self, id: &CopyId) -> Option<Object> {
        self.state.lock().prepared.get(id).map(Prepared::object)
    }

    pub(super) fn is_prepared(&self, id: &CopyId) -> bool {
        self.state.lock().prepared.contains_key(id)
    }

    /// Copies that are due, and the pause that each has waited for. Waits for the first.
    pub(super) async fn due(&self) -> Vec<(CopyId, usize)> {
        loop {
            let changed = self.changed.notified();
            let now = self.env.clock.monotonic();
            let (due, next) = self.state.lock().take_due(now);
            if !due.is_empty() {
                return due;
            }
            match next {
                Some(at) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = self.env.clock.sleep(at.saturating_sub(now)) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Has all copies asked for, unless that was done a moment ago.
    pub(super) fn hurry(&self) {
        let now = self.env.clock.monotonic();
        let mut state = self.state.lock();
        if state.hurried_at.is_none_or(|at| now >= at + HURRIED) {
            state.hurried_at = Some(now);
            self.hurried.notify_one();
        }
    }

    /// Leaves the object itself, which others may fetch meanwhile.
    pub(super) fn begin_to_show(&self, id: &CopyId) -> Option<(Staged, Option<Reservation>)> {
        self.state.lock().begin_to_show(id)
    }

    /// It could not be shown.
    pub(super) fn put_back(&self, id: &CopyId, staged: Staged, reservation: Option<Reservation>) {
        self.state.lock().prepared.insert(id.clone(), Prepared::Staged { staged: Box::new(staged), reservation });
    }

    /// Whether there was such a copy.
    pub(super) fn drop_prepared(&self, id: &CopyId) -> bool {
        self.state.lock().prepared.remove(id).is_some()
    }

    pub(super) fn all_prepared(&self, slots: &SlotSet) -> Vec<CopyId> {
        let is_asked = |id: &&CopyId| id.hash().is_some_and(|hash| slots.has_hash(hash));
        self.state.lock().prepared.keys().filter(is_asked).cloned().collect()
    }
}

impl State {
    fn begin_to_show(&mut self, id: &CopyId) -> Option<(Staged, Option<Reservation>)> {
        let prepared = self.prepared.get_mut(id)?;
        let shown = Prepared::Shown(prepared.object());
        match std::mem::replace(prepared, shown) {
            Prepared::Staged { staged, reservation } => Some((*staged, reservation)),
            Prepared::Shown(_) => None,
        }
    }

    /// And when the next one is due.
    fn take_due(&mut self, now: Duration) -> (Vec<(CopyId, usize)>, Option<Duration>) {
        let mut taken = Vec::new();
        for (pause, due) in self.due.iter_mut().enumerate() {
            while let Some((_, id)) = due.pop_front_if(|(at, _)| *at <= now) {
                taken.push((id, pause));
            }
        }
        (taken, self.due.iter().filter_map(|due| due.front()).map(|(at, _)| *at).min())
    }
}
