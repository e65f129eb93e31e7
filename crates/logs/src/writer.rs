//! The single task that writes a log, and its queue.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_env::{Clock, Env};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot};

use crate::file::{FileSettings, Outcome, RotatingFile};

/// Most bytes that wait for the disk. At 500 bytes a line and 20,000 requests a second, a disk may hang for nearly 2 s.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Most messages that are written at once.
const BATCH_MAX: usize = 16 << 10;
/// How long a line waits for others to be written with it: a write for each line would cost as much as a small request.
const GATHERING: Duration = Duration::from_millis(50);
/// How often, at most, the log on standard error reports dropped lines.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);
/// How long a stop waits for a disk that does not answer.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LogLabels {
    log: &'static str,
}

/// Lines that are in no file, by log. Clones share them.
#[derive(Clone, Default)]
pub struct LogMetrics {
    dropped: Family<LogLabels, Counter>,
}

impl LogMetrics {
    pub fn register(&self, registry: &mut Registry) {
        let help = "Log lines dropped because the disk was full or too slow";
        registry.register("forebay_log_lines_dropped", help, self.dropped.clone());
    }
}

/// A log. Clones share it.
#[derive(Clone)]
pub struct LogWriter {
    // The number of messages is not bounded, but `waiting` bounds their bytes.
    queue: mpsc::UnboundedSender<Message>,
    waiting: Arc<AtomicUsize>,
    dropped: Counter,
    clock: Arc<dyn Clock>,
}

enum Message {
    Line(String),
    Reopen,
    /// Asks for an answer when everything before it is in the file.
    Flush(oneshot::Sender<()>),
}

impl LogWriter {
    /// Opens the file and starts the task that writes it, which ends with the last clone.
    pub fn start(name: &'static str, settings: FileSettings, env: &Env, metrics: &LogMetrics) -> io::Result<Self> {
        let file = RotatingFile::open(settings.clone())?;
        let (queue, messages) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let dropped = metrics.dropped.get_or_create(&LogLabels { log: name }).clone();
        let state = State { name, settings, failing: false, said: 0, said_at: None };
        let writer = Self { queue, waiting, dropped, clock: Arc::clone(&env.clock) };
        let (waiting, dropped, clock) = (Arc::clone(&writer.waiting), writer.dropped.clone(), Arc::clone(&env.clock));
        forebay_env::spawn(async move { state.run(file, messages, waiting, dropped, clock).await });
        Ok(writer)
    }

    /// Queues a line, which ends with a line feed. Never waits. Returns whether there was room.
    pub fn write(&self, line: String) -> bool {
        let length = line.len();
        let waiting = self.waiting.fetch_add(length, Ordering::Relaxed);
        if waiting + length > WAITING_BYTES_MAX || self.queue.send(Message::Line(line)).is_err() {
            self.waiting.fetch_sub(length, Ordering::Relaxed);
            self.dropped.inc();
            return false;
        }
        true
    }

    /// Opens the file again, after what is queued.
    pub fn reopen(&self) {
        // Without the task there is no file, either.
        let _ = self.queue.send(Message::Reopen);
    }

    /// Returns when the disk has what was queued, or when that takes too long.
    pub async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.queue.send(Message::Flush(done)).is_ok() {
            tokio::select! {
                _ = wait => {}
                () = self.clock.sleep(FLUSH_TIMEOUT) => tracing::warn!("a log was not written to its end in time"),
            }
        }
    }
}

/// What the writing task knows besides the file.
struct State {
    name: &'static str,
    settings: FileSettings,
    /// The last write failed, and that was reported.
    failing: bool,
    /// Dropped lines that were reported, and when.
    said: u64,
    said_at: Option<Duration>,
}

impl State {
    async fn run(
        mut self,
        mut file: RotatingFile,
        mut messages: mpsc::UnboundedReceiver<Message>,
        waiting: Arc<AtomicUsize>,
        dropped: Counter,
        clock: Arc<dyn Clock>,
    ) {
        let mut batch = Vec::new();
        while let Some(first) = messages.recv().await {
            batch.push(first);
            clock.sleep(GATHERING).await;
            while batch.len() < BATCH_MAX
                && let Ok(message) = messages.try_recv()
            {
                batch.push(message);
            }
            let mut lines = Vec::new();
            for message in batch.drain(..) {
                match message {
                    Message::Line(line) => lines.push(line),
                    Message::Reopen => {
                        file = self.write(file, std::mem::take(&mut lines), &waiting, &dropped).await;
                        file = self.reopen(file).await;
                    }
                    Message::Flush(done) => {
                        file = self.write(file, std::mem::take(&mut lines), &waiting, &dropped).await;
                        file = self.sync(file).await;
                        // Nobody waits any more if it took too long.
                        let _ = done.send(());
                    }
                }
            }
            file = self.write(file, lines, &waiting, &dropped).await;
            self.complain(dropped.get(), clock.monotonic());
        }
    }

    async fn write(
        &mut self,
        mut file: RotatingFile,
        lines: Vec<String>,
        waiting: &AtomicUsize,
        dropped: &Counter,
    ) -> RotatingFile {
        if lines.is_empty() {
            return file;
        }
        let bytes: usize = lines.iter().map(String::len).sum();
        let (file, outcome) = off_the_runtime(move || {
            let outcome = file.write(&lines);
            (file, outcome)
        })
        .await;
        waiting.fetch_sub(bytes, Ordering::Relaxed);
        dropped.inc_by(outcome.lost as u64);
        self.note(outcome);
        file
    }

    async fn reopen(&mut self, mut file: RotatingFile) -> RotatingFile {
        let (file, reopened) = off_the_runtime(move || {
            let reopened = file.reopen();
            (file, reopened)
        })
        .await;
        match reopened {
            Ok(()) => tracing::info!(log = self.name, "log file opened again"),
            Err(error) => self.note(Outcome { lost: 0, error: Some(error) }),
        }
        file
    }

    async fn sync(&mut self, file: RotatingFile) -> RotatingFile {
        let (file, synced) = off_the_runtime(move || {
            let synced = file.sync();
            (file, synced)
        })
        .await;
        if let Err(error) = synced {
            self.note(Outcome { lost: 0, error: Some(error) });
        }
        file
    }

    /// Reports once that the disk refuses lines, and once that it accepts them again.
    fn note(&mut self, outcome: Outcome) {
        let (log, path) = (self.name, self.settings.path.display());
        match outcome.error {
            Some(error) if !self.failing => {
                self.failing = true;
                tracing::error!(log, %path, lost = outcome.lost, %error, "a log cannot be written; requests are served without it");
            }
            None if self.failing => {
                self.failing = false;
                tracing::info!(log, %path, "the log is written again");
            }
            Some(_) | None => {}
        }
    }

    fn complain(&mut self, dropped: u64, now: Duration) {
        let quiet = self.said_at.is_some_and(|at| now.saturating_sub(at) < COMPLAINT_INTERVAL);
        if dropped > self.said && !quiet {
            tracing::warn!(log = self.name, lines = dropped - self.said, "lines of a log were dropped");
            (self.said, self.said_at) = (dropped, Some(now));
        }
    }
}

/// Runs blocking work where it delays nothing else. A panic in it continues here.
async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(directory: &std::path::Path) -> (LogWriter, FileSettings) {
        let settings = FileSettings { path: directory.join("log"), bytes_max: 1 << 30, files_max: 1 };
        let writer = LogWriter::start("test", settings.clone(), &Env::real(), &LogMetrics::default()).unwrap();
        (writer, settings)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_written_before_a_flush_is_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let (writer, settings) = start(directory.path());
        let expected: String = (0..10_000).map(|number| format!("line {number}\n")).collect();
        for line in expected.split_inclusive('\n') {
            assert!(writer.write(line.to_owned()));
        }
        writer.flush().await;
        assert_eq!(std::fs::read_to_string(&settings.path).unwrap(), expected);
        assert_eq!(writer.waiting.load(Ordering::Relaxed), 0);
    }

    // On one thread nothing is written before the first await.
    #[tokio::test]
    async fn what_does_not_fit_is_dropped_and_counted_and_the_rest_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let (writer, settings) = start(directory.path());
        let line = format!("{}\n", "x".repeat((1 << 20) - 1));
        let taken = (0..20).filter(|_| writer.write(line.clone())).count();
        assert_eq!(taken, WAITING_BYTES_MAX >> 20);
        assert_eq!(writer.dropped.get(), 20 - taken as u64);
        writer.flush().await;
        assert_eq!(std::fs::metadata(&settings.path).unwrap().len(), WAITING_BYTES_MAX as u64);
        assert!(writer.write(line));
    }

    #[tokio::test]
    async fn lines_before_a_reopening_go_to_the_old_file_and_those_after_it_to_the_new() {
        let directory = tempfile::tempdir().unwrap();
        let (writer, settings) = start(directory.path());
        writer.write("old\n".into());
        let renamed = directory.path().join("renamed");
        std::fs::rename(&settings.path, &renamed).unwrap();
        writer.reopen();
        writer.write("new\n".into());
        writer.flush().await;
        assert_eq!(std::fs::read_to_string(&renamed).unwrap(), "old\n");
        assert_eq!(std::fs::read_to_string(&settings.path).unwrap(), "new\n");
    }

    #[test]
    fn dropped_lines_are_spoken_of_once_in_an_interval() {
        let settings = FileSettings { path: "log".into(), bytes_max: 0, files_max: 1 };
        let mut state = State { name: "test", settings, failing: false, said: 0, said_at: None };
        let second = Duration::from_secs(1);
        state.complain(0, second);
        assert_eq!(state.said_at, None);
        state.complain(5, second);
        assert_eq!((state.said, state.said_at), (5, Some(second)));
        state.complain(9, 2 * second);
        assert_eq!(state.said, 5);
        state.complain(9, second + COMPLAINT_INTERVAL);
        assert_eq!(state.said, 9);
    }
}
