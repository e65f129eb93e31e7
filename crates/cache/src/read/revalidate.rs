//! Determines what the under store has: from the copy while that is fresh, otherwise by asking.

use std::sync::Arc;
use std::time::Duration;

use forebay_store::Object;
use forebay_types::{Generation, ObjectPath, PathPolicy, WriteMode};
use forebay_ufs::{Error as UfsError, ErrorKind as UfsKind, RemoteBody, RemoteObject};

use crate::list::positions::Change;
use crate::metadata::{Annex, CleanVersion};
use crate::read::fill::{Answered, is_copy_of};
use crate::read::negative_cache::Absence;
use crate::read::pages::Pages;
use crate::read::remote::{Purpose, RemoteState, WholeBody, keeps_reads, keeps_reads_of};
use crate::read::silent_buckets::{ANSWER_MAX, Validation};
use crate::read::validity::Moment;
use crate::worker::Worker;
use crate::{Mount, Result};

/// What holds when the under store is asked for an object.
#[derive(Clone, Copy)]
struct Question {
    fence: u64,
    absence: Absence,
    /// As [`Answered::frees`].
    frees: u64,
    /// No earlier request for the key may still land. It could make the answer stale at any time without anybody
    /// noticing.
    is_settled: bool,
}

impl Question {
    /// An answer tells what the under store had after this. How long the answer takes to arrive tells nothing more.
    fn asked(&self) -> Moment {
        Moment::of(self.absence.asked)
    }

    /// See [`Absence::of_get`].
    fn of_get(self) -> Self {
        Self { absence: self.absence.of_get(), ..self }
    }

    fn answered(&self) -> Answered {
        Answered { fence: self.fence, frees: self.frees, as_of: self.asked(), heard: None }
    }
}

/// What a validation has found.
struct Validated {
    state: RemoteState,
    /// It is a copy, and the under store could not be asked.
    is_stale: bool,
}

/// Ends a validation whose reader does not wait, however that ends.
struct Ended {
    worker: Arc<Worker>,
    path: ObjectPath,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.worker.home.silent_buckets.ended(&self.path);
    }
}

/// Whether the under store cannot be asked. Expired credentials count as an outage.
fn is_no_answer(kind: UfsKind) -> bool {
    kind.is_transient() || kind == UfsKind::Credentials
}

fn clean_version(copy: &Object) -> Option<CleanVersion> {
    let Annex { remote_etag, etag, .. } = Worker::annex_of(copy);
    let remote_etag = remote_etag?;
    let etag = etag.unwrap_or_else(|| remote_etag.clone());
    Some(CleanVersion { generation: copy.generation(), etag, remote_etag })
}

impl Worker {
    /// The version of a key's clean copy, while the copy is fresh. What was known before the start
    /// counts, unless something may have changed since that nobody knows of.
    pub(crate) fn fresh_remote_etag(&self, path: &ObjectPath, policy: &PathPolicy) -> Option<CleanVersion> {
        let object = self.store.peek(&Self::store_key(path))?;
        let (generation, ttl) = (object.generation(), policy.metadata_ttl.0);
        let is_doubtful = || self.home.stale_records.is_about(generation) || !self.home.settle.wait(path).is_zero();
        let validity = &self.home.validity;
        let fresh = validity.is_valid(generation, ttl) || (validity.was_valid(generation, ttl) && !is_doubtful());
        if fresh { clean_version(&object) } else { None }
    }

    /// The under store has just shown that it has the version of a copy.
    pub(super) fn confirm(&self, copy: &Object) {
        if let Some(version) = clean_version(copy) {
            self.home.odd_etags.confirm(&version);
        }
    }

    /// Determines what the under store has, and asks it only if the copy is stale. `purpose` says whether a new copy
    /// counts as read.
    pub(crate) async fn remote_state(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        copy: Option<Object>,
        purpose: Purpose,
    ) -> Result<RemoteState> {
        match copy {
            Some(object) if self.is_believed(path, policy, &object) => Ok(RemoteState::Cached(object)),
            copy => self.revalidate(path, policy, mount, copy, purpose).await,
        }
    }

    /// Whether a clean copy can be used without asking the under store.
    pub(crate) fn is_believed(&self, path: &ObjectPath, policy: &PathPolicy, object: &Object) -> bool {
        policy.write_mode != WriteMode::NoCache
            && (self.home.validity.is_valid(object.generation(), policy.metadata_ttl.0)
                || self.is_listed(path, policy, object))
    }

    /// Whether a page that is kept of a listing shows that the under store has the version of a stale copy. The copy
    /// is then as fresh as the page.
    fn is_listed(&self, path: &ObjectPath, policy: &PathPolicy, object: &Object) -> bool {
        let Some((listed, begun)) = self.listed_by_now(path, policy.metadata_ttl.0) else { return false };
        let is_same = listed.size == object.size() && Self::remote_etag_of(object) == Some(listed.remote_etag);
        if is_same {
            self.home.validity.mark_valid_at(object.generation(), Moment::of(begun));
        }
        is_same
    }

    /// Whether the under store is known not to have a key, of which there is no copy and no record in the catalog.
    pub(super) fn is_known_absent(&self, path: &ObjectPath, policy: &PathPolicy) -> bool {
        let ttl = policy.metadata_ttl.0.min(policy.list_ttl.0);
        let absence = self.home.negative_cache.find(path).filter(|absence| !absence.is_deleted);
        keeps_reads(policy) && absence.is_some_and(|absence| self.is_still_absent(path, absence, ttl))
    }

    /// The same for a write of the key, whose lock the caller holds. What others write then is in conflict with it.
    pub(crate) fn is_absence_fresh(&self, path: &ObjectPath, policy: &PathPolicy) -> bool {
        let absence = self.home.negative_cache.find(path).filter(|absence| absence.is_proven);
        absence.is_some_and(|absence| self.is_still_absent(path, absence, policy.metadata_ttl.0))
    }

    fn is_still_absent(&self, path: &ObjectPath, absence: Absence, ttl: Duration) -> bool {
        let is_fresh = self.env.clock.monotonic().saturating_sub(absence.asked) < ttl;
        // The locks first: a request that ends in between has advanced the fence.
        let may_change = !self.home.locks.has(path) || self.home.upload_locks.is_held(path);
        let is_changed = may_change || self.home.fence.read(path) != absence.fence;
        is_fresh && !is_changed && !self.home.settle.may_change_any()
    }

    /// Asks the under store what it has.
    pub(crate) async fn revalidate(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        copy: Option<Object>,
        purpose: Purpose,
    ) -> Result<RemoteState> {
        self.validate(path, policy, mount, copy, purpose).await.map(|validated| self.counted(validated))
    }

    async fn validate(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        copy: Option<Object>,
        purpose: Purpose,
    ) -> Result<Validated> {
        let _open = self.home.last_answers.begin(path);
        let question = self.question(path);
        let Question { fence, is_settled, .. } = question;
        let answer = mount.foreground.head(&path.key).await;
        self.note_answer(path, question, answer.as_ref());
        let state = match (answer, copy) {
            (Ok(remote), Some(object)) if is_copy_of(&object, &remote) => {
                if is_settled && self.home.fence.read(path) == fence {
                    self.home.validity.mark_valid_at(object.generation(), question.asked());
                }
                self.confirm(&object);
                RemoteState::Cached(object)
            }
            (Ok(remote), copy) => {
                self.outdated(path, copy.map(|copy| copy.generation()));
                match is_settled {
                    true => self.begin_copy(path, policy, Box::new(remote), question.answered(), purpose, None).await,
                    false => RemoteState::NotCached(Box::new(remote)),
                }
            }
            (Err(error), copy) if error.kind == UfsKind::NotFound => {
                self.outdated(path, copy.map(|copy| copy.generation()));
                RemoteState::Absent
            }
            (Err(error), Some(object)) if is_no_answer(error.kind) && Self::remote_etag_of(&object).is_some() => {
                return Ok(Validated { state: RemoteState::Cached(object), is_stale: true });
            }
            (Err(error), _) => return Err(error.into()),
        };
        Ok(Validated { state, is_stale: false })
    }

    /// As [`Worker::revalidate`], for a reader of a stale copy: the reader gets the copy when the under store does not
    /// answer in time, or is known not to. The validation continues without the reader.
    pub(super) async fn revalidate_in_time(
        self: &Arc<Self>,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        copy: Object,
    ) -> Result<RemoteState> {
        let validation = {
            let (worker, path, policy, mount) = (Arc::clone(self), path.clone(), policy.clone(), mount.clone());
            let copy = copy.clone();
            async move { worker.validate(&path, &policy, &mount, Some(copy), Purpose::Read).await }
        };
        let mut validation = Box::pin(validation);
        let runs_alone = loop {
            let waiting = self.home.silent_buckets.wait(path);
            if let Some(waiting) = &waiting {
                tokio::select! {
                    biased;
                    validated = &mut validation => return validated.map(|validated| self.counted(validated)),
                    () = self.env.clock.sleep(ANSWER_MAX) => waiting.gives_up(),
                }
            }
            match self.home.silent_buckets.leave(path) {
                Validation::Runs => break true,
                Validation::IsLeftOut => break false,
                Validation::IsWaitedFor => {}
            }
        };
        if runs_alone {
            let (ended, known) = (Ended { worker: Arc::clone(self), path: path.clone() }, copy.generation());
            forebay_env::spawn(async move {
                let Ok(Validated { state, .. }) = validation.await else { return };
                let is_same = matches!(&state, RemoteState::Cached(object) if object.generation() == known);
                if !is_same {
                    ended.worker.end_outdated_leases(&ended.path).await;
                }
            });
        }
        Ok(self.counted(Validated { state: RemoteState::Cached(copy), is_stale: true }))
    }

    fn counted(&self, Validated { state, is_stale }: Validated) -> RemoteState {
        if is_stale {
            self.metrics.stale_served.inc();
        }
        state
    }

    /// Asks the under store for the whole object, if a reader of the whole object finds no copy. This takes one round
    /// trip, instead of two with [`Worker::revalidate`] and a request for the first page. An object of at most one page
    /// is stored together with its metadata, in one write.
    pub(crate) async fn revalidate_whole(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
    ) -> Result<(RemoteState, Option<WholeBody>)> {
        let _open = self.home.last_answers.begin(path);
        let question = self.question(path).of_get();
        let is_settled = question.is_settled;
        let answer = mount.foreground.get(&path.key, None, None).await;
        self.note_answer(path, question, answer.as_ref().map(|body| &body.object));
        let RemoteBody { object, stream, .. } = match answer {
            Ok(body) => body,
            Err(error) if error.kind == UfsKind::NotFound => return Ok((RemoteState::Absent, None)),
            Err(error) => return Err(error.into()),
        };
        let (size, remote) = (object.info.size, Box::new(object));
        if !is_settled || !keeps_reads_of(policy, size) {
            return Ok((RemoteState::NotCached(remote), Some(WholeBody::OnItsWay(stream))));
        }
        // The permit first: a read that waits for it keeps no room from others.
        let permit = match size <= self.settings.page_size.0 {
            true => Some(self.fetches.permit(&self.buckets.tenant(&path.bucket), size).await),
            false => None,
        };
        let room = permit.as_ref().and_then(|_| self.read_ahead.room(size));
        let Some(room) = room else {
            drop(permit);
            let known = self.begin_copy(path, policy, remote, question.answered(), Purpose::Read, None).await;
            return Ok((known, Some(WholeBody::OnItsWay(stream))));
        };
        let data = {
            let _permit = permit;
            let mut pages = Pages::of(stream);
            let data = pages.next(path, size).await?;
            pages.end(path).await?;
            data
        };
        let known = self.begin_copy(path, policy, remote, question.answered(), Purpose::Read, Some(data.clone())).await;
        Ok((known, Some(WholeBody::Here(room.hold(data)))))
    }

    /// Called before a key is deleted in the under store, with the key's upload lock: see [`Worker::note_deleted`].
    pub(crate) fn before_delete(&self, path: &ObjectPath) -> Absence {
        self.question(path).absence
    }

    /// The under store has deleted a key, and that is recorded. The caller holds the key's locks.
    pub(crate) fn note_deleted(&self, path: &ObjectPath, before: Absence) {
        self.home.negative_cache.keep(path, before.of_delete(self.home.fence.read(path)));
    }

    /// Called before the under store is asked for an object.
    fn question(&self, path: &ObjectPath) -> Question {
        let fence = self.home.fence.read(path);
        let absence = self.home.negative_cache.question(path, fence, self.env.clock.monotonic());
        let is_settled = self.home.locks.has(path) && self.home.settle.wait(path).is_zero();
        Question { fence, absence, frees: self.frees(), is_settled }
    }

    /// The under store has answered a question for an object.
    fn note_answer(&self, path: &ObjectPath, question: Question, answer: Result<&RemoteObject, &UfsError>) {
        self.note_told(path, answer.err());
        self.home.last_answers.note(path, question.asked(), answer);
        match answer.map_err(|error| error.kind) {
            Ok(_) => self.home.negative_cache.end(path),
            Err(UfsKind::NotFound) => {
                self.outdated_before(path, question.asked());
                if question.is_settled {
                    self.home.negative_cache.keep(path, question.absence);
                }
            }
            Err(_) => {}
        }
    }

    /// The under store did not have the key at this time. An answer to an earlier question may have brought a copy
    /// since.
    fn outdated_before(&self, path: &ObjectPath, asked: Moment) {
        let Some(copy) = self.store.peek(&Self::store_key(path)) else { return };
        let is_older = self.home.validity.at(copy.generation()).is_some_and(|known| known < asked);
        self.outdated(path, is_older.then(|| copy.generation()));
    }

    /// The under store was asked for an object. Unless it has not answered, others know less of the object now.
    pub(super) fn note_told(&self, path: &ObjectPath, error: Option<&forebay_ufs::Error>) {
        if !error.is_some_and(|error| is_no_answer(error.kind)) {
            self.home.silent_buckets.heard(&path.bucket);
        }
        if error.is_none_or(|error| matches!(error.kind, UfsKind::NotFound | UfsKind::Precondition)) {
            self.home.fence.touch(path);
        }
    }

    /// The under store does not have this version.
    pub(crate) fn outdated(&self, path: &ObjectPath, copy: Option<Generation>) {
        let Some(generation) = copy else { return };
        self.home.validity.invalidate(generation);
        if self.store.evict(&Self::store_key(path), generation) {
            self.metrics.external_changes.inc();
            // Listings show it no later than reads do.
            self.home.positions.changed(path, || Change::Unknown);
        }
    }
}
