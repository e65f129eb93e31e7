//! New copies in place of those that are lost or leave with their workers: re-replication.
//!
//! When other workers take copies than before, this worker counts the copies of the keys that are at home here, and
//! sends those that are lacking. A worker counts as a holder only when it says that it has the copy: its disks may be
//! new ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::records::{self, Holders, ObjectRecord, PartRecord, State};
use forebay_catalog::{Check, ErrorKind as CatalogErrorKind, Transaction};
use forebay_store::{Object, ValueWrite};
use forebay_types::{ObjectPath, WriteMode};
use futures::future::join_all;
use futures::{StreamExt, stream};

use super::CopyId;
use super::send::copies_of;
use super::sent::Lacking;
use crate::worker::Worker;
use crate::{ErrorKind, OtherWorkers, Result, Taker, UploadRef};

/// Between two looks at the workers that take copies.
const LOOK: Duration = Duration::from_secs(1);

/// Before what lacks copies is tried again: at first, and at most, doubled from one time to the next.
const RETRY: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Copies that are sent at once. Clients' writes send theirs beside them.
const SENDS_MAX: usize = 8;

/// An object or a part that should have copies at other workers.
struct Copied {
    id: CopyId,
    path: ObjectPath,
    /// For a part: its upload and its number.
    part: Option<(String, u32)>,
    holders: Holders,
    /// How many other workers should have it.
    wanted: usize,
    /// Those that have it.
    found: Vec<String>,
}

/// The result of a count.
#[derive(Default)]
struct Tally {
    lacking: Lacking,
    sent: u64,
    /// Why some copies could not be counted or sent.
    problem: Option<String>,
}

impl Tally {
    fn unknown(&mut self, problem: impl ToString) {
        self.lacking.unknown += 1;
        self.problem = Some(problem.to_string());
    }
}

impl Worker {
    /// Counts copies when something has changed, until the worker stops.
    pub(crate) async fn renew_loop(self: Arc<Self>, others: Arc<dyn OtherWorkers>) {
        let sent = &self.home.sent;
        let (mut retry_at, mut pause, mut told) = (None, RETRY, false);
        loop {
            let is_asked = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = sent.recount.notified() => true,
                () = self.env.clock.sleep(LOOK) => false,
            };
            let takers: BTreeSet<Taker> = others.takers().into_iter().collect();
            let (is_new, mark) = sent.see(&takers);
            let is_due = retry_at.is_some_and(|at| self.env.clock.monotonic() >= at);
            if !(is_asked || is_new || is_due) {
                continue;
            }
            pause = if is_asked || is_new { RETRY } else { RETRY_MAX.min(2 * pause) };
            let tally = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                tally = self.renew(others.as_ref(), &takers) => tally,
            };
            let Tally { lacking, sent: count, problem } = tally;
            sent.counted(mark, takers, lacking);
            if count > 0 {
                tracing::info!(copies = count, "missing replicas have been restored");
            }
            let is_whole = lacking == Lacking::default();
            retry_at = (!is_whole).then(|| self.env.clock.monotonic() + pause);
            // Bytes that are still to be fetched soon come.
            let is_told = if lacking.known > 0 { is_new || !told } else { pause == RETRY_MAX && !told };
            if is_told {
                let Lacking { known, unknown } = lacking;
                let problem = problem.as_deref().unwrap_or("no other worker takes copies");
                tracing::warn!(
                    lacking = known,
                    unknown,
                    problem,
                    "objects and parts have fewer copies than writeReplicas asks for"
                );
            }
            told = !is_whole && (told || is_told);
        }
    }

    /// Whether any path policy asks for copies.
    fn wants_copies(&self) -> bool {
        let rules = self.policies.present().0;
        rules.rules().iter().any(|rule| rule.write_replicas.is_some_and(|replicas| replicas > 1))
    }

    /// Objects and parts at home here that may be lost with another worker. Not 0 before all have been counted.
    pub(crate) fn under_replicated(&self) -> u64 {
        match &self.others {
            Some(others) if self.wants_copies() => self.home.sent.lacking(&others.takers().into_iter().collect()),
            Some(_) | None => 0,
        }
    }

    /// See [`Needs::complete_at`](crate::Needs::complete_at).
    pub(crate) fn complete_at(&self) -> Option<BTreeSet<String>> {
        let takers: BTreeSet<Taker> = self.others.as_ref()?.takers().into_iter().collect();
        let names = || takers.iter().map(|taker| taker.worker.clone()).collect();
        self.home.sent.is_complete(&takers).then(names)
    }

    async fn renew(&self, others: &dyn OtherWorkers, takers: &BTreeSet<Taker>) -> Tally {
        let mut tally = Tally::default();
        if let Err(error) = self.renew_all(others, takers, &mut tally).await {
            tally.unknown(error);
        }
        tally
    }

    async fn renew_all(&self, others: &dyn OtherWorkers, takers: &BTreeSet<Taker>, tally: &mut Tally) -> Result<()> {
        if !self.wants_copies() {
            return Ok(());
        }
        let mut range = records::all_objects_range();
        while let Some(found) = self.next_records(&mut range).await? {
            let objects = found.iter().filter_map(|(key, found)| self.copied_object(key, &found.value).transpose());
            let objects = objects.collect::<Result<Vec<_>>>()?;
            self.renew_some(others, takers, objects, tally).await;
        }
        let uploads = self.open_uploads().await?;
        let mut range = records::all_parts_range();
        while let Some(found) = self.next_records(&mut range).await? {
            let part = |key: &Bytes, value: &[u8]| {
                let Some((upload_id, number)) = super::fetch::part_of(key) else { return Ok(None) };
                let Some(path) = uploads.get(upload_id) else { return Ok(None) };
                self.copied_part(key, value, path, upload_id, number)
            };
            let parts = found.iter().filter_map(|(key, found)| part(key, &found.value).transpose());
            let parts = parts.collect::<Result<Vec<_>>>()?;
            self.renew_some(others, takers, parts, tally).await;
        }
        Ok(())
    }

    fn copied_object(&self, key: &Bytes, value: &[u8]) -> Result<Option<Copied>> {
        let Some(path) = records::parse_object_key(key) else { return Ok(None) };
        let ObjectRecord { state, generation, holders, .. } = ObjectRecord::decode(value)?;
        // The policy says how many, whatever its mode is by now.
        let mode = match state {
            State::Dirty | State::Conflict => WriteMode::WriteBack,
            State::Transient => WriteMode::Transient,
            State::Tombstone => return Ok(None),
        };
        let wanted = copies_of(&self.policies.resolve(&path), mode);
        let id = CopyId { key: key.clone(), generation };
        Ok((wanted > 0).then(|| Copied { id, path, part: None, holders, wanted, found: Vec::new() }))
    }

    fn copied_part(
        &self,
        key: &Bytes,
        value: &[u8],
        path: &ObjectPath,
        upload_id: &str,
        number: u32,
    ) -> Result<Option<Copied>> {
        let PartRecord { generation, holders, .. } = PartRecord::decode(value)?;
        let policy = self.policies.resolve(path);
        let wanted = copies_of(&policy, policy.write_mode);
        let (id, part) = (CopyId { key: key.clone(), generation }, Some((upload_id.to_owned(), number)));
        Ok((wanted > 0).then(|| Copied { id, path: path.clone(), part, holders, wanted, found: Vec::new() }))
    }

    /// Sends the copies that these lack.
    async fn renew_some(
        &self,
        others: &dyn OtherWorkers,
        takers: &BTreeSet<Taker>,
        mut copied: Vec<Copied>,
        tally: &mut Tally,
    ) {
        let silent = ask_holders(others, takers, &mut copied).await;
        let mut lacking = Vec::new();
        for copied in copied {
            if copied.found.len() >= copied.wanted {
                // One of them may be all that there is besides the bytes here.
                if copied.found.len() == copied.wanted
                    && let Err(problem) = self.bytes_to_send(&copied).await
                {
                    tally.unknown(problem);
                }
                continue;
            }
            if let Some((worker, problem)) = silent.iter().find(|(worker, _)| copied.holders.has(worker)) {
                tally.unknown(format!("worker {worker}: {problem}"));
                continue;
            }
            match self.bytes_to_send(&copied).await {
                Ok(Some(object)) => lacking.push((copied, object)),
                Ok(None) => {}
                Err(problem) => tally.unknown(problem),
            }
        }
        let sending = lacking.into_iter().map(|(copied, object)| async move {
            let missing = copied.wanted - copied.found.len();
            (missing, self.renew_one(others, copied, &object).await)
        });
        let mut sending = stream::iter(sending).buffer_unordered(SENDS_MAX);
        while let Some((missing, (taken, problem))) = sending.next().await {
            tally.sent += taken as u64;
            tally.lacking.known += u64::from(taken < missing);
            if let Some(problem) = problem {
                tally.problem = Some(problem);
            }
        }
    }

    /// `None` when there is nothing to send: the key has been written since, or its bytes are lost.
    ///
    /// # Errors
    /// Why that can't be told yet.
    async fn bytes_to_send(&self, copied: &Copied) -> Result<Option<Object>, String> {
        let Copied { id, path, part, .. } = copied;
        if !self.home.locks.has(path) {
            return Err(format!("{path} is about to be at home here"));
        }
        if let Some(object) = self.intact_object(&id.key, id.generation) {
            return Ok(Some(object));
        }
        let wanted = self.wanted_generation(&id.key).await.map_err(|error| error.to_string())?;
        let is_lost = match part {
            Some((upload_id, number)) => self.home.missing.has_part(upload_id, *number),
            None => self.home.missing.has(path),
        };
        match wanted == Some(id.generation) && !is_lost {
            true => Err(format!("the bytes of {path} are not here yet")),
            false => Ok(None),
        }
    }

    /// Returns how many workers have taken a copy, and why not more.
    async fn renew_one(&self, others: &dyn OtherWorkers, copied: Copied, object: &Object) -> (usize, Option<String>) {
        let Copied { id, path, wanted, found, .. } = &copied;
        let mut takers = self.takers(path, object.size());
        takers.retain(|taker| !found.contains(taker));
        // No record names it newly: so its fate is known already, and it is shown soon.
        let sent = self.send(others, path, takers, wanted - found.len(), id, object, &[]).await;
        let (taken, problem) = sent.unwrap_or_else(|error| (Vec::new(), Some(error)));
        if problem.as_ref().is_some_and(|error| error.kind == ErrorKind::Corrupt) {
            // It is sent once the bytes of another worker have taken the place of those here.
            self.note_damaged(path, object).await;
        }
        let problem = problem.map(|error| error.to_string());
        if taken.is_empty() {
            return (0, problem);
        }
        let own = self.catalog.worker().map(str::to_owned);
        let holders = Holders::of(own.into_iter().chain(found.iter().cloned()).chain(taken.iter().cloned()));
        match self.name_holders(&copied, holders).await {
            Ok(()) => (taken.len(), problem),
            Err(error) => (0, Some(error.to_string())),
        }
    }

    /// Nothing is done when the key has been written since.
    async fn name_holders(&self, copied: &Copied, holders: Holders) -> Result<()> {
        let Copied { id, path, part, .. } = copied;
        if let Some((upload_id, number)) = part {
            let upload = UploadRef { path: path.clone(), upload_id: upload_id.clone() };
            return self.name_holders_of_part(id, &upload, *number, holders).await;
        }
        let _lock = self.home.locks.lock(path).await?;
        let current = self.current(path).await?;
        let Some(record) = current.record.clone().filter(|record| record.generation == id.generation) else {
            return Ok(());
        };
        let after = ObjectRecord { holders, ..record };
        self.change_record(path, &current, Some(&after), Transaction::default()).await
    }

    async fn name_holders_of_part(&self, id: &CopyId, upload: &UploadRef, number: u32, holders: Holders) -> Result<()> {
        let _lock = self.lock_part(upload, number).await?;
        let Some(found) = self.catalog.get(&id.key).await? else { return Ok(()) };
        let record = PartRecord::decode(&found.value)?;
        if record.generation != id.generation {
            return Ok(());
        }
        let after = PartRecord { holders, ..record };
        let transaction = Transaction {
            // The upload may end meanwhile.
            checks: vec![Check { key: id.key.clone(), version: Some(found.version) }],
            writes: vec![ValueWrite { key: id.key.clone(), value: Some(after.encode()) }],
            ..Transaction::default()
        };
        match self.catalog.commit(transaction).await {
            Err(error) if error.kind == CatalogErrorKind::Conflict => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }

    /// How many other workers say that they have the bytes that a record names.
    pub(crate) async fn copies_at_others(&self, path: &ObjectPath, record: Option<&ObjectRecord>) -> u32 {
        let (Some(others), Some(record)) = (&self.others, record) else { return 0 };
        let id = [CopyId { key: Self::store_key(path), generation: record.generation }];
        let own = self.catalog.worker();
        let named = record.holders.names().filter(|worker| Some(*worker) != own);
        let asked = join_all(named.map(|worker| others.has_copies(worker, &id))).await;
        asked.into_iter().filter(|answer| answer.as_ref().is_ok_and(|has| has == &[true])).count() as u32
    }

    /// Which of these copies this worker keeps until no record names them, as far as nobody has found them damaged.
    pub(crate) fn has_copies(&self, copies: &[CopyId]) -> Vec<bool> {
        copies.iter().map(|id| self.intact_copy_of(id).is_some_and(|object| object.is_pinned())).collect()
    }
}

/// Finds out which of the workers that the records name have the copies. Returns those that do not answer.
async fn ask_holders(
    others: &dyn OtherWorkers,
    takers: &BTreeSet<Taker>,
    copied: &mut [Copied],
) -> BTreeMap<String, String> {
    let mut silent = BTreeMap::new();
    for Taker { worker, .. } in takers {
        let mut named: Vec<&mut Copied> = copied.iter_mut().filter(|copied| copied.holders.has(worker)).collect();
        if named.is_empty() {
            continue;
        }
        let ids: Vec<CopyId> = named.iter().map(|copied| copied.id.clone()).collect();
        match others.has_copies(worker, &ids).await {
            Ok(has) => {
                let found = named.iter_mut().zip(has).filter(|(_, has)| *has);
                found.for_each(|(copied, _)| copied.found.push(worker.clone()));
            }
            Err(error) => drop(silent.insert(worker.clone(), error.to_string())),
        }
    }
    silent
}
