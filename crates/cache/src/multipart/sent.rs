//! Conditional completions that were sent to the under store, and whose answer was lost. A repeated one would fail
//! because of its own object.

use forebay_catalog::records::UploadRecord;
use forebay_catalog::{Check, Transaction};
use forebay_store::ValueWrite;
use forebay_types::{Generation, ObjectInfo};
use forebay_ufs::{ErrorKind as UfsKind, RemoteObject};

use crate::worker::Worker;
use crate::write::change::{end_intent, unnoted};
use crate::write::put::Pending;
use crate::{Mount, Result, Written};

impl Worker {
    /// Records the generation that a completion is about to send. `end` is the end of its upload, which follows when
    /// the under store has the object.
    pub(crate) async fn note_sent(&self, end: &mut Transaction, generation: Generation) -> Result<()> {
        let [ValueWrite { key, .. }] = end.writes.as_slice() else { return Ok(()) };
        // Without the upload, the end fails.
        let Some(found) = self.catalog.get(key).await? else { return Ok(()) };
        let open = UploadRecord { sent: Some(generation), ..UploadRecord::decode(&found.value)? };
        let writes = vec![ValueWrite { key: key.clone(), value: Some(open.encode()) }];
        let transaction = Transaction { checks: end.checks.clone(), writes, ..Transaction::default() };
        let version = self.catalog.commit(transaction).await?;
        end.checks = vec![Check { key: key.clone(), version: Some(version) }];
        Ok(())
    }

    /// Ends the upload if the under store has what an earlier completion has sent as the generation `sent`. `None` if
    /// it does not.
    ///
    /// # Errors
    /// `SlowDown` while the earlier request may still land.
    pub(super) async fn completed_before(
        &self,
        pending: &mut Pending,
        sent: Generation,
        mount: &Mount,
    ) -> Result<Option<Written>> {
        let path = &pending.path;
        let _write = self.buckets.begin_write(&path.bucket).await?;
        let _upload = self.home.upload_locks.lock(path).await?;
        let _lock = self.lock_key(path).await?;
        let current = self.current(path).await?;
        // It was written again since.
        if current.record.is_some() {
            return Ok(None);
        }
        // First: until then, what was sent may land after the look.
        self.check_settled(path)?;
        let remote = match mount.foreground.head(&path.key).await {
            Ok(remote) => remote,
            Err(error) if error.kind == UfsKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let is_sent = match &remote.stamp {
            Some(stamp) => stamp.generation == sent,
            None => self.may_lack_stamp(pending, sent, mount, &remote),
        };
        let info = remote.info;
        if !is_sent || (info.size, &info.etag) != (pending.info.size, &pending.info.etag) {
            return Ok(None);
        }
        mount.foreground.make_durable(&path.key).await?;
        let mut transaction = std::mem::take(&mut pending.with);
        transaction.writes.push(end_intent(path));
        self.change_record(path, &current, None, transaction).await.map_err(|error| unnoted(path, error))?;
        let checksums = pending.info.checksums.clone();
        Ok(Some(Written { etag: info.etag, last_modified_ms: info.last_modified_ms, size: info.size, checksums }))
    }

    /// Whether an object without a stamp may be what was sent: the metadata has no room for a stamp, and is the same.
    /// Where the conditions hold with that object, the completion can simply be sent again.
    fn may_lack_stamp(&self, pending: &Pending, sent: Generation, mount: &Mount, remote: &RemoteObject) -> bool {
        // The stamp has the time of the write, which the description of the new object lacks until then.
        let info = ObjectInfo { last_modified_ms: self.env.clock.unix_ms(), ..pending.info.clone() };
        let meets_conditions = pending.conditions.check_write(Some(&remote.info), Some(&remote.remote_etag)).is_ok();
        !meets_conditions
            && remote.info.user == info.user
            && !mount.foreground.has_room_for_stamp(&pending.path.key, sent, &info)
    }
}
