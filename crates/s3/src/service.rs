//! One request from its headers to its answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use forebay_auth::Users;
use forebay_cache::Cache;
use forebay_env::rest::{self, Rest};
use forebay_env::{Env, Requester};
use forebay_logs::Logs;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::header::{CONNECTION, CONTENT_TYPE, DATE, EXPECT, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use prometheus_client::registry::Registry;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;
use s3s::{Body, HttpRequest, HttpResponse, S3Error, StdError};
use tokio::sync::Semaphore;
use tracing::{Instrument, Span};

use crate::authorize::{Authentication, Authorization};
use crate::buffers::Buffers;
use crate::compat::Routes;
use crate::connection::Connection;
use crate::context::RequestContext;
use crate::fast_path::FastPath;
use crate::homes::{Homes, RequestBody};
use crate::host::Domain;
use crate::metrics::{Metrics, Sending};
use crate::operations::Operations;
use crate::pass_through::PassThrough;
use crate::query;
use crate::record::{Record, Recorder, makes_bucket};
use crate::s3_error::header_not_implemented;
use crate::s3s_fixes::chunks::Framing;
use crate::s3s_fixes::documents::{Expected, IsDocument, Kind};
use crate::s3s_fixes::request_echo::RequestEcho;
use crate::s3s_fixes::{
    FORM_FILE_BYTES_MAX, XML_BYTES_MAX, answer, checks, checksums, chunks, documents, forms, keep_alive, signature_2,
};
use crate::s3s_types::BucketNames;
use crate::server::TimedBody;
use crate::server::date::date;
use crate::settings::S3Settings;
use crate::shares::{ConnectionPermit, Shares};
use crate::token::Tokens;
use crate::trace;

/// POST forms that are read at once: each may fill [`FORM_FILE_BYTES_MAX`] of memory.
const FORMS_AT_ONCE: usize = 4;

/// The S3 endpoint, shared by clones. [`S3Service::run`] serves it on a listener.
#[derive(Clone)]
pub struct S3Service {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    protocol: s3s::service::S3Service,
    pub(crate) domain: Option<Domain>,
    pub(crate) users: Users,
    pub(crate) settings: S3Settings,
    pub(crate) env: Env,
    pub(crate) metrics: Arc<Metrics>,
    forms: Semaphore,
    buffers: Buffers,
    recorder: Recorder,
    /// None when nothing goes that way.
    pub(crate) fast_path: Option<FastPath>,
    /// None where there are no other workers.
    pub(crate) homes: Option<Arc<dyn Homes>>,
    /// Requests that other workers have passed on: as many as this worker has connections.
    pub(crate) forwarded: Arc<Shares>,
}

impl S3Service {
    /// Wires the protocol to the cache and registers the metrics. Every request goes to `logs`. With `homes`, requests
    /// for an object are passed on to the worker that answers for it.
    pub fn new(
        cache: Cache,
        users: Users,
        settings: S3Settings,
        env: Env,
        registry: &mut Registry,
        logs: Logs,
        homes: Option<Arc<dyn Homes>>,
    ) -> Self {
        let tokens = Tokens::new(&settings.token_secret);
        let domain = || settings.domain.as_deref().map(Domain::new);
        let (region, owner_id) = (settings.region.clone(), users.root().owner_id.clone());
        let operations = Operations { cache: cache.clone(), tokens, region, owner_id };
        let builder = || {
            let mut builder = S3ServiceBuilder::new(operations.clone());
            builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(limits()))));
            builder.set_validation(BucketNames);
            builder.set_auth(Authentication { users: users.clone() });
            builder.set_access(Authorization { users: users.clone(), account_id: settings.account_id.clone() });
            if let Some(domain) = domain() {
                builder.set_host(domain);
            }
            builder
        };
        let buffers = Buffers::default();
        let pass_through = PassThrough {
            cache: cache.clone(),
            users: users.clone(),
            account_id: settings.account_id.clone(),
            domain: domain(),
            buffers: buffers.clone(),
        };
        let mut outer = builder();
        outer.set_route(Routes { pass_through, operations: builder().build() });
        let metrics = Arc::new(Metrics::register(registry));
        let protocol = outer.build();
        let forms = Semaphore::new(FORMS_AT_ONCE);
        let recorder = Recorder { logs, bucket_owner: users.root().owner_id.clone() };
        let fast_path = || FastPath::new(operations.clone(), users.clone(), domain(), &env);
        let fast_path = settings.fast_path.then(fast_path);
        let domain = domain();
        let forwarded = Shares::new(settings.connections_max, Arc::clone(&metrics));
        Self {
            inner: Arc::new(Inner {
                protocol,
                domain,
                users,
                settings,
                env,
                metrics,
                forms,
                buffers,
                recorder,
                fast_path,
                homes,
                forwarded,
            }),
        }
    }

    /// Answers one request, or has another worker answer it if that is allowed. The error ends the connection.
    pub(crate) fn answer<'a>(
        &'a self,
        request: Request<RequestBody>,
        connection: &'a Arc<Connection>,
        permit: &'a Arc<ConnectionPermit>,
        may_pass_on: bool,
    ) -> BoxFuture<'a, io::Result<http::Response<SentBody>>> {
        // In a box: hyper moves about what it waits for. And no other await around a request that is answered here: it
        // would move the state of all of them about.
        match self.inner.homes.is_some() {
            false => Box::pin(self.answer_here(request, connection, permit)),
            true => Box::pin(self.answer_in_cluster(request, connection, permit, may_pass_on)),
        }
    }

    async fn answer_in_cluster(
        &self,
        request: Request<RequestBody>,
        connection: &Arc<Connection>,
        permit: &Arc<ConnectionPermit>,
        may_pass_on: bool,
    ) -> io::Result<http::Response<SentBody>> {
        match self.other_home(&request, may_pass_on).await {
            Some(home) => Ok(self.pass_on(request, home, connection, permit).await),
            None => self.answer_here(request, connection, permit).await,
        }
    }

    async fn answer_here(
        &self,
        request: Request<RequestBody>,
        connection: &Arc<Connection>,
        permit: &Arc<ConnectionPermit>,
    ) -> io::Result<http::Response<SentBody>> {
        let inner = &self.inner;
        let began = inner.env.clock.monotonic();
        let context = Arc::new(RequestContext::new(inner.env.random.hex_id(), connection.scheme));
        let mut record = inner.recorder.begin(&request, &context, &inner.env, connection, inner.domain.as_ref());
        let span = trace::begin(&request, &context, connection);
        let told = tracing::enabled!(tracing::Level::DEBUG).then(|| (request.method().clone(), request.uri().clone()));
        // In a box, as it is moved about until it is awaited.
        let routed = Box::pin(self.route(request, &context, permit)).instrument(span.clone());
        let response = routed.await.map_err(io::Error::other)?;
        let mut response = answer::finish(response, &context, &inner.settings.region);
        response.headers_mut().entry(DATE).or_insert_with(|| date(inner.env.clock.unix_ms()));
        if !permit.is_fair() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        record.answered(&response);
        trace::answered(&span, &response);
        let took = inner.env.clock.monotonic().saturating_sub(began);
        let status = response.status().as_u16();
        if response.extensions().get::<keep_alive::Begun>().is_none() {
            inner.metrics.answered(context.operation(), status, took);
        }
        if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
            // Who knows more has said so before.
            let (request_id, operation) = (&context.id, context.operation());
            tracing::error!(request_id, operation, "request answered with an internal error");
        }
        if let Some((method, uri)) = told {
            let (request_id, operation, path) = (&context.id, context.operation(), uri.path());
            tracing::debug!(request_id, operation, %method, path, status, ?took, "request answered");
        }
        let sending =
            Sending::new(Arc::clone(&inner.metrics), context.operation(), Arc::clone(&inner.env.clock), began);
        let requester = context.requester.get().map_or(Requester::NOBODY, |user| user.requester());
        Ok(response.map(|body| SentBody { body, sending, record, span, requester }))
    }

    async fn route(
        &self,
        request: Request<RequestBody>,
        context: &Arc<RequestContext>,
        permit: &Arc<ConnectionPermit>,
    ) -> Result<HttpResponse, StdError> {
        let (parts, body) = request.into_parts();
        if let Some(fast_path) = &self.inner.fast_path
            && http_body::Body::is_end_stream(&body)
            && let Some(response) = fast_path.answer(&parts, context).await
        {
            // Nothing of it has been sent yet.
            let admitted = context.requester.get().map_or(Ok(()), |user| permit.admit(user, context));
            return Ok(admitted.map_or_else(|error| answer::refuse(error, &context.id), |()| response));
        }
        // In a box, so that what goes the short way does not move the state of the long one about.
        Box::pin(self.go_the_long_way(parts, body, context, permit)).await
    }

    async fn go_the_long_way(
        &self,
        mut parts: Parts,
        body: RequestBody,
        context: &Arc<RequestContext>,
        permit: &Arc<ConnectionPermit>,
    ) -> Result<HttpResponse, StdError> {
        let waits = parts.headers.contains_key(EXPECT);
        let watched = match self.inner.check(&mut parts) {
            Ok(watched) => watched,
            Err(error) => {
                tracing::debug!(request_id = context.id, %error, "request refused before its body was looked at");
                let (_, rest) = self.body(body, Watched::Plain, context);
                let mut response = answer::refuse(error, &context.id);
                self.inner.explain(&RequestEcho::of(&parts), &mut response);
                return Ok(self.inner.end_body(response, rest, waits, permit).await);
            }
        };
        context.note_condition(&parts.headers);
        let echo = RequestEcho::of(&parts);
        parts.extensions.insert(Arc::clone(context));
        parts.extensions.insert(Arc::clone(permit));
        let is_form = matches!(watched, Watched::Form(_));
        let takes_long = takes_long(&parts);
        let (body, rest) = self.body(body, watched, context);
        let request = HttpRequest::from_parts(parts, body);
        let inner = Arc::clone(&self.inner);
        if takes_long {
            let (context, permit) = (Arc::clone(context), Arc::clone(permit));
            let late = late_answer(&inner, &context);
            let work = async move {
                let response = call(&inner, request).await?;
                let response = documents::refused(&context).unwrap_or(response);
                let mut response = checksums::name_others(response, context.operation()).await?;
                inner.explain(&echo, &mut response);
                Ok(inner.end_body(response, rest, waits, &permit).await)
            };
            return keep_alive::answer(Arc::clone(&self.inner.env.clock), work, late).await;
        }
        let mut response = self.respond(request, context, is_form).await?;
        self.inner.explain(&echo, &mut response);
        Ok(self.inner.end_body(response, rest, waits, permit).await)
    }

    async fn respond(
        &self,
        request: HttpRequest,
        context: &RequestContext,
        is_form: bool,
    ) -> Result<HttpResponse, StdError> {
        // A permit is given for as long as the form is in memory; the semaphore is never closed.
        let _permit = if is_form { self.inner.forms.acquire().await.ok() } else { None };
        let response = call(&self.inner, request).await?;
        if let Some(refused) = documents::refused(context) {
            return Ok(refused);
        }
        let response = checksums::name_others(response, context.operation()).await?;
        match is_form {
            true => answer::form(response, &context.id).await,
            false => match context.operation() {
                "GetObjectAttributes" => answer::bare_etag(response).await,
                "ListBuckets" => answer::bucket_arns(response).await,
                _ => Ok(response),
            },
        }
    }

    pub(crate) fn body(
        &self,
        body: RequestBody,
        watched: Watched,
        context: &Arc<RequestContext>,
    ) -> (Body, Option<Rest<TimedBody<RequestBody>>>) {
        let may_be_empty = match &watched {
            Watched::Plain | Watched::Form(_) => true,
            Watched::Document(expected) => expected.allows_nothing(),
            Watched::Chunks(_) => false,
        };
        if http_body::Body::is_end_stream(&body) && may_be_empty {
            return (Body::empty(), None);
        }
        let inner = &self.inner;
        let window = (inner.settings.body_window, inner.settings.body_bytes_per_window_min);
        let length = http_body::Body::size_hint(&body).exact();
        let body = TimedBody::new(body, Arc::clone(&inner.env.clock), window, Arc::clone(&inner.metrics));
        let (body, rest) = rest::share(body, length);
        let (told, clock) = (Arc::clone(context), Arc::clone(&inner.env.clock));
        let body = body.inspect(move |_| told.received(clock.monotonic()));
        let body = match watched {
            Watched::Plain => body.boxed(),
            Watched::Chunks(framing) => chunks::watch(body, framing, Arc::clone(context), inner.buffers.begin()),
            Watched::Document(expected) => {
                documents::verify(body, expected, Arc::clone(context), inner.buffers.begin())
            }
            Watched::Form(boundary) => {
                let (users, region) = (inner.users.clone(), inner.settings.region.clone());
                forms::watch(body, &boundary, Arc::clone(context), users, region)
            }
        };
        (Body::http_body_unsync(StreamBody::new(body.map(|bytes| bytes.map(Frame::data)))), Some(rest))
    }
}

impl Inner {
    /// Looks at everything but the body, and puts headers from a presigned URL where they belong.
    fn check(&self, parts: &mut Parts) -> Result<Watched, S3Error> {
        checks::join_lists(&mut parts.headers);
        let checked = checks::check(parts, &self.settings.region)?;
        parts.headers.extend(checked.hoisted);
        if checked.is_version_2 {
            signature_2::verify(parts, self.domain.as_ref(), &self.users, self.env.clock.unix_ms())?;
        }
        let document = match (checked.document, checked.framing) {
            (None, None) if makes_bucket(parts, self.domain.as_ref()) => {
                Some(Expected::of(Kind::Create, &parts.headers)?)
            }
            (document, _) => document,
        };
        Ok(match (checked.form, document, checked.framing) {
            (Some(boundary), _, _) => {
                let content_type = HeaderValue::try_from(format!("multipart/form-data; boundary=\"{boundary}\""));
                parts.headers.insert(CONTENT_TYPE, content_type.expect("a boundary holds no odd characters"));
                Watched::Form(boundary)
            }
            (None, Some(expected), _) => {
                parts.extensions.insert(IsDocument);
                Watched::Document(expected)
            }
            (None, None, Some(framing)) => Watched::Chunks(framing),
            // Amazon S3 knows no chunks but its own: Automattic/knox#43, irods/irods_resource_plugin_s3#2301.
            (None, None, None) if parts.method == Method::PUT && parts.headers.contains_key(TRANSFER_ENCODING) => {
                return Err(chunks_of_http());
            }
            (None, None, None) => Watched::Plain,
        })
    }

    /// Tells in an error what of the request it is about.
    fn explain(&self, echo: &RequestEcho, response: &mut HttpResponse) {
        if response.status().is_client_error() {
            echo.explain(response, self.env.clock.unix_ms(), self.domain.as_ref());
        }
    }

    /// Reads what is left of a body, or says that the connection ends with this answer. `waits`: the client wanted to
    /// be asked for the body.
    pub(crate) async fn end_body(
        &self,
        mut response: HttpResponse,
        rest: Option<Rest<TimedBody<RequestBody>>>,
        waits: bool,
        permit: &ConnectionPermit,
    ) -> HttpResponse {
        let is_over = match rest {
            Some(rest) => rest.discard(waits, &*self.env.clock, permit.rest_wait()).await,
            // Nobody has asked for the body, so no `100 Continue` was sent: botocore would wait for one, and take the
            // next answer of this connection for this one's.
            None => !waits,
        };
        // A client that sends a body without a length may send bytes that would be read as the next request.
        if !is_over || response.status() == StatusCode::LENGTH_REQUIRED {
            permit.linger().at_the_end(permit.rest_wait());
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Behind a body whose length S3 wants to know first, nothing is read: some may take it for more of the body.
fn chunks_of_http() -> S3Error {
    let mut error = header_not_implemented("Transfer-Encoding");
    let mut headers = error.headers().cloned().unwrap_or_default();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    error.set_headers(headers);
    error
}

/// What must be looked at in a body before `s3s` gets it.
pub(crate) enum Watched {
    Plain,
    Chunks(Framing),
    Document(Expected),
    /// With its boundary.
    Form(String),
}

async fn call(inner: &Inner, request: HttpRequest) -> Result<HttpResponse, StdError> {
    match inner.protocol.call(request).await {
        Ok(response) => Ok(response),
        Err(error) => Err(error.into()),
    }
}

fn limits() -> S3Config {
    let mut config = S3Config::default();
    config.xml_max_body_size = XML_BYTES_MAX;
    config.post_object_max_file_size = FORM_FILE_BYTES_MAX;
    config.form_max_field_size = 64 << 10;
    // With what the rewritten form adds, and the first piece of the file.
    config.form_max_fields_size = 2 * (forms::FIELDS_BYTES_MAX + forms::PIECE_BYTES);
    config.form_max_parts = 100;
    config
}

/// CompleteMultipartUpload and copies move whole objects before they can answer.
fn takes_long(parts: &Parts) -> bool {
    let completes =
        || parts.method == Method::POST && query::parameters(&parts.uri).any(|(name, _)| name == "uploadId");
    completes() || (parts.method == Method::PUT && parts.headers.contains_key("x-amz-copy-source"))
}

/// Completes and counts an answer that comes after its status: the client and the metrics get the error that it is.
fn late_answer(inner: &Arc<Inner>, context: &Arc<RequestContext>) -> impl FnOnce(HttpResponse) -> HttpResponse + use<> {
    let (inner, context, began) = (Arc::clone(inner), Arc::clone(context), inner.env.clock.monotonic());
    move |response| {
        let took = inner.env.clock.monotonic().saturating_sub(began);
        inner.metrics.answered(context.operation(), response.status().as_u16(), took);
        answer::finish(response, &context, &inner.settings.region)
    }
}

/// The body of an answer, counted as it is sent.
pub(crate) struct SentBody {
    pub(crate) body: Body,
    pub(crate) sending: Sending,
    pub(crate) record: Record,
    pub(crate) span: Span,
    pub(crate) requester: Requester,
}

impl http_body::Body for SentBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        // Objects are read as they are sent.
        let _entered = this.span.enter();
        let frame = this.requester.gets_step(|| Pin::new(&mut this.body).poll_frame(context)).map_err(io::Error::other);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            this.sending.sent(bytes.len());
            this.record.sent(bytes);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// How long a failed accept keeps the loop from trying again.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
