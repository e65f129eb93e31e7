//! Chooses the next victim.
//!
//! Usually this is the oldest segment of which reclaim carries no more than half. But while much room is taken by
//! garbage, which nobody can read any more, a segment with much of it goes first, and what is live in it stays.
//!
//! Deletes and annotations are carried as long as an older segment may hold what they change. When they take too much
//! room, the oldest segment of all goes, whatever it holds: its own deletes and annotations are no longer needed, and
//! once it is gone, neither are those of the next one. So all of them are gone when each segment has had its turn.
//!
//! Each start leaves a log that is not full, and perhaps a segment of each other kind. When there are many of these,
//! the oldest are merged.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::sync::atomic::Ordering;
use forebay_types::Generation;

use super::worth::{LEAST_FREED, LOOKED_AT_ONCE, carried_max, is_worth_reclaiming};
use crate::directory::Directory;
use crate::ids::SegmentKey;
use crate::inner::Inner;
use crate::record::commit::CommitBody;
use crate::segment::{Segment, SegmentKind};
use crate::table::Entry;
use crate::{Leaves, Result};

/// Deletes and annotations may take one part in this many of a directory.
const MOST_CHANGES: u64 = 16;

/// While more than one part in this many of a directory is garbage that reclaim can take, segments of which as much is
/// garbage are emptied first, and what is live in them is carried. So a byte of room costs three written bytes at most.
const GARBAGE_PART: u64 = 4;

/// The same while a writer waits: then a byte of room costs one.
const GARBAGE_PART_IN_HASTE: u64 = 2;

/// Most segments that a round empties for their garbage. Evicting is quicker, and the next round comes soon.
const GARBAGE_VICTIMS_MAX: usize = 16;

/// A sealed segment is small if it takes at most one part in this many of a full one.
const SMALL_PART: u64 = 8;

/// Most small segments in a directory. Each takes a file descriptor, and a start reads each.
const SMALL_MAX: usize = 16;

/// What reclaim takes next. It is already doomed.
pub(super) struct Victim {
    pub(super) directory: Arc<Directory>,
    pub(super) segment: Arc<Segment>,
    /// Whether it may stay where it is, if most of it is worth keeping.
    pub(super) may_stay: bool,
    /// Whether others go first, if most of it must stay or leaves last.
    pub(super) may_be_put_off: bool,
    pub(super) carried: Carried,
}

/// What reclaim carries of a victim in addition to what is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carried {
    /// What is worth keeping, until everything that is carried reaches this many bytes.
    Worthwhile { bytes_max: u64 },
    /// All of it: nothing leaves the cache.
    All,
}

/// What a round of reclaim has learnt about the segments.
#[derive(Default)]
pub(super) struct Tried {
    /// These were put off. They get another turn when no other segment is left, those with `Last` after the others.
    pub(super) put_off: HashMap<SegmentKey, Leaves>,
    /// How many were emptied for their garbage.
    pub(super) emptied: usize,
    /// These could not go because nothing had room for what they need. Until some room has come back, only segments go
    /// that need none.
    pub(super) roomless: HashSet<SegmentKey>,
    /// Whether a segment ever was in `roomless`.
    pub(super) lacked_room: bool,
}

/// The lowest sequences that segments other than the victim may hold of what a record in the victim changes.
pub(crate) struct Oldest {
    /// Of objects.
    record: u64,
    /// Of values.
    value: u64,
}

impl Oldest {
    /// Whether another segment may hold an older record of an object.
    pub(crate) fn has_records_before(&self, sequence: u64) -> bool {
        self.record < sequence
    }

    /// Whether another segment may hold an older write of a value.
    pub(crate) fn has_values_before(&self, version: u64) -> bool {
        self.value < version
    }
}

impl Inner {
    /// The next victim. A log qualifies only when the last snapshot covers all of it: a replay needs the others.
    pub(super) async fn choose(&self, index: usize, tried: &Tried) -> Option<Victim> {
        let directory = &self.volumes[index].directory;
        if directory.change_bytes() > directory.segment_bytes_max() / MOST_CHANGES
            && !tried.lacked_room
            && let Some(victim) = self.oldest_victim().await
        {
            return Some(victim);
        }
        let fresh = || self.garbage_victim(index, tried).or_else(|| self.best_victim(directory, tried, false));
        if let Some(victim) = fresh() {
            return Some(victim);
        }
        self.settle_logs().await;
        if let Some(victim) = fresh() {
            return Some(victim);
        }
        if self.log_went_on(directory)
            && self.snapshot_for_room().await
            && let Some(victim) = fresh()
        {
            return Some(victim);
        }
        self.best_victim(directory, tried, true)
    }

    pub(super) async fn snapshot_for_room(&self) -> bool {
        self.try_snapshot("to make room").await
    }

    /// Whether there are logs that a new snapshot would release, and that are worth reclaiming.
    fn log_went_on(&self, directory: &Directory) -> bool {
        let newer =
            |segment: &Arc<Segment>| segment.is_sealed() && !self.is_shown(segment) && is_worth_reclaiming(segment);
        directory.segments.read().values().any(newer)
    }

    /// The segment of which most is garbage, while a directory has much of it. What is live is carried. Logs go oldest
    /// first: their commits would be carried, too.
    fn garbage_victim(&self, index: usize, tried: &Tried) -> Option<Victim> {
        if !tried.roomless.is_empty() || tried.emptied >= GARBAGE_VICTIMS_MAX {
            return None;
        }
        let directory = &self.volumes[index].directory;
        let length: u64 = directory.segments.read().values().map(|segment| segment.length()).sum();
        let mut candidates = self.candidates(directory);
        candidates.retain(|(segment, _)| segment.header.kind != SegmentKind::Log);
        if candidates.iter().map(|(segment, _)| segment.garbage()).sum::<u64>() <= length / GARBAGE_PART {
            return None;
        }
        let part = if self.is_asked_for(index) { GARBAGE_PART_IN_HASTE } else { GARBAGE_PART };
        let room = directory.free_bytes().saturating_sub(directory.segment_bytes());
        let mut segments: Vec<_> = candidates
            .into_iter()
            .filter_map(|(segment, _)| {
                let (garbage, length) = (segment.garbage(), segment.length());
                let is_worth_it = garbage > length / part && length - garbage <= room;
                is_worth_it.then(|| (garbage * 100 / length, segment))
            })
            .collect();
        segments.sort_by_key(|(percent, segment)| (std::cmp::Reverse(*percent), segment.key()));
        let (_, segment) = segments.into_iter().find(|(_, segment)| segment.doom())?;
        let directory = Arc::clone(directory);
        Some(Victim { directory, segment, may_stay: false, may_be_put_off: false, carried: Carried::All })
    }

    /// The best victim: a segment of which nothing is needed, then the oldest of those of which half is free, then the
    /// one that frees most.
    fn best_victim(&self, directory: &Arc<Directory>, tried: &Tried, with_put_off: bool) -> Option<Victim> {
        let mut candidates = self.candidates(directory);
        candidates.retain(|(segment, freed)| {
            let needs_no_room = *freed == segment.length() && !tried.roomless.contains(&segment.key());
            let may_have_a_turn = with_put_off || !tried.put_off.contains_key(&segment.key());
            let is_worth_it = *freed >= segment.length() / LEAST_FREED;
            may_have_a_turn && is_worth_it && (tried.roomless.is_empty() || needs_no_room)
        });
        candidates.sort_by_key(|(segment, freed)| {
            let leaves_last = tried.put_off.get(&segment.key()) == Some(&Leaves::Last);
            let is_empty = segment.live_bytes.load(Ordering::SeqCst) == 0 && *freed == segment.length();
            // Empty segments first, and of those that are hard to empty the one that frees most.
            let (order, is_hard) = match is_easy(segment, *freed) {
                true => (segment.age.load(Ordering::SeqCst), false),
                false => (u64::MAX - *freed, true),
            };
            (leaves_last, is_hard, !is_empty, order, segment.key())
        });
        let (segment, freed) = candidates.into_iter().find(|(segment, _)| segment.doom())?;
        let carried = Carried::Worthwhile { bytes_max: carried_max(&segment) };
        let may_stay = is_easy(&segment, freed);
        Some(Victim { directory: Arc::clone(directory), segment, may_stay, may_be_put_off: true, carried })
    }

    /// The segments of a directory that may go, with the bytes that each frees if nothing is carried only because it is
    /// worth keeping.
    fn candidates(&self, directory: &Arc<Directory>) -> Vec<(Arc<Segment>, u64)> {
        let oldest = self.oldest_segment().map(|(_, segment)| segment.key());
        let segments: Vec<_> = directory.segments.read().values().cloned().collect();
        let may_go = segments.into_iter().filter(|segment| self.may_go(directory, segment));
        let with_freed = |segment: Arc<Segment>| {
            let needed = segment.needed_bytes(oldest != Some(segment.key()));
            let freed = segment.length().saturating_sub(needed);
            (segment, freed)
        };
        may_go.map(with_freed).collect()
    }

    fn may_go(&self, directory: &Directory, segment: &Segment) -> bool {
        let may_go = segment.is_sealed() && !segment.is_pinned() && !segment.is_stuck();
        may_go && !is_newest(directory, segment) && self.is_settled(segment)
    }

    /// Whether the last snapshot covers all of a log. Always true for other segments.
    fn is_shown(&self, segment: &Segment) -> bool {
        let replayed_from = self.shown_positions.lock().get(&segment.key().directory).map_or(0, |p| p.segment);
        segment.header.kind != SegmentKind::Log || segment.key().number < replayed_from
    }

    /// Whether no start replays it any more.
    fn is_settled(&self, segment: &Segment) -> bool {
        let (directory, number) = (segment.key().directory, segment.key().number);
        let replayed_from = self.settled_positions.lock().get(&directory).map_or(0, |position| position.segment);
        segment.header.kind != SegmentKind::Log || number < replayed_from
    }

    /// The oldest segment that reclaim can still take and that may hold what deletes and annotations change, with the
    /// index of its directory. Segments that reclaim can't take do not count: they stay as long as the process lives,
    /// and the changes that are kept for them would fill the store.
    fn oldest_segment(&self) -> Option<(usize, Arc<Segment>)> {
        let of_volume = |index: usize| {
            let directory = &self.volumes[index].directory;
            let segments = directory.segments.read();
            let oldest = segments.values().filter(|segment| may_hold_older(directory, segment));
            let oldest = oldest.min_by_key(|segment| (segment.header.sequence, segment.key())).cloned();
            oldest.map(|segment| (index, segment))
        };
        let oldest = (0..self.volumes.len()).filter_map(of_volume);
        oldest.min_by_key(|(_, segment)| (segment.header.sequence, segment.key()))
    }

    /// The oldest segment of the store. If necessary, it is sealed and a snapshot is taken first. `None` when it can't
    /// go now.
    async fn oldest_victim(&self) -> Option<Victim> {
        let (index, segment) = self.oldest_segment()?;
        let volume = &self.volumes[index];
        // Checked first: otherwise the work below would be repeated at each turn.
        if segment.is_pinned() {
            return None;
        }
        if let Err(error) = self.end(index, &segment).await {
            tracing::warn!(%error, segment = segment.header.name(), "a segment could not be sealed");
            return None;
        }
        if !self.is_settled(&segment) {
            self.settle_logs().await;
        }
        if !self.is_shown(&segment) && !self.snapshot_for_room().await {
            return None;
        }
        // Carried data must not go into a segment that may be the next victim before anybody could read the data again.
        if segment.live_bytes.load(Ordering::SeqCst) > segment.pinned_bytes.load(Ordering::SeqCst) {
            for volume in &self.volumes {
                volume.fill.seal().await;
            }
        }
        let directory = Arc::clone(&volume.directory);
        let goes = self.may_go(&directory, &segment) && segment.doom();
        // Everything that is worth keeping is kept: the room comes back in the other segments.
        let carried = Carried::Worthwhile { bytes_max: segment.length() };
        goes.then_some(Victim { directory, segment, may_stay: false, may_be_put_off: false, carried })
    }

    /// The oldest small segment of a directory that has too many. `None` when none can go now.
    pub(super) async fn small_victim(&self, directory: &Arc<Directory>) -> Option<Victim> {
        let is_small = |segment: &Segment| {
            segment.is_sealed() && !segment.is_stuck() && segment.length() <= directory.segment_bytes() / SMALL_PART
        };
        let small: Vec<_> = directory.segments.read().values().filter(|segment| is_small(segment)).cloned().collect();
        if small.len() <= SMALL_MAX {
            return None;
        }
        let oldest = || small.iter().find(|segment| self.may_go(directory, segment) && segment.doom());
        let mut victim = oldest();
        if victim.is_none() {
            self.settle_logs().await;
            victim = oldest();
        }
        if victim.is_none() && small.iter().any(|segment| !self.is_shown(segment)) && self.snapshot_for_room().await {
            victim = oldest();
        }
        let (directory, segment) = (Arc::clone(directory), Arc::clone(victim?));
        Some(Victim { directory, segment, may_stay: false, may_be_put_off: false, carried: Carried::All })
    }

    /// Seals open segments that are longer than segments may now be, because the file system has less room than when
    /// they were begun. Their writers may be waiting for the very room that these segments keep.
    pub(super) async fn end_long(&self, index: usize) {
        let directory = &self.volumes[index].directory;
        let is_long = |segment: &&Arc<Segment>| !segment.is_sealed() && segment.length() >= directory.segment_bytes();
        let long: Vec<_> = directory.segments.read().values().filter(is_long).cloned().collect();
        for segment in long {
            if let Err(error) = self.end(index, &segment).await {
                tracing::warn!(%error, segment = segment.header.name(), "a segment could not be sealed");
            }
        }
    }

    /// Seals a segment. If it is the newest, another one is begun.
    async fn end(&self, index: usize, segment: &Segment) -> Result<()> {
        let volume = &self.volumes[index];
        if !segment.is_sealed() {
            match segment.header.kind {
                SegmentKind::Log => volume.log.seal().await?,
                kind @ (SegmentKind::Bulk | SegmentKind::Fill) => self.stream(index, kind).seal().await,
            }
        }
        if is_newest(&volume.directory, segment) {
            volume.log.seal().await?;
            volume.log.append_carried(vec![CommitBody::default().draft()]).await?;
        }
        Ok(())
    }

    /// What segments other than this one may hold.
    pub(crate) fn oldest_beside(&self, victim: SegmentKey) -> Oldest {
        // Fills that are being written may be in no segment yet.
        let mut oldest = Oldest { record: self.fills.lowest(&self.sequence), value: u64::MAX };
        for volume in &self.volumes {
            for segment in volume.directory.segments.read().values() {
                if segment.key() == victim || !may_hold_older(&volume.directory, segment) {
                    continue;
                }
                oldest.record = oldest.record.min(segment.header.sequence);
                if segment.header.kind == SegmentKind::Log {
                    oldest.value = oldest.value.min(segment.min_version.load(Ordering::SeqCst));
                }
            }
        }
        oldest
    }

    /// The objects that need a segment, in the order of their keys.
    pub(crate) async fn members(&self, segment: SegmentKey) -> Vec<(Bytes, Generation)> {
        let (mut members, mut looked_at) = (Vec::new(), 0);
        let uses = |entry: &Entry| entry.uses().any(|(used, _)| used == segment);
        for shard in self.objects.shards() {
            {
                let shard = shard.read();
                looked_at += shard.len();
                members.extend(
                    shard
                        .iter()
                        .filter(|entry| uses(entry))
                        .map(|entry| (Bytes::copy_from_slice(entry.key()), entry.generation)),
                );
            }
            // Scanning millions at once would delay the requests that wait for this thread.
            if looked_at >= LOOKED_AT_ONCE {
                looked_at = 0;
                tokio::task::yield_now().await;
            }
        }
        members.sort_unstable();
        members
    }

    /// Lets other victims go before this one.
    pub(super) fn put_off(&self, victim: &Victim, members: &[(Bytes, Generation)]) {
        match victim.may_stay {
            true => self.renew(&victim.segment, members),
            false => victim.segment.spare(),
        }
    }

    /// Counts all of a segment as carried forward, without moving it: it becomes the youngest, and its objects must be
    /// read again to be kept the next time.
    pub(super) fn renew(&self, segment: &Segment, members: &[(Bytes, Generation)]) {
        segment.age.store(self.sequence.load(Ordering::SeqCst), Ordering::SeqCst);
        for (key, generation) in members {
            self.update(key, *generation, |entry| {
                entry.count_as_carried();
                true
            });
        }
        segment.spare();
        self.room.notify_waiters();
    }
}

/// Whether reclaim carries no more than half of a segment.
fn is_easy(segment: &Segment, freed: u64) -> bool {
    freed >= segment.length() / 2
}

/// The segment with the highest number stays, so that a start never reuses a number: a reference to a deleted segment
/// must not find another one.
fn is_newest(directory: &Directory, segment: &Segment) -> bool {
    directory.segments.read().keys().next_back() == Some(&segment.key().number)
}

/// Bulk segments hold only bytes of objects. Segments that reclaim can't take, and those of a failed directory, do not
/// count: see [`Inner::oldest_segment`].
fn may_hold_older(directory: &Directory, segment: &Segment) -> bool {
    segment.header.kind != SegmentKind::Bulk && !segment.is_stuck() && directory.failed().is_none()
}
