//! The end that asks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_cache::Taker;
use forebay_env::{Clock, Env};
use forebay_types::error_chain;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::connect::Connector;
use crate::frames::Pool;
use crate::identity::{Identity, Protocol};
use crate::message::{FROM, HEADERS_MAX, PeerBody, TO, value};
use crate::{Error, Result};

/// An idle connection is kept for so long. The other end keeps it for longer, so it does not go while a message is on
/// its way.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Who else is in the cluster.
#[async_trait]
pub trait Members: Send + Sync + 'static {
    /// Where a worker listens for others, as `host:port`. `None`: there is no such worker.
    fn address(&self, worker: &str) -> Option<String>;
    /// The worker that is the home of the paths with this hash, as far as is known without asking. `None`: nobody else.
    fn home(&self, hash: u64) -> Option<String>;
    /// The workers that live, without this one.
    fn others(&self) -> Vec<String>;
    /// Whether they are known: not at first, after a start.
    fn are_known(&self) -> bool;
    /// Those of them that stay: they are not draining.
    fn takers(&self) -> Vec<Taker>;
    /// Whether the worker was removed: it will never come back.
    fn is_removed(&self, worker: &str) -> bool;
    /// Why not everybody can be asked who may have bytes: a worker that does not live and was not removed.
    fn away(&self) -> Option<String>;
    /// Returns when the worker does not live any more.
    async fn until_gone(&self, worker: &str);
}

/// Sends messages to the other workers. Shared by clones.
#[derive(Clone)]
pub struct Peers {
    client: Client<Connector, PeerBody>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) members: Arc<dyn Members>,
    own: Arc<str>,
}

impl Peers {
    /// `own` is the name of this worker.
    pub fn new(env: &Env, identity: &Identity, own: &str, members: Arc<dyn Members>) -> Self {
        let connector = |protocol| Connector::new(identity, protocol, &env.clock);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .set_host(false)
            .http1_max_headers(HEADERS_MAX)
            .build(connector(Protocol::Http));
        let pool = Arc::new(Pool::new(connector(Protocol::Frames)));
        Self { client, pool, clock: Arc::clone(&env.clock), members, own: own.into() }
    }

    /// Sends a message, whose path and query are those of the request. The answer may be that the other worker is not
    /// the one that was meant.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn send(&self, worker: &str, request: Request<PeerBody>) -> Result<Response<Incoming>> {
        let address = self.address(worker)?;
        self.send_to(worker, &address, request).await
    }

    /// # Errors
    /// `Unreachable` when no such worker is known.
    pub(crate) fn address(&self, worker: &str) -> Result<String> {
        let unknown = || {
            let problem = "no such worker is known".to_owned();
            Error::Unreachable { worker: worker.to_owned(), problem }
        };
        self.members.address(worker).ok_or_else(unknown)
    }

    /// Sends a message to a worker at this address, which may not be known here yet.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn send_to(
        &self,
        worker: &str,
        address: &str,
        mut request: Request<PeerBody>,
    ) -> Result<Response<Incoming>> {
        let unreachable = |problem| Error::Unreachable { worker: worker.to_owned(), problem };
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let uri = Uri::builder().scheme("http").authority(address).path_and_query(path).build();
        *request.uri_mut() = uri.map_err(|error| unreachable(error.to_string()))?;
        *request.version_mut() = Version::HTTP_11;
        request.headers_mut().insert(TO, value(worker));
        request.headers_mut().insert(FROM, value(&self.own));
        self.client.request(request).await.map_err(|error| match error.is_connect() {
            true => unreachable(error_chain(&error)),
            false => Error::NoAnswer { worker: worker.to_owned(), problem: error_chain(&error) },
        })
    }
}
