//! Object tags.

use forebay_types::Tags;
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput, GetObjectTaggingOutput,
    PutObjectTaggingInput, PutObjectTaggingOutput, Tag,
};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use super::read::hide;
use super::{ErrorMapper, Operations, only_null_version};
use crate::context::caller;
use crate::s3_error::with_details;
use crate::s3s_types;

impl Operations {
    pub(super) async fn read_tags(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        only_null_version(request.input.version_id.as_deref())?;
        let path = s3s_types::path(&request.input.bucket, &request.input.key)?;
        let user = caller(&request)?;
        let mapper = ErrorMapper::of(&request, "GetObjectTagging");
        let tags = self.cache.tags(&path).await.map_err(|error| {
            let answer = hide(error, &user, &path, &mapper);
            // With its bucket, here alone: localstack/localstack, `test_object_tagging_exc`.
            let is_absent = *answer.code() == S3ErrorCode::NoSuchKey;
            if is_absent { with_details(answer, &[("Key", path.to_string())]) } else { answer }
        })?;
        let tag_set = tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect();
        Ok(S3Response::new(GetObjectTaggingOutput { tag_set, version_id: None }))
    }

    pub(super) async fn write_tags(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        only_null_version(request.input.version_id.as_deref())?;
        let path = s3s_types::path(&request.input.bucket, &request.input.key)?;
        let user = caller(&request)?;
        let mapper = ErrorMapper::of(&request, "PutObjectTagging");
        let pairs = request.input.tagging.tag_set.into_iter();
        let tags =
            s3s_types::tags(pairs.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect())?;
        self.cache.set_tags(&path, tags).await.map_err(|error| hide(error, &user, &path, &mapper))?;
        Ok(S3Response::new(PutObjectTaggingOutput::default()))
    }

    pub(super) async fn remove_tags(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        only_null_version(request.input.version_id.as_deref())?;
        let path = s3s_types::path(&request.input.bucket, &request.input.key)?;
        let user = caller(&request)?;
        let mapper = ErrorMapper::of(&request, "DeleteObjectTagging");
        self.cache.set_tags(&path, Tags::new()).await.map_err(|error| hide(error, &user, &path, &mapper))?;
        Ok(S3Response::new(DeleteObjectTaggingOutput::default()))
    }
}
