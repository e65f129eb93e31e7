//! Random numbers and ids.

use std::cell::RefCell;
use std::hash::{BuildHasher, DefaultHasher, Hasher};

use crate::sync::Mutex;

/// A source of random numbers.
pub trait Random: Send + Sync + 'static {
    fn next_u64(&self) -> u64;

    /// Uniform in `0..bound`. The bias of the modulo is below 2^-32 for the bounds used here.
    fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0 && bound <= 1 << 32, "a bound must be in 1..=2^32: {bound}");
        self.next_u64() % bound
    }

    /// 128 bits in lower-case hex, for ids that nobody should guess.
    fn hex_id(&self) -> String {
        format!("{:016x}{:016x}", self.next_u64(), self.next_u64())
    }
}

/// How many numbers a thread gets from the kernel at once. With less than 256 bytes, a call is never cut short.
const BATCH: usize = 31;

thread_local! {
    static BATCHED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The operating system's random numbers (`getrandom`), fit for secrets.
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        BATCHED.with_borrow_mut(|batched| {
            if batched.is_empty() {
                let mut bytes = [0; 8 * BATCH];
                let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
                assert_eq!(filled, Ok(bytes.len()), "the kernel has had random numbers since boot");
                batched.extend(bytes.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)));
            }
            batched.pop().expect("just filled")
        })
    }
}

/// Reproducible numbers from one seed: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014).
pub struct SeededRandom {
    state: Mutex<u64>,
}

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self { state: Mutex::new(seed) }
    }

    /// One of many sequences of a seed. Two seeds whose difference is a multiple of the generator's increment give the
    /// same sequence, shifted. So the state of each sequence is drawn at random.
    pub fn one_of_many(seed: u64, index: u64) -> Self {
        let first = Self::new(seed).next_u64().wrapping_add(index);
        Self::new(Self::new(first).next_u64())
    }

    /// The next `length` bytes. Tests make megabytes of them, and are built without optimisation.
    pub fn bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length.next_multiple_of(8));
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        let mut state = self.state.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Makes hashers that all have the same random key. They are as hard to collide on as those of the standard library,
/// and reproducible where the random numbers are.
#[derive(Clone)]
pub struct HashState {
    keyed: DefaultHasher,
}

impl HashState {
    pub fn new(random: &dyn Random) -> Self {
        let mut keyed = DefaultHasher::new();
        keyed.write_u64(random.next_u64());
        keyed.write_u64(random.next_u64());
        Self { keyed }
    }
}

impl BuildHasher for HashState {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        self.keyed.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let (a, b) = (SeededRandom::new(7), SeededRandom::new(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
        assert_ne!(SeededRandom::new(8).next_u64(), SeededRandom::new(7).next_u64());
        assert_ne!(SystemRandom.hex_id(), SystemRandom.hex_id());
    }

    #[test]
    fn many_sequences_of_a_seed_have_nothing_in_common() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..3 {
            for index in 0..20 {
                let random = SeededRandom::one_of_many(seed, index);
                assert!((0..1000).all(|_| seen.insert(random.next_u64())), "sequence {index} of seed {seed}");
            }
        }
    }

    #[test]
    fn hashes_differ_from_key_to_key_only() {
        let hash = |seed: u64| HashState::new(&SeededRandom::new(seed)).hash_one("text");
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
