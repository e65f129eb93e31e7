//! A worker of a cluster: joins it, follows what others do, and leaves it.
//!
//! What is here wires parts: the engine (`forebay-etcd`), the catalog of a home (`forebay-cluster`) and the messages
//! between workers (`forebay-peers`).

mod join;
mod membership;
mod requests;
mod router;
mod state;

use std::sync::Arc;
use std::time::Duration;

use forebay_cache::{Cache, OtherWorkers};
use forebay_catalog::Catalog;
use forebay_cluster::HomeCatalog;
use forebay_env::{Env, Task};
use forebay_etcd::EtcdEngine;
use forebay_peers::{Identity, PeerServer, Peers};
use forebay_s3::{Homes, S3Service};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use membership::Membership;
use requests::{ForwardedRequests, PassedOn};
use router::Router;
use state::ClusterState;

pub(crate) use join::{addresses, join};

/// How often to look whether the slots are lost.
const LOST_CHECK: Duration = Duration::from_millis(500);

/// A worker that stops tells the others. If the engine does not answer, they wait for the end of its lease.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// A worker that has joined its cluster and serves nobody yet.
pub(crate) struct Joined {
    /// Of the cluster.
    name: String,
    env: Env,
    engine: Arc<EtcdEngine>,
    catalog: Arc<HomeCatalog>,
    router: Arc<Router>,
    identity: Identity,
    peers: Peers,
}

impl Joined {
    pub(crate) fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::clone(&self.catalog) as _
    }

    /// For the cache: whom it asks for what is at home elsewhere.
    pub(crate) fn others(&self) -> Arc<dyn OtherWorkers> {
        Arc::new(self.peers.clone())
    }

    /// For the S3 endpoint: where it passes requests on to.
    pub(crate) fn homes(&self) -> Arc<dyn Homes> {
        Arc::new(PassedOn::new(&self.env, Arc::clone(&self.router), self.peers.clone()))
    }

    /// For the admin API: how the cluster stands.
    pub(crate) fn state(&self, cache: &Cache) -> Arc<dyn forebay_admin::Cluster> {
        Arc::new(ClusterState {
            name: self.name.clone(),
            slots: self.catalog.slot_count(),
            engine: Arc::clone(&self.engine),
            router: Arc::clone(&self.router),
            peers: self.peers.clone(),
            cache: cache.clone(),
        })
    }

    /// Answers other workers, and takes slots that this one should have and nobody has. When it returns, requests of
    /// clients find their homes.
    pub(crate) async fn work(self, listener: TcpListener, cache: &Cache, service: &S3Service) -> Working {
        let Self { name: _, env, engine, catalog, router, identity, peers: _ } = self;
        let (stop, cut) = (CancellationToken::new(), CancellationToken::new());
        let (answers, requests) = (Arc::new(cache.clone()), Arc::new(ForwardedRequests::new(service.clone())));
        let server = PeerServer::new(env.clone(), identity, router.own(), answers, requests);
        let server = forebay_env::spawn(server.run(listener, stop.clone(), cut.clone()));
        let maintenance = forebay_env::spawn(async move { engine.maintain().await });
        let stop_following = CancellationToken::new();
        let membership = Membership::new(&env, Arc::clone(&catalog), cache.clone(), router, stop_following.clone());
        membership.begin().await;
        let following = forebay_env::spawn(membership.follow());
        Working { env, catalog, server, stop, cut, following, stop_following, maintenance }
    }
}

/// A worker that does its part in its cluster.
pub(crate) struct Working {
    env: Env,
    catalog: Arc<HomeCatalog>,
    server: Task<()>,
    stop: CancellationToken,
    cut: CancellationToken,
    following: Task<()>,
    stop_following: CancellationToken,
    maintenance: Task<()>,
}

/// A worker that answers nobody any more.
pub(crate) struct Stopped {
    env: Env,
    catalog: Arc<HomeCatalog>,
}

impl Working {
    /// Returns with the reason when another worker has taken this one's place, because it was silent for too long.
    pub(crate) async fn lost(&self) -> String {
        loop {
            if let Some(reason) = self.catalog.lost() {
                return reason;
            }
            self.env.clock.sleep(LOST_CHECK).await;
        }
    }

    /// Ends what it does for others, which may take until `deadline` twice: changes of slots, and answers.
    pub(crate) async fn stop(self, deadline: Duration) -> Stopped {
        let Self { env, catalog, server, stop, cut, following, stop_following, maintenance } = self;
        stop_following.cancel();
        tokio::select! {
            () = following.join() => {}
            () = env.clock.sleep(deadline) => tracing::warn!("the engine does not answer: slots are left as they are"),
        }
        maintenance.abort();
        stop.cancel();
        let mut server = std::pin::pin!(server.join());
        tokio::select! {
            () = &mut server => {}
            () = env.clock.sleep(deadline) => {
                cut.cancel();
                server.await;
            }
        }
        Stopped { env, catalog }
    }
}

impl Stopped {
    /// Tells the others that they can take its slots at once. Called when the store is closed.
    pub(crate) async fn leave(self) {
        let left = tokio::select! {
            left = self.catalog.leave() => left.map_err(|error| error.to_string()),
            () = self.env.clock.sleep(LEAVE_MAX) => Err("the engine does not answer".to_owned()),
        };
        if let Err(error) = left {
            tracing::warn!(error, "the other workers were not told of this stop: they wait for the end of the lease");
        }
    }
}
