use bytes::Bytes;
use forebay_types::{Generation, ObjectInfo};
use futures::StreamExt;

use super::*;
use crate::memory::{MemoryUnderStore, Mood};
use crate::passed::{Outcome, note};
use crate::under_store::pass_read;

fn key() -> ObjectKey {
    ObjectKey::new("key").unwrap()
}

fn settings() -> GovernorSettings {
    GovernorSettings { concurrency_max: 8, circuit_failures: 3, read_tries: 1, ..GovernorSettings::default() }
}

#[tokio::test]
async fn a_governed_store_keeps_the_promises_of_an_under_store() {
    let governor = govern(&Env::real(), &GovernorSettings::default(), None);
    for lane in [Lane::Foreground, Lane::Background] {
        let store = Governed::new(Arc::new(MemoryUnderStore::default()), Arc::clone(&governor), lane);
        crate::conformance::run(&store).await;
    }
}

#[tokio::test]
async fn an_open_circuit_sends_nothing_but_one_probe_and_closes_on_success() {
    let (env, clock) = Env::simulated(1);
    let memory = MemoryUnderStore::default();
    memory.put_outside("key", "x".into());
    let governor = govern(&env, &settings(), None);
    let store = Governed::new(Arc::new(memory.clone()), Arc::clone(&governor), Lane::Foreground);
    memory.set_mood(Mood::Refuse(ErrorKind::Unavailable));
    for _ in 0..3 {
        store.head(&key()).await.unwrap_err();
    }
    assert!(governor.is_open(Work::Read));
    for _ in 0..10 {
        store.head(&key()).await.unwrap_err();
    }
    assert_eq!(memory.requests(), 3, "an open circuit sends nothing");
    clock.advance(Duration::from_secs(1));
    store.head(&key()).await.unwrap_err();
    store.head(&key()).await.unwrap_err();
    assert_eq!(memory.requests(), 4, "one probe goes");
    memory.set_mood(Mood::Well);
    clock.advance(Duration::from_secs(2));
    store.head(&key()).await.unwrap();
    store.head(&key()).await.unwrap();
    assert!(!governor.is_open(Work::Read));
}

#[tokio::test]
async fn reads_that_pass_through_open_the_circuit_and_stop_at_an_open_one() {
    let (env, clock) = Env::simulated(1);
    let governor = govern(&env, &settings(), None);
    let passing = Passing { governor: Arc::clone(&governor), lane: Lane::Foreground, bucket: "a".to_owned() };
    let pass = async |outcome: Outcome| {
        let call = async move {
            note(outcome);
            outcome
        };
        pass_read(&passing, call).await
    };
    // What this side can't send is no trouble of the under store.
    for outcome in [Outcome::NotSent; 5].into_iter().chain([404, 501].map(Outcome::Answered)) {
        pass(outcome).await.expect("clients get the answer as it is");
    }
    assert!(!governor.is_open(Work::Read));
    for outcome in [Outcome::Answered(500), Outcome::Unanswered, Outcome::Answered(502)] {
        assert_eq!(pass(outcome).await.expect("it is sent"), outcome, "clients get the answer as it is");
    }
    assert!(governor.is_open(Work::Read));
    assert_eq!(pass(Outcome::Answered(200)).await.unwrap_err().kind, ErrorKind::Unavailable);
    clock.advance(Duration::from_secs(2));
    pass(Outcome::Answered(200)).await.expect("it is the probe");
    assert!(!governor.is_open(Work::Read));
}

#[tokio::test]
async fn an_under_store_is_silent_while_no_request_is_answered() {
    let (env, clock) = Env::simulated(1);
    let governor = govern(&env, &settings(), None);
    let passing = Passing { governor: Arc::clone(&governor), lane: Lane::Foreground, bucket: "a".to_owned() };
    assert_eq!(governor.state().silent_for, None, "nothing was sent");
    let held = pass_read(&passing, std::future::pending::<()>());
    let mut held = Box::pin(held);
    assert!(futures::poll!(held.as_mut()).is_pending());
    clock.advance(Duration::from_secs(8));
    assert_eq!(governor.state().silent_for, Some(Duration::from_secs(8)));
    for (status, silent) in [(500, 8), (404, 0)] {
        pass_read(&passing, async move { note(Outcome::Answered(status)) }).await.expect("the circuit is closed");
        assert_eq!(governor.state().silent_for, Some(Duration::from_secs(silent)), "{status}");
    }
    clock.advance(Duration::from_secs(3));
    assert_eq!(governor.state().silent_for, Some(Duration::from_secs(3)), "one is still in flight");
    drop(held);
    assert_eq!(governor.state().silent_for, None, "a request that was abandoned waits no more");
}

/// The under store answers: it needs fewer requests, not none.
#[tokio::test]
async fn a_probe_that_is_throttled_closes_the_circuit() {
    let (env, clock) = Env::simulated(1);
    let memory = MemoryUnderStore::default();
    let governor = govern(&env, &settings(), None);
    let store = Governed::new(Arc::new(memory.clone()), Arc::clone(&governor), Lane::Foreground);
    memory.set_mood(Mood::Refuse(ErrorKind::Unavailable));
    for _ in 0..3 {
        store.head(&key()).await.unwrap_err();
    }
    assert!(governor.is_open(Work::Read));
    memory.set_mood(Mood::Refuse(ErrorKind::Throttled));
    clock.advance(Duration::from_secs(1));
    assert_eq!(store.head(&key()).await.unwrap_err().kind, ErrorKind::Throttled);
    assert_eq!((governor.state().circuit, governor.limit()), (Circuit::Closed, 4));
    assert_eq!(store.head(&key()).await.unwrap_err().kind, ErrorKind::Throttled, "it is sent");
}

#[tokio::test]
async fn who_takes_no_writes_is_read_all_the_same() {
    let (env, clock) = Env::simulated(1);
    let memory = MemoryUnderStore::default();
    memory.put_outside("key", "x".into());
    let governor = govern(&env, &settings(), None);
    let store = Governed::new(Arc::new(memory.clone()), Arc::clone(&governor), Lane::Background);
    memory.set_mood(Mood::Refuse(ErrorKind::Unavailable));
    for _ in 0..3 {
        assert!(!store.delete(&key(), Condition::Always).await.unwrap_err().is_unsent());
    }
    memory.set_mood(Mood::Well);
    assert!(matches!(governor.state().circuit, Circuit::Open { .. }));
    assert!(store.delete(&key(), Condition::Always).await.unwrap_err().is_unsent());
    store.head(&key()).await.unwrap();
    assert!(governor.is_open(Work::Write), "an answer to a read says nothing of writes");
    clock.advance(Duration::from_secs(1));
    store.delete(&key(), Condition::Always).await.unwrap();
    assert_eq!(governor.state().circuit, Circuit::Closed);
}

#[tokio::test]
async fn throttling_halves_the_limit_once_a_second_and_success_creeps_up() {
    let (env, clock) = Env::simulated(1);
    let memory = MemoryUnderStore::default();
    memory.put_outside("key", "x".into());
    let governor = govern(&env, &settings(), None);
    let store = Governed::new(Arc::new(memory.clone()), Arc::clone(&governor), Lane::Background);
    memory.set_mood(Mood::Refuse(ErrorKind::Throttled));
    for limit in [4, 4, 4] {
        store.head(&key()).await.unwrap_err();
        assert_eq!(governor.limit(), limit);
    }
    for limit in [2, 1, 1] {
        clock.advance(Duration::from_secs(1));
        store.head(&key()).await.unwrap_err();
        assert_eq!(governor.limit(), limit);
    }
    assert!(!governor.is_open(Work::Read), "who throttles is there");
    memory.set_mood(Mood::Well);
    for _ in 0..100 {
        store.head(&key()).await.unwrap();
    }
    assert_eq!(governor.limit(), 8);
}

#[tokio::test]
async fn rates_are_kept_in_the_background_and_not_in_the_foreground() {
    let (env, clock) = Env::simulated(1);
    let limited = GovernorSettings { requests_per_second: 2, upload_bandwidth: ByteSize(100), ..settings() };
    let governor = govern(&env, &limited, None);
    let memory = MemoryUnderStore::default();
    let lane = |lane| Arc::new(Governed::new(Arc::new(memory.clone()), Arc::clone(&governor), lane));
    let put = |store: Arc<Governed>| {
        let info = Arc::new(ObjectInfo::new(50, ETag::new("e"), 0));
        let source = crate::conformance::source(vec![1; 50].into());
        let upload = Upload { generation: Generation(1), info, source, condition: Condition::Always };
        forebay_env::spawn(async move { store.put(&key(), upload).await })
    };
    let tasks: Vec<_> = (0..4).map(|_| put(lane(Lane::Background))).collect();
    put(lane(Lane::Foreground)).join().await.unwrap();
    while memory.requests() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(memory.requests(), 2, "one in the foreground, one in the background");
    for sent in 3..=5 {
        clock.advance(Duration::from_millis(500));
        while memory.requests() < sent {
            tokio::task::yield_now().await;
        }
        assert_eq!(memory.requests(), sent);
    }
    for task in tasks {
        task.join().await.unwrap();
    }
}

/// Ten pieces of 100 bytes.
struct Pieces;

impl UploadSource for Pieces {
    fn stream(&self, _range: ByteRange) -> ByteStream {
        futures::stream::iter((0..10).map(|_| Ok(Bytes::from_static(&[1; 100])))).boxed()
    }
}

#[tokio::test]
async fn a_large_upload_keeps_the_bandwidth_and_lets_others_through() {
    let (env, clock) = Env::simulated(1);
    let limited = GovernorSettings { upload_bandwidth: ByteSize(100), ..settings() };
    let governor = govern(&env, &limited, None);
    let memory = MemoryUnderStore::default();
    let store = Arc::new(Governed::new(Arc::new(memory.clone()), governor, Lane::Background));
    let put = |size: u64, source: Arc<dyn UploadSource>| {
        let (store, info) = (Arc::clone(&store), Arc::new(ObjectInfo::new(size, ETag::new("e"), 0)));
        let upload = Upload { generation: Generation(1), info, source, condition: Condition::Always };
        forebay_env::spawn(async move { store.put(&key(), upload).await })
    };
    let large = put(1000, Arc::new(Pieces));
    while memory.requests() < 1 {
        tokio::task::yield_now().await;
    }
    // Without a byte to send.
    store.delete(&key(), Condition::Always).await.unwrap();
    let small = put(50, crate::conformance::source(vec![1; 50].into()));
    let mut seconds = 0;
    let mut small_after = None;
    while !large.is_finished() {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        if small.is_finished() {
            small_after.get_or_insert(seconds);
        }
        clock.advance(Duration::from_secs(1));
        seconds += 1;
    }
    assert!((9..=12).contains(&seconds), "{seconds} s");
    assert!(small_after.is_some_and(|after| after <= 2), "{small_after:?}");
    large.join().await.unwrap();
    small.join().await.unwrap();
}

#[tokio::test]
async fn the_state_tells_of_the_circuit_and_of_errors_that_are_no_answers() {
    let (env, clock) = Env::simulated(1);
    let memory = MemoryUnderStore::default();
    let governor = govern(&env, &settings(), None);
    let store = Governed::new(Arc::new(memory.clone()), Arc::clone(&governor), Lane::Foreground);
    store.head(&key()).await.unwrap_err();
    let state = governor.state();
    assert_eq!((state.circuit, state.calls, state.errors, state.last_error), (Circuit::Closed, 1, 0, None));
    memory.set_mood(Mood::Refuse(ErrorKind::Throttled));
    store.head(&key()).await.unwrap_err();
    memory.set_mood(Mood::Refuse(ErrorKind::Unavailable));
    for _ in 0..3 {
        store.head(&key()).await.unwrap_err();
    }
    let state = governor.state();
    assert!(matches!(state.circuit, Circuit::Open { probe_in } if probe_in <= Duration::from_secs(1)), "{state:?}");
    assert_eq!((state.calls, state.errors, state.throttled, state.failures_in_a_row), (5, 4, 1, 3));
    assert_eq!(state.last_error.unwrap().unix_ms, env.clock.unix_ms());
    clock.advance(Duration::from_secs(1));
    memory.set_mood(Mood::Hang);
    let probe = forebay_env::spawn(async move { store.head(&key()).await });
    while governor.state().circuit != Circuit::Probing {
        tokio::task::yield_now().await;
    }
    memory.set_mood(Mood::Well);
    memory.put_outside("key", "x".into());
    let _ = probe.join().await;
    assert_eq!(governor.state().circuit, Circuit::Closed);
}

#[tokio::test]
async fn a_probe_that_is_given_up_is_followed_by_another() {
    let (env, clock) = Env::simulated(1);
    let memory = MemoryUnderStore::default();
    let governor = govern(&env, &settings(), None);
    let store = Arc::new(Governed::new(Arc::new(memory.clone()), Arc::clone(&governor), Lane::Foreground));
    memory.set_mood(Mood::Refuse(ErrorKind::Unavailable));
    for _ in 0..3 {
        store.head(&key()).await.unwrap_err();
    }
    clock.advance(Duration::from_secs(1));
    memory.set_mood(Mood::Hang);
    let probe = forebay_env::spawn(async move { store.head(&key()).await });
    while governor.state().circuit != Circuit::Probing {
        tokio::task::yield_now().await;
    }
    probe.abort();
    clock.advance(governor.settings().circuit_pause_max.0);
    assert_eq!(governor.state().circuit, Circuit::Open { probe_in: Duration::ZERO });
}

/// Objects of one bucket that always fail do not stop other buckets. The first request that finds the under store back
/// opens the way for all.
#[tokio::test]
async fn each_bucket_has_a_circuit_of_its_own() {
    let (env, clock) = Env::simulated(5);
    let governor = Arc::new(Governor::new(env, settings(), None));
    let of = |bucket: &str| {
        let memory = MemoryUnderStore::default();
        let store = Governed::new(Arc::new(memory.clone()), Arc::clone(&governor), Lane::Background).bucket(bucket);
        (memory, store)
    };
    let ((bad, bad_store), (other, other_store), (_good, good_store)) = (of("bad"), of("other"), of("good"));
    for (memory, store) in [(&bad, &bad_store), (&other, &other_store)] {
        memory.set_mood(Mood::Refuse(ErrorKind::Unavailable));
        for _ in 0..settings().circuit_failures {
            assert_eq!(store.delete(&key(), Condition::Always).await.unwrap_err().kind, ErrorKind::Unavailable);
        }
    }
    assert!(governor.is_open(Work::Write) && matches!(governor.state().circuit, Circuit::Open { .. }));
    let requests = (bad.requests(), other.requests());
    for _ in 0..5 {
        good_store.delete(&key(), Condition::Always).await.expect("it never failed");
        assert_eq!(bad_store.delete(&key(), Condition::Always).await.unwrap_err().kind, ErrorKind::Unavailable);
    }
    assert_eq!((bad.requests(), other.requests()), requests, "these wait for their probes");
    for memory in [&bad, &other] {
        memory.set_mood(Mood::Well);
    }
    clock.advance(settings().circuit_pause_max.0);
    bad_store.delete(&key(), Condition::Always).await.expect("the probe");
    other_store.delete(&key(), Condition::Always).await.expect("it need not wait");
    assert!(!governor.is_open(Work::Write));
}

/// Others may write to their buckets, and nobody need write to this one again.
#[tokio::test]
async fn denied_writes_count_by_bucket_until_one_is_taken_or_none_was_denied_for_long() {
    let (env, clock) = Env::simulated(5);
    let governor = Arc::new(Governor::new(env, settings(), None));
    let of = |bucket: &str| {
        let memory = MemoryUnderStore::default();
        let store = Governed::new(Arc::new(memory.clone()), Arc::clone(&governor), Lane::Foreground).bucket(bucket);
        (memory, store)
    };
    let ((denies, denied), (_takes, taken)) = (of("a"), of("b"));
    denies.set_mood(Mood::Refuse(ErrorKind::Denied));
    for _ in 0..3 {
        assert_eq!(governor.denied_writes(3), None);
        assert_eq!(denied.delete(&key(), Condition::Always).await.unwrap_err().kind, ErrorKind::Denied);
        taken.delete(&key(), Condition::Always).await.unwrap();
    }
    let found = governor.denied_writes(3).expect("three in a row");
    assert_eq!((found.bucket.as_str(), found.count), ("a", 3));
    clock.advance(Duration::from_secs(599));
    assert!(governor.denied_writes(3).is_some());
    clock.advance(Duration::from_secs(1));
    assert_eq!(governor.denied_writes(3), None, "nobody writes any more");
    for count in 1..=3 {
        denied.delete(&key(), Condition::Always).await.unwrap_err();
        assert_eq!(governor.denied_writes(1).map(|found| found.count), Some(count), "counted from one again");
    }
    denies.set_mood(Mood::Well);
    denied.delete(&key(), Condition::Always).await.unwrap();
    assert_eq!(governor.denied_writes(1), None, "it may be written");
}

/// Small writes may succeed on a disk that has no room for large ones.
#[tokio::test]
async fn a_refusal_for_lack_of_room_is_known_at_once_and_until_there_is_room() {
    let (env, clock) = Env::simulated(6);
    let governor = Arc::new(Governor::new(env, settings(), None));
    let memory = MemoryUnderStore::default();
    let store = Governed::new(Arc::new(memory.clone()), Arc::clone(&governor), Lane::Foreground).bucket("a");
    let put = async |bytes: usize| {
        let info = Arc::new(ObjectInfo::new(bytes as u64, ETag::new("e"), 0));
        let source = crate::conformance::source(vec![1; bytes].into());
        store.put(&key(), Upload { generation: Generation(1), info, source, condition: Condition::Always }).await
    };
    let known = || governor.refused_writes().map(|refused| (refused.bucket, refused.kind));
    let refuse = async |kind: ErrorKind, bytes: usize| {
        memory.set_mood(Mood::Refuse(kind));
        assert_eq!(put(bytes).await.unwrap_err().kind, kind);
        memory.set_mood(Mood::Well);
        assert_eq!(known(), Some(("a".to_owned(), kind)));
    };
    refuse(ErrorKind::NoSpace, 500).await;
    refuse(ErrorKind::NoSpace, 10).await;
    put(499).await.unwrap();
    store.delete(&key(), Condition::Always).await.unwrap();
    assert!(known().is_some(), "these need less room");
    put(500).await.unwrap();
    assert_eq!(known(), None);
    refuse(ErrorKind::ReadOnly, 500).await;
    store.delete(&key(), Condition::Always).await.unwrap();
    assert!(known().is_some(), "there may have been nothing to delete");
    put(1).await.unwrap();
    assert_eq!(known(), None);
    for _ in 0..20 {
        refuse(ErrorKind::NoSpace, 500).await;
    }
    assert!(!governor.is_open(Work::Write), "the under store answers");
    clock.advance(Duration::from_secs(4200));
    assert_eq!(known(), None);
}
