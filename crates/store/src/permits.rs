//! Limits the bytes in memory that are on their way to a disk. Requesters take turns: the next one is the one that has
//! least there, so that none waits for all that another one has queued.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_env::{FairPermit, FairPermits, Requester, Shares};

/// The unit in which bytes are counted: a small write takes memory beside its bytes.
const UNIT_BYTES: u64 = 4096;

/// The permits of one disk. What waits for a stalled disk does not use up the share of another.
pub(crate) struct Permits {
    permits: Arc<FairPermits<Buffered>>,
    units: u64,
}

/// Bytes in memory, until it is dropped.
pub(crate) type Permit = FairPermit<Buffered>;

/// What each requester has in memory, in units.
pub(crate) struct Buffered {
    free: u64,
    has: BTreeMap<Requester, u64>,
}

impl Shares for Buffered {
    type Tenant = Requester;
    type Has = u64;

    fn has(&self, requester: &Requester) -> u64 {
        self.has.get(requester).copied().unwrap_or(0)
    }

    /// A requester that is alone may have everything: the disk gives it back soon.
    fn may_take(&self, _requester: &Requester) -> bool {
        true
    }

    fn fits(&self, units: u64) -> bool {
        units <= self.free
    }

    fn take(&mut self, requester: &Requester, units: u64) {
        self.free -= units;
        *self.has.entry(*requester).or_default() += units;
    }

    fn give_back(&mut self, requester: &Requester, units: u64) {
        self.free += units;
        let has = self.has.get_mut(requester).expect("what is given back was taken");
        *has -= units;
        if *has == 0 {
            self.has.remove(requester);
        }
    }
}

impl Permits {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let units = (bytes_max / UNIT_BYTES).max(1);
        Self { permits: FairPermits::new(Buffered { free: units, has: BTreeMap::new() }), units }
    }

    /// Waits until the requester that this task works for may have `bytes` more in memory. A request for more than the
    /// limit gets the whole limit.
    pub(crate) async fn take(&self, bytes: usize) -> Permit {
        let units = (bytes as u64).div_ceil(UNIT_BYTES).clamp(1, self.units);
        self.permits.take(&Requester::present(), units).await
    }
}
