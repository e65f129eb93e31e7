//! Tests of the store's interface, on disks that lose, tear and corrupt data on demand.

mod bad_sectors;
mod basic;
mod counts;
mod crash;
mod damage;
mod directories;
mod full;
mod growth;
mod large;
mod missing_logs;
mod model;
mod prepared;
mod progress;
mod reclaim;
mod refusals;
mod slow_readers;
mod snapshots;
mod stalls;
mod starts;
mod syncs;
mod threads;

use std::sync::Arc;

use bytes::Bytes;
use forebay_env::disk::memory::MemoryDisk;
use forebay_env::{Disk, Env};
use forebay_types::{ByteRange, Durability, Generation};

use crate::{
    Class, Commit, ErrorKind, GroupsLimit, NewObject, Object, Piece, Result, Settings, Staged, Store, ValueWrite,
};

/// Small enough for a test to fill many segments: segments of 64 KiB, extents of 8 KiB, 1 KiB inline.
fn small() -> Settings {
    Settings {
        segment_bytes: 64 << 10,
        inline_bytes_max: 1 << 10,
        extent_bytes_max: 8 << 10,
        snapshot_log_bytes: 1 << 30,
        ..Settings::new(vec![4 << 20])
    }
}

async fn try_open_all(disks: &[MemoryDisk], settings: Settings) -> Result<Store> {
    let disks = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    Store::open(Env::simulated(1).0, disks, settings, None).await
}

async fn try_open(disk: &MemoryDisk) -> Result<Store> {
    try_open_all(std::slice::from_ref(disk), small()).await
}

async fn open(disk: &MemoryDisk) -> Store {
    try_open(disk).await.unwrap()
}

/// Lets other tasks run until they all wait for something.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Bytes that show where they come from.
fn pattern(seed: u64, length: usize) -> Bytes {
    let mixed = |at: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (0..length as u64).map(|at| (mixed(at) >> 56) as u8).collect()
}

/// A pinned object of this size.
fn named(store: &Store, key: &str, size: usize) -> NewObject {
    NewObject {
        key: Bytes::copy_from_slice(key.as_bytes()),
        generation: store.next_generation(),
        metadata: Bytes::from(format!("about {key}")),
        annex: Bytes::from_static(b"annex"),
        pinned: true,
        group: 0,
        size: size as u64,
    }
}

async fn stage_as(store: &Store, class: Class, object: NewObject, data: &Bytes) -> Result<Staged> {
    let mut writer = store.writer(class, data.len() as u64).await?;
    for piece in data.chunks(5000) {
        writer.append(Bytes::copy_from_slice(piece)).await?;
    }
    writer.finish(object).await
}

async fn stage(store: &Store, key: &str, data: &Bytes) -> Result<Staged> {
    stage_as(store, Class::Durable, named(store, key, data.len()), data).await
}

async fn try_put(store: &Store, key: &str, data: &Bytes) -> Result<u64> {
    let publish = vec![stage(store, key, data).await?];
    store.commit(Commit { publish, ..Commit::default() }, Durability::Fsync).await
}

async fn put(store: &Store, key: &str, data: &Bytes) {
    try_put(store, key, data).await.unwrap();
}

/// Publishes a clean object without waiting for the disk.
async fn put_fill(store: &Store, key: &str, data: &Bytes) {
    let object = NewObject { pinned: false, ..named(store, key, data.len()) };
    store.publish_fill(stage_as(store, Class::Fill, object, data).await.unwrap()).await.unwrap();
}

/// The same when it may be refused.
async fn try_put_fill(store: &Store, key: &str, data: &Bytes) {
    let object = NewObject { pinned: false, ..named(store, key, data.len()) };
    if let Ok(staged) = stage_as(store, Class::Fill, object, data).await {
        let _may_be_refused = store.publish_fill(staged).await;
    }
}

/// Evicts objects of these groups until `bytes` are gone. Returns how many have gone.
async fn evict_of(store: &Store, groups: &[u32], bytes: u64) -> u64 {
    let used: u64 = groups.iter().map(|group| store.group_bytes(*group)).sum();
    let limit = GroupsLimit { groups: groups.to_vec(), most: 0, target: used.saturating_sub(bytes) };
    store.evict_groups(&[limit]).await
}

async fn forget(store: &Store, key: &str) {
    let forget = vec![Bytes::copy_from_slice(key.as_bytes())];
    store.commit(Commit { forget, ..Commit::default() }, Durability::Fsync).await.unwrap();
}

fn write(key: &str, value: Option<&str>) -> ValueWrite {
    let value = value.map(|value| Bytes::copy_from_slice(value.as_bytes()));
    ValueWrite { key: Bytes::copy_from_slice(key.as_bytes()), value }
}

async fn write_value(store: &Store, key: &str, value: Option<&str>) -> u64 {
    let commit = Commit { writes: vec![write(key, value)], ..Commit::default() };
    store.commit(commit, Durability::Fsync).await.unwrap()
}

fn value(store: &Store, key: &str) -> Option<String> {
    store.value(key.as_bytes()).map(|found| String::from_utf8(found.value.to_vec()).unwrap())
}

/// Names of the files with this extension, sorted.
async fn files(disk: &MemoryDisk, extension: &str) -> Vec<String> {
    let mut names = disk.list().await.unwrap();
    names.retain(|name| name.ends_with(extension));
    names.sort_unstable();
    names
}

/// Writes a file, synced.
async fn write_file(disk: &MemoryDisk, name: &str, bytes: &[u8]) {
    disk.create(name).await.unwrap().write_at(0, vec![Bytes::copy_from_slice(bytes)], true).await.unwrap();
}

async fn contents(disk: &MemoryDisk) -> Vec<(String, Vec<u8>)> {
    let names = files(disk, "").await.into_iter();
    names.map(|name| (name.clone(), disk.contents(&name).unwrap())).collect()
}

/// All bytes of an object. None may be missing.
async fn read_object(object: &Object) -> Result<Bytes> {
    read_range(object, ByteRange::of_size(object.size())).await
}

async fn read_range(object: &Object, range: ByteRange) -> Result<Bytes> {
    let mut data = Vec::new();
    for piece in object.pieces(range) {
        match piece {
            Piece::Cached(range) => data.extend_from_slice(&object.read(range).await?),
            Piece::Missing(range) => panic!("{range:?} is missing"),
        }
    }
    Ok(data.into())
}

/// The bytes under a key. `None` when there is no object.
async fn read(store: &Store, key: &str) -> Option<Bytes> {
    let object = store.peek(key.as_bytes())?;
    Some(read_object(&object).await.unwrap())
}

#[track_caller]
fn check_error<T>(result: Result<T>, kind: ErrorKind, says: &str) {
    let error = result.err().expect("it must be refused");
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

fn generation(store: &Store, key: &str) -> Generation {
    store.peek(key.as_bytes()).unwrap().generation()
}
