//! Room for writers: what they are promised, how they wait for it, and how reclaim learns how much they want.

pub(crate) mod demand;

use std::sync::Arc;
use std::time::Duration;

use forebay_env::sync::atomic::Ordering;

use crate::directory::Directory;
use crate::inner::Inner;
use crate::reclaim::worth::is_worth_reclaiming;
use crate::segment::Segment;
use crate::{Class, Error, ErrorKind, Result, Shortage};

/// How long a writer waits while the room does not grow. Longer than a slow disk takes for a segment or a snapshot, and
/// shorter than clients wait for an answer.
const STALLED_MAX: Duration = Duration::from_secs(10);

/// The same for a fill: a client reads meanwhile, and needs no copy here.
const STALLED_MAX_OF_FILLS: Duration = Duration::from_millis(100);

/// A writer gives up after this many rounds of reclaim in which no segment came back. The first may have begun before
/// the writer asked.
const IDLE_ROUNDS: u64 = 2;

/// A writer gives up after this many rounds without more room than before. What comes back in a round may go to other
/// writers, or to what is carried forward.
const FRUITLESS_ROUNDS: u64 = 16;

/// Room in a directory that is promised to one writer. Others do not get it before it is written or given up. Otherwise
/// many uploads at once would all find the same room.
pub(crate) struct Room {
    pub(crate) inner: Arc<Inner>,
    pub(crate) directory: usize,
    /// Promised bytes that are not written yet.
    promised_bytes: u64,
}

impl Room {
    /// Room without a promise, for an object that fits into one record: its commit writes that.
    pub(crate) fn unpromised(inner: Arc<Inner>, directory: usize) -> Self {
        Self { inner, directory, promised_bytes: 0 }
    }

    /// `bytes` are being written, and count as used from now on.
    pub(crate) fn begin_write(&mut self, bytes: u64) {
        let bytes = bytes.min(self.promised_bytes);
        self.promised_bytes -= bytes;
        *self.inner.volumes[self.directory].directory.promised_bytes.lock() -= bytes;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.promised_bytes > 0 {
            self.begin_write(self.promised_bytes);
            self.inner.room.notify_waiters();
        }
    }
}

/// What a waiting writer has seen of reclaim.
struct Progress {
    most_free: u64,
    reclaimed_segments: u64,
    /// Number of rounds that had ended when there was more room than ever before.
    grown_in: u64,
    /// Number of rounds that had ended when the last segment came back.
    reclaimed_in: u64,
    stalled_max: Duration,
    deadline: Duration,
}

impl Progress {
    fn new(inner: &Inner, stalled_max: Duration) -> Self {
        let most_free = inner.most_free();
        let reclaimed_segments = inner.counters.lock().reclaimed_segments;
        // Read last, so that a round that ends meanwhile does not count as one without progress.
        let rounds = inner.rounds.load(Ordering::SeqCst);
        Self {
            most_free,
            reclaimed_segments,
            grown_in: rounds,
            reclaimed_in: rounds,
            stalled_max,
            deadline: inner.env.clock.monotonic() + stalled_max,
        }
    }

    /// How much longer to wait. `None` when waiting is in vain.
    fn time_left(&mut self, inner: &Inner) -> Option<Duration> {
        // Read before looking at the room: a round that ends meanwhile must not count without what it freed.
        let rounds = inner.rounds.load(Ordering::SeqCst);
        let (free, now) = (inner.most_free(), inner.env.clock.monotonic());
        let reclaimed_segments = inner.counters.lock().reclaimed_segments;
        // Read after it: what was seen may come from any round that has ended by now.
        let seen_in = inner.rounds.load(Ordering::SeqCst);
        if free > self.most_free {
            (self.most_free, self.grown_in, self.deadline) = (free, seen_in, now + self.stalled_max);
        }
        if reclaimed_segments > self.reclaimed_segments {
            (self.reclaimed_segments, self.reclaimed_in) = (reclaimed_segments, seen_in);
        }
        let is_idle = rounds >= self.grown_in.max(self.reclaimed_in) + IDLE_ROUNDS;
        let is_fruitless = rounds >= self.grown_in + FRUITLESS_ROUNDS;
        let left = self.deadline.saturating_sub(now);
        (!is_idle && !is_fruitless && !left.is_zero()).then_some(left)
    }
}

impl Inner {
    /// Room for `bytes`. Waits for reclaim as long as reclaim makes progress.
    ///
    /// # Errors
    /// `Full` when no directory has room and reclaim makes none. `NeverFits` when even an empty directory would not
    /// have room.
    pub(crate) async fn room_for(self: &Arc<Self>, class: Class, bytes: u64) -> Result<Room> {
        if let Some(room) = self.take_room(bytes)? {
            return Ok(room);
        }
        // One copy is no reason to evict others: a fill takes only room that reclaim makes anyway.
        let (_wish, stalled_max) = match class {
            Class::Durable => (Some(self.demand.add(bytes)), STALLED_MAX),
            Class::Fill => (None, STALLED_MAX_OF_FILLS),
        };
        let mut progress = Progress::new(self, stalled_max);
        loop {
            // Registered before looking at the room, so that no later change is missed.
            let changed = self.room.notified();
            if let Some(room) = self.take_room(bytes)? {
                return Ok(room);
            }
            self.check_open()?;
            let Some(left) = progress.time_left(self) else {
                let error = self.no_room(bytes);
                self.counters.lock().refused_full +=
                    u64::from(class == Class::Durable && error.kind == ErrorKind::Full);
                return Err(error);
            };
            self.maintenance.notify_one();
            let stuck = self.env.clock.sleep(left);
            tokio::select! { biased; () = changed => {}, () = stuck => {} }
        }
    }

    fn no_room(&self, bytes: u64) -> Error {
        let most = self.volumes.iter().map(|volume| volume.directory.room_when_empty()).max().unwrap_or(0);
        if bytes > most {
            let context = format!(
                "{bytes} bytes are more than the {most} that a data directory can hold: use smaller parts, or raise store.size"
            );
            return Error::new(ErrorKind::NeverFits, context);
        }
        let short: Vec<String> = self.volumes.iter().filter_map(|volume| shortage_of(&volume.directory)).collect();
        let why = match short.len() {
            0 => "the cache's disks are full, and nothing that may leave them has left in time".to_owned(),
            _ => format!("no space left on device (ENOSPC): {}", short.join(", and ")),
        };
        Error::new(ErrorKind::Full, why)
    }

    /// Takes room in the roomiest directory that has enough. Directories count as equal when they differ by a part of a
    /// segment, so another one than the roomiest may have it.
    fn take_room(self: &Arc<Self>, bytes: u64) -> Result<Option<Room>> {
        let roomiest = self.roomiest()?;
        let mut order = std::iter::once(roomiest).chain(0..self.volumes.len());
        let promised_bytes = if bytes > self.settings.inline_bytes_max { bytes } else { 0 };
        let taken = order.find(|index| self.take_room_of(*index, bytes, promised_bytes));
        Ok(taken.map(|directory| Room { inner: Arc::clone(self), directory, promised_bytes }))
    }

    /// Promises bytes of a directory if it has room.
    fn take_room_of(&self, index: usize, bytes: u64, promised_bytes: u64) -> bool {
        let directory = &self.volumes[index].directory;
        let mut promised = directory.promised_bytes.lock();
        let has_room = self.leaves_reserve(directory, bytes.saturating_add(*promised));
        if has_room {
            *promised += promised_bytes;
        }
        has_room
    }

    /// Whether a directory takes writes and has room for `bytes`.
    pub(crate) fn has_room(&self, index: usize, bytes: u64) -> bool {
        self.take_room_of(index, bytes, 0)
    }

    fn leaves_reserve(&self, directory: &Directory, bytes: u64) -> bool {
        directory.free_bytes() >= directory.reserve_bytes().saturating_add(bytes) && directory.failed().is_none()
    }

    fn most_free(&self) -> u64 {
        let healthy = self.volumes.iter().filter(|volume| volume.directory.failed().is_none());
        healthy.map(|volume| volume.directory.unpromised_bytes()).max().unwrap_or(0)
    }

    /// Whether a writer waits for more room than any directory has, and this directory is the nearest of those that can
    /// give it. A wish that no directory can fulfil does not count: it would evict everything for nothing.
    pub(crate) fn is_asked_for(&self, index: usize) -> bool {
        if !self.demand.are_some() {
            return false;
        }
        let rooms: Vec<u64> = self.volumes.iter().map(|volume| self.room_at_most(&volume.directory)).collect();
        let most = rooms.iter().copied().max().unwrap_or(0);
        let Some(wish) = self.demand.largest(most) else { return false };
        let able = (0..rooms.len()).filter(|at| rooms[*at] >= wish);
        let nearest = able.max_by_key(|at| self.volumes[*at].directory.unpromised_bytes());
        nearest == Some(index) && !(0..rooms.len()).any(|at| self.has_room(at, wish))
    }

    /// The most room that a writer can get in a directory when reclaim has done all it can. This is an estimate: it
    /// counts everything in sealed segments that is not needed, although reclaim also carries deletes and what is worth
    /// keeping.
    fn room_at_most(&self, directory: &Directory) -> u64 {
        if directory.failed().is_some() {
            return 0;
        }
        let given = reclaimable_bytes(directory, u64::MAX);
        let promised = *directory.promised_bytes.lock();
        directory.free_without(given + directory.held_bytes()).saturating_sub(promised + directory.reserve_bytes())
    }
}

/// What sealed segments hold that is not needed, of those that reclaim can empty with this much room for what it
/// carries.
fn reclaimable_bytes(directory: &Directory, room: u64) -> u64 {
    let segments = directory.segments.read();
    let may_go = |segment: &&Arc<Segment>| {
        segment.is_sealed() && !segment.is_pinned() && !segment.is_stuck() && is_worth_reclaiming(segment)
    };
    let victims = segments.values().filter(may_go).filter(|segment| segment.needed_bytes(true) <= room);
    victims.map(|segment| segment.length().saturating_sub(segment.needed_bytes(false))).sum()
}

/// Asks the file system of a directory how much room is left, and notes whether that is too little.
pub(crate) async fn look_at_space(directory: &Directory) {
    directory.look_at_space().await;
    directory.note_shortage(reclaimable_bytes(directory, directory.free_bytes()) + directory.held_bytes());
}

/// Why a directory has less room than the settings say.
fn shortage_of(directory: &Directory) -> Option<String> {
    let (label, left) = (directory.disk.label(), directory.writable_bytes());
    Some(match directory.limited_by()? {
        Shortage::Others => format!("others fill the file system of {label} ({left} bytes left)"),
        Shortage::SmallDisk => format!("store.size is larger than the file system of {label} ({left} bytes left)"),
    })
}
