//! What is worth reclaiming, and what is worth keeping.

use forebay_env::sync::atomic::Ordering;

use crate::Access;
use crate::inner::Inner;
use crate::segment::Segment;
use crate::table::Entry;

/// A segment of which reclaim can free less than this part stays where it is. What is carried needs as many bytes as
/// before, or a few more: so every victim leaves more room than there was.
pub(super) const LEAST_FREED: u64 = 8;

/// Share of a victim that is carried forward at most, out of 4, so that every victim frees something. A segment of
/// which more is worth keeping stays where it is, with up to as much garbage as the rest.
const CARRIED_QUARTERS: u64 = 3;

/// Whether there is room to win, after what reclaim must carry. A rough look: deletes and annotations may stay or go.
pub(crate) fn is_worth_reclaiming(segment: &Segment) -> bool {
    let freed = segment.length().saturating_sub(segment.needed_bytes(false));
    freed >= segment.length() / LEAST_FREED
}

/// Bytes of a segment, pinned ones included, that are carried forward at most.
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
