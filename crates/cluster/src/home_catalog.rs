//! The catalog of a worker that is at home on an engine. The store's table of values shows what the engine has, so that
//! lookups stay local; every commit is done on the engine first, when the bytes that it names are safe here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_catalog::records::Scope;
use forebay_catalog::{
    Catalog, Check, CommitLocks, Engine, Error, ErrorKind, Generations, Result, Slot, SlotCount, SlotSet, Transaction,
    Versioned, Watch, Watchers, keys_of, records, verify,
};
use forebay_env::Env;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_env::sync::{Mutex, RwLock};
use forebay_store::{Commit, Staged, Store, ValueWrite};
use forebay_types::{Durability, Generation};
use tokio::sync::{Mutex as AsyncMutex, RwLock as AsyncRwLock};
use tracing::Instrument;

use crate::ClusterSettings;
use crate::copy_floors::{CopyFloors, FLOORS_KEY};
use crate::engine_note::engine_note;
use crate::failure_detector::SharedDetector;
use crate::generations::{Blocks, above_all_given};
use crate::incarnations::Incarnations;
use crate::layout::{self, BEHIND_ALL, WorkerId};
use crate::leaving::LeavingResult;
use crate::member_record::{Addresses, MemberRecord};
use crate::ownership::{FormerHomes, Ownership};
use crate::placement::Placement;
use crate::retry::tried;
use crate::shared_revision::Revision;
use crate::slots_seen::SlotsSeen;
use crate::stream::{Former, Stream};
use crate::under_stores::Look;
use crate::view::View;

/// Values that are compared, or written, in one go at a start.
const LOADED_VALUES: usize = 1000;

/// Slots that are compared in one go at a start: all their records are in memory meanwhile.
const LOADED_SLOTS: usize = 64;

/// All keys of the catalog.
const ALL_KEYS: &[(&[u8], &[u8])] = &[(b"", BEHIND_ALL)];

/// How often shared records are read again, or a change of them is tried again, because another worker was quicker.
/// They change when operators change something, so once is nearly always enough.
const SHARED_TRIES: usize = 100;

#[derive(Debug, Clone)]
pub struct HomeSettings {
    pub worker: WorkerId,
    /// The only worker: it takes all slots at the start, and refuses to start beside another one. Without, it starts
    /// with the slots that were at home here, and changes them as [`HomeCatalog::look`] says.
    pub is_alone: bool,
    /// For a new cluster. One that is there keeps its own.
    pub cluster: ClusterSettings,
    /// Where others reach this worker; `None` when they do not.
    pub addresses: Option<Addresses>,
    /// Where objects go: values, or their digests, by the names of settings. What two workers both tell must be the
    /// same. Told with the addresses.
    pub under_stores: BTreeMap<String, String>,
}

/// A [`Catalog`] on an [`Engine`].
pub struct HomeCatalog {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    store: Store,
    engine: Arc<dyn Engine>,
    worker: WorkerId,
    cluster: ClusterSettings,
    stream: Stream,
    /// The process before this one.
    former: Former,
    detector: SharedDetector,
    slots_seen: SlotsSeen,
    /// The slots that are at home here.
    owned: RwLock<SlotSet>,
    /// See [`Catalog::former_home`]. Only of slots that this process has got from others.
    former_homes: RwLock<FormerHomes>,
    /// Commits hold it shared. A caller that waits for the end of all commits that have begun takes it exclusively.
    commits: AsyncRwLock<()>,
    /// Commits on one key go one after the other: a check must still hold when the commit is done, here and on the
    /// engine.
    locks: Arc<CommitLocks>,
    watchers: Watchers,
    /// The state of the shared records that the store shows. Held from the checks of a transaction with such records to
    /// its end, and while the changes of other workers are taken over: so these go one after the other.
    shared: AsyncMutex<Revision>,
    /// See [`Catalog::shared_changes`].
    shared_changes: AtomicU64,
    /// Prepared for commits of which it is not known what became, and kept until the next start.
    undecided: Mutex<Vec<Staged>>,
    /// See [`Catalog::take_unnamed`].
    unnamed: Mutex<Vec<Staged>>,
}

impl HomeCatalog {
    /// Takes slots, and makes the store show what the engine has of them: its values, and the prepared objects that
    /// these name.
    ///
    /// # Errors
    /// `Unavailable` when the engine does not answer in time, or another worker of the cluster lives; `Corrupt` for
    /// records that can't be decoded; whatever the store answers.
    pub async fn open(env: Env, store: Store, engine: Arc<dyn Engine>, settings: HomeSettings) -> Result<Self> {
        let HomeSettings { worker, is_alone, cluster, addresses, under_stores } = settings;
        let cluster = tried(&env, || ClusterSettings::load(engine.as_ref(), cluster)).await?;
        let lives = Incarnations::begin(&env, &store).await;
        // What an earlier life has sent is done by now, or never.
        let lease = Duration::from_millis(cluster.lease_ms);
        let (stream, former) =
            Stream::begin(&env, Arc::clone(&engine), &worker, lives.own, lease, |life| lives.had(life)).await?;
        let (locks, watchers) = (Arc::default(), Watchers::default());
        let (undecided, unnamed) = (Mutex::default(), Mutex::default());
        let owned = RwLock::new(SlotSet::none(cluster.slots));
        let commits = AsyncRwLock::default();
        let (detector, slots_seen) = (SharedDetector::new(lease), SlotsSeen::default());
        let (shared, shared_changes) = (AsyncMutex::default(), AtomicU64::new(0));
        let inner = Inner {
            env,
            store,
            engine,
            worker,
            cluster,
            stream,
            former,
            detector,
            slots_seen,
            owned,
            former_homes: RwLock::default(),
            commits,
            locks,
            watchers,
            shared,
            shared_changes,
            undecided,
            unnamed,
        };
        tried(&inner.env, || inner.forget_earlier_life(lives.own)).await?;
        let told = addresses.map(|addresses| MemberRecord::new(addresses, under_stores.clone()));
        inner.tell(told).await?;
        inner.check_under_stores(&under_stores).await?;
        inner.load_shared(&mut *inner.shared.lock().await).await?;
        inner.load_own().await?;
        let all = SlotSet::none(cluster.slots).others();
        let own = match is_alone {
            true => all.clone(),
            false => tried(&inner.env, || inner.adopt(&all)).await?,
        };
        let others = own.others();
        let is_elsewhere = |scope| matches!(scope, Scope::Path(hash) if others.has_hash(hash));
        inner.replace_values(HashMap::new(), ALL_KEYS, is_elsewhere).await;
        // Also those of other slots: they may be asked for by the new homes.
        inner.drop_stale_copies(&all).await?;
        inner.take(&own).await?;
        inner.publish_prepared().await?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// How many slots the cluster has.
    pub fn slot_count(&self) -> SlotCount {
        self.inner.cluster.slots
    }

    /// Looks at all slots and workers, and compares where slots are with where they should be: `place` says that of the
    /// workers that live, this one included.
    ///
    /// # Errors
    /// `Corrupt` for records that can't be decoded; whatever the engine answers.
    pub async fn look(&self, place: impl Fn(&[WorkerId]) -> Placement) -> Result<View> {
        let owned = self.inner.owned.read().clone();
        self.inner.ownership().look(&owned, place).await
    }

    /// Writes a record that is of no path. Only the process that has the worker's stream can.
    ///
    /// # Errors
    /// `Unavailable` when this process was ended by another one; whatever the engine answers.
    pub async fn note(&self, write: ValueWrite) -> Result<()> {
        self.inner.stream.commit(vec![write]).await
    }

    /// Makes this worker the home of more slots. Their records can be read and changed from here on.
    ///
    /// # Errors
    /// `Unavailable` when another worker lives and has some of them; `Corrupt` for records that can't be decoded;
    /// whatever the engine answers, and another try is safe then.
    pub async fn take(&self, slots: &SlotSet) -> Result<()> {
        self.inner.take(slots).await
    }

    /// Gives up slots. Commits that have begun end before; all later ones are refused.
    ///
    /// # Errors
    /// Whatever the engine answers. The slots are not given up then, but nothing is done with them any more.
    pub async fn release(&self, slots: &SlotSet) -> Result<()> {
        self.inner.release(slots).await
    }

    /// Why this process is the home of nothing any more: another worker has taken its place after its lease. It has to
    /// start again.
    pub fn lost(&self) -> Option<String> {
        self.inner.stream.lost()
    }

    /// Marks a worker as draining: it gets no more slots, and gives up those that it has. A new start of it ends that.
    /// It may be this worker, and one that is draining already.
    ///
    /// # Errors
    /// All but [`LeavingError::Lives`](crate::LeavingError::Lives).
    pub async fn drain(&self, worker: &WorkerId) -> LeavingResult {
        self.inner.ownership().drain(worker).await
    }

    /// Notes that a worker which does not live will never come back: nobody waits for its bytes. If it starts again,
    /// it joins as any worker does.
    ///
    /// # Errors
    /// All but [`LeavingError::IsDead`](crate::LeavingError::IsDead) and
    /// [`LeavingError::IsLast`](crate::LeavingError::IsLast).
    pub async fn remove(&self, worker: &WorkerId) -> LeavingResult {
        self.inner.ownership().remove(worker).await
    }

    /// Notes that this worker has been drained: from the end of this process on, nobody waits for its bytes. It must
    /// have no slots, and take none any more.
    ///
    /// # Errors
    /// [`LeavingError::Engine`](crate::LeavingError::Engine).
    pub async fn retire(&self) -> LeavingResult {
        self.inner.ownership().retire().await
    }

    /// Tells the others that this worker has stopped, so that they need not wait for the end of its lease. Nothing is
    /// read or written any more. A worker that has been drained takes with it what it has noted of jobs.
    ///
    /// # Errors
    /// `Unavailable` when the slots are lost.
    pub async fn leave(&self) -> Result<()> {
        self.inner.ownership().leave().await
    }
}

impl Inner {
    fn ownership(&self) -> Ownership<'_> {
        let Self { env, stream, detector, slots_seen, worker, cluster, .. } = self;
        Ownership { env, engine: self.engine.as_ref(), stream, detector, slots_seen, worker, cluster: *cluster }
    }

    async fn adopt(&self, slots: &SlotSet) -> Result<SlotSet> {
        self.ownership().adopt(slots).await
    }

    async fn forget_earlier_life(&self, life: u64) -> Result<()> {
        self.ownership().forget_earlier_life(life).await
    }

    async fn take(&self, slots: &SlotSet) -> Result<()> {
        // Before the slots are taken: a later try, or a start, would take them for slots that were here all the time.
        let mut others = slots.clone();
        others.take_off(&tried(&self.env, || self.adopt(slots)).await?);
        self.note_floors(&others).await?;
        self.evict_copies(&others);
        let former_homes = self.ownership().take(&others).await?;
        {
            let mut known = self.former_homes.write();
            known.retain(|slot, _| !slots.contains(*slot));
            // Not of this worker's own slots: they may have been changed here since.
            known.extend(former_homes);
        }
        // What was changed for all while another worker was their home holds for these slots from the beginning.
        self.follow_shared().await?;
        self.show_settled().await?;
        let slots_of: Vec<Slot> = slots.iter().collect();
        for slots in slots_of.chunks(LOADED_SLOTS) {
            let mut found = HashMap::new();
            for slot in slots {
                self.read_all(&layout::slot_prefix(*slot), &mut found).await?;
            }
            let is_asked = |scope| matches!(scope, Scope::Path(hash) if slots.contains(&self.slot_of(hash)));
            self.replace_values(found, ALL_KEYS, is_asked).await;
        }
        self.owned.write().add(slots);
        Ok(())
    }

    /// Makes the engine show where this process is reached. Only the process that has the stream can.
    async fn tell(&self, told: Option<MemberRecord>) -> Result<()> {
        let key = layout::member_key(&self.worker);
        let value = told.map(|told| told.encode());
        let found = tried(&self.env, || self.engine.get(&key)).await?.map(|found| found.value);
        if found == value { Ok(()) } else { self.stream.commit(vec![ValueWrite { key, value }]).await }
    }

    /// What this worker has told is seen by all that start from here on.
    async fn check_under_stores(&self, own: &BTreeMap<String, String>) -> Result<()> {
        let Self { env, engine, worker, stream, .. } = self;
        let look = Look { env, engine: engine.as_ref(), worker, own, ends: Some(stream) };
        let Some(other) = look.until_known(self.cluster.lease_ms).await? else { return Ok(()) };
        // Other workers may still read by leases of a process that was killed. They end before that of its worker.
        if self.former != Former::Killed {
            self.stream.leave().await?;
        }
        Err(Error::new(ErrorKind::Unavailable, other.to_string()))
    }

    /// Makes the store show the records of this worker alone, at a start.
    async fn load_own(&self) -> Result<()> {
        let mut found = HashMap::new();
        self.read_all(&layout::own_prefix(&self.worker), &mut found).await?;
        self.replace_values(found, &records::RANGES_BESIDE_PATHS, |scope| scope == Scope::Worker).await;
        Ok(())
    }

    /// Shows the current value of the one such record that is removed when slots are taken. While its key is locked, no
    /// commit of it is in flight.
    async fn show_settled(&self) -> Result<()> {
        let key = Bytes::from_static(records::SETTLED_KEY);
        let _guards = self.locks.lock(BTreeSet::from([key.clone()])).await;
        let on_engine = self.engine_key(&key);
        let value = tried(&self.env, || self.engine.get(&on_engine)).await?.map(|found| found.value);
        if self.store.value(&key).map(|found| found.value) != value {
            self.apply(Commit { writes: vec![ValueWrite { key, value }], ..Commit::default() }).await;
        }
        Ok(())
    }

    async fn release(&self, slots: &SlotSet) -> Result<()> {
        self.owned.write().take_off(slots);
        self.former_homes.write().retain(|slot, _| !slots.contains(*slot));
        let _no_commits = self.commits.write().await;
        self.ownership().release(slots).await?;
        let is_asked = |scope| matches!(scope, Scope::Path(hash) if slots.has_hash(hash));
        self.replace_values(HashMap::new(), ALL_KEYS, is_asked).await;
        Ok(())
    }

    /// The next start drops the clean copies of these slots that were kept before now. A crash may have brought them
    /// back: see `copy_floors.rs`.
    async fn note_floors(&self, slots: &SlotSet) -> Result<()> {
        if slots.is_empty() {
            return Ok(());
        }
        let floor = tried(&self.env, || above_all_given(self.engine.as_ref())).await?;
        let _guards = self.locks.lock(BTreeSet::from([Bytes::from_static(FLOORS_KEY)])).await;
        let Some(write) = CopyFloors::of(&self.store).raised(slots, floor) else { return Ok(()) };
        let commit = Commit { writes: vec![write], ..Commit::default() };
        let Err(error) = self.store.commit(commit, Durability::Fsync).await else { return Ok(()) };
        tracing::warn!(%error, "could not record which cached copies are outdated; the next start drops all clean copies: check the disk");
        self.mark_copies_stale().await
    }

    /// Other workers may have changed the objects of these slots. The note makes the next start drop the copies as
    /// well, so nothing has to be durable here, and each copy goes only as it was found: a replica for another worker
    /// may be published under its key at any moment.
    fn evict_copies(&self, slots: &SlotSet) {
        let mut copies = Vec::new();
        self.store.for_each_object(&mut |key, generation, is_pinned| {
            if !is_pinned && matches!(records::scope(key), Scope::Path(hash) if slots.has_hash(hash)) {
                copies.push((Bytes::copy_from_slice(key), generation));
            }
        });
        for (key, generation) in copies {
            self.store.evict(&key, generation);
        }
    }

    /// An earlier life may have dropped copies of these slots from memory alone, or had other disks. Without that, only
    /// what is older than the floor of its slot is dropped.
    async fn drop_stale_copies(&self, slots: &SlotSet) -> Result<()> {
        let key = layout::stale_copies_key(&self.worker);
        if tried(&self.env, || self.engine.get(&key)).await?.is_none() {
            let floors = CopyFloors::of(&self.store);
            if floors.is_empty() {
                return Ok(());
            }
            let is_below = |hash, generation| floors.is_below(self.slot_of(hash), generation);
            return self.drop_copies(is_below).await.map(drop);
        }
        match self.drop_copies(|hash, _| slots.has_hash(hash)).await? {
            true => self.stream.commit(vec![ValueWrite { key, value: None }]).await,
            false => Ok(()),
        }
    }

    /// The next start drops all clean copies.
    async fn mark_copies_stale(&self) -> Result<()> {
        let (key, value) = (layout::stale_copies_key(&self.worker), Some(Bytes::new()));
        self.stream.commit(vec![ValueWrite { key, value }]).await
    }

    /// For starts, while nothing else changes the store. Drops the clean copies that are stale, by the hash of their
    /// path and their generation: other workers may have changed their objects since. `false`: they are dropped from
    /// memory alone, because the disks take no writes. The engine knows that then, for the next start.
    async fn drop_copies(&self, is_stale: impl Fn(u64, Generation) -> bool) -> Result<bool> {
        let mut copies = Vec::new();
        self.store.for_each_object(&mut |key, generation, is_pinned| {
            if !is_pinned && matches!(records::scope(key), Scope::Path(hash) if is_stale(hash, generation)) {
                copies.push(Bytes::copy_from_slice(key));
            }
        });
        copies.sort_unstable();
        let mut is_for_good = true;
        for forget in copies.chunks(LOADED_VALUES) {
            let mut commit = Commit { forget: forget.to_vec(), ..Commit::default() };
            let Err(error) = self.store.commit_or_keep(&mut commit, Durability::Fsync).await else { continue };
            if is_for_good {
                tracing::warn!(%error, "stale copies could be dropped from memory only; the next start drops them again: check the disk");
                self.mark_copies_stale().await?;
            }
            is_for_good = false;
            self.store.commit_in_memory(commit).await;
        }
        Ok(is_for_good)
    }

    /// Takes over what other workers have changed of the records that all share. When this returns, the store shows the
    /// changes, the watchers of changed keys are notified, and [`Catalog::shared_changes`] counts them. When nothing
    /// has changed, this takes one request to the engine.
    async fn follow_shared(&self) -> Result<()> {
        let now = Revision::read(self.engine.as_ref()).await?;
        let mut shown = self.shared.lock().await;
        if *shown == now { Ok(()) } else { self.load_shared(&mut shown).await }
    }

    /// Makes the store show the shared records as the engine has them now: all of one state.
    async fn load_shared(&self, shown: &mut Revision) -> Result<()> {
        for _ in 0..SHARED_TRIES {
            let before = self.shared_revision().await?;
            let mut found = HashMap::new();
            self.read_all(layout::SHARED_PREFIX, &mut found).await?;
            if self.shared_revision().await? != before {
                continue;
            }
            let is_shared = |scope| scope == Scope::Cluster;
            let changed = self.replace_values(found, &records::RANGES_BESIDE_PATHS, is_shared).await;
            // Also of what was changed and changed back.
            if *shown != before {
                self.shared_changes.fetch_add(1, Ordering::SeqCst);
            }
            *shown = before;
            for key in &changed {
                self.watchers.changed(key, || self.store.value(key));
            }
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unavailable, "the cluster's records change faster than they can be read"))
    }

    async fn shared_revision(&self) -> Result<Revision> {
        tried(&self.env, || Revision::read(self.engine.as_ref())).await
    }

    /// Commits a transaction that checks or changes shared records, if no other worker has changed what it checks.
    ///
    /// # Errors
    /// `Conflict` when a check holds no more; `Busy` when other workers are always quicker; what the engine answers.
    async fn commit_shared(
        &self,
        shown: &mut Revision,
        checks: &[Check],
        changes: Option<u64>,
        writes: Vec<ValueWrite>,
    ) -> Result<()> {
        let is_change = writes.iter().any(|write| write.key.starts_with(layout::SHARED_PREFIX));
        for _ in 0..SHARED_TRIES {
            let writes = writes.iter().cloned().chain(is_change.then(|| shown.write_next()));
            match self.stream.commit_checked(vec![shown.check()], writes.collect()).await {
                Ok(version) if is_change => {
                    *shown = shown.next(version);
                    return Ok(());
                }
                Ok(_) => return Ok(()),
                // It is not done, and never will be.
                Err(error) if error.kind == ErrorKind::Conflict => {
                    self.load_shared(shown).await?;
                    self.verify_changes(changes)?;
                    self.verify(checks)?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Busy, "other workers change the cluster's records all the time"))
    }

    /// # Errors
    /// `Conflict` when one does not hold for what is shown here.
    fn verify(&self, checks: &[Check]) -> Result<()> {
        checks.iter().try_for_each(|check| verify(check, self.store.value(&check.key).as_ref()))
    }

    /// # Errors
    /// `Conflict` when other workers have changed shared records.
    fn verify_changes(&self, expected: Option<u64>) -> Result<()> {
        let now = self.shared_changes.load(Ordering::SeqCst);
        match expected {
            Some(expected) if expected != now => {
                Err(Error::new(ErrorKind::Conflict, "other workers have changed the cluster's records"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// # Errors
    /// `Unavailable` when the lease is over, or the key's slot is not at home here.
    fn check_home(&self, key: &[u8]) -> Result<()> {
        self.stream.check()?;
        match records::scope(key) {
            Scope::Path(hash) if !self.owned.read().has_hash(hash) => {
                Err(Error::new(ErrorKind::Unavailable, format!("slot {} is not at home here", self.slot_of(hash))))
            }
            Scope::Path(_) | Scope::Worker | Scope::Cluster => Ok(()),
        }
    }

    fn slot_of(&self, hash: u64) -> Slot {
        self.cluster.slots.slot_of(hash)
    }

    /// Reads all records behind a prefix, by their keys here.
    async fn read_all(&self, prefix: &[u8], found: &mut HashMap<Bytes, Bytes>) -> Result<()> {
        let mut range = layout::range_of(prefix);
        while let Some(page) = self.next_page(&mut range).await? {
            found.extend(page.into_iter().map(|(key, record)| (key.slice(prefix.len()..), record.value)));
        }
        Ok(())
    }

    /// The next records of a range, which begins behind them afterwards. `None` at its end.
    async fn next_page(&self, range: &mut (Bytes, Bytes)) -> Result<Option<Vec<(Bytes, Versioned)>>> {
        let (from, to) = range;
        let page = tried(&self.env, || self.engine.scan(from, to, LOADED_VALUES)).await?;
        let Some((last, _)) = page.last() else { return Ok(None) };
        *from = records::successor(last);
        Ok(Some(page))
    }

    /// No write of any worker has been given a later time: the slots may have been at home anywhere.
    async fn last_write_of_all(&self) -> Result<Option<Bytes>> {
        let (mut range, mut last) = (layout::range_of(layout::WORKERS_PREFIX), None);
        while let Some(page) = self.next_page(&mut range).await? {
            for worker in page.iter().filter_map(|(key, _)| layout::parse_worker_key(key)) {
                let key = layout::record_key(records::LAST_WRITE_KEY, &worker, self.cluster.slots);
                let time = tried(&self.env, || self.engine.get(&key)).await?.map(|found| found.value);
                // Big-endian numbers of one length compare as their bytes do.
                last = last.max(time);
            }
        }
        Ok(last)
    }

    /// Makes the store's values of some scope, all of which lie in these ranges, `wanted`: writes what differs, and
    /// removes what is not there. Returns the keys of both.
    async fn replace_values(
        &self,
        mut wanted: HashMap<Bytes, Bytes>,
        ranges: &[(&[u8], &[u8])],
        is_asked: impl Fn(Scope) -> bool,
    ) -> Vec<Bytes> {
        let mut writes: Vec<ValueWrite> = Vec::new();
        for (from, to) in ranges {
            let mut from = Bytes::copy_from_slice(from);
            loop {
                let here = self.store.scan(&from, to, LOADED_VALUES);
                let Some((last, _)) = here.last() else { break };
                from = records::successor(last);
                for (key, found) in here.into_iter().filter(|(key, _)| is_asked(records::scope(key))) {
                    match wanted.remove(&key) {
                        Some(value) if value == found.value => {}
                        value => writes.push(ValueWrite { key, value }),
                    }
                }
            }
        }
        let mut missing: Vec<_> =
            wanted.into_iter().map(|(key, value)| ValueWrite { key, value: Some(value) }).collect();
        missing.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        writes.append(&mut missing);
        for writes in writes.chunks(LOADED_VALUES) {
            self.apply(Commit { writes: writes.to_vec(), ..Commit::default() }).await;
        }
        writes.into_iter().map(|write| write.key).collect()
    }

    /// What the engine names of the prepared objects was acknowledged, or may have been. No transaction can name the
    /// others any more, unless their keys are at home elsewhere.
    async fn publish_prepared(&self) -> Result<()> {
        for staged in self.store.take_prepared() {
            let is_elsewhere =
                matches!(records::scope(staged.key()), Scope::Path(hash) if !self.owned.read().has_hash(hash));
            let found = if is_elsewhere {
                // Another worker is the home of the key, and the bytes may be here alone.
                let key = self.engine_key(staged.key());
                tried(&self.env, || self.engine.get(&key)).await?
            } else {
                self.store.value(staged.key())
            };
            let wanted = match found {
                Some(found) => records::wanted_bytes(staged.key(), &found.value)?,
                None => None,
            };
            if wanted.is_some_and(|wanted| wanted.generation == staged.generation()) {
                self.apply(Commit { publish: vec![staged], ..Commit::default() }).await;
            } else if is_elsewhere {
                self.unnamed.lock().push(staged);
            }
        }
        Ok(())
    }

    /// Where a record stands in the engine.
    fn engine_key(&self, key: &[u8]) -> Bytes {
        layout::record_key(key, &self.worker, self.cluster.slots)
    }

    async fn commit(&self, transaction: Transaction) -> Result<u64> {
        let keys = keys_of(&transaction);
        let is_shared = keys.iter().any(|key| records::scope(key) == Scope::Cluster);
        let _guards = self.locks.lock(keys.clone()).await;
        let _commit = self.commits.read().await;
        let mut shared = if is_shared { Some(self.shared.lock().await) } else { None };
        for key in &keys {
            self.check_home(key)?;
        }
        self.verify_changes(transaction.shared_changes)?;
        self.verify(&transaction.checks)?;
        let Transaction { checks, writes, local, durability, may_wait, shared_changes } = transaction;
        if writes.is_empty() {
            let (publish, forget, annotate) = (local.publish, local.forget, local.annotate);
            let commit = Commit { publish, forget, annotate, writes, may_wait };
            return Ok(self.store.commit(commit, durability).await?);
        }
        let mut publish = Vec::with_capacity(local.publish.len());
        for staged in local.publish {
            publish.push(self.store.prepare(staged).await?);
        }
        // A clean copy that came back after a crash would be served while the under store is out of reach. So it goes
        // first, for good.
        let is_pinned = |key: &Bytes| self.store.peek(key).is_some_and(|object| object.is_pinned());
        let (pinned, clean): (Vec<_>, Vec<_>) = local.forget.into_iter().partition(is_pinned);
        if !clean.is_empty() {
            let commit = Commit { forget: clean, may_wait, ..Commit::default() };
            self.store.commit(commit, durability).await?;
        }
        let on_engine = writes.iter().map(|write| ValueWrite { key: self.engine_key(&write.key), ..write.clone() });
        let done = match &mut shared {
            Some(shown) => self.commit_shared(shown, &checks, shared_changes, on_engine.collect()).await,
            None if may_wait => self.stream.commit_soon(on_engine.collect()).await,
            None => self.stream.commit(on_engine.collect()).await,
        };
        if let Err(error) = done {
            if error.kind == ErrorKind::Unknown {
                // The engine may have it: then the next start publishes them.
                self.undecided.lock().extend(publish);
            }
            return Err(error);
        }
        // It holds. A start that misses some of the rest makes it up.
        let written: Vec<Bytes> = writes.iter().map(|write| write.key.clone()).collect();
        let note = engine_note(&self.worker, self.stream.position());
        let writes = writes.into_iter().chain([note]).collect();
        let commit = Commit { publish, forget: pinned, annotate: local.annotate, writes, may_wait };
        let version = self.apply(commit).await;
        for key in &written {
            self.watchers.changed(key, || self.store.value(key));
        }
        Ok(version)
    }

    /// Shows here what the engine has. Where the logs take no more, in memory alone: a start finds values and prepared
    /// objects again, and takes pinned objects without a record away.
    async fn apply(&self, mut commit: Commit) -> u64 {
        match self.store.commit_or_keep(&mut commit, Durability::Os).await {
            Ok(version) => version,
            Err(error) => {
                tracing::warn!(%error, "a change that the engine has committed could not be written to the local log, and is in memory only until the next start: check the disk");
                self.store.commit_in_memory(commit).await
            }
        }
    }
}

#[async_trait]
impl Catalog for HomeCatalog {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        self.inner.check_home(key)?;
        let found = self.inner.store.value(key);
        if found.is_none() {
            // The records of a slot that was given up meanwhile are not here any more.
            self.inner.check_home(key)?;
        }
        Ok(found)
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        self.inner.stream.check()?;
        Ok(self.inner.store.scan(from, to, limit))
    }

    /// Runs to completion even if the caller gives up waiting: the keys stay locked until engine and store show the
    /// same.
    async fn commit(&self, transaction: Transaction) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        forebay_env::spawn(async move { inner.commit(transaction).await }.in_current_span()).join().await
    }

    async fn watch(&self, key: &[u8]) -> Result<Watch> {
        Ok(self.inner.watchers.watch(key, || self.inner.store.value(key)))
    }

    async fn generations(&self, now_ms: u64) -> Result<Arc<dyn Generations>> {
        let engine = Arc::clone(&self.inner.engine);
        let blocks = tried(&self.inner.env, || Blocks::take(&self.inner.env, &engine, now_ms)).await?;
        Ok(Arc::new(blocks))
    }

    async fn last_write(&self) -> Result<Option<Bytes>> {
        self.inner.last_write_of_all().await
    }

    fn take_unnamed(&self) -> Vec<Staged> {
        std::mem::take(&mut *self.inner.unnamed.lock())
    }

    fn shared_changes(&self) -> u64 {
        self.inner.shared_changes.load(Ordering::SeqCst)
    }

    async fn follow_shared(&self) -> Result<()> {
        self.inner.follow_shared().await
    }

    fn worker(&self) -> Option<&str> {
        Some(self.inner.worker.as_str())
    }

    fn slots(&self) -> Option<SlotSet> {
        Some(self.inner.owned.read().clone())
    }

    fn former_home(&self, hash: u64) -> Option<String> {
        self.inner.former_homes.read().get(&self.inner.slot_of(hash)).cloned()
    }

    fn has_slot_of(&self, hash: u64) -> bool {
        self.inner.owned.read().has_hash(hash)
    }

    fn follows_crash(&self) -> bool {
        self.inner.former == Former::Killed
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.inner.stream.lease_left())
    }
}

#[cfg(test)]
mod tests;
