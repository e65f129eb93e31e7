//! The record of a bucket.

use bytes::Bytes;

use super::{VERSION, decode, encode};
use crate::Result;

/// A bucket that has been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketRecord {
    /// It takes writes. Encoded as no bytes at all.
    Open,
    /// A worker deletes it, and no worker accepts writes to it meanwhile. The number tells this deletion from others.
    Deleting(u64),
}

impl BucketRecord {
    pub fn encode(self) -> Bytes {
        match self {
            Self::Open => Bytes::new(),
            Self::Deleting(deletion) => encode(VERSION, &deletion),
        }
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        match bytes {
            [] => Ok(Self::Open),
            bytes => Ok(Self::Deleting(decode("bucket", VERSION, bytes)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        for record in [BucketRecord::Open, BucketRecord::Deleting(0), BucketRecord::Deleting(u64::MAX)] {
            assert_eq!(BucketRecord::decode(&record.encode()).unwrap(), record);
        }
        assert!(BucketRecord::decode(&[VERSION + 1, 7]).is_err());
        assert!(BucketRecord::decode(&[VERSION, 7, 7]).is_err());
    }
}
