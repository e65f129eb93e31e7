//! Damaged bytes are replaced with those of another worker.

use forebay_catalog::records;
use forebay_store::Object;
use forebay_types::{Generation, ObjectPath};

use super::CopyId;
use crate::worker::Worker;
use crate::{Error, ErrorKind, NewCopy, OtherWorkers, Result};

impl Worker {
    /// Notes that bytes of an object or a part at home here are damaged, and wants them from another worker. `path` is
    /// the object that they belong to. `false` when no other worker may have them, or when others have taken their
    /// place since.
    pub(crate) async fn note_damaged(&self, path: &ObjectPath, damaged: &Object) -> bool {
        let id = CopyId::of(damaged);
        if !damaged.is_pinned() || !self.is_named_elsewhere(&id).await.unwrap_or(false) {
            return false;
        }
        let is_present = self.store.peek(&id.key).is_some_and(|present| present.is_same(damaged));
        if !is_present || !self.home.locks.has(path) {
            return false;
        }
        if self.home.damaged.add(&id) {
            tracing::warn!(%path, generation = id.generation.0, "damaged bytes of an acknowledged object are fetched from another worker, if one has them");
            // They are no copy to count on.
            self.home.sent.recount();
        }
        // A fetch that ended in between has taken its note away before this one.
        if !self.store.peek(&id.key).is_some_and(|present| present.is_same(damaged)) {
            self.home.damaged.remove(&id);
            return false;
        }
        self.home.copies.add(id.key, path);
        true
    }

    /// Whether a record names these bytes, and another worker may have them.
    async fn is_named_elsewhere(&self, id: &CopyId) -> Result<bool> {
        let Some(found) = self.catalog.get(&id.key).await? else { return Ok(false) };
        let wanted = records::wanted_bytes(&id.key, &found.value)?;
        Ok(wanted.is_some_and(|wanted| wanted.generation == id.generation && self.may_be_elsewhere(&wanted.holders)))
    }

    /// What has taken the place of a damaged object, once the bytes of another worker are here. `None` when no worker
    /// has them, or when the object is not wanted any more.
    ///
    /// # Errors
    /// `Unavailable` when they do not come.
    pub(crate) async fn repaired(&self, path: &ObjectPath, damaged: &Object) -> Result<Option<Object>> {
        let id = CopyId::of(damaged);
        if self.note_damaged(path, damaged).await
            && let Err(error) = self.await_bytes(id.key.clone(), path).await
        {
            return if self.home.missing.has(path) { Ok(None) } else { Err(error) };
        }
        let present = self.held_object(&id.key, id.generation);
        Ok(present.filter(|present| !present.is_same(damaged)))
    }

    /// Notes that a copy of what is at home at another worker is damaged. From here on it counts as no copy.
    pub(crate) fn note_damaged_copy(&self, damaged: &Object) {
        self.held.damaged.add(&CopyId::of(damaged));
    }

    /// The same. Then the bytes of another worker take its place: that worker has them for certain, so the damaged ones
    /// are needed no more.
    ///
    /// # Errors
    /// Why no other worker gives them, or why they are not taken. The damaged copy stays then.
    pub(crate) async fn replace_damaged_copy(&self, path: &ObjectPath, damaged: &Object) -> Result<()> {
        self.note_damaged_copy(damaged);
        let mut problem = Error::new(ErrorKind::Unavailable, "none of them has it");
        let Some(others) = &self.others else { return Err(problem) };
        let id = CopyId::of(damaged);
        let home = id.hash().and_then(|hash| others.home(hash));
        let rest = others.workers().into_iter().filter(|worker| home.as_ref() != Some(worker));
        let workers: Vec<String> = home.iter().cloned().chain(rest).collect();
        for worker in &workers {
            match self.take_copy_from(others.as_ref(), worker, path, &id).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    /// `false` when the other worker does not have it.
    async fn take_copy_from(
        &self,
        others: &dyn OtherWorkers,
        worker: &str,
        path: &ObjectPath,
        id: &CopyId,
    ) -> Result<bool> {
        let Some(bytes) = others.open(worker, &id.key, id.generation).await? else { return Ok(false) };
        self.take_copy(NewCopy { id: id.clone(), path: path.clone(), pieces: Vec::new(), bytes }).await
    }

    pub(crate) fn is_damaged(&self, object: &Object) -> bool {
        self.home.damaged.has(&CopyId::of(object))
    }

    /// A whole copy whose bytes nobody has found damaged.
    pub(super) fn intact_object(&self, key: &[u8], generation: Generation) -> Option<Object> {
        self.held_object(key, generation).filter(|object| !self.is_damaged(object))
    }
}
