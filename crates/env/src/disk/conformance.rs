//! What every disk must do.

use bytes::Bytes;

use super::Disk;

/// Runs the suite on an empty disk.
///
/// # Panics
/// When a promise is broken.
pub async fn run(disk: &dyn Disk) {
    files_are_created_once_and_listed(disk).await;
    bytes_are_read_as_written(disk).await;
    files_are_cut_and_extended(disk).await;
    open_files_outlive_their_names(disk).await;
    let space = disk.space().await.expect("space is known");
    assert!(space.free <= space.total && space.total > 0);
}

async fn names(disk: &dyn Disk) -> Vec<String> {
    let mut names = disk.list().await.expect("a disk lists");
    names.sort();
    names
}

async fn files_are_created_once_and_listed(disk: &dyn Disk) {
    assert!(names(disk).await.is_empty());
    assert!(disk.open("a").await.is_err());
    disk.create("a").await.expect("a is new");
    assert!(disk.create("a").await.is_err());
    disk.create("b").await.expect("b is new");
    disk.rename("b", "c").await.expect("b is there");
    assert_eq!(names(disk).await, ["a", "c"]);
    disk.rename("a", "c").await.expect("a is there");
    disk.sync_directory().await.expect("a directory syncs");
    assert_eq!(names(disk).await, ["c"]);
    disk.remove("c").await.expect("c is there");
    assert!(disk.remove("c").await.is_err());
    assert!(names(disk).await.is_empty());
}

async fn bytes_are_read_as_written(disk: &dyn Disk) {
    let file = disk.create("bytes").await.expect("the name is new");
    let pieces: Vec<Bytes> = (0..3_000_u32).map(|n| Bytes::from(n.to_le_bytes().to_vec())).collect();
    let whole: Vec<u8> = pieces.concat();
    file.write_at(5, pieces, true).await.expect("a disk writes");
    assert_eq!(file.len().await.expect("a file has a length"), 5 + whole.len() as u64);
    assert_eq!(file.read_at(5, whole.len()).await.expect("a disk reads"), whole);
    assert_eq!(file.read_at(0, 6).await.expect("a disk reads"), [&[0; 5], &whole[..1]].concat());
    assert_eq!(file.read_at(8, 100_000).await.expect("a disk reads"), whole[3..]);
    assert!(file.read_at(1 << 20, 10).await.expect("behind the end is nothing").is_empty());
    file.write_at(6, vec![Bytes::from_static(b"xy"), Bytes::new()], false).await.expect("a disk writes");
    file.sync_data().await.expect("a disk syncs");
    let again = disk.open("bytes").await.expect("the file is there");
    assert_eq!(again.read_at(6, 2).await.expect("a disk reads"), "xy");
    disk.remove("bytes").await.expect("the file is there");
}

async fn files_are_cut_and_extended(disk: &dyn Disk) {
    let file = disk.create("length").await.expect("the name is new");
    file.write_at(0, vec![Bytes::from_static(b"abcdef")], false).await.expect("a disk writes");
    file.set_len(3).await.expect("a file is cut");
    file.set_len(5).await.expect("a file is extended");
    assert_eq!(file.read_at(0, 10).await.expect("a disk reads"), b"abc\0\0"[..]);
    disk.remove("length").await.expect("the file is there");
}

async fn open_files_outlive_their_names(disk: &dyn Disk) {
    let file = disk.create("name").await.expect("the name is new");
    file.write_at(0, vec![Bytes::from_static(b"old")], true).await.expect("a disk writes");
    disk.remove("name").await.expect("the file is there");
    let new = disk.create("name").await.expect("the name is free again");
    new.write_at(0, vec![Bytes::from_static(b"new")], true).await.expect("a disk writes");
    assert_eq!(file.read_at(0, 3).await.expect("the old file is readable"), "old");
    disk.remove("name").await.expect("the file is there");
}
