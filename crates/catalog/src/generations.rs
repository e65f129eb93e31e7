//! The numbers of writes: of two writes of a key the later one has the higher generation, whichever worker took it and
//! after however many starts.

use async_trait::async_trait;
use forebay_types::Generation;

use crate::Result;

/// Gives each write its generation.
#[async_trait]
pub trait Generations: Send + Sync {
    /// A generation that no write has, above all that were given before.
    ///
    /// # Panics
    /// When no numbers are left.
    fn next(&self) -> Generation;

    /// From here on, they are above all that any worker was given before. Called when keys were gained that were at
    /// home elsewhere.
    ///
    /// # Errors
    /// Whatever the engine answers.
    async fn renew(&self) -> Result<()>;
}

/// Where a new catalog begins to count: at the time, in milliseconds since 1970, times 2^16. So generations grow
/// without another look at a clock. Those of a recreated catalog are above those that its predecessor left as stamps in
/// the under store, unless the predecessor made more than 65 million writes a second. In the year 2100 the number is
/// below 2^58.
pub fn first_generation(now_ms: u64) -> u64 {
    now_ms << 16
}
