//! One directory of a disk, and the files in it.
//!
//! [`real::RealDisk`] is a directory of the machine. [`memory::MemoryDisk`] loses, tears and corrupts data on demand.
//! Both run the suite in [`conformance`].

mod buffers;
pub mod conformance;
pub mod memory;
mod open_file;
pub mod real;

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

/// Bytes of the file system that holds a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    pub total: u64,
    /// Bytes that an unprivileged process may still write.
    pub free: u64,
}

/// One flat directory: names hold no `/`. Files are created with mode 0600 and never follow symbolic links.
#[async_trait]
pub trait Disk: Send + Sync + 'static {
    /// Creates a file that must not exist yet. The file survives a power cut only after [`Disk::sync_directory`]. An
    /// error of the kind `ResourceBusy` means that no file descriptor was left: nothing has changed, and a retry may
    /// work.
    async fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file that exists, for reading and writing.
    async fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Names of all files, in no order.
    async fn list(&self) -> io::Result<Vec<String>>;
    /// Removes a name. An open handle can still read the bytes. When it is closed, the bytes go, also for other handles
    /// of the same file.
    async fn remove(&self, name: &str) -> io::Result<()>;
    /// Replaces `to` with `from` in one step.
    async fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Returns when all creations, removals and renames so far survive a power cut. An error has the kind `Other`, as
    /// with [`DiskFile::write_at`].
    async fn sync_directory(&self) -> io::Result<()>;
    /// # Errors
    /// `NotFound` when the directory is not where it was: what is written to it may be lost.
    async fn space(&self) -> io::Result<DiskSpace>;
    /// The name that operators know: the path of a real directory.
    fn label(&self) -> String;
}

/// An open file.
#[async_trait]
#[expect(clippy::len_without_is_empty, reason = "the length of a file may fail, and nobody asks whether it is 0")]
pub trait DiskFile: Send + Sync + 'static {
    /// Writes all of `data`, one buffer after the other, starting at `offset`. With `sync`, it returns when these bytes
    /// and everything that was written to the file before survive a power cut (`fdatasync`). After an error, the
    /// contents of the file from `offset` on are undefined. A failed sync must never be retried. Its error has the kind
    /// `Other`, whatever the cause, so that nobody takes it for a write that found no room.
    async fn write_at(&self, offset: u64, data: Vec<Bytes>, sync: bool) -> io::Result<()>;
    /// Reads `length` bytes, or fewer where the file ends.
    async fn read_at(&self, offset: u64, length: usize) -> io::Result<Bytes>;
    /// `fdatasync`: returns when everything that was written survives a power cut. An error has the kind `Other`, as
    /// with [`DiskFile::write_at`].
    async fn sync_data(&self) -> io::Result<()>;
    /// Cuts the file to `length` bytes, or extends it with zeros.
    async fn set_len(&self, length: u64) -> io::Result<()>;
    async fn len(&self) -> io::Result<u64>;
}
