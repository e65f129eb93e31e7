//! Keeps the segments that an unpublished object refers to.

use std::sync::Arc;

use crate::segment::{Segment, SegmentPin};

/// The segments that an unpublished object refers to, and their pins.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) pins: Vec<SegmentPin>,
}

impl Kept {
    pub(crate) fn keep(&mut self, segment: Arc<Segment>, pin: SegmentPin) {
        if self.segments.iter().all(|kept| kept.key() != segment.key()) {
            self.segments.push(segment);
            self.pins.push(pin);
        }
    }
}
