//! Secrets that do not end up in logs.

use std::fmt;

use subtle::ConstantTimeEq;

/// A secret access key. It is shown as `***`, and overwritten when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    pub fn new(secret: &str) -> Self {
        Self(secret.as_bytes().to_vec())
    }

    /// The secret itself, for computing signatures.
    pub fn expose(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a secret is made from a string")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Keeps the compiler from removing the writes above as dead stores.
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Whether two strings are equal, in a time that depends only on their lengths.
pub fn equal_in_constant_time(left: &str, right: &str) -> bool {
    left.as_bytes().ct_eq(right.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn comparison_tells_equal_from_different() {
        assert!(equal_in_constant_time("abc", "abc"));
        assert!(!equal_in_constant_time("abc", "abd"));
        assert!(!equal_in_constant_time("abc", "abcd"));
    }
}
