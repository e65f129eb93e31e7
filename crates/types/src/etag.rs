//! Entity tags as S3 makes them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An entity tag without its quotes: the hex MD5 of the bytes, or for a multipart upload the hex MD5 of the
/// parts' MD5s followed by `-` and the number of parts. An under store's own tags are kept as they come.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ETag(Arc<str>);

impl ETag {
    /// Takes a tag with or without quotes.
    pub fn new(tag: &str) -> Self {
        let bare = tag.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(tag);
        Self(bare.into())
    }

    pub fn from_md5(md5: [u8; 16]) -> Self {
        let mut text = [0; 32];
        hex::encode_to_slice(md5, &mut text).expect("two digits a byte");
        Self(std::str::from_utf8(&text).expect("digits are ASCII").into())
    }

    /// `md5_of_md5s` is the MD5 over the parts' binary MD5s in order.
    pub fn from_parts(md5_of_md5s: [u8; 16], parts: usize) -> Self {
        Self(format!("{}-{parts}", hex::encode(md5_of_md5s)).into())
    }

    /// The MD5 in the tag, when the tag is nothing else.
    pub fn md5(&self) -> Option<[u8; 16]> {
        let mut md5 = [0; 16];
        hex::decode_to_slice(self.0.as_bytes(), &mut md5).ok()?;
        Some(md5)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tag between quotes, as a header carries it.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}
