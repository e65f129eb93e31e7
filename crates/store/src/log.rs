//! The log of one directory: one task that appends what has queued, syncs once for all, and wakes everybody.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use forebay_env::{Clock, Task};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::directory::Directory;
use crate::record::Draft;
use crate::segment::{Segment, SegmentKey, SegmentKind};
use crate::table::Location;
use crate::{Counters, Error, ErrorKind, Observer, Result};

/// Requests that may wait for the log. Beyond it, committers wait to get in.
const QUEUE_MAX: usize = 4096;

/// Bytes of one group commit, so that no commit waits for an endless batch.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// A place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub(crate) struct Position {
    pub(crate) segment: u32,
    pub(crate) offset: u64,
}

/// Where the records of a request went.
pub(crate) struct Appended {
    pub(crate) locations: Vec<Location>,
    /// The sequence of each record.
    pub(crate) sequences: Vec<u64>,
    /// Dropped when the tables show what the records say.
    pub(crate) applying: Option<Applying>,
}

/// Marks records as written and not yet applied: a snapshot must not skip them.
pub(crate) struct Applying {
    marks: Arc<Marks>,
    mark: (Position, u64),
}

/// Positions of records that are not applied yet; the number keeps requests at one position apart.
#[derive(Default)]
struct Marks {
    applying: Mutex<BTreeSet<(Position, u64)>>,
    next: AtomicU64,
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
    }
}

struct Request {
    drafts: Vec<Draft>,
    sync: bool,
    done: oneshot::Sender<Result<Appended>>,
}

/// The handle to a log.
pub(crate) struct Log {
    sender: Mutex<Option<mpsc::Sender<Request>>>,
    task: Mutex<Option<Task<()>>>,
    marks: Arc<Marks>,
    /// Where the next record goes.
    end: Arc<Mutex<Option<Position>>>,
}

/// What the task works with.
struct Appender {
    directory: Arc<Directory>,
    sequence: Arc<AtomicU64>,
    counters: Arc<Mutex<Counters>>,
    clock: Arc<dyn Clock>,
    observer: Option<Arc<dyn Observer>>,
    segment_bytes: u64,
    marks: Arc<Marks>,
    end: Arc<Mutex<Option<Position>>>,
    open: Option<Open>,
}

struct Open {
    segment: Arc<Segment>,
    offset: u64,
    durable: u64,
}

/// What a log needs of its store.
pub(crate) struct LogParts {
    pub(crate) directory: Arc<Directory>,
    pub(crate) sequence: Arc<AtomicU64>,
    pub(crate) counters: Arc<Mutex<Counters>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) segment_bytes: u64,
}

impl Log {
    pub(crate) fn start(parts: LogParts) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let (marks, end) = (Arc::<Marks>::default(), Arc::default());
        let LogParts { directory, sequence, counters, clock, observer, segment_bytes } = parts;
        let appender = Appender {
            directory,
            sequence,
            counters,
            clock,
            observer,
            segment_bytes,
            marks: Arc::clone(&marks),
            end: Arc::clone(&end),
            open: None,
        };
        let task = forebay_env::spawn(appender.run(receiver));
        Self { sender: Mutex::new(Some(sender)), task: Mutex::new(Some(task)), marks, end }
    }

    /// Appends records one behind the other; with `sync`, returns when they are on stable storage, else when the
    /// operating system has them.
    pub(crate) async fn append(&self, drafts: Vec<Draft>, sync: bool) -> Result<Appended> {
        let sender = self.sender.lock().clone().ok_or_else(closed)?;
        let (done, answer) = oneshot::channel();
        sender.send(Request { drafts, sync, done }).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Syncs all that was appended so far.
    pub(crate) async fn barrier(&self) -> Result<()> {
        self.append(Vec::new(), true).await.map(drop)
    }

    /// Where a replay must begin so as not to miss what the tables don't show yet. `None` before the first record.
    pub(crate) fn replay_from(&self) -> Option<Position> {
        // The end first: what is appended later is marked, or lies behind it.
        let end = *self.end.lock();
        self.marks
            .applying
            .lock()
            .first()
            .map(|(position, _)| *position)
            .or(end)
            .map(|first| end.map_or(first, |end| first.min(end)))
    }

    /// Ends the task after what has queued.
    pub(crate) async fn close(&self) {
        drop(self.sender.lock().take());
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.join().await;
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is closed")
}

impl Appender {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(first) = requests.recv().await {
            let mut bytes: usize = first.drafts.iter().map(Draft::total_bytes).sum();
            let mut batch = vec![first];
            while bytes < BATCH_BYTES_MAX {
                let Ok(next) = requests.try_recv() else { break };
                bytes += next.drafts.iter().map(Draft::total_bytes).sum::<usize>();
                batch.push(next);
            }
            match self.append(&batch, bytes as u64).await {
                Ok(appended) => batch.into_iter().zip(appended).for_each(|(request, appended)| {
                    // A committer that has gone away leaves its commit done.
                    let _ = request.done.send(Ok(appended));
                }),
                Err(error) => batch.into_iter().for_each(|request| {
                    let copy = Error { kind: error.kind, context: error.context.clone(), source: None };
                    let _ = request.done.send(Err(copy));
                }),
            }
        }
    }

    async fn append(&mut self, batch: &[Request], bytes: u64) -> Result<Vec<Appended>> {
        self.directory.check()?;
        if bytes == 0 && self.open.is_none() {
            // A barrier, and nothing before it that this process wrote.
            let nothing = |_: &Request| Appended { locations: Vec::new(), sequences: Vec::new(), applying: None };
            return Ok(batch.iter().map(nothing).collect());
        }
        let sync = batch.iter().any(|request| request.sync);
        self.make_room(bytes).await?;
        let open = self.open.as_mut().expect("room was made in an open segment");
        let mut offset = open.offset;
        let mut buffers: Vec<Bytes> = Vec::new();
        let mut appended = Vec::with_capacity(batch.len());
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
        let started = self.clock.monotonic();
        if let Err(error) = open.segment.write(open.offset, buffers).await {
            return Err(self.give_up(error).await);
        }
        open.segment.length.store(offset, Ordering::SeqCst);
        self.directory.grew(offset - open.offset);
        open.offset = offset;
        *self.end.lock() = Some(Position { segment: open.segment.key().number, offset });
        if sync {
            if let Err(error) = open.segment.sync().await {
                return Err(sync_failed(&self.directory, error));
            }
            open.durable = offset;
        }
        self.observe(batch.len(), bytes, self.clock.monotonic().saturating_sub(started));
        Ok(appended)
    }

    /// A write failed. What it left behind the end is cut off, or the directory is given up.
    async fn give_up(&self, error: std::io::Error) -> Error {
        let error = self.directory.refused("could not append to the log", error);
        if let (ErrorKind::Full, Some(open)) = (error.kind, &self.open)
            && let Err(error) = open.segment.file.set_len(open.offset).await
        {
            self.directory.fail(&format!("could not cut the log: {error}"));
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

    /// Begins a new segment when the open one is full. The old one is synced first: that a later segment exists proves that
    /// all of the earlier one was durable.
    async fn make_room(&mut self, bytes: u64) -> Result<()> {
        if let Some(open) = &self.open {
            if open.offset + bytes <= self.segment_bytes {
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
        *self.end.lock() = Some(Position { segment: segment.key().number, offset });
        self.open = Some(Open { segment, offset, durable: offset });
        Ok(())
    }
}

fn sync_failed(directory: &Directory, error: std::io::Error) -> Error {
    directory.fail(&format!("could not sync the log: {error}"));
    Error::io("could not sync the log", error)
}

pub(crate) fn location(segment: SegmentKey, offset: u64, draft: &Draft) -> Location {
    Location {
        segment,
        offset: u32::try_from(offset).expect("segments are smaller than 4 GiB"),
        head_bytes: draft.head_bytes() as u32,
        payload_bytes: draft.payload.len() as u32,
    }
}
