//! What the under store refuses for good: it is told, a way leads out, and more of its kind is not acknowledged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use forebay_cache::{
    Attributes, CompletePart, CompleteUpload, Conditions, ErrorKind, ListObjects, PutObject, Result, SlotCount,
    SlotSet, Undeliverable, UndeliverableChange, UploadRef, Written,
};
use forebay_catalog::records;
use forebay_types::{BucketName, Durability, ObjectPath, PolicyRule, StorageState, SystemHeaders, WriteMode};
use forebay_ufs::ErrorKind as UfsKind;
use forebay_ufs::memory::Mood;

use crate::held::{Answer, Others, THERE};
use crate::support::gate::Way;
use crate::support::{self, BUCKET, Bench, HERE, Setup, create_upload, incoming, kind, path, pattern, rule, seeds};

/// As MinIO does, and a class that it does not know.
fn refuses(key: &str, class: Option<&str>) -> Option<UfsKind> {
    match class {
        _ if key.contains("//") => Some(UfsKind::InvalidName),
        Some("COLD") => Some(UfsKind::InvalidStorageClass),
        _ => None,
    }
}

/// Before an under store that refuses some objects.
async fn picky() -> Bench {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.refuse_objects(Some(refuses));
    bench
}

async fn put_as(bench: &Bench, key: &str, class: &str) -> Result<Written> {
    let headers = SystemHeaders { storage_class: Some(class.to_owned()), ..SystemHeaders::default() };
    let attributes = Attributes { headers, ..Attributes::default() };
    let body = incoming(Bytes::from_static(b"value"));
    bench.cache.put(PutObject { path: path(key), body, attributes, conditions: Conditions::default() }).await
}

/// One that was acknowledged, and has been refused since.
async fn refused(bench: &Bench, key: &str) -> Undeliverable {
    bench.put(key, format!("of {key}")).await.expect("nobody knows yet");
    is_told(bench, key).await
}

async fn is_told(bench: &Bench, key: &str) -> Undeliverable {
    let before = bench.cache.status().undeliverable;
    bench.advancing("it is undeliverable", || bench.cache.status().undeliverable > before).await;
    let told = all(bench).await;
    told.into_iter().find(|told| told.path == format!("/{BUCKET}/{key}")).expect("it is told")
}

async fn all(bench: &Bench) -> Vec<Undeliverable> {
    bench.cache.undeliverable("/", None, 1000).await.expect("the list").objects
}

#[tokio::test]
async fn what_the_under_store_refuses_is_told_with_its_reason_until_it_is_taken() {
    let mut bench = picky().await;
    let told = refused(&bench, "a//b").await;
    assert_eq!((told.change, told.size), (UndeliverableChange::Write, 7));
    assert!(told.tries >= 3 && told.reason.contains("refuses") && told.next_try_in_ms.is_some(), "{told:?}");
    assert!(bench.metrics().contains("forebay_undeliverable_objects 1"));
    assert_eq!(bench.get("a//b").await.unwrap(), "of a//b", "it is read all the same");
    bench.restart().await;
    assert_eq!(is_told(&bench, "a//b").await.generation, told.generation);
    bench.under.refuse_objects(None);
    bench.drain().await;
    assert_eq!((bench.under("a//b"), all(&bench).await), (Some("of a//b".into()), vec![]));
    assert_eq!(bench.cache.status().undeliverable, 0);
}

#[tokio::test]
async fn what_is_like_a_refused_object_is_acknowledged_only_when_the_under_store_has_it() {
    let bench = picky().await;
    refused(&bench, "a//b").await;
    let told = put_as(&bench, "cold", "COLD").await;
    told.expect("this class has not been refused yet");
    is_told(&bench, "cold").await;
    assert_eq!(kind(bench.put("c//d", "value").await), Some(ErrorKind::InvalidKey));
    assert_eq!(kind(put_as(&bench, "colder", "COLD").await), Some(ErrorKind::InvalidArgument));
    let upload = UploadRef {
        path: path("e//f"),
        upload_id: bench.cache.create_upload(create_upload(path("e//f"))).await.unwrap(),
    };
    let part = bench.cache.put_part(&upload, 1, incoming("part".into())).await.unwrap();
    let parts = vec![CompletePart { number: 1, etag: part.etag, checksums: Vec::new() }];
    let complete = CompleteUpload {
        upload,
        parts,
        size: None,
        checksums: Vec::new(),
        checksum_kind: None,
        conditions: Conditions::default(),
    };
    assert_eq!(kind(bench.cache.complete_upload(complete).await), Some(ErrorKind::InvalidKey));
    for refused in ["c//d", "colder", "e//f"] {
        assert_eq!(kind(bench.get(refused).await), Some(ErrorKind::NotFound), "nothing of {refused} is here");
    }
    // Others wait for nothing.
    bench.foreground.set(Way::Closed);
    bench.put("plain", "value").await.unwrap();
    put_as(&bench, "warm", "WARM").await.unwrap();
    bench.foreground.set(Way::Open);
    // The under store takes them by now: the first one that finds that out is written through, the next need not be.
    bench.under.refuse_objects(None);
    bench.put("c//d", "value").await.unwrap();
    assert_eq!(bench.under("c//d"), Some("value".into()));
    bench.foreground.set(Way::Closed);
    bench.put("g//h", "value").await.unwrap();
    bench.foreground.set(Way::Open);
    bench.drain().await;
}

#[tokio::test]
async fn an_object_is_kept_here_or_dropped_or_gets_another_name() {
    let bench = picky().await;
    bench.background.set(Way::Closed);
    for key in ["k//1", "k//2", "k//3"] {
        bench.put(key, format!("of {key}")).await.expect("nobody knows yet");
    }
    bench.background.set(Way::Open);
    bench.advancing("they are undeliverable", || bench.cache.status().undeliverable == 3).await;
    let generations: Vec<_> = all(&bench).await.iter().map(|told| told.generation).collect();
    bench.cache.keep_undeliverable(&path("k//1"), generations[0]).await.unwrap();
    assert_eq!(bench.state("k//1").await, StorageState::Transient);
    assert_eq!(bench.get("k//1").await.unwrap(), "of k//1");
    bench.cache.discard_undeliverable(&path("k//2"), generations[1]).await.unwrap();
    bench.put("taken", "other").await.unwrap();
    let rename = async |to| bench.cache.rename_undeliverable(&path("k//3"), generations[2], &path(to)).await;
    assert_eq!(kind(rename("taken").await), Some(ErrorKind::PreconditionFailed));
    rename("k/3").await.unwrap();
    bench.cache.set_policies(vec![rule("/bucket/k//1", WriteMode::NoCache)], None, "root", "").await.unwrap();
    bench.delete("k//1").await.expect("what is kept is deleted in any mode");
    assert_eq!(kind(bench.get("k//1").await), Some(ErrorKind::NotFound));
    bench.under.refuse_objects(None);
    assert_eq!(bench.keys().await, ["k/3", "taken"]);
    assert_eq!((bench.get("k/3").await.unwrap(), all(&bench).await), ("of k//3".into(), vec![]));
    bench.drain().await;
    let names: Vec<_> = bench.under.contents().into_keys().collect();
    assert_eq!(names, ["k/3", "taken"], "what is kept never goes there");
}

#[tokio::test]
async fn only_the_version_that_was_refused_is_given_up() {
    let bench = picky().await;
    let told = refused(&bench, "a//b").await;
    assert_eq!(
        kind(bench.cache.discard_undeliverable(&path("a//b"), told.generation + 1).await),
        Some(ErrorKind::Conflict)
    );
    bench.put("plain", "value").await.unwrap();
    assert_eq!(kind(bench.cache.discard_undeliverable(&path("plain"), 1).await), Some(ErrorKind::NotFound));
    // A class that is refused is put right by the next write, of which nothing has been said yet.
    put_as(&bench, "cold", "COLD").await.unwrap();
    let cold = is_told(&bench, "cold").await;
    bench.background.set(Way::Closed);
    bench.put("cold", "warm").await.unwrap();
    let newer = cold.generation..cold.generation + 100;
    for generation in newer {
        let kept = bench.cache.keep_undeliverable(&path("cold"), generation).await;
        assert_eq!(kind(kept), Some(ErrorKind::NotFound));
    }
    assert_eq!(bench.cache.status().undeliverable, 1, "the other one");
    bench.background.set(Way::Open);
    bench.advancing("it arrives", || bench.under("cold").is_some()).await;
    assert_eq!(
        kind(bench.cache.discard_undeliverable(&path("cold"), cold.generation).await),
        Some(ErrorKind::NotFound)
    );
    assert_eq!(bench.get("cold").await.unwrap(), "warm");
}

#[tokio::test]
async fn what_was_there_before_shows_again_when_a_newer_version_is_dropped() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "first").await.unwrap();
    bench.drain().await;
    bench.under.refuse_objects(Some(refuses));
    put_as(&bench, "key", "COLD").await.unwrap();
    let told = is_told(&bench, "key").await;
    bench.cache.discard_undeliverable(&path("key"), told.generation).await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), "first");
    assert_eq!(bench.keys().await, ["key"]);
    assert!(bench.is_drained());
}

#[tokio::test]
async fn a_delete_of_what_the_under_store_cannot_have_is_done() {
    let bench = picky().await;
    refused(&bench, "a//b").await;
    bench.delete("a//b").await.unwrap();
    bench.drain().await;
    assert_eq!(bench.keys().await, Vec::<String>::new());
    assert_eq!(bench.cache.status().undeliverable, 0);
    assert_eq!(kind(bench.put("c//d", "value").await), Some(ErrorKind::InvalidKey), "nothing was taken");
}

/// It says so of everything: that tells nothing of the names.
#[tokio::test]
async fn a_delete_is_not_done_because_an_under_store_takes_all_requests_for_wrong() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.put_outside("key", "theirs".into());
    bench.under.refuse_objects(Some(|_, _| Some(UfsKind::Invalid)));
    bench.delete("key").await.unwrap();
    is_told(&bench, "key").await;
    bench.put("a//b", "value").await.unwrap();
    is_told(&bench, "a//b").await;
    bench.put("c//d", "value").await.expect("it is not said to be for the name");
    bench.under.refuse_objects(None);
    bench.drain().await;
    assert_eq!(bench.under("key"), None);
}

#[tokio::test]
async fn what_is_damaged_here_is_not_told_as_refused_there() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "a value that is damaged").await.unwrap();
    bench.damage(b"a value that is damaged").await;
    bench.background.set(Way::Open);
    let tries = || bench.metric("forebay_persist_failures_total{kind=\"Corrupt\"}");
    bench.advancing("it has been tried", || tries() >= 5.0).await;
    assert_eq!(all(&bench).await, []);
    bench.delete("key").await.unwrap();
    bench.drain().await;
}

/// The policy may be another by now.
#[tokio::test]
async fn what_is_written_or_deleted_through_takes_the_place_of_what_was_refused() {
    let bench = picky().await;
    put_as(&bench, "cold", "COLD").await.unwrap();
    is_told(&bench, "cold").await;
    refused(&bench, "a//b").await;
    bench.cache.set_policies(vec![rule("/", WriteMode::WriteThrough)], None, "root", "").await.unwrap();
    bench.put("cold", "warm").await.unwrap();
    assert_eq!(bench.under("cold"), Some("warm".into()));
    // What fails leaves the one that was acknowledged.
    assert_eq!(kind(bench.put("a//b", "newer").await), Some(ErrorKind::InvalidKey));
    assert_eq!(bench.get("a//b").await.unwrap(), "of a//b");
    bench.delete("a//b").await.unwrap();
    assert_eq!(kind(bench.get("a//b").await), Some(ErrorKind::NotFound));
    bench.delete("never//there").await.unwrap();
    assert!(bench.is_drained());
    assert_eq!((bench.keys().await, bench.cache.status().undeliverable), (vec!["cold".to_owned()], 0));
}

#[tokio::test]
async fn what_a_transient_object_replaces_is_not_told_any_more() {
    let bench = picky().await;
    refused(&bench, "a//b").await;
    bench.cache.set_policies(vec![rule("/", WriteMode::Transient)], None, "root", "").await.unwrap();
    bench.put("a//b", "stays here").await.unwrap();
    assert_eq!(bench.cache.status().undeliverable, 0);
    bench.pass_seconds(10).await;
    assert_eq!((bench.cache.status().undeliverable, bench.state("a//b").await), (0, StorageState::Transient));
}

/// A later page asks for what has changed since the first one.
#[tokio::test]
async fn a_listing_goes_on_where_something_was_dropped() {
    let bench = picky().await;
    bench.under.keep_listings();
    for key in ["a", "b", "c"] {
        bench.under.put_outside(key, "there".into());
    }
    let told = refused(&bench, "b//x").await;
    let bucket = BucketName::new(BUCKET).unwrap();
    let page = |start_after| ListObjects { limit: 1, start_after, ..ListObjects::default() };
    let first = bench.cache.list(&bucket, &page(None)).await.unwrap();
    bench.cache.discard_undeliverable(&path("b//x"), told.generation).await.unwrap();
    let mut keys: Vec<_> = first.objects.into_iter().map(|object| object.key).collect();
    let mut next = first.next;
    while next.is_some() {
        let found = bench.cache.list(&bucket, &page(next)).await.unwrap();
        keys.extend(found.objects.into_iter().map(|object| object.key));
        next = found.next;
    }
    assert_eq!(keys, ["a", "b", "c"]);
}

/// It has had the object: that it refuses the name now says nothing.
#[tokio::test]
async fn a_delete_that_is_refused_of_what_was_there_stays_until_it_is_done_or_given_up() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    for key in ["a//b", "c//d"] {
        bench.put(key, "value").await.unwrap();
    }
    bench.drain().await;
    bench.under.refuse_objects(Some(refuses));
    bench.delete("a//b").await.unwrap();
    bench.delete("c//d").await.unwrap();
    bench.advancing("both are undeliverable", || bench.cache.status().undeliverable == 2).await;
    let told = all(&bench).await;
    assert_eq!(told[0].change, UndeliverableChange::Delete);
    let (first, generation) = (path("a//b"), told[0].generation);
    assert_eq!(kind(bench.cache.keep_undeliverable(&first, generation).await), Some(ErrorKind::InvalidRequest));
    assert_eq!(
        kind(bench.cache.rename_undeliverable(&first, generation, &path("new")).await),
        Some(ErrorKind::InvalidRequest)
    );
    bench.cache.discard_undeliverable(&first, generation).await.unwrap();
    bench.under.refuse_objects(None);
    bench.drain().await;
    assert_eq!(bench.keys().await, ["a//b"], "one delete was undone, the other done");
}

#[tokio::test]
async fn a_delete_through_that_is_refused_of_what_was_there_fails() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("a//b", "value").await.unwrap();
    bench.under.refuse_objects(Some(refuses));
    assert_eq!(kind(bench.delete("a//b").await), Some(ErrorKind::InvalidKey));
    bench.under.refuse_objects(None);
    assert_eq!(bench.get("a//b").await.unwrap(), "value");
}

/// A request without an answer may still land, and bring back what was dropped.
#[tokio::test]
async fn nothing_is_given_up_before_an_earlier_request_is_settled() {
    let bench = picky().await;
    let told = refused(&bench, "a//b").await;
    bench.under.set_mood(Mood::Refuse(UfsKind::Ambiguous));
    let tries = bench.under.requests();
    bench.advancing("a try gets no answer", || bench.under.requests() > tries).await;
    bench.under.set_mood(Mood::Well);
    let discard = async || bench.cache.discard_undeliverable(&path("a//b"), told.generation).await;
    assert_eq!(kind(discard().await), Some(ErrorKind::SlowDown));
    bench.settle().await;
    discard().await.unwrap();
}

#[tokio::test]
async fn pages_of_the_list_are_in_order_and_of_one_place() {
    let bench = picky().await;
    bench.background.set(Way::Closed);
    for n in 0..7 {
        bench.put(&format!("d{}//{n}", n % 2), "value").await.unwrap();
    }
    bench.background.set(Way::Open);
    bench.advancing("all are undeliverable", || bench.cache.status().undeliverable == 7).await;
    let (mut after, mut pages) = (None, Vec::new());
    loop {
        let page = bench.cache.undeliverable(&format!("/{BUCKET}/d1"), after.as_ref(), 2).await.unwrap();
        pages.push(page.objects.iter().map(|told| told.path.clone()).collect::<Vec<_>>());
        let Some(next) = page.next else { break };
        after = next[1..].split_once('/').map(|(bucket, key)| ObjectPath::parse(bucket, key).unwrap());
    }
    assert_eq!(pages, [vec!["/bucket/d1//1", "/bucket/d1//3"], vec!["/bucket/d1//5"]]);
    assert_eq!(kind(bench.cache.undeliverable("bucket", None, 1).await), Some(ErrorKind::InvalidArgument));
}

/// Then the copy under the new name may be the only one.
#[tokio::test]
async fn a_copy_under_a_new_name_stays_when_nobody_knows_whether_the_old_one_is_gone() {
    let others = Arc::<support::Others>::default();
    let setup = Setup { others: Some(Arc::clone(&others)), ..Setup::new(WriteMode::WriteBack) };
    let bench = setup.open().await;
    bench.under.refuse_objects(Some(refuses));
    let told = refused(&bench, "a//b").await;
    *others.unanswered.lock() = Some(records::object_key(&path("a//b")));
    let renamed = bench.cache.rename_undeliverable(&path("a//b"), told.generation, &path("a/b")).await;
    let error = renamed.expect_err("the answer of the catalog is lost");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.context.starts_with("the copy at /bucket/a/b stays, and whether /bucket/a//b was"), "{error}");
    assert_eq!(kind(bench.get("a//b").await), Some(ErrorKind::NotFound), "it was dropped");
    assert_eq!(bench.get("a/b").await.unwrap(), "of a//b");
}

/// As its bytes did under the old name.
#[tokio::test]
async fn what_has_another_name_survives_a_power_cut_whatever_the_rule_of_that_name_says() {
    for seed in seeds(4) {
        let mut bench = picky().await;
        let body = pattern(1, 1 << 20);
        bench.put("a//b", body.clone()).await.expect("nobody knows yet");
        let told = is_told(&bench, "a//b").await;
        let unsynced = PolicyRule { durability: Some(Durability::Os), ..rule("/bucket/os/", WriteMode::WriteBack) };
        let rules = vec![rule("/", WriteMode::WriteBack), unsynced];
        bench.cache.set_policies(rules, None, "root", "").await.unwrap();
        // Otherwise the under store may have it by then.
        bench.background.set(Way::Refuse("os/b".to_owned(), UfsKind::Unavailable));
        bench.cache.rename_undeliverable(&path("a//b"), told.generation, &path("os/b")).await.unwrap();
        bench.power_loss(seed).await;
        assert!(bench.get("os/b").await.unwrap() == body, "seed {seed}");
    }
}

/// Two workers before one under store that refuses some objects.
struct Two {
    here: Bench,
    there: Bench,
    /// Whom the first one asks.
    others: Others,
    /// The slots that are at home at the first one; the rest is at home at the second one.
    slots: SlotSet,
}

impl Two {
    async fn open() -> Self {
        let mut slots = SlotSet::none(SlotCount::new(8).expect("slots"));
        slots.count().all().take(4).for_each(|slot| slots.insert(slot));
        let (others, homes) = (Others::new(), Others::new());
        let setup = |name, asked: &Others, slots| Setup {
            worker: Some((name, Arc::new(asked.clone()) as _)),
            slots: Some(slots),
            ..Setup::new(WriteMode::WriteBack)
        };
        let here = setup(HERE, &others, slots.clone()).open().await;
        here.under.refuse_objects(Some(refuses));
        let there = Setup { under: Some(here.under.clone()), ..setup(THERE, &homes, slots.others()) }.open().await;
        others.answer(THERE, Answer::From(there.cache.clone()));
        homes.answer(HERE, Answer::From(here.cache.clone()));
        Self { here, there, others, slots }
    }

    /// Names in these slots.
    fn names(slots: &SlotSet, prefix: &str, count: usize) -> Vec<String> {
        let names = (0..).map(|number| format!("{prefix}{number:03}"));
        names.filter(|name| slots.has_path(&path(name))).take(count).collect()
    }

    /// Objects with these names that the under store has refused.
    async fn refused(&self, names: &[String]) -> Vec<Undeliverable> {
        let both = [&self.here, &self.there];
        both.iter().for_each(|bench| bench.background.set(Way::Closed));
        for name in names {
            self.here.put(name, format!("of {name}")).await.expect("nobody knows yet");
        }
        both.iter().for_each(|bench| bench.background.set(Way::Open));
        for bench in both {
            let all_are_told = || bench.cache.status().undeliverable == bench.cache.status().dirty_objects;
            bench.advancing("all are undeliverable", all_are_told).await;
        }
        all(&self.here).await
    }
}

fn generation(told: &[Undeliverable], key: &str) -> u64 {
    let found = told.iter().find(|told| told.path == format!("/{BUCKET}/{key}"));
    found.expect("it is told").generation
}

#[tokio::test]
async fn any_worker_of_a_cluster_tells_what_is_undeliverable_anywhere() {
    let two = Two::open().await;
    let (own, away) = (Two::names(&two.slots, "a//", 6), Two::names(&two.slots.others(), "a//", 6));
    two.refused(&[own.clone(), away.clone()].concat()).await;
    let mut expected: Vec<_> = own.iter().chain(&away).map(|key| format!("/{BUCKET}/{key}")).collect();
    expected.sort();
    for bench in [&two.here, &two.there] {
        let (mut told, mut after) = (Vec::new(), None);
        loop {
            let page = bench.cache.undeliverable("/", after.as_ref(), 5).await.unwrap();
            assert!(page.objects.len() <= 5 && page.unanswered.is_empty());
            told.extend(page.objects.into_iter().map(|told| told.path));
            let Some(next) = page.next else { break };
            after = Some(path(next.strip_prefix(&format!("/{BUCKET}/")).unwrap()));
        }
        assert_eq!(told, expected);
    }
    two.others.answer("silent", Answer::Nothing);
    let page = two.here.cache.undeliverable("/", None, 1000).await.unwrap();
    assert_eq!((page.objects.len(), page.unanswered), (12, vec!["silent".to_owned()]));
    two.others.are_unknown.store(true, Ordering::Relaxed);
    assert_eq!(kind(two.here.cache.undeliverable("/", None, 1000).await), Some(ErrorKind::Unavailable));
}

#[tokio::test]
async fn the_home_of_an_undeliverable_object_ends_it_whichever_worker_is_asked() {
    let two = Two::open().await;
    let (own, away) = (Two::names(&two.slots, "a//", 2), Two::names(&two.slots.others(), "a//", 4));
    let (to_own, to_away) = (Two::names(&two.slots, "b/", 1), Two::names(&two.slots.others(), "b/", 2));
    let told = two.refused(&[own.clone(), away.clone()].concat()).await;
    let cache = &two.here.cache;
    cache.keep_undeliverable(&path(&away[0]), generation(&told, &away[0])).await.unwrap();
    assert_eq!(two.there.state(&away[0]).await, StorageState::Transient);
    cache.discard_undeliverable(&path(&away[1]), generation(&told, &away[1])).await.unwrap();
    assert_eq!(kind(two.there.get(&away[1]).await), Some(ErrorKind::NotFound));
    for (key, to) in [(&own[0], &to_away[0]), (&away[2], &to_own[0]), (&away[3], &to_away[1])] {
        cache.rename_undeliverable(&path(key), generation(&told, key), &path(to)).await.unwrap();
        assert_eq!(two.here.get(to).await.unwrap(), format!("of {key}"));
        assert_eq!(kind(two.there.get(key).await), Some(ErrorKind::NotFound));
    }
    let left: Vec<_> = all(&two.there).await.into_iter().map(|told| told.path).collect();
    assert_eq!(left, [format!("/{BUCKET}/{}", own[1])]);
    let taken = cache.rename_undeliverable(&path(&own[1]), generation(&told, &own[1]), &path(&to_away[0])).await;
    assert_eq!(kind(taken), Some(ErrorKind::PreconditionFailed));
}
