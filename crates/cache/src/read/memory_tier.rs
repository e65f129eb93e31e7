//! The memory tier: metadata and whole small objects, bounded in bytes, scan-resistant.
//!
//! Entries are found by generation, which is never reused. The entry of an overwritten object is therefore not wrong,
//! only useless, and ages out. `quick_cache` evicts in S3-FIFO order with a ghost queue, so one pass over many objects
//! does not push out those that are read repeatedly. A path policy with a memory quota gets its own cache, which no
//! other path can fill.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::HashState;
use forebay_env::sync::RwLock;
use forebay_types::{Generation, ObjectInfo, PathPolicy, PolicySet};
use quick_cache::Weighter;
use quick_cache::sync::{Cache as QuickCache, DefaultLifecycle};

use crate::metadata::encode_info;

/// Bytes of overhead per entry: the cache's slot and the allocations of the metadata.
const ENTRY_BYTES: u64 = 512;

/// Bytes that one part of a multipart object takes, with one checksum.
const PART_BYTES: u64 = 128;

/// An object in memory.
#[derive(Clone)]
pub(crate) struct MemoryObject {
    pub(crate) info: Arc<ObjectInfo>,
    /// Approximate bytes of `info`.
    info_bytes: u64,
    /// All of the object's bytes, if they are in memory.
    pub(crate) data: Option<Bytes>,
}

impl MemoryObject {
    pub(crate) fn new(info: Arc<ObjectInfo>, data: Option<Bytes>) -> Self {
        let info_bytes = encode_info(&info).len() as u64 + info.parts.len() as u64 * PART_BYTES;
        Self { info, info_bytes, data }
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<u64, MemoryObject> for ByBytes {
    fn weight(&self, _: &u64, object: &MemoryObject) -> u64 {
        ENTRY_BYTES + object.info_bytes + object.data.as_ref().map_or(0, |data| data.len() as u64)
    }
}

type Tier = Arc<QuickCache<u64, MemoryObject, ByBytes, HashState>>;

pub(crate) struct MemoryTier {
    shared: Tier,
    /// By the path of the rule that sets the quota.
    reserved: RwLock<HashMap<String, (u64, Tier)>>,
    shared_bytes_max: u64,
    object_bytes_max: u64,
    hasher: HashState,
}

fn tier(bytes: u64, object_bytes_max: u64, hasher: HashState) -> Tier {
    let items = (bytes / (ENTRY_BYTES + object_bytes_max / 64)).clamp(64, 1 << 22);
    Arc::new(QuickCache::with(items as usize, bytes, ByBytes, hasher, DefaultLifecycle::default()))
}

impl MemoryTier {
    pub(crate) fn new(bytes: u64, object_bytes_max: u64, hasher: HashState) -> Self {
        let shared = tier(bytes, object_bytes_max, hasher.clone());
        Self { shared, reserved: RwLock::default(), shared_bytes_max: bytes, object_bytes_max, hasher }
    }

    /// Adjusts the reserved tiers to `policies`. Tiers whose quota is unchanged keep their entries.
    pub(crate) fn configure(&self, policies: &PolicySet) {
        let mut reserved = self.reserved.write();
        let mut before = std::mem::take(&mut *reserved);
        for rule in policies.rules() {
            let Some(quota) = rule.memory_quota else { continue };
            let kept = before.remove(&rule.path).filter(|(bytes, _)| *bytes == quota.0);
            let entry = kept.unwrap_or_else(|| (quota.0, tier(quota.0, self.object_bytes_max, self.hasher.clone())));
            reserved.insert(rule.path.clone(), entry);
        }
    }

    fn tier_of(&self, policy: &PathPolicy) -> Tier {
        let reserved = policy.memory_quota.as_ref().and_then(|(path, _)| {
            let tiers = self.reserved.read();
            tiers.get(path).map(|(_, tier)| Arc::clone(tier))
        });
        reserved.unwrap_or_else(|| Arc::clone(&self.shared))
    }

    pub(crate) fn get(&self, policy: &PathPolicy, generation: Generation) -> Option<MemoryObject> {
        self.tier_of(policy).get(&generation.0)
    }

    /// Like [`MemoryTier::get`], but does not count as a read.
    pub(crate) fn peek(&self, policy: &PathPolicy, generation: Generation) -> Option<MemoryObject> {
        self.tier_of(policy).peek(&generation.0)
    }

    pub(crate) fn remove(&self, policy: &PathPolicy, generation: Generation) {
        self.tier_of(policy).remove(&generation.0);
    }

    /// Stores the bytes only if they are few enough.
    pub(crate) fn insert(&self, policy: &PathPolicy, generation: Generation, object: MemoryObject) {
        let data = object.data.filter(|data| data.len() as u64 <= self.object_bytes_max);
        self.tier_of(policy).insert(generation.0, MemoryObject { data, ..object });
    }

    /// Whether an object of this size is worth keeping whole: it is small, and some tier has room at all.
    pub(crate) fn takes(&self, size: u64) -> bool {
        let has_room = || self.shared_bytes_max > 0 || self.reserved.read().values().any(|(bytes, _)| *bytes > 0);
        size <= self.object_bytes_max && has_room()
    }

    /// Size of the largest object that is worth keeping whole.
    pub(crate) fn largest(&self) -> u64 {
        if self.takes(self.object_bytes_max) { self.object_bytes_max } else { 0 }
    }

    /// Bytes in all tiers now.
    pub(crate) fn bytes(&self) -> u64 {
        let reserved: u64 = self.reserved.read().values().map(|(_, tier)| tier.weight()).sum();
        self.shared.weight() + reserved
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::random::SeededRandom;
    use forebay_types::{ByteSize, Checksums, ETag, ObjectPath, PartInfo, PolicyRule};

    use super::*;

    fn memory(bytes: u64, object_bytes_max: u64) -> MemoryTier {
        MemoryTier::new(bytes, object_bytes_max, HashState::new(&SeededRandom::new(1)))
    }

    fn object(size: usize) -> MemoryObject {
        let info = Arc::new(ObjectInfo::new(size as u64, ETag::new("e"), 0));
        MemoryObject::new(info, Some(Bytes::from(vec![7; size])))
    }

    #[test]
    fn a_scan_does_not_push_out_what_is_hot_and_the_limit_holds() {
        let memory = memory(1 << 20, 64 << 10);
        let policy = PathPolicy::default();
        for generation in 0..100 {
            memory.insert(&policy, Generation(generation), object(4096));
        }
        for _ in 0..3 {
            (0..100).for_each(|generation| drop(memory.get(&policy, Generation(generation))));
        }
        for generation in 1_000..20_000 {
            memory.insert(&policy, Generation(generation), object(4096));
        }
        let kept = (0..100).filter(|generation| memory.get(&policy, Generation(*generation)).is_some()).count();
        assert!(kept > 80, "{kept} of 100 hot objects are left after a scan");
        assert!(memory.bytes() <= 1 << 20, "{}", memory.bytes());
    }

    /// An object of many parts has megabytes of metadata.
    #[test]
    fn metadata_counts() {
        let memory = memory(1 << 20, 1024);
        let part = PartInfo { number: 1, size: 5 << 20, checksums: Checksums::none() };
        let info = ObjectInfo { parts: vec![part; 1000], ..ObjectInfo::new(1, ETag::new("e"), 0) };
        let user = ObjectInfo {
            user: [("name".to_owned(), "v".repeat(2000))].into(),
            ..ObjectInfo::new(1, ETag::new("e"), 0)
        };
        for generation in 0..100 {
            memory.insert(
                &PathPolicy::default(),
                Generation(generation),
                MemoryObject::new(Arc::new(info.clone()), None),
            );
        }
        let kept =
            |from: u64| (from..from + 1000).filter(|n| memory.get(&PathPolicy::default(), Generation(*n)).is_some());
        assert!(kept(0).count() <= 8, "{} objects of 128 KiB of metadata in 1 MiB", kept(0).count());
        for generation in 1000..2000 {
            memory.insert(
                &PathPolicy::default(),
                Generation(generation),
                MemoryObject::new(Arc::new(user.clone()), None),
            );
        }
        assert!(kept(1000).count() <= 500, "{} objects of 2 KiB of metadata in 1 MiB", kept(1000).count());
    }

    #[test]
    fn a_path_with_a_quota_is_not_touched_by_other_paths() {
        let memory = memory(256 << 10, 64 << 10);
        let quota = PolicyRule { memory_quota: Some(ByteSize(256 << 10)), ..PolicyRule::for_path("/hot/") };
        let policies = PolicySet::new(vec![quota]).unwrap();
        memory.configure(&policies);
        let hot = policies.resolve(&ObjectPath::parse("hot", "x").unwrap());
        let cold = policies.resolve(&ObjectPath::parse("cold", "x").unwrap());
        (0..20).for_each(|generation| memory.insert(&hot, Generation(generation), object(4096)));
        for generation in (100..5_000).map(Generation) {
            memory.insert(&cold, generation, object(4096));
            (0..3).for_each(|_| drop(memory.get(&cold, generation)));
        }
        assert!((20 * 4096 + (128 << 10)..512 << 10).contains(&memory.bytes()), "{} of both", memory.bytes());
        assert!((0..20).all(|generation| memory.get(&hot, Generation(generation)).is_some()));
        memory.configure(&policies);
        assert!(memory.get(&hot, Generation(3)).is_some(), "an unchanged quota keeps what it holds");
    }

    #[test]
    fn what_is_removed_is_not_found_and_takes_nothing() {
        let memory = memory(1 << 20, 64 << 10);
        memory.insert(&PathPolicy::default(), Generation(1), object(2000));
        memory.remove(&PathPolicy::default(), Generation(1));
        assert!(memory.get(&PathPolicy::default(), Generation(1)).is_none());
        assert_eq!(memory.bytes(), 0);
    }

    #[test]
    fn a_tier_without_room_takes_nothing() {
        let none = memory(0, 1024);
        assert!(!none.takes(0) && !none.takes(1024));
        let some = memory(1 << 20, 1024);
        assert!(some.takes(1024) && !some.takes(1025));
        let quota = PolicyRule { memory_quota: Some(ByteSize(4096)), ..PolicyRule::for_path("/hot/") };
        none.configure(&PolicySet::new(vec![quota]).unwrap());
        assert!(none.takes(1024), "a path has room of its own");
    }

    #[test]
    fn a_large_object_leaves_only_its_metadata() {
        let memory = memory(1 << 20, 1024);
        memory.insert(&PathPolicy::default(), Generation(1), object(2000));
        assert!(memory.get(&PathPolicy::default(), Generation(1)).unwrap().data.is_none());
    }
}
