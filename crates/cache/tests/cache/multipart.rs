//! Multipart uploads: nothing is visible before the completion, all of it after, once, whatever happens in between.

use std::sync::Arc;
use std::time::Duration;

use forebay_cache::{CompletePart, CompleteUpload, Conditions, ErrorKind, ListUploads, Result, UploadRef, Written};
use forebay_catalog::{Catalog, EmbeddedCatalog, TRANSACTION_MAX, Transaction, records};
use forebay_env::Disk;
use forebay_store::{Commit, ValueWrite};
use forebay_types::{BucketName, ByteSize, Durability, ETag, Period, WriteMode};
use futures::StreamExt;

use crate::support::gate::Way;
use crate::support::{
    BUCKET, Bench, Setup, create_upload, incoming, incoming_stream, kind, others_go_on, path, pattern, until,
};

/// Smallest part in these tests.
pub(crate) const PART: usize = 1000;

pub(crate) fn small_parts(mode: WriteMode) -> Setup {
    Setup::new(mode).settings(|settings| settings.part_size_min = ByteSize(PART as u64))
}

pub(crate) async fn create(bench: &Bench, key: &str) -> UploadRef {
    let request = create_upload(path(key));
    UploadRef { path: path(key), upload_id: bench.cache.create_upload(request).await.expect("an upload") }
}

/// Uploads a part and says how a completion names it.
pub(crate) async fn put_part(bench: &Bench, upload: &UploadRef, number: u32, size: usize) -> CompletePart {
    let body = incoming(pattern(u64::from(number), size));
    let written = bench.cache.put_part(upload, number, body).await.expect("a part");
    CompletePart { number, etag: written.etag, checksums: Vec::new() }
}

pub(crate) fn completion(upload: &UploadRef, parts: &[CompletePart]) -> CompleteUpload {
    let conditions = Conditions::default();
    CompleteUpload {
        upload: upload.clone(),
        parts: parts.to_vec(),
        checksums: Vec::new(),
        checksum_kind: None,
        size: None,
        conditions,
    }
}

pub(crate) async fn complete(bench: &Bench, upload: &UploadRef, parts: &[CompletePart]) -> Result<Written> {
    bench.cache.complete_upload(completion(upload, parts)).await
}

/// The bytes of parts of these numbers and sizes.
fn whole(parts: &[(u32, usize)]) -> Vec<u8> {
    parts.iter().flat_map(|(number, size)| pattern(u64::from(*number), *size)).collect()
}

pub(crate) async fn uploads(bench: &Bench) -> usize {
    let request = ListUploads { limit: 1000, ..ListUploads::default() };
    bench.cache.list_uploads(&BucketName::new(BUCKET).expect("a bucket"), &request).await.expect("a list").uploads.len()
}

/// As after its slot was at home at another worker for a moment.
#[tokio::test]
async fn a_part_is_taken_when_the_record_of_its_upload_has_another_version() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let upload = create(&bench, "key").await;
    let (sender, receiver) = futures::channel::mpsc::unbounded();
    let (cache, of) = (bench.cache.clone(), upload.clone());
    let putting = forebay_env::spawn(async move { cache.put_part(&of, 1, incoming_stream(receiver.boxed(), 5)).await });
    sender.unbounded_send(Ok("slow".into())).unwrap();
    others_go_on().await;
    let (key, catalog) =
        (records::upload_key(&upload.path, &upload.upload_id), EmbeddedCatalog::new(bench.store.clone()));
    let value = catalog.get(&key).await.unwrap().map(|found| found.value);
    let writes = vec![ValueWrite { key, value }];
    catalog.commit(Transaction { writes, ..Transaction::default() }).await.unwrap();
    sender.unbounded_send(Ok("!".into())).unwrap();
    drop(sender);
    putting.join().await.unwrap();
    bench.cache.abort_upload(&upload).await.unwrap();
}

#[tokio::test]
async fn a_completion_is_checked_and_makes_the_object_at_once() {
    for mode in [WriteMode::WriteThrough, WriteMode::WriteBack, WriteMode::Transient, WriteMode::NoCache] {
        let bench = small_parts(mode).open().await;
        bench.put("key", "older").await.unwrap();
        let upload = create(&bench, "key").await;
        let three = put_part(&bench, &upload, 3, 7).await;
        let one = put_part(&bench, &upload, 1, 300_000).await;
        put_part(&bench, &upload, 2, 10).await;
        let two = put_part(&bench, &upload, 2, 2 * PART).await;
        let small = put_part(&bench, &upload, 4, PART - 1).await;
        let wrong = CompletePart { etag: ETag::new("0123"), ..one.clone() };
        let missing = CompletePart { number: 9, ..one.clone() };
        for (parts, expected) in [
            (vec![], ErrorKind::InvalidArgument),
            (vec![two.clone(), one.clone()], ErrorKind::InvalidPartOrder),
            (vec![one.clone(), one.clone()], ErrorKind::InvalidPartOrder),
            (vec![wrong], ErrorKind::InvalidPart),
            (vec![one.clone(), missing], ErrorKind::InvalidPart),
            (vec![one.clone(), three.clone(), small], ErrorKind::EntityTooSmall),
        ] {
            assert_eq!(kind(complete(&bench, &upload, &parts).await), Some(expected), "{mode:?}");
        }
        assert_eq!(bench.get("key").await.unwrap(), "older", "{mode:?}: nothing to be seen before the completion");
        let first = complete(&bench, &upload, &[one.clone(), two.clone(), three.clone()]).await.unwrap();
        let expected = whole(&[(1, 300_000), (2, 2 * PART), (3, 7)]);
        assert_eq!(bench.get("key").await.unwrap(), expected, "{mode:?}");
        assert!(first.etag.as_str().ends_with("-3"), "{}", first.etag);
        let again = complete(&bench, &upload, &[one, two, three]).await.unwrap();
        assert_eq!((again.etag, again.size), (first.etag, first.size), "{mode:?}: answered again");
        assert_eq!(uploads(&bench).await, 0);
        bench.drain().await;
        if mode != WriteMode::Transient {
            assert_eq!(bench.under("key").unwrap(), expected, "{mode:?}");
        }
        assert_eq!(bench.cache.status().pinned_bytes == 0, mode != WriteMode::Transient, "the part left out is gone");
    }
}

#[tokio::test]
async fn an_aborted_upload_leaves_nothing() {
    let bench = small_parts(WriteMode::WriteBack).open().await;
    let upload = create(&bench, "key").await;
    let part = put_part(&bench, &upload, 1, 500_000).await;
    assert!(bench.cache.status().pinned_bytes >= 500_000, "parts wait for nobody else");
    bench.cache.abort_upload(&upload).await.unwrap();
    assert_eq!(bench.cache.status().pinned_bytes, 0);
    assert_eq!(kind(complete(&bench, &upload, &[part]).await), Some(ErrorKind::NoSuchUpload));
    assert_eq!(kind(bench.cache.abort_upload(&upload).await), Some(ErrorKind::NoSuchUpload));
    let late = bench.cache.put_part(&upload, 2, incoming("x".into())).await;
    assert_eq!(kind(late), Some(ErrorKind::NoSuchUpload));
    assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
}

/// Engines take no transaction that removes all of its parts.
#[tokio::test]
async fn an_upload_of_more_parts_than_a_transaction_has_writes_ends_without_leftovers() {
    let bench = small_parts(WriteMode::WriteBack).open().await;
    let count = 2 * TRANSACTION_MAX as u32 + 1;
    for is_completed in [true, false] {
        let upload = create(&bench, "key").await;
        let mut parts = Vec::new();
        for number in 1..=count {
            parts.push(put_part(&bench, &upload, number, PART).await);
        }
        if is_completed {
            complete(&bench, &upload, &parts).await.unwrap();
            let sizes: Vec<_> = (1..=count).map(|number| (number, PART)).collect();
            assert_eq!(bench.get("key").await.unwrap(), whole(&sizes));
            bench.drain().await;
        } else {
            bench.cache.abort_upload(&upload).await.unwrap();
        }
        let (from, to) = records::all_parts_range();
        assert!(bench.store.scan(&from, &to, 1).is_empty());
        assert_eq!(bench.cache.status().pinned_bytes, 0);
    }
}

/// A client sends a part again whose answer it has missed, and completes the upload.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parts_that_come_again_as_they_were_do_not_fail_a_completion() {
    let bench = Arc::new(small_parts(WriteMode::Transient).open().await);
    for round in 0..20 {
        let upload = create(&bench, &format!("key-{round}")).await;
        let mut parts = Vec::new();
        for number in 1..=40 {
            parts.push(put_part(&bench, &upload, number, PART).await);
        }
        let again = (0..3_u32).map(|task| {
            let (bench, upload) = (Arc::clone(&bench), upload.clone());
            forebay_env::spawn(async move {
                for turn in 0.. {
                    let number = (task * 13 + turn) % 40 + 1;
                    let body = incoming(pattern(u64::from(number), PART));
                    if bench.cache.put_part(&upload, number, body).await.is_err() {
                        return;
                    }
                }
            })
        });
        let again: Vec<_> = again.collect();
        complete(&bench, &upload, &parts).await.unwrap();
        for task in again {
            task.join().await;
        }
    }
}

/// Its disks took no more, or the engine did not answer.
#[tokio::test]
async fn parts_that_a_completion_has_left_are_swept() {
    let bench = small_parts(WriteMode::WriteBack).open().await;
    let upload = create(&bench, "key").await;
    let part = put_part(&bench, &upload, 1, PART).await;
    let key = records::part_key(&upload.upload_id, 1);
    let left = ValueWrite { key: key.clone(), value: Some(bench.store.value(&key).expect("a part").value) };
    complete(&bench, &upload, &[part]).await.unwrap();
    bench.store.commit(Commit { writes: vec![left], ..Commit::default() }, Durability::Os).await.unwrap();
    bench.cache.sweep().await.unwrap();
    assert!(bench.store.value(&key).is_none());
}

/// Crashes between the parts, and after the completion.
#[tokio::test]
async fn an_upload_goes_on_after_power_cuts_and_completes_once() {
    let mut bench = small_parts(WriteMode::WriteBack).open().await;
    let upload = create(&bench, "key").await;
    let mut parts = Vec::new();
    for number in 1..=4 {
        parts.push(put_part(&bench, &upload, number, 200_000 + number as usize).await);
        bench.power_loss(u64::from(number)).await;
    }
    assert_eq!(uploads(&bench).await, 1);
    bench.background.set(Way::Closed);
    let first = complete(&bench, &upload, &parts).await.unwrap();
    bench.power_loss(5).await;
    let again = complete(&bench, &upload, &parts).await.unwrap();
    assert_eq!(again.etag, first.etag);
    let expected = whole(&[(1, 200_001), (2, 200_002), (3, 200_003), (4, 200_004)]);
    assert_eq!(bench.get("key").await.unwrap(), expected);
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), expected);
    assert_eq!(bench.generations("key").len(), 1);
    // The answer to a completion that is sent again must not undo a later write.
    bench.put("key", "newer").await.unwrap();
    complete(&bench, &upload, &parts).await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), "newer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_that_race_make_one_object() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough] {
        let bench = std::sync::Arc::new(small_parts(mode).open().await);
        let upload = create(&bench, "key").await;
        let parts = [put_part(&bench, &upload, 1, PART).await, put_part(&bench, &upload, 2, PART).await];
        let racers: Vec<_> = (0..8)
            .map(|_| {
                let (bench, upload, parts) = (std::sync::Arc::clone(&bench), upload.clone(), parts.clone());
                forebay_env::spawn(async move { complete(&bench, &upload, &parts).await })
            })
            .collect();
        let mut tags = std::collections::BTreeSet::new();
        for racer in racers {
            tags.insert(racer.join().await.unwrap().etag.as_str().to_owned());
        }
        assert_eq!(tags.len(), 1, "{mode:?}");
        bench.drain().await;
        assert_eq!(bench.under("key").unwrap(), whole(&[(1, PART), (2, PART)]));
        assert_eq!(bench.generations("key").len(), 1, "{mode:?}");
    }
}

/// What nobody comes back for is found and removed, and what is in use is not.
#[tokio::test]
async fn stale_uploads_are_removed_after_the_timeout() {
    let bench = small_parts(WriteMode::WriteBack).open().await;
    let stale = create(&bench, "stale").await;
    put_part(&bench, &stale, 1, 500_000).await;
    bench.clock.advance(Duration::from_secs(1800));
    let busy = create(&bench, "busy").await;
    let part = put_part(&bench, &busy, 1, PART).await;
    let before = bench.cache.status().pinned_bytes;
    bench.advancing("the stale one is removed", || bench.cache.status().pinned_bytes < before).await;
    let passed = bench.env.clock.monotonic();
    assert!(passed >= Duration::from_secs(3600), "not before its time: {passed:?}");
    assert_eq!(kind(complete(&bench, &stale, &[]).await), Some(ErrorKind::NoSuchUpload));
    assert_eq!(uploads(&bench).await, 1);
    complete(&bench, &busy, &[part]).await.unwrap();
    bench.drain().await;
    assert_eq!(bench.cache.status().pinned_bytes, 0);
}

#[tokio::test]
async fn an_upload_takes_the_mode_that_its_path_has_when_it_completes() {
    let bench = small_parts(WriteMode::WriteThrough).open().await;
    let upload = create(&bench, "key").await;
    let part = put_part(&bench, &upload, 1, PART).await;
    bench.cache.set_policies(vec![crate::support::rule("/", WriteMode::ReadOnly)], None, "test", "edit").await.unwrap();
    assert_eq!(kind(complete(&bench, &upload, std::slice::from_ref(&part)).await), Some(ErrorKind::AccessDenied));
    let more = bench.cache.put_part(&upload, 2, incoming(pattern(2, 1000))).await;
    assert_eq!(kind(more), Some(ErrorKind::AccessDenied), "a part is a write");
    bench
        .cache
        .set_policies(vec![crate::support::rule("/", WriteMode::WriteBack)], None, "test", "edit")
        .await
        .unwrap();
    bench.background.set(Way::Closed);
    complete(&bench, &upload, &[part]).await.unwrap();
    assert!(bench.under("key").is_none());
    bench.background.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), whole(&[(1, PART)]));
}

/// The part is committed while its upload ends.
#[tokio::test]
async fn a_part_that_comes_while_its_upload_completes_is_removed() {
    let bench = small_parts(WriteMode::WriteThrough).open().await;
    let upload = create(&bench, "key").await;
    let part = put_part(&bench, &upload, 1, 300_000).await;
    bench.foreground.set(Way::Closed);
    let (cache, request) = (bench.cache.clone(), completion(&upload, &[part]));
    let completing = forebay_env::spawn(async move { cache.complete_upload(request).await });
    until("the object is on its way", || bench.foreground.waiting() == 1).await;
    put_part(&bench, &upload, 2, 300_000).await;
    bench.foreground.set(Way::Open);
    completing.join().await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), whole(&[(1, 300_000)]));
    assert_eq!(bench.cache.status().pinned_bytes, 0, "nobody can ask for the part any more");
    assert!(bench.store.value(&records::part_key(&upload.upload_id, 2)).is_none());
}

/// A crash between the end of an upload and the removal of such parts.
#[tokio::test]
async fn parts_without_their_upload_are_removed_at_the_start() {
    let mut bench = small_parts(WriteMode::WriteBack).open().await;
    let upload = create(&bench, "key").await;
    let open = create(&bench, "open").await;
    for number in 1..=TRANSACTION_MAX as u32 + 1 {
        put_part(&bench, &upload, number, 30_000).await;
    }
    let kept = put_part(&bench, &open, 1, 5000).await;
    bench.close().await;
    bench.remove_record(records::upload_key(&upload.path, &upload.upload_id)).await;
    bench.reopen().await;
    assert!((5000..30_000).contains(&bench.cache.status().pinned_bytes), "{:?}", bench.cache.status());
    let (from, to) = records::all_parts_range();
    assert_eq!(bench.store.scan(&from, &to, usize::MAX).len(), 1);
    complete(&bench, &open, &[kept]).await.unwrap();
    assert_eq!(bench.get("open").await.unwrap(), whole(&[(1, 5000)]));
}

/// As after a directory was forgotten, or a file removed.
#[tokio::test]
async fn parts_whose_bytes_are_gone_are_told_and_can_be_uploaded_again() {
    let mut bench = small_parts(WriteMode::WriteBack).open().await;
    let (upload, aborted) = (create(&bench, "key").await, create(&bench, "aborted").await);
    let large = 3 << 20;
    let parts = [put_part(&bench, &upload, 1, PART).await, put_part(&bench, &upload, 2, large).await];
    put_part(&bench, &aborted, 1, large).await;
    // From then on a snapshot shows all of the log.
    bench.restart().await;
    bench.close().await;
    for name in bench.disk.list().await.unwrap().iter().filter(|name| name.ends_with(".bulk")) {
        bench.disk.remove(name).await.unwrap();
    }
    bench.reopen().await;
    let listed = |page: forebay_cache::PartPage| page.parts.iter().map(|part| part.part.number).collect::<Vec<_>>();
    let lost = |bench: &Bench| bench.cache.status().missing_parts;
    assert_eq!(lost(&bench), 2);
    assert_eq!(listed(bench.cache.list_parts(&upload, 0, 1).await.unwrap()), [1]);
    assert_eq!(listed(bench.cache.list_parts(&upload, 1, 1).await.unwrap()), [0; 0]);
    let refused = complete(&bench, &upload, &parts).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidPart);
    assert!(refused.to_string().contains("Part 2") && refused.to_string().contains("again"), "{refused}");
    bench.cache.abort_upload(&aborted).await.unwrap();
    assert_eq!(lost(&bench), 1);
    let again = put_part(&bench, &upload, 2, large).await;
    assert_eq!(lost(&bench), 0);
    assert_eq!(listed(bench.cache.list_parts(&upload, 0, 9).await.unwrap()), [1, 2]);
    complete(&bench, &upload, &[parts[0].clone(), again]).await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), whole(&[(1, PART), (2, large)]));
}

/// The wall clock is nothing to go by.
#[tokio::test]
async fn a_clock_that_jumps_does_not_end_an_upload() {
    let bench = small_parts(WriteMode::WriteBack).open().await;
    let upload = create(&bench, "key").await;
    let part = put_part(&bench, &upload, 1, PART).await;
    bench.cache.sweep().await.unwrap();
    let day_ms = 24 * 3600 * 1000;
    bench.clock.set_unix_ms(bench.env.clock.unix_ms() + day_ms);
    bench.cache.sweep().await.unwrap();
    assert_eq!(uploads(&bench).await, 1);
    complete(&bench, &upload, &[part]).await.unwrap();
}

/// Nothing was done for these uploads during the whole timeout, and nobody has looked for stale ones since.
async fn with_stale_uploads(count: usize) -> (Bench, Vec<UploadRef>) {
    let setup = small_parts(WriteMode::WriteBack);
    let bench = setup.settings(|settings| settings.leftover_interval = Period::from_secs(1_000_000)).open().await;
    let mut uploads = Vec::new();
    for n in 0..count {
        let upload = create(&bench, &format!("key{n}")).await;
        put_part(&bench, &upload, 1, PART).await;
        uploads.push(upload);
    }
    bench.clock.advance(Duration::from_secs(3601));
    (bench, uploads)
}

#[tokio::test]
async fn a_part_that_never_fits_is_not_told_to_come_back() {
    let bench = Setup::new(WriteMode::WriteBack).capacity(16 << 20).open().await;
    let upload = create(&bench, "key").await;
    let refused = bench.cache.put_part(&upload, 1, incoming(pattern(1, 20 << 20))).await;
    assert_eq!(kind(refused), Some(ErrorKind::InsufficientStorage));
}

#[tokio::test]
async fn stale_uploads_that_are_removed_are_counted() {
    let (bench, _) = with_stale_uploads(2).await;
    assert!(bench.metrics().contains("forebay_leftovers_removed_total 0"), "{}", bench.metrics());
    bench.cache.sweep().await.unwrap();
    assert!(bench.metrics().contains("forebay_leftovers_removed_total 2"), "{}", bench.metrics());
    assert_eq!((uploads(&bench).await, bench.cache.status().pinned_bytes), (0, 0));
}

#[tokio::test]
async fn stale_uploads_that_a_full_disk_keeps_are_no_secret() {
    let (bench, _) = with_stale_uploads(1).await;
    bench.disk.fail_writes(Some(std::io::ErrorKind::StorageFull));
    assert_eq!(kind(bench.cache.sweep().await), Some(ErrorKind::SlowDown));
    assert_eq!(uploads(&bench).await, 1);
    bench.disk.fail_writes(None);
    bench.cache.sweep().await.unwrap();
    assert_eq!(uploads(&bench).await, 0);
}

/// Its client comes back and aborts it, just when it is found.
#[tokio::test]
async fn a_stale_upload_that_is_aborted_meanwhile_does_not_keep_others() {
    let (bench, stale) = with_stale_uploads(2).await;
    bench.disk.hold_syncs(true);
    let (cache, first) = (bench.cache.clone(), stale[0].clone());
    let aborting = forebay_env::spawn(async move { cache.abort_upload(&first).await });
    others_go_on().await;
    let cache = bench.cache.clone();
    let sweeping = forebay_env::spawn(async move { cache.sweep().await });
    others_go_on().await;
    assert!(!aborting.is_finished() && !sweeping.is_finished());
    bench.disk.hold_syncs(false);
    aborting.join().await.unwrap();
    sweeping.join().await.unwrap();
    assert_eq!((uploads(&bench).await, bench.cache.status().pinned_bytes), (0, 0));
}

/// A part that takes longer than the timeout is activity.
#[tokio::test]
async fn an_upload_with_a_slow_part_is_not_stale() {
    let bench = small_parts(WriteMode::WriteBack).open().await;
    let upload = create(&bench, "key").await;
    bench.cache.sweep().await.unwrap();
    let (sender, receiver) = futures::channel::mpsc::unbounded();
    let body = crate::support::incoming_stream(receiver.boxed(), 5);
    let (cache, of) = (bench.cache.clone(), upload.clone());
    let sending = forebay_env::spawn(async move { cache.put_part(&of, 1, body).await });
    sender.unbounded_send(Ok("slow".into())).unwrap();
    others_go_on().await;
    bench.clock.advance(Duration::from_secs(4000));
    bench.cache.sweep().await.unwrap();
    sender.unbounded_send(Ok("!".into())).unwrap();
    drop(sender);
    let written = sending.join().await.unwrap();
    let part = CompletePart { number: 1, etag: written.etag, checksums: Vec::new() };
    complete(&bench, &upload, &[part]).await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), "slow!");
}

/// The answer was lost, and the client asks again after nearly the whole timeout.
#[tokio::test]
async fn a_completion_can_be_repeated_for_the_whole_timeout() {
    let setup = small_parts(WriteMode::WriteBack);
    let bench = setup.settings(|settings| settings.leftover_interval = Period::from_secs(1_000_000)).open().await;
    let upload = create(&bench, "key").await;
    let part = put_part(&bench, &upload, 1, PART).await;
    bench.clock.advance(Duration::from_secs(3500));
    let first = complete(&bench, &upload, std::slice::from_ref(&part)).await.unwrap();
    bench.clock.advance(Duration::from_secs(3500));
    bench.cache.sweep().await.unwrap();
    assert_eq!(complete(&bench, &upload, std::slice::from_ref(&part)).await.unwrap().etag, first.etag);
    bench.clock.advance(Duration::from_secs(3601));
    bench.cache.sweep().await.unwrap();
    assert_eq!(kind(complete(&bench, &upload, &[part]).await), Some(ErrorKind::NoSuchUpload), "and no longer");
    assert!(bench.store.value(&records::upload_key(&upload.path, &upload.upload_id)).is_none());
}

/// Its parts fill the share of pinned data; refusing the completion would keep them there.
#[tokio::test]
async fn a_completion_is_taken_when_pinned_data_fills_its_share() {
    let mut bench = small_parts(WriteMode::WriteBack).capacity(64 << 20).open().await;
    let upload = create(&bench, "key").await;
    let parts = [put_part(&bench, &upload, 1, 6 << 20).await, put_part(&bench, &upload, 2, 6 << 20).await];
    bench.setup.settings.pinned_ratio = 0.1;
    bench.restart().await;
    assert_eq!(kind(bench.put("other", "value").await), Some(ErrorKind::SlowDown));
    complete(&bench, &upload, &parts).await.unwrap();
    bench.drain().await;
    assert_eq!(bench.cache.status().pinned_bytes, 0);
}

/// "Full" would say that nothing was done.
#[tokio::test]
async fn a_full_disk_does_not_deny_what_the_under_store_has_done() {
    let bench = small_parts(WriteMode::WriteThrough).open().await;
    let upload = create(&bench, "key").await;
    let parts = [put_part(&bench, &upload, 1, PART).await];
    bench.foreground.set(Way::Closed);
    let (cache, request) = (bench.cache.clone(), completion(&upload, &parts));
    let completing = forebay_env::spawn(async move { cache.complete_upload(request).await });
    until("the object is on its way", || bench.foreground.waiting() == 1).await;
    bench.disk.fail_writes(Some(std::io::ErrorKind::StorageFull));
    bench.foreground.set(Way::Open);
    assert_eq!(kind(completing.join().await), Some(ErrorKind::Unavailable));
    assert_eq!(bench.get("key").await.unwrap(), whole(&[(1, PART)]));
    bench.disk.fail_writes(None);
    complete(&bench, &upload, &parts).await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), whole(&[(1, PART)]));
}
