use forebay_catalog::MemoryEngine;
use forebay_env::disk::memory::MemoryDisk;
use forebay_store::{Class, Commit, NewObject, Settings};
use forebay_types::Durability;

use super::*;
use crate::test_engine::{Fate, TestEngine};

async fn blocks(engine: &Arc<dyn Engine>) -> Blocks {
    let (env, clock) = Env::simulated(1);
    clock.set_unix_ms(1000);
    Blocks::take(&env, engine, 1000).await.unwrap()
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

/// As a backup does that is restored, and knows nothing of the blocks since.
async fn set_back(engine: &MemoryEngine, counter: u64) {
    let value = Some(Bytes::copy_from_slice(&counter.to_be_bytes()));
    let write = ValueWrite { key: Bytes::from_static(KEY), value };
    engine.commit(&[], &[write]).await.expect("an engine in memory takes writes");
}

#[tokio::test]
async fn a_counter_that_was_set_back_does_not_repeat_what_is_behind_the_time() {
    let engine = MemoryEngine::default();
    let backup = take(&engine, 1000).await.unwrap() + BLOCK;
    let since = take(&engine, 1_000_000).await.unwrap();
    set_back(&engine, backup).await;
    let again = take(&engine, 2_000_000).await.unwrap();
    assert!(again >= since + BLOCK, "{again} after {since}");
}

#[tokio::test]
async fn a_clock_that_is_far_ahead_leaves_nearly_all_numbers() {
    let engine = MemoryEngine::default();
    take(&engine, 1000).await.unwrap();
    let last_time = u64::MAX >> 16;
    assert_eq!(take(&engine, last_time).await.unwrap(), TIME_MAX);
    assert_eq!(take(&engine, last_time).await.unwrap(), TIME_MAX + BLOCK);
    assert_eq!(take(&engine, 1000).await.unwrap(), TIME_MAX + 2 * BLOCK);
}

/// The clock has been set back as well, or blocks were taken faster than it goes.
#[tokio::test]
async fn a_counter_that_was_set_back_is_raised_above_what_was_given_since() {
    let engine = MemoryEngine::default();
    let settings = Settings {
        segment_bytes: 2 << 20,
        inline_bytes_max: 64 << 10,
        extent_bytes_max: 1 << 20,
        ..Settings::new(vec![64 << 20])
    };
    let store = Store::open(Env::real(), vec![Arc::new(MemoryDisk::default())], settings, None).await.unwrap();
    let backup = take(&engine, 1000).await.unwrap() + BLOCK;
    let mut since = 0;
    for _ in 0..1000 {
        since = take(&engine, 1000).await.unwrap();
    }
    set_back(&engine, backup).await;
    raise_generations(&engine, &store, 1000).await.unwrap();
    let again = take(&engine, 1000).await.unwrap();
    assert!(again >= since + BLOCK, "{again} after {since}");
    // One that this worker has been given by another worker, or by itself.
    let generation = Generation(again + 100 * GAP);
    let key = Bytes::from_static(b"key");
    let (metadata, annex) = (Bytes::new(), Bytes::new());
    let object = NewObject { key, generation, metadata, annex, pinned: true, group: 0, size: 5 };
    let mut writer = store.writer(Class::Durable, 5).await.unwrap();
    writer.append(Bytes::from_static(b"bytes")).await.unwrap();
    let publish = vec![writer.finish(object).await.unwrap()];
    store.commit(Commit { publish, ..Commit::default() }, Durability::Os).await.unwrap();
    set_back(&engine, backup).await;
    raise_generations(&engine, &store, 1000).await.unwrap();
    assert!(take(&engine, 1000).await.unwrap() > generation.0);
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
