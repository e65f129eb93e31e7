//! Directories that are added, removed, emptied and brought back.

use std::time::Duration;

use super::reclaim::reclaim_in;
use super::*;
use crate::directory::IdentityFile;
use crate::log::Until;
use crate::record::commit::CommitBody;
use crate::recovery::starts::FORMAT;
use crate::{CHANGES_LOST_FILE, DirectoryId, Forgotten};

const OBJECTS: usize = 40;

fn settings(count: usize) -> Settings {
    Settings { capacity_bytes: vec![4 << 20; count], ..small() }
}

async fn start(disks: &[MemoryDisk]) -> Result<Store> {
    try_open_all(disks, settings(disks.len())).await
}

async fn start_without(disks: &[MemoryDisk], forget: Vec<DirectoryId>) -> Result<Store> {
    try_open_all(disks, Settings { forget, ..settings(disks.len()) }).await
}

async fn id(disk: &MemoryDisk) -> DirectoryId {
    match IdentityFile::read(disk).await.unwrap().unwrap() {
        IdentityFile::Listed { id, .. } => id,
        IdentityFile::BeforeLists { .. } => panic!("a start gives it an id"),
    }
}

/// Checks that a start is refused and changes nothing anywhere.
async fn check_refused(disks: &[MemoryDisk], forget: Vec<DirectoryId>, says: &str) {
    let mut before = Vec::new();
    for disk in disks {
        before.push(contents(disk).await);
    }
    check_error(start_without(disks, forget).await, ErrorKind::Invalid, says);
    for (disk, before) in disks.iter().zip(before) {
        assert_eq!(contents(disk).await, before, "what is refused must not change");
    }
}

fn body(index: usize) -> Bytes {
    pattern(index as u64, 300 + 400 * (index % 20))
}

/// A store of two directories that both hold objects, closed.
async fn two_directories() -> [MemoryDisk; 2] {
    let disks = [(); 2].map(|()| MemoryDisk::default());
    let store = start(&disks).await.unwrap();
    for index in 0..OBJECTS {
        put(&store, &format!("object {index}"), &body(index)).await;
        write_value(&store, &format!("value {index}"), Some("there")).await;
    }
    for index in (0..OBJECTS).step_by(4) {
        forget(&store, &format!("object {index}")).await;
        write_value(&store, &format!("value {index}"), None).await;
    }
    store.close().await.unwrap();
    disks
}

/// Each object is as it was, or gone, and deleted objects are not back. Returns how many are there.
async fn check_objects(store: &Store) -> usize {
    let mut there = 0;
    for index in 0..OBJECTS {
        let Some(object) = store.peek(format!("object {index}").as_bytes()) else { continue };
        assert_ne!(index % 4, 0, "object {index} is back");
        let is_whole = object.cached_bytes() == object.size();
        if is_whole {
            assert_eq!(read_object(&object).await.unwrap(), body(index), "object {index}");
            there += 1;
        }
    }
    there
}

fn check_values(store: &Store) {
    for index in 0..OBJECTS {
        let expected = (index % 4 != 0).then(|| "there".to_owned());
        assert_eq!(value(store, &format!("value {index}")), expected, "value {index}");
    }
}

#[tokio::test]
async fn a_start_without_a_directory_is_refused_and_nothing_is_lost_when_it_is_back() {
    let [first, second] = two_directories().await;
    let says = format!("data directories are missing: {}", id(&second).await);
    check_refused(std::slice::from_ref(&first), Vec::new(), &says).await;
    check_refused(&[first.clone(), MemoryDisk::default()], Vec::new(), &says).await;
    check_refused(std::slice::from_ref(&second), Vec::new(), &id(&first).await.to_string()).await;
    // In any order.
    let store = start(&[second, first]).await.unwrap();
    assert_eq!(check_objects(&store).await, OBJECTS - OBJECTS / 4);
    check_values(&store);
}

#[tokio::test]
async fn a_directory_that_is_forgotten_takes_along_only_what_it_held() {
    for lost in [0, 1] {
        let disks = two_directories().await;
        let (gone, kept) = (disks[lost].clone(), disks[1 - lost].clone());
        let forget = vec![id(&gone).await];
        let empty = MemoryDisk::default();
        let disks = [kept.clone(), empty.clone()];
        let store = start_without(&disks, forget.clone()).await.unwrap();
        let there = check_objects(&store).await;
        assert!((1..OBJECTS - OBJECTS / 4).contains(&there), "{there} are there without directory {lost}");
        check_values(&store);
        // New writes are as durable as ever.
        for index in 0..100 {
            put(&store, &format!("new {index}"), &body(index)).await;
        }
        disks.iter().for_each(MemoryDisk::kill);
        let store = start_without(&disks, forget.clone()).await.unwrap();
        for index in 0..100 {
            assert_eq!(read(&store, &format!("new {index}")).await.unwrap(), body(index), "new {index}");
        }
        assert_eq!(check_objects(&store).await, there);
        check_values(&store);
        store.close().await.unwrap();
        // A rebuild from segments also finds the values.
        for disk in &disks {
            let _ = disk.remove("snapshot").await;
        }
        let store = start(&disks).await.unwrap();
        check_values(&store);
        store.close().await.unwrap();
        // The other directory is out of date now.
        let all = [kept.clone(), empty, gone];
        for forget in [Vec::new(), forget] {
            check_refused(&all, forget, "has continued without this directory").await;
        }
        check_refused(&all[..2], vec![id(&kept).await], "is to be forgotten, and is given").await;
    }
}

/// The next process may write snapshots to other directories.
#[tokio::test]
async fn a_snapshot_that_was_not_finished_takes_no_space() {
    let disks = [(); 3].map(|()| MemoryDisk::default());
    start(&disks).await.unwrap().close().await.unwrap();
    for disk in &disks {
        disk.create("snapshot.new").await.unwrap();
    }
    let store = start(&disks).await.unwrap();
    for disk in &disks {
        assert!(disk.lengths().iter().all(|(name, _)| name != "snapshot.new"));
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_snapshot_outlives_the_loss_of_a_directory() {
    let disks = two_directories().await;
    let copies = [disks[0].contents("snapshot"), disks[1].contents("snapshot")];
    assert!(copies[0].is_some() && copies[0] == copies[1], "two directories hold it");
    // One damaged copy costs nothing.
    for damaged in [0, 1] {
        for part in [0.0, 0.5, 1.0] {
            let last = disks[damaged].contents("snapshot").unwrap().len() - 1;
            let at = (last as f64 * part) as usize;
            disks[damaged].flip_bit("snapshot", at, 1);
            let store = start(&disks).await.unwrap();
            assert!(!store.inner.shown_positions.lock().is_empty(), "the other copy is used");
            assert_eq!(check_objects(&store).await, OBJECTS - OBJECTS / 4);
            store.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_copy_of_an_older_snapshot_is_not_used() {
    let disks = two_directories().await;
    let older = disks[1].contents("snapshot").unwrap();
    let store = start(&disks).await.unwrap();
    write_value(&store, "value 1", Some("newer")).await;
    store.close().await.unwrap();
    // As after a crash between the two renames.
    disks[1].edit("snapshot", |bytes| *bytes = older.clone());
    let store = start(&disks).await.unwrap();
    assert_eq!(disks[1].contents("snapshot"), None, "the older one is removed before anything relies on the newer");
    assert_eq!(value(&store, "value 1").unwrap(), "newer");
}

/// The newest one can't be read. Reclaim has deleted a log that the older one needs.
#[tokio::test]
async fn an_older_snapshot_that_could_not_be_removed_is_not_used() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let store = start(&disks).await.unwrap();
    let publish = vec![stage_in(&store, 1, "gone", &body(0)).await];
    store.commit(Commit { publish, ..Commit::default() }, Durability::Fsync).await.unwrap();
    store.inner.snapshot().await.unwrap();
    disks[0].fail_removes(true);
    store.inner.volumes[0].directory.fail("a test says so");
    let log = &store.inner.volumes[1].log;
    log.seal().await.unwrap();
    forget(&store, "gone").await;
    let deletes = log.end().segment;
    log.seal().await.unwrap();
    store.inner.snapshot().await.unwrap();
    assert!(disks.iter().all(|disk| disk.contents("snapshot").is_some()), "the older one is still there");
    reclaim_in(&store, 1, deletes).await.unwrap();
    disks.iter().for_each(MemoryDisk::kill);
    // In the beginning, which says which one is newer.
    disks[1].flip_bit("snapshot", 0, 1);
    let store = start(&disks).await.unwrap();
    assert!(store.peek(b"gone").is_none(), "a deleted object is back");
}

#[tokio::test]
async fn no_number_is_given_twice() {
    let [first, second] = two_directories().await;
    let mut forget = vec![id(&second).await];
    let mut numbers = vec![0, 1];
    for _ in 0..3 {
        let added = MemoryDisk::default();
        let disks = [first.clone(), added.clone()];
        let store = start_without(&disks, forget.clone()).await.unwrap();
        numbers.push(store.inner.volumes[1].directory.identity.number);
        put(&store, "some", &body(3)).await;
        disks.iter().for_each(MemoryDisk::kill);
        forget.push(id(&added).await);
    }
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn two_that_were_each_started_without_the_other_are_not_put_together() {
    let [first, second] = two_directories().await;
    let ids = [id(&first).await, id(&second).await];
    for (disk, other) in [(&first, ids[1]), (&second, ids[0])] {
        let store = start_without(std::slice::from_ref(disk), vec![other]).await.unwrap();
        put(&store, "some", &body(5)).await;
        store.close().await.unwrap();
    }
    check_refused(&[first, second], Vec::new(), "each of them was started without the other").await;
}

#[tokio::test]
async fn a_crash_while_a_directory_joins_leaves_none_that_is_missing() {
    let disks = two_directories().await;
    let added = MemoryDisk::default();
    let before = disks.clone().map(|disk| disk.contents("members").unwrap());
    let three = [disks[0].clone(), disks[1].clone(), added.clone()];
    start(&three).await.unwrap();
    let announced = announced(&count(&added));
    three.iter().for_each(MemoryDisk::kill);
    let whole = contents(&added).await;
    // The new directory first has its identity, then its list, and then the others have the list.
    for step in 0..4 {
        let joining = MemoryDisk::default();
        for (name, bytes) in whole.iter().filter(|(name, _)| match name.as_str() {
            "identity" => step >= 1,
            "members" => step >= 2,
            _ => false,
        }) {
            joining.create(name).await.unwrap().write_at(0, vec![bytes.clone().into()], true).await.unwrap();
        }
        // The start was announced to all directories before.
        write_file(&joining, "starts", &announced).await;
        disks.iter().for_each(|disk| disk.edit("starts", |bytes| bytes.clone_from(&announced)));
        joining.sync_directory().await.unwrap();
        let whole_list = added.contents("members").unwrap();
        disks[0].edit("members", |bytes| *bytes = if step >= 3 { whole_list } else { before[0].clone() });
        disks[1].edit("members", |bytes| *bytes = before[1].clone());
        let store = start(&[disks[0].clone(), disks[1].clone(), joining]).await.unwrap();
        assert_eq!(check_objects(&store).await, OBJECTS - OBJECTS / 4, "step {step}");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_crash_while_a_store_begins_leaves_none_that_is_missing() {
    let begun = [(); 3].map(|()| MemoryDisk::default());
    start(&begun).await.unwrap();
    // All have their identity before any has the list.
    for step in 0..6 {
        let disks = [(); 3].map(|()| MemoryDisk::default());
        for (index, (disk, begun)) in disks.iter().zip(&begun).enumerate() {
            for (name, at) in [("identity", index), ("members", 3 + index)] {
                if at < step {
                    let file = disk.create(name).await.unwrap();
                    file.write_at(0, vec![begun.contents(name).unwrap().into()], true).await.unwrap();
                }
            }
            disk.sync_directory().await.unwrap();
        }
        let store = start(&disks).await.unwrap();
        put(&store, "some", &body(3)).await;
        store.close().await.unwrap();
        let store = start(&disks).await.unwrap();
        assert_eq!(read(&store, "some").await.unwrap(), body(3), "step {step}");
    }
}

#[tokio::test]
async fn a_damaged_list_is_taken_from_another_directory() {
    let disks = two_directories().await;
    disks[0].flip_bit("members", 20, 3);
    start(&disks).await.unwrap().close().await.unwrap();
    assert_eq!(disks[0].contents("members"), disks[1].contents("members"), "it is written again");
    disks[1].remove("members").await.unwrap();
    start(&disks).await.unwrap().close().await.unwrap();
    disks.iter().for_each(|disk| disk.flip_bit("members", 20, 3));
    check_error(start(&disks).await, ErrorKind::Corrupt, "Remove the file `members` from all directories");
    for disk in &disks {
        disk.remove("members").await.unwrap();
    }
    let three = [disks[0].clone(), disks[1].clone(), MemoryDisk::default()];
    check_refused(&three, Vec::new(), "add it at the next start").await;
    let store = start(&disks).await.unwrap();
    assert_eq!(check_objects(&store).await, OBJECTS - OBJECTS / 4);
    check_values(&store);
    put(&store, "new", &body(3)).await;
    store.close().await.unwrap();
    start(&three).await.unwrap().close().await.unwrap();
    check_refused(&disks, Vec::new(), "data directories are missing").await;
}

/// If a list can't be written to a directory that does not know the news, the start fails: that directory would not
/// miss the new one later.
#[tokio::test]
async fn a_directory_that_cannot_be_told_of_a_new_one_ends_the_start() {
    let disks = two_directories().await;
    let added = MemoryDisk::default();
    let three = [disks[0].clone(), disks[1].clone(), added.clone()];
    for kind in [std::io::ErrorKind::StorageFull, std::io::ErrorKind::Other] {
        disks[1].fail_writes(Some(kind));
        // Repeatedly, without any change in between.
        check_error(start(&three).await, ErrorKind::Failed, "could not write the list of directories");
        disks[1].fail_writes(None);
    }
    // Only lists were written, and the first directory knows the new one by now.
    check_refused(&disks, Vec::new(), "data directories are missing").await;
    let store = start(&three).await.unwrap();
    assert_eq!(check_objects(&store).await, OBJECTS - OBJECTS / 4);
    store.close().await.unwrap();
    // A forgotten directory is news, too.
    disks[0].fail_writes(Some(std::io::ErrorKind::StorageFull));
    let forget = vec![id(&three[2]).await];
    let refused = start_without(&disks, forget.clone()).await;
    check_error(refused, ErrorKind::Failed, "could not write the list of directories");
    disks[0].fail_writes(None);
    start_without(&disks, forget).await.unwrap();
}

/// Makes a directory look as an old release left it: an identity of version 1 and no list.
async fn before_lists(disk: &MemoryDisk, store: u64, number: u16) {
    disk.remove("members").await.unwrap();
    disk.edit("identity", |bytes| {
        bytes[..4].copy_from_slice(b"FBID");
        bytes[4..8].copy_from_slice(&1_u32.to_le_bytes());
        bytes[8..16].copy_from_slice(&store.to_le_bytes());
        bytes[16..20].copy_from_slice(&u32::from(number).to_le_bytes());
        let crc = crate::record::crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    });
}

/// A store of two directories as an old release left it. Only `holder` has the snapshot, if any has.
async fn two_before_lists(holder: Option<usize>) -> [MemoryDisk; 2] {
    let disks = [(); 2].map(|()| MemoryDisk::default());
    for (number, disk) in disks.iter().enumerate() {
        disk.create("identity").await.unwrap().write_at(0, vec![vec![0; 24].into()], true).await.unwrap();
        disk.create("members").await.unwrap();
        before_lists(disk, 77, number as u16).await;
    }
    let store = start(&disks).await.unwrap();
    for index in 0..20 {
        put(&store, &format!("o{index}"), &body(index)).await;
    }
    store.close().await.unwrap();
    for (number, disk) in disks.iter().enumerate() {
        before_lists(disk, 77, number as u16).await;
        disk.remove("logs").await.unwrap();
        if holder != Some(number) {
            disk.remove("snapshot").await.unwrap();
        }
    }
    disks
}

#[tokio::test]
async fn a_store_from_before_lists_gets_one_and_misses_a_directory_at_once() {
    for holder in [None, Some(0), Some(1)] {
        for given in [0, 1] {
            let disks = two_before_lists(holder).await;
            // If nothing that is here names the other directory, nobody can know of it.
            let is_named = given == 1 || holder == Some(0);
            let one = std::slice::from_ref(&disks[given]);
            if is_named {
                check_refused(one, Vec::new(), "of an older release). Mount them").await;
                let other = crate::DirectoryId::before_lists(77, 1 - given as u16);
                let store = start_without(one, vec![other]).await.unwrap();
                store.close().await.unwrap();
                start(one).await.unwrap();
                check_refused(&disks, Vec::new(), "has continued without this directory").await;
                continue;
            }
            let with_empty = [disks[given].clone(), MemoryDisk::default()];
            check_refused(&with_empty, Vec::new(), "add it at the next start").await;
            // A new directory gets a number that none of the old ones can have had.
            let store = start(&disks).await.unwrap();
            for index in 0..20 {
                assert_eq!(read(&store, &format!("o{index}")).await.unwrap(), body(index));
            }
            store.close().await.unwrap();
            let three = [disks[0].clone(), disks[1].clone(), MemoryDisk::default()];
            let store = start(&three).await.unwrap();
            assert_eq!(store.inner.volumes[2].directory.identity.number, 1024);
            store.close().await.unwrap();
            check_refused(&three[..1], Vec::new(), "data directories are missing").await;
        }
    }
}

/// No remaining directory has a snapshot of a life that only the lost one has seen, but generations of that life must
/// not be given out again.
#[tokio::test]
async fn no_generation_is_given_twice_when_a_directory_is_forgotten() {
    let disks = two_directories().await;
    let store = start(&disks).await.unwrap();
    let given = store.next_generation();
    drop(store);
    let lost = id(&disks[1]).await;
    let store = start_without(&disks[..1], vec![lost]).await.unwrap();
    assert!(store.next_generation().0 > given.0 + 1000 * crate::SEQUENCES_OF_A_LIFE);
}

/// Two directories that were added by starts without each other have the same number.
#[tokio::test]
async fn lists_that_contradict_each_other_are_refused() {
    let disks = two_directories().await;
    let before = disks.clone().map(|disk| disk.contents("members").unwrap());
    let added = [(); 2].map(|()| MemoryDisk::default());
    for one in &added {
        // As a crash leaves it: the old directories do not have the new list.
        for (disk, before) in disks.iter().zip(&before) {
            disk.edit("members", |bytes| *bytes = before.clone());
        }
        // With another seed, so that each gets its own id.
        let all: Vec<_> = disks.iter().chain([one]).map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
        let seed = if std::ptr::eq(one, &added[0]) { 11 } else { 12 };
        Store::open(Env::simulated(seed).0, all, settings(3), None).await.unwrap().close().await.unwrap();
    }
    let with = |one: &MemoryDisk| [disks[0].clone(), disks[1].clone(), one.clone()];
    check_refused(&with(&added[0]), Vec::new(), "each of them was started without the other").await;
    start(&with(&added[1])).await.unwrap();
}

/// Two records of one log are swapped: checksums and segment are right, but it is the wrong object.
#[tokio::test]
async fn a_record_of_another_object_is_not_taken_for_this_one() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let [a, b] = [pattern(1, 600), pattern(2, 600)];
    put(&store, "a", &a).await;
    put(&store, "b", &b).await;
    let place = |key: &str| store.peek(key.as_bytes()).unwrap().entry().record;
    let (of_a, of_b) = (place("a"), place("b"));
    assert_eq!((of_a.segment, of_a.head_bytes), (of_b.segment, of_b.head_bytes));
    let length = (of_a.head_bytes + of_a.payload_bytes) as usize;
    disk.edit("00000001.log", |bytes| {
        let [at_a, at_b] = [of_a.offset as usize, of_b.offset as usize];
        let (of_a, of_b) = (bytes[at_a..at_a + length].to_vec(), bytes[at_b..at_b + length].to_vec());
        bytes[at_a..at_a + length].copy_from_slice(&of_b);
        bytes[at_b..at_b + length].copy_from_slice(&of_a);
    });
    for key in ["a", "b"] {
        let object = store.peek(key.as_bytes()).unwrap();
        check_error(read_object(&object).await, ErrorKind::Corrupt, "the record of another object");
        check_error(object.metadata().await, ErrorKind::Corrupt, "the record of another object");
    }
}

#[tokio::test]
async fn the_number_of_a_file_that_is_gone_is_not_given_again() {
    for extension in [".log", ".bulk"] {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        put(&store, "small", &body(1)).await;
        write_value(&store, "value", Some("there")).await;
        put(&store, "large", &pattern(2, 40_000)).await;
        store.close().await.unwrap();
        // From now on, the snapshot covers all of each log.
        open(&disk).await.close().await.unwrap();
        let mut gone = files(&disk, "").await;
        let first = gone.iter().filter(|name| name.ends_with(extension)).max().unwrap().clone();
        gone.retain(|name| name.starts_with('0') && *name >= first);
        for name in &gone {
            disk.remove(name).await.unwrap();
        }
        let store = open(&disk).await;
        assert_eq!(value(&store, "value").unwrap(), "there");
        put(&store, "new", &body(3)).await;
        let number = |name: &String| name[..8].to_owned();
        let given: Vec<String> =
            files(&disk, "").await.iter().filter(|name| name.starts_with('0')).map(number).collect();
        assert!(!given.is_empty() && gone.iter().all(|gone| !given.contains(&number(gone))), "{extension}: {given:?}");
        assert_eq!(value(&store, "value").unwrap(), "there");
        store.close().await.unwrap();
    }
}

/// Only the snapshot has what a forgotten directory knew of overwrites and deletes.
#[tokio::test]
async fn after_a_directory_was_forgotten_a_damaged_snapshot_is_not_passed_over() {
    // Forgotten by an earlier start, or by this one.
    for before in [true, false] {
        let disks = two_directories().await;
        let forget = vec![id(&disks[1]).await];
        if before {
            start_without(&disks[..1], forget.clone()).await.unwrap().close().await.unwrap();
        }
        let length = disks[0].contents("snapshot").unwrap().len();
        disks[0].flip_bit("snapshot", length / 2, 1);
        let one = std::slice::from_ref(&disks[0]);
        let before = contents(&disks[0]).await;
        let started = start_without(one, forget.clone()).await;
        check_error(started, ErrorKind::Corrupt, "what a forgotten directory knew");
        assert_eq!(contents(&disks[0]).await, before);
        disks[0].remove("snapshot").await.unwrap();
        let store = start_without(one, forget).await.unwrap();
        write_value(&store, "new", Some("there")).await;
    }
}

/// Only then is it known what a directory had that is lost afterwards.
#[tokio::test]
async fn a_clean_stop_is_marked_until_the_next_start() {
    let disks = two_directories().await;
    let is_marked = || [0, 1].map(|index: usize| disks[index].contents("closed").is_some());
    assert_eq!(is_marked(), [true, true]);
    let store = start(&disks).await.unwrap();
    assert!(store.was_closed());
    assert_eq!(is_marked(), [false, false]);
    put(&store, "more", &body(1)).await;
    disks.iter().for_each(|disk| disk.power_loss(1));
    assert_eq!(is_marked(), [false, false]);
    let forget = vec![id(&disks[1]).await];
    let store = start_without(&disks[..1], forget).await.unwrap();
    assert_eq!(store.forgotten(), Forgotten { before: 0, now: 1, has_lost_changes: true });
    assert!(!store.was_closed());

    let disks = two_directories().await;
    let forget = vec![id(&disks[1]).await];
    let store = start_without(&disks[..1], forget.clone()).await.unwrap();
    assert_eq!(store.forgotten(), Forgotten { before: 0, now: 1, has_lost_changes: false });
    assert!(store.was_closed());
    store.close().await.unwrap();
    let store = start_without(&disks[..1], forget).await.unwrap();
    assert_eq!(store.forgotten(), Forgotten { before: 1, now: 0, has_lost_changes: false });

    // The same without the snapshot of that stop.
    let disks = two_directories().await;
    disks[0].remove("snapshot").await.unwrap();
    let forget = vec![id(&disks[1]).await];
    assert!(start_without(&disks[..1], forget).await.unwrap().forgotten().has_lost_changes);
}

/// Nobody can list them.
#[tokio::test]
async fn that_changes_are_lost_with_a_forgotten_directory_is_marked_until_somebody_removes_the_mark() {
    let disks = two_directories().await;
    let forget = vec![id(&disks[1]).await];
    let is_marked = |disk: &MemoryDisk| disk.contents(CHANGES_LOST_FILE).is_some();
    start_without(&disks[..1], forget).await.unwrap().close().await.unwrap();
    assert!(!is_marked(&disks[0]), "a clean stop came before");

    let disks = two_directories().await;
    let store = start(&disks).await.unwrap();
    put(&store, "more", &body(1)).await;
    disks.iter().for_each(|disk| disk.power_loss(1));
    check_error(start(&disks[..1]).await, ErrorKind::Invalid, "missing");
    assert!(!is_marked(&disks[0]));
    let forget = vec![id(&disks[1]).await];
    start_without(&disks[..1], forget.clone()).await.unwrap();
    assert!(is_marked(&disks[0]));
    disks[0].power_loss(2);
    start_without(&disks[..1], forget.clone()).await.unwrap().close().await.unwrap();
    assert!(is_marked(&disks[0]));
    disks[0].remove(CHANGES_LOST_FILE).await.unwrap();
    start_without(&disks[..1], forget).await.unwrap();
    assert!(!is_marked(&disks[0]));
}

/// The operator has removed them because they were damaged. What the forgotten directory knew was in them alone.
#[tokio::test]
async fn without_snapshots_a_store_that_has_forgotten_a_directory_has_lost_changes() {
    let disks = two_directories().await;
    let forget = vec![id(&disks[1]).await];
    start_without(&disks[..1], forget.clone()).await.unwrap().close().await.unwrap();
    disks[0].remove("snapshot").await.unwrap();
    let store = start_without(&disks[..1], forget.clone()).await.unwrap();
    assert_eq!(store.forgotten(), Forgotten { before: 1, now: 0, has_lost_changes: true });
    store.close().await.unwrap();
    let store = start_without(&disks[..1], forget).await.unwrap();
    assert_eq!(store.forgotten(), Forgotten { before: 1, now: 0, has_lost_changes: false });
}

/// Otherwise the other directory continues, and when it is lost, the mark says that there was nothing to lose.
#[tokio::test]
async fn a_mark_of_a_clean_stop_that_stays_ends_the_start() {
    let disks = two_directories().await;
    disks[0].fail_removes(true);
    check_error(start(&disks).await, ErrorKind::Failed, "could not take away the mark of a clean stop");
    disks[0].fail_removes(false);
    let store = start(&disks).await.unwrap();
    put(&store, "more", &body(1)).await;
    disks.iter().for_each(MemoryDisk::kill);
    let forget = vec![id(&disks[1]).await];
    assert!(start_without(&disks[..1], forget).await.unwrap().forgotten().has_lost_changes);

    // Alone, it takes no writes, so nothing comes after the clean stop.
    let disk = MemoryDisk::default();
    open(&disk).await.close().await.unwrap();
    disk.fail_removes(true);
    assert!(open(&disk).await.health()[0].failed.as_ref().unwrap().contains("mark of a clean stop"));
}

/// Another disk with the same files.
async fn copy_of(disk: &MemoryDisk) -> MemoryDisk {
    let copy = MemoryDisk::default();
    for (name, bytes) in contents(disk).await {
        write_file(&copy, &name, &bytes).await;
    }
    copy
}

/// The copy lacks later writes, and after a crash nothing else shows that.
#[tokio::test]
async fn an_older_copy_of_one_directory_is_refused_and_the_newest_is_taken() {
    for older in [0, 1] {
        let mut disks = two_directories().await;
        let copy = copy_of(&disks[older]).await;
        let store = start(&disks).await.unwrap();
        for index in 0..20 {
            put(&store, &format!("later {index}"), &body(index)).await;
        }
        disks.iter().for_each(MemoryDisk::kill);
        let newest = std::mem::replace(&mut disks[older], copy);
        check_refused(&disks, Vec::new(), "an older copy of this directory").await;
        // Given up, as the message advises.
        let without = [copy_of(&disks[1 - older]).await, MemoryDisk::default()];
        start_without(&without, vec![id(&newest).await]).await.unwrap();
        disks[older] = newest;
        let store = start(&disks).await.unwrap();
        for index in 0..20 {
            assert_eq!(read(&store, &format!("later {index}")).await.unwrap(), body(index));
        }
        // Two copies of the whole store, each started separately and equally often.
        let apart = [copy_of(&disks[0]).await, copy_of(&disks[1]).await];
        disks.iter().for_each(MemoryDisk::kill);
        start(&disks).await.unwrap();
        let given: Vec<_> = apart.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
        Store::open(Env::simulated(99).0, given, settings(2), None).await.unwrap();
        disks.iter().chain(&apart).for_each(MemoryDisk::kill);
        check_refused(&[disks[0].clone(), apart[1].clone()], Vec::new(), "each of them was started without").await;
    }
}

fn count(disk: &MemoryDisk) -> Vec<u8> {
    disk.contents("starts").unwrap()
}

/// The same count, before it records which directories have it.
fn announced(known: &[u8]) -> Vec<u8> {
    let (_, number, id, directories) = FORMAT.decode::<(bool, u64, [u8; 8], Vec<u16>)>(known).unwrap();
    FORMAT.encode(&(false, number, id, directories)).to_vec()
}

/// A crash at any point of a start's announcement makes no directory an older copy.
#[tokio::test]
async fn a_crash_while_a_start_is_counted_makes_no_older_copy() {
    let disks = two_directories().await;
    let before = count(&disks[0]);
    assert_eq!(before, count(&disks[1]));
    start(&disks).await.unwrap().close().await.unwrap();
    let known = count(&disks[0]);
    let announced = announced(&known);
    for [first, second] in [[&announced, &before], [&announced, &announced], [&known, &announced]] {
        disks[0].edit("starts", |bytes| bytes.clone_from(first));
        disks[1].edit("starts", |bytes| bytes.clone_from(second));
        start(&disks).await.unwrap().close().await.unwrap();
    }
    disks[0].edit("starts", |bytes| bytes.clone_from(&known));
    disks[1].edit("starts", |bytes| bytes.clone_from(&before));
    check_refused(&disks, Vec::new(), "an older copy").await;
}

#[tokio::test]
async fn starts_are_counted_on_full_disks_and_beside_one_that_cannot_be_written() {
    let [first, second] = two_directories().await;
    let third = MemoryDisk::default();
    let disks = [first, second, third];
    start(&disks).await.unwrap().close().await.unwrap();
    let before = count(&disks[2]);
    disks[2].set_capacity(0);
    start(&disks).await.unwrap();
    assert!(count(&disks[2]) != before && count(&disks[2]) == count(&disks[0]), "no room is needed");
    let before = [0, 1, 2].map(|index: usize| count(&disks[index]));
    let copy = copy_of(&disks[0]).await;
    disks[2].fail_writes(Some(std::io::ErrorKind::StorageFull));
    let store = start(&disks).await.unwrap();
    disks[2].fail_writes(None);
    assert_eq!(count(&disks[2]), before[2]);
    put(&store, "new", &body(3)).await;
    disks.iter().for_each(MemoryDisk::kill);
    let with_copy = [copy, disks[1].clone(), disks[2].clone()];
    check_refused(&with_copy, Vec::new(), "an older copy").await;
    disks[2].set_capacity(u64::MAX / 2);
    let store = start(&disks).await.unwrap();
    assert_eq!(read(&store, "new").await.unwrap(), body(3));
}

/// The directory holds nothing, but one list names it as a member already.
#[tokio::test]
async fn a_directory_whose_joining_broke_off_can_join_later() {
    let disks = two_directories().await;
    let added = MemoryDisk::default();
    let three = [added.clone(), disks[0].clone(), disks[1].clone()];
    disks[0].fail_writes(Some(std::io::ErrorKind::StorageFull));
    check_error(start(&three).await, ErrorKind::Failed, "could not write the list of directories");
    disks[0].fail_writes(None);
    for _ in 0..2 {
        start(&disks).await.unwrap().close().await.unwrap();
    }
    let store = start(&three).await.unwrap();
    assert_eq!(check_objects(&store).await, OBJECTS - OBJECTS / 4);
}

/// An older release has left none, or the file is damaged. If only one directory lacks it, that one is an older copy.
#[tokio::test]
async fn a_directory_without_a_sound_count_of_starts_is_taken_when_no_other_knows_better() {
    let disks = two_directories().await;
    let old = count(&disks[0]);
    disks[1].flip_bit("starts", 20, 3);
    check_values(&start(&disks).await.unwrap());
    assert_eq!(count(&disks[0]), count(&disks[1]));
    disks[0].remove("starts").await.unwrap();
    check_refused(&disks, Vec::new(), "it has no file `starts`").await;
    disks[1].remove("starts").await.unwrap();
    // Numbers do not begin again.
    let (env, clock) = Env::simulated(5);
    clock.advance(Duration::from_secs(60));
    let given = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    check_values(&Store::open(env, given, settings(2), None).await.unwrap());
    disks[0].edit("starts", |bytes| bytes.clone_from(&old));
    let says = format!("--forget-directory {};", id(&disks[0]).await);
    check_refused(&disks, Vec::new(), &says).await;
}

/// A staged object in a particular directory.
async fn stage_in(store: &Store, directory: usize, key: &str, data: &Bytes) -> Staged {
    loop {
        let staged = stage(store, key, data).await.unwrap();
        if staged.directory == directory {
            return staged;
        }
    }
}

#[tokio::test]
async fn a_replay_from_a_snapshot_deletes_nothing_that_another_directory_has_from_later() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let store = start(&disks).await.unwrap();
    let data = pattern(1, 100);
    put(&store, "key", &data).await;
    // A commit that is on disk, and whose task never applies it.
    let slow = store.inner.volumes[0].log.append(vec![CommitBody::default().draft()], Until::Synced).await.unwrap();
    let publish = vec![stage_in(&store, 0, "other", &data).await];
    let forget = vec![Bytes::from_static(b"key")];
    store.commit(Commit { publish, forget, ..Commit::default() }, Durability::Fsync).await.unwrap();
    let again = pattern(2, 100);
    let publish = vec![stage_in(&store, 1, "key", &again).await];
    store.commit(Commit { publish, ..Commit::default() }, Durability::Fsync).await.unwrap();
    let inner = Arc::clone(&store.inner);
    let snapshot = forebay_env::spawn(async move { inner.snapshot().await });
    settle().await;
    drop(slow);
    snapshot.join().await.unwrap();
    disks.iter().for_each(MemoryDisk::kill);
    let store = start(&disks).await.unwrap();
    assert_eq!(read(&store, "key").await, Some(again));
}
