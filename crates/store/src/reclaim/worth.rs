//! Which segments are worth reclaiming, and which objects are worth keeping.

use forebay_env::sync::atomic::Ordering;

use crate::Access;
use crate::inner::Inner;
use crate::segment::Segment;
use crate::table::Entry;

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
    pub(super) fn is_worth_keeping(&self, key: &[u8], entry: &Entry) -> bool {
        let access = Access { reads: entry.reads.load(Ordering::Relaxed), carried: entry.carried };
        let retention = self.retention.read().clone();
        retention.map_or(access.reads > 0, |retention| retention.keep(key, access))
    }
}
