//! The pause after a snapshot that failed. Each try takes room from commits and keeps the disks busy, and usually fails
//! for the same reason.

use std::time::Duration;

use forebay_env::sync::atomic::Ordering;

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
        let Err(error) = self.snapshot().await else { return true };
        let pause = self.pause_snapshots().await;
        tracing::warn!(%error, why, ?pause, "no snapshot could be written: it is tried again after a pause");
        false
    }

    /// Whether a snapshot would leave the reserve to commits and reclaim, and the last try did not fail a short while
    /// ago.
    pub(crate) fn may_try_snapshot(&self) -> bool {
        let bytes = self.next_snapshot_bytes();
        let has_room = |directory: &Directory| directory.writable_bytes() >= bytes + directory.reserve_bytes();
        self.healthy_directories().any(has_room) && !self.is_snapshot_paused()
    }

    /// More room ends the pause early.
    fn is_snapshot_paused(&self) -> bool {
        let Some(pause) = *self.snapshot_pause.lock() else { return false };
        let bytes = self.next_snapshot_bytes();
        let has_more = |directory: &Directory| {
            directory.writable_bytes() >= pause.room.saturating_add(bytes.max(directory.segment_bytes()))
        };
        self.env.clock.monotonic() < pause.until && !self.healthy_directories().any(has_more)
    }

    async fn pause_snapshots(&self) -> Duration {
        for volume in &self.volumes {
            volume.directory.look_at_space().await;
        }
        let room = self.healthy_directories().map(Directory::writable_bytes).max().unwrap_or(0);
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
