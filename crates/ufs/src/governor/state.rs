//! What a governor reports about its under store.

use std::time::Duration;

use crate::ErrorKind;

/// Whether requests go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Circuit {
    Closed,
    /// Requests are refused without being sent.
    Open {
        /// Time until a probe may be sent, to see whether the under store is back.
        probe_in: Duration,
    },
    /// The probe is in flight.
    Probing,
}

/// The state of a governor at one moment. Counters begin with the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GovernorState {
    /// The circuit with the most failures, of reads or of writes.
    pub circuit: Circuit,
    pub failures_in_a_row: u32,
    /// How many background requests may run at once, and how many do.
    pub limit: u32,
    pub running: u32,
    /// How long requests of any lane have been in flight without an answer to any of them.
    pub silent_for: Option<Duration>,
    pub calls: u64,
    /// Calls that failed. An answer such as "no such object" is no failure.
    pub errors: u64,
    /// Of these, how often the under store asked for fewer requests.
    pub throttled: u64,
    pub last_error: Option<LastError>,
}

/// Writes and deletes of one bucket that the under store has denied since the last one that it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedWrites {
    /// Its name among those behind the governor. Empty when it is the only one.
    pub bucket: String,
    pub count: u64,
    /// What the under store said when it denied the last of them.
    pub last: String,
}

/// The last write of a bucket for which the under store has no room ([`ErrorKind::NoSpace`]), or that it refused
/// because it is read-only ([`ErrorKind::ReadOnly`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedWrites {
    /// Its name among those behind the governor. Empty when it is the only one.
    pub bucket: String,
    pub kind: ErrorKind,
    /// What the under store said.
    pub error: String,
}

/// The last error of an under store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastError {
    pub text: String,
    pub unix_ms: u64,
}
