//! Start: builds a running worker from its parts and the catalog.

use std::sync::Arc;

use forebay_catalog::Catalog;
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicBool, AtomicU64};
use forebay_env::{Env, HashState, Task};
use forebay_store::{Store, Usage};
use forebay_types::PolicyRule;
use futures::future::BoxFuture;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::buckets::{Buckets, stranded};
use crate::copies::{FETCHES_MAX, HeldCopies};
use crate::home::{Ground, Home};
use crate::jobs::Jobs;
use crate::metrics::Metrics;
use crate::policies::Policies;
use crate::read::fetches::Fetches;
use crate::read::memory_tier::MemoryTier;
use crate::read::read_ahead::ReadAhead;
use crate::read_leases::HeldLeases;
use crate::space::Space;
use crate::space::evict::Keeper;
use crate::worker::Worker;
use crate::{Cache, Mounts, OtherWorkers, RefusedBucket, Result, Settings, Status};

/// Buckets that a status names.
const REFUSED_BUCKETS_MAX: usize = 10;

/// The parts of a cache.
pub struct Parts {
    pub env: Env,
    pub store: Store,
    pub catalog: Arc<dyn Catalog>,
    pub mounts: Mounts,
    pub settings: Settings,
    /// The rules of the configuration. They are stored when the catalog holds none yet, or when they differ from the
    /// configuration of the last start.
    pub policies: Vec<PolicyRule>,
    /// `None` when this worker is alone.
    pub others: Option<Arc<dyn OtherWorkers>>,
}

/// The background work.
pub(crate) struct Tasks {
    running: Mutex<Vec<Task<()>>>,
}

impl Tasks {
    /// Whether a task has ended unasked. Only a panic does that.
    pub(crate) fn has_failed(&self) -> bool {
        self.running.lock().iter().any(Task::is_finished)
    }

    /// Waits for the end of all tasks.
    pub(crate) async fn join(&self) {
        let running = std::mem::take(&mut *self.running.lock());
        for task in running {
            task.join().await;
        }
    }
}

impl Cache {
    /// What [`Cache::open`] checks first. Changes nothing.
    ///
    /// # Errors
    /// `NoSuchBucket` as there; whatever the catalog answers.
    pub async fn check_buckets(catalog: &dyn Catalog, mounts: &Mounts) -> Result<()> {
        stranded::check(catalog, mounts).await
    }

    /// Loads the catalog and starts persistence, eviction and the sweeper of leftovers.
    ///
    /// # Errors
    /// `InvalidArgument` for rules that can't hold; `NoSuchBucket` when objects of a bucket wait here that has neither
    /// a mount nor an under store; whatever the catalog answers.
    pub fn open<'a>(parts: Parts, registry: &'a mut Registry) -> BoxFuture<'a, Result<Self>> {
        Box::pin(async move {
            let Parts { env, store, catalog, mounts, settings, policies, others } = parts;
            stranded::check(catalog.as_ref(), &mounts).await?;
            // Before anything that they change is loaded.
            let known_changes = AtomicU64::new(catalog.shared_changes());
            let hasher = HashState::new(env.random.as_ref());
            let generations = catalog.generations(env.clock.unix_ms()).await?;
            let metrics = Metrics::register(registry);
            let home = Home::load(Ground {
                env: &env,
                settings: &settings,
                store: &store,
                catalog: &catalog,
                generations: generations.as_ref(),
                metrics: &metrics,
                hasher: &hasher,
                mounted: mounts.mounts.keys().cloned().collect(),
            });
            let home = home.await?;
            let worker = Arc::new(Worker {
                buckets: Buckets::load(env.clone(), Arc::clone(&catalog), mounts, settings.settle_time.0).await?,
                policies: Policies::load(&env, catalog.as_ref(), policies, others.is_some()).await?,
                held: HeldCopies::new(env.clone()),
                held_leases: HeldLeases::new(env.clone(), &hasher),
                memory: MemoryTier::new(settings.memory_size.0, settings.memory_object_max.0, hasher.clone()),
                space: Space::new(settings.pinned_ratio, settings.memory_size.0),
                jobs: Jobs::load(catalog.as_ref()).await?,
                fetches: Fetches::new(&hasher, settings.page_size.0),
                read_ahead: ReadAhead::default(),
                disk_stalled: Notify::new(),
                stop: CancellationToken::new(),
                home,
                known_changes,
                is_catalog_nearly_full: AtomicBool::new(false),
                generations,
                metrics,
                settings,
                store,
                catalog,
                others,
                env,
            });
            if let Some(slots) = worker.catalog.slots() {
                let others = slots.others();
                for locks in worker.home.all_locks() {
                    locks.close(&others).await;
                }
            }
            worker.gain_all().await?;
            worker.catalog.take_unnamed().into_iter().for_each(|staged| worker.held.add(staged, None));
            worker.apply_policies().await;
            worker.store.set_retention(Arc::new(Keeper { worker: Arc::downgrade(&worker) }));
            let tasks = Arc::new(Tasks { running: Mutex::new(start_tasks(&worker)) });
            Ok(Self { worker, tasks })
        })
    }
}

fn start_tasks(worker: &Arc<Worker>) -> Vec<Task<()>> {
    let background = &worker.env.background;
    let persisters = (0..worker.home.queue.uploads_max()).map(|_| background.spawn(Arc::clone(worker).persist_loop()));
    let mut tasks: Vec<_> = persisters.collect();
    tasks.push(forebay_env::spawn(Arc::clone(worker).job_loop()));
    let others = worker.others.iter().flat_map(|others| (0..FETCHES_MAX).map(|_| Arc::clone(others)));
    tasks.extend(others.map(|others| forebay_env::spawn(Arc::clone(worker).fetch_loop(others))));
    if let Some(others) = &worker.others {
        tasks.push(forebay_env::spawn(Arc::clone(worker).copies_loop()));
        tasks.push(forebay_env::spawn(Arc::clone(worker).hand_over_loop(Arc::clone(others))));
        tasks.push(forebay_env::spawn(Arc::clone(worker).renew_loop(Arc::clone(others))));
    }
    if worker.catalog.slots().is_some() {
        tasks.push(forebay_env::spawn(Arc::clone(worker).shares_loop()));
    }
    tasks.push(forebay_env::spawn(Arc::clone(worker).quota_loop()));
    tasks.push(forebay_env::spawn(Arc::clone(worker).settle_loop()));
    tasks.push(forebay_env::spawn(Arc::clone(worker).sweep_loop()));
    tasks.push(forebay_env::spawn(Arc::clone(worker).stall_loop()));
    tasks
}

impl Worker {
    pub(crate) fn status(&self) -> Status {
        let counts = self.home.backlog.counts();
        let usage = self.store.usage();
        let (copies_unavailable, unavailable) = self.home.copies.unavailable();
        let failed = self.store.health().into_iter().filter_map(|directory| {
            let label = directory.label;
            directory.failed.map(|reason| format!("{label}: {reason}"))
        });
        Status {
            dirty_objects: counts.dirty_objects,
            dirty_bytes: counts.dirty_bytes,
            tombstones: counts.tombstones,
            oldest_dirty_age_ms: self.oldest_dirty_age_ms(),
            conflicts: counts.conflicts,
            undeliverable: self.home.refusals.undeliverable(),
            refused_buckets: self.refused_buckets(),
            copies_wanted: self.home.copies.count() as u64,
            copies_unavailable: copies_unavailable as u64,
            unavailable,
            under_replicated: self.under_replicated(),
            missing_objects: self.home.missing.count() as u64,
            missing_parts: self.home.missing.parts_count() as u64,
            pinned_bytes: usage.pinned_bytes,
            pinned_bytes_max: self.space.pinned_limit(usage.capacity_bytes),
            kept_bytes: counts.kept_bytes + self.space.parts_bytes(),
            evictable_bytes: usage.evictable_bytes,
            free_bytes: usage.free_bytes,
            unavailable_bytes: usage.unavailable_bytes,
            overhead_bytes: overhead_bytes(&usage),
            rejected_pinned_full: self.metrics.rejected_pinned_full.get(),
            rejected_disk_full: self.store.counters().refused_full,
            capacity_bytes: usage.capacity_bytes,
            failed_directories: failed.collect(),
        }
    }
}

impl Worker {
    fn refused_buckets(&self) -> Vec<RefusedBucket> {
        let refused = self.home.queue.without_access().into_iter().take(REFUSED_BUCKETS_MAX);
        refused.map(|(bucket, error)| RefusedBucket { bucket: bucket.to_string(), error }).collect()
    }
}

/// The part of the capacity that is neither free nor used by objects. An object that becomes visible before its segment
/// counts may briefly exceed the rest.
fn overhead_bytes(usage: &Usage) -> u64 {
    let told = [usage.pinned_bytes, usage.evictable_bytes, usage.free_bytes, usage.unavailable_bytes];
    usage.capacity_bytes.saturating_sub(told.iter().sum())
}
