//! One directory of the store: its identity, its segments, and whether it still takes writes.

pub(crate) mod log_list;
pub(crate) mod unanswered;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use forebay_env::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use forebay_env::sync::{Mutex, RwLock};
use forebay_env::{Clock, Disk};

use crate::ids::{DirectoryId, SegmentKey};
use crate::record::crc32c;
use crate::segment::{ReadSegment, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, SegmentKind, lacks_room};
use crate::{DirectoryHealth, Error, ErrorKind, Result, Shortage, small_file};
use log_list::LogList;
use unanswered::Unanswered;

/// The file that says which directory of which store this is.
pub(crate) const IDENTITY_FILE: &str = "identity";

/// The way out when a directory can't be repaired. Its id is not known then.
pub(crate) const GIVE_UP: &str = "give up what only this directory holds: put an empty one in its place, and start with --forget-directory and the id that the refused start names, if the store has other directories";

/// The highest number of a segment. A directory numbers its segments in sequence, and needs decades to get there.
pub(crate) const SEGMENT_NUMBER_MAX: u32 = u32::MAX - (1 << 16);

/// How many segments a file system should have room for, so that reclaim has a choice. The settings must leave room for
/// as many.
pub(crate) const SEGMENTS_MIN: u64 = 8;

/// Segments that only commits and reclaim may use. So in a full store, deletes still work, uploads can still be
/// recorded, and reclaim has somewhere to write.
const SEGMENTS_RESERVED: u64 = 2;

/// Share of a directory that deleted segments may take while they are still read: one part in this many, and at least
/// one segment.
const HELD_PART: u64 = 8;

/// Others are blamed for a full file system when they have more than one part in this many of it. What a file system
/// keeps for itself and for root is less: 5 % and its tables on ext4.
const OTHERS_PART: u64 = 10;

/// A directory is short of room when it has less than one part in this many of a segment beside the reserve: writes of
/// common sizes are refused then.
const SHORT_PART: u64 = 4;

/// Version of a directory's layout.
const IDENTITY_VERSION: u32 = 2;

/// Identifies a directory of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) store: u64,
    /// A short form of the id. Never reused in the life of a store.
    pub(crate) number: u16,
    pub(crate) id: DirectoryId,
}

/// What the identity file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdentityFile {
    /// Version 1: no directory knew of the others.
    BeforeLists {
        store: u64,
        number: u16,
    },
    Listed {
        id: DirectoryId,
        number: u16,
    },
}

/// Limits of the length of a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentBytes {
    /// Two extents fit.
    pub(crate) least: u64,
    pub(crate) most: u64,
}

pub(crate) struct Directory {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) identity: Identity,
    pub(crate) capacity_bytes: u64,
    lengths: SegmentBytes,
    pub(crate) segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    next_segment: AtomicU32,
    pub(crate) log_list: LogList,
    /// Why the directory takes no more writes.
    failed: Mutex<Option<String>>,
    /// Bytes of all segments.
    used_bytes: Arc<AtomicU64>,
    /// Deleted segments that are still read, in the order of deletion. They count as used.
    held: Mutex<VecDeque<Weak<Segment>>>,
    /// What segments may take as far as the file system has room. It may be full before the configured capacity is.
    possible_bytes: AtomicU64,
    /// Size of the file system, whatever uses it.
    file_system_bytes: AtomicU64,
    /// Why the file system is full, as the last look has found.
    shortage: Mutex<Option<Shortage>>,
    /// Bytes of the snapshot here, if there is one.
    pub(crate) snapshot_bytes: AtomicU64,
    /// Estimated bytes of the next snapshot.
    pub(crate) next_snapshot_bytes: AtomicU64,
    /// Free bytes that are promised to writers.
    pub(crate) promised_bytes: Mutex<u64>,
    /// Writes and syncs that the disk has not answered yet.
    pub(crate) unanswered: Unanswered,
}

impl Identity {
    fn encode(self) -> Bytes {
        let mut bytes = Vec::new();
        bytes.extend(b"FBID");
        bytes.extend(IDENTITY_VERSION.to_le_bytes());
        bytes.extend(self.id.0.to_le_bytes());
        bytes.extend(u32::from(self.number).to_le_bytes());
        bytes.extend(crc32c(&bytes).to_le_bytes());
        bytes.into()
    }

    pub(crate) async fn write(self, disk: &dyn Disk) -> Result<()> {
        let written = small_file::replace(disk, IDENTITY_FILE, self.encode()).await;
        written.map_err(|error| Error::io(format!("could not begin {}", disk.label()), error))
    }
}

impl IdentityFile {
    fn decode(bytes: &[u8], label: &str) -> Result<Self> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        // Later versions keep this length, and the version and the checksum at these offsets.
        if bytes.len() != 24 || &bytes[..4] != b"FBID" || crc32c(&bytes[..20]) != word(20) {
            let problem = format!(
                "{label}: the identity of the directory is damaged. Put a sound file `{IDENTITY_FILE}` back, or {GIVE_UP}"
            );
            return Err(Error::new(ErrorKind::Corrupt, problem));
        }
        let long = u64::from(word(8)) | u64::from(word(12)) << 32;
        let number = word(16) as u16;
        match word(4) {
            1 => Ok(Self::BeforeLists { store: long, number }),
            IDENTITY_VERSION => Ok(Self::Listed { id: DirectoryId(long), number }),
            newer => {
                let problem = format!(
                    "{label} has the layout version {newer}, and this release reads up to {IDENTITY_VERSION}: start the newer release that wrote it"
                );
                Err(Error::new(ErrorKind::Invalid, problem))
            }
        }
    }

    /// The identity of a directory, if it has one.
    pub(crate) async fn read(disk: &dyn Disk) -> Result<Option<Self>> {
        let label = disk.label();
        let names = disk.list().await.map_err(|error| Error::io(format!("could not list {label}"), error))?;
        if !names.iter().any(|name| name == IDENTITY_FILE) {
            return match names.iter().find(|name| crate::segment::parse_segment_name(name).is_some()) {
                Some(_) => {
                    let problem = format!(
                        "{label}: segments without an identity: the file `{IDENTITY_FILE}` is missing. Put it back, or {GIVE_UP}"
                    );
                    Err(Error::new(ErrorKind::Corrupt, problem))
                }
                None => Ok(None),
            };
        }
        let read = async { disk.open(IDENTITY_FILE).await?.read_at(0, 64).await };
        let bytes = read.await.map_err(|error| Error::io(format!("could not read the identity of {label}"), error))?;
        Self::decode(&bytes, &label).map(Some)
    }
}

impl Directory {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        identity: Identity,
        capacity_bytes: u64,
        lengths: SegmentBytes,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            disk,
            identity,
            capacity_bytes,
            lengths,
            segments: RwLock::default(),
            next_segment: AtomicU32::new(1),
            log_list: LogList::default(),
            failed: Mutex::default(),
            used_bytes: Arc::default(),
            held: Mutex::default(),
            possible_bytes: AtomicU64::new(u64::MAX),
            file_system_bytes: AtomicU64::new(u64::MAX),
            shortage: Mutex::default(),
            snapshot_bytes: AtomicU64::new(0),
            next_snapshot_bytes: AtomicU64::new(0),
            promised_bytes: Mutex::default(),
            unanswered: Unanswered::new(clock),
        }
    }

    pub(crate) fn failed(&self) -> Option<String> {
        self.failed.lock().clone()
    }

    /// From now on, the directory takes no more writes.
    pub(crate) fn fail(&self, reason: &str) {
        let mut failed = self.failed.lock();
        if failed.is_none() {
            tracing::error!(directory = self.disk.label(), reason, "a directory takes no more writes");
            *failed = Some(reason.to_owned());
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &*self.failed.lock() {
            Some(reason) => {
                Err(Error::new(ErrorKind::Failed, format!("{} takes no more writes: {reason}", self.disk.label())))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::SeqCst)
    }

    /// The most that segments may take. It leaves room for the last snapshot, and for the next one, which is written
    /// before the last one is deleted.
    pub(crate) fn segment_bytes_max(&self) -> u64 {
        let snapshots = [&self.snapshot_bytes, &self.next_snapshot_bytes].map(|bytes| bytes.load(Ordering::SeqCst));
        self.capacity_bytes.saturating_sub(snapshots.iter().sum())
    }

    /// Bytes of the configured capacity that are not used.
    pub(crate) fn unused_bytes(&self) -> u64 {
        self.segment_bytes_max().saturating_sub(self.used_bytes())
    }

    /// Bytes that can be written. The file system may allow less than the settings.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_without(0)
    }

    /// The same, once `gone` bytes of segments are deleted.
    pub(crate) fn free_without(&self, gone: u64) -> u64 {
        let next_snapshot = self.next_snapshot_bytes.load(Ordering::SeqCst);
        let possible = self.possible_bytes.load(Ordering::SeqCst).saturating_add(gone).saturating_sub(next_snapshot);
        let wanted = self.segment_bytes_max().saturating_add(gone);
        wanted.min(possible).saturating_sub(self.used_bytes())
    }

    /// The most that writers could get if the file system held nothing else.
    pub(crate) fn room_when_empty(&self) -> u64 {
        let bytes = self.segment_bytes_max().min(self.file_system_bytes.load(Ordering::SeqCst));
        bytes.saturating_sub(SEGMENTS_RESERVED * self.segment_bytes_of(bytes))
    }

    /// The length at which a segment is sealed. On a file system that is small, or full of other data, segments are
    /// shorter than the settings say, because room comes back one segment at a time.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes_of(self.possible_bytes.load(Ordering::SeqCst))
    }

    fn segment_bytes_of(&self, possible: u64) -> u64 {
        (possible / SEGMENTS_MIN).clamp(self.lengths.least, self.lengths.most)
    }

    /// Bytes that writers must leave free: see [`SEGMENTS_RESERVED`].
    pub(crate) fn reserve_bytes(&self) -> u64 {
        SEGMENTS_RESERVED * self.segment_bytes()
    }

    /// Bytes that the file system has room for.
    pub(crate) fn writable_bytes(&self) -> u64 {
        self.possible_bytes.load(Ordering::SeqCst).saturating_sub(self.used_bytes())
    }

    /// Bytes that the settings leave and the file system does not have.
    pub(crate) fn unavailable_bytes(&self) -> u64 {
        self.unused_bytes().saturating_sub(self.free_bytes())
    }

    /// What keeps the directory from its configured capacity. `None` when the file system has all of it but a part of a
    /// segment: then the directory is as full as it may get.
    pub(crate) fn limited_by(&self) -> Option<Shortage> {
        let others_fill = self.others_bytes() > self.file_system_bytes.load(Ordering::SeqCst) / OTHERS_PART;
        let by = if others_fill { Shortage::Others } else { Shortage::SmallDisk };
        (self.unavailable_bytes() >= self.segment_bytes()).then_some(by)
    }

    /// Bytes of the file system that others have.
    fn others_bytes(&self) -> u64 {
        let [total, possible, snapshot] = [&self.file_system_bytes, &self.possible_bytes, &self.snapshot_bytes]
            .map(|bytes| bytes.load(Ordering::SeqCst));
        total.saturating_sub(possible.saturating_add(snapshot))
    }

    /// Notes whether the file system lacks the room that the next write needs, even if reclaim frees
    /// `reclaimable_bytes`. A shortage that was noted ends only when there is room for one more segment, so that it
    /// does not flap with each write.
    pub(crate) fn note_shortage(&self, reclaimable_bytes: u64) {
        let mut shortage = self.shortage.lock();
        // Writers leave the reserve free: what they are refused for is more than that.
        let lead = if shortage.is_some() { self.segment_bytes() } else { self.segment_bytes() / SHORT_PART };
        let is_short = self.free_without(reclaimable_bytes) < self.reserve_bytes() + lead;
        *shortage = self.limited_by().filter(|_| is_short);
    }

    pub(crate) fn health(&self) -> DirectoryHealth {
        DirectoryHealth {
            label: self.disk.label(),
            failed: self.failed(),
            shortage: *self.shortage.lock(),
            file_system_free_bytes: self.writable_bytes(),
            unused_bytes: self.unused_bytes(),
            file_system_bytes: self.file_system_bytes.load(Ordering::SeqCst),
            others_bytes: self.others_bytes(),
            capacity_bytes: self.capacity_bytes,
        }
    }

    /// Bytes that can be written and are not promised to a writer.
    pub(crate) fn unpromised_bytes(&self) -> u64 {
        let promised = *self.promised_bytes.lock();
        self.free_bytes().saturating_sub(promised)
    }

    /// Asks the file system how much room is left. Segments that grow afterwards are counted without asking again.
    pub(crate) async fn look_at_space(&self) {
        // Read before asking: bytes that are written meanwhile may count twice, but are never left out.
        let used = self.used_bytes();
        match self.disk.space().await {
            Ok(space) => {
                self.possible_bytes.store(used.saturating_add(space.free), Ordering::SeqCst);
                self.file_system_bytes.store(space.total, Ordering::SeqCst);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.fail(&error.to_string()),
            Err(error) => tracing::warn!(directory = self.disk.label(), %error, "could not see how full the disk is"),
        }
    }

    /// Bytes of deletes and annotations in all segments.
    pub(crate) fn change_bytes(&self) -> u64 {
        self.segments.read().values().map(|segment| segment.change_bytes.load(Ordering::SeqCst)).sum()
    }

    pub(crate) fn grew(&self, bytes: u64) {
        self.used_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Every segment that is created from now on has this number or a higher one.
    pub(crate) fn next_number(&self) -> u32 {
        self.next_segment.load(Ordering::SeqCst)
    }

    pub(crate) fn segment(&self, number: u32) -> Option<Arc<Segment>> {
        self.segments.read().get(&number).cloned()
    }

    /// A segment for a reader. If it is deleted from now on, its file stays open until the reader is done, or its room
    /// is needed.
    pub(crate) fn segment_to_read(&self, number: u32) -> Option<ReadSegment> {
        self.segments.read().get(&number).cloned().map(ReadSegment::new)
    }

    /// Takes over a segment that was found at the start.
    pub(crate) fn adopt(&self, segment: Arc<Segment>) {
        let number = segment.key().number;
        self.next_segment.fetch_max(number + 1, Ordering::SeqCst);
        self.grew(segment.length());
        self.segments.write().insert(number, segment);
    }

    /// Never again gives out a number up to this one.
    pub(crate) fn give_numbers_above(&self, last: u32) {
        self.next_segment.fetch_max(last.saturating_add(1), Ordering::SeqCst);
    }

    /// Creates a segment. File and name are on stable storage when this returns.
    ///
    /// # Errors
    /// `Busy` changes nothing; `Full` and `Failed` as in [`Self::refused`].
    pub(crate) async fn create_segment(&self, kind: SegmentKind, sequence: u64) -> Result<Arc<Segment>> {
        self.check()?;
        let number = self.next_segment.fetch_add(1, Ordering::SeqCst);
        if number > SEGMENT_NUMBER_MAX {
            self.fail("it has used up the numbers of segments: remove it from the store and add an empty one");
            return self.check().map(|()| unreachable!("it has failed"));
        }
        let key = SegmentKey { directory: self.identity.number, number };
        let header = SegmentHeader { store: self.identity.store, key, kind, sequence };
        let doing = "could not create a segment";
        let busy =
            |error| Error { kind: ErrorKind::Busy, ..Error::io(format!("{doing} in {}", self.disk.label()), error) };
        let created = match self.disk.create(&header.name()).await {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => return Err(busy(error)),
            created => created,
        };
        let begun = async {
            let file = created?;
            file.write_at(0, vec![header.encode()], true).await?;
            self.disk.sync_directory().await?;
            Ok(file)
        };
        let file = match begun.await {
            Ok(file) => file,
            Err(error) => {
                // Nothing in it was acknowledged. If it can't be removed, the next start finds an empty segment.
                let _ = self.disk.remove(&header.name()).await;
                return Err(self.refused(doing, error));
            }
        };
        if kind == SegmentKind::Log
            && let Err(error) = self.log_list.add(self.disk.as_ref(), number).await
        {
            // If the list on disk may name the log already, the file stays, empty. A lack of descriptors or of room
            // shows before the list is replaced, so then the file can go.
            let is_busy = error.kind() == std::io::ErrorKind::ResourceBusy;
            if is_busy || lacks_room(&error) {
                let _ = self.disk.remove(&header.name()).await;
            }
            return Err(if is_busy { busy(error) } else { self.refused("could not list a log", error) });
        }
        let segment = Segment::new(header, self.identity.id, file, SEGMENT_HEADER_BYTES, false);
        self.grew(SEGMENT_HEADER_BYTES);
        self.segments.write().insert(number, Arc::clone(&segment));
        Ok(segment)
    }

    /// Returns when everything that was written to a segment is on stable storage.
    pub(crate) async fn sync_extents(&self, segment: &Segment) -> Result<()> {
        let _request = self.unanswered.begin();
        segment.sync().await.map_err(|error| {
            self.fail(&format!("could not sync extents: {error}"));
            Error::io("could not sync extents", error)
        })
    }

    /// Deletes a segment that nobody needs any more. The deletion is durable when this returns: what is dropped next
    /// may rely on it.
    pub(crate) async fn delete_segment(&self, segment: &Arc<Segment>) -> Result<()> {
        let name = segment.header.name();
        let context = || format!("could not remove {name}");
        self.disk.remove(&name).await.map_err(|error| Error::io(context(), error))?;
        if let Err(error) = self.disk.sync_directory().await {
            // Nobody knows whether the segment is there after a power cut.
            self.fail(&format!("could not sync the directory: {error}"));
            return Err(Error::io(context(), error));
        }
        self.segments.write().remove(&segment.key().number);
        if segment.close_when_unread(&self.used_bytes) {
            let mut held = self.held.lock();
            held.retain(|segment| segment.upgrade().is_some_and(|segment| segment.held_bytes() > 0));
            held.push_back(Arc::downgrade(segment));
            drop(held);
            // At least as much as the segment that was just deleted.
            let held_bytes_max = (self.segment_bytes_max() / HELD_PART).max(segment.length());
            while self.held_bytes() > held_bytes_max && self.close_held() {}
        }
        Ok(())
    }

    /// Bytes of deleted segments that are still read.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.lock().iter().filter_map(Weak::upgrade).map(|segment| segment.held_bytes()).sum()
    }

    /// Frees the room of the segment that was deleted first, although it is still read. A read breaks off when its data
    /// is nowhere else. `false` when there is no such segment.
    pub(crate) fn close_held(&self) -> bool {
        let mut held = self.held.lock();
        while let Some(first) = held.pop_front() {
            if let Some(segment) = first.upgrade().filter(|segment| segment.held_bytes() > 0) {
                segment.close();
                return true;
            }
        }
        false
    }

    /// Turns an error of the disk into one of the store. A full file system may have room again later. Every other
    /// error is final, above all a failed sync: the data that it should have made durable may be gone, even if the next
    /// sync succeeds.
    pub(crate) fn refused(&self, doing: &str, error: std::io::Error) -> Error {
        let context = format!("{} in {}", doing, self.disk.label());
        if lacks_room(&error) {
            // Until the next look: something else has filled the file system.
            self.possible_bytes.store(self.used_bytes(), Ordering::SeqCst);
            return Error { kind: ErrorKind::Full, ..Error::io(context, error) };
        }
        self.fail(&format!("{doing}: {error}"));
        Error::io(context, error)
    }
}

/// Adds the file that an error is about.
pub(crate) fn in_file(directory: &Directory, name: &str, error: Error) -> Error {
    let context = format!("{}/{name}: {}", directory.disk.label(), error.context);
    Error { context, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_read_back_and_damage_is_seen() {
        let identity = Identity { store: 7, number: 3, id: DirectoryId(0x1234_5678_9abc_def0) };
        let bytes = identity.encode();
        crate::record::tests::check_golden("identity", &bytes);
        let read = IdentityFile::Listed { id: identity.id, number: 3 };
        assert_eq!(IdentityFile::decode(&bytes, "disk").unwrap(), read);
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert_eq!(IdentityFile::decode(&damaged, "disk").unwrap_err().kind, ErrorKind::Corrupt, "byte {at}");
        }
        assert!(IdentityFile::decode(&bytes[..23], "disk").is_err());
    }

    #[test]
    fn identities_of_version_1_stay_readable() {
        let bytes = include_bytes!("../golden/identity.1");
        let read = IdentityFile::BeforeLists { store: 0x1234_5678_9abc_def0, number: 3 };
        assert_eq!(IdentityFile::decode(bytes, "disk").unwrap(), read);
    }
}
