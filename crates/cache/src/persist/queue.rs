//! What waits to be brought to the under store: the key that has been dirty longest goes first, one request per key at
//! a time, with a pause after each failure, and with one circuit breaker per bucket. Directories, buckets and under
//! stores share the uploads fairly.

mod directories;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::BuildHasher;
use std::time::Duration;

use forebay_catalog::records::ObjectRecord;
use forebay_env::sync::Mutex;
use forebay_env::{Env, HashState, Requester, Shares as _};
use forebay_types::{BucketName, Generation, ObjectPath};
use tokio::sync::Notify;

use self::directories::{Directories, GROUPS_MAX, GroupId, Ready, directory_of};
use crate::fair_share::{Tenant, TenantShares};
use crate::scope::Scope;

/// Failures in a row, without a success between them, that open a bucket's circuit.
const CIRCUIT_FAILURES: u32 = 8;

/// An object that fails so often in a row, each time after the under store had taken others of its bucket, is at fault
/// itself. It waits for its own pauses from then on: every success would try it again otherwise, and many such objects
/// would open the circuit for all.
const FAILURES_ALONE: u32 = 3;

/// Longest pause between two probes of an under store that is out of reach. Short against the longest pause of one
/// object: a probe costs one request, and its success lets everything go on at once.
const CIRCUIT_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Uploads of objects above [`LARGE_BYTES`] of one bucket at once: their bytes keep the way busy, whereas small ones
/// mostly wait for answers.
pub(crate) const LARGE_UPLOADS_MAX: usize = 16;

/// The most that an upload has in memory at a time. An object up to this size is small.
pub(crate) const LARGE_BYTES: u64 = 1 << 20;

/// What a small upload counts, beside one for each of these bytes: of a megabyte half as many go at once as of those
/// that are empty.
const SMALL_UPLOAD: u64 = 8;
const COUNTED_BYTES: u64 = 128 << 10;

/// How long an object has been waiting, and how large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) dirty_since: Generation,
    pub(crate) dirty_since_ms: u64,
    pub(crate) size: u64,
}

impl Entry {
    pub(crate) fn of(record: &ObjectRecord) -> Self {
        Self { dirty_since: record.dirty_since, dirty_since_ms: record.dirty_since_ms, size: record.size }
    }

    fn lane(&self) -> Lane {
        if self.size > LARGE_BYTES { Lane::Large } else { Lane::Small }
    }
}

/// Small and large uploads have places of their own, so that neither waits for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Small,
    Large,
}

/// One for each lane.
#[derive(Default)]
struct Lanes<T> {
    small: T,
    large: T,
}

impl<T> Lanes<T> {
    fn of(&self, lane: Lane) -> &T {
        match lane {
            Lane::Small => &self.small,
            Lane::Large => &self.large,
        }
    }

    fn of_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Small => &mut self.small,
            Lane::Large => &mut self.large,
        }
    }
}

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Only this object can't be persisted.
    Object,
    /// The under store is out of reach.
    UnderStore,
    /// It asks for fewer requests.
    Throttling,
    /// Credentials, or the bucket, are not there or do not do: for this object alone, or for all.
    Access,
    /// Nothing failed: the object must wait until an earlier request is settled.
    Nobody(Duration),
}

/// Until the next try, and whose fault the last one is as far as that can be told by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) pause: Duration,
    pub(crate) blame: Blame,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

pub(crate) struct Queue {
    env: Env,
    backoff: Backoff,
    /// How long what comes when nothing is ready waits for more.
    delay: Duration,
    state: Mutex<State>,
    wake: Notify,
    uploads_max: usize,
}

struct State {
    /// Buckets with an under store of their own.
    mounts: HashSet<BucketName>,
    shares: Lanes<TenantShares>,
    /// Each is ready, running or delayed.
    slots: HashMap<ObjectPath, Slot>,
    /// Everything in `slots`, the longest dirty first.
    by_age: Ready,
    hasher: HashState,
    buckets: HashMap<BucketName, Bucket>,
    delayed: BTreeSet<(Duration, ObjectPath)>,
    running: usize,
    /// Nothing is taken before.
    gather_until: Option<Duration>,
}

struct Bucket {
    tenant: Tenant,
    ready: Lanes<Directories>,
    /// Objects that the under store has taken.
    successes: u64,
    failures: u32,
    /// Set while the circuit is open: when the next probe may go.
    probe_at: Option<Duration>,
    /// The one that is under way, or was the last.
    probe: Option<ObjectPath>,
    /// One of those that lack access, which is tried often.
    canary: Option<ObjectPath>,
}

struct Slot {
    entry: Entry,
    failures: Failures,
    place: Place,
}

/// What is remembered of an object that could not be persisted.
#[derive(Debug, Clone, Copy, Default)]
struct Failures {
    /// In a row.
    count: u32,
    /// Those before which the under store had taken others since the last one.
    alone: u32,
    /// Successes of the bucket when it last failed.
    seen: u64,
    /// Whether access was lacking then.
    lacked_access: bool,
}

enum Place {
    Ready,
    /// A request is under way; what was written meanwhile.
    Running {
        again: Option<Entry>,
        /// What it counts where.
        lane: Lane,
        amount: u64,
    },
    Delayed {
        until: Duration,
        blame: Blame,
    },
}

impl Queue {
    /// `uploads`: of small objects of one bucket at once.
    pub(crate) fn new(env: Env, backoff: Backoff, delay: Duration, uploads: u32, mounts: HashSet<BucketName>) -> Self {
        let large = (uploads as usize).min(LARGE_UPLOADS_MAX);
        // Each under store may have one when all others have all.
        let uploads_max = 2 * (uploads as usize + large + mounts.len() + 1);
        let small = TenantShares::new(u64::from(uploads) * SMALL_UPLOAD);
        let state = State {
            mounts,
            shares: Lanes { small, large: TenantShares::new(large as u64) },
            slots: HashMap::new(),
            by_age: Ready::new(),
            hasher: HashState::new(env.random.as_ref()),
            buckets: HashMap::new(),
            delayed: BTreeSet::new(),
            running: 0,
            gather_until: None,
        };
        Self { env, backoff, delay, state: Mutex::new(state), wake: Notify::new(), uploads_max }
    }

    /// No more are under way at once.
    pub(crate) fn uploads_max(&self) -> usize {
        self.uploads_max
    }

    /// Called after each commit that leaves something for the under store.
    pub(crate) fn push(&self, path: ObjectPath, entry: Entry) {
        let mut state = self.state.lock();
        match state.slots.get_mut(&path) {
            Some(slot) => {
                match &mut slot.place {
                    Place::Running { again, .. } => {
                        *again = Some(entry);
                        return;
                    }
                    Place::Ready | Place::Delayed { .. } => state.resize(&path, entry.size),
                }
                if !state.hurry_new(&path, self.env.clock.monotonic() + self.backoff.min) {
                    return;
                }
            }
            None => {
                let is_first = state.slots.len() == state.running + state.delayed.len();
                state.make_ready(path, entry, Failures::default());
                if is_first {
                    state.gather_until = Some(self.env.clock.monotonic() + self.delay);
                } else if state.gather_until.is_some() {
                    // Whoever waits for that time takes this one, too.
                    return;
                }
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Waits for the next object whose turn it is.
    pub(crate) async fn next(&self) -> ObjectPath {
        loop {
            let woken = self.wake.notified();
            let pause = {
                let now = self.env.clock.monotonic();
                let mut state = self.state.lock();
                state.release_due(now);
                if let Some(path) = state.take(now) {
                    // Others may sleep although more is ready: one wakes the next.
                    self.wake.notify_one();
                    return path;
                }
                state.next_event(now).map(|at| at.saturating_sub(now))
            };
            match pause {
                None => woken.await,
                Some(pause) => {
                    let sleep = self.env.clock.sleep(pause.max(Duration::from_millis(1)));
                    tokio::select! { biased; () = woken => {}, () = sleep => {} }
                }
            }
        }
    }

    /// The object is persisted, or there was nothing to do.
    pub(crate) fn succeeded(&self, path: &ObjectPath) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots.remove(path) else { return };
        state.by_age.remove(&(slot.entry.dirty_since, path.clone()));
        state.stop_running(path, &slot.place);
        state.close_circuit(&path.bucket);
        state.bucket(&path.bucket).canary.take_if(|canary| canary == path);
        state.release_alike(&path.bucket, slot.failures);
        if let Place::Running { again: Some(entry), .. } = slot.place {
            state.make_ready(path.clone(), entry, Failures::default());
        }
        drop(state);
        self.wake.notify_one();
    }

    /// The object is not at home here any more: whoever had it from [`Queue::next`] leaves it. It stays when it was
    /// pushed again meanwhile.
    pub(crate) fn drop_one(&self, path: &ObjectPath) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots.remove(path) else { return };
        state.by_age.remove(&(slot.entry.dirty_since, path.clone()));
        state.stop_running(path, &slot.place);
        let bucket = state.bucket(&path.bucket);
        bucket.probe.take_if(|probe| probe == path);
        if bucket.canary.take_if(|canary| canary == path).is_some() {
            state.appoint_canary(&path.bucket, self.env.clock.monotonic() + self.backoff.min);
        }
        if let Place::Running { again: Some(entry), .. } = slot.place {
            state.make_ready(path.clone(), entry, Failures::default());
        }
        drop(state);
        self.wake.notify_one();
    }

    /// These objects are not at home here any more. Those that are under way find out by themselves.
    pub(crate) fn drop_all(&self, is_lost: impl Fn(&ObjectPath) -> bool) {
        let lost: Vec<_> = self.state.lock().slots.keys().filter(|path| is_lost(path)).cloned().collect();
        lost.iter().for_each(|path| self.remove(path));
    }

    /// Somebody else has persisted the object: it goes at once instead of after its pause, when there will be nothing
    /// to do for it.
    pub(crate) fn hurry(&self, path: &ObjectPath) {
        let mut state = self.state.lock();
        state.close_circuit(&path.bucket);
        if let Some(Slot { place: Place::Delayed { until, .. }, .. }) = state.slots.get(path) {
            let until = *until;
            state.delayed.remove(&(until, path.clone()));
            state.release(path.clone());
        }
        drop(state);
        self.wake.notify_one();
    }

    /// The object stays for a later try.
    pub(crate) fn failed(&self, path: &ObjectPath, blame: Blame) -> Pause {
        let now = self.env.clock.monotonic();
        let mut state = self.state.lock();
        let bucket = state.bucket(&path.bucket);
        let (successes, is_open) = (bucket.successes, bucket.probe_at.is_some());
        let is_canary = blame == Blame::Access && *bucket.canary.get_or_insert_with(|| path.clone()) == *path;
        if blame != Blame::Access {
            // It waits for something else now, maybe for long.
            bucket.canary.take_if(|canary| canary == path);
        }
        let Some(slot) = state.slots.get_mut(path) else { return Pause { pause: Duration::ZERO, blame } };
        let (blame, failures) = slot.failures.add(blame, successes);
        let is_soon = match blame {
            // Nobody knows whose fault it is as long as the circuit is open.
            Blame::Object => is_open && slot.failures.is_alone(),
            Blame::Access => is_canary,
            Blame::UnderStore | Blame::Throttling | Blame::Nobody(_) => true,
        };
        let max = if is_soon { CIRCUIT_PAUSE_MAX.min(self.backoff.max) } else { self.backoff.max };
        let pause = if let Blame::Nobody(pause) = blame { pause } else { self.pause(failures, max) };
        let until = now + pause;
        let before = std::mem::replace(&mut slot.place, Place::Delayed { until, blame });
        if let Place::Running { again: Some(entry), .. } = &before {
            slot.entry.size = entry.size;
        }
        state.stop_running(path, &before);
        state.delayed.insert((until, path.clone()));
        let bucket = state.bucket(&path.bucket);
        let was_probe = bucket.probe.take_if(|probe| probe == path).is_some();
        match (blame, bucket.probe_at) {
            // It tells nothing of the others: the next one is the probe.
            (Blame::Nobody(_) | Blame::Object | Blame::Access, Some(_)) if was_probe => bucket.probe_at = Some(now),
            (Blame::Nobody(_) | Blame::Object | Blame::Access, _) => {}
            // It was under way when the circuit opened, and fails for the same reason.
            (Blame::UnderStore | Blame::Throttling, Some(_)) if !was_probe => {}
            (Blame::UnderStore | Blame::Throttling, _) => {
                bucket.failures = bucket.failures.saturating_add(1);
                if bucket.failures >= CIRCUIT_FAILURES {
                    bucket.probe_at = Some(now + self.pause(bucket.failures - CIRCUIT_FAILURES + 1, CIRCUIT_PAUSE_MAX));
                }
            }
        }
        drop(state);
        self.wake.notify_one();
        Pause { pause, blame }
    }

    /// The object does not wait any more, and the under store was not asked. One that is under way finds out by itself.
    pub(crate) fn remove(&self, path: &ObjectPath) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots.get(path) else { return };
        let entry = slot.entry;
        match slot.place {
            Place::Running { .. } => return,
            Place::Delayed { until, .. } => drop(state.delayed.remove(&(until, path.clone()))),
            Place::Ready => {
                let group = state.group_of(path);
                let ready = state.bucket(&path.bucket).ready.of_mut(entry.lane());
                ready.remove(group, &(entry.dirty_since, path.clone()));
            }
        }
        state.slots.remove(path);
        state.by_age.remove(&(entry.dirty_since, path.clone()));
        if state.bucket(&path.bucket).canary.take_if(|canary| canary == path).is_some() {
            state.appoint_canary(&path.bucket, self.env.clock.monotonic() + self.backoff.min);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Doubles from the shortest pause up to `max`; half of it is random, so that what failed together does not come
    /// back together.
    fn pause(&self, failures: u32, max: Duration) -> Duration {
        let doubled = self.backoff.min.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(max);
        let jitter_ms = self.env.random.below((doubled.as_millis() as u64 / 2).clamp(1, 1 << 32));
        doubled / 2 + Duration::from_millis(jitter_ms)
    }

    /// Paths of a scope that wait, in their order.
    pub(crate) fn waiting(&self, scope: &Scope) -> Vec<ObjectPath> {
        let state = self.state.lock();
        let mut waiting: Vec<_> = state.slots.keys().filter(|path| scope.contains(path)).cloned().collect();
        waiting.sort_unstable();
        waiting
    }

    /// How long a key waits at least before it is tried: zero when it is its turn or under way, `None` when it does not
    /// wait.
    pub(crate) fn next_try(&self, path: &ObjectPath) -> Option<Duration> {
        let now = self.env.clock.monotonic();
        let state = self.state.lock();
        let slot = state.slots.get(path)?;
        let probe_at = state.buckets.get(&path.bucket).and_then(|bucket| bucket.probe_at);
        let at = match slot.place {
            Place::Delayed { until, .. } => until.max(probe_at.unwrap_or_default()),
            Place::Ready => probe_at.unwrap_or_default(),
            Place::Running { .. } => Duration::ZERO,
        };
        Some(at.saturating_sub(now))
    }

    pub(crate) fn running(&self) -> usize {
        self.state.lock().running
    }

    pub(crate) fn delayed(&self) -> usize {
        self.state.lock().delayed.len()
    }
}

impl Failures {
    /// Counts another one. Returns whose fault it is, as far as that can be told by now, and how many failures that is
    /// worth.
    fn add(&mut self, blame: Blame, successes: u64) -> (Blame, u32) {
        if matches!(blame, Blame::Nobody(_)) {
            return (blame, 0);
        }
        let others_went = self.count > 0 && successes > self.seen;
        self.seen = successes;
        self.count = self.count.saturating_add(1);
        self.lacked_access = blame == Blame::Access;
        if blame != Blame::UnderStore {
            return (blame, self.count);
        }
        self.alone = self.alone.saturating_add(u32::from(others_went || self.is_alone()));
        if self.is_alone() { (Blame::Object, self.alone) } else { (blame, self.count) }
    }

    fn is_alone(&self) -> bool {
        self.alone >= FAILURES_ALONE
    }
}

impl State {
    fn bucket(&mut self, name: &BucketName) -> &mut Bucket {
        let mounts = &self.mounts;
        self.buckets.entry(name.clone()).or_insert_with(|| Bucket {
            tenant: Tenant { mount: mounts.get(name).cloned(), bucket: name.clone(), requester: Requester::NOBODY },
            ready: Lanes::default(),
            successes: 0,
            failures: 0,
            probe_at: None,
            probe: None,
            canary: None,
        })
    }

    /// What waits has been written again.
    fn resize(&mut self, path: &ObjectPath, size: u64) {
        let Some(slot) = self.slots.get_mut(path) else { return };
        let before = slot.entry;
        slot.entry.size = size;
        let (entry, is_ready) = (slot.entry, matches!(slot.place, Place::Ready));
        if is_ready {
            let group = self.group_of(path);
            let (bucket, place) = (self.bucket(&path.bucket), (entry.dirty_since, path.clone()));
            bucket.ready.of_mut(before.lane()).remove(group, &place);
            bucket.ready.of_mut(entry.lane()).insert(group, place);
        }
    }

    /// Another of those that lack access is tried often from now on.
    fn appoint_canary(&mut self, name: &BucketName, at: Duration) {
        let lacks_access = |path: &ObjectPath| {
            let place = &self.slots[path].place;
            path.bucket == *name && matches!(place, Place::Delayed { blame: Blame::Access, .. })
        };
        let Some((until, path)) = self.delayed.iter().find(|(_, path)| lacks_access(path)).cloned() else { return };
        self.bucket(name).canary = Some(path.clone());
        self.reschedule(&path, until.min(at));
    }

    /// Moves the next try of what is delayed.
    fn reschedule(&mut self, path: &ObjectPath, at: Duration) {
        let Some(Slot { place: Place::Delayed { until, .. }, .. }) = self.slots.get_mut(path) else { return };
        let before = std::mem::replace(until, at);
        self.delayed.remove(&(before, path.clone()));
        self.delayed.insert((at, path.clone()));
    }

    /// What was refused has been written or deleted again: that may be taken, and need not wait for a pause that grew
    /// long. Returns whether it waits less now.
    fn hurry_new(&mut self, path: &ObjectPath, at: Duration) -> bool {
        let place = self.slots.get(path).map(|slot| &slot.place);
        let is_later = matches!(place, Some(Place::Delayed { until, blame: Blame::Object }) if *until > at);
        if is_later {
            self.reschedule(path, at);
        }
        is_later
    }

    /// Gives back what an upload counted.
    fn stop_running(&mut self, path: &ObjectPath, place: &Place) {
        let Place::Running { lane, amount, .. } = place else { return };
        self.running -= 1;
        let group = self.group_of(path);
        let bucket = self.bucket(&path.bucket);
        bucket.ready.of_mut(*lane).stop(group);
        let tenant = bucket.tenant.clone();
        self.shares.of_mut(*lane).give_back(&tenant, *amount);
    }

    fn make_ready(&mut self, path: ObjectPath, entry: Entry, failures: Failures) {
        let group = self.group_of(&path);
        let bucket = self.bucket(&path.bucket);
        bucket.ready.of_mut(entry.lane()).insert(group, (entry.dirty_since, path.clone()));
        self.by_age.insert((entry.dirty_since, path.clone()));
        self.slots.insert(path, Slot { entry, failures, place: Place::Ready });
    }

    fn release_due(&mut self, now: Duration) {
        while self.delayed.first().is_some_and(|(until, _)| *until <= now) {
            let (_, path) = self.delayed.pop_first().expect("it has just been looked at");
            self.release(path);
        }
    }

    fn release(&mut self, path: ObjectPath) {
        let slot = self.slots.remove(&path).expect("what is delayed has a slot");
        self.make_ready(path, slot.entry, slot.failures);
    }

    fn group_of(&self, path: &ObjectPath) -> GroupId {
        self.hasher.hash_one(directory_of(path)) as GroupId % GROUPS_MAX
    }

    /// The oldest ready object of the directory that has least under way, in the bucket that has least under way, of
    /// all whose circuit lets something through and that have not got their share.
    fn take(&mut self, now: Duration) -> Option<ObjectPath> {
        if self.gather_until.is_some_and(|until| until > now) {
            return None;
        }
        self.gather_until = None;
        let shares = &self.shares;
        let closed = self.buckets.values().filter(|bucket| bucket.probe_at.is_none_or(|at| at <= now));
        let candidates: Vec<_> = closed.flat_map(|bucket| bucket.candidates(shares)).collect();
        let least_in = |wanted: Lane| {
            let of_lane = candidates.iter().filter(|(lane, ..)| *lane == wanted);
            of_lane.min_by_key(|(lane, since, tenant)| (shares.of(*lane).has(tenant), *since))
        };
        let next = [least_in(Lane::Small), least_in(Lane::Large)].into_iter().flatten();
        let (lane, _, tenant) = next.min_by_key(|(_, since, _)| *since)?;
        let (lane, tenant) = (*lane, (*tenant).clone());
        let bucket = self.buckets.get_mut(&tenant.bucket).expect("it has just been looked at");
        let is_newest = bucket.tries_newest();
        let path = bucket.ready.of_mut(lane).take(is_newest).expect("it has just been looked at");
        if bucket.probe_at.is_some() {
            // One probe only: the next may go when this one has failed, or after as long again.
            bucket.probe_at = Some(now + CIRCUIT_PAUSE_MAX);
            bucket.probe = Some(path.clone());
        }
        let slot = self.slots.get_mut(&path).expect("what is ready has a slot");
        let amount = match lane {
            Lane::Small => SMALL_UPLOAD + slot.entry.size / COUNTED_BYTES,
            Lane::Large => 1,
        };
        slot.place = Place::Running { again: None, lane, amount };
        self.shares.of_mut(lane).take(&tenant, amount);
        self.running += 1;
        Some(path)
    }

    /// When something may change although nothing ends.
    fn next_event(&self, now: Duration) -> Option<Duration> {
        let is_ready = |bucket: &&Bucket| !bucket.ready.small.is_empty() || !bucket.ready.large.is_empty();
        let probes = self.buckets.values().filter(is_ready).filter_map(|bucket| bucket.probe_at.filter(|at| *at > now));
        let due = self.delayed.first().map(|(until, _)| *until);
        probes.chain(due).chain(self.gather_until).min()
    }

    /// The under store has answered: what waits only for that goes on at once.
    fn close_circuit(&mut self, name: &BucketName) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        bucket.successes += 1;
        if bucket.failures == 0 {
            return;
        }
        bucket.failures = 0;
        (bucket.probe_at, bucket.probe) = (None, None);
        // Who asks for fewer requests has answered all along.
        let waits = |place: &Place| matches!(place, Place::Delayed { blame: Blame::UnderStore, .. });
        self.release_all(|path, slot| path.bucket == *name && waits(&slot.place));
    }

    /// An object is taken that was refused before: what failed as it did may be taken now, too, as if it had never
    /// failed. Credentials are those of an under store.
    fn release_alike(&mut self, name: &BucketName, failures: Failures) {
        if failures.lacked_access {
            let mount = self.bucket(name).tenant.mount.clone();
            let alike = self.buckets.values().filter(|bucket| bucket.tenant.mount == mount);
            let buckets: HashSet<_> = alike.map(|bucket| bucket.tenant.bucket.clone()).collect();
            let lacks_access =
                |path: &ObjectPath, slot: &Slot| slot.failures.lacked_access && buckets.contains(&path.bucket);
            self.release_anew(lacks_access);
        }
        if failures.is_alone() {
            self.release_anew(|path, slot| slot.failures.is_alone() && path.bucket == *name);
        }
    }

    /// Forgets their failures: the success of each would look for others like it otherwise.
    fn release_anew(&mut self, wanted: impl Fn(&ObjectPath, &Slot) -> bool) {
        for path in self.release_all(wanted) {
            self.slots.get_mut(&path).expect("it has just been released").failures = Failures::default();
        }
    }

    fn release_all(&mut self, wanted: impl Fn(&ObjectPath, &Slot) -> bool) -> Vec<ObjectPath> {
        let slots = &self.slots;
        let released = self.delayed.extract_if(.., |(_, path)| wanted(path, &slots[path]));
        let released: Vec<_> = released.map(|(_, path)| path).collect();
        released.iter().for_each(|path| self.release(path.clone()));
        released
    }
}

impl Bucket {
    /// In turn the oldest and the newest: some that always fail must not be all that is ever tried.
    fn tries_newest(&self) -> bool {
        self.probe_at.is_some() && (self.failures - CIRCUIT_FAILURES) % 2 == 1
    }

    /// What may be the next, each with its lane: one probe, or one of each lane.
    fn candidates(&self, shares: &Lanes<TenantShares>) -> impl Iterator<Item = (Lane, Generation, &Tenant)> {
        let is_newest = self.tries_newest();
        let of_lane = |lane: Lane| {
            let (_, (since, _)) = self.ready.of(lane).next(is_newest)?;
            shares.of(lane).may_take(&self.tenant).then_some((lane, *since, &self.tenant))
        };
        let [small, large] = [of_lane(Lane::Small), of_lane(Lane::Large)];
        let [small, large] = match (small, large) {
            (Some(small), Some(large)) if self.probe_at.is_some() => {
                let is_small = (small.1 > large.1) == is_newest;
                if is_small { [Some(small), None] } else { [None, Some(large)] }
            }
            both => both.into(),
        };
        [small, large].into_iter().flatten()
    }
}

impl Queue {
    /// When the oldest write that still waits was made, in milliseconds since the Unix epoch.
    pub(crate) fn oldest_ms(&self) -> Option<u64> {
        let state = self.state.lock();
        let (_, path) = state.by_age.first()?;
        state.slots.get(path).map(|slot| slot.entry.dirty_since_ms)
    }
}

#[cfg(test)]
mod tests;
