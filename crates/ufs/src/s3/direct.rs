//! Requests that read, write and delete a single object, sent without the SDK's request pipeline. For each request, the
//! SDK builds a configuration, resolves the endpoint and calls some twenty interceptors, which took more processor time
//! than everything else of a small upload. Connections, TLS, proxies, credentials and their cache are those of the
//! SDK's client, and its `aws-sigv4` computes the signature. All other requests go through the SDK, and so do those to
//! places that need another kind of signature.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_sdk_s3::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::{ErrorMetadata, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::operation::head_object::HeadObjectOutput;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4;
use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::auth::AuthSchemeId;
use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnector, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::identity::{ResolveCachedIdentity, SharedIdentityResolver};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::GetIdentityResolver;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use forebay_env::{Clock, Env};
use forebay_types::{Algorithm, Checksum};
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Limited};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

use super::answer_check::{AnswerCheck, Doubt, operation_of, speaks_s3};
use super::connect::S3Client;
use super::connect::STALL;
use super::count::class;
use super::errors::{decoded, is_error_document};
use super::objects;
use super::settings::S3Settings;
use super::skew::Skew;
use crate::governor::CallObserver;
use crate::{ByteStream, Error, ErrorKind, Hasher};

/// Everything except slashes and what RFC 3986 leaves unreserved: Signature Version 4 wants keys in paths encoded like
/// this.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The SDK's name for the way of signing that is used here.
const SIGV4: &str = "sigv4";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Most bytes that are read of an error document.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Longest wait for the rest of an answer that should be short or empty.
const REST: Duration = Duration::from_secs(1);

/// The status of an answer without a body.
const NO_CONTENT: u16 = 204;

/// An error as the SDK would give it.
pub(super) type Failed = SdkError<ErrorMetadata, HttpResponse>;

/// The error of one operation, reduced to what all operations have in common.
pub(super) fn plain<E: ProvideErrorMetadata>(error: SdkError<E, HttpResponse>) -> Failed {
    error.map_service_error(|error| error.meta().clone())
}

/// The headers of a request. An invalid one is reported when the request is signed.
#[derive(Default)]
pub(super) struct Headers {
    map: HeaderMap,
    invalid: Option<http::Error>,
}

impl Headers {
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) {
        let Some(value) = value else { return };
        match (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_bytes())) {
            (Ok(name), Ok(value)) => drop(self.map.insert(name, value)),
            (Err(error), _) => self.invalid = Some(error.into()),
            (_, Err(error)) => self.invalid = Some(error.into()),
        }
    }
}

fn checksum_of(algorithm: Algorithm, body: &[u8]) -> Checksum {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(body);
    hasher.finish()
}

/// How to reach the objects of one place.
pub(super) struct Direct {
    clock: Arc<dyn Clock>,
    connector: SharedHttpConnector,
    components: RuntimeComponents,
    identities: SharedIdentityResolver,
    observer: Option<Arc<dyn CallObserver>>,
    skew: Skew,
    answers: AnswerCheck,
    /// The URL in front of a key, with the slash.
    base: String,
    region: String,
    service: String,
    /// For requests without a body.
    deadline: Duration,
}

impl Direct {
    /// Asks the SDK how it would reach a bucket. `None` when that is not by Signature Version 4 with the user's own
    /// keys: directory buckets have sessions, and access points of several regions use another signature.
    ///
    /// # Errors
    /// When the SDK can't tell, because it has no credentials.
    pub(super) async fn find(
        env: &Env,
        client: &S3Client,
        bucket: &str,
        settings: &S3Settings,
    ) -> Result<Option<Self>, BoxError> {
        const KEY: &str = "key";
        let seen = Arc::new(OnceLock::new());
        let request = client.sdk.get_object().bucket(bucket).key(KEY).customize().interceptor(Seen(Arc::clone(&seen)));
        let signed = request.presigned(PresigningConfig::expires_in(Duration::from_secs(60))?).await?;
        let (Some((url, query)), Some(components)) = (signed.uri().split_once('?'), seen.get()) else {
            return Ok(None);
        };
        let parameter = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
            percent_encoding::percent_decode_str(value).decode_utf8().ok()
        };
        let Some(credential) = parameter("X-Amz-Credential") else { return Ok(None) };
        let mut scope = credential.rsplit('/').skip(1);
        let (Some(service), Some(region), Some(base)) = (scope.next(), scope.next(), url.strip_suffix(KEY)) else {
            return Ok(None);
        };
        let is_usual = parameter("X-Amz-Algorithm").as_deref() == Some(ALGORITHM) && service == "s3";
        let identities = components.identity_resolver(AuthSchemeId::from(SIGV4));
        let (Some(http), Some(identities), true) = (components.http_client(), identities, is_usual) else {
            return Ok(None);
        };
        let limits = HttpConnectorSettings::builder().connect_timeout(settings.connect_timeout.0).build();
        Ok(Some(Self {
            clock: Arc::clone(&env.clock),
            connector: http.http_connector(&limits, components),
            components: components.clone(),
            identities,
            observer: client.observer.clone(),
            skew: client.skew.clone(),
            answers: client.answers.clone(),
            base: base.to_owned(),
            region: region.to_owned(),
            service: service.to_owned(),
            deadline: settings.deadline(0),
        }))
    }

    /// Also returns whether the answer is certainly from S3.
    pub(super) async fn head(&self, key: &str) -> Result<(bool, HeadObjectOutput), Failed> {
        let mut headers = Headers::default();
        headers.set("x-amz-checksum-mode", Some("ENABLED"));
        let response = self.send(Method::HEAD, key, headers, Bytes::new(), self.deadline).await?;
        Ok((speaks_s3(&response), objects::head_output(&response)))
    }

    /// The body has not been read yet. Also returns whether the answer is certainly from S3.
    pub(super) async fn get(
        &self,
        key: &str,
        range: Option<&str>,
        if_match: Option<&str>,
        checksums: bool,
    ) -> Result<(bool, GetObjectOutput), Failed> {
        let mut headers = Headers::default();
        headers.set("range", range);
        headers.set("if-match", if_match);
        headers.set("x-amz-checksum-mode", checksums.then_some("ENABLED"));
        let response = self.send(Method::GET, key, headers, Bytes::new(), self.deadline).await?;
        Ok((speaks_s3(&response), objects::get_output(response)))
    }

    /// Returns the ETag of what was written, and whether the answer is certainly from S3.
    pub(super) async fn put(
        &self,
        key: &str,
        headers: Headers,
        body: Bytes,
        deadline: Duration,
    ) -> Result<(Option<String>, bool), Failed> {
        let mut response = self.send(Method::PUT, key, headers, body.clone(), deadline).await?;
        let told = Algorithm::ALL
            .into_iter()
            .filter_map(|algorithm| Some((algorithm, response.headers().get(algorithm.header())?)));
        let is_of_body = |(algorithm, told): (Algorithm, &str)| checksum_of(algorithm, &body).base64() == told;
        if !told.into_iter().all(is_of_body) {
            return Err(SdkError::response_error("the checksum in the answer is not that of this upload", response));
        }
        let etag = response.headers().get("etag").map(str::to_owned);
        self.read_nothing(&mut response).await?;
        Ok((etag, speaks_s3(&response)))
    }

    /// Returns whether the answer is certainly from S3.
    pub(super) async fn delete(&self, key: &str, if_match: Option<&str>) -> Result<bool, Failed> {
        let mut headers = Headers::default();
        headers.set("if-match", if_match);
        let mut response = self.send(Method::DELETE, key, headers, Bytes::new(), self.deadline).await?;
        self.read_nothing(&mut response).await?;
        Ok(speaks_s3(&response))
    }

    /// S3 sends no body after it has written or deleted an object. A page comes from something in front of it.
    async fn read_nothing(&self, response: &mut HttpResponse) -> Result<(), Failed> {
        let body = self.read(response.take_body()).await;
        if response.status().as_u16() == NO_CONTENT || body.is_some_and(|body| body.is_empty()) {
            return Ok(());
        }
        let response = std::mem::replace(response, HttpResponse::new(response.status(), SdkBody::empty()));
        Err(SdkError::response_error(
            "a success with an unexpected body: a proxy or gateway may have answered",
            response,
        ))
    }

    /// Reads a body to its end, so that its connection can be reused. `None` when it does not end soon.
    async fn read(&self, body: SdkBody) -> Option<Bytes> {
        tokio::select! {
            biased;
            body = Limited::new(body, ERROR_BYTES_MAX).collect() => Some(body.ok()?.to_bytes()),
            () = self.clock.sleep(REST) => None,
        }
    }

    /// Sends a request. An unsuccessful answer is an error, with what the server says about it. The body of a
    /// successful one has not been read yet.
    async fn send(
        &self,
        method: Method,
        key: &str,
        headers: Headers,
        body: Bytes,
        deadline: Duration,
    ) -> Result<HttpResponse, Failed> {
        let answer = async {
            let is_head = method == Method::HEAD;
            let is_read = is_head || method == Method::GET;
            let operation = operation_of(&method);
            let request = self.signed(method, key, headers, body).await?;
            let response = self.connector.call(request).await.map_err(SdkError::dispatch_failure)?;
            if response.status().is_success() {
                let doubt = self.answers.doubt(operation, &response, true);
                let has_tag = !is_read || response.headers().get("etag").is_some();
                return match doubt.or_else(|| (!has_tag && speaks_s3(&response)).then_some(Doubt::NoTag)) {
                    None => Ok(response),
                    Some(Doubt::NoTag) => {
                        // The code for what can't be done.
                        let error = ErrorMetadata::builder().code("NotImplemented").message(Doubt::NoTag.text());
                        Err(SdkError::service_error(error.build(), response))
                    }
                    Some(doubt) => Err(SdkError::response_error(doubt.text(), response)),
                };
            }
            self.skew.learn(&response);
            Err(failed(response, is_head).await)
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            () = self.clock.sleep(deadline) => Err(SdkError::timeout_error(format!("no answer within {deadline:?}"))),
        }
    }

    async fn signed(
        &self,
        method: Method,
        key: &str,
        headers: Headers,
        body: Bytes,
    ) -> Result<aws_smithy_runtime_api::client::orchestrator::HttpRequest, Failed> {
        let Headers { map, invalid } = headers;
        if let Some(error) = invalid {
            return Err(SdkError::construction_failure(error));
        }
        let url = format!("{}{}", self.base, utf8_percent_encode(key, RESERVED));
        let digest = hex::encode(Sha256::digest(&body));
        let mut request =
            Request::builder().method(method).uri(&url).body(body).map_err(SdkError::construction_failure)?;
        *request.headers_mut() = map;
        let bag = ConfigBag::base();
        let cache = self.components.identity_cache();
        let identity = cache.resolve_cached_identity(self.identities.clone(), &self.components, &bag).await;
        let identity = identity.map_err(|error| SdkError::dispatch_failure(ConnectorError::user(error)))?;
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time(self.skew.now())
            .settings(settings)
            .build()
            .map_err(SdkError::construction_failure)?;
        // The values were text before they became headers.
        let text = std::str::from_utf8;
        let headers =
            request.headers().iter().map(|(name, value)| (name.as_str(), text(value.as_bytes()).unwrap_or_default()));
        let signable =
            SignableRequest::new(request.method().as_str(), url.as_str(), headers, SignableBody::Precomputed(digest));
        let signable = signable.map_err(SdkError::construction_failure)?;
        let signature = sign(signable, &parameters.into()).map_err(SdkError::construction_failure)?;
        signature.into_parts().0.apply_to_request_http1x(&mut request);
        if let Some(observer) = &self.observer {
            observer.sent(class(request.method().as_str(), &url));
        }
        request.map(SdkBody::from).try_into().map_err(SdkError::construction_failure)
    }

    /// A body that fails when nothing comes for too long, or when it does not match its checksum. The last piece comes
    /// only after the comparison: a reader that knows the length does not wait for the end behind it.
    pub(super) fn watched(&self, body: ByteStream, expected: Option<Checksum>, context: String) -> ByteStream {
        let clock = Arc::clone(&self.clock);
        let expected = expected.map(|checksum| (Hasher::new(checksum.algorithm), checksum));
        let failed = move |problem: &str| Error::new(ErrorKind::Unavailable, format!("{context}: {problem}"));
        let next = move |state: Option<Watching>| {
            let (clock, failed) = (Arc::clone(&clock), failed.clone());
            async move {
                let mut state = state?;
                loop {
                    let next = tokio::select! {
                        biased;
                        next = state.body.next() => next,
                        () = clock.sleep(STALL) => return Some((Err(failed("the body has stalled")), None)),
                    };
                    match (next, &mut state.expected) {
                        (Some(Ok(data)), None) => return Some((Ok(data), Some(state))),
                        (Some(Ok(data)), Some((hasher, _))) => {
                            hasher.update(&data);
                            if let Some(before) = state.held.replace(data) {
                                return Some((Ok(before), Some(state)));
                            }
                        }
                        (Some(Err(error)), _) => return Some((Err(error), None)),
                        (None, _) => {
                            let (hasher, checksum) = state.expected?;
                            if hasher.finish() != checksum {
                                return Some((Err(failed("the body does not match its checksum")), None));
                            }
                            return state.held.map(|last| (Ok(last), None));
                        }
                    }
                }
            }
        };
        let watching = Watching { body, expected, held: None };
        futures::stream::unfold(Some(watching), next).boxed()
    }
}

/// A body on its way, and what it is compared with.
struct Watching {
    body: ByteStream,
    expected: Option<(Hasher, Checksum)>,
    /// The last piece that has come, while there is a comparison.
    held: Option<Bytes>,
}

/// What the server says about an error: a document with one `Code` and one `Message`, neither of which contains
/// elements.
async fn failed(mut response: HttpResponse, is_head: bool) -> Failed {
    let mut metadata = ErrorMetadata::builder();
    let body = if is_head { None } else { Limited::new(response.take_body(), ERROR_BYTES_MAX).collect().await.ok() };
    let body = body.map(|body| body.to_bytes());
    let document = body.as_ref().map(|body| String::from_utf8_lossy(body).into_owned());
    // Kept, because the classification of the error looks at it again.
    *response.body_mut() = SdkBody::from(body.unwrap_or_default());
    if response.status().as_u16() == 404 && is_head {
        // Without a body, nothing else can be said.
        metadata = metadata.code("NotFound");
    }
    if let Some(document) = document.filter(|document| is_error_document(document.as_bytes())) {
        let text = |name: &str| {
            let (_, rest) = document.split_once(&format!("<{name}>"))?;
            rest.split_once(&format!("</{name}>")).map(|(text, _)| text.to_owned())
        };
        if let Some(code) = text("Code") {
            metadata = metadata.code(code);
        }
        if let Some(message) = text("Message") {
            metadata = metadata.message(decoded(&message));
        }
    }
    SdkError::service_error(metadata.build(), response)
}

/// Captures the components that a client of the SDK works with.
#[derive(Debug)]
struct Seen(Arc<OnceLock<RuntimeComponents>>);

impl Intercept for Seen {
    fn name(&self) -> &'static str {
        "Seen"
    }

    fn read_before_signing(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // Called once for each try, and there is only one.
        let _ = self.0.set(components.clone());
        Ok(())
    }
}
