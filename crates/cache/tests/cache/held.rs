//! Bytes that another worker has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_cache::{
    ByteStream, Cache, CachedObject, ChangesWanted, CleanCopy, CleanRange, Conditions, CopyId, DeletionStep, ErrorKind,
    Fate, GetObject, HeldBytes, HomeChanges, HomeRecords, HotObject, LeaseRequest, NewCopy, ObjectBody, ObjectDetail,
    ObjectHead, OtherWorkers, PutObject, ReadLease, Reader, RecordRange, ShareFindings, ShareReport, Taker,
    UndeliverableEnd, UndeliverablePage, Written,
};
use forebay_catalog::records::{self, ObjectRecord};
use forebay_catalog::{SlotCount, SlotSet};
use forebay_env::Clock;
use forebay_types::{BucketName, Generation, ObjectPath, Tags, WriteMode};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::multipart::{PART, complete, create, put_part, small_parts};
use crate::support::gate::Way;
use crate::support::{self, Bench, HERE, Setup, kind, path, until};

pub(crate) const THERE: &str = "there";

/// How another worker answers.
#[derive(Clone)]
pub(crate) enum Answer {
    Nothing,
    From(Cache),
    /// With so few of the bytes.
    Cut(Cache, usize),
    /// Its disks don't read them.
    Damaged(Cache),
    /// It is the home of all keys, and wants every copy.
    Naming,
    /// It never answers when it is asked for bytes.
    Silent,
}

/// The other workers that live.
#[derive(Clone)]
pub(crate) struct Others {
    pub(crate) workers: Arc<Mutex<BTreeMap<String, Answer>>>,
    /// An answer takes one to begin; that of a worker that takes a copy, to end.
    pub(crate) permits: Arc<Semaphore>,
    /// How often one was asked.
    pub(crate) asked: Arc<AtomicU64>,
    /// A worker that does not live and may come back.
    away: Arc<Mutex<Option<String>>>,
    /// Whether nobody has said yet who they are.
    pub(crate) are_unknown: Arc<AtomicBool>,
    /// Of all workers: raised when they start again.
    pub(crate) life: Arc<AtomicU64>,
    /// One of them that is being drained.
    pub(crate) leaving: Arc<Mutex<String>>,
    /// So many clean copies are not given.
    pub(crate) refusals: Arc<AtomicU64>,
    /// The key of an object whose clean copy breaks off.
    pub(crate) broken: Arc<Mutex<String>>,
    /// A worker that never answers when it is to take a copy.
    pub(crate) silent: Arc<Mutex<String>>,
}

impl Others {
    pub(crate) fn new() -> Self {
        let permits = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self {
            workers: Arc::default(),
            permits,
            asked: Arc::default(),
            away: Arc::default(),
            are_unknown: Arc::default(),
            life: Arc::default(),
            leaving: Arc::default(),
            refusals: Arc::default(),
            broken: Arc::default(),
            silent: Arc::default(),
        }
    }

    fn cache(&self, worker: &str) -> forebay_cache::Result<Cache> {
        match self.workers.lock().get(worker) {
            Some(Answer::From(cache) | Answer::Cut(cache, _) | Answer::Damaged(cache)) => Ok(cache.clone()),
            Some(Answer::Nothing | Answer::Naming | Answer::Silent) | None => {
                Err(forebay_cache::Error::new(ErrorKind::Unavailable, "it is away"))
            }
        }
    }

    pub(crate) fn answer(&self, worker: &str, answer: Answer) {
        self.workers.lock().insert(worker.to_owned(), answer);
    }
}

#[async_trait]
impl OtherWorkers for Others {
    async fn open(
        &self,
        worker: &str,
        key: &Bytes,
        generation: Generation,
    ) -> forebay_cache::Result<Option<HeldBytes>> {
        let answer = self.workers.lock().get(worker).cloned();
        self.asked.fetch_add(1, Ordering::Relaxed);
        let _permit = self.permits.acquire().await.expect("never closed");
        match answer {
            None => Err(forebay_cache::Error::new(ErrorKind::Unavailable, "it is away")),
            Some(Answer::Nothing | Answer::Naming) => Ok(None),
            Some(Answer::Silent) => std::future::pending().await,
            Some(Answer::From(cache)) => cache.held(key, generation).await,
            Some(Answer::Damaged(cache)) => Ok(cache.held(key, generation).await?.map(|held| {
                let unread = async { Err(forebay_cache::Error::new(ErrorKind::Corrupt, "a sector can't be read")) };
                HeldBytes { stream: futures::stream::once(unread).boxed(), ..held }
            })),
            Some(Answer::Cut(cache, bytes)) => Ok(cache.held(key, generation).await?.map(|held| {
                let cut =
                    move |data: forebay_cache::Result<Bytes>| data.map(|data| data.slice(..bytes.min(data.len())));
                HeldBytes { stream: held.stream.map(cut).boxed(), ..held }
            })),
        }
    }

    async fn records(&self, worker: &str, range: &RecordRange) -> forebay_cache::Result<HomeRecords> {
        self.cache(worker)?.home_records(range).await
    }

    async fn changes(&self, worker: &str, wanted: &ChangesWanted) -> forebay_cache::Result<HomeChanges> {
        self.cache(worker)?.home_changes(wanted)
    }

    async fn put(&self, worker: &str, request: PutObject) -> forebay_cache::Result<Written> {
        self.cache(worker)?.put_here(request).await
    }

    async fn delete(&self, worker: &str, path: &ObjectPath, conditions: &Conditions) -> forebay_cache::Result<()> {
        self.cache(worker)?.delete_here(path, conditions).await
    }

    async fn get(&self, worker: &str, request: GetObject) -> forebay_cache::Result<ObjectBody> {
        self.cache(worker)?.get_here(request).await
    }

    async fn head(&self, worker: &str, request: GetObject) -> forebay_cache::Result<ObjectHead> {
        self.cache(worker)?.head_here(request).await
    }

    async fn tags(&self, worker: &str, path: &ObjectPath) -> forebay_cache::Result<Tags> {
        self.cache(worker)?.tags(path).await
    }

    async fn detail(&self, worker: &str, path: &ObjectPath) -> forebay_cache::Result<ObjectDetail> {
        self.cache(worker)?.object_detail_here(path).await
    }

    async fn cached(
        &self,
        worker: &str,
        bucket: &BucketName,
        objects: Vec<CachedObject>,
    ) -> forebay_cache::Result<Vec<CachedObject>> {
        self.cache(worker)?.cached_here(bucket, objects).await
    }

    async fn job_shares(&self, worker: &str) -> forebay_cache::Result<Vec<ShareReport>> {
        self.cache(worker)?.job_shares().await
    }

    async fn job_findings(
        &self,
        worker: &str,
        id: &str,
        after: u64,
        limit: usize,
    ) -> forebay_cache::Result<ShareFindings> {
        self.cache(worker)?.share_findings(id, after, limit).await
    }

    async fn undeliverable(
        &self,
        worker: &str,
        prefix: &str,
        after: Option<&ObjectPath>,
        limit: usize,
    ) -> forebay_cache::Result<UndeliverablePage> {
        self.cache(worker)?.undeliverable_here(prefix, after, limit).await
    }

    async fn end_undeliverable(
        &self,
        worker: &str,
        path: &ObjectPath,
        generation: u64,
        end: &UndeliverableEnd,
    ) -> forebay_cache::Result<()> {
        self.cache(worker)?.end_undeliverable_here(path, generation, end).await
    }

    async fn deletion_step(
        &self,
        worker: &str,
        bucket: &BucketName,
        step: DeletionStep,
    ) -> forebay_cache::Result<SlotSet> {
        self.cache(worker)?.deletion_step(bucket, step).await
    }

    async fn room_for_copy(&self, worker: &str, path: &ObjectPath, bytes: u64) -> forebay_cache::Result<()> {
        self.cache(worker)?.room_for_copy(path, bytes)
    }

    async fn take_copy(&self, worker: &str, copy: NewCopy) -> forebay_cache::Result<bool> {
        if *self.silent.lock() == worker {
            std::future::pending::<()>().await;
        }
        let taken = self.cache(worker)?.take_copy(copy).await;
        self.asked.fetch_add(1, Ordering::Relaxed);
        let _permit = self.permits.acquire().await.expect("never closed");
        taken
    }

    async fn fates(&self, worker: &str, copies: &[CopyId]) -> forebay_cache::Result<Vec<Fate>> {
        if matches!(self.workers.lock().get(worker), Some(Answer::Naming)) {
            return Ok(vec![Fate::Named; copies.len()]);
        }
        Ok(self.cache(worker)?.fates(copies).await)
    }

    async fn has_copies(&self, worker: &str, copies: &[CopyId]) -> forebay_cache::Result<Vec<bool>> {
        Ok(self.cache(worker)?.has_copies(copies))
    }

    async fn read_lease(&self, worker: &str, request: LeaseRequest) -> forebay_cache::Result<Option<ReadLease>> {
        let lease = self.cache(worker)?.read_lease(request).await;
        let _permit = self.permits.acquire().await.expect("never closed");
        lease
    }

    async fn end_leases(&self, reader: &Reader, paths: &[ObjectPath]) -> forebay_cache::Result<bool> {
        Ok(self.cache(&reader.worker)?.end_leases(reader.process, paths))
    }

    async fn clean_copy(
        &self,
        worker: &str,
        path: &ObjectPath,
        bytes_max: u64,
    ) -> forebay_cache::Result<Option<CleanCopy>> {
        let copy = self.cache(worker)?.clean_copy(path, bytes_max).await;
        if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(forebay_cache::Error::new(ErrorKind::Unavailable, "it does not answer"));
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        let _permit = self.permits.acquire().await.expect("never closed");
        if *self.broken.lock() != path.key.as_str() {
            return copy;
        }
        let damaged = || Err(forebay_cache::Error::new(ErrorKind::Unavailable, "it breaks off"));
        copy.map(|copy| copy.map(|copy| CleanCopy { body: Some(futures::stream::iter([damaged()]).boxed()), ..copy }))
    }

    async fn clean_bytes(&self, worker: &str, wanted: &CleanRange) -> forebay_cache::Result<Option<ByteStream>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(self.cache(worker)?.clean_bytes(wanted))
    }

    async fn hot_objects(&self, worker: &str, slots: &SlotSet) -> forebay_cache::Result<Vec<HotObject>> {
        let hot = self.cache(worker)?.hot_objects(slots).await;
        let _permit = self.permits.acquire().await.expect("never closed");
        Ok(hot)
    }

    fn is_leaving(&self, worker: &str) -> bool {
        *self.leaving.lock() == worker
    }

    fn home(&self, hash: u64) -> Option<String> {
        let workers = self.workers.lock();
        let is_home = |answer: &Answer| match answer {
            Answer::From(cache) => cache.is_home_of(hash),
            Answer::Naming => true,
            Answer::Nothing | Answer::Cut(..) | Answer::Damaged(_) | Answer::Silent => false,
        };
        workers.iter().find(|(_, answer)| is_home(answer)).map(|(name, _)| name.clone())
    }

    fn workers(&self) -> Vec<String> {
        self.workers.lock().keys().cloned().collect()
    }

    fn are_known(&self) -> bool {
        !self.are_unknown.load(Ordering::Relaxed)
    }

    fn takers(&self) -> Vec<Taker> {
        let life = self.life.load(Ordering::Relaxed);
        self.workers().into_iter().map(|worker| Taker { worker, life }).collect()
    }

    fn away(&self) -> Option<String> {
        self.away.lock().clone()
    }
}

/// A worker that has written `body` under `key`, before an under store that takes nothing.
pub(crate) async fn writer(key: &str, body: &str) -> Bench {
    let there =
        Setup { worker: Some((THERE, Arc::new(Others::new()))), ..Setup::new(WriteMode::WriteBack) }.open().await;
    there.background.set(Way::Closed);
    there.put(key, body.to_owned()).await.expect("it is written");
    there
}

/// A worker that has become the home of what another one has written, with these keys of its records.
pub(crate) async fn new_home(setup: Setup, others: &Others, there: &Bench, keys: &[Bytes]) -> Bench {
    let mut here = Setup { worker: Some((HERE, Arc::new(others.clone()))), ..setup }.open().await;
    here.close().await;
    for key in keys {
        let record = there.store.value(key).expect("it was written there");
        here.write_record(key.clone(), Some(record.value)).await;
    }
    here.reopen().await;
    here
}

async fn new_home_of(key: &str, others: &Others, there: &Bench) -> Bench {
    new_home(Setup::new(WriteMode::WriteBack), others, there, &[records::object_key(&path(key))]).await
}

#[tokio::test]
async fn a_new_home_fetches_what_another_worker_has_and_persists_it() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    others.answer(THERE, Answer::From(there.cache.clone()));
    let here = new_home_of("key", &others, &there).await;
    assert_eq!(here.get("key").await.unwrap(), "written there");
    assert_eq!(here.head("key").await.unwrap().info, there.head("key").await.unwrap().info);
    here.drain().await;
    assert_eq!(here.under("key").unwrap(), "written there");
    let status = here.cache.status();
    assert_eq!((status.copies_wanted, status.missing_objects, status.pinned_bytes), (0, 0, 0));
}

#[tokio::test]
async fn fetched_bytes_survive_a_crash_and_are_not_fetched_again() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    others.answer(THERE, Answer::From(there.cache.clone()));
    let mut here = new_home_of("key", &others, &there).await;
    here.background.set(Way::Closed);
    assert_eq!(here.get("key").await.unwrap(), "written there");
    others.workers.lock().clear();
    here.power_loss(7).await;
    assert_eq!(here.get("key").await.unwrap(), "written there");
    here.drain().await;
    assert_eq!(here.under("key").unwrap(), "written there");
}

#[tokio::test]
async fn while_the_worker_is_away_reads_get_a_retryable_error_and_the_bytes_come_when_it_is_back() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    let here = new_home_of("key", &others, &there).await;
    let error = here.get("key").await.unwrap_err();
    assert_eq!((error.kind, error.retry_after.is_some()), (ErrorKind::Unavailable, true));
    assert!(error.context.contains("worker there: it is away"), "{}", error.context);
    here.pass_seconds(60).await;
    let status = here.cache.status();
    assert_eq!((status.copies_wanted, status.missing_objects, here.background.puts()), (1, 0, 0));
    assert_eq!((status.copies_unavailable, status.unavailable[0].path.as_str()), (1, &*format!("/{}", path("key"))));
    assert!(status.unavailable[0].problem.contains("worker there"), "{:?}", status.unavailable);
    others.answer(THERE, Answer::From(there.cache.clone()));
    here.drain().await;
    assert_eq!((here.cache.status().copies_unavailable, here.cache.status().unavailable), (0, Vec::new()));
    assert_eq!(here.under("key").unwrap(), "written there");
    assert_eq!(here.get("key").await.unwrap(), "written there");
}

#[tokio::test]
async fn a_worker_with_another_name_is_asked_too() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    others.answer("renamed", Answer::From(there.cache.clone()));
    let here = new_home_of("key", &others, &there).await;
    assert_eq!(here.get("key").await.unwrap(), "written there");
}

#[tokio::test]
async fn bytes_that_no_worker_has_are_missing_until_the_object_is_written_again() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    others.answer(THERE, Answer::Nothing);
    let here = new_home_of("key", &others, &there).await;
    let error = here.get("key").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.context.contains("none of the workers"), "{}", error.context);
    let status = here.cache.status();
    assert_eq!((status.copies_wanted, status.missing_objects), (0, 1));
    here.put("key", "again").await.unwrap();
    assert_eq!((here.get("key").await.unwrap(), here.cache.status().missing_objects), ("again".into(), 0));
}

/// It may have fetched them as an earlier home.
#[tokio::test]
async fn bytes_are_not_missing_while_a_worker_is_away_that_no_record_names() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    others.answer(THERE, Answer::Nothing);
    *others.away.lock() = Some("worker third does not run".to_owned());
    let here = new_home_of("key", &others, &there).await;
    let error = here.get("key").await.unwrap_err();
    assert!(error.context.contains("worker third does not run"), "{}", error.context);
    let status = here.cache.status();
    assert_eq!((status.copies_wanted, status.missing_objects), (1, 0));
    *others.away.lock() = None;
    here.advancing("nobody has them", || here.cache.status().missing_objects == 1).await;
    assert_eq!(here.cache.status().copies_wanted, 0);
}

/// The only worker with the bytes comes back after the others were listed, and before they have answered.
#[tokio::test]
async fn bytes_are_not_missing_when_a_worker_has_just_come_back() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    others.answer("renamed", Answer::Nothing);
    others.answer(THERE, Answer::Nothing);
    others.permits.forget_permits(Semaphore::MAX_PERMITS);
    let here = new_home_of("key", &others, &there).await;
    until("the first is asked", || others.asked.load(Ordering::Relaxed) == 1).await;
    others.answer("third", Answer::From(there.cache.clone()));
    others.permits.add_permits(100);
    here.drain().await;
    assert_eq!((here.under("key").unwrap(), here.cache.status().missing_objects), ("written there".into(), 0));
}

/// It was drained, has lost its disks, and is the home again of what it has written.
#[tokio::test]
async fn a_worker_fetches_what_it_has_written_from_a_home_in_between() {
    let there = Setup { worker: Some((HERE, Arc::new(Others::new()))), ..Setup::new(WriteMode::WriteBack) };
    let there = there.open().await;
    there.background.set(Way::Closed);
    there.put("key", "written here once").await.unwrap();
    let others = Others::new();
    others.answer(THERE, Answer::From(there.cache.clone()));
    let here = new_home_of("key", &others, &there).await;
    assert_eq!(here.get("key").await.unwrap(), "written here once");
    assert_eq!((here.cache.status().copies_wanted, here.cache.status().missing_objects), (0, 0));
}

/// Such a delete waits until the version before it has reached the under store, which can never be.
#[tokio::test]
async fn bytes_that_no_worker_has_whole_hold_up_no_delete() {
    let answers: [fn(&Bench) -> Answer; 2] = [|_| Answer::Nothing, |there| Answer::Damaged(there.cache.clone())];
    for answer in answers {
        let (there, others) = (writer("key", "written there").await, Others::new());
        let setup = Setup::new(WriteMode::WriteThrough);
        let here = new_home(setup, &others, &there, &[records::object_key(&path("key"))]).await;
        here.settle().await;
        // The worker that has them may come back.
        assert_eq!(here.delete("key").await.unwrap_err().kind, ErrorKind::Unavailable);
        others.answer(THERE, answer(&there));
        here.advancing("nobody has them", || here.cache.status().missing_objects == 1).await;
        here.delete("key").await.unwrap();
        assert_eq!(here.get("key").await.unwrap_err().kind, ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_not_taken() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    others.answer(THERE, Answer::Cut(there.cache.clone(), 5));
    let here = new_home_of("key", &others, &there).await;
    let error = here.get("key").await.unwrap_err();
    assert!(error.context.contains("it has 5 bytes"), "{}", error.context);
    others.answer(THERE, Answer::From(there.cache.clone()));
    here.advancing("it comes whole", || here.cache.status().copies_wanted == 0).await;
    assert_eq!(here.get("key").await.unwrap(), "written there");
}

#[tokio::test]
async fn a_write_while_bytes_are_on_their_way_is_newer_than_they_are() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    others.answer(THERE, Answer::From(there.cache.clone()));
    let all = others.permits.forget_permits(usize::MAX);
    let here = new_home_of("key", &others, &there).await;
    here.background.set(Way::Closed);
    here.put("key", "newer").await.unwrap();
    others.permits.add_permits(all);
    until("the fetch has ended", || here.cache.status().copies_wanted == 0).await;
    assert_eq!(here.get("key").await.unwrap(), "newer");
}

#[tokio::test]
async fn an_object_that_is_written_while_others_are_asked_for_its_bytes_is_not_missing() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    others.answer(THERE, Answer::Nothing);
    let all = others.permits.forget_permits(usize::MAX);
    let here = new_home_of("key", &others, &there).await;
    until("the other worker is asked", || others.asked.load(Ordering::Relaxed) == 1).await;
    here.put("key", "newer").await.unwrap();
    others.permits.add_permits(all);
    until("the fetch has ended", || here.cache.status().copies_wanted == 0).await;
    assert_eq!((here.get("key").await.unwrap(), here.cache.status().missing_objects), ("newer".into(), 0));
}

/// Fetches from one worker at once.
const FROM_ONE_WORKER: u64 = 4;

/// More than are fetched at once.
const MANY: u64 = 20;

/// A worker that has written [`MANY`] objects, and the keys of their records.
async fn writer_of_many(worker: &'static str) -> (Bench, Vec<Bytes>) {
    let setup = Setup { worker: Some((worker, Arc::new(Others::new()))), ..Setup::new(WriteMode::WriteBack) };
    let bench = setup.open().await;
    bench.background.set(Way::Closed);
    let mut keys = Vec::new();
    for number in 0..MANY {
        let key = format!("{worker}/{number}");
        bench.put(&key, "written there").await.expect("it is written");
        keys.push(records::object_key(&path(&key)));
    }
    (bench, keys)
}

#[tokio::test]
async fn a_worker_that_never_answers_holds_up_no_fetches_from_others() {
    let ((there, keys), (other, other_keys)) = (writer_of_many(THERE).await, writer_of_many("other").await);
    let others = Others::new();
    others.answer(THERE, Answer::Silent);
    others.answer("other", Answer::From(other.cache.clone()));
    let mut here = new_home(Setup::new(WriteMode::WriteBack), &others, &there, &keys).await;
    here.close().await;
    for key in other_keys {
        let record = other.store.value(&key).unwrap();
        here.write_record(key, Some(record.value)).await;
    }
    here.reopen().await;
    here.advancing("those of the other worker come", || here.cache.status().copies_wanted == MANY).await;
    assert_eq!(here.get("other/7").await.unwrap(), "written there");
}

/// The other worker answers after a while, and then the disks here take nothing.
#[tokio::test]
async fn a_disk_that_is_full_here_is_not_the_silence_of_another_worker() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    others.answer(THERE, Answer::From(there.cache.clone()));
    let all = others.permits.forget_permits(usize::MAX);
    let here = new_home_of("key", &others, &there).await;
    until("the other worker is asked", || others.asked.load(Ordering::Relaxed) == 1).await;
    here.clock.advance(Duration::from_secs(3));
    here.disk.fail_writes(Some(std::io::ErrorKind::StorageFull));
    others.permits.add_permits(all);
    until("the fetch has failed", || here.cache.status().copies_unavailable == 1).await;
    here.clock.advance(Duration::from_secs(1));
    // No more time passes.
    until("the other worker is asked again", || others.asked.load(Ordering::Relaxed) == 2).await;
    here.disk.fail_writes(None);
    here.advancing("the bytes come", || here.cache.status().copies_wanted == 0).await;
    assert_eq!(here.get("key").await.unwrap(), "written there");
}

#[tokio::test]
async fn what_waits_for_a_busy_worker_comes_from_it_in_the_end() {
    let ((there, keys), others) = (writer_of_many(THERE).await, Others::new());
    others.answer(THERE, Answer::From(there.cache.clone()));
    let all = others.permits.forget_permits(usize::MAX);
    let here = new_home(Setup::new(WriteMode::WriteBack), &others, &there, &keys).await;
    support::others_go_on().await;
    assert_eq!(others.asked.load(Ordering::Relaxed), FROM_ONE_WORKER);
    others.permits.add_permits(all);
    // No time passes.
    until("all are fetched", || here.cache.status().copies_wanted == 0).await;
    assert_eq!(others.asked.load(Ordering::Relaxed), MANY);
    assert_eq!((here.get("there/7").await.unwrap(), here.cache.status().missing_objects), ("written there".into(), 0));
}

/// However many wait, a worker asks once, and a stop does not wait for the answer.
#[tokio::test]
async fn readers_share_a_fetch_and_a_stop_gives_it_up() {
    let (there, others) = (writer("key", "written there").await, Others::new());
    others.answer(THERE, Answer::From(there.cache.clone()));
    let all = others.permits.forget_permits(usize::MAX);
    let here = new_home_of("key", &others, &there).await;
    let readers = futures::future::join_all((0..50).map(|_| here.get("key")));
    let release = async {
        until("the other worker is asked", || others.asked.load(Ordering::Relaxed) == 1).await;
        others.permits.add_permits(all);
    };
    let (bodies, ()) = futures::future::join(readers, release).await;
    assert!(bodies.into_iter().all(|body| body.unwrap() == "written there"));
    assert_eq!(others.asked.load(Ordering::Relaxed), 1);
    others.permits.forget_permits(usize::MAX);
    let other = new_home_of("key", &others, &there).await;
    until("the other worker is asked again", || others.asked.load(Ordering::Relaxed) == 2).await;
    other.close().await;
}

#[tokio::test]
async fn an_upload_is_completed_with_parts_that_another_worker_has() {
    let (setup, others) = (small_parts(WriteMode::WriteBack), Others::new());
    let there = Setup { worker: Some((THERE, Arc::new(Others::new()))), ..small_parts(WriteMode::WriteBack) };
    let there = there.open().await;
    let upload = create(&there, "key").await;
    let first = put_part(&there, &upload, 1, PART).await;
    let keys = [records::upload_key(&upload.path, &upload.upload_id), records::part_key(&upload.upload_id, 1)];
    others.answer(THERE, Answer::From(there.cache.clone()));
    let here = new_home(setup, &others, &there, &keys).await;
    let second = put_part(&here, &upload, 2, PART).await;
    complete(&here, &upload, &[first, second]).await.unwrap();
    assert_eq!(here.get("key").await.unwrap().len(), 2 * PART);
    here.drain().await;
    assert_eq!(here.under("key").unwrap().len(), 2 * PART);
}

#[tokio::test]
async fn bytes_of_keys_at_home_elsewhere_stay_until_no_record_names_them() {
    let (others, homes) = (Others::new(), Others::new());
    let setup = Setup { worker: Some((THERE, Arc::new(homes.clone()))), ..Setup::new(WriteMode::WriteBack) };
    let mut there = setup.open().await;
    there.background.set(Way::Closed);
    there.put("key", "the only copy").await.unwrap();
    let here = new_home_of("key", &others, &there).await;
    there.close().await;
    there.setup.slots = Some(SlotSet::none(SlotCount::new(8).unwrap()));
    there.reopen().await;
    let interval = there.setup.settings.leftover_interval.0.as_secs();
    let pinned = there.cache.status().pinned_bytes;
    assert!(pinned > 0);
    there.pass_seconds(2 * interval).await;
    assert_eq!(there.cache.status().pinned_bytes, pinned, "nobody says what has become of them");
    homes.answer(HERE, Answer::From(here.cache.clone()));
    there.pass_seconds(2 * interval).await;
    assert_eq!(there.cache.status().pinned_bytes, pinned, "the home wants them");
    others.answer(THERE, Answer::From(there.cache.clone()));
    here.drain().await;
    there.advancing("they are dropped", || there.cache.status().pinned_bytes == 0).await;
}

#[tokio::test]
async fn a_former_home_asks_for_what_it_has_when_it_loses_the_slots() {
    let (others, homes) = (Others::new(), Others::new());
    let slots = SlotSet::none(SlotCount::new(8).unwrap()).others();
    let moves = Arc::new(support::Others::default());
    let there = Setup {
        worker: Some((THERE, Arc::new(homes.clone()))),
        slots: Some(slots.clone()),
        others: Some(Arc::clone(&moves)),
        ..small_parts(WriteMode::WriteBack)
    };
    let there = there.open().await;
    let upload = create(&there, "key").await;
    put_part(&there, &upload, 1, PART).await;
    there.cache.lose(&slots).await.unwrap();
    *moves.moved.lock() = Some(slots.others());
    let keys = [records::upload_key(&upload.path, &upload.upload_id), records::part_key(&upload.upload_id, 1)];
    others.answer(THERE, Answer::From(there.cache.clone()));
    let here = new_home(small_parts(WriteMode::WriteBack), &others, &there, &keys).await;
    homes.answer(HERE, Answer::From(here.cache.clone()));
    there.pass_seconds(2).await;
    assert!(there.cache.status().pinned_bytes > 0, "the upload is open");
    here.cache.abort_upload(&upload).await.unwrap();
    let began = there.clock.monotonic();
    there.advancing("the part is dropped", || there.cache.status().pinned_bytes == 0).await;
    let waited = there.clock.monotonic() - began;
    assert!(waited < Duration::from_secs(10), "{waited:?}");
}

/// Whoever asks with another generation gets nothing.
#[tokio::test]
async fn only_the_generation_that_is_asked_for_is_given() {
    let there = writer("key", "written there").await;
    let (key, other) = (records::object_key(&path("key")), Generation(1));
    assert!(there.cache.held(&key, other).await.unwrap().is_none());
    let record = there.store.value(&key).unwrap().value;
    let generation = ObjectRecord::decode(&record).unwrap().generation;
    assert_eq!(there.cache.held(&key, generation).await.unwrap().unwrap().size, 13);
    assert_eq!(kind(there.get("absent").await), Some(ErrorKind::NotFound));
}
