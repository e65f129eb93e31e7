//! How slots change their home.
//!
//! A worker takes a slot that has no home, or whose home has left or was silent for a lease. Before it takes the first
//! slot of a silent worker it writes that worker's record, so that nothing the worker has sent can be done any more
//! (see `stream.rs`). Each transaction that takes slots checks that record, and those of the slots. A worker that
//! starts takes its slots up again by transactions, too, which check the records of the slots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::{Check, Engine, Error, ErrorKind, Result, Slot, SlotCount, SlotSet, records};
use forebay_env::Env;
use forebay_store::ValueWrite;

use crate::ClusterSettings;
use crate::failure_detector::{START_MAX, SharedDetector, Sign};
use crate::layout::{self, WorkerId, scan_all, slot_key, worker_key};
use crate::leaving_record::{Leaving, LeavingRecord};
use crate::member_record::{Addresses, MemberRecord};
use crate::placement::Placement;
use crate::slot_record::SlotRecord;
use crate::slots_seen::{Slots, SlotsSeen, note_change, read_slots};
use crate::stream::{Stream, WRITES_MAX};
use crate::view::{Homes, Member, MemberState, Moves, View};
use crate::worker_record::{WorkerRecord, WorkerState};

/// Slots that are taken or given up in one transaction. It has up to three more writes.
const SLOTS_MAX: usize = WRITES_MAX - 3;

/// What the engine has of slots and workers.
pub(crate) struct Seen {
    slots: Arc<Slots>,
    pub(crate) workers: BTreeMap<WorkerId, (WorkerRecord, u64)>,
    /// Only those that are about the processes that `workers` has.
    pub(crate) leaving: BTreeMap<WorkerId, Leaving>,
    /// The versions of all such records.
    pub(crate) leaving_versions: BTreeMap<WorkerId, u64>,
}

/// All workers that were not removed, and those that were.
pub(crate) struct Members {
    pub(crate) members: BTreeMap<WorkerId, Member>,
    pub(crate) removed: BTreeSet<WorkerId>,
}

/// The homes that slots had before, without those that had none. Each was the last one before this worker: a worker
/// that takes a slot notes the previous home in the same transaction.
pub(crate) type FormerHomes = BTreeMap<Slot, String>;

/// Slots to take, and the worker that they were at home at.
struct Former {
    worker: Option<WorkerId>,
    slots: Vec<Slot>,
}

/// A worker that takes and releases slots.
pub(crate) struct Ownership<'a> {
    pub(crate) env: &'a Env,
    pub(crate) engine: &'a dyn Engine,
    pub(crate) stream: &'a Stream,
    pub(crate) detector: &'a SharedDetector,
    pub(crate) slots_seen: &'a SlotsSeen,
    pub(crate) worker: &'a WorkerId,
    pub(crate) cluster: ClusterSettings,
}

/// What was not taken.
enum Left {
    Nothing,
    /// Of a worker that may live.
    SlotsOf(WorkerId, Sign),
}

impl Ownership<'_> {
    /// Those of the slots whose home is this worker. A transaction confirms what the engine has answered: a read alone
    /// may be out of date. From then on nobody takes them while this worker lives.
    ///
    /// # Errors
    /// `Unavailable` when the answer was out of date; whatever the engine answers.
    pub(crate) async fn adopt(&self, wanted: &SlotSet) -> Result<SlotSet> {
        let seen = Seen::read(self.engine).await?;
        let own = seen.own(self.worker, wanted);
        let confirmed = self.confirm(&own, &seen).await;
        match confirmed {
            Err(error) if error.kind == ErrorKind::Conflict => {
                Err(Error::new(ErrorKind::Unavailable, "what the engine has answered about slots is out of date"))
            }
            confirmed => confirmed.map(|()| own),
        }
    }

    /// # Errors
    /// `Conflict` when the engine has other records of these slots than were seen; whatever it answers.
    async fn confirm(&self, slots: &SlotSet, seen: &Seen) -> Result<()> {
        for slots in slots.iter().collect::<Vec<_>>().chunks(SLOTS_MAX) {
            let checks = slots.iter().map(|slot| seen.check(*slot)).collect();
            self.stream.commit_checked(checks, Vec::new()).await?;
        }
        Ok(())
    }

    /// See [`crate::HomeCatalog::look`]. `owned` are the slots that are at home here by now. Workers that are draining
    /// get slots only when there are no others.
    pub(crate) async fn look(&self, owned: &SlotSet, place: impl Fn(&[WorkerId]) -> Placement) -> Result<View> {
        let seen = Seen::read_with(self.engine, Some(self.slots_seen)).await?;
        let Members { members, removed } = self.members(&seen).await?;
        let lives = |worker: &WorkerId| *worker == *self.worker || members[worker].state.lives();
        let workers: Vec<WorkerId> = members.keys().filter(|worker| lives(worker)).cloned().collect();
        let stays =
            |worker: &&WorkerId| !matches!(members[*worker].state, MemberState::Draining | MemberState::Drained);
        let staying: Vec<WorkerId> = workers.iter().filter(stays).cloned().collect();
        let placement = place(if staying.is_empty() { &workers } else { &staying });
        let (mut release, mut take) = (SlotSet::none(self.cluster.slots), SlotSet::none(self.cluster.slots));
        for slot in self.cluster.slots.all() {
            let belongs_here = placement.home(slot) == Some(self.worker);
            let is_free = seen.home(slot).is_none_or(|home| !workers.iter().any(|worker| worker.as_str() == home));
            // A call that took it failed later, for other slots. While this worker lives nobody else takes it, and a
            // slot can be released only once it has been taken up.
            let is_half_taken = seen.home(slot) == Some(self.worker.as_str());
            match owned.contains(slot) {
                true if !belongs_here => release.insert(slot),
                false if is_half_taken || belongs_here && is_free => take.insert(slot),
                true | false => {}
            }
        }
        let homes = seen.homes(self.cluster.slots)?;
        Ok(View { moves: Moves { release, take }, homes, members, removed })
    }

    /// All workers that are seen, and where they are reached.
    pub(crate) async fn members(&self, seen: &Seen) -> Result<Members> {
        // After the leases were read, and before anything else is waited for.
        let (now, written_for) = (self.env.clock.monotonic(), self.stream.written_for());
        let mut told = members_told(self.engine).await?;
        let state = |worker: &WorkerId, record: &WorkerRecord, version: u64| match record.state {
            WorkerState::Live if worker == self.worker => MemberState::Live,
            WorkerState::Live => match self.detector.sign(worker, version, written_for, now) {
                Sign::Lives | Sign::None => MemberState::Live,
                Sign::Over => MemberState::Lost,
            },
            WorkerState::Left => MemberState::Left,
            WorkerState::Lost => MemberState::Lost,
        };
        let (mut members, mut removed) = (BTreeMap::new(), BTreeSet::new());
        for (worker, (record, version)) in &seen.workers {
            let state = match (state(worker, record, *version), seen.leaving.get(worker)) {
                (MemberState::Left | MemberState::Lost, Some(Leaving::Removed)) => {
                    removed.insert(worker.clone());
                    continue;
                }
                (MemberState::Live, Some(Leaving::Draining)) => MemberState::Draining,
                (MemberState::Live, Some(Leaving::Removed)) => MemberState::Drained,
                (state, _) => state,
            };
            let (addresses, version) = told.remove(worker).map(|told| (told.addresses, told.version)).unzip();
            members.insert(worker.clone(), Member { state, life: record.life, addresses, version });
        }
        Ok(Members { members, removed })
    }

    /// Makes the worker the home of these slots: of those of another one once that has left, or was silent for a lease.
    /// Returns their former homes.
    ///
    /// # Errors
    /// `Unavailable` when another worker lives and has slots, `Corrupt` for records that can't be decoded; whatever the
    /// engine answers after [`START_MAX`]. Another try is safe.
    pub(crate) async fn take(&self, wanted: &SlotSet) -> Result<FormerHomes> {
        let lease = Duration::from_millis(self.cluster.lease_ms);
        let until = self.env.clock.monotonic() + START_MAX;
        let mut former = FormerHomes::new();
        loop {
            let (error, is_final) = match self.try_to_take(wanted, &mut former).await {
                Ok(Left::Nothing) => return Ok(former),
                Ok(Left::SlotsOf(other, sign)) => {
                    let problem = format!(
                        "worker {other} of this cluster owns slots that this one should take, and its lease has not expired"
                    );
                    (Error::new(ErrorKind::Unavailable, problem), sign == Sign::Lives)
                }
                Err(error) => (error, false),
            };
            if is_final || error.kind == ErrorKind::Corrupt || self.env.clock.monotonic() >= until {
                return Err(error);
            }
            self.env.clock.sleep(lease / 20).await;
        }
    }

    /// Takes what can be taken now. Fills `former_homes` when it takes all that is left.
    async fn try_to_take(&self, wanted: &SlotSet, former_homes: &mut FormerHomes) -> Result<Left> {
        let seen = Seen::read(self.engine).await?;
        *former_homes = seen.former_homes(self.worker, wanted);
        let (now, written_for) = (self.env.clock.monotonic(), self.stream.written_for());
        let mut left = Left::Nothing;
        for former in seen.others(self.worker, wanted)? {
            let of_former = match &former.worker {
                None => None,
                Some(other) => match seen.workers.get(other) {
                    Some((record, version)) if record.state == WorkerState::Live => {
                        let sign = self.detector.sign(other, *version, written_for, now);
                        if sign == Sign::Over {
                            // The next look finds its record as that leaves it.
                            end(self.stream, other, *record, *version).await?;
                        }
                        left = Left::SlotsOf(other.clone(), sign);
                        continue;
                    }
                    Some((_, version)) => Some(Check { key: worker_key(other), version: Some(*version) }),
                    None => Some(Check { key: worker_key(other), version: None }),
                },
            };
            for slots in former.slots.chunks(SLOTS_MAX) {
                self.take_some(slots, &seen, of_former.clone()).await?;
            }
            let former_worker = former.worker.as_ref().map(WorkerId::as_str);
            tracing::info!(former = former_worker, slots = former.slots.len(), "took slots");
        }
        if matches!(left, Left::Nothing) {
            self.confirm(&seen.own(self.worker, wanted), &seen).await?;
        }
        Ok(left)
    }

    async fn take_some(&self, slots: &[Slot], seen: &Seen, of_former: Option<Check>) -> Result<()> {
        let write = |slot: &Slot| {
            let record = SlotRecord::next(seen.slots.get(slot).map(|(record, _)| record), self.worker);
            ValueWrite { key: slot_key(*slot), value: Some(record.encode()) }
        };
        // For how long this worker has sent nothing says nothing of others.
        let settled = layout::record_key(records::SETTLED_KEY, self.worker, self.cluster.slots);
        let beside = [ValueWrite { key: settled, value: None }, note_change(self.worker)];
        let writes = slots.iter().map(write).chain(beside);
        let checks = slots.iter().map(|slot| seen.check(*slot)).chain(of_former).collect();
        self.stream.commit_checked(checks, writes.collect()).await.map(drop)
    }

    /// Gives slots of this worker up, which has ended all that it was doing with them.
    ///
    /// # Errors
    /// Whatever the engine answers; `Unavailable` when the slots are lost.
    pub(crate) async fn release(&self, slots: &SlotSet) -> Result<()> {
        let seen = Seen::read(self.engine).await?;
        let own = slots.iter().filter(|slot| seen.home(*slot) == Some(self.worker.as_str()));
        for slots in own.collect::<Vec<_>>().chunks(SLOTS_MAX) {
            let found = || slots.iter().filter_map(|slot| Some((slot_key(*slot), seen.slots.get(slot)?)));
            let checks = found().map(|(key, (_, version))| Check { key, version: Some(*version) });
            let writes = found().map(|(key, (record, _))| ValueWrite { key, value: Some(record.released().encode()) });
            let writes = writes.chain([note_change(self.worker)]);
            self.stream.commit_checked(checks.collect(), writes.collect()).await?;
        }
        Ok(())
    }
}

/// Puts an end to a worker whose lease is over. Returns the version of its record.
pub(crate) async fn end(stream: &Stream, worker: &WorkerId, record: WorkerRecord, version: u64) -> Result<u64> {
    tracing::warn!(%worker, "the lease of a worker is over: its slots are taken");
    let check = Check { key: worker_key(worker), version: Some(version) };
    let record = WorkerRecord { state: WorkerState::Lost, ..record };
    let write = ValueWrite { key: worker_key(worker), value: Some(record.encode()) };
    stream.commit_checked(vec![check], vec![write]).await
}

impl Seen {
    pub(crate) async fn read(engine: &dyn Engine) -> Result<Self> {
        Self::read_with(engine, None).await
    }

    /// Reads the slots only if they have changed, when there is something to compare with.
    async fn read_with(engine: &dyn Engine, slots_seen: Option<&SlotsSeen>) -> Result<Self> {
        // Read before the workers: a worker that has started since has another life, which these records are not about.
        let mut leaving = BTreeMap::new();
        for (key, found) in scan_all(engine, layout::LEAVING_PREFIX).await? {
            let Some(worker) = layout::parse_leaving_key(&key) else { continue };
            let record = LeavingRecord::decode(&worker, &found.value)?;
            leaving.insert(worker, (record, found.version));
        }
        let slots = match slots_seen {
            Some(seen) => seen.read(engine).await?,
            None => read_slots(engine).await?,
        };
        let workers = workers(engine).await?;
        let leaving_versions = leaving.iter().map(|(worker, (_, version))| (worker.clone(), *version)).collect();
        let is_of = |worker: &WorkerId, life| workers.get(worker).is_some_and(|(record, _)| record.life == life);
        let leaving = leaving.into_iter().filter(|(worker, (record, _))| is_of(worker, record.life));
        let leaving = leaving.map(|(worker, (record, _))| (worker, record.state)).collect();
        Ok(Self { slots, workers, leaving, leaving_versions })
    }

    fn home(&self, slot: Slot) -> Option<&str> {
        self.slots.get(&slot).and_then(|(record, _)| record.home.as_deref())
    }

    /// The slot is as it was seen.
    fn check(&self, slot: Slot) -> Check {
        Check { key: slot_key(slot), version: self.slots.get(&slot).map(|(_, version)| *version) }
    }

    /// Those of the slots whose home is this worker.
    pub(crate) fn own(&self, worker: &WorkerId, wanted: &SlotSet) -> SlotSet {
        let mut own = SlotSet::none(wanted.count());
        let is_own = |slot: &Slot| self.home(*slot) == Some(worker.as_str());
        wanted.iter().filter(is_own).for_each(|slot| own.insert(slot));
        own
    }

    /// Of the worker that has these slots, or takes them now.
    fn former_homes(&self, worker: &WorkerId, wanted: &SlotSet) -> FormerHomes {
        let former = |slot: Slot| {
            let record = &self.slots.get(&slot)?.0;
            let own = record.home.as_deref() == Some(worker.as_str());
            let former = if own { record.previous.clone() } else { SlotRecord::next(Some(record), worker).previous };
            former.filter(|former| former != worker.as_str()).map(|former| (slot, former))
        };
        wanted.iter().filter_map(former).collect()
    }

    fn homes(&self, slots: SlotCount) -> Result<Homes> {
        let home = |(slot, (record, _)): (&Slot, &(SlotRecord, u64))| {
            record.home.clone().map(|home| WorkerId::new(home).map(|home| (*slot, home)))
        };
        Ok(Homes::new(slots, self.slots.iter().filter_map(home).collect::<Result<_>>()?))
    }

    /// The slots that are not at home at this worker, by their home.
    fn others(&self, worker: &WorkerId, wanted: &SlotSet) -> Result<Vec<Former>> {
        let mut found: BTreeMap<Option<WorkerId>, Vec<Slot>> = BTreeMap::new();
        for slot in wanted.iter() {
            let home = self.slots.get(&slot).and_then(|(record, _)| record.home.clone());
            let home = home.map(WorkerId::new).transpose()?;
            if home.as_ref() != Some(worker) {
                found.entry(home).or_default().push(slot);
            }
        }
        Ok(found.into_iter().map(|(worker, slots)| Former { worker, slots }).collect())
    }
}

/// The leases of all workers, with the versions of their records.
pub(crate) async fn workers(engine: &dyn Engine) -> Result<BTreeMap<WorkerId, (WorkerRecord, u64)>> {
    let workers = scan_all(engine, layout::WORKERS_PREFIX).await?.into_iter().filter_map(|(key, found)| {
        let record = WorkerRecord::decode(&found.value);
        layout::parse_worker_key(&key).map(|worker| record.map(|record| (worker, (record, found.version))))
    });
    workers.collect()
}

/// What workers have told when they started, whether they live or not.
pub(crate) async fn members_told(engine: &dyn Engine) -> Result<BTreeMap<WorkerId, MemberRecord>> {
    let mut told = BTreeMap::new();
    for (key, found) in scan_all(engine, layout::MEMBERS_PREFIX).await? {
        let Some(worker) = layout::parse_member_key(&key) else { continue };
        let record = MemberRecord::decode(&worker, &found.value)?;
        told.insert(worker, record);
    }
    Ok(told)
}

/// Where workers are reached, whether they live or not. It can be asked before this worker is in the cluster.
///
/// # Errors
/// `Corrupt` for records that can't be decoded; whatever the engine answers.
pub async fn addresses_told(engine: &dyn Engine) -> Result<BTreeMap<WorkerId, Addresses>> {
    let told = members_told(engine).await?;
    Ok(told.into_iter().map(|(worker, record)| (worker, record.addresses)).collect())
}

#[cfg(test)]
mod tests;
