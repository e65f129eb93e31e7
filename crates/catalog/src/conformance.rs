//! What every engine must do.

use std::sync::Arc;

use bytes::Bytes;
use forebay_store::ValueWrite;

use crate::{Check, Engine, ErrorKind, Transaction, Versioned};

/// Runs the suite; `new` makes an empty engine for each of its tests.
///
/// # Panics
/// When a promise is broken.
pub async fn run(new: impl AsyncFn() -> Arc<dyn Engine>) {
    values_are_written_and_deleted(&*new().await).await;
    a_failed_check_changes_nothing(&*new().await).await;
    scans_are_ordered_and_limited(&*new().await).await;
    a_watch_tells_the_last_value(&*new().await).await;
    concurrent_increments_all_count(new().await).await;
    checks_prevent_write_skew(new().await).await;
    readers_see_whole_commits(new().await).await;
    a_commit_goes_on_without_its_caller(new().await).await;
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

async fn commit(engine: &dyn Engine, checks: Vec<Check>, writes: Vec<ValueWrite>) -> crate::Result<u64> {
    engine.commit(Transaction { checks, writes, ..Transaction::default() }).await
}

async fn put(engine: &dyn Engine, writes: Vec<ValueWrite>) -> u64 {
    commit(engine, Vec::new(), writes).await.expect("a write without checks succeeds")
}

async fn get(engine: &dyn Engine, key: &str) -> Option<Versioned> {
    engine.get(key.as_bytes()).await.expect("an engine reads")
}

async fn scan(engine: &dyn Engine, from: &str, to: &str, limit: usize) -> Vec<String> {
    let found = engine.scan(from.as_bytes(), to.as_bytes(), limit).await.expect("an engine scans");
    found.iter().map(|(key, found)| format!("{}={}", key.escape_ascii(), found.value.escape_ascii())).collect()
}

async fn values_are_written_and_deleted(engine: &dyn Engine) {
    assert_eq!(get(engine, "a").await, None);
    let first = put(engine, vec![write("a", "1"), write("b", "")]).await;
    assert_eq!(get(engine, "a").await, Some(Versioned { value: "1".into(), version: first }));
    assert_eq!(get(engine, "b").await, Some(Versioned { value: Bytes::new(), version: first }));
    let second = put(engine, vec![write("a", "2"), delete("b"), delete("never")]).await;
    assert!(second > first, "versions grow: {first}, {second}");
    assert_eq!(get(engine, "a").await, Some(Versioned { value: "2".into(), version: second }));
    assert_eq!(get(engine, "b").await, None);
    assert!(put(engine, vec![write("b", "again")]).await > second);
}

async fn a_failed_check_changes_nothing(engine: &dyn Engine) {
    let first = put(engine, vec![write("a", "1")]).await;
    for failing in [check("a", None), check("a", Some(first + 1)), check("b", Some(first))] {
        let checks = vec![check("a", Some(first)), failing];
        let error = commit(engine, checks, vec![write("a", "2"), write("c", "2")]).await.expect_err("a check fails");
        assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    }
    assert_eq!(scan(engine, "a", "z", 10).await, ["a=1"]);
    let checks = vec![check("a", Some(first)), check("b", None)];
    commit(engine, checks, vec![write("b", "1")]).await.expect("both checks hold");
    assert_eq!(get(engine, "a").await.map(|found| found.version), Some(first), "a check is no write");
}

async fn scans_are_ordered_and_limited(engine: &dyn Engine) {
    put(engine, ["b", "a", "c\0x", "c", "d"].map(|key| write(key, "")).into()).await;
    assert_eq!(scan(engine, "a", "d", 10).await, ["a=", "b=", "c=", "c\\x00x="]);
    assert_eq!(scan(engine, "a", "z", 2).await, ["a=", "b="]);
    assert_eq!(scan(engine, "b\0", "c\0", 10).await, ["c="]);
    for (from, to, limit) in [("b", "b", 9), ("c", "a", 9), ("e", "f", 9), ("a", "z", 0)] {
        assert!(scan(engine, from, to, limit).await.is_empty(), "{from}..{to}, {limit}");
    }
}

async fn a_watch_tells_the_last_value(engine: &dyn Engine) {
    let value = |watch: &mut crate::Watch| watch.borrow_and_update().as_ref().map(|found| found.value.clone());
    let mut early = engine.watch(b"a").await.expect("an engine watches");
    assert_eq!(value(&mut early), None);
    put(engine, vec![write("a", "1"), write("b", "1")]).await;
    early.changed().await.expect("the engine lives");
    assert_eq!(value(&mut early), Some("1".into()));
    let mut late = engine.watch(b"a").await.expect("an engine watches");
    assert_eq!(value(&mut late), Some("1".into()), "a watch begins with the present value");
    let last = put(engine, vec![write("a", "2")]).await;
    for watch in [&mut early, &mut late] {
        watch.changed().await.expect("the engine lives");
        let seen = watch.borrow_and_update().clone();
        assert_eq!(seen, Some(Versioned { value: "2".into(), version: last }));
    }
    put(engine, vec![delete("a")]).await;
    late.wait_for(Option::is_none).await.expect("the engine lives");
}

fn number(found: Option<&Versioned>) -> u64 {
    found.map_or(0, |found| found.value.escape_ascii().to_string().parse().expect("a number"))
}

async fn increment(engine: &dyn Engine) {
    loop {
        let found = get(engine, "counter").await;
        let next = (number(found.as_ref()) + 1).to_string();
        let checks = vec![check("counter", found.map(|found| found.version))];
        match commit(engine, checks, vec![write("counter", &next)]).await {
            Ok(_) => return,
            Err(error) => assert_eq!(error.kind, ErrorKind::Conflict, "{error}"),
        }
    }
}

async fn concurrent_increments_all_count(engine: Arc<dyn Engine>) {
    let workers = (0..8).map(|_| {
        let engine = Arc::clone(&engine);
        forebay_env::spawn(async move {
            for _ in 0..25 {
                increment(&*engine).await;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.join().await;
    }
    assert_eq!(number(get(&*engine, "counter").await.as_ref()), 200);
}

/// Two transactions that each check what the other writes: one of them must fail.
async fn checks_prevent_write_skew(engine: Arc<dyn Engine>) {
    for round in 0..50 {
        let (left, right) = (format!("left {round}"), format!("right {round}"));
        let tasks = [(left.clone(), right.clone()), (right, left)].map(|(read, written)| {
            let engine = Arc::clone(&engine);
            forebay_env::spawn(async move {
                commit(&*engine, vec![check(&read, None)], vec![write(&written, "")]).await.is_ok()
            })
        });
        let [first, second] = tasks;
        assert!(first.join().await != second.join().await, "exactly one succeeds");
    }
}

async fn readers_see_whole_commits(engine: Arc<dyn Engine>) {
    let keys: Vec<String> = (0..20).map(|key| format!("k{key:02}")).collect();
    let writer = {
        let (engine, keys) = (Arc::clone(&engine), keys.clone());
        forebay_env::spawn(async move {
            for round in 0..200 {
                put(&*engine, keys.iter().map(|key| write(key, &round.to_string())).collect()).await;
            }
        })
    };
    while !writer.is_finished() {
        let found = engine.scan(b"k", b"l", 100).await.expect("an engine scans");
        assert!(found.is_empty() || found.len() == keys.len(), "{} keys of a commit", found.len());
        let versions: std::collections::BTreeSet<_> = found.iter().map(|(_, found)| found.version).collect();
        assert!(versions.len() <= 1, "parts of several commits: {versions:?}");
        tokio::task::yield_now().await;
    }
    writer.join().await;
}

/// A caller that goes away in the middle leaves no half commit and no lock.
async fn a_commit_goes_on_without_its_caller(engine: Arc<dyn Engine>) {
    for round in 0..20 {
        let caller = {
            let engine = Arc::clone(&engine);
            forebay_env::spawn(async move { put(&*engine, vec![write("a", "first"), write("b", "first")]).await })
        };
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        caller.abort();
        put(&*engine, vec![write("c", "second")]).await;
        let last = put(&*engine, vec![write("a", "second"), write("b", "second")]).await;
        assert_eq!(get(&*engine, "a").await.map(|found| found.version >= last), Some(true));
    }
}
