//! Requests whose answer was lost may still be carried out. Until that can no longer happen, nothing else is sent for
//! the same key: conditions alone don't suffice, since equal content has equal tags (A, B, then A again).

mod earlier;
mod notes;

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::Catalog;
use forebay_catalog::records::SETTLED_KEY;
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicBool, Ordering};
use forebay_env::{Env, HashState};
use forebay_types::{BucketName, Generation, ObjectPath};
use tokio::sync::Mutex as AsyncMutex;

use crate::Result;
use earlier::{Earlier, Step};

/// Pause before a key is tried again when only the note is missing, at least.
const NOTE_PAUSE: Duration = Duration::from_millis(10);

/// Keys with a request that may land late.
pub(crate) struct Settle {
    env: Env,
    period: Duration,
    /// Above the generations of all earlier processes, and below those of this one.
    start: Generation,
    unsettled: Mutex<HashMap<ObjectPath, Duration>>,
    earlier: Mutex<Earlier>,
    /// Keys that a client's request of an earlier process was noted for, until it can land no more.
    earlier_requests: Mutex<BTreeSet<ObjectPath>>,
    hasher: HashState,
    /// Generations that the under store has, and whose record may be gone after a restart or not: a disk has failed.
    left: Mutex<HashMap<ObjectPath, Generation>>,
    /// Nothing more is sent: the worker stops.
    is_closed: AtomicBool,
    /// Whether slots were gained since the start: others may have sent something for their keys, and of that no note of
    /// this worker tells. Held while a note is written.
    has_gained: AsyncMutex<bool>,
}

impl Settle {
    /// # Errors
    /// Whatever the catalog answers.
    pub(crate) async fn load(env: Env, period: Duration, catalog: &dyn Catalog, start: Generation) -> Result<Self> {
        let noted = catalog.get(SETTLED_KEY).await?.map(|found| found.value);
        Ok(Self::new(env, period, start, noted))
    }

    fn new(env: Env, period: Duration, start: Generation, noted: Option<Bytes>) -> Self {
        let hasher = HashState::new(env.random.as_ref());
        let earlier = Mutex::new(Earlier::new(env.clock.monotonic(), period, start, noted));
        Self {
            env,
            period,
            start,
            unsettled: Mutex::default(),
            earlier,
            earlier_requests: Mutex::default(),
            hasher,
            left: Mutex::default(),
            is_closed: AtomicBool::new(false),
            has_gained: AsyncMutex::default(),
        }
    }

    /// What a request for a key is noted with. The next start knows by it which process has sent it.
    pub(crate) fn start(&self) -> Generation {
        self.start
    }

    /// An earlier process may have sent a request for this key: when it gave out `generation`, or later. `None`: nobody
    /// knows when.
    pub(crate) fn mark_earlier(&self, path: &ObjectPath, generation: Option<Generation>) {
        self.earlier.lock().mark(self.hasher.hash_one(path), generation);
    }

    /// The same for a request of a client. Nothing but the under store shows what it has changed.
    pub(crate) fn mark_earlier_request(&self, path: ObjectPath, generation: Option<Generation>) {
        self.mark_earlier(&path, generation);
        self.earlier_requests.lock().insert(path);
    }

    /// An earlier process may have sent a request for any key.
    pub(crate) fn mark_all_earlier(&self) {
        self.earlier.lock().mark_all();
    }

    /// These keys are not at home here any more: their next home waits for all that was sent.
    pub(crate) fn forget_all(&self, is_lost: impl Fn(&ObjectPath) -> bool) {
        self.unsettled.lock().retain(|path, _| !is_lost(path));
        self.earlier_requests.lock().retain(|path| !is_lost(path));
        self.left.lock().retain(|path, _| !is_lost(path));
    }

    /// Whether what an earlier process has sent can land no more.
    pub(crate) fn is_earlier_over(&self) -> bool {
        self.earlier.lock().is_over(self.env.clock.monotonic())
    }

    /// A request for this key has got no answer.
    pub(crate) fn mark(&self, path: &ObjectPath) {
        let until = self.env.clock.monotonic() + self.period;
        self.unsettled.lock().insert(path.clone(), until);
    }

    /// How long to wait before anything may be sent for this key; zero when nothing is on its way. This holds for the
    /// same version too: once it has succeeded its record is gone, and after a crash nobody would know of the first
    /// request.
    pub(crate) fn wait(&self, path: &ObjectPath) -> Duration {
        let now = self.env.clock.monotonic();
        let until = self.unsettled.lock().get(path).copied().unwrap_or_default();
        let earlier = self.earlier.lock().until(|| self.hasher.hash_one(path), now);
        let wait = until.max(earlier.unwrap_or_default()).saturating_sub(now);
        match earlier {
            // The longer the note is missing, the less often.
            Some(earlier) => wait.max(NOTE_PAUSE).max(now.saturating_sub(earlier) / 4),
            None if self.is_closed.load(Ordering::SeqCst) => wait.max(NOTE_PAUSE),
            None => wait,
        }
    }

    /// The under store has this generation, and the commit that says so got no answer. Nothing more is sent for it in
    /// this life: the next one may find no record, and would know of no request that may still land.
    pub(crate) fn leave(&self, path: &ObjectPath, generation: Generation) {
        self.left.lock().insert(path.clone(), generation);
    }

    pub(crate) fn is_left(&self, path: &ObjectPath, generation: Generation) -> bool {
        self.left.lock().get(path) == Some(&generation)
    }

    /// Drops what is settled by now, and tells it before anybody sees that: its request has landed or not.
    pub(crate) fn sweep(&self, tell: impl Fn(&ObjectPath)) {
        let now = self.env.clock.monotonic();
        // Both are held until all is told: a listing looks here first, and then at what was told.
        let mut unsettled = self.unsettled.lock();
        let mut earlier_requests = self.earlier_requests.lock();
        let mut settled: Vec<_> = unsettled.extract_if(|_, until| *until <= now).map(|(path, _)| path).collect();
        let earlier = self.earlier.lock();
        let is_over = |path: &ObjectPath| earlier.until(|| self.hasher.hash_one(path), now).is_none();
        settled.extend(earlier_requests.extract_if(.., |path| is_over(path)));
        drop(earlier);
        settled.sort_unstable();
        settled.iter().for_each(tell);
    }

    /// Keys of a bucket with a request that may have landed, and nobody knows when.
    pub(crate) fn unsettled_in(&self, bucket: &BucketName) -> Vec<ObjectPath> {
        let mut found: Vec<_> = self.unsettled.lock().keys().filter(|path| path.bucket == *bucket).cloned().collect();
        found.extend(self.earlier_requests.lock().iter().filter(|path| path.bucket == *bucket).cloned());
        found.sort_unstable();
        found.dedup();
        found
    }

    fn step(&self) -> Option<Step> {
        self.earlier.lock().step(self.env.clock.monotonic())
    }

    /// Whether a request for this key may still land.
    fn is_open(&self, path: &ObjectPath, now: Duration) -> bool {
        let is_unsettled = self.unsettled.lock().get(path).is_some_and(|until| *until > now);
        is_unsettled || self.earlier.lock().until(|| self.hasher.hash_one(path), now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the loop does, where every note is written.
    fn take_step(settle: &Settle) {
        if let Some(mut step) = settle.step() {
            step.is_noted = true;
            settle.earlier.lock().done(step);
        }
    }

    #[test]
    fn keys_of_an_earlier_process_wait_as_well() {
        let (env, clock) = Env::simulated(1);
        let settle = Settle::new(env, Duration::from_secs(30), Generation(100), None);
        let path = |key| ObjectPath::parse("bucket", key).unwrap();
        settle.mark_earlier(&path("first"), Some(Generation(3)));
        settle.mark_earlier(&path("last"), None);
        settle.mark(&path("now"));
        clock.advance(Duration::from_secs(10));
        settle.mark(&path("last"));
        take_step(&settle);
        assert_eq!(settle.wait(&path("first")), Duration::from_secs(20));
        assert_eq!(settle.wait(&path("last")), Duration::from_secs(30), "the later of the two");
        assert_eq!(settle.wait(&path("other")), Duration::ZERO);
        clock.advance(Duration::from_secs(20));
        assert_eq!(settle.wait(&path("first")), NOTE_PAUSE, "the note is missing");
        take_step(&settle);
        assert_eq!(settle.wait(&path("first")), Duration::ZERO);
        assert_eq!(settle.wait(&path("last")), Duration::from_secs(10));
    }

    #[test]
    fn where_nobody_knows_what_was_sent_every_key_waits() {
        let (env, clock) = Env::simulated(1);
        let settle = Settle::new(env, Duration::from_secs(30), Generation(100), None);
        let path = ObjectPath::parse("bucket", "key").unwrap();
        take_step(&settle);
        assert!(settle.is_earlier_over());
        settle.mark_all_earlier();
        assert_eq!(settle.wait(&path), Duration::from_secs(30));
        assert!(!settle.is_earlier_over());
        clock.advance(Duration::from_secs(30));
        assert!(settle.is_earlier_over());
        assert_eq!(settle.wait(&path), Duration::ZERO);
    }

    #[test]
    fn a_key_waits_until_its_request_is_settled() {
        let (env, clock) = Env::simulated(1);
        let settle = Settle::new(env, Duration::from_secs(30), Generation(100), None);
        let path = ObjectPath::parse("bucket", "key").unwrap();
        assert_eq!(settle.wait(&path), Duration::ZERO);
        settle.mark(&path);
        clock.advance(Duration::from_secs(10));
        assert_eq!(settle.wait(&path), Duration::from_secs(20));
        assert_eq!(settle.wait(&ObjectPath::parse("bucket", "other").unwrap()), Duration::ZERO);
        clock.advance(Duration::from_secs(20));
        assert_eq!(settle.wait(&path), Duration::ZERO);
    }
}
