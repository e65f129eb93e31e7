//! Clients write, the power goes, the cache starts again: what was acknowledged is there, byte for byte, and in the end
//! the under store has it too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_cache::{Cache, Conditions, ErrorKind, PutObject};
use forebay_catalog::records::{self, ObjectRecord};
use forebay_env::disk::memory::MemoryDisk;
use forebay_env::random::SeededRandom;
use forebay_env::{Disk, Random};
use forebay_types::{Durability, Generation, Period, StorageState, WriteMode};
use forebay_ufs::ErrorKind as UfsKind;
use forebay_ufs::memory::Mood;
use parking_lot::Mutex;

use crate::support::gate::Way;
use crate::support::{BUCKET, Bench, Setup, collect, get_request, incoming, kind, path, pattern, rule, seeds, until};

/// Clients that write at the same time, each its own keys.
const CLIENTS: u64 = 4;
const KEYS: u64 = 3;
/// Starts of the cache in one run.
const LIVES: u32 = 10;

type Body = Option<Bytes>;

/// What a key may read as.
#[derive(Default)]
struct Expected {
    /// After the last operation that was acknowledged.
    known: Body,
    /// What operations without an answer may have left since then.
    possible: Vec<Body>,
}

type Ledger = Arc<Mutex<BTreeMap<String, Expected>>>;

fn key_of(client: u64, random: &SeededRandom) -> String {
    let mode = ["back", "through", "transient"][random.below(3) as usize];
    format!("{mode}/{client}/{}", random.below(KEYS))
}

async fn run_client(cache: Cache, client: u64, seed: u64, ledger: Ledger) {
    let random = SeededRandom::new(seed);
    loop {
        let key = key_of(client, &random);
        match random.below(10) {
            0..=5 => {
                let size = [0, 10, 3_000, 20_000, 300_000][random.below(5) as usize];
                let body = pattern(random.next_u64(), size);
                ledger.lock().entry(key.clone()).or_default().possible.push(Some(body.clone()));
                let request = PutObject {
                    path: path(&key),
                    body: incoming(body.clone()),
                    attributes: Default::default(),
                    conditions: Conditions::default(),
                };
                if cache.put(request).await.is_ok() {
                    ledger.lock().insert(key, Expected { known: Some(body), possible: Vec::new() });
                }
            }
            6..=7 => {
                ledger.lock().entry(key.clone()).or_default().possible.push(None);
                if cache.delete(&path(&key), &Conditions::default()).await.is_ok() {
                    ledger.lock().insert(key, Expected::default());
                }
            }
            _ => check_key(&cache, &key, &ledger, seed).await,
        }
        tokio::task::yield_now().await;
    }
}

async fn read(cache: &Cache, key: &str) -> Result<Body, ErrorKind> {
    let body = match cache.get(get_request(key, None)).await {
        Ok(body) => collect(body.stream).await,
        Err(error) => Err(error),
    };
    match body {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.kind),
    }
}

/// A read answers with what was written, or with an error that can be retried; never with anything else.
async fn check_key(cache: &Cache, key: &str, ledger: &Ledger, seed: u64) {
    match read(cache, key).await {
        Ok(found) => {
            let ledger = ledger.lock();
            let nothing = Expected::default();
            let expected = ledger.get(key).unwrap_or(&nothing);
            let fits = found == expected.known || expected.possible.contains(&found);
            assert!(fits, "seed {seed}: {key} reads as {:?} bytes", found.map(|bytes| bytes.len()));
        }
        Err(ErrorKind::Unavailable | ErrorKind::SlowDown) => {}
        Err(other) => panic!("seed {seed}: {key} can't be read: {other:?}"),
    }
}

/// After a start every key has one value, and keeps it.
async fn settle(bench: &Bench, ledger: &Ledger, seed: u64) {
    let keys: Vec<_> = ledger.lock().keys().cloned().collect();
    for key in keys {
        check_key(&bench.cache, &key, ledger, seed).await;
        let found = read(&bench.cache, &key).await;
        let found = found.unwrap_or_else(|kind| panic!("seed {seed}: {key} can't be read: {kind:?}"));
        ledger.lock().insert(key, Expected { known: found, possible: Vec::new() });
    }
    let listed = bench.keys().await;
    let there = |(key, expected): (&String, &Expected)| expected.known.is_some().then(|| key.clone());
    assert_eq!(listed, ledger.lock().iter().filter_map(there).collect::<Vec<_>>(), "seed {seed}: the listing");
}

fn random_mood(bench: &Bench, random: &SeededRandom) {
    let way = [Way::Open, Way::Open, Way::Closed][random.below(3) as usize].clone();
    bench.background.set(way);
    let mood = [Mood::Well, Mood::Well, Mood::Well, Mood::Refuse(UfsKind::Throttled), Mood::LoseAnswers];
    bench.under.set_mood(mood[random.below(mood.len() as u64) as usize]);
}

async fn one_life(bench: &mut Bench, ledger: &Ledger, random: &SeededRandom) {
    let start = |client| {
        let (cache, ledger) = (bench.cache.clone(), Arc::clone(ledger));
        forebay_env::spawn(run_client(cache, client, random.next_u64(), ledger))
    };
    let clients: Vec<_> = (0..CLIENTS).map(start).collect();
    for _ in 0..random.below(24) {
        random_mood(bench, random);
        for _ in 0..random.below(40) {
            tokio::task::yield_now().await;
        }
        if random.below(4) == 0 {
            bench.clock.advance(std::time::Duration::from_millis(random.below(20_000)));
        }
    }
    let failed = clients.iter().any(|client| client.is_finished());
    clients.iter().for_each(|client| client.abort());
    if failed {
        for client in clients {
            client.join().await;
        }
    }
    bench.under.set_mood(Mood::Well);
    if random.below(4) == 0 {
        bench.background.set(Way::Open);
        bench.restart().await;
    } else {
        bench.power_loss(random.next_u64()).await;
    }
}

/// Both have numbered what they wrote, and each stamps its uploads with its numbers.
#[tokio::test]
async fn a_worker_with_empty_disks_does_not_take_what_another_wrote_for_its_own() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "of the first").await.unwrap();
    bench.drain().await;
    bench.close().await;
    bench.disk = MemoryDisk::new(bench.setup.capacity);
    bench.clock.advance(Duration::from_secs(1));
    bench.reopen().await;
    bench.put("key", "of the second").await.unwrap();
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "of the second");
}

#[tokio::test]
async fn what_was_acknowledged_survives_power_cuts_and_reaches_the_under_store() {
    for seed in seeds(6) {
        println!("FOREBAY_TEST_SEED={seed}");
        let random = SeededRandom::new(seed);
        let mut setup = Setup::new(WriteMode::WriteBack).settings(|settings| {
            settings.memory_size = forebay_types::ByteSize([0, 64 << 20][random.below(2) as usize]);
        });
        setup.seed = seed;
        setup.policies = vec![
            rule("/", WriteMode::WriteBack),
            rule("/bucket/through/", WriteMode::WriteThrough),
            rule("/bucket/transient/", WriteMode::Transient),
        ];
        let mut bench = setup.open().await;
        let ledger = Ledger::default();
        for _ in 0..LIVES {
            one_life(&mut bench, &ledger, &random).await;
            settle(&bench, &ledger, seed).await;
        }
        bench.drain().await;
        settle(&bench, &ledger, seed).await;
        compare_under_store(&bench, &ledger, seed);
    }
}

fn compare_under_store(bench: &Bench, ledger: &Ledger, seed: u64) {
    let ledger = ledger.lock();
    let persisted = ledger.iter().filter(|(key, _)| !key.starts_with("transient/"));
    let expected: BTreeMap<_, _> =
        persisted.filter_map(|(key, expected)| Some((key.clone(), expected.known.clone()?))).collect();
    let found = bench.under.contents();
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "seed {seed}");
    assert!(found == expected, "seed {seed}: the under store has other bytes");
    for key in ledger.keys() {
        let generations = bench.generations(key);
        assert!(generations.is_sorted(), "seed {seed}: {key} went backwards: {generations:?}");
    }
    assert_eq!(bench.cache.status().conflicts, 0, "seed {seed}: nobody else wrote");
}

#[tokio::test]
async fn a_clean_restart_keeps_states_bytes_and_the_memory_of_what_is_persisted() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    let large = pattern(5, 5 << 20);
    bench.put("clean", large.clone()).await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Refuse("dirty".to_owned(), UfsKind::Unavailable));
    let written = bench.put("dirty", large.clone()).await.unwrap();
    bench.delete("gone").await.unwrap();
    bench.restart().await;
    assert_eq!(bench.state("dirty").await, StorageState::Dirty);
    assert_eq!(bench.state("clean").await, StorageState::Clean);
    assert_eq!(bench.head("dirty").await.unwrap().info.etag, written.etag);
    assert_eq!(bench.get("dirty").await.unwrap(), large);
    let gets = bench.foreground.gets().len();
    assert_eq!(bench.get("clean").await.unwrap(), large);
    assert_eq!(bench.foreground.gets().len(), gets, "clean bytes are read from the disk after a restart");
    bench.background.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.under("dirty").unwrap(), large);
    assert_eq!(bench.generations("clean").len(), 1, "what is persisted is not uploaded again");
}

/// An under store that hangs does not keep the process from ending.
#[tokio::test]
async fn a_stop_waits_for_an_under_store_no_longer_than_it_may() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "value").await.unwrap();
    until("the upload is under way", || bench.background.waiting() == 1).await;
    let cache = bench.cache.clone();
    let closing = forebay_env::spawn(async move { cache.close().await });
    bench.clock.advance(bench.setup.settings.drain_timeout.0 / 2);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!closing.is_finished(), "the upload gets its time");
    bench.advancing("it stops", || closing.is_finished()).await;
    closing.join().await.unwrap();
    let dead = bench.background.clone();
    bench.power_loss(4).await;
    assert_eq!(bench.get("key").await.unwrap(), "value");
    dead.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "value");
}

/// Also of a key that the catalog says nothing of any more.
#[tokio::test]
async fn times_of_writes_do_not_go_back_after_a_restart() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough, WriteMode::NoCache, WriteMode::Transient] {
        for crash in [false, true] {
            let mut bench = Bench::new(mode).await;
            let first = bench.put("key", "first").await.unwrap().last_modified_ms;
            bench.drain().await;
            bench.delete("key").await.unwrap();
            bench.drain().await;
            bench.clock.set_unix_ms(bench.env.clock.unix_ms() - 3_600_000);
            if crash {
                bench.power_loss(7).await
            } else {
                bench.restart().await
            }
            bench.settle().await;
            let second = bench.put("key", "second").await.unwrap().last_modified_ms;
            assert!(second >= first, "{mode:?}, crash: {crash}: {second} comes after {first}");
            assert!(second <= first + 2000, "{mode:?}, crash: {crash}: nor are they far ahead");
        }
    }
}

/// A write whose time could not be noted gets no answer, and may be there all the same, with that time, and be
/// persisted.
#[tokio::test]
async fn times_of_writes_without_an_answer_do_not_go_back_either() {
    for delete in [false, true] {
        let setup = Setup::new(WriteMode::WriteBack).policy(|rule| rule.durability = Some(Durability::Os));
        let mut bench = setup.with_spare_disk().open().await;
        bench.disk.fail_syncs(1);
        // Disks take turns, and these writes wait for no other sync than that of their times.
        while bench.put("key", "value").await.is_ok() {
            bench.clock.advance(Duration::from_secs(2));
        }
        let first = bench.head("key").await.unwrap().info.last_modified_ms;
        assert_eq!(first, bench.env.clock.unix_ms());
        if delete {
            bench.delete("key").await.unwrap();
        }
        bench.drain().await;
        bench.clock.set_unix_ms(first - 3_600_000);
        bench.kill().await;
        bench.settle().await;
        let second = bench.put("key", "second").await.unwrap().last_modified_ms;
        assert!(second >= first, "deleted: {delete}: {second} comes after {first}");
    }
}

/// A clock that was wrong for a moment must not be obeyed for ever.
#[tokio::test]
async fn a_time_that_is_far_ahead_is_forgotten_at_a_restart() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    let now = bench.env.clock.unix_ms();
    bench.clock.set_unix_ms(now + 30 * 24 * 3_600_000);
    bench.put("key", "from another month").await.unwrap();
    bench.clock.set_unix_ms(now);
    bench.restart().await;
    assert_eq!(bench.put("key", "now").await.unwrap().last_modified_ms, now);
}

/// The under store has the new version and the cache does not know: the older copy here is not served any more.
#[tokio::test]
async fn write_through_without_an_answer_does_not_bring_the_older_copy_back() {
    for (delete, crash) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bench = Bench::new(WriteMode::WriteThrough).await;
        bench.put("key", "older").await.unwrap();
        assert_eq!(bench.get("key").await.unwrap(), "older");
        bench.foreground.set(Way::Late);
        let unknown = if delete { bench.delete("key").await.err() } else { bench.put("key", "newer").await.err() };
        assert!(unknown.is_some(), "the answer is lost");
        bench.foreground.land().await.unwrap();
        if crash {
            bench.power_loss(11).await;
        }
        let read = bench.get("key").await;
        let expected = (!delete).then_some(b"newer".as_slice());
        assert_eq!(read.ok().as_deref(), expected, "deleted: {delete}, crash: {crash}");
    }
}

/// The catalog names a version and its bytes are gone: an error, never the older version of the under store, never "not
/// found".
#[tokio::test]
async fn a_version_whose_bytes_are_gone_is_an_error() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    let older = pattern(1, 3 << 20);
    bench.put("key", older.clone()).await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Cut);
    bench.put("key", pattern(2, 3 << 20)).await.unwrap();
    bench.close().await;
    for name in bench.disk.list().await.unwrap() {
        if name.ends_with(".bulk") {
            bench.disk.remove(&name).await.unwrap();
        }
    }
    bench.background.set(Way::Open);
    bench.restart().await;
    for _ in 0..2 {
        let read = match bench.open_get("key", None).await {
            Ok(body) => collect(body.stream).await,
            Err(error) => Err(error),
        };
        let error = read.expect_err("its bytes are gone");
        assert!(matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Corrupt), "{error}");
        assert!(bench.cache.persist("/").await.is_err());
        assert_eq!(bench.under("key").unwrap(), older);
        bench.restart().await;
    }
    bench.put("key", "written again").await.unwrap();
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "written again");
}

/// Nobody can bring such a version to the under store. A write or a delete that goes through to it does not wait for
/// that.
#[tokio::test]
async fn a_version_whose_bytes_are_gone_does_not_hold_up_what_replaces_it() {
    for (extension, size, is_cut) in [(".bulk", 3 << 20, false), (".bulk", 3 << 20, true), (".log", 10, false)] {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        for key in ["put", "deleted"] {
            bench.put(key, "older").await.unwrap();
        }
        bench.drain().await;
        bench.background.set(Way::Cut);
        for key in ["put", "deleted"] {
            bench.put(key, pattern(2, size)).await.unwrap();
        }
        // From then on a snapshot shows all of the log.
        bench.restart().await;
        bench.close().await;
        let names = bench.disk.list().await.unwrap();
        let name = names.iter().filter(|name| name.ends_with(extension)).min().unwrap();
        if is_cut {
            bench.disk.edit(name, |bytes| bytes.truncate(100));
        } else {
            bench.disk.remove(name).await.unwrap();
        }
        bench.background.set(Way::Open);
        bench.restart().await;
        assert_eq!(bench.cache.status().missing_objects, 2);
        let rules = vec![rule("/", WriteMode::WriteThrough)];
        bench.cache.set_policies(rules, None, "test", "edit").await.unwrap();
        bench.pass_seconds(bench.setup.settings.settle_time.0.as_secs() + 1).await;
        bench.put("put", "written again").await.unwrap();
        bench.delete("deleted").await.unwrap();
        assert_eq!(bench.under("put").unwrap(), "written again");
        assert_eq!(bench.under("deleted"), None);
        assert_eq!(bench.get("put").await.unwrap(), "written again");
        assert_eq!(bench.cache.status().dirty_objects, 0);
        assert_eq!(bench.cache.status().missing_objects, 0);
        bench.restart().await;
        assert_eq!(bench.cache.status().missing_objects, 0);
    }
}

/// A catalog of a release that noted no times tells them with what is not in the under store.
#[tokio::test]
async fn times_of_writes_do_not_go_back_behind_those_in_the_catalog() {
    let mut bench = Bench::new(WriteMode::Transient).await;
    let first = bench.put("key", "first").await.unwrap().last_modified_ms;
    bench.close().await;
    bench.remove_record(Bytes::from_static(records::LAST_WRITE_KEY)).await;
    bench.clock.set_unix_ms(first - 3_600_000);
    bench.reopen().await;
    assert_eq!(bench.put("other", "second").await.unwrap().last_modified_ms, first);
}

/// As after a loss of the catalog. Nobody can ask for them, and they must not take room for ever.
#[tokio::test]
async fn bytes_that_no_record_names_are_removed_at_the_start() {
    let mut bench = Bench::new(WriteMode::Transient).await;
    bench.put("key", pattern(1, 5000)).await.unwrap();
    bench.put("kept", "value").await.unwrap();
    bench.close().await;
    bench.remove_record(records::object_key(&path("key"))).await;
    bench.reopen().await;
    let pinned = bench.cache.status().pinned_bytes;
    assert!((1..5000).contains(&pinned), "{pinned}");
    assert!(bench.store.peek(&records::object_key(&path("key"))).is_none());
    assert_eq!(bench.get("kept").await.unwrap(), "value");
}

/// A process that a supervisor starts again and again, and that fails each time before the settle time is over.
#[tokio::test]
async fn short_lives_do_not_keep_anything_from_the_under_store() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "value").await.unwrap();
    for life in 0..2 {
        bench.kill().await;
        bench.background.set(Way::Open);
        bench.put("new", "value").await.unwrap();
        bench.pass_seconds(13).await;
        assert_eq!(bench.under("key"), None, "life {life}: a request of the first may still land");
    }
    bench.kill().await;
    bench.pass_seconds(10).await;
    assert_eq!(bench.under("key").unwrap(), "value");
}

/// Its state is written in each of them.
#[tokio::test]
async fn what_is_written_in_each_short_life_is_sent_as_well() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    for life in 0..3 {
        bench.put("key", format!("of life {life}")).await.unwrap();
        bench.kill().await;
        bench.pass_seconds(8).await;
        assert_eq!(bench.under("key"), None);
    }
    bench.put("key", "last").await.unwrap();
    bench.pass_seconds(10).await;
    assert_eq!(bench.under("key").unwrap(), "last");
}

/// Also where the power goes: that nothing was sent for a while must be forgotten before anything is.
#[tokio::test]
async fn what_short_lives_send_is_waited_for_as_well() {
    for cut in [false, true] {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        bench.background.set(Way::Closed);
        bench.put("key", "value").await.unwrap();
        bench.kill().await;
        bench.pass_seconds(20).await;
        bench.kill().await;
        bench.background.set(Way::Late);
        bench.pass_seconds(20).await;
        assert_eq!(
            bench.background.stragglers(),
            1,
            "cut {cut}: sent 30 seconds after the first start, and not answered"
        );
        let dead = bench.background.clone();
        if cut {
            bench.power_loss(3).await
        } else {
            bench.kill().await
        }
        bench.put("key", "newer").await.unwrap();
        bench.pass_seconds(25).await;
        assert_eq!(bench.under("key"), None, "cut {cut}");
        dead.land().await.unwrap();
        bench.pass_seconds(6).await;
        assert_eq!(bench.under("key").unwrap(), "newer", "cut {cut}");
        assert!(bench.generations("key").is_sorted());
    }
}

#[tokio::test]
async fn after_a_stop_without_open_requests_nothing_waits() {
    for durability in [Durability::Fsync, Durability::Os] {
        let setup = Setup::new(WriteMode::WriteBack).policy(|rule| rule.durability = Some(durability));
        let mut bench = setup.open().await;
        bench.background.set(Way::Refuse("key".to_owned(), forebay_ufs::ErrorKind::Throttled));
        bench.put("key", "value").await.unwrap();
        until("it was refused", || bench.background.refusals() > 0).await;
        bench.restart().await;
        bench.background.set(Way::Open);
        bench.pass_seconds(2).await;
        assert_eq!(bench.under("key").unwrap(), "value");
        // A request without an answer is waited for.
        bench.background.set(Way::Late);
        bench.put("key", "late").await.unwrap();
        until("it got no answer", || bench.background.stragglers() == 1).await;
        bench.restart().await;
        bench.background.set(Way::Open);
        bench.pass_seconds(25).await;
        assert_eq!(bench.under("key").unwrap(), "value");
        assert_eq!(bench.background.stragglers(), 1);
        bench.background.land().await.unwrap();
        bench.pass_seconds(6).await;
        assert_eq!(bench.under("key").unwrap(), "late");
    }
}

/// A clean one, which is no version that the catalog could mean.
#[tokio::test]
async fn an_older_copy_does_not_stand_in_for_a_version_whose_bytes_are_gone() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Cut);
    bench.put("key", "older").await.unwrap();
    let key = records::object_key(&path("key"));
    let record = ObjectRecord::decode(&bench.store.value(&key).unwrap().value).unwrap();
    bench.background.set(Way::Open);
    bench.drain().await;
    bench.close().await;
    let generation = Generation(record.generation.0 + 1);
    bench.write_record(key, Some(ObjectRecord { generation, ..record }.encode())).await;
    bench.reopen().await;
    let told = format!("the bytes of generation {generation} of bucket/key are missing");
    for error in [bench.get("key").await.unwrap_err(), bench.head("key").await.unwrap_err()] {
        assert_eq!((error.kind, error.to_string()), (ErrorKind::Unavailable, told.clone()));
    }
    bench.settle().await;
    assert!(bench.cache.persist("/").await.is_err());
    assert_eq!(bench.under("key").unwrap(), "older");
}

/// Generations have 64 bits, which must do for more starts than a disk will see.
#[tokio::test]
async fn starts_do_not_use_up_the_generations() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    for start in 0..200 {
        bench.put("key", start.to_string()).await.unwrap();
        bench.drain().await;
        bench.kill().await;
    }
    let generations = bench.generations("key");
    assert!(generations.len() == 200 && generations.is_sorted());
    assert!(generations[199].0 - generations[0].0 < 200 << 33, "{generations:?}");
}

/// An old release raised the numbers with each unclean start until none were left.
#[tokio::test]
async fn a_directory_whose_generations_are_used_up_keeps_its_objects_and_takes_writes_again() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("before", "kept").await.unwrap();
    bench.close().await;
    // So much room that the first start sees no damage, and so little that some starts later there is none left.
    let base = u64::MAX - (1 << 40) - (8 << 32);
    let key = Bytes::from_static(records::GENERATION_BASE_KEY);
    bench.write_record(key.clone(), Some(Bytes::copy_from_slice(&base.to_be_bytes()))).await;
    bench.reopen().await;
    for start in 0..20 {
        bench.put("key", start.to_string()).await.unwrap();
        bench.put(&format!("key-{start}"), "own").await.unwrap();
        bench.kill().await;
    }
    assert_eq!(bench.get("before").await.unwrap(), "kept");
    assert_eq!(bench.get("key").await.unwrap(), "19");
    bench.drain().await;
    let generations = bench.generations("key");
    assert!(generations.is_sorted() && generations.last() > Some(&Generation(base)), "{generations:?}");
    for start in 0..20 {
        assert_eq!(bench.under(&format!("key-{start}")).unwrap(), "own");
    }
}

async fn copy_of(disk: &MemoryDisk) -> MemoryDisk {
    let copy = MemoryDisk::default();
    for (name, _) in disk.lengths() {
        let bytes = disk.contents(&name).expect("it was listed");
        let file = copy.create(&name).await.expect("create");
        file.write_at(0, vec![bytes.into()], true).await.expect("write");
    }
    copy.sync_directory().await.expect("sync");
    copy
}

/// A directory that was forgotten, or an engine that was restored from a backup, may have known of newer writes. What
/// is left goes to the under store only where that has nothing newer.
#[tokio::test]
async fn after_a_directory_was_forgotten_what_is_older_does_not_replace_what_is_newer() {
    for is_restored in [false, true] {
        let mut bench = Setup::new(WriteMode::WriteBack)
            .settings(|settings| settings.drain_timeout = Period(Duration::ZERO))
            .open()
            .await;
        for key in ["deleted", "written"] {
            bench.put(key, "first").await.unwrap();
        }
        bench.drain().await;
        bench.background.set(Way::Cut);
        for key in ["deleted", "unseen"] {
            bench.delete(key).await.unwrap();
        }
        for key in ["written", "created", "same", "alone"] {
            bench.put(key, "older").await.unwrap();
        }
        let last = bench.store.value(&records::object_key(&path("alone"))).unwrap();
        let last = ObjectRecord::decode(&last.value).unwrap().generation;
        bench.close().await;
        let older = copy_of(&bench.disk).await;
        bench.background.set(Way::Open);
        bench.reopen().await;
        bench.drain().await;
        for key in ["deleted", "unseen", "written", "created"] {
            bench.put(key, "newer").await.unwrap();
        }
        bench.delete("alone").await.unwrap();
        bench.drain().await;
        bench.close().await;

        bench.disk = older;
        // As a start leaves it that forgets a directory, or one that accepts the engine.
        let (key, note) = match is_restored {
            false => (records::DOUBT_KEY, [1, u64::MAX].map(u64::to_be_bytes).concat()),
            true => (records::RESTORED_KEY, (last.0 + 1).to_be_bytes().to_vec()),
        };
        bench.write_record(Bytes::from_static(key), Some(note.into())).await;
        bench.reopen().await;
        bench.drain().await;
        for key in ["deleted", "unseen", "written", "created"] {
            assert_eq!(bench.under(key).unwrap(), "newer", "{key}");
            assert_eq!(bench.get(key).await.unwrap(), "newer", "{key}");
        }
        assert_eq!(bench.under("same").unwrap(), "older");
        assert_eq!(bench.generations("same").len(), 1, "what the under store has is not sent again");
        // Of a delete nothing is left there to tell.
        assert_eq!(bench.under("alone").unwrap(), "older");
        bench.put("written", "newest").await.unwrap();
        bench.drain().await;
        assert_eq!(bench.under("written").unwrap(), "newest");
    }
}

/// The second disk is lost, and the next start forgets it.
fn lose_a_disk(bench: &mut Bench) {
    let spare = bench.setup.spare.take().expect("a second disk");
    spare.kill();
    let identity = spare.contents("identity").expect("identity");
    let id = u64::from_le_bytes(identity[8..16].try_into().expect("eight bytes"));
    bench.setup.store.capacity_bytes.pop();
    bench.setup.store.forget = vec![format!("{id:016x}").parse().expect("an id")];
}

async fn with_two_disks() -> Bench {
    let bench = with_a_path_that_is_written_through(Setup::new(WriteMode::WriteBack).with_spare_disk()).await;
    bench.put("key", "before").await.expect("put");
    bench.drain().await;
    bench
}

async fn with_a_path_that_is_written_through(mut setup: Setup) -> Bench {
    setup.policies.push(rule(&format!("/{BUCKET}/through/"), WriteMode::WriteThrough));
    setup.open().await
}

/// What would tell of requests that are under way may be lost with it.
#[tokio::test]
async fn after_a_directory_was_forgotten_nothing_is_sent_before_earlier_requests_are_settled() {
    let mut bench = with_two_disks().await;
    lose_a_disk(&mut bench);
    bench.kill().await;
    // Also by the next starts, as long as it is not noted. How long was waited may be lost, too.
    for _ in 0..2 {
        bench.pass_seconds(20).await;
        assert_eq!(kind(bench.put("through/key", "value").await), Some(ErrorKind::SlowDown));
        bench.kill().await;
    }
    bench.settle().await;
    bench.put("through/key", "value").await.unwrap();
    bench.restart().await;
    bench.put("through/key", "value").await.unwrap();
    // What is written after it is beyond doubt: it is sent without a look.
    let requests = bench.under.requests();
    bench.put("later", "value").await.unwrap();
    bench.drain().await;
    assert_eq!(bench.under.requests(), requests + 1);
}

/// Only they had what the forgotten one knew.
#[tokio::test]
async fn after_the_snapshots_of_a_store_without_one_of_its_directories_are_removed_requests_are_settled_first() {
    let mut bench = with_two_disks().await;
    bench.close().await;
    lose_a_disk(&mut bench);
    bench.reopen().await;
    bench.close().await;
    bench.disk.remove("snapshot").await.unwrap();
    bench.reopen().await;
    // The second start has a snapshot again.
    check_that_two_starts_wait(&mut bench).await;
}

/// This start and the next one wait until requests of earlier lives are settled. Later ones do not.
async fn check_that_two_starts_wait(bench: &mut Bench) {
    for restarts in [true, false] {
        assert_eq!(kind(bench.put("through/key", "value").await), Some(ErrorKind::SlowDown));
        if restarts {
            bench.restart().await;
        }
    }
    bench.settle().await;
    bench.put("through/key", "value").await.expect("all is settled");
    bench.restart().await;
    bench.put("through/key", "value").await.expect("nothing is in doubt any more");
}

/// Each worker finds the note of the restore in the engine until the next one.
#[tokio::test]
async fn after_the_engine_was_restored_nothing_is_sent_before_earlier_requests_are_settled() {
    let mut bench = with_a_path_that_is_written_through(Setup::new(WriteMode::WriteBack)).await;
    for _ in 0..2 {
        bench.put("through/key", "value").await.unwrap();
        bench.close().await;
        let last = bench.generations("through/key").pop().unwrap();
        let note = Bytes::copy_from_slice(&(last.0 + 1).to_be_bytes());
        bench.write_record(Bytes::from_static(records::RESTORED_KEY), Some(note)).await;
        bench.reopen().await;
        check_that_two_starts_wait(&mut bench).await;
    }
}

/// The last snapshot has all that the lost one knew.
#[tokio::test]
async fn a_directory_that_is_forgotten_after_a_clean_stop_holds_up_nothing() {
    let mut bench = with_two_disks().await;
    bench.close().await;
    lose_a_disk(&mut bench);
    for _ in 0..2 {
        bench.reopen().await;
        bench.put("through/key", "value").await.unwrap();
        // Not even when the next start comes after a crash.
        bench.kill().await;
        bench.put("through/other", "value").await.unwrap();
        bench.close().await;
    }
}

/// That the next one is forgotten after a clean stop takes no doubt away.
#[tokio::test]
async fn doubts_outlast_another_directory_that_is_forgotten() {
    let mut bench = with_two_disks().await;
    lose_a_disk(&mut bench);
    bench.kill().await;
    bench.close().await;
    bench.setup.spare = Some(MemoryDisk::new(bench.setup.capacity));
    bench.setup.store.capacity_bytes.push(bench.setup.capacity);
    bench.reopen().await;
    bench.close().await;
    lose_a_disk(&mut bench);
    bench.reopen().await;
    assert_eq!(kind(bench.put("through/key", "value").await), Some(ErrorKind::SlowDown));
}

/// The under store has carried it out, and the process was killed before it could record that.
#[tokio::test]
async fn a_delete_that_is_sent_again_after_a_crash_deletes_nothing_of_others() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "base").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Late);
    bench.delete("key").await.unwrap();
    until("the delete got no answer", || bench.background.stragglers() == 1).await;
    bench.background.land().await.unwrap();
    bench.under.put_outside("key", "theirs".into());
    bench.kill().await;
    bench.drain().await;
    assert_eq!((bench.under("key").unwrap(), bench.get("key").await.unwrap()), ("theirs".into(), "theirs".into()));
}

/// Within the time for which it would have been known without the restart.
#[tokio::test]
async fn what_was_known_before_a_clean_stop_is_known_afterwards() {
    for (is_old, expected) in [(false, ("theirs", 1)), (true, ("ours", 0))] {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        for key in ["put", "deleted"] {
            bench.put(key, "base").await.unwrap();
        }
        bench.drain().await;
        // What the first restart has taken over outlasts the second one.
        bench.restart().await;
        bench.restart().await;
        if is_old {
            bench.age_metadata();
        }
        for key in ["put", "deleted"] {
            bench.under.put_outside(key, "theirs".into());
        }
        bench.put("put", "ours").await.unwrap();
        bench.delete("deleted").await.unwrap();
        bench.drain().await;
        assert_eq!((bench.under("put").unwrap(), bench.cache.status().conflicts), (expected.0.into(), expected.1));
        assert_eq!(bench.under("deleted").is_none(), is_old);
    }
}

/// The process was killed after its note and before the end of the stop. Older copies may be back then, too.
#[tokio::test]
async fn what_is_noted_counts_only_where_the_stop_has_ended() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "base").await.unwrap();
    bench.drain().await;
    bench.close().await;
    assert_eq!(bench.store.value(records::KNOWN_COPIES_KEY).unwrap().value.len(), 24, "the start, and one copy");
    // A clean stop ends with this file.
    bench.disk.remove("closed").await.unwrap();
    bench.reopen().await;
    bench.under.put_outside("key", "theirs".into());
    bench.put("key", "ours").await.unwrap();
    bench.drain().await;
    assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), ("ours".into(), 0));
}

#[tokio::test]
async fn a_copy_that_is_outdated_is_not_noted() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "base").await.unwrap();
    bench.drain().await;
    bench.age_metadata();
    bench.under.delete_outside("key");
    assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
    bench.close().await;
    assert_eq!(bench.store.value(records::KNOWN_COPIES_KEY).unwrap().value.len(), 8, "the start alone");
}

/// An older copy may be back, which a write of ours had replaced.
#[tokio::test]
async fn nothing_is_known_after_a_crash() {
    let mut bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "base").await.unwrap();
    bench.drain().await;
    bench.restart().await;
    bench.kill().await;
    bench.under.put_outside("key", "theirs".into());
    bench.put("key", "ours").await.unwrap();
    bench.drain().await;
    assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), ("ours".into(), 0));
}
