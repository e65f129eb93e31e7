//! What etcd keeps of the users of a cluster, before it is encrypted, and when a users file replaces them.
//!
//! Files may differ for a while: one machine gets a change before another, or was off meanwhile. An old file must not
//! bring back users that were removed. So only a file that has changed counts, and at a start of its worker only if its
//! users have never been replaced.

use bytes::Bytes;
use forebay_auth::Document;
use forebay_catalog::{Result, records};
use serde::{Deserialize, Serialize};

/// Earlier users that can be distinguished from new ones.
const PAST_MAX: usize = 1000;
/// Of the digest of earlier users, in hexadecimal digits.
const PAST_DIGITS: usize = 16;
/// Workers with a note. The file of one that has none is not news.
const NOTES_MAX: usize = 1000;

/// JSON behind the version byte: a new field has a default, and a reader of before passes it over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsersState {
    /// In the format of the users file.
    pub(super) text: String,
    /// [`Document::digest`] of it.
    pub(super) digest: String,
    /// The worker that it is from.
    pub(super) by: String,
    /// Those that were replaced, the oldest first.
    past: Vec<Past>,
    /// What the files of the workers had, the oldest note first.
    notes: Vec<Note>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Past {
    revision: u64,
    digest: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    worker: String,
    digest: String,
    /// That of the users in force then.
    revision: u64,
}

impl UsersState {
    pub(super) fn encode(&self) -> Bytes {
        records::encode_json(self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        records::decode_json("users", bytes)
    }

    /// Whether the users of a worker's file are to replace these, which have this revision. `edited`: the file has
    /// changed while the worker ran, and knew the users of this revision.
    pub(super) fn is_news(&self, revision: u64, worker: &str, digest: &str, edited: Option<u64>) -> bool {
        if digest == self.digest {
            return false;
        }
        let note = self.notes.iter().find(|note| note.worker == worker);
        // Also of a change that was committed although the answer was lost.
        if note.is_some_and(|note| note.digest == digest) {
            return false;
        }
        // Later users may be those of this change, which others have made and replaced before this worker could.
        if let Some(known) = edited {
            return !self.are_past(digest, known);
        }
        // What was replaced before the earliest of them is forgotten.
        let first_known = self.past.first().map_or(revision, |past| past.revision);
        note.is_some_and(|note| first_known <= note.revision) && !self.are_past(digest, 0)
    }

    /// Whether these users were in force, at this revision or later, and are replaced.
    fn are_past(&self, digest: &str, since: u64) -> bool {
        self.past.iter().any(|past| past.revision >= since && past.digest == shortened(digest))
    }

    /// Drops half of what only keeps old files from counting. Returns whether there was any.
    pub(super) fn shrink(&mut self) -> bool {
        let is_any = !self.past.is_empty() || !self.notes.is_empty();
        self.past.drain(..self.past.len().div_ceil(2));
        self.notes.drain(..self.notes.len().div_ceil(2));
        is_any
    }

    /// After a change of the file of this worker.
    pub(super) fn replaced(mut self, revision: u64, worker: &str, file: &Document) -> Self {
        if !self.digest.is_empty() {
            self.past.push(Past { revision: revision - 1, digest: shortened(&self.digest).to_owned() });
            let surplus = self.past.len().saturating_sub(PAST_MAX);
            self.past.drain(..surplus);
        }
        (self.text, self.digest, self.by) = (file.text().to_owned(), file.digest().to_owned(), worker.to_owned());
        self.noted(revision, worker, file.digest())
    }

    /// `None` when there is this note already.
    pub(super) fn with_note(self, revision: u64, worker: &str, digest: &str) -> Option<Self> {
        let has_note = self.notes.iter().any(|note| note.worker == worker && note.digest == digest);
        (!has_note).then(|| self.noted(revision, worker, digest))
    }

    fn noted(mut self, revision: u64, worker: &str, digest: &str) -> Self {
        self.notes.retain(|note| note.worker != worker);
        self.notes.push(Note { worker: worker.to_owned(), digest: digest.to_owned(), revision });
        let surplus = self.notes.len().saturating_sub(NOTES_MAX);
        self.notes.drain(..surplus);
        self
    }
}

fn shortened(digest: &str) -> &str {
    digest.get(..PAST_DIGITS).unwrap_or(digest)
}
