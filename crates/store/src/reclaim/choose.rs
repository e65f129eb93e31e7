//! The choice of the next victim: the oldest, unless most of it is worth keeping.

use std::sync::Arc;

use bytes::Bytes;
use forebay_env::sync::atomic::Ordering;
use forebay_types::Generation;

use super::carried_max;
use crate::directory::Directory;
use crate::segment::{Segment, SegmentKey, SegmentKind};
use crate::store::Inner;
use crate::table::Entry;

impl Inner {
    /// The next victim, doomed already. Logs only where the last snapshot shows all of them: a replay needs the rest.
    pub(super) async fn choose(&self, directory: &Directory) -> Option<Arc<Segment>> {
        if let Some(victim) = self.best_victim(directory) {
            return Some(victim);
        }
        self.settle_logs().await;
        if let Some(victim) = self.best_victim(directory) {
            return Some(victim);
        }
        if !self.log_went_on(directory) {
            return None;
        }
        match self.snapshot().await {
            Ok(()) => self.best_victim(directory),
            Err(error) => {
                tracing::warn!(%error, "no snapshot could be written to make room");
                None
            }
        }
    }

    /// Whether logs were sealed since the last snapshot, which a new one would let go.
    fn log_went_on(&self, directory: &Directory) -> bool {
        let replayed_from = self.shown_positions.lock().get(&directory.identity.number).map_or(0, |p| p.segment);
        let segments = directory.segments.read();
        let newer = |segment: &Arc<Segment>| {
            segment.header.kind == SegmentKind::Log && segment.is_sealed() && segment.key().number >= replayed_from
        };
        segments.values().any(newer)
    }

    fn best_victim(&self, directory: &Directory) -> Option<Arc<Segment>> {
        let replayed_from = self.settled_positions.lock().get(&directory.identity.number).map_or(0, |p| p.segment);
        let segments = directory.segments.read();
        // The newest name stays, so that a start never gives a number twice: what refers to a deleted segment must not find
        // another one.
        let newest = segments.keys().next_back().copied();
        let may_go = |segment: &&Arc<Segment>| {
            if newest == Some(segment.key().number) {
                return false;
            }
            let is_settled = segment.header.kind != SegmentKind::Log || segment.key().number < replayed_from;
            segment.is_sealed() && !segment.is_pinned() && is_settled && !segment.is_stuck()
        };
        let mut candidates: Vec<&Arc<Segment>> = segments.values().filter(may_go).collect();
        // Empty ones first, then the oldest.
        candidates.retain(|segment| !segment.is_mostly_pinned());
        let in_use = |segment: &Segment| {
            segment.live_bytes.load(Ordering::SeqCst) > 0 || segment.live_values.load(Ordering::SeqCst) > 0
        };
        candidates.sort_by_key(|segment| (in_use(segment), segment.age.load(Ordering::SeqCst), segment.key()));
        candidates.into_iter().find(|segment| segment.doom()).cloned()
    }

    /// The objects that need a segment, in the order of their keys.
    pub(crate) fn members(&self, segment: SegmentKey) -> Vec<(Bytes, Generation)> {
        let mut members = Vec::new();
        for shard in self.objects.shards() {
            let shard = shard.read();
            let uses = |entry: &Entry| entry.uses().any(|(used, _)| used == segment);
            members.extend(
                shard
                    .iter()
                    .filter(|entry| uses(entry))
                    .map(|entry| (Bytes::copy_from_slice(entry.key()), entry.generation)),
            );
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
