//! Writes an object: a temporary file beside its place, the metadata on it, and one rename.

use std::sync::OnceLock;
use std::time::Duration;

use forebay_types::{ByteRange, ETag, ObjectKey};
use futures::StreamExt;
use hdfs_native::file::FileWriter;

use super::meta::{self, remote_etag};
use super::paths;
use super::remote::{Remote, Status};
use super::sweep;
use super::walk::must_be_there;
use crate::file_meta::FileIdentity;
use crate::{Condition, Error, ErrorKind, Result, Stored, Upload};

/// HDFS sets the time of a file when it is created, and when it is closed. Between two of these, the sweep of another
/// worker must not take the file of a long upload for a leftover.
const TOUCH_INTERVAL: Duration = Duration::from_secs(5);

/// A file that is not an object yet.
pub(super) struct Temporary<'a> {
    remote: &'a Remote,
    /// The directory of the mount.
    base: &'a str,
    path: String,
    /// Where other directories had to be made: the deepest one on the way that was there before.
    made_below: OnceLock<String>,
}

impl<'a> Temporary<'a> {
    pub(super) fn new(remote: &'a Remote, base: &'a str, target: &str, name: &str) -> Self {
        let path = paths::join(paths::parent(target).unwrap_or("/"), name);
        Self { remote, base, path, made_below: OnceLock::new() }
    }

    /// Writes the bytes, the metadata and the time.
    pub(super) async fn write(&self, key: &ObjectKey, upload: &Upload) -> Result<FileIdentity> {
        // Whatever is lost here has changed no object.
        self.try_write(key, upload).await.map_err(|error| match error.kind {
            ErrorKind::Ambiguous | ErrorKind::NotFound => Error { kind: ErrorKind::Unavailable, ..error },
            _ => error,
        })
    }

    async fn try_write(&self, key: &ObjectKey, upload: &Upload) -> Result<FileIdentity> {
        let mut writer = self.create().await?;
        let number = writer.file_id().unwrap_or_default();
        self.copy(&mut writer, upload).await?;
        self.remote.close(writer).await?;
        let modified_ms = upload.info.last_modified_ms;
        let modified_ns = i128::from(modified_ms) * 1_000_000;
        let file = FileIdentity { number, modified_ns, size: upload.info.size };
        meta::write(self.remote, &self.path, key, file, upload).await?;
        // Last: a time that is long ago makes the file a leftover to the sweep of another worker.
        self.remote.set_modified(&self.path, modified_ms).await?;
        Ok(file)
    }

    /// Makes the directories on the way, but not that of the mount: it may have been moved away.
    async fn create(&self) -> Result<FileWriter> {
        match self.remote.create(&self.path, false).await {
            Err(error) if error.kind == ErrorKind::NotFound => {
                must_be_there(self.remote, self.base).await?;
                let present = self.deepest_present().await?;
                let _is_the_only_one = self.made_below.set(present);
                self.remote.create(&self.path, true).await
            }
            created => created,
        }
    }

    /// The directory on the way below which all are missing. That of the mount is there, and the last one is not.
    async fn deepest_present(&self) -> Result<String> {
        let above = |path: &str| paths::parent(path).unwrap_or("/").to_owned();
        let mut directory = above(&above(&self.path));
        while directory.len() > self.base.len() && self.remote.status(&directory).await?.is_none() {
            directory = above(&directory);
        }
        // That of the mount may have come back meanwhile, and stays.
        Ok(if directory.len() < self.base.len() { self.base.to_owned() } else { directory })
    }

    async fn copy(&self, writer: &mut FileWriter, upload: &Upload) -> Result<()> {
        let size = upload.info.size;
        let (mut stream, mut taken) = (upload.source.stream(ByteRange::of_size(size)), 0);
        let mut touched = self.remote.clock.monotonic();
        while let Some(data) = stream.next().await.transpose()? {
            taken += data.len() as u64;
            if taken > size {
                break;
            }
            upload.turn(data.len() as u64).await;
            self.remote.write(writer, data).await?;
            if self.remote.clock.monotonic() >= touched + TOUCH_INTERVAL {
                let now_ms = self.remote.clock.unix_ms();
                if let Err(error) = self.remote.set_modified(&self.path, now_ms).await {
                    tracing::debug!(%error, path = self.path, "the time of a file that is being written could not be set");
                }
                touched = self.remote.clock.monotonic();
            }
        }
        if taken == size {
            return Ok(());
        }
        let context = format!("the source of an upload has {taken} bytes or more, not {size}");
        Err(Error::new(ErrorKind::Corrupt, context))
    }

    /// Puts the file into its place.
    ///
    /// # Errors
    /// `Precondition` when it must be absent and is not; `InvalidName` when a directory has the name; `Ambiguous` when
    /// nobody can tell.
    pub(super) async fn place(&self, file: FileIdentity, target: &str, condition: &Condition) -> Result<Stored> {
        let stored = Stored { remote_etag: remote_etag(file) };
        let overwrite = *condition != Condition::Absent;
        let Err(error) = self.rename(target, overwrite).await else { return Ok(stored) };
        if error.kind != ErrorKind::Ambiguous {
            return Err(self.refused(target, error).await);
        }
        // The file is in one of two places. Without its temporary name, a rename that arrives late fails.
        match self.delete().await {
            Ok(true) => Err(Error { kind: ErrorKind::Unavailable, ..error }),
            Ok(false) => match self.is_durable_at(target, file).await {
                true => Ok(stored),
                false => Err(error),
            },
            Err(_) => Err(error),
        }
    }

    /// Renames the file to its place. An empty directory there makes way: an interrupted upload or deletion may have
    /// left it.
    async fn rename(&self, target: &str, overwrite: bool) -> Result<()> {
        match self.remote.rename(&self.path, target, overwrite).await {
            Err(error) if error.kind != ErrorKind::Ambiguous => {
                let has_made_way = sweep::remove_directory(self.remote, target).await.unwrap_or(false);
                if has_made_way { self.remote.rename(&self.path, target, overwrite).await } else { Err(error) }
            }
            renamed => renamed,
        }
    }

    /// Whether the file has its place for good. A NameNode shows a rename a moment before it is on its disk, and its
    /// answer to a later change comes behind it.
    async fn is_durable_at(&self, target: &str, file: FileIdentity) -> bool {
        let Ok(Some(status)) = self.remote.status(target).await else { return false };
        if status.identity.number != file.number {
            return false;
        }
        let modified_ms = (status.identity.modified_ns / 1_000_000).max(0) as u64;
        self.remote.set_modified(&status.path(), modified_ms).await.is_ok()
    }

    /// Why a rename was refused.
    async fn refused(&self, target: &str, error: Error) -> Error {
        match self.remote.status(target).await {
            Ok(Some(Status { is_directory: true, .. })) => {
                Error::new(ErrorKind::InvalidName, format!("{target} is a directory in HDFS, and holds other objects"))
            }
            _ if error.kind == ErrorKind::AlreadyExists => precondition(),
            // A sweep of another worker has taken the temporary file for a leftover.
            _ if error.kind == ErrorKind::NotFound => Error { kind: ErrorKind::Unavailable, ..error },
            _ => error,
        }
    }

    /// Also removes the directories that were made for it, when nothing else is in them. If the file can't be removed,
    /// a sweep removes it later.
    pub(super) async fn remove(&self) {
        let _ = self.delete().await;
        if let (Some(present), Some(directory)) = (self.made_below.get(), paths::parent(&self.path)) {
            sweep::remove_empty(self.remote, present, directory).await;
        }
    }

    /// Tries twice: the answer may be lost once more.
    async fn delete(&self) -> Result<bool> {
        match self.remote.delete(&self.path).await {
            Err(error) if error.kind.is_transient() => self.remote.delete(&self.path).await,
            deleted => deleted,
        }
    }
}

pub(super) fn precondition() -> Error {
    Error::new(ErrorKind::Precondition, "a condition does not hold")
}

/// # Errors
/// `Precondition`.
pub(super) fn check(condition: &Condition, present: Option<&ETag>) -> Result<()> {
    let holds = match (condition, present) {
        (Condition::Always, _) | (Condition::Absent, None) => true,
        (Condition::Matches(etag), Some(present)) => etag == present,
        (Condition::Absent, Some(_)) | (Condition::Matches(_), None) => false,
    };
    if holds { Ok(()) } else { Err(precondition()) }
}
