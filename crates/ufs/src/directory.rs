//! A directory as an under store: an object is a plain file, where people look for it.
//!
//! Bytes are written to a temporary file, synced, and renamed into place. What a file cannot hold (content type,
//! metadata, tags, checksums) is in an extended attribute, or in a file of its own where that does not fit. Files that
//! others put there are objects, too.

mod body;
mod calls;
mod case;
mod errors;
mod mark;
mod meta;
mod names;
mod opened;
mod own;
mod paths;
mod root;
mod shared;
mod tree;
mod walk;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use forebay_env::{Env, RequesterPermits};
use forebay_types::{ByteRange, ETag, ObjectKey, Tags};

use crate::error::not_found;
use crate::file_meta::FileMeta;
use crate::{
    Condition, Error, ErrorKind, IsOurs, ListPage, ListRequest, Mark, RemoteBody, RemoteObject, Result, Stored,
    UnderStore, Upload,
};
use body::Temporary;
pub use calls::DIRECTORY_CALLS_MAX;
use calls::DirectoryCalls;
use errors::{failed, is_absent};
pub use mark::MARK_FILE;
use names::Kept;
use opened::{Opened, Present, open_object};
pub use own::OWN_DIRECTORY;
use own::{is_of_removed, own};
use paths::{FileLocation, Moves};
pub use root::DirectoryRoot;
use shared::Shared;
use tree::{Root, Tree};

/// More uploads at once would only wait for the same disk. A requester that is alone gets 16.
const UPLOADS_MAX: usize = 21;

/// Each level of a new key costs a directory and a sync, and its writer pays nothing for that. This is more than people
/// use: HDFS has a few dozen.
const LEVELS_MAX: usize = 128;

/// How often the directories of a place are prepared while deletions remove them. After that, deletions wait. Those of
/// other workers do not, and neither do their moves of files: they are tried again as often.
const ROUNDS_MAX: u32 = 4;

/// One bucket as a directory. Clones share it.
#[derive(Clone)]
pub struct DirectoryStore {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    root: Root,
    shared: Arc<Shared>,
    uploads: RequesterPermits,
    calls: DirectoryCalls,
    kept: Kept,
    moves: Moves,
}

impl DirectoryStore {
    /// Opens a directory that exists.
    ///
    /// # Errors
    /// `NoBucket` when it does not; `Invalid` when it does not tell upper from lower case.
    pub async fn open(env: Env, root: PathBuf) -> Result<Self> {
        let (root, calls) = (Root::new(root), DirectoryCalls::new(&env.background));
        let store = Self::open_root(env, root, calls, Kept::default(), Moves::default(), Arc::default()).await?;
        store.inner.call(|inner| case::check(&inner.tree()?, &inner.root.path(), &*inner.env.random)).await?;
        Ok(store)
    }

    async fn open_root(
        env: Env,
        root: Root,
        calls: DirectoryCalls,
        kept: Kept,
        moves: Moves,
        shared: Arc<Shared>,
    ) -> Result<Self> {
        let store = Self::assume(env, root, calls, kept, moves, shared);
        store.inner.call(|inner| inner.tree().map(drop)).await?;
        Ok(store)
    }

    /// A directory that is assumed to exist.
    fn assume(env: Env, root: Root, calls: DirectoryCalls, kept: Kept, moves: Moves, shared: Arc<Shared>) -> Self {
        let uploads = RequesterPermits::new(UPLOADS_MAX);
        Self { inner: Arc::new(Inner { env, root, shared, uploads, calls, kept, moves }) }
    }
}

impl Inner {
    /// For work that only reads.
    async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(self);
        self.calls.read(move || work(&inner)).await
    }

    /// # Errors
    /// `NoBucket` when the directory is gone.
    fn tree(&self) -> Result<Tree> {
        self.root.open().map_err(|error| match is_absent(&error) {
            true => {
                let context = format!("the directory {} behind the mount does not exist", self.root.path().display());
                Error { source: Some(Box::new(error)), ..Error::new(ErrorKind::NoBucket, context) }
            }
            false => failed("open the directory", error),
        })
    }

    fn must_open(&self, key: &str) -> Result<Opened> {
        open_object(&self.tree()?, key)?.ok_or_else(|| not_found(key))
    }

    fn check(tree: &Tree, key: &str, condition: &Condition) -> Result<Option<Present>> {
        let present = open_object(tree, key)?;
        let holds = match (condition, &present) {
            (Condition::Always, _) | (Condition::Absent, None) => true,
            (Condition::Matches(etag), Some(opened)) => opened.object.remote_etag == *etag,
            (Condition::Absent, Some(_)) | (Condition::Matches(_), None) => false,
        };
        match holds {
            true => Ok(present.map(Opened::close)),
            false => Err(Error::new(ErrorKind::Precondition, "a condition does not hold")),
        }
    }

    /// Puts a finished file into place, durably.
    fn place(&self, key: &str, mut temporary: Temporary, condition: &Condition, etag: ETag) -> Result<Stored> {
        let is_here = self.tree()?.is_same(temporary.tree()).map_err(|error| failed("look at the directory", error))?;
        if !is_here {
            return Err(Error::new(ErrorKind::NoBucket, "the directory behind the mount was replaced meanwhile"));
        }
        let mut rounds = 0;
        let (before, target) = loop {
            rounds += 1;
            let is_last = rounds == ROUNDS_MAX;
            match self.try_place(key, &mut temporary, condition, is_last) {
                Ok(Some(placed)) => break placed,
                Ok(None) => {}
                // Another worker has removed or moved something on the way, or swept the temporary file.
                Err(error) if error.kind == ErrorKind::NotFound && is_last => {
                    return Err(Error { kind: ErrorKind::Unavailable, ..error });
                }
                Err(error) if error.kind == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        };
        let tree = temporary.tree();
        sync_directory(tree, target.parent())?;
        if let Some(before) = before {
            meta::forget_closed(tree, before.identity);
        }
        Ok(Stored { remote_etag: etag })
    }

    /// One round. Returns the file that was replaced, and the path of the new one. `None` when its directories are not
    /// durable yet, and this is not the last round.
    ///
    /// # Errors
    /// `NotFound` when something is missing that was there, or was made, in this round.
    fn try_place(
        &self,
        key: &str,
        temporary: &mut Temporary,
        condition: &Condition,
        is_last: bool,
    ) -> Result<Option<(Option<Present>, PathBuf)>> {
        let making = |error| failed("make a directory", error);
        let syncing = |error| failed("sync a directory", error);
        let tree = temporary.tree();
        // Without the lock: others continue while the directories of a new key are made and synced.
        let present = Self::check(tree, key, condition)?;
        let removals = self.shared.durable.removals();
        let directories = match present {
            // Its file may be where another program has put it.
            Some(present) => FileLocation::present(present.path).directories,
            None => paths::make_directories(tree, key).map_err(making)?,
        };
        self.shared.durable.ensure(tree, &directories).map_err(syncing)?;
        let _names = self.shared.names.lock();
        let is_ensured = self.shared.durable.is_ensured(tree, &directories, removals);
        if !is_ensured && !is_last {
            // A deletion has removed them since, or a file is in the way.
            return Ok(None);
        }
        let before = Self::check(tree, key, condition)?;
        let location = match &before {
            Some(before) => FileLocation::present(before.path.clone()),
            None => paths::make_location(tree, &self.moves, key).map_err(making)?,
        };
        if !is_ensured || location.directories != directories {
            self.shared.durable.ensure(tree, &location.directories).map_err(syncing)?;
        }
        #[cfg(test)]
        if let Some(act) = &*self.shared.on_place.lock() {
            act();
        }
        // The lock does not keep other programs away.
        let renamed = match condition {
            Condition::Absent => temporary.rename_to_new(&location.path),
            Condition::Always | Condition::Matches(_) => temporary.rename(&location.path),
        };
        let location = match renamed {
            // Something has this name by now. If it is a directory for another key, nobody can remove it while the lock
            // is held. A link, which is no object, is replaced.
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory) => {
                Self::check(temporary.tree(), key, condition)?;
                let location = paths::make_location(temporary.tree(), &self.moves, key).map_err(making)?;
                temporary.rename(&location.path).map(|()| location)
            }
            renamed => renamed.map(|()| location),
        };
        let target = location.map_err(|error| failed("rename a file", error))?.path;
        Ok(Some((before, target)))
    }

    fn delete(&self, key: &str, condition: &Condition) -> Result<()> {
        let tree = self.tree()?;
        let removed = self.remove(&tree, key, condition)?;
        // An earlier try may have removed it, and then been interrupted.
        if removed.is_empty() {
            return self.make_durable(key);
        }
        for file in removed {
            meta::forget_closed(&tree, file.identity);
            self.prune(&tree, file.path.parent())?;
        }
        Ok(())
    }

    /// Removes the files of a key until it has none. Another worker may move its file meanwhile, and may have left an
    /// older one behind a newer one.
    fn remove(&self, tree: &Tree, key: &str, condition: &Condition) -> Result<Vec<Present>> {
        let _names = self.shared.names.lock();
        let mut removed = Vec::new();
        for _ in 0..ROUNDS_MAX {
            // In each round: only leftovers may have been removed so far, and others may have written another version.
            let Some(present) = Self::check(tree, key, condition)? else { return Ok(removed) };
            let candidates = paths::candidates(tree, key).map_err(|error| failed("look at a directory", error))?;
            // The one that is read goes last, and the others are gone for good by then: an older one must not show up
            // in its place.
            for path in candidates.iter().rev() {
                let file = self.remove_file(tree, path)?;
                if file.is_some() && *path != present.path {
                    sync_directory(tree, path.parent())?;
                }
                removed.extend(file);
            }
            // It may have been moved before it was removed.
            let is_it = |file: &Present| file.path == present.path || file.identity == present.identity;
            let is_gone = removed.iter().any(is_it);
            if is_gone && *condition != Condition::Always {
                // What somebody writes now is another version.
                return Ok(removed);
            }
        }
        let problem = format!("the file of {key:?} was moved or written while it was removed");
        Err(Error::new(ErrorKind::Unavailable, problem))
    }

    /// Removes a file. `None` when there is none, or another worker has moved it.
    fn remove_file(&self, tree: &Tree, path: &Path) -> Result<Option<Present>> {
        let stat = match tree.metadata(path) {
            // Some file systems have shorter names than others.
            Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::InvalidFilename => return Ok(None),
            stat => stat.map_err(|error| failed("look at a file", error))?,
        };
        if !stat.is_file() {
            return Ok(None);
        }
        #[cfg(test)]
        if let Some(act) = &*self.shared.on_remove.lock() {
            act();
        }
        match tree.remove_file(path) {
            Err(error) if is_absent(&error) => Ok(None),
            removed => {
                removed.map_err(|error| failed("remove a file", error))?;
                Ok(Some(Present { path: path.to_owned(), identity: meta::identity(&stat) }))
            }
        }
    }

    /// Removes the directories that are empty without a file, from the one that it was in upwards. Makes all of that
    /// durable.
    fn prune(&self, tree: &Tree, mut directory: Option<&Path>) -> Result<()> {
        while let Some(path) = directory.filter(|path| !path.as_os_str().is_empty()) {
            // The lock is taken for each directory: a deep key may have 127.
            let _names = self.shared.names.lock();
            if tree.remove_directory(path).is_err() {
                break;
            }
            self.shared.durable.forget(path);
            directory = path.parent();
        }
        sync_directory(tree, directory).map(drop)
    }

    fn make_durable(&self, key: &str) -> Result<()> {
        let tree = self.tree()?;
        let candidates = match open_object(&tree, key)? {
            Some(present) => vec![present.path],
            None => paths::candidates(&tree, key).map_err(|error| failed("look at a directory", error))?,
        };
        let mut locations: Vec<_> = candidates.into_iter().map(FileLocation::present).collect();
        locations.dedup_by(|next, one| next.directories == one.directories);
        for location in locations {
            let ensured = self.shared.durable.ensure(&tree, &location.directories);
            ensured.map_err(|error| failed("sync a directory", error))?;
            sync_directory(&tree, location.path.parent())?;
        }
        Ok(())
    }

    fn set_tags(&self, key: &str, tags: Tags) -> Result<()> {
        let names = self.shared.names.lock();
        let tree = self.tree()?;
        let opened = open_object(&tree, key)?.ok_or_else(|| not_found(key))?;
        let stat = opened.file.metadata().map_err(|error| failed("look at a file", error))?;
        let mut meta = opened.meta.unwrap_or_else(|| FileMeta::foreign(key, meta::identity(&stat), &opened.object));
        meta.info.tags = tags;
        meta::write(&tree, &opened.file, &stat, &meta)?;
        drop(names);
        opened.file.sync_all().map_err(|error| failed("sync a file", error))
    }

    fn mark(&self) -> Result<Mark> {
        let tree = self.tree()?;
        let found = mark::read(&tree).map_err(|error| failed("read the mark of the directory", error))?;
        found.map_or(Ok(Mark::None), |id| self.keep_mark(&tree, id))
    }

    fn make_mark(&self) -> Result<Mark> {
        let tree = self.tree()?;
        let made = mark::make(&tree, &*self.env.random);
        self.keep_mark(&tree, made.map_err(|error| failed("mark the directory", error))?)
    }

    fn keep_mark(&self, tree: &Tree, id: String) -> Result<Mark> {
        self.shared.seen.keep_mark(tree, &id).map_err(|error| failed("look at the directory", error))?;
        Ok(Mark::Id(id))
    }

    fn sweep(&self, age: Duration) -> Result<u64> {
        let (tree, mut removed) = (self.tree()?, 0);
        let Ok(entries) = tree.list(&own("tmp")) else { return Ok(0) };
        for (name, _) in entries {
            let path = own("tmp").join(OsStr::from_bytes(&name));
            // Where its age can't be told, it may belong to an upload in flight.
            let Ok(modified) = tree.metadata(&path).and_then(|stat| stat.modified()) else { continue };
            let modified_ms = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
            let is_old = self.env.clock.unix_ms().saturating_sub(modified_ms) > age.as_millis() as u64;
            if !is_old {
                continue;
            }
            // While it is open, no other file gets its number, by which its metadata is found.
            let left = tree.open(&path);
            if tree.remove_file(&path).is_ok() {
                removed += 1;
                if let Ok(left) = left {
                    meta::forget(&tree, &left);
                }
            }
        }
        Ok(removed)
    }
}

/// Brings the names in a directory to stable storage. If it was removed meanwhile, its names have gone with it. That
/// removal may not be synced yet, so the parent is synced instead. Returns the directory that was synced.
fn sync_directory<'a>(tree: &Tree, path: Option<&'a Path>) -> Result<&'a Path> {
    let mut path = path.unwrap_or(Path::new(""));
    loop {
        match tree.sync(path) {
            Err(error) if is_absent(&error) && !path.as_os_str().is_empty() => {
                path = path.parent().unwrap_or(Path::new(""));
            }
            // The root itself is gone, with everything that was in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
            result => return result.map(|()| path).map_err(|error| failed("sync a directory", error)),
        }
    }
}

#[async_trait]
impl UnderStore for DirectoryStore {
    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject> {
        let key = key.clone();
        self.inner.call(move |inner| Ok(inner.must_open(key.as_str())?.object)).await
    }

    /// # Errors
    /// `Invalid` for a key of too many levels, and for one whose file would be taken for a removed one.
    fn check_key(&self, key: &ObjectKey) -> Result<()> {
        if key.as_str().split('/').any(is_of_removed) {
            let problem = "names that NFS and FUSE give to open files that are removed are not for objects";
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        let levels = paths::levels(key.as_str());
        if levels > LEVELS_MAX {
            let problem = format!("a directory keeps keys of {LEVELS_MAX} levels at most, and this one has {levels}");
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        Ok(())
    }

    async fn make_durable(&self, key: &ObjectKey) -> Result<()> {
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        self.inner.calls.write(move || inner.make_durable(key.as_str())).await
    }

    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody> {
        let key = key.clone();
        let opened = self.inner.call(move |inner| inner.must_open(key.as_str())).await?;
        if if_match.is_some_and(|etag| *etag != opened.object.remote_etag) {
            return Err(Error::new(ErrorKind::Precondition, "the object has changed"));
        }
        let whole = ByteRange::of_size(opened.object.info.size);
        let range = range.map_or(whole, |range| range.intersect(whole).unwrap_or(ByteRange::new(0, 0)));
        Ok(RemoteBody {
            object: opened.object,
            range,
            stream: body::stream(self.inner.calls.clone(), opened.file, opened.identity, range),
        })
    }

    async fn put(&self, key: &ObjectKey, upload: Upload) -> Result<Stored> {
        let _place = self.inner.uploads.take().await;
        let mut source = body::Batches::new(&upload);
        let mut temporary = None;
        loop {
            let (batch, is_last) = source.next().await?;
            let (inner, key, upload) = (Arc::clone(&self.inner), key.clone(), upload.clone());
            // One step for all of a small object: handing work to another thread costs more than most of these calls.
            let step = move || {
                let temporary = temporary.map_or_else(|| Temporary::create(inner.tree()?, &*inner.env.random), Ok)?;
                temporary.write(&batch)?;
                if !is_last {
                    return Ok((Some(temporary), None));
                }
                let etag = temporary.finish(key.as_str(), &upload)?;
                inner.place(key.as_str(), temporary, &upload.condition, etag).map(|stored| (None, Some(stored)))
            };
            match self.inner.calls.write(step).await? {
                (_, Some(stored)) => return Ok(stored),
                (written, None) => temporary = written,
            }
        }
    }

    async fn delete(&self, key: &ObjectKey, condition: Condition) -> Result<()> {
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        self.inner.calls.write(move || inner.delete(key.as_str(), &condition)).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        let (inner, request) = (Arc::clone(&self.inner), request.clone());
        let list = move || walk::list(&inner.env, &inner.kept, &inner.moves, &inner.tree()?, &request);
        self.inner.calls.list(list).await
    }

    /// A page would read all names of a directory, which may be a million.
    async fn probe(&self, _prefix: &str) -> Result<()> {
        let can_be_read = |inner: &Arc<Inner>| {
            inner.tree()?.directory(Path::new("")).map(drop).map_err(|error| failed("open the directory", error))
        };
        self.inner.call(can_be_read).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        let key = key.clone();
        let tags = |opened: Opened| opened.meta.map(|meta| meta.info.tags).unwrap_or_default();
        self.inner.call(move |inner| inner.must_open(key.as_str()).map(tags)).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()> {
        let (inner, key, tags) = (Arc::clone(&self.inner), key.clone(), tags.clone());
        self.inner.calls.write(move || inner.set_tags(key.as_str(), tags)).await
    }

    async fn sweep(&self, age: Duration, _is_ours: IsOurs<'_>) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        self.inner.calls.list(move || inner.sweep(age)).await
    }

    fn known_mark(&self) -> Option<Mark> {
        self.inner.shared.seen.mark().map(Mark::Id)
    }

    async fn mark(&self) -> Result<Mark> {
        self.inner.call(|inner| inner.mark()).await
    }

    async fn make_mark(&self) -> Result<Mark> {
        let inner = Arc::clone(&self.inner);
        self.inner.calls.write(move || inner.make_mark()).await
    }

    fn label(&self) -> String {
        format!("file://{}", self.inner.root.path().display())
    }
}

#[cfg(test)]
mod tests;
