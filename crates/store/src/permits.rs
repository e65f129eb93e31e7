//! Limits the bytes in memory that are on their way to a disk.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which bytes are counted, so that their number fits a semaphore.
const UNIT_BYTES: u64 = 4096;

/// The permits of one disk. What waits for a stalled disk does not use up the share of another.
pub(crate) struct Permits {
    semaphore: Arc<Semaphore>,
    units: u32,
}

impl Permits {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let units = (bytes_max / UNIT_BYTES).clamp(1, u64::from(u32::MAX >> 3)) as u32;
        Self { semaphore: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Waits until `bytes` more may be in memory. A request for more than the limit gets the whole limit.
    pub(crate) async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = (bytes as u64).div_ceil(UNIT_BYTES).clamp(1, u64::from(self.units)) as u32;
        Arc::clone(&self.semaphore).acquire_many_owned(units).await.expect("this semaphore is never closed")
    }
}
