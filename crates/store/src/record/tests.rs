//! Records survive encoding and decoding: with any contents, damaged, and in the files of earlier versions.

use bytes::{Bytes, BytesMut};
use forebay_types::Generation;
use proptest::collection::vec;
use proptest::prelude::*;

use super::abort::AbortBody;
use super::commit::{AnnotationBody, CommitBody, WriteBody};
use super::extent::ExtentBody;
use super::object::{Extent, ObjectBody};
use super::*;
use crate::ids::SegmentKey;
use crate::segment::SegmentHeader;

/// Compares with a file in `golden`, which `FOREBAY_WRITE_GOLDEN=1` writes. These files never change: a different
/// format gets another version, and the old files stay readable.
#[track_caller]
pub(crate) fn check_golden(name: &str, bytes: &[u8]) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os("FOREBAY_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    assert_eq!(golden, bytes, "{name} is not what is on disks already");
}

fn assemble(draft: &Draft) -> Bytes {
    let mut bytes = BytesMut::new();
    draft.encode(0x1122_3344_5566_7788, 99, 64).iter().for_each(|part| bytes.extend_from_slice(part));
    assert_eq!(bytes.len(), draft.total_bytes());
    bytes.freeze()
}

/// Encodes and decodes a draft, and returns the body.
fn there_and_back(draft: &Draft) -> Bytes {
    let bytes = assemble(draft);
    assert!(bytes.len().is_multiple_of(ALIGNMENT));
    let head = Head::decode(&bytes).unwrap();
    let header = &head.header;
    assert_eq!(Head::bytes_needed(&bytes).unwrap(), header.head_bytes);
    assert_eq!((header.kind, header.total_bytes()), (draft.kind, bytes.len() as u64));
    assert_eq!((header.segment, header.sequence, header.durable_before), (0x1122_3344_5566_7788, 99, 64));
    let payload = bytes.slice(header.head_bytes..header.head_bytes + header.payload_bytes);
    assert_eq!(payload, draft.payload);
    head.verify(0, &payload).unwrap();
    head.body
}

fn a_segment() -> impl Strategy<Value = SegmentKey> {
    (any::<u16>(), any::<u32>()).prop_map(|(directory, number)| SegmentKey { directory, number })
}

prop_compose! {
    fn an_extent()(
        (start, bytes, segment) in (any::<u64>(), any::<u32>(), a_segment()),
        (offset, head_bytes, skip) in any::<(u32, u32, u32)>(),
    ) -> Extent {
        Extent { start, bytes, segment, offset, head_bytes, skip }
    }
}

fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

prop_compose! {
    fn an_object()(
        (key, metadata, annex) in (some_bytes(), some_bytes(), some_bytes()),
        (generation, pinned, group, size) in any::<(u64, bool, u32, u64)>(),
        (extents, stands_alone, carried) in (vec(an_extent(), 0..4), any::<bool>(), any::<bool>()),
    ) -> ObjectBody {
        let generation = Generation(generation);
        ObjectBody { key, generation, metadata, annex, pinned, group, size, extents, stands_alone, carried }
    }
}

prop_compose! {
    fn an_annotation()((key, annex) in (some_bytes(), some_bytes()), (generation, pinned) in any::<(u64, bool)>()) -> AnnotationBody {
        AnnotationBody { key, generation: Generation(generation), annex, pinned }
    }
}

prop_compose! {
    fn a_commit()(
        publish in vec((some_bytes(), any::<u64>()), 0..4),
        forget in vec(some_bytes(), 0..4),
        annotate in vec(an_annotation(), 0..4),
        writes in vec((some_bytes(), proptest::option::of(some_bytes())), 0..4),
        as_of in any::<Option<u64>>(),
    ) -> CommitBody {
        let publish = publish.into_iter().map(|(key, generation)| (key, Generation(generation))).collect();
        let writes = writes.into_iter().map(|(key, value)| WriteBody { key, value }).collect();
        CommitBody { publish, forget, annotate, writes, as_of }
    }
}

proptest! {
    #[test]
    fn objects_are_read_back(body in an_object(), payload in vec(any::<u8>(), 0..300)) {
        let found = there_and_back(&body.draft(payload.into()));
        prop_assert_eq!(ObjectBody::decode(&found).unwrap(), body);
    }

    #[test]
    fn extents_are_read_back(start: u64, attach in proptest::option::of((some_bytes(), any::<u64>())), blocks in 0..3_usize) {
        let attach = attach.map(|(key, generation)| (key, Generation(generation)));
        let body = ExtentBody { start, attach };
        // Lengths at the borders of blocks, and next to them.
        for length in [blocks * BLOCK_BYTES, blocks * BLOCK_BYTES + 1, (blocks * BLOCK_BYTES).saturating_sub(1)] {
            let payload: Vec<u8> = (0..length).map(|at| (at / 3) as u8).collect();
            let found = there_and_back(&body.draft(payload.into()));
            prop_assert_eq!(&ExtentBody::decode(&found).unwrap(), &body);
        }
    }

    #[test]
    fn commits_are_read_back(body in a_commit()) {
        let found = there_and_back(&body.draft());
        prop_assert_eq!(CommitBody::decode(&found).unwrap(), body);
    }

    #[test]
    fn garbage_is_refused(garbage in vec(any::<u8>(), 0..400), has_magic: bool, head_bytes in 0..400_u32) {
        let mut garbage = garbage;
        if has_magic && garbage.len() >= 12 {
            garbage[..4].copy_from_slice(&MAGIC.to_le_bytes());
            garbage[8..12].copy_from_slice(&head_bytes.to_le_bytes());
        }
        let bytes = Bytes::from(garbage);
        prop_assert_eq!(Head::decode(&bytes).unwrap_err().kind, ErrorKind::Corrupt);
        prop_assert!(SegmentHeader::decode(&bytes).is_err());
        // Data with a valid checksum is never garbage, but these must not panic anyway.
        let _ = (ObjectBody::decode(&bytes), ExtentBody::decode(&bytes), CommitBody::decode(&bytes));
    }

    #[test]
    fn no_damage_goes_unnoticed(body in an_object(), payload in vec(any::<u8>(), 0..300), at: proptest::sample::Index, bit in 0..8) {
        let draft = body.draft(payload.into());
        let mut bytes = assemble(&draft).to_vec();
        let end = draft.head_bytes() + draft.payload.len();
        bytes[at.index(end)] ^= 1_u8 << bit;
        let bytes = Bytes::from(bytes);
        let found = Head::decode(&bytes).and_then(|head| head.verify(0, &bytes[head.header.head_bytes..end]));
        prop_assert_eq!(found.unwrap_err().kind, ErrorKind::Corrupt);
    }
}

#[test]
fn a_newer_version_is_told_apart_from_damage() {
    let mut bytes = assemble(&CommitBody::default().draft()).to_vec();
    bytes[5] = VERSION + 1;
    assert_eq!(Head::decode(&bytes.clone().into()).unwrap_err().kind, ErrorKind::Corrupt);
    let head_bytes = word(&bytes, 8) as usize;
    bytes[20..24].fill(0);
    let crc = crc32c(&bytes[..head_bytes]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Head::decode(&bytes.into()).unwrap_err().kind, ErrorKind::Invalid);
}

fn golden_object() -> (ObjectBody, Bytes) {
    let segment = SegmentKey { directory: 1, number: 300 };
    let extent = Extent { start: 1 << 20, bytes: 4096, segment, offset: 70_000, head_bytes: 60, skip: 8 };
    let body = ObjectBody {
        key: b"bucket/key".to_vec(),
        generation: Generation((7 << 32) + 5),
        metadata: b"metadata".to_vec(),
        annex: b"annex".to_vec(),
        pinned: true,
        group: 3,
        size: (1 << 20) + 4096,
        extents: vec![extent],
        stands_alone: false,
        carried: true,
    };
    (body, Bytes::from_static(b"payload of the record"))
}

fn golden_commit(as_of: Option<u64>) -> CommitBody {
    let generation = Generation((7 << 32) + 5);
    let annotation = AnnotationBody { key: b"annotated".to_vec(), generation, annex: b"clean".to_vec(), pinned: false };
    let writes = vec![
        WriteBody { key: b"written".to_vec(), value: Some(b"value".to_vec()) },
        WriteBody { key: b"deleted".to_vec(), value: None },
    ];
    let publish = if as_of.is_none() { vec![(b"published".to_vec(), generation)] } else { Vec::new() };
    CommitBody { publish, forget: vec![b"forgotten".to_vec()], annotate: vec![annotation], writes, as_of }
}

#[test]
fn records_on_disks_stay_readable() {
    let (object, payload) = golden_object();
    check_golden("object.record", &assemble(&object.draft(payload.clone())));
    assert_eq!(ObjectBody::decode(&there_and_back(&object.draft(payload))).unwrap(), object);
    let attach = Some((b"bucket/key".to_vec(), Generation((7 << 32) + 5)));
    for (name, attach) in [("extent.record", None), ("attached-extent.record", attach)] {
        let body = ExtentBody { start: 65_536, attach };
        let draft = body.draft(Bytes::from_static(b"bytes of an object"));
        check_golden(name, &assemble(&draft));
        assert_eq!(ExtentBody::decode(&there_and_back(&draft)).unwrap(), body);
    }
    for (name, as_of) in [("commit.record", None), ("carried-commit.record", Some(77))] {
        let body = golden_commit(as_of);
        check_golden(name, &assemble(&body.draft()));
        assert_eq!(CommitBody::decode(&there_and_back(&body.draft())).unwrap(), body);
    }
    let abort = AbortBody { segment: SegmentKey { directory: 1, number: 300 }, first: 70_000, last: 70_001 };
    check_golden("abort.record", &assemble(&abort.draft()));
    assert_eq!(AbortBody::decode(&there_and_back(&abort.draft())).unwrap(), abort);
}
