//! The users file, read again when it has changed.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::document::Document;
use crate::file::InvalidFile;

pub(crate) struct WatchedFile {
    path: PathBuf,
    root_access_key: String,
    /// Hash of what was read last, valid or not, so that a bad file is reported once. The file is small: reading it
    /// costs no more than its metadata would, and no change within the resolution of its time is missed.
    seen: Mutex<[u8; 32]>,
    /// What was read last and was valid.
    valid: Mutex<Option<Arc<Document>>>,
}

impl WatchedFile {
    pub(crate) fn new(path: PathBuf, root_access_key: String) -> Self {
        Self { path, root_access_key, seen: Mutex::new([0; 32]), valid: Mutex::default() }
    }

    /// Reads and checks the file.
    pub(crate) fn load(&self) -> Result<Arc<Document>, InvalidFile> {
        let text = std::fs::read_to_string(&self.path).map_err(|error| self.refuse(error.to_string()))?;
        *self.seen.lock() = Sha256::digest(&text).into();
        self.parse(&text)
    }

    /// As [`WatchedFile::load`], but `None` when the content is what was read last.
    pub(crate) fn load_if_changed(&self) -> Result<Option<Arc<Document>>, InvalidFile> {
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

    pub(crate) fn valid(&self) -> Option<Arc<Document>> {
        self.valid.lock().clone()
    }

    fn parse(&self, text: &str) -> Result<Arc<Document>, InvalidFile> {
        let document = Document::parse(text, &self.root_access_key).map_err(|problem| self.refuse(problem))?;
        let document = Arc::new(document);
        *self.valid.lock() = Some(Arc::clone(&document));
        Ok(document)
    }

    fn refuse(&self, problem: String) -> InvalidFile {
        InvalidFile { path: self.path.display().to_string(), problem }
    }
}
