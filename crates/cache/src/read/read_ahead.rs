//! Bytes that answers hold in memory ahead of their clients. A slow client holds the bytes that were read for it, and
//! there may be thousands of slow clients. All answers therefore share one budget, of which each requester leaves some
//! to others. When it is used up, further answers read small pieces, one at a time. Answers that are passed on cannot
//! be read in smaller pieces than the under store sends. They count up to half of what their requester may have, so
//! that it has less for its other answers, but never nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::Requester;
use forebay_env::sync::Mutex;
use forebay_types::ByteRange;

/// Memory for all answers that read ahead. About fifty concurrent answers of large objects get all that they want.
const BYTES_MAX: u64 = 256 << 20;
/// Size of a piece for an answer without a share: a few reads per page, and about a gigabyte for ten thousand answers.
const PIECE_BYTES: u64 = 128 << 10;
/// What an answer that is passed on may hold: the most that an under store sends at once.
const PASSED_BYTES: u64 = 1 << 20;
/// A requester may have this many times what it leaves, as with permits of [`forebay_env::RequesterPermits`]. Alone, it
/// gets three quarters.
const TIMES: u64 = 3;

/// Shared by all answers.
#[derive(Default)]
pub(crate) struct ReadAhead {
    budget: Arc<Mutex<Budget>>,
}

#[derive(Default)]
struct Budget {
    taken: u64,
    /// Those that hold nothing are not in it.
    requesters: BTreeMap<Requester, Taken>,
}

/// What one requester holds.
#[derive(Clone, Copy, Default)]
struct Taken {
    bytes: u64,
    /// Of these, those of answers that are passed on.
    passed: u64,
}

/// Bytes of the budget, returned when this is dropped.
struct Permit {
    budget: Arc<Mutex<Budget>>,
    requester: Requester,
    taken: Taken,
}

/// The share of one answer, returned when the answer ends.
pub(crate) struct Share {
    pieces: usize,
    permit: Option<Permit>,
}

/// The share of an answer for an object in the memory tier.
pub(crate) struct Room(Option<Permit>);

/// Counts what an answer holds that is passed on, until this is dropped.
pub struct PassedOn {
    _permit: Option<Permit>,
}

impl Budget {
    fn take(&mut self, requester: Requester, more: Taken) -> bool {
        let Some(left) = BYTES_MAX.checked_sub(self.taken.saturating_add(more.bytes)) else { return false };
        let has = self.requesters.get(&requester).copied().unwrap_or_default();
        let of_requester = Taken { bytes: has.bytes + more.bytes, passed: has.passed + more.passed };
        // Forebay itself works for all.
        if requester != Requester::NOBODY && of_requester.bytes > TIMES * left {
            return false;
        }
        // What it would have if it took all that it may.
        let share = (BYTES_MAX - (self.taken - has.bytes)) * TIMES / (TIMES + 1);
        if more.passed > 0 && of_requester.passed > share / 2 {
            return false;
        }
        self.taken += more.bytes;
        self.requesters.insert(requester, of_requester);
        true
    }

    fn give_back(&mut self, requester: Requester, less: Taken) {
        self.taken -= less.bytes;
        let has = self.requesters.get_mut(&requester).expect("what is given back was taken");
        has.bytes -= less.bytes;
        has.passed -= less.passed;
        if has.bytes == 0 {
            self.requesters.remove(&requester);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.lock().give_back(self.requester, self.taken);
    }
}

impl ReadAhead {
    /// Room for an object that an answer holds whole until it is sent, because the memory tier may drop it earlier.
    /// `None` when nothing is left. An object no larger than a piece needs no room.
    pub(crate) fn room(&self, bytes: u64) -> Option<Room> {
        if bytes <= PIECE_BYTES { Some(Room(None)) } else { self.permit(bytes).map(|permit| Room(Some(permit))) }
    }

    /// Counts an answer of `length` bytes that is passed on.
    pub(crate) fn passed_on(&self, length: u64) -> PassedOn {
        let bytes = length.min(PASSED_BYTES);
        let permit = || self.take(Taken { bytes, passed: bytes });
        PassedOn { _permit: if length <= PIECE_BYTES { None } else { permit() } }
    }

    fn permit(&self, bytes: u64) -> Option<Permit> {
        // Who holds something is in the table.
        self.take(Taken { bytes: bytes.max(1), passed: 0 })
    }

    fn take(&self, taken: Taken) -> Option<Permit> {
        let requester = Requester::present();
        let is_taken = self.budget.lock().take(requester, taken);
        is_taken.then(|| Permit { budget: Arc::clone(&self.budget), requester, taken })
    }

    /// A share for an answer of `length` bytes that wants to hold `pieces` of `piece` bytes in memory. Where there is
    /// less, it gets half of them, or half of that.
    pub(crate) fn share(&self, length: u64, pieces: usize, piece: u64) -> Share {
        let mut halves = std::iter::successors(Some(pieces), |more| Some(more / 2)).take_while(|pieces| *pieces > 0);
        let share = halves.find_map(|pieces| {
            let permit = self.permit(length.min(piece.saturating_mul(pieces as u64)))?;
            Some(Share { pieces, permit: Some(permit) })
        });
        share.unwrap_or(Share { pieces: 1, permit: None })
    }
}

/// Bytes that return their room when they have been sent.
struct Held {
    bytes: Bytes,
    _permit: Permit,
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
        self.pieces
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
        let ahead = ReadAhead::default();
        let mut shares: Vec<Share> = (0..51).map(|_| ahead.share(100 * MIB, 5, MIB)).collect();
        assert!(shares.iter().all(|share| share.pieces() == 5));
        assert_eq!(shares[0].cut(ByteRange::new(5, MIB)).collect::<Vec<_>>(), [ByteRange::new(5, MIB)]);
        let short = ahead.share(MIB, 5, MIB);
        assert_eq!(short.pieces(), 5, "a short answer may find what it needs");
        let late = ahead.share(100 * MIB, 5, MIB);
        assert_eq!(late.pieces(), 1);
        let pieces: Vec<_> = late.cut(ByteRange::new(5, 300_000)).collect();
        let borders = [(5, 131_077), (131_077, 262_149), (262_149, 300_000)];
        assert_eq!(pieces, borders.map(|(start, end)| ByteRange::new(start, end)));
        shares.pop();
        assert_eq!(ahead.share(100 * MIB, 5, MIB).pieces(), 5);
    }

    #[test]
    fn one_requester_leaves_some_to_others_and_takes_half_where_there_is_not_all() {
        let ahead = ReadAhead::default();
        let [greedy, modest, another] = ["greedy", "modest", "another"].map(Requester::named);
        let share = |requester: Requester| requester.gets_step(|| ahead.share(100 * MIB, 16, MIB));
        let held: Vec<Share> = std::iter::repeat_with(|| share(greedy)).take_while(|it| it.permit.is_some()).collect();
        let pieces: usize = held.iter().map(Share::pieces).sum();
        assert_eq!((pieces, share(modest).pieces()), (192, 16), "three quarters");
        let of_modest: Vec<Share> = (0..3).map(|_| share(modest)).collect();
        assert_eq!(of_modest.iter().map(Share::pieces).collect::<Vec<_>>(), [16, 16, 16]);
        assert_eq!((share(another).pieces(), share(greedy).pieces()), (8, 1), "of the 16 MiB that are left");
        assert!(greedy.gets_step(|| ahead.room(MIB)).is_none());
        let passed = greedy.gets_step(|| ahead.passed_on(MIB));
        assert!(passed._permit.is_none());
        drop((held, of_modest));
        let budget = ahead.budget.lock();
        assert!(budget.taken == 0 && budget.requesters.is_empty());
    }

    /// However many there are of them.
    #[test]
    fn answers_that_are_passed_on_leave_their_requester_half_of_its_share() {
        let ahead = ReadAhead::default();
        let [many, other] = ["many", "other"].map(Requester::named);
        let pass = |requester: Requester| requester.gets_step(|| ahead.passed_on(100 * MIB));
        let share = |requester: Requester| requester.gets_step(|| ahead.share(100 * MIB, 16, MIB));
        let passed: Vec<PassedOn> = (0..1000).map(|_| pass(many)).collect();
        assert_eq!(passed.iter().filter(|passed| passed._permit.is_some()).count(), 96);
        let held: Vec<Share> = std::iter::repeat_with(|| share(many)).take_while(|it| it.permit.is_some()).collect();
        assert_eq!(held.iter().map(Share::pieces).sum::<usize>(), 96);
        // Of the 64 MiB that are left.
        let passed_of_other: Vec<PassedOn> = (0..1000).map(|_| pass(other)).collect();
        assert_eq!(passed_of_other.iter().filter(|passed| passed._permit.is_some()).count(), 24);
        drop((passed, held, passed_of_other));
        let budget = ahead.budget.lock();
        assert!(budget.taken == 0 && budget.requesters.is_empty());
    }

    #[test]
    fn an_object_in_memory_is_held_while_there_is_room_for_it() {
        let ahead = ReadAhead::default();
        let object = Bytes::from(vec![7; MIB as usize]);
        let hold = || ahead.room(MIB).map(|room| room.hold(object.slice(1..3)));
        let held: Vec<Bytes> = std::iter::from_fn(hold).collect();
        assert_eq!((held.len(), &held[0][..]), (256, [7, 7].as_slice()), "a little of it holds all of it");
        assert!(ahead.room(PIECE_BYTES).is_some());
        drop(held);
        assert!(hold().is_some());
    }

    #[test]
    fn of_large_pages_only_as_many_are_read_at_once_as_there_is_room_for() {
        let ahead = ReadAhead::default();
        let first = ahead.share(u64::MAX, 64, 64 * MIB);
        assert_eq!((first.pieces(), ahead.share(MIB, 2, MIB).pieces()), (4, 1));
    }
}
