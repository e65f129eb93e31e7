//! What errors of the SDK mean to us.

use std::error::Error as StdError;
use std::io;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use hyper_util::client::legacy::Error as HttpError;

use crate::{Error, ErrorKind};

/// Whether a request without an answer may have changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// HEAD: its answer has no body, so there is only the status. A GET shows what else it may mean.
    Look,
    Read,
    Write,
}

/// Classifies an error. The text is that of the whole chain: the SDK's own text only says "service error".
pub(super) fn classify<E>(error: SdkError<E, HttpResponse>, effect: Effect, context: impl FnOnce() -> String) -> Error
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    let kind = match &error {
        SdkError::ServiceError(answer) => {
            // A HEAD has nothing to read, and the body of a request that bypassed the SDK was read before.
            let is_said = answer.raw().body().bytes().is_none_or(|body| body.is_empty() || is_error_document(body));
            let code = answer.err().code().filter(|_| is_said).unwrap_or_default();
            match answer.raw().status().as_u16() {
                // The page of a gateway: we never ask for changes since an earlier answer, and S3 says which condition
                // failed.
                304 => unanswered(effect),
                409 | 412 | 501 if !is_said => unanswered(effect),
                status => of_answer(code, status, effect),
            }
        }
        // An answer that nobody understands.
        SdkError::ResponseError(_) | SdkError::TimeoutError(_) => unanswered(effect),
        SdkError::DispatchFailure(_) if lacks_credentials(&error) => ErrorKind::Credentials,
        SdkError::DispatchFailure(_) if never_connected(&error) => ErrorKind::Unavailable,
        SdkError::ConstructionFailure(_) => ErrorKind::Invalid,
        // The SDK may add kinds.
        _ => unanswered(effect),
    };
    let reason = match &error {
        SdkError::ServiceError(answer) => {
            let code = answer.err().code().unwrap_or("no code");
            format!("HTTP {} {code} {}", answer.raw().status().as_u16(), answer.err().message().unwrap_or_default())
        }
        _ => chain(&error).map(ToString::to_string).collect::<Vec<_>>().join(": "),
    };
    let unsent = matches!(error, SdkError::DispatchFailure(_)) && is_connecting(&error);
    Error { kind, context: format!("{}: {}", context(), reason.trim()), source: Some(Box::new(error)), unsent }
}

fn of_answer(code: &str, status: u16, effect: Effect) -> ErrorKind {
    match (code, status) {
        (code, _) if is_about_credentials(code) => ErrorKind::Credentials,
        // For a project without billing, the status is 400 as well.
        ("AccessDenied" | "UserProjectMissing" | "AccountProblem", _) | (_, 401 | 403) => ErrorKind::Denied,
        ("NoSuchBucket", _) => ErrorKind::NoBucket,
        (code, _) if is_about_rate(code) => ErrorKind::Throttled,
        // A proxy in front of S3 says this about a server that it no longer reaches, which may still have got the
        // request. MinIO says it with a code of its own (SlowDownWrite, RequestTimeout) when too few of its disks have
        // answered: some may have the change.
        (_, 503) if effect == Effect::Write => ErrorKind::Ambiguous,
        (_, 429 | 503) => ErrorKind::Throttled,
        ("BucketAlreadyExists" | "BucketAlreadyOwnedByYou", _) => ErrorKind::AlreadyExists,
        ("BucketNotEmpty", _) => ErrorKind::NotEmpty,
        ("NotImplemented", _) | (_, 501) => ErrorKind::Unsupported,
        ("BadDigest" | "XAmzContentChecksumMismatch" | "XAmzContentSHA256Mismatch" | "InvalidDigest", _) => {
            ErrorKind::Corrupt
        }
        // The server gave up waiting for the body: nothing was written.
        ("RequestTimeout" | "IncompleteBody", _) | (_, 408) => ErrorKind::Unavailable,
        (_, 304 | 412) => ErrorKind::Precondition,
        // A 404 may also come from a proxy, or mean an unknown user. Only an explicit code means "no such object".
        ("NoSuchKey" | "NoSuchUpload" | "NoSuchVersion" | "NoSuchTagSet", 404) => ErrorKind::NotFound,
        ("NotFound", 404) if effect == Effect::Look => ErrorKind::NotFound,
        // The code is the SDK's own name for an empty body.
        ("NotFound" | "", 404) => unanswered(effect),
        // The last ones come from servers that keep objects as files: the directory of the key is an object, or the key
        // itself is a directory.
        (
            "XMinioInvalidObjectName"
            | "XMinioInvalidResourceName"
            | "InvalidObjectName"
            | "KeyTooLongError"
            | "DirectoryObjectContainsData"
            | "ObjectParentIsFile"
            | "ExistingObjectIsDirectory"
            | "XMinioParentIsObject"
            | "XMinioObjectExistsAsDirectory",
            _,
        ) => ErrorKind::InvalidName,
        ("InvalidStorageClass", _) => ErrorKind::InvalidStorageClass,
        (_, 409) => ErrorKind::Conflict,
        // Without a code, a gateway has answered, which may say this about anything. The exceptions are about this
        // request: its method, its length, its headers.
        ("", 400..=499) if effect == Effect::Write && !matches!(status, 405 | 411 | 413..=417 | 431) => {
            unanswered(effect)
        }
        ("", 400..=499) if effect == Effect::Read && !matches!(status, 414 | 431) => unanswered(effect),
        (_, 400..=499) => ErrorKind::Invalid,
        _ => unanswered(effect),
    }
}

/// Whether a body is an error document, from its beginning to its end. Pages may quote one, and gateways may cut one
/// off.
pub(super) fn is_error_document(body: &[u8]) -> bool {
    let body = body.trim_ascii();
    let declared = body.strip_prefix(b"<?xml").and_then(|rest| {
        let end = rest.windows(2).position(|two| two == b"?>")?;
        Some(rest[end + 2..].trim_ascii_start())
    });
    let root = declared.unwrap_or(body);
    [("<Error>", "</Error>"), ("<Error ", "</Error>"), ("<ErrorResponse", "</ErrorResponse>")]
        .iter()
        .any(|(first, last)| root.starts_with(first.as_bytes()) && root.ends_with(last.as_bytes()))
}

/// Longest name between `&` and `;`, in bytes: `#x10ffff`.
const REFERENCE_BYTES_MAX: usize = 8;

/// The text of a document as it is meant: `&quot;` is a quotation mark. Control characters stay as they are written.
pub(super) fn decoded(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        whole.push_str(before);
        let end = after.bytes().take(REFERENCE_BYTES_MAX + 1).position(|byte| byte == b';');
        match end.and_then(|end| Some((referenced(&after[..end])?, end))) {
            Some((character, end)) => {
                whole.push(character);
                rest = &after[end + 1..];
            }
            None => {
                whole.push('&');
                rest = after;
            }
        }
    }
    whole.push_str(rest);
    whole
}

fn referenced(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix('x') {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?).filter(|character| !character.is_control())
        }
    }
}

/// Whether an error code of S3 says that it does not accept our credentials, rather than what they may not do. The
/// status may be 400: for expired temporary credentials, and for a signature for another region.
pub fn is_about_credentials(code: &str) -> bool {
    matches!(
        code,
        "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "InvalidToken"
            | "TokenRefreshRequired"
            | "AuthorizationHeaderMalformed"
            | "InvalidSecurity"
    )
}

/// Whether an error code says that a request was turned away because there were others before it: nothing was done.
/// That `ServiceUnavailable` means the same is promised nowhere.
fn is_about_rate(code: &str) -> bool {
    matches!(
        code,
        "SlowDown"
            | "RequestLimitExceeded"
            | "BandwidthLimitExceeded"
            | "RequestThrottled"
            | "TooManyRequests"
            | "Throttling"
            | "ThrottlingException"
    )
}

fn unanswered(effect: Effect) -> ErrorKind {
    match effect {
        Effect::Look | Effect::Read => ErrorKind::Unavailable,
        Effect::Write => ErrorKind::Ambiguous,
    }
}

/// For requests without a condition: if an answer says that a condition failed, it comes from a gateway.
pub(super) fn of_no_condition(error: Error) -> Error {
    match error.kind {
        ErrorKind::Precondition => Error { kind: ErrorKind::Unavailable, ..error },
        _ => error,
    }
}

/// What a failed request means for a write that it only began. NoSuchUpload says nothing about the object.
pub(super) fn unapplied(kind: ErrorKind) -> ErrorKind {
    if matches!(kind, ErrorKind::Ambiguous | ErrorKind::NotFound) { ErrorKind::Unavailable } else { kind }
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| -> Option<&'a (dyn StdError + 'static)> { StdError::source(*error) })
}

/// There was no connection, so nothing was sent. The kernel also says of an open connection that its host is out of
/// reach: only while one is made, that means the same.
fn never_connected(error: &(dyn StdError + 'static)) -> bool {
    let is_connecting = is_connecting(error);
    chain(error).any(|error| {
        let refused = error.downcast_ref::<io::Error>().is_some_and(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => true,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => is_connecting,
            _ => false,
        });
        refused || error.to_string().contains("HTTP connect timeout")
    })
}

/// The request needed a new connection, and there was none. An open connection may fail with the same error of the
/// kernel.
fn is_connecting(error: &(dyn StdError + 'static)) -> bool {
    chain(error).any(|error| {
        error.downcast_ref::<HttpError>().is_some_and(HttpError::is_connect)
            || error.to_string().contains("HTTP connect timeout")
    })
}

fn lacks_credentials(error: &(dyn StdError + 'static)) -> bool {
    chain(error).any(|error| error.is::<aws_credential_types::provider::error::CredentialsError>())
}

#[cfg(test)]
mod tests {
    use aws_sdk_s3::operation::put_object::PutObjectError;
    use aws_smithy_runtime_api::client::result::ConnectorError;
    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;

    use super::*;

    fn failed_write(error: Box<dyn StdError + Send + Sync>) -> Error {
        let error: SdkError<PutObjectError, HttpResponse> = SdkError::dispatch_failure(ConnectorError::io(error));
        classify(error, Effect::Write, || "put".to_owned())
    }

    fn of_write(error: Box<dyn StdError + Send + Sync>) -> ErrorKind {
        failed_write(error).kind
    }

    #[tokio::test]
    async fn a_host_is_out_of_reach_before_or_after_a_write_was_sent() {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        // No connection can be made to all hosts at once.
        let connecting = client.get("http://255.255.255.255:9/".parse().unwrap()).await.unwrap_err();
        let unsent = failed_write(connecting.into());
        assert!(unsent.kind == ErrorKind::Unavailable && unsent.is_unsent());
        for kind in [io::ErrorKind::HostUnreachable, io::ErrorKind::NetworkUnreachable] {
            assert_eq!(of_write(io::Error::from(kind).into()), ErrorKind::Ambiguous, "{kind}");
        }
        let refused = failed_write(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        assert!(refused.kind == ErrorKind::Unavailable && !refused.is_unsent());
    }

    #[test]
    fn references_in_a_document_are_what_they_stand_for() {
        for (text, meant) in [
            ("The key &quot;a&amp;b&quot; isn&apos;t there", "The key \"a&b\" isn't there"),
            ("&#34;&#x22;&lt;&gt;", "\"\"<>"),
            ("&amp;quot;", "&quot;"),
            ("a & b; &c; &#10; &#xd800; &", "a & b; &c; &#10; &#xd800; &"),
            ("&\u{e9}\u{e9}\u{e9}\u{e9}\u{e9};", "&\u{e9}\u{e9}\u{e9}\u{e9}\u{e9};"),
        ] {
            assert_eq!(decoded(text), meant);
        }
    }

    #[test]
    fn only_what_s3_says_is_said_of_the_request() {
        for status in [400, 404, 406, 409, 410, 421, 422] {
            let plain = of_answer("", status, Effect::Write);
            assert!(matches!(plain, ErrorKind::Ambiguous | ErrorKind::Conflict), "{status}: {plain:?}");
        }
        for status in [405, 411, 413, 414, 431] {
            assert_eq!(of_answer("", status, Effect::Write), ErrorKind::Invalid, "{status}");
        }
        for (code, status) in [
            ("XMinioInvalidObjectName", 400),
            ("KeyTooLongError", 400),
            ("ObjectParentIsFile", 409),
            ("ExistingObjectIsDirectory", 409),
        ] {
            assert_eq!(of_answer(code, status, Effect::Write), ErrorKind::InvalidName, "{code}");
        }
    }

    #[test]
    fn a_write_that_failed_on_the_way_was_not_just_turned_away() {
        for code in ["", "ServiceUnavailable", "InternalError", "SlowDownWrite", "SlowDownRead", "RequestTimeout"] {
            assert_eq!(of_answer(code, 503, Effect::Write), ErrorKind::Ambiguous, "{code}");
            assert_eq!(of_answer(code, 503, Effect::Read), ErrorKind::Throttled, "{code}");
        }
        for (code, status) in [("SlowDown", 503), ("ThrottlingException", 400), ("TooManyRequests", 429), ("", 429)] {
            assert_eq!(of_answer(code, status, Effect::Write), ErrorKind::Throttled, "{code}");
        }
    }

    #[test]
    fn only_a_whole_document_is_one() {
        let declared = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
        for whole in ["<Error><Code>NoSuchKey</Code></Error>", "<Error xmlns=\"x\"><Code>a</Code></Error>\n"] {
            assert!(is_error_document(whole.as_bytes()) && is_error_document(format!("{declared}{whole}").as_bytes()));
            assert!(!is_error_document(&whole.as_bytes()[..20]));
            assert!(!is_error_document(format!("<html>blocked: {whole}</html>").as_bytes()));
        }
        assert!(!is_error_document(b"") && !is_error_document(b"<?xml") && !is_error_document(b"{\"Code\": 1}"));
    }

    #[test]
    fn credentials_that_are_over_are_no_fault_of_a_request() {
        for (code, status) in [
            ("ExpiredToken", 400),
            ("InvalidToken", 400),
            ("TokenRefreshRequired", 400),
            ("AuthorizationHeaderMalformed", 400),
            ("InvalidAccessKeyId", 403),
            ("SignatureDoesNotMatch", 403),
        ] {
            assert_eq!(of_answer(code, status, Effect::Write), ErrorKind::Credentials, "{code}");
        }
        for (code, status) in [("AccessDenied", 403), ("UserProjectMissing", 400), ("", 403), ("", 401)] {
            assert_eq!(of_answer(code, status, Effect::Write), ErrorKind::Denied, "{code}");
        }
        assert_eq!(of_answer("InvalidStorageClass", 400, Effect::Write), ErrorKind::InvalidStorageClass);
    }
}
