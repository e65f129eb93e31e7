//! The keys of the store's objects in order. The store has them in none, so they are taken in large pieces.

use std::collections::{BinaryHeap, VecDeque};

use bytes::Bytes;

use crate::worker::Worker;

/// Keys that are held at once: some ten megabytes. Each piece costs one pass over the store's index.
const KEYS_HELD: usize = 100_000;

/// Keys of a range.
pub(super) struct StoreKeys {
    /// Where the next piece begins.
    from: Bytes,
    to: Bytes,
    held: VecDeque<Bytes>,
    /// Whether nothing is behind what is held.
    is_last: bool,
}

impl StoreKeys {
    pub(super) fn new(range: (Bytes, Bytes)) -> Self {
        let (from, to) = range;
        Self { from, to, held: VecDeque::new(), is_last: false }
    }

    /// What is below `from` is not wanted any more.
    pub(super) fn skip_to(&mut self, from: &Bytes) {
        let below = self.held.iter().take_while(|key| *key < from).count();
        self.held.drain(..below);
        if self.from < *from {
            self.from = from.clone();
        }
    }

    async fn refill(&mut self, worker: &Worker) {
        // The smallest so far, the largest of them on top.
        let mut smallest = BinaryHeap::new();
        for shard in 0..worker.store.shards() {
            worker.store.for_each_object_in(shard, &mut |key, _, _| {
                if *key < self.from || *key >= self.to {
                    return;
                }
                if smallest.len() == KEYS_HELD && smallest.peek().is_some_and(|largest| key >= largest) {
                    return;
                }
                smallest.push(key.clone());
                if smallest.len() > KEYS_HELD {
                    smallest.pop();
                }
            });
            // Requests go on between two shards.
            tokio::task::yield_now().await;
        }
        self.is_last = smallest.len() < KEYS_HELD;
        self.held = smallest.into_sorted_vec().into();
        if let Some(last) = self.held.back() {
            self.from = forebay_catalog::records::successor(last);
        }
    }

    /// The next keys that are below `end`, at most `limit`.
    pub(super) async fn take(&mut self, worker: &Worker, end: Option<&Bytes>, limit: usize) -> Vec<Bytes> {
        let mut taken = Vec::new();
        loop {
            if self.held.is_empty() && !self.is_last {
                self.refill(worker).await;
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
