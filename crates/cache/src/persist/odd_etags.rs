//! ETags of clean copies that are not the MD5 of the bytes, although they look like one. In most under stores, the ETag
//! of an object in one piece is that MD5, so a gateway may have made up the answer to the upload. The next write would
//! then have a condition that can never hold.
//!
//! Other ETags of the same form are true, such as those of S3 for objects with a key of KMS. While this process runs, a
//! write has such an ETag as its base, and the stamp shows whether the answer was made up. The record of the write does
//! not have it, because nothing would show that after a restart.

use std::collections::{BTreeMap, BTreeSet};

use forebay_catalog::records::{Base, ObjectRecord};
use forebay_env::sync::Mutex;
use forebay_types::{ETag, Generation};
use forebay_ufs::RemoteObject;

use crate::metadata::CleanVersion;

/// Bases that are remembered, at some 100 bytes each. Those of the lowest generations go first: what the under store
/// holds is then unknown.
const BASES_MAX: usize = 10_000;

/// Confirmed generations that are remembered. The lowest ones go first: their ETags are then in doubt again.
const CONFIRMED_MAX: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct OddEtags(Mutex<Odd>);

#[derive(Default)]
struct Odd {
    /// Versions whose ETag the under store has shown to this process.
    confirmed: BTreeSet<Generation>,
    /// Odd bases, by the generation since which the key is dirty.
    bases: BTreeMap<Generation, OddBase>,
}

/// What the answer to the upload of a generation gave.
struct OddBase {
    generation: Generation,
    told: ETag,
}

impl Odd {
    fn keep(&mut self, dirty_since: Generation, base: OddBase) {
        self.bases.insert(dirty_since, base);
        if self.bases.len() > BASES_MAX {
            self.bases.pop_first();
        }
    }
}

impl OddEtags {
    /// The under store itself has shown the object of this generation with this ETag.
    pub(crate) fn confirm(&self, version: &CleanVersion) {
        if !version.may_be_made_up() {
            return;
        }
        let mut odd = self.0.lock();
        odd.confirmed.insert(version.generation);
        if odd.confirmed.len() > CONFIRMED_MAX {
            odd.confirmed.pop_first();
        }
    }

    /// The base in the record of a version that is to replace `replaced`, and since whose own `dirty_since` the key is
    /// dirty.
    pub(crate) fn base(&self, replaced: CleanVersion, dirty_since: Generation) -> Base {
        let is_doubtful = replaced.may_be_made_up();
        let mut odd = self.0.lock();
        if !replaced.is_odd() || odd.confirmed.contains(&replaced.generation) {
            return Base::Present(replaced.remote_etag);
        }
        let CleanVersion { generation, remote_etag: told, .. } = replaced;
        odd.keep(dirty_since, OddBase { generation, told: told.clone() });
        if is_doubtful { Base::Unknown } else { Base::Present(told) }
    }

    /// Gives a record the base that only this process knows.
    pub(crate) fn recall(&self, record: &mut ObjectRecord) {
        if record.base == Base::Unknown
            && let Some(base) = self.0.lock().bases.get(&record.dirty_since)
        {
            record.base = Base::Present(base.told.clone());
        }
    }

    /// The key of a record is now dirty since a later generation, and the base stays.
    pub(crate) fn carry(&self, before: Generation, dirty_since: Generation) {
        let mut odd = self.0.lock();
        if let Some(base) = odd.bases.remove(&before) {
            odd.keep(dirty_since, base);
        }
    }

    /// What was known of the under store is replaced, or other workers may change it from now on.
    pub(crate) fn forget_base(&self, dirty_since: Generation) {
        self.0.lock().bases.remove(&dirty_since);
    }

    /// Whether the under store has the version that a record names as its base, under another ETag than the answer to
    /// its upload gave. Its stamp shows the version, and its ETag that the bytes are those of that version, too.
    pub(crate) fn is_base(&self, record: &ObjectRecord, remote: &RemoteObject) -> bool {
        let (Base::Present(told), Some(stamp)) = (&record.base, &remote.stamp) else { return false };
        let md5 = remote.info.etag.md5();
        let is_that = |base: &OddBase| base.generation == stamp.generation && base.told == *told;
        let has_its_bytes = md5.is_some() && remote.remote_etag.md5() == md5;
        has_its_bytes && self.0.lock().bases.get(&record.dirty_since).is_some_and(is_that)
    }
}

#[cfg(test)]
mod tests {
    use forebay_catalog::records::{Holders, State};
    use forebay_types::ObjectInfo;
    use forebay_ufs::Stamp;

    use super::*;

    fn remote(etag: &ETag, remote_etag: &ETag, generation: u64) -> RemoteObject {
        let stamp = Some(Stamp { generation: Generation(generation) });
        RemoteObject { info: ObjectInfo::new(1, etag.clone(), 0), remote_etag: remote_etag.clone(), stamp }
    }

    fn version(generation: u64, etag: &ETag, remote_etag: &ETag) -> CleanVersion {
        CleanVersion { generation: Generation(generation), etag: etag.clone(), remote_etag: remote_etag.clone() }
    }

    fn record(dirty_since: u64, base: Base) -> ObjectRecord {
        ObjectRecord {
            state: State::Dirty,
            generation: Generation(1 << 40),
            dirty_since_ms: 0,
            dirty_since: Generation(dirty_since),
            size: 1,
            etag: ETag::from_md5([1; 16]),
            last_modified_ms: 0,
            storage_class: None,
            base,
            holders: Holders::default(),
        }
    }

    #[test]
    fn only_the_version_that_was_sent_with_its_bytes_is_the_base() {
        let (ours, other) = (ETag::from_md5([1; 16]), ETag::from_md5([3; 16]));
        for told in [ETag::from_md5([2; 16]), ETag::new("told")] {
            let odd = OddEtags::default();
            odd.base(version(7, &ours, &told), Generation(9));
            odd.base(version(8, &ours, &ours), Generation(10));
            let based = record(9, Base::Present(told.clone()));
            assert!(odd.is_base(&based, &remote(&ours, &ours, 7)));
            assert!(!odd.is_base(&based, &remote(&ours, &ours, 8)), "another version");
            assert!(!odd.is_base(&based, &remote(&ours, &other, 7)), "other bytes");
            assert!(!odd.is_base(&record(9, Base::Present(other.clone())), &remote(&ours, &ours, 7)), "another base");
            assert!(!odd.is_base(&record(10, Base::Present(told)), &remote(&ours, &ours, 7)), "of another key");
            assert!(!odd.is_base(&record(9, Base::Absent), &remote(&ours, &ours, 7)));
        }
    }

    #[test]
    fn a_record_has_no_base_that_may_be_made_up() {
        let (ours, told) = (ETag::from_md5([1; 16]), ETag::from_md5([2; 16]));
        let odd = OddEtags::default();
        // Of several parts, and of an under store whose ETags are no MD5s.
        for sure in [ours.clone(), ETag::from_parts([2; 16], 3), ETag::new("told")] {
            assert_eq!(odd.base(version(2, &ours, &sure), Generation(8)), Base::Present(sure));
        }
        assert_eq!(odd.base(version(1, &ours, &told), Generation(9)), Base::Unknown);
        let recalled = |dirty_since, base| {
            let mut record = record(dirty_since, base);
            odd.recall(&mut record);
            record.base
        };
        let known = Base::Present(told.clone());
        assert_eq!(recalled(9, Base::Unknown), known);
        assert_eq!(recalled(9, Base::Absent), Base::Absent);
        assert_eq!(recalled(10, Base::Unknown), Base::Unknown);
        odd.carry(Generation(9), Generation(10));
        assert_eq!((recalled(9, Base::Unknown), recalled(10, Base::Unknown)), (Base::Unknown, known.clone()));
        odd.forget_base(Generation(10));
        assert_eq!(recalled(10, Base::Unknown), Base::Unknown);
        odd.confirm(&version(1, &ours, &told));
        assert_eq!(odd.base(version(1, &ours, &told), Generation(11)), known);
    }

    /// Whatever is forgotten, no ETag that may be made up counts as sure.
    #[test]
    fn doubt_is_not_forgotten() {
        let (ours, told) = (ETag::from_md5([1; 16]), ETag::from_md5([2; 16]));
        let odd = OddEtags::default();
        let (bases, confirmed) = (BASES_MAX as u64, CONFIRMED_MAX as u64);
        for number in 0..2 * bases {
            assert_eq!(odd.base(version(number, &ours, &told), Generation(number)), Base::Unknown);
        }
        (0..2 * confirmed).for_each(|number| odd.confirm(&version(number, &ours, &told)));
        assert_eq!(odd.0.lock().bases.len(), BASES_MAX);
        assert_eq!(odd.0.lock().confirmed.len(), CONFIRMED_MAX);
        assert_eq!(odd.base(version(0, &ours, &told), Generation(1 << 30)), Base::Unknown);
        let last = version(2 * confirmed - 1, &ours, &told);
        assert_eq!(odd.base(last, Generation(1 << 30)), Base::Present(told));
    }
}
