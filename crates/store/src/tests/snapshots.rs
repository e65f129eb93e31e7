//! Snapshots that find no room.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use forebay_env::{DiskFile, DiskSpace};

use super::*;

/// A disk that counts the snapshots that are begun, and may have no room for them or refuse them.
#[derive(Default)]
struct Counting {
    disk: MemoryDisk,
    begun: AtomicU32,
    is_full: AtomicBool,
    is_broken: AtomicBool,
}

#[async_trait]
impl Disk for Counting {
    async fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        if name == "snapshot.new" {
            self.begun.fetch_add(1, Ordering::SeqCst);
            if self.is_full.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if self.is_broken.load(Ordering::SeqCst) {
                return Err(io::Error::other("the disk is broken"));
            }
        }
        self.disk.create(name).await
    }

    async fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(name).await
    }

    async fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list().await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name).await
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to).await
    }

    async fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory().await
    }

    async fn space(&self) -> io::Result<DiskSpace> {
        self.disk.space().await
    }

    fn label(&self) -> String {
        self.disk.label()
    }
}

impl Counting {
    fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }
}

async fn write_some(store: &Store) {
    for index in 0..5 {
        write_value(store, &format!("key{index}"), Some("value")).await;
        settle().await;
    }
}

/// Each try writes until the disk is full, and takes the room of commits meanwhile.
#[tokio::test]
async fn a_snapshot_that_failed_is_tried_again_after_a_pause() {
    let disk = Arc::new(Counting::default());
    disk.is_full.store(true, Ordering::SeqCst);
    let (env, clock) = Env::simulated(1);
    let settings = Settings { snapshot_log_bytes: 1, ..small() };
    let store = Store::open(env, vec![Arc::clone(&disk) as Arc<dyn Disk>], settings, None).await.unwrap();
    write_some(&store).await;
    assert_eq!(disk.begun(), 1);
    for (later_ms, begun) in [(999, 1), (1, 2), (1999, 2), (1, 3)] {
        clock.advance(Duration::from_millis(later_ms));
        write_some(&store).await;
        assert_eq!(disk.begun(), begun, "{later_ms} ms later");
    }
    for tries in 4..14 {
        clock.advance(Duration::from_secs(60));
        write_some(&store).await;
        assert_eq!(disk.begun(), tries, "no pause is longer than a minute");
    }
    assert_eq!(store.counters().snapshots, 0);
    disk.is_full.store(false, Ordering::SeqCst);
    clock.advance(Duration::from_secs(60));
    write_some(&store).await;
    assert!(store.counters().snapshots > 0);
}

/// What is left is for commits and reclaim.
#[tokio::test]
async fn no_snapshot_is_begun_where_it_would_take_the_reserve() {
    let disk = Arc::new(Counting::default());
    let settings = Settings { snapshot_log_bytes: 4 << 10, ..small() };
    let disks = vec![Arc::clone(&disk) as Arc<dyn Disk>];
    let store = Store::open(Env::simulated(1).0, disks, settings, None).await.unwrap();
    write_some(&store).await;
    disk.disk.set_capacity(disk.disk.used_bytes() + (12 << 10));
    store.look_at_space().await;
    while store.counters().appended_bytes < 5 << 10 {
        write_some(&store).await;
    }
    assert_eq!(disk.begun(), 0);
    disk.disk.set_capacity(4 << 20);
    store.look_at_space().await;
    write_some(&store).await;
    assert_eq!((disk.begun(), store.counters().snapshots), (1, 1));
}

/// More room is no reason to try again at once where another problem was in the way.
#[tokio::test]
async fn more_room_ends_only_the_pause_of_a_snapshot_that_lacked_room() {
    for (lacks_room, begun) in [(true, 2), (false, 1)] {
        let disk = Arc::new(Counting::default());
        let problem = if lacks_room { &disk.is_full } else { &disk.is_broken };
        problem.store(true, Ordering::SeqCst);
        disk.disk.set_capacity(1 << 20);
        let (env, clock) = Env::simulated(1);
        let settings = Settings { snapshot_log_bytes: 1, ..small() };
        let store = Store::open(env, vec![Arc::clone(&disk) as Arc<dyn Disk>], settings, None).await.unwrap();
        write_some(&store).await;
        assert_eq!(disk.begun(), 1);
        disk.disk.set_capacity(8 << 20);
        store.look_at_space().await;
        write_some(&store).await;
        assert_eq!(disk.begun(), begun, "it lacked room: {lacks_room}");
        problem.store(false, Ordering::SeqCst);
        clock.advance(Duration::from_secs(2));
        write_some(&store).await;
        assert!(store.counters().snapshots > 0, "it lacked room: {lacks_room}");
    }
}

/// The first two directories take the beginning of the file, and no more.
#[tokio::test]
async fn the_copies_of_a_snapshot_go_to_directories_with_room() {
    let disks = [(); 4].map(|()| MemoryDisk::default());
    let settings = Settings { capacity_bytes: vec![4 << 20; 4], ..small() };
    let store = try_open_all(&disks, settings).await.unwrap();
    write_some(&store).await;
    for disk in &disks[..2] {
        disk.set_capacity(disk.used_bytes() + 64);
    }
    store.look_at_space().await;
    store.inner.snapshot().await.unwrap();
    let has_copy = disks.each_ref().map(|disk| disk.contents("snapshot").is_some());
    assert_eq!(has_copy, [false, false, true, true]);
}
