//! What the store keeps for the cache with each object: the metadata on disk and the annex in memory.

use bytes::Bytes;
use forebay_types::{ETag, ObjectInfo};
use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// The first byte of both encodings.
const VERSION: u8 = 1;

/// The part of an object's state that changes without its bytes, kept in memory by the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Annex {
    /// The under store's tag of this very version, once the under store has it.
    pub(crate) remote_etag: Option<ETag>,
    /// What clients see, where that is another tag.
    pub(crate) etag: Option<ETag>,
}

impl Annex {
    pub(crate) fn clean(remote_etag: ETag, etag: &ETag) -> Self {
        let differs = remote_etag != *etag;
        Self { remote_etag: Some(remote_etag), etag: differs.then(|| etag.clone()) }
    }

    pub(crate) fn encode(&self) -> Bytes {
        encode(self)
    }

    /// An annex that can't be read is one that says nothing: the object is then validated before it is served.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        decode(bytes).unwrap_or_default()
    }
}

pub(crate) fn encode_info(info: &ObjectInfo) -> Bytes {
    encode(info)
}

pub(crate) fn decode_info(bytes: &[u8]) -> Result<ObjectInfo> {
    decode(bytes)
}

fn encode<T: Serialize>(value: &T) -> Bytes {
    let bytes = postcard::to_extend(value, vec![VERSION]).expect("memory takes every value that derives Serialize");
    bytes.into()
}

fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest)
            .map_err(|error| Error::new(ErrorKind::Corrupt, format!("the object's metadata: {error}"))),
        Some((version, _)) => {
            Err(Error::new(ErrorKind::Corrupt, format!("the object's metadata has the unknown version {version}")))
        }
        None => Err(Error::new(ErrorKind::Corrupt, "the object's metadata is empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_newer_version_is_refused() {
        let mut info = ObjectInfo::new(5, ETag::new("abc-3"), 1_700_000_000_123);
        info.user.insert("name".into(), "wert \u{1f600}".into());
        let bytes = encode_info(&info);
        assert_eq!(decode_info(&bytes).unwrap(), info);
        let mut newer = bytes.to_vec();
        newer[0] = VERSION + 1;
        assert_eq!(decode_info(&newer).unwrap_err().kind, ErrorKind::Corrupt);
        assert_eq!(decode_info(&[]).unwrap_err().kind, ErrorKind::Corrupt);
        let annex = Annex::clean(ETag::new("r"), &ETag::new("r"));
        assert_eq!(Annex::decode(&annex.encode()), annex);
        assert_eq!(annex.etag, None);
        assert_eq!(Annex::decode(&newer), Annex::default());
    }
}
