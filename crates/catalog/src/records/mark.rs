//! The record of the mark of a bucket.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{decode_json, encode_json};
use crate::Result;

/// What tells the place that the changes of a bucket were sent to from another one that is found there later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRecord {
    /// The label of the under store. The mark says nothing about a bucket that is elsewhere by now.
    pub place: String,
    pub mark: String,
}

impl MarkRecord {
    pub fn encode(&self) -> Bytes {
        encode_json(self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode_json("mark", bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let record = MarkRecord { place: "file:///lake".to_owned(), mark: "1f".to_owned() };
        assert_eq!(MarkRecord::decode(&record.encode()).unwrap(), record);
        assert!(MarkRecord::decode(b"").is_err() && MarkRecord::decode(&record.encode()[1..]).is_err());
    }
}
