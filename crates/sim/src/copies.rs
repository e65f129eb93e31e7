//! The network between the workers of a run: slow, losing requests, gone with the process at its other end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_cache::{Cache, Copies, Error, ErrorKind, HeldBytes, Result};
use forebay_env::Clock;
use forebay_types::Generation;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// After so long a worker gives up waiting for another one.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Between two looks whether a stopped process goes on.
const STOPPED_PAUSE: Duration = Duration::from_millis(100);

/// One request in so many gets no answer, and one answer in so many is cut off.
const LOSS_RUNS: u64 = 10;

/// A worker that runs, as the others see it.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) cache: Cache,
    /// Of its process.
    pub(crate) ended: CancellationToken,
    pub(crate) is_stopped: Arc<AtomicBool>,
}

/// Shared by clones; the machines of a run share the workers.
#[derive(Clone)]
pub(crate) struct SimCopies {
    world: Arc<World>,
    /// By machine, with the name of each.
    peers: Arc<Mutex<BTreeMap<usize, (String, Peer)>>>,
    machine: usize,
}

impl SimCopies {
    pub(crate) fn new(world: Arc<World>) -> Self {
        Self { world, peers: Arc::default(), machine: 0 }
    }

    /// The same network, for another machine.
    pub(crate) fn beside(&self, machine: usize) -> Self {
        Self { machine, ..self.clone() }
    }

    pub(crate) fn join(&self, name: String, peer: Peer) {
        self.peers.lock().insert(self.machine, (name, peer));
    }

    /// The process has ended.
    pub(crate) fn leave(&self) {
        if let Some((_, peer)) = self.peers.lock().remove(&self.machine) {
            peer.ended.cancel();
        }
    }

    fn is_lossy(&self) -> bool {
        !self.world.is_calm() && self.world.once_in(LOSS_RUNS)
    }

    fn peer(&self, name: &str) -> Option<Peer> {
        let peers = self.peers.lock();
        peers.values().find(|(other, _)| other == name).map(|(_, peer)| peer.clone())
    }
}

/// A stopped process answers when it goes on.
async fn running(world: &World, peer: &Peer) {
    while peer.is_stopped.load(Ordering::Relaxed) {
        world.clock.sleep(STOPPED_PAUSE).await;
    }
}

fn unavailable(problem: &str) -> Error {
    Error::new(ErrorKind::Unavailable, problem)
}

#[async_trait]
impl Copies for SimCopies {
    async fn open(&self, worker: &str, key: &Bytes, generation: Generation) -> Result<Option<HeldBytes>> {
        self.world.clock.sleep(Duration::from_micros(200 + self.world.below(2_000))).await;
        let Some(peer) = self.peer(worker) else { return Err(unavailable("there is no such worker")) };
        if self.is_lossy() {
            self.world.clock.sleep(TIMEOUT).await;
            return Err(unavailable("the simulated network has lost it"));
        }
        let answer = async {
            running(&self.world, &peer).await;
            peer.cache.held(key, generation).await
        };
        let answer = tokio::select! {
            biased;
            () = peer.ended.cancelled() => return Err(unavailable("the worker has ended")),
            answer = answer => answer?,
            () = self.world.clock.sleep(TIMEOUT) => return Err(unavailable("the worker does not answer")),
        };
        let bytes = answer.as_ref().map(|held| held.size);
        self.world.note(format_args!("worker {worker} has {generation} of {}: {bytes:?}", key.escape_ascii()));
        Ok(answer.map(|held| {
            let is_cut = self.is_lossy();
            let (world, ended) = (Arc::clone(&self.world), peer.ended.clone());
            let slow = move |data| {
                let world = Arc::clone(&world);
                async move {
                    world.clock.sleep(Duration::from_micros(world.below(5_000))).await;
                    data
                }
            };
            let pieces = if is_cut { self.world.below(2) as usize } else { usize::MAX };
            let stream = held.stream.then(slow).take(pieces).take_until(ended.cancelled_owned());
            HeldBytes { stream: stream.boxed(), ..held }
        }))
    }

    fn workers(&self) -> Vec<String> {
        let peers = self.peers.lock();
        peers.iter().filter(|(machine, _)| **machine != self.machine).map(|(_, (name, _))| name.clone()).collect()
    }
}
