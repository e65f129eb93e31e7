//! Two workers of a cluster over etcd.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::{Catalog, Engine, ErrorKind, SlotSet, Transaction, conformance, records};
use forebay_cluster::{ClusterSettings, HomeCatalog, HomeSettings, Placement, WorkerId};
use forebay_env::disk::memory::MemoryDisk;
use forebay_env::{Disk, Env};
use forebay_store::{Settings, Store, ValueWrite};
use forebay_types::ObjectPath;

use crate::servers::{Etcd, wait_until};

const CLUSTER: ClusterSettings = ClusterSettings { lease_ms: 4000, ..ClusterSettings::DEFAULT };

async fn store() -> Store {
    let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(MemoryDisk::default())];
    let settings = Settings {
        segment_bytes: 2 << 20,
        inline_bytes_max: 64 << 10,
        extent_bytes_max: 1 << 20,
        ..Settings::new(vec![64 << 20])
    };
    Store::open(Env::real(), disks, settings, None).await.expect("an empty store")
}

async fn open(etcd: &Etcd, worker: &str, is_alone: bool) -> HomeCatalog {
    let engine: Arc<dyn Engine> = Arc::new(etcd.engine());
    let worker = WorkerId::new(worker).expect("a plain name");
    let settings = HomeSettings { worker, is_alone, cluster: CLUSTER, addresses: None, under_stores: BTreeMap::new() };
    HomeCatalog::open(Env::real(), store().await, engine, settings).await.expect("etcd answers")
}

fn key(number: usize) -> Bytes {
    records::object_key(&ObjectPath::parse("bucket", &format!("key-{number}")).expect("a path"))
}

async fn write(catalog: &HomeCatalog, number: usize, value: &str) -> forebay_catalog::Result<u64> {
    let write = ValueWrite { key: key(number), value: Some(Bytes::copy_from_slice(value.as_bytes())) };
    catalog.commit(Transaction { writes: vec![write], ..Transaction::default() }).await
}

async fn read(catalog: &HomeCatalog, number: usize) -> Option<Bytes> {
    catalog.get(&key(number)).await.expect("it is at home here").map(|found| found.value)
}

/// Moves slots until nothing has to move, and each worker has some.
async fn share(catalogs: &[&HomeCatalog]) {
    wait_until(async || {
        let mut moved = 0;
        for catalog in catalogs {
            let count = catalog.slot_count();
            let moves = catalog.look(|workers| Placement::of(count, workers)).await.expect("etcd answers").moves;
            catalog.release(&moves.release).await.expect("etcd answers");
            catalog.take(&moves.take).await.expect("they are free");
            moved += moves.release.iter().count() + moves.take.iter().count();
        }
        moved == 0
    })
    .await;
}

fn slots(catalog: &HomeCatalog) -> usize {
    catalog.slots().map_or(0, |slots: SlotSet| slots.iter().count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_share_slots_over_etcd_and_one_takes_them_when_the_other_stops() {
    let etcd = Etcd::start(3).await;
    let one = open(&etcd, "one", false).await;
    share(&[&one]).await;
    assert_eq!(slots(&one), 1024);
    for number in 0..50 {
        write(&one, number, "first").await.expect("all slots are at home here");
    }
    let other = open(&etcd, "other", false).await;
    share(&[&one, &other]).await;
    assert_eq!((slots(&one), slots(&other)), (512, 512));
    for number in 0..50 {
        let (home, stranger) = match one.get(&key(number)).await {
            Ok(_) => (&one, &other),
            Err(_) => (&other, &one),
        };
        assert_eq!(read(home, number).await, Some("first".into()), "{number}");
        write(home, number, "second").await.expect("it is at home here");
        let refused = write(stranger, number, "wrong").await.expect_err("it is at home elsewhere");
        assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    }
    other.leave().await.expect("etcd answers");
    share(&[&one]).await;
    for number in 0..50 {
        assert_eq!(read(&one, number).await, Some("second".into()), "{number}");
        write(&one, number, "third").await.expect("all slots are at home here");
    }
    let late = write(&other, 0, "late").await.expect_err("it has left");
    assert_eq!(late.kind, ErrorKind::Unavailable, "{late}");
}

/// A worker whose process is gone says nothing: its slots are taken after a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_of_a_silent_worker_are_taken_after_its_lease() {
    let etcd = Etcd::start(1).await;
    let gone = open(&etcd, "gone", false).await;
    share(&[&gone]).await;
    write(&gone, 1, "first").await.expect("all slots are at home here");
    let heir = open(&etcd, "heir", false).await;
    let clock = Env::real().clock;
    drop(gone);
    let begun = clock.monotonic();
    wait_until(async || {
        share(&[&heir]).await;
        slots(&heir) == 1024
    })
    .await;
    assert!(clock.monotonic() - begun > Duration::from_millis(CLUSTER.lease_ms) / 2, "it could have lived");
    assert_eq!(read(&heir, 1).await, Some("first".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_over_etcd_keeps_the_promises_of_a_catalog() {
    let etcd = Etcd::start(1).await;
    let number = std::cell::Cell::new(0);
    conformance::run(async || {
        number.set(number.get() + 1);
        let settings = forebay_etcd::EtcdSettings { prefix: format!("run-{}", number.get()), ..etcd.settings() };
        let engine: Arc<dyn Engine> = Arc::new(crate::servers::engine(&settings));
        let worker = WorkerId::new("w1").expect("a plain name");
        let settings =
            HomeSettings { worker, is_alone: true, cluster: CLUSTER, addresses: None, under_stores: BTreeMap::new() };
        let catalog = HomeCatalog::open(Env::real(), store().await, engine, settings).await.expect("etcd answers");
        Arc::new(catalog) as Arc<dyn Catalog>
    })
    .await;
}
