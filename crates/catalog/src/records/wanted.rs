//! Which bytes a record wants in the store.

use forebay_types::Generation;

use super::holders::Holders;
use super::keys::parse_object_key;
use super::object::{ObjectRecord, State};
use super::part::PartRecord;
use crate::Result;

/// Bytes that a record wants in the store, under the record's own key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedBytes {
    pub generation: Generation,
    pub size: u64,
    pub holders: Holders,
}

/// What the record of an object or of a part wants. `None` where it wants nothing.
///
/// # Errors
/// `Corrupt` when the record is damaged or of a newer version.
pub fn wanted_bytes(key: &[u8], value: &[u8]) -> Result<Option<WantedBytes>> {
    if parse_object_key(key).is_none() {
        let PartRecord { generation, size, holders, .. } = PartRecord::decode(value)?;
        return Ok(Some(WantedBytes { generation, size, holders }));
    }
    let ObjectRecord { state, generation, size, holders, .. } = ObjectRecord::decode(value)?;
    Ok((state != State::Tombstone).then_some(WantedBytes { generation, size, holders }))
}
