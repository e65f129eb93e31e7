//! Commits that were not acknowledged, and that no later commit knows of.
//!
//! When the sync of a commit fails, the commit is not acknowledged and the tables do not show it, but its bytes may be
//! in the file. After a restart it must not appear among later commits, which were made without it. So every other log
//! records that it is void before it records anything else: a start that finds the later commits finds that, too.

use forebay_env::sync::Mutex;

use crate::record::void::VoidBody;

/// What was declared void since the start, shared by all logs.
#[derive(Default)]
pub(crate) struct Voids {
    known: Mutex<Vec<VoidBody>>,
}

impl Voids {
    pub(crate) fn add(&self, voids: impl IntoIterator<Item = VoidBody>) {
        self.known.lock().extend(voids);
    }

    pub(crate) fn count(&self) -> usize {
        self.known.lock().len()
    }

    /// All but the first `count`.
    pub(crate) fn since(&self, count: usize) -> Vec<VoidBody> {
        self.known.lock()[count..].to_vec()
    }
}
