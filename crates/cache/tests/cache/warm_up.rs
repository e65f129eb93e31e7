//! Clean copies that the new home of a slot takes over from the home before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use forebay_cache::{JobKind, Result};
use forebay_catalog::records::object_key;
use forebay_catalog::{SlotCount, SlotSet};
use forebay_env::Task;
use forebay_types::{ByteSize, Period, Tags, WriteMode};

use crate::held::{Answer, Others};
use crate::support::gate::Way;
use crate::support::jobs::{request, run};
use crate::support::{Bench, FORMER, HERE, Setup, collect, get_request, path, pattern, until};

const PAGE: u64 = 64 << 10;

/// Two workers before under stores with the same objects.
struct Pair {
    former: Bench,
    new: Bench,
    /// Whom the new home asks.
    others: Others,
}

fn all() -> SlotSet {
    SlotSet::none(SlotCount::new(4).expect("slots")).others()
}

fn setup() -> Setup {
    let setup = Setup::new(WriteMode::WriteBack).settings(|settings| {
        settings.page_size = ByteSize(PAGE);
        settings.memory_object_max = ByteSize(PAGE);
    });
    setup.policy(|rule| rule.metadata_ttl = Some(Period::from_secs(60)))
}

impl Pair {
    async fn open() -> Self {
        Self::open_with(None).await
    }

    /// Pairs whose new home tells what it needs.
    async fn telling() -> Self {
        Self::open_with(Some(all())).await
    }

    async fn open_with(slots: Option<SlotSet>) -> Self {
        let others = Others::new();
        let former = Setup { worker: Some((FORMER, Arc::new(Others::new()))), ..setup() }.open().await;
        let worker = Some((HERE, Arc::new(others.clone()) as _));
        let new = Setup { worker, slots, ..setup() }.open().await;
        others.answer(FORMER, Answer::From(former.cache.clone()));
        new.cache.lose(&all()).await.expect("lost");
        Self { former, new, others }
    }

    fn put_outside(&self, key: &str, body: &Bytes) {
        self.former.under.put_outside(key, body.clone());
        self.new.under.put_outside(key, body.clone());
    }

    async fn move_slots(&self) {
        self.former.cache.lose(&all()).await.expect("lost");
        self.new.cache.gain(&all()).await.expect("gained");
    }

    async fn pass_seconds(&self, seconds: u64) {
        self.former.pass_seconds(seconds).await;
        self.new.pass_seconds(seconds).await;
    }

    /// A reader of "key" at the new home, while the former one has not answered yet.
    async fn asking() -> (Self, Task<Result<Bytes>>) {
        let pair = Self::open().await;
        pair.put_outside("key", &"first".into());
        pair.former.get("key").await.expect("it is there");
        pair.move_slots().await;
        pair.others.permits.forget_permits(usize::MAX);
        let cache = pair.new.cache.clone();
        let reading = forebay_env::spawn(async move {
            let body = cache.get(get_request("key", None)).await?;
            collect(body.stream).await
        });
        until("it is asked", || pair.asked() == 1).await;
        (pair, reading)
    }

    /// How often the under store was asked at the new home: for bytes, and for descriptions.
    fn requests(&self) -> (usize, u64) {
        (self.new.foreground.gets().len(), self.new.foreground.heads())
    }

    fn asked(&self) -> u64 {
        self.others.asked.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn what_the_former_home_has_is_not_read_from_the_under_store_again() {
    let pair = Pair::open().await;
    let (small, large) = (pattern(1, 1000), pattern(2, 5 * PAGE as usize + 17));
    for (key, body) in [("small", &small), ("large", &large)] {
        pair.put_outside(key, body);
        assert_eq!(pair.former.get(key).await.unwrap(), *body);
    }
    let info = pair.former.head("small").await.unwrap().info;
    pair.former.put("written", "through Forebay").await.unwrap();
    pair.former.drain().await;
    pair.new.under.put_outside("written", "through Forebay".into());
    pair.move_slots().await;
    assert_eq!(pair.new.get("small").await.unwrap(), small);
    assert_eq!(pair.new.get_range("large", 100, 70_000).await.unwrap(), large.slice(100..70_001));
    assert_eq!(pair.new.get("large").await.unwrap(), large);
    assert_eq!(pair.new.get("written").await.unwrap(), "through Forebay");
    assert_eq!(pair.new.head("small").await.unwrap().info, info);
    assert_eq!(pair.requests(), (0, 0));
    assert_eq!(pair.new.metric("forebay_warm_up_objects_total"), 3.0);
    assert_eq!(pair.new.metric("forebay_warm_up_bytes_total"), (small.len() + large.len() + 15) as f64);
    // They are here now.
    let asked = pair.asked();
    assert_eq!((pair.new.get("large").await.unwrap(), pair.asked()), (large, asked));
}

/// A part of the object is enough.
#[tokio::test]
async fn pages_that_the_former_home_lacks_come_from_the_under_store() {
    let pair = Pair::open().await;
    let body = pattern(1, 4 * PAGE as usize);
    pair.put_outside("key", &body);
    pair.former.get_range("key", PAGE, PAGE + 5).await.unwrap();
    pair.move_slots().await;
    assert_eq!(pair.new.get("key").await.unwrap(), body);
    assert_eq!(pair.requests(), (3, 0));
}

/// What the former home knew is as old here as it was there.
#[tokio::test]
async fn a_copy_that_was_validated_long_ago_is_validated_again() {
    let pair = Pair::open().await;
    for key in ["same", "changed", "gone"] {
        pair.put_outside(key, &"first".into());
        pair.former.get(key).await.unwrap();
    }
    pair.pass_seconds(40).await;
    pair.move_slots().await;
    pair.new.under.put_outside("changed", "second".into());
    assert_eq!(pair.new.get("changed").await.unwrap(), "first", "within the time that the policy allows");
    pair.pass_seconds(25).await;
    assert_eq!(pair.new.get("changed").await.unwrap(), "second");
    pair.new.under.delete_outside("gone");
    assert!(pair.new.get("gone").await.is_err());
    let gets = pair.requests().0;
    assert_eq!((pair.new.get("same").await.unwrap(), pair.requests().0), ("first".into(), gets), "only a HEAD");
}

/// Its copy may be of an older version.
#[tokio::test]
async fn nothing_is_taken_over_of_an_object_that_was_written_or_asked_for_since() {
    let pair = Pair::open().await;
    for key in ["written", "deleted", "changed"] {
        pair.put_outside(key, &"first".into());
        pair.former.get(key).await.unwrap();
    }
    pair.move_slots().await;
    pair.new.put("written", "second").await.unwrap();
    pair.new.delete("deleted").await.unwrap();
    pair.new.drain().await;
    // It is asked for by a reader that nothing is kept for.
    pair.others.answer(FORMER, Answer::Nothing);
    pair.new.under.put_outside("changed", "second".into());
    assert_eq!(pair.new.get("changed").await.unwrap(), "second");
    pair.others.answer(FORMER, Answer::From(pair.former.cache.clone()));
    pair.pass_seconds(10).await;
    for key in ["written", "changed"] {
        let generation = pair.new.head(key).await.unwrap().generation.unwrap();
        assert!(pair.new.store.evict(&object_key(&path(key)), generation), "{key}");
    }
    let asked = pair.asked();
    assert_eq!(pair.new.get("written").await.unwrap(), "second");
    assert_eq!(pair.new.get("changed").await.unwrap(), "second");
    assert!(pair.new.get("deleted").await.is_err());
    assert_eq!(pair.asked(), asked);
}

#[tokio::test]
async fn a_worker_that_is_the_home_gives_no_copies() {
    let pair = Pair::open().await;
    pair.put_outside("key", &"value".into());
    pair.former.get("key").await.unwrap();
    assert!(pair.former.cache.clean_copy(&path("key"), PAGE).await.unwrap().is_none());
    pair.former.background.set(Way::Refuse("dirty".to_owned(), forebay_ufs::ErrorKind::Unavailable));
    pair.former.put("dirty", "value").await.unwrap();
    pair.former.cache.lose(&all()).await.unwrap();
    assert!(pair.former.cache.clean_copy(&path("key"), PAGE).await.unwrap().is_some());
    assert!(pair.former.cache.clean_copy(&path("dirty"), PAGE).await.unwrap().is_none());
}

/// Its copies may be of a time before it was the home.
#[tokio::test]
async fn a_worker_that_has_started_again_gives_pages_and_no_descriptions() {
    let mut pair = Pair::open().await;
    let body = pattern(1, 2 * PAGE as usize);
    pair.put_outside("key", &body);
    pair.former.get("key").await.unwrap();
    pair.former.restart().await;
    pair.others.answer(FORMER, Answer::From(pair.former.cache.clone()));
    pair.move_slots().await;
    assert_eq!(pair.new.get_range("key", PAGE, PAGE + 1).await.unwrap(), body.slice(PAGE as usize..PAGE as usize + 2));
    assert_eq!(pair.requests(), (0, 1));
    assert_eq!(pair.new.metric("forebay_warm_up_objects_total"), 0.0);
}

#[tokio::test]
async fn a_write_while_the_former_home_answers_is_not_undone() {
    let (pair, reading) = Pair::asking().await;
    pair.new.put("key", "second").await.unwrap();
    pair.new.drain().await;
    pair.others.permits.add_permits(1000);
    reading.join().await.unwrap();
    assert_eq!(pair.new.get("key").await.unwrap(), "second");
    assert_eq!(pair.new.metric("forebay_warm_up_objects_total"), 0.0);
}

#[tokio::test]
async fn what_the_under_store_says_while_the_former_home_answers_counts() {
    let (pair, reading) = Pair::asking().await;
    pair.new.under.put_outside("key", "second".into());
    // That asks the under store without waiting for the read.
    pair.new.cache.set_tags(&path("key"), Tags::new()).await.unwrap();
    pair.others.permits.add_permits(1000);
    assert_eq!(reading.join().await.unwrap(), "second");
}

#[tokio::test]
async fn reads_after_a_free_job_are_fresh() {
    let pair = Pair::open().await;
    pair.put_outside("key", &"first".into());
    pair.former.get("key").await.unwrap();
    pair.move_slots().await;
    pair.new.under.put_outside("key", "second".into());
    run(&pair.new, request(JobKind::Free, "/")).await;
    assert_eq!(pair.new.get("key").await.unwrap(), "second");
}

#[tokio::test]
async fn a_free_job_ends_the_warm_up_of_its_path_alone() {
    let pair = Pair::open().await;
    for key in ["freed/key", "other"] {
        pair.put_outside(key, &"first".into());
        pair.former.get(key).await.unwrap();
    }
    pair.move_slots().await;
    pair.new.under.put_outside("freed/key", "second".into());
    run(&pair.new, request(JobKind::Free, "/bucket/freed/")).await;
    assert_eq!(pair.new.get("freed/key").await.unwrap(), "second");
    let asked = pair.asked();
    assert_eq!(pair.new.get("other").await.unwrap(), "first");
    assert_eq!((pair.requests().0, pair.asked()), (1, asked + 1));
}

#[tokio::test]
async fn a_former_home_that_does_not_answer_is_left_alone_for_a_while() {
    let pair = Pair::open().await;
    for key in ["a", "b", "c"] {
        pair.put_outside(key, &"value".into());
        pair.former.get(key).await.unwrap();
    }
    pair.move_slots().await;
    pair.others.answer(FORMER, Answer::Nothing);
    assert_eq!(pair.new.get("a").await.unwrap(), "value");
    pair.others.answer(FORMER, Answer::From(pair.former.cache.clone()));
    assert_eq!(pair.new.get("b").await.unwrap(), "value");
    assert_eq!((pair.requests().0, pair.asked()), (2, 0));
    pair.pass_seconds(6).await;
    assert_eq!(pair.new.get("c").await.unwrap(), "value");
    assert_eq!((pair.requests().0, pair.asked()), (2, 1));
}

/// The new home may have started a moment ago.
#[tokio::test]
async fn what_was_validated_before_this_process_began_counts() {
    let pair = Pair::open().await;
    pair.former.clock.advance(Duration::from_secs(1000));
    pair.put_outside("key", &"value".into());
    pair.former.get("key").await.unwrap();
    pair.former.clock.advance(Duration::from_secs(30));
    pair.move_slots().await;
    assert_eq!(pair.new.get("key").await.unwrap(), "value");
    assert_eq!(pair.requests(), (0, 0));
    pair.new.clock.advance(Duration::from_secs(31));
    assert_eq!(pair.new.get("key").await.unwrap(), "value");
    assert_eq!(pair.requests(), (0, 1));
}

#[tokio::test]
async fn warm_up_ends() {
    let pair = Pair::open().await;
    pair.put_outside("key", &"value".into());
    pair.former.get("key").await.unwrap();
    pair.move_slots().await;
    pair.new.clock.advance(Duration::from_secs(3601));
    assert_eq!(pair.new.get("key").await.unwrap(), "value");
    assert_eq!((pair.requests().0, pair.asked()), (1, 0), "an hour is enough");
}

/// Reads at the former home: the first one brings the object there, and the others count.
async fn read_often(pair: &Pair, key: &str, times: usize) {
    for _ in 0..=times {
        pair.former.get(key).await.expect("it is there");
    }
}

/// What a worker that leaves asks: it is where a hand-over begins.
fn takes_over(bench: &Bench) -> bool {
    bench.cache.needs().expect("an answer").takes_over_from.contains(FORMER)
}

#[tokio::test]
async fn what_a_worker_that_leaves_has_read_often_is_taken_over_before_it_is_read_here() {
    let pair = Pair::telling().await;
    let (small, large) = (pattern(1, 1000), pattern(2, 9 * PAGE as usize + 17));
    for (key, body) in [("small", &small), ("large", &large), ("cold", &small), ("hottest", &small)] {
        pair.put_outside(key, body);
    }
    read_often(&pair, "hottest", 5).await;
    read_often(&pair, "small", 2).await;
    read_often(&pair, "cold", 0).await;
    for range in [0..5, PAGE + 5..PAGE + 6, 4 * PAGE..6 * PAGE] {
        pair.former.get_range("large", range.start, range.end - 1).await.unwrap();
    }
    let last = 9 * PAGE;
    pair.former.get_range("large", last, last + 16).await.unwrap();
    let slots = all();
    assert!(pair.former.cache.hot_objects(&slots).await.is_empty(), "a home gives nothing away");
    *pair.others.leaving.lock() = FORMER.to_owned();
    pair.move_slots().await;
    until("the end", || !takes_over(&pair.new)).await;
    let hot = pair.former.cache.hot_objects(&slots).await;
    assert_eq!(hot.iter().map(|hot| hot.path.key.as_str()).collect::<Vec<_>>(), ["hottest", "large", "small"]);
    assert!(pair.former.cache.hot_objects(&slots.others()).await.is_empty());
    pair.others.answer(FORMER, Answer::Nothing);
    assert_eq!(pair.new.get("hottest").await.unwrap(), small);
    assert_eq!(pair.new.get("small").await.unwrap(), small);
    for page in [0, 1, 4, 5, 9] {
        let range = page * PAGE as usize..(page * PAGE as usize + 3).min(large.len());
        assert_eq!(
            pair.new.get_range("large", range.start as u64, range.end as u64 - 1).await.unwrap(),
            large.slice(range)
        );
    }
    assert_eq!(pair.requests(), (0, 0));
    // It counts as read, and is kept as long as what is read here.
    assert!(pair.new.store.peek(&object_key(&path("small"))).unwrap().access().reads >= 2);
    assert_eq!(pair.new.get("cold").await.unwrap(), small);
    pair.new.get_range("large", 2 * PAGE, 2 * PAGE).await.unwrap();
    assert_eq!(pair.requests(), (2, 0), "what was not hot comes from the under store");
}

#[tokio::test]
async fn nothing_is_taken_over_at_once_from_a_worker_that_stays() {
    let pair = Pair::telling().await;
    pair.put_outside("key", &"value".into());
    read_often(&pair, "key", 3).await;
    pair.move_slots().await;
    assert!(!takes_over(&pair.new));
    assert_eq!(pair.new.get("key").await.unwrap(), "value");
    assert_eq!(pair.asked(), 1);
}

#[tokio::test]
async fn a_worker_that_leaves_is_kept_waiting_for_half_a_minute_at_most() {
    let pair = Pair::telling().await;
    pair.put_outside("key", &"value".into());
    read_often(&pair, "key", 3).await;
    *pair.others.leaving.lock() = FORMER.to_owned();
    pair.others.permits.forget_permits(usize::MAX);
    pair.move_slots().await;
    assert!(takes_over(&pair.new));
    pair.new.pass_seconds(29).await;
    assert!(takes_over(&pair.new));
    pair.new.pass_seconds(2).await;
    until("the end", || !takes_over(&pair.new)).await;
    pair.others.answer(FORMER, Answer::Nothing);
    assert_eq!(pair.new.get("key").await.unwrap(), "value");
}

/// Slots that it has given up before, to a worker that has joined.
#[tokio::test]
async fn a_worker_that_leaves_later_hands_over_too() {
    let pair = Pair::telling().await;
    pair.put_outside("key", &"value".into());
    read_often(&pair, "key", 3).await;
    pair.move_slots().await;
    pair.pass_seconds(50).await;
    assert!(!takes_over(&pair.new));
    *pair.others.leaving.lock() = FORMER.to_owned();
    assert!(takes_over(&pair.new));
    until("the end", || !takes_over(&pair.new)).await;
    pair.others.answer(FORMER, Answer::Nothing);
    assert_eq!(pair.new.get("key").await.unwrap(), "value");
    assert_eq!(pair.requests(), (0, 0));
}

#[tokio::test]
async fn a_worker_that_leaves_and_answers_late_is_asked_again() {
    let pair = Pair::telling().await;
    let keys: Vec<String> = (0..30).map(|number| format!("key{number}")).collect();
    for key in &keys {
        pair.put_outside(key, &"value".into());
        read_often(&pair, key, 2).await;
    }
    *pair.others.leaving.lock() = FORMER.to_owned();
    pair.others.refusals.store(2, Ordering::Relaxed);
    pair.move_slots().await;
    assert!(takes_over(&pair.new));
    for left in [1, 0] {
        until("a refusal", || pair.others.refusals.load(Ordering::Relaxed) == left).await;
        pair.new.pass_seconds(6).await;
    }
    until("the end", || !takes_over(&pair.new)).await;
    pair.others.answer(FORMER, Answer::Nothing);
    for key in &keys {
        assert_eq!(pair.new.get(key).await.unwrap(), "value");
    }
    assert_eq!(pair.requests(), (0, 0));
}

/// What was in flight to it ends with it.
#[tokio::test]
async fn a_worker_that_dies_while_it_leaves_is_not_waited_for() {
    let pair = Pair::telling().await;
    pair.put_outside("key", &"value".into());
    read_often(&pair, "key", 3).await;
    *pair.others.leaving.lock() = FORMER.to_owned();
    pair.others.refusals.store(u64::MAX, Ordering::Relaxed);
    pair.move_slots().await;
    assert!(takes_over(&pair.new));
    until("a refusal", || pair.others.refusals.load(Ordering::Relaxed) < u64::MAX).await;
    pair.others.workers.lock().remove(FORMER);
    pair.new.pass_seconds(6).await;
    until("the end", || !takes_over(&pair.new)).await;
    assert_eq!(pair.new.get("key").await.unwrap(), "value");
    assert_eq!(pair.requests().0, 1);
}

/// A client that wants it meanwhile gets it, too, and nobody asks the under store.
#[tokio::test]
async fn a_reader_waits_for_a_hand_over_of_its_object() {
    let pair = Pair::telling().await;
    pair.put_outside("key", &"value".into());
    read_often(&pair, "key", 3).await;
    *pair.others.leaving.lock() = FORMER.to_owned();
    pair.move_slots().await;
    pair.others.permits.forget_permits(usize::MAX);
    assert!(takes_over(&pair.new));
    // For the question which objects are hot.
    pair.others.permits.add_permits(1);
    until("it is asked", || pair.asked() == 1).await;
    let cache = pair.new.cache.clone();
    let reading = async move {
        let body = cache.get(get_request("key", None)).await?;
        collect(body.stream).await
    };
    let reading = forebay_env::spawn(forebay_env::Requester::named("client").gets(reading));
    pair.others.permits.add_permits(1000);
    assert_eq!(reading.join().await.unwrap(), "value");
    assert_eq!((pair.requests(), pair.asked()), ((0, 0), 1));
}

#[tokio::test]
async fn slots_that_are_lost_again_are_not_waited_for() {
    let pair = Pair::telling().await;
    pair.put_outside("key", &"value".into());
    read_often(&pair, "key", 3).await;
    *pair.others.leaving.lock() = FORMER.to_owned();
    pair.others.permits.forget_permits(usize::MAX);
    pair.move_slots().await;
    assert!(takes_over(&pair.new));
    pair.new.cache.lose(&all()).await.unwrap();
    assert!(!takes_over(&pair.new));
}

/// Such as one on a damaged place of a disk. A worker is drained because of it.
#[tokio::test]
async fn an_object_that_breaks_off_stops_no_others() {
    let pair = Pair::telling().await;
    for key in ["a", "b", "broken", "c"] {
        pair.put_outside(key, &"value".into());
        read_often(&pair, key, 2).await;
    }
    *pair.others.broken.lock() = "broken".to_owned();
    *pair.others.leaving.lock() = FORMER.to_owned();
    pair.move_slots().await;
    assert!(takes_over(&pair.new));
    until("the end", || !takes_over(&pair.new)).await;
    pair.others.answer(FORMER, Answer::Nothing);
    for key in ["a", "b", "broken", "c"] {
        assert_eq!(pair.new.get(key).await.unwrap(), "value");
    }
    assert_eq!(pair.requests().0, 1, "only the broken one is read from the under store");
}
