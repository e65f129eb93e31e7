//! Bytes of an incoming object that wait until they make an extent or a record.

use std::collections::VecDeque;

use bytes::Bytes;

/// Bytes are gathered in blocks of this size, so that they take little more memory than has come: a single growing
/// buffer would take up to twice as much. A larger piece that comes at once is a block of its own.
const BLOCK_BYTES: usize = 64 << 10;

/// A block with this many bytes is grown to its full size at once: each step of growth leaves a hole of its size in
/// memory.
const GROWN_BYTES: usize = BLOCK_BYTES / 4;

/// Holds copies of what came: the pieces that a connection reads may be small parts of large buffers, which they would
/// keep in memory.
#[derive(Default)]
pub(crate) struct Waiting {
    closed: VecDeque<Bytes>,
    /// The block that grows.
    open: Vec<u8>,
    bytes: usize,
}

impl Waiting {
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds `data`. Reserves no room for more than `expected` bytes, those of `data` included.
    pub(crate) fn push(&mut self, mut data: &[u8], mut expected: u64) {
        self.bytes += data.len();
        while !data.is_empty() {
            let held = self.open.len();
            let taken = if held == 0 { data.len() } else { data.len().min(BLOCK_BYTES - held) };
            if self.open.capacity() < held + taken {
                let all = usize::try_from(expected).unwrap_or(usize::MAX).saturating_add(held);
                let most = all.min(BLOCK_BYTES).max(held + taken);
                let wanted = if held + taken >= GROWN_BYTES { most } else { (2 * held).clamp(held + taken, most) };
                self.open.reserve_exact(wanted - held);
            }
            self.open.extend_from_slice(&data[..taken]);
            data = &data[taken..];
            expected = expected.saturating_sub(taken as u64);
            if self.open.len() >= BLOCK_BYTES {
                self.close_block();
            }
        }
    }

    fn close_block(&mut self) {
        if !self.open.is_empty() {
            self.closed.push_back(std::mem::take(&mut self.open).into());
        }
    }

    /// Takes out the first bytes in one piece. Copies nothing when they are in one block.
    pub(crate) fn take(&mut self, bytes: usize) -> Bytes {
        assert!(bytes <= self.bytes, "{bytes} of {} bytes", self.bytes);
        self.close_block();
        self.bytes -= bytes;
        if self.closed.front().is_some_and(|first| first.len() >= bytes) {
            return self.take_block(bytes);
        }
        let mut taken = Vec::with_capacity(bytes);
        while taken.len() < bytes {
            let block = self.take_block(bytes - taken.len());
            taken.extend_from_slice(&block);
        }
        taken.into()
    }

    /// Takes at most `most` bytes of the first block.
    fn take_block(&mut self, most: usize) -> Bytes {
        let mut block = self.closed.pop_front().expect("as many bytes are here as are taken");
        if block.len() > most {
            let rest = block.split_off(most);
            self.closed.push_front(rest);
        }
        block
    }

    /// All bytes, which stay here, in one block from now on.
    pub(crate) fn join(&mut self) -> Bytes {
        let all = self.take(self.bytes);
        self.bytes = all.len();
        if !all.is_empty() {
            self.closed.push_back(all.clone());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(waiting: &Waiting) -> usize {
        waiting.closed.iter().map(Bytes::len).sum::<usize>() + waiting.open.capacity()
    }

    #[test]
    fn bytes_come_out_as_they_went_in_and_take_little_more_memory() {
        for piece in [1, 1000, 40_000, 65_536, 200_000] {
            let data: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
            let (mut waiting, mut came) = (Waiting::default(), 0);
            for part in data.chunks(piece) {
                waiting.push(part, (data.len() - came) as u64);
                came += part.len();
                assert_eq!(waiting.len(), came);
                let slack = if came < GROWN_BYTES { came } else { BLOCK_BYTES - GROWN_BYTES };
                assert!(capacity(&waiting) <= came + slack, "{came} in pieces of {piece}");
            }
            assert_eq!(capacity(&waiting), data.len(), "nothing is left over of what was expected");
            assert_eq!(waiting.take(100_000), data[..100_000]);
            assert_eq!(waiting.take(0), Bytes::new());
            assert_eq!(waiting.take(7), data[100_000..100_007]);
            assert_eq!(waiting.join(), data[100_007..]);
            waiting.push(b"more", 0);
            assert_eq!(waiting.take(waiting.len()), [&data[100_007..], b"more"].concat());
            assert!(waiting.is_empty() && waiting.join().is_empty());
        }
    }
}
