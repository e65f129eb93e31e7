//! The users file, read again when it has changed.

use std::path::PathBuf;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::file::{self, InvalidFile, Parsed};

pub(crate) struct WatchedFile {
    path: PathBuf,
    /// Hash of what was read last, valid or not, so that a bad file is reported once. The file is small: reading it
    /// costs no more than its metadata would, and no change within the resolution of its time is missed.
    seen: Mutex<[u8; 32]>,
}

impl WatchedFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, seen: Mutex::new([0; 32]) }
    }

    /// Reads and checks the file.
    pub(crate) fn load(&self) -> Result<Parsed, InvalidFile> {
        let text = std::fs::read_to_string(&self.path).map_err(|error| self.refuse(error.to_string()))?;
        *self.seen.lock() = Sha256::digest(&text).into();
        file::parse(&text).map_err(|problem| self.refuse(problem))
    }

    /// As [`WatchedFile::load`], but `None` when the content is what was read last.
    pub(crate) fn load_if_changed(&self) -> Result<Option<Parsed>, InvalidFile> {
        let text = std::fs::read_to_string(&self.path).map_err(|error| {
            // When it is back, it is news, whatever is in it.
            *self.seen.lock() = [0; 32];
            self.refuse(error.to_string())
        })?;
        let hash = Sha256::digest(&text).into();
        if std::mem::replace(&mut *self.seen.lock(), hash) == hash {
            return Ok(None);
        }
        file::parse(&text).map(Some).map_err(|problem| self.refuse(problem))
    }

    fn refuse(&self, problem: String) -> InvalidFile {
        InvalidFile { path: self.path.display().to_string(), problem }
    }
}
