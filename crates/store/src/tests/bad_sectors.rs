//! Bytes that a disk can't read, and files that it can't remove.

use super::*;

fn tight() -> Settings {
    Settings { capacity_bytes: vec![16 * (64 << 10)], ..small() }
}

/// Overwrites the same few keys repeatedly, many times what the directory can hold.
async fn overwrite(store: &Store, rounds: u64) {
    for index in 0..rounds {
        put(store, &format!("k{}", index % 5), &pattern(index, 900)).await;
    }
}

/// One log with only dead data can't be read, and one can't be removed. The others are still reclaimed.
#[tokio::test]
async fn a_segment_that_cannot_be_reclaimed_is_left_alone_and_the_others_go_on() {
    for what in ["unreadable", "stays"] {
        let disk = MemoryDisk::default();
        let store = try_open_all(std::slice::from_ref(&disk), tight()).await.unwrap();
        overwrite(&store, 200).await;
        let first = files(&disk, ".log").await[0].clone();
        match what {
            "unreadable" => disk.fail_reads_of(&first, 10_000..10_512),
            _ => disk.fail_removes(true),
        }
        overwrite(&store, 300).await;
        settle().await;
        disk.fail_removes(false);
        overwrite(&store, 6000).await;
        assert!(store.counters().reclaimed_segments > 20, "{what}");
        assert!(files(&disk, ".log").await.contains(&first) || what == "stays", "{what}");
        assert!(store.health()[0].failed.is_none());
        for index in 5995..6000 {
            assert_eq!(read(&store, &format!("k{}", index % 5)).await.unwrap(), pattern(index, 900));
        }
    }
}

#[tokio::test]
async fn a_bad_sector_among_copies_stops_no_start() {
    // In the header, in the first record, and after some records.
    for at in [0, 64, 3000] {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        put(&store, "pinned", &pattern(1, 300)).await;
        for index in 0..10 {
            put_fill(&store, &format!("f{index}"), &pattern(index, 700)).await;
        }
        disk.kill();
        disk.fail_reads_of(&files(&disk, ".fill").await[0], at..at + 1);
        let store = open(&disk).await;
        assert_eq!(read(&store, "pinned").await.unwrap(), pattern(1, 300));
        for index in 0..10 {
            let Some(object) = store.peek(format!("f{index}").as_bytes()) else { continue };
            assert_eq!(read_object(&object).await.unwrap(), pattern(index, 700));
        }
        put_fill(&store, "later", &pattern(9, 700)).await;
        assert_eq!(read(&store, "later").await.unwrap(), pattern(9, 700));
    }
}

/// Nobody knows what such a log holds.
#[tokio::test]
async fn a_bad_sector_in_a_log_stops_the_start_and_nothing_changes() {
    for at in [0, 64, 3000] {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        for index in 0..10 {
            put(&store, &format!("o{index}"), &pattern(index, 700)).await;
        }
        disk.kill();
        disk.fail_reads_of("00000001.log", at..at + 1);
        let before = contents(&disk).await;
        check_error(try_open(&disk).await, ErrorKind::Failed, "could not read");
        assert_eq!(contents(&disk).await, before);
    }
}
