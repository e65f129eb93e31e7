//! Commits that were not acknowledged, and that no later commit knows of.
//!
//! When the sync of a commit fails, the commit is not acknowledged and the tables do not show it, but its bytes may be
//! in the file. After a restart it must not appear among later commits, which were made without it. So every other log
//! records the abort before it records anything else: a start that finds the later commits finds that, too.

use forebay_env::sync::Mutex;

use crate::record::abort::AbortBody;

/// The commits that were aborted since the start, shared by all logs.
#[derive(Default)]
pub(crate) struct AbortedCommits {
    known: Mutex<Vec<AbortBody>>,
}

impl AbortedCommits {
    pub(crate) fn add(&self, aborted: impl IntoIterator<Item = AbortBody>) {
        self.known.lock().extend(aborted);
    }

    pub(crate) fn count(&self) -> usize {
        self.known.lock().len()
    }

    /// All but the first `count`.
    pub(crate) fn since(&self, count: usize) -> Vec<AbortBody> {
        self.known.lock()[count..].to_vec()
    }
}
