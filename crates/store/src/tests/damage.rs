//! Torn ends, damage in the middle, and bits that flip.

use super::*;
use crate::Annotation;

const LOG: &str = "00000001.log";

/// Puts objects in sequence into one log. Also returns where the records of each begin.
async fn with_puts(count: u64) -> (MemoryDisk, Vec<usize>) {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let mut starts = Vec::new();
    for index in 0..count {
        starts.push(disk.contents(LOG).map_or(64, |bytes| bytes.len()));
        put(&store, &format!("o{index}"), &pattern(index, 101)).await;
    }
    (disk, starts)
}

async fn check_puts(store: &Store, indexes: impl Iterator<Item = u64>) {
    for index in indexes {
        assert_eq!(read(store, &format!("o{index}")).await.unwrap(), pattern(index, 101));
    }
}

#[tokio::test]
async fn a_torn_end_is_cut_at_every_byte() {
    let (disk, starts) = with_puts(3).await;
    let whole = disk.contents(LOG).unwrap();
    for at in starts[2]..whole.len() {
        for zeroed in [false, true] {
            let (disk, _) = with_puts(3).await;
            disk.edit(LOG, |bytes| if zeroed { bytes[at..].fill(0) } else { bytes.truncate(at) });
            let store = open(&disk).await;
            check_puts(&store, 0..2).await;
            // Only the padding after the last record may be missing without it.
            let is_there = store.peek(b"o2").is_some();
            assert!(!is_there || whole[at..].iter().all(|byte| *byte == 0), "byte {at}");
            put(&store, "next", &pattern(9, 10)).await;
            disk.power_loss(at as u64);
            let store = open(&disk).await;
            check_puts(&store, 0..2).await;
            assert_eq!(read(&store, "next").await.unwrap(), pattern(9, 10));
            assert_eq!(store.peek(b"o2").is_some(), is_there);
        }
    }
}

#[tokio::test]
async fn damage_before_records_that_say_it_was_durable_is_refused_and_nothing_changes() {
    let (disk, starts) = with_puts(3).await;
    let (mut refused, mut harmless) = (0, 0);
    for at in starts[0]..starts[1] {
        disk.flip_bit(LOG, at, at as u8);
        let before = contents(&disk).await;
        match try_open(&disk).await {
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Corrupt, "byte {at}: {error}");
                assert!(error.to_string().contains(LOG), "{error}");
                assert_eq!(contents(&disk).await, before, "byte {at}");
                refused += 1;
            }
            Ok(store) => {
                // Padding.
                check_puts(&store, 0..3).await;
                harmless += 1;
            }
        }
        disk.flip_bit(LOG, at, at as u8);
    }
    assert!(refused > 200 && harmless < 16, "{refused} refused, {harmless} harmless");
    check_puts(&open(&disk).await, 0..3).await;
}

#[tokio::test]
async fn damage_at_the_end_of_a_log_that_went_on_is_refused() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let mut index = 0;
    while files(&disk, ".log").await.len() < 2 {
        put(&store, &format!("o{index}"), &pattern(index, 101)).await;
        index += 1;
    }
    let length = disk.contents(LOG).unwrap().len();
    disk.edit(LOG, |bytes| bytes.truncate(length - 20));
    let before = contents(&disk).await;
    check_error(try_open(&disk).await, ErrorKind::Corrupt, LOG);
    assert_eq!(contents(&disk).await, before);
}

/// Flips a bit where these bytes are in a file of this kind.
async fn flip(disk: &MemoryDisk, extension: &str, bytes: &[u8]) {
    for name in files(disk, extension).await {
        let contents = disk.contents(&name).unwrap();
        if let Some(at) = contents.windows(bytes.len()).position(|window| window == bytes) {
            return disk.flip_bit(&name, at + bytes.len() / 2, 3);
        }
    }
    panic!("the bytes are in no {extension} file");
}

#[tokio::test]
async fn a_flipped_bit_of_a_pinned_object_is_an_error_at_each_read() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    for (key, size, extension) in [("small", 300, ".log"), ("large", 20_000, ".bulk")] {
        let data = pattern(5, size);
        put(&store, key, &data).await;
        flip(&disk, extension, &data[..300]).await;
        for _ in 0..3 {
            let object = store.peek(key.as_bytes()).unwrap();
            check_error(read_object(&object).await, ErrorKind::Corrupt, "checksum");
        }
        assert!(store.peek(key.as_bytes()).unwrap().is_pinned(), "{key} is kept");
    }
    assert_eq!(store.counters().corrupt_records, 2, "each place once, however often it is read");
    let place = store.last_damaged().unwrap();
    let contents = disk.contents(&place.file).unwrap();
    assert!(place.file.ends_with(".bulk"), "{place:?}");
    assert_eq!(place.directory, Disk::label(&disk));
    let data = pattern(5, 20_000).slice(..100);
    let found = contents.windows(data.len()).position(|window| window == data).unwrap() as u64;
    assert!((1..1000).contains(&(found - place.offset)), "the record with the bytes begins there: {place:?}");
    // Other blocks of the same object are not affected.
    let large = store.peek(b"large").unwrap();
    let range = ByteRange::new(8 << 10, 20_000);
    assert_eq!(read_range(&large, range).await.unwrap(), pattern(5, 20_000).slice(8 << 10..));
}

#[tokio::test]
async fn a_flipped_bit_of_a_clean_object_drops_the_damaged_bytes() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let (small, large) = (pattern(6, 300), pattern(7, 20_000));
    put_fill(&store, "small", &small).await;
    put_fill(&store, "large", &large).await;
    flip(&disk, ".fill", &small).await;
    flip(&disk, ".fill", &large[9000..9100]).await;
    let evictable = store.usage().evictable_bytes;
    check_error(read_object(&store.peek(b"small").unwrap()).await, ErrorKind::Corrupt, "checksum");
    assert!(store.peek(b"small").is_none());
    let object = store.peek(b"large").unwrap();
    check_error(read_object(&object).await, ErrorKind::Corrupt, "checksum");
    let object = store.peek(b"large").unwrap();
    let missing = Piece::Missing(ByteRange::new(8 << 10, 16 << 10));
    assert!(object.pieces(ByteRange::of_size(20_000)).contains(&missing));
    assert!(store.usage().evictable_bytes < evictable - (8 << 10));
    assert!(store.fill(object.key(), object.generation(), 8 << 10, large.slice(8 << 10..16 << 10)).await.unwrap());
    assert_eq!(read(&store, "large").await.unwrap(), large);
    assert_eq!(store.counters().corrupt_records, 2);
}

#[tokio::test]
async fn damage_of_a_replaced_object_leaves_the_one_that_replaced_it() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    for (size, damaged) in [(300, 0..300), (20_000, 9000..9100)] {
        let (old, new) = (pattern(1, size), pattern(2, size));
        put_fill(&store, "a", &old).await;
        let held = store.peek(b"a").unwrap();
        put_fill(&store, "a", &new).await;
        flip(&disk, ".fill", &old[damaged]).await;
        check_error(read_object(&held).await, ErrorKind::Corrupt, "checksum");
        assert_eq!(read(&store, "a").await.unwrap(), new);
    }
}

#[tokio::test]
async fn what_was_clean_when_its_reader_came_and_is_pinned_now_stays() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    for (size, extension) in [(300, ".log"), (20_000, ".bulk")] {
        let data = pattern(1, size);
        put(&store, "a", &data).await;
        let annotate = async |pinned| {
            let (key, generation) = (Bytes::from_static(b"a"), generation(&store, "a"));
            let annotate = vec![Annotation { key, generation, annex: Bytes::new(), pinned }];
            store.commit(Commit { annotate, ..Commit::default() }, Durability::Fsync).await.unwrap();
        };
        annotate(false).await;
        let held = store.peek(b"a").unwrap();
        annotate(true).await;
        flip(&disk, extension, &data[..300]).await;
        let before = held.cached_bytes();
        check_error(read_object(&held).await, ErrorKind::Corrupt, "checksum");
        assert_eq!(store.peek(b"a").unwrap().cached_bytes(), before);
    }
}

/// An error of the disk counts like damage: the bytes of a clean object are fetched again, and those of a pinned one
/// are unreadable.
#[tokio::test]
async fn bytes_that_the_disk_cannot_read_are_as_damaged() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "pinned", &pattern(1, 300)).await;
    put_fill(&store, "clean", &pattern(1, 300)).await;
    disk.kill();
    for key in ["pinned", "clean"] {
        let object = store.peek(key.as_bytes()).unwrap();
        check_error(read_object(&object).await, ErrorKind::Corrupt, "could not read");
        assert_eq!(store.peek(key.as_bytes()).is_some(), key == "pinned");
    }
}

/// As if a file had been copied over another: all checksums match.
#[tokio::test]
async fn a_sound_record_of_another_store_is_never_served() {
    let (disk, theirs) = (MemoryDisk::default(), MemoryDisk::default());
    let store = open(&disk).await;
    let disks = vec![Arc::new(theirs.clone()) as Arc<dyn Disk>];
    let other = Store::open(Env::simulated(2).0, disks, small(), None).await.unwrap();
    for (store, seed) in [(&store, 1), (&other, 2)] {
        put(store, "small", &pattern(seed, 300)).await;
        put(store, "large", &pattern(seed, 20_000)).await;
    }
    for name in ["00000001.log", "00000002.bulk"] {
        disk.edit(name, |bytes| *bytes = theirs.contents(name).unwrap());
    }
    for key in ["small", "large"] {
        check_error(read_object(&store.peek(key.as_bytes()).unwrap()).await, ErrorKind::Corrupt, "another record");
    }
    check_error(store.peek(b"small").unwrap().metadata().await, ErrorKind::Corrupt, "another record");
}

#[tokio::test]
async fn a_flipped_bit_of_metadata_is_noticed() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    put(&store, "a", &pattern(1, 20_000)).await;
    flip(&disk, ".log", b"about a").await;
    check_error(store.peek(b"a").unwrap().metadata().await, ErrorKind::Corrupt, "checksum");
}

#[tokio::test]
async fn a_start_reads_nothing_before_the_last_snapshot() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    for index in 0..20 {
        put(&store, &format!("o{index}"), &pattern(index, 101)).await;
        put_fill(&store, &format!("f{index}"), &pattern(index, 101)).await;
    }
    store.inner.snapshot().await.unwrap();
    let shown = disk.contents(LOG).unwrap().len();
    put(&store, "behind", &pattern(1, 10)).await;
    write_value(&store, "v", Some("behind")).await;
    // What is not read can't be missed: the start does not notice that these records are gone.
    let kept = disk.contents(LOG).unwrap();
    disk.edit(LOG, |bytes| bytes[64..shown].fill(0));
    let check = async |store: &Store| {
        assert_eq!((store.usage().objects, store.usage().values), (41, 1));
        assert_eq!(read(store, "behind").await.unwrap(), pattern(1, 10));
    };
    let store = open(&disk).await;
    check(&store).await;
    store.close().await.unwrap();
    // After a close, no record is read at all.
    let names = [files(&disk, ".log").await, files(&disk, ".fill").await].concat();
    let before: Vec<_> = names.iter().map(|name| disk.contents(name).unwrap()).collect();
    names.iter().for_each(|name| disk.edit(name, |bytes| bytes[64..].fill(0)));
    check_counts(&open(&disk).await);
    names.iter().zip(before).for_each(|(name, whole)| disk.edit(name, |bytes| *bytes = whole));
    disk.edit(LOG, |bytes| *bytes = kept);
    let store = open(&disk).await;
    check(&store).await;
    check_puts(&store, 0..20).await;
}

fn check_counts(store: &Store) {
    assert_eq!((store.usage().objects, store.usage().values), (41, 1));
}
