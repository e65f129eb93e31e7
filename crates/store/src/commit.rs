//! Commits: append records to a log, then change the tables.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_env::sync::atomic::Ordering;
use forebay_types::Durability;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::ids::SegmentKey;
use crate::inner::Inner;
use crate::log::Until;
use crate::prepared::PreparedEntry;
use crate::record::commit::{AnnotationBody, CommitBody, WriteBody};
use crate::record::location::Location;
use crate::writer::Staged;
use crate::{Commit, Result};

/// Number of locks in [`Inner::carrying`].
const CARRYING_LOCKS: usize = 64;

/// How often reclaim checks whether a disk has stalled while it waits for a lock.
const STALL_CHECK: Duration = Duration::from_secs(1);

/// How long reclaim waits before it tries a lock again while a disk is stalled.
const CARRYING_RETRY: Duration = Duration::from_millis(20);

/// The locks of [`Inner::carrying`].
pub(crate) fn carrying_locks() -> Vec<RwLock<()>> {
    (0..CARRYING_LOCKS).map(|_| RwLock::default()).collect()
}

impl Inner {
    pub(crate) async fn commit(&self, commit: &mut Commit, durability: Durability) -> Result<u64> {
        let until = match durability {
            Durability::Os => Until::Written,
            Durability::Fsync if commit.may_wait => Until::SyncedSoon,
            Durability::Fsync => Until::Synced,
        };
        if durability == Durability::Fsync {
            self.sync_extents(&commit.publish).await?;
        }
        let directory = self.directory_of(&commit.publish)?;
        let _uncarried = self.uncarried(commit).await;
        let unprepared = commit.publish.iter().filter(|staged| staged.prepared.is_none());
        let mut drafts: Vec<_> = unprepared.map(|staged| staged.body.draft(staged.payload.clone())).collect();
        let body = body_of(commit);
        drafts.push(body.draft());
        let change_bytes = body.change_bytes();
        // The body need not stay in memory while the commit waits for its sync.
        drop(body);
        let appended = self.volumes[directory].log.append(drafts, until).await?;
        let version = *appended.sequences.last().expect("a commit has a record");
        let log_segment = appended.locations.last().expect("a commit has a record").segment;
        self.apply(std::mem::take(commit), &appended.locations, version, log_segment);
        self.count_changes(log_segment, change_bytes);
        drop(appended.applying);
        self.counters.lock().commits += 1;
        self.note_log();
        Ok(version)
    }

    /// Applies a commit without writing it to a log. Returns its version.
    ///
    /// # Panics
    /// When an object of the commit is not prepared.
    pub(crate) async fn commit_in_memory(&self, commit: Commit) -> u64 {
        let _uncarried = self.uncarried(&commit).await;
        let version = self.sequence.fetch_add(1, Ordering::SeqCst);
        // No segment has this number. A start that finds it in a snapshot writes the value again.
        let nowhere = SegmentKey { directory: self.volumes[0].directory.identity.number, number: 0 };
        self.apply(commit, &[], version, nowhere);
        version
    }

    /// Changes the tables, one after the other: see [`Inner::applying`].
    pub(crate) fn apply(&self, commit: Commit, locations: &[Location], version: u64, log_segment: SegmentKey) {
        let _applying = self.applying.read();
        let mut locations = locations.iter();
        for staged in &commit.publish {
            let prepared = staged.prepared.as_ref().map(PreparedEntry::location);
            let written =
                || *locations.next().expect("each object that was not prepared has a record in front of the commit");
            self.insert(staged.entry(prepared.unwrap_or_else(written)));
        }
        for key in &commit.forget {
            self.remove(key, |_| true);
        }
        for annotation in commit.annotate {
            self.annotate(&annotation.key, annotation.generation, &annotation.annex, annotation.pinned);
        }
        self.write_values(commit.writes, version, log_segment);
    }

    /// The directory whose log takes a commit. Its objects decide: their records must be in the same log. Prepared
    /// objects are in a log already, so their commit can go to any.
    fn directory_of(&self, publish: &[Staged]) -> Result<usize> {
        if let Some(staged) = publish.iter().find(|staged| staged.prepared.is_none()) {
            return Ok(staged.directory);
        }
        let first = publish.first().map(|staged| staged.directory);
        let healthy = first.filter(|index| self.volumes[*index].directory.failed().is_none());
        healthy.map_or_else(|| self.roomiest(), Ok)
    }

    fn carrying(&self, key: &[u8]) -> usize {
        self.objects.hash(key) as usize % self.carrying.len()
    }

    /// Waits until reclaim carries none of the keys that a commit changes in place, and keeps reclaim away from them
    /// while the guards are held.
    pub(crate) async fn uncarried(&self, commit: &Commit) -> Vec<RwLockReadGuard<'_, ()>> {
        let keys = commit.forget.iter().chain(commit.annotate.iter().map(|annotation| &annotation.key));
        // Sorted and without duplicates, so that two commits cannot deadlock.
        let locks: BTreeSet<usize> = keys.map(|key| self.carrying(key)).collect();
        let mut guards = Vec::with_capacity(locks.len());
        for lock in locks {
            guards.push(self.carrying[lock].read().await);
        }
        guards
    }

    /// Waits until no commit changes this key in place, and keeps commits away from it while the guard is held. While a
    /// disk is stalled, it does not queue: later commits would wait behind it for that disk, wherever they go.
    pub(crate) async fn carry_lock(&self, key: &[u8]) -> RwLockWriteGuard<'_, ()> {
        let lock = &self.carrying[self.carrying(key)];
        loop {
            if let Ok(guard) = lock.try_write() {
                return guard;
            }
            if let Some(guard) = self.queue_to_carry(lock).await {
                return guard;
            }
            self.env.clock.sleep(CARRYING_RETRY).await;
        }
    }

    /// Waits in the queue of a lock. `None` when a disk is stalled.
    async fn queue_to_carry<'a>(&self, lock: &'a RwLock<()>) -> Option<RwLockWriteGuard<'a, ()>> {
        let mut queued = std::pin::pin!(lock.write());
        while !self.volumes.iter().any(|volume| volume.directory.unanswered.is_stalled()) {
            let pause = self.env.clock.sleep(STALL_CHECK);
            tokio::select! { biased; guard = &mut queued => return Some(guard), () = pause => {} }
        }
        None
    }

    /// Returns when the extents of these objects are on stable storage.
    pub(crate) async fn sync_extents(&self, publish: &[Staged]) -> Result<()> {
        for segment in publish.iter().flat_map(|staged| &staged.kept.segments) {
            let volume = self.by_number.get(&segment.key().directory).map(|index| &self.volumes[*index]);
            volume.expect("a segment's directory is open").directory.sync_extents(segment).await?;
        }
        Ok(())
    }
}

pub(crate) fn body_of(commit: &Commit) -> CommitBody {
    let annotate = commit.annotate.iter().map(|annotation| AnnotationBody {
        key: annotation.key.to_vec(),
        generation: annotation.generation,
        annex: annotation.annex.to_vec(),
        pinned: annotation.pinned,
    });
    let writes = commit
        .writes
        .iter()
        .map(|write| WriteBody { key: write.key.to_vec(), value: write.value.as_ref().map(|value| value.to_vec()) });
    CommitBody {
        publish: commit.publish.iter().map(|staged| (staged.key.to_vec(), staged.generation())).collect(),
        forget: commit.forget.iter().map(|key| key.to_vec()).collect(),
        annotate: annotate.collect(),
        writes: writes.collect(),
        as_of: None,
    }
}
