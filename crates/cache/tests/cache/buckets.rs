//! Buckets come and go while objects are written to them: what is acknowledged is in a bucket that exists.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_cache::{
    Attributes, CompletePart, CompleteUpload, Conditions, ErrorKind, GetObject, ListUploads, PutObject, UploadRef,
};
use forebay_catalog::records;
use forebay_types::{BucketName, ObjectPath, Period, Tags, WriteMode};
use forebay_ufs::memory::{MemoryRoot, Mood};
use forebay_ufs::{BucketInfo, BucketRoot, ErrorKind as UfsKind, UnderStore};
use futures::channel::oneshot;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;

use crate::support::{Bench, Setup, collect, create_upload, incoming, incoming_stream, kind, others_go_on, until};

async fn with_root(mode: WriteMode) -> (Bench, MemoryRoot, BucketName) {
    let root = MemoryRoot::default();
    let mut setup = Setup::new(mode);
    setup.root = Some(Arc::new(root.clone()) as Arc<dyn BucketRoot>);
    let bench = setup.open().await;
    let bucket = BucketName::new("made").expect("a name");
    bench.cache.create_bucket(&bucket).await.expect("a bucket");
    (bench, root, bucket)
}

pub(crate) fn put_of(key: &str, body: forebay_cache::Incoming) -> PutObject {
    let path = ObjectPath::parse("made", key).expect("a path");
    PutObject { path, body, attributes: Attributes::default(), conditions: Conditions::default() }
}

/// The bucket is deleted while the body comes.
#[tokio::test]
async fn a_write_into_a_bucket_that_is_gone_is_not_acknowledged() {
    for mode in [WriteMode::WriteBack, WriteMode::Transient, WriteMode::WriteThrough] {
        let (bench, root, bucket) = with_root(mode).await;
        let (sender, receiver) = futures::channel::mpsc::unbounded();
        let (cache, request) = (bench.cache.clone(), put_of("key", incoming_stream(receiver.boxed(), 5)));
        let putting = forebay_env::spawn(async move { cache.put(request).await });
        sender.unbounded_send(Ok("slow".into())).unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        bench.cache.delete_bucket(&bucket).await.unwrap();
        sender.unbounded_send(Ok("!".into())).unwrap();
        drop(sender);
        assert_eq!(kind(putting.join().await), Some(ErrorKind::NoSuchBucket), "{mode:?}");
        assert!(root.bucket(&bucket).is_none());
        assert_eq!(bench.cache.status().dirty_objects, 0);
    }
}

/// It can't be told whether the bucket is empty while a write is on its way.
#[tokio::test]
async fn a_bucket_that_is_written_to_is_not_deleted() {
    let (bench, root, bucket) = with_root(WriteMode::WriteThrough).await;
    let under = root.bucket(&bucket).unwrap();
    let asked = under.requests();
    under.set_mood(Mood::Hang);
    let (cache, request) = (bench.cache.clone(), put_of("key", incoming("value".into())));
    let putting = forebay_env::spawn(async move { cache.put(request).await });
    until("the object is on its way", || under.requests() > asked).await;
    assert_eq!(kind(bench.cache.delete_bucket(&bucket).await), Some(ErrorKind::BucketBusy));
    under.set_mood(Mood::Well);
    putting.join().await.unwrap();
    assert_eq!(kind(bench.cache.delete_bucket(&bucket).await), Some(ErrorKind::BucketNotEmpty));
    assert_eq!(under.contents().get("key").unwrap(), "value");
}

/// Objects behind deletes that wait are seen; deletes alone are brought to the under store first.
#[tokio::test]
async fn a_bucket_with_an_object_that_waits_is_not_empty() {
    let (bench, root, bucket) = with_root(WriteMode::WriteBack).await;
    let path = |key: &str| ObjectPath::parse("made", key).expect("a path");
    let put = |key: &'static str| bench.cache.put(put_of(key, incoming("value".into())));
    put("a").await.unwrap();
    bench.drain().await;
    let under = root.bucket(&bucket).unwrap();
    under.set_mood(Mood::Refuse(forebay_ufs::ErrorKind::Unavailable));
    bench.cache.delete(&path("a"), &Conditions::default()).await.unwrap();
    put("b").await.unwrap();
    assert!(bench.cache.delete_bucket(&bucket).await.is_err());
    under.set_mood(Mood::Well);
    bench
        .cache
        .set_policies(vec![crate::support::rule("/", WriteMode::Transient)], None, "test", "edit")
        .await
        .unwrap();
    put("c").await.unwrap();
    assert_eq!(kind(bench.cache.delete_bucket(&bucket).await), Some(ErrorKind::BucketNotEmpty));
    for key in ["b", "c"] {
        bench.cache.delete(&path(key), &Conditions::default()).await.unwrap();
    }
    bench.cache.delete_bucket(&bucket).await.unwrap();
    assert!(root.bucket(&bucket).is_none());
    assert_eq!(kind(put("d").await), Some(ErrorKind::NoSuchBucket));
}

/// Nothing is sent for a bucket that is not empty, and no write waits.
#[tokio::test]
async fn deleting_a_bucket_that_is_written_to_uploads_nothing() {
    let (bench, root, bucket) = with_root(WriteMode::WriteBack).await;
    let under = root.bucket(&bucket).unwrap();
    under.set_mood(Mood::Refuse(forebay_ufs::ErrorKind::Unavailable));
    bench.cache.put(put_of("key", incoming("value".into()))).await.unwrap();
    until("its upload was refused", || under.requests() > 0).await;
    under.set_mood(Mood::Well);
    let asked = under.requests();
    assert_eq!(kind(bench.cache.delete_bucket(&bucket).await), Some(ErrorKind::BucketNotEmpty));
    assert_eq!(under.requests(), asked);
}

/// Else the bucket would go on to take writes after a crash, and nothing would ever bring them to the under store.
#[tokio::test]
async fn a_bucket_is_forgotten_before_it_is_deleted() {
    let (bench, root, bucket) = with_root(WriteMode::WriteBack).await;
    bench.disk.fail_writes(Some(std::io::ErrorKind::StorageFull));
    assert_eq!(kind(bench.cache.delete_bucket(&bucket).await), Some(ErrorKind::SlowDown));
    assert!(root.bucket(&bucket).is_some());
    bench.disk.fail_writes(None);
    bench.cache.put(put_of("key", incoming("value".into()))).await.unwrap();
    bench.drain().await;
    assert_eq!(root.bucket(&bucket).unwrap().contents().get("key").unwrap(), "value");
}

/// Nobody knows a bucket that was to be deleted, until the under store has said something of it.
#[tokio::test]
async fn a_bucket_that_could_not_be_deleted_takes_writes_in_an_outage() {
    let (mut bench, root, bucket) = with_late_root(Setup::new(WriteMode::WriteBack)).await;
    bench.cache.put(put_of("key", incoming("value".into()))).await.unwrap();
    bench.drain().await;
    bench.cache.delete(&put_of("key", incoming("".into())).path, &Conditions::default()).await.unwrap();
    bench.drain().await;
    *root.is_away.lock() = true;
    assert_eq!(kind(bench.cache.delete_bucket(&bucket).await), Some(ErrorKind::Unavailable));
    bench.cache.put(put_of("key", incoming("later".into()))).await.unwrap();
    bench.restart().await;
    bench.cache.put(put_of("more", incoming("later".into()))).await.unwrap();
    *root.is_away.lock() = false;
    bench.drain().await;
    assert_eq!(root.root.bucket(&bucket).unwrap().contents().len(), 2);
}

/// Its answers about one bucket come late, when they no longer hold.
#[derive(Default)]
pub(crate) struct LateRoot {
    root: MemoryRoot,
    is_late: Mutex<bool>,
    deletes_late: Mutex<bool>,
    /// Whether deletions get no answer, and are not carried out yet.
    loses_deletes: Mutex<bool>,
    is_away: Mutex<bool>,
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
}

impl LateRoot {
    async fn answered(&self) {
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().push(answer);
        answered.await.expect("an answer");
    }

    fn reached(&self) -> forebay_ufs::Result<()> {
        match *self.is_away.lock() {
            true => Err(forebay_ufs::Error::new(UfsKind::Unavailable, "it is out of reach")),
            false => Ok(()),
        }
    }

    pub(crate) fn set_late(&self, is_late: bool) {
        *self.is_late.lock() = is_late;
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    pub(crate) fn answer(&self) {
        self.waiting.lock().drain(..).for_each(|waiting| waiting.send(()).expect("somebody waits"));
    }
}

#[async_trait]
impl BucketRoot for LateRoot {
    async fn list(&self) -> forebay_ufs::Result<Vec<BucketInfo>> {
        self.root.list().await
    }

    async fn create(&self, name: &BucketName) -> forebay_ufs::Result<()> {
        self.root.create(name).await
    }

    async fn delete(&self, name: &BucketName) -> forebay_ufs::Result<()> {
        self.reached()?;
        if *self.deletes_late.lock() {
            self.answered().await;
        }
        if *self.loses_deletes.lock() {
            return Err(forebay_ufs::Error::new(UfsKind::Ambiguous, "there was no answer in time"));
        }
        self.root.delete(name).await
    }

    async fn open(&self, name: &BucketName) -> forebay_ufs::Result<Option<Arc<dyn UnderStore>>> {
        self.reached()?;
        let found = self.root.open(name).await;
        if *self.is_late.lock() {
            self.answered().await;
        }
        found
    }

    fn assume(&self, name: &BucketName) -> Arc<dyn UnderStore> {
        self.root.assume(name)
    }

    fn label(&self) -> String {
        self.root.label()
    }
}

pub(crate) async fn with_late_root(mut setup: Setup) -> (Bench, Arc<LateRoot>, BucketName) {
    let root = Arc::new(LateRoot::default());
    setup.root = Some(Arc::clone(&root) as Arc<dyn BucketRoot>);
    let bench = setup.open().await;
    let bucket = BucketName::new("made").expect("a name");
    root.create(&bucket).await.expect("a bucket");
    (bench, root, bucket)
}

/// The under store is not asked, and may be out of reach for long.
#[tokio::test]
async fn buckets_that_have_been_seen_take_writes_after_a_restart() {
    let (mut bench, root, bucket) = with_late_root(Setup::new(WriteMode::WriteBack)).await;
    assert!(bench.cache.bucket_exists(&bucket).await.unwrap());
    bench.restart().await;
    *root.is_late.lock() = true;
    let (cache, request) = (bench.cache.clone(), put_of("key", incoming("value".into())));
    let putting = forebay_env::spawn(async move { cache.put(request).await });
    until("the write is done", || putting.is_finished()).await;
    putting.join().await.unwrap();
    *root.is_late.lock() = false;
    root.answer();
    bench.drain().await;
    assert_eq!(root.root.bucket(&bucket).unwrap().contents().get("key").unwrap(), "value");
}

/// Whoever finds the bucket while it is deleted leaves nothing behind that a start would believe.
#[tokio::test]
async fn a_bucket_that_was_found_while_it_was_deleted_takes_no_writes_after_a_crash() {
    for dies_before_the_answer in [false, true] {
        let (mut bench, root, bucket) = with_late_root(Setup::new(WriteMode::WriteBack)).await;
        *root.is_late.lock() = !dies_before_the_answer;
        *root.deletes_late.lock() = dies_before_the_answer;
        let look = || {
            let (cache, bucket) = (bench.cache.clone(), bucket.clone());
            forebay_env::spawn(async move { cache.bucket_exists(&bucket).await })
        };
        let delete = || {
            let (cache, bucket) = (bench.cache.clone(), bucket.clone());
            forebay_env::spawn(async move { cache.delete_bucket(&bucket).await })
        };
        let _looking = if dies_before_the_answer {
            drop(delete());
            until("it is being deleted", || root.waiting.lock().len() == 1).await;
            let looking = look();
            others_go_on().await;
            looking
        } else {
            let looking = look();
            until("somebody looks for the bucket", || root.waiting.lock().len() == 1).await;
            *root.is_late.lock() = false;
            delete().join().await.unwrap();
            *root.is_late.lock() = true;
            root.answer();
            until("it is looked for again", || root.waiting.lock().len() == 1).await;
            looking
        };
        bench.kill().await;
        *root.is_late.lock() = false;
        root.answer();
        until("the bucket is gone", || root.root.bucket(&bucket).is_none()).await;
        *root.is_late.lock() = true;
        let (cache, request) = (bench.cache.clone(), put_of("key", incoming("value".into())));
        let putting = forebay_env::spawn(async move { cache.put(request).await });
        until("the write looks for it", || putting.is_finished() || !root.waiting.lock().is_empty()).await;
        others_go_on().await;
        *root.is_late.lock() = false;
        root.answer();
        // The process after it does not know whether the deletion is done.
        let refusal = if dies_before_the_answer { ErrorKind::Unavailable } else { ErrorKind::NoSuchBucket };
        assert_eq!(kind(putting.join().await), Some(refusal), "{dies_before_the_answer}");
        assert_eq!(bench.cache.status().dirty_objects, 0);
    }
}

/// It may still land, and would take along what is acknowledged until then.
#[tokio::test]
async fn a_bucket_whose_deletion_got_no_answer_takes_no_writes_until_that_is_settled() {
    for lands in [false, true] {
        let (bench, root, bucket) = with_late_root(Setup::new(WriteMode::WriteBack)).await;
        *root.loses_deletes.lock() = true;
        assert_eq!(kind(bench.cache.delete_bucket(&bucket).await), Some(ErrorKind::Unavailable));
        *root.loses_deletes.lock() = false;
        let put = async || kind(bench.cache.put(put_of("key", incoming("value".into()))).await);
        assert_eq!(put().await, Some(ErrorKind::Unavailable));
        assert_eq!(kind(bench.cache.delete_bucket(&bucket).await), Some(ErrorKind::BucketBusy));
        if lands {
            root.root.delete(&bucket).await.unwrap();
        }
        bench.clock.advance(bench.setup.settings.settle_time.0);
        assert_eq!(put().await, Some(ErrorKind::Unavailable));
        bench.clock.advance(Duration::from_millis(1));
        assert_eq!(put().await, lands.then_some(ErrorKind::NoSuchBucket));
    }
}

/// The client hears why its request failed.
#[tokio::test]
async fn a_bucket_that_was_not_deleted_is_told_even_if_its_mark_stays() {
    let (bench, root, bucket) = with_late_root(Setup::new(WriteMode::WriteBack)).await;
    root.root.bucket(&bucket).unwrap().put_outside("theirs", "value".into());
    *root.deletes_late.lock() = true;
    let (cache, deleted) = (bench.cache.clone(), bucket.clone());
    let deleting = forebay_env::spawn(async move { cache.delete_bucket(&deleted).await });
    until("it is being deleted", || root.is_waiting()).await;
    bench.disk.fail_writes(Some(std::io::ErrorKind::StorageFull));
    root.answer();
    assert_eq!(kind(deleting.join().await), Some(ErrorKind::BucketNotEmpty));
}

/// Who has looked for the bucket before it was deleted hears of it after that, and looks again.
#[tokio::test]
async fn a_bucket_that_is_found_while_it_is_deleted_takes_no_writes() {
    let (bench, root, bucket) = with_late_root(Setup::new(WriteMode::WriteBack)).await;
    *root.is_late.lock() = true;
    let (cache, looked_for) = (bench.cache.clone(), bucket.clone());
    let looking = forebay_env::spawn(async move { cache.bucket_exists(&looked_for).await });
    until("somebody looks for the bucket", || root.waiting.lock().len() == 1).await;
    *root.is_late.lock() = false;
    bench.cache.delete_bucket(&bucket).await.unwrap();

    *root.is_late.lock() = true;
    root.answer();
    until("it is looked for again", || root.waiting.lock().len() == 1).await;
    let (cache, request) = (bench.cache.clone(), put_of("key", incoming("value".into())));
    let putting = forebay_env::spawn(async move { cache.put(request).await });
    until("the write looks for it too", || putting.is_finished() || root.waiting.lock().len() == 2).await;
    *root.is_late.lock() = false;
    root.answer();
    assert_eq!(kind(putting.join().await), Some(ErrorKind::NoSuchBucket));
    assert!(!looking.join().await.unwrap());
    assert_eq!(bench.cache.status().dirty_objects, 0);
}

/// Somebody has deleted it past us. No request waits for that to be found out.
#[tokio::test]
async fn a_bucket_that_is_gone_from_the_under_store_is_forgotten_after_a_minute() {
    let (mut bench, root, bucket) = with_root(WriteMode::WriteBack).await;
    let settled = async |bench: &Bench| {
        let exists = bench.cache.bucket_exists(&bucket).await.unwrap();
        others_go_on().await;
        exists
    };
    bench.clock.advance(Duration::from_secs(60));
    assert!(settled(&bench).await, "it is looked for, and is there");
    root.delete(&bucket).await.unwrap();
    bench.clock.advance(Duration::from_millis(59_999));
    for _ in 0..2 {
        assert!(settled(&bench).await, "believed");
    }
    bench.clock.advance(Duration::from_millis(1));
    assert!(settled(&bench).await, "believed by the request that looks again");
    assert!(!settled(&bench).await);
    bench.restart().await;
    assert!(!settled(&bench).await);
}

/// Also those behind one that is completed, which only its client could still ask for.
#[tokio::test]
async fn uploads_go_with_their_bucket() {
    let (bench, root, bucket) = with_root(WriteMode::WriteBack).await;
    let path = |key: &str| ObjectPath::parse("made", key).expect("a path");
    let begin = async |key: &str| {
        let request = create_upload(path(key));
        let upload = UploadRef { path: path(key), upload_id: bench.cache.create_upload(request).await.unwrap() };
        let etag = bench.cache.put_part(&upload, 1, incoming("part".into())).await.unwrap().etag;
        (upload, vec![CompletePart { number: 1, etag, checksums: Vec::new() }])
    };
    let (upload, parts) = begin("a").await;
    let (checksums, conditions) = (Vec::new(), Conditions::default());
    let complete = CompleteUpload { upload, parts, checksums, checksum_kind: None, size: None, conditions };
    bench.cache.complete_upload(complete).await.unwrap();
    let (open, _) = begin("b").await;
    bench.cache.delete(&path("a"), &Conditions::default()).await.unwrap();
    assert!(bench.cache.status().pinned_bytes > 0);
    bench.cache.delete_bucket(&bucket).await.unwrap();
    assert!(root.bucket(&bucket).is_none());
    assert_eq!(bench.cache.status().pinned_bytes, 0);
    bench.cache.create_bucket(&bucket).await.unwrap();
    let all = ListUploads { limit: 1000, ..ListUploads::default() };
    assert!(bench.cache.list_uploads(&bucket, &all).await.unwrap().uploads.is_empty());
    let late = bench.cache.put_part(&open, 2, incoming("part".into())).await;
    assert_eq!(kind(late), Some(ErrorKind::NoSuchUpload));
    assert!(bench.store.value(&records::part_key(&open.upload_id, 1)).is_none());
}

/// Another program has emptied the bucket, and writes to the next one of this name.
#[tokio::test]
async fn copies_go_with_their_bucket() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough] {
        let (bench, root, bucket) = with_root(mode).await;
        bench.cache.put(put_of("key", incoming("ours".into()))).await.unwrap();
        bench.drain().await;
        root.bucket(&bucket).unwrap().delete_outside("key");
        bench.cache.delete_bucket(&bucket).await.unwrap();
        bench.cache.create_bucket(&bucket).await.unwrap();
        root.bucket(&bucket).unwrap().put_outside("key", "theirs".into());
        let path = ObjectPath::parse("made", "key").unwrap();
        let body = bench.cache.get(GetObject::whole(path)).await.unwrap();
        assert_eq!(collect(body.stream).await.unwrap(), "theirs", "{mode:?}");
    }
}

/// The copy is on its way to the disk while the bucket is deleted.
#[tokio::test]
async fn a_copy_that_is_being_made_goes_with_its_bucket() {
    let (bench, root, bucket) = with_root(WriteMode::WriteThrough).await;
    let under = root.bucket(&bucket).unwrap();
    under.put_outside("key", "former".into());
    under.set_mood(Mood::Hang);
    let path = ObjectPath::parse("made", "key").unwrap();
    let mut reading = bench.cache.get(GetObject::whole(path.clone()));
    assert!((&mut reading).now_or_never().is_none(), "the under store is asked");
    under.set_mood(Mood::Well);
    assert!((&mut reading).now_or_never().is_none(), "the copy is being written");
    under.delete_outside("key");
    bench.cache.delete_bucket(&bucket).await.unwrap();
    bench.cache.create_bucket(&bucket).await.unwrap();
    let body = reading.await.unwrap();
    assert_eq!(collect(body.stream).await.unwrap(), "former", "it has begun before");
    assert_eq!(kind(bench.cache.get(GetObject::whole(path)).await), Some(ErrorKind::NotFound));
}

/// The deletion has been carried out all the same, and another program makes the next bucket of this name.
#[tokio::test]
async fn copies_go_with_a_bucket_whose_deletion_got_no_answer() {
    let setup = Setup::new(WriteMode::WriteThrough).policy(|rule| rule.metadata_ttl = Some(Period::from_secs(3600)));
    let (bench, root, bucket) = with_late_root(setup).await;
    root.root.bucket(&bucket).unwrap().put_outside("key", "former".into());
    let get = async || {
        let path = ObjectPath::parse("made", "key").unwrap();
        collect(bench.cache.get(GetObject::whole(path)).await.unwrap().stream).await.unwrap()
    };
    assert_eq!(get().await, "former");
    root.root.bucket(&bucket).unwrap().delete_outside("key");
    *root.loses_deletes.lock() = true;
    assert_eq!(kind(bench.cache.delete_bucket(&bucket).await), Some(ErrorKind::Unavailable));
    root.root.delete(&bucket).await.unwrap();
    root.root.create(&bucket).await.unwrap();
    root.root.bucket(&bucket).unwrap().put_outside("key", "next".into());
    bench.clock.advance(bench.setup.settings.settle_time.0 + Duration::from_millis(1));
    assert_eq!(get().await, "next");
}

/// Neither served nor persisted, it would be lost without a word.
#[tokio::test]
async fn what_waits_for_an_under_store_that_is_no_longer_named_refuses_the_start() {
    for (mode, waits) in [(WriteMode::WriteBack, true), (WriteMode::Transient, true), (WriteMode::WriteThrough, false)]
    {
        let (mut bench, root, bucket) = with_root(mode).await;
        bench.put("mounted", "value").await.unwrap();
        let path = |key: &str| ObjectPath::parse("made", key).expect("a path");
        let put = |key: &'static str| bench.cache.put(put_of(key, incoming("value".into())));
        put("deleted").await.unwrap();
        if mode == WriteMode::WriteBack {
            bench.drain().await;
        }
        root.bucket(&bucket).unwrap().set_mood(match waits {
            true => Mood::Refuse(forebay_ufs::ErrorKind::Unavailable),
            false => Mood::Well,
        });
        put("a").await.unwrap();
        put("b").await.unwrap();
        bench.cache.delete(&path("deleted"), &Conditions::default()).await.unwrap();
        bench.close().await;
        let named = bench.setup.root.take();
        if waits {
            let error = bench.refusal().await;
            assert_eq!(error.kind, ErrorKind::NoSuchBucket, "{error}");
            let told = "2 objects (10 B) and 1 delete of the bucket made are nowhere but here";
            assert!(error.context.starts_with(told), "{error}");
            // A refused start changes nothing.
            bench.setup.root = named;
        }
        root.bucket(&bucket).unwrap().set_mood(Mood::Well);
        bench.reopen().await;
        if waits {
            assert_eq!(bench.cache.tags(&path("a")).await.unwrap(), Tags::default(), "it is there");
        }
        assert_eq!(bench.get("mounted").await.unwrap(), "value");
    }
}
