//! Snapshots: both tables in one file, so that a restart replays only what came later.
//!
//! A snapshot is fuzzy: positions are taken first, then the tables are copied piece by piece while commits continue. A
//! replay from the positions repeats changes that the copy may already contain. That does no harm, because it repeats
//! all changes since then, in order.

pub(crate) mod copies;
mod format;
pub(crate) mod load;
pub(crate) mod pause;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::sync::atomic::Ordering;

use crate::directory::Directory;
use crate::inner::{Inner, LastSnapshot, Volume};
use crate::record::location::Position;
use crate::segment::SegmentKind;
use crate::table::{Entry, Row};
use crate::{Error, ErrorKind, Result};
use copies::{COPIES, Copies, count_snapshots, drop_older_snapshots};
use format::{Chunk, ObjectRow, ValueRow};

/// With several directories, changes get into a new snapshot after this time: what only one directory knows of the
/// others is lost with it.
const PERIOD: Duration = Duration::from_secs(10 * 60);

/// Bytes per second, on average, that snapshots may write because of [`PERIOD`] alone.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// Approximate bytes of a row in the file: an object with a key of some 60 bytes and its annex.
const ROW_BYTES: u64 = 200;

/// Entries in one chunk of the file.
const CHUNK_ENTRIES: usize = 4096;

impl Inner {
    /// Writes a snapshot. The previous one stays until the new one is in place.
    pub(crate) async fn snapshot(&self) -> Result<()> {
        let _only_one = self.snapshot_lock.lock().await;
        let healthy = self.volumes.iter().filter(|volume| volume.directory.failed().is_none());
        let mut directories: Vec<_> = healthy.map(|volume| Arc::clone(&volume.directory)).collect();
        if directories.is_empty() {
            return Err(Error::new(ErrorKind::Failed, "no directory takes writes"));
        }
        // The others come last: they hold a copy only when too few have room.
        directories.sort_by_cached_key(|directory| !self.has_room_for_snapshot(directory));
        let failed_directories = self.failed_directories();
        let at = self.env.clock.monotonic();
        let (start, positions, next_sequence) = self.snapshot_start().await?;
        // Before the objects: what is published meanwhile is among those.
        let prepared = self.prepared.entries();
        let mut copies = Copies::begin(directories, !prepared.is_empty()).await;
        copies.put(start).await;
        for entries in prepared.chunks(CHUNK_ENTRIES) {
            copies.put(Chunk::Prepared(entries.iter().map(|entry| ObjectRow::new(entry)).collect())).await;
        }
        let mut shown_rows = 0;
        for shard in self.objects.shards() {
            let mut entries: Vec<Arc<Entry>> = shard.read().iter().cloned().collect();
            // Sorted, so that one seed always makes the same file.
            entries.sort_unstable_by(|a, b| a.key().cmp(b.key()));
            shown_rows += entries.len() as u64;
            for entries in entries.chunks(CHUNK_ENTRIES) {
                copies.put(Chunk::Objects(entries.iter().map(|entry| ObjectRow::new(entry)).collect())).await;
            }
        }
        let mut last: Option<Row> = None;
        loop {
            let rows = self.values.after(last.as_ref().map(Row::key), CHUNK_ENTRIES);
            if rows.is_empty() {
                break;
            }
            copies.put(Chunk::Values(rows.iter().map(ValueRow::new).collect())).await;
            shown_rows += rows.len() as u64;
            last = rows.into_iter().next_back();
        }
        copies.put(Chunk::End).await;
        copies.sync().await;
        copies.check()?;
        let bytes = copies.offset;
        if let Err(error) = self.settle_for_snapshot(failed_directories).await {
            copies.give_up_all().await;
            return Err(error);
        }
        let held_in = copies.replace().await?;
        let all: Vec<_> = self.volumes.iter().map(|volume| Arc::clone(&volume.directory)).collect();
        drop_older_snapshots(&all, &held_in).await;
        count_snapshots(&all, &held_in, bytes);
        self.shown_rows.store(shown_rows, Ordering::SeqCst);
        self.expect_snapshots();
        self.shown_sequence.store(next_sequence, Ordering::SeqCst);
        *self.shown_positions.lock() = positions;
        *self.last_snapshot.lock() = LastSnapshot { at, lacks_replayed: false };
        *self.snapshot_pause.lock() = None;
        self.settle_logs().await;
        let mut counters = self.counters.lock();
        counters.snapshots += 1;
        self.snapshot_at_bytes.store(counters.appended_bytes + self.log_bytes_for_snapshot(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether it is time for a snapshot, and there is room for one.
    pub(crate) fn is_snapshot_due(&self) -> bool {
        let appended = self.counters.lock().appended_bytes;
        let is_time = appended >= self.snapshot_at_bytes.load(Ordering::Relaxed) || self.is_snapshot_overdue();
        is_time && self.may_try_snapshot()
    }

    fn is_snapshot_overdue(&self) -> bool {
        let last = *self.last_snapshot.lock();
        let period = PERIOD.max(Duration::from_secs(self.bytes_of_copies() / BYTES_PER_SECOND));
        let is_time = self.volumes.len() > 1 && self.env.clock.monotonic() >= last.at + period;
        is_time && (last.lacks_replayed || self.has_news())
    }

    /// Whether this process has written something to the logs that the last snapshot does not show.
    pub(crate) fn has_news(&self) -> bool {
        let shown = self.shown_positions.lock();
        self.volumes.iter().any(|volume| {
            let position = shown.get(&volume.directory.identity.number).copied();
            volume.log.has_changes_after(position.unwrap_or(Position { segment: 0, offset: 0 }))
        })
    }

    fn bytes_of_copies(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.directory.snapshot_bytes.load(Ordering::SeqCst)).sum()
    }

    /// A new snapshot is written after this much log. It is at least as much as the snapshot's copies take: otherwise a
    /// large table would be written all the time.
    fn log_bytes_for_snapshot(&self) -> u64 {
        self.bytes_of_copies().max(self.settings.snapshot_log_bytes)
    }

    /// Estimates the length of the next snapshot from the last one and the rows that came or went since. The first one
    /// needs room, too: a clean stop writes it.
    pub(crate) fn expect_snapshots(&self) {
        let rows = self.objects.count.load(Ordering::Relaxed) + self.values.len() as u64;
        let shown = self.shown_rows.load(Ordering::SeqCst);
        let bytes_of = |volume: &Volume| volume.directory.snapshot_bytes.load(Ordering::SeqCst);
        let last = self.volumes.iter().map(bytes_of).max().unwrap_or(0);
        let next = if rows < shown {
            (last as f64 * (rows as f64 / shown as f64)) as u64
        } else {
            last + (rows - shown) * ROW_BYTES
        };
        let mut copies = 0;
        for volume in &self.volumes {
            let has_next = copies < COPIES && volume.directory.failed().is_none();
            copies += usize::from(has_next);
            let expected = if has_next || bytes_of(volume) > 0 { next } else { 0 };
            volume.directory.next_snapshot_bytes.store(expected, Ordering::SeqCst);
        }
    }

    /// Whether the next snapshot would be much shorter than the last one, and free a considerable amount of room.
    pub(crate) fn has_shrunk(&self, directory: &Directory) -> bool {
        self.expect_snapshots();
        let [last, next] =
            [&directory.snapshot_bytes, &directory.next_snapshot_bytes].map(|bytes| bytes.load(Ordering::SeqCst));
        last > 2 * next && last > directory.capacity_bytes / 64
    }

    /// Counts the log that the start replayed towards the next snapshot: processes may be short-lived. `has_changes`
    /// says whether there was more in it than records of aborts.
    pub(crate) fn count_replayed_log(&self, has_changes: bool) {
        let shown = self.shown_positions.lock();
        let of_volume = |volume: &Volume| {
            let from = shown.get(&volume.directory.identity.number).copied();
            let from = from.unwrap_or(Position { segment: 0, offset: 0 });
            let segments = volume.directory.segments.read();
            let logs = segments.range(from.segment..).filter(|(_, segment)| segment.header.kind == SegmentKind::Log);
            let behind = |number: u32| if number == from.segment { from.offset } else { 0 };
            logs.map(|(number, log)| log.length().saturating_sub(behind(*number))).sum::<u64>()
        };
        let replayed: u64 = self.volumes.iter().map(of_volume).sum();
        self.snapshot_at_bytes.store(self.log_bytes_for_snapshot().saturating_sub(replayed), Ordering::Relaxed);
        let at = self.env.clock.monotonic();
        *self.last_snapshot.lock() = LastSnapshot { at, lacks_replayed: has_changes };
    }

    /// # Errors
    /// `Failed` when what a snapshot shows may be lost: more than these directories have failed.
    async fn settle_for_snapshot(&self, failed_directories: usize) -> Result<()> {
        self.settle().await?;
        if self.failed_directories() > failed_directories {
            let problem = "a directory failed, and what the snapshot shows of it may be lost";
            return Err(Error::new(ErrorKind::Failed, problem));
        }
        Ok(())
    }

    /// Makes durable what commits left to the operating system: a snapshot must not show an object whose bytes a power
    /// cut may take away.
    async fn settle(&self) -> Result<()> {
        for volume in self.volumes.iter().filter(|volume| volume.directory.failed().is_none()) {
            let segments: Vec<_> = volume.directory.segments.read().values().cloned().collect();
            for segment in segments.iter().filter(|segment| segment.header.kind == SegmentKind::Bulk) {
                volume.directory.sync_extents(segment).await?;
            }
            volume.log.barrier().await?;
        }
        Ok(())
    }

    /// Releases the logs that the snapshot covers. They are removed from the lists first: a start must not report them
    /// as missing.
    pub(crate) async fn settle_logs(&self) {
        let shown = self.shown_positions.lock().clone();
        let sequence = self.shown_sequence.load(Ordering::SeqCst);
        for volume in self.volumes.iter().filter(|volume| volume.directory.failed().is_none()) {
            let (directory, number) = (&volume.directory, volume.directory.identity.number);
            let Some(position) = shown.get(&number) else { continue };
            if self.settled_positions.lock().get(&number) == Some(position) {
                continue;
            }
            match directory.log_list.settle(directory.disk.as_ref(), position.segment, sequence).await {
                Ok(()) => drop(self.settled_positions.lock().insert(number, *position)),
                // The disk may be full, for example. The next search for room tries again.
                Err(error) => {
                    tracing::warn!(directory = directory.disk.label(), %error, "the list of logs could not be written: no log is deleted until it can be. Check the disk")
                }
            }
        }
    }

    /// The first chunk of a snapshot, and the positions and the next sequence in it. A replay from these positions must
    /// not find aborted records without the record of the abort. Nor may it miss that record: aborted records stay at
    /// the end of a log that the snapshot covers, until a start cuts them off.
    ///
    /// # Errors
    /// `Full` and `Failed` when no directory could record what is aborted. `Failed` while commits end that met the
    /// failure of a directory.
    async fn snapshot_start(&self) -> Result<(Chunk<'static>, HashMap<u16, Position>, u64)> {
        loop {
            let aborted = self.aborted.count();
            let ends = self.log_ends();
            let (mut is_recorded, mut refused) = (aborted == 0, None::<Error>);
            for (volume, end) in self.volumes.iter().zip(&ends) {
                // Commits that may wait stop waiting now. A log that takes no more writes answers all of them.
                match volume.log.barrier_with_aborts().await {
                    Ok(()) => is_recorded = true,
                    Err(error) => refused = refused.filter(|known| known.kind == ErrorKind::Full).or(Some(error)),
                }
                volume.log.applied(*end).await;
            }
            if let (false, Some(error)) = (is_recorded, refused) {
                let context = format!("no directory could record what failed with another one: {error}");
                return Err(Error { context, ..error });
            }
            let Some(start) = self.try_snapshot_start(&ends) else {
                let problem = "commits that met the failure of a directory have not ended yet";
                return Err(Error::new(ErrorKind::Failed, problem));
            };
            if self.aborted.count() == aborted {
                return Ok(start);
            }
        }
    }

    /// The ends of all logs at one moment: no commit changes the tables between reading two of them. So when a commit
    /// of one log is replayed, everything that came after it is replayed, too, in whichever log it is. Otherwise a
    /// replayed delete could remove what was written after it.
    fn log_ends(&self) -> Vec<Position> {
        let _applying = self.applying.write();
        self.volumes.iter().map(|volume| volume.log.end()).collect()
    }

    fn try_snapshot_start(&self, ends: &[Position]) -> Option<(Chunk<'static>, HashMap<u16, Position>, u64)> {
        let mut positions = Vec::new();
        let (mut complete_fills, mut min_versions) = (Vec::new(), Vec::new());
        for (volume, end) in self.volumes.iter().zip(ends) {
            let number = volume.directory.identity.number;
            let segments = volume.directory.segments.read();
            positions.push((number, position_in(volume, *end)?));
            for segment in segments.values() {
                let is_complete = segment.is_sealed() && !segment.is_pinned();
                if segment.header.kind == SegmentKind::Fill && is_complete {
                    complete_fills.push(segment.key());
                }
                min_versions.push((segment.key(), segment.min_version.load(Ordering::SeqCst)));
            }
        }
        let next_sequence = self.sequence.load(Ordering::SeqCst);
        let store = self.volumes[0].directory.identity.store;
        let known = positions.iter().copied().collect();
        // Taken after the positions: a fill that was dropped by a commit before them must not count as unapplied.
        let (fills_before, unapplied_fills) = self.fills.unapplied(&self.sequence);
        let start = Chunk::Start {
            store,
            next_sequence,
            positions,
            complete_fills,
            fills_before,
            unapplied_fills,
            min_versions,
        };
        Some((start, known, next_sequence))
    }
}

/// Where the replay of a log begins. Nothing before this position can be lost in a power cut. `None` while commits end
/// that met the failure of the directory.
fn position_in(volume: &Volume, end: Position) -> Option<Position> {
    match volume.directory.failed() {
        None => Some(end),
        Some(_) if volume.log.is_applying() => None,
        // It takes no more writes, and a power cut may take the end of its log. What the tables do not show of it was
        // not acknowledged, and is recorded as aborted.
        Some(_) => Some(Position { segment: volume.directory.next_number(), offset: 0 }),
    }
}
