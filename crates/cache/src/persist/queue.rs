//! The queue of uploads to the under store. The key that has been dirty longest goes first. There is one request per
//! key at a time, a backoff after each failure, and one circuit breaker per bucket. Directories, buckets and under
//! stores share the uploads fairly.

mod blame;
mod delayed;
mod directories;

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::time::Duration;

use forebay_catalog::records::ObjectRecord;
use forebay_env::sync::Mutex;
use forebay_env::{Env, HashState, Requester, Shares as _};
use forebay_types::{BucketName, Generation, ObjectPath};
use tokio::sync::Notify;

pub(crate) use self::blame::Blame;
use self::delayed::Delayed;
use self::directories::{Directories, GROUPS_MAX, GroupId, Ready, directory_of};
use crate::fair_share::{Tenant, TenantShares};
use crate::scope::Scope;

/// Consecutive failures, without a success between them, that open a bucket's circuit breaker.
const CIRCUIT_FAILURES: u32 = 8;

/// An object is at fault itself if it fails this often in a row, each time after the under store has accepted other
/// objects of its bucket. From then on it waits for its own backoff. Otherwise every success would retry it, and many
/// such objects would open the circuit breaker for all.
const FAILURES_ALONE: u32 = 3;

/// Longest pause between two probes of an under store that is out of reach. It is short compared with the longest
/// backoff of one object: a probe costs one request, and its success lets everything resume at once.
const CIRCUIT_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Concurrent uploads of objects above [`LARGE_BYTES`] in one bucket. Their bytes keep the connection busy, whereas
/// small uploads mostly wait for answers.
pub(crate) const LARGE_UPLOADS_MAX: usize = 16;

/// The most memory that an upload takes at a time. An object up to this size is small.
pub(crate) const LARGE_BYTES: u64 = 1 << 20;

/// A small upload counts one more for each of these bytes. Half as many uploads of a megabyte run at once as of empty
/// objects.
const SMALL_UPLOAD: u64 = 8;
const COUNTED_BYTES: u64 = 128 << 10;

/// How long an object has been waiting, and its size.
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

/// Small and large uploads have separate slots, so that neither waits for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Small,
    Large,
}

/// One value for each lane.
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

/// The pause until the next attempt, and the cause of the last failure as far as it is known.
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
    /// How long an object that arrives at an idle queue waits for others.
    delay: Duration,
    state: Mutex<State>,
    wake: Notify,
    uploads_max: usize,
}

struct State {
    /// Buckets with their own under store.
    mounts: HashSet<BucketName>,
    shares: Lanes<TenantShares>,
    /// Each is ready, running or delayed.
    slots: HashMap<ObjectPath, Slot>,
    /// Everything in `slots`, the longest dirty first.
    by_age: Ready,
    hasher: HashState,
    buckets: HashMap<BucketName, Bucket>,
    delayed: Delayed,
    running: usize,
    /// Nothing is taken before this time.
    gather_until: Option<Duration>,
}

struct Bucket {
    tenant: Tenant,
    ready: Lanes<Directories>,
    /// Number of objects that the under store has accepted.
    successes: u64,
    failures: u32,
    /// Set while the circuit breaker is open: when the next probe may start.
    probe_at: Option<Duration>,
    /// The probe in flight, or the last one.
    probe: Option<ObjectPath>,
    /// An object that lacks access and is retried often, on behalf of the others.
    canary: Option<ObjectPath>,
    /// Tries of canaries that lacked access, since there is one, and the error of the last one.
    refused: u32,
    /// Tries in a row that did not find the bucket.
    missing: u32,
    refusal: String,
}

/// After this many such tries, operators see the bucket and the error.
const REFUSED_MIN: u32 = 3;

struct Slot {
    entry: Entry,
    failures: Failures,
    progress: Progress,
}

/// What the queue remembers of an object that could not be persisted.
#[derive(Debug, Clone, Copy, Default)]
struct Failures {
    /// Consecutive failures.
    count: u32,
    /// Failures before which the under store had accepted other objects since the previous failure.
    alone: u32,
    /// The bucket's successes at the last failure.
    seen: u64,
    /// Whether the last failure was a lack of access.
    lacked_access: bool,
}

enum Progress {
    Ready,
    /// A request is in flight. `again` is what was written in the meantime.
    Running {
        again: Option<Entry>,
        /// The lane and the amount that it counts there.
        lane: Lane,
        amount: u64,
    },
    Delayed {
        until: Duration,
        blame: Blame,
    },
}

impl Queue {
    /// `uploads`: concurrent uploads of small objects in one bucket.
    pub(crate) fn new(env: Env, backoff: Backoff, delay: Duration, uploads: u32, mounts: HashSet<BucketName>) -> Self {
        let large = (uploads as usize).min(LARGE_UPLOADS_MAX);
        // Each under store may have one upload even when the others use all slots.
        let uploads_max = 2 * (uploads as usize + large + mounts.len() + 1);
        let small = TenantShares::new(u64::from(uploads) * SMALL_UPLOAD);
        let state = State {
            mounts,
            shares: Lanes { small, large: TenantShares::new(large as u64) },
            slots: HashMap::new(),
            by_age: Ready::new(),
            hasher: HashState::new(env.random.as_ref()),
            buckets: HashMap::new(),
            delayed: Delayed::default(),
            running: 0,
            gather_until: None,
        };
        Self { env, backoff, delay, state: Mutex::new(state), wake: Notify::new(), uploads_max }
    }

    /// The most uploads that are ever in flight at once.
    pub(crate) fn uploads_max(&self) -> usize {
        self.uploads_max
    }

    /// Called after each commit that leaves something for the under store.
    pub(crate) fn push(&self, path: ObjectPath, entry: Entry) {
        let mut state = self.state.lock();
        match state.slots.get_mut(&path) {
            Some(slot) => {
                match &mut slot.progress {
                    Progress::Running { again, .. } => {
                        *again = Some(entry);
                        return;
                    }
                    Progress::Ready | Progress::Delayed { .. } => state.resize(&path, entry.size),
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
                    // The task that waits for that time takes this object, too.
                    return;
                }
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Waits for the next object to persist.
    pub(crate) async fn next(&self) -> ObjectPath {
        loop {
            let woken = self.wake.notified();
            let pause = {
                let now = self.env.clock.monotonic();
                let mut state = self.state.lock();
                state.release_due(now);
                if let Some(path) = state.take(now) {
                    // Other tasks may sleep although more is ready, so each one wakes the next.
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
        state.stop_running(path, &slot.progress);
        state.close_circuit(&path.bucket);
        let bucket = state.bucket(&path.bucket);
        bucket.canary.take_if(|canary| canary == path);
        bucket.missing = 0;
        state.release_alike(&path.bucket, slot.failures);
        if let Progress::Running { again: Some(entry), .. } = slot.progress {
            state.make_ready(path.clone(), entry, Failures::default());
        }
        drop(state);
        self.wake.notify_one();
    }

    /// This worker is no longer the home of the object, and the task that got it from [`Queue::next`] abandons it. The
    /// object stays if it was pushed again in the meantime.
    pub(crate) fn drop_one(&self, path: &ObjectPath) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots.remove(path) else { return };
        state.by_age.remove(&(slot.entry.dirty_since, path.clone()));
        state.stop_running(path, &slot.progress);
        let bucket = state.bucket(&path.bucket);
        bucket.probe.take_if(|probe| probe == path);
        if bucket.canary.take_if(|canary| canary == path).is_some() {
            state.appoint_canary(&path.bucket, self.env.clock.monotonic() + self.backoff.min);
        }
        if let Progress::Running { again: Some(entry), .. } = slot.progress {
            state.make_ready(path.clone(), entry, Failures::default());
        }
        drop(state);
        self.wake.notify_one();
    }

    /// This worker is no longer the home of these objects. Tasks with requests in flight notice that by themselves.
    pub(crate) fn drop_all(&self, is_lost: impl Fn(&ObjectPath) -> bool) {
        let lost: Vec<_> = self.state.lock().slots.keys().filter(|path| is_lost(path)).cloned().collect();
        lost.iter().for_each(|path| self.remove(path));
    }

    /// Another task has persisted the object. It becomes ready at once instead of after its backoff, and there will be
    /// nothing left to do for it.
    pub(crate) fn hurry(&self, path: &ObjectPath) {
        let mut state = self.state.lock();
        state.close_circuit(&path.bucket);
        if let Some(Slot { progress: Progress::Delayed { until, .. }, .. }) = state.slots.get(path) {
            let until = *until;
            state.delayed.remove(until, path);
            state.release(path.clone());
        }
        drop(state);
        self.wake.notify_one();
    }

    /// The object stays in the queue for a later attempt.
    pub(crate) fn failed(&self, path: &ObjectPath, blame: Blame) -> Pause {
        let now = self.env.clock.monotonic();
        let mut state = self.state.lock();
        let bucket = state.bucket(&path.bucket);
        let (successes, is_open) = (bucket.successes, bucket.probe_at.is_some());
        if blame == Blame::Access && bucket.canary.is_none() {
            (bucket.canary, bucket.refused) = (Some(path.clone()), 0);
        }
        let is_canary = blame == Blame::Access && bucket.canary.as_ref() == Some(path);
        // Otherwise it may now wait for a long time. An outage ends, and says nothing of the access.
        let waits_alone = matches!(blame, Blame::Object | Blame::Nobody(_));
        let was_canary = waits_alone && bucket.canary.take_if(|canary| canary == path).is_some();
        let Some(slot) = state.slots.get_mut(path) else { return Pause { pause: Duration::ZERO, blame } };
        let (blame, failures) = slot.failures.add(blame, successes);
        let is_soon = match blame {
            // While the circuit breaker is open, the cause is unknown.
            Blame::Object => is_open && slot.failures.is_alone(),
            Blame::Access => is_canary,
            Blame::UnderStore | Blame::Throttling | Blame::Nobody(_) => true,
        };
        let max = if is_soon { CIRCUIT_PAUSE_MAX.min(self.backoff.max) } else { self.backoff.max };
        let is_overwritten = matches!(slot.progress, Progress::Running { again: Some(_), .. });
        let pause = match blame {
            Blame::Nobody(pause) => pause,
            // The new version may be accepted: see `hurry_new`.
            Blame::Object if is_overwritten => {
                slot.failures.start_over();
                self.backoff.min
            }
            Blame::Object | Blame::UnderStore | Blame::Throttling | Blame::Access => self.pause(failures, max),
        };
        let until = now + pause;
        let before = std::mem::replace(&mut slot.progress, Progress::Delayed { until, blame });
        if let Progress::Running { again: Some(entry), .. } = &before {
            slot.entry.size = entry.size;
        }
        state.stop_running(path, &before);
        state.delayed.insert(until, path.clone(), blame);
        if was_canary {
            state.appoint_canary(&path.bucket, now + self.backoff.min);
        }
        let bucket = state.bucket(&path.bucket);
        let was_probe = bucket.probe.take_if(|probe| probe == path).is_some();
        match (blame, bucket.probe_at) {
            // This says nothing about the others, so the next object becomes the probe.
            (Blame::Nobody(_) | Blame::Object | Blame::Access, Some(_)) if was_probe => bucket.probe_at = Some(now),
            (Blame::Nobody(_) | Blame::Object | Blame::Access, _) => {}
            // It was in flight when the circuit breaker opened, and failed for the same reason.
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

    /// Called after [`Queue::failed`], with the cause that it returned. `is_missing`: the bucket was not found, and so
    /// nothing was sent.
    pub(crate) fn note_answer(&self, path: &ObjectPath, is_missing: bool, blame: Blame, error: &str) {
        let mut state = self.state.lock();
        let bucket = state.bucket(&path.bucket);
        bucket.missing = if is_missing { bucket.missing.saturating_add(1) } else { 0 };
        // An outage is no refusal, and does not change the reason of one.
        let is_refused = blame == Blame::Access && bucket.canary.as_ref() == Some(path);
        if is_refused {
            bucket.refused = bucket.refused.saturating_add(1);
        }
        if is_refused || is_missing {
            error.clone_into(&mut bucket.refusal);
        }
    }

    /// Buckets that are missing, or with an object that was refused for a lack of access, again and again, with the
    /// last error. By name.
    pub(crate) fn without_access(&self) -> Vec<(BucketName, String)> {
        let mut state = self.state.lock();
        let State { buckets, slots, .. } = &mut *state;
        for (name, bucket) in buckets.iter_mut().filter(|(_, bucket)| bucket.missing >= REFUSED_MIN) {
            if !slots.keys().any(|path| path.bucket == *name) {
                bucket.missing = 0;
            }
        }
        let lacks =
            |bucket: &Bucket| bucket.missing >= REFUSED_MIN || bucket.refused >= REFUSED_MIN && bucket.canary.is_some();
        let buckets = state.buckets.iter().filter(|(_, bucket)| lacks(bucket));
        let mut found: Vec<_> = buckets.map(|(name, bucket)| (name.clone(), bucket.refusal.clone())).collect();
        found.sort_unstable();
        found
    }

    /// The object no longer waits, and the under store was not asked. A task with a request in flight notices that by
    /// itself.
    pub(crate) fn remove(&self, path: &ObjectPath) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots.get(path) else { return };
        let entry = slot.entry;
        match slot.progress {
            Progress::Running { .. } => return,
            Progress::Delayed { until, .. } => state.delayed.remove(until, path),
            Progress::Ready => {
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

    /// Exponential backoff, from the shortest pause up to `max`. Half of it is random jitter, so that objects that
    /// failed together do not retry together.
    fn pause(&self, failures: u32, max: Duration) -> Duration {
        let doubled = self.backoff.min.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(max);
        let jitter_ms = self.env.random.below((doubled.as_millis() as u64 / 2).clamp(1, 1 << 32));
        doubled / 2 + Duration::from_millis(jitter_ms)
    }

    /// The waiting paths of a scope, sorted.
    pub(crate) fn waiting(&self, scope: &Scope) -> Vec<ObjectPath> {
        let state = self.state.lock();
        let mut waiting: Vec<_> = state.slots.keys().filter(|path| scope.contains(path)).cloned().collect();
        waiting.sort_unstable();
        waiting
    }

    /// The minimum time until the next attempt for a key: zero when it is ready or in flight, `None` when it does not
    /// wait.
    pub(crate) fn next_try(&self, path: &ObjectPath) -> Option<Duration> {
        let now = self.env.clock.monotonic();
        let state = self.state.lock();
        let slot = state.slots.get(path)?;
        let probe_at = state.buckets.get(&path.bucket).and_then(|bucket| bucket.probe_at);
        let at = match slot.progress {
            Progress::Delayed { until, .. } => until.max(probe_at.unwrap_or_default()),
            Progress::Ready => probe_at.unwrap_or_default(),
            Progress::Running { .. } => Duration::ZERO,
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
    /// Counts another failure. Returns its cause, as far as it is known, and the number of failures that the backoff is
    /// based on.
    fn add(&mut self, blame: Blame, successes: u64) -> (Blame, u32) {
        if matches!(blame, Blame::Nobody(_)) {
            return (blame, 0);
        }
        let others_went = self.count > 0 && successes > self.seen;
        self.seen = successes;
        self.count = self.count.saturating_add(1);
        // An outage in between says nothing of that.
        self.lacked_access = match blame {
            Blame::Access => true,
            Blame::UnderStore | Blame::Throttling => self.lacked_access,
            Blame::Object | Blame::Nobody(_) => false,
        };
        if blame != Blame::UnderStore {
            return (blame, self.count);
        }
        self.alone = self.alone.saturating_add(u32::from(others_went || self.is_alone()));
        if self.is_alone() { (Blame::Object, self.alone) } else { (blame, self.count) }
    }

    fn is_alone(&self) -> bool {
        self.alone >= FAILURES_ALONE
    }

    /// The object has another version now. If it failed alone, its failures still say nothing of the under store.
    fn start_over(&mut self) {
        (self.count, self.alone) = (0, self.alone.min(FAILURES_ALONE));
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
            refused: 0,
            missing: 0,
            refusal: String::new(),
        })
    }

    /// A waiting object has been overwritten.
    fn resize(&mut self, path: &ObjectPath, size: u64) {
        let Some(slot) = self.slots.get_mut(path) else { return };
        let before = slot.entry;
        slot.entry.size = size;
        let (entry, is_ready) = (slot.entry, matches!(slot.progress, Progress::Ready));
        if is_ready {
            let group = self.group_of(path);
            let (bucket, ready) = (self.bucket(&path.bucket), (entry.dirty_since, path.clone()));
            bucket.ready.of_mut(before.lane()).remove(group, &ready);
            bucket.ready.of_mut(entry.lane()).insert(group, ready);
        }
    }

    /// Chooses another object without access to be retried often.
    fn appoint_canary(&mut self, name: &BucketName, at: Duration) {
        let lacks_access = |path: &ObjectPath| {
            let progress = &self.slots[path].progress;
            path.bucket == *name && matches!(progress, Progress::Delayed { blame: Blame::Access, .. })
        };
        let Some((until, path)) = self.delayed.iter().find(|(_, path)| lacks_access(path)).cloned() else { return };
        self.bucket(name).canary = Some(path.clone());
        self.reschedule(&path, until.min(at));
    }

    /// Moves the next attempt of a delayed object.
    fn reschedule(&mut self, path: &ObjectPath, at: Duration) {
        let Some(Slot { progress: Progress::Delayed { until, blame }, .. }) = self.slots.get_mut(path) else { return };
        let before = std::mem::replace(until, at);
        self.delayed.remove(before, path);
        self.delayed.insert(at, path.clone(), *blame);
    }

    /// A refused object has been overwritten or deleted. The new version may be accepted, and must not wait for a
    /// backoff that has grown long. Returns whether it now waits less.
    fn hurry_new(&mut self, path: &ObjectPath, at: Duration) -> bool {
        let progress = self.slots.get(path).map(|slot| &slot.progress);
        let is_later = matches!(progress, Some(Progress::Delayed { until, blame: Blame::Object }) if *until > at);
        if is_later {
            self.reschedule(path, at);
        }
        is_later
    }

    /// Releases the slots of an upload.
    fn stop_running(&mut self, path: &ObjectPath, progress: &Progress) {
        let Progress::Running { lane, amount, .. } = progress else { return };
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
        self.slots.insert(path, Slot { entry, failures, progress: Progress::Ready });
    }

    fn release_due(&mut self, now: Duration) {
        while let Some(path) = self.delayed.take_due(now) {
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

    /// The oldest ready object of the directory with the fewest uploads in flight, in the bucket with the fewest in
    /// flight. Only buckets with slots left, and whose circuit breaker lets an upload through, take part.
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
            // Only one probe: the next may start when this one has failed, or after the same time again.
            bucket.probe_at = Some(now + CIRCUIT_PAUSE_MAX);
            bucket.probe = Some(path.clone());
        }
        let slot = self.slots.get_mut(&path).expect("what is ready has a slot");
        let amount = match lane {
            Lane::Small => SMALL_UPLOAD + slot.entry.size / COUNTED_BYTES,
            Lane::Large => 1,
        };
        slot.progress = Progress::Running { again: None, lane, amount };
        self.shares.of_mut(lane).take(&tenant, amount);
        self.running += 1;
        Some(path)
    }

    /// The next time at which something may become ready without an upload ending.
    fn next_event(&self, now: Duration) -> Option<Duration> {
        let is_ready = |bucket: &&Bucket| !bucket.ready.small.is_empty() || !bucket.ready.large.is_empty();
        let probes = self.buckets.values().filter(is_ready).filter_map(|bucket| bucket.probe_at.filter(|at| *at > now));
        probes.chain(self.delayed.next_at()).chain(self.gather_until).min()
    }

    /// The under store has answered: objects that wait only for that resume at once.
    fn close_circuit(&mut self, name: &BucketName) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        bucket.successes += 1;
        if bucket.failures == 0 {
            return;
        }
        bucket.failures = 0;
        (bucket.probe_at, bucket.probe) = (None, None);
        // An under store that throttles has answered all along, so throttled objects keep waiting.
        self.delayed.take_out_of_reach(name).into_iter().for_each(|path| self.release(path));
    }

    /// An object that had been refused is accepted. Objects that failed for the same reason may be accepted now, too,
    /// so they restart as if they had never failed. Credentials belong to an under store, so all of its buckets resume.
    fn release_alike(&mut self, name: &BucketName, failures: Failures) {
        if failures.lacked_access {
            let mount = self.bucket(name).tenant.mount.clone();
            let alike = self.buckets.values().filter(|bucket| bucket.tenant.mount == mount);
            let buckets: HashSet<_> = alike.map(|bucket| bucket.tenant.bucket.clone()).collect();
            // All are tried now.
            buckets.iter().for_each(|name| self.bucket(name).canary = None);
            let lacks_access =
                |path: &ObjectPath, slot: &Slot| slot.failures.lacked_access && buckets.contains(&path.bucket);
            self.release_anew(lacks_access);
        }
        if failures.is_alone() {
            self.release_anew(|path, slot| slot.failures.is_alone() && path.bucket == *name);
        }
    }

    /// Resets their failures. Otherwise the success of each would look for others like it again.
    fn release_anew(&mut self, wanted: impl Fn(&ObjectPath, &Slot) -> bool) {
        for path in self.release_all(wanted) {
            self.slots.get_mut(&path).expect("it has just been released").failures = Failures::default();
        }
    }

    fn release_all(&mut self, wanted: impl Fn(&ObjectPath, &Slot) -> bool) -> Vec<ObjectPath> {
        let slots = &self.slots;
        let released = self.delayed.take_all(|path| wanted(path, &slots[path]));
        released.iter().for_each(|path| self.release(path.clone()));
        released
    }
}

impl Bucket {
    /// Probes alternate between the oldest and the newest object, because the oldest ones may be objects that always
    /// fail.
    fn tries_newest(&self) -> bool {
        self.probe_at.is_some() && (self.failures - CIRCUIT_FAILURES) % 2 == 1
    }

    /// Candidates for the next upload, with their lanes: one probe, or one object of each lane.
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
    /// The time of the oldest waiting write, in milliseconds since the Unix epoch.
    pub(crate) fn oldest_ms(&self) -> Option<u64> {
        let state = self.state.lock();
        let (_, path) = state.by_age.first()?;
        state.slots.get(path).map(|slot| slot.entry.dirty_since_ms)
    }
}

#[cfg(test)]
mod tests;
