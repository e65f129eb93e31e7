//! Reclaim makes progress whatever the logs are full of, rests when nobody writes, and brings nothing back.

use std::sync::atomic::Ordering;

use super::reclaim::{next_log, reclaim_in};
use super::*;
use crate::Annotation;

/// Ten segments per directory.
async fn tight(disks: &[MemoryDisk]) -> Store {
    let settings = Settings { capacity_bytes: disks.iter().map(|_| 10 * (64 << 10)).collect(), ..small() };
    try_open_all(disks, settings).await.unwrap()
}

/// Lets reclaim run until two rounds have changed nothing.
pub(super) async fn rest(store: &Store) {
    let state = || (store.counters().reclaimed_segments, store.counters().appended_bytes);
    let (mut before, mut quiet) = (state(), 0);
    for _ in 0..100 {
        let rounds = store.inner.rounds.load(Ordering::SeqCst);
        store.inner.maintenance.notify_one();
        while store.inner.rounds.load(Ordering::SeqCst) == rounds {
            tokio::task::yield_now().await;
        }
        let now = state();
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        if quiet == 2 {
            return;
        }
    }
    panic!("reclaim continues although nobody writes: {:?}", store.counters());
}

/// Opens the store again without a snapshot, which would show what the segments do not.
async fn rebuild(store: Store, disks: &[MemoryDisk]) -> Store {
    store.close().await.unwrap();
    for disk in disks.iter().filter(|disk| disk.contents("snapshot").is_some()) {
        disk.edit("snapshot", |bytes| bytes.truncate(100));
    }
    tight(disks).await
}

/// What comes and goes next to what stays.
#[derive(Debug, Clone, Copy)]
enum Churn {
    Objects,
    Values,
    /// Objects that become clean.
    States,
    All,
}

impl Churn {
    async fn pass(self, store: &Store, index: u64) -> Result<()> {
        let name = format!("{index:04}");
        let is = |one: Self| matches!(self, Self::All) || std::mem::discriminant(&self) == std::mem::discriminant(&one);
        if is(Self::Objects) {
            let key = format!("deleted{name}");
            try_put(store, &key, &pattern(index, 200)).await?;
            forget(store, &key).await;
        }
        if is(Self::Values) {
            write_value(store, &format!("deleted{name}"), Some("gone soon")).await;
            write_value(store, &format!("deleted{name}"), None).await;
        }
        if is(Self::States) {
            let key = format!("clean{name}");
            try_put(store, &key, &pattern(index, 200)).await?;
            let (generation, key) = (generation(store, &key), Bytes::from(key));
            let annotation = Annotation { key, generation, annex: Bytes::from_static(b"clean"), pinned: false };
            store.commit(Commit { annotate: vec![annotation], ..Commit::default() }, Durability::Os).await.unwrap();
        }
        Ok(())
    }
}

/// The lasting data is written first, and then mixed with everything else.
#[tokio::test]
async fn what_deletes_leave_behind_never_fills_the_store() {
    for (directories, churn) in
        [(1, Churn::Objects), (1, Churn::Values), (1, Churn::States), (1, Churn::All), (3, Churn::All)]
    {
        let disks: Vec<_> = (0..directories).map(|_| MemoryDisk::default()).collect();
        let store = tight(&disks).await;
        let lasting = 60 * directories;
        for index in 0..lasting {
            put(&store, &format!("stays{index}"), &pattern(index, 900)).await;
            write_value(&store, &format!("stays{index}"), Some("value")).await;
        }
        for index in 0..6000 * directories {
            if let Err(error) = churn.pass(&store, index % 200).await {
                panic!("{churn:?} in {directories} directories, pass {index}: {error}, {:?}", store.usage());
            }
        }
        rest(&store).await;
        super::counts::check_counts(&store);
        let counters = store.counters();
        assert!(counters.reclaimed_segments > 5, "{churn:?}: {counters:?}");
        let check = async |store: &Store| {
            for index in 0..lasting {
                assert_eq!(read(store, &format!("stays{index}")).await.unwrap(), pattern(index, 900));
                assert_eq!(value(store, &format!("stays{index}")).as_deref(), Some("value"));
            }
            for index in 0..200 {
                assert!(store.peek(format!("deleted{index:04}").as_bytes()).is_none(), "{churn:?}");
                assert_eq!(value(store, &format!("deleted{index:04}")), None, "{churn:?}");
                let clean = store.peek(format!("clean{index:04}").as_bytes());
                assert!(clean.is_none_or(|object| !object.is_pinned()), "{churn:?}");
            }
        };
        check(&store).await;
        let store = rebuild(store, &disks).await;
        check(&store).await;
        rest(&store).await;
        check(&store).await;
    }
}

/// A set that is read all the time keeps its segments, which are older than all deletes.
#[tokio::test]
async fn a_hot_set_does_not_keep_deletes_for_ever() {
    let disks = [MemoryDisk::default()];
    let store = tight(&disks).await;
    for index in 0..120 {
        put_fill(&store, &format!("hot{index}"), &pattern(index, 900)).await;
    }
    for index in 0..6000 {
        try_put(&store, "deleted", &pattern(index, 200)).await.unwrap();
        forget(&store, "deleted").await;
        (0..120).for_each(|index| drop(store.get(format!("hot{index}").as_bytes())));
    }
    let hot = (0..120).filter(|index| store.peek(format!("hot{index}").as_bytes()).is_some()).count();
    assert!(hot > 80, "{hot} of 120 objects are left that were read all the time");
    let changes = store.inner.volumes[0].directory.change_bytes();
    assert!(changes < 3 * (64 << 10), "deletes take {changes} bytes");
    rest(&store).await;
}

/// All segments are alike, and little of each is not needed.
#[tokio::test]
async fn pinned_data_may_take_three_quarters_of_a_store() {
    let capacity = 64 * (64 << 10);
    let settings = Settings { capacity_bytes: vec![capacity], ..small() };
    for size in [600, 7000] {
        let disks = [MemoryDisk::default()];
        let store = try_open_all(&disks, settings.clone()).await.unwrap();
        let key = |index: u64| format!("o{index}");
        let mut count = 0;
        while store.usage().pinned_bytes < capacity / 4 * 3 {
            put(&store, &key(count), &pattern(count, size)).await;
            count += 1;
        }
        // Every fourth object is overwritten, wherever it is, until each segment has had two turns.
        for index in 0..2 * count {
            let at = index * 4 % (count + 1);
            try_put(&store, &key(at), &pattern(at, size)).await.unwrap_or_else(|error| panic!("{index}: {error}"));
        }
        rest(&store).await;
        for index in 0..count {
            assert_eq!(read(&store, &key(index)).await.unwrap(), pattern(index, size));
        }
    }
}

/// The delete is in flight while reclaim writes the value again, and its record comes before the copy. In the tables,
/// it comes first or last.
#[tokio::test]
async fn a_copy_that_stands_behind_a_delete_keeps_it() {
    for is_moved_first in [false, true] {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        let version = write_value(&store, "v", Some("old")).await;
        let first = store.inner.values.get(b"v", |row| row.segment).unwrap();
        next_log(&store, &disk).await;
        next_log(&store, &disk).await;
        let copy = store.inner.volumes[0].directory.segments.read().values().last().cloned().unwrap();
        let carry = || store.inner.move_value(b"v", version, first, copy.key());
        let delete = || store.inner.write_values(vec![write("v", None)], copy.header.sequence - 1, first);
        if is_moved_first {
            carry();
            delete();
        } else {
            delete();
            carry();
        }
        assert_eq!(value(&store, "v"), None);
        assert_eq!(copy.min_version.load(Ordering::SeqCst), version);
        super::counts::check_counts(&store);
        let oldest = store.inner.oldest_beside(first);
        assert!(oldest.has_values_before(version + 1));
    }
}

/// If every carried record were padded to a page, it would take more room than before.
#[tokio::test]
async fn what_is_carried_takes_no_more_room_than_before() {
    let disk = MemoryDisk::default();
    let settings = Settings { inline_bytes_max: 32 << 10, ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    put(&store, "o", &pattern(1, 17_000)).await;
    next_log(&store, &disk).await;
    let before = store.counters().appended_bytes;
    reclaim_in(&store, 0, 1).await.unwrap();
    let carried = store.counters().appended_bytes - before;
    assert!((17_000..17_500).contains(&carried), "{carried} bytes are written for 17000");
}

/// A directory without commits keeps its only log open, and that log holds what the deletes in all other logs are
/// about.
#[tokio::test]
async fn the_log_of_a_directory_that_gets_no_commits_goes_as_well() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let settings = Settings { capacity_bytes: vec![8 * (64 << 10), 160 * (64 << 10)], ..small() };
    let store = try_open_all(&disks, settings).await.unwrap();
    let [small, large] = [0, 1].map(|index| &store.inner.volumes[index].directory);
    let log_of_small = || small.segments.read().keys().next().copied();
    // While it is as roomy as the other one, it gets commits.
    put(&store, "large", &pattern(1, 152 * (64 << 10))).await;
    while log_of_small().is_none() {
        put(&store, "deleted", &pattern(2, 900)).await;
    }
    forget(&store, "deleted").await;
    forget(&store, "large").await;
    let first = log_of_small();
    let mut most = 0;
    for index in 0..40_000 {
        let key = format!("deleted{index}");
        try_put(&store, &key, &pattern(index, 300)).await.unwrap();
        forget(&store, &key).await;
        most = most.max(large.change_bytes());
    }
    assert_ne!(log_of_small(), first);
    assert!(most < 20 * (64 << 10), "deletes take {most} bytes");
}

/// Work for a segment that can't go must not be repeated at each turn: each time would leave a small segment.
#[tokio::test]
async fn a_segment_that_is_held_is_waited_for() {
    let disk = MemoryDisk::default();
    let settings = Settings { capacity_bytes: vec![40 * (64 << 10)], ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    let mut slow = store.writer(Class::Fill, 100_000).await.unwrap();
    slow.append(pattern(9, 9000)).await.unwrap();
    for index in 0..40 {
        put_fill(&store, &format!("clean{index}"), &pattern(index, 900)).await;
    }
    for index in 0..10_000 {
        let key = format!("deleted{index}");
        try_put(&store, &key, &pattern(index, 300)).await.unwrap();
        forget(&store, &key).await;
        put_fill(&store, "copy", &pattern(index, 100)).await;
        let small = |(name, length): &(String, u64)| name.ends_with(".fill") && *length < 8192;
        let small = disk.lengths().into_iter().filter(small).count();
        assert!(small <= 2, "{small} small segments of fills after {index} deletes");
    }
    drop(slow);
}
