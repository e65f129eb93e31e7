use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::SlotCount;
use forebay_env::Clock;

use super::*;
use crate::test_engine::Fate;
use crate::test_ground::{Ground, LEASE};

/// More slots than fit into one transaction.
const SLOTS: u16 = 300;

fn cluster() -> ClusterSettings {
    ClusterSettings { slots: SlotCount::new(SLOTS).unwrap(), lease_ms: LEASE.as_millis() as u64 }
}

fn id(worker: &str) -> WorkerId {
    WorkerId::new(worker).unwrap()
}

async fn take(ground: &Ground, stream: &Arc<Stream>, worker: &str) -> Result<()> {
    ground.wait(take_all(ground, stream, worker)).await
}

fn take_all(ground: &Ground, stream: &Arc<Stream>, worker: &str) -> impl Future<Output = Result<()>> + Send + 'static {
    take_some(ground, stream, worker, all())
}

fn take_some(
    ground: &Ground,
    stream: &Arc<Stream>,
    worker: &str,
    slots: SlotSet,
) -> impl Future<Output = Result<()>> + Send + 'static {
    let (env, engine, stream, worker) = (ground.env.clone(), ground.engine(), Arc::clone(stream), id(worker));
    async move {
        let (engine, stream) = (engine.as_ref(), stream.as_ref());
        let (detector, slots_seen) = (&SharedDetector::new(LEASE), &SlotsSeen::default());
        let (env, worker, cluster) = (&env, &worker, cluster());
        Ownership { env, engine, stream, detector, slots_seen, worker, cluster }.take(&slots).await.map(drop)
    }
}

fn all() -> SlotSet {
    let mut all = SlotSet::none(cluster().slots);
    cluster().slots.all().for_each(|slot| all.insert(slot));
    all
}

/// The homes of the slots, each once.
async fn homes(ground: &Ground) -> Vec<(String, u64)> {
    let seen = Seen::read(ground.engine().as_ref()).await.unwrap();
    assert_eq!(seen.slots.len(), usize::from(SLOTS));
    let home = |(record, _): &(SlotRecord, u64)| (record.home.clone().unwrap(), record.epoch);
    let mut homes: Vec<_> = seen.slots.values().map(home).collect();
    homes.dedup();
    homes
}

#[tokio::test]
async fn a_first_worker_takes_all_slots_and_has_them_after_a_restart() {
    let ground = Ground::new();
    let stream = ground.begin("w1", 1, true).await.unwrap();
    take(&ground, &stream, "w1").await.unwrap();
    assert_eq!(homes(&ground).await, [("w1".to_owned(), 1)]);
    assert!(ground.engine.transactions.lock().iter().all(|writes| *writes <= WRITES_MAX));
    let stream = ground.begin("w1", 2, true).await.unwrap();
    let before = ground.engine.transactions.lock().len();
    take(&ground, &stream, "w1").await.unwrap();
    let after = ground.engine.transactions.lock().len();
    assert_eq!(homes(&ground).await, [("w1".to_owned(), 1)]);
    assert_eq!(after, before + usize::from(SLOTS).div_ceil(SLOTS_MAX), "it confirms that they are its own");
}

#[tokio::test]
async fn slots_of_a_worker_that_lives_stay_where_they_are() {
    let ground = Ground::new();
    let first = ground.begin("w1", 1, true).await.unwrap();
    take(&ground, &first, "w1").await.unwrap();
    let second = ground.begin("w2", 2, true).await.unwrap();
    let refused = take(&ground, &second, "w2").await.unwrap_err();
    assert!(refused.context.contains("worker w1 of this cluster owns slots"), "{refused}");
    assert_eq!(homes(&ground).await, [("w1".to_owned(), 1)]);
    first.check().unwrap();
}

#[tokio::test]
async fn slots_of_a_worker_that_has_left_are_taken_at_once() {
    let ground = Ground::new();
    let first = ground.begin("w1", 1, true).await.unwrap();
    take(&ground, &first, "w1").await.unwrap();
    first.leave().await.unwrap();
    let second = ground.begin("w2", 2, true).await.unwrap();
    let begun = ground.clock.monotonic();
    take(&ground, &second, "w2").await.unwrap();
    assert!(ground.clock.monotonic() - begun < LEASE / 10);
    assert_eq!(homes(&ground).await, [("w2".to_owned(), 2)]);
}

/// It is cut off from the engine, with a transaction on its way.
#[tokio::test]
async fn a_silent_worker_loses_its_slots_when_its_lease_is_over_and_changes_nothing_more() {
    let ground = Ground::new();
    let first = ground.begin("w1", 1, true).await.unwrap();
    take(&ground, &first, "w1").await.unwrap();
    let others = ground.beside();
    let second = others.begin("w2", 2, true).await.unwrap();
    [Fate::Late, Fate::Silence].into_iter().for_each(|fate| ground.engine.expect(fate));
    let late = {
        let (first, key) = (Arc::clone(&first), Bytes::from_static(b"key"));
        let write = ValueWrite { key, value: Some(Bytes::from_static(b"late")) };
        forebay_env::spawn(async move { first.commit(vec![write]).await })
    };
    let begun = ground.clock.monotonic();
    let taking = forebay_env::spawn(take_all(&others, &second, "w2"));
    while !taking.is_finished() {
        others.pass(LEASE / 100).await;
        let is_served = first.check().is_ok();
        assert!(!is_served || homes(&others).await == [("w1".to_owned(), 1)], "served by two");
    }
    taking.join().await.unwrap();
    let waited = ground.clock.monotonic() - begun;
    assert!(waited >= LEASE && waited < LEASE * 3 / 2, "{waited:?}");
    assert_eq!(homes(&others).await, [("w2".to_owned(), 2)]);
    let late_answers = ground.engine.deliver().await;
    assert!(matches!(late_answers.as_slice(), [Err(error)] if error.kind == ErrorKind::Conflict), "{late_answers:?}");
    ground.engine.hear_again();
    assert_eq!(ground.wait(late.join()).await.unwrap_err().kind, ErrorKind::Unknown);
    assert_eq!(others.engine.value("key").await, None);
    assert!(first.check().is_err());
    // It may come back as another life, and has nothing then.
    let first = ground.begin("w1", 3, true).await.unwrap();
    assert!(take(&ground, &first, "w1").await.is_err(), "the other one lives");
    second.check().unwrap();
}

/// Of two that want the slots of the same worker one has them, and the other one knows.
#[tokio::test]
async fn one_of_two_takes_a_slot() {
    let ground = Ground::new();
    let streams = [ground.begin("w1", 1, true).await.unwrap(), ground.begin("w2", 2, true).await.unwrap()];
    let tasks = streams.iter().zip(["w1", "w2"]);
    let tasks: Vec<_> = tasks.map(|(stream, worker)| forebay_env::spawn(take_all(&ground, stream, worker))).collect();
    let mut taken = Vec::new();
    for (task, worker) in tasks.into_iter().zip(["w1", "w2"]) {
        taken.extend(ground.wait(task.join()).await.is_ok().then(|| (worker.to_owned(), 1)));
    }
    assert!(taken.len() <= 1, "{taken:?}");
    let homes = homes(&ground).await;
    assert!(taken.is_empty() || homes == taken, "{taken:?}, {homes:?}");
}

/// A worker whose slots were to be taken with them lives after all.
#[tokio::test]
async fn a_worker_takes_up_slots_that_it_has_got_with_others_that_it_has_not() {
    let ground = Ground::new();
    let first = ground.begin("w1", 1, true).await.unwrap();
    let mut of_first = SlotSet::none(cluster().slots);
    cluster().slots.all().take(100).for_each(|slot| of_first.insert(slot));
    ground.wait(take_some(&ground, &first, "w1", of_first.clone())).await.unwrap();
    let second = ground.begin("w2", 2, true).await.unwrap();
    take(&ground, &second, "w2").await.unwrap_err();
    assert_eq!(homes(&ground).await, [("w1".to_owned(), 1), ("w2".to_owned(), 1)]);
    // Nobody takes slots of a worker that lives, wherever they belong by now.
    let (engine, detector, slots_seen) = (&*ground.engine, &SharedDetector::new(LEASE), &SlotsSeen::default());
    let (env, stream, worker, cluster_settings) = (&ground.env, second.as_ref(), &id("w2"), cluster());
    let ownership = Ownership { env, engine, stream, detector, slots_seen, worker, cluster: cluster_settings };
    let none = SlotSet::none(cluster().slots);
    let view = ownership.look(&none, |_| Placement::of(cluster().slots, &[id("w1")])).await.unwrap();
    assert_eq!(view.moves, Moves { release: none, take: of_first.others() });
}
