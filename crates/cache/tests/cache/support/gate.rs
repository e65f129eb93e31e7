//! An under store that holds, delays, damages and counts requests on their way to another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use forebay_types::{ByteRange, ETag, Generation, ObjectInfo, ObjectKey, Tags};
use forebay_ufs::memory::MemoryUnderStore;
use forebay_ufs::{
    ByteStream, Condition, Error, ErrorKind, IsOurs, ListPage, ListRequest, RemoteBody, RemoteObject, Result, Stored,
    UnderStore, Upload, UploadSource,
};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

/// What happens to requests that change something or read bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Way {
    #[default]
    Open,
    /// Writes wait until the way is another.
    Closed,
    /// Writes get no answer and are carried out by [`Gate::land`] only.
    Late,
    /// Writes are carried out, and answered with the ETag of other bytes.
    MistellEtags,
    /// Requests for this key are refused.
    Refuse(String, ErrorKind),
    /// The next request is refused, and then the way is open.
    RefuseOnce(ErrorKind),
    /// GETs and reads of tags wait until the way is another.
    HoldReads,
    /// GETs of ranges wait until the way is another.
    HoldRanges,
    /// Reads get through, and their answers wait until the way is another; lists do not wait.
    HoldAnswers,
    /// Answers to lists wait until the way is another.
    HoldLists,
    /// Lists wait until the way is another.
    DelayLists,
    /// No connection can be made.
    Unconnected,
    /// HEADs are refused.
    RefuseHeads(ErrorKind),
    /// GETs send this many bytes and then fail.
    BreakReads(usize),
    /// GETs bring this many bytes, as if these were all.
    Shorten(usize),
    /// Every object is said to have this many bytes.
    Claim(u64),
    /// GETs send their bytes in pieces of this many.
    CutReads(usize),
    /// Writes meet a fault of ours, and panic.
    Panic,
    /// Nothing gets through any more.
    Cut,
}

/// A write that its sender has given up.
enum Straggler {
    Put(ObjectKey, Upload),
    Delete(ObjectKey, Condition),
}

#[derive(Default)]
struct Seen {
    /// Of the last PUT.
    source: Option<Arc<dyn UploadSource>>,
    stragglers: VecDeque<Straggler>,
    gets: Vec<(String, Option<ByteRange>)>,
    heads: u64,
    lists: u64,
    puts: u64,
    waiting: usize,
    refusals: u64,
    after_put: Option<Box<dyn FnOnce() + Send>>,
    /// Ends the wait of the next answer to a HEAD.
    held_head: Option<oneshot::Receiver<()>>,
}

/// A request that waits at the gate, until it passes or is given up.
struct Waiting<'a>(&'a Mutex<Seen>);

impl<'a> Waiting<'a> {
    fn new(seen: &'a Mutex<Seen>) -> Self {
        seen.lock().waiting += 1;
        Self(seen)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// Clones share everything.
#[derive(Clone)]
pub(crate) struct Gate {
    inner: MemoryUnderStore,
    way: Arc<watch::Sender<Way>>,
    seen: Arc<Mutex<Seen>>,
}

struct Buffered(Bytes);

impl UploadSource for Buffered {
    fn stream(&self, range: ByteRange) -> ByteStream {
        let bytes = self.0.slice(range.start as usize..range.end as usize);
        stream::once(async { Ok(bytes) }).boxed()
    }
}

impl Gate {
    pub(crate) fn new(inner: MemoryUnderStore) -> Self {
        Self { inner, way: Arc::new(watch::Sender::new(Way::Open)), seen: Arc::default() }
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    /// What a connection reads of the body of the last PUT, which it does in a task of its own.
    pub(crate) async fn read_body(&self, bytes: u64) -> Result<Bytes> {
        let source = self.seen.lock().source.clone().expect("a PUT has arrived");
        let pieces: Vec<Bytes> = source.stream(ByteRange::of_size(bytes)).try_collect().await?;
        Ok(pieces.concat().into())
    }

    /// GETs that arrived: keys and ranges.
    pub(crate) fn gets(&self) -> Vec<(String, Option<ByteRange>)> {
        self.seen.lock().gets.clone()
    }

    pub(crate) fn heads(&self) -> u64 {
        self.seen.lock().heads
    }

    pub(crate) fn lists(&self) -> u64 {
        self.seen.lock().lists
    }

    /// Uploads that were begun.
    pub(crate) fn puts(&self) -> u64 {
        self.seen.lock().puts
    }

    /// Writes without an answer that have not been carried out.
    pub(crate) fn stragglers(&self) -> usize {
        self.seen.lock().stragglers.len()
    }

    /// Requests that wait at the gate.
    pub(crate) fn waiting(&self) -> usize {
        self.seen.lock().waiting
    }

    /// Requests that were refused.
    pub(crate) fn refusals(&self) -> u64 {
        self.seen.lock().refusals
    }

    /// Does this when the next PUT is done, before anybody hears its answer.
    pub(crate) fn after_next_put(&self, then: impl FnOnce() + Send + 'static) {
        self.seen.lock().after_put = Some(Box::new(then));
    }

    /// Holds the next answer to a HEAD, and no other, until the result is dropped.
    pub(crate) fn hold_next_head(&self) -> oneshot::Sender<()> {
        let (release, released) = oneshot::channel();
        self.seen.lock().held_head = Some(released);
        release
    }

    /// Carries out the oldest write that got no answer, and says how that went.
    pub(crate) async fn land(&self) -> Result<()> {
        let straggler = self.seen.lock().stragglers.pop_front().expect("a write is on its way");
        match straggler {
            Straggler::Put(key, upload) => self.inner.put(&key, upload).await.map(|_| ()),
            Straggler::Delete(key, condition) => self.inner.delete(&key, condition).await,
        }
    }

    fn refused(&self, key: &ObjectKey) -> Result<()> {
        if *self.way.borrow() == Way::Unconnected {
            self.seen.lock().refusals += 1;
            return Err(Error::unsent("the gate is out of reach"));
        }
        let kind = match &*self.way.borrow() {
            Way::Refuse(refused, kind) if refused == key.as_str() => *kind,
            Way::RefuseOnce(kind) => *kind,
            Way::Cut => ErrorKind::Unavailable,
            _ => return Ok(()),
        };
        self.way.send_if_modified(|way| {
            let was_once = matches!(way, Way::RefuseOnce(_));
            if was_once {
                *way = Way::Open;
            }
            was_once
        });
        self.seen.lock().refusals += 1;
        Err(refusal(kind))
    }

    async fn pass(&self, held: &Way) {
        let mut way = self.way.subscribe();
        if *way.borrow_and_update() != *held {
            return;
        }
        let _waiting = Waiting::new(&self.seen);
        // The sender lives in the gate.
        let _ = way.wait_for(|way| way != held).await;
    }

    fn described(&self, mut object: RemoteObject) -> RemoteObject {
        if let Way::Claim(size) = *self.way.borrow() {
            object.info.size = size;
        }
        object
    }

    fn is_late(&self) -> bool {
        *self.way.borrow() == Way::Late
    }
}

/// The body in pieces of `length` bytes.
fn in_pieces(body: ByteStream, length: usize) -> ByteStream {
    let cut = move |data: Result<Bytes>| match data {
        Ok(data) => {
            let piece = |start: usize| Ok(data.slice(start..data.len().min(start + length)));
            (0..data.len()).step_by(length).map(piece).collect()
        }
        Err(error) => vec![Err(error)],
    };
    body.flat_map(move |data| stream::iter(cut(data))).boxed()
}

fn refusal(kind: ErrorKind) -> Error {
    Error::new(kind, "the gate refuses")
}

#[async_trait]
impl UnderStore for Gate {
    fn has_room_for_stamp(&self, key: &ObjectKey, generation: Generation, info: &ObjectInfo) -> bool {
        self.inner.has_room_for_stamp(key, generation, info)
    }

    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject> {
        self.seen.lock().heads += 1;
        self.refused(key)?;
        if let Way::RefuseHeads(kind) = *self.way.borrow() {
            return Err(refusal(kind));
        }
        let answer = self.inner.head(key).await;
        let held = self.seen.lock().held_head.take();
        if let Some(released) = held {
            let _waiting = Waiting::new(&self.seen);
            // The sender is dropped.
            let _ = released.await;
        }
        self.pass(&Way::HoldAnswers).await;
        Ok(self.described(answer?))
    }

    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody> {
        self.seen.lock().gets.push((key.as_str().to_owned(), range));
        self.pass(&Way::HoldReads).await;
        if range.is_some() {
            self.pass(&Way::HoldRanges).await;
        }
        self.refused(key)?;
        let answer = self.inner.get(key, range, if_match).await;
        self.pass(&Way::HoldAnswers).await;
        let mut body = answer?;
        if let Way::Shorten(length) = *self.way.borrow() {
            body.object.info.size = length as u64;
            body.range = ByteRange::of_size(length as u64);
        }
        let stream = match *self.way.borrow() {
            Way::Shorten(length) => body.stream.map(move |data| data.map(|data| data.slice(..length))).boxed(),
            Way::BreakReads(length) => {
                let cut = body.stream.map(move |data| data.map(|data| data.slice(..length.min(data.len()))));
                let broken = stream::once(async { Err(refusal(ErrorKind::Unavailable)) });
                cut.chain(broken).boxed()
            }
            Way::CutReads(length) => in_pieces(body.stream, length),
            _ => body.stream,
        };
        Ok(RemoteBody { stream, object: self.described(body.object), range: body.range })
    }

    async fn put(&self, key: &ObjectKey, upload: Upload) -> Result<Stored> {
        {
            let mut seen = self.seen.lock();
            seen.puts += 1;
            seen.source = Some(Arc::clone(&upload.source));
        }
        self.pass(&Way::Closed).await;
        assert!(*self.way.borrow() != Way::Panic, "a fault of ours, as the test wants it");
        self.refused(key)?;
        if !self.is_late() {
            let stored = self.inner.put(key, upload).await;
            let then = self.seen.lock().after_put.take();
            if let Some(then) = then {
                then();
            }
            return match *self.way.borrow() {
                Way::MistellEtags => stored.map(|_| Stored { remote_etag: ETag::from_md5([0; 16]) }),
                _ => stored,
            };
        }
        let mut bytes = BytesMut::new();
        let mut source = upload.source.stream(ByteRange::of_size(upload.info.size));
        while let Some(data) = source.next().await {
            bytes.extend_from_slice(&data?);
        }
        let upload = Upload { source: Arc::new(Buffered(bytes.freeze())), ..upload };
        self.seen.lock().stragglers.push_back(Straggler::Put(key.clone(), upload));
        Err(refusal(ErrorKind::Ambiguous))
    }

    async fn delete(&self, key: &ObjectKey, condition: Condition) -> Result<()> {
        self.pass(&Way::Closed).await;
        self.refused(key)?;
        if !self.is_late() {
            return self.inner.delete(key, condition).await;
        }
        self.seen.lock().stragglers.push_back(Straggler::Delete(key.clone(), condition));
        Err(refusal(ErrorKind::Ambiguous))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        self.seen.lock().lists += 1;
        self.pass(&Way::DelayLists).await;
        let answer = self.inner.list(request).await;
        self.pass(&Way::HoldLists).await;
        answer
    }

    fn lists_by_token(&self) -> bool {
        self.inner.lists_by_token()
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.pass(&Way::HoldReads).await;
        let answer = self.inner.tags(key).await;
        self.pass(&Way::HoldAnswers).await;
        answer
    }

    async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()> {
        self.pass(&Way::Closed).await;
        self.refused(key)?;
        if self.is_late() {
            return Err(refusal(ErrorKind::Ambiguous));
        }
        self.inner.set_tags(key, tags).await
    }

    async fn sweep(&self, age: Duration, is_ours: IsOurs<'_>) -> Result<u64> {
        self.inner.sweep(age, is_ours).await
    }

    fn label(&self) -> String {
        "gate".to_owned()
    }
}
