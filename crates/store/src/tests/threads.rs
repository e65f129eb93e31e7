//! Many threads at once, on a directory of the machine.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_env::disk::real::RealDisk;

use super::*;

const WRITERS: u64 = 6;
const ROUNDS: u64 = 150;

fn size_of(round: u64) -> usize {
    if round.is_multiple_of(4) { 9000 } else { (round % 900) as usize }
}

/// Overwrites its keys, deletes one of them in every round, and reads what the others write.
async fn write_and_read(store: Store, writer: u64, newest: Arc<Vec<AtomicU64>>) {
    for round in 1..=ROUNDS {
        let key = format!("w{writer}");
        put(&store, &key, &pattern(round, size_of(round))).await;
        newest[writer as usize].store(round, Ordering::SeqCst);
        put(&store, &format!("d{writer}"), &pattern(round, 600)).await;
        put_fill(&store, &format!("f{writer}-{round}"), &pattern(round, 700)).await;
        forget(&store, &format!("d{writer}")).await;
        assert!(store.peek(format!("d{writer}").as_bytes()).is_none());
        let other = (writer + round) % WRITERS;
        let at_least = newest[other as usize].load(Ordering::SeqCst);
        let data = loop {
            let Some(object) = store.get(format!("w{other}").as_bytes()) else { break None };
            match read_object(&object).await {
                // It was overwritten, and its room needed before it was read.
                Err(error) if error.kind == ErrorKind::Gone => {}
                data => break Some(data.unwrap()),
            }
        };
        let Some(data) = data else {
            assert_eq!(at_least, 0, "w{other} was there");
            continue;
        };
        let found = (at_least..=ROUNDS).find(|round| data == pattern(*round, size_of(*round)));
        assert!(found.is_some(), "w{other} holds something else than a write from {at_least} on");
    }
}

async fn check_last(store: &Store) {
    for writer in 0..WRITERS {
        assert_eq!(read(store, &format!("w{writer}")).await.unwrap(), pattern(ROUNDS, size_of(ROUNDS)));
        assert!(store.peek(format!("d{writer}").as_bytes()).is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_readers_and_reclaim_go_on_side_by_side() {
    let disks = [MemoryDisk::default(), MemoryDisk::default()];
    let settings = || Settings { capacity_bytes: vec![10 * (64 << 10); 2], snapshot_log_bytes: 50 << 10, ..small() };
    let store = try_open_all(&disks, settings()).await.unwrap();
    let newest = Arc::new((0..WRITERS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| forebay_env::spawn(write_and_read(store.clone(), writer, Arc::clone(&newest))))
        .collect();
    for writer in writers {
        writer.join().await;
    }
    let counters = store.counters();
    assert!(counters.reclaimed_segments > 20 && counters.snapshots > 3, "{counters:?}");
    check_last(&store).await;
    store.close().await.unwrap();
    disks.iter().for_each(|disk| disk.power_loss(1));
    check_last(&try_open_all(&disks, settings()).await.unwrap()).await;
}

#[tokio::test]
async fn a_directory_of_the_machine_does_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let open = async || {
        let disk = Arc::new(RealDisk::open(directory.path()).unwrap());
        Store::open(Env::real(), vec![disk], small(), None).await.unwrap()
    };
    let store = open().await;
    put(&store, "small", &pattern(1, 100)).await;
    put(&store, "large", &pattern(2, 100_000)).await;
    put_fill(&store, "fill", &pattern(3, 5000)).await;
    write_value(&store, "v", Some("value")).await;
    store.close().await.unwrap();
    drop(store);
    let store = open().await;
    for (key, seed, size) in [("small", 1, 100), ("large", 2, 100_000), ("fill", 3, 5000)] {
        assert_eq!(read(&store, key).await.unwrap(), pattern(seed, size));
    }
    assert_eq!(value(&store, "v").as_deref(), Some("value"));
    store.close().await.unwrap();
}
