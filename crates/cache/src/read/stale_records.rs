//! Records that may be stale.
//!
//! A forgotten directory takes with it the part of its log that the last snapshot did not cover: acknowledged writes
//! and deletes, and records of what the under store has. An older write of such a key then counts as dirty again. After
//! a start that forgets a directory, therefore, an older version goes to the under store only after a look at what is
//! there, and a newer version there stays. In addition, requests of the last process may land although no record of
//! them is left. Nothing is sent for any key until they can no longer land.

use bytes::Bytes;
use forebay_catalog::records::DOUBT_KEY;
use forebay_catalog::{Catalog, Generations, Transaction};
use forebay_env::sync::Mutex;
use forebay_store::{Forgotten, Store, ValueWrite};
use forebay_types::Generation;

use crate::{Error, ErrorKind, Result};

pub(crate) struct StaleRecords {
    /// Records of lower generations may be stale.
    before: Generation,
    /// To be recorded when requests of the time before can no longer land. Until then, every start has these doubts.
    unnoted: Mutex<Option<Noted>>,
}

/// The record in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Noted {
    /// Number of directories that were forgotten when this was written.
    forgotten: u64,
    before: Generation,
}

impl StaleRecords {
    /// # Errors
    /// `Internal` when the note is damaged; whatever the catalog answers.
    pub(crate) async fn load(catalog: &dyn Catalog, store: &Store, generations: &dyn Generations) -> Result<Self> {
        let noted = match catalog.get(DOUBT_KEY).await? {
            Some(found) => Noted::decode(&found.value)?,
            None => Noted { forgotten: 0, before: Generation(0) },
        };
        let Forgotten { before, now, has_lost_changes } = store.forgotten();
        let forgotten = (before + now) as u64;
        // Otherwise a damaged list was rebuilt and has fewer directories, or a start with doubts ended before it could
        // record them.
        let is_all_noted = before as u64 == noted.forgotten;
        if is_all_noted && now == 0 {
            return Ok(Self { before: noted.before, unnoted: Mutex::default() });
        }
        if is_all_noted && !has_lost_changes {
            let stale_records = Self { before: noted.before, unnoted: Mutex::new(Some(Noted { forgotten, ..noted })) };
            stale_records.note(catalog).await?;
            return Ok(stale_records);
        }
        let before = generations.next();
        Ok(Self { before, unnoted: Mutex::new(Some(Noted { forgotten, before })) })
    }

    pub(crate) fn is_about(&self, generation: Generation) -> bool {
        generation < self.before
    }

    /// Whether the records of requests in flight may be lost, too.
    pub(crate) fn is_new(&self) -> bool {
        self.unnoted.lock().is_some()
    }

    /// # Errors
    /// Whatever the catalog answers.
    pub(crate) async fn note(&self, catalog: &dyn Catalog) -> Result<()> {
        let Some(noted) = *self.unnoted.lock() else { return Ok(()) };
        let writes = vec![ValueWrite { key: Bytes::from_static(DOUBT_KEY), value: Some(noted.encode()) }];
        catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
        *self.unnoted.lock() = None;
        Ok(())
    }
}

impl Noted {
    fn encode(self) -> Bytes {
        [self.forgotten, self.before.0].map(u64::to_be_bytes).concat().into()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let numbers = bytes.as_chunks::<8>();
        match numbers {
            ([forgotten, before], []) => {
                Ok(Self { forgotten: u64::from_be_bytes(*forgotten), before: Generation(u64::from_be_bytes(*before)) })
            }
            (_, _) => Err(Error::new(ErrorKind::Internal, "the note of forgotten directories is damaged")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_and_a_damaged_one_is_told() {
        let noted = Noted { forgotten: 2, before: Generation(77) };
        assert_eq!(Noted::decode(&noted.encode()).unwrap(), noted);
        for length in [0, 15, 17] {
            assert_eq!(Noted::decode(&vec![0; length]).unwrap_err().kind, ErrorKind::Internal);
        }
    }
}
