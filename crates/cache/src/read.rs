//! Reads: what is here, what the under store has, and what of that is kept.

pub(crate) mod doubt;
mod fill;
pub(crate) mod first_looks;
pub(crate) mod get;
pub(crate) mod memory_tier;
mod page_fetch;
pub(crate) mod pages;
mod prefetch;
pub(crate) mod read_ahead;
pub(crate) mod remote;
mod revalidate;
