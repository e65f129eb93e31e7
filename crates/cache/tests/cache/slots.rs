//! Slots that are lost and gained while the cache runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::{Access, CacheState, Conditions, CopyObject, ErrorKind, ListObjects, Needs};
use forebay_catalog::{SlotCount, SlotSet, records};
use forebay_env::Clock;
use forebay_store::{Commit, ValueWrite};
use forebay_types::{BucketName, ByteSize, Durability, Period, Tags, WriteMode};

use crate::held::{Answer, Others, THERE};
use crate::multipart::{complete, create, put_part, uploads};
use crate::support::gate::Way;
use crate::support::{BUCKET, Bench, HERE, Setup, kind, others_go_on, path, until};

/// The slot of a key, and a key of another one.
fn slot_of(key: &str) -> (SlotSet, String) {
    let mut slots = SlotSet::none(SlotCount::new(4).expect("slots"));
    let slot = SlotCount::new(4).expect("slots").slot_of(records::path_hash(&path(key)));
    slots.insert(slot);
    let other = (0..).map(|number| format!("other/{number}")).find(|other| !slots.has_path(&path(other)));
    (slots, other.expect("some key is in another slot"))
}

/// Another key of one of these slots.
fn beside(slots: &SlotSet) -> String {
    (0..).map(|number| format!("beside/{number}")).find(|key| slots.has_path(&path(key))).expect("some key")
}

/// Begins to give slots up.
async fn lose(bench: &Bench, slots: &SlotSet) -> forebay_env::Task<forebay_cache::Result<()>> {
    let (cache, slots) = (bench.cache.clone(), slots.clone());
    let losing = forebay_env::spawn(async move { cache.lose(&slots).await });
    others_go_on().await;
    assert!(!losing.is_finished(), "a request is on its way");
    losing
}

/// What the worker answers for this key.
fn answers(bench: &Bench, key: &str) -> Vec<Access> {
    let all = [Access::Read, Access::Write, Access::SetAttributes, Access::Upload];
    all.into_iter().filter(|access| bench.cache.answers_for(&path(key), *access)).collect()
}

#[tokio::test]
async fn keys_that_are_lost_are_left_alone_and_others_go_on() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    let (slots, other) = slot_of("lost");
    bench.put("lost", "waits").await.unwrap();
    bench.put(&other, "waits, too").await.unwrap();
    until("both are on their way", || bench.background.waiting() == 2).await;
    let losing = lose(&bench, &slots).await;
    bench.background.set(Way::Open);
    losing.join().await.unwrap();
    assert_eq!(kind(bench.put("lost", "later").await), Some(ErrorKind::Moved));
    let refused = bench.cache.delete_here(&path("lost"), &Conditions::default()).await;
    assert_eq!(kind(refused), Some(ErrorKind::Moved));
    bench.put(&other, "later").await.unwrap();
    let bucket = BucketName::new(BUCKET).unwrap();
    assert_eq!(kind(bench.cache.list(&bucket, &Default::default()).await), Some(ErrorKind::Unavailable));
    bench.drain().await;
    assert_eq!(bench.under(&other).unwrap(), "later");
}

/// One slow upload does not hold up the slots of other keys.
#[tokio::test]
async fn slots_with_an_upload_in_flight_are_not_idle() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    let (busy, _) = slot_of("waits");
    let all = SlotSet::none(busy.count()).others();
    assert_eq!(bench.cache.idle(&all), all);
    bench.put("waits", "in flight").await.unwrap();
    until("it is on its way", || bench.background.waiting() == 1).await;
    assert_eq!(bench.cache.idle(&all), busy.others());
    assert!(bench.cache.idle(&busy).is_empty());
    bench.cache.lose(&bench.cache.idle(&all)).await.expect("nothing is waited for");
    bench.put("waits", "served meanwhile").await.unwrap();
    bench.background.set(Way::Open);
    until("nothing is in flight", || bench.cache.idle(&busy) == busy).await;
    assert_eq!(bench.under("waits").unwrap(), "served meanwhile");
}

/// Who was their home meanwhile may have sent a request that nobody knows of.
#[tokio::test]
async fn what_is_gained_waits_for_the_settle_time_and_goes_to_the_under_store_then() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Refuse("key".to_owned(), forebay_ufs::ErrorKind::Unavailable));
    let (slots, other) = slot_of("key");
    bench.put("key", "dirty").await.unwrap();
    until("it is tried", || bench.background.refusals() > 0).await;
    assert_eq!(bench.cache.status().dirty_objects, 1);
    bench.cache.lose(&slots).await.unwrap();
    bench.background.set(Way::Open);
    assert_eq!(bench.cache.status().dirty_objects, 0, "its home counts it");
    bench.cache.gain(&slots).await.unwrap();
    let gained = bench.clock.monotonic();
    assert_eq!(bench.cache.status().dirty_objects, 1);
    assert_eq!(bench.get("key").await.unwrap(), "dirty");
    assert_eq!(bench.keys().await, ["key"]);
    bench.put(&other, "not gained").await.unwrap();
    let clock = Arc::clone(&bench.clock);
    bench.advancing("it is persisted", || bench.is_drained()).await;
    let waited = clock.monotonic() - gained;
    assert!(waited >= bench.setup.settings.settle_time.0, "{waited:?}");
    assert!(waited < bench.setup.settings.settle_time.0 + Duration::from_secs(20), "{waited:?}");
    assert_eq!(bench.under("key").unwrap(), "dirty");
    bench.put("key", "again").await.unwrap();
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "again");
}

/// A start would wait less by the note of an earlier one: of what came with the slots that says nothing.
#[tokio::test]
async fn a_start_after_a_gain_waits_for_all() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    let (slots, _) = slot_of("key");
    bench.pass_seconds(bench.setup.settings.settle_time.0.as_secs() + 1).await;
    bench.cache.lose(&slots).await.unwrap();
    bench.cache.gain(&slots).await.unwrap();
    bench.put("key", "dirty").await.unwrap();
    bench.kill().await;
    let started = bench.clock.monotonic();
    bench.drain().await;
    assert!(bench.clock.monotonic() - started >= bench.setup.settings.settle_time.0);
}

/// The tasks that persist are idle while a worker takes over what another one had, and drop what is not at home here.
#[tokio::test]
async fn all_that_is_gained_goes_to_the_under_store() {
    let others: Arc<crate::support::Others> = Arc::default();
    let setup = Setup { others: Some(Arc::clone(&others)), ..Setup::new(WriteMode::WriteBack) };
    let bench = setup.open().await;
    // One failure does not keep the next object of the bucket waiting.
    bench.background.set(Way::Refuse("key".to_owned(), forebay_ufs::ErrorKind::Unavailable));
    let (slots, _) = slot_of("key");
    bench.put("key", "dirty").await.unwrap();
    until("it is tried", || bench.background.refusals() > 0).await;
    bench.cache.lose(&slots).await.unwrap();
    bench.background.set(Way::Open);
    let release = others.hold_next_scan_of_requests();
    let gaining = {
        let cache = bench.cache.clone();
        forebay_env::spawn(async move { cache.gain(&slots).await })
    };
    others_go_on().await;
    assert!(!gaining.is_finished(), "the objects are read, and the requests are not");
    drop(release);
    gaining.join().await.unwrap();
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "dirty");
}

/// The process may end when the slots are taken and their keys are not.
#[tokio::test]
async fn once_slots_are_about_to_be_taken_the_next_start_waits_for_all() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "dirty").await.unwrap();
    bench.kill().await;
    bench.pass_seconds(bench.setup.settings.settle_time.0.as_secs() / 3).await;
    bench.cache.begin_gain().await.unwrap();
    bench.pass_seconds(bench.setup.settings.settle_time.0.as_secs() / 3).await;
    bench.kill().await;
    let started = bench.clock.monotonic();
    bench.background.set(Way::Open);
    bench.drain().await;
    assert!(bench.clock.monotonic() - started >= bench.setup.settings.settle_time.0);
}

/// What is lacking of it is not known yet.
#[tokio::test]
async fn a_slot_that_is_not_taken_up_yet_is_in_no_answer() {
    let all = SlotSet::none(SlotCount::new(4).unwrap()).others();
    let others = Some(Arc::default());
    let bench = Setup { slots: Some(all.clone()), others, ..Setup::new(WriteMode::WriteBack) }.open().await;
    let (slots, _) = slot_of("key");
    let needs = |slots: SlotSet| Needs { slots, copies_wanted: 0, complete_at: None, takes_over_from: BTreeSet::new() };
    assert_eq!(bench.cache.needs().unwrap(), needs(all.clone()));
    bench.cache.lose(&slots).await.unwrap();
    assert_eq!(bench.cache.needs().unwrap(), needs(slots.others()), "the catalog has it already, or still");
    bench.cache.gain(&slots).await.unwrap();
    assert_eq!(bench.cache.needs().unwrap(), needs(all));
}

/// An upload may take minutes.
#[tokio::test]
async fn clients_change_keys_of_slots_that_are_given_up_while_uploads_of_these_end() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let (slots, _) = slot_of("lost");
    let clean = beside(&slots);
    bench.put(&clean, "the under store has it").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Closed);
    bench.put("lost", "waits").await.unwrap();
    until("it is on its way", || bench.background.waiting() == 1).await;
    let losing = lose(&bench, &slots).await;
    assert_eq!(answers(&bench, &clean).len(), 4);
    let tags = Tags::from([("key".to_owned(), "value".to_owned())]);
    bench.cache.set_tags(&path(&clean), tags.clone()).await.unwrap();
    let upload = create(&bench, &clean).await;
    let parts = [put_part(&bench, &upload, 1, 100).await];
    complete(&bench, &upload, &parts).await.unwrap();
    bench.put("lost", "newer").await.unwrap();
    others_go_on().await;
    assert_eq!(bench.background.waiting(), 1, "no upload begins");
    bench.background.set(Way::Open);
    losing.join().await.unwrap();
    assert_eq!(answers(&bench, &clean), []);
    assert_eq!(kind(bench.cache.set_tags(&path(&clean), tags).await), Some(ErrorKind::Moved));
    assert_eq!(bench.under("lost").unwrap(), "waits", "the new home persists what is newer");
}

/// Requests that would be refused wait until they can be passed on.
#[tokio::test]
async fn while_a_client_waits_for_the_under_store_its_slot_answers_what_needs_no_upload_lock() {
    let small = |rule: &mut forebay_types::PolicyRule| rule.write_back_max_size = Some(ByteSize(10));
    let setups = [
        (Setup::new(WriteMode::WriteThrough), vec![Access::Read]),
        (Setup::new(WriteMode::WriteBack).policy(small), vec![Access::Read, Access::Write]),
        (Setup::new(WriteMode::WriteBack), vec![Access::Read, Access::Write]),
    ];
    for (setup, expected) in setups {
        let bench = setup.open().await;
        let (slots, other) = slot_of("lost");
        bench.under.put_outside("lost", "the under store has it".into());
        bench.foreground.set(Way::Closed);
        let changing = {
            let cache = bench.cache.clone();
            let tags = Tags::from([("key".to_owned(), "value".to_owned())]);
            forebay_env::spawn(async move { cache.set_tags(&path("lost"), tags).await })
        };
        until("it is on its way", || bench.foreground.waiting() == 1).await;
        let losing = lose(&bench, &slots).await;
        assert_eq!(answers(&bench, &beside(&slots)), expected, "{:?}", bench.setup.policies);
        assert_eq!(answers(&bench, &other).len(), 4);
        bench.foreground.set(Way::Open);
        changing.join().await.unwrap();
        losing.join().await.unwrap();
        assert_eq!(answers(&bench, "lost"), []);
    }
}

/// DeleteObjects and copies meet keys of many slots.
#[tokio::test]
async fn copies_and_deletes_wait_for_a_key_that_is_at_home_nowhere() {
    let (slots, _) = slot_of("source");
    let homes = Others::new();
    let all = || Some(SlotSet::none(SlotCount::new(4).expect("slots")).others());
    let there =
        Setup { worker: Some((THERE, Arc::new(Others::new()))), slots: all(), ..Setup::new(WriteMode::WriteBack) };
    let there = there.open().await;
    there.put("source", "value").await.unwrap();
    there.drain().await;
    let worker: Option<(&str, Arc<dyn forebay_cache::OtherWorkers>)> = Some((HERE, Arc::new(homes.clone())));
    let here = Setup { worker, slots: Some(slots.others()), ..Setup::new(WriteMode::WriteBack) }.open().await;
    let target = (0..).map(|number| format!("target/{number}")).find(|key| !slots.has_path(&path(key))).unwrap();
    let copy = || {
        let (cache, target) = (here.cache.clone(), path(&target));
        let request = CopyObject {
            source: path("source"),
            source_conditions: Conditions::default(),
            target,
            replace_metadata: None,
            storage_class: None,
            website_redirect_location: None,
            replace_tags: None,
            checksum_algorithm: None,
            conditions: Conditions::default(),
        };
        forebay_env::spawn(async move { cache.copy(request).await.map(drop) })
    };
    let delete = || {
        let cache = here.cache.clone();
        forebay_env::spawn(async move { cache.delete(&path("source"), &Conditions::default()).await })
    };
    let wait = async |milliseconds| {
        for _ in 0..milliseconds / 50 {
            others_go_on().await;
            here.clock.advance(Duration::from_millis(50));
        }
        others_go_on().await;
    };
    for begin in [&copy as &dyn Fn() -> _, &delete] {
        let refused = begin();
        wait(1400).await;
        assert!(!refused.is_finished());
        wait(200).await;
        assert_eq!(kind(refused.join().await), Some(ErrorKind::Moved));
    }
    for begin in [&copy as &dyn Fn() -> _, &delete] {
        let waiting = begin();
        wait(500).await;
        assert!(!waiting.is_finished());
        homes.answer(THERE, Answer::From(there.cache.clone()));
        wait(50).await;
        waiting.join().await.unwrap();
        homes.workers.lock().clear();
    }
    assert_eq!(here.get(&target).await.unwrap(), "value");
    assert_eq!(kind(there.get("source").await), Some(ErrorKind::NotFound));
}

#[tokio::test]
async fn operators_are_shown_what_moves_once_it_has_a_home() {
    let (slots, _) = slot_of("moves");
    let setup = || Setup::new(WriteMode::WriteBack);
    let there = Setup { worker: Some((THERE, Arc::new(Others::new()))), slots: Some(slots.clone()), ..setup() };
    let there = there.open().await;
    there.background.set(Way::Closed);
    there.put("moves", "value").await.unwrap();
    let homes = Others::new();
    let here = Setup { worker: Some((HERE, Arc::new(homes.clone()))), slots: Some(slots.others()), ..setup() };
    let here = here.open().await;
    let list = || {
        let (cache, bucket) = (here.cache.clone(), BucketName::new(BUCKET).expect("bucket"));
        let request = ListObjects { limit: 10, ..ListObjects::default() };
        forebay_env::spawn(async move { cache.list_cached(&bucket, &request).await.map(|page| page.objects[0].state) })
    };
    let detail = || {
        let cache = here.cache.clone();
        forebay_env::spawn(async move { cache.object_detail(&path("moves")).await.map(|detail| detail.state) })
    };
    let wait = async |milliseconds| {
        for _ in 0..milliseconds / 50 {
            others_go_on().await;
            here.clock.advance(Duration::from_millis(50));
        }
        others_go_on().await;
    };
    for begin in [&list as &dyn Fn() -> _, &detail] {
        // It has the records of the key, and nobody knows yet that it is the home.
        homes.answer(THERE, Answer::Damaged(there.cache.clone()));
        let refused = begin();
        wait(1400).await;
        assert!(!refused.is_finished());
        wait(200).await;
        let error = refused.join().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Moved);
        assert_eq!(error.to_string(), format!("{} moves between workers at present; try again", path("moves")));
        let waiting = begin();
        wait(500).await;
        assert!(!waiting.is_finished());
        homes.answer(THERE, Answer::From(there.cache.clone()));
        wait(50).await;
        assert_eq!(waiting.join().await.unwrap(), CacheState::Dirty);
    }
}

/// A client that completes the upload with the parts of a list must not get a shorter object.
#[tokio::test]
async fn parts_are_not_listed_without_those_that_have_gone_with_their_slot() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let (slots, _) = slot_of("key");
    let upload = create(&bench, "key").await;
    put_part(&bench, &upload, 1, 100).await;
    bench.cache.lose(&slots).await.unwrap();
    // As when the catalog gives the slot up, between the looks at the upload and at its parts.
    let part = ValueWrite { key: records::part_key(&upload.upload_id, 1), value: None };
    bench.store.commit(Commit { writes: vec![part], ..Commit::default() }, Durability::Os).await.unwrap();
    assert_eq!(kind(bench.cache.list_parts(&upload, 0, 10).await), Some(ErrorKind::Moved));
}

/// Another home may have taken parts of it until a moment ago.
#[tokio::test]
async fn an_upload_that_comes_back_with_its_slot_is_not_stale() {
    let setup = Setup::new(WriteMode::WriteBack);
    let bench = setup.settings(|settings| settings.leftover_interval = Period::from_secs(1_000_000)).open().await;
    let (slots, _) = slot_of("key");
    create(&bench, "key").await;
    bench.cache.sweep().await.unwrap();
    bench.clock.advance(Duration::from_secs(55 * 60));
    bench.cache.lose(&slots).await.unwrap();
    bench.cache.gain(&slots).await.unwrap();
    bench.clock.advance(Duration::from_secs(6 * 60));
    bench.cache.sweep().await.unwrap();
    assert_eq!(uploads(&bench).await, 1);
    bench.clock.advance(Duration::from_secs(61 * 60));
    bench.cache.sweep().await.unwrap();
    assert_eq!(uploads(&bench).await, 0, "nobody has used it since");
}
