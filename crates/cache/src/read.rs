//! Reads: from the cache or from the under store, and which of these bytes stay in the cache.

pub(crate) mod fetches;
pub(crate) mod fill;
pub(crate) mod get;
pub(crate) mod last_answers;
pub(crate) mod lookup;
pub(crate) mod memory_tier;
pub(crate) mod negative_cache;
pub(crate) mod open;
mod page_fetch;
pub(crate) mod pages;
mod prefetch;
pub(crate) mod read_ahead;
pub(crate) mod remote;
mod revalidate;
pub(crate) mod silent_buckets;
pub(crate) mod single_flight;
pub(crate) mod stale_records;
pub(crate) mod validity;
