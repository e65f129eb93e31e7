//! Byte ranges.

use serde::{Deserialize, Serialize};

/// A half-open range of bytes, `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ByteRange {
    pub start: u64,
    pub end: u64,
}

impl ByteRange {
    /// # Panics
    /// When `start > end`.
    pub fn new(start: u64, end: u64) -> Self {
        assert!(start <= end, "a byte range must not run backwards: {start}..{end}");
        Self { start, end }
    }

    pub fn of_size(size: u64) -> Self {
        Self { start: 0, end: size }
    }

    pub fn len(self) -> u64 {
        self.end - self.start
    }

    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// What both ranges hold, if anything.
    pub fn intersect(self, other: Self) -> Option<Self> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(Self { start, end })
    }
}
