//! Reads: pages, single flight, read-ahead, damage, and one version per answer.

use std::sync::Arc;

use bytes::Bytes;
use forebay_cache::{Attributes, Conditions, CopyObject, ErrorKind, ObjectBody, PutObject, RangeRequest};
use forebay_catalog::records::object_key;
use forebay_types::{ByteSize, PolicyRule, StorageState, Tags, WriteMode};
use forebay_ufs::memory::Mood;
use futures::StreamExt;

use crate::support::gate::Way;
use crate::support::{Bench, Setup, collect, get_request, incoming, kind, path, pattern, rule, until};

pub(crate) const PAGE: u64 = 64 << 10;
pub(crate) const PAGES: u64 = 16;

/// Small pages, and no memory tier that would hide the disk.
pub(crate) fn small_pages() -> Setup {
    Setup::new(WriteMode::WriteBack).settings(|settings| {
        settings.page_size = ByteSize(PAGE);
        settings.read_ahead_pages = 2;
        settings.memory_object_max = ByteSize(0);
    })
}

/// An object of some pages that only the under store has.
pub(crate) fn remote_object(bench: &Bench, key: &str) -> Bytes {
    let body = pattern(7, (PAGE * PAGES) as usize);
    bench.under.put_outside(key, body.clone());
    body
}

/// The pages that were fetched, in the order of the requests.
fn pages_fetched(bench: &Bench) -> Vec<u64> {
    let start = |range: Option<forebay_types::ByteRange>| range.map_or(0, |range| range.start / PAGE);
    bench.foreground.gets().into_iter().map(|(_, range)| start(range)).collect()
}

#[tokio::test]
async fn a_range_fetches_its_pages_and_no_others() {
    let bench = small_pages().open().await;
    let body = remote_object(&bench, "key");
    let footer = collect(bench.open_get("key", Some(RangeRequest::Suffix { length: 100 })).await.unwrap().stream).await;
    assert_eq!(footer.unwrap(), body.slice(body.len() - 100..));
    assert_eq!(pages_fetched(&bench), [PAGES - 1]);
    let (first, last) = (3 * PAGE - 10, 4 * PAGE + 9);
    assert_eq!(bench.get_range("key", first, last).await.unwrap(), body.slice(first as usize..=last as usize));
    assert_eq!(pages_fetched(&bench), [PAGES - 1, 2, 3, 4]);
    let head = bench.head("key").await.unwrap();
    assert_eq!((head.state, head.cached_bytes), (StorageState::Clean, 4 * PAGE));
    assert_eq!(bench.get("key").await.unwrap(), body);
    assert_eq!(bench.foreground.gets().len() as u64, PAGES, "each page once");
    bench.under.set_mood(Mood::Hang);
    assert_eq!(bench.get("key").await.unwrap(), body, "all of it is here by now");
}

/// A client that is slow holds what it has not taken yet.
#[tokio::test]
async fn a_piece_of_a_page_does_not_hold_the_page() {
    let bench = small_pages().open().await;
    let body = remote_object(&bench, "key");
    let range = RangeRequest::From { first: PAGE + 5, last: Some(PAGE + 1004) };
    let mut answer = bench.open_get("key", Some(range)).await.unwrap().stream;
    let piece = answer.next().await.unwrap().unwrap();
    assert_eq!(piece, body.slice(PAGE as usize + 5..PAGE as usize + 1005));
    assert_eq!(bench.foreground.gets().len(), 1, "it comes from the under store");
    drop(answer);
    let memory = piece.try_into_mut().expect("nobody else has it").capacity();
    assert!(memory < 2000, "{memory} bytes for 1,000");
}

/// As an answer that a proxy has cut short, with a length to match.
#[tokio::test]
async fn a_copy_of_another_size_is_none_whatever_its_tag() {
    let bench = small_pages().open().await;
    let body = pattern(5, 3000);
    bench.under.put_outside("key", body.clone());
    bench.foreground.set(Way::Shorten(1500));
    assert_eq!(bench.get("key").await.unwrap(), body.slice(..1500), "nothing tells yet");
    bench.foreground.set(Way::Open);
    bench.age_metadata();
    assert_eq!(bench.get("key").await.unwrap(), body);
}

/// Head and bytes come with one answer; what is far behind is fetched beside it.
#[tokio::test]
async fn the_first_read_of_a_whole_object_is_one_round_trip() {
    let bench = small_pages().open().await;
    for (number, size) in [0, 1, PAGE as usize, 1 << 20, 4 << 20].into_iter().enumerate() {
        let (key, body) = (format!("key-{size}"), pattern(9, size));
        bench.under.put_outside(&key, body.clone());
        assert_eq!(bench.get(&key).await.unwrap(), body);
        assert_eq!((bench.foreground.heads(), bench.foreground.gets().len()), (0, number + 1), "{size} bytes");
        let head = bench.head(&key).await.unwrap();
        assert_eq!((head.cached_bytes, bench.foreground.heads()), (size as u64, 0), "{size} bytes");
    }
    let (gets, body) = (bench.foreground.gets().len(), pattern(10, 6 << 20));
    bench.under.put_outside("large", body.clone());
    assert_eq!(bench.get("large").await.unwrap(), body);
    let behind = (2 << 20) / PAGE as usize;
    assert_eq!((bench.foreground.heads(), bench.foreground.gets().len()), (0, gets + 1 + behind));
}

#[tokio::test]
async fn a_first_answer_that_breaks_off_leaves_the_object_readable() {
    for memory in [0, 1 << 20] {
        let bench = small_pages().settings(|settings| settings.memory_object_max = ByteSize(memory)).open().await;
        let body = remote_object(&bench, "key");
        bench.foreground.set(Way::BreakReads(PAGE as usize + 100));
        // What has come before may have been sent.
        let broken = match bench.open_get("key", None).await {
            Ok(opened) => collect(opened.stream).await,
            Err(error) => Err(error),
        };
        assert_eq!(kind(broken), Some(ErrorKind::Unavailable));
        bench.foreground.set(Way::Open);
        assert_eq!(bench.get("key").await.unwrap(), body);
        assert_eq!(bench.head("key").await.unwrap().cached_bytes, PAGE * PAGES);
    }
}

/// The answer may be older than the write.
#[tokio::test]
async fn a_first_read_that_a_write_overtakes_is_not_kept() {
    let bench = Arc::new(small_pages().open().await);
    remote_object(&bench, "key");
    bench.foreground.set(Way::HoldReads);
    let reader = {
        let bench = Arc::clone(&bench);
        forebay_env::spawn(async move { bench.get("key").await })
    };
    until("a fetch is under way", || bench.foreground.waiting() == 1).await;
    bench.put("key", "newer").await.unwrap();
    bench.drain().await;
    bench.foreground.set(Way::Open);
    reader.join().await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), "newer");
}

#[tokio::test]
async fn one_fetch_serves_all_who_ask_for_a_page() {
    let bench = Arc::new(small_pages().open().await);
    let body = remote_object(&bench, "key");
    bench.foreground.set(Way::HoldReads);
    let readers: Vec<_> = (0..50)
        .map(|n| {
            let bench = Arc::clone(&bench);
            forebay_env::spawn(async move { bench.get_range("key", n, PAGE - 1).await })
        })
        .collect();
    until("a fetch is under way", || bench.foreground.waiting() == 1).await;
    bench.foreground.set(Way::Open);
    for (n, reader) in readers.into_iter().enumerate() {
        assert_eq!(reader.join().await.unwrap(), body.slice(n..PAGE as usize));
    }
    assert_eq!(pages_fetched(&bench), [0]);
}

#[tokio::test]
async fn the_first_readers_of_an_object_share_one_request() {
    let bench = Arc::new(small_pages().open().await);
    let read = |key: &'static str| {
        let bench = Arc::clone(&bench);
        forebay_env::spawn(async move { bench.get(key).await })
    };
    for (number, (key, size)) in [("small", 1000), ("large", (PAGE * PAGES) as usize)].into_iter().enumerate() {
        let body = pattern(7, size);
        bench.under.put_outside(key, body.clone());
        bench.foreground.set(Way::HoldReads);
        let first = read(key);
        until("a request is under way", || bench.foreground.gets().len() == 2 * number + 1).await;
        let readers: Vec<_> = (0..50).map(|_| read(key)).collect();
        // Behind all of them, since there is one thread.
        forebay_env::spawn(async {}).join().await;
        assert_eq!(bench.foreground.gets().len(), 2 * number + 1);
        // Whoever made it goes away; the next in line makes another.
        first.abort();
        until("another request is under way", || bench.foreground.gets().len() == 2 * number + 2).await;
        bench.foreground.set(Way::Open);
        for reader in readers {
            assert_eq!(reader.join().await.unwrap(), body);
        }
        assert_eq!((bench.foreground.gets().len(), bench.foreground.heads()), (2 * number + 2, 0), "{key}");
    }
    bench.foreground.set(Way::HoldReads);
    let readers = [read("absent"), read("absent"), read("absent")];
    until("a request is under way", || bench.foreground.gets().len() == 5).await;
    bench.foreground.set(Way::Open);
    for reader in readers {
        assert_eq!(kind(reader.join().await), Some(ErrorKind::NotFound));
    }
}

#[tokio::test]
async fn a_reader_that_goes_on_where_it_stopped_finds_the_next_pages() {
    let bench = small_pages().open().await;
    let body = remote_object(&bench, "key");
    bench.get_range("key", 0, PAGE - 1).await.unwrap();
    assert_eq!(pages_fetched(&bench), [0], "one range tells nothing of the next");
    bench.get_range("key", PAGE, 2 * PAGE - 1).await.unwrap();
    until("two pages more", || pages_fetched(&bench).len() == 4).await;
    let mut pages = pages_fetched(&bench);
    pages.sort_unstable();
    assert_eq!(pages, [0, 1, 2, 3]);
    assert_eq!(bench.get("key").await.unwrap(), body);
}

#[tokio::test]
async fn what_cannot_be_kept_is_served_all_the_same() {
    let bench = small_pages().open().await;
    let body = remote_object(&bench, "key");
    bench.disk.fail_writes(Some(std::io::ErrorKind::StorageFull));
    assert_eq!(bench.get("key").await.unwrap(), body);
    assert_eq!(bench.get_range("key", 10, 19).await.unwrap(), body.slice(10..20));
    bench.disk.fail_writes(None);
    assert_eq!(bench.get("key").await.unwrap(), body);
}

/// Clean: fetched again.
#[tokio::test]
async fn a_damaged_clean_copy_is_fetched_again() {
    let mut bench = small_pages().open().await;
    let small = pattern(1, 1000);
    let large = pattern(2, (PAGE * 8) as usize);
    bench.put("small", small.clone()).await.unwrap();
    bench.put("large", large.clone()).await.unwrap();
    bench.drain().await;
    for (key, body, place) in [("small", &small, 500..532), ("large", &large, 200_000..200_032)] {
        assert!(bench.damage(&body[place]).await > 0);
        assert_eq!(bench.get(key).await.unwrap(), *body, "{key}");
        bench.restart().await;
        assert_eq!(bench.get(key).await.unwrap(), *body, "{key}");
    }
}

/// Dirty: an error, never 404, never the older version, never uploaded.
#[tokio::test]
async fn a_damaged_dirty_object_is_neither_served_nor_uploaded() {
    for size in [1000, (PAGE * 8) as usize] {
        let mut bench = small_pages().open().await;
        bench.put("key", "older").await.unwrap();
        bench.drain().await;
        bench.background.set(Way::Closed);
        let body = pattern(3, size);
        bench.put("key", body.clone()).await.unwrap();
        assert!(bench.damage(&body[600..632]).await > 0);
        bench.background.set(Way::Open);
        for _ in 0..2 {
            assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::Corrupt), "{size} bytes");
            let read = bench.get("key").await;
            assert_eq!(kind(read), Some(ErrorKind::Corrupt), "{size} bytes");
            assert_eq!(bench.under("key").unwrap(), "older", "{size} bytes");
            assert_eq!(bench.keys().await, ["key"]);
            bench.restart().await;
            bench.settle().await;
        }
        bench.put("key", "newer").await.unwrap();
        bench.drain().await;
        assert_eq!((bench.get("key").await.unwrap(), bench.under("key").unwrap()), ("newer".into(), "newer".into()));
    }
}

/// No clean end of a body that is not whole.
#[tokio::test]
async fn a_read_that_fails_in_the_middle_ends_with_an_error() {
    for mode in [WriteMode::WriteBack, WriteMode::NoCache] {
        let mut setup = small_pages();
        setup.policies = vec![crate::support::rule("/", mode)];
        let bench = setup.open().await;
        let body = remote_object(&bench, "key");
        bench.get_range("key", 0, PAGE - 1).await.unwrap();
        bench.foreground.set(Way::BreakReads(100));
        let mut stream = bench.open_get("key", None).await.expect("the first bytes are there").stream;
        let mut got = Vec::new();
        let error = loop {
            match stream.next().await {
                Some(Ok(data)) => got.extend_from_slice(&data),
                Some(Err(error)) => break error,
                None => panic!("{mode:?}: a clean end after {} of {} bytes", got.len(), body.len()),
            }
        };
        assert_eq!(error.kind, ErrorKind::Unavailable, "{mode:?}");
        assert!(got.len() < body.len() && body.starts_with(&got), "{mode:?}");
    }
}

/// One answer, one version.
#[tokio::test]
async fn a_reader_gets_one_version_whole_whatever_happens_to_the_key() {
    for clean in [false, true] {
        for overwrite in [false, true] {
            let bench = small_pages().open().await;
            let old = pattern(5, (PAGE * PAGES) as usize);
            bench.put("key", old.clone()).await.unwrap();
            if clean {
                bench.drain().await;
            } else {
                bench.background.set(Way::Closed);
            }
            let mut stream = bench.open_get("key", None).await.unwrap().stream;
            let first = stream.next().await.unwrap().unwrap();
            if overwrite {
                bench.put("key", pattern(6, old.len())).await.unwrap();
            } else {
                bench.delete("key").await.unwrap();
            }
            let rest = collect(stream).await.unwrap();
            assert_eq!([first, rest].concat(), old, "clean: {clean}, overwritten: {overwrite}");
        }
    }
}

#[tokio::test]
async fn an_object_that_changes_behind_while_it_is_read_is_not_mixed() {
    let bench = small_pages().open().await;
    let old = remote_object(&bench, "key");
    // Known from here on, so that each page is a request of its own.
    bench.get_range("key", 0, PAGE - 1).await.unwrap();
    let mut stream = bench.open_get("key", None).await.unwrap().stream;
    let mut got = stream.next().await.unwrap().unwrap().to_vec();
    bench.under.put_outside("key", pattern(8, old.len()));
    let ended = loop {
        match stream.next().await {
            Some(Ok(data)) => got.extend_from_slice(&data),
            Some(Err(error)) => break Some(error.kind),
            None => break None,
        }
    };
    assert_eq!(ended, Some(ErrorKind::PreconditionFailed));
    assert!(old.starts_with(&got));
    assert_eq!(bench.get("key").await.unwrap(), pattern(8, old.len()), "the next reader sees the new one");
}

pub(crate) fn copy() -> CopyObject {
    CopyObject {
        source: path("source"),
        source_conditions: Conditions::default(),
        target: path("target"),
        replace_metadata: None,
        storage_class: None,
        website_redirect_location: None,
        replace_tags: None,
        checksum_algorithm: None,
        conditions: Conditions::default(),
    }
}

fn version_tags(value: &str) -> Tags {
    Tags::from([("version".to_owned(), value.to_owned())])
}

/// Writes the source of [`copy`], until the under store has it. With its tags: those that are set by themselves drop
/// the copy that is here.
async fn put_source(bench: &Bench, body: &'static str, tags: &str) {
    let attributes = Attributes { tags: version_tags(tags), ..Attributes::default() };
    let (path, conditions) = (path("source"), Conditions::default());
    bench.cache.put(PutObject { path, body: incoming(body.into()), attributes, conditions }).await.expect("a write");
    bench.drain().await;
}

/// Its tags are asked for when its bytes are open already.
#[tokio::test]
async fn a_copy_has_content_and_tags_of_one_version() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    put_source(&bench, "one", "one").await;
    bench.foreground.set(Way::HoldReads);
    let (cache, request) = (bench.cache.clone(), copy());
    let copying = forebay_env::spawn(async move { cache.copy(request).await });
    until("the tags are asked for", || bench.foreground.waiting() > 0).await;
    assert!(bench.foreground.gets().is_empty(), "its bytes are here");
    put_source(&bench, "two", "two").await;
    bench.foreground.set(Way::Open);
    copying.join().await.unwrap();
    assert_eq!(bench.get("target").await.unwrap(), "two");
    assert_eq!(bench.cache.tags(&path("target")).await.unwrap(), version_tags("two"));
}

/// The version whose bytes are open is written twice, with another between them whose tags are told; a clock that was
/// set back gives all of them the same time.
#[tokio::test]
async fn a_copy_has_tags_of_its_version_where_another_of_the_same_content_and_time_follows() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    put_source(&bench, "before", "before").await;
    bench.clock.set_unix_ms(1);
    put_source(&bench, "same", "one").await;
    bench.foreground.set(Way::HoldReads);
    let (cache, request) = (bench.cache.clone(), copy());
    let copying = forebay_env::spawn(async move { cache.copy(request).await });
    until("the tags are asked for", || bench.foreground.waiting() > 0).await;
    put_source(&bench, "between", "two").await;
    let (told, time) = (bench.under.requests(), bench.head("source").await.unwrap().info.last_modified_ms);
    bench.foreground.set(Way::HoldAnswers);
    until("the tags are told", || bench.under.requests() > told && bench.foreground.waiting() > 0).await;
    put_source(&bench, "same", "three").await;
    assert_eq!(bench.head("source").await.unwrap().info.last_modified_ms, time, "the same time");
    bench.foreground.set(Way::Open);
    copying.join().await.unwrap();
    assert_eq!(bench.get("target").await.unwrap(), "same");
    assert_eq!(bench.cache.tags(&path("target")).await.unwrap(), version_tags("three"));
}

/// Readers that take nothing hold what they were given, also when the memory tier has forgotten it.
#[tokio::test]
async fn objects_in_memory_are_not_held_whole_for_all_who_do_not_take_them() {
    const MIB: usize = 1 << 20;
    let bench = Bench::new(WriteMode::WriteBack).await;
    let body = pattern(1, MIB);
    bench.put("key", body.clone()).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..300 {
        let mut stream = bench.open_get("key", None).await.unwrap().stream;
        let first = stream.next().await.unwrap().unwrap();
        waiting.push((first, stream));
    }
    let held: usize = waiting.iter().map(|(first, _)| first.len()).sum();
    assert!(held <= 256 * MIB + 300 * MIB / 8, "{held}");
    let (first, rest) = waiting.pop().unwrap();
    assert_eq!([first, collect(rest).await.unwrap()].concat(), body, "whoever takes it gets it");
    drop(waiting);
    let mut stream = bench.open_get("key", None).await.unwrap().stream;
    assert_eq!(stream.next().await.unwrap().unwrap().len(), MIB, "there is room again");
}

/// Answers that nobody takes, and that leave no memory for other answers.
async fn answers_that_hold_all_memory(bench: &Bench) -> Vec<ObjectBody> {
    bench.put("held", pattern(1, 1 << 20)).await.expect("a write");
    let mut answers = Vec::new();
    for _ in 0..256 {
        answers.push(bench.open_get("held", None).await.expect("an answer"));
    }
    answers
}

/// Where pages are larger than the pieces that an answer may then hold.
async fn partial_copy(bench: &Bench) -> Bytes {
    let body = pattern(7, 10 << 20);
    bench.under.put_outside("key", body.clone());
    bench.get_range("key", 0, 9).await.expect("the first bytes");
    body
}

#[tokio::test]
async fn what_a_copy_lacks_and_may_not_keep_is_asked_for_once() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let body = partial_copy(&bench).await;
    let _held = answers_that_hold_all_memory(&bench).await;
    let rules = vec![PolicyRule { cache_reads: Some(false), ..rule("/", WriteMode::WriteBack) }];
    let (_, version) = bench.cache.policies();
    bench.cache.set_policies(rules, Some(version), "test", "edit").await.unwrap();
    let asked = bench.foreground.gets().len();
    assert_eq!(bench.get("key").await.unwrap(), body);
    assert_eq!(bench.foreground.gets().len(), asked + 1);
}

/// The copy leaves the cache while it is read.
#[tokio::test]
async fn pages_that_cannot_be_kept_are_not_fetched_for_each_piece() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let body = partial_copy(&bench).await;
    let _held = answers_that_hold_all_memory(&bench).await;
    let asked = bench.foreground.gets().len();
    let answer = bench.open_get("key", None).await.unwrap().stream;
    let key = object_key(&path("key"));
    let generation = bench.store.peek(&key).unwrap().generation();
    assert!(bench.store.evict(&key, generation));
    assert_eq!(collect(answer).await.unwrap(), body);
    let size = body.len() as u64;
    let gets = bench.foreground.gets().into_iter().skip(asked);
    let fetched: u64 = gets.map(|(_, range)| range.map_or(size, |range| range.len())).sum();
    assert!(fetched < 2 * size, "{fetched} bytes of {size}");
}

/// The client has named no condition: "precondition failed" would tell it not to try again.
#[tokio::test]
async fn a_copy_whose_source_changes_can_be_tried_again() {
    let bench = small_pages().open().await;
    let old = remote_object(&bench, "source");
    bench.get_range("source", 0, PAGE - 1).await.unwrap();
    bench.foreground.set(Way::HoldReads);
    // With tags of its own, it does not ask about the source before.
    let (cache, request) = (bench.cache.clone(), CopyObject { replace_tags: Some(Tags::default()), ..copy() });
    let copying = forebay_env::spawn(async move { cache.copy(request).await });
    until("the next pages are asked for", || bench.foreground.waiting() > 0).await;
    let new = pattern(8, old.len());
    bench.under.put_outside("source", new.clone());
    bench.foreground.set(Way::Open);
    assert_eq!(kind(copying.join().await), Some(ErrorKind::Unavailable));
    assert_eq!(kind(bench.get("target").await), Some(ErrorKind::NotFound), "nothing half copied");
    bench.cache.copy(copy()).await.unwrap();
    assert_eq!(bench.get("target").await.unwrap(), new);
}

#[tokio::test]
async fn reads_are_not_kept_where_the_policy_says_so() {
    let bench = small_pages().policy(|rule| rule.cache_reads = Some(false)).open().await;
    let body = remote_object(&bench, "key");
    for n in 1..=2 {
        assert_eq!(bench.get("key").await.unwrap(), body);
        assert_eq!(bench.foreground.gets().len(), n);
        assert_eq!(bench.head("key").await.unwrap().cached_bytes, 0);
    }
}

/// What is here alone is the key's last version, whatever the under store has got from others since it was asked.
#[tokio::test]
async fn a_late_answer_of_the_under_store_gives_way_to_what_is_here_by_then() {
    for exists in [true, false] {
        let bench = Bench::new(WriteMode::Transient).await;
        bench.foreground.set(Way::HoldReads);
        let cache = bench.cache.clone();
        let getting = forebay_env::spawn(async move { cache.get(get_request("key", None)).await });
        let cache = bench.cache.clone();
        let asking = forebay_env::spawn(async move { cache.tags(&path("key")).await });
        until("both are asked", || bench.foreground.waiting() == 2).await;
        let attributes = Attributes { tags: [("here".into(), "1".into())].into(), ..Attributes::default() };
        let body = incoming("here".into());
        let put = PutObject { path: path("key"), body, attributes, conditions: Conditions::default() };
        bench.cache.put(put).await.unwrap();
        if exists {
            bench.under.put_outside("key", "there".into());
        }
        bench.foreground.set(Way::Open);
        let body = getting.join().await.unwrap();
        assert_eq!(collect(body.stream).await.unwrap(), "here");
        assert_eq!(asking.join().await.unwrap().len(), 1);
    }
}
