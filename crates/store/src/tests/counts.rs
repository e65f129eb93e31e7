//! The counters agree with the tables and the files.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use forebay_env::Requester;
use forebay_env::sync::Mutex;

use super::*;
use crate::ids::SegmentKey;
use crate::permits::Permits;

/// What the objects and values of the tables need of a segment.
#[derive(Debug, Default, PartialEq)]
struct Needed {
    live_bytes: u64,
    pinned_bytes: u64,
    value_bytes: u64,
}

/// Compares all counters with the tables and the segments, while nothing is in flight.
pub(super) fn check_counts(store: &Store) {
    let inner = &store.inner;
    let mut segments = HashMap::<SegmentKey, Needed>::new();
    let mut groups = HashMap::<u32, u64>::new();
    let (mut pinned_bytes, mut evictable_bytes, mut objects) = (0, 0, 0);
    for entry in inner.objects.shards().flat_map(|shard| shard.read().iter().cloned().collect::<Vec<_>>()) {
        objects += 1;
        let record = u64::from(entry.record.head_bytes) + u64::from(entry.record.payload_bytes);
        let extents = entry.extents().iter().map(|extent| (extent.segment, u64::from(extent.bytes)));
        for (segment, bytes) in extents.chain([(entry.record.segment, record)]) {
            let needed = segments.entry(segment).or_default();
            needed.live_bytes += bytes;
            *if entry.pinned { &mut pinned_bytes } else { &mut evictable_bytes } += bytes;
            needed.pinned_bytes += if entry.pinned { bytes } else { 0 };
            *groups.entry(entry.group).or_default() += if entry.group == 0 { 0 } else { bytes };
        }
    }
    let values = inner.values.after(None, usize::MAX);
    values.iter().for_each(|row| segments.entry(row.segment).or_default().value_bytes += row.log_bytes());
    for directory in inner.volumes.iter().map(|volume| &volume.directory) {
        let present: Vec<_> = directory.segments.read().values().cloned().collect();
        for segment in &present {
            let counted = Needed {
                live_bytes: segment.live_bytes.load(Ordering::SeqCst),
                pinned_bytes: segment.pinned_bytes.load(Ordering::SeqCst),
                value_bytes: segment.value_bytes.load(Ordering::SeqCst),
            };
            assert_eq!(counted, segments.remove(&segment.key()).unwrap_or_default(), "{}", segment.header.name());
        }
        assert_eq!(directory.used_bytes(), present.iter().map(|segment| segment.length()).sum::<u64>());
    }
    let usage = store.usage();
    assert_eq!((usage.pinned_bytes, usage.evictable_bytes), (pinned_bytes, evictable_bytes));
    assert_eq!((usage.objects, usage.values), (objects, values.len() as u64));
    groups.into_iter().for_each(|(group, bytes)| assert_eq!(store.group_bytes(group), bytes, "group {group}"));
}

#[tokio::test]
async fn all_objects_are_visited_once() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let names: HashSet<String> = (0..300).map(|index| format!("o{index}")).collect();
    for name in &names {
        put_fill(&store, name, &pattern(1, 10)).await;
    }
    let mut visited = Vec::new();
    store.for_each_object(&mut |key, _, pinned| visited.push((String::from_utf8(key.to_vec()).unwrap(), pinned)));
    assert_eq!(visited.len(), 300);
    assert_eq!(visited.iter().map(|(key, _)| key.clone()).collect::<HashSet<_>>(), names);
    assert!(visited.iter().all(|(_, pinned)| !pinned));
    store.for_each_object_in(store.shards(), &mut |_, _, _| panic!("a shard that is not there has no objects"));
}

#[tokio::test]
async fn what_is_written_is_counted() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "first", &pattern(1, 300)).await;
    put_fill(&store, "first fill", &pattern(1, 300)).await;
    let length = async |extension| {
        let names = files(&disk, extension).await.into_iter();
        names.map(|name| disk.contents(&name).unwrap().len() as u64).sum::<u64>()
    };
    let before = (store.counters(), length(".log").await, length(".fill").await);
    disk.hold_syncs(true);
    // The first put has a group commit of its own, and the others share one.
    let puts: Vec<_> = (0..5)
        .map(|index| {
            let store = store.clone();
            forebay_env::spawn(async move { put(&store, &format!("o{index}"), &pattern(2, 300)).await })
        })
        .collect();
    settle().await;
    disk.hold_syncs(false);
    for put in puts {
        put.join().await;
    }
    let object = NewObject { pinned: false, ..named(&store, "sparse", 2000) };
    let (key, generation) = (object.key.clone(), object.generation);
    let writer = store.writer(Class::Fill, 0).await.unwrap();
    store.publish_fill(writer.finish(object).await.unwrap()).await.unwrap();
    let record = length(".fill").await - before.2;
    assert!(store.fill(&key, generation, 0, pattern(3, 2000)).await.unwrap());
    let after = store.counters();
    assert_eq!(after.appended_bytes - before.0.appended_bytes, length(".log").await - before.1);
    assert_eq!(after.filled_bytes - before.0.filled_bytes, record + 2000);
    // Bytes that were there before the record of their object also count, except the heads of their extents.
    let before = length(".fill").await;
    let object = NewObject { pinned: false, ..named(&store, "whole", 10_000) };
    let staged = stage_as(&store, Class::Fill, object, &pattern(4, 10_000)).await.unwrap();
    store.publish_fill(staged).await.unwrap();
    let filled = store.counters().filled_bytes - after.filled_bytes;
    assert!((10_001..length(".fill").await - before).contains(&filled), "{filled}");
    check_counts(&store);
}

/// A segment ends where the next record would go beyond its size, and not before.
#[tokio::test]
async fn segments_are_filled_to_their_size() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    for index in 0..300 {
        put(&store, &format!("o{index}"), &pattern(index, if index % 4 == 0 { 8 << 10 } else { 900 })).await;
        put_fill(&store, &format!("f{index}"), &pattern(index, 900)).await;
    }
    for (extension, record_max) in [(".log", 3000), (".bulk", 9000), (".fill", 3000)] {
        let names = files(&disk, extension).await;
        assert!(names.len() > 3, "{names:?}");
        for name in &names[..names.len() - 1] {
            let length = disk.contents(name).unwrap().len();
            assert!((64 << 10) - record_max < length && length <= 64 << 10, "{name} has {length} bytes");
        }
    }
}

#[tokio::test]
async fn bytes_that_wait_for_a_disk_are_bounded() {
    let disk = MemoryDisk::default();
    let settings = Settings { write_buffer_bytes_max: 16 << 10, ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    let held = store.inner.volumes[0].permits.take(12 << 10).await;
    let writer = store.clone();
    let writing = forebay_env::spawn(async move { put(&writer, "large", &pattern(1, 8 << 10)).await });
    settle().await;
    assert!(!writing.is_finished(), "8 KiB more would be too many");
    drop(held);
    writing.join().await;
    drop(store.inner.volumes[0].permits.take(1 << 20).await);
    assert_eq!(read(&store, "large").await.unwrap(), pattern(1, 8 << 10));
}

/// The queue of one requester is longer than the others can wait.
#[tokio::test]
async fn requesters_take_turns_with_the_bytes_that_wait_for_a_disk() {
    let permits = Arc::new(Permits::new(16 << 10));
    let held = Requester::named("busy").gets(permits.take(16 << 10)).await;
    let order = Arc::<Mutex<Vec<&str>>>::default();
    let queue = |name: &'static str, bytes: usize| {
        let (permits, order) = (Arc::clone(&permits), Arc::clone(&order));
        forebay_env::spawn(Requester::named(name).gets(async move {
            let permit = permits.take(bytes).await;
            order.lock().push(name);
            settle().await;
            drop(permit);
        }))
    };
    let mut waiting: Vec<_> = (0..5).map(|_| queue("busy", 8 << 10)).collect();
    settle().await;
    // It needs more than is free whenever only one of the others is done.
    waiting.push(queue("quiet", 16 << 10));
    settle().await;
    drop(held);
    for one in waiting {
        one.join().await;
    }
    assert_eq!(*order.lock(), ["busy", "quiet", "busy", "busy", "busy", "busy"]);
}

#[tokio::test]
async fn what_is_next_is_not_overtaken_and_may_give_up() {
    let permits = Permits::new(16 << 10);
    let held = permits.take(8 << 10).await;
    let mut large = Box::pin(Requester::named("large").gets(permits.take(16 << 10)));
    assert!(futures::poll!(&mut large).is_pending());
    let mut small = Box::pin(Requester::named("small").gets(permits.take(4 << 10)));
    assert!(futures::poll!(&mut small).is_pending(), "small ones would keep the large one waiting forever");
    drop(large);
    drop((small.await, held));
    drop(permits.take(16 << 10).await);
}
