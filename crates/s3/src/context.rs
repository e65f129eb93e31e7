//! What travels with a request.

use std::sync::{Arc, OnceLock};

use forebay_auth::User;
use s3s::S3Request;

use crate::s3s_fixes::BodyError;

/// The identity of one request, made before it is looked at.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// Sent as `x-amz-request-id`.
    pub(crate) id: String,
    /// Known once the request is routed.
    pub(crate) operation: OnceLock<&'static str>,
    /// Why its document could not be believed.
    pub(crate) refused: OnceLock<BodyError>,
}

impl RequestContext {
    pub(crate) fn new(id: String) -> Self {
        Self { id, operation: OnceLock::new(), refused: OnceLock::new() }
    }

    pub(crate) fn operation(&self) -> &'static str {
        self.operation.get().copied().unwrap_or("Unknown")
    }
}

/// Who sent the request, as the signature says.
#[derive(Clone)]
pub(crate) struct Caller(pub(crate) Arc<User>);

/// The user that [`crate::authorize`] found.
pub(crate) fn caller<T>(request: &S3Request<T>) -> s3s::S3Result<Arc<User>> {
    let caller = request.extensions.get::<Caller>();
    caller.map(|caller| Arc::clone(&caller.0)).ok_or_else(|| s3s::s3_error!(AccessDenied))
}

/// The id of the request, for errors and logs.
pub(crate) fn request_id<T>(request: &S3Request<T>) -> String {
    request.extensions.get::<Arc<RequestContext>>().map_or_else(String::new, |context| context.id.clone())
}
