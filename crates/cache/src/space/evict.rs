//! Eviction: the objects that reclaim keeps, and quotas.

use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_catalog::records;
use forebay_store::{Access, GroupsLimit, Leaves, Retention};
use forebay_types::{EvictionOrder, PolicyRule};

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

/// All quotas in bytes, the longer paths first, each with the groups that count for it. An object is in the group of
/// the longest path alone, and counts for the quotas of the shorter paths too.
fn quotas(rules: &[PolicyRule]) -> Vec<(u64, Vec<u32>)> {
    let with_quota = rules.iter().filter_map(|rule| Some((rule.path.as_str(), rule.cache_quota?.0)));
    let mut all: Vec<_> = with_quota.map(|(path, quota)| (path, group_of_rule(path), quota)).collect();
    // A path is followed by all that begin with it.
    all.sort_unstable();
    let with_groups = |at: usize| {
        let (path, _, quota) = all[at];
        let below = all[at..].iter().take_while(|(other, ..)| other.starts_with(path));
        (quota, below.map(|(_, group, _)| *group).collect())
    };
    (0..all.len()).rev().map(with_groups).collect()
}

impl Worker {
    /// Keeps every path within its quota. Ends when the worker stops.
    pub(crate) async fn quota_loop(self: Arc<Self>) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.env.clock.sleep(QUOTA_INTERVAL) => self.enforce_quotas().await,
            }
            self.observe();
        }
    }

    async fn enforce_quotas(&self) {
        let (policies, _) = self.policies.present();
        let limit =
            |(most, groups): (u64, Vec<u32>)| GroupsLimit { groups, most, target: (most as f64 * QUOTA_TARGET) as u64 };
        let limits: Vec<_> = quotas(policies.rules()).into_iter().map(limit).collect();
        let evicted = self.store.evict_groups(&limits).await;
        self.metrics.evicted_bytes.inc_by(evicted);
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
    use forebay_types::ByteSize;

    use super::*;

    #[test]
    fn a_quota_counts_the_groups_of_all_longer_paths() {
        let rule = |path: &str, quota: Option<u64>| PolicyRule {
            cache_quota: quota.map(ByteSize),
            ..PolicyRule::for_path(path)
        };
        let rules = [
            rule("/b/p", Some(1)),
            rule("/b/p/x/y/", Some(2)),
            rule("/b/p/x/", None),
            rule("/b/pq", Some(3)),
            rule("/b/q/", Some(4)),
        ];
        let groups = |paths: &[&str]| paths.iter().map(|path| group_of_rule(path)).collect::<Vec<_>>();
        let expected = [
            (4_u64, groups(&["/b/q/"])),
            (3, groups(&["/b/pq"])),
            (2, groups(&["/b/p/x/y/"])),
            (1, groups(&["/b/p", "/b/p/x/y/", "/b/pq"])),
        ];
        assert_eq!(quotas(&rules), expected);
    }

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
