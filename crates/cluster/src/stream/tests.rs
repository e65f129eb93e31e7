use forebay_env::sync::atomic::Ordering;
use tokio::sync::Semaphore;

use super::*;
use crate::test_engine::Fate;
use crate::test_ground::{Ground, LEASE};

impl Ground {
    async fn begun(fates: &[Fate]) -> (Self, Arc<Stream>) {
        let ground = Self::new();
        let stream = ground.begin("w1", 1, true).await.unwrap();
        ground.engine.transactions.lock().clear();
        fates.iter().for_each(|fate| ground.engine.expect(*fate));
        (ground, stream)
    }

    async fn commit(&self, stream: &Arc<Stream>, key: &str, value: &str) -> Result<()> {
        let (stream, writes) = (Arc::clone(stream), write(key, value));
        self.wait(async move { stream.commit(writes).await }).await
    }

    /// If `checked` does not exist.
    async fn commit_checked(&self, stream: &Arc<Stream>, key: &str, checked: &str) -> Result<u64> {
        let (stream, writes) = (Arc::clone(stream), write(key, "checked"));
        let checks = vec![Check { key: Bytes::from(checked.to_owned()), version: None }];
        self.wait(async move { stream.commit_checked(checks, writes).await }).await
    }
}

fn write(key: &str, value: &str) -> Vec<ValueWrite> {
    vec![ValueWrite { key: Bytes::from(key.to_owned()), value: Some(Bytes::from(value.to_owned())) }]
}

#[tokio::test]
async fn what_waits_meanwhile_shares_a_transaction() {
    let (ground, stream) = Ground::begun(&[]).await;
    let engine = &ground.engine;
    engine.gate.forget_permits(Semaphore::MAX_PERMITS);
    let commits: Vec<_> = (0..300)
        .map(|number| {
            let stream = Arc::clone(&stream);
            forebay_env::spawn(async move { stream.commit(write(&format!("k{number}"), "v")).await })
        })
        .collect();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    engine.gate.add_permits(Semaphore::MAX_PERMITS);
    for commit in commits {
        commit.join().await.unwrap();
    }
    let transactions = engine.transactions.lock().clone();
    assert!(transactions.len() <= 4, "{transactions:?}");
    assert!(transactions.iter().all(|writes| *writes <= WRITES_MAX), "{transactions:?}");
    assert_eq!(engine.value("k299").await.as_deref(), Some("v"));
}

/// The numbers of writes of the transactions since the last call, without the record of the worker.
fn transactions(ground: &Ground) -> Vec<usize> {
    std::mem::take(&mut *ground.engine.transactions.lock()).into_iter().map(|writes| writes - 1).collect()
}

#[tokio::test]
async fn what_no_client_waits_for_shares_the_next_transaction_while_clients_write() {
    let (ground, stream) = Ground::begun(&[]).await;
    let soon = |key: &'static str| {
        let stream = Arc::clone(&stream);
        forebay_env::spawn(async move { stream.commit_soon(write(key, "v")).await })
    };
    let moment = Duration::from_millis(1);
    ground.pass(EXPECTED).await;
    // No client writes.
    soon("first").join().await.unwrap();
    assert_eq!(transactions(&ground), [1]);
    stream.commit(write("client's", "v")).await.unwrap();
    assert_eq!(transactions(&ground), [1]);
    let waiting = [soon("second"), soon("third")];
    ground.pass(moment).await;
    assert!(transactions(&ground).is_empty());
    stream.commit(write("client's", "w")).await.unwrap();
    assert_eq!(transactions(&ground), [3]);
    for waiting in waiting {
        waiting.join().await.unwrap();
    }
    // The next write of a client takes longer.
    let waiting = soon("fourth");
    ground.pass(Duration::ZERO).await;
    ground.pass(SHARE_MAX - moment).await;
    assert!(transactions(&ground).is_empty());
    ground.pass(moment).await;
    assert_eq!(transactions(&ground), [1]);
    waiting.join().await.unwrap();
    ground.pass(EXPECTED).await;
    soon("fifth").join().await.unwrap();
    assert_eq!(transactions(&ground), [1]);
}

#[tokio::test]
async fn a_transaction_whose_answer_is_lost_is_done_once() {
    for fates in [[Fate::AnswerLost, Fate::AnswerLost], [Fate::Lost, Fate::AnswerLost], [Fate::AnswerLost, Fate::Lost]]
    {
        let (ground, stream) = Ground::begun(&fates).await;
        ground.commit(&stream, "key", "1").await.unwrap();
        assert_eq!(ground.engine.value("key").await.as_deref(), Some("1"), "{fates:?}");
        ground.commit(&stream, "key", "2").await.unwrap();
        assert_eq!(ground.engine.value("key").await.as_deref(), Some("2"), "{fates:?}");
    }
}

#[tokio::test]
async fn a_transaction_that_comes_late_does_not_replace_what_came_after_it() {
    let (ground, stream) = Ground::begun(&[Fate::Late, Fate::AnswerLost]).await;
    ground.commit(&stream, "key", "1").await.unwrap();
    ground.commit(&stream, "key", "2").await.unwrap();
    let late = ground.engine.deliver().await;
    assert!(matches!(late.as_slice(), [Err(error)] if error.kind == ErrorKind::Conflict), "{late:?}");
    assert_eq!(ground.engine.value("key").await.as_deref(), Some("2"));
    ground.commit(&stream, "key", "3").await.unwrap();
    assert_eq!(ground.engine.value("key").await.as_deref(), Some("3"));
}

#[tokio::test]
async fn whoever_is_taken_over_commits_nothing_any_more() {
    let (ground, former) = Ground::begun(&[Fate::Late, Fate::Silence]).await;
    let pending = {
        let former = Arc::clone(&former);
        forebay_env::spawn(async move { former.commit(write("key", "former")).await })
    };
    while ground.engine.transactions.lock().len() < 2 {
        ground.pass(RETRY_MIN).await;
    }
    ground.engine.hear_again();
    let stream = ground.begin("w1", 2, true).await.unwrap();
    ground.commit(&stream, "key", "new").await.unwrap();
    let late = ground.engine.deliver().await;
    assert!(late.iter().all(|done| matches!(done, Err(error) if error.kind == ErrorKind::Conflict)), "{late:?}");
    let pending = ground.wait(pending.join()).await;
    assert_eq!(pending.unwrap_err().kind, ErrorKind::Unknown, "its first try might have been done");
    assert_eq!(ground.commit(&former, "key", "former").await.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(former.check().unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(ground.engine.value("key").await.as_deref(), Some("new"));
}

/// Nothing is lost with a lease that nobody else has ended.
#[tokio::test]
async fn an_engine_that_is_silent_for_long_keeps_commits_waiting_and_ends_the_lease() {
    let (ground, stream) = Ground::begun(&[Fate::Silence]).await;
    let pending = {
        let stream = Arc::clone(&stream);
        forebay_env::spawn(async move { stream.commit(write("key", "1")).await })
    };
    for _ in 0..4 {
        ground.pass(LEASE / 5).await;
        stream.check().unwrap();
    }
    ground.pass(LEASE / 5).await;
    assert_eq!(stream.check().unwrap_err().kind, ErrorKind::Unavailable);
    for _ in 0..100 {
        ground.pass(LEASE).await;
    }
    assert!(!pending.is_finished());
    ground.engine.hear_again();
    ground.wait(pending.join()).await.unwrap();
    stream.check().unwrap();
    assert_eq!(ground.engine.value("key").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_worker_without_work_renews_its_lease() {
    let (ground, stream) = Ground::begun(&[]).await;
    for _ in 0..100 {
        ground.pass(LEASE / 5).await;
        stream.check().unwrap();
    }
    assert!(ground.engine.transactions.lock().iter().all(|writes| *writes == 1));
}

/// The moment when it was sent counts, not that of the answer: others may have seen the change long before.
#[tokio::test]
async fn a_late_answer_renews_a_lease_from_the_time_of_its_question() {
    let (ground, stream) = Ground::begun(&[]).await;
    ground.engine.gate.forget_permits(Semaphore::MAX_PERMITS);
    let pending = {
        let stream = Arc::clone(&stream);
        forebay_env::spawn(async move { stream.commit(write("key", "1")).await })
    };
    while ground.engine.asked.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    ground.pass(LEASE * 7 / 10).await;
    ground.engine.gate.add_permits(1);
    pending.join().await.unwrap();
    ground.pass(LEASE * 2 / 10).await;
    assert!(stream.check().is_err());
}

#[tokio::test]
async fn a_check_that_does_not_hold_fails_one_request_alone() {
    let (ground, stream) = Ground::begun(&[]).await;
    ground.commit(&stream, "there", "1").await.unwrap();
    let refused = ground.commit_checked(&stream, "key", "there").await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(ground.engine.value("key").await, None);
    ground.commit_checked(&stream, "key", "not there").await.unwrap();
    assert_eq!(ground.engine.value("key").await.as_deref(), Some("checked"));
    stream.check().unwrap();
}

/// A try without an answer may still come, when the check holds again.
#[tokio::test]
async fn a_refused_transaction_is_not_done_later() {
    let (ground, stream) = Ground::begun(&[Fate::Late]).await;
    let pending = {
        let stream = Arc::clone(&stream);
        let checks = vec![Check { key: Bytes::from_static(b"taken"), version: None }];
        forebay_env::spawn(async move { stream.commit_checked(checks, write("key", "1")).await })
    };
    while ground.engine.transactions.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    ground.engine.commit(&[], &write("taken", "by another")).await.unwrap();
    assert_eq!(ground.wait(pending.join()).await.unwrap_err().kind, ErrorKind::Conflict);
    let gone = [ValueWrite { key: Bytes::from_static(b"taken"), value: None }];
    ground.engine.commit(&[], &gone).await.unwrap();
    let late = ground.engine.deliver().await;
    assert!(matches!(late.as_slice(), [Err(error)] if error.kind == ErrorKind::Conflict), "{late:?}");
    assert_eq!(ground.engine.value("key").await, None);
    ground.commit(&stream, "key", "2").await.unwrap();
}

/// It was done, and its own write makes its check fail.
#[tokio::test]
async fn a_checked_transaction_without_an_answer_is_done_once() {
    let (ground, stream) = Ground::begun(&[Fate::AnswerLost]).await;
    ground.commit_checked(&stream, "key", "key").await.unwrap();
    ground.commit(&stream, "other", "1").await.unwrap();
}

#[tokio::test]
async fn a_stream_begins_although_answers_are_lost() {
    let ground = Ground::new();
    [Fate::AnswerLost, Fate::Lost, Fate::Late].iter().for_each(|fate| ground.engine.expect(*fate));
    let stream = ground.begin("w1", 1, true).await.unwrap();
    ground.commit(&stream, "key", "1").await.unwrap();
    ground.engine.expect(Fate::Silence);
    assert!(ground.begin("w1", 2, true).await.is_err());
}

/// The next start knows the life of this one, so it can't find out.
#[tokio::test]
async fn a_process_with_other_disks_notes_that_their_copies_may_be_outdated() {
    let (ground, stream) = Ground::begun(&[]).await;
    stream.leave().await.unwrap();
    let second = ground.begin("w1", 2, true).await.unwrap();
    assert_eq!(ground.engine.value("stale-copies/w1").await, None);
    second.leave().await.unwrap();
    ground.begin("w1", 3, false).await.unwrap();
    assert_eq!(ground.engine.value("stale-copies/w1").await.as_deref(), Some(""));
}

#[tokio::test]
async fn nobody_takes_the_place_of_a_worker_that_lives() {
    let (ground, stream) = Ground::begun(&[]).await;
    let refused = ground.begin("w1", 2, false).await.map(drop).unwrap_err();
    assert!(refused.context.contains("another process is worker w1"), "{refused}");
    ground.commit(&stream, "key", "1").await.unwrap();
    // One that has left need not be waited for, and one that is silent must be.
    stream.leave().await.unwrap();
    assert_eq!(ground.commit(&stream, "key", "2").await.unwrap_err().kind, ErrorKind::Unavailable);
    assert!(stream.check().is_err());
    drop(ground.begin("w1", 3, false).await.unwrap());
    tokio::task::yield_now().await;
    let silent_from = ground.clock.monotonic();
    let third = ground.begin("w1", 4, false).await.unwrap();
    let waited = ground.clock.monotonic() - silent_from;
    assert!(waited >= LEASE && waited < 2 * LEASE, "{waited:?}");
    ground.commit(&third, "key", "3").await.unwrap();
}
