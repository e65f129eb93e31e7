//! Recovery at a start: from files to tables.
//!
//! It loads the last snapshot and replays the logs from there on in the order of sequences. An object record counts
//! when a later commit publishes it, or when it stands alone. Without a sound snapshot, everything is replayed.

mod members;
mod replay;
pub(crate) mod starts;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::sync::atomic::Ordering;
use forebay_env::{Disk, Env, HashState};

use crate::clean_stop;
use crate::directory::log_list::{self, LogList};
use crate::directory::{Directory, GIVE_UP, IDENTITY_FILE, SEGMENT_NUMBER_MAX, in_file};
use crate::ids::SegmentKey;
use crate::record::abort::AbortBody;
use crate::record::location::Position;
use crate::record::scan::Scan;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, SegmentKind, parse_segment_name, segment_name};
use crate::snapshot::copies::{count_snapshots, drop_older_snapshots, drop_unfinished_snapshots};
use crate::snapshot::load::{Snapshot, load_snapshot};
use crate::table::{Entry, Tables, Values};
use crate::{Error, ErrorKind, Result, Settings, lost_changes};
use members::call_roll;
use replay::{Replay, Replayed};

pub use members::Forgotten;

/// Each start begins this far above the sequences that it finds. A process hands out far fewer numbers before one of
/// them reaches the disk, so numbers that a power cut took away are never reused.
pub const SEQUENCES_OF_A_LIFE: u64 = 1 << 32;

/// How many earlier processes may have left traces only in a directory that is gone.
const LIVES_FORGOTTEN: u64 = 1 << 16;

/// Bytes of a log's end that are rewritten at once.
const REWRITE_BYTES: u64 = 1 << 20;

/// The result of recovery.
pub(crate) struct Recovered {
    pub(crate) directories: Vec<Arc<Directory>>,
    pub(crate) tables: Tables,
    /// Objects that no commit has published.
    pub(crate) prepared: Vec<Entry>,
    /// Records that could not be cut off.
    pub(crate) aborted: Vec<AbortBody>,
    pub(crate) next_sequence: u64,
    pub(crate) snapshot_positions: HashMap<u16, Position>,
    /// The next sequence in the snapshot.
    pub(crate) snapshot_sequence: u64,
    /// Rows of both tables in the snapshot.
    pub(crate) shown_rows: u64,
    /// Whether more than records of aborts was replayed from the logs.
    pub(crate) has_changes: bool,
    pub(crate) forgotten: Forgotten,
    /// As [`Store::was_closed`](crate::Store::was_closed).
    pub(crate) was_closed: bool,
}

pub(crate) async fn recover(env: &Env, disks: Vec<Arc<dyn Disk>>, settings: &Settings) -> Result<Recovered> {
    let mut roll = call_roll(env, disks, settings).await?;
    let directories = roll.directories.clone();
    // Everything is read before anything is changed: a newer format is refused untouched.
    let (mut opened, mut listed, mut closed, mut released_by) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for directory in &directories {
        let names = directory.disk.list().await;
        let names = names.map_err(|error| Error::io(format!("could not read {}", directory.disk.label()), error))?;
        opened.push(open_segments(directory, &names).await?);
        let has = |name: &str| names.iter().any(|found| found == name);
        closed.push((has(IDENTITY_FILE), has(clean_stop::NAME)));
        let list = LogList::read(directory.disk.as_ref(), &names).await;
        let list = list.map_err(|error| in_file(directory, log_list::FORMAT.name, error))?;
        released_by = list.as_ref().map_or(0, |list| list.released_by).max(released_by);
        listed.push(list.map(|list| list.numbers));
    }
    let hasher = HashState::new(env.random.as_ref());
    let (snapshot, is_damaged) = load_snapshot(&directories, &hasher, released_by).await?;
    if snapshot.is_none() && is_damaged && roll.is_incomplete() {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "the snapshots are damaged, and what a forgotten directory knew is nowhere else: without them, older versions of objects would be back. Put an undamaged file `snapshot` back, or remove it from all directories to start anyway",
        ));
    }
    if snapshot.is_none() && roll.is_incomplete() {
        tracing::warn!(
            "no snapshot from before a directory was forgotten is left: older versions of objects, and deleted objects, may be back"
        );
    }
    let shown = snapshot.iter().flat_map(|snapshot| snapshot.positions.keys().copied());
    roll.check_named(shown, &settings.forget)?;
    for ((directory, segments), listed) in directories.iter().zip(&opened).zip(&listed) {
        check_logs(directory, segments, listed.as_ref(), snapshot.as_ref())?;
    }
    let snapshot_is_sound = snapshot.is_some();
    let copies = snapshot.as_ref().map(|snapshot| (snapshot.held_in.clone(), snapshot.bytes));
    let shown_rows = snapshot.as_ref().map_or(0, |snapshot| snapshot.rows);
    let mut replay = Replay::new(snapshot.as_ref());
    let mut ends = Vec::new();
    for ((directory, segments), listed) in directories.iter().zip(&opened).zip(&listed) {
        let log: Vec<_> = of_kind(segments, SegmentKind::Log);
        ends.push(replay_log(directory, &log, listed, snapshot.as_ref(), &mut replay).await?);
        for segment in of_kind(segments, SegmentKind::Fill) {
            if !snapshot.as_ref().is_some_and(|snapshot| snapshot.complete_fills.contains(&segment.key())) {
                let replayed = replay_fill(segment, snapshot.as_ref(), &mut replay).await;
                match replayed.map_err(|error| in_file(directory, &segment.header.name(), error)) {
                    // These are copies, and the under store has the originals.
                    Err(error) if error.kind == ErrorKind::Failed => {
                        tracing::warn!(%error, "what follows in a segment of the read cache is skipped");
                    }
                    replayed => replayed?,
                }
            }
        }
    }
    let known: HashMap<SegmentKey, u64> =
        opened.iter().flatten().map(|segment| (segment.key(), segment.header.sequence)).collect();
    let first_free = opened.iter().flatten().map(|segment| segment.header.sequence).max().unwrap_or(0);
    let snapshot_sequence = snapshot.as_ref().map_or(0, |snapshot| snapshot.next_sequence);
    let snapshot_positions = snapshot.as_ref().map(|snapshot| snapshot.positions.clone()).unwrap_or_default();
    let mut ends: Vec<(usize, LogEnd)> =
        ends.into_iter().enumerate().filter_map(|(index, end)| Some((index, end?))).collect();
    let (covered, mut uncut) = ends_of_failed(&directories, &opened, &ends, &replay).await;
    ends.extend(covered);
    ends.iter_mut().for_each(|(_, end)| end.leave_out_aborted(&replay));
    let mut aborted = replay.aborted().to_vec();
    let Replayed { tables, prepared, next_sequence, min_versions, change_bytes, last_numbers, has_changes } =
        replay.finish(snapshot, &hasher, &known);
    roll.check_named(last_numbers.keys().copied(), &settings.forget)?;
    check_values(settings, &tables.values)?;
    let was_closed = snapshot_is_sound && closed.iter().all(|(is_known, is_closed)| *is_closed || !is_known);
    let forgotten = roll.forgotten(was_closed, snapshot_is_sound);
    if forgotten.has_lost_changes {
        lost_changes::mark(&directories).await;
    }
    roll.note().await?;
    unmark_all(&directories, &closed).await?;
    drop_unfinished_snapshots(&directories).await;
    if let Some((held_in, bytes)) = copies {
        drop_older_snapshots(&directories, &held_in).await;
        count_snapshots(&directories, &held_in, bytes);
    }
    for ((directory, segments), listed) in directories.iter().zip(&opened).zip(listed) {
        let first = snapshot_positions.get(&directory.identity.number).map_or(0, |position| position.segment);
        // A log without a header was never begun. Every log that is listed must have one.
        let logs = of_kind(segments, SegmentKind::Log).into_iter().filter(|segment| segment.header.is_read());
        let logs = logs.map(|segment| segment.key().number).filter(|number| *number >= first);
        directory.log_list.begin(listed.into_iter().flatten().chain(logs), released_by).await;
    }
    for (index, end) in &ends {
        let kept = end.keep().await;
        if kept.is_err() || end.holds_aborted {
            uncut.insert(end.segment.key());
        }
        if let Err(error) = kept {
            directories[*index].fail(&format!("could not make {} durable: {error}", end.segment.header.name()));
        }
    }
    aborted.retain(|abort| uncut.contains(&abort.segment));
    for (directory, segments) in directories.iter().zip(opened) {
        for segment in segments {
            if let Some(version) = min_versions.get(&segment.key()) {
                segment.holds_stale(*version);
            }
            segment.change_bytes.store(change_bytes.get(&segment.key()).copied().unwrap_or(0), Ordering::SeqCst);
            directory.adopt(segment);
        }
        directory.give_numbers_above(last_numbers.get(&directory.identity.number).copied().unwrap_or(0));
    }
    let used = next_sequence.max(first_free).max(released_by);
    // Earlier processes of which only a forgotten directory has a trace took numbers, too.
    let lives = if roll.has_forgotten { LIVES_FORGOTTEN } else { 1 };
    let next_sequence = (used / SEQUENCES_OF_A_LIFE + lives).checked_mul(SEQUENCES_OF_A_LIFE).unwrap_or(used);
    Ok(Recovered {
        directories,
        tables,
        prepared,
        aborted,
        next_sequence,
        snapshot_positions,
        snapshot_sequence,
        shown_rows,
        has_changes,
        forgotten,
        was_closed,
    })
}

/// Takes away the marks of the last clean stop. `closed` says of each directory whether it has one.
///
/// # Errors
/// `Failed` when a mark stays and there are other directories. These would continue, and when they are lost later,
/// the mark would say that they knew nothing more.
async fn unmark_all(directories: &[Arc<Directory>], closed: &[(bool, bool)]) -> Result<()> {
    for (directory, _) in directories.iter().zip(closed).filter(|(_, (_, is_closed))| *is_closed) {
        let Err(error) = clean_stop::unmark(directory.disk.as_ref()).await else { continue };
        if directories.len() > 1 {
            let (label, name) = (directory.disk.label(), clean_stop::NAME);
            let problem = format!(
                "{label}/{name}: could not take away the mark of a clean stop. Make the disk writable, or give up the directory (--forget-directory; what only it held is lost)"
            );
            return Err(Error::io(problem, error));
        }
        directory.fail(&format!("could not take away the mark of a clean stop: {error}"));
    }
    Ok(())
}

/// # Errors
/// `Invalid` for the first value that [`Settings::value_check`] refuses.
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

/// Opens all segments of a directory, in the order of their numbers.
async fn open_segments(directory: &Directory, names: &[String]) -> Result<Vec<Arc<Segment>>> {
    let mut found: Vec<_> = names.iter().filter_map(|name| Some((parse_segment_name(name)?, name))).collect();
    found.sort_unstable();
    let mut segments = Vec::new();
    for ((number, kind), name) in found {
        let failed = |error| Error::io(format!("could not read {}/{name}", directory.disk.label()), error);
        if number > SEGMENT_NUMBER_MAX {
            let problem =
                "the number is out of range, so Forebay has not written this file: move it away; nothing was changed";
            return Err(in_file(directory, name, Error::new(ErrorKind::Invalid, problem)));
        }
        let file = directory.disk.open(name).await.map_err(failed)?;
        let length = file.len().await.map_err(failed)?;
        let bytes = match file.read_at(0, SEGMENT_HEADER_BYTES as usize).await {
            // An unreadable header counts as a damaged one. A log must be readable: its replay would fail anyway.
            Err(_) if kind != SegmentKind::Log => Bytes::new(),
            read => read.map_err(failed)?,
        };
        let identity = directory.identity;
        let key = SegmentKey { directory: identity.number, number };
        let header = match SegmentHeader::decode(&bytes) {
            Ok(header) if header.key == key && header.kind == kind && header.store == identity.store => header,
            Ok(_) => {
                let problem = format!(
                    "{}/{name} belongs to another directory or store: move it back there; nothing was changed",
                    directory.disk.label()
                );
                return Err(Error::new(ErrorKind::Invalid, problem));
            }
            Err(error) if error.kind == ErrorKind::Corrupt => {
                // Records can be read without the header: each is bound to its segment and has checksums.
                match length {
                    // A start that ended early has created the file and written nothing. Logs with records are listed,
                    // and reads notice an extent that is missing.
                    0 => tracing::debug!(segment = name, "a segment is empty: it was never begun"),
                    _ => tracing::warn!(
                        segment = name,
                        length,
                        "the header of a segment is damaged or was never written"
                    ),
                }
                SegmentHeader::unread(identity.store, key, kind)
            }
            Err(error) => return Err(in_file(directory, name, error)),
        };
        segments.push(Segment::new(header, identity.id, file, length.max(SEGMENT_HEADER_BYTES), true));
    }
    Ok(segments)
}

fn damaged(directory: &Directory, name: &str) -> Error {
    let problem = format!(
        "{}/{name}: acknowledged records are damaged; nothing was changed. Put a sound copy of the file back, or {GIVE_UP}",
        directory.disk.label()
    );
    Error::new(ErrorKind::Corrupt, problem)
}

/// # Errors
/// `Corrupt` when a log is missing that the snapshot does not cover completely.
fn check_logs(
    directory: &Directory,
    segments: &[Arc<Segment>],
    listed: Option<&BTreeSet<u32>>,
    snapshot: Option<&Snapshot>,
) -> Result<()> {
    let logs = of_kind(segments, SegmentKind::Log);
    let position = snapshot.and_then(|snapshot| snapshot.positions.get(&directory.identity.number));
    let from = position.map_or(0, |position| position.segment);
    let is_gone = |number: &u32| !logs.iter().any(|log| log.key().number == *number);
    // The log at the snapshot's position must exist, too: a directory of an older release has no list.
    let shown = position.filter(|position| position.offset > 0).map(|position| &position.segment);
    let Some(gone) = listed.into_iter().flat_map(|listed| listed.range(from..)).chain(shown).find(|log| is_gone(log))
    else {
        return Ok(());
    };
    let (label, name) = (directory.disk.label(), segment_name(*gone, SegmentKind::Log));
    let problem = format!(
        "{label}/{name} is missing, and with it acknowledged records; nothing was changed. Put the file back, or {GIVE_UP}"
    );
    Err(Error::new(ErrorKind::Corrupt, problem))
}

/// The end of a log.
struct LogEnd {
    segment: Arc<Segment>,
    /// Where the last sound record ends.
    end: u64,
    /// Everything before this offset is on stable storage.
    durable: u64,
    /// Offset and sequence of each record that was replayed.
    records: Vec<(u64, u64)>,
    /// Whether some of these are aborted and stay, because others come after them.
    holds_aborted: bool,
}

/// Replays a directory's log. Returns its end, if there is a log.
async fn replay_log(
    directory: &Directory,
    log: &[&Arc<Segment>],
    listed: &Option<BTreeSet<u32>>,
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
        // Everything before the positions of a snapshot was on stable storage when the snapshot was written: no crash
        // leaves the log shorter.
        if offset > segment.length() {
            return Err(damaged(directory, &segment.header.name()));
        }
        let mut scan = Scan::new(segment, offset).await?;
        // A snapshot is put in place only when everything before its positions is durable.
        let (mut durable, mut records) = (offset, Vec::new());
        while let Some(record) = scan.next().await.map_err(named)? {
            durable = durable.max(record.head.header.durable_before);
            records.push((record.offset, record.head.header.sequence));
            replay.take(segment, &record).map_err(named)?;
        }
        let end = scan.offset();
        // The header was on stable storage before the log was listed: no crash explains that nothing of it is left.
        let is_listed = listed.as_ref().is_some_and(|listed| listed.contains(&segment.key().number));
        if is_listed && !segment.header.is_read() && end == SEGMENT_HEADER_BYTES {
            return Err(damaged(directory, &segment.header.name()));
        }
        log_end = Some(LogEnd { segment: Arc::clone(segment), end, durable, records, holds_aborted: false });
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
            "the log ends in a torn record and is cut there, as after a crash: what was being written had not been acknowledged"
        );
    }
    Ok(log_end)
}

/// The ends of logs that hold aborted records and that the replay did not read to the end: when their directory failed,
/// the others took a snapshot that covers them. Returns the logs that can't be read, too.
async fn ends_of_failed(
    directories: &[Arc<Directory>],
    opened: &[Vec<Arc<Segment>>],
    known: &[(usize, LogEnd)],
    replay: &Replay,
) -> (Vec<(usize, LogEnd)>, HashSet<SegmentKey>) {
    let (mut ends, mut unread) = (Vec::new(), HashSet::new());
    for (index, segments) in opened.iter().enumerate() {
        let logs = of_kind(segments, SegmentKind::Log);
        let last = logs.last().map(|log| log.key());
        for log in logs {
            let key = log.key();
            let is_known = known.iter().any(|(_, end)| end.segment.key() == key);
            if is_known || !replay.aborted().iter().any(|abort| abort.segment == key) {
                continue;
            }
            match end_of_failed(log, last == Some(key)).await {
                Ok(end) => ends.push((index, end)),
                Err(error) => {
                    let error = in_file(&directories[index], &log.header.name(), error);
                    tracing::warn!(%error, "what is aborted at the end of a log can't be cut off");
                    unread.insert(key);
                }
            }
        }
    }
    (ends, unread)
}

/// # Errors
/// `Corrupt` when the log is damaged in a way that neither the failure nor a power cut explains.
async fn end_of_failed(log: &Arc<Segment>, is_last: bool) -> Result<LogEnd> {
    let mut scan = Scan::new(log, SEGMENT_HEADER_BYTES).await?;
    let (mut durable, mut records) = (SEGMENT_HEADER_BYTES, Vec::new());
    while let Some(record) = scan.next().await? {
        durable = durable.max(record.head.header.durable_before);
        records.push((record.offset, record.head.header.sequence));
    }
    let end = scan.offset();
    if end < log.length() && (!is_last || scan.was_durable_here().await?) {
        return Err(Error::new(ErrorKind::Corrupt, "the log is damaged"));
    }
    Ok(LogEnd { segment: Arc::clone(log), end, durable, records, holds_aborted: false })
}

impl LogEnd {
    /// Cuts off aborted records. They are at the end, where the directory failed. So nobody has to know of them later.
    fn leave_out_aborted(&mut self, replay: &Replay) {
        let is_aborted = |sequence: u64| replay.is_aborted(self.segment.key(), sequence);
        let abort = self.records.iter().rev().take_while(|(_, sequence)| is_aborted(*sequence));
        self.end = abort.last().map_or(self.end, |(offset, _)| *offset);
        self.durable = self.durable.min(self.end);
        self.holds_aborted = self.records.iter().any(|(at, sequence)| *at < self.end && is_aborted(*sequence));
    }

    /// Cuts off a torn end and makes the rest durable: an earlier process may have died before its sync. The rest is
    /// written again, because after a failed sync the bytes may be only in memory, where no later sync finds them.
    async fn keep(&self) -> std::io::Result<()> {
        let file = self.segment.file()?;
        if self.end < self.segment.length() {
            self.segment.cut(self.end).await?;
            self.segment.length.store(self.end, Ordering::SeqCst);
        }
        // Nothing shows that the header is durable, either.
        let with_header = self.durable == SEGMENT_HEADER_BYTES && self.segment.header.is_read();
        let mut offset = if with_header { 0 } else { self.durable };
        while offset < self.end {
            let bytes = file.read_at(offset, (self.end - offset).min(REWRITE_BYTES) as usize).await?;
            let length = bytes.len() as u64;
            self.segment.write(offset, vec![bytes]).await?;
            offset += length.max(1);
        }
        self.segment.sync().await
    }
}

/// Replays the sound records of a segment of fills that are not in the snapshot.
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
