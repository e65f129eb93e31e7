//! Objects that are durable before a commit publishes them.

use super::reclaim::{churn, reclaim_now, tight};
use super::*;
use crate::Annotation;

async fn prepare(store: &Store, key: &str, data: &Bytes) -> Staged {
    let staged = stage(store, key, data).await.unwrap();
    store.prepare(staged).await.unwrap()
}

async fn publish(store: &Store, publish: Vec<Staged>) {
    store.commit(Commit { publish, ..Commit::default() }, Durability::Fsync).await.unwrap();
}

/// One that fits into a record, and a large one.
fn sizes() -> [Bytes; 2] {
    [pattern(1, 300), pattern(2, 20_000)]
}

fn keys_of(prepared: &[Staged]) -> Vec<&[u8]> {
    prepared.iter().map(|staged| staged.key().as_ref()).collect()
}

#[tokio::test]
async fn what_is_prepared_is_seen_when_a_commit_publishes_it() {
    for data in sizes() {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        let staged = prepare(&store, "key", &data).await;
        assert!(store.peek(b"key").is_none());
        let object = staged.object();
        assert_eq!(read_object(&object).await.unwrap(), data);
        assert_eq!(object.metadata().await.unwrap(), "about key");
        publish(&store, vec![staged]).await;
        assert_eq!(read(&store, "key").await, Some(data.clone()));
        disk.power_loss(1);
        let store = open(&disk).await;
        assert_eq!(read(&store, "key").await, Some(data));
        assert!(store.take_prepared().is_empty());
    }
}

#[tokio::test]
async fn what_is_prepared_survives_and_is_published_or_dropped_by_a_later_life() {
    for with_snapshot in [false, true] {
        for data in sizes() {
            let disk = MemoryDisk::default();
            let store = open(&disk).await;
            let staged = [prepare(&store, "kept", &data).await, prepare(&store, "dropped", &data).await];
            if with_snapshot {
                store.inner.snapshot().await.unwrap();
            }
            disk.power_loss(1);
            drop(staged);
            let store = open(&disk).await;
            let seen = store.prepared();
            assert_eq!(seen.iter().map(Object::key).collect::<Vec<_>>(), [b"dropped".as_slice(), b"kept"]);
            assert_eq!(read_object(&seen[0]).await.unwrap(), data);
            let mut prepared = store.take_prepared();
            assert_eq!(keys_of(&prepared), [b"dropped".as_slice(), b"kept"]);
            assert_eq!(read_object(&prepared[0].object()).await.unwrap(), data);
            assert!(store.take_prepared().is_empty(), "they are handed out once");
            publish(&store, vec![prepared.remove(1)]).await;
            drop(prepared);
            store.inner.snapshot().await.unwrap();
            disk.power_loss(2);
            let store = open(&disk).await;
            assert!(store.take_prepared().is_empty(), "a snapshot does not show what was dropped");
            assert_eq!(read(&store, "kept").await, Some(data.clone()));
            assert!(store.peek(b"dropped").is_none());
        }
    }
}

#[tokio::test]
async fn a_snapshot_between_the_two_loses_neither() {
    for data in sizes() {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        let staged = prepare(&store, "key", &data).await;
        store.inner.snapshot().await.unwrap();
        publish(&store, vec![staged]).await;
        disk.power_loss(1);
        let store = open(&disk).await;
        assert_eq!(read(&store, "key").await, Some(data));
        assert!(store.take_prepared().is_empty());
    }
}

/// Another worker sends a copy again, and the first one is dropped.
#[tokio::test]
async fn what_is_prepared_twice_is_there_while_one_of_both_is() {
    let (disk, data) = (MemoryDisk::default(), pattern(1, 300));
    let store = open(&disk).await;
    let generation = store.next_generation();
    let mut twice = Vec::new();
    for _ in 0..2 {
        let object = NewObject { generation, ..named(&store, "key", data.len()) };
        let staged = stage_as(&store, Class::Durable, object, &data).await.unwrap();
        twice.push(store.prepare(staged).await.unwrap());
    }
    drop(twice.remove(0));
    store.close().await.unwrap();
    drop(twice);
    let store = open(&disk).await;
    assert_eq!(keys_of(&store.take_prepared()), [b"key"]);
}

#[tokio::test]
async fn a_snapshot_with_prepared_objects_is_refused_by_older_releases_and_others_are_not() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let version = || disk.contents("snapshot").unwrap()[4];
    let staged = prepare(&store, "key", &pattern(1, 10)).await;
    store.inner.snapshot().await.unwrap();
    assert_eq!(version(), 2);
    drop(staged);
    store.inner.snapshot().await.unwrap();
    assert_eq!(version(), 1);
}

#[tokio::test]
async fn reclaim_spares_what_is_prepared() {
    for data in sizes() {
        let disk = MemoryDisk::default();
        let store = tight(&disk).await;
        let staged = prepare(&store, "key", &data).await;
        churn(&store, 30).await;
        assert!(store.counters().reclaimed_segments > 0);
        assert_eq!(read_object(&staged.object()).await.unwrap(), data);
        store.inner.snapshot().await.unwrap();
        disk.power_loss(1);
        drop(staged);
        let store = tight(&disk).await;
        let prepared = store.take_prepared();
        churn(&store, 30).await;
        publish(&store, prepared).await;
        churn(&store, 30).await;
        assert_eq!(read(&store, "key").await, Some(data));
    }
}

#[tokio::test]
async fn a_rebuild_knows_what_was_published_by_a_log_that_was_reclaimed() {
    let disk = MemoryDisk::default();
    let store = tight(&disk).await;
    let data = pattern(1, 300);
    let (kept, deleted) = (prepare(&store, "kept", &data).await, prepare(&store, "deleted", &data).await);
    // The log with both stays, because it is full of pinned objects. The log that publishes them is reclaimed.
    for index in 0..55 {
        put(&store, &format!("p{index}"), &pattern(index, 1000)).await;
    }
    assert_eq!(files(&disk, ".log").await, ["00000001.log"]);
    while files(&disk, ".log").await.len() < 2 {
        put(&store, "churn", &pattern(3, 1000)).await;
    }
    publish(&store, vec![kept, deleted]).await;
    forget(&store, "deleted").await;
    churn(&store, 10).await;
    store.inner.snapshot().await.unwrap();
    reclaim_now(&store, 2).await.unwrap();
    let names = files(&disk, ".log").await;
    assert!(names.contains(&"00000001.log".to_owned()) && !names.contains(&"00000002.log".to_owned()), "{names:?}");
    store.close().await.unwrap();
    disk.edit("snapshot", |bytes| bytes.truncate(100));
    let store = tight(&disk).await;
    assert_eq!(read(&store, "kept").await, Some(data));
    assert!(store.peek(b"deleted").is_none());
}

#[tokio::test]
async fn an_older_clean_object_does_not_come_back_when_what_replaced_it_is_lost() {
    for is_evicted in [false, true] {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        put(&store, "key", &pattern(1, 300)).await;
        let (key, generation) = (Bytes::from_static(b"key"), generation(&store, "key"));
        let annotation = Annotation { key, generation, annex: Bytes::new(), pinned: false };
        store.commit(Commit { annotate: vec![annotation], ..Commit::default() }, Durability::Fsync).await.unwrap();
        if is_evicted {
            assert!(store.evict(b"key", generation));
        }
        let staged = prepare(&store, "key", &pattern(2, 300)).await;
        store.commit(Commit { publish: vec![staged], ..Commit::default() }, Durability::Os).await.unwrap();
        disk.power_loss(1);
        let store = open(&disk).await;
        drop(store.take_prepared());
        assert_ne!(read(&store, "key").await, Some(pattern(1, 300)), "evicted: {is_evicted}");
    }
}

#[tokio::test]
async fn a_pinned_object_stays_until_what_replaces_it_is_published() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "key", &pattern(1, 300)).await;
    let staged = prepare(&store, "key", &pattern(2, 300)).await;
    assert_eq!(read(&store, "key").await, Some(pattern(1, 300)));
    disk.power_loss(1);
    drop(staged);
    let store = open(&disk).await;
    drop(store.take_prepared());
    assert_eq!(read(&store, "key").await, Some(pattern(1, 300)));
}
