//! That a worker is to go, or will never come back, as the engine has it.

use bytes::Bytes;
use forebay_catalog::{Result, records};
use serde::{Deserialize, Serialize};

use crate::layout::WorkerId;

/// Written by any worker about any other one. It is about one process: a new start of the worker has another life, and
/// the record says nothing of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeavingRecord {
    /// That of the worker's record.
    pub(crate) life: u64,
    pub(crate) state: Leaving,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Leaving {
    /// It gives up its slots, and stops when nobody needs its bytes.
    Draining,
    /// Nobody waits for its bytes. Counts once the process has ended.
    Removed,
}

impl LeavingRecord {
    pub(crate) fn encode(self) -> Bytes {
        records::encode_json(&self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub(crate) fn decode(worker: &WorkerId, bytes: &[u8]) -> Result<Self> {
        records::decode_json(&format!("leaving {worker}"), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What version 1 wrote. Every later version must still read it.
    const RECORD: &[u8] = b"\x01{\"life\":18446744073709551615,\"state\":\"draining\"}";

    #[test]
    fn a_record_reads_as_version_1_wrote_it() {
        let worker = WorkerId::new("w1").unwrap();
        let record = LeavingRecord { life: u64::MAX, state: Leaving::Draining };
        assert_eq!(LeavingRecord::decode(&worker, RECORD).unwrap(), record);
        assert_eq!(record.encode(), RECORD);
        let removed = LeavingRecord { state: Leaving::Removed, ..record };
        assert_eq!(LeavingRecord::decode(&worker, &removed.encode()).unwrap(), removed);
        let problem = LeavingRecord::decode(&worker, b"\x02{}").unwrap_err().to_string();
        assert_eq!(problem, "the leaving w1 record has version 2, newer than this release's 1");
    }
}
