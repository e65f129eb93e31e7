//! Requests for objects whose home is another worker.

use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::records::path_hash;
use forebay_types::{ObjectPath, Tags, WriteMode};

use crate::others::OtherWorkers;
use crate::worker::Worker;
use crate::{Conditions, Error, ErrorKind, GetObject, ObjectBody, ObjectHead, Result};

/// How long a request waits while a slot moves and has no home. A planned move takes less.
pub(crate) const MOVE_MAX: Duration = Duration::from_millis(1500);

/// Pause between two checks whether it has one.
pub(crate) const MOVE_LOOK: Duration = Duration::from_millis(50);

/// The worker that is the home of a path.
pub(crate) struct OtherHome {
    pub(crate) others: Arc<dyn OtherWorkers>,
    pub(crate) worker: String,
}

/// What a request does with an object. While the object's slot moves to another worker, its home refuses some
/// requests earlier than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Writes, copies to or deletes it.
    Write,
    /// Sets tags, or changes something else that the under store alone keeps.
    SetAttributes,
    /// Changes one of its multipart uploads.
    Upload,
}

impl Worker {
    /// Whether this worker is the home of a path.
    pub(crate) fn is_at_home(&self, path: &ObjectPath) -> bool {
        self.others.is_none() || self.catalog.has_slot_of(path_hash(path))
    }

    /// Whether this worker is the home of the paths with this hash.
    pub(crate) fn is_home_of(&self, hash: u64) -> bool {
        self.others.is_none() || self.catalog.has_slot_of(hash)
    }

    /// # Errors
    /// `Moved` when this worker is not the home of a path.
    pub(crate) fn check_home(&self, path: &ObjectPath) -> Result<()> {
        if self.is_at_home(path) { Ok(()) } else { Err(Error::moved(path)) }
    }

    /// See [`crate::Cache::answers_for`].
    pub(crate) fn answers_for(&self, path: &ObjectPath, access: Access) -> bool {
        let home = &self.home;
        let hash = path_hash(path);
        // `gain` opens this one last. The other one is the first that the request takes, and `lose` closes that first.
        home.locks.has_hash(hash)
            && match access {
                Access::Read => true,
                Access::Write => home.upload_locks.has_hash(hash) || !self.waits_for_under_store(path),
                Access::SetAttributes => home.upload_locks.has_hash(hash),
                Access::Upload => home.part_locks.has_hash(hash),
            }
    }

    /// Whether writes of a path are acknowledged by the under store. Some others are, too: large ones, or because the
    /// cache is full. Nobody waits for these.
    fn waits_for_under_store(&self, path: &ObjectPath) -> bool {
        matches!(self.policies.resolve(path).write_mode, WriteMode::WriteThrough | WriteMode::NoCache)
    }

    /// `None` when the home is this worker, or nobody: it refuses requests for the path then.
    pub(crate) fn other_home(&self, path: &ObjectPath) -> Option<OtherHome> {
        let others = self.others.as_ref()?;
        let hash = path_hash(path);
        if self.catalog.has_slot_of(hash) {
            return None;
        }
        Some(OtherHome { worker: others.home(hash)?, others: Arc::clone(others) })
    }

    /// Asks the home of a path, which may be this worker (`None`). While the path moves, nobody answers for it: this
    /// waits a moment and asks again.
    pub(crate) async fn ask_home<T, F>(&self, path: &ObjectPath, ask: impl Fn(Option<OtherHome>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let until = self.env.clock.monotonic() + MOVE_MAX;
        loop {
            match ask(self.other_home(path)).await {
                Err(error) if error.kind == ErrorKind::Moved && self.env.clock.monotonic() < until => {}
                answer => return answer,
            }
            self.env.clock.sleep(MOVE_LOOK).await;
        }
    }

    /// Reads an object wherever its home is.
    pub(crate) async fn get_anywhere(self: &Arc<Self>, request: &GetObject) -> Result<ObjectBody> {
        let ask = |home| async move {
            match home {
                Some(home) => self.get_elsewhere(request.clone(), home).await,
                None => {
                    self.check_home(&request.path)?;
                    self.get(request.clone()).await
                }
            }
        };
        self.ask_home(&request.path, ask).await
    }

    pub(crate) async fn head_anywhere(self: &Arc<Self>, request: &GetObject) -> Result<ObjectHead> {
        let ask = |home| async move {
            match home {
                Some(home) => self.head_elsewhere(request.clone(), home).await,
                None => {
                    self.check_home(&request.path)?;
                    self.head(request.clone()).await
                }
            }
        };
        self.ask_home(&request.path, ask).await
    }

    pub(crate) async fn tags_anywhere(&self, path: &ObjectPath) -> Result<Tags> {
        let ask = |home| async move {
            match home {
                Some(OtherHome { others, worker }) => others.tags(&worker, path).await,
                None => {
                    self.check_home(path)?;
                    self.tags(path).await
                }
            }
        };
        self.ask_home(path, ask).await
    }

    pub(crate) async fn delete_anywhere(self: &Arc<Self>, path: &ObjectPath, conditions: &Conditions) -> Result<()> {
        let ask = |home| async move {
            match home {
                Some(OtherHome { others, worker }) => others.delete(&worker, path, conditions).await,
                None => self.delete_to_the_end(path, conditions).await,
            }
        };
        self.ask_home(path, ask).await
    }
}
