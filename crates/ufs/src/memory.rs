//! An under store in memory, as strict as S3, and as rude as tests want it to be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use forebay_env::sync::Mutex;
use forebay_types::{BucketName, ByteRange, ETag, Generation, ObjectInfo, ObjectKey, Tags};
use futures::StreamExt;
use md5::{Digest, Md5};
use tokio::sync::watch;

use crate::error::not_found;
use crate::grouping::Grouping;
use crate::stamp::{self, Subject};
use crate::{
    BucketInfo, BucketRoot, Condition, Error, ErrorKind, IsOurs, ListPage, ListRequest, ListedObject, RemoteBody,
    RemoteObject, Result, Stamp, Stored, UnderStore, Upload,
};

/// For some pages with fewer names, MinIO says that nothing follows.
const SHORT_PAGE: usize = 3;

/// How many listings a store that keeps them remembers.
const LISTINGS_MAX: usize = 64;

/// How an under store treats requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// Every request is refused with this kind of error. Nothing is done.
    Refuse(ErrorKind),
    /// Requests wait until the mood changes.
    Hang,
    /// Writes are applied, but their answers are lost.
    LoseAnswers,
}

/// A write that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    Put { key: String, generation: Generation },
    Delete { key: String },
}

#[derive(Clone)]
struct Held {
    bytes: Bytes,
    info: ObjectInfo,
    remote_etag: ETag,
    generation: Option<Generation>,
    tags: Tags,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Held>,
    applied: Vec<Applied>,
    requests: u64,
    /// What the last listings held when they began, by number. `None` for a store that keeps none.
    listings: Option<BTreeMap<u64, Listing>>,
    refused: Option<Refused>,
}

/// Why a key can't be stored, or not in this storage class.
type Refused = fn(key: &str, storage_class: Option<&str>) -> Option<ErrorKind>;

/// The objects of a listing that began some time ago.
type Listing = Arc<BTreeMap<String, ListedObject>>;

/// A bucket in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryUnderStore {
    state: Arc<Mutex<State>>,
    mood: Arc<watch::Sender<Mood>>,
}

impl State {
    fn list(&mut self, request: &ListRequest) -> ListPage {
        let Some(listings) = &mut self.listings else {
            let all = self.objects.iter().map(|(key, held)| (key, || held.listed(key)));
            return page(request, all);
        };
        let known = request.token.as_deref().and_then(|token| token.split_once(' '));
        let known = known.and_then(|(number, after)| Some((listings.get(&number.parse().ok()?)?, number, after)));
        let is_later_page = known.is_some();
        let (listing, number, mut after) = match known {
            Some((listing, number, after)) => (Arc::clone(listing), number.to_owned(), Some(after.to_owned())),
            None => {
                let all = self.objects.iter().map(|(key, held)| (key.clone(), held.listed(key)));
                let listing = Arc::new(all.collect());
                let number = listings.last_key_value().map_or(0, |(number, _)| number + 1);
                listings.insert(number, Arc::clone(&listing));
                if listings.len() > LISTINGS_MAX {
                    listings.pop_first();
                }
                (listing, number.to_string(), request.start_after.clone())
            }
        };
        let is_hidden = |key: &str| {
            let after = request.start_after.as_deref().filter(|_| !is_later_page);
            after.is_some_and(|after| {
                key.match_indices('/').any(|(at, _)| after.starts_with(&key[..at]) && !after.starts_with(&key[..=at]))
            })
        };
        let start = request.start_after.as_deref();
        let is_behind = |name: &str| start.is_none_or(|start| name > start);
        let has_keys_behind = |prefix: &String| {
            is_behind(prefix) || start.is_some_and(|start| start != prefix && start.starts_with(prefix.as_str()))
        };
        loop {
            let from = ListRequest { start_after: after.clone(), ..request.clone() };
            let shown = listing.iter().filter(|(key, _)| !is_hidden(key));
            let mut page = page(&from, shown.map(|(key, listed)| (key, || listed.clone())));
            page.objects.retain(|object| is_behind(&object.key));
            page.prefixes.retain(has_keys_behind);
            let is_empty = page.objects.is_empty() && page.prefixes.is_empty();
            if request.limit < SHORT_PAGE && !is_later_page {
                page.next = None;
            }
            page.token = page.next.as_ref().map(|next| format!("{number} {next}"));
            if !is_empty || page.next.is_none() {
                return page;
            }
            after = page.next;
        }
    }
}

impl Held {
    fn listed(&self, key: &str) -> ListedObject {
        ListedObject {
            key: key.to_owned(),
            size: self.info.size,
            etag: self.info.etag.clone(),
            remote_etag: self.remote_etag.clone(),
            last_modified_ms: self.info.last_modified_ms,
            storage_class: self.info.headers.storage_class.clone(),
            checksums: self.info.checksums.names(),
        }
    }
}

fn page<'a, F: FnOnce() -> ListedObject>(
    request: &ListRequest,
    all: impl Iterator<Item = (&'a String, F)>,
) -> ListPage {
    let mut page = Grouping::new(request);
    for (key, listed) in all {
        if page.wants(key) && !page.add(key, listed) {
            break;
        }
    }
    page.finish()
}

impl Default for MemoryUnderStore {
    fn default() -> Self {
        Self { state: Arc::default(), mood: Arc::new(watch::Sender::new(Mood::Well)) }
    }
}

impl MemoryUnderStore {
    pub fn set_mood(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    /// Lists as MinIO does. Later pages by token show what was there when the first page was requested. A page that
    /// begins after a name leaves out directories whose own name is the beginning of that name's directory (`logs/`
    /// after `logs-2024/1`). A listing of one or two names at a time ends with its first page.
    pub fn keep_listings(&self) {
        self.state.lock().listings.get_or_insert_default();
    }

    /// Refuses all requests for some keys, and writes in some storage classes, as servers do that can't have such
    /// objects.
    pub fn refuse_objects(&self, refused: Option<Refused>) {
        self.state.lock().refused = refused;
    }

    /// Writes applied so far, in order.
    pub fn applied(&self) -> Vec<Applied> {
        self.state.lock().applied.clone()
    }

    /// Requests that have arrived so far.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// The keys and bytes held.
    pub fn contents(&self) -> BTreeMap<String, Bytes> {
        self.state.lock().objects.iter().map(|(key, held)| (key.clone(), held.bytes.clone())).collect()
    }

    /// Writes an object without going through Forebay.
    pub fn put_outside(&self, key: &str, bytes: Bytes) {
        let etag = ETag::from_md5(Md5::digest(&bytes).into());
        let info = ObjectInfo::new(bytes.len() as u64, etag.clone(), 1_000_000_000_000);
        let held = Held { bytes, info, remote_etag: etag, generation: None, tags: Tags::new() };
        self.state.lock().objects.insert(key.to_owned(), held);
    }

    /// Writes an object as another Forebay does, with its stamp.
    pub fn put_stamped(&self, key: &str, bytes: Bytes, generation: Generation) {
        self.put_outside(key, bytes);
        if let Some(held) = self.state.lock().objects.get_mut(key) {
            held.generation = Some(generation);
        }
    }

    /// Deletes an object without going through Forebay.
    pub fn delete_outside(&self, key: &str) {
        self.state.lock().objects.remove(key);
    }

    /// Counts a request and lets it through, or not.
    async fn arrive(&self) -> Result<()> {
        self.state.lock().requests += 1;
        let mut mood = self.mood.subscribe();
        // The sender lives as long as the store.
        let now = *mood.wait_for(|mood| *mood != Mood::Hang).await.map_err(|_| gone(ErrorKind::Unavailable))?;
        match now {
            Mood::Refuse(kind) => Err(gone(kind)),
            Mood::Well | Mood::LoseAnswers | Mood::Hang => Ok(()),
        }
    }

    async fn arrive_for(&self, key: &ObjectKey, storage_class: Option<&str>) -> Result<()> {
        self.arrive().await?;
        let refused = self.state.lock().refused;
        match refused.and_then(|refused| refused(key.as_str(), storage_class)) {
            Some(kind) => Err(gone(kind)),
            None => Ok(()),
        }
    }

    fn answer<T>(&self, answer: T) -> Result<T> {
        if *self.mood.borrow() == Mood::LoseAnswers { Err(gone(ErrorKind::Ambiguous)) } else { Ok(answer) }
    }
}

fn gone(kind: ErrorKind) -> Error {
    Error::new(kind, "the under store in memory refuses")
}

fn check(condition: &Condition, present: Option<&Held>) -> Result<()> {
    let holds = match (condition, present) {
        (Condition::Always, _) | (Condition::Absent, None) => true,
        (Condition::Matches(etag), Some(held)) => held.remote_etag == *etag,
        (Condition::Absent, Some(_)) | (Condition::Matches(_), None) => false,
    };
    if holds { Ok(()) } else { Err(Error::new(ErrorKind::Precondition, "a condition does not hold")) }
}

impl Held {
    fn object(&self) -> RemoteObject {
        let stamp = self.generation.map(|generation| Stamp { generation });
        RemoteObject { info: self.info.clone(), remote_etag: self.remote_etag.clone(), stamp }
    }
}

#[async_trait]
impl UnderStore for MemoryUnderStore {
    /// As in S3.
    fn has_room_for_stamp(&self, key: &ObjectKey, generation: Generation, info: &ObjectInfo) -> bool {
        let used = info.user.iter().map(|(name, value)| name.len() + value.len()).sum();
        stamp::write(generation, info, Subject { key: key.as_str(), has_md5: true }, used).is_some()
    }

    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject> {
        self.arrive_for(key, None).await?;
        let state = self.state.lock();
        state.objects.get(key.as_str()).map(Held::object).ok_or_else(|| not_found(key.as_str()))
    }

    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody> {
        self.arrive_for(key, None).await?;
        let held = self.state.lock().objects.get(key.as_str()).cloned().ok_or_else(|| not_found(key.as_str()))?;
        if let Some(etag) = if_match {
            check(&Condition::Matches(etag.clone()), Some(&held))?;
        }
        let whole = ByteRange::of_size(held.bytes.len() as u64);
        let range = range.map_or(whole, |range| range.intersect(whole).unwrap_or(ByteRange::new(0, 0)));
        let bytes = held.bytes.slice(range.start as usize..range.end as usize);
        Ok(RemoteBody { object: held.object(), range, stream: futures::stream::once(async { Ok(bytes) }).boxed() })
    }

    async fn put(&self, key: &ObjectKey, upload: Upload) -> Result<Stored> {
        self.arrive_for(key, upload.info.headers.storage_class.as_deref()).await?;
        let mut bytes = BytesMut::new();
        let mut stream = upload.source.stream(ByteRange::of_size(upload.info.size));
        while let Some(data) = stream.next().await {
            let data = data?;
            upload.turn(data.len() as u64).await;
            bytes.extend_from_slice(&data);
        }
        let bytes = bytes.freeze();
        if bytes.len() as u64 != upload.info.size {
            return Err(Error::new(ErrorKind::Corrupt, "the source of an upload has another size"));
        }
        let remote_etag = ETag::from_md5(Md5::digest(&bytes).into());
        let mut state = self.state.lock();
        check(&upload.condition, state.objects.get(key.as_str()))?;
        let (info, tags) = (upload.info.as_ref().clone(), upload.info.tags.clone());
        let generation = self.has_room_for_stamp(key, upload.generation, &upload.info).then_some(upload.generation);
        let held = Held { bytes, info, remote_etag: remote_etag.clone(), generation, tags };
        state.objects.insert(key.as_str().to_owned(), held);
        state.applied.push(Applied::Put { key: key.as_str().to_owned(), generation: upload.generation });
        drop(state);
        self.answer(Stored { remote_etag })
    }

    async fn delete(&self, key: &ObjectKey, condition: Condition) -> Result<()> {
        self.arrive_for(key, None).await?;
        let mut state = self.state.lock();
        if condition != Condition::Always {
            check(&condition, state.objects.get(key.as_str()))?;
        }
        state.objects.remove(key.as_str());
        state.applied.push(Applied::Delete { key: key.as_str().to_owned() });
        drop(state);
        self.answer(())
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        self.arrive().await?;
        Ok(self.state.lock().list(request))
    }

    fn lists_by_token(&self) -> bool {
        self.state.lock().listings.is_some()
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.arrive_for(key, None).await?;
        let state = self.state.lock();
        state.objects.get(key.as_str()).map(|held| held.tags.clone()).ok_or_else(|| not_found(key.as_str()))
    }

    async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()> {
        self.arrive_for(key, None).await?;
        let mut state = self.state.lock();
        let held = state.objects.get_mut(key.as_str()).ok_or_else(|| not_found(key.as_str()))?;
        held.tags = tags.clone();
        Ok(())
    }

    async fn sweep(&self, _age: Duration, _is_ours: IsOurs<'_>) -> Result<u64> {
        Ok(0)
    }

    fn label(&self) -> String {
        "memory".to_owned()
    }
}

/// Buckets in memory.
#[derive(Clone, Default)]
pub struct MemoryRoot {
    buckets: Arc<Mutex<BTreeMap<BucketName, MemoryUnderStore>>>,
    keeps_listings: bool,
}

impl MemoryRoot {
    /// Its buckets list as [`MemoryUnderStore::keep_listings`] says.
    #[must_use]
    pub fn that_keeps_listings() -> Self {
        Self { keeps_listings: true, ..Self::default() }
    }

    /// The bucket, if it exists.
    pub fn bucket(&self, name: &BucketName) -> Option<MemoryUnderStore> {
        self.buckets.lock().get(name).cloned()
    }
}

#[async_trait]
impl BucketRoot for MemoryRoot {
    async fn list(&self) -> Result<Vec<BucketInfo>> {
        let info = |name: &BucketName| BucketInfo { name: name.clone(), created_ms: 0 };
        Ok(self.buckets.lock().keys().map(info).collect())
    }

    async fn create(&self, name: &BucketName) -> Result<()> {
        let mut buckets = self.buckets.lock();
        if buckets.contains_key(name) {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("the bucket {name} exists")));
        }
        let bucket = MemoryUnderStore::default();
        if self.keeps_listings {
            bucket.keep_listings();
        }
        buckets.insert(name.clone(), bucket);
        Ok(())
    }

    async fn delete(&self, name: &BucketName) -> Result<()> {
        let mut buckets = self.buckets.lock();
        match buckets.get(name) {
            None => Err(Error::new(ErrorKind::NotFound, format!("the bucket {name} does not exist"))),
            Some(bucket) if !bucket.contents().is_empty() => {
                Err(Error::new(ErrorKind::NotEmpty, format!("the bucket {name} is not empty")))
            }
            Some(_) => {
                buckets.remove(name);
                Ok(())
            }
        }
    }

    async fn open(&self, name: &BucketName) -> Result<Option<Arc<dyn UnderStore>>> {
        Ok(self.bucket(name).map(|bucket| Arc::new(bucket) as Arc<dyn UnderStore>))
    }

    fn assume(&self, name: &BucketName) -> Arc<dyn UnderStore> {
        Arc::new(self.bucket(name).unwrap_or_default())
    }

    fn label(&self) -> String {
        "memory".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keeps_the_promises_of_an_under_store() {
        crate::conformance::run(&MemoryUnderStore::default()).await;
        crate::conformance::run_root(&MemoryRoot::default()).await;
    }
}
