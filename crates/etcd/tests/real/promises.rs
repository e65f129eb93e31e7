//! What every engine promises.

use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::{Engine, ErrorKind, conformance};
use forebay_etcd::{EtcdEngine, EtcdSettings};

use crate::servers::{Etcd, check, check_kind, engine, put, value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_keeps_the_promises_of_an_engine() {
    let etcd = Etcd::start(1).await;
    conformance::run_engine(&etcd.engine()).await;
    clusters_that_share_an_etcd_do_not_see_each_other(&etcd).await;
    a_transaction_that_etcd_would_not_take_is_refused(&etcd.engine()).await;
    a_scan_of_many_values_comes_in_pages(&etcd.engine()).await;
    a_scan_shows_one_state(&etcd).await;
    increments_of_several_workers_all_count(&etcd).await;
}

async fn clusters_that_share_an_etcd_do_not_see_each_other(etcd: &Etcd) {
    let [one, other] = ["one", "one-more"].map(|prefix| {
        let settings = EtcdSettings { prefix: prefix.to_owned(), ..etcd.settings() };
        engine(&settings)
    });
    one.commit(&[], &[put("key", "of one"), put("\u{10ffff}", "last")]).await.expect("etcd writes");
    other.commit(&[check("key", None)], &[put("key", "of the other")]).await.expect("there is no such key");
    assert_eq!(value(&one, "key").await, Some("of one".into()));
    let found = other.scan(b"", b"\xff", 10).await.expect("etcd scans");
    assert_eq!(found.iter().map(|(key, _)| key.as_ref()).collect::<Vec<_>>(), [b"key"]);
    assert_eq!(one.scan(b"", b"\xff", 10).await.expect("etcd scans").len(), 2);
}

async fn a_transaction_that_etcd_would_not_take_is_refused(engine: &EtcdEngine) {
    let puts = |count: usize| (0..count).map(|number| put(&format!("big-{number:03}"), "")).collect::<Vec<_>>();
    let checks = |count: usize| (0..count).map(|number| check(&format!("none-{number}"), None)).collect::<Vec<_>>();
    check_kind(engine.commit(&[], &puts(129)).await, ErrorKind::Busy, "129 writes");
    check_kind(engine.commit(&checks(129), &puts(1)).await, ErrorKind::Busy, "129 checks");
    engine.commit(&checks(128), &puts(128)).await.expect("etcd takes that many");
    let large = |bytes: usize| [put("big", vec![7; bytes])];
    check_kind(engine.commit(&[], &large(3 << 19)).await, ErrorKind::Busy, "bytes");
    // The most that is sent is taken.
    engine.commit(&[], &large((3 << 19) - 600)).await.expect("etcd takes that many");
}

/// More values than a page has, and more bytes than an answer may have.
async fn a_scan_of_many_values_comes_in_pages(engine: &EtcdEngine) {
    let keys: Vec<_> = (0..1500).map(|number| format!("many-{number:04}")).collect();
    for keys in keys.chunks(75) {
        let puts: Vec<_> = keys.iter().map(|key| put(key, vec![7; 20_000])).collect();
        engine.commit(&[], &puts).await.expect("etcd writes");
    }
    for limit in [1, 1000, 1200, 1500, 9000] {
        let found = engine.scan(b"many-", b"many.", limit).await.expect("etcd scans");
        let found: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
        assert!(found.iter().eq(keys.iter().take(limit)), "{limit}: {}", found.len());
    }
}

/// Values that change together have one version, on whatever pages they are.
async fn a_scan_shows_one_state(etcd: &Etcd) {
    let together = || [put("many-0000", ""), put("many-1499", "")];
    etcd.engine().commit(&[], &together()).await.expect("etcd writes");
    let writer = {
        let engine = etcd.engine();
        forebay_env::spawn(async move {
            for _ in 0..300 {
                engine.commit(&[], &together()).await.expect("etcd writes");
            }
        })
    };
    let (engine, mut scans) = (etcd.engine(), 0);
    while !writer.is_finished() || scans == 0 {
        let found = engine.scan(b"many-", b"many.", 9000).await.expect("etcd scans");
        assert_eq!(found.len(), 1500);
        assert_eq!(found[0].1.version, found[1499].1.version);
        scans += 1;
    }
    writer.join().await;
}

async fn increments_of_several_workers_all_count(etcd: &Etcd) {
    let increment = async |engine: &EtcdEngine| loop {
        let found = engine.get(b"counter").await.expect("etcd reads");
        let count = found.as_ref().map_or(0, |found| found.value[0]);
        let checks = [check("counter", found.map(|found| found.version))];
        match engine.commit(&checks, &[put("counter", Bytes::copy_from_slice(&[count + 1]))]).await {
            Ok(_) => return,
            Err(error) => assert_eq!(error.kind, ErrorKind::Conflict, "{error}"),
        }
    };
    let workers = (0..4).map(|_| {
        let engine = Arc::new(etcd.engine());
        forebay_env::spawn(async move {
            for _ in 0..25 {
                increment(&engine).await;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.join().await;
    }
    assert_eq!(value(&etcd.engine(), "counter").await, Some(Bytes::from_static(&[100])));
}
