//! Bytes that another worker has: a key may get a new home before the under store has what was written to it. The new
//! home fetches them; until then, reads wait or get a retryable error.

mod fetch;
mod wanted;

pub(crate) use fetch::FETCHES_MAX;
pub(crate) use wanted::WantedCopies;
