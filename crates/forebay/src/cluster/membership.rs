//! Follows the cluster: takes and gives up slots, and takes over what other workers have changed for all.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::Cache;
use forebay_catalog::SlotSet;
use forebay_cluster::{HomeCatalog, Moves, Placement, View};
use forebay_env::Clock;
use forebay_env::sync::Mutex;
use futures::future::join;
use tokio_util::sync::CancellationToken;

use super::drain::Drain;
use super::metrics::SlotMoves;
use super::router::Router;

/// Between two looks at the engine. What one worker changes for all, such as path policies, is in force on the others
/// after this time.
const LOOK: Duration = Duration::from_millis(500);

/// Before what has failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// For so long a slot with work in flight stays where it is, and its keys are served and uploaded meanwhile. Then no
/// more work begins for it, so that the end of what is in flight is the end of all.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// It follows the cluster until `stop` is cancelled, or cancels `drained`.
pub(super) struct Membership {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) catalog: Arc<HomeCatalog>,
    pub(super) cache: Cache,
    pub(super) router: Arc<Router>,
    pub(super) drain: Drain,
    pub(super) moves: SlotMoves,
    /// Since when there have been slots to give up that have work in flight.
    pub(super) busy_since: Mutex<Option<Duration>>,
    pub(super) stop: CancellationToken,
    /// Cancelled when this worker has been drained.
    pub(super) drained: CancellationToken,
}

impl Membership {
    /// Returns when it has seen the cluster, and has taken what it should have and nobody has.
    pub(super) async fn begin(&self) {
        while self.catalog.lost().is_none() {
            match self.pass().await {
                Ok(()) => return,
                Err(problem) => tracing::warn!(
                    problem,
                    "could not read the state of the cluster, or take over slots, at the start: retrying"
                ),
            }
            self.clock.sleep(RETRY).await;
        }
    }

    /// Until it is stopped or drained, or the slots are lost, and then to the end of what has begun. A worker that has
    /// been drained takes no slots any more.
    pub(super) async fn follow(self) {
        let (mut failed, mut told) = (false, None);
        while self.catalog.lost().is_none() {
            let pause = self.stop.run_until_cancelled(self.clock.sleep(LOOK)).await;
            if pause.is_none() {
                return;
            }
            let problem = self.pass().await.err();
            // Once for each time that it begins.
            if let Some(problem) = problem.as_ref().filter(|_| !failed) {
                tracing::warn!(
                    problem,
                    "could not follow changes of the cluster: retrying; requests are routed by the last known state"
                );
            }
            failed = problem.is_some();
            if !failed && self.is_drained(&mut told).await {
                self.drained.cancel();
                return;
            }
        }
    }

    /// Whether this worker is draining, and nobody needs it. Others know that then.
    async fn is_drained(&self, told: &mut Option<String>) -> bool {
        let Some(view) = self.router.view().filter(|view| self.drain.is_wanted(view)) else { return false };
        let checked = match self.stop.run_until_cancelled(self.drain.check(&view)).await {
            Some(Ok(())) => self.catalog.retire().await.map_err(|error| error.to_string()),
            Some(Err(problem)) => Err(problem),
            None => return false,
        };
        match checked {
            Ok(()) => {
                tracing::info!("this worker is drained: nobody needs its bytes");
                // For clients that ask this worker how it stands.
                let _ = self.look().await.map(|view| self.router.show(view));
                true
            }
            Err(problem) => {
                if told.as_ref() != Some(&problem) {
                    tracing::info!(problem, "draining: this worker is still needed");
                }
                *told = Some(problem);
                false
            }
        }
    }

    async fn pass(&self) -> Result<(), String> {
        self.cache.follow_shared().await.map_err(|error| error.to_string())?;
        while self.move_slots().await? {}
        Ok(())
    }

    /// Looks where the slots are, and gives up and takes what it should. Returns whether it has changed anything.
    async fn move_slots(&self) -> Result<bool, String> {
        let view = self.look().await?;
        let Moves { release, take } = view.moves.clone();
        self.router.show(view);
        let release = self.without_busy(release);
        if !release.is_empty() {
            self.lose(&release).await;
            let failed = "could not release slots: retrying; their keys may get 503";
            self.done(failed, || self.catalog.release(&release)).await;
            let slots = release.iter().count();
            self.moves.released.inc_by(slots as u64);
            tracing::info!(slots, "released slots to other workers");
            // Some of those to take may be here by now.
            return Ok(true);
        }
        self.take(&take).await?;
        Ok(!take.is_empty())
    }

    /// Those of the slots to give up that one slow upload does not hold up: the others follow when they can.
    fn without_busy(&self, release: SlotSet) -> SlotSet {
        let idle = self.cache.idle(&release);
        let mut busy_since = self.busy_since.lock();
        if idle == release {
            *busy_since = None;
            return release;
        }
        let now = self.clock.monotonic();
        if now < *busy_since.get_or_insert(now) + BUSY_MAX {
            return idle;
        }
        *busy_since = None;
        release
    }

    /// Ends all work on these slots. It waits for requests in flight to the under store, and follows the cluster
    /// meanwhile: requests are passed on by what was seen last, and slots of workers that are lost need a home.
    async fn lose(&self, slots: &SlotSet) {
        let lost = CancellationToken::new();
        let lose = async {
            let failed = "could not end the work on keys of slots to be released: retrying; they may get 503";
            self.done(failed, || self.cache.lose(slots)).await;
            lost.cancel();
        };
        let follow = async {
            while lost.run_until_cancelled(self.clock.sleep(LOOK)).await.is_some() {
                // What fails is done, and told, by the next pass.
                let _ = self.cache.follow_shared().await;
                let Ok(view) = self.look().await else { continue };
                let take = view.moves.take.clone();
                self.router.show(view);
                if !self.stop.is_cancelled() {
                    let _ = self.take(&take).await;
                }
            }
        };
        join(lose, follow).await;
    }

    async fn take(&self, slots: &SlotSet) -> Result<(), String> {
        if slots.is_empty() {
            return Ok(());
        }
        self.cache.begin_gain().await.map_err(|error| error.to_string())?;
        // Another worker may be quicker.
        self.catalog.take(slots).await.map_err(|error| error.to_string())?;
        let failed = "could not load the records of slots that were taken over: retrying; their keys get 503";
        self.done(failed, || self.cache.gain(slots)).await;
        let slots = slots.iter().count();
        self.moves.taken.inc_by(slots as u64);
        tracing::info!(slots, "took over slots");
        Ok(())
    }

    async fn look(&self) -> Result<View, String> {
        let place = |workers: &[_]| Placement::of(self.catalog.slot_count(), workers);
        self.catalog.look(place).await.map_err(|error| error.to_string())
    }

    /// Until it succeeds, or this worker gives up its slots anyway.
    async fn done<E: Display, F: Future<Output = Result<(), E>>>(&self, what: &str, act: impl Fn() -> F) {
        while let Err(error) = act().await {
            if self.catalog.lost().is_some() || self.stop.is_cancelled() {
                return;
            }
            tracing::warn!(%error, "{what}");
            self.clock.sleep(RETRY).await;
        }
    }
}
