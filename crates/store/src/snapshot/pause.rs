//! The pause after a snapshot that failed. Each try takes room from commits and keeps the disks busy, and usually fails
//! for the same reason.

use std::time::Duration;

use forebay_env::sync::atomic::Ordering;

use crate::ErrorKind;
use crate::directory::Directory;
use crate::inner::{Inner, SnapshotPause, Volume};

/// The pause after the first failure. It doubles with each further one.
const SHORTEST: Duration = Duration::from_secs(1);

const LONGEST: Duration = Duration::from_secs(60);

impl Inner {
    /// Takes a snapshot, unless the last try failed a short while ago. `why` is for the log.
    pub(crate) async fn try_snapshot(&self, why: &str) -> bool {
        if self.is_snapshot_paused() {
            return false;
        }
        loop {
            let failed = self.failed_directories();
            let Err(error) = self.snapshot().await else { return true };
            if self.failed_directories() > failed {
                tracing::warn!(%error, why, "a directory failed during a snapshot: it is begun again without this one");
                continue;
            }
            let lacked_room = error.kind == ErrorKind::Full;
            let pause = self.pause_snapshots(lacked_room).await;
            if lacked_room {
                tracing::warn!(%error, why, ?pause, "there was no room for a snapshot: it is tried again after a pause");
            } else {
                tracing::error!(%error, why, ?pause, "no snapshot could be written: it is tried again after a pause. Check the disks");
            }
            return false;
        }
    }

    /// Whether a snapshot would leave the reserve to commits and reclaim, and the last try did not fail a short while
    /// ago.
    pub(crate) fn may_try_snapshot(&self) -> bool {
        let has_room = |directory: &Directory| self.has_room_for_snapshot(directory);
        self.healthy_directories().any(has_room) && !self.is_snapshot_paused()
    }

    pub(super) fn has_room_for_snapshot(&self, directory: &Directory) -> bool {
        directory.writable_bytes() >= self.next_snapshot_bytes() + directory.reserve_bytes()
    }

    /// More room ends the pause early, if it was room that the last try lacked.
    fn is_snapshot_paused(&self) -> bool {
        let Some(pause) = *self.snapshot_pause.lock() else { return false };
        let bytes = self.next_snapshot_bytes();
        let has_more = |directory: &Directory| {
            let wanted = |room: u64| room.saturating_add(bytes.max(directory.segment_bytes()));
            pause.room.is_some_and(|room| directory.writable_bytes() >= wanted(room))
        };
        self.env.clock.monotonic() < pause.until && !self.healthy_directories().any(has_more)
    }

    async fn pause_snapshots(&self, lacked_room: bool) -> Duration {
        for volume in &self.volumes {
            volume.directory.look_at_space().await;
        }
        let room = self.healthy_directories().map(Directory::writable_bytes).max().unwrap_or(0);
        let room = lacked_room.then_some(room);
        let mut pause = self.snapshot_pause.lock();
        let length = pause.map_or(SHORTEST, |last| (2 * last.length).min(LONGEST));
        *pause = Some(SnapshotPause { until: self.env.clock.monotonic() + length, length, room });
        length
    }

    fn next_snapshot_bytes(&self) -> u64 {
        let of_volume = |volume: &Volume| volume.directory.next_snapshot_bytes.load(Ordering::SeqCst);
        self.volumes.iter().map(of_volume).max().unwrap_or(0)
    }

    fn healthy_directories(&self) -> impl Iterator<Item = &Directory> {
        let healthy = self.volumes.iter().filter(|volume| volume.directory.failed().is_none());
        healthy.map(|volume| &*volume.directory)
    }
}
