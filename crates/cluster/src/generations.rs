//! Generations of a worker on an engine: from blocks that one counter of the engine hands out, so that no two workers
//! and no two lives give the same. A life begins with a new block, above all that were taken before. The counter
//! follows the clock, and is raised when the engine was restored from a backup: that knows nothing of the blocks since.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_catalog::{Check, Engine, Error, ErrorKind, Generations, Result, first_generation};
use forebay_env::sync::Mutex;
use forebay_env::{Clock, Env};
use forebay_store::{Store, ValueWrite};
use forebay_types::Generation;

/// Where the next block begins: eight bytes, big-endian.
const KEY: &[u8] = b"generations";

/// Generations of a block. Of 64 bits, as many blocks are left when the counter begins at the time of today.
const BLOCK: u64 = 1 << 32;

/// The counter follows the clock up to here, the year 2109. So a clock that is far ahead uses up few of the numbers.
const TIME_MAX: u64 = 1 << 58;

/// What a counter that was set back skips: as many blocks as workers may have taken since the backup. A million
/// restores use up the numbers.
const GAP: u64 = BLOCK << 12;

/// The next block is taken when this many are left: more than a worker uses before its lease ends, in case the engine
/// does not answer.
const LEFT_MIN: u64 = BLOCK / 2;

/// Pause before the engine is asked again for the next block.
const PAUSE: Duration = Duration::from_secs(1);

/// Shared by the worker and the task that takes its next block.
pub(crate) struct Blocks(Arc<Inner>);

struct Inner {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    next: u64,
    end: u64,
    /// Where the block behind it begins, once that is taken.
    spare: Option<u64>,
    is_taking: bool,
}

/// Takes a block, and says where it begins.
///
/// # Errors
/// `Corrupt` when the counter is damaged; whatever the engine answers. No block is taken then, and another try is safe:
/// what an earlier one has written makes the next begin behind it.
async fn take(engine: &dyn Engine, now_ms: u64) -> Result<u64> {
    advance(engine, of_time(now_ms), BLOCK).await
}

/// For an engine that was restored from a backup, before a worker takes a block of it. From here on, blocks are above
/// all that this store has, and above what workers may have been given since the backup. Returns a generation that is
/// above all of the backup, and below all blocks from here on.
///
/// # Errors
/// As for a block. Another try is safe.
pub(crate) async fn raise_generations(engine: &dyn Engine, store: &Store, now_ms: u64) -> Result<Generation> {
    let mut highest = 0;
    store.for_each_object(&mut |_, generation, _| highest = highest.max(generation.0));
    advance(engine, of_time(now_ms).max(highest), GAP).await.map(Generation)
}

/// Above all that were given so far. All blocks that are taken from here on begin at it or above. It takes a
/// transaction, because a read alone may be out of date.
///
/// # Errors
/// As [`take`].
pub(crate) async fn above_all_given(engine: &dyn Engine) -> Result<Generation> {
    advance(engine, 0, 0).await.map(Generation)
}

fn of_time(now_ms: u64) -> u64 {
    first_generation(now_ms).min(TIME_MAX)
}

/// Takes this many numbers, none of which is below `least`, and says where they begin.
async fn advance(engine: &dyn Engine, least: u64, count: u64) -> Result<u64> {
    let key = Bytes::from_static(KEY);
    loop {
        let found = engine.get(KEY).await?;
        let counter = found.as_ref().map_or(Ok(least), |found| decode(&found.value))?;
        let begin = counter.max(least);
        let end = begin.checked_add(count).ok_or_else(|| Error::new(ErrorKind::Corrupt, "no generations are left"))?;
        let checks = [Check { key: key.clone(), version: found.map(|found| found.version) }];
        let value = Some(Bytes::copy_from_slice(&end.to_be_bytes()));
        match engine.commit(&checks, &[ValueWrite { key: key.clone(), value }]).await {
            Ok(_) => return Ok(begin),
            // Somebody else has taken it.
            Err(error) if error.kind == ErrorKind::Conflict => {}
            Err(error) => return Err(error),
        }
    }
}

fn decode(value: &[u8]) -> Result<u64> {
    let damaged = |_| Error::new(ErrorKind::Corrupt, "the engine's counter of generations is damaged");
    value.try_into().map(u64::from_be_bytes).map_err(damaged)
}

impl Blocks {
    /// Begins with a block of its own.
    ///
    /// # Errors
    /// As [`take`].
    pub(crate) async fn take(env: &Env, engine: &Arc<dyn Engine>, now_ms: u64) -> Result<Self> {
        let begin = take(engine.as_ref(), now_ms).await?;
        let state = Mutex::new(State { next: begin, end: begin + BLOCK, spare: None, is_taking: false });
        Ok(Self(Arc::new(Inner { engine: Arc::clone(engine), clock: Arc::clone(&env.clock), state })))
    }
}

#[async_trait]
impl Generations for Blocks {
    fn next(&self) -> Generation {
        let mut state = self.0.state.lock();
        if state.next == state.end {
            let begin = state.spare.take().expect("the engine gives the next block in time");
            (state.next, state.end) = (begin, begin + BLOCK);
        }
        let generation = Generation(state.next);
        state.next += 1;
        if state.end - state.next < LEFT_MIN && state.spare.is_none() && !state.is_taking {
            state.is_taking = true;
            forebay_env::spawn(Arc::clone(&self.0).take_spare());
        }
        generation
    }

    async fn renew(&self) -> Result<()> {
        let begin = take(self.0.engine.as_ref(), self.0.clock.unix_ms()).await?;
        let mut state = self.0.state.lock();
        if begin > state.next {
            (state.next, state.end) = (begin, begin + BLOCK);
        }
        // One that was taken before this one is below what others may have been given.
        state.spare.take_if(|spare| *spare < begin);
        Ok(())
    }
}

impl Inner {
    async fn take_spare(self: Arc<Self>) {
        loop {
            match take(self.engine.as_ref(), self.clock.unix_ms()).await {
                Ok(begin) => {
                    let mut state = self.state.lock();
                    state.is_taking = false;
                    // One that comes late is below a block of keys that were gained meanwhile.
                    state.spare = (begin > state.next).then_some(begin);
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "could not reserve a block of generations in the engine of the cluster (etcd): retrying")
                }
            }
            self.clock.sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests;
