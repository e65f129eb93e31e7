//! A directory as an under store: an object is a plain file, where people look for it.
//!
//! Bytes are written beside, synced, and renamed into place. What a file cannot hold (content type, metadata, tags, checksums) is in an
//! extended attribute, or in a file of its own where that does not fit. Files that others put there are objects too.

mod body;
mod meta;
mod paths;
mod root;
mod walk;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use forebay_env::Env;
use forebay_types::{ByteRange, ETag, ObjectKey, Tags};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use tokio::sync::Semaphore;

use crate::{
    Condition, Error, ErrorKind, ListPage, ListRequest, RemoteBody, RemoteObject, Result, Stored, UnderStore, Upload,
};
use body::Temporary;
use meta::FileMeta;
use paths::Durable;
pub use root::DirectoryRoot;

/// Holds what is not an object: files being written, and metadata that does not fit an attribute.
pub(crate) const OWN_DIRECTORY: &str = ".forebay";

/// More uploads at once only wait for the same disk.
const UPLOADS_MAX: usize = 16;

/// One bucket as a directory. Clones share it.
#[derive(Clone)]
pub struct DirectoryStore {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    root: PathBuf,
    /// Held while names change: conditions are checked and files put into place in one step.
    names: Mutex<Durable>,
    /// Uploads at once: each keeps a thread while it waits for the disk.
    uploads: Semaphore,
}

/// Turns a refusal of the file system into an error.
pub(crate) fn failed(doing: &str, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        io::ErrorKind::InvalidFilename | io::ErrorKind::InvalidInput => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    };
    Error {
        source: Some(Box::new(error)),
        ..Error::new(kind, format!("the directory behind the mount: could not {doing}"))
    }
}

/// Runs what blocks where it disturbs nobody.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::new(ErrorKind::Unavailable, format!("a task of the directory ended early: {error}"))),
    }
}

/// An open object.
pub(crate) struct Opened {
    file: File,
    path: PathBuf,
    object: RemoteObject,
    meta: Option<FileMeta>,
}

fn not_found(key: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("{key:?} does not exist"))
}

impl DirectoryStore {
    /// Opens a directory that exists.
    ///
    /// # Errors
    /// `NoBucket` when it does not.
    pub async fn open(env: Env, root: PathBuf) -> Result<Self> {
        let directory = root.clone();
        let is_there = blocking(move || Ok(directory.is_dir())).await?;
        if !is_there {
            return Err(Error::new(ErrorKind::NoBucket, format!("the directory {} does not exist", root.display())));
        }
        Ok(Self::assume(env, root))
    }

    /// A directory that is believed to exist.
    pub(crate) fn assume(env: Env, root: PathBuf) -> Self {
        Self { inner: Arc::new(Inner { env, root, names: Mutex::default(), uploads: Semaphore::new(UPLOADS_MAX) }) }
    }
}

impl Inner {
    fn own(&self, name: &str) -> PathBuf {
        self.root.join(OWN_DIRECTORY).join(name)
    }

    fn open_object(&self, key: &str) -> Result<Option<Opened>> {
        for path in paths::candidates(&self.root, key) {
            let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
            match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
                Ok(file) => {
                    let stat = file.metadata().map_err(|error| failed("look at a file", error))?;
                    if stat.is_file() && paths::is_inside(&self.root, &path) {
                        let meta = meta::read(self, &file, &stat);
                        let object = meta::object(&stat, meta.as_ref());
                        return Ok(Some(Opened { file, path, object, meta }));
                    }
                }
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(failed("open a file", error)),
            }
        }
        Ok(None)
    }

    fn must_open(&self, key: &str) -> Result<Opened> {
        match self.open_object(key)? {
            Some(opened) => Ok(opened),
            None if self.root.is_dir() => Err(not_found(key)),
            None => Err(Error::new(ErrorKind::NoBucket, "the directory behind the mount is gone")),
        }
    }

    fn check(&self, key: &str, condition: &Condition) -> Result<Option<Opened>> {
        let present = self.open_object(key)?;
        let holds = match (condition, &present) {
            (Condition::Always, _) | (Condition::Absent, None) => true,
            (Condition::Matches(etag), Some(opened)) => opened.object.remote_etag == *etag,
            (Condition::Absent, Some(_)) | (Condition::Matches(_), None) => false,
        };
        if holds { Ok(present) } else { Err(Error::new(ErrorKind::Precondition, "a condition does not hold")) }
    }

    /// Puts a finished file into its place, durably.
    fn place(&self, key: &str, temporary: Temporary, condition: &Condition, etag: ETag) -> Result<Stored> {
        let (before, target) = {
            let mut names = self.names.lock();
            let before = self.check(key, condition)?;
            let target = match &before {
                Some(before) => before.path.clone(),
                None => {
                    let made = paths::make_place(&self.root, key, &mut names);
                    made.map_err(|error| failed("make a directory", error))?
                }
            };
            temporary.rename(&target)?;
            (before, target)
        };
        // With the names free again: others sync meanwhile, and the file system does it for all of them at once.
        sync_directory(target.parent().unwrap_or(&self.root))?;
        if let Some(before) = before {
            meta::forget(self, &before.file);
        }
        Ok(Stored { remote_etag: etag })
    }

    fn delete(&self, key: &str, condition: &Condition) -> Result<()> {
        let mut names = self.names.lock();
        let Some(present) = self.check(key, condition)? else { return Ok(()) };
        std::fs::remove_file(&present.path).map_err(|error| failed("remove a file", error))?;
        meta::forget(self, &present.file);
        let mut directory = present.path.parent();
        while let Some(path) = directory.filter(|path| *path != self.root && path.starts_with(&self.root)) {
            names.forget(path);
            if std::fs::remove_dir(path).is_err() {
                break;
            }
            directory = path.parent();
        }
        drop(names);
        sync_directory(directory.unwrap_or(&self.root))
    }

    fn set_tags(&self, key: &str, tags: Tags) -> Result<()> {
        let _names = self.names.lock();
        let opened = self.must_open(key)?;
        let stat = opened.file.metadata().map_err(|error| failed("look at a file", error))?;
        let mut meta = opened.meta.unwrap_or_else(|| FileMeta::foreign(&stat, &opened.object));
        meta.info.tags = tags;
        meta::write(self, &opened.file, &stat, &meta)
    }

    fn sweep(&self, age: Duration) -> Result<u64> {
        let mut removed = 0;
        let Ok(entries) = std::fs::read_dir(self.own("tmp")) else { return Ok(0) };
        for entry in entries.flatten() {
            let modified = entry.metadata().and_then(|stat| stat.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            let modified_ms = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
            let is_old = self.env.clock.unix_ms().saturating_sub(modified_ms) > age.as_millis() as u64;
            if is_old && std::fs::remove_file(entry.path()).is_ok() {
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Whether an error says that there is no such object: absent, or a directory or a link in the way.
fn is_absent(error: &io::Error) -> bool {
    let no_link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    no_link
        || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory)
}

fn sync_directory(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    match synced {
        // Removed meanwhile, with all its names.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|error| failed("sync a directory", error)),
    }
}

#[async_trait]
impl UnderStore for DirectoryStore {
    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject> {
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        blocking(move || Ok(inner.must_open(key.as_str())?.object)).await
    }

    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody> {
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        let opened = blocking(move || inner.must_open(key.as_str())).await?;
        if if_match.is_some_and(|etag| *etag != opened.object.remote_etag) {
            return Err(Error::new(ErrorKind::Precondition, "the object has changed"));
        }
        let whole = ByteRange::of_size(opened.object.info.size);
        let range = range.map_or(whole, |range| range.intersect(whole).unwrap_or(ByteRange::new(0, 0)));
        Ok(RemoteBody { object: opened.object, range, stream: body::stream(opened.file, range) })
    }

    async fn put(&self, key: &ObjectKey, upload: Upload) -> Result<Stored> {
        let _permit = self.inner.uploads.acquire().await.expect("this semaphore is never closed");
        let mut source = body::Batches::new(&upload);
        let mut temporary = None;
        loop {
            let (batch, is_last) = source.next().await?;
            let (inner, key, upload) = (Arc::clone(&self.inner), key.clone(), upload.clone());
            // One step for all of a small object: handing work to another thread costs more than most of these calls.
            let step = move || {
                let temporary = temporary.map_or_else(|| Temporary::create(&inner), Ok)?;
                temporary.write(&batch)?;
                if !is_last {
                    return Ok((Some(temporary), None));
                }
                let etag = temporary.finish(&inner, &upload)?;
                inner.place(key.as_str(), temporary, &upload.condition, etag).map(|stored| (None, Some(stored)))
            };
            match blocking(step).await? {
                (_, Some(stored)) => return Ok(stored),
                (written, None) => temporary = written,
            }
        }
    }

    async fn delete(&self, key: &ObjectKey, condition: Condition) -> Result<()> {
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        let condition_of = condition.clone();
        let deleted = blocking(move || inner.delete(key.as_str(), &condition_of)).await;
        match (deleted, condition) {
            (Err(error), Condition::Always) if error.kind == ErrorKind::NotFound => Ok(()),
            (result, _) => result,
        }
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        let (inner, request) = (Arc::clone(&self.inner), request.clone());
        blocking(move || walk::list(&inner, &request)).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        blocking(move || Ok(inner.must_open(key.as_str())?.meta.map(|meta| meta.info.tags).unwrap_or_default())).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()> {
        let (inner, key, tags) = (Arc::clone(&self.inner), key.clone(), tags.clone());
        blocking(move || inner.set_tags(key.as_str(), tags)).await
    }

    async fn sweep(&self, age: Duration) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        blocking(move || inner.sweep(age)).await
    }

    fn label(&self) -> String {
        format!("file://{}", self.inner.root.display())
    }
}

/// A file's identity and times, for tags that change with every change.
pub(crate) fn modified_ns(stat: &std::fs::Metadata) -> i128 {
    i128::from(stat.mtime()) * 1_000_000_000 + i128::from(stat.mtime_nsec())
}

#[cfg(test)]
mod tests;
