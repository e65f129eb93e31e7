use forebay_env::disk::memory::MemoryDisk;
use forebay_env::{Disk, Env};
use forebay_store::{Settings, ValueWrite};
use forebay_types::Durability;

use super::*;

fn disk() -> MemoryDisk {
    MemoryDisk::new(128 << 20)
}

async fn open(disk: &MemoryDisk) -> Store {
    let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(disk.clone())];
    let settings = Settings {
        segment_bytes: 2 << 20,
        inline_bytes_max: 64 << 10,
        extent_bytes_max: 1 << 20,
        snapshot_log_bytes: 16 << 20,
        sync_delay: std::time::Duration::ZERO,
        free_ratio: 0.1,
        write_buffer_bytes_max: 8 << 20,
        ..Settings::new(vec![64 << 20])
    };
    Store::open(Env::real(), disks, settings, None).await.unwrap()
}

fn transaction(key: &'static str, value: &'static str, durability: Durability) -> Transaction {
    let value = Some(Bytes::from_static(value.as_bytes()));
    let writes = vec![ValueWrite { key: Bytes::from_static(key.as_bytes()), value }];
    Transaction { writes, durability, ..Transaction::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_promises_of_an_engine() {
    crate::conformance::run(async || {
        let store = open(&disk()).await;
        Arc::new(EmbeddedCatalog::new(store)) as Arc<dyn Catalog>
    })
    .await;
}

#[tokio::test]
async fn commits_survive_a_power_loss_and_versions_go_on() {
    for seed in 0..10 {
        let disk = disk();
        let engine = EmbeddedCatalog::new(open(&disk).await);
        engine.commit(transaction("a", "old", Durability::Fsync)).await.unwrap();
        let last = engine.commit(transaction("a", "new", Durability::Fsync)).await.unwrap();
        disk.power_loss(seed);
        let engine = EmbeddedCatalog::new(open(&disk).await);
        let found = engine.get(b"a").await.unwrap();
        assert_eq!(found, Some(Versioned { value: "new".into(), version: last }), "seed {seed}");
        let next = engine.commit(transaction("b", "", Durability::Fsync)).await.unwrap();
        assert!(next > last, "seed {seed}: {next} after {last}");
    }
}

#[tokio::test]
async fn values_survive_a_clean_close() {
    let disk = disk();
    let store = open(&disk).await;
    let engine = EmbeddedCatalog::new(store.clone());
    let version = engine.commit(transaction("a", "kept", Durability::Os)).await.unwrap();
    store.close().await.unwrap();
    let error = engine.commit(transaction("a", "late", Durability::Fsync)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    let engine = EmbeddedCatalog::new(open(&disk).await);
    assert_eq!(engine.get(b"a").await.unwrap(), Some(Versioned { value: "kept".into(), version }));
}

#[tokio::test]
async fn a_failed_sync_leaves_the_outcome_unknown() {
    let disk = disk();
    let engine = EmbeddedCatalog::new(open(&disk).await);
    disk.fail_syncs(1);
    let error = engine.commit(transaction("a", "1", Durability::Fsync)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unknown);
    assert_eq!(engine.get(b"a").await.unwrap(), None, "what is not known to hold is not shown");
}

#[tokio::test]
async fn commits_on_one_key_wait_for_each_other() {
    let disk = disk();
    let engine = Arc::new(EmbeddedCatalog::new(open(&disk).await));
    let base = engine.commit(transaction("a", "0", Durability::Fsync)).await.unwrap();
    disk.hold_syncs(true);
    let tasks = ["1", "2"].map(|value| {
        let engine = Arc::clone(&engine);
        let checks = vec![Check { key: Bytes::from_static(b"a"), version: Some(base) }];
        let transaction = Transaction { checks, ..transaction("a", value, Durability::Fsync) };
        forebay_env::spawn(async move { engine.commit(transaction).await })
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    disk.hold_syncs(false);
    let [first, second] = tasks;
    let outcomes = [first.join().await, second.join().await];
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
}
