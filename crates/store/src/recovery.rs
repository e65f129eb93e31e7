//! Start: from files to tables.
//!
//! The last snapshot is loaded and what the logs hold behind it is replayed in the order of sequences. An object
//! record counts when a commit behind it in the same log publishes it, or when it stands alone. Without a sound
//! snapshot everything is replayed.

mod replay;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use forebay_env::sync::atomic::Ordering;
use forebay_env::{Disk, Env, HashState};

use crate::directory::{Directory, Identity};
use crate::log::Position;
use crate::record::scan::Scan;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, SegmentKey, SegmentKind, parse_segment_name};
use crate::snapshot::{Snapshot, load_snapshot};
use crate::table::{Objects, Values};
use crate::{Error, ErrorKind, Result, Settings};
use replay::Replay;

/// Each start begins this far above what it finds: far more numbers than a process hands out while none of them reaches the
/// disk, so that those that a power cut took away are not used again.
pub const SEQUENCES_OF_A_LIFE: u64 = 1 << 32;

/// Bytes of a log's end that are written again at once.
const REWRITE_BYTES: u64 = 1 << 20;

/// What a start found.
pub(crate) struct Recovered {
    pub(crate) directories: Vec<Arc<Directory>>,
    pub(crate) tables: Tables,
    pub(crate) next_sequence: u64,
    pub(crate) snapshot_positions: HashMap<u16, Position>,
}

/// Both tables. What is in them is not accounted for yet.
pub(crate) struct Tables {
    pub(crate) objects: Objects,
    pub(crate) values: Values,
}

impl Tables {
    pub(crate) fn new(hasher: &HashState) -> Self {
        Self { objects: Objects::new(hasher.clone()), values: Values::default() }
    }
}

pub(crate) async fn recover(env: &Env, disks: Vec<Arc<dyn Disk>>, settings: &Settings) -> Result<Recovered> {
    let (directories, new) = identify(env, disks, settings).await?;
    // All is read before anything is changed: a format of a newer version is refused untouched.
    let mut opened = Vec::new();
    for directory in &directories {
        opened.push(open_segments(directory).await?);
    }
    let hasher = HashState::new(env.random.as_ref());
    let snapshot = load_snapshot(&directories, &hasher).await?;
    let mut replay = Replay::new(snapshot.as_ref());
    let mut ends = Vec::new();
    for (directory, segments) in directories.iter().zip(&opened) {
        let log: Vec<_> = of_kind(segments, SegmentKind::Log);
        ends.push(replay_log(directory, &log, snapshot.as_ref(), &mut replay).await?);
        for segment in of_kind(segments, SegmentKind::Fill) {
            if !snapshot.as_ref().is_some_and(|snapshot| snapshot.complete_fills.contains(&segment.key())) {
                let replayed = replay_fill(segment, snapshot.as_ref(), &mut replay).await;
                replayed.map_err(|error| in_file(directory, &segment.header.name(), error))?;
            }
        }
    }
    let known: HashSet<SegmentKey> = opened.iter().flatten().map(|segment| segment.key()).collect();
    let first_free = opened.iter().flatten().map(|segment| segment.header.sequence).max().unwrap_or(0);
    let snapshot_positions = snapshot.as_ref().map(|snapshot| snapshot.positions.clone()).unwrap_or_default();
    ends.iter_mut().flatten().for_each(|end| end.leave_out_void(&replay));
    let (tables, next_sequence, min_versions) = replay.finish(snapshot, &hasher, &known);
    check_values(settings, &tables.values)?;
    for directory in &new {
        directory.identity.write(directory.disk.as_ref()).await?;
    }
    for directory in directories.iter().filter(|directory| !new.iter().any(|new| Arc::ptr_eq(new, directory))) {
        // A process that died while it began the directory may have left an identity that a power cut takes back.
        if let Err(error) = directory.disk.sync_directory().await {
            directory.fail(&format!("could not sync the directory: {error}"));
        }
    }
    for (directory, end) in directories.iter().zip(ends) {
        if let Some(end) = end
            && let Err(error) = end.keep().await
        {
            directory.fail(&format!("could not make {} durable: {error}", end.segment.header.name()));
        }
    }
    for (directory, segments) in directories.iter().zip(opened) {
        for segment in segments {
            if let Some(version) = min_versions.get(&segment.key()) {
                segment.min_version.fetch_min(*version, Ordering::SeqCst);
            }
            directory.adopt(segment);
        }
    }
    let used = next_sequence.max(first_free);
    let next_sequence = (used / SEQUENCES_OF_A_LIFE + 1).checked_mul(SEQUENCES_OF_A_LIFE).unwrap_or(used);
    Ok(Recovered { directories, tables, next_sequence, snapshot_positions })
}

/// # Errors
/// `Invalid` for the first value that the check of the settings refuses.
fn check_values(settings: &Settings, values: &Values) -> Result<()> {
    let Some(check) = settings.value_check else { return Ok(()) };
    let mut problem = None;
    values.for_each(|row| {
        if problem.is_none() {
            problem = check(row.key(), row.value()).err();
        }
    });
    problem.map_or(Ok(()), |problem| Err(Error::new(ErrorKind::Invalid, problem)))
}

fn of_kind(segments: &[Arc<Segment>], kind: SegmentKind) -> Vec<&Arc<Segment>> {
    segments.iter().filter(|segment| segment.header.kind == kind).collect()
}

/// Reads who the directories are, and gives new ones their number. Returns all of them and the new ones.
async fn identify(
    env: &Env,
    disks: Vec<Arc<dyn Disk>>,
    settings: &Settings,
) -> Result<(Vec<Arc<Directory>>, Vec<Arc<Directory>>)> {
    let mut identities = Vec::new();
    for disk in &disks {
        identities.push(Identity::read(disk.as_ref()).await?);
    }
    let known: Vec<Identity> = identities.iter().flatten().copied().collect();
    let store = known.first().map_or_else(|| Identity::new_store(env), |identity| identity.store);
    let numbers: HashSet<u16> = known.iter().map(|identity| identity.number).collect();
    if known.iter().any(|identity| identity.store != store) || numbers.len() != known.len() {
        return Err(Error::new(
            ErrorKind::Invalid,
            "the data directories belong to different stores, or one is given twice",
        ));
    }
    let mut next = numbers.iter().max().map_or(0, |number| number + 1);
    let (mut directories, mut new) = (Vec::new(), Vec::new());
    for ((disk, identity), capacity) in disks.into_iter().zip(identities).zip(&settings.capacity_bytes) {
        let is_new = identity.is_none();
        let identity = identity.unwrap_or(Identity { store, number: next });
        let directory = Arc::new(Directory::new(disk, identity, *capacity, Arc::clone(&env.clock)));
        if is_new {
            next += 1;
            new.push(Arc::clone(&directory));
        }
        directories.push(directory);
    }
    Ok((directories, new))
}

/// Opens all segments of a directory, in the order of their numbers.
async fn open_segments(directory: &Directory) -> Result<Vec<Arc<Segment>>> {
    let failed = |error| Error::io(format!("could not read {}", directory.disk.label()), error);
    let names = directory.disk.list().await.map_err(failed)?;
    let mut found: Vec<_> = names.iter().filter_map(|name| Some((parse_segment_name(name)?, name))).collect();
    found.sort_unstable();
    let mut segments = Vec::new();
    for ((number, kind), name) in found {
        let file = directory.disk.open(name).await.map_err(failed)?;
        let length = file.len().await.map_err(failed)?;
        let bytes = file.read_at(0, SEGMENT_HEADER_BYTES as usize).await.map_err(failed)?;
        let identity = directory.identity;
        let key = SegmentKey { directory: identity.number, number };
        let header = match SegmentHeader::decode(&bytes) {
            Ok(header) if header.key == key && header.kind == kind && header.store == identity.store => header,
            Ok(_) => {
                let problem = format!("{}/{name} belongs to another directory or store", directory.disk.label());
                return Err(Error::new(ErrorKind::Invalid, problem));
            }
            Err(error) if error.kind == ErrorKind::Corrupt => {
                // Nothing in a header is needed to read the records: each is bound to its segment and has checksums.
                tracing::warn!(segment = name, length, "the header of a segment is damaged or was never written");
                SegmentHeader { store: identity.store, key, kind, sequence: 0 }
            }
            Err(error) => return Err(in_file(directory, name, error)),
        };
        segments.push(Segment::new(header, file, length.max(SEGMENT_HEADER_BYTES), true));
    }
    Ok(segments)
}

/// The error, with the file that it is about.
pub(crate) fn in_file(directory: &Directory, name: &str, error: Error) -> Error {
    let context = format!("{}/{name}: {}", directory.disk.label(), error.context);
    Error { context, ..error }
}

fn damaged(directory: &Directory, name: &str) -> Error {
    let problem = format!("{}/{name}: acknowledged records are damaged; nothing was changed", directory.disk.label());
    Error::new(ErrorKind::Corrupt, problem)
}

/// Where a log ends.
struct LogEnd {
    segment: Arc<Segment>,
    /// Behind the last sound record.
    end: u64,
    /// What stands before this is on stable storage.
    durable: u64,
    /// Where each record of it that was replayed begins, and its sequence.
    records: Vec<(u64, u64)>,
}

/// Replays a directory's log. Returns its end, if there is a log.
async fn replay_log(
    directory: &Directory,
    log: &[&Arc<Segment>],
    snapshot: Option<&Snapshot>,
    replay: &mut Replay,
) -> Result<Option<LogEnd>> {
    let start = snapshot.and_then(|snapshot| snapshot.positions.get(&directory.identity.number).copied());
    let start = start.unwrap_or(Position { segment: 0, offset: 0 });
    let mut log_end = None;
    let wanted: Vec<_> = log.iter().filter(|segment| segment.key().number >= start.segment).collect();
    for (index, segment) in wanted.iter().enumerate() {
        let named = |error: Error| in_file(directory, &segment.header.name(), error);
        let is_first = segment.key().number == start.segment;
        let offset = if is_first { start.offset.max(SEGMENT_HEADER_BYTES) } else { SEGMENT_HEADER_BYTES };
        let mut scan = Scan::new(segment, offset).await?;
        // A snapshot is in place only when all before its positions is durable.
        let (mut durable, mut records) = (offset, Vec::new());
        while let Some(record) = scan.next().await.map_err(named)? {
            durable = durable.max(record.head.header.durable_before);
            records.push((record.offset, record.head.header.sequence));
            replay.take(segment, &record).map_err(named)?;
        }
        let end = scan.offset();
        log_end = Some(LogEnd { segment: Arc::clone(segment), end, durable, records });
        if end >= segment.length() {
            continue;
        }
        let has_successor = index + 1 < wanted.len();
        if has_successor || scan.was_durable_here().await.map_err(named)? {
            return Err(damaged(directory, &segment.header.name()));
        }
        tracing::warn!(
            segment = segment.header.name(),
            at = end,
            "the log ends in a torn record, which nobody was told of"
        );
    }
    Ok(log_end)
}

impl LogEnd {
    /// What is void is at the end, where the directory failed, and is cut off: so nobody need know of it later.
    fn leave_out_void(&mut self, replay: &Replay) {
        let is_void = |sequence: u64| replay.is_void(self.segment.key(), sequence);
        let void = self.records.iter().rev().take_while(|(_, sequence)| is_void(*sequence));
        self.end = void.last().map_or(self.end, |(offset, _)| *offset);
        self.durable = self.durable.min(self.end);
    }

    /// Cuts off what is torn, and makes the rest durable: an earlier process may have died before its sync. It is written
    /// again, since after a failed sync the bytes may be in memory only, where no later sync finds them.
    async fn keep(&self) -> std::io::Result<()> {
        let file = &self.segment.file;
        if self.end < self.segment.length() {
            file.set_len(self.end).await?;
            self.segment.length.store(self.end, Ordering::SeqCst);
        }
        let mut offset = self.durable;
        while offset < self.end {
            let bytes = file.read_at(offset, (self.end - offset).min(REWRITE_BYTES) as usize).await?;
            let length = bytes.len() as u64;
            self.segment.write(offset, vec![bytes]).await?;
            offset += length.max(1);
        }
        self.segment.sync().await
    }
}

/// Takes what is sound of a segment of fills, and not in the snapshot.
async fn replay_fill(segment: &Arc<Segment>, snapshot: Option<&Snapshot>, replay: &mut Replay) -> Result<()> {
    let mut scan = Scan::new(segment, SEGMENT_HEADER_BYTES).await?;
    loop {
        let record = match scan.next().await? {
            Some(record) => Some(record),
            None => scan.resume().await?,
        };
        match record {
            Some(record) => {
                let sequence = record.head.header.sequence;
                let is_applied = |snapshot: &Snapshot| {
                    sequence < snapshot.fills_before && !snapshot.unapplied_fills.contains(&sequence)
                };
                if !snapshot.is_some_and(is_applied) {
                    replay.take(segment, &record)?;
                }
            }
            None => return Ok(()),
        }
    }
}
