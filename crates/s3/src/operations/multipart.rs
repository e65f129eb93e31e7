//! Multipart uploads: create, parts, complete, abort.

use std::sync::Arc;

use forebay_cache::{
    Attributes, CompletePart, CompleteUpload, CopyPart, CreateUpload, Error, ErrorKind, ListUploads, UploadRef,
};
use forebay_types::{Algorithm, Checksum, ETag, limits};
use http::HeaderMap;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput, CompleteMultipartUploadOutput,
    CompletedPart, CopyPartResult, CreateMultipartUploadInput, CreateMultipartUploadOutput, Range, UploadPartCopyInput,
    UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

use super::read::part_number;
use super::{ErrorMapper, Operations, put_conditions, refuse_unsupported, system_headers};
use crate::checksums::{self, set_checksums, set_checksums_and_type};
use crate::context::{NoDocument, RequestContext, caller, is_signed, take_trailing};
use crate::incoming::{Announced, incoming};
use crate::object_url::location;
use crate::s3_error::{MALFORMED_XML, invalid_request, with_details, wrong_argument};
use crate::s3s_fixes::checksums::Texts;
use crate::s3s_types;

pub(super) fn upload(bucket: &str, key: &str, upload_id: String) -> S3Result<UploadRef> {
    Ok(UploadRef { path: s3s_types::path(bucket, key)?, upload_id })
}

impl Operations {
    /// What is not there is the bucket, when there is none.
    pub(super) async fn answer_upload(&self, error: Error, upload: &UploadRef, mapper: &ErrorMapper) -> S3Error {
        let is_absent = error.kind == ErrorKind::NoSuchUpload;
        if is_absent && matches!(self.cache.bucket_exists(&upload.path.bucket).await, Ok(false)) {
            return mapper.answer(Error::new(ErrorKind::NoSuchBucket, error.context));
        }
        // localstack/localstack, `test_multipart_no_such_upload` and `test_complete_multipart_parts_order`.
        let is_about_upload =
            matches!(error.kind, ErrorKind::NoSuchUpload | ErrorKind::InvalidPart | ErrorKind::InvalidPartOrder);
        let answer = mapper.answer(error);
        if is_about_upload { with_details(answer, &[("UploadId", upload.upload_id.as_str())]) } else { answer }
    }

    pub(super) async fn begin_upload(
        &self,
        mut request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let mapper = ErrorMapper::of(&request, "CreateMultipartUpload");
        let user = caller(&request)?;
        let input = &mut request.input;
        refuse_unsupported!(input, request.headers);
        let create = CreateUpload {
            path: s3s_types::path(&input.bucket, &input.key)?,
            attributes: s3s_types::check_attributes(Attributes {
                headers: system_headers!(input, request.extensions)?,
                user: s3s_types::user_metadata(input.metadata.take())?,
                tags: s3s_types::tags_of_header(input.tagging.as_deref())?,
            })?,
            checksum_algorithm: checksums::algorithm(input.checksum_algorithm.as_ref())?,
            checksum_kind: checksums::checksum_kind(input.checksum_type.as_ref())?,
            owner: user.owner_id.clone(),
        };
        let (algorithm, kind) = (create.checksum_algorithm, create.checksum_kind);
        let upload_id = self.cache.create_upload(create).await.map_err(|error| mapper.answer(error))?;
        let input = request.input;
        let output = CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(upload_id),
            checksum_algorithm: algorithm.map(checksums::algorithm_name),
            checksum_type: algorithm
                .map(|algorithm| checksums::checksum_type(kind.unwrap_or(algorithm.default_kind()))),
            ..CreateMultipartUploadOutput::default()
        };
        Ok(S3Response::new(output))
    }

    pub(super) async fn write_part(
        &self,
        mut request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let mapper = ErrorMapper::of(&request, "UploadPart");
        let (trailing, signed) = (take_trailing(&mut request), is_signed(&request));
        let input = &mut request.input;
        let number = part_number(input.part_number)?;
        let upload = upload(&input.bucket, &input.key, std::mem::take(&mut input.upload_id))?;
        let announced = Announced {
            content_length: input.content_length,
            content_md5: input.content_md5.take(),
            checksums: checksums::given_in_headers(&request.headers)?,
            trailing,
            signed,
        };
        let body = incoming(input.body.take(), &request.headers, announced)?;
        let written = match self.cache.put_part(&upload, number, body).await {
            Ok(written) => written,
            Err(error) => return Err(self.answer_upload(error, &upload, &mapper).await),
        };
        let output = UploadPartOutput { e_tag: Some(s3s_types::etag(&written.etag)), ..UploadPartOutput::default() };
        let mut response = S3Response::new(output);
        checksums::set_checksum_headers(&mut response.headers, &written.checksums, 0);
        Ok(response)
    }

    pub(super) async fn copy_to_part(
        &self,
        mut request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let mapper = ErrorMapper::of(&request, "UploadPartCopy");
        let user = caller(&request)?;
        let input = &mut request.input;
        let source = self.readable_source(&input.copy_source, &user, &mapper).await?;
        let copy = CopyPart {
            number: part_number(input.part_number)?,
            upload: upload(&input.bucket, &input.key, std::mem::take(&mut input.upload_id))?,
            source_conditions: s3s_types::read_conditions(
                &request.headers,
                "x-amz-copy-source-",
                input.copy_source_if_modified_since.take(),
                input.copy_source_if_unmodified_since.take(),
            )?,
            range: input.copy_source_range.as_deref().map(copy_range).transpose()?,
            source: source.clone(),
        };
        let upload = copy.upload.clone();
        let written = match self.cache.copy_part(copy).await {
            Ok(written) => written,
            Err(error) if error.kind == ErrorKind::NoSuchUpload => {
                return Err(self.answer_upload(error, &upload, &mapper).await);
            }
            Err(Error { kind: ErrorKind::InvalidRange, object: Some(found), .. }) => {
                let range = request.input.copy_source_range.as_deref().unwrap_or_default();
                return Err(outside_of_source(range, found.size));
            }
            Err(error) => return Err(self.answer_copy(error, &user, &source, true, &mapper).await),
        };
        let mut result = CopyPartResult {
            e_tag: Some(s3s_types::etag(&written.etag)),
            last_modified: Some(s3s_types::timestamp(written.last_modified_ms)),
            ..CopyPartResult::default()
        };
        set_checksums!(result, &written.checksums, 0);
        Ok(S3Response::new(UploadPartCopyOutput { copy_part_result: Some(result), ..UploadPartCopyOutput::default() }))
    }

    pub(super) async fn complete_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let mapper = ErrorMapper::of(&request, "CompleteMultipartUpload");
        let conditions = put_conditions(&request, &s3s_types::path(&request.input.bucket, &request.input.key)?)?;
        let location = location(&request, None);
        let kept = kept_checksums(&request);
        if request.extensions.get::<NoDocument>().is_some() {
            // localstack/localstack, `test_multipart_complete_multipart_too_small`.
            return Err(invalid_request("You must specify at least one part"));
        }
        let headers = request.headers;
        let input = request.input;
        let checksums = checksums::given_in_headers(&headers)?;
        let given = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        if given.is_empty() || given.len() > limits::PART_NUMBER_MAX as usize {
            return Err(s3_error!(MalformedXML, "{MALFORMED_XML}"));
        }
        check_part_count(&headers, given.len())?;
        let size = input.mpu_object_size.map(object_size).transpose()?;
        let complete = CompleteUpload {
            upload: upload(&input.bucket, &input.key, input.upload_id)?,
            parts: given.into_iter().zip(kept).map(complete_part).collect::<S3Result<_>>()?,
            checksums,
            checksum_kind: checksums::checksum_kind(input.checksum_type.as_ref())?,
            size,
            conditions,
        };
        let parts = complete.parts.len();
        let upload = complete.upload.clone();
        let written = match self.cache.complete_upload(complete).await {
            Ok(written) => written,
            Err(error) => return Err(self.answer_upload(error, &upload, &mapper).await),
        };
        let mut output = CompleteMultipartUploadOutput {
            location,
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(s3s_types::etag(&written.etag)),
            ..CompleteMultipartUploadOutput::default()
        };
        set_checksums_and_type!(output, &written.checksums, parts);
        Ok(S3Response::new(output))
    }

    pub(super) async fn drop_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let mapper = ErrorMapper::of(&request, "AbortMultipartUpload");
        let input = request.input;
        let upload = upload(&input.bucket, &input.key, input.upload_id)?;
        let wanted = input.if_match_initiated_time.map(s3s_types::unix_seconds);
        if let Some(wanted) = wanted
            && let Some(created_ms) = self.created_ms(&upload).await.map_err(|error| mapper.answer(error))?
            && created_ms / 1000 != wanted
        {
            return Err(mapper.answer(Error::new(ErrorKind::PreconditionFailed, "the upload began at another time")));
        }
        match self.cache.abort_upload(&upload).await {
            Ok(()) => {}
            Err(error) => match self.answer_upload(error, &upload, &mapper).await {
                // With a time, one that is gone is as wanted.
                error if wanted.is_some() && error.code().as_str() == "NoSuchUpload" => {}
                error => return Err(error),
            },
        }
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    /// When an upload began, if it is there. That never changes.
    async fn created_ms(&self, upload: &UploadRef) -> Result<Option<u64>, Error> {
        let key = upload.path.key.as_str();
        let limit = limits::LIST_KEYS_MAX as usize;
        let mut list = ListUploads { prefix: key.to_owned(), limit, ..ListUploads::default() };
        loop {
            let page = self.cache.list_uploads(&upload.path.bucket, &list).await?;
            let found = page.uploads.iter().find(|listed| listed.key == key && listed.upload_id == upload.upload_id);
            let is_last = !page.is_truncated || page.next_key_marker.as_deref() != Some(key);
            if found.is_some() || is_last {
                return Ok(found.map(|listed| listed.created_ms));
            }
            (list.key_marker, list.upload_id_marker) = (page.next_key_marker, page.next_upload_id_marker);
        }
    }
}

fn object_size(given: i64) -> S3Result<u64> {
    // versity/versitygw, `CompleteMultipartUpload_mpu_object_size`.
    let wrong = |_| invalid_request(format!("Value for x-amz-mp-object-size header is less than zero: '{given}'"));
    u64::try_from(given).map_err(wrong)
}

/// A composite checksum ends with the number of parts.
fn check_part_count(headers: &HeaderMap, parts: usize) -> S3Result<()> {
    let is_wrong = |algorithm: Algorithm| {
        let text = headers.get(algorithm.header()).and_then(|value| value.to_str().ok());
        text.and_then(|text| text.rsplit_once('-')).is_some_and(|(_, count)| count.parse() != Ok(parts))
    };
    match Algorithm::ALL.into_iter().find(|algorithm| is_wrong(*algorithm)) {
        None => Ok(()),
        Some(wrong) => Err(invalid_request(format!("Value for {} header is invalid.", wrong.header()))),
    }
}

/// Of each part, the checksums that were kept from `s3s`.
fn kept_checksums<T>(request: &S3Request<T>) -> impl Iterator<Item = Texts> + use<T> {
    let context = request.extensions.get::<Arc<RequestContext>>();
    let kept = context.and_then(|context| context.part_checksums.get()).cloned().unwrap_or_default();
    kept.into_iter().chain(std::iter::repeat_with(Texts::new))
}

/// What is wrong with the checksum of a part: versity/versitygw, `CompleteMultipartUpload_invalid_checksum_part`.
/// Several are taken: SDKs repeat all that UploadPart has told them.
fn complete_part((part, kept): (CompletedPart, Texts)) -> S3Result<CompletePart> {
    let known = [
        (Algorithm::Crc32, &part.checksum_crc32),
        (Algorithm::Crc32C, &part.checksum_crc32c),
        (Algorithm::Crc64Nvme, &part.checksum_crc64nvme),
        (Algorithm::Sha1, &part.checksum_sha1),
        (Algorithm::Sha256, &part.checksum_sha256),
    ];
    let mut given: Texts = known.into_iter().filter_map(|(algorithm, text)| Some((algorithm, text.clone()?))).collect();
    given.extend(kept);
    let wrong =
        |value: &str| wrong_argument("Checksum", value, "Invalid Base64 or multiple checksums present in request");
    let parsed = given.iter().map(|(algorithm, text)| Checksum::parse(*algorithm, text).ok_or_else(|| wrong(text)));
    let checksums = parsed.collect::<S3Result<Vec<_>>>()?;
    let number = part.part_number.ok_or_else(|| s3_error!(MalformedXML, "{MALFORMED_XML}"))?;
    let etag = part.e_tag.ok_or_else(|| s3_error!(MalformedXML, "{MALFORMED_XML}"))?;
    if number < 1 {
        return Err(wrong_argument("PartNumber", &number.to_string(), "PartNumber must be >= 1"));
    }
    Ok(CompletePart { number: part_number(number)?, etag: ETag::new(etag.value()), checksums })
}

/// `bytes=first-last`, both needed.
fn copy_range(text: &str) -> S3Result<(u64, u64)> {
    match Range::parse(text) {
        Ok(Range::Int { first, last: Some(last) }) => Ok((first, last)),
        _ => Err(wrong_argument(
            COPY_RANGE,
            text,
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based \
             offsets of the first and last bytes to copy",
        )),
    }
}

const COPY_RANGE: &str = "x-amz-copy-source-range";

/// versity/versitygw#610; localstack/localstack, `test_upload_part_copy_range`: a range that begins behind the end has
/// an error of its own.
fn outside_of_source(range: &str, size: u64) -> S3Error {
    if copy_range(range).is_ok_and(|(first, _)| first >= size) {
        return invalid_request("The specified copy range is invalid for the source object size");
    }
    let message = format!("Range specified is not valid for source object of size: {size}");
    wrong_argument(COPY_RANGE, range, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_ranges_need_both_ends() {
        assert_eq!(copy_range("bytes=0-9").unwrap(), (0, 9));
        for bad in ["", "bytes=0-", "bytes=-5", "bytes=9-0", "0-9", "bytes=0-1,3-4", "bytes=+0-1"] {
            assert!(copy_range(bad).is_err(), "{bad}");
        }
    }
}
