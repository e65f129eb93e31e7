//! The store: group commit, snapshots, reclaim.

use std::sync::Arc;

use bytes::Bytes;
use forebay_env::disk::memory::MemoryDisk;
use forebay_env::sync::Mutex;
use forebay_env::{Disk, Env};
use forebay_store::{Class, Commit, ErrorKind, NewObject, Object, Piece, Result, Settings, Staged, Store, ValueWrite};
use forebay_types::{ByteRange, Durability};

use shuttle::rand::Rng;

use crate::explore::explore;

/// Segments that a few objects fill.
pub(crate) fn small(disks: usize, segments: u64) -> Settings {
    let segment_bytes = 2 << 10;
    Settings {
        segment_bytes,
        inline_bytes_max: 256,
        extent_bytes_max: 256,
        snapshot_log_bytes: 1 << 30,
        write_buffer_bytes_max: 64 << 10,
        sync_delay: std::time::Duration::ZERO,
        ..Settings::new(vec![segments * segment_bytes; disks])
    }
}

pub(crate) async fn open(env: &Env, disks: &[MemoryDisk], settings: Settings) -> Store {
    let disks = disks.iter().map(|disk| Arc::new(disk.for_one_life()) as Arc<dyn Disk>).collect();
    Store::open(env.clone(), disks, settings, None).await.expect("the store opens")
}

/// Bytes that tell which write they are of.
pub(crate) fn content(version: u64, size: usize) -> Bytes {
    version.to_be_bytes().into_iter().cycle().take(size).collect()
}

pub(crate) fn version_of(content: &Bytes) -> u64 {
    let version = u64::from_be_bytes(content[..8].try_into().expect("eight bytes"));
    assert_eq!(*content, self::content(version, content.len()), "bytes of one write only");
    version
}

async fn stage(store: &Store, class: Class, key: &str, data: &Bytes) -> Result<Staged> {
    let object = NewObject {
        key: Bytes::copy_from_slice(key.as_bytes()),
        generation: store.next_generation(),
        metadata: Bytes::new(),
        annex: Bytes::new(),
        pinned: class == Class::Durable,
        group: 0,
        size: data.len() as u64,
    };
    let mut writer = store.writer(class, object.size).await?;
    writer.append(data.clone()).await?;
    writer.finish(object).await
}

/// Commits an object and a value of the same name and version.
async fn put(store: &Store, key: &str, version: u64, size: usize) -> Result<u64> {
    let publish = vec![stage(store, Class::Durable, key, &content(version, size)).await?];
    let writes = vec![write(key, version)];
    store.commit(Commit { publish, writes, ..Commit::default() }, Durability::Fsync).await
}

fn write(key: &str, version: u64) -> ValueWrite {
    ValueWrite { key: Bytes::copy_from_slice(key.as_bytes()), value: Some(content(version, 8)) }
}

async fn read_all(object: &Object) -> Result<Bytes> {
    let mut data = Vec::new();
    for piece in object.pieces(ByteRange::of_size(object.size())) {
        let Piece::Cached(range) = piece else { panic!("{piece:?} of a whole object") };
        data.extend(object.read(range).await?);
    }
    Ok(data.into())
}

/// The version of an object, 0 when there is none.
async fn object_version(store: &Store, key: &str) -> u64 {
    loop {
        let Some(object) = store.get(key.as_bytes()) else { return 0 };
        match read_all(&object).await {
            Ok(content) => return version_of(&content),
            // What was found stays readable, unless it was replaced since and its room was needed.
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Gone, "{error}");
                let present = store.peek(key.as_bytes()).map(|present| present.generation());
                assert_ne!(present, Some(object.generation()), "the present version is readable");
            }
        }
    }
}

fn value_version(store: &Store, key: &str) -> u64 {
    store.value(key.as_bytes()).map_or(0, |found| version_of(&found.value))
}

/// Small ones are in the log, large ones in extents.
fn size_of(writer: u64) -> usize {
    if writer == 1 { 40 } else { 600 }
}

async fn acknowledged_commits_survive(disks: usize) {
    let (env, _) = Env::simulated(1);
    let disks: Vec<_> = (0..disks).map(|_| MemoryDisk::default()).collect();
    let settings = || Settings { snapshot_log_bytes: 500, ..small(disks.len(), 64) };
    let cut_after = shuttle::rand::thread_rng().gen_range(1..=9);
    let store = open(&env, &disks, settings()).await;
    let acknowledged = Arc::new(Mutex::new([0; 3]));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (store, acknowledged) = (store.clone(), Arc::clone(&acknowledged));
            forebay_env::spawn(async move {
                for version in 1..=4 {
                    if put(&store, &format!("k{writer}"), version, size_of(writer)).await.is_err() {
                        return;
                    }
                    acknowledged.lock()[writer as usize] = version;
                }
            })
        })
        .collect();
    let cut = {
        let (disks, acknowledged) = (disks.clone(), Arc::clone(&acknowledged));
        forebay_env::spawn(async move {
            while acknowledged.lock().iter().sum::<u64>() < cut_after {
                shuttle::future::yield_now().await;
            }
            let kept = *acknowledged.lock();
            disks.iter().for_each(|disk| disk.power_loss(1));
            kept
        })
    };
    let kept = cut.join().await;
    for writer in writers {
        writer.join().await;
    }
    let _ = store.close().await;
    let store = open(&env, &disks, settings()).await;
    for (writer, kept) in kept.into_iter().enumerate() {
        let key = format!("k{writer}");
        let found = (object_version(&store, &key).await, value_version(&store, &key));
        assert!(found.0 >= kept && found.0 == found.1, "{key}: {found:?} after {kept} was acknowledged");
    }
    store.close().await.expect("the store closes");
}

/// Commits of a group wait for one sync, extents are synced before the commit that names them, and a snapshot leaves
/// nothing out that was not applied yet.
#[test]
fn what_was_acknowledged_survives_a_power_cut() {
    explore(500, || acknowledged_commits_survive(1));
    explore(300, || acknowledged_commits_survive(2));
}

const VERSIONS: u64 = 9;

/// Writes its own key, which stays, and others that may be evicted.
async fn fill_up(store: Store, writer: u64) {
    let key = format!("k{writer}");
    for version in 1..=VERSIONS {
        put(&store, &key, version, size_of(writer)).await.expect("there is room");
        let data = content(version, 200);
        let staged = stage(&store, Class::Fill, &format!("f{writer}-{version}"), &data).await.expect("there is room");
        store.publish_fill(staged).await.expect("there is room");
        assert_eq!((object_version(&store, &key).await, value_version(&store, &key)), (version, version));
    }
}

async fn reclaim_beside_readers() {
    let (env, _) = Env::simulated(1);
    let disks = [MemoryDisk::default()];
    let settings = || Settings { snapshot_log_bytes: 2000, ..small(1, 9) };
    let store = open(&env, &disks, settings()).await;
    store
        .commit(Commit { writes: vec![write("still", 7)], ..Commit::default() }, Durability::Fsync)
        .await
        .expect("room");
    let writers: Vec<_> = (0..3).map(|writer| forebay_env::spawn(fill_up(store.clone(), writer))).collect();
    let reader = {
        let store = store.clone();
        forebay_env::spawn(async move {
            let mut before = [0; 3];
            for turn in 0..12 {
                let key = turn % 3;
                let found = object_version(&store, &format!("k{key}")).await;
                assert!(found >= before[key], "a read went back from {} to {found}", before[key]);
                before[key] = found;
                object_version(&store, &format!("f{key}-1")).await;
            }
        })
    };
    for task in writers {
        task.join().await;
    }
    reader.join().await;
    store.close().await.expect("the store closes");
    let (usage, counters) = (store.usage(), store.counters());
    assert!(usage.pinned_bytes > 0 && counters.reclaimed_segments > 0, "{counters:?}");
    assert_eq!(counters.corrupt_records, 0);
    let store = open(&env, &disks, settings()).await;
    for writer in 0..3 {
        let key = format!("k{writer}");
        assert_eq!((object_version(&store, &key).await, value_version(&store, &key)), (VERSIONS, VERSIONS), "{key}");
    }
    assert_eq!(value_version(&store, "still"), 7);
    assert_eq!(store.usage().pinned_bytes, usage.pinned_bytes, "what is counted is what is there");
    store.close().await.expect("the store closes");
}

/// What readers and writers hold is not reclaimed, what is carried forward is not lost, and the counts stay right.
#[test]
fn reclaim_leaves_readers_and_writers_alone() {
    explore(1200, reclaim_beside_readers);
}

async fn commit_beside_close(is_first: bool) {
    let (env, _) = Env::simulated(1);
    let disks = [MemoryDisk::default()];
    let store = open(&env, &disks, small(1, 64)).await;
    put(&store, "before", 1, 40).await.expect("there is room");
    store.close().await.expect("the store closes");
    let store = open(&env, &disks, small(1, 64)).await;
    if !is_first {
        put(&store, "before", 1, 40).await.expect("there is room");
    }
    let writer = {
        let store = store.clone();
        forebay_env::spawn(async move { put(&store, "late", 1, 40).await.is_ok() })
    };
    store.close().await.expect("the store closes");
    let written = writer.join().await;
    let store = open(&env, &disks, small(1, 64)).await;
    let found = (object_version(&store, "late").await, value_version(&store, "late"));
    // What was refused may be there all the same.
    assert!(found == (1, 1) || !written && found == (0, 0), "{found:?}, and written: {written}");
    assert_eq!(object_version(&store, "before").await, 1);
    store.close().await.expect("the store closes");
}

/// Also when it begins the log.
#[test]
fn a_commit_that_a_closing_store_takes_is_kept() {
    explore(400, || commit_beside_close(true));
    explore(400, || commit_beside_close(false));
}

async fn concatenate_beside_reclaim() {
    let (env, _) = Env::simulated(1);
    let store = open(&env, &[MemoryDisk::default()], small(1, 9)).await;
    put(&store, "part", 1, 304).await.expect("there is room");
    let part = store.peek(b"part").expect("it was put");
    let fillers = [0, 2].map(|writer| forebay_env::spawn(fill_up(store.clone(), writer)));
    // As it was looked up before: reclaim may be about to move it, or have moved it since.
    let beside = concatenate(&store, "beside", &part).await;
    for filler in fillers {
        filler.join().await;
    }
    let behind = concatenate(&store, "behind", &part).await;
    let counters = store.counters();
    assert!(counters.reclaimed_segments > 0, "{counters:?}");
    for (key, staged) in [("beside", beside), ("behind", behind)] {
        let publish = vec![staged];
        store.commit(Commit { publish, ..Commit::default() }, Durability::Fsync).await.expect("there is room");
        assert_eq!(object_version(&store, key).await, 1);
    }
    store.close().await.expect("the store closes");
}

/// An object made of a part, twice.
async fn concatenate(store: &Store, key: &'static str, part: &Object) -> Staged {
    let object = NewObject {
        key: Bytes::from_static(key.as_bytes()),
        generation: store.next_generation(),
        metadata: Bytes::new(),
        annex: Bytes::new(),
        pinned: true,
        group: 0,
        size: 2 * part.size(),
    };
    store.concatenate(&[part.clone(), part.clone()], object).await.expect("both are here")
}

#[test]
fn what_reclaim_moves_becomes_part_of_others() {
    explore(300, concatenate_beside_reclaim);
}
