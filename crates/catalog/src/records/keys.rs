//! Keys of records. NUL separates what may hold any other byte.

use bytes::Bytes;
use forebay_types::{BucketName, ObjectKey, ObjectPath};

/// Holds the number that generations begin after.
pub const GENERATION_BASE_KEY: &[u8] = b"generation_base";

/// How many directories were forgotten, and the first generation that is newer than all that they may have known: two
/// numbers of eight bytes. The first is `u64::MAX` while a start without snapshots can't record yet that its doubts are
/// settled.
pub const DOUBT_KEY: &[u8] = b"doubt";

/// In a cluster whose engine was restored from a backup: the first generation that no record of the backup has. Eight
/// bytes. Records of lower generations may be stale, for all workers.
pub const RESTORED_KEY: &[u8] = b"restored";

/// How long nothing was sent for what earlier starts have found: see the cache's `settle/earlier.rs`.
pub const SETTLED_KEY: &[u8] = b"settled";

/// Holds a time that no write has been given a later one than.
pub const LAST_WRITE_KEY: &[u8] = b"last_write_ms";

/// Where the buckets of a worker that is alone were at its last start. JSON.
pub const UNDER_STORES_KEY: &[u8] = b"under_stores";

/// Where the buckets were at the last start of this worker, which its copies are from. JSON.
pub const COPIES_KEY: &[u8] = b"copies_of";

/// When clean copies were last known to be what the under store has, as of the last clean stop of a worker that is
/// alone: see the cache's `read/validity.rs`.
pub const KNOWN_COPIES_KEY: &[u8] = b"known_copies";

/// The path policies of the configuration at the last start of a worker of a cluster.
pub const CONFIGURED_POLICIES_KEY: &[u8] = b"configured_policies";

/// The users of all workers of a cluster.
pub const USERS_KEY: &[u8] = b"users";

/// The key of the path policies.
pub fn policy_key() -> Bytes {
    Bytes::from_static(b"policy")
}

/// The key of a version of the path policies.
pub fn policy_version_key(revision: u64) -> Bytes {
    format!("policy/{revision:020}").into()
}

pub fn all_policy_versions_range() -> (Bytes, Bytes) {
    range_of("policy/")
}

/// The first key behind `key`.
pub fn successor(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// The first key behind all that begin with `prefix`. Prefixes here are never empty or all 0xff.
fn behind_prefix(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end.into()
}

fn range_of(prefix: &str) -> (Bytes, Bytes) {
    (Bytes::copy_from_slice(prefix.as_bytes()), behind_prefix(prefix.as_bytes()))
}

/// The key of a [`BucketRecord`](super::BucketRecord).
pub fn bucket_key(bucket: &BucketName) -> Bytes {
    format!("b/{bucket}").into()
}

pub fn parse_bucket_key(key: &[u8]) -> Option<BucketName> {
    BucketName::new(std::str::from_utf8(key).ok()?.strip_prefix("b/")?).ok()
}

pub fn all_buckets_range() -> (Bytes, Bytes) {
    range_of("b/")
}

/// The key of a [`MarkRecord`](super::MarkRecord).
pub fn mark_key(bucket: &BucketName) -> Bytes {
    format!("m/{bucket}").into()
}

pub fn parse_mark_key(key: &[u8]) -> Option<BucketName> {
    BucketName::new(std::str::from_utf8(key).ok()?.strip_prefix("m/")?).ok()
}

pub fn all_marks_range() -> (Bytes, Bytes) {
    range_of("m/")
}

pub fn object_key(path: &ObjectPath) -> Bytes {
    format!("o/{}\0{}", path.bucket, path.key).into()
}

pub fn parse_object_key(key: &[u8]) -> Option<ObjectPath> {
    parse_path(key, "o/")
}

fn parse_path(key: &[u8], prefix: &str) -> Option<ObjectPath> {
    let (bucket, key) = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.split_once('\0')?;
    Some(ObjectPath::new(BucketName::new(bucket).ok()?, ObjectKey::new(key).ok()?))
}

/// Objects of a bucket whose keys begin with `prefix`: from the first up to, not including, the second.
pub fn object_prefix_range(bucket: &BucketName, prefix: &str) -> (Bytes, Bytes) {
    range_of(&format!("o/{bucket}\0{prefix}"))
}

pub fn all_objects_range() -> (Bytes, Bytes) {
    range_of("o/")
}

/// The key of a request of a client that may be on its way to the under store; its value is the start that has sent it.
pub fn request_key(path: &ObjectPath) -> Bytes {
    format!("r/{}\0{}", path.bucket, path.key).into()
}

pub fn parse_request_key(key: &[u8]) -> Option<ObjectPath> {
    parse_path(key, "r/")
}

pub fn all_requests_range() -> (Bytes, Bytes) {
    range_of("r/")
}

pub fn upload_key(path: &ObjectPath, upload_id: &str) -> Bytes {
    format!("u/{}\0{}\0{upload_id}", path.bucket, path.key).into()
}

pub fn parse_upload_key(key: &[u8]) -> Option<(ObjectPath, String)> {
    let mut fields = std::str::from_utf8(key).ok()?.strip_prefix("u/")?.split('\0');
    let (bucket, key, upload_id) = (fields.next()?, fields.next()?, fields.next()?);
    let path = ObjectPath::new(BucketName::new(bucket).ok()?, ObjectKey::new(key).ok()?);
    Some((path, upload_id.to_owned()))
}

/// Uploads of keys that begin with `prefix`.
pub fn uploads_range(bucket: &BucketName, prefix: &str) -> (Bytes, Bytes) {
    range_of(&format!("u/{bucket}\0{prefix}"))
}

/// The first upload behind a key marker: behind all uploads of that key, or with an id marker behind that id.
pub fn uploads_after(bucket: &BucketName, key_marker: &str, upload_id_marker: Option<&str>) -> Bytes {
    match upload_id_marker {
        Some(upload_id) => successor(format!("u/{bucket}\0{key_marker}\0{upload_id}").as_bytes()),
        None => behind_prefix(format!("u/{bucket}\0{key_marker}\0").as_bytes()),
    }
}

pub fn all_uploads_range() -> (Bytes, Bytes) {
    range_of("u/")
}

pub fn part_key(upload_id: &str, number: u32) -> Bytes {
    format!("p/{upload_id}/{number:05}").into()
}

pub fn parse_part_key(key: &[u8]) -> Option<u32> {
    std::str::from_utf8(key).ok()?.strip_prefix("p/")?.rsplit_once('/')?.1.parse().ok()
}

/// The upload that a part belongs to.
pub fn parse_part_upload(key: &[u8]) -> Option<&str> {
    Some(std::str::from_utf8(key).ok()?.strip_prefix("p/")?.rsplit_once('/')?.0)
}

pub fn all_parts_range() -> (Bytes, Bytes) {
    range_of("p/")
}

pub fn parts_range(upload_id: &str) -> (Bytes, Bytes) {
    range_of(&format!("p/{upload_id}/"))
}

/// The key of a job of an operator.
pub fn job_key(id: &str) -> Bytes {
    format!("j/{id}").into()
}

pub fn all_jobs_range() -> (Bytes, Bytes) {
    range_of("j/")
}

/// The key of a job of all workers of a cluster.
pub fn cluster_job_key(id: &str) -> Bytes {
    format!("cj/{id}").into()
}

pub fn parse_cluster_job_key(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key).ok()?.strip_prefix("cj/")
}

pub fn all_cluster_jobs_range() -> (Bytes, Bytes) {
    range_of("cj/")
}

/// The key of what a job has found, by its number from 0 on.
pub fn job_finding_key(id: &str, number: u64) -> Bytes {
    format!("jf/{id}/{number:010}").into()
}

pub fn parse_job_finding_key(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key).ok()?.strip_prefix("jf/")?.rsplit_once('/')?.1.parse().ok()
}

pub fn job_findings_range(id: &str) -> (Bytes, Bytes) {
    range_of(&format!("jf/{id}/"))
}
