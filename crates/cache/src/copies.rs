//! Bytes that another worker has: a key may get a new home before the under store has what was written to it. The new
//! home fetches them; until then, reads wait or get a retryable error.

mod fetch;
mod wanted;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_types::Generation;

use crate::{ByteStream, Result};

pub(crate) use fetch::FETCHES_MAX;
pub(crate) use wanted::WantedCopies;

/// The bytes of one generation, as a worker's store has them.
pub struct HeldBytes {
    pub size: u64,
    /// As the store keeps it with the bytes.
    pub metadata: Bytes,
    /// As the store keeps it in memory.
    pub annex: Bytes,
    pub stream: ByteStream,
}

/// How a worker gets at the bytes that other workers have.
#[async_trait]
pub trait Copies: Send + Sync + 'static {
    /// Asks a worker for the bytes of one generation; `key` is that of the record which names them. `None`: it answers
    /// that it does not have all of them.
    ///
    /// # Errors
    /// `Unavailable` when the worker does not answer.
    async fn open(&self, worker: &str, key: &Bytes, generation: Generation) -> Result<Option<HeldBytes>>;

    /// The other workers that live.
    fn workers(&self) -> Vec<String>;
}
