//! Chooses the next victim.
//!
//! Usually this is the oldest segment of which reclaim carries no more than half. Deletes and annotations are carried
//! as long as an older segment may hold what they change. When they take too much room, the oldest segment of all goes,
//! whatever it holds: its own deletes and annotations are no longer needed, and once it is gone, neither are those of
//! the next one. So all of them are gone when each segment has had its turn.
//!
//! Each start leaves a log that is not full, and perhaps a segment of each other kind. When there are many of these,
//! the oldest are merged.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::sync::atomic::Ordering;
use forebay_types::Generation;

use super::worth::{LEAST_FREED, carried_max, is_worth_reclaiming};
use crate::Result;
use crate::directory::Directory;
use crate::ids::SegmentKey;
use crate::inner::Inner;
use crate::record::commit::CommitBody;
use crate::segment::{Segment, SegmentKind};
use crate::table::Entry;

/// Deletes and annotations may take one part in this many of a directory.
const MOST_CHANGES: u64 = 16;

/// A sealed segment is small if it takes at most one part in this many of a full one.
const SMALL_PART: u64 = 8;

/// Most small segments in a directory. Each takes a file descriptor, and a start reads each.
const SMALL_MAX: usize = 16;

/// Objects that are looked at without yielding: a millisecond or less.
const LOOKED_AT_ONCE: usize = 16_384;

/// What reclaim takes next. It is already doomed.
pub(super) struct Victim {
    pub(super) directory: Arc<Directory>,
    pub(super) segment: Arc<Segment>,
    /// Whether it may stay where it is, if most of it is worth keeping.
    pub(super) may_stay: bool,
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
    /// These were renewed. They get another turn when no other segment is left.
    pub(super) renewed: HashSet<SegmentKey>,
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
        let directory = &self.places[index].directory;
        if directory.change_bytes() > directory.segment_bytes_max() / MOST_CHANGES
            && !tried.lacked_room
            && let Some(victim) = self.oldest_victim().await
        {
            return Some(victim);
        }
        let fresh = || self.best_victim(directory, tried, false);
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
        let written = self.snapshot().await;
        if let Err(error) = &written {
            tracing::warn!(%error, "no snapshot could be written to make room");
        }
        written.is_ok()
    }

    /// Whether there are logs that a new snapshot would release, and that are worth reclaiming.
    fn log_went_on(&self, directory: &Directory) -> bool {
        let newer =
            |segment: &Arc<Segment>| segment.is_sealed() && !self.is_shown(segment) && is_worth_reclaiming(segment);
        directory.segments.read().values().any(newer)
    }

    /// The best victim: a segment of which nothing is needed, then the oldest of those of which half is free, then the
    /// one that frees most.
    fn best_victim(&self, directory: &Arc<Directory>, tried: &Tried, with_renewed: bool) -> Option<Victim> {
        let mut candidates = self.candidates(directory);
        candidates.retain(|(segment, freed)| {
            let needs_no_room = *freed == segment.length() && !tried.roomless.contains(&segment.key());
            let may_have_a_turn = with_renewed || !tried.renewed.contains(&segment.key());
            may_have_a_turn && (tried.roomless.is_empty() || needs_no_room)
        });
        let is_easy = |(segment, freed): &(Arc<Segment>, u64)| *freed >= segment.length() / 2;
        let (mut easy, mut hard): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_easy);
        // Empty segments first.
        easy.sort_by_key(|(segment, freed)| {
            let is_empty = segment.live_bytes.load(Ordering::SeqCst) == 0 && *freed == segment.length();
            (!is_empty, segment.age.load(Ordering::SeqCst), segment.key())
        });
        hard.retain(|(segment, freed)| *freed >= segment.length() / LEAST_FREED);
        hard.sort_by_key(|(segment, freed)| (std::cmp::Reverse(*freed), segment.key()));
        let easy = easy.into_iter().map(|(segment, _)| (segment, true));
        let mut ranked = easy.chain(hard.into_iter().map(|(segment, _)| (segment, false)));
        let (segment, may_stay) = ranked.find(|(segment, _)| segment.doom())?;
        let carried = Carried::Worthwhile { bytes_max: carried_max(&segment) };
        Some(Victim { directory: Arc::clone(directory), segment, may_stay, carried })
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
        let of_place = |index: usize| {
            let directory = &self.places[index].directory;
            let segments = directory.segments.read();
            let oldest = segments.values().filter(|segment| may_hold_older(directory, segment));
            let oldest = oldest.min_by_key(|segment| (segment.header.sequence, segment.key())).cloned();
            oldest.map(|segment| (index, segment))
        };
        let oldest = (0..self.places.len()).filter_map(of_place);
        oldest.min_by_key(|(_, segment)| (segment.header.sequence, segment.key()))
    }

    /// The oldest segment of the store. If necessary, it is sealed and a snapshot is taken first. `None` when it can't
    /// go now.
    async fn oldest_victim(&self) -> Option<Victim> {
        let (index, segment) = self.oldest_segment()?;
        let place = &self.places[index];
        // Checked first: otherwise the work below would be repeated at each turn.
        if segment.is_pinned() {
            return None;
        }
        if let Err(error) = self.end(index, &segment).await {
            tracing::warn!(%error, segment = segment.header.name(), "a segment could not be ended");
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
            for place in &self.places {
                place.fill.seal().await;
            }
        }
        let directory = Arc::clone(&place.directory);
        let goes = self.may_go(&directory, &segment) && segment.doom();
        // Everything that is worth keeping is kept: the room comes back in the other segments.
        let carried = Carried::Worthwhile { bytes_max: segment.length() };
        goes.then_some(Victim { directory, segment, may_stay: false, carried })
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
        Some(Victim { directory, segment, may_stay: false, carried: Carried::All })
    }

    /// Seals open segments that are longer than segments may now be, because the file system has less room than when
    /// they were begun. Their writers may be waiting for the very room that these segments keep.
    pub(super) async fn end_long(&self, index: usize) {
        let directory = &self.places[index].directory;
        let is_long = |segment: &&Arc<Segment>| !segment.is_sealed() && segment.length() >= directory.segment_bytes();
        let long: Vec<_> = directory.segments.read().values().filter(is_long).cloned().collect();
        for segment in long {
            if let Err(error) = self.end(index, &segment).await {
                tracing::warn!(%error, segment = segment.header.name(), "a segment could not be ended");
            }
        }
    }

    /// Seals a segment. If it is the newest, another one is begun.
    async fn end(&self, index: usize, segment: &Segment) -> Result<()> {
        let place = &self.places[index];
        if !segment.is_sealed() {
            match segment.header.kind {
                SegmentKind::Log => place.log.seal().await?,
                kind @ (SegmentKind::Bulk | SegmentKind::Fill) => self.stream(index, kind).seal().await,
            }
        }
        if is_newest(&place.directory, segment) {
            place.log.seal().await?;
            place.log.append_carried(vec![CommitBody::default().draft()]).await?;
        }
        Ok(())
    }

    /// What segments other than this one may hold.
    pub(crate) fn oldest_beside(&self, victim: SegmentKey) -> Oldest {
        // Fills that are being written may be in no segment yet.
        let mut oldest = Oldest { record: self.fills.lowest(&self.sequence), value: u64::MAX };
        for place in &self.places {
            for segment in place.directory.segments.read().values() {
                if segment.key() == victim || !may_hold_older(&place.directory, segment) {
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

    /// Whether more of a segment is worth keeping than reclaim may carry.
    pub(super) fn is_mostly_kept(self: &Arc<Self>, segment: &Segment, members: &[(Bytes, Generation)]) -> bool {
        let kept = |(key, generation): &(Bytes, Generation)| {
            let object = self.object(key).filter(|object| object.generation() == *generation);
            object.map_or(0, |object| {
                let entry = object.entry();
                let keep = entry.pinned || self.is_worth_keeping(key, entry);
                if keep { entry.bytes_in(segment.key()) } else { 0 }
            })
        };
        members.iter().map(kept).sum::<u64>() > carried_max(segment)
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
