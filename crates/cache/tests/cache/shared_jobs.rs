//! Jobs of a cluster: a worker does what is at home there, whoever has asked for it, and its next home does the rest.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use forebay_cache::{ErrorKind, Job, JobKind, JobRequest, JobState};
use forebay_catalog::records::{self, path_hash};
use forebay_catalog::{Catalog, EmbeddedCatalog, SlotCount, SlotSet, Transaction};
use forebay_store::{Commit, ValueWrite};
use forebay_types::{BucketName, ByteSize, Durability, WriteMode};
use forebay_ufs::ErrorKind as UfsKind;
use forebay_ufs::memory::{MemoryRoot, Mood};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::held::{Answer, Others, THERE, new_home, writer};
use crate::support::gate::Way;
use crate::support::jobs::{findings, has_ended, job, jobs, request, run, start, told};
use crate::support::{Bench, HERE, Others as SharedChanges, Setup, kind, others_go_on, path, pattern, until};

const KEYS: usize = 40;

fn count() -> SlotCount {
    SlotCount::new(8).expect("slots")
}

/// The first half of the slots.
fn half() -> SlotSet {
    let mut slots = SlotSet::none(count());
    count().all().take(4).for_each(|slot| slots.insert(slot));
    slots
}

fn key(number: usize) -> String {
    format!("key/{number:02}")
}

fn keys_in(slots: &SlotSet) -> usize {
    (0..KEYS).filter(|number| slots.has_hash(path_hash(&path(&key(*number))))).count()
}

fn setup(others: &Others) -> Setup {
    let worker = Some((HERE, Arc::new(others.clone()) as _));
    Setup { worker, slots: Some(SlotSet::none(count()).others()), ..Setup::new(WriteMode::WriteBack) }
}

/// A worker that is the home of half of the slots, before an under store with an object under each key.
async fn half_a_cluster(others: &Others) -> Bench {
    let bench = setup(others).open().await;
    for number in 0..KEYS {
        bench.under.put_outside(&key(number), "value".into());
    }
    bench.cache.lose(&half().others()).await.expect("lost");
    bench
}

/// Jobs as the engine keeps them.
fn stored(bench: &Bench, id: &str) -> Value {
    let found = bench.store.value(&records::cluster_job_key(id)).expect("the job");
    serde_json::from_slice(&found.value[1..]).expect("JSON")
}

/// Another worker changes a job.
async fn change_elsewhere(bench: &Bench, id: &str, change: impl FnOnce(&mut Value)) {
    let mut job = stored(bench, id);
    change(&mut job);
    let value = [&[1], serde_json::to_vec(&job).expect("JSON").as_slice()].concat();
    write(bench, records::cluster_job_key(id), value.into()).await;
}

async fn write(bench: &Bench, key: Bytes, value: Bytes) {
    let writes = vec![ValueWrite { key, value: Some(value) }];
    let catalog = EmbeddedCatalog::new(bench.store.clone());
    catalog.commit(Transaction { writes, ..Transaction::default() }).await.expect("commit");
}

fn passes(bench: &Bench, id: &str) -> u64 {
    stored(bench, id)["shares"][HERE]["passes"].as_u64().unwrap_or(0)
}

async fn has_passed(bench: &Bench, id: &str, times: u64) {
    bench.advancing("the pass ends", || passes(bench, id) == times).await;
}

fn loaded(bench: &Bench) -> usize {
    let is_here = |number: &usize| bench.store.peek(&records::object_key(&path(&key(*number)))).is_some();
    (0..KEYS).filter(is_here).count()
}

#[tokio::test]
async fn a_worker_loads_what_is_at_home_there_and_then_what_it_gains() {
    let bench = half_a_cluster(&Others::new()).await;
    let own = keys_in(&half());
    assert!((1..KEYS).contains(&own));
    let id = start(&bench, request(JobKind::Load, "/bucket/")).await;
    has_passed(&bench, &id, 1).await;
    assert_eq!(loaded(&bench), own);
    // The other half of the slots has no home that has done it.
    bench.pass_seconds(5).await;
    let shown = job(&bench, &id);
    assert_eq!((shown.state, shown.progress.objects_done, shown.ended_ms), (JobState::Running, own as u64, None));
    bench.cache.gain(&half().others()).await.expect("gained");
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    let shown = job(&bench, &id);
    assert_eq!((shown.state, shown.progress.objects_done), (JobState::Done, KEYS as u64));
    assert_eq!((loaded(&bench), passes(&bench, &id)), (KEYS, 2));
}

/// What a home that has died has loaded is gone.
#[tokio::test]
async fn slots_that_are_gained_are_loaded_again() {
    let bench = half_a_cluster(&Others::new()).await;
    let id = start(&bench, request(JobKind::Load, "/bucket/")).await;
    has_passed(&bench, &id, 1).await;
    let mut slots = SlotSet::none(count());
    count().all().skip(4).take(2).for_each(|slot| slots.insert(slot));
    change_elsewhere(&bench, &id, |job| job["covered"] = json!([8, [0b11_1111]])).await;
    bench.cache.gain(&slots).await.expect("gained");
    has_passed(&bench, &id, 2).await;
    assert_eq!(loaded(&bench), keys_in(&half()) + keys_in(&slots));
    assert!(!has_ended(&bench, &id), "two slots are left");
}

#[tokio::test]
async fn slots_that_are_lost_before_the_end_of_a_pass_are_not_covered() {
    let bench = half_a_cluster(&Others::new()).await;
    bench.foreground.set(Way::HoldReads);
    let id = start(&bench, request(JobKind::Load, "/bucket/")).await;
    until("it asks for objects", || bench.foreground.waiting() > 0).await;
    bench.cache.gain(&half().others()).await.expect("gained");
    let cache = bench.cache.clone();
    let losing = forebay_env::spawn(async move { cache.lose(&half()).await });
    others_go_on().await;
    bench.foreground.set(Way::Open);
    bench.advancing("they are lost", || losing.is_finished()).await;
    losing.join().await.expect("lost");
    has_passed(&bench, &id, 2).await;
    assert!(!has_ended(&bench, &id), "nobody has covered the first half to its end");
    let covered: SlotSet = serde_json::from_value(stored(&bench, &id)["covered"].clone()).expect("slots");
    assert_eq!(covered, half().others());
}

#[tokio::test]
async fn a_restart_continues_a_share() {
    let mut bench = setup(&Others::new()).open().await;
    // More than a batch, and the last of a batch is noted when five seconds have passed.
    for number in 0..400 {
        bench.under.put_outside(&key(number), pattern(1, 1000));
    }
    let rate_limit = Some(ByteSize(20_000));
    let id = start(&bench, JobRequest { rate_limit, ..request(JobKind::Load, "/bucket/") }).await;
    bench.advancing("some of the second batch is loaded", || job(&bench, &id).progress.objects_done > 280).await;
    bench.kill().await;
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    let shown = job(&bench, &id);
    assert_eq!((shown.state, shown.progress.objects_seen), (JobState::Done, 400));
    assert!(shown.progress.objects_skipped < 100, "it has begun again: {shown:?}");
    bench.restart().await;
    assert_eq!(jobs(&bench), [shown]);
}

#[tokio::test]
async fn what_has_ended_while_a_worker_was_down_is_not_done_when_it_starts() {
    let mut bench = half_a_cluster(&Others::new()).await;
    let id = start(&bench, JobRequest { rate_limit: Some(ByteSize(1)), ..request(JobKind::Load, "/bucket/") }).await;
    bench.advancing("it has begun", || job(&bench, &id).progress.objects_done > 0).await;
    bench.close().await;
    let mut stored = stored(&bench, &id);
    (stored["state"], stored["endedMs"]) = (json!("cancelled"), json!(7));
    let value = [&[1], serde_json::to_vec(&stored).expect("JSON").as_slice()].concat();
    bench.write_record(records::cluster_job_key(&id), Some(value.into())).await;
    bench.reopen().await;
    let share = bench.store.value(&records::job_key(&id)).expect("the share");
    assert!(!String::from_utf8_lossy(&share.value).contains("endedMs"), "as it was stored");
    assert_eq!((bench.metric("forebay_jobs_running"), bench.metric("forebay_jobs_queued")), (0.0, 0.0));
    let asked = bench.foreground.gets().len();
    bench.pass_seconds(5).await;
    assert_eq!((bench.foreground.gets().len(), job(&bench, &id).ended_ms), (asked, Some(7)));
}

/// Its next home persists what is left of them.
#[tokio::test]
async fn slots_that_are_given_up_do_not_fail_a_persist() {
    let bench = setup(&Others::new()).open().await;
    bench.background.set(Way::Closed);
    for number in 0..KEYS {
        bench.put(&key(number), "value").await.expect("put");
    }
    let id = start(&bench, JobRequest { concurrency: Some(1), ..request(JobKind::Persist, "/") }).await;
    bench.advancing("it tries", || job(&bench, &id).progress.objects_seen > 0).await;
    let cache = bench.cache.clone();
    let losing = forebay_env::spawn(async move { cache.lose(&half()).await });
    others_go_on().await;
    bench.background.set(Way::Open);
    bench.advancing("they are lost", || losing.is_finished()).await;
    losing.join().await.expect("lost");
    has_passed(&bench, &id, 1).await;
    let shown = job(&bench, &id);
    assert_eq!((shown.state, shown.progress.objects_failed, shown.error), (JobState::Running, 0, None));
    let covered: SlotSet = serde_json::from_value(stored(&bench, &id)["covered"].clone()).expect("slots");
    assert_eq!(covered, half().others());
}

/// As a single worker does.
#[tokio::test]
async fn a_persist_fails_when_all_shares_were_tried() {
    let bench = half_a_cluster(&Others::new()).await;
    let refused = (0..KEYS).map(key).find(|key| half().has_path(&path(key))).expect("a key");
    bench.background.set(Way::Refuse(refused.clone(), UfsKind::Denied));
    bench.put(&refused, "newer").await.expect("put");
    let id = start(&bench, request(JobKind::Persist, "/")).await;
    has_passed(&bench, &id, 1).await;
    bench.pass_seconds(2).await;
    let shown = job(&bench, &id);
    assert_eq!((shown.state, shown.progress.objects_failed), (JobState::Running, 1));
    assert!(shown.error.expect("a reason").starts_with("worker here: "));
    bench.cache.gain(&half().others()).await.expect("gained");
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    let shown = job(&bench, &id);
    assert_eq!((shown.state, shown.error.is_some()), (JobState::Failed, true));
}

/// A change that came in between is kept, as is this worker's.
#[tokio::test]
async fn workers_that_end_their_passes_at_once_are_both_noted() {
    let changes = Arc::new(SharedChanges::default());
    let bench = Setup { others: Some(Arc::clone(&changes)), ..setup(&Others::new()) }.open().await;
    bench.under.put_outside("key", "value".into());
    bench.foreground.set(Way::HoldReads);
    let id = start(&bench, request(JobKind::Load, "/bucket/")).await;
    until("it asks for the object", || bench.foreground.waiting() > 0).await;
    let mut theirs = stored(&bench, &id);
    theirs["shares"][THERE] = json!({"passes": 1, "progress": {"objectsSeen": 5, "objectsDone": 5, "bytesDone": 9,
        "objectsSkipped": 0, "objectsFailed": 0}, "findings": 0});
    let value = [&[1], serde_json::to_vec(&theirs).expect("JSON").as_slice()].concat();
    changes.ahead.lock().push(ValueWrite { key: records::cluster_job_key(&id), value: Some(value.into()) });
    bench.foreground.set(Way::Open);
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    assert_eq!((passes(&bench, &id), job(&bench, &id).progress.objects_done), (1, 6));
}

/// They may come back.
#[tokio::test]
async fn verify_does_not_take_bytes_that_are_out_of_reach_for_missing() {
    let others = Others::new();
    let there = writer("key", "written there").await;
    let bench = new_home(setup(&others), &others, &there, &[records::object_key(&path("key"))]).await;
    bench.advancing("it does not come", || bench.cache.status().copies_unavailable == 1).await;
    let (done, found) = run(&bench, request(JobKind::Verify, "/")).await;
    assert_eq!((done.state, told(&found)), (JobState::Done, vec![("/bucket/key", "unavailable")]));
}

#[tokio::test]
async fn verify_reports_what_no_worker_has() {
    let bench = half_a_cluster(&Others::new()).await;
    bench.background.set(Way::Closed);
    let lost = (0..KEYS).map(key).find(|key| half().has_path(&path(key))).expect("a key");
    bench.put(&lost, "newer").await.expect("put");
    let forget = vec![records::object_key(&path(&lost))];
    bench.store.commit(Commit { forget, ..Commit::default() }, Durability::Fsync).await.expect("forgotten");
    bench.background.set(Way::Cut);
    let id = start(&bench, request(JobKind::Verify, "/")).await;
    has_passed(&bench, &id, 1).await;
    assert_eq!(told(&findings(&bench, &id).await), [(format!("/bucket/{lost}").as_str(), "missing-bytes")]);
}

/// After a start nobody knows for a moment who else lives.
#[tokio::test]
async fn a_worker_that_does_not_know_the_others_ends_no_job() {
    let others = Others::new();
    others.are_unknown.store(true, Ordering::Relaxed);
    let bench = half_a_cluster(&others).await;
    let id = start(&bench, request(JobKind::Scrub, "/")).await;
    bench.pass_seconds(3).await;
    assert_eq!((passes(&bench, &id), bench.metric("forebay_jobs_running")), (0, 0.0));
    others.answer(THERE, Answer::Nothing);
    others.are_unknown.store(false, Ordering::Relaxed);
    has_passed(&bench, &id, 1).await;
    others.are_unknown.store(true, Ordering::Relaxed);
    bench.pass_seconds(3).await;
    assert!(!has_ended(&bench, &id));
    others.workers.lock().remove(THERE);
    others.are_unknown.store(false, Ordering::Relaxed);
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
}

/// What is dirty when it begins, in passes like the others; what waits at another worker is not its business.
#[tokio::test]
async fn persist_verify_free_and_scrub_end_when_all_workers_have_done_their_shares() {
    let bench = half_a_cluster(&Others::new()).await;
    bench.background.set(Way::Closed);
    let own: Vec<_> = (0..KEYS).map(key).filter(|key| half().has_path(&path(key))).collect();
    for key in &own {
        bench.put(key, "newer").await.expect("put");
    }
    bench.background.set(Way::Open);
    for kind in [JobKind::Persist, JobKind::Verify] {
        let id = start(&bench, request(kind, "/")).await;
        has_passed(&bench, &id, 1).await;
        bench.pass_seconds(3).await;
        assert_eq!(job(&bench, &id).state, JobState::Running, "{kind:?}");
        // As its home does it.
        change_elsewhere(&bench, &id, |job| job["covered"] = json!([8, [255]])).await;
        bench.advancing("the job ends", || has_ended(&bench, &id)).await;
        assert_eq!(job(&bench, &id).state, JobState::Done, "{kind:?}");
        assert!(findings(&bench, &id).await.is_empty(), "{kind:?}");
    }
    assert!(bench.is_drained());
    for kind in [JobKind::Scrub, JobKind::Free] {
        let (done, found) = run(&bench, request(kind, "/")).await;
        assert_eq!((done.state, done.progress.objects_done), (JobState::Done, own.len() as u64), "{kind:?}");
        assert!(found.is_empty(), "{found:?}");
    }
    assert_eq!(loaded(&bench), 0);
}

/// How often a share of a job that frees was done here.
fn freed(bench: &Bench) -> f64 {
    bench.metric("forebay_jobs_ended_total{kind=\"free\",state=\"done\"}")
}

/// The worker may have taken copies over from another one that has not freed them yet.
#[tokio::test]
async fn slots_that_are_gained_are_freed_again() {
    let others = Others::new();
    let bench = half_a_cluster(&others).await;
    others.answer(THERE, Answer::Nothing);
    let id = start(&bench, request(JobKind::Free, "/")).await;
    has_passed(&bench, &id, 1).await;
    bench.cache.gain(&half().others()).await.expect("gained");
    bench.advancing("they are freed again", || freed(&bench) == 2.0).await;
    has_passed(&bench, &id, 1).await;
    bench.pass_seconds(3).await;
    assert_eq!((freed(&bench), has_ended(&bench, &id)), (2.0, false));
}

#[tokio::test]
async fn slots_that_are_gained_during_a_pass_are_freed_again() {
    let others = Others::new();
    let bench = half_a_cluster(&others).await;
    others.answer(THERE, Answer::Nothing);
    bench.foreground.set(Way::HoldReads);
    for _ in 0..2 {
        start(&bench, request(JobKind::Load, "/bucket/")).await;
    }
    until("two run", || bench.metric("forebay_jobs_running") == 2.0).await;
    let id = start(&bench, request(JobKind::Free, "/")).await;
    until("its pass has begun", || bench.metric("forebay_jobs_queued") == 1.0).await;
    bench.cache.gain(&half().others()).await.expect("gained");
    bench.foreground.set(Way::Open);
    bench.advancing("they are freed again", || freed(&bench) == 2.0).await;
    has_passed(&bench, &id, 1).await;
}

/// Disks are those of the workers that live.
#[tokio::test]
async fn a_job_about_disks_waits_for_each_worker_that_lives() {
    let others = Others::new();
    let bench = half_a_cluster(&others).await;
    others.answer(THERE, Answer::Nothing);
    let id = start(&bench, request(JobKind::Scrub, "/")).await;
    has_passed(&bench, &id, 1).await;
    bench.pass_seconds(3).await;
    assert!(!has_ended(&bench, &id));
    others.workers.lock().remove(THERE);
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    assert_eq!(job(&bench, &id).state, JobState::Done);
}

#[tokio::test]
async fn a_job_that_ends_elsewhere_ends_here() {
    for state in ["cancelled", "failed"] {
        let bench = half_a_cluster(&Others::new()).await;
        bench.foreground.set(Way::HoldReads);
        let id = start(&bench, request(JobKind::Load, "/bucket/")).await;
        until("it asks for objects", || bench.foreground.waiting() > 0).await;
        change_elsewhere(&bench, &id, |job| {
            job["state"] = json!(state);
            job["endedMs"] = json!(7);
            job["error"] = json!("worker there: no");
        })
        .await;
        bench.advancing("no share is left", || bench.metric("forebay_jobs_running") == 0.0).await;
        let shown = job(&bench, &id);
        assert_eq!((shown.ended_ms, shown.error.as_deref()), (Some(7), Some("worker there: no")));
        assert_eq!(passes(&bench, &id), 0);
    }
}

#[tokio::test]
async fn a_cancellation_ends_the_share_here() {
    let bench = half_a_cluster(&Others::new()).await;
    bench.foreground.set(Way::HoldReads);
    let id = start(&bench, request(JobKind::Load, "/bucket/")).await;
    until("it asks for objects", || bench.foreground.waiting() > 0).await;
    let cancelled: Job = bench.cache.cancel_job(&id).await.expect("cancelled");
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert_eq!(cancelled.progress.objects_seen, 8, "what was done for it is counted");
    assert_eq!(bench.metric("forebay_jobs_running"), 0.0);
    // Again: it stays as it is.
    assert_eq!(bench.cache.cancel_job(&id).await.expect("cancelled"), cancelled);
    assert_eq!(kind(bench.cache.cancel_job("none").await), Some(ErrorKind::NotFound));
    assert_eq!(kind(bench.cache.job("none").await), Some(ErrorKind::NotFound));
}

#[tokio::test]
async fn a_share_that_fails_fails_the_job() {
    let root = Arc::new(MemoryRoot::default());
    let bench = Setup { root: Some(root), ..setup(&Others::new()) }.open().await;
    let bucket = BucketName::new("gone").expect("a name");
    bench.cache.create_bucket(&bucket).await.expect("a bucket");
    bench.under.put_outside("key", "value".into());
    bench.foreground.set(Way::HoldReads);
    for _ in 0..2 {
        start(&bench, request(JobKind::Load, "/bucket/")).await;
    }
    until("two run", || bench.metric("forebay_jobs_running") == 2.0).await;
    let id = start(&bench, request(JobKind::Load, "/gone/")).await;
    bench.cache.delete_bucket(&bucket).await.expect("it is empty");
    bench.foreground.set(Way::Open);
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    let shown = job(&bench, &id);
    assert_eq!(shown.state, JobState::Failed);
    assert!(shown.error.expect("a reason").starts_with("worker here: "));
    bench.advancing("the others end", || jobs(&bench).iter().all(|job| job.ended_ms.is_some())).await;
    assert_eq!(jobs(&bench).iter().filter(|job| job.state == JobState::Done).count(), 2);
}

/// The engine does not answer for a while, and this worker is the home of nothing meanwhile.
#[tokio::test]
async fn a_share_waits_for_the_engine() {
    let until_end = Arc::new(Mutex::new(Duration::MAX));
    let bench = Setup { leased_until: Some(Arc::clone(&until_end)), ..setup(&Others::new()) }.open().await;
    bench.under.put_outside("key", "value".into());
    bench.get("key").await.expect("it is there");
    bench.under.put_outside("held", "value".into());
    bench.foreground.set(Way::HoldReads);
    for _ in 0..2 {
        start(&bench, request(JobKind::Load, "/bucket/")).await;
    }
    until("two run", || bench.metric("forebay_jobs_running") == 2.0).await;
    let id = start(&bench, request(JobKind::Free, "/bucket/")).await;
    until("it is queued", || bench.metric("forebay_jobs_queued") == 1.0).await;
    *until_end.lock() = Duration::ZERO;
    bench.foreground.set(Way::Open);
    // For its turn before that.
    let waits = || job(&bench, &id).error.is_some_and(|why| why.starts_with("worker here: waits: "));
    bench.advancing("it waits for the engine", waits).await;
    *until_end.lock() = Duration::MAX;
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    let shown = job(&bench, &id);
    assert_eq!((shown.state, shown.progress.objects_done, shown.error), (JobState::Done, 2, None));
}

/// Findings say who has found them, and are those of one worker after those of another.
#[tokio::test]
async fn findings_of_all_workers_are_told() {
    let others = Others::new();
    let there = setup(&Others::new()).open().await;
    let here = setup(&others).open().await;
    for bench in [&here, &there] {
        bench.background.set(Way::Closed);
        bench.put("dirty", "value").await.expect("put");
    }
    there.put("more", "value").await.expect("put");
    others.answer(THERE, Answer::From(there.cache.clone()));
    let id = start(&here, request(JobKind::Free, "/")).await;
    has_passed(&here, &id, 1).await;
    // The engine tells the other worker of the job.
    let value = here.store.value(&records::cluster_job_key(&id)).expect("the job").value;
    write(&there, records::cluster_job_key(&id), value).await;
    // In this test both have the same name.
    change_elsewhere(&there, &id, |job| job["shares"] = json!({})).await;
    has_passed(&there, &id, 1).await;
    let found = findings(&here, &id).await;
    assert_eq!(told(&found), [("/bucket/dirty", "pinned"), ("/bucket/dirty", "pinned"), ("/bucket/more", "pinned")]);
    let by: Vec<_> = found.iter().map(|finding| finding.worker.as_deref()).collect();
    assert_eq!(by, [Some(HERE), Some(THERE), Some(THERE)]);
    for after in 0..4 {
        let page = here.cache.job_findings(&id, after, 2).await.expect("findings");
        assert_eq!(page, found[after as usize..].iter().take(2).cloned().collect::<Vec<_>>());
    }
}

/// A limit is of all workers together.
#[tokio::test]
async fn workers_share_the_limit_of_a_job() {
    let mut elapsed = Vec::new();
    for workers in [&[][..], &["w1", "w2", "w3"]] {
        let others = Others::new();
        let bench = setup(&others).open().await;
        bench.put("key", pattern(1, 8 << 20)).await.expect("put");
        workers.iter().for_each(|worker| others.answer(worker, Answer::Nothing));
        let begun = bench.env.clock.monotonic();
        let rate_limit = Some(ByteSize(1 << 20));
        let id = start(&bench, JobRequest { rate_limit, ..request(JobKind::Scrub, "/") }).await;
        has_passed(&bench, &id, 1).await;
        elapsed.push(bench.env.clock.monotonic() - begun);
    }
    assert!(elapsed[1] > 3 * elapsed[0], "{elapsed:?}");
}

/// It is the last one that ended, although it was created first.
#[tokio::test]
async fn a_job_that_ran_for_long_is_kept_and_so_are_those_of_other_users() {
    let bench = setup(&Others::new()).open().await;
    bench.under.set_mood(Mood::Hang);
    let long = start(&bench, request(JobKind::Load, "/bucket")).await;
    until("it runs", || bench.metric("forebay_jobs_running") == 1.0).await;
    let of_other = bench.cache.create_job(request(JobKind::Free, "/"), "berta").await.expect("a job").id;
    bench.advancing("the job of another user ends", || has_ended(&bench, &of_other)).await;
    for _ in 0..101 {
        run(&bench, request(JobKind::Free, "/")).await;
    }
    // All others have ended before.
    bench.clock.advance(Duration::from_secs(1));
    bench.under.set_mood(Mood::Well);
    bench.advancing("the oldest are gone", || jobs(&bench).len() == 100).await;
    assert_eq!(job(&bench, &long).state, JobState::Done);
    assert!(has_ended(&bench, &of_other));
}

#[tokio::test]
async fn too_many_jobs_are_refused_and_the_last_hundred_that_ended_are_kept() {
    let bench = half_a_cluster(&Others::new()).await;
    let mut ids = Vec::new();
    while let Ok(job) = bench.cache.create_job(request(JobKind::Load, "/"), "anna").await {
        ids.push(job.id);
    }
    assert_eq!(ids.len(), 93, "some places are left for others");
    let refused = bench.cache.create_job(request(JobKind::Load, "/"), "anna").await;
    assert_eq!(kind(refused), Some(ErrorKind::SlowDown));
    bench.cache.create_job(request(JobKind::Load, "/"), "berta").await.expect("a job");
    bench.cache.gain(&half().others()).await.expect("gained");
    bench.advancing("all end", || jobs(&bench).iter().all(|job| job.ended_ms.is_some())).await;
    for _ in 0..10 {
        run(&bench, request(JobKind::Free, "/")).await;
    }
    bench.advancing("the oldest are gone", || jobs(&bench).len() == 100).await;
    let (from, to) = records::all_jobs_range();
    bench.advancing("with the shares in them", || bench.store.scan(&from, &to, 1000).len() == 100).await;
}
