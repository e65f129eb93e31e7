//! The leases that the home of keys has granted.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_env::Env;
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicBool, Ordering};
use forebay_types::ObjectPath;

use super::{DRIFT, LEASE_MAX, OBJECTS_MAX, Reader};

/// The leases that this worker has granted.
pub(crate) struct GrantedLeases {
    env: Env,
    table: Mutex<Table>,
    /// Set once there may be any.
    has_any: AtomicBool,
    /// Leases of the process before this one may last until then.
    earlier_until: Duration,
}

#[derive(Default)]
struct Table {
    by_path: BTreeMap<ObjectPath, Vec<Granted>>,
    /// No more are granted.
    is_closed: bool,
}

/// Leases by reader, and when the last of each is over.
pub(super) type ByReader = BTreeMap<Reader, (Vec<ObjectPath>, Duration)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) reader: Reader,
    pub(super) until: Duration,
}

impl GrantedLeases {
    /// `follows_crash`: an earlier process of this worker may have granted leases, and did not end them.
    pub(crate) fn new(env: Env, follows_crash: bool) -> Self {
        let now = env.clock.monotonic();
        let earlier_until = if follows_crash { now + LEASE_MAX + LEASE_MAX / DRIFT } else { Duration::ZERO };
        Self { env, table: Mutex::default(), has_any: AtomicBool::new(follows_crash), earlier_until }
    }

    /// Whether there may be any.
    pub(super) fn may_have_any(&self) -> bool {
        self.has_any.load(Ordering::SeqCst)
    }

    /// How long leases of the process before this one may last yet.
    pub(super) fn earlier_left(&self) -> Duration {
        self.earlier_until.saturating_sub(self.env.clock.monotonic())
    }

    /// No more are granted.
    pub(super) fn close(&self) {
        self.table.lock().is_closed = true;
    }

    /// Notes a lease that is about to be granted. `false` when no more are, or there are too many.
    pub(super) fn note(&self, path: &ObjectPath, granted: Granted) -> bool {
        let mut table = self.table.lock();
        if table.is_closed {
            return false;
        }
        let leases = &mut table.by_path;
        if leases.len() >= OBJECTS_MAX && !leases.contains_key(path) {
            let now = self.env.clock.monotonic();
            leases.retain(|_, granted| granted.iter().any(|granted| now < granted.until));
            if leases.len() >= OBJECTS_MAX {
                return false;
            }
        }
        let of_path = leases.entry(path.clone()).or_default();
        match of_path.iter_mut().find(|before| before.reader == granted.reader) {
            Some(before) => before.until = before.until.max(granted.until),
            None => of_path.push(granted),
        }
        self.has_any.store(true, Ordering::SeqCst);
        true
    }

    /// The leases on these keys.
    pub(super) fn of(&self, is_meant: impl Fn(&ObjectPath) -> bool) -> ByReader {
        let mut found = ByReader::new();
        for (path, granted) in self.table.lock().by_path.iter().filter(|(path, _)| is_meant(path)) {
            collect(&mut found, path, granted);
        }
        found
    }

    /// The leases on a key.
    pub(super) fn of_path(&self, path: &ObjectPath) -> ByReader {
        let mut found = ByReader::new();
        if let Some(granted) = self.table.lock().by_path.get(path) {
            collect(&mut found, path, granted);
        }
        found
    }

    /// The reader has none of these leases any more, which are over at this time.
    pub(super) fn ended(&self, reader: &Reader, paths: &[ObjectPath], until: Duration) {
        let leases = &mut self.table.lock().by_path;
        for path in paths {
            let Some(granted) = leases.get_mut(path) else { continue };
            granted.retain(|granted| granted.reader != *reader || granted.until > until);
            if granted.is_empty() {
                leases.remove(path);
            }
        }
    }
}

fn collect(found: &mut ByReader, path: &ObjectPath, granted: &[Granted]) {
    for Granted { reader, until } in granted {
        let (paths, last) = found.entry(reader.clone()).or_default();
        paths.push(path.clone());
        *last = (*last).max(*until);
    }
}
