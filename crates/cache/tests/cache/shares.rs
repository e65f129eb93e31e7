//! Pinned space has many owners: a bucket that fills it leaves room for the others.

use std::ops::Range;
use std::sync::Arc;

use forebay_cache::{
    Attributes, CompletePart, CompleteUpload, Conditions, ErrorKind, PutObject, Result, UploadRef, Written,
};
use forebay_catalog::records;
use forebay_env::Requester;
use forebay_store::ValueWrite;
use forebay_types::{BucketName, ByteSize, ObjectPath, WriteMode};
use forebay_ufs::BucketRoot;
use forebay_ufs::memory::MemoryRoot;
use futures::{FutureExt, StreamExt, stream};

use crate::support::{Bench, Others, Setup, create_upload, incoming, incoming_stream, path, pattern};

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
async fn fill(mut write: impl AsyncFnMut(u32) -> Result<Written>) -> u32 {
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
