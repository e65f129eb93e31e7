use forebay_catalog::MemoryEngine;

use super::*;
use crate::test_engine::{Fate, TestEngine};

async fn blocks(engine: &Arc<dyn Engine>) -> Blocks {
    Blocks::take(&Env::real(), engine, 1000).await.unwrap()
}

#[tokio::test]
async fn each_life_gives_higher_ones_from_the_time_on() {
    let engine: Arc<dyn Engine> = Arc::<MemoryEngine>::default();
    let mut last = first_generation(1000) - 1;
    for life in 0..100 {
        let blocks = blocks(&engine).await;
        for _ in 0..100 {
            let next = blocks.next().0;
            assert!(next > last && next < last + 2 * BLOCK, "life {life}: {next} after {last}");
            last = next;
        }
    }
}

/// The transaction without an answer may be done at any time, and takes nothing back that others have taken since.
#[tokio::test]
async fn no_block_is_used_twice_whatever_becomes_of_a_transaction() {
    for fate in [Fate::AnswerLost, Fate::Lost, Fate::Late] {
        let test_engine = Arc::new(TestEngine::new(&[fate]));
        let engine: Arc<dyn Engine> = Arc::clone(&test_engine) as Arc<dyn Engine>;
        let error = take(engine.as_ref(), 1000).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unknown);
        let first = blocks(&engine).await.next();
        test_engine.deliver().await;
        let second = blocks(&engine).await.next();
        assert!(second.0 >= first.0 + BLOCK, "{fate:?}: {first:?}, {second:?}");
    }
}

/// While others take blocks, too.
#[tokio::test]
async fn the_next_block_is_there_before_the_first_is_used_up() {
    let test_engine = Arc::new(TestEngine::new(&[]));
    let engine: Arc<dyn Engine> = Arc::clone(&test_engine) as Arc<dyn Engine>;
    let ours = blocks(&engine).await;
    let theirs = blocks(&engine).await.next().0;
    ours.0.state.lock().next += LEFT_MIN - 1;
    ours.next();
    assert!(!ours.0.state.lock().is_taking);
    ours.next();
    while ours.0.state.lock().spare.is_none() {
        tokio::task::yield_now().await;
    }
    ours.next();
    assert_eq!(test_engine.asked.load(forebay_env::sync::atomic::Ordering::SeqCst), 3, "one spare block does");
    let end = ours.0.state.lock().end;
    ours.0.state.lock().next = end - 1;
    assert_eq!(ours.next().0, end - 1);
    assert_eq!(ours.next().0, theirs + BLOCK);
}

#[tokio::test]
async fn a_damaged_counter_is_an_error() {
    let engine: Arc<dyn Engine> = Arc::<MemoryEngine>::default();
    let write = ValueWrite { key: Bytes::from_static(KEY), value: Some(Bytes::from_static(b"short")) };
    engine.commit(&[], &[write]).await.unwrap();
    let error = take(engine.as_ref(), 1000).await.unwrap_err();
    assert_eq!(
        (error.kind, error.context.as_str()),
        (ErrorKind::Corrupt, "the engine's counter of generations is damaged")
    );
}
