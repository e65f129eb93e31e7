//! ETags that answers to uploads gave for bytes with another MD5. In most under stores, the ETag of an object in one
//! piece is that MD5, so a gateway may have made the answer up. The next write would then have a condition that can
//! never hold.

use std::collections::BTreeMap;

use forebay_catalog::records::Base;
use forebay_env::sync::Mutex;
use forebay_types::{ETag, Generation};
use forebay_ufs::RemoteObject;

/// ETags that are remembered, at some 100 bytes each. Those of the lowest generations go first.
const ETAGS_MAX: usize = 10_000;

/// By the generation that was sent.
#[derive(Default)]
pub(crate) struct OddEtags(Mutex<BTreeMap<Generation, ETag>>);

impl OddEtags {
    /// The answer to the upload of a generation with this ETag gave `told`.
    pub(crate) fn note(&self, generation: Generation, etag: &ETag, told: &ETag) {
        if etag.md5().is_none() || etag.md5() == told.md5() {
            return;
        }
        let mut odd = self.0.lock();
        odd.insert(generation, told.clone());
        if odd.len() > ETAGS_MAX {
            odd.pop_first();
        }
    }

    /// Whether the under store has the version that a base names, under another ETag than the answer to its upload
    /// gave. Its stamp shows the version, and its ETag that the bytes are those of that version, too.
    pub(crate) fn is_base(&self, base: &Base, remote: &RemoteObject) -> bool {
        let (Base::Present(told), Some(stamp)) = (base, &remote.stamp) else { return false };
        let md5 = remote.info.etag.md5();
        md5.is_some() && remote.remote_etag.md5() == md5 && self.0.lock().get(&stamp.generation) == Some(told)
    }
}

#[cfg(test)]
mod tests {
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
    fn old_ones_are_forgotten() {
        let odd = OddEtags::default();
        let (ours, told) = (ETag::from_md5([1; 16]), ETag::new("told"));
        (0..2 * ETAGS_MAX as u64).for_each(|number| odd.note(Generation(number), &ours, &told));
        assert_eq!(odd.0.lock().len(), ETAGS_MAX);
        assert!(odd.is_base(&Base::Present(told), &remote(&ours, &ours, 2 * ETAGS_MAX as u64 - 1)));
    }
}
