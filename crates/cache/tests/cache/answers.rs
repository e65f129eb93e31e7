//! Answers of the under store that come late, in pieces, broken off, or in doubt: what is kept of them, and what
//! clients get.

use std::sync::Arc;

use bytes::Bytes;
use forebay_cache::{CacheTier, Conditions, ErrorKind, GetObject, JobKind, JobRequest, RangeRequest, Result};
use forebay_catalog::records;
use forebay_types::{ETag, Period, WriteMode};
use forebay_ufs::memory::Mood;

use crate::reads::{PAGE, PAGES, remote_object, small_pages};
use crate::support::gate::Way;
use crate::support::jobs::{self, has_ended};
use crate::support::{
    Bench, Setup, collect, create_upload, get_request, if_matches, kind, others_go_on, path, pattern, until,
};

fn reading(bench: &Bench, key: &str, range: Option<RangeRequest>) -> forebay_env::Task<Result<Bytes>> {
    let (cache, request) = (bench.cache.clone(), get_request(key, range));
    forebay_env::spawn(async move { collect(cache.get(request).await?.stream).await })
}

fn first_bytes(length: u64) -> Option<RangeRequest> {
    Some(RangeRequest::From { first: 0, last: Some(length - 1) })
}

/// The write goes to the under store and leaves no record here that would tell.
#[tokio::test]
async fn an_answer_from_before_a_write_is_not_kept() {
    for range in [None, first_bytes(5)] {
        for delete in [false, true] {
            let bench = Bench::new(WriteMode::WriteThrough).await;
            bench.under.put_outside("key", "older".into());
            bench.foreground.set(Way::HoldAnswers);
            let reading = reading(&bench, "key", range);
            until("the answer is on its way", || bench.foreground.waiting() == 1).await;
            if delete {
                bench.delete("key").await.unwrap();
            } else {
                bench.put("key", "newer").await.unwrap();
            }
            bench.foreground.set(Way::Open);
            // It has begun before the write: either is right.
            let _ = reading.join().await;
            let expected = (!delete).then_some("newer".into());
            assert_eq!(bench.get("key").await.ok(), expected, "range: {range:?}, deleted: {delete}");
        }
    }
}

/// Reads after the job are fresh.
#[tokio::test]
async fn an_answer_from_before_a_free_job_is_not_kept() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.put_outside("key", "older".into());
    bench.foreground.set(Way::HoldAnswers);
    let reading = reading(&bench, "key", None);
    until("the answer is on its way", || bench.foreground.waiting() == 1).await;
    bench.under.put_outside("key", "newer".into());
    jobs::run(&bench, jobs::request(JobKind::Free, "/")).await;
    bench.foreground.set(Way::Open);
    assert_eq!(reading.join().await.unwrap(), "older");
    assert_eq!(bench.get("key").await.unwrap(), "newer");
}

/// A job and a reader find the same version at the same time.
#[tokio::test]
async fn a_copy_that_another_has_begun_meanwhile_is_gone_on_with() {
    let bench = small_pages().open().await;
    let body = remote_object(&bench, "key");
    bench.foreground.set(Way::HoldReads);
    let reading = reading(&bench, "key", None);
    until("the reader asks for all", || bench.foreground.waiting() == 1).await;
    let (kind, path) = (JobKind::Load, "/bucket/".to_owned());
    let load = JobRequest { kind, path, rate_limit: None, concurrency: None, dry_run: false };
    let job = bench.cache.create_job(load, "test").await.unwrap().id;
    until("the job asks for pages", || bench.foreground.waiting() > 1).await;
    let key = records::object_key(&crate::support::path("key"));
    let generation = || bench.store.peek(&key).map(|copy| copy.generation());
    let begun = generation();
    assert!(begun.is_some());
    bench.foreground.set(Way::Open);
    assert_eq!(reading.join().await.unwrap(), body);
    bench.advancing("the job ends", || has_ended(&bench, &job)).await;
    assert_eq!(generation(), begun);
    assert_eq!(bench.head("key").await.unwrap().cached_bytes, PAGE * PAGES);
}

/// They have waited for the first answer, and there is nothing to share.
#[tokio::test]
async fn readers_of_what_is_not_there_do_not_queue_for_one_another() {
    for (list_ttl, asking) in [(0, 4), (60, 0)] {
        let list_ttl = Some(Period::from_secs(list_ttl));
        let bench = Setup::new(WriteMode::WriteBack).policy(|rule| rule.list_ttl = list_ttl).open().await;
        bench.under.set_mood(Mood::Hang);
        let readers: Vec<_> = (0..5).map(|_| reading(&bench, "absent", None)).collect();
        until("the first asks", || bench.foreground.gets().len() == 1).await;
        others_go_on().await;
        assert_eq!(bench.foreground.gets().len(), 1, "the others wait for its answer");
        bench.foreground.set(Way::HoldReads);
        bench.under.set_mood(Mood::Well);
        others_go_on().await;
        assert_eq!(bench.foreground.waiting(), asking, "all others at once, unless its answer is theirs");
        bench.foreground.set(Way::Open);
        for reader in readers {
            assert_eq!(kind(reader.join().await), Some(ErrorKind::NotFound));
        }
    }
}

/// Whoever asks for a range learns first what the object is, and its bytes belong to another version each time.
#[tokio::test]
async fn a_read_that_meets_a_change_each_time_asks_to_be_tried_later() {
    let bench = Bench::new(WriteMode::NoCache).await;
    bench.under.put_outside("key", "version 0".into());
    bench.foreground.set(Way::HoldReads);
    let reading = reading(&bench, "key", first_bytes(3));
    for number in 1..=4 {
        let asked = || (bench.foreground.gets().len(), bench.foreground.waiting()) == (number, 1);
        until("the bytes are asked for", asked).await;
        bench.under.put_outside("key", format!("version {number}").into());
        // This request gets through, and the next one waits again.
        bench.under.set_mood(Mood::Hang);
        bench.foreground.set(Way::Open);
        until("it has got through", || bench.foreground.waiting() == 0).await;
        bench.foreground.set(Way::HoldReads);
        bench.under.set_mood(Mood::Well);
    }
    others_go_on().await;
    bench.foreground.set(Way::Open);
    assert_eq!(kind(reading.join().await), Some(ErrorKind::Unavailable));
    assert_eq!(bench.foreground.gets().len(), 4);
}

#[tokio::test]
async fn a_read_that_fails_is_not_tried_again_behind_the_clients_back() {
    let bench = small_pages().open().await;
    remote_object(&bench, "key");
    bench.foreground.set(Way::BreakReads(0));
    assert_eq!(kind(bench.get_range("key", 0, 9).await), Some(ErrorKind::Unavailable));
    assert_eq!(bench.foreground.gets().len(), 1);
}

/// All bytes have come, and what is wrong with them is told behind them: a checksum that does not hold.
#[tokio::test]
async fn a_body_counts_only_when_it_ends_well() {
    for size in [1000, PAGE as usize, 3 * PAGE as usize] {
        for range in [None, first_bytes(1000)] {
            let bench = small_pages().open().await;
            let body = pattern(1, size);
            bench.under.put_outside("key", body.clone());
            bench.foreground.set(Way::BreakReads(size));
            let broken = reading(&bench, "key", range).join().await;
            assert_eq!(kind(broken), Some(ErrorKind::Unavailable), "{size} bytes, {range:?}");
            bench.foreground.set(Way::Open);
            assert_eq!(bench.get("key").await.unwrap(), body, "{size} bytes, {range:?}");
        }
    }
}

#[tokio::test]
async fn a_body_may_come_in_pieces_of_any_size() {
    for length in [1000, PAGE as usize - 1, PAGE as usize + 1, 5 * PAGE as usize / 2] {
        let bench = small_pages().open().await;
        let body = remote_object(&bench, "key");
        bench.foreground.set(Way::CutReads(length));
        assert_eq!(bench.get("key").await.unwrap(), body, "{length} bytes each");
        assert_eq!(bench.foreground.gets().len(), 1);
        let head = bench.head("key").await.unwrap();
        assert_eq!(head.cached_bytes, PAGE * PAGES, "{length} bytes each: all of it was kept");
    }
}

/// The under store compares the checksum of an object only when it is asked for all of it.
#[tokio::test]
async fn an_object_of_one_page_is_always_asked_for_whole() {
    let bench = small_pages().open().await;
    for size in [10, PAGE as usize] {
        bench.under.put_outside("key", pattern(1, size));
        bench.age_metadata();
        bench.get_range("key", 2, 3).await.unwrap();
        assert_eq!(bench.foreground.gets().pop(), Some(("key".to_owned(), None)), "{size} bytes");
    }
    bench.under.put_outside("key", pattern(1, PAGE as usize + 1));
    bench.age_metadata();
    bench.get_range("key", 2, 3).await.unwrap();
    let (_, asked) = bench.foreground.gets().pop().unwrap();
    assert_eq!(asked.map(|range| (range.start, range.end)), Some((0, PAGE)));
}

#[tokio::test]
async fn so_many_pages_are_on_their_way_ahead_of_a_reader_of_all() {
    let bench = small_pages().open().await;
    let body = remote_object(&bench, "key");
    // Known from here on, so that each page is a request of its own.
    bench.get_range("key", 9 * PAGE, 9 * PAGE).await.unwrap();
    bench.foreground.set(Way::HoldReads);
    let reading = reading(&bench, "key", None);
    others_go_on().await;
    assert_eq!(bench.foreground.waiting(), 3, "the one that is wanted, and two ahead");
    bench.foreground.set(Way::Open);
    assert_eq!(reading.join().await.unwrap(), body);
}

#[tokio::test]
async fn a_sequential_reader_is_read_ahead_for_wherever_it_is_and_no_page_twice() {
    let bench = small_pages().open().await;
    let body = remote_object(&bench, "key");
    let fetched = || {
        let gets = bench.foreground.gets().into_iter();
        let mut pages: Vec<_> = gets.map(|(_, range)| range.map_or(0, |range| range.start / PAGE)).collect();
        pages.sort_unstable();
        pages
    };
    let read = async |page: u64| {
        let read = bench.get_range("key", page * PAGE, (page + 1) * PAGE - 1).await.unwrap();
        assert_eq!(read, body.slice((page * PAGE) as usize..((page + 1) * PAGE) as usize));
        others_go_on().await;
    };
    read(2).await;
    assert_eq!(fetched(), [2]);
    read(3).await;
    assert_eq!(fetched(), [2, 3, 4, 5]);
    read(4).await;
    assert_eq!(fetched(), [2, 3, 4, 5, 6]);
    read(14).await;
    read(15).await;
    assert_eq!(fetched(), [2, 3, 4, 5, 6, 14, 15], "nothing lies behind the end");
}

#[tokio::test]
async fn what_is_not_there_is_told_in_the_same_words_however_it_is_asked_for() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let whole = bench.get("absent").await.unwrap_err();
    let range = bench.get_range("absent", 0, 1).await.unwrap_err();
    let head = bench.head("absent").await.unwrap_err();
    for error in [whole, range, head] {
        assert_eq!((error.kind, error.to_string().as_str()), (ErrorKind::NotFound, "bucket/absent does not exist"));
    }
}

#[tokio::test]
async fn a_small_object_is_in_memory_from_its_first_read_on() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.put_outside("key", "value".into());
    assert_eq!(bench.get("key").await.unwrap(), "value");
    assert_eq!(bench.cache.object_detail(&path("key")).await.unwrap().tier, CacheTier::Memory);
    assert_eq!(bench.get("key").await.unwrap(), "value");
    let reads =
        |tier: &str| bench.metric(&format!("forebay_reads_total{{tier=\"{tier}\",bucket=\"bucket\",path=\"/\"}}"));
    assert_eq!((reads("under_store"), reads("memory"), reads("disk")), (1.0, 1.0, 0.0));
}

/// Listings of the under store show its own tags, and those of uploads in parts are others than ours.
#[tokio::test]
async fn a_version_is_known_by_the_under_stores_tag_as_well() {
    let bench = Arc::new(Bench::new(WriteMode::WriteBack).await);
    let create = create_upload(path("key"));
    let upload_id = bench.cache.create_upload(create).await.unwrap();
    let upload = forebay_cache::UploadRef { path: path("key"), upload_id };
    let part = bench.cache.put_part(&upload, 1, crate::support::incoming("value".into())).await.unwrap();
    let parts = vec![forebay_cache::CompletePart { number: 1, etag: part.etag, checksums: Vec::new() }];
    let (checksums, conditions) = (Vec::new(), Conditions::default());
    let complete =
        forebay_cache::CompleteUpload { upload, parts, checksums, checksum_kind: None, size: None, conditions };
    let ours = bench.cache.complete_upload(complete).await.unwrap().etag;
    bench.drain().await;
    let theirs = bench.cache.object_detail(&path("key")).await.unwrap().remote_etag.unwrap();
    let theirs = ETag::new(&theirs);
    assert_ne!(ours, theirs);
    let head = async |conditions| bench.cache.head(GetObject { conditions, ..get_request("key", None) }).await;
    for (tag, failure) in [(ours, None), (theirs, None), (ETag::new("other"), Some(ErrorKind::PreconditionFailed))] {
        assert_eq!(kind(head(if_matches(&tag)).await), failure, "{tag:?}");
        assert_eq!(
            kind(bench.cache.get(GetObject { conditions: if_matches(&tag), ..get_request("key", None) }).await),
            failure,
            "{tag:?}"
        );
    }
}

#[tokio::test]
async fn tags_of_an_object_that_is_known_are_set_without_asking_for_it() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("key", "value").await.unwrap();
    let tags: forebay_types::Tags = [("a".to_owned(), "1".to_owned())].into();
    bench.cache.set_tags(&path("key"), tags.clone()).await.unwrap();
    assert_eq!((bench.cache.tags(&path("key")).await.unwrap(), bench.foreground.heads()), (tags, 0));
}

/// It takes connections and requests, as a server that is stopped does, and no limit of time is over.
#[tokio::test]
async fn readers_of_copies_do_not_wait_for_an_under_store_that_does_not_answer() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    for key in ["one", "two"] {
        bench.put(key, "value").await.unwrap();
    }
    bench.age_metadata();
    bench.under.set_mood(Mood::Hang);
    let heads = bench.foreground.heads();
    let first = reading(&bench, "one", None);
    bench.advancing("the first reader has its copy", || first.is_finished()).await;
    assert_eq!(first.join().await.unwrap(), "value");
    for key in ["one", "two", "two"] {
        let next = reading(&bench, key, None);
        until("the next reader has its copy at once", || next.is_finished()).await;
        assert_eq!(next.join().await.unwrap(), "value");
    }
    until("each is asked for", || bench.foreground.heads() >= heads + 2).await;
    others_go_on().await;
    assert_eq!(bench.foreground.heads(), heads + 2, "once");
    let insists = {
        let (cache, request) = (bench.cache.clone(), GetObject { no_cache: true, ..get_request("one", None) });
        forebay_env::spawn(async move { collect(cache.get(request).await?.stream).await })
    };
    bench.pass_seconds(30).await;
    assert!(!insists.is_finished(), "it wants what the under store has");
    bench.under.put_outside("one", "after".into());
    bench.under.put_outside("two", "after".into());
    bench.under.set_mood(Mood::Well);
    assert_eq!(insists.join().await.unwrap(), "after");
    let is_gone =
        |key| bench.store.peek(&records::object_key(&crate::support::path(key))).is_none_or(|copy| !copy.is_whole());
    until("what was asked for without a reader is here", || is_gone("two")).await;
    assert_eq!(bench.get("two").await.unwrap(), "after");
    // It has answered since, so its answers are waited for again.
    bench.age_metadata();
    bench.under.set_mood(Mood::Hang);
    let waits = reading(&bench, "two", None);
    bench.pass_seconds(1).await;
    assert!(!waits.is_finished());
    bench.advancing("it has waited long enough", || waits.is_finished()).await;
    assert_eq!(waits.join().await.unwrap(), "after");
}
