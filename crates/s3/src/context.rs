//! What travels with a request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_auth::User;
use forebay_types::Algorithm;
use http::{HeaderMap, HeaderName, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use s3s::{S3Request, S3Result, TrailingHeaders};

use crate::buffers::Held;
use crate::s3s_fixes::Refused;

/// The identity of one request, made before it is looked at.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// Sent as `x-amz-request-id`.
    pub(crate) id: String,
    /// Of the connection: `http` or `https`.
    pub(crate) scheme: &'static str,
    /// Known once the request is routed.
    pub(crate) operation: OnceLock<&'static str>,
    /// The condition that it comes with, by the name that S3 gives it in errors.
    pub(crate) condition: OnceLock<&'static str>,
    /// What its document takes, until it is answered.
    pub(crate) document: OnceLock<Held>,
    /// Why its document could not be believed.
    pub(crate) refused: OnceLock<Refused>,
    /// Who sent it, once the signature has shown it.
    pub(crate) requester: OnceLock<Arc<User>>,
    /// The key that a form gives its object.
    pub(crate) form_key: OnceLock<String>,
    /// The checksums in a form that `s3s` does not know.
    pub(crate) form_checksums: OnceLock<Vec<(Algorithm, String)>>,
    /// The tags in the document of a form, which `s3s` drops.
    pub(crate) form_tags: OnceLock<Vec<(String, String)>>,
    /// That a new bucket is to have tags, which `s3s` drops.
    pub(crate) bucket_tags: OnceLock<()>,
    /// The headers behind a body in chunks that nobody signed, once it has been read.
    pub(crate) trailer: OnceLock<HeaderMap>,
    /// The bucket and the key in the path, once the request is routed.
    pub(crate) target: OnceLock<(Option<String>, Option<String>)>,
    /// The checksums of each part in a list of parts that `s3s` does not know.
    pub(crate) part_checksums: OnceLock<Vec<Vec<(Algorithm, String)>>>,
    /// What a list of keys to delete has come to.
    deletions: Mutex<Vec<Deletion>>,
    /// When bytes of the body came last, on the monotonic clock.
    last_byte_ns: AtomicU64,
}

/// One key of a multi-object delete.
#[derive(Debug)]
pub(crate) struct Deletion {
    pub(crate) key: String,
    /// None until it has been answered.
    pub(crate) status: Option<u16>,
    pub(crate) error: Option<String>,
}

impl RequestContext {
    pub(crate) fn new(id: String, scheme: &'static str) -> Self {
        Self {
            id,
            scheme,
            operation: OnceLock::new(),
            condition: OnceLock::new(),
            document: OnceLock::new(),
            refused: OnceLock::new(),
            requester: OnceLock::new(),
            form_key: OnceLock::new(),
            form_checksums: OnceLock::new(),
            form_tags: OnceLock::new(),
            bucket_tags: OnceLock::new(),
            trailer: OnceLock::new(),
            target: OnceLock::new(),
            part_checksums: OnceLock::new(),
            deletions: Mutex::default(),
            last_byte_ns: AtomicU64::new(0),
        }
    }

    /// A key is about to be deleted; the number is for [`Self::deleted`].
    pub(crate) fn deleting(&self, key: &str) -> usize {
        let mut deletions = self.deletions.lock();
        deletions.push(Deletion { key: key.to_owned(), status: None, error: None });
        deletions.len() - 1
    }

    pub(crate) fn deleted<T>(&self, number: usize, outcome: &S3Result<T>) {
        let mut deletions = self.deletions.lock();
        let deletion = &mut deletions[number];
        let refused = outcome.as_ref().err();
        deletion.error = refused.map(|error| error.code().as_str().to_owned());
        deletion.status = Some(match refused {
            None => StatusCode::NO_CONTENT.as_u16(),
            Some(error) => error.status_code().unwrap_or(StatusCode::BAD_REQUEST).as_u16(),
        });
    }

    pub(crate) fn deletions(&self) -> MutexGuard<'_, Vec<Deletion>> {
        self.deletions.lock()
    }

    pub(crate) fn received(&self, now: Duration) {
        self.last_byte_ns.store(now.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn last_byte(&self) -> Duration {
        Duration::from_nanos(self.last_byte_ns.load(Ordering::Relaxed))
    }

    /// Notes the condition, for the case that it does not hold.
    pub(crate) fn note_condition(&self, headers: &HeaderMap) {
        const CONDITIONS: [&str; 8] = [
            "x-amz-copy-source-If-Match",
            "x-amz-copy-source-If-None-Match",
            "x-amz-copy-source-If-Modified-Since",
            "x-amz-copy-source-If-Unmodified-Since",
            "If-Match",
            "If-None-Match",
            "If-Unmodified-Since",
            "If-Modified-Since",
        ];
        // Most requests have none, and looking up eight names is slower than checking the prefixes of all names.
        let is_condition = |name: &HeaderName| {
            let name = name.as_str();
            name.starts_with("if-") || name.starts_with("x-amz-copy-source-if-")
        };
        if !headers.keys().any(is_condition) {
            return;
        }
        if let Some(condition) = CONDITIONS.into_iter().find(|name| headers.contains_key(*name)) {
            let _ = self.condition.set(condition);
        }
    }

    pub(crate) fn operation(&self) -> &'static str {
        self.operation.get().copied().unwrap_or("Unknown")
    }
}

/// Who sent the request, as the signature says.
#[derive(Clone)]
pub(crate) struct Caller(pub(crate) Arc<User>);

/// What is known of a request that `s3s` parses for the second time: see [`crate::compat`].
#[derive(Clone)]
pub(crate) struct Verified {
    /// Who signed it; `None` is nobody.
    pub(crate) access_key: Option<String>,
    pub(crate) trailing: Option<TrailingHeaders>,
    /// `Expires` as it was given.
    pub(crate) expires: Option<String>,
    /// `response-expires` as it was given.
    pub(crate) response_expires: Option<String>,
}

/// Says that a document has not come at all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoDocument;

/// The user that [`crate::authorize`] found.
pub(crate) fn caller<T>(request: &S3Request<T>) -> S3Result<Arc<User>> {
    let caller = request.extensions.get::<Caller>();
    caller.map(|caller| Arc::clone(&caller.0)).ok_or_else(|| s3s::s3_error!(AccessDenied))
}

/// Whether a signature covers the request.
pub(crate) fn is_signed<T>(request: &S3Request<T>) -> bool {
    let verified = || request.extensions.get::<Verified>().is_some_and(|verified| verified.access_key.is_some());
    request.credentials.is_some() || verified()
}

/// The headers behind a body in chunks.
pub(crate) enum Trailing {
    /// Of a signed request.
    Verified(TrailingHeaders),
    /// Of one that nobody signed.
    Anonymous(Arc<RequestContext>),
}

impl Trailing {
    /// `None` as long as the body has not been read.
    pub(crate) fn take(&self) -> Option<HeaderMap> {
        match self {
            Self::Verified(headers) => headers.take(),
            Self::Anonymous(context) => context.trailer.get().cloned(),
        }
    }
}

/// The checksums behind the body. `None` when it is not in chunks.
pub(crate) fn take_trailing<T>(request: &mut S3Request<T>) -> Option<Trailing> {
    let verified = || request.extensions.get::<Verified>().and_then(|verified| verified.trailing.clone());
    if let Some(headers) = request.trailing_headers.take().or_else(verified) {
        return Some(Trailing::Verified(headers));
    }
    let is_chunked = !is_signed(request)
        && request.headers.get("x-amz-content-sha256").is_some_and(|kind| kind == "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    let context = request.extensions.get::<Arc<RequestContext>>();
    context.filter(|_| is_chunked).map(|context| Trailing::Anonymous(Arc::clone(context)))
}

/// The id of the request, for errors and logs.
pub(crate) fn request_id<T>(request: &S3Request<T>) -> String {
    request.extensions.get::<Arc<RequestContext>>().map_or_else(String::new, |context| context.id.clone())
}

pub(crate) fn operation<T>(request: &S3Request<T>) -> &'static str {
    request.extensions.get::<Arc<RequestContext>>().map_or("Unknown", |context| context.operation())
}
