//! GetObject past `s3s`, which takes several times as long for a small object as everything else together: the one
//! place where the library of the protocol is not used.
//!
//! Only what is plain goes this way: a signature in the header, no query, no condition, no header that this does not
//! know, and a path as it is signed. All else, and all that would be refused before the cache is asked, goes the long
//! way and gets its answer there. What goes this way gets the same answer as there: `tests/s3/fast_path.rs` sends
//! requests both ways.

mod response;
pub(crate) mod signature;

use std::sync::Arc;

use forebay_auth::{Action, User, Users};
use forebay_cache::GetObject;
use forebay_env::{Clock, Env};
use forebay_types::ObjectPath;
use http::header::{HOST, RANGE};
use http::request::Parts;
use http::{HeaderMap, Method, Version};
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use s3s::HttpResponse;
use s3s::dto::Range;
use s3s::host::S3Host;

use crate::compat;
use crate::context::RequestContext;
use crate::host::Domain;
use crate::object_url::PATH_ENCODE_SET;
use crate::operations::{ErrorMapper, Operations, requested_range};
use crate::s3s_fixes::answer;
use crate::s3s_types;
use crate::trace;
use signature::{Claim, RequestLine, SigningKeys};

const CHECKSUM_MODE: &str = "x-amz-checksum-mode";

/// What the headers of a plain request are called, in the order of how many clients send them.
const PLAIN_HEADERS: [&str; 17] = [
    "host",
    "authorization",
    "x-amz-date",
    "x-amz-content-sha256",
    "user-agent",
    "accept",
    "accept-encoding",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "range",
    CHECKSUM_MODE,
    "connection",
    "content-length",
    "x-amz-user-agent",
    "content-type",
    "traceparent",
    "tracestate",
];

pub(crate) struct FastPath {
    operations: Operations,
    users: Users,
    domain: Option<Domain>,
    clock: Arc<dyn Clock>,
    keys: SigningKeys,
}

/// A plain GetObject by somebody who may do it.
struct Plain {
    path: ObjectPath,
    range: Option<Range>,
    wants_checksums: bool,
    user: Arc<User>,
}

impl FastPath {
    pub(crate) fn new(operations: Operations, users: Users, domain: Option<Domain>, env: &Env) -> Self {
        let (clock, keys) = (Arc::clone(&env.clock), SigningKeys::default());
        Self { operations, users, domain, clock, keys }
    }

    /// Answers a plain request without a body. `None`: it goes the long way.
    pub(crate) async fn answer(&self, parts: &Parts, context: &RequestContext) -> Option<HttpResponse> {
        let Plain { path, range, wants_checksums, user } = self.recognise(parts)?;
        let _ = context.operation.set("GetObject");
        let _ = context.requester.set(Arc::clone(&user));
        trace::routed("GetObject", Some(path.bucket.as_str()), Some(path.key.as_str()));
        let range = range.map(requested_range);
        let place = path.clone();
        let get = GetObject { range, ..GetObject::whole(path) };
        let mapper = ErrorMapper { request_id: context.id.clone(), operation: "GetObject" };
        let sent = self.operations.send_object(get, &user, mapper, wants_checksums);
        match user.requester().gets(sent).await {
            Ok(answered) => response::of(answered),
            Err(error) => {
                let (bucket, key) = (place.bucket.as_str().to_owned(), place.key.as_str().to_owned());
                let _ = context.target.set((Some(bucket), Some(key)));
                Some(answer::refuse(error, &context.id))
            }
        }
    }

    fn recognise(&self, parts: &Parts) -> Option<Plain> {
        let uri = &parts.uri;
        let is_plain = parts.method == Method::GET
            && parts.version == Version::HTTP_11
            && uri.query().is_none()
            && uri.authority().is_none()
            && are_plain(&parts.headers);
        if !is_plain || !self.is_path_style(&parts.headers) {
            return None;
        }
        let range = match parts.headers.get(RANGE) {
            Some(range) => Some(compat::range(range.to_str().ok()?)?),
            None => None,
        };
        let path = object_path(uri.path())?;
        let claim = Claim::of(&parts.headers, &self.operations.region).filter(Claim::is_without_body)?;
        let user = self.signer(&claim, &RequestLine::get(uri.path()), &parts.headers)?;
        if !user.may(Action::Read, &format!("/{path}")) {
            return None;
        }
        Some(Plain { path, range, wants_checksums: parts.headers.contains_key(CHECKSUM_MODE), user })
    }

    /// Who has signed a request as all SDKs do, with a body or without one. `None` when that can't be known here.
    pub(crate) fn signer_of(&self, parts: &Parts) -> Option<Arc<User>> {
        let claim = Claim::of(&parts.headers, &self.operations.region)?;
        let mut parameters: Vec<String> = parts.uri.query().map_or_else(Vec::new, |query| {
            let with_value = |name: &str| if name.contains('=') { name.to_owned() } else { format!("{name}=") };
            query.split('&').map(with_value).collect()
        });
        parameters.sort_unstable();
        let (method, path, query) = (parts.method.as_str(), parts.uri.path(), &parameters.join("&"));
        self.signer(&claim, &RequestLine { method, path, query }, &parts.headers)
    }

    fn signer(&self, claim: &Claim<'_>, line: &RequestLine<'_>, headers: &HeaderMap) -> Option<Arc<User>> {
        let user = self.users.find(claim.access_key)?;
        claim.holds(&user, &self.keys, line, headers, self.clock.unix_ms()).then_some(user)
    }

    fn is_path_style(&self, headers: &HeaderMap) -> bool {
        let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
        let of_domain = |domain: &Domain| domain.parse_host_header(host).is_ok_and(|host| host.bucket().is_none());
        self.domain.as_ref().is_none_or(of_domain)
    }
}

/// Whether all headers are known here, are text, and come once.
fn are_plain(headers: &HeaderMap) -> bool {
    headers.len() == headers.keys_len()
        && headers.iter().all(|(name, value)| PLAIN_HEADERS.contains(&name.as_str()) && value.to_str().is_ok())
}

/// The object that a path names, when it is encoded as the signature wants it.
fn object_path(raw: &str) -> Option<ObjectPath> {
    let decoded = percent_decode_str(raw).decode_utf8().ok()?;
    let is_canonical =
        utf8_percent_encode(&decoded, PATH_ENCODE_SET).try_fold(raw, |rest, piece| rest.strip_prefix(piece));
    if is_canonical != Some("") {
        return None;
    }
    let path = s3s::path::parse_path_style_with_validation(&decoded, &s3s_types::BucketNames).ok()?;
    let (bucket, key) = path.as_object()?;
    s3s_types::path(bucket, key).ok()
}
