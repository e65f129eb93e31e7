//! An engine that loses answers on request.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_catalog::{Check, Engine, Error, ErrorKind, MemoryEngine, Result, Versioned};
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicUsize, Ordering};
use forebay_store::ValueWrite;
use tokio::sync::Semaphore;

/// The fate of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Done, and the answer is lost.
    AnswerLost,
    /// Not done, which nobody knows.
    Lost,
    /// Not done before [`TestEngine::deliver`].
    Late,
    /// Nothing is done or answered from here on.
    Silence,
    /// Reads are answered and transactions refused from here on.
    Full,
}

/// The checks and writes of a transaction.
type Held = (Vec<Check>, Vec<ValueWrite>);

pub(crate) struct TestEngine {
    inner: Arc<MemoryEngine>,
    fates: Mutex<VecDeque<Fate>>,
    late: Mutex<Vec<Held>>,
    /// Transactions that have come.
    pub(crate) asked: AtomicUsize,
    /// Holds a permit for each that may proceed.
    pub(crate) gate: Semaphore,
    pub(crate) transactions: Mutex<Vec<usize>>,
    /// Scans that have come.
    pub(crate) scans: AtomicUsize,
}

impl TestEngine {
    pub(crate) fn new(fates: &[Fate]) -> Self {
        Self::on(Arc::default(), fates)
    }

    /// The same engine, as another worker reaches it.
    pub(crate) fn beside(&self) -> Self {
        Self::on(Arc::clone(&self.inner), &[])
    }

    fn on(inner: Arc<MemoryEngine>, fates: &[Fate]) -> Self {
        Self {
            inner,
            fates: Mutex::new(fates.iter().copied().collect()),
            late: Mutex::default(),
            asked: AtomicUsize::new(0),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            transactions: Mutex::default(),
            scans: AtomicUsize::new(0),
        }
    }

    pub(crate) fn expect(&self, fate: Fate) {
        self.fates.lock().push_back(fate);
    }

    /// Ends a silence, or makes room.
    pub(crate) fn hear_again(&self) {
        self.fates.lock().clear();
    }

    fn hear(&self) -> Result<()> {
        match self.fates.lock().front() {
            Some(Fate::Silence) => Err(Error::new(ErrorKind::Unavailable, "nothing is heard")),
            Some(_) | None => Ok(()),
        }
    }

    /// Does the late transactions, in order. Returns the result of each.
    pub(crate) async fn deliver(&self) -> Vec<Result<u64>> {
        let late = std::mem::take(&mut *self.late.lock());
        let mut done = Vec::new();
        for (checks, writes) in late {
            done.push(self.inner.commit(&checks, &writes).await);
        }
        done
    }

    pub(crate) async fn value(&self, key: &str) -> Option<String> {
        let found = self.inner.get(key.as_bytes()).await.expect("an engine in memory answers");
        found.map(|found| String::from_utf8(found.value.to_vec()).expect("a text"))
    }
}

#[async_trait]
impl Engine for TestEngine {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        self.hear()?;
        self.inner.get(key).await
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        self.scans.fetch_add(1, Ordering::SeqCst);
        self.hear()?;
        self.inner.scan(from, to, limit).await
    }

    async fn commit(&self, checks: &[Check], writes: &[ValueWrite]) -> Result<u64> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.expect("the gate is never closed").forget();
        self.transactions.lock().push(writes.len());
        let fate = {
            let mut fates = self.fates.lock();
            let lasting = fates.front().copied().filter(|fate| matches!(fate, Fate::Silence | Fate::Full));
            lasting.or_else(|| fates.pop_front())
        };
        match fate {
            None => return self.inner.commit(checks, writes).await,
            Some(Fate::Full) => return Err(Error::new(ErrorKind::Busy, "there is no room")),
            Some(Fate::AnswerLost) => drop(self.inner.commit(checks, writes).await),
            Some(Fate::Late) => self.late.lock().push((checks.to_vec(), writes.to_vec())),
            Some(Fate::Lost | Fate::Silence) => {}
        }
        Err(Error::new(ErrorKind::Unknown, "the answer is lost"))
    }
}
