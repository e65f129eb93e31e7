//! What requests to the under store have done, and what that means for a version that has come meanwhile.

use forebay_catalog::records::{Base, ObjectRecord, State};
use forebay_types::{ETag, ObjectInfo, ObjectPath};

use crate::metadata::{CleanVersion, decode_info};
use crate::worker::Worker;
use crate::{Error, Mount};

/// The result of a successful request to the under store.
pub(super) enum Done {
    /// The under store holds this generation with this ETag.
    Stored(ETag),
    Deleted,
    /// Somebody else has changed the object since its state was known. Our version stays here and is not uploaded.
    Conflict,
    /// The under store holds a newer write of ours, whose record here is lost: see [`crate::read::stale_records`].
    Superseded,
}

impl Worker {
    /// The record of a key that was overwritten while an earlier generation, `sent`, was in flight. The caller holds
    /// the key's lock.
    pub(super) async fn rebased(
        &self,
        path: &ObjectPath,
        now: &ObjectRecord,
        done: Done,
        sent: &ObjectRecord,
        mount: &Mount,
    ) -> ObjectRecord {
        let (odd_etags, conditional_writes) = (&self.home.odd_etags, &self.home.conditional_writes);
        let may_have_condition = conditional_writes.may_have(now);
        if !matches!(done, Done::Conflict) {
            odd_etags.forget_base(now.generation);
        }
        let may_lack_stamp = matches!(done, Done::Stored(_) | Done::Deleted) && !may_have_condition;
        let lacks_stamp = may_lack_stamp && self.lacks_room_for_stamp(path, now, mount).await;
        let base = match done {
            // After a crash, nothing would tell what an upload has left there from what others have written.
            _ if lacks_stamp => Base::Unknown,
            Done::Stored(remote_etag) => {
                let stored = CleanVersion { generation: sent.generation, etag: sent.etag.clone(), remote_etag };
                odd_etags.base(stored, now.generation)
            }
            Done::Deleted => Base::Absent,
            // Who wrote this version did not know of theirs either.
            Done::Conflict => {
                odd_etags.carry(now.dirty_since, now.generation);
                now.base.clone()
            }
            Done::Superseded => Base::Unknown,
        };
        let rebased =
            ObjectRecord { base, dirty_since: now.generation, dirty_since_ms: now.last_modified_ms, ..now.clone() };
        if may_have_condition {
            conditional_writes.note(&rebased);
        }
        rebased
    }

    /// Whether the upload of a version will carry no stamp. A version whose description cannot be read is not uploaded.
    async fn lacks_room_for_stamp(&self, path: &ObjectPath, now: &ObjectRecord, mount: &Mount) -> bool {
        if now.state != State::Dirty {
            return false;
        }
        let has_room = |info: &ObjectInfo| mount.background.has_room_for_stamp(&path.key, now.generation, info);
        if let Some(known) = self.memory.peek(&self.policies.resolve(path), now.generation) {
            return !has_room(known.info.as_ref());
        }
        let object = self.store.peek(&Self::store_key(path));
        let Some(object) = object.filter(|object| object.generation() == now.generation) else { return false };
        let info = object.metadata().await.map_err(Error::from).and_then(|metadata| decode_info(&metadata));
        info.is_ok_and(|info| !has_room(&info))
    }
}
