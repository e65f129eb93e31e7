//! Slots that go and come back while clients work.

use std::sync::Arc;
use std::time::Duration;

use forebay_cache::Cache;
use forebay_catalog::{Catalog, Slot, SlotSet};
use forebay_cluster::{HomeCatalog, Moves as Moved, Placement, WorkerId};
use forebay_env::Clock;
use futures::future::join;
use tokio_util::sync::CancellationToken;

use crate::machine::{Machine, SLOTS};
use crate::world::World;

/// Between two moves at most, in milliseconds.
const PAUSE_MAX_MS: u64 = 30_000;

/// For how long slots are at home nowhere at most, in milliseconds.
const AWAY_MAX_MS: u64 = 5_000;

/// Before what has failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Between two looks of workers that share the slots at most, in milliseconds.
const LOOK_MAX_MS: u64 = 1_500;

/// For how long the same worker should have a slot.
const PERIOD: Duration = Duration::from_secs(4);

pub(crate) struct Moves {
    world: Arc<World>,
    cache: Cache,
    is_shared: bool,
    stop: CancellationToken,
    /// From then on, other workers get all slots.
    leave: CancellationToken,
    /// `None` where all keys are always at home.
    catalog: Option<Arc<HomeCatalog>>,
}

impl Moves {
    pub(crate) fn new(machine: &Machine, cache: &Cache, stop: CancellationToken) -> Self {
        let catalog = machine.catalog.lock().clone();
        let is_shared = machine.config.is_shared();
        Self {
            world: Arc::clone(&machine.world),
            cache: cache.clone(),
            is_shared,
            stop,
            leave: CancellationToken::new(),
            catalog,
        }
    }

    /// Leaves all slots to the other workers from then on.
    pub(crate) fn leaving_at(self, leave: CancellationToken) -> Self {
        Self { leave, ..self }
    }

    /// Until it is stopped, and then to the end of what has begun.
    pub(crate) async fn go_on(self) {
        let Some(catalog) = &self.catalog else { return };
        if self.is_shared {
            return self.share(catalog).await;
        }
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.world.clock.sleep(Duration::from_millis(self.world.below(PAUSE_MAX_MS))) => {}
            }
            let mut slots = SlotSet::none(catalog.slot_count());
            catalog.slot_count().all().filter(|_| self.world.once_in(2)).for_each(|slot| slots.insert(slot));
            self.world.note(format_args!("loses {slots:?}"));
            self.tried("lose", || self.cache.lose(&slots)).await;
            self.tried("release", || catalog.release(&slots)).await;
            self.world.note(format_args!("is without them"));
            self.world.clock.sleep(Duration::from_millis(self.world.below(AWAY_MAX_MS))).await;
            self.tried("take", || catalog.take(&slots)).await;
            self.tried("gain", || self.cache.gain(&slots)).await;
            self.world.note(format_args!("has them back"));
        }
    }

    /// As a worker of a cluster does it, but for what it thinks of where slots belong: that changes every few seconds.
    async fn share(&self, catalog: &HomeCatalog) {
        let mut pause = 0;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.world.clock.sleep(Duration::from_millis(pause)) => {}
            }
            pause = self.world.below(LOOK_MAX_MS);
            if let Err(error) = self.follow().await {
                self.world.note(format_args!("follow: {error}"));
            }
            let turn = (self.world.clock.now().as_secs() / PERIOD.as_secs()) as usize;
            let leaves = self.leave.is_cancelled();
            self.move_once(catalog, |workers| {
                if leaves {
                    return without_this(catalog, workers);
                }
                let placement = Placement::of(catalog.slot_count(), workers);
                let homes = catalog.slot_count().all().map(|slot| match turn % 3 {
                    // All at one.
                    0 => &workers[turn % workers.len()],
                    by => placement.home(Slot((slot.0 + by as u16) % SLOTS)).expect("this worker lives"),
                });
                homes.cloned().collect()
            })
            .await;
        }
    }

    /// Takes over what the other machine has changed for both.
    pub(crate) async fn follow(&self) -> Result<(), String> {
        self.cache.follow_shared().await.map_err(|error| error.to_string())
    }

    /// Takes all slots, as the only worker that stays does.
    pub(crate) async fn take_all(&self) {
        let Some(catalog) = &self.catalog else { return };
        while catalog.slots().is_some_and(|slots| !slots.others().is_empty()) {
            self.move_once(catalog, |_| Placement::of(catalog.slot_count(), &[own(catalog)])).await;
            self.world.clock.sleep(RETRY).await;
        }
    }

    /// Leaves all slots to the other workers, as one that leaves the cluster does.
    pub(crate) async fn give_up_all(&self) {
        let Some(catalog) = &self.catalog else { return };
        while catalog.slots().is_some_and(|slots| !slots.is_empty()) {
            self.move_once(catalog, |workers| without_this(catalog, workers)).await;
            self.world.clock.sleep(RETRY).await;
        }
    }

    async fn move_once(&self, catalog: &HomeCatalog, place: impl Fn(&[WorkerId]) -> Placement) {
        let moves = match catalog.look(&place).await {
            Ok(view) => view.moves,
            Err(error) => return self.world.note(format_args!("look: {error}")),
        };
        let Moved { release, take } = moves;
        // A worker waits for what is in flight, but not for ever.
        let idle = self.cache.idle(&release);
        let release = if self.world.once_in(4) { release } else { idle };
        if !release.is_empty() {
            self.world.note(format_args!("releases {release:?}"));
            let lost = CancellationToken::new();
            let lose = async {
                self.tried("lose", || self.cache.lose(&release)).await;
                lost.cancel();
            };
            // It may wait for the under store for long.
            let follow = async {
                while lost.run_until_cancelled(self.world.clock.sleep(RETRY)).await.is_some() {
                    match catalog.look(&place).await {
                        Ok(view) => self.take(catalog, &view.moves.take).await,
                        Err(error) => self.world.note(format_args!("look: {error}")),
                    }
                }
            };
            join(lose, follow).await;
            self.tried("release", || catalog.release(&release)).await;
            // Some of those to take may be here by now.
            return;
        }
        self.take(catalog, &take).await;
    }

    async fn take(&self, catalog: &HomeCatalog, slots: &SlotSet) {
        if slots.is_empty() {
            return;
        }
        if let Err(error) = self.cache.begin_gain().await {
            return self.world.note(format_args!("begin to gain: {error}"));
        }
        // Another worker may be quicker.
        match catalog.take(slots).await {
            Ok(()) => self.tried("gain", || self.cache.gain(slots)).await,
            Err(error) => return self.world.note(format_args!("take: {error}")),
        }
        self.world.note(format_args!("has taken {slots:?}"));
        // A worker that is drained asks for that, and so begins to hand over what is hot.
        let needs = self.cache.needs().map(|needs| needs.takes_over_from);
        self.world.note(format_args!("takes over from {needs:?}"));
    }

    async fn tried<E: std::fmt::Display, F: Future<Output = Result<(), E>>>(&self, what: &str, act: impl Fn() -> F) {
        while let Err(error) = act().await {
            self.world.note(format_args!("{what}: {error}"));
            // One that others have taken the place of never succeeds.
            if self.is_shared && self.stop.is_cancelled() {
                return;
            }
            self.world.clock.sleep(RETRY).await;
        }
    }
}

/// Where slots belong when this worker leaves.
fn without_this(catalog: &HomeCatalog, workers: &[WorkerId]) -> Placement {
    let others: Vec<_> = workers.iter().filter(|worker| **worker != own(catalog)).cloned().collect();
    Placement::of(catalog.slot_count(), if others.is_empty() { workers } else { &others })
}

fn own(catalog: &HomeCatalog) -> WorkerId {
    let name = catalog.worker().expect("a worker on an engine has a name");
    WorkerId::new(name).expect("it was opened with this name")
}
