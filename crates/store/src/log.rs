//! The log of one directory. One task appends what has queued up, syncs once for all of it (group commit), and answers
//! every request.

pub(crate) mod aborted;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_env::{Clock, Requester, Task};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::directory::Directory;
use crate::record::Draft;
use crate::record::abort::AbortBody;
use crate::record::commit::CommitBody;
use crate::record::location::{Location, Position, location};
use crate::segment::{Segment, SegmentKind};
use crate::{Counters, Error, ErrorKind, Observer, Result};
use aborted::AbortedCommits;

/// Requests that may queue for the log. When the queue is full, committers wait for a place.
const QUEUE_MAX: usize = 4096;

/// No more requests join a group commit that has this many bytes, so that no commit waits for an endless batch.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// The unit in which the operating system and disks write. A page that two syncs touch is written twice.
const PAGE_BYTES: u64 = 4096;

/// A synced write is padded to the end of its last page if it is at least this many times longer than the padding.
const FILLED_MIN: u64 = 4;

/// Where the records of a request went.
pub(crate) struct Appended {
    pub(crate) locations: Vec<Location>,
    /// The sequence of each record.
    pub(crate) sequences: Vec<u64>,
    /// Dropped when the tables show the records.
    pub(crate) applying: Option<Applying>,
}

impl Appended {
    /// The record that aborts these records. `None` when there are none.
    fn abort(&self) -> Option<AbortBody> {
        let (location, first, last) = (self.locations.first()?, self.sequences.first()?, self.sequences.last()?);
        Some(AbortBody { segment: location.segment, first: *first, last: *last })
    }
}

/// Marks records that are written but not applied yet: a snapshot must not skip them.
pub(crate) struct Applying {
    marks: Arc<Marks>,
    mark: (Position, u64),
}

/// Positions of records that are not applied yet. The number tells requests at the same position apart.
#[derive(Default)]
struct Marks {
    applying: Mutex<BTreeSet<(Position, u64)>>,
    next: AtomicU64,
    /// Notified when a mark is dropped.
    gone: Notify,
}

impl Marks {
    fn mark(self: &Arc<Self>, position: Position) -> Applying {
        let mark = (position, self.next.fetch_add(1, Ordering::Relaxed));
        self.applying.lock().insert(mark);
        Applying { marks: Arc::clone(self), mark }
    }
}

impl Drop for Applying {
    fn drop(&mut self) {
        self.marks.applying.lock().remove(&self.mark);
        self.marks.gone.notify_waiters();
    }
}

/// When an append counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The operating system has the records.
    Written,
    /// They are on stable storage.
    Synced,
    /// They are on stable storage, and the next append begins a new segment.
    Sealed,
    /// They are on stable storage, and so is a record of each aborted commit that comes after the present end.
    SyncedWithAborts,
    /// They are on stable storage, but no client waits for that. They share the next sync that others ask for, or get
    /// one after [`crate::Settings::sync_delay`].
    SyncedSoon,
}

struct Request {
    drafts: Vec<Draft>,
    until: Until,
    /// Whether the last page of the write may be padded.
    may_fill: bool,
    done: oneshot::Sender<Result<Appended>>,
}

/// The handle to a log.
pub(crate) struct Log {
    sender: Mutex<Option<mpsc::Sender<Request>>>,
    task: Mutex<Option<Task<()>>>,
    marks: Arc<Marks>,
    /// The next record goes here or later.
    end: Arc<Mutex<Position>>,
    /// Where the last append ends that had more than records of aborts. `None` before the first one.
    changes_end: Arc<Mutex<Option<Position>>>,
}

/// The state of the log's task.
struct Appender {
    directory: Arc<Directory>,
    sequence: Arc<AtomicU64>,
    counters: Arc<Mutex<Counters>>,
    clock: Arc<dyn Clock>,
    observer: Option<Arc<dyn Observer>>,
    sync_delay: Duration,
    marks: Arc<Marks>,
    end: Arc<Mutex<Position>>,
    changes_end: Arc<Mutex<Option<Position>>>,
    aborted: Arc<AbortedCommits>,
    /// How many of `aborted` this log has recorded.
    aborted_recorded: usize,
    open: Option<Open>,
    /// Appends that wait for the next sync.
    written: Vec<(oneshot::Sender<Result<Appended>>, Appended)>,
    /// The latest time for that sync, by the monotonic clock. Set while appends wait.
    sync_at: Option<Duration>,
}

struct Open {
    segment: Arc<Segment>,
    offset: u64,
    durable: u64,
}

/// What a log gets from its store.
pub(crate) struct LogParts {
    pub(crate) directory: Arc<Directory>,
    pub(crate) sequence: Arc<AtomicU64>,
    pub(crate) counters: Arc<Mutex<Counters>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) aborted: Arc<AbortedCommits>,
    pub(crate) sync_delay: Duration,
}

impl Log {
    pub(crate) fn start(parts: LogParts) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let changes_end = Arc::<Mutex<Option<Position>>>::default();
        let LogParts { directory, sequence, counters, clock, observer, aborted, sync_delay } = parts;
        // Set before the first segment exists: a snapshot that begins meanwhile must not leave that segment out.
        let end = Position { segment: directory.next_number(), offset: 0 };
        let (marks, end) = (Arc::<Marks>::default(), Arc::new(Mutex::new(end)));
        let appender = Appender {
            directory,
            sequence,
            counters,
            clock,
            observer,
            sync_delay,
            marks: Arc::clone(&marks),
            end: Arc::clone(&end),
            changes_end: Arc::clone(&changes_end),
            aborted_recorded: aborted.count(),
            aborted,
            open: None,
            written: Vec::new(),
            sync_at: None,
        };
        let task = forebay_env::spawn(Requester::LOG.gets(appender.run(receiver)));
        Self { sender: Mutex::new(Some(sender)), task: Mutex::new(Some(task)), marks, end, changes_end }
    }

    /// Appends records in sequence.
    pub(crate) async fn append(&self, drafts: Vec<Draft>, until: Until) -> Result<Appended> {
        self.request(drafts, until, true).await
    }

    /// Appends and syncs what reclaim carries, without padding: carried data must end up smaller than the segment that
    /// it comes from.
    pub(crate) async fn append_carried(&self, drafts: Vec<Draft>) -> Result<Appended> {
        self.request(drafts, Until::Synced, false).await
    }

    async fn request(&self, drafts: Vec<Draft>, until: Until, may_fill: bool) -> Result<Appended> {
        drafts.iter().try_for_each(Draft::check)?;
        let sender = self.sender.lock().clone().ok_or_else(closed)?;
        let (done, answer) = oneshot::channel();
        sender.send(Request { drafts, until, may_fill, done }).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Syncs everything that was appended so far.
    pub(crate) async fn barrier(&self) -> Result<()> {
        self.append(Vec::new(), Until::Synced).await.map(drop)
    }

    /// As [`Self::barrier`], and records all aborted commits again: a start that replays the log from here must know of
    /// them, too.
    pub(crate) async fn barrier_with_aborts(&self) -> Result<()> {
        self.append(Vec::new(), Until::SyncedWithAborts).await.map(drop)
    }

    /// Seals the open segment, so that reclaim can take it.
    pub(crate) async fn seal(&self) -> Result<()> {
        self.append(Vec::new(), Until::Sealed).await.map(drop)
    }

    /// Whether this process has appended something after this position. Records of aborts that come alone do not count:
    /// each snapshot lets all logs write them again.
    pub(crate) fn has_changes_after(&self, position: Position) -> bool {
        self.changes_end.lock().is_some_and(|end| end > position)
    }

    /// The next record goes here or later.
    pub(crate) fn end(&self) -> Position {
        *self.end.lock()
    }

    /// Returns when the tables show everything that was appended before `end`.
    pub(crate) async fn applied(&self, end: Position) {
        loop {
            let gone = self.marks.gone.notified();
            if self.marks.applying.lock().first().is_none_or(|(position, _)| *position >= end) {
                return;
            }
            gone.await;
        }
    }

    /// Whether there are commits that are written but not in the tables yet.
    pub(crate) fn is_applying(&self) -> bool {
        !self.marks.applying.lock().is_empty()
    }

    /// Ends the task after it has handled what is queued.
    pub(crate) async fn close(&self) {
        drop(self.sender.lock().take());
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.join().await;
        }
    }
}

/// A copy of an error for each waiter.
fn copy(error: &Error) -> Error {
    Error { kind: error.kind, context: error.context.clone(), source: None }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is closed")
}

impl Appender {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        loop {
            let next = tokio::select! {
                biased;
                next = requests.recv() => next,
                () = self.delay() => {
                    self.sync_written().await;
                    continue;
                }
            };
            let Some(first) = next else { break };
            let mut bytes: usize = first.drafts.iter().map(Draft::total_bytes).sum();
            let mut batch = vec![first];
            while bytes < BATCH_BYTES_MAX {
                let Ok(next) = requests.try_recv() else { break };
                bytes += next.drafts.iter().map(Draft::total_bytes).sum::<usize>();
                batch.push(next);
            }
            let seals = batch.iter().any(|request| request.until == Until::Sealed);
            let waits = |until: Until| matches!(until, Until::Synced | Until::SyncedWithAborts);
            let sync = seals || self.is_overdue() || batch.iter().any(|request| waits(request.until));
            let result = self.append(&batch, bytes as u64, sync).await;
            if seals && result.is_ok() {
                self.seal();
            }
            self.answer(batch, result, sync);
        }
        self.sync_written().await;
    }

    /// Answers the requests of a batch, and keeps those that wait for a sync.
    fn answer(&mut self, batch: Vec<Request>, result: Result<Vec<Appended>>, sync: bool) {
        match result {
            Ok(appended) => {
                for (request, appended) in batch.into_iter().zip(appended) {
                    if request.until == Until::SyncedSoon && !sync {
                        self.written.push((request.done, appended));
                        self.sync_at.get_or_insert_with(|| self.clock.monotonic() + self.sync_delay);
                    } else {
                        // The committer may have gone away. Its commit is done.
                        let _ = request.done.send(Ok(appended));
                    }
                }
                if sync {
                    self.answer_written(&Ok(()));
                }
            }
            // What was written before still has to be synced. That sync decides its outcome.
            Err(error) => batch.into_iter().for_each(|request| drop(request.done.send(Err(copy(&error))))),
        }
    }

    /// Seals the open segment, all of which is synced.
    fn seal(&mut self) {
        if let Some(open) = self.open.take() {
            open.segment.sealed.store(true, Ordering::SeqCst);
            *self.end.lock() = Position { segment: self.directory.next_number(), offset: 0 };
        }
    }

    /// Returns when written records have waited long enough for the sync of another commit. Never returns when none
    /// wait.
    async fn delay(&self) {
        match self.sync_at {
            Some(at) => self.clock.sleep(at.saturating_sub(self.clock.monotonic())).await,
            None => std::future::pending().await,
        }
    }

    fn is_overdue(&self) -> bool {
        self.sync_at.is_some_and(|at| at <= self.clock.monotonic())
    }

    /// Syncs the appends that wait for it. A segment that is no longer open was synced when it was sealed.
    async fn sync_written(&mut self) {
        let mut result = Ok(());
        if let (Some(open), false) = (&mut self.open, self.written.is_empty()) {
            let _request = self.directory.unanswered.begin();
            match open.segment.sync().await {
                Ok(()) => open.durable = open.offset,
                Err(error) => result = Err(sync_failed(&self.directory, error)),
            }
        }
        self.answer_written(&result);
    }

    fn answer_written(&mut self, result: &Result<()>) {
        self.sync_at = None;
        if result.is_err() {
            // Drop the marks first: a snapshot that still sees them began before any log said that their records are
            // aborted.
            self.written.iter_mut().for_each(|(_, appended)| drop(appended.applying.take()));
            self.aborted.add(self.written.iter().filter_map(|(_, appended)| appended.abort()));
        }
        for (done, appended) in self.written.drain(..) {
            let _ = done.send(result.as_ref().map(|()| appended).map_err(copy));
        }
    }

    async fn append(&mut self, batch: &[Request], bytes: u64, sync: bool) -> Result<Vec<Appended>> {
        self.directory.check()?;
        let repeats = batch.iter().any(|request| request.until == Until::SyncedWithAborts);
        let recorded = if repeats { 0 } else { self.aborted_recorded };
        let aborted: Vec<_> = self.aborted.since(recorded).iter().map(AbortBody::draft).collect();
        if bytes == 0 && self.open.is_none() && (aborted.is_empty() || !repeats) {
            // Only a barrier, and this process has written nothing before it.
            let nothing = |_: &Request| Appended { locations: Vec::new(), sequences: Vec::new(), applying: None };
            return Ok(batch.iter().map(nothing).collect());
        }
        let directory = Arc::clone(&self.directory);
        let _request = directory.unanswered.begin();
        self.make_room(bytes + aborted.iter().map(|abort| abort.total_bytes() as u64).sum::<u64>()).await?;
        let open = self.open.as_mut().expect("room was made in an open segment");
        let mut offset = open.offset;
        let mut buffers: Vec<Bytes> = Vec::new();
        let mut appended = Vec::with_capacity(batch.len());
        for abort in &aborted {
            let sequence = self.sequence.fetch_add(1, Ordering::SeqCst);
            buffers.extend(abort.encode(open.segment.binding(), sequence, open.durable));
            offset += abort.total_bytes() as u64;
        }
        for request in batch {
            let applying = self.marks.mark(Position { segment: open.segment.key().number, offset });
            let (mut locations, mut sequences) = (Vec::new(), Vec::new());
            for draft in &request.drafts {
                let sequence = self.sequence.fetch_add(1, Ordering::SeqCst);
                buffers.extend(draft.encode(open.segment.binding(), sequence, open.durable));
                locations.push(location(open.segment.key(), offset, draft));
                sequences.push(sequence);
                offset += draft.total_bytes() as u64;
            }
            appended.push(Appended { locations, sequences, applying: Some(applying) });
        }
        let may_fill = sync && batch.iter().any(|request| request.may_fill);
        if may_fill && let Some(filler) = filler(open.offset, offset, self.directory.segment_bytes()) {
            let sequence = self.sequence.fetch_add(1, Ordering::SeqCst);
            buffers.extend(filler.encode(open.segment.binding(), sequence, open.durable));
            offset += filler.total_bytes() as u64;
        }
        let started = self.clock.monotonic();
        let written = match sync {
            true => open.segment.write_synced(open.offset, buffers).await,
            false => open.segment.write(open.offset, buffers).await,
        };
        if let Err(error) = written {
            return Err(self.give_up(error, appended).await);
        }
        let end = Position { segment: open.segment.key().number, offset };
        self.aborted_recorded = recorded + aborted.len();
        if bytes > 0 {
            *self.changes_end.lock() = Some(end);
        }
        let bytes = offset - open.offset;
        open.segment.length.store(offset, Ordering::SeqCst);
        self.directory.grew(bytes);
        open.offset = offset;
        if sync {
            open.durable = offset;
        }
        *self.end.lock() = end;
        self.observe(batch.len(), bytes, self.clock.monotonic().saturating_sub(started));
        Ok(appended)
    }

    /// Handles a failed write. What it left after the end of the log is cut off; when that is not possible,
    /// the directory takes no more writes. The records may then be there after a restart, so they are aborted:
    /// neither later commits in other directories nor snapshots know of them.
    async fn give_up(&self, error: std::io::Error, appended: Vec<Appended>) -> Error {
        let error = self.directory.refused("could not append to the log", error);
        let cut = match &self.open {
            // Durably: a sync of others may have brought the records to the disk.
            Some(open) if error.kind == ErrorKind::Full => match open.segment.cut(open.offset).await {
                Ok(()) => open.segment.sync().await,
                failed => failed,
            },
            Some(_) | None => Ok(()),
        };
        if let Err(error) = &cut {
            self.directory.fail(&format!("could not cut the log: {error}"));
        }
        if error.kind != ErrorKind::Full || cut.is_err() {
            // Nothing else follows these records in this log, except the padding of their page.
            let abort = appended.iter().find_map(Appended::abort).map(|abort| AbortBody { last: u64::MAX, ..abort });
            // Drop the marks first, as in `answer_written`.
            drop(appended);
            self.aborted.add(abort);
        }
        error
    }

    fn observe(&self, commits: usize, bytes: u64, elapsed: std::time::Duration) {
        let mut counters = self.counters.lock();
        counters.group_commits += 1;
        counters.appended_bytes += bytes;
        drop(counters);
        if let Some(observer) = &self.observer {
            observer.group_commit(&self.directory.disk.label(), commits, bytes, elapsed);
        }
    }

    /// Begins a new segment when the open one is full. The old one is synced first, so the existence of a later segment
    /// proves that all of the earlier one is durable.
    async fn make_room(&mut self, bytes: u64) -> Result<()> {
        if let Some(open) = &self.open {
            if open.offset + bytes <= self.directory.segment_bytes() {
                return Ok(());
            }
            if let Err(error) = open.segment.sync().await {
                return Err(sync_failed(&self.directory, error));
            }
            open.segment.sealed.store(true, Ordering::SeqCst);
            self.open = None;
        }
        let sequence = self.sequence.load(Ordering::SeqCst);
        let segment = self.directory.create_segment(SegmentKind::Log, sequence).await?;
        let offset = segment.length();
        *self.end.lock() = Position { segment: segment.key().number, offset };
        self.open = Some(Open { segment, offset, durable: offset });
        Ok(())
    }
}

/// The padding after records from `start` to `end`, so that the next record begins a page. `None` when it is not worth
/// it.
fn filler(start: u64, end: u64, segment_bytes: u64) -> Option<Draft> {
    let next = end.next_multiple_of(PAGE_BYTES);
    let is_worth_it = (next - end) * FILLED_MIN <= end - start && next <= segment_bytes;
    if is_worth_it { CommitBody::filler((next - end) as usize) } else { None }
}

fn sync_failed(directory: &Directory, error: std::io::Error) -> Error {
    directory.fail(&format!("could not sync the log: {error}"));
    Error::io("could not sync the log", error)
}
