//! The state that the parts of a store share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use forebay_env::sync::{Mutex, RwLock};
use forebay_env::{Env, Task};
use tokio::sync::Notify;

use crate::damaged::Damaged;
use crate::directory::Directory;
use crate::fills::Fills;
use crate::ids::SegmentKey;
use crate::log::Log;
use crate::log::aborted::AbortedCommits;
use crate::permits::Permits;
use crate::prepared::Prepared;
use crate::record::location::Position;
use crate::room::demand::Demand;
use crate::segment::{Segment, SegmentKind};
use crate::stream::Stream;
use crate::table::{Objects, Values};
use crate::{Counters, Error, ErrorKind, Forgotten, Result, Retention, Settings};

/// One directory and its writers.
pub(crate) struct Volume {
    pub(crate) directory: Arc<Directory>,
    pub(crate) log: Log,
    pub(crate) bulk: Stream,
    pub(crate) fill: Stream,
    pub(crate) permits: Permits,
}

/// When the last snapshot was begun. Before the first one, the time of the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LastSnapshot {
    pub(crate) at: Duration,
    /// Whether the start had to replay changes because there was no newer snapshot.
    pub(crate) lacks_replayed: bool,
}

/// Since the last try of a snapshot failed, until one succeeds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotPause {
    pub(crate) until: Duration,
    pub(crate) length: Duration,
    /// The most that could be written to a directory when the try had failed. `None` if it failed for another reason
    /// than room.
    pub(crate) room: Option<u64>,
}

/// Bytes on disk of the objects in an accounting group.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GroupBytes {
    pub(crate) all: u64,
    /// Of those that are not pinned.
    pub(crate) evictable: u64,
}

/// The state of a store.
pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) settings: Settings,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) by_number: HashMap<u16, usize>,
    pub(crate) objects: Objects,
    pub(crate) values: Values,
    /// The sequence of the next record.
    pub(crate) sequence: Arc<AtomicU64>,
    pub(crate) fills: Arc<Fills>,
    pub(crate) aborted: Arc<AbortedCommits>,
    pub(crate) prepared: Arc<Prepared>,
    /// Locks, chosen by the hash of a key. Reclaim holds one while it writes the record of an object again; commits
    /// hold those of the keys that they forget or annotate. So a copy either is in a log before the change, or contains
    /// the change.
    pub(crate) carrying: Vec<tokio::sync::RwLock<()>>,
    /// Each commit holds it for reading while it changes the tables. Locking it for writing waits for the commits that
    /// have begun to change them.
    pub(crate) applying: RwLock<()>,
    pub(crate) counters: Arc<Mutex<Counters>>,
    pub(crate) damaged: Damaged,
    pub(crate) retention: RwLock<Option<Arc<dyn Retention>>>,
    pub(crate) groups: Mutex<HashMap<u32, GroupBytes>>,
    pub(crate) pinned_bytes: AtomicU64,
    pub(crate) evictable_bytes: AtomicU64,
    pub(crate) turn: AtomicUsize,
    /// Wakes the task that reclaims and takes snapshots.
    pub(crate) maintenance: Notify,
    /// Wakes writers that wait for room, and tasks that wait until reclaim is done with a segment.
    pub(crate) room: Notify,
    /// The room that these writers want.
    pub(crate) demand: Demand,
    /// Rounds of maintenance that have ended.
    pub(crate) rounds: AtomicU64,
    pub(crate) closed: AtomicBool,
    pub(crate) snapshot_at_bytes: AtomicU64,
    pub(crate) last_snapshot: Mutex<LastSnapshot>,
    pub(crate) snapshot_pause: Mutex<Option<SnapshotPause>>,
    /// Rows of both tables in the last snapshot.
    pub(crate) shown_rows: AtomicU64,
    pub(crate) forgotten: Forgotten,
    pub(crate) was_closed: bool,
    /// Held while a snapshot is written.
    pub(crate) snapshot_lock: tokio::sync::Mutex<()>,
    /// Where a replay from the last snapshot begins in each directory.
    pub(crate) shown_positions: Mutex<HashMap<u16, Position>>,
    /// The next sequence in that snapshot, or in a later one.
    pub(crate) shown_sequence: AtomicU64,
    /// The same, as far as the lists of logs on disk agree: logs before these positions may go.
    pub(crate) settled_positions: Mutex<HashMap<u16, Position>>,
    pub(crate) task: Mutex<Option<Task<()>>>,
}

impl Inner {
    pub(crate) fn stream(&self, directory: usize, kind: SegmentKind) -> &Stream {
        match kind {
            SegmentKind::Bulk => &self.volumes[directory].bulk,
            SegmentKind::Fill => &self.volumes[directory].fill,
            SegmentKind::Log => unreachable!("logs are appended to through their task"),
        }
    }

    pub(crate) fn segment(&self, key: SegmentKey) -> Option<Arc<Segment>> {
        self.volumes[*self.by_number.get(&key.directory)?].directory.segment(key.number)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            Err(Error::new(ErrorKind::Closed, "the store is closed"))
        } else {
            Ok(())
        }
    }

    /// The directory with the most room, in whole segments, of those that take writes. Directories whose disk is
    /// stalled come last, and equal ones take turns.
    pub(crate) fn roomiest(&self) -> Result<usize> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.volumes.len();
        let order = (0..count).map(|index| (index + turn) % count);
        let healthy = order.filter(|index| self.volumes[*index].directory.failed().is_none());
        let unit = self.settings.segment_bytes;
        let best = healthy.max_by_key(|index| {
            let directory = &self.volumes[*index].directory;
            (!directory.unanswered.is_stalled(), directory.free_bytes() / unit)
        });
        best.ok_or_else(|| Error::new(ErrorKind::Failed, "no directory takes writes"))
    }

    /// The directory with the most room for what reclaim writes: not one that does not answer, because commits wait for
    /// what is carried of their keys. Reclaim may use the reserve, and may exceed the
    /// configured capacity where the disk has room.
    pub(crate) fn index_for_carried(&self) -> Result<usize> {
        let healthy = self.volumes.iter().enumerate().filter(|(_, volume)| volume.directory.failed().is_none());
        let roomiest = healthy.max_by_key(|(_, volume)| {
            let directory = &volume.directory;
            (
                !directory.unanswered.is_stalled(),
                directory.writable_bytes() >= directory.segment_bytes(),
                directory.free_bytes(),
                directory.writable_bytes(),
            )
        });
        roomiest.map(|(index, _)| index).ok_or_else(|| Error::new(ErrorKind::Failed, "no directory takes writes"))
    }

    pub(crate) fn failed_directories(&self) -> usize {
        self.volumes.iter().filter(|volume| volume.directory.failed().is_some()).count()
    }

    pub(crate) fn note_log(&self) {
        let appended = self.counters.lock().appended_bytes;
        let wants_snapshot = || appended >= self.snapshot_at_bytes.load(Ordering::Relaxed) && self.may_try_snapshot();
        if wants_snapshot() || self.wants_reclaim() {
            self.maintenance.notify_one();
        }
    }

    /// Whether some directory has less room than it should keep.
    pub(crate) fn wants_reclaim(&self) -> bool {
        self.volumes.iter().any(|volume| self.is_tight(&volume.directory))
    }

    pub(crate) fn is_tight(&self, directory: &Directory) -> bool {
        let kept_free = (directory.segment_bytes_max() as f64 * self.settings.free_ratio) as u64;
        directory.unused_bytes() < kept_free
            || directory.free_bytes() < directory.reserve_bytes() + directory.segment_bytes()
    }
}
