//! No room, on the disk or in the configured capacity.

use super::*;
use crate::Shortage;

/// Puts until one is refused. Returns how many were acknowledged.
async fn fill_up(store: &Store, size: usize) -> u64 {
    for index in 0.. {
        if let Err(error) = try_put(store, &format!("o{index}"), &pattern(index, size)).await {
            assert_eq!(error.kind, ErrorKind::Full, "{error}");
            return index;
        }
    }
    unreachable!("a disk has an end");
}

async fn check_all(store: &Store, count: u64, size: usize) {
    for index in 0..count {
        assert_eq!(read(store, &format!("o{index}")).await.unwrap(), pattern(index, size));
    }
}

#[tokio::test]
async fn a_full_disk_refuses_keeps_what_it_has_and_goes_on_when_there_is_room() {
    for (seed, size) in [(1, 100), (2, 1000), (3, 20_000), (4, 50_000)] {
        let disk = MemoryDisk::new(500 << 10);
        let store = open(&disk).await;
        let count = fill_up(&store, size).await;
        assert!(count > 3);
        for _ in 0..20 {
            check_error(try_put(&store, "more", &pattern(0, 60_000)).await, ErrorKind::Full, "");
        }
        assert!(store.health()[0].failed.is_none(), "a full disk may have room again");
        assert!(store.peek(format!("o{count}").as_bytes()).is_none());
        assert!(files(&disk, "").await.len() < 15, "refused writes leave no files behind");
        check_all(&store, count, size).await;
        disk.set_capacity(1 << 20);
        put(&store, "late", &pattern(7, size)).await;
        disk.power_loss(seed);
        let store = open(&disk).await;
        check_all(&store, count, size).await;
        assert_eq!(read(&store, "late").await.unwrap(), pattern(7, size));
        assert!(store.peek(format!("o{count}").as_bytes()).is_none(), "what was refused is wholly absent");
    }
}

#[tokio::test]
async fn a_store_full_of_pinned_data_takes_deletes_and_then_writes() {
    let disk = MemoryDisk::default();
    let settings = Settings { capacity_bytes: vec![8 * (64 << 10)], ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    let size = 10_000;
    let count = fill_up(&store, size).await;
    assert!((20..50).contains(&count), "{count}");
    assert!(store.usage().free_bytes > 125_000, "two segments are left to commits and reclaim");
    check_error(store.writer(Class::Durable, size as u64).await.map(drop), ErrorKind::Full, "are full");
    write_value(&store, "small", Some("commits still work")).await;
    for index in 0..count {
        forget(&store, &format!("o{index}")).await;
    }
    // Reclaim frees the room of deleted objects, and no write has to be retried.
    for index in 0..200 {
        put(&store, "o0", &pattern(index, size)).await;
    }
    assert_eq!(read(&store, "o0").await.unwrap(), pattern(199, size));
    assert_eq!(value(&store, "small").as_deref(), Some("commits still work"));
    assert!(store.counters().reclaimed_segments > 20);
}

#[tokio::test]
async fn clean_objects_make_room_for_a_body_of_most_of_the_store() {
    let store = open(&MemoryDisk::default()).await;
    let (size, mut next) = (3_000_000, 0);
    for round in 0..4 {
        for _ in 0..80 {
            put_fill(&store, &format!("clean{next}"), &pattern(next, 50_000)).await;
            next += 1;
        }
        settle().await;
        let evictable = store.usage().evictable_bytes;
        assert!(evictable > 2 << 20 && store.usage().free_bytes < size, "{:?}", store.usage());
        check_error(store.writer(Class::Durable, 5 << 20).await.map(drop), ErrorKind::NeverFits, "can hold");
        assert_eq!(store.usage().evictable_bytes, evictable, "what can't be fulfilled costs nothing");
        put(&store, "large", &pattern(round, size as usize)).await;
        assert_eq!(read(&store, "large").await.unwrap(), pattern(round, size as usize));
        forget(&store, "large").await;
    }
}

/// There is no room to carry pinned data, and clean data needs none. Deletes make reclaim choose the oldest segment,
/// which has pinned data.
#[tokio::test]
async fn clean_data_leaves_a_disk_that_others_fill() {
    for deletes in [0, 600] {
        let disk = MemoryDisk::default();
        let settings = Settings { capacity_bytes: vec![10 * (64 << 10)], ..small() };
        let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
        for index in 0..60 {
            put(&store, &format!("stays{index}"), &pattern(index, 900)).await;
        }
        for index in 0..deletes {
            forget(&store, &format!("deleted{index}")).await;
        }
        for index in 0..6 {
            put_fill(&store, &format!("clean{index}"), &pattern(index, 40_000)).await;
        }
        put(&store, "next", &pattern(1, 900)).await;
        store.inner.snapshot().await.unwrap();
        disk.set_capacity(disk.lengths().iter().map(|(_, length)| length).sum());
        // The disk refuses the first write, or it waits.
        let _refused = try_put(&store, "more", &pattern(1, 900)).await;
        try_put(&store, "more", &pattern(2, 900)).await.unwrap_or_else(|error| panic!("{deletes} deletes: {error}"));
        for index in 0..60 {
            assert_eq!(read(&store, &format!("stays{index}")).await.unwrap(), pattern(index, 900));
        }
    }
}

/// Others may give the room back.
#[tokio::test]
async fn room_that_others_have_is_no_reason_never_to_fit() {
    let disk = MemoryDisk::new(4 << 20);
    let store = open(&disk).await;
    put(&store, "a", &pattern(1, 900)).await;
    disk.set_capacity(disk.lengths().iter().map(|(_, length)| length).sum());
    for _ in 0..2 {
        check_error(try_put(&store, "b", &pattern(2, 900)).await, ErrorKind::Full, "");
    }
    disk.set_capacity(4 << 20);
    try_put(&store, "b", &pattern(2, 900)).await.unwrap();
}

/// Many uploads are announced before any of them writes its first byte.
#[tokio::test]
async fn the_room_of_one_body_is_not_promised_to_another() {
    let store = open(&MemoryDisk::default()).await;
    let room = store.usage().free_bytes;
    let size = room / 10 * 6;
    let mut first = store.writer(Class::Durable, size).await.unwrap();
    check_error(store.writer(Class::Durable, size).await.map(drop), ErrorKind::Full, "are full");
    first.append(pattern(1, size as usize / 2)).await.unwrap();
    check_error(store.writer(Class::Durable, size).await.map(drop), ErrorKind::Full, "are full");
    // What it wrote is used, and only the missing bytes are still promised to it.
    drop(store.writer(Class::Durable, room / 10).await.unwrap());
    drop(first);
    for _ in 0..2 {
        drop(store.writer(Class::Durable, size).await.unwrap());
    }
}

/// The disk is smaller than the settings say, and the store is restarted before anything can leave it.
#[tokio::test]
async fn a_disk_that_is_full_of_pinned_data_takes_deletes_after_a_restart_too() {
    for size in [500, 20_000] {
        let disk = MemoryDisk::new(600 << 10);
        let store = open(&disk).await;
        let count = fill_up(&store, size).await;
        store.close().await.unwrap();
        // Open files take room.
        drop(store);
        let store = open(&disk).await;
        check_all(&store, count, size).await;
        write_value(&store, "small", Some("commits still work")).await;
        for index in 0..count {
            forget(&store, &format!("o{index}")).await;
        }
        for index in 0..100 {
            put(&store, "o0", &pattern(index, size)).await;
        }
        assert_eq!(read(&store, "o0").await.unwrap(), pattern(99, size));
        assert_eq!(value(&store, "small").as_deref(), Some("commits still work"));
    }
}

/// A part of a commit still found room. It is cut off before anything is appended after it.
#[tokio::test]
async fn half_a_commit_that_filled_the_disk_is_cut_off() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "good", &pattern(1, 500)).await;
    let log = disk.contents("00000001.log").unwrap();
    let used: usize = contents(&disk).await.iter().map(|(_, bytes)| bytes.len()).sum();
    disk.set_capacity(used as u64 + 600);
    let syncs = disk.syncs();
    check_error(try_put(&store, "bad", &pattern(2, 500)).await, ErrorKind::Full, "");
    assert_eq!(disk.contents("00000001.log").unwrap(), log);
    assert!(disk.syncs() > syncs, "a sync of others may have brought the refused commit to the disk");
    disk.set_capacity(u64::MAX / 2);
    put(&store, "late", &pattern(3, 10)).await;
    assert_eq!(read(&open(&disk).await, "late").await.unwrap(), pattern(3, 10));
}

/// Somebody else has filled the file system since its room was last checked.
#[tokio::test]
async fn a_write_that_finds_no_room_is_refused_as_full_and_later_ones_go_on() {
    for size in [100, 20_000] {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        put(&store, "good", &pattern(1, size)).await;
        disk.fail_writes(Some(std::io::ErrorKind::StorageFull));
        check_error(try_put(&store, "bad", &pattern(2, size)).await, ErrorKind::Full, "");
        disk.fail_writes(None);
        put(&store, "late", &pattern(3, size)).await;
        assert!(store.health()[0].failed.is_none());
        let store = open(&disk).await;
        assert_eq!(read(&store, "good").await.unwrap(), pattern(1, size));
        assert_eq!(read(&store, "late").await.unwrap(), pattern(3, size));
        assert!(store.peek(b"bad").is_none());
    }
}

#[tokio::test]
async fn a_write_error_of_another_kind_is_final() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "good", &pattern(1, 100)).await;
    disk.fail_writes(Some(std::io::ErrorKind::Other));
    check_error(try_put(&store, "bad", &pattern(2, 100)).await, ErrorKind::Failed, "append to the log");
    disk.fail_writes(None);
    check_error(try_put(&store, "late", &pattern(3, 100)).await, ErrorKind::Failed, "no directory");
    assert_eq!(read(&store, "good").await.unwrap(), pattern(1, 100));
    let store = open(&disk).await;
    assert_eq!(read(&store, "good").await.unwrap(), pattern(1, 100));
    assert!(store.peek(b"bad").is_none());
}

#[tokio::test]
async fn without_a_descriptor_what_needs_a_file_is_refused_and_later_writes_go_on() {
    for (seed, size) in [(1, 100), (2, 20_000), (3, 60_000)] {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        put(&store, "good", &pattern(1, size)).await;
        disk.fail_creates(Some(std::io::ErrorKind::ResourceBusy));
        let mut count = 0;
        let refused = loop {
            match try_put(&store, &format!("o{count}"), &pattern(count, size)).await {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind, ErrorKind::Busy, "{refused}");
        assert_eq!(read(&store, "good").await.unwrap(), pattern(1, size));
        disk.fail_creates(None);
        assert!(store.health()[0].failed.is_none(), "there may be descriptors again");
        put(&store, "late", &pattern(3, size)).await;
        disk.power_loss(seed);
        let store = open(&disk).await;
        check_all(&store, count, size).await;
        assert_eq!(read(&store, "late").await.unwrap(), pattern(3, size));
        assert!(store.peek(format!("o{count}").as_bytes()).is_none(), "what was refused is wholly absent");
    }
}

/// With only a few long segments, all of them may be open. That is no reason to refuse what has room.
#[tokio::test]
async fn a_file_system_with_room_for_few_segments_takes_writes_while_data_may_leave() {
    let long = || Settings { segment_bytes: 1 << 20, capacity_bytes: vec![16 << 20], ..small() };
    // The file system was empty until others came, with many segments or with one open segment; or it was never as
    // large as the settings say.
    for (before, after, clean) in [(8 << 20, 1800 << 10, 400), (8 << 20, 900 << 10, 30), (2 << 20, 2 << 20, 400)] {
        let disk = MemoryDisk::new(before);
        let store = try_open_all(std::slice::from_ref(&disk), long()).await.unwrap();
        for index in 0..clean {
            try_put_fill(&store, &format!("clean{index}"), &pattern(index, 20_000)).await;
        }
        settle().await;
        let used: u64 = disk.lengths().iter().map(|(_, length)| length).sum();
        disk.set_capacity(after.max(used + (200 << 10)));
        let mut refused = 0;
        for index in 0..200 {
            refused += u64::from(try_put(&store, "key", &pattern(index, 20_000)).await.is_err());
            settle().await;
            disk.set_capacity(after.max(disk.lengths().iter().map(|(_, length)| length).sum()));
        }
        assert!(refused < 10, "{refused} of 200 are refused");
        assert_eq!(read(&store, "key").await.unwrap(), pattern(199, 20_000));
    }
}

/// The store fills a file system that is a little smaller than the settings say: that is no news while clean data can
/// go, and nobody else's fault when it cannot.
#[tokio::test]
async fn a_disk_that_is_smaller_than_the_settings_is_told_apart_from_one_that_others_fill() {
    let disk = MemoryDisk::new(1 << 20);
    let settings = Settings { capacity_bytes: vec![(1 << 20) + (200 << 10)], ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    let shortage = async || {
        store.look_at_space().await;
        store.health()[0].shortage
    };
    let mut lacked_room = false;
    for index in 0..200 {
        try_put_fill(&store, &format!("clean{index}"), &pattern(index, 20_000)).await;
        lacked_room |= store.usage().free_bytes < 4 * (64 << 10);
        assert_eq!(shortage().await, None, "{index}");
    }
    assert!(lacked_room, "the disk was never full");
    fill_up(&store, 20_000).await;
    fill_up(&store, 5000).await;
    assert_eq!(shortage().await, Some(Shortage::SmallDisk));
    let refused = try_put(&store, "more", &pattern(1, 20_000)).await;
    check_error(refused, ErrorKind::Full, "ENOSPC): store.size is larger than the file system of memory");
    disk.set_capacity(800 << 10);
    assert_eq!(shortage().await, Some(Shortage::Others));
    check_error(try_put(&store, "more", &pattern(1, 20_000)).await, ErrorKind::Full, "others fill the file system");
    disk.set_capacity(4 << 20);
    assert_eq!(shortage().await, None);
}

/// What was too little stays so until there is a segment more than enough.
#[tokio::test]
async fn a_shortage_does_not_come_and_go_with_each_write() {
    let disk = MemoryDisk::new(4 << 20);
    let store = open(&disk).await;
    put(&store, "pinned", &pattern(1, 20_000)).await;
    let used = (4 << 20) - disk.space().await.unwrap().free;
    let seen = async |left: u64| {
        disk.set_capacity(used + left);
        store.look_at_space().await;
        store.health()[0].shortage
    };
    // Segments are as short as they may get: two extents.
    let segment = 2 * (8 << 10);
    assert_eq!(seen(3 * segment).await, None);
    assert_eq!(seen(segment).await, Some(Shortage::Others));
    assert_eq!(seen(5 * segment / 2).await, Some(Shortage::Others));
    assert_eq!(seen(5 * segment).await, None);
    assert_eq!(seen(5 * segment / 2).await, None);
}
