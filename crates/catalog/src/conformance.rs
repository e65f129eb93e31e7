//! What every catalog and every engine must do.

use std::sync::Arc;

use bytes::Bytes;
use forebay_store::ValueWrite;

use crate::{Catalog, Check, Engine, ErrorKind, Transaction, Versioned};

/// Runs the suite; `new` makes an empty catalog for each of its tests.
///
/// # Panics
/// When a promise is broken.
pub async fn run(new: impl AsyncFn() -> Arc<dyn Catalog>) {
    values_are_written_and_deleted(&*new().await).await;
    a_failed_check_changes_nothing(&*new().await).await;
    scans_are_ordered_and_limited(&*new().await).await;
    a_watch_tells_the_last_value(&*new().await).await;
    concurrent_increments_all_count(new().await).await;
    checks_prevent_write_skew(new().await).await;
    readers_see_whole_commits(new().await).await;
    a_commit_goes_on_without_its_caller(new().await).await;
}

/// The suite of engines, on an empty one.
///
/// # Panics
/// When a promise is broken.
pub async fn run_engine(engine: &dyn Engine) {
    let committed = async |checks: &[Check], writes: &[ValueWrite]| engine.commit(checks, writes).await;
    let first = committed(&[], &[write("a", "1"), write("b", "")]).await.expect("no check can fail");
    let found = engine.get(b"a").await.expect("an engine reads");
    assert_eq!(found, Some(Versioned { value: "1".into(), version: first }));
    let second = committed(&[check("a", Some(first))], &[write("a", "2"), delete("b"), delete("never")]).await;
    let second = second.expect("the check holds");
    assert!(second > first, "versions grow: {first}, {second}");
    for failing in [check("a", None), check("a", Some(first)), check("b", Some(first))] {
        let error =
            committed(&[check("a", Some(second)), failing], &[write("c", "")]).await.expect_err("a check fails");
        assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    }
    let keys = ["k2", "k1", "k3\0x", "k3", "k4"].map(|key| write(key, ""));
    committed(&[check("b", None)], &keys).await.expect("the key is gone");
    for (from, to, limit, expected) in [
        ("k1", "k4", 9, vec!["k1", "k2", "k3", "k3\0x"]),
        ("k1", "z", 2, vec!["k1", "k2"]),
        ("k2\0", "k3\0", 9, vec!["k3"]),
        ("k4", "k1", 9, vec![]),
    ] {
        let found = engine.scan(from.as_bytes(), to.as_bytes(), limit).await.expect("an engine scans");
        assert!(found.iter().map(|(key, _)| key.as_ref()).eq(expected.iter().map(|key| key.as_bytes())), "{found:?}");
    }
    assert_eq!(engine.get(b"c").await.expect("an engine reads"), None, "nothing of what conflicts is done");
}

fn write(key: &str, value: &str) -> ValueWrite {
    ValueWrite { key: Bytes::from(key.to_owned()), value: Some(Bytes::from(value.to_owned())) }
}

fn delete(key: &str) -> ValueWrite {
    ValueWrite { key: Bytes::from(key.to_owned()), value: None }
}

fn check(key: &str, version: Option<u64>) -> Check {
    Check { key: Bytes::from(key.to_owned()), version }
}

async fn commit(catalog: &dyn Catalog, checks: Vec<Check>, writes: Vec<ValueWrite>) -> crate::Result<u64> {
    catalog.commit(Transaction { checks, writes, ..Transaction::default() }).await
}

async fn put(catalog: &dyn Catalog, writes: Vec<ValueWrite>) -> u64 {
    commit(catalog, Vec::new(), writes).await.expect("a write without checks succeeds")
}

async fn get(catalog: &dyn Catalog, key: &str) -> Option<Versioned> {
    catalog.get(key.as_bytes()).await.expect("an catalog reads")
}

async fn scan(catalog: &dyn Catalog, from: &str, to: &str, limit: usize) -> Vec<String> {
    let found = catalog.scan(from.as_bytes(), to.as_bytes(), limit).await.expect("an catalog scans");
    found.iter().map(|(key, found)| format!("{}={}", key.escape_ascii(), found.value.escape_ascii())).collect()
}

async fn values_are_written_and_deleted(catalog: &dyn Catalog) {
    assert_eq!(get(catalog, "a").await, None);
    let first = put(catalog, vec![write("a", "1"), write("b", "")]).await;
    assert_eq!(get(catalog, "a").await, Some(Versioned { value: "1".into(), version: first }));
    assert_eq!(get(catalog, "b").await, Some(Versioned { value: Bytes::new(), version: first }));
    let second = put(catalog, vec![write("a", "2"), delete("b"), delete("never")]).await;
    assert!(second > first, "versions grow: {first}, {second}");
    assert_eq!(get(catalog, "a").await, Some(Versioned { value: "2".into(), version: second }));
    assert_eq!(get(catalog, "b").await, None);
    assert!(put(catalog, vec![write("b", "again")]).await > second);
}

async fn a_failed_check_changes_nothing(catalog: &dyn Catalog) {
    let first = put(catalog, vec![write("a", "1")]).await;
    for failing in [check("a", None), check("a", Some(first + 1)), check("b", Some(first))] {
        let checks = vec![check("a", Some(first)), failing];
        let error = commit(catalog, checks, vec![write("a", "2"), write("c", "2")]).await.expect_err("a check fails");
        assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    }
    assert_eq!(scan(catalog, "a", "z", 10).await, ["a=1"]);
    let checks = vec![check("a", Some(first)), check("b", None)];
    commit(catalog, checks, vec![write("b", "1")]).await.expect("both checks hold");
    assert_eq!(get(catalog, "a").await.map(|found| found.version), Some(first), "a check is no write");
}

async fn scans_are_ordered_and_limited(catalog: &dyn Catalog) {
    put(catalog, ["b", "a", "c\0x", "c", "d"].map(|key| write(key, "")).into()).await;
    assert_eq!(scan(catalog, "a", "d", 10).await, ["a=", "b=", "c=", "c\\x00x="]);
    assert_eq!(scan(catalog, "a", "z", 2).await, ["a=", "b="]);
    assert_eq!(scan(catalog, "b\0", "c\0", 10).await, ["c="]);
    for (from, to, limit) in [("b", "b", 9), ("c", "a", 9), ("e", "f", 9), ("a", "z", 0)] {
        assert!(scan(catalog, from, to, limit).await.is_empty(), "{from}..{to}, {limit}");
    }
}

async fn a_watch_tells_the_last_value(catalog: &dyn Catalog) {
    let value = |watch: &mut crate::Watch| watch.borrow_and_update().as_ref().map(|found| found.value.clone());
    let mut early = catalog.watch(b"a").await.expect("an catalog watches");
    assert_eq!(value(&mut early), None);
    put(catalog, vec![write("a", "1"), write("b", "1")]).await;
    early.changed().await.expect("the catalog lives");
    assert_eq!(value(&mut early), Some("1".into()));
    let mut late = catalog.watch(b"a").await.expect("an catalog watches");
    assert_eq!(value(&mut late), Some("1".into()), "a watch begins with the present value");
    let last = put(catalog, vec![write("a", "2")]).await;
    for watch in [&mut early, &mut late] {
        watch.changed().await.expect("the catalog lives");
        let seen = watch.borrow_and_update().clone();
        assert_eq!(seen, Some(Versioned { value: "2".into(), version: last }));
    }
    put(catalog, vec![delete("a")]).await;
    late.wait_for(Option::is_none).await.expect("the catalog lives");
}

fn number(found: Option<&Versioned>) -> u64 {
    found.map_or(0, |found| found.value.escape_ascii().to_string().parse().expect("a number"))
}

async fn increment(catalog: &dyn Catalog) {
    loop {
        let found = get(catalog, "counter").await;
        let next = (number(found.as_ref()) + 1).to_string();
        let checks = vec![check("counter", found.map(|found| found.version))];
        match commit(catalog, checks, vec![write("counter", &next)]).await {
            Ok(_) => return,
            Err(error) => assert_eq!(error.kind, ErrorKind::Conflict, "{error}"),
        }
    }
}

async fn concurrent_increments_all_count(catalog: Arc<dyn Catalog>) {
    let workers = (0..8).map(|_| {
        let catalog = Arc::clone(&catalog);
        forebay_env::spawn(async move {
            for _ in 0..25 {
                increment(&*catalog).await;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.join().await;
    }
    assert_eq!(number(get(&*catalog, "counter").await.as_ref()), 200);
}

/// Two transactions that each check what the other writes: one of them must fail.
async fn checks_prevent_write_skew(catalog: Arc<dyn Catalog>) {
    for round in 0..50 {
        let (left, right) = (format!("left {round}"), format!("right {round}"));
        let tasks = [(left.clone(), right.clone()), (right, left)].map(|(read, written)| {
            let catalog = Arc::clone(&catalog);
            forebay_env::spawn(async move {
                commit(&*catalog, vec![check(&read, None)], vec![write(&written, "")]).await.is_ok()
            })
        });
        let [first, second] = tasks;
        assert!(first.join().await != second.join().await, "exactly one succeeds");
    }
}

async fn readers_see_whole_commits(catalog: Arc<dyn Catalog>) {
    let keys: Vec<String> = (0..20).map(|key| format!("k{key:02}")).collect();
    let writer = {
        let (catalog, keys) = (Arc::clone(&catalog), keys.clone());
        forebay_env::spawn(async move {
            for round in 0..200 {
                put(&*catalog, keys.iter().map(|key| write(key, &round.to_string())).collect()).await;
            }
        })
    };
    while !writer.is_finished() {
        let found = catalog.scan(b"k", b"l", 100).await.expect("an catalog scans");
        assert!(found.is_empty() || found.len() == keys.len(), "{} keys of a commit", found.len());
        let versions: std::collections::BTreeSet<_> = found.iter().map(|(_, found)| found.version).collect();
        assert!(versions.len() <= 1, "parts of several commits: {versions:?}");
        tokio::task::yield_now().await;
    }
    writer.join().await;
}

/// A caller that goes away in the middle leaves no half commit and no lock.
async fn a_commit_goes_on_without_its_caller(catalog: Arc<dyn Catalog>) {
    for round in 0..20 {
        let caller = {
            let catalog = Arc::clone(&catalog);
            forebay_env::spawn(async move { put(&*catalog, vec![write("a", "first"), write("b", "first")]).await })
        };
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        caller.abort();
        put(&*catalog, vec![write("c", "second")]).await;
        let last = put(&*catalog, vec![write("a", "second"), write("b", "second")]).await;
        assert_eq!(get(&*catalog, "a").await.map(|found| found.version >= last), Some(true));
    }
}
