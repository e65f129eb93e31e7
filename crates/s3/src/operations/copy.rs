//! CopyObject.

use forebay_auth::{Action, User};
use forebay_cache::{Attributes, CopyObject, Error, ErrorKind};
use forebay_types::ObjectPath;
use http::header::CONTENT_LENGTH;
use s3s::dto::{CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

use super::read::hide;
use super::{ErrorMapper, Operations, not_implemented, put_conditions, refuse_unsupported, system_headers};
use crate::authorize::require;
use crate::checksums::{self, set_checksums_and_type};
use crate::context::caller;
use crate::query;
use crate::s3_error::{invalid_request, with_details, wrong_argument};
use crate::s3s_types;

impl Operations {
    pub(super) async fn copy_whole_object(
        &self,
        mut request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let mapper = ErrorMapper::of(&request, "CopyObject");
        let user = caller(&request)?;
        if request.headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0") {
            // versity/versitygw, `ErrNonEmptyRequestBody`; openstack/swift, `check_copy_source`.
            let message = "The request included a body. Requests of this type must not include a non-empty body.";
            return Err(invalid_request(message));
        }
        let input = &mut request.input;
        refuse_unsupported!(input, request.headers);
        let source = self.readable_source(&input.copy_source, &user, &mapper).await?;
        let target = s3s_types::path(&input.bucket, &input.key)?;
        let replaces = |directive: Option<&str>, name: &str| match directive {
            None | Some("COPY") => Ok(false),
            Some("REPLACE") => Ok(true),
            Some(unknown) => {
                let header = format!("x-amz-{name}-directive");
                Err(wrong_argument(&header, unknown, format!("Unknown {name} directive.")))
            }
        };
        let replace_metadata = replaces(input.metadata_directive.as_ref().map(|d| d.as_str()), "metadata")?;
        let replace_tags = replaces(input.tagging_directive.as_ref().map(|d| d.as_str()), "tagging")?;
        let headers = system_headers!(input, request.extensions)?;
        let changes = replace_metadata
            || request.headers.contains_key("x-amz-storage-class")
            || headers.website_redirect_location.is_some()
            || input.checksum_algorithm.is_some();
        if source == target && !changes {
            let message = "This copy request is illegal because it is trying to copy an object to itself without changing the \
                           object's metadata, storage class, website redirect location or encryption attributes.";
            return Err(s3_error!(InvalidRequest, "{}", message));
        }
        let conditions = put_conditions(&request, &target)?;
        // Too much of it is refused even where the object keeps what it has.
        let metadata = s3s_types::user_metadata(request.input.metadata.take())?;
        let input = &mut request.input;
        let copy = CopyObject {
            source_conditions: s3s_types::read_conditions(
                &request.headers,
                "x-amz-copy-source-",
                input.copy_source_if_modified_since.take(),
                input.copy_source_if_unmodified_since.take(),
            )?,
            storage_class: headers.storage_class.clone(),
            website_redirect_location: headers.website_redirect_location.clone(),
            replace_metadata: replace_metadata.then_some((headers, metadata)),
            replace_tags: replace_tags.then(|| s3s_types::tags_of_header(input.tagging.as_deref())).transpose()?,
            checksum_algorithm: checksums::algorithm(input.checksum_algorithm.as_ref())?,
            conditions,
            source: source.clone(),
            target,
        };
        check_replacements(&copy)?;
        // With a condition on the target, what is not there may be that.
        let names_source = copy.conditions.if_match.is_none();
        let written = match self.cache.copy(copy).await {
            Ok(written) => written,
            Err(error) => return Err(self.answer_copy(error, &user, &source, names_source, &mapper).await),
        };
        let mut result = CopyObjectResult {
            e_tag: Some(s3s_types::etag(&written.etag)),
            last_modified: Some(s3s_types::timestamp(written.last_modified_ms)),
            ..CopyObjectResult::default()
        };
        set_checksums_and_type!(result, &written.checksums, 0);
        Ok(S3Response::new(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() }))
    }
}

impl Operations {
    /// The object to copy from, if the user may read it.
    pub(super) async fn readable_source(
        &self,
        source: &CopySource,
        user: &User,
        mapper: &ErrorMapper,
    ) -> S3Result<ObjectPath> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(not_implemented("Copying from an access point"));
        };
        let path = s3s_types::path(bucket, key)?;
        require(user, Action::Read, &format!("/{path}"))?;
        match version_id.as_deref() {
            None | Some("null") => Ok(path),
            Some("") => Err(wrong_argument(query::VERSION, "", query::EMPTY_VERSION)),
            // The store behind may have it; GETs of it pass through.
            Some(version) => match self.cache.pass_through(&path.bucket).await {
                Ok(Some(_)) => Err(not_implemented("Copying an old version")),
                Ok(None) => Err(query::invalid_version(version)),
                Err(error) => Err(mapper.answer(error)),
            },
        }
    }

    /// The answer for a failed copy, of which a key that is not there is the source's if `names_source`. A bucket that
    /// is not there is looked for. Source: localstack/localstack, `test_s3_copy_object_src_not_exists`.
    pub(super) async fn answer_copy(
        &self,
        error: Error,
        user: &User,
        source: &ObjectPath,
        names_source: bool,
        mapper: &ErrorMapper,
    ) -> S3Error {
        let kind = error.kind;
        let answer = hide(error, user, source, mapper);
        match kind {
            ErrorKind::NotFound if names_source && answer.code().as_str() == "NoSuchKey" => {
                with_details(answer, &[("Key", source.key.as_str())])
            }
            ErrorKind::NoSuchBucket if matches!(self.cache.bucket_exists(&source.bucket).await, Ok(false)) => {
                with_details(answer, &[("BucketName", source.bucket.as_str())])
            }
            _ => answer,
        }
    }
}

/// Refuses what is given in place of the source's attributes where a new object could not have it.
fn check_replacements(copy: &CopyObject) -> S3Result<()> {
    let (headers, user) = copy.replace_metadata.clone().unwrap_or_default();
    let tags = copy.replace_tags.clone().unwrap_or_default();
    s3s_types::check_attributes(Attributes { headers, user, tags }).map(drop)
}
