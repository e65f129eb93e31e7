//! The workloads of the command line.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_env::Random;
use parking_lot::Mutex;

use crate::keys::{Chooser, Keys};
use crate::load::{Seat, Source};
use crate::s3::{Operation, Outcome, Target};
use crate::sizes::Sizes;

/// Most keys of one request in S3, to list or to delete.
pub(crate) const BATCH_MAX: u32 = 1000;

/// What a workload does repeatedly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// Writes new objects, or overwrites the prepared ones.
    Put {
        overwrite: bool,
    },
    /// Reads whole objects, or ranges of `range_bytes`.
    Get {
        range_bytes: Option<u64>,
    },
    Stat,
    /// Lists page after page, of `keys_max` keys.
    List {
        keys_max: u32,
    },
    /// Deletes each object once, `batch` of them per request.
    Delete {
        batch: u32,
    },
    /// Uploads in parts of `part_bytes`.
    Multipart {
        part_bytes: u64,
    },
    ReadAfterWrite,
    /// Shares of GET, STAT and PUT. The rest are deletions of what was put.
    Mixed(Mix),
}

/// Shares in any unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mix {
    pub(crate) get: f64,
    pub(crate) stat: f64,
    pub(crate) put: f64,
    /// At most equal to `put`.
    pub(crate) delete: f64,
}

/// The objects of a workload: numbers from 0, under one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    pub(crate) bucket: Arc<str>,
    pub(crate) prefix: String,
    pub(crate) count: u64,
    pub(crate) sizes: Sizes,
}

impl Objects {
    fn target(&self, number: u64, version: u64) -> Target {
        Target { bucket: Arc::clone(&self.bucket), key: format!("{}{number:010}", self.prefix), version }
    }

    fn put(&self, number: u64) -> Operation {
        Operation::Put { target: self.target(number, 0), size: self.sizes.of(number) }
    }

    fn get(&self, number: u64, range: Option<(u64, u64)>) -> Operation {
        Operation::Get { target: self.target(number, 0), size: Some(self.sizes.of(number)), range }
    }
}

/// Start and length of a range of `bytes` of an object, beginning at a multiple of that. It is shorter at the object's
/// end, and empty when the object is.
fn random_range(random: &dyn Random, size: u64, bytes: u64) -> (u64, u64) {
    let start = random.below(size.div_ceil(bytes).max(1)) * bytes;
    (start, bytes.min(size - start))
}

/// A running workload. All its rounds share it, so that new objects are new in each round.
pub(crate) struct Workload {
    kind: Kind,
    objects: Objects,
    chooser: Chooser,
    /// The number of the next new object, and of the next one that is deleted.
    new: AtomicU64,
    deleted: AtomicU64,
    /// New objects of the mix that exist, the oldest first.
    put: Mutex<VecDeque<u64>>,
}

impl Workload {
    /// `objects` has at least one.
    pub(crate) fn new(kind: Kind, objects: Objects, keys: Keys) -> Self {
        Self {
            kind,
            chooser: Chooser::new(keys, objects.count),
            new: AtomicU64::new(objects.count),
            deleted: AtomicU64::new(0),
            put: Mutex::new(VecDeque::new()),
            objects,
        }
    }

    /// Whether objects must exist before the first round.
    pub(crate) fn wants_objects(&self) -> bool {
        !matches!(self.kind, Kind::Put { .. } | Kind::Multipart { .. } | Kind::ReadAfterWrite)
    }

    /// Allows objects to be deleted again, after they were rewritten.
    pub(crate) fn rewind(&self) {
        self.deleted.store(0, Ordering::Relaxed);
    }

    fn next_new(&self) -> u64 {
        self.new.fetch_add(1, Ordering::Relaxed)
    }

    fn delete(&self, batch: u32) -> Option<Operation> {
        let batch = u64::from(batch);
        let first = self.deleted.fetch_add(batch, Ordering::Relaxed);
        let numbers = first..(first + batch).min(self.objects.count);
        match numbers.clone().count() {
            0 => None,
            1 => Some(Operation::Delete { target: self.objects.target(first, 0) }),
            _ => {
                let keys = numbers.map(|number| self.objects.target(number, 0).key).collect();
                Some(Operation::DeleteMany { bucket: Arc::clone(&self.objects.bucket), keys })
            }
        }
    }

    fn mixed(&self, mix: Mix, seat: &Seat) -> Operation {
        let Mix { get, stat, put, delete } = mix;
        let at = crate::sizes::unit(&seat.random) * (get + stat + put + delete);
        let target = || self.objects.target(self.chooser.choose(&seat.random), 0);
        if at < get {
            let number = self.chooser.choose(&seat.random);
            return self.objects.get(number, None);
        }
        if at < get + stat {
            return Operation::Stat { target: target() };
        }
        let oldest = if at < get + stat + put { None } else { self.put.lock().pop_front() };
        match oldest {
            Some(number) => Operation::Delete { target: self.objects.target(number, 0) },
            None => self.objects.put(self.next_new()),
        }
    }

    /// Keys that no other connection writes. The version counts this connection's writes.
    fn read_after_write(&self, seat: &mut Seat) -> Operation {
        let own = (self.objects.count / seat.of as u64).max(1);
        let number = seat.random.below(own.min(1 << 32)) * seat.of as u64 + seat.index as u64;
        seat.position += 1;
        let target = self.objects.target(number, seat.position);
        Operation::ReadAfterWrite { target, size: self.objects.sizes.of(number) }
    }
}

impl Source for Workload {
    fn next(&self, seat: &mut Seat) -> Option<Operation> {
        let objects = &self.objects;
        match self.kind {
            Kind::Put { overwrite: false } => Some(objects.put(self.next_new())),
            Kind::Put { overwrite: true } => Some(objects.put(self.chooser.choose(&seat.random))),
            Kind::Get { range_bytes } => {
                let number = self.chooser.choose(&seat.random);
                let range = range_bytes.map(|bytes| random_range(&seat.random, objects.sizes.of(number), bytes));
                Some(objects.get(number, range))
            }
            Kind::Stat => Some(Operation::Stat { target: objects.target(self.chooser.choose(&seat.random), 0) }),
            Kind::List { keys_max } => {
                let (bucket, prefix) = (Arc::clone(&objects.bucket), objects.prefix.clone());
                Some(Operation::List { bucket, prefix, keys_max, token: seat.token.take() })
            }
            Kind::Delete { batch } => self.delete(batch),
            Kind::Multipart { part_bytes } => {
                let number = self.next_new();
                let size = objects.sizes.of(number);
                Some(Operation::Multipart { target: objects.target(number, 0), size, part_bytes })
            }
            Kind::ReadAfterWrite => Some(self.read_after_write(seat)),
            Kind::Mixed(mix) => Some(self.mixed(mix, seat)),
        }
    }

    /// Only where this changes neither what is done nor how the keys are distributed.
    fn may_skip(&self) -> bool {
        match self.kind {
            Kind::Put { overwrite: false } | Kind::Multipart { .. } => true,
            Kind::Put { overwrite: true } | Kind::Get { .. } | Kind::Stat => self.chooser.is_uniform(),
            Kind::List { .. } | Kind::Delete { .. } | Kind::ReadAfterWrite | Kind::Mixed(_) => false,
        }
    }

    fn done(&self, seat: &mut Seat, operation: Operation, outcome: Outcome) {
        seat.token = outcome.next;
        if let (Kind::Mixed(_), Operation::Put { target, .. }, true) = (self.kind, operation, outcome.succeeded) {
            let number = target.key.strip_prefix(&self.objects.prefix).and_then(|number| number.parse().ok());
            self.put.lock().push_back(number.expect("it was made from a number"));
        }
    }
}

/// Writes all objects of a workload once.
pub(crate) struct Prepare {
    objects: Objects,
    next: AtomicU64,
}

impl Prepare {
    pub(crate) fn new(objects: Objects) -> Self {
        Self { objects, next: AtomicU64::new(0) }
    }
}

impl Source for Prepare {
    fn next(&self, _: &mut Seat) -> Option<Operation> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.objects.count).then(|| self.objects.put(number))
    }
}

/// Deletes everything under the prefix: lists a page, deletes it, and lists again. For one connection.
pub(crate) struct Clear {
    objects: Objects,
    listed: Mutex<Option<Vec<String>>>,
}

impl Clear {
    pub(crate) fn new(objects: Objects) -> Self {
        Self { objects, listed: Mutex::new(None) }
    }
}

impl Source for Clear {
    fn next(&self, _: &mut Seat) -> Option<Operation> {
        let bucket = Arc::clone(&self.objects.bucket);
        match self.listed.lock().take() {
            None => {
                Some(Operation::List { bucket, prefix: self.objects.prefix.clone(), keys_max: BATCH_MAX, token: None })
            }
            Some(keys) if keys.is_empty() => None,
            Some(keys) => Some(Operation::DeleteMany { bucket, keys }),
        }
    }

    fn done(&self, _: &mut Seat, operation: Operation, outcome: Outcome) {
        *self.listed.lock() = match operation {
            // After a failure, the only thing to do is to stop.
            _ if !outcome.succeeded => Some(Vec::new()),
            Operation::List { .. } => Some(outcome.keys),
            _ => None,
        };
    }
}

/// Does one operation.
pub(crate) struct Once(Mutex<Option<Operation>>);

impl Once {
    pub(crate) fn new(operation: Operation) -> Self {
        Self(Mutex::new(Some(operation)))
    }
}

impl Source for Once {
    fn next(&self, _: &mut Seat) -> Option<Operation> {
        self.0.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay_env::random::SeededRandom;

    use super::*;

    fn seat(index: usize, of: usize) -> Seat {
        Seat { index, of, random: SeededRandom::new(index as u64), position: 0, token: None }
    }

    fn workload(kind: Kind, count: u64) -> Workload {
        let objects = Objects { bucket: "b".into(), prefix: "p/".to_owned(), count, sizes: Sizes::Uniform(1, 100) };
        Workload::new(kind, objects, Keys::Uniform)
    }

    fn succeeded() -> Outcome {
        Outcome { succeeded: true, ..Outcome::default() }
    }

    #[test]
    fn a_mix_keeps_its_shares_and_deletes_only_what_it_has_put() {
        let workload = workload(Kind::Mixed(Mix { get: 45.0, stat: 30.0, put: 15.0, delete: 10.0 }), 100);
        let (mut seat, mut counts, mut there) = (seat(0, 1), [0; 4], BTreeSet::new());
        for _ in 0..20_000 {
            let operation = workload.next(&mut seat).unwrap();
            match &operation {
                Operation::Get { target, .. } | Operation::Stat { target } => {
                    assert!(target.key.as_str() < "p/0000000100", "{}", target.key);
                    counts[usize::from(matches!(operation, Operation::Stat { .. }))] += 1;
                }
                Operation::Put { target, .. } => {
                    assert!(there.insert(target.key.clone()) && target.key.as_str() >= "p/0000000100");
                    counts[2] += 1;
                }
                Operation::Delete { target } => {
                    assert!(there.remove(&target.key));
                    counts[3] += 1;
                }
                other => panic!("{other:?}"),
            }
            workload.done(&mut seat, operation, succeeded());
        }
        for (count, expected) in counts.into_iter().zip([9000_i32, 6000, 3000, 2000]) {
            assert!((count - expected).abs() < expected / 10, "{counts:?}");
        }
    }

    #[test]
    fn connections_never_write_the_same_key_when_they_read_what_they_wrote() {
        let workload = workload(Kind::ReadAfterWrite, 100);
        let keys = |index| {
            let mut seat = seat(index, 3);
            let mut last = 0;
            let next = |_| match workload.next(&mut seat) {
                Some(Operation::ReadAfterWrite { target, .. }) => {
                    assert!(target.version > last, "a version is never written twice");
                    last = target.version;
                    target.key
                }
                other => panic!("{other:?}"),
            };
            (0..500).map(next).collect::<BTreeSet<_>>()
        };
        let (one, two) = (keys(0), keys(1));
        assert!(one.is_disjoint(&two) && one.len() > 25, "{}", one.len());
    }

    #[test]
    fn deletions_take_each_object_once() {
        let workload = workload(Kind::Delete { batch: 7 }, 50);
        let mut deleted = Vec::new();
        while let Some(operation) = workload.next(&mut seat(0, 1)) {
            match operation {
                Operation::DeleteMany { keys, .. } => deleted.extend(keys),
                Operation::Delete { target } => deleted.push(target.key),
                other => panic!("{other:?}"),
            }
        }
        let expected: Vec<_> = (0..50).map(|number| format!("p/{number:010}")).collect();
        assert_eq!(deleted, expected);
        workload.rewind();
        assert!(workload.next(&mut seat(0, 1)).is_some());
    }

    #[test]
    fn ranges_lie_in_their_objects_and_cover_them() {
        let random = SeededRandom::new(1);
        let ranges: BTreeSet<_> = (0..1000).map(|_| random_range(&random, 100, 30)).collect();
        assert_eq!(ranges, BTreeSet::from([(0, 30), (30, 30), (60, 30), (90, 10)]));
        assert_eq!(random_range(&random, 0, 30), (0, 0));
    }

    #[test]
    fn what_is_read_has_the_size_that_was_written() {
        let get = Kind::Get { range_bytes: None };
        let (reads, prepare) = (workload(get, 20), Prepare::new(workload(get, 20).objects));
        let mut seat = seat(0, 1);
        let mut written = std::collections::BTreeMap::new();
        while let Some(Operation::Put { target, size }) = prepare.next(&mut seat) {
            written.insert(target.key, size);
        }
        assert_eq!(written.len(), 20);
        for _ in 0..100 {
            let Some(Operation::Get { target, size, range: None }) = reads.next(&mut seat) else { panic!("a read") };
            assert_eq!(size, Some(written[&target.key]));
        }
    }
}
