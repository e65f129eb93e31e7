//! Files that are not ours, or newer than this code, are refused and left unchanged.

use super::*;
use crate::record::crc32c;

/// A closed store with something in each kind of file.
async fn closed_store() -> MemoryDisk {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "small", &pattern(1, 100)).await;
    put(&store, "large", &pattern(2, 20_000)).await;
    put_fill(&store, "fill", &pattern(3, 100)).await;
    store.close().await.unwrap();
    disk
}

async fn check_refused(disks: &[MemoryDisk], kind: ErrorKind, says: &str) {
    let before: Vec<_> = all_contents(disks).await;
    let settings = Settings { capacity_bytes: disks.iter().map(|_| 4 << 20).collect(), ..small() };
    check_error(try_open_all(disks, settings).await, kind, says);
    assert_eq!(all_contents(disks).await, before, "what is refused must not change");
}

async fn all_contents(disks: &[MemoryDisk]) -> Vec<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    for disk in disks {
        all.push(contents(disk).await);
    }
    all
}

/// Writes the CRC32C of `bytes[from..to]` at `at`, which is zero while it is computed.
fn reseal(bytes: &mut [u8], from: usize, to: usize, at: usize) {
    bytes[at..at + 4].fill(0);
    let crc = crc32c(&bytes[from..to]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

#[tokio::test]
async fn a_newer_format_is_refused_and_a_damaged_version_is_not_taken_for_one() {
    type Raise = fn(&mut Vec<u8>);
    let headers: Raise = |bytes| {
        bytes[4] += 1;
        reseal(bytes, 0, 60, 60);
    };
    let identity: Raise = |bytes| {
        bytes[4] += 1;
        reseal(bytes, 0, 20, 20);
    };
    let small_file: Raise = |bytes| {
        bytes[4] += 1;
        let sealed = [&bytes[..8], &bytes[12..]].concat();
        bytes[8..12].copy_from_slice(&crc32c(&sealed).to_le_bytes());
    };
    let snapshot: Raise = |bytes| {
        bytes[4] += 2;
        reseal(bytes, 0, 8, 8);
    };
    for (extension, raise, newer) in [
        ("identity", identity, 3),
        ("members", small_file, 2),
        ("logs", small_file, 2),
        ("snapshot", snapshot, 3),
        (".log", headers, 2),
        (".bulk", headers, 2),
        (".fill", headers, 2),
    ] {
        let disk = closed_store().await;
        let name = &files(&disk, extension).await[0];
        disk.edit(name, raise);
        let empty = MemoryDisk::default();
        check_refused(
            &[disk, empty],
            ErrorKind::Invalid,
            &format!("version {newer}, and this release reads up to {}", newer - 1),
        )
        .await;
        // The same version without a valid checksum counts as damage.
        let disk = closed_store().await;
        disk.edit(name, |bytes| bytes[4] += 1);
        match try_open(&disk).await {
            Ok(store) => assert_eq!(read(&store, "small").await.unwrap(), pattern(1, 100), "{name}"),
            Err(error) => {
                assert!(error.kind == ErrorKind::Corrupt && matches!(extension, "identity" | "members" | "logs"))
            }
        }
    }
}

#[tokio::test]
async fn a_newer_record_is_refused() {
    for kind in [".log", ".fill"] {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        put(&store, "small", &pattern(1, 100)).await;
        put_fill(&store, "fill", &pattern(3, 100)).await;
        let name = &files(&disk, kind).await[0];
        disk.edit(name, |bytes| {
            bytes[64 + 5] += 1;
            let head_bytes = u32::from_le_bytes(bytes[72..76].try_into().unwrap()) as usize;
            reseal(bytes, 64, 64 + head_bytes, 84);
        });
        check_refused(&[disk], ErrorKind::Invalid, "a record has the format version 2").await;
    }
}

#[tokio::test]
async fn directories_of_two_stores_are_refused() {
    let (ours, theirs) = (closed_store().await, MemoryDisk::default());
    let disks = vec![Arc::new(theirs.clone()) as Arc<dyn Disk>];
    Store::open(Env::simulated(2).0, disks, small(), None).await.unwrap().close().await.unwrap();
    check_refused(&[ours, theirs], ErrorKind::Invalid, "different stores").await;
}

#[tokio::test]
async fn a_directory_given_twice_is_refused() {
    let disk = closed_store().await;
    check_refused(&[disk.clone(), disk], ErrorKind::Invalid, "given twice").await;
}

#[tokio::test]
async fn a_segment_of_another_store_is_refused() {
    let disk = closed_store().await;
    disk.edit("00000001.log", |bytes| {
        bytes[8] ^= 1;
        reseal(bytes, 0, 60, 60);
    });
    check_refused(&[disk], ErrorKind::Invalid, "00000001.log belongs to another directory or store").await;
}

#[tokio::test]
async fn a_segment_under_another_name_is_refused() {
    for (from, to) in [("00000001.log", "00000009.log"), ("00000002.bulk", "00000002.fill")] {
        let disk = closed_store().await;
        disk.rename(from, to).await.unwrap();
        check_refused(&[disk], ErrorKind::Invalid, &format!("{to} belongs to another directory or store")).await;
    }
}

#[tokio::test]
async fn segments_without_an_identity_are_refused() {
    let disk = closed_store().await;
    disk.remove("identity").await.unwrap();
    let says = "segments without an identity: the file `identity` is missing. Put it back, or give up what only this directory holds: put an empty one in its place";
    check_refused(&[disk], ErrorKind::Corrupt, says).await;
}

#[tokio::test]
async fn settings_that_cannot_hold_are_refused() {
    let disk = closed_store().await;
    let tiny = Settings { capacity_bytes: vec![8 * (64 << 10) - 1], ..small() };
    check_error(try_open_all(std::slice::from_ref(&disk), tiny).await, ErrorKind::Invalid, "too small");
    check_error(try_open_all(&[], small()).await, ErrorKind::Invalid, "0 directories");
    let two = Settings { capacity_bytes: vec![4 << 20; 2], ..small() };
    check_error(try_open_all(std::slice::from_ref(&disk), two).await, ErrorKind::Invalid, "1 directories have 2");
    let giant = Settings { segment_bytes: (1 << 30) + 1, capacity_bytes: vec![16 << 30], ..small() };
    let (extents, inline) = (
        Settings { extent_bytes_max: (32 << 10) + 1, ..small() },
        Settings { inline_bytes_max: (32 << 10) + 1, ..small() },
    );
    for settings in [giant, extents, inline] {
        let refused = try_open_all(std::slice::from_ref(&disk), settings).await;
        check_error(refused, ErrorKind::Invalid, "two extents and at most 1 GiB");
    }
    let largest = Settings { segment_bytes: 1 << 30, capacity_bytes: vec![8 << 30], ..small() };
    try_open_all(std::slice::from_ref(&disk), largest).await.unwrap().close().await.unwrap();
    let fullest = Settings { extent_bytes_max: 32 << 10, inline_bytes_max: 32 << 10, ..small() };
    try_open_all(std::slice::from_ref(&disk), fullest).await.unwrap();
}

#[tokio::test]
async fn a_value_that_is_not_for_this_code_is_refused_before_anything_changes() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    write_value(&store, "a", Some("known")).await;
    write_value(&store, "b", Some("newer")).await;
    disk.kill();
    // A torn end, which a start would cut off.
    disk.edit("00000001.log", |bytes| bytes.extend_from_slice(&[7; 100]));
    let check: crate::ValueCheck = |key, value| match value {
        b"newer" => Err(format!("{} is newer", key.escape_ascii())),
        _ => Ok(()),
    };
    let before = contents(&disk).await;
    let settings = Settings { value_check: Some(check), capacity_bytes: vec![4 << 20; 2], ..small() };
    let disks = [disk.clone(), MemoryDisk::default()];
    check_error(try_open_all(&disks, settings).await, ErrorKind::Invalid, "b is newer");
    assert!(contents(&disks[1]).await.is_empty(), "a new directory gets no identity");
    assert_eq!(contents(&disk).await, before, "what is refused must not change");
    open(&disk).await;
    assert_ne!(contents(&disk).await, before);
}
