//! Which segments are worth reclaiming, and which objects are worth keeping.

use bytes::Bytes;
use forebay_env::sync::atomic::Ordering;
use forebay_types::Generation;

use crate::inner::Inner;
use crate::segment::Segment;
use crate::table::Entry;
use crate::{Access, Leaves};

/// Objects that are looked at without yielding: a millisecond or less.
pub(super) const LOOKED_AT_ONCE: usize = 16_384;

/// Reclaim leaves a segment alone if it can free less than one part in this many of it. Carried data needs as many
/// bytes as before, or a few more, so every victim leaves more room than there was.
pub(super) const LEAST_FREED: u64 = 8;

/// Most of a victim that is carried forward, in quarters, so that every victim frees something. A segment of which more
/// is worth keeping stays where it is, and up to a quarter of it is garbage.
const CARRIED_QUARTERS: u64 = 3;

/// Whether reclaim would gain room, after what it must carry. A rough check: deletes and annotations may stay or go.
pub(crate) fn is_worth_reclaiming(segment: &Segment) -> bool {
    let freed = segment.length().saturating_sub(segment.needed_bytes(false));
    freed >= segment.length() / LEAST_FREED
}

/// Most bytes of a segment that are carried forward, pinned ones included.
pub(crate) fn carried_max(segment: &Segment) -> u64 {
    segment.length() / 4 * CARRIED_QUARTERS
}

impl Inner {
    pub(super) fn leaves(&self, key: &[u8], entry: &Entry) -> Leaves {
        let access = Access { reads: entry.reads.load(Ordering::Relaxed), carried: entry.carried };
        match self.retention.read().clone() {
            Some(retention) => retention.leaves(key, access),
            None if access.reads > 0 => Leaves::Later,
            None => Leaves::First,
        }
    }

    /// What of a segment must be carried, or is worth it. `members` are the objects that need it: those that stay or
    /// leave last come first now, because there may not be room for all that is worth keeping.
    pub(super) async fn worth(&self, segment: &Segment, members: &mut Vec<(Bytes, Generation)>) -> Worth {
        let mut worth = Worth { needed: segment.needed_bytes(true), ..Worth::default() };
        let (mut first, mut others) = (Vec::with_capacity(members.len()), Vec::new());
        for (number, member) in members.drain(..).enumerate() {
            if number % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let (key, generation) = &member;
            let entry = self.objects.get(key).filter(|entry| entry.generation == *generation);
            let leaves = entry.map_or(Leaves::First, |entry| {
                if entry.pinned {
                    return Leaves::Last;
                }
                let (leaves, bytes) = (self.leaves(key, &entry), entry.bytes_in(segment.key()));
                match leaves {
                    Leaves::First => {}
                    Leaves::Later => worth.later += bytes,
                    Leaves::Last => worth.last += bytes,
                }
                leaves
            });
            if leaves == Leaves::Last { &mut first } else { &mut others }.push(member);
        }
        first.append(&mut others);
        *members = first;
        worth
    }
}

/// What of a segment stays at all, or should: bytes.
#[derive(Default)]
pub(super) struct Worth {
    /// Of what must be carried.
    needed: u64,
    /// Of clean objects, by when they leave.
    later: u64,
    last: u64,
}

impl Worth {
    /// Whether more should stay than these bytes. If so, whether that holds without what leaves later, too.
    pub(super) fn exceeds(&self, most: u64) -> Option<Leaves> {
        if self.last > 0 && self.needed + self.last > most {
            return Some(Leaves::Last);
        }
        (self.needed + self.last + self.later > most).then_some(Leaves::Later)
    }
}
