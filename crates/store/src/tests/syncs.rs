//! What commits wait for, and what a failed sync does.

use std::time::Duration;

use forebay_env::clock::ManualClock;

use super::progress::rest;
use super::reclaim::reclaim_in;
use super::*;
use crate::log::Until;
use crate::record::Kind;
use crate::record::abort::AbortBody;
use crate::record::commit::CommitBody;
use crate::record::scan::Scan;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentKind};

fn spawn_put(store: &Store, key: &str, durability: Durability) -> forebay_env::Task<Result<u64>> {
    let (store, key) = (store.clone(), key.to_owned());
    forebay_env::spawn(async move {
        let publish = vec![stage(&store, &key, &pattern(1, 100)).await?];
        store.commit(Commit { publish, ..Commit::default() }, durability).await
    })
}

#[tokio::test]
async fn a_commit_waits_for_the_sync_and_is_invisible_before() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "first", &pattern(1, 10)).await;
    disk.hold_syncs(true);
    let waiting = spawn_put(&store, "a", Durability::Fsync);
    settle().await;
    assert!(!waiting.is_finished());
    assert!(store.peek(b"a").is_none(), "nobody sees what may still be lost");
    disk.hold_syncs(false);
    waiting.join().await.unwrap();
    assert!(store.peek(b"a").is_some());
}

#[tokio::test]
async fn a_commit_for_the_system_waits_for_no_sync() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "first", &pattern(1, 10)).await;
    disk.hold_syncs(true);
    spawn_put(&store, "a", Durability::Os).join().await.unwrap();
    assert!(store.peek(b"a").is_some());
    // It survives the process.
    disk.hold_syncs(false);
    assert_eq!(read(&open(&disk).await, "a").await.unwrap(), pattern(1, 100));
}

#[tokio::test]
async fn commits_that_queue_share_a_sync() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "first", &pattern(1, 10)).await;
    disk.hold_syncs(true);
    let first = spawn_put(&store, "a", Durability::Fsync);
    settle().await;
    let others: Vec<_> = (0..50).map(|index| spawn_put(&store, &format!("o{index}"), Durability::Fsync)).collect();
    settle().await;
    let before = (disk.syncs(), store.counters().group_commits);
    disk.hold_syncs(false);
    first.join().await.unwrap();
    for other in others {
        other.join().await.unwrap();
    }
    assert_eq!(disk.syncs() - before.0, 2, "one for the first, one for all others");
    assert_eq!(store.counters().group_commits - before.1, 2);
    assert_eq!(store.counters().commits, 52);
}

#[tokio::test]
async fn a_failed_sync_is_answered_with_no_ack_and_never_tried_again() {
    for seed in 0..10 {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        put(&store, "good", &pattern(1, 100)).await;
        disk.hold_syncs(true);
        let first = spawn_put(&store, "a", Durability::Fsync);
        settle().await;
        let batch: Vec<_> = (0..5).map(|index| spawn_put(&store, &format!("b{index}"), Durability::Fsync)).collect();
        settle().await;
        disk.fail_syncs(1);
        disk.hold_syncs(false);
        check_error(first.join().await, ErrorKind::Failed, "sync");
        for other in batch {
            check_error(other.join().await, ErrorKind::Failed, "no more writes");
        }
        let syncs = disk.syncs();
        check_error(try_put(&store, "late", &pattern(1, 10)).await, ErrorKind::Failed, "no directory takes writes");
        assert_eq!(disk.syncs(), syncs, "no sync is tried again");
        assert!(store.health()[0].failed.as_ref().unwrap().contains("could not sync"));
        assert_eq!(read(&store, "good").await.unwrap(), pattern(1, 100), "reads continue");
        assert!(store.peek(b"a").is_none());
        assert!(store.close().await.is_err());
        disk.power_loss(seed);
        let store = open(&disk).await;
        assert_eq!(read(&store, "good").await.unwrap(), pattern(1, 100));
        assert!(read(&store, "a").await.is_none_or(|data| data == pattern(1, 100)));
        assert!(store.health()[0].failed.is_none());
    }
}

/// The bytes may be only in memory, where no later sync finds them.
#[tokio::test]
async fn what_a_start_finds_behind_a_failed_sync_is_written_again() {
    for seed in 0..10 {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        put(&store, "good", &pattern(1, 100)).await;
        disk.fail_syncs(1);
        check_error(try_put(&store, "a", &pattern(2, 100)).await, ErrorKind::Failed, "sync");
        disk.kill();
        assert_eq!(read(&open(&disk).await, "a").await.unwrap(), pattern(2, 100));
        disk.power_loss(seed);
        assert_eq!(read(&open(&disk).await, "a").await, Some(pattern(2, 100)), "seed {seed}");
    }
}

/// The header of a log whose first sync failed is also written again: the list of logs names this log once the next one
/// begins.
#[tokio::test]
async fn a_header_behind_a_failed_sync_is_written_again() {
    for seed in 0..10 {
        let disks = [MemoryDisk::default(), MemoryDisk::default()];
        let store = try_open_all(&disks, two()).await.unwrap();
        disks.iter().for_each(|disk| disk.fail_syncs(1));
        // The process also can't take the file away.
        disks.iter().for_each(|disk| disk.fail_removes(true));
        for key in ["a", "b"] {
            check_error(try_put(&store, key, &pattern(1, 100)).await, ErrorKind::Failed, "sync");
        }
        let is_begun = |disk: &MemoryDisk| disk.contents("00000001.log").is_some_and(|log| log.len() == 64);
        assert!(disks.iter().any(is_begun), "a log of which there is only the header");
        for disk in &disks {
            disk.kill();
            disk.fail_removes(false);
        }
        let store = try_open_all(&disks, two()).await.unwrap();
        for index in 0..8 {
            put(&store, &format!("after{index}"), &pattern(index, 100)).await;
        }
        disks.iter().for_each(|disk| disk.power_loss(seed));
        let store = try_open_all(&disks, two()).await.unwrap();
        for index in 0..8 {
            assert_eq!(read(&store, &format!("after{index}")).await, Some(pattern(index, 100)), "seed {seed}");
        }
    }
}

#[tokio::test]
async fn a_failed_sync_of_extents_fails_all_who_share_it() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "good", &pattern(1, 20_000)).await;
    let staged = [
        stage(&store, "a", &pattern(2, 20_000)).await.unwrap(),
        stage(&store, "b", &pattern(3, 20_000)).await.unwrap(),
    ];
    disk.hold_syncs(true);
    let commits = staged.map(|staged| {
        let (store, publish) = (store.clone(), vec![staged]);
        forebay_env::spawn(
            async move { store.commit(Commit { publish, ..Commit::default() }, Durability::Fsync).await },
        )
    });
    settle().await;
    let syncs = disk.syncs();
    disk.fail_syncs(1);
    disk.hold_syncs(false);
    for commit in commits {
        check_error(commit.join().await, ErrorKind::Failed, "sync extents");
    }
    assert_eq!(disk.syncs(), syncs + 1, "the failed sync was not tried again");
    assert_eq!(read(&store, "good").await.unwrap(), pattern(1, 20_000));
    assert!(store.peek(b"a").is_none() && store.peek(b"b").is_none());
}

#[tokio::test]
async fn one_failed_directory_leaves_the_others_at_work() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let store = try_open_all(&disks, two()).await.unwrap();
    for index in 0..10 {
        put(&store, &format!("before{index}"), &pattern(index, 100)).await;
    }
    disks[0].fail_syncs(u32::MAX);
    let mut acked = Vec::new();
    for index in 10..30 {
        match try_put(&store, &format!("after{index}"), &pattern(index, 100)).await {
            Ok(_) => acked.push(index),
            Err(error) => assert_eq!(error.kind, ErrorKind::Failed),
        }
    }
    assert!(acked.len() >= 19, "only the commit that met the failure was refused: {acked:?}");
    assert_eq!(store.health().iter().filter(|health| health.failed.is_some()).count(), 1);
    store.close().await.unwrap();
    disks.iter().for_each(|disk| disk.power_loss(5));
    let store = try_open_all(&disks, two()).await.unwrap();
    for index in 0..10 {
        assert_eq!(read(&store, &format!("before{index}")).await.unwrap(), pattern(index, 100));
    }
    for index in acked {
        assert_eq!(read(&store, &format!("after{index}")).await.unwrap(), pattern(index, 100));
    }
}

/// A segment whose name may not survive gets no acknowledged record: neither the first one of a start nor a later one.
#[tokio::test]
async fn what_is_acknowledged_survives_a_failed_sync_of_the_directory() {
    let body = |index: u64| pattern(index, if index.is_multiple_of(10) { 20_000 } else { 900 });
    for (seed, begun) in (0..10).flat_map(|seed| [(seed, 0), (seed, 10)]) {
        let disks = [MemoryDisk::default(), MemoryDisk::default()];
        let store = try_open_all(&disks, two()).await.unwrap();
        for index in 0..begun {
            put(&store, &format!("o{index}"), &body(index)).await;
        }
        disks[0].fail_directory_syncs(u32::MAX);
        let mut acked: Vec<u64> = (0..begun).collect();
        for index in begun..200 {
            match try_put(&store, &format!("o{index}"), &body(index)).await {
                Ok(_) => acked.push(index),
                Err(error) => assert_eq!(error.kind, ErrorKind::Failed, "{error}"),
            }
        }
        assert!(acked.len() > 190, "the other directory continues: {}", acked.len());
        let failed: Vec<_> = store.health().iter().map(|health| health.failed.is_some()).collect();
        assert_eq!(failed, [true, false]);
        drop(store);
        disks.iter().for_each(|disk| disk.power_loss(seed));
        let store = try_open_all(&disks, two()).await.unwrap();
        for index in acked {
            assert_eq!(read(&store, &format!("o{index}")).await, Some(body(index)), "seed {seed}, object {index}");
        }
    }
}

/// For two directories.
fn two() -> Settings {
    Settings { capacity_bytes: vec![4 << 20, 4 << 20], ..small() }
}

/// A store in which one directory has failed during a commit, which was not acknowledged.
async fn with_failed_sync(disks: &[MemoryDisk], commit: impl AsyncFnOnce(&Store) -> Result<u64>) -> Store {
    let store = try_open_all(disks, two()).await.unwrap();
    for index in 0..4 {
        put(&store, &format!("before{index}"), &pattern(index, 100)).await;
    }
    disks.iter().for_each(|disk| disk.fail_syncs(1));
    check_error(commit(&store).await, ErrorKind::Failed, "sync");
    disks.iter().for_each(|disk| disk.fail_syncs(0));
    store
}

#[tokio::test]
async fn a_synced_write_needs_no_other_sync_unless_something_was_written_meanwhile() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "a", &pattern(1, 20_000)).await;
    let segment = store.inner.volumes[0].directory.segment(1).unwrap();
    let end = segment.length();
    segment.write_synced(end, vec![pattern(2, 100)]).await.unwrap();
    let syncs = disk.syncs();
    segment.sync().await.unwrap();
    assert_eq!(disk.syncs(), syncs, "nothing was written since");
    disk.hold_syncs(true);
    let first = Arc::clone(&segment);
    let first = forebay_env::spawn(async move { first.write_synced(end + 100, vec![pattern(3, 100)]).await });
    settle().await;
    segment.write(end + 200, vec![pattern(4, 100)]).await.unwrap();
    let second = Arc::clone(&segment);
    let second = forebay_env::spawn(async move { second.sync().await });
    settle().await;
    disk.hold_syncs(false);
    first.join().await.unwrap();
    second.join().await.unwrap();
    assert_eq!(disk.syncs(), syncs + 2, "the first one may have begun before");
}

/// A sync fails in one directory while another one takes the snapshot.
#[tokio::test]
async fn a_snapshot_during_which_a_directory_fails_is_not_used() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let store = try_open_all(&disks, two()).await.unwrap();
    put(&store, "a", &pattern(1, 100)).await;
    let snapshots = store.counters().snapshots;
    disks.iter().for_each(|disk| disk.hold_syncs(true));
    let taking = store.clone();
    let taking = forebay_env::spawn(async move { taking.inner.snapshot().await });
    settle().await;
    store.inner.volumes[1].directory.fail("a sync of somebody else failed");
    disks.iter().for_each(|disk| disk.hold_syncs(false));
    check_error(taking.join().await, ErrorKind::Failed, "a directory failed");
    assert_eq!(store.counters().snapshots, snapshots);
    for disk in &disks {
        assert_eq!(files(disk, "snapshot.new").await, Vec::<String>::new(), "it takes room that commits need");
    }
    store.inner.snapshot().await.unwrap();
    assert_eq!(store.counters().snapshots, snapshots + 1, "what failed before is not in its way");
}

/// Reclaim waits for it, and the next try does not need the directory.
#[tokio::test]
async fn a_snapshot_is_begun_again_without_the_directory_that_failed() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let store = try_open_all(&disks, two()).await.unwrap();
    put(&store, "a", &pattern(1, 100)).await;
    let snapshots = store.counters().snapshots;
    disks.iter().for_each(|disk| disk.hold_syncs(true));
    let taking = store.clone();
    let taking = forebay_env::spawn(async move { taking.inner.try_snapshot("because a test wants one").await });
    settle().await;
    store.inner.volumes[1].directory.fail("a sync of somebody else failed");
    disks.iter().for_each(|disk| disk.hold_syncs(false));
    assert!(taking.join().await);
    assert_eq!(store.counters().snapshots, snapshots + 1);
}

/// The value in the same commit names the pinned object, and a fill that came later would leave it without bytes.
#[tokio::test]
async fn a_commit_that_survives_a_failed_sync_keeps_its_object() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let store = with_failed_sync(&disks, async |store| try_put(store, "key", &pattern(1, 100)).await).await;
    put_fill(&store, "key", &pattern(2, 100)).await;
    assert_eq!(read(&store, "key").await.unwrap(), pattern(2, 100));
    drop(store);
    let store = try_open_all(&disks, two()).await.unwrap();
    assert!(store.peek(b"key").unwrap().is_pinned());
    assert_eq!(read(&store, "key").await.unwrap(), pattern(1, 100));
}

/// A store, and the clock that its log waits by.
async fn open_with_clock(disk: &MemoryDisk) -> (Store, Arc<ManualClock>) {
    let (env, clock) = Env::simulated(1);
    let store = Store::open(env, vec![Arc::new(disk.clone()) as Arc<dyn Disk>], small(), None).await.unwrap();
    put(&store, "first", &pattern(1, 10)).await;
    (store, clock)
}

fn spawn_patient(store: &Store, key: &'static str) -> forebay_env::Task<Result<u64>> {
    let store = store.clone();
    forebay_env::spawn(async move {
        let commit = Commit { writes: vec![write(key, Some("value"))], may_wait: true, ..Commit::default() };
        store.commit(commit, Durability::Fsync).await
    })
}

#[tokio::test]
async fn a_commit_that_may_wait_shares_the_sync_of_the_next_one() {
    let disk = MemoryDisk::default();
    let (store, _clock) = open_with_clock(&disk).await;
    let syncs = disk.syncs();
    let patient = spawn_patient(&store, "a");
    settle().await;
    assert!(!patient.is_finished(), "it is not on stable storage");
    assert_eq!((disk.syncs(), value(&store, "a")), (syncs, None));
    put(&store, "b", &pattern(1, 10)).await;
    patient.join().await.unwrap();
    assert_eq!((disk.syncs(), value(&store, "a").as_deref()), (syncs + 1, Some("value")));
    disk.power_loss(1);
    assert_eq!(value(&open(&disk).await, "a").as_deref(), Some("value"));
}

#[tokio::test]
async fn a_commit_that_may_wait_does_not_wait_for_long() {
    let disk = MemoryDisk::default();
    let (store, clock) = open_with_clock(&disk).await;
    let syncs = disk.syncs();
    let all: Vec<_> = ["a", "b"].map(|key| spawn_patient(&store, key)).into();
    settle().await;
    spawn_put(&store, "unsynced", Durability::Os).join().await.unwrap();
    assert_eq!(disk.syncs(), syncs);
    clock.advance(Duration::from_millis(5));
    for patient in all {
        patient.join().await.unwrap();
    }
    assert_eq!(disk.syncs(), syncs + 1, "one for both");
}

#[tokio::test]
async fn a_commit_that_may_wait_ends_with_its_store() {
    let disk = MemoryDisk::default();
    let (store, _clock) = open_with_clock(&disk).await;
    let patient = spawn_patient(&store, "a");
    settle().await;
    store.close().await.unwrap();
    patient.join().await.unwrap();
    assert_eq!(value(&open(&disk).await, "a").as_deref(), Some("value"));
}

/// Nobody knows what of it is on the disk, not even after a later sync.
#[tokio::test]
async fn a_commit_that_may_wait_fails_with_the_sync_of_the_next_one() {
    let disk = MemoryDisk::default();
    let (store, clock) = open_with_clock(&disk).await;
    let patient = spawn_patient(&store, "a");
    settle().await;
    disk.fail_syncs(1);
    check_error(try_put(&store, "b", &pattern(1, 10)).await, ErrorKind::Failed, "sync");
    clock.advance(Duration::from_millis(5));
    check_error(patient.join().await, ErrorKind::Failed, "sync");
    assert_eq!(value(&store, "a"), None);
}

/// The next start finds it synced: the segment was synced before there was another one.
#[tokio::test]
async fn a_commit_that_may_wait_is_synced_with_its_segment() {
    let disk = MemoryDisk::default();
    let (store, clock) = open_with_clock(&disk).await;
    let patient = spawn_patient(&store, "a");
    settle().await;
    for index in 0..100 {
        spawn_put(&store, &format!("o{index}"), Durability::Os).join().await.unwrap();
        let publish = vec![stage(&store, "large", &pattern(1, 1000)).await.unwrap()];
        store.commit(Commit { publish, ..Commit::default() }, Durability::Os).await.unwrap();
    }
    assert!(files(&disk, ".log").await.len() > 1, "the log has continued in another segment");
    clock.advance(Duration::from_millis(5));
    patient.join().await.unwrap();
    disk.power_loss(2);
    assert_eq!(value(&open(&disk).await, "a").as_deref(), Some("value"));
}

/// The snapshot shows neither the unacknowledged value nor that it was deleted later, in another directory.
#[tokio::test]
async fn what_got_no_answer_is_not_replayed_behind_a_snapshot() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let commit = Commit { writes: vec![write("key", Some("value"))], ..Commit::default() };
    let store = with_failed_sync(&disks, async |store| store.commit(commit, Durability::Fsync).await).await;
    write_value(&store, "key", None).await;
    store.close().await.unwrap();
    let store = try_open_all(&disks, two()).await.unwrap();
    assert_eq!(value(&store, "key"), None);
    assert_eq!(store.health().iter().filter(|health| health.failed.is_some()).count(), 0);
}

/// The log's length after each of a few commits that publish an object of this size.
async fn lengths_after_commits(object_bytes: usize) -> Vec<usize> {
    let disk = MemoryDisk::default();
    let store =
        try_open_all(std::slice::from_ref(&disk), Settings { inline_bytes_max: 16 << 10, ..small() }).await.unwrap();
    let mut lengths = Vec::new();
    for index in 0..4 {
        put(&store, &format!("key{index}"), &pattern(index, object_bytes)).await;
        lengths.push(disk.contents(&files(&disk, ".log").await[0]).unwrap().len());
    }
    drop(store);
    let store = open(&disk).await;
    for index in 0..4 {
        assert_eq!(read(&store, &format!("key{index}")).await.unwrap(), pattern(index, object_bytes));
    }
    lengths
}

#[tokio::test]
async fn no_page_of_a_log_is_written_twice_where_that_wastes_little() {
    let lengths = lengths_after_commits(10 << 10).await;
    assert!(lengths.iter().all(|length| length % 4096 == 0), "{lengths:?}");
    let lengths = lengths_after_commits(1 << 10).await;
    assert!(lengths[3] < 2 * 4096, "small objects share pages: {lengths:?}");
}

/// Later commits were made without it: an object of the one next to a value of the other would be inconsistent.
#[tokio::test]
async fn what_got_no_answer_is_void_when_other_commits_follow() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let store = with_failed_sync(&disks, async |store| try_put(store, "before0", &pattern(9, 100)).await).await;
    write_value(&store, "later", Some("value")).await;
    drop(store);
    // The first start finds all of it, and the second one what the first has left.
    for _ in 0..2 {
        let store = try_open_all(&disks, two()).await.unwrap();
        assert_eq!(read(&store, "before0").await.unwrap(), pattern(0, 100));
        assert_eq!(value(&store, "later").as_deref(), Some("value"));
    }
}

/// The log with the record of the abort goes, and the log that holds the commit stays.
#[tokio::test]
async fn what_is_aborted_stays_so_when_the_log_that_says_it_is_reclaimed() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let store = with_failed_sync(&disks, async |store| try_put(store, "before0", &pattern(9, 100)).await).await;
    write_value(&store, "later", Some("value")).await;
    let healthy = store.inner.volumes.iter().position(|volume| volume.directory.failed().is_none()).unwrap();
    let directory = &store.inner.volumes[healthy].directory;
    for _ in 0..2 {
        let log = store.inner.values.get(b"later", |row| row.segment.number).unwrap();
        while !directory.segment(log).unwrap().is_sealed() {
            put(&store, "churn", &pattern(2, 900)).await;
        }
        reclaim_in(&store, healthy, log).await.unwrap();
    }
    drop(store);
    let store = try_open_all(&disks, two()).await.unwrap();
    assert_eq!(read(&store, "before0").await.unwrap(), pattern(0, 100));
    assert_eq!(value(&store, "later").as_deref(), Some("value"));
}

/// The log of the failed directory holds one commit that waited to share the sync of another, and that other commit.
#[tokio::test]
async fn what_waited_for_a_sync_that_failed_is_void_too() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let (env, clock) = Env::simulated(1);
    let both = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    let store = Store::open(env, both, two(), None).await.unwrap();
    let patients = ["a", "b"].map(|key| (key, spawn_patient(&store, key)));
    settle().await;
    disks.iter().for_each(|disk| disk.fail_syncs(1));
    check_error(try_put(&store, "c", &pattern(1, 10)).await, ErrorKind::Failed, "sync");
    disks.iter().for_each(|disk| disk.fail_syncs(0));
    clock.advance(Duration::from_millis(5));
    let mut held = Vec::new();
    for (key, patient) in patients {
        held.push((key, patient.join().await.is_ok()));
    }
    assert_eq!(held.iter().filter(|(_, holds)| *holds).count(), 1, "they went to both directories");
    write_value(&store, "later", Some("value")).await;
    drop(store);
    let store = try_open_all(&disks, two()).await.unwrap();
    for (key, holds) in held {
        assert_eq!(value(&store, key).is_some(), holds, "{key}");
    }
    assert_eq!(read(&store, "c").await, None);
}

/// After the next start nobody has to know of it, whatever came after it.
#[tokio::test]
async fn what_is_aborted_is_cut_off() {
    for bytes in (1000..7000).step_by(500) {
        let disks = [MemoryDisk::default(), MemoryDisk::default()];
        let mut before = Vec::new();
        let store = with_failed_sync(&disks, async |store| {
            before = disks.iter().map(|disk| disk.contents("00000001.log").unwrap().len()).collect();
            let writes = vec![write("key", Some(&"x".repeat(bytes)))];
            store.commit(Commit { writes, ..Commit::default() }, Durability::Fsync).await
        })
        .await;
        write_value(&store, "later", Some("value")).await;
        drop(store);
        drop(try_open_all(&disks, two()).await.unwrap());
        let after: Vec<_> = disks.iter().map(|disk| disk.contents("00000001.log").unwrap().len()).collect();
        let (same, longer): (Vec<_>, Vec<_>) = before.iter().zip(&after).partition(|(before, after)| before == after);
        assert_eq!((same.len(), longer.len()), (1, 1), "{bytes}: {before:?}, {after:?}");
    }
}

/// Two snapshots cover the log of the failed directory, and the log that first said what is aborted.
#[tokio::test]
async fn what_is_aborted_is_cut_off_behind_snapshots_too() {
    for seed in 0..10 {
        let disks = [MemoryDisk::default(), MemoryDisk::default()];
        let length = |disk: &MemoryDisk| disk.contents("00000001.log").unwrap().len();
        let mut before = Vec::new();
        let store = with_failed_sync(&disks, async |store| {
            before = disks.iter().map(length).collect();
            let forget = (0..4).map(|index| Bytes::from(format!("before{index}"))).collect();
            store.commit(Commit { forget, ..Commit::default() }, Durability::Fsync).await
        })
        .await;
        let failed = store.inner.volumes.iter().position(|volume| volume.directory.failed().is_some()).unwrap();
        for _ in 0..2 {
            write_value(&store, "later", Some("value")).await;
            store.inner.snapshot().await.unwrap();
        }
        drop(store);
        if seed == 0 {
            disks.iter().for_each(MemoryDisk::kill);
            assert!(length(&disks[failed]) > before[failed], "all of it is there");
        } else {
            disks.iter().for_each(|disk| disk.power_loss(seed));
        }
        let store = try_open_all(&disks, two()).await.unwrap();
        assert_eq!(length(&disks[failed]), before[failed], "seed {seed}");
        // Its log can go like any other, and nothing remains of what was aborted.
        reclaim_in(&store, failed, 1).await.unwrap();
        drop(store);
        for disk in &disks {
            disk.kill();
            let _only_one_has_it = disk.remove("snapshot").await;
        }
        let store = try_open_all(&disks, two()).await.unwrap();
        for index in 0..4 {
            assert_eq!(read(&store, &format!("before{index}")).await, Some(pattern(index, 100)), "seed {seed}");
        }
        assert_eq!(value(&store, "later").as_deref(), Some("value"));
    }
}

/// The other log has written nothing in this process before the snapshot, so its sync alone would need no record.
#[tokio::test]
async fn a_log_that_is_not_begun_says_what_is_aborted() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let length = |disk: &MemoryDisk| disk.contents("00000001.log").map_or(0, |log| log.len());
    let store = try_open_all(&disks, two()).await.unwrap();
    let append = |index: usize, until: Until| {
        let draft = CommitBody { forget: vec![b"key".to_vec()], ..CommitBody::default() }.draft();
        store.inner.volumes[index].log.append(vec![draft], until)
    };
    drop(append(0, Until::Synced).await.unwrap());
    let before = length(&disks[0]);
    disks[0].fail_syncs(1);
    check_error(append(0, Until::Synced).await.map(drop), ErrorKind::Failed, "sync");
    assert_eq!(length(&disks[1]), 0);
    store.inner.snapshot().await.unwrap();
    disks.iter().for_each(MemoryDisk::kill);
    drop(store);
    let _store = try_open_all(&disks, two()).await.unwrap();
    assert_eq!(length(&disks[0]), before);
}

/// It is not at the end of its log, where a start could cut it off: another commit that waited for no sync follows it.
#[tokio::test]
async fn what_is_aborted_is_not_carried() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "key", &pattern(1, 100)).await;
    let log = &store.inner.volumes[0].log;
    log.seal().await.unwrap();
    // The tables do not show it, like a commit whose sync failed.
    let forget = CommitBody { forget: vec![b"key".to_vec()], ..CommitBody::default() };
    let appended = log.append(vec![forget.draft()], Until::Synced).await.unwrap();
    let (segment, sequence) = (appended.locations[0].segment, appended.sequences[0]);
    drop(appended);
    store.inner.aborted.add([AbortBody { segment, first: sequence, last: sequence }]);
    put(&store, "other", &pattern(2, 100)).await;
    log.seal().await.unwrap();
    reclaim_in(&store, 0, segment.number).await.unwrap();
    drop(store);
    let store = open(&disk).await;
    assert_eq!(read(&store, "key").await, Some(pattern(1, 100)));
    assert_eq!(read(&store, "other").await, Some(pattern(2, 100)));
}

async fn open_two(disks: &[MemoryDisk]) -> (Store, Arc<ManualClock>) {
    let (env, clock) = Env::simulated(1);
    let shared = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    (Store::open(env, shared, two(), None).await.expect("a store of two directories"), clock)
}

/// Leaves two directories after a crash. A commit that would delete an object has met a failed sync. It is not at the
/// end of its log, where a start could cut it off: another commit that waited for no sync follows it.
async fn crash_with_abort_that_stays(disks: &[MemoryDisk]) {
    let (store, clock) = open_two(disks).await;
    put(&store, "key", &pattern(1, 100)).await;
    let patient = store.clone();
    let patient = forebay_env::spawn(async move {
        let forget = CommitBody { forget: vec![b"key".to_vec()], ..CommitBody::default() };
        patient.inner.volumes[0].log.append(vec![forget.draft()], Until::SyncedSoon).await.map(drop)
    });
    settle().await;
    let behind = vec![CommitBody::default().draft()];
    drop(store.inner.volumes[0].log.append(behind, Until::Written).await.expect("it waits for no sync"));
    disks[0].fail_syncs(1);
    clock.advance(Duration::from_millis(5));
    check_error(patient.join().await, ErrorKind::Failed, "sync");
    // The other log says what is aborted.
    write_value(&store, "later", Some("value")).await;
    disks.iter().for_each(MemoryDisk::kill);
}

/// Aborts that the logs of a store record, in all segments.
async fn recorded_aborts(store: &Store) -> usize {
    let mut count = 0;
    for volume in &store.inner.volumes {
        let segments: Vec<_> = volume.directory.segments.read().values().cloned().collect();
        for log in segments.iter().filter(|segment| segment.header.kind == SegmentKind::Log) {
            let mut scan = Scan::new(log, SEGMENT_HEADER_BYTES).await.expect("its length is known");
            while let Some(record) = scan.next().await.expect("it can be read") {
                count += usize::from(record.is(Kind::Abort));
            }
        }
    }
    count
}

/// The last snapshot lets the logs record the abort again, after the positions from which the next start replays.
#[tokio::test]
async fn a_stop_is_clean_although_an_aborted_commit_stays() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    crash_with_abort_that_stays(&disks).await;
    for (index, was_closed) in [false, true, true, true].into_iter().enumerate() {
        let store = try_open_all(&disks, two()).await.unwrap();
        assert_eq!((store.was_closed(), store.inner.aborted.count()), (was_closed, 1), "start {index}");
        assert_eq!(read(&store, "key").await, Some(pattern(1, 100)));
        if index.is_multiple_of(2) {
            write_value(&store, "more", Some("value")).await;
        }
        store.close().await.unwrap();
    }
    // What the last snapshot does not show is never taken for a clean stop.
    let store = try_open_all(&disks, two()).await.unwrap();
    write_value(&store, "more", Some("newer")).await;
    store.inner.snapshot().await.unwrap();
    assert!(!store.inner.has_news());
    write_value(&store, "more", Some("newest")).await;
    assert!(store.inner.has_news());
}

#[tokio::test]
async fn an_idle_store_with_an_aborted_commit_writes_no_snapshots() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    crash_with_abort_that_stays(&disks).await;
    // Only the first start replays changes that no snapshot shows.
    for snapshots in [1, 0] {
        let (store, clock) = open_two(&disks).await;
        for _ in 0..3 {
            clock.advance(Duration::from_secs(610));
            rest(&store).await;
        }
        assert_eq!(store.counters().snapshots, snapshots);
        assert_eq!(store.inner.aborted.count(), 1);
        store.close().await.unwrap();
    }
}

/// Each log records the abort again at each snapshot, and a start reads it in all of them.
#[tokio::test]
async fn what_is_aborted_is_recorded_once_per_log_however_often_the_store_crashes() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    crash_with_abort_that_stays(&disks).await;
    for crash in 0..6 {
        let store = try_open_all(&disks, two()).await.unwrap();
        assert_eq!(store.inner.aborted.count(), 1, "crash {crash}");
        assert_eq!(read(&store, "key").await, Some(pattern(1, 100)));
        let before = recorded_aborts(&store).await;
        store.inner.snapshot().await.unwrap();
        assert_eq!(recorded_aborts(&store).await, before + 2, "crash {crash}");
        disks.iter().for_each(MemoryDisk::kill);
    }
}
