//! A directory in HDFS as an under store: an object is a plain file, where people look for it.
//!
//! Bytes are written to a temporary file in the same directory. What a file cannot hold (content type, metadata, tags,
//! checksums) is in its extended attributes. Then one rename puts it into place. Files that others put there are
//! objects, too.
//!
//! A file is read, tagged and deleted by its number: a request that arrives late never hits the file that has taken the
//! name since.

mod connect;
mod errors;
mod meta;
mod names;
mod paths;
mod remote;
mod root;
mod settings;
mod sweep;
mod upload;
mod walk;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_env::{Env, RequesterPermits};
use forebay_types::{ByteRange, ETag, ObjectKey, Tags};
use tokio::sync::{Mutex, MutexGuard};

use crate::error::not_found;
use crate::{
    Condition, Error, ErrorKind, IsOurs, ListPage, ListRequest, RemoteBody, RemoteObject, Result, Stored, UnderStore,
    Upload,
};
use meta::{Attributes, remote_etag};
use remote::{Remote, Status};
pub use root::HdfsRoot;
pub use settings::HdfsLocation;
use sweep::Writing;
use upload::{Temporary, check};
use walk::no_directory;

/// Each holds a pipeline to DataNodes. A requester that is alone gets three quarters.
const UPLOADS_MAX: usize = 32;

/// Keys with the same lock wait for each other's rename or deletion.
const LOCKS: usize = 64;

/// One bucket as a directory in HDFS.
pub struct HdfsStore {
    env: Env,
    location: HdfsLocation,
    remote: Arc<Remote>,
    work: Arc<Work>,
    /// When the last sweep began, on the monotonic clock.
    swept: Mutex<Option<Duration>>,
}

/// What is in flight in one HDFS, in all of its buckets.
struct Work {
    /// Held while the file of a key changes: checking a condition and putting a file into place is one step, as far as
    /// this process is concerned.
    locks: Vec<Mutex<()>>,
    uploads: RequesterPermits,
    writing: Writing,
}

impl Work {
    fn new() -> Self {
        let locks = (0..LOCKS).map(|_| Mutex::default()).collect();
        Self { locks, uploads: RequesterPermits::new(UPLOADS_MAX), writing: Writing::default() }
    }
}

fn label(location: &HdfsLocation) -> String {
    format!("hdfs://{}{}", location.authority, location.path)
}

impl HdfsStore {
    /// Sends nothing yet: the NameNode may be out of reach.
    ///
    /// # Errors
    /// `Invalid` when the Hadoop configuration can't be read, or does not know the nameservice.
    pub fn new(env: Env, location: HdfsLocation) -> Result<Self> {
        let remote = Arc::new(connect::connect(&env, &location)?);
        Ok(Self::assume(env, location, remote, Arc::new(Work::new())))
    }

    fn assume(env: Env, location: HdfsLocation, remote: Arc<Remote>, work: Arc<Work>) -> Self {
        Self { env, location, remote, work, swept: Mutex::default() }
    }

    fn base(&self) -> &str {
        if self.location.path.is_empty() { "/" } else { &self.location.path }
    }

    /// # Errors
    /// `InvalidName` for a key that HDFS cannot have.
    fn path(&self, key: &ObjectKey) -> Result<String> {
        match paths::of_key(key.as_str()) {
            Ok(path) => Ok(paths::join(self.base(), &path)),
            Err(misfit) => Err(Error::new(ErrorKind::InvalidName, misfit.to_string())),
        }
    }

    async fn lock(&self, path: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        self.work.locks[hasher.finish() as usize % LOCKS].lock().await
    }

    /// The file of a key, if there is one.
    async fn find(&self, key: &ObjectKey) -> Result<Option<Status>> {
        // No key that HDFS cannot have is there.
        let Ok(path) = self.path(key) else { return Ok(None) };
        let status = self.remote.status(&path).await?.filter(|status| !status.is_directory);
        if status.is_none() {
            self.must_be_there().await?;
        }
        Ok(status)
    }

    async fn must_find(&self, key: &ObjectKey) -> Result<Status> {
        self.find(key).await?.ok_or_else(|| not_found(key.as_str()))
    }

    /// # Errors
    /// `NoBucket` when the directory of the mount is gone: that must not look as if its objects were deleted.
    async fn must_be_there(&self) -> Result<()> {
        walk::must_be_there(&self.remote, self.base()).await
    }

    async fn attributes(&self, key: &ObjectKey) -> Result<(Status, Attributes)> {
        let status = self.must_find(key).await?;
        match meta::read(&self.remote, &status.path(), key, status.identity).await {
            Ok(attributes) => Ok((status, attributes)),
            // It was replaced or deleted meanwhile.
            Err(error) if error.kind == ErrorKind::NotFound => {
                Err(Error::new(ErrorKind::Unavailable, "a file in HDFS changed while it was looked at"))
            }
            Err(error) => Err(error),
        }
    }

    async fn write_and_place(
        &self,
        temporary: &Temporary<'_>,
        key: &ObjectKey,
        target: &str,
        upload: &Upload,
    ) -> Result<Stored> {
        let file = temporary.write(key, upload).await?;
        let _lock = self.lock(target).await;
        // What must be absent is checked by the rename.
        if matches!(upload.condition, Condition::Matches(_)) {
            self.check(target, &upload.condition).await?;
        }
        temporary.place(file, target, &upload.condition).await
    }

    /// Checks what HDFS itself cannot, or would only after the upload.
    async fn check(&self, target: &str, condition: &Condition) -> Result<()> {
        let present = self.remote.status(target).await?.filter(|status| !status.is_directory);
        if present.is_none() && *condition != Condition::Absent {
            self.must_be_there().await?;
        }
        check(condition, present.map(|status| remote_etag(status.identity)).as_ref())
    }
}

#[async_trait]
impl UnderStore for HdfsStore {
    /// # Errors
    /// `Invalid` for a key that HDFS cannot have.
    fn check_key(&self, key: &ObjectKey) -> Result<()> {
        self.path(key).map(drop).map_err(|error| Error { kind: ErrorKind::Invalid, ..error })
    }

    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject> {
        Ok(self.attributes(key).await?.1.object)
    }

    /// A NameNode shows changes a moment before they are on its disk. Its answer to a later change comes behind them.
    async fn make_durable(&self, key: &ObjectKey) -> Result<()> {
        let status = match self.find(key).await? {
            Some(status) => Some(status),
            None => self.remote.status(self.base()).await?,
        };
        let Some(status) = status else { return Err(no_directory(self.base())) };
        let modified_ms = (status.identity.modified_ns / 1_000_000).max(0) as u64;
        match self.remote.set_modified(&status.path(), modified_ms).await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            set => set,
        }
    }

    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody> {
        let (status, Attributes { object, .. }) = self.attributes(key).await?;
        if if_match.is_some_and(|etag| *etag != object.remote_etag) {
            return Err(Error::new(ErrorKind::Precondition, "the object has changed"));
        }
        let whole = ByteRange::of_size(object.info.size);
        let range = range.map_or(whole, |range| range.intersect(whole).unwrap_or(ByteRange::new(0, 0)));
        let changed = || Error::new(ErrorKind::Unavailable, "a file in HDFS changed while it was opened");
        let reader = self.remote.open(&status.path()).await.map_err(|error| match error.kind {
            ErrorKind::NotFound => changed(),
            _ => error,
        })?;
        if reader.file_length() as u64 != object.info.size {
            // The client does not read the last block of a file that is open.
            let context = format!("{:?} is being written by another program in HDFS", key.as_str());
            return Err(Error::new(ErrorKind::Unavailable, context));
        }
        let stream = Remote::stream(&reader, range.start as usize, (range.end - range.start) as usize);
        Ok(RemoteBody { object, range, stream })
    }

    async fn put(&self, key: &ObjectKey, upload: Upload) -> Result<Stored> {
        let target = self.path(key)?;
        let _place = self.work.uploads.take().await;
        if upload.condition != Condition::Always {
            self.check(&target, &upload.condition).await?;
        }
        let written = self.work.writing.begin(paths::temporary(&self.env.random.hex_id()));
        let temporary = Temporary::new(&self.remote, self.base(), &target, &written.name);
        let stored = self.write_and_place(&temporary, key, &target, &upload).await;
        if stored.is_err() {
            temporary.remove().await;
        }
        stored
    }

    async fn delete(&self, key: &ObjectKey, condition: Condition) -> Result<()> {
        let Ok(path) = self.path(key) else { return check(&condition, None) };
        let _lock = self.lock(&path).await;
        let Some(status) = self.find(key).await? else {
            check(&condition, None)?;
            return self.make_durable(key).await;
        };
        check(&condition, Some(&remote_etag(status.identity)))?;
        // By number: whatever has taken the name meanwhile stays.
        let is_deleted = self.remote.delete(&status.path()).await?;
        if !is_deleted && condition != Condition::Always {
            return Err(upload::precondition());
        }
        sweep::remove_empty(&self.remote, self.base(), paths::parent(&path).unwrap_or("/")).await;
        Ok(())
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        walk::list(&self.remote, self.base(), request).await
    }

    /// A page would look into all directories on its way.
    async fn probe(&self, _prefix: &str) -> Result<()> {
        self.must_be_there().await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        Ok(self.attributes(key).await?.1.tags)
    }

    async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()> {
        let status = self.must_find(key).await?;
        meta::write_tags(&self.remote, &status.path(), tags).await
    }

    async fn sweep(&self, age: Duration, _is_ours: IsOurs<'_>) -> Result<u64> {
        // It lists all directories. What is left waits up to twice as long.
        let now = self.env.clock.monotonic();
        let mut swept = self.swept.lock().await;
        if swept.is_some_and(|swept| now.saturating_sub(swept) < age) {
            return Ok(0);
        }
        let removed =
            sweep::sweep(&self.remote, &self.work.writing, self.base(), self.env.clock.unix_ms(), age).await?;
        *swept = Some(now);
        Ok(removed)
    }

    fn label(&self) -> String {
        label(&self.location)
    }
}
