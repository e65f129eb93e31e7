//! A directory of the machine.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::ReadWriteFlags;

use super::buffers::Buffers;
use super::open_file::{Freeing, OpenFile};
use super::{Disk, DiskFile, DiskSpace};
use crate::Calls;

/// Holds the lock on the directory. Not listed.
pub const LOCK_FILE: &str = "lock";

/// Files are private.
const FILE_MODE: u32 = 0o600;

/// Buffers of one `pwritev`: Linux takes at most 1,024 (`IOV_MAX`).
const BUFFERS_MAX: usize = 1024;

/// Calls of one disk that may wait at once. Each takes a thread. Reads that the page cache can serve need none.
pub const DISK_CALLS_MAX: usize = 48;

/// A directory that only this process uses.
pub struct RealDisk {
    path: Arc<PathBuf>,
    /// Files are opened in it, and not by the path: that may lead to another directory by now.
    directory: Arc<File>,
    /// The kernel reports a failed sync to one caller only, and the others must not be told that all is well.
    has_failed: Arc<AtomicBool>,
    buffers: Arc<Buffers>,
    calls: Calls,
    freeing: Arc<Freeing>,
    _lock: File,
}

struct RealFile {
    file: Arc<OpenFile>,
    buffers: Arc<Buffers>,
    calls: Calls,
}

impl RealDisk {
    /// Opens a directory. If it must be created, it gets mode 0700.
    ///
    /// # Errors
    /// `WouldBlock` when another process has it open. Every text names the directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let context = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let new: Vec<_> = path.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(context)?;
        // Not all file systems make the name of a directory durable with what is in it.
        for parent in new.into_iter().filter_map(Path::parent) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(context)?;
        }
        let lock = options().create(true).truncate(false).open(path.join(LOCK_FILE)).map_err(context)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => {
                let problem = format!("{} is in use by another process", path.display());
                io::Error::new(io::ErrorKind::WouldBlock, problem)
            }
            other => context(other.into()),
        })?;
        let directory = Arc::new(File::open(path).map_err(context)?);
        Ok(Self {
            path: Arc::new(path.to_owned()),
            directory,
            has_failed: Arc::default(),
            buffers: Arc::default(),
            calls: Calls::new(DISK_CALLS_MAX),
            freeing: Arc::default(),
            _lock: lock,
        })
    }

    fn opened(&self, file: File) -> Arc<dyn DiskFile> {
        Arc::new(RealFile {
            file: OpenFile::new(file, &self.freeing),
            buffers: Arc::clone(&self.buffers),
            calls: self.calls.clone(),
        })
    }

    async fn open_file(&self, name: &str, more: OFlags) -> io::Result<Arc<dyn DiskFile>> {
        let (directory, name) = (Arc::clone(&self.directory), checked(name));
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
        let open = move || Ok(rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(FILE_MODE))?);
        Ok(self.opened(File::from(blocking(&self.calls, open).await?)))
    }
}

fn checked(name: &str) -> String {
    assert!(!name.is_empty() && !name.contains('/') && name != LOCK_FILE, "not a name of a file: {name:?}");
    name.to_owned()
}

/// # Errors
/// `NotFound` when the path does not lead to this directory.
fn check_path(directory: &File, path: &Path) -> io::Result<()> {
    let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
    match std::fs::metadata(path).map(identity) {
        Ok(found) if found == identity(directory.metadata()?) => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) | Err(_) => {
            let problem = "its path does not lead to it any more: it was removed, or its disk was unmounted";
            Err(io::Error::new(io::ErrorKind::NotFound, problem))
        }
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(FILE_MODE).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options
}

/// Gives a lack of descriptors, of this process or of the machine, the error kind that [`Disk::create`] promises.
fn without_descriptor(error: io::Error) -> io::Error {
    match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => io::Error::new(io::ErrorKind::ResourceBusy, error),
        Some(_) | None => error,
    }
}

/// Whatever the cause, nobody may take this for a write that found no room.
fn not_synced(error: io::Error) -> io::Error {
    io::Error::other(format!("could not sync: {error}"))
}

/// Runs blocking work once a permit is free.
async fn blocking<T: Send + 'static>(
    calls: &Calls,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    calls.run(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[async_trait]
impl Disk for RealDisk {
    async fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_file(name, OFlags::CREATE | OFlags::EXCL).await.map_err(without_descriptor)
    }

    async fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_file(name, OFlags::empty()).await
    }

    async fn list(&self) -> io::Result<Vec<String>> {
        let directory = Arc::clone(&self.directory);
        blocking(&self.calls, move || {
            let names =
                Dir::read_from(&directory)?.map(|entry| Ok(entry?.file_name().to_str().ok().map(str::to_owned)));
            let names = names.collect::<io::Result<Vec<_>>>()?;
            let is_file = |name: &String| ![".", "..", LOCK_FILE].contains(&name.as_str());
            Ok(names.into_iter().flatten().filter(is_file).collect())
        })
        .await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        let (directory, name) = (Arc::clone(&self.directory), checked(name));
        blocking(&self.calls, move || Ok(rustix::fs::unlinkat(&directory, name, AtFlags::empty())?)).await
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (directory, from, to) = (Arc::clone(&self.directory), checked(from), checked(to));
        blocking(&self.calls, move || Ok(rustix::fs::renameat(&directory, from, &directory, to)?)).await
    }

    async fn sync_directory(&self) -> io::Result<()> {
        let (directory, has_failed) = (Arc::clone(&self.directory), Arc::clone(&self.has_failed));
        blocking(&self.calls, move || {
            if has_failed.load(Ordering::SeqCst) {
                return Err(not_synced(io::Error::other("an earlier sync of the directory has failed")));
            }
            directory.sync_all().map_err(|error| {
                has_failed.store(true, Ordering::SeqCst);
                not_synced(error)
            })
        })
        .await
    }

    async fn space(&self) -> io::Result<DiskSpace> {
        let (directory, path) = (Arc::clone(&self.directory), Arc::clone(&self.path));
        blocking(&self.calls, move || {
            check_path(&directory, &path)?;
            let found = rustix::fs::fstatvfs(&directory)?;
            Ok(DiskSpace { total: found.f_blocks * found.f_frsize, free: found.f_bavail * found.f_frsize })
        })
        .await
    }

    fn label(&self) -> String {
        self.path.display().to_string()
    }
}

fn write_all(file: &File, mut offset: u64, data: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = data.iter().map(|buffer| IoSlice::new(buffer)).collect();
    let mut rest = slices.as_mut_slice();
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let count = rest.len().min(BUFFERS_MAX);
        match rustix::io::pwritev(file, &rest[..count], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reads until `buffer` is full or the file ends.
fn read_full(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads from the page cache, without waiting for the disk. `None` when the cache does not hold all of it.
fn read_cached(file: &File, offset: u64, buffer: &mut [u8]) -> Option<()> {
    let length = buffer.len();
    let mut slices = [io::IoSliceMut::new(buffer)];
    match rustix::io::preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
        Ok(read) if read == length => Some(()),
        Ok(_) | Err(_) => None,
    }
}

#[async_trait]
impl DiskFile for RealFile {
    async fn write_at(&self, offset: u64, data: Vec<Bytes>, sync: bool) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        blocking(&self.calls, move || {
            write_all(&file.file, offset, &data)?;
            if sync {
                return file.sync();
            }
            file.written(data.iter().map(|buffer| buffer.len() as u64).sum());
            Ok(())
        })
        .await
    }

    async fn read_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let mut buffer = self.buffers.take(length);
        if read_cached(&self.file.file, offset, buffer.as_mut()).is_some() {
            return Ok(buffer.freeze(length));
        }
        let file = Arc::clone(&self.file);
        blocking(&self.calls, move || {
            let read = read_full(&file.file, offset, buffer.as_mut())?;
            Ok(buffer.freeze(read))
        })
        .await
    }

    async fn sync_data(&self) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        blocking(&self.calls, move || file.sync()).await
    }

    async fn set_len(&self, length: u64) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        blocking(&self.calls, move || file.file.set_len(length)).await
    }

    async fn len(&self) -> io::Result<u64> {
        let file = Arc::clone(&self.file);
        blocking(&self.calls, move || Ok(file.file.metadata()?.len())).await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn keeps_the_promises_of_a_disk() {
        let directory = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(&directory.path().join("data")).unwrap();
        super::super::conformance::run(&disk).await;
    }

    #[tokio::test]
    async fn a_directory_has_one_user_and_files_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let disk = RealDisk::open(&path).unwrap();
        let error = RealDisk::open(&path).err().unwrap();
        assert!(error.to_string().contains("in use by another process"), "{error}");
        disk.create("file").await.unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("file"))), (0o700, 0o600));
        std::os::unix::fs::symlink("/dev/null", path.join("link")).unwrap();
        assert!(disk.open("link").await.is_err(), "symbolic links are not followed");
        drop(disk);
        RealDisk::open(&path).unwrap();
    }

    /// A file system is unmounted, and what is below it shows, or the directory is removed.
    #[tokio::test]
    async fn a_directory_that_is_not_where_it_was_is_noticed_and_no_other_one_is_taken_for_it() {
        let base = tempfile::tempdir().unwrap();
        let [path, old] = ["data", "old"].map(|name| base.path().join(name));
        let disk = RealDisk::open(&path).unwrap();
        assert!(disk.space().await.unwrap().total > 0);
        std::fs::rename(&path, &old).unwrap();
        assert_eq!(disk.space().await.unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::create_dir(&path).unwrap();
        assert_eq!(disk.space().await.unwrap_err().kind(), io::ErrorKind::NotFound);
        disk.create("file").await.unwrap();
        disk.rename("file", "renamed").await.unwrap();
        disk.open("renamed").await.unwrap();
        assert_eq!(disk.list().await.unwrap(), ["renamed"]);
        assert!(old.join("renamed").exists() && std::fs::read_dir(&path).unwrap().next().is_none());
        disk.remove("renamed").await.unwrap();
        assert!(!old.join("renamed").exists());
        std::fs::remove_dir_all(&old).unwrap();
        assert!(disk.create("file").await.is_err());
    }
}
