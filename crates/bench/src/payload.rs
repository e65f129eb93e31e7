//! The contents of objects: bytes that follow from key, version and size, so that a reader can check them without
//! further knowledge.
//!
//! All content is cut from one block of random bytes that is made once. The key decides where the cut begins, so that
//! one object is not taken for another. There are few enough beginnings that the hash of each body has to be computed
//! only once.

use std::collections::HashMap;

use forebay_env::Random;
use forebay_env::random::SeededRandom;
use sha2::{Digest, Sha256};

/// A prime, so that content that is longer than the block repeats, but never at the border of a page or a part.
const BLOCK_BYTES: usize = 1_048_583;
/// The beginnings for one size have at most this many bytes of different content. That is what has to be hashed before
/// all hashes are known.
const VARIANT_BYTES: u64 = 256 << 20;
const VARIANTS_MIN: u64 = 4;
const VARIANTS_MAX: u64 = 4096;
/// Most hashes that are kept, of 50 bytes each. Sizes that are drawn at random fill it up; after that, bodies are
/// hashed each time.
const HASHES_MAX: usize = 1 << 18;

/// Where the content of an object is in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Content {
    begin: usize,
    pub(crate) size: u64,
}

/// The block, shared by all connections.
pub(crate) struct Payload {
    block: Vec<u8>,
}

impl Payload {
    pub(crate) fn new(seed: u64) -> Self {
        Self { block: SeededRandom::new(seed).bytes(BLOCK_BYTES) }
    }

    /// The content of an object of this key and size when it is written for the `version`th time. Two versions in a row
    /// always differ.
    pub(crate) fn content(key: &str, version: u64, size: u64) -> Content {
        let variants = (VARIANT_BYTES / size.max(1)).clamp(VARIANTS_MIN, VARIANTS_MAX);
        let variant = (number_of(key).wrapping_add(version)) % variants;
        // Beginnings are spread over the block.
        Content { begin: variant as usize * (BLOCK_BYTES / VARIANTS_MAX as usize), size }
    }

    /// The content from `offset` on, as far as it is contiguous in the block.
    pub(crate) fn slice(&self, content: Content, offset: u64) -> &[u8] {
        let begin = ((content.begin as u64 + offset) % BLOCK_BYTES as u64) as usize;
        let left = (content.size - offset).min((BLOCK_BYTES - begin) as u64) as usize;
        &self.block[begin..begin + left]
    }

    /// The pieces of `length` bytes from `offset` on.
    pub(crate) fn slices(&self, content: Content, offset: u64, length: u64) -> impl Iterator<Item = &[u8]> {
        let end = offset + length;
        let mut position = offset;
        std::iter::from_fn(move || {
            let slice = (position < end).then(|| self.slice(content, position))?;
            let slice = &slice[..slice.len().min((end - position) as usize)];
            position += slice.len() as u64;
            Some(slice)
        })
    }

    /// Whether `received` is the content from `offset` on.
    pub(crate) fn matches(&self, content: Content, offset: u64, received: &[u8]) -> bool {
        if offset + received.len() as u64 > content.size {
            return false;
        }
        let mut rest = received;
        self.slices(content, offset, received.len() as u64).all(|expected| {
            let (piece, after) = rest.split_at(expected.len());
            rest = after;
            piece == expected
        })
    }
}

/// A number for a key, spread over 64 bits (FNV-1a, then mixed).
fn number_of(key: &str) -> u64 {
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    SeededRandom::new(hash).next_u64()
}

/// The SHA-256 of bodies in hex, each computed once.
#[derive(Default)]
pub(crate) struct Hashes {
    known: HashMap<(Content, u64, u64), String>,
}

impl Hashes {
    /// Of `length` bytes of the content, from `offset` on.
    pub(crate) fn of(&mut self, payload: &Payload, content: Content, offset: u64, length: u64) -> String {
        if let Some(hash) = self.known.get(&(content, offset, length)) {
            return hash.clone();
        }
        let mut hasher = Sha256::new();
        payload.slices(content, offset, length).for_each(|slice| hasher.update(slice));
        let hash = hex::encode(hasher.finalize());
        if self.known.len() < HASHES_MAX {
            self.known.insert((content, offset, length), hash.clone());
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(payload: &Payload, content: Content) -> Vec<u8> {
        payload.slices(content, 0, content.size).flatten().copied().collect()
    }

    #[test]
    fn content_matches_itself_in_any_pieces_and_nothing_else() {
        let payload = Payload::new(1);
        // Longer than the block.
        let content = Payload::content("key", 0, 3 << 20);
        let whole = bytes(&payload, content);
        assert_eq!(whole.len(), 3 << 20);
        for piece in [1, 1000, 65_536, 3 << 20] {
            for (number, part) in whole.chunks(piece).enumerate().take(100) {
                assert!(payload.matches(content, (number * piece) as u64, part), "{piece} {number}");
            }
        }
        let mut broken = whole.clone();
        broken[2_000_000] ^= 1;
        assert!(!payload.matches(content, 0, &broken));
        assert!(!payload.matches(content, 1 << 20, &whole[..1 << 20]), "pages are not alike");
        assert!(!payload.matches(content, 1, &whole), "longer than the object");
    }

    #[test]
    fn versions_in_a_row_and_most_keys_differ() {
        let payload = Payload::new(1);
        for size in [1 << 10, 1 << 20, 1 << 30] {
            let begins = |version| Payload::content("key", version, size).begin;
            assert!((0..100).all(|version| begins(version) != begins(version + 1)), "{size}");
        }
        let one = bytes(&payload, Payload::content("one", 0, 1000));
        assert_ne!(one, bytes(&payload, Payload::content("two", 0, 1000)));
        assert_ne!(one, bytes(&Payload::new(2), Payload::content("one", 0, 1000)));
    }

    #[test]
    fn a_hash_is_that_of_the_bytes() {
        let payload = Payload::new(1);
        let content = Payload::content("key", 3, 2 << 20);
        let whole = bytes(&payload, content);
        let mut hashes = Hashes::default();
        for _ in 0..2 {
            assert_eq!(hashes.of(&payload, content, 0, 2 << 20), hex::encode(Sha256::digest(&whole)));
            assert_eq!(hashes.of(&payload, content, 5, 100), hex::encode(Sha256::digest(&whole[5..105])));
        }
    }
}
