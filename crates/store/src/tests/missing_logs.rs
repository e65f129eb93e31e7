//! Logs that somebody has removed.

use super::*;

const OBJECTS: u64 = 60;

/// A store with several logs, made by kills: no snapshot covers their contents.
async fn several_logs() -> MemoryDisk {
    let disk = MemoryDisk::default();
    for life in 0..4 {
        let store = open(&disk).await;
        for index in life * OBJECTS / 4..(life + 1) * OBJECTS / 4 {
            put(&store, &format!("o{index}"), &pattern(index, 500)).await;
        }
        disk.kill();
    }
    disk
}

async fn check_all(store: &Store) {
    for index in 0..OBJECTS {
        assert_eq!(read(store, &format!("o{index}")).await.unwrap(), pattern(index, 500), "o{index}");
    }
}

#[tokio::test]
async fn a_log_that_is_gone_is_missed_and_nothing_changes() {
    for number in 0..4 {
        let disk = several_logs().await;
        let logs = files(&disk, ".log").await;
        assert_eq!(logs.len(), 4);
        let gone = disk.contents(&logs[number]).unwrap();
        disk.remove(&logs[number]).await.unwrap();
        let before = contents(&disk).await;
        check_error(try_open(&disk).await, ErrorKind::Corrupt, &format!("{} is missing", logs[number]));
        assert_eq!(contents(&disk).await, before);
        // When the file is back, everything is there.
        disk.create(&logs[number]).await.unwrap().write_at(0, vec![gone.into()], true).await.unwrap();
        check_all(&open(&disk).await).await;
    }
}

/// For what a snapshot shows, the log is needed only for its bytes.
#[tokio::test]
async fn a_log_before_the_last_snapshot_may_be_gone() {
    let disk = several_logs().await;
    let store = open(&disk).await;
    write_value(&store, "value", Some("there")).await;
    store.close().await.unwrap();
    let logs = files(&disk, ".log").await;
    disk.remove(&logs[1]).await.unwrap();
    let store = open(&disk).await;
    assert_eq!(value(&store, "value").unwrap(), "there");
    let there = (0..OBJECTS).filter(|index| store.peek(format!("o{index}").as_bytes()).is_some()).count() as u64;
    assert_eq!(there, OBJECTS * 3 / 4);
    // Reclaim deletes logs by itself. No start misses them, not even one without the snapshot.
    for index in 0..OBJECTS {
        forget(&store, &format!("o{index}")).await;
    }
    for index in 0..8000 {
        put(&store, &format!("k{}", index % 7), &pattern(index, 900)).await;
    }
    settle().await;
    assert!(store.counters().reclaimed_segments > 0);
    disk.kill();
    open(&disk).await;
    disk.kill();
    disk.remove("snapshot").await.unwrap();
    let store = open(&disk).await;
    assert_eq!(value(&store, "value").unwrap(), "there");
}

/// A crash between the snapshot, the list and the deletion of a log never makes a start miss a log.
#[tokio::test]
async fn a_snapshot_strikes_logs_off_the_list() {
    let disk = several_logs().await;
    let before = disk.contents("logs").unwrap();
    open(&disk).await.close().await.unwrap();
    assert_ne!(disk.contents("logs").unwrap(), before);
    // As if the process had died before it wrote the list.
    disk.edit("logs", |bytes| *bytes = before.clone());
    open(&disk).await;
    disk.kill();
    assert_ne!(disk.contents("logs").unwrap(), before, "the start strikes them off");
    disk.remove(&files(&disk, ".log").await[0]).await.unwrap();
    disk.remove("snapshot").await.unwrap();
    open(&disk).await;
}

#[tokio::test]
async fn a_damaged_list_of_logs_is_refused_and_nothing_changes() {
    let disk = several_logs().await;
    let whole = disk.contents("logs").unwrap();
    disk.flip_bit("logs", whole.len() / 2, 1);
    let before = contents(&disk).await;
    check_error(try_open(&disk).await, ErrorKind::Corrupt, "the list of logs is damaged");
    assert_eq!(contents(&disk).await, before);
    // An older release wrote none.
    disk.remove("logs").await.unwrap();
    check_all(&open(&disk).await).await;
}

/// Headers are on stable storage before a log is listed: no crash leaves a listed log without one.
#[tokio::test]
async fn a_listed_log_of_which_nothing_is_left_is_refused_and_nothing_changes() {
    for number in 0..4 {
        for zeroed in [false, true] {
            let disk = several_logs().await;
            let name = files(&disk, ".log").await[number].clone();
            let whole = disk.contents(&name).unwrap();
            disk.edit(&name, |bytes| if zeroed { bytes.fill(0) } else { bytes.clear() });
            let before = contents(&disk).await;
            check_error(try_open(&disk).await, ErrorKind::Corrupt, &name);
            assert_eq!(contents(&disk).await, before);
            disk.edit(&name, |bytes| *bytes = whole);
            check_all(&open(&disk).await).await;
        }
    }
}

/// What a snapshot shows was on stable storage before it: no crash leaves a log shorter. Otherwise older versions would
/// come back silently.
#[tokio::test]
async fn a_log_shorter_than_a_snapshot_shows_is_refused_and_nothing_changes() {
    for goes_on in [false, true] {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        put(&store, "key", &pattern(1, 500)).await;
        store.inner.snapshot().await.unwrap();
        let log = files(&disk, ".log").await.pop().unwrap();
        let shown = disk.contents(&log).unwrap().len();
        put(&store, "key", &pattern(2, 500)).await;
        disk.kill();
        if goes_on {
            put(&open(&disk).await, "later", &pattern(3, 500)).await;
            disk.kill();
        }
        let whole = disk.contents(&log).unwrap();
        for length in [shown - 1, shown / 2, 64, 0] {
            disk.edit(&log, |bytes| bytes.truncate(length));
            let before = contents(&disk).await;
            check_error(try_open(&disk).await, ErrorKind::Corrupt, &format!("{log}: acknowledged records are damaged"));
            assert_eq!(contents(&disk).await, before, "cut to {length} of {shown}");
            disk.edit(&log, |bytes| *bytes = whole.clone());
        }
        assert_eq!(read(&open(&disk).await, "key").await.unwrap(), pattern(2, 500));
    }
}

/// Somebody else's file, or one whose name is damaged. The few higher numbers would soon be used up.
#[tokio::test]
async fn a_segment_that_no_store_gets_to_is_refused_by_its_name() {
    for name in ["4294967290.log", "4294967295.log", "4294967295.bulk"] {
        let disk = several_logs().await;
        disk.create(name).await.unwrap();
        let before = contents(&disk).await;
        check_error(try_open(&disk).await, ErrorKind::Invalid, name);
        assert_eq!(contents(&disk).await, before);
        disk.remove(name).await.unwrap();
        check_all(&open(&disk).await).await;
    }
}
