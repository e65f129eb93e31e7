//! Things that could grow with starts, objects or reads, and do not.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::progress::rest;
use super::*;

/// Each life leaves a log, and every second one also leaves a segment of each other kind.
async fn short_life(disk: &MemoryDisk, life: u64, end: End) -> usize {
    let store = open(disk).await;
    write_value(&store, &format!("v{life}"), Some("value")).await;
    put(&store, &format!("small{life}"), &pattern(life, 300)).await;
    if life.is_multiple_of(2) {
        put(&store, &format!("large{life}"), &pattern(life, 2000)).await;
        put_fill(&store, &format!("copy{life}"), &pattern(life, 500)).await;
    }
    match end {
        End::AtOnce => settle().await,
        End::Later | End::Clean => rest(&store).await,
    }
    super::counts::check_counts(&store);
    let segments = store.inner.volumes[0].directory.segments.read().len();
    if end == End::Clean {
        store.close().await.unwrap();
    }
    segments
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Clean,
    /// After a round of maintenance.
    Later,
    /// Before one.
    AtOnce,
}

/// Each segment is a file, and takes a descriptor as long as the process lives.
#[tokio::test]
async fn starts_leave_few_segments_and_all_that_is_in_them() {
    for end in [End::Clean, End::Later, End::AtOnce] {
        let disk = MemoryDisk::default();
        for life in 0..60 {
            let segments = short_life(&disk, life, end).await;
            // Merged segments are no longer small.
            assert!(segments <= 16 + 4 + 8, "{segments} segments after {life} starts, {end:?}");
        }
        let store = open(&disk).await;
        for life in 0..60 {
            assert_eq!(value(&store, &format!("v{life}")).as_deref(), Some("value"));
            assert_eq!(read(&store, &format!("small{life}")).await.unwrap(), pattern(life, 300));
            if life.is_multiple_of(2) {
                assert_eq!(read(&store, &format!("large{life}")).await.unwrap(), pattern(life, 2000));
                // Nobody has read it, and there is room.
                assert_eq!(read(&store, &format!("copy{life}")).await.unwrap(), pattern(life, 500));
            }
        }
    }
}

/// Otherwise each start would replay the logs of all earlier lives.
#[tokio::test]
async fn the_log_of_short_lives_counts_for_the_next_snapshot() {
    let disk = MemoryDisk::default();
    let settings = Settings { snapshot_log_bytes: 20 << 10, ..small() };
    let mut snapshots = 0;
    for life in 0..10 {
        let store = try_open_all(std::slice::from_ref(&disk), settings.clone()).await.unwrap();
        for index in 0..10 {
            put(&store, &format!("o{life}-{index}"), &pattern(index, 900)).await;
        }
        rest(&store).await;
        snapshots += store.counters().snapshots;
    }
    assert!((3..=6).contains(&snapshots), "{snapshots} snapshots of 100 KiB of log");
}

/// If every few commits caused a snapshot of a large table, snapshots would write more than all commits.
#[tokio::test]
async fn snapshots_write_no_more_than_the_log() {
    let disk = MemoryDisk::default();
    let settings = Settings { snapshot_log_bytes: 2 << 10, ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    let (mut snapshot_bytes, mut last_bytes, mut seen) = (0, 0, 0);
    for index in 0..3000 {
        write_value(&store, &format!("v{index}"), Some("value")).await;
        settle().await;
        if store.counters().snapshots > seen {
            seen = store.counters().snapshots;
            snapshot_bytes += last_bytes;
            last_bytes = disk.contents("snapshot").unwrap().len() as u64;
        }
    }
    let appended = store.counters().appended_bytes;
    assert!(
        seen > 5 && snapshot_bytes <= appended,
        "{seen} snapshots of {snapshot_bytes} bytes beside {appended} of log"
    );
}

/// There are many files to merge, and the disk is full of clean data. Evicting that comes first, and needs no room
/// itself.
#[tokio::test]
async fn what_may_leave_goes_before_files_are_merged() {
    let disk = MemoryDisk::default();
    for life in 0..24 {
        let store = open(&disk).await;
        write_value(&store, &format!("v{life}"), Some("value")).await;
        if life == 23 {
            for index in 0..10 {
                put_fill(&store, &format!("clean{index}"), &pattern(index, 50_000)).await;
            }
        }
        store.close().await.unwrap();
    }
    let used: u64 = disk.lengths().iter().map(|(_, length)| length).sum();
    disk.set_capacity(used);
    let store = open(&disk).await;
    rest(&store).await;
    put(&store, "o", &pattern(1, 900)).await;
    assert_eq!(value(&store, "v0").as_deref(), Some("value"));
}

/// Keys are longer than what is stored under them, so the index takes much of the store. Then most of it leaves.
#[tokio::test]
async fn an_index_that_was_large_once_does_not_keep_the_store_small() {
    let disk = MemoryDisk::default();
    let settings = Settings { capacity_bytes: vec![16 * (64 << 10)], ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings.clone()).await.unwrap();
    let key = |index: u64| format!("{index:0200}");
    for index in 0..2000 {
        put_fill(&store, &key(index), &pattern(index, 20)).await;
    }
    store.inner.snapshot().await.unwrap();
    let snapshot = disk.contents("snapshot").unwrap().len() as u64;
    assert!(snapshot > 3 * (64 << 10), "{snapshot}");
    rest(&store).await;
    for index in (0..2000).filter(|index| store.peek(key(*index).as_bytes()).is_some()) {
        assert!(store.evict(key(index).as_bytes(), generation(&store, &key(index))));
    }
    rest(&store).await;
    // Only the room that these objects need causes another snapshot.
    for index in 0..12 {
        put_fill(&store, &format!("clean{index}"), &pattern(index, 50_000)).await;
        rest(&store).await;
    }
    let left = (0..12).filter(|index| store.peek(format!("clean{index}").as_bytes()).is_some()).count();
    assert_eq!(left, 12, "of 12 objects: {:?}", store.usage());
}

/// A stop writes it, even if no snapshot was due before and other files have taken the rest.
#[tokio::test]
async fn the_first_snapshot_has_room() {
    let disks = [(); 3].map(|()| MemoryDisk::default());
    let settings = Settings { capacity_bytes: vec![4 << 20; 3], snapshot_log_bytes: 1 << 30, ..small() };
    let store = try_open_all(&disks, settings).await.unwrap();
    for index in 0..500 {
        put(&store, &format!("a key that is longer than its object {index}"), &pattern(index, 20)).await;
    }
    rest(&store).await;
    assert!(disks.iter().all(|disk| disk.contents("snapshot").is_none()));
    let expected = [0, 1, 2].map(|at| store.inner.volumes[at].directory.next_snapshot_bytes.load(Ordering::SeqCst));
    store.inner.snapshot().await.unwrap();
    let written = disks.map(|disk| disk.contents("snapshot").map_or(0, |bytes| bytes.len() as u64));
    for (expected, written) in expected.into_iter().zip(written) {
        assert!(expected >= written && expected < 3 * written + 1, "{expected} bytes were expected, {written} written");
    }
}

/// All files count, also while a snapshot is written next to the last one.
#[tokio::test]
async fn snapshots_count_in_the_capacity() {
    let disk = MemoryDisk::default();
    let capacity = 32 * (64 << 10);
    let settings = Settings { capacity_bytes: vec![capacity], snapshot_log_bytes: 64 << 10, ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings.clone()).await.unwrap();
    let mut index = 0;
    let error = loop {
        let key = format!("a key that is much longer than its object {index}");
        if let Err(error) = try_put(&store, &key, &pattern(index, 20)).await {
            break error;
        }
        index += 1;
    };
    assert_eq!(error.kind, ErrorKind::Full);
    store.inner.snapshot().await.unwrap();
    let snapshot = disk.contents("snapshot").unwrap().len() as u64;
    assert!(snapshot > capacity / 10, "a snapshot of {snapshot} bytes");
    let taken = |store: &Store| store.inner.volumes[0].directory.used_bytes() + 2 * snapshot;
    assert!(taken(&store) <= capacity, "{} bytes are taken of {capacity}", taken(&store));
    assert_eq!(store.usage().capacity_bytes, capacity - 2 * snapshot);
    // Snapshots that a start finds count as well.
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    assert_eq!(store.usage().capacity_bytes, capacity - 2 * snapshot);
    assert_eq!(store.usage().objects, index);
}

#[tokio::test]
async fn the_least_recently_read_object_goes_first_also_after_four_billion_reads() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    for name in ["a", "b", "c", "d"] {
        let object = NewObject { pinned: false, group: 7, ..named(&store, name, 100) };
        store.publish_fill(stage_as(&store, Class::Fill, object, &pattern(1, 100)).await.unwrap()).await.unwrap();
    }
    store.get(b"c").unwrap();
    for (name, tick) in [("d", u32::MAX - 1000), ("a", u32::MAX - 500)] {
        store.inner.objects.set_tick(tick);
        store.get(name.as_bytes()).unwrap();
    }
    rest(&store).await;
    // More than were left before the counter would wrap.
    (0..2000).for_each(|_| drop(store.get(b"b")));
    for name in ["c", "d", "a", "b"] {
        assert!(evict_of(&store, &[7], 1).await > 0);
        assert!(store.peek(name.as_bytes()).is_none(), "{name} was read before the others");
    }
}

/// What only one of several directories knows of the others is lost with it. A store that hardly grows would have no
/// snapshot for weeks.
#[tokio::test]
async fn what_has_changed_is_in_a_snapshot_after_ten_minutes() {
    for directories in [1, 2] {
        let disks: Vec<_> = (0..directories).map(|_| MemoryDisk::default()).collect();
        let (env, clock) = Env::simulated(1);
        let shared = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
        let settings = Settings { capacity_bytes: vec![4 << 20; directories], ..small() };
        let store = Store::open(env, shared, settings, None).await.unwrap();
        let snapshots = |write: bool| {
            let (store, clock) = (store.clone(), Arc::clone(&clock));
            async move {
                let before = store.counters().snapshots;
                if write {
                    put(&store, "key", &pattern(1, 100)).await;
                }
                clock.advance(Duration::from_secs(590));
                rest(&store).await;
                let early = store.counters().snapshots;
                assert_eq!(early, before, "not before it is time");
                clock.advance(Duration::from_secs(20));
                rest(&store).await;
                store.counters().snapshots - before
            }
        };
        assert_eq!(snapshots(true).await, u64::from(directories > 1), "{directories} directories");
        assert_eq!(snapshots(false).await, 0, "nothing has changed");
    }
}
