//! Sizes and limits of a store.

use std::time::Duration;

use crate::directory::SegmentBytes;
use crate::ids::DirectoryId;

/// Checks a key and its value. An error says why this code must not touch them.
pub type ValueCheck = fn(&[u8], &[u8]) -> Result<(), String>;

/// Sizes and limits, in bytes unless the name says otherwise.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Most bytes of segments and snapshots in each directory, in the order of the directories.
    pub capacity_bytes: Vec<u64>,
    /// A segment is sealed when it reaches this size, or earlier where the file system has room for only a few. At most
    /// 1 GiB.
    pub segment_bytes: u64,
    /// Objects up to this size are one record in the log; larger ones become extents in bulk segments.
    pub inline_bytes_max: u64,
    /// Most bytes of one extent.
    pub extent_bytes_max: u64,
    /// A snapshot of both tables is written after this much log, or after as much as the snapshot's copies take, if
    /// that is more. This bounds what a restart replays.
    pub snapshot_log_bytes: u64,
    /// Share of the capacity that reclaim keeps free for the next writes, from 0 to 1.
    pub free_ratio: f64,
    /// Most bytes that wait in memory for disks, over all writers. Each directory has an equal share of it, and writers
    /// wait when it is used up.
    pub write_buffer_bytes_max: u64,
    /// How long a commit with [`crate::Commit::may_wait`] waits to share the sync of another one.
    pub sync_delay: Duration,
    /// Directories that are gone for good. A start without them is not refused.
    pub forget: Vec<DirectoryId>,
    /// Called at a start for every value, before anything is changed. If it returns an error, the start is refused.
    pub value_check: Option<ValueCheck>,
}

impl Settings {
    /// The defaults for directories of these capacities.
    pub fn new(capacity_bytes: Vec<u64>) -> Self {
        let smallest = capacity_bytes.iter().copied().min().unwrap_or(0);
        Self {
            // At least sixteen segments, so that reclaim has a choice. No smaller than one extent and its header.
            segment_bytes: (smallest / 16).clamp(2 << 20, 256 << 20),
            capacity_bytes,
            inline_bytes_max: 256 << 10,
            extent_bytes_max: 1 << 20,
            snapshot_log_bytes: 512 << 20,
            free_ratio: 0.1,
            write_buffer_bytes_max: 64 << 20,
            // About the time of a few syncs. A request that waits for the key hardly notices it. A client that writes
            // objects in sequence does not wait for the syncs that record what happened to its earlier objects.
            sync_delay: Duration::from_millis(2),
            forget: Vec::new(),
            value_check: None,
        }
    }

    pub(crate) fn lengths(&self) -> SegmentBytes {
        let least = 2 * self.extent_bytes_max.max(self.inline_bytes_max);
        SegmentBytes { least, most: self.segment_bytes }
    }
}
