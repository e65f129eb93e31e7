//! Deletes.

use std::sync::Arc;

use forebay_catalog::records::{Base, Holders, ObjectRecord, State};
use forebay_catalog::{LocalChange, Transaction};
use forebay_types::{Durability, ETag, Generation, ObjectPath, PathPolicy, WriteMode};
use forebay_ufs::{Condition, ErrorKind as UfsKind};
use futures::FutureExt;

use crate::list::positions;
use crate::persist::{Entry, Left, can_have};
use crate::space::tombstone_bytes;
use crate::worker::{Current, Worker};
use crate::write::change::{end_intent, unnoted};
use crate::write::put::Checked;
use crate::{Conditions, Error, Mount, Result};

/// Whether a delete could be acknowledged before the under store has it.
enum DeletedHere {
    Done,
    /// There is no memory for another tombstone.
    NoRoom,
}

impl Worker {
    /// Deletes an object whose home is this worker, even if the caller goes away.
    pub(crate) async fn delete_to_the_end(self: &Arc<Self>, path: &ObjectPath, conditions: &Conditions) -> Result<()> {
        let (worker, path, conditions) = (Arc::clone(self), path.clone(), conditions.clone());
        self.unless_stalled(async move { worker.delete(&path, &conditions).await }).await
    }

    pub(crate) async fn delete(&self, path: &ObjectPath, conditions: &Conditions) -> Result<()> {
        let policy = self.policies.resolve(path);
        let mount = self.buckets.mount_for_write(path).await?;
        let _write = self.buckets.begin_write(&path.bucket).await?;
        match policy.write_mode {
            WriteMode::ReadOnly => Err(Error::read_only(path)),
            WriteMode::WriteBack | WriteMode::Transient => {
                match self.delete_back(path, &policy, &mount, conditions).await? {
                    DeletedHere::Done => Ok(()),
                    // Boxed: this is rare, and would make the future of every delete larger.
                    DeletedHere::NoRoom => self.delete_through(path, &policy, &mount, conditions).boxed().await,
                }
            }
            WriteMode::WriteThrough | WriteMode::NoCache => {
                self.delete_through(path, &policy, &mount, conditions).await
            }
        }
    }

    /// Acknowledged when a tombstone is durable here. The under store follows later. Deletes need no pinned space, and
    /// those of keys that nobody knows need memory. When there is none, the caller waits for the under store.
    async fn delete_back(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        conditions: &Conditions,
    ) -> Result<DeletedHere> {
        let asked = self.ask_before_lock(path, mount, conditions).await?;
        let _lock = self.lock_key(path).await?;
        let current = self.current(path).await?;
        let checked = self.check_write(path, policy, mount, conditions, asked).await?;
        let local = LocalChange { forget: vec![Self::store_key(path)], ..LocalChange::default() };
        let transaction = Transaction { local, durability: policy.durability, ..Transaction::default() };
        if let Some(tombstone) = current.record.as_ref().filter(|record| record.state == State::Tombstone) {
            // The first delete may have been acknowledged before anything was synced.
            if policy.durability == Durability::Fsync && self.policies.may_hold_unsynced(path) {
                self.change_record(path, &current, Some(tombstone), transaction).await?;
            }
            return Ok(DeletedHere::Done);
        }
        let generation = self.next_generation();
        let base = self.base(path, policy, &current, checked, generation);
        let room = if self.needs_room(path, &current, &base)? {
            match self.space.reserve_record(&self.store, &path.bucket, tombstone_bytes(path)) {
                None => return Ok(DeletedHere::NoRoom),
                room => room,
            }
        } else {
            None
        };
        let now_ms = self.home.write_times.next();
        let (dirty_since, dirty_since_ms) = current.dirty_since((generation, now_ms));
        let tombstone = tombstone(generation, now_ms, base, dirty_since, dirty_since_ms);
        if conditions.needs_current() {
            self.home.conditional_writes.note(&tombstone);
        }
        if let Some(room) = room {
            self.space.add_delete(path, room);
        }
        if let Err(error) = self.change_record(path, &current, Some(&tombstone), transaction).await {
            self.space.drop_delete(path);
            return Err(error);
        }
        self.home.queue.push(path.clone(), Entry::of(&tombstone));
        Ok(DeletedHere::Done)
    }

    /// Whether a tombstone replaces nothing. A client can delete any number of keys that never existed, so the memory
    /// for these has a limit. Of objects that are known there are only as many as were written.
    ///
    /// # Errors
    /// `SlowDown` when the catalog is nearly full.
    fn needs_room(&self, path: &ObjectPath, current: &Current, base: &Base) -> Result<bool> {
        if current.record.is_some() {
            return Ok(false);
        }
        self.check_catalog(path)?;
        Ok(!matches!(base, Base::Present(_)) && self.store.peek(&Self::store_key(path)).is_none())
    }

    /// Acknowledged when the under store has deleted the object.
    async fn delete_through(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        conditions: &Conditions,
    ) -> Result<()> {
        let upload_guard = self.home.upload_locks.lock(path).await?;
        let (lock, current, left) = self.lock_when_persisted(path, &upload_guard).await?;
        if left == Left::Unreadable {
            drop(lock);
            let instead = async {
                match self.delete_back(path, policy, mount, conditions).await? {
                    DeletedHere::Done => self.persist_for_client(path, &upload_guard).await,
                    DeletedHere::NoRoom => Err(self.records_full(path)),
                }
            };
            return instead.boxed().await;
        }
        self.buckets.check_mark(&path.bucket, mount.foreground.as_ref(), true).await?;
        let Checked { condition, .. } = self.check_write(path, policy, mount, conditions, None).await?;
        self.check_settled(path)?;
        if let Condition::Absent = condition {
            self.home.positions.changed(path, || positions::Change::Deleted);
            return Ok(());
        }
        // Must precede `announce`, which drops the copy that answers this.
        let was_there = self.fresh_remote_etag(path, policy).is_some();
        let dropped = self.announce(path, &current, None).await?;
        if let Err(error) = self.permitted(mount.foreground.delete(&path.key, condition)).await {
            let has_no_such_names = error.kind == UfsKind::InvalidName
                && !was_there
                && !can_have(mount.foreground.as_ref(), path).await.unwrap_or(true);
            if !has_no_such_names {
                return Err(self.write_failed(path, error, dropped).await);
            }
        }
        self.home.fence.advance(path);
        self.home.positions.changed(path, || positions::Change::Deleted);
        self.drop_record(path, &current).await
    }

    /// Removes the record of a key that is deleted everywhere.
    async fn drop_record(&self, path: &ObjectPath, current: &Current) -> Result<()> {
        if current.record.is_none() {
            self.end_request(path).await;
            return Ok(());
        }
        let local = LocalChange { forget: vec![Self::store_key(path)], ..LocalChange::default() };
        let transaction = Transaction { writes: vec![end_intent(path)], local, ..Transaction::default() };
        self.change_record(path, current, None, transaction).await.map_err(|error| unnoted(path, error))
    }
}

fn tombstone(
    generation: Generation,
    now_ms: u64,
    base: Base,
    dirty_since: Generation,
    dirty_since_ms: u64,
) -> ObjectRecord {
    ObjectRecord {
        state: State::Tombstone,
        generation,
        dirty_since_ms,
        dirty_since,
        size: 0,
        etag: ETag::new(""),
        last_modified_ms: now_ms,
        storage_class: None,
        base,
        holders: Holders::default(),
    }
}
