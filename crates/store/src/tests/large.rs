//! Large objects, ranges of them, sparse objects that are filled, and objects made of others.

use super::*;

#[tokio::test]
async fn large_objects_survive_a_power_cut() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let sizes = [1 << 10, (1 << 10) + 1, 8 << 10, (8 << 10) + 1, 200_000];
    for (index, size) in sizes.iter().enumerate() {
        put(&store, &format!("o{index}"), &pattern(index as u64, *size)).await;
    }
    let entry = |index: usize| Arc::clone(store.peek(format!("o{index}").as_bytes()).unwrap().entry());
    let extents: Vec<usize> = (0..sizes.len()).map(|index| entry(index).extents().len()).collect();
    assert_eq!(extents, [0, 1, 1, 2, 25], "small ones are one record, and none has an empty extent");
    disk.power_loss(3);
    let store = open(&disk).await;
    for (index, size) in sizes.iter().enumerate() {
        assert_eq!(read(&store, &format!("o{index}")).await.unwrap(), pattern(index as u64, *size));
    }
}

#[tokio::test]
async fn every_range_is_read() {
    let disk = MemoryDisk::default();
    let settings =
        Settings { extent_bytes_max: 200_000, inline_bytes_max: 150_000, segment_bytes: 512 << 10, ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    // One inline object of several blocks, and one of several extents of several blocks.
    for (key, size) in [("inline", 140_000), ("extents", 500_000)] {
        let data = pattern(9, size);
        put(&store, key, &data).await;
        let object = store.get(key.as_bytes()).unwrap();
        let edges = [0, 1, 65_535, 65_536, 65_537, 131_072, 199_999, 200_000, 200_001, 400_000, size - 1, size];
        let edges = edges.map(|edge| edge.min(size));
        for from in edges {
            for to in edges.into_iter().filter(|to| *to >= from) {
                let range = ByteRange::new(from as u64, to as u64);
                assert_eq!(read_range(&object, range).await.unwrap(), data.slice(from..to), "{key} {from}..{to}");
            }
        }
    }
}

#[tokio::test]
async fn a_staged_object_is_readable_and_invisible() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    for size in [100, 20_000] {
        let staged = stage(&store, "a", &pattern(1, size)).await.unwrap();
        let object = staged.object();
        assert_eq!(read_object(&object).await.unwrap(), pattern(1, size));
        assert_eq!(object.metadata().await.unwrap(), "about a");
        assert!(store.peek(b"a").is_none());
    }
    disk.power_loss(1);
    assert!(open(&disk).await.peek(b"a").is_none(), "nobody published it");
}

#[tokio::test]
async fn a_sparse_object_is_filled_page_by_page() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let (data, key) = (pattern(4, 10_000), Bytes::from_static(b"a"));
    let object = NewObject { pinned: false, ..named(&store, "a", 10_000) };
    let generation = object.generation;
    let writer = store.writer(Class::Fill, 0).await.unwrap();
    store.publish_fill(writer.finish(object).await.unwrap()).await.unwrap();
    let missing = |from, to| Piece::Missing(ByteRange::new(from, to));
    let cached = |from, to| Piece::Cached(ByteRange::new(from, to));
    let pieces = |store: &Store| store.peek(b"a").unwrap().pieces(ByteRange::of_size(10_000));
    assert_eq!(pieces(&store), [missing(0, 10_000)]);
    let fill = async |store: &Store, from: u64, to: u64| {
        store.fill(&key, generation, from, data.slice(from as usize..to as usize)).await.unwrap()
    };
    assert!(fill(&store, 4000, 6000).await);
    assert!(fill(&store, 8000, 10_000).await);
    assert!(!fill(&store, 5000, 7000).await, "a part of it is there");
    assert!(!fill(&store, 4000, 6000).await, "all of it is there");
    assert!(!store.fill(&key, Generation(generation.0 + 1), 0, data.slice(..10)).await.unwrap(), "another generation");
    assert!(!store.fill(b"b", generation, 0, data.slice(..10)).await.unwrap(), "no object");
    assert!(!store.fill(&key, generation, 9_999, data.slice(..2)).await.unwrap(), "behind its end");
    let expected = [missing(0, 4000), cached(4000, 6000), missing(6000, 8000), cached(8000, 10_000)];
    assert_eq!(pieces(&store), expected);
    assert_eq!(store.peek(b"a").unwrap().cached_bytes(), 4000);
    // What a killed process leaves is found again, and so is what a closed store leaves.
    let store = open(&disk).await;
    assert_eq!(pieces(&store), expected);
    store.close().await.unwrap();
    let store = open(&disk).await;
    assert_eq!(pieces(&store), expected);
    assert!(fill(&store, 0, 4000).await && fill(&store, 6000, 8000).await);
    assert_eq!(read(&store, "a").await.unwrap(), data);
}

/// A copy of its extents for each new one would take a large object quadratic time.
#[tokio::test]
async fn a_sparse_object_that_nobody_reads_is_filled_in_place() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let object = NewObject { pinned: false, ..named(&store, "a", 10_000) };
    let generation = object.generation;
    let writer = store.writer(Class::Fill, 0).await.unwrap();
    store.publish_fill(writer.finish(object).await.unwrap()).await.unwrap();
    let place = || Arc::as_ptr(store.peek(b"a").unwrap().entry());
    let before = place();
    assert!(store.fill(b"a", generation, 0, pattern(1, 1000)).await.unwrap());
    assert_eq!(place(), before);
    let reader = store.peek(b"a").unwrap();
    assert!(store.fill(b"a", generation, 1000, pattern(2, 1000)).await.unwrap());
    assert_eq!((reader.cached_bytes(), store.peek(b"a").unwrap().cached_bytes()), (1000, 2000));
    super::counts::check_counts(&store);
}

#[tokio::test]
async fn fills_may_be_lost_and_are_never_wrong() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..40 {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        for index in 0..4 {
            put_fill(&store, &format!("f{index}"), &pattern(index, 700 + 3000 * index as usize)).await;
        }
        disk.power_loss(seed);
        let store = open(&disk).await;
        for index in 0..4 {
            let Some(object) = store.peek(format!("f{index}").as_bytes()) else {
                lost += 1;
                continue;
            };
            match read_object(&object).await {
                Ok(data) => {
                    assert_eq!(data, pattern(index, 700 + 3000 * index as usize));
                    kept += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::Corrupt);
                    lost += 1;
                }
            }
        }
    }
    assert!(lost > 0 && kept > 0, "{lost} lost, {kept} kept");
}

#[tokio::test]
async fn objects_are_concatenated_without_a_copy() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    // Inline in the log, in extents, empty, inline again.
    let sizes = [900, 20_000, 0, 700];
    let mut whole = Vec::new();
    for (index, size) in sizes.into_iter().enumerate() {
        put(&store, &format!("part{index}"), &pattern(index as u64, size)).await;
        whole.extend_from_slice(&pattern(index as u64, size));
    }
    let whole = Bytes::from(whole);
    let parts: Vec<Object> =
        (0..sizes.len()).map(|index| store.peek(format!("part{index}").as_bytes()).unwrap()).collect();
    let before = store.counters().appended_bytes;
    let bulk = |disk: &MemoryDisk| disk.contents("00000002.bulk").unwrap().len();
    let bulk_before = bulk(&disk);
    let staged = store.concatenate(&parts, named(&store, "whole", whole.len())).await.unwrap();
    assert_eq!(read_object(&staged.object()).await.unwrap(), whole);
    let forget = (0..sizes.len()).map(|index| Bytes::from(format!("part{index}"))).collect();
    let commit = Commit { publish: vec![staged], forget, ..Commit::default() };
    store.commit(commit, Durability::Fsync).await.unwrap();
    assert!(store.counters().appended_bytes - before < 1000, "the bytes were not written again");
    assert_eq!(bulk(&disk), bulk_before, "nor to another segment");
    assert_eq!(read(&store, "whole").await.unwrap(), whole);
    disk.power_loss(8);
    let store = open(&disk).await;
    assert_eq!(read(&store, "whole").await.unwrap(), whole);
    assert_eq!(store.usage().objects, 1);
}

#[tokio::test]
async fn small_objects_are_concatenated_into_one_record() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let sizes = [400, 0, 600, 24];
    for (index, size) in sizes.into_iter().enumerate() {
        put(&store, &format!("part{index}"), &pattern(index as u64, size)).await;
    }
    let parts: Vec<Object> = (0..4).map(|index| store.peek(format!("part{index}").as_bytes()).unwrap()).collect();
    let staged = store.concatenate(&parts, named(&store, "whole", 1 << 10)).await.unwrap();
    store.commit(Commit { publish: vec![staged], ..Commit::default() }, Durability::Fsync).await.unwrap();
    let whole: Vec<u8> = sizes.iter().enumerate().flat_map(|(index, size)| pattern(index as u64, *size)).collect();
    assert_eq!(read(&store, "whole").await.unwrap(), whole);
    assert!(store.peek(b"whole").unwrap().entry().is_inline());
}

#[tokio::test]
async fn what_lacks_bytes_is_not_concatenated() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    for size in [500, 20_000] {
        let object = NewObject { pinned: false, ..named(&store, "sparse", size) };
        let writer = store.writer(Class::Fill, 0).await.unwrap();
        store.publish_fill(writer.finish(object).await.unwrap()).await.unwrap();
        let sparse = store.peek(b"sparse").unwrap();
        let whole = named(&store, "whole", size);
        check_error(store.concatenate(&[sparse], whole).await, ErrorKind::Corrupt, "lacks bytes");
    }
}

#[tokio::test]
async fn pieces_that_only_the_system_has_are_durable_in_a_concatenation() {
    for seed in 0..20 {
        let disks = [MemoryDisk::default(), MemoryDisk::default()];
        let settings = || Settings { capacity_bytes: vec![4 << 20, 4 << 20], ..small() };
        let store = try_open_all(&disks, settings()).await.unwrap();
        let mut whole = Vec::new();
        for index in 0..4 {
            let publish = vec![stage(&store, &format!("part{index}"), &pattern(index, 900)).await.unwrap()];
            store.commit(Commit { publish, ..Commit::default() }, Durability::Os).await.unwrap();
            whole.extend_from_slice(&pattern(index, 900));
        }
        let parts: Vec<Object> = (0..4).map(|index| store.peek(format!("part{index}").as_bytes()).unwrap()).collect();
        let staged = store.concatenate(&parts, named(&store, "whole", whole.len())).await.unwrap();
        store.commit(Commit { publish: vec![staged], ..Commit::default() }, Durability::Fsync).await.unwrap();
        disks.iter().for_each(|disk| disk.power_loss(seed));
        let store = try_open_all(&disks, settings()).await.unwrap();
        assert_eq!(read(&store, "whole").await.unwrap(), whole);
    }
}

/// Values of more bytes than the head of a record can have: written, they would have made the log unreadable.
#[tokio::test]
async fn a_commit_that_no_start_could_read_is_refused() {
    let disk = MemoryDisk::new(2 << 30);
    let settings = || Settings { capacity_bytes: vec![1 << 30], segment_bytes: 128 << 20, ..small() };
    let store = try_open_all(std::slice::from_ref(&disk), settings()).await.unwrap();
    let set = async |key: &'static str, bytes: usize| {
        let writes = vec![ValueWrite { key: Bytes::from_static(key.as_bytes()), value: Some(vec![7; bytes].into()) }];
        store.commit(Commit { writes, ..Commit::default() }, Durability::Fsync).await
    };
    set("before", 10).await.unwrap();
    check_error(set("large", 65 << 20).await, ErrorKind::TooLarge, "is longer than");
    set("after", 10).await.unwrap();
    disk.power_loss(1);
    let store = try_open_all(std::slice::from_ref(&disk), settings()).await.unwrap();
    assert!(store.value(b"before").is_some() && store.value(b"after").is_some());
    assert!(store.value(b"large").is_none());
}

/// More pieces than the head of a record can name, which no reader accepts: some terabytes of a multipart upload.
#[tokio::test]
async fn an_object_of_more_pieces_than_a_record_can_name_is_refused() {
    let disk = MemoryDisk::default();
    let store = open(&disk).await;
    let settings = Settings { extent_bytes_max: 512, inline_bytes_max: 0, ..small() };
    store.close().await.unwrap();
    let store = try_open_all(std::slice::from_ref(&disk), settings).await.unwrap();
    let data = pattern(1, 512 * 1000);
    put(&store, "piece", &data).await;
    let piece = store.peek(b"piece").unwrap();
    let concatenate = async |pieces: usize| {
        let object = named(&store, "whole", pieces * data.len());
        store.concatenate(&vec![piece.clone(); pieces], object).await
    };
    check_error(concatenate(6000).await.map(drop), ErrorKind::TooLarge, "more than one record can name");
    let publish = vec![concatenate(2000).await.unwrap()];
    store.commit(Commit { publish, ..Commit::default() }, Durability::Fsync).await.unwrap();
    disk.kill();
    let store = open(&disk).await;
    let whole = store.peek(b"whole").unwrap();
    assert_eq!(whole.cached_bytes(), 2000 * data.len() as u64);
    let end = ByteRange::new(whole.size() - 512, whole.size());
    assert_eq!(read_range(&whole, end).await.unwrap(), data.slice(data.len() - 512..));
}
