//! Calls to a file system that is an under store, with all buckets that it has.

use forebay_env::{Background, Calls};

use crate::{Error, ErrorKind, Result};

/// More writes at once would only wait for the same disk. A requester that is alone gets 16.
const WRITES_MAX: usize = 21;

/// A requester that is alone gets 24.
const READS_MAX: usize = 32;

/// Each may read a directory of millions of names. A requester that is alone gets six.
const LISTS_MAX: usize = 8;

/// Threads that one file system may keep.
pub const DIRECTORY_CALLS_MAX: usize = WRITES_MAX + READS_MAX + LISTS_MAX;

/// Reads, writes and listings do not wait for one another, and no requester waits for all calls of another one.
#[derive(Clone)]
pub(crate) struct DirectoryCalls {
    reads: Calls,
    writes: Calls,
    lists: Calls,
}

impl DirectoryCalls {
    pub(crate) fn new(background: &Background) -> Self {
        // One page may look at a million names, and one key may need 127 directories. That must not take the processors
        // away from others.
        let giving_way = |first, max| Calls::giving_way(background, first, max);
        let (writes, lists) = (giving_way(1, WRITES_MAX), giving_way(0, LISTS_MAX));
        Self { reads: Calls::new(READS_MAX), writes, lists }
    }

    /// # Errors
    /// Those of `work`.
    pub(crate) async fn read<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        run(&self.reads, work).await
    }

    /// For work that may wait for a sync.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        run(&self.writes, work).await
    }

    /// For work that reads through directories.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) async fn list<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        run(&self.lists, work).await
    }
}

async fn run<T: Send + 'static>(calls: &Calls, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    calls.run(work).await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Unavailable, format!("a task of the directory ended early: {error}")))
    })
}
