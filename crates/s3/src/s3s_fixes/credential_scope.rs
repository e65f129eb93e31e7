//! The credential scope of a signature of Version 4: where and when it holds.

use http::StatusCode;
use s3s::S3Error;

use crate::s3_error::{denied, error_with_status};

/// How the message says that a request was signed for another region.
pub(crate) const WRONG_REGION: &str = " is wrong; expecting ";

/// `key/date/region/s3/aws4_request`; the date is checked with the signature.
pub(crate) fn check_scope(credential: &str, region: &str) -> Result<(), S3Error> {
    let mut parts = credential.rsplit('/');
    let (end, service, given) = (parts.next(), parts.next(), parts.next());
    if end != Some("aws4_request") || service != Some("s3") {
        return Err(denied("The credential scope must end with s3/aws4_request."));
    }
    match given {
        Some(given) if given == region => Ok(()),
        given => Err(error_with_status(
            "AuthorizationHeaderMalformed",
            StatusCode::BAD_REQUEST,
            format!(
                "The authorization header is malformed; the region '{}'{WRONG_REGION}'{region}'",
                given.unwrap_or_default()
            ),
        )),
    }
}
