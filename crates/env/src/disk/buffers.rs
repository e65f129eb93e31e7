//! A pool of buffers for large reads: finding and clearing the pages of a new buffer costs about as much as filling it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

/// Smaller buffers come from the allocator, which has them at hand.
const POOLED_BYTES_MIN: usize = 64 << 10;
/// Larger buffers are rare: an extent is at most a mebibyte.
const POOLED_BYTES_MAX: usize = 2 << 20;
/// Sizes of pooled buffers are multiples of this.
const STEP_BYTES: usize = 16 << 10;
/// Most bytes of idle buffers that are kept. Some thirty reads of a mebibyte are in flight at once, rarely more.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Idle buffers.
#[derive(Default)]
pub(super) struct Buffers {
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// By their size in steps. The buffer that was used last is taken first: it may still be in the processor's caches.
    by_steps: Vec<Vec<Box<[u8]>>>,
    bytes: usize,
}

/// Memory to read into. What it holds at first is meaningless.
pub(super) enum Buffer {
    Own(BytesMut),
    Pooled(Pooled),
}

/// Returns to the pool when the last holder of any part of it drops that.
pub(super) struct Pooled {
    bytes: Box<[u8]>,
    length: usize,
    home: Arc<Buffers>,
}

impl Buffers {
    pub(super) fn take(self: &Arc<Self>, length: usize) -> Buffer {
        if !(POOLED_BYTES_MIN..=POOLED_BYTES_MAX).contains(&length) {
            return Buffer::Own(BytesMut::zeroed(length));
        }
        let steps = length.div_ceil(STEP_BYTES);
        let found = self.idle.lock().take(steps);
        let bytes = found.unwrap_or_else(|| vec![0; steps * STEP_BYTES].into());
        Buffer::Pooled(Pooled { bytes, length, home: Arc::clone(self) })
    }
}

impl Idle {
    fn take(&mut self, steps: usize) -> Option<Box<[u8]>> {
        let bytes = self.by_steps.get_mut(steps)?.pop()?;
        self.bytes -= bytes.len();
        Some(bytes)
    }

    fn give(&mut self, bytes: Box<[u8]>) {
        let steps = bytes.len() / STEP_BYTES;
        if self.bytes + bytes.len() <= KEPT_BYTES_MAX {
            self.bytes += bytes.len();
            if self.by_steps.len() <= steps {
                self.by_steps.resize_with(steps + 1, Vec::new);
            }
            self.by_steps[steps].push(bytes);
        }
    }
}

impl Buffer {
    pub(super) fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Pooled(pooled) => &mut pooled.bytes[..pooled.length],
        }
    }

    /// The first `length` bytes.
    pub(super) fn freeze(self, length: usize) -> Bytes {
        match self {
            Self::Own(mut bytes) => {
                bytes.truncate(length);
                bytes.freeze()
            }
            Self::Pooled(mut pooled) => {
                pooled.length = length;
                Bytes::from_owner(pooled)
            }
        }
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.home.idle.lock().give(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(buffers: &Arc<Buffers>, length: usize, byte: u8) -> Bytes {
        let mut buffer = buffers.take(length);
        buffer.as_mut().fill(byte);
        buffer.freeze(length)
    }

    #[test]
    fn a_buffer_is_used_again_when_nobody_holds_a_part_of_it() {
        let buffers = Arc::<Buffers>::default();
        let first = filled(&buffers, 100_000, 1);
        let (place, part) = (first.as_ptr(), first.slice(50_000..50_010));
        drop(first);
        let second = filled(&buffers, 100_000, 2);
        assert_ne!(second.as_ptr(), place, "a part of the first is still held");
        assert_eq!(part, [1; 10].as_slice());
        drop(part);
        assert_eq!(filled(&buffers, 99_000, 3).as_ptr(), place, "sizes that are nearly the same share buffers");
    }

    #[test]
    fn no_more_is_seen_of_a_buffer_than_was_read_into_it() {
        let buffers = Arc::<Buffers>::default();
        for (length, read) in [(10, 4), (100_000, 70_000), (100_000, 0), (3 << 20, 5)] {
            drop(filled(&buffers, length, 9));
            let mut buffer = buffers.take(length);
            assert_eq!(buffer.as_mut().len(), length);
            buffer.as_mut()[..read].fill(1);
            assert_eq!(buffer.freeze(read), vec![1; read]);
        }
    }

    #[test]
    fn what_nobody_uses_is_bounded() {
        let buffers = Arc::<Buffers>::default();
        drop((0..100).map(|_| filled(&buffers, 1 << 20, 1)).collect::<Vec<_>>());
        assert_eq!(buffers.idle.lock().bytes, KEPT_BYTES_MAX);
        drop((0..10).map(|_| filled(&buffers, 1 << 20, 1)).collect::<Vec<_>>());
        assert_eq!(buffers.idle.lock().bytes, KEPT_BYTES_MAX);
    }
}
