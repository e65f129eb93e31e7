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
            let first = self.bytes(offset, HEADER_BYTES).await?;
            // Before anything of it is read or verified: the bytes of an object can hold any number of heads, each of
            // which says that it is long.
            if Head::may_begin(&first, self.segment.binding()) {
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use async_trait::async_trait;
    use forebay_env::DiskFile;
    use forebay_env::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::ids::{DirectoryId, SegmentKey};
    use crate::record::commit::CommitBody;
    use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentKind};

    /// Counts the bytes that are read of it.
    struct CountedFile {
        bytes: Bytes,
        read_bytes: AtomicU64,
    }

    #[async_trait]
    impl DiskFile for CountedFile {
        async fn write_at(&self, _offset: u64, _data: Vec<Bytes>, _sync: bool) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        async fn read_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
            let start = self.bytes.len().min(offset as usize);
            let read = self.bytes.slice(start..self.bytes.len().min(start + length));
            self.read_bytes.fetch_add(read.len() as u64, Ordering::Relaxed);
            Ok(read)
        }

        async fn sync_data(&self) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        async fn set_len(&self, _length: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        async fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }
    }

    fn log_of(bytes: Vec<u8>) -> (Arc<Segment>, Arc<CountedFile>) {
        let key = SegmentKey { directory: 0, number: 1 };
        let header = SegmentHeader { store: 1, key, kind: SegmentKind::Log, sequence: 1 };
        let length = bytes.len() as u64;
        let counted = Arc::new(CountedFile { bytes: bytes.into(), read_bytes: AtomicU64::new(0) });
        let file: Arc<dyn DiskFile> = counted.clone();
        (Segment::new(header, DirectoryId(0x1234_5678_9abc_def0), file, length, true), counted)
    }

    /// Each head says that it is longer than what is read at once, and is bound to another segment.
    #[tokio::test]
    async fn heads_in_the_bytes_of_an_object_are_not_read_one_by_one() {
        let (empty, _) = log_of(Vec::new());
        let mut head = b"FBR1\x03\x01\0\0".to_vec();
        head.extend_from_slice(&(5_u32 << 20).to_le_bytes());
        head.resize(24, 0);
        head.extend_from_slice(&(empty.binding() + 1).to_le_bytes());
        head.resize(64 << 10, 0);
        let mut bytes = vec![0; SEGMENT_HEADER_BYTES as usize];
        (0..128).for_each(|_| bytes.extend_from_slice(&head));
        let sound_at = bytes.len() as u64;
        let sound = CommitBody::default().draft().encode(empty.binding(), 7, 0).concat();
        bytes.extend_from_slice(&sound);
        let length = bytes.len() as u64;
        let (log, file) = log_of(bytes);
        let mut scan = Scan::new(&log, SEGMENT_HEADER_BYTES).await.unwrap();
        assert!(scan.next().await.unwrap().is_none());
        let found = scan.resume().await.unwrap().unwrap();
        assert_eq!((found.offset, found.head.header.sequence), (sound_at, 7));
        assert!(scan.resume().await.unwrap().is_none());
        let read = file.read_bytes.load(Ordering::Relaxed);
        assert!(read <= 2 * length, "{read} bytes are read of {length}");
    }
}
