//! A fuzz target: what the cache keeps in the store beside each object. It takes any bytes and panics where a promise
//! is broken.

use crate::metadata::{Annex, decode_info, encode_info};

/// Metadata and annexes: what decodes, encodes to what decodes to the same.
pub fn metadata(data: &[u8]) {
    if let Ok(info) = decode_info(data) {
        assert_eq!(decode_info(&encode_info(&info)).expect("just encoded"), info);
    }
    let annex = Annex::decode(data);
    assert_eq!(Annex::decode(&annex.encode()), annex);
}
