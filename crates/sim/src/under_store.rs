//! An under store as rude as real ones are: slow, throttling, losing answers, carrying requests out late, gone for
//! long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use forebay_env::Clock;
use forebay_types::{BucketName, ByteRange, ETag, ObjectKey, ObjectPath, Tags};
use forebay_ufs::memory::{MemoryRoot, MemoryUnderStore};
use forebay_ufs::{
    BucketInfo, BucketRoot, ByteStream, Condition, Error, ErrorKind, IsOurs, ListPage, ListRequest, RemoteBody,
    RemoteObject, Result, Stored, UnderStore, Upload, UploadSource,
};
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::world::World;

/// How the under store is at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Weather {
    #[default]
    Fair,
    /// One request in four goes wrong, in any way.
    Stormy,
    /// All requests are refused.
    Gone,
    /// All requests get no answer until they time out, and nothing is done.
    Silent,
    /// Writes of some keys are refused for good, as of names that a server can't have, and other requests for them
    /// where nothing is.
    Picky,
}

/// After so long a client gives up waiting for an answer.
const TIMEOUT: Duration = Duration::from_secs(8);

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Refused(ErrorKind),
    /// Done, and the answer is lost.
    AnswerLost,
    /// Given up, and done later or never.
    Late,
    /// Bodies break off in the middle.
    Broken,
    Unheard,
}

/// A write on its way.
#[derive(Clone)]
enum Write {
    Put(ObjectKey, Upload),
    Delete(ObjectKey, Condition),
    SetTags(ObjectKey, Tags),
}

enum Done {
    Stored(Stored),
    Deleted,
    Tagged,
}

/// The buckets of one under store, shared by clones.
#[derive(Clone)]
pub(crate) struct SimRoot {
    /// The machine whose processes use this clone.
    pub(crate) machine: usize,
    root: MemoryRoot,
    pub(crate) weather: Arc<Mutex<Weather>>,
    world: Arc<World>,
    sent: Arc<Mutex<Sent>>,
}

/// One bucket.
pub(crate) struct SimUnderStore {
    root: SimRoot,
    bucket: BucketName,
}

struct Buffered(Bytes);

impl UploadSource for Buffered {
    fn stream(&self, range: ByteRange) -> ByteStream {
        let bytes = self.0.slice(range.start as usize..range.end as usize);
        stream::once(async { Ok(bytes) }).boxed()
    }
}

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "the simulated under store")
}

fn now<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("an under store in memory that is well keeps nobody waiting")
}

/// What a client waits with for the answer to a write that it has sent. When it gives up, or is killed, the write may
/// still be carried out.
struct InFlight {
    root: SimRoot,
    number: u64,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.root.give_up(self.number);
    }
}

/// Writes that have left their clients, and are not carried out yet.
#[derive(Default)]
struct Sent {
    count: u64,
    writes: BTreeMap<u64, SentWrite>,
}

struct SentWrite {
    machine: usize,
    bucket: BucketName,
    write: Write,
    /// The client gets no answer, and nothing is done before it gives up.
    is_late: bool,
}

impl SimRoot {
    pub(crate) fn new(world: Arc<World>, keeps_listings: bool) -> Self {
        let root = if keeps_listings { MemoryRoot::that_keeps_listings() } else { MemoryRoot::default() };
        Self { machine: 0, root, weather: Arc::default(), world, sent: Arc::default() }
    }

    pub(crate) fn world(&self) -> Arc<World> {
        Arc::clone(&self.world)
    }

    /// The same under store, for another machine.
    pub(crate) fn beside(&self, machine: usize) -> Self {
        Self { machine, ..self.clone() }
    }

    /// The process of the clients is stopped. What it has sent does not wait until it continues.
    pub(crate) fn stop(&self) {
        let numbers: Vec<u64> = {
            let sent = self.sent.lock();
            let is_late = |write: &SentWrite| write.is_late && write.machine == self.machine;
            sent.writes.iter().filter(|(_, write)| is_late(write)).map(|(number, _)| *number).collect()
        };
        numbers.into_iter().for_each(|number| self.give_up(number));
    }

    fn send(&self, bucket: &BucketName, write: Write, is_late: bool) -> InFlight {
        let mut sent = self.sent.lock();
        sent.count += 1;
        let number = sent.count;
        sent.writes.insert(number, SentWrite { machine: self.machine, bucket: bucket.clone(), write, is_late });
        InFlight { root: self.clone(), number }
    }

    fn give_up(&self, number: u64) {
        let sent = self.sent.lock().writes.remove(&number);
        if let Some(SentWrite { bucket, write, .. }) = sent {
            self.may_land_later(&bucket, write);
        }
    }

    /// Carries a write out, unless its client has gone away.
    fn arrive(&self, number: u64) -> Option<Result<Done>> {
        let SentWrite { bucket, write, .. } = self.sent.lock().writes.remove(&number)?;
        Some(self.apply(&bucket, write))
    }

    /// The bucket itself, if it exists, without its manners.
    pub(crate) fn memory(&self, bucket: &BucketName) -> Option<MemoryUnderStore> {
        self.root.bucket(bucket)
    }

    /// Makes a bucket before anything begins.
    pub(crate) fn begin_with(&self, bucket: &BucketName) {
        now(self.root.create(bucket)).expect("a new root has no buckets");
    }

    async fn delay(&self) {
        self.world.clock.sleep(self.latency()).await;
    }

    fn latency(&self) -> Duration {
        Duration::from_micros(500 + self.world.below(20_000))
    }

    async fn time_out(&self) {
        self.world.clock.sleep(TIMEOUT).await;
    }

    fn fate(&self, is_write: bool) -> Fate {
        let weather = if self.world.is_calm() { Weather::Fair } else { *self.weather.lock() };
        match weather {
            Weather::Fair | Weather::Picky => Fate::Answered,
            Weather::Gone => Fate::Refused(ErrorKind::Unavailable),
            Weather::Silent if is_write => Fate::Late,
            Weather::Silent => Fate::Unheard,
            Weather::Stormy if self.world.below(4) > 0 => Fate::Answered,
            Weather::Stormy if is_write => match self.world.below(6) {
                0 => Fate::Refused(ErrorKind::Throttled),
                1 => Fate::Refused(ErrorKind::Unavailable),
                2 => Fate::Refused(ErrorKind::Conflict),
                3 => Fate::AnswerLost,
                _ => Fate::Late,
            },
            Weather::Stormy => match self.world.below(4) {
                0 => Fate::Refused(ErrorKind::Throttled),
                1 => Fate::Refused(ErrorKind::Unavailable),
                2 => Fate::Broken,
                _ => Fate::Unheard,
            },
        }
    }

    /// Whether writes of this key are refused for good, until the weather changes.
    fn refuses(&self, key: &ObjectKey) -> bool {
        let is_picky = !self.world.is_calm() && *self.weather.lock() == Weather::Picky;
        is_picky && key.as_str().bytes().map(u32::from).sum::<u32>().is_multiple_of(2)
    }

    /// The tag and the tags of what stands under a key.
    pub(crate) fn held(&self, path: &ObjectPath) -> Option<(ETag, Tags)> {
        let store = self.memory(&path.bucket)?;
        let object = now(store.head(&path.key)).ok()?;
        Some((object.info.etag, now(store.tags(&path.key)).ok()?))
    }

    /// Carries a write out later, before it must be settled, or never.
    fn may_land_later(&self, bucket: &BucketName, write: Write) {
        if self.world.once_in(3) {
            return;
        }
        let millis = self.world.below(self.world.settle.as_millis() as u64);
        let (root, bucket) = (self.clone(), bucket.clone());
        self.world.clock.after(Duration::from_millis(millis), move || {
            let result = root.apply(&bucket, write);
            root.world.note(format_args!("under store: landed late: {:?}", result.err().map(|error| error.kind)));
        });
    }

    fn apply(&self, bucket: &BucketName, write: Write) -> Result<Done> {
        let store = self.memory(bucket).ok_or_else(|| error(ErrorKind::NoBucket))?;
        match write {
            Write::Put(key, upload) => {
                let (generation, condition) = (upload.generation, upload.condition.clone());
                let result = now(store.put(&key, upload));
                let failed = result.as_ref().err().map(|error| error.kind);
                self.world.note(format_args!("under store: put {key} {generation} {condition:?} {failed:?}"));
                result.map(Done::Stored)
            }
            Write::Delete(key, condition) => {
                let result = now(store.delete(&key, condition.clone()));
                let failed = result.as_ref().err().map(|error| error.kind);
                self.world.note(format_args!("under store: delete {key} {condition:?} {failed:?}"));
                result.map(|()| Done::Deleted)
            }
            Write::SetTags(key, tags) => {
                let result = now(store.set_tags(&key, &tags));
                let failed = result.as_ref().err().map(|error| error.kind);
                self.world.note(format_args!("under store: tags of {key} {tags:?} {failed:?}"));
                result.map(|()| Done::Tagged)
            }
        }
    }
}

impl SimUnderStore {
    fn store(&self) -> Result<MemoryUnderStore> {
        self.root.memory(&self.bucket).ok_or_else(|| error(ErrorKind::NoBucket))
    }

    async fn write(&self, write: Write) -> Result<Done> {
        let is_refused = match &write {
            Write::Put(key, _) => self.root.refuses(key),
            Write::Delete(key, _) | Write::SetTags(key, _) => self.cannot_have(key),
        };
        let fate = if is_refused { Fate::Refused(ErrorKind::InvalidName) } else { self.root.fate(true) };
        if let Fate::Refused(kind) = fate {
            self.root.delay().await;
            return Err(error(kind));
        }
        let in_flight = self.root.send(&self.bucket, write, fate == Fate::Late);
        if fate == Fate::Late {
            self.root.time_out().await;
            // Dropped now: it may land.
            return Err(error(ErrorKind::Ambiguous));
        }
        let (answer, answered) = oneshot::channel();
        let (root, number) = (self.root.clone(), in_flight.number);
        // Whether the process of the client runs then, or not.
        self.root.world.clock.after(self.root.latency(), move || {
            if let Some(result) = root.arrive(number) {
                drop(answer.send(result));
            }
        });
        let result = answered.await.expect("a client that waits has not given up");
        if fate == Fate::AnswerLost {
            self.root.time_out().await;
            return Err(error(ErrorKind::Ambiguous));
        }
        self.root.delay().await;
        result
    }

    /// Of a key that it refuses and has no object under it says nothing else.
    fn cannot_have(&self, key: &ObjectKey) -> bool {
        let has = |store: MemoryUnderStore| store.contents().contains_key(key.as_str());
        self.root.refuses(key) && !self.root.memory(&self.bucket).is_some_and(has)
    }

    async fn read_object(&self, key: &ObjectKey) -> Result<Fate> {
        let fate = self.read().await?;
        if self.cannot_have(key) { Err(error(ErrorKind::InvalidName)) } else { Ok(fate) }
    }

    /// The fate of a read that is answered, wholly or in part.
    async fn read(&self) -> Result<Fate> {
        let fate = self.root.fate(false);
        self.root.delay().await;
        match fate {
            Fate::Refused(kind) => Err(error(kind)),
            Fate::Unheard => {
                self.root.time_out().await;
                Err(error(ErrorKind::Unavailable))
            }
            Fate::Answered | Fate::AnswerLost | Fate::Late | Fate::Broken => Ok(fate),
        }
    }

    /// Answers take their time too.
    async fn answer<T>(&self, what: &str, result: Result<T>) -> Result<T> {
        let failed = result.as_ref().err().map(|error| error.kind);
        self.root.world.note(format_args!("under store: {what} {failed:?}"));
        self.root.delay().await;
        result
    }
}

#[async_trait]
impl UnderStore for SimUnderStore {
    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject> {
        self.read_object(key).await?;
        let result = self.store().and_then(|store| now(store.head(key)));
        self.answer(&format!("head {key}"), result).await
    }

    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody> {
        let fate = self.read_object(key).await?;
        let result = self.store().and_then(|store| now(store.get(key, range, if_match)));
        let body = self.answer(&format!("get {key} {range:?}"), result).await?;
        if fate != Fate::Broken {
            return Ok(body);
        }
        let cut = body.stream.map(|data| data.map(|data| data.slice(..data.len() / 2)));
        let broken = stream::once(async { Err(error(ErrorKind::Unavailable)) });
        Ok(RemoteBody { stream: cut.chain(broken).boxed(), ..body })
    }

    async fn put(&self, key: &ObjectKey, upload: Upload) -> Result<Stored> {
        let mut bytes = BytesMut::new();
        let mut source = upload.source.stream(ByteRange::of_size(upload.info.size));
        while let Some(data) = source.next().await {
            bytes.extend_from_slice(&data?);
        }
        let upload = Upload { source: Arc::new(Buffered(bytes.freeze())), ..upload };
        match self.write(Write::Put(key.clone(), upload)).await? {
            Done::Stored(stored) => Ok(stored),
            Done::Deleted | Done::Tagged => unreachable!("a put is neither"),
        }
    }

    async fn delete(&self, key: &ObjectKey, condition: Condition) -> Result<()> {
        self.write(Write::Delete(key.clone(), condition)).await.map(drop)
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        self.read().await?;
        let result = self.store().and_then(|store| now(store.list(request)));
        self.answer("list", result).await
    }

    fn lists_by_token(&self) -> bool {
        self.store().is_ok_and(|store| store.lists_by_token())
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.read_object(key).await?;
        let result = self.store().and_then(|store| now(store.tags(key)));
        self.answer("tags", result).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()> {
        self.write(Write::SetTags(key.clone(), tags.clone())).await.map(drop)
    }

    async fn sweep(&self, _age: Duration, _is_ours: IsOurs<'_>) -> Result<u64> {
        Ok(0)
    }

    fn label(&self) -> String {
        "simulated".to_owned()
    }
}

#[async_trait]
impl BucketRoot for SimRoot {
    async fn list(&self) -> Result<Vec<BucketInfo>> {
        self.delay().await;
        self.root.list().await
    }

    async fn create(&self, name: &BucketName) -> Result<()> {
        self.delay().await;
        self.root.create(name).await
    }

    async fn delete(&self, name: &BucketName) -> Result<()> {
        self.delay().await;
        self.root.delete(name).await
    }

    async fn open(&self, name: &BucketName) -> Result<Option<Arc<dyn UnderStore>>> {
        if let Fate::Refused(kind) = self.fate(false) {
            return Err(error(kind));
        }
        self.delay().await;
        Ok(self.memory(name).map(|_| self.assume(name)))
    }

    fn assume(&self, name: &BucketName) -> Arc<dyn UnderStore> {
        Arc::new(SimUnderStore { root: self.clone(), bucket: name.clone() })
    }

    fn label(&self) -> String {
        "simulated".to_owned()
    }
}
