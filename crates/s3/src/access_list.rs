//! What requests say of access lists, in a bucket where they are disabled.

use http::{HeaderMap, StatusCode};
use s3s::{S3Error, S3Result};

use crate::s3_error::error_with_status;

pub(crate) const FULL_CONTROL_OF_THE_OWNER: &str = "bucket-owner-full-control";

pub(crate) fn not_supported() -> S3Error {
    let message = "The bucket does not allow ACLs";
    error_with_status("AccessControlListNotSupported", StatusCode::BAD_REQUEST, message)
}

pub(crate) fn has_grants(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-"))
}

/// Refuses what a new object or bucket would have to grant to others. Many tools send `private` with everything they
/// make.
pub(crate) fn check_new(acl: Option<&str>, headers: &HeaderMap) -> S3Result<()> {
    match acl {
        None | Some("private" | FULL_CONTROL_OF_THE_OWNER) if !has_grants(headers) => Ok(()),
        _ => Err(not_supported()),
    }
}
