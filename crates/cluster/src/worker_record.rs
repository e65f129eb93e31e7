//! What the engine has of a worker: its lease, and whether it is there.

use bytes::Bytes;
use forebay_catalog::{Result, records};
use serde::{Deserialize, Serialize};

/// Written with each transaction of a worker, which checks the version of the one before. So a change of the version
/// shows that the worker is alive, and any other writer ends all transactions that the worker has in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerRecord {
    /// Of the process: a random number.
    pub(crate) life: u64,
    /// Of the last transaction.
    pub(crate) number: u64,
    pub(crate) state: WorkerState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkerState {
    Live,
    /// It has stopped, and does nothing any more.
    Left,
    /// Its lease was over, and another worker has put an end to it.
    Lost,
}

impl WorkerRecord {
    pub(crate) fn encode(self) -> Bytes {
        records::encode(records::VERSION, &self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        records::decode("worker", records::VERSION, bytes)
    }
}
