//! Requests that another worker of the cluster answers: the home of the object's path.
//!
//! A request is passed on before anything else is looked at. The home checks its signature, logs it and answers it.

use std::io;
use std::sync::{Arc, OnceLock};

use forebay_auth::User;
use forebay_cache::{Access, Error, ErrorKind};
use forebay_env::Requester;
use forebay_types::ObjectPath;
use http::header::{CACHE_CONTROL, CONNECTION, DATE, EXPECT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use s3s::Body;
use tracing::Span;

use crate::connection::{Connection, Tls};
use crate::context::RequestContext;
use crate::error::from_cache;
use crate::homes::{Client, ForwardBody, Home, Homes, RequestBody};
use crate::metrics::Sending;
use crate::query;
use crate::record::{Record, path_of};
use crate::redirect::redirect;
use crate::s3s_fixes::{BodyError, answer};
use crate::s3s_types;
use crate::server::date::date;
use crate::service::{S3Service, SentBody, Watched};
use crate::shares::ConnectionPermit;

/// What metrics call a request that is passed on, instead of its operation.
const OPERATION: &str = "Forwarded";

/// Where the home tells the worker that has passed a request on whose signature it has verified. Clients do not get it.
const ACCESS_KEY: HeaderName = HeaderName::from_static("x-forebay-access-key");

impl Client {
    fn of(connection: &Connection) -> Self {
        let tls = connection.tls.as_ref().map(|tls| (tls.version.to_owned(), tls.cipher_suite.clone()));
        Self { ip: connection.peer, is_encrypted: connection.scheme == "https", tls }
    }

    fn connection(self) -> Connection {
        let tls = self.tls.map(|(version, cipher_suite)| {
            let version = if version == "TLSv1.3" { "TLSv1.3" } else { "TLSv1.2" };
            Tls { version, cipher_suite }
        });
        Connection { scheme: if self.is_encrypted { "https" } else { "http" }, peer: self.ip, tls }
    }
}

/// Whether a request reads an object and nothing else of it, and leaves to the server how fresh the answer is.
fn may_read_here(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return false;
    }
    if headers.get_all(CACHE_CONTROL).iter().any(|value| !value.is_empty()) {
        return false;
    }
    parameter_names(uri).filter(|name| !name.is_empty()).all(|name| {
        let is_of_signature = name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"));
        is_of_signature || name.starts_with("response-") || matches!(name, "x-id" | "partNumber")
    })
}

/// What a request does with its object.
fn access(method: &Method, uri: &Uri) -> Access {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Access::Read;
    }
    let mut access = Access::Write;
    for (name, _) in query::parameters(uri) {
        match name.as_str() {
            "uploads" | "uploadId" => return Access::Upload,
            "tagging" | "acl" | "legal-hold" | "retention" | "restore" | "versionId" => access = Access::SetAttributes,
            _ => {}
        }
    }
    access
}

/// The names of the parameters in a query string.
fn parameter_names(uri: &Uri) -> impl Iterator<Item = &str> {
    uri.query().unwrap_or_default().split('&').map(|pair| pair.split('=').next().unwrap_or(pair))
}

impl S3Service {
    /// Answers a request that has come to another worker. It is not passed on again.
    ///
    /// # Errors
    /// The connection ends.
    pub async fn forwarded(&self, request: Request<RequestBody>, client: Client) -> io::Result<Response<ForwardBody>> {
        // The other worker shares its connections out among clients. A copy continues when its client has gone, and
        // only this permit counts it then.
        let permit = self.inner.forwarded.enter();
        let mut answer = self.answer(request, &Arc::new(client.connection()), &permit, false).await?;
        if let Some(access_key) = permit.access_key().and_then(|access_key| HeaderValue::try_from(access_key).ok()) {
            answer.headers_mut().insert(ACCESS_KEY, access_key);
        }
        Ok(answer.map(BodyExt::boxed_unsync))
    }

    /// The worker that answers a request instead of this one. While the path moves to another home, this waits a
    /// moment, so that few requests have to be sent again.
    pub(crate) async fn other_home(
        &self,
        request: &Request<RequestBody>,
        may_pass_on: bool,
    ) -> Option<(Arc<dyn Homes>, Arc<str>, ObjectPath)> {
        let homes = self.inner.homes.as_ref()?;
        let (bucket, key) = path_of(request, self.inner.domain.as_ref())?;
        let path = s3s_types::path(&bucket, &key).ok()?;
        homes.settled(&path, access(request.method(), request.uri()), !may_pass_on).await;
        match homes.home(&path) {
            Home::At(_)
                if may_pass_on
                    && may_read_here(request.method(), request.uri(), request.headers())
                    && homes.reads_here(&path).await =>
            {
                None
            }
            Home::At(worker) if may_pass_on => Some((Arc::clone(homes), worker, path)),
            Home::At(_) | Home::Here => None,
        }
    }

    /// The user whose signature the home has verified.
    fn verified_user(&self, answer: &mut Response<ForwardBody>) -> Option<Arc<User>> {
        let access_key = answer.headers_mut().remove(ACCESS_KEY)?;
        match access_key.to_str().ok()? {
            "" => Some(self.inner.users.anonymous()),
            access_key => self.inner.users.find(access_key),
        }
    }

    pub(crate) async fn pass_on(
        &self,
        request: Request<RequestBody>,
        (homes, worker, path): (Arc<dyn Homes>, Arc<str>, ObjectPath),
        connection: &Connection,
        permit: &ConnectionPermit,
    ) -> http::Response<SentBody> {
        let inner = &self.inner;
        let began = inner.env.clock.monotonic();
        let context = Arc::new(RequestContext::new(inner.env.random.hex_id(), connection.scheme));
        let location = homes.s3_address(&worker).and_then(|address| {
            inner.settings.redirect.location(&request, inner.domain.as_ref(), connection.scheme, &address)
        });
        let (parts, body) = request.into_parts();
        let waits = parts.headers.contains_key(EXPECT);
        let may_read_here = may_read_here(&parts.method, &parts.uri, &parts.headers);
        let (body, rest) = self.body(body, Watched::Plain, &context);
        let refuse = |error| {
            let refused = answer::refuse(error, &context.id);
            answer::finish(refused, &context, &inner.settings.region)
        };
        // What the client has done wrong while it sent its body, and the home never hears of.
        let failed: Arc<OnceLock<BodyError>> = Arc::default();
        let noted = Arc::clone(&failed);
        let body = body.map_err(move |error| {
            let _first_counts = noted.set(BodyError::from_stream(&*error));
            io::Error::other(error)
        });
        // The home verifies the signature too, but answers after the body, which may take long to come.
        let signer = inner.fast_path.as_ref().and_then(|fast_path| fast_path.signer_of(&parts));
        let is_counted = signer.is_some();
        let admitted = signer.map_or_else(|| permit.admit_unverified(&context), |user| permit.admit(&user, &context));
        let changes_nothing = matches!(parts.method, Method::GET | Method::HEAD);
        let request = Request::from_parts(parts, body.boxed_unsync());
        let forwarded = match (admitted, location) {
            (Err(over_share), _) => Err(over_share),
            (Ok(()), Some(location)) => Err(redirect(location)),
            (Ok(()), None) => homes.forward(&worker, &path, request, &Client::of(connection)).await.map_err(|error| {
                tracing::debug!(%worker, %error, "a request was not passed on");
                let out_of_reach = || {
                    let problem = format!("the worker that answers for this key is out of reach: {error}");
                    Error::new(ErrorKind::Unavailable, problem)
                };
                let error = failed.get().map_or_else(out_of_reach, |wrong| Error::body(*wrong));
                from_cache(error, &context.id, OPERATION)
            }),
        };
        let response = match forwarded {
            Ok(mut response) => {
                let user = self.verified_user(&mut response).filter(|_| !is_counted);
                // Not for a refused request: a client that may not read an object causes no work for it.
                if may_read_here && (response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED) {
                    homes.was_read(&path);
                }
                match user.map_or(Ok(()), |user| permit.admit(&user, &context)) {
                    Err(over_share) if changes_nothing => refuse(over_share),
                    // The client must learn what has been done.
                    _ => response.map(Body::http_body_unsync),
                }
            }
            Err(error) => refuse(error),
        };
        let mut response = inner.end_body(response, rest, waits, permit).await;
        response.headers_mut().entry(DATE).or_insert_with(|| date(inner.env.clock.unix_ms()));
        if !permit.is_fair() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let took = inner.env.clock.monotonic().saturating_sub(began);
        inner.metrics.answered(OPERATION, response.status().as_u16(), took);
        let sending = Sending::new(Arc::clone(&inner.metrics), OPERATION, Arc::clone(&inner.env.clock), began);
        let (record, span, requester) = (Record::none(), Span::none(), Requester::NOBODY);
        response.map(|body| SentBody { body, sending, record, span, requester })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_known_by_what_they_do_with_their_object() {
        let of = |method: Method, uri: &str| access(&method, &uri.parse().unwrap());
        for (method, uri, expected) in [
            (Method::GET, "/bucket/key?uploadId=u&tagging", Access::Read),
            (Method::HEAD, "/bucket/key", Access::Read),
            (Method::PUT, "/bucket/key?x-id=PutObject", Access::Write),
            (Method::DELETE, "/bucket/key", Access::Write),
            (Method::PUT, "/bucket/key?tagging", Access::SetAttributes),
            (Method::DELETE, "/bucket/key?tagging=", Access::SetAttributes),
            (Method::PUT, "/bucket/key?retention&X-Amz-Date=1", Access::SetAttributes),
            (Method::DELETE, "/bucket/key?versionId=v", Access::SetAttributes),
            (Method::POST, "/bucket/key?uploads", Access::Upload),
            (Method::PUT, "/bucket/key?partNumber=1&uploadId=u", Access::Upload),
            (Method::DELETE, "/bucket/key?uploadId=u", Access::Upload),
            (Method::POST, "/bucket/key?upload%49d=u", Access::Upload),
            (Method::PUT, "/bucket/uploads?key=tagging", Access::Write),
        ] {
            assert_eq!(of(method, uri), expected, "{uri}");
        }
    }
}
