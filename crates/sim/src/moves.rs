//! Slots that go and come back while clients work.

use std::sync::Arc;
use std::time::Duration;

use forebay_cache::Cache;
use forebay_catalog::SlotSet;
use forebay_cluster::HomeCatalog;
use forebay_env::Clock;
use tokio_util::sync::CancellationToken;

use crate::machine::Machine;
use crate::world::World;

/// Between two moves at most, in milliseconds.
const PAUSE_MAX_MS: u64 = 30_000;

/// For how long slots are at home nowhere at most, in milliseconds.
const AWAY_MAX_MS: u64 = 5_000;

/// Before what has failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) struct Moves {
    world: Arc<World>,
    cache: Cache,
    /// `None` where all keys are always at home.
    catalog: Option<Arc<HomeCatalog>>,
}

impl Moves {
    pub(crate) fn new(machine: &Machine, cache: &Cache) -> Self {
        let catalog = machine.catalog.lock().clone();
        Self { world: Arc::clone(&machine.world), cache: cache.clone(), catalog }
    }

    /// Until it is stopped, and then to the end of what has begun.
    pub(crate) async fn go_on(self, stop: CancellationToken) {
        let Some(catalog) = &self.catalog else { return };
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
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

    async fn tried<E: std::fmt::Display, F: Future<Output = Result<(), E>>>(&self, what: &str, act: impl Fn() -> F) {
        while let Err(error) = act().await {
            self.world.note(format_args!("{what}: {error}"));
            self.world.clock.sleep(RETRY).await;
        }
    }
}
