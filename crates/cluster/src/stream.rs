//! The transactions of one worker, one after the other: a group commit on the engine.
//!
//! Each transaction checks the record of the stream, and writes it anew with the next number. So a transaction whose answer was lost is told
//! from one that was not done, is done once however often it is sent, and can't be done after a later one. Whoever begins the stream again
//! takes it over: what its former owner has sent and is not done by then is never done.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::{Check, Engine, Error, ErrorKind, Result};
use forebay_env::sync::Mutex;
use forebay_env::{Clock, Env};
use forebay_store::ValueWrite;
use tokio::sync::{mpsc, oneshot};

/// Writes in one transaction, with that of the stream: etcd takes 128 by default.
const WRITES_MAX: usize = 120;

/// Bytes of keys and values in one transaction: etcd takes 1.5 MiB by default.
const BYTES_MAX: usize = 1 << 20;

/// Requests that may wait; beyond it, committers wait to get in.
const QUEUE_MAX: usize = 4096;

/// Pause before a transaction without an answer is sent again, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

struct Request {
    writes: Vec<ValueWrite>,
    done: oneshot::Sender<Result<()>>,
}

/// The handle.
pub(crate) struct Stream {
    sender: mpsc::Sender<Request>,
    lost: Arc<Lost>,
}

/// Why the worker is the home of nothing any more.
#[derive(Default)]
pub(crate) struct Lost(Mutex<Option<String>>);

impl Lost {
    /// The first reason counts.
    fn set(&self, reason: &str) {
        let mut lost = self.0.lock();
        if lost.is_none() {
            tracing::error!(reason, "this worker has lost its keys until it starts again");
            *lost = Some(reason.to_owned());
        }
    }

    /// # Errors
    /// `Unavailable` from the loss on.
    fn check(&self) -> Result<()> {
        match &*self.0.lock() {
            None => Ok(()),
            Some(reason) => Err(Error::new(ErrorKind::Unavailable, format!("this worker has lost its keys: {reason}"))),
        }
    }
}

/// The record of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Of the life that owns the stream.
    life: u64,
    /// Of the last transaction.
    number: u64,
}

impl Place {
    fn encode(self) -> Bytes {
        [self.life, self.number].map(u64::to_be_bytes).concat().into()
    }
}

struct Committer {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    lost: Arc<Lost>,
    key: Bytes,
    /// The last transaction that is done, and the version that it got.
    place: Place,
    version: u64,
    /// For how long a transaction is tried.
    patience: Duration,
}

impl Stream {
    /// Takes the stream over from whoever has it.
    ///
    /// # Errors
    /// `Unavailable` when the engine does not answer for as long as `patience`.
    pub(crate) async fn take_over(env: &Env, engine: Arc<dyn Engine>, key: Bytes, patience: Duration) -> Result<Self> {
        let (clock, lost) = (Arc::clone(&env.clock), Arc::<Lost>::default());
        let place = Place { life: env.random.next_u64(), number: 0 };
        let version = {
            let until = clock.monotonic() + patience;
            let mut pause = RETRY_MIN;
            loop {
                match begin(engine.as_ref(), &key, place).await {
                    Ok(version) => break version,
                    Err(error) if clock.monotonic() >= until => return Err(error),
                    Err(_) => {}
                }
                clock.sleep(pause).await;
                pause = (2 * pause).min(RETRY_MAX);
            }
        };
        let committer = Committer { engine, clock, lost: Arc::clone(&lost), key, place, version, patience };
        let (sender, requests) = mpsc::channel(QUEUE_MAX);
        forebay_env::spawn(committer.run(requests));
        Ok(Self { sender, lost })
    }

    /// # Errors
    /// `Unavailable` when the worker has lost its keys.
    pub(crate) fn check(&self) -> Result<()> {
        self.lost.check()
    }

    /// Returns when the engine has these writes.
    ///
    /// # Errors
    /// `Unavailable` when they are not done, `Unknown` when they may be or not. The worker has lost its keys then.
    pub(crate) async fn commit(&self, writes: Vec<ValueWrite>) -> Result<()> {
        self.check()?;
        let (done, answer) = oneshot::channel();
        let ended = |_| Error::new(ErrorKind::Unavailable, "the catalog is closed");
        self.sender.send(Request { writes, done }).await.map_err(|_| ended(()))?;
        answer.await.map_err(|_| Error::new(ErrorKind::Unknown, "the catalog was closed meanwhile"))?
    }
}

/// Writes the first record of a life over whatever is there. Returns its version.
async fn begin(engine: &dyn Engine, key: &Bytes, place: Place) -> Result<u64> {
    let found = engine.get(key).await?;
    if let Some(found) = found.as_ref().filter(|found| found.value == place.encode()) {
        return Ok(found.version);
    }
    let checks = [Check { key: key.clone(), version: found.map(|found| found.version) }];
    engine.commit(&checks, &[ValueWrite { key: key.clone(), value: Some(place.encode()) }]).await
}

impl Committer {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut next = requests.recv().await;
        while let Some(first) = next.take() {
            let mut size = Size::default();
            size.add(&first.writes);
            let mut batch = vec![first];
            while let Ok(request) = requests.try_recv() {
                if !size.takes(&request.writes) {
                    next = Some(request);
                    break;
                }
                size.add(&request.writes);
                batch.push(request);
            }
            self.commit(batch).await;
            if next.is_none() {
                next = requests.recv().await;
            }
        }
    }

    async fn commit(&mut self, batch: Vec<Request>) {
        if let Err(error) = self.lost.check() {
            batch.into_iter().for_each(|request| answer(request, Err(copy(&error))));
            return;
        }
        let place = Place { number: self.place.number + 1, ..self.place };
        let of_stream = ValueWrite { key: self.key.clone(), value: Some(place.encode()) };
        let writes = batch.iter().flat_map(|request| &request.writes).cloned().chain([of_stream]).collect::<Vec<_>>();
        match self.try_until_answered(&writes, place).await {
            Ok(version) => {
                (self.place, self.version) = (place, version);
                batch.into_iter().for_each(|request| answer(request, Ok(())));
            }
            Err(error) => {
                self.lost.set(&error.to_string());
                batch.into_iter().for_each(|request| answer(request, Err(copy(&error))));
            }
        }
    }

    /// # Errors
    /// `Unavailable` when the stream was taken over and the writes are not done. `Unknown` when they may be: the engine did not answer for too
    /// long, or had not when the stream was taken over.
    async fn try_until_answered(&self, writes: &[ValueWrite], place: Place) -> Result<u64> {
        let checks = [Check { key: self.key.clone(), version: Some(self.version) }];
        let until = self.clock.monotonic() + self.patience;
        let (mut pause, mut is_in_doubt) = (RETRY_MIN, false);
        loop {
            let result = match self.engine.commit(&checks, writes).await {
                Err(error) if error.kind == ErrorKind::Conflict => self.look(place).await,
                result => result,
            };
            match result {
                Ok(version) => return Ok(version),
                Err(error) if error.kind == ErrorKind::Conflict => {
                    let kind = if is_in_doubt { ErrorKind::Unknown } else { ErrorKind::Unavailable };
                    return Err(Error::new(kind, "another process has taken its place"));
                }
                Err(error) if self.clock.monotonic() >= until => {
                    return Err(Error::new(ErrorKind::Unknown, format!("the engine does not answer: {error}")));
                }
                Err(error) => is_in_doubt |= error.kind == ErrorKind::Unknown,
            }
            self.clock.sleep(pause).await;
            pause = (2 * pause).min(RETRY_MAX);
        }
    }

    /// The check of the stream did not hold: an earlier try of the same transaction was done, or somebody else has the stream.
    async fn look(&self, place: Place) -> Result<u64> {
        match self.engine.get(&self.key).await? {
            Some(found) if found.value == place.encode() => Ok(found.version),
            Some(_) | None => Err(Error::new(ErrorKind::Conflict, "the stream has moved on")),
        }
    }
}

/// What a transaction holds.
#[derive(Default)]
struct Size {
    writes: usize,
    bytes: usize,
}

impl Size {
    fn of(writes: &[ValueWrite]) -> Self {
        let bytes = |write: &ValueWrite| write.key.len() + write.value.as_ref().map_or(0, Bytes::len);
        Self { writes: writes.len(), bytes: writes.iter().map(bytes).sum() }
    }

    fn add(&mut self, writes: &[ValueWrite]) {
        let more = Self::of(writes);
        (self.writes, self.bytes) = (self.writes + more.writes, self.bytes + more.bytes);
    }

    fn takes(&self, writes: &[ValueWrite]) -> bool {
        let more = Self::of(writes);
        self.writes + more.writes < WRITES_MAX && self.bytes + more.bytes <= BYTES_MAX
    }
}

fn answer(request: Request, result: Result<()>) {
    // A committer that has gone away leaves its writes done.
    let _ = request.done.send(result);
}

/// For each who waits.
fn copy(error: &Error) -> Error {
    Error::new(error.kind, error.context.clone())
}

#[cfg(test)]
mod tests;
