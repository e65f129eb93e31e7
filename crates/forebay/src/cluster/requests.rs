//! Requests of clients that another worker answers, and those of other workers that are answered here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_cache::{Access, Cache};
use forebay_catalog::records::path_hash;
use forebay_env::{Clock, Env};
use forebay_peers::{ClientRequests, Members, Origin, PeerBody, Peers, RequestBody};
use forebay_s3::{Client, ForwardBody, Home, Homes, S3Service};
use forebay_types::ObjectPath;
use http::{Request, Response};

use super::router::Router;

/// For so long a worker that is not the home any more may still answer. It answers soon, unless it is stopped or cut
/// off.
const MOVED_MAX: Duration = Duration::from_secs(5);

/// For so long a request waits for a path to get a home. A planned move takes less, and so does a look at the cluster.
const HOMELESS_MAX: Duration = Duration::from_millis(1500);

/// Pause between two checks whether it has one.
const HOMELESS_LOOK: Duration = Duration::from_millis(20);

/// Passes requests on to the home of their path.
pub(super) struct PassedOn {
    clock: Arc<dyn Clock>,
    router: Arc<Router>,
    peers: Peers,
    cache: Cache,
}

impl PassedOn {
    pub(super) fn new(env: &Env, router: Arc<Router>, peers: Peers, cache: Cache) -> Self {
        Self { clock: Arc::clone(&env.clock), router, peers, cache }
    }

    async fn given_up(&self, path: &ObjectPath, worker: &str) {
        self.router.until_moved(path, worker).await;
        self.clock.sleep(MOVED_MAX).await;
    }
}

#[async_trait]
impl Homes for PassedOn {
    fn home(&self, path: &ObjectPath) -> Home {
        self.router.home(path_hash(path)).map_or(Home::Here, |worker| Home::At(worker.into()))
    }

    fn s3_address(&self, worker: &str) -> Option<String> {
        self.router.s3_address(worker)
    }

    async fn reads_here(&self, path: &ObjectPath) -> bool {
        self.cache.reads_here(path).await
    }

    fn was_read(&self, path: &ObjectPath) {
        self.cache.was_read(path);
    }

    async fn settled(&self, path: &ObjectPath, access: Access, is_passed_on: bool) {
        let until = self.clock.monotonic() + HOMELESS_MAX;
        // Meanwhile, the worker that has passed it on learns where the path is now, and does not do so again.
        let is_known = || !is_passed_on && self.router.home(path_hash(path)).is_some();
        while !self.cache.answers_for(path, access) && !is_known() && self.clock.monotonic() < until {
            self.clock.sleep(HOMELESS_LOOK).await;
        }
    }

    async fn forward(
        &self,
        worker: &str,
        path: &ObjectPath,
        request: Request<ForwardBody>,
        client: &Client,
    ) -> io::Result<Response<ForwardBody>> {
        let Client { ip, is_encrypted, tls } = client.clone();
        let origin = Origin { ip, is_encrypted, tls };
        tokio::select! {
            biased;
            answer = self.peers.forward(worker, request, &origin) => answer.map_err(io::Error::other),
            () = self.given_up(path, worker) => {
                Err(io::Error::other(format!("worker {worker} does not answer, and is not the home any more")))
            }
        }
    }
}

/// Answers requests that have come to another worker.
pub(super) struct ForwardedRequests {
    service: S3Service,
}

impl ForwardedRequests {
    pub(super) fn new(service: S3Service) -> Self {
        Self { service }
    }
}

#[async_trait]
impl ClientRequests for ForwardedRequests {
    async fn answer(&self, request: Request<RequestBody>, origin: Origin) -> io::Result<Response<PeerBody>> {
        let Origin { ip, is_encrypted, tls } = origin;
        self.service.forwarded(request, Client { ip, is_encrypted, tls }).await
    }
}
