//! Random operations, crashes at random moments, and a comparison with the model after each.

use forebay_env::random::{Random, SeededRandom};

use super::model::{Model, Op, is_fill, run};
use super::*;

/// Rounds of one run of the test. Each is several lives of a store.
const ROUNDS: u64 = 1500;

/// Runs one life of a process. All its tasks end with it, as with a killed process.
fn life<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

/// Prints the seed of a round that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run it again with FOREBAY_TEST_SEED={}", self.0);
        }
    }
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Close,
    Kill,
    PowerLoss,
}

struct Round {
    random: SeededRandom,
    disks: Vec<MemoryDisk>,
    settings: Settings,
    next_tag: u64,
    /// Most steps of a life. Long lives in small directories have much reclaim.
    steps_max: u64,
    reclaimed_segments: u64,
}

impl Round {
    fn new(seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let disks: Vec<_> = (0..1 + random.below(2)).map(|_| MemoryDisk::default()).collect();
        let settings = Settings {
            segment_bytes: 16 << 10,
            inline_bytes_max: 500,
            extent_bytes_max: 4 << 10,
            // Some rounds take snapshots all the time, some never.
            snapshot_log_bytes: [2 << 10, 20 << 10, 1 << 30][random.below(3) as usize],
            ..Settings::new(disks.iter().map(|_| 16 * 1024 * [8, 20][random.below(2) as usize]).collect())
        };
        let steps_max = [25, 25, 120][random.below(3) as usize];
        Self { random, disks, settings, next_tag: 0, steps_max, reclaimed_segments: 0 }
    }

    fn chance(&self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn key(&self) -> String {
        format!("{}{}", if self.chance(75) { 'p' } else { 'f' }, self.random.below(8))
    }

    fn op(&mut self, model: &Model, key: &str) -> Op {
        self.next_tag += 1 + self.random.below(500);
        let tag = self.next_tag;
        let live = model.live(key);
        match self.random.below(10) {
            0..=1 if live.is_some() => Op::Forget,
            2..=4 if !is_fill(key) && live.is_some() => Op::Clean { tag: live.expect("it is some") },
            _ if is_fill(key) => Op::Fill { tag },
            // Only small objects are written with `Os` durability: a power cut may take the extents of a large one and
            // leave its record, and reads would then fail.
            5..=6 if !tag.is_multiple_of(3) => Op::Put { tag, durability: Durability::Os },
            _ => Op::Put { tag, durability: Durability::Fsync },
        }
    }

    /// Several concurrent operations on different keys. Returns those that have not ended after this many steps.
    async fn at_once(&mut self, store: &Store, model: &mut Model, steps: usize) {
        let mut keys: Vec<String> = (0..1 + self.random.below(6)).map(|_| self.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut running = Vec::new();
        for key in keys {
            let op = self.op(model, &key);
            model.begin(&key, op);
            let (store, name) = (store.clone(), key.clone());
            running.push((key, op, forebay_env::spawn(async move { run(&store, &name, op).await })));
        }
        for _ in 0..steps {
            if running.iter().all(|(_, _, task)| task.is_finished()) {
                break;
            }
            tokio::task::yield_now().await;
        }
        for (key, op, task) in running {
            if task.is_finished() && task.join().await.is_ok() {
                model.acked(&key, op);
            }
        }
    }

    async fn live(&mut self, model: &mut Model) -> End {
        let store = try_open_all(&self.disks, self.settings.clone()).await.unwrap();
        model.check_opened(&store).await;
        let publishes = self.chance(50);
        model.end_prepared(&store, publishes).await;
        for _ in 0..self.random.below(self.steps_max) {
            self.at_once(&store, model, usize::MAX).await;
            if self.chance(10) {
                store.inner.snapshot().await.unwrap();
            }
            if self.chance(20) {
                store.get(self.key().as_bytes());
            }
        }
        model.check_live(&store).await;
        self.reclaimed_segments += store.counters().reclaimed_segments;
        let end = [End::Close, End::Kill, End::PowerLoss, End::PowerLoss][self.random.below(4) as usize];
        if end == End::Close {
            store.close().await.unwrap();
            return end;
        }
        // The life ends in the middle of something.
        if self.chance(40) {
            self.disks.iter().for_each(|disk| disk.hold_syncs(true));
        } else if self.chance(20) {
            self.disks[0].fail_syncs(1);
            model.lost_directory = self.disks.len() > 1;
        }
        let steps = self.random.below(60) as usize;
        self.at_once(&store, model, steps).await;
        end
    }
}

/// Returns how many segments were reclaimed.
fn round(seed: u64) -> u64 {
    let _seed = Seed(seed);
    let (mut round, mut model) = (Round::new(seed), Model::default());
    for _ in 0..2 + round.random.below(4) {
        let end = life(round.live(&mut model));
        for disk in &round.disks {
            disk.hold_syncs(false);
            disk.fail_syncs(0);
            // After a close, the power may be cut as well.
            if end == End::PowerLoss || (end == End::Close && round.random.below(2) == 0) {
                disk.power_loss(round.random.next_u64());
            }
            // After a snapshot that can't be read, the segments must give the same tables. After a failed sync, nobody
            // knows what a log holds before the snapshot.
            if round.chance(15) && disk.contents("snapshot").is_some() && !model.lost_directory {
                model.rebuilt = true;
                disk.edit("snapshot", |bytes| bytes.truncate(bytes.len() / 2));
            }
        }
    }
    life(async {
        let store = try_open_all(&round.disks, round.settings.clone()).await.unwrap();
        model.check_opened(&store).await;
    });
    round.reclaimed_segments
}

#[test]
fn after_every_crash_what_was_acknowledged_is_there_and_nothing_is_mixed() {
    match std::env::var("FOREBAY_TEST_SEED") {
        Ok(seed) => drop(round(seed.parse().unwrap())),
        Err(_) => {
            let first = forebay_env::random::SystemRandom.next_u64() >> 1;
            let reclaimed_segments: u64 = (0..ROUNDS).map(|index| round(first + index)).sum();
            assert!(reclaimed_segments > ROUNDS, "reclaim had little to do: {reclaimed_segments}");
        }
    }
}
