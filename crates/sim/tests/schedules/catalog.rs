//! The embedded catalog: one commit at a time for each key, and who watches it.

use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::{Catalog, Check, EmbeddedCatalog, ErrorKind, Transaction};
use forebay_env::Env;
use forebay_env::disk::memory::MemoryDisk;
use forebay_store::ValueWrite;
use forebay_types::Durability;

use crate::explore::explore;
use crate::store::{open, small};

const COUNTER: &[u8] = b"counter";

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("eight bytes"))
}

/// Adds one to the counter, if nobody else has since it was read, and writes a key that all others write too. Returns
/// what it was set to.
async fn add_one(catalog: &dyn Catalog, beside: &'static str) -> Option<u64> {
    let before = catalog.get(COUNTER).await.expect("readable");
    let next = before.as_ref().map_or(0, |found| number(&found.value)) + 1;
    let check = Check { key: COUNTER.into(), version: before.map(|found| found.version) };
    let write = |key: &[u8]| ValueWrite {
        key: Bytes::copy_from_slice(key),
        value: Some(Bytes::copy_from_slice(&next.to_be_bytes())),
    };
    let writes = vec![write(COUNTER), write(beside.as_bytes())];
    let transaction = Transaction { checks: vec![check], writes, durability: Durability::Os, ..Transaction::default() };
    match catalog.commit(transaction).await {
        Ok(_) => Some(next),
        Err(error) if error.kind == ErrorKind::Conflict => None,
        Err(error) => panic!("{error}"),
    }
}

async fn count_together() {
    let (env, _) = Env::simulated(1);
    let store = open(&env, &[MemoryDisk::default()], small(1, 64)).await;
    let catalog = Arc::new(EmbeddedCatalog::new(store.clone()));
    let adders: Vec<_> = ["a", "z", "a"]
        .map(|beside| {
            let catalog = Arc::clone(&catalog);
            forebay_env::spawn(async move {
                let mut added = Vec::new();
                for _ in 0..3 {
                    added.extend(add_one(catalog.as_ref(), beside).await);
                }
                added
            })
        })
        .into();
    let watcher = {
        let catalog = Arc::clone(&catalog);
        forebay_env::spawn(async move { catalog.watch(COUNTER).await.expect("watched") })
    };
    let watch = watcher.join().await;
    let mut added = Vec::new();
    for adder in adders {
        added.extend(adder.join().await);
    }
    added.sort_unstable();
    assert_eq!(added, (1..=added.len() as u64).collect::<Vec<_>>(), "each number is given once");
    let seen = watch.borrow().as_ref().map(|found| number(&found.value));
    assert_eq!(seen, added.last().copied(), "the last change is always told");
    store.close().await.expect("the store closes");
}

#[test]
fn a_check_holds_until_its_commit_shows() {
    explore(600, count_together);
}

async fn watch_beside_a_commit() {
    let (env, _) = Env::simulated(1);
    let store = open(&env, &[MemoryDisk::default()], small(1, 64)).await;
    let catalog = Arc::new(EmbeddedCatalog::new(store.clone()));
    let keys: Vec<_> = (0..8).map(|number| Bytes::from(format!("key {number}"))).collect();
    let watchers: Vec<_> = keys
        .iter()
        .map(|key| {
            let (catalog, key) = (Arc::clone(&catalog), key.clone());
            forebay_env::spawn(async move { catalog.watch(&key).await.expect("watched") })
        })
        .collect();
    let writes = keys.iter().map(|key| ValueWrite { key: key.clone(), value: Some(Bytes::from_static(b"new")) });
    let writes = writes.collect();
    catalog.commit(Transaction { writes, ..Transaction::default() }).await.expect("there is room");
    for watcher in watchers {
        let watch = watcher.join().await;
        assert!(watch.borrow().is_some(), "a watch has missed the commit");
    }
    store.close().await.expect("the store closes");
}

#[test]
fn a_watch_misses_no_change() {
    explore(600, watch_beside_a_commit);
}
