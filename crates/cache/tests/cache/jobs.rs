//! Jobs do what they say, to the end, through restarts, and never touch what only the cache has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_cache::{
    Attributes, CacheTier, Conditions, ErrorKind, Job, JobKind, JobRequest, JobState, ListObjects, PutObject, Result,
    UploadRef,
};
use forebay_catalog::records::{self, ObjectRecord};
use forebay_store::{Annotation, Commit, ValueWrite};
use forebay_types::{BucketName, ByteSize, Durability, ObjectPath, PolicyRule, WriteMode};
use forebay_ufs::memory::{MemoryRoot, Mood};
use forebay_ufs::{BucketRoot, ErrorKind as UfsKind};

use crate::support::gate::Way;
use crate::support::jobs::{findings, has_ended, job, jobs, request, run, start, told};
use crate::support::{BUCKET, Bench, Setup, create_upload, incoming, kind, others_go_on, path, pattern, rule, until};

async fn set(bench: &Bench, rules: Vec<PolicyRule>) {
    bench.cache.set_policies(rules, None, "test", "edit").await.expect("rules");
}

async fn tier(bench: &Bench, key: &str) -> CacheTier {
    bench.cache.object_detail(&path(key)).await.expect("a detail").tier
}

#[tokio::test]
async fn a_request_that_cannot_be_is_refused() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let load = || request(JobKind::Load, "/bucket/");
    for wrong in [
        JobRequest { path: "bucket".to_owned(), ..load() },
        JobRequest { concurrency: Some(0), ..load() },
        JobRequest { concurrency: Some(257), ..load() },
        JobRequest { rate_limit: Some(ByteSize(0)), ..load() },
        JobRequest { rate_limit: Some(ByteSize(1)), ..request(JobKind::Free, "/") },
    ] {
        let refused = bench.cache.create_job(wrong.clone(), "anna").await;
        assert_eq!(kind(refused), Some(ErrorKind::InvalidArgument), "{wrong:?}");
    }
    let refused = bench.cache.create_job(request(JobKind::Load, "/none/"), "anna").await;
    assert_eq!(kind(refused), Some(ErrorKind::NoSuchBucket));
    assert_eq!(kind(bench.cache.job("0").await), Some(ErrorKind::NotFound));
    assert!(jobs(&bench).is_empty());
}

/// Before it has come to anything that it would note.
#[tokio::test]
async fn a_job_that_was_taken_is_there_after_a_power_cut() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.put_outside("key", "value".into());
    bench.under.set_mood(Mood::Hang);
    let id = start(&bench, request(JobKind::Load, "/bucket/")).await;
    bench.power_loss(3).await;
    assert!(!has_ended(&bench, &id));
    bench.under.set_mood(Mood::Well);
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    assert_eq!((job(&bench, &id).state, tier(&bench, "key").await), (JobState::Done, CacheTier::Disk));
}

#[tokio::test]
async fn a_load_brings_all_to_disk_and_nothing_to_memory() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    for n in 0..20_u64 {
        bench.under.put_outside(&format!("in/{n:02}"), pattern(n, 1000));
    }
    bench.under.put_outside("in/large", pattern(99, (3 << 20) + 7));
    bench.under.put_outside("in/raw/x", "not kept".into());
    bench.under.put_outside("in/raw/y", "not kept".into());
    bench.under.put_outside("out", "not asked for".into());
    set(&bench, vec![rule("/", WriteMode::WriteBack), rule("/bucket/in/raw/", WriteMode::NoCache)]).await;
    bench.get_range("in/large", 0, 5).await.unwrap();
    bench.put("in/dirty", "here").await.unwrap();
    let gets = bench.foreground.gets().len();

    let dry = JobRequest { dry_run: true, ..request(JobKind::Load, "/bucket/in/") };
    let (job, _) = run(&bench, dry).await;
    let missing = 20_000 + (2 << 20) + 7;
    assert_eq!((job.progress.objects_done, job.progress.bytes_done), (21, missing));
    assert_eq!(bench.foreground.gets().len(), gets, "a dry run reads nothing");

    let (job, found) = run(&bench, request(JobKind::Load, "/bucket/in/")).await;
    assert_eq!((job.state, job.created_by.as_str()), (JobState::Done, "anna"), "{job:?} {found:?}");
    assert_eq!(told(&found), [("/bucket/in/raw/", "not-cached")], "once for the rule");
    let progress = &job.progress;
    assert_eq!((progress.objects_seen, progress.objects_done, progress.objects_skipped), (24, 21, 3));
    assert_eq!((progress.bytes_done, progress.objects_failed), (missing, 0));
    assert_eq!(bench.foreground.gets().len(), gets + 20 + 3, "each page once");
    assert_eq!(tier(&bench, "in/07").await, CacheTier::Disk);
    assert_eq!(tier(&bench, "in/large").await, CacheTier::Disk);
    assert_eq!(tier(&bench, "out").await, CacheTier::UnderStore);
    let gets = bench.foreground.gets().len();
    assert_eq!(bench.get("in/07").await.unwrap(), pattern(7, 1000));
    assert_eq!(bench.get("in/large").await.unwrap(), pattern(99, (3 << 20) + 7));
    assert_eq!(bench.foreground.gets().len(), gets, "served from here");
    let (job, _) = run(&bench, request(JobKind::Load, "/bucket/in/")).await;
    assert_eq!((job.progress.objects_done, job.progress.bytes_done), (0, 0), "all is here");
    let text = bench.metrics();
    assert!(text.contains("forebay_jobs_ended_total{kind=\"load\",state=\"done\"} 3\n"), "{text}");
}

/// As MinIO lists: a page that is to begin behind a name leaves out others.
#[tokio::test]
async fn load_and_verify_see_all_of_an_under_store_that_cannot_begin_behind_all_names() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.keep_listings();
    for n in 0..1_200 {
        for directory in ["logs-2024", "logs.d", "logs"] {
            bench.under.put_outside(&format!("{directory}/{n:05}"), "out".into());
        }
    }
    bench.background.set(Way::Closed);
    bench.put("logs-2024/00500x", "waits, and cuts a page").await.unwrap();
    for kind in [JobKind::Verify, JobKind::Load] {
        let (job, found) = run(&bench, request(kind, "/")).await;
        assert_eq!((job.state, job.progress.objects_seen, found.len()), (JobState::Done, 3_601, 0), "{kind:?}");
    }
}

#[tokio::test]
async fn a_load_reads_no_faster_than_it_may() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    for n in 0..10_u64 {
        bench.under.put_outside(&format!("{n}"), pattern(n, 100_000));
    }
    let start = bench.env.clock.monotonic();
    let limited = JobRequest { rate_limit: Some(ByteSize(100_000)), ..request(JobKind::Load, "/") };
    let (job, _) = run(&bench, limited).await;
    let elapsed = bench.env.clock.monotonic() - start;
    assert_eq!(job.progress.bytes_done, 1_000_000);
    assert!(elapsed >= Duration::from_secs(9), "{elapsed:?} for ten seconds' worth of bytes");
}

#[tokio::test]
async fn a_load_goes_on_after_a_restart() {
    for power_loss in [false, true] {
        let mut bench = Bench::new(WriteMode::WriteThrough).await;
        for n in 0..600_u64 {
            bench.under.put_outside(&format!("{n:03}"), pattern(n, 100));
        }
        let limited = JobRequest { rate_limit: Some(ByteSize(1000)), ..request(JobKind::Load, "/") };
        let id = start(&bench, limited).await;
        bench.advancing("half is loaded", || job(&bench, &id).progress.objects_done > 300).await;
        assert_eq!(job(&bench, &id).state, JobState::Running);
        if power_loss {
            bench.power_loss(5).await;
        } else {
            bench.restart().await;
        }
        let before = job(&bench, &id);
        assert!(before.progress.after.is_some(), "{before:?}");
        assert!(before.progress.objects_seen < 600, "{before:?}");
        bench.advancing("the job ends", || has_ended(&bench, &id)).await;
        let after = job(&bench, &id);
        assert_eq!((after.state, after.progress.objects_seen), (JobState::Done, 600), "{after:?}");
        assert_eq!(after.started_ms, before.started_ms);
        let skipped = after.progress.objects_skipped;
        assert_eq!(after.progress.objects_done + skipped, 600);
        let gets = bench.foreground.gets().len();
        for n in [0_u64, 299, 599] {
            assert_eq!(bench.get(&format!("{n:03}")).await.unwrap(), pattern(n, 100));
        }
        if !power_loss {
            assert_eq!(bench.foreground.gets().len(), gets, "all is here");
        }
        bench.restart().await;
        assert_eq!(job(&bench, &id), after, "what has ended stays as it is");
    }
}

#[tokio::test]
async fn an_object_that_changes_while_it_is_loaded_is_loaded_anew() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.put_outside("key", pattern(1, 2 << 20));
    bench.foreground.set(Way::HoldReads);
    let id = start(&bench, request(JobKind::Load, "/bucket/key")).await;
    until("both pages are on their way", || bench.foreground.waiting() == 2).await;
    bench.under.put_outside("key", pattern(2, 3 << 20));
    bench.foreground.set(Way::Open);
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    assert_eq!(job(&bench, &id).progress.objects_done, 1, "{:?}", findings(&bench, &id).await);
    assert_eq!(tier(&bench, "key").await, CacheTier::Disk);
    assert_eq!(bench.get("key").await.unwrap(), pattern(2, 3 << 20));
}

#[tokio::test]
async fn a_job_leaves_some_reads_to_the_clients_of_its_bucket() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    for number in 0..100_u64 {
        bench.under.put_outside(&format!("{number}"), pattern(number, 1 << 20));
    }
    bench.foreground.set(Way::HoldReads);
    let id = start(&bench, JobRequest { concurrency: Some(256), ..request(JobKind::Load, "/bucket/") }).await;
    until("as many are read as may be", || bench.foreground.waiting() == 48).await;
    others_go_on().await;
    assert_eq!(bench.foreground.waiting(), 48, "as many as one access key gets");
    bench.foreground.set(Way::Open);
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    assert_eq!(job(&bench, &id).progress.objects_done, 100);
}

#[tokio::test]
async fn what_does_not_fit_is_told_and_left() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    let quota = PolicyRule { cache_quota: Some(ByteSize(1000)), ..PolicyRule::for_path("/bucket/small/") };
    set(&bench, vec![quota]).await;
    bench.under.put_outside("small/fits", pattern(1, 100));
    bench.under.put_outside("small/large", pattern(2, 2000));
    let (job, found) = run(&bench, request(JobKind::Load, "/bucket")).await;
    assert_eq!(told(&found), [("/bucket/small/large", "too-large")]);
    assert_eq!((job.progress.objects_done, job.progress.objects_skipped), (1, 1));
}

#[tokio::test]
async fn what_exceeds_the_quota_of_a_shorter_path_is_told_too() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    let quota = |path: &str, size| PolicyRule { cache_quota: Some(ByteSize(size)), ..PolicyRule::for_path(path) };
    let rules = [("/bucket/a/", 250_000), ("/bucket/a/x/", 200_000), ("/bucket/a/y/", 1 << 40)];
    set(&bench, rules.map(|(path, size)| quota(path, size)).to_vec()).await;
    for key in ["a/x/1", "a/y/1", "a/y/2"] {
        bench.under.put_outside(key, pattern(1, 100_000));
    }
    bench.under.put_outside("a/y/large", pattern(2, 300_000));
    let (_, found) = run(&bench, JobRequest { dry_run: true, ..request(JobKind::Load, "/bucket/a/") }).await;
    assert_eq!(told(&found), [("/bucket/a/", "exceeds-quota"), ("/bucket/a/y/large", "too-large")]);
}

#[tokio::test]
async fn a_cancelled_job_does_nothing_more() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    for n in 0..50_u64 {
        bench.under.put_outside(&format!("{n:02}"), pattern(n, 100));
    }
    bench.foreground.set(Way::HoldReads);
    let running = [start(&bench, request(JobKind::Load, "/")).await, start(&bench, request(JobKind::Load, "/")).await];
    let queued = start(&bench, request(JobKind::Load, "/")).await;
    until("reads are under way", || bench.foreground.waiting() > 0).await;
    until("two jobs run", || running.iter().all(|id| job(&bench, id).state == JobState::Running)).await;
    assert_eq!(job(&bench, &queued).state, JobState::Queued);
    assert_eq!(bench.cache.cancel_job(&queued).await.unwrap().state, JobState::Cancelled);
    for id in &running {
        assert_eq!(bench.cache.cancel_job(id).await.unwrap().state, JobState::Cancelled);
    }
    let gets = bench.foreground.gets().len();
    bench.foreground.set(Way::Open);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.foreground.gets().len(), gets);
    bench.restart().await;
    for id in running.iter().chain([&queued]) {
        assert_eq!(job(&bench, id).state, JobState::Cancelled);
        assert_eq!(bench.cache.cancel_job(id).await.unwrap().state, JobState::Cancelled, "stays as it is");
    }
}

/// What only the cache has: dirty, transient, in conflict, and a part of an upload.
async fn with_pinned() -> (Bench, UploadRef) {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("both", "base").await.expect("it works");
    for n in 0..10_u64 {
        bench.put(&format!("clean/{n}"), pattern(n, 100_000)).await.expect("it works");
    }
    bench.drain().await;
    bench.background.set(Way::Closed);
    bench.put("both", "ours").await.expect("it works");
    bench.under.put_outside("both", "them".into());
    bench.background.set(Way::Open);
    bench.advancing("the conflict is noticed", || bench.cache.status().conflicts == 1).await;
    bench.background.set(Way::Closed);
    bench.put("dirty", pattern(20, 100_000)).await.expect("it works");
    bench.put("gone", "x").await.expect("it works");
    bench.delete("gone").await.expect("it works");
    set(&bench, vec![rule("/", WriteMode::WriteBack), rule("/bucket/tmp/", WriteMode::Transient)]).await;
    bench.put("tmp/x", pattern(21, 100_000)).await.expect("it works");
    let create = create_upload(path("upload"));
    let upload_id = bench.cache.create_upload(create).await.expect("it works");
    let upload = UploadRef { path: path("upload"), upload_id };
    bench.cache.put_part(&upload, 1, incoming(pattern(22, 100_000))).await.expect("it works");
    (bench, upload)
}

async fn check_pinned(bench: &Bench, what: &str) {
    assert_eq!(bench.get("both").await.expect("it works"), "ours", "{what}");
    assert_eq!(bench.get("dirty").await.expect("it works"), pattern(20, 100_000), "{what}");
    assert_eq!(bench.get("tmp/x").await.expect("it works"), pattern(21, 100_000), "{what}");
    assert_eq!(kind(bench.get("gone").await), Some(ErrorKind::NotFound), "{what}");
}

#[tokio::test]
async fn free_drops_clean_copies_and_nothing_else() {
    let (mut bench, upload) = with_pinned().await;
    bench.get("clean/3").await.unwrap();
    // Only its metadata is cached: that is not counted.
    bench.under.put_outside("only/metadata", pattern(1, 100_000));
    bench.head("only/metadata").await.unwrap();
    let dry = JobRequest { dry_run: true, ..request(JobKind::Free, "/") };
    let (job, _) = run(&bench, dry).await;
    assert_eq!((job.progress.objects_done, job.progress.bytes_done), (10, 1_000_000));
    assert_eq!(tier(&bench, "clean/3").await, CacheTier::Memory);

    let (job, found) = run(&bench, request(JobKind::Free, "/")).await;
    assert_eq!((job.state, job.progress.objects_done, job.progress.bytes_done), (JobState::Done, 10, 1_000_000));
    assert_eq!((job.progress.objects_seen, job.progress.objects_skipped), (14, 4));
    let pinned = ["/bucket/both", "/bucket/dirty", "/bucket/tmp/x", "/bucket/upload"];
    assert_eq!(told(&found), pinned.map(|path| (path, "pinned")));
    let whys: Vec<_> = found.iter().map(|finding| finding.detail.as_str()).collect();
    for word in ["conflict", "dirty", "transient", "part 1"] {
        assert!(whys.iter().any(|why| why.contains(word)), "{word}: {whys:?}");
    }
    let list = ListObjects { prefix: "clean/".to_owned(), limit: 100, ..ListObjects::default() };
    let page = bench.cache.list_cached(&BucketName::new(BUCKET).unwrap(), &list).await.unwrap();
    assert!(page.objects.iter().all(|object| object.cached_bytes == 0 && object.tier == CacheTier::UnderStore));
    check_pinned(&bench, "freed").await;
    bench.power_loss(9).await;
    check_pinned(&bench, "freed, and the power lost").await;
    assert_eq!(bench.cache.list_parts(&upload, 0, 10).await.unwrap().parts.len(), 1);
    bench.drain().await;
    assert_eq!(bench.under("dirty").unwrap(), pattern(20, 100_000));
    assert_eq!(bench.get("clean/3").await.unwrap(), pattern(3, 100_000));
}

/// Does it until it is done, as clients do: the clock here runs so fast that a disk may seem not to answer.
async fn insist<T, F: Future<Output = Result<T>>>(change: impl Fn() -> F) -> T {
    loop {
        match change().await {
            Err(error) if matches!(error.kind, ErrorKind::SlowDown | ErrorKind::Unavailable) => {}
            changed => return changed.expect("a change"),
        }
    }
}

/// While clients write, all that they were told is written stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_and_verify_under_load_lose_nothing_and_find_nothing() {
    let bench = Arc::new(Bench::new(WriteMode::WriteBack).await);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (bench, stop) = (Arc::clone(&bench), Arc::clone(&stop));
            forebay_env::spawn(async move {
                let mut round = 0_u64;
                while !stop.load(Ordering::SeqCst) {
                    for key in 0..8 {
                        let name = format!("{writer}/{key}");
                        let body = pattern(round * 100 + key, 5000);
                        insist(|| bench.put(&name, body.clone())).await;
                        assert_eq!(bench.get(&name).await.expect("a get"), body, "{name} in round {round}");
                        if key == 7 {
                            insist(|| bench.delete(&name)).await;
                        }
                    }
                    round += 1;
                }
                round
            })
        })
        .collect();
    let mut compared = 0;
    for _ in 0..15 {
        for kind in [JobKind::Verify, JobKind::Free, JobKind::Scrub, JobKind::Persist] {
            // The clock runs on while a job does, so that the disks seem to hang now and then.
            let id = insist(|| bench.cache.create_job(request(kind, "/bucket"), "anna")).await.id;
            bench.advancing("the job ends", || has_ended(&bench, &id)).await;
            let (job, mut found) = (job(&bench, &id), findings(&bench, &id).await);
            found.retain(|finding| finding.kind != "pinned");
            assert!(found.is_empty() && job.state == JobState::Done, "{kind:?} {job:?} {found:?}");
            compared += job.progress.objects_seen;
        }
    }
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        assert!(writer.join().await > 0);
    }
    assert!(compared > 0);
}

#[tokio::test]
async fn persist_tries_all_and_tells_what_failed() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Refuse("bad".to_owned(), UfsKind::Denied));
    bench.put("bad", "value").await.unwrap();
    bench.advancing("it has failed once", || bench.background.refusals() > 0).await;
    for n in 0..20 {
        bench.put(&format!("good/{n}"), "value").await.unwrap();
    }
    let (job, found) = run(&bench, request(JobKind::Persist, "/")).await;
    assert_eq!(job.state, JobState::Failed);
    assert!(job.error.as_ref().is_some_and(|error| error.contains("under store")), "{job:?}");
    assert_eq!(told(&found), [("/bucket/bad", "failed")]);
    assert_eq!(job.progress.objects_failed, 1);
    assert_eq!(job.progress.objects_total, Some(job.progress.objects_done + 1));
    assert_eq!(bench.under.contents().len(), 20);
    bench.background.set(Way::Open);
    let (job, _) = run(&bench, request(JobKind::Persist, "/bucket/bad")).await;
    assert_eq!((job.state, job.progress.objects_done), (JobState::Done, 1));
    assert_eq!(bench.under("bad").unwrap(), "value");
}

#[tokio::test]
async fn persist_waits_until_an_earlier_request_is_settled() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Late);
    bench.put("key", "value").await.unwrap();
    until("the answer is lost", || bench.background.stragglers() == 1).await;
    until("it waits", || bench.metrics().contains("persist_failures_total{")).await;
    bench.background.set(Way::Open);
    let start = bench.env.clock.monotonic();
    let (job, found) = run(&bench, request(JobKind::Persist, "/")).await;
    assert_eq!((job.state, job.progress.objects_done), (JobState::Done, 1), "{found:?}");
    assert!(bench.env.clock.monotonic() - start >= Duration::from_secs(29));
    assert_eq!(bench.under("key").unwrap(), "value");
}

#[tokio::test]
async fn verify_finds_each_difference_and_changes_nothing() {
    let (bench, _) = with_pinned().await;
    let (job, found) = run(&bench, request(JobKind::Verify, "/")).await;
    assert_eq!(told(&found), [("/bucket/both", "conflict")], "{job:?}");
    let progress = &job.progress;
    assert_eq!((progress.objects_seen, progress.objects_done, progress.bytes_done), (15, 14, 1_200_004));
    bench.under.put_outside("clean/0", pattern(50, 100_000));
    bench.under.delete_outside("clean/1");
    bench.under.put_outside("unknown", "fine".into());
    let key = |name: &str| records::object_key(&path(name));
    for name in ["lost", "unnamed", "loose", "size"] {
        bench.put(name, pattern(30, 100)).await.unwrap();
    }
    let record = |name: &str| ObjectRecord::decode(&bench.store.value(&key(name)).expect("a record").value).unwrap();
    let wrong_size = ObjectRecord { size: 99, ..record("size") };
    let loose = Annotation { key: key("loose"), generation: record("loose").generation, annex: bytes(), pinned: false };
    let commit = Commit {
        forget: vec![key("lost")],
        annotate: vec![loose],
        writes: vec![
            ValueWrite { key: key("unnamed"), value: None },
            ValueWrite { key: key("size"), value: Some(wrong_size.encode()) },
        ],
        ..Commit::default()
    };
    bench.store.commit(commit, Durability::Fsync).await.unwrap();
    let expected = [
        ("/bucket/both", "conflict"),
        ("/bucket/clean/0", "stale-copy"),
        ("/bucket/clean/1", "missing-in-under-store"),
        ("/bucket/loose", "not-pinned"),
        ("/bucket/lost", "missing-bytes"),
        ("/bucket/size", "dirty-size"),
        ("/bucket/unnamed", "pinned-without-record"),
    ];
    // The persister waits at the gate with the locks of these; its requests fail now and are tried again later.
    bench.background.set(Way::Cut);
    bench.advancing("nothing is under way", || bench.background.refusals() > 0).await;
    bench.foreground.set(Way::Cut);
    let cut = run(&bench, request(JobKind::Verify, "/")).await;
    let failed = cut.1.iter().filter(|finding| finding.kind == "failed").count() as u64;
    assert!(failed > 0, "an under store that is gone says nothing: {cut:?}");
    assert_eq!(cut.0.progress.objects_failed, failed);
    bench.foreground.set(Way::Open);
    let mut last = Vec::new();
    for _ in 0..2 {
        let (job, found) = run(&bench, request(JobKind::Verify, "/")).await;
        assert_eq!(job.state, JobState::Done);
        last = told(&found).into_iter().map(|(path, kind)| (path.to_owned(), kind.to_owned())).collect();
    }
    let last: Vec<_> = last.iter().map(|(path, kind)| (path.as_str(), kind.as_str())).collect();
    assert_eq!(last, expected, "and again, since nothing was changed");
    let (_, found) = run(&bench, request(JobKind::Verify, "/bucket/clean/")).await;
    assert_eq!(found.len(), 2, "only what was asked for");
}

/// The list is older than the write by the time the two are compared.
#[tokio::test]
async fn verify_looks_twice_before_it_tells() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    set(&bench, vec![rule("/", WriteMode::WriteThrough), rule("/bucket/a", WriteMode::WriteBack)]).await;
    bench.put("b", "before").await.unwrap();
    bench.background.set(Way::Closed);
    bench.put("a", "value").await.unwrap();
    until("the upload is under way", || bench.background.waiting() == 1).await;
    let key = records::object_key(&path("a"));
    let record = ObjectRecord::decode(&bench.store.value(&key).unwrap().value).unwrap();
    let value = Some(ObjectRecord { size: 3, ..record }.encode());
    let commit = Commit { writes: vec![ValueWrite { key, value }], ..Commit::default() };
    bench.store.commit(commit, Durability::Fsync).await.unwrap();
    let id = start(&bench, JobRequest { concurrency: Some(1), ..request(JobKind::Verify, "/") }).await;
    // It waits for the locks of the first, with the list in its hands.
    until("the first is looked at", || job(&bench, &id).progress.objects_done == 1).await;
    bench.put("b", "after!").await.unwrap();
    bench.background.set(Way::Open);
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    assert_eq!(job(&bench, &id).progress.objects_done, 2);
    assert!(findings(&bench, &id).await.is_empty(), "{:?}", findings(&bench, &id).await);
}

fn bytes() -> bytes::Bytes {
    bytes::Bytes::new()
}

#[tokio::test]
async fn scrub_finds_damage_drops_what_can_be_fetched_and_keeps_the_rest() {
    let (bench, _) = with_pinned().await;
    let (job, found) = run(&bench, request(JobKind::Scrub, "/")).await;
    assert!(found.is_empty() && job.state == JobState::Done, "{found:?}");
    let all = (14, 14, 10 * 100_000 + 4 + 3 * 100_000);
    let counted = |job: &Job| (job.progress.objects_seen, job.progress.objects_done, job.progress.bytes_done);
    assert_eq!(counted(&job), all);
    let dry = JobRequest { dry_run: true, ..request(JobKind::Scrub, "/") };
    assert_eq!(counted(&run(&bench, dry).await.0), all);
    for seed in [2, 20, 21, 22] {
        assert!(bench.damage(&pattern(seed, 64)).await > 0);
    }
    let pinned_bytes = bench.cache.status().pinned_bytes;
    let (job, found) = run(&bench, request(JobKind::Scrub, "/")).await;
    let damaged = ["/bucket/clean/2", "/bucket/dirty", "/bucket/tmp/x", "/bucket/upload"];
    assert_eq!(told(&found), damaged.map(|path| (path, "corrupt")));
    assert_eq!((job.state, job.progress.objects_failed), (JobState::Done, 4));
    let detail = |path: &str| &found.iter().find(|finding| finding.path == path).expect("a finding").detail;
    for (path, words) in [
        (damaged[0], "clean"),
        (damaged[0], "dropped"),
        (damaged[1], "dirty"),
        (damaged[1], "kept"),
        (damaged[2], "transient"),
    ] {
        assert!(detail(path).contains(words), "{words}: {}", detail(path));
    }
    assert_eq!(bench.get("clean/2").await.unwrap(), pattern(2, 100_000), "fetched again");
    assert_eq!(bench.get("dirty").await.unwrap(), pattern(20, 100_000), "memory has it still");
    assert_eq!(bench.cache.status().pinned_bytes, pinned_bytes, "the only copies are kept");
    assert!(!bench.metrics().contains("tier=\"disk\""), "a scrub is no read");
}

#[tokio::test]
async fn a_scrub_is_slow_enough_unless_asked_otherwise() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("key", pattern(1, 30 << 20)).await.unwrap();
    let elapsed = async |rate_limit| {
        let start = bench.env.clock.monotonic();
        run(&bench, JobRequest { rate_limit, ..request(JobKind::Scrub, "/") }).await;
        bench.env.clock.monotonic() - start
    };
    assert!(elapsed(Some(ByteSize(1 << 20))).await >= Duration::from_secs(25));
    assert!(elapsed(None).await <= Duration::from_secs(10));
}

#[tokio::test]
async fn jobs_are_told_newest_first_and_the_last_hundred_that_ended_are_kept() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("dirty", "value").await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..103 {
        ids.push(run(&bench, request(JobKind::Free, "/")).await.0.id);
    }
    ids.reverse();
    let ids_of = |bench: &Bench| jobs(bench).into_iter().map(|job| job.id).collect::<Vec<_>>();
    until("the oldest are gone", || jobs(&bench).len() == 100).await;
    assert_eq!(ids_of(&bench), ids[..100]);
    let (from, to) = records::job_findings_range(&ids[100]);
    assert!(bench.store.scan(&from, &to, 10).is_empty(), "with their findings");
    bench.background.set(Way::Open);
    bench.restart().await;
    assert_eq!(ids_of(&bench), ids[..100]);
    let found = findings(&bench, &ids[0]).await;
    assert_eq!(told(&found), [("/bucket/dirty", "pinned")]);
    assert!(bench.cache.job_findings(&ids[0], 1, 10).await.unwrap().is_empty());
}

/// It is the last one that ended, although it was created first.
#[tokio::test]
async fn a_job_that_ran_for_long_is_kept_and_so_are_those_of_other_users() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.set_mood(Mood::Hang);
    let long = start(&bench, request(JobKind::Load, "/bucket")).await;
    until("it runs", || job(&bench, &long).state == JobState::Running).await;
    let of_other = bench.cache.create_job(request(JobKind::Free, "/"), "berta").await.unwrap().id;
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
async fn too_many_jobs_are_told_to_wait() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.put_outside("key", "value".into());
    bench.foreground.set(Way::HoldReads);
    for _ in 0..2 {
        start(&bench, request(JobKind::Load, "/")).await;
    }
    until("two run", || jobs(&bench).iter().all(|job| job.state == JobState::Running)).await;
    let asked = async |by: &str| bench.cache.create_job(request(JobKind::Load, "/"), by).await;
    let mut waiting = 0;
    while asked("anna").await.is_ok() {
        waiting += 1;
    }
    assert_eq!(kind(asked("anna").await), Some(ErrorKind::SlowDown));
    assert_eq!(waiting, 93, "some places are left");
    let why = jobs(&bench)[0].error.clone().expect("it says what it waits for");
    let running: Vec<_> = jobs(&bench).into_iter().rev().take(2).map(|job| job.id).collect();
    assert_eq!(why, format!("waits for its turn: 2 jobs of anna run at once, now {}", running.join(" and ")));
    let other = asked("berta").await.unwrap().id;
    until("it is her turn at once", || job(&bench, &other).state == JobState::Running).await;
    // Berta need not know of anna's jobs.
    let third = asked("clara").await.unwrap().id;
    assert_eq!(job(&bench, &third).error.as_deref(), Some("waits for its turn: 3 jobs run at once"));
    bench.cache.cancel_job(&third).await.unwrap();
    for _ in 0..6 {
        asked("berta").await.unwrap();
    }
    assert_eq!(jobs(&bench).iter().filter(|job| job.state == JobState::Running).count(), 3);
    bench.foreground.set(Way::Open);
    bench.advancing("all end", || jobs(&bench).iter().all(|job| job.state == JobState::Done || job.id == third)).await;
}

/// What is dirty does not wait until a scrub of hours has ended.
#[tokio::test]
async fn a_persist_job_begins_beside_as_many_others_as_may_run() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.put_outside("key", "value".into());
    bench.foreground.set(Way::HoldReads);
    for by in ["anna", "anna", "berta"] {
        bench.cache.create_job(request(JobKind::Load, "/"), by).await.unwrap();
    }
    until("three run", || jobs(&bench).iter().all(|job| job.state == JobState::Running)).await;
    let persist = start(&bench, request(JobKind::Persist, "/")).await;
    until("it is its turn at once", || job(&bench, &persist).state != JobState::Queued).await;
    bench.foreground.set(Way::Open);
    bench.advancing("all end", || jobs(&bench).iter().all(|job| job.state == JobState::Done)).await;
}

/// Copies of a bucket that is not there any more are nobody's: they are not compared with another bucket's objects.
#[tokio::test]
async fn verify_and_load_pass_by_what_a_bucket_that_is_gone_has_left() {
    let root = MemoryRoot::default();
    let mut setup = Setup::new(WriteMode::WriteThrough);
    setup.root = Some(Arc::new(root.clone()) as Arc<dyn BucketRoot>);
    let bench = setup.open().await;
    // Before the name of the bucket that stays, and of another length.
    let gone = BucketName::new("a-bucket-of-old").unwrap();
    bench.cache.create_bucket(&gone).await.unwrap();
    for number in 0..1100 {
        let path = ObjectPath::parse(gone.as_str(), &format!("{number:05}")).unwrap();
        let (body, attributes) = (incoming("old".into()), Attributes::default());
        bench.cache.put(PutObject { path, body, attributes, conditions: Conditions::default() }).await.unwrap();
    }
    bench.put("kept", "kept").await.unwrap();
    let behind = root.bucket(&gone).unwrap();
    behind.contents().keys().for_each(|key| behind.delete_outside(key));
    root.delete(&gone).await.unwrap();
    for kind in [JobKind::Verify, JobKind::Load] {
        let (job, findings) = run(&bench, request(kind, "/")).await;
        assert_eq!((job.state, job.progress.objects_seen), (JobState::Done, 1), "{kind:?}: {job:?}");
        assert_eq!(told(&findings), [], "{kind:?}");
    }
    bench.under.put_outside("kept", "other".into());
    let (_, findings) = run(&bench, request(JobKind::Verify, "/")).await;
    assert_eq!(told(&findings), [("/bucket/kept", "stale-copy")]);
}

/// How a job says that a request is not answered.
const NO_ANSWER: &str = "waits: no answer from the under store";

/// An under store that hangs refuses nothing: without a word, the user would not know what the job waits for.
#[tokio::test]
async fn a_job_says_that_an_under_store_does_not_answer() {
    let says = |bench: &Bench, id: &str| job(bench, id).error.is_some_and(|why| why.starts_with(NO_ANSWER));
    for kind in [JobKind::Load, JobKind::Verify] {
        let bench = Bench::new(WriteMode::WriteThrough).await;
        bench.under.put_outside("theirs", "theirs".into());
        bench.under.set_mood(Mood::Hang);
        let id = start(&bench, request(kind, "/bucket")).await;
        bench.advancing("the list is not answered", || says(&bench, &id)).await;
        assert_eq!(job(&bench, &id).state, JobState::Running, "{kind:?}");
    }
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.put_outside("theirs", "theirs".into());
    bench.foreground.set(Way::HoldReads);
    let id = start(&bench, request(JobKind::Load, "/bucket")).await;
    bench.advancing("the read is not answered", || says(&bench, &id)).await;
    bench.foreground.set(Way::Open);
    bench.advancing("the load ends", || has_ended(&bench, &id)).await;
    assert_eq!((job(&bench, &id).state, job(&bench, &id).error), (JobState::Done, None));

    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "value").await.expect("put");
    let id = start(&bench, request(JobKind::Persist, "/")).await;
    bench.advancing("the upload is not answered", || says(&bench, &id)).await;
    bench.background.set(Way::Open);
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    assert_eq!((job(&bench, &id).state, job(&bench, &id).error), (JobState::Done, None));
}

/// An under store that is away for a while costs a job time, not its work.
#[tokio::test]
async fn a_job_waits_for_an_under_store_that_is_out_of_reach() {
    for kind in [JobKind::Load, JobKind::Verify] {
        let bench = Bench::new(WriteMode::WriteThrough).await;
        bench.under.put_outside("theirs", "theirs".into());
        bench.under.set_mood(Mood::Refuse(UfsKind::Unavailable));
        let id = start(&bench, request(kind, "/bucket")).await;
        let waits = || job(&bench, &id).error.is_some_and(|why| why.starts_with("waits: "));
        bench.advancing("the job says that it waits", waits).await;
        assert_eq!(job(&bench, &id).state, JobState::Running, "{kind:?}");
        bench.under.set_mood(Mood::Well);
        bench.advancing("the job ends", || has_ended(&bench, &id)).await;
        let ended = job(&bench, &id);
        assert_eq!((ended.state, ended.error, ended.progress.objects_seen), (JobState::Done, None, 1), "{kind:?}");
    }
}

/// Whose under store is away for hours must not keep the jobs for other under stores from running.
#[tokio::test]
async fn jobs_that_wait_for_an_under_store_leave_their_turn_to_others() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    for number in 0..3 {
        bench.under.put_outside(&number.to_string(), pattern(number, 100));
    }
    bench.put("here", "here").await.unwrap();
    bench.under.set_mood(Mood::Refuse(UfsKind::Unavailable));
    let mut loads = Vec::new();
    for _ in 0..4 {
        loads.push(start(&bench, request(JobKind::Load, "/bucket")).await);
    }
    let waits = |job: &Job| job.error.as_ref().is_some_and(|why| why.starts_with("waits: "));
    bench.advancing("all of them wait", || loads.iter().all(|id| waits(&job(&bench, id)))).await;
    assert!(loads.iter().all(|id| job(&bench, id).state == JobState::Running));
    let (scrub, _) = run(&bench, request(JobKind::Scrub, "/")).await;
    assert_eq!((scrub.state, scrub.progress.objects_seen), (JobState::Done, 1));
    assert_eq!(bench.cache.cancel_job(&loads[0]).await.unwrap().state, JobState::Cancelled);
    // After a restart, too, when all of them are tried again.
    bench.restart().await;
    assert!(loads[1..].iter().all(|id| job(&bench, id).state == JobState::Queued));
    bench.advancing("the others wait", || loads[1..].iter().all(|id| waits(&job(&bench, id)))).await;
    bench.foreground.set(Way::HoldReads);
    bench.under.set_mood(Mood::Well);
    let is_at_work = |id: &&String| job(&bench, id).error.is_none_or(|why| why.starts_with(NO_ANSWER));
    let waits_for_turn = |id: &&String| job(&bench, id).error.is_some_and(|why| why.starts_with("waits for its turn"));
    let count = |is: &dyn Fn(&&String) -> bool| loads[1..].iter().filter(is).count();
    let as_many_as_may = || (count(&is_at_work), count(&waits_for_turn)) == (2, 1);
    bench.advancing("two are at work, and one waits for its turn", as_many_as_may).await;
    bench.foreground.set(Way::Open);
    bench.advancing("all end", || loads.iter().all(|id| has_ended(&bench, id))).await;
    for id in &loads[1..] {
        let ended = job(&bench, id);
        assert_eq!((ended.state, ended.error, ended.progress.objects_seen), (JobState::Done, None, 4));
    }
}

/// An under store that has just come back is not met by all that has waited for it.
#[tokio::test]
async fn tasks_of_a_job_begin_nothing_while_it_has_no_turn() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    for path in ["a", "b", "c"] {
        for number in 0..4 {
            bench.under.put_outside(&format!("{path}/{number}"), pattern(number, 100));
        }
    }
    bench.foreground.set(Way::HoldReads);
    let mut loads = Vec::new();
    for path in ["/bucket/a/", "/bucket/b/", "/bucket/c/"] {
        loads.push(start(&bench, request(JobKind::Load, path)).await);
    }
    until("the objects of two are read", || bench.foreground.waiting() == 8).await;
    // The outage begins in the middle of it.
    bench.under.set_mood(Mood::Refuse(UfsKind::Unavailable));
    bench.foreground.set(Way::Open);
    let waits = |id: &String| job(&bench, id).error.is_some_and(|why| why.starts_with("waits: "));
    bench.advancing("all of them wait", || loads.iter().all(waits)).await;
    bench.foreground.set(Way::HoldReads);
    bench.under.set_mood(Mood::Well);
    let waits = |id: &String| job(&bench, id).error.is_some_and(|why| !why.starts_with(NO_ANSWER));
    let for_turn = || loads.iter().filter(|id| waits(id)).collect::<Vec<_>>();
    let is_back = || bench.foreground.waiting() == 8 && for_turn().len() == 1;
    bench.advancing("two of them read again", is_back).await;
    bench.pass_seconds(120).await;
    assert_eq!((bench.foreground.waiting(), for_turn().len()), (8, 1));
    let last = for_turn()[0].clone();
    assert_eq!(bench.cache.cancel_job(&last).await.unwrap().state, JobState::Cancelled);
    bench.foreground.set(Way::Open);
    bench.advancing("all end", || loads.iter().all(|id| has_ended(&bench, id))).await;
    bench.restart().await;
    for id in &loads {
        let expected = if *id == last { JobState::Cancelled } else { JobState::Done };
        assert_eq!(job(&bench, id).state, expected);
    }
}

/// Otherwise a script that loops while an under store is away begins jobs without end.
#[tokio::test]
async fn jobs_that_wait_for_an_under_store_count_as_waiting() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.set_mood(Mood::Refuse(UfsKind::Unavailable));
    let asked = async |by: &str| bench.cache.create_job(request(JobKind::Load, "/bucket"), by).await;
    let mut waiting = 0;
    while asked("anna").await.is_ok() {
        waiting += 1;
    }
    let all_wait = || jobs(&bench).iter().all(|job| job.state == JobState::Running && job.error.is_some());
    bench.advancing("all of them wait", all_wait).await;
    assert_eq!(kind(asked("anna").await), Some(ErrorKind::SlowDown), "after {waiting}");
}

/// An operator who persists before maintenance must not wonder why nothing happens.
#[tokio::test]
async fn a_persist_job_says_that_it_waits_for_earlier_requests() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "value").await.unwrap();
    until("the upload is under way", || bench.background.waiting() == 1).await;
    bench.power_loss(3).await;
    bench.background.set(Way::Open);
    let id = start(&bench, request(JobKind::Persist, "/")).await;
    let says = || job(&bench, &id).error.is_some_and(|why| why.contains("(settle_time)"));
    until("the job says that it waits", says).await;
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    assert_eq!((job(&bench, &id).state, job(&bench, &id).error), (JobState::Done, None));
}
