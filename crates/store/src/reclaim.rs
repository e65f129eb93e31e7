//! Reclaim: space comes back a segment at a time. What may not leave, and what is worth keeping, is carried forward; the
//! rest is dropped with the file.

mod choose;
mod commits;

pub(crate) use choose::is_worth_reclaiming;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::sync::atomic::Ordering;
use forebay_types::{ByteRange, Generation};

use crate::directory::Directory;
use crate::object::Object;
use crate::record::extent::ExtentBody;
use crate::record::object::{Extent, ObjectBody};
use crate::segment::{Segment, SegmentKey, SegmentKind};
use crate::store::Inner;
use crate::table::Entry;
use crate::writer::{Kept, extent_at};
use crate::{Access, Error, ErrorKind, Piece, Result};
use choose::Victim;

/// How often room is looked for although nobody asked.
const INTERVAL: Duration = Duration::from_secs(5);

/// Share of a victim that is carried forward at most, out of 4, so that every victim frees something. A segment of which more is
/// worth keeping stays where it is, with up to as much garbage as the rest.
const CARRIED_QUARTERS: u64 = 3;

/// What reclaim may still carry of clean data from one victim.
struct Budget {
    clean_bytes: u64,
}

/// Bytes of a segment, pinned ones included, that are carried forward at most.
pub(crate) fn carried_max(segment: &Segment) -> u64 {
    segment.length() / 4 * CARRIED_QUARTERS
}

impl Budget {
    fn of(victim: &Segment, carried_max: u64) -> Self {
        Self { clean_bytes: carried_max.saturating_sub(victim.needed_bytes(true)) }
    }

    /// `false` when it does not reach for this many bytes.
    fn take(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.clean_bytes;
        if fits {
            self.clean_bytes -= bytes;
        }
        fits
    }
}

impl Inner {
    /// Takes snapshots and makes room until the store is closed.
    pub(crate) async fn maintain(self: Arc<Self>) {
        while !self.closed.load(Ordering::SeqCst) {
            let sleep = self.env.clock.sleep(INTERVAL);
            tokio::select! { biased; () = self.maintenance.notified() => {}, () = sleep => {} }
            let appended = self.counters.lock().appended_bytes;
            if appended >= self.snapshot_at_bytes.load(Ordering::Relaxed)
                && let Err(error) = self.snapshot().await
            {
                tracing::warn!(%error, "no snapshot could be written; a restart will take longer");
            }
            for index in 0..self.places.len() {
                self.places[index].directory.look_at_space().await;
                self.make_room(index).await;
            }
            self.rounds.fetch_add(1, Ordering::SeqCst);
            self.room.notify_waiters();
        }
    }

    /// Takes back segments while there is less room than a directory should keep, or than a writer waits for. It ends when each segment
    /// had its turn, and was renewed before: more may be asked for by then, elsewhere, too.
    async fn make_room(self: &Arc<Self>, index: usize) {
        let directory = &self.places[index].directory;
        let mut renewed = HashSet::new();
        // A victim may be in another directory.
        let segments: usize = self.places.iter().map(|place| place.directory.segments.read().len()).sum();
        let turns = 2 * segments;
        for _ in 0..turns {
            let is_wanted = self.is_tight(directory) || self.is_asked_for(index);
            if !is_wanted || directory.failed().is_some() || self.closed.load(Ordering::SeqCst) {
                return;
            }
            let Some(Victim { directory, segment: victim, may_stay, carried_max }) = self.choose(index, &renewed).await
            else {
                return;
            };
            let members = self.members(victim.key());
            if may_stay && !renewed.contains(&victim.key()) && self.is_mostly_kept(&victim, &members) {
                renewed.insert(victim.key());
                self.renew(&victim, &members);
                continue;
            }
            let failed = self.failed_directories();
            let Err(error) = self.reclaim(&directory, &victim, carried_max, members).await else { continue };
            let (label, segment) = (directory.disk.label(), victim.header.name());
            let is_elsewhere = matches!(error.kind, ErrorKind::Full | ErrorKind::Busy | ErrorKind::Closed);
            if is_elsewhere || self.failed_directories() > failed {
                tracing::warn!(directory = label, segment, %error, "a segment could not be reclaimed now");
                return;
            }
            // It can't be read or removed: a bad sector, say. It keeps its room until the next start, and the others go on.
            tracing::error!(directory = label, segment, %error, "a segment is left alone: it can't be reclaimed");
            victim.is_stuck.store(true, Ordering::SeqCst);
        }
    }

    /// Takes back a segment that is sealed and doomed; `members` are the objects that need it. Clean data are carried up to `carried_max`
    /// bytes, those that are needed included. A segment that can't be taken back is not doomed any more.
    pub(crate) async fn reclaim(
        self: &Arc<Self>,
        directory: &Directory,
        victim: &Arc<Segment>,
        carried_max: u64,
        members: Vec<(Bytes, Generation)>,
    ) -> Result<()> {
        let reclaimed = self.empty_and_delete(directory, victim, carried_max, members).await;
        if reclaimed.is_err() {
            victim.spare();
        }
        self.room.notify_waiters();
        reclaimed
    }

    async fn empty_and_delete(
        self: &Arc<Self>,
        directory: &Directory,
        victim: &Arc<Segment>,
        carried_max: u64,
        members: Vec<(Bytes, Generation)>,
    ) -> Result<()> {
        let mut budget = Budget::of(victim, carried_max);
        let mut kept = Kept::default();
        for (key, generation) in members {
            self.carry_or_drop(victim, &key, generation, &mut budget, &mut kept).await?;
        }
        if victim.header.kind == SegmentKind::Log {
            self.carry_commits(victim).await?;
        }
        // A commit that only the operating system has may have made evictable what is dropped here: now it must last.
        for place in self.places.iter().filter(|place| place.directory.failed().is_none()) {
            place.log.barrier().await?;
        }
        let bytes = victim.length();
        directory.delete_segment(victim).await?;
        let mut counters = self.counters.lock();
        counters.reclaimed_segments += 1;
        counters.reclaimed_bytes += bytes;
        Ok(())
    }

    async fn carry_or_drop(
        self: &Arc<Self>,
        victim: &Arc<Segment>,
        key: &Bytes,
        generation: Generation,
        budget: &mut Budget,
        kept: &mut Kept,
    ) -> Result<()> {
        loop {
            let Some(object) = self.object(key).filter(|object| object.generation() == generation) else {
                return Ok(());
            };
            let entry = object.entry();
            let here = entry.bytes_in(victim.key());
            if here == 0 {
                return Ok(());
            }
            let stays = entry.pinned || (self.is_worth_keeping(key, entry) && budget.take(here));
            if !stays {
                self.drop_from(victim.key(), key, entry, here);
                continue;
            }
            match self.carry(victim.key(), &object, kept).await {
                Ok(true) => {
                    self.counters.lock().carried_bytes += here;
                    return Ok(());
                }
                // Overwritten, evicted or made clean meanwhile: look again.
                Ok(false) => {}
                Err(error) if entry.pinned => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "a clean object could not be carried forward");
                    self.drop_from(victim.key(), key, entry, here);
                }
            }
        }
    }

    fn is_worth_keeping(&self, key: &[u8], entry: &Entry) -> bool {
        let access = Access { reads: entry.reads.load(Ordering::Relaxed), carried: entry.carried };
        let retention = self.retention.read().clone();
        retention.map_or(access.reads > 0, |retention| retention.keep(key, access))
    }

    /// Evicts what a clean object has in a segment; without its record, all of it.
    fn drop_from(&self, victim: SegmentKey, key: &[u8], seen: &Entry, bytes: u64) {
        let dropped = if seen.record.segment == victim {
            let same = |entry: &Entry| !entry.pinned && entry.generation == seen.generation;
            self.remove(key, same).is_some()
        } else {
            self.update(key, seen.generation, |entry| {
                let may = !entry.pinned;
                entry.retain_extents(|extent| extent.segment != victim || !may);
                may
            })
        };
        let retention = self.retention.read().clone();
        if let (true, Some(retention)) = (dropped, retention) {
            retention.evicted(key, bytes);
        }
    }

    /// Writes again what an object has in a segment. `false` when the object has changed meanwhile.
    async fn carry(self: &Arc<Self>, victim: SegmentKey, object: &Object, kept: &mut Kept) -> Result<bool> {
        let entry = object.entry();
        let mut extents = Vec::with_capacity(entry.extents().len());
        for extent in entry.extents() {
            let moved = extent.segment == victim;
            extents.push(if moved { self.carry_extent(object, extent, kept).await? } else { *extent });
        }
        let needs_record = entry.record.segment == victim || entry.pinned;
        let same = |now: &Entry| {
            now.pinned == entry.pinned && now.annex() == entry.annex() && now.extents() == entry.extents()
        };
        let _lock = self.carry_lock(object.key()).await;
        let present = self.object(object.key()).filter(|present| present.generation() == entry.generation);
        if !present.is_some_and(|present| same(present.entry())) {
            return Ok(false);
        }
        let record = if needs_record { self.carry_record(object, &extents, kept).await? } else { entry.record };
        Ok(self.update(object.key(), object.generation(), |entry| {
            let unchanged = same(entry);
            if unchanged {
                entry.record = record;
                entry.move_extents(extents);
                entry.count_as_carried();
            }
            unchanged
        }))
    }

    async fn carry_extent(self: &Arc<Self>, object: &Object, extent: &Extent, kept: &mut Kept) -> Result<Extent> {
        let data = object.read(ByteRange::new(extent.start, extent.end())).await?;
        let attach = (!object.is_pinned()).then(|| (object.key().to_vec(), object.generation()));
        let draft = ExtentBody { start: extent.start, attach }.draft(data);
        let kind = if object.is_pinned() { SegmentKind::Bulk } else { SegmentKind::Fill };
        let index = self.index_for_carried()?;
        let written = self.stream(index, kind).append(draft).await?;
        if object.is_pinned() {
            self.places[index].directory.sync_extents(&written.segment).await?;
        }
        kept.keep(written.segment, written.pin);
        Ok(extent_at(extent.start, extent.bytes, written.location))
    }

    async fn carry_record(
        self: &Arc<Self>,
        object: &Object,
        extents: &[Extent],
        kept: &mut Kept,
    ) -> Result<crate::table::Location> {
        let entry = object.entry();
        let payload = match (entry.is_inline(), object.pieces(ByteRange::of_size(entry.size())).as_slice()) {
            (true, [Piece::Cached(range)]) => object.read(*range).await?,
            (_, _) => Bytes::new(),
        };
        let body = ObjectBody {
            key: object.key().to_vec(),
            generation: entry.generation,
            metadata: object.metadata().await?.to_vec(),
            annex: entry.annex().to_vec(),
            pinned: entry.pinned,
            group: entry.group,
            size: entry.size(),
            extents: extents.to_vec(),
            stands_alone: true,
            carried: true,
        };
        let draft = body.draft(payload);
        let index = self.index_for_carried()?;
        if entry.pinned {
            let appended = self.places[index].log.append_carried(vec![draft]).await?;
            return Ok(appended.locations[0]);
        }
        let written = self.places[index].fill.append(draft).await?;
        let location = written.location;
        kept.keep(written.segment, written.pin);
        Ok(location)
    }

    /// The directory with the most room; what reclaim writes may use the reserve.
    fn index_for_carried(&self) -> Result<usize> {
        let healthy = self.places.iter().enumerate().filter(|(_, place)| place.directory.failed().is_none());
        let roomiest = healthy.max_by_key(|(_, place)| place.directory.free_bytes());
        roomiest.map(|(index, _)| index).ok_or_else(|| Error::new(ErrorKind::Failed, "no directory takes writes"))
    }
}
