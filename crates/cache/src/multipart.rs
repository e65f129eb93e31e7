//! Multipart uploads. Parts are durable here in every write mode. A completion joins them without copying, and then
//! follows the path's mode like any other write.

mod activity;
mod assemble;
mod listing;
mod sent;

use std::sync::Arc;

pub(crate) use activity::Activity;
use bytes::Bytes;
use forebay_catalog::records::{self, CompletedUpload, PartRecord, UploadRecord};
use forebay_catalog::{Check, LocalChange, TRANSACTION_MAX, Transaction};
use forebay_store::ValueWrite;
use forebay_types::limits::PART_NUMBER_MAX;
use forebay_types::{
    Algorithm, BucketName, ChecksumKind, Checksums, Durability, ETag, ObjectKey, ObjectPath, PathPolicy, SystemHeaders,
    Tags, UserMetadata, WriteMode,
};
use futures::FutureExt;

use crate::locks::KeyGuard;
use crate::metadata::Annex;
use crate::space::upload_record_bytes;
use crate::worker::Worker;
use crate::write::put::{Pending, Source};
use crate::write::receive::{ALGORITHM_DEFAULT, Received, check_size};
use crate::{
    Attributes, CompleteUpload, CopyPart, CreateUpload, Error, ErrorKind, Incoming, Result, UploadRef, Written,
};

/// An existing upload, and the version of its record.
pub(crate) struct Upload {
    pub(crate) record: UploadRecord,
    pub(crate) version: u64,
}

fn no_such_upload(upload: &UploadRef) -> Error {
    Error::new(ErrorKind::NoSuchUpload, format!("there is no upload {:?} of {}", upload.upload_id, upload.path))
}

impl Worker {
    pub(crate) async fn create_upload(&self, request: CreateUpload) -> Result<String> {
        let CreateUpload { path, attributes, checksum_algorithm, checksum_kind, owner } = request;
        self.check_catalog(&path)?;
        self.admit(&self.policies.resolve(&path), &path, 0)?;
        self.buckets.mount_for_write(&path).await?;
        let _write = self.buckets.begin_write(&path.bucket).await?;
        let kind = kind_for(checksum_algorithm, checksum_kind)?;
        let now_ms = self.env.clock.unix_ms();
        let Attributes { headers, user, tags } = attributes;
        let record = UploadRecord {
            created_ms: now_ms,
            owner,
            headers,
            user,
            tags,
            checksum_algorithm,
            checksum_kind: checksum_algorithm.map(|_| kind),
            completed: None,
            sent: None,
        };
        let upload_id = records::upload_id(&ordered_id(now_ms, &self.env.random.hex_id()), &path);
        self.commit_upload(UploadRef { path, upload_id }, &record).await
    }

    /// Commits the record of a new upload. It takes memory for as long as the upload is open.
    async fn commit_upload(&self, upload: UploadRef, record: &UploadRecord) -> Result<String> {
        // What is counted here is found when the slot is lost.
        let _lock = self.lock_end(&upload).await?;
        let (key, value) = (records::upload_key(&upload.path, &upload.upload_id), record.encode());
        let bytes = upload_record_bytes(&key, &value);
        let Some(room) = self.space.reserve_record(&self.store, &upload.path.bucket, bytes) else {
            return Err(self.records_full(&upload.path));
        };
        self.space.add_upload(&upload.upload_id, room);
        let writes = vec![ValueWrite { key, value: Some(value) }];
        if let Err(error) = self.catalog.commit(Transaction { writes, ..Transaction::default() }).await {
            self.space.drop_upload(&upload.upload_id);
            return Err(error.into());
        }
        Ok(upload.upload_id)
    }

    /// The upload, if it exists. Completed uploads exist only for a retried completion.
    pub(crate) async fn upload_of(&self, upload: &UploadRef) -> Result<Upload> {
        let key = records::upload_key(&upload.path, &upload.upload_id);
        match self.catalog.get(&key).await? {
            Some(found) => Ok(Upload { record: UploadRecord::decode(&found.value)?, version: found.version }),
            None => Err(no_such_upload(upload)),
        }
    }

    async fn open_upload(&self, upload: &UploadRef) -> Result<Upload> {
        let found = self.upload_of(upload).await?;
        if found.record.completed.is_some() { Err(no_such_upload(upload)) } else { Ok(found) }
    }

    pub(crate) async fn put_part(self: &Arc<Self>, upload: &UploadRef, number: u32, body: Incoming) -> Result<Written> {
        check_part_algorithm(&self.open_upload(upload).await?.record, &body)?;
        let given = body.checksums.iter().map(|checksum| checksum.algorithm).chain(body.compute.iter().copied());
        let given = given.collect();
        self.store_part(upload, number, body, given).await
    }

    /// Tells of the checksums of the upload's algorithm and of those `given`. The default one is for the completion
    /// alone.
    async fn store_part(
        self: &Arc<Self>,
        upload: &UploadRef,
        number: u32,
        body: Incoming,
        given: Vec<Algorithm>,
    ) -> Result<Written> {
        if !(1..=PART_NUMBER_MAX).contains(&number) {
            let context = format!("the part number {number} is not in 1..{PART_NUMBER_MAX}");
            return Err(Error::new(ErrorKind::InvalidArgument, context));
        }
        check_size(&body)?;
        self.check_disks()?;
        self.check_catalog(&upload.path)?;
        let open = self.open_upload(upload).await?;
        let policy = self.policies.resolve(&upload.path);
        if policy.write_mode == WriteMode::ReadOnly {
            return Err(Error::read_only(&upload.path));
        }
        let mode = self.mode_with_copies(&policy, policy.write_mode, &upload.path, body.size)?;
        // Without copies if its object is to be written through.
        let policy = PathPolicy { write_mode: mode, ..policy };
        let active = self.home.activity.begin(&upload.upload_id);
        let Some(reservation) = self.space.reserve(&self.store, &upload.path.bucket, body.size) else {
            return Err(self.pinned_full(&upload.path, body.size));
        };
        let algorithm = open.record.checksum_algorithm.unwrap_or(ALGORITHM_DEFAULT);
        let received = self.receive(body, Some(algorithm)).await?;
        let (worker, upload) = (Arc::clone(self), upload.clone());
        let named = open.record.checksum_algorithm;
        let mut written = self
            .unless_stalled(async move {
                let _held = (reservation, active);
                worker.commit_part(&upload, &policy, number, received).await
            })
            .await?;
        written.checksums.values.retain(|made| named == Some(made.algorithm) || given.contains(&made.algorithm));
        Ok(written)
    }

    async fn commit_part(
        &self,
        upload: &UploadRef,
        policy: &PathPolicy,
        number: u32,
        received: Received,
    ) -> Result<Written> {
        let key = records::part_key(&upload.upload_id, number);
        let _lock = self.lock_part(upload, number).await?;
        // While the body arrived, the slot may have been at another worker. Its records then have other versions.
        let open = self.open_upload(upload).await?;
        let generation = self.next_generation();
        let mut record = PartRecord {
            generation,
            size: received.size,
            etag: ETag::from_md5(received.md5),
            checksums: Checksums { kind: ChecksumKind::FullObject, values: received.checksums },
            last_modified_ms: self.home.write_times.next(),
            holders: self.holders(),
        };
        let object = forebay_store::NewObject {
            key: key.clone(),
            generation,
            metadata: Annex::default().encode(),
            annex: Annex::default().encode(),
            pinned: true,
            group: 0,
            size: received.size,
        };
        let mut staged = received.writer.finish(object).await?;
        // To the end of the commit.
        let mut _undecided = None;
        if policy.write_replicas > 1 {
            let replicated = self.replicate(&upload.path, policy, staged, Vec::new()).boxed().await?;
            (staged, record.holders, _undecided) = (replicated.staged, replicated.holders, replicated.undecided);
        }
        let replaced = match self.catalog.get(&key).await? {
            Some(found) => Some(PartRecord::decode(&found.value)?.size),
            None => None,
        };
        let transaction = Transaction {
            checks: vec![self.still_open(upload, &open)],
            writes: vec![ValueWrite { key, value: Some(record.encode()) }],
            local: LocalChange { publish: vec![staged], ..LocalChange::default() },
            durability: policy.durability,
            ..Transaction::default()
        };
        self.space.add_part(&upload.upload_id, &upload.path.bucket, record.size);
        let committed = self.catalog.commit(transaction).await.map_err(|error| ended(error, upload));
        let gone = if committed.is_ok() { replaced } else { Some(record.size) };
        gone.into_iter().for_each(|size| self.space.drop_part(&upload.upload_id, size));
        if let Err(error) = committed {
            // A conditional completion that failed has changed the record of an upload that is still open.
            let is_open = error.kind == ErrorKind::NoSuchUpload && self.open_upload(upload).await.is_ok();
            return Err(if is_open { Error { kind: ErrorKind::SlowDown, ..error } } else { error });
        }
        self.home.missing.remove_part(&upload.upload_id, number);
        let PartRecord { size, etag, checksums, last_modified_ms, .. } = record;
        Ok(Written { etag, last_modified_ms, size, checksums })
    }

    /// Serialises the commits of parts with the same number.
    pub(crate) async fn lock_part(&self, upload: &UploadRef, number: u32) -> Result<KeyGuard> {
        self.lock_in_upload(upload, &format!("{}/{number}", upload.upload_id)).await
    }

    /// Serialises the completions and aborts of one upload: in WRITE_THROUGH, a completion changes the under store
    /// before it is committed.
    async fn lock_end(&self, upload: &UploadRef) -> Result<KeyGuard> {
        self.lock_in_upload(upload, &upload.upload_id).await
    }

    async fn lock_in_upload(&self, upload: &UploadRef, name: &str) -> Result<KeyGuard> {
        let key = ObjectKey::new(name).expect("an upload id and a number make a short key");
        self.home.part_locks.lock(&ObjectPath::new(upload.path.bucket.clone(), key)).await
    }

    fn still_open(&self, upload: &UploadRef, open: &Upload) -> Check {
        Check { key: records::upload_key(&upload.path, &upload.upload_id), version: Some(open.version) }
    }

    pub(crate) async fn copy_part(self: &Arc<Self>, request: CopyPart) -> Result<Written> {
        let CopyPart { upload, number, source, source_conditions, range } = request;
        let body = self.copy_source(&source, &source_conditions, range, false).await?;
        self.store_part(&upload, number, body.incoming, Vec::new()).await
    }

    pub(crate) async fn complete_upload(&self, request: CompleteUpload) -> Result<Written> {
        let upload = request.upload.clone();
        self.upload_of(&upload).await?;
        let _active = self.home.activity.begin(&upload.upload_id);
        let _end = self.lock_end(&upload).await?;
        let found = self.upload_of(&upload).await?;
        if let Some(completed) = &found.record.completed {
            return Ok(completed_again(completed));
        }
        let policy = self.policies.resolve(&upload.path);
        let mount = self.buckets.mount(&upload.path.bucket).await?;
        let assembled = self.assemble(&request, &found).await?;
        let class = assembled.info.headers.storage_class.as_deref();
        let size = assembled.info.size;
        let admission = self.admit_pinned(&policy, &upload.path, size)?.unless_refused(self, &upload.path, class);
        let completed = CompletedUpload {
            etag: assembled.info.etag.clone(),
            checksums: assembled.info.checksums.clone(),
            size,
            completed_ms: self.env.clock.unix_ms(),
        };
        // A retried completion needs no attributes, and the record stays for a while.
        let ended_record = UploadRecord {
            completed: Some(completed),
            headers: SystemHeaders::default(),
            user: UserMetadata::default(),
            tags: Tags::default(),
            sent: None,
            ..found.record.clone()
        };
        let end = ValueWrite {
            key: records::upload_key(&upload.path, &upload.upload_id),
            value: Some(ended_record.encode()),
        };
        let with =
            Transaction { checks: vec![self.still_open(&upload, &found)], writes: vec![end], ..Transaction::default() };
        let mut pending = Pending {
            path: upload.path.clone(),
            policy,
            source: Source::Parts(assembled.objects),
            info: assembled.info,
            conditions: request.conditions,
            small: None,
            with,
        };
        let sent_before = match found.record.sent {
            // Boxed: this is rare, and would make the future of every completion larger.
            Some(sent) => self.completed_before(&mut pending, sent, &mount).boxed().await?,
            None => None,
        };
        let written = match sent_before {
            Some(written) => written,
            None => self.write(pending, &mount, &admission).await?,
        };
        // The object is there. What fails here is done by the next sweep, or at the next start.
        if let Err(error) = self.drop_ended(&upload).await {
            tracing::warn!(path = %upload.path, %error, "parts of a completed upload could not be removed");
        }
        Ok(written)
    }

    /// Removes what is left of an upload that accepts no more parts.
    pub(crate) async fn drop_ended(&self, upload: &UploadRef) -> Result<()> {
        // First, because nobody may try again: an upload that was aborted has no record any more.
        self.space.drop_upload(&upload.upload_id);
        self.home.missing.remove_upload(&upload.upload_id);
        self.drop_parts(upload).await
    }

    /// Removes all parts of an upload: those that were there when it ended, and those that arrived meanwhile.
    async fn drop_parts(&self, upload: &UploadRef) -> Result<()> {
        let parts = self.parts_of(upload, 0, usize::MAX).await?;
        let keys = parts.iter().map(|(number, _)| records::part_key(&upload.upload_id, *number)).collect();
        self.drop_records(keys).await
    }

    /// Removes records and the bytes under the same keys. No client waits for these commits to be durable.
    pub(crate) async fn drop_records(&self, keys: Vec<Bytes>) -> Result<()> {
        for keys in keys.chunks(TRANSACTION_MAX) {
            let writes = keys.iter().map(|key| ValueWrite { key: key.clone(), value: None }).collect();
            let local = LocalChange { forget: keys.to_vec(), ..LocalChange::default() };
            let transaction = Transaction { writes, local, durability: Durability::Os, ..Transaction::default() };
            self.catalog.commit(transaction).await?;
        }
        Ok(())
    }

    pub(crate) async fn abort_upload(&self, upload: &UploadRef) -> Result<()> {
        self.open_upload(upload).await?;
        let _end = self.lock_end(upload).await?;
        let open = self.open_upload(upload).await?;
        // First: as long as the upload is there, another abort removes what this one leaves.
        self.drop_parts(upload).await?;
        let transaction = Transaction {
            checks: vec![self.still_open(upload, &open)],
            writes: vec![ValueWrite { key: records::upload_key(&upload.path, &upload.upload_id), value: None }],
            ..Transaction::default()
        };
        self.catalog.commit(transaction).await.map_err(|error| ended(error, upload))?;
        self.drop_ended(upload).await
    }

    /// All uploads of a bucket, including completed ones.
    pub(crate) async fn uploads_of(&self, bucket: &BucketName) -> Result<Vec<UploadRef>> {
        let mut range = records::uploads_range(bucket, "");
        let mut uploads = Vec::new();
        while let Some(found) = self.next_records(&mut range).await? {
            let parsed = found.iter().filter_map(|(key, _)| records::parse_upload_key(key));
            uploads.extend(parsed.map(|(path, upload_id)| UploadRef { path, upload_id }));
        }
        Ok(uploads)
    }

    pub(crate) async fn abort_all(&self, uploads: Vec<UploadRef>) -> Result<()> {
        for upload in uploads {
            match self.abort_upload(&upload).await {
                Err(error) if error.kind != ErrorKind::NoSuchUpload => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// The error of a commit that found the upload changed: it was completed or aborted in the meantime.
fn ended(error: forebay_catalog::Error, upload: &UploadRef) -> Error {
    match error.kind {
        forebay_catalog::ErrorKind::Conflict => no_such_upload(upload),
        forebay_catalog::ErrorKind::Busy
        | forebay_catalog::ErrorKind::Unknown
        | forebay_catalog::ErrorKind::Corrupt
        | forebay_catalog::ErrorKind::Unavailable => error.into(),
    }
}

fn completed_again(completed: &CompletedUpload) -> Written {
    Written {
        etag: completed.etag.clone(),
        last_modified_ms: completed.completed_ms,
        size: completed.size,
        checksums: completed.checksums.clone(),
    }
}

/// If the upload names an algorithm, its parts have checksums of that algorithm. They may have none if the checksum of
/// the whole object is combined from their bytes.
fn check_part_algorithm(upload: &UploadRecord, body: &Incoming) -> Result<()> {
    let Some(expected) = upload.checksum_algorithm else { return Ok(()) };
    let given = || body.checksums.iter().map(|checksum| checksum.algorithm).chain(body.compute.iter().copied());
    let wrong = match given().find(|algorithm| *algorithm != expected) {
        Some(other) => other.name().to_ascii_lowercase(),
        None if given().next().is_none() && upload.checksum_kind == Some(ChecksumKind::Composite) => "null".to_owned(),
        None => return Ok(()),
    };
    let expected = expected.name().to_ascii_lowercase();
    let context =
        format!("Checksum Type mismatch occurred, expected checksum Type: {expected}, actual checksum Type: {wrong}");
    Err(Error::new(ErrorKind::InvalidRequest, context))
}

/// The type of the object's checksum, by S3's table of algorithms and types.
fn kind_for(algorithm: Option<Algorithm>, kind: Option<ChecksumKind>) -> Result<ChecksumKind> {
    let invalid = |context: String| Err(Error::new(ErrorKind::InvalidRequest, context));
    let Some(algorithm) = algorithm else {
        return match kind {
            None => Ok(ChecksumKind::FullObject),
            Some(_) => invalid(
                "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.".to_owned(),
            ),
        };
    };
    let kind = kind.unwrap_or(algorithm.default_kind());
    let is_allowed = match kind {
        ChecksumKind::FullObject => algorithm.is_crc(),
        ChecksumKind::Composite => algorithm != Algorithm::Crc64Nvme,
    };
    match is_allowed {
        true => Ok(kind),
        false => invalid(format!(
            "The {} checksum type cannot be used with the {} checksum algorithm.",
            kind.name(),
            algorithm.name().to_ascii_lowercase()
        )),
    }
}

/// A random number in hex, whose first 48 bits are the time: listings show the uploads of a key in the order in which
/// they began.
fn ordered_id(now_ms: u64, random: &str) -> String {
    format!("{:012x}{}", now_ms & ((1 << 48) - 1), &random[12..])
}
