//! Reads the records of a segment in sequence.

use bytes::Bytes;

use super::{ALIGNMENT, HEADER_BYTES, Head, Kind};
use crate::segment::Segment;
use crate::{Error, ErrorKind, Result};

/// Most bytes that are read ahead at once.
const WINDOW_BYTES: usize = 4 << 20;

/// A record that a scan has found.
pub(crate) struct Scanned {
    pub(crate) head: Head,
    pub(crate) offset: u64,
}

/// Walks through a segment.
pub(crate) struct Scan<'a> {
    segment: &'a Segment,
    offset: u64,
    end: u64,
    window: Bytes,
    window_start: u64,
}

impl<'a> Scan<'a> {
    /// # Errors
    /// `Failed` when the disk can't tell the file's length.
    pub(crate) async fn new(segment: &'a Segment, offset: u64) -> Result<Self> {
        let length = async { segment.file()?.len().await }.await;
        let end = length.map_err(|error| Error::io(format!("could not measure {}", segment.header.name()), error))?;
        Ok(Self { segment, offset, end, window: Bytes::new(), window_start: 0 })
    }

    /// Where the next record would begin.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    async fn bytes(&mut self, offset: u64, length: usize) -> Result<Bytes> {
        let inside = |window_start: u64, window: &Bytes| {
            offset >= window_start && offset + length as u64 <= window_start + window.len() as u64
        };
        // A record that would end beyond the file does not exist, whatever length a damaged head claims.
        if offset + length as u64 > self.end {
            return Ok(Bytes::new());
        }
        if !inside(self.window_start, &self.window) {
            // A buffer is zeroed before it is read into, and most logs of short-lived processes are far smaller than a
            // window.
            let left = usize::try_from(self.end - offset).unwrap_or(usize::MAX);
            self.window = self.segment.read_at(offset, length.max(left.min(WINDOW_BYTES))).await?;
            self.window_start = offset;
        }
        let from = (offset - self.window_start) as usize;
        Ok(self.window.slice(from..(from + length).min(self.window.len())))
    }

    /// The record at the current offset, verified. `None` when no record begins there, or it is damaged.
    ///
    /// # Errors
    /// `Invalid` for a newer format, `Failed` when the disk can't read.
    pub(crate) async fn next(&mut self) -> Result<Option<Scanned>> {
        match self.record_at(self.offset).await {
            Ok(found) => {
                if let Some(scanned) = &found {
                    self.offset += scanned.head.header.total_bytes();
                }
                Ok(found)
            }
            Err(error) if error.kind == ErrorKind::Corrupt => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn record_at(&mut self, offset: u64) -> Result<Option<Scanned>> {
        let fixed = self.bytes(offset, HEADER_BYTES).await?;
        if fixed.len() < HEADER_BYTES {
            return Ok(None);
        }
        let head = Head::decode(&self.bytes(offset, Head::bytes_needed(&fixed)?).await?)?;
        if head.header.segment != self.segment.binding() {
            return Ok(None);
        }
        let (start, length) = (offset + head.header.head_bytes as u64, head.header.payload_bytes);
        let payload = self.bytes(start, length).await?;
        if payload.len() < length {
            return Ok(None);
        }
        head.verify(0, &payload)?;
        Ok(Some(Scanned { head, offset }))
    }

    /// Continues at the next sound record after damage. `None` when there is none.
    pub(crate) async fn resume(&mut self) -> Result<Option<Scanned>> {
        let mut offset = self.offset + ALIGNMENT as u64;
        while offset + HEADER_BYTES as u64 <= self.end {
            let magic = self.bytes(offset, 4).await?;
            if magic.as_ref() == super::MAGIC.to_le_bytes() {
                match self.record_at(offset).await {
                    Ok(Some(scanned)) => {
                        self.offset = offset + scanned.head.header.total_bytes();
                        return Ok(Some(scanned));
                    }
                    Ok(None) => {}
                    Err(error) if error.kind == ErrorKind::Corrupt => {}
                    Err(error) => return Err(error),
                }
            }
            offset += ALIGNMENT as u64;
        }
        Ok(None)
    }

    /// Whether a record after the damage at the current offset says that the damaged bytes were durable when it was
    /// written. If so, they were acknowledged, and no crash explains their loss.
    pub(crate) async fn was_durable_here(&mut self) -> Result<bool> {
        let damage = self.offset;
        while let Some(scanned) = self.resume().await? {
            if scanned.head.header.durable_before > damage {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Scanned {
    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.head.header.kind == kind
    }
}
