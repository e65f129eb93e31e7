//! What requests say of access lists, in a bucket where they are disabled.

use http::{HeaderMap, StatusCode};
use s3s::{S3Error, S3Result};

use crate::s3_error::{error_with_status, wrong_argument};

pub(crate) const FULL_CONTROL_OF_THE_OWNER: &str = "bucket-owner-full-control";

pub(crate) fn not_supported() -> S3Error {
    let message = "The bucket does not allow ACLs";
    error_with_status("AccessControlListNotSupported", StatusCode::BAD_REQUEST, message)
}

/// "Canned ACL", Amazon S3 User Guide.
const CANNED: [&str; 8] = [
    "private",
    "public-read",
    "public-read-write",
    "authenticated-read",
    "aws-exec-read",
    "bucket-owner-read",
    FULL_CONTROL_OF_THE_OWNER,
    "log-delivery-write",
];

/// Refuses what is the name of no canned list: versity/versitygw#1367 and #1379, taskcat/taskcat#492.
pub(crate) fn check_name(acl: Option<&str>) -> S3Result<()> {
    match acl {
        Some(name) if !CANNED.contains(&name) => Err(wrong_argument("x-amz-acl", name, "")),
        Some(_) | None => Ok(()),
    }
}

pub(crate) fn has_grants(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-"))
}

/// Refuses what a new object would have to grant to others. Many tools send `private` with everything they
/// make.
pub(crate) fn check_new(acl: Option<&str>, headers: &HeaderMap) -> S3Result<()> {
    check_name(acl)?;
    if grants_nothing(acl, headers) { Ok(()) } else { Err(not_supported()) }
}

/// The same for a new bucket, of which Amazon S3 says it in other words: kubernetes/kops#15454.
pub(crate) fn check_new_bucket(acl: Option<&str>, headers: &HeaderMap) -> S3Result<()> {
    check_name(acl)?;
    if grants_nothing(acl, headers) {
        return Ok(());
    }
    let message = "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting";
    Err(error_with_status("InvalidBucketAclWithObjectOwnership", StatusCode::BAD_REQUEST, message))
}

fn grants_nothing(acl: Option<&str>, headers: &HeaderMap) -> bool {
    matches!(acl, None | Some("private" | FULL_CONTROL_OF_THE_OWNER)) && !has_grants(headers)
}
