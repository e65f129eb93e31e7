//! What a governor tells of its under store.

use std::time::Duration;

/// Whether requests go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Circuit {
    Closed,
    /// Requests are refused without being sent.
    Open {
        /// Until one may go, to see whether the under store is back.
        probe_in: Duration,
    },
    /// That one is under way.
    Probing,
}

/// A moment of a governor. Counters begin with the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GovernorState {
    /// That of reads or that of writes, whichever has met more failures.
    pub circuit: Circuit,
    pub failures_in_a_row: u32,
    /// Background requests that may run at once, and those that do.
    pub limit: u32,
    pub running: u32,
    pub calls: u64,
    /// Calls that failed otherwise than by an answer such as "no such object".
    pub errors: u64,
    /// Of these, those by which the under store asked for fewer requests.
    pub throttled: u64,
    pub last_error: Option<LastError>,
}

/// The last error of an under store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastError {
    pub text: String,
    pub unix_ms: u64,
}
