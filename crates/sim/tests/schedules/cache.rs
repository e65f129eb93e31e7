//! The worker: reads beside writes, evictions and uploads.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_cache::{
    Attributes, Cache, Conditions, ErrorKind, GetObject, Incoming, Mount, Mounts, Parts, PutObject, RangeRequest,
    Result, Settings,
};
use forebay_catalog::EmbeddedCatalog;
use forebay_env::Env;
use forebay_env::disk::memory::MemoryDisk;
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_store::Store;
use forebay_types::{BucketName, ByteSize, ObjectPath, PolicyRule, WriteMode};
use futures::{StreamExt, stream};
use prometheus_client::registry::Registry;

use crate::explore::explore;
use crate::store::{content, open, small, version_of};
use crate::under_store::Watched;

const BUCKET: &str = "bucket";
const KEY: &str = "key";

/// A worker and what is behind it.
#[derive(Clone)]
struct Bench {
    cache: Cache,
    store: Store,
    under: Watched,
    registry: Arc<Registry>,
}

impl Bench {
    async fn new(mode: WriteMode, change: impl FnOnce(&mut Settings)) -> Self {
        let (env, _) = Env::simulated(1);
        let store = open(&env, &[MemoryDisk::default()], small(1, 64)).await;
        let under = Watched::default();
        let mount = Mount { foreground: Arc::new(under.clone()), background: Arc::new(under.clone()) };
        let mounts = BTreeMap::from([(BucketName::new(BUCKET).expect("a valid name"), mount)]);
        let mut settings = Settings {
            page_size: ByteSize(64),
            memory_size: ByteSize(64 << 10),
            persist_concurrency: 2,
            ..Settings::default()
        };
        change(&mut settings);
        let parts = Parts {
            env,
            store: store.clone(),
            catalog: Arc::new(EmbeddedCatalog::new(store.clone())),
            mounts: Mounts { mounts, root: None, background_root: None },
            settings,
            policies: vec![PolicyRule { write_mode: Some(mode), ..PolicyRule::for_path("/") }],
            others: None,
        };
        let mut registry = Registry::default();
        let cache = Cache::open(parts, &mut registry).await.expect("the cache opens");
        Self { cache, store, under, registry: Arc::new(registry) }
    }

    async fn put(&self, version: u64, size: usize) -> Result<()> {
        self.put_at(path(), version, size).await
    }

    async fn put_at(&self, path: ObjectPath, version: u64, size: usize) -> Result<()> {
        let body = content(version, size);
        let body = Incoming {
            stream: stream::once(async { Ok(body) }).boxed(),
            size: size as u64,
            md5: None,
            sha256: None,
            checksums: Vec::new(),
            compute: Vec::new(),
            trailers: None,
        };
        let (attributes, conditions) = (Attributes::default(), Conditions::default());
        self.cache.put(PutObject { path, body, attributes, conditions }).await.map(drop)
    }

    async fn delete(&self) {
        self.cache.delete(&path(), &Conditions::default()).await.expect("a delete");
    }

    async fn get(&self, range: Option<RangeRequest>) -> Result<Bytes> {
        let request = GetObject { range, ..GetObject::whole(path()) };
        let mut body = self.cache.get(request).await?.stream;
        let mut data = Vec::new();
        while let Some(next) = body.next().await {
            data.extend(next?);
        }
        Ok(data.into())
    }

    /// Copies that were dropped because the under store was found to have something else.
    fn external_changes(&self) -> bool {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("metrics are text");
        !text.lines().any(|line| line == "forebay_external_changes_total 0")
    }

    async fn close(self) {
        assert!(!self.cache.has_failed(), "no background task ends by itself");
        self.cache.close().await.expect("the cache closes");
    }
}

fn path() -> ObjectPath {
    ObjectPath::parse(BUCKET, KEY).expect("a valid path")
}

/// What one writer has begun and ended, one write after the other, and what readers have seen.
#[derive(Default)]
struct Register {
    begun: AtomicU64,
    ended: AtomicU64,
    /// The newest that a read which has ended has seen.
    seen: Mutex<u64>,
}

/// Every third write is a delete.
fn is_delete(version: u64) -> bool {
    version.is_multiple_of(3)
}

async fn write_versions(bench: Bench, register: Arc<Register>, versions: u64) {
    for version in 1..=versions {
        register.begun.store(version, Ordering::SeqCst);
        match is_delete(version) {
            true => bench.delete().await,
            false => bench.put(version, if version.is_multiple_of(2) { 20 } else { 300 }).await.expect("a write"),
        }
        register.ended.store(version, Ordering::SeqCst);
    }
}

/// Reads, and checks that the answer is of a write that it may be of: begun before the read ended, not overwritten by
/// one that ended before the read began, and no older than what an earlier read has seen.
async fn read_one(bench: &Bench, register: &Register) {
    let oldest = (*register.seen.lock()).max(register.ended.load(Ordering::SeqCst));
    let answer = bench.get(None).await;
    let newest = register.begun.load(Ordering::SeqCst);
    let seen = match answer {
        Ok(data) => Some(version_of(&data)),
        // Before the first write, or after a delete.
        Err(error) if error.kind == ErrorKind::NotFound => (oldest..=newest).find(|version| is_delete(*version)),
        Err(error) => panic!("a read fails: {error}"),
    };
    let seen = seen.unwrap_or_else(|| panic!("nothing was found, and nothing was deleted in {oldest}..={newest}"));
    assert!((oldest..=newest).contains(&seen), "a read finds {seen}, not one of {oldest}..={newest}");
    let mut newest_seen = register.seen.lock();
    *newest_seen = seen.max(*newest_seen);
}

/// One writes, two read, one evicts what may be evicted, and what is dirty goes to the under store.
async fn read_beside_writes(mode: WriteMode) {
    let bench = Bench::new(mode, |_| {}).await;
    let register = Arc::<Register>::default();
    let writer = forebay_env::spawn(write_versions(bench.clone(), Arc::clone(&register), 5));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (bench, register) = (bench.clone(), Arc::clone(&register));
            forebay_env::spawn(async move {
                for _ in 0..4 {
                    read_one(&bench, &register).await;
                }
            })
        })
        .collect();
    let evictor = {
        let bench = bench.clone();
        forebay_env::spawn(async move {
            for _ in 0..4 {
                let mut found = Vec::new();
                bench
                    .store
                    .for_each_object(&mut |key, generation, _| found.push((Bytes::copy_from_slice(key), generation)));
                found.into_iter().for_each(|(key, generation)| {
                    bench.store.evict(&key, generation);
                });
                shuttle::future::yield_now().await;
            }
        })
    };
    let persister = {
        let bench = bench.clone();
        forebay_env::spawn(async move {
            for _ in 0..3 {
                bench.cache.persist("/").await.expect("what is dirty is persisted");
            }
        })
    };
    for task in readers.into_iter().chain([writer, evictor, persister]) {
        task.join().await;
    }
    read_one(&bench, &register).await;
    bench.cache.persist("/").await.expect("what is dirty is persisted");
    let contents = bench.under.inner.contents();
    assert_eq!(contents.get(KEY).map(version_of), Some(5), "the under store has the last write");
    assert!(!bench.external_changes(), "nobody else writes to the under store");
    let puts: Vec<_> = bench.under.applied().into_iter().flatten().collect();
    assert!(puts.is_sorted_by(|a, b| a < b), "{puts:?}");
    read_one(&bench, &register).await;
    bench.close().await;
}

#[test]
fn reads_find_the_newest_write_that_is_acknowledged_here() {
    explore(800, || read_beside_writes(WriteMode::WriteBack));
}

#[test]
fn reads_find_the_newest_write_that_passes_through() {
    explore(200, || read_beside_writes(WriteMode::WriteThrough));
}

async fn read_beside_one_write() {
    let bench = Bench::new(WriteMode::WriteThrough, |_| {}).await;
    bench.under.inner.put_outside(KEY, content(1, 40));
    let reader = {
        let bench = bench.clone();
        forebay_env::spawn(async move { bench.get(None).await.map(|data| version_of(&data)) })
    };
    bench.put(2, 40).await.expect("a write");
    let found = reader.join().await.expect("a read");
    assert!((1..=2).contains(&found), "{found}");
    assert_eq!(version_of(&bench.get(None).await.expect("a read")), 2, "what was overtaken by a write is not kept");
    assert!(!bench.external_changes(), "nobody else has written since the worker first looked");
    bench.close().await;
}

#[test]
fn an_answer_that_a_write_overtakes_is_not_kept() {
    explore(4000, read_beside_one_write);
}

async fn read_a_page_together() {
    // Objects that memory takes are read whole.
    let bench = Bench::new(WriteMode::WriteThrough, |settings| settings.memory_object_max = ByteSize(0)).await;
    bench.under.inner.put_outside(KEY, content(7, 200));
    let range = || Some(RangeRequest::From { first: 64, last: Some(127) });
    // So that what the under store has is known, and no page of it.
    let request = GetObject::whole(path());
    bench.cache.head(request).await.expect("a head");
    assert_eq!(bench.under.gets(), 0);
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let bench = bench.clone();
            forebay_env::spawn(async move { bench.get(range()).await.expect("a read") })
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.join().await, content(7, 64));
    }
    assert_eq!(bench.under.gets(), 1, "one fetch, however many ask");
    bench.close().await;
}

#[test]
fn a_page_is_fetched_once_however_many_ask() {
    explore(300, read_a_page_together);
}

async fn first_read_together() {
    let bench = Bench::new(WriteMode::WriteThrough, |_| {}).await;
    bench.under.inner.put_outside(KEY, content(7, 40));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let bench = bench.clone();
            forebay_env::spawn(async move { bench.get(None).await.expect("a read") })
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.join().await, content(7, 40));
    }
    assert_eq!(bench.under.gets(), 1, "one request, however many ask");
    bench.close().await;
}

#[test]
fn an_object_is_first_read_by_one_request() {
    explore(300, first_read_together);
}

const LIMITED: usize = 1000;

async fn write_to_the_limit() {
    let capacity = 64.0 * f64::from(2 << 10);
    let bench = Bench::new(WriteMode::Transient, |settings| settings.pinned_ratio = 2500.0 / capacity).await;
    let writers: Vec<_> = (1..=4)
        .map(|version| {
            let bench = bench.clone();
            let path = ObjectPath::parse(BUCKET, &version.to_string()).expect("a valid path");
            forebay_env::spawn(async move { bench.put_at(path, version, LIMITED).await.is_ok() })
        })
        .collect();
    let mut written = 0;
    for writer in writers {
        written += usize::from(writer.join().await);
    }
    assert!(written <= 2, "{written} writes of {LIMITED} bytes where 2500 may be pinned");
    bench.close().await;
}

/// However many ask at once, and whatever is written while they do.
#[test]
fn pinned_data_stays_below_its_share() {
    explore(300, write_to_the_limit);
}
