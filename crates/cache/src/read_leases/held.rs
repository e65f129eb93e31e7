//! The leases that a worker has on objects whose home is another one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_env::{Env, HashState};
use forebay_types::{ETag, Generation, ObjectInfo, ObjectPath, StorageState};

use super::OBJECTS_MAX;

/// An object that is read twice within this time is worth a lease. One that got none is not asked for again for so
/// long.
const RECENT_DS: u64 = 100;

/// Keys that are remembered: eight bytes each.
const RECENT_KEYS: usize = 1 << 14;

/// The leases that this worker has.
pub(crate) struct HeldLeases {
    env: Env,
    /// See [`Reader::process`].
    pub(super) process: u64,
    leases: Mutex<Leases>,
    /// Objects that were read lately.
    pub(super) reads: Recent,
    /// Objects that got no lease lately.
    pub(super) refused: Recent,
}

struct Leases {
    by_path: HashMap<ObjectPath, Held, HashState>,
    /// Paths that are being asked for. `false`: their homes have ended the leases since.
    asked: HashMap<ObjectPath, bool, HashState>,
}

/// A lease, whose bytes are in the memory tier.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) info: Arc<ObjectInfo>,
    pub(super) state: StorageState,
    pub(super) generation: Generation,
    pub(super) remote_etag: Option<ETag>,
    pub(super) until: Duration,
}

/// Remembers keys for a while, and may forget some.
pub(super) struct Recent {
    env: Env,
    /// The upper bits of a hash, and the time in tenths of seconds in the lower ones.
    keys: Vec<AtomicU64>,
}

const TIME_BITS: u64 = (1 << 24) - 1;

impl Recent {
    fn new(env: Env) -> Self {
        Self { env, keys: (0..RECENT_KEYS).map(|_| AtomicU64::new(0)).collect() }
    }

    fn now(&self) -> u64 {
        // Not 0, which is what nobody has noted.
        (self.env.clock.monotonic().as_millis() as u64 / 100 + RECENT_DS + 1) & TIME_BITS
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        let noted = self.keys[hash as usize % RECENT_KEYS].load(Ordering::Relaxed);
        let age = self.now().wrapping_sub(noted) & TIME_BITS;
        (noted ^ hash) & !TIME_BITS == 0 && age < RECENT_DS
    }

    pub(super) fn note(&self, hash: u64) {
        self.keys[hash as usize % RECENT_KEYS].store(hash & !TIME_BITS | self.now(), Ordering::Relaxed);
    }
}

impl HeldLeases {
    pub(crate) fn new(env: Env, hasher: &HashState) -> Self {
        let leases =
            Leases { by_path: HashMap::with_hasher(hasher.clone()), asked: HashMap::with_hasher(hasher.clone()) };
        Self {
            process: env.random.next_u64(),
            leases: Mutex::new(leases),
            reads: Recent::new(env.clone()),
            refused: Recent::new(env.clone()),
            env,
        }
    }

    pub(super) fn find(&self, path: &ObjectPath) -> Option<Held> {
        let held = self.leases.lock().by_path.get(path).cloned()?;
        // After it was found: a process that was suspended in between finds its lease over.
        (self.env.clock.monotonic() < held.until).then_some(held)
    }

    /// The same, or one that is over.
    pub(super) fn last(&self, path: &ObjectPath) -> Option<Held> {
        self.leases.lock().by_path.get(path).cloned()
    }

    /// `None` while somebody asks already.
    pub(super) fn begin_to_ask<'a>(&'a self, path: &'a ObjectPath) -> Option<Asking<'a>> {
        let mut leases = self.leases.lock();
        if leases.asked.contains_key(path) {
            return None;
        }
        leases.asked.insert(path.clone(), true);
        Some(Asking { held: self, path, has_ended: false })
    }

    /// Keeps the lease that the home has answered with, unless it has ended that since.
    fn end_asking(&self, path: &ObjectPath, held: Option<Held>) -> bool {
        let mut leases = self.leases.lock();
        let is_valid = leases.asked.remove(path).unwrap_or(false);
        let Some(held) = held.filter(|_| is_valid) else { return false };
        if leases.by_path.len() >= OBJECTS_MAX && !leases.by_path.contains_key(path) {
            let now = self.env.clock.monotonic();
            leases.by_path.retain(|_, held| now < held.until);
            if leases.by_path.len() >= OBJECTS_MAX {
                return false;
            }
        }
        leases.by_path.insert(path.clone(), held);
        true
    }

    /// Drops leases that their home ends. `false`: they were granted to another process.
    pub(crate) fn drop_leases(&self, process: u64, paths: &[ObjectPath]) -> bool {
        if process != self.process {
            return false;
        }
        let mut leases = self.leases.lock();
        for path in paths {
            leases.by_path.remove(path);
            // The answer that brings a lease may be on its way.
            if let Some(is_valid) = leases.asked.get_mut(path) {
                *is_valid = false;
            }
        }
        true
    }
}

/// A path that its home is asked about, until this is dropped.
pub(super) struct Asking<'a> {
    held: &'a HeldLeases,
    pub(super) path: &'a ObjectPath,
    has_ended: bool,
}

impl Asking<'_> {
    pub(super) fn end(mut self, held: Option<Held>) -> bool {
        self.has_ended = true;
        self.held.end_asking(self.path, held)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.held.end_asking(self.path, None);
        }
    }
}
