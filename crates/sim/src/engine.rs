//! The engine of a catalog on the network: slow, losing answers, doing transactions late, gone for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_catalog::{Check, Engine, Error, ErrorKind, MemoryEngine, Result, Versioned};
use forebay_env::Clock;
use forebay_store::ValueWrite;
use futures::FutureExt;
use parking_lot::Mutex;

use crate::world::World;

/// After so long a client gives up waiting for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// One transaction in this many of a rude engine begins an outage.
const OUTAGE_RUNS: u64 = 150;

/// The fate of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Refused,
    /// Done, and the answer is lost.
    AnswerLost,
    /// Given up, and done later or never.
    Late,
}

/// A transaction on its way.
#[derive(Clone)]
struct Sent {
    checks: Vec<Check>,
    writes: Vec<ValueWrite>,
}

/// Outlives the processes, like the machines that it would run on. Shared by clones.
#[derive(Clone)]
pub(crate) struct SimEngine {
    memory: Arc<MemoryEngine>,
    world: Arc<World>,
    is_rude: bool,
    state: Arc<Mutex<State>>,
    /// Of the processes of one machine.
    in_flight: Arc<Mutex<BTreeMap<u64, Sent>>>,
    /// Hindrances until that machine last asked for them.
    seen: Arc<Mutex<u64>>,
}

#[derive(Default)]
struct State {
    /// Transactions so far.
    sent: u64,
    /// Nothing is answered before.
    gone_until: Duration,
    /// How often somebody found it gone or got no answer, or something came late.
    hindrances: u64,
}

impl SimEngine {
    pub(crate) fn new(world: Arc<World>, is_rude: bool) -> Self {
        Self {
            memory: Arc::default(),
            world,
            is_rude,
            state: Arc::default(),
            in_flight: Arc::default(),
            seen: Arc::default(),
        }
    }

    /// The same engine, for another machine.
    pub(crate) fn beside(&self) -> Self {
        Self { in_flight: Arc::default(), seen: Arc::default(), ..self.clone() }
    }

    /// The process has ended: what it has sent may still arrive.
    pub(crate) fn crash(&self) {
        let in_flight = std::mem::take(&mut *self.in_flight.lock());
        in_flight.into_values().for_each(|sent| self.may_land_later(sent));
    }

    /// Whether it has given a worker a reason not to start since this machine has last asked.
    pub(crate) fn has_hindered(&self) -> bool {
        let hindrances = self.state.lock().hindrances;
        std::mem::replace(&mut *self.seen.lock(), hindrances) != hindrances
    }

    fn is_rude(&self) -> bool {
        self.is_rude && !self.world.is_calm()
    }

    async fn delay(&self) {
        let slow = self.is_rude() && self.world.once_in(50);
        let micros = if slow { self.world.below(300_000) } else { self.world.below(3_000) };
        self.world.clock.sleep(Duration::from_micros(300 + micros)).await;
    }

    /// Fails while the engine is gone.
    async fn reach(&self) -> Result<()> {
        self.delay().await;
        let mut state = self.state.lock();
        if self.is_rude() && self.world.clock.now() < state.gone_until {
            state.hindrances += 1;
            return Err(Error::new(ErrorKind::Unavailable, "the simulated engine is gone"));
        }
        Ok(())
    }

    fn fate(&self) -> Fate {
        if !self.is_rude() {
            return Fate::Answered;
        }
        if self.world.once_in(OUTAGE_RUNS) {
            // Some are longer than a worker waits.
            let most = if self.world.once_in(4) { 90 } else { 10 };
            let length = Duration::from_millis(self.world.below(most * 1000));
            self.world.note(format_args!("engine: gone for {length:?}"));
            self.state.lock().gone_until = self.world.clock.now() + length;
            return Fate::Refused;
        }
        match self.world.below(60) {
            0 => Fate::Refused,
            1 => Fate::AnswerLost,
            2 => Fate::Late,
            _ => Fate::Answered,
        }
    }

    fn apply(&self, sent: &Sent) -> Result<u64> {
        let done = self.memory.commit(&sent.checks, &sent.writes).now_or_never();
        let done = done.expect("an engine in memory keeps nobody waiting");
        let failed = done.as_ref().err().map(|error| error.kind);
        self.world.note(format_args!("engine: {} writes, {failed:?}", sent.writes.len()));
        done
    }

    fn may_land_later(&self, sent: Sent) {
        if self.world.once_in(3) {
            return;
        }
        let (engine, millis) = (self.clone(), self.world.below(60_000));
        self.world.clock.after(Duration::from_millis(millis), move || {
            let result = engine.apply(&sent);
            // A worker that waits for the end of a lease sees it renewed.
            engine.state.lock().hindrances += u64::from(result.is_ok());
            engine.world.note(format_args!("engine: landed late: {:?}", result.err().map(|error| error.kind)));
        });
    }

    /// The lease of a worker may end meanwhile.
    async fn give_up(&self) {
        self.state.lock().hindrances += 1;
        self.world.clock.sleep(TIMEOUT).await;
    }

    /// It is not on its way any more.
    fn arrived(&self, number: u64) {
        self.in_flight.lock().remove(&number);
    }

    async fn send(&self, number: u64, sent: Sent) -> Result<u64> {
        self.reach().await?;
        let unknown = || Error::new(ErrorKind::Unknown, "the simulated engine did not answer");
        match self.fate() {
            Fate::Answered => {
                let done = self.apply(&sent);
                // A process that dies in this moment does not hear of it.
                self.arrived(number);
                self.delay().await;
                done
            }
            Fate::Refused => Err(Error::new(ErrorKind::Unavailable, "the simulated engine refuses")),
            Fate::AnswerLost => {
                let _lost = self.apply(&sent);
                self.arrived(number);
                self.give_up().await;
                Err(unknown())
            }
            Fate::Late => {
                self.arrived(number);
                self.may_land_later(sent);
                self.give_up().await;
                Err(unknown())
            }
        }
    }
}

#[async_trait]
impl Engine for SimEngine {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        self.reach().await?;
        self.memory.get(key).await
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        self.reach().await?;
        self.memory.scan(from, to, limit).await
    }

    async fn commit(&self, checks: &[Check], writes: &[ValueWrite]) -> Result<u64> {
        let sent = Sent { checks: checks.to_vec(), writes: writes.to_vec() };
        let number = {
            let mut state = self.state.lock();
            state.sent += 1;
            state.sent
        };
        self.in_flight.lock().insert(number, sent.clone());
        let result = self.send(number, sent).await;
        self.arrived(number);
        result
    }
}
