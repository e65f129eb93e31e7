//! Requests that another worker of the cluster answers: the home of the object's path.
//!
//! A request is passed on before anything else is looked at. The home checks its signature, logs it and answers it.

use std::io;
use std::sync::{Arc, OnceLock};

use forebay_cache::{Access, Error, ErrorKind};
use forebay_env::Requester;
use forebay_types::ObjectPath;
use http::header::{CACHE_CONTROL, DATE, EXPECT};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use s3s::Body;
use tracing::Span;

use crate::connection::{Connection, Tls};
use crate::context::RequestContext;
use crate::error::from_cache;
use crate::homes::{Client, ForwardBody, Home, Homes, RequestBody};
use crate::metrics::Sending;
use crate::record::{Record, path_of};
use crate::redirect::redirect;
use crate::s3s_fixes::{BodyError, answer};
use crate::s3s_types;
use crate::server::date::date;
use crate::service::{S3Service, SentBody, Watched};
use crate::shares::ConnectionPermit;

/// What metrics call a request that is passed on, instead of its operation.
const OPERATION: &str = "Forwarded";

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
    for name in parameter_names(uri) {
        match name {
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
        // The other worker shares its connections out among clients.
        let permit = self.inner.forwarded.enter();
        let answer = self.answer(request, &Arc::new(client.connection()), &permit, false).await?;
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
        let request = Request::from_parts(parts, body.boxed_unsync());
        let forwarded = match location {
            Some(location) => Err(redirect(location)),
            None => homes.forward(&worker, &path, request, &Client::of(connection)).await.map_err(|error| {
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
            Ok(response) => {
                // Not for a refused request: a client that may not read an object causes no work for it.
                if may_read_here && (response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED) {
                    homes.was_read(&path);
                }
                response.map(Body::http_body_unsync)
            }
            Err(error) => refuse(error),
        };
        let mut response = inner.end_body(response, rest, waits, permit).await;
        response.headers_mut().entry(DATE).or_insert_with(|| date(inner.env.clock.unix_ms()));
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
            (Method::PUT, "/bucket/uploads?key=tagging", Access::Write),
        ] {
            assert_eq!(of(method, uri), expected, "{uri}");
        }
    }
}
