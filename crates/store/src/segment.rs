//! One append-only file, and what is known about its contents.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use forebay_env::DiskFile;
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::ids::{DirectoryId, SegmentKey};
use crate::record::crc32c;
use crate::{Error, ErrorKind, Result};

/// "FBSG" as it stands in a file.
const MAGIC: u32 = u32::from_le_bytes(*b"FBSG");

/// Version of the format of segments. Readers refuse a newer one.
const VERSION: u32 = 1;

/// Bytes of the segment's header. Records begin after it.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 64;

/// What goes into a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum SegmentKind {
    /// Small objects, object records and commits; synced by group commits.
    Log,
    /// Extents of durable objects; synced before the commit that publishes them.
    Bulk,
    /// Read-cache fills; never synced.
    Fill,
}

impl SegmentKind {
    pub(crate) const ALL: [Self; 3] = [Self::Log, Self::Bulk, Self::Fill];

    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Bulk => "bulk",
            Self::Fill => "fill",
        }
    }
}

/// What a segment's header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) store: u64,
    pub(crate) key: SegmentKey,
    pub(crate) kind: SegmentKind,
    /// No record of the segment has a lower sequence.
    pub(crate) sequence: u64,
}

impl SegmentHeader {
    /// For a segment whose header is damaged: the file name gives the rest.
    pub(crate) fn unread(store: u64, key: SegmentKey, kind: SegmentKind) -> Self {
        Self { store, key, kind, sequence: 0 }
    }

    /// Whether the header was read from the file. The first sequence of a store is above 0.
    pub(crate) fn is_read(&self) -> bool {
        self.sequence > 0
    }

    pub(crate) fn name(&self) -> String {
        segment_name(self.key.number, self.kind)
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(SEGMENT_HEADER_BYTES as usize);
        bytes.put_u32_le(MAGIC);
        bytes.put_u32_le(VERSION);
        bytes.put_u64_le(self.store);
        bytes.put_u16_le(self.key.directory);
        bytes.put_u16_le(self.kind as u16);
        bytes.put_u32_le(self.key.number);
        bytes.put_u64_le(self.sequence);
        bytes.resize(SEGMENT_HEADER_BYTES as usize - 4, 0);
        let crc = crc32c(&bytes);
        bytes.put_u32_le(crc);
        bytes.freeze()
    }

    /// # Errors
    /// `Corrupt` when it is no header, `Invalid` when its version is newer than this code.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |problem: &str| Error::new(ErrorKind::Corrupt, format!("the header of a segment {problem}"));
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let short = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
        let end = SEGMENT_HEADER_BYTES as usize - 4;
        if bytes.len() < end + 4 || word(0) != MAGIC {
            return Err(corrupt("is missing"));
        }
        if crc32c(&bytes[..end]) != word(end) {
            return Err(corrupt("does not match its checksum"));
        }
        if word(4) > VERSION {
            let problem = format!(
                "a segment has the format version {}, and this release reads up to {VERSION}: start the newer release that wrote it",
                word(4)
            );
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        let kind = SegmentKind::ALL.into_iter().find(|kind| *kind as u16 == short(18));
        let key = SegmentKey { directory: short(16), number: word(20) };
        Ok(Self { store: long(8), key, kind: kind.ok_or_else(|| corrupt("has an unknown kind"))?, sequence: long(24) })
    }
}

pub(crate) fn segment_name(number: u32, kind: SegmentKind) -> String {
    format!("{number:08}.{}", kind.extension())
}

/// The number and the kind in a file name.
pub(crate) fn parse_segment_name(name: &str) -> Option<(u32, SegmentKind)> {
    let (number, extension) = name.split_once('.')?;
    let kind = SegmentKind::ALL.into_iter().find(|kind| kind.extension() == extension)?;
    let number: u32 = number.parse().ok()?;
    (segment_name(number, kind) == name).then_some((number, kind))
}

/// An open segment.
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    binding: u64,
    opened: Mutex<Opened>,
    /// Bytes handed out so far, header included.
    pub(crate) length: AtomicU64,
    pub(crate) sealed: AtomicBool,
    /// Reclaim could not read or remove it, and leaves it alone until the next start.
    pub(crate) is_stuck: AtomicBool,
    /// Bytes of records that live objects need.
    pub(crate) live_bytes: AtomicU64,
    /// Bytes of records that pinned objects need.
    pub(crate) pinned_bytes: AtomicU64,
    /// Bytes of the values whose last write is here: [`crate::table::Row::log_bytes`] of each.
    pub(crate) value_bytes: AtomicU64,
    /// Bytes of the deletes and annotations that are here. They count as long as there is an older segment.
    pub(crate) change_bytes: AtomicU64,
    /// The sequence in the header, or the lowest version of a value that reclaim carried here although a newer write
    /// comes before it.
    pub(crate) min_version: AtomicU64,
    /// Reclaim takes the lowest first. It is the sequence in the header, or the sequence when reclaim last left the
    /// segment in place because most of it was worth keeping.
    pub(crate) age: AtomicU64,
    /// How often reclaim may still put it off unchecked.
    renewals: AtomicU8,
    use_count: Mutex<UseCount>,
    /// Number of writes that have ended.
    writes: AtomicU64,
    synced: tokio::sync::Mutex<Synced>,
}

/// How many writes are known to be on stable storage, and whether a sync has failed.
#[derive(Default)]
struct Synced {
    writes: u64,
    failed: bool,
}

impl Synced {
    fn check(&self) -> std::io::Result<()> {
        if self.failed { Err(std::io::Error::other("an earlier sync of this file failed")) } else { Ok(()) }
    }
}

/// Whether a write failed because the disk is full. Such a failure changes nothing, and a retry may work.
pub(crate) fn lacks_room(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// The file of a segment, and the number of its readers.
struct Opened {
    /// `None` once it is closed.
    file: Option<Arc<OpenFile>>,
    readers: usize,
    is_deleted: bool,
}

/// An open file. A read in flight holds it, too.
struct OpenFile {
    file: Arc<dyn DiskFile>,
    /// Set when the segment was deleted: the room that the file takes until it is closed. Dropped after the file.
    room: OnceLock<HeldRoom>,
}

/// Room of a deleted segment. It counts as used until this is dropped.
struct HeldRoom {
    bytes: u64,
    used_bytes: Arc<AtomicU64>,
}

/// A segment that somebody reads. If the segment is deleted, its file stays open until nobody reads it, or its room is
/// needed.
pub(crate) struct ReadSegment(Arc<Segment>);

/// The writers that will still refer to the segment, and whether reclaim has chosen it.
#[derive(Default)]
struct UseCount {
    pins: usize,
    doomed: bool,
}

/// Keeps reclaim away from a segment.
pub(crate) struct SegmentPin {
    segment: Arc<Segment>,
}

impl Segment {
    pub(crate) fn new(
        header: SegmentHeader,
        directory: DirectoryId,
        file: Arc<dyn DiskFile>,
        length: u64,
        sealed: bool,
    ) -> Arc<Self> {
        let file = Arc::new(OpenFile { file, room: OnceLock::new() });
        Arc::new(Self {
            binding: binding(directory, header.key.number),
            min_version: AtomicU64::new(header.sequence),
            age: AtomicU64::new(header.sequence),
            renewals: AtomicU8::new(0),
            header,
            opened: Mutex::new(Opened { file: Some(file), readers: 0, is_deleted: false }),
            length: AtomicU64::new(length),
            sealed: AtomicBool::new(sealed),
            is_stuck: AtomicBool::new(false),
            live_bytes: AtomicU64::new(0),
            pinned_bytes: AtomicU64::new(0),
            value_bytes: AtomicU64::new(0),
            change_bytes: AtomicU64::new(0),
            use_count: Mutex::default(),
            // What an earlier process wrote may still be only in memory.
            writes: AtomicU64::new(1),
            synced: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn key(&self) -> SegmentKey {
        self.header.key
    }

    /// What binds records to this segment of this directory.
    pub(crate) fn binding(&self) -> u64 {
        self.binding
    }

    pub(crate) fn length(&self) -> u64 {
        self.length.load(Ordering::SeqCst)
    }

    /// Bytes that reclaim must carry of it, with or without deletes and annotations.
    pub(crate) fn needed_bytes(&self, with_changes: bool) -> u64 {
        let counted = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        let changes = if with_changes { counted(&self.change_bytes) } else { 0 };
        counted(&self.pinned_bytes) + counted(&self.value_bytes) + changes
    }

    /// Whether reclaim puts it off without another look at its objects. Counts that it does.
    pub(crate) fn renews_unchecked(&self) -> bool {
        self.renewals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    /// Reclaim may do so this many times.
    pub(crate) fn renew_unchecked(&self, times: u8) {
        self.renewals.store(times, Ordering::SeqCst);
    }

    /// Bytes that nobody can read any more, and that reclaim need not carry. Bytes that are not published yet count,
    /// but their segment is pinned.
    pub(crate) fn garbage(&self) -> u64 {
        let counted = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        let evictable = counted(&self.live_bytes).saturating_sub(counted(&self.pinned_bytes));
        self.length().saturating_sub(self.needed_bytes(true) + evictable)
    }

    /// Notes that reclaim has carried a write here although a newer one comes before it. A delete between the two
    /// counts as long as this segment exists.
    pub(crate) fn holds_stale(&self, version: u64) {
        self.min_version.fetch_min(version, Ordering::SeqCst);
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::SeqCst)
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::SeqCst)
    }

    /// `None` when reclaim has chosen the segment: what the caller wants will be elsewhere soon.
    pub(crate) fn pin(self: &Arc<Self>) -> Option<SegmentPin> {
        let mut uses = self.use_count.lock();
        if uses.doomed {
            return None;
        }
        uses.pins += 1;
        Some(SegmentPin { segment: Arc::clone(self) })
    }

    /// Chooses the segment for reclaim, unless it is pinned.
    pub(crate) fn doom(&self) -> bool {
        let mut uses = self.use_count.lock();
        let free = uses.pins == 0 && !uses.doomed;
        uses.doomed |= free;
        free
    }

    pub(crate) fn spare(&self) {
        self.use_count.lock().doomed = false;
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.use_count.lock().pins > 0
    }

    /// The file of a segment that is not deleted.
    pub(crate) fn file(&self) -> std::io::Result<Arc<dyn DiskFile>> {
        let opened = self.opened.lock();
        let file = opened.file.as_ref().map(|opened| Arc::clone(&opened.file));
        file.ok_or_else(|| std::io::Error::other("the segment was deleted"))
    }

    /// Cuts the file off at a length. That counts as a write: the next sync makes it durable.
    pub(crate) async fn cut(&self, length: u64) -> std::io::Result<()> {
        self.file()?.set_len(length).await?;
        self.writes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// # Errors
    /// `Gone` when the segment was deleted and its room was needed, `Failed` when the disk can't read.
    pub(crate) async fn read_at(&self, offset: u64, bytes: usize) -> Result<Bytes> {
        let file = self.opened.lock().file.clone();
        let gone = || Error::new(ErrorKind::Gone, format!("{} was deleted, and its room needed", self.header.name()));
        let read = file.ok_or_else(gone)?.file.read_at(offset, bytes).await;
        read.map_err(|error| Error::io(format!("could not read {}", self.header.name()), error))
    }

    /// Called after the segment was deleted. Closes its file as soon as nobody reads it. Until then it counts in
    /// `used_bytes`, which includes its length already. Returns whether somebody reads it.
    pub(crate) fn close_when_unread(&self, used_bytes: &Arc<AtomicU64>) -> bool {
        let mut opened = self.opened.lock();
        if let Some(file) = &opened.file {
            file.room.get_or_init(|| HeldRoom { bytes: self.length(), used_bytes: Arc::clone(used_bytes) });
        }
        opened.is_deleted = true;
        let is_read = opened.readers > 0;
        if !is_read {
            opened.file = None;
        }
        is_read
    }

    /// Closes the file of a deleted segment, even if somebody reads it.
    pub(crate) fn close(&self) {
        self.opened.lock().file = None;
    }

    /// Bytes that the file of a deleted segment takes.
    pub(crate) fn held_bytes(&self) -> u64 {
        let opened = self.opened.lock();
        opened.file.as_ref().and_then(|file| file.room.get()).map_or(0, |room| room.bytes)
    }

    /// Writes at a reserved offset.
    pub(crate) async fn write(&self, offset: u64, data: Vec<Bytes>) -> std::io::Result<()> {
        self.file()?.write_at(offset, data, false).await?;
        self.writes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Writes at a reserved offset. Returns when this write, and every write that ended before the call, is on stable
    /// storage. It takes one trip to the disk's threads instead of two. As with [`Self::sync`], nothing is synced after
    /// a failure.
    pub(crate) async fn write_synced(&self, offset: u64, data: Vec<Bytes>) -> std::io::Result<()> {
        let mut synced = self.synced.lock().await;
        synced.check()?;
        let ended = self.writes.load(Ordering::SeqCst);
        let result = self.file()?.write_at(offset, data, true).await;
        synced.failed = result.as_ref().is_err_and(|error| !lacks_room(error));
        result?;
        let alone = self.writes.fetch_add(1, Ordering::SeqCst) == ended;
        // Nobody knows whether the sync included writes that ended meanwhile.
        synced.writes = if alone { ended + 1 } else { ended };
        Ok(())
    }

    /// Returns when every write that ended before the call is on stable storage. Concurrent callers share one sync.
    /// After a failed sync, all later ones fail: the data that it should have made durable may be gone, even if the
    /// next sync would succeed.
    pub(crate) async fn sync(&self) -> std::io::Result<()> {
        let wanted = self.writes.load(Ordering::SeqCst);
        let mut synced = self.synced.lock().await;
        synced.check()?;
        if synced.writes < wanted {
            let ended = self.writes.load(Ordering::SeqCst);
            let result = self.file()?.sync_data().await;
            synced.failed = result.is_err();
            result?;
            synced.writes = ended;
        }
        Ok(())
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        self.used_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl ReadSegment {
    pub(crate) fn new(segment: Arc<Segment>) -> Self {
        segment.opened.lock().readers += 1;
        Self(segment)
    }
}

impl Deref for ReadSegment {
    type Target = Arc<Segment>;

    fn deref(&self) -> &Arc<Segment> {
        &self.0
    }
}

impl Drop for ReadSegment {
    fn drop(&mut self) {
        let mut opened = self.0.opened.lock();
        opened.readers -= 1;
        if opened.readers == 0 && opened.is_deleted {
            opened.file = None;
        }
    }
}

fn binding(directory: DirectoryId, number: u32) -> u64 {
    directory.0 ^ u64::from(number).rotate_left(16)
}

impl Drop for SegmentPin {
    fn drop(&mut self) {
        self.segment.use_count.lock().pins -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        let key = SegmentKey { directory: 2, number: 77 };
        SegmentHeader { store: 0x1234_5678_9abc_def0, key, kind: SegmentKind::Bulk, sequence: 99 }
    }

    #[test]
    fn headers_are_read_back_and_damage_is_seen() {
        let bytes = header().encode();
        assert_eq!(bytes.len() as u64, SEGMENT_HEADER_BYTES);
        assert_eq!(SegmentHeader::decode(&bytes).unwrap(), header());
        crate::record::tests::check_golden("segment.header", &bytes);
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert_eq!(SegmentHeader::decode(&damaged).unwrap_err().kind, ErrorKind::Corrupt, "byte {at}");
        }
        for length in 0..bytes.len() {
            assert_eq!(SegmentHeader::decode(&bytes[..length]).unwrap_err().kind, ErrorKind::Corrupt, "{length} bytes");
        }
        let mut newer = bytes.to_vec();
        newer[4] += 1;
        let end = newer.len() - 4;
        let crc = crc32c(&newer[..end]);
        newer[end..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&newer).unwrap_err().kind, ErrorKind::Invalid);
    }

    #[test]
    fn no_two_segments_are_bound_alike() {
        let stores = [0, 0x1234_5678, u64::MAX - 5];
        let of_store = |store: u64| [0, 1, 2, 77, u16::MAX].map(|number| DirectoryId::before_lists(store, number));
        let directories = stores.into_iter().flat_map(of_store).chain([DirectoryId(0x0123_4567_89ab_cdef)]);
        let numbers = [0, 1, 2, 3, 77, u32::MAX];
        let bindings = directories.flat_map(|id| numbers.map(|number| binding(id, number)));
        assert_eq!(bindings.collect::<std::collections::BTreeSet<_>>().len(), (3 * 5 + 1) * 6);
    }

    /// Records from before there were ids are still bound by the store, the directory's number and the segment's
    /// number.
    #[test]
    fn directories_from_before_lists_bind_as_they_did() {
        let (store, directory, number) = (0x1234_5678_9abc_def0, 2, 77);
        let before = store ^ (u64::from(directory) << 32 | u64::from(number)).rotate_left(16);
        assert_eq!(binding(DirectoryId::before_lists(store, directory), number), before);
    }

    #[test]
    fn names_tell_number_and_kind() {
        assert_eq!(parse_segment_name(&header().name()), Some((77, SegmentKind::Bulk)));
        for other in ["77.bulk", "00000077.tmp", "snapshot", "x.log", "00000077"] {
            assert_eq!(parse_segment_name(other), None, "{other}");
        }
    }
}
