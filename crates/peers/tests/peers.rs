//! Two workers that talk over sockets.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_cache::{
    Attributes, ByteStream, CacheState, CacheTier, CachedObject, CachedRange, ChangesWanted, CleanCopy, CleanRange,
    CleanTerms, Conditions, CopyId, DeletionStep, Error as CacheError, ErrorKind, Fate, GetObject, HeldBytes,
    HomeChanges, HomeRecords, HotObject, Incoming as Upload, LeaseRequest, LeaseTerms, Needs, NewCopy, ObjectBody,
    ObjectDetail, ObjectHead, OtherWorkers, PutObject, ReadLease, Reader, RecordRange, ShareFindings, ShareReport,
    SlotCount, SlotSet, Status, TagCondition, Taker, UndeliverableEnd, UndeliverablePage, Written,
};
use forebay_env::clock::ManualClock;
use forebay_env::{Env, Requester};
use forebay_peers::{
    Answers, ClientRequests, ClusterKey, Error, Identity, Members, Origin, PeerBody, PeerServer, Peers, RequestBody,
    WorkerSettings,
};
use forebay_types::{BucketName, ByteRange, Checksums, ETag, Generation, ObjectInfo, ObjectPath, StorageState, Tags};
use futures::{StreamExt, TryStreamExt};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

#[path = "peers/strangers.rs"]
mod strangers;
#[path = "peers/undeliverable.rs"]
mod undeliverable;

const KEY: &str = "a key that only workers have, 123";

fn identity(key: &str, cluster: &str) -> Identity {
    Identity::new(&ClusterKey::parse(&key.replace(' ', "-")).expect("a key"), cluster)
}

/// What a worker answers in these tests.
#[derive(Default)]
struct Worker {
    held: Mutex<HashMap<(Bytes, u64), Stored>>,
    /// Requests of clients.
    seen: Mutex<Vec<Seen>>,
    /// Writes and deletes, as text.
    done: Mutex<Vec<String>>,
    /// Copies that it has taken, and their bytes.
    copies: Mutex<Vec<(CopyId, ObjectPath, Vec<u8>)>>,
    /// On whose behalf reads were asked for, and pieces of `held` were read.
    asked: Arc<Mutex<Vec<Requester>>>,
    let_go: tokio::sync::Notify,
    /// Requests that wait for that.
    waiting: AtomicUsize,
}

struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Stored {
    size: u64,
    metadata: Bytes,
    annex: Bytes,
    pieces: Vec<Bytes>,
    /// Sends no more after the pieces.
    hangs: bool,
}

struct Seen {
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Bytes,
    origin: Origin,
}

#[async_trait]
impl Answers for Worker {
    async fn held(&self, key: &[u8], generation: Generation) -> forebay_cache::Result<Option<HeldBytes>> {
        let found = self.held.lock().expect("no panic").get(&(Bytes::copy_from_slice(key), generation.0)).cloned();
        let asked = Arc::clone(&self.asked);
        Ok(found.map(|Stored { size, metadata, annex, pieces, hangs }| {
            let sent = futures::stream::iter(pieces.into_iter().map(Ok));
            let sent = sent.inspect(move |_| asked.lock().expect("no panic").push(Requester::present()));
            let stream = match hangs {
                true => sent.chain(futures::stream::pending()).boxed(),
                false => sent.boxed(),
            };
            HeldBytes { size, metadata, annex, stream }
        }))
    }

    async fn records(&self, range: &RecordRange) -> forebay_cache::Result<HomeRecords> {
        // One that has nothing else to say of slots.
        Err(CacheError::new(ErrorKind::Unavailable, format!("asked for {}", range.limit)))
    }

    fn changes(&self, wanted: &ChangesWanted) -> forebay_cache::Result<HomeChanges> {
        Err(CacheError::new(ErrorKind::Unavailable, format!("asked: {wanted:?}")))
    }

    async fn put(&self, request: PutObject) -> forebay_cache::Result<Written> {
        let PutObject { path, body, attributes, conditions } = request;
        let read: Vec<Bytes> = body.stream.try_collect().await?;
        let read = String::from_utf8(read.concat()).expect("text");
        let told = format!("put {path} {read} {:?} {:?} {:?}", body.md5, attributes.user, conditions.if_none_match);
        self.done.lock().expect("no panic").push(told);
        let (etag, checksums) = (ETag::new("written"), Checksums::none());
        Ok(Written { etag, last_modified_ms: 5, size: body.size, checksums })
    }

    async fn delete(&self, path: &ObjectPath, conditions: &Conditions) -> forebay_cache::Result<()> {
        self.done.lock().expect("no panic").push(format!("delete {path} {:?}", conditions.if_match));
        let error = CacheError::new(ErrorKind::PreconditionFailed, "it is another one");
        Err(CacheError { retry_after: Some(Duration::from_millis(1500)), ..error })
    }

    async fn get(&self, request: GetObject) -> forebay_cache::Result<ObjectBody> {
        self.asked.lock().expect("no panic").push(Requester::present());
        Err(CacheError::new(ErrorKind::NotFound, format!("no {} {:?}", request.path, request.range)))
    }

    async fn deletion_step(&self, bucket: &BucketName, step: DeletionStep) -> forebay_cache::Result<SlotSet> {
        Err(CacheError::new(ErrorKind::BucketNotEmpty, format!("{step:?} of {bucket}")))
    }

    async fn detail(&self, path: &ObjectPath) -> forebay_cache::Result<ObjectDetail> {
        Ok(detail(path))
    }

    async fn cached(
        &self,
        bucket: &BucketName,
        objects: Vec<CachedObject>,
    ) -> forebay_cache::Result<Vec<CachedObject>> {
        let found = |object: CachedObject| CachedObject { etag: bucket.to_string(), cached_bytes: 5, ..object };
        Ok(objects.into_iter().map(found).collect())
    }

    async fn job_shares(&self) -> forebay_cache::Result<Vec<ShareReport>> {
        Ok(vec![share()])
    }

    async fn job_findings(&self, id: &str, after: u64, limit: usize) -> forebay_cache::Result<ShareFindings> {
        Err(forebay_cache::Error::new(ErrorKind::NotFound, format!("{id} {after} {limit}")))
    }

    async fn undeliverable(
        &self,
        prefix: &str,
        after: Option<&ObjectPath>,
        limit: usize,
    ) -> forebay_cache::Result<UndeliverablePage> {
        let next = Some(format!("{prefix} {:?} {limit}", after.map(ToString::to_string)));
        Ok(UndeliverablePage { next, ..UndeliverablePage::default() })
    }

    async fn end_undeliverable(
        &self,
        path: &ObjectPath,
        generation: u64,
        end: &UndeliverableEnd,
    ) -> forebay_cache::Result<()> {
        match end {
            UndeliverableEnd::Keep => Ok(()),
            UndeliverableEnd::Discard => Err(CacheError::new(ErrorKind::Conflict, format!("{generation} of {path}"))),
            UndeliverableEnd::Rename(to) => Err(CacheError::new(ErrorKind::PreconditionFailed, format!("to {to}"))),
        }
    }

    fn room_for_copy(&self, _: &ObjectPath, bytes: u64) -> forebay_cache::Result<()> {
        match bytes {
            ..10 => Ok(()),
            _ => Err(forebay_cache::Error::new(ErrorKind::SlowDown, "no room")),
        }
    }

    async fn take_copy(&self, copy: NewCopy) -> forebay_cache::Result<bool> {
        if !copy.pieces.is_empty() {
            return Ok(false);
        }
        let bytes: Vec<Bytes> = copy.bytes.stream.try_collect().await?;
        self.copies.lock().expect("no panic").push((copy.id, copy.path, bytes.concat()));
        Ok(true)
    }

    async fn fates(&self, copies: &[CopyId]) -> Vec<Fate> {
        let known = self.copies.lock().expect("no panic");
        let fate = |id| if known.iter().any(|(known, ..)| known == id) { Fate::Named } else { Fate::Gone };
        copies.iter().map(fate).collect()
    }

    fn has_copies(&self, copies: &[CopyId]) -> Vec<bool> {
        let known = self.copies.lock().expect("no panic");
        copies.iter().map(|id| known.iter().any(|(known, ..)| known == id)).collect()
    }

    async fn read_lease(&self, request: LeaseRequest) -> forebay_cache::Result<Option<ReadLease>> {
        let bytes = Bytes::from_static(b"leased");
        if request.path.key.as_str() != "leased" {
            return Ok(None);
        }
        let body = request.known.is_none().then(|| futures::stream::iter([Ok(bytes.clone())]).boxed());
        Ok(Some(ReadLease { terms: terms(bytes.len() as u64), body }))
    }

    fn end_leases(&self, process: u64, paths: &[ObjectPath]) -> bool {
        process == 7 && paths == [ObjectPath::parse("bucket", "leased").expect("a path")]
    }

    async fn clean_copy(&self, path: &ObjectPath, bytes_max: u64) -> forebay_cache::Result<Option<CleanCopy>> {
        if path.key.as_str() != "clean" {
            return Ok(None);
        }
        let body = (bytes_max >= 5).then(|| futures::stream::iter([Ok(Bytes::from_static(b"clean"))]).boxed());
        Ok(Some(CleanCopy { terms: clean_terms(), body }))
    }

    fn clean_bytes(&self, wanted: &CleanRange) -> Option<ByteStream> {
        let bytes = Bytes::from_static(b"clean").slice(wanted.range.start as usize..wanted.range.end as usize);
        (wanted.remote_etag.as_str() == "remote").then(|| futures::stream::iter([Ok(bytes)]).boxed())
    }

    async fn hot_objects(&self, slots: &SlotSet) -> Vec<HotObject> {
        let found = HotObject { path: path(), cached: vec![ByteRange::new(5, 9)] };
        if slots.is_empty() { Vec::new() } else { vec![found] }
    }

    fn status(&self) -> Status {
        Status { dirty_objects: 7, ..Status::default() }
    }

    fn needs(&self) -> forebay_cache::Result<Needs> {
        let slots = SlotSet::none(SlotCount::DEFAULT).others();
        Ok(Needs { slots, copies_wanted: 3, complete_at: None, takes_over_from: ["a".to_owned()].into() })
    }

    async fn head(&self, request: GetObject) -> forebay_cache::Result<ObjectHead> {
        Err(CacheError::new(ErrorKind::NotFound, format!("no {}", request.path)))
    }

    async fn tags(&self, path: &ObjectPath) -> forebay_cache::Result<Tags> {
        Ok(Tags::from([("of".to_owned(), path.to_string())]))
    }
}

/// Some fields have nothing in them: these are left out where it is sent.
fn detail(path: &ObjectPath) -> ObjectDetail {
    ObjectDetail {
        path: path.to_string(),
        size: 7,
        etag: "tag".to_owned(),
        content_type: None,
        last_modified_ms: 5,
        state: CacheState::Dirty,
        tier: CacheTier::Disk,
        cached_bytes: 7,
        cached_ranges: vec![CachedRange { start: 0, end: 7 }],
        page_size: 4096,
        replicas: 2,
        generation: Some(3),
        remote_etag: None,
        dirty_since_ms: Some(4),
        next_try_in_ms: None,
        user_metadata: [("color".to_owned(), "blue".to_owned())].into(),
        tags: BTreeMap::new(),
        persist_events: Vec::new(),
    }
}

fn terms(size: u64) -> LeaseTerms {
    let head = ObjectHead {
        info: Arc::new(ObjectInfo::new(size, ETag::new("leased"), 5)),
        state: StorageState::Dirty,
        cached_bytes: size,
        range: ByteRange::of_size(size),
        is_partial: false,
        generation: Some(Generation(9)),
    };
    LeaseTerms { lasts: Duration::from_millis(4321), head, remote_etag: Some(ETag::new("remote")) }
}

/// A body that breaks off. It may say how long it would have been.
struct Breaks {
    length: Option<u64>,
}

impl http_body::Body for Breaks {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(Some(Err(io::Error::other("it breaks"))))
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// What a request may ask of the worker that answers it: to read nothing for so many seconds, to wait for `let_go`, to
/// send so many bytes, to break off with or without (0) a length.
const PAUSE: &str = "x-pause";
const WAIT: &str = "x-wait";
const LENGTH: &str = "x-length";
const BREAKS: &str = "x-breaks";

fn number(headers: &HeaderMap, name: &str) -> Option<usize> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// As the kernel counts it.
async fn pause(seconds: usize) {
    Env::real().clock.sleep(Duration::from_secs(seconds as u64)).await;
}

#[async_trait]
impl ClientRequests for Worker {
    async fn answer(&self, request: Request<RequestBody>, origin: Origin) -> io::Result<Response<PeerBody>> {
        let (parts, body) = request.into_parts();
        if let Some(seconds) = number(&parts.headers, PAUSE) {
            pause(seconds).await;
        }
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let target = parts.uri.to_string();
        let (wait, length) = (number(&parts.headers, WAIT), number(&parts.headers, LENGTH));
        let breaks = number(&parts.headers, BREAKS);
        self.seen.lock().expect("no panic").push(Seen {
            method: parts.method,
            target,
            headers: parts.headers,
            body: body.clone(),
            origin,
        });
        if wait.is_some() {
            let _waits = Waits::new(&self.waiting);
            self.let_go.notified().await;
        }
        let answer = Response::builder().status(StatusCode::IM_A_TEAPOT).header("etag", "\"x\"");
        let answer = answer.header("connection", "close").header("forebay-peer-refused-not", "1");
        let body = match length {
            Some(length) => Bytes::from(vec![7; length]),
            None => body,
        };
        let body = match breaks {
            Some(length) => Breaks { length: (length > 0).then_some(length as u64) }.boxed_unsync(),
            None => Full::new(body).map_err(|never| match never {}).boxed_unsync(),
        };
        Ok(answer.body(body).expect("an answer"))
    }
}

struct Book(Vec<(&'static str, SocketAddr)>, CancellationToken);

fn book(workers: &[(&'static str, SocketAddr)]) -> Book {
    Book(workers.to_vec(), CancellationToken::new())
}

#[async_trait]
impl Members for Book {
    fn address(&self, worker: &str) -> Option<String> {
        self.0.iter().find(|(name, _)| *name == worker).map(|(_, address)| address.to_string())
    }

    fn home(&self, _hash: u64) -> Option<String> {
        Some("b".to_owned())
    }

    fn are_known(&self) -> bool {
        true
    }

    fn others(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn takers(&self) -> Vec<Taker> {
        self.others().into_iter().map(|worker| Taker { worker, life: 1 }).collect()
    }

    fn is_removed(&self, worker: &str) -> bool {
        worker == "removed"
    }

    fn away(&self) -> Option<String> {
        None
    }

    /// No worker lives any more when the token is cancelled.
    async fn until_gone(&self, _worker: &str) {
        self.1.cancelled().await;
    }
}

/// Worker `b`, which answers.
struct Server {
    address: SocketAddr,
    answers: Arc<Worker>,
    stop: CancellationToken,
    cut: CancellationToken,
    ended: forebay_env::Task<()>,
}

fn settings() -> WorkerSettings {
    WorkerSettings { clock_ms: 7, digests: [("a".to_owned(), "b".to_owned())].into() }
}

fn server(identity: Identity, worker: &Arc<Worker>) -> PeerServer {
    PeerServer::new(Env::real(), identity, "b", Arc::clone(worker) as _, Arc::clone(worker) as _, Arc::new(settings))
}

async fn start() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let answers = Arc::new(Worker::default());
    let server = server(identity(KEY, "lake"), &answers);
    let (stop, cut) = (CancellationToken::new(), CancellationToken::new());
    let ended = forebay_env::spawn(server.run(listener, stop.clone(), cut.clone()));
    Server { address, answers, stop, cut, ended }
}

impl Server {
    /// Another worker, with an identity of its own; it looks for `b` here.
    fn peer(&self, identity: &Identity) -> Peers {
        Peers::new(&Env::real(), identity, "a", Arc::new(book(&[("b", self.address), ("c", self.address)])))
    }

    fn store(&self, key: &'static str, stored: Stored) {
        self.answers.held.lock().expect("no panic").insert((Bytes::from_static(key.as_bytes()), 7), stored);
    }
}

fn stored(pieces: &[&'static [u8]]) -> Stored {
    let pieces: Vec<_> = pieces.iter().map(|piece| Bytes::from_static(piece)).collect();
    let size = pieces.iter().map(|piece| piece.len() as u64).sum();
    let (metadata, annex) = (Bytes::from_static(b"about it"), Bytes::from_static(b"in memory"));
    Stored { size, metadata, annex, pieces, hangs: false }
}

async fn open(peers: &Peers, worker: &str, key: &'static str) -> forebay_cache::Result<Option<HeldBytes>> {
    peers.open(worker, &Bytes::from_static(key.as_bytes()), Generation(7)).await
}

async fn read(held: HeldBytes) -> forebay_cache::Result<Vec<u8>> {
    held.stream
        .try_fold(Vec::new(), |mut all, piece| async move {
            all.extend_from_slice(&piece);
            Ok(all)
        })
        .await
}

#[tokio::test]
async fn bytes_come_with_what_is_known_of_them() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    server.store("o/some", stored(&[b"first", b"", b"second"]));
    server.store("o/nothing in it", Stored { metadata: Bytes::new(), annex: Bytes::new(), ..stored(&[]) });
    let large = Bytes::from(vec![7; 1 << 20]);
    server.store("o/large", Stored { size: 5 << 20, pieces: vec![large; 5], ..stored(&[]) });
    let held = open(&peers, "b", "o/some").await.expect("an answer").expect("it is there");
    assert_eq!((held.size, &held.metadata[..], &held.annex[..]), (11, &b"about it"[..], &b"in memory"[..]));
    assert_eq!(read(held).await.expect("bytes"), b"firstsecond");
    let held = open(&peers, "b", "o/nothing in it").await.expect("an answer").expect("it is there");
    assert_eq!((held.size, held.metadata.len(), held.annex.len()), (0, 0, 0));
    assert!(read(held).await.expect("bytes").is_empty());
    let held = open(&peers, "b", "o/large").await.expect("an answer").expect("it is there");
    assert!(read(held).await.expect("bytes") == vec![7; 5 << 20]);
    assert!(open(&peers, "b", "o/other").await.expect("an answer").is_none());
    assert!(open(&peers, "removed", "o/some").await.expect("it is known without a question").is_none());
}

/// `None` from a worker means that the bytes are lost: no other answer may look like it.
#[tokio::test]
async fn only_the_worker_that_was_meant_says_that_it_has_nothing() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    for worker in ["c", "unknown"] {
        let error = open(&peers, worker, "o/some").await.err().expect("that worker is not there");
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    }
}

/// A share of a job. It leaves fields out.
fn share() -> ShareReport {
    let progress =
        r#"{"objectsSeen":5,"objectsDone":3,"bytesDone":4,"objectsSkipped":2,"objectsFailed":0,"after":"/b/k"}"#;
    let share = format!(r#"{{"passes":1,"progress":{progress},"findings":2}}"#);
    serde_json::from_str(&format!(r#"{{"id":"1","state":"running","share":{share}}}"#)).expect("a share")
}

fn path() -> ObjectPath {
    ObjectPath::parse("bucket", "a/key").expect("a path")
}

#[tokio::test]
async fn writes_go_to_the_home_with_all_that_the_client_said() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    let upload = |trailers| Upload {
        stream: futures::stream::iter([Ok(Bytes::from_static(b"some ")), Ok(Bytes::from_static(b"bytes"))]).boxed(),
        size: 10,
        md5: Some([7; 16]),
        sha256: None,
        checksums: Vec::new(),
        compute: Vec::new(),
        trailers,
    };
    let put = |body| PutObject {
        path: path(),
        body,
        attributes: Attributes { user: [("color".to_owned(), "blue".to_owned())].into(), ..Attributes::default() },
        conditions: Conditions { if_none_match: Some(TagCondition::Any), ..Conditions::default() },
    };
    let written = peers.put("b", put(upload(None))).await.expect("it is written");
    assert_eq!((written.etag.as_str(), written.size, written.last_modified_ms), ("written", 10, 5));
    let trailers: forebay_cache::Trailers = Box::new(|| Ok(Vec::new()));
    let error = peers.put("b", put(upload(Some(trailers)))).await.expect_err("trailers can't be sent");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    let conditions = Conditions { if_match: Some(TagCondition::OneOf(vec![ETag::new("x")])), ..Conditions::default() };
    let error = peers.delete("b", &path(), &conditions).await.expect_err("it says so");
    assert_eq!((error.kind, error.retry_after), (ErrorKind::PreconditionFailed, Some(Duration::from_millis(1500))));
    assert_eq!(error.to_string(), "it is another one");
    let done = server.answers.done.lock().expect("no panic");
    assert_eq!(done.len(), 2);
    assert!(done[0].starts_with("put bucket/a/key some bytes Some([7, 7,") && done[0].contains("blue"), "{done:?}");
    assert!(done[0].ends_with("Some(Any)") && done[1].starts_with("delete bucket/a/key Some(OneOf("), "{done:?}");
}

#[tokio::test]
async fn reads_come_from_the_home() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    assert_eq!(
        peers.tags("b", &path()).await.expect("tags"),
        Tags::from([("of".to_owned(), "bucket/a/key".to_owned())])
    );
    assert_eq!(peers.detail("b", &path()).await.expect("a detail"), detail(&path()));
    let (state, tier) = (CacheState::Clean, CacheTier::UnderStore);
    let (key, etag) = ("a/key".to_owned(), "tag".to_owned());
    let listed = CachedObject { key, size: 7, etag, last_modified_ms: 5, state, tier, cached_bytes: 0 };
    assert_eq!(peers.job_shares("b").await.expect("its shares"), [share()]);
    let problem = peers.job_findings("b", "id", 7, 20).await.expect_err("there is none");
    assert_eq!((problem.kind, problem.to_string().contains("id 7 20")), (ErrorKind::NotFound, true), "{problem}");
    let found = peers.cached("b", &path().bucket, vec![listed.clone()]).await.expect("what it holds");
    assert_eq!(found, [CachedObject { etag: "bucket".to_owned(), cached_bytes: 5, ..listed }]);
    let get = || GetObject::whole(path());
    let errors = [peers.get("b", get()).await.err(), peers.head("b", get()).await.err()];
    assert!(errors.iter().flatten().filter(|error| error.kind == ErrorKind::NotFound).count() == 2, "{errors:?}");
    let error = peers.tags("c", &path()).await.expect_err("another worker answers there");
    assert_eq!(error.kind, ErrorKind::Unavailable);
}

/// Requesters share places at disks and under stores there as they do here.
#[tokio::test]
async fn a_question_is_answered_on_behalf_of_who_asks() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    server.store("o/some", stored(&[b"some bytes"]));
    for requester in [Requester::named("key"), Requester::NOBODY] {
        assert!(requester.gets(peers.get("b", GetObject::whole(path()))).await.is_err(), "there is none");
        let held = requester.gets(open(&peers, "b", "o/some")).await.expect("an answer").expect("it is there");
        assert_eq!(read(held).await.expect("bytes"), b"some bytes");
        assert_eq!(std::mem::take(&mut *server.answers.asked.lock().expect("no panic")), [requester; 2]);
    }
}

#[tokio::test]
async fn a_worker_tells_how_it_stands() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    assert_eq!(peers.status("b").await.expect("a status").dirty_objects, 7);
    let needs = peers.needs("b").await.expect("an answer");
    assert!(
        needs.copies_wanted == 3 && needs.takes_over_from.contains("a") && needs.slots.others().is_empty(),
        "{needs:?}"
    );
    let settings = settings();
    assert_eq!(peers.settings("b").await.expect("an answer"), settings);
    let address = server.address.to_string();
    assert_eq!(peers.settings_at("b", &address).await.expect("an answer"), settings);
    peers.settings_at("d", &address).await.expect_err("another worker answers there");
    let (none, all) = (SlotSet::none(SlotCount::DEFAULT), needs.slots);
    assert_eq!(peers.hot_objects("b", &none).await.expect("an answer"), []);
    let hot = HotObject { path: path(), cached: vec![ByteRange::new(5, 9)] };
    assert_eq!(peers.hot_objects("b", &all).await.expect("an answer"), [hot]);
    let bucket = BucketName::new("photos").expect("a name");
    let refused = peers.deletion_step("b", &bucket, DeletionStep::Quiesce(5)).await.expect_err("it has objects");
    assert_eq!((refused.kind, &refused.context[..]), (ErrorKind::BucketNotEmpty, "Quiesce(5) of photos"));
    assert_eq!(peers.status("c").await.expect_err("another worker answers there").kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_worker_takes_copies_and_is_asked_for_them() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    let id = |key: &'static [u8]| CopyId { key: Bytes::from_static(key), generation: Generation(7) };
    let copy = |pieces, text: &'static [u8], size| NewCopy {
        id: id(b"o/a/key"),
        path: path(),
        pieces,
        bytes: HeldBytes {
            size,
            metadata: Bytes::from_static(b"metadata"),
            annex: Bytes::from_static(b"annex"),
            stream: futures::stream::once(async move { Ok(Bytes::from_static(text)) }).boxed(),
        },
    };
    assert!(peers.room_for_copy("b", &path(), 9).await.is_ok());
    assert_eq!(peers.room_for_copy("b", &path(), 10).await.expect_err("no room").kind, ErrorKind::SlowDown);
    // Bytes that the worker has are not sent.
    assert!(!peers.take_copy("b", copy(vec![id(b"p/1")], b"", 9)).await.expect("an answer"));
    let error = peers.take_copy("b", copy(Vec::new(), b"some", 9)).await.expect_err("it is cut off");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(peers.take_copy("b", copy(Vec::new(), b"some text", 9)).await.expect("an answer"));
    let taken = server.answers.copies.lock().expect("no panic").clone();
    assert_eq!(taken, [(id(b"o/a/key"), path(), b"some text".to_vec())]);
    let fates = peers.fates("b", &[id(b"o/other"), id(b"o/a/key")]).await.expect("an answer");
    assert_eq!(fates, [Fate::Gone, Fate::Named]);
    let error =
        peers.take_copy("c", copy(Vec::new(), b"some text", 9)).await.expect_err("another worker answers there");
    assert_eq!(error.kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_worker_that_is_not_sure_of_its_slots_says_why() {
    let server = start().await;
    let range = RecordRange { from: b"o/a".to_vec(), to: b"o/b".to_vec(), limit: 77 };
    let error = server.peer(&identity(KEY, "lake")).records("b", &range).await.expect_err("it answers so");
    assert!(error.kind == ErrorKind::Unavailable && error.to_string().contains("asked for 77"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_cut_or_too_short_is_an_error() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    server.store("o/short", Stored { size: 100, ..stored(&[b"ten bytes!"]) });
    // It may be noticed before the answer begins.
    let all = async { read(open(&peers, "b", "o/short").await?.expect("it is there")).await };
    assert_eq!(all.await.expect_err("ninety bytes are missing").kind, ErrorKind::Unavailable);
    server.store("o/hangs", Stored { size: 100, hangs: true, ..stored(&[b"ten bytes!"]) });
    let held = open(&peers, "b", "o/hangs").await.expect("an answer").expect("it is there");
    server.cut.cancel();
    assert_eq!(read(held).await.expect_err("the worker has ended").kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_worker_that_hangs_is_given_up() {
    let server = start().await;
    let (env, clock) = Env::simulated(1);
    let answering = Arc::new(book(&[("b", server.address)]));
    let peers = Peers::new(&env, &identity(KEY, "lake"), "a", answering);
    server.store("o/hangs", Stored { size: 100, hangs: true, ..stored(&[b"ten bytes!"]) });
    let held = open(&peers, "b", "o/hangs").await.expect("an answer").expect("it is there");
    let error = given_up(&clock, read(held)).await.expect_err("nothing more comes");
    assert!(error.to_string().contains("worker b sends no more"), "{error}");
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let book = book(&[("b", silent.local_addr().expect("an address"))]);
    let gone = book.1.clone();
    let peers = Peers::new(&env, &identity(KEY, "lake"), "a", Arc::new(book));
    let error = given_up(&clock, open(&peers, "b", "o/some")).await.err().expect("nothing comes");
    assert!(error.to_string().contains("worker b can't be reached"), "{error}");
    // Its lease ends, and no time passes.
    let (error, ()) = tokio::join!(open(&peers, "b", "o/some"), async { gone.cancel() });
    let error = error.err().expect("nothing comes");
    assert!(error.to_string().contains("worker b has left the cluster"), "{error}");
}

/// Lets simulated time pass until something ends.
async fn given_up<T>(clock: &ManualClock, wait: impl Future<Output = T>) -> T {
    let mut wait = std::pin::pin!(wait);
    loop {
        match tokio::time::timeout(Duration::from_millis(5), &mut wait).await {
            Ok(ended) => return ended,
            Err(_) => clock.advance(Duration::from_millis(500)),
        }
    }
}

#[tokio::test]
async fn who_does_not_have_the_key_is_not_let_in() {
    let server = start().await;
    server.store("o/some", stored(&[b"secret"]));
    for stranger in [identity("another key of at least 32 letters", "lake"), identity(KEY, "pond")] {
        let error = open(&server.peer(&stranger), "b", "o/some").await.err().expect("it has no key");
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    }
    // Neither does plain HTTP.
    let mut stream = TcpStream::connect(server.address).await.expect("a connection");
    let request = b"GET / HTTP/1.1\r\nforebay-peer-to: b\r\nforebay-peer-message: ask\r\n\r\n";
    stream.write_all(request).await.expect("it is sent");
    let mut answer = Vec::new();
    // The connection may be reset.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.windows(6).any(|text| text == b"secret" || text == b"HTTP/1"), "{answer:?}");
}

fn origin() -> Origin {
    Origin { ip: Some("192.0.2.7".parse().expect("an address")), is_encrypted: false, tls: None }
}

fn put(body: &'static [u8]) -> Request<PeerBody> {
    let request = Request::put("/bucket/a%2Fb//c?partNumber=1&uploadId=x").header("host", "s3.example.com:9000");
    let request = request.header("connection", "x-odd").header("x-odd", "1").header("content-length", body.len());
    let request = request.header("forebay-peer-client-ip", "10.0.0.1");
    request.body(Full::from(body).map_err(|never| match never {}).boxed_unsync()).expect("a request")
}

#[tokio::test]
async fn requests_of_clients_are_passed_on_whole() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    let answer = peers.forward("b", put(b"some bytes"), &origin()).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::IM_A_TEAPOT);
    assert_eq!(answer.headers()["etag"], "\"x\"");
    assert!(answer.headers().keys().all(|name| name != "connection" && !name.as_str().starts_with("forebay-")));
    assert_eq!(answer.into_body().collect().await.expect("a body").to_bytes(), &b"some bytes"[..]);
    let get = Request::get("http://s3.example.com/bucket/k").header("host", "s3.example.com");
    let get = get.body(Full::default().map_err(|never| match never {}).boxed_unsync()).expect("a request");
    peers.forward("b", get, &origin()).await.expect("an answer");
    let seen = server.answers.seen.lock().expect("no panic");
    let [put, get] = &seen[..] else { panic!("two requests") };
    assert_eq!((&put.method, put.target.as_str()), (&Method::PUT, "/bucket/a%2Fb//c?partNumber=1&uploadId=x"));
    let names: Vec<_> = put.headers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert_eq!((&put.headers["connection"], &put.headers["x-odd"]), (&"x-odd".parse().unwrap(), &"1".parse().unwrap()));
    assert_eq!((&put.body[..], &put.origin), (&b"some bytes"[..], &origin()));
    assert_eq!((&get.method, get.target.as_str(), get.headers.len()), (&Method::GET, "/bucket/k", 1));
}

fn body(length: usize) -> PeerBody {
    Full::from(vec![7; length]).map_err(|never| match never {}).boxed_unsync()
}

/// A request that asks something of the worker that answers it.
fn get(header: &str, value: usize) -> Request<PeerBody> {
    Request::get(format!("/bucket/{value}")).header(header, value).body(body(0)).expect("a request")
}

/// Short ones in frames, long ones over HTTP.
#[tokio::test]
async fn bodies_of_any_length_come_whole_in_both_directions() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    for length in [0, 1, 64 << 10, (64 << 10) + 1, 3 << 20] {
        let answer = peers.forward("b", get(LENGTH, length), &origin()).await.expect("an answer");
        assert_eq!((answer.status(), &answer.headers()["etag"]), (StatusCode::IM_A_TEAPOT, &"\"x\"".parse().unwrap()));
        assert!(answer.headers().keys().all(|name| name != "connection" && !name.as_str().starts_with("forebay-")));
        let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
        assert!(bytes.len() == length && bytes.iter().all(|byte| *byte == 7), "{length}");
        for has_length in [true, false] {
            let request = Request::put("/bucket/key").header("x-amz-meta-a", "1").header("x-amz-meta-a", "2");
            let request = if has_length { request.header("content-length", length) } else { request };
            let answer = peers.forward("b", request.body(body(length)).expect("a request"), &origin()).await;
            let bytes = answer.expect("an answer").into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(bytes.len(), length);
            let seen = server.answers.seen.lock().expect("no panic").pop().expect("it has come");
            assert_eq!((seen.method, seen.body.len(), seen.origin), (Method::PUT, length, origin()));
            assert_eq!(seen.headers.get_all("x-amz-meta-a").iter().collect::<Vec<_>>(), ["1", "2"]);
            assert_eq!(seen.headers.contains_key("content-length"), has_length, "{length}");
        }
    }
}

/// The under store of a home may be slow, or the client.
#[tokio::test]
async fn who_reads_nothing_for_longer_than_a_dead_worker_is_waited_for_gets_all() {
    const SECONDS: usize = 12;
    // More than both ends buffer.
    const BYTES: usize = 32 << 20;
    let server = start().await;
    let (peers, origin) = (server.peer(&identity(KEY, "lake")), origin());
    let upload = async {
        let request = Request::put("/bucket/key").header(PAUSE, SECONDS).header("content-length", BYTES);
        let request = request.body(body(BYTES)).expect("a request");
        let answer = peers.forward("b", request, &origin).await.expect("an answer");
        assert_eq!(answer.into_body().collect().await.expect("a body").to_bytes().len(), BYTES);
    };
    let download = async {
        let answer = peers.forward("b", get(LENGTH, BYTES), &origin).await.expect("an answer");
        pause(SECONDS).await;
        assert_eq!(answer.into_body().collect().await.expect("a body").to_bytes().len(), BYTES);
    };
    tokio::join!(upload, download);
}

#[tokio::test]
async fn each_of_many_requests_gets_its_own_answer_and_none_waits_for_a_slow_one() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    let many = (0..1000).map(|length| {
        let peers = peers.clone();
        async move {
            let answer = peers.forward("b", get(LENGTH, length), &origin()).await.expect("an answer");
            assert_eq!(answer.into_body().collect().await.expect("a body").to_bytes().len(), length);
        }
    });
    let origin = origin();
    let mut slow = pin!(peers.forward("b", get(WAIT, 1), &origin));
    assert!(futures::poll!(&mut slow).is_pending());
    futures::future::join_all(many).await;
    assert!(futures::poll!(&mut slow).is_pending());
    server.answers.let_go.notify_one();
    slow.await.expect("an answer");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_whole() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    for length in [10, 0, 1 << 20] {
        let is_whole = match peers.forward("b", get(BREAKS, length), &origin()).await {
            Ok(answer) => answer.into_body().collect().await.is_ok(),
            Err(error) => {
                assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
                false
            }
        };
        assert!(!is_whole, "{length}");
    }
}

/// Polls a request until so many wait at the server.
async fn until_waiting(server: &Server, mut request: Pin<&mut impl Future>, count: usize) {
    while server.answers.waiting.load(Ordering::Relaxed) != count {
        assert!(futures::poll!(&mut request).is_pending());
        tokio::task::yield_now().await;
    }
}

/// When its process is killed, for example.
#[tokio::test]
async fn requests_on_a_connection_that_ends_have_no_answer_and_later_ones_get_a_new_one() {
    let server = start().await;
    let (peers, origin) = (server.peer(&identity(KEY, "lake")), origin());
    let mut waits = pin!(peers.forward("b", get(WAIT, 1), &origin));
    until_waiting(&server, waits.as_mut(), 1).await;
    server.stop.cancel();
    server.cut.cancel();
    let error = waits.await.expect_err("its connection has ended");
    assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
    server.ended.join().await;
    let error = peers.forward("b", get(LENGTH, 1), &origin).await.expect_err("nobody listens");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let listener = TcpListener::bind(server.address).await.expect("it is free again");
    let (stop, answers) = (CancellationToken::new(), Arc::new(Worker::default()));
    let restarted = self::server(identity(KEY, "lake"), &answers);
    let ended = forebay_env::spawn(restarted.run(listener, stop.clone(), CancellationToken::new()));
    peers.forward("b", get(LENGTH, 1), &origin).await.expect("an answer");
    stop.cancel();
    ended.join().await;
}

/// However long their answers are; and what comes later is refused at once.
#[tokio::test]
async fn a_stop_waits_for_requests_that_have_begun_and_takes_no_others() {
    for (header, value) in [(LENGTH, 1), (LENGTH, 1 << 20), (BREAKS, 0)] {
        let server = start().await;
        let (peers, origin) = (server.peer(&identity(KEY, "lake")), origin());
        let mut request = get(header, value);
        request.headers_mut().insert(WAIT, 1.into());
        let mut waits = pin!(peers.forward("b", request, &origin));
        until_waiting(&server, waits.as_mut(), 1).await;
        server.stop.cancel();
        for _ in 0..3 {
            let error = peers.forward("b", get(LENGTH, 1), &origin).await.expect_err("it stops");
            assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        }
        server.answers.let_go.notify_one();
        let length = async {
            let body = waits.await.ok()?.into_body().collect().await;
            body.ok().map(|body| body.to_bytes().len())
        };
        assert_eq!(length.await, (header == LENGTH).then_some(value));
        server.ended.join().await;
        assert_eq!(server.answers.seen.lock().expect("no panic").len(), 1);
    }
}

#[tokio::test]
async fn a_request_ends_when_its_client_has_gone() {
    let server = start().await;
    let (peers, origin) = (server.peer(&identity(KEY, "lake")), origin());
    {
        let mut waits = pin!(peers.forward("b", get(WAIT, 1), &origin));
        until_waiting(&server, waits.as_mut(), 1).await;
    }
    let mut never = pin!(std::future::pending::<()>());
    until_waiting(&server, never.as_mut(), 0).await;
}

#[tokio::test]
async fn a_request_for_another_worker_is_not_done() {
    let server = start().await;
    let sent = server.peer(&identity(KEY, "lake")).forward("c", put(b"body"), &origin()).await;
    assert!(matches!(sent, Err(Error::Unreachable { .. })), "{sent:?}");
    assert!(server.answers.seen.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn a_stop_waits_for_answers_and_not_for_connections() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    server.store("o/some", stored(&[b"some bytes"]));
    let held = open(&peers, "b", "o/some").await.expect("an answer").expect("it is there");
    server.stop.cancel();
    assert_eq!(read(held).await.expect("bytes"), b"some bytes");
    server.ended.join().await;
    assert!(open(&peers, "b", "o/some").await.is_err());
}

fn clean_terms() -> CleanTerms {
    let validated = Duration::from_millis(4321);
    CleanTerms { size: 5, metadata: b"metadata".to_vec(), annex: b"annex".to_vec(), validated }
}

#[tokio::test]
async fn clean_copies_come_with_their_bytes_if_they_are_small() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    let path = |key| ObjectPath::parse("bucket", key).expect("a path");
    let ask = async |key, bytes_max| peers.clean_copy("b", &path(key), bytes_max).await.expect("an answer");
    assert!(ask("other", 5).await.is_none());
    let (large, small) = (ask("clean", 4).await.expect("a copy"), ask("clean", 5).await.expect("a copy"));
    assert!(large.terms == clean_terms() && large.body.is_none());
    let bytes: Vec<Bytes> = small.body.expect("bytes").try_collect().await.expect("all of them");
    assert_eq!((small.terms, bytes.concat()), (clean_terms(), b"clean".to_vec()));
    for (remote_etag, expected) in [("remote", Some(b"lea".to_vec())), ("another", None)] {
        let (remote_etag, range) = (ETag::new(remote_etag), ByteRange::new(1, 4));
        let wanted = CleanRange { path: path("clean"), remote_etag, size: 5, range };
        let stream = peers.clean_bytes("b", &wanted).await.expect("an answer");
        let found = match stream {
            Some(stream) => Some(stream.try_collect::<Vec<Bytes>>().await.expect("all of them").concat()),
            None => None,
        };
        assert_eq!(found, expected);
    }
    server.stop.cancel();
    server.ended.join().await;
}

#[tokio::test]
async fn read_leases_come_with_bytes_that_the_reader_lacks_and_end() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    let ask = async |key: &str, known| {
        let path = ObjectPath::parse("bucket", key).expect("a path");
        let reader = Reader { worker: "a".to_owned(), process: 7 };
        peers.read_lease("b", LeaseRequest { path, reader, known, bytes_max: 100 }).await.expect("an answer")
    };
    assert!(ask("other", None).await.is_none());
    let first = ask("leased", None).await.expect("a lease");
    let bytes: Vec<Bytes> = first.body.expect("bytes").try_collect().await.expect("all of them");
    assert_eq!(bytes.concat(), b"leased");
    let LeaseTerms { lasts, head, remote_etag } = first.terms;
    assert_eq!((lasts, remote_etag), (Duration::from_millis(4321), Some(ETag::new("remote"))));
    assert_eq!((head.info.size, head.generation, head.state), (6, Some(Generation(9)), StorageState::Dirty));
    assert!(ask("leased", Some(Generation(9))).await.expect("a lease").body.is_none());
    for (process, ended) in [(7, true), (8, false)] {
        let reader = Reader { worker: "b".to_owned(), process };
        let paths = [ObjectPath::parse("bucket", "leased").expect("a path")];
        assert_eq!(peers.end_leases(&reader, &paths).await.expect("an answer"), ended);
    }
    server.stop.cancel();
    server.ended.join().await;
}
