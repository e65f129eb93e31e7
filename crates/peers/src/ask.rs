//! The end that asks.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_cache::{
    ByteStream, CachedObject, ChangesWanted, CleanCopy, CleanRange, Conditions, CopyId, DeletionStep, Error, Fate,
    GetObject, HeldBytes, HomeChanges, HomeRecords, HotObject, LeaseRequest, Needs, NewCopy, ObjectBody, ObjectDetail,
    ObjectHead, OtherWorkers, PutObject, ReadLease, Reader, RecordRange, Result, ShareFindings, ShareReport, SlotSet,
    Status, Taker, UndeliverableEnd, UndeliverablePage, Written,
};
use forebay_env::Requester;
use forebay_types::limits::PUT_BYTES_MAX;
use forebay_types::{BucketName, Generation, ObjectPath, Tags};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use crate::WorkerSettings;
use crate::client::Peers;
use crate::message::{ASK, KIND, PeerBody, REQUESTER, value};
use crate::question::{self, Clean, Copy, Held, Leased, Put, Question, Refusal, from_json, of_copy, unavailable};

/// For an answer from memory and from local disks, and between two pieces of its body.
const LOCAL_MAX: Duration = Duration::from_secs(10);

/// For an answer from local disks that saves a request to the under store, and between two pieces of its body.
const CLEAN_MAX: Duration = Duration::from_secs(2);

/// For an answer that takes a look at all objects on the disks.
const HOT_MAX: Duration = Duration::from_secs(30);

/// For an answer about jobs, for somebody who looks at a page.
const JOBS_MAX: Duration = Duration::from_secs(2);

/// For an answer from memory that a start waits for.
const SETTINGS_MAX: Duration = Duration::from_secs(2);

/// For an answer that may need the under store, or a body of the question; and between two pieces of its body.
const REMOTE_MAX: Duration = Duration::from_secs(120);

/// Bytes of a copy that a worker takes in a second at least.
const COPIED_PER_SECOND: u64 = 8 << 20;

/// Bytes of a write that come from its client, and go to the under store, in a second at least.
const WRITTEN_PER_SECOND: u64 = 256 << 10;

/// # Errors
/// `Internal` when the question can't be encoded.
fn packed(question: &Question, body: Option<(ByteStream, u64)>) -> Result<Request<PeerBody>> {
    let (body, length) = question::message(question, body)?;
    let request = Request::builder().method(Method::POST).uri("/").header(KIND, ASK);
    let request = request.header(CONTENT_LENGTH, value(&length.to_string()));
    let request = match Requester::present() {
        Requester::NOBODY => request,
        requester => request.header(REQUESTER, value(&requester.number().to_string())),
    };
    Ok(request.body(body).expect("all of it is printable"))
}

fn silent(worker: &str) -> Error {
    unavailable(format!("worker {worker} does not answer"))
}

impl Peers {
    /// The answer of a worker, and the bytes behind it.
    async fn ask<A: DeserializeOwned>(
        &self,
        worker: &str,
        question: Question,
        body: Option<(ByteStream, u64)>,
    ) -> Result<(A, ByteStream)> {
        let longest = match &question {
            Question::Held { .. } | Question::Records(_) | Question::Status | Question::Needs => LOCAL_MAX,
            Question::Fates(_) | Question::HasCopies(_) | Question::Cached { .. } | Question::Changes(_) => LOCAL_MAX,
            Question::HotObjects(_) => HOT_MAX,
            Question::ReadLease(_) | Question::EndLeases { .. } | Question::RoomForCopy { .. } => LOCAL_MAX,
            Question::CleanCopy { .. } | Question::CleanBytes(_) => CLEAN_MAX,
            Question::JobShares | Question::JobFindings { .. } => JOBS_MAX,
            Question::Undeliverable { .. } => LOCAL_MAX,
            Question::Settings => SETTINGS_MAX,
            Question::TakeCopy(copy) => LOCAL_MAX + Duration::from_secs(copy.size() / COPIED_PER_SECOND),
            Question::Put(put) => REMOTE_MAX + Duration::from_secs(put.size() / WRITTEN_PER_SECOND),
            // The object is copied, whose size only its home knows.
            Question::EndUndeliverable { end: UndeliverableEnd::Rename(_), .. } => {
                REMOTE_MAX + Duration::from_secs(PUT_BYTES_MAX / WRITTEN_PER_SECOND)
            }
            Question::Delete { .. }
            | Question::Get(_)
            | Question::Head(_)
            | Question::Tags(_)
            | Question::Detail(_)
            | Question::EndUndeliverable { .. }
            | Question::Deletion { .. } => REMOTE_MAX,
        };
        let request = packed(&question, body)?;
        let answer = async { self.read(worker, self.send(worker, request).await, longest).await };
        tokio::select! {
            biased;
            answer = answer => answer,
            // It may answer yet, but others have what it had, or will.
            () = self.members.until_gone(worker) => {
                Err(unavailable(format!("worker {worker} has left the cluster, or its lease has expired")))
            }
            () = self.clock.sleep(longest) => Err(silent(worker)),
        }
    }

    /// The answer to a question that was sent, and the bytes behind it.
    async fn read<A: DeserializeOwned>(
        &self,
        worker: &str,
        answer: crate::Result<Response<Incoming>>,
        longest: Duration,
    ) -> Result<(A, ByteStream)> {
        let answer = answer.map_err(|error| unavailable(error.to_string()))?;
        if answer.status() != StatusCode::OK {
            let status = answer.status();
            let problem = format!(
                "worker {worker} has refused a request with {status}: it is stopping, or another worker or release answers at its address"
            );
            return Err(unavailable(problem));
        }
        let (answer, body): (std::result::Result<A, Refusal>, _) =
            question::read(&self.clock, worker, answer.into_body(), longest).await?;
        Ok((answer?, body))
    }

    /// How another worker stands.
    ///
    /// # Errors
    /// `Unavailable` without an answer.
    pub async fn status(&self, worker: &str) -> Result<Status> {
        Ok(self.ask(worker, Question::Status, None).await?.0)
    }

    /// The settings of another worker that are compared, and its clock.
    ///
    /// # Errors
    /// `Unavailable` without an answer.
    pub async fn settings(&self, worker: &str) -> Result<WorkerSettings> {
        Ok(self.ask(worker, Question::Settings, None).await?.0)
    }

    /// The same of a worker at this address, before it is known who is in the cluster.
    ///
    /// # Errors
    /// `Unavailable` without an answer.
    pub async fn settings_at(&self, worker: &str, address: &str) -> Result<WorkerSettings> {
        let request = packed(&Question::Settings, None)?;
        let answer = async { self.read(worker, self.send_to(worker, address, request).await, SETTINGS_MAX).await };
        tokio::select! {
            biased;
            answer = answer => Ok(answer?.0),
            () = self.clock.sleep(SETTINGS_MAX) => Err(silent(worker)),
        }
    }

    /// What another worker lacks of the keys that are at home there.
    ///
    /// # Errors
    /// `Unavailable` without an answer, or when its slots change meanwhile.
    pub async fn needs(&self, worker: &str) -> Result<Needs> {
        Ok(self.ask(worker, Question::Needs, None).await?.0)
    }
}

#[async_trait]
impl OtherWorkers for Peers {
    async fn open(&self, worker: &str, key: &Bytes, generation: Generation) -> Result<Option<HeldBytes>> {
        if self.members.is_removed(worker) {
            return Ok(None);
        }
        let question = Question::Held { key: key.to_vec(), generation };
        let (held, stream) = self.ask::<Option<Held>>(worker, question, None).await?;
        Ok(held.map(|held| held.with(stream)))
    }

    async fn records(&self, worker: &str, range: &RecordRange) -> Result<HomeRecords> {
        Ok(self.ask(worker, Question::Records(range.clone()), None).await?.0)
    }

    async fn changes(&self, worker: &str, wanted: &ChangesWanted) -> Result<HomeChanges> {
        Ok(self.ask(worker, Question::Changes(wanted.clone()), None).await?.0)
    }

    async fn put(&self, worker: &str, request: PutObject) -> Result<Written> {
        let (put, stream, size) = Put::of(request)?;
        Ok(self.ask(worker, Question::Put(Box::new(put)), Some((stream, size))).await?.0)
    }

    async fn delete(&self, worker: &str, path: &ObjectPath, conditions: &Conditions) -> Result<()> {
        let question = Question::Delete { path: path.clone(), conditions: conditions.clone() };
        self.ask::<()>(worker, question, None).await.map(|_| ())
    }

    async fn get(&self, worker: &str, request: GetObject) -> Result<ObjectBody> {
        let (head, stream) = self.ask(worker, Question::Get(request), None).await?;
        Ok(ObjectBody { head, stream })
    }

    async fn head(&self, worker: &str, request: GetObject) -> Result<ObjectHead> {
        Ok(self.ask(worker, Question::Head(request), None).await?.0)
    }

    async fn tags(&self, worker: &str, path: &ObjectPath) -> Result<Tags> {
        Ok(self.ask(worker, Question::Tags(path.clone()), None).await?.0)
    }

    async fn deletion_step(&self, worker: &str, bucket: &BucketName, step: DeletionStep) -> Result<SlotSet> {
        Ok(self.ask(worker, Question::Deletion { bucket: bucket.clone(), step }, None).await?.0)
    }

    async fn detail(&self, worker: &str, path: &ObjectPath) -> Result<ObjectDetail> {
        from_json(&self.ask::<String>(worker, Question::Detail(path.clone()), None).await?.0)
    }

    async fn cached(&self, worker: &str, bucket: &BucketName, objects: Vec<CachedObject>) -> Result<Vec<CachedObject>> {
        Ok(self.ask(worker, Question::Cached { bucket: bucket.clone(), objects }, None).await?.0)
    }

    async fn room_for_copy(&self, worker: &str, path: &ObjectPath, bytes: u64) -> Result<()> {
        self.ask::<()>(worker, Question::RoomForCopy { path: path.clone(), bytes }, None).await.map(drop)
    }

    async fn take_copy(&self, worker: &str, copy: NewCopy) -> Result<bool> {
        let (copy, bytes) = Copy::of(copy);
        Ok(self.ask(worker, Question::TakeCopy(Box::new(copy)), bytes).await?.0)
    }

    async fn fates(&self, worker: &str, copies: &[CopyId]) -> Result<Vec<Fate>> {
        Ok(self.ask(worker, Question::Fates(copies.iter().map(of_copy).collect()), None).await?.0)
    }

    async fn has_copies(&self, worker: &str, copies: &[CopyId]) -> Result<Vec<bool>> {
        Ok(self.ask(worker, Question::HasCopies(copies.iter().map(of_copy).collect()), None).await?.0)
    }

    async fn read_lease(&self, worker: &str, request: LeaseRequest) -> Result<Option<ReadLease>> {
        let (leased, stream) = self.ask::<Option<Leased>>(worker, Question::ReadLease(request), None).await?;
        Ok(leased.map(|leased| leased.with(stream)))
    }

    async fn end_leases(&self, reader: &Reader, paths: &[ObjectPath]) -> Result<bool> {
        let question = Question::EndLeases { process: reader.process, paths: paths.to_vec() };
        Ok(self.ask(&reader.worker, question, None).await?.0)
    }

    async fn clean_copy(&self, worker: &str, path: &ObjectPath, bytes_max: u64) -> Result<Option<CleanCopy>> {
        let question = Question::CleanCopy { path: path.clone(), bytes_max };
        let (clean, stream) = self.ask::<Option<Clean>>(worker, question, None).await?;
        Ok(clean.map(|clean| clean.with(stream)))
    }

    async fn clean_bytes(&self, worker: &str, wanted: &CleanRange) -> Result<Option<ByteStream>> {
        let (has, stream) = self.ask(worker, Question::CleanBytes(wanted.clone()), None).await?;
        Ok(if has { Some(stream) } else { None })
    }

    async fn hot_objects(&self, worker: &str, slots: &SlotSet) -> Result<Vec<HotObject>> {
        Ok(self.ask(worker, Question::HotObjects(slots.clone()), None).await?.0)
    }

    async fn job_shares(&self, worker: &str) -> Result<Vec<ShareReport>> {
        from_json(&self.ask::<String>(worker, Question::JobShares, None).await?.0)
    }

    async fn job_findings(&self, worker: &str, id: &str, after: u64, limit: usize) -> Result<ShareFindings> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let question = Question::JobFindings { id: id.to_owned(), after, limit };
        from_json(&self.ask::<String>(worker, question, None).await?.0)
    }

    async fn undeliverable(
        &self,
        worker: &str,
        prefix: &str,
        after: Option<&ObjectPath>,
        limit: usize,
    ) -> Result<UndeliverablePage> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let question = Question::Undeliverable { prefix: prefix.to_owned(), after: after.cloned(), limit };
        from_json(&self.ask::<String>(worker, question, None).await?.0)
    }

    async fn end_undeliverable(
        &self,
        worker: &str,
        path: &ObjectPath,
        generation: u64,
        end: &UndeliverableEnd,
    ) -> Result<()> {
        let question = Question::EndUndeliverable { path: path.clone(), generation, end: end.clone() };
        self.ask::<()>(worker, question, None).await.map(drop)
    }

    fn home(&self, hash: u64) -> Option<String> {
        self.members.home(hash)
    }

    fn workers(&self) -> Vec<String> {
        self.members.others()
    }

    fn are_known(&self) -> bool {
        self.members.are_known()
    }

    fn takers(&self) -> Vec<Taker> {
        self.members.takers()
    }

    fn away(&self) -> Option<String> {
        self.members.away()
    }
}
