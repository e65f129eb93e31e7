//! Sizes and limits of a store.

use std::time::Duration;

use crate::directory::SegmentBytes;
use crate::ids::DirectoryId;

/// Says of a key and its value why this code must leave them alone, if it must.
pub type ValueCheck = fn(&[u8], &[u8]) -> Result<(), String>;

/// Sizes and limits, in bytes unless the name says otherwise.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Most bytes of segments and snapshots in each directory, in the order of the directories.
    pub capacity_bytes: Vec<u64>,
    /// A segment is sealed when it reaches this size, or sooner where the file system has room for few. At most 1 GiB.
    pub segment_bytes: u64,
    /// Objects up to this size are one record in the log; larger ones become extents in bulk segments.
    pub inline_bytes_max: u64,
    /// Most bytes of one extent.
    pub extent_bytes_max: u64,
    /// A snapshot of both tables is written after this much log, or as much as its copies take, so that a restart replays no more.
    pub snapshot_log_bytes: u64,
    /// Share of the capacity that reclaim keeps free for the next writes, from 0 to 1.
    pub free_ratio: f64,
    /// Most bytes that wait in memory for disks, over all writers, in equal shares of the directories. Writers wait beyond it.
    pub write_buffer_bytes_max: u64,
    /// How long a commit that may wait does so for the sync of another.
    pub sync_delay: Duration,
    /// Directories that are gone for good: a start without them is not refused.
    pub forget: Vec<DirectoryId>,
    /// Sees every value at a start before anything is changed; what it refuses ends the start.
    pub value_check: Option<ValueCheck>,
}

impl Settings {
    /// The defaults for directories of these capacities.
    pub fn new(capacity_bytes: Vec<u64>) -> Self {
        let smallest = capacity_bytes.iter().copied().min().unwrap_or(0);
        Self {
            // Sixteen segments at least, so that reclaim has a choice; no smaller than one extent and its header.
            segment_bytes: (smallest / 16).clamp(2 << 20, 256 << 20),
            capacity_bytes,
            inline_bytes_max: 256 << 10,
            extent_bytes_max: 1 << 20,
            snapshot_log_bytes: 512 << 20,
            free_ratio: 0.1,
            write_buffer_bytes_max: 64 << 20,
            // About what a few syncs take: who waits for the key notices little, and a client that writes one object after the other does
            // not wait for the syncs of what became of the objects before.
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
