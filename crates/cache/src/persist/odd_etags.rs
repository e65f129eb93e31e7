//! ETags that answers to uploads gave for bytes with another MD5. In most under stores, the ETag of an object in one
//! piece is that MD5, so a gateway may have made the answer up. The next write would then have a condition that can
//! never hold.
//!
//! Other ETags of the same form are true, such as those of S3 for objects with a key of KMS. While this process runs, a
//! write has such an ETag as its base, and the stamp shows whether the answer was made up. The record of the write does
//! not have it, because nothing would show that after a restart.

use std::collections::BTreeMap;

use forebay_catalog::records::{Base, ObjectRecord};
use forebay_env::sync::Mutex;
use forebay_types::{ETag, Generation};
use forebay_ufs::RemoteObject;

/// ETags that are remembered, at some 100 bytes each. Those of the lowest generations go first.
const ETAGS_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct OddEtags(Mutex<Odd>);

#[derive(Default)]
struct Odd {
    /// What answers gave, by the generation that was sent.
    told: BTreeMap<Generation, ETag>,
    /// Bases that records do not have, by the generation since which the key is dirty.
    bases: BTreeMap<Generation, ETag>,
}

impl Odd {
    /// Whether an answer may be made up. An ETag of another form is that of an object in several parts, or of an under
    /// store whose ETags are no MD5s.
    fn is_doubtful(&self, generation: Generation) -> bool {
        self.told.get(&generation).is_some_and(|told| told.md5().is_some())
    }
}

fn keep(etags: &mut BTreeMap<Generation, ETag>, generation: Generation, etag: ETag) {
    etags.insert(generation, etag);
    if etags.len() > ETAGS_MAX {
        etags.pop_first();
    }
}

impl OddEtags {
    /// The answer to the upload of a generation with this ETag gave `told`.
    pub(crate) fn note(&self, generation: Generation, etag: &ETag, told: &ETag) {
        if etag.md5().is_none() || etag.md5() == told.md5() {
            return;
        }
        keep(&mut self.0.lock().told, generation, told.clone());
    }

    /// The under store shows the object of this generation with the ETag that the answer to its upload gave.
    pub(crate) fn confirm(&self, generation: Generation) {
        self.0.lock().told.remove(&generation);
    }

    /// Whether the ETag of this generation may be made up, so that a later process must not know of it.
    pub(crate) fn is_doubtful(&self, generation: Generation) -> bool {
        self.0.lock().is_doubtful(generation)
    }

    /// The base in the record of a version that is to replace `replaced`, which was uploaded with this ETag, and since
    /// whose own `dirty_since` the key is dirty.
    pub(crate) fn base(&self, replaced: Generation, etag: ETag, dirty_since: Generation) -> Base {
        let mut odd = self.0.lock();
        if !odd.is_doubtful(replaced) {
            return Base::Present(etag);
        }
        keep(&mut odd.bases, dirty_since, etag);
        Base::Unknown
    }

    /// Gives a record the base that only this process knows.
    pub(crate) fn recall(&self, record: &mut ObjectRecord) {
        if record.base == Base::Unknown
            && let Some(told) = self.0.lock().bases.get(&record.dirty_since)
        {
            record.base = Base::Present(told.clone());
        }
    }

    /// The key of a record is now dirty since a later generation, and the base stays.
    pub(crate) fn carry(&self, before: Generation, dirty_since: Generation) {
        let mut odd = self.0.lock();
        if let Some(told) = odd.bases.remove(&before) {
            keep(&mut odd.bases, dirty_since, told);
        }
    }

    /// What the under store holds is unknown from now on.
    pub(crate) fn forget_base(&self, dirty_since: Generation) {
        self.0.lock().bases.remove(&dirty_since);
    }

    /// Other workers may change the keys from now on.
    pub(crate) fn forget_bases(&self) {
        self.0.lock().bases.clear();
    }

    /// Whether the under store has the version that a base names, under another ETag than the answer to its upload
    /// gave. Its stamp shows the version, and its ETag that the bytes are those of that version, too.
    pub(crate) fn is_base(&self, base: &Base, remote: &RemoteObject) -> bool {
        let (Base::Present(told), Some(stamp)) = (base, &remote.stamp) else { return false };
        let md5 = remote.info.etag.md5();
        md5.is_some() && remote.remote_etag.md5() == md5 && self.0.lock().told.get(&stamp.generation) == Some(told)
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

    #[test]
    fn only_the_version_that_was_sent_with_its_bytes_is_the_base() {
        let (ours, told, other) = (ETag::from_md5([1; 16]), ETag::from_md5([2; 16]), ETag::from_md5([3; 16]));
        let odd = OddEtags::default();
        odd.note(Generation(7), &ours, &told);
        odd.note(Generation(8), &ours, &ours);
        let base = Base::Present(told.clone());
        assert!(odd.is_base(&base, &remote(&ours, &ours, 7)));
        assert!(!odd.is_base(&base, &remote(&ours, &ours, 8)), "another version");
        assert!(!odd.is_base(&base, &remote(&ours, &other, 7)), "other bytes");
        assert!(!odd.is_base(&Base::Present(other), &remote(&ours, &ours, 7)), "another base");
        assert!(!odd.is_base(&Base::Absent, &remote(&ours, &ours, 7)));
    }

    #[test]
    fn a_record_has_no_base_that_may_be_made_up() {
        let (ours, told) = (ETag::from_md5([1; 16]), ETag::from_md5([2; 16]));
        let odd = OddEtags::default();
        odd.note(Generation(1), &ours, &told);
        odd.note(Generation(2), &ours, &ours);
        // Of several parts.
        odd.note(Generation(3), &ours, &ETag::from_parts([2; 16], 3));
        assert_eq!([1, 2, 3, 4].map(|number| odd.is_doubtful(Generation(number))), [true, false, false, false]);
        assert_eq!(odd.base(Generation(2), ours.clone(), Generation(9)), Base::Present(ours.clone()));
        assert_eq!(odd.base(Generation(1), told.clone(), Generation(9)), Base::Unknown);
        let recalled = |dirty_since, base| {
            let mut record = ObjectRecord {
                state: State::Dirty,
                generation: Generation(20),
                dirty_since_ms: 0,
                dirty_since: Generation(dirty_since),
                size: 1,
                etag: ours.clone(),
                last_modified_ms: 0,
                storage_class: None,
                base,
                holders: Holders::default(),
            };
            odd.recall(&mut record);
            record.base
        };
        let known = Base::Present(told);
        assert_eq!(recalled(9, Base::Unknown), known);
        assert_eq!(recalled(9, Base::Absent), Base::Absent);
        assert_eq!(recalled(10, Base::Unknown), Base::Unknown);
        odd.carry(Generation(9), Generation(10));
        assert_eq!((recalled(9, Base::Unknown), recalled(10, Base::Unknown)), (Base::Unknown, known));
        odd.forget_base(Generation(10));
        assert_eq!(recalled(10, Base::Unknown), Base::Unknown);
        odd.confirm(Generation(1));
        assert!(!odd.is_doubtful(Generation(1)));
    }

    #[test]
    fn old_ones_are_forgotten() {
        let odd = OddEtags::default();
        let (ours, told) = (ETag::from_md5([1; 16]), ETag::new("told"));
        (0..2 * ETAGS_MAX as u64).for_each(|number| odd.note(Generation(number), &ours, &told));
        assert_eq!(odd.0.lock().told.len(), ETAGS_MAX);
        assert!(odd.is_base(&Base::Present(told), &remote(&ours, &ours, 2 * ETAGS_MAX as u64 - 1)));
    }
}
