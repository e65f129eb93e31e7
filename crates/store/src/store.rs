//! The store's interface.

use std::sync::Arc;

use bytes::Bytes;
use forebay_env::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use forebay_env::sync::{Mutex, RwLock};
use forebay_env::{Disk, Env};
use forebay_types::{Durability, Generation};
use futures::future::join_all;
use tokio::sync::Notify;
use tracing::Instrument;

use crate::damaged::Damaged;
use crate::directory::{Directory, SEGMENTS_MIN};
use crate::fills::Fills;
use crate::inner::{Inner, Volume};
use crate::log::aborted::AbortedCommits;
use crate::log::{Log, LogParts};
use crate::object::Object;
use crate::permits::Permits;
use crate::prepared::Prepared;
use crate::record::extent::ExtentBody;
use crate::record::object::{ObjectBody, extent_at};
use crate::room::demand::Demand;
use crate::room::look_at_space;
use crate::segment::SegmentKind;
use crate::stream::Stream;
use crate::table::{Row, entry_of};
use crate::writer::{Staged, Writer};
use crate::{
    Class, Commit, Counters, DamagedPlace, DirectoryHealth, Error, ErrorKind, Forgotten, GroupsLimit, Observer, Result,
    Retention, Settings, Stalled, Usage, Versioned, clean_stop, recovery,
};

/// A store, shared by clones.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

impl Store {
    /// Opens the directories, of which there must be at least one. Loads the last snapshot, replays the log from there
    /// on, and starts group commit, snapshots and reclaim.
    ///
    /// # Errors
    /// `Corrupt` when acknowledged records are damaged in a way that a crash cannot explain. `Invalid` for a format
    /// that is newer than this code (nothing is changed then), and for settings that cannot work.
    pub async fn open(
        env: Env,
        disks: Vec<Arc<dyn Disk>>,
        settings: Settings,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Self> {
        check_settings(&disks, &settings)?;
        let recovered = recovery::recover(&env, disks, &settings).await?;
        let (sequence, counters) =
            (Arc::new(AtomicU64::new(recovered.next_sequence)), Arc::<Mutex<Counters>>::default());
        let (fills, aborted) = (Arc::<Fills>::default(), Arc::<AbortedCommits>::default());
        aborted.add(recovered.aborted);
        let volume = |directory: &Arc<Directory>| {
            let stream = |kind| Stream::new(Arc::clone(directory), kind, Arc::clone(&sequence), Arc::clone(&fills));
            let log = Log::start(LogParts {
                directory: Arc::clone(directory),
                sequence: Arc::clone(&sequence),
                counters: Arc::clone(&counters),
                clock: Arc::clone(&env.clock),
                observer: observer.clone(),
                aborted: Arc::clone(&aborted),
                sync_delay: settings.sync_delay,
            });
            Volume {
                directory: Arc::clone(directory),
                log,
                bulk: stream(SegmentKind::Bulk),
                fill: stream(SegmentKind::Fill),
                permits: Permits::new(settings.write_buffer_bytes_max / recovered.directories.len() as u64),
            }
        };
        for directory in &recovered.directories {
            directory.look_at_space().await;
        }
        let volumes: Vec<Volume> = recovered.directories.iter().map(volume).collect();
        let by_number =
            volumes.iter().enumerate().map(|(index, volume)| (volume.directory.identity.number, index)).collect();
        let inner = Arc::new(Inner {
            volumes,
            by_number,
            objects: recovered.tables.objects,
            values: recovered.tables.values,
            sequence,
            fills: Arc::clone(&fills),
            aborted: Arc::clone(&aborted),
            prepared: Arc::<Prepared>::default(),
            carrying: crate::commit::carrying_locks(),
            applying: RwLock::default(),
            counters,
            damaged: Damaged::default(),
            retention: RwLock::default(),
            groups: Mutex::default(),
            pinned_bytes: AtomicU64::new(0),
            evictable_bytes: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
            maintenance: Notify::new(),
            room: Notify::new(),
            demand: Demand::default(),
            rounds: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            snapshot_at_bytes: AtomicU64::new(settings.snapshot_log_bytes),
            last_snapshot: Mutex::default(),
            snapshot_pause: Mutex::default(),
            shown_rows: AtomicU64::new(recovered.shown_rows),
            forgotten: recovered.forgotten,
            was_closed: recovered.was_closed,
            snapshot_lock: tokio::sync::Mutex::default(),
            shown_positions: Mutex::new(recovered.snapshot_positions),
            shown_sequence: AtomicU64::new(recovered.snapshot_sequence),
            settled_positions: Mutex::default(),
            settings,
            task: Mutex::default(),
            env,
        });
        inner.find_prepared(recovered.prepared);
        if !inner.account_all()
            && let Err(error) = inner.write_values_again().await
        {
            tracing::warn!(%error, "values whose log is gone could not be written again: only the snapshot has them");
        }
        if recovered.forgotten.now > 0
            && let Err(error) = inner.snapshot().await
        {
            tracing::warn!(%error, "no snapshot could be written after a directory was forgotten: what is known of it may be in one directory only");
        }
        inner.settle_logs().await;
        inner.count_replayed_log(recovered.has_changes);
        inner.expect_snapshots();
        *inner.task.lock() = Some(forebay_env::spawn(Arc::clone(&inner).maintain()));
        Ok(Self { inner })
    }

    /// Sets the policy that decides what reclaim keeps. Until it is set, reclaim keeps what was read at least once.
    pub fn set_retention(&self, retention: Arc<dyn Retention>) {
        *self.inner.retention.write() = Some(retention);
    }

    pub fn forgotten(&self) -> Forgotten {
        self.inner.forgotten
    }

    /// Whether the process before this one has closed the store. Otherwise older clean objects may be back, which that
    /// process had evicted or replaced.
    pub fn was_closed(&self) -> bool {
        self.inner.was_closed
    }

    /// A generation higher than every one before, also across restarts.
    pub fn next_generation(&self) -> Generation {
        // If a generation survives a restart, a record holds it, and that record took its sequence later. A restart
        // begins above all sequences, so above all generations, too.
        Generation(self.inner.sequence.fetch_add(1, Ordering::SeqCst))
    }

    /// Begins an object of about `size_hint` bytes. When there is no room, it waits until reclaim has evicted enough
    /// clean data. A fill waits only for a moment.
    ///
    /// # Errors
    /// `Full` when no directory has room and reclaim makes none. `NeverFits` when even an empty directory would not
    /// have room.
    pub async fn writer(&self, class: Class, size_hint: u64) -> Result<Writer> {
        self.inner.check_open()?;
        let room = self.inner.room_for(class, size_hint).await?;
        Ok(Writer::new(room, class, size_hint))
    }

    /// Applies a commit in one step. Nobody sees it before it is as durable as `durability` says, and after a crash
    /// either all of it holds or nothing. Commits that touch the same key must be awaited in sequence. Returns the
    /// version that its values have. The future must be awaited to its end: if it is dropped early, a commit may be on
    /// disk that the tables do not show.
    ///
    /// # Errors
    /// `Failed` when the disk refused the write or the sync. The directory then takes no more writes, and only a
    /// restart shows whether the commit holds. After `Full` and `Busy` it does not hold.
    pub async fn commit(&self, mut commit: Commit, durability: Durability) -> Result<u64> {
        self.commit_or_keep(&mut commit, durability).await
    }

    /// As [`Store::commit`], but a commit that fails stays in `commit` and can be retried. A commit that holds is taken
    /// out.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub async fn commit_or_keep(&self, commit: &mut Commit, durability: Durability) -> Result<u64> {
        self.inner.check_open()?;
        let span = tracing::info_span!(target: forebay_env::SPANS, "store.commit", durability = ?durability);
        self.inner.commit(commit, durability).instrument(span).await
    }

    /// Applies a commit to the tables without writing a log record. What a start needs of the commit must be recorded
    /// elsewhere. This is for a catalog that is kept elsewhere, while the local logs take no more writes. All objects
    /// of the commit must be prepared. Returns the version that its values have.
    ///
    /// # Panics
    /// When an object of the commit is not prepared.
    pub async fn commit_in_memory(&self, commit: Commit) -> u64 {
        self.inner.commit_in_memory(commit).await
    }

    /// Waits for commits that have begun to change the tables. The tables change one after the other, so a reader of
    /// both may see a commit in one of them only. A difference that is still there after this call has another cause.
    pub fn await_shown(&self) {
        drop(self.inner.applying.write());
    }

    /// Stores a clean object without waiting for the disk. A crash may lose it.
    ///
    /// # Errors
    /// `Full`, `Busy` and `Failed`.
    pub async fn publish_fill(&self, staged: Staged) -> Result<()> {
        self.inner.check_open()?;
        let body = ObjectBody { stands_alone: true, ..staged.body.clone() };
        let draft = body.draft(staged.payload.clone());
        let bytes = draft.total_bytes() as u64 + body.extents.iter().map(|extent| u64::from(extent.bytes)).sum::<u64>();
        let written = self.inner.append_in_time(staged.directory, SegmentKind::Fill, draft, None).await?;
        self.inner.insert(entry_of(&body, written.location, staged.is_inline));
        drop(written.unapplied);
        self.inner.filled(bytes);
        Ok(())
    }

    /// Adds bytes that a sparse clean object lacks. `false` when the object is gone, has another generation, or has
    /// these bytes already.
    ///
    /// # Errors
    /// `Full`, `Busy` and `Failed`.
    pub async fn fill(&self, key: &[u8], generation: Generation, offset: u64, data: Bytes) -> Result<bool> {
        self.inner.check_open()?;
        let directory = self.inner.roomiest()?;
        if !self.inner.has_room(directory, data.len() as u64) {
            self.inner.maintenance.notify_one();
            return Err(Error::new(ErrorKind::Full, "no room for a fill"));
        }
        let permit = self.inner.permit_in_time(directory, data.len()).await?;
        let bytes = data.len() as u32;
        let attach = Some((key.to_vec(), generation));
        let draft = ExtentBody { start: offset, attach }.draft(data);
        let written = self.inner.append_in_time(directory, SegmentKind::Fill, draft, Some(permit)).await?;
        let added = self.inner.attach(key, generation, extent_at(offset, bytes, written.location));
        drop(written.unapplied);
        self.inner.filled(u64::from(bytes));
        Ok(added)
    }

    /// The object under `key`. This counts as a read for [`crate::Access`].
    pub fn get(&self, key: &[u8]) -> Option<Object> {
        let object = self.inner.object(key)?;
        object.note_read();
        Some(object)
    }

    /// Like [`Store::get`] without counting as a read.
    pub fn peek(&self, key: &[u8]) -> Option<Object> {
        self.inner.object(key)
    }

    /// Drops a clean object. `false` when it is gone, is pinned or has another generation.
    pub fn evict(&self, key: &[u8], generation: Generation) -> bool {
        self.inner.remove(key, |entry| !entry.pinned && entry.generation == generation).is_some()
    }

    /// Visits all objects, in no order: key, generation, and whether it is pinned. For checks at start and for tools.
    pub fn for_each_object(&self, visit: &mut dyn FnMut(&[u8], Generation, bool)) {
        (0..self.shards()).for_each(|shard| self.for_each_object_in(shard, visit));
    }

    /// Number of shards of the object index.
    pub fn shards(&self) -> usize {
        self.inner.objects.shards().count()
    }

    /// As [`Store::for_each_object`], for one shard of the index, which takes no writes meanwhile. A shard that does
    /// not exist has no objects.
    pub fn for_each_object_in(&self, shard: usize, visit: &mut dyn FnMut(&[u8], Generation, bool)) {
        if let Some(shard) = self.inner.objects.shards().nth(shard) {
            shard.read().iter().for_each(|entry| visit(entry.key(), entry.generation, entry.pinned));
        }
    }

    /// The value under `key`.
    pub fn value(&self, key: &[u8]) -> Option<Versioned> {
        self.inner.values.get(key, versioned)
    }

    /// Values with `from <= key < to` in order, at most `limit`.
    pub fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Versioned)> {
        self.inner.values.scan(from, to, limit, |row| (Bytes::copy_from_slice(row.key()), versioned(row)))
    }

    /// Bytes on disk of the clean and pinned objects in an accounting group.
    pub fn group_bytes(&self, group: u32) -> u64 {
        self.inner.groups.lock().get(&group).map_or(0, |group| group.all)
    }

    /// Evicts clean objects of groups that exceed a limit, least recently used first, until they are at its target or
    /// none is left. The limits count one after the other. Returns the evicted bytes.
    pub async fn evict_groups(&self, limits: &[GroupsLimit]) -> u64 {
        self.inner.evict_groups(limits).await
    }

    /// Assigns an object to another group, if it still has this generation.
    pub fn set_group(&self, key: &[u8], generation: Generation, group: u32) {
        self.inner.set_group(key, generation, group);
    }

    /// Assigns all objects to groups again. Those that are added meanwhile may be left out.
    pub async fn regroup(&self, group_of: &(dyn Fn(&[u8]) -> u32 + Sync)) {
        self.inner.regroup(group_of).await;
    }

    pub fn usage(&self) -> Usage {
        let sum = |of: fn(&Directory) -> u64| self.inner.volumes.iter().map(|volume| of(&volume.directory)).sum();
        Usage {
            capacity_bytes: sum(Directory::segment_bytes_max),
            pinned_bytes: self.inner.pinned_bytes.load(Ordering::SeqCst),
            evictable_bytes: self.inner.evictable_bytes.load(Ordering::SeqCst),
            free_bytes: sum(Directory::free_bytes),
            unavailable_bytes: sum(Directory::unavailable_bytes),
            held_bytes: sum(Directory::held_bytes),
            objects: self.inner.objects.count.load(Ordering::Relaxed),
            values: self.inner.values.len() as u64,
        }
    }

    pub fn stalled(&self) -> Stalled {
        let healthy = self.inner.volumes.iter().filter(|volume| volume.directory.failed().is_none());
        let (mut stalled, mut others) = (0, 0);
        for volume in healthy {
            *(if volume.directory.unanswered.is_stalled() { &mut stalled } else { &mut others }) += 1;
        }
        match (stalled, others) {
            (0, _) => Stalled::Nowhere,
            (_, 0) => Stalled::Everywhere,
            (_, _) => Stalled::Somewhere,
        }
    }

    pub fn counters(&self) -> Counters {
        self.inner.counters.lock().clone()
    }

    /// Where bytes were found damaged last, since the start.
    pub fn last_damaged(&self) -> Option<DamagedPlace> {
        self.inner.damaged.last()
    }

    pub fn health(&self) -> Vec<DirectoryHealth> {
        self.inner.volumes.iter().map(|volume| volume.directory.health()).collect()
    }

    /// Checks again how much room others have left on the file systems. One that does not answer delays the end of
    /// this, but not the checks of the others.
    pub async fn look_at_space(&self) {
        join_all(self.inner.volumes.iter().map(|volume| look_at_space(&volume.directory))).await;
    }

    /// Finishes what is in flight, writes a snapshot and stops. Later calls fail with `Closed`.
    ///
    /// # Errors
    /// `Failed` and `Full` when the snapshot could not be written. Nothing is lost, but the next start takes longer.
    pub async fn close(&self) -> Result<()> {
        let inner = &self.inner;
        if inner.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        inner.maintenance.notify_one();
        let task = inner.task.lock().take();
        if let Some(task) = task {
            task.join().await;
        }
        for volume in &inner.volumes {
            volume.fill.seal().await;
        }
        let result = inner.snapshot().await;
        for volume in &inner.volumes {
            volume.log.close().await;
        }
        if result.is_ok() && inner.is_all_shown() {
            for volume in &inner.volumes {
                let disk = volume.directory.disk.as_ref();
                if let Err(error) = clean_stop::mark(disk).await {
                    tracing::warn!(directory = disk.label(), %error, "could not record the clean stop: if a data directory is missing at the next start, that start assumes a crash");
                }
            }
        }
        result
    }
}

impl Inner {
    /// Whether the last snapshot, which this process has written, covers everything that is in the logs.
    fn is_all_shown(&self) -> bool {
        self.failed_directories() == 0 && !self.has_news()
    }

    fn filled(&self, bytes: u64) {
        self.counters.lock().filled_bytes += bytes;
        if self.wants_reclaim() {
            self.maintenance.notify_one();
        }
    }
}

fn versioned(row: &Row) -> Versioned {
    Versioned { value: Bytes::copy_from_slice(row.value()), version: row.version }
}

fn check_settings(disks: &[Arc<dyn Disk>], settings: &Settings) -> Result<()> {
    let invalid = |problem: String| Err(Error::new(ErrorKind::Invalid, problem));
    if disks.is_empty() || disks.len() != settings.capacity_bytes.len() {
        return invalid(format!("{} directories have {} capacities", disks.len(), settings.capacity_bytes.len()));
    }
    let least = SEGMENTS_MIN * settings.segment_bytes;
    if let Some(capacity) = settings.capacity_bytes.iter().find(|capacity| **capacity < least) {
        return invalid(format!(
            "a directory of {capacity} bytes is too small: it must hold {SEGMENTS_MIN} segments, {least} bytes"
        ));
    }
    let lengths = settings.lengths();
    if lengths.most > 1 << 30 || lengths.most < lengths.least {
        return invalid("a segment must hold at least two extents and at most 1 GiB".to_owned());
    }
    Ok(())
}
