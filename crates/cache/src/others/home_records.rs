//! Catalog records, as workers tell each other.

use forebay_catalog::SlotSet;
use forebay_types::ChecksumNames;
use serde::{Deserialize, Serialize};

/// The most records that one question brings.
pub(crate) const RECORDS_MAX: usize = 1000;

/// Catalog keys with `from <= key < to`, the first `limit` of them: 1,000 at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRange {
    pub from: Vec<u8>,
    pub to: Vec<u8>,
    pub limit: u32,
}

/// What one worker has of a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeRecords {
    /// All slots that are at home there.
    pub(crate) slots: SlotSet,
    /// In order; all are in these slots.
    pub(crate) records: Vec<HomeRecord>,
    /// The last key that was looked at, if there may be more behind it.
    pub(crate) end: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HomeRecord {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// Of an object. Its home knows them.
    pub(crate) checksums: Option<ChecksumNames>,
}
