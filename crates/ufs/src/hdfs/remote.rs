//! The calls to HDFS, each with a deadline.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Clock;
use futures::StreamExt;
use hdfs_native::client::{FileStatus, XAttrSetFlag};
use hdfs_native::file::{FileReader, FileWriter};
use hdfs_native::{Client, WriteOptions};

use super::errors::{Effect, classify, timed_out};
use crate::file_meta::FileIdentity;
use crate::{ByteStream, ErrorKind, Result};

/// The path by which HDFS finds a file by its number, wherever it is.
const BY_NUMBER: &str = "/.reserved/.inodes";

/// `-1`: the time stays as it is.
const UNCHANGED: u64 = u64::MAX;

/// What the NameNode tells of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    /// Its last name.
    pub(super) name: String,
    pub(super) is_directory: bool,
    pub(super) identity: FileIdentity,
}

/// A part of a directory.
pub(super) struct Page {
    pub(super) entries: Vec<Status>,
    pub(super) is_last: bool,
}

/// A connection to HDFS.
pub(super) struct Remote {
    client: Client,
    pub(super) clock: Arc<dyn Clock>,
    deadline: Duration,
}

impl Status {
    fn new(status: FileStatus) -> Self {
        let identity = FileIdentity {
            // The NameNodes of the last ten years tell it.
            number: status.file_id.unwrap_or_default(),
            modified_ns: i128::from(status.modification_time) * 1_000_000,
            size: status.length as u64,
        };
        let name = status.path.rsplit('/').next().unwrap_or_default().to_owned();
        Self { name, is_directory: status.isdir, identity }
    }

    /// A path that leads to this file only, and to none that takes its name later.
    pub(super) fn path(&self) -> String {
        by_number(self.identity.number)
    }
}

fn by_number(number: u64) -> String {
    format!("{BY_NUMBER}/{number}")
}

impl Remote {
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>, deadline: Duration) -> Self {
        Self { client, clock, deadline }
    }

    async fn call<T>(
        &self,
        effect: Effect,
        doing: &str,
        call: impl Future<Output = hdfs_native::Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            biased;
            answer = call => answer.map_err(|error| classify(error, effect, doing)),
            () = self.clock.sleep(self.deadline) => Err(timed_out(effect, doing)),
        }
    }

    /// `None` when there is none, or a file is on the way.
    pub(super) async fn status(&self, path: &str) -> Result<Option<Status>> {
        match self.call(Effect::Read, "look at a file", self.client.get_file_info(path)).await {
            Ok(status) => Ok(Some(Status::new(status))),
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::InvalidName) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Names of a directory behind `after`, in the order of signed bytes. `None` when there is no such directory.
    pub(super) async fn page(&self, path: &str, after: &[u8]) -> Result<Option<Page>> {
        match self.call(Effect::Read, "list a directory", self.client.list_page(path, after)).await {
            // The NameNode lists a file as the only entry of itself.
            Ok(page) if page.files.first().is_some_and(|first| first.path == path) => Ok(None),
            Ok(page) => {
                let entries = page.files.into_iter().map(Status::new).collect();
                Ok(Some(Page { entries, is_last: page.remaining == 0 }))
            }
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::InvalidName) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All attributes of a file that users may see.
    pub(super) async fn attributes(&self, path: &str) -> Result<Vec<(String, Vec<u8>)>> {
        self.call(Effect::Read, "read the metadata of a file", self.client.get_xattrs(path, &[])).await
    }

    pub(super) async fn set_attribute(&self, path: &str, name: &str, value: &[u8]) -> Result<()> {
        let set = self.client.set_xattr(path, name, value, XAttrSetFlag::CreateOrReplace);
        self.call(Effect::Write, "write the metadata of a file", set).await
    }

    pub(super) async fn set_modified(&self, path: &str, unix_ms: u64) -> Result<()> {
        self.call(Effect::Write, "set the time of a file", self.client.set_times(path, unix_ms, UNCHANGED)).await
    }

    /// Creates a file that must not exist, and the directories on the way if they are wanted. `NotFound` when they are
    /// missing and not wanted.
    pub(super) async fn create(&self, path: &str, with_directories: bool) -> Result<FileWriter> {
        let options = WriteOptions::default().create_parent(with_directories);
        self.call(Effect::Write, "create a file", self.client.create(path, options)).await
    }

    pub(super) async fn write(&self, writer: &mut FileWriter, data: Bytes) -> Result<()> {
        self.call(Effect::Write, "write a file", writer.write_bytes(data)).await.map(drop)
    }

    /// Brings the file to stable storage on all its DataNodes: the client asks them for that with the last packet of
    /// each block.
    pub(super) async fn close(&self, mut writer: FileWriter) -> Result<()> {
        self.call(Effect::Write, "close a file", writer.close()).await
    }

    pub(super) async fn rename(&self, from: &str, to: &str, overwrite: bool) -> Result<()> {
        self.call(Effect::Write, "rename a file", self.client.rename(from, to, overwrite)).await
    }

    /// Whether there was something to delete. A directory must be empty.
    pub(super) async fn delete(&self, path: &str) -> Result<bool> {
        match self.call(Effect::Write, "remove a file", self.client.delete(path, false)).await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            deleted => deleted,
        }
    }

    pub(super) async fn make_directory(&self, path: &str) -> Result<()> {
        self.call(Effect::Write, "make a directory", self.client.mkdirs(path, 0o755, true)).await
    }

    pub(super) async fn open(&self, path: &str) -> Result<FileReader> {
        self.call(Effect::Read, "open a file", self.client.read(path)).await
    }

    /// Streams bytes of an open file. The client has verified their checksums.
    pub(super) fn stream(reader: &FileReader, begin: usize, length: usize) -> ByteStream {
        let stream = reader.read_range_stream(begin, length);
        stream.map(|bytes| bytes.map_err(|error| classify(error, Effect::Read, "read a file"))).boxed()
    }
}
