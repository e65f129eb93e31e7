//! Listings of uploads and their parts.

use forebay_cache::ListUploads;
use forebay_types::BucketName;
use s3s::dto::{
    Initiator, ListMultipartUploadsInput, ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput, MultipartUpload,
    Owner, Part,
};
use s3s::{S3Request, S3Response, S3Result};

use super::list::{Encoding, page_limit, require_list};
use super::multipart::upload;
use super::{ErrorMapper, Operations};
use crate::checksums::{self, set_checksums};
use crate::context::caller;
use crate::s3_error::wrong_argument;
use crate::s3s_types;

impl Operations {
    pub(super) async fn list_upload_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let mapper = ErrorMapper::of(&request, "ListParts");
        let input = request.input;
        let upload = upload(&input.bucket, &input.key, input.upload_id.clone())?;
        let limit = page_limit(input.max_parts, "max-parts")?;
        let marker = input.part_number_marker.unwrap_or(0);
        let after = u32::try_from(marker).map_err(|_| {
            let message = "Argument part-number-marker must be an integer between 0 and 2147483647";
            wrong_argument("part-number-marker", &marker.to_string(), message)
        })?;
        let page = match self.cache.list_parts(&upload, after, limit).await {
            Ok(page) => page,
            Err(error) => return Err(self.answer_upload(error, &upload, &mapper).await),
        };
        let parts: Vec<Part> = page
            .parts
            .iter()
            .map(|listed| {
                let mut part = Part {
                    e_tag: Some(s3s_types::etag(&listed.etag)),
                    last_modified: Some(s3s_types::timestamp(listed.last_modified_ms)),
                    part_number: Some(listed.part.number as i32),
                    size: Some(s3s_types::size(listed.part.size)),
                    ..Part::default()
                };
                // localstack/localstack, `test_complete_multipart_parts_checksum_default`.
                if page.checksum_algorithm.is_some() {
                    set_checksums!(part, &listed.part.checksums, 0);
                }
                part
            })
            .collect();
        let output = ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            checksum_algorithm: page.checksum_algorithm.map(checksums::algorithm_name),
            checksum_type: page.checksum_kind.map(checksums::checksum_type),
            initiator: Some(Initiator { display_name: None, id: Some(page.owner.clone()) }),
            owner: Some(Owner { display_name: None, id: Some(page.owner) }),
            is_truncated: Some(page.is_truncated),
            max_parts: Some(limit as i32),
            // Always, as the markers of uploads: localstack/localstack, `test_list_parts_pagination`.
            next_part_number_marker: Some(parts.last().and_then(|part| part.part_number).unwrap_or(0)),
            part_number_marker: Some(marker),
            parts: Some(parts),
            storage_class: Some(page.storage_class.unwrap_or_else(|| "STANDARD".to_owned()).into()),
            ..ListPartsOutput::default()
        };
        Ok(S3Response::new(output))
    }

    pub(super) async fn list_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let user = caller(&request)?;
        let mapper = ErrorMapper::of(&request, "ListMultipartUploads");
        let input = request.input;
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let limit = page_limit(input.max_uploads, "max-uploads")?;
        let prefix = input.prefix.clone().unwrap_or_default();
        require_list(&user, &input.bucket, &prefix)?;
        let bucket = s3s_types::bucket(&input.bucket)?;
        let list = ListUploads {
            prefix,
            delimiter: input.delimiter.clone().filter(|text| !text.is_empty()),
            key_marker: input.key_marker.clone().filter(|text| !text.is_empty()),
            upload_id_marker: input.upload_id_marker.clone().filter(|text| !text.is_empty()),
            limit,
        };
        // Without a key to begin at it says nothing.
        if list.key_marker.is_some() && !list.upload_id_marker.as_deref().is_none_or(is_upload_id) {
            let marker = list.upload_id_marker.unwrap_or_default();
            return Err(wrong_argument("upload-id-marker", &marker, "Invalid uploadId marker"));
        }
        let has_key_marker = list.key_marker.is_some();
        let mut page = self.cache.list_uploads(&bucket, &list).await.map_err(|error| mapper.answer(error))?;
        if page.is_truncated && page.next_upload_id_marker.is_none() {
            page.next_upload_id_marker = self.first_upload(&bucket, page.next_key_marker.as_deref(), &mapper).await?;
        }
        // A page names its last entry even when it is the last page: localstack/localstack,
        // `test_list_multiparts_next_marker`.
        let (last_key, last_upload) =
            page.uploads.last().map(|last| (last.key.clone(), last.upload_id.clone())).unwrap_or_default();
        let uploads = page.uploads.into_iter().map(|upload| MultipartUpload {
            checksum_algorithm: upload.checksum_algorithm.map(checksums::algorithm_name),
            checksum_type: upload.checksum_kind.map(checksums::checksum_type),
            initiated: Some(s3s_types::timestamp(upload.created_ms)),
            initiator: Some(Initiator { display_name: None, id: Some(upload.owner.clone()) }),
            key: Some(encoding.write(upload.key)),
            owner: Some(Owner { display_name: None, id: Some(upload.owner) }),
            storage_class: Some(upload.storage_class.unwrap_or_else(|| "STANDARD".to_owned()).into()),
            upload_id: Some(upload.upload_id),
        });
        let output = ListMultipartUploadsOutput {
            uploads: Some(uploads.collect()),
            common_prefixes: encoding.prefixes(page.prefixes),
            delimiter: input.delimiter.filter(|text| !text.is_empty()).map(|delimiter| encoding.write(delimiter)),
            encoding_type: input.encoding_type,
            is_truncated: Some(page.is_truncated),
            key_marker: Some(encoding.write(input.key_marker.unwrap_or_default())),
            max_uploads: Some(limit as i32),
            next_key_marker: Some(encoding.write(page.next_key_marker.unwrap_or(last_key))),
            next_upload_id_marker: Some(page.next_upload_id_marker.unwrap_or(last_upload)),
            prefix: Some(encoding.write(input.prefix.unwrap_or_default())),
            // Without a key it says nothing.
            upload_id_marker: Some(input.upload_id_marker.filter(|_| has_key_marker).unwrap_or_default()),
            bucket: Some(input.bucket),
            request_charged: None,
        };
        Ok(S3Response::new(output))
    }
}

impl Operations {
    /// The first upload of a common prefix that ends a page: S3 gives both markers whatever the page ends with.
    async fn first_upload(
        &self,
        bucket: &BucketName,
        prefix: Option<&str>,
        mapper: &ErrorMapper,
    ) -> S3Result<Option<String>> {
        let Some(prefix) = prefix else { return Ok(None) };
        let list = ListUploads { prefix: prefix.to_owned(), limit: 1, ..ListUploads::default() };
        let page = self.cache.list_uploads(bucket, &list).await.map_err(|error| mapper.answer(error))?;
        Ok(page.uploads.into_iter().next().map(|upload| upload.upload_id))
    }
}

/// Whether an upload may have this id: the cache makes them of 128 random bits and a hash of the path. Older releases
/// left out the hash.
fn is_upload_id(text: &str) -> bool {
    matches!(text.len(), 32 | 48) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
