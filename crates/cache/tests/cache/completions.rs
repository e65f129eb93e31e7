//! Completions of multipart uploads: what they say is checked against what was uploaded.

use forebay_cache::{Attributes, CompletePart, CompleteUpload, CreateUpload, ErrorKind, Incoming, UploadRef};
use forebay_catalog::records::{self, PartRecord};
use forebay_catalog::{Catalog, EmbeddedCatalog, Transaction};
use forebay_store::ValueWrite;
use forebay_types::limits::OBJECT_BYTES_MAX;
use forebay_types::{Algorithm, Checksum, ChecksumKind, Generation, UserMetadata, WriteMode};

use crate::checksums::{crc32_of, crc64};
use crate::faults::SETTLED;
use crate::multipart::{PART, complete, completion, create, put_part, small_parts};
use crate::support::gate::Way;
use crate::support::{Bench, create_upload, if_absent, if_matches, incoming, kind, others_go_on, path, pattern};

#[tokio::test]
async fn a_size_that_the_client_names_must_be_that_of_the_parts() {
    let bench = small_parts(WriteMode::WriteBack).open().await;
    let upload = create(&bench, "key").await;
    let parts = [put_part(&bench, &upload, 1, PART).await, put_part(&bench, &upload, 2, 7).await];
    let size = PART as u64 + 7;
    let of_size = |size| CompleteUpload { size: Some(size), ..completion(&upload, &parts) };
    for wrong in [0, size - 1, size + 1] {
        assert_eq!(kind(bench.cache.complete_upload(of_size(wrong)).await), Some(ErrorKind::InvalidRequest), "{wrong}");
    }
    bench.cache.complete_upload(of_size(size)).await.unwrap();
    assert_eq!(bench.head("key").await.unwrap().info.size, size);
}

fn part_record(bench: &Bench, upload: &UploadRef, number: u32) -> PartRecord {
    let found = bench.store.value(&records::part_key(&upload.upload_id, number)).expect("a record");
    PartRecord::decode(&found.value).expect("a part")
}

/// Nobody uploads that much here: the parts are said to be larger than they are, and their bytes are gone.
#[tokio::test]
async fn an_object_of_more_than_five_tebibytes_is_refused_by_its_size() {
    let mut bench = small_parts(WriteMode::WriteBack).open().await;
    let upload = create(&bench, "key").await;
    let (mut parts, mut claimed) = (Vec::new(), Vec::new());
    for (number, size) in [(1, OBJECT_BYTES_MAX - 10), (2, 10), (3, 11)] {
        parts.push(put_part(&bench, &upload, number, PART).await);
        let record = part_record(&bench, &upload, number);
        claimed.push((number, PartRecord { size, generation: Generation(record.generation.0 + 1000), ..record }));
    }
    bench.close().await;
    for (number, record) in claimed {
        bench.write_record(records::part_key(&upload.upload_id, number), Some(record.encode())).await;
    }
    bench.reopen().await;
    let [one, two, three] = parts.try_into().expect("three parts");
    let largest = complete(&bench, &upload, &[one.clone(), two]).await;
    assert_eq!(kind(largest), Some(ErrorKind::InvalidPart), "only the bytes are missing");
    assert_eq!(kind(complete(&bench, &upload, &[one, three]).await), Some(ErrorKind::EntityTooLarge));
}

/// As when a part is replaced after the completion has looked at what parts there are.
#[tokio::test]
async fn a_part_whose_bytes_are_another_version_is_not_taken() {
    let bench = small_parts(WriteMode::WriteBack).open().await;
    let upload = create(&bench, "key").await;
    let part = put_part(&bench, &upload, 1, PART).await;
    let record = part_record(&bench, &upload, 1);
    let older = PartRecord { generation: Generation(record.generation.0 - 1), ..record };
    let writes = vec![ValueWrite { key: records::part_key(&upload.upload_id, 1), value: Some(older.encode()) }];
    let catalog = EmbeddedCatalog::new(bench.store.clone());
    catalog.commit(Transaction { writes, ..Transaction::default() }).await.unwrap();
    let refused = complete(&bench, &upload, &[part]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidPart);
    assert!(refused.source.is_none(), "it is not lost: {refused}");
    assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
}

/// An upload of two parts with CRC32 checksums, each part as a completion names it.
async fn with_checksums(bench: &Bench, checksum_kind: ChecksumKind) -> (UploadRef, Vec<CompletePart>) {
    let request = CreateUpload {
        checksum_algorithm: Some(Algorithm::Crc32),
        checksum_kind: Some(checksum_kind),
        ..create_upload(path("key"))
    };
    let upload_id = bench.cache.create_upload(request).await.expect("an upload");
    let upload = UploadRef { path: path("key"), upload_id };
    let mut parts = Vec::new();
    for number in 1..=2 {
        let data = pattern(u64::from(number), PART);
        let checksums = vec![crc32_of(&data)];
        let body = Incoming { checksums: checksums.clone(), ..incoming(data) };
        let etag = bench.cache.put_part(&upload, number, body).await.expect("a part").etag;
        parts.push(CompletePart { number, etag, checksums });
    }
    (upload, parts)
}

fn whole_checksum(kind: ChecksumKind) -> Checksum {
    let data = [pattern(1, PART), pattern(2, PART)];
    match kind {
        ChecksumKind::FullObject => crc32_of(&data.concat()),
        ChecksumKind::Composite => crc32_of(&data.each_ref().map(|data| crc32_of(data).value).concat()),
    }
}

#[tokio::test]
async fn a_completion_keeps_to_the_checksums_that_its_upload_began_with() {
    let bench = small_parts(WriteMode::WriteBack).open().await;
    let both = [ChecksumKind::Composite, ChecksumKind::FullObject];
    for (created, other) in [(both[0], both[1]), (both[1], both[0])] {
        let (upload, parts) = with_checksums(&bench, created).await;
        let right = || CompleteUpload {
            checksums: vec![whole_checksum(created)],
            checksum_kind: Some(created),
            ..completion(&upload, &parts)
        };
        let second = |checksums| {
            let second = CompletePart { checksums, ..parts[1].clone() };
            CompleteUpload { parts: vec![parts[0].clone(), second], ..right() }
        };
        let needs_all = created == ChecksumKind::Composite;
        let wrongs = [
            (CompleteUpload { checksum_kind: Some(other), ..right() }, ErrorKind::InvalidRequest),
            (CompleteUpload { checksums: vec![crc64(1)], ..right() }, ErrorKind::ChecksumMismatch),
            (CompleteUpload { checksums: vec![crc32_of(b"other")], ..right() }, ErrorKind::ChecksumMismatch),
            (second(vec![crc32_of(b"other")]), ErrorKind::InvalidPart),
            (second(vec![crc64(1)]), ErrorKind::ChecksumMismatch),
        ];
        for (index, (wrong, expected)) in wrongs.into_iter().enumerate() {
            assert_eq!(kind(bench.cache.complete_upload(wrong).await), Some(expected), "{created:?} {index}");
        }
        let named = kind(bench.cache.complete_upload(second(Vec::new())).await);
        assert_eq!(named, needs_all.then_some(ErrorKind::InvalidRequest), "{created:?}: a part without its checksum");
        let written = bench.cache.complete_upload(right()).await.unwrap();
        assert_eq!(written.checksums.values, [whole_checksum(created)]);
    }
}

/// The under store has the object, and nobody has heard of that. What is there meets the condition no more.
#[tokio::test]
async fn a_conditional_completion_without_an_answer_can_be_repeated() {
    for (is_overwrite, crashes) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bench = small_parts(WriteMode::WriteThrough).open().await;
        let conditions = match is_overwrite {
            true => if_matches(&bench.put("key", "before").await.unwrap().etag),
            false => if_absent(),
        };
        let upload = create(&bench, "key").await;
        let parts = [put_part(&bench, &upload, 1, PART).await, put_part(&bench, &upload, 2, 7).await];
        let conditional =
            |upload: &UploadRef| CompleteUpload { conditions: conditions.clone(), ..completion(upload, &parts) };
        bench.foreground.set(Way::Late);
        assert_eq!(kind(bench.cache.complete_upload(conditional(&upload)).await), Some(ErrorKind::Unavailable));
        let late = bench.foreground.clone();
        bench.foreground.set(Way::Open);
        if crashes {
            bench.power_loss(1).await;
        }
        late.land().await.unwrap();
        let early = bench.cache.complete_upload(conditional(&upload)).await;
        assert_eq!(kind(early), Some(ErrorKind::SlowDown), "{is_overwrite} {crashes}: it is not settled");
        bench.clock.advance(SETTLED);
        others_go_on().await;
        let written = bench.cache.complete_upload(conditional(&upload)).await.unwrap();
        let again = bench.cache.complete_upload(conditional(&upload)).await.unwrap();
        assert_eq!((again.etag, again.size), (written.etag, PART as u64 + 7));
        assert_eq!(bench.get("key").await.unwrap(), [pattern(1, PART), pattern(2, 7)].concat());
        // Another upload of the same bytes comes too late.
        let other = create(&bench, "key").await;
        for (number, size) in [(1, PART), (2, 7)] {
            put_part(&bench, &other, number, size).await;
        }
        let refused = bench.cache.complete_upload(conditional(&other)).await;
        assert_eq!(kind(refused), Some(ErrorKind::PreconditionFailed), "{is_overwrite} {crashes}");
    }
}

/// Its metadata leaves no room for the stamp: size, ETag and metadata show whose object is there.
#[tokio::test]
async fn a_conditional_completion_without_an_answer_can_be_repeated_where_no_stamp_has_room() {
    for (is_overwrite, lands) in [(false, true), (true, true), (false, false), (true, false)] {
        let bench = small_parts(WriteMode::WriteThrough).open().await;
        let conditions = match is_overwrite {
            true => if_matches(&bench.put("key", "before").await.unwrap().etag),
            false => if_absent(),
        };
        let user = UserMetadata::from([("long".to_owned(), "x".repeat(2000))]);
        let request =
            CreateUpload { attributes: Attributes { user, ..Attributes::default() }, ..create_upload(path("key")) };
        let upload = UploadRef { path: path("key"), upload_id: bench.cache.create_upload(request).await.unwrap() };
        let parts = [put_part(&bench, &upload, 1, PART).await, put_part(&bench, &upload, 2, 7).await];
        let complete = || {
            let request = CompleteUpload { conditions: conditions.clone(), ..completion(&upload, &parts) };
            bench.cache.complete_upload(request)
        };
        bench.foreground.set(Way::Late);
        assert_eq!(kind(complete().await), Some(ErrorKind::Unavailable));
        bench.foreground.set(Way::Open);
        let whole = [pattern(1, PART), pattern(2, 7)].concat();
        if lands {
            bench.foreground.land().await.unwrap();
        } else {
            // The same bytes, which another client has uploaded in one piece.
            bench.under.put_outside("key", whole.clone().into());
        }
        bench.clock.advance(SETTLED);
        others_go_on().await;
        let repeated = complete().await;
        if lands {
            assert_eq!(repeated.unwrap().size, whole.len() as u64, "overwrite: {is_overwrite}");
            assert_eq!(bench.head("key").await.unwrap().info.user["long"].len(), 2000);
        } else {
            assert_eq!(kind(repeated), Some(ErrorKind::PreconditionFailed), "overwrite: {is_overwrite}");
        }
        assert_eq!(bench.get("key").await.unwrap(), whole);
    }
}
