//! Start: from the parts and the catalog to a running worker.

use std::sync::Arc;

use forebay_catalog::Engine;
use forebay_catalog::records::{self, ObjectRecord, State};
use forebay_env::sync::Mutex;
use forebay_env::{Env, HashState, Task};
use forebay_store::Store;
use forebay_types::{ObjectPath, PolicyRule};
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::buckets::Buckets;
use crate::generations::Generations;
use crate::jobs::{JOBS_RUNNING_MAX, Jobs};
use crate::list::positions::Positions;
use crate::locks::{KeyLocks, WriteFence};
use crate::metrics::Metrics;
use crate::missing::Missing;
use crate::multipart::Activity;
use crate::persist::backlog::Backlog;
use crate::persist::refusals::Refusals;
use crate::persist::settle::Settle;
use crate::persist::{Backoff, Entry, PersistEvents, Queue};
use crate::policies::Policies;
use crate::read::doubt::Doubt;
use crate::read::first_looks::FirstLooks;
use crate::read::memory_tier::MemoryTier;
use crate::read::read_ahead::ReadAhead;
use crate::read::remote::Remote;
use crate::space::Space;
use crate::space::evict::Keeper;
use crate::worker::Worker;
use crate::write::change::decode_intent;
use crate::write::write_times::WriteTimes;
use crate::{Cache, Mounts, Result, Settings, Status};

/// What a cache is made of.
pub struct Parts {
    pub env: Env,
    pub store: Store,
    pub engine: Arc<dyn Engine>,
    pub mounts: Mounts,
    pub settings: Settings,
    /// The rules of the configuration. They are stored when the catalog holds none yet, or when they differ from the
    /// configuration of the last start.
    pub policies: Vec<PolicyRule>,
}

/// The background work.
pub(crate) struct Tasks {
    running: Mutex<Vec<Task<()>>>,
}

impl Tasks {
    /// Whether a task has ended that nobody asked to: only a panic does that.
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
    /// Loads the catalog and starts persistence, eviction and the sweeper of leftovers.
    ///
    /// # Errors
    /// `InvalidArgument` for rules that can't hold; whatever the catalog answers.
    pub async fn open(parts: Parts, registry: &mut Registry) -> Result<Self> {
        let Parts { env, store, engine, mounts, settings, policies } = parts;
        let backoff = Backoff { min: settings.persist_backoff_min.0, max: settings.persist_backoff_max.0 };
        let hasher = HashState::new(env.random.as_ref());
        let mounted = mounts.mounts.keys().cloned().collect();
        let generations = Generations::load(&env, engine.as_ref(), &store).await?;
        let start = generations.next(&store);
        let settle = Settle::load(env.clone(), settings.settle_time.0, engine.as_ref(), start).await?;
        let metrics = Metrics::register(registry);
        let worker = Arc::new(Worker {
            buckets: Buckets::load(env.clone(), Arc::clone(&engine), mounts).await?,
            policies: Policies::load(&env, engine.as_ref(), policies).await?,
            memory: MemoryTier::new(settings.memory_size.0, settings.memory_object_max.0, hasher.clone()),
            locks: KeyLocks::new(hasher.clone()),
            part_locks: KeyLocks::new(hasher.clone()),
            uploads: KeyLocks::new(hasher.clone()),
            fence: WriteFence::new(hasher.clone()),
            space: Space::new(settings.pinned_ratio),
            queue: Queue::new(env.clone(), backoff, settings.persist_delay.0, settings.persist_concurrency, mounted),
            persist_events: PersistEvents::default(),
            refusals: Refusals::new(metrics.undeliverable.clone()),
            metrics,
            backlog: Backlog::default(),
            jobs: Jobs::load(engine.as_ref()).await?,
            settle,
            remote: Remote::new(env.clone(), &hasher, settings.page_size.0),
            positions: Positions::new(env.clone()),
            first_looks: FirstLooks::default(),
            read_ahead: ReadAhead::new(),
            activity: Activity::new(env.clone()),
            doubt: Doubt::load(engine.as_ref(), &store, &generations).await?,
            generations,
            write_times: WriteTimes::load(&env, &engine).await?,
            disk_stalled: Notify::new(),
            missing: Missing::default(),
            stop: CancellationToken::new(),
            settings,
            store,
            engine,
            env,
        });
        worker.load_backlog().await?;
        worker.load_requests().await?;
        if worker.doubt.is_new() {
            worker.settle.mark_all_earlier();
        }
        worker.sweep_orphans().await?;
        worker.apply_policies(&worker.policies.present().0);
        worker.store.set_retention(Arc::new(Keeper { worker: Arc::downgrade(&worker) }));
        let tasks = Arc::new(Tasks { running: Mutex::new(start_tasks(&worker)) });
        Ok(Self { worker, tasks })
    }
}

fn start_tasks(worker: &Arc<Worker>) -> Vec<Task<()>> {
    let background = &worker.env.background;
    let persisters = (0..worker.queue.uploads_max()).map(|_| background.spawn(Arc::clone(worker).persist_loop()));
    let mut tasks: Vec<_> = persisters.collect();
    tasks.extend((0..JOBS_RUNNING_MAX).map(|_| forebay_env::spawn(Arc::clone(worker).job_loop())));
    tasks.push(forebay_env::spawn(Arc::clone(worker).quota_loop()));
    tasks.push(forebay_env::spawn(Arc::clone(worker).settle_loop()));
    tasks.push(forebay_env::spawn(Arc::clone(worker).sweep_loop()));
    tasks.push(forebay_env::spawn(Arc::clone(worker).stall_loop()));
    tasks
}

impl Worker {
    /// Puts what the under store does not have back into the queue. A request that was under way when the last process
    /// ended may still land: nothing follows it before that is over.
    async fn load_backlog(&self) -> Result<()> {
        let mut range = records::all_objects_range();
        while let Some(found) = self.next_records(&mut range).await? {
            for (key, versioned) in &found {
                let Some(path) = records::parse_object_key(key) else { continue };
                let record = ObjectRecord::decode(&versioned.value)?;
                self.backlog.replace(None, Some(&record), &self.metrics);
                self.space.replace(&path, None, Some(&record));
                self.write_times.seen(record.last_modified_ms);
                self.look_for_bytes(&path, &record);
                // Transient and conflicting ones too: they may have replaced a dirty one.
                self.settle.mark_earlier(&path, Some(record.dirty_since));
                if matches!(record.state, State::Dirty | State::Tombstone) {
                    self.queue.push(path, Entry::of(&record));
                }
            }
        }
        Ok(())
    }

    /// Notes an acknowledged object whose bytes are not here any more. Reads of it fail until it is written again.
    fn look_for_bytes(&self, path: &ObjectPath, record: &ObjectRecord) {
        if record.state == State::Tombstone {
            return;
        }
        let object = self.store.peek(&Self::store_key(path)).filter(|object| object.generation() == record.generation);
        if object.is_some_and(|object| object.is_whole()) {
            return;
        }
        tracing::error!(%path, generation = record.generation.0, size = record.size, "the bytes of an acknowledged object are missing");
        self.missing.add(path.clone());
    }

    /// Requests of clients that were under way, or had no answer, when the last process ended.
    async fn load_requests(&self) -> Result<()> {
        let mut range = records::all_requests_range();
        while let Some(found) = self.next_records(&mut range).await? {
            for (key, versioned) in &found {
                let Some(path) = records::parse_request_key(key) else { continue };
                self.settle.mark_earlier(&path, decode_intent(&versioned.value));
            }
        }
        Ok(())
    }

    pub(crate) fn status(&self) -> Status {
        let counts = self.backlog.counts();
        let usage = self.store.usage();
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
            undeliverable: self.refusals.undeliverable(),
            missing_objects: self.missing.count() as u64,
            pinned_bytes: usage.pinned_bytes,
            evictable_bytes: usage.evictable_bytes,
            free_bytes: usage.free_bytes,
            capacity_bytes: usage.capacity_bytes,
            failed_directories: failed.collect(),
        }
    }
}
