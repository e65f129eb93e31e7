//! Pinned space, fetches, and the memory for records and for answers have many owners: one that fills them leaves room
//! for the others.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_cache::{
    Attributes, CompletePart, CompleteUpload, Conditions, CreateUpload, ErrorKind, ObjectBody, PutObject, RangeRequest,
    Result, UploadRef,
};
use forebay_catalog::{SlotCount, SlotSet, records};
use forebay_env::Requester;
use forebay_store::ValueWrite;
use forebay_types::{BucketName, ByteSize, ObjectPath, WriteMode};
use forebay_ufs::BucketRoot;
use forebay_ufs::memory::MemoryRoot;
use futures::{FutureExt, StreamExt, stream};

use crate::multipart;
use crate::support::gate::Way;
use crate::support::{
    Bench, Others, Setup, collect, create_upload, get_request, incoming, incoming_stream, kind, others_go_on, path,
    pattern, rule, until,
};

const KIB: usize = 1 << 10;

/// About 19 MiB of pinned space, and a bucket `modest` beside the one that everybody uses.
async fn open() -> Bench {
    open_with(WriteMode::Transient).await
}

async fn open_with(mode: WriteMode) -> Bench {
    let mut setup = Setup::new(mode).capacity(64 << 20);
    setup.root = Some(Arc::new(MemoryRoot::default()) as Arc<dyn BucketRoot>);
    let bench = setup.settings(|settings| settings.part_size_min = ByteSize(1)).open().await;
    bench
        .cache
        .create_bucket(&BucketName::new("modest").expect("nothing refuses it"))
        .await
        .expect("nothing refuses it");
    bench
}

/// How many writes are taken until one is refused, which asks to come back later.
async fn fill<T>(mut write: impl AsyncFnMut(u32) -> Result<T>) -> u32 {
    for number in 1..1000 {
        if let Err(error) = write(number).await {
            assert_eq!(error.kind, ErrorKind::SlowDown);
            return number - 1;
        }
    }
    panic!("there is no end of the space");
}

async fn fill_with_objects(bench: &Bench) -> u32 {
    fill(async |number| bench.put(&format!("{number}"), pattern(u64::from(number), 256 * KIB)).await).await
}

async fn create(bench: &Bench) -> UploadRef {
    let request = create_upload(path("upload"));
    UploadRef { path: path("upload"), upload_id: bench.cache.create_upload(request).await.expect("nothing refuses it") }
}

/// Parts of 256 KiB, each of which replaces an earlier one of the same number.
async fn fill_with_parts(bench: &Bench, upload: &UploadRef) -> Vec<CompletePart> {
    let mut parts = Vec::new();
    fill(async |number| {
        bench.cache.put_part(upload, number, incoming(pattern(7, KIB))).await?;
        let written = bench.cache.put_part(upload, number, incoming(pattern(8, 256 * KIB))).await?;
        parts.push(CompletePart { number, etag: written.etag.clone(), checksums: Vec::new() });
        Ok(written)
    })
    .await;
    parts
}

/// Writes a little into the other bucket.
async fn write_modestly(bench: &Bench) {
    for number in 0..16 {
        let path = ObjectPath::parse("modest", &format!("{number}")).expect("nothing refuses it");
        let (body, attributes) = (incoming(pattern(number, 32 * KIB)), Attributes::default());
        let put = PutObject { path, body, attributes, conditions: Conditions::default() };
        bench.cache.put(put).await.expect("nothing refuses it");
    }
}

#[tokio::test]
async fn a_bucket_that_fills_pinned_space_leaves_room_for_others() {
    let mut bench = open().await;
    let written = fill_with_objects(&bench).await;
    assert!((65..=72).contains(&written), "{written} of 256 KiB are about 15 sixteenths of 19 MiB");
    write_modestly(&bench).await;
    bench.restart().await;
    assert!(bench.put("more", pattern(1, 256 * KIB)).await.is_err(), "who has how much is known after a restart");
    write_modestly(&bench).await;
    for number in 1..=written {
        bench.delete(&format!("{number}")).await.unwrap();
    }
    assert!(fill_with_objects(&bench).await.abs_diff(written) <= 3, "what is deleted does not count");
}

/// Writes whose bodies do not come, each of half of what the one before wanted.
#[tokio::test]
async fn a_requester_that_announces_much_and_sends_nothing_leaves_room_in_its_bucket() {
    announces_much(WriteMode::Transient, 15 << 20..17 << 20).await;
}

#[tokio::test]
async fn so_does_one_whose_writes_pass_through() {
    for mode in [WriteMode::WriteThrough, WriteMode::NoCache] {
        announces_much(mode, 50 << 20..57 << 20).await;
    }
}

/// `share` is what one requester gets in the end: about seven eighths of all that there is for this mode.
async fn announces_much(mode: WriteMode, share: Range<u64>) {
    let bench = open_with(mode).await;
    let announce = |number: u32, size: u64| {
        let body = incoming_stream(stream::pending().boxed(), size);
        let (attributes, conditions) = (Attributes::default(), Conditions::default());
        let put = PutObject { path: path(&format!("never/{number}")), body, attributes, conditions };
        Box::pin(Requester::named("greedy").gets(bench.cache.put(put)))
    };
    let (mut size, mut announced, mut held) = (64 << 20, 0, Vec::new());
    for number in 0..200 {
        let mut write = announce(number, size);
        match (&mut write).now_or_never() {
            None => {
                announced += size;
                held.push(write);
            }
            Some(refused) => {
                assert!(
                    [ErrorKind::SlowDown, ErrorKind::InsufficientStorage]
                        .contains(&refused.expect_err("it is refused").kind)
                );
                size = (size / 2).max(64 << 10);
            }
        }
    }
    assert!(share.contains(&announced), "{mode:?}: {announced}");
    let write = async |number: u32| bench.put(&format!("{number}"), pattern(u64::from(number), 16 * KIB)).await;
    for number in 0..40 {
        Requester::named("modest").gets(write(number)).await.expect("there is room");
    }
    drop(held);
    let whole = pattern(1, share.start as usize - (1 << 20));
    let whole = Requester::named("greedy").gets(bench.put("whole", whole)).await;
    whole.expect("what was given up does not count");
}

#[tokio::test]
async fn parts_of_open_uploads_count_for_their_bucket() {
    let mut bench = open().await;
    let upload = create(&bench).await;
    let parts = fill_with_parts(&bench, &upload).await;
    assert!((65..=72).contains(&parts.len()), "{}", parts.len());
    write_modestly(&bench).await;
    bench.restart().await;
    assert!(bench.put("more", pattern(1, 256 * KIB)).await.is_err(), "they do after a restart");
    write_modestly(&bench).await;
    bench.cache.abort_upload(&upload).await.unwrap();
    let again = create(&bench).await;
    let parts = fill_with_parts(&bench, &again).await;
    assert!((62..=72).contains(&parts.len()), "{}: what was aborted does not count", parts.len());
    let (conditions, checksums) = (Conditions::default(), Vec::new());
    let completion = CompleteUpload { upload: again, parts, checksums, checksum_kind: None, size: None, conditions };
    bench.cache.complete_upload(completion).await.unwrap();
    bench.delete("upload").await.unwrap();
    assert!((62..=72).contains(&fill_with_objects(&bench).await), "nor what was completed and deleted");
}

/// How many small objects find room beside uploads of one part that was written so often: one that is open, or many
/// that were aborted.
async fn room_beside_parts(writes: usize, aborted: bool) -> u32 {
    let setup = Setup::new(WriteMode::Transient).capacity(64 << 20);
    let bench = setup.settings(|settings| settings.pinned_ratio = 0.02).open().await;
    for _ in 0..if aborted { 20 } else { 1 } {
        let upload = create(&bench).await;
        for _ in 0..writes {
            bench.cache.put_part(&upload, 1, incoming(pattern(7, 64 * KIB))).await.expect("there is room");
        }
        if aborted {
            bench.cache.abort_upload(&upload).await.expect("nothing refuses it");
        }
    }
    fill(async |number| bench.put(&format!("{number}"), pattern(8, 16 * KIB)).await).await
}

#[tokio::test]
async fn a_part_that_is_written_again_and_again_counts_once_and_not_at_all_when_its_upload_is_aborted() {
    for (writes, aborted) in [(30, false), (3, true)] {
        let once = room_beside_parts(1, aborted).await;
        assert_eq!(room_beside_parts(writes, aborted).await, once, "aborted: {aborted}");
    }
}

/// How many small objects find room beside `count` uploads whose aborts failed: a part that came at the last moment
/// could not be removed.
async fn room_beside_failed_aborts(count: u32) -> u32 {
    let others = Arc::<Others>::default();
    let setup = Setup { others: Some(Arc::clone(&others)), ..Setup::new(WriteMode::Transient).capacity(64 << 20) };
    let bench = setup.settings(|settings| settings.pinned_ratio = 0.02).open().await;
    for _ in 0..count {
        let upload = create(&bench).await;
        bench.cache.put_part(&upload, 1, incoming(pattern(7, 256 * KIB))).await.expect("there is room");
        let late = ValueWrite { key: records::part_key(&upload.upload_id, 2), value: Some("no record".into()) };
        others.ahead.lock().push(late);
        bench.cache.abort_upload(&upload).await.expect_err("the late part can't be read");
    }
    fill(async |number| bench.put(&format!("{number}"), pattern(8, 16 * KIB)).await).await
}

#[tokio::test]
async fn an_upload_whose_abort_fails_at_the_end_does_not_count() {
    assert_eq!(room_beside_failed_aborts(40).await, room_beside_failed_aborts(0).await);
}

const GREEDY: &str = "greedy";

/// Begins uploads with much metadata until one is refused: their records fill what one requester may have of 1 MiB.
async fn fill_with_uploads(bench: &Bench) -> Vec<UploadRef> {
    let mut uploads = Vec::new();
    let filling = fill(async |_| {
        let user = [("name".to_owned(), "x".repeat(6000))].into();
        let attributes = Attributes { user, ..Attributes::default() };
        let request = CreateUpload { attributes, ..create_upload(path("upload")) };
        let upload_id = bench.cache.create_upload(request).await?;
        uploads.push(UploadRef { path: path("upload"), upload_id });
        Ok(())
    });
    Requester::named(GREEDY).gets(filling).await;
    uploads
}

/// What everybody else in the bucket still can.
async fn write_and_delete_modestly(bench: &Bench) -> UploadRef {
    let work = async {
        bench.put("modest", "fits").await.expect("there is room");
        bench.delete("modest").await.expect("there is room");
        bench.delete("modest and absent").await.expect("there is room");
        create(bench).await
    };
    Requester::named("modest").gets(work).await
}

/// Completes some, and aborts the others.
async fn end(bench: &Bench, uploads: &[UploadRef]) {
    for (number, upload) in uploads.iter().enumerate() {
        if number % 2 == 0 {
            bench.cache.abort_upload(upload).await.expect("it is open");
        } else {
            let part = multipart::put_part(bench, upload, 1, 100).await;
            multipart::complete(bench, upload, &[part]).await.expect("it is open");
        }
    }
}

#[tokio::test]
async fn a_requester_that_begins_uploads_without_end_leaves_room_in_its_bucket() {
    let mut bench = open().await;
    let uploads = fill_with_uploads(&bench).await;
    assert!((110..=140).contains(&uploads.len()), "{} of 7 KB are about seven eighths of 1 MiB", uploads.len());
    let mut all = uploads.clone();
    all.push(write_and_delete_modestly(&bench).await);
    bench.restart().await;
    let more = fill_with_uploads(&bench).await;
    assert!(more.len() < 20, "{}: open uploads count after a restart", more.len());
    let slots = SlotSet::none(SlotCount::new(4).unwrap()).others();
    bench.cache.lose(&slots).await.unwrap();
    bench.cache.gain(&slots).await.unwrap();
    let and_more = fill_with_uploads(&bench).await;
    assert!(and_more.len() < 20, "{}: they do when their slots come back", and_more.len());
    all.extend(more.into_iter().chain(and_more));
    end(&bench, &all).await;
    let again = fill_with_uploads(&bench).await;
    assert!(again.len().abs_diff(uploads.len()) <= 2, "{}: what has ended does not count", again.len());
}

/// Deletes keys that were never written, with long names, until a delete waits for the under store.
async fn fill_with_deletes(bench: &Bench, round: u32) -> u32 {
    let filling = async {
        let before = bench.under.requests();
        for number in 1..1000 {
            bench.delete(&format!("{round}/{number:0900}")).await.expect("no delete is refused");
            if bench.under.requests() > before {
                return number - 1;
            }
        }
        panic!("there is no end of the room");
    };
    Requester::named(GREEDY).gets(filling).await
}

#[tokio::test]
async fn a_requester_that_deletes_what_never_was_leaves_room_in_its_bucket() {
    let mut bench = open_with(WriteMode::WriteBack).await;
    bench.put("clean", "cached").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Closed);
    bench.put("dirty", "waits").await.unwrap();
    let deleted = fill_with_deletes(&bench, 0).await;
    assert!((450..=560).contains(&deleted), "{deleted} of 1.8 KB are about seven eighths of 1 MiB");
    for key in ["clean", "dirty"] {
        Requester::named(GREEDY).gets(bench.delete(key)).await.expect("what is there can always be deleted");
    }
    let modest = write_and_delete_modestly(&bench).await;
    bench.background.set(Way::Cut);
    bench.restart().await;
    bench.background.set(Way::Closed);
    let more = fill_with_deletes(&bench, 1).await;
    assert!(more < 80, "{more}: deletes that wait count after a restart");
    bench.background.set(Way::Open);
    bench.drain().await;
    bench.cache.abort_upload(&modest).await.unwrap();
    bench.background.set(Way::Closed);
    let again = fill_with_deletes(&bench, 2).await;
    assert!(again.abs_diff(deleted) <= 2, "{again}: those that the under store has do not count");
}

/// A write takes the place of a delete that waits.
#[tokio::test]
async fn a_delete_that_a_write_replaces_does_not_count() {
    let bench = open_with(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    let deleted = fill_with_deletes(&bench, 0).await;
    for number in 1..=deleted {
        bench.put(&format!("0/{number:0900}"), "written").await.unwrap();
    }
    assert_eq!(fill_with_deletes(&bench, 1).await, deleted);
}

#[tokio::test]
async fn while_the_catalog_is_nearly_full_records_are_ended_and_none_are_added() {
    let bench = open_with(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("dirty", "waits").await.unwrap();
    let [upload, other] = [create(&bench).await, create(&bench).await];
    let part = multipart::put_part(&bench, &upload, 1, 100).await;
    bench.cache.set_catalog_nearly_full(true);
    let refused = bench.put("new", "is refused").await.unwrap_err();
    assert_eq!((refused.kind, refused.retry_after.is_some()), (ErrorKind::SlowDown, true));
    let refused = [
        kind(bench.delete("absent").await),
        kind(bench.cache.create_upload(create_upload(path("upload"))).await),
        kind(bench.cache.put_part(&upload, 2, incoming(pattern(1, 100))).await),
    ];
    assert_eq!(refused, [Some(ErrorKind::SlowDown); 3]);
    bench.delete("dirty").await.unwrap();
    multipart::complete(&bench, &upload, &[part]).await.unwrap();
    bench.cache.abort_upload(&other).await.unwrap();
    bench.background.set(Way::Open);
    bench.drain().await;
    bench.cache.set_catalog_nearly_full(false);
    bench.put("new", "fits").await.unwrap();
}

/// What is cached of `kept` comes in pages of this size, and without a share of the memory in pieces of half of it.
const PAGE: usize = 256 * KIB;

/// A cache that has three pages of `kept`, and objects under `passed/` that it does not keep.
async fn open_with_kept() -> Bench {
    let mut setup = Setup::new(WriteMode::WriteBack).settings(|settings| {
        (settings.page_size, settings.memory_object_max) = (ByteSize(PAGE as u64), ByteSize(64 << 10));
        settings.read_ahead_pages = 0;
    });
    setup.policies.push(rule("/bucket/passed/", WriteMode::NoCache));
    let bench = setup.open().await;
    bench.under.put_outside("kept", pattern(1, 3 * PAGE));
    bench.under.put_outside("passed/large", pattern(2, 1024 * KIB));
    bench.get("kept").await.expect("it is there");
    bench
}

/// Answers that nobody reads.
async fn slow_readers(bench: &Bench, count: usize) -> Vec<ObjectBody> {
    let mut bodies = Vec::new();
    for _ in 0..count {
        bodies.push(bench.open_get("passed/large", None).await.expect("it is there"));
    }
    bodies
}

/// The largest piece in which a requester gets `kept`.
async fn largest_piece(bench: &Bench, requester: Requester) -> usize {
    let reading = async {
        let body = bench.open_get("kept", None).await.expect("it is there");
        let sizes: Vec<usize> = body.stream.map(|data| data.expect("it is whole").len()).collect().await;
        sizes.into_iter().max().expect("it is not empty")
    };
    requester.gets(reading).await
}

/// What the under store sends is in memory until they read it. It counts up to half of their requester's share.
#[tokio::test]
async fn slow_readers_of_what_is_not_kept_leave_memory_to_others() {
    let bench = open_with_kept().await;
    let [greedy, modest] = [GREEDY, "modest"].map(Requester::named);
    assert_eq!(largest_piece(&bench, greedy).await, PAGE);
    let slow = greedy.gets(slow_readers(&bench, 300)).await;
    assert_eq!(largest_piece(&bench, greedy).await, PAGE, "half of its share is left");
    assert_eq!(largest_piece(&bench, modest).await, PAGE);
    drop(slow);
}

fn reading(
    bench: &Bench,
    requester: Requester,
    key: &str,
    range: Option<RangeRequest>,
) -> forebay_env::Task<Result<Bytes>> {
    let (cache, request) = (bench.cache.clone(), get_request(key, range));
    forebay_env::spawn(requester.gets(async move { collect(cache.get(request).await?.stream).await }))
}

fn page(number: u64) -> Option<RangeRequest> {
    let first = number * PAGE as u64;
    Some(RangeRequest::From { first, last: Some(first + PAGE as u64 - 1) })
}

#[tokio::test]
async fn reads_that_wait_for_a_fetch_keep_no_memory_from_others() {
    let bench = open_with_kept().await;
    bench.under.put_outside("pages", vec![7; 64 * PAGE].into());
    bench.head("pages").await.expect("it is there");
    // Of the memory, 16 MiB are left, of which one requester gets 12.
    let _slow = slow_readers(&bench, 224).await;
    bench.foreground.set(Way::HoldRanges);
    let pages = (0..64).map(|number| reading(&bench, Requester::NOBODY, "pages", page(number)));
    let mut readers: Vec<_> = pages.collect();
    until("all fetches are taken", || bench.foreground.waiting() == 64).await;
    let asked = bench.foreground.gets().len();
    let greedy = Requester::named(GREEDY);
    for number in 0..60 {
        let key = format!("small/{number}");
        bench.under.put_outside(&key, vec![7; PAGE].into());
        readers.push(reading(&bench, greedy, &key, None));
    }
    until("all others have asked", || bench.foreground.gets().len() == asked + 60).await;
    others_go_on().await;
    assert_eq!(largest_piece(&bench, greedy).await, PAGE);
    bench.foreground.set(Way::Open);
    for reader in readers {
        assert_eq!(reader.join().await.expect("it is there").len(), PAGE);
    }
}

/// Who has its share of fetches in flight waits. Others who want the same page do not wait for that.
#[tokio::test]
async fn a_page_that_another_requester_waits_for_is_fetched_at_once() {
    let bench = open_with_kept().await;
    bench.under.put_outside("pages", vec![7; 60 * PAGE].into());
    bench.head("pages").await.expect("it is there");
    bench.foreground.set(Way::HoldReads);
    let greedy = Requester::named(GREEDY);
    let mut readers: Vec<_> = (0..60).map(|number| reading(&bench, greedy, "pages", page(number))).collect();
    until("it has its share", || bench.foreground.waiting() == 48).await;
    others_go_on().await;
    assert_eq!(bench.foreground.waiting(), 48);
    readers.push(reading(&bench, Requester::named("modest"), "pages", page(59)));
    until("the last page is asked for", || bench.foreground.waiting() == 49).await;
    bench.foreground.set(Way::Open);
    for reader in readers {
        assert_eq!(reader.join().await.expect("it is there").len(), PAGE);
    }
}
