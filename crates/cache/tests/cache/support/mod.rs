//! A real cache on a disk in memory, before an under store in memory, on a clock that the test moves.

pub(crate) mod gate;
pub(crate) mod jobs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_cache::{
    Attributes, ByteStream, Cache, Conditions, CreateUpload, Error, ErrorKind, GetObject, Incoming, ListObjects, Mount,
    Mounts, ObjectBody, ObjectHead, OtherWorkers, Parts, PutObject, RangeRequest, Result, Settings, TagCondition,
    Written,
};
use forebay_catalog::{Catalog, EmbeddedCatalog, Generations, SlotSet, Transaction, Versioned, Watch};
use forebay_env::clock::ManualClock;
use forebay_env::disk::memory::MemoryDisk;
use forebay_env::{Clock, Disk, Env};
use forebay_store::{Store, ValueWrite};
use forebay_types::{
    BucketName, ETag, Generation, ObjectPath, Period, PolicyRule, StorageState, UserMetadata, WriteMode,
};
use forebay_ufs::BucketRoot;
use forebay_ufs::memory::{Applied, MemoryUnderStore};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

use gate::{Gate, Way};

pub(crate) const BUCKET: &str = "bucket";
pub(crate) const NEIGHBOUR: &str = "neighbour";

/// What a test waits for must come within this much real time.
const PATIENCE: Duration = Duration::from_secs(60);

/// What tests change before the cache opens.
pub(crate) struct Setup {
    pub(crate) capacity: u64,
    pub(crate) store: forebay_store::Settings,
    pub(crate) settings: Settings,
    pub(crate) policies: Vec<PolicyRule>,
    pub(crate) seed: u64,
    /// The under store of [`BUCKET`], if it is that of another worker.
    pub(crate) under: Option<MemoryUnderStore>,
    /// Where buckets beside [`BUCKET`] come from.
    pub(crate) root: Option<Arc<dyn BucketRoot>>,
    /// The mount of [`NEIGHBOUR`], if there is one.
    pub(crate) neighbour: Option<MemoryUnderStore>,
    /// A second disk, which goes on when the first has failed.
    pub(crate) spare: Option<MemoryDisk>,
    /// Until when this worker is the home of its keys; for ever without.
    pub(crate) leased_until: Option<Arc<Mutex<Duration>>>,
    /// Whether the process before this one of the worker was killed.
    pub(crate) follows_crash: bool,
    /// Its name in a cluster, and what it gets from the others; alone without.
    pub(crate) worker: Option<(&'static str, Arc<dyn OtherWorkers>)>,
    /// The slots that are at home here; all without.
    pub(crate) slots: Option<SlotSet>,
    /// What other workers do to the records that all share; nothing without.
    pub(crate) others: Option<Arc<Others>>,
}

/// Other workers of the cluster.
#[derive(Default)]
pub(crate) struct Others {
    /// How often the catalog has taken over what they have changed.
    pub(crate) changes: Mutex<u64>,
    /// What they commit just before the next transaction with checks.
    pub(crate) ahead: Mutex<Vec<ValueWrite>>,
    /// The slots that are at home here since some have moved.
    pub(crate) moved: Mutex<Option<SlotSet>>,
    /// Commits that remove this record are done, and get no answer.
    pub(crate) unanswered: Mutex<Option<Bytes>>,
    /// Ends the wait of the next scan of requests to the under store.
    held_scan: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Others {
    /// Holds the next scan of the catalog for requests to the under store until the result is dropped.
    pub(crate) fn hold_next_scan_of_requests(&self) -> oneshot::Sender<()> {
        let (release, released) = oneshot::channel();
        *self.held_scan.lock() = Some(released);
        release
    }
}

/// A name for the worker of a test.
pub(crate) const HERE: &str = "here";

/// The home of all slots before.
pub(crate) const FORMER: &str = "former";

/// The catalog of a worker that is not alone, or whose lease tests set.
struct SharedCatalog {
    inner: EmbeddedCatalog,
    clock: Arc<dyn Clock>,
    until: Option<Arc<Mutex<Duration>>>,
    worker: Option<&'static str>,
    slots: Option<SlotSet>,
    follows_crash: bool,
    others: Option<Arc<Others>>,
}

#[async_trait]
impl Catalog for SharedCatalog {
    async fn get(&self, key: &[u8]) -> forebay_catalog::Result<Option<Versioned>> {
        self.inner.get(key).await
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> forebay_catalog::Result<Vec<(Bytes, Versioned)>> {
        if self.lease() == Some(Duration::ZERO) && from.starts_with(b"u/") {
            let problem = "the lease is over";
            return Err(forebay_catalog::Error::new(forebay_catalog::ErrorKind::Unavailable, problem));
        }
        if let Some(others) = self.others.as_ref().filter(|_| from.starts_with(b"r/")) {
            let held = others.held_scan.lock().take();
            if let Some(released) = held {
                // The sender is dropped.
                let _ = released.await;
            }
        }
        self.inner.scan(from, to, limit).await
    }

    async fn commit(&self, transaction: Transaction) -> forebay_catalog::Result<u64> {
        let is_of_key = |write: &ValueWrite| forebay_catalog::records::parse_object_key(&write.key).is_some();
        if self.lease() == Some(Duration::ZERO) && transaction.writes.iter().any(is_of_key) {
            let problem = "the lease is over";
            return Err(forebay_catalog::Error::new(forebay_catalog::ErrorKind::Unavailable, problem));
        }
        if let Some(others) = self.others.as_ref().filter(|_| !transaction.checks.is_empty()) {
            let writes = std::mem::take(&mut *others.ahead.lock());
            if !writes.is_empty() {
                self.inner.commit(Transaction { writes, ..Transaction::default() }).await?;
                *others.changes.lock() += 1;
            }
        }
        if transaction.shared_changes.is_some_and(|expected| expected != self.shared_changes()) {
            let problem = "other workers have changed something";
            return Err(forebay_catalog::Error::new(forebay_catalog::ErrorKind::Conflict, problem));
        }
        let unanswered = self.others.as_ref().and_then(|others| others.unanswered.lock().clone());
        let removes = |write: &ValueWrite| write.value.is_none() && Some(&write.key) == unanswered.as_ref();
        let is_unanswered = transaction.writes.iter().any(removes);
        let version = self.inner.commit(transaction).await?;
        if is_unanswered {
            let problem = "the answer is lost";
            return Err(forebay_catalog::Error::new(forebay_catalog::ErrorKind::Unknown, problem));
        }
        Ok(version)
    }

    async fn watch(&self, key: &[u8]) -> forebay_catalog::Result<Watch> {
        self.inner.watch(key).await
    }

    async fn generations(&self, now_ms: u64) -> forebay_catalog::Result<Arc<dyn Generations>> {
        self.inner.generations(now_ms).await
    }

    fn lease(&self) -> Option<Duration> {
        self.until.as_ref().map(|until| until.lock().saturating_sub(self.clock.monotonic()))
    }

    fn follows_crash(&self) -> bool {
        self.follows_crash
    }

    fn shared_changes(&self) -> u64 {
        self.others.as_ref().map_or(0, |others| *others.changes.lock())
    }

    fn worker(&self) -> Option<&str> {
        self.worker
    }

    fn slots(&self) -> Option<SlotSet> {
        let moved = self.others.as_ref().and_then(|others| others.moved.lock().clone());
        moved.or_else(|| self.slots.clone())
    }

    fn former_home(&self, _hash: u64) -> Option<String> {
        Some(FORMER.to_owned())
    }
}

/// Nothing waits for a clock that only tests move.
fn store_settings(capacities: Vec<u64>) -> forebay_store::Settings {
    forebay_store::Settings { sync_delay: Duration::ZERO, ..forebay_store::Settings::new(capacities) }
}

impl Setup {
    pub(crate) fn new(mode: WriteMode) -> Self {
        let capacity = 256 << 20;
        let (persist_backoff_min, persist_delay) = (Period::from_secs(1), Period(Duration::ZERO));
        let settings = Settings { persist_backoff_min, persist_delay, ..Settings::default() };
        let policies = vec![rule("/", mode)];
        let store = store_settings(vec![capacity]);
        Self {
            capacity,
            store,
            settings,
            policies,
            seed: 1,
            under: None,
            root: None,
            neighbour: None,
            spare: None,
            leased_until: None,
            follows_crash: false,
            worker: None,
            slots: None,
            others: None,
        }
    }

    pub(crate) fn capacity(mut self, capacity: u64) -> Self {
        self.capacity = capacity;
        self.store = store_settings(vec![capacity]);
        self
    }

    /// Two disks of the same size.
    pub(crate) fn with_spare_disk(mut self) -> Self {
        self.spare = Some(MemoryDisk::new(self.capacity));
        self.store = store_settings(vec![self.capacity; 2]);
        self
    }

    pub(crate) fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub(crate) fn policy(mut self, change: impl FnOnce(&mut PolicyRule)) -> Self {
        change(&mut self.policies[0]);
        self
    }

    pub(crate) async fn open(self) -> Bench {
        let (env, clock) = Env::simulated(self.seed);
        let under = self.under.clone().unwrap_or_default();
        let (foreground, background) = (Gate::new(under.clone()), Gate::new(under.clone()));
        let disk = MemoryDisk::new(self.capacity);
        let (cache, registry, store) = build(&self, &env, &disk, &foreground, &background).await;
        Bench { cache, registry, store, under, foreground, background, disk, clock, env, setup: self }
    }
}

pub(crate) fn rule(path: &str, mode: WriteMode) -> PolicyRule {
    PolicyRule { write_mode: Some(mode), ..PolicyRule::for_path(path) }
}

async fn open_store(setup: &Setup, env: &Env, disk: &MemoryDisk) -> Store {
    let disks = [disk.clone()].into_iter().chain(setup.spare.clone());
    let disks = disks.map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect();
    Store::open(env.clone(), disks, setup.store.clone(), None).await.expect("store")
}

async fn build(
    setup: &Setup,
    env: &Env,
    disk: &MemoryDisk,
    foreground: &Gate,
    background: &Gate,
) -> (Cache, Registry, Store) {
    try_build(setup, env, disk, foreground, background).await.expect("cache")
}

async fn try_build(
    setup: &Setup,
    env: &Env,
    disk: &MemoryDisk,
    foreground: &Gate,
    background: &Gate,
) -> Result<(Cache, Registry, Store)> {
    let store = open_store(setup, env, disk).await;
    let (embedded, kept) = (EmbeddedCatalog::new(store.clone()), store.clone());
    let catalog: Arc<dyn Catalog> =
        match setup.leased_until.is_some() || setup.worker.is_some() || setup.others.is_some() {
            true => Arc::new(SharedCatalog {
                inner: embedded,
                clock: Arc::clone(&env.clock),
                until: setup.leased_until.clone(),
                worker: setup.worker.as_ref().map(|(name, _)| *name),
                slots: setup.slots.clone(),
                follows_crash: setup.follows_crash,
                others: setup.others.clone(),
            }),
            false => Arc::new(embedded),
        };
    let mount = Mount { foreground: Arc::new(foreground.clone()), background: Arc::new(background.clone()) };
    let mut mounts = BTreeMap::from([(BucketName::new(BUCKET).expect("bucket"), mount)]);
    if let Some(store) = &setup.neighbour {
        let store = Arc::new(store.clone());
        let mount = Mount { foreground: store.clone(), background: store };
        mounts.insert(BucketName::new(NEIGHBOUR).expect("bucket"), mount);
    }
    let mounts = Mounts { mounts, root: setup.root.clone(), background_root: None };
    let (settings, policies) = (setup.settings.clone(), setup.policies.clone());
    let others = setup.worker.as_ref().map(|(_, others)| Arc::clone(others));
    let parts = Parts { env: env.clone(), store, catalog, mounts, settings, policies, others };
    let mut registry = Registry::default();
    Ok((Cache::open(parts, &mut registry).await?, registry, kept))
}

/// A cache and all around it.
pub(crate) struct Bench {
    pub(crate) cache: Cache,
    registry: Registry,
    /// Behind the cache's back.
    pub(crate) store: Store,
    pub(crate) under: MemoryUnderStore,
    /// What requests of clients go through on their way to the under store.
    pub(crate) foreground: Gate,
    /// What background work goes through.
    pub(crate) background: Gate,
    pub(crate) disk: MemoryDisk,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) env: Env,
    pub(crate) setup: Setup,
}

impl Bench {
    pub(crate) async fn new(mode: WriteMode) -> Self {
        Setup::new(mode).open().await
    }

    /// Ends the process in order and starts it again.
    pub(crate) async fn restart(&mut self) {
        self.close().await;
        self.reopen().await;
    }

    pub(crate) async fn close(&self) {
        self.closed().await.expect("close");
    }

    /// Ends the cache while the clock runs.
    async fn closed(&self) -> Result<()> {
        let cache = self.cache.clone();
        let closing = forebay_env::spawn(async move { cache.close().await });
        self.advancing("the cache closes", || closing.is_finished()).await;
        closing.join().await
    }

    pub(crate) async fn reopen(&mut self) {
        (self.cache, self.registry, self.store) =
            build(&self.setup, &self.env, &self.disk, &self.foreground, &self.background).await;
    }

    /// Why the closed cache does not open again.
    pub(crate) async fn refusal(&self) -> Error {
        let opened = try_build(&self.setup, &self.env, &self.disk, &self.foreground, &self.background).await;
        opened.err().expect("the start is refused")
    }

    /// Removes a record of the catalog while the cache is closed.
    pub(crate) async fn remove_record(&self, key: Bytes) {
        self.write_record(key, None).await;
    }

    /// Changes a record of the catalog while the cache is closed.
    pub(crate) async fn write_record(&self, key: Bytes, value: Option<Bytes>) {
        let store = open_store(&self.setup, &self.env, &self.disk).await;
        let writes = vec![ValueWrite { key, value }];
        EmbeddedCatalog::new(store.clone())
            .commit(Transaction { writes, ..Transaction::default() })
            .await
            .expect("commit");
        store.close().await.expect("close");
    }

    /// Cuts the power and starts again. What the dead process still tries reaches neither the disk nor the under store.
    pub(crate) async fn power_loss(&mut self, seed: u64) {
        self.crash(|disk| disk.power_loss(seed)).await;
    }

    /// Kills the process and starts it again: what it has written stays, synced or not.
    pub(crate) async fn kill(&mut self) {
        self.crash(MemoryDisk::kill).await;
    }

    async fn crash(&mut self, disk: impl Fn(&MemoryDisk)) {
        disk(&self.disk);
        self.setup.spare.iter().for_each(disk);
        self.foreground.set(Way::Cut);
        self.background.set(Way::Cut);
        (self.foreground, self.background) = (Gate::new(self.under.clone()), Gate::new(self.under.clone()));
        // Only to end the dead process's tasks: it can't write any more.
        let _ = self.closed().await;
        (self.cache, self.registry, self.store) =
            build(&self.setup, &self.env, &self.disk, &self.foreground, &self.background).await;
    }

    pub(crate) async fn put(&self, key: &str, body: impl Into<Bytes>) -> Result<Written> {
        self.put_if(key, body, Conditions::default()).await
    }

    pub(crate) async fn put_if(&self, key: &str, body: impl Into<Bytes>, conditions: Conditions) -> Result<Written> {
        let body = incoming(body.into());
        self.cache.put(PutObject { path: path(key), body, attributes: Attributes::default(), conditions }).await
    }

    /// Writes an object whose metadata leaves no room for the stamp.
    pub(crate) async fn put_without_stamp(
        &self,
        key: &str,
        body: impl Into<Bytes>,
        conditions: Conditions,
    ) -> Result<Written> {
        let user = UserMetadata::from([("long".to_owned(), "x".repeat(2000))]);
        let (attributes, body) = (Attributes { user, ..Attributes::default() }, incoming(body.into()));
        self.cache.put(PutObject { path: path(key), body, attributes, conditions }).await
    }

    pub(crate) async fn open_get(&self, key: &str, range: Option<RangeRequest>) -> Result<ObjectBody> {
        self.cache.get(get_request(key, range)).await
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Bytes> {
        collect(self.open_get(key, None).await?.stream).await
    }

    /// Bytes `first..=last`.
    pub(crate) async fn get_range(&self, key: &str, first: u64, last: u64) -> Result<Bytes> {
        collect(self.open_get(key, Some(RangeRequest::From { first, last: Some(last) })).await?.stream).await
    }

    pub(crate) async fn head(&self, key: &str) -> Result<ObjectHead> {
        self.cache.head(get_request(key, None)).await
    }

    pub(crate) async fn state(&self, key: &str) -> StorageState {
        self.head(key).await.expect("head").state
    }

    pub(crate) async fn delete(&self, key: &str) -> Result<()> {
        self.cache.delete(&path(key), &Conditions::default()).await
    }

    /// All keys, in the order of the listing.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let request = ListObjects { limit: 1000, ..ListObjects::default() };
        let page = self.cache.list(&BucketName::new(BUCKET).expect("bucket"), &request).await.expect("list");
        page.objects.into_iter().map(|object| object.key).collect()
    }

    /// Waits until nothing waits for the under store, moving the clock over every pause.
    pub(crate) async fn drain(&self) {
        self.advancing("the backlog drains", || self.is_drained()).await;
    }

    pub(crate) fn is_drained(&self) -> bool {
        let status = self.cache.status();
        status.dirty_objects == 0 && status.tombstones == 0
    }

    /// Waits for a condition while the clock runs.
    pub(crate) async fn advancing(&self, what: &str, condition: impl Fn() -> bool) {
        let clock = Arc::clone(&self.clock);
        let mut turns = 0_u32;
        until(what, || {
            turns += 1;
            // Most waits end without any pause: time only moves when many turns have brought nothing.
            if turns.is_multiple_of(64) {
                clock.advance(Duration::from_millis(500));
            }
            condition()
        })
        .await;
    }

    /// Makes all that is known of the under store too old to be believed.
    pub(crate) fn age_metadata(&self) {
        self.clock.advance(Duration::from_secs(61));
    }

    pub(crate) fn under(&self, key: &str) -> Option<Bytes> {
        self.under.contents().get(key).cloned()
    }

    /// The generations of a key in the order in which they were applied.
    pub(crate) fn generations(&self, wanted: &str) -> Vec<Generation> {
        let generation = |applied: Applied| match applied {
            Applied::Put { key, generation } if key == wanted => Some(generation),
            Applied::Put { .. } | Applied::Delete { .. } => None,
        };
        self.under.applied().into_iter().filter_map(generation).collect()
    }

    /// What a scrape shows.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("metrics");
        text
    }

    /// A number of a scrape by its name and labels; 0 when it is not there yet.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.metrics();
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// Lets pass what requests without an answer may take.
    pub(crate) async fn settle(&self) {
        self.clock.advance(self.setup.settings.settle_time.0);
        others_go_on().await;
    }

    /// Lets seconds pass, one after the other, and background work with them.
    pub(crate) async fn pass_seconds(&self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            others_go_on().await;
        }
    }

    /// Every place on the disk that holds `needle`: file and offset.
    pub(crate) async fn places(&self, needle: &[u8]) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        for name in self.disk.list().await.expect("list") {
            let contents = self.disk.contents(&name).expect("file");
            let places = contents.windows(needle.len()).enumerate().filter(|(_, window)| *window == needle);
            found.extend(places.map(|(offset, _)| (name.clone(), offset)));
        }
        found
    }

    /// Flips a bit of every place on the disk that holds `needle`. Returns how many there were.
    pub(crate) async fn damage(&self, needle: &[u8]) -> usize {
        let places = self.places(needle).await;
        places.iter().for_each(|(name, offset)| self.disk.flip_bit(name, *offset, 3));
        places.len()
    }
}

/// Waits for a condition, giving way to everything else between two looks.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = Env::real().clock;
    let start = clock.monotonic();
    while !condition() {
        assert!(clock.monotonic() - start < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::task::yield_now().await;
    }
}

/// Gives all tasks the time to come to where they wait.
pub(crate) async fn others_go_on() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn path(key: &str) -> ObjectPath {
    ObjectPath::parse(BUCKET, key).expect("path")
}

pub(crate) fn create_upload(path: ObjectPath) -> CreateUpload {
    let (attributes, owner) = (Attributes::default(), "owner".to_owned());
    CreateUpload { path, attributes, checksum_algorithm: None, checksum_kind: None, owner }
}

pub(crate) fn incoming(body: Bytes) -> Incoming {
    let size = body.len() as u64;
    incoming_stream(stream::once(async { Ok(body) }).boxed(), size)
}

pub(crate) fn incoming_stream(stream: ByteStream, size: u64) -> Incoming {
    Incoming { stream, size, md5: None, sha256: None, checksums: Vec::new(), compute: Vec::new(), trailers: None }
}

pub(crate) fn get_request(key: &str, range: Option<RangeRequest>) -> GetObject {
    GetObject { range, ..GetObject::whole(path(key)) }
}

pub(crate) async fn collect(mut stream: ByteStream) -> Result<Bytes> {
    let mut data = Vec::new();
    while let Some(next) = stream.next().await {
        data.extend_from_slice(&next?);
    }
    Ok(data.into())
}

pub(crate) fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

pub(crate) fn if_absent() -> Conditions {
    Conditions { if_none_match: Some(TagCondition::Any), ..Conditions::default() }
}

pub(crate) fn if_matches(etag: &ETag) -> Conditions {
    Conditions { if_match: Some(TagCondition::OneOf(vec![etag.clone()])), ..Conditions::default() }
}

/// Bytes that differ from place to place and from seed to seed, so that no part of a body passes for another.
pub(crate) fn pattern(seed: u64, size: usize) -> Bytes {
    forebay_env::random::SeededRandom::new(seed).bytes(size).into()
}

/// The seeds to run: the one of `FOREBAY_TEST_SEED`, or `count` fixed ones.
pub(crate) fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("FOREBAY_TEST_SEED") {
        Ok(seed) => vec![seed.parse().expect("FOREBAY_TEST_SEED is a number")],
        Err(_) => (1..=count).collect(),
    }
}
