//! The commit that changes a key's record in the catalog, and the write intents that go with it.

use forebay_catalog::records::{self, ObjectRecord};
use forebay_catalog::{Check, Transaction};
use forebay_store::ValueWrite;
use forebay_types::{Generation, ObjectPath};

use crate::worker::{Current, Worker};
use crate::write::write_times::Note;
use crate::{Error, ErrorKind, Result};

impl Worker {
    /// The newest write that bypassed the key's pending version and whose answer was lost.
    pub(crate) async fn passing_write(&self, path: &ObjectPath) -> Result<Option<Generation>> {
        let found = self.catalog.get(&records::request_key(path)).await?;
        Ok(found.and_then(|found| Intent::decode(&found.value).passing))
    }

    /// Commits the change of a key's record to `after`, and everything else in the transaction. The caller has held the
    /// key's lock since it read `current`.
    pub(crate) async fn change_record(
        &self,
        path: &ObjectPath,
        current: &Current,
        after: Option<&ObjectRecord>,
        mut transaction: Transaction,
    ) -> Result<()> {
        // The record may be the only trace of the time of a write that was not acknowledged.
        let time = match (&current.record, after) {
            (Some(record), None) => self.home.write_times.begin_note(record.last_modified_ms).await,
            (_, _) => None,
        };
        transaction.writes.extend(time.as_ref().map(Note::write));
        let key = records::object_key(path);
        transaction.checks.push(Check { key: key.clone(), version: current.version });
        if after.is_some() || current.record.is_some() {
            transaction.writes.push(ValueWrite { key, value: after.map(ObjectRecord::encode) });
        }
        self.home.fence.advance(path);
        let result = self.catalog.commit(transaction).await;
        self.home.fence.advance(path);
        result?;
        if let Some(time) = time {
            time.end();
        }
        self.home.changed(path, current.record.as_ref(), after, &self.metrics);
        self.space.replace(path, current.record.as_ref(), after);
        Ok(())
    }
}

/// A write intent: a request for a key that is about to go to the under store, as the catalog holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intent {
    /// See [`Settle::start`](crate::persist::settle::Settle::start). `None` if an older release recorded it.
    pub(crate) start: Option<Generation>,
    /// Set for a write that bypasses the version that waits for the under store, and that may land before it.
    pub(crate) passing: Option<Generation>,
}

/// Records the intent before the request is sent.
pub(crate) fn intent(path: &ObjectPath, start: Generation, passing: Option<Generation>) -> ValueWrite {
    let numbers = [start].into_iter().chain(passing);
    let value = numbers.flat_map(|generation| generation.0.to_be_bytes()).collect();
    ValueWrite { key: records::request_key(path), value: Some(value) }
}

impl Intent {
    pub(crate) fn decode(value: &[u8]) -> Self {
        let generation = |bytes: &[u8]| bytes.try_into().ok().map(|bytes| Generation(u64::from_be_bytes(bytes)));
        match value.split_at_checked(8) {
            Some((start, [])) => Self { start: generation(start), passing: None },
            Some((start, passing)) => Self { start: generation(start), passing: generation(passing) },
            None => Self { start: None, passing: None },
        }
    }
}

/// The end of an [`intent`]: the under store has answered.
pub(crate) fn end_intent(path: &ObjectPath) -> ValueWrite {
    ValueWrite { key: records::request_key(path), value: None }
}

/// The under store has made the change, but the local store could not record it. This hides the local store's own
/// error: "full" would mean that nothing was done.
pub(crate) fn unnoted(path: &ObjectPath, error: Error) -> Error {
    let context = format!("the under store has the change of {path}, but it could not be recorded here: {error}");
    Error { source: Some(error.into()), ..Error::new(ErrorKind::Unavailable, context) }
}
