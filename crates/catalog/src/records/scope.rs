//! Which records belong together in a cluster: those of a path have one home.

use forebay_types::ObjectPath;
use twox_hash::XxHash3_64;

use super::keys::{
    CONFIGURED_POLICIES_KEY, COPIES_KEY, DOUBT_KEY, GENERATION_BASE_KEY, KNOWN_COPIES_KEY, LAST_WRITE_KEY, SETTLED_KEY,
};

/// Who changes a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The home of a path, which this hash stands for: see [`path_hash`].
    Path(u64),
    /// The worker that has written it.
    Worker,
    /// Any worker.
    Cluster,
}

/// The [`stable_hash`] of a path, by which the homes of a cluster share the paths.
pub fn path_hash(path: &ObjectPath) -> u64 {
    // Without `format!`, which grows its string several times: each request of a cluster needs this hash.
    stable_hash(&[path.bucket.as_str().as_bytes(), b"\0", path.key.as_str().as_bytes()].concat())
}

/// An id of a new upload: `random`, and then the hash of its path, so that its parts are found where the path is. Both
/// in hex.
pub fn upload_id(random: &str, path: &ObjectPath) -> String {
    format!("{random}{:0width$x}", path_hash(path), width = HASH_DIGITS)
}

/// The hash of the path that an upload is for.
pub fn upload_hash(upload_id: &str) -> u64 {
    hash_in(upload_id.as_bytes())
}

/// A hash that all workers and all releases agree on: XXH3, without a seed.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// All records that are not of a path lie in these ranges, up to but not including their ends. So they are found
/// without a look at the many that are.
pub const RANGES_BESIDE_PATHS: [(&[u8], &[u8]); 5] =
    [(b"", b"o/"), (b"o0", b"p/"), (b"p0", b"r/"), (b"r0", b"u/"), (b"u0", b"\xff")];

/// Hex digits of a hash.
const HASH_DIGITS: usize = 16;

/// Who changes the record of this key.
pub fn scope(key: &[u8]) -> Scope {
    match key {
        [b'o' | b'r', b'/', path @ ..] => Scope::Path(stable_hash(path)),
        [b'u', b'/', rest @ ..] => Scope::Path(stable_hash(without_last(rest, 0))),
        [b'p', b'/', rest @ ..] => Scope::Path(hash_in(without_last(rest, b'/'))),
        // A job of a worker that is alone, or a worker's share of a job.
        [b'j', b'/', ..] | [b'j', b'f', b'/', ..] => Scope::Worker,
        GENERATION_BASE_KEY
        | DOUBT_KEY
        | SETTLED_KEY
        | LAST_WRITE_KEY
        | CONFIGURED_POLICIES_KEY
        | COPIES_KEY
        | KNOWN_COPIES_KEY => Scope::Worker,
        _ => Scope::Cluster,
    }
}

/// What is before the last separator.
fn without_last(text: &[u8], separator: u8) -> &[u8] {
    text.iter().rposition(|byte| *byte == separator).map_or(text, |position| &text[..position])
}

/// Ids of older releases hold no hash. They are in no cluster.
fn hash_in(upload_id: &[u8]) -> u64 {
    let digits =
        upload_id.len().checked_sub(HASH_DIGITS).filter(|random| *random > 0).map(|random| &upload_id[random..]);
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_else(|| stable_hash(upload_id))
}

#[cfg(test)]
mod tests {
    use forebay_types::BucketName;

    use super::super::keys::*;
    use super::*;

    /// The hash decides where records lie: it must stay what it is. Values of the reference implementation,
    /// `xxhsum -H3`.
    #[test]
    fn the_hash_is_xxh3() {
        assert_eq!(stable_hash(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(stable_hash(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(stable_hash(b"abc"), 0x78af_5f94_892f_3950);
    }

    #[test]
    fn records_of_a_path_have_its_hash() {
        let path = ObjectPath::parse("bucket", "some/key").unwrap();
        let id = upload_id("0123456789abcdef0123456789abcdef", &path);
        assert_eq!(id.len(), 48);
        let here = Scope::Path(path_hash(&path));
        for key in [object_key(&path), request_key(&path), upload_key(&path, &id), part_key(&id, 7)] {
            assert_eq!(scope(&key), here, "{}", key.escape_ascii());
        }
        let other = ObjectPath::parse("bucket", "some/kez").unwrap();
        assert_ne!(scope(&object_key(&other)), here);
        assert_ne!(scope(&part_key("0123456789abcdef0123456789abcdef", 7)), here);
    }

    #[test]
    fn the_rest_is_of_a_worker_or_of_all() {
        for key in [GENERATION_BASE_KEY, DOUBT_KEY, SETTLED_KEY, LAST_WRITE_KEY, CONFIGURED_POLICIES_KEY, COPIES_KEY] {
            assert_eq!(scope(key), Scope::Worker);
        }
        assert_eq!(scope(KNOWN_COPIES_KEY), Scope::Worker);
        for key in [job_key("id"), job_finding_key("id", 3)] {
            assert_eq!(scope(&key), Scope::Worker);
        }
        let bucket = BucketName::new("bucket").unwrap();
        let (bucket, mark) = (bucket_key(&bucket), mark_key(&bucket));
        for key in [policy_key(), policy_version_key(3), bucket, mark, cluster_job_key("id")] {
            assert_eq!(scope(&key), Scope::Cluster);
        }
        assert_eq!(scope(RESTORED_KEY), Scope::Cluster);
        assert_eq!(scope(USERS_KEY), Scope::Cluster);
        assert_eq!(scope(b""), Scope::Cluster);
        for first in 0..0xff {
            for second in 0..=u8::MAX {
                let key = [first, second];
                let is_beside = RANGES_BESIDE_PATHS.iter().any(|(from, to)| (*from..*to).contains(&&key[..]));
                assert_eq!(is_beside, !matches!(scope(&key), Scope::Path(_)), "{}", key.escape_ascii());
            }
        }
        assert_eq!(scope(b"p/"), Scope::Path(stable_hash(b"")));
    }
}
