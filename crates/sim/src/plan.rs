//! What happens in a run: sizes and modes, clients and what they ask for, faults, and how each process ends. Made from
//! a seed before anything begins, so that parts of it can be left out.

use std::collections::BTreeSet;
use std::fmt;

use forebay_cache::JobKind;
use forebay_env::Random;
use forebay_env::random::SeededRandom;
use forebay_types::{BucketName, EvictionOrder, PinnedFull, ReplicasMissing, WriteMode};

use crate::content::{Body, TagsId};
use crate::under_store::Weather;

/// The bucket that is always there.
pub(crate) const BUCKET: &str = "data";
/// The bucket that clients create and delete.
pub(crate) const OTHER_BUCKET: &str = "other";

pub(crate) fn bucket(name: &str) -> BucketName {
    BucketName::new(name).expect("a valid name")
}

/// Path prefixes in [`BUCKET`], each with a write mode of its own.
pub(crate) const PREFIXES: [&str; 4] = ["a/", "b/", "c/", "d/"];

const KIB: u64 = 1 << 10;

/// One run in this many has hundreds of short lives: what each start takes must not run out.
const LONG_RUNS: u64 = 400;

/// Once in this many runs, the under store refuses writes of some keys for good, and an operator gives them up.
const PICKY_RUNS: u64 = 12;

/// Once in this many runs, processes end while requests of the previous process may still land, and so do many of their
/// successors.
const RESTLESS_RUNS: u64 = 20;

/// Once in this many runs, keys come and go for long beside few that stay: what deletes leave behind must not fill the
/// store.
const CHURN_RUNS: u64 = 60;

/// Where they do, in [`PREFIXES`].
const CHURN_PREFIX: usize = 3;

/// In this many of ten other runs, the store is soon full: for each new object some older one must go.
const FULL_RUNS_OF_TEN: u64 = 9;

/// Runs with more lives have one machine.
const SHARED_LIVES_MAX: usize = 20;

/// In [`BUCKET`], what fills it.
const FILL_PREFIX: &str = "fill/";

/// What an operator may change from one start to the next, in bytes unless the name says otherwise.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Of each directory.
    pub segments: u64,
    pub segment: u64,
    pub inline: u64,
    pub extent: u64,
    pub snapshot_log: u64,
    pub memory: u64,
    pub memory_object: u64,
    pub page: u64,
    pub pinned_ratio: f64,
}

impl Sizes {
    /// Of each directory.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments * self.segment
    }
}

/// Sizes, limits and modes of one run.
#[derive(Debug, Clone)]
pub struct Config {
    pub disks: usize,
    pub sizes: Sizes,
    /// Bytes of each disk's file system.
    pub file_system: u64,
    pub persist_concurrency: u32,
    pub settle_s: u64,
    pub ttl_s: u64,
    /// `listTtl`, in seconds.
    pub list_ttl_s: Option<u64>,
    /// Whether writes are acknowledged before they are on stable storage.
    pub os_durability: bool,
    /// Of each prefix.
    pub modes: [WriteMode; 4],
    /// Whether the under store shows on later pages of a listing what was there at the first, as MinIO does.
    pub keeps_listings: bool,
    pub pinned_full: PinnedFull,
    pub eviction: EvictionOrder,
    pub cache_reads: bool,
    /// `writeBackMaxSize`, in bytes.
    pub write_back_max: Option<u64>,
    /// `readCacheMaxSize`, in bytes.
    pub read_cache_max: Option<u64>,
    pub engine: EngineKind,
    /// Of a worker on an engine.
    pub lease_ms: u64,
    /// How many share the keys, each with a worker of its own.
    pub machines: usize,
    /// `writeReplicas`.
    pub write_replicas: u32,
    pub when_replicas_missing: ReplicasMissing,
}

impl Config {
    /// Whether workers on several machines share the keys.
    pub(crate) fn is_shared(&self) -> bool {
        self.machines > 1
    }
}

/// Where the catalog stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// In the store.
    Embedded,
    /// On the network. A rude one loses answers, does transactions late, and is gone for a while.
    Remote { is_rude: bool },
}

impl EngineKind {
    /// No draw of its own: seeds on record mean what they did, but for this.
    fn of(seed: u64) -> Self {
        match seed % 6 {
            1 => Self::Remote { is_rude: false },
            3 => Self::Remote { is_rude: true },
            _ => Self::Embedded,
        }
    }
}

/// The condition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Always,
    IfAbsent,
    /// If the key has the tag that this client saw last.
    IfSeen,
}

/// What a client asks for; keys are full names `bucket/key`.
#[derive(Debug, Clone)]
pub enum Op {
    Put {
        key: String,
        body: Body,
        tags: TagsId,
        when: When,
        breaks: bool,
        piece: usize,
    },
    /// Of a range when given: first byte and length. A slow client pauses between the pieces of the body.
    Get {
        key: String,
        range: Option<(u32, u32)>,
        slow_ms: u64,
    },
    Head {
        key: String,
    },
    Tags {
        key: String,
    },
    SetTags {
        key: String,
        tags: TagsId,
    },
    Delete {
        key: String,
        when: When,
    },
    /// As DeleteObjects does it: all at once.
    DeleteMany {
        keys: Vec<String>,
    },
    List {
        prefix: String,
        delimiter: bool,
        limit: usize,
    },
    Copy {
        from: String,
        to: String,
    },
    Multipart {
        key: String,
        parts: Vec<Body>,
        tags: TagsId,
        abort: bool,
        twice: bool,
    },
    Persist {
        prefix: String,
    },
    Job {
        kind: JobKind,
    },
    Sweep,
    /// An operator drops what the under store refuses, or keeps it here.
    GiveUp {
        keep: bool,
    },
    /// Gives a prefix another mode.
    Policy {
        prefix: usize,
        mode: WriteMode,
    },
    CreateBucket,
    DeleteBucket,
    JumpWall {
        by_ms: i64,
    },
}

#[derive(Debug, Clone)]
pub struct Step {
    pub pause_ms: u64,
    pub op: Op,
}

#[derive(Debug, Clone)]
pub enum Fault {
    Weather(Weather),
    SlowDisk {
        disk: usize,
        slow: bool,
    },
    FailSyncs {
        disk: usize,
    },
    FailWrites {
        disk: usize,
    },
    FailReads {
        disk: usize,
        count: u32,
    },
    /// No descriptor is left for `count` new files.
    FailCreates {
        disk: usize,
        count: u32,
    },
    /// The file system takes `room` more bytes, or with `None` all that it has.
    Full {
        disk: usize,
        room: Option<u64>,
    },
    FlipBit {
        disk: usize,
    },
}

/// A change of the data directories before a process starts.
#[derive(Debug, Clone)]
pub enum Change {
    /// They are given in another order.
    Rotate { by: usize },
    /// An empty one is given beside the others.
    Add,
    /// One is missing at a start, which is refused, and then back.
    Miss { disk: usize },
    /// One is gone for good, with an empty one in its place or none.
    Lose { disk: usize, is_replaced: bool },
    /// One that was gone for good is given again, at a start that is refused.
    Return,
    /// A copy of one is taken. The next change of this kind gives the copy instead of that one, at a start that is
    /// refused.
    OlderCopy { disk: usize },
    /// A sector of a segment can't be read any more. If the start is refused, the sector is repaired.
    SpoilSector { disk: usize, file: usize, sector: usize },
    /// A segment of one is removed. If the start is refused, it is put back.
    Remove { disk: usize, file: usize },
    /// The settings give the store other sizes.
    Resize(Sizes),
    /// A machine with empty disks stands for one whose disks are all lost. Each write is on others, too. Left out
    /// while something is on one alone.
    Replace,
}

impl Change {
    pub(crate) fn is_replace(&self) -> bool {
        matches!(self, Self::Replace)
    }
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    PowerCut {
        after_ms: u64,
    },
    Kill {
        after_ms: u64,
    },
    /// When all clients have what they asked for.
    Stop,
}

/// One life of the process.
#[derive(Debug, Clone)]
pub struct Life {
    /// Where it is lived: the lives of one machine follow one another.
    pub machine: usize,
    pub changes: Vec<Change>,
    pub clients: Vec<Vec<Step>>,
    /// With the time since the start at which they begin, in milliseconds.
    pub faults: Vec<(u64, Fault)>,
    pub end: End,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub config: Config,
    pub lives: Vec<Life>,
}

/// Draws.
struct Dice(SeededRandom);

impl Dice {
    fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn one_of<T: Clone>(&self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

impl Op {
    pub(crate) fn keys(&self) -> Vec<&String> {
        match self {
            Self::Put { key, .. }
            | Self::Get { key, .. }
            | Self::Head { key }
            | Self::Tags { key }
            | Self::SetTags { key, .. }
            | Self::Delete { key, .. }
            | Self::Multipart { key, .. } => vec![key],
            Self::Copy { from, to } => vec![from, to],
            Self::DeleteMany { keys } => keys.iter().collect(),
            Self::List { .. }
            | Self::Persist { .. }
            | Self::Job { .. }
            | Self::Sweep
            | Self::GiveUp { .. }
            | Self::Policy { .. }
            | Self::CreateBucket
            | Self::DeleteBucket
            | Self::JumpWall { .. } => Vec::new(),
        }
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Self {
        let dice = Dice(SeededRandom::new(seed));
        let mut config = config(&dice, seed);
        let keys = keys(&dice);
        let faulty = !dice.once_in(4);
        let flips = faulty && dice.once_in(8);
        let lives: Vec<Life> = if dice.once_in(LONG_RUNS) {
            let (count, changing) = (100 + dice.below(300), dice.once_in(2));
            (0..count).map(|_| short_life(&dice, &config, &keys, changing)).collect()
        } else if dice.once_in(CHURN_RUNS) {
            churn_config(&dice, &mut config);
            (0..1 + dice.below(2)).map(|_| churn_life(&dice, &config, &keys)).collect()
        } else if dice.once_in(RESTLESS_RUNS) {
            (0..4 + dice.below(12)).map(|_| restless_life(&dice, &config, &keys)).collect()
        } else {
            let is_picky = dice.once_in(PICKY_RUNS);
            let is_full = dice.below(10) < FULL_RUNS_OF_TEN;
            if is_full {
                full_config(&dice, &mut config, seed);
            }
            let life = |number| {
                let mut life = life(&dice, &config, &keys, faulty, flips);
                if is_full {
                    life.clients.push(fill(&dice, &config, number));
                }
                if is_picky { picky(&dice, life) } else { life }
            };
            (0..1 + dice.below(3)).map(life).collect()
        };
        config.machines = if lives.len() <= SHARED_LIVES_MAX { machines(seed) } else { 1 };
        if config.machines > 2 {
            // In the end, one machine has what all have written.
            let more = config.machines.div_ceil(2) as u64;
            config.sizes.segments *= more;
            config.file_system = config.file_system.saturating_mul(more);
        }
        if config.is_shared() && !(seed / 12).is_multiple_of(4) {
            // Room for what is read under leases.
            (config.sizes.memory, config.sizes.memory_object) = (1 << 20, 16 * KIB);
        }
        if config.is_shared() && is_replicated(seed) {
            config.write_replicas = if config.machines > 3 { 3 } else { 2 };
            [config.modes[0], config.modes[1], config.modes[2]] =
                [WriteMode::WriteBack, WriteMode::WriteBack, WriteMode::Transient];
            let through = (seed / 24).is_multiple_of(2);
            config.when_replicas_missing =
                if through { ReplicasMissing::WriteThrough } else { ReplicasMissing::Reject };
        }
        let lives = match config.is_shared() {
            true => shared_lives(&Dice(SeededRandom::new(!seed)), &config, &keys),
            false => lives,
        };
        Self { seed, config, lives }
    }

    /// All keys that clients name.
    pub(crate) fn keys(&self) -> BTreeSet<String> {
        let steps = self.lives.iter().flat_map(|life| life.clients.iter().flatten());
        steps.flat_map(|step| step.op.keys()).cloned().collect()
    }

    /// Operations of all clients, faults and changes.
    pub fn size(&self) -> usize {
        let size =
            |life: &Life| life.clients.iter().map(Vec::len).sum::<usize>() + life.faults.len() + life.changes.len() + 1;
        self.lives.iter().map(size).sum()
    }
}

fn sizes(dice: &Dice) -> Sizes {
    Sizes {
        segment: dice.one_of(&[16 * KIB, 32 * KIB, 64 * KIB]),
        segments: dice.one_of(&[8, 10, 16, 64]),
        inline: dice.one_of(&[512, 2 * KIB, 4 * KIB]),
        extent: dice.one_of(&[2 * KIB, 4 * KIB, 8 * KIB]),
        snapshot_log: dice.one_of(&[8 * KIB, 64 * KIB, 1 << 30]),
        memory: dice.one_of(&[1, 8 * KIB, 1 << 20]),
        memory_object: dice.one_of(&[0, KIB, 16 * KIB]),
        page: dice.one_of(&[KIB, 4 * KIB, 16 * KIB]),
        pinned_ratio: dice.one_of(&[0.1, 0.3, 0.6]),
    }
}

fn config(dice: &Dice, seed: u64) -> Config {
    let mode = || match dice.below(20) {
        0..9 => WriteMode::WriteBack,
        9..14 => WriteMode::WriteThrough,
        14..17 => WriteMode::NoCache,
        17..19 => WriteMode::Transient,
        _ => WriteMode::ReadOnly,
    };
    let disks = 1 + dice.below(2) as usize;
    let sizes = sizes(dice);
    // No draw of their own: seeds on record mean what they did, but for these.
    let limit = |number| match number {
        1 => Some(300),
        3 => Some(sizes.inline),
        _ => None,
    };
    Config {
        write_back_max: limit(seed % 7),
        read_cache_max: limit(seed / 7 % 7),
        disks,
        sizes,
        file_system: u64::MAX / 2,
        persist_concurrency: dice.one_of(&[1, 2, 4]),
        settle_s: dice.one_of(&[10, 30]),
        ttl_s: dice.one_of(&[0, 1, 60]),
        list_ttl_s: [None, Some(0), Some(5), Some(3600)][(seed / 11 % 4) as usize],
        os_durability: dice.once_in(12),
        modes: [(); 4].map(|()| mode()),
        // No draw of its own: seeds on record mean what they did.
        keeps_listings: seed.is_multiple_of(2),
        pinned_full: dice.one_of(&[PinnedFull::Reject, PinnedFull::WriteThrough]),
        eviction: match dice.one_of(&[EvictionOrder::Lru, EvictionOrder::Fifo, EvictionOrder::S3Fifo]) {
            EvictionOrder::Fifo if seed.is_multiple_of(2) => EvictionOrder::Last,
            other => other,
        },
        cache_reads: !dice.once_in(6),
        engine: EngineKind::of(seed),
        lease_ms: if seed.is_multiple_of(5) { 10_000 } else { 2_000 },
        machines: 1,
        write_replicas: 1,
        when_replicas_missing: ReplicasMissing::Reject,
    }
}

/// Few keys, so that much happens to each.
fn keys(dice: &Dice) -> Vec<String> {
    let each = 1 + dice.below(3);
    let main = PREFIXES.iter().flat_map(|prefix| (0..each).map(move |n| format!("{BUCKET}/{prefix}{n}")));
    main.chain([format!("{OTHER_BUCKET}/a/0")]).collect()
}

fn life(dice: &Dice, config: &Config, keys: &[String], faulty: bool, flips: bool) -> Life {
    let count = 1 + dice.below(5) as usize;
    let hurry = dice.one_of(&[2, 30, 3000]);
    let client = |_| {
        let steps = 3 + dice.below(12);
        let step = |_| Step { pause_ms: dice.below(hurry), op: op(dice, config, keys) };
        (0..steps).map(step).collect()
    };
    let clients: Vec<Vec<Step>> = (0..count).map(client).collect();
    let length_ms = hurry * 6 + 200;
    let mut faults: Vec<(u64, Fault)> = Vec::new();
    for _ in 0..if faulty { dice.below(5) } else { 0 } {
        faults.push((dice.below(length_ms), fault(dice, config)));
    }
    if flips && dice.once_in(2) {
        let disk = dice.below(config.disks as u64) as usize;
        faults.push((dice.below(length_ms), Fault::FlipBit { disk }));
    }
    faults.sort_by_key(|(at, _)| *at);
    let after_ms = dice.below(length_ms);
    let end = match dice.below(4) {
        0 | 1 if !config.os_durability => End::PowerCut { after_ms },
        2 | 1 => End::Kill { after_ms },
        _ => End::Stop,
    };
    let changes = if flips { Vec::new() } else { changes(dice) };
    Life { machine: 0, changes, clients, faults, end }
}

/// How many machines share the keys. No draw of its own: seeds on record mean what they did.
fn machines(seed: u64) -> usize {
    if EngineKind::of(seed) == EngineKind::Embedded || !(seed / 6).is_multiple_of(2) {
        return 1;
    }
    match seed / 48 % 8 {
        4 | 5 => 3,
        6 => 4,
        7 => 5,
        _ => 2,
    }
}

/// Lives of all machines, some of which are beside each other.
fn shared_lives(dice: &Dice, config: &Config, keys: &[String]) -> Vec<Life> {
    let least = if config.write_replicas > 1 { 2 } else { 1 };
    let lives = |machine| (0..least + dice.below(4)).map(move |_| Life { machine, ..shared_life(dice, config, keys) });
    let lives: Vec<_> = (0..config.machines).flat_map(lives).collect();
    if config.write_replicas > 1 { with_a_lost_machine(dice, lives) } else { lives }
}

/// Whether each write is on several machines. No draw of its own: seeds on record mean what they did.
fn is_replicated(seed: u64) -> bool {
    (seed / 12).is_multiple_of(2)
}

/// All disks of one machine are lost between two of its lives, and then those of the same or another one, if all has
/// its copies again by then. No disk is lost besides.
fn with_a_lost_machine(dice: &Dice, mut lives: Vec<Life>) -> Vec<Life> {
    for life in &mut lives {
        life.changes.retain(|change| !loses_bytes(change));
    }
    let later = (1..lives.len()).filter(|life| lives[*life].machine == lives[*life - 1].machine);
    let later: Vec<_> = later.collect();
    if !later.is_empty() {
        let place = dice.below(later.len() as u64) as usize;
        lives[later[place]].changes.push(Change::Replace);
        // No draw of their own.
        for more in 1..later.len().min(3) {
            let place = later[(place + more) % later.len()];
            lives[place].changes.push(Change::Replace);
            // A worker that has stopped can't say any more whether the others have all that it has.
            let before = &mut lives[place - 1];
            if before.end == End::Stop {
                before.end = End::Kill { after_ms: 10_000 };
            }
        }
    }
    lives
}

fn loses_bytes(change: &Change) -> bool {
    match change {
        Change::Lose { .. } | Change::SpoilSector { .. } | Change::Remove { .. } | Change::Replace => true,
        Change::Rotate { .. }
        | Change::Add
        | Change::Miss { .. }
        | Change::Return
        | Change::OlderCopy { .. }
        | Change::Resize(_) => false,
    }
}

/// Long enough for slots to move a few times. Many requests are for keys that are at home at another machine.
fn shared_life(dice: &Dice, config: &Config, keys: &[String]) -> Life {
    let Life { machine, changes, faults, end, .. } = life(dice, config, keys, true, false);
    let hurry = dice.one_of(&[300, 1500]);
    let is_replicated = config.write_replicas > 1;
    // Where pages of listings are kept for some time. Slots move every few seconds, and pages are dropped then.
    let lists_often = config.list_ttl_s.is_some_and(|ttl| ttl > 0) && dice.once_in(2);
    let client = |_| {
        let step = |_| {
            let op = if is_replicated && !dice.once_in(3) { write(dice, config, keys) } else { op(dice, config, keys) };
            // Now and then all machines change what they share.
            let other = if is_replicated { WriteMode::Transient } else { WriteMode::WriteThrough };
            let mode = dice.one_of(&[WriteMode::WriteBack, other, WriteMode::NoCache]);
            let policy = Op::Policy { prefix: dice.below(4) as usize, mode };
            let op = if dice.once_in(20) { policy } else { op };
            let op = if lists_often && dice.once_in(3) { list(dice) } else { op };
            // And all create, fill and delete a bucket.
            let key = || format!("{OTHER_BUCKET}/a/0");
            let op = match dice.below(30) {
                0 => Op::CreateBucket,
                1 => Op::DeleteBucket,
                2 => Op::Delete { key: key(), when: When::Always },
                3 => {
                    let (breaks, piece) = (false, 1000);
                    Op::Put {
                        key: key(),
                        body: body(dice, config),
                        tags: tags(dice),
                        when: When::Always,
                        breaks,
                        piece,
                    }
                }
                _ => op,
            };
            Step { pause_ms: dice.below(hurry), op }
        };
        (0..20 + dice.below(30)).map(step).collect()
    };
    // Many machines together have as many clients as few.
    let clients_min = if config.machines > 2 { 1 } else { 2 };
    let clients = (0..clients_min + dice.below(2)).map(client).collect();
    let after_ms = if is_replicated { hurry * (10 + dice.below(30)) } else { dice.below(hurry * 30) };
    let end = match end {
        End::PowerCut { .. } => End::PowerCut { after_ms },
        End::Kill { .. } => End::Kill { after_ms },
        End::Stop => End::Stop,
    };
    // Every machine of a cluster can hold the largest object.
    let changes = changes.into_iter().filter(|change| !matches!(change, Change::Resize(_))).collect();
    Life { machine, changes, clients, faults, end }
}

fn list(dice: &Dice) -> Op {
    let prefix = dice.one_of(&["", "a/", "b", "c/0"]).to_owned();
    Op::List { prefix, delimiter: dice.once_in(3), limit: dice.one_of(&[1, 3, 1000]) }
}

/// One of the operations that leave bytes here.
fn write(dice: &Dice, config: &Config, keys: &[String]) -> Op {
    loop {
        let op = op(dice, config, keys);
        if matches!(op, Op::Put { .. } | Op::Multipart { .. } | Op::SetTags { .. } | Op::Copy { .. }) {
            return op;
        }
    }
}

/// A store that is soon full: it is small, or its file system is, whatever the settings say.
fn full_config(dice: &Dice, config: &mut Config, seed: u64) {
    config.sizes.segment = 16 * KIB;
    config.sizes.segments = dice.one_of(&[8, 10]);
    // No draw of its own: seeds on record mean what they did.
    if seed.is_multiple_of(8) {
        config.file_system = config.sizes.bytes();
        config.sizes.segment = 64 * KIB;
    }
}

/// A client that writes more than there is room for in a first life, and some more in later ones, and now and then
/// reads what it wrote.
fn fill(dice: &Dice, config: &Config, life: u64) -> Vec<Step> {
    let segment = config.sizes.segment.min(16 * KIB);
    let capacity = config.disks as u64 * config.sizes.bytes().min(config.file_system);
    let mut left = if life == 0 { capacity * 3 / 2 } else { capacity / 2 };
    let (mut steps, mut number) = (Vec::new(), 0);
    while left > 0 {
        let size = segment / 4 + dice.below(segment / 2);
        left = left.saturating_sub(size);
        let key = format!("{BUCKET}/{FILL_PREFIX}{number}");
        number += 1;
        let body = Body { seed: dice.below(1 << 30) as u32, size: size as u32 };
        let put = Op::Put { key, body, tags: 0, when: When::Always, breaks: false, piece: 1 << 20 };
        steps.push(Step { pause_ms: 0, op: put });
        if dice.once_in(4) {
            let key = format!("{BUCKET}/{FILL_PREFIX}{}", dice.below(number));
            steps.push(Step { pause_ms: 0, op: Op::Get { key, range: None, slow_ms: 0 } });
        }
    }
    steps
}

/// The same with an under store that refuses some keys, and time for it to do so often enough.
fn picky(dice: &Dice, mut life: Life) -> Life {
    life.faults.push((0, Fault::Weather(Weather::Picky)));
    // In which requests get no answers, and may land later.
    life.faults.push((8_000 + dice.below(12_000), Fault::Weather(Weather::Stormy)));
    life.faults.sort_by_key(|(at, _)| *at);
    for steps in &mut life.clients {
        for step in steps.iter_mut() {
            step.pause_ms += dice.below(3000);
            if dice.once_in(5) {
                step.op = Op::GiveUp { keep: dice.once_in(3) };
            } else if dice.once_in(8) {
                // What comes next goes past what is refused.
                step.op = Op::Policy { prefix: dice.below(4) as usize, mode: WriteMode::WriteThrough };
            }
        }
    }
    if let End::PowerCut { after_ms } | End::Kill { after_ms } = &mut life.end {
        *after_ms += dice.below(30_000);
    }
    life
}

/// One client with a few requests, most of which are answered before the process ends. Otherwise a hundred crashes
/// would leave more unanswered requests than the checker can decide.
fn short_life(dice: &Dice, config: &Config, keys: &[String], changing: bool) -> Life {
    let steps = (0..1 + dice.below(3)).map(|_| Step { pause_ms: dice.below(5), op: op(dice, config, keys) });
    let clients = vec![steps.collect()];
    let after_ms = if dice.once_in(20) { dice.below(50) } else { 60_000 };
    let end = match dice.below(3) {
        0 if !config.os_durability => End::PowerCut { after_ms },
        0 | 1 => End::Kill { after_ms },
        _ => End::Stop,
    };
    let changes = if changing { changes(dice) } else { Vec::new() };
    let disk = dice.below(config.disks as u64) as usize;
    let full = Fault::Full { disk, room: Some(dice.below(8 * KIB)) };
    let faults = if dice.once_in(8) { vec![(dice.below(20), full)] } else { Vec::new() };
    Life { machine: 0, changes, clients, faults, end }
}

/// Writes whose requests get no answers, and an end some seconds later.
fn restless_life(dice: &Dice, config: &Config, keys: &[String]) -> Life {
    let key = || keys[dice.below(keys.len() as u64 / 2 + 1) as usize].clone();
    let change = || match dice.below(4) {
        0 => Op::Delete { key: key(), when: When::Always },
        1 => op(dice, config, keys),
        _ => {
            Op::Put { key: key(), body: body(dice, config), tags: 0, when: When::Always, breaks: false, piece: 1 << 20 }
        }
    };
    let steps = (0..dice.below(6)).map(|_| Step { pause_ms: dice.below(4000), op: change() });
    let clients = vec![steps.collect()];
    let after_ms = dice.below(config.settle_s * 1000);
    let end = match dice.below(8) {
        0 => End::Stop,
        1..3 if !config.os_durability => End::PowerCut { after_ms },
        _ => End::Kill { after_ms },
    };
    let weather = dice.one_of(&[Weather::Fair, Weather::Stormy, Weather::Silent, Weather::Silent]);
    let faults = vec![(0, Fault::Weather(Weather::Stormy)), (dice.below(after_ms + 1), Fault::Weather(weather))];
    Life { machine: 0, changes: Vec::new(), clients, faults, end }
}

/// A small store, and a prefix where what is written stays until it is deleted.
fn churn_config(dice: &Dice, config: &mut Config) {
    config.sizes = Sizes { segment: 16 * KIB, segments: dice.one_of(&[8, 10]), pinned_ratio: 0.6, ..sizes(dice) };
    config.modes[CHURN_PREFIX] = WriteMode::Transient;
}

/// Clients that write keys of their own and delete them again, many times, beside one that writes what stays and then
/// does all the rest.
fn churn_life(dice: &Dice, config: &Config, keys: &[String]) -> Life {
    let name = |client: u64, number: u64| format!("{BUCKET}/{}{client}-{number}", PREFIXES[CHURN_PREFIX]);
    let put = |key: String, size_max: u64| {
        let body = Body { seed: dice.below(1 << 30) as u32, size: 1 + dice.below(size_max) as u32 };
        Op::Put { key, body, tags: 0, when: When::Always, breaks: false, piece: 1 << 20 }
    };
    let churn = |client: u64| {
        let names = dice.one_of(&[1, 50, 1000]);
        let pair = |number| {
            let key = name(client, number % names);
            let size_max = if dice.once_in(20) { 3 * config.sizes.inline } else { 300 };
            let delete = Op::Delete { key: key.clone(), when: When::Always };
            [put(key, size_max), delete].map(|op| Step { pause_ms: 0, op })
        };
        (0..100 + dice.below(700)).flat_map(pair).collect()
    };
    let stays = (0..dice.below(60)).map(|number| Step { pause_ms: 0, op: put(name(0, number), 1000) });
    let beside = (0..dice.below(20)).map(|_| Step { pause_ms: dice.below(50), op: op(dice, config, keys) });
    let first = stays.chain(beside).collect();
    let read = |_| {
        let key = name(1 + dice.below(3), dice.below(50));
        Step { pause_ms: dice.below(50), op: Op::Get { key, range: None, slow_ms: 1 + dice.below(10_000) } }
    };
    let slow_readers = (0..dice.below(20)).map(|_| (0..dice.below(10)).map(read).collect());
    let slow_readers: Vec<_> = slow_readers.collect();
    let clients = std::iter::once(first).chain(slow_readers).chain((1..2 + dice.below(3)).map(churn)).collect();
    let after_ms = dice.below(20_000);
    let end = match dice.below(6) {
        0 if !config.os_durability => End::PowerCut { after_ms },
        0 | 1 => End::Kill { after_ms },
        _ => End::Stop,
    };
    Life { machine: 0, changes: changes(dice), clients, faults: Vec::new(), end }
}

/// In most lives nothing changes.
fn changes(dice: &Dice) -> Vec<Change> {
    let count = dice.below(6).saturating_sub(3);
    let change = |_| match dice.below(17) {
        0 => Change::Rotate { by: dice.below(3) as usize },
        1 => Change::Add,
        2..4 => Change::Miss { disk: dice.below(3) as usize },
        4..7 => Change::Lose { disk: dice.below(3) as usize, is_replaced: dice.once_in(2) },
        7..9 => Change::Remove { disk: dice.below(3) as usize, file: dice.below(8) as usize },
        9..11 => {
            let [disk, file, sector] = [3, 8, 128].map(|most| dice.below(most) as usize);
            Change::SpoilSector { disk, file, sector }
        }
        11..13 => Change::Resize(sizes(dice)),
        13..16 => Change::OlderCopy { disk: dice.below(3) as usize },
        _ => Change::Return,
    };
    (0..count).map(change).collect()
}

fn fault(dice: &Dice, config: &Config) -> Fault {
    let disk = dice.below(config.disks as u64) as usize;
    match dice.below(18) {
        17 => Fault::Weather(Weather::Picky),
        0..5 => Fault::Weather(Weather::Stormy),
        5 => Fault::Weather(Weather::Gone),
        6 => Fault::Weather(Weather::Silent),
        7..9 => Fault::Weather(Weather::Fair),
        9 => Fault::SlowDisk { disk, slow: true },
        10 => Fault::SlowDisk { disk, slow: false },
        11 => Fault::FailSyncs { disk },
        12 => Fault::FailWrites { disk },
        13 => Fault::FailReads { disk, count: 1 + dice.below(3) as u32 },
        14 => Fault::Full { disk, room: Some(dice.below(32 * KIB)) },
        15 => Fault::FailCreates { disk, count: 1 + dice.below(dice.one_of(&[3, 30])) as u32 },
        _ => Fault::Full { disk, room: None },
    }
}

fn body(dice: &Dice, config: &Config) -> Body {
    let size = match dice.below(10) {
        0 => 0,
        1..5 => 1 + dice.below(600),
        5..8 => 1 + dice.below(2 * config.sizes.inline),
        8 => 1 + dice.below(4 * config.sizes.extent),
        _ => 1 + dice.below(2 * config.sizes.segment),
    };
    // Few seeds and sizes that come again: the same bytes have the same tag.
    let seed = if dice.once_in(3) { dice.below(2) } else { dice.below(1 << 30) };
    let size = if seed < 2 { 100 + seed } else { size };
    Body { seed: seed as u32, size: size as u32 }
}

fn when(dice: &Dice) -> When {
    match dice.below(8) {
        0 => When::IfAbsent,
        1 => When::IfSeen,
        _ => When::Always,
    }
}

/// One in three has none.
fn tags(dice: &Dice) -> TagsId {
    dice.below(6).saturating_sub(1) as TagsId
}

/// Most clients take what comes at once.
fn slow(dice: &Dice) -> u64 {
    if dice.once_in(5) { 1 + dice.below(10_000) } else { 0 }
}

fn op(dice: &Dice, config: &Config, keys: &[String]) -> Op {
    let key = dice.one_of(keys);
    match dice.below(100) {
        0..32 => {
            let (breaks, piece) = (dice.once_in(20), dice.one_of(&[100, 1000, 1 << 20]));
            Op::Put { key, body: body(dice, config), tags: tags(dice), when: when(dice), breaks, piece }
        }
        32..45 => Op::Get { key, range: None, slow_ms: slow(dice) },
        45..50 => {
            let range = Some((dice.below(8000) as u32, 1 + dice.below(8000) as u32));
            Op::Get { key, range, slow_ms: slow(dice) }
        }
        50..53 => Op::Head { key },
        53..57 => Op::Tags { key },
        57..61 => Op::SetTags { key, tags: tags(dice) },
        61..70 => Op::Delete { key, when: when(dice) },
        70 => Op::DeleteMany { keys: keys.iter().filter(|_| dice.once_in(2)).cloned().collect() },
        71..77 => list(dice),
        77..82 => Op::Copy { from: key, to: dice.one_of(keys) },
        82..88 => {
            let parts = (0..1 + dice.below(3)).map(|_| body(dice, config)).collect();
            Op::Multipart { key, parts, tags: tags(dice), abort: dice.once_in(5), twice: dice.once_in(3) }
        }
        88..90 => Op::Persist { prefix: dice.one_of(&["/".to_owned(), format!("/{BUCKET}/a/")]) },
        90..94 => Op::Job {
            kind: dice.one_of(&[JobKind::Load, JobKind::Free, JobKind::Persist, JobKind::Verify, JobKind::Scrub]),
        },
        94 => Op::Sweep,
        95 => {
            let mode =
                dice.one_of(&[WriteMode::WriteBack, WriteMode::WriteThrough, WriteMode::NoCache, WriteMode::Transient]);
            Op::Policy { prefix: dice.below(4) as usize, mode }
        }
        96 | 97 => Op::CreateBucket,
        98 => Op::DeleteBucket,
        _ => Op::JumpWall { by_ms: dice.below(7_200_000) as i64 - 3_600_000 },
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}\n{:?}", self.seed, self.config)?;
        for (number, life) in self.lives.iter().enumerate() {
            writeln!(f, "life {number}, which ends with {:?}", life.end)?;
            for change in &life.changes {
                writeln!(f, "  before it: {change:?}")?;
            }
            for (at, fault) in &life.faults {
                writeln!(f, "  fault at {at} ms: {fault:?}")?;
            }
            for (number, steps) in life.clients.iter().enumerate() {
                writeln!(f, "  client {number}")?;
                for step in steps {
                    writeln!(f, "    after {} ms: {:?}", step.pause_ms, step.op)?;
                }
            }
        }
        Ok(())
    }
}
