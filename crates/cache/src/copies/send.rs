//! Copies of a write at other workers, before it is acknowledged: `writeReplicas`.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::records::{self, Holders, path_hash};
use forebay_env::sync::atomic::{AtomicBool, Ordering};
use forebay_store::{Object, Staged};
use forebay_types::policy::ReplicasMissing;
use forebay_types::{ByteRange, ObjectPath, PathPolicy, WriteMode};
use forebay_ufs::UploadSource;
use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryStreamExt};

use super::CopyId;
use super::sent::{Asked, Undecided};
use crate::persist::StoreSource;
use crate::worker::Worker;
use crate::{Error, ErrorKind, Fate, HeldBytes, NewCopy, OtherWorkers, Result, Taker};

/// After this time a client should try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Before a copy of at least this size is sent, the other worker is asked whether it has room: a refusal does not
/// arrive while the sender still writes more than the buffers on the way take.
const ROOM_ASKED_BYTES: u64 = 64 << 10;

/// A worker that has not taken a copy after this time, and the time for its bytes, is late: the next one is asked, too.
const LATE: Duration = Duration::from_secs(1);
const SLOW_BYTES_PER_SECOND: u64 = 16 << 20;

/// A new object that is on stable storage here and at as many other workers as its policy asks for.
pub(crate) struct Replicated {
    pub(crate) staged: Staged,
    pub(crate) holders: Holders,
    /// To be kept until the commit has ended. `None` when nothing was sent.
    pub(crate) undecided: Option<Undecided>,
}

/// The other workers that have a write in this mode before it is acknowledged.
pub(super) fn copies_of(policy: &PathPolicy, mode: WriteMode) -> usize {
    match mode {
        WriteMode::WriteBack | WriteMode::Transient => policy.write_replicas.saturating_sub(1) as usize,
        WriteMode::WriteThrough | WriteMode::ReadOnly | WriteMode::NoCache => 0,
    }
}

impl Worker {
    /// The mode of a write, when there are as many workers for its copies as the policy asks for. Otherwise the policy
    /// decides.
    ///
    /// # Errors
    /// `SlowDown` when there are too few.
    pub(crate) fn mode_with_copies(
        &self,
        policy: &PathPolicy,
        mode: WriteMode,
        path: &ObjectPath,
        bytes: u64,
    ) -> Result<WriteMode> {
        let copies = copies_of(policy, mode);
        if copies == 0 {
            return Ok(mode);
        }
        let found = self.takers(path, bytes).len();
        match (policy.when_replicas_missing, mode) {
            _ if found >= copies => Ok(mode),
            (ReplicasMissing::WriteThrough, WriteMode::WriteBack) => {
                self.metrics.replicas_missing.inc();
                Ok(WriteMode::WriteThrough)
            }
            (ReplicasMissing::Reject | ReplicasMissing::WriteThrough, _) => Err(self.too_few(path, copies, found)),
        }
    }

    /// The workers that may take a copy of `bytes` bytes, best first. For one path the order is always the same, so
    /// that the parts of an upload and its object are at the same workers.
    pub(super) fn takers(&self, path: &ObjectPath, bytes: u64) -> Vec<String> {
        let Some(others) = &self.others else { return Vec::new() };
        let takers = others.takers().into_iter().collect();
        if self.home.sent.see(&takers).0 {
            self.home.sent.recount();
        }
        let asked = |taker: Taker| (self.home.sent.is_asked(&taker.worker, bytes), taker.worker);
        let mut workers: Vec<_> = takers.into_iter().map(asked).filter(|(asked, _)| *asked != Asked::No).collect();
        let hash = path_hash(path);
        workers.sort_by_cached_key(|(asked, worker)| {
            (*asked, Reverse(records::stable_hash(format!("{worker}/{hash}").as_bytes())))
        });
        workers.into_iter().map(|(_, worker)| worker).collect()
    }

    /// Puts a new object on stable storage here and at other workers. `pieces`: other copies, whose bytes in this order
    /// are those of the object.
    ///
    /// # Errors
    /// `SlowDown` when too few workers take it; those of the store.
    pub(crate) async fn replicate(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        staged: Staged,
        pieces: Vec<CopyId>,
    ) -> Result<Replicated> {
        let copies = copies_of(policy, policy.write_mode);
        let Some(others) = self.others.as_ref().filter(|_| copies > 0) else {
            return Ok(Replicated { staged, holders: self.holders(), undecided: None });
        };
        let id = CopyId { key: staged.key().clone(), generation: staged.generation() };
        let undecided = self.home.sent.begin(id.clone());
        let object = staged.object();
        let takers = self.takers(path, object.size());
        let sent = self.send(others.as_ref(), path, takers, copies, &id, &object, &pieces);
        // Both run to their ends: they sync at the same time.
        let (staged, sent) = futures::future::join(self.store.prepare(staged), sent).await;
        let (staged, (workers, problem)) = (staged?, sent?);
        if workers.len() < copies {
            let source = problem.map(Into::into);
            return Err(Error { source, ..self.too_few(path, copies, workers.len()) });
        }
        let holders = Holders::of(self.catalog.worker().map(str::to_owned).into_iter().chain(workers));
        Ok(Replicated { staged, holders, undecided: Some(undecided) })
    }

    /// Returns the workers that have taken a copy and, if they are too few, why no other has: `Corrupt` when the bytes
    /// here are damaged.
    ///
    /// # Errors
    /// Those of the store.
    #[expect(clippy::too_many_arguments, reason = "what is sent, and to whom")]
    pub(super) async fn send(
        &self,
        others: &dyn OtherWorkers,
        path: &ObjectPath,
        takers: Vec<String>,
        copies: usize,
        id: &CopyId,
        object: &Object,
        pieces: &[CopyId],
    ) -> Result<(Vec<String>, Option<Error>)> {
        let metadata = object.metadata().await?;
        let mut takers = takers.into_iter();
        let (mut sending, mut taken, mut problem) = (FuturesUnordered::new(), Vec::new(), None);
        // Those that are asked, and those of them that have not answered in time.
        let (mut asked, mut late, mut has_waited) = (BTreeSet::new(), BTreeSet::new(), false);
        let mut in_time = self.env.clock.sleep(LATE + Duration::from_secs(object.size() / SLOW_BYTES_PER_SECOND));
        while taken.len() < copies {
            while sending.len() + taken.len() < copies + late.len()
                && let Some(worker) = takers.next()
            {
                let metadata = metadata.clone();
                asked.insert(worker.clone());
                sending.push(async move {
                    let sent = send_to(others, &worker, path, id, object, metadata, pieces).await;
                    (worker, sent)
                });
            }
            let next = tokio::select! {
                biased;
                next = sending.next() => next,
                // Others are asked beside them.
                () = &mut in_time, if !has_waited => {
                    has_waited = true;
                    if takers.len() > 0 {
                        late.clone_from(&asked);
                    }
                    continue;
                }
            };
            if let Some((worker, _)) = &next {
                asked.remove(worker);
                late.remove(worker);
            }
            match next {
                Some((worker, Ok(()))) => {
                    self.home.sent.has_taken(&worker);
                    taken.push(worker);
                }
                // No other worker would get them.
                Some((_, Err(error))) if error.kind == ErrorKind::Corrupt => {
                    problem = Some(error);
                    break;
                }
                Some((worker, Err(error))) => {
                    tracing::warn!(worker, %path, %error, "a worker did not accept a replica: another one is tried, if there is one");
                    let has_no_room = matches!(error.kind, ErrorKind::SlowDown | ErrorKind::InsufficientStorage);
                    self.home.sent.avoid(&worker, if has_no_room { object.size() } else { 0 });
                    problem = Some(error);
                }
                None => break,
            }
        }
        // Others were quicker, although they were asked later.
        late.iter().for_each(|worker| self.home.sent.avoid(worker, 0));
        Ok((taken, problem))
    }

    fn too_few(&self, path: &ObjectPath, copies: usize, found: usize) -> Error {
        self.metrics.replicas_missing.inc();
        if self.space.is_rejection_told(self.env.clock.monotonic()) {
            tracing::warn!(%path, copies, found, "a write is refused: writeReplicas asks for more workers than can take a copy");
        }
        let context = format!(
            "{path}: writeReplicas asks for copies at {copies} other workers, and {found} can take one at the moment"
        );
        Error { retry_after: Some(RETRY_AFTER), ..Error::new(ErrorKind::SlowDown, context) }
    }

    /// The fates of generations that other workers may have copies of.
    pub(crate) async fn fates(&self, copies: &[CopyId]) -> Vec<Fate> {
        let losses = self.losses();
        let mut fates = Vec::with_capacity(copies.len());
        for copy in copies {
            // Before its record is read: a write that ends in between has changed that.
            let is_undecided = self.home.sent.is_undecided(copy);
            fates.push(match (is_undecided, self.wanted_generation(&copy.key).await) {
                (false, Ok(Some(generation))) if generation == copy.generation => Fate::Named,
                (false, Ok(_)) => Fate::Gone,
                // This worker is not the home of the key, or not sure of that.
                (true, _) | (false, Err(_)) => Fate::Undecided,
            });
        }
        // The records of slots that were given up meanwhile are not here any more.
        if self.losses() == losses { fates } else { vec![Fate::Undecided; copies.len()] }
    }
}

/// # Errors
/// `Corrupt` when the bytes here are damaged, and only then; those of the other worker.
async fn send_to(
    others: &dyn OtherWorkers,
    worker: &str,
    path: &ObjectPath,
    id: &CopyId,
    object: &Object,
    metadata: Bytes,
    pieces: &[CopyId],
) -> Result<()> {
    let copy = |pieces, stream| NewCopy {
        id: id.clone(),
        path: path.clone(),
        pieces,
        bytes: HeldBytes {
            size: object.size(),
            metadata: metadata.clone(),
            annex: Bytes::copy_from_slice(object.annex()),
            stream,
        },
    };
    let of_receiver = |error| of_sender(error, false);
    if !pieces.is_empty() {
        let taken = others.take_copy(worker, copy(pieces.to_vec(), futures::stream::empty().boxed())).await;
        if taken.map_err(of_receiver)? {
            return Ok(());
        }
    }
    if object.size() >= ROOM_ASKED_BYTES {
        others.room_for_copy(worker, path, object.size()).await.map_err(of_receiver)?;
    }
    let is_damaged = Arc::new(AtomicBool::new(false));
    let found = Arc::clone(&is_damaged);
    let stream = StoreSource::new(object.clone()).stream(ByteRange::of_size(object.size())).map_err(Error::from);
    let stream = stream.inspect_err(move |error| {
        if error.kind == ErrorKind::Corrupt {
            found.store(true, Ordering::SeqCst);
        }
    });
    let taken = others.take_copy(worker, copy(Vec::new(), stream.boxed())).await;
    match taken.map_err(|error| of_sender(error, is_damaged.load(Ordering::SeqCst)))? {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Unavailable, format!("worker {worker} has not taken the bytes"))),
    }
}

/// The error of a worker that took no copy, which does not know whether bytes here are damaged.
fn of_sender(error: Error, is_damaged: bool) -> Error {
    let kind = match (is_damaged, error.kind) {
        (true, _) => ErrorKind::Corrupt,
        (false, ErrorKind::Corrupt) => ErrorKind::Unavailable,
        (false, kind) => kind,
    };
    Error { kind, ..error }
}
