//! Append-only segments on local disks: append, group commit, verified reads, reclaim, recovery.
//!
//! The store knows keys, generations and bytes; it knows nothing of S3. It holds two tables:
//!
//! - **objects**: key → bytes in segments, with opaque metadata (on disk) and a small opaque *annex* (in memory);
//! - **values**: a small ordered key-value table, which the embedded catalog engine is built on.
//!
//! One [`Commit`] changes both in one step, behind one group commit. See `docs/on-disk-format.md`.

mod apply;
mod clean_stop;
mod commit;
mod concatenate;
mod damaged;
mod directory;
mod error;
mod fills;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod groups;
mod ids;
mod in_time;
mod inner;
mod kept;
mod log;
mod lost_changes;
mod object;
mod permits;
mod prepare;
mod prepared;
mod reclaim;
mod record;
mod recovery;
mod room;
mod segment;
mod settings;
mod small_file;
mod snapshot;
mod store;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod writer;

use bytes::Bytes;
use forebay_types::Generation;

pub use damaged::DamagedPlace;
pub use directory::unanswered::STALLED_AFTER;
pub use error::{Error, ErrorKind, Result};
pub use groups::GroupsLimit;
pub use ids::DirectoryId;
pub use lost_changes::CHANGES_LOST_FILE;
pub use object::{Object, Piece};
pub use recovery::{Forgotten, SEQUENCES_OF_A_LIFE};
pub use settings::{Settings, ValueCheck};
pub use store::Store;
pub use writer::{Staged, Writer};

/// Where bytes go. Durable writes and read-cache fills never share a segment, so a fill never slows a commit down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// On stable storage before the commit that publishes it returns.
    Durable,
    /// May be lost in a crash, never wrong.
    Fill,
}

/// Changes that take effect in one step.
#[derive(Default)]
pub struct Commit {
    /// Objects to publish; each replaces the object under its key.
    pub publish: Vec<Staged>,
    /// Keys of objects to drop, pinned or not.
    pub forget: Vec<Bytes>,
    pub annotate: Vec<Annotation>,
    pub writes: Vec<ValueWrite>,
    /// No client waits for this commit, so it may take some milliseconds. If it must be synced, it shares the sync of
    /// the next commit that cannot wait, or gets one after [`Settings::sync_delay`].
    pub may_wait: bool,
}

/// Changes an object in place, if it still has this generation.
pub struct Annotation {
    pub key: Bytes,
    pub generation: Generation,
    pub annex: Bytes,
    pub pinned: bool,
}

/// One write to the table of values; `None` deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueWrite {
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// A value, and the number of the commit that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    pub value: Bytes,
    pub version: u64,
}

/// The description of an object that is being written.
pub struct NewObject {
    pub key: Bytes,
    pub generation: Generation,
    /// Opaque; stored with the bytes, read back by [`Object::metadata`].
    pub metadata: Bytes,
    /// Opaque and small; kept in memory, changed by [`Annotation`].
    pub annex: Bytes,
    /// Pinned objects are never evicted.
    pub pinned: bool,
    /// Accounting group of the object, see [`Store::group_bytes`]. 0 is no group.
    pub group: u32,
    /// The size of the whole object. If fewer bytes are appended, the object is sparse, and [`Store::fill`] adds its
    /// pages.
    pub size: u64,
}

/// How an object has been used since it was written or last carried forward by reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Reads, saturating at 255.
    pub reads: u8,
    /// Whether reclaim has carried it forward before.
    pub carried: bool,
}

/// When a clean object leaves the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// With the segment that it is in.
    First,
    /// Reclaim carries it forward while that makes room.
    Later,
    /// The same, and it leaves only where all others have left.
    Last,
}

/// Decides what reclaim keeps.
pub trait Retention: Send + Sync + 'static {
    /// When a clean object in a victim segment leaves.
    fn leaves(&self, key: &[u8], access: Access) -> Leaves;
    /// Called after a clean object was dropped whole or in part.
    fn evicted(&self, key: &[u8], bytes: u64);
}

/// Bytes on disk, by what may happen to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Most bytes that segments may take: the configured capacity minus the snapshots.
    pub capacity_bytes: u64,
    /// Bytes of objects that may not be evicted.
    pub pinned_bytes: u64,
    /// Bytes of objects that may be evicted.
    pub evictable_bytes: u64,
    /// Bytes that segments can still grow by.
    pub free_bytes: u64,
    /// Bytes that the settings leave and the file systems do not have: others have taken them.
    pub unavailable_bytes: u64,
    /// Bytes of deleted segments that somebody still reads.
    pub held_bytes: u64,
    pub objects: u64,
    pub values: u64,
}

/// Counters since the start, for metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    pub appended_bytes: u64,
    pub filled_bytes: u64,
    pub commits: u64,
    pub group_commits: u64,
    /// Places on the disks: each once, however often it is read.
    pub corrupt_records: u64,
    pub reclaimed_segments: u64,
    pub reclaimed_bytes: u64,
    pub carried_bytes: u64,
    pub snapshots: u64,
    /// Durable writes that found no room on the disks.
    pub refused_full: u64,
}

/// Reports what happens inside, for histograms. Every method is cheap and never blocks.
pub trait Observer: Send + Sync + 'static {
    /// A group commit: commits in it, bytes written, and how long write and sync took.
    fn group_commit(&self, directory: &str, commits: usize, bytes: u64, sync: std::time::Duration);
}

/// Whether disks have not answered for [`STALLED_AFTER`], among the directories that take writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stalled {
    Nowhere,
    Somewhere,
    Everywhere,
}

/// The state of one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryHealth {
    pub label: String,
    /// Why the directory takes no more writes. `None` while it takes them.
    pub failed: Option<String>,
    /// Why its file system has less room than the settings leave, and not enough for the next write. `None` while it
    /// has enough, or while reclaim can make some.
    pub shortage: Option<Shortage>,
    /// What its file system has left, and what the settings leave.
    pub file_system_free_bytes: u64,
    pub unused_bytes: u64,
    /// Size of the file system, and what others have of it.
    pub file_system_bytes: u64,
    pub others_bytes: u64,
    /// What the settings say.
    pub capacity_bytes: u64,
}

/// What keeps a directory from its configured capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Others have filled the file system.
    Others,
    /// The file system is smaller than the settings say, no matter who uses it.
    SmallDisk,
}
