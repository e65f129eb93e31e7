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
    BucketInfo, BucketRoot, ByteStream, Condition, Error, ErrorKind, ListPage, ListRequest, RemoteBody, RemoteObject,
    Result, Stored, UnderStore, Upload, UploadSource,
};
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;

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

/// What becomes of a request.
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
    root: MemoryRoot,
    pub(crate) weather: Arc<Mutex<Weather>>,
    world: Arc<World>,
    crash: Arc<Mutex<Crash>>,
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

/// A write that has left its client: a crash of that client does not call it back.
struct InFlight {
    root: SimRoot,
    number: u64,
    bucket: BucketName,
    write: Option<Write>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(write) = self.write.take() else { return };
        let mut crash = self.root.crash.lock();
        if crash.is_happening {
            crash.lost.insert(self.number, (self.bucket.clone(), write));
        } else {
            drop(crash);
            self.root.may_land_later(&self.bucket, write);
        }
    }
}

/// The end of a process. Its tasks are dropped in an order that depends on how many there have been before, in other
/// runs too: tokio keeps them in several lists, by their numbers. So what they had on its way is looked at afterwards,
/// in the order of its beginning.
#[derive(Default)]
struct Crash {
    begun: u64,
    is_happening: bool,
    lost: BTreeMap<u64, (BucketName, Write)>,
}

impl SimRoot {
    pub(crate) fn new(world: Arc<World>, keeps_listings: bool) -> Self {
        let root = if keeps_listings { MemoryRoot::that_keeps_listings() } else { MemoryRoot::default() };
        Self { root, weather: Arc::default(), world, crash: Arc::default() }
    }

    pub(crate) fn world(&self) -> Arc<World> {
        Arc::clone(&self.world)
    }

    /// Ends a process.
    pub(crate) fn crash(&self, end: impl FnOnce()) {
        self.crash.lock().is_happening = true;
        end();
        let lost = {
            let mut crash = self.crash.lock();
            crash.is_happening = false;
            std::mem::take(&mut crash.lost)
        };
        for (bucket, write) in lost.into_values() {
            self.may_land_later(&bucket, write);
        }
    }

    fn in_flight(&self, bucket: &BucketName, write: Write) -> InFlight {
        let mut crash = self.crash.lock();
        crash.begun += 1;
        InFlight { root: self.clone(), number: crash.begun, bucket: bucket.clone(), write: Some(write) }
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
        self.world.clock.sleep(Duration::from_micros(500 + self.world.below(20_000))).await;
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
        let mut in_flight = self.root.in_flight(&self.bucket, write);
        if let Fate::Refused(kind) = fate {
            in_flight.write = None;
            self.root.delay().await;
            return Err(error(kind));
        }
        self.root.delay().await;
        if fate == Fate::Late {
            self.root.time_out().await;
            // Dropped now: it may land.
            return Err(error(ErrorKind::Ambiguous));
        }
        let write = in_flight.write.take().expect("nothing has been done with it");
        let result = self.root.apply(&self.bucket, write);
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

    async fn sweep(&self, _age: Duration) -> Result<u64> {
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
