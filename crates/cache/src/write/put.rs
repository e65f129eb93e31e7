//! Writes of objects from a single PUT, and of those that multipart uploads complete.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::records::{self, Base, ObjectRecord, State};
use forebay_catalog::{LocalChange, Transaction};
use forebay_env::sync::atomic::Ordering;
use forebay_store::{NewObject, Object, Staged, Store, ValueWrite, Writer};
use forebay_types::{
    ChecksumKind, Checksums, Durability, ETag, Generation, ObjectInfo, ObjectPath, PathPolicy, PinnedFull, WriteMode,
};
use forebay_ufs::{Condition, RemoteObject, Upload};
use futures::FutureExt;
use futures::future::join;

use crate::copies::CopyId;
use crate::list::positions;
use crate::metadata::{Annex, new_object};
use crate::persist::{Entry, Left};
use crate::read::memory_tier::MemoryObject;
use crate::read::validity::Moment;
use crate::space::{Reservation, Space};
use crate::worker::{Current, Located, Worker};
use crate::write::change::{end_intent, intent, unnoted};
use crate::write::dropped::DroppedCopy;
use crate::write::receive::check_size;
use crate::{Attributes, Conditions, Error, ErrorKind, ListedObject, Mount, PutObject, Result, Written};

/// When a client may try again that was refused because there is no room for a record.
const RECORDS_RETRY: Duration = Duration::from_secs(10);

/// The bytes of a new object.
pub(crate) enum Source {
    Written(Writer),
    /// The parts of a multipart upload, in order.
    Parts(Vec<Object>),
}

/// A new object that is complete except for its commit.
pub(crate) struct Pending {
    pub(crate) path: ObjectPath,
    pub(crate) policy: PathPolicy,
    pub(crate) source: Source,
    /// Complete except for the time of the write.
    pub(crate) info: ObjectInfo,
    pub(crate) conditions: Conditions,
    /// The same bytes, for the memory tier.
    pub(crate) small: Option<Bytes>,
    /// Other changes in the same commit: the end of a multipart upload.
    pub(crate) with: Transaction,
}

/// The answer of the under store to a question about a key, for a write with conditions.
pub(crate) struct Asked {
    /// The fence before the question. Nothing of the key has changed here while it is the same.
    fence: u64,
    /// Whether no earlier request for the key could still land after the question.
    is_settled: bool,
    answer: forebay_ufs::Result<RemoteObject>,
}

/// What the check of a write's conditions has shown.
pub(crate) struct Checked {
    /// What must hold in the under store for the client's conditions to hold there, too.
    pub(crate) condition: Condition,
    /// As [`Asked::is_settled`]. If the under store was not asked, it does not matter.
    is_settled: bool,
}

/// How a write will be executed, according to the policy and the pinned space.
pub(crate) struct Admission {
    pub(crate) mode: WriteMode,
    _reservation: Option<Reservation>,
}

impl Asked {
    /// Whether the under store could not be asked, or refused to answer.
    fn has_no_answer(&self) -> bool {
        self.answer.as_ref().is_err_and(|error| error.kind != forebay_ufs::ErrorKind::NotFound)
    }
}

impl Admission {
    /// The under store has refused a similar object. A write of this one is therefore acknowledged only when the under
    /// store has it.
    pub(crate) fn unless_refused(self, worker: &Worker, path: &ObjectPath, storage_class: Option<&str>) -> Self {
        match self.mode {
            WriteMode::WriteBack if worker.home.refusals.concern(path, storage_class) => {
                Self { mode: WriteMode::WriteThrough, ..self }
            }
            _ => self,
        }
    }
}

impl Source {
    /// Copies that hold the same bytes.
    fn pieces(&self) -> Vec<CopyId> {
        match self {
            Self::Written(_) => Vec::new(),
            Self::Parts(parts) => parts.iter().map(CopyId::of).collect(),
        }
    }

    async fn stage(self, store: &Store, object: NewObject) -> Result<Staged> {
        match self {
            Self::Written(writer) => Ok(writer.finish(object).await?),
            Self::Parts(parts) => Ok(store.concatenate(&parts, object).await?),
        }
    }
}

impl Worker {
    pub(crate) fn put(self: &Arc<Self>, request: PutObject) -> impl Future<Output = Result<Written>> {
        let policy = self.policies.resolve(&request.path);
        self.put_by(request, policy)
    }

    /// The main flow of a write.
    pub(crate) async fn put_by(self: &Arc<Self>, request: PutObject, policy: PathPolicy) -> Result<Written> {
        let PutObject { path, body, attributes, conditions } = request;
        check_size(&body)?;
        self.check_disks()?;
        let class = attributes.headers.storage_class.as_deref();
        let admission = self.admit(&policy, &path, body.size)?.unless_refused(self, &path, class);
        let mount = self.buckets.mount_for_write(&path).await?;
        let received = self.receive(body, None).await?;
        let checksums = Checksums { kind: ChecksumKind::FullObject, values: received.checksums };
        let info = described(received.size, ETag::from_md5(received.md5), checksums, attributes);
        let (source, small) = (Source::Written(received.writer), received.small);
        let pending = Pending { path, policy, source, info, conditions, small, with: Transaction::default() };
        let worker = Arc::clone(self);
        self.unless_stalled(async move { worker.write(pending, &mount, &admission).await }).await
    }

    /// The mode of an object of `size` bytes, with the space that it needs.
    ///
    /// # Errors
    /// `AccessDenied` on a READ_ONLY path. `SlowDown` when too few workers can have a copy, when the catalog is nearly
    /// full, or when pinned data fills its share or the bucket's part of it, and the policy rejects writes then.
    /// `InsufficientStorage` when the object alone exceeds that share.
    pub(crate) fn admit(&self, policy: &PathPolicy, path: &ObjectPath, size: u64) -> Result<Admission> {
        match self.mode_with_copies(policy, policy.write_mode_of(size), path, size)? {
            WriteMode::ReadOnly => Err(Error::read_only(path)),
            mode @ (WriteMode::WriteThrough | WriteMode::NoCache) => self.admit_passing(mode, path, size),
            mode @ (WriteMode::WriteBack | WriteMode::Transient) => {
                self.check_catalog(path)?;
                match self.space.reserve(&self.store, &path.bucket, size) {
                    Some(reservation) => Ok(Admission { mode, _reservation: Some(reservation) }),
                    None => self.admit_when_full(policy, path, size),
                }
            }
        }
    }

    /// For bytes that are already pinned: refusing them would free nothing.
    pub(crate) fn admit_pinned(&self, policy: &PathPolicy, path: &ObjectPath, size: u64) -> Result<Admission> {
        match self.mode_with_copies(policy, policy.write_mode_of(size), path, size)? {
            WriteMode::ReadOnly => Err(Error::read_only(path)),
            mode => Ok(Admission { mode, _reservation: None }),
        }
    }

    fn admit_when_full(&self, policy: &PathPolicy, path: &ObjectPath, size: u64) -> Result<Admission> {
        match (policy.pinned_full, policy.write_mode) {
            (PinnedFull::WriteThrough, WriteMode::WriteBack) => self.admit_passing(WriteMode::WriteThrough, path, size),
            (PinnedFull::Reject | PinnedFull::WriteThrough, _) => Err(self.pinned_full(path, size)),
        }
    }

    /// For a body that goes through: it is stored here until the under store has it, and takes its room when it is
    /// announced.
    fn admit_passing(&self, mode: WriteMode, path: &ObjectPath, size: u64) -> Result<Admission> {
        if let Some(reservation) = self.space.reserve_passing(&self.store, &path.bucket, size) {
            return Ok(Admission { mode, _reservation: Some(reservation) });
        }
        let largest = Space::largest(self.store.usage().capacity_bytes);
        if size > largest {
            let context = format!("{size} bytes are more than the {largest} that one write may take of the cache");
            return Err(Error::new(ErrorKind::InsufficientStorage, context));
        }
        if self.space.is_rejection_told(self.env.clock.monotonic()) {
            tracing::warn!(%path, size, "a write is refused: other writes on their way to the under store fill their share of the cache");
        }
        let context = format!("{path}: other writes on their way to the under store fill their share of the cache");
        Err(Error::new(ErrorKind::SlowDown, context))
    }

    /// The error for bytes that cannot be pinned now, or that can never be pinned.
    pub(crate) fn pinned_full(&self, path: &ObjectPath, size: u64) -> Error {
        let largest = Space::largest(self.space.pinned_limit(self.store.usage().capacity_bytes));
        if size > largest {
            let context = format!(
                "{size} bytes are more than the {largest} that one write may pin: use smaller parts, or raise cache.pinned_ratio or store.size"
            );
            return Error::new(ErrorKind::InsufficientStorage, context);
        }
        self.metrics.rejected_pinned_full.inc();
        if self.space.is_rejection_told(self.env.clock.monotonic()) {
            let refused = self.metrics.rejected_pinned_full.get();
            tracing::warn!(%path, size, refused, "a write is refused: data that may not leave fills its share of the cache");
        }
        Error::new(
            ErrorKind::SlowDown,
            format!(
                "{path}: data that waits for the under store, is transient or is being written fills its share of the cache"
            ),
        )
    }

    /// Whether a request that may add a record can begin.
    ///
    /// # Errors
    /// `SlowDown` while the database of the catalog is nearly full.
    pub(crate) fn check_catalog(&self, path: &ObjectPath) -> Result<()> {
        if !self.is_catalog_nearly_full.load(Ordering::SeqCst) {
            return Ok(());
        }
        let context = format!("{path}: the database of the cluster's engine (etcd) is nearly full");
        Err(Error { retry_after: Some(RECORDS_RETRY), ..Error::new(ErrorKind::SlowDown, context) })
    }

    /// The error for a record that has no room in memory now.
    pub(crate) fn records_full(&self, path: &ObjectPath) -> Error {
        if self.space.is_rejection_told(self.env.clock.monotonic()) {
            tracing::warn!(%path, "a request is refused: open multipart uploads, and deletes that wait for the under store, fill their share of memory");
        }
        let context =
            format!("{path}: open uploads, and deletes that wait for the under store, fill their share of memory");
        Error { retry_after: Some(RECORDS_RETRY), ..Error::new(ErrorKind::SlowDown, context) }
    }

    /// The caller must not drop this before it has ended.
    pub(crate) async fn write(&self, pending: Pending, mount: &Mount, admission: &Admission) -> Result<Written> {
        let _write = self.buckets.begin_write(&pending.path.bucket).await?;
        match admission.mode {
            WriteMode::WriteBack => self.write_back(pending, mount, State::Dirty).await,
            WriteMode::Transient => self.write_back(pending, mount, State::Transient).await,
            // Boxed, because it would make the future of every write larger. The under store takes far longer than the
            // allocation.
            WriteMode::WriteThrough => self.write_through(pending, mount, true).boxed().await,
            WriteMode::NoCache => self.write_through(pending, mount, false).boxed().await,
            WriteMode::ReadOnly => Err(Error::read_only(&pending.path)),
        }
    }

    /// Acknowledged when data and record are durable here, and the data at as many other workers as the policy says.
    async fn write_back(&self, pending: Pending, mount: &Mount, state: State) -> Result<Written> {
        let Pending { path, policy, source, mut info, conditions, small, with } = pending;
        let asked = self.ask_before_lock(&path, mount, &conditions).await?;
        let _lock = self.lock_key(&path).await?;
        let current = self.current(&path).await?;
        let checked = self.check_write(&path, &policy, mount, &conditions, asked).await?;
        let generation = self.next_generation();
        info.last_modified_ms = self.home.write_times.next();
        let base = self.base(&path, &policy, &current, checked, generation);
        // Of the version itself, or of one that it replaces before the under store has it.
        let may_have_condition = conditions.needs_current()
            || current.record.as_ref().is_some_and(|record| self.home.conditional_writes.may_have(record));
        let mut record = self.record_of_write(&current, base, state, generation, &info);
        let lacks_stamp = !may_have_condition && !mount.background.has_room_for_stamp(&path.key, generation, &info);
        if lacks_stamp {
            // After a crash, nothing would tell what an upload has left there from what others have written.
            record.base = Base::Unknown;
        }
        if conditions.needs_current() {
            self.home.conditional_writes.note(&record);
        }
        let object = new_object(&path, &policy, generation, &info, true);
        let pieces = source.pieces();
        let mut staged = source.stage(&self.store, object).await?;
        // To the end of the commit.
        let mut _undecided = None;
        if policy.write_replicas > 1 {
            // Boxed: it would make the future of every write larger.
            let replicated = self.replicate(&path, &policy, staged, pieces).boxed().await?;
            (staged, record.holders, _undecided) = (replicated.staged, replicated.holders, replicated.undecided);
        }
        let mut transaction = Transaction { durability: policy.durability, ..with };
        transaction.local.publish.push(staged);
        // Both share one group commit.
        let noted = self.home.write_times.note(info.last_modified_ms);
        let (changed, noted) = join(self.change_record(&path, &current, Some(&record), transaction), noted).await;
        changed?;
        if lacks_stamp {
            self.home.odd_etags.forget_base(record.dirty_since);
        }
        self.adjust_group(&path, &policy, generation);
        let written = written(&info);
        self.memory.insert(&policy, generation, MemoryObject::new(Arc::new(info), small));
        if state == State::Dirty {
            self.home.queue.push(path, Entry::of(&record));
        }
        noted.map(|()| written)
    }

    fn record_of_write(
        &self,
        current: &Current,
        base: Base,
        state: State,
        generation: Generation,
        info: &ObjectInfo,
    ) -> ObjectRecord {
        let (dirty_since, dirty_since_ms) = current.dirty_since((generation, info.last_modified_ms));
        ObjectRecord {
            state,
            generation,
            dirty_since_ms,
            dirty_since,
            size: info.size,
            etag: info.etag.clone(),
            last_modified_ms: info.last_modified_ms,
            storage_class: info.headers.storage_class.clone(),
            base,
            holders: self.holders(),
        }
    }

    /// What the under store is known to hold before a write of this generation, as its record says it. `checked` is
    /// that of [`Worker::check_write`].
    pub(crate) fn base(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        current: &Current,
        checked: Checked,
        generation: Generation,
    ) -> Base {
        match &current.record {
            Some(record) => match record.state {
                State::Dirty | State::Tombstone => record.base.clone(),
                State::Transient | State::Conflict => Base::Unknown,
            },
            None => match checked.condition {
                // One of our own requests may have landed after the question, or may still land.
                Condition::Matches(_) | Condition::Absent if !checked.is_settled => Base::Unknown,
                Condition::Matches(etag) => Base::Present(etag),
                Condition::Absent => Base::Absent,
                // An ETag that has outlived its TTL proves nothing: another client may have written since, before this
                // write.
                Condition::Always => match self.fresh_remote_etag(path, policy) {
                    Some(replaced) => self.home.odd_etags.base(replaced, generation),
                    None if self.is_absence_fresh(path, policy) => Base::Absent,
                    None => Base::Unknown,
                },
            },
        }
    }

    /// Acknowledged when the under store has the object. A failure leaves nothing here, and nothing there unless the
    /// answer was lost. There is one exception: a write that replaces an unreadable object stays here. An older copy is
    /// kept if the request was certainly not sent.
    async fn write_through(&self, pending: Pending, mount: &Mount, keep: bool) -> Result<Written> {
        let path = pending.path.clone();
        let upload_guard = self.home.upload_locks.lock(&path).await?;
        let (lock, current, left) = self.lock_when_persisted(&path, &upload_guard).await?;
        // Not for the completion of a multipart upload: its retry is answered without asking the under store.
        if left == Left::Unreadable && pending.with.writes.is_empty() {
            drop(lock);
            let instead = async {
                let written = self.write_back(pending, mount, State::Dirty).await?;
                self.persist_for_client(&path, &upload_guard).await?;
                Ok(written)
            };
            // Boxed: this is rare, and would make the future of every write larger.
            return instead.boxed().await;
        }
        self.buckets.check_mark(&path.bucket, mount.foreground.as_ref(), false).await?;
        let Pending { policy, source, mut info, conditions, small, mut with, .. } = pending;
        let Checked { condition, .. } = self.check_write(&path, &policy, mount, &conditions, None).await?;
        let generation = self.next_generation();
        self.check_settled(&path)?;
        if conditions.needs_current() {
            self.note_sent(&mut with, generation).await?;
        }
        info.last_modified_ms = self.home.write_times.next();
        let staged = source.stage(&self.store, new_object(&path, &policy, generation, &info, false)).await?;
        self.home.write_times.note(info.last_modified_ms).await?;
        let dropped = self.announce(&path, &current, Some(generation)).await?;
        let info = Arc::new(info);
        let upload_source = self.upload_source(staged.object());
        let upload = Upload { generation, info: Arc::clone(&info), source: upload_source, condition };
        let stored = match self.permitted(mount.foreground.put(&path.key, upload)).await {
            Ok(stored) => stored,
            Err(error) => return Err(self.write_failed(&path, error, dropped).await),
        };
        let answered = self.home.validity.now();
        self.home.fence.advance(&path);
        self.home.refusals.unlearn(&path, info.headers.storage_class.as_deref());
        self.home.positions.changed(&path, || positions::Change::Written(ListedObject::described(&path, &info)));
        let annex = Annex::clean(stored.remote_etag, &info.etag, info.checksums.names());
        let must_hold = current.record.is_some() || !with.writes.is_empty();
        let durability = if must_hold { Durability::Fsync } else { Durability::Os };
        let mut transaction = Transaction { durability, ..with };
        transaction.writes.push(end_intent(&path));
        if keep {
            // With its remote ETag from the start: without one, a reader would treat the copy as stale.
            transaction.local.publish.push(staged.with_annex(&annex.encode()));
        } else if current.record.is_some() {
            transaction.local.forget.push(Self::store_key(&path));
        }
        match self.change_record(&path, &current, None, transaction).await {
            Err(error) if must_hold => return Err(unnoted(&path, error)),
            Err(error) => tracing::warn!(%path, %error, "a written object could not be kept in the cache"),
            Ok(()) if keep => {
                self.adjust_group(&path, &policy, generation);
                self.home.validity.mark_valid_at(generation, answered);
                self.memory.insert(&policy, generation, MemoryObject::new(Arc::clone(&info), small));
            }
            Ok(()) => {}
        }
        Ok(written(&info))
    }

    /// Prepares a request for the key to the under store.
    ///
    /// It drops a clean copy durably, because a crash must not bring the old version back. It does so even when no copy
    /// is here, since an evicted one is still in a log, where the next start would find it. It records the request as a
    /// write intent: after a crash, nothing follows the request until it can no longer land. If the key has no record,
    /// it commits that, too: the record of a write that was not acknowledged, because its disk could not sync, may
    /// exist after the next start.
    ///
    /// `write` is the generation that is sent, if it is an object. If another version waits because the under store
    /// refuses it, this generation later shows whether the write has landed. Returns the copy that it has dropped.
    pub(crate) async fn announce<'a>(
        &'a self,
        path: &'a ObjectPath,
        current: &Current,
        write: Option<Generation>,
    ) -> Result<Option<DroppedCopy<'a>>> {
        self.home.fence.advance(path);
        let passing = match (current.waits(), write) {
            (false, _) => None,
            (true, Some(write)) => Some(write),
            (true, None) => self.passing_write(path).await?,
        };
        let mut writes = vec![intent(path, self.home.settle.start(), passing)];
        let mut local = LocalChange::default();
        let mut dropped = None;
        if current.record.is_none() {
            dropped = self.copy_to_drop(path);
            local.forget.push(Self::store_key(path));
            writes.push(ValueWrite { key: records::object_key(path), value: None });
        }
        self.catalog.commit(Transaction { writes, local, ..Transaction::default() }).await?;
        Ok(dropped)
    }

    /// `error` is the under store's answer to a client's request, and `dropped` what [`Worker::announce`] returned. The
    /// caller holds the key's lock.
    pub(crate) async fn write_failed(
        &self,
        path: &ObjectPath,
        error: forebay_ufs::Error,
        dropped: Option<DroppedCopy<'_>>,
    ) -> Error {
        if let Some(dropped) = dropped.filter(|_| error.is_unsent()) {
            // Boxed: this is rare, and would make the future of every write larger.
            dropped.keep().boxed().await;
        }
        if error.kind == forebay_ufs::ErrorKind::Ambiguous {
            self.home.settle.mark(path);
        } else {
            self.end_request(path).await;
        }
        // After the mark, so that every reader of the new fence sees the mark.
        self.home.fence.advance(path);
        error.into()
    }

    /// Records that no request is in flight. If this record is lost, the key's next write waits, and nothing worse
    /// happens.
    pub(crate) async fn end_request(&self, path: &ObjectPath) {
        match self.is_still_told_by(path).await {
            Ok(false) => {}
            Ok(true) => return,
            Err(error) => {
                return tracing::warn!(%path, %error, "the write intent could not be checked, and stays: after a restart, the key waits for cache.settle_time");
            }
        }
        let transaction =
            Transaction { writes: vec![end_intent(path)], durability: Durability::Os, ..Transaction::default() };
        if let Err(error) = self.catalog.commit(transaction).await {
            tracing::warn!(%path, %error, "the write intent could not be removed: after a restart, the key waits for cache.settle_time");
        }
    }

    /// Whether the version that waits for the under store must know which writes bypassed it.
    pub(crate) async fn is_still_told_by(&self, path: &ObjectPath) -> Result<bool> {
        Ok(self.passing_write(path).await?.is_some() && self.current(path).await?.waits())
    }

    /// # Errors
    /// `SlowDown` while an earlier request for this key may still land in the under store.
    pub(crate) fn check_settled(&self, path: &ObjectPath) -> Result<()> {
        let wait = self.home.settle.wait(path);
        if wait.is_zero() {
            return Ok(());
        }
        let context =
            format!("an earlier request for {path} got no answer from the under store and may still be carried out");
        Err(Error { retry_after: Some(wait), ..Error::new(ErrorKind::SlowDown, context) })
    }

    /// Asks the under store for the version that a write with conditions would replace, if it is not here. Called
    /// before the key is locked, so that other writes of the key need not wait for the answer.
    pub(crate) async fn ask_before_lock(
        &self,
        path: &ObjectPath,
        mount: &Mount,
        conditions: &Conditions,
    ) -> Result<Option<Box<Asked>>> {
        // Where the key is not at home, its lock says so.
        if !conditions.needs_current() || !self.home.locks.has(path) || self.is_here(path).await? {
            return Ok(None);
        }
        // Boxed: it would make the future of every write larger.
        Ok(Some(self.ask(path, mount).boxed().await))
    }

    async fn ask(&self, path: &ObjectPath, mount: &Mount) -> Box<Asked> {
        let fence = self.home.fence.read(path);
        let is_settled = self.home.locks.has(path) && self.home.settle.wait(path).is_zero();
        let asked = Moment::of(self.env.clock.monotonic());
        let answer = mount.foreground.head(&path.key).await;
        self.home.last_answers.note(path, asked, answer.as_ref());
        Box::new(Asked { fence, is_settled, answer })
    }

    /// The caller holds the key's lock. If something of the key has changed since the under store was asked, it is
    /// asked again, unless it gave no answer.
    async fn ask_unless_unchanged(&self, path: &ObjectPath, mount: &Mount, asked: Option<Box<Asked>>) -> Box<Asked> {
        match asked {
            Some(asked) if asked.fence == self.home.fence.read(path) || asked.has_no_answer() => asked,
            Some(_) | None => self.ask(path, mount).boxed().await,
        }
    }

    /// Checks the conditions of a write against the version that it would replace. The caller holds the key's lock.
    /// `asked` is that of [`Worker::ask_before_lock`].
    pub(crate) async fn check_write(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        conditions: &Conditions,
        asked: Option<Box<Asked>>,
    ) -> Result<Checked> {
        let without_question = Checked { condition: Condition::Always, is_settled: true };
        if !conditions.needs_current() {
            return Ok(without_question);
        }
        let copy = match self.locate(path).await? {
            Located::Here { object, .. } => {
                conditions.check_write(Some(self.info_of(policy, &object).await?.as_ref()), None)?;
                return Ok(without_question);
            }
            Located::Deleted => return conditions.check_write(None, None).map(|()| without_question),
            Located::Elsewhere { copy } => copy,
        };
        let asked = self.ask_unless_unchanged(path, mount, asked).await;
        let is_settled = asked.is_settled;
        let condition = match asked.answer {
            Ok(remote) => {
                self.home.negative_cache.end(path);
                // A client that is refused because of what others wrote reads it next.
                let outdated = copy.filter(|copy| Self::remote_etag_of(copy).as_ref() != Some(&remote.remote_etag));
                self.outdated(path, outdated.map(|copy| copy.generation()));
                conditions.check_write(Some(&remote.info), Some(&remote.remote_etag))?;
                Condition::Matches(remote.remote_etag)
            }
            Err(error) if error.kind == forebay_ufs::ErrorKind::NotFound => {
                self.outdated(path, copy.map(|copy| copy.generation()));
                conditions.check_write(None, None)?;
                Condition::Absent
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Checked { condition, is_settled })
    }
}

/// An object's description, before its time is set.
pub(crate) fn described(size: u64, etag: ETag, checksums: Checksums, attributes: Attributes) -> ObjectInfo {
    let Attributes { headers, user, tags } = attributes;
    ObjectInfo { headers, user, tags, checksums, ..ObjectInfo::new(size, etag, 0) }
}

fn written(info: &ObjectInfo) -> Written {
    Written {
        etag: info.etag.clone(),
        last_modified_ms: info.last_modified_ms,
        size: info.size,
        checksums: info.checksums.clone(),
    }
}
