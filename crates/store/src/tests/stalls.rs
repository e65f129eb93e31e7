//! Disks that do not answer for a long time.

use forebay_env::Task;

use super::*;
use crate::{STALLED_AFTER, Shortage, Stalled};

fn begin_put(store: &Store, key: &str, size: usize) -> Task<Result<u64>> {
    let (store, key) = (store.clone(), key.to_owned());
    forebay_env::spawn(async move { try_put(&store, &key, &pattern(7, size)).await })
}

#[tokio::test]
async fn writes_go_to_a_disk_that_answers() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let settings = Settings { capacity_bytes: vec![4 << 20; 2], ..small() };
    let (env, clock) = Env::simulated(1);
    let both = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    let store = Store::open(env, both, settings, None).await.unwrap();
    disks[0].hold_syncs(true);
    let waiting = [begin_put(&store, "a", 100), begin_put(&store, "b", 100)];
    settle().await;
    let has_waited = waiting.iter().filter(|put| !put.is_finished()).count();
    assert_eq!((has_waited, store.stalled()), (1, Stalled::Nowhere), "equal disks take turns");
    clock.advance(STALLED_AFTER);
    assert_eq!(store.stalled(), Stalled::Somewhere);
    for index in 0..10 {
        let put = begin_put(&store, &format!("{index}"), 1000 * index);
        settle().await;
        assert!(put.is_finished(), "{index}");
        put.join().await.unwrap();
    }
    disks[1].hold_syncs(true);
    let last = begin_put(&store, "last", 100);
    settle().await;
    clock.advance(STALLED_AFTER);
    assert_eq!(store.stalled(), Stalled::Everywhere);
    disks.iter().for_each(|disk| disk.hold_syncs(false));
    for put in waiting.into_iter().chain([last]) {
        put.join().await.unwrap();
    }
    assert_eq!(store.stalled(), Stalled::Nowhere);
    assert_eq!(read(&store, "a").await, read(&store, "last").await);
}

#[tokio::test]
async fn a_large_object_does_not_wait_for_a_disk_that_does_not_answer() {
    let disk = MemoryDisk::default();
    let (env, clock) = Env::simulated(1);
    let store = Store::open(env, vec![Arc::new(disk.clone())], small(), None).await.unwrap();
    // Its first extent needs a new segment, whose header must be durable.
    disk.hold_syncs(true);
    let put = begin_put(&store, "large", 20_000);
    settle().await;
    clock.advance(STALLED_AFTER - std::time::Duration::from_millis(1));
    settle().await;
    assert!(!put.is_finished());
    clock.advance(std::time::Duration::from_millis(1));
    settle().await;
    assert!(put.is_finished());
    check_error(put.join().await, ErrorKind::Busy, "does not answer");
    assert_eq!(store.stalled(), Stalled::Everywhere, "what it was asked is still to be answered");
    for class in [Class::Durable, Class::Fill] {
        let object = named(&store, "next", 20_000);
        let next = stage_as(&store, class, object, &pattern(9, 20_000)).await;
        check_error(next.map(drop), ErrorKind::Busy, "does not answer");
    }
    disk.hold_syncs(false);
    settle().await;
    assert_eq!(store.stalled(), Stalled::Nowhere);
    assert!(store.peek(b"large").is_none());
    super::put(&store, "large", &pattern(8, 20_000)).await;
    assert_eq!(read(&store, "large").await.unwrap(), pattern(8, 20_000));
}

/// Readers need no copy, so they wait neither for one nor for the memory that it takes.
#[tokio::test]
async fn a_fill_does_not_wait_for_a_disk_that_does_not_answer() {
    let disk = MemoryDisk::default();
    let (env, clock) = Env::simulated(1);
    let settings = Settings { write_buffer_bytes_max: 4 << 10, ..small() };
    let store = Store::open(env, vec![Arc::new(disk.clone())], settings, None).await.unwrap();
    put(&store, "before", &pattern(1, 10)).await;
    disk.hold_syncs(true);
    let fills: Vec<_> = (0..3u64)
        .map(|index| {
            let store = store.clone();
            forebay_env::spawn(async move {
                let object = NewObject { pinned: false, ..named(&store, "clean", 100) };
                if index == 0 {
                    let staged = stage_as(&store, Class::Fill, object, &pattern(index, 100)).await?;
                    return store.publish_fill(staged).await;
                }
                store.fill(b"before", generation(&store, "before"), index, pattern(index, 100)).await.map(drop)
            })
        })
        .collect();
    settle().await;
    assert!(fills.iter().all(|fill| !fill.is_finished()));
    clock.advance(STALLED_AFTER);
    for fill in fills {
        check_error(fill.join().await, ErrorKind::Busy, "does not answer");
    }
    disk.hold_syncs(false);
    settle().await;
    put_fill(&store, "clean", &pattern(5, 100)).await;
    assert_eq!(read(&store, "clean").await.unwrap(), pattern(5, 100));
}

/// Its body came slowly, and the disk that was chosen at the beginning has stalled.
#[tokio::test]
async fn a_small_object_goes_to_a_disk_that_answers_at_its_end() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let (env, clock) = Env::simulated(1);
    let both = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    let settings = Settings { capacity_bytes: vec![4 << 20; 2], ..small() };
    let store = Store::open(env, both, settings, None).await.unwrap();
    let writers = [store.writer(Class::Durable, 9).await.unwrap(), store.writer(Class::Durable, 9).await.unwrap()];
    disks[1].hold_syncs(true);
    let waiting = [begin_put(&store, "a", 100), begin_put(&store, "b", 100)];
    settle().await;
    clock.advance(STALLED_AFTER);
    assert_eq!(store.stalled(), Stalled::Somewhere);
    for (index, mut writer) in writers.into_iter().enumerate() {
        writer.append(pattern(index as u64, 9)).await.unwrap();
        let staged = writer.finish(named(&store, &format!("{index}"), 9)).await.unwrap();
        let commit = Commit { publish: vec![staged], ..Commit::default() };
        store.commit(commit, Durability::Fsync).await.unwrap();
    }
    disks[1].hold_syncs(false);
    for put in waiting {
        put.join().await.unwrap();
    }
}

/// A caller that has given up a fill may delete the object. The fill comes before that in the log, whenever the disk
/// gets to it.
#[tokio::test]
async fn a_fill_that_was_given_up_does_not_bring_back_what_was_forgotten_since() {
    let disk = MemoryDisk::default();
    let (env, clock) = Env::simulated(1);
    let store = Store::open(env, vec![Arc::new(disk.clone())], small(), None).await.unwrap();
    // Opens the log, so that a commit needs no new segment.
    put(&store, "other", &pattern(1, 10)).await;
    disk.hold_syncs(true);
    let filling = store.clone();
    let fill = forebay_env::spawn(async move {
        let object = NewObject { pinned: false, ..named(&filling, "key", 100) };
        let staged = stage_as(&filling, Class::Fill, object, &pattern(2, 100)).await?;
        filling.publish_fill(staged).await
    });
    settle().await;
    let forgetting = store.clone();
    let forgotten = forebay_env::spawn(async move { forget(&forgetting, "key").await });
    settle().await;
    clock.advance(STALLED_AFTER);
    check_error(fill.join().await, ErrorKind::Busy, "does not answer");
    disk.hold_syncs(false);
    forgotten.join().await;
    settle().await;
    assert!(store.peek("key".as_bytes()).is_none());
    disk.kill();
    let store = open(&disk).await;
    assert!(store.peek("key".as_bytes()).is_none(), "the deleted object is back");
    assert_eq!(read(&store, "other").await.unwrap(), pattern(1, 10));
}

/// A snapshot that is made while the disk has the record counts it as dropped. Reclaim still reckons with it.
#[tokio::test]
async fn a_snapshot_leaves_out_the_fills_that_were_given_up() {
    let disk = MemoryDisk::default();
    let (env, clock) = Env::simulated(1);
    let store = Store::open(env, vec![Arc::new(disk.clone())], small(), None).await.unwrap();
    put(&store, "other", &pattern(1, 10)).await;
    disk.hold_syncs(true);
    let filling = store.clone();
    let fill = forebay_env::spawn(async move {
        let object = NewObject { pinned: false, ..named(&filling, "key", 100) };
        let staged = stage_as(&filling, Class::Fill, object, &pattern(2, 100)).await?;
        filling.publish_fill(staged).await
    });
    settle().await;
    let (fills, sequence) = (&store.inner.fills, &store.inner.sequence);
    let (next, unapplied) = fills.unapplied(sequence);
    assert_eq!(unapplied, [next - 1], "it is on its way");
    clock.advance(STALLED_AFTER);
    check_error(fill.join().await, ErrorKind::Busy, "does not answer");
    assert_eq!(fills.unapplied(sequence), (next, Vec::new()));
    assert_eq!(fills.lowest(sequence), next - 1, "it may still be written");
    disk.hold_syncs(false);
    settle().await;
    assert_eq!(fills.lowest(sequence), next);
    assert!(store.peek(b"key").is_none());
}

/// Reclaim waits for a commit of a key that it carries, and that commit for its disk. Others share the lock of the key.
#[tokio::test]
async fn commits_do_not_wait_behind_reclaim_for_a_disk_that_does_not_answer() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let (env, clock) = Env::simulated(1);
    let both = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    let settings = Settings { capacity_bytes: vec![4 << 20; 2], ..small() };
    let store = Store::open(env, both, settings, None).await.unwrap();
    disks[0].hold_syncs(true);
    let waiting = [begin_put(&store, "a", 100), begin_put(&store, "b", 100)];
    // What a commit holds that waits for this disk.
    let of_commit = Commit { forget: vec![Bytes::from_static(b"key")], ..Commit::default() };
    let held = store.inner.uncarried(&of_commit).await;
    let inner = Arc::clone(&store.inner);
    let carrying = forebay_env::spawn(async move {
        drop(inner.carry_lock(b"key").await);
    });
    settle().await;
    clock.advance(STALLED_AFTER);
    settle().await;
    assert_eq!(store.stalled(), Stalled::Somewhere);
    let forgetting = store.clone();
    let forgotten = forebay_env::spawn(async move { forget(&forgetting, "key").await });
    settle().await;
    assert!(forgotten.is_finished(), "it goes to the other disk");
    assert!(!carrying.is_finished());
    drop(held);
    clock.advance(STALLED_AFTER);
    settle().await;
    assert!(carrying.is_finished(), "the lock is free, whatever the disk does");
    carrying.join().await;
    forgotten.join().await;
    disks[0].hold_syncs(false);
    for put in waiting {
        put.join().await.unwrap();
    }
}

/// Many bodies share the memory for waiting bytes. The last one waits for a long time, although no disk is stalled.
#[tokio::test]
async fn a_busy_disk_is_waited_for() {
    let disk = MemoryDisk::default();
    let (env, clock) = Env::simulated(1);
    let settings = Settings { write_buffer_bytes_max: 16 << 10, ..small() };
    let store = Store::open(env, vec![Arc::new(disk)], settings, None).await.unwrap();
    // What earlier bodies hold, each for a while.
    let held = store.inner.volumes[0].permits.take(12 << 10).await;
    let writing = begin_put(&store, "large", 8 << 10);
    for _ in 0..10 {
        settle().await;
        clock.advance(STALLED_AFTER);
    }
    settle().await;
    assert!(!writing.is_finished(), "the disk has answered all that it was asked");
    drop(held);
    clock.advance(STALLED_AFTER);
    settle().await;
    writing.join().await.unwrap();
}

/// A disk that does not answer does not keep the others from being looked at.
#[tokio::test]
async fn a_full_disk_is_seen_beside_one_that_does_not_answer() {
    let disks = [MemoryDisk::new(2 << 20), MemoryDisk::new(2 << 20)];
    let settings = Settings { capacity_bytes: vec![1 << 20; 2], ..small() };
    let store = try_open_all(&disks, settings).await.unwrap();
    settle().await;
    for (hung, full) in [(0, 1), (1, 0)] {
        disks[hung].hold_space(true);
        disks[full].set_capacity(0);
        let looking = {
            let store = store.clone();
            forebay_env::spawn(async move { store.look_at_space().await })
        };
        settle().await;
        assert!(!looking.is_finished());
        assert_eq!(store.health()[full].shortage, Some(Shortage::Others), "{full}");
        disks[full].set_capacity(2 << 20);
        disks[hung].hold_space(false);
        looking.join().await;
        store.look_at_space().await;
        assert_eq!(store.health().into_iter().filter_map(|directory| directory.shortage).count(), 0);
    }
}
