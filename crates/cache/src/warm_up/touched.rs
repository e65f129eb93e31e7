//! The objects of which something was heard: a set that may have more than was put into it, and never less.

use std::sync::OnceLock;

use forebay_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// With a million objects in it, it takes one in nine of the others for one of them.
const BITS: u64 = 1 << 23;

/// From which restart on the set says what was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heard(u64);

/// A bit for each hash. It takes no memory before it is watched.
#[derive(Default)]
pub(crate) struct Touched {
    is_watched: AtomicBool,
    restarts: AtomicU64,
    words: OnceLock<Box<[AtomicU64]>>,
}

impl Touched {
    /// Begins to remember, with nothing in it.
    pub(crate) fn restart(&self) {
        // First: what has seen the set before must not believe it afterwards.
        self.restarts.fetch_add(1, Ordering::SeqCst);
        for word in self.words() {
            word.store(0, Ordering::SeqCst);
        }
        self.is_watched.store(true, Ordering::SeqCst);
    }

    pub(crate) fn add(&self, hash: u64) {
        if self.is_watched.load(Ordering::SeqCst) {
            let (word, bit) = self.place(hash);
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    pub(crate) fn heard(&self) -> Heard {
        Heard(self.restarts.load(Ordering::SeqCst))
    }

    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        word.load(Ordering::SeqCst) & bit != 0
    }

    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let bit = hash % BITS;
        (&self.words()[(bit / 64) as usize], 1 << (bit % 64))
    }

    fn words(&self) -> &[AtomicU64] {
        self.words.get_or_init(|| (0..BITS / 64).map(|_| AtomicU64::new(0)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_into_it_is_there_until_it_begins_again() {
        let touched = Touched::default();
        touched.add(7);
        touched.restart();
        let heard = touched.heard();
        assert!(!touched.may_have(7), "nobody has watched");
        touched.add(7);
        touched.add(BITS + 9);
        assert!(touched.may_have(7) && touched.may_have(BITS + 9) && !touched.may_have(8));
        assert_eq!(touched.heard(), heard);
        touched.restart();
        assert!(!touched.may_have(7) && !touched.may_have(BITS + 9) && touched.heard() != heard);
    }
}
