//! Loads snapshots in the files of earlier versions, and damaged ones.

use std::sync::Arc;

use forebay_env::disk::memory::MemoryDisk;
use forebay_env::random::SeededRandom;
use forebay_env::{Disk, Env};
use forebay_types::Generation;

use super::super::format::{ObjectRow, frame, start_of_file};
use super::*;
use crate::directory::Identity;
use crate::ids::DirectoryId;
use crate::record::location::Location;
use crate::record::object::Extent;

const STORE: u64 = 0x1234_5678_9abc_def0;

fn an_object() -> ObjectRow<'static> {
    let segment = SegmentKey { directory: 1, number: 300 };
    ObjectRow {
        key: b"bucket/key",
        generation: Generation((7 << 32) + 5),
        record: Location { segment, offset: 64, head_bytes: 100, payload_bytes: 21 },
        size: (1 << 20) + 4096,
        annex: b"annex",
        pinned: true,
        group: 3,
        is_inline: false,
        extents: vec![Extent { start: 1 << 20, bytes: 4096, segment, offset: 70_000, head_bytes: 60, skip: 8 }],
        reads: 2,
        carried: true,
    }
}

fn chunks() -> [Chunk<'static>; 4] {
    let segment = SegmentKey { directory: 0, number: 9 };
    [
        Chunk::Start {
            store: STORE,
            next_sequence: 8 << 32,
            positions: vec![(0, Position { segment: 12, offset: 4096 }), (1, Position { segment: 3, offset: 0 })],
            complete_fills: vec![segment],
            fills_before: (7 << 32) + 1000,
            unapplied_fills: vec![(7 << 32) + 998],
            min_versions: vec![(segment, 77)],
        },
        Chunk::Objects(vec![an_object()]),
        Chunk::Values(vec![ValueRow { key: b"k", value: b"v", version: 99, segment }]),
        Chunk::End,
    ]
}

fn a_snapshot() -> Vec<u8> {
    start_of_file(false).into_iter().chain(chunks().iter().flat_map(frame)).collect()
}

async fn read(bytes: &[u8]) -> Result<Option<Snapshot>> {
    let disk = MemoryDisk::default();
    let file = disk.create(NAME).await.unwrap();
    file.write_at(0, vec![Bytes::copy_from_slice(bytes)], true).await.unwrap();
    let identity = Identity { store: STORE, number: 0, id: DirectoryId::before_lists(STORE, 0) };
    let directory =
        Directory::new(Arc::new(disk), identity, 1, crate::Settings::new(vec![1]).lengths(), Env::simulated(1).0.clock);
    match Reading::begin(&directory, &HashState::new(&SeededRandom::new(1))).await? {
        Some(reading) => reading.finish().await.map(Some),
        None => Ok(None),
    }
}

#[tokio::test]
async fn snapshots_on_disks_stay_readable() {
    let bytes = a_snapshot();
    crate::record::tests::check_golden("snapshot", &bytes);
    let found = read(&bytes).await.unwrap().unwrap();
    assert_eq!((found.next_sequence, found.fills_before), (8 << 32, (7 << 32) + 1000));
    assert_eq!(found.positions[&0], Position { segment: 12, offset: 4096 });
    assert_eq!(found.unapplied_fills, HashSet::from([(7 << 32) + 998]));
    let segment = SegmentKey { directory: 0, number: 9 };
    assert_eq!((found.complete_fills, found.min_versions), (HashSet::from([segment]), HashMap::from([(segment, 77)])));
    let entry = an_object().into_entry().unwrap();
    assert_eq!(format!("{:?}", found.tables.objects.get(entry.key()).unwrap()), format!("{entry:?}"));
    let value = found.tables.values.get(b"k", Row::clone).unwrap();
    assert_eq!((value.value(), value.version, value.segment), (b"v".as_slice(), 99, segment));
}

#[tokio::test]
async fn a_damaged_snapshot_is_no_snapshot() {
    let bytes = a_snapshot();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        let error = read(&damaged).await.err().expect("damage is seen");
        assert_eq!(error.kind, ErrorKind::Corrupt, "byte {at}");
        let error = read(&bytes[..at]).await.err().expect("a cut is seen");
        assert_eq!(error.kind, ErrorKind::Corrupt, "cut at {at}");
    }
}

#[tokio::test]
async fn an_object_that_contradicts_itself_is_damage() {
    let inline = || ObjectRow { is_inline: true, size: 21, extents: Vec::new(), ..an_object() };
    let others = [ObjectRow { size: 22, ..inline() }, ObjectRow { extents: an_object().extents, ..inline() }];
    let whole = inline().into_entry().unwrap();
    assert_eq!((whole.is_inline(), whole.size(), whole.cached_bytes()), (true, 21, 21));
    for other in others {
        let [start, _, _, end] = chunks();
        let frames = [start, Chunk::Objects(vec![inline(), other]), end];
        let bytes: Vec<u8> = start_of_file(false).into_iter().chain(frames.iter().flat_map(frame)).collect();
        assert_eq!(read(&bytes).await.err().expect("it is seen").kind, ErrorKind::Corrupt);
    }
}
