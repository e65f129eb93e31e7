//! The other workers of the cluster, as the S3 endpoint knows them.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_cache::Access;
use forebay_types::ObjectPath;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full};
use hyper::body::Incoming;

/// The body of a request: piece by piece as a connection brings it, or whole.
pub type RequestBody = Either<Incoming, Full<Bytes>>;

/// A body on its way between two workers.
pub type ForwardBody = UnsyncBoxBody<Bytes, io::Error>;

/// How a client has reached the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub ip: Option<IpAddr>,
    pub is_encrypted: bool,
    /// Version of TLS and cipher suite, as OpenSSL names them.
    pub tls: Option<(String, String)>,
}

/// The worker that answers for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// This one, or nobody at the moment. Then this one refuses, with an error that is worth a retry.
    Here,
    At(Arc<str>),
}

/// The other workers of the cluster, as the S3 endpoint knows them.
#[async_trait]
pub trait Homes: Send + Sync + 'static {
    /// Known without asking anybody. Where it is outdated, the other worker refuses the request.
    fn home(&self, path: &ObjectPath) -> Home;

    /// Where clients reach a worker, as `host:port`, if it lives and has an address that they may use.
    fn s3_address(&self, worker: &str) -> Option<String>;

    /// Whether this worker answers reads of the current version of an object, although its home is another one.
    async fn reads_here(&self, path: &ObjectPath) -> bool;

    /// Hears that the home of an object has answered a read of it that was passed on.
    fn was_read(&self, path: &ObjectPath);

    /// Returns when it is known who answers such a request for a path, or after a moment: while a path moves, nobody
    /// does. Of a request that another worker has passed on, this one alone can be the answerer.
    async fn settled(&self, path: &ObjectPath, access: Access, is_passed_on: bool);

    /// Has a worker answer a request of a client, by its [`S3Service::forwarded`].
    ///
    /// # Errors
    /// When the worker gives no answer. It may have done what was asked for.
    async fn forward(
        &self,
        worker: &str,
        path: &ObjectPath,
        request: Request<ForwardBody>,
        client: &Client,
    ) -> io::Result<Response<ForwardBody>>;
}
