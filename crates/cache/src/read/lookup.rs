//! Finds the current version of an object for a read: in the catalog, as a clean copy, or in the under store.

use std::sync::Arc;

use bytes::Bytes;
use forebay_store::{Object, Piece};
use forebay_types::{ByteRange, ETag, Generation, ObjectInfo, ObjectPath, PathPolicy, StorageState, WriteMode};
use forebay_ufs::RemoteObject;

use crate::read::remote::{Purpose, RemoteState, Version, WholeBody, keeps_reads};
use crate::read::single_flight::Flight;
use crate::worker::{Located, Worker, storage_state};
use crate::{Error, ErrorKind, GetObject, Mount, Result};

/// The current version of an object.
pub(crate) struct Lookup {
    pub(crate) info: Arc<ObjectInfo>,
    /// Whether the under store was asked for its version.
    pub(crate) asked: bool,
    pub(crate) bytes: BytesAt,
}

/// Where the bytes of a version are.
pub(crate) enum BytesAt {
    /// All of them here, and only here: the object is dirty, transient or in conflict.
    Local { object: Object, state: StorageState },
    /// The clean copy has some or all of them here, and the under store has the rest. `whole`: all of them, if they
    /// came with the answer to the lookup.
    Cached { version: Box<Version>, whole: Option<Bytes> },
    /// Only in the under store. `whole`: all of them, or a stream of them, if they came with the answer to the lookup.
    Remote { object: Box<RemoteObject>, mount: Mount, whole: Option<WholeBody> },
    /// In memory here, while the home of the object is another worker.
    Leased { generation: Generation, state: StorageState, remote_etag: Option<ETag>, data: Bytes },
}

/// What a reader wants of an object that the catalog does not know.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// All of it, whatever its version: description and bytes may come in one answer. Otherwise the description first,
    /// because everything else depends on it.
    is_whole: bool,
    /// See [`GetObject::no_cache`].
    no_cache: bool,
}

impl Wanted {
    pub(super) fn of(request: &GetObject) -> Self {
        let is_whole = request.range.is_none() && request.part_number.is_none() && request.conditions.is_empty();
        Self { is_whole, no_cache: request.no_cache }
    }

    pub(super) fn description(no_cache: bool) -> Self {
        Self { is_whole: false, no_cache }
    }
}

impl Lookup {
    /// Whether reading `range` needs no request to the under store: the lookup did not ask it, and every byte is here.
    pub(super) fn avoids_request(&self, range: ByteRange) -> bool {
        let has_all = match &self.bytes {
            BytesAt::Local { .. } => true,
            BytesAt::Cached { version, .. } => {
                let copy = &version.opened;
                let is_cached = |piece: &Piece| matches!(piece, Piece::Cached(_));
                copy.cached_bytes() == self.info.size || copy.pieces(range).iter().all(is_cached)
            }
            BytesAt::Remote { .. } => false,
            BytesAt::Leased { .. } => true,
        };
        has_all && !self.asked
    }

    /// As in [`ObjectHead`](crate::ObjectHead).
    pub(super) fn state(&self) -> StorageState {
        match &self.bytes {
            BytesAt::Local { state, .. } | BytesAt::Leased { state, .. } => *state,
            BytesAt::Cached { .. } | BytesAt::Remote { .. } => StorageState::Clean,
        }
    }

    /// As in [`ObjectHead`](crate::ObjectHead).
    pub(super) fn cached_bytes(&self) -> u64 {
        match &self.bytes {
            BytesAt::Local { object, .. } => object.size(),
            BytesAt::Cached { version, .. } => version.opened.cached_bytes(),
            BytesAt::Remote { .. } => 0,
            BytesAt::Leased { data, .. } => data.len() as u64,
        }
    }

    /// As in [`ObjectHead`](crate::ObjectHead).
    pub(crate) fn generation(&self) -> Option<Generation> {
        match &self.bytes {
            BytesAt::Local { object, .. } => Some(object.generation()),
            BytesAt::Cached { version, .. } => Some(version.generation),
            BytesAt::Remote { object, .. } => object.stamp.as_ref().map(|stamp| stamp.generation),
            BytesAt::Leased { generation, .. } => Some(*generation),
        }
    }

    /// The under store's ETag of this version, if it has the version.
    pub(crate) fn remote_etag(&self) -> Option<&ETag> {
        match &self.bytes {
            BytesAt::Local { .. } => None,
            BytesAt::Leased { remote_etag, .. } => remote_etag.as_ref(),
            BytesAt::Cached { version, .. } => Some(&version.remote_etag),
            BytesAt::Remote { object, .. } => Some(&object.remote_etag),
        }
    }
}

impl Worker {
    /// # Errors
    /// `NotFound`, `NoSuchBucket`, and whatever keeps the current version from being told.
    pub(super) async fn lookup(
        self: &Arc<Self>,
        path: &ObjectPath,
        policy: &PathPolicy,
        wanted: Wanted,
    ) -> Result<Lookup> {
        self.lookup_once_each(path, policy, wanted).await.map_err(Error::of_read)
    }

    /// Single flight: of several readers of a key without a copy, one asks the under store, and the others of its
    /// requester wait for the copy.
    async fn lookup_once_each(
        self: &Arc<Self>,
        path: &ObjectPath,
        policy: &PathPolicy,
        wanted: Wanted,
    ) -> Result<Lookup> {
        let (mut may_wait, mut flight) = (keeps_reads(policy), None::<Flight<ObjectPath, ()>>);
        loop {
            let copy = match self.locate(path).await? {
                Located::Here { record, object } => {
                    let info = self.info_of(policy, &object).await?;
                    let bytes = BytesAt::Local { object, state: storage_state(record.state) };
                    return Ok(Lookup { info, asked: false, bytes });
                }
                Located::Deleted => return Err(Error::not_found(path)),
                Located::Elsewhere { copy } => copy,
            };
            if copy.is_some() || flight.is_some() || !may_wait {
                let copy = match copy {
                    None => Box::pin(self.take_over_copy(path, policy, wanted.is_whole, Purpose::Read)).await,
                    copy => copy,
                };
                let known = copy.as_ref().map(Object::generation);
                let found = self.lookup_elsewhere(path, policy, wanted, copy).await;
                if let Some(flight) = flight.take() {
                    flight.end(());
                }
                let asked = found.as_ref().map_or(true, |found| found.asked);
                if asked && self.is_here(path).await? {
                    continue;
                }
                let tells_another = match &found {
                    Ok(found) => known.is_none() || found.generation() != known,
                    Err(error) => error.kind == ErrorKind::NotFound,
                };
                if asked && tells_another {
                    self.end_outdated_leases(path).await;
                }
                return found;
            }
            let (mine, outcome) = self.home.lookups.begin(path);
            if mine.is_none() {
                // If there is no copy afterwards, all readers ask for themselves concurrently, not one by one.
                may_wait = outcome.await.is_err();
            }
            // Another flight may have ended since `locate`.
            flight = mine;
        }
    }

    /// The current version, if all of its bytes are here and the under store need not be asked.
    pub(crate) async fn lookup_here(&self, path: &ObjectPath, policy: &PathPolicy) -> Result<Option<Lookup>> {
        match self.locate(path).await? {
            Located::Here { record, object } => {
                let info = self.info_of(policy, &object).await?;
                let bytes = BytesAt::Local { object, state: storage_state(record.state) };
                Ok(Some(Lookup { info, asked: false, bytes }))
            }
            Located::Elsewhere { copy: Some(copy) } if copy.is_whole() && self.is_believed(path, policy, &copy) => {
                let mount = self.buckets.mount(&path.bucket).await?;
                if self.forget_if_gone(&path.bucket).await {
                    return Ok(None);
                }
                self.found(path, policy, &mount, RemoteState::Cached(copy), false).await.map(Some)
            }
            Located::Elsewhere { .. } | Located::Deleted => Ok(None),
        }
    }

    /// For a key without a record in the catalog.
    async fn lookup_elsewhere(
        self: &Arc<Self>,
        path: &ObjectPath,
        policy: &PathPolicy,
        wanted: Wanted,
        copy: Option<Object>,
    ) -> Result<Lookup> {
        let mount = self.buckets.mount(&path.bucket).await?;
        // It may be of a bucket that is gone.
        let copy = if self.forget_if_gone(&path.bucket).await { None } else { copy };
        if copy.is_none() && !wanted.no_cache && self.is_known_absent(path, policy) {
            let avoided = if wanted.is_whole { &self.metrics.avoided_gets } else { &self.metrics.avoided_heads };
            avoided.inc();
            return Err(Error::not_found(path));
        }
        if copy.is_none() && wanted.is_whole {
            return self.lookup_whole(path, policy, mount).await;
        }
        let (state, asked) = match copy {
            Some(object) if !wanted.no_cache && self.is_believed(path, policy, &object) => {
                (RemoteState::Cached(object), false)
            }
            Some(object) if self.may_be_stale(policy, wanted, &object) => {
                (self.revalidate_in_time(path, policy, &mount, object).await?, true)
            }
            copy => (self.revalidate(path, policy, &mount, copy, Purpose::Read).await?, true),
        };
        match self.found(path, policy, &mount, state, asked).await {
            // The store drops a copy whose metadata is damaged, and may have evicted it. The under store has the
            // object.
            Err(error) if matches!(error.kind, ErrorKind::Corrupt | ErrorKind::SlowDown) => {
                let state = self.revalidate(path, policy, &mount, None, Purpose::Read).await?;
                self.found(path, policy, &mount, state, true).await
            }
            found => found,
        }
    }

    /// Whether a reader gets this copy when the under store is out of reach, and wants no other answer.
    fn may_be_stale(&self, policy: &PathPolicy, wanted: Wanted, copy: &Object) -> bool {
        policy.write_mode != WriteMode::NoCache && !wanted.no_cache && Self::remote_etag_of(copy).is_some()
    }

    /// Requests description and bytes at once.
    async fn lookup_whole(self: &Arc<Self>, path: &ObjectPath, policy: &PathPolicy, mount: Mount) -> Result<Lookup> {
        let (state, body) = self.revalidate_whole(path, policy, &mount).await?;
        let mut found = self.found(path, policy, &mount, state, true).await?;
        match (&mut found.bytes, body) {
            // Before this lookup ends, so that the readers that wait for it find the fetches of the pages in flight.
            (BytesAt::Cached { version, .. }, Some(WholeBody::OnItsWay(body))) => self.expect_pages(version, body),
            (BytesAt::Cached { whole, .. }, Some(WholeBody::Here(data))) => *whole = Some(data),
            (BytesAt::Remote { whole, .. }, body) => *whole = body,
            (BytesAt::Cached { .. } | BytesAt::Local { .. } | BytesAt::Leased { .. }, _) => {}
        }
        Ok(found)
    }

    async fn found(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        state: RemoteState,
        asked: bool,
    ) -> Result<Lookup> {
        match state {
            RemoteState::Absent => Err(Error::not_found(path)),
            RemoteState::NotCached(object) => {
                let info = Arc::new(object.info.clone());
                Ok(Lookup { info, asked, bytes: BytesAt::Remote { object, mount: mount.clone(), whole: None } })
            }
            RemoteState::Cached(object) => {
                let info = self.info_of(policy, &object).await?;
                let version = Box::new(Version::of(path, policy, mount, object)?);
                Ok(Lookup { info, asked, bytes: BytesAt::Cached { version, whole: None } })
            }
        }
    }
}
