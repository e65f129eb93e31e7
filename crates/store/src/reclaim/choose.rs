//! The choice of the next victim.
//!
//! Most of the time it is the oldest of which reclaim carries no more than half. Deletes and annotations are carried as long as an older
//! segment may hold what they change. When they take too much, the oldest segment of all goes, whatever it holds: its own are
//! needed no more, and those of the next neither. So they are gone when each segment had its turn.
//!
//! Each start leaves a log that is not full, and maybe a segment of each other kind. Of those the oldest are merged when there are many.

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

/// The part of a directory that deletes and annotations may take.
const MOST_CHANGES: u64 = 16;

/// A sealed segment that takes no more than this part of a full one is small.
const SMALL_PART: u64 = 8;

/// Most small segments in a directory. Each has a descriptor, and a start looks at each.
const SMALL_MAX: usize = 16;

/// So many objects are looked at in a row: a millisecond or less.
const LOOKED_AT_ONCE: usize = 16_384;

/// What reclaim takes next, doomed already.
pub(super) struct Victim {
    pub(super) directory: Arc<Directory>,
    pub(super) segment: Arc<Segment>,
    /// Whether it may stay where it is instead, when most of it is worth keeping.
    pub(super) may_stay: bool,
    pub(super) carried: Carried,
}

/// What reclaim carries of a victim beside what is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carried {
    /// What is worth keeping, until all that is carried reaches so many bytes.
    Worthwhile { bytes_max: u64 },
    /// All of it: nothing leaves the cache.
    All,
}

/// What a round of reclaim has learnt of the segments.
#[derive(Default)]
pub(super) struct Tried {
    /// Were renewed. They have another turn when there is no other.
    pub(super) renewed: HashSet<SegmentKey>,
    /// Could not go, since nothing had room for what they need. Until something has come back, only those go that need nothing.
    pub(super) roomless: HashSet<SegmentKey>,
    /// Whether there were such, ever.
    pub(super) lacked_room: bool,
}

/// The sequences from which on other segments than the victim may hold what a record in it changes.
pub(crate) struct Oldest {
    /// Objects.
    record: u64,
    /// Values.
    value: u64,
}

impl Oldest {
    /// Whether an older record of an object may be there.
    pub(crate) fn has_records_before(&self, sequence: u64) -> bool {
        self.record < sequence
    }

    /// Whether an older write of a value may be there.
    pub(crate) fn has_values_before(&self, version: u64) -> bool {
        self.value < version
    }
}

impl Inner {
    /// The next victim. Logs only where the last snapshot shows all of them: a replay needs the rest.
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

    /// Whether there are logs that a new snapshot would let go, and of which reclaim would win something.
    fn log_went_on(&self, directory: &Directory) -> bool {
        let newer =
            |segment: &Arc<Segment>| segment.is_sealed() && !self.is_shown(segment) && is_worth_reclaiming(segment);
        directory.segments.read().values().any(newer)
    }

    /// The best victim: one of which nothing is needed, the oldest of those of which half is free, or the one that frees most.
    fn best_victim(&self, directory: &Arc<Directory>, tried: &Tried, with_renewed: bool) -> Option<Victim> {
        let mut candidates = self.candidates(directory);
        candidates.retain(|(segment, freed)| {
            let needs_no_room = *freed == segment.length() && !tried.roomless.contains(&segment.key());
            let may_have_a_turn = with_renewed || !tried.renewed.contains(&segment.key());
            may_have_a_turn && (tried.roomless.is_empty() || needs_no_room)
        });
        let is_easy = |(segment, freed): &(Arc<Segment>, u64)| *freed >= segment.length() / 2;
        let (mut easy, mut hard): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_easy);
        // Empty ones first.
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

    /// The segments of a directory that may go, with the bytes that each frees but for what is worth keeping.
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

    /// Whether the last snapshot shows all of a log.
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

    /// The oldest segment that reclaim can still take and that may hold what deletes and annotations change, and the place of its
    /// directory. Others keep none of them: they stay for as long as the process lives, and the changes would fill the store.
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

    /// The oldest segment of the store, ended and shown by a snapshot if it was not. `None` when it can't go now.
    async fn oldest_victim(&self) -> Option<Victim> {
        let (index, segment) = self.oldest_segment()?;
        let place = &self.places[index];
        // First: what is done for it below would be done again at each turn.
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
        // What is carried must not go where the next turn may come before anybody could read it again.
        if segment.live_bytes.load(Ordering::SeqCst) > segment.pinned_bytes.load(Ordering::SeqCst) {
            for place in &self.places {
                place.fill.seal().await;
            }
        }
        let directory = Arc::clone(&place.directory);
        let goes = self.may_go(&directory, &segment) && segment.doom();
        // All that is worth keeping is kept: the room comes back in the others.
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

    /// Ends segments that are open and longer than they get by now, since the file system has less room than when they were begun. What writes
    /// to them may wait for the room that they keep.
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

    /// Seals a segment, and begins another where it is the newest.
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

    /// What other segments than this one may hold.
    pub(crate) fn oldest_beside(&self, victim: SegmentKey) -> Oldest {
        // What is being written may be in no segment yet.
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
            // Millions take too long for the requests that wait for this thread.
            if looked_at >= LOOKED_AT_ONCE {
                looked_at = 0;
                tokio::task::yield_now().await;
            }
        }
        members.sort_unstable();
        members
    }

    /// Whether more of a segment is worth keeping than reclaim carries.
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

    /// Counts all of a segment as carried forward, where it is: it becomes the youngest, and its objects must be read anew to be kept
    /// the next time.
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

/// The newest name stays, so that a start never gives a number twice: what refers to a deleted segment must not find another one.
fn is_newest(directory: &Directory, segment: &Segment) -> bool {
    directory.segments.read().keys().next_back() == Some(&segment.key().number)
}

/// Bulk segments hold bytes alone. One that reclaim can't take, and those of a directory that failed, count for nothing: see
/// [`Inner::oldest_segment`].
fn may_hold_older(directory: &Directory, segment: &Segment) -> bool {
    segment.header.kind != SegmentKind::Bulk && !segment.is_stuck() && directory.failed().is_none()
}
