//! DeleteObject, DeleteObjects.

use std::collections::HashSet;
use std::sync::Arc;

use forebay_auth::{Action, User};
use forebay_cache::{Conditions, ErrorKind, TagCondition, is_about_credentials};
use forebay_types::{ETag, ObjectPath, limits};
use futures::{StreamExt, stream};
use http::{Extensions, HeaderMap, Method, StatusCode, Uri};
use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, Error,
    ObjectIdentifier,
};
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};
use s3s_aws::Proxy;

use super::{ErrorMapper, Operations, check_tags, not_implemented, only_null_version, write_conditions};
use crate::authorize::require;
use crate::context::{RequestContext, caller};
use crate::s3_error::{MALFORMED_XML, error_with_status, header_not_implemented};
use crate::s3s_types;

/// Conditions that only directory buckets of S3 have.
const DIRECTORY_CONDITIONS: [&str; 2] = ["x-amz-if-match-last-modified-time", "x-amz-if-match-size"];

/// Deletes of one request that run at once: they share group commits.
const DELETES_AT_ONCE: usize = 32;

/// Who deletes the objects of a list, and how.
struct Remover<'a> {
    bucket: &'a str,
    user: &'a User,
    mapper: &'a ErrorMapper,
    /// What the request says of versions that are locked.
    bypass_governance_retention: Option<bool>,
    mfa: Option<String>,
}

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
        let DeleteObjectsInput { bucket, delete, bypass_governance_retention, mfa, .. } = request.input;
        self.need_bucket(&bucket, &mapper).await?;
        if delete.objects.is_empty() || delete.objects.len() > limits::DELETE_KEYS_MAX {
            return Err(s3_error!(MalformedXML, "{MALFORMED_XML}"));
        }
        let quiet = delete.quiet.unwrap_or(false);
        let remover = Remover { bucket: &bucket, user: &user, mapper: &mapper, bypass_governance_retention, mfa };
        let outcomes: Vec<(ObjectIdentifier, S3Result<bool>)> = stream::iter(once_each(delete.objects))
            .map(|object| {
                let (remover, context) = (&remover, context.as_deref());
                async move {
                    let number = context.map(|context| context.deleting(&object.key));
                    let outcome = self.remove_one(remover, &object).await;
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
                Ok(_) if quiet => {}
                Ok(was_marker) => deleted.push(DeletedObject {
                    key: Some(object.key),
                    delete_marker: was_marker.then_some(true),
                    delete_marker_version_id: object.version_id.clone().filter(|_| was_marker),
                    version_id: object.version_id,
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

    /// Returns whether what was deleted is a version that marks a delete.
    async fn remove_one(&self, remover: &Remover<'_>, object: &ObjectIdentifier) -> S3Result<bool> {
        let Remover { bucket, user, mapper, .. } = *remover;
        let path = s3s_types::path(bucket, &object.key)?;
        require(user, Action::Write, &format!("/{path}"))?;
        if let Some(version) = object.version_id.as_deref().filter(|version| !matches!(*version, "" | "null")) {
            // Boxed: this is rare, and would make the futures of all deletes larger.
            return Box::pin(self.remove_version(remover, object, &path, version)).await;
        }
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
        self.cache.delete(&path, &conditions).await.map(|()| false).map_err(|error| mapper.answer(error))
    }

    /// Deletes a version that only the under store has, as a DeleteObject with its id does: see
    /// [`crate::pass_through`]. Returns whether it marks a delete.
    async fn remove_version(
        &self,
        remover: &Remover<'_>,
        object: &ObjectIdentifier,
        path: &ObjectPath,
        version: &str,
    ) -> S3Result<bool> {
        let fail = |error| remover.mapper.answer(error);
        let Some(target) = self.cache.pass_through(&path.bucket).await.map_err(fail)? else {
            return only_null_version(Some(version)).map(|()| false);
        };
        require(remover.user, Action::Admin, &format!("/{path}"))?;
        if object.e_tag.is_some() || object.size.is_some() || object.last_modified_time.is_some() {
            return Err(not_implemented("Deleting a version on a condition"));
        }
        self.cache.check_key(path).await.map_err(fail)?;
        let change = match self.cache.begin_passing_change(path).await {
            Err(error) if error.kind == ErrorKind::Moved => {
                return Err(not_implemented(
                    "Deleting a version that is at home at another worker, in a list of keys,",
                ));
            }
            change => change.map_err(fail)?,
        };
        let change = change.ok_or_else(|| {
            let message = "The object has not been uploaded to the storage behind this cache yet. Try again.";
            error_with_status("ServiceUnavailable", StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        let input = DeleteObjectInput {
            bucket: target.bucket,
            key: format!("{}{}", target.prefix, path.key),
            version_id: Some(version.to_owned()),
            bypass_governance_retention: remover.bypass_governance_retention,
            mfa: remover.mfa.clone(),
            ..DeleteObjectInput::default()
        };
        let proxy = Proxy::from(target.client);
        let answer = change.send(proxy.delete_object(passed(input))).await.map_err(fail)?;
        // Behind a 5xx the change may still be carried out, but for one that says that nobody can.
        let is_known = answer.as_ref().err().is_none_or(|error| {
            let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            !status.is_server_error() || status == StatusCode::NOT_IMPLEMENTED
        });
        if is_known {
            change.end().await;
        }
        if answer.as_ref().is_err_and(|error| error.code().as_str() == "InvalidArgument") {
            // S3 says that of an id that cannot be one in a request for one object, and this in a list.
            only_null_version(Some(version))?;
        }
        let deleted = answer.map_err(|error| in_our_words(&error))?;
        Ok(deleted.output.delete_marker == Some(true))
    }
}

/// A request for the store behind, whose client signs it.
fn passed<T>(input: T) -> S3Request<T> {
    S3Request {
        input,
        method: Method::DELETE,
        uri: Uri::default(),
        headers: HeaderMap::default(),
        extensions: Extensions::default(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

/// The code of an error of the store behind, without its text, which may name users, hosts and keys there.
fn in_our_words(error: &S3Error) -> S3Error {
    // Clients have shown who they are to us.
    if is_about_credentials(error.code().as_str()) {
        return S3Error::new(s3s::S3ErrorCode::ServiceUnavailable);
    }
    let mut told = S3Error::new(error.code().clone());
    if let Some(status) = error.status_code() {
        told.set_status_code(status);
    }
    told
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
