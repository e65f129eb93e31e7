//! How many bytes may be in memory on their way to a disk.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes are counted in units of this, so that their number fits a semaphore.
const UNIT_BYTES: u64 = 4096;

/// Those of one disk: what waits for one that stands still leaves the share of others alone.
pub(crate) struct Permits {
    semaphore: Arc<Semaphore>,
    units: u32,
}

impl Permits {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let units = (bytes_max / UNIT_BYTES).clamp(1, u64::from(u32::MAX >> 3)) as u32;
        Self { semaphore: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Waits until so many more bytes may be in memory. More than all together get as many as there are.
    pub(crate) async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = (bytes as u64).div_ceil(UNIT_BYTES).clamp(1, u64::from(self.units)) as u32;
        Arc::clone(&self.semaphore).acquire_many_owned(units).await.expect("this semaphore is never closed")
    }
}
