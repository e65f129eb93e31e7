//! The state of a governor, and its decisions.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::Env;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::Instrument;
use tracing::field::{Empty, debug};

use super::state::{Circuit, DeniedWrites, GovernorState, LastError, RefusedWrites};
use super::{CallObserver, Caller, GovernorSettings, Lane, Work, is_an_answer, is_silence, is_trouble};
use crate::{Error, ErrorKind, Result};

/// The adaptive limit is halved at most this often: requests that are in flight at the first refusal get the same
/// answer.
const HALVING_INTERVAL: Duration = Duration::from_secs(1);

/// The name of the breaker that buckets without one of their own share. No bucket has this name.
const OTHERS: &str = "*";

/// The pause before a retry of a read is this, doubled with every try. Half of it is random.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Denied writes of a bucket count until none has been denied for this long. Perhaps nobody writes there any more, and
/// no success shows that the keys have got the permission.
const DENIALS_AGE: Duration = Duration::from_secs(600);

/// A write that found no room counts for this long, unless an upload shows before that there is room. Uploads
/// that fail wait less for their next try: an hour at most, by default.
const NO_ROOM_AGE: Duration = Duration::from_secs(4200);

pub struct Governor {
    env: Env,
    settings: GovernorSettings,
    observer: Option<Arc<dyn CallObserver>>,
    state: Mutex<State>,
    freed: Notify,
}

struct State {
    running: u32,
    /// Requests of both lanes that wait for their answer.
    in_flight: u32,
    /// While there are some: when the under store answered last, or when the first of them was sent.
    silent_since: Option<Duration>,
    limit: u32,
    successes: u32,
    halved_at: Option<Duration>,
    /// When the next request and the next upload byte may go.
    next_request: Duration,
    next_byte: Duration,
    reads: Breakers,
    writes: Breakers,
    calls: u64,
    errors: u64,
    throttled: u64,
    /// By bucket, of at most [`BUCKETS_MAX`].
    denials: BTreeMap<String, Denials>,
    /// The same.
    refusals: BTreeMap<String, Refusal>,
    last_error: Option<LastError>,
}

/// Writes of a bucket that the under store has denied since it took the last one.
#[derive(Default)]
struct Denials {
    count: u64,
    last: String,
    last_at: Duration,
}

impl Denials {
    fn count_still(&self, now: Duration) -> bool {
        now.saturating_sub(self.last_at) < DENIALS_AGE
    }
}

/// The last write of a bucket for which the under store had no room, or that it could not take because it is read-only.
struct Refusal {
    kind: ErrorKind,
    bytes: u64,
    error: String,
    at: Duration,
}

impl Refusal {
    fn counts_still(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < NO_ROOM_AGE
    }
}

/// Circuit breakers by bucket: objects of one bucket that always fail do not stop any other bucket. A bucket without a
/// breaker has a closed circuit and no failures.
type Breakers = HashMap<String, Breaker>;

/// Most buckets that have a breaker of their own: more than have trouble at once, unless all have. The others share
/// one.
const BUCKETS_MAX: usize = 1000;

/// A circuit breaker. Reads and writes have one each: an under store that takes no writes, or not those of some
/// objects, may still serve reads.
#[derive(Default)]
struct Breaker {
    failures: u32,
    /// Set while the circuit is open: when the next probe may be sent.
    probe_at: Option<Duration>,
    /// Whether that probe was sent and has not been answered yet.
    probing: bool,
    openings: u32,
}

impl Breaker {
    fn circuit(&self, now: Duration) -> Circuit {
        match self.probe_at {
            None => Circuit::Closed,
            // A probe whose caller has gone away is never answered. When its time is over, the next one may be sent.
            Some(at) if self.probing && at > now => Circuit::Probing,
            Some(at) => Circuit::Open { probe_in: at.saturating_sub(now) },
        }
    }
}

impl State {
    fn breakers(&mut self, work: Work) -> &mut Breakers {
        match work {
            Work::Read => &mut self.reads,
            Work::Write => &mut self.writes,
        }
    }

    /// The breaker that stands for a bucket, if it has seen a failure.
    fn breaker(&mut self, work: Work, bucket: &str) -> Option<&mut Breaker> {
        let breakers = self.breakers(work);
        let name = if breakers.contains_key(bucket) { bucket } else { OTHERS };
        breakers.get_mut(name)
    }

    fn failing(&mut self, work: Work, bucket: &str) -> &mut Breaker {
        let breakers = self.breakers(work);
        let is_full = breakers.len() >= BUCKETS_MAX && !breakers.contains_key(bucket);
        breakers.entry(if is_full { OTHERS } else { bucket }.to_owned()).or_default()
    }

    fn denied(&mut self, bucket: &str, denial: &Error, now: Duration) {
        self.denials.retain(|_, denials| denials.count_still(now));
        // Others leave within the time that denials count.
        if self.denials.len() >= BUCKETS_MAX && !self.denials.contains_key(bucket) {
            return;
        }
        let denials = self.denials.entry(bucket.to_owned()).or_default();
        *denials = Denials { count: denials.count + 1, last: denial.to_string(), last_at: now };
    }

    fn succeeded(&mut self, work: Work, bucket: &str, now: Duration) {
        let breakers = self.breakers(work);
        let Some(closed) = breakers.remove(bucket).or_else(|| breakers.remove(OTHERS)) else { return };
        if closed.probe_at.is_some() {
            // The under store may be back for all of them: the next request shows whether it is.
            for breaker in breakers.values_mut().filter(|breaker| breaker.probe_at.is_some()) {
                (breaker.probe_at, breaker.probing) = (Some(now), false);
            }
        }
    }
}

/// A slot among the concurrent background requests.
struct Slot<'a> {
    governor: &'a Governor,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.governor.state.lock().running -= 1;
        self.governor.freed.notify_one();
    }
}

/// A request that waits for its answer.
struct InFlight<'a> {
    governor: &'a Governor,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.governor.state.lock();
        state.in_flight -= 1;
        if state.in_flight == 0 {
            state.silent_since = None;
        }
    }
}

impl Governor {
    pub fn new(env: Env, settings: GovernorSettings, observer: Option<Arc<dyn CallObserver>>) -> Self {
        let state = State {
            running: 0,
            in_flight: 0,
            silent_since: None,
            limit: settings.concurrency_max.max(1),
            successes: 0,
            halved_at: None,
            next_request: Duration::ZERO,
            next_byte: Duration::ZERO,
            reads: Breakers::default(),
            writes: Breakers::default(),
            calls: 0,
            errors: 0,
            throttled: 0,
            denials: BTreeMap::new(),
            refusals: BTreeMap::new(),
            last_error: None,
        };
        Self { env, settings, observer, state: Mutex::new(state), freed: Notify::new() }
    }

    pub fn settings(&self) -> &GovernorSettings {
        &self.settings
    }

    /// The current limit on concurrent background requests.
    pub fn limit(&self) -> u32 {
        self.state.lock().limit
    }

    /// Whether requests of a kind are refused without being sent, for any bucket.
    pub fn is_open(&self, work: Work) -> bool {
        self.state.lock().breakers(work).values().any(|breaker| breaker.probe_at.is_some())
    }

    /// What the governor knows about its under store now.
    pub fn state(&self) -> GovernorState {
        let now = self.env.clock.monotonic();
        let state = self.state.lock();
        let worst = state.reads.values().chain(state.writes.values()).max_by_key(|breaker| breaker.failures);
        let (circuit, failures_in_a_row) =
            worst.map_or((Circuit::Closed, 0), |breaker| (breaker.circuit(now), breaker.failures));
        GovernorState {
            circuit,
            failures_in_a_row,
            limit: state.limit,
            running: state.running,
            silent_for: state.silent_since.map(|since| now.saturating_sub(since)),
            calls: state.calls,
            errors: state.errors,
            throttled: state.throttled,
            last_error: state.last_error.clone(),
        }
    }

    /// The first bucket of which at least this many writes in a row were denied, the last one not long ago.
    pub fn denied_writes(&self, at_least: u64) -> Option<DeniedWrites> {
        let now = self.env.clock.monotonic();
        let state = self.state.lock();
        let mut present = state.denials.iter().filter(|(_, denials)| denials.count_still(now));
        let (bucket, denials) = present.find(|(_, denials)| denials.count >= at_least)?;
        Some(DeniedWrites { bucket: bucket.clone(), count: denials.count, last: denials.last.clone() })
    }

    /// The first bucket that the under store has no room for, or that is read-only. Other writes may have succeeded
    /// since, but no upload of as many bytes.
    pub fn refused_writes(&self) -> Option<RefusedWrites> {
        let now = self.env.clock.monotonic();
        let state = self.state.lock();
        let (bucket, refusal) = state.refusals.iter().find(|(_, refusal)| refusal.counts_still(now))?;
        Some(RefusedWrites { bucket: bucket.clone(), kind: refusal.kind, error: refusal.error.clone() })
    }

    pub(super) async fn pause_before_retry(&self, tries: u32) {
        let full = RETRY_PAUSE.saturating_mul(1 << tries.min(6));
        let jitter = Duration::from_millis(self.env.random.below(full.as_millis() as u64 / 2 + 1));
        self.env.clock.sleep(full / 2 + jitter).await;
    }

    /// Sends a request when its turn has come, and learns from the answer.
    pub(super) async fn run<T>(
        &self,
        caller: Caller<'_>,
        work: Work,
        operation: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let is_probe = self.pass_circuit(work, caller.bucket)?;
        let _slot = match caller.lane {
            Lane::Foreground => None,
            Lane::Background => Some(self.take_turn().await),
        };
        let started = self.env.clock.monotonic();
        let _in_flight = self.send(started);
        // The names follow the conventions for RPC: the under store is another service.
        let span = tracing::info_span!(
            target: forebay_env::SPANS,
            "under_store",
            otel.name = %format_args!("under_store.{operation}"),
            otel.kind = "client",
            otel.status_code = Empty,
            rpc.method = operation,
            error.type = Empty,
        );
        let result = call.instrument(span.clone()).await;
        if let Err(error) = &result {
            span.record("error.type", debug(error.kind));
            span.record("otel.status_code", "error");
        }
        let elapsed = self.env.clock.monotonic().saturating_sub(started);
        if let Some(observer) = &self.observer {
            observer.called(operation, result.as_ref().err().map(|error| error.kind), elapsed);
        }
        self.learn(work, caller.bucket, result.as_ref().err(), is_probe);
        if work == Work::Write && operation != "sweep" {
            self.learn_permission(caller.bucket, result.as_ref().err());
        }
        result
    }

    /// Returns whether the request is a probe.
    ///
    /// # Errors
    /// `Unavailable`, at once, while the circuit is open and it is not time for a probe.
    fn pass_circuit(&self, work: Work, bucket: &str) -> Result<bool> {
        let now = self.env.clock.monotonic();
        let mut state = self.state.lock();
        let Some(breaker) = state.breaker(work, bucket) else { return Ok(false) };
        match breaker.probe_at {
            None => Ok(false),
            Some(at) if at <= now => {
                // This request is the probe. The next one may be sent when it has failed, or has not been answered for
                // this long.
                breaker.probe_at = Some(now + self.settings.circuit_pause_max.0);
                breaker.probing = true;
                Ok(true)
            }
            Some(_) => Err(Error::unsent(
                "the circuit breaker of the under store is open after repeated failures: requests are refused until a probe succeeds",
            )),
        }
    }

    fn send(&self, now: Duration) -> InFlight<'_> {
        let mut state = self.state.lock();
        state.in_flight += 1;
        state.silent_since.get_or_insert(now);
        InFlight { governor: self }
    }

    async fn take_turn(&self) -> Slot<'_> {
        loop {
            let freed = self.freed.notified();
            {
                let mut state = self.state.lock();
                if state.running < state.limit {
                    state.running += 1;
                    break;
                }
            }
            freed.await;
        }
        let slot = Slot { governor: self };
        self.wait_for_rate(|state| &mut state.next_request, 1, u64::from(self.settings.requests_per_second)).await;
        slot
    }

    /// Returns when these bytes may be sent.
    pub(super) async fn wait_for_bytes(&self, bytes: u64) {
        self.wait_for_rate(|state| &mut state.next_byte, bytes, self.settings.upload_bandwidth.0).await;
    }

    /// Waits for the next free moment of a rate limit, and reserves what follows it.
    async fn wait_for_rate(&self, next: impl FnOnce(&mut State) -> &mut Duration, amount: u64, per_second: u64) {
        if per_second == 0 {
            return;
        }
        let now = self.env.clock.monotonic();
        let wait = {
            let mut state = self.state.lock();
            let next = next(&mut state);
            let at = (*next).max(now);
            *next = at + Duration::from_secs_f64(amount as f64 / per_second as f64);
            at - now
        };
        if !wait.is_zero() {
            self.env.clock.sleep(wait).await;
        }
    }

    /// Of a write: the circuit stays closed when it is denied, because the under store answers.
    fn learn_permission(&self, bucket: &str, error: Option<&Error>) {
        let now = self.env.clock.monotonic();
        let mut state = self.state.lock();
        match error {
            None => drop(state.denials.remove(bucket)),
            Some(denial) if denial.kind == ErrorKind::Denied => state.denied(bucket, denial, now),
            Some(_) => {}
        }
    }

    /// Of a write. `upload_bytes`: the size of an upload, which shows that there is room when it succeeds.
    pub(super) fn learn_room(&self, bucket: &str, upload_bytes: Option<u64>, error: Option<&Error>) {
        let now = self.env.clock.monotonic();
        let mut state = self.state.lock();
        match error {
            None => {
                let has_room = |refusal: &Refusal| {
                    let is_as_large = |bytes: u64| refusal.kind == ErrorKind::ReadOnly || bytes >= refusal.bytes;
                    upload_bytes.is_some_and(is_as_large)
                };
                if state.refusals.get(bucket).is_some_and(has_room) {
                    state.refusals.remove(bucket);
                }
            }
            Some(error) if matches!(error.kind, ErrorKind::NoSpace | ErrorKind::ReadOnly) => {
                state.refusals.retain(|_, refusal| refusal.counts_still(now));
                // Others leave within the time that refusals count.
                if state.refusals.len() < BUCKETS_MAX || state.refusals.contains_key(bucket) {
                    let before = state.refusals.get(bucket).filter(|refusal| refusal.kind == error.kind);
                    let bytes = upload_bytes.unwrap_or(0).max(before.map_or(0, |refusal| refusal.bytes));
                    let refusal = Refusal { kind: error.kind, bytes, error: error.to_string(), at: now };
                    state.refusals.insert(bucket.to_owned(), refusal);
                }
            }
            Some(_) => {}
        }
    }

    fn learn(&self, work: Work, bucket: &str, error: Option<&Error>, is_probe: bool) {
        let now = self.env.clock.monotonic();
        let mut state = self.state.lock();
        state.calls += 1;
        // Silence ends with any answer, and an error may be one.
        if error.is_none_or(|error| !is_silence(error.kind)) {
            state.silent_since = Some(now);
        }
        if let Some(breaker) = state.breaker(work, bucket) {
            breaker.probing &= !is_probe;
        }
        if let Some(error) = error.filter(|error| !is_an_answer(error.kind)) {
            state.errors += 1;
            state.throttled += u64::from(error.kind == ErrorKind::Throttled);
            state.last_error = Some(LastError { text: error.to_string(), unix_ms: self.env.clock.unix_ms() });
        }
        let Some(trouble) = error.filter(|error| is_trouble(error)) else {
            state.succeeded(work, bucket, now);
            state.successes += 1;
            if state.successes >= state.limit {
                state.successes = 0;
                state.limit = (state.limit + 1).min(self.settings.concurrency_max.max(1));
                self.freed.notify_one();
            }
            return;
        };
        if trouble.kind == ErrorKind::Throttled {
            // The under store answers: it needs fewer requests, not none.
            if is_probe {
                state.succeeded(work, bucket, now);
            }
            if state.halved_at.is_none_or(|at| now.saturating_sub(at) >= HALVING_INTERVAL) {
                state.limit = (state.limit / 2).max(1);
                state.halved_at = Some(now);
            }
            state.successes = 0;
            return;
        }
        let breaker = state.failing(work, bucket);
        breaker.failures += 1;
        // Requests that were in flight when the circuit opened fail for the same reason.
        let tells = is_probe || breaker.probe_at.is_none();
        if tells && breaker.failures >= self.settings.circuit_failures {
            let pause = self.settings.circuit_pause_min.0.saturating_mul(1 << breaker.openings.min(16));
            let pause = pause.min(self.settings.circuit_pause_max.0);
            let jitter = Duration::from_millis(self.env.random.below((pause.as_millis() as u64 / 2).max(1)));
            breaker.probe_at = Some(now + pause / 2 + jitter);
            breaker.openings += 1;
        }
    }
}
