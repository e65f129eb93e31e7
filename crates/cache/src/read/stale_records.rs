//! Records that may be stale.
//!
//! A forgotten directory takes with it the part of its log that the last snapshot did not cover: acknowledged writes
//! and deletes, and records of what the under store has. An older write of such a key then counts as dirty again. After
//! a start that forgets a directory, therefore, an older version goes to the under store only after a look at what is
//! there, and a newer version there stays. In addition, requests of the last process may land although no record of
//! them is left. Nothing is sent for any key until they can no longer land.
//!
//! An engine that was restored from a backup has lost the same of the whole cluster. Each worker then has these doubts
//! from its next start on.

use bytes::Bytes;
use forebay_catalog::records::{DOUBT_KEY, RESTORED_KEY};
use forebay_catalog::{Catalog, Generations, Transaction};
use forebay_env::sync::Mutex;
use forebay_store::{Forgotten, Store, ValueWrite};
use forebay_types::Generation;

use crate::{Error, ErrorKind, Result};

/// In place of a number of directories: whatever the list of directories says, not all is noted.
const NOT_ALL_NOTED: u64 = u64::MAX;

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
        let restored = match catalog.get(RESTORED_KEY).await? {
            Some(found) => decode_restored(&found.value)?,
            None => Generation(0),
        };
        let Forgotten { before, now, has_lost_changes } = store.forgotten();
        let forgotten = (before + now) as u64;
        // Otherwise a damaged list was rebuilt and has fewer directories, the engine was restored since, or a start
        // with doubts ended before it could record them.
        let is_all_noted = before as u64 == noted.forgotten && restored <= noted.before;
        if is_all_noted && !has_lost_changes {
            if now > 0 {
                Noted { forgotten, ..noted }.write(catalog).await?;
            }
            return Ok(Self { before: noted.before, unnoted: Mutex::default() });
        }
        if is_all_noted && now == 0 {
            // The snapshots are gone. The next start has one again, and nothing else would show what was lost.
            Noted { forgotten: NOT_ALL_NOTED, ..noted }.write(catalog).await?;
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
        noted.write(catalog).await?;
        *self.unnoted.lock() = None;
        Ok(())
    }
}

impl Noted {
    async fn write(self, catalog: &dyn Catalog) -> Result<()> {
        let writes = vec![ValueWrite { key: Bytes::from_static(DOUBT_KEY), value: Some(self.encode()) }];
        catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
        Ok(())
    }

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

fn decode_restored(bytes: &[u8]) -> Result<Generation> {
    let damaged = |_| Error::new(ErrorKind::Internal, "the note of the engine's restore is damaged");
    bytes.try_into().map(u64::from_be_bytes).map(Generation).map_err(damaged)
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
        assert_eq!(decode_restored(&77_u64.to_be_bytes()).unwrap(), Generation(77));
        for length in [0, 7, 9] {
            assert_eq!(decode_restored(&vec![0; length]).unwrap_err().kind, ErrorKind::Internal);
        }
    }
}
