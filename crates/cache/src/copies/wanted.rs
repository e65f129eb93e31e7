//! What is to be fetched from other workers: each key once, those that somebody waits for first, and not too many at
//! once from one worker.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Env;
use forebay_env::sync::Mutex;
use forebay_types::ObjectPath;
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::{Notify, oneshot};

use crate::UnavailableBytes;

/// Objects that are fetched at once. At most half of them come from one worker.
pub(crate) const FETCHES_MAX: usize = 8;

/// Before what could not be fetched is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Fetches from one worker at once. One that does not answer, or hardly, leaves the others of [`FETCHES_MAX`].
const FETCHES_PER_WORKER_MAX: usize = 4;

/// Fetches at once from all workers that are failing, one from each. The others are for workers that answer.
const FETCHES_FROM_FAILING_MAX: usize = FETCHES_MAX / 2;

/// A worker that took as long as this to fail is failing until it answers, and is not asked again for a while. Those
/// that do not run fail at once.
const SLOW: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(5);

/// Of the keys whose bytes no worker gives, operators see at most this many by name.
const NAMED_MAX: usize = 10;

/// Why bytes did not come.
pub(super) type Problem = String;

/// What callers that wait for bytes share.
pub(super) type Outcome = Shared<oneshot::Receiver<Result<(), Problem>>>;

/// How a fetch ended.
pub(super) enum Ended {
    /// The bytes are here, or nobody wants them any more.
    Done,
    /// Every worker that may have them says that it does not.
    Lost(Problem),
    /// To be tried again.
    Failed(Problem),
    /// This worker may have the bytes, and as much as possible is being fetched from it.
    Waits(String),
}

/// Whether another worker may be asked for bytes now.
pub(super) enum Turn<'a> {
    Now(Place<'a>),
    /// As much as possible is being fetched from it.
    Full,
    /// It did not answer a moment ago.
    Silent,
}

/// A fetch from a worker, counted until this is dropped.
pub(super) struct Place<'a> {
    copies: &'a WantedCopies,
    worker: String,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.copies.state.lock().leave(&self.worker);
        self.copies.changed.notify_one();
    }
}

/// What one task is to fetch.
#[derive(Debug, Clone)]
pub(super) struct Fetch {
    pub(super) key: Bytes,
    pub(super) path: ObjectPath,
    /// When the slot of a key is lost and gained during a fetch, the key is wanted again, under another number.
    number: u64,
}

pub(crate) struct WantedCopies {
    env: Env,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// By the keys of the records.
    wanted: BTreeMap<Bytes, Wanted>,
    /// The number of the newest of them.
    newest: u64,
    /// May hold keys twice, and such as are not wanted any more.
    ready: VecDeque<Bytes>,
    /// After a failure: when their time comes.
    later: VecDeque<(Duration, Bytes)>,
    /// By the worker that they wait for. The same holds for them.
    for_worker: BTreeMap<String, VecDeque<Bytes>>,
    /// How many are fetched from each worker.
    fetched_from: BTreeMap<String, usize>,
    /// Workers that did not answer when they were asked last, and when they are asked again.
    failing: BTreeMap<String, Duration>,
    /// How many could not be fetched at the last try.
    failed: usize,
    /// Some of these, so that memory is bounded. Others follow at their next try when one of them is not wanted any
    /// more.
    named: BTreeMap<Bytes, UnavailableBytes>,
}

/// Bytes that another worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    OnItsWay,
    /// The worker that may have them did not give them at the last try.
    OutOfReach,
}

struct Wanted {
    path: ObjectPath,
    number: u64,
    /// While somebody waits for the bytes.
    waiting: Option<(oneshot::Sender<Result<(), Problem>>, Outcome)>,
    is_in_flight: bool,
    /// After a failure. What `later` has of another time is of a failure before.
    retry_at: Option<Duration>,
    /// Since the first failure, in milliseconds since 1970.
    failed_since_ms: Option<u64>,
}

impl WantedCopies {
    pub(crate) fn new(env: Env) -> Self {
        Self { env, state: Mutex::default(), changed: Notify::new() }
    }

    /// Wants the bytes that the record under `key` names. `path` is the object that they belong to.
    pub(crate) fn add(&self, key: Bytes, path: &ObjectPath) {
        let mut state = self.state.lock();
        if !state.wanted.contains_key(&key) {
            state.want(&key, path);
            state.ready.push_back(key);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// The same, before all others.
    pub(super) fn wait(&self, key: Bytes, path: &ObjectPath) -> Outcome {
        let mut state = self.state.lock();
        if let Some((_, outcome)) = state.wanted.get(&key).and_then(|wanted| wanted.waiting.as_ref()) {
            return outcome.clone();
        }
        let (sender, outcome) = oneshot::channel();
        let outcome = outcome.shared();
        state.want(&key, path).waiting = Some((sender, outcome.clone()));
        state.ready.push_front(key);
        drop(state);
        self.changed.notify_one();
        outcome
    }

    /// The next key whose bytes are to be fetched, when it is time.
    pub(super) async fn next(&self) -> Fetch {
        loop {
            let changed = self.changed.notified();
            let now = self.env.clock.monotonic();
            let (next, more) = self.state.lock().take(now);
            if let Some(next) = next {
                // For the next task that fetches.
                self.changed.notify_one();
                return next;
            }
            match more {
                Some(at) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = self.env.clock.sleep(at.saturating_sub(now)) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Before another worker is asked for bytes.
    pub(super) fn turn(&self, worker: &str) -> Turn<'_> {
        let now = self.env.clock.monotonic();
        let mut state = self.state.lock();
        if state.failing.get(worker).is_some_and(|until| now < *until) {
            return Turn::Silent;
        }
        if !state.has_room(worker) {
            return Turn::Full;
        }
        *state.fetched_from.entry(worker.to_owned()).or_default() += 1;
        Turn::Now(Place { copies: self, worker: worker.to_owned() })
    }

    /// Another worker has failed, after this time in which it was waited for.
    pub(super) fn has_failed(&self, worker: &str, waited: Duration) {
        if waited >= SLOW {
            let until = self.env.clock.monotonic() + SILENCE;
            self.state.lock().failing.insert(worker.to_owned(), until);
        }
    }

    /// Another worker has given bytes, or says that it has none. Called before its place is dropped.
    pub(super) fn has_answered(&self, worker: &str) {
        self.state.lock().failing.remove(worker);
    }

    pub(super) fn end(&self, fetch: &Fetch, ended: Ended) {
        let key = &fetch.key;
        let mut state = self.state.lock();
        let Some(wanted) = state.wanted.get_mut(key).filter(|wanted| wanted.number == fetch.number) else { return };
        wanted.is_in_flight = false;
        let waiting = wanted.waiting.take();
        let result = match ended {
            Ended::Waits(worker) => {
                let is_first = waiting.is_some();
                wanted.waiting = waiting;
                let keys = state.for_worker.entry(worker).or_default();
                match is_first {
                    true => keys.push_front(key.clone()),
                    false => keys.push_back(key.clone()),
                }
                return;
            }
            Ended::Failed(problem) => {
                let retry_at = self.env.clock.monotonic() + PAUSE;
                wanted.retry_at = Some(retry_at);
                state.later.push_back((retry_at, key.clone()));
                state.note_failure(key, &problem, self.env.clock.unix_ms());
                Err(problem)
            }
            Ended::Done => {
                state.forget(key);
                Ok(())
            }
            Ended::Lost(problem) => {
                state.forget(key);
                Err(problem)
            }
        };
        drop(state);
        self.changed.notify_one();
        // All who waited may have gone away.
        let _ = waiting.map(|(sender, _)| sender.send(result));
    }

    /// What belongs to these paths is not wanted any more.
    pub(crate) fn drop_all(&self, is_lost: impl Fn(&ObjectPath) -> bool) {
        let state = &mut *self.state.lock();
        state.wanted.retain(|key, wanted| {
            let stays = !is_lost(&wanted.path);
            if !stays && wanted.failed_since_ms.is_some() {
                state.failed -= 1;
                state.named.remove(key);
            }
            stays
        });
    }

    /// Whether the bytes that the record under `key` names are still to be fetched, and whether a try has failed.
    pub(crate) fn awaited(&self, key: &[u8]) -> Option<Awaited> {
        let state = self.state.lock();
        let failed = state.wanted.get(key)?.failed_since_ms.is_some();
        Some(if failed { Awaited::OutOfReach } else { Awaited::OnItsWay })
    }

    /// Objects and parts.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().wanted.len()
    }

    /// Of these, how many no worker gave at the last try, and some of them.
    pub(crate) fn unavailable(&self) -> (usize, Vec<UnavailableBytes>) {
        let state = self.state.lock();
        (state.failed, state.named.values().cloned().collect())
    }
}

impl State {
    fn want(&mut self, key: &Bytes, path: &ObjectPath) -> &mut Wanted {
        self.wanted.entry(key.clone()).or_insert_with(|| {
            self.newest += 1;
            Wanted {
                path: path.clone(),
                number: self.newest,
                waiting: None,
                is_in_flight: false,
                retry_at: None,
                failed_since_ms: None,
            }
        })
    }

    fn note_failure(&mut self, key: &Bytes, problem: &str, now_ms: u64) {
        let Some(wanted) = self.wanted.get_mut(key) else { return };
        if wanted.failed_since_ms.is_none() {
            self.failed += 1;
        }
        let since_ms = *wanted.failed_since_ms.get_or_insert(now_ms);
        if self.named.len() < NAMED_MAX || self.named.contains_key(key) {
            let named = UnavailableBytes { path: format!("/{}", wanted.path), since_ms, problem: problem.to_owned() };
            self.named.insert(key.clone(), named);
        }
    }

    /// It is not wanted any more.
    fn forget(&mut self, key: &Bytes) {
        if self.wanted.remove(key).is_some_and(|wanted| wanted.failed_since_ms.is_some()) {
            self.failed -= 1;
            self.named.remove(key);
        }
    }

    /// The next key and, if there is none, when the next one's time comes.
    fn take(&mut self, now: Duration) -> (Option<Fetch>, Option<Duration>) {
        while let Some((at, key)) = self.later.pop_front_if(|(at, _)| *at <= now) {
            if self.wanted.get(&key).is_some_and(|wanted| wanted.retry_at == Some(at)) {
                self.ready.push_back(key);
            }
        }
        while let Some(key) = self.next_key() {
            if let Some(wanted) = self.wanted.get_mut(&key).filter(|wanted| !wanted.is_in_flight) {
                (wanted.is_in_flight, wanted.retry_at) = (true, None);
                return (Some(Fetch { key, path: wanted.path.clone(), number: wanted.number }), None);
            }
        }
        (None, self.later.front().map(|(at, _)| *at))
    }

    /// What a request waits for, then one that is ready, or that waits for a worker with room: for the one from which
    /// least is fetched.
    fn next_key(&mut self) -> Option<Bytes> {
        let urgent = self.worker_of_urgent();
        if urgent.is_none()
            && let Some(key) = self.ready.pop_front()
        {
            return Some(key);
        }
        let count = |worker: &str| self.fetched_from.get(worker).copied().unwrap_or_default();
        let least_asked = || {
            let with_room = self.for_worker.keys().filter(|worker| self.has_room(worker));
            with_room.min_by_key(|worker| count(worker.as_str())).cloned()
        };
        let worker = urgent.or_else(least_asked)?;
        let keys = self.for_worker.get_mut(&worker)?;
        let key = keys.pop_front();
        if keys.is_empty() {
            self.for_worker.remove(&worker);
        }
        key
    }

    /// A worker with room from which a key is to come that a request waits for. Such keys are in front.
    fn worker_of_urgent(&self) -> Option<String> {
        let is_urgent = |key: &Bytes| self.wanted.get(key).is_some_and(|wanted| wanted.waiting.is_some());
        let mut with_room = self.for_worker.iter().filter(|(worker, _)| self.has_room(worker));
        with_room.find(|(_, keys)| keys.front().is_some_and(is_urgent)).map(|(worker, _)| worker.clone())
    }

    fn has_room(&self, worker: &str) -> bool {
        let count = |worker: &str| self.fetched_from.get(worker).copied().unwrap_or_default();
        if !self.failing.contains_key(worker) {
            return count(worker) < FETCHES_PER_WORKER_MAX;
        }
        let of_failing = self.failing.keys().map(|worker| count(worker.as_str())).sum::<usize>();
        count(worker) == 0 && of_failing < FETCHES_FROM_FAILING_MAX
    }

    /// A fetch from this worker has ended.
    fn leave(&mut self, worker: &str) {
        let count = self.fetched_from.get_mut(worker).expect("a fetch from it is counted");
        *count -= 1;
        if *count == 0 {
            self.fetched_from.remove(worker);
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::Clock;

    use super::*;

    fn path_of(number: usize) -> ObjectPath {
        ObjectPath::parse("bucket", &format!("{number:02}")).expect("a path")
    }

    fn key_of(number: usize) -> Bytes {
        format!("key {number:02}").into()
    }

    #[tokio::test]
    async fn what_nobody_gives_is_counted_once_and_some_of_it_is_named() {
        let (env, clock) = Env::simulated(0);
        let copies = WantedCopies::new(env);
        for number in 0..NAMED_MAX + 5 {
            copies.add(key_of(number), &path_of(number));
        }
        let fail = async |problem: &str| {
            for _ in 0..copies.count() {
                let fetch = copies.next().await;
                copies.end(&fetch, Ended::Failed(problem.to_owned()));
            }
        };
        assert_eq!(copies.unavailable(), (0, Vec::new()));
        let began_ms = clock.unix_ms();
        fail("w1 is silent").await;
        clock.advance(PAUSE);
        fail("w1 does not run").await;
        let (failed, named) = copies.unavailable();
        assert_eq!((failed, named.len()), (NAMED_MAX + 5, NAMED_MAX));
        let first =
            UnavailableBytes { path: "/bucket/00".into(), since_ms: began_ms, problem: "w1 does not run".into() };
        assert_eq!(named.first(), Some(&first));

        clock.advance(PAUSE);
        let (first, second) = (copies.next().await, copies.next().await);
        copies.end(&first, Ended::Done);
        copies.end(&second, Ended::Lost("it is gone".to_owned()));
        copies.drop_all(|path| *path == path_of(2));
        let (failed, named) = copies.unavailable();
        assert_eq!((failed, named.len()), (NAMED_MAX + 2, NAMED_MAX - 3));
        fail("w1 does not run").await;
        let (failed, named) = copies.unavailable();
        assert_eq!((failed, named.len()), (NAMED_MAX + 2, NAMED_MAX), "others are named in their place");
        copies.drop_all(|_| true);
        assert_eq!(copies.unavailable(), (0, Vec::new()));
    }

    /// Those that a request waits for come first.
    #[tokio::test]
    async fn what_is_to_come_from_a_busy_worker_waits_for_it_and_nothing_else_does() {
        let copies = WantedCopies::new(Env::simulated(0).0);
        let places: Vec<_> = (0..FETCHES_PER_WORKER_MAX).map(|_| copies.turn("busy")).collect();
        assert!(places.iter().all(|turn| matches!(turn, Turn::Now(_))));
        assert!(matches!(copies.turn("busy"), Turn::Full) && matches!(copies.turn("other"), Turn::Now(_)));
        for number in 0..3 {
            copies.add(key_of(number), &path_of(number));
            let fetch = copies.next().await;
            copies.end(&fetch, Ended::Waits("busy".to_owned()));
        }
        let outcome = copies.wait(key_of(2), &path_of(2));
        let fetch = copies.next().await;
        assert_eq!(fetch.key, key_of(2));
        copies.end(&fetch, Ended::Waits("busy".to_owned()));
        assert!(copies.next().now_or_never().is_none(), "there is no room");
        copies.add(key_of(3), &path_of(3));
        drop(places);
        for (number, left) in [(2, 3), (3, 2), (0, 1), (1, 0)] {
            let fetch = copies.next().await;
            assert_eq!(fetch.key, key_of(number));
            copies.end(&fetch, Ended::Done);
            assert_eq!(copies.count(), left);
        }
        assert!(matches!(outcome.now_or_never(), Some(Ok(Ok(())))), "who waited is answered");
        assert!(copies.next().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_worker_that_is_slow_to_fail_is_not_asked_for_a_while() {
        let (env, clock) = Env::simulated(0);
        let copies = WantedCopies::new(env);
        copies.has_failed("away", Duration::ZERO);
        assert!(matches!(copies.turn("away"), Turn::Now(_)), "it fails at once");
        copies.has_failed("hangs", SLOW);
        clock.advance(SILENCE - Duration::from_millis(1));
        assert!(matches!(copies.turn("hangs"), Turn::Silent) && matches!(copies.turn("away"), Turn::Now(_)));
        clock.advance(Duration::from_millis(1));
        assert!(matches!(copies.turn("hangs"), Turn::Now(_)));
    }

    #[tokio::test]
    async fn workers_that_are_failing_leave_half_of_all_places_to_others() {
        let (env, clock) = Env::simulated(0);
        let copies = WantedCopies::new(env);
        let failing: Vec<String> = (0..FETCHES_MAX).map(|number| format!("fails {number}")).collect();
        failing.iter().for_each(|worker| copies.has_failed(worker, SLOW));
        clock.advance(SILENCE);
        let mut places: Vec<Place<'_>> = Vec::new();
        for (number, worker) in failing.iter().enumerate() {
            match copies.turn(worker) {
                Turn::Now(place) => places.push(place),
                Turn::Full => assert!(number >= FETCHES_MAX / 2),
                Turn::Silent => panic!("it may be asked again"),
            }
            assert!(matches!(copies.turn(worker), Turn::Full), "one at a time");
        }
        assert_eq!(places.len(), FETCHES_MAX / 2);
        // What is to come from a worker that answers is not behind what has no place.
        for (number, worker) in [(0, "fails 7"), (1, "well")] {
            copies.add(key_of(number), &path_of(number));
            let fetch = copies.next().await;
            copies.end(&fetch, Ended::Waits(worker.to_owned()));
        }
        let of_well: Vec<_> = (0..FETCHES_MAX / 2).map(|_| copies.turn("well")).collect();
        assert!(of_well.iter().all(|turn| matches!(turn, Turn::Now(_))));
        drop(of_well);
        let fetch = copies.next().now_or_never().expect("there is room");
        assert_eq!(fetch.key, key_of(1));
        assert!(copies.next().now_or_never().is_none());
        copies.has_answered("fails 0");
        drop(places.remove(0));
        let fetch = copies.next().now_or_never().expect("there is room for one that fails");
        assert_eq!(fetch.key, key_of(0));
        let of_well: Vec<_> = (0..FETCHES_PER_WORKER_MAX).map(|_| copies.turn("fails 0")).collect();
        assert!(of_well.iter().all(|turn| matches!(turn, Turn::Now(_))), "it answers");
    }

    /// The slot of the key is lost and gained during the fetch.
    #[tokio::test]
    async fn the_end_of_a_fetch_is_not_that_of_a_later_want() {
        let copies = WantedCopies::new(Env::simulated(0).0);
        copies.add(key_of(0), &path_of(0));
        let old = copies.next().await;
        copies.drop_all(|_| true);
        copies.add(key_of(0), &path_of(0));
        copies.end(&old, Ended::Done);
        assert_eq!(copies.count(), 1, "nobody has fetched it");
        let new = copies.next().await;
        copies.end(&new, Ended::Done);
        assert_eq!(copies.count(), 0);
    }
}
