//! What the home of keys knows of the copies of its writes at other workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_env::Env;
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

use super::CopyId;
use crate::Taker;

/// A worker that could not take a copy is not asked again for so long: each time twice as long, until it takes one.
/// When there are too few others, it is asked after the shortest time.
const AVOIDED_MIN: Duration = Duration::from_secs(5);
const AVOIDED_MAX: Duration = Duration::from_secs(60);

/// What the home of keys knows of the copies that it has sent.
pub(crate) struct SentCopies {
    env: Env,
    /// Of writes that have not ended, with the number of changes when they began.
    undecided: Mutex<BTreeMap<CopyId, u64>>,
    /// Workers that could not take a copy.
    avoided: Mutex<BTreeMap<String, Avoided>>,
    /// The workers that took copies when somebody looked last.
    seen: Mutex<Option<BTreeSet<Taker>>>,
    /// Of the workers that take copies, of the keys that are at home here, and of the policies.
    changes: AtomicU64,
    /// Writes that began before one of these changes, and have ended after it.
    late_ends: AtomicU64,
    /// All copies are to be counted again.
    pub(super) recount: Notify,
    last_count: Mutex<Option<Count>>,
}

/// Whether a worker is asked to take a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    Yes,
    /// Behind all others.
    Last,
    No,
}

/// A worker that is not asked for a while.
#[derive(Debug, Clone, Copy)]
struct Avoided {
    until: Duration,
    time: Duration,
    /// It is asked for smaller ones.
    from_bytes: u64,
}

/// Whether copies have to be counted again: not while it stays the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    changes: u64,
    late_ends: u64,
}

/// The result of counting copies.
#[derive(Debug, Clone)]
struct Count {
    /// Before it began.
    mark: Mark,
    takers: BTreeSet<Taker>,
    lacking: Lacking,
}

/// Objects and parts that may be lost with another worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lacking {
    /// With too few copies.
    pub(super) known: u64,
    /// That could not be counted.
    pub(super) unknown: u64,
}

/// A write that has not ended.
pub(crate) struct Undecided {
    sent: Arc<SentCopies>,
    id: CopyId,
}

impl SentCopies {
    pub(crate) fn new(env: Env) -> Arc<Self> {
        Arc::new(Self {
            env,
            undecided: Mutex::default(),
            avoided: Mutex::default(),
            seen: Mutex::default(),
            changes: AtomicU64::new(0),
            late_ends: AtomicU64::new(0),
            recount: Notify::new(),
            last_count: Mutex::default(),
        })
    }

    pub(super) fn begin(self: &Arc<Self>, id: CopyId) -> Undecided {
        let changes = self.mark().changes;
        self.undecided.lock().insert(id.clone(), changes);
        Undecided { sent: Arc::clone(self), id }
    }

    pub(super) fn is_undecided(&self, id: &CopyId) -> bool {
        self.undecided.lock().contains_key(id)
    }

    /// `from_bytes`: the size of what it had no room for, or 0.
    pub(super) fn avoid(&self, worker: &str, from_bytes: u64) {
        let now = self.env.clock.monotonic();
        let mut avoided = self.avoided.lock();
        let avoid = match avoided.get(worker) {
            // Of a write that began at the same time.
            Some(before) if now < before.until => Avoided { from_bytes: from_bytes.min(before.from_bytes), ..*before },
            before => {
                let time = before.map_or(AVOIDED_MIN, |before| (before.time * 2).min(AVOIDED_MAX));
                Avoided { until: now + time, time, from_bytes }
            }
        };
        avoided.insert(worker.to_owned(), avoid);
    }

    /// The worker has taken a copy.
    pub(super) fn has_taken(&self, worker: &str) {
        self.avoided.lock().remove(worker);
    }

    /// Whether a worker is asked to take a copy of this size.
    pub(super) fn is_asked(&self, worker: &str, bytes: u64) -> Asked {
        let now = self.env.clock.monotonic();
        match self.avoided.lock().get(worker) {
            Some(avoided) if now < avoided.until && bytes >= avoided.from_bytes => {
                let since = avoided.until - avoided.time;
                if now < since + AVOIDED_MIN { Asked::No } else { Asked::Last }
            }
            Some(_) | None => Asked::Yes,
        }
    }

    fn mark(&self) -> Mark {
        Mark { changes: self.changes.load(Ordering::SeqCst), late_ends: self.late_ends.load(Ordering::SeqCst) }
    }

    /// Notes the workers that take copies now. Returns whether others did before: also one that takes copies for a
    /// moment may get the only copy of something. Also returns the mark for a count of the copies that these have.
    pub(super) fn see(&self, takers: &BTreeSet<Taker>) -> (bool, Mark) {
        let mut seen = self.seen.lock();
        let is_new = seen.as_ref() != Some(takers);
        if is_new {
            *seen = Some(takers.clone());
            self.note_change();
        }
        (is_new, self.mark())
    }

    /// Objects may have too few copies from here on, also what is being written.
    pub(super) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The same, and copies are counted.
    pub(crate) fn changed(&self) {
        self.note_change();
        self.recount();
    }

    /// Has the copies counted again, although nothing is known to have changed.
    pub(crate) fn recount(&self) {
        self.recount.notify_one();
    }

    /// `mark`: before the count began.
    pub(super) fn counted(&self, mark: Mark, takers: BTreeSet<Taker>, lacking: Lacking) {
        *self.last_count.lock() = Some(Count { mark, takers, lacking });
    }

    /// Whether each object has its copies at this worker and these others, which take copies now. What is written later
    /// goes to them, too.
    pub(super) fn is_complete(&self, takers: &BTreeSet<Taker>) -> bool {
        let Some(Count { mark, takers: counted, lacking }) = self.last_count.lock().clone() else { return false };
        // A write that began before the changes may go to workers that were there then.
        let is_late = |began: &u64| *began < mark.changes;
        let has_late = self.undecided.lock().values().any(is_late);
        lacking == Lacking::default() && !has_late && mark == self.mark() && counted == *takers
    }

    /// Objects and parts that may be lost with another worker; not 0 unless all have their copies.
    pub(super) fn lacking(&self, takers: &BTreeSet<Taker>) -> u64 {
        if self.is_complete(takers) {
            return 0;
        }
        let Lacking { known, unknown } = self.last_count.lock().as_ref().map(|count| count.lacking).unwrap_or_default();
        (known + unknown).max(1)
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        let mut undecided = self.sent.undecided.lock();
        let began = undecided.remove(&self.id);
        if began.is_some_and(|began| began < self.sent.mark().changes) {
            self.sent.late_ends.fetch_add(1, Ordering::SeqCst);
            self.sent.recount();
        }
    }
}
