//! Limits by size: small objects are written back and large ones through, and large ones are read past the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_cache::{ErrorKind, JobKind, JobRequest, PutObject};
use forebay_types::{ByteSize, PolicyRule, StorageState, WriteMode};
use forebay_ufs::ErrorKind as UfsKind;
use forebay_ufs::memory::Mood;

use crate::multipart::{PART, complete, create, put_part, small_parts};
use crate::reads::{PAGE, copy, small_pages};
use crate::support::gate::Way;
use crate::support::jobs::{request, run, told};
use crate::support::{Bench, Setup, incoming, incoming_stream, kind, others_go_on, path, pattern, rule, until};

/// Of what is written back, in bytes.
const LIMIT: usize = 1000;

fn limited(setup: Setup, max: usize) -> Setup {
    setup.policy(|rule| rule.write_back_max_size = Some(ByteSize(max as u64)))
}

async fn set(bench: &Bench, rules: Vec<PolicyRule>) {
    bench.cache.set_policies(rules, None, "test", "edit").await.expect("the rules are valid");
}

async fn cached(bench: &Bench, key: &str) -> u64 {
    bench.head(key).await.expect("head").cached_bytes
}

#[tokio::test]
async fn a_large_write_is_acknowledged_when_the_under_store_has_it_and_a_small_one_before() {
    let bench = limited(Setup::new(WriteMode::WriteBack), LIMIT).open().await;
    bench.background.set(Way::Closed);
    for (key, size, is_written_back) in [("empty", 0, true), ("small", LIMIT, true), ("large", LIMIT + 1, false)] {
        bench.put(key, pattern(1, size)).await.unwrap();
        assert_eq!(bench.under(key).is_none(), is_written_back, "{key}");
        let state = if is_written_back { StorageState::Dirty } else { StorageState::Clean };
        assert_eq!((bench.state(key).await, cached(&bench, key).await), (state, size as u64), "{key}");
    }
    bench.foreground.set(Way::Closed);
    bench.put("small too", pattern(2, LIMIT)).await.unwrap();
    let body = incoming(pattern(2, LIMIT + 1));
    let (attributes, conditions) = (Default::default(), Default::default());
    let (cache, put) = (bench.cache.clone(), PutObject { path: path("large too"), body, attributes, conditions });
    let writing = forebay_env::spawn(async move { cache.put(put).await });
    until("the large object is on its way", || bench.foreground.waiting() == 1).await;
    others_go_on().await;
    assert!(!writing.is_finished());
    bench.foreground.set(Way::Open);
    writing.join().await.unwrap();
    assert_eq!(bench.under("large too").unwrap(), pattern(2, LIMIT + 1));
    bench.background.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.under("small too").unwrap(), pattern(2, LIMIT));
}

#[tokio::test]
async fn a_large_write_that_the_under_store_refuses_is_an_error_and_leaves_nothing() {
    for (refusal, answer) in [
        (UfsKind::Throttled, ErrorKind::SlowDown),
        (UfsKind::Unavailable, ErrorKind::Unavailable),
        (UfsKind::Denied, ErrorKind::AccessDenied),
    ] {
        let bench = limited(Setup::new(WriteMode::WriteBack), LIMIT).open().await;
        bench.put("old", pattern(1, LIMIT + 1)).await.unwrap();
        bench.under.set_mood(Mood::Refuse(refusal));
        for key in ["old", "new"] {
            assert_eq!(kind(bench.put(key, pattern(2, LIMIT + 1)).await), Some(answer), "{key}");
        }
        bench.put("small", pattern(3, LIMIT)).await.unwrap();
        bench.under.set_mood(Mood::Well);
        assert_eq!(bench.get("old").await.unwrap(), pattern(1, LIMIT + 1));
        assert_eq!(kind(bench.get("new").await), Some(ErrorKind::NotFound));
        bench.drain().await;
        assert_eq!(bench.keys().await, ["old", "small"]);
        assert_eq!(bench.cache.status().pinned_bytes, 0);
    }
}

/// What is written through needs no room for data that waits.
#[tokio::test]
async fn a_large_write_goes_on_while_pinned_data_fills_its_share() {
    let bench = limited(Setup::new(WriteMode::WriteBack).capacity(24 << 20), 1 << 20).open().await;
    bench.background.set(Way::Closed);
    let mut refused = None;
    for number in 0..24 {
        refused = refused.or(kind(bench.put(&format!("small/{number}"), pattern(number, 1 << 20)).await));
    }
    assert_eq!(refused, Some(ErrorKind::SlowDown));
    bench.put("large", pattern(99, (1 << 20) + 1)).await.unwrap();
    assert_eq!(bench.under("large").unwrap(), pattern(99, (1 << 20) + 1));
    bench.background.set(Way::Open);
    bench.drain().await;
}

#[tokio::test]
async fn a_multipart_upload_is_written_by_the_size_of_all_its_parts() {
    let bench = limited(small_parts(WriteMode::WriteBack), 2 * PART).open().await;
    bench.background.set(Way::Closed);
    for (key, last, is_written_back) in [("small", PART, true), ("large", PART + 1, false)] {
        let upload = create(&bench, key).await;
        let parts = [put_part(&bench, &upload, 1, PART).await, put_part(&bench, &upload, 2, last).await];
        if !is_written_back {
            bench.under.set_mood(Mood::Refuse(UfsKind::Unavailable));
            assert_eq!(kind(complete(&bench, &upload, &parts).await), Some(ErrorKind::Unavailable));
            bench.under.set_mood(Mood::Well);
            assert_eq!(kind(bench.get(key).await), Some(ErrorKind::NotFound));
        }
        complete(&bench, &upload, &parts).await.unwrap();
        let expected = [pattern(1, PART), pattern(2, last)].concat();
        assert_eq!(bench.under(key).is_none(), is_written_back, "{key}");
        assert_eq!(bench.get(key).await.unwrap(), expected, "{key}");
    }
    bench.background.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.cache.status().pinned_bytes, 0, "no part is left");
}

/// A copy has the size of its source, and parts that are copied count like others.
#[tokio::test]
async fn a_copy_is_written_by_the_size_of_its_source() {
    for (size, is_written_back) in [(LIMIT, true), (LIMIT + 1, false)] {
        let bench = limited(Setup::new(WriteMode::WriteBack), LIMIT).open().await;
        bench.under.put_outside("source", pattern(1, size));
        bench.background.set(Way::Closed);
        bench.cache.copy(copy()).await.unwrap();
        assert_eq!(bench.under("target").is_none(), is_written_back, "{size}");
        assert_eq!(bench.get("target").await.unwrap(), pattern(1, size));
        bench.background.set(Way::Open);
        bench.drain().await;
        assert_eq!(bench.under("target").unwrap(), pattern(1, size));
    }
}

/// The size that a request announces decides before its body has come, and the body must have that size.
#[tokio::test]
async fn a_body_that_is_longer_than_it_says_is_not_written_back() {
    let bench = limited(Setup::new(WriteMode::WriteBack), LIMIT).open().await;
    for size in [LIMIT - 1, LIMIT + 1] {
        let body = incoming_stream(incoming(pattern(1, LIMIT)).stream, size as u64);
        let (attributes, conditions) = (Default::default(), Default::default());
        let put = bench.cache.put(PutObject { path: path("key"), body, attributes, conditions });
        assert_eq!(kind(put.await), Some(ErrorKind::IncompleteBody), "{size}");
    }
    assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
}

#[tokio::test]
async fn large_and_small_writes_of_a_key_come_in_order() {
    let mut bench = limited(Setup::new(WriteMode::WriteBack), LIMIT).open().await;
    for round in 0..10 {
        bench.put("key", pattern(round, LIMIT)).await.unwrap();
        assert_eq!(bench.get("key").await.unwrap(), pattern(round, LIMIT));
        bench.put("key", pattern(round, LIMIT + 1)).await.unwrap();
        assert_eq!(bench.under("key").unwrap(), pattern(round, LIMIT + 1), "at its acknowledgement");
        assert_eq!(bench.get("key").await.unwrap(), pattern(round, LIMIT + 1));
    }
    bench.background.set(Way::Closed);
    bench.put("key", pattern(99, LIMIT)).await.unwrap();
    bench.power_loss(5).await;
    assert_eq!(bench.get("key").await.unwrap(), pattern(99, LIMIT));
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), pattern(99, LIMIT));
    assert!(bench.generations("key").is_sorted(), "{:?}", bench.generations("key"));
    bench.put("key", pattern(7, LIMIT + 1)).await.unwrap();
    bench.delete("key").await.unwrap();
    bench.drain().await;
    assert!(bench.under.contents().is_empty());
}

#[tokio::test]
async fn a_limit_changes_nothing_in_other_modes() {
    for mode in [WriteMode::Transient, WriteMode::WriteThrough, WriteMode::NoCache] {
        let bench = Bench::new(mode).await;
        let limit = PolicyRule { write_back_max_size: Some(ByteSize(10)), ..PolicyRule::for_path("/") };
        set(&bench, vec![limit, rule("/bucket/", mode)]).await;
        for size in [10, 11] {
            bench.put("key", pattern(1, size)).await.unwrap();
            assert_eq!(bench.under("key").is_none(), mode == WriteMode::Transient, "{mode:?}, {size} bytes");
        }
    }
}

/// With the memory tier and without.
#[tokio::test]
async fn a_large_object_that_is_read_leaves_nothing_and_a_small_one_is_kept() {
    for setup in [small_pages(), Setup::new(WriteMode::WriteBack)] {
        let bench = setup.policy(|rule| rule.read_cache_max_size = Some(ByteSize(PAGE))).open().await;
        let (small, large) = (pattern(1, PAGE as usize), pattern(2, PAGE as usize + 1));
        bench.under.put_outside("small", small.clone());
        bench.under.put_outside("large", large.clone());
        let bytes = bench.store.usage().evictable_bytes;
        for number in 1..=3 {
            assert_eq!(bench.get("large").await.unwrap(), large);
            assert_eq!(bench.get_range("large", 0, 9).await.unwrap(), large.slice(..10));
            assert_eq!(bench.get_range("large", 10, PAGE).await.unwrap(), large.slice(10..));
            assert_eq!(bench.foreground.gets().len(), 3 * number, "each read asks the under store");
            assert_eq!(cached(&bench, "large").await, 0);
        }
        assert_eq!(bench.store.usage().evictable_bytes, bytes, "not even what it is");
        let gets = bench.foreground.gets().len();
        for _ in 0..3 {
            assert_eq!(bench.get("small").await.unwrap(), small);
            assert_eq!(bench.get_range("small", 5, 9).await.unwrap(), small.slice(5..10));
        }
        assert_eq!((bench.foreground.gets().len(), cached(&bench, "small").await), (gets + 1, PAGE));
    }
}

#[tokio::test]
async fn many_readers_of_a_large_object_get_it_and_leave_nothing() {
    let bench = Arc::new(small_pages().policy(|rule| rule.read_cache_max_size = Some(ByteSize(PAGE))).open().await);
    let large = pattern(2, 3 * PAGE as usize);
    bench.under.put_outside("large", large.clone());
    let read = |_| {
        let bench = Arc::clone(&bench);
        forebay_env::spawn(async move { bench.get("large").await })
    };
    for reader in (0..20).map(read).collect::<Vec<_>>() {
        assert_eq!(reader.join().await.unwrap(), large);
    }
    assert_eq!((cached(&bench, "large").await, bench.foreground.gets().len()), (0, 20));
}

#[tokio::test]
async fn a_copy_from_before_the_limit_stays_and_does_not_grow() {
    let bench = small_pages().open().await;
    let large = pattern(2, 8 * PAGE as usize);
    bench.under.put_outside("large", large.clone());
    bench.get_range("large", 0, 9).await.unwrap();
    assert_eq!(cached(&bench, "large").await, PAGE);
    let limit = PolicyRule { read_cache_max_size: Some(ByteSize(PAGE)), ..rule("/", WriteMode::WriteBack) };
    set(&bench, vec![limit]).await;
    assert_eq!(bench.get_range("large", 5, 9).await.unwrap(), large.slice(5..10));
    assert_eq!(bench.foreground.gets().len(), 1, "it is here");
    for page in 0..8 {
        let (first, last) = (page * PAGE, (page + 1) * PAGE - 1);
        let expected = large.slice(first as usize..=last as usize);
        assert_eq!(bench.get_range("large", first, last).await.unwrap(), expected);
        others_go_on().await;
    }
    assert_eq!(bench.foreground.gets().len(), 8, "each page that is missing once, and none ahead of its reader");
    assert_eq!(bench.get("large").await.unwrap(), large);
    assert_eq!(cached(&bench, "large").await, PAGE);
}

/// Writes keep their copies, which reads find.
#[tokio::test]
async fn what_was_written_is_read_from_here_whatever_its_size() {
    let setup = limited(Setup::new(WriteMode::WriteBack), LIMIT);
    let bench = setup.policy(|rule| rule.read_cache_max_size = Some(ByteSize(10))).open().await;
    for (key, size) in [("back", LIMIT), ("through", LIMIT + 1)] {
        bench.put(key, pattern(1, size)).await.unwrap();
        bench.drain().await;
        assert_eq!(bench.get(key).await.unwrap(), pattern(1, size));
        assert_eq!(cached(&bench, key).await, size as u64);
    }
    assert!(bench.foreground.gets().is_empty());
}

#[tokio::test]
async fn a_load_skips_large_objects_and_says_so_once() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let limit = PolicyRule { read_cache_max_size: Some(ByteSize(1000)), ..PolicyRule::for_path("/bucket/in/") };
    set(&bench, vec![rule("/", WriteMode::WriteBack), limit]).await;
    bench.under.put_outside("in/small", pattern(1, 1000));
    bench.under.put_outside("in/large", pattern(2, 1001));
    bench.under.put_outside("in/larger", pattern(3, 3000));
    // All of it is here: there is nothing to skip.
    bench.put("in/written", pattern(4, 5000)).await.unwrap();
    bench.drain().await;
    for dry_run in [true, false] {
        let (job, found) = run(&bench, JobRequest { dry_run, ..request(JobKind::Load, "/bucket") }).await;
        assert_eq!(told(&found), [("/bucket/in/", "not-cached")], "dry: {dry_run}");
        assert!(found[0].detail.contains("1 KB") && found[0].detail.contains("readCacheMaxSize"), "{found:?}");
        let progress = &job.progress;
        assert_eq!((progress.objects_done, progress.objects_skipped, progress.objects_failed), (1, 3, 0));
        assert_eq!(progress.bytes_done, 1000);
    }
    assert_eq!((cached(&bench, "in/small").await, cached(&bench, "in/large").await), (1000, 0));
    let (_, found) = run(&bench, request(JobKind::Load, "/bucket/in/written")).await;
    assert!(found.is_empty(), "{found:?}");
}

/// Memory is a part of the cache.
#[tokio::test]
async fn a_copy_of_the_description_alone_brings_nothing_into_memory() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.put_outside("large", pattern(1, 1001));
    assert_eq!(cached(&bench, "large").await, 0);
    let limit = PolicyRule { read_cache_max_size: Some(ByteSize(1000)), ..rule("/", WriteMode::WriteBack) };
    set(&bench, vec![limit]).await;
    for number in 1..=3 {
        assert_eq!(bench.get("large").await.unwrap(), pattern(1, 1001));
        assert_eq!(bench.foreground.gets().len(), number);
    }
    assert_eq!(cached(&bench, "large").await, 0);
}

/// Each version that it brings to the under store first is followed by a newer one.
#[tokio::test]
async fn a_write_that_goes_through_ends_although_the_key_is_written_back_all_the_time() {
    let bench = limited(Setup::new(WriteMode::WriteBack), LIMIT).open().await;
    let put_of = |size: usize| {
        let (attributes, conditions) = (Default::default(), Default::default());
        PutObject { path: path("key"), body: incoming(pattern(1, size)), attributes, conditions }
    };
    let (cache, stop) = (bench.cache.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let small = forebay_env::spawn(async move {
        while !stopped.load(Ordering::SeqCst) {
            cache.put(put_of(LIMIT)).await.expect("it is written back");
        }
    });
    let cache = bench.cache.clone();
    let large = forebay_env::spawn(async move { cache.put(put_of(LIMIT + 1)).await });
    until("the large one is answered", || large.is_finished()).await;
    stop.store(true, Ordering::SeqCst);
    small.join().await;
    if let Err(error) = large.join().await {
        assert_eq!(error.kind, ErrorKind::SlowDown);
    }
}
