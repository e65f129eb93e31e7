//! One life of a process: opens the worker on what the disks hold, lets the clients loose, and ends as the plan says.

use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_cache::Cache;
use forebay_catalog::Catalog;
use forebay_env::{Clock, Process};
use forebay_store::{SEQUENCES_OF_A_LIFE, Store};
use tokio_util::sync::CancellationToken;

use crate::checks;
use crate::client::Client;
use crate::disk::SimDisk;
use crate::machine::{LIFE_MAX, Machine};
use crate::moves::Moves;
use crate::plan::{End, EngineKind, Fault, Life};

/// After so long a worker that is drained stops with the slots that nobody has taken.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// How a life went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    AsPlanned,
    /// The worker refused to start, which only damage and failing disks excuse.
    Refused,
}

impl Machine {
    /// Lives one life of the plan. `is_lost`: before the next one, all disks are to be lost.
    pub(crate) async fn live(&self, life: &Life, is_lost: bool) -> Ending {
        self.change(&life.changes).await;
        self.has_closed.store(false, Ordering::Relaxed);
        let mut ending = Ending::AsPlanned;
        let mut opened = None;
        let most = match life.end {
            End::PowerCut { after_ms } | End::Kill { after_ms } => Duration::from_millis(after_ms),
            End::Stop => LIFE_MAX,
        };
        let work = async {
            match self.open().await {
                Ok((cache, store)) => {
                    self.check_counter(&store);
                    opened = Some(store.clone());
                    self.serve(life, cache, &store).await;
                }
                Err(error) => {
                    self.world.note(format_args!("could not start: {error}"));
                    ending = Ending::Refused;
                }
            }
        };
        let killed = async {
            self.world.clock.sleep(most).await;
            if is_lost && self.world.replaced.load(Ordering::Relaxed) > 0 {
                self.until_spare().await;
            }
        };
        let ended = self.process_until(killed, work).await;
        if opened.is_some_and(|store| store.counters().reclaimed_segments > 0) {
            self.world.reclaimed.store(true, Ordering::Relaxed);
        }
        if !ended && life.end == End::Stop {
            self.world.broken("clients wait for answers that do not come".to_owned());
        }
        self.world.history.lock().crash(self.number);
        if let (false, End::PowerCut { .. }) = (ended, life.end) {
            self.world.note(format_args!("the power goes"));
            for disk in self.disks.lock().iter() {
                disk.inner.power_loss(self.world.below(1 << 32));
            }
        }
        self.disks.lock().iter().for_each(SimDisk::mend);
        ending
    }

    /// Each start takes the numbers of one life, and continues behind those of earlier lives as far as they reached a
    /// disk.
    fn check_counter(&self, store: &Store) {
        let now = store.next_generation().0;
        let before = self.counter.swap(now, Ordering::Relaxed);
        let starts = self.starts.load(Ordering::Relaxed);
        // A start that forgets a directory leaves out what lives may have taken that nothing else tells of.
        let has_forgotten = !self.forget.lock().is_empty();
        if now < before || (now >= (starts + 1) * SEQUENCES_OF_A_LIFE && !has_forgotten) {
            self.world.broken(format!("start {starts} raised the counter of sequences from {before} to {now}"));
        }
    }

    /// A crash comes at its time, also when the clients have nothing to do any more.
    async fn serve(&self, life: &Life, cache: Cache, store: &Store) {
        self.is_serving.store(true, Ordering::Relaxed);
        let faults = self.cause(&life.faults);
        let clients = life.clients.iter().enumerate().map(|(number, steps)| {
            let client = Client::of(self, cache.clone(), number);
            forebay_env::spawn(client.run(steps.clone())).join()
        });
        let clients = futures::future::join(faults, futures::future::join_all(clients));
        let (stop, leave) = (CancellationToken::new(), CancellationToken::new());
        let clients = async {
            clients.await;
            if life.end == End::Stop && self.config.is_shared() && self.world.once_in(2) {
                leave.cancel();
                self.drain().await;
            }
            stop.cancel();
        };
        let moves = Moves::new(self, &cache, stop.clone()).leaving_at(leave.clone());
        let reader = Client::of(self, cache.clone(), life.clients.len());
        let work = futures::future::join3(clients, moves.go_on(), reader.read_elsewhere(stop.clone()));
        futures::future::select(std::pin::pin!(work), std::pin::pin!(self.watch_readers())).await;
        if cache.has_failed() {
            self.world.broken("background work has ended by itself".to_owned());
        }
        match life.end {
            End::PowerCut { .. } | End::Kill { .. } => std::future::pending().await,
            End::Stop => {
                if life.faults.is_empty() {
                    self.world.clock.sleep(checks::REST_MAX).await;
                    checks::check_space(self, store);
                }
                let closed = cache.close().await;
                self.has_closed.store(closed.is_ok(), Ordering::Relaxed);
                self.world.note(format_args!("closed: {:?}", closed.err().map(|error| error.kind)));
                self.leave().await;
            }
        }
    }

    /// Waits until other workers have all slots of this one, but not for ever.
    async fn drain(&self) {
        let Some(catalog) = self.catalog.lock().clone() else { return };
        let until = self.world.clock.now() + DRAIN_TIMEOUT;
        while catalog.slots().is_some_and(|slots| !slots.is_empty()) && self.world.clock.now() < until {
            self.world.clock.sleep(Duration::from_millis(100)).await;
        }
        self.world.note(format_args!("has drained until {:?}", catalog.slots()));
    }

    /// As a server that stops does; one that does not leaves the others waiting.
    async fn leave(&self) {
        let catalog = self.catalog.lock().clone();
        if let Some(catalog) = catalog.filter(|_| self.world.once_in(2)) {
            let left = catalog.leave().await;
            self.world.note(format_args!("left the cluster: {:?}", left.err().map(|error| error.kind)));
        }
    }

    /// Stops a process now and then, as SIGSTOP does, for longer than its lease. Where another worker takes over, that
    /// one has time to write what this one was about to write. Never ends.
    pub(crate) async fn stall(&self, process: &Process) {
        if self.config.engine == EngineKind::Embedded {
            return std::future::pending().await;
        }
        let (pause_max, lasts_max) = match self.config.is_shared() {
            // Several machines must live for a write to have its copies.
            true if self.config.write_replicas > 1 => (60_000, self.config.lease_ms + self.config.settle_s * 1000),
            true => (15_000, 2 * (self.config.lease_ms + self.config.settle_s * 1000)),
            false => (60_000, 2 * self.config.lease_ms),
        };
        loop {
            self.world.clock.sleep(Duration::from_millis(self.world.below(pause_max))).await;
            if self.world.is_calm() || !self.is_serving.load(Ordering::Relaxed) {
                continue;
            }
            let stalled = Duration::from_millis(self.world.below(lasts_max));
            self.world.note(format_args!("stopped for {stalled:?}"));
            process.stop();
            self.root.stop();
            self.world.clock.sleep(stalled).await;
            self.world.note(format_args!("resumed"));
            process.resume();
        }
    }

    async fn watch_readers(&self) {
        loop {
            self.world.clock.sleep(Duration::from_millis(500)).await;
            checks::check_held(self);
        }
    }

    async fn cause(&self, faults: &[(u64, Fault)]) {
        let mut now_ms = 0;
        for (at_ms, fault) in faults {
            self.world.clock.sleep(Duration::from_millis(at_ms - now_ms)).await;
            now_ms = *at_ms;
            self.world.note(format_args!("fault: {fault:?}"));
            match fault {
                Fault::Weather(weather) => *self.root.weather.lock() = *weather,
                Fault::SlowDisk { disk, slow } => self.disk(*disk).faults.lock().slow = *slow,
                Fault::FailSyncs { disk } => self.disk(*disk).inner.fail_syncs(1),
                Fault::FailWrites { disk } => self.disk(*disk).faults.lock().writes = 1,
                Fault::FailReads { disk, count } => {
                    self.world.unreadable.store(true, Ordering::Relaxed);
                    self.disk(*disk).faults.lock().reads = *count;
                }
                Fault::FailCreates { disk, count } => self.disk(*disk).faults.lock().creates = *count,
                Fault::Full { disk, room } => self.disk(*disk).leave_room(*room).await,
                Fault::FlipBit { disk } => {
                    self.world.flipped.store(true, Ordering::Relaxed);
                    let place = self.disk(*disk).flip_bit().await;
                    self.world.note(format_args!("flipped a bit: {place:?}"));
                }
            }
        }
    }
}
