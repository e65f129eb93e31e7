//! What is to be fetched from other workers: each key once, those that somebody waits for first.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Env;
use forebay_env::sync::Mutex;
use forebay_types::ObjectPath;
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::{Notify, oneshot};

/// Before what could not be fetched is tried again.
const PAUSE: Duration = Duration::from_secs(1);

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
    /// May hold keys twice, and such as are not wanted any more.
    ready: VecDeque<Bytes>,
    /// After a failure: when their time comes.
    later: VecDeque<(Duration, Bytes)>,
}

struct Wanted {
    path: ObjectPath,
    /// While somebody waits for the bytes.
    waiting: Option<(oneshot::Sender<Result<(), Problem>>, Outcome)>,
    is_in_flight: bool,
    /// After a failure. What `later` has of another time is of a failure before.
    retry_at: Option<Duration>,
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
    pub(super) async fn next(&self) -> (Bytes, ObjectPath) {
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

    pub(super) fn end(&self, key: &Bytes, ended: Ended) {
        let mut state = self.state.lock();
        let Some(wanted) = state.wanted.get_mut(key) else { return };
        wanted.is_in_flight = false;
        let waiting = wanted.waiting.take();
        let result = match ended {
            Ended::Failed(problem) => {
                let retry_at = self.env.clock.monotonic() + PAUSE;
                wanted.retry_at = Some(retry_at);
                state.later.push_back((retry_at, key.clone()));
                Err(problem)
            }
            Ended::Done => {
                state.wanted.remove(key);
                Ok(())
            }
            Ended::Lost(problem) => {
                state.wanted.remove(key);
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
        self.state.lock().wanted.retain(|_, wanted| !is_lost(&wanted.path));
    }

    /// Objects and parts.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().wanted.len()
    }
}

impl State {
    fn want(&mut self, key: &Bytes, path: &ObjectPath) -> &mut Wanted {
        let new = || Wanted { path: path.clone(), waiting: None, is_in_flight: false, retry_at: None };
        self.wanted.entry(key.clone()).or_insert_with(new)
    }

    /// The next key and, if there is none, when the next one's time comes.
    fn take(&mut self, now: Duration) -> (Option<(Bytes, ObjectPath)>, Option<Duration>) {
        while let Some((at, key)) = self.later.pop_front_if(|(at, _)| *at <= now) {
            if self.wanted.get(&key).is_some_and(|wanted| wanted.retry_at == Some(at)) {
                self.ready.push_back(key);
            }
        }
        while let Some(key) = self.ready.pop_front() {
            if let Some(wanted) = self.wanted.get_mut(&key).filter(|wanted| !wanted.is_in_flight) {
                (wanted.is_in_flight, wanted.retry_at) = (true, None);
                return (Some((key, wanted.path.clone())), None);
            }
        }
        (None, self.later.front().map(|(at, _)| *at))
    }
}
