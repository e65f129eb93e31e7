//! Random numbers and ids.

use parking_lot::Mutex;

/// A source of random numbers.
pub trait Random: Send + Sync + 'static {
    fn next_u64(&self) -> u64;

    /// Uniform in `0..bound`. The bias of the modulus is below 2^-32 for the bounds used here.
    fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0 && bound <= 1 << 32, "a bound must be in 1..=2^32: {bound}");
        self.next_u64() % bound
    }

    /// 128 bits in lower-case hex, for ids that nobody should guess.
    fn hex_id(&self) -> String {
        format!("{:016x}{:016x}", self.next_u64(), self.next_u64())
    }
}

/// The operating system's random numbers (`getrandom`), fit for secrets.
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
                .expect("the kernel has had random numbers since boot");
        }
        u64::from_ne_bytes(bytes)
    }
}

/// Reproducible numbers from one seed: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
pub struct SeededRandom {
    state: Mutex<u64>,
}

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self { state: Mutex::new(seed) }
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
}
