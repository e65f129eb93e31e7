//! A worker of a cluster: joins it, follows what others do, and leaves it.
//!
//! What is here wires parts: the engine (`forebay-etcd`), the catalog of a home (`forebay-cluster`) and the messages
//! between workers (`forebay-peers`).

mod drain;
mod join;
mod measured_engine;
mod membership;
mod metrics;
mod rekey;
mod requests;
mod router;
mod settings_drift;
mod state;
mod users;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use forebay_auth::Users;
use forebay_cache::{Cache, OtherWorkers};
use forebay_catalog::Catalog;
use forebay_cluster::{HomeCatalog, WorkerId};
use forebay_env::sync::Mutex;
use forebay_env::{Env, Task};
use forebay_etcd::EtcdEngine;
use forebay_peers::{Identity, OwnSettings, PeerServer, Peers};
use forebay_s3::{Homes, S3Service};
use futures::future::join3;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::under_store_moved::Records;
use drain::Drain;
use membership::Membership;
use metrics::{ClusterMetrics, SlotMoves};
use requests::{ForwardedRequests, PassedOn};
use router::Router;
use state::ClusterState;

pub(crate) use join::{addresses, join, worker_id};
pub(crate) use metrics::EngineHealth;
pub(crate) use rekey::replace_cluster_key;
pub(crate) use settings_drift::{Agreement, Difference, aside};
pub(crate) use users::{ClusterUsers, UsersProblem};

/// How often to check whether the slots are lost.
const LOST_CHECK: Duration = Duration::from_millis(500);

/// A worker that drains itself as it stops gives that up when no other one has stayed for so long. One that starts
/// again takes less.
const ALONE_MAX: Duration = Duration::from_secs(10);

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
    health: Arc<EngineHealth>,
    moves: SlotMoves,
    /// What others compare with theirs.
    own_settings: OwnSettings,
    agreement: Arc<Agreement>,
}

/// The metrics of a cluster, which its name is a label of.
fn metrics_of<'a>(registry: &'a mut Registry, cluster: &str) -> &'a mut Registry {
    registry.sub_registry_with_label((Cow::Borrowed("cluster"), Cow::Owned(cluster.to_owned())))
}

impl Joined {
    pub(crate) fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::clone(&self.catalog) as _
    }

    /// What the starts of all workers have left.
    pub(crate) fn records(&self) -> Records<'_> {
        Records::Engine(self.engine.as_ref(), Some(&self.catalog))
    }

    /// For the cache: whom it asks for what is at home elsewhere.
    pub(crate) fn others(&self) -> Arc<dyn OtherWorkers> {
        Arc::new(self.peers.clone())
    }

    /// For the S3 endpoint: where it passes requests on to.
    pub(crate) fn homes(&self, cache: &Cache) -> Arc<dyn Homes> {
        Arc::new(PassedOn::new(&self.env, Arc::clone(&self.router), self.peers.clone(), cache.clone()))
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
            env: self.env.clone(),
            catalog: Arc::clone(&self.catalog),
            agreement: Arc::clone(&self.agreement),
        })
    }

    /// For notices: how other workers differ from this one.
    pub(crate) fn agreement(&self) -> Arc<Agreement> {
        Arc::clone(&self.agreement)
    }

    /// Brings the users of the cluster into force.
    pub(crate) async fn users(&self, users: &Users) -> Arc<ClusterUsers> {
        let users = ClusterUsers::new(self.router.own(), &self.env, users, self.catalog(), &self.identity);
        users.begin().await;
        Arc::new(users)
    }

    /// For notices: how the engine stands.
    pub(crate) fn engine_health(&self) -> Arc<EngineHealth> {
        Arc::clone(&self.health)
    }

    /// For Prometheus: both.
    pub(crate) fn register(&self, cache: &Cache, registry: &mut Registry) {
        let metrics = ClusterMetrics {
            catalog: Arc::clone(&self.catalog),
            router: Arc::clone(&self.router),
            cache: cache.clone(),
            engine: Arc::clone(&self.health),
            agreement: Arc::clone(&self.agreement),
        };
        metrics.register(&self.moves, metrics_of(registry, &self.name));
    }

    /// Answers other workers, and takes slots that this one should have and nobody has. When it returns, requests of
    /// clients find their homes.
    pub(crate) async fn work(self, listener: TcpListener, cache: &Cache, service: &S3Service) -> Working {
        let Self { name: _, env, engine, catalog, router, identity, peers, health, moves, own_settings, agreement } =
            self;
        let (stop, cut) = (CancellationToken::new(), CancellationToken::new());
        let (answers, requests) = (Arc::new(cache.clone()), Arc::new(ForwardedRequests::new(service.clone())));
        let told = Arc::clone(&own_settings);
        let server = PeerServer::new(env.clone(), identity, router.own(), answers, requests, told);
        let server = forebay_env::spawn(server.run(listener, stop.clone(), cut.clone()));
        let clock = Arc::clone(&env.clock);
        let (others, members, told_cache) = (peers.clone(), Arc::clone(&router), cache.clone());
        let maintenance = forebay_env::spawn(async move {
            let agreement = agreement.follow(&own_settings, &others, &members, clock.as_ref());
            join3(engine.maintain(), health.follow(&engine, clock.as_ref(), &told_cache), agreement).await;
        });
        let (stop_following, drained) = (CancellationToken::new(), CancellationToken::new());
        let (own, seen) = (router.own().to_owned(), Arc::clone(&router));
        let membership = Membership {
            clock: Arc::clone(&env.clock),
            drain: Drain::new(Arc::clone(&env.clock), Arc::clone(&catalog), peers, &own),
            catalog: Arc::clone(&catalog),
            cache: cache.clone(),
            router,
            moves,
            busy_since: Mutex::default(),
            stop: stop_following.clone(),
            drained: drained.clone(),
        };
        membership.begin().await;
        let following = forebay_env::spawn(membership.follow());
        Working { env, catalog, router: seen, own, server, stop, cut, following, stop_following, drained, maintenance }
    }
}

/// A worker that does its part in its cluster.
pub(crate) struct Working {
    env: Env,
    catalog: Arc<HomeCatalog>,
    router: Arc<Router>,
    /// The name of this worker.
    own: String,
    server: Task<()>,
    stop: CancellationToken,
    cut: CancellationToken,
    following: Task<()>,
    stop_following: CancellationToken,
    drained: CancellationToken,
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

    /// Returns when this worker has been drained: nobody needs its bytes, and it takes no slots any more.
    pub(crate) async fn drained(&self) {
        self.drained.cancelled().await;
    }

    /// Drains this worker, unless there is no other one to take over.
    ///
    /// # Errors
    /// Why it is not drained.
    pub(crate) async fn drain(&self, deadline: Duration) -> Result<(), String> {
        let own = WorkerId::new(&*self.own).map_err(|error| error.to_string())?;
        let drain = async {
            self.catalog.drain(&own).await.map_err(|error| error.to_string())?;
            self.drained().await;
            Ok(())
        };
        tokio::select! {
            drained = drain => drained,
            reason = self.lost() => Err(reason),
            () = self.alone() => Err("all other workers have stopped, or are about to".to_owned()),
            () = self.env.clock.sleep(deadline) => Err("cluster.drain_deadline has passed".to_owned()),
        }
    }

    /// Returns when there has been no worker for a while that could take over.
    async fn alone(&self) {
        loop {
            self.router.until_nobody_stays().await;
            tokio::select! {
                biased;
                () = self.router.until_somebody_stays() => {}
                () = self.env.clock.sleep(ALONE_MAX) => return,
            }
        }
    }

    /// Ends what it does for others, which may take until `deadline` twice: changes of slots, and answers.
    pub(crate) async fn stop(self, deadline: Duration) -> Stopped {
        let Self { env, catalog, server, stop, cut, following, stop_following, maintenance, .. } = self;
        stop_following.cancel();
        tokio::select! {
            () = following.join() => {}
            () = env.clock.sleep(deadline) => tracing::warn!(
                "moves of slots have not ended within cache.drain_timeout, and stay as they are: check the engine of the cluster (etcd)"
            ),
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
            tracing::warn!(
                error,
                "this stop could not be recorded in the engine of the cluster (etcd): other workers take over when the lease expires (cluster.lease)"
            );
        }
    }
}
