use forebay_catalog::MemoryEngine;
use tokio::sync::Semaphore;

use super::*;
use crate::test_engine::{Fate, TestEngine};

const PATIENCE: Duration = Duration::from_secs(30);

async fn stream_with(engine: &Arc<TestEngine>, patience: Duration) -> Stream {
    let engine: Arc<dyn Engine> = Arc::<TestEngine>::clone(engine);
    Stream::take_over(&Env::real(), engine, Bytes::from_static(b"stream"), patience).await.unwrap()
}

async fn begun(fates: &[Fate]) -> (Arc<TestEngine>, Stream) {
    let engine = Arc::new(TestEngine::new(&[]));
    let stream = stream_with(&engine, PATIENCE).await;
    fates.iter().for_each(|fate| engine.expect(*fate));
    (engine, stream)
}

fn write(key: &str, value: &str) -> Vec<ValueWrite> {
    vec![ValueWrite { key: Bytes::from(key.to_owned()), value: Some(Bytes::from(value.to_owned())) }]
}

#[tokio::test]
async fn what_waits_meanwhile_shares_a_transaction() {
    let (engine, stream) = begun(&[]).await;
    engine.transactions.lock().clear();
    engine.gate.forget_permits(Semaphore::MAX_PERMITS);
    let stream = Arc::new(stream);
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

#[tokio::test]
async fn a_transaction_whose_answer_is_lost_is_done_once() {
    for fates in [[Fate::AnswerLost, Fate::AnswerLost], [Fate::Lost, Fate::AnswerLost], [Fate::AnswerLost, Fate::Lost]]
    {
        let (engine, stream) = begun(&fates).await;
        stream.commit(write("key", "1")).await.unwrap();
        assert_eq!(engine.value("key").await.as_deref(), Some("1"), "{fates:?}");
        stream.commit(write("key", "2")).await.unwrap();
        assert_eq!(engine.value("key").await.as_deref(), Some("2"), "{fates:?}");
    }
}

#[tokio::test]
async fn a_transaction_that_comes_late_does_not_replace_what_came_after_it() {
    let (engine, stream) = begun(&[Fate::Late, Fate::AnswerLost]).await;
    stream.commit(write("key", "1")).await.unwrap();
    stream.commit(write("key", "2")).await.unwrap();
    let late = engine.deliver().await;
    assert!(matches!(late.as_slice(), [Err(error)] if error.kind == ErrorKind::Conflict), "{late:?}");
    assert_eq!(engine.value("key").await.as_deref(), Some("2"));
    stream.commit(write("key", "3")).await.unwrap();
    assert_eq!(engine.value("key").await.as_deref(), Some("3"));
}

#[tokio::test]
async fn whoever_is_taken_over_commits_nothing_any_more() {
    let (engine, former) = begun(&[Fate::Late, Fate::Silence]).await;
    let former = Arc::new(former);
    let pending = {
        let former = Arc::clone(&former);
        forebay_env::spawn(async move { former.commit(write("key", "former")).await })
    };
    // The first try is on its way.
    while engine.transactions.lock().len() < 2 {
        tokio::task::yield_now().await;
    }
    engine.hear_again();
    let stream = stream_with(&engine, PATIENCE).await;
    stream.commit(write("key", "new")).await.unwrap();
    let late = engine.deliver().await;
    assert!(late.iter().all(|done| matches!(done, Err(error) if error.kind == ErrorKind::Conflict)), "{late:?}");
    assert_eq!(pending.join().await.unwrap_err().kind, ErrorKind::Unknown, "its first try might have been done");
    assert_eq!(former.commit(write("key", "former")).await.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(former.check().unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(engine.value("key").await.as_deref(), Some("new"));
}

#[tokio::test]
async fn an_engine_that_does_not_answer_takes_the_keys_away() {
    let engine = Arc::new(TestEngine::new(&[]));
    let stream = stream_with(&engine, Duration::from_millis(50)).await;
    engine.expect(Fate::Silence);
    assert_eq!(stream.commit(write("key", "1")).await.unwrap_err().kind, ErrorKind::Unknown);
    engine.hear_again();
    assert_eq!(stream.commit(write("key", "2")).await.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(engine.value("key").await, None);
}

#[tokio::test]
async fn a_stream_begins_although_answers_are_lost() {
    let engine = Arc::new(TestEngine::new(&[Fate::AnswerLost, Fate::Lost, Fate::Late]));
    let stream = stream_with(&engine, PATIENCE).await;
    stream.commit(write("key", "1")).await.unwrap();
    let silent = Arc::new(TestEngine::new(&[Fate::Silence]));
    let refused = Stream::take_over(&Env::real(), silent, Bytes::from_static(b"stream"), Duration::ZERO).await;
    assert!(refused.is_err());
    let memory: Arc<dyn Engine> = Arc::<MemoryEngine>::default();
    assert!(Stream::take_over(&Env::real(), memory, Bytes::from_static(b"stream"), Duration::ZERO).await.is_ok());
}
