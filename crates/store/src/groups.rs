//! Limits on what accounting groups take, and the eviction that keeps them.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_env::sync::atomic::Ordering;
use forebay_types::Generation;

use crate::inner::Inner;
use crate::table::Entry;

/// Objects that are evicted before other tasks run.
const EVICTED_AT_ONCE: usize = 256;

/// A limit on the bytes on disk of some accounting groups together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupsLimit {
    pub groups: Vec<u32>,
    pub most: u64,
    /// When they have more than `most`, they are reduced to this.
    pub target: u64,
}

/// The least recently used of many entries: just enough of them for the bytes that are wanted.
struct Oldest {
    wanted: u64,
    bytes: u64,
    /// By the last read.
    entries: BTreeMap<(u32, Generation), Arc<Entry>>,
}

fn bytes_of(entry: &Entry) -> u64 {
    entry.uses().map(|(_, bytes)| bytes).sum()
}

impl Oldest {
    fn new(wanted: u64) -> Self {
        Self { wanted, bytes: 0, entries: BTreeMap::new() }
    }

    /// Takes an entry in, unless older ones are enough.
    fn offer(&mut self, entry: &Arc<Entry>) {
        let age = (entry.last_read.load(Ordering::Relaxed), entry.generation);
        if self.bytes >= self.wanted && self.entries.last_key_value().is_some_and(|(newest, _)| *newest <= age) {
            return;
        }
        self.bytes += bytes_of(entry);
        if let Some(same_age) = self.entries.insert(age, Arc::clone(entry)) {
            self.bytes -= bytes_of(&same_age);
        }
        while let Some(newest) = self.entries.last_entry() {
            let without = self.bytes - bytes_of(newest.get());
            if without < self.wanted {
                break;
            }
            newest.remove();
            self.bytes = without;
        }
    }
}

impl Inner {
    /// What must be evicted for a limit. 0 while it holds, and when nothing of its groups may go.
    fn excess(&self, limit: &GroupsLimit) -> u64 {
        let groups = self.groups.lock();
        let (mut used, mut evictable) = (0, 0);
        for group in limit.groups.iter().filter_map(|group| groups.get(group)) {
            used += group.all;
            evictable += group.evictable;
        }
        if used > limit.most && evictable > 0 { used.saturating_sub(limit.target) } else { 0 }
    }

    /// Looks at all objects only when a limit is exceeded, once for all limits, and lets others run: there may be many
    /// objects.
    pub(crate) async fn evict_groups(&self, limits: &[GroupsLimit]) -> u64 {
        let mut exceeded: Vec<(&GroupsLimit, Oldest)> = Vec::new();
        let mut limits_of: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for limit in limits {
            let excess = self.excess(limit);
            if excess > 0 {
                limit.groups.iter().for_each(|group| limits_of.entry(*group).or_default().push(exceeded.len()));
                exceeded.push((limit, Oldest::new(excess)));
            }
        }
        if exceeded.is_empty() {
            return 0;
        }
        for shard in self.objects.shards() {
            {
                let shard = shard.read();
                for entry in shard.iter().filter(|entry| !entry.pinned) {
                    for at in limits_of.get(&entry.group).into_iter().flatten() {
                        exceeded[*at].1.offer(entry);
                    }
                }
            }
            tokio::task::yield_now().await;
        }
        let mut evicted = 0;
        for (limit, oldest) in exceeded {
            evicted += self.evict_oldest(limit, oldest).await;
        }
        evicted
    }

    async fn evict_oldest(&self, limit: &GroupsLimit, oldest: Oldest) -> u64 {
        // What was evicted for the limits before this one counts for it, too.
        let excess = self.excess(limit);
        let mut evicted = 0;
        for (index, found) in oldest.entries.into_values().enumerate() {
            if evicted >= excess {
                break;
            }
            let same =
                |entry: &Entry| !entry.pinned && entry.generation == found.generation && entry.group == found.group;
            if let Some(removed) = self.remove(found.key(), same) {
                evicted += bytes_of(&removed);
            }
            if (index + 1).is_multiple_of(EVICTED_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
        evicted
    }
}
