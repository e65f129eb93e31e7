//! A database that is full, and one that is kept small.

use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::{Engine, ErrorKind};
use forebay_env::Env;
use forebay_etcd::EtcdEngine;

use crate::servers::{Etcd, check, check_kind, put, value};

/// The quota of etcd, which is exceeded after some transactions.
const QUOTA: &str = "16777216";

#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_refuses_commits_until_it_is_defragmented() {
    let directory = tempfile::tempdir().expect("a directory");
    let etcd = Etcd::start_with(1, "http", directory, &["--quota-backend-bytes", QUOTA]);
    etcd.wait_until_well().await;
    let engine = etcd.engine();
    let mut version = engine.commit(&[], &[put("key", "first")]).await.expect("there is room");
    let status = engine.status().await.remove(0).status.expect("it answers");
    assert_eq!((status.version.as_str(), status.quota_bytes, status.is_full), ("3.7.3", 16 << 20, false));
    assert!(status.used_bytes <= status.database_bytes, "{status:?}");
    let error = loop {
        match engine.commit(&[check("key", Some(version))], &[put("key", vec![7; 1 << 20])]).await {
            Ok(next) => version = next,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("space exceeded"), "{error}");
    // Busy: not done. Unknown: etcd has done it, and found out too late.
    let found = engine.get(b"key").await.expect("reads go on").expect("a value");
    assert_eq!(error.kind == ErrorKind::Busy, found.version == version, "{error}");
    version = found.version;
    check_kind(engine.commit(&[], &[put("other", "value")]).await, ErrorKind::Busy, "space exceeded");
    let refused = engine.commit(&[check("key", Some(version))], &[put("key", "small")]).await;
    check_kind(refused, ErrorKind::Busy, "space exceeded");
    let stale = engine.commit(&[check("key", Some(version - 1))], &[put("key", "small")]).await;
    assert!(stale.is_err(), "{stale:?}");
    let status = engine.status().await.remove(0).status.expect("it answers");
    assert!(status.is_full && status.database_bytes > 8 << 20, "{status:?}");
    etcd.ctl(&["compact", &version.to_string()]);
    etcd.ctl(&["defrag"]);
    etcd.ctl(&["alarm", "disarm"]);
    engine.commit(&[check("key", Some(version))], &[put("key", "small")]).await.expect("there is room again");
    assert_eq!(value(&engine, "other").await, None, "what is refused is not done");
    assert!(!engine.status().await.remove(0).status.expect("it answers").is_full);
}

/// etcd compares sizes before a transaction and after it, so one that was done may be answered like one that was not.
#[tokio::test(flavor = "multi_thread")]
async fn commits_that_are_refused_together_are_done_or_not_as_they_say() {
    let directory = tempfile::tempdir().expect("a directory");
    let etcd = Etcd::start_with(1, "http", directory, &["--quota-backend-bytes", QUOTA]);
    etcd.wait_until_well().await;
    let engine = Arc::new(etcd.engine());
    let keys: Vec<_> = (0..40).map(|number| format!("key-{number}")).collect();
    let small: Vec<_> = keys.iter().map(|key| put(key, "small")).collect();
    let first = engine.commit(&[], &small).await.expect("there is room");
    let mut versions = vec![first; keys.len()];
    let mut refused = 0;
    while refused == 0 {
        let tasks = keys.iter().cloned().zip(versions.clone()).map(|(key, version)| {
            let engine = Arc::clone(&engine);
            forebay_env::spawn(async move {
                engine.commit(&[check(&key, Some(version))], &[put(&key, vec![7; 256 << 10])]).await
            })
        });
        for ((task, key), version) in tasks.collect::<Vec<_>>().into_iter().zip(&keys).zip(&mut versions) {
            let result = task.join().await;
            let found = engine.get(key.as_bytes()).await.expect("etcd answers").expect("it was never deleted");
            match result {
                Ok(version) => assert_eq!(found.version, version),
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("space exceeded"), "{error}");
                    let kind = if found.version == *version { ErrorKind::Busy } else { ErrorKind::Unknown };
                    assert_eq!(error.kind, kind, "{error}");
                }
            }
            *version = found.version;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_revisions_are_compacted_away_and_late_ones_stay() {
    let etcd = Etcd::start(1).await;
    let (env, clock) = Env::simulated(1);
    // Calls have all the time in the world: that of the clock.
    let [one, other] = [(); 2].map(|()| EtcdEngine::new(&env, &etcd.settings()).expect("sound settings"));
    let mut versions = Vec::new();
    for minute in 0..8 {
        versions.push(one.commit(&[], &[put("key", format!("{minute}"))]).await.expect("etcd writes"));
        let expected = (minute >= 5).then(|| versions[minute - 5]);
        assert_eq!(one.compact().await.expect("etcd answers"), expected, "{minute}");
        // The second has nothing left to do.
        assert_eq!(other.compact().await.expect("etcd answers"), None, "{minute}");
        clock.advance(Duration::from_secs(60));
    }
    let kept = etcd.ctl(&["get", "forebay/key", "--print-value-only", "--rev", &versions[3].to_string()]);
    assert_eq!(kept.trim(), "3");
    let gone = etcd.run_ctl(&["get", "forebay/key", "--rev", &versions[1].to_string()]);
    assert!(!gone.status.success(), "it was compacted away");
    assert_eq!(value(&one, "key").await, Some("7".into()));
}
