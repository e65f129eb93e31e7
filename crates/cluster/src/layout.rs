//! Where everything stands in the engine.
//!
//! | key | value |
//! |---|---|
//! | `cluster` | [`ClusterSettings`](crate::ClusterSettings): what all workers must agree on |
//! | `identity` | [`ClusterIdentity`](crate::ClusterIdentity): which cluster this is, and the key of its workers |
//! | `generations` | where the next block of generations begins: see `generations.rs` |
//! | `worker/{worker}` | [`WorkerRecord`](crate::worker_record::WorkerRecord): the lease of a worker, written with each of its transactions |
//! | `member/{worker}` | [`MemberRecord`](crate::member_record::MemberRecord): where a worker is reached, written when it starts |
//! | `leaving/{worker}` | [`LeavingRecord`](crate::leaving_record::LeavingRecord): the worker is draining or removed |
//! | `stale-copies/{worker}` | there while the worker's disks may hold clean copies that are outdated |
//! | `slot/{slot, five digits}` | [`SlotRecord`](crate::slot_record::SlotRecord): the home of a slot |
//! | `slot-changes` | the worker that was the last to change slots: see `slots_seen.rs` |
//! | `catalog/{slot, five digits}/{key}` | a record of a path: see [`forebay_catalog::records`] |
//! | `own/{worker}/{key}` | a record that is of one worker alone |
//! | `shared/{key}` | a record of the whole cluster |
//! | `shared-revision` | counts the changes of those: see `shared_revision.rs` |
//! | `under-stores` | where the buckets were at the last start of a worker: see [`UNDER_STORES_KEY`] |

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::records::{self, Scope};
use forebay_catalog::{Engine, Error, ErrorKind, Result, Slot, SlotCount, Versioned};

/// Where the buckets were at the last start of a worker. This crate only reserves the key.
pub const UNDER_STORES_KEY: &[u8] = b"under-stores";
pub(crate) const CLUSTER_KEY: &[u8] = b"cluster";
pub(crate) const IDENTITY_KEY: &[u8] = b"identity";

/// Records that are read in one go.
const SCANNED: usize = 1000;

/// Behind all keys of the catalog, which are text. In a store, keys from here on are those of this crate.
pub(crate) const BEHIND_ALL: &[u8] = &[0xff];

/// Names a worker for as long as its cluster lives: 1 to 64 letters, digits, `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(Arc<str>);

impl WorkerId {
    /// # Errors
    /// `Unavailable` when the name is too long or holds anything else.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
            let problem = format!("{name:?} is no worker id: give 1 to 64 letters, digits, '-', '_' and '.'");
            return Err(Error::new(ErrorKind::Unavailable, problem));
        }
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

pub(crate) fn worker_key(worker: &WorkerId) -> Bytes {
    format!("worker/{worker}").into()
}

pub(crate) fn parse_worker_key(key: &[u8]) -> Option<WorkerId> {
    WorkerId::new(std::str::from_utf8(key).ok()?.strip_prefix("worker/")?).ok()
}

pub(crate) fn member_key(worker: &WorkerId) -> Bytes {
    format!("member/{worker}").into()
}

pub(crate) fn parse_member_key(key: &[u8]) -> Option<WorkerId> {
    WorkerId::new(std::str::from_utf8(key).ok()?.strip_prefix("member/")?).ok()
}

pub(crate) fn leaving_key(worker: &WorkerId) -> Bytes {
    format!("leaving/{worker}").into()
}

pub(crate) fn parse_leaving_key(key: &[u8]) -> Option<WorkerId> {
    WorkerId::new(std::str::from_utf8(key).ok()?.strip_prefix("leaving/")?).ok()
}

pub(crate) fn stale_copies_key(worker: &WorkerId) -> Bytes {
    format!("stale-copies/{worker}").into()
}

pub(crate) fn slot_key(slot: Slot) -> Bytes {
    format!("slot/{slot}").into()
}

pub(crate) fn parse_slot_key(key: &[u8]) -> Option<Slot> {
    std::str::from_utf8(key).ok()?.strip_prefix("slot/")?.parse().ok().map(Slot)
}

/// Before the keys of records of a slot.
pub(crate) fn slot_prefix(slot: Slot) -> Bytes {
    format!("catalog/{slot}/").into()
}

/// The keys of the records of all paths, in the order of their slots: from the first up to, not including, the second.
pub fn path_records_range() -> (Bytes, Bytes) {
    range_of(PATH_RECORDS_PREFIX)
}

/// The record's own key, from its key in the engine.
pub fn parse_path_record_key(key: &[u8]) -> Option<&[u8]> {
    let rest = key.strip_prefix(PATH_RECORDS_PREFIX)?;
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    Some(&rest[slash + 1..])
}

/// Before the keys of records of one worker.
pub(crate) fn own_prefix(worker: &WorkerId) -> Bytes {
    format!("own/{worker}/").into()
}

/// Before the keys of what a worker has noted of jobs: its shares of them, and what it has found.
pub(crate) fn job_prefixes(worker: &WorkerId) -> [Bytes; 2] {
    ["j", "jf"].map(|kind| format!("own/{worker}/{kind}/").into())
}

const PATH_RECORDS_PREFIX: &[u8] = b"catalog/";
pub(crate) const SHARED_PREFIX: &[u8] = b"shared/";
/// Not in the range of that prefix.
pub(crate) const SHARED_REVISION_KEY: &[u8] = b"shared-revision";
pub(crate) const LEAVING_PREFIX: &[u8] = b"leaving/";
pub(crate) const MEMBERS_PREFIX: &[u8] = b"member/";
pub(crate) const WORKERS_PREFIX: &[u8] = b"worker/";
pub(crate) const SLOTS_PREFIX: &[u8] = b"slot/";
/// Not in the range of that prefix.
pub(crate) const SLOT_CHANGES_KEY: &[u8] = b"slot-changes";

/// Where a record of the catalog stands.
pub(crate) fn record_key(key: &[u8], worker: &WorkerId, slots: SlotCount) -> Bytes {
    let prefix = match records::scope(key) {
        Scope::Path(hash) => slot_prefix(slots.slot_of(hash)),
        Scope::Worker => own_prefix(worker),
        Scope::Cluster => Bytes::from_static(SHARED_PREFIX),
    };
    [&prefix, key].concat().into()
}

/// Everything behind a prefix, in the order of keys.
///
/// # Errors
/// Whatever the engine answers.
pub(crate) async fn scan_all(engine: &dyn Engine, prefix: &[u8]) -> Result<Vec<(Bytes, Versioned)>> {
    let (mut from, to) = range_of(prefix);
    let mut all = Vec::new();
    loop {
        let found = engine.scan(&from, &to, SCANNED).await?;
        let Some((last, _)) = found.last() else { return Ok(all) };
        from = records::successor(last);
        all.extend(found);
    }
}

/// All keys that begin with a prefix: from the first up to, not including, the second. Prefixes here end in a slash.
pub(crate) fn range_of(prefix: &[u8]) -> (Bytes, Bytes) {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    (Bytes::copy_from_slice(prefix), end.into())
}

#[cfg(test)]
mod tests {
    use forebay_types::ObjectPath;

    use super::*;

    #[test]
    fn names_of_workers_are_plain() {
        for name in ["w1", "a", "node-7.rack_2", &"x".repeat(64)] {
            assert_eq!(WorkerId::new(name).unwrap().as_str(), name);
        }
        for name in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert!(WorkerId::new(name).is_err(), "{name}");
        }
    }

    #[test]
    fn keys_are_read_back() {
        let worker = WorkerId::new("w-1").unwrap();
        assert_eq!(parse_worker_key(&worker_key(&worker)).as_ref(), Some(&worker));
        assert_eq!(parse_member_key(&member_key(&worker)).as_ref(), Some(&worker));
        assert_eq!(parse_leaving_key(&leaving_key(&worker)), Some(worker));
        for slot in [Slot(0), Slot(77), Slot(u16::MAX)] {
            assert_eq!(parse_slot_key(&slot_key(slot)), Some(slot));
        }
        assert_eq!(parse_slot_key(b"slot/x"), None);
        assert_eq!(parse_worker_key(b"slot/00001"), None);
    }

    /// A slot is read by its range, and so is what a worker has of its own.
    #[test]
    fn a_record_lies_in_the_range_of_its_slot() {
        let (worker, slots) = (WorkerId::new("w1").unwrap(), SlotCount::new(1024).unwrap());
        let path = ObjectPath::parse("bucket", "key").unwrap();
        let slot = slots.slot_of(records::path_hash(&path));
        let is_in = |key: &[u8], prefix: &[u8]| {
            let (key, (from, to)) = (record_key(key, &worker, slots), range_of(prefix));
            from <= key && key < to
        };
        assert!(is_in(&records::object_key(&path), &slot_prefix(slot)));
        assert!(!is_in(&records::object_key(&path), &slot_prefix(Slot(slot.0 ^ 1))));
        let (key, (from, to)) = (record_key(&records::object_key(&path), &worker, slots), path_records_range());
        assert!((from..to).contains(&key));
        assert_eq!(parse_path_record_key(&key), Some(records::object_key(&path).as_ref()));
        assert_eq!(parse_path_record_key(&record_key(records::SETTLED_KEY, &worker, slots)), None);
        assert!(is_in(records::SETTLED_KEY, &own_prefix(&worker)));
        assert!(is_in(&records::policy_key(), SHARED_PREFIX));
        let (from, to) = range_of(SHARED_PREFIX);
        assert!(!(from..to).contains(&Bytes::from_static(SHARED_REVISION_KEY)));
        let (from, to) = range_of(SLOTS_PREFIX);
        assert!(!(from..to).contains(&Bytes::from_static(SLOT_CHANGES_KEY)));
    }
}
