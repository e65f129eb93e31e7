//! The read cache: what the under store has, looked up, kept page by page, and believed for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_env::sync::Mutex;
use forebay_env::{Env, HashState};
use forebay_store::{Class, Object, Piece};
use forebay_types::{ByteRange, ETag, Generation, ObjectInfo, ObjectPath, PathPolicy, WriteMode};
use forebay_ufs::{ByteStream, ErrorKind as UfsKind, RemoteBody, RemoteObject, UnderStore};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt};
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use tokio::sync::oneshot;

use crate::fair_share::{Tenant, TenantPlace, TenantPlaces, TenantShares};
use crate::metadata::Annex;
use crate::metrics::Tier;
use crate::read::get::pages_of;
use crate::read::memory_tier::MemoryObject;
use crate::worker::Worker;
use crate::write::put::new_object;
use crate::{Error, ErrorKind, Mount, Result};

/// Objects whose last validation is remembered; about 32 bytes each.
const VALIDATIONS_MAX: usize = 1 << 20;

/// Sequential readers that are followed from request to request.
const READERS_MAX: usize = 16_384;

/// Of a body that is asked for before its size is known, so much goes into pages; requests of their own fetch the pages behind it, several
/// at once.
const FIRST_BODY_BYTES_MAX: u64 = 4 << 20;

/// Pages of one bucket on their way from under stores at once, and less than twice as many of all: with pages of 1 MiB they take 120 MiB of
/// memory at most.
const PAGES_MAX: u64 = 64;

/// What is smaller than this part of a page counts as much.
const PAGE_PARTS: u64 = 4;

type QuickCache<V> = Cache<u64, V, UnitWeighter, HashState>;

type Flight = Shared<BoxFuture<'static, Result<Bytes, Arc<Error>>>>;

/// What is remembered of under-store objects, and the fetches under way.
pub(crate) struct Remote {
    env: Env,
    /// When a generation was last known to be what the under store has.
    valid: QuickCache<Duration>,
    /// Where the last range request of an object ended.
    readers: QuickCache<u64>,
    flights: Mutex<HashMap<(Generation, u64), Flight>>,
    /// Bytes on their way.
    fetches: Arc<TenantPlaces>,
    page_bytes: u64,
}

/// An object of the under store, as far as it is known here.
pub(crate) enum Known {
    /// A clean copy, whole or in part, that is what the under store has.
    Copy(Object),
    /// Not kept here.
    Remote(Box<RemoteObject>),
    Absent,
}

/// A whole object as the under store sends it.
pub(crate) enum WholeBody {
    /// All of it, sound.
    Here(Bytes),
    OnItsWay(ByteStream),
}

/// What an object is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    /// To have it on disk: nobody has asked for it yet, so that it has no place in memory.
    Load,
}

/// A version of an object of the under store, to read pages of.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) path: ObjectPath,
    /// Of the longest policy rule that holds: reads are counted by it.
    pub(crate) rule: Arc<str>,
    /// What was here when the reader came: it stays readable when the key has been written anew in the meantime.
    pub(crate) opened: Object,
    pub(crate) generation: Generation,
    pub(crate) size: u64,
    /// What clients see.
    pub(crate) etag: ETag,
    pub(crate) remote_etag: ETag,
    pub(crate) under_store: Arc<dyn UnderStore>,
}

fn remembering<V: Clone>(items: usize, hasher: &HashState) -> QuickCache<V> {
    Cache::with(items, items as u64, UnitWeighter, hasher.clone(), DefaultLifecycle::default())
}

impl Remote {
    pub(crate) fn new(env: Env, hasher: &HashState, page_bytes: u64) -> Self {
        Self {
            env,
            valid: remembering(VALIDATIONS_MAX, hasher),
            readers: remembering(READERS_MAX, hasher),
            flights: Mutex::default(),
            fetches: TenantPlaces::new(TenantShares::new(PAGES_MAX * page_bytes)),
            page_bytes,
        }
    }

    pub(crate) fn mark_valid(&self, generation: Generation) {
        self.valid.insert(generation.0, self.env.clock.monotonic());
    }

    pub(crate) fn is_valid(&self, generation: Generation, ttl: Duration) -> bool {
        let now = self.env.clock.monotonic();
        self.valid.get(&generation.0).is_some_and(|at| now.saturating_sub(at) < ttl)
    }

    /// A place for bytes of a bucket that are on their way.
    async fn place(&self, tenant: &Tenant, bytes: u64) -> TenantPlace {
        self.fetches.take(tenant, bytes.clamp(self.page_bytes / PAGE_PARTS, self.page_bytes)).await
    }

    fn doubt(&self, generation: Generation) {
        self.valid.remove(&generation.0);
    }
}

impl Worker {
    /// The under store's tag of a key's clean copy, while it is believed.
    pub(crate) fn fresh_remote_etag(&self, path: &ObjectPath, policy: &PathPolicy) -> Option<ETag> {
        let object = self.store.peek(&Self::store_key(path))?;
        let fresh = self.remote.is_valid(object.generation(), policy.metadata_ttl.0);
        if fresh { Self::remote_etag_of(&object) } else { None }
    }

    /// Finds out what the under store has, asking it only when the copy's time is over. A copy that begins is counted as read or not.
    pub(crate) async fn know(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        copy: Option<Object>,
        purpose: Purpose,
    ) -> Result<Known> {
        match copy {
            Some(object) if self.is_believed(policy, &object) => Ok(Known::Copy(object)),
            copy => self.ask(path, policy, mount, copy, purpose).await,
        }
    }

    /// Whether a clean copy needs no look at the under store.
    pub(crate) fn is_believed(&self, policy: &PathPolicy, object: &Object) -> bool {
        self.remote.is_valid(object.generation(), policy.metadata_ttl.0) && policy.write_mode != WriteMode::NoCache
    }

    /// Finds out what the under store has by asking it.
    pub(crate) async fn ask(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        copy: Option<Object>,
        purpose: Purpose,
    ) -> Result<Known> {
        let fence = self.fence.read(path);
        // A request that may still land would make the answer old at any time, and nobody would notice.
        let is_settled = self.settle.wait(path).is_zero();
        match (mount.foreground.head(&path.key).await, copy) {
            (Ok(remote), Some(object)) if is_copy_of(&object, &remote) => {
                if is_settled && self.fence.read(path) == fence {
                    self.remote.mark_valid(object.generation());
                }
                Ok(Known::Copy(object))
            }
            (Ok(remote), copy) => {
                self.outdated(path, copy);
                match is_settled {
                    true => Ok(self.adopt(path, policy, Box::new(remote), fence, purpose, None).await),
                    false => Ok(Known::Remote(Box::new(remote))),
                }
            }
            (Err(error), copy) if error.kind == UfsKind::NotFound => {
                self.outdated(path, copy);
                Ok(Known::Absent)
            }
            // Nobody can be asked. Our credentials may be over, as during an outage.
            (Err(error), Some(object))
                if (error.kind.is_transient() || error.kind == UfsKind::Credentials)
                    && Self::remote_etag_of(&object).is_some() =>
            {
                self.metrics.stale_served.inc();
                Ok(Known::Copy(object))
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Finds out what the under store has by asking for all of it: for a reader of the whole object, one round trip where [`Worker::ask`]
    /// and the first page would be two. For a key without a copy. An object of one page at most is kept together with its description, in
    /// one write.
    pub(crate) async fn ask_for_all(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
    ) -> Result<(Known, Option<WholeBody>)> {
        let fence = self.fence.read(path);
        // As in `ask`.
        let is_settled = self.settle.wait(path).is_zero();
        let RemoteBody { object, stream, .. } = match mount.foreground.get(&path.key, None, None).await {
            Ok(body) => body,
            Err(error) if error.kind == UfsKind::NotFound => return Ok((Known::Absent, None)),
            Err(error) => return Err(error.into()),
        };
        let (size, remote) = (object.info.size, Box::new(object));
        if !is_settled || !keeps_reads(policy) {
            return Ok((Known::Remote(remote), Some(WholeBody::OnItsWay(stream))));
        }
        let room = if size <= self.settings.page_size.0 { self.read_ahead.room(size) } else { None };
        let Some(room) = room else {
            let known = self.adopt(path, policy, remote, fence, Purpose::Read, None).await;
            return Ok((known, Some(WholeBody::OnItsWay(stream))));
        };
        let data = {
            let _place = self.remote.place(&self.buckets.tenant(&path.bucket), size).await;
            let mut pages = Pages { body: stream, rest: Bytes::new() };
            let data = pages.next(path, size).await?;
            pages.end(path).await?;
            data
        };
        let known = self.adopt(path, policy, remote, fence, Purpose::Read, Some(data.clone())).await;
        Ok((known, Some(WholeBody::Here(room.hold(data)))))
    }

    fn outdated(&self, path: &ObjectPath, copy: Option<Object>) {
        if let Some(object) = copy
            && self.store.evict(&Self::store_key(path), object.generation())
        {
            self.metrics.external_changes.inc();
        }
    }

    /// Begins a copy, with all of its bytes or with none. Only if no write of the key has ended since `fence` was read: the answer may be older.
    async fn adopt(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        remote: Box<RemoteObject>,
        fence: u64,
        purpose: Purpose,
        data: Option<Bytes>,
    ) -> Known {
        if !keeps_reads(policy) {
            return Known::Remote(remote);
        }
        let Some(_lock) = self.locks.try_lock(path) else { return Known::Remote(remote) };
        if self.fence.read(path) != fence
            || !matches!(self.current(path).await, Ok(current) if current.record.is_none())
        {
            return Known::Remote(remote);
        }
        // A look that ended meanwhile has begun one: pages of it may be on their way.
        if let Some(copy) = self.store.peek(&Self::store_key(path))
            && is_copy_of(&copy, &remote)
        {
            self.remote.mark_valid(copy.generation());
            return Known::Copy(copy);
        }
        match self.publish_copy(path, policy, &remote, purpose, data).await {
            Ok(object) => Known::Copy(object),
            Err(error) => {
                self.metrics.fill_failures.inc();
                tracing::debug!(%path, %error, "not kept in the cache");
                Known::Remote(remote)
            }
        }
    }

    async fn publish_copy(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        remote: &RemoteObject,
        purpose: Purpose,
        data: Option<Bytes>,
    ) -> Result<Object> {
        let generation = self.next_generation();
        let annex = Annex::clean(remote.remote_etag.clone(), &remote.info.etag).encode();
        let object = forebay_store::NewObject { annex, ..new_object(path, policy, generation, &remote.info, false) };
        let mut writer = self.store.writer(Class::Fill, data.as_ref().map_or(0, |data| data.len() as u64)).await?;
        if let Some(data) = &data {
            writer.append(data.clone()).await?;
        }
        let staged = writer.finish(object).await?;
        let object = staged.object();
        self.store.publish_fill(staged).await?;
        self.remote.mark_valid(generation);
        if purpose == Purpose::Read {
            let info = Arc::new(remote.info.clone());
            self.memory.insert(policy, generation, MemoryObject::new(info, data));
        }
        Ok(object)
    }

    /// Reads `wanted`, which lies within one page, from the store or the under store.
    ///
    /// # Errors
    /// `PreconditionFailed` when the under store has another version by now.
    pub(crate) async fn read_page(self: Arc<Self>, version: Version, wanted: ByteRange) -> Result<Vec<Bytes>> {
        if let Some(found) = self.read_local(&version, wanted).await {
            self.metrics.read(Tier::disk, &version.path.bucket, &version.rule, wanted.len());
            return Ok(found);
        }
        let page_size = self.settings.page_size.0;
        let index = wanted.start / page_size;
        let window = ByteRange::new(index * page_size, ((index + 1) * page_size).min(version.size));
        self.metrics.read(Tier::under_store, &version.path.bucket, &version.rule, wanted.len());
        let page = self.fetch_page(version, window).await.map_err(|error| error.shared())?;
        let start = (wanted.start - window.start) as usize;
        let wanted = page.slice(start..start + wanted.len() as usize);
        // A client that takes its bytes slowly would hold the page with a piece of it.
        Ok(vec![if wanted.len() <= page.len() / 2 { Bytes::copy_from_slice(&wanted) } else { wanted }])
    }

    /// All of `wanted`, if it is here and sound.
    async fn read_local(&self, version: &Version, wanted: ByteRange) -> Option<Vec<Bytes>> {
        let present = self.store.peek(&Self::store_key(&version.path));
        let present = present.filter(|object| object.generation() == version.generation);
        let object = present.as_ref().unwrap_or(&version.opened);
        let mut found = Vec::new();
        for piece in object.pieces(wanted) {
            match piece {
                // Damaged bytes of a clean copy are as good as missing ones.
                Piece::Cached(range) => found.push(object.read(range).await.ok()?),
                Piece::Missing(_) => return None,
            }
        }
        Some(found)
    }

    /// Fetches a page, once however many ask for it.
    pub(crate) async fn fetch_page(self: &Arc<Self>, version: Version, window: ByteRange) -> Result<Bytes, Arc<Error>> {
        let key = (version.generation, window.start);
        let flight = {
            let mut flights = self.remote.flights.lock();
            let start = || {
                let worker = Arc::clone(self);
                let task = forebay_env::spawn(async move {
                    let result = worker.fetch_and_fill(&version, window).await.map_err(Arc::new);
                    worker.remote.flights.lock().remove(&key);
                    result
                });
                task.join().boxed().shared()
            };
            flights.entry(key).or_insert_with(start).clone()
        };
        flight.await
    }

    /// Takes the first pages of a version from a body that is on its way, in the place of requests of their own.
    pub(crate) fn expect_pages(self: &Arc<Self>, version: &Version, body: ByteStream) {
        let pages = pages_of(ByteRange::of_size(version.size), self.settings.page_size.0);
        let pages = pages.take_while(|page| page.start < FIRST_BODY_BYTES_MAX);
        let promised: Vec<_> = {
            let mut flights = self.remote.flights.lock();
            let promise = |window: ByteRange| {
                let (sender, page) = oneshot::channel();
                let page = page.map(|page| page.unwrap_or_else(|_| Err(Arc::new(broken_off()))));
                // Who has found the new copy in this moment may fetch the page too: both bring the same.
                flights.insert((version.generation, window.start), page.boxed().shared());
                (window, sender)
            };
            pages.map(promise).collect()
        };
        let (worker, version) = (Arc::clone(self), version.clone());
        // Ends with the body, or with what the under store's client allows it to take.
        forebay_env::spawn(async move {
            let _place = worker.remote.place(&worker.buckets.tenant(&version.path.bucket), version.size).await;
            let mut pages = Pages { body, rest: Bytes::new() };
            let mut failed = None;
            for (window, promise) in promised {
                let result = match &failed {
                    None => pages.expected(&version, window).await.map_err(Arc::new),
                    Some(error) => Err(Arc::clone(error)),
                };
                match &result {
                    Ok(page) => worker.keep(&version, window, page).await,
                    Err(error) => failed = Some(Arc::clone(error)),
                }
                worker.remote.flights.lock().remove(&(version.generation, window.start));
                // A reader that has gone away leaves the page in the cache.
                let _ = promise.send(result);
            }
        });
    }

    async fn fetch_and_fill(&self, version: &Version, window: ByteRange) -> Result<Bytes> {
        // The flight that brought it may have ended between the caller's look and the beginning of this one.
        if self.has_all(version, window)
            && let Some(found) = self.read_local(version, window).await
        {
            return Ok(found.concat().into());
        }
        let _place = self.remote.place(&self.buckets.tenant(&version.path.bucket), window.len()).await;
        // What is asked for whole comes with its checksum, where the under store has one, and is compared on the way.
        let range = (window.len() < version.size).then_some(window);
        let fetched = version.under_store.get(&version.path.key, range, Some(&version.remote_etag)).await;
        let same =
            |body: RemoteBody| body.object.must_be(version.size, &version.etag, &version.remote_etag).map(|()| body);
        let body = match fetched.and_then(same) {
            Ok(body) => body,
            Err(error) => {
                if matches!(error.kind, UfsKind::Precondition | UfsKind::NotFound | UfsKind::InvalidName) {
                    self.remote.doubt(version.generation);
                }
                return Err(Error::from(error).of_read());
            }
        };
        let mut pages = Pages { body: body.stream, rest: Bytes::new() };
        let page = pages.next(&version.path, window.len()).await?;
        pages.end(&version.path).await?;
        self.keep(version, window, &page).await;
        Ok(page)
    }

    async fn keep(&self, version: &Version, window: ByteRange, page: &Bytes) {
        if let Err(error) = self.fill(version, window, page).await {
            self.metrics.fill_failures.inc();
            tracing::debug!(path = %version.path, %error, "a page was not kept in the cache");
        }
    }

    /// Keeps what is missing of a page.
    async fn fill(&self, version: &Version, window: ByteRange, page: &Bytes) -> Result<()> {
        let key = Self::store_key(&version.path);
        let Some(object) = self.store.peek(&key) else { return Ok(()) };
        if object.generation() != version.generation {
            return Ok(());
        }
        for piece in object.pieces(window) {
            let Piece::Missing(gap) = piece else { continue };
            let start = (gap.start - window.start) as usize;
            let data = page.slice(start..start + gap.len() as usize);
            self.store.fill(&key, version.generation, gap.start, data).await?;
        }
        Ok(())
    }

    /// Notes where a reader has got to, and fetches the next pages when it goes on where it stopped.
    pub(crate) fn follow_reader(self: &Arc<Self>, version: &Version, range: ByteRange) {
        let before = self.remote.readers.get(&version.generation.0);
        self.remote.readers.insert(version.generation.0, range.end);
        if before != Some(range.start) || range.end >= version.size {
            return;
        }
        let page_size = self.settings.page_size.0;
        let first = range.end.div_ceil(page_size);
        let last = version.size.div_ceil(page_size).min(first + u64::from(self.settings.read_ahead_pages));
        for index in first..last {
            let window = ByteRange::new(index * page_size, ((index + 1) * page_size).min(version.size));
            let (worker, version) = (Arc::clone(self), version.clone());
            if worker.has_all(&version, window) {
                continue;
            }
            forebay_env::spawn(async move {
                if let Err(error) = worker.fetch_page(version, window).await {
                    tracing::debug!(%error, "a page could not be read ahead");
                }
            });
        }
    }

    pub(crate) fn has_all(&self, version: &Version, window: ByteRange) -> bool {
        self.store.peek(&Self::store_key(&version.path)).is_some_and(|object| {
            object.generation() == version.generation
                && object.pieces(window).iter().all(|piece| matches!(piece, Piece::Cached(_)))
        })
    }

    /// The description of what is known, however it is known.
    pub(crate) async fn known_info(&self, policy: &PathPolicy, known: &Known) -> Result<Option<Arc<ObjectInfo>>> {
        match known {
            Known::Copy(object) => self.info_of(policy, object).await.map(Some),
            Known::Remote(remote) => Ok(Some(Arc::new(remote.info.clone()))),
            Known::Absent => Ok(None),
        }
    }
}

/// Whether a copy is of what the under store has. One of another size is not, whatever its tag: an answer may have been cut short by a proxy.
fn is_copy_of(copy: &Object, remote: &RemoteObject) -> bool {
    Worker::remote_etag_of(copy).as_ref() == Some(&remote.remote_etag) && copy.size() == remote.info.size
}

/// Whether what is read under a policy stays here.
pub(crate) fn keeps_reads(policy: &PathPolicy) -> bool {
    policy.cache_reads && policy.write_mode != WriteMode::NoCache
}

/// A body cut into pages.
struct Pages {
    body: ByteStream,
    /// What has come and belongs to the next page.
    rest: Bytes,
}

impl Pages {
    /// The next page of a whole object; the last one only when the body ends well behind it, since its checksum is compared there.
    async fn expected(&mut self, version: &Version, window: ByteRange) -> Result<Bytes> {
        let page = self.next(&version.path, window.len()).await?;
        if window.end == version.size {
            self.end(&version.path).await?;
        }
        Ok(page)
    }

    /// # Errors
    /// `Unavailable` when there are more bytes; what is wrong with those that came.
    async fn end(&mut self, path: &ObjectPath) -> Result<()> {
        while self.rest.is_empty() {
            match self.body.next().await.transpose()? {
                Some(data) => self.rest = data,
                None => return Ok(()),
            }
        }
        let context = format!("the under store sent more bytes of {path} than it said");
        Err(Error::new(ErrorKind::Unavailable, context))
    }

    /// # Errors
    /// `Unavailable` when the body ends before the page does.
    async fn next(&mut self, path: &ObjectPath, length: u64) -> Result<Bytes> {
        let length = length as usize;
        let mut page = BytesMut::with_capacity(length);
        loop {
            let taken = self.rest.split_to(self.rest.len().min(length - page.len()));
            page.extend_from_slice(&taken);
            if page.len() == length {
                return Ok(page.freeze());
            }
            let Some(data) = self.body.next().await else {
                let context = format!("the under store sent {} of {length} bytes of {path}", page.len());
                return Err(Error::new(ErrorKind::Unavailable, context));
            };
            self.rest = data?;
        }
    }
}

fn broken_off() -> Error {
    Error::new(ErrorKind::Unavailable, "the answer of the under store broke off")
}
