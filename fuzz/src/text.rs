//! What people and other programs write: sizes, periods, names, policies, URLs of under stores.

use forebay_types::{
    Algorithm, BucketName, ByteSize, Checksum, ETag, ObjectKey, ObjectPath, Period, PolicyRule, PolicySet,
};
use forebay_ufs::UnderStoreUrl;

/// Sizes and periods read back as they are shown.
pub(crate) fn units(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(size) = text.parse::<ByteSize>() {
        assert_eq!(size.to_string().parse(), Ok(size));
    }
    if let Ok(period) = text.parse::<Period>() {
        assert_eq!(period.to_string().parse(), Ok(period));
    }
}

/// Rules that are taken read back as they are written, and the settings of each path are the same then.
pub(crate) fn policies(data: &[u8]) {
    let Ok(rules) = serde_json::from_slice::<Vec<PolicyRule>>(data) else { return };
    let written = serde_json::to_vec(&rules).expect("memory takes every rule");
    let read = serde_json::from_slice::<Vec<PolicyRule>>(&written);
    assert_eq!(read.as_ref().ok(), Some(&rules), "{read:?}");
    let Ok(set) = PolicySet::new(rules.clone()) else { return };
    assert_eq!(PolicySet::new(rules.iter().rev().cloned().collect()), Ok(set.clone()), "the order makes a difference");
    for rule in &rules {
        // The object whose path is the rule's own.
        let Some((bucket, key)) = rule.path[1..].split_once('/') else { continue };
        let Ok(path) = ObjectPath::parse(bucket, key) else { continue };
        let policy = set.resolve(&path);
        assert_eq!(rule.write_mode.unwrap_or(policy.write_mode), policy.write_mode);
        assert_eq!(rule.write_back_max_size.or(policy.write_back_max_size), policy.write_back_max_size);
        assert_eq!(rule.list_ttl.unwrap_or(policy.list_ttl), policy.list_ttl);
        assert_eq!(rule.read_cache_max_size.or(policy.read_cache_max_size), policy.read_cache_max_size);
        assert_eq!(
            rule.cache_quota.or(policy.cache_quota.map(|(_, size)| size)),
            rule.cache_quota.or(set_quota(&set, &path))
        );
    }
}

fn set_quota(set: &PolicySet, path: &ObjectPath) -> Option<ByteSize> {
    set.resolve(path).cache_quota.map(|(_, size)| size)
}

/// Buckets, keys, tags and checksums.
pub(crate) fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(bucket) = BucketName::new(text) {
        assert!(bucket.as_str() == text && (3..=63).contains(&text.len()));
        assert!(!text.contains("..") && !text.contains(['/', '\\', '%', '\0', ':']));
    }
    if let Ok(key) = ObjectKey::new(text) {
        assert!(key.as_str() == text && (1..=1024).contains(&text.len()) && !text.contains('\0'));
    }
    let tag = ETag::new(text);
    assert_eq!(ETag::new(&tag.quoted()), tag);
    if let Some(md5) = tag.md5() {
        assert!(tag.as_str().eq_ignore_ascii_case(ETag::from_md5(md5).as_str()));
    }
    for algorithm in Algorithm::ALL {
        if let Some(checksum) = Checksum::parse(algorithm, text) {
            assert!(checksum.value.len() == algorithm.bytes() && checksum.base64() == text);
        }
    }
    if let Some(algorithm) = Algorithm::from_name(text) {
        assert!(algorithm.name().eq_ignore_ascii_case(text));
    }
}

/// URLs of under stores: those that are taken are shown without a user, and read back as they are shown.
pub(crate) fn urls(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(url) = text.parse::<UnderStoreUrl>() else { return };
    let shown = url.to_string();
    let url = shown.parse::<UnderStoreUrl>().expect(&shown);
    assert_eq!(url.to_string(), shown);
    match url {
        UnderStoreUrl::Directory(path) => assert!(path.is_absolute()),
        UnderStoreUrl::Hdfs(place) => {
            assert!(!place.authority.is_empty() && !place.authority.contains(['@', '/']), "{shown}");
            assert!(place.path.is_empty() || place.path.starts_with('/') && !place.path.ends_with('/'), "{shown}");
        }
        UnderStoreUrl::S3 { bucket, prefix, endpoint, region } => {
            assert!(!prefix.starts_with('/') && !prefix.ends_with('/'));
            let parts = endpoint.as_ref().map(|endpoint| endpoint.split('/').collect::<Vec<_>>());
            assert!(parts.is_none_or(|parts| parts[0].starts_with("http") && !parts[2].contains('@')), "{shown}");
            assert!(bucket.is_some() || endpoint.is_some() || region.is_some());
        }
    }
}
