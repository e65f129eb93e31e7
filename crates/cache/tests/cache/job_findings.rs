//! What jobs find out about objects, and what they don't tell because it may be no difference.

use std::time::Duration;

use bytes::Bytes;
use forebay_cache::{
    Attributes, CacheTier, Conditions, ErrorKind, JobKind, JobRequest, JobState, PutObject, UploadRef,
};
use forebay_catalog::records::{self, Base, ObjectRecord, State};
use forebay_store::{Annotation, Commit, Object, ValueWrite};
use forebay_types::{ByteSize, Durability, ETag, Generation, PolicyRule, WriteMode};
use forebay_ufs::ErrorKind as UfsKind;
use forebay_ufs::memory::Mood;

use crate::support::gate::Way;
use crate::support::jobs::{findings, has_ended, job, request, run, start, told};
use crate::support::{Bench, Setup, create_upload, incoming, others_go_on, path, pattern, rule, until};

fn dry(request: JobRequest) -> JobRequest {
    JobRequest { dry_run: true, ..request }
}

/// A write through to the under store, which waits there.
async fn write_under_way(bench: &Bench, key: &'static str) -> forebay_env::Task<Result<(), ErrorKind>> {
    let waiting = bench.foreground.waiting();
    let cache = bench.cache.clone();
    let request = PutObject {
        path: path(key),
        body: incoming("after".into()),
        attributes: Attributes::default(),
        conditions: Conditions::default(),
    };
    let task = forebay_env::spawn(async move { cache.put(request).await.map(|_| ()).map_err(|error| error.kind) });
    until("the write is under way", || bench.foreground.waiting() > waiting).await;
    task
}

#[tokio::test]
async fn an_object_that_is_being_written_is_looked_at_again_later() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.put_outside("key", "before".into());
    bench.foreground.set(Way::Closed);
    let write = write_under_way(&bench, "key").await;
    let id = start(&bench, request(JobKind::Load, "/bucket/key")).await;
    until("it is looked at", || bench.foreground.heads() == 1).await;
    others_go_on().await;
    assert_eq!(bench.foreground.heads(), 1, "the next look comes later");
    bench.foreground.set(Way::Open);
    write.join().await.unwrap();
    bench.advancing("the job ends", || has_ended(&bench, &id)).await;
    let progress = job(&bench, &id).progress;
    assert_eq!((progress.objects_skipped, progress.objects_failed), (1, 0), "the write has left all of it here");
}

#[tokio::test]
async fn a_load_gives_up_on_what_is_written_all_the_time() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    let small = PolicyRule { cache_quota: Some(ByteSize(10)), ..PolicyRule::for_path("/bucket/small/") };
    let rules = vec![rule("/", WriteMode::WriteThrough), small];
    bench.cache.set_policies(rules, None, "test", "edit").await.unwrap();
    bench.under.put_outside("key", "before".into());
    bench.under.put_outside("small/large", "larger than it may be".into());
    bench.foreground.set(Way::Closed);
    let writes = [write_under_way(&bench, "key").await, write_under_way(&bench, "small/large").await];
    let (job, found) = run(&bench, request(JobKind::Load, "/bucket")).await;
    assert_eq!(told(&found), [("/bucket/key", "failed"), ("/bucket/small/large", "too-large")]);
    let progress = &job.progress;
    assert_eq!((progress.objects_seen, progress.objects_skipped, progress.objects_failed), (2, 1, 1));
    bench.foreground.set(Way::Open);
    for write in writes {
        write.join().await.unwrap();
    }
}

/// What is gone since it was listed is no failure.
#[tokio::test]
async fn a_load_tells_what_it_could_not_look_up() {
    for (refusal, expected) in [(UfsKind::NotFound, &[][..]), (UfsKind::Denied, &[("/bucket/key", "failed")])] {
        for make in [dry, |request| request] {
            let bench = Bench::new(WriteMode::WriteThrough).await;
            bench.under.put_outside("key", "value".into());
            bench.under.put_outside("other", "value".into());
            bench.foreground.set(Way::Refuse("key".to_owned(), refusal));
            let (job, found) = run(&bench, make(request(JobKind::Load, "/bucket"))).await;
            assert_eq!(told(&found), expected, "{:?}", job.request);
            let failed = expected.len() as u64;
            let progress = &job.progress;
            assert_eq!((progress.objects_done, progress.bytes_done), (1, 5));
            assert_eq!((progress.objects_failed, progress.objects_skipped), (failed, 1 - failed), "{refusal:?}");
        }
    }
}

#[tokio::test]
async fn a_dry_load_tells_when_all_of_it_is_more_than_the_cache_takes() {
    let bench = Setup::new(WriteMode::WriteThrough).capacity(24 << 20).open().await;
    bench.under.put_outside("old", pattern(1, 1 << 20));
    bench.get("old").await.unwrap();
    let mut room = 0;
    for beyond in [0, 1] {
        // Held until it is known how much room there is beside the job's own record.
        bench.under.set_mood(Mood::Hang);
        let lists = bench.foreground.lists();
        let id = start(&bench, dry(request(JobKind::Load, "/bucket/new/"))).await;
        until("the list is under way", || bench.foreground.lists() > lists).await;
        let usage = bench.store.usage();
        assert!(usage.evictable_bytes >= 1 << 20 && usage.free_bytes > 0, "{usage:?}");
        room = usage.free_bytes + usage.evictable_bytes;
        bench.under.put_outside("new/most", vec![0; room as usize].into());
        if beyond > 0 {
            bench.under.put_outside("new/rest", "x".into());
        }
        bench.under.set_mood(Mood::Well);
        bench.advancing("the job ends", || has_ended(&bench, &id)).await;
        assert_eq!(job(&bench, &id).progress.bytes_done, room + beyond);
        let found = findings(&bench, &id).await;
        let expected = [("/bucket/new/", "exceeds-cache")];
        assert_eq!(told(&found), expected[..beyond as usize], "{found:?}");
    }
    assert!(room > 0);
}

#[tokio::test]
async fn verify_steps_through_a_list_of_many_pages() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    for n in 0..2001 {
        bench.under.put_outside(&format!("{n:04}"), "theirs".into());
    }
    bench.put("1500", "ours").await.unwrap();
    for (make, done) in [(dry as fn(JobRequest) -> JobRequest, 0), (|request| request, 1)] {
        let id = start(&bench, make(request(JobKind::Verify, "/bucket"))).await;
        let is_over = || has_ended(&bench, &id) || job(&bench, &id).progress.objects_seen > 2001;
        bench.advancing("the job ends", is_over).await;
        let ended = job(&bench, &id);
        assert_eq!((ended.state, ended.progress.objects_seen, ended.findings), (JobState::Done, 2001, 0), "{ended:?}");
        assert_eq!(ended.progress.objects_done, done, "what nobody has here is not compared");
        assert_eq!(ended.progress.after.as_deref(), Some("/bucket/1999"), "where a restart would go on");
    }
}

fn object(bench: &Bench, key: &str) -> Object {
    bench.store.peek(&records::object_key(&path(key))).expect("an object")
}

/// Says behind the cache's back that the copy is all there is of an object.
fn only_copy(bench: &Bench, key: &str, generation: impl Fn(Generation) -> Generation) -> (Annotation, ValueWrite) {
    let object = object(bench, key);
    let generation = generation(object.generation());
    let record = ObjectRecord {
        state: State::Dirty,
        generation,
        dirty_since: generation,
        dirty_since_ms: 1,
        size: object.size(),
        etag: ETag::new("etag"),
        last_modified_ms: 1,
        storage_class: None,
        base: Base::Unknown,
        holders: records::Holders::default(),
    };
    let (key, annex) = (Bytes::copy_from_slice(object.key()), Bytes::copy_from_slice(object.annex()));
    let write = ValueWrite { key: key.clone(), value: Some(record.encode()) };
    (Annotation { key, generation: object.generation(), annex, pinned: true }, write)
}

#[tokio::test]
async fn verify_tells_what_is_missing_of_only_copies_and_parts() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("older", "value").await.unwrap();
    bench.put("whole", "value").await.unwrap();
    bench.under.put_outside("half", pattern(1, 3 << 20));
    bench.get_range("half", 0, 0).await.unwrap();
    let create = create_upload(path("upload"));
    let upload_id = bench.cache.create_upload(create).await.unwrap();
    let upload = UploadRef { path: path("upload"), upload_id };
    for number in [1, 2] {
        bench.cache.put_part(&upload, number, incoming("part".into())).await.unwrap();
    }
    let (annotate, writes) = [
        only_copy(&bench, "older", |_| Generation(1)),
        only_copy(&bench, "whole", |generation| generation),
        only_copy(&bench, "half", |generation| generation),
    ]
    .into_iter()
    .unzip();
    let forget = vec![records::part_key(&upload.upload_id, 2)];
    bench.store.commit(Commit { annotate, writes, forget, ..Commit::default() }, Durability::Fsync).await.unwrap();
    let (job, found) = run(&bench, request(JobKind::Verify, "/bucket")).await;
    assert_eq!((job.progress.objects_seen, job.progress.objects_done), (5, 3));
    let missing = ["/bucket/half", "/bucket/older", "/bucket/upload"];
    assert_eq!(told(&found), missing.map(|path| (path, "missing-bytes")));
    for (path, words) in
        [(missing[0], "1048576 of 3145728 bytes"), (missing[1], "generation 1 is recorded"), (missing[2], "part 2 of")]
    {
        let finding = found.iter().find(|finding| finding.path == path).unwrap();
        assert!(finding.detail.contains(words), "{finding:?}");
    }
}

/// Until it can land no more, a request without an answer explains what the under store has.
#[tokio::test]
async fn verify_does_not_tell_what_a_request_under_way_may_explain() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("key", "ours").await.unwrap();
    bench.close().await;
    bench.write_record(records::request_key(&path("key")), Some(bytes::Bytes::new())).await;
    bench.reopen().await;
    bench.under.put_outside("key", "later".into());
    let (job, found) = run(&bench, request(JobKind::Verify, "/bucket")).await;
    assert_eq!((job.progress.objects_done, told(&found)), (1, vec![]));
    bench.clock.advance(Duration::from_secs(30));
    let (_, found) = run(&bench, request(JobKind::Verify, "/bucket")).await;
    assert_eq!(told(&found), [("/bucket/key", "stale-copy")]);
}

#[tokio::test]
async fn scrub_finds_a_damaged_description() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    let user = [("name".to_owned(), "unmistakable".to_owned())].into();
    let attributes = Attributes { user, ..Attributes::default() };
    let (path, body) = (path("key"), incoming("value".into()));
    bench.cache.put(PutObject { path, body, attributes, conditions: Conditions::default() }).await.unwrap();
    bench.put("sound", "value").await.unwrap();
    assert!(bench.damage(b"unmistakable").await > 0);
    let (job, found) = run(&bench, request(JobKind::Scrub, "/bucket")).await;
    let progress = &job.progress;
    assert_eq!((job.state, progress.objects_done, progress.objects_failed), (JobState::Done, 1, 1));
    assert_eq!(told(&found), [("/bucket/key", "corrupt")]);
    assert!(found[0].detail.starts_with("clean: the description damaged, dropped"), "{found:?}");
    let detail = bench.cache.object_detail(&crate::support::path("key")).await.unwrap();
    assert_eq!(detail.tier, CacheTier::UnderStore);
}

#[tokio::test]
async fn scrub_keeps_damaged_bytes_that_no_record_names() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", pattern(1, 1000)).await.unwrap();
    let writes = vec![ValueWrite { key: records::object_key(&path("key")), value: None }];
    bench.store.commit(Commit { writes, ..Commit::default() }, Durability::Fsync).await.unwrap();
    assert!(bench.damage(&pattern(1, 64)).await > 0);
    let (_, found) = run(&bench, request(JobKind::Scrub, "/bucket")).await;
    assert_eq!(told(&found), [("/bucket/key", "corrupt")]);
    let detail = &found[0].detail;
    assert!(detail.starts_with("an older version: ") && detail.contains("kept for examination"), "{detail}");
    assert!(object(&bench, "key").is_pinned());
}

#[tokio::test]
async fn a_path_that_is_a_whole_key_is_in_its_own_scope() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    for key in ["kex", "key", "key2", "kez"] {
        bench.put(key, "value").await.unwrap();
    }
    for kind in [JobKind::Verify, JobKind::Scrub, JobKind::Free] {
        let (job, found) = run(&bench, request(kind, "/bucket/key")).await;
        assert_eq!((job.progress.objects_seen, job.progress.objects_done), (2, 2), "{kind:?}: {found:?}");
    }
}
