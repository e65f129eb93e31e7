//! Reads: what is here, what the under store has, and what of that is kept.

pub(crate) mod doubt;
pub(crate) mod first_looks;
pub(crate) mod get;
pub(crate) mod memory_tier;
pub(crate) mod read_ahead;
pub(crate) mod remote;
