//! What waits to be brought to the under store: the key that has been dirty longest goes first, one request per key at
//! a time, with a pause after each failure, and with one circuit breaker per bucket.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use forebay_catalog::records::ObjectRecord;
use forebay_env::Env;
use forebay_env::sync::Mutex;
use forebay_types::{BucketName, Generation, ObjectPath};
use tokio::sync::Notify;

use crate::scope::Scope;

/// Failures in a row, without a success between them, that open a bucket's circuit.
const CIRCUIT_FAILURES: u32 = 8;

/// Longest pause between two probes of an under store that is out of reach. Short against the longest pause of one object:
/// a probe costs one request, and its success lets everything go on at once.
const CIRCUIT_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long an object has been waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) dirty_since: Generation,
    pub(crate) dirty_since_ms: u64,
}

impl Entry {
    pub(crate) fn of(record: &ObjectRecord) -> Self {
        Self { dirty_since: record.dirty_since, dirty_since_ms: record.dirty_since_ms }
    }
}

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Only this object can't be persisted.
    Object,
    /// The under store is out of reach, or asks for fewer requests.
    UnderStore,
    /// Nothing failed: the object must wait until an earlier request is settled.
    Nobody(Duration),
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
}

#[derive(Default)]
struct State {
    /// Each is ready, running or delayed.
    slots: HashMap<ObjectPath, Slot>,
    /// Everything in `slots`, the longest dirty first.
    by_age: BTreeSet<(Generation, ObjectPath)>,
    buckets: HashMap<BucketName, Bucket>,
    delayed: BTreeSet<(Duration, ObjectPath)>,
    running: usize,
    /// Nothing is taken before.
    gather_until: Option<Duration>,
}

#[derive(Default)]
struct Bucket {
    ready: BTreeSet<(Generation, ObjectPath)>,
    failures: u32,
    /// Set while the circuit is open: when the next probe may go.
    probe_at: Option<Duration>,
    /// The one that is under way, or was the last.
    probe: Option<ObjectPath>,
}

struct Slot {
    entry: Entry,
    failures: u32,
    place: Place,
}

enum Place {
    Ready,
    /// A request is under way; what was written meanwhile.
    Running {
        again: Option<Entry>,
    },
    Delayed {
        until: Duration,
        blame: Blame,
    },
}

impl Queue {
    pub(crate) fn new(env: Env, backoff: Backoff, delay: Duration) -> Self {
        Self { env, backoff, delay, state: Mutex::default(), wake: Notify::new() }
    }

    /// Called after each commit that leaves something for the under store.
    pub(crate) fn push(&self, path: ObjectPath, entry: Entry) {
        let mut state = self.state.lock();
        match state.slots.get_mut(&path) {
            Some(slot) => {
                if let Place::Running { again } = &mut slot.place {
                    *again = Some(entry);
                }
                return;
            }
            None => {
                let is_first = state.slots.len() == state.running + state.delayed.len();
                state.make_ready(path, entry, 0);
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
                state.next_event().map(|at| at.saturating_sub(now))
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
        state.running -= usize::from(matches!(slot.place, Place::Running { .. }));
        state.close_circuit(&path.bucket);
        if let Place::Running { again: Some(entry) } = slot.place {
            state.make_ready(path.clone(), entry, 0);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Somebody else has persisted the object: it goes at once instead of after its pause, when there will be nothing to do for it.
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

    /// The object stays for a later try. Returns the pause.
    pub(crate) fn failed(&self, path: &ObjectPath, blame: Blame) -> Duration {
        let now = self.env.clock.monotonic();
        let mut state = self.state.lock();
        let Some(slot) = state.slots.get_mut(path) else { return Duration::ZERO };
        let was_running = matches!(slot.place, Place::Running { .. });
        let pause = match blame {
            Blame::Nobody(pause) => pause,
            Blame::Object | Blame::UnderStore => {
                slot.failures = slot.failures.saturating_add(1);
                self.pause(slot.failures, self.backoff.max)
            }
        };
        let until = now + pause;
        slot.place = Place::Delayed { until, blame };
        state.running -= usize::from(was_running);
        state.delayed.insert((until, path.clone()));
        let bucket = state.buckets.entry(path.bucket.clone()).or_default();
        let was_probe = bucket.probe.take_if(|probe| probe == path).is_some();
        match (blame, bucket.probe_at) {
            // It tells nothing of the others: the next one is the probe.
            (Blame::Nobody(_) | Blame::Object, Some(_)) if was_probe => bucket.probe_at = Some(now),
            (Blame::Nobody(_) | Blame::Object, _) => {}
            // It was under way when the circuit opened, and fails for the same reason.
            (Blame::UnderStore, Some(_)) if !was_probe => {}
            (Blame::UnderStore, _) => {
                bucket.failures = bucket.failures.saturating_add(1);
                if bucket.failures >= CIRCUIT_FAILURES {
                    bucket.probe_at = Some(now + self.pause(bucket.failures - CIRCUIT_FAILURES + 1, CIRCUIT_PAUSE_MAX));
                }
            }
        }
        drop(state);
        self.wake.notify_one();
        pause
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

    /// How long a key waits at least before it is tried: zero when it is its turn or under way, `None` when it does not wait.
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

impl State {
    fn make_ready(&mut self, path: ObjectPath, entry: Entry, failures: u32) {
        let bucket = self.buckets.entry(path.bucket.clone()).or_default();
        bucket.ready.insert((entry.dirty_since, path.clone()));
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

    /// The oldest ready object of all buckets whose circuit lets something through.
    fn take(&mut self, now: Duration) -> Option<ObjectPath> {
        if self.gather_until.is_some_and(|until| until > now) {
            return None;
        }
        self.gather_until = None;
        let open = |bucket: &Bucket| bucket.probe_at.is_some_and(|at| at > now);
        let ready = self.buckets.iter().filter(|(_, bucket)| !open(bucket));
        let (name, _) =
            ready.filter_map(|(name, b)| b.ready.first().map(|(since, _)| (name, *since))).min_by_key(|x| x.1)?;
        let name = name.clone();
        let bucket = self.buckets.get_mut(&name).expect("it has just been looked at");
        // In turn the oldest and the newest: some that always fail must not be all that is ever tried.
        let is_newest = bucket.probe_at.is_some() && (bucket.failures - CIRCUIT_FAILURES) % 2 == 1;
        let taken = if is_newest { bucket.ready.pop_last() } else { bucket.ready.pop_first() };
        let (_, path) = taken.expect("it has just been looked at");
        if bucket.probe_at.is_some() {
            // One probe only: the next may go when this one has failed, or after as long again.
            bucket.probe_at = Some(now + CIRCUIT_PAUSE_MAX);
            bucket.probe = Some(path.clone());
        }
        self.slots.get_mut(&path).expect("what is ready has a slot").place = Place::Running { again: None };
        self.running += 1;
        Some(path)
    }

    fn next_event(&self) -> Option<Duration> {
        let probes = self.buckets.values().filter(|b| !b.ready.is_empty()).filter_map(|b| b.probe_at);
        let due = self.delayed.first().map(|(until, _)| *until);
        probes.chain(due).chain(self.gather_until).min()
    }

    /// The under store has answered: what waits only for that goes on at once.
    fn close_circuit(&mut self, name: &BucketName) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        if bucket.failures == 0 {
            return;
        }
        bucket.failures = 0;
        (bucket.probe_at, bucket.probe) = (None, None);
        let waits = |slot: &Slot| matches!(slot.place, Place::Delayed { blame: Blame::UnderStore, .. });
        let of_bucket = self.slots.iter().filter(|(path, slot)| path.bucket == *name && waits(slot));
        let released: Vec<_> = of_bucket.map(|(path, slot)| (slot.until(), path.clone())).collect();
        for (until, path) in released {
            self.delayed.remove(&(until, path.clone()));
            self.release(path);
        }
    }
}

impl Slot {
    fn until(&self) -> Duration {
        match self.place {
            Place::Delayed { until, .. } => until,
            Place::Ready | Place::Running { .. } => Duration::ZERO,
        }
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
mod tests {
    use std::sync::Arc;

    use forebay_env::clock::ManualClock;

    use super::*;

    fn queue() -> (Queue, Arc<ManualClock>) {
        let (env, clock) = Env::simulated(3);
        let backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(3600) };
        (Queue::new(env, backoff, Duration::ZERO), clock)
    }

    fn path(key: &str) -> ObjectPath {
        ObjectPath::parse("bucket", key).unwrap()
    }

    fn entry(since: u64) -> Entry {
        Entry { dirty_since: Generation(since), dirty_since_ms: since }
    }

    fn take(queue: &Queue) -> Option<ObjectPath> {
        let now = queue.env.clock.monotonic();
        let mut state = queue.state.lock();
        state.release_due(now);
        state.take(now)
    }

    #[test]
    fn the_longest_dirty_goes_first_and_one_request_per_key_runs() {
        let (queue, _) = queue();
        queue.push(path("b"), entry(2));
        queue.push(path("a"), entry(3));
        queue.push(path("c"), entry(1));
        assert_eq!(take(&queue), Some(path("c")));
        queue.push(path("c"), entry(9));
        assert_eq!(take(&queue), Some(path("b")));
        assert_eq!(take(&queue), Some(path("a")));
        assert_eq!(take(&queue), None, "c runs already");
        queue.succeeded(&path("c"));
        assert_eq!(take(&queue), Some(path("c")), "c was written again while it ran");
        queue.succeeded(&path("c"));
        assert_eq!((take(&queue), queue.oldest_ms()), (None, Some(2)));
    }

    #[test]
    fn what_comes_when_nothing_is_ready_waits_for_more() {
        let (mut queue, clock) = queue();
        queue.delay = Duration::from_millis(5);
        let keys = ["a", "b", "c"].map(path);
        queue.push(keys[0].clone(), entry(1));
        clock.advance(Duration::from_millis(4));
        queue.push(keys[1].clone(), entry(2));
        assert_eq!(take(&queue), None, "more may come");
        clock.advance(Duration::from_millis(1));
        assert_eq!(take(&queue), Some(keys[0].clone()));
        queue.push(keys[2].clone(), entry(3));
        assert_eq!(
            [take(&queue), take(&queue)],
            [Some(keys[1].clone()), Some(keys[2].clone())],
            "behind others nothing waits"
        );
        for key in keys {
            queue.succeeded(&key);
        }
        queue.push(path("d"), entry(4));
        assert_eq!(take(&queue), None, "nothing was ready");
    }

    #[test]
    fn keys_that_always_fail_keep_no_other_from_being_tried() {
        let (queue, clock) = queue();
        let failing: Vec<_> = (0..20).map(|number| path(&format!("{number:02}"))).collect();
        (0..).zip(&failing).for_each(|(since, key)| queue.push(key.clone(), entry(since)));
        queue.push(path("sound"), entry(99));
        assert!(failing.iter().all(|key| take(&queue).as_ref() == Some(key)));
        for key in &failing {
            queue.failed(key, Blame::UnderStore);
        }
        clock.advance(Duration::from_secs(1));
        let oldest = take(&queue).expect("all that was under way fails for one reason, and makes one pause");
        queue.failed(&oldest, Blame::UnderStore);
        clock.advance(Duration::from_secs(2));
        assert_eq!(take(&queue), Some(path("sound")), "after the oldest comes the newest");
    }

    #[tokio::test]
    async fn whoever_asks_gets_all_that_has_gathered() {
        let (mut queue, clock) = queue();
        queue.delay = Duration::from_millis(5);
        let queue = Arc::new(queue);
        let ask = || {
            let queue = Arc::clone(&queue);
            forebay_env::spawn(async move { queue.next().await })
        };
        let asking = [ask(), ask(), ask()];
        tokio::task::yield_now().await;
        for (since, key) in ["a", "b", "c"].into_iter().enumerate() {
            queue.push(path(key), entry(since as u64));
        }
        let mut got = Vec::new();
        for one in asking {
            while !one.is_finished() {
                tokio::task::yield_now().await;
                clock.advance(Duration::from_millis(1));
            }
            got.push(one.join().await);
        }
        got.sort_unstable();
        assert_eq!(got, ["a", "b", "c"].map(path));
    }

    #[test]
    fn a_failed_object_pauses_longer_each_time_but_no_longer_than_the_maximum() {
        let (queue, clock) = queue();
        queue.push(path("a"), entry(1));
        let mut last = Duration::ZERO;
        for failures in 1..40_u32 {
            assert_eq!(take(&queue), Some(path("a")));
            let pause = queue.failed(&path("a"), Blame::Object);
            let full =
                Duration::from_secs(1).saturating_mul(1 << (failures - 1).min(20)).min(Duration::from_secs(3600));
            assert!(pause >= full / 2 && pause <= full, "{pause:?} after {failures} failures");
            assert_eq!(take(&queue), None);
            clock.advance(pause);
            last = pause;
        }
        assert!(last >= Duration::from_secs(1800));
    }

    #[test]
    fn one_success_releases_all_that_waited_for_the_under_store() {
        let (queue, clock) = queue();
        let keys: Vec<_> = (0..20).map(|n| path(&format!("k{n:02}"))).collect();
        keys.iter().enumerate().for_each(|(n, key)| queue.push(key.clone(), entry(n as u64)));
        while let Some(key) = take(&queue) {
            queue.failed(&key, Blame::UnderStore);
        }
        let ready = || queue.state.lock().buckets.values().map(|b| b.ready.len()).sum::<usize>();
        assert!(ready() >= 20 - CIRCUIT_FAILURES as usize, "an open circuit lets the rest wait without failing");
        clock.advance(CIRCUIT_PAUSE_MAX);
        let probe = take(&queue).expect("one probe goes");
        assert_eq!(take(&queue), None, "only one probe goes");
        queue.succeeded(&probe);
        let mut rest = 0;
        while take(&queue).is_some() {
            rest += 1;
        }
        assert_eq!(rest, 19);
    }

    #[test]
    fn probes_wait_longer_each_time_but_no_longer_than_the_maximum() {
        let (queue, clock) = queue();
        for n in 0..20 {
            queue.push(path(&n.to_string()), entry(n));
        }
        for _ in 0..CIRCUIT_FAILURES {
            let taken = take(&queue).unwrap();
            queue.failed(&taken, Blame::UnderStore);
        }
        let mut full = Duration::from_secs(1);
        for failures in 0..10 {
            let probe_at = queue.state.lock().buckets.values().find_map(|bucket| bucket.probe_at).unwrap();
            let pause = probe_at - queue.env.clock.monotonic();
            assert!(pause >= full / 2 && pause <= full, "{pause:?} after {failures} probes");
            clock.advance(pause);
            let probe = take(&queue).expect("a probe");
            queue.failed(&probe, Blame::UnderStore);
            full = (full * 2).min(CIRCUIT_PAUSE_MAX);
        }
    }

    #[test]
    fn a_success_in_one_bucket_says_nothing_of_another() {
        let (queue, _) = queue();
        let path = |bucket: &str, number: u64| ObjectPath::parse(bucket, &number.to_string()).unwrap();
        let count = u64::from(CIRCUIT_FAILURES) + 1;
        for number in 0..count {
            queue.push(path("bucket", number), entry(2 * number));
            queue.push(path("other", number), entry(2 * number + 1));
        }
        while let Some(taken) = take(&queue) {
            queue.failed(&taken, Blame::UnderStore);
        }
        queue.hurry(&path("bucket", 0));
        let taken: Vec<_> = std::iter::from_fn(|| take(&queue)).collect();
        assert_eq!(taken, (0..count).map(|number| path("bucket", number)).collect::<Vec<_>>());
    }

    #[test]
    fn what_somebody_else_has_persisted_does_not_wait_for_its_pause() {
        let (queue, _) = queue();
        queue.push(path("a"), entry(1));
        take(&queue).unwrap();
        queue.failed(&path("a"), Blame::Object);
        assert_eq!(take(&queue), None);
        queue.hurry(&path("a"));
        assert_eq!(take(&queue), Some(path("a")));
    }

    #[test]
    fn what_failed_together_does_not_come_back_together() {
        let (queue, _) = queue();
        for n in 0..20 {
            queue.push(path(&n.to_string()), entry(n));
        }
        let taken = std::iter::from_fn(|| take(&queue));
        let pauses: BTreeSet<_> = taken.map(|path| queue.failed(&path, Blame::Object)).collect();
        assert!(pauses.len() > 10, "{pauses:?}");
    }

    #[test]
    fn how_long_a_key_waits_is_told() {
        let (queue, clock) = queue();
        assert_eq!(queue.next_try(&path("a")), None);
        queue.push(path("a"), entry(1));
        assert_eq!(queue.next_try(&path("a")), Some(Duration::ZERO), "it is ready");
        take(&queue).unwrap();
        assert_eq!(queue.next_try(&path("a")), Some(Duration::ZERO), "it is under way");
        let pause = queue.failed(&path("a"), Blame::Object);
        assert_eq!(queue.next_try(&path("a")), Some(pause));
        clock.advance(pause);
        assert_eq!(queue.next_try(&path("a")), Some(Duration::ZERO));
    }

    #[test]
    fn an_object_that_must_wait_is_no_probe() {
        let (queue, clock) = queue();
        for n in 0..10 {
            queue.push(path(&n.to_string()), entry(n));
        }
        for _ in 0..CIRCUIT_FAILURES {
            let taken = take(&queue).unwrap();
            queue.failed(&taken, Blame::UnderStore);
        }
        assert_eq!(take(&queue), None, "the circuit is open");
        clock.advance(CIRCUIT_PAUSE_MAX);
        let first = take(&queue).unwrap();
        assert_eq!(take(&queue), None, "one probe at a time");
        queue.failed(&first, Blame::Nobody(Duration::from_secs(30)));
        assert!(take(&queue).is_some(), "nothing was sent");
    }
}
