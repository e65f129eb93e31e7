//! What a client says of its bytes is checked before anybody sees them, and kept where S3 keeps it.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use forebay_cache::{
    Attributes, BodyDigests, CompletePart, CompleteUpload, Conditions, CreateUpload, ErrorKind, GetObject, Incoming,
    PutObject, Result, UploadRef, Written,
};
use forebay_types::limits::PUT_BYTES_MAX;
use forebay_types::{Algorithm, ByteSize, Checksum, ChecksumKind, WriteMode};

use crate::support::{Bench, Setup, create_upload, get_request, incoming, kind, path, pattern};

/// The text of the check values in the CRC catalogue, in RFC 1321 and in FIPS 180.
const TEXT: &[u8] = b"123456789";
const MD5: u128 = 0x25f9_e794_323b_4538_85f5_181f_1b62_4d0b;
const SHA256: [u128; 2] = [0x15e2_b0d3_c338_91eb_b0f1_ef60_9ec4_1942, 0x0c20_e320_ce94_c65f_bc8c_3312_448e_b225];
const CRC32: u32 = 0xcbf4_3926;
const CRC64: u64 = 0xae8b_1486_0a79_9888;

fn crc32(value: u32) -> Checksum {
    Checksum { algorithm: Algorithm::Crc32, value: value.to_be_bytes().to_vec() }
}

pub(crate) fn crc64(value: u64) -> Checksum {
    Checksum { algorithm: Algorithm::Crc64Nvme, value: value.to_be_bytes().to_vec() }
}

pub(crate) fn crc32_of(data: &[u8]) -> Checksum {
    crc32(crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, data) as u32)
}

fn sha256(low: u128) -> Option<[u8; 32]> {
    [SHA256[0], low].map(u128::to_be_bytes).concat().try_into().ok()
}

async fn put(bench: &Bench, body: Incoming) -> Result<Written> {
    let (attributes, conditions) = (Attributes::default(), Conditions::default());
    bench.cache.put(PutObject { path: path("key"), body, attributes, conditions }).await
}

#[tokio::test]
async fn a_body_that_is_not_what_it_was_said_to_be_is_refused_and_never_seen() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough, WriteMode::NoCache] {
        let bench = Bench::new(mode).await;
        let body = || incoming(Bytes::from_static(TEXT));
        for (wrong, expected) in [
            (Incoming { md5: Some((MD5 + 1).to_be_bytes()), ..body() }, ErrorKind::BadDigest),
            (Incoming { sha256: sha256(SHA256[1] + 1), ..body() }, ErrorKind::PayloadHashMismatch),
            (Incoming { checksums: vec![crc32(CRC32 + 1)], ..body() }, ErrorKind::ChecksumMismatch),
            (Incoming { checksums: vec![crc32(CRC32), crc64(1)], ..body() }, ErrorKind::ChecksumMismatch),
            (
                Incoming {
                    compute: vec![Algorithm::Crc32],
                    trailers: Some(Box::new(|| Ok(vec![crc32(CRC32 + 1)]))),
                    ..body()
                },
                ErrorKind::ChecksumMismatch,
            ),
            (Incoming { size: TEXT.len() as u64 + 1, ..body() }, ErrorKind::IncompleteBody),
            (Incoming { size: TEXT.len() as u64 - 1, ..body() }, ErrorKind::IncompleteBody),
        ] {
            assert_eq!(kind(put(&bench, wrong).await), Some(expected), "{mode:?}");
            assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound), "{mode:?}");
        }
        let right = Incoming {
            md5: Some(MD5.to_be_bytes()),
            sha256: sha256(SHA256[1]),
            checksums: vec![crc32(CRC32)],
            compute: vec![Algorithm::Crc64Nvme],
            trailers: Some(Box::new(|| Ok(vec![crc64(CRC64)]))),
            ..body()
        };
        let written = put(&bench, right).await.unwrap();
        assert_eq!(written.etag.as_str(), format!("{MD5:032x}"), "{mode:?}");
        assert_eq!(bench.get("key").await.unwrap(), TEXT, "{mode:?}");
    }
}

/// What is just small enough is refused by the disks only, which are too small here.
#[tokio::test]
async fn a_body_of_more_than_five_gibibytes_is_refused_by_its_size() {
    for mode in [WriteMode::WriteThrough, WriteMode::NoCache] {
        let bench = Bench::new(mode).await;
        for (size, expected) in
            [(PUT_BYTES_MAX, ErrorKind::InsufficientStorage), (PUT_BYTES_MAX + 1, ErrorKind::EntityTooLarge)]
        {
            let body = Incoming { size, ..incoming(Bytes::from_static(TEXT)) };
            assert_eq!(kind(put(&bench, body).await), Some(expected), "{mode:?}");
        }
    }
}

/// S3 computes one when the client names none.
#[tokio::test]
async fn an_object_has_the_checksums_that_its_client_asked_for() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let kept = async |body: Incoming| {
        put(&bench, body).await.unwrap();
        bench.head("key").await.unwrap().info.checksums.values.clone()
    };
    let body = || incoming(Bytes::from_static(TEXT));
    assert_eq!(kept(body()).await, [crc64(CRC64)]);
    assert_eq!(kept(Incoming { compute: vec![Algorithm::Crc32], ..body() }).await, [crc32(CRC32)]);
    assert_eq!(kept(Incoming { checksums: vec![crc32(CRC32)], ..body() }).await, [crc32(CRC32)]);
}

#[test]
fn bodies_that_are_not_kept_are_checked_alike() {
    let check = |md5: u128, crc: u32| {
        let mut digests = BodyDigests::new(&[Algorithm::Crc32]);
        TEXT.chunks(4).for_each(|data| digests.update(data));
        kind(digests.verify(Some(md5.to_be_bytes()), &[crc32(crc)]))
    };
    assert_eq!(check(MD5, CRC32), None);
    assert_eq!(check(MD5 + 1, CRC32), Some(ErrorKind::BadDigest));
    assert_eq!(check(MD5, CRC32 + 1), Some(ErrorKind::ChecksumMismatch));
}

#[tokio::test]
async fn the_checksum_of_an_upload_is_that_of_the_checksums_of_its_parts() {
    let setup = Setup::new(WriteMode::WriteBack).settings(|settings| settings.part_size_min = ByteSize(1));
    let bench = setup.open().await;
    for checksum_kind in [ChecksumKind::Composite, ChecksumKind::FullObject] {
        let request = CreateUpload {
            checksum_algorithm: Some(Algorithm::Crc32),
            checksum_kind: Some(checksum_kind),
            ..create_upload(path("key"))
        };
        let upload = UploadRef { path: path("key"), upload_id: bench.cache.create_upload(request).await.unwrap() };
        let data = [pattern(1, 3000), pattern(2, 500)];
        let given = |data: &Bytes| Incoming { checksums: vec![crc32_of(data)], ..incoming(data.clone()) };
        let other = Incoming { checksums: vec![crc64(1)], ..incoming(data[0].clone()) };
        assert_eq!(kind(bench.cache.put_part(&upload, 1, other).await), Some(ErrorKind::InvalidRequest));
        let none = kind(bench.cache.put_part(&upload, 1, incoming(data[0].clone())).await);
        assert_eq!(none.is_none(), checksum_kind == ChecksumKind::FullObject, "{none:?}");
        let mut parts = Vec::new();
        for (number, data) in (1..).zip(&data) {
            let written = bench.cache.put_part(&upload, number, given(data)).await.unwrap();
            parts.push(CompletePart { number, etag: written.etag, checksums: vec![crc32_of(data)] });
        }
        let whole = data.concat();
        let expected = match checksum_kind {
            ChecksumKind::FullObject => crc32_of(&whole),
            ChecksumKind::Composite => crc32_of(&data.each_ref().map(|data| crc32_of(data).value).concat()),
        };
        let (checksums, conditions) = (Vec::new(), Conditions::default());
        let complete = CompleteUpload { upload, parts, checksums, checksum_kind: None, size: None, conditions };
        let written = bench.cache.complete_upload(complete).await.unwrap();
        assert_eq!((written.checksums.values, written.checksums.kind), (vec![expected], checksum_kind));
        for (part, range) in [(1, 0..3000), (2, 3000..3500)] {
            let request = GetObject { part_number: Some(part), ..get_request("key", None) };
            let body = bench.cache.get(request).await.unwrap();
            assert_eq!(body.head.range.start, range.start as u64);
            assert_eq!(crate::support::collect(body.stream).await.unwrap(), whole[range]);
        }
    }
    bench.put("key", "in one piece").await.unwrap();
    let part = |number| bench.cache.head(GetObject { part_number: Some(number), ..get_request("key", None) });
    assert_eq!(part(1).await.unwrap().range.len(), 12);
    assert_eq!(kind(part(2).await), Some(ErrorKind::InvalidPartNumber));
}

#[tokio::test]
async fn tags_are_few_and_short() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "value").await.unwrap();
    let set =
        async |tags: Vec<(String, String)>| kind(bench.cache.set_tags(&path("key"), tags.into_iter().collect()).await);
    let tags = |count: usize, key: usize, value: usize| {
        (0..count).map(|n| (format!("{n:é>key$}"), "é".repeat(value))).collect::<Vec<_>>()
    };
    for refused in [tags(11, 2, 1), tags(1, 129, 1), tags(1, 1, 257), vec![(String::new(), "value".to_owned())]] {
        assert_eq!(set(refused).await, Some(ErrorKind::InvalidArgument));
    }
    assert_eq!(set(tags(10, 2, 1)).await, None);
    assert_eq!(set(tags(1, 128, 256)).await, None);
    assert_eq!(bench.cache.tags(&path("key")).await.unwrap(), tags(1, 128, 256).into_iter().collect());
}
