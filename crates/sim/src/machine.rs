//! The machine that a worker lives on, and the worker as it is opened there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_cache::{Cache, Mount, Mounts, OtherWorkers, Parts, Settings};
use forebay_catalog::{Catalog, EmbeddedCatalog, Engine, SlotCount};
use forebay_cluster::{ClusterSettings, HomeCatalog, HomeSettings, WorkerId};
use forebay_env::{Clock, Disk, Env, Process};
use forebay_store::{DirectoryId, Store};
use forebay_types::{ByteSize, Durability, Period, PolicyRule};
use forebay_ufs::governor::{Governed, GovernedRoot, GovernorSettings, Lane, govern};
use forebay_ufs::{BucketRoot, UnderStore};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::clock::Drifting;
use crate::copies::{Peer, SimCopies};
use crate::disk::SimDisk;
use crate::engine::SimEngine;
use crate::plan::{BUCKET, Config, EngineKind, PREFIXES, Sizes, bucket};
use crate::under_store::SimRoot;
use crate::world::World;

/// Nothing that clients ask for takes longer, in simulated time: whatever fails is given up before.
pub(crate) const LIFE_MAX: Duration = Duration::from_secs(4 * 3600);

/// Numbers for the disks of each machine.
const DISKS_MAX: usize = 1000;

/// Few, so that each has several keys.
pub(crate) const SLOTS: u16 = 8;

/// By how much the clock of a machine may be too fast or too slow, in parts of a million. Leases allow for clocks that
/// differ by a thousandth.
const DRIFT_MAX: u64 = 450;

/// Before a machine is lost after another one: for so long it waits until the others have all that is on its disks.
const SPARE_WAIT: Duration = Duration::from_secs(60);

/// One start in this many is that of a worker with another name, on the same disks.
const RENAMED_RUNS: u64 = 5;

/// The machine and what is behind it: all but the process.
pub(crate) struct Machine {
    pub(crate) number: usize,
    pub(crate) world: Arc<World>,
    clock: Arc<Drifting>,
    pub(crate) config: Config,
    /// As the settings have them now.
    pub(crate) sizes: Mutex<Sizes>,
    pub(crate) disks: Mutex<Vec<SimDisk>>,
    pub(crate) disks_made: AtomicUsize,
    /// Directories that are gone for good, and their ids.
    pub(crate) forgotten: Mutex<Vec<SimDisk>>,
    pub(crate) forget: Mutex<Vec<DirectoryId>>,
    /// What a directory once was, with the number of that one.
    pub(crate) older_copy: Mutex<Option<SimDisk>>,
    /// Whether the last life has ended with a clean stop.
    pub(crate) has_closed: AtomicBool,
    pub(crate) root: SimRoot,
    pub(crate) engine: SimEngine,
    pub(crate) copies: SimCopies,
    /// On the engine, of the process that runs.
    pub(crate) catalog: Mutex<Option<Arc<HomeCatalog>>>,
    /// Whether the process that runs has started, and works for clients.
    pub(crate) is_serving: AtomicBool,
    /// When all its disks could be lost as the last process ended (see [`SimCopies::is_spare`]): how many machines had
    /// been lost by then. Else a number that there never is.
    pub(crate) spare_after: AtomicUsize,
    pub(crate) starts: AtomicU64,
    /// The store's next sequence after the last start.
    pub(crate) counter: AtomicU64,
}

impl Machine {
    /// The first one, and what all of them share.
    pub(crate) fn new(world: Arc<World>, config: Config) -> Self {
        let root = SimRoot::new(Arc::clone(&world), config.keeps_listings);
        root.begin_with(&bucket(BUCKET));
        let is_rude = config.engine == EngineKind::Remote { is_rude: true };
        let engine = SimEngine::new(Arc::clone(&world), is_rude);
        let copies = SimCopies::new(Arc::clone(&world), config.machines);
        Self::at(0, world, config, (root, engine, copies))
    }

    /// Another one before the same under store and the same engine.
    pub(crate) fn beside(&self, number: usize) -> Self {
        let around = (self.root.beside(number), self.engine.beside(), self.copies.beside(number));
        Self::at(number, Arc::clone(&self.world), self.config.clone(), around)
    }

    fn at(number: usize, world: Arc<World>, config: Config, around: (SimRoot, SimEngine, SimCopies)) -> Self {
        let (root, engine, copies) = around;
        let first_disk = number * DISKS_MAX;
        let disk = |disk| SimDisk::new(Arc::clone(&world), first_disk + disk, config.file_system);
        let disks: Vec<_> = (0..config.disks).map(disk).collect();
        let ahead = if config.is_shared() { world.below(2 * DRIFT_MAX) as i64 - DRIFT_MAX as i64 } else { 0 };
        let clock = Arc::new(Drifting { time: Arc::clone(&world.clock), ahead });
        Self {
            number,
            clock,
            world,
            disks_made: AtomicUsize::new(first_disk + config.disks),
            sizes: Mutex::new(config.sizes.clone()),
            config,
            disks: Mutex::new(disks),
            forgotten: Mutex::default(),
            forget: Mutex::default(),
            older_copy: Mutex::default(),
            has_closed: AtomicBool::new(false),
            engine,
            copies,
            root,
            catalog: Mutex::default(),
            is_serving: AtomicBool::new(false),
            spare_after: AtomicUsize::new(usize::MAX),
            starts: AtomicU64::new(0),
            counter: AtomicU64::new(0),
        }
    }

    /// What a process here has of the world.
    fn env(&self) -> Env {
        Env { clock: Arc::<Drifting>::clone(&self.clock), ..self.world.env() }
    }

    /// Opens the worker as the server does.
    pub(crate) async fn open(&self) -> Result<(Cache, Store), String> {
        let env = self.env();
        let disks = self.disks.lock().clone();
        let forget = self.forget.lock().clone();
        let store = self.open_store(&disks, &forget).await?;
        let catalog = self.open_catalog(&store).await?;
        let (mounts, policies) = (self.mounts(&env), self.policies());
        let name = catalog.worker().map(str::to_owned);
        let others = self.config.is_shared().then(|| Arc::new(self.copies.clone()) as Arc<dyn OtherWorkers>);
        let settings = self.settings();
        let parts = Parts { env, store: store.clone(), catalog, mounts, settings, policies, others };
        match Cache::open(parts, &mut Registry::default()).await {
            Ok(cache) => {
                self.check_bytes(&cache);
                if let Some(name) = name {
                    let process = Process::present().ok_or("a worker runs in a process")?;
                    let life = self.starts.load(Ordering::Relaxed);
                    let ended = CancellationToken::new();
                    self.copies.join(name, Peer { cache: cache.clone(), process, ended, life });
                }
                Ok((cache, store))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    async fn open_catalog(&self, store: &Store) -> Result<Arc<dyn Catalog>, String> {
        if self.config.engine == EngineKind::Embedded {
            return Ok(Arc::new(EmbeddedCatalog::new(store.clone())));
        }
        let engine: Arc<dyn Engine> = Arc::new(self.engine.clone());
        let name = if self.world.once_in(RENAMED_RUNS) { "renamed" } else { "worker" };
        let name = if self.number == 0 { name.to_owned() } else { format!("{name}-{}", self.number) };
        let worker = WorkerId::new(name).map_err(|error| error.to_string())?;
        let slots = SlotCount::new(SLOTS).map_err(|error| error.to_string())?;
        let cluster = ClusterSettings { slots, lease_ms: self.config.lease_ms };
        let settings = HomeSettings {
            worker,
            is_alone: !self.config.is_shared(),
            cluster,
            addresses: None,
            under_stores: BTreeMap::new(),
        };
        let catalog = HomeCatalog::open(self.env(), store.clone(), engine, settings).await;
        let catalog = Arc::new(catalog.map_err(|error| error.to_string())?);
        *self.catalog.lock() = Some(Arc::clone(&catalog));
        Ok(catalog)
    }

    /// Acknowledged bytes are missing only when a directory was lost.
    fn check_bytes(&self, cache: &Cache) {
        let missing = cache.status().missing_objects;
        if missing > 0 && !self.world.lost.load(Ordering::Relaxed) && !self.world.is_flipped() {
            self.world.broken(format!("the bytes of {missing} acknowledged objects are missing"));
        }
    }

    pub(crate) async fn open_store(&self, disks: &[SimDisk], forget: &[DirectoryId]) -> Result<Store, String> {
        self.starts.fetch_add(1, Ordering::Relaxed);
        let sizes = self.sizes.lock().clone();
        let store_settings = forebay_store::Settings {
            segment_bytes: sizes.segment,
            inline_bytes_max: sizes.inline,
            extent_bytes_max: sizes.extent,
            snapshot_log_bytes: sizes.snapshot_log,
            write_buffer_bytes_max: 64 << 10,
            forget: forget.to_vec(),
            value_check: Some(forebay_catalog::records::check_version),
            ..forebay_store::Settings::new(vec![sizes.bytes(); disks.len()])
        };
        let disks = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
        Store::open(self.env(), disks, store_settings, None).await.map_err(|error| error.to_string())
    }

    fn mounts(&self, env: &Env) -> Mounts {
        let settings = GovernorSettings { concurrency_max: 4, ..GovernorSettings::default() };
        let governor = govern(env, &settings, None);
        let lane = |lane| {
            let store = self.root.assume(&bucket(BUCKET));
            Arc::new(Governed::new(store, Arc::clone(&governor), lane)) as Arc<dyn UnderStore>
        };
        let root = |lane| {
            let root: Arc<dyn BucketRoot> = Arc::new(self.root.clone());
            Arc::new(GovernedRoot::new(root, Arc::clone(&governor), lane)) as Arc<dyn BucketRoot>
        };
        let mount = Mount { foreground: lane(Lane::Foreground), background: lane(Lane::Background) };
        Mounts {
            mounts: BTreeMap::from([(bucket(BUCKET), mount)]),
            root: Some(root(Lane::Foreground)),
            background_root: Some(root(Lane::Background)),
        }
    }

    fn settings(&self) -> Settings {
        let (config, sizes) = (&self.config, self.sizes.lock().clone());
        Settings {
            page_size: ByteSize(sizes.page),
            read_ahead_pages: 2,
            memory_size: ByteSize(sizes.memory),
            memory_object_max: ByteSize(sizes.memory_object),
            pinned_ratio: sizes.pinned_ratio,
            persist_concurrency: config.persist_concurrency,
            persist_backoff_min: Period::from_secs(1),
            persist_backoff_max: Period::from_secs(60),
            settle_time: Period::from_secs(config.settle_s),
            part_size_min: ByteSize(1),
            ..Settings::default()
        }
    }

    /// The rules of the configuration.
    pub(crate) fn policies(&self) -> Vec<PolicyRule> {
        let config = &self.config;
        let durability = if config.os_durability { Durability::Os } else { Durability::Fsync };
        let all = PolicyRule {
            write_mode: Some(config.modes[0]),
            eviction: Some(config.eviction),
            metadata_ttl: Some(Period::from_secs(config.ttl_s)),
            list_ttl: config.list_ttl_s.map(Period::from_secs),
            cache_reads: Some(config.cache_reads),
            pinned_full: Some(config.pinned_full),
            write_replicas: (config.write_replicas > 1).then_some(config.write_replicas),
            when_replicas_missing: (config.write_replicas > 1).then_some(config.when_replicas_missing),
            durability: Some(durability),
            ..PolicyRule::for_path("/")
        };
        let of_prefix = PREFIXES.iter().zip(config.modes).map(|(prefix, mode)| PolicyRule {
            write_mode: Some(mode),
            ..PolicyRule::for_path(&format!("/{BUCKET}/{prefix}"))
        });
        // For all prefixes, whatever their mode becomes.
        let by_size = PolicyRule {
            write_back_max_size: config.write_back_max.map(ByteSize),
            read_cache_max_size: config.read_cache_max.map(ByteSize),
            ..PolicyRule::for_path(&format!("/{BUCKET}/"))
        };
        [all, by_size].into_iter().chain(of_prefix).collect()
    }

    /// Runs `work` as a process of its own: until it ends or, when that is first, for `most`. Says whether it ended.
    /// All tasks of the process end with it.
    pub(crate) async fn process(&self, most: Duration, work: impl Future<Output = ()>) -> bool {
        self.process_until(self.world.clock.sleep(most), work).await
    }

    /// The same, until `killed`.
    pub(crate) async fn process_until(&self, killed: impl Future<Output = ()>, work: impl Future<Output = ()>) -> bool {
        let process = Process::default();
        let ended = tokio::select! {
            biased;
            () = process.run(work) => true,
            () = killed => false,
            () = self.stall(&process) => unreachable!("it never ends"),
        };
        if let Some(is_spare) = self.copies.is_spare() {
            let losses = self.world.replaced.load(Ordering::Relaxed);
            self.spare_after.store(if is_spare { losses } else { usize::MAX }, Ordering::Relaxed);
        }
        process.kill();
        self.is_serving.store(false, Ordering::Relaxed);
        self.catalog.lock().take();
        self.copies.leave();
        self.engine.crash();
        ended
    }

    /// Waits until all disks could be lost, if that comes soon.
    pub(crate) async fn until_spare(&self) {
        let until = self.world.clock.now() + SPARE_WAIT;
        while self.copies.is_spare() != Some(true) && self.world.clock.now() < until {
            self.world.clock.sleep(Duration::from_millis(50)).await;
        }
    }
}
