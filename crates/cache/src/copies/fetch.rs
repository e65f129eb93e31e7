//! Fetches bytes from other workers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::records::{self, Holders, WantedBytes};
use forebay_catalog::{Check, ErrorKind as CatalogErrorKind, LocalChange, Transaction};
use forebay_store::{Class, NewObject};
use forebay_types::{Durability, ObjectPath};

use super::append::{FailedAfter, append_all, in_time};
use super::wanted::{Ended, Turn};
use crate::home::lost::not_all_at_home;
use crate::policies::groups::group_of;
use crate::worker::Worker;
use crate::{CopyId, Error, ErrorKind, HeldBytes, Needs, OtherWorkers, Result};

/// For so long a request waits for bytes to come. A large object takes longer: the client has to try again.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// After this time such a client should try again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

impl Worker {
    /// One of the tasks that fetch; ends when the worker stops.
    pub(crate) async fn fetch_loop(self: Arc<Self>, others: Arc<dyn OtherWorkers>) {
        loop {
            let next = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                next = self.home.copies.next() => next,
            };
            let ended = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                ended = self.fetch(others.as_ref(), &next.key, &next.path) => ended,
            };
            let (path, ended) = (&next.path, ended.unwrap_or_else(|error| Ended::Failed(error.to_string())));
            match &ended {
                Ended::Done | Ended::Waits(_) => {}
                Ended::Failed(problem) => tracing::debug!(%path, problem, "bytes could not be fetched"),
                Ended::Lost(problem) => tracing::debug!(%path, problem, "nobody has the bytes"),
            }
            self.home.copies.end(&next, ended);
        }
    }

    async fn fetch(&self, others: &dyn OtherWorkers, key: &Bytes, path: &ObjectPath) -> Result<Ended> {
        let Some(found) = self.catalog.get(key).await? else { return Ok(Ended::Done) };
        let Some(wanted) = records::wanted_bytes(key, &found.value)? else { return Ok(Ended::Done) };
        if self.intact_object(key, wanted.generation).is_some() {
            return Ok(Ended::Done);
        }
        let own = self.catalog.worker();
        // Of a copy that was prepared while the slot came here.
        let id = CopyId { key: key.clone(), generation: wanted.generation };
        let own_copy = own.filter(|_| self.held.is_prepared(&id)).map(str::to_owned);
        let mut workers: Vec<String> = wanted.holders.names().map(str::to_owned).collect();
        let named = workers.len();
        // A worker may have got another name.
        let more = others.workers().into_iter().filter(|worker| !workers.contains(worker)).collect::<Vec<_>>();
        workers.extend(more);
        let (mut failed, mut damaged, mut asked) = (None, Vec::new(), Vec::new());
        let mut busy = None;
        let from_others = workers.iter().enumerate().map(|(number, worker)| (worker, number < named));
        let from_others = from_others.filter(|(worker, _)| Some(worker.as_str()) != own);
        let in_turn: Vec<_> = own_copy.iter().map(|worker| (worker, true)).chain(from_others).collect();
        for (worker, is_named) in in_turn {
            // The others hardly have what one that is named by the record will give.
            if busy.is_some() && !is_named {
                break;
            }
            let is_own = Some(worker.as_str()) == own;
            let turn = if is_own { None } else { Some(self.home.copies.turn(worker)) };
            let _place = match turn {
                None => None,
                Some(Turn::Now(place)) => Some(place),
                Some(Turn::Full) => {
                    busy = Some((worker, is_named));
                    continue;
                }
                Some(Turn::Silent) => {
                    failed = Some(format!("worker {worker} did not answer a moment ago"));
                    continue;
                }
            };
            let asked_at = self.env.clock.monotonic();
            let failed_after = FailedAfter::default();
            let opened = match is_own {
                true => self.held(key, wanted.generation).await,
                false => others.open(worker, key, wanted.generation).await.map(|held| {
                    let (clock, failed_after) = (Arc::clone(&self.env.clock), Arc::clone(&failed_after));
                    held.map(|held| HeldBytes { stream: in_time(clock, held.stream, failed_after), ..held })
                }),
            };
            // How long the other worker kept this one waiting before it failed. `None`: it is this one that failed.
            let (error, waited) = match opened {
                Ok(Some(held)) => match self.keep_held(key, path, found.version, &wanted, held).await {
                    Ok(is_wanted) => {
                        self.home.copies.has_answered(worker);
                        if is_wanted {
                            self.found_bytes(key, path);
                        }
                        return Ok(Ended::Done);
                    }
                    // Its disks don't read them.
                    Err(error) if error.kind == ErrorKind::Corrupt => {
                        self.home.copies.has_answered(worker);
                        damaged.push(worker.as_str());
                        continue;
                    }
                    Err(error) => (error, failed_after.get().copied()),
                },
                Ok(None) => {
                    self.home.copies.has_answered(worker);
                    asked.push(worker.as_str());
                    continue;
                }
                // They don't even read what belongs to them.
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    self.home.copies.has_answered(worker);
                    damaged.push(worker.as_str());
                    continue;
                }
                Err(error) => (error, Some(self.env.clock.monotonic().saturating_sub(asked_at))),
            };
            match waited.filter(|_| !is_own) {
                Some(waited) => self.home.copies.has_failed(worker, waited),
                None => self.home.copies.has_answered(worker),
            }
            failed = Some(format!("worker {worker}: {error}"));
        }
        // One that the record does not name hardly has what one that failed has.
        if let Some((worker, _)) = busy.filter(|(_, is_named)| *is_named || failed.is_none()) {
            return Ok(Ended::Waits(worker.clone()));
        }
        // One that was away may have come back after the others were listed.
        let back = |worker: String| format!("worker {worker} has just come back");
        let came_back = || others.workers().into_iter().find(|worker| !workers.contains(worker)).map(back);
        if let Some(problem) = failed.or_else(|| others.away()).or_else(came_back) {
            return Ok(Ended::Failed(problem));
        }
        // The key may have been written in the meantime.
        let Some(_lock) = self.home.locks.try_lock(path) else {
            // Who holds it may wait for these bytes.
            return Ok(Ended::Failed(format!("{path} is in use")));
        };
        if self.catalog.get(key).await?.map(|now| now.version) != Some(found.version) {
            return Ok(Ended::Done);
        }
        let problem = match damaged.is_empty() {
            true => format!("none of the workers that may have them has them: {}", asked.join(", ")),
            false => format!("they are damaged at worker {}", damaged.join(", ")),
        };
        // Each read asks again.
        if self.lost_bytes(key, path) {
            tracing::error!(%path, problem, "the bytes of an acknowledged object are lost");
        }
        Ok(Ended::Lost(problem))
    }

    /// Makes the bytes this worker's own. `false` when the record is not the one that wants them any more.
    async fn keep_held(
        &self,
        key: &Bytes,
        path: &ObjectPath,
        version: u64,
        wanted: &WantedBytes,
        held: HeldBytes,
    ) -> Result<bool> {
        let HeldBytes { size, metadata, annex, stream } = held;
        if size != wanted.size {
            let context = format!("it has {size} bytes of generation {}, not {}", wanted.generation, wanted.size);
            return Err(Error::new(ErrorKind::Unavailable, context));
        }
        let mut writer = self.store.writer(Class::Durable, size).await?;
        append_all(&mut writer, stream, size).await?;
        let is_part = records::parse_object_key(key).is_none();
        let group = if is_part { 0 } else { group_of(&self.policies.resolve(path)) };
        let (key, generation) = (key.clone(), wanted.generation);
        let object = NewObject { key: key.clone(), generation, metadata, annex, pinned: true, group, size };
        let staged = writer.finish(object).await?;
        let id = CopyId { key: key.clone(), generation };
        let is_replaced = self.store.peek(&key).is_some_and(|object| object.generation() == generation);
        if is_replaced && !self.forget_damaged(&key, version).await? {
            return Ok(false);
        }
        let transaction = Transaction {
            checks: vec![Check { key, version: Some(version) }],
            local: LocalChange { publish: vec![staged], ..LocalChange::default() },
            ..Transaction::default()
        };
        match self.catalog.commit(transaction).await {
            Ok(_) => {
                self.home.damaged.remove(&id);
                // The slot was given up meanwhile, after the look at what is here of it.
                if !self.home.locks.has(path) {
                    self.held.ask_later(id, 0);
                }
                Ok(true)
            }
            Err(error) if error.kind == CatalogErrorKind::Conflict => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets damaged or incomplete bytes for good, before others of the same generation take their place: a start
    /// takes all records of one generation for equal, and might prefer the damaged one. After a crash in between, the
    /// bytes are missing here, and are fetched again. `false` when the record has changed.
    async fn forget_damaged(&self, key: &Bytes, version: u64) -> Result<bool> {
        let transaction = Transaction {
            checks: vec![Check { key: key.clone(), version: Some(version) }],
            local: LocalChange { forget: vec![key.clone()], ..LocalChange::default() },
            durability: Durability::Fsync,
            ..Transaction::default()
        };
        match self.catalog.commit(transaction).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == CatalogErrorKind::Conflict => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn found_bytes(&self, key: &Bytes, path: &ObjectPath) {
        match part_of(key) {
            Some((upload_id, number)) => self.home.missing.remove_part(upload_id, number),
            None => {
                self.home.missing.remove(path);
                self.home.queue.hurry(path);
            }
        }
    }

    /// Returns whether that is new.
    fn lost_bytes(&self, key: &Bytes, path: &ObjectPath) -> bool {
        match part_of(key) {
            Some((upload_id, number)) => self.home.missing.add_part(upload_id, number),
            None => self.home.missing.add(path.clone()),
        }
    }

    /// Of what is written here.
    pub(crate) fn holders(&self) -> Holders {
        Holders::of(self.catalog.worker().map(str::to_owned))
    }

    /// Whether another worker may have the bytes that a record names. The record names the workers that had them when
    /// they were written, and homes since then have fetched them.
    pub(crate) fn may_be_elsewhere(&self, holders: &Holders) -> bool {
        self.others.is_some() && holders.names().next().is_some()
    }

    /// See [`crate::Cache::needs`].
    pub(crate) fn needs(&self) -> Result<Needs> {
        let Some(slots) = self.catalog.slots() else {
            return Err(Error::new(ErrorKind::Unavailable, "this worker is in no cluster"));
        };
        // What is lacking of a slot is known before its locks open, and forgotten when they are closed.
        let open = self.home.locks.open_of(&slots);
        let copies_wanted = self.home.copies.count() as u64;
        let complete_at = self.complete_at();
        let takes_over_from = self.takes_over_from(&open);
        match self.home.locks.open_of(&slots) == open {
            true => Ok(Needs { slots: open, copies_wanted, complete_at, takes_over_from }),
            false => Err(not_all_at_home()),
        }
    }

    /// Waits until the bytes that the record under `key` names are here.
    ///
    /// # Errors
    /// `Unavailable` when they do not come.
    pub(crate) async fn await_bytes(&self, key: Bytes, path: &ObjectPath) -> Result<()> {
        let outcome = self.home.copies.wait(key, path);
        let problem = tokio::select! {
            biased;
            outcome = outcome => match outcome {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(problem)) => problem,
                Err(_) => "this worker is not the home of the key any more".to_owned(),
            },
            () = self.env.clock.sleep(WAIT_MAX) => "they are still being fetched; try again".to_owned(),
        };
        let context = format!("the bytes of {path} are at another worker: {problem}");
        Err(Error { retry_after: Some(RETRY_AFTER), ..Error::new(ErrorKind::Unavailable, context) })
    }
}

/// The upload and the number of a part, by the key of its record.
pub(super) fn part_of(key: &[u8]) -> Option<(&str, u32)> {
    records::parse_part_upload(key).zip(records::parse_part_key(key))
}
