//! Commits that were not acknowledged, and that no later commit knows of.
//!
//! When the sync of a commit fails, the commit is not acknowledged and the tables do not show it, but its bytes may be
//! in the file. After a restart it must not appear among later commits, which were made without it. So every other log
//! records the abort before it records anything else: a start that finds the later commits finds that, too. Snapshots
//! let logs record it again, so that the next start knows of it whatever it replays, and cuts off what was aborted.

use forebay_env::sync::Mutex;

use crate::ids::SegmentKey;
use crate::record::abort::AbortBody;

/// The commits that were aborted since the start, shared by all logs. Also those that the start could not cut off.
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

    pub(crate) fn covers(&self, segment: SegmentKey, sequence: u64) -> bool {
        self.known.lock().iter().any(|abort| abort.covers(segment, sequence))
    }

    /// All but the first `count`.
    pub(crate) fn since(&self, count: usize) -> Vec<AbortBody> {
        self.known.lock()[count..].to_vec()
    }
}
