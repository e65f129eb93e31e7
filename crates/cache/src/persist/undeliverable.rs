//! Objects and deletes that the under store refuses, and what an operator can do about each: keep the object here,
//! rename it, or discard it.

use std::sync::Arc;

use forebay_catalog::records::{ObjectRecord, State};
use forebay_catalog::{LocalChange, Transaction};
use forebay_types::{Generation, ObjectPath};
use futures::future::{BoxFuture, join_all};

use super::undeliverable_page::{Undeliverable, UndeliverableChange, UndeliverableEnd, UndeliverablePage};
use crate::anywhere::OtherHome;
use crate::list::positions;
use crate::scope::Scope;
use crate::worker::{Current, Worker};
use crate::write::change::end_intent;
use crate::{Cache, Conditions, CopyObject, Error, ErrorKind, GetObject, Result, TagCondition, to_the_end};

/// What to do with an undeliverable object under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It stays here, as a transient object.
    Keep,
    /// It is dropped, and the under store's version is valid.
    Discard,
}

impl Cache {
    /// The refused changes below a prefix (`/`, `/bucket`, `/bucket/prefix`), after `after`. In a cluster, those of all
    /// workers.
    ///
    /// # Errors
    /// `InvalidArgument` when the prefix is malformed. `Unavailable` while the other workers are not known, after a
    /// start.
    pub fn undeliverable<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a ObjectPath>,
        limit: usize,
    ) -> BoxFuture<'a, Result<UndeliverablePage>> {
        Box::pin(async move { self.worker.undeliverable_anywhere(prefix, after, limit).await })
    }

    /// The same, of what is at home here.
    ///
    /// # Errors
    /// `InvalidArgument` when the prefix is malformed.
    pub fn undeliverable_here<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a ObjectPath>,
        limit: usize,
    ) -> BoxFuture<'a, Result<UndeliverablePage>> {
        Box::pin(async move { self.worker.undeliverable(prefix, after, limit).await })
    }

    /// Keeps an undeliverable object only here, as a transient object from now on. `generation` is that of the version
    /// that the operator means.
    ///
    /// # Errors
    /// `NotFound` when the object is not undeliverable. `Conflict` when another version of it waits now.
    /// `InvalidRequest` for a delete.
    pub fn keep_undeliverable<'a>(&'a self, path: &'a ObjectPath, generation: u64) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.end_undeliverable(path, generation, &UndeliverableEnd::Keep).await })
    }

    /// Drops a pending change: an object is lost, or a delete is undone. Readers then see the under store's version.
    ///
    /// # Errors
    /// As [`Cache::keep_undeliverable`], but for deletes.
    pub fn discard_undeliverable<'a>(&'a self, path: &'a ObjectPath, generation: u64) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.end_undeliverable(path, generation, &UndeliverableEnd::Discard).await })
    }

    /// Writes an undeliverable object under another name, in the standard storage class, and drops it under the old
    /// name. The new name must be free.
    ///
    /// # Errors
    /// As [`Cache::keep_undeliverable`]; `PreconditionFailed` when there is an object under the new name; as
    /// [`Cache::copy`]. When the home of the new name does not answer, the object may be there, too. When it is unknown
    /// whether the object was dropped under the old name, the one under the new name stays.
    pub fn rename_undeliverable<'a>(
        &'a self,
        path: &'a ObjectPath,
        generation: u64,
        to: &'a ObjectPath,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let end = UndeliverableEnd::Rename(to.clone());
            self.end_undeliverable(path, generation, &end).await
        })
    }

    /// Ends an undeliverable object that is at home here, even if the caller goes away.
    ///
    /// # Errors
    /// As [`Cache::rename_undeliverable`]; `Moved` when it is not at home here.
    pub fn end_undeliverable_here<'a>(
        &'a self,
        path: &'a ObjectPath,
        generation: u64,
        end: &'a UndeliverableEnd,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.worker.end_undeliverable_here(path, Generation(generation), end).await })
    }

    /// Has the home of an undeliverable object end it.
    async fn end_undeliverable(&self, path: &ObjectPath, generation: u64, end: &UndeliverableEnd) -> Result<()> {
        let ask = |home| async move {
            match home {
                Some(OtherHome { others, worker }) => others.end_undeliverable(&worker, path, generation, end).await,
                None => self.end_undeliverable_here(path, generation, end).await,
            }
        };
        self.worker.ask_home(path, ask).await
    }
}

/// One page of what several workers list, each of them what is at home there.
fn merged(
    mut page: UndeliverablePage,
    told: Vec<(String, Result<UndeliverablePage>)>,
    limit: usize,
) -> UndeliverablePage {
    let mut has_more = page.next.is_some();
    for (worker, told) in told {
        match told {
            Ok(told) => {
                has_more |= told.next.is_some();
                page.objects.extend(told.objects);
            }
            Err(error) => {
                tracing::debug!(worker, %error, "a worker does not tell what is undeliverable");
                page.unanswered.push(worker);
            }
        }
    }
    page.objects.sort_by(|one, other| place(&one.path).cmp(&place(&other.path)));
    // A slot may have moved meanwhile.
    page.objects.dedup_by(|one, other| one.path == other.path);
    has_more |= page.objects.len() > limit;
    page.objects.truncate(limit);
    page.next = page.objects.last().filter(|_| has_more).map(|last| last.path.clone());
    page
}

/// Bucket and key, whose order is that of paths.
fn place(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix('/')?.split_once('/')
}

impl Worker {
    async fn undeliverable_anywhere(
        &self,
        prefix: &str,
        after: Option<&ObjectPath>,
        limit: usize,
    ) -> Result<UndeliverablePage> {
        let own = self.undeliverable(prefix, after, limit).await?;
        let Some(others) = &self.others else { return Ok(own) };
        if !others.are_known() {
            let problem = "the other workers of the cluster are not known yet: try again";
            return Err(Error::new(ErrorKind::Unavailable, problem));
        }
        let ask = |worker: String| async move {
            let told = others.undeliverable(&worker, prefix, after, limit).await;
            (worker, told)
        };
        let told = join_all(others.workers().into_iter().map(ask)).await;
        Ok(merged(own, told, limit))
    }

    async fn end_undeliverable_here(
        self: &Arc<Self>,
        path: &ObjectPath,
        generation: Generation,
        end: &UndeliverableEnd,
    ) -> Result<()> {
        let (worker, path) = (Arc::clone(self), path.clone());
        let end = match end {
            UndeliverableEnd::Keep => End::Keep,
            UndeliverableEnd::Discard => End::Discard,
            UndeliverableEnd::Rename(to) => {
                let to = to.clone();
                let work = async move { worker.rename_undeliverable(&path, generation, &to).await };
                return to_the_end(work).await;
            }
        };
        self.unless_stalled(async move { worker.end_undeliverable(&path, generation, end).await }).await
    }

    async fn undeliverable(&self, prefix: &str, after: Option<&ObjectPath>, limit: usize) -> Result<UndeliverablePage> {
        let scope = Scope::parse(prefix)?;
        let (mut page, mut after) = (UndeliverablePage::default(), after.cloned());
        while let Some((path, refusal)) = self.home.refusals.next(&scope, after.as_ref()) {
            if page.objects.len() == limit {
                page.next = after.map(|path| format!("/{path}"));
                return Ok(page);
            }
            let record = self.current(&path).await?.record;
            let record = record.filter(|record| refusal.generation == Some(record.generation));
            let change = record.as_ref().and_then(|record| change_of(record.state));
            if let (Some(record), Some(change)) = (record, change) {
                page.objects.push(Undeliverable {
                    path: format!("/{path}"),
                    change,
                    size: record.size,
                    generation: record.generation.0,
                    dirty_since_ms: record.dirty_since_ms,
                    refused_since_ms: refusal.since_ms,
                    tries: refusal.tries,
                    next_try_in_ms: self.home.queue.next_try(&path).map(|pause| pause.as_millis() as u64),
                    reason: refusal.reason.into(),
                });
            }
            after = Some(path);
        }
        Ok(page)
    }

    /// The pending record of an undeliverable object.
    fn check_undeliverable<'a>(
        &self,
        path: &ObjectPath,
        current: &'a Current,
        generation: Generation,
    ) -> Result<&'a ObjectRecord> {
        let told =
            |record: &&ObjectRecord| current.waits() && self.home.refusals.is_undeliverable(path, record.generation);
        let record = current.record.as_ref().filter(told).ok_or_else(|| {
            let context = format!("/{path} is not undeliverable: it has arrived, or has not been refused often enough");
            Error::new(ErrorKind::NotFound, context)
        })?;
        if record.generation != generation {
            let now = record.generation;
            let context =
                format!("/{path} has been written or deleted again, and generation {now} is pending: list it again");
            return Err(Error::new(ErrorKind::Conflict, context));
        }
        Ok(record)
    }

    async fn end_undeliverable(&self, path: &ObjectPath, generation: Generation, end: End) -> Result<()> {
        let _upload = self.home.upload_locks.lock(path).await?;
        // A request without an answer may still land, and would bring back the discarded version.
        self.check_settled(path)?;
        let _lock = self.lock_key(path).await?;
        let current = self.current(path).await?;
        let record = self.check_undeliverable(path, &current, generation)?;
        let (after, local) = match (end, record.state) {
            (End::Keep, State::Dirty) => {
                (Some(ObjectRecord { state: State::Transient, ..record.clone() }), LocalChange::default())
            }
            (End::Keep, _) => {
                return Err(Error::new(
                    ErrorKind::InvalidRequest,
                    "a delete cannot be kept: discard it, and the object of the under store is visible again",
                ));
            }
            (End::Discard, _) => (None, LocalChange { forget: vec![Self::store_key(path)], ..LocalChange::default() }),
        };
        if end == End::Discard {
            self.home.positions.changed(path, || positions::Change::Unknown);
        }
        let transaction = Transaction { writes: vec![end_intent(path)], local, ..Transaction::default() };
        self.change_record(path, &current, after.as_ref(), transaction).await?;
        self.home.queue.remove(path);
        tracing::warn!(%path, generation = generation.0, size = record.size, ?end, "an operator has taken an undeliverable change out of the upload queue");
        Ok(())
    }

    async fn rename_undeliverable(
        self: &Arc<Self>,
        path: &ObjectPath,
        generation: Generation,
        to: &ObjectPath,
    ) -> Result<()> {
        let current = self.current(path).await?;
        let record = self.check_undeliverable(path, &current, generation)?;
        if record.state != State::Dirty {
            return Err(Error::new(ErrorKind::InvalidRequest, "a delete cannot be renamed: discard it"));
        }
        // Checked before anything is written. It is checked again at the end.
        self.check_settled(path)?;
        let head = GetObject::whole(path.clone());
        let redirect = self.head(head).await?.info.headers.website_redirect_location.clone();
        let copy = CopyObject {
            source: path.clone(),
            source_conditions: Conditions {
                if_match: Some(TagCondition::OneOf(vec![record.etag.clone()])),
                ..Conditions::default()
            },
            target: to.clone(),
            replace_metadata: None,
            storage_class: None,
            website_redirect_location: redirect,
            replace_tags: None,
            checksum_algorithm: None,
            conditions: Conditions { if_none_match: Some(TagCondition::Any), ..Conditions::default() },
        };
        let copied = self.copy_to_home(copy).await?;
        let Err(error) = self.end_undeliverable(path, generation, End::Discard).await else { return Ok(()) };
        if error.is_commit_in_doubt() {
            // If it holds, the copy has the only bytes.
            let context = format!(
                "the copy at /{to} stays, and whether /{path} was dropped is unknown: look at both, and drop the one that you do not need: {error}"
            );
            return Err(Error { context, ..error });
        }
        // For example, another client has written or deleted it in the meantime.
        let is_ours = Conditions { if_match: Some(TagCondition::OneOf(vec![copied.etag])), ..Conditions::default() };
        match self.delete_anywhere(to, &is_ours).await {
            Ok(()) => Err(Error { context: format!("nothing has changed: {error}"), ..error }),
            Err(left) => {
                let context = format!("the copy at /{to} stays ({left}), and nothing else has changed: {error}");
                // `Moved` would have it tried again, although the name is not free any more.
                let kind = if error.kind == ErrorKind::Moved { ErrorKind::Unavailable } else { error.kind };
                Err(Error { kind, context, ..error })
            }
        }
    }
}

fn change_of(state: State) -> Option<UndeliverableChange> {
    match state {
        State::Dirty => Some(UndeliverableChange::Write),
        State::Tombstone => Some(UndeliverableChange::Delete),
        State::Transient | State::Conflict => None,
    }
}
