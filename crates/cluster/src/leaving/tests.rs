use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::{SlotSet, Versioned, records};
use forebay_env::Clock;
use forebay_env::sync::atomic::Ordering;
use tokio::sync::Semaphore;

use super::*;
use crate::ClusterSettings;
use crate::failure_detector::SharedDetector;
use crate::layout::record_key;
use crate::placement::Placement;
use crate::slots_seen::SlotsSeen;
use crate::stream::Stream;
use crate::test_engine::Fate;
use crate::test_ground::{Ground, LEASE};
use crate::view::View;

const CLUSTER: ClusterSettings = ClusterSettings { lease_ms: LEASE.as_millis() as u64, ..ClusterSettings::DEFAULT };

/// A worker with a way of its own to the engine.
struct Worker {
    ground: Ground,
    stream: Arc<Stream>,
    detector: SharedDetector,
    slots_seen: SlotsSeen,
    id: WorkerId,
}

fn id(worker: &str) -> WorkerId {
    WorkerId::new(worker).unwrap()
}

impl Worker {
    async fn begin(ground: &Ground, worker: &str, life: u64) -> Self {
        let ground = ground.beside();
        let stream = ground.begin(worker, life, true).await.expect("nobody else has this name");
        let (detector, slots_seen) = (SharedDetector::new(LEASE), SlotsSeen::default());
        Self { ground, stream, detector, slots_seen, id: id(worker) }
    }

    fn ownership(&self) -> Ownership<'_> {
        let Self { ground, stream, detector, slots_seen, id: worker } = self;
        let (env, engine) = (&ground.env, ground.engine.as_ref());
        Ownership { env, engine, stream, detector, slots_seen, worker, cluster: CLUSTER }
    }

    async fn view(&self) -> View {
        let place = |workers: &[WorkerId]| Placement::of(CLUSTER.slots, workers);
        let seen = Seen::read(self.ground.engine.as_ref()).await.expect("the engine answers");
        let own = seen.own(&self.id, &SlotSet::none(CLUSTER.slots).others());
        self.ownership().look(&own, place).await.expect("the engine answers")
    }

    async fn take_all(&self) {
        self.ownership().take(&SlotSet::none(CLUSTER.slots).others()).await.expect("nobody else has slots");
    }

    async fn state_of(&self, worker: &str) -> Option<MemberState> {
        self.view().await.members.get(&id(worker)).map(|member| member.state)
    }

    async fn found(&self, key: Bytes) -> Option<Versioned> {
        self.ground.engine().get(&key).await.expect("the engine answers")
    }
}

/// Two workers, the first one with all slots.
async fn two() -> (Ground, Worker, Worker) {
    let ground = Ground::new();
    let (first, second) = (Worker::begin(&ground, "w1", 1).await, Worker::begin(&ground, "w2", 2).await);
    first.take_all().await;
    (ground, first, second)
}

#[tokio::test]
async fn a_draining_worker_gives_up_all_slots_until_it_starts_again() {
    let (ground, first, second) = two().await;
    assert_eq!(first.view().await.moves.release.iter().count(), 512);
    second.ownership().drain(&id("w1")).await.unwrap();
    second.ownership().drain(&id("w1")).await.unwrap();
    assert_eq!(second.state_of("w1").await, Some(MemberState::Draining));
    let moves = first.view().await.moves;
    assert!(moves.release.others().is_empty() && moves.take.is_empty());
    first.ownership().release(&moves.release).await.unwrap();
    let moves = second.view().await.moves;
    assert!(moves.take.others().is_empty());
    second.ownership().take(&moves.take).await.unwrap();
    assert!(first.view().await.moves.take.is_empty());
    // It is about to stop, and still gets no slots.
    first.ownership().retire().await.unwrap();
    assert_eq!(second.state_of("w1").await, Some(MemberState::Drained));
    assert!(first.view().await.moves.take.is_empty() && second.view().await.removed.is_empty());
    first.stream.leave().await.unwrap();
    assert_eq!((second.state_of("w1").await, second.view().await.removed), (None, [id("w1")].into()));
    let again = Worker::begin(&ground, "w1", 3).await;
    assert_eq!(second.state_of("w1").await, Some(MemberState::Live), "even before it has cleared the record");
    again.ownership().forget_earlier_life(3).await.unwrap();
    assert_eq!(again.found(leaving_key(&id("w1"))).await, None);
    assert_eq!(second.view().await.moves.release.iter().count(), 512);
}

/// Otherwise what is written meanwhile would be at home nowhere.
#[tokio::test]
async fn when_no_other_worker_is_left_a_draining_one_gets_its_slots_back() {
    let (_ground, first, second) = two().await;
    first.ownership().drain(&id("w1")).await.unwrap();
    let moves = first.view().await.moves;
    first.ownership().release(&moves.release).await.unwrap();
    second.stream.leave().await.unwrap();
    assert!(first.view().await.moves.take.others().is_empty());
    assert_eq!(first.state_of("w1").await, Some(MemberState::Draining));
}

#[tokio::test]
async fn the_last_worker_is_not_drained_and_neither_is_one_that_does_not_run() {
    let (_ground, first, second) = two().await;
    let is_last = |result| matches!(result, Err(LeavingError::IsLast(_)));
    assert!(matches!(first.ownership().drain(&id("w9")).await, Err(LeavingError::NoSuchWorker(_))));
    first.ownership().drain(&id("w2")).await.unwrap();
    assert!(is_last(second.ownership().drain(&id("w1")).await));
    second.stream.leave().await.unwrap();
    assert!(matches!(first.ownership().drain(&id("w2")).await, Err(LeavingError::IsDead(_))));
    assert!(is_last(first.ownership().drain(&id("w1")).await));
}

/// Each sees that the other one stays.
#[tokio::test]
async fn two_workers_that_are_drained_at_the_same_time_do_not_both_go() {
    let (_ground, first, second) = two().await;
    let all = second.ground.engine.gate.forget_permits(Semaphore::MAX_PERMITS);
    let (of_first, of_second) = (id("w1"), id("w2"));
    let waits = async { second.ownership().drain(&of_first).await };
    let meanwhile = async {
        while second.ground.engine.asked.load(Ordering::SeqCst) < 3 {
            tokio::task::yield_now().await;
        }
        first.ownership().drain(&of_second).await.expect("the other one stays");
        second.ground.engine.gate.add_permits(all);
    };
    let (refused, ()) = tokio::join!(waits, meanwhile);
    assert!(matches!(refused, Err(LeavingError::IsLast(_))), "{refused:?}");
    assert_eq!(first.state_of("w1").await, Some(MemberState::Live));
}

#[tokio::test]
async fn a_worker_that_has_left_is_removed_and_joins_again_as_any_other() {
    let (ground, first, second) = two().await;
    let address = ValueWrite { key: layout::member_key(&id("w1")), value: None };
    first.stream.commit(vec![address.clone()]).await.unwrap();
    assert!(matches!(second.ownership().remove(&id("w1")).await, Err(LeavingError::Lives(_))));
    assert!(matches!(second.ownership().remove(&id("w2")).await, Err(LeavingError::Lives(_))));
    assert!(matches!(second.ownership().remove(&id("w9")).await, Err(LeavingError::NoSuchWorker(_))));
    first.stream.leave().await.unwrap();
    let before = second.found(worker_key(&id("w1"))).await;
    second.ownership().remove(&id("w1")).await.unwrap();
    assert_eq!((second.state_of("w1").await, second.view().await.removed), (None, [id("w1")].into()));
    assert_eq!(second.found(address.key).await, None);
    assert_eq!(second.found(worker_key(&id("w1"))).await, before, "what is in flight still fails by it");
    assert!(matches!(second.ownership().remove(&id("w1")).await, Err(LeavingError::Gone(_))));
    assert!(matches!(second.ownership().drain(&id("w1")).await, Err(LeavingError::Gone(_))));
    // Others take its slots as those of any worker that has left.
    assert!(second.view().await.moves.take.others().is_empty());
    Worker::begin(&ground, "w1", 3).await;
    assert_eq!((second.state_of("w1").await, second.view().await.removed), (Some(MemberState::Live), [].into()));
}

/// Nobody else would ever delete them, and they take space in the engine.
#[tokio::test]
async fn what_a_worker_has_noted_of_jobs_goes_with_it() {
    for is_drained in [false, true] {
        let (_ground, first, second) = two().await;
        let of = |worker: &str, key: &[u8]| record_key(key, &id(worker), CLUSTER.slots);
        let findings = (0..250).map(|number| of("w1", &records::job_finding_key("7", number)));
        let gone: Vec<Bytes> = findings.chain([of("w1", &records::job_key("7"))]).collect();
        let kept = [of("w1", records::LAST_WRITE_KEY), of("w2", &records::job_key("7"))];
        for keys in gone.chunks(100).chain([&kept[..]]) {
            let write = |key: &Bytes| ValueWrite { key: key.clone(), value: Some("value".into()) };
            first.stream.commit(keys.iter().map(write).collect()).await.unwrap();
        }
        if is_drained {
            first.ownership().retire().await.unwrap();
        }
        first.ownership().leave().await.unwrap();
        if !is_drained {
            assert!(first.found(gone[0].clone()).await.is_some(), "it may start again");
            second.ownership().remove(&id("w1")).await.unwrap();
        }
        for key in gone {
            assert_eq!(second.found(key).await, None, "drained: {is_drained}");
        }
        for key in kept {
            assert!(second.found(key).await.is_some(), "drained: {is_drained}");
        }
    }
}

/// The others need to know that it has stopped more than anybody needs the space.
#[tokio::test]
async fn a_drained_worker_on_a_slow_engine_stops_in_time_and_its_notes_go_when_it_is_removed() {
    let (ground, first, second) = two().await;
    let keys = [records::job_key("7"), records::job_finding_key("7", 0)];
    let [job, finding] = keys.map(|key| record_key(&key, &id("w1"), CLUSTER.slots));
    let write = |key: &Bytes| ValueWrite { key: key.clone(), value: Some("value".into()) };
    first.stream.commit(vec![write(&job), write(&finding)]).await.unwrap();
    first.ownership().retire().await.unwrap();
    let engine = &first.ground.engine;
    let (asked, all) = (engine.asked.load(Ordering::SeqCst), engine.gate.forget_permits(Semaphore::MAX_PERMITS));
    let leaves = async { first.ownership().leave().await };
    let meanwhile = async {
        while engine.asked.load(Ordering::SeqCst) == asked {
            tokio::task::yield_now().await;
        }
        ground.pass(FORGET_MAX).await;
        engine.gate.add_permits(all);
    };
    let (left, ()) = tokio::join!(leaves, meanwhile);
    left.unwrap();
    assert_eq!(second.view().await.removed, [id("w1")].into());
    assert!(second.found(finding.clone()).await.is_some());
    assert!(matches!(second.ownership().remove(&id("w1")).await, Err(LeavingError::Gone(_))));
    assert_eq!((second.found(job).await, second.found(finding).await), (None, None));
}

/// Nobody has taken its slots yet, and a transaction of it is on its way.
#[tokio::test]
async fn a_silent_worker_that_is_removed_changes_nothing_more() {
    let (ground, first, second) = two().await;
    assert!(matches!(second.ownership().remove(&id("w1")).await, Err(LeavingError::Lives(_))));
    [Fate::Late, Fate::Silence].into_iter().for_each(|fate| first.ground.engine.expect(fate));
    let late = {
        let (stream, write) = (Arc::clone(&first.stream), ValueWrite { key: "key".into(), value: Some("late".into()) });
        forebay_env::spawn(async move { stream.commit(vec![write]).await })
    };
    let begun = ground.clock.monotonic();
    while second.state_of("w1").await != Some(MemberState::Lost) {
        ground.pass(Duration::from_millis(500)).await;
        assert!(ground.clock.monotonic() < begun + 2 * LEASE);
    }
    second.ownership().remove(&id("w1")).await.unwrap();
    assert_eq!(second.view().await.removed, [id("w1")].into());
    let delivered = first.ground.engine.deliver().await;
    assert!(matches!(delivered.as_slice(), [Err(error)] if error.kind == ErrorKind::Conflict), "{delivered:?}");
    assert_eq!(second.found("key".into()).await, None);
    first.ground.engine.hear_again();
    assert!(ground.wait(late.join()).await.is_err());
}

/// An engine that is full answers reads: each worker sees that the other one does not renew its lease.
#[tokio::test]
async fn workers_that_cannot_write_do_not_take_each_other_for_dead() {
    const LOOK: Duration = Duration::from_secs(1);
    let (ground, first, second) = two().await;
    let look = async |leases: u32| {
        let until = ground.clock.monotonic() + leases * LEASE;
        while ground.clock.monotonic() < until {
            ground.pass(LOOK).await;
            let states = (first.state_of("w2").await, second.state_of("w1").await);
            let now = ground.clock.monotonic();
            assert_eq!(states, (Some(MemberState::Live), Some(MemberState::Live)), "at {now:?}");
        }
    };
    look(1).await;
    [&first, &second].iter().for_each(|worker| worker.ground.engine.expect(Fate::Full));
    look(3).await;
    assert!(first.stream.check().is_err() && second.stream.check().is_err());
    [&first, &second].iter().for_each(|worker| worker.ground.engine.hear_again());
    look(2).await;
    first.stream.check().unwrap();
    second.stream.check().unwrap();
    // One that can't write while the other one can is dead.
    first.ground.engine.expect(Fate::Full);
    let begun = ground.clock.monotonic();
    while second.state_of("w1").await != Some(MemberState::Lost) {
        ground.pass(LOOK).await;
        assert!(ground.clock.monotonic() < begun + LEASE + 2 * LOOK);
    }
}

/// What is marked is the process, not the name.
#[tokio::test]
async fn a_worker_that_has_started_again_is_not_draining_or_removed() {
    let (ground, first, second) = two().await;
    second.ownership().drain(&id("w1")).await.unwrap();
    drop(first);
    let again = Worker::begin(&ground, "w1", 3).await;
    assert_eq!(second.state_of("w1").await, Some(MemberState::Live));
    second.ownership().drain(&id("w1")).await.unwrap();
    again.ownership().forget_earlier_life(3).await.unwrap();
    assert_eq!(second.state_of("w1").await, Some(MemberState::Draining), "the mark is about this life");
}
