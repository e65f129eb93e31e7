//! Slots that are lost and gained while the cache runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::{ErrorKind, Needs};
use forebay_catalog::{SlotCount, SlotSet};
use forebay_env::Clock;
use forebay_types::{BucketName, WriteMode};

use crate::support::gate::Way;
use crate::support::{BUCKET, Bench, Setup, kind, others_go_on, path, until};

/// The slot of a key, and a key of another one.
fn slot_of(key: &str) -> (SlotSet, String) {
    let mut slots = SlotSet::none(SlotCount::new(4).expect("slots"));
    let slot = SlotCount::new(4).expect("slots").slot_of(forebay_catalog::records::path_hash(&path(key)));
    slots.insert(slot);
    let other = (0..).map(|number| format!("other/{number}")).find(|other| !slots.has_path(&path(other)));
    (slots, other.expect("some key is in another slot"))
}

#[tokio::test]
async fn keys_that_are_lost_are_left_alone_and_others_go_on() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    let (slots, other) = slot_of("lost");
    bench.put("lost", "waits").await.unwrap();
    bench.put(&other, "waits, too").await.unwrap();
    until("both are on their way", || bench.background.waiting() == 2).await;
    let losing = {
        let (cache, slots) = (bench.cache.clone(), slots.clone());
        forebay_env::spawn(async move { cache.lose(&slots).await })
    };
    others_go_on().await;
    assert!(!losing.is_finished(), "a request is on its way");
    bench.background.set(Way::Open);
    losing.join().await.unwrap();
    assert_eq!(kind(bench.put("lost", "later").await), Some(ErrorKind::Unavailable));
    assert_eq!(kind(bench.delete("lost").await), Some(ErrorKind::Unavailable));
    bench.put(&other, "later").await.unwrap();
    let bucket = BucketName::new(BUCKET).unwrap();
    assert_eq!(kind(bench.cache.list(&bucket, &Default::default()).await), Some(ErrorKind::Unavailable));
    bench.drain().await;
    assert_eq!(bench.under(&other).unwrap(), "later");
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
