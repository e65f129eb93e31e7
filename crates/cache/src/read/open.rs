//! The bytes of a version: from memory, from disk, or from the under store.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_store::{ErrorKind as StoreErrorKind, Object, Piece};
use forebay_types::{ByteRange, ETag, Generation, ObjectInfo, ObjectPath, PathPolicy};
use forebay_ufs::{RemoteObject, UploadSource};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};

use crate::metrics::Tier;
use crate::persist::StoreSource;
use crate::read::lookup::{BytesAt, Lookup, Wanted};
use crate::read::memory_tier::MemoryObject;
use crate::read::pages::pages_of;
use crate::read::remote::{Version, WholeBody};
use crate::worker::Worker;
use crate::{ByteStream, Error, ErrorKind, Mount, Result};

/// Reads of the local store that are in flight ahead of a client.
const LOCAL_READ_AHEAD: usize = 2;

impl Worker {
    /// Opens the bytes. The first of them are available when this returns, so that an error shows before the status is
    /// sent.
    pub(crate) async fn open(
        self: &Arc<Self>,
        path: &ObjectPath,
        policy: &PathPolicy,
        found: Lookup,
        range: ByteRange,
    ) -> Result<ByteStream> {
        if range.is_empty() {
            return Ok(stream::empty().boxed());
        }
        let Lookup { info, bytes, .. } = found;
        match bytes {
            BytesAt::Local { object, .. } => {
                let generation = object.generation();
                let read = |range| self.stream_local(path, policy, object, &info.etag, range);
                self.through_memory(path, policy, &info, generation, range, read).await
            }
            // What is missing is not kept, in memory neither. Pages that were fetched ahead of the reader would be
            // fetched twice.
            BytesAt::Cached { version, whole: None } if !version.is_kept && !version.is_whole() => {
                // Boxed: it would make the future of every read larger.
                self.open_partial(path, policy, *version, range).boxed().await
            }
            BytesAt::Cached { version, whole: None } => {
                let generation = version.generation;
                let read = |range| {
                    self.follow_reader(&version, range);
                    self.stream_pages(*version, range)
                };
                self.through_memory(path, policy, &info, generation, range, read).await
            }
            BytesAt::Cached { whole: Some(data), .. } | BytesAt::Remote { whole: Some(WholeBody::Here(data)), .. } => {
                self.metrics.read(Tier::under_store, &path.bucket, &policy.rule, range.len());
                Ok(once(data))
            }
            BytesAt::Remote { whole: Some(WholeBody::OnItsWay(body)), .. } => {
                Ok(self.pass_on(path, policy, range, body))
            }
            BytesAt::Leased { data, .. } => {
                self.metrics.read(Tier::memory, &path.bucket, &policy.rule, range.len());
                let data = data.slice(range.start as usize..range.end as usize);
                Ok(once(match self.read_ahead.room(info.size) {
                    Some(room) => room.hold(data),
                    None => data,
                }))
            }
            BytesAt::Remote { object, mount, whole: None } => {
                self.open_remote(path, policy, &object, &mount, range).await
            }
        }
    }

    /// Reads through the memory tier, which holds small objects whole. Other objects are read with `read`.
    async fn through_memory(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        info: &Arc<ObjectInfo>,
        generation: Generation,
        range: ByteRange,
        read: impl FnOnce(ByteRange) -> ByteStream,
    ) -> Result<ByteStream> {
        let size = info.size;
        let room = if self.memory.takes(size) { self.read_ahead.room(size) } else { None };
        let Some(room) = room else { return first_ready(read(range)).await };
        let data = match self.memory.get(policy, generation).and_then(|object| object.data) {
            Some(data) => {
                self.metrics.read(Tier::memory, &path.bucket, &policy.rule, range.len());
                data
            }
            None => {
                let data = collect(read(ByteRange::of_size(size)), size as usize).await?;
                self.memory.insert(policy, generation, MemoryObject::new(Arc::clone(info), Some(data.clone())));
                data
            }
        };
        Ok(once(room.hold(data.slice(range.start as usize..range.end as usize))))
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
                        Err(error) if error.kind == StoreErrorKind::Corrupt => {
                            worker.read_copy(&wanted.0, &object, range, error).boxed().await
                        }
                        read => read.map_err(Error::from),
                    },
                    false => Err(Error::new(ErrorKind::Corrupt, "bytes of the only copy are missing")),
                }
            }
        };
        stream::iter(pieces).flat_map(cut).map(read).buffered(at_once).boxed()
    }

    /// Continues a slow read of an object that has left the store since. The under store may have the same bytes.
    fn read_again(
        self: Arc<Self>,
        version: Arc<(ObjectPath, ETag)>,
        range: ByteRange,
        gone: forebay_store::Error,
    ) -> BoxFuture<'static, Result<Bytes>> {
        let read = async move {
            let (path, etag) = &*version;
            let policy = self.policies.resolve(path);
            let found = match self.lookup(path, &policy, Wanted::description(true)).await {
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

    /// Reads damaged bytes in the copy of another worker, which takes the place of the damaged object.
    async fn read_copy(
        &self,
        path: &ObjectPath,
        damaged: &Object,
        range: ByteRange,
        error: forebay_store::Error,
    ) -> Result<Bytes> {
        let Some(object) = self.repaired(path, damaged).await? else { return Err(error.into()) };
        let bytes = StoreSource::new(object).stream(range).map(|data| data.map_err(Error::from)).boxed();
        collect(bytes, range.len() as usize).await
    }

    /// Opens a copy that lacks bytes and keeps no more of them. If some of the range are missing, all of it comes in
    /// one answer of the under store, which takes no memory for pages.
    async fn open_partial(
        self: &Arc<Self>,
        path: &ObjectPath,
        policy: &PathPolicy,
        version: Version,
        range: ByteRange,
    ) -> Result<ByteStream> {
        if self.has_all(&version, range) {
            return first_ready(self.stream_pages(version, range)).await;
        }
        let body = self.ask_for_bytes(&version, range).await?;
        Ok(self.pass_on(path, policy, range, body))
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
        let cut = move |page: ByteRange| share.cut(page).map(move |piece| (piece, piece.start > page.start));
        let pages = pages_of(range, page_size).flat_map(cut);
        let read = move |(wanted, is_rest)| Arc::clone(&worker).read_page(version.clone(), wanted, is_rest);
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

    /// Passes on bytes of the under store that the cache does not keep.
    fn pass_on(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        range: ByteRange,
        body: forebay_ufs::ByteStream,
    ) -> ByteStream {
        self.metrics.read(Tier::under_store, &path.bucket, &policy.rule, range.len());
        let passed_on = self.read_ahead.passed_on(range.len());
        let pass = move |data: forebay_ufs::Result<Bytes>| {
            // It belongs to the stream, and ends with it.
            let _ = &passed_on;
            data.map_err(Error::from)
        };
        body.map(pass).boxed()
    }
}

fn once(data: Bytes) -> ByteStream {
    stream::once(async { Ok(data) }).boxed()
}

pub(crate) async fn collect(mut stream: ByteStream, size: usize) -> Result<Bytes> {
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

/// Waits for the first bytes, so that a body that cannot continue fails before it begins.
async fn first_ready(mut body: ByteStream) -> Result<ByteStream> {
    match body.next().await {
        None => Ok(stream::empty().boxed()),
        Some(Ok(first)) => Ok(once(first).chain(body).boxed()),
        Some(Err(error)) => Err(error),
    }
}
