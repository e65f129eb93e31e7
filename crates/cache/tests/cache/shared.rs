//! What other workers of a cluster change for all: path policies and buckets.

use std::sync::Arc;

use forebay_cache::ErrorKind;
use forebay_catalog::records::{self, PolicyRecord};
use forebay_store::{Commit, ValueWrite};
use forebay_types::{BucketName, Durability, PolicyRule, WriteMode};
use forebay_ufs::BucketRoot;
use forebay_ufs::memory::MemoryRoot;

use crate::support::{Bench, Others, Setup, kind, path, rule};

async fn open(setup: Setup) -> (Bench, Arc<Others>) {
    let others = Arc::<Others>::default();
    (Setup { others: Some(Arc::clone(&others)), ..setup }.open().await, others)
}

fn policies(revision: u64, rules: Vec<PolicyRule>) -> ValueWrite {
    let configured = vec![rule("/", WriteMode::WriteThrough)];
    let value = Some(PolicyRecord { rules, configured, revision }.encode());
    ValueWrite { key: records::policy_key(), value }
}

fn bucket(name: &str, exists: bool) -> ValueWrite {
    let bucket = BucketName::new(name).expect("a name");
    ValueWrite { key: records::bucket_key(&bucket), value: exists.then(Default::default) }
}

/// The catalog has taken this over from another worker.
async fn change(bench: &Bench, others: &Others, write: ValueWrite) {
    let commit = Commit { writes: vec![write], ..Commit::default() };
    bench.store.commit(commit, Durability::Fsync).await.expect("a commit");
    *others.changes.lock() += 1;
}

#[tokio::test]
async fn rules_of_another_worker_come_into_force() {
    let (bench, others) = open(Setup::new(WriteMode::WriteThrough)).await;
    change(&bench, &others, policies(2, vec![rule("/", WriteMode::WriteBack)])).await;
    assert_eq!(bench.cache.policies().1, 1);
    bench.cache.follow_shared().await.unwrap();
    assert_eq!(bench.cache.policies().1, 2);
    assert_eq!(bench.cache.resolve(&path("x")).write_mode, WriteMode::WriteBack);
    // What nobody tells of is not looked for.
    *others.changes.lock() -= 1;
    change(&bench, &others, policies(3, Vec::new())).await;
    bench.cache.follow_shared().await.unwrap();
    assert_eq!(bench.cache.policies().1, 2);
}

#[tokio::test]
async fn a_change_beside_one_of_another_worker_is_made_of_its_rules_or_refused() {
    for expected in [None, Some(1)] {
        let (bench, others) = open(Setup::new(WriteMode::WriteThrough)).await;
        others.ahead.lock().push(policies(2, vec![rule("/", WriteMode::WriteBack)]));
        let result = bench.cache.set_policies(vec![rule("/", WriteMode::NoCache)], expected, "anna", "edit").await;
        match expected {
            None => assert_eq!(result.unwrap(), 3),
            Some(_) => assert_eq!(kind(result), Some(ErrorKind::Conflict)),
        }
        assert_eq!(bench.cache.policies().1, if expected.is_none() { 3 } else { 2 });
    }
}

#[tokio::test]
async fn of_two_workers_that_start_at_once_one_imports_the_configuration() {
    let others = Arc::<Others>::default();
    others.ahead.lock().push(policies(1, vec![rule("/", WriteMode::WriteThrough)]));
    let setup = Setup { others: Some(Arc::clone(&others)), ..Setup::new(WriteMode::WriteThrough) };
    let mut bench = setup.open().await;
    assert!(others.ahead.lock().is_empty(), "the other one was quicker");
    assert_eq!(bench.cache.policies().1, 1);
    assert!(bench.cache.policy_history().await.unwrap().is_empty(), "the other one writes the history");
    bench.restart().await;
    assert_eq!((bench.cache.policies().1, bench.cache.replaced_rules()), (1, None));
}

#[tokio::test]
async fn buckets_of_another_worker_are_known_and_forgotten() {
    let root = MemoryRoot::default();
    let setup = Setup { root: Some(Arc::new(root.clone())), ..Setup::new(WriteMode::WriteThrough) };
    let (bench, others) = open(setup).await;
    let name = |name| BucketName::new(name).expect("a name");
    // The under store can't be asked: it does not have this one.
    change(&bench, &others, bucket("made", true)).await;
    assert!(!bench.cache.bucket_exists(&name("made")).await.unwrap());
    bench.cache.follow_shared().await.unwrap();
    assert!(bench.cache.bucket_exists(&name("made")).await.unwrap());
    root.create(&name("deleted")).await.unwrap();
    assert!(bench.cache.bucket_exists(&name("deleted")).await.unwrap());
    root.delete(&name("deleted")).await.unwrap();
    change(&bench, &others, bucket("deleted", false)).await;
    assert!(bench.cache.bucket_exists(&name("deleted")).await.unwrap());
    bench.cache.follow_shared().await.unwrap();
    assert!(!bench.cache.bucket_exists(&name("deleted")).await.unwrap());
}
