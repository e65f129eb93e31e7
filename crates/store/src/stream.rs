//! Segments that many writers fill at once: for extents of large objects, and for read-cache fills.

use std::sync::Arc;

use forebay_env::sync::atomic::{AtomicU64, Ordering};

use crate::Result;
use crate::directory::Directory;
use crate::fills::{Fills, UnappliedFill};
use crate::record::Draft;
use crate::record::location::{Location, location};
use crate::segment::{Segment, SegmentKind, SegmentPin};

/// The open segment of one kind in one directory.
pub(crate) struct Stream {
    directory: Arc<Directory>,
    kind: SegmentKind,
    sequence: Arc<AtomicU64>,
    fills: Arc<Fills>,
    open: tokio::sync::Mutex<Option<Arc<Segment>>>,
}

/// A record that is written, and the pin that keeps its segment.
pub(crate) struct Streamed {
    pub(crate) location: Location,
    pub(crate) segment: Arc<Segment>,
    pub(crate) pin: SegmentPin,
    /// Must be dropped when the tables show the record.
    pub(crate) unapplied: Option<UnappliedFill>,
}

impl Stream {
    pub(crate) fn new(
        directory: Arc<Directory>,
        kind: SegmentKind,
        sequence: Arc<AtomicU64>,
        fills: Arc<Fills>,
    ) -> Self {
        Self { directory, kind, sequence, fills, open: tokio::sync::Mutex::new(None) }
    }

    /// Writes one record. Writers wait for each other only while they reserve their places.
    pub(crate) async fn append(&self, draft: Draft) -> Result<Streamed> {
        self.append_begun(draft, self.begin()).await
    }

    /// Takes the sequence of a fill. A caller that gives up waiting may forget the key, and a replay must find that
    /// after the fill.
    pub(crate) fn begin(&self) -> Option<UnappliedFill> {
        (self.kind == SegmentKind::Fill).then(|| self.fills.begin(&self.sequence))
    }

    pub(crate) async fn append_begun(&self, draft: Draft, unapplied: Option<UnappliedFill>) -> Result<Streamed> {
        draft.check()?;
        self.directory.check()?;
        let _request = self.directory.unanswered.begin();
        let bytes = draft.total_bytes() as u64;
        let (segment, offset, pin) = self.reserve(bytes).await?;
        let next = || self.sequence.fetch_add(1, Ordering::SeqCst);
        let sequence = unapplied.as_ref().map_or_else(next, |fill| fill.sequence);
        let buffers = draft.encode(segment.binding(), sequence, 0);
        if let Err(error) = segment.write(offset, buffers).await {
            return Err(self.directory.refused("could not write an extent", error));
        }
        Ok(Streamed { location: location(segment.key(), offset, &draft), segment, pin, unapplied })
    }

    /// Seals the open segment, so that a snapshot can cover all of it.
    pub(crate) async fn seal(&self) {
        if let Some(segment) = self.open.lock().await.take() {
            segment.sealed.store(true, Ordering::SeqCst);
        }
    }

    async fn reserve(&self, bytes: u64) -> Result<(Arc<Segment>, u64, SegmentPin)> {
        let mut open = self.open.lock().await;
        if open.as_ref().is_some_and(|segment| segment.length() + bytes > self.directory.segment_bytes()) {
            let full = open.take().expect("it has just been looked at");
            full.sealed.store(true, Ordering::SeqCst);
        }
        let segment = match open.as_ref() {
            Some(segment) => Arc::clone(segment),
            None => {
                // Writers have already taken their sequences.
                let sequence = match self.kind {
                    SegmentKind::Fill => self.fills.lowest(&self.sequence),
                    SegmentKind::Bulk | SegmentKind::Log => self.sequence.load(Ordering::SeqCst),
                };
                let segment = self.directory.create_segment(self.kind, sequence).await?;
                Arc::clone(open.insert(segment))
            }
        };
        let pin = segment.pin().expect("reclaim chooses sealed segments only");
        let offset = segment.length.fetch_add(bytes, Ordering::SeqCst);
        self.directory.grew(bytes);
        Ok((segment, offset, pin))
    }
}
