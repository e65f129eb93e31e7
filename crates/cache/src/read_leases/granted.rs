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
    by_path: BTreeMap<ObjectPath, Vec<Noted>>,
    /// How many leases were noted.
    noted: u64,
    /// No more are granted.
    is_closed: bool,
}

/// Leases by reader.
pub(super) type ByReader = BTreeMap<Reader, OfReader>;

/// Leases of one reader, which are to be ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OfReader {
    pub(super) paths: Vec<ObjectPath>,
    /// When the last of them is over.
    pub(super) until: Duration,
    /// The number of the last one. A lease that is granted while these are ended has a higher number.
    last: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) reader: Reader,
    pub(super) until: Duration,
}

/// All leases of one reader on one key: when the last of them is over, and its number.
struct Noted {
    granted: Granted,
    number: u64,
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
        table.noted += 1;
        let number = table.noted;
        let leases = &mut table.by_path;
        if leases.len() >= OBJECTS_MAX && !leases.contains_key(path) {
            let now = self.env.clock.monotonic();
            leases.retain(|_, noted| noted.iter().any(|noted| now < noted.granted.until));
            if leases.len() >= OBJECTS_MAX {
                return false;
            }
        }
        let of_path = leases.entry(path.clone()).or_default();
        match of_path.iter_mut().find(|before| before.granted.reader == granted.reader) {
            Some(before) => {
                before.granted.until = before.granted.until.max(granted.until);
                before.number = number;
            }
            None => of_path.push(Noted { granted, number }),
        }
        self.has_any.store(true, Ordering::SeqCst);
        true
    }

    /// The leases on these keys.
    pub(super) fn of(&self, is_meant: impl Fn(&ObjectPath) -> bool) -> ByReader {
        let mut found = ByReader::new();
        for (path, noted) in self.table.lock().by_path.iter().filter(|(path, _)| is_meant(path)) {
            collect(&mut found, path, noted);
        }
        found
    }

    /// The leases on a key.
    pub(super) fn of_path(&self, path: &ObjectPath) -> ByReader {
        let mut found = ByReader::new();
        if let Some(noted) = self.table.lock().by_path.get(path) {
            collect(&mut found, path, noted);
        }
        found
    }

    /// The reader has none of these leases any more.
    pub(super) fn ended(&self, reader: &Reader, leases: &OfReader) {
        let by_path = &mut self.table.lock().by_path;
        for path in &leases.paths {
            let Some(noted) = by_path.get_mut(path) else { continue };
            noted.retain(|noted| noted.granted.reader != *reader || noted.number > leases.last);
            if noted.is_empty() {
                by_path.remove(path);
            }
        }
    }
}

fn collect(found: &mut ByReader, path: &ObjectPath, noted: &[Noted]) {
    for Noted { granted: Granted { reader, until }, number } in noted {
        let of_reader = found.entry(reader.clone()).or_default();
        of_reader.paths.push(path.clone());
        of_reader.until = of_reader.until.max(*until);
        of_reader.last = of_reader.last.max(*number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reader asks again while its answer, that it has no lease, is on its way.
    #[test]
    fn a_lease_that_is_granted_while_another_one_is_ended_stays_noted() {
        let leases = GrantedLeases::new(Env::simulated(1).0, false);
        let path = ObjectPath::parse("bucket", "key").expect("a path");
        let reader = Reader { worker: "w2".to_owned(), process: 1 };
        let until = Duration::from_secs(5);
        let note = || leases.note(&path, Granted { reader: reader.clone(), until });
        assert!(note());
        let ending = leases.of_path(&path);
        // Leases end with that of the worker that grants them: the new one is over at the same time.
        assert!(note());
        leases.ended(&reader, &ending[&reader]);
        let ending = leases.of_path(&path);
        assert_eq!(ending[&reader].paths, std::slice::from_ref(&path));
        leases.ended(&reader, &ending[&reader]);
        assert!(leases.of_path(&path).is_empty());
    }
}
