use forebay_catalog::records::{Base, Holders, ObjectRecord, State};
use forebay_catalog::{Check, LocalChange, MemoryEngine, conformance};
use forebay_env::Disk;
use forebay_env::disk::memory::MemoryDisk;
use forebay_env::sync::atomic::Ordering;
use forebay_store::{Annotation, Class, NewObject, STALLED_AFTER, Settings, Staged};
use forebay_types::{ByteRange, ETag, Generation, ObjectPath};
use tokio::sync::Semaphore;

use super::*;
use crate::test_engine::{Fate, TestEngine};
use crate::test_ground::Ground;
use crate::view::{Member, MemberState};
use crate::worker_record::{WorkerRecord, WorkerState};

const CLUSTER: ClusterSettings = ClusterSettings { lease_ms: 60_000, ..ClusterSettings::DEFAULT };

fn settings() -> HomeSettings {
    let (worker, under_stores) = (WorkerId::new("w1").unwrap(), BTreeMap::new());
    HomeSettings { worker, is_alone: true, cluster: CLUSTER, addresses: None, under_stores }
}

async fn open_store(disk: &MemoryDisk) -> Store {
    let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(disk.for_one_life())];
    let settings = Settings {
        segment_bytes: 2 << 20,
        inline_bytes_max: 64 << 10,
        extent_bytes_max: 1 << 20,
        ..Settings::new(vec![64 << 20])
    };
    Store::open(Env::real(), disks, settings, None).await.unwrap()
}

async fn open(disk: &MemoryDisk, engine: &Arc<dyn Engine>) -> (HomeCatalog, Store) {
    let store = open_store(disk).await;
    let catalog = HomeCatalog::open(Env::real(), store.clone(), Arc::clone(engine), settings()).await.unwrap();
    (catalog, store)
}

fn memory() -> Arc<dyn Engine> {
    Arc::<MemoryEngine>::default()
}

fn on_engine(key: &[u8]) -> Bytes {
    layout::record_key(key, &settings().worker, CLUSTER.slots)
}

fn path() -> ObjectPath {
    ObjectPath::parse("bucket", "key").unwrap()
}

fn record(generation: Generation) -> ObjectRecord {
    ObjectRecord {
        state: State::Dirty,
        generation,
        dirty_since_ms: 0,
        dirty_since: generation,
        size: 5,
        etag: ETag::new("e"),
        last_modified_ms: 0,
        storage_class: None,
        base: Base::Unknown,
        holders: Holders::default(),
    }
}

fn object(generation: Generation, pinned: bool, data: &str) -> NewObject {
    NewObject {
        key: records::object_key(&path()),
        generation,
        metadata: Bytes::new(),
        annex: Bytes::new(),
        pinned,
        group: 0,
        size: data.len() as u64,
    }
}

/// Keeps a clean copy.
async fn fill(store: &Store, generation: Generation, data: &'static str) {
    let mut writer = store.writer(Class::Fill, data.len() as u64).await.unwrap();
    writer.append(Bytes::from_static(data.as_bytes())).await.unwrap();
    store.publish_fill(writer.finish(object(generation, false, data)).await.unwrap()).await.unwrap();
}

async fn stage(store: &Store, data: &'static str) -> Staged {
    let object = object(store.next_generation(), true, data);
    let mut writer = store.writer(Class::Durable, data.len() as u64).await.unwrap();
    writer.append(Bytes::from_static(data.as_bytes())).await.unwrap();
    writer.finish(object).await.unwrap()
}

fn write_of(staged: &Staged) -> ValueWrite {
    ValueWrite { key: records::object_key(&path()), value: Some(record(staged.generation()).encode()) }
}

async fn put(catalog: &HomeCatalog, store: &Store, data: &'static str) -> Result<u64> {
    let staged = stage(store, data).await;
    let writes = vec![write_of(&staged)];
    let local = LocalChange { publish: vec![staged], ..LocalChange::default() };
    catalog.commit(Transaction { writes, local, ..Transaction::default() }).await
}

async fn read(store: &Store) -> Option<Bytes> {
    let object = store.peek(&records::object_key(&path()))?;
    Some(object.read(ByteRange::of_size(object.size())).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_promises_of_a_catalog() {
    conformance::run(async || Arc::new(open(&MemoryDisk::default(), &memory()).await.0) as Arc<dyn Catalog>).await;
}

#[tokio::test]
async fn a_commit_survives_a_power_cut_with_its_bytes() {
    let (disk, engine) = (MemoryDisk::default(), memory());
    let (catalog, store) = open(&disk, &engine).await;
    put(&catalog, &store, "first").await.unwrap();
    put(&catalog, &store, "second").await.unwrap();
    disk.power_loss(1);
    let (catalog, store) = open(&disk, &engine).await;
    let found = catalog.get(&records::object_key(&path())).await.unwrap().unwrap();
    let object = store.peek(&records::object_key(&path())).unwrap();
    assert_eq!(ObjectRecord::decode(&found.value).unwrap().generation, object.generation());
    assert_eq!(read(&store).await, Some(Bytes::from_static(b"second")));
}

#[tokio::test]
async fn the_store_shows_at_a_start_what_the_engine_has() {
    let (disk, engine) = (MemoryDisk::default(), memory());
    let (catalog, _) = open(&disk, &engine).await;
    let value = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
    let many = (0..2500).map(|number| ValueWrite { key: format!("k{number:05}").into(), value: value("same") });
    for writes in many.collect::<Vec<_>>().chunks(100) {
        catalog.commit(Transaction { writes: writes.to_vec(), ..Transaction::default() }).await.unwrap();
    }
    disk.kill();
    // What another life might have done, with another disk.
    let change = |key: &'static str, value| ValueWrite { key: on_engine(key.as_bytes()), value };
    let writes = [change("k00003", None), change("k01500", value("other")), change("new", value("new"))];
    engine.commit(&[], &writes).await.unwrap();
    let here = open_store(&disk).await;
    let extra = ValueWrite { key: Bytes::from_static(b"extra"), value: value("extra") };
    here.commit(Commit { writes: vec![extra], ..Commit::default() }, Durability::Fsync).await.unwrap();
    disk.kill();
    let (catalog, _) = open(&disk, &engine).await;
    let all = catalog.scan(b"", BEHIND_ALL, 10_000).await.unwrap();
    assert_eq!(all.len(), 2500, "one is gone, and one has come");
    let text = async |key: &str| catalog.get(key.as_bytes()).await.unwrap().map(|found| found.value);
    assert_eq!((text("k00003").await, text("extra").await), (None, None));
    assert_eq!(
        (text("k01500").await, text("new").await, text("k02499").await),
        (value("other"), value("new"), value("same"))
    );
}

#[tokio::test]
async fn what_the_engine_names_is_published_and_the_rest_is_dropped() {
    for is_named in [true, false] {
        let (disk, engine) = (MemoryDisk::default(), memory());
        let (catalog, store) = open(&disk, &engine).await;
        put(&catalog, &store, "before").await.unwrap();
        let staged = store.prepare(stage(&store, "after").await).await.unwrap();
        if is_named {
            let write = write_of(&staged);
            engine.commit(&[], &[ValueWrite { key: on_engine(&write.key), ..write }]).await.unwrap();
        }
        disk.power_loss(1);
        drop(staged);
        let (_catalog, store) = open(&disk, &engine).await;
        let expected: &[u8] = if is_named { b"after" } else { b"before" };
        assert_eq!(read(&store).await.unwrap(), expected);
        assert!(store.take_prepared().is_empty());
    }
}

#[tokio::test]
async fn a_commit_without_an_answer_holds_its_keys_until_it_has_one() {
    let engine = Arc::new(TestEngine::new(&[]));
    let (catalog, store) = open(&MemoryDisk::default(), &(Arc::<TestEngine>::clone(&engine) as _)).await;
    engine.expect(Fate::AnswerLost);
    engine.expect(Fate::Lost);
    put(&catalog, &store, "first").await.unwrap();
    assert_eq!(read(&store).await.unwrap(), "first");
    put(&catalog, &store, "second").await.unwrap();
    assert_eq!(read(&store).await.unwrap(), "second");
}

#[tokio::test]
async fn what_the_engine_has_is_shown_although_the_disk_has_no_room_for_it() {
    let (disk, engine) = (MemoryDisk::default(), Arc::new(TestEngine::new(&[])));
    let shared: Arc<dyn Engine> = Arc::<TestEngine>::clone(&engine);
    let (catalog, store) = open(&disk, &shared).await;
    put(&catalog, &store, "first").await.unwrap();
    let (catalog, asked) = (Arc::new(catalog), engine.asked.load(Ordering::SeqCst));
    engine.gate.forget_permits(Semaphore::MAX_PERMITS);
    let second = {
        let (catalog, store) = (Arc::clone(&catalog), store.clone());
        forebay_env::spawn(async move { put(&catalog, &store, "second").await })
    };
    while engine.asked.load(Ordering::SeqCst) == asked {
        tokio::task::yield_now().await;
    }
    disk.set_capacity(disk.used_bytes());
    engine.gate.add_permits(Semaphore::MAX_PERMITS);
    second.join().await.unwrap();
    assert_eq!(read(&store).await.unwrap(), "second");
    disk.set_capacity(u64::MAX / 2);
    disk.power_loss(1);
    let (_catalog, store) = open(&disk, &shared).await;
    assert_eq!(read(&store).await.unwrap(), "second");
}

#[tokio::test]
async fn nothing_is_read_or_written_while_the_lease_is_over() {
    let engine = Arc::new(TestEngine::new(&[]));
    let store = open_store(&MemoryDisk::default()).await;
    let cluster = ClusterSettings { lease_ms: 200, ..CLUSTER };
    let shared: Arc<dyn Engine> = Arc::<TestEngine>::clone(&engine);
    let settings = HomeSettings { cluster, ..settings() };
    let catalog = Arc::new(HomeCatalog::open(Env::real(), store.clone(), shared, settings).await.unwrap());
    put(&catalog, &store, "first").await.unwrap();
    engine.expect(Fate::Silence);
    let second = {
        let (catalog, store) = (Arc::clone(&catalog), store.clone());
        forebay_env::spawn(async move { put(&catalog, &store, "second").await })
    };
    let key = records::object_key(&path());
    while catalog.get(&key).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(catalog.get(&key).await.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(catalog.scan(b"", BEHIND_ALL, 1).await.unwrap_err().kind, ErrorKind::Unavailable);
    let other = vec![ValueWrite { key: Bytes::from_static(b"other"), value: None }];
    let refused = catalog.commit(Transaction { writes: other, ..Transaction::default() }).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Unavailable);
    assert!(!second.is_finished());
    engine.hear_again();
    second.join().await.unwrap();
    catalog.get(&key).await.unwrap();
    assert_eq!(read(&store).await.unwrap(), "second");
}

/// Another process takes the worker's place before the worker knows the outcome of its commit.
#[tokio::test]
async fn the_bytes_of_an_outcome_that_is_not_known_stay_until_it_is() {
    let (disk, engine) = (MemoryDisk::default(), Arc::new(TestEngine::new(&[])));
    let shared: Arc<dyn Engine> = Arc::<TestEngine>::clone(&engine);
    let (catalog, store) = open(&disk, &shared).await;
    engine.expect(Fate::AnswerLost);
    engine.expect(Fate::Silence);
    let catalog = Arc::new(catalog);
    let put = {
        let (catalog, store) = (Arc::clone(&catalog), store.clone());
        forebay_env::spawn(async move { put(&catalog, &store, "done").await })
    };
    while engine.transactions.lock().last() != Some(&2) {
        tokio::task::yield_now().await;
    }
    engine.hear_again();
    let key = layout::worker_key(&settings().worker);
    let found = engine.get(&key).await.unwrap().unwrap().value;
    let lost = WorkerRecord { state: WorkerState::Lost, ..WorkerRecord::decode(&found).unwrap() };
    engine.commit(&[], &[ValueWrite { key, value: Some(lost.encode()) }]).await.unwrap();
    assert_eq!(put.join().await.unwrap_err().kind, ErrorKind::Unknown);
    // Its last snapshot, from which the next start begins.
    store.close().await.unwrap();
    disk.kill();
    let (_catalog, store) = open(&disk, &shared).await;
    assert_eq!(read(&store).await.unwrap(), "done");
}

/// A worker on other disks: what it is the home of is what the engine has.
#[tokio::test]
async fn another_worker_takes_over_from_one_that_has_left() {
    let engine = memory();
    let (first, store) = open(&MemoryDisk::default(), &engine).await;
    put(&first, &store, "bytes").await.unwrap();
    let writes =
        vec![ValueWrite { key: Bytes::copy_from_slice(records::LAST_WRITE_KEY), value: Some("00000007".into()) }];
    first.commit(Transaction { writes, ..Transaction::default() }).await.unwrap();
    let writes = vec![
        ValueWrite { key: Bytes::copy_from_slice(records::SETTLED_KEY), value: Some("its own".into()) },
        ValueWrite { key: records::policy_key(), value: Some("of all".into()) },
    ];
    first.commit(Transaction { writes, ..Transaction::default() }).await.unwrap();
    first.leave().await.unwrap();
    let other = HomeSettings { worker: WorkerId::new("w2").unwrap(), ..settings() };
    let second = HomeCatalog::open(Env::real(), open_store(&MemoryDisk::default()).await, Arc::clone(&engine), other);
    let second = second.await.unwrap();
    let value = async |key: &[u8]| second.get(key).await.unwrap().map(|found| found.value);
    assert!(value(&records::object_key(&path())).await.is_some());
    assert_eq!(second.last_write().await.unwrap(), Some("00000007".into()), "times of writes continue");
    assert_eq!(value(records::SETTLED_KEY).await, None);
    assert_eq!(value(&records::policy_key()).await, Some("of all".into()));
    let generations = [first.generations(0).await.unwrap().next(), second.generations(0).await.unwrap().next()];
    assert!(generations[0] < generations[1]);
}

/// A worker with a clean copy of an object whose slot it has given up.
async fn with_a_copy_of_another_time(disk: &MemoryDisk, engine: &Arc<dyn Engine>) -> (HomeCatalog, Store, SlotSet) {
    let (catalog, store) = open(disk, engine).await;
    put(&catalog, &store, "bytes").await.unwrap();
    let key = records::object_key(&path());
    let generation = store.peek(&key).unwrap().generation();
    let clean = vec![Annotation { key: key.clone(), generation, annex: Bytes::new(), pinned: false }];
    let local = LocalChange { annotate: clean, ..LocalChange::default() };
    let writes = vec![ValueWrite { key: key.clone(), value: None }];
    catalog.commit(Transaction { writes, local, ..Transaction::default() }).await.unwrap();
    assert!(store.peek(&key).is_some());
    let mut slots = SlotSet::none(catalog.slot_count());
    slots.insert(catalog.slot_count().slot_of(records::path_hash(&path())));
    catalog.release(&slots).await.unwrap();
    (catalog, store, slots)
}

/// Where the disks take no writes, copies are dropped from memory alone. They come back with the next start, which must
/// drop them again: the slots are its own by then.
#[tokio::test]
async fn copies_that_the_disks_could_not_forget_are_dropped_at_the_next_start() {
    let (disk, engine) = (MemoryDisk::default(), memory());
    let (catalog, store, slots) = with_a_copy_of_another_time(&disk, &engine).await;
    let (key, mark) = (records::object_key(&path()), layout::stale_copies_key(&settings().worker));
    // All generations of blocks are above that of the copy.
    catalog.generations(1 << 30).await.unwrap();
    disk.fail_writes(Some(std::io::ErrorKind::Other));
    catalog.take(&slots).await.unwrap();
    disk.fail_writes(None);
    assert!(store.peek(&key).is_none());
    assert!(engine.get(&mark).await.unwrap().is_some());
    drop((catalog, store));
    assert!(open_store(&disk).await.peek(&key).is_some());
    for _ in 0..2 {
        let (_catalog, store) = open(&disk, &engine).await;
        assert!(store.peek(&key).is_none());
        assert!(engine.get(&mark).await.unwrap().is_none());
    }
}

/// They were those of another worker, or were replaced for a while. The slot stays at home at this worker, which had
/// other disks when it changed its objects.
#[tokio::test]
async fn clean_copies_on_disks_that_the_worker_did_not_have_last_are_dropped() {
    let (disk, engine) = (MemoryDisk::default(), memory());
    let (catalog, store, _) = with_a_copy_of_another_time(&disk, &engine).await;
    catalog.leave().await.unwrap();
    drop((catalog, store));
    let (other_disks, _) = open(&MemoryDisk::default(), &engine).await;
    other_disks.leave().await.unwrap();
    let (key, mark) = (records::object_key(&path()), layout::stale_copies_key(&settings().worker));
    assert!(open_store(&disk).await.peek(&key).is_some());
    let (_catalog, store) = open(&disk, &engine).await;
    assert!(store.peek(&key).is_none());
    assert!(engine.get(&mark).await.unwrap().is_none());
}

/// Others may have written the objects meanwhile.
#[tokio::test]
async fn clean_copies_of_slots_that_were_away_are_dropped() {
    let (disk, engine) = (MemoryDisk::default(), memory());
    let (catalog, store, slots) = with_a_copy_of_another_time(&disk, &engine).await;
    let key = records::object_key(&path());
    assert_eq!(catalog.get(&key).await.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(put(&catalog, &store, "not here").await.unwrap_err().kind, ErrorKind::Unavailable);
    catalog.take(&slots).await.unwrap();
    assert!(store.peek(&key).is_none());
    put(&catalog, &store, "here again").await.unwrap();
    assert_eq!(read(&store).await.unwrap(), "here again");
}

/// Gives all tasks the time to come to where they wait.
async fn others_continue() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A drop that waited for a disk would come after the replica, which another disk takes meanwhile.
#[tokio::test]
async fn a_replica_that_is_published_while_clean_copies_are_dropped_stays() {
    // Either disk may be the one to which such a drop would go.
    for held in 0..2 {
        let disks = [MemoryDisk::default(), MemoryDisk::default()];
        let both = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
        let (env, clock) = Env::simulated(1);
        let store = Store::open(env, both, Settings::new(vec![64 << 20; 2]), None).await.unwrap();
        let catalog = HomeCatalog::open(Env::real(), store.clone(), memory(), settings()).await.unwrap();
        let mut slots = SlotSet::none(catalog.slot_count());
        slots.insert(catalog.slot_count().slot_of(records::path_hash(&path())));
        // What is durable of taking the slots is so after the first time.
        catalog.release(&slots).await.unwrap();
        catalog.take(&slots).await.unwrap();
        catalog.release(&slots).await.unwrap();
        fill(&store, store.next_generation(), "clean").await;
        disks[held].hold_syncs(true);
        let taking = forebay_env::spawn(async move { catalog.take(&slots).await });
        others_continue().await;
        // From now on, writes go to the other disk if this one has anything to do.
        clock.advance(STALLED_AFTER);
        let replica = stage(&store, "newer").await;
        let publishing = {
            let (store, commit) = (store.clone(), Commit { publish: vec![replica], ..Commit::default() });
            forebay_env::spawn(async move { store.commit(commit, Durability::Fsync).await })
        };
        others_continue().await;
        disks[held].hold_syncs(false);
        taking.join().await.unwrap();
        publishing.join().await.unwrap();
        assert_eq!(read(&store).await.unwrap(), "newer", "{held}");
    }
}

/// An eviction is not recorded on disk. The slot is the worker's own again by the time of the crash.
#[tokio::test]
async fn copies_that_were_evicted_before_their_slot_came_back_stay_away_after_a_crash() {
    for is_read_again in [false, true] {
        let (disk, engine) = (MemoryDisk::default(), memory());
        let (catalog, store, slots) = with_a_copy_of_another_time(&disk, &engine).await;
        let key = records::object_key(&path());
        let evicted = store.peek(&key).unwrap().generation();
        assert!(store.evict(&key, evicted));
        // All generations of blocks are above that of the copy.
        let generations = catalog.generations(1 << 30).await.unwrap();
        assert!(generations.next() > evicted);
        catalog.take(&slots).await.unwrap();
        assert!(store.peek(&key).is_none());
        if is_read_again {
            // As for each gain of slots.
            generations.renew().await.unwrap();
            fill(&store, generations.next(), "new").await;
        }
        disk.kill();
        let found = open_store(&disk).await.peek(&key).unwrap();
        assert!(!found.is_pinned() && (found.generation() == evicted) != is_read_again);
        drop(found);
        // The second start finds what the first has left.
        for _ in 0..2 {
            disk.kill();
            let (_catalog, store) = open(&disk, &engine).await;
            assert_eq!(read(&store).await, is_read_again.then(|| Bytes::from_static(b"new")));
        }
    }
}

/// A worker beside others.
async fn open_beside(worker: &str, disk: &MemoryDisk, engine: &Arc<dyn Engine>) -> (HomeCatalog, Store) {
    let store = open_store(disk).await;
    let settings = HomeSettings { worker: WorkerId::new(worker).unwrap(), is_alone: false, ..settings() };
    (HomeCatalog::open(Env::real(), store.clone(), Arc::clone(engine), settings).await.unwrap(), store)
}

fn spread(slots: SlotCount) -> impl Fn(&[WorkerId]) -> Placement {
    move |workers| Placement::of(slots, workers)
}

async fn settle_in(catalog: &HomeCatalog) -> usize {
    let moves = catalog.look(spread(catalog.slot_count())).await.unwrap().moves;
    catalog.release(&moves.release).await.unwrap();
    catalog.take(&moves.take).await.unwrap();
    moves.release.iter().count() + moves.take.iter().count()
}

fn has(catalog: &HomeCatalog) -> usize {
    catalog.slots().unwrap().iter().count()
}

#[tokio::test]
async fn workers_share_the_slots_and_one_that_leaves_gives_them_to_the_other() {
    let engine = memory();
    let (first, _) = open_beside("w1", &MemoryDisk::default(), &engine).await;
    assert_eq!((has(&first), settle_in(&first).await, has(&first)), (0, 1024, 1024));
    let (second, _) = open_beside("w2", &MemoryDisk::default(), &engine).await;
    let early = second.look(spread(second.slot_count())).await.unwrap().moves;
    assert!(early.take.is_empty() && early.release.is_empty(), "all are at home at the first");
    assert_eq!(settle_in(&first).await, 512);
    assert_eq!(settle_in(&second).await, 512);
    assert_eq!((has(&first), has(&second)), (512, 512));
    assert_eq!(settle_in(&first).await + settle_in(&second).await, 0);
    assert!(first.slots().unwrap().iter().all(|slot| !second.slots().unwrap().contains(slot)));
    first.leave().await.unwrap();
    assert_eq!((settle_in(&second).await, has(&second)), (512, 1024));
}

/// What a worker has noted itself may be earlier than the times of what it takes from another one.
#[tokio::test]
async fn the_latest_time_of_all_workers_counts() {
    let engine = memory();
    let (first, _) = open_beside("w1", &MemoryDisk::default(), &engine).await;
    let (second, _) = open_beside("w2", &MemoryDisk::default(), &engine).await;
    for (catalog, time) in [(&first, "00000009"), (&second, "00000005")] {
        let write = ValueWrite { key: Bytes::copy_from_slice(records::LAST_WRITE_KEY), value: Some(time.into()) };
        catalog.commit(Transaction { writes: vec![write], ..Transaction::default() }).await.unwrap();
    }
    assert_eq!(second.last_write().await.unwrap(), Some("00000009".into()));
}

/// The values are shown for what is at home here alone; the bytes stay.
#[tokio::test]
async fn a_start_has_the_slots_that_were_its_own_and_the_bytes_of_others() {
    let (disk, engine) = (MemoryDisk::default(), memory());
    let (first, store) = open_beside("w1", &disk, &engine).await;
    settle_in(&first).await;
    put(&first, &store, "bytes").await.unwrap();
    let key = records::object_key(&path());
    disk.kill();
    let (first, store) = open_beside("w1", &disk, &engine).await;
    assert_eq!(has(&first), 1024);
    assert!(first.get(&key).await.unwrap().is_some());
    let mut slots = SlotSet::none(first.slot_count());
    slots.insert(first.slot_count().slot_of(records::path_hash(&path())));
    // Prepared for a commit that another life has sent.
    let staged = stage(&store, "prepared").await;
    let commit = [ValueWrite { key: on_engine(&key), ..write_of(&staged) }];
    drop(store.prepare(staged).await.unwrap());
    first.release(&slots).await.unwrap();
    engine.commit(&[], &commit).await.unwrap();
    disk.kill();
    let (first, store) = open_beside("w1", &disk, &engine).await;
    assert_eq!(has(&first), 1023);
    assert_eq!(first.get(&key).await.unwrap_err().kind, ErrorKind::Unavailable);
    assert!(store.value(&key).is_none(), "its home knows");
    assert_eq!(read(&store).await.unwrap(), "prepared");
}

/// Its home may be about to name it.
#[tokio::test]
async fn what_was_prepared_for_a_home_elsewhere_is_kept_at_a_start() {
    let (disk, engine) = (MemoryDisk::default(), memory());
    let (first, store) = open_beside("w1", &disk, &engine).await;
    first.take(&SlotSet::none(first.slot_count()).others()).await.unwrap();
    let mut slots = SlotSet::none(first.slot_count());
    slots.insert(first.slot_count().slot_of(records::path_hash(&path())));
    drop(store.prepare(stage(&store, "prepared").await).await.unwrap());
    first.release(&slots).await.unwrap();
    disk.kill();
    let (first, store) = open_beside("w1", &disk, &engine).await;
    let kept = first.take_unnamed();
    assert_eq!(kept.iter().map(|staged| staged.key().clone()).collect::<Vec<_>>(), [records::object_key(&path())]);
    assert!(store.peek(kept[0].key()).is_none(), "nobody sees it");
    assert!(first.take_unnamed().is_empty());
}

#[tokio::test]
async fn a_check_that_fails_reaches_no_engine() {
    let engine = Arc::new(TestEngine::new(&[]));
    let (catalog, _) = open(&MemoryDisk::default(), &(Arc::<TestEngine>::clone(&engine) as _)).await;
    let before = engine.transactions.lock().len();
    let checks = vec![Check { key: Bytes::from_static(b"key"), version: Some(1) }];
    let writes = vec![ValueWrite { key: Bytes::from_static(b"key"), value: None }];
    let refused = catalog.commit(Transaction { checks, writes, ..Transaction::default() }).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(engine.transactions.lock().len(), before);
}

fn shared(key: &'static str, value: &str) -> ValueWrite {
    ValueWrite { key: Bytes::from_static(key.as_bytes()), value: Some(value.to_owned().into()) }
}

async fn text(catalog: &HomeCatalog, key: &str) -> Option<Bytes> {
    catalog.get(key.as_bytes()).await.unwrap().map(|found| found.value)
}

/// Changes a record as it is shown.
async fn change(catalog: &HomeCatalog, key: &'static str, value: &str) -> Result<u64> {
    let version = catalog.get(key.as_bytes()).await?.map(|found| found.version);
    let checks = vec![Check { key: Bytes::from_static(key.as_bytes()), version }];
    catalog.commit(Transaction { checks, writes: vec![shared(key, value)], ..Transaction::default() }).await
}

#[tokio::test]
async fn a_shared_record_is_not_changed_without_a_look_at_what_another_worker_made_of_it() {
    let engine = memory();
    let (first, _) = open_beside("w1", &MemoryDisk::default(), &engine).await;
    let (second, _) = open_beside("w2", &MemoryDisk::default(), &engine).await;
    change(&first, "policy", "one").await.unwrap();
    assert_eq!(text(&second, "policy").await, None, "nobody has told it");
    assert_eq!(change(&second, "policy", "two").await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(text(&second, "policy").await, Some("one".into()), "by now it knows");
    change(&second, "policy", "two").await.unwrap();
    // What the checks of a transaction have nothing to do with keeps it from nothing.
    let bucket = Transaction { writes: vec![shared("b/bucket", "")], ..Transaction::default() };
    first.commit(bucket).await.unwrap();
    assert_eq!((text(&first, "policy").await, text(&first, "b/bucket").await), (Some("two".into()), Some("".into())));
    let gone = ValueWrite { key: Bytes::from_static(b"policy"), value: None };
    second.commit(Transaction { writes: vec![gone], ..Transaction::default() }).await.unwrap();
    assert_eq!(change(&first, "policy", "three").await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(text(&first, "policy").await, None);
}

/// With a check alone a transaction changes nothing for others.
#[tokio::test]
async fn a_write_of_a_path_may_depend_on_a_shared_record() {
    let engine = memory();
    let (first, store) = open_beside("w1", &MemoryDisk::default(), &engine).await;
    settle_in(&first).await;
    let (second, _) = open_beside("w2", &MemoryDisk::default(), &engine).await;
    change(&first, "b/bucket", "").await.unwrap();
    let put = async || {
        let staged = stage(&store, "bytes").await;
        let checks = vec![Check {
            key: Bytes::from_static(b"b/bucket"),
            version: first.get(b"b/bucket").await?.map(|found| found.version),
        }];
        let (writes, local) =
            (vec![write_of(&staged)], LocalChange { publish: vec![staged], ..LocalChange::default() });
        first.commit(Transaction { checks, writes, local, ..Transaction::default() }).await
    };
    put().await.unwrap();
    put().await.unwrap();
    let gone = ValueWrite { key: Bytes::from_static(b"b/bucket"), value: None };
    second.commit(Transaction { writes: vec![gone], ..Transaction::default() }).await.unwrap();
    assert_eq!(put().await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(read(&store).await.unwrap(), "bytes");
}

/// Each adds one, many times, at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_of_a_shared_record_is_lost() {
    const CHANGES: usize = 50;
    let engine = memory();
    let workers = ["w1", "w2", "w3"].map(|name| {
        let engine = Arc::clone(&engine);
        forebay_env::spawn(async move {
            let (catalog, _) = open_beside(name, &MemoryDisk::default(), &engine).await;
            let mut left = CHANGES;
            while left > 0 {
                let number = text(&catalog, "counter").await.map_or(0, |text| text.len());
                match change(&catalog, "counter", &"x".repeat(number + 1)).await {
                    Ok(_) => left -= 1,
                    Err(error) => assert_eq!(error.kind, ErrorKind::Conflict),
                }
                tokio::task::yield_now().await;
            }
        })
    });
    for worker in workers {
        worker.join().await;
    }
    let found = engine.get(&on_engine(b"counter")).await.unwrap().unwrap();
    assert_eq!(found.value.len(), 3 * CHANGES);
}

#[tokio::test]
async fn a_shared_change_without_an_answer_is_done_once_and_known() {
    let engine = Arc::new(TestEngine::new(&[]));
    let (first, _) = open_beside("w1", &MemoryDisk::default(), &(Arc::<TestEngine>::clone(&engine) as _)).await;
    let beside = Arc::new(engine.beside()) as Arc<dyn Engine>;
    let (second, _) = open_beside("w2", &MemoryDisk::default(), &beside).await;
    engine.expect(Fate::AnswerLost);
    change(&first, "policy", "one").await.unwrap();
    let before = engine.asked.load(Ordering::SeqCst);
    change(&first, "policy", "two").await.unwrap();
    assert_eq!(engine.asked.load(Ordering::SeqCst), before + 1, "it is not refused");
    // Refused, and nobody knows for a while whether it was.
    change(&second, "other", "three").await.unwrap();
    engine.expect(Fate::Lost);
    assert_eq!(change(&first, "other", "four").await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(text(&first, "other").await, Some("three".into()));
    change(&first, "other", "four").await.unwrap();
}

#[tokio::test]
async fn who_gains_slots_knows_what_was_changed_for_all() {
    let engine = memory();
    let (first, _) = open_beside("w1", &MemoryDisk::default(), &engine).await;
    let (second, _) = open_beside("w2", &MemoryDisk::default(), &engine).await;
    change(&first, "policy", "one").await.unwrap();
    let mut slots = SlotSet::none(second.slot_count());
    slots.insert(Slot(1));
    second.take(&slots).await.unwrap();
    assert_eq!(text(&second, "policy").await, Some("one".into()));
}

/// It may have copies of what is in the slot, and nobody has changed that since.
#[tokio::test]
async fn the_former_home_of_a_slot_is_the_last_one() {
    let engine = memory();
    let (first, _) = open_beside("w1", &MemoryDisk::default(), &engine).await;
    let (second, _) = open_beside("w2", &MemoryDisk::default(), &engine).await;
    let (third, _) = open_beside("w3", &MemoryDisk::default(), &engine).await;
    let count = first.slot_count();
    let hash = (0..).find(|hash| count.slot_of(*hash) == Slot(1)).unwrap();
    let mut slots = SlotSet::none(count);
    slots.insert(Slot(1));
    let former = |worker: &HomeCatalog| worker.former_home(hash);
    let mut expected = None;
    for (worker, name) in [(&first, "w1"), (&second, "w2"), (&third, "w3"), (&first, "w1"), (&second, "w2")] {
        worker.take(&slots).await.unwrap();
        assert_eq!(former(worker), expected);
        // It had the slot itself in the meantime, and nobody else.
        worker.release(&slots).await.unwrap();
        worker.take(&slots).await.unwrap();
        assert_eq!(former(worker), None);
        worker.release(&slots).await.unwrap();
        expected = Some(name.to_owned());
    }
}

#[tokio::test]
async fn a_worker_follows_what_others_change_for_all() {
    let (engine, disk) = (memory(), MemoryDisk::default());
    let (first, _) = open_beside("w1", &MemoryDisk::default(), &engine).await;
    let (second, _) = open_beside("w2", &disk, &engine).await;
    let (mut changed, mut removed) = (second.watch(b"policy").await.unwrap(), second.watch(b"b/gone").await.unwrap());
    change(&first, "b/gone", "").await.unwrap();
    second.follow_shared().await.unwrap();
    assert!(removed.borrow_and_update().is_some());
    let (known, version) = (second.shared_changes(), second.get(b"b/gone").await.unwrap().unwrap().version);
    second.follow_shared().await.unwrap();
    assert_eq!(second.shared_changes(), known, "nothing is new");
    change(&first, "policy", "one").await.unwrap();
    second.follow_shared().await.unwrap();
    assert_eq!(second.shared_changes(), known + 1);
    assert_eq!(changed.borrow_and_update().as_ref().map(|found| found.value.clone()), Some("one".into()));
    let same = second.get(b"b/gone").await.unwrap().unwrap().version;
    assert!(same == version && !removed.has_changed().unwrap(), "others are left alone");
    let gone = vec![ValueWrite { key: Bytes::from_static(b"b/gone"), value: None }];
    first.commit(Transaction { writes: gone, ..Transaction::default() }).await.unwrap();
    // A change here takes over what it did not know, too, and its own is no news.
    change(&second, "policy", "two").await.unwrap();
    assert_eq!((removed.borrow_and_update().is_none(), second.shared_changes()), (true, known + 2));
    second.follow_shared().await.unwrap();
    assert_eq!(second.shared_changes(), known + 2);
    first.follow_shared().await.unwrap();
    assert_eq!(text(&first, "policy").await, Some("two".into()));
    // What was changed and changed back is a change, too.
    let known = second.shared_changes();
    change(&first, "b/gone", "").await.unwrap();
    let gone = vec![ValueWrite { key: Bytes::from_static(b"b/gone"), value: None }];
    first.commit(Transaction { writes: gone, ..Transaction::default() }).await.unwrap();
    let unless_changed = |shared_changes| {
        let writes = vec![ValueWrite { key: Bytes::from_static(b"b/gone"), value: Some(Bytes::new()) }];
        second.commit(Transaction { writes, shared_changes: Some(shared_changes), ..Transaction::default() })
    };
    assert_eq!(unless_changed(known).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(second.shared_changes(), known + 1);
    assert_eq!(unless_changed(known).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(text(&second, "b/gone").await, None);
    unless_changed(known + 1).await.unwrap();
    assert_eq!(text(&second, "b/gone").await, Some("".into()));
    let gone = vec![ValueWrite { key: Bytes::from_static(b"b/gone"), value: None }];
    second.commit(Transaction { writes: gone, ..Transaction::default() }).await.unwrap();
    // A start knows all.
    change(&first, "policy", "three").await.unwrap();
    disk.kill();
    let (second, _) = open_beside("w2", &disk, &engine).await;
    assert_eq!(text(&second, "policy").await, Some("three".into()));
    assert_eq!(text(&second, "b/gone").await, None);
}

/// Jobs are found again by the worker that runs them, and by no other.
#[tokio::test]
async fn jobs_are_of_the_worker_that_was_asked_for_them() {
    let engine = memory();
    let (first, _) = open_beside("w1", &MemoryDisk::default(), &engine).await;
    first.commit(Transaction { writes: vec![shared("j/1", "a job")], ..Transaction::default() }).await.unwrap();
    let (second, _) = open_beside("w2", &MemoryDisk::default(), &engine).await;
    assert_eq!(text(&second, "j/1").await, None);
    settle_in(&first).await;
    assert_eq!(text(&first, "j/1").await, Some("a job".into()));
    first.leave().await.unwrap();
    let (first, _) = open_beside("w1", &MemoryDisk::default(), &engine).await;
    assert_eq!(text(&first, "j/1").await, Some("a job".into()));
}

#[tokio::test]
async fn a_look_shows_the_home_of_each_slot_and_where_workers_are_reached() {
    let (engine, disk) = (memory(), MemoryDisk::default());
    let address = |host: &str| Addresses { peers: format!("{host}:9100"), s3: None, admin: None };
    let open_at = async |name: &str, host: Option<&str>, disk: &MemoryDisk| {
        let (worker, addresses) = (WorkerId::new(name).unwrap(), host.map(address));
        let settings = HomeSettings { worker, addresses, is_alone: false, ..settings() };
        HomeCatalog::open(Env::real(), open_store(disk).await, Arc::clone(&engine), settings).await.unwrap()
    };
    let look = async |catalog: &HomeCatalog| catalog.look(spread(catalog.slot_count())).await.unwrap();
    let (w1, w2) = (WorkerId::new("w1").unwrap(), WorkerId::new("w2").unwrap());
    let first = open_at("w1", Some("one"), &MemoryDisk::default()).await;
    assert_eq!(look(&first).await.homes.home_of(&path()), None);
    settle_in(&first).await;
    let second = open_at("w2", None, &disk).await;
    let view = look(&second).await;
    assert!(second.slot_count().all().all(|slot| view.homes.home(slot) == Some(&w1)));
    assert_eq!(view.homes.home_of(&path()), Some(&w1));
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    let life = |worker| view.members[worker].life;
    let state = MemberState::Live;
    let one = Member { state, life: life(&w1), addresses: Some(address("one")), version: version.clone() };
    assert_eq!(view.members[&w1], one);
    let second_life = life(&w2);
    assert_eq!(view.members[&w2], Member { state, life: second_life, addresses: None, version: None });
    // It moves, and the other one leaves.
    disk.kill();
    let second = open_at("w2", Some("two"), &disk).await;
    first.leave().await.unwrap();
    let view = look(&second).await;
    assert_eq!(view.members[&w1], Member { state: MemberState::Left, ..one });
    assert_eq!(view.members[&w2].addresses, Some(address("two")));
    assert_ne!(view.members[&w2].life, second_life, "it has started again");
    assert_eq!(view.homes.home_of(&path()), Some(&w1), "until another one takes its slots");
    settle_in(&second).await;
    assert_eq!(look(&second).await.homes.home_of(&path()), Some(&w2));
    disk.kill();
    let second = open_at("w2", None, &disk).await;
    assert_eq!(look(&second).await.members[&w2].addresses, None, "nobody is sent to where it was");
    let damaged = ValueWrite { key: layout::member_key(&w1), value: Some("\u{1}{".into()) };
    engine.commit(&[], &[damaged]).await.unwrap();
    let error = second.look(spread(second.slot_count())).await.unwrap_err();
    assert!(error.kind == ErrorKind::Corrupt && error.to_string().contains("member w1"), "{error}");
}

/// It may have started while this one was looking for such a worker for the first time.
#[tokio::test]
async fn a_worker_with_other_under_stores_gets_no_slots() {
    let ground = Ground::new();
    let open = async |name: &str, under_store: &str| {
        let (worker, under_stores) =
            (WorkerId::new(name).unwrap(), [("url".to_owned(), under_store.to_owned())].into());
        let addresses = Some(Addresses { peers: "host:9100".to_owned(), s3: None, admin: None });
        let settings = HomeSettings { worker, addresses, under_stores, is_alone: false, ..settings() };
        let (env, engine, store) = (ground.env.clone(), ground.engine(), open_store(&MemoryDisk::default()).await);
        ground.wait(async move { HomeCatalog::open(env, store, engine, settings).await }).await
    };
    let first = open("w1", "a").await.unwrap();
    settle_in(&first).await;
    let error = open("w2", "b").await.err().unwrap().to_string();
    assert_eq!(error, "worker w1 of this cluster runs with another value of url");
    let view = first.look(spread(first.slot_count())).await.unwrap();
    assert_eq!(view.members[&WorkerId::new("w2").unwrap()].state, MemberState::Left);
    assert!(view.moves.release.is_empty(), "nothing is given to it");
    open("w2", "a").await.unwrap();
}

/// An engine on which another worker changes shared records while they are read.
struct Changing {
    inner: MemoryEngine,
    /// What it is about to write.
    ahead: Mutex<Vec<ValueWrite>>,
}

#[async_trait]
impl Engine for Changing {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        self.inner.get(key).await
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        let found = self.inner.scan(from, to, limit).await;
        if from.starts_with(layout::SHARED_PREFIX) {
            let ahead = std::mem::take(&mut *self.ahead.lock());
            if !ahead.is_empty() {
                self.inner.commit(&[], &ahead).await?;
            }
        }
        found
    }

    async fn commit(&self, checks: &[Check], writes: &[ValueWrite]) -> Result<u64> {
        self.inner.commit(checks, writes).await
    }
}

/// An engine whose next reads of slots show an older state, as those of some members of etcd may after a restart.
struct Stale {
    inner: MemoryEngine,
    /// What they show.
    answers: Mutex<Vec<Vec<(Bytes, Versioned)>>>,
}

#[async_trait]
impl Engine for Stale {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        self.inner.get(key).await
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        let stale = if from == layout::SLOTS_PREFIX { self.answers.lock().pop() } else { None };
        match stale {
            Some(found) => Ok(found),
            None => self.inner.scan(from, to, limit).await,
        }
    }

    async fn commit(&self, checks: &[Check], writes: &[ValueWrite]) -> Result<u64> {
        self.inner.commit(checks, writes).await
    }
}

/// It has another home by now, and only a read says otherwise.
#[tokio::test]
async fn a_slot_is_not_taken_up_because_of_a_read_alone() {
    let engine = Arc::new(Stale { inner: MemoryEngine::default(), answers: Mutex::default() });
    let shared_engine: Arc<dyn Engine> = Arc::<Stale>::clone(&engine);
    let (first, _) = open_beside("w1", &MemoryDisk::default(), &shared_engine).await;
    let (second, _) = open_beside("w2", &MemoryDisk::default(), &shared_engine).await;
    let mut slots = SlotSet::none(first.slot_count());
    slots.insert(Slot(1));
    first.take(&slots).await.unwrap();
    let (from, to) = layout::range_of(layout::SLOTS_PREFIX);
    let old = engine.scan(&from, &to, 10).await.unwrap();
    first.release(&slots).await.unwrap();
    second.take(&slots).await.unwrap();
    // The first sees that the second lives, so it does not wait for the end of a lease.
    for _ in 0..3 {
        second.note(shared("noted", "by the second")).await.unwrap();
        first.look(spread(first.slot_count())).await.unwrap();
    }
    *engine.answers.lock() = vec![old; 2];
    assert_eq!(first.take(&slots).await.unwrap_err().kind, ErrorKind::Unavailable);
    assert!(first.slots().unwrap().is_empty());
    assert!(engine.answers.lock().is_empty(), "it has read what is out of date");
    assert_eq!(second.slots(), Some(slots));
}

#[tokio::test]
async fn shared_records_are_read_as_they_were_at_one_time() {
    let engine = Arc::new(Changing { inner: MemoryEngine::default(), ahead: Mutex::default() });
    let shared_engine: Arc<dyn Engine> = Arc::<Changing>::clone(&engine);
    let (first, _) = open_beside("w1", &MemoryDisk::default(), &shared_engine).await;
    let (second, _) = open_beside("w2", &MemoryDisk::default(), &shared_engine).await;
    change(&first, "a", "1").await.unwrap();
    let revision = Revision::read(engine.as_ref()).await.unwrap();
    let more = [("a", "2"), ("b", "2")].map(|(key, value)| {
        let write = shared(key, value);
        ValueWrite { key: on_engine(&write.key), ..write }
    });
    *engine.ahead.lock() = more.into_iter().chain([revision.write_next()]).collect();
    second.follow_shared().await.unwrap();
    assert_eq!((text(&second, "a").await, text(&second, "b").await), (Some("2".into()), Some("2".into())));
}
