//! DeleteObject, DeleteObjects.

use std::collections::HashSet;
use std::sync::Arc;

use forebay_auth::{Action, User};
use forebay_cache::{Conditions, TagCondition};
use forebay_types::{ETag, limits};
use futures::{StreamExt, stream};
use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, Error,
    ObjectIdentifier,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::{ErrorMapper, Operations, check_tags, not_implemented, only_null_version, write_conditions};
use crate::authorize::require;
use crate::context::{RequestContext, caller};
use crate::s3_error::{MALFORMED_XML, header_not_implemented};
use crate::s3s_types;

/// Conditions that only directory buckets of S3 have.
const DIRECTORY_CONDITIONS: [&str; 2] = ["x-amz-if-match-last-modified-time", "x-amz-if-match-size"];

/// Deletes of one request that run at once: they share group commits.
const DELETES_AT_ONCE: usize = 32;

impl Operations {
    pub(super) async fn remove_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = &request.input;
        only_null_version(input.version_id.as_deref())?;
        // localstack/localstack, `test_delete_object_if_match_all_non_express`.
        if let Some(header) = DIRECTORY_CONDITIONS.into_iter().find(|name| request.headers.contains_key(*name)) {
            return Err(header_not_implemented(header));
        }
        let path = s3s_types::path(&input.bucket, &input.key)?;
        let conditions = write_conditions(&request, &path)?;
        let mapper = ErrorMapper::of(&request, "DeleteObject");
        self.cache.delete(&path, &conditions).await.map_err(|error| mapper.answer(error))?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    pub(super) async fn remove_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let user = caller(&request)?;
        let mapper = ErrorMapper::of(&request, "DeleteObjects");
        let context = request.extensions.get::<Arc<RequestContext>>().cloned();
        let bucket = request.input.bucket;
        self.need_bucket(&bucket, &mapper).await?;
        let delete = request.input.delete;
        if delete.objects.is_empty() || delete.objects.len() > limits::DELETE_KEYS_MAX {
            return Err(s3_error!(MalformedXML, "{MALFORMED_XML}"));
        }
        let quiet = delete.quiet.unwrap_or(false);
        let outcomes: Vec<(ObjectIdentifier, S3Result<()>)> = stream::iter(once_each(delete.objects))
            .map(|object| {
                let (bucket, user, mapper, context) = (&bucket, &user, &mapper, context.as_deref());
                async move {
                    let number = context.map(|context| context.deleting(&object.key));
                    let outcome = self.remove_one(bucket, &object, user, mapper).await;
                    if let Some((context, number)) = context.zip(number) {
                        context.deleted(number, &outcome);
                    }
                    (object, outcome)
                }
            })
            .buffered(DELETES_AT_ONCE)
            .collect()
            .await;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for (object, outcome) in outcomes {
            match outcome {
                Ok(()) if quiet => {}
                Ok(()) => deleted.push(DeletedObject {
                    key: Some(object.key),
                    version_id: object.version_id,
                    ..DeletedObject::default()
                }),
                Err(error) => errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(object.key),
                    message: error.message().map(str::to_owned),
                    version_id: object.version_id,
                }),
            }
        }
        let output = DeleteObjectsOutput { deleted: Some(deleted), errors: Some(errors), request_charged: None };
        Ok(S3Response::new(output))
    }

    async fn remove_one(
        &self,
        bucket: &str,
        object: &ObjectIdentifier,
        user: &User,
        mapper: &ErrorMapper,
    ) -> S3Result<()> {
        let path = s3s_types::path(bucket, &object.key)?;
        require(user, Action::Write, &format!("/{path}"))?;
        only_null_version(object.version_id.as_deref())?;
        if object.size.is_some() || object.last_modified_time.is_some() {
            return Err(not_implemented("Deleting by size or time"));
        }
        let if_match = object.e_tag.as_ref().map(|tag| match tag.value() {
            "*" => TagCondition::Any,
            tag => TagCondition::OneOf(vec![ETag::new(tag)]),
        });
        let conditions = Conditions { if_match, ..Conditions::default() };
        check_tags(&conditions, user, &path)?;
        self.cache.delete(&path, &conditions).await.map_err(|error| mapper.answer(error))
    }
}

/// What a list says twice is done and answered once. Under different conditions it is not the same.
fn once_each(objects: Vec<ObjectIdentifier>) -> Vec<ObjectIdentifier> {
    let mut seen = HashSet::new();
    let is_plain = |object: &ObjectIdentifier| {
        object.e_tag.is_none() && object.size.is_none() && object.last_modified_time.is_none()
    };
    let mut is_new =
        |object: &ObjectIdentifier| !is_plain(object) || seen.insert((object.key.clone(), object.version_id.clone()));
    objects.into_iter().filter(|object| is_new(object)).collect()
}
