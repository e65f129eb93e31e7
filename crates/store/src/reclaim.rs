//! Reclaim frees space one segment at a time. It carries forward what may not leave and what is worth keeping. The rest
//! is dropped with the file.

mod choose;
mod commits;
pub(crate) mod worth;

pub(crate) use choose::Carried;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::Ordering;
use forebay_types::{ByteRange, Generation};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::directory::Directory;
use crate::ids::SegmentKey;
use crate::inner::Inner;
use crate::kept::Kept;
use crate::object::Object;
use crate::record::extent::ExtentBody;
use crate::record::location::Location;
use crate::record::object::{Extent, ObjectBody, extent_at};
use crate::room::look_at_space;
use crate::segment::{Segment, SegmentKind};
use crate::table::Entry;
use crate::{ErrorKind, Leaves, Piece, Result};
use choose::{Tried, Victim};
use worth::carried_max;

/// How often reclaim checks for room without being asked.
const INTERVAL: Duration = Duration::from_secs(5);

/// Most small segments of a directory that one round merges. The next round takes more.
const MERGED_AT_ONCE: usize = 64;

/// How often a segment of which most leaves last is put off without another look at its objects.
const RENEWALS_UNCHECKED: u8 = 3;

/// Most objects of a victim that are carried at once. They share their syncs.
const CARRIED_AT_ONCE: usize = 16;

/// No other object is begun while those that are carried take this much memory.
const CARRIED_BYTES_AT_ONCE: u64 = 16 << 20;

/// A victim that is being emptied.
struct Emptying {
    victim: SegmentKey,
    carried: Carried,
    /// Bytes of clean data that may still be carried.
    clean_bytes: Mutex<u64>,
    /// Pins the segments that the copies go to: a snapshot must not count them as complete before the tables show all
    /// copies.
    kept: Mutex<Kept>,
}

/// The result of reclaiming a victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TakenBack {
    /// Its room came back, or it is left alone until the next start.
    Done,
    /// No directory had room for what must be carried.
    NoRoom,
    /// The next victim would fail in the same way.
    NotNow,
}

impl Emptying {
    fn new(victim: &Segment, carried: Carried) -> Self {
        let bytes_max = match carried {
            Carried::Worthwhile { bytes_max } => bytes_max,
            Carried::All => u64::MAX,
        };
        let clean_bytes = Mutex::new(bytes_max.saturating_sub(victim.needed_bytes(true)));
        Self { victim: victim.key(), carried, clean_bytes, kept: Mutex::default() }
    }

    /// Subtracts `bytes` from what may still be carried. `false` when too little is left.
    fn take(&self, bytes: u64) -> bool {
        let mut left = self.clean_bytes.lock();
        let fits = bytes <= *left;
        if fits {
            *left -= bytes;
        }
        fits
    }
}

impl Inner {
    /// Takes snapshots and makes room until the store is closed.
    pub(crate) async fn maintain(self: Arc<Self>) {
        // At once: processes may be short-lived, and each leaves some small segments.
        self.merge_small().await;
        while !self.closed.load(Ordering::SeqCst) {
            let sleep = self.env.clock.sleep(INTERVAL);
            tokio::select! { biased; () = self.maintenance.notified() => {}, () = sleep => {} }
            self.expect_snapshots();
            if self.is_snapshot_due() {
                self.try_snapshot("so that a restart takes less time").await;
            }
            for index in 0..self.volumes.len() {
                look_at_space(&self.volumes[index].directory).await;
                self.make_room(index).await;
            }
            self.merge_small().await;
            self.objects.halve_ticks();
            self.rounds.fetch_add(1, Ordering::SeqCst);
            self.room.notify_waiters();
        }
    }

    /// Reclaims segments while the directory has less room than it should keep, or than a writer waits for. It stops
    /// when each segment has had two turns, one to be put off and one to be reclaimed: by then, other directories may
    /// need room, too.
    async fn make_room(self: &Arc<Self>, index: usize) {
        let directory = &self.volumes[index].directory;
        let mut tried = Tried::default();
        // A victim may be in another directory.
        let segments: usize = self.volumes.iter().map(|volume| volume.directory.segments.read().len()).sum();
        let turns = 2 * segments;
        if self.is_tight(directory) {
            self.end_long(index).await;
        }
        for _ in 0..turns {
            let is_wanted = self.is_tight(directory) || self.is_asked_for(index);
            if !is_wanted || directory.failed().is_some() || self.closed.load(Ordering::SeqCst) {
                return;
            }
            // Reclaim needs room for what it carries before it frees any.
            if directory.free_bytes() < directory.reserve_bytes() && directory.close_held() {
                continue;
            }
            if self.has_shrunk(directory) && self.snapshot_for_room().await {
                continue;
            }
            let Some(victim) = self.choose(index, &tried).await else {
                // Nothing else can go, and a writer waits.
                if self.is_asked_for(index) && directory.close_held() {
                    continue;
                }
                return;
            };
            let key = victim.segment.key();
            let Some(members) = self.members_unless_put_off(&victim, &mut tried).await else { continue };
            tried.emptied += usize::from(victim.carried == Carried::All);
            match self.take_back(victim, members).await {
                TakenBack::Done => tried.roomless.clear(),
                TakenBack::NoRoom => {
                    tried.roomless.insert(key);
                    tried.lacked_room = true;
                }
                TakenBack::NotNow => return,
            }
        }
    }

    /// What is in a victim. `None`: too much of it should stay, so others are tried before it.
    async fn members_unless_put_off(&self, victim: &Victim, tried: &mut Tried) -> Option<Vec<(Bytes, Generation)>> {
        let (segment, key) = (&victim.segment, victim.segment.key());
        let was_put_off = tried.put_off.contains_key(&key);
        let may_mostly_stay = segment.length() - segment.garbage() > carried_max(segment);
        if victim.may_be_put_off && !was_put_off && may_mostly_stay && segment.renews_unchecked() {
            tried.put_off.insert(key, Leaves::Last);
            self.put_off(victim, &[]);
            return None;
        }
        let mut members = self.members(key).await;
        if !victim.may_be_put_off {
            return Some(members);
        }
        let worth = self.worth(segment, &mut members).await;
        let leaves = worth.exceeds(carried_max(segment));
        let leaves = leaves.filter(|leaves| !was_put_off && (victim.may_stay || *leaves == Leaves::Last));
        let Some(leaves) = leaves else { return Some(members) };
        tried.put_off.insert(key, leaves);
        segment.renew_unchecked(if leaves == Leaves::Last { RENEWALS_UNCHECKED } else { 0 });
        self.put_off(victim, &members);
        None
    }

    /// Merges the small segments that many starts leave. It stops when the directory lacks room, or when a writer waits
    /// for room anywhere.
    async fn merge_small(self: &Arc<Self>) {
        for volume in &self.volumes {
            let directory = &volume.directory;
            for _ in 0..MERGED_AT_ONCE {
                let is_busy = self.is_tight(directory) || self.demand.are_some() || directory.failed().is_some();
                if is_busy || self.closed.load(Ordering::SeqCst) {
                    break;
                }
                let Some(victim) = self.small_victim(directory).await else { break };
                let members = self.members(victim.segment.key()).await;
                if self.take_back(victim, members).await != TakenBack::Done {
                    break;
                }
            }
        }
    }

    async fn take_back(self: &Arc<Self>, victim: Victim, members: Vec<(Bytes, Generation)>) -> TakenBack {
        let Victim { directory, segment: victim, carried, .. } = victim;
        let failed = self.failed_directories();
        let Err(error) = self.reclaim(&directory, &victim, carried, members).await else { return TakenBack::Done };
        let (label, segment) = (directory.disk.label(), victim.header.name());
        let is_elsewhere = matches!(error.kind, ErrorKind::Full | ErrorKind::Busy | ErrorKind::Closed);
        if is_elsewhere || self.failed_directories() > failed {
            tracing::warn!(directory = label, segment, %error, "a segment could not be reclaimed now");
            return if error.kind == ErrorKind::Full { TakenBack::NoRoom } else { TakenBack::NotNow };
        }
        // The segment can't be read or removed, for example because of a bad sector. It keeps its room until the next
        // start, and reclaim continues with others.
        tracing::error!(directory = label, segment, %error, "a segment can't be reclaimed, and keeps its space until the next start: check the disk for bad sectors");
        victim.is_stuck.store(true, Ordering::SeqCst);
        TakenBack::Done
    }

    /// Reclaims a segment that is sealed and doomed. `members` are the objects that need it. If this fails, the segment
    /// is no longer doomed.
    pub(crate) async fn reclaim(
        self: &Arc<Self>,
        directory: &Directory,
        victim: &Arc<Segment>,
        carried: Carried,
        members: Vec<(Bytes, Generation)>,
    ) -> Result<()> {
        let reclaimed = self.empty_and_delete(directory, victim, carried, members).await;
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
        carried: Carried,
        members: Vec<(Bytes, Generation)>,
    ) -> Result<()> {
        let emptying = Emptying::new(victim, carried);
        let (mut members, mut carries, mut result) = (members.iter(), FuturesUnordered::new(), Ok(()));
        let mut in_memory = 0;
        // After an error no other object is begun, but none is dropped half-way: a copy in flight must be in the log
        // before its key is deleted.
        loop {
            while result.is_ok()
                && carries.len() < CARRIED_AT_ONCE
                && in_memory < CARRIED_BYTES_AT_ONCE
                && let Some((key, generation)) = members.next()
            {
                let bytes = self.longest_record(key);
                in_memory += bytes;
                carries.push(self.carry_counted(&emptying, key, *generation, bytes));
            }
            let Some((bytes, carried)) = carries.next().await else { break };
            in_memory -= bytes;
            result = result.and(carried);
        }
        result?;
        if victim.header.kind == SegmentKind::Log {
            self.carry_commits(victim).await?;
        }
        // What is dropped here may be evictable because of a commit that only the operating system has. That commit
        // must be durable first.
        for volume in self.volumes.iter().filter(|volume| volume.directory.failed().is_none()) {
            volume.log.barrier().await?;
        }
        let bytes = victim.length();
        directory.delete_segment(victim).await?;
        let mut counters = self.counters.lock();
        counters.reclaimed_segments += 1;
        counters.reclaimed_bytes += bytes;
        Ok(())
    }

    /// Bytes of an object that are in memory at once while it is carried. Its records may be longer than the present
    /// settings allow for an extent: pages of the read cache are.
    fn longest_record(&self, key: &[u8]) -> u64 {
        self.objects.get(key).and_then(|entry| entry.uses().map(|(_, bytes)| bytes).max()).unwrap_or(0)
    }

    /// As [`Self::carry_or_drop`]. Returns `bytes`, too.
    async fn carry_counted(
        self: &Arc<Self>,
        emptying: &Emptying,
        key: &Bytes,
        generation: Generation,
        bytes: u64,
    ) -> (u64, Result<()>) {
        (bytes, self.carry_or_drop(emptying, key, generation).await)
    }

    async fn carry_or_drop(self: &Arc<Self>, emptying: &Emptying, key: &Bytes, generation: Generation) -> Result<()> {
        let victim = emptying.victim;
        loop {
            let Some(object) = self.object(key).filter(|object| object.generation() == generation) else {
                return Ok(());
            };
            let entry = object.entry();
            let here = entry.bytes_in(victim);
            if here == 0 {
                return Ok(());
            }
            let is_kept = || emptying.carried == Carried::All || self.leaves(key, entry) != Leaves::First;
            let stays = entry.pinned || (is_kept() && emptying.take(here));
            if !stays {
                self.drop_from(victim, key, entry, here);
                continue;
            }
            match self.carry(&object, emptying).await {
                Ok(true) => {
                    self.counters.lock().carried_bytes += here;
                    return Ok(());
                }
                // The object was overwritten, evicted or made clean meanwhile: look again.
                Ok(false) => {}
                Err(error) if entry.pinned => return Err(error),
                // Others may go instead.
                Err(error) if emptying.carried == Carried::All && error.kind == ErrorKind::Full => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "a clean object could not be carried forward");
                    self.drop_from(victim, key, entry, here);
                }
            }
        }
    }

    /// Evicts what a clean object has in a segment. Without its record, the whole object goes.
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
    async fn carry(self: &Arc<Self>, object: &Object, emptying: &Emptying) -> Result<bool> {
        let (victim, entry) = (emptying.victim, object.entry());
        let mut extents = Vec::with_capacity(entry.extents().len());
        for extent in entry.extents() {
            let moved = extent.segment == victim;
            extents.push(if moved { self.carry_extent(object, extent, &emptying.kept).await? } else { *extent });
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
        // Being merged does not mean that an object is worth keeping.
        let carried = entry.carried || emptying.carried != Carried::All;
        let record = match needs_record {
            true => self.carry_record(object, &extents, carried, &emptying.kept).await?,
            false => entry.record,
        };
        Ok(self.update(object.key(), object.generation(), |entry| {
            let unchanged = same(entry);
            if unchanged {
                entry.record = record;
                entry.move_extents(extents);
                if emptying.carried != Carried::All {
                    entry.count_as_carried();
                }
            }
            unchanged
        }))
    }

    async fn carry_extent(self: &Arc<Self>, object: &Object, extent: &Extent, kept: &Mutex<Kept>) -> Result<Extent> {
        let data = object.read(ByteRange::new(extent.start, extent.end())).await?;
        let attach = (!object.is_pinned()).then(|| (object.key().to_vec(), object.generation()));
        let draft = ExtentBody { start: extent.start, attach }.draft(data);
        let kind = if object.is_pinned() { SegmentKind::Bulk } else { SegmentKind::Fill };
        let index = self.index_for_carried()?;
        let written = self.stream(index, kind).append(draft).await?;
        if object.is_pinned() {
            self.volumes[index].directory.sync_extents(&written.segment).await?;
        }
        kept.lock().keep(written.segment, written.pin);
        Ok(extent_at(extent.start, extent.bytes, written.location))
    }

    async fn carry_record(
        self: &Arc<Self>,
        object: &Object,
        extents: &[Extent],
        carried: bool,
        kept: &Mutex<Kept>,
    ) -> Result<Location> {
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
            carried,
        };
        let draft = body.draft(payload);
        let index = self.index_for_carried()?;
        if entry.pinned {
            let appended = self.volumes[index].log.append_carried(vec![draft]).await?;
            return Ok(appended.locations[0]);
        }
        let written = self.volumes[index].fill.append(draft).await?;
        let location = written.location;
        kept.lock().keep(written.segment, written.pin);
        Ok(location)
    }
}
