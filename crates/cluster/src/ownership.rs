//! How slots change their home.
//!
//! A worker takes a slot that has no home, or whose home has left or was silent for a lease. Before it takes the first
//! slot of a silent worker it writes that worker's record, so that nothing the worker has sent can be done any more
//! (see `stream.rs`). Each transaction that takes slots checks that record, and those of the slots.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_catalog::{Check, Engine, Error, ErrorKind, Result, Versioned};
use forebay_env::Env;
use forebay_store::ValueWrite;

use crate::ClusterSettings;
use crate::layout::{self, WorkerId, slot_key, worker_key};
use crate::silence::{START_MAX, Sign, Silence};
use crate::slots::{Slot, SlotRecord};
use crate::stream::{Stream, WRITES_MAX};
use crate::worker_record::{WorkerRecord, WorkerState};

/// Records that are read in one go.
const SCANNED: usize = 1000;

/// What the engine has of slots and workers.
struct Seen {
    slots: BTreeMap<Slot, (SlotRecord, u64)>,
    workers: BTreeMap<WorkerId, (WorkerRecord, u64)>,
}

/// Slots to take, and the worker that they were at home at.
struct Former {
    worker: Option<WorkerId>,
    slots: Vec<Slot>,
}

/// Makes a worker the home of all slots: of those of another one once that has left, or was silent for a lease.
///
/// # Errors
/// `Unavailable` when another worker lives and has slots, `Corrupt` for records that can't be decoded; whatever the
/// engine answers after [`START_MAX`]. Another try is safe.
pub(crate) async fn take_all_slots(
    env: &Env,
    engine: &dyn Engine,
    stream: &Stream,
    worker: &WorkerId,
    cluster: ClusterSettings,
) -> Result<()> {
    let lease = Duration::from_millis(cluster.lease_ms);
    let until = env.clock.monotonic() + START_MAX;
    let mut silence = Silence::new(lease);
    loop {
        let result = try_to_take(env, engine, stream, worker, cluster, &mut silence).await;
        let (error, is_final) = match result {
            Ok(Left::Nothing) => return Ok(()),
            Ok(Left::SlotsOf(other, sign)) => {
                let problem = format!("worker {other} of this cluster lives, and has slots");
                (Error::new(ErrorKind::Unavailable, problem), sign == Sign::Lives)
            }
            Err(error) => (error, false),
        };
        if is_final || error.kind == ErrorKind::Corrupt || env.clock.monotonic() >= until {
            return Err(error);
        }
        env.clock.sleep(lease / 20).await;
    }
}

/// What was not taken.
enum Left {
    Nothing,
    /// Of a worker that may live.
    SlotsOf(WorkerId, Sign),
}

/// Takes what can be taken now.
async fn try_to_take(
    env: &Env,
    engine: &dyn Engine,
    stream: &Stream,
    worker: &WorkerId,
    cluster: ClusterSettings,
    silence: &mut Silence,
) -> Result<Left> {
    let seen = Seen::read(engine).await?;
    let now = env.clock.monotonic();
    let mut left = Left::Nothing;
    for former in seen.others(worker, cluster)? {
        let of_former = match &former.worker {
            None => None,
            Some(other) => match seen.workers.get(other) {
                Some((record, version)) if record.state == WorkerState::Live => {
                    let sign = silence.sign(other, *version, now);
                    if sign == Sign::Over {
                        // The next look finds its record as that leaves it.
                        end(stream, other, *record, *version).await?;
                    }
                    left = Left::SlotsOf(other.clone(), sign);
                    continue;
                }
                Some((_, version)) => Some(Check { key: worker_key(other), version: Some(*version) }),
                None => Some(Check { key: worker_key(other), version: None }),
            },
        };
        for slots in former.slots.chunks(WRITES_MAX - 2) {
            let versions = slots.iter().map(|slot| seen.slots.get(slot).map(|(_, version)| *version));
            let checks = slots.iter().zip(versions).map(|(slot, version)| Check { key: slot_key(*slot), version });
            let writes = slots.iter().map(|slot| {
                let record = SlotRecord::next(seen.slots.get(slot).map(|(record, _)| record), worker);
                ValueWrite { key: slot_key(*slot), value: Some(record.encode()) }
            });
            stream.commit_checked(checks.chain(of_former.clone()).collect(), writes.collect()).await?;
        }
        tracing::info!(former = former.worker.as_ref().map(WorkerId::as_str), slots = former.slots.len(), "took slots");
    }
    Ok(left)
}

/// Puts an end to a worker whose lease is over.
async fn end(stream: &Stream, worker: &WorkerId, record: WorkerRecord, version: u64) -> Result<()> {
    tracing::warn!(%worker, "the lease of a worker is over: its slots are taken");
    let check = Check { key: worker_key(worker), version: Some(version) };
    let record = WorkerRecord { state: WorkerState::Lost, ..record };
    let write = ValueWrite { key: worker_key(worker), value: Some(record.encode()) };
    stream.commit_checked(vec![check], vec![write]).await
}

impl Seen {
    async fn read(engine: &dyn Engine) -> Result<Self> {
        let slots = scan_all(engine, layout::SLOTS_PREFIX).await?.into_iter().filter_map(|(key, found)| {
            let record = SlotRecord::decode(&found.value);
            layout::parse_slot_key(&key).map(|slot| record.map(|record| (slot, (record, found.version))))
        });
        let slots = slots.collect::<Result<_>>()?;
        let workers = scan_all(engine, layout::WORKERS_PREFIX).await?.into_iter().filter_map(|(key, found)| {
            let record = WorkerRecord::decode(&found.value);
            layout::parse_worker_key(&key).map(|worker| record.map(|record| (worker, (record, found.version))))
        });
        Ok(Self { slots, workers: workers.collect::<Result<_>>()? })
    }

    /// The slots that are not at home at this worker, by their home.
    fn others(&self, worker: &WorkerId, cluster: ClusterSettings) -> Result<Vec<Former>> {
        let mut found: BTreeMap<Option<WorkerId>, Vec<Slot>> = BTreeMap::new();
        for slot in cluster.slots.all() {
            let home = match self.slots.get(&slot) {
                Some((record, _)) => Some(WorkerId::new(record.home.clone())?),
                None => None,
            };
            if home.as_ref() != Some(worker) {
                found.entry(home).or_default().push(slot);
            }
        }
        Ok(found.into_iter().map(|(worker, slots)| Former { worker, slots }).collect())
    }
}

async fn scan_all(engine: &dyn Engine, prefix: &[u8]) -> Result<Vec<(bytes::Bytes, Versioned)>> {
    let (mut from, to) = layout::range_of(prefix);
    let mut all = Vec::new();
    loop {
        let found = engine.scan(&from, &to, SCANNED).await?;
        let Some((last, _)) = found.last() else { return Ok(all) };
        from = forebay_catalog::records::successor(last);
        all.extend(found);
    }
}

#[cfg(test)]
mod tests;
