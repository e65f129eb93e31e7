//! Uploads: how many at once, in which order, and what is believed of an under store that does not tell what it has.

use std::time::Duration;

use forebay_cache::ErrorKind;
use forebay_catalog::records;
use forebay_types::{Durability, WriteMode};
use forebay_ufs::ErrorKind as UfsKind;
use forebay_ufs::memory::{Applied, Mood};

use crate::support::gate::Way;
use crate::support::{Bench, Setup, if_absent, kind, others_go_on, path, pattern, rule, seeds, until};

const MIB: usize = 1 << 20;

/// Their bytes keep the way busy; small ones mostly wait for answers.
#[tokio::test]
async fn sixteen_large_objects_are_on_their_way_at_once_and_any_number_of_others() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    let body = pattern(1, MIB + 1);
    for n in 0..18 {
        bench.put(&format!("large-{n}"), body.clone()).await.unwrap();
    }
    others_go_on().await;
    assert_eq!(bench.background.waiting(), 16);
    bench.put("one MiB", body.slice(1..)).await.unwrap();
    bench.put("small", "value").await.unwrap();
    others_go_on().await;
    assert_eq!(bench.background.waiting(), 18, "these need no place among the large ones");
    bench.background.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.under.contents().len(), 20);
}

/// What it waits for is the write that came meanwhile, and that is younger than those of others.
#[tokio::test]
async fn an_object_that_is_written_during_its_upload_is_dirty_since_that_write_when_it_has_ended() {
    let mut bench = Setup::new(WriteMode::WriteBack).settings(|settings| settings.persist_concurrency = 1).open().await;
    bench.background.set(Way::Closed);
    bench.put("often", "first").await.unwrap();
    until("its upload is under way", || bench.background.waiting() == 1).await;
    let other = bench.put("other", "value").await.unwrap().last_modified_ms;
    bench.clock.advance(Duration::from_secs(5));
    let second = bench.put("often", "second").await.unwrap().last_modified_ms;
    // The first upload gets through, and the next one waits.
    bench.under.set_mood(Mood::Hang);
    bench.background.set(Way::Open);
    until("it has got through", || bench.background.waiting() == 0).await;
    bench.background.set(Way::Closed);
    bench.under.set_mood(Mood::Well);
    until("the next upload is under way", || bench.background.waiting() == 1).await;
    bench.kill().await;
    let since = async |key| bench.cache.object_detail(&path(key)).await.unwrap().dirty_since_ms;
    assert_eq!((since("often").await, since("other").await), (Some(second), Some(other)));
    let age = bench.env.clock.unix_ms() - other;
    assert_eq!(bench.cache.status().oldest_dirty_age_ms, age);
    bench.drain().await;
    let put = |applied| match applied {
        Applied::Put { key, .. } | Applied::Delete { key } => key,
    };
    let order: Vec<_> = bench.under.applied().into_iter().map(put).collect();
    assert_eq!(order, ["often", "other", "often"], "the longest dirty goes first");
}

/// A condition did not hold, and what is there instead can't be looked at now.
#[tokio::test]
async fn what_cannot_be_looked_at_is_not_taken_for_absent() {
    for delete in [false, true] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        bench.put("key", "base").await.unwrap();
        bench.drain().await;
        bench.background.set(Way::Closed);
        if delete {
            bench.delete("key").await.unwrap();
        } else {
            bench.put("key", "ours").await.unwrap();
        }
        until("the request is under way", || bench.background.waiting() == 1).await;
        bench.under.put_outside("key", "them".into());
        bench.background.set(Way::RefuseHeads(UfsKind::Unavailable));
        assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::Unavailable), "deleted: {delete}");
        let status = bench.cache.status();
        assert_eq!((status.dirty_objects + status.tombstones, status.conflicts), (1, 0), "deleted: {delete}");
        assert_eq!(bench.background.heads(), 2, "one look for each try");
        bench.background.set(Way::Open);
        bench.drain().await;
        assert_eq!(bench.under("key").unwrap(), "them", "deleted: {delete}");
        assert_eq!(bench.cache.status().conflicts, u64::from(!delete));
    }
}

/// A record that only the operating system has may go with the power, and the request that it made lands later.
#[tokio::test]
async fn a_request_is_known_of_after_a_power_cut_whatever_that_took() {
    for seed in seeds(8) {
        let setup = Setup::new(WriteMode::WriteBack).policy(|rule| rule.durability = Some(Durability::Os));
        // What is synced on one disk syncs nothing on the other.
        let mut bench = setup.with_spare_disk().open().await;
        bench.put("key", "first").await.unwrap();
        bench.drain().await;
        bench.background.set(Way::Late);
        bench.delete("key").await.unwrap();
        until("the delete got no answer", || bench.background.stragglers() == 1).await;
        let dead = bench.background.clone();
        bench.power_loss(seed).await;
        bench.put("key", "second").await.unwrap();
        assert_eq!(kind(bench.cache.persist("/").await), Some(ErrorKind::SlowDown), "seed {seed}");
        dead.land().await.unwrap();
        bench.settle().await;
        bench.drain().await;
        assert_eq!(bench.under("key").unwrap(), "second", "seed {seed}");
    }
}

/// The process has to end: what it promises to bring to the under store nobody brings there any more.
#[tokio::test]
async fn a_fault_that_ends_background_work_is_told() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Refuse("key".to_owned(), UfsKind::Denied));
    bench.put("key", "value").await.unwrap();
    others_go_on().await;
    assert!(!bench.cache.has_failed(), "a request that is refused is no fault");
    bench.background.set(Way::Panic);
    bench.pass_seconds(10).await;
    assert!(bench.cache.has_failed());
    assert_eq!(bench.get("key").await.unwrap(), "value");
}

/// The keys of requests that may be on their way.
fn noted(bench: &Bench) -> Vec<String> {
    let (from, to) = records::all_requests_range();
    let found = bench.store.scan(&from, &to, 10).into_iter();
    found.filter_map(|(key, _)| Some(records::parse_request_key(&key)?.key.to_string())).collect()
}

/// Else writes of their keys would wait after every start.
#[tokio::test]
async fn requests_that_were_answered_leave_no_note() {
    let bench = Setup::new(WriteMode::WriteBack).policy(|rule| rule.durability = Some(Durability::Os)).open().await;
    let notes = || noted(&bench);
    let mode = |mode| bench.cache.set_policies(vec![rule("/", mode)], None, "test", "edit");
    bench.background.set(Way::Closed);
    bench.put("uploaded", "value").await.unwrap();
    until("the upload is under way", || bench.background.waiting() == 1).await;
    assert_eq!(notes(), ["uploaded"]);
    bench.background.set(Way::Open);
    bench.drain().await;
    mode(WriteMode::Transient).await.unwrap();
    bench.put("overwritten", "value").await.unwrap();
    bench.put("deleted", "value").await.unwrap();
    mode(WriteMode::WriteThrough).await.unwrap();
    bench.put("overwritten", "newer").await.unwrap();
    bench.delete("deleted").await.unwrap();
    assert_eq!(notes(), [""; 0]);
}

/// What was sent has been replaced by a version that goes nowhere.
#[tokio::test]
async fn an_answered_request_leaves_no_note_when_a_transient_version_has_come_meanwhile() {
    let bench = Setup::new(WriteMode::WriteBack).policy(|rule| rule.durability = Some(Durability::Os)).open().await;
    bench.background.set(Way::Closed);
    bench.put("key", "sent").await.unwrap();
    until("the upload waits at the gate", || bench.background.waiting() == 1).await;
    bench.cache.set_policies(vec![rule("/", WriteMode::Transient)], None, "test", "edit").await.unwrap();
    bench.put("key", "stays here").await.unwrap();
    assert_eq!(noted(&bench), ["key"]);
    bench.background.set(Way::Open);
    until("its end is noted", || noted(&bench).is_empty()).await;
    assert_eq!(bench.under("key").unwrap(), "sent");
    assert_eq!(bench.get("key").await.unwrap(), "stays here");
}

/// It is remembered of a version that waits, to look before that one is sent again. Of others, it would be remembered
/// until the process ends.
#[tokio::test]
async fn a_lost_answer_is_forgotten_with_the_version_that_waited() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let mode = |mode| bench.cache.set_policies(vec![rule("/", mode)], None, "test", "edit");
    bench.background.set(Way::Late);
    bench.put("key", "sent").await.unwrap();
    let failures = "forebay_persist_failures_total{kind=\"Ambiguous\"}";
    until("the upload gets no answer", || bench.metric(failures) > 0.0).await;
    mode(WriteMode::Transient).await.unwrap();
    bench.put("key", "stays here").await.unwrap();
    mode(WriteMode::WriteBack).await.unwrap();
    bench.background.set(Way::Open);
    bench.put("key", "last").await.unwrap();
    bench.drain().await;
    assert_eq!((bench.under("key").unwrap(), bench.background.heads()), ("last".into(), 0));
}

/// The note of its time needs room as well, when none of a write has been made since.
#[tokio::test]
async fn a_delete_that_a_full_disk_does_not_note_is_noted_when_there_is_room() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "value").await.unwrap();
    bench.drain().await;
    bench.clock.advance(Duration::from_secs(2));
    bench.background.set(Way::Closed);
    bench.delete("key").await.unwrap();
    until("the delete is under way", || bench.background.waiting() == 1).await;
    bench.disk.fail_writes(Some(std::io::ErrorKind::StorageFull));
    bench.background.set(Way::Open);
    until("the under store has carried it out", || bench.under("key").is_none()).await;
    others_go_on().await;
    bench.disk.fail_writes(None);
    bench.drain().await;
    assert_eq!(bench.cache.status().tombstones, 0);
}

/// What is noted of an upload may need a new file, and there is no descriptor for one.
#[tokio::test]
async fn an_upload_that_is_not_noted_for_want_of_a_descriptor_is_noted_when_there_is_one() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "value").await.unwrap();
    until("the upload is under way", || bench.background.waiting() == 1).await;
    bench.disk.fail_creates(Some(std::io::ErrorKind::ResourceBusy));
    let refused = loop {
        if let Err(error) = bench.put("other", "x".repeat(3000)).await {
            break error;
        }
    };
    assert_eq!(refused.kind, ErrorKind::SlowDown, "{refused}");
    bench.background.set(Way::Open);
    until("the under store has it", || bench.under("key").is_some()).await;
    others_go_on().await;
    bench.disk.fail_creates(None);
    bench.drain().await;
    assert_eq!(bench.cache.status().dirty_objects, 0);
}

/// Of which nothing is known any more here. What is small is sent at once: most of the time nothing is there.
#[tokio::test]
async fn a_large_object_is_not_sent_before_it_is_known_what_it_replaces() {
    for (size, sent) in [(8 << 20, 1), (1000, 2)] {
        let bench = Setup::new(WriteMode::WriteBack).capacity(64 << 20).open().await;
        bench.under.put_outside("key", "of somebody else".into());
        bench.put("key", vec![b'x'; size]).await.unwrap();
        bench.drain().await;
        assert_eq!(bench.background.puts(), sent, "{size} bytes");
        assert_eq!(bench.under("key").unwrap().len(), size);
    }
}

async fn put_or_delete(bench: &Bench, next: Option<&'static str>) {
    match next {
        Some(body) => drop(bench.put("key", body).await.expect("put")),
        None => bench.delete("key").await.expect("delete"),
    }
}

async fn check_that_it_is_persisted(bench: &Bench, next: Option<&'static str>, case: &str) {
    bench.drain().await;
    let abandoned = bench.metric("forebay_abandoned_deletes_total");
    assert_eq!((bench.cache.status().conflicts, abandoned), (0, 0.0), "{next:?} {case}");
    assert_eq!(bench.under("key"), next.map(Into::into), "{next:?} {case}");
}

/// The object itself has its stamp and the ETag of its bytes. After a restart, nothing shows that the answer was
/// another.
#[tokio::test]
async fn an_etag_that_a_gateway_made_up_is_no_write_of_others() {
    for next in [Some("second"), None] {
        for restart in ["without a restart", "written after a restart", "written before a restart"] {
            let mut bench = Bench::new(WriteMode::WriteBack).await;
            bench.background.set(Way::MistellEtags);
            bench.put("key", "first").await.unwrap();
            bench.drain().await;
            if restart == "written after a restart" {
                bench.restart().await;
            }
            bench.background.set(Way::Cut);
            put_or_delete(&bench, next).await;
            if restart == "written before a restart" {
                bench.restart().await;
            }
            bench.background.set(Way::Open);
            check_that_it_is_persisted(&bench, next, restart).await;
        }
    }
}

/// The next version was here before the first one had arrived.
#[tokio::test]
async fn an_etag_that_was_made_up_for_a_version_that_is_replaced_is_no_write_of_others() {
    for next in [Some("second"), None] {
        for restarts in [false, true] {
            let mut bench = Bench::new(WriteMode::WriteBack).await;
            bench.background.set(Way::Closed);
            bench.put("key", "first").await.unwrap();
            until("its upload waits", || bench.background.waiting() == 1).await;
            put_or_delete(&bench, next).await;
            let under = bench.under.clone();
            bench.background.after_next_put(move || under.set_mood(Mood::Refuse(UfsKind::Unavailable)));
            bench.background.set(Way::MistellEtags);
            until("the first version is there", || bench.under("key").is_some()).await;
            if restarts {
                bench.restart().await;
            } else {
                others_go_on().await;
            }
            bench.background.set(Way::Open);
            bench.under.set_mood(Mood::Well);
            check_that_it_is_persisted(&bench, next, if restarts { "with a restart" } else { "" }).await;
        }
    }
}

/// Of an object without a stamp, only the answer tells whose it is.
#[tokio::test]
async fn an_upload_without_a_stamp_whose_record_is_in_doubt_is_no_write_of_others() {
    for next in [Some("second"), None] {
        // Disks take turns: one of the two records the outcome.
        for is_spare in [false, true] {
            let bench = Setup::new(WriteMode::WriteBack).with_spare_disk().open().await;
            let spare = bench.setup.spare.clone().expect("a second disk");
            bench.background.set(Way::Closed);
            bench.put_without_stamp("key", "first", if_absent()).await.unwrap();
            until("its upload waits", || bench.background.waiting() == 1).await;
            let disk = if is_spare { &spare } else { &bench.disk };
            disk.fail_syncs(1);
            bench.background.set(Way::Open);
            let has_failed = || !bench.cache.status().failed_directories.is_empty();
            bench.advancing("the outcome is recorded or in doubt", || has_failed() || bench.is_drained()).await;
            disk.fail_syncs(0);
            others_go_on().await;
            put_or_delete(&bench, next).await;
            check_that_it_is_persisted(&bench, next, "after a failed sync").await;
        }
    }
}

#[tokio::test]
async fn what_others_write_over_an_object_whose_etag_was_made_up_stays() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::MistellEtags);
    bench.put("key", "first").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Open);
    bench.under.put_outside("key", "theirs".into());
    bench.put("key", "second").await.unwrap();
    bench.drain().await;
    assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), ("theirs".into(), 1));
}
