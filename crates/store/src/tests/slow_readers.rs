//! A reader of a deleted object keeps its room, but not from others who need it.

use super::*;

const SEGMENT_BYTES: u64 = 64 << 10;

async fn of_segments(disk: &MemoryDisk, count: u64) -> Store {
    let settings = Settings { capacity_bytes: vec![count * SEGMENT_BYTES], ..small() };
    try_open_all(std::slice::from_ref(disk), settings).await.unwrap()
}

async fn disk_bytes(disk: &MemoryDisk) -> u64 {
    let space = disk.space().await.unwrap();
    space.total - space.free
}

fn held_bytes(store: &Store) -> u64 {
    store.inner.volumes[0].directory.held_bytes()
}

#[tokio::test]
async fn readers_of_what_is_deleted_take_a_share_of_the_store_and_the_first_of_them_break_off() {
    let disk = MemoryDisk::default();
    let store = of_segments(&disk, 32).await;
    let (size, mut readers, mut most_held) = (50_000, Vec::new(), 0);
    for index in 0..120 {
        let key = format!("o{index}");
        put(&store, &key, &pattern(index, size)).await;
        readers.push(store.peek(key.as_bytes()).unwrap());
        forget(&store, &key).await;
        most_held = held_bytes(&store).max(most_held);
        let taken = disk_bytes(&disk).await;
        assert!(taken <= 32 * SEGMENT_BYTES, "{taken} bytes after object {index}");
    }
    assert!(most_held > 2 * SEGMENT_BYTES && most_held <= 4 * SEGMENT_BYTES, "{most_held}");
    let gone = read_object(&readers[0]).await;
    check_error(gone, ErrorKind::Gone, "its room needed");
    assert_eq!(read_object(&readers[119]).await.unwrap(), pattern(119, size), "nobody needs the room of the last one");
    assert_eq!(store.counters().corrupt_records, 0);
    drop(readers);
    assert_eq!(held_bytes(&store), 0);
    let (free, taken) = (store.usage().free_bytes, disk_bytes(&disk).await);
    // The small files of a directory count in no segment.
    assert!(free + taken <= 32 * SEGMENT_BYTES + 1024, "{free} bytes free, {taken} taken");
}

#[tokio::test]
async fn a_reader_goes_on_where_reclaim_has_moved_the_object_to() {
    let disk = MemoryDisk::default();
    let store = of_segments(&disk, 10).await;
    let sizes = [300, 5000];
    let key = |index: usize| format!("stays{index}");
    for (index, size) in sizes.into_iter().enumerate() {
        put(&store, &key(index), &pattern(index as u64, size)).await;
    }
    let readers: Vec<_> = (0..2).map(|index| store.peek(key(index).as_bytes()).unwrap()).collect();
    let moved = |reader: &Object| !Arc::ptr_eq(store.peek(reader.key()).unwrap().entry(), reader.entry());
    for round in 0..1000 {
        if readers.iter().all(moved) {
            break;
        }
        put(&store, "churn", &pattern(round, if round % 2 == 0 { 900 } else { 9000 })).await;
    }
    assert!(readers.iter().all(moved));
    while store.inner.volumes[0].directory.close_held() {}
    for (index, (reader, size)) in readers.iter().zip(sizes).enumerate() {
        assert_eq!(read_object(reader).await.unwrap(), pattern(index as u64, size));
        assert_eq!(reader.metadata().await.unwrap(), format!("about stays{index}"));
    }
    put(&store, &key(0), &pattern(7, 300)).await;
    for round in 0..1000 {
        put(&store, "churn", &pattern(round, if round % 2 == 0 { 900 } else { 9000 })).await;
    }
    while store.inner.volumes[0].directory.close_held() {}
    check_error(read_object(&readers[0]).await, ErrorKind::Gone, "");
}

/// Readers hold less than their share, and nothing else can go.
#[tokio::test]
async fn a_writer_gets_the_room_of_readers_when_nothing_else_can_go() {
    let disk = MemoryDisk::default();
    let store = of_segments(&disk, 24).await;
    let size = 50_000;
    let mut readers = Vec::new();
    for index in 0..2 {
        let key = format!("read{index}");
        put(&store, &key, &pattern(index, size)).await;
        readers.push(store.peek(key.as_bytes()).unwrap());
        forget(&store, &key).await;
    }
    let mut stay = 0;
    while try_put(&store, &format!("stays{stay}"), &pattern(stay, size)).await.is_ok() {
        stay += 1;
    }
    // All but the two segments that only commits may use, and the ends of segments that are too short for a record.
    assert!(stay >= 20, "{stay}");
    for reader in &readers {
        check_error(read_object(reader).await, ErrorKind::Gone, "");
    }
    assert_eq!(held_bytes(&store), 0);
}
