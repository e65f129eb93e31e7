//! Keys that the under store did not have a moment ago: it is not asked again within `listTtl`, unless something may
//! have changed.

use std::sync::Arc;
use std::time::Duration;

use forebay_cache::{ErrorKind, GetObject, JobKind};
use forebay_catalog::records::object_key;
use forebay_types::{Period, PolicyRule, WriteMode};
use forebay_ufs::memory::MemoryUnderStore;

use crate::faults::SETTLED;
use crate::list_ttl::listed;
use crate::read_leases::{no_slots, pair_of, put};
use crate::support::gate::Way;
use crate::support::{Bench, Setup, collect, get_request, if_absent, jobs, path, until};

const TTL: Duration = Duration::from_secs(10);

fn setup(mode: WriteMode) -> Setup {
    Setup::new(mode).policy(|rule| rule.list_ttl = Some(Period::from_secs(TTL.as_secs())))
}

/// What a read finds, and how often it asked the under store.
async fn found(bench: &Bench, request: GetObject) -> (Option<String>, u64) {
    let asked = || bench.foreground.heads() + bench.foreground.gets().len() as u64;
    let before = asked();
    let body = match bench.cache.get(request).await {
        Ok(body) => {
            let bytes = collect(body.stream).await.expect("all of it");
            Some(String::from_utf8(bytes.into()).expect("a text"))
        }
        Err(error) if error.kind == ErrorKind::NotFound => None,
        Err(error) => panic!("{error}"),
    };
    (body, asked() - before)
}

async fn check(bench: &Bench, key: &str, wanted: Option<&str>, asked: u64) {
    assert_eq!(found(bench, get_request(key, None)).await, (wanted.map(str::to_owned), asked), "{key}");
}

/// Drops a copy, if there is one, as room is made for others.
fn evict(bench: &Bench, key: &str) {
    let key = object_key(&path(key));
    if let Some(copy) = bench.store.peek(&key) {
        assert!(bench.store.evict(&key, copy.generation()));
    }
}

#[tokio::test]
async fn what_others_write_is_found_after_the_ttl() {
    let bench = setup(WriteMode::WriteThrough).open().await;
    check(&bench, "a", None, 1).await;
    check(&bench, "a", None, 0).await;
    assert_eq!(bench.head("a").await.unwrap_err().kind, ErrorKind::NotFound);
    for operation in ["get", "head"] {
        assert_eq!(bench.metric(&format!("forebay_requests_avoided_total{{operation=\"{operation}\"}}")), 1.0);
    }
    bench.under.put_outside("a", "out".into());
    bench.clock.advance(TTL - Duration::from_secs(1));
    check(&bench, "a", None, 0).await;
    bench.clock.advance(Duration::from_secs(1));
    check(&bench, "a", Some("out"), 1).await;
}

#[tokio::test]
async fn a_request_with_no_cache_asks_and_so_does_a_read_after_free() {
    let bench = setup(WriteMode::WriteThrough).open().await;
    for key in ["a", "b", "c"] {
        check(&bench, key, None, 1).await;
        bench.under.put_outside(key, "out".into());
    }
    let request = GetObject { no_cache: true, ..get_request("a", None) };
    assert_eq!(found(&bench, request).await, (Some("out".to_owned()), 1));
    check(&bench, "a", Some("out"), 0).await;
    jobs::run(&bench, jobs::request(JobKind::Free, "/bucket/b")).await;
    check(&bench, "b", Some("out"), 1).await;
    check(&bench, "c", None, 0).await;
}

#[tokio::test]
async fn the_policy_decides() {
    let zero = Some(Period::from_secs(0));
    let changes: [fn(&mut PolicyRule, Option<Period>); 4] = [
        |rule, zero| rule.list_ttl = zero,
        |rule, zero| rule.metadata_ttl = zero,
        |rule, _| rule.cache_reads = Some(false),
        |rule, _| rule.write_mode = Some(WriteMode::NoCache),
    ];
    for change in changes {
        let bench = setup(WriteMode::WriteThrough).policy(|rule| change(rule, zero)).open().await;
        check(&bench, "a", None, 1).await;
        check(&bench, "a", None, 1).await;
    }
}

#[tokio::test]
async fn what_is_written_here_is_found_at_once_and_after_it_has_left_the_cache() {
    for mode in [WriteMode::WriteThrough, WriteMode::WriteBack, WriteMode::NoCache] {
        let bench = setup(mode).open().await;
        for body in ["first", "second"] {
            found(&bench, get_request("a", None)).await;
            check(&bench, "a", None, u64::from(mode == WriteMode::NoCache)).await;
            bench.put("a", body).await.unwrap();
            assert_eq!(bench.get("a").await.unwrap(), body, "{mode:?}");
            bench.drain().await;
            evict(&bench, "a");
            check(&bench, "a", Some(body), 1).await;
            bench.delete("a").await.unwrap();
            bench.drain().await;
        }
    }
}

/// Nobody knows whether the under store has it until it answers.
#[tokio::test]
async fn a_write_in_flight_is_looked_for_each_time() {
    let bench = setup(WriteMode::WriteThrough).open().await;
    check(&bench, "a", None, 1).await;
    bench.foreground.set(Way::Closed);
    let (cache, request) = (bench.cache.clone(), put("a", "here"));
    let putting = forebay_env::spawn(async move { cache.put(request).await });
    until("the write is at the under store", || bench.foreground.waiting() == 1).await;
    check(&bench, "a", None, 1).await;
    check(&bench, "a", None, 1).await;
    bench.foreground.set(Way::Open);
    putting.join().await.unwrap();
    assert_eq!(bench.get("a").await.unwrap(), "here");
}

#[tokio::test]
async fn a_write_without_an_answer_is_looked_for_until_it_is_settled() {
    let bench = setup(WriteMode::WriteThrough).open().await;
    check(&bench, "a", None, 1).await;
    bench.foreground.set(Way::Late);
    bench.put("a", "late").await.unwrap_err();
    bench.foreground.set(Way::Open);
    check(&bench, "a", None, 1).await;
    check(&bench, "a", None, 1).await;
    bench.foreground.land().await.unwrap();
    check(&bench, "a", Some("late"), 1).await;
    bench.clock.advance(SETTLED);
    check(&bench, "b", None, 1).await;
    check(&bench, "b", None, 0).await;
}

#[tokio::test]
async fn what_a_listing_shows_is_found() {
    let bench = setup(WriteMode::WriteThrough).open().await;
    for key in ["a/1", "a/2", "b/1"] {
        check(&bench, key, None, 1).await;
        bench.under.put_outside(key, "out".into());
    }
    assert_eq!(listed(&bench, "a/").await, (vec!["a/1".to_owned(), "a/2".to_owned()], 1));
    check(&bench, "a/1", Some("out"), 1).await;
    check(&bench, "b/1", None, 0).await;
    // A kept page tells nothing of what others have deleted since.
    bench.under.delete_outside("a/2");
    check(&bench, "a/2", None, 1).await;
    check(&bench, "a/2", None, 0).await;
}

/// A read finds no object after the listing has begun, and before the under store looks at its names.
#[tokio::test]
async fn what_was_absent_when_a_listing_began_and_is_shown_by_it_is_found() {
    let bench = Arc::new(setup(WriteMode::WriteThrough).open().await);
    bench.foreground.set(Way::DelayLists);
    let lister = Arc::clone(&bench);
    let listing = forebay_env::spawn(async move { listed(&lister, "a/").await.0 });
    until("the listing is on its way", || bench.foreground.waiting() == 1).await;
    check(&bench, "a/1", None, 1).await;
    check(&bench, "a/1", None, 0).await;
    bench.under.put_outside("a/1", "out".into());
    bench.foreground.set(Way::Open);
    assert_eq!(listing.join().await, ["a/1"]);
    check(&bench, "a/1", Some("out"), 1).await;
}

#[tokio::test]
async fn what_a_listing_of_another_worker_shows_is_found() {
    let under = MemoryUnderStore::default();
    let with = || Setup { under: Some(under.clone()), ..setup(WriteMode::WriteThrough) };
    let pair = pair_of(with(), with()).await;
    check(&pair.here, "a/1", None, 1).await;
    under.put_outside("a/1", "out".into());
    assert_eq!(listed(&pair.there, "a/").await, (vec!["a/1".to_owned()], 1));
    check(&pair.here, "a/1", Some("out"), 1).await;
}

/// A read at the home finds it absent while the listing is on its way.
#[tokio::test]
async fn so_is_what_has_come_since_a_listing_of_another_worker_began() {
    let under = MemoryUnderStore::default();
    let with = || Setup { under: Some(under.clone()), ..setup(WriteMode::WriteThrough) };
    let pair = pair_of(with(), with()).await;
    pair.there.foreground.set(Way::DelayLists);
    let meanwhile = async {
        until("the listing is on its way", || pair.there.foreground.waiting() == 1).await;
        check(&pair.here, "a/1", None, 1).await;
        check(&pair.here, "a/1", None, 0).await;
        under.put_outside("a/1", "out".into());
        pair.there.foreground.set(Way::Open);
    };
    let ((shown, _), ()) = futures::join!(listed(&pair.there, "a/"), meanwhile);
    assert_eq!(shown, ["a/1"]);
    check(&pair.here, "a/1", Some("out"), 1).await;
}

#[tokio::test]
async fn so_is_what_a_listing_of_another_worker_shows_that_is_not_kept() {
    let under = MemoryUnderStore::default();
    // Of a listing that includes these keys, no page is kept.
    let live = PolicyRule { list_ttl: Some(Period::from_secs(0)), ..PolicyRule::for_path("/bucket/live/") };
    let with = || {
        let mut with = Setup { under: Some(under.clone()), ..setup(WriteMode::WriteThrough) };
        with.policies.push(live.clone());
        with
    };
    let pair = pair_of(with(), with()).await;
    check(&pair.here, "a", None, 1).await;
    check(&pair.here, "a", None, 0).await;
    under.put_outside("a", "out".into());
    for _ in 0..2 {
        assert_eq!(listed(&pair.there, "").await, (vec!["a".to_owned()], 1));
    }
    check(&pair.here, "a", Some("out"), 1).await;
}

/// Whoever is told that an object exists can read it.
#[tokio::test]
async fn what_another_request_has_found_is_found() {
    let bench = setup(WriteMode::WriteThrough).open().await;
    for key in ["written", "tagged", "inspected"] {
        check(&bench, key, None, 1).await;
        bench.under.put_outside(key, "out".into());
        check(&bench, key, None, 0).await;
    }
    let refused = bench.put_if("written", "here", if_absent()).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::PreconditionFailed);
    bench.cache.tags(&path("tagged")).await.unwrap();
    bench.cache.object_detail(&path("inspected")).await.unwrap();
    for key in ["written", "tagged", "inspected"] {
        check(&bench, key, Some("out"), 1).await;
    }
}

/// Another home has written what it liked meanwhile.
#[tokio::test]
async fn an_absence_ends_with_the_home() {
    let under = MemoryUnderStore::default();
    let with = || Setup { under: Some(under.clone()), ..setup(WriteMode::WriteThrough) };
    let pair = pair_of(with(), with()).await;
    check(&pair.here, "a", None, 1).await;
    check(&pair.here, "a", None, 0).await;
    let all = no_slots().others();
    pair.here.cache.lose(&all).await.unwrap();
    under.put_outside("a", "by another home".into());
    pair.here.cache.gain(&all).await.unwrap();
    check(&pair.here, "a", Some("by another home"), 1).await;
}
