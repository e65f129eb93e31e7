//! Pages of the under store that are kept for `listTtl`: what is written here shows at once, what others write in time.

use std::sync::Arc;
use std::time::Duration;

use forebay_cache::{JobKind, ListObjects, ObjectPage};
use forebay_types::{BucketName, Period, PolicyRule, WriteMode};
use forebay_ufs::BucketRoot;
use forebay_ufs::memory::{MemoryRoot, Mood};

use crate::faults::SETTLED;
use crate::support::gate::Way;
use crate::support::{BUCKET, Bench, Setup, jobs, path, rule, until};

pub(crate) fn name(bucket: &str) -> BucketName {
    BucketName::new(bucket).expect("a bucket")
}

async fn page(bench: &Bench, request: ListObjects) -> ObjectPage {
    let limit = if request.limit == 0 { 1000 } else { request.limit };
    bench.cache.list(&name(BUCKET), &ListObjects { limit, ..request }).await.expect("a page")
}

fn names(page: &ObjectPage) -> Vec<String> {
    let mut names: Vec<_> = page.objects.iter().map(|object| object.key.clone()).collect();
    names.extend(page.prefixes.iter().cloned());
    names.sort();
    names
}

/// The names below a prefix, to the next delimiter, and how often the under store was asked.
pub(crate) async fn listed(bench: &Bench, prefix: &str) -> (Vec<String>, u64) {
    let before = bench.foreground.lists();
    let request = ListObjects { prefix: prefix.to_owned(), delimiter: Some("/".to_owned()), ..ListObjects::default() };
    let found = names(&page(bench, request).await);
    (found, bench.foreground.lists() - before)
}

pub(crate) async fn check(bench: &Bench, prefix: &str, names: &[&str], asked: u64) {
    let (found, lists) = listed(bench, prefix).await;
    assert_eq!((found.iter().map(String::as_str).collect::<Vec<_>>(), lists), (names.to_vec(), asked), "{prefix:?}");
}

async fn with(bench: &Bench, keys: &[&str]) {
    keys.iter().for_each(|key| bench.under.put_outside(key, "out".into()));
    listed(bench, "").await;
}

#[tokio::test]
async fn what_others_change_shows_after_the_list_ttl() {
    let bench =
        Setup::new(WriteMode::WriteThrough).policy(|rule| rule.list_ttl = Some(Period::from_secs(10))).open().await;
    with(&bench, &["a", "b/1"]).await;
    bench.under.put_outside("c", "out".into());
    bench.under.delete_outside("a");
    bench.clock.advance(Duration::from_secs(9));
    check(&bench, "", &["a", "b/"], 0).await;
    bench.clock.advance(Duration::from_secs(1));
    check(&bench, "", &["b/", "c"], 1).await;
    assert_eq!(bench.metric("forebay_requests_avoided_total{operation=\"list\"}"), 1.0);
    assert_eq!(bench.metric("forebay_list_pages_total{source=\"cache\"}"), 1.0);
    assert_eq!(bench.metric("forebay_list_pages_total{source=\"under_store\"}"), 2.0);
    assert!(bench.metric("forebay_list_cache_bytes") > 0.0);
    bench.clock.advance(Duration::from_secs(10));
    bench.cache.sweep().await.expect("a sweep");
    assert_eq!(bench.metric("forebay_list_cache_bytes"), 0.0);
}

#[tokio::test]
async fn what_is_written_here_shows_at_once() {
    for mode in [WriteMode::WriteThrough, WriteMode::WriteBack, WriteMode::Transient] {
        let bench = Bench::new(mode).await;
        with(&bench, &["a", "b/1", "c/1", "d"]).await;
        for _ in 0..2 {
            bench.put("e", "here").await.unwrap();
            bench.put("f/1", "here").await.unwrap();
            bench.put("d", "longer than before").await.unwrap();
            bench.delete("a").await.unwrap();
            bench.delete("b/1").await.unwrap();
            // The prefix in doubt is listed itself.
            let (found, lists) = listed(&bench, "").await;
            assert_eq!(found, ["c/", "d", "e", "f/"], "{mode:?}");
            assert!(lists <= 1, "{mode:?}");
            bench.drain().await;
            let (found, _) = listed(&bench, "").await;
            assert_eq!(found, ["c/", "d", "e", "f/"], "{mode:?}");
            let request = ListObjects { prefix: "d".to_owned(), ..ListObjects::default() };
            assert_eq!(page(&bench, request).await.objects[0].size, 18, "{mode:?}");
            bench.delete("e").await.unwrap();
            bench.delete("f/1").await.unwrap();
            bench.put("a", "again").await.unwrap();
            bench.put("b/1", "again").await.unwrap();
            bench.drain().await;
            let (found, _) = listed(&bench, "").await;
            assert_eq!(found, ["a", "b/", "c/", "d"], "{mode:?}");
        }
        check(&bench, "", &["a", "b/", "c/", "d"], 0).await;
    }
}

/// Nobody knows what the under store has until it answers, and then it is known.
#[tokio::test]
async fn a_write_in_flight_is_looked_for_each_time() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    with(&bench, &["a"]).await;
    bench.foreground.set(Way::Closed);
    let cache = bench.cache.clone();
    let body = crate::support::incoming("here".into());
    let (attributes, conditions) = Default::default();
    let put = forebay_cache::PutObject { path: path("b"), body, attributes, conditions };
    let putting = forebay_env::spawn(async move { cache.put(put).await });
    until("the write is at the under store", || bench.foreground.waiting() == 1).await;
    check(&bench, "", &["a"], 1).await;
    check(&bench, "", &["a"], 1).await;
    // Not below another prefix.
    listed(&bench, "c/").await;
    check(&bench, "c/", &[], 0).await;
    bench.foreground.set(Way::Open);
    putting.join().await.unwrap();
    check(&bench, "", &["a", "b"], 0).await;
}

#[tokio::test]
async fn a_write_without_an_answer_is_looked_for_until_it_is_settled() {
    let bench =
        Setup::new(WriteMode::WriteThrough).policy(|rule| rule.list_ttl = Some(Period::from_secs(3600))).open().await;
    with(&bench, &["a"]).await;
    bench.foreground.set(Way::Late);
    bench.put("b", "late").await.unwrap_err();
    bench.foreground.set(Way::Open);
    check(&bench, "", &["a"], 1).await;
    bench.foreground.land().await.unwrap();
    check(&bench, "", &["a", "b"], 1).await;
    bench.clock.advance(SETTLED);
    bench.cache.sweep().await.unwrap();
    check(&bench, "", &["a", "b"], 1).await;
    check(&bench, "", &["a", "b"], 0).await;
}

#[tokio::test]
async fn a_request_that_passed_through_is_looked_for_once() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    with(&bench, &["a", "b"]).await;
    let change = bench.cache.begin_passing_change(&path("b")).await.unwrap().expect("the object is clean");
    bench.under.delete_outside("b");
    change.end().await;
    check(&bench, "", &["a"], 1).await;
    check(&bench, "", &["a"], 0).await;
}

/// Also when the under store is out of reach: only what is kept can be shown then.
#[tokio::test]
async fn who_asks_for_it_gets_an_answer_of_the_under_store() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    with(&bench, &["a"]).await;
    bench.under.put_outside("b", "out".into());
    let fresh = || ListObjects { delimiter: Some("/".into()), revalidates: true, ..ListObjects::default() };
    assert_eq!(names(&page(&bench, fresh()).await), ["a", "b"]);
    check(&bench, "", &["a", "b"], 0).await;
    bench.under.set_mood(Mood::Refuse(forebay_ufs::ErrorKind::Unavailable));
    check(&bench, "", &["a", "b"], 0).await;
    bench.cache.list(&name(BUCKET), &ListObjects { limit: 1000, ..fresh() }).await.unwrap_err();
}

#[tokio::test]
async fn some_paths_are_asked_for_each_time() {
    let zero = PolicyRule { list_ttl: Some(Period::from_secs(0)), ..PolicyRule::for_path("/bucket/zero/") };
    let cautious = PolicyRule { metadata_ttl: Some(Period::from_secs(0)), ..PolicyRule::for_path("/bucket/cautious/") };
    let mut setup = Setup::new(WriteMode::WriteBack);
    setup.policies.extend([zero, cautious, rule("/bucket/none/", WriteMode::NoCache)]);
    let bench = setup.open().await;
    for prefix in ["zero/", "cautious/x", "none/", ""] {
        check(&bench, prefix, &[], 1).await;
        check(&bench, prefix, &[], 1).await;
    }
    check(&bench, "other/", &[], 1).await;
    check(&bench, "other/", &[], 0).await;
    // A change of the rules is in force at once.
    bench.cache.set_policies(vec![rule("/", WriteMode::NoCache)], None, "test", "edit").await.unwrap();
    check(&bench, "other/", &[], 1).await;
}

#[tokio::test]
async fn of_many_that_list_at_once_one_asks_and_none_misses_its_own_write() {
    let bench = Arc::new(Bench::new(WriteMode::WriteBack).await);
    bench.under.put_outside("a", "out".into());
    bench.foreground.set(Way::HoldLists);
    let list = |bench: &Arc<Bench>| {
        let bench = Arc::clone(bench);
        forebay_env::spawn(async move { listed(&bench, "").await.0 })
    };
    let first = list(&bench);
    until("the under store is asked", || bench.foreground.waiting() == 1).await;
    bench.put("b", "here").await.unwrap();
    bench.drain().await;
    let others: Vec<_> = (0..5).map(|_| list(&bench)).collect();
    crate::support::others_go_on().await;
    bench.foreground.set(Way::Open);
    first.join().await;
    for other in others {
        assert_eq!(other.join().await, ["a", "b"]);
    }
    assert_eq!(bench.foreground.lists(), 1);
}

#[tokio::test]
async fn later_pages_are_kept_as_well() {
    for keeps_listings in [false, true] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        if keeps_listings {
            bench.under.keep_listings();
        }
        for n in 0..40 {
            bench.under.put_outside(&format!("{n:02}"), "out".into());
        }
        let all = async || {
            let (mut found, mut start_after) = (Vec::new(), None);
            loop {
                let page = page(&bench, ListObjects { limit: 12, start_after, ..ListObjects::default() }).await;
                found.extend(names(&page));
                start_after = page.next;
                if start_after.is_none() {
                    return found;
                }
            }
        };
        let before = all().await;
        assert_eq!(before.len(), 40);
        let lists = bench.foreground.lists();
        assert_eq!(all().await, before);
        assert_eq!(bench.foreground.lists(), lists, "{keeps_listings}");
        bench.put("13/new", "here").await.unwrap();
        bench.delete("30").await.unwrap();
        bench.drain().await;
        let mut now = before.clone();
        now.retain(|name| name != "30");
        now.push("13/new".to_owned());
        now.sort();
        assert_eq!(all().await, now, "{keeps_listings}");
        bench.age_metadata();
        assert_eq!(all().await, now, "{keeps_listings}");
        assert!(bench.foreground.lists() > lists);
    }
}

#[tokio::test]
async fn what_an_operator_frees_is_asked_for_anew() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    for prefix in ["a/", "b/"] {
        check(&bench, prefix, &[], 1).await;
    }
    let dry = forebay_cache::JobRequest { dry_run: true, ..jobs::request(JobKind::Free, "/bucket/a/") };
    jobs::run(&bench, dry).await;
    check(&bench, "a/", &[], 0).await;
    jobs::run(&bench, jobs::request(JobKind::Free, "/bucket/a/")).await;
    check(&bench, "a/", &[], 1).await;
    check(&bench, "b/", &[], 0).await;
}

#[tokio::test]
async fn a_listing_from_before_a_free_job_is_not_kept() {
    let bench = Arc::new(Bench::new(WriteMode::WriteThrough).await);
    bench.under.put_outside("a", "out".into());
    bench.foreground.set(Way::HoldLists);
    let list = || {
        let bench = Arc::clone(&bench);
        forebay_env::spawn(async move { listed(&bench, "").await.0 })
    };
    let first = list();
    until("the answer is on its way", || bench.foreground.waiting() == 1).await;
    bench.under.put_outside("b", "out".into());
    jobs::run(&bench, jobs::request(JobKind::Free, "/bucket/")).await;
    let second = list();
    crate::support::others_go_on().await;
    assert_eq!(bench.foreground.lists(), 1, "it waits for the first");
    bench.foreground.set(Way::Open);
    assert_eq!(first.join().await, ["a"]);
    assert_eq!(second.join().await, ["a", "b"]);
    check(&bench, "", &["a", "b"], 0).await;
}

#[tokio::test]
async fn a_change_of_others_that_a_read_has_found_shows_in_listings() {
    let bench =
        Setup::new(WriteMode::WriteThrough).policy(|rule| rule.list_ttl = Some(Period::from_secs(3600))).open().await;
    bench.put("a", "here").await.unwrap();
    listed(&bench, "").await;
    bench.under.delete_outside("a");
    check(&bench, "", &["a"], 0).await;
    bench.age_metadata();
    bench.get("a").await.unwrap_err();
    check(&bench, "", &[], 1).await;
}

/// A listing says of a stale copy what a HEAD would.
#[tokio::test]
async fn a_copy_that_a_listing_shows_is_validated_by_it() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    for (key, body) in [("same", "body"), ("dir/same", "body"), ("other", "before"), ("mine", "before")] {
        bench.put(key, body).await.unwrap();
    }
    bench.age_metadata();
    bench.under.put_outside("other", "after!".into());
    let heads = bench.foreground.heads();
    listed(&bench, "").await;
    page(&bench, ListObjects { prefix: "dir/".into(), ..ListObjects::default() }).await;
    for _ in 0..2 {
        assert_eq!(bench.get("same").await.unwrap(), "body");
        assert_eq!(bench.get("dir/same").await.unwrap(), "body");
    }
    assert_eq!(bench.foreground.heads(), heads);
    assert_eq!(bench.get("other").await.unwrap(), "after!");
    assert_eq!(bench.foreground.heads(), heads + 1, "another version is asked for");
    bench.put("mine", "after!").await.unwrap();
    assert_eq!(bench.get("mine").await.unwrap(), "after!");
    // The copy is no fresher than the page.
    bench.clock.advance(Duration::from_secs(59));
    assert_eq!(bench.get("same").await.unwrap(), "body");
    assert_eq!(bench.foreground.heads(), heads + 1);
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(bench.get("same").await.unwrap(), "body");
    assert_eq!(bench.foreground.heads(), heads + 2);
}

/// It shows nothing of the one before.
#[tokio::test]
async fn a_bucket_that_is_made_anew_is_empty() {
    let root = MemoryRoot::default();
    let mut setup = Setup::new(WriteMode::WriteThrough);
    setup.root = Some(Arc::new(root.clone()) as Arc<dyn BucketRoot>);
    let bench = setup.open().await;
    let made = name("made");
    for by_others in [false, true] {
        bench.cache.create_bucket(&made).await.unwrap();
        let under = root.bucket(&made).unwrap();
        under.put_outside("a", "out".into());
        let list = async || {
            let request = ListObjects { limit: 10, ..ListObjects::default() };
            bench.cache.list(&made, &request).await.unwrap().objects.len()
        };
        assert_eq!(list().await, 1);
        under.delete_outside("a");
        if by_others {
            root.delete(&made).await.unwrap();
        } else {
            bench.cache.delete_bucket(&made).await.unwrap();
        }
        bench.cache.create_bucket(&made).await.unwrap();
        assert_eq!(list().await, 0);
        bench.cache.delete_bucket(&made).await.unwrap();
    }
}
