//! Persistence: uploads dirty objects and deletes to the under store, in the order of generations.
//!
//! Each key has one request in flight at a time. It carries the newest generation, so overwrites coalesce. A request
//! carries a condition if the state of the under store is known, and its outcome is committed before anything is
//! forgotten. See "The under store never goes backwards" in ARCHITECTURE.md.

pub(crate) mod backlog;
mod conditional_writes;
mod events;
mod odd_etags;
mod outcome;
mod queue;
pub(crate) mod refusals;
pub(crate) mod settle;
mod source;
pub(crate) mod stalled;
pub(crate) mod undeliverable;
pub(crate) mod undeliverable_page;

use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::records::{Base, ObjectRecord, State};
use forebay_catalog::{LocalChange, Transaction};
use forebay_env::SPANS;
use forebay_store::{Annotation, Object};
use forebay_types::{ByteRange, ETag, Generation, ObjectPath};
use forebay_ufs::{Condition, ErrorKind as UfsKind, RemoteObject, UnderStore, Upload, UploadSource};
use futures::{FutureExt, StreamExt};
use tokio::sync::{Semaphore, SemaphorePermit};

pub(crate) use conditional_writes::ConditionalWrites;
pub(crate) use events::PersistEvents;
pub(crate) use odd_etags::OddEtags;
use outcome::Done;
pub(crate) use queue::{Backoff, Blame, Entry, LARGE_BYTES, LARGE_UPLOADS_MAX, Pause, Queue};
pub(crate) use source::StoreSource;
use source::{LeasedSource, is_sound};

use crate::list::positions;
use crate::locks::KeyGuard;
use crate::metadata::{Annex, decode_info};
use crate::read::negative_cache::Absence;
use crate::scope::Scope;
use crate::worker::{Current, Worker};
use crate::write::change::{end_intent, intent};
use crate::{Error, ErrorKind, ListedObject, Mount, PersistEvent, Result};

/// How often a request retries with a new condition after its condition failed, before the object waits. Each failure
/// means that somebody else has changed the under store in between.
const CONDITION_TRIES: usize = 4;

/// How many versions of a key a write that bypasses the queue sees to the under store before its own. A key may be
/// written back faster than the under store takes it.
const VERSIONS_MAX: usize = 16;

/// Objects of at least this size are not sent before it is known what they replace, because sending them twice would
/// take longer than asking.
const ASK_FIRST_BYTES: u64 = 8 << 20;

/// The pause before a retry of an object whose bytes are at another worker. Once they are here, it is retried at once.
const ELSEWHERE_PAUSE: Duration = Duration::from_secs(30);

/// Why a version was not persisted.
pub(crate) enum PersistError {
    UnderStore(forebay_ufs::Error),
    Local(Error),
    /// An earlier request must settle first.
    Unsettled(Duration),
    /// The object was overwritten during the upload, and its bytes are gone.
    Replaced,
    /// The bytes are still at another worker.
    Elsewhere,
    /// The bucket is not found where its changes were sent before: see [`crate::buckets`].
    OtherPlace(String),
}

impl PersistError {
    fn is_corrupt(&self) -> bool {
        match self {
            Self::UnderStore(error) => error.kind == UfsKind::Corrupt,
            Self::Local(error) => error.kind == ErrorKind::Corrupt,
            Self::Unsettled(_) | Self::Replaced | Self::Elsewhere | Self::OtherPlace(_) => false,
        }
    }
}

impl From<Error> for PersistError {
    fn from(error: Error) -> Self {
        Self::Local(error)
    }
}

impl From<PersistError> for Error {
    fn from(failure: PersistError) -> Self {
        match failure {
            PersistError::UnderStore(error) => error.into(),
            PersistError::Local(error) => error,
            PersistError::Unsettled(wait) => {
                let context = format!("an earlier request settles in {} s at the latest", wait.as_secs() + 1);
                Self::new(ErrorKind::SlowDown, context)
            }
            PersistError::Replaced => Self::new(ErrorKind::SlowDown, "the object was written again while it was sent"),
            PersistError::Elsewhere => Self::new(ErrorKind::Unavailable, "the bytes are at another worker still"),
            PersistError::OtherPlace(problem) => Self::new(ErrorKind::Unavailable, problem),
        }
    }
}

/// Limits uploads on demand to as many large objects at once as the queue allows.
pub(crate) struct LargeUploads(Semaphore);

impl LargeUploads {
    pub(crate) fn new() -> Self {
        Self(Semaphore::new(LARGE_UPLOADS_MAX))
    }

    /// A slot for an upload, if it needs one.
    pub(crate) async fn permit(&self, object: &Current) -> Option<SemaphorePermit<'_>> {
        let is_large = object.record.as_ref().is_some_and(|record| record.size > LARGE_BYTES);
        if is_large { Some(self.0.acquire().await.expect("this semaphore is never closed")) } else { None }
    }
}

/// The pending version of a key that is written or deleted through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// It cannot be read: it is damaged or missing, or the disk may recover later. The new write replaces it in the
    /// catalog first, so that the old version is never uploaded after the new one.
    Unreadable,
    /// The under store refuses it, and no request of it is in flight. The new write replaces it once the under store
    /// has the new write.
    Refused,
}

/// What [`Worker::record_outcome`] records.
struct Outcome {
    done: Done,
    /// Of before the request: see [`Worker::note_deleted`].
    before: Absence,
    /// Whether the request has a write intent.
    noted: bool,
    may_wait: bool,
}

impl Worker {
    /// The bytes of an object, for an upload.
    pub(crate) fn upload_source(&self, object: Object) -> Arc<dyn UploadSource> {
        Arc::new(LeasedSource { source: StoreSource::new(object), catalog: Arc::clone(&self.catalog) })
    }

    /// One of the tasks that persist. It ends when the worker stops.
    pub(crate) async fn persist_loop(self: Arc<Self>) {
        loop {
            let path = tokio::select! {
                biased;
                // Checked first: a worker that stops starts nothing new.
                () = self.stop.cancelled() => return,
                path = self.home.queue.next() => path,
            };
            let Ok((own, guard)) = self.lock_to_persist(&path).await else {
                self.home.queue.drop_one(&path);
                continue;
            };
            let mut tried = None;
            let result = self.persist_newest(&path, &guard, true, &mut tried).await;
            self.report(&path, tried, result).await;
            drop((guard, own));
        }
    }

    /// The locks of a persist that no client waits for. The second one is the upload lock.
    ///
    /// # Errors
    /// `Moved` when the path is not at home here, or is about to be given up.
    pub(crate) async fn lock_to_persist(&self, path: &ObjectPath) -> Result<(KeyGuard, KeyGuard)> {
        let own = self.home.persist_locks.lock(path).await?;
        Ok((own, self.home.upload_locks.lock(path).await?))
    }

    /// `tried` is the generation that was sent. The caller holds the key's upload lock.
    async fn report(&self, path: &ObjectPath, tried: Option<Generation>, result: Result<bool, PersistError>) {
        let (mut is_missing, mut is_answer) = (false, true);
        let (kind, context, blame, is_told) = match result {
            Ok(_) => return self.home.queue.succeeded(path),
            Err(PersistError::Unsettled(wait)) => {
                self.home.queue.failed(path, Blame::Nobody(wait));
                return;
            }
            Err(PersistError::Replaced) => {
                self.home.queue.failed(path, Blame::Nobody(Duration::ZERO));
                return;
            }
            Err(PersistError::Elsewhere) => {
                self.home.queue.failed(path, Blame::Nobody(ELSEWHERE_PAUSE));
                return;
            }
            Err(PersistError::OtherPlace(problem)) => ("OtherPlace".to_owned(), problem, Blame::Access, false),
            Err(PersistError::Local(error)) => {
                let remote = matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Moved | ErrorKind::NoSuchBucket);
                let blame = if remote { Blame::UnderStore } else { Blame::Object };
                is_missing = error.kind == ErrorKind::NoSuchBucket;
                // That the catalog fails says nothing of the under store.
                is_answer = is_missing;
                (format!("{:?}", error.kind), error.to_string(), blame, false)
            }
            Err(PersistError::UnderStore(error)) => {
                // Local damage and local changes are not refusals. An object that alone gets no answer counts as
                // refused.
                let is_told = error.kind.is_invalid()
                    || matches!(error.kind, UfsKind::Unsupported | UfsKind::Unavailable | UfsKind::Ambiguous)
                    || matches!(error.kind, UfsKind::NoSpace | UfsKind::ReadOnly);
                let blame = match error.kind {
                    UfsKind::Throttled => Blame::Throttling,
                    UfsKind::Unavailable | UfsKind::Ambiguous | UfsKind::NoSpace | UfsKind::ReadOnly => {
                        Blame::UnderStore
                    }
                    UfsKind::Denied | UfsKind::Credentials | UfsKind::NoBucket => Blame::Access,
                    UfsKind::NotFound
                    | UfsKind::AlreadyExists
                    | UfsKind::NotEmpty
                    | UfsKind::Precondition
                    | UfsKind::Conflict
                    | UfsKind::Unsupported
                    | UfsKind::Invalid
                    | UfsKind::InvalidName
                    | UfsKind::InvalidStorageClass
                    | UfsKind::Corrupt => Blame::Object,
                };
                (format!("{:?}", error.kind), error.to_string(), blame, is_told)
            }
        };
        self.metrics.persist_failed(&kind);
        let Pause { pause, blame } = self.home.queue.failed(path, blame);
        if let (Blame::Object, true, Some(tried)) = (blame, is_told, tried) {
            self.note_refusal(path, tried, &context).await;
        }
        if is_answer {
            self.home.queue.note_answer(path, is_missing, blame, &context);
        }
        tracing::warn!(%path, error = context, pause_ms = pause.as_millis() as u64, "could not persist");
    }

    /// Records the refusal for operators, unless the version no longer waits.
    async fn note_refusal(&self, path: &ObjectPath, tried: Generation, reason: &str) {
        let Ok(_lock) = self.home.locks.lock(path).await else { return };
        let current = self.current(path).await;
        let waits = |current: &Current| {
            current.waits() && current.record.as_ref().is_some_and(|record| record.generation == tried)
        };
        if current.as_ref().is_ok_and(waits) {
            self.home.refusals.add(path, tried, self.env.clock.unix_ms(), reason);
        }
    }

    /// Persists everything that waits under `prefix` (`/`, `/bucket`, `/bucket/key/prefix`) now. Every request runs to
    /// its end, even when another one fails. If it were dropped earlier, nobody would know its outcome.
    pub(crate) async fn persist(&self, prefix: &str) -> Result<()> {
        let scope = Scope::parse(prefix)?;
        self.persist_all(self.home.queue.waiting(&scope)).await
    }

    /// The same for these paths.
    pub(crate) async fn persist_all(&self, waiting: Vec<ObjectPath>) -> Result<()> {
        let large = LargeUploads::new();
        let persist_one = |path: ObjectPath| async {
            let path = path;
            let _permit = large.permit(&self.current(&path).await?).await;
            let (_own, guard) = self.lock_to_persist(&path).await?;
            self.persist_object(&path, &guard, false).await.map(drop).map_err(Error::from)
        };
        let limit = self.settings.persist_concurrency as usize;
        let mut results = futures::stream::iter(waiting).map(persist_one).buffer_unordered(limit);
        let mut first_error = Ok(());
        while let Some(result) = results.next().await {
            first_error = first_error.and(result);
        }
        first_error
    }

    /// Waits until no version of the key waits for the under store, and returns with the key's lock. If the pending
    /// version cannot be persisted, it returns the lock and says so.
    pub(crate) async fn lock_when_persisted(
        &self,
        path: &ObjectPath,
        upload: &KeyGuard,
    ) -> Result<(KeyGuard, Current, Left)> {
        for _ in 0..VERSIONS_MAX {
            let lock = self.lock_key(path).await?;
            let current = self.current(path).await?;
            if !current.waits() {
                return Ok((lock, current, Left::Nothing));
            }
            drop(lock);
            // Boxed: this is rare, and would make the future of every write larger.
            let Err(failure) = self.persist_object(path, upload, false).boxed().await else { continue };
            if matches!(failure, PersistError::Replaced) {
                continue;
            }
            let is_refused = matches!(&failure, PersistError::UnderStore(error) if error.kind.is_refusal());
            let error = Error::from(failure);
            let left = match error.kind {
                _ if is_refused => Left::Refused,
                ErrorKind::Corrupt => Left::Unreadable,
                _ => return Err(error),
            };
            let lock = self.lock_key(path).await?;
            let now = self.current(path).await?;
            if now.version == current.version {
                return Ok((lock, now, left));
            }
        }
        let context = format!("{path} is written back faster than the under store takes it");
        Err(Error::new(ErrorKind::SlowDown, context))
    }

    /// Persists what a client has just written here, while the client waits.
    ///
    /// # Errors
    /// `Unavailable`: the change stays here, and may be in the under store or reach it later.
    pub(crate) async fn persist_for_client(&self, path: &ObjectPath, upload: &KeyGuard) -> Result<()> {
        let problem = match self.persist_newest(path, upload, false, &mut None).await {
            Ok(true) => return Ok(()),
            Ok(false) => "conflict: another writer has changed it there".to_owned(),
            Err(failure) => Error::from(failure).to_string(),
        };
        let context = format!("the change of {path} is here, and the under store may not have it: {problem}");
        Err(Error::new(ErrorKind::Unavailable, context))
    }

    /// Uploads the newest generation of a key to the under store. The caller holds the key's upload lock. `may_wait` is
    /// set when no client waits for the outcome. Returns `false` after a conflict.
    pub(crate) async fn persist_object(
        &self,
        path: &ObjectPath,
        upload: &KeyGuard,
        may_wait: bool,
    ) -> Result<bool, PersistError> {
        self.persist_newest(path, upload, may_wait, &mut None).await
    }

    /// Stores the generation that it sends in `tried`. Returns `true` if nothing waits any more because the under store
    /// has it, and `false` after a conflict.
    #[tracing::instrument(target = SPANS, name = "persist", skip_all, fields(aws.s3.bucket = %path.bucket, aws.s3.key = %path.key))]
    async fn persist_newest(
        &self,
        path: &ObjectPath,
        _upload: &KeyGuard,
        may_wait: bool,
        tried: &mut Option<Generation>,
    ) -> Result<bool, PersistError> {
        let current = self.current(path).await?;
        if !current.waits() {
            // The answer may have been lost after another version had replaced the one that was sent.
            self.home.settle.answered(path);
            return Ok(true);
        }
        let mount = self.buckets.mount(&path.bucket).await?;
        let wait = self.home.settle.wait(path);
        if !wait.is_zero() {
            return Err(PersistError::Unsettled(wait));
        }
        if current.record.as_ref().is_some_and(|record| self.home.settle.is_left(path, record.generation)) {
            let context = format!(
                "the under store has {path}, but whether that is recorded is unknown: nothing more is sent for this version until a restart"
            );
            return Err(Error::new(ErrorKind::Unavailable, context).into());
        }
        let passing = self.passing_write(path).await?;
        let noted = self.note_request(path, passing).await || passing.is_some();
        let (mut current, object) = self.dirty(path).await?;
        let waits = current.waits();
        let Some(record) = current.record.as_mut().filter(|_| waits) else {
            // Nothing is sent: a version that goes nowhere has replaced it, or it was dropped.
            if noted {
                self.end_request(path).await;
            }
            return Ok(true);
        };
        self.home.odd_etags.recall(record);
        let record = &*record;
        *tried = Some(record.generation);
        let started = self.env.clock.monotonic();
        let before = self.before_delete(path);
        let is_delete = record.state == State::Tombstone;
        let looked = match self.buckets.check_mark(&path.bucket, mount.background.as_ref(), is_delete).await {
            Ok(()) => self.look_when_in_doubt(path, record, object.as_ref(), passing, &mount).await,
            Err(failure) => Err(failure),
        };
        let result = match (looked, record.state) {
            (Ok(Some(done)), _) => Ok(done),
            (Err(failure), _) => Err(failure),
            (Ok(None), State::Dirty) => self.upload(path, record, object.clone(), &mount).await,
            (Ok(None), State::Tombstone) => self.delete_remote(path, record, &mount).await,
            (Ok(None), State::Transient | State::Conflict) => return Ok(true),
        };
        let result = match result {
            Err(PersistError::UnderStore(error)) if error.kind == UfsKind::Conflict => {
                let is_replaced = self.current(path).await?.version != current.version;
                Err(if is_replaced { PersistError::Replaced } else { PersistError::UnderStore(error) })
            }
            Err(failure) if failure.is_corrupt() => Err(self.of_damage(path, object.as_ref(), failure).await),
            result => result,
        };
        self.note_try(path, record, &result, started);
        let done = result?;
        self.home.settle.answered(path);
        let is_there = !matches!(done, Done::Conflict);
        self.home.fence.advance(path);
        let stored = if let Done::Stored(etag) = &done { Some(etag.clone()) } else { None };
        let outcome = Outcome { done, before, noted, may_wait };
        if let Err(error) = self.record_outcome(path, record, &mount, outcome).await {
            if stored.is_some() {
                self.home.settle.unrecorded(path, record, stored);
            }
            // Otherwise the record is as it was, and the next try finds out what the under store has.
            if error.is_commit_in_doubt() {
                self.home.settle.leave(path, record.generation);
            }
            return Err(error.into());
        }
        self.metrics.persist_done(record.size, self.env.clock.monotonic().saturating_sub(started));
        Ok(is_there)
    }

    /// What follows from damage: when the bytes here are damaged and another worker may have them, they are awaited.
    async fn of_damage(&self, path: &ObjectPath, object: Option<&Object>, failure: PersistError) -> PersistError {
        let Some(object) = object else { return failure };
        // The under store may have said so, of bytes that were damaged on their way.
        if is_sound(object).await || !self.note_damaged(path, object).await {
            return failure;
        }
        // No worker had them when they were looked for last. A new write need not wait for them.
        if self.home.missing.has(path) { failure } else { PersistError::Elsewhere }
    }

    /// Remembers the outcome for operators and for later writes.
    fn note_try(
        &self,
        path: &ObjectPath,
        record: &ObjectRecord,
        result: &Result<Done, PersistError>,
        started: Duration,
    ) {
        let class = record.storage_class.as_deref();
        match result {
            Ok(Done::Stored(_)) => self.home.refusals.unlearn(path, class),
            Err(PersistError::UnderStore(error)) if record.state == State::Dirty => {
                self.home.refusals.learn(path, class, error.kind);
            }
            Ok(Done::Deleted | Done::Conflict | Done::Superseded) | Err(_) => {}
        }
        let (outcome, error) = match result {
            Ok(Done::Stored(_)) => ("stored", None),
            Ok(Done::Deleted) => ("deleted", None),
            Ok(Done::Conflict) => ("conflict", None),
            Ok(Done::Superseded) => ("superseded", None),
            Err(PersistError::UnderStore(error)) => ("failed", Some(format!("the under store: {error}"))),
            Err(PersistError::Local(error)) => ("failed", Some(error.to_string())),
            Err(PersistError::OtherPlace(problem)) => ("failed", Some(problem.clone())),
            Err(PersistError::Unsettled(_) | PersistError::Replaced | PersistError::Elsewhere) => return,
        };
        let event = PersistEvent {
            time_ms: self.env.clock.unix_ms(),
            outcome: outcome.to_owned(),
            generation: record.generation.0,
            bytes: record.size,
            duration_ms: self.env.clock.monotonic().saturating_sub(started).as_millis() as u64,
            error,
        };
        self.home.persist_events.add(path, event);
    }

    /// Records a write intent if a power cut may erase the record of the version, since nobody would know of the
    /// request then. Returns whether an intent was needed.
    async fn note_request(&self, path: &ObjectPath, passing: Option<Generation>) -> bool {
        if !self.policies.may_hold_unsynced(path) {
            return false;
        }
        let writes = vec![intent(path, self.home.settle.start(), passing)];
        let transaction = Transaction { writes, ..Transaction::default() };
        if let Err(error) = self.catalog.commit(transaction).await {
            // The disk takes no more writes. Bytes that it can still read should go where they are safe.
            tracing::warn!(%path, %error, "the write intent could not be recorded: the upload is sent without one");
        }
        true
    }

    /// Whether the under store has this version or something newer, so that nothing has to be sent. It is asked only in
    /// three cases: the record may be stale; the bytes are gone, because a directory was forgotten or a file is
    /// missing; or a write bypassed the pending version (`passing` or an earlier one).
    async fn look_when_in_doubt(
        &self,
        path: &ObjectPath,
        record: &ObjectRecord,
        object: Option<&Object>,
        passing: Option<Generation>,
        mount: &Mount,
    ) -> Result<Option<Done>, PersistError> {
        let lacks_bytes = record.state == State::Dirty && !object.is_some_and(Object::is_whole);
        let may_be_stale = self.home.stale_records.is_about(record.generation);
        let passing = passing.filter(|passing| *passing > record.generation);
        if !may_be_stale && !lacks_bytes && passing.is_none() {
            return Ok(None);
        }
        let remote = match mount.background.head(&path.key).await {
            Ok(remote) => remote,
            Err(error) if error.kind == UfsKind::NotFound => return Ok(None),
            Err(error) => return Err(PersistError::UnderStore(error)),
        };
        // The version that the record replaces is older, no matter who wrote it.
        let is_replaced = matches!(&record.base, Base::Present(base) if *base == remote.remote_etag);
        if is_ours(record, &remote) {
            mount.background.make_durable(&path.key).await.map_err(PersistError::UnderStore)?;
            return Ok(Some(Done::Stored(remote.remote_etag)));
        }
        let stamped = remote.stamp.map(|stamp| stamp.generation);
        Ok(match stamped {
            Some(stamped) if stamped > record.generation && passing.is_some_and(|passing| stamped <= passing) => {
                tracing::info!(%path, generation = record.generation.0, newer = stamped.0, "a later write whose answer was lost has reached the under store: the pending version is superseded");
                Some(Done::Superseded)
            }
            Some(stamped) if may_be_stale && !is_replaced && stamped > record.generation => {
                tracing::warn!(%path, generation = record.generation.0, newer = stamped.0, "the under store has a newer version, whose record is lost: the stale one here is superseded");
                Some(Done::Superseded)
            }
            Some(_) | None => None,
        })
    }

    async fn upload(
        &self,
        path: &ObjectPath,
        record: &ObjectRecord,
        object: Option<Object>,
        mount: &Mount,
    ) -> Result<Done, PersistError> {
        let missing = || {
            let context = format!("generation {} of {path} is not in the store", record.generation);
            Error::new(ErrorKind::Corrupt, context)
        };
        // Until others take the place of damaged bytes, an upload would only fail again. When nobody has others, it
        // fails with the reason.
        let is_usable = |object: &Object| !self.is_damaged(object) || self.home.missing.has(path);
        let object = match object.filter(is_usable) {
            None if self.may_be_elsewhere(&record.holders) => {
                self.home.copies.add(Self::store_key(path), path);
                // No worker had them when they were looked for last. A new write need not wait for them.
                if self.home.missing.has(path) {
                    return Err(missing().into());
                }
                return Err(PersistError::Elsewhere);
            }
            object => object.ok_or_else(missing)?,
        };
        let info = Arc::new(decode_info(&object.metadata().await.map_err(Error::from)?)?);
        // versitygw drops the connection when a condition fails during the body. Sent again, the request would get no
        // answer again.
        let is_in_doubt = self.home.settle.is_unanswered(path);
        let mut known = match &record.base {
            _ if is_in_doubt => None,
            // An under store reports a failed condition only after it has the whole body, or all parts.
            Base::Unknown if record.size >= ASK_FIRST_BYTES => None,
            // Usually nothing is there. If something is, one request tells what.
            Base::Unknown | Base::Absent => Some(Condition::Absent),
            Base::Present(etag) => Some(Condition::Matches(etag.clone())),
        };
        // Counts requests with the condition that nothing is there. If they fail although HEAD finds nothing, the under
        // store contradicts itself.
        let mut absent_refused = 0;
        for _ in 0..CONDITION_TRIES {
            let condition = match known.take() {
                Some(condition) => condition,
                None => match self.look_to_upload(path, record, mount).await? {
                    ActualVersion::Ours(etag) => {
                        let durable = mount.background.make_durable(&path.key).await;
                        durable.map_err(PersistError::UnderStore)?;
                        return Ok(Done::Stored(etag));
                    }
                    ActualVersion::Replaceable(etag) => Condition::Matches(etag),
                    // versitygw takes a delete marker for an object, and this condition would never hold.
                    ActualVersion::Nothing if absent_refused > 1 => {
                        tracing::debug!(%path, "nothing is there, and If-None-Match is refused");
                        Condition::Always
                    }
                    ActualVersion::Nothing => Condition::Absent,
                    ActualVersion::Foreign => return Ok(Done::Conflict),
                },
            };
            absent_refused += u32::from(matches!(condition, Condition::Absent));
            let source = self.upload_source(object.clone());
            let upload = Upload { generation: record.generation, info: Arc::clone(&info), source, condition };
            match self.permitted(mount.background.put(&path.key, upload)).await {
                Ok(stored) => return Ok(Done::Stored(stored.remote_etag)),
                Err(error) if error.kind == UfsKind::Precondition => {}
                Err(error) => {
                    let is_unanswered = error.kind == UfsKind::Ambiguous;
                    if is_unanswered {
                        self.home.settle.unanswered(path);
                    }
                    let failure = self.request_failed(path, error);
                    if is_unanswered && !mount.background.has_room_for_stamp(&path.key, record.generation, &info) {
                        // Boxed: this is rare, and would make the future of every upload larger.
                        if let Err(error) = self.forget_base(path).boxed().await {
                            self.home.settle.unrecorded(path, record, None);
                            tracing::warn!(%path, %error, "an upload without a stamp got no answer, and that could not be recorded: if it lands, it counts as a write of others after a restart");
                        }
                    }
                    return Err(failure);
                }
            }
        }
        Err(keeps_changing())
    }

    /// An upload without a stamp got no answer. If it lands, it looks like a write of others: what the under store
    /// holds is unknown from now on.
    async fn forget_base(&self, path: &ObjectPath) -> Result<()> {
        let _lock = self.lock_key(path).await?;
        let current = self.current(path).await?;
        // The key may have been overwritten or deleted in the meantime. That version has the same base.
        let Some(now) = current.record.as_ref().filter(|_| current.waits()) else { return Ok(()) };
        self.home.odd_etags.forget_base(now.dirty_since);
        let after = ObjectRecord { base: Base::Unknown, ..now.clone() };
        self.change_record(path, &current, Some(&after), Transaction::default()).await
    }

    async fn delete_remote(
        &self,
        path: &ObjectPath,
        record: &ObjectRecord,
        mount: &Mount,
    ) -> Result<Done, PersistError> {
        let known = match &record.base {
            Base::Unknown => Some(Condition::Always),
            // Others may have written it since.
            Base::Absent => None,
            Base::Present(etag) => Some(Condition::Matches(etag.clone())),
        };
        let was_there = matches!(record.base, Base::Present(_));
        let mut next = known.clone();
        for _ in 0..CONDITION_TRIES {
            if let Some(condition) = next.take() {
                let error = match self.permitted(mount.background.delete(&path.key, condition)).await {
                    Ok(()) => return Ok(Done::Deleted),
                    Err(error) => error,
                };
                if error.kind == UfsKind::InvalidName
                    && !was_there
                    && !can_have(mount.background.as_ref(), path).await.map_err(PersistError::UnderStore)?
                {
                    return Ok(Done::Deleted);
                }
                if error.kind != UfsKind::Precondition {
                    return Err(self.request_failed(path, error));
                }
            }
            next = match self.look_to_delete(path, record, mount).await? {
                None => return Ok(Done::Deleted),
                Some(ActualVersion::Nothing) => known.clone(),
                Some(ActualVersion::Ours(etag) | ActualVersion::Replaceable(etag)) => Some(Condition::Matches(etag)),
                Some(ActualVersion::Foreign) => return Ok(Done::Conflict),
            };
        }
        Err(keeps_changing())
    }

    /// Finds out what a delete would delete. `None` if there is certainly no object.
    async fn look_to_delete(
        &self,
        path: &ObjectPath,
        record: &ObjectRecord,
        mount: &Mount,
    ) -> Result<Option<ActualVersion>, PersistError> {
        let was_there = matches!(record.base, Base::Present(_));
        match self.look(path, record, mount).await {
            Ok(ActualVersion::Nothing) => {}
            Err(PersistError::UnderStore(error)) if error.kind == UfsKind::InvalidName && !was_there => {
                return match can_have(mount.background.as_ref(), path).await.map_err(PersistError::UnderStore)? {
                    true => Err(PersistError::UnderStore(error)),
                    false => Ok(None),
                };
            }
            actual => return actual.map(Some),
        }
        // The answer to HEAD has no body, so a 404 of a proxy looks the same.
        match mount.background.get(&path.key, Some(ByteRange::new(0, 1)), None).await {
            Err(error) if error.kind == UfsKind::NotFound => {
                mount.background.make_durable(&path.key).await.map_err(PersistError::UnderStore)?;
                Ok(None)
            }
            Err(error) if error.kind == UfsKind::InvalidName && !was_there => Ok(None),
            // The object exists. An empty one has no first byte.
            Ok(_) => Ok(Some(ActualVersion::Nothing)),
            Err(error) if error.kind == UfsKind::Invalid => Ok(Some(ActualVersion::Nothing)),
            Err(error) => Err(PersistError::UnderStore(error)),
        }
    }

    fn request_failed(&self, path: &ObjectPath, error: forebay_ufs::Error) -> PersistError {
        if error.kind == UfsKind::Ambiguous {
            self.home.settle.mark(path);
        }
        PersistError::UnderStore(error)
    }

    /// The record of a key and, if it is dirty, the object of exactly this generation, because the key may be
    /// overwritten between the two lookups. A dirty record without an object has lost its bytes.
    async fn dirty(&self, path: &ObjectPath) -> Result<(Current, Option<Object>)> {
        let mut seen = None;
        loop {
            let current = self.current(path).await?;
            let Some(record) = current.record.as_ref().filter(|record| record.state == State::Dirty) else {
                return Ok((current, None));
            };
            let object = self.store.peek(&Self::store_key(path));
            let object = object.filter(|object| object.generation() == record.generation);
            if object.is_some() || seen == current.version {
                return Ok((current, object));
            }
            seen = current.version;
            self.store.await_shown();
        }
    }

    /// As [`Worker::look`], which also ends the doubt that an upload without an answer has left. Credentials that may
    /// write but not read end it, too: the next try has to go without a look.
    async fn look_to_upload(
        &self,
        path: &ObjectPath,
        record: &ObjectRecord,
        mount: &Mount,
    ) -> Result<ActualVersion, PersistError> {
        let looked = self.look(path, record, mount).await;
        if !matches!(&looked, Err(PersistError::UnderStore(error)) if error.kind != UfsKind::Denied) {
            self.home.settle.answered(path);
        }
        looked
    }

    /// After a failed condition, or an upload without an answer: finds out what the under store has.
    async fn look(
        &self,
        path: &ObjectPath,
        record: &ObjectRecord,
        mount: &Mount,
    ) -> Result<ActualVersion, PersistError> {
        let remote = match mount.background.head(&path.key).await {
            Ok(remote) => remote,
            Err(error) if error.kind == UfsKind::NotFound => return Ok(ActualVersion::Nothing),
            Err(error) => return Err(PersistError::UnderStore(error)),
        };
        if self.home.odd_etags.is_base(record, &remote) {
            return Ok(ActualVersion::Replaceable(remote.remote_etag));
        }
        if remote.stamp.is_none()
            && let Some(is_version) = self.home.settle.finds_unrecorded(path, record, &remote.remote_etag)
        {
            let actual = if is_version { ActualVersion::Ours } else { ActualVersion::Replaceable };
            return Ok(actual(remote.remote_etag));
        }
        Ok(found(record, remote))
    }

    /// Commits what the under store now holds. The key may have been overwritten in the meantime.
    async fn record_outcome(
        &self,
        path: &ObjectPath,
        sent: &ObjectRecord,
        mount: &Mount,
        Outcome { done, before, noted, may_wait }: Outcome,
    ) -> Result<()> {
        // The commit may wait long, and others may change the object meanwhile.
        let answered = self.home.validity.now();
        let _lock = self.lock_key(path).await?;
        let current = self.current(path).await?;
        let is_concerned = |now: &&ObjectRecord| now.generation == sent.generation || current.waits();
        let Some(now) = current.record.as_ref().filter(is_concerned) else {
            // A version that goes nowhere has replaced what was sent, or it was dropped: only the request has ended.
            if noted {
                self.end_request(path).await;
            }
            return Ok(());
        };
        let unchanged = now.generation == sent.generation;
        let is_deleted = unchanged && matches!(done, Done::Deleted);
        let abandons_delete = unchanged && matches!(done, Done::Conflict) && now.state == State::Tombstone;
        if unchanged {
            self.home.positions.changed(path, || match done {
                Done::Stored(_) => {
                    positions::Change::Written(ListedObject::of(path, now, self.checksums_of(path, now)))
                }
                Done::Deleted => positions::Change::Deleted,
                Done::Conflict | Done::Superseded => positions::Change::Unknown,
            });
        }
        let (after, local) = match unchanged {
            true => match done {
                Done::Stored(etag) => (None, self.clean(path, sent, etag)),
                Done::Deleted => (None, LocalChange::default()),
                Done::Conflict => (conflict(path, now), LocalChange::default()),
                Done::Superseded => {
                    (None, LocalChange { forget: vec![Self::store_key(path)], ..LocalChange::default() })
                }
            },
            // Boxed: this is rare, and would make the future of every upload larger.
            false => (Some(self.rebased(path, now, done, sent, mount).boxed().await), LocalChange::default()),
        };
        // Durable, although a loss would only repeat a request: a write that bypasses the catalog (WRITE_THROUGH) must
        // not be followed by an older dirty version after a crash. No client waits for these commits, so they share a
        // later sync.
        let writes = if noted { vec![end_intent(path)] } else { Vec::new() };
        let transaction = Transaction { writes, local, may_wait, ..Transaction::default() };
        self.change_record(path, &current, after.as_ref(), transaction).await?;
        self.home.settle.recorded(path);
        self.home.odd_etags.forget_base(sent.dirty_since);
        if unchanged {
            self.home.validity.mark_valid_at(sent.generation, answered);
        }
        if is_deleted {
            self.note_deleted(path, before);
        }
        if abandons_delete {
            self.metrics.abandoned_deletes.inc();
        }
        Ok(())
    }

    fn clean(&self, path: &ObjectPath, sent: &ObjectRecord, remote_etag: ETag) -> LocalChange {
        let annex = Annex::clean(remote_etag, &sent.etag, self.checksums_of(path, sent)).encode();
        let annotation = Annotation { key: Self::store_key(path), generation: sent.generation, annex, pinned: false };
        LocalChange { annotate: vec![annotation], ..LocalChange::default() }
    }
}

/// The condition failed [`CONDITION_TRIES`] times.
fn keeps_changing() -> PersistError {
    PersistError::UnderStore(forebay_ufs::Error::new(UfsKind::Conflict, "the object keeps changing in the under store"))
}

/// Whether the under store may have an object under a key that it refuses to delete. If it refuses to read that name,
/// too, it has no such object.
pub(crate) async fn can_have(under_store: &dyn UnderStore, path: &ObjectPath) -> forebay_ufs::Result<bool> {
    match under_store.get(&path.key, None, None).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind, UfsKind::NotFound | UfsKind::InvalidName) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What the under store has instead of the expected version.
#[derive(Debug, PartialEq, Eq)]
enum ActualVersion {
    Nothing,
    /// The version that was sent: an earlier attempt has landed.
    Ours(ETag),
    /// May be replaced: it is an earlier generation since the object became dirty, or the state was unknown.
    Replaceable(ETag),
    Foreign,
}

/// Whether an object in the under store is this version. The generation alone does not prove it: a copy of these data
/// directories that runs at the same time uses the same numbers for other writes.
fn is_ours(record: &ObjectRecord, remote: &RemoteObject) -> bool {
    let has_generation = remote.stamp.as_ref().is_some_and(|stamp| stamp.generation == record.generation);
    let (size, etag, time) = (remote.info.size, &remote.info.etag, remote.info.last_modified_ms);
    let is_same_write = (size, etag, time) == (record.size, &record.etag, record.last_modified_ms);
    record.state == State::Dirty && has_generation && is_same_write
}

fn found(record: &ObjectRecord, remote: RemoteObject) -> ActualVersion {
    if is_ours(record, &remote) {
        return ActualVersion::Ours(remote.remote_etag);
    }
    let RemoteObject { remote_etag, stamp, .. } = remote;
    match (stamp.map(|stamp| stamp.generation), &record.base) {
        // Unchanged: the condition held, whatever the under store said.
        (_, Base::Present(base)) if *base == remote_etag => ActualVersion::Replaceable(remote_etag),
        (Some(generation), _) if generation == record.generation => {
            tracing::error!(%generation, "another Forebay writes to the under store with the same generations: a copy of these data directories is in use. Stop one of the two at once");
            ActualVersion::Foreign
        }
        (Some(generation), _) if (record.dirty_since..record.generation).contains(&generation) => {
            ActualVersion::Replaceable(remote_etag)
        }
        (_, Base::Unknown) => ActualVersion::Replaceable(remote_etag),
        (_, Base::Absent | Base::Present(_)) => ActualVersion::Foreign,
    }
}

/// Reads continue to return our version, and the under store keeps the other. The next write of the key ends the
/// conflict. A delete is abandoned.
fn conflict(path: &ObjectPath, now: &ObjectRecord) -> Option<ObjectRecord> {
    match now.state {
        State::Tombstone => {
            tracing::error!(%path, "conflict: another writer has changed the object in the under store. The delete is abandoned, and reads show that object");
            None
        }
        State::Dirty | State::Transient | State::Conflict => {
            tracing::error!(%path, "conflict: another writer has changed the object in the under store. Write or delete it again through Forebay");
            Some(ObjectRecord { state: State::Conflict, ..now.clone() })
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_catalog::records::Holders;
    use forebay_types::ObjectInfo;
    use forebay_ufs::Stamp;

    use super::*;

    fn record(base: Base) -> ObjectRecord {
        ObjectRecord {
            state: State::Dirty,
            generation: Generation(9),
            dirty_since_ms: 0,
            dirty_since: Generation(5),
            size: 1,
            etag: ETag::new("e"),
            last_modified_ms: 0,
            storage_class: None,
            base,
            holders: Holders::default(),
        }
    }

    fn remote(etag: &str, size: u64, stamped: Option<u64>) -> RemoteObject {
        RemoteObject {
            info: ObjectInfo::new(size, ETag::new(etag), 0),
            remote_etag: ETag::new("there"),
            stamp: stamped.map(|generation| Stamp { generation: Generation(generation) }),
        }
    }

    #[test]
    fn only_what_is_ours_or_was_not_known_is_replaced() {
        let etag = ETag::new("there");
        let replaceable = ActualVersion::Replaceable(etag.clone());
        let known = Base::Present(ETag::new("before"));
        let check = |base: &Base, stamped: Option<u64>| found(&record(base.clone()), remote("e", 1, stamped));
        assert_eq!(check(&known, Some(9)), ActualVersion::Ours(etag.clone()));
        assert_eq!(check(&known, Some(7)), replaceable);
        assert_eq!(check(&known, Some(4)), ActualVersion::Foreign);
        assert_eq!(check(&known, Some(10)), ActualVersion::Foreign);
        assert_eq!(check(&known, None), ActualVersion::Foreign);
        assert_eq!(check(&Base::Absent, None), ActualVersion::Foreign);
        assert_eq!(check(&Base::Unknown, None), replaceable);
        assert_eq!(check(&Base::Unknown, Some(10)), replaceable);
        let unchanged = Base::Present(etag.clone());
        assert_eq!(check(&unchanged, None), replaceable, "nobody has written there");
        assert_eq!(check(&unchanged, Some(10)), replaceable);
    }

    #[test]
    fn what_has_our_generation_and_is_another_write_is_foreign() {
        for base in [Base::Unknown, Base::Absent, Base::Present(ETag::new("before"))] {
            for other in [remote("other", 1, Some(9)), remote("e", 2, Some(9))] {
                assert_eq!(found(&record(base.clone()), other), ActualVersion::Foreign, "{base:?}");
            }
            let mut later = remote("e", 1, Some(9));
            later.info.last_modified_ms = 1;
            assert_eq!(found(&record(base.clone()), later), ActualVersion::Foreign, "{base:?}: with other metadata");
            let deleted = ObjectRecord { state: State::Tombstone, ..record(base) };
            assert_eq!(found(&deleted, remote("e", 1, Some(9))), ActualVersion::Foreign, "a delete stamps nothing");
        }
    }
}
