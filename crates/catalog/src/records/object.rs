//! What the under store does not have of one object.

use bytes::Bytes;
use forebay_types::{ETag, Generation};
use serde::{Deserialize, Serialize};

use super::VERSION;
use super::holders::{Holders, decode_held, encode_held};
use crate::Result;

/// Where an object stands. An object without a record is in the under store as the under store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Goes to the under store.
    Dirty,
    /// Never goes there.
    Transient,
    /// Deleted here; the delete goes to the under store.
    Tombstone,
    /// Somebody else changed the under store's object while ours was dirty: ours is shown, theirs is kept there.
    Conflict,
}

/// What the under store is known to hold under the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Base {
    Unknown,
    Absent,
    /// The object with this tag of the under store's.
    Present(ETag),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRecord {
    pub state: State,
    pub generation: Generation,
    /// Generation and time of the first write that the under store lacks: the longest dirty goes first.
    pub dirty_since: Generation,
    pub dirty_since_ms: u64,
    pub size: u64,
    pub etag: ETag,
    pub last_modified_ms: u64,
    /// `None` is STANDARD.
    pub storage_class: Option<String>,
    pub base: Base,
    #[serde(skip)]
    pub holders: Holders,
}

impl ObjectRecord {
    pub fn encode(&self) -> Bytes {
        encode_held(VERSION, self, &self.holders)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (record, holders) = decode_held::<Self>("object", VERSION, bytes)?;
        Ok(Self { holders, ..record })
    }
}
