//! How a worker joins its cluster.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_auth::Users;
use forebay_catalog::ErrorKind;
use forebay_cluster::{
    Addresses, ClusterIdentity, ClusterSettings, HomeCatalog, HomeSettings, OlderEngine, WorkerId, accept_older_engine,
    has_joined, older_engine,
};
use forebay_env::Env;
use forebay_etcd::{EtcdEngine, EtcdSettings, EtcdUser};
use forebay_peers::{ClusterKey, Identity, Members, Peers};
use forebay_store::Store;
use prometheus_client::registry::Registry;

use super::measured_engine::MeasuredEngine;
use super::metrics::SlotMoves;
use super::router::Router;
use super::settings_drift::{check_clock, check_under_stores, own_settings, under_stores};
use super::{Joined, metrics_of};
use crate::config::{Cluster, Config, etcd_endpoints};
use crate::failure::Failure;
use crate::under_store_moved::{self, Records};

/// How often the first start of a worker asks the engine, and the pause between. Later starts wait for it.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// Where other workers and clients reach this one. The addresses are those where it listens.
pub(crate) fn addresses(config: &Config, peers: SocketAddr, s3: SocketAddr, admin: SocketAddr) -> Addresses {
    let peers = config.cluster.advertise.clone().unwrap_or_else(|| peers.to_string());
    let host = peers.rsplit_once(':').map_or(peers.as_str(), |(host, _)| host).to_owned();
    let reached = |address: SocketAddr| match address.ip().is_unspecified() {
        true => format!("{host}:{}", address.port()),
        false => address.to_string(),
    };
    Addresses { s3: Some(reached(s3)), admin: Some(reached(admin)), peers }
}

/// Makes this process a worker of the cluster, with the slots that were at home here.
///
/// # Errors
/// Bad settings, an engine that does not answer, the key or the data directories of another cluster, a worker that
/// lives and has other under stores, changes that wait for under stores that were replaced, at the first start a clock
/// that is far off from those of other workers, and another process with this worker's name.
pub(crate) async fn join(
    config: &Config,
    env: &Env,
    store: &Store,
    addresses: Addresses,
    users: &Users,
    registry: &mut Registry,
) -> Result<Joined, Failure> {
    let cluster = &config.cluster;
    let engine = Arc::new(engine(cluster, env)?);
    let worker = worker_id(cluster)?;
    let identity = identity(cluster, env, engine.as_ref(), has_joined(store)).await?;
    let keys = prove(cluster, &identity)?;
    let own_settings = own_settings(config, users, &keys, &env.clock);
    let router = Arc::new(Router::new(worker.clone(), Arc::clone(&env.clock)));
    let peers = Peers::new(env, &keys, router.own(), Arc::clone(&router) as Arc<dyn Members>);
    // One that has joined has bytes that the others may want: then a notice tells of its clock.
    if !has_joined(store) {
        let checked = check_clock(engine.as_ref(), &worker, &own_settings, &peers, env.clock.as_ref()).await;
        checked.map_err(Failure::Refused)?;
    }
    let settings = HomeSettings {
        worker,
        is_alone: false,
        cluster: ClusterSettings { lease_ms: cluster.lease.0.as_millis() as u64, ..ClusterSettings::DEFAULT },
        addresses: Some(addresses),
        under_stores: under_stores(config, &keys),
    };
    check_under_stores(env, engine.as_ref(), &settings).await?;
    let claimed = identity.claim(store).await;
    claimed.map_err(|error| Failure::Refused(format!("store.data_dirs: {error}")))?;
    let is_accepted = check_engine(cluster, env, engine.as_ref(), store).await?;
    // Before this worker has anything to take back. Those that it ends as it joins may still write: it looks once more.
    under_store_moved::check(config, env, &Records::Engine(engine.as_ref(), None)).await?;
    if is_accepted {
        // Last: a start that is refused and tried again raises nothing.
        answered(cluster, env, || accept_older_engine(engine.as_ref(), store, env.clock.unix_ms())).await?;
    }
    let registry = metrics_of(registry, &cluster.name);
    let measured = MeasuredEngine::register(Arc::clone(&engine) as _, Arc::clone(&env.clock), registry);
    let catalog = HomeCatalog::open(env.clone(), store.clone(), Arc::new(measured), settings).await;
    let catalog = catalog.map_err(|error| Failure::Failed(format!("the cluster {}: {error}", cluster.name)))?;
    // The key may have been replaced just before this worker was seen: see `rekey`.
    if let Some(identity) = answered(cluster, env, || ClusterIdentity::load(engine.as_ref())).await? {
        prove(cluster, &identity)?;
    }
    tracing::info!(worker = router.own(), cluster = cluster.name, "joined the cluster");
    Ok(Joined {
        name: cluster.name.clone(),
        env: env.clone(),
        engine,
        catalog: Arc::new(catalog),
        router,
        identity: keys,
        peers,
        health: Arc::default(),
        moves: SlotMoves::default(),
        own_settings,
        agreement: Arc::default(),
    })
}

/// Whether the engine is older than at the last start of this worker, and the settings accept it.
///
/// # Errors
/// When it is older, and they do not.
async fn check_engine(cluster: &Cluster, env: &Env, engine: &EtcdEngine, store: &Store) -> Result<bool, Failure> {
    let older = answered(cluster, env, || older_engine(engine, store)).await?;
    let Some(OlderEngine { seen, found }) = older else { return Ok(false) };
    if cluster.accept_older_engine == seen {
        tracing::warn!(seen, found, "etcd is older than at the last start: what was written since is lost");
        return Ok(true);
    }
    let engine = cluster.engine.as_deref().unwrap_or_default();
    Err(Failure::Refused(format!(
        "cluster.engine = \"{engine}\": etcd is older than at the last start of this worker: it has revision {found} of the worker's record, and revision {seen} was seen. So it was restored from a backup. Objects that were written since would be lost, although their bytes are still in the data directories. Stop all workers and restore the newest data of etcd. If there is none, bring out what only the data directories have (forebay salvage), and then set cluster.accept_older_engine = {seen}"
    )))
}

/// Asks an engine that has answered a moment ago until it answers.
async fn answered<T, F: Future<Output = forebay_catalog::Result<T>>>(
    cluster: &Cluster,
    env: &Env,
    ask: impl Fn() -> F,
) -> Result<T, Failure> {
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Busy) => {}
            Err(error) => return Err(Failure::Failed(format!("the cluster {}: {error}", cluster.name))),
        }
        env.clock.sleep(PAUSE).await;
    }
}

pub(super) fn engine(cluster: &Cluster, env: &Env) -> Result<EtcdEngine, Failure> {
    let endpoints = cluster.engine.as_deref().and_then(etcd_endpoints).expect("the configuration was checked");
    let password = || cluster.etcd_password.0.clone();
    let settings = EtcdSettings {
        prefix: format!("forebay.{}", cluster.name),
        user: cluster.etcd_user.clone().map(|name| EtcdUser { name, password: password() }),
        ca_file: cluster.etcd_ca_file.clone(),
        certificate_file: cluster.etcd_certificate_file.clone(),
        key_file: cluster.etcd_key_file.clone(),
        ..EtcdSettings::new(endpoints)
    };
    EtcdEngine::new(env, &settings).map_err(|wrong| {
        let setting = match wrong.setting {
            "endpoints" => "engine".to_owned(),
            setting @ ("ca_file" | "certificate_file" | "key_file" | "user") => format!("etcd_{setting}"),
            setting => setting.to_owned(),
        };
        Failure::Refused(format!("cluster.{setting}: {}", wrong.problem))
    })
}

/// The name of this worker.
pub(crate) fn worker_id(cluster: &Cluster) -> Result<WorkerId, Failure> {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = cluster.worker_id.clone().unwrap_or(machine);
    WorkerId::new(name).map_err(|error| Failure::Refused(format!("cluster.worker_id: {error}")))
}

/// That of the cluster, which begins with its first worker. `has_joined`: the settings were right once, so the engine
/// will answer again.
async fn identity(
    cluster: &Cluster,
    env: &Env,
    engine: &EtcdEngine,
    has_joined: bool,
) -> Result<ClusterIdentity, Failure> {
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match load_or_create(cluster, env, engine).await? {
            Ok(identity) => return Ok(identity),
            Err(error) => error,
        };
        let may_pass = matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Busy);
        if has_joined && may_pass {
            if tries == 1 {
                tracing::warn!(%error, "waiting for the engine of the cluster (etcd): check that it runs and can be reached (cluster.engine)");
            }
        } else if !may_pass || tries == TRIES {
            let engine = cluster.engine.as_deref().unwrap_or_default();
            return Err(Failure::Refused(format!("cluster.engine = \"{engine}\": {error}")));
        }
        env.clock.sleep(PAUSE).await;
    }
}

async fn load_or_create(
    cluster: &Cluster,
    env: &Env,
    engine: &EtcdEngine,
) -> Result<forebay_catalog::Result<ClusterIdentity>, Failure> {
    match ClusterIdentity::load(engine).await {
        Ok(None) => {}
        Ok(Some(identity)) => return Ok(Ok(identity)),
        Err(error) => return Ok(Err(error)),
    }
    let given = given_key(cluster)?;
    let key = given.clone().unwrap_or_else(|| ClusterKey::generate(env.random.as_ref()));
    let fingerprint = Identity::new(&key, &cluster.name).fingerprint().to_owned();
    let kept = given.is_none().then(|| key.reveal());
    Ok(ClusterIdentity::new(env.random.as_ref(), &fingerprint, kept).create(engine).await)
}

/// What this worker shows to others, when its key is that of the cluster.
fn prove(cluster: &Cluster, of_cluster: &ClusterIdentity) -> Result<Identity, Failure> {
    let refused = |wrong: String| Failure::Refused(format!("cluster.key_file: {wrong}"));
    let key = match (given_key(cluster)?, &of_cluster.key) {
        (Some(key), _) => key,
        (None, Some(kept)) => ClusterKey::parse(kept).map_err(refused)?,
        (None, None) => {
            return Err(refused(format!("the workers of cluster {} have a key file: give its key", cluster.name)));
        }
    };
    let identity = Identity::new(&key, &cluster.name);
    match identity.fingerprint() == of_cluster.key_fingerprint {
        true => Ok(identity),
        false => Err(refused(format!("this is not the key of cluster {}", cluster.name))),
    }
}

pub(super) fn given_key(cluster: &Cluster) -> Result<Option<ClusterKey>, Failure> {
    cluster.key_file.as_deref().map(|file| read_key("cluster.key_file =", file)).transpose()
}

/// `given`: how the file was given.
pub(super) fn read_key(given: &str, file: &Path) -> Result<ClusterKey, Failure> {
    let refused = |wrong: String| Failure::Refused(format!("{given} {:?}: {wrong}", file.display().to_string()));
    let text = std::fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    ClusterKey::parse(&text).map_err(refused)
}
