//! What the cache knows about objects, for operators.

use std::collections::BTreeMap;

use forebay_catalog::records::{Base, State};
use forebay_store::{Object, Piece};
use forebay_types::{BucketName, ByteRange, ETag, ObjectInfo, ObjectKey, ObjectPath, PathPolicy};
use forebay_ufs::ErrorKind as UfsKind;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::anywhere::{MOVE_LOOK, MOVE_MAX, OtherHome};
use crate::metadata::decode_info;
use crate::others::OtherWorkers;
use crate::worker::{Located, Worker};
use crate::{Cache, Error, ErrorKind, ListObjects, ListedObject, Result};

/// The state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheState {
    /// The under store has it.
    Clean,
    /// The object will be uploaded to the under store.
    Dirty,
    /// The object stays here and is never uploaded to the under store.
    Transient,
    /// Somebody else has changed the object in the under store while the local version was dirty.
    Conflict,
}

/// The tier from which the bytes of an object are read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheTier {
    Memory,
    Disk,
    UnderStore,
}

/// An object in a listing, with the part of it that the cache holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CachedObject {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub last_modified_ms: u64,
    pub state: CacheState,
    /// The nearest tier that holds the whole object.
    pub tier: CacheTier,
    /// Bytes of the object on local disks.
    pub cached_bytes: u64,
}

/// Objects and common prefixes, each in byte order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CachedPage {
    pub objects: Vec<CachedObject>,
    pub prefixes: Vec<String>,
    /// Where the next page starts, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A range of an object's bytes on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CachedRange {
    pub start: u64,
    /// The offset after the last byte.
    pub end: u64,
}

/// An attempt to upload an object to the under store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistEvent {
    pub time_ms: u64,
    /// `stored`, `deleted`, `conflict` or `failed`.
    pub outcome: String,
    /// The generation that was sent.
    pub generation: u64,
    pub bytes: u64,
    pub duration_ms: u64,
    /// Why it failed, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Everything that is known about one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDetail {
    pub path: String,
    pub size: u64,
    pub etag: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    pub last_modified_ms: u64,
    pub state: CacheState,
    pub tier: CacheTier,
    pub cached_bytes: u64,
    /// The ranges on disk, in order. Adjacent ranges are joined. At most a thousand.
    pub cached_ranges: Vec<CachedRange>,
    /// Size of a page of the read cache, in bytes.
    pub page_size: u64,
    /// Workers that have it, with its home.
    pub replicas: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The under store's own ETag, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_since_ms: Option<u64>,
    /// Milliseconds until the retry of a failed attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_in_ms: Option<u64>,
    pub user_metadata: std::collections::BTreeMap<String, String>,
    pub tags: std::collections::BTreeMap<String, String>,
    /// The newest first, as far as they are remembered: the last ten thousand attempts of all objects since the start.
    pub persist_events: Vec<PersistEvent>,
}

/// The most ranges of an object that are reported.
const RANGES_MAX: usize = 1000;

/// Concurrent lookups for one listing. Each of them reads only memory.
const LOOKS: usize = 16;

impl Cache {
    /// Lists objects with the part of each that the cache holds. Reads no bytes and changes nothing, including the
    /// order of eviction.
    ///
    /// # Errors
    /// As [`Cache::list`].
    pub fn list_cached<'a>(
        &'a self,
        bucket: &'a BucketName,
        request: &'a ListObjects,
    ) -> BoxFuture<'a, Result<CachedPage>> {
        Box::pin(async move {
            let page = self.worker.list(bucket, request).await?;
            let objects = page.objects.into_iter().map(CachedObject::listed).collect();
            let objects = self.worker.cached_anywhere(bucket, objects).await?;
            Ok(CachedPage { objects, prefixes: page.prefixes, next: page.next })
        })
    }

    /// What this worker holds of listed objects that are at home here. Like [`Cache::list_cached`], it changes nothing.
    ///
    /// # Errors
    /// `Moved` when one of them is not at home here.
    pub fn cached_here<'a>(
        &'a self,
        bucket: &'a BucketName,
        objects: Vec<CachedObject>,
    ) -> BoxFuture<'a, Result<Vec<CachedObject>>> {
        Box::pin(async move { self.worker.cached(bucket, objects).await })
    }

    /// All that the home of an object knows of it.
    ///
    /// # Errors
    /// As [`Cache::head`].
    pub fn object_detail<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, Result<ObjectDetail>> {
        Box::pin(async move { self.worker.object_detail_anywhere(path).await })
    }

    /// The same, of an object that is at home here.
    ///
    /// # Errors
    /// As [`Cache::head`]; `Moved` when it is not at home here.
    pub fn object_detail_here<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, Result<ObjectDetail>> {
        Box::pin(async move { self.worker.object_detail(path).await })
    }
}

impl CachedObject {
    fn listed(listed: ListedObject) -> Self {
        let ListedObject { key, size, etag, last_modified_ms, .. } = listed;
        Self {
            size,
            etag: etag.as_str().to_owned(),
            last_modified_ms,
            state: CacheState::Clean,
            tier: CacheTier::UnderStore,
            cached_bytes: 0,
            key,
        }
    }

    /// `None` for a name that another client gave, and that no client can request.
    fn path(&self, bucket: &BucketName) -> Option<ObjectPath> {
        Some(ObjectPath::new(bucket.clone(), ObjectKey::new(&self.key).ok()?))
    }
}

/// What is known about an object, with its local bytes.
struct Seen {
    info: ObjectInfo,
    state: CacheState,
    object: Option<Object>,
    dirty_since_ms: Option<u64>,
    remote_etag: Option<ETag>,
}

impl Worker {
    /// Asks the homes of listed objects what they hold of them. While an object moves, nobody answers for it: this
    /// waits a moment and asks again.
    async fn cached_anywhere(&self, bucket: &BucketName, mut objects: Vec<CachedObject>) -> Result<Vec<CachedObject>> {
        let Some(others) = &self.others else { return self.cached(bucket, objects).await };
        let until = self.env.clock.monotonic() + MOVE_MAX;
        let mut left: Vec<usize> = (0..objects.len()).collect();
        loop {
            match self.ask_homes(others.as_ref(), bucket, &mut objects, &mut left).await? {
                None => return Ok(objects),
                Some(problem) if self.env.clock.monotonic() >= until => return Err(problem),
                Some(_) => self.env.clock.sleep(MOVE_LOOK).await,
            }
        }
    }

    /// Asks the homes of the objects at the places in `left`, where those stay that nobody has answered for. Returns
    /// why.
    async fn ask_homes(
        &self,
        others: &dyn OtherWorkers,
        bucket: &BucketName,
        objects: &mut [CachedObject],
        left: &mut Vec<usize>,
    ) -> Result<Option<Error>> {
        let mut problem = None;
        let mut by_home: BTreeMap<Option<String>, Vec<usize>> = BTreeMap::new();
        for place in std::mem::take(left) {
            let Some(path) = objects[place].path(bucket) else { continue };
            let home = self.other_home(&path).map(|home| home.worker);
            if home.is_none() && !self.is_at_home(&path) {
                problem = Some(Error::moved(&path));
                left.push(place);
                continue;
            }
            by_home.entry(home).or_default().push(place);
        }
        for (home, places) in by_home {
            let asked: Vec<_> = places.iter().map(|place| objects[*place].clone()).collect();
            let answer = match &home {
                None => self.cached(bucket, asked).await,
                Some(worker) => others.cached(worker, bucket, asked).await,
            };
            match answer {
                Ok(found) => places.into_iter().zip(found).for_each(|(place, found)| objects[place] = found),
                Err(error) if matches!(error.kind, ErrorKind::Moved | ErrorKind::Unavailable) => {
                    problem = Some(error);
                    left.extend(places);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(problem)
    }

    /// Looks at an object that is at home here.
    ///
    /// # Errors
    /// `Moved` when it is not, or leaves meanwhile: then it is no failure that the catalog does not answer for it.
    async fn while_at_home<T>(&self, path: &ObjectPath, look: impl Future<Output = Result<T>>) -> Result<T> {
        self.check_home(path)?;
        let seen = look.await;
        if seen.is_err() {
            self.check_home(path)?;
        }
        seen
    }

    async fn cached(&self, bucket: &BucketName, objects: Vec<CachedObject>) -> Result<Vec<CachedObject>> {
        let looks = objects.into_iter().map(|listed| self.cached_object(bucket, listed));
        stream::iter(looks).buffered(LOOKS).try_collect().await
    }

    async fn cached_object(&self, bucket: &BucketName, mut found: CachedObject) -> Result<CachedObject> {
        let Some(path) = found.path(bucket) else { return Ok(found) };
        let current = self.while_at_home(&path, self.current(&path)).await?;
        let copy = self.store.peek(&Self::store_key(&path));
        let etag = ETag::new(&found.etag);
        let is_listed = |object: &Object| match &current.record {
            Some(record) => object.generation() == record.generation,
            None => !object.is_pinned() && is_version(object, &etag) && object.size() == found.size,
        };
        if let Some(record) = &current.record {
            found.state = cache_state(record.state);
        }
        if let Some(object) = copy.filter(is_listed) {
            found.cached_bytes = object.cached_bytes();
            found.tier = self.tier_of(&path, &object);
        }
        Ok(found)
    }

    /// The nearest tier that holds the whole object.
    fn tier_of(&self, path: &ObjectPath, object: &Object) -> CacheTier {
        let in_memory = self.memory.peek(&self.policies.resolve(path), object.generation());
        if in_memory.is_some_and(|found| found.data.is_some()) {
            CacheTier::Memory
        } else if object.cached_bytes() == object.size() {
            CacheTier::Disk
        } else {
            CacheTier::UnderStore
        }
    }

    async fn object_detail_anywhere(&self, path: &ObjectPath) -> Result<ObjectDetail> {
        let ask = |home| async move {
            match home {
                Some(OtherHome { others, worker }) => others.detail(&worker, path).await,
                None => self.object_detail(path).await,
            }
        };
        self.ask_home(path, ask).await
    }

    async fn object_detail(&self, path: &ObjectPath) -> Result<ObjectDetail> {
        self.while_at_home(path, self.detail_at_home(path)).await
    }

    async fn detail_at_home(&self, path: &ObjectPath) -> Result<ObjectDetail> {
        let Seen { info, state, object, dirty_since_ms, remote_etag } = self.see(path).await?;
        let record = self.current(path).await?.record;
        let next_try = if state == CacheState::Dirty { self.home.queue.next_try(path) } else { None };
        Ok(ObjectDetail {
            path: format!("/{path}"),
            size: info.size,
            etag: info.etag.as_str().to_owned(),
            content_type: info.headers.content_type,
            last_modified_ms: info.last_modified_ms,
            state,
            tier: object.as_ref().map_or(CacheTier::UnderStore, |object| self.tier_of(path, object)),
            cached_bytes: object.as_ref().map_or(0, Object::cached_bytes),
            cached_ranges: object.as_ref().map_or_else(Vec::new, cached_ranges),
            page_size: self.settings.page_size.0,
            replicas: self.copies_at_others(path, record.as_ref()).await + 1,
            generation: object.as_ref().map(|object| object.generation().0),
            remote_etag: remote_etag.map(|etag| etag.as_str().to_owned()),
            dirty_since_ms,
            next_try_in_ms: next_try.map(|pause| pause.as_millis() as u64),
            user_metadata: info.user.into_iter().collect(),
            tags: info.tags.into_iter().collect(),
            persist_events: self.home.persist_events.of(path),
        })
    }

    /// Like a read, but without side effects: nothing is cached, dropped or counted.
    async fn see(&self, path: &ObjectPath) -> Result<Seen> {
        let policy = self.policies.resolve(path);
        match self.look_at(path).await? {
            Located::Here { record, object } => {
                let info = self.described(&policy, &object).await?;
                let remote_etag = match record.base {
                    Base::Present(etag) => Some(etag),
                    Base::Unknown | Base::Absent => None,
                };
                let waits = matches!(record.state, State::Dirty | State::Conflict);
                let dirty_since_ms = waits.then_some(record.dirty_since_ms);
                let state = cache_state(record.state);
                Ok(Seen { info, state, object: Some(object), dirty_since_ms, remote_etag })
            }
            Located::Deleted => Err(Error::not_found(path)),
            Located::Elsewhere { copy } => self.see_clean(path, &policy, copy).await,
        }
    }

    async fn see_clean(&self, path: &ObjectPath, policy: &PathPolicy, copy: Option<Object>) -> Result<Seen> {
        let mount = self.buckets.mount(&path.bucket).await?;
        let clean = |info, object: Option<Object>, remote_etag| Seen {
            info,
            state: CacheState::Clean,
            object,
            dirty_since_ms: None,
            remote_etag,
        };
        let mut remote = match mount.foreground.head(&path.key).await {
            Ok(remote) => remote,
            Err(error) if error.kind == UfsKind::NotFound => return Err(Error::not_found(path)),
            Err(error) => match copy {
                Some(object) if error.kind.is_transient() && Self::remote_etag_of(&object).is_some() => {
                    let info = self.described(policy, &object).await?;
                    let remote_etag = Self::remote_etag_of(&object);
                    return Ok(clean(info, Some(object), remote_etag));
                }
                Some(_) | None => return Err(error.into()),
            },
        };
        self.home.negative_cache.end(path);
        // A HEAD does not return tags. If they are not available, the rest is still useful.
        if let Ok(tags) = mount.foreground.tags(&path.key).await {
            remote.info.tags = tags;
        }
        let same = copy.filter(|object| Self::remote_etag_of(object).as_ref() == Some(&remote.remote_etag));
        Ok(clean(remote.info, same, Some(remote.remote_etag)))
    }

    async fn described(&self, policy: &PathPolicy, object: &Object) -> Result<ObjectInfo> {
        match self.memory.peek(policy, object.generation()) {
            Some(found) => Ok(found.info.as_ref().clone()),
            None => decode_info(&object.metadata().await?),
        }
    }
}

/// Whether a clean copy is the version that clients know by this ETag.
fn is_version(object: &Object, etag: &ETag) -> bool {
    let annex = Worker::annex_of(object);
    annex.etag.or(annex.remote_etag).as_ref() == Some(etag)
}

fn cache_state(state: State) -> CacheState {
    match state {
        State::Dirty => CacheState::Dirty,
        State::Transient => CacheState::Transient,
        State::Conflict => CacheState::Conflict,
        // Deleted since it was listed: the delete is still pending.
        State::Tombstone => CacheState::Dirty,
    }
}

fn cached_ranges(object: &Object) -> Vec<CachedRange> {
    let mut ranges: Vec<CachedRange> = Vec::new();
    if object.size() == 0 {
        return ranges;
    }
    for piece in object.pieces(ByteRange::of_size(object.size())) {
        let Piece::Cached(range) = piece else { continue };
        if let Some(last) = ranges.last_mut().filter(|last| last.end == range.start) {
            last.end = range.end;
        } else if ranges.len() < RANGES_MAX {
            ranges.push(CachedRange { start: range.start, end: range.end });
        } else {
            break;
        }
    }
    ranges
}
