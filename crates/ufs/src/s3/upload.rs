//! Uploads: in one piece, or in concurrent parts.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::RequestId;
use aws_sdk_s3::operation::complete_multipart_upload::CompleteMultipartUploadError;
use aws_sdk_s3::operation::put_object::builders::PutObjectFluentBuilder;
use aws_sdk_s3::types::{ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart, StorageClass};
use bytes::Bytes;
use forebay_types::limits::{PART_BYTES_MIN, PART_NUMBER_MAX};
use forebay_types::{Algorithm, ByteRange, Checksum, ChecksumKind, ObjectInfo, ObjectKey};
use futures::{StreamExt, TryStreamExt};

use super::answer_check::SecondLook;
use super::direct::Headers;
use super::errors::{Effect, classify, unapplied};
use super::listing::must_go_on;
use super::second_look::is_of;
use super::source::{SourceError, Sum, body, other_size};
use super::{S3Client, S3Store, objects};
use crate::stamp::{STAMP_NAME, Subject};
use crate::{Condition, Error, ErrorKind, IsOurs, RemoteObject, Result, Stored, UnderStore, Upload, UploadSource};

/// The type that S3 reports for objects that were given none.
const DEFAULT_TYPE: &str = "binary/octet-stream";

/// Larger bodies are streamed by the SDK: its cost is small compared with theirs.
const DIRECT_BYTES_MAX: u64 = 1 << 20;

type CompleteFailed = SdkError<CompleteMultipartUploadError>;

/// Sets what PutObject and CreateMultipartUpload have in common.
macro_rules! describe {
    ($request:expr, $info:expr, $subject:expr, $upload:expr) => {
        $request
            .content_type($info.headers.content_type.as_deref().unwrap_or(DEFAULT_TYPE))
            .set_content_encoding($info.headers.content_encoding.clone())
            .set_content_language($info.headers.content_language.clone())
            .set_content_disposition($info.headers.content_disposition.clone())
            .set_cache_control($info.headers.cache_control.clone())
            .set_website_redirect_location($info.headers.website_redirect_location.clone())
            .set_storage_class($info.headers.storage_class.as_deref().map(StorageClass::from))
            .set_metadata(Some(metadata($subject, $upload)))
            .set_tagging(tagging($info))
    };
}

/// Sets the time limit, and Expires as it was given: the SDK would accept only dates.
macro_rules! customize {
    ($request:expr, $store:expr, $bytes:expr, $expires:expr) => {{
        let expires: Option<String> = $expires;
        let timeouts = TimeoutConfig::builder()
            .connect_timeout($store.settings.connect_timeout.0)
            .operation_attempt_timeout($store.settings.deadline($bytes))
            .build();
        $request
            .customize()
            .config_override(aws_sdk_s3::config::Builder::new().timeout_config(timeouts))
            .mutate_request(move |request| {
                if let Some(expires) = &expires {
                    request.headers_mut().insert("expires", expires.clone());
                }
            })
    }};
}

/// A multipart upload that no sweep aborts until this is dropped: when it has ended, or is given up in the middle.
struct InFlight<'a> {
    client: &'a S3Client,
    id: &'a str,
}

impl<'a> InFlight<'a> {
    fn begin(client: &'a S3Client, id: &'a str) -> Self {
        client.uploads.lock().insert(id.to_owned());
        Self { client, id }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.client.uploads.lock().remove(self.id);
    }
}

impl S3Store {
    pub(super) async fn upload(&self, key: &ObjectKey, upload: &Upload) -> Result<Stored> {
        let ranges = match client_parts(&upload.info) {
            Some(ranges) => ranges,
            None if upload.info.size > self.settings.multipart_threshold.0 => {
                equal_parts(upload.info.size, self.settings.part_size.0)
            }
            None => {
                upload.turn(upload.info.size).await;
                return self.upload_whole(key, upload).await;
            }
        };
        self.upload_parts(key, upload, ranges).await
    }

    async fn upload_whole(&self, key: &ObjectKey, upload: &Upload) -> Result<Stored> {
        let info = upload.info.as_ref();
        if info.size <= DIRECT_BYTES_MAX
            && let Some(direct) = self.direct().await
        {
            let body = gathered(upload.source.as_ref(), info.size).await?;
            let (remote, headers) = (self.remote_key(key), headers(self.subject(key), upload, &body));
            let result = direct.put(&remote, headers, body, self.settings.deadline(info.size)).await;
            let result = result.map_err(|error| classify(error, Effect::Write, || self.context("put", key)));
            let (etag, speaks_s3) = result?;
            return self.stored_whole(key, upload, etag.as_deref(), speaks_s3).await;
        }
        let failure = SourceError::default();
        let request = self.client.sdk.put_object().bucket(&self.bucket).key(self.remote_key(key));
        let (matches, absent) = conditions(&upload.condition);
        let request = describe!(request, info, self.subject(key), upload);
        let request = request.set_if_match(matches).set_if_none_match(absent).content_length(info.size as i64);
        let request = match client_checksum(info) {
            Some(checksum) => with_checksum(request, checksum),
            None => request,
        };
        let request = request.body(body(upload.source.as_ref(), ByteRange::of_size(info.size), &failure, None));
        let request = customize!(request, self, info.size, info.headers.expires.clone()).interceptor(SecondLook);
        let result = request.send().await;
        let output =
            result.map_err(|error| failure.instead_of(classify(error, Effect::Write, || self.context("put", key))))?;
        let speaks_s3 = output.request_id().is_some();
        self.stored_whole(key, upload, output.e_tag(), speaks_s3).await
    }

    /// After an upload in one piece.
    async fn stored_whole(
        &self,
        key: &ObjectKey,
        upload: &Upload,
        etag: Option<&str>,
        speaks_s3: bool,
    ) -> Result<Stored> {
        let stored = self.look_at_upload(key, upload, self.stored(key, etag)?, speaks_s3).await?;
        // The MD5 is known where it is the ETag that the client got.
        if upload.info.etag.md5().is_some_and(|md5| stored.remote_etag.md5() != Some(md5)) {
            self.client.opaque_etags.lock().insert(self.bucket.clone());
        }
        Ok(stored)
    }

    fn stored(&self, key: &ObjectKey, etag: Option<&str>) -> Result<Stored> {
        // It was written, but we can't tell what: the next look shows it.
        let etag = etag.ok_or_else(|| {
            let context = self.context("put", key);
            let problem = format!("{context}: the answer has no ETag, so it is unknown what was stored");
            Error::new(ErrorKind::Ambiguous, problem)
        })?;
        Ok(Stored { remote_etag: objects::tag(etag) })
    }

    async fn upload_parts(&self, key: &ObjectKey, upload: &Upload, ranges: Vec<ByteRange>) -> Result<Stored> {
        let info = upload.info.as_ref();
        let request = self.client.sdk.create_multipart_upload().bucket(&self.bucket).key(self.remote_key(key));
        let request = describe!(request, info, self.subject(key), upload).checksum_algorithm(ChecksumAlgorithm::Crc32);
        // The parts show whether this answer is true.
        let request = customize!(request, self, 0, info.headers.expires.clone()).interceptor(SecondLook);
        let result = request.send().await;
        // An upload that was begun without our knowledge leaves nothing visible.
        let begun = result.map_err(|error| {
            let error = classify(error, Effect::Write, || self.context("begin an upload of", key));
            Error { kind: unapplied(error.kind), ..error }
        })?;
        let Some(id) = begun.upload_id() else {
            return Err(objects::incomplete(self.context("begin an upload of", key)));
        };
        let _in_flight = InFlight::begin(&self.client, id);
        let result = self.upload_and_complete(key, upload, id, ranges).await;
        // After a lost answer, the upload may still be completed. Aborting it then could destroy what was done.
        let aborts = result.as_ref().is_err_and(|error| error.kind != ErrorKind::Ambiguous);
        if aborts
            && let Err(error) = self.abort(&self.remote_key(key), id).await
            && error.kind != ErrorKind::NotFound
        {
            tracing::warn!(error = %error, "an incomplete multipart upload could not be aborted, and its parts take space in the under store: abort it, or set a lifecycle rule (AbortIncompleteMultipartUpload)");
        }
        result
    }

    async fn upload_and_complete(
        &self,
        key: &ObjectKey,
        upload: &Upload,
        id: &str,
        ranges: Vec<ByteRange>,
    ) -> Result<Stored> {
        let parts = self.upload_all_parts(key, upload, id, ranges).await?;
        let told = parts.iter().map(|(part, _)| part.clone()).collect();
        let completed = match self.complete(key, upload, id, told).await {
            // For parts with checksums, S3 wants these checksums again, and a proxy has hidden them from us.
            Err(error) if error.kind.is_invalid() && parts.iter().any(|(part, _)| part.checksum_crc32.is_none()) => {
                let summed = |(mut part, sum): (CompletedPart, Sum)| {
                    part.checksum_crc32 = Some(sum.checksum().base64());
                    part
                };
                self.complete(key, upload, id, parts.into_iter().map(summed).collect()).await
            }
            completed => completed,
        };
        // The parts are ours: what is wrong with them is nothing that the client could change.
        completed.map_err(|error| match is_about_parts(&error) {
            true => Error { kind: ErrorKind::Unavailable, ..error },
            false => error,
        })
    }

    async fn complete(&self, key: &ObjectKey, upload: &Upload, id: &str, parts: Vec<CompletedPart>) -> Result<Stored> {
        let (matches, absent) = conditions(&upload.condition);
        let request =
            self.client.sdk.complete_multipart_upload().bucket(&self.bucket).key(self.remote_key(key)).upload_id(id);
        let request = request.multipart_upload(CompletedMultipartUpload::builder().set_parts(Some(parts)).build());
        let request = request.set_if_match(matches).set_if_none_match(absent);
        // Servers that copy the parts together take their time.
        let answer = customize!(request, self, upload.info.size, None).interceptor(SecondLook).send();
        let answer = match self.unless_there(key, upload, answer).await {
            Ok(answer) => answer,
            Err(stored) => return self.check_completed(key, upload, stored).await,
        };
        let output = answer.map_err(|error| {
            let has_no_object = error.code() == Some("NoSuchKey");
            let error = classify(error, Effect::Write, || self.context("complete an upload of", key));
            // NoSuchUpload: a try before this one may have completed it.
            let is_unknown = error.kind == ErrorKind::NotFound && !has_no_object;
            Error { kind: if is_unknown { ErrorKind::Ambiguous } else { error.kind }, ..error }
        })?;
        let stored = self.stored(key, output.e_tag())?;
        self.check_completed(key, upload, stored).await
    }

    /// Waits for the answer to a completion. No answer comes when the network has dropped the connection, and the limit
    /// for servers that copy is hours for a large object. So once in a while, a look shows whether the object is there.
    ///
    /// # Errors
    /// The object, when two looks have found it and no answer has come in between.
    async fn unless_there<T>(
        &self,
        key: &ObjectKey,
        upload: &Upload,
        answer: impl Future<Output = T> + Send,
    ) -> Result<T, Stored> {
        let mut answer = pin!(answer);
        let mut was_there = false;
        loop {
            let look = async {
                self.env.clock.sleep(self.settings.deadline(0)).await;
                UnderStore::head(self, key).await
            };
            let found = tokio::select! {
                biased;
                answer = &mut answer => return Ok(answer),
                found = look => found.ok(),
            };
            // Without a stamp, nothing tells whose object it is.
            let is_ours = |remote: &RemoteObject| {
                remote.stamp.as_ref().is_some_and(|stamp| stamp.generation == upload.generation)
            };
            let found = found.filter(is_ours);
            match found {
                Some(remote) if was_there => return Err(Stored { remote_etag: remote.remote_etag }),
                found => was_there = found.is_some(),
            }
        }
    }

    /// Checks that the object is the one that was completed: some servers confirm uploads that they have never heard
    /// of.
    async fn check_completed(&self, key: &ObjectKey, upload: &Upload, stored: Stored) -> Result<Stored> {
        let problem = match UnderStore::head(self, key).await {
            // Credentials that may write but not read have to believe it.
            Err(error) if error.kind == ErrorKind::Denied => return Ok(stored),
            Err(error) => error.to_string(),
            Ok(remote) if is_of(&remote, upload, &stored) => return Ok(Stored { remote_etag: remote.remote_etag }),
            Ok(_) => "another object is there".to_owned(),
        };
        let context = self.context("complete an upload of", key);
        Err(Error::new(ErrorKind::Ambiguous, format!("{context}: said to be done, but {problem}")))
    }

    /// Returns when no part is in flight any more: one that arrives after its upload was aborted would stay.
    async fn upload_all_parts(
        &self,
        key: &ObjectKey,
        upload: &Upload,
        id: &str,
        ranges: Vec<ByteRange>,
    ) -> Result<Vec<(CompletedPart, Sum)>> {
        let has_failed = AtomicBool::new(false);
        let uploads = ranges.into_iter().zip(1..).map(|(range, number)| {
            let has_failed = &has_failed;
            async move {
                if has_failed.load(Ordering::Relaxed) {
                    return None;
                }
                let uploaded = self.upload_part(key, upload, id, number, range).await;
                has_failed.fetch_or(uploaded.is_err(), Ordering::Relaxed);
                Some(uploaded)
            }
        });
        let at_once = self.settings.parts_at_once.max(1) as usize;
        let uploaded: Vec<_> = futures::stream::iter(uploads).buffered(at_once).collect().await;
        uploaded.into_iter().flatten().collect()
    }

    async fn upload_part(
        &self,
        key: &ObjectKey,
        upload: &Upload,
        id: &str,
        number: i32,
        range: ByteRange,
    ) -> Result<(CompletedPart, Sum)> {
        // Before the request begins, which has a deadline.
        upload.turn(range.len()).await;
        let (failure, sum) = (SourceError::default(), Sum::default());
        let request = self.client.sdk.upload_part().bucket(&self.bucket).key(self.remote_key(key)).upload_id(id);
        let request = request.part_number(number).content_length(range.len() as i64);
        let request = request.checksum_algorithm(ChecksumAlgorithm::Crc32).body(body(
            upload.source.as_ref(),
            range,
            &failure,
            Some(&sum),
        ));
        // The completion names the part's ETag, which checks this answer.
        let result = customize!(request, self, range.len(), None).interceptor(SecondLook).send().await;
        let output = result.map_err(|error| {
            let error = failure.instead_of(classify(error, Effect::Write, || self.context("upload a part of", key)));
            // A part that arrived changes nothing visible.
            Error { kind: unapplied(error.kind), ..error }
        })?;
        // Something in front of S3 has answered: the completion would be refused.
        let Some(etag) = output.e_tag else {
            return Err(objects::incomplete(self.context("upload a part of", key)));
        };
        let part = CompletedPart::builder().part_number(number).e_tag(objects::tag(&etag).quoted());
        Ok((part.set_checksum_crc32(output.checksum_crc32).build(), sum))
    }

    async fn abort(&self, remote_key: &str, id: &str) -> Result<()> {
        let request = self.client.sdk.abort_multipart_upload().bucket(&self.bucket).key(remote_key).upload_id(id);
        let result = request.send().await;
        result.map(drop).map_err(|error| classify(error, Effect::Write, || format!("abort an upload of {remote_key}")))
    }

    /// Aborts uploads that have been incomplete for longer than `age` and that nobody is working on: not this process,
    /// and no other worker, whose keys they would be.
    pub(super) async fn sweep_uploads(&self, age: Duration, is_ours: IsOurs<'_>) -> Result<u64> {
        let latest_ms = self.env.clock.unix_ms().saturating_sub(age.as_millis() as u64);
        let (mut swept, mut marker) = (0, (None, None));
        loop {
            let request = self.client.sdk.list_multipart_uploads().bucket(&self.bucket).prefix(&self.prefix);
            let (key_marker, id_marker) = marker.clone();
            let result = request.set_key_marker(key_marker).set_upload_id_marker(id_marker).send().await;
            let page =
                result.map_err(|error| classify(error, Effect::Read, || format!("uploads of {}", self.bucket)))?;
            for upload in page.uploads() {
                let begun_ms = upload.initiated().and_then(|at| at.to_millis().ok()).unwrap_or(i64::MAX);
                let (Some(key), Some(id)) = (upload.key(), upload.upload_id()) else { continue };
                let own_key = key.strip_prefix(self.prefix.as_str()).and_then(|key| ObjectKey::new(key).ok());
                let is_ours = own_key.is_some_and(|key| is_ours(&key));
                if begun_ms <= latest_ms as i64 && is_ours && !self.client.uploads.lock().contains(id) {
                    match self.abort(key, id).await {
                        Ok(()) => swept += 1,
                        // Somebody else has aborted it.
                        Err(error) if error.kind == ErrorKind::NotFound => {}
                        Err(error) if error.kind.is_transient() && error.kind != ErrorKind::Conflict => {
                            return Err(error);
                        }
                        Err(error) => tracing::warn!(%error, "an incomplete upload stays until the next sweep"),
                    }
                }
            }
            if page.is_truncated() != Some(true) {
                return Ok(swept);
            }
            let before = std::mem::replace(&mut marker, (page.next_key_marker, page.next_upload_id_marker));
            must_go_on(&before, &marker, || format!("uploads of {}", self.bucket))?;
        }
    }
}

/// Whether a completion was refused for its parts. Nothing was written then.
fn is_about_parts(error: &Error) -> bool {
    let answer = error.source.as_ref().and_then(|source| source.downcast_ref::<CompleteFailed>());
    answer.and_then(ProvideErrorMetadata::code).is_some_and(|code| matches!(code, "InvalidPart" | "InvalidPartOrder"))
}

/// The checksum that the client sent. It is passed on, and the server verifies it. A checksum that only Amazon S3 is
/// known to accept is not: a CRC-32 replaces it, and the stamp keeps what the client sent.
fn client_checksum(info: &ObjectInfo) -> Option<&Checksum> {
    let full = info.checksums.kind == ChecksumKind::FullObject;
    let mut known = info.checksums.values.iter().filter(|checksum| !checksum.algorithm.is_of_2026());
    full.then(|| known.next()).flatten()
}

fn with_checksum(request: PutObjectFluentBuilder, checksum: &Checksum) -> PutObjectFluentBuilder {
    let value = checksum.base64();
    match checksum.algorithm {
        Algorithm::Crc32 => request.checksum_crc32(value),
        Algorithm::Crc32C => request.checksum_crc32_c(value),
        Algorithm::Crc64Nvme => request.checksum_crc64_nvme(value),
        Algorithm::Sha1 => request.checksum_sha1(value),
        Algorithm::Sha256 => request.checksum_sha256(value),
        Algorithm::Sha512 => request.checksum_sha512(value),
        Algorithm::Md5 => request.checksum_md5(value),
        Algorithm::Xxhash64 => request.checksum_xxhash64(value),
        Algorithm::Xxhash3 => request.checksum_xxhash3(value),
        Algorithm::Xxhash128 => request.checksum_xxhash128(value),
    }
}

/// The headers of an upload in one piece, as the SDK would write them. Where the client has sent no checksum, a CRC-32
/// is added, as the SDK would.
fn headers(subject: Subject<'_>, upload: &Upload, body: &Bytes) -> Headers {
    let info = upload.info.as_ref();
    let mut headers = Headers::default();
    headers.set("content-length", Some(&body.len().to_string()));
    headers.set("content-type", Some(info.headers.content_type.as_deref().unwrap_or(DEFAULT_TYPE)));
    headers.set("content-encoding", info.headers.content_encoding.as_deref());
    headers.set("content-language", info.headers.content_language.as_deref());
    headers.set("content-disposition", info.headers.content_disposition.as_deref());
    headers.set("cache-control", info.headers.cache_control.as_deref());
    headers.set("expires", info.headers.expires.as_deref());
    headers.set("x-amz-website-redirect-location", info.headers.website_redirect_location.as_deref());
    headers.set("x-amz-storage-class", info.headers.storage_class.as_deref());
    headers.set("x-amz-tagging", tagging(info).as_deref());
    for (name, value) in metadata(subject, upload) {
        headers.set(&format!("x-amz-meta-{name}"), Some(&value));
    }
    let (matches, absent) = conditions(&upload.condition);
    headers.set("if-match", matches.as_deref());
    headers.set("if-none-match", absent.as_deref());
    let computed = || Checksum { algorithm: Algorithm::Crc32, value: crc32(body).to_be_bytes().to_vec() };
    let checksum = client_checksum(info).cloned().unwrap_or_else(computed);
    headers.set(checksum.algorithm.header(), Some(&checksum.base64()));
    headers
}

fn crc32(body: &Bytes) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, body) as u32
}

/// All bytes of a source.
async fn gathered(source: &dyn UploadSource, size: u64) -> Result<Bytes> {
    let mut pieces: Vec<Bytes> = source.stream(ByteRange::of_size(size)).try_collect().await?;
    // Usually one.
    let body = if pieces.len() == 1 { pieces.remove(0) } else { pieces.concat().into() };
    if body.len() as u64 == size { Ok(body) } else { Err(other_size()) }
}

/// If-Match and If-None-Match.
fn conditions(condition: &Condition) -> (Option<String>, Option<String>) {
    match condition {
        Condition::Always => (None, None),
        Condition::Absent => (None, Some("*".to_owned())),
        Condition::Matches(etag) => (Some(etag.quoted()), None),
    }
}

/// User metadata with the stamp.
fn metadata(subject: Subject<'_>, upload: &Upload) -> std::collections::HashMap<String, String> {
    let user = upload.info.user.iter().map(|(name, value)| (name.clone(), objects::encode_value(value)));
    let mut metadata: std::collections::HashMap<String, String> = user.collect();
    if let Some(stamp) = objects::stamp_of(subject, upload.generation, &upload.info) {
        metadata.insert(STAMP_NAME.to_owned(), stamp);
    }
    metadata
}

/// All but what RFC 3986 leaves unreserved.
const RESERVED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn tagging(info: &ObjectInfo) -> Option<String> {
    let encode = |text: &str| percent_encoding::utf8_percent_encode(text, RESERVED).to_string();
    let pair = |(name, value): (&String, &String)| format!("{}={}", encode(name), encode(value));
    (!info.tags.is_empty()).then(|| info.tags.iter().map(pair).collect::<Vec<_>>().join("&"))
}

/// The client's own parts, when S3 accepts them. Then the ETag comes out the same, and listings of the under store show
/// the one that the client knows. `aws s3 sync` asks for an object by the ETag of the listing.
fn client_parts(info: &ObjectInfo) -> Option<Vec<ByteRange>> {
    let sizes = || info.parts.iter().map(|part| part.size);
    let last = info.parts.len().checked_sub(1)?;
    let is_legal = sizes().sum::<u64>() == info.size && sizes().take(last).all(|size| size >= PART_BYTES_MIN);
    is_legal.then(|| ranges_of(sizes()))
}

fn equal_parts(total: u64, part_size: u64) -> Vec<ByteRange> {
    let size = part_size.max(PART_BYTES_MIN).max(total.div_ceil(u64::from(PART_NUMBER_MAX)));
    ranges_of((0..total.div_ceil(size)).map(|index| size.min(total - index * size)))
}

fn ranges_of(sizes: impl Iterator<Item = u64>) -> Vec<ByteRange> {
    let mut start = 0;
    let range = |size: u64| {
        let range = ByteRange::new(start, start + size);
        start += size;
        range
    };
    sizes.map(range).collect()
}

#[cfg(test)]
mod tests {
    use forebay_types::{Checksums, ETag, PartInfo};

    use super::*;

    fn info(size: u64, parts: &[u64]) -> ObjectInfo {
        let part = |(size, number): (&u64, u32)| PartInfo { number, size: *size, checksums: Checksums::none() };
        ObjectInfo { parts: parts.iter().zip(1..).map(part).collect(), ..ObjectInfo::new(size, ETag::new("e"), 0) }
    }

    #[test]
    fn parts_of_the_client_are_kept_where_s3_takes_them() {
        let m = 1 << 20;
        let lengths = |ranges: Vec<ByteRange>| ranges.into_iter().map(ByteRange::len).collect::<Vec<_>>();
        let parts = |total: u64, parts: &[u64]| client_parts(&info(total, parts)).map(lengths);
        assert_eq!(parts(17 * m, &[5 * m, 8 * m, 4 * m]), Some(vec![5 * m, 8 * m, 4 * m]));
        assert_eq!(parts(7, &[7]), Some(vec![7]));
        assert_eq!(parts(17 * m, &[4 * m, 8 * m, 5 * m]), None);
        assert_eq!(parts(17 * m, &[5 * m, 8 * m]), None);
        assert_eq!(parts(17 * m, &[]), None);
        assert_eq!(lengths(equal_parts(40 * m, 16 * m)), [16 * m, 16 * m, 8 * m]);
        assert_eq!(equal_parts(1 << 40, 16 * m).len(), 10_000);
    }

    #[test]
    fn tags_are_written_as_a_query() {
        let tags = [("a b".to_owned(), "1&2".to_owned()), ("c".to_owned(), String::new())].into();
        let tagged = ObjectInfo { tags, ..info(1, &[]) };
        assert_eq!(tagging(&tagged).as_deref(), Some("a%20b=1%262&c="));
    }
}
