//! The catalog of a worker that is at home on an engine. The store's table of values shows what the engine has, so that lookups stay local;
//! every commit is done on the engine first, when the bytes that it names are safe here.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_catalog::{
    Catalog, Engine, ErrorKind, Generations, KeyLocks, Result, Transaction, Versioned, Watch, Watchers, keys_of,
    records, verify,
};
use forebay_env::Env;
use forebay_env::sync::Mutex;
use forebay_store::{Commit, Staged, Store, ValueWrite};
use forebay_types::Durability;
use tracing::Instrument;

use crate::generations::Blocks;
use crate::stream::Stream;

/// Values that are compared, or written, in one go at a start.
const LOADED_VALUES: usize = 1000;

/// Pause before the engine is asked again at a start.
const LOAD_PAUSE: Duration = Duration::from_millis(100);

/// Behind all keys of the catalog, which are text.
const BEHIND_ALL: &[u8] = &[0xff];

#[derive(Debug, Clone)]
pub struct HomeSettings {
    /// Names the worker's records in the engine.
    pub worker: String,
    /// For how long a transaction is tried on an engine that does not answer. Then the worker has lost its keys: nothing is read or
    /// written any more until it starts again.
    pub patience: Duration,
}

/// A [`Catalog`] on an [`Engine`].
pub struct HomeCatalog {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    store: Store,
    engine: Arc<dyn Engine>,
    stream: Stream,
    /// Commits on one key go one after the other: a check must still hold when the commit is done, here and on the engine.
    locks: Arc<KeyLocks>,
    watchers: Watchers,
    /// Prepared for commits that failed, and kept until the next start.
    undecided: Mutex<Vec<Staged>>,
}

impl HomeCatalog {
    /// Takes over what the worker has on the engine, and makes the store show that: its values, and the prepared objects that these name.
    ///
    /// # Errors
    /// `Unavailable` when the engine does not answer in time; `Corrupt` for records that can't be decoded; whatever the store answers.
    pub async fn open(env: Env, store: Store, engine: Arc<dyn Engine>, settings: HomeSettings) -> Result<Self> {
        let HomeSettings { worker, patience } = settings;
        let stream_key = Bytes::from(format!("stream/{worker}"));
        // First: what an earlier life has sent is done by now, or never.
        let stream = Stream::take_over(&env, Arc::clone(&engine), stream_key, patience).await?;
        let (locks, watchers, undecided) = (Arc::default(), Watchers::default(), Mutex::default());
        let inner = Inner { env, store, engine, stream, locks, watchers, undecided };
        inner.load().await?;
        inner.publish_prepared().await?;
        Ok(Self { inner: Arc::new(inner) })
    }
}

/// Where a record of the catalog stands in the engine.
fn engine_key(key: &[u8]) -> Bytes {
    [b"catalog/", key].concat().into()
}

/// All records, and behind a key all that follow.
fn engine_range(after: Option<&Bytes>) -> (Bytes, Bytes) {
    let from = after.map_or_else(|| engine_key(b""), |key| engine_key(&records::successor(key)));
    (from, engine_key(BEHIND_ALL))
}

impl Inner {
    /// Makes the store's values those of the engine.
    async fn load(&self) -> Result<()> {
        let mut after: Option<Bytes> = None;
        loop {
            let (from, to) = engine_range(after.as_ref());
            let found = self.tried(|| self.engine.scan(&from, &to, LOADED_VALUES)).await?;
            let prefix = engine_key(b"").len();
            let found: Vec<_> = found.into_iter().map(|(key, found)| (key.slice(prefix..), found.value)).collect();
            // All that the store has up to the last of them.
            let is_last = found.len() < LOADED_VALUES;
            let end = match found.last() {
                Some((last, _)) if !is_last => records::successor(last),
                Some(_) | None => Bytes::from_static(BEHIND_ALL),
            };
            let begin = after.as_deref().map_or_else(Bytes::new, records::successor);
            self.replace_values(&begin, &end, &found).await?;
            after = found.into_iter().next_back().map(|(key, _)| key);
            if is_last {
                return Ok(());
            }
        }
    }

    /// Writes what differs of a range.
    async fn replace_values(&self, from: &[u8], to: &[u8], values: &[(Bytes, Bytes)]) -> Result<()> {
        let is = |key: &Bytes| values.binary_search_by(|(other, _)| other.cmp(key)).is_ok();
        let mut writes: Vec<ValueWrite> = Vec::new();
        let mut begin = Bytes::copy_from_slice(from);
        loop {
            let here = self.store.scan(&begin, to, LOADED_VALUES);
            let Some((last, _)) = here.last() else { break };
            begin = records::successor(last);
            writes.extend(here.into_iter().filter(|(key, _)| !is(key)).map(|(key, _)| ValueWrite { key, value: None }));
        }
        let differs = |key: &Bytes, value: &Bytes| self.store.value(key).is_none_or(|found| found.value != *value);
        let changed = values.iter().filter(|(key, value)| differs(key, value));
        writes.extend(changed.map(|(key, value)| ValueWrite { key: key.clone(), value: Some(value.clone()) }));
        for writes in writes.chunks(LOADED_VALUES) {
            self.apply(Commit { writes: writes.to_vec(), ..Commit::default() }).await;
        }
        Ok(())
    }

    /// What the engine names of the prepared objects was acknowledged, or may have been. No transaction can name the others any more.
    async fn publish_prepared(&self) -> Result<()> {
        for staged in self.store.take_prepared() {
            let wanted = match self.store.value(staged.key()) {
                Some(found) => records::wanted_generation(staged.key(), &found.value)?,
                None => None,
            };
            if wanted == Some(staged.generation()) {
                self.apply(Commit { publish: vec![staged], ..Commit::default() }).await;
            }
        }
        Ok(())
    }

    /// Asks the engine again until it answers, as often as a start can bear.
    async fn tried<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T> {
        const TRIES: usize = 10;
        for _ in 1..TRIES {
            match ask().await {
                Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Unknown) => {}
                result => return result,
            }
            self.env.clock.sleep(LOAD_PAUSE).await;
        }
        ask().await
    }

    async fn commit(&self, transaction: Transaction) -> Result<u64> {
        let _guards = self.locks.lock(keys_of(&transaction)).await;
        self.stream.check()?;
        for check in &transaction.checks {
            verify(check, self.store.value(&check.key).as_ref())?;
        }
        let Transaction { writes, local, durability, may_wait, .. } = transaction;
        if writes.is_empty() {
            let (publish, forget, annotate) = (local.publish, local.forget, local.annotate);
            let commit = Commit { publish, forget, annotate, writes, may_wait };
            return Ok(self.store.commit(commit, durability).await?);
        }
        let mut publish = Vec::with_capacity(local.publish.len());
        for staged in local.publish {
            publish.push(self.store.prepare(staged).await?);
        }
        // A clean copy that came back after a crash would be served while the under store is out of reach. So it goes first, for good.
        let is_pinned = |key: &Bytes| self.store.peek(key).is_some_and(|object| object.is_pinned());
        let (pinned, clean): (Vec<_>, Vec<_>) = local.forget.into_iter().partition(is_pinned);
        if !clean.is_empty() {
            let commit = Commit { forget: clean, may_wait, ..Commit::default() };
            self.store.commit(commit, durability).await?;
        }
        let on_engine = writes.iter().map(|write| ValueWrite { key: engine_key(&write.key), ..write.clone() });
        if let Err(error) = self.stream.commit(on_engine.collect()).await {
            // The engine may have it: then the next start publishes them.
            self.undecided.lock().extend(publish);
            return Err(error);
        }
        // It holds. A start that misses some of the rest makes it up.
        let written: Vec<Bytes> = writes.iter().map(|write| write.key.clone()).collect();
        let commit = Commit { publish, forget: pinned, annotate: local.annotate, writes, may_wait };
        let version = self.apply(commit).await;
        for key in &written {
            self.watchers.changed(key, || self.store.value(key));
        }
        Ok(version)
    }

    /// Shows here what the engine has. Where the logs take no more, in memory alone: a start finds values and prepared objects again, and
    /// takes pinned objects without a record away.
    async fn apply(&self, mut commit: Commit) -> u64 {
        match self.store.commit_or_keep(&mut commit, Durability::Os).await {
            Ok(version) => version,
            Err(error) => {
                tracing::warn!(%error, "a change that the engine has is shown from memory alone");
                self.store.commit_in_memory(commit).await
            }
        }
    }
}

#[async_trait]
impl Catalog for HomeCatalog {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        self.inner.stream.check()?;
        Ok(self.inner.store.value(key))
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        self.inner.stream.check()?;
        Ok(self.inner.store.scan(from, to, limit))
    }

    /// Goes on to its end when the caller gives up waiting: the keys stay locked until engine and store show the same.
    async fn commit(&self, transaction: Transaction) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        forebay_env::spawn(async move { inner.commit(transaction).await }.in_current_span()).join().await
    }

    async fn watch(&self, key: &[u8]) -> Result<Watch> {
        Ok(self.inner.watchers.watch(key, || self.inner.store.value(key)))
    }

    async fn generations(&self, now_ms: u64) -> Result<Arc<dyn Generations>> {
        let engine = Arc::clone(&self.inner.engine);
        let blocks = self.inner.tried(|| Blocks::take(&self.inner.env, &engine, now_ms)).await?;
        Ok(Arc::new(blocks))
    }
}

#[cfg(test)]
mod tests;
