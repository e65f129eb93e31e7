//! Starts: what they find, whatever the previous process has left half done.

use super::*;

/// Opens a store in a new process, and checks one small and one large object.
async fn check_found(disks: &[MemoryDisk], says: &str) -> Store {
    let settings = Settings { capacity_bytes: vec![4 << 20; disks.len()], ..small() };
    let store = try_open_all(disks, settings).await.unwrap_or_else(|error| panic!("{says}: {error}"));
    assert_eq!(read(&store, "small").await.unwrap(), pattern(1, 300), "{says}");
    assert_eq!(read(&store, "large").await.unwrap(), pattern(2, 20_000), "{says}");
    assert_eq!(value(&store, "v").as_deref(), Some("value"), "{says}");
    store
}

async fn write_all(store: &Store) {
    put(store, "small", &pattern(1, 300)).await;
    put(store, "large", &pattern(2, 20_000)).await;
    write_value(store, "v", Some("value")).await;
}

#[tokio::test]
async fn a_beginning_that_was_interrupted_is_begun_again() {
    let disk = MemoryDisk::default();
    write_file(&disk, "identity.new", b"half of it").await;
    write_all(&open(&disk).await).await;
    check_found(&[disk], "after the first start").await;
}

/// The previous process died between renaming a file and syncing its directory.
#[test]
fn an_identity_that_a_start_finds_survives_a_power_cut() {
    /// Runs a process. Everything that it has spawned ends with it.
    fn run<T>(process: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(process)
    }
    let begun = MemoryDisk::default();
    run(open(&begun));
    let [members, identity] = ["members", "identity"].map(|name| begun.contents(name).unwrap());
    for seed in 0..80 {
        let disk = MemoryDisk::default();
        run(async {
            write_file(&disk, "identity", &identity).await;
            if seed % 2 == 0 {
                disk.sync_directory().await.unwrap();
                write_file(&disk, "members", &members).await;
            }
            let store = open(&disk).await;
            disk.hold_syncs(true);
            let body = pattern(1, 300);
            tokio::select! {
                put = try_put(&store, "key", &body) => panic!("nothing is synced: {put:?}"),
                () = settle() => (),
            }
        });
        disk.power_loss(seed);
        run(open(&disk));
    }
}

#[tokio::test]
async fn directories_can_be_added() {
    let disks: Vec<MemoryDisk> = (0..4).map(|_| MemoryDisk::default()).collect();
    write_all(&open(&disks[0]).await).await;
    for count in [2, 4, 4] {
        let store = check_found(&disks[..count], "with more directories").await;
        for index in 0..8 {
            put(&store, &format!("o{index}"), &pattern(index, 300)).await;
        }
        store.close().await.unwrap();
    }
    assert!(!files(&disks[3], ".log").await.is_empty(), "a new directory takes writes");
}

#[tokio::test]
async fn a_snapshot_that_is_cut_or_damaged_anywhere_is_passed_over() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    write_all(&store).await;
    store.close().await.unwrap();
    let whole = disk.contents("snapshot").unwrap();
    for at in 0..whole.len() {
        disk.edit("snapshot", |bytes| bytes.truncate(at));
        check_found(std::slice::from_ref(&disk), &format!("cut at {at}")).await;
        disk.edit("snapshot", |bytes| bytes.clone_from(&whole));
        disk.flip_bit("snapshot", at, at as u8);
        check_found(std::slice::from_ref(&disk), &format!("damaged at {at}")).await;
        disk.edit("snapshot", |bytes| bytes.clone_from(&whole));
    }
}

#[tokio::test]
async fn the_newest_snapshot_counts_and_no_other_stays() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let settings = Settings { capacity_bytes: vec![4 << 20; 2], ..small() };
    let store = try_open_all(&disks, settings).await.unwrap();
    put(&store, "gone", &pattern(1, 300)).await;
    store.inner.snapshot().await.unwrap();
    let older = disks[0].contents("snapshot").unwrap();
    write_all(&store).await;
    forget(&store, "gone").await;
    store.inner.volumes[0].directory.fail("a test says so");
    store.inner.snapshot().await.unwrap();
    assert!(disks[0].contents("snapshot").is_none() && disks[1].contents("snapshot").is_some());
    write_file(&disks[0], "snapshot", &older).await;
    // What is not read can't be missed: the older snapshot would replay these records, and find nothing.
    for disk in &disks {
        for name in files(disk, ".log").await {
            disk.edit(&name, |bytes| bytes[64..].fill(0));
        }
    }
    let settings = Settings { capacity_bytes: vec![4 << 20; 2], ..small() };
    for disks in [disks.clone(), [disks[1].clone(), disks[0].clone()]] {
        let store = try_open_all(&disks, settings.clone()).await.unwrap();
        assert!(store.peek(b"gone").is_none() && store.peek(b"small").is_some());
    }
}

#[tokio::test]
async fn what_a_snapshot_shows_survives_a_power_cut() {
    for seed in 0..10 {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        for (key, size) in [("small", 300), ("large", 20_000)] {
            let publish = vec![stage(&store, key, &pattern(1, size)).await.unwrap()];
            store.commit(Commit { publish, ..Commit::default() }, Durability::Os).await.unwrap();
        }
        store.inner.snapshot().await.unwrap();
        disk.power_loss(seed);
        let store = open(&disk).await;
        for (key, size) in [("small", 300), ("large", 20_000)] {
            assert_eq!(read(&store, key).await.unwrap(), pattern(1, size));
        }
    }
}

#[tokio::test]
async fn fills_behind_a_snapshot_are_found_and_deleted_ones_before_it_are_not() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put_fill(&store, "before", &pattern(1, 300)).await;
    put_fill(&store, "gone", &pattern(2, 300)).await;
    forget(&store, "gone").await;
    // Its record gets the very next sequence.
    let object = NewObject { pinned: false, ..named(&store, "next", 300) };
    let next = stage_as(&store, Class::Fill, object, &pattern(3, 300)).await.unwrap();
    store.inner.snapshot().await.unwrap();
    store.publish_fill(next).await.unwrap();
    put_fill(&store, "behind", &pattern(4, 300)).await;
    let store = open(&disk).await;
    for (seed, key) in [(1, "before"), (3, "next"), (4, "behind")] {
        assert_eq!(read(&store, key).await.unwrap(), pattern(seed, 300), "{key}");
    }
    assert!(store.peek(b"gone").is_none());
}

/// A start reads some megabytes at once.
#[tokio::test]
async fn long_segments_are_read_piece_by_piece() {
    let disk = MemoryDisk::default();
    let settings = Settings {
        capacity_bytes: vec![256 << 20],
        segment_bytes: 32 << 20,
        inline_bytes_max: 1 << 20,
        extent_bytes_max: 1 << 20,
        ..small()
    };
    let store = try_open_all(std::slice::from_ref(&disk), settings.clone()).await.unwrap();
    for index in 0..14 {
        put(&store, &format!("p{index}"), &pattern(index, 900_000)).await;
        put_fill(&store, &format!("f{index}"), &pattern(index, 900_000)).await;
    }
    // In the second piece of both.
    let damaged = disk.contents(&files(&disk, ".fill").await[0]).unwrap().len() / 2;
    disk.flip_bit(&files(&disk, ".fill").await[0], damaged, 1);
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    let found = (0..14).filter(|index| store.peek(format!("f{index}").as_bytes()).is_some()).count();
    assert_eq!(found, 13, "one is damaged, and those behind it are found");
    for index in 0..14 {
        assert_eq!(read(&store, &format!("p{index}")).await.unwrap(), pattern(index, 900_000));
    }
}

#[tokio::test]
async fn the_last_write_of_a_commit_counts() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let writes = vec![write("a", Some("1")), write("a", Some("2")), write("b", Some("1")), write("b", None)];
    store.commit(Commit { writes, ..Commit::default() }, Durability::Fsync).await.unwrap();
    for store in [store, open(&disk).await] {
        assert_eq!((value(&store, "a").as_deref(), value(&store, "b")), (Some("2"), None));
        super::counts::check_counts(&store);
    }
}

#[tokio::test]
async fn a_snapshot_follows_so_much_log() {
    let disk = MemoryDisk::default();
    let settings = Settings { snapshot_log_bytes: 20 << 10, ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    for index in 0..100 {
        put(&store, &format!("o{index}"), &pattern(index, 900)).await;
        settle().await;
    }
    let counters = store.counters();
    let expected = counters.appended_bytes / (20 << 10);
    assert!(expected > 3 && counters.snapshots <= expected && counters.snapshots + 2 > expected, "{counters:?}");
}
