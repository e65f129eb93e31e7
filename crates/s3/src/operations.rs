//! The operations of S3, each in terms of the cache.

mod acl;
mod buckets;
mod copy;
mod delete;
mod list;
mod multipart;
mod read;
mod tagging;
mod uploads;
mod write;

use async_trait::async_trait;
use forebay_auth::{Action, User};
use forebay_cache::{Cache, Conditions, TagCondition};
use forebay_types::ObjectPath;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue};
use s3s::dto::*;
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};

use crate::authorize::require;
use crate::context::{caller, request_id};
use crate::error::from_cache;
use crate::s3_error::{header_not_implemented, with_details};
use crate::s3s_types;
use crate::token::Tokens;
pub(crate) use read::requested_range;

/// Answers routed and authorized requests.
#[derive(Clone)]
pub(crate) struct Operations {
    pub(crate) cache: Cache,
    pub(crate) tokens: Tokens,
    pub(crate) region: String,
    /// Who owns all buckets.
    pub(crate) owner_id: String,
}

/// Turns errors of the cache into answers to one request.
pub(crate) struct ErrorMapper {
    pub(crate) request_id: String,
    pub(crate) operation: &'static str,
}

impl ErrorMapper {
    fn of<T>(request: &S3Request<T>, operation: &'static str) -> Self {
        Self { request_id: request_id(request), operation }
    }

    fn answer(&self, error: forebay_cache::Error) -> S3Error {
        from_cache(error, &self.request_id, self.operation)
    }
}

fn not_implemented(what: &str) -> S3Error {
    s3_error!(NotImplemented, "{} is not implemented.", what)
}

/// The conditions on what a write replaces.
fn write_conditions<T>(request: &S3Request<T>, path: &ObjectPath) -> S3Result<Conditions> {
    let conditions = s3s_types::write_conditions(&request.headers)?;
    let user = caller(request)?;
    check_tags(&conditions, &user, path)?;
    Ok(conditions)
}

/// The conditions on what a new object replaces.
fn put_conditions<T>(request: &S3Request<T>, path: &ObjectPath) -> S3Result<Conditions> {
    refuse_conditions(&request.headers)?;
    write_conditions(request, path)
}

/// Refuses conditions on a new object that S3 does not have: clients that send them rely on them. Of Amazon S3:
/// aws/aws-sdk-ruby#3144, versity/versitygw#1708 and #2108; localstack/localstack,
/// `test_put_object_if_match_validation` and `test_copy_object_precondition_write_validation`.
fn refuse_conditions(headers: &HeaderMap) -> S3Result<()> {
    let is_any = |tag: &HeaderValue| tag.as_bytes().trim_ascii() == b"*";
    let (header, why) = match (headers.get(IF_MATCH), headers.get(IF_NONE_MATCH)) {
        (Some(_), Some(_)) => {
            ("If-Match,If-None-Match", "Multiple conditional request headers present in the request".to_owned())
        }
        (Some(tag), None) if is_any(tag) => ("If-Match", not_for_this("If-Match")),
        (None, Some(tag)) if !is_any(tag) => ("If-None-Match", not_for_this("If-None-Match")),
        _ => return Ok(()),
    };
    Err(with_details(header_not_implemented(header), &[("additionalMessage", why)]))
}

fn not_for_this(header: &str) -> String {
    format!("We don't accept the provided value of {header} header for this API")
}

/// Whether an object has a tag is for those who may read it: most tags are the MD5 of the content.
fn check_tags(conditions: &Conditions, user: &User, path: &ObjectPath) -> S3Result<()> {
    let asks = |condition: &Option<TagCondition>| matches!(condition, Some(TagCondition::OneOf(_)));
    match asks(&conditions.if_match) || asks(&conditions.if_none_match) {
        true => require(user, Action::Read, &format!("/{path}")),
        false => Ok(()),
    }
}

/// `null` is the version of every object here; any other id would be another object's.
fn only_null_version(version_id: Option<&str>) -> S3Result<()> {
    match version_id {
        None | Some("null") => Ok(()),
        Some(_) => Err(s3_error!(NoSuchVersion, "The specified version does not exist.")),
    }
}

/// Refuses what would have to be done and is not: encryption (of forms; headers that ask for it, and for locks, are
/// refused where access is checked) and access lists that grant anything to others.
macro_rules! refuse_unsupported {
    ($input:expr, $headers:expr) => {{
        let input = &$input;
        if input.sse_customer_algorithm.is_some()
            || input.server_side_encryption.is_some()
            || input.ssekms_key_id.is_some()
        {
            return Err($crate::operations::not_implemented("Server-side encryption"));
        }
        $crate::access_list::check_new(input.acl.as_ref().map(|acl| acl.as_str()), &$headers)?;
    }};
}
use refuse_unsupported;

/// The stored headers that an input carries.
macro_rules! system_headers {
    ($input:expr, $extensions:expr) => {
        $crate::s3s_types::check_headers(forebay_types::SystemHeaders {
            content_type: $input.content_type.take().filter(|kind| !kind.is_empty()),
            content_encoding: $crate::s3s_types::content_encoding($input.content_encoding.take()),
            content_language: $input.content_language.take(),
            content_disposition: $input.content_disposition.take(),
            cache_control: $input.cache_control.take(),
            expires: $crate::s3s_types::given_expires($input.expires.take(), &$extensions),
            website_redirect_location: $input.website_redirect_location.take(),
            storage_class: $crate::s3s_types::storage_class($input.storage_class.take())?,
        })
    };
}
use system_headers;

/// Hands each operation of the trait to the method that does it, on behalf of who has sent the request.
macro_rules! operations {
    ($($operation:ident($input:ident) -> $output:ident = $method:ident;)*) => {
        #[async_trait]
        impl S3 for Operations {
            $(async fn $operation(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                let requester = caller(&request)?.requester();
                requester.gets(self.$method(request)).await
            })*
        }
    };
}

operations! {
    get_object(GetObjectInput) -> GetObjectOutput = read_object;
    head_object(HeadObjectInput) -> HeadObjectOutput = describe_object;
    get_object_attributes(GetObjectAttributesInput) -> GetObjectAttributesOutput = describe_attributes;
    put_object(PutObjectInput) -> PutObjectOutput = write_object;
    copy_object(CopyObjectInput) -> CopyObjectOutput = copy_whole_object;
    delete_object(DeleteObjectInput) -> DeleteObjectOutput = remove_object;
    delete_objects(DeleteObjectsInput) -> DeleteObjectsOutput = remove_objects;
    get_object_tagging(GetObjectTaggingInput) -> GetObjectTaggingOutput = read_tags;
    put_object_tagging(PutObjectTaggingInput) -> PutObjectTaggingOutput = write_tags;
    delete_object_tagging(DeleteObjectTaggingInput) -> DeleteObjectTaggingOutput = remove_tags;
    list_objects(ListObjectsInput) -> ListObjectsOutput = list_version_1;
    list_objects_v2(ListObjectsV2Input) -> ListObjectsV2Output = list_version_2;
    list_object_versions(ListObjectVersionsInput) -> ListObjectVersionsOutput = list_versions;
    create_multipart_upload(CreateMultipartUploadInput) -> CreateMultipartUploadOutput = begin_upload;
    upload_part(UploadPartInput) -> UploadPartOutput = write_part;
    upload_part_copy(UploadPartCopyInput) -> UploadPartCopyOutput = copy_to_part;
    complete_multipart_upload(CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput = complete_upload;
    abort_multipart_upload(AbortMultipartUploadInput) -> AbortMultipartUploadOutput = drop_upload;
    list_parts(ListPartsInput) -> ListPartsOutput = list_upload_parts;
    list_multipart_uploads(ListMultipartUploadsInput) -> ListMultipartUploadsOutput = list_uploads;
    list_buckets(ListBucketsInput) -> ListBucketsOutput = list_all_buckets;
    head_bucket(HeadBucketInput) -> HeadBucketOutput = describe_bucket;
    create_bucket(CreateBucketInput) -> CreateBucketOutput = make_bucket;
    delete_bucket(DeleteBucketInput) -> DeleteBucketOutput = remove_bucket;
    get_bucket_acl(GetBucketAclInput) -> GetBucketAclOutput = read_bucket_acl;
    put_bucket_acl(PutBucketAclInput) -> PutBucketAclOutput = write_bucket_acl;
    get_object_acl(GetObjectAclInput) -> GetObjectAclOutput = read_object_acl;
    put_object_acl(PutObjectAclInput) -> PutObjectAclOutput = write_object_acl;
    get_bucket_ownership_controls(GetBucketOwnershipControlsInput) -> GetBucketOwnershipControlsOutput = read_ownership;
    put_bucket_ownership_controls(PutBucketOwnershipControlsInput) -> PutBucketOwnershipControlsOutput = write_ownership;
    get_bucket_location(GetBucketLocationInput) -> GetBucketLocationOutput = locate_bucket;
}
