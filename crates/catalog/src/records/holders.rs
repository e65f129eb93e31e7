//! Which workers have the bytes that a record names.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{VERSION_HOLDERS, body, corrupt, encode};
use crate::Result;

/// The workers that had all bytes of a version when its record was written. None where there is one worker alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holders(Vec<String>);

impl Holders {
    pub fn of(workers: impl IntoIterator<Item = String>) -> Self {
        Self(workers.into_iter().collect())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub fn has(&self, worker: &str) -> bool {
        self.names().any(|name| name == worker)
    }

    /// Whether a worker other than `own` may have the bytes.
    pub fn has_others(&self, own: &str) -> bool {
        self.names().any(|name| name != own)
    }
}

/// `version` is for a record without holders.
pub(super) fn encode_held<T: Serialize>(version: u8, record: &T, holders: &Holders) -> Bytes {
    if holders.0.is_empty() {
        return encode(version, record);
    }
    encode(VERSION_HOLDERS, &(record, holders))
}

/// `newest` is the newest version without holders.
pub(super) fn decode_held<T: for<'a> Deserialize<'a>>(what: &str, newest: u8, bytes: &[u8]) -> Result<(T, Holders)> {
    let fields = body(what, VERSION_HOLDERS, bytes)?;
    let decoded = match bytes.first() {
        Some(&VERSION_HOLDERS) => postcard::take_from_bytes(fields),
        Some(version) if *version > newest => {
            return Err(corrupt(what, format!("has version {version}, which never was")));
        }
        Some(_) | None => postcard::take_from_bytes(fields).map(|(record, rest)| ((record, Holders::default()), rest)),
    };
    match decoded {
        Ok((found, [])) => Ok(found),
        Ok((_, rest)) => Err(corrupt(what, format!("has {} bytes too many", rest.len()))),
        Err(error) => Err(corrupt(what, format!("is damaged: {error}"))),
    }
}
