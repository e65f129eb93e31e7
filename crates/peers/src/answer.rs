//! The end that answers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_cache::{
    ByteStream, Cache, CachedObject, ChangesWanted, CleanCopy, CleanRange, Conditions, CopyId, DeletionStep, Fate,
    GetObject, HeldBytes, HomeChanges, HomeRecords, HotObject, LeaseRequest, Needs, NewCopy, ObjectBody, ObjectDetail,
    ObjectHead, PutObject, ReadLease, RecordRange, Result, ShareFindings, ShareReport, SlotSet, Status,
    UndeliverableEnd, UndeliverablePage, Written,
};
use forebay_env::Clock;
use forebay_types::{BucketName, Generation, ObjectPath, Tags};
use http::Response;
use http::header::CONTENT_LENGTH;
use hyper::body::Incoming;
use serde::Serialize;

use crate::OwnSettings;
use crate::message::{PeerBody, value};
use crate::question::{self, Clean, Held, Leased, Question, Refusal, copy_id, to_json};

/// Between two pieces of a question's body: the other worker may wait for a slow client, or a slow under store.
const BODY_PIECE_MAX: Duration = Duration::from_secs(120);

/// What a worker answers others. That is what its cache says; tests answer otherwise.
#[async_trait]
pub trait Answers: Send + Sync + 'static {
    /// See [`Cache::held`].
    async fn held(&self, key: &[u8], generation: Generation) -> Result<Option<HeldBytes>>;
    /// See [`Cache::home_records`].
    async fn records(&self, range: &RecordRange) -> Result<HomeRecords>;

    /// See [`Cache::home_changes`].
    fn changes(&self, wanted: &ChangesWanted) -> Result<HomeChanges>;
    /// See [`Cache::put_here`].
    async fn put(&self, request: PutObject) -> Result<Written>;
    /// See [`Cache::delete_here`].
    async fn delete(&self, path: &ObjectPath, conditions: &Conditions) -> Result<()>;
    /// See [`Cache::get_here`].
    async fn get(&self, request: GetObject) -> Result<ObjectBody>;
    /// See [`Cache::head_here`].
    async fn head(&self, request: GetObject) -> Result<ObjectHead>;
    /// See [`Cache::tags`].
    async fn tags(&self, path: &ObjectPath) -> Result<Tags>;
    /// See [`Cache::deletion_step`].
    async fn deletion_step(&self, bucket: &BucketName, step: DeletionStep) -> Result<SlotSet>;
    /// See [`Cache::object_detail_here`].
    async fn detail(&self, path: &ObjectPath) -> Result<ObjectDetail>;
    /// See [`Cache::cached_here`].
    async fn cached(&self, bucket: &BucketName, objects: Vec<CachedObject>) -> Result<Vec<CachedObject>>;
    /// See [`Cache::room_for_copy`].
    fn room_for_copy(&self, path: &ObjectPath, bytes: u64) -> Result<()>;
    /// See [`Cache::take_copy`].
    async fn take_copy(&self, copy: NewCopy) -> Result<bool>;
    /// See [`Cache::fates`].
    async fn fates(&self, copies: &[CopyId]) -> Vec<Fate>;
    /// See [`Cache::has_copies`].
    fn has_copies(&self, copies: &[CopyId]) -> Vec<bool>;
    /// See [`Cache::read_lease`].
    async fn read_lease(&self, request: LeaseRequest) -> Result<Option<ReadLease>>;
    /// See [`Cache::end_leases`].
    fn end_leases(&self, process: u64, paths: &[ObjectPath]) -> bool;
    /// See [`Cache::clean_copy`].
    async fn clean_copy(&self, path: &ObjectPath, bytes_max: u64) -> Result<Option<CleanCopy>>;
    /// See [`Cache::clean_bytes`].
    fn clean_bytes(&self, wanted: &CleanRange) -> Option<ByteStream>;
    /// See [`Cache::hot_objects`].
    async fn hot_objects(&self, slots: &SlotSet) -> Vec<HotObject>;
    /// See [`Cache::job_shares`].
    async fn job_shares(&self) -> Result<Vec<ShareReport>>;
    /// See [`Cache::share_findings`].
    async fn job_findings(&self, id: &str, after: u64, limit: usize) -> Result<ShareFindings>;
    /// See [`Cache::undeliverable_here`].
    async fn undeliverable(&self, prefix: &str, after: Option<&ObjectPath>, limit: usize) -> Result<UndeliverablePage>;
    /// See [`Cache::end_undeliverable_here`].
    async fn end_undeliverable(&self, path: &ObjectPath, generation: u64, end: &UndeliverableEnd) -> Result<()>;
    /// See [`Cache::status`].
    fn status(&self) -> Status;
    /// See [`Cache::needs`].
    fn needs(&self) -> Result<Needs>;
}

#[async_trait]
impl Answers for Cache {
    async fn held(&self, key: &[u8], generation: Generation) -> Result<Option<HeldBytes>> {
        Cache::held(self, key, generation).await
    }

    async fn records(&self, range: &RecordRange) -> Result<HomeRecords> {
        self.home_records(range).await
    }

    fn changes(&self, wanted: &ChangesWanted) -> Result<HomeChanges> {
        self.home_changes(wanted)
    }

    async fn put(&self, request: PutObject) -> Result<Written> {
        self.put_here(request).await
    }

    async fn delete(&self, path: &ObjectPath, conditions: &Conditions) -> Result<()> {
        self.delete_here(path, conditions).await
    }

    async fn get(&self, request: GetObject) -> Result<ObjectBody> {
        self.get_here(request).await
    }

    async fn head(&self, request: GetObject) -> Result<ObjectHead> {
        self.head_here(request).await
    }

    async fn tags(&self, path: &ObjectPath) -> Result<Tags> {
        Cache::tags(self, path).await
    }

    async fn deletion_step(&self, bucket: &BucketName, step: DeletionStep) -> Result<SlotSet> {
        Cache::deletion_step(self, bucket, step).await
    }

    async fn detail(&self, path: &ObjectPath) -> Result<ObjectDetail> {
        self.object_detail_here(path).await
    }

    async fn cached(&self, bucket: &BucketName, objects: Vec<CachedObject>) -> Result<Vec<CachedObject>> {
        self.cached_here(bucket, objects).await
    }

    fn room_for_copy(&self, path: &ObjectPath, bytes: u64) -> Result<()> {
        Cache::room_for_copy(self, path, bytes)
    }

    async fn take_copy(&self, copy: NewCopy) -> Result<bool> {
        Cache::take_copy(self, copy).await
    }

    async fn fates(&self, copies: &[CopyId]) -> Vec<Fate> {
        Cache::fates(self, copies).await
    }

    fn has_copies(&self, copies: &[CopyId]) -> Vec<bool> {
        Cache::has_copies(self, copies)
    }

    async fn read_lease(&self, request: LeaseRequest) -> Result<Option<ReadLease>> {
        Cache::read_lease(self, request).await
    }

    fn end_leases(&self, process: u64, paths: &[ObjectPath]) -> bool {
        Cache::end_leases(self, process, paths)
    }

    async fn clean_copy(&self, path: &ObjectPath, bytes_max: u64) -> Result<Option<CleanCopy>> {
        Cache::clean_copy(self, path, bytes_max).await
    }

    fn clean_bytes(&self, wanted: &CleanRange) -> Option<ByteStream> {
        Cache::clean_bytes(self, wanted)
    }

    async fn hot_objects(&self, slots: &SlotSet) -> Vec<HotObject> {
        Cache::hot_objects(self, slots).await
    }

    async fn job_shares(&self) -> Result<Vec<ShareReport>> {
        Cache::job_shares(self).await
    }

    async fn job_findings(&self, id: &str, after: u64, limit: usize) -> Result<ShareFindings> {
        self.share_findings(id, after, limit).await
    }

    async fn undeliverable(&self, prefix: &str, after: Option<&ObjectPath>, limit: usize) -> Result<UndeliverablePage> {
        self.undeliverable_here(prefix, after, limit).await
    }

    async fn end_undeliverable(&self, path: &ObjectPath, generation: u64, end: &UndeliverableEnd) -> Result<()> {
        self.end_undeliverable_here(path, generation, end).await
    }

    fn status(&self) -> Status {
        Cache::status(self)
    }

    fn needs(&self) -> Result<Needs> {
        Cache::needs(self)
    }
}

/// Answers a question of the worker `from`. `None`: it makes no sense.
pub(crate) async fn answer(
    answers: &dyn Answers,
    settings: &OwnSettings,
    clock: &Arc<dyn Clock>,
    from: &str,
    body: Incoming,
) -> Option<Response<PeerBody>> {
    let (question, body) = question::read(clock, from, body, BODY_PIECE_MAX).await.ok()?;
    let answer = match question {
        Question::Held { key, generation } => match answers.held(&key, generation).await {
            Ok(Some(held)) => {
                let (held, stream, size) = Held::of(held);
                say(Ok(Some(held)), Some((stream, size)))
            }
            other => say(other.map(|_| None::<Held>), None),
        },
        Question::Records(range) => say(answers.records(&range).await, None),
        Question::Put(put) => say(answers.put(put.with(body)).await, None),
        Question::Delete { path, conditions } => say(answers.delete(&path, &conditions).await, None),
        Question::Get(request) => match answers.get(request).await {
            Ok(ObjectBody { head, stream }) => {
                let size = head.range.len();
                say(Ok(head), Some((stream, size)))
            }
            Err(error) => say(Err::<ObjectHead, _>(error), None),
        },
        Question::Head(request) => say(answers.head(request).await, None),
        Question::Tags(path) => say(answers.tags(&path).await, None),
        Question::Deletion { bucket, step } => say(answers.deletion_step(&bucket, step).await, None),
        Question::Status => say(Ok(answers.status()), None),
        Question::Needs => say(answers.needs(), None),
        Question::RoomForCopy { path, bytes } => say(answers.room_for_copy(&path, bytes), None),
        Question::TakeCopy(copy) => say(answers.take_copy(copy.with(body)).await, None),
        Question::Fates(copies) => {
            let copies: Vec<_> = copies.into_iter().map(copy_id).collect();
            say(Ok(answers.fates(&copies).await), None)
        }
        Question::Detail(path) => say(answers.detail(&path).await.and_then(|detail| to_json(&detail)), None),
        Question::Cached { bucket, objects } => say(answers.cached(&bucket, objects).await, None),
        Question::ReadLease(request) => match answers.read_lease(request).await {
            Ok(Some(lease)) => {
                let (leased, body) = Leased::of(lease);
                say(Ok(Some(leased)), body)
            }
            other => say(other.map(|_| None::<Leased>), None),
        },
        Question::EndLeases { process, paths } => say(Ok(answers.end_leases(process, &paths)), None),
        Question::CleanCopy { path, bytes_max } => match answers.clean_copy(&path, bytes_max).await {
            Ok(Some(copy)) => {
                let (clean, body) = Clean::of(copy);
                say(Ok(Some(clean)), body)
            }
            other => say(other.map(|_| None::<Clean>), None),
        },
        Question::CleanBytes(wanted) => match answers.clean_bytes(&wanted) {
            Some(stream) => say(Ok(true), Some((stream, wanted.range.len()))),
            None => say(Ok(false), None),
        },
        Question::JobShares => say(answers.job_shares().await.and_then(|shares| to_json(&shares)), None),
        Question::JobFindings { id, after, limit } => {
            let found = answers.job_findings(&id, after, limit as usize).await;
            say(found.and_then(|found| to_json(&found)), None)
        }
        Question::Changes(wanted) => say(answers.changes(&wanted), None),
        Question::Undeliverable { prefix, after, limit } => {
            let page = answers.undeliverable(&prefix, after.as_ref(), limit as usize).await;
            say(page.and_then(|page| to_json(&page)), None)
        }
        Question::EndUndeliverable { path, generation, end } => {
            say(answers.end_undeliverable(&path, generation, &end).await, None)
        }
        Question::HotObjects(slots) => say(Ok(answers.hot_objects(&slots).await), None),
        Question::Settings => say(Ok(settings()), None),
        Question::HasCopies(copies) => {
            let copies: Vec<_> = copies.into_iter().map(copy_id).collect();
            say(Ok(answers.has_copies(&copies)), None)
        }
    };
    answer.ok()
}

fn say<T: Serialize>(result: Result<T>, body: Option<(ByteStream, u64)>) -> Result<Response<PeerBody>> {
    let (body, length) = question::message(&result.map_err(Refusal::from), body)?;
    let answer = Response::builder().header(CONTENT_LENGTH, value(&length.to_string()));
    Ok(answer.body(body).expect("a number is printable"))
}
