//! The copies of a snapshot in the directories.

use std::sync::Arc;

use forebay_env::DiskFile;
use forebay_env::sync::atomic::Ordering;

use super::format::{Chunk, NAME, START_BYTES, frame, start_of_file};
use crate::directory::Directory;
use crate::segment::lacks_room;
use crate::{Error, ErrorKind, Result};

const NAME_NEW: &str = "snapshot.new";

/// How many directories get a copy, if there are that many. So the loss of one directory does not lose what is known
/// about the others.
pub(super) const COPIES: usize = 2;

/// The files of a snapshot that is being written. A directory that fails to write it gets none.
pub(super) struct Copies {
    files: Vec<(Arc<Directory>, Arc<dyn DiskFile>)>,
    pub(super) offset: u64,
    refused: Option<Error>,
}

impl Copies {
    pub(super) async fn begin(directories: Vec<Arc<Directory>>, has_prepared: bool) -> Self {
        let mut copies = Self { files: Vec::new(), offset: START_BYTES as u64, refused: None };
        for directory in directories {
            if copies.files.len() == COPIES {
                break;
            }
            let begun = async {
                let disk = &directory.disk;
                if disk.list().await?.iter().any(|name| name == NAME_NEW) {
                    disk.remove(NAME_NEW).await?;
                }
                let file = disk.create(NAME_NEW).await?;
                file.write_at(0, vec![start_of_file(has_prepared)], false).await?;
                Ok(file)
            };
            match begun.await {
                Ok(file) => copies.files.push((directory, file)),
                Err(error) => copies.give_up(&directory, error).await,
            }
        }
        copies
    }

    pub(super) async fn put(&mut self, chunk: Chunk<'_>) {
        let (bytes, offset) = (frame(&chunk), self.offset);
        self.offset += bytes.len() as u64;
        for (directory, file) in std::mem::take(&mut self.files) {
            let written = file.write_at(offset, vec![bytes.clone()], false).await;
            self.keep(directory, file, written).await;
        }
    }

    pub(super) async fn sync(&mut self) {
        for (directory, file) in std::mem::take(&mut self.files) {
            let synced = file.sync_data().await;
            self.keep(directory, file, synced).await;
        }
    }

    async fn keep(&mut self, directory: Arc<Directory>, file: Arc<dyn DiskFile>, result: std::io::Result<()>) {
        match result {
            Ok(()) => self.files.push((directory, file)),
            Err(error) => self.give_up(&directory, error).await,
        }
    }

    async fn give_up(&mut self, directory: &Directory, error: std::io::Error) {
        // On a full disk, it would take room that commits need.
        let _ = directory.disk.remove(NAME_NEW).await;
        let context = format!("could not write a snapshot to {}", directory.disk.label());
        let kind = if lacks_room(&error) { ErrorKind::Full } else { ErrorKind::Failed };
        // What more room does not help with is reported first.
        let before = self.refused.take().filter(|before| before.kind != ErrorKind::Full);
        self.refused = Some(before.unwrap_or_else(|| Error { kind, ..Error::io(context, error) }));
    }

    /// Removes the files, because the snapshot can't be used.
    pub(super) async fn give_up_all(self) {
        for (directory, file) in self.files {
            drop(file);
            let _ = directory.disk.remove(NAME_NEW).await;
        }
    }

    /// # Errors
    /// When no directory could write it.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.refused.take() {
            Some(error) if self.files.is_empty() => Err(error),
            Some(error) => {
                tracing::warn!(%error, "a snapshot has fewer copies than it should");
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Puts the snapshot in place of the previous one. Returns the numbers of the directories that have it.
    pub(super) async fn replace(mut self) -> Result<Vec<u16>> {
        let mut held_in = Vec::new();
        for (directory, _) in std::mem::take(&mut self.files) {
            let replaced = async {
                directory.disk.rename(NAME_NEW, NAME).await?;
                directory.disk.sync_directory().await
            };
            match replaced.await {
                Ok(()) => held_in.push(directory.identity.number),
                Err(error) => self.give_up(&directory, error).await,
            }
        }
        match self.refused {
            Some(error) if held_in.is_empty() => Err(error),
            Some(_) | None => Ok(held_in),
        }
    }
}

/// Notes how many bytes the snapshot takes in the directories that have it.
pub(crate) fn count_snapshots(directories: &[Arc<Directory>], held_in: &[u16], bytes: u64) {
    for directory in directories {
        let is_here = held_in.contains(&directory.identity.number);
        directory.snapshot_bytes.store(if is_here { bytes } else { 0 }, Ordering::SeqCst);
    }
}

/// Drops what an earlier process has not finished. It may have written to other directories than this one does.
pub(crate) async fn drop_unfinished_snapshots(directories: &[Arc<Directory>]) {
    for directory in directories {
        // Usually it does not exist.
        let _ = directory.disk.remove(NAME_NEW).await;
    }
}

/// Removes snapshots from the other directories. They are older, and must not be used when the newest is lost: logs
/// that they need have been released since.
pub(crate) async fn drop_older_snapshots(directories: &[Arc<Directory>], held_in: &[u16]) {
    for directory in directories.iter().filter(|directory| !held_in.contains(&directory.identity.number)) {
        // Usually it does not exist. It must not come back after a power cut, either.
        if directory.disk.remove(NAME).await.is_ok() {
            let _ = directory.disk.sync_directory().await;
        }
    }
}
