//! Put, read, overwrite, delete, and all of these again after a start.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::Annotation;

/// Runs a check before and after a clean close, after a killed process, and after a power cut.
async fn in_every_life(write: impl AsyncFn(&Store), check: impl AsyncFn(&Store)) {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    write(&store).await;
    check(&store).await;
    store.close().await.unwrap();
    let store = open(&disk).await;
    check(&store).await;
    store.close().await.unwrap();
    for seed in 0..5 {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        write(&store).await;
        // The store is left as a killed process leaves it.
        check(&open(&disk).await).await;
        disk.power_loss(seed);
        check(&open(&disk).await).await;
    }
}

#[tokio::test]
async fn an_object_is_read_back() {
    let write = async |store: &Store| {
        put(store, "a", &pattern(1, 500)).await;
        put(store, "empty", &Bytes::new()).await;
    };
    in_every_life(write, async |store| {
        assert_eq!(read(store, "a").await.unwrap(), pattern(1, 500));
        assert_eq!(read(store, "empty").await.unwrap(), Bytes::new());
        assert!(store.get(b"b").is_none());
        let object = store.get(b"a").unwrap();
        assert_eq!(object.metadata().await.unwrap(), "about a");
        assert_eq!((object.annex(), object.size()), (b"annex".as_slice(), 500));
        assert!(object.is_pinned());
        assert_eq!(store.usage().objects, 2);
    })
    .await;
}

#[tokio::test]
async fn the_last_write_counts() {
    let write = async |store: &Store| {
        for round in 0..5 {
            put(store, "a", &pattern(round, 300 * round as usize)).await;
            write_value(store, "v", Some(&round.to_string())).await;
        }
        put(store, "b", &pattern(7, 10)).await;
        forget(store, "b").await;
        write_value(store, "gone", Some("x")).await;
        write_value(store, "gone", None).await;
    };
    in_every_life(write, async |store| {
        assert_eq!(read(store, "a").await.unwrap(), pattern(4, 1200));
        assert_eq!(read(store, "b").await, None);
        assert_eq!((value(store, "v").as_deref(), value(store, "gone")), (Some("4"), None));
        let usage = store.usage();
        assert_eq!((usage.objects, usage.values), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn an_object_that_is_held_outlives_its_overwrite() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "a", &pattern(1, 100)).await;
    let held = store.get(b"a").unwrap();
    put(&store, "a", &pattern(2, 100)).await;
    assert_eq!(read_object(&held).await.unwrap(), pattern(1, 100));
    forget(&store, "a").await;
    assert_eq!(read_object(&held).await.unwrap(), pattern(1, 100));
    assert!(store.get(b"a").is_none());
}

#[tokio::test]
async fn an_annotation_changes_its_generation_and_no_other() {
    let annotate = async |store: &Store, generation| {
        let annotation = Annotation { key: "a".into(), generation, annex: Bytes::from_static(b"clean"), pinned: false };
        let commit = Commit { annotate: vec![annotation], ..Commit::default() };
        store.commit(commit, Durability::Fsync).await.unwrap();
    };
    let write = async |store: &Store| {
        put(store, "a", &pattern(1, 100)).await;
        let old = generation(store, "a");
        put(store, "a", &pattern(2, 100)).await;
        annotate(store, old).await;
        assert!(store.peek(b"a").unwrap().is_pinned(), "the annotation was for another generation");
        let pinned_bytes = store.usage().pinned_bytes;
        annotate(store, generation(store, "a")).await;
        assert_eq!((store.usage().pinned_bytes, store.usage().evictable_bytes), (0, pinned_bytes));
    };
    in_every_life(write, async |store| {
        let object = store.peek(b"a").unwrap();
        assert_eq!((object.is_pinned(), object.annex()), (false, b"clean".as_slice()));
        assert_eq!(object.metadata().await.unwrap(), "about a");
    })
    .await;
}

#[tokio::test]
async fn one_commit_is_one_step() {
    let write = async |store: &Store| {
        put(store, "old", &pattern(1, 100)).await;
        let publish = vec![
            stage(store, "small", &pattern(2, 100)).await.unwrap(),
            stage(store, "large", &pattern(3, 30_000)).await.unwrap(),
        ];
        let (forget, writes) =
            (vec!["old".into()], vec![super::write("k1", Some("v1")), super::write("k2", Some("v2"))]);
        let commit = Commit { publish, forget, writes, ..Commit::default() };
        store.commit(commit, Durability::Fsync).await.unwrap();
    };
    in_every_life(write, async |store| {
        assert_eq!(read(store, "small").await.unwrap(), pattern(2, 100));
        assert_eq!(read(store, "large").await.unwrap(), pattern(3, 30_000));
        assert_eq!(read(store, "old").await, None);
        let versions: Vec<u64> = ["k1", "k2"].iter().map(|key| store.value(key.as_bytes()).unwrap().version).collect();
        assert_eq!(versions[0], versions[1]);
    })
    .await;
}

#[tokio::test]
async fn an_older_generation_never_replaces_a_newer() {
    let write = async |store: &Store| {
        let older = stage(store, "a", &pattern(1, 100)).await.unwrap();
        let newer = stage(store, "a", &pattern(2, 200)).await.unwrap();
        for staged in [newer, older] {
            let commit = Commit { publish: vec![staged], ..Commit::default() };
            store.commit(commit, Durability::Fsync).await.unwrap();
        }
        super::counts::check_counts(store);
    };
    in_every_life(write, async |store| assert_eq!(read(store, "a").await.unwrap(), pattern(2, 200))).await;
}

#[tokio::test]
async fn values_are_scanned_in_order() {
    let write = async |store: &Store| {
        for key in ["b/2", "a/1", "b/1", "c/1", "b/3"] {
            write_value(store, key, Some(key)).await;
        }
    };
    in_every_life(write, async |store| {
        let keys = |limit| {
            let found = store.scan(b"b/", b"b0", limit).into_iter();
            found.map(|(key, _)| String::from_utf8(key.to_vec()).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(keys(10), ["b/1", "b/2", "b/3"]);
        assert_eq!(keys(2), ["b/1", "b/2"]);
        assert_eq!(store.scan(b"c", b"a", 10), []);
    })
    .await;
}

#[tokio::test]
async fn groups_are_counted_and_evicted_oldest_first() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    for key in ["a", "b", "c"] {
        let object = NewObject { pinned: false, group: 7, ..named(&store, key, 1000) };
        let staged = stage_as(&store, Class::Fill, object, &pattern(1, 1000)).await.unwrap();
        store.publish_fill(staged).await.unwrap();
    }
    put_fill(&store, "other", &pattern(1, 1000)).await;
    let pinned = NewObject { group: 7, ..named(&store, "pinned", 10) };
    let staged = stage_as(&store, Class::Durable, pinned, &pattern(1, 10)).await.unwrap();
    let all = store.group_bytes(7);
    assert!((3000..3600).contains(&all), "{all}");
    store.get(b"a").unwrap();
    store.get(b"c").unwrap();
    assert_eq!(evict_of(&store, &[7], 1).await, all / 3);
    assert!(store.peek(b"b").is_none(), "b was never read");
    assert_eq!(store.group_bytes(7), all - all / 3);
    let group_of = |key: &[u8]| match key {
        b"a" => 8,
        b"c" => 9,
        _ => 0,
    };
    store.regroup(&group_of).await;
    assert_eq!((store.group_bytes(7), store.group_bytes(8), store.group_bytes(9)), (0, all / 3, all / 3));
    assert!(store.evict(b"a", generation(&store, "a")));
    assert!(!store.evict(b"c", Generation(0)));
    assert_eq!((store.group_bytes(8), store.usage().objects), (0, 2));
    store.commit(Commit { publish: vec![staged], ..Commit::default() }, Durability::Fsync).await.unwrap();
    assert_eq!(evict_of(&store, &[7], u64::MAX).await, 0, "pinned objects stay, and so do those of other groups");
    assert_eq!(store.usage().objects, 3);
    let evicted = evict_of(&store, &[9, 8, 7], u64::MAX).await;
    assert_eq!(evicted, all / 3, "the one object of these groups that is not pinned");
    assert_eq!((store.group_bytes(9), store.usage().objects), (0, 2));
    super::counts::check_counts(&store);
}

/// There may be many objects: they are looked at once, no writer waits for a lock meanwhile, and no task for the
/// thread.
#[tokio::test]
async fn all_groups_above_their_limits_are_brought_under_them_in_one_pass() {
    let store = open(&MemoryDisk::default()).await;
    for index in 0..30 {
        let group = 7 + index % 3;
        let object = NewObject { pinned: false, group, ..named(&store, &format!("{group}-{index:02}"), 1000) };
        let staged = stage_as(&store, Class::Fill, object, &pattern(1, 1000)).await.unwrap();
        store.publish_fill(staged).await.unwrap();
    }
    let of_each = store.group_bytes(7);
    let one = of_each / 10;
    let limit = |groups: &[u32], most, target| GroupsLimit { groups: groups.to_vec(), most, target };
    // The third holds once the first two do, the fourth does not yet, and the last held before.
    let limits = [
        limit(&[7], 5 * one, 4 * one),
        limit(&[8], 9 * one, 8 * one),
        limit(&[7, 8], 12 * one, 10 * one),
        limit(&[8, 9], 16 * one, 15 * one),
        limit(&[9], of_each, 0),
    ];
    let has_ended = AtomicBool::new(false);
    let evict = async {
        let evicted = store.evict_groups(&limits).await;
        has_ended.store(true, Ordering::SeqCst);
        evicted
    };
    let others = async {
        let mut turns = 0;
        while !has_ended.load(Ordering::SeqCst) {
            // For ever, if one of them were locked.
            store.inner.objects.shards().for_each(|shard| drop(shard.write()));
            turns += 1;
            tokio::task::yield_now().await;
        }
        turns
    };
    let (evicted, turns) = tokio::join!(evict, others);
    assert_eq!(evicted, (6 + 2 + 3) * one);
    let shards = store.shards();
    assert!((shards..2 * shards).contains(&turns), "{turns} turns for a pass over {shards} shards");
    let left = |group: u32| -> Vec<u32> {
        let is_here = |index: &u32| store.peek(format!("{group}-{index:02}").as_bytes()).is_some();
        (0..30).filter(is_here).collect()
    };
    assert_eq!(left(7), [18, 21, 24, 27], "the oldest have gone");
    assert_eq!(left(8), [10, 13, 16, 19, 22, 25, 28]);
    assert_eq!(left(9), [8, 11, 14, 17, 20, 23, 26, 29]);
    super::counts::check_counts(&store);
    assert_eq!(store.evict_groups(&limits).await, 0, "all limits hold");
}

/// There may be many objects: no writer waits for a lock meanwhile, and no task for the thread.
#[tokio::test]
async fn objects_are_assigned_to_groups_without_holding_up_others() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    for number in 0..100 {
        put_fill(&store, &format!("key-{number}"), &pattern(1, 10)).await;
    }
    let has_ended = AtomicBool::new(false);
    let group_of = |_: &[u8]| {
        // For ever, if the caller held one of them.
        store.inner.objects.shards().for_each(|shard| drop(shard.write()));
        8
    };
    let regroup = async {
        store.regroup(&group_of).await;
        has_ended.store(true, Ordering::SeqCst);
    };
    let others = async { assert!(!has_ended.load(Ordering::SeqCst), "it lets others run") };
    tokio::join!(regroup, others);
    assert_eq!(store.group_bytes(8), store.usage().evictable_bytes);
    super::counts::check_counts(&store);
}

#[tokio::test]
async fn a_closed_store_refuses() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let staged = stage(&store, "a", &pattern(1, 10)).await.unwrap();
    let fill = stage(&store, "f", &pattern(1, 10)).await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    check_error(store.writer(Class::Durable, 1).await.map(drop), ErrorKind::Closed, "closed");
    let commit = Commit { publish: vec![staged], ..Commit::default() };
    check_error(store.commit(commit, Durability::Os).await, ErrorKind::Closed, "closed");
    check_error(store.publish_fill(fill).await, ErrorKind::Closed, "closed");
    check_error(store.fill(b"a", Generation(1), 0, "x".into()).await, ErrorKind::Closed, "closed");
}

#[tokio::test]
async fn generations_grow_across_starts_and_power_cuts() {
    let disk = MemoryDisk::default();
    let mut last = Generation(0);
    for round in 0..6 {
        let store = open(&disk).await;
        let first = store.next_generation();
        assert!(first > last, "{first:?} after {last:?} in round {round}");
        let commit = Commit { writes: vec![write("k", Some("v"))], ..Commit::default() };
        store.commit(commit, Durability::Os).await.unwrap();
        last = (0..1000).map(|_| store.next_generation()).max().unwrap();
        match round % 3 {
            0 => store.close().await.unwrap(),
            1 => {}
            _ => disk.power_loss(round),
        }
    }
}
