//! What must hold in the end, when nothing fails any more.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_cache::{Attributes, Cache, Conditions, ErrorKind, GetObject, ListUploads, PutObject, Settings, UploadRef};
use forebay_env::Clock;
use forebay_store::Store;
use forebay_types::{BucketName, Generation, ObjectPath, PolicyRule, StorageState, WriteMode};
use forebay_ufs::memory::Applied;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, collect, path};
use crate::content::Body;
use crate::linear::{self, Verdict};
use crate::machine::Machine;
use crate::moves::Moves;
use crate::plan::{BUCKET, EngineKind, OTHER_BUCKET, Op, PREFIXES, Step, When, bucket};
use crate::under_store::Weather;

/// In which all that waits must have gone to the under store.
const DRAIN_MAX: Duration = Duration::from_secs(2 * 3600);

/// In which bytes that other machines have must have come.
const LOST_MAX: Duration = Duration::from_secs(300);

/// In which a machine hears whether a copy is needed, when it asks.
const ASK_MAX: Duration = Duration::from_secs(5);

/// In which jobs end when nothing fails.
const JOBS_MAX: Duration = Duration::from_secs(3600);

/// In which reclaim comes to rest when nobody writes.
pub(crate) const REST_MAX: Duration = Duration::from_secs(120);

/// Segments that the store wants a file system to have room for.
const SEGMENTS_MIN: u64 = 8;

/// Versions of the path policies that are kept.
const HISTORY_VERSIONS: usize = 100;

/// Sixteen that may stay, the open one of each kind, the newest, and one that has just been ended.
const SMALL_MAX: usize = 16 + 5;

/// A last life without faults, and then the checks of all that was seen. Returns how many keys could not be decided on.
/// `moved` tells the other machines, which leave, that nothing is needed of them any more.
pub(crate) async fn last(machine: &Machine, moved: CancellationToken) -> u32 {
    let world = &machine.world;
    world.note(format_args!("nothing fails any more"));
    world.calm.store(true, Ordering::Relaxed);
    *machine.root.weather.lock() = Weather::Fair;
    let work = async {
        match machine.open().await {
            Ok((cache, store)) => {
                if machine.config.is_shared() {
                    take_over(machine, &cache).await;
                    change_rules(machine, &cache).await;
                }
                check_all(machine, cache, &store, &moved).await;
            }
            Err(_) if world.is_flipped() => {}
            Err(error) => world.broken(format!("the worker does not start: {error}")),
        }
    };
    let ended = machine.process(2 * DRAIN_MAX, work).await;
    moved.cancel();
    if !ended {
        world.broken("the last life does not end".to_owned());
    }
    world.history.lock().crash(machine.number);
    // A flipped bit at the end of a log looks like a write that the power has cut off: the one before it is the newest
    // then.
    if world.is_flipped() {
        return 0;
    }
    check_order(machine);
    check_histories(machine)
}

/// A machine leaves for good when the last one has its slots, and the bytes that only its disks held.
pub(crate) async fn hand_over(machine: &Machine, moved: CancellationToken) {
    let world = &machine.world;
    let work = async {
        match machine.open().await {
            Ok((cache, _)) => {
                let began = world.clock.now();
                let moves = Moves::new(machine, &cache, CancellationToken::new());
                futures::future::join(moves.give_up_all(), moved.cancelled()).await;
                check_rules_of_all(machine, &cache, &moves).await;
                check_copies_are_dropped(machine, &cache, world.clock.now() - began).await;
                if let Err(error) = cache.close().await {
                    world.broken(format!("the worker that leaves does not close: {error}"));
                }
            }
            Err(_) if world.is_flipped() => {}
            Err(error) => world.broken(format!("the worker does not start: {error}")),
        }
    };
    if !machine.process(2 * DRAIN_MAX, work).await {
        world.broken("the worker that leaves does not come to its end".to_owned());
    }
    world.history.lock().crash(machine.number);
}

/// A machine that leaves keeps what others may need at most as long again as that was needed, which is `needed`.
async fn check_copies_are_dropped(machine: &Machine, cache: &Cache, needed: Duration) {
    let world = &machine.world;
    let until = world.clock.now() + needed + ASK_MAX;
    while cache.status().pinned_bytes > 0 {
        if world.is_flipped() || world.has_transient.load(Ordering::Relaxed) {
            return;
        }
        if world.clock.now() > until {
            let bytes = cache.status().pinned_bytes;
            return world.broken(format!("{bytes} bytes that nobody needs are pinned at the machine that leaves"));
        }
        world.clock.sleep(Duration::from_secs(1)).await;
    }
}

/// Takes all slots of the machines that leave, and waits for the bytes that only their disks hold.
async fn take_over(machine: &Machine, cache: &Cache) {
    Moves::new(machine, cache, CancellationToken::new()).take_all().await;
    // What was lost with a directory is waited for while the worker that had it has another name: it might come back.
    let is_lost = machine.world.lost.load(Ordering::Relaxed);
    let until = machine.world.clock.now() + if is_lost { LOST_MAX } else { DRAIN_MAX };
    while cache.status().copies_wanted > 0 {
        if machine.world.clock.now() > until {
            if is_lost {
                return;
            }
            let mut problems = Vec::new();
            for key in &machine.world.keys {
                let request = || GetObject::whole(path(key));
                problems.extend(cache.head(request()).await.err().filter(|error| error.kind == ErrorKind::Unavailable));
            }
            return machine.world.broken(format!("bytes do not come from the other machines: {problems:?}"));
        }
        machine.world.clock.sleep(Duration::from_secs(1)).await;
    }
}

/// A last change of the rules, for paths that nobody uses.
async fn change_rules(machine: &Machine, cache: &Cache) {
    let world = &machine.world;
    let mut rules = cache.policies().0.rules().to_vec();
    rules.push(PolicyRule {
        write_mode: Some(WriteMode::WriteThrough),
        ..PolicyRule::for_path(&format!("/{BUCKET}/no-keys/"))
    });
    match cache.set_policies(rules, None, "operator", "last").await {
        Ok(version) => {
            let rules = cache.policies().0.rules().to_vec();
            if let Err(problem) = world.rules.lock().acknowledged(version, rules) {
                world.broken(problem);
            }
        }
        Err(error) => world.broken(format!("the path policies can't be changed: {error}")),
    }
}

/// Another machine has made the last change of the rules.
async fn check_rules_of_all(machine: &Machine, cache: &Cache, moves: &Moves) {
    let world = &machine.world;
    if machine.catalog.lock().is_none() {
        return;
    }
    let Some((version, rules)) = world.rules.lock().last() else { return };
    if let Err(error) = moves.follow().await {
        return world.broken(format!("what another machine has changed is not taken over: {error}"));
    }
    let (present, here) = cache.policies();
    if here != version || present.rules() != rules {
        world.broken(format!("the machine that leaves has version {here} of the path policies, not {version}"));
    }
}

/// Each acknowledged change of the rules is in the history, and the last one is in force.
async fn check_rules(machine: &Machine, cache: &Cache) {
    let world = &machine.world;
    let history = match cache.policy_history().await {
        Ok(history) => history,
        Err(error) => return world.broken(format!("the history of the path policies can't be read: {error}")),
    };
    let (present, here) = cache.policies();
    if history.first().map(|version| version.version) != Some(here) {
        world.broken(format!(
            "version {here} of the path policies is in force, and the last one is {:?}",
            history.first()
        ));
    }
    let acknowledged: Vec<_> = world.rules.lock().all().map(|(version, rules)| (*version, rules.clone())).collect();
    for (version, rules) in acknowledged {
        let is_kept = history.iter().any(|kept| kept.version == version);
        let found = match cache.policies_at(version).await {
            Ok(found) => Some(found),
            Err(error) if error.kind == ErrorKind::NotFound && !is_kept && history.len() == HISTORY_VERSIONS => {
                continue;
            }
            Err(_) => None,
        };
        if found.as_ref() != Some(&rules) || (version == here && present.rules() != rules) {
            world.broken(format!("version {version} of the path policies was acknowledged and is lost: {found:?}"));
        }
    }
}

async fn check_all(machine: &Machine, cache: Cache, store: &Store, moved: &CancellationToken) {
    let world = &machine.world;
    if machine.config.engine != EngineKind::Embedded {
        check_rules(machine, &cache).await;
    }
    let keys: Vec<String> = world.keys.iter().cloned().collect();
    let read = |key: &String| [Op::Get { key: key.clone(), range: None, slow_ms: 0 }, Op::Tags { key: key.clone() }];
    let gets = || keys.iter().flat_map(read).map(|op| Step { pause_ms: 0, op });
    let list = Step { pause_ms: 0, op: Op::List { prefix: String::new(), delimiter: false, limit: 1000 } };
    let read_all = || Client::new(&machine.root, cache.clone(), 99).run(gets().chain([list.clone()]).collect());
    // A write whose client got no answer may still land. After this pause it can't, which the worker notes.
    world.clock.sleep(world.settle + Duration::from_secs(1)).await;
    give_up_missing(machine, &cache, &keys).await;
    read_all().await;
    abort_uploads(machine, &cache).await;
    let drained = drain(machine, &cache).await;
    if world.is_flipped() {
        return;
    }
    if !drained {
        world.broken(format!("what waits for the under store does not get there: {:?}", cache.status()));
    }
    read_all().await;
    check_jobs(machine, &cache).await;
    check_under_store(machine, &cache, &keys).await;
    moved.cancel();
    check_rest(machine, store).await;
    check_takes_writes(machine, &cache).await;
    if cache.has_failed() {
        world.broken("background work has ended by itself".to_owned());
    }
    if let Err(error) = cache.close().await {
        world.broken(format!("the worker does not close: {error}"));
    }
}

/// All jobs come to an end, whichever workers had begun them.
async fn check_jobs(machine: &Machine, cache: &Cache) {
    let world = &machine.world;
    let until = world.clock.now() + JOBS_MAX;
    loop {
        let problem = match cache.jobs().await {
            Ok(jobs) => jobs.into_iter().find(|job| job.ended_ms.is_none()).map(|job| format!("{job:?}")),
            Err(error) => Some(error.to_string()),
        };
        let Some(problem) = problem else { return };
        if world.clock.now() > until {
            return world.broken(format!("a job does not end: {problem}"));
        }
        world.clock.sleep(Duration::from_secs(1)).await;
    }
}

/// Deletes what was lost with a directory, as its users would.
async fn give_up_missing(machine: &Machine, cache: &Cache, keys: &[String]) {
    if !machine.world.lost.load(Ordering::Relaxed) {
        return;
    }
    if machine.world.reverted.load(Ordering::Relaxed) {
        // What was in a bucket that is gone may be back without it, and can't go anywhere.
        let create = Step { pause_ms: 0, op: Op::CreateBucket };
        Client::new(&machine.root, cache.clone(), 98).run(vec![create]).await;
    }
    for key in keys {
        let request = GetObject::whole(path(key));
        let read = match cache.get(request).await {
            Ok(body) => collect(body.stream).await.1,
            Err(error) => Err(error),
        };
        if read.is_err_and(|error| matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Corrupt)) {
            // What allowed to write it may be lost, too.
            let prefix = PREFIXES.iter().position(|prefix| key.starts_with(&format!("{BUCKET}/{prefix}")));
            let policy = prefix.map(|prefix| Op::Policy { prefix, mode: WriteMode::WriteBack });
            let policy = policy.filter(|_| machine.world.reverted.load(Ordering::Relaxed));
            let delete = Op::Delete { key: key.clone(), when: When::Always };
            let steps = policy.into_iter().chain([delete]).map(|op| Step { pause_ms: 0, op }).collect();
            Client::new(&machine.root, cache.clone(), 98).run(steps).await;
        }
    }
}

async fn drain(machine: &Machine, cache: &Cache) -> bool {
    let world = &machine.world;
    let until = world.clock.now() + DRAIN_MAX;
    while world.clock.now() < until {
        let status = cache.status();
        if status.dirty_objects == 0 && status.tombstones == 0 {
            return true;
        }
        world.clock.sleep(Duration::from_secs(1)).await;
    }
    false
}

async fn abort_uploads(machine: &Machine, cache: &Cache) {
    let mut is_one_gone = false;
    for name in [BUCKET, OTHER_BUCKET].map(bucket) {
        let request = ListUploads { limit: 1000, ..ListUploads::default() };
        let Ok(page) = cache.list_uploads(&name, &request).await else {
            is_one_gone = true;
            continue;
        };
        for upload in page.uploads {
            let path = ObjectPath::parse(name.as_str(), &upload.key).expect("keys that are listed are valid");
            if let Err(error) = cache.abort_upload(&UploadRef { path, upload_id: upload.upload_id }).await {
                machine.world.broken(format!("an upload can't be aborted: {error}"));
            }
        }
    }
    // A process that ends just after it has deleted a bucket leaves the bucket's uploads until they are swept.
    if is_one_gone {
        let Settings { leftover_timeout, leftover_interval, .. } = Settings::default();
        machine.world.clock.sleep(leftover_timeout.0 + 2 * leftover_interval.0).await;
    }
}

/// The under store has what clients read, nothing is pinned but what never goes there, and nobody was taken for
/// somebody else.
async fn check_under_store(machine: &Machine, cache: &Cache, keys: &[String]) {
    let world = &machine.world;
    for key in keys {
        let request = GetObject::whole(path(key));
        let wanted = match cache.head(request).await {
            Ok(head) if head.state == StorageState::Transient => {
                world.has_transient.store(true, Ordering::Relaxed);
                continue;
            }
            Ok(head) => Some(head.info.etag.clone()),
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NoSuchBucket) => None,
            Err(error) => {
                world.broken(format!("{key} can't be read although nothing fails: {error}"));
                continue;
            }
        };
        let ObjectPath { bucket, key: name } = path(key);
        let held = machine.root.memory(&bucket).and_then(|store| store.contents().get(name.as_str()).cloned());
        let contents = world.contents.lock();
        let wanted = wanted.map(|etag| contents.of_etag(&etag).map(|content| contents.bytes(content)));
        drop(contents);
        if held.clone().map(Some) != wanted {
            let held = held.map(|bytes| bytes.len());
            world.broken(format!("the under store has another {key} than clients read: {held:?} bytes"));
        }
    }
    let status = cache.status();
    if status.conflicts > 0 {
        world.broken(format!("{} conflicts, and nobody else writes", status.conflicts));
    }
    if status.pinned_bytes > 0 && !world.has_transient.load(Ordering::Relaxed) {
        world.broken(format!("{} bytes are pinned, and nothing waits", status.pinned_bytes));
    }
}

/// When nobody writes, the store comes to rest.
async fn check_rest(machine: &Machine, store: &Store) {
    let world = &machine.world;
    let written = || {
        let counters = store.counters();
        (counters.appended_bytes, counters.reclaimed_segments, counters.snapshots)
    };
    world.clock.sleep(REST_MAX).await;
    let mut before = written();
    world.clock.sleep(REST_MAX).await;
    // A snapshot that is due after ten minutes may come in between, once.
    if written() != before {
        before = written();
        world.clock.sleep(REST_MAX).await;
    }
    if written() != before {
        world.broken(format!("the store does not come to rest: {before:?}, and then {:?}", written()));
    }
    check_space(machine, store);
}

/// Slow readers keep an eighth of what others could write to. Beside it are the segment that is being deleted and those
/// that are read in this moment, which may have been written with larger settings.
pub(crate) fn check_held(machine: &Machine) {
    let sizes = machine.sizes.lock().clone();
    let held_max = sizes.bytes() / 2;
    for disk in machine.disks.lock().iter() {
        let named: u64 = disk.inner.lengths().iter().map(|(_, length)| length).sum();
        let held = disk.inner.used_bytes().saturating_sub(named);
        if held > held_max {
            let (number, world) = (disk.number, &machine.world);
            world.broken(format!("files without a name take {held} bytes of disk {number}, and may take {held_max}"));
        }
    }
}

/// A store that nobody writes to takes no more room than it may, and has few small files.
pub(crate) fn check_space(machine: &Machine, store: &Store) {
    let world = &machine.world;
    if world.spoiled.load(Ordering::Relaxed) {
        return;
    }
    let sizes = machine.sizes.lock().clone();
    let capacity = sizes.bytes();
    let segment = sizes.segment.min(machine.config.file_system / SEGMENTS_MIN);
    let disks = machine.disks.lock();
    let usage = store.usage();
    // The index takes its room three times: in the logs, in the last snapshot, and in what is left for the next.
    let is_index_small = usage.capacity_bytes >= capacity / 2 * disks.len() as u64;
    let can_shrink = is_index_small && usage.pinned_bytes < capacity / 2;
    for disk in disks.iter() {
        let (lengths, bytes) = (disk.inner.lengths(), disk.inner.used_bytes());
        if bytes > capacity && can_shrink {
            world.broken(format!("the files of disk {} take {bytes} bytes of {capacity}: {lengths:?}", disk.number));
        }
        let is_small = |(name, length): &&(String, u64)| name.starts_with('0') && *length <= segment / 8;
        let small = lengths.iter().filter(is_small).count();
        if small > SMALL_MAX {
            world.broken(format!("disk {} has {small} small segments: {lengths:?}", disk.number));
        }
    }
}

/// A write is not refused for lack of room while there is data that may leave.
async fn check_takes_writes(machine: &Machine, cache: &Cache) {
    // Where writes need more machines, those have left.
    if machine.config.write_replicas > 1 {
        return;
    }
    let bytes = Body { seed: 1 << 29, size: 300 }.bytes();
    for prefix in PREFIXES {
        let path = path(&format!("{BUCKET}/{prefix}last"));
        let body = crate::client::incoming(&machine.world, &bytes, 1 << 20, false);
        let put = PutObject { path, body, attributes: Attributes::default(), conditions: Conditions::default() };
        let Err(error) = cache.put(put).await else { continue };
        let status = cache.status();
        let (sizes, disks) = (machine.sizes.lock().clone(), machine.disks.lock().len() as u64);
        let possible = sizes.bytes().min(machine.config.file_system) * disks;
        let limit = status.capacity_bytes.min(possible) as f64 * sizes.pinned_ratio;
        // What jobs have found can fill the smallest stores: in the logs, in the index, and in the room for the next
        // one.
        let index_bytes = (sizes.bytes() * disks).saturating_sub(status.capacity_bytes);
        let is_index_small = index_bytes <= possible / 4;
        // Each bucket has a fair share of the limit.
        let has_room = is_index_small && status.pinned_bytes < limit as u64 / 3;
        if has_room && matches!(error.kind, ErrorKind::InsufficientStorage | ErrorKind::SlowDown) {
            machine.world.broken(format!("a small write is refused although nothing waits: {error}, {status:?}"));
        }
    }
}

/// What the under store carried out of each key: never an older write after a newer. Of a delete that a lost directory
/// knew nobody may know.
fn check_order(machine: &Machine) {
    for name in [BUCKET, OTHER_BUCKET].map(bucket) {
        let Some(store) = machine.root.memory(&name) else { continue };
        let mut newest: BTreeMap<String, Generation> = BTreeMap::new();
        let reverted = machine.world.reverted.load(Ordering::Relaxed);
        for applied in store.applied() {
            match applied {
                Applied::Put { key, generation } => check_newer(machine, &name, &mut newest, key, generation),
                Applied::Delete { key } if reverted => drop(newest.remove(&key)),
                Applied::Delete { .. } => {}
            }
        }
    }
}

fn check_newer(
    machine: &Machine,
    bucket: &BucketName,
    newest: &mut BTreeMap<String, Generation>,
    key: String,
    generation: Generation,
) {
    if let Some(before) = newest.get(&key).filter(|before| **before > generation) {
        machine.world.broken(format!("the under store got {generation} of {bucket}/{key} after {before}"));
    }
    newest.insert(key, generation);
}

fn check_histories(machine: &Machine) -> u32 {
    let world = &machine.world;
    if world.reverted.load(Ordering::Relaxed) {
        return 0;
    }
    let history = world.history.lock();
    let mut undecided = 0;
    for (key, entries) in history.keys() {
        match linear::check(entries) {
            Verdict::Linearizable => {}
            Verdict::TooHard => undecided += 1,
            Verdict::Broken => {
                let mut sorted: Vec<_> = entries.iter().collect();
                sorted.sort_by_key(|entry| entry.begun);
                let line = |entry: &&crate::history::Entry| {
                    let ended = entry.ended.map_or("never answered".to_owned(), |ended| ended.to_string());
                    format!("\n    {}..{ended}: {} ({:?})", entry.begun, entry.name, entry.effect)
                };
                let lines: String = sorted.iter().map(line).collect();
                world.broken(format!("what clients saw of {key} fits no order of their requests:{lines}"));
            }
        }
    }
    undecided
}
