//! The keys of the store's objects, in order. The store has no order, so they are taken in large pieces.

use std::collections::{BinaryHeap, VecDeque};

use bytes::Bytes;
use forebay_store::Store;

/// The most keys held at once, about ten megabytes. Each piece costs one pass over the store's index.
const HELD_MAX: usize = 100_000;

/// The keys of a range.
pub(super) struct StoreKeys {
    /// Where the next piece begins.
    from: Bytes,
    to: Bytes,
    held: VecDeque<Bytes>,
    held_max: usize,
    /// Whether there are no keys after those held.
    is_last: bool,
}

impl StoreKeys {
    pub(super) fn new(range: (Bytes, Bytes)) -> Self {
        let (from, to) = range;
        Self { from, to, held: VecDeque::new(), held_max: HELD_MAX, is_last: false }
    }

    /// Drops keys below `from`, which are no longer needed.
    pub(super) fn skip_to(&mut self, from: &Bytes) {
        let below = self.held.iter().take_while(|key| *key < from).count();
        self.held.drain(..below);
        if self.from < *from {
            self.from = from.clone();
        }
    }

    async fn refill(&mut self, store: &Store) {
        // The smallest keys so far, with the largest of them on top.
        let mut smallest = BinaryHeap::new();
        for shard in 0..store.shards() {
            store.for_each_object_in(shard, &mut |key, _, _| {
                if key < self.from || key >= self.to {
                    return;
                }
                if smallest.len() == self.held_max && smallest.peek().is_some_and(|largest| key >= *largest) {
                    return;
                }
                smallest.push(Bytes::copy_from_slice(key));
                if smallest.len() > self.held_max {
                    smallest.pop();
                }
            });
            // Requests can run between two shards.
            tokio::task::yield_now().await;
        }
        self.is_last = smallest.len() < self.held_max;
        self.held = smallest.into_sorted_vec().into();
        if let Some(last) = self.held.back() {
            self.from = forebay_catalog::records::successor(last);
        }
    }

    /// The next keys that are below `end`, at most `limit`.
    pub(super) async fn take(&mut self, store: &Store, end: Option<&Bytes>, limit: usize) -> Vec<Bytes> {
        let mut taken = Vec::new();
        loop {
            if self.held.is_empty() && !self.is_last {
                self.refill(store).await;
            }
            let left = limit - taken.len();
            let inside = self.held.iter().take(left).take_while(|key| end.is_none_or(|end| *key < end)).count();
            taken.extend(self.held.drain(..inside));
            if taken.len() == limit || !self.held.is_empty() || self.is_last {
                return taken;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_env::disk::memory::MemoryDisk;
    use forebay_env::random::SeededRandom;
    use forebay_env::{Disk, Env, Random};
    use forebay_store::{Class, Commit, NewObject, Settings};
    use forebay_types::{Durability, Generation};

    use super::*;

    /// Keys `0`, `2` and so on, below 40: those between them are bounds that no key is equal to.
    async fn store_of_twenty() -> Store {
        let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(MemoryDisk::new(64 << 20))];
        let store = Store::open(Env::simulated(1).0, disks, Settings::new(vec![64 << 20]), None).await.unwrap();
        let mut commit = Commit::default();
        for number in (0..40).step_by(2) {
            let object = NewObject {
                key: key(number),
                generation: Generation(number + 1),
                metadata: Bytes::new(),
                annex: Bytes::new(),
                pinned: true,
                group: 0,
                size: 0,
            };
            commit.publish.push(store.writer(Class::Durable, 0).await.unwrap().finish(object).await.unwrap());
        }
        store.commit(commit, Durability::Fsync).await.unwrap();
        store
    }

    fn key(number: u64) -> Bytes {
        Bytes::copy_from_slice(&number.to_be_bytes())
    }

    #[tokio::test]
    async fn pieces_of_any_size_are_all_keys_in_order() {
        let store = store_of_twenty().await;
        for seed in 0..500 {
            let random = SeededRandom::new(seed);
            let (first, last) = (random.below(20), 20 + random.below(20));
            let mut keys = StoreKeys::new((key(first), key(last)));
            keys.held_max = 1 + random.below(25) as usize;
            let mut left: VecDeque<u64> = (0..40).step_by(2).filter(|number| (first..last).contains(number)).collect();
            for _ in 0..30 {
                if random.below(4) == 0 {
                    let from = random.below(40);
                    keys.skip_to(&key(from));
                    left.retain(|number| *number >= from);
                }
                let end = (random.below(3) > 0).then(|| random.below(44));
                let limit = 1 + random.below(8) as usize;
                let inside = left.iter().take(limit).take_while(|number| end.is_none_or(|end| **number < end)).count();
                let expected: Vec<Bytes> = left.drain(..inside).map(key).collect();
                assert_eq!(keys.take(&store, end.map(key).as_ref(), limit).await, expected, "seed {seed}");
            }
            let rest: Vec<Bytes> = left.into_iter().map(key).collect();
            assert_eq!(keys.take(&store, None, 40).await, rest, "seed {seed}");
            assert!(keys.take(&store, None, 40).await.is_empty(), "seed {seed}");
        }
    }
}
