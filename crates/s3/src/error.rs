//! The cache's errors as S3's: one table.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_cache::{Detail, Error, ErrorKind, LostPart};
use forebay_types::error_chain;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use s3s::S3Error;

use crate::s3_error::{error_with_status, with_details};
use crate::s3s_fixes::BodyError;
use crate::s3s_types;

/// One row of the table.
struct Row {
    code: &'static str,
    status: StatusCode,
    message: &'static str,
}

/// What each kind is in S3's words. Every kind has its row.
fn row(kind: ErrorKind) -> Row {
    let (code, status, message) = match kind {
        ErrorKind::NotFound => ("NoSuchKey", 404, "The specified key does not exist."),
        ErrorKind::NoSuchBucket => ("NoSuchBucket", 404, "The specified bucket does not exist"),
        ErrorKind::NoSuchUpload => (
            "NoSuchUpload",
            404,
            "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.",
        ),
        ErrorKind::BucketAlreadyExists => (
            "BucketAlreadyOwnedByYou",
            409,
            "Your previous request to create the named bucket succeeded and you already own it.",
        ),
        ErrorKind::BucketNotEmpty => ("BucketNotEmpty", 409, "The bucket you tried to delete is not empty"),
        ErrorKind::BucketBusy => (
            "OperationAborted",
            409,
            "A conflicting conditional operation is currently in progress against this resource. Please try again.",
        ),
        ErrorKind::PreconditionFailed => {
            ("PreconditionFailed", 412, "At least one of the pre-conditions you specified did not hold")
        }
        ErrorKind::NotModified => ("NotModified", 304, "Not Modified"),
        ErrorKind::Conflict => (
            "ConditionalRequestConflict",
            409,
            "The conditional request cannot succeed due to a conflicting operation against this resource.",
        ),
        ErrorKind::InvalidArgument => ("InvalidArgument", 400, "Invalid argument."),
        ErrorKind::InvalidKey => (
            "InvalidArgument",
            400,
            "The storage behind this cache refuses the key: it has no such names. Use another key.",
        ),
        ErrorKind::InvalidRequest => ("InvalidRequest", 400, "Invalid request."),
        ErrorKind::BadDigest => ("BadDigest", 400, "The Content-MD5 you specified did not match what we received."),
        ErrorKind::PayloadHashMismatch => (
            "XAmzContentSHA256Mismatch",
            400,
            "The provided 'x-amz-content-sha256' header does not match what was computed.",
        ),
        ErrorKind::ChecksumMismatch => {
            ("BadDigest", 400, "The checksum you specified did not match the calculated checksum.")
        }
        ErrorKind::IncompleteBody | ErrorKind::Body => (
            "IncompleteBody",
            400,
            "You did not provide the number of bytes specified by the Content-Length HTTP header",
        ),
        ErrorKind::EntityTooSmall => {
            ("EntityTooSmall", 400, "Your proposed upload is smaller than the minimum allowed size")
        }
        ErrorKind::EntityTooLarge => ("EntityTooLarge", 400, "Your proposed upload exceeds the maximum allowed size"),
        ErrorKind::InvalidPart => (
            "InvalidPart",
            400,
            "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified \
             entity tag may not match the part's entity tag.",
        ),
        ErrorKind::InvalidPartOrder => (
            "InvalidPartOrder",
            400,
            "The list of parts was not in ascending order. Parts must be ordered by part number.",
        ),
        ErrorKind::InvalidRange => ("InvalidRange", 416, "The requested range is not satisfiable"),
        ErrorKind::InvalidPartNumber => ("InvalidPartNumber", 416, "The requested partnumber is not satisfiable"),
        ErrorKind::AccessDenied => ("AccessDenied", 403, "Access Denied"),
        ErrorKind::SlowDown => ("SlowDown", 503, "Please reduce your request rate."),
        ErrorKind::InsufficientStorage => {
            ("InsufficientStorage", 507, "The request is larger than the server can store.")
        }
        ErrorKind::Unavailable | ErrorKind::Moved => {
            ("ServiceUnavailable", 503, "Service is unable to handle the request. Try again.")
        }
        ErrorKind::Corrupt => {
            ("InternalError", 500, "The only copy of the data is damaged or missing. Write the object again.")
        }
        ErrorKind::NotImplemented => {
            ("NotImplemented", 501, "A header or parameter you provided implies functionality that is not implemented.")
        }
        ErrorKind::Internal => ("InternalError", 500, "We encountered an internal error. Please try again."),
    };
    let status = StatusCode::from_u16(status).expect("the table holds valid statuses");
    Row { code, status, message }
}

/// The answer for an error of the cache. What it says of its causes goes to the log, never to the client.
pub(crate) fn from_cache(error: Error, request_id: &str, operation: &'static str) -> S3Error {
    log(&error, request_id, operation);
    let row = row(error.kind);
    if let Some(body) = error.source.as_deref().and_then(|source| source.downcast_ref::<BodyError>()) {
        let mut answer = error_with_status(body.code(), body.status(), body.message());
        answer.set_request_id(request_id);
        return answer;
    }
    let mut answer = error_with_status(row.code, row.status, message(&error, &row));
    answer.set_request_id(request_id);
    if let Some(headers) = headers(&error) {
        answer.set_headers(headers);
    }
    match error.detail.as_deref() {
        Some(detail) => with_details(answer, &elements(detail, operation)),
        None => answer,
    }
}

/// The elements in which S3 tells a detail: localstack/localstack, `test_s3_invalid_content_md5`,
/// `test_multipart_complete_multipart_too_small` and `test_multipart_complete_multipart_wrong_part`.
fn elements(detail: &Detail, operation: &str) -> Vec<(&'static str, String)> {
    match detail {
        Detail::Md5 { given, calculated } => {
            // Amazon S3 writes the one that PutObject was given in hex, and that of any other in base64.
            let given = if operation == "PutObject" { hex::encode(given) } else { STANDARD.encode(given) };
            vec![("ExpectedDigest", given), ("CalculatedDigest", STANDARD.encode(calculated))]
        }
        Detail::AboveLimit { size, limit } => {
            vec![("ProposedSize", size.to_string()), ("MaxSizeAllowed", limit.to_string())]
        }
        Detail::SmallPart { number, etag, size, limit } => vec![
            ("ProposedSize", size.to_string()),
            ("MinSizeAllowed", limit.to_string()),
            ("PartNumber", number.to_string()),
            ("ETag", etag.as_str().to_owned()),
        ],
        Detail::Part { number, etag } => {
            vec![("PartNumber", number.to_string()), ("ETag", etag.as_str().to_owned())]
        }
    }
}

/// Our own words for what the client did wrong, when no other system had a say in them.
fn message(error: &Error, row: &Row) -> String {
    match error.kind {
        ErrorKind::InvalidArgument | ErrorKind::InvalidRequest | ErrorKind::ChecksumMismatch
            if error.source.is_none() =>
        {
            error.context.clone()
        }
        ErrorKind::InvalidArgument => {
            "The storage behind this cache refuses the request for its key, its headers or its size.".to_owned()
        }
        // Of a policy, of the configuration, or of what is full or has to be waited for; it names no more than the
        // request does.
        ErrorKind::AccessDenied | ErrorKind::NotImplemented | ErrorKind::SlowDown | ErrorKind::InsufficientStorage
            if error.source.is_none() =>
        {
            format!("{}: {}", row.message.trim_end_matches('.'), error.context)
        }
        ErrorKind::SlowDown | ErrorKind::InsufficientStorage if error.is_disk_full() => {
            format!("{}: the disks of the cache have no room for it", row.message.trim_end_matches('.'))
        }
        ErrorKind::AccessDenied => {
            "Access Denied: the storage behind this cache denies access to the cache itself, for every user. The operator of the cache must grant it the missing permission (`forebay doctor` names it).".to_owned()
        }
        ErrorKind::InvalidPart if error.source.as_deref().is_some_and(|source| source.is::<LostPart>()) => {
            error.context.clone()
        }
        ErrorKind::NoSuchBucket if error.source.is_some() => {
            "The bucket does not exist in the storage behind this cache. The operator of the cache must create it, or correct the mount.".to_owned()
        }
        ErrorKind::Unavailable => match error.why_under_store_takes_none() {
            Some(why) => format!(
                "Service is unable to handle the request: the storage behind this cache {why}. The operator of the cache must change that. Try again."
            ),
            None => row.message.to_owned(),
        },
        _ => row.message.to_owned(),
    }
}

fn headers(error: &Error) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    if let Some(object) = &error.object {
        if let Ok(etag) = HeaderValue::try_from(object.etag.quoted()) {
            headers.insert(header::ETAG, etag);
        }
        if let Ok(time) = HeaderValue::try_from(s3s_types::http_date(object.last_modified_ms)) {
            headers.insert(header::LAST_MODIFIED, time);
        }
    }
    if let Some(wait) = error.retry_after {
        // In whole seconds, behind the end of the time.
        headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
    }
    if headers.is_empty() {
        return None;
    }
    // `s3s` replaces all headers by these, its own Content-Type among them.
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    Some(headers)
}

fn log(error: &Error, request_id: &str, operation: &'static str) {
    let problem = error_chain(error);
    match row(error.kind).status.as_u16() {
        // There may be as many of these as requests, for hours. One notice shows what they have in common.
        _ if error.kind == ErrorKind::SlowDown => {
            tracing::debug!(request_id, operation, kind = ?error.kind, "request refused: {problem}")
        }
        500 => tracing::error!(request_id, operation, kind = ?error.kind, "request failed: {problem}"),
        501.. => tracing::warn!(request_id, operation, kind = ?error.kind, "request failed: {problem}"),
        _ => tracing::debug!(request_id, operation, kind = ?error.kind, "request refused: {problem}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_types::{ETag, ObjectInfo};

    use super::*;

    fn check(kind: ErrorKind, code: &str, status: u16) -> S3Error {
        let error = from_cache(Error::new(kind, "context"), "id", "GetObject");
        assert_eq!((error.code().as_str(), error.status_code().unwrap().as_u16()), (code, status));
        error
    }

    #[test]
    fn kinds_have_their_codes() {
        check(ErrorKind::NotFound, "NoSuchKey", 404);
        check(ErrorKind::PayloadHashMismatch, "XAmzContentSHA256Mismatch", 400);
        check(ErrorKind::InsufficientStorage, "InsufficientStorage", 507);
        check(ErrorKind::Corrupt, "InternalError", 500);
        check(ErrorKind::SlowDown, "SlowDown", 503);
    }

    #[test]
    fn a_client_that_is_to_slow_down_hears_why() {
        let error = Error::new(ErrorKind::SlowDown, "an earlier request may still be carried out");
        let answer = from_cache(error, "id", "PutObject");
        assert_eq!(
            answer.message(),
            Some("Please reduce your request rate: an earlier request may still be carried out")
        );
        let full = |kind| forebay_store::Error { kind, context: "/secret/disk".into(), source: None };
        let answer = from_cache(full(forebay_store::ErrorKind::Full).into(), "id", "PutObject");
        let told = "Please reduce your request rate: the disks of the cache have no room for it";
        assert_eq!((answer.code().as_str(), answer.message()), ("SlowDown", Some(told)));
        let answer = from_cache(full(forebay_store::ErrorKind::Busy).into(), "id", "PutObject");
        assert_eq!(answer.message(), Some("Please reduce your request rate."));
        let answer = from_cache(full(forebay_store::ErrorKind::NeverFits).into(), "id", "PutObject");
        let told = "The request is larger than the server can store: the disks of the cache have no room for it";
        assert_eq!((answer.code().as_str(), answer.message()), ("InsufficientStorage", Some(told)));
        // What the under store says stays inside.
        let mut throttled = Error::new(ErrorKind::SlowDown, "the under store: secret-host");
        throttled.source = Some("secret-host".into());
        assert_eq!(from_cache(throttled, "id", "PutObject").message(), Some("Please reduce your request rate."));
    }

    #[test]
    fn a_client_hears_that_the_under_store_is_full_or_read_only_and_no_more() {
        use forebay_ufs::ErrorKind as Ufs;
        for (kind, words) in [(Ufs::NoSpace, "has no space left."), (Ufs::ReadOnly, "is read-only.")] {
            let answer = from_cache(forebay_ufs::Error::new(kind, "/secret/path").into(), "id", "PutObject");
            let code = (answer.code().as_str(), answer.status_code().map(|status| status.as_u16()));
            assert_eq!(code, ("ServiceUnavailable", Some(503)));
            let message = answer.message().unwrap_or_default();
            assert!(message.contains(words) && !message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn not_modified_shows_the_object() {
        let object = ObjectInfo::new(1, ETag::new("abc"), 1_577_836_800_000);
        let error = Error { object: Some(Box::new(object)), ..Error::new(ErrorKind::NotModified, "same") };
        let answer = from_cache(error, "id", "GetObject");
        let headers = answer.headers().unwrap();
        assert_eq!(headers.get(header::ETAG).unwrap(), "\"abc\"");
        assert_eq!(headers.get(header::LAST_MODIFIED).unwrap(), "Wed, 01 Jan 2020 00:00:00 GMT");
    }

    #[test]
    fn who_has_to_wait_is_told_how_long() {
        let error =
            Error { retry_after: Some(Duration::from_millis(26_400)), ..Error::new(ErrorKind::SlowDown, "wait") };
        let answer = from_cache(error, "id", "PutObject");
        assert_eq!(answer.headers().unwrap().get(header::RETRY_AFTER).unwrap(), "27");
    }

    #[test]
    fn what_another_system_said_stays_inside() {
        let mut error = Error::new(ErrorKind::InvalidArgument, "remote said secret-host");
        error.source = Some("remote body".into());
        let answer = from_cache(error, "id", "PutObject");
        assert!(!answer.message().unwrap().contains("secret-host"));
    }
}
