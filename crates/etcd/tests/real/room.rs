//! A database that is full, and one that is kept small.

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
    let gone = std::panic::catch_unwind(|| etcd.ctl(&["get", "forebay/key", "--rev", &versions[1].to_string()]));
    assert!(gone.is_err(), "it was compacted away");
    assert_eq!(value(&one, "key").await, Some("7".into()));
}
