//! Eviction: the objects that reclaim keeps, and quotas.

use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_catalog::records;
use forebay_store::{Access, Leaves, Retention};
use forebay_types::EvictionOrder;

use crate::policies::groups::group_of_rule;
use crate::worker::Worker;

/// How often quotas are checked.
const QUOTA_INTERVAL: Duration = Duration::from_secs(1);

/// A group over its quota is reduced to this share of it, so that only few checks have something to do.
const QUOTA_TARGET: f64 = 0.95;

/// Reads that make an object worth keeping under S3-FIFO: its main queue takes objects that were read more than once
/// (Yang et al.: "FIFO queues are all you need for cache eviction", SOSP 2023, section 4).
const S3_FIFO_READS: u8 = 2;

/// Answers the store's question with the path policies.
pub(crate) struct Keeper {
    pub(crate) worker: Weak<Worker>,
}

impl Retention for Keeper {
    fn leaves(&self, key: &[u8], access: Access) -> Leaves {
        let Some(worker) = self.worker.upgrade() else { return Leaves::First };
        let order = records::parse_object_key(key).map(|path| worker.policies.resolve(&path).eviction);
        leaves(order.unwrap_or_default(), access)
    }

    fn evicted(&self, _key: &[u8], bytes: u64) {
        if let Some(worker) = self.worker.upgrade() {
            worker.metrics.evicted_bytes.inc_by(bytes);
        }
    }
}

/// Segments are reclaimed oldest first, which is FIFO. The other orders follow from what is carried forward. LRU keeps
/// objects that were read since they were written or last carried (as CLOCK does). S3-FIFO keeps new objects only after
/// several reads, and those that were carried before after one.
fn leaves(order: EvictionOrder, access: Access) -> Leaves {
    let is_kept = match order {
        EvictionOrder::Fifo => false,
        EvictionOrder::Lru => access.reads > 0,
        EvictionOrder::S3Fifo => access.reads >= if access.carried { 1 } else { S3_FIFO_READS },
        EvictionOrder::Last => return Leaves::Last,
    };
    if is_kept { Leaves::Later } else { Leaves::First }
}

impl Worker {
    /// Keeps every group within its quota. Ends when the worker stops.
    pub(crate) async fn quota_loop(self: Arc<Self>) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.env.clock.sleep(QUOTA_INTERVAL) => self.enforce_quotas(),
            }
            self.observe();
        }
    }

    pub(crate) fn enforce_quotas(&self) {
        let (policies, _) = self.policies.present();
        for rule in policies.rules() {
            let Some(quota) = rule.cache_quota else { continue };
            let group = group_of_rule(&rule.path);
            let used = self.store.group_bytes(group);
            if used > quota.0 {
                let target = (quota.0 as f64 * QUOTA_TARGET) as u64;
                let evicted = self.store.evict_group(group, used - target);
                self.metrics.evicted_bytes.inc_by(evicted);
            }
        }
    }

    /// Updates gauges that nothing else sets.
    fn observe(&self) {
        let age_ms = self.oldest_dirty_age_ms();
        self.metrics.oldest_dirty_age.set(age_ms as f64 / 1000.0);
        self.metrics.persist_running.set(self.home.queue.running() as i64);
        self.metrics.persist_delayed.set(self.home.queue.delayed() as i64);
        self.metrics.memory_bytes.set(self.memory.bytes() as i64);
    }

    pub(crate) fn oldest_dirty_age_ms(&self) -> u64 {
        self.home.queue.oldest_ms().map_or(0, |since| self.env.clock.unix_ms().saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_keeps_what_its_name_says() {
        let access = |reads, carried| Access { reads, carried };
        let (first, later, last) = (Leaves::First, Leaves::Later, Leaves::Last);
        for (order, expected) in [
            (EvictionOrder::Fifo, [first, first, first, first, first]),
            (EvictionOrder::Lru, [first, later, later, first, later]),
            (EvictionOrder::S3Fifo, [first, first, later, first, later]),
            (EvictionOrder::Last, [last, last, last, last, last]),
        ] {
            let cases = [access(0, false), access(1, false), access(2, false), access(0, true), access(1, true)];
            assert_eq!(cases.map(|case| leaves(order, case)), expected, "{order:?}");
        }
    }
}
