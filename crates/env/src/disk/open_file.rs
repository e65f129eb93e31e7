//! An open file of a real disk. Its data is written out in the background, behind its writers, and its space is freed
//! in steps once it has no name. Both keep the syncs of other files fast: these share the disk and the journal of its
//! file system.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

/// When this many bytes are not synced, they are written out in the background. The kernel would leave them until a
/// tenth of its memory is dirty, and then write gigabytes at once while every sync waits. docs/performance.md has the
/// measurements behind this number and the next two.
const BEHIND_BYTES: u64 = 1 << 20;

/// A file without a name frees this much at a time. ext4 tells the disk about all freed blocks (`discard`) while a
/// commit of its journal waits, and every sync waits for that commit.
const FREED_BYTES: u64 = 8 << 20;

/// The pause between two steps, and the number of waiting files from which on there is no pause: room must come back as
/// fast as it is needed.
const FREE_PAUSE: Duration = Duration::from_millis(10);
const FREE_HURRY: usize = 2;

/// A file, and what is known of its syncs.
pub(super) struct OpenFile {
    pub(super) file: File,
    /// Bytes written since the last sync began.
    unsynced_bytes: AtomicU64,
    /// Whether a task is writing them out.
    is_behind: AtomicBool,
    /// Whether a sync has failed. The kernel reports a failure to one caller only, and the others must not be told that
    /// all is well. A sync holds the lock.
    failed: Mutex<bool>,
    freeing: Arc<Freeing>,
}

impl OpenFile {
    pub(super) fn new(file: File, freeing: &Arc<Freeing>) -> Arc<Self> {
        Arc::new(Self {
            file,
            unsynced_bytes: AtomicU64::new(0),
            is_behind: AtomicBool::new(false),
            failed: Mutex::new(false),
            freeing: Arc::clone(freeing),
        })
    }

    /// Brings what was written to stable storage.
    ///
    /// # Errors
    /// When this or an earlier sync failed, including one that nobody waited for.
    pub(super) fn sync(&self) -> io::Result<()> {
        let mut failed = self.failed.lock();
        if *failed {
            return Err(io::Error::other("could not sync: an earlier sync of this file failed"));
        }
        self.unsynced_bytes.store(0, Ordering::SeqCst);
        let synced = self.file.sync_data();
        *failed = synced.is_err();
        // Whatever the cause, nobody may take this for a write that found no room.
        synced.map_err(|error| io::Error::other(format!("could not sync: {error}")))
    }

    /// Counts written bytes that are not synced. When there are enough, a task writes them out.
    pub(super) fn written(self: &Arc<Self>, bytes: u64) {
        self.unsynced_bytes.fetch_add(bytes, Ordering::SeqCst);
        if self.begins_behind()
            && let Ok(runtime) = Handle::try_current()
        {
            let file = Arc::clone(self);
            runtime.spawn_blocking(move || file.write_behind());
        }
    }

    fn begins_behind(&self) -> bool {
        self.unsynced_bytes.load(Ordering::SeqCst) >= BEHIND_BYTES && !self.is_behind.swap(true, Ordering::SeqCst)
    }

    fn write_behind(&self) {
        loop {
            if let Err(error) = self.sync() {
                // A caller that relies on these bytes calls `sync`, and gets the error. It is not retried.
                tracing::warn!(%error, "could not sync a file in the background: every later sync of it fails");
                return;
            }
            self.is_behind.store(false, Ordering::SeqCst);
            if !self.begins_behind() {
                return;
            }
        }
    }
}

/// Files of a disk that have lost their name, and whose space is being freed.
#[derive(Default)]
pub(super) struct Freeing {
    state: Mutex<FreeingState>,
}

#[derive(Default)]
struct FreeingState {
    files: VecDeque<File>,
    is_running: bool,
}

impl Freeing {
    fn add(self: &Arc<Self>, file: File, runtime: &Handle) {
        let mut state = self.state.lock();
        state.files.push_back(file);
        if !std::mem::replace(&mut state.is_running, true) {
            let freeing = Arc::clone(self);
            runtime.spawn_blocking(move || freeing.run());
        }
    }

    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            let Some(file) = state.files.pop_front() else {
                state.is_running = false;
                return;
            };
            drop(state);
            self.free(&file);
        }
    }

    fn free(&self, file: &File) {
        let mut length = file.metadata().map_or(0, |metadata| metadata.len());
        while length > 0 {
            length = length.saturating_sub(FREED_BYTES);
            // The rest is freed with the file itself.
            if file.set_len(length).is_err() {
                return;
            }
            if self.state.lock().files.len() < FREE_HURRY {
                #[expect(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
                std::thread::sleep(FREE_PAUSE);
            }
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let is_removed = |metadata: &std::fs::Metadata| metadata.nlink() == 0 && metadata.len() > FREED_BYTES;
        if self.file.metadata().is_ok_and(|metadata| is_removed(&metadata))
            && let Ok(runtime) = Handle::try_current()
            && let Ok(file) = self.file.try_clone()
        {
            self.freeing.add(file, &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(directory: &std::path::Path) -> Arc<OpenFile> {
        let file = File::options().read(true).write(true).create_new(true).open(directory.join("file")).unwrap();
        OpenFile::new(file, &Arc::default())
    }

    async fn until(is_done: impl Fn() -> bool) {
        while !is_done() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_nobody_syncs_is_written_out_behind_its_writers() {
        let directory = tempfile::tempdir().unwrap();
        let file = open(directory.path());
        file.written(BEHIND_BYTES - 1);
        assert!(!file.is_behind.load(Ordering::SeqCst), "too little to be worth a sync");
        file.written(1);
        until(|| !file.is_behind.load(Ordering::SeqCst)).await;
        assert_eq!(file.unsynced_bytes.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_failure_that_nobody_waited_for_is_told_to_whoever_syncs_next() {
        let directory = tempfile::tempdir().unwrap();
        // A pipe takes no syncs.
        let (_reader, pipe) = std::io::pipe().unwrap();
        let file = OpenFile::new(File::from(std::os::fd::OwnedFd::from(pipe)), &Arc::default());
        file.written(BEHIND_BYTES);
        until(|| file.failed.try_lock().is_some_and(|failed| *failed)).await;
        file.written(BEHIND_BYTES);
        until(|| Arc::strong_count(&file) == 1).await;
        let error = file.sync().unwrap_err();
        assert!(error.to_string().contains("an earlier sync of this file failed"), "{error}");
        drop(directory);
    }

    #[tokio::test]
    async fn a_file_without_a_name_is_given_back_by_and_by() {
        let directory = tempfile::tempdir().unwrap();
        let file = open(directory.path());
        let seen = file.file.try_clone().unwrap();
        file.file.set_len(3 * FREED_BYTES + 1).unwrap();
        drop(file);
        assert_eq!(seen.metadata().unwrap().len(), 3 * FREED_BYTES + 1, "it still has its name");
        let file = OpenFile::new(seen.try_clone().unwrap(), &Arc::default());
        std::fs::remove_file(directory.path().join("file")).unwrap();
        drop(file);
        until(|| seen.metadata().unwrap().len() == 0).await;
    }
}
