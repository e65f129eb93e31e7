//! Bytes that answers hold in memory ahead of their clients. A slow client holds the bytes that were read for it, and
//! there may be thousands of slow clients. All answers therefore share one budget. When it is used up, further answers
//! read small pieces, one at a time.

use std::sync::Arc;

use bytes::Bytes;
use forebay_types::ByteRange;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory for all answers that read ahead. About fifty concurrent answers of large objects get all that they want.
const BYTES_MAX: usize = 256 << 20;
/// The unit of the budget.
const PERMIT_BYTES: usize = 64 << 10;
/// Size of a piece for an answer without a share: a few reads per page, and about a gigabyte for ten thousand answers.
const PIECE_BYTES: u64 = 128 << 10;

/// Shared by all answers.
pub(crate) struct ReadAhead {
    permits: Arc<Semaphore>,
}

/// The share of one answer, returned when the answer ends.
pub(crate) struct Share {
    wanted_pieces: usize,
    permit: Option<OwnedSemaphorePermit>,
}

/// The share of an answer for an object in the memory tier.
pub(crate) struct Room(Option<OwnedSemaphorePermit>);

impl ReadAhead {
    pub(crate) fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(BYTES_MAX / PERMIT_BYTES)) }
    }

    /// Room for an object that an answer holds whole until it is sent, because the memory tier may drop it earlier.
    /// `None` when nothing is left. An object no larger than a piece needs no room.
    pub(crate) fn room(&self, bytes: u64) -> Option<Room> {
        if bytes <= PIECE_BYTES { Some(Room(None)) } else { self.permit(bytes).map(|permit| Room(Some(permit))) }
    }

    fn permit(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let permits = bytes.div_ceil(PERMIT_BYTES as u64).min((BYTES_MAX / PERMIT_BYTES) as u64);
        Arc::clone(&self.permits).try_acquire_many_owned(permits as u32).ok()
    }

    /// A share for an answer of `length` bytes that wants to hold `pieces` of `piece` bytes in memory.
    pub(crate) fn share(&self, length: u64, pieces: usize, piece: u64) -> Share {
        let wanted = length.min(piece.saturating_mul(pieces as u64));
        Share { wanted_pieces: pieces, permit: self.permit(wanted) }
    }
}

/// Bytes that return their room when they have been sent.
struct Held {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Room {
    /// `bytes` of the object that has this room. They keep it until they are dropped.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        match self.0 {
            None => bytes,
            Some(permit) => Bytes::from_owner(Held { bytes, _permit: permit }),
        }
    }
}

impl Share {
    /// Number of concurrent reads.
    pub(crate) fn pieces(&self) -> usize {
        if self.permit.is_some() { self.wanted_pieces } else { 1 }
    }

    /// Splits a read into the sizes that the share allows.
    pub(crate) fn cut(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + Send + use<> {
        let step = if self.permit.is_some() { range.len().max(1) } else { PIECE_BYTES };
        let starts = (range.start..range.end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        starts.map(move |start| ByteRange::new(start, (start + step).min(range.end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn those_who_come_when_nothing_is_left_get_small_pieces_until_there_is_more() {
        let ahead = ReadAhead::new();
        let mut shares: Vec<Share> = (0..51).map(|_| ahead.share(100 * MIB, 5, MIB)).collect();
        assert!(shares.iter().all(|share| share.pieces() == 5));
        assert_eq!(shares[0].cut(ByteRange::new(5, MIB)).collect::<Vec<_>>(), [ByteRange::new(5, MIB)]);
        let late = ahead.share(100 * MIB, 5, MIB);
        assert_eq!(late.pieces(), 1);
        let pieces: Vec<_> = late.cut(ByteRange::new(5, 300_000)).collect();
        let borders = [(5, 131_077), (131_077, 262_149), (262_149, 300_000)];
        assert_eq!(pieces, borders.map(|(start, end)| ByteRange::new(start, end)));
        assert_eq!(ahead.share(MIB, 5, MIB).pieces(), 5, "a short answer may find what it needs");
        shares.pop();
        assert_eq!(ahead.share(100 * MIB, 5, MIB).pieces(), 5);
    }

    #[test]
    fn an_object_in_memory_is_held_while_there_is_room_for_it() {
        let ahead = ReadAhead::new();
        let object = Bytes::from(vec![7; MIB as usize]);
        let hold = || ahead.room(MIB).map(|room| room.hold(object.slice(1..3)));
        let held: Vec<Bytes> = std::iter::from_fn(hold).collect();
        assert_eq!((held.len(), &held[0][..]), (256, [7, 7].as_slice()), "a little of it holds all of it");
        assert!(ahead.room(PIECE_BYTES).is_some());
        drop(held);
        assert!(hold().is_some());
    }

    #[test]
    fn pages_that_are_larger_than_all_of_it_are_read_one_answer_at_a_time() {
        let ahead = ReadAhead::new();
        let first = ahead.share(u64::MAX, 64, 64 * MIB);
        assert_eq!((first.pieces(), ahead.share(MIB, 2, MIB).pieces()), (64, 1));
    }
}
