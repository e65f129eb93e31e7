//! Which state of the shared records a worker knows: those of `Scope::Cluster`, which any worker changes.
//!
//! Each transaction that changes shared records checks the version of one more record, and writes it with the next
//! number. So a worker that does not know the latest change is refused, and one `get` tells whether there is one.

use bytes::Bytes;
use forebay_catalog::{Check, Engine, Result, records};
use forebay_store::ValueWrite;
use serde::{Deserialize, Serialize};

use crate::layout::SHARED_REVISION_KEY;

/// What the engine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct SharedRevision {
    /// Grows with each change of shared records.
    number: u64,
}

/// The record as it was read, and the version that it had in the engine: `None` before the first change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Revision {
    number: u64,
    version: Option<u64>,
}

impl Revision {
    /// # Errors
    /// `Corrupt` when the record is damaged or of a newer version; whatever the engine answers.
    pub(crate) async fn read(engine: &dyn Engine) -> Result<Self> {
        let Some(found) = engine.get(SHARED_REVISION_KEY).await? else { return Ok(Self::default()) };
        let record: SharedRevision = records::decode("shared revision", records::VERSION, &found.value)?;
        Ok(Self { number: record.number, version: Some(found.version) })
    }

    /// Holds as long as nobody changes shared records.
    pub(crate) fn check(self) -> Check {
        Check { key: Bytes::from_static(SHARED_REVISION_KEY), version: self.version }
    }

    /// Goes with each change of shared records.
    pub(crate) fn write_next(self) -> ValueWrite {
        let next = SharedRevision { number: self.number + 1 };
        let value = Some(records::encode(records::VERSION, &next));
        ValueWrite { key: Bytes::from_static(SHARED_REVISION_KEY), value }
    }

    /// What a transaction with [`Revision::write_next`] leaves, which got this version.
    pub(crate) fn next(self, version: u64) -> Self {
        Self { number: self.number + 1, version: Some(version) }
    }
}
