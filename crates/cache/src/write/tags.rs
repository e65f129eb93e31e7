//! Object tags.

use std::sync::Arc;

use forebay_catalog::records::{ObjectRecord, State};
use forebay_catalog::{LocalChange, Transaction};
use forebay_store::{Class, Object, Writer};
use forebay_types::limits::{ATTRIBUTES_BYTES_MAX, TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX, TAGS_MAX};
use forebay_types::{ObjectInfo, ObjectPath, PathPolicy, Tags, WriteMode, header_bytes};

use crate::copies::{CopyId, Replicated};
use crate::metadata::new_object;
use crate::persist::Entry;
use crate::read::memory_tier::MemoryObject;
use crate::read::remote::{Purpose, RemoteState};
use crate::space::Reservation;
use crate::worker::{Current, Located, Worker};
use crate::{Error, ErrorKind, Result};

impl Worker {
    pub(crate) async fn tags(&self, path: &ObjectPath) -> Result<Tags> {
        let policy = self.policies.resolve(path);
        loop {
            match self.locate(path).await? {
                Located::Here { object, .. } => return Ok(self.info_of(&policy, &object).await?.tags.clone()),
                Located::Deleted => return Err(Error::not_found(path)),
                Located::Elsewhere { .. } => {
                    let mount = self.buckets.mount(&path.bucket).await?;
                    let tags = mount.foreground.tags(&path.key).await.inspect(|_| self.home.negative_cache.end(path));
                    if !self.is_here(path).await? {
                        return tags.map_err(|error| Error::from(error).of_read());
                    }
                }
            }
        }
    }

    /// If the under store does not have the object yet, the tags are uploaded with it. Otherwise they are set there
    /// now.
    pub(crate) async fn set_tags(&self, path: &ObjectPath, tags: Tags) -> Result<()> {
        check(&tags)?;
        let policy = self.policies.resolve(path);
        if policy.write_mode == WriteMode::ReadOnly {
            return Err(Error::read_only(path));
        }
        loop {
            // Before the locks: it may have to wait for room. Held until the commit.
            let room = self.room_for_tags(path, &tags).await?;
            if self.retag_here(path, &tags).await? {
                return Ok(());
            }
            // Nothing is written here, and the under store may be slow.
            drop(room);
            if self.retag_there(path, &policy, &tags).await? {
                return Ok(());
            }
        }
    }

    /// Sets the tags in the under store, unless a newer version is here that it does not have yet. Returns whether it
    /// did.
    async fn retag_there(&self, path: &ObjectPath, policy: &PathPolicy, tags: &Tags) -> Result<bool> {
        // Only a request to the under store waits for pending uploads of the key.
        let _upload = self.home.upload_locks.lock(path).await?;
        let _lock = self.lock_key(path).await?;
        let current = self.current(path).await?;
        match self.locate(path).await? {
            Located::Here { .. } => Ok(false),
            Located::Deleted => Err(Error::not_found(path)),
            Located::Elsewhere { copy } => {
                let mount = self.buckets.mount(&path.bucket).await?;
                if let RemoteState::Absent = self.remote_state(path, policy, &mount, copy, Purpose::Read).await? {
                    return Err(Error::not_found(path));
                }
                self.buckets.check_mark(&path.bucket, mount.foreground.as_ref(), false).await?;
                self.check_settled(path)?;
                let dropped = self.announce(path, &current, None).await?;
                if let Err(error) = self.permitted(mount.foreground.set_tags(&path.key, tags)).await {
                    return Err(self.write_failed(path, error, dropped).await);
                }
                self.home.fence.advance(path);
                self.end_request(path).await;
                Ok(true)
            }
        }
    }

    /// Room for one more record of an object that the under store does not have. The bytes of a large object are pinned
    /// already, and stay where they are. `None` when the object is not here.
    ///
    /// # Errors
    /// As for a write: `SlowDown` when pinned data fills its share or the bucket's part of it, or when the disks are
    /// full.
    async fn room_for_tags(&self, path: &ObjectPath, tags: &Tags) -> Result<Option<(Reservation, Writer)>> {
        let object = self.store.peek(&Self::store_key(path)).filter(Object::is_pinned);
        // A copy for another worker is pinned, too.
        let Some(object) = object.filter(|_| self.home.locks.has(path)) else { return Ok(None) };
        let added: usize = tags.iter().map(|(key, value)| key.len() + value.len()).sum();
        let bytes = object.record_bytes() + added as u64;
        let reservation = self.space.reserve(&self.store, &path.bucket, bytes);
        let reservation = reservation.ok_or_else(|| self.pinned_full(path, bytes))?;
        Ok(Some((reservation, self.store.writer(Class::Durable, bytes).await?)))
    }

    /// Sets the tags if the under store does not have the object yet. Returns whether it did.
    async fn retag_here(&self, path: &ObjectPath, tags: &Tags) -> Result<bool> {
        let _lock = self.lock_key(path).await?;
        let current = self.current(path).await?;
        let Located::Here { record, object } = self.locate(path).await? else { return Ok(false) };
        self.retag(path, &current, record, &object, tags.clone()).await?;
        Ok(true)
    }

    /// Commits a new generation with the same bytes and time.
    async fn retag(
        &self,
        path: &ObjectPath,
        current: &Current,
        record: ObjectRecord,
        object: &Object,
        tags: Tags,
    ) -> Result<()> {
        let policy = self.policies.resolve(path);
        let info = ObjectInfo { tags, ..self.info_of(&policy, object).await?.as_ref().clone() };
        if record.state == State::Dirty && header_bytes(&info.headers, &info.user, &info.tags) > ATTRIBUTES_BYTES_MAX {
            let context = "this many tags are sent in a request of their own, once the under store has the object";
            return Err(Error::new(ErrorKind::SlowDown, context));
        }
        let generation = self.next_generation();
        let new = new_object(path, &policy, generation, &info, true);
        let staged = self.store.concatenate(std::slice::from_ref(object), new).await?;
        // Whatever the mode is by now: the under store does not have the object.
        let policy = PathPolicy { write_mode: WriteMode::WriteBack, ..policy };
        let replicated = self.replicate(path, &policy, staged, vec![CopyId::of(object)]).await?;
        // To the end of the commit.
        let Replicated { staged, holders, undecided: _undecided } = replicated;
        let after = ObjectRecord { generation, holders, ..record };
        let local = LocalChange { publish: vec![staged], ..LocalChange::default() };
        let transaction = Transaction { local, durability: policy.durability, ..Transaction::default() };
        self.change_record(path, current, Some(&after), transaction).await?;
        self.adjust_group(path, &policy, generation);
        self.memory.insert(&policy, generation, MemoryObject::new(Arc::new(info), None));
        if after.state == State::Dirty {
            self.home.queue.push(path.clone(), Entry::of(&after));
        }
        Ok(())
    }
}

/// S3's limits on tags.
fn check(tags: &Tags) -> Result<()> {
    if tags.len() > TAGS_MAX {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("an object has at most {TAGS_MAX} tags")));
    }
    let too_long = |(key, value): (&String, &String)| {
        key.is_empty() || key.chars().count() > TAG_KEY_CHARS_MAX || value.chars().count() > TAG_VALUE_CHARS_MAX
    };
    match tags.iter().find(|(key, value)| too_long((key, value))) {
        Some((key, _)) => Err(Error::new(ErrorKind::InvalidArgument, format!("the tag {key:?} is empty or too long"))),
        None => Ok(()),
    }
}
