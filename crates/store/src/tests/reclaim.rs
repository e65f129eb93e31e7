//! Space comes back, and nothing else does.

use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_env::sync::Mutex;

use super::*;
use crate::reclaim::Carried;
use crate::reclaim::worth::carried_max;
use crate::record::commit::{AnnotationBody, CommitBody, WriteBody};
use crate::{Access, Annotation, Leaves, Retention};

/// Keeps keys that begin with `k`, and longest those with `l`. Records what was evicted.
#[derive(Default)]
struct Keep {
    asked: Mutex<Vec<(String, Access)>>,
    evicted: Mutex<Vec<(String, u64)>>,
}

impl Retention for Keep {
    fn leaves(&self, key: &[u8], access: Access) -> Leaves {
        let key = String::from_utf8(key.to_vec()).unwrap();
        let leaves = match key.as_bytes() {
            [b'k', ..] => Leaves::Later,
            [b'l', ..] => Leaves::Last,
            _ => Leaves::First,
        };
        self.asked.lock().push((key, access));
        leaves
    }

    fn evicted(&self, key: &[u8], bytes: u64) {
        self.evicted.lock().push((String::from_utf8(key.to_vec()).unwrap(), bytes));
    }
}

pub(super) async fn tight(disk: &MemoryDisk) -> Store {
    let settings = Settings { capacity_bytes: vec![10 * (64 << 10)], ..small() };
    try_open_all(std::slice::from_ref(disk), settings).await.unwrap()
}

/// Overwrites one key until this many segments were reclaimed.
pub(super) async fn churn(store: &Store, segments: u64) {
    let until = store.counters().reclaimed_segments + segments;
    for round in 0..10_000 {
        if store.counters().reclaimed_segments >= until {
            return;
        }
        put(store, "churn", &pattern(round, if round % 2 == 0 { 900 } else { 9000 })).await;
    }
    panic!("nothing is reclaimed");
}

#[tokio::test]
async fn pinned_objects_and_values_are_carried_and_deleted_ones_stay_away() {
    for seed in 0..4 {
        let disk = MemoryDisk::default();
        let store = tight(&disk).await;
        for index in 0..20 {
            put(&store, &format!("p{index}"), &pattern(index, if index % 2 == 0 { 300 } else { 5000 })).await;
            put(&store, &format!("d{index}"), &pattern(index, 300)).await;
            write_value(&store, &format!("v{index}"), Some(&index.to_string())).await;
            write_value(&store, &format!("w{index}"), Some("x")).await;
        }
        for index in 0..20 {
            forget(&store, &format!("d{index}")).await;
            write_value(&store, &format!("w{index}"), None).await;
        }
        let check = async |store: &Store| {
            for index in 0..20 {
                let data = pattern(index, if index % 2 == 0 { 300 } else { 5000 });
                let object = store.peek(format!("p{index}").as_bytes()).unwrap();
                assert_eq!(read_object(&object).await.unwrap(), data);
                assert_eq!(object.metadata().await.unwrap(), format!("about p{index}"));
                assert_eq!(value(store, &format!("v{index}")), Some(index.to_string()));
                assert_eq!(value(store, &format!("w{index}")), None);
                assert!(store.peek(format!("d{index}").as_bytes()).is_none());
            }
        };
        let versions: Vec<_> =
            (0..20).map(|index| store.value(format!("v{index}").as_bytes()).unwrap().version).collect();
        churn(&store, 30).await;
        check(&store).await;
        disk.power_loss(seed);
        let store = tight(&disk).await;
        check(&store).await;
        churn(&store, 10).await;
        store.close().await.unwrap();
        // Without a snapshot, everything is rebuilt from the remaining segments.
        disk.edit("snapshot", |bytes| bytes.truncate(100));
        let store = tight(&disk).await;
        check(&store).await;
        let now: Vec<_> = (0..20).map(|index| store.value(format!("v{index}").as_bytes()).unwrap().version).collect();
        assert_eq!(now, versions, "a value that is carried keeps its version");
    }
}

#[tokio::test]
async fn a_rebuild_does_not_bring_back_what_a_reclaimed_log_had_deleted() {
    let disk = MemoryDisk::default();
    let store = tight(&disk).await;
    // The log that holds `d` stays, because it is full of pinned objects. The log that deletes it is reclaimed.
    put(&store, "d", &pattern(1, 300)).await;
    put(&store, "c", &pattern(2, 300)).await;
    for index in 0..55 {
        put(&store, &format!("p{index}"), &pattern(index, 1000)).await;
    }
    assert_eq!(files(&disk, ".log").await, ["00000001.log"]);
    while files(&disk, ".log").await.len() < 2 {
        put(&store, "churn", &pattern(3, 1000)).await;
    }
    forget(&store, "d").await;
    let (key, generation) = (Bytes::from_static(b"c"), generation(&store, "c"));
    let annotation = Annotation { key, generation, annex: Bytes::from_static(b"clean"), pinned: false };
    let commit = Commit { annotate: vec![annotation], ..Commit::default() };
    store.commit(commit, Durability::Fsync).await.unwrap();
    churn(&store, 10).await;
    store.inner.snapshot().await.unwrap();
    reclaim_now(&store, 2).await.unwrap();
    let names = files(&disk, ".log").await;
    assert!(names.contains(&"00000001.log".to_owned()) && !names.contains(&"00000002.log".to_owned()), "{names:?}");
    store.close().await.unwrap();
    disk.edit("snapshot", |bytes| bytes.truncate(100));
    let store = tight(&disk).await;
    assert!(store.peek(b"d").is_none());
    let object = store.peek(b"c").unwrap();
    assert_eq!((object.is_pinned(), object.annex()), (false, b"clean".as_slice()));
}

#[tokio::test]
async fn a_reader_keeps_its_bytes_through_reclaim() {
    let disk = MemoryDisk::default();
    // Readers may keep an eighth of it: two segments.
    let settings = Settings { capacity_bytes: vec![20 * (64 << 10)], ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    for (key, size) in [("small", 300), ("large", 20_000)] {
        put(&store, key, &pattern(4, size)).await;
    }
    let held = ["small", "large"].map(|key| store.get(key.as_bytes()).unwrap());
    for key in ["small", "large"] {
        forget(&store, key).await;
    }
    let first = [files(&disk, ".log").await[0].clone(), files(&disk, ".bulk").await[0].clone()];
    churn(&store, 20).await;
    store.inner.snapshot().await.unwrap();
    churn(&store, 20).await;
    // What frees more goes before the log.
    let log = first[0].trim_end_matches(".log").parse().unwrap();
    if store.inner.volumes[0].directory.segment(log).is_some() {
        reclaim_now(&store, log).await.unwrap();
    }
    let names = disk.list().await.unwrap();
    assert!(first.iter().all(|name| !names.contains(name)), "{first:?} are reclaimed: {names:?}");
    assert_eq!(read_object(&held[0]).await.unwrap(), pattern(4, 300));
    assert_eq!(read_object(&held[1]).await.unwrap(), pattern(4, 20_000));
}

#[tokio::test]
async fn retention_decides_what_stays_of_clean_objects() {
    let disk = MemoryDisk::default();
    let store = tight(&disk).await;
    let keep = Arc::new(Keep::default());
    store.set_retention(keep.clone());
    for index in 0..30 {
        put_fill(&store, &format!("k{index}"), &pattern(index, 900)).await;
        put_fill(&store, &format!("n{index}"), &pattern(index, 900)).await;
    }
    put_fill(&store, "n-large", &pattern(1, 60_000)).await;
    (0..3).for_each(|_| drop(store.get(b"k3").unwrap()));
    for index in 0..800 {
        put_fill(&store, &format!("n-later{index}"), &pattern(index, 900)).await;
    }
    for index in 0..30 {
        assert_eq!(read(&store, &format!("k{index}")).await.unwrap(), pattern(index, 900));
        assert!(store.peek(format!("n{index}").as_bytes()).is_none());
    }
    let (asked, evicted) = (keep.asked.lock(), keep.evicted.lock());
    assert!(asked.contains(&("k3".to_owned(), Access { reads: 3, carried: false })), "{asked:?}");
    assert!((0..30).all(|index| evicted.iter().any(|(key, bytes)| *key == format!("n{index}") && *bytes > 900)));
    assert!(evicted.iter().all(|(key, _)| key.starts_with('n')), "{evicted:?}");
    assert!(store.counters().carried_bytes >= 27_000);
    let entry = Arc::clone(store.peek(b"k3").unwrap().entry());
    assert_eq!((entry.carried, entry.reads.load(std::sync::atomic::Ordering::Relaxed)), (true, 0));
}

#[tokio::test]
async fn clean_objects_that_all_want_to_stay_still_make_room() {
    for kept in ["k", "l"] {
        let disk = MemoryDisk::default();
        let store = tight(&disk).await;
        store.set_retention(Arc::<Keep>::default());
        for index in 0..2000 {
            put_fill(&store, &format!("{kept}{index}"), &pattern(index, 900)).await;
        }
        let counters = store.counters();
        assert!(counters.reclaimed_segments > 20);
        assert!(counters.carried_bytes <= counters.reclaimed_bytes / 4 * 3, "{counters:?}");
        assert!(store.usage().objects > 100);
    }
}

#[tokio::test]
async fn what_leaves_last_stays_beside_others_that_all_want_to_stay() {
    let disk = MemoryDisk::default();
    let store = tight(&disk).await;
    store.set_retention(Arc::<Keep>::default());
    for index in 0..2000 {
        if index < 200 {
            put_fill(&store, &format!("l{index}"), &pattern(index, 900)).await;
        }
        put_fill(&store, &format!("k{index}"), &pattern(index, 900)).await;
    }
    for index in 0..200 {
        assert_eq!(read(&store, &format!("l{index}")).await.unwrap(), pattern(index, 900));
    }
    let counters = store.counters();
    assert!(counters.reclaimed_segments > 20);
    assert!(counters.carried_bytes <= counters.reclaimed_bytes / 4 * 3, "{counters:?}");
}

/// A hot set that fills its own segments stays complete, and nothing of it is written again.
#[tokio::test]
async fn segments_of_hot_objects_are_kept_where_they_are() {
    let disk = MemoryDisk::default();
    let store = tight(&disk).await;
    let hot: Vec<_> = (0..60).map(|index| format!("hot{index}")).collect();
    for (index, key) in hot.iter().enumerate() {
        put_fill(&store, key, &pattern(index as u64, 900)).await;
    }
    for index in 0..2000 {
        put_fill(&store, &format!("cold{index}"), &pattern(index, 900)).await;
        hot.iter().for_each(|key| drop(store.get(key.as_bytes())));
    }
    for (index, key) in hot.iter().enumerate() {
        assert_eq!(read(&store, key).await.unwrap(), pattern(index as u64, 900));
    }
    let cold = (0..1000).filter(|index| store.peek(format!("cold{index}").as_bytes()).is_some()).count();
    assert!(cold < 60, "{cold} objects that nobody reads are left");
    let counters = store.counters();
    assert!(counters.carried_bytes < 60 * 1000 * 2, "{counters:?}");
}

/// Reclaims one segment of the first directory now.
pub(super) async fn reclaim_now(store: &Store, number: u32) -> Result<()> {
    reclaim_in(store, 0, number).await
}

pub(super) async fn reclaim_in(store: &Store, directory: usize, number: u32) -> Result<()> {
    let directory = &store.inner.volumes[directory].directory;
    let victim = directory.segment(number).unwrap();
    assert!(victim.is_sealed() && victim.doom());
    let members = store.inner.members(victim.key()).await;
    let carried = Carried::Worthwhile { bytes_max: carried_max(&victim) };
    store.inner.reclaim(directory, &victim, carried, members).await?;
    // As the snapshot that releases it would have done.
    directory.log_list.settle(directory.disk.as_ref(), number + 1, 0).await.unwrap();
    Ok(())
}

/// Pages of the read cache may be much longer than the extents of the settings, and so may those of earlier settings.
#[tokio::test]
async fn few_long_extents_are_carried_at_once() {
    let disk = MemoryDisk::default();
    let settings = |extent_bytes_max| Settings {
        capacity_bytes: vec![512 << 20],
        segment_bytes: 32 << 20,
        extent_bytes_max,
        ..small()
    };
    let store = try_open_all(std::slice::from_ref(&disk), settings(10 << 20)).await.unwrap();
    for index in 0..3 {
        put(&store, &format!("o{index}"), &pattern(index, 10 << 20)).await;
    }
    store.close().await.unwrap();
    let store = try_open_all(std::slice::from_ref(&disk), settings(1 << 20)).await.unwrap();
    // The copies go to the same segment, which is begun before syncs are held.
    put(&store, "other", &pattern(9, 20_000)).await;
    let bulk = files(&disk, ".bulk").await;
    let length = || disk.contents(&bulk[1]).unwrap().len();
    let (victim, before) = (bulk[0][..8].parse().unwrap(), length());
    disk.hold_syncs(true);
    let reclaiming = store.clone();
    let reclaiming = forebay_env::spawn(async move { reclaim_now(&reclaiming, victim).await });
    settle().await;
    assert_eq!((length() - before) >> 20, 20, "MiB of copies that wait for their sync");
    disk.hold_syncs(false);
    reclaiming.join().await.unwrap();
    for index in 0..3 {
        assert_eq!(read(&store, &format!("o{index}")).await.unwrap(), pattern(index, 10 << 20));
    }
}

/// Fills the current log, so that the next one begins.
pub(super) async fn next_log(store: &Store, disk: &MemoryDisk) {
    let logs = files(disk, ".log").await.len();
    while files(disk, ".log").await.len() == logs {
        put(store, "churn", &pattern(2, 900)).await;
    }
}

/// Reclaims the first log while a change is in the next one and not yet in the tables.
async fn reclaim_beside<T: Send + 'static>(
    store: &Store,
    disk: &MemoryDisk,
    change: impl Future<Output = T> + Send + 'static,
) -> T {
    next_log(store, disk).await;
    disk.hold_syncs(true);
    let changing = forebay_env::spawn(change);
    settle().await;
    assert!(!changing.is_finished());
    let reclaiming = store.clone();
    let reclaiming = forebay_env::spawn(async move { reclaim_now(&reclaiming, 1).await });
    settle().await;
    disk.hold_syncs(false);
    let changed = changing.join().await;
    reclaiming.join().await.unwrap();
    changed
}

#[tokio::test]
async fn what_is_pinned_is_not_doomed_and_what_is_doomed_is_not_pinned() {
    let store = open(&MemoryDisk::default()).await;
    put(&store, "a", &pattern(1, 300)).await;
    let segment = store.inner.volumes[0].directory.segment(1).unwrap();
    let pin = segment.pin().unwrap();
    assert!(segment.is_pinned() && !segment.doom() && segment.pin().is_some());
    drop(pin);
    assert!(!segment.is_pinned() && segment.doom());
    assert!(segment.pin().is_none() && !segment.doom(), "it has been chosen already");
    segment.spare();
    assert!(segment.pin().is_some() && segment.doom());
}

/// A restart knows what the log says: a copy of the state before the change must not come after the change.
#[tokio::test]
async fn what_changes_while_it_is_carried_is_carried_as_it_is_then() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "a", &pattern(1, 300)).await;
    let annotation =
        Annotation { key: "a".into(), generation: generation(&store, "a"), annex: "newer".into(), pinned: true };
    let (annotating, commit) = (store.clone(), Commit { annotate: vec![annotation], ..Commit::default() });
    reclaim_beside(&store, &disk, async move { annotating.commit(commit, Durability::Fsync).await }).await.unwrap();
    for store in [store, open(&disk).await] {
        assert_eq!(store.peek(b"a").unwrap().annex(), b"newer");
        assert_eq!(read(&store, "a").await.unwrap(), pattern(1, 300));
    }
}

#[tokio::test]
async fn what_let_an_object_go_lasts_as_long_as_its_bytes_are_gone() {
    for seed in 0..20 {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        put(&store, "a", &pattern(1, 20_000)).await;
        store.inner.volumes[0].bulk.seal().await;
        let (key, generation) = (Bytes::from_static(b"a"), generation(&store, "a"));
        let annotation = Annotation { key, generation, annex: Bytes::new(), pinned: false };
        let commit = Commit { annotate: vec![annotation], ..Commit::default() };
        store.commit(commit, Durability::Os).await.unwrap();
        reclaim_now(&store, 1).await.unwrap();
        assert_eq!(files(&disk, ".bulk").await, Vec::<String>::new());
        disk.power_loss(seed);
        let object = open(&disk).await.peek(b"a").unwrap();
        assert_eq!((object.is_pinned(), object.cached_bytes()), (false, 0), "pinned bytes are never dropped");
    }
}

#[tokio::test]
async fn a_copy_never_stands_behind_the_delete_of_what_it_copies() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "a", &pattern(1, 300)).await;
    let forgetting = store.clone();
    reclaim_beside(&store, &disk, async move { forget(&forgetting, "a").await }).await;
    assert!(store.peek(b"a").is_none());
    assert!(open(&disk).await.peek(b"a").is_none(), "the delete was acknowledged");
}

/// On a slow disk, reclaim may take long.
#[tokio::test]
async fn a_concatenation_waits_for_reclaim_and_does_not_turn_in_circles() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "a", &pattern(1, 20_000)).await;
    store.inner.volumes[0].bulk.seal().await;
    disk.hold_syncs(true);
    let reclaiming = store.clone();
    let reclaiming = forebay_env::spawn(async move { reclaim_now(&reclaiming, 1).await });
    settle().await;
    let (joining, polls) = (store.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&polls);
    let joining = forebay_env::spawn(async move {
        let piece = joining.peek(b"a").unwrap();
        let object = named(&joining, "whole", 20_000);
        let mut joined = Box::pin(joining.concatenate(std::slice::from_ref(&piece), object));
        let count = |context: &mut std::task::Context<'_>| {
            counted.fetch_add(1, Ordering::SeqCst);
            joined.as_mut().poll(context)
        };
        let staged = std::future::poll_fn(count).await.unwrap();
        read_object(&staged.object()).await.unwrap()
    });
    settle().await;
    assert_eq!(polls.load(Ordering::SeqCst), 1);
    disk.hold_syncs(false);
    reclaiming.join().await.unwrap();
    assert_eq!(joining.join().await, pattern(1, 20_000));
}

#[tokio::test]
async fn segments_that_nobody_needs_go_first() {
    let disk = MemoryDisk::default();
    let store = tight(&disk).await;
    store.set_retention(Arc::<Keep>::default());
    // The oldest segment has something worth keeping, the later ones have nothing.
    for index in 0..20 {
        put_fill(&store, &format!("k{index}"), &pattern(index, 900)).await;
    }
    for index in 0..2000 {
        put_fill(&store, "once", &pattern(index, 9000)).await;
        assert!(store.evict(b"once", generation(&store, "once")));
    }
    assert!(store.counters().reclaimed_segments > 20);
    assert_eq!(store.counters().carried_bytes, 0);
    assert!((0..20).all(|index| store.peek(format!("k{index}").as_bytes()).is_some()));
}

/// A quota evicts the objects of one path and leaves their bytes between those of others.
#[tokio::test]
async fn nothing_is_evicted_while_what_is_live_fits_beside_much_garbage() {
    let disk = MemoryDisk::default();
    let store = tight(&disk).await;
    store.set_retention(Arc::<Keep>::default());
    for index in 0..1200 {
        put_fill(&store, &format!("scan{index}"), &pattern(index, 900)).await;
        if index >= 20 {
            let key = format!("scan{}", index - 20);
            assert!(store.evict(key.as_bytes(), generation(&store, &key)), "{key}");
        }
        if index % 4 == 0 && index < 1000 {
            put_fill(&store, &format!("other{index}"), &pattern(index, 900)).await;
        }
        settle().await;
    }
    for index in (0..1000).step_by(4) {
        assert_eq!(read(&store, &format!("other{index}")).await.unwrap(), pattern(index, 900));
    }
    let counters = store.counters();
    assert!(counters.reclaimed_segments > 20);
    assert!(counters.carried_bytes < counters.reclaimed_bytes / 2, "{counters:?}");
}

#[tokio::test]
async fn reclaim_keeps_the_share_free_that_the_settings_say_and_no_more() {
    let disk = MemoryDisk::default();
    let settings = Settings { capacity_bytes: vec![40 * (64 << 10)], free_ratio: 0.25, ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    for index in 0..6000 {
        put_fill(&store, &format!("o{index}"), &pattern(index, 900)).await;
        settle().await;
        // Of the room that the next snapshot leaves.
        let usage = store.usage();
        let (free, fourth) = (usage.free_bytes, usage.capacity_bytes / 4);
        assert!(free >= fourth - 2000, "{free} after {index}");
        let had_to_go = index * 1000 > 31 * (64 << 10);
        assert!(!had_to_go || free <= fourth + 2 * (64 << 10), "{free} after {index}");
    }
}

/// Damaged clean data costs only that object. The segment of damaged pinned data stays. Reclaim continues with the
/// others.
#[tokio::test]
async fn damaged_objects_do_not_stop_reclaim() {
    let disk = MemoryDisk::default();
    let store = tight(&disk).await;
    store.set_retention(Arc::<Keep>::default());
    put(&store, "pinned", &pattern(1, 900)).await;
    put_fill(&store, "kept", &pattern(2, 900)).await;
    while files(&disk, ".log").await.len() < 2 {
        put(&store, "churn", &pattern(3, 900)).await;
    }
    // From now on the first log may go, and is the oldest one that is needed.
    store.inner.snapshot().await.unwrap();
    for (name, data) in [("00000001.log", pattern(1, 900)), ("00000002.fill", pattern(2, 900))] {
        let contents = disk.contents(name).unwrap();
        let at = contents.windows(900).position(|window| window == data).unwrap();
        disk.flip_bit(name, at + 450, 3);
    }
    for index in 0..800 {
        put_fill(&store, &format!("n{index}"), &pattern(index, 900)).await;
    }
    assert!(store.counters().reclaimed_segments > 5);
    assert!(store.peek(b"kept").is_none());
    check_error(read_object(&store.peek(b"pinned").unwrap()).await, ErrorKind::Corrupt, "checksum");
    let names = disk.list().await.unwrap();
    assert!(names.contains(&"00000001.log".to_owned()) && !names.contains(&"00000002.fill".to_owned()), "{names:?}");
}

/// The log may hold the last write of a value, which a rebuild would miss.
#[tokio::test]
async fn a_damaged_log_is_not_reclaimed() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    write_value(&store, "v", Some("a value that is found")).await;
    let length = disk.contents("00000001.log").unwrap().len();
    while files(&disk, ".log").await.len() < 2 {
        put(&store, "churn", &pattern(1, 900)).await;
    }
    disk.flip_bit("00000001.log", length - 20, 1);
    check_error(reclaim_now(&store, 1).await, ErrorKind::Corrupt, "can't be carried forward");
    assert!(disk.contents("00000001.log").is_some());
}

#[tokio::test]
async fn reclaim_goes_on_beside_a_failed_directory() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let settings = Settings { capacity_bytes: vec![4 << 20, 10 * (64 << 10)], ..small() };
    let store = try_open_all(&disks, settings).await.unwrap();
    store.inner.volumes[0].directory.fail("a test says so");
    put(&store, "small", &pattern(1, 900)).await;
    put(&store, "large", &pattern(2, 20_000)).await;
    store.inner.volumes[1].bulk.seal().await;
    while files(&disks[1], ".log").await.len() < 2 {
        put(&store, "churn", &pattern(3, 900)).await;
    }
    for extension in [".log", ".bulk"] {
        let name = files(&disks[1], extension).await[0].clone();
        reclaim_in(&store, 1, name[..8].parse().unwrap()).await.unwrap();
        assert!(disks[1].contents(&name).is_none());
    }
    assert_eq!(read(&store, "small").await.unwrap(), pattern(1, 900));
    assert_eq!(read(&store, "large").await.unwrap(), pattern(2, 20_000));
}

#[tokio::test]
async fn writes_go_where_there_is_room() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let settings = Settings { capacity_bytes: vec![8 * (64 << 10), 4 << 20], ..small() };
    let store = try_open_all(&disks, settings).await.unwrap();
    for index in 0..180 {
        put(&store, &format!("p{index}"), &pattern(index, 20_000)).await;
    }
}

/// An object is in two segments, and one of them goes.
#[tokio::test]
async fn only_the_bytes_in_a_reclaimed_segment_are_dropped_or_moved() {
    for keep in [false, true] {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        let (data, key) = (pattern(4, 12_000), Bytes::from_static(if keep { b"k" } else { b"n" }));
        store.set_retention(Arc::<Keep>::default());
        let object = NewObject { key: key.clone(), pinned: false, ..named(&store, "", 12_000) };
        let generation = object.generation;
        let writer = store.writer(Class::Fill, 0).await.unwrap();
        store.publish_fill(writer.finish(object).await.unwrap()).await.unwrap();
        store.inner.volumes[0].fill.seal().await;
        for from in [0, 6000] {
            assert!(store.fill(&key, generation, from, data.slice(from as usize..from as usize + 6000)).await.unwrap());
            put_fill(&store, "n-other", &pattern(from, 9000)).await;
            store.inner.volumes[0].fill.seal().await;
        }
        let second = files(&disk, ".fill").await[1].clone();
        reclaim_now(&store, second[..8].parse().unwrap()).await.unwrap();
        let (first, second) = (ByteRange::new(0, 6000), ByteRange::new(6000, 12_000));
        let expected = [if keep { Piece::Cached(first) } else { Piece::Missing(first) }, Piece::Cached(second)];
        // A killed process leaves the same.
        for store in [store, open(&disk).await] {
            let object = store.peek(&key).unwrap();
            assert_eq!(object.pieces(ByteRange::of_size(12_000)), expected);
            assert_eq!(object.read(second).await.unwrap(), data.slice(6000..));
            super::counts::check_counts(&store);
        }
    }
}

#[tokio::test]
async fn a_delete_is_carried_while_an_older_log_may_hold_what_it_deleted() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "o", &pattern(1, 300)).await;
    write_value(&store, "v", Some("old")).await;
    next_log(&store, &disk).await;
    forget(&store, "o").await;
    let version = write_value(&store, "v", None).await;
    let victim = store.inner.volumes[0].directory.segment(2).unwrap();
    let writes = vec![WriteBody { key: b"v".to_vec(), value: None }];
    let deletes = CommitBody { forget: vec![b"o".to_vec()], writes, ..CommitBody::default() };
    let oldest = || store.inner.oldest_beside(victim.key());
    let needed = || store.inner.needed_of(&victim, &oldest(), version, deletes.clone());
    let carried = CommitBody { as_of: Some(version), ..deletes.clone() };
    assert_eq!(needed(), Some(carried));
    next_log(&store, &disk).await;
    put(&store, "large", &pattern(3, 20_000)).await;
    reclaim_now(&store, 1).await.unwrap();
    assert_eq!(needed(), None, "nothing older is left");
}

#[tokio::test]
async fn of_a_commit_what_still_counts_is_carried() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "o", &pattern(1, 300)).await;
    let version = write_value(&store, "v", Some("value")).await;
    let victim = store.inner.volumes[0].directory.segment(1).unwrap();
    let written = |key: &str| CommitBody {
        writes: vec![WriteBody { key: key.into(), value: Some(b"value".to_vec()) }],
        ..CommitBody::default()
    };
    let is_needed = |body: CommitBody, version| {
        store.inner.needed_of(&victim, &store.inner.oldest_beside(victim.key()), version, body).is_some()
    };
    assert!(is_needed(written("v"), version));
    assert!(!is_needed(written("v"), version - 1), "it was overwritten");
    assert!(!is_needed(written("deleted"), version));
    let state = |annex: &[u8], pinned| {
        let state =
            AnnotationBody { key: b"o".to_vec(), generation: generation(&store, "o"), annex: annex.to_vec(), pinned };
        CommitBody { annotate: vec![state], ..CommitBody::default() }
    };
    assert!(!is_needed(state(b"annex", true), version), "the copy of the record will show it");
    store.inner.volumes[0].log.barrier().await.unwrap();
    next_log(&store, &disk).await;
    let second = store.inner.volumes[0].directory.segment(2).unwrap();
    let is_needed_of_second = |body: CommitBody| {
        let (oldest, version) = (store.inner.oldest_beside(second.key()), store.next_generation().0);
        store.inner.needed_of(&second, &oldest, version, body).is_some()
    };
    assert!(is_needed_of_second(state(b"annex", true)), "the first log has an older state");
    assert!(!is_needed_of_second(state(b"annex", false)) && !is_needed_of_second(state(b"older", true)));
    reclaim_now(&store, 1).await.unwrap();
    assert!(!is_needed(written("v"), version), "it stands in another log already");
}

/// One log after another fills up, with something in each that may not go.
#[tokio::test]
async fn a_store_of_logs_alone_makes_room_for_itself() {
    let disk = MemoryDisk::default();
    let store = tight(&disk).await;
    for index in 0..3000 {
        if index % 150 == 0 {
            put(&store, &format!("p{index}"), &pattern(index, 900)).await;
        }
        put(&store, "churn", &pattern(index, 900)).await;
    }
    for index in (0..3000).step_by(150) {
        assert_eq!(read(&store, &format!("p{index}")).await.unwrap(), pattern(index, 900));
    }
    assert!(store.counters().snapshots < 20, "{:?}", store.counters());
}

#[tokio::test]
async fn a_value_is_carried_as_often_as_its_log_goes() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let version = write_value(&store, "v", Some("kept")).await;
    for _ in 0..3 {
        let log = store.inner.values.get(b"v", |row| row.segment.number).unwrap();
        while !store.inner.volumes[0].directory.segment(log).unwrap().is_sealed() {
            put(&store, "churn", &pattern(2, 900)).await;
        }
        reclaim_now(&store, log).await.unwrap();
        super::counts::check_counts(&store);
    }
    for store in [store, open(&disk).await] {
        assert_eq!(store.value(b"v").unwrap(), crate::Versioned { value: "kept".into(), version });
    }
}

#[tokio::test]
async fn a_value_that_is_overwritten_while_it_is_carried_keeps_its_place() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    write_value(&store, "v", Some("old")).await;
    let writing = store.clone();
    let version = reclaim_beside(&store, &disk, async move { write_value(&writing, "v", Some("new")).await }).await;
    super::counts::check_counts(&store);
    for store in [store, open(&disk).await] {
        assert_eq!(store.value(b"v").unwrap(), crate::Versioned { value: "new".into(), version });
    }
}
