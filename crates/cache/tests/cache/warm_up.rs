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
        let others = Others::new();
        let former = Setup { worker: Some((FORMER, Arc::new(Others::new()))), ..setup() }.open().await;
        let new = Setup { worker: Some((HERE, Arc::new(others.clone()))), ..setup() }.open().await;
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
