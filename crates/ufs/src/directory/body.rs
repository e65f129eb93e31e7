//! Reads and writes the bytes of files.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_env::Random;
use forebay_types::{ByteRange, ETag};
use futures::StreamExt;

use super::calls::DirectoryCalls;
use super::errors::failed;
use super::meta;
use super::own::{make_own, own};
use super::tree::Tree;
use crate::file_meta::{FileIdentity, FileMeta};
use crate::{ByteStream, Error, ErrorKind, Result, Upload};

/// Bytes read or written at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// Streams a range of an open file: one version, whatever happens to its name. When another program writes into the
/// file meanwhile, the stream ends with an error.
pub(crate) fn stream(calls: DirectoryCalls, file: File, opened: FileIdentity, range: ByteRange) -> ByteStream {
    let file = Arc::new(file);
    let next = move |at: u64| {
        let (calls, file) = (calls.clone(), Arc::clone(&file));
        async move {
            if at >= range.end {
                return None;
            }
            let length = CHUNK_BYTES.min(range.end - at);
            let read = calls.read(move || read(&file, opened, at, length as usize)).await;
            // After an error the stream ends.
            let next = if read.is_ok() { at + length } else { range.end };
            Some((read, next))
        }
    };
    futures::stream::unfold(range.start, next).boxed()
}

/// # Errors
/// `Unavailable` when the file is not what it was when it was opened.
fn read(file: &File, opened: FileIdentity, at: u64, length: usize) -> Result<Bytes> {
    let mut buffer = BytesMut::zeroed(length);
    file.read_exact_at(&mut buffer, at).map_err(|error| failed("read a file", error))?;
    // After the bytes: they are of this version if it is still there. The change time would not tell, because tags and
    // links move it, too.
    let stat = file.metadata().map_err(|error| failed("look at a file", error))?;
    if meta::identity(&stat) != opened {
        return Err(Error::new(ErrorKind::Unavailable, "another program changed the file while it was read"));
    }
    Ok(buffer.freeze())
}

/// The bytes of an upload, in batches that are each worth a step.
pub(crate) struct Batches {
    upload: Upload,
    stream: ByteStream,
    size: u64,
    taken: u64,
}

impl Batches {
    pub(crate) fn new(upload: &Upload) -> Self {
        let size = upload.info.size;
        Self { upload: upload.clone(), stream: upload.source.stream(ByteRange::of_size(size)), size, taken: 0 }
    }

    /// The next bytes, and whether they are the last.
    ///
    /// # Errors
    /// `Corrupt` when the source has more bytes or fewer than the object.
    pub(crate) async fn next(&mut self) -> Result<(Vec<Bytes>, bool)> {
        let begin = self.taken;
        let mut batch = Vec::new();
        while self.taken - begin < CHUNK_BYTES {
            let Some(data) = self.stream.next().await.transpose()? else {
                if self.taken == self.size {
                    return Ok((batch, true));
                }
                let context = format!("the source of an upload has {} bytes, not {}", self.taken, self.size);
                return Err(Error::new(ErrorKind::Corrupt, context));
            };
            self.taken += data.len() as u64;
            self.upload.turn(data.len() as u64).await;
            batch.push(data);
        }
        Ok((batch, false))
    }
}

/// A file that is not an object yet. It is removed when this is dropped, unless it was renamed. Its functions block.
pub(crate) struct Temporary {
    tree: Tree,
    path: PathBuf,
    file: File,
    is_in_place: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_in_place {
            // If it can't be removed, a sweep removes it later.
            if self.tree.remove_file(&self.path).is_ok() {
                meta::forget(&self.tree, &self.file);
            }
        }
    }
}

impl Temporary {
    pub(crate) fn create(tree: Tree, random: &dyn Random) -> Result<Self> {
        let path = own("tmp").join(random.hex_id());
        let created = tree.create(&path).or_else(|error| match error.kind() {
            // This is the first one, and the directory for it is missing.
            io::ErrorKind::NotFound => make_own(&tree, "tmp").and_then(|()| tree.create(&path)),
            _ => Err(error),
        });
        let file = created.map_err(|error| failed("create a file", error))?;
        Ok(Self { tree, path, file, is_in_place: false })
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn write(&self, batch: &[Bytes]) -> Result<()> {
        let mut slices: Vec<IoSlice<'_>> = batch.iter().map(|data| IoSlice::new(data)).collect();
        let mut rest = slices.as_mut_slice();
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match (&self.file).write_vectored(rest) {
                Ok(0) => return Err(failed("write a file", io::ErrorKind::WriteZero.into())),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("write a file", error)),
            }
        }
        Ok(())
    }

    /// Adds the metadata and makes everything durable. Returns the ETag.
    pub(crate) fn finish(&self, key: &str, upload: &Upload) -> Result<ETag> {
        let stat = self.file.metadata().map_err(|error| failed("look at a file", error))?;
        let meta = FileMeta::new(key, upload.generation, upload.info.as_ref().clone(), meta::identity(&stat));
        meta::write(&self.tree, &self.file, &stat, &meta)?;
        self.file.sync_all().map_err(|error| failed("sync a file", error))?;
        Ok(meta::remote_etag(&stat, Some(&meta)))
    }

    pub(crate) fn rename(&mut self, target: &Path) -> io::Result<()> {
        self.tree.rename(&self.path, target)?;
        self.is_in_place = true;
        Ok(())
    }

    /// # Errors
    /// `AlreadyExists` when something has the name of the target.
    pub(crate) fn rename_to_new(&mut self, target: &Path) -> io::Result<()> {
        self.tree.rename_to_new(&self.path, target)?;
        self.is_in_place = true;
        Ok(())
    }
}
