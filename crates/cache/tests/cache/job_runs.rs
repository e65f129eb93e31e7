//! How jobs come to their end: where they go on, what they wait for, how many there are and what they say of it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::{
    Attributes, CacheTier, Conditions, Job, JobFinding, JobKind, JobProgress, JobRequest, JobState, PutObject,
};
use forebay_catalog::records;
use forebay_types::{BucketName, ByteSize, ObjectPath, Period, WriteMode};
use forebay_ufs::memory::{MemoryRoot, Mood};
use forebay_ufs::{BucketRoot, ErrorKind as UfsKind};

use crate::support::gate::Way;
use crate::support::jobs::{findings, has_ended, job, request, run, start, told};
use crate::support::{Bench, Setup, incoming, others_go_on, pattern, until};

/// Buckets before and behind the mounted one.
async fn with_buckets(names: &[&str]) -> (Bench, MemoryRoot) {
    let root = MemoryRoot::default();
    let mut setup = Setup::new(WriteMode::WriteThrough);
    setup.root = Some(Arc::new(root.clone()) as Arc<dyn BucketRoot>);
    for name in names {
        root.create(&bucket(name)).await.expect("a bucket");
    }
    (setup.open().await, root)
}

fn bucket(name: &str) -> BucketName {
    BucketName::new(name).expect("a bucket")
}

/// A job of everything, as the catalog has it when the process ends on its way.
fn begun(kind: JobKind) -> Job {
    Job {
        id: "0000000000000001".to_owned(),
        request: request(kind, "/"),
        state: JobState::Running,
        created_by: "anna".to_owned(),
        created_ms: 1,
        started_ms: Some(2),
        ended_ms: None,
        progress: JobProgress::default(),
        findings: 0,
        error: None,
    }
}

/// Starts the process with a job that has begun, and sees it to its end.
async fn goes_on(bench: &mut Bench, begun: Job) -> Job {
    bench.close().await;
    bench.write_record(records::job_key(&begun.id), Some(records::encode_json(&begun))).await;
    bench.reopen().await;
    bench.advancing("the job ends", || has_ended(bench, &begun.id)).await;
    job(bench, &begun.id)
}

#[tokio::test]
async fn a_job_of_several_buckets_goes_on_behind_the_last_path() {
    for kind in [JobKind::Load, JobKind::Verify] {
        let (mut bench, root) = with_buckets(&["a-first", "z-last"]).await;
        let (first, last) = (root.bucket(&bucket("a-first")).unwrap(), root.bucket(&bucket("z-last")).unwrap());
        for n in 0..7 {
            first.put_outside(&format!("{n}"), "done".into());
        }
        for n in 0..3 {
            bench.under.put_outside(&format!("{n}"), "half done".into());
        }
        // One of them sorts before the path.
        for n in [0, 2, 3] {
            last.put_outside(&format!("{n}"), "to be done".into());
        }
        let progress = JobProgress { after: Some("/bucket/1".to_owned()), ..JobProgress::default() };
        let ended = goes_on(&mut bench, Job { progress, ..begun(kind) }).await;
        assert_eq!((ended.state, ended.progress.objects_seen), (JobState::Done, 1 + 3), "{kind:?}: {ended:?}");
        let tier = async |path: &str| {
            let (bucket, key) = path.split_once('/').expect("a path");
            let path = ObjectPath::parse(bucket, key).expect("a path");
            bench.cache.object_detail(&path).await.expect("a detail").tier
        };
        let here = if kind == JobKind::Load { CacheTier::Disk } else { CacheTier::UnderStore };
        for (path, expected) in [
            ("a-first/6", CacheTier::UnderStore),
            ("bucket/1", CacheTier::UnderStore),
            ("bucket/2", here),
            ("z-last/0", here),
            ("z-last/3", here),
        ] {
            assert_eq!(tier(path).await, expected, "{kind:?}: {path}");
        }
    }
}

/// Its copies are nobody's, and none of the bucket behind it.
#[tokio::test]
async fn verify_passes_by_copies_of_a_bucket_that_is_gone_between_two_others() {
    let (bench, root) = with_buckets(&["middle", "z-last"]).await;
    for (name, key) in [("bucket", "1"), ("middle", "1"), ("middle", "2"), ("z-last", "1")] {
        let path = ObjectPath::parse(name, key).unwrap();
        let (body, attributes) = (incoming("value".into()), Attributes::default());
        bench.cache.put(PutObject { path, body, attributes, conditions: Conditions::default() }).await.unwrap();
    }
    let middle = root.bucket(&bucket("middle")).unwrap();
    middle.contents().keys().for_each(|key| middle.delete_outside(key));
    root.delete(&bucket("middle")).await.unwrap();
    let (job, found) = run(&bench, request(JobKind::Verify, "/")).await;
    assert_eq!((job.state, job.progress.objects_seen, told(&found)), (JobState::Done, 2, vec![]));
}

#[tokio::test]
async fn a_bucket_that_fails_is_told_and_keeps_no_other_from_its_turn() {
    for kind in [JobKind::Load, JobKind::Verify] {
        let (bench, root) = with_buckets(&["a-first"]).await;
        let closed = root.bucket(&bucket("a-first")).unwrap();
        closed.put_outside("key", "value".into());
        closed.set_mood(Mood::Refuse(UfsKind::Denied));
        bench.under.put_outside("key", "value".into());
        // It does not wait either: asking again would help nobody.
        let is_over = |id: &str| has_ended(&bench, id) || job(&bench, id).error.is_some();
        let id = start(&bench, request(kind, "/")).await;
        bench.advancing("the job ends", || is_over(&id)).await;
        let all = job(&bench, &id);
        assert_eq!((all.state, all.progress.objects_failed, all.progress.objects_seen), (JobState::Done, 1, 1));
        assert_eq!(told(&findings(&bench, &id).await), [("/a-first", "failed")]);
        let id = start(&bench, request(kind, "/a-first")).await;
        bench.advancing("the job ends", || is_over(&id)).await;
        let alone = job(&bench, &id);
        assert_eq!((alone.state, alone.progress.objects_failed), (JobState::Failed, 0), "{alone:?}");
        assert!(alone.error.is_some_and(|error| error.contains("refuses")));
        assert_eq!(alone.findings, 0);
    }
}

#[tokio::test]
async fn an_under_store_that_is_out_of_reach_is_asked_less_and_less_often() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.set_mood(Mood::Refuse(UfsKind::Unavailable));
    let id = start(&bench, request(JobKind::Load, "/bucket")).await;
    until("it is asked", || bench.foreground.lists() == 1).await;
    for (asked, pause) in (1..).zip([1, 2, 4, 8, 16, 32, 60, 60]) {
        others_go_on().await;
        bench.clock.advance(Duration::from_secs(pause) - Duration::from_millis(1));
        others_go_on().await;
        assert_eq!(bench.foreground.lists(), asked, "asked again after less than {pause} s");
        bench.clock.advance(Duration::from_millis(1));
        until("it is asked again", || bench.foreground.lists() == asked + 1).await;
    }
    bench.under.set_mood(Mood::Well);
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    assert_eq!(job(&bench, &id).state, JobState::Done);
}

#[tokio::test]
async fn a_job_works_on_as_many_objects_at_once_as_it_is_asked_to() {
    for (concurrency, expected) in [(None, 8), (Some(3), 3)] {
        let bench = Bench::new(WriteMode::WriteThrough).await;
        for n in 0..20 {
            bench.under.put_outside(&format!("{n:02}"), pattern(n, 100));
        }
        bench.foreground.set(Way::HoldReads);
        let id = start(&bench, JobRequest { concurrency, ..request(JobKind::Load, "/bucket") }).await;
        until("so many are fetched", || bench.foreground.waiting() == expected).await;
        others_go_on().await;
        assert_eq!(bench.foreground.waiting(), expected, "and no more");
        bench.foreground.set(Way::Open);
        bench.advancing("the job ends", || has_ended(&bench, &id)).await;
        assert_eq!(job(&bench, &id).progress.objects_done, 20);
    }
}

#[tokio::test]
async fn a_job_that_is_cancelled_as_it_fails_is_told_as_cancelled() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.set_mood(Mood::Hang);
    let id = start(&bench, request(JobKind::Load, "/bucket")).await;
    until("the list is under way", || bench.foreground.lists() == 1).await;
    let mut cancelling = pin!(bench.cache.cancel_job(&id));
    assert!(futures::poll!(cancelling.as_mut()).is_pending());
    bench.under.set_mood(Mood::Refuse(UfsKind::Denied));
    let ended = cancelling.await.unwrap();
    assert_eq!((ended.state, ended.error), (JobState::Cancelled, None));
}

#[tokio::test]
async fn jobs_that_run_and_jobs_that_wait_are_in_the_metrics() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.put_outside("key", "value".into());
    bench.foreground.set(Way::HoldReads);
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(start(&bench, request(JobKind::Load, "/bucket")).await);
    }
    let shows = |running: u64, queued: u64| {
        let text = bench.metrics();
        text.contains(&format!("\nforebay_jobs_running {running}\n"))
            && text.contains(&format!("\nforebay_jobs_queued {queued}\n"))
    };
    until("two run and three wait", || shows(2, 3)).await;
    bench.cache.cancel_job(&ids[4]).await.unwrap();
    assert!(shows(2, 2), "{}", bench.metrics());
    bench.foreground.set(Way::Open);
    bench.advancing("all have ended", || shows(0, 0)).await;
}

/// Each object is larger than the path may hold, which is told of each.
fn with_quota() -> Setup {
    Setup::new(WriteMode::WriteThrough).policy(|rule| rule.cache_quota = Some(ByteSize(10)))
}

#[tokio::test]
async fn findings_are_kept_up_to_ten_thousand_and_counted_beyond() {
    let mut bench = with_quota().open().await;
    for n in 0..3 {
        bench.under.put_outside(&format!("{n}"), pattern(n, 100));
    }
    let ended = goes_on(&mut bench, Job { findings: 9_999, ..begun(JobKind::Load) }).await;
    assert_eq!((ended.state, ended.findings, ended.progress.objects_skipped), (JobState::Done, 10_002, 3));
    let kept = bench.cache.job_findings(&ended.id, 9_999, 10).await.unwrap();
    assert_eq!(kept.len(), 1, "{kept:?}");
}

#[tokio::test]
async fn ended_jobs_together_keep_a_hundred_thousand_findings() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    bench.close().await;
    let id = |number: u64| format!("{number:016x}");
    let finding = JobFinding {
        path: "/bucket/key".to_owned(),
        kind: "pinned".to_owned(),
        detail: "dirty".to_owned(),
        worker: None,
    };
    for number in 1..=11 {
        // The oldest is of somebody else.
        let created_by = if number == 1 { "berta" } else { "anna" }.to_owned();
        let (state, ended_ms, findings) = (JobState::Done, Some(number), 10_000);
        let ended = Job { id: id(number), state, created_by, ended_ms, findings, ..begun(JobKind::Free) };
        bench.write_record(records::job_key(&ended.id), Some(records::encode_json(&ended))).await;
        let key = records::job_finding_key(&ended.id, 0);
        bench.write_record(key, Some(records::encode_json(&finding))).await;
    }
    bench.reopen().await;
    run(&bench, request(JobKind::Free, "/")).await;
    let stored = |bench: &Bench, number| {
        let (from, to) = records::job_findings_range(&id(number));
        bench.store.scan(&from, &to, 10).len()
    };
    until("the oldest of who has most are gone", || stored(&bench, 2) == 0).await;
    bench.restart().await;
    for number in 1..=11 {
        let kept = usize::from(number != 2);
        assert_eq!((stored(&bench, number), findings(&bench, &id(number)).await.len()), (kept, kept), "{number}");
        assert_eq!(job(&bench, &id(number)).findings, 10_000, "they are counted as before");
    }
}

#[tokio::test]
async fn all_findings_outlast_a_restart() {
    for number in [499, 500, 501] {
        let mut bench = with_quota().open().await;
        for n in 0..number {
            bench.under.put_outside(&format!("{n:03}"), "larger than it may be".into());
        }
        let dry = JobRequest { dry_run: true, ..request(JobKind::Load, "/bucket") };
        let (before, found) = run(&bench, dry).await;
        assert_eq!((before.findings, found.len()), (number, number as usize));
        bench.restart().await;
        assert_eq!(job(&bench, &before.id), before);
        let after: Vec<JobFinding> = findings(&bench, &before.id).await;
        assert_eq!(after, found, "of {number}");
    }
}

#[tokio::test]
async fn persist_counts_what_waited_and_tells_what_came_into_conflict() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("both", "base").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Closed);
    bench.put("both", "ours").await.unwrap();
    bench.put("fine", "value").await.unwrap();
    bench.under.put_outside("both", "them".into());
    let counted = |job: &Job| {
        let progress = &job.progress;
        assert_eq!((job.state, progress.objects_total, progress.objects_failed), (JobState::Done, Some(2), 0));
        (progress.objects_seen, progress.objects_done, progress.bytes_done)
    };
    let dry = JobRequest { dry_run: true, ..request(JobKind::Persist, "/") };
    let (dry, found) = run(&bench, dry).await;
    assert_eq!((counted(&dry), found.len()), ((2, 2, 9), 0));
    let id = start(&bench, request(JobKind::Persist, "/")).await;
    until("it looks at both", || job(&bench, &id).progress.objects_seen == 2).await;
    bench.background.set(Way::Open);
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    assert_eq!(counted(&job(&bench, &id)), (2, 2, 9));
    assert_eq!(told(&findings(&bench, &id).await), [("/bucket/both", "conflict")]);
    assert_eq!((bench.under("both").unwrap(), bench.under("fine").unwrap()), ("them".into(), "value".into()));
    for (path, expected) in [("/", 1), ("/bucket/bo", 1), ("/bucket/fine", 0)] {
        let (_, found) = run(&bench, request(JobKind::Persist, path)).await;
        assert_eq!(found.len(), expected, "{path}: it is not in the under store later either");
    }
}

/// Nothing is sent to the under store unless a job asks for it.
async fn only_jobs_persist() -> Bench {
    let setup = Setup::new(WriteMode::WriteBack);
    setup.settings(|settings| settings.persist_delay = Period::from_secs(600)).open().await
}

#[tokio::test]
async fn persist_tells_of_a_delete_that_came_into_conflict() {
    let bench = only_jobs_persist().await;
    bench.put("key", "base").await.unwrap();
    run(&bench, request(JobKind::Persist, "/")).await;
    assert_eq!(bench.under("key").unwrap(), "base");
    bench.delete("key").await.unwrap();
    bench.under.put_outside("key", "them".into());
    let (done, found) = run(&bench, request(JobKind::Persist, "/")).await;
    assert_eq!((done.state, told(&found)), (JobState::Done, vec![("/bucket/key", "conflict")]));
    assert!(found[0].detail.contains("our delete is abandoned"), "{}", found[0].detail);
    assert_eq!(bench.under("key").unwrap(), "them");
}

/// Its bytes are gone before they were sent.
#[tokio::test]
async fn persist_sends_what_has_replaced_a_version_meanwhile() {
    let bench = only_jobs_persist().await;
    bench.background.set(Way::Closed);
    bench.put("key", "first").await.unwrap();
    let id = start(&bench, request(JobKind::Persist, "/")).await;
    until("it is being sent", || bench.background.waiting() == 1).await;
    bench.put("key", "second").await.unwrap();
    bench.background.set(Way::RefuseOnce(UfsKind::Conflict));
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    let done = job(&bench, &id);
    assert_eq!((done.state, done.progress.objects_failed, done.findings), (JobState::Done, 0, 0));
    assert_eq!(bench.under("key").unwrap(), "second");
}
