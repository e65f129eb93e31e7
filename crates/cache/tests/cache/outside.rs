//! What others write past the cache is noticed in time, replaces nothing of ours unasked, and is not replaced unasked.

use std::time::Duration;

use forebay_cache::{ErrorKind, GetObject, RangeRequest};
use forebay_catalog::records::object_key;
use forebay_types::{Period, PolicyRule, StorageState, WriteMode};
use forebay_ufs::ErrorKind as UfsKind;
use forebay_ufs::memory::Mood;

use crate::support::gate::Way;
use crate::support::{Bench, Setup, collect, get_request, kind, path, rule, until};

/// By tag, never by size and time.
#[tokio::test]
async fn a_change_of_the_same_length_is_noticed_after_the_metadata_ttl() {
    for mode in [WriteMode::WriteThrough, WriteMode::WriteBack, WriteMode::ReadOnly] {
        let bench = Bench::new(mode).await;
        bench.under.put_outside("key", "before".into());
        assert_eq!(bench.get("key").await.unwrap(), "before");
        bench.under.put_outside("key", "after!".into());
        let heads = bench.foreground.heads();
        bench.clock.advance(Duration::from_secs(59));
        assert_eq!(bench.get("key").await.unwrap(), "before", "{mode:?}");
        assert_eq!(bench.foreground.heads(), heads, "believed for metadataTtl");
        bench.clock.advance(Duration::from_secs(2));
        assert_eq!(bench.get("key").await.unwrap(), "after!", "{mode:?}");
        bench.under.delete_outside("key");
        bench.age_metadata();
        assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound), "{mode:?}");
    }
}

#[tokio::test]
async fn a_read_with_no_cache_revalidates_a_copy() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let request = || GetObject { no_cache: true, ..get_request("key", None) };
    bench.under.put_outside("key", "before".into());
    assert_eq!(bench.get("key").await.unwrap(), "before");
    bench.under.put_outside("key", "after!".into());
    assert_eq!(bench.get("key").await.unwrap(), "before");
    assert_eq!(collect(bench.cache.get(request()).await.unwrap().stream).await.unwrap(), "after!");
    assert_eq!(bench.get("key").await.unwrap(), "after!");
    bench.under.put_outside("key", "longer!".into());
    assert_eq!(bench.cache.head(request()).await.unwrap().info.size, 7);
    // The under store does not have it yet.
    bench.put("key", "ours").await.unwrap();
    assert_eq!(collect(bench.cache.get(request()).await.unwrap().stream).await.unwrap(), "ours");
}

/// An answer that takes longer than `metadataTtl` tells what the under store had before.
#[tokio::test]
async fn a_copy_is_as_fresh_as_the_question_for_it() {
    for has_copy in [false, true] {
        let bench = Bench::new(WriteMode::WriteThrough).await;
        bench.under.put_outside("key", "before".into());
        if has_copy {
            assert_eq!(bench.get("key").await.unwrap(), "before");
        }
        bench.foreground.set(Way::HoldAnswers);
        let (cache, request) = (bench.cache.clone(), GetObject { no_cache: true, ..get_request("key", None) });
        let reading = forebay_env::spawn(async move { collect(cache.get(request).await?.stream).await });
        until("the answer is on its way", || bench.foreground.waiting() == 1).await;
        bench.under.put_outside("key", "after!".into());
        bench.age_metadata();
        bench.foreground.set(Way::Open);
        assert_eq!(reading.join().await.unwrap(), "before");
        assert_eq!(bench.get("key").await.unwrap(), "after!", "had a copy: {has_copy}");
    }
}

/// It tells what the under store had before a newer answer, which others have seen.
#[tokio::test]
async fn a_late_answer_replaces_nothing_that_a_newer_one_has_told() {
    for is_deleted in [false, true] {
        let bench = Bench::new(WriteMode::WriteThrough).await;
        bench.under.put_outside("key", "one".into());
        assert_eq!(bench.get("key").await.unwrap(), "one");
        bench.age_metadata();
        bench.under.put_outside("key", "second".into());
        let release = bench.foreground.hold_next_head();
        let cache = bench.cache.clone();
        let late = forebay_env::spawn(async move { cache.head(get_request("key", None)).await });
        until("the late answer is on its way", || bench.foreground.waiting() == 1).await;
        bench.clock.advance(Duration::from_millis(1));
        let size = async || bench.head("key").await.ok().map(|head| head.info.size);
        let expected = match is_deleted {
            true => {
                bench.under.delete_outside("key");
                None
            }
            false => {
                bench.under.put_outside("key", "the third".into());
                Some(9)
            }
        };
        assert_eq!(size().await, expected);
        drop(release);
        assert_eq!(late.join().await.unwrap().info.size, 6, "it has begun before");
        assert_eq!(size().await, expected, "deleted: {is_deleted}");
    }
}

/// Between the answer that tells what it is and the one that brings its bytes.
#[tokio::test]
async fn a_read_that_meets_a_change_begins_again_with_what_is_there_then() {
    for mode in [WriteMode::WriteBack, WriteMode::NoCache] {
        let bench = Bench::new(mode).await;
        bench.under.put_outside("key", "before".into());
        bench.foreground.set(Way::HoldReads);
        let cache = bench.cache.clone();
        let reading = forebay_env::spawn(async move {
            let range = RangeRequest::From { first: 1, last: Some(3) };
            collect(cache.get(get_request("key", Some(range))).await?.stream).await
        });
        until("the bytes are asked for", || bench.foreground.waiting() == 1).await;
        bench.under.put_outside("key", "after!".into());
        bench.foreground.set(Way::Open);
        assert_eq!(reading.join().await.unwrap(), "fte", "{mode:?}");
    }
}

#[tokio::test]
async fn what_has_not_changed_is_validated_without_reading_it_again() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "value").await.unwrap();
    bench.drain().await;
    bench.age_metadata();
    let heads = bench.foreground.heads();
    assert_eq!(bench.get("key").await.unwrap(), "value");
    assert_eq!(bench.get("key").await.unwrap(), "value");
    assert_eq!(bench.foreground.heads(), heads + 1, "one validation for the next metadataTtl");
    assert!(bench.foreground.gets().is_empty(), "served from the bytes it was written with");
}

#[tokio::test]
async fn with_a_ttl_of_zero_each_read_asks() {
    let setup = Setup::new(WriteMode::WriteThrough).policy(|rule| rule.metadata_ttl = Some(Period::from_secs(0)));
    let bench = setup.open().await;
    for body in ["one", "two", "six"] {
        bench.under.put_outside("key", body.into());
        assert_eq!(bench.get("key").await.unwrap(), body);
    }
}

#[tokio::test]
async fn a_copy_is_served_while_the_under_store_is_out_of_reach() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("key", "value").await.unwrap();
    bench.age_metadata();
    for kind_of in [UfsKind::Unavailable, UfsKind::Credentials] {
        bench.under.set_mood(Mood::Refuse(kind_of));
        assert_eq!(bench.get("key").await.unwrap(), "value", "{kind_of:?}");
        assert_eq!(kind(bench.get("other").await), Some(ErrorKind::Unavailable), "unknown is not absent");
    }
    bench.under.set_mood(Mood::Refuse(UfsKind::Denied));
    assert_eq!(kind(bench.get("key").await), Some(ErrorKind::AccessDenied), "a refusal is an answer");
}

/// Theirs stays there, ours stays here, and both are counted.
#[tokio::test]
async fn a_change_under_a_dirty_object_is_a_conflict_that_replaces_nothing() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "base").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Closed);
    bench.put("key", "ours").await.unwrap();
    bench.under.put_outside("key", "them".into());
    bench.background.set(Way::Open);
    bench.advancing("the conflict is noticed", || bench.cache.status().conflicts == 1).await;
    for _ in 0..2 {
        assert_eq!(bench.under("key").unwrap(), "them");
        bench.age_metadata();
        assert_eq!(bench.get("key").await.unwrap(), "ours");
        assert_eq!(bench.keys().await, ["key"]);
        bench.restart().await;
        assert_eq!(bench.cache.status().conflicts, 1, "a restart remembers");
    }
    bench.put("key", "decided").await.unwrap();
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "decided");
    assert_eq!(bench.cache.status().conflicts, 0);
    assert_eq!(bench.state("key").await, StorageState::Clean);
}

/// Nothing of ours is left to serve, so theirs shows again: an operator must learn of it.
#[tokio::test]
async fn a_delete_of_what_somebody_else_has_changed_is_abandoned_and_counted() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "base").await.unwrap();
    bench.drain().await;
    assert_eq!(bench.metric("forebay_abandoned_deletes_total"), 0.0);
    bench.background.set(Way::Closed);
    bench.delete("key").await.unwrap();
    bench.under.put_outside("key", "them".into());
    bench.background.set(Way::Open);
    bench.advancing("the delete is abandoned", || bench.metric("forebay_abandoned_deletes_total") == 1.0).await;
    assert_eq!((bench.under("key").unwrap(), bench.get("key").await.unwrap()), ("them".into(), "them".into()));
    assert_eq!(bench.cache.status().tombstones, 0);
}

/// Two servers whose data directories are copies of the same ones number their writes alike.
#[tokio::test]
async fn a_write_of_another_under_our_own_generation_is_a_conflict() {
    for is_known in [false, true] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        if is_known {
            bench.put("key", "base").await.unwrap();
            bench.drain().await;
        }
        bench.background.set(Way::Closed);
        bench.put("key", "ours").await.unwrap();
        let generation = bench.store.peek(&object_key(&path("key"))).unwrap().generation();
        bench.under.put_stamped("key", "them".into(), generation);
        bench.background.set(Way::Open);
        bench.advancing("the conflict is noticed", || bench.cache.status().conflicts == 1).await;
        assert_eq!(bench.under("key").unwrap(), "them", "{is_known}");
        bench.age_metadata();
        assert_eq!(bench.get("key").await.unwrap(), "ours", "{is_known}");
    }
}

/// Nothing of theirs is there to be replaced.
#[tokio::test]
async fn a_deletion_under_a_dirty_object_does_not_keep_it_from_the_under_store() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "base").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Closed);
    bench.put("key", "ours").await.unwrap();
    bench.under.delete_outside("key");
    bench.background.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "ours");
    assert_eq!(bench.cache.status().conflicts, 0);
}

/// What is dirty stays what it is, whatever the policy says by now.
#[tokio::test]
async fn a_policy_change_does_not_uncover_an_older_version() {
    for mode in [WriteMode::NoCache, WriteMode::ReadOnly, WriteMode::Transient, WriteMode::WriteThrough] {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        bench.put("key", "older").await.unwrap();
        bench.put("gone", "older").await.unwrap();
        bench.drain().await;
        bench.background.set(Way::Closed);
        bench.put("key", "newer").await.unwrap();
        bench.delete("gone").await.unwrap();
        until("both are under way", || bench.background.waiting() == 2).await;
        let (_, version) = bench.cache.policies();
        bench.cache.set_policies(vec![rule("/", mode)], Some(version), "test", "edit").await.unwrap();
        bench.background.set(Way::Refuse("none".to_owned(), UfsKind::Unavailable));
        for restart in [false, true] {
            if restart {
                bench.restart().await;
            }
            bench.background.set(Way::Closed);
            assert_eq!(bench.cache.resolve(&crate::support::path("key")).write_mode, mode);
            assert_eq!(bench.get("key").await.unwrap(), "newer", "{mode:?}");
            assert_eq!(kind(bench.get("gone").await), Some(ErrorKind::NotFound), "{mode:?}");
            assert_eq!(bench.keys().await, ["key"], "{mode:?}");
            bench.background.set(Way::Open);
        }
        bench.drain().await;
        assert_eq!(bench.under("key").unwrap(), "newer", "{mode:?}");
        assert!(bench.under("gone").is_none(), "{mode:?}");
        assert_eq!(bench.get("key").await.unwrap(), "newer", "{mode:?}");
    }
}

#[tokio::test]
async fn policies_change_by_compare_and_swap_and_survive_a_restart() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    let (_, version) = bench.cache.policies();
    let rules = vec![rule("/", WriteMode::WriteBack), rule("/bucket/raw/", WriteMode::NoCache)];
    let after = bench.cache.set_policies(rules.clone(), Some(version), "test", "edit").await.unwrap();
    let stale = bench.cache.set_policies(vec![], Some(version), "test", "edit").await;
    assert_eq!(kind(stale), Some(ErrorKind::Conflict));
    let wrong = vec![PolicyRule::for_path("no/slash")];
    assert_eq!(
        kind(bench.cache.set_policies(wrong, Some(after), "test", "edit").await),
        Some(ErrorKind::InvalidArgument)
    );
    bench.restart().await;
    assert_eq!(bench.cache.resolve(&crate::support::path("x")).write_mode, WriteMode::WriteBack);
    assert_eq!(bench.cache.resolve(&crate::support::path("raw/x")).write_mode, WriteMode::NoCache);
    bench.setup.policies = vec![rule("/", WriteMode::Transient)];
    bench.restart().await;
    assert_eq!(
        bench.cache.resolve(&crate::support::path("raw/x")).write_mode,
        WriteMode::Transient,
        "an edited file counts"
    );
}

/// The under store was asked, or it has carried out our own delete.
#[tokio::test]
async fn a_write_of_what_was_known_to_be_absent_is_in_conflict_with_that_of_others() {
    for is_deleted in [false, true] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        if is_deleted {
            bench.put("key", "base").await.unwrap();
            bench.drain().await;
            bench.delete("key").await.unwrap();
            bench.drain().await;
        } else {
            assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
        }
        bench.under.put_outside("key", "theirs".into());
        bench.put("key", "ours").await.unwrap();
        bench.drain().await;
        assert_eq!(bench.cache.status().conflicts, 1, "deleted: {is_deleted}");
        assert_eq!((bench.under("key").unwrap(), bench.get("key").await.unwrap()), ("theirs".into(), "ours".into()));
    }
}

/// Nobody knows by then what the under store has. Reads have asked it again, or the time is over.
#[tokio::test]
async fn an_absence_that_is_old_or_has_ended_puts_nothing_in_conflict() {
    for is_read in [false, true] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        bench.put("key", "base").await.unwrap();
        bench.drain().await;
        bench.delete("key").await.unwrap();
        bench.drain().await;
        bench.under.put_outside("key", "theirs".into());
        if is_read {
            assert_eq!(bench.get("key").await.unwrap(), "theirs", "our own delete hides nothing of theirs");
        } else {
            bench.age_metadata();
        }
        bench.put("key", "ours").await.unwrap();
        bench.drain().await;
        assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), ("ours".into(), 0), "{is_read}");
    }
}
