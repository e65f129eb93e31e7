//! An under store that loses answers, carries out requests late, refuses and hangs: it never goes backwards, and
//! trouble with one object is nobody else's.

use std::time::Duration;

use forebay_cache::ErrorKind;
use forebay_types::{Durability, Period, StorageState, Tags, WriteMode};
use forebay_ufs::ErrorKind as UfsKind;
use forebay_ufs::memory::{Applied, Mood};

use crate::support::gate::Way;
use crate::support::{Bench, Setup, kind, path, rule, until};

/// Longer than the default settle time.
pub(crate) const SETTLED: Duration = Duration::from_secs(31);

/// The request was done and its answer was lost.
#[tokio::test]
async fn a_lost_answer_is_recognised_as_done() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("old", "first").await.unwrap();
    bench.drain().await;
    bench.under.set_mood(Mood::LoseAnswers);
    bench.put("old", "second").await.unwrap();
    bench.put("new", "first").await.unwrap();
    bench.advancing("both have landed", || bench.under.applied().len() >= 3).await;
    bench.under.set_mood(Mood::Well);
    bench.drain().await;
    assert_eq!(bench.cache.status().conflicts, 0);
    assert_eq!(bench.under("old").unwrap(), "second");
    assert_eq!(bench.under("new").unwrap(), "first");
    assert_eq!(bench.generations("new").len(), 1, "found there by its stamp, not sent again");
    assert_eq!(bench.state("old").await, StorageState::Clean);
}

/// The request times out here and is carried out there much later.
#[tokio::test]
async fn nothing_newer_is_sent_before_a_request_without_an_answer_is_settled() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Late);
    bench.put("key", "first").await.unwrap();
    until("the first upload got no answer", || bench.background.stragglers() == 1).await;
    bench.background.set(Way::Open);
    bench.put("key", "second").await.unwrap();
    let persisted = bench.cache.persist("/").await;
    assert_eq!(kind(persisted), Some(ErrorKind::SlowDown), "the first may still land");
    assert!(bench.under("key").is_none());
    bench.background.land().await.unwrap();
    assert_eq!(bench.under("key").unwrap(), "first");
    assert_eq!(bench.get("key").await.unwrap(), "second");
    bench.clock.advance(SETTLED);
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "second");
    assert!(bench.generations("key").is_sorted());
    assert_eq!(bench.cache.status().conflicts, 0);
}

/// Equal content has equal tags, so conditions alone would let the first A land on the second.
#[tokio::test]
async fn equal_content_does_not_let_an_old_upload_land_late() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "A").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Late);
    bench.put("key", "B").await.unwrap();
    until("B got no answer", || bench.background.stragglers() == 1).await;
    bench.background.set(Way::Open);
    bench.put("key", "A").await.unwrap();
    assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::SlowDown));
    bench.background.land().await.unwrap();
    bench.clock.advance(SETTLED);
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "A");
    assert_eq!(bench.generations("key").len(), 3);
    assert!(bench.generations("key").is_sorted());
}

/// A PUT that lands after the DELETE was acknowledged.
#[tokio::test]
async fn a_late_upload_does_not_bring_a_deleted_object_back() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Late);
    bench.put("key", "first").await.unwrap();
    until("the upload got no answer", || bench.background.stragglers() == 1).await;
    bench.background.set(Way::Open);
    bench.delete("key").await.unwrap();
    bench.clock.advance(Duration::from_secs(20));
    assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::SlowDown));
    bench.background.land().await.unwrap();
    assert_eq!(bench.under("key").unwrap(), "first", "the upload landed after the delete was acknowledged");
    assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
    assert!(bench.keys().await.is_empty());
    bench.clock.advance(SETTLED);
    bench.drain().await;
    assert!(bench.under.contents().is_empty());
    assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
}

/// The DELETE comes while the upload is under way.
#[tokio::test]
async fn a_delete_that_overtakes_an_upload_wins() {
    for restart in [false, true] {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        bench.background.set(Way::Closed);
        bench.put("key", "first").await.unwrap();
        until("the upload is under way", || bench.background.waiting() == 1).await;
        bench.delete("key").await.unwrap();
        if restart {
            bench.power_loss(7).await;
        }
        bench.background.set(Way::Open);
        bench.advancing("the tombstone is gone", || bench.is_drained()).await;
        assert!(bench.under.contents().is_empty());
        assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
        let last = bench.under.applied().pop();
        assert_eq!(last, Some(Applied::Delete { key: "key".to_owned() }));
    }
}

/// A DELETE that lands after the object was made anew.
#[tokio::test]
async fn a_late_delete_does_not_remove_the_new_object() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "first").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Late);
    bench.delete("key").await.unwrap();
    until("the delete got no answer", || bench.background.stragglers() == 1).await;
    bench.background.set(Way::Open);
    bench.put("key", "second").await.unwrap();
    assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::SlowDown));
    bench.background.land().await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), "second");
    bench.clock.advance(SETTLED);
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "second");
    assert_eq!(bench.get("key").await.unwrap(), "second");
}

/// In WRITE_THROUGH the client got an error, and the request may still be carried out.
#[tokio::test]
async fn write_through_waits_until_a_lost_request_is_settled() {
    for mode in [WriteMode::WriteThrough, WriteMode::NoCache] {
        let bench = Bench::new(mode).await;
        bench.foreground.set(Way::Late);
        assert_eq!(kind(bench.put("key", "first").await), Some(ErrorKind::Unavailable), "{mode:?}");
        bench.foreground.set(Way::Open);
        let refused = bench.put("key", "second").await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::SlowDown, "{mode:?}");
        assert_eq!(refused.retry_after, Some(bench.setup.settings.settle_time.0), "{mode:?}");
        assert_eq!(kind(bench.delete("key").await), Some(ErrorKind::SlowDown), "{mode:?}");
        bench.put("other", "value").await.unwrap();
        bench.foreground.land().await.unwrap();
        assert_eq!(bench.get("key").await.unwrap(), "first", "{mode:?}");
        bench.clock.advance(SETTLED);
        bench.put("key", "second").await.unwrap();
        assert_eq!(bench.under("key").unwrap(), "second", "{mode:?}");
        assert!(bench.generations("key").is_sorted(), "{mode:?}");
    }
}

/// The upload was done, and the power went before the catalog knew.
#[tokio::test]
async fn a_crash_between_upload_and_commit_is_recognised_by_the_stamp() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.set_mood(Mood::LoseAnswers);
    let written = bench.put("key", "value").await.unwrap();
    until("it has landed", || bench.under.applied().len() == 1).await;
    bench.power_loss(3).await;
    assert_eq!(bench.state("key").await, StorageState::Dirty, "never forgotten before the outcome is known");
    bench.under.set_mood(Mood::Well);
    bench.drain().await;
    assert_eq!(bench.generations("key").len(), 1, "the stamp says that it is there");
    let head = bench.head("key").await.unwrap();
    assert_eq!((head.state, &head.info.etag), (StorageState::Clean, &written.etag));
    assert_eq!((bench.get("key").await.unwrap(), bench.cache.status().conflicts), ("value".into(), 0));
}

/// A request of the dead process lands after the next process has begun.
#[tokio::test]
async fn a_request_of_a_dead_process_does_not_overtake_the_next_one() {
    for late_delete in [false, true] {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        bench.put("key", "A").await.unwrap();
        bench.drain().await;
        bench.background.set(Way::Late);
        if late_delete {
            bench.delete("key").await.unwrap();
        } else {
            bench.put("key", "B").await.unwrap();
        }
        until("the request got no answer", || bench.background.stragglers() == 1).await;
        bench.put("key", "A").await.unwrap();
        let dead = bench.background.clone();
        bench.power_loss(9).await;
        bench.clock.advance(Duration::from_secs(20));
        assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::SlowDown), "it may still land");
        dead.land().await.unwrap();
        assert_eq!(bench.get("key").await.unwrap(), "A");
        bench.clock.advance(SETTLED);
        bench.drain().await;
        assert_eq!(bench.under("key").unwrap(), "A", "late delete: {late_delete}");
        assert!(bench.generations("key").is_sorted());
    }
}

/// The first DELETE got no answer, the process ends, and nothing in the queue would tell of it.
#[tokio::test]
async fn a_late_delete_of_a_dead_process_does_not_remove_the_new_object() {
    for written_before in [false, true] {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        bench.put("key", "first").await.unwrap();
        bench.drain().await;
        bench.background.set(Way::Late);
        bench.delete("key").await.unwrap();
        until("the delete got no answer", || bench.background.stragglers() == 1).await;
        bench.background.set(Way::Open);
        assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::SlowDown), "the same delete waits too");
        if written_before {
            bench.put("key", "second").await.unwrap();
        }
        let dead = bench.background.clone();
        bench.power_loss(5).await;
        if !written_before {
            bench.put("key", "second").await.unwrap();
        }
        bench.clock.advance(Duration::from_secs(20));
        assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::SlowDown), "it may still land");
        dead.land().await.unwrap();
        bench.clock.advance(SETTLED);
        bench.drain().await;
        assert_eq!(bench.under("key").unwrap(), "second");
        assert_eq!(bench.get("key").await.unwrap(), "second");
    }
}

/// In WRITE_THROUGH and NO_CACHE too: nothing else here tells of a request that a crash cuts off.
#[tokio::test]
async fn a_crash_does_not_let_a_lost_write_through_land_on_a_newer_one() {
    for mode in [WriteMode::WriteThrough, WriteMode::NoCache] {
        for delete in [false, true] {
            let mut bench = Bench::new(mode).await;
            bench.put("key", "A").await.unwrap();
            bench.foreground.set(Way::Late);
            let lost = if delete { bench.delete("key").await } else { bench.put("key", "B").await.map(|_| ()) };
            assert_eq!(kind(lost), Some(ErrorKind::Unavailable));
            let dead = bench.foreground.clone();
            bench.power_loss(6).await;
            bench.put("other", "value").await.unwrap();
            assert_eq!(kind(bench.put("key", "A").await), Some(ErrorKind::SlowDown), "{mode:?}");
            assert_eq!(kind(bench.delete("key").await), Some(ErrorKind::SlowDown), "{mode:?}");
            dead.land().await.unwrap();
            bench.clock.advance(SETTLED);
            bench.put("key", "A").await.unwrap();
            assert_eq!(bench.under("key").unwrap(), "A", "{mode:?}");
        }
    }
}

/// The disk could not read it when the newer one was written, and can again.
#[tokio::test]
async fn what_could_not_be_read_does_not_follow_what_was_written_through_over_it() {
    for (crash, delete) in [(false, false), (false, true), (true, false), (true, true)] {
        let setup = Setup::new(WriteMode::WriteBack);
        let mut bench = setup.settings(|settings| settings.persist_delay = Period::from_secs(600)).open().await;
        bench.put("key", "older").await.unwrap();
        let places = bench.places(b"older").await;
        let [(name, offset)] = places.as_slice() else { panic!("in one place: {places:?}") };
        bench.disk.fail_reads_of(name, *offset..*offset + 5);
        bench.cache.set_policies(vec![rule("/", WriteMode::WriteThrough)], None, "test", "edit").await.unwrap();
        for gate in [&bench.foreground, &bench.background] {
            gate.set(Way::Late);
        }
        let lost = if delete { bench.delete("key").await } else { bench.put("key", "newer").await.map(|_| ()) };
        assert_eq!(kind(lost), Some(ErrorKind::Unavailable));
        let gates = [bench.foreground.clone(), bench.background.clone()];
        let sent = gates.iter().find(|gate| gate.stragglers() > 0).expect("it was sent");
        sent.land().await.unwrap();
        bench.disk.fail_reads_of(name, 0..0);
        if crash {
            bench.power_loss(3).await;
        } else {
            gates.iter().for_each(|gate| gate.set(Way::Open));
        }
        bench.clock.advance(SETTLED);
        bench.drain().await;
        let wanted = (!delete).then_some("newer");
        assert_eq!(bench.under("key").as_deref(), wanted.map(str::as_bytes), "crash: {crash}");
        let read = bench.get("key").await.ok();
        assert_eq!(read.as_deref(), wanted.map(str::as_bytes), "crash: {crash}");
        let put = bench.under.applied().into_iter().filter(|one| matches!(one, Applied::Put { .. })).count();
        assert!(put <= usize::from(!delete), "the older one is never sent");
    }
}

/// The under store refuses what waits, and one is written through over it whose answer is lost. Whether it has landed
/// is looked at.
#[tokio::test]
async fn what_was_refused_does_not_follow_what_was_written_through_over_it() {
    for (lands, crash, is_new, sweeps) in [
        (true, false, false, true),
        (true, false, true, false),
        (true, true, false, false),
        (true, true, true, true),
        (true, true, true, false),
        (false, false, false, true),
        (false, true, true, false),
    ] {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        if !is_new {
            bench.put("key", "base").await.unwrap();
            bench.drain().await;
        }
        bench.background.set(Way::Refuse("key".to_owned(), UfsKind::InvalidName));
        bench.put("key", "older").await.unwrap();
        bench.cache.set_policies(vec![rule("/", WriteMode::WriteThrough)], None, "test", "edit").await.unwrap();
        bench.foreground.set(Way::Late);
        assert_eq!(kind(bench.put("key", "newer").await), Some(ErrorKind::Unavailable));
        if lands {
            bench.foreground.land().await.unwrap();
        }
        if crash {
            bench.power_loss(3).await;
        } else {
            for gate in [&bench.foreground, &bench.background] {
                gate.set(Way::Open);
            }
        }
        assert_eq!(bench.get("key").await.unwrap(), "older", "it was acknowledged, and the newer one was not");
        bench.clock.advance(SETTLED);
        if sweeps {
            bench.cache.sweep().await.unwrap();
        }
        bench.drain().await;
        let wanted = if lands { "newer" } else { "older" };
        let case = format!("lands: {lands}, crash: {crash}, new: {is_new}, sweeps: {sweeps}");
        assert_eq!(bench.under("key").unwrap(), wanted, "{case}");
        assert_eq!(bench.get("key").await.unwrap(), wanted, "{case}");
        assert_eq!(bench.cache.status().conflicts, 0, "{case}");
    }
}

#[tokio::test]
async fn a_conflict_under_what_cannot_be_read_is_no_success() {
    for delete in [false, true] {
        let setup = Setup::new(WriteMode::WriteBack);
        let bench = setup.settings(|settings| settings.persist_delay = Period::from_secs(600)).open().await;
        bench.put("key", "base").await.unwrap();
        bench.drain().await;
        bench.head("key").await.unwrap();
        bench.put("key", "older").await.unwrap();
        let places = bench.places(b"older").await;
        places.iter().for_each(|(name, offset)| bench.disk.fail_reads_of(name, *offset..*offset + 5));
        bench.under.put_outside("key", "theirs".into());
        bench.cache.set_policies(vec![rule("/", WriteMode::WriteThrough)], None, "test", "edit").await.unwrap();
        let change = async || match delete {
            true => bench.delete("key").await,
            false => bench.put("key", "newer").await.map(|_| ()),
        };
        let wanted = (!delete).then_some("newer");
        let first = kind(change().await);
        assert!(matches!(first, None | Some(ErrorKind::Unavailable)), "{first:?}");
        if first.is_none() {
            assert_eq!(bench.under("key").as_deref(), wanted.map(str::as_bytes), "what is acknowledged is there");
        }
        change().await.unwrap();
        assert_eq!(bench.under("key").as_deref(), wanted.map(str::as_bytes));
    }
}

/// Tags that land late would stand on a newer version, and its tag is the same.
#[tokio::test]
async fn late_tags_do_not_land_on_a_newer_version() {
    for crash in [false, true] {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        bench.put("key", "value").await.unwrap();
        bench.drain().await;
        bench.foreground.set(Way::Late);
        let tags: Tags = [("a".to_owned(), "old".to_owned())].into();
        assert_eq!(kind(bench.cache.set_tags(&path("key"), tags).await), Some(ErrorKind::Unavailable));
        bench.foreground.set(Way::Open);
        if crash {
            bench.power_loss(8).await;
        }
        bench.put("key", "value").await.unwrap();
        assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::SlowDown), "the tags may still land: {crash}");
        bench.clock.advance(SETTLED);
        bench.drain().await;
        assert_eq!(bench.cache.tags(&path("key")).await.unwrap(), Tags::new());
    }
}

/// What replaced the dirty version has no request of its own, and the dirty version's may still land.
#[tokio::test]
async fn a_crash_does_not_forget_the_request_of_a_version_that_a_transient_one_replaced() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Late);
    bench.put("key", "dirty").await.unwrap();
    until("the upload got no answer", || bench.background.stragglers() == 1).await;
    bench.cache.set_policies(vec![rule("/", WriteMode::Transient)], None, "test", "edit").await.unwrap();
    bench.put("key", "transient").await.unwrap();
    let dead = bench.background.clone();
    bench.setup.policies = vec![rule("/", WriteMode::Transient)];
    bench.power_loss(10).await;
    bench.delete("key").await.unwrap();
    bench.clock.advance(Duration::from_secs(20));
    assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::SlowDown));
    dead.land().await.unwrap();
    bench.clock.advance(SETTLED);
    bench.drain().await;
    assert!(bench.under.contents().is_empty(), "deleted is deleted");
}

/// A power cut takes a record that is not durable, and not what it sent.
#[tokio::test]
async fn what_was_sent_is_known_after_a_power_cut_although_the_record_is_not() {
    let setup = Setup::new(WriteMode::WriteBack).policy(|rule| rule.durability = Some(Durability::Os));
    let mut bench = setup.open().await;
    bench.put("key", "first").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Late);
    bench.delete("key").await.unwrap();
    until("the delete got no answer", || bench.background.stragglers() == 1).await;
    let dead = bench.background.clone();
    bench.power_loss(12).await;
    bench.put("key", "second").await.unwrap();
    bench.clock.advance(Duration::from_secs(20));
    assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::SlowDown));
    dead.land().await.unwrap();
    bench.clock.advance(SETTLED);
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "second");
    bench.cache.sweep().await.unwrap();
    bench.restart().await;
    bench.cache.set_policies(vec![rule("/", WriteMode::WriteThrough)], None, "test", "edit").await.unwrap();
    bench.put("key", "third").await.unwrap();
}

/// What is in the under store while a lost request may change it at any time is not worth remembering.
#[tokio::test]
async fn our_own_late_request_is_not_taken_for_somebody_elses() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.put_outside("key", "theirs".into());
    bench.foreground.set(Way::Late);
    assert!(bench.put("key", "lost").await.is_err());
    bench.foreground.set(Way::Open);
    bench.clock.advance(Duration::from_secs(20));
    assert_eq!(bench.get("key").await.unwrap(), "theirs");
    bench.foreground.land().await.unwrap();
    bench.cache.set_policies(vec![rule("/", WriteMode::WriteBack)], None, "test", "edit").await.unwrap();
    bench.put("key", "newer").await.unwrap();
    bench.clock.advance(SETTLED);
    bench.drain().await;
    assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), ("newer".into(), 0));
}

/// Only lost answers make a key wait, and not for ever.
#[tokio::test]
async fn a_write_through_that_was_answered_makes_nobody_wait_after_a_crash() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("key", "A").await.unwrap();
    bench.foreground.set(Way::Refuse("key".to_owned(), UfsKind::Denied));
    assert!(bench.put("key", "B").await.is_err());
    assert!(bench.delete("key").await.is_err());
    bench.foreground.set(Way::Late);
    assert!(bench.put("lost", "B").await.is_err());
    bench.foreground.set(Way::Open);
    bench.delete("gone").await.unwrap();
    bench.restart().await;
    for key in ["key", "gone"] {
        bench.put(key, "C").await.unwrap();
    }
    assert_eq!(kind(bench.put("lost", "C").await), Some(ErrorKind::SlowDown));
    bench.clock.advance(SETTLED);
    bench.cache.sweep().await.unwrap();
    bench.restart().await;
    bench.put("lost", "C").await.unwrap();
}

/// A request that is under way when another fails runs to its end, and what came of it is remembered.
#[tokio::test]
async fn one_failure_does_not_drop_the_other_requests() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Late);
    bench.put("a", "first").await.unwrap();
    until("the upload of a got no answer", || bench.background.stragglers() == 1).await;
    bench.background.set(Way::Cut);
    for key in ["b", "c"] {
        bench.put(key, "first").await.unwrap();
    }
    until("both are refused", || bench.background.refusals() >= 2).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    bench.background.set(Way::Closed);
    let cache = bench.cache.clone();
    let persisting = forebay_env::spawn(async move { cache.persist("/").await });
    until("their uploads are under way", || bench.background.waiting() == 2).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!persisting.is_finished(), "although a has failed");
    bench.background.set(Way::Late);
    assert_eq!(kind(persisting.join().await), Some(ErrorKind::SlowDown));
    bench.background.set(Way::Open);
    for key in ["b", "c"] {
        bench.put(key, "second").await.unwrap();
    }
    assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::SlowDown));
    assert!(bench.under.contents().is_empty(), "nothing newer before the first requests are settled");
    for _ in 0..3 {
        bench.background.land().await.unwrap();
    }
    bench.clock.advance(SETTLED);
    bench.drain().await;
    for key in ["b", "c"] {
        assert_eq!(bench.under(key).unwrap(), "second");
    }
}

/// What can't be persisted keeps nobody else waiting.
#[tokio::test]
async fn one_object_that_is_refused_does_not_hold_up_the_others() {
    for refusal in [UfsKind::Denied, UfsKind::Invalid, UfsKind::Throttled] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        bench.background.set(Way::Refuse("bad".to_owned(), refusal));
        bench.put("bad", "value").await.unwrap();
        for n in 0..40 {
            bench.put(&format!("good{n}"), "value").await.unwrap();
        }
        bench.advancing("all others are persisted", || bench.cache.status().dirty_objects == 1).await;
        assert_eq!(bench.under.contents().len(), 40, "{refusal:?}");
        assert_eq!(bench.get("bad").await.unwrap(), "value");
        bench.background.set(Way::Open);
        bench.drain().await;
        assert_eq!(bench.under("bad").unwrap(), "value", "{refusal:?}");
    }
}

/// A whole outage, and then everything goes on by itself.
#[tokio::test]
async fn an_outage_slows_nobody_down_and_ends_by_itself() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.set_mood(Mood::Refuse(UfsKind::Unavailable));
    for n in 0..100 {
        bench.put(&format!("key{n}"), format!("value {n}")).await.unwrap();
    }
    let before = bench.under.requests();
    for _ in 0..60 {
        bench.clock.advance(Duration::from_secs(1));
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    let asked = bench.under.requests() - before;
    assert!((1..60).contains(&asked), "{asked} requests in a minute: the circuit is open and probes now and then");
    assert_eq!(bench.get("key42").await.unwrap(), "value 42");
    bench.under.set_mood(Mood::Well);
    bench.drain().await;
    assert_eq!(bench.under.contents().len(), 100);
}

/// Each object would wait for a pause of its own otherwise, of up to an hour.
#[tokio::test]
async fn credentials_that_are_valid_again_let_everything_go_on() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.set_mood(Mood::Refuse(UfsKind::Denied));
    for n in 0..100 {
        bench.put(&format!("key{n}"), format!("value {n}")).await.unwrap();
    }
    let pass = async |seconds: u64| {
        bench.clock.advance(Duration::from_secs(seconds));
        for _ in 0..500 {
            tokio::task::yield_now().await;
        }
    };
    let before = bench.under.requests();
    for _ in 0..360 {
        pass(10).await;
    }
    let asked = bench.under.requests() - before;
    assert!((1..2_000).contains(&asked), "{asked} requests in an hour");
    bench.under.set_mood(Mood::Well);
    for _ in 0..31 {
        pass(1).await;
    }
    assert_eq!(bench.cache.status().dirty_objects, 0);
    assert_eq!(bench.under.contents().len(), 100);
}

/// The next start may take the commit of the older one for done.
#[tokio::test]
async fn what_passes_the_catalog_by_outlasts_a_write_that_got_no_answer() {
    for overwritten in [false, true] {
        let mut bench = Setup::new(WriteMode::WriteBack).with_spare_disk().open().await;
        bench.background.set(Way::Closed);
        bench.disk.fail_syncs(1);
        // Disks take turns.
        let mut number = 0;
        while bench.put(&format!("key-{number}"), "older").await.is_ok() {
            number += 1;
        }
        let key = format!("key-{number}");
        bench.background.set(Way::Open);
        bench.cache.set_policies(vec![rule("/", WriteMode::WriteThrough)], None, "test", "edit").await.unwrap();
        if overwritten {
            bench.put(&key, "newer").await.unwrap();
        } else {
            bench.delete(&key).await.unwrap();
        }
        // The record of the older one is in a log.
        bench.kill().await;
        bench.settle().await;
        if overwritten {
            assert_eq!(bench.get(&key).await.unwrap(), "newer");
        } else {
            assert_eq!(kind(bench.get(&key).await), Some(ErrorKind::NotFound));
        }
        bench.drain().await;
        assert_eq!(bench.under(&key).as_deref(), overwritten.then_some("newer".as_bytes()));
    }
}

/// The next start may take the commit for done, and would not wait for a second request.
#[tokio::test]
async fn what_could_not_be_noted_is_not_sent_again() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "value").await.unwrap();
    until("the upload is under way", || bench.background.waiting() == 1).await;
    bench.disk.fail_syncs(1);
    bench.background.set(Way::Open);
    bench.advancing("the disk has failed", || !bench.cache.status().failed_directories.is_empty()).await;
    bench.background.set(Way::Late);
    for _ in 0..20 {
        bench.clock.advance(Duration::from_secs(10));
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::Unavailable));
    assert_eq!(bench.background.stragglers(), 0, "sent again");
    assert_eq!(bench.get("key").await.unwrap(), "value");
}

/// versitygw drops the connection when a condition fails while the body is on its way.
#[tokio::test]
async fn a_conditional_upload_without_an_answer_is_not_sent_again_before_a_look() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "base").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Late);
    bench.put("key", "ours").await.unwrap();
    until("its upload got no answer", || bench.background.stragglers() == 1).await;
    bench.under.put_outside("key", "theirs".into());
    bench.background.set(Way::Open);
    let (puts, heads) = (bench.background.puts(), bench.background.heads());
    bench.clock.advance(SETTLED);
    bench.drain().await;
    assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), ("theirs".into(), 1));
    assert_eq!((bench.background.puts() - puts, bench.background.heads() - heads), (0, 1));
}

/// Credentials that may not read see nothing: what they upload next shows what is there.
#[tokio::test]
async fn an_upload_without_an_answer_is_sent_again_where_nothing_can_be_looked_at() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Late);
    bench.put("key", "ours").await.unwrap();
    until("its upload got no answer", || bench.background.stragglers() == 1).await;
    bench.background.set(Way::RefuseHeads(UfsKind::Denied));
    bench.clock.advance(SETTLED);
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "ours");
}
