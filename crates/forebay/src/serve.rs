//! `forebay serve`: from a configuration to a running worker, and back to a clean stop.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Once};
use std::time::Duration;

use forebay_admin::{Admin, FirstRound, Notice, Notices, Running, Severity};
use forebay_auth::{Secret, Users};
use forebay_cache::{Cache, Mounts, Parts};
use forebay_catalog::{Catalog, EmbeddedCatalog, records};
use forebay_cluster::{Addresses, check_alone};
use forebay_env::disk::memory::MemoryDisk;
use forebay_env::disk::real::{DISK_CALLS_MAX, RealDisk};
use forebay_env::{Background, Disk, Env, Task};
use forebay_logs::{LogMetrics, Logs};
use forebay_s3::{S3Service, S3Settings};
use forebay_store::Store;
use forebay_ufs::UnderStoreUrl;
use forebay_ufs::directory::DIRECTORY_CALLS_MAX;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Joined, Working};
use crate::config::{Config, UNDER_STORE_DEFAULT};
use crate::failure::Failure;
use crate::made_directories::MadeDirectories;
use crate::metrics::{ProcessMetrics, StoreMetrics, StoreObserver, UnderStoreMetrics, UnderStoreObserver};
use crate::signals::Signals;
use crate::tls::Tls;
use crate::under_store_moved::Records;
use crate::under_stores::OpenUnderStores;
use crate::watch::{Watch, WatchMetrics};
use crate::{
    cluster, credentials, doctor, first_start, limits, logs, lost_changes, signals, store_settings, tls,
    under_store_gone, under_store_marks, under_store_moved, under_stores, watch,
};

/// Connections that the kernel keeps while all permits are taken.
const LISTEN_BACKLOG: u32 = 1024;

/// A drained worker keeps answering for this long before it stops, so that a client that waits for the end of the
/// drain, and asks this worker alone, sees it.
const DRAINED_SHOWN: Duration = Duration::from_secs(2);

/// How often to check whether background work still runs.
const BACKGROUND_CHECK: Duration = Duration::from_secs(1);

/// Between two looks at what was wrong with this machine at the start.
const MACHINE_CHECK: Duration = Duration::from_secs(30);

/// Threads of a runtime for calls that block and belong to no disk: files of settings, names of hosts.
const OTHER_CALLS_MAX: usize = 16;

/// Of threads for what no client waits for: a tenth of the weight of others.
const BACKGROUND_NICENESS: i32 = 10;

/// How a worker has ended without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Stopped,
    /// Another worker has taken its place in the cluster. A new process can join again.
    LostSlots,
}

/// Runs until a signal ends it.
pub(crate) fn serve(config: Config) -> Result<(), Failure> {
    let traces = logs::start(&config)?;
    tell_start(&config);
    limits::prepare_process(config.server.core_dumps);
    let threads = blocking_threads(&config);
    let runtime = Builder::new_multi_thread().enable_all().max_blocking_threads(threads).build();
    let runtime = runtime.map_err(|e| Failure::of("runtime", &e))?;
    let background = background_runtime(threads).map_err(|e| Failure::of("runtime", &e))?;
    let env = Env { background: Background::on(background.handle()), ..Env::real() };
    let ended = runtime.block_on(run(Arc::new(config), env));
    // What still runs here is of no use to anybody: requests have ended and the store is closed.
    runtime.shutdown_background();
    background.shutdown_background();
    if let Some(traces) = traces {
        traces.finish();
    }
    match ended? {
        Ended::Stopped => Ok(()),
        Ended::LostSlots => Err(start_again()),
    }
}

/// The first line of a run: what starts, with which settings, and where clients will reach it.
fn tell_start(config: &Config) {
    let worker = config.cluster.engine.as_ref().and_then(|_| cluster::worker_id(&config.cluster).ok());
    let worker = worker.map(|worker| worker.to_string());
    let under_store = config.root.as_ref().map(|root| root.url.to_string());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        configuration = config.file.as_deref(),
        worker = worker.as_deref(),
        s3 = %config.server.listen,
        admin = %config.server.admin_listen,
        under_store = under_store.as_deref(),
        mounts = config.mounts.len(),
        data_dirs = ?config.store.data_dirs,
        "starting"
    );
}

/// Replaces this process by a new one with the same arguments. Nothing of it is left: no task, no lock, no open file.
fn start_again() -> Failure {
    tracing::info!("starting again, to join the cluster as a new process");
    // The program that runs, even if its file has been replaced.
    let error = Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).exec();
    Failure::Failed(format!("this worker has lost its slots and could not restart itself: {error}. Start it again"))
}

/// Enough for all calls that disks and directories may have at once, so that one that does not answer stops no other.
/// No more: each thread keeps some megabytes of what it has allocated and others have freed, and all of them stay as
/// long as there is enough to do.
fn blocking_threads(config: &Config) -> usize {
    let urls = config.mounts.values().chain(&config.root).map(|under_store| &under_store.url);
    let directories = urls.filter(|url| matches!(url, UnderStoreUrl::Directory(_))).count();
    config.store.data_dirs.len() * DISK_CALLS_MAX + directories * DIRECTORY_CALLS_MAX + OTHER_CALLS_MAX
}

/// Threads that get the processor time that requests leave, and a tenth when they leave none: uploads continue, and
/// nobody waits for them.
fn background_runtime(blocking_threads: usize) -> std::io::Result<Runtime> {
    let told = Once::new();
    // For this thread alone, as Linux has it.
    let step_back = move || {
        if let Err(error) = rustix::process::setpriority_process(None, BACKGROUND_NICENESS) {
            told.call_once(
                || tracing::warn!(%error, "the priority of background threads could not be lowered: uploads compete with requests for processors"),
            );
        }
    };
    Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(blocking_threads)
        .thread_name("background")
        .on_thread_start(step_back)
        .build()
}

async fn run(config: Arc<Config>, env: Env) -> Result<Ended, Failure> {
    let signals = Signals::install()?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let log_metrics = LogMetrics::default();
    if config.root.is_none() && Path::new(UNDER_STORE_DEFAULT).is_dir() {
        tracing::warn!(
            "the directory {UNDER_STORE_DEFAULT} exists and is not used: with mounts, other buckets need under_store.url"
        );
    }
    let request_logs = logs::open(&config, &env, &log_metrics)?;
    let hangups = signals::reopen_at_hangup(request_logs.clone())?;
    logs::started(&request_logs.audit, &config);
    let ended = work(&config, &env, signals, &request_logs, &log_metrics).await;
    logs::stopped(&request_logs.audit, ended.as_ref().err());
    hangups.abort();
    request_logs.flush().await;
    ended
}

/// Everything between the first and the last entry of the audit log.
async fn work(
    config: &Arc<Config>,
    env: &Env,
    mut signals: Signals,
    request_logs: &Logs,
    log_metrics: &LogMetrics,
) -> Result<Ended, Failure> {
    let certificates = tls::load(config)?;
    let tls = certificates.as_ref().map(|tls| tls.acceptor.clone());
    let scheme = if tls.is_some() { "https" } else { "http" };
    // Bound now, so that a wrong address is reported before anything else happens; accepting begins when the store is
    // open.
    let socket = bind(config.server.listen, "server.listen")?;
    let admin_listener = listen(bind(config.server.admin_listen, "server.admin_listen")?, "server.admin_listen")?;
    let admin_address = admin_listener.local_addr().map_err(|e| Failure::of("server.admin_listen", &e))?;
    let peer_listener = peer_listener(config)?;
    let addresses =
        peer_listener.as_ref().map(|peers| reached_at(config, peers, &socket, admin_address)).transpose()?;
    let admin_tls = tls.clone().filter(|_| config.server.admin_tls);
    let admin_scheme = if admin_tls.is_some() { "https" } else { "http" };
    let admin = Admin::new(env.clone(), admin_tls, request_logs.audit.clone());
    let admin_stop = CancellationToken::new();
    let admin_task = forebay_env::spawn(forebay_admin::run(admin_listener, admin.clone(), admin_stop.clone()));

    let made = MadeDirectories::of(&config.store.data_dirs);
    // A stop during recovery needs no care: recovery only reads what is durable, and cuts torn tails once more next
    // time.
    let worker = tokio::select! {
        started = Worker::start(config, env, request_logs, log_metrics, addresses) => {
            started.inspect_err(|_| made.remove())?
        }
        () = signals.next() => return Ok(Ended::Stopped),
    };
    let Worker { cache, users, service, registry, users_watch, under_stores, watch, joined } = worker;
    let state = joined.as_ref().map(|joined| joined.state(&cache));
    let cluster = match joined.zip(peer_listener) {
        // A stop needs no care here either: the slots are left as they are.
        Some((joined, listener)) => tokio::select! {
            working = joined.work(listener, &cache, &service) => Some(working),
            () = signals.next() => return Ok(Ended::Stopped),
        },
        None => None,
    };
    let notices = watch.notices.clone();
    let watch = watch.start(&config.store.data_dirs, certificates.as_ref().map(Tls::certificate));
    let probes = under_stores.watch(env);
    let certificates_watch = certificates.map(|tls| tls.watch(env, &notices));
    let first_look = notices.first_round();
    admin.ready(Running {
        cache: cache.clone(),
        users,
        registry,
        notices: notices.clone(),
        configuration: config.effective.clone(),
        under_stores: Arc::new(under_stores),
        cluster: state,
    });
    let listener = listen(socket, "server.listen")?;
    let address = listener.local_addr().map_err(|e| Failure::of("server.listen", &e))?;
    first_start::end(config);
    forebay_env::spawn(look_at_machine(Arc::clone(config), env.clone(), notices, first_look));
    let stop = CancellationToken::new();
    let mut s3 = Box::pin(forebay_env::spawn(service.run(listener, tls, stop.clone())).join());
    println!("forebay is ready: S3 on {scheme}://{address}, admin on {admin_scheme}://{admin_address}");

    let ended = tokio::select! {
        () = signals.next() => {
            drain_first(config, cluster.as_ref(), &mut signals).await;
            tracing::info!("stopping: no new requests");
            Ended::Stopped
        }
        () = drained(cluster.as_ref()) => {
            tokio::select! {
                () = env.clock.sleep(DRAINED_SHOWN) => {}
                () = signals.next() => {}
            }
            tracing::info!("stopping after the drain: no new requests");
            Ended::Stopped
        }
        reason = lost_slots(cluster.as_ref()) => {
            tracing::error!(reason, "this worker has lost its slots: restarting, to join the cluster again");
            Ended::LostSlots
        }
        () = &mut s3 => {
            return Err(Failure::Failed(
                "internal error: the S3 listener has ended. Restart, and report the log lines before this one".into(),
            ));
        }
        () = background_failure(&cache, env) => {
            return Err(Failure::Failed(
                "internal error: a background task has panicked. Restart, and report the panic message".into(),
            ));
        }
    };
    forebay_env::spawn(signals.exit_at_next());
    admin.stopping();
    stop.cancel();
    s3.await;
    let cluster = match cluster {
        Some(cluster) => Some(cluster.stop(config.cache.drain_timeout.0).await),
        None => None,
    };
    // In a cluster, it changes the catalog.
    users_watch.abort();
    let closed = cache.close().await;
    if let Some(cluster) = cluster.filter(|_| ended == Ended::Stopped) {
        cluster.leave().await;
    }
    watch.abort();
    probes.iter().chain(&certificates_watch).for_each(Task::abort);
    admin_stop.cancel();
    admin_task.join().await;
    closed.map_err(|e| Failure::of("closing the store", &e))?;
    tell_what_is_left(&cache.status());
    Ok(ended)
}

/// Where other workers connect, if there is a cluster.
fn peer_listener(config: &Config) -> Result<Option<TcpListener>, Failure> {
    let name = "cluster.listen";
    let socket = config.cluster.engine.as_ref().map(|_| bind(config.cluster.listen, name)).transpose()?;
    socket.map(|socket| listen(socket, name)).transpose()
}

/// The addresses that this worker announces to other workers and clients.
fn reached_at(config: &Config, peers: &TcpListener, s3: &TcpSocket, admin: SocketAddr) -> Result<Addresses, Failure> {
    let peers = peers.local_addr().map_err(|e| Failure::of("cluster.listen", &e))?;
    let s3 = s3.local_addr().map_err(|e| Failure::of("server.listen", &e))?;
    Ok(cluster::addresses(config, peers, s3, admin))
}

/// Drains a worker that is to stop, if the settings say so.
async fn drain_first(config: &Config, cluster: Option<&Working>, signals: &mut Signals) {
    let Some(cluster) = cluster.filter(|_| config.cluster.drain_on_stop) else { return };
    tracing::info!("draining before the stop");
    let drained = tokio::select! {
        drained = cluster.drain(config.cluster.drain_deadline.0) => drained,
        () = signals.next() => Err("a second signal has come".to_owned()),
    };
    if let Err(problem) = drained {
        tracing::warn!(problem, "stopping before the end of the drain: keep the data directories, and start again");
    }
}

async fn drained(cluster: Option<&Working>) {
    match cluster {
        Some(cluster) => cluster.drained().await,
        None => std::future::pending().await,
    }
}

async fn lost_slots(cluster: Option<&Working>) -> String {
    match cluster {
        Some(cluster) => cluster.lost().await,
        None => std::future::pending().await,
    }
}

fn tell_what_is_left(status: &forebay_cache::Status) {
    let &forebay_cache::Status { dirty_objects, tombstones, conflicts, .. } = status;
    match (dirty_objects + tombstones, conflicts) {
        (0, 0) => tracing::info!("stopped: nothing waits for the under store"),
        (0, _) => tracing::warn!(
            conflicts,
            "stopped: conflicts remain, and nothing else waits for the under store: what was written to these keys is only here"
        ),
        (_, _) => tracing::warn!(
            dirty_objects,
            tombstones,
            conflicts,
            "stopped: the rest goes to the under store after the next start"
        ),
    }
}

/// Raises what the quick part of `forebay doctor` finds, and that changes are lost, and looks again until nothing of
/// that is left. A file system that does not answer holds up nothing else.
async fn look_at_machine(config: Arc<Config>, env: Env, notices: Notices, first_look: FirstRound) {
    let mut raised = BTreeSet::new();
    let mut first_look = Some(first_look);
    loop {
        let (config, now_ms) = (Arc::clone(&config), env.clock.unix_ms());
        let look = move || {
            let lost = lost_changes::notice(&config, now_ms);
            doctor::notices(&config, now_ms).into_iter().chain(lost).collect::<Vec<_>>()
        };
        let found = tokio::task::spawn_blocking(look).await.unwrap_or_default();
        let present: BTreeSet<_> = found.iter().map(|notice| (notice.id.clone(), notice.subject.clone())).collect();
        for (id, subject) in raised.difference(&present) {
            watch::clear(&notices, id, subject);
        }
        found.into_iter().for_each(|notice| watch::raise(&notices, notice));
        raised = present;
        drop(first_look.take());
        if raised.is_empty() {
            return;
        }
        env.clock.sleep(MACHINE_CHECK).await;
    }
}

/// Ends when background work has ended by itself. A panic in a request ends that connection only; one in persistence or
/// eviction would leave a worker that takes writes and never brings them to the under store, so the whole process ends,
/// and recovery begins from what is on disk.
async fn background_failure(cache: &Cache, env: &Env) {
    while !cache.has_failed() {
        env.clock.sleep(BACKGROUND_CHECK).await;
    }
}

/// All parts of a worker, wired, before the first request.
struct Worker {
    cache: Cache,
    users: Users,
    service: S3Service,
    registry: Registry,
    users_watch: Task<()>,
    under_stores: OpenUnderStores,
    watch: Watch,
    joined: Option<Joined>,
}

/// Nothing tells a new store from one whose disks are not mounted, so that an operator is to say which it is.
fn tell_new(config: &Config, now_ms: u64, notices: &Notices) {
    let directories = &config.store.data_dirs;
    let shown: Vec<_> = directories.iter().map(|directory| directory.display().to_string()).collect();
    let notice = Notice {
        id: "store-new".to_owned(),
        severity: Severity::Info,
        subject: shown.join(", "),
        title: "a new store has begun: nothing was in the data directories at its first start".to_owned(),
        cure: "Nothing to do if this is a new installation. If there was a store before, its disk is not mounted, and what it has not brought to the under store is missing. Stop the clients, run `forebay persist /` until it ends with exit code 0, and copy TRANSIENT objects: what was written since this start is not in the earlier store. Only then stop the server, mount the disk, start again, and let the service wait for its mounts (RequiresMountsFor= of systemd)".to_owned(),
        since_ms: now_ms,
    };
    watch::raise(notices, notice);
}

/// Left in the configuration, the setting would let the next move pass, which may be a mistake.
fn tell_moved_buckets(config: &Config, now_ms: u64, notices: &Notices) {
    if config.moved_buckets.is_empty() {
        return;
    }
    let notice = Notice {
        id: "moved-buckets-set".to_owned(),
        severity: Severity::Warning,
        subject: String::new(),
        title: "under_store.moved_buckets is set, and no under store has moved since the last start".to_owned(),
        cure: "Remove the setting, and restart the server when convenient. While it is set, a start is not refused when the under store of these buckets is another one and changes wait for the earlier one".to_owned(),
        since_ms: now_ms,
    };
    watch::raise(notices, notice);
}

impl Worker {
    /// `addresses`: where it is reached as a worker of a cluster.
    async fn start(
        config: &Config,
        env: &Env,
        logs: &Logs,
        log_metrics: &LogMetrics,
        addresses: Option<Addresses>,
    ) -> Result<Self, Failure> {
        let disks = open_disks(config)?;
        let notices = Notices::default();
        let root_user = credentials::root_user(config, env.random.as_ref())?;
        let token_secret = root_user.secret_key.clone();
        let users = Users::open(root_user, config.server.users_file.clone())
            .map_err(|e| Failure::Refused(format!("server.users_file: {e}")))?;
        let store_settings = store_settings::resolve(&config.store, &disks).await?;
        let segments = store_settings.capacity_bytes.iter().sum::<u64>() / store_settings.segment_bytes;
        let mut registry = Registry::default();
        log_metrics.register(&mut registry);
        let observer = Arc::new(UnderStoreObserver::register(&mut registry));
        let (mounts, under_stores) = under_stores::open(config, env, observer).await?;
        UnderStoreMetrics::register(&mut registry, &under_stores);
        let is_new = first_start::begin(config)?;
        let before = lost_changes::Before::of(&config.store.data_dirs);
        let (store, syncs) = open_store(env, disks, store_settings, &mut registry).await?;
        lost_changes::note(config, store.forgotten(), &before);
        if is_new {
            tell_new(config, env.clock.unix_ms(), &notices);
        }
        let joined = match addresses {
            Some(addresses) => Some(cluster::join(config, env, &store, addresses, &users, &mut registry).await?),
            None => None,
        };
        let catalog = match &joined {
            Some(joined) => joined.catalog(),
            None => embedded(&store)?,
        };
        let outdated = under_store_marks::check(config, &mounts, catalog.as_ref()).await?;
        under_store_gone::check_buckets(config, &mounts, catalog.as_ref(), &store).await?;
        let records = joined.as_ref().map_or(Records::Catalog(catalog.as_ref()), Joined::records);
        under_store_moved::check(config, env, &records).await?;
        // Before copies go: a start that is refused costs none.
        Cache::check_buckets(catalog.as_ref(), &mounts).await.map_err(not_opened)?;
        under_store_moved::drop_copies(config, env, &records, catalog.as_ref(), &store).await?;
        outdated.tell(config, env.clock.unix_ms(), &notices);
        let is_replaced = outdated.forget(config, catalog.as_ref()).await?;
        let parts = Parts {
            env: env.clone(),
            catalog: Arc::clone(&catalog),
            store: store.clone(),
            mounts,
            settings: config.cache.clone(),
            policies: config.policies.clone(),
            others: joined.as_ref().map(Joined::others),
        };
        let cache = Cache::open(parts, &mut registry).await.map_err(not_opened)?;
        let has_moved = under_store_moved::note(config, env, &records).await?;
        if !has_moved && !is_replaced {
            tell_moved_buckets(config, env.clock.unix_ms(), &notices);
        }
        if let Some(joined) = &joined {
            joined.register(&cache, &mut registry);
        }
        let connections_max = limits::connections_max(config, segments, limits::open_files());
        if connections_max < config.server.connections_max {
            tracing::warn!(
                connections_max,
                "fewer connections are accepted than server.connections_max says, because of the limit of open files: raise LimitNOFILE (systemd) or `ulimit -Hn`"
            );
        }
        let cluster_users = match &joined {
            Some(joined) => Some(joined.users(&users).await),
            None => None,
        };
        let settings = s3_settings(config, connections_max, token_secret);
        let homes = joined.as_ref().map(|joined| joined.homes(&cache));
        let service =
            S3Service::new(cache.clone(), users.clone(), settings, env.clone(), &mut registry, logs.clone(), homes);
        let users_watch = match &cluster_users {
            Some(cluster_users) => Arc::clone(cluster_users).watch(),
            None => users.watch(env),
        };
        let watch = Watch {
            env: env.clone(),
            cache: cache.clone(),
            pinned_ratio: config.cache.pinned_ratio,
            store,
            syncs,
            users: users.clone(),
            cluster_users,
            agreement: joined.as_ref().map(Joined::agreement),
            engine: joined.as_ref().map(Joined::engine_health),
            under_stores: under_stores.clone(),
            notices,
            metrics: WatchMetrics::register(&mut registry),
        };
        Ok(Self { cache, users, service, registry, users_watch, under_stores, watch, joined })
    }
}

/// The catalog of a worker that is alone.
fn embedded(store: &Store) -> Result<Arc<dyn Catalog>, Failure> {
    check_alone(store).map_err(|error| Failure::Refused(format!("store.data_dirs: {error}")))?;
    Ok(Arc::new(EmbeddedCatalog::new(store.clone())))
}

fn not_opened(error: forebay_cache::Error) -> Failure {
    match error.kind {
        forebay_cache::ErrorKind::NoSuchBucket => Failure::Refused(format!(
            "under_store.url is not set: {error}. Set it to what it was at the earlier start (file:///…/{UNDER_STORE_DEFAULT} when nothing was set), or mount these buckets, until `forebay status` shows that nothing is dirty; delete what is transient, which stays here for ever"
        )),
        _ => Failure::of("the catalog", &error),
    }
}

pub(crate) fn open_disks(config: &Config) -> Result<Vec<Arc<dyn Disk>>, Failure> {
    let open = |directory: &std::path::PathBuf| -> Result<Arc<dyn Disk>, Failure> {
        // The error names the directory.
        Ok(Arc::new(RealDisk::open(directory).map_err(|e| Failure::of("store.data_dirs", &e))?))
    };
    config.store.data_dirs.iter().map(open).collect()
}

async fn open_store(
    env: &Env,
    disks: Vec<Arc<dyn Disk>>,
    settings: forebay_store::Settings,
    registry: &mut Registry,
) -> Result<(Store, Arc<StoreObserver>), Failure> {
    ProcessMetrics::register(registry, env);
    let observer = Arc::new(StoreObserver::register(registry));
    let settings = forebay_store::Settings { value_check: Some(records::check_version), ..settings };
    let store = Store::open(env.clone(), disks, settings, Some(Arc::clone(&observer) as _)).await;
    let store = store.map_err(|e| Failure::of("the store", &e))?;
    StoreMetrics::register(registry, &store);
    Ok((store, observer))
}

fn s3_settings(config: &Config, connections_max: usize, token_secret: Secret) -> S3Settings {
    S3Settings {
        domain: config.server.domain.clone(),
        region: config.server.region.clone(),
        account_id: config.server.account_id.clone(),
        connections_max,
        connections_per_address_max: match config.server.connections_per_address_max {
            0 => connections_max.div_ceil(2),
            most => most,
        },
        shutdown_deadline: config.cache.drain_timeout.0,
        redirect: config.cluster.redirect,
        ..S3Settings::new(token_secret)
    }
}

fn bind(address: SocketAddr, setting: &str) -> Result<TcpSocket, Failure> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let bound = socket.and_then(|socket| {
        // A restart must not wait for connections of the last life to be forgotten.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    });
    bound.map_err(|e| Failure::of(&format!("{setting} = \"{address}\""), &e))
}

fn listen(socket: TcpSocket, setting: &str) -> Result<TcpListener, Failure> {
    socket.listen(LISTEN_BACKLOG).map_err(|e| Failure::of(setting, &e))
}

/// Room of a worker that only shows its metrics: nothing is written to it.
const MEMORY_DISK_BYTES: u64 = 1 << 30;

/// The metrics of a worker that lives in memory and is gone at once.
pub(crate) async fn registry_in_memory() -> Result<Registry, Failure> {
    let (env, _clock) = Env::simulated(0);
    let mut registry = Registry::default();
    LogMetrics::default().register(&mut registry);
    UnderStoreObserver::register(&mut registry);
    let settings = forebay_store::Settings::new(vec![MEMORY_DISK_BYTES]);
    UnderStoreMetrics::register(&mut registry, &OpenUnderStores::default());
    WatchMetrics::register(&mut registry);
    let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(MemoryDisk::new(MEMORY_DISK_BYTES))];
    let (store, _) = open_store(&env, disks, settings, &mut registry).await?;
    let parts = Parts {
        env: env.clone(),
        catalog: Arc::new(EmbeddedCatalog::new(store.clone())),
        store,
        mounts: Mounts { mounts: std::collections::BTreeMap::new(), root: None, background_root: None },
        settings: forebay_cache::Settings::default(),
        policies: Vec::new(),
        others: None,
    };
    let cache = Cache::open(parts, &mut registry).await.map_err(|e| Failure::of("the catalog", &e))?;
    let root_user = forebay_auth::RootUser { access_key: "reference".into(), secret_key: Secret::new("reference") };
    let users = Users::open(root_user, None).map_err(|e| Failure::of("users", &e))?;
    S3Service::new(cache, users, S3Settings::new(Secret::new("reference")), env, &mut registry, Logs::default(), None);
    Ok(registry)
}
