//! Requests for objects whose home is another worker.

use std::sync::Arc;

use forebay_catalog::records::path_hash;
use forebay_types::{ObjectPath, Tags};

use crate::others::OtherWorkers;
use crate::worker::Worker;
use crate::{GetObject, ObjectBody, ObjectHead, Result};

/// The worker that is the home of a path.
pub(crate) struct OtherHome {
    pub(crate) others: Arc<dyn OtherWorkers>,
    pub(crate) worker: String,
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

    /// `None` when the home is this worker, or nobody: it refuses requests for the path then.
    pub(crate) fn other_home(&self, path: &ObjectPath) -> Option<OtherHome> {
        let others = self.others.as_ref()?;
        let hash = path_hash(path);
        if self.catalog.has_slot_of(hash) {
            return None;
        }
        Some(OtherHome { worker: others.home(hash)?, others: Arc::clone(others) })
    }

    /// Reads an object wherever its home is.
    pub(crate) async fn get_anywhere(self: &Arc<Self>, request: GetObject) -> Result<ObjectBody> {
        match self.other_home(&request.path) {
            Some(home) => self.get_elsewhere(request, home).await,
            None => self.get(request).await,
        }
    }

    pub(crate) async fn head_anywhere(self: &Arc<Self>, request: GetObject) -> Result<ObjectHead> {
        match self.other_home(&request.path) {
            Some(home) => self.head_elsewhere(request, home).await,
            None => self.head(request).await,
        }
    }

    pub(crate) async fn tags_anywhere(&self, path: &ObjectPath) -> Result<Tags> {
        match self.other_home(path) {
            Some(OtherHome { others, worker }) => others.tags(&worker, path).await,
            None => self.tags(path).await,
        }
    }
}
