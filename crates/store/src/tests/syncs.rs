//! What is waited for, and what a failed sync does.

use super::*;

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
        assert_eq!(read(&store, "good").await.unwrap(), pattern(1, 100), "reads go on");
        assert!(store.peek(b"a").is_none());
        assert!(store.close().await.is_err());
        disk.power_loss(seed);
        let store = open(&disk).await;
        assert_eq!(read(&store, "good").await.unwrap(), pattern(1, 100));
        assert!(read(&store, "a").await.is_none_or(|data| data == pattern(1, 100)));
        assert!(store.health()[0].failed.is_none());
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
    let settings = || Settings { capacity_bytes: vec![4 << 20, 4 << 20], ..small() };
    let store = try_open_all(&disks, settings()).await.unwrap();
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
    let store = try_open_all(&disks, settings()).await.unwrap();
    for index in 0..10 {
        assert_eq!(read(&store, &format!("before{index}")).await.unwrap(), pattern(index, 100));
    }
    for index in acked {
        assert_eq!(read(&store, &format!("after{index}")).await.unwrap(), pattern(index, 100));
    }
}

/// The value that the same commit wrote names the pinned object, and a fill that came later would leave it without bytes.
#[tokio::test]
async fn a_commit_that_survives_a_failed_sync_keeps_its_object() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let settings = || Settings { capacity_bytes: vec![4 << 20, 4 << 20], ..small() };
    let store = try_open_all(&disks, settings()).await.unwrap();
    for index in 0..4 {
        put(&store, &format!("before{index}"), &pattern(index, 100)).await;
    }
    disks.iter().for_each(|disk| disk.fail_syncs(1));
    check_error(try_put(&store, "key", &pattern(1, 100)).await, ErrorKind::Failed, "sync");
    disks.iter().for_each(|disk| disk.fail_syncs(0));
    put_fill(&store, "key", &pattern(2, 100)).await;
    assert_eq!(read(&store, "key").await.unwrap(), pattern(2, 100));
    drop(store);
    let store = try_open_all(&disks, settings()).await.unwrap();
    assert!(store.peek(b"key").unwrap().is_pinned());
    assert_eq!(read(&store, "key").await.unwrap(), pattern(1, 100));
}
