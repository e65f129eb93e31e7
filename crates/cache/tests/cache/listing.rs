//! Listings: what the under store has, with what it does not have yet laid over it, page by page without gap or double.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use forebay_cache::{ErrorKind, ListObjects, ObjectPage};
use forebay_types::{BucketName, ETag, WriteMode};
use forebay_ufs::memory::Mood;
use proptest::prelude::*;

use crate::faults::SETTLED;
use crate::multipart::{PART, complete, create, put_part, small_parts};
use crate::support::gate::Way;
use crate::support::{BUCKET, Bench, others_go_on, path, rule, until};

/// What happens to a key: at first in the under store, then here while nothing gets through to it.
#[derive(Debug, Clone)]
enum Step {
    Outside(String),
    Put(String),
    Delete(String),
}

/// Few names, so that they meet: prefixes of each other, the delimiter alone, twice, and last, and bytes above ASCII.
fn key() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec!["a", "b", "ab", "/", "//", "a/", "b/a", "z", "é", "\u{10FFFF}", " ", "+"]);
    prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![key().prop_map(Step::Outside), key().prop_map(Step::Put), key().prop_map(Step::Delete)]
}

#[derive(Debug, Clone)]
struct Query {
    prefix: String,
    delimiter: Option<String>,
    start_after: Option<String>,
    limit: usize,
}

fn query() -> impl Strategy<Value = Query> {
    let prefix = prop::sample::select(vec!["", "", "", "a", "a/", "b/", "/", "z"]);
    let delimiter = prop::sample::select(vec![None, Some("/"), Some("/"), Some("a"), Some("//")]);
    (prefix, delimiter, prop::option::weighted(0.4, key()), 1..6_usize).prop_map(|(prefix, delimiter, start, limit)| {
        Query { prefix: prefix.to_owned(), delimiter: delimiter.map(str::to_owned), start_after: start, limit }
    })
}

/// What S3 says: names behind `start_after`, each common prefix once, in byte order. A common prefix is behind
/// `start_after` when the prefix itself is.
fn expected(keys: &BTreeMap<String, Bytes>, query: &Query) -> Vec<String> {
    let mut names = BTreeSet::new();
    for key in keys.keys().filter(|key| key.starts_with(&query.prefix)) {
        let rest = &key[query.prefix.len()..];
        let group = query.delimiter.as_deref().and_then(|d| rest.find(d).map(|at| query.prefix.len() + at + d.len()));
        let name = &key[..group.unwrap_or(key.len())];
        // Keys behind `start_after` make their common prefix appear, unless `start_after` is that prefix.
        let is_behind = query.start_after.as_ref().is_none_or(|after| key > after && name != after);
        if is_behind {
            names.insert(name.to_owned());
        }
    }
    names.into_iter().collect()
}

async fn pages(bench: &Bench, query: &Query) -> Vec<ObjectPage> {
    let bucket = BucketName::new(BUCKET).expect("a bucket");
    let mut pages = Vec::new();
    let mut start_after = query.start_after.clone();
    loop {
        let request = ListObjects {
            prefix: query.prefix.clone(),
            delimiter: query.delimiter.clone(),
            start_after,
            limit: query.limit,
            revalidates: false,
        };
        let page = bench.cache.list(&bucket, &request).await.expect("a page");
        start_after = page.next.clone();
        pages.push(page);
        if start_after.is_none() {
            return pages;
        }
    }
}

async fn check(bench: &Bench, keys: &BTreeMap<String, Bytes>, query: &Query) {
    let mut found = Vec::new();
    let pages = pages(bench, query).await;
    for (index, page) in pages.iter().enumerate() {
        let objects = page.objects.iter().map(|object| &object.key);
        let mut names: Vec<_> = objects.chain(&page.prefixes).cloned().collect();
        names.sort();
        if index + 1 < pages.len() {
            assert_eq!(names.len(), query.limit, "{query:?}: only the last page may be short");
        }
        found.extend(names);
        for object in &page.objects {
            assert_eq!(object.size, keys[&object.key].len() as u64, "{query:?} {}", object.key);
        }
    }
    assert_eq!(found, expected(keys, query), "{query:?}");
}

async fn run(steps: Vec<Step>, mut queries: Vec<Query>, keeps_listings: bool) {
    let bench = Bench::new(WriteMode::WriteBack).await;
    if keeps_listings {
        bench.under.keep_listings();
        // It can't begin behind all names.
        queries.iter_mut().for_each(|query| query.start_after = None);
    }
    let mut keys = BTreeMap::new();
    for step in &steps {
        if let Step::Outside(key) = step {
            bench.under.put_outside(key, "from outside".into());
            keys.insert(key.clone(), Bytes::from("from outside"));
        }
    }
    // What follows is laid over pages that are kept, and those are used where they can be.
    for query in &queries {
        check(&bench, &keys, query).await;
    }
    bench.background.set(Way::Closed);
    for (n, step) in steps.into_iter().enumerate() {
        match step {
            Step::Outside(_) => {}
            Step::Put(key) => {
                let body = Bytes::from(vec![b'x'; n]);
                bench.put(&key, body.clone()).await.expect("put");
                keys.insert(key, body);
            }
            Step::Delete(key) => {
                bench.delete(&key).await.expect("delete");
                keys.remove(&key);
            }
        }
    }
    for query in &queries {
        check(&bench, &keys, query).await;
    }
    bench.background.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.under.contents(), keys);
    for query in &queries {
        check(&bench, &keys, query).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_listing_is_that_of_one_sorted_map(
        steps in prop::collection::vec(step(), 0..40),
        queries in prop::collection::vec(query(), 1..12),
        keeps_listings: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(steps, queries, keeps_listings));
    }
}

/// More names than one page of the under store, or one stretch of the catalog, holds.
#[tokio::test]
async fn pages_join_where_the_under_store_and_the_catalog_are_cut() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let mut keys = BTreeMap::new();
    for n in 0..2_500 {
        let key = format!("{}/{n:05}", n % 3);
        bench.under.put_outside(&key, "out".into());
        keys.insert(key, Bytes::from("out"));
    }
    bench.background.set(Way::Closed);
    for n in 0..2_500 {
        let key = format!("{}/{:05}", n % 4, n * 2);
        if n % 5 == 0 {
            bench.delete(&key).await.unwrap();
            keys.remove(&key);
        } else {
            bench.put(&key, "here").await.unwrap();
            keys.insert(key, Bytes::from("here"));
        }
    }
    for (prefix, delimiter, limit) in
        [("", None, 1000), ("", None, 7), ("1/", None, 999), ("", Some("/"), 1), ("2/", Some("/"), 500)]
    {
        let (prefix, delimiter) = (prefix.to_owned(), delimiter.map(str::to_owned));
        check(&bench, &keys, &Query { prefix, delimiter, start_after: None, limit }).await;
    }
}

/// Where deletes leave less than a page of what the under store and the catalog show at once, whichever of them reaches
/// further.
#[tokio::test]
async fn thousands_of_deletes_hide_what_they_deleted_and_nothing_else() {
    for is_remote_denser in [false, true] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        let mut keys = BTreeMap::new();
        let key = |n: u32| format!("{n:05}");
        for n in (0..3_000).filter(|n| is_remote_denser || n % 2 == 1) {
            bench.under.put_outside(&key(n), "out".into());
            keys.insert(key(n), Bytes::from("out"));
        }
        bench.background.set(Way::Closed);
        for n in (0..2_900).filter(|n| !is_remote_denser || n % 2 == 1) {
            bench.delete(&key(n)).await.unwrap();
            keys.remove(&key(n));
        }
        for limit in [1000, 10] {
            check(&bench, &keys, &Query { prefix: String::new(), delimiter: None, start_after: None, limit }).await;
        }
    }
}

/// Whether the under store has them or not, and also where what comes first below a prefix is deleted.
#[tokio::test]
async fn a_page_of_prefixes_takes_one_request_however_much_is_below_them() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let mut keys = BTreeMap::new();
    bench.background.set(Way::Closed);
    for n in 0..3_000 {
        let key = format!("{}/{n:05}", n % 30);
        if n < 300 && n % 2 == 0 {
            bench.under.put_outside(&key, "out".into());
        }
        if n < 300 {
            bench.delete(&key).await.expect("delete");
        } else {
            bench.put(&key, "here").await.expect("put");
            keys.insert(key, Bytes::from("here"));
        }
    }
    let before = bench.foreground.lists();
    let query = Query { prefix: String::new(), delimiter: Some("/".into()), start_after: None, limit: 1000 };
    check(&bench, &keys, &query).await;
    assert_eq!(bench.foreground.lists() - before, 1);
}

/// An object that goes from the catalog to the under store while it is listed is in every listing, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_disappears_on_its_way_to_the_under_store() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    for round in 0..20 {
        let names: Vec<_> = (0..40).map(|n| format!("{round:02}/{n:02}")).collect();
        for name in &names {
            bench.put(name, "value").await.unwrap();
        }
        let query = Query { prefix: format!("{round:02}/"), delimiter: None, start_after: None, limit: 7 };
        while !bench.is_drained() {
            let found: Vec<_> = pages(&bench, &query).await.into_iter().flat_map(|page| page.objects).collect();
            assert_eq!(found.into_iter().map(|object| object.key).collect::<Vec<_>>(), names);
        }
    }
}

/// As MinIO lists: a page that is to begin behind a name leaves out others.
#[tokio::test]
async fn later_pages_go_on_where_the_under_store_itself_says() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.keep_listings();
    let mut keys = BTreeMap::new();
    for n in 0..1_200 {
        for directory in ["logs-2024", "logs.d", "logs"] {
            let key = format!("{directory}/{n:05}");
            bench.under.put_outside(&key, "out".into());
            keys.insert(key, Bytes::from("out"));
        }
    }
    for (prefix, delimiter, limit) in [("", None, 1000), ("", None, 100), ("logs", None, 700), ("", Some("/"), 1)] {
        let (prefix, delimiter) = (prefix.to_owned(), delimiter.map(str::to_owned));
        check(&bench, &keys, &Query { prefix, delimiter, start_after: None, limit }).await;
    }
}

/// What an under store shows on a later page may be as old as the first one.
#[tokio::test]
async fn later_pages_show_what_reached_the_under_store_since_the_first() {
    for delimiter in [None, Some("/")] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        bench.under.keep_listings();
        let mut keys = BTreeMap::new();
        for n in 0..10 {
            bench.under.put_outside(&format!("{n}/out"), "out".into());
            keys.insert(format!("{n}/out"), Bytes::from("out"));
        }
        bench.background.set(Way::Closed);
        bench.put("6/new", "written here").await.unwrap();
        bench.put("9", "written here").await.unwrap();
        bench.put("5/out", "written anew").await.unwrap();
        bench.delete("7/out").await.unwrap();
        bench.delete("8/out").await.unwrap();
        keys.insert("6/new".to_owned(), Bytes::from("written here"));
        keys.insert("9".to_owned(), Bytes::from("written here"));
        keys.insert("5/out".to_owned(), Bytes::from("written anew"));
        keys.remove("7/out");
        keys.remove("8/out");
        let bucket = BucketName::new(BUCKET).expect("a bucket");
        let delimiter = delimiter.map(str::to_owned);
        let first = ListObjects { delimiter: delimiter.clone(), limit: 2, ..ListObjects::default() };
        let page = bench.cache.list(&bucket, &first).await.unwrap();
        assert_eq!(page.objects.len() + page.prefixes.len(), 2);
        bench.background.set(Way::Open);
        bench.drain().await;
        // And past the catalog.
        let rule = |mode| vec![rule("/", mode)];
        bench.cache.set_policies(rule(WriteMode::WriteThrough), None, "test", "edit").await.unwrap();
        bench.delete("4/out").await.unwrap();
        keys.remove("4/out");
        bench.put("2", "written through").await.unwrap();
        keys.insert("2".to_owned(), Bytes::from("written through"));
        let before = bench.foreground.lists();
        check(&bench, &keys, &Query { prefix: String::new(), delimiter, start_after: page.next, limit: 2 }).await;
        assert!(bench.foreground.lists() - before < 12, "not each name by itself");
    }
}

/// More deletes in a common prefix than one stretch of the catalog holds, and a listing that begins among them or sees
/// them first.
#[tokio::test]
async fn a_common_prefix_of_which_much_is_deleted_is_shown_once_or_not_at_all() {
    for keeps_listings in [false, true] {
        for (is_left, is_there) in [(false, true), (true, true), (true, false)] {
            let bench = Bench::new(WriteMode::WriteBack).await;
            if keeps_listings {
                bench.under.keep_listings();
            }
            bench.background.set(Way::Closed);
            let mut keys = BTreeMap::new();
            for n in 0..2_500 {
                let key = format!("dir/{n:05}");
                if is_there {
                    bench.under.put_outside(&key, "out".into());
                } else {
                    bench.put(&key, "here").await.unwrap();
                }
                bench.delete(&key).await.unwrap();
            }
            let others = ["a", "dir", "dir0", "z"].map(str::to_owned);
            for key in others.into_iter().chain(is_left.then(|| "dir/left".to_owned())) {
                bench.put(&key, "here").await.unwrap();
                keys.insert(key, Bytes::from("here"));
            }
            for limit in [1, 2, 1000] {
                for start_after in [None, Some("dir/"), Some("dir/00000"), Some("dir/01200x")] {
                    let (delimiter, start_after) = (Some("/".to_owned()), start_after.map(str::to_owned));
                    let query = Query { prefix: String::new(), delimiter, start_after, limit };
                    check(&bench, &keys, &query).await;
                }
            }
        }
    }
}

/// A request passed through between two pages, and what it did is not known here.
#[tokio::test]
async fn later_pages_ask_for_what_a_request_that_passed_through_has_changed() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.keep_listings();
    for n in 0..6 {
        bench.under.put_outside(&format!("{n}"), "out".into());
    }
    let bucket = BucketName::new(BUCKET).expect("a bucket");
    let mut request = ListObjects { limit: 2, ..ListObjects::default() };
    request.start_after = bench.cache.list(&bucket, &request).await.unwrap().next;
    bench.put("7", "written here").await.unwrap();
    bench.drain().await;
    for (key, is_deleted) in [("3", true), ("4", false), ("7", false)] {
        let change = bench.cache.begin_passing_change(&path(key)).await.unwrap().expect("the object is clean");
        if is_deleted {
            bench.under.delete_outside(key);
        }
        change.end().await;
    }
    let mut keys: Vec<String> = Vec::new();
    while request.start_after.is_some() {
        let page = bench.cache.list(&bucket, &request).await.unwrap();
        keys.extend(page.objects.into_iter().map(|object| object.key));
        request.start_after = page.next;
    }
    assert_eq!(keys, ["2", "4", "5", "7"]);
}

/// One after the other would take a client's patience.
#[tokio::test]
async fn later_pages_ask_for_many_keys_at_once() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.keep_listings();
    for n in 0..100 {
        bench.under.put_outside(&format!("{n:02}"), "out".into());
    }
    let bucket = BucketName::new(BUCKET).expect("a bucket");
    let first = ListObjects { limit: 20, ..ListObjects::default() };
    let start_after = bench.cache.list(&bucket, &first).await.unwrap().next;
    for n in 20..80 {
        let key = format!("{n:02}");
        let change = bench.cache.begin_passing_change(&path(&key)).await.unwrap().expect("the object is clean");
        bench.under.delete_outside(&key);
        change.end().await;
    }
    let rest = ListObjects { start_after, limit: 1000, ..ListObjects::default() };
    bench.foreground.set(Way::HoldAnswers);
    let asked = async {
        until("many are asked for", || bench.foreground.waiting() == 16).await;
        bench.foreground.set(Way::Open);
    };
    let (page, ()) = futures::join!(bench.cache.list(&bucket, &rest), asked);
    let keys: Vec<_> = page.unwrap().objects.into_iter().map(|object| object.key).collect();
    assert_eq!(keys, (80..100).map(|n| n.to_string()).collect::<Vec<_>>());
}

/// A client that waits longer gives up, and begins from the start.
#[tokio::test]
async fn a_page_ends_in_time_although_all_its_names_are_deleted() {
    for (delimiter, keeps_listings) in [(None, false), (None, true), (Some("/"), false), (Some("/"), true)] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        if keeps_listings {
            bench.under.keep_listings();
        }
        bench.background.set(Way::Closed);
        for n in 0..1_500 {
            bench.under.put_outside(&format!("dir/{n:05}"), "out".into());
            bench.delete(&format!("dir/{n:05}")).await.unwrap();
        }
        bench.put("dir/left", "here").await.unwrap();
        let bucket = BucketName::new(BUCKET).expect("a bucket");
        let delimiter = delimiter.map(str::to_owned);
        let mut request = ListObjects { prefix: "dir/".to_owned(), delimiter, limit: 2, ..ListObjects::default() };
        bench.foreground.set(Way::DelayLists);
        let slow = async {
            until("the page is requested", || bench.foreground.waiting() == 1).await;
            bench.clock.advance(Duration::from_secs(11));
            bench.foreground.set(Way::Open);
        };
        let (page, ()) = futures::join!(bench.cache.list(&bucket, &request), slow);
        let page = page.unwrap();
        assert!(page.objects.is_empty() && page.prefixes.is_empty() && page.next.is_some(), "{page:?}");
        request.start_after = page.next;
        let page = bench.cache.list(&bucket, &request).await.unwrap();
        let keys: Vec<_> = page.objects.iter().map(|object| object.key.as_str()).collect();
        assert_eq!((keys, page.next), (vec!["dir/left"], None));
    }
}

/// Thirty objects of others, of which a first page has shown twelve, and one that landed since.
async fn check_later_pages(bench: &Bench, mut request: ListObjects) {
    let bucket = BucketName::new(BUCKET).expect("a bucket");
    let mut keys: Vec<String> = Vec::new();
    while request.start_after.is_some() {
        let page = bench.cache.list(&bucket, &request).await.expect("a page");
        keys.extend(page.objects.into_iter().map(|object| object.key));
        request.start_after = page.next;
    }
    let mut expected: Vec<_> = (12..30).map(|n| n.to_string()).collect();
    expected.insert(4, "15/late".to_owned());
    assert_eq!(keys, expected);
}

/// A write without an answer may have landed at any time since the first page.
#[tokio::test]
async fn later_pages_ask_for_what_may_have_landed_late() {
    for is_settled in [false, true] {
        let bench = Bench::new(WriteMode::WriteThrough).await;
        bench.under.keep_listings();
        // More than the under store is asked for at once.
        for n in 0..30 {
            bench.under.put_outside(&format!("{n:02}"), "out".into());
        }
        let bucket = BucketName::new(BUCKET).expect("a bucket");
        let mut request = ListObjects { limit: 12, ..ListObjects::default() };
        request.start_after = bench.cache.list(&bucket, &request).await.unwrap().next;
        bench.under.set_mood(Mood::LoseAnswers);
        assert_eq!(bench.put("15/late", "written").await.unwrap_err().kind, ErrorKind::Unavailable);
        bench.under.set_mood(Mood::Well);
        if is_settled {
            bench.clock.advance(SETTLED);
            bench.cache.sweep().await.unwrap();
        }
        check_later_pages(&bench, request).await;
    }
}

/// The same where an earlier process has sent it.
#[tokio::test]
async fn later_pages_ask_for_what_an_earlier_process_may_have_sent() {
    for is_settled in [false, true] {
        let mut bench = Bench::new(WriteMode::WriteThrough).await;
        bench.under.keep_listings();
        // More than the under store is asked for at once.
        for n in 0..30 {
            bench.under.put_outside(&format!("{n:02}"), "out".into());
        }
        bench.foreground.set(Way::Late);
        assert_eq!(bench.put("15/late", "written").await.unwrap_err().kind, ErrorKind::Unavailable);
        let dead = bench.foreground.clone();
        bench.kill().await;
        let bucket = BucketName::new(BUCKET).expect("a bucket");
        let mut request = ListObjects { limit: 12, ..ListObjects::default() };
        request.start_after = bench.cache.list(&bucket, &request).await.unwrap().next;
        dead.land().await.unwrap();
        if is_settled {
            bench.clock.advance(SETTLED);
            // When it is over for writes it is for the sweep.
            bench.delete("another").await.unwrap();
            bench.cache.sweep().await.unwrap();
        }
        check_later_pages(&bench, request).await;
    }
}

/// However few names are asked for.
#[tokio::test]
async fn a_name_behind_thousands_of_deletes_takes_few_requests() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    for n in 0..5_000 {
        bench.under.put_outside(&format!("dir/{n:05}"), "out".into());
    }
    bench.under.put_outside("dir/last", "out".into());
    bench.background.set(Way::Closed);
    for n in 0..5_000 {
        bench.delete(&format!("dir/{n:05}")).await.unwrap();
    }
    for (prefix, delimiter) in [("dir/", None), ("", Some("/"))] {
        let before = bench.foreground.lists();
        let keys = BTreeMap::from([("dir/last".to_owned(), Bytes::from("out"))]);
        let (prefix, delimiter) = (prefix.to_owned(), delimiter.map(str::to_owned));
        check(&bench, &keys, &Query { prefix, delimiter, start_after: None, limit: 1 }).await;
        assert!(bench.foreground.lists() - before < 30, "{}", bench.foreground.lists() - before);
    }
}

/// The name in doubt is the last one that the under store sends.
#[tokio::test]
async fn a_prefix_at_the_end_of_a_page_of_the_under_store_may_be_empty() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let mut keys = BTreeMap::new();
    for key in ["a/1", "b/1", "c/1", "d/1"] {
        bench.under.put_outside(key, "out".into());
        keys.insert(key.to_owned(), Bytes::from("out"));
    }
    bench.background.set(Way::Closed);
    for key in ["a/1", "c/1"] {
        bench.delete(key).await.unwrap();
        keys.remove(key);
    }
    for limit in 1..=4 {
        let query = Query { prefix: String::new(), delimiter: Some("/".into()), start_after: None, limit };
        check(&bench, &keys, &query).await;
    }
}

/// As while a directory with many others below it is deleted.
#[tokio::test]
async fn prefixes_that_may_be_empty_are_asked_for_together_and_not_for_longer_than_clients_wait() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let bucket = BucketName::new(BUCKET).expect("a bucket");
    let mut left = Vec::new();
    for n in 0..40 {
        bench.under.put_outside(&format!("{n:02}/deleted"), "out".into());
        if n % 2 == 1 {
            bench.under.put_outside(&format!("{n:02}/left"), "out".into());
            left.push(format!("{n:02}/"));
        }
    }
    // This one answer of the under store is kept, so the others are later than that.
    let first = ListObjects { prefix: "00/".to_owned(), limit: 1000, ..ListObjects::default() };
    assert_eq!(bench.cache.list(&bucket, &first).await.unwrap().objects.len(), 1);
    bench.background.set(Way::Closed);
    for n in 0..40 {
        bench.delete(&format!("{n:02}/deleted")).await.unwrap();
    }
    let level = |start_after: Option<String>| {
        let delimiter = Some("/".to_owned());
        ListObjects { delimiter, start_after, limit: 1000, ..ListObjects::default() }
    };
    let list_for_10_s = async |start_after: Option<String>| {
        bench.foreground.set(Way::HoldLists);
        let (cache, bucket, request) = (bench.cache.clone(), bucket.clone(), level(start_after));
        let listing = forebay_env::spawn(async move { cache.list(&bucket, &request).await });
        until("the prefixes are on their way", || bench.foreground.waiting() == 1).await;
        bench.foreground.set(Way::DelayLists);
        until("16 of them are asked for", || bench.foreground.waiting() == 16).await;
        bench.clock.advance(Duration::from_secs(10));
        others_go_on().await;
        listing
    };
    let listing = list_for_10_s(None).await;
    assert!(listing.is_finished(), "one name is known");
    let page = listing.join().await.unwrap();
    assert_eq!((page.prefixes.len(), page.next.as_deref()), (0, Some("00/")));
    let listing = list_for_10_s(page.next).await;
    assert!(!listing.is_finished(), "the next page would begin there again");
    bench.foreground.set(Way::Open);
    let mut page = listing.join().await.unwrap();
    let mut found = std::mem::take(&mut page.prefixes);
    while page.next.is_some() {
        page = bench.cache.list(&bucket, &level(page.next.take())).await.unwrap();
        found.append(&mut page.prefixes);
    }
    assert_eq!(found, left);
}

/// The name behind a page, which says that there is another, comes with it.
#[tokio::test]
async fn a_page_that_the_under_store_fills_takes_one_request() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    for n in 0..5 {
        bench.under.put_outside(&format!("{n}"), "out".into());
    }
    let bucket = BucketName::new(BUCKET).expect("a bucket");
    for (limit, next) in [(1, Some("0")), (4, Some("3")), (5, None), (6, None)] {
        let before = bench.foreground.lists();
        let request = ListObjects { limit, revalidates: true, ..ListObjects::default() };
        let page = bench.cache.list(&bucket, &request).await.unwrap();
        assert_eq!((page.objects.len(), page.next.as_deref()), (limit.min(5), next));
        assert_eq!(bench.foreground.lists() - before, 1, "{limit}");
    }
}

/// The tag that clients know is that of the version here, which is no longer the one there.
#[tokio::test]
async fn an_object_that_was_replaced_from_outside_is_listed_with_its_new_tag() {
    let bench = small_parts(WriteMode::WriteThrough).open().await;
    let upload = create(&bench, "key").await;
    let part = put_part(&bench, &upload, 1, PART).await;
    let written = complete(&bench, &upload, &[part]).await.unwrap();
    let bucket = BucketName::new(BUCKET).expect("a bucket");
    let listed = async || {
        let request = ListObjects { limit: 10, revalidates: true, ..ListObjects::default() };
        let page = bench.cache.list(&bucket, &request).await.unwrap();
        page.objects[0].etag.clone()
    };
    assert_eq!(listed().await, written.etag);
    bench.under.put_outside("key", "123456789".into());
    assert_eq!(listed().await, ETag::new("25f9e794323b453885f5181f1b624d0b"));
}
