//! Every write mode keeps its promise, when the under store is well and when it is not.

use std::time::Duration;

use forebay_cache::ErrorKind;
use forebay_types::{StorageState, WriteMode};
use forebay_ufs::ErrorKind as UfsKind;
use forebay_ufs::memory::{Applied, Mood};

use crate::support::gate::Way;
use crate::support::{Bench, if_absent, if_matches, kind, path, pattern, until};

const WRITABLE: [WriteMode; 4] =
    [WriteMode::WriteThrough, WriteMode::WriteBack, WriteMode::Transient, WriteMode::NoCache];

#[tokio::test]
async fn what_is_written_is_read_listed_and_deleted_in_every_mode() {
    for mode in WRITABLE {
        let bench = Bench::new(mode).await;
        for size in [0, 1, 5_000, 300_000, 3 << 20] {
            let body = pattern(size as u64 + 1, size);
            let written = bench.put("dir/key", body.clone()).await.unwrap();
            assert_eq!(bench.get("dir/key").await.unwrap(), body, "{mode:?} {size}");
            let head = bench.head("dir/key").await.unwrap();
            assert_eq!((head.info.size, &head.info.etag), (size as u64, &written.etag), "{mode:?}");
            assert_eq!(bench.keys().await, ["dir/key"], "{mode:?}");
        }
        bench.delete("dir/key").await.unwrap();
        assert_eq!(kind(bench.get("dir/key").await), Some(ErrorKind::NotFound), "{mode:?}");
        assert_eq!(kind(bench.head("dir/key").await), Some(ErrorKind::NotFound), "{mode:?}");
        assert!(bench.keys().await.is_empty(), "{mode:?}");
        bench.delete("dir/key").await.unwrap();
        bench.drain().await;
        assert!(bench.under.contents().is_empty(), "{mode:?}");
    }
}

#[tokio::test]
async fn the_under_store_has_it_when_the_mode_says_so() {
    for (mode, there) in [(WriteMode::WriteThrough, true), (WriteMode::NoCache, true), (WriteMode::Transient, false)] {
        let bench = Bench::new(mode).await;
        bench.put("key", "value").await.unwrap();
        bench.cache.persist("/").await.unwrap();
        assert_eq!(bench.under("key").is_some(), there, "{mode:?}");
        let cached = bench.head("key").await.unwrap().cached_bytes;
        assert_eq!(cached, if mode == WriteMode::NoCache { 0 } else { 5 }, "{mode:?}");
        let state = if there { StorageState::Clean } else { StorageState::Transient };
        assert_eq!(bench.state("key").await, state, "{mode:?}");
    }
}

#[tokio::test]
async fn a_read_only_path_refuses_writes_and_serves_what_is_there() {
    let bench = Bench::new(WriteMode::ReadOnly).await;
    bench.under.put_outside("key", "value".into());
    assert_eq!(kind(bench.put("key", "other").await), Some(ErrorKind::AccessDenied));
    assert_eq!(kind(bench.delete("key").await), Some(ErrorKind::AccessDenied));
    assert_eq!(bench.get("key").await.unwrap(), "value");
    assert_eq!(bench.keys().await, ["key"]);
    assert!(bench.under.applied().is_empty());
}

#[tokio::test]
async fn a_refused_write_through_leaves_the_old_object_on_both_sides() {
    for mode in [WriteMode::WriteThrough, WriteMode::NoCache] {
        for (refusal, answer) in [
            (UfsKind::Throttled, ErrorKind::SlowDown),
            (UfsKind::Unavailable, ErrorKind::Unavailable),
            (UfsKind::NoSpace, ErrorKind::Unavailable),
            (UfsKind::ReadOnly, ErrorKind::Unavailable),
            (UfsKind::Denied, ErrorKind::AccessDenied),
        ] {
            let bench = Bench::new(mode).await;
            bench.put("old", "value").await.unwrap();
            bench.under.set_mood(Mood::Refuse(refusal));
            let error = bench.put("old", "other").await.unwrap_err();
            assert_eq!(error.kind, answer, "{mode:?} {refusal:?}");
            assert!(error.to_string().contains("under store"), "the message names the culprit: {error}");
            assert_eq!(kind(bench.put("new", "other").await), Some(answer));
            assert_eq!(kind(bench.delete("old").await), Some(answer));
            bench.under.set_mood(Mood::Well);
            assert_eq!(bench.get("old").await.unwrap(), "value");
            assert_eq!(kind(bench.get("new").await), Some(ErrorKind::NotFound));
            assert_eq!(bench.keys().await, ["old"]);
            assert_eq!(bench.cache.status().pinned_bytes, 0);
            bench.put("new", "again").await.unwrap();
        }
    }
}

#[tokio::test]
async fn write_back_is_acknowledged_while_the_under_store_hangs() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    for n in 0..20 {
        bench.put(&format!("k{n:02}"), format!("value {n}")).await.unwrap();
        assert_eq!(bench.state(&format!("k{n:02}")).await, StorageState::Dirty);
    }
    bench.delete("k03").await.unwrap();
    assert_eq!(bench.keys().await.len(), 19);
    let status = bench.cache.status();
    assert_eq!((status.dirty_objects, status.tombstones), (19, 1));
    assert!(status.pinned_bytes > 0 && bench.under.contents().is_empty());
    bench.clock.advance(Duration::from_secs(5));
    assert_eq!(bench.cache.status().oldest_dirty_age_ms, 5_000);
    bench.background.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.under.contents().len(), 19);
    assert_eq!(bench.under("k07").unwrap(), "value 7");
    assert_eq!(bench.state("k07").await, StorageState::Clean);
    let status = bench.cache.status();
    assert_eq!((status.dirty_bytes, status.pinned_bytes, status.oldest_dirty_age_ms), (0, 0, 0));
}

#[tokio::test]
async fn overwrites_coalesce_and_generations_only_grow() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "first").await.unwrap();
    until("the first upload is under way", || bench.background.waiting() == 1).await;
    for n in 0..50 {
        bench.put("key", format!("value {n}")).await.unwrap();
    }
    assert_eq!(bench.cache.status().dirty_objects, 1);
    bench.background.set(Way::Open);
    bench.drain().await;
    let generations = bench.generations("key");
    assert_eq!(generations.len(), 2, "the one under way and the newest: {generations:?}");
    assert!(generations.is_sorted());
    assert_eq!(bench.under("key").unwrap(), "value 49");
}

#[tokio::test]
async fn a_deleted_key_stays_deleted_and_can_be_made_anew() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "first").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Closed);
    bench.delete("key").await.unwrap();
    assert_eq!(bench.under("key").unwrap(), "first");
    assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
    until("the delete is under way", || bench.background.waiting() == 1).await;
    bench.put("key", "second").await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), "second");
    bench.background.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "second");
    let deletes = bench.under.applied().iter().filter(|a| matches!(a, Applied::Delete { .. })).count();
    assert_eq!((deletes, bench.generations("key").len()), (1, 2));
}

#[tokio::test]
async fn conditions_hold_in_every_mode() {
    for mode in WRITABLE {
        let bench = Bench::new(mode).await;
        let first = bench.put_if("key", "first", if_absent()).await.unwrap();
        assert_eq!(kind(bench.put_if("key", "x", if_absent()).await), Some(ErrorKind::PreconditionFailed), "{mode:?}");
        let second = bench.put_if("key", "second", if_matches(&first.etag)).await.unwrap();
        let stale = bench.put_if("key", "x", if_matches(&first.etag)).await;
        assert_eq!(kind(stale), Some(ErrorKind::PreconditionFailed), "{mode:?}");
        let stale = bench.cache.delete(&path("key"), &if_matches(&first.etag)).await;
        assert_eq!(kind(stale), Some(ErrorKind::PreconditionFailed), "{mode:?}");
        assert_eq!(bench.get("key").await.unwrap(), "second", "{mode:?}");
        bench.cache.delete(&path("key"), &if_matches(&second.etag)).await.unwrap();
        let gone = bench.put_if("key", "x", if_matches(&second.etag)).await;
        assert_eq!(kind(gone), Some(ErrorKind::NotFound), "{mode:?}");
        bench.put_if("key", "third", if_absent()).await.unwrap();
        bench.drain().await;
        assert_eq!(bench.get("key").await.unwrap(), "third", "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_writers_of_an_absent_key_one_wins() {
    for mode in WRITABLE {
        let bench = std::sync::Arc::new(Bench::new(mode).await);
        let writers: Vec<_> = (0..50)
            .map(|n| {
                let bench = std::sync::Arc::clone(&bench);
                forebay_env::spawn(async move { bench.put_if("key", format!("value {n}"), if_absent()).await })
            })
            .collect();
        let mut winners = Vec::new();
        for (n, writer) in writers.into_iter().enumerate() {
            match writer.join().await {
                Ok(_) => winners.push(n),
                Err(error) => assert_eq!(error.kind, ErrorKind::PreconditionFailed, "{mode:?} {error}"),
            }
        }
        assert_eq!(winners.len(), 1, "{mode:?}");
        assert_eq!(bench.get("key").await.unwrap(), format!("value {}", winners[0]), "{mode:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_not_what_it_says_changes_nothing() {
    for mode in WRITABLE {
        let bench = Bench::new(mode).await;
        bench.put("key", "value").await.unwrap();
        let short = crate::support::incoming_stream(crate::support::incoming("abc".into()).stream, 4);
        let long = crate::support::incoming_stream(crate::support::incoming("abc".into()).stream, 2);
        let mut wrong = crate::support::incoming("abc".into());
        wrong.md5 = Some([7; 16]);
        let mut hash = crate::support::incoming("abc".into());
        hash.sha256 = Some([7; 32]);
        for (body, expected) in [
            (short, ErrorKind::IncompleteBody),
            (long, ErrorKind::IncompleteBody),
            (wrong, ErrorKind::BadDigest),
            (hash, ErrorKind::PayloadHashMismatch),
        ] {
            let request = forebay_cache::PutObject {
                path: path("key"),
                body,
                attributes: Default::default(),
                conditions: Default::default(),
            };
            assert_eq!(kind(bench.cache.put(request).await), Some(expected), "{mode:?}");
        }
        bench.drain().await;
        assert_eq!(bench.get("key").await.unwrap(), "value", "{mode:?}");
    }
}

/// Whatever the cache kept of the object before.
#[tokio::test]
async fn a_write_in_another_mode_replaces_what_only_the_cache_had() {
    for mode in [WriteMode::NoCache, WriteMode::WriteThrough, WriteMode::WriteBack] {
        let mut bench = Bench::new(WriteMode::Transient).await;
        bench.put("key", "transient").await.unwrap();
        bench.cache.set_policies(vec![crate::support::rule("/", mode)], None, "test", "edit").await.unwrap();
        bench.put("key", "newer").await.unwrap();
        assert_eq!(bench.get("key").await.unwrap(), "newer", "{mode:?}");
        bench.drain().await;
        assert_eq!(bench.under("key").unwrap(), "newer", "{mode:?}");
        assert_eq!(bench.cache.status().pinned_bytes, 0, "{mode:?}");
        bench.power_loss(2).await;
        assert_eq!(bench.get("key").await.unwrap(), "newer", "{mode:?}");
    }
}

/// Also what only the cache had.
#[tokio::test]
async fn a_delete_in_another_mode_leaves_nothing_behind() {
    for mode in [WriteMode::NoCache, WriteMode::WriteThrough, WriteMode::WriteBack] {
        let mut bench = Bench::new(WriteMode::Transient).await;
        bench.put("key", "transient").await.unwrap();
        bench.cache.set_policies(vec![crate::support::rule("/", mode)], None, "test", "edit").await.unwrap();
        bench.delete("key").await.unwrap();
        bench.drain().await;
        assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound), "{mode:?}");
        assert_eq!(bench.cache.status().pinned_bytes, 0, "{mode:?}");
        bench.power_loss(2).await;
        assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound), "{mode:?}");
    }
}

/// A slow under store is nobody's business who changes what it does not have yet.
#[tokio::test]
async fn tags_of_a_dirty_object_do_not_wait_for_its_upload() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(crate::support::gate::Way::Closed);
    bench.put("key", "value").await.unwrap();
    crate::support::until("the upload is under way", || bench.background.waiting() == 1).await;
    let tags: forebay_types::Tags = [("a".to_owned(), "1".to_owned())].into();
    bench.cache.set_tags(&path("key"), tags.clone()).await.unwrap();
    assert_eq!(bench.cache.tags(&path("key")).await.unwrap(), tags);
    bench.background.set(crate::support::gate::Way::Open);
    bench.drain().await;
    assert_eq!(bench.cache.tags(&path("key")).await.unwrap(), tags);
}

/// Only the copy here is missing.
#[tokio::test]
async fn a_write_that_the_under_store_has_is_no_failure_because_the_disk_is_full() {
    for mode in [WriteMode::WriteThrough, WriteMode::NoCache] {
        for transient in [false, true] {
            let bench = Bench::new(if transient { WriteMode::Transient } else { mode }).await;
            if transient {
                bench.put("key", "transient").await.unwrap();
                bench.cache.set_policies(vec![crate::support::rule("/", mode)], None, "test", "edit").await.unwrap();
            }
            bench.foreground.set(Way::Closed);
            let body = crate::support::incoming("value".into());
            let (path, attributes, conditions) = (path("key"), Default::default(), Default::default());
            let request = forebay_cache::PutObject { path, body, attributes, conditions };
            let cache = bench.cache.clone();
            let writing = forebay_env::spawn(async move { cache.put(request).await });
            until("the write is under way", || bench.foreground.waiting() == 1).await;
            bench.disk.fail_writes(Some(std::io::ErrorKind::StorageFull));
            bench.foreground.set(Way::Open);
            // What only the cache had would be served on.
            let failure = transient.then_some(ErrorKind::Unavailable);
            assert_eq!(kind(writing.join().await), failure, "{mode:?}, transient: {transient}");
            assert_eq!(bench.under("key").unwrap(), "value");
            bench.disk.fail_writes(None);
            if !transient {
                assert_eq!(bench.get("key").await.unwrap(), "value", "{mode:?}");
            }
        }
    }
}

/// Of other refusals, nobody knows whether the under store has seen the request.
#[tokio::test]
async fn a_copy_stays_where_a_request_to_an_under_store_out_of_reach_was_not_sent() {
    for size in [5, 200_000] {
        for (way, stays) in [(Way::Unconnected, true), (Way::Cut, false)] {
            let bench = Bench::new(WriteMode::WriteThrough).await;
            let body = pattern(1, size);
            bench.put("key", body.clone()).await.unwrap();
            for request in ["put", "delete", "tags"] {
                bench.foreground.set(way.clone());
                let refused = match request {
                    "put" => bench.put("key", "second").await.map(drop),
                    "delete" => bench.delete("key").await,
                    _ => bench.cache.set_tags(&path("key"), [("name".to_owned(), "value".to_owned())].into()).await,
                };
                assert_eq!(kind(refused), Some(ErrorKind::Unavailable), "{request} {size}");
                let read = bench.get("key").await;
                match stays {
                    true => assert_eq!(read.unwrap(), body, "{request}"),
                    false => assert_eq!(kind(read), Some(ErrorKind::Unavailable), "{request}"),
                }
                bench.foreground.set(Way::Open);
                assert_eq!(bench.get("key").await.unwrap(), body, "{request}");
            }
            bench.put("key", "third").await.unwrap();
            assert_eq!(bench.get("key").await.unwrap(), "third");
            assert_eq!(bench.under("key").unwrap(), "third");
        }
    }
}
