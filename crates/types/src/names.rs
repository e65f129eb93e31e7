//! Buckets, keys and generations.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits::KEY_BYTES_MAX;

/// A name that S3 would refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error("the bucket name {0:?} is not valid: 3 to 63 lower-case letters, digits, dots and hyphens")]
    Bucket(String),
    #[error("the object key is empty")]
    EmptyKey,
    #[error("the object key has {0} bytes, more than {KEY_BYTES_MAX}")]
    LongKey(usize),
    #[error("the object key holds a NUL character")]
    NulInKey,
}

/// A bucket's name, valid by S3's rules for general-purpose buckets.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BucketName(Arc<str>);

impl BucketName {
    /// Refuses what S3 refuses: length, character set, labels, and names shaped like an IP address.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        if is_valid_bucket(name) { Ok(Self(name.into())) } else { Err(InvalidName::Bucket(name.to_owned())) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_valid_bucket(name: &str) -> bool {
    let label_ok = |label: &str| {
        let edge = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(label.bytes().next())
            && edge(label.bytes().last())
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    (3..=63).contains(&name.len()) && name.split('.').all(label_ok) && name.parse::<std::net::Ipv4Addr>().is_err()
}

impl TryFrom<String> for BucketName {
    type Error = InvalidName;
    fn try_from(name: String) -> Result<Self, InvalidName> {
        Self::new(&name)
    }
}

impl From<BucketName> for String {
    fn from(name: BucketName) -> Self {
        name.0.to_string()
    }
}

/// An object's key: 1 to 1,024 bytes of UTF-8 without NUL, compared byte by byte, never interpreted as a path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    pub fn new(key: &str) -> Result<Self, InvalidName> {
        match key.len() {
            0 => Err(InvalidName::EmptyKey),
            length if length > KEY_BYTES_MAX => Err(InvalidName::LongKey(length)),
            _ if key.contains('\0') => Err(InvalidName::NulInKey),
            _ => Ok(Self(key.into())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ObjectKey {
    type Error = InvalidName;
    fn try_from(key: String) -> Result<Self, InvalidName> {
        Self::new(&key)
    }
}

impl From<ObjectKey> for String {
    fn from(key: ObjectKey) -> Self {
        key.0.to_string()
    }
}

/// A bucket and a key: what names one object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectPath {
    pub bucket: BucketName,
    pub key: ObjectKey,
}

impl ObjectPath {
    pub fn new(bucket: BucketName, key: ObjectKey) -> Self {
        Self { bucket, key }
    }

    /// Parses the two names; for tests and tools.
    pub fn parse(bucket: &str, key: &str) -> Result<Self, InvalidName> {
        Ok(Self { bucket: BucketName::new(bucket)?, key: ObjectKey::new(key)? })
    }
}

/// The number of a write to a key: it grows with every write on a worker, and is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Generation(pub u64);

macro_rules! show_as_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }
    )*};
}
show_as_text!(BucketName, ObjectKey);

impl fmt::Display for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket, self.key)
    }
}

impl fmt::Debug for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:?}", self.bucket, self.key)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_follow_the_rules_of_s3() {
        for good in ["abc", "a-b.c-d", "123", "logs.2024", &"a".repeat(63)] {
            assert!(BucketName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "ab", "Abc", "a_b", "-abc", "abc-", "a..b", "192.168.0.1", "a/b", "..", &"a".repeat(64)] {
            assert!(BucketName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_are_bounded_in_bytes_not_characters() {
        assert!(ObjectKey::new(&"é".repeat(512)).is_ok());
        assert_eq!(ObjectKey::new(&"é".repeat(513)), Err(InvalidName::LongKey(1026)));
        assert_eq!(ObjectKey::new(""), Err(InvalidName::EmptyKey));
        assert_eq!(ObjectKey::new("a\0b"), Err(InvalidName::NulInKey));
        assert!(ObjectKey::new("../..//%2F\u{1f600}/").is_ok());
    }
}
