//! Puts load on a server: connections, spread over threads, take operations from a source.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_env::random::SeededRandom;
use forebay_env::{Clock, Env};
use parking_lot::Mutex;
use rustix::time::ClockId;
use tokio::runtime::Builder;

use crate::failure::Failure;
use crate::homes::Homes;
use crate::http::Endpoint;
use crate::pace::{Limits, Pace, Schedule, Timer};
use crate::payload::{Hashes, Payload};
use crate::record::{Recorded, Window};
use crate::s3::{Client, Kind, Operation, Outcome, Sample, Shared};
use crate::signature::{Credentials, Signatures, Signer};

/// The approximate number of points in time of a chart.
const SLOTS: u32 = 100;
const SLOT_MIN: Duration = Duration::from_millis(100);
/// Used when no duration is given.
const SLOT_DEFAULT: Duration = Duration::from_secs(1);

/// The most operations that a connection passes over in a row. The worker may be the home of none of the keys.
const SKIPPED_MAX: u32 = 1000;

/// How to talk to a server.
#[derive(Clone)]
pub(crate) struct Server {
    /// Connections use them in turn.
    pub(crate) endpoints: Vec<Endpoint>,
    /// Known for a cluster: each operation on a key goes to the home of the key. Where the source lets it choose, a
    /// connection takes only operations on keys at one worker.
    pub(crate) homes: Option<Arc<Homes>>,
    pub(crate) credentials: Credentials,
    pub(crate) signatures: Signatures,
    pub(crate) sign_payload: bool,
    /// Whether all bodies are compared.
    pub(crate) verify: bool,
    pub(crate) timeout: Duration,
    pub(crate) payload: Arc<Payload>,
    pub(crate) env: Env,
}

/// The amount of load.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) threads: usize,
    pub(crate) connections: usize,
    pub(crate) pace: Pace,
    pub(crate) limits: Limits,
    /// Operations that end earlier than this after the start do not count.
    pub(crate) ramp_up: Duration,
    /// Operations that end later than this before the end of the duration do not count.
    pub(crate) ramp_down: Duration,
    pub(crate) seed: u64,
}

/// The state of one connection.
pub(crate) struct Seat {
    /// From 0.
    pub(crate) index: usize,
    pub(crate) of: usize,
    pub(crate) random: SeededRandom,
    /// For sources that go through a range.
    pub(crate) position: u64,
    /// For sources that list.
    pub(crate) token: Option<String>,
}

/// Where operations come from. One source serves all connections of a load.
pub(crate) trait Source: Send + Sync {
    /// `None` when this seat has nothing more to do.
    fn next(&self, seat: &mut Seat) -> Option<Operation>;

    /// Whether a seat may pass over an operation and take the next one instead.
    fn may_skip(&self) -> bool {
        false
    }

    /// Called with the outcome of an operation.
    fn done(&self, _seat: &mut Seat, _operation: Operation, _outcome: Outcome) {}
}

/// The results of a load.
pub(crate) struct Measured {
    pub(crate) recorded: Recorded,
    /// The time over which it was recorded.
    pub(crate) elapsed: Duration,
    pub(crate) slot: Duration,
    /// See [`Schedule::missed`].
    pub(crate) missed: u64,
    /// Processor time of this process.
    pub(crate) own_cpu: Duration,
}

/// Runs a load to its end.
///
/// # Errors
/// When the system has no thread or no descriptor left.
pub(crate) fn run(server: &Server, load: &Load, source: &Arc<dyn Source>) -> Result<Measured, Failure> {
    let cpu_before = own_cpu();
    let schedule = Arc::new(Schedule::new(Arc::clone(&server.env.clock), load.pace, load.limits));
    let window = window(load, schedule.start());
    let begun = Arc::new(AtomicU64::new(0));
    let thread = |number: usize| {
        let worker = Worker { server, load, schedule: &schedule, source, begun: &begun, window };
        move || worker.run(number)
    };
    let results = std::thread::scope(|scope| {
        let others: Vec<_> = (1..load.threads).map(|number| scope.spawn(thread(number))).collect();
        let first = thread(0)();
        let joined =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(first).chain(joined).collect::<Vec<_>>()
    });
    let mut recorded = Recorded::new(window);
    for result in results {
        recorded.merge(result?);
    }
    let end = server.env.clock.monotonic();
    Ok(Measured {
        recorded,
        elapsed: window.until.map_or(end, |until| until.min(end)).saturating_sub(window.from),
        slot: window.slot,
        missed: schedule.missed(begun.load(Ordering::Relaxed)),
        own_cpu: own_cpu().saturating_sub(cpu_before),
    })
}

fn window(load: &Load, start: Duration) -> Window {
    let slot = load.limits.duration.map_or(SLOT_DEFAULT, |duration| (duration / SLOTS).max(SLOT_MIN));
    let until = load.limits.duration.filter(|_| !load.ramp_down.is_zero());
    let until = until.map(|duration| start + duration.saturating_sub(load.ramp_down));
    Window { from: start + load.ramp_up, until, slot }
}

/// Processor time of this process so far.
fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// A thread and its runtime.
#[derive(Clone, Copy)]
struct Worker<'a> {
    server: &'a Server,
    load: &'a Load,
    schedule: &'a Arc<Schedule>,
    source: &'a Arc<dyn Source>,
    begun: &'a Arc<AtomicU64>,
    window: Window,
}

impl Worker<'_> {
    fn run(&self, number: usize) -> Result<Recorded, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| Failure::of("runtime", &e))?;
        let recorded = Arc::new(Mutex::new(Recorded::new(self.window)));
        runtime.block_on(async {
            let shared = Arc::new(self.shared());
            let mut tasks = Vec::new();
            for index in (number..self.load.connections).step_by(self.load.threads) {
                tasks.push(forebay_env::spawn(self.connection(index, &shared, &recorded)?.run()));
            }
            for task in tasks {
                task.join().await;
            }
            Ok::<_, Failure>(())
        })?;
        Ok(std::mem::replace(&mut *recorded.lock(), Recorded::new(self.window)))
    }

    fn shared(&self) -> Shared {
        let Server { credentials, signatures, sign_payload, verify, timeout, payload, env, .. } = self.server;
        let signer = Signer::new(credentials.clone(), *signatures, Arc::clone(&env.clock));
        Shared {
            payload: Arc::clone(payload),
            hashes: Mutex::new(Hashes::default()),
            signer: Mutex::new(signer),
            clock: Arc::clone(&env.clock),
            sign_payload: *sign_payload,
            verify: *verify,
            timeout: *timeout,
        }
    }

    fn connection(
        &self,
        index: usize,
        shared: &Arc<Shared>,
        recorded: &Arc<Mutex<Recorded>>,
    ) -> Result<Worked, Failure> {
        let Server { endpoints, homes, .. } = self.server;
        let own = index % endpoints.len();
        let client = |endpoint: &Endpoint| Client::new(endpoint.clone(), Arc::clone(shared));
        let clients = match homes {
            None => vec![client(&endpoints[own])],
            Some(_) => endpoints.iter().map(client).collect(),
        };
        let timer = matches!(self.load.pace, Pace::Open(_)).then(Timer::new).transpose();
        let random = SeededRandom::one_of_many(self.load.seed, index as u64);
        Ok(Worked {
            own: own % clients.len(),
            clients,
            homes: homes.clone(),
            seat: Seat { index, of: self.load.connections, random, position: 0, token: None },
            timer: timer.map_err(|e| Failure::of("a timer for each connection", &e))?,
            schedule: Arc::clone(self.schedule),
            source: Arc::clone(self.source),
            recorded: Arc::clone(recorded),
            begun: Arc::clone(self.begun),
        })
    }
}

/// The next operation of a seat, and the index of the worker to send it to. If the source allows it, the seat passes
/// over operations on keys whose home is not `own`. Otherwise all connections would soon wait at the slowest worker.
fn next(source: &dyn Source, seat: &mut Seat, homes: Option<&Homes>, own: usize) -> Option<(Operation, usize)> {
    let mut left = if source.may_skip() { SKIPPED_MAX } else { 0 };
    loop {
        let operation = source.next(seat)?;
        let home = homes.zip(operation.target()).and_then(|(homes, target)| homes.home_of(&target.bucket, &target.key));
        match home {
            Some(home) if home != own && left > 0 => left -= 1,
            home => return Some((operation, home.unwrap_or(own))),
        }
    }
}

/// A connection that is in use.
struct Worked {
    /// One, or one for each worker of a cluster.
    clients: Vec<Client>,
    homes: Option<Arc<Homes>>,
    /// The client of this connection's worker, also for what has no home.
    own: usize,
    seat: Seat,
    timer: Option<Timer>,
    schedule: Arc<Schedule>,
    source: Arc<dyn Source>,
    recorded: Arc<Mutex<Recorded>>,
    begun: Arc<AtomicU64>,
}

impl Worked {
    async fn run(mut self) {
        let (recorded, schedule) = (Arc::clone(&self.recorded), Arc::clone(&self.schedule));
        let record = move |sample: Sample| {
            if sample.kind != Kind::Part {
                schedule.moved(sample.bytes);
            }
            recorded.lock().add(sample);
        };
        while let Some(begin) = self.schedule.next(self.timer.as_ref()).await {
            let Some((operation, home)) = next(&*self.source, &mut self.seat, self.homes.as_deref(), self.own) else {
                return;
            };
            self.begun.fetch_add(1, Ordering::Relaxed);
            let client = &mut self.clients[home];
            let outcome = client.perform(&operation, begin, &record).await;
            self.source.done(&mut self.seat, operation, outcome);
        }
    }
}

/// Waits, as a stage of a workload does.
pub(crate) fn wait(clock: &Arc<dyn Clock>, period: Duration) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| Failure::of("runtime", &e))?;
    runtime.block_on(clock.sleep(period));
    Ok(())
}

#[cfg(test)]
mod tests;
