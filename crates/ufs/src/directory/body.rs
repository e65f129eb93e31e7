//! Bytes of files, in and out.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_types::{ByteRange, ETag};
use futures::StreamExt;

use super::{Inner, blocking, failed, meta};
use crate::{ByteStream, Error, ErrorKind, Result, Upload};

/// Bytes read or written at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// Streams a range of an open file: one version, whatever happens to the name.
pub(crate) fn stream(file: File, range: ByteRange) -> ByteStream {
    let file = Arc::new(file);
    let next = move |at: u64| {
        let file = Arc::clone(&file);
        async move {
            if at >= range.end {
                return None;
            }
            let length = CHUNK_BYTES.min(range.end - at);
            let read = blocking(move || read(&file, at, length as usize)).await;
            // After an error the stream ends.
            let next = if read.is_ok() { at + length } else { range.end };
            Some((read, next))
        }
    };
    futures::stream::unfold(range.start, next).boxed()
}

fn read(file: &File, at: u64, length: usize) -> Result<Bytes> {
    let mut buffer = BytesMut::zeroed(length);
    file.read_exact_at(&mut buffer, at).map_err(|error| failed("read a file", error))?;
    Ok(buffer.freeze())
}

/// A file that is not an object yet; removed when dropped, unless it has been renamed.
pub(crate) struct Temporary {
    path: PathBuf,
    file: Arc<File>,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Gone when it was renamed into place.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Temporary {
    pub(crate) async fn create(inner: &Arc<Inner>) -> Result<Self> {
        let inner = Arc::clone(inner);
        blocking(move || {
            let directory = inner.own("tmp");
            if !inner.root.is_dir() {
                return Err(Error::new(ErrorKind::NoBucket, "the directory behind the mount is gone"));
            }
            std::fs::create_dir_all(&directory).map_err(|error| failed("make a directory", error))?;
            let path = directory.join(inner.env.random.hex_id());
            let created = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path);
            let file = created.map_err(|error| failed("create a file", error))?;
            Ok(Self { path, file: Arc::new(file) })
        })
        .await
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes bytes and metadata, and makes both durable. Returns the tag.
    pub(crate) async fn fill(&self, inner: &Arc<Inner>, upload: &Upload) -> Result<ETag> {
        let mut stream = upload.source.stream(ByteRange::of_size(upload.info.size));
        let mut written = 0;
        while let Some(data) = stream.next().await {
            let data = data?;
            written += data.len() as u64;
            let file = Arc::clone(&self.file);
            blocking(move || file.as_ref().write_all(&data).map_err(|error| failed("write a file", error))).await?;
        }
        if written != upload.info.size {
            let context = format!("the source of an upload has {written} bytes, not {}", upload.info.size);
            return Err(Error::new(ErrorKind::Corrupt, context));
        }
        let (file, inner) = (Arc::clone(&self.file), Arc::clone(inner));
        let (generation, info) = (upload.generation, Arc::clone(&upload.info));
        blocking(move || {
            let stat = file.metadata().map_err(|error| failed("look at a file", error))?;
            let meta = meta::FileMeta::new(generation, info.as_ref().clone(), &stat);
            meta::write(&inner, &file, &stat, &meta)?;
            file.sync_all().map_err(|error| failed("sync a file", error))?;
            Ok(meta::remote_etag(&stat, Some(&meta)))
        })
        .await
    }
}
