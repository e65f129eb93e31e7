//! What other workers of a cluster change for all: path policies and buckets.

use std::sync::Arc;
use std::time::Duration;

use forebay_cache::{Conditions, DeletionStep, ErrorKind, GetObject};
use forebay_catalog::records::{self, BucketRecord, PolicyRecord};
use forebay_catalog::{Slot, SlotCount, SlotSet};
use forebay_store::{Commit, ValueWrite};
use forebay_types::{BucketName, Durability, ObjectPath, Period, PolicyRule, WriteMode};
use forebay_ufs::BucketRoot;
use forebay_ufs::memory::{MemoryRoot, Mood};

use crate::buckets::{put_of, with_late_root};
use crate::support::{Bench, Others, Setup, collect, incoming, kind, path, rule, until};

async fn open(setup: Setup) -> (Bench, Arc<Others>) {
    let others = Arc::<Others>::default();
    (Setup { others: Some(Arc::clone(&others)), ..setup }.open().await, others)
}

fn policies(revision: u64, rules: Vec<PolicyRule>) -> ValueWrite {
    let configured = vec![rule("/", WriteMode::WriteThrough)];
    let value = Some(PolicyRecord { rules, configured, revision }.encode());
    ValueWrite { key: records::policy_key(), value }
}

fn bucket(name: &str, record: Option<BucketRecord>) -> ValueWrite {
    let bucket = BucketName::new(name).expect("a name");
    ValueWrite { key: records::bucket_key(&bucket), value: record.map(BucketRecord::encode) }
}

fn name(name: &str) -> BucketName {
    BucketName::new(name).expect("a name")
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
    // The under store can't be asked: it does not have this one.
    change(&bench, &others, bucket("made", Some(BucketRecord::Open))).await;
    assert!(!bench.cache.bucket_exists(&name("made")).await.unwrap());
    bench.cache.follow_shared().await.unwrap();
    assert!(bench.cache.bucket_exists(&name("made")).await.unwrap());
    root.create(&name("deleted")).await.unwrap();
    assert!(bench.cache.bucket_exists(&name("deleted")).await.unwrap());
    root.delete(&name("deleted")).await.unwrap();
    change(&bench, &others, bucket("deleted", None)).await;
    assert!(bench.cache.bucket_exists(&name("deleted")).await.unwrap());
    bench.cache.follow_shared().await.unwrap();
    assert!(!bench.cache.bucket_exists(&name("deleted")).await.unwrap());
}

/// This worker was not asked to forget them, or could not.
#[tokio::test]
async fn copies_go_with_a_bucket_that_another_worker_has_deleted() {
    let root = MemoryRoot::default();
    let setup = Setup { root: Some(Arc::new(root.clone())), ..Setup::new(WriteMode::WriteThrough) };
    let (bench, others) = open(setup).await;
    for body in ["former", "next"] {
        root.create(&name("made")).await.unwrap();
        root.bucket(&name("made")).unwrap().put_outside("key", body.into());
        change(&bench, &others, bucket("made", Some(BucketRecord::Open))).await;
        bench.cache.follow_shared().await.unwrap();
        let path = ObjectPath::parse("made", "key").unwrap();
        let found = bench.cache.get(GetObject::whole(path)).await.unwrap();
        assert_eq!(collect(found.stream).await.unwrap(), body);
        change(&bench, &others, bucket("made", Some(BucketRecord::Deleting(7)))).await;
        bench.cache.follow_shared().await.unwrap();
        root.bucket(&name("made")).unwrap().delete_outside("key");
        root.delete(&name("made")).await.unwrap();
        change(&bench, &others, bucket("made", None)).await;
        bench.cache.follow_shared().await.unwrap();
    }
}

/// A disk that is not mounted, or a gateway, hides a bucket from another worker, which takes its record away.
#[tokio::test]
async fn copies_stay_when_the_record_of_a_bucket_goes_without_a_deletion() {
    let root = MemoryRoot::default();
    let setup = Setup { root: Some(Arc::new(root.clone())), ..Setup::new(WriteMode::WriteThrough) };
    let setup = setup.policy(|rule| rule.metadata_ttl = Some(Period::from_secs(3600)));
    let (bench, others) = open(setup).await;
    root.create(&name("made")).await.unwrap();
    let under = root.bucket(&name("made")).unwrap();
    for body in ["value", "not asked for"] {
        under.put_outside("key", body.into());
        change(&bench, &others, bucket("made", Some(BucketRecord::Open))).await;
        bench.cache.follow_shared().await.unwrap();
        let path = ObjectPath::parse("made", "key").unwrap();
        let found = bench.cache.get(GetObject::whole(path)).await.unwrap();
        assert_eq!(collect(found.stream).await.unwrap(), "value");
        change(&bench, &others, bucket("made", None)).await;
        bench.cache.follow_shared().await.unwrap();
    }
}

/// In a cluster of one, so that it can be asked for a step of a deletion.
fn home_of_all() -> Setup {
    let slots = SlotSet::none(SlotCount::new(8).expect("slots")).others();
    Setup { slots: Some(slots), ..Setup::new(WriteMode::WriteBack) }
}

#[tokio::test]
async fn a_bucket_that_another_worker_deletes_takes_no_writes_until_that_has_ended() {
    let root = MemoryRoot::default();
    let (bench, others) = open(Setup { root: Some(Arc::new(root.clone())), ..home_of_all() }).await;
    let (made, put) =
        (name("made"), async |key: &str| kind(bench.cache.put(put_of(key, incoming("value".into()))).await));
    bench.cache.create_bucket(&made).await.unwrap();
    let under = root.bucket(&made).unwrap();
    under.set_mood(Mood::Refuse(forebay_ufs::ErrorKind::Unavailable));
    assert_eq!(put("a").await, None);
    let quiesce = || bench.cache.deletion_step(&made, DeletionStep::Quiesce(7));
    assert_eq!(kind(quiesce().await), Some(ErrorKind::Unavailable), "nobody deletes it");
    change(&bench, &others, bucket("made", Some(BucketRecord::Deleting(7)))).await;
    assert_eq!(kind(quiesce().await), Some(ErrorKind::BucketNotEmpty));
    assert_eq!(put("b").await, Some(ErrorKind::Unavailable));
    assert!(bench.cache.bucket_exists(&made).await.unwrap());
    change(&bench, &others, bucket("made", Some(BucketRecord::Open))).await;
    assert_eq!(put("c").await, None);
    assert_eq!(kind(quiesce().await), Some(ErrorKind::Unavailable), "the deletion has ended");

    under.set_mood(Mood::Well);
    for key in ["a", "c"] {
        bench.cache.delete(&ObjectPath::parse("made", key).unwrap(), &Conditions::default()).await.unwrap();
    }
    change(&bench, &others, bucket("made", Some(BucketRecord::Deleting(8)))).await;
    let slots = bench.cache.deletion_step(&made, DeletionStep::Quiesce(8)).await.unwrap();
    assert!(slots.others().is_empty());
    assert_eq!(bench.cache.status().tombstones, 0, "the under store has the deletes");
    root.delete(&made).await.unwrap();
    change(&bench, &others, bucket("made", None)).await;
    assert!(!bench.cache.bucket_exists(&made).await.unwrap(), "nobody has told this worker");
    assert_eq!(put("d").await, Some(ErrorKind::NoSuchBucket));
}

/// The keys of slots on their way here may have writes that this worker does not know of yet.
#[tokio::test]
async fn a_worker_answers_a_deletion_for_the_slots_that_it_has_taken_up_alone() {
    let root = MemoryRoot::default();
    let (bench, others) = open(Setup { root: Some(Arc::new(root)), ..home_of_all() }).await;
    let bucket_name = name("made");
    bench.cache.create_bucket(&bucket_name).await.unwrap();
    let mut on_its_way = SlotSet::none(SlotCount::new(8).expect("slots"));
    on_its_way.insert(Slot(3));
    bench.cache.lose(&on_its_way).await.unwrap();
    change(&bench, &others, bucket("made", Some(BucketRecord::Deleting(7)))).await;
    let answered = || bench.cache.deletion_step(&bucket_name, DeletionStep::Quiesce(7));
    assert_eq!(answered().await.unwrap(), on_its_way.others());
    bench.cache.gain(&on_its_way).await.unwrap();
    assert!(answered().await.unwrap().others().is_empty());
}

/// Its worker has ended, or its request to the under store has had no answer.
#[tokio::test]
async fn a_deletion_that_nobody_ends_is_ended_after_two_minutes() {
    for is_deleted in [false, true] {
        let root = MemoryRoot::default();
        let setup = Setup { root: Some(Arc::new(root.clone())), ..home_of_all() };
        let (bench, others) = open(setup).await;
        bench.cache.create_bucket(&name("made")).await.unwrap();
        change(&bench, &others, bucket("made", Some(BucketRecord::Deleting(7)))).await;
        bench.cache.follow_shared().await.unwrap();
        if is_deleted {
            root.delete(&name("made")).await.unwrap();
        }
        let put = async || kind(bench.cache.put(put_of("key", incoming("value".into()))).await);
        bench.clock.advance(Duration::from_secs(120));
        assert_eq!(put().await, Some(ErrorKind::Unavailable));
        bench.clock.advance(Duration::from_millis(1));
        assert_eq!(put().await, is_deleted.then_some(ErrorKind::NoSuchBucket));
    }
}

/// The request to the under store may land that long after it was sent.
#[tokio::test]
async fn a_deletion_that_nobody_ends_is_not_ended_before_it_is_settled() {
    let setup = home_of_all().settings(|settings| settings.settle_time = Period::from_secs(600));
    let (bench, others) = open(Setup { root: Some(Arc::new(MemoryRoot::default())), ..setup }).await;
    bench.cache.create_bucket(&name("made")).await.unwrap();
    change(&bench, &others, bucket("made", Some(BucketRecord::Deleting(7)))).await;
    bench.cache.follow_shared().await.unwrap();
    let put = async || kind(bench.cache.put(put_of("key", incoming("value".into()))).await);
    bench.clock.advance(Duration::from_secs(660));
    assert_eq!(put().await, Some(ErrorKind::Unavailable));
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(put().await, None);
}

#[tokio::test]
async fn a_bucket_that_another_worker_has_deleted_since_it_was_found_is_not_believed() {
    let others = Arc::<Others>::default();
    let (bench, root, bucket) = with_late_root(Setup { others: Some(Arc::clone(&others)), ..home_of_all() }).await;
    root.set_late(true);
    let (cache, request) = (bench.cache.clone(), put_of("key", incoming("value".into())));
    let putting = forebay_env::spawn(async move { cache.put(request).await });
    until("the write looks for the bucket", || root.is_waiting()).await;
    root.delete(&bucket).await.unwrap();
    *others.changes.lock() += 1;
    root.set_late(false);
    root.answer();
    assert_eq!(kind(putting.join().await), Some(ErrorKind::NoSuchBucket));
    assert_eq!(bench.cache.status().dirty_objects, 0);
}
