//! Files below a directory, reached without following a symbolic link, neither at the end of a path nor on the way.
//! Otherwise anybody who can write there could lead Forebay anywhere.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// Permissions of new directories and files, before the umask of the process.
const DIRECTORY_MODE: u32 = 0o777;
const FILE_MODE: u32 = 0o640;

/// Where a tree begins.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    /// From the settings. Links in this path are intended.
    base: PathBuf,
    /// A directory in `base`, which must not be a link.
    bucket: Option<(String, Arc<Seen>)>,
    /// Which directory `base` was when it was opened first. Clones share it.
    first: Arc<OnceLock<Identity>>,
    metadata_files: Arc<Mutex<()>>,
}

/// A directory, for as long as this process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Whether it may be the same directory after a remount. File systems without a disk of their own (NFS, FUSE) get
    /// another device number with each mount, and automounters mount them again after a while.
    fn may_be(self, other: Self) -> bool {
        let has_no_disk = |identity: Self| rustix::fs::major(identity.device) == 0;
        self == other || self.inode == other.inode && has_no_disk(self) && has_no_disk(other)
    }
}

/// Which directory the one of a bucket is. Another disk may be mounted at it.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<SeenDirectory>);

#[derive(Debug, Default)]
struct SeenDirectory {
    /// `None` for a root that is the directory of a bucket itself: it stays what it is.
    identity: Option<BucketIdentity>,
    /// What its mark file was seen to hold.
    mark: Option<String>,
}

impl SeenDirectory {
    fn new(identity: BucketIdentity) -> Self {
        Self { identity: Some(identity), mark: None }
    }
}

#[derive(Debug, Clone, Copy)]
struct BucketIdentity {
    directory: Identity,
    /// It is on another file system than the base.
    is_mount: bool,
}

impl BucketIdentity {
    fn may_be(self, other: Self) -> bool {
        self.is_mount == other.is_mount && self.directory.may_be(other.directory)
    }
}

impl Seen {
    /// From here on, any directory is taken for the bucket's.
    pub(crate) fn forget(&self) {
        *self.0.lock() = SeenDirectory::default();
    }

    pub(crate) fn mark(&self) -> Option<String> {
        self.0.lock().mark.clone()
    }

    /// Remembers the mark of a directory, unless another one has taken its place meanwhile.
    pub(crate) fn keep_mark(&self, tree: &Tree, mark: &str) -> io::Result<()> {
        let found = tree.identity()?;
        let mut seen = self.0.lock();
        if seen.identity.is_none_or(|known| known.directory.may_be(found)) {
            seen.mark = Some(mark.to_owned());
        }
        Ok(())
    }

    /// Whether this is the directory of the bucket. Another program, or another worker, may have replaced it; but an
    /// empty one is what a disk leaves that is no longer mounted.
    fn accepts(&self, found: BucketIdentity, is_empty: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        let known = match &mut *self.0.lock() {
            SeenDirectory { identity: Some(known), .. } => *known,
            unknown => {
                *unknown = SeenDirectory::new(found);
                found
            }
        };
        if known.may_be(found) {
            return Ok(true);
        }
        if known.is_mount || found.is_mount || is_empty()? {
            return Ok(false);
        }
        *self.0.lock() = SeenDirectory::new(found);
        Ok(true)
    }
}

/// The open directory in which paths begin. An empty path is the directory itself.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    /// Held while a metadata file gets its name, and while one is looked at and removed.
    pub(super) metadata_files: Arc<Mutex<()>>,
}

/// An open directory of a tree.
pub(crate) struct Directory(File);

impl Root {
    pub(crate) fn new(base: PathBuf) -> Self {
        Self { base, bucket: None, first: Arc::default(), metadata_files: Arc::default() }
    }

    /// A directory in the base.
    pub(crate) fn within(&self, name: &str, seen: Arc<Seen>) -> Self {
        Self { bucket: Some((name.to_owned(), seen)), ..self.clone() }
    }

    /// # Errors
    /// `Other` when it is not the directory that it was. A disk that is no longer mounted leaves such a one: what is
    /// written there would be lost, and what is missing there was not deleted.
    pub(crate) fn open(&self) -> io::Result<Tree> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = match rustix::fs::open(&self.base, flags, Mode::empty()) {
            Ok(root) => self.tree(root),
            Err(Errno::NOENT | Errno::NOTDIR) if self.first.get().is_some() => return Err(replaced(&self.base)),
            Err(error) => return Err(error.into()),
        };
        let found = base.identity()?;
        if !self.first.get_or_init(|| found).may_be(found) {
            return Err(replaced(&self.base));
        }
        let Some((name, seen)) = &self.bucket else { return Ok(base) };
        let opened = base.resolve(Path::new(name), flags, Mode::empty());
        let root = opened.inspect_err(|error| {
            // A mount point stays, so this is no matter of a disk: the bucket was removed, and may be made again.
            if error.kind() == io::ErrorKind::NotFound {
                seen.forget();
            }
        })?;
        let tree = self.tree(root);
        let directory = tree.identity()?;
        let is_mount = directory.device != found.device;
        match seen.accepts(BucketIdentity { directory, is_mount }, || tree.is_empty())? {
            true => Ok(tree),
            false => Err(replaced(&self.path())),
        }
    }

    fn tree(&self, root: OwnedFd) -> Tree {
        Tree { root, metadata_files: Arc::clone(&self.metadata_files) }
    }

    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.bucket.iter().fold(self.base.clone(), |path, (name, _)| path.join(name))
    }
}

fn replaced(path: &Path) -> io::Error {
    io::Error::other(format!(
        "{} is not the directory that it was, so its disk was probably unmounted: mount it again. If the directory was replaced on purpose, restart the server",
        path.display()
    ))
}

impl Tree {
    fn resolve(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match rustix::fs::openat2(&self.root, path, flags, mode, beneath) {
            // Kernels before 5.6, and some sandboxes, do not know the call.
            Err(Errno::NOSYS | Errno::PERM) => self.resolve_by_steps(path, flags, mode),
            opened => Ok(opened?),
        }
    }

    fn resolve_by_steps(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut directory: Option<OwnedFd> = None;
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            let name = match component {
                Component::Normal(name) => name,
                Component::CurDir => OsStr::new("."),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV.into()),
            };
            let from = directory.as_ref().unwrap_or(&self.root);
            if components.peek().is_none() {
                return Ok(rustix::fs::openat(from, name, flags, mode)?);
            }
            directory = Some(rustix::fs::openat(from, name, step, Mode::empty())?);
        }
        Err(Errno::NOENT.into())
    }

    /// Whether this is the same directory.
    pub(crate) fn is_same(&self, other: &Self) -> io::Result<bool> {
        Ok(self.identity()? == other.identity()?)
    }

    fn identity(&self) -> io::Result<Identity> {
        let stat = rustix::fs::fstat(&self.root)?;
        Ok(Identity { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Whether nothing at all is in the directory itself.
    fn is_empty(&self) -> io::Result<bool> {
        let directory = self.directory(Path::new(""))?;
        let first = directory.entries()?.next().transpose()?;
        Ok(first.is_none())
    }

    /// The open parent directory of a path, and the last name.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((self.resolve(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?, name))
    }

    /// Opens a file for reading. Does not wait for the other end of a pipe.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        Ok(self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?.into())
    }

    /// Creates a file for writing. It must not exist yet.
    pub(crate) fn create(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(self.resolve(path, flags, Mode::from_raw_mode(FILE_MODE))?.into())
    }

    /// Of a link, the metadata of the link itself.
    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        File::from(self.resolve(path, OFlags::PATH, Mode::empty())?).metadata()
    }

    pub(crate) fn create_directory(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(DIRECTORY_MODE))?)
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
        Ok(rustix::fs::renameat(from, old, to, new)?)
    }

    /// Renames a file to a name that nothing has yet. Some file systems (NFS, FUSE) can only replace what has the name.
    ///
    /// # Errors
    /// `AlreadyExists` when something has the name.
    pub(crate) fn rename_to_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
        match rustix::fs::renameat_with(&from, old, &to, new, RenameFlags::NOREPLACE) {
            // The last one: some sandboxes do not know the call.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP | Errno::PERM) => {
                Ok(rustix::fs::renameat(from, old, to, new)?)
            }
            renamed => Ok(renamed?),
        }
    }

    /// Gives a file a second name, which nothing has yet.
    ///
    /// # Errors
    /// `AlreadyExists` when something has the name.
    pub(crate) fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
        Ok(rustix::fs::linkat(from, old, to, new, AtFlags::empty())?)
    }

    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?)
    }

    pub(crate) fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes a directory and everything in it. Links are removed, and what they lead to stays.
    pub(crate) fn remove_all(&self, path: &Path) -> io::Result<()> {
        for (name, kind) in self.list(path)? {
            let inside = path.join(OsStr::from_bytes(&name));
            match kind {
                FileType::Directory => self.remove_all(&inside)?,
                _ => self.remove_file(&inside)?,
            }
        }
        self.remove_directory(path)
    }

    /// Brings the names in a directory to stable storage.
    pub(crate) fn sync(&self, path: &Path) -> io::Result<()> {
        let directory = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(rustix::fs::fsync(directory)?)
    }

    /// The names in a directory, and their types.
    pub(crate) fn list(&self, path: &Path) -> io::Result<Vec<(Vec<u8>, FileType)>> {
        self.directory(path)?.entries()?.collect()
    }

    pub(crate) fn directory(&self, path: &Path) -> io::Result<Directory> {
        Ok(Directory(self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?.into()))
    }
}

impl Directory {
    /// The names in it and their types, one by one: there may be millions.
    pub(crate) fn entries(&self) -> io::Result<impl Iterator<Item = io::Result<(Vec<u8>, FileType)>>> {
        let entries = Dir::read_from(self.0.as_fd())?;
        Ok(entries.filter_map(move |entry| named(&self.0, entry).transpose()))
    }

    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// The type of file system that it is on, as numbered by statfs(2).
    pub(crate) fn file_system(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstatfs(&self.0)?.f_type as u64)
    }
}

/// Name and type of an entry. `None` for the directory itself, its parent, and an entry that is gone by now.
fn named(directory: &File, entry: rustix::io::Result<DirEntry>) -> io::Result<Option<(Vec<u8>, FileType)>> {
    let entry = entry?;
    let name = entry.file_name();
    if name == c"." || name == c".." {
        return Ok(None);
    }
    let kind = match entry.file_type() {
        // Some file systems do not report the type.
        FileType::Unknown => match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        },
        kind => kind,
    };
    Ok(Some((name.to_bytes().to_vec(), kind)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_is_followed_with_the_call_or_without_it() {
        let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(directory.path().join("a/b")).unwrap();
        std::fs::write(directory.path().join("a/b/file"), "inside").unwrap();
        std::fs::write(outside.path().join("file"), "outside").unwrap();
        symlink(outside.path(), directory.path().join("a/out")).unwrap();
        symlink("b", directory.path().join("a/in")).unwrap();
        symlink("b/file", directory.path().join("a/last")).unwrap();
        let tree = Root::new(directory.path().to_owned()).open().unwrap();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for by_steps in [false, true] {
            let open = |path: &str| match by_steps {
                true => tree.resolve_by_steps(Path::new(path), flags, Mode::empty()),
                false => tree.resolve(Path::new(path), flags, Mode::empty()),
            };
            assert!(open("a/b/file").is_ok() && open("a/b").is_ok() && open(".").is_ok());
            for path in ["a/out/file", "a/in/file", "a/last", "a/out", "..", "a/../../x", "/etc"] {
                assert!(open(path).is_err(), "{path} {by_steps}");
            }
        }
    }

    #[test]
    fn nothing_is_changed_through_a_link() {
        let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("file"), "outside").unwrap();
        symlink(outside.path(), directory.path().join("out")).unwrap();
        std::fs::write(directory.path().join("file"), "inside").unwrap();
        let tree = Root::new(directory.path().to_owned()).open().unwrap();
        let (inside, path) = (Path::new("file"), Path::new("out/file"));
        assert!(tree.create(Path::new("out/new")).is_err());
        assert!(tree.create_directory(Path::new("out/new")).is_err());
        assert!(tree.rename(inside, path).is_err() && tree.rename(path, inside).is_err());
        assert!(tree.rename_to_new(inside, path).is_err());
        assert!(tree.remove_file(path).is_err() && tree.list(Path::new("out")).is_err());
        tree.create_directory(Path::new("own")).unwrap();
        symlink(outside.path(), directory.path().join("own/link")).unwrap();
        tree.remove_all(Path::new("own")).unwrap();
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read(outside.path().join("file")).unwrap(), b"outside");
        // A bucket is not reached through a link, either.
        assert!(Root::new(directory.path().to_owned()).within("out", Arc::default()).open().is_err());
    }

    #[test]
    fn a_directory_without_a_disk_may_have_another_device_after_a_remount() {
        let of = |major, minor, inode| Identity { device: rustix::fs::makedev(major, minor), inode };
        assert!(of(8, 1, 2).may_be(of(8, 1, 2)) && of(0, 50, 2).may_be(of(0, 51, 2)));
        for other in [of(8, 2, 2), of(8, 1, 3), of(0, 1, 2)] {
            assert!(!of(8, 1, 2).may_be(other), "{other:?}");
        }
        assert!(!of(0, 50, 2).may_be(of(0, 51, 3)) && !of(0, 50, 2).may_be(of(8, 1, 2)));
    }

    /// Where a disk was mounted, only that disk is the bucket. Elsewhere an empty directory may be a mount point.
    #[test]
    fn a_mount_point_is_not_taken_for_the_bucket_that_was_mounted_there() {
        let of = |minor, inode, is_mount| {
            let directory = Identity { device: rustix::fs::makedev(8, minor), inode };
            BucketIdentity { directory, is_mount }
        };
        let (plain, mounted) = (of(1, 7, false), of(2, 2, true));
        let accepts = |first, second, is_empty| {
            let seen = Seen::default();
            assert!(seen.accepts(first, || unreachable!("it is the first one")).unwrap());
            let accepted = seen.accepts(second, || Ok(is_empty)).unwrap();
            // What was refused changes nothing.
            assert_eq!(seen.accepts(first, || Ok(true)).unwrap(), !accepted || first.may_be(second));
            accepted
        };
        for is_empty in [false, true] {
            assert!(accepts(plain, plain, is_empty) && accepts(mounted, mounted, is_empty));
            assert!(!accepts(mounted, plain, is_empty) && !accepts(plain, mounted, is_empty));
            assert!(!accepts(mounted, of(3, 2, true), is_empty));
            assert_eq!(accepts(plain, of(1, 8, false), is_empty), !is_empty);
        }
    }
}
