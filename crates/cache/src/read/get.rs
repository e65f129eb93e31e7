//! Reads.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_store::{ErrorKind as StoreErrorKind, Object, Piece};
use forebay_types::{ByteRange, ETag, Generation, ObjectInfo, ObjectPath, PathPolicy, StorageState};
use forebay_ufs::RemoteObject;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};

use crate::metrics::Tier;
use crate::read::first_looks::{FirstLook, Look};
use crate::read::memory_tier::MemoryObject;
use crate::read::pages::pages_of;
use crate::read::remote::{Known, Purpose, Version, WholeBody, keeps_reads};
use crate::worker::{Located, Worker, storage_state};
use crate::{ByteStream, Error, ErrorKind, GetObject, Mount, ObjectBody, ObjectHead, RangeRequest, Result};

/// A version that changes in the under store while its first page is fetched is looked up anew this often.
const CHANGED_TRIES: usize = 3;

/// Reads of the local store under way ahead of a client.
const LOCAL_READ_AHEAD: usize = 2;

/// A version to be served.
struct Found {
    info: Arc<ObjectInfo>,
    state: StorageState,
    cached_bytes: u64,
    /// Whether the under store was asked what it has.
    asked: bool,
    bytes: Source,
    /// The whole object as the under store sends it, when it was asked for what it has and for the bytes at once; not where these go into
    /// pages of a copy.
    body: Option<WholeBody>,
}

impl Found {
    /// Whether serving `range` takes no request to the under store: it was not asked, and every byte is here.
    fn avoids_request(&self, range: ByteRange) -> bool {
        let has_all = match &self.bytes {
            Source::Here(_) => true,
            Source::Copy(..) if self.cached_bytes == self.info.size => true,
            Source::Copy(object, _) => object.pieces(range).iter().all(|piece| matches!(piece, Piece::Cached(_))),
            Source::Remote(..) => false,
        };
        has_all && !self.asked
    }

    /// As in [`ObjectHead`].
    fn generation(&self) -> Option<Generation> {
        match &self.bytes {
            Source::Here(object) | Source::Copy(object, _) => Some(object.generation()),
            Source::Remote(remote, _) => remote.stamp.as_ref().map(|stamp| stamp.generation),
        }
    }

    /// What the under store calls this version, if it has it.
    fn remote_etag(&self) -> Option<&ETag> {
        match &self.bytes {
            Source::Here(_) => None,
            Source::Copy(_, version) => Some(&version.remote_etag),
            Source::Remote(remote, _) => Some(&remote.remote_etag),
        }
    }
}

/// What a reader wants of an object that is not known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// All of it, whatever version it is: so its bytes may come with the answer to what it is.
    Whole,
    /// First what it is: the rest depends on that.
    Description,
}

impl Wanted {
    fn of(request: &GetObject) -> Self {
        let is_whole = request.range.is_none() && request.part_number.is_none() && request.conditions.is_empty();
        if is_whole { Self::Whole } else { Self::Description }
    }
}

/// Where its bytes are.
enum Source {
    /// Dirty or transient: all here, and nowhere else.
    Here(Object),
    /// Clean: here as far as they go, the rest in the under store.
    Copy(Object, Box<Version>),
    /// Only in the under store.
    Remote(Box<RemoteObject>, Mount),
}

impl Worker {
    /// The main flow of a read.
    pub(crate) async fn get(self: &Arc<Self>, request: GetObject) -> Result<ObjectBody> {
        let policy = self.policies.resolve(&request.path);
        let mut tries = 0;
        loop {
            let found = self.find(&request.path, &policy, Wanted::of(&request)).await?;
            request.conditions.check_read(&found.info, found.remote_etag())?;
            let head = head_of(&found, &request)?;
            let range = head.range;
            let avoids_request = found.avoids_request(range);
            match self.open(&request.path, &policy, found, range).await {
                Ok(stream) => {
                    if avoids_request {
                        self.metrics.avoided_gets.inc();
                    }
                    return Ok(ObjectBody { head, stream });
                }
                Err(error) if error.kind == ErrorKind::PreconditionFailed && tries < CHANGED_TRIES => tries += 1,
                Err(error) if error.kind == ErrorKind::PreconditionFailed => {
                    return Err(Error::new(ErrorKind::Unavailable, "the object keeps changing in the under store"));
                }
                Err(error) => return Err(error.of_read()),
            }
        }
    }

    pub(crate) async fn head(self: &Arc<Self>, request: GetObject) -> Result<ObjectHead> {
        let policy = self.policies.resolve(&request.path);
        let found = self.find(&request.path, &policy, Wanted::Description).await?;
        if !found.asked {
            self.metrics.avoided_heads.inc();
        }
        request.conditions.check_read(&found.info, found.remote_etag())?;
        head_of(&found, &request)
    }

    /// # Errors
    /// `NotFound`, `NoSuchBucket`, and whatever keeps the present version from being told.
    async fn find(self: &Arc<Self>, path: &ObjectPath, policy: &PathPolicy, wanted: Wanted) -> Result<Found> {
        self.find_or_refuse(path, policy, wanted).await.map_err(Error::of_read)
    }

    async fn find_or_refuse(self: &Arc<Self>, path: &ObjectPath, policy: &PathPolicy, wanted: Wanted) -> Result<Found> {
        let (mut may_wait, mut look) = (keeps_reads(policy), None);
        loop {
            let copy = match self.locate(path).await? {
                Located::Here { record, object } => {
                    let info = self.info_of(policy, &object).await?;
                    let (state, cached_bytes) = (storage_state(record.state), object.size());
                    return Ok(Found {
                        info,
                        state,
                        cached_bytes,
                        asked: false,
                        bytes: Source::Here(object),
                        body: None,
                    });
                }
                Located::Deleted => return Err(not_found(path)),
                Located::Elsewhere { copy } => copy,
            };
            if copy.is_some() || look.is_some() || !may_wait {
                let found = self.find_elsewhere(path, policy, wanted, copy).await;
                if let Some(look) = look.take() {
                    FirstLook::end(look);
                }
                let asked = found.as_ref().map_or(true, |found| found.asked);
                if asked && self.is_here(path).await? {
                    continue;
                }
                return found;
            }
            match self.first_looks.begin(path) {
                // Another may have ended since `locate`.
                Look::Mine(mine) => look = Some(mine),
                // Without a copy afterwards, everybody asks for himself: all at once, not one after the other.
                Look::Theirs(ended) => may_wait = ended.await.is_err(),
            }
        }
    }

    async fn find_elsewhere(
        self: &Arc<Self>,
        path: &ObjectPath,
        policy: &PathPolicy,
        wanted: Wanted,
        copy: Option<Object>,
    ) -> Result<Found> {
        let mount = self.buckets.mount(&path.bucket).await?;
        if copy.is_none() && wanted == Wanted::Whole {
            let (known, body) = self.revalidate_whole(path, policy, &mount).await?;
            let info = self.known_info(policy, &known).await?;
            let found = self.found_remote(path, policy, mount, known, info, true)?;
            // Now, so that who waits for this look finds the pages on their way.
            let body = match (&found.bytes, body) {
                (Source::Copy(_, version), Some(WholeBody::OnItsWay(body))) => {
                    self.expect_pages(version, body);
                    None
                }
                (_, body) => body,
            };
            return Ok(Found { body, ..found });
        }
        let (known, asked) = match copy {
            Some(object) if self.is_believed(policy, &object) => (Known::Copy(object), false),
            copy => (self.revalidate(path, policy, &mount, copy, Purpose::Read).await?, true),
        };
        match self.known_info(policy, &known).await {
            Ok(info) => self.found_remote(path, policy, mount, known, info, asked),
            // The store drops a copy whose description is damaged, or may have let it go; the under store has another.
            Err(error) if matches!(error.kind, ErrorKind::Corrupt | ErrorKind::SlowDown) => {
                let known = self.revalidate(path, policy, &mount, None, Purpose::Read).await?;
                let info = self.known_info(policy, &known).await?;
                self.found_remote(path, policy, mount, known, info, true)
            }
            Err(error) => Err(error),
        }
    }

    fn found_remote(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: Mount,
        known: Known,
        info: Option<Arc<ObjectInfo>>,
        asked: bool,
    ) -> Result<Found> {
        let Some(info) = info else { return Err(not_found(path)) };
        let state = StorageState::Clean;
        match known {
            Known::Absent => Err(not_found(path)),
            Known::Remote(remote) => {
                Ok(Found { info, state, cached_bytes: 0, asked, bytes: Source::Remote(remote, mount), body: None })
            }
            Known::Copy(object) => {
                let Some(remote_etag) = Self::remote_etag_of(&object) else {
                    return Err(Error::new(ErrorKind::Internal, format!("a copy of {path} has no tag")));
                };
                let under_store = mount.foreground;
                let (generation, size) = (object.generation(), object.size());
                let (path, etag, opened) = (path.clone(), info.etag.clone(), object.clone());
                let rule = Arc::clone(&policy.rule);
                let version = Version { path, rule, opened, generation, size, etag, remote_etag, under_store };
                Ok(Found {
                    info,
                    state,
                    cached_bytes: object.cached_bytes(),
                    asked,
                    bytes: Source::Copy(object, Box::new(version)),
                    body: None,
                })
            }
        }
    }

    /// Opens the bytes; the first of them are at hand when this returns, so that trouble shows before a status is sent.
    async fn open(
        self: &Arc<Self>,
        path: &ObjectPath,
        policy: &PathPolicy,
        found: Found,
        range: ByteRange,
    ) -> Result<ByteStream> {
        if range.is_empty() {
            return Ok(stream::empty().boxed());
        }
        let generation = match (&found.bytes, found.body) {
            (_, Some(WholeBody::Here(data))) => {
                self.metrics.read(Tier::under_store, &path.bucket, &policy.rule, range.len());
                return Ok(once(data));
            }
            (Source::Here(object) | Source::Copy(object, _), _) => object.generation(),
            (Source::Remote(remote, mount), None) => {
                return self.open_remote(path, policy, remote, mount, range).await;
            }
            (Source::Remote(..), Some(WholeBody::OnItsWay(body))) => {
                return Ok(self.pass_on(path, policy, range, body));
            }
        };
        let size = found.info.size;
        if self.memory.takes(size)
            && let Some(room) = self.read_ahead.room(size)
        {
            let data = match self.memory.get(policy, generation).and_then(|object| object.data) {
                Some(data) => {
                    self.metrics.read(Tier::memory, &path.bucket, &policy.rule, range.len());
                    data
                }
                None => {
                    let whole = self.stream(path, policy, found.bytes, &found.info.etag, ByteRange::of_size(size));
                    let data = collect(whole, size as usize).await?;
                    self.memory.insert(policy, generation, MemoryObject::new(found.info, Some(data.clone())));
                    data
                }
            };
            return Ok(once(room.hold(data.slice(range.start as usize..range.end as usize))));
        }
        first_ready(self.stream(path, policy, found.bytes, &found.info.etag, range)).await
    }

    fn stream(
        self: &Arc<Self>,
        path: &ObjectPath,
        policy: &PathPolicy,
        source: Source,
        etag: &ETag,
        range: ByteRange,
    ) -> ByteStream {
        match source {
            Source::Here(object) => self.stream_local(path, policy, object, etag, range),
            Source::Copy(_, version) => {
                self.follow_reader(&version, range);
                self.stream_pages(*version, range)
            }
            Source::Remote(..) => stream::empty().boxed(),
        }
    }

    fn stream_local(
        self: &Arc<Self>,
        path: &ObjectPath,
        policy: &PathPolicy,
        object: Object,
        etag: &ETag,
        range: ByteRange,
    ) -> ByteStream {
        self.metrics.read(Tier::disk, &path.bucket, &policy.rule, range.len());
        let pieces = object.pieces(range);
        let largest = pieces.iter().map(|piece| piece.range().len()).max().unwrap_or(0);
        let share = self.read_ahead.share(range.len(), LOCAL_READ_AHEAD, largest);
        let at_once = share.pieces();
        let cut = move |piece: Piece| {
            let is_here = matches!(piece, Piece::Cached(_));
            stream::iter(share.cut(piece.range()).map(move |range| (is_here, range)))
        };
        let (worker, wanted) = (Arc::clone(self), Arc::new((path.clone(), etag.clone())));
        let read = move |(is_here, range)| {
            let (object, worker, wanted) = (object.clone(), Arc::clone(&worker), Arc::clone(&wanted));
            async move {
                match is_here {
                    true => match object.read(range).await {
                        Err(error) if error.kind == StoreErrorKind::Gone => {
                            worker.read_again(wanted, range, error).await
                        }
                        read => read.map_err(Error::from),
                    },
                    false => Err(Error::new(ErrorKind::Corrupt, "bytes of the only copy are missing")),
                }
            }
        };
        stream::iter(pieces).flat_map(cut).map(read).buffered(at_once).boxed()
    }

    /// What a slow reader wants of an object that has left the store since: the under store may have the same bytes.
    fn read_again(
        self: Arc<Self>,
        version: Arc<(ObjectPath, ETag)>,
        range: ByteRange,
        gone: forebay_store::Error,
    ) -> BoxFuture<'static, Result<Bytes>> {
        let read = async move {
            let (path, etag) = &*version;
            let policy = self.policies.resolve(path);
            let found = match self.find(path, &policy, Wanted::Description).await {
                Ok(found) if found.info.etag == *etag => found,
                Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
                Ok(_) | Err(_) => return Err(gone.into()),
            };
            let body = self.open(path, &policy, found, range).await?;
            let read = collect(body, range.len() as usize).await?;
            if read.len() as u64 == range.len() { Ok(read) } else { Err(gone.into()) }
        };
        read.boxed()
    }

    fn stream_pages(self: &Arc<Self>, version: Version, range: ByteRange) -> ByteStream {
        let worker = Arc::clone(self);
        let page_size = self.settings.page_size.0;
        let ahead = match self.has_all(&version, range) {
            true => LOCAL_READ_AHEAD,
            false => 1 + self.settings.read_ahead_pages as usize,
        };
        let share = self.read_ahead.share(range.len(), ahead, page_size);
        let at_once = share.pieces();
        let pages = pages_of(range, page_size).flat_map(move |page| share.cut(page));
        let read = move |wanted| Arc::clone(&worker).read_page(version.clone(), wanted);
        let unpack = |page: Result<Vec<Bytes>>| match page {
            Ok(chunks) => stream::iter(chunks.into_iter().map(Ok).collect::<Vec<_>>()),
            Err(error) => stream::iter(vec![Err(error)]),
        };
        stream::iter(pages).map(read).buffered(at_once).flat_map(unpack).boxed()
    }

    async fn open_remote(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        remote: &RemoteObject,
        mount: &Mount,
        range: ByteRange,
    ) -> Result<ByteStream> {
        let body = mount.foreground.get(&path.key, Some(range), Some(&remote.remote_etag)).await?;
        body.object.must_be(remote.info.size, &remote.info.etag, &remote.remote_etag)?;
        Ok(self.pass_on(path, policy, range, body.stream))
    }

    /// Bytes of the under store that are not kept.
    fn pass_on(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        range: ByteRange,
        body: forebay_ufs::ByteStream,
    ) -> ByteStream {
        self.metrics.read(Tier::under_store, &path.bucket, &policy.rule, range.len());
        body.map(|data| data.map_err(Error::from)).boxed()
    }
}

fn once(data: Bytes) -> ByteStream {
    stream::once(async { Ok(data) }).boxed()
}

async fn collect(mut stream: ByteStream, size: usize) -> Result<Bytes> {
    let Some(first) = stream.next().await.transpose()? else { return Ok(Bytes::new()) };
    if first.len() == size {
        return Ok(first);
    }
    let mut data = BytesMut::with_capacity(size);
    data.extend_from_slice(&first);
    while let Some(next) = stream.next().await {
        data.extend_from_slice(&next?);
    }
    Ok(data.freeze())
}

/// Waits for the first bytes, and fails instead of beginning a body that can't go on.
async fn first_ready(mut body: ByteStream) -> Result<ByteStream> {
    match body.next().await {
        None => Ok(stream::empty().boxed()),
        Some(Ok(first)) => Ok(once(first).chain(body).boxed()),
        Some(Err(error)) => Err(error),
    }
}

/// # Errors
/// As [`requested_range`].
fn head_of(found: &Found, request: &GetObject) -> Result<ObjectHead> {
    let info = Arc::clone(&found.info);
    let asks = request.range.is_some() || request.part_number.is_some();
    let is_partial = asks && request.conditions.allow_range(&info, found.remote_etag());
    let range = if is_partial { requested_range(request, &info)? } else { ByteRange::of_size(info.size) };
    let generation = found.generation();
    Ok(ObjectHead { info, state: found.state, cached_bytes: found.cached_bytes, range, is_partial, generation })
}

fn not_found(path: &ObjectPath) -> Error {
    Error::new(ErrorKind::NotFound, format!("{path} does not exist"))
}

/// # Errors
/// `InvalidRange` when the range lies behind the object, `InvalidPartNumber` when it has no such part.
fn requested_range(request: &GetObject, info: &ObjectInfo) -> Result<ByteRange> {
    let outside = || Error::about(ErrorKind::InvalidRange, "the range lies outside of the object", info);
    match (request.range, request.part_number) {
        (None, None) => Ok(ByteRange::of_size(info.size)),
        (Some(RangeRequest::From { first, last }), _) => {
            let end = last.map_or(info.size, |last| last.saturating_add(1).min(info.size));
            if first < end { Ok(ByteRange::new(first, end)) } else { Err(outside()) }
        }
        (Some(RangeRequest::Suffix { length }), _) if length == 0 || info.size == 0 => Err(outside()),
        (Some(RangeRequest::Suffix { length }), _) => Ok(ByteRange::new(info.size.saturating_sub(length), info.size)),
        (None, Some(number)) => part_range(info, number)
            .ok_or_else(|| Error::about(ErrorKind::InvalidPartNumber, "the object has no such part", info)),
    }
}

/// An object that was put in one piece is its own part 1.
fn part_range(info: &ObjectInfo, number: u32) -> Option<ByteRange> {
    if info.parts.is_empty() {
        return (number == 1).then(|| ByteRange::of_size(info.size));
    }
    let index = info.parts.iter().position(|part| part.number == number)?;
    let start: u64 = info.parts[..index].iter().map(|part| part.size).sum();
    Some(ByteRange::new(start, start + info.parts[index].size))
}

#[cfg(test)]
mod tests {
    use forebay_types::{Checksums, ETag, PartInfo};

    use super::*;
    use crate::Conditions;

    fn range(size: u64, range: Option<RangeRequest>, part_number: Option<u32>) -> Option<(u64, u64)> {
        let mut info = ObjectInfo::new(size, ETag::new("e"), 0);
        info.parts =
            [(1, 6), (3, 4)].map(|(number, size)| PartInfo { number, size, checksums: Checksums::none() }).into();
        let path = ObjectPath::parse("bucket", "key").unwrap();
        let request = GetObject { path, range, part_number, conditions: Conditions::default() };
        requested_range(&request, &info).ok().map(|range| (range.start, range.end))
    }

    #[test]
    fn ranges_are_cut_to_the_object_as_rfc_9110_says() {
        let from = |first, last| Some(RangeRequest::From { first, last });
        let suffix = |length| Some(RangeRequest::Suffix { length });
        assert_eq!(range(10, None, None), Some((0, 10)));
        assert_eq!(range(10, from(2, Some(4)), None), Some((2, 5)));
        assert_eq!(range(10, from(2, None), None), Some((2, 10)));
        assert_eq!(range(10, from(2, Some(u64::MAX)), None), Some((2, 10)));
        assert_eq!(range(10, from(10, None), None), None);
        assert_eq!(range(10, from(5, Some(4)), None), None);
        assert_eq!(range(10, suffix(3), None), Some((7, 10)));
        assert_eq!(range(10, suffix(30), None), Some((0, 10)));
        assert_eq!(range(10, suffix(0), None), None);
        assert_eq!(range(0, suffix(3), None), None);
        assert_eq!(range(10, None, Some(1)), Some((0, 6)));
        assert_eq!(range(10, None, Some(3)), Some((6, 10)));
        assert_eq!(range(10, None, Some(2)), None);
    }
}
