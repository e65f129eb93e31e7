//! Reads at another worker than the home of an object, under a lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use forebay_cache::{
    Attributes, Conditions, ErrorKind, GetObject, JobKind, LeaseRequest, OtherWorkers, PutObject, RangeRequest, Reader,
};
use forebay_catalog::records::object_key;
use forebay_catalog::{SlotCount, SlotSet};
use forebay_env::Clock;
use forebay_types::{ByteSize, Period, WriteMode};
use parking_lot::Mutex;

use crate::held::{Answer, Others, THERE};
use crate::support::jobs::{request, start};
use crate::support::{Bench, HERE, Setup, collect, get_request, if_matches, incoming, kind, path, until};

/// The home of all keys, and a worker that reads under its leases.
pub(crate) struct Pair {
    pub(crate) here: Bench,
    pub(crate) there: Bench,
    /// Whom the home asks.
    readers: Others,
    /// Whom the reader asks.
    pub(crate) homes: Others,
    /// Until when the home is sure of its slots.
    leased_until: Arc<Mutex<Duration>>,
}

pub(crate) fn put(key: &str, body: &'static str) -> PutObject {
    let (body, attributes) = (incoming(Bytes::from_static(body.as_bytes())), Attributes::default());
    PutObject { path: path(key), body, attributes, conditions: Conditions::default() }
}

pub(crate) fn no_slots() -> SlotSet {
    SlotSet::none(SlotCount::new(8).expect("a number of slots"))
}

pub(crate) async fn pair_of(home: Setup, reader: Setup) -> Pair {
    let (readers, homes) = (Others::new(), Others::new());
    let there =
        Setup { worker: Some((THERE, Arc::new(homes.clone()))), slots: Some(no_slots()), ..reader }.open().await;
    readers.answer(THERE, Answer::From(there.cache.clone()));
    let leased_until = Arc::new(Mutex::new(Duration::from_secs(1 << 30)));
    let worker: Option<(&str, Arc<dyn OtherWorkers>)> = Some((HERE, Arc::new(readers.clone())));
    let slots = Some(no_slots().others());
    let here = Setup { worker, slots, leased_until: Some(Arc::clone(&leased_until)), ..home }.open().await;
    homes.answer(HERE, Answer::From(here.cache.clone()));
    Pair { here, there, readers, homes, leased_until }
}

async fn pair() -> Pair {
    pair_of(Setup::new(WriteMode::WriteBack), Setup::new(WriteMode::WriteBack)).await
}

impl Pair {
    /// Whether the reader answers reads of the key by itself, once it has been asked twice.
    async fn reads(&self, key: &str) -> bool {
        self.there.cache.was_read(&path(key));
        self.there.cache.reads_here(&path(key)).await
    }

    /// What the reader answers without its home.
    async fn alone(&self, key: &str) -> Option<Bytes> {
        self.homes.answer(HERE, Answer::Nothing);
        self.homes.workers.lock().insert("home".to_owned(), Answer::Naming);
        let read = self.there.get(key).await.ok();
        self.homes.workers.lock().remove("home");
        self.homes.answer(HERE, Answer::From(self.here.cache.clone()));
        read
    }

    /// Leases are counted on both machines.
    async fn pass_seconds(&self, seconds: u64) {
        self.here.pass_seconds(seconds).await;
        self.there.pass_seconds(seconds).await;
    }
}

#[tokio::test]
async fn what_is_read_often_is_answered_without_asking_its_home() {
    let pair = pair().await;
    pair.here.put("key", "hot data").await.unwrap();
    assert!(!pair.there.cache.reads_here(&path("key")).await, "one read is none too many for the home");
    assert!(
        !pair.there.cache.reads_here(&path("key")).await,
        "the home has not answered: the reader may have no right"
    );
    assert_eq!(pair.there.get("key").await.unwrap(), "hot data");
    pair.there.cache.was_read(&path("key"));
    assert_eq!(pair.alone("key").await, None);
    assert!(pair.there.cache.reads_here(&path("key")).await);
    assert_eq!(pair.alone("key").await.unwrap(), "hot data");
    let ranged = pair.there.open_get("key", Some(RangeRequest::From { first: 4, last: None })).await.unwrap();
    assert_eq!((ranged.head.range.start, ranged.head.is_partial), (4, true));
    assert_eq!(collect(ranged.stream).await.unwrap(), "data");
    let (near, at_home) = (pair.there.head("key").await.unwrap(), pair.here.head("key").await.unwrap());
    assert_eq!((&near.info, near.state, near.generation), (&at_home.info, at_home.state, at_home.generation));
    let mut unchanged = get_request("key", None);
    unchanged.conditions.if_none_match = if_matches(&near.info.etag).if_match;
    assert_eq!(kind(pair.there.cache.get(unchanged).await), Some(ErrorKind::NotModified));
    assert_eq!(pair.there.metric("forebay_leased_reads_total"), 4.0);
    let avoided =
        |operation: &str| pair.there.metric(&format!("forebay_requests_avoided_total{{operation=\"{operation}\"}}"));
    assert_eq!((avoided("get"), avoided("head")), (2.0, 1.0));
    assert_eq!(pair.here.metric("forebay_read_leases_granted_total"), 1.0);
}

/// Copies rely on it: they ask whether their source is still the same.
#[tokio::test]
async fn a_read_with_no_cache_is_answered_by_the_home() {
    for is_head in [false, true] {
        let pair = pair().await;
        pair.here.under.put_outside("key", "before".into());
        assert_eq!(pair.here.get("key").await.unwrap(), "before");
        assert!(pair.reads("key").await);
        pair.here.under.put_outside("key", "later".into());
        let request = GetObject { no_cache: true, ..get_request("key", None) };
        let size = match is_head {
            true => pair.there.cache.head(request).await.unwrap().info.size,
            false => pair.there.cache.get(request).await.unwrap().head.info.size,
        };
        assert_eq!(size, 5, "is a HEAD: {is_head}");
    }
}

#[tokio::test]
async fn a_lease_ends_and_is_renewed_without_the_bytes() {
    let pair = pair().await;
    pair.here.put("key", "hot").await.unwrap();
    assert!(pair.reads("key").await);
    pair.pass_seconds(5).await;
    assert_eq!(pair.alone("key").await, None);
    let read_before = pair.here.metric("forebay_reads_total");
    assert!(pair.there.cache.reads_here(&path("key")).await);
    assert_eq!(pair.alone("key").await.unwrap(), "hot");
    assert_eq!(pair.here.metric("forebay_reads_total"), read_before);
}

#[tokio::test]
async fn a_change_ends_the_leases_on_its_key_first() {
    let pair = pair().await;
    for key in ["key", "other"] {
        pair.here.put(key, "old").await.unwrap();
        assert!(pair.reads(key).await);
    }
    pair.here.put("key", "new").await.unwrap();
    assert_eq!(pair.alone("key").await, None);
    assert_eq!(pair.there.get("key").await.unwrap(), "new");
    assert_eq!(pair.alone("other").await.unwrap(), "old");
    pair.here.delete("other").await.unwrap();
    assert_eq!(kind(pair.there.get("other").await), Some(ErrorKind::NotFound));
    assert_eq!(pair.here.metric("forebay_read_leases_revoked_total"), 2.0);
}

/// It may have lost its connections, or be suspended, and still answer under its lease.
#[tokio::test]
async fn a_change_waits_for_a_reader_that_does_not_answer() {
    let pair = pair().await;
    pair.here.put("key", "old").await.unwrap();
    assert!(pair.reads("key").await);
    pair.readers.answer(THERE, Answer::Nothing);
    let cache = pair.here.cache.clone();
    let began = pair.here.clock.monotonic();
    let writing = forebay_env::spawn(async move { cache.put(put("key", "new")).await });
    pair.here.advancing("the lease is over", || writing.is_finished()).await;
    assert!(pair.here.clock.monotonic() - began >= Duration::from_secs(5));
    writing.join().await.unwrap();
    assert_eq!(pair.here.get("key").await.unwrap(), "new");
}

#[tokio::test]
async fn a_lease_that_has_ended_on_its_way_is_not_used() {
    let pair = pair().await;
    pair.here.put("key", "old").await.unwrap();
    pair.there.cache.was_read(&path("key"));
    // The answer is written and does not arrive.
    let all = pair.homes.permits.forget_permits(usize::MAX);
    let asking = {
        let cache = pair.there.cache.clone();
        forebay_env::spawn(async move { cache.reads_here(&path("key")).await })
    };
    pair.here.advancing("the lease is granted", || pair.here.metric("forebay_read_leases_granted_total") == 1.0).await;
    pair.here.put("key", "new").await.unwrap();
    pair.homes.permits.add_permits(all);
    assert!(!asking.join().await);
    assert_eq!(pair.alone("key").await, None);
    assert_eq!(pair.there.get("key").await.unwrap(), "new");
}

#[tokio::test]
async fn slots_that_are_given_up_and_workers_that_stop_leave_no_leases() {
    let pair = pair().await;
    pair.here.put("key", "old").await.unwrap();
    assert!(pair.reads("key").await);
    pair.here.cache.lose(&no_slots().others()).await.unwrap();
    assert_eq!(pair.alone("key").await, None);
    pair.here.cache.gain(&no_slots().others()).await.unwrap();
    pair.there.pass_seconds(11).await;
    assert!(pair.reads("key").await);
    pair.here.close().await;
    assert_eq!(pair.alone("key").await, None);
}

/// The process before may have granted leases, which nobody knows of.
#[tokio::test]
async fn a_process_changes_nothing_before_the_leases_of_a_killed_one_are_over() {
    let mut pair = pair().await;
    pair.here.put("key", "old").await.unwrap();
    assert!(pair.reads("key").await);
    pair.here.setup.follows_crash = true;
    pair.here.kill().await;
    assert_eq!(pair.here.get("key").await.unwrap(), "old");
    let (cache, began) = (pair.here.cache.clone(), pair.here.clock.monotonic());
    let deleting = forebay_env::spawn(async move { cache.delete(&path("key"), &Conditions::default()).await });
    pair.here.advancing("the leases are over", || deleting.is_finished()).await;
    assert!(pair.here.clock.monotonic() - began >= Duration::from_secs(5));
    deleting.join().await.unwrap();
}

/// Others may read the version before under a lease that nobody knows of. The crash may also have taken the copy.
#[tokio::test]
async fn a_process_shows_no_newer_version_before_the_leases_of_a_killed_one_are_over() {
    for (follows_crash, is_deleted) in [(false, false), (true, false), (true, true)] {
        let home = Setup::new(WriteMode::WriteThrough).policy(|rule| rule.metadata_ttl = Some(Period::from_secs(3600)));
        let mut pair = pair_of(home, Setup::new(WriteMode::WriteThrough)).await;
        pair.here.put("key", "old").await.unwrap();
        pair.here.pass_seconds(1).await;
        assert!(pair.reads("key").await);
        pair.here.setup.follows_crash = follows_crash;
        pair.here.kill().await;
        let copy = object_key(&path("key"));
        if let Some(generation) = pair.here.store.peek(&copy).map(|object| object.generation()) {
            assert!(pair.here.store.evict(&copy, generation));
        }
        match is_deleted {
            true => pair.here.under.delete_outside("key"),
            false => pair.here.under.put_outside("key", Bytes::from_static(b"newer")),
        }
        let (cache, began) = (pair.here.cache.clone(), pair.here.clock.monotonic());
        let read = async move { cache.get(get_request("key", None)).await.map(|answer| answer.head.info.size) };
        let reading = forebay_env::spawn(read);
        pair.here.advancing("the read is answered", || reading.is_finished()).await;
        let has_waited = pair.here.clock.monotonic() - began >= Duration::from_secs(5);
        assert_eq!(has_waited, follows_crash, "is deleted: {is_deleted}");
        match (is_deleted, reading.join().await) {
            (true, read) => assert_eq!(kind(read), Some(ErrorKind::NotFound)),
            (false, read) => assert_eq!(read.unwrap(), 5),
        }
    }
}

#[tokio::test]
async fn a_lease_lasts_no_longer_than_the_home_is_sure_of_its_slots() {
    let pair = pair().await;
    pair.here.put("key", "old").await.unwrap();
    *pair.leased_until.lock() = pair.here.clock.monotonic() + Duration::from_secs(2);
    assert!(pair.reads("key").await);
    pair.there.pass_seconds(1).await;
    assert_eq!(pair.alone("key").await.unwrap(), "old");
    pair.there.pass_seconds(1).await;
    assert_eq!(pair.alone("key").await, None);
}

/// Somebody else may change the object in the under store.
#[tokio::test]
async fn a_lease_on_a_clean_copy_lasts_no_longer_than_what_the_under_store_said() {
    let home = Setup::new(WriteMode::WriteThrough).policy(|rule| rule.metadata_ttl = Some(Period::from_secs(3)));
    let pair = pair_of(home, Setup::new(WriteMode::WriteThrough)).await;
    pair.here.put("key", "clean").await.unwrap();
    pair.here.pass_seconds(1).await;
    assert!(pair.reads("key").await);
    pair.there.pass_seconds(1).await;
    assert_eq!(pair.alone("key").await.unwrap(), "clean");
    pair.there.pass_seconds(1).await;
    assert_eq!(pair.alone("key").await, None);
}

/// The home may lose its copy before the lease is over, and then sees what somebody else has written.
#[tokio::test]
async fn nobody_reads_an_older_version_under_a_lease_than_the_home_has_shown() {
    let home = Setup::new(WriteMode::WriteThrough).policy(|rule| rule.metadata_ttl = Some(Period::from_secs(3600)));
    let pair = pair_of(home, Setup::new(WriteMode::WriteThrough)).await;
    for key in ["changed", "deleted"] {
        pair.here.put(key, "old").await.unwrap();
        pair.here.pass_seconds(1).await;
        assert!(pair.reads(key).await, "{key}");
        let copy = object_key(&path(key));
        let generation = pair.here.store.peek(&copy).map(|object| object.generation()).unwrap();
        assert!(pair.here.store.evict(&copy, generation));
        assert_eq!(pair.alone(key).await.unwrap(), "old");
        if key == "changed" {
            pair.here.under.put_outside(key, Bytes::from_static(b"new"));
        } else {
            pair.here.under.delete_outside(key);
        }
        assert_eq!(pair.here.get(key).await.ok(), (key == "changed").then(|| Bytes::from_static(b"new")));
        assert_eq!(pair.alone(key).await, None, "{key}");
    }
    assert_eq!(pair.here.metric("forebay_read_leases_revoked_total"), 2.0);
}

/// A job that loads finds what somebody else has written, as a reader does.
#[tokio::test]
async fn a_load_ends_leases_on_an_older_version_first() {
    let home = Setup::new(WriteMode::WriteThrough).policy(|rule| rule.metadata_ttl = Some(Period::from_secs(3600)));
    let pair = pair_of(home, Setup::new(WriteMode::WriteThrough)).await;
    pair.here.put("key", "old").await.unwrap();
    pair.here.pass_seconds(1).await;
    assert!(pair.reads("key").await);
    let copy = object_key(&path("key"));
    let generation = || pair.here.store.peek(&copy).map(|object| object.generation());
    assert!(pair.here.store.evict(&copy, generation().unwrap()));
    pair.here.under.put_outside("key", Bytes::from_static(b"new"));
    start(&pair.here, request(JobKind::Load, "/bucket/")).await;
    until("it is loaded", || generation().is_some()).await;
    assert_eq!(pair.alone("key").await, None);
    assert_eq!(pair.here.get("key").await.unwrap(), "new");
}

/// The next reads are fresh, wherever they are.
#[tokio::test]
async fn a_free_job_ends_the_leases_in_its_scope() {
    let home = Setup::new(WriteMode::WriteThrough).policy(|rule| rule.metadata_ttl = Some(Period::from_secs(3600)));
    let pair = pair_of(home, Setup::new(WriteMode::WriteThrough)).await;
    let keys = ["freed/key", "other"];
    for key in keys {
        pair.here.put(key, "old").await.unwrap();
    }
    pair.here.pass_seconds(1).await;
    for key in keys {
        assert!(pair.reads(key).await, "{key}");
    }
    pair.here.under.put_outside("freed/key", Bytes::from_static(b"new"));
    start(&pair.here, request(JobKind::Free, "/bucket/freed/")).await;
    let ended = "forebay_jobs_ended_total{kind=\"free\",state=\"done\"}";
    until("the home has freed its copies", || pair.here.metric(ended) == 1.0).await;
    assert_eq!(pair.alone("freed/key").await, None);
    assert_eq!(pair.there.get("freed/key").await.unwrap(), "new");
    assert_eq!(pair.alone("other").await.unwrap(), "old");
}

#[tokio::test]
async fn a_write_does_not_wait_for_a_reader_that_was_refused() {
    let pair = pair().await;
    assert!(!pair.reads("key").await);
    pair.readers.answer(THERE, Answer::Nothing);
    pair.here.put("key", "new").await.unwrap();
}

#[tokio::test]
async fn only_small_objects_that_are_all_here_are_leased() {
    let home = Setup::new(WriteMode::WriteBack);
    let reader = Setup::new(WriteMode::WriteBack).settings(|settings| settings.memory_object_max = ByteSize(8));
    let pair = pair_of(home, reader).await;
    pair.here.put("small", "12345678").await.unwrap();
    pair.here.put("large", "123456789").await.unwrap();
    pair.here.put("empty", "").await.unwrap();
    pair.here.under.put_outside("cold", Bytes::from_static(b"cold"));
    assert!(pair.reads("small").await && pair.reads("empty").await);
    assert!(!pair.reads("large").await && !pair.reads("cold").await && !pair.reads("absent").await);
    assert_eq!(pair.alone("empty").await.unwrap(), "");
    assert_eq!(pair.there.get("large").await.unwrap(), "123456789");
}

#[tokio::test]
async fn a_policy_can_keep_reads_at_the_home() {
    let at_home = |setup: Setup| setup.policy(|rule| rule.spread_reads = Some(false));
    for (home, reader) in [(true, false), (false, true)] {
        let setup = |is_kept: bool| {
            if is_kept { at_home(Setup::new(WriteMode::WriteBack)) } else { Setup::new(WriteMode::WriteBack) }
        };
        let pair = pair_of(setup(home), setup(reader)).await;
        pair.here.put("key", "kept").await.unwrap();
        assert!(!pair.reads("key").await, "{home} {reader}");
    }
}

/// A new process of the reader has none of these leases; nobody knows whether the old one has ended.
#[tokio::test]
async fn only_the_process_that_has_a_lease_gives_it_back() {
    let pair = pair().await;
    pair.here.put("key", "old").await.unwrap();
    let reader = Reader { worker: THERE.to_owned(), process: 7 };
    let request = LeaseRequest { path: path("key"), reader, known: None, bytes_max: 100 };
    assert!(pair.here.cache.read_lease(request).await.unwrap().is_some());
    let (cache, began) = (pair.here.cache.clone(), pair.here.clock.monotonic());
    let deleting = forebay_env::spawn(async move { cache.delete(&path("key"), &Conditions::default()).await });
    pair.here.advancing("the lease is over", || deleting.is_finished()).await;
    assert!(pair.here.clock.monotonic() - began >= Duration::from_secs(5));
    deleting.join().await.unwrap();
}

/// The leases on its key have ended by then, and what readers see is about to change.
#[tokio::test]
async fn nothing_is_leased_while_it_changes() {
    let home = Setup::new(WriteMode::WriteBack).policy(|rule| rule.write_replicas = Some(2));
    let pair = pair_of(home, Setup::new(WriteMode::WriteBack)).await;
    pair.here.put("key", "old").await.unwrap();
    pair.there.cache.was_read(&path("key"));
    // The other worker has its copy of the new version, and the home does not know.
    let all = pair.readers.permits.forget_permits(usize::MAX);
    let asked = pair.readers.asked.load(Ordering::Relaxed);
    let writing = {
        let (cache, put) = (pair.here.cache.clone(), put("key", "new"));
        forebay_env::spawn(async move { cache.put(put).await })
    };
    until("the copy is sent", || pair.readers.asked.load(Ordering::Relaxed) > asked).await;
    assert_eq!(pair.here.get("key").await.unwrap(), "old");
    assert!(!pair.there.cache.reads_here(&path("key")).await);
    pair.readers.permits.add_permits(all);
    writing.join().await.unwrap();
    assert_eq!(pair.here.metric("forebay_read_leases_granted_total"), 0.0);
    assert_eq!(pair.there.get("key").await.unwrap(), "new");
}
