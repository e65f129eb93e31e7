//! The users file, read again when it has changed.

use std::path::PathBuf;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::file::{self, InvalidFile, Parsed};
use crate::user::User;

pub(crate) struct WatchedFile {
    path: PathBuf,
    root_access_key: String,
    /// Hash of what was read last, valid or not, so that a bad file is reported once. The file is small: reading it
    /// costs no more than its metadata would, and no change within the resolution of its time is missed.
    seen: Mutex<[u8; 32]>,
}

impl WatchedFile {
    pub(crate) fn new(path: PathBuf, root_access_key: String) -> Self {
        Self { path, root_access_key, seen: Mutex::new([0; 32]) }
    }

    /// Reads and checks the file.
    pub(crate) fn load(&self) -> Result<Parsed, InvalidFile> {
        let text = std::fs::read_to_string(&self.path).map_err(|error| self.refuse(error.to_string()))?;
        *self.seen.lock() = Sha256::digest(&text).into();
        self.parse(&text)
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
        self.parse(&text).map(Some)
    }

    fn parse(&self, text: &str) -> Result<Parsed, InvalidFile> {
        let parsed = file::parse(text).map_err(|problem| self.refuse(problem))?;
        match parsed.users.iter().find(|user| user.access_key == self.root_access_key) {
            Some(User { name, .. }) => Err(self.refuse(format!(
                "user {name:?}: its access key is the root user's (FOREBAY_ROOT_ACCESS_KEY): give it another one"
            ))),
            None => Ok(parsed),
        }
    }

    fn refuse(&self, problem: String) -> InvalidFile {
        InvalidFile { path: self.path.display().to_string(), problem }
    }
}
