//! The accounting groups of objects in the store: one group per quota.

use forebay_types::PathPolicy;

/// The accounting group of the rule whose quota applies to a path: a hash of the rule's path (FNV-1a, 32 bits), or 0
/// for none. Two rules in one group would share their quotas. With a few quotas, the chance of that is one in a
/// billion.
pub(crate) fn group_of(policy: &PathPolicy) -> u32 {
    policy.cache_quota.as_ref().map_or(0, |(path, _)| group_of_rule(path))
}

pub(crate) fn group_of_rule(path: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = path.bytes().fold(0x811c_9dc5, step);
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn rules_are_accounted_apart() {
        let groups: HashSet<u32> = (0..10_000).map(|n| group_of_rule(&format!("/bucket/{n}/"))).collect();
        assert_eq!(groups.len(), 10_000);
        assert!(!groups.contains(&0), "that is everything else");
    }
}
