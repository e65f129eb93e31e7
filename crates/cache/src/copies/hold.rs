//! Copies of keys that are at home elsewhere. A copy of a write is *prepared*: it is on stable storage, and nobody sees
//! it. From time to time this worker asks the home of the key for the fate of the write. Then it *shows* the copy,
//! which keeps it pinned, and drops it when no record names it any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::SlotSet;
use forebay_catalog::records::{self, Scope, parse_object_key};
use forebay_store::{Class, Commit, NewObject, Object};
use forebay_types::{ByteRange, Durability, Generation, ObjectPath};
use forebay_ufs::UploadSource;
use futures::{StreamExt, TryStreamExt};

use super::CopyId;
use super::append::append_all;
use super::held::{PAUSES, UNDECIDED_PAUSE_MAX};
use crate::persist::StoreSource;
use crate::policies::groups::group_of;
use crate::space::Reservation;
use crate::worker::Worker;
use crate::{Error, ErrorKind, Fate, HeldBytes, NewCopy, Result};

/// The most copies that one question is about.
const ASKED_MAX: usize = 1000;

impl Worker {
    /// Takes a copy of a generation that its home is about to commit. When this returns `true`, it is on stable
    /// storage. `false`: the copy is to be made of pieces that are not here.
    pub(crate) async fn take_copy(&self, copy: NewCopy) -> Result<bool> {
        let NewCopy { id, path, pieces, bytes } = copy;
        let CopyId { key, generation } = id.clone();
        let HeldBytes { size, metadata, annex, stream } = bytes;
        self.check_disks()?;
        let check_home = || match self.is_at_home(&path) {
            true => Err(Error::new(ErrorKind::Unavailable, format!("{path} is at home here"))),
            false => Ok(()),
        };
        check_home()?;
        let group = if parse_object_key(&key).is_some() { group_of(&self.policies.resolve(&path)) } else { 0 };
        let object = NewObject { key, generation, metadata, annex, pinned: true, group, size };
        let (staged, reservation) = if pieces.is_empty() {
            let reservation = self.room_for_copy(&path, size)?;
            let mut writer = self.store.writer(Class::Durable, size).await?;
            append_all(&mut writer, stream, size).await?;
            (writer.finish(object).await?, Some(reservation))
        } else {
            let pieces = pieces.iter().map(|piece| self.intact_copy_of(piece));
            let Some(pieces) = pieces.collect::<Option<Vec<_>>>() else { return Ok(false) };
            if pieces.iter().map(Object::size).sum::<u64>() != size {
                return Ok(false);
            }
            (self.store.concatenate(&pieces, object).await?, None)
        };
        if self.held.damaged.has(&id) {
            self.forget_damaged_copy(&id).await?;
        }
        let _unshown = self.held.lock_key(&id).await;
        // The key may have come home while the bytes came.
        check_home()?;
        let staged = self.store.prepare(staged).await?;
        self.held.add(staged, reservation);
        Ok(true)
    }

    /// # Errors
    /// `SlowDown` and `InsufficientStorage` when there is no room.
    pub(crate) fn room_for_copy(&self, path: &ObjectPath, bytes: u64) -> Result<Reservation> {
        self.space.reserve(&self.store, &path.bucket, bytes).ok_or_else(|| {
            self.held.hurry();
            self.pinned_full(path, bytes)
        })
    }

    /// A whole copy, also when nobody sees it yet.
    pub(super) fn copy_of(&self, id: &CopyId) -> Option<Object> {
        self.held.object(id).or_else(|| self.held_object(&id.key, id.generation))
    }

    /// The same, unless somebody has found it damaged.
    pub(super) fn intact_copy_of(&self, id: &CopyId) -> Option<Object> {
        self.copy_of(id).filter(|_| !self.held.damaged.has(id))
    }

    pub(super) fn held_object(&self, key: &[u8], generation: Generation) -> Option<Object> {
        let object = self.store.peek(key).filter(|object| object.generation() == generation)?;
        object.is_whole().then_some(object)
    }

    /// What another worker may fetch.
    pub(crate) async fn held(&self, key: &[u8], generation: Generation) -> Result<Option<HeldBytes>> {
        let id = CopyId { key: Bytes::copy_from_slice(key), generation };
        let Some(object) = self.copy_of(&id) else {
            // It may have bytes of which it has not heard yet that the catalog names them.
            return match self.is_cut_off() {
                true => Err(Error::new(ErrorKind::Unavailable, "this worker is cut off from the engine")),
                false => Ok(None),
            };
        };
        let (size, annex) = (object.size(), Bytes::copy_from_slice(object.annex()));
        let metadata = object.metadata().await?;
        let stream = StoreSource::new(object).stream(ByteRange::of_size(size)).map_err(Error::from).boxed();
        Ok(Some(HeldBytes { size, metadata, annex, stream }))
    }

    /// Asks for copies when they are due, until the worker stops. First for those that an earlier process has left.
    pub(crate) async fn copies_loop(self: Arc<Self>) {
        self.held_elsewhere().into_iter().for_each(|id| self.held.ask_later(id, 0));
        loop {
            let due = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.held.hurried.notified() => {
                    if let Err(error) = self.sweep_held().await {
                        tracing::warn!(%error, "replicas that no record needs could not be dropped: they keep their space until the next try");
                    }
                    continue;
                }
                due = self.held.due() => due,
            };
            // A copy that is due in two series continues with the shorter pause.
            let pauses: BTreeMap<CopyId, usize> = due.into_iter().rev().collect();
            let fates = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                fates = self.fates_of(pauses.keys().cloned().collect()) => fates,
            };
            let mut problem = None;
            for (id, fate) in fates {
                let was_prepared = self.held.is_prepared(&id);
                if let Err(error) = self.follow_fate(&id, fate).await {
                    problem = Some(error);
                }
                let pause = pauses[&id] + 1;
                if self.held.is_prepared(&id) {
                    self.held.ask_later(id, pause.min(UNDECIDED_PAUSE_MAX));
                } else if was_prepared {
                    self.held.ask_later(id, 1);
                } else if pause < PAUSES.len() && self.is_pinned(&id) {
                    self.held.ask_later(id, pause);
                }
            }
            // Once for all of them: a disk that takes no writes fails each.
            if let Some(error) = problem {
                tracing::warn!(%error, "replicas held for other workers could not be published or dropped: they stay until the next try");
            }
        }
    }

    /// The fates of these copies, as the homes of their keys report them.
    async fn fates_of(&self, copies: Vec<CopyId>) -> Vec<(CopyId, Fate)> {
        let (Some(others), Some(slots)) = (&self.others, self.catalog.slots()) else { return Vec::new() };
        let mut by_home: BTreeMap<Option<String>, Vec<CopyId>> = BTreeMap::new();
        let mut fates = Vec::with_capacity(copies.len());
        for id in copies {
            let Some(hash) = id.hash() else { continue };
            if slots.has_hash(hash) {
                by_home.entry(None).or_default().push(id);
            } else if let Some(home) = others.home(hash) {
                by_home.entry(Some(home)).or_default().push(id);
            } else {
                fates.push((id, Fate::Undecided));
            }
        }
        for (home, copies) in by_home {
            for copies in copies.chunks(ASKED_MAX) {
                let told = match &home {
                    None => Ok(self.fates(copies).await),
                    Some(home) => others.fates(home, copies).await,
                };
                let told = told.ok().filter(|told| told.len() == copies.len());
                let told = told.unwrap_or_else(|| vec![Fate::Undecided; copies.len()]);
                fates.extend(copies.iter().cloned().zip(told));
            }
        }
        fates
    }

    /// # Errors
    /// Those of the store. The copy stays then.
    async fn follow_fate(&self, id: &CopyId, fate: Fate) -> Result<()> {
        let _showing = self.held.showing.lock().await;
        let is_home = id.hash().is_some_and(|hash| self.is_home_of(hash));
        match fate {
            Fate::Gone if self.held.drop_prepared(id) => Ok(()),
            // What it has of its own keys was settled when it got them.
            Fate::Gone if is_home => Ok(()),
            Fate::Named if is_home => {
                self.settle_prepared(id);
                Ok(())
            }
            Fate::Undecided => Ok(()),
            Fate::Named => self.show(id).await,
            Fate::Gone => self.forget(id).await,
        }
    }

    /// A copy that was prepared while its slot came here was not shown when this worker took the slot up. It is one of
    /// those from which the home fetches the bytes, and given up when it has them.
    fn settle_prepared(&self, id: &CopyId) {
        if !self.held.is_prepared(id) {
            return;
        }
        if self.held_object(&id.key, id.generation).is_some() {
            self.held.drop_prepared(id);
        } else if let Some(path) = parse_object_key(&id.key).filter(|path| self.home.locks.has(path)) {
            self.home.copies.add(id.key.clone(), &path);
        }
    }

    /// Shows a prepared copy whose generation a record names. `showing` is held.
    async fn show(&self, id: &CopyId) -> Result<()> {
        let _unprepared = self.held.lock_key(id).await;
        // The answer may be late.
        if self.store.peek(&id.key).is_some_and(|shown| shown.generation() >= id.generation) {
            self.held.drop_prepared(id);
            return Ok(());
        }
        let Some((staged, reservation)) = self.held.begin_to_show(id) else { return Ok(()) };
        // Not through the catalog, which changes nothing of keys that are at home elsewhere.
        let mut commit = Commit { publish: vec![staged], ..Commit::default() };
        let Err(error) = self.store.commit_or_keep(&mut commit, Durability::Os).await else {
            self.held.drop_prepared(id);
            return Ok(());
        };
        if let Some(staged) = commit.publish.pop() {
            self.held.put_back(id, staged, reservation);
        }
        Err(error.into())
    }

    /// Drops a copy that no record names. `showing` is held, so it stays the one that is shown.
    async fn forget(&self, id: &CopyId) -> Result<()> {
        if self.store.peek(&id.key).is_some_and(|shown| shown.generation() == id.generation) {
            let commit = Commit { forget: vec![id.key.clone()], ..Commit::default() };
            // Not through the catalog, which changes nothing of keys that are at home elsewhere.
            self.store.commit(commit, Durability::Os).await?;
        }
        Ok(())
    }

    /// Forgets a damaged copy for good, when another worker has given intact bytes of the same generation: a start
    /// takes all records of one generation for equal. After a crash in between, this worker has no copy, and the home
    /// sends another one.
    async fn forget_damaged_copy(&self, id: &CopyId) -> Result<()> {
        let _showing = self.held.showing.lock().await;
        let _unprepared = self.held.lock_key(id).await;
        if id.hash().is_some_and(|hash| self.is_home_of(hash)) {
            return Err(Error::new(ErrorKind::Unavailable, "the damaged copy is at home here by now"));
        }
        if self.store.peek(&id.key).is_some_and(|shown| shown.generation() == id.generation) {
            let commit = Commit { forget: vec![id.key.clone()], ..Commit::default() };
            // Not through the catalog, which changes nothing of keys that are at home elsewhere.
            self.store.commit(commit, Durability::Fsync).await?;
        }
        self.held.damaged.remove(id);
        Ok(())
    }

    /// Shows the prepared copies in slots that this worker has just got, as far as records name them. Nothing of a
    /// former home can name the others any more.
    ///
    /// # Errors
    /// Those of the catalog and of the store. A retry is safe.
    pub(crate) async fn show_copies(&self, slots: &SlotSet) -> Result<()> {
        // From here on, nothing is shown or dropped because of what a former home has said.
        let _showing = self.held.showing.lock().await;
        // From here on, a read of them finds the damage.
        self.held.damaged.drop_all(|key| matches!(records::scope(key), Scope::Path(hash) if slots.has_hash(hash)));
        for id in self.held.all_prepared(slots) {
            if self.wanted_generation(&id.key).await? == Some(id.generation) {
                self.show(&id).await?;
            } else {
                self.held.drop_prepared(&id);
            }
        }
        Ok(())
    }

    /// Drops bytes of keys that are at home elsewhere, once no record names them: the under store has them, or they
    /// were replaced.
    pub(crate) async fn sweep_held(&self) -> Result<()> {
        let mut result = Ok(());
        for (id, fate) in self.fates_of(self.held_elsewhere()).await {
            // A generation that no record names is never named again.
            result = result.and(self.follow_fate(&id, fate).await);
        }
        result
    }

    /// Asks from now on for what this worker has of slots that it gives up: their next home says when nobody needs it.
    pub(crate) fn ask_for_lost(&self, slots: &SlotSet) {
        if self.others.is_some() {
            self.pinned_in(slots).into_iter().for_each(|id| self.held.ask_later(id, 0));
        }
    }

    /// Pinned bytes of keys that are at home elsewhere.
    fn held_elsewhere(&self) -> Vec<CopyId> {
        self.catalog.slots().map(|slots| self.pinned_in(&slots.others())).unwrap_or_default()
    }

    fn pinned_in(&self, slots: &SlotSet) -> Vec<CopyId> {
        let mut pinned = Vec::new();
        self.store.for_each_object(&mut |key, generation, is_pinned| {
            if is_pinned && matches!(records::scope(key), Scope::Path(hash) if slots.has_hash(hash)) {
                pinned.push(CopyId { key: Bytes::copy_from_slice(key), generation });
            }
        });
        pinned.sort_unstable();
        pinned
    }

    fn is_pinned(&self, id: &CopyId) -> bool {
        self.store.peek(&id.key).is_some_and(|shown| shown.generation() == id.generation && shown.is_pinned())
    }
}
