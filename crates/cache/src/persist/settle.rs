//! A request whose answer was lost may still be executed. Until that is no longer possible, nothing else is sent for
//! the same key. Conditions alone are not enough: ETags identify content, so A→B→A defeats a conditional write.

mod earlier;
mod notes;

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::Catalog;
use forebay_catalog::records::{ObjectRecord, SETTLED_KEY, State};
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicBool, Ordering};
use forebay_env::{Env, HashState};
use forebay_types::{BucketName, ETag, Generation, ObjectPath};
use tokio::sync::Mutex as AsyncMutex;

use crate::Result;
use earlier::{Earlier, Step};

/// Minimum pause before a key is retried when only the note in the catalog is missing.
const NOTE_PAUSE: Duration = Duration::from_millis(10);

/// An upload whose outcome the record of the key does not show. Without a stamp, its object looks like one of others.
struct Unrecorded {
    /// Of the record. Other versions since then have the same base.
    dirty_since: Generation,
    generation: Generation,
    /// What the under store has answered, if it has.
    etag: Option<ETag>,
}

/// Keys with a request that may land late. The time in which the machine is suspended does not count: what is in its
/// sockets is sent when it continues.
pub(crate) struct Settle {
    env: Env,
    period: Duration,
    /// Above the generations of all earlier processes, and below those of this one.
    start: Generation,
    unsettled: Mutex<HashMap<ObjectPath, Duration>>,
    earlier: Mutex<Earlier>,
    /// Keys with the write intent of a client's request to an earlier process, until that request can no longer land.
    earlier_requests: Mutex<BTreeSet<ObjectPath>>,
    hasher: HashState,
    /// Generations that the under store has, and whose records may or may not exist after a restart, because a disk has
    /// failed.
    left: Mutex<HashMap<ObjectPath, Generation>>,
    unrecorded: Mutex<HashMap<ObjectPath, Unrecorded>>,
    /// Keys that wait, and whose last upload got no answer. A look comes before the next one.
    unanswered: Mutex<BTreeSet<ObjectPath>>,
    /// The worker stops, and nothing more is sent.
    is_closed: AtomicBool,
    /// Whether this worker has gained slots since it started. Other workers may have sent requests for their keys,
    /// which no note of this worker covers. Held while a note is written.
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
        let earlier = Mutex::new(Earlier::new(env.clock.awake(), period, start, noted));
        Self {
            env,
            period,
            start,
            unsettled: Mutex::default(),
            earlier,
            earlier_requests: Mutex::default(),
            hasher,
            left: Mutex::default(),
            unrecorded: Mutex::default(),
            unanswered: Mutex::default(),
            is_closed: AtomicBool::new(false),
            has_gained: AsyncMutex::default(),
        }
    }

    /// The generation that a write intent contains. It tells the next start which process sent the request.
    pub(crate) fn start(&self) -> Generation {
        self.start
    }

    /// An earlier process may have sent a request for this key when it issued `generation`, or later. `None`: the time
    /// is unknown.
    pub(crate) fn mark_earlier(&self, path: &ObjectPath, generation: Option<Generation>) {
        self.earlier.lock().mark(self.hasher.hash_one(path), generation);
    }

    /// Like [`Settle::mark_earlier`], for a client's request. Only the under store shows what such a request has
    /// changed.
    pub(crate) fn mark_earlier_request(&self, path: ObjectPath, generation: Option<Generation>) {
        self.mark_earlier(&path, generation);
        self.earlier_requests.lock().insert(path);
    }

    /// An earlier process may have sent a request for any key.
    pub(crate) fn mark_all_earlier(&self) {
        self.earlier.lock().mark_all();
    }

    /// This worker is no longer the home of these keys. Their next home waits for everything that was sent.
    pub(crate) fn forget_all(&self, is_lost: impl Fn(&ObjectPath) -> bool) {
        self.unsettled.lock().retain(|path, _| !is_lost(path));
        self.earlier_requests.lock().retain(|path| !is_lost(path));
        self.left.lock().retain(|path, _| !is_lost(path));
        self.unrecorded.lock().retain(|path, _| !is_lost(path));
        self.unanswered.lock().retain(|path| !is_lost(path));
    }

    /// Whether a request of an earlier process may still land, and nobody knows for which key.
    pub(crate) fn may_change_any(&self) -> bool {
        self.earlier.lock().is_about_all(self.env.clock.awake())
    }

    /// Whether requests of earlier processes can no longer land.
    pub(crate) fn is_earlier_over(&self) -> bool {
        self.earlier.lock().is_over(self.env.clock.awake())
    }

    /// A request for this key got no answer.
    pub(crate) fn mark(&self, path: &ObjectPath) {
        let until = self.env.clock.awake() + self.period;
        self.unsettled.lock().insert(path.clone(), until);
    }

    /// How long to wait before anything may be sent for this key; zero when no request can still land. This applies to
    /// a retry of the same version, too: once a retry has succeeded the record is gone, and after a crash nobody would
    /// know of the first request.
    pub(crate) fn wait(&self, path: &ObjectPath) -> Duration {
        let now = self.env.clock.awake();
        let until = self.unsettled.lock().get(path).copied().unwrap_or_default();
        let earlier = self.earlier.lock().until(|| self.hasher.hash_one(path), now);
        let wait = until.max(earlier.unwrap_or_default()).saturating_sub(now);
        match earlier {
            // The longer the note is missing, the longer the pauses.
            Some(earlier) => wait.max(NOTE_PAUSE).max(now.saturating_sub(earlier) / 4),
            None if self.is_closed.load(Ordering::SeqCst) => wait.max(NOTE_PAUSE),
            None => wait,
        }
    }

    /// The under store has this generation, but the commit that records it got no answer. This process sends nothing
    /// more for it: the next process may find no record, and would not know of a request that may still land.
    pub(crate) fn leave(&self, path: &ObjectPath, generation: Generation) {
        self.left.lock().insert(path.clone(), generation);
    }

    pub(crate) fn is_left(&self, path: &ObjectPath, generation: Generation) -> bool {
        self.left.lock().get(path) == Some(&generation)
    }

    /// The outcome of an upload of `sent` could not be recorded. `etag` is the answer, if there was one.
    pub(crate) fn unrecorded(&self, path: &ObjectPath, sent: &ObjectRecord, etag: Option<ETag>) {
        let (dirty_since, generation) = (sent.dirty_since, sent.generation);
        self.unrecorded.lock().insert(path.clone(), Unrecorded { dirty_since, generation, etag });
    }

    /// The record shows the outcome.
    pub(crate) fn recorded(&self, path: &ObjectPath) {
        self.unrecorded.lock().remove(path);
    }

    /// Whether an object without a stamp is that of an upload whose outcome `record` does not show. Returns whether the
    /// upload was certainly of this very version.
    pub(crate) fn finds_unrecorded(&self, path: &ObjectPath, record: &ObjectRecord, found: &ETag) -> Option<bool> {
        let unrecorded = self.unrecorded.lock();
        let sent = unrecorded.get(path).filter(|sent| sent.dirty_since == record.dirty_since)?;
        let is_version = sent.generation == record.generation && record.state == State::Dirty;
        match &sent.etag {
            Some(etag) => (etag == found).then_some(is_version),
            None => Some(false),
        }
    }

    /// An upload of this key got no answer.
    pub(crate) fn unanswered(&self, path: &ObjectPath) {
        self.unanswered.lock().insert(path.clone());
    }

    pub(crate) fn is_unanswered(&self, path: &ObjectPath) -> bool {
        self.unanswered.lock().contains(path)
    }

    /// What the under store has is known, or no version of the key waits any more.
    pub(crate) fn answered(&self, path: &ObjectPath) {
        self.unanswered.lock().remove(path);
    }

    /// Removes the keys that are settled by now, and calls `tell` for each before others can see it: the request has
    /// either landed or not.
    pub(crate) fn sweep(&self, tell: impl Fn(&ObjectPath)) {
        let now = self.env.clock.awake();
        // Both locks are held until `tell` has been called for all: a listing checks these keys first, and the changes
        // told afterwards.
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

    /// Keys of a bucket with a request that may have landed at an unknown time.
    pub(crate) fn unsettled_in(&self, bucket: &BucketName) -> Vec<ObjectPath> {
        let mut found: Vec<_> = self.unsettled.lock().keys().filter(|path| path.bucket == *bucket).cloned().collect();
        found.extend(self.earlier_requests.lock().iter().filter(|path| path.bucket == *bucket).cloned());
        found.sort_unstable();
        found.dedup();
        found
    }

    fn step(&self) -> Option<Step> {
        self.earlier.lock().step(self.env.clock.awake())
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

    #[test]
    fn while_the_machine_is_suspended_nothing_settles() {
        let (env, clock) = Env::simulated(1);
        let settle = Settle::new(env, Duration::from_secs(30), Generation(100), None);
        let path = |key| ObjectPath::parse("bucket", key).unwrap();
        settle.mark_earlier(&path("earlier"), None);
        settle.mark(&path("now"));
        clock.suspend(Duration::from_secs(3600));
        take_step(&settle);
        assert_eq!(settle.wait(&path("earlier")), Duration::from_secs(30));
        assert_eq!(settle.wait(&path("now")), Duration::from_secs(30));
        settle.sweep(|path| panic!("{path} is not settled"));
        clock.advance(Duration::from_secs(30));
        take_step(&settle);
        assert_eq!(settle.wait(&path("earlier")), Duration::ZERO);
        assert_eq!(settle.wait(&path("now")), Duration::ZERO);
    }
}
