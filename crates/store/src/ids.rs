//! Identifiers of directories and segments.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Tells a data directory from every other one that ever existed: 64 random bits, written as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DirectoryId(pub(crate) u64);

impl DirectoryId {
    /// The id of a directory from before there were ids. It binds records in the same way as the store and the number
    /// did.
    pub(crate) fn before_lists(store: u64, number: u16) -> Self {
        Self(store ^ (u64::from(number) << 32).rotate_left(16))
    }
}

impl fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for DirectoryId {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
        id.map(Self).ok_or_else(|| format!("\"{text}\" is no id of a directory: 16 hexadecimal digits"))
    }
}

/// A directory's number, and a segment's number in that directory. No other segment of the store ever has the same
/// pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct SegmentKey {
    pub(crate) directory: u16,
    pub(crate) number: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_16_digits() {
        let id = DirectoryId(0xab);
        assert_eq!(id.to_string(), "00000000000000ab");
        assert_eq!("00000000000000AB".parse(), Ok(id));
        for wrong in ["", "ab", "00000000000000ag", "000000000000000ab", "/mnt/nvme0", "+0000000000000ab"] {
            assert!(wrong.parse::<DirectoryId>().is_err(), "{wrong}");
        }
    }
}
