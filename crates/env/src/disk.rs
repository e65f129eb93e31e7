//! One directory of a disk, and the files in it.
//!
//! [`real::RealDisk`] is a directory of the machine; [`memory::MemoryDisk`] loses, tears and corrupts what it is
//! told to. Both run the suite in [`conformance`].

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
    /// What an unprivileged process may still write.
    pub free: u64,
}

/// One flat directory: names hold no `/`. Files are created with mode 0600 and never follow symbolic links.
#[async_trait]
pub trait Disk: Send + Sync + 'static {
    /// Creates a file that must not exist yet. It survives a power cut only after [`Disk::sync_directory`]. The kind
    /// `ResourceBusy` says that no descriptor was left for it: nothing has changed, and there may be one later.
    async fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file that exists, for reading and writing.
    async fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Names of all files, in no order.
    async fn list(&self) -> io::Result<Vec<String>>;
    /// Removes a name. The handle that is open keeps reading the bytes; with it they go, for whoever opened the file once more too.
    async fn remove(&self, name: &str) -> io::Result<()>;
    /// Replaces `to` by `from` in one step.
    async fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Returns when creations, removals and renames so far survive a power cut. An error is of the kind `Other`, as that of
    /// [`DiskFile::write_at`].
    async fn sync_directory(&self) -> io::Result<()>;
    async fn space(&self) -> io::Result<DiskSpace>;
    /// What operators call it: the path of a real directory.
    fn label(&self) -> String;
}

/// An open file.
#[async_trait]
#[expect(clippy::len_without_is_empty, reason = "the length of a file may fail, and nobody asks whether it is 0")]
pub trait DiskFile: Send + Sync + 'static {
    /// Writes all of `data`, one buffer behind the other, from `offset` on; with `sync`, returns when these bytes and
    /// all written to the file before survive a power cut (`fdatasync`). After an error what the file holds
    /// from `offset` on is undefined, and a failed sync must never be tried again: its error is of the kind `Other`, whatever
    /// the cause, so that nobody takes it for a write that found no room.
    async fn write_at(&self, offset: u64, data: Vec<Bytes>, sync: bool) -> io::Result<()>;
    /// Reads `length` bytes; fewer only where the file ends.
    async fn read_at(&self, offset: u64, length: usize) -> io::Result<Bytes>;
    /// `fdatasync`: returns when all that was written survives a power cut. An error is of the kind `Other`, as that of
    /// [`DiskFile::write_at`].
    async fn sync_data(&self) -> io::Result<()>;
    /// Cuts or extends (with zeros) to `length` bytes.
    async fn set_len(&self, length: u64) -> io::Result<()>;
    async fn len(&self) -> io::Result<u64>;
}
