//! The records of the catalog and their keys.
//!
//! | key | record |
//! |---|---|
//! | `o/{bucket}\0{key}` | [`ObjectRecord`]: what the under store does not have yet |
//! | `b/{bucket}` | [`BucketRecord`]: a bucket that has been seen, so that it takes writes when the under store is out of reach |
//! | `m/{bucket}` | [`MarkRecord`]: the mark of the directory that the bucket's changes were sent to |
//! | `r/{bucket}\0{key}` | eight bytes, big-endian: the start that has sent a client's request, which may be on its way to the under store. Eight more: the generation of a write that goes past what waits for the under store |
//! | `u/{bucket}\0{key}\0{upload id}` | [`UploadRecord`]: a multipart upload |
//! | `p/{upload id}/{number, five digits}` | [`PartRecord`]: one of its parts |
//! | `policy` | [`PolicyRecord`]: the path policies |
//! | `policy/{revision, twenty digits}` | [`PolicyVersionRecord`]: a version of them |
//! | `users` | [`UsersRecord`]: the users of all workers of a cluster, encrypted |
//! | `copies_of` | where the buckets were at the last start of a worker: its clean copies are from there |
//! | `configured_policies` | [`ConfiguredPolicies`]: the rules of a worker's configuration at its last start; only in a cluster |
//! | `cj/{job id}` | a job of an operator for all workers of a cluster, in the words of the cache |
//! | `j/{job id}` | a job of an operator, or a worker's share of one, in the words of the cache |
//! | `jf/{job id}/{number, ten digits}` | what it has found |
//! | `generation_base` | eight bytes, big-endian: see `embedded/generations.rs` |
//! | `restored` | eight bytes, big-endian: records of lower generations may be stale, since the engine of the cluster was restored from a backup |
//! | `settled` | for how long nothing was sent for what the last starts have found: see the cache's `settle/earlier.rs` |
//! | `last_write_ms` | eight bytes, big-endian: a time in milliseconds that no write has been given a later one than |
//!
//! Values begin with a version byte; readers refuse one that they do not know.

mod bucket;
mod holders;
mod keys;
mod mark;
mod object;
mod part;
mod policy;
mod scope;
mod upload;
mod users;
mod wanted;

use bytes::Bytes;
use forebay_types::Algorithm;
use serde::{Deserialize, Serialize};

pub use bucket::BucketRecord;
pub use holders::Holders;
pub use keys::*;
pub use mark::MarkRecord;
pub use object::{Base, ObjectRecord, State};
pub use part::PartRecord;
pub use policy::{ConfiguredPolicies, PolicyRecord, PolicyVersionRecord};
pub use scope::{RANGES_BESIDE_PATHS, Scope, path_hash, scope, stable_hash, upload_hash, upload_id};
pub use upload::{CompletedUpload, UploadRecord};
pub use users::UsersRecord;
pub use wanted::{WantedBytes, wanted_bytes};

use crate::{Error, ErrorKind, Result};

/// Version 1 is the first.
pub const VERSION: u8 = 1;

/// Of uploads and parts with a checksum that version 1 does not have. The fields are the same, and all others are
/// written as version 1, which older releases read.
const VERSION_CHECKSUMS_OF_2026: u8 = 2;

/// Of objects and parts with [`Holders`], which only a cluster has: the fields of an earlier version, and then the
/// holders. Records without any are written as the earlier version.
const VERSION_HOLDERS: u8 = 3;

/// Of uploads with a completion that was sent: the fields of an earlier version, and then its generation. All others
/// are written as the earlier version.
const VERSION_SENT: u8 = 3;

fn version_for(algorithms: impl IntoIterator<Item = Algorithm>) -> u8 {
    match algorithms.into_iter().any(Algorithm::is_of_2026) {
        true => VERSION_CHECKSUMS_OF_2026,
        false => VERSION,
    }
}

/// For records that gain no fields.
pub fn encode<T: Serialize>(version: u8, record: &T) -> Bytes {
    let bytes = postcard::to_extend(record, vec![version]).expect("memory takes every record that derives Serialize");
    bytes.into()
}

/// Of versions up to `newest`.
///
/// # Errors
/// `Corrupt` when the bytes are damaged or of a newer version.
pub fn decode<T: for<'a> Deserialize<'a>>(what: &str, newest: u8, bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(body(what, newest, bytes)?) {
        Ok((record, [])) => Ok(record),
        Ok((_, rest)) => Err(corrupt(what, format!("has {} bytes too many", rest.len()))),
        Err(error) => Err(corrupt(what, format!("is damaged: {error}"))),
    }
}

/// For records that gain fields and that people may have to read.
pub fn encode_json<T: Serialize>(record: &T) -> Bytes {
    let mut bytes = vec![VERSION];
    serde_json::to_writer(&mut bytes, record).expect("memory takes every record, whose keys are names");
    bytes.into()
}

/// # Errors
/// `Corrupt` when the bytes are damaged or of a newer version.
pub fn decode_json<T: for<'a> Deserialize<'a>>(what: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(body(what, VERSION, bytes)?).map_err(|error| corrupt(what, format!("is damaged: {error}")))
}

/// What is behind the version byte.
fn body<'a>(what: &str, newest: u8, bytes: &'a [u8]) -> Result<&'a [u8]> {
    match bytes.split_first() {
        Some((version, rest)) if (VERSION..=newest).contains(version) => Ok(rest),
        Some((&version, _)) if version > newest => {
            Err(corrupt(what, format!("has version {version}, newer than this release's {newest}")))
        }
        Some((version, _)) => Err(corrupt(what, format!("has version {version}, which never was"))),
        None => Err(corrupt(what, "is empty".to_owned())),
    }
}

/// Looks at the version of a record and at nothing else: quick enough for all records of a catalog, before a start
/// changes anything. Jobs are passed over: one of a newer release is left out and keeps nothing from being served.
///
/// # Errors
/// What is wrong with the version.
pub fn check_version(key: &[u8], value: &[u8]) -> Result<(), String> {
    let (what, newest) = match key {
        [b'o', b'/', ..] => ("object", VERSION_HOLDERS),
        [b'u', b'/', ..] => ("upload", VERSION_SENT),
        [b'p', b'/', ..] => ("part", VERSION_HOLDERS),
        b"policy" => ("policy", VERSION),
        _ if key.starts_with(b"policy/") => ("policy version", VERSION),
        _ => return Ok(()),
    };
    body(what, newest, value).map(|_| ()).map_err(|error| error.to_string())
}

fn corrupt(what: &str, problem: String) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the {what} record {problem}"))
}

#[cfg(test)]
mod tests;
