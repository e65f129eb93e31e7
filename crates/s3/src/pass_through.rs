//! Requests that the cache has no opinion on go to the under store as they are, when it is S3.
//!
//! They are signed again with the under store's credentials: `s3s` parses the request once more, for a [`Proxy`], with
//! bucket and key rewritten. Without an S3 under store they get S3's own NotImplemented.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use forebay_auth::{Action, Users};
use forebay_cache::{Cache, PassedOn, STAMP_HEADER, is_about_credentials};
use futures::StreamExt;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body::{Frame, SizeHint};
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::SimpleAuth;
use s3s::host::S3Host;
use s3s::path::{S3Path, parse_virtual_hosted_style_with_validation};
use s3s::route::S3Route;
use s3s::service::S3ServiceBuilder;
use s3s::{Body, HttpRequest, HttpResponse, S3Error, S3Request, S3Response, S3Result, StdError, s3_error};
use s3s_aws::Proxy;
use sha2::{Digest, Sha256};

use crate::authorize::{EXPECTED_OWNERS, admit, check_expected_owner, require};
use crate::buffers::Buffers;
use crate::context::{Caller, RequestContext, caller, request_id};
use crate::error::from_cache;
use crate::host::Domain;
use crate::incoming::payload_hash;
use crate::object_url::PATH_ENCODE_SET;
use crate::query::{self, parameters};
use crate::s3_error::{HideSource, add_details, error_with_status, no_streaming};
use crate::s3s_fixes::documents::Expectations;
use crate::s3s_fixes::{BodyError, Refused, XML_BYTES_MAX, signature_2};
use crate::s3s_types::{self, BucketNames};
use crate::trace;

/// What of S3 is configuration of buckets or state of objects that only the under store has.
const SUBRESOURCES: [&str; 26] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "logging",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "torrent",
    "versioning",
    "website",
];

/// Those of them that are answered here, but for the lists of versions that only the under store has.
const ANSWERED_HERE: [&str; 2] = ["acl", "ownershipControls"];

/// The route in front of the operations.
pub(crate) struct PassThrough {
    pub(crate) cache: Cache,
    pub(crate) users: Users,
    pub(crate) account_id: Option<String>,
    pub(crate) domain: Option<Domain>,
    pub(crate) buffers: Buffers,
}

#[async_trait]
impl S3Route for PassThrough {
    fn is_match(&self, _method: &Method, uri: &Uri, _headers: &HeaderMap, _extensions: &mut http::Extensions) -> bool {
        passes(uri)
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        if let Some(context) = request.extensions.get::<Arc<RequestContext>>() {
            let _ = context.operation.set("PassThrough");
        }
        let user = match &request.credentials {
            None => self.users.anonymous(),
            Some(credentials) => self.users.find(&credentials.access_key).ok_or_else(|| s3_error!(AccessDenied))?,
        };
        let place = self.path(&request.uri, &request.headers)?;
        trace::routed("PassThrough", place.get_bucket_name(), place.get_object_key());
        if let Some(context) = request.extensions.get::<Arc<RequestContext>>() {
            let _ = context.requester.set(Arc::clone(&user));
            let named = (place.get_bucket_name().map(str::to_owned), place.get_object_key().map(str::to_owned));
            let _ = context.target.set(named);
        }
        request.extensions.insert(Caller(Arc::clone(&user)));
        admit(&request.extensions, &user)?;
        let only_reads = matches!(request.method, Method::GET | Method::HEAD)
            && !parameters(&request.uri).any(|(name, _)| SUBRESOURCES.contains(&name.as_str()));
        let action = if only_reads { Action::Read } else { Action::Admin };
        match place {
            S3Path::Root => Err(s3_error!(AccessDenied)),
            S3Path::Bucket { bucket } => require(&user, Action::Admin, &format!("/{bucket}")),
            S3Path::Object { bucket, key } => require(&user, action, &format!("/{bucket}/{key}")),
        }?;
        check_expected_owner(&request.headers, self.account_id.as_deref())?;
        if self.account_id.is_some() {
            // It has been compared, and the store behind may be of another.
            for name in EXPECTED_OWNERS {
                request.headers.remove(name);
            }
        }
        Ok(())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let requester = caller(&request)?.requester();
        requester.gets(self.pass(request)).await
    }
}

impl PassThrough {
    /// Works for the user who has sent the request.
    async fn pass(&self, mut request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let id = request_id(&request);
        let fail = |error| from_cache(error, &id, "PassThrough");
        let path = self.path(&request.uri, &request.headers)?;
        let bucket = s3s_types::bucket(path.get_bucket_name().ok_or_else(|| s3_error!(NotImplemented))?)?;
        let version = path.get_object_key().and_then(|_| query::version_of(&request.uri));
        if let Some(version) = &version {
            query::check_version(version, &request.method, &request.uri)?;
        }
        let target = self.cache.pass_through(&bucket).await.map_err(fail)?;
        let target = target.ok_or_else(|| not_behind(version.as_deref(), &request.uri))?;
        if path.get_object_key().is_none() && !target.prefix.is_empty() {
            // It would be read from, or set for, all that is in the bucket behind, which is not the client's alone.
            let message = "A bucket that is a prefix in the storage behind this cache has no configuration of its own.";
            return Err(s3_error!(NotImplemented, "{message}"));
        }
        let user = caller(&request)?;
        let may_know = path.get_object_key().is_none_or(|key| user.may(Action::List, &format!("/{bucket}/{key}")));
        let method = request.method.clone();
        let is_read = matches!(method, Method::GET | Method::HEAD);
        let context = request.extensions.get::<Arc<RequestContext>>().cloned();
        let context = context.ok_or_else(|| s3_error!(InternalError))?;
        // Until it is answered.
        let mut held = self.buffers.begin();
        let hold = |bytes| held.set(context.requester.get(), bytes);
        let document = verified_document(request.input, &request.headers, hold).await?;
        request.input = Body::from(document);
        let mut change = None;
        if let Some(key) = path.get_object_key() {
            let object = s3s_types::path(bucket.as_str(), key)?;
            self.cache.check_key(&object).await.map_err(fail)?;
            if !only_reads(&request.method, &request.uri) {
                self.cache.check_passing_change(&object).map_err(fail)?;
            }
            let is_dirty = if changes_object(&request.method, &request.uri) {
                change = self.cache.begin_passing_change(&object).await.map_err(fail)?;
                change.is_none()
            } else {
                // What waits is none of the versions that the under store has.
                !reads_version(&request.method, &request.uri) && self.cache.is_dirty(&object).await.map_err(fail)?
            };
            if is_dirty {
                let message = "The object has not been uploaded to the storage behind this cache yet. Try again.";
                return Err(error_with_status("ServiceUnavailable", StatusCode::SERVICE_UNAVAILABLE, message));
            }
        }
        let key = path.get_object_key().map(|key| format!("{}{key}", target.prefix));
        request.uri = rewrite(&request.uri, &target.bucket, key.as_deref())?;
        let is_read_of_version = is_read && version.is_some() && query::is_of_plain_object(&request.uri);
        let mut builder = S3ServiceBuilder::new(Proxy::from(target.client.clone()));
        // Without keys to sign with, access would not be checked.
        builder.set_auth(SimpleAuth::new());
        builder.set_access(OnlyPassed);
        builder.set_validation(BucketNames);
        let service = builder.build();
        request.headers.remove("x-amz-content-sha256");
        let call = service.call(unsigned(request));
        let answer = match &change {
            Some(change) => change.send(call).await.map_err(fail)?,
            None if is_read_of_version => target.read(call).await.map_err(|error| fail(error.into()))?,
            None => call.await,
        };
        let answer = answer.map_err(|error| s3_error!(HideSource(error.into()), InternalError))?;
        // Behind a 5xx the change may still be carried out, but for one that says that nobody can.
        let is_known = !answer.status().is_server_error() || answer.status() == StatusCode::NOT_IMPLEMENTED;
        if let Some(change) = change
            && is_known
        {
            change.end().await;
        }
        // A version that marks a delete is not allowed to be read.
        let is_absent = matches!(answer.status(), StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
        if is_read && is_absent && !may_know {
            return Err(s3_error!(AccessDenied, "Access Denied"));
        }
        if !answer.status().is_success() && answer.status() != StatusCode::NOT_MODIFIED {
            return Ok(in_our_words(&answer, &id, &method, version.as_deref()));
        }
        let (mut parts, body) = answer.into_parts();
        // What the cache has noted at the object is not the client's.
        parts.headers.remove(STAMP_HEADER);
        let mut response = S3Response::with_headers(self.counted(body), parts.headers);
        response.status = Some(parts.status);
        Ok(response)
    }
}

/// Where no store behind has versions or sub-resources, no id but `null` is one. Of Amazon S3, of a bucket without
/// versions: localstack/localstack, `test_get_object_with_version_unversioned_bucket` and `test_delete_object`.
fn not_behind(version: Option<&str>, uri: &Uri) -> S3Error {
    match version {
        Some(version) if query::is_of_plain_object(uri) => query::invalid_version(version),
        _ => s3_error!(NotImplemented, "This is not implemented for the storage behind this bucket."),
    }
}

/// The document of a request, if it matches the digests in its headers: nothing behind this can compare them. `hold`
/// gets the number of bytes that have been read.
async fn verified_document(
    mut body: Body,
    headers: &HeaderMap,
    mut hold: impl FnMut(usize) -> Result<(), BodyError>,
) -> S3Result<Bytes> {
    let refuse = |wrong: BodyError| Refused::from(wrong).answer();
    if headers.get("x-amz-content-sha256").is_some_and(|kind| kind.as_bytes().starts_with(b"STREAMING-")) {
        return Err(no_streaming());
    }
    if headers.contains_key("x-amz-trailer") {
        return Err(s3_error!(InvalidRequest, "x-amz-trailer was given without a streaming payload."));
    }
    let expected = Expectations::of(headers)?;
    let mut document = BytesMut::new();
    while let Some(data) = body.next().await {
        let data = data.map_err(|error| refuse(BodyError::from_stream(&*error)))?;
        hold(document.len() + data.len()).map_err(refuse)?;
        document.extend_from_slice(&data);
        if document.len() > XML_BYTES_MAX {
            return Err(refuse(BodyError::TooLong));
        }
    }
    if payload_hash(headers).is_some_and(|sha256| sha256 != *Sha256::digest(&document)) {
        return Err(refuse(BodyError::PayloadHash));
    }
    expected.compare(&document).map_err(|refused| refused.answer())?;
    Ok(document.freeze())
}

/// An error with its code and status alone. What the store behind says of it may name its users, hosts and keys, and
/// goes to the log; a redirect is for us, and would send clients past the cache.
fn in_our_words(answer: &HttpResponse, request_id: &str, method: &Method, version: Option<&str>) -> S3Response<Body> {
    let document = answer.body().bytes().unwrap_or_default();
    let text = String::from_utf8_lossy(&document);
    tracing::debug!(request_id, status = answer.status().as_u16(), said = %text, "error of the store behind");
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    let is_error = answer.status().is_client_error() || answer.status().is_server_error();
    let (status, code) = match is_error {
        // Clients have shown who they are to us.
        true if code.is_some_and(is_about_credentials) => (StatusCode::SERVICE_UNAVAILABLE, Some("ServiceUnavailable")),
        true => (answer.status(), code.filter(|code| code.bytes().all(|byte| byte.is_ascii_alphanumeric()))),
        false => (StatusCode::INTERNAL_SERVER_ERROR, Some("InternalError")),
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    let mut message = String::new();
    match (code, version) {
        (Some("InvalidArgument"), Some(version)) if text.contains(query::INVALID_VERSION) => {
            message = format!("<Message>{}</Message>", query::INVALID_VERSION);
            add_details(&mut headers, &[("ArgumentName", query::VERSION), ("ArgumentValue", version)]);
        }
        // localstack/localstack, `test_put_object_acl_on_delete_marker`.
        (Some("MethodNotAllowed"), Some(_)) => {
            add_details(&mut headers, &[("Method", method.as_str()), ("ResourceType", "DeleteMarker")]);
        }
        (Some("NoSuchVersion"), Some(version)) => add_details(&mut headers, &[("VersionId", version)]),
        _ => {}
    }
    let body = code.map_or_else(Body::empty, |code| {
        Body::from(format!(r#"<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code>{message}</Error>"#))
    });
    let mut response = S3Response::with_headers(body, headers);
    response.status = Some(status);
    response
}

/// Signature and grants have been checked; what is left is that nothing but what passes through does.
struct OnlyPassed;

#[async_trait]
impl S3Access for OnlyPassed {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        query::check_passed(request.s3_op().name(), request.method(), request.uri(), &SUBRESOURCES)
    }
}

/// A body that comes from the under store while it is sent. It counts until it ends.
struct Counted {
    body: Body,
    _passed_on: PassedOn,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        http_body::Body::poll_frame(Pin::new(&mut self.body), context)
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.body)
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.body)
    }
}

impl PassThrough {
    fn counted(&self, body: Body) -> Body {
        if body.bytes().is_some() {
            return body;
        }
        let length = http_body::Body::size_hint(&body).exact().unwrap_or(u64::MAX);
        Body::http_body_unsync(Counted { _passed_on: self.cache.passed_on(length), body })
    }

    /// The same decoding as for every other request.
    pub(crate) fn path(&self, uri: &Uri, headers: &HeaderMap) -> S3Result<S3Path> {
        let decoded = percent_decode_str(uri.path()).decode_utf8().map_err(|error| s3_error!(error, InvalidURI))?;
        let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
        let virtual_host = self.domain.as_ref().map(|domain| domain.parse_host_header(host)).transpose()?;
        let bucket = virtual_host.as_ref().and_then(|host| host.bucket());
        let path = parse_virtual_hosted_style_with_validation(bucket, &decoded, &BucketNames);
        path.map_err(|error| s3_error!(error, InvalidURI))
    }
}

/// Whether a request that passes through changes nothing. SelectObjectContent is a POST. With other parameters beside
/// its own, the store behind may take it for something else.
fn only_reads(method: &Method, uri: &Uri) -> bool {
    let is_of_select = |name: &str| matches!(name, "select" | "select-type") || query::is_ignored(name);
    let selects =
        || parameters(uri).any(|(name, _)| name == "select") && parameters(uri).all(|(name, _)| is_of_select(&name));
    matches!(*method, Method::GET | Method::HEAD) || (*method == Method::POST && selects())
}

/// Whether a request reads one version, by its id.
fn reads_version(method: &Method, uri: &Uri) -> bool {
    let versions: Vec<String> =
        parameters(uri).filter(|(name, _)| name == query::VERSION).map(|(_, version)| version).collect();
    let is_one = !versions.is_empty() && versions.iter().all(|version| version != "null");
    is_one && matches!(*method, Method::GET | Method::HEAD)
}

/// Whether a request that passes through may change what clients get of the object: a version that goes makes another
/// one, or none, the current one. What is said of an object beside its bytes and headers (ACLs, locks) is asked of the
/// under store each time.
fn changes_object(method: &Method, uri: &Uri) -> bool {
    !only_reads(method, uri) && parameters(uri).any(|(name, _)| matches!(name.as_str(), "versionId" | "restore"))
}

fn passes(uri: &Uri) -> bool {
    let is_behind = |name: &str| SUBRESOURCES.contains(&name) && !ANSWERED_HERE.contains(&name);
    parameters(uri).any(|(name, value)| is_behind(&name) || (name == "versionId" && value != "null"))
}

fn rewrite(uri: &Uri, bucket: &str, key: Option<&str>) -> S3Result<Uri> {
    let key = utf8_percent_encode(key.unwrap_or_default(), PATH_ENCODE_SET);
    let text = format!("/{bucket}/{key}?{}", query_without_signature(uri));
    text.parse().map_err(|error: http::uri::InvalidUri| s3_error!(error, InvalidURI))
}

fn query_without_signature(uri: &Uri) -> String {
    let query = uri.query().unwrap_or_default().split('&');
    query.filter(|parameter| !parameter.is_empty() && !is_of_signature(parameter)).collect::<Vec<_>>().join("&")
}

fn is_of_signature(parameter: &str) -> bool {
    let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
    signature_2::OWN.contains(&name) || parameter.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("X-Amz-"))
}

/// The request without the signature, which has been checked, and without what only belongs to it.
fn unsigned(request: S3Request<Body>) -> HttpRequest {
    let mut headers = request.headers;
    for name in ["authorization", "x-amz-date", "x-amz-decoded-content-length", "x-amz-security-token", "expect"] {
        headers.remove(name);
    }
    let mut plain = HttpRequest::new(request.input);
    *plain.method_mut() = request.method;
    *plain.uri_mut() = request.uri;
    *plain.headers_mut() = headers;
    *plain.extensions_mut() = request.extensions;
    plain
}

/// For another look at the same request, see [`crate::compat`].
pub(crate) fn without_signature(mut request: S3Request<Body>) -> S3Result<HttpRequest> {
    let query = query_without_signature(&request.uri);
    let text = format!("{}?{query}", request.uri.path());
    request.uri = text.parse().map_err(|error: http::uri::InvalidUri| s3_error!(error, InvalidURI))?;
    Ok(unsigned(request))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(uri: &str, key: Option<&str>) -> String {
        rewrite(&uri.parse().unwrap(), "target", key).unwrap().to_string()
    }

    #[test]
    fn bucket_key_and_query_are_rewritten() {
        assert_eq!(rewritten("/b?versioning", None), "/target/?versioning");
        assert_eq!(rewritten("/b/k?versionId=7&X-Amz-Signature=0", Some("p/k é")), "/target/p/k%20%C3%A9?versionId=7");
    }

    #[test]
    fn what_removes_a_version_changes_an_object_and_what_reads_one_does_not() {
        let changes = |method, uri: &'static str| changes_object(&method, &Uri::from_static(uri));
        assert!(changes(Method::DELETE, "/b/k?versionId=1"));
        assert!(changes(Method::POST, "/b/k?restore"));
        assert!(!changes(Method::GET, "/b/k?versionId=1"));
        assert!(!changes(Method::HEAD, "/b/k?versionId=1"));
        assert!(!changes(Method::PUT, "/b/k?acl"));
        assert!(!changes(Method::POST, "/b/k?select&select-type=2"));
        assert!(!changes(Method::POST, "/b/k?select&select-type=2&X-Amz-Signature=1"));
        assert!(changes(Method::POST, "/b/k?select&select-type=2&restore"));
        let reads = |method, uri: &'static str| reads_version(&method, &Uri::from_static(uri));
        assert!(reads(Method::GET, "/b/k?versionId=1") && reads(Method::HEAD, "/b/k?tagging&versionId=1"));
        assert!(!reads(Method::DELETE, "/b/k?versionId=1") && !reads(Method::GET, "/b/k?retention"));
        assert!(!reads(Method::GET, "/b/k?retention&versionId=null"));
        assert!(!reads(Method::GET, "/b/k?versionId=1&versionId=null"), "the store behind may take either");
    }

    #[test]
    fn only_what_the_cache_has_no_opinion_on_matches() {
        let matches = |uri: &str| passes(&uri.parse().unwrap());
        for uri in
            ["/b?cors", "/b?lifecycle=", "/b/k?acl&versionId=1", "/b/k?versionId=1", "/b/k?retention&versionId=1"]
        {
            assert!(matches(uri), "{uri}");
        }
        for uri in [
            "/b",
            "/b?acl",
            "/b/k?acl&versionId=null",
            "/b/k?versionId=null",
            "/b?versions",
            "/b?location",
            "/b/k?tagging",
            "/b?list-type=2&prefix=acl",
            "/acl/k",
        ] {
            assert!(!matches(uri), "{uri}");
        }
    }
}
