//! What requests say of access lists, in a bucket where they are disabled.

use http::{HeaderMap, StatusCode};
use s3s::{S3Error, S3Result};

use crate::s3_error::{error_with_status, invalid_request, with_details, wrong_argument};

pub(crate) const FULL_CONTROL_OF_THE_OWNER: &str = "bucket-owner-full-control";

pub(crate) fn not_supported() -> S3Error {
    let message = "The bucket does not allow ACLs";
    error_with_status("AccessControlListNotSupported", StatusCode::BAD_REQUEST, message)
}

/// "Canned ACL", Amazon S3 User Guide.
pub(crate) const CANNED: [&str; 8] = [
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
fn check_name(acl: Option<&str>) -> S3Result<()> {
    match acl {
        Some(name) if !CANNED.contains(&name) => Err(wrong_argument("x-amz-acl", name, "")),
        Some(_) | None => Ok(()),
    }
}

/// Of Amazon S3: localstack/localstack, `test_s3_bucket_acl_exceptions`.
pub(crate) fn check_headers(acl: Option<&str>, headers: &HeaderMap) -> S3Result<()> {
    check_name(acl)?;
    match acl.is_some() && has_grants(headers) {
        true => Err(invalid_request("Specifying both Canned ACLs and Header Grants is not allowed")),
        false => Ok(()),
    }
}

/// A change of a list that says it neither in a header nor in a document, or in both.
pub(crate) fn check_place(in_headers: bool, in_document: bool) -> S3Result<()> {
    match (in_headers, in_document) {
        (false, false) => {
            let message = "Your request was missing a required header";
            let error = error_with_status("MissingSecurityHeader", StatusCode::BAD_REQUEST, message);
            Err(with_details(error, &[("MissingHeaderName", "x-amz-acl")]))
        }
        (true, true) => {
            let message = "This request does not support content";
            Err(error_with_status("UnexpectedContent", StatusCode::BAD_REQUEST, message))
        }
        _ => Ok(()),
    }
}

pub(crate) fn has_grants(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-"))
}

/// Refuses what a new object would have to grant to others. Many tools send `private` with everything they
/// make.
pub(crate) fn check_new(acl: Option<&str>, headers: &HeaderMap) -> S3Result<()> {
    check_headers(acl, headers)?;
    if grants_nothing(acl, headers) { Ok(()) } else { Err(not_supported()) }
}

/// The same for a new bucket, of which Amazon S3 says it in other words: kubernetes/kops#15454.
pub(crate) fn check_new_bucket(acl: Option<&str>, headers: &HeaderMap) -> S3Result<()> {
    check_headers(acl, headers)?;
    if grants_nothing(acl, headers) {
        return Ok(());
    }
    let message = "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting";
    Err(error_with_status("InvalidBucketAclWithObjectOwnership", StatusCode::BAD_REQUEST, message))
}

fn grants_nothing(acl: Option<&str>, headers: &HeaderMap) -> bool {
    matches!(acl, None | Some("private" | FULL_CONTROL_OF_THE_OWNER)) && !has_grants(headers)
}
